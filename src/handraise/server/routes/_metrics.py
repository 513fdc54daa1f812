"""`/metrics`: what the desk counted and how it stands, in the format of OpenMetrics.

Labels come from the fixed words below, never from what agents or people wrote.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path

from handraise.broker import Broker
from handraise.broker.counts import Histogram, Lag
from handraise.server.routes._health import PATIENCE, VERSION, BoundedRead
from handraise.stores import OpenAsks

__all__ = ["MEDIA_TYPE", "NAMES", "Metrics"]

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # operations of one commit
PROCESS = Path("/proc/self")  # where there is none, nothing is told of the process

HERE = "at this desk since it started"
EVERYWHERE = "in the whole database, so the same number at each of its desks"

# Every metric: its type and what it means.
NAMES = {
    "handraise_asks_open": ("gauge", f"Asks that wait for an answer, {EVERYWHERE}."),
    "handraise_oldest_ask_age_seconds": (
        "gauge",
        f"For how long the oldest open ask has waited, 0 where none does, {EVERYWHERE}.",
    ),
    "handraise_asks_raised": ("counter", f"Asks raised {HERE}."),
    "handraise_time_to_answer_seconds": (
        "histogram",
        f"From the ask to its answer or rejection, for what was decided {HERE}.",
    ),
    "handraise_deliveries": ("counter", f"Answers reported {HERE} as taken by their agent, or as failed."),
    "handraise_races_lost": ("counter", f"Answers given {HERE} to what was settled already."),
    "handraise_asks_withdrawn": ("counter", f"Asks that their agent took back {HERE}."),
    "handraise_asks_unseen": ("counter", f"Asks that no channel could show while nobody looked {HERE}."),
    "handraise_events_pruned": ("counter", f"Events forgotten {HERE}, because of their age."),
    "handraise_commits": ("counter", f"Commits {HERE}."),
    "handraise_commit_operations": ("histogram", f"Writes that shared one commit, for all {HERE}."),
    "handraise_loop_lag_seconds": ("histogram", f"How late the event loop came to what was due, {HERE}."),
    "handraise_loop_lag_worst_seconds": ("gauge", "How late it came at worst within the last minute."),
    "handraise_listeners": ("gauge", "Event streams open at this desk."),
    "handraise_waits": ("gauge", "Calls parked at this desk until their ask is settled."),
    "handraise_store_trouble": ("gauge", "1 while something about the database does not work at this desk, else 0."),
    "handraise_database": ("info", "The database."),
    "handraise_build": ("info", "The program."),
    "process_resident_memory_bytes": ("gauge", "Memory of the process."),
    "process_open_fds": ("gauge", "Open file descriptors of the process."),
}

Labels = Mapping[str, str]


class Metrics:
    def __init__(self, broker: Broker, *, lag: Lag) -> None:
        self._broker = broker
        self._lag = lag
        self._open_asks = BoundedRead(broker.store.open_asks, seconds=PATIENCE)
        self._known: OpenAsks | None = None

    async def text(self) -> str:
        """Everything. While the database is away nothing can change in it, so what it said last is told again."""
        is_read = await self._read()
        lines = [line for family in self._families(is_read=is_read) for line in family]
        return "\n".join([*lines, "# EOF", ""])

    async def _read(self) -> bool:
        try:
            self._known = await self._open_asks()
        except Exception as failure:  # a driver's too: what is known is told all the same
            log.debug("the metrics go without the database: %s", failure)
            return False
        return True

    def _families(self, *, is_read: bool) -> Iterator[Iterable[str]]:
        broker, store, counts = self._broker, self._broker.store, self._broker.counts
        if self._known is not None:
            total, oldest = self._known
            age = 0.0 if oldest is None else max(0, broker.clock.now() - oldest) / 1000
            yield _plain("handraise_asks_open", total)
            yield _plain("handraise_oldest_ask_age_seconds", age)
        raised = {"question": counts.questions, "permission": counts.permissions}
        yield _labelled("handraise_asks_raised", "kind", raised)
        yield _histograms("handraise_time_to_answer_seconds", "decided_by", counts.answers)
        yield _labelled("handraise_deliveries", "outcome", {"delivered": counts.delivered, "failed": counts.failed})
        yield _plain("handraise_races_lost", counts.races_lost)
        yield _plain("handraise_asks_withdrawn", counts.withdrawn)
        yield _plain("handraise_asks_unseen", counts.unseen)
        yield _plain("handraise_events_pruned", counts.pruned)
        yield _plain("handraise_commits", sum(store.commits.values()))
        yield _histogram("handraise_commit_operations", _batches(store.commits))
        yield _histogram("handraise_loop_lag_seconds", self._lag.all)
        yield _plain("handraise_loop_lag_worst_seconds", self._lag.worst)
        yield _plain("handraise_listeners", len(broker.feeds))
        yield _plain("handraise_waits", broker.waits)
        yield _plain("handraise_store_trouble", int(not is_read or bool(store.troubles)))
        kind, number = store.about
        yield _info("handraise_database", {"kind": kind, "version": number})
        yield _info("handraise_build", {"version": VERSION, "python": platform.python_version()})
        if PROCESS.exists():
            pages = int((PROCESS / "statm").read_text().split()[1])
            yield _plain("process_resident_memory_bytes", pages * os.sysconf("SC_PAGE_SIZE"))
            if opened := (PROCESS / "fd").stat().st_size:  # their number since Linux 6.2; counting them takes too long
                yield _plain("process_open_fds", opened)


def _batches(commits: Mapping[int, int]) -> Histogram:
    found = Histogram(BATCHES)
    for size, times in commits.items():
        found.add(size, times=times)
    return found


# The format -------------------------------------------------------------------------------------------------


def _head(name: str) -> Iterator[str]:
    type, help = NAMES[name]
    yield f"# TYPE {name} {type}"
    for unit in ("seconds", "bytes"):
        if name.endswith(f"_{unit}"):
            yield f"# UNIT {name} {unit}"
    yield f"# HELP {name} {help}"


def _sample(name: str, value: float, labels: Labels | None = None) -> str:
    if not labels:
        return f"{name} {value}"
    given = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{given}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _plain(name: str, value: float) -> Iterator[str]:
    yield from _head(name)
    yield _sample(name + _suffix(name), value)


def _labelled(name: str, label: str, values: Mapping[str, float]) -> Iterator[str]:
    yield from _head(name)
    for text, value in values.items():
        yield _sample(name + _suffix(name), value, {label: text})


def _suffix(name: str) -> str:
    return "_total" if NAMES[name][0] == "counter" else ""


def _info(name: str, labels: Labels) -> Iterator[str]:
    yield from _head(name)
    yield _sample(f"{name}_info", 1, labels)


def _histogram(name: str, counted: Histogram) -> Iterator[str]:
    yield from _head(name)
    yield from _buckets(name, counted, {})


def _histograms(name: str, label: str, counted: Mapping[str, Histogram]) -> Iterator[str]:
    yield from _head(name)
    for text, each in counted.items():
        yield from _buckets(name, each, {label: text})


def _buckets(name: str, counted: Histogram, labels: Labels) -> Iterator[str]:
    bounds = [*map(str, counted.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(counted.counts), strict=True):
        yield _sample(f"{name}_bucket", count, {**labels, "le": bound})
    yield _sample(f"{name}_count", sum(counted.counts), labels)
    yield _sample(f"{name}_sum", counted.sum, labels)
