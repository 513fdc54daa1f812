"""What a run found, as text for the terminal, as docs/performance.md and as a plot; measures nothing but the disk."""

import os
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter

import peers
from goals import FLAT, Goal, goals, session_count
from results import OURS, POSTGRES, PROXY, SQLITE, STORED, Held, Results, Sample, middle, rates, ratio

STORES = {SQLITE: "SQLite", POSTGRES: "PostgreSQL"}
TITLES = {
    SQLITE: "handraise, SQLite",
    POSTGRES: "handraise, PostgreSQL",
    STORED: "peer, stored path",
    PROXY: "peer, stateless proxy",
}
PLOT_LABELS = {
    SQLITE: "handraise\nSQLite\n2 durable writes",
    POSTGRES: "handraise\nPostgreSQL\n2 durable writes",
    STORED: "peer\nstored path\nno wait for the disk",
    PROXY: "peer\nproxy\nstores nothing",
}
COLOURS = {SQLITE: "#2f6fed", POSTGRES: "#7ba3f5", STORED: "#9aa3b2", PROXY: "#c9ced8"}
BUSY = 90  # percent of a core from which on a process counts as the limit
# Whose processor use is told beside the server's, where it is worth a word.
BESIDE = ("database", "agents", "listeners")

Rows = list[tuple[str, ...]]


def one_line(sample: Sample) -> str:
    """One measurement while the run goes on, with who was the limit."""
    rate = f"{sample.cycles_per_second:>9,.0f} cycles/s"
    latency = f"visible {sample.visible_p50:.2f} ms, woken {sample.woken_p50:.2f} ms"
    notes = [f"{sample.lost} cycles lost" if sample.lost else "", f"{sample.late} late" if sample.late else ""]
    return "  ".join([rate, f"{latency:<38}", processors(sample.cpu), *filter(None, notes)])


def processors(cpu: dict[str, float]) -> str:
    """`server 99 % of a core, client 31 %`, and whose limit the measurement shows."""
    used = [f"server {cpu['server']:.0f} % of a core"]
    used += [f"{name} {cpu[name]:.0f} %" for name in BESIDE if cpu.get(name, 0) >= 1]
    used.append(f"client {cpu['client']:.0f} %")
    if cpu["others"] >= 10:
        used.append(f"other programs {cpu['others']:.0f} %")
    return f"{', '.join(used)}: {limit(cpu)}"


def limit(cpu: dict[str, float]) -> str:
    if cpu["client"] >= BUSY:
        return "the client is the limit"
    if sum(cpu.values()) >= BUSY * (os.cpu_count() or 1):
        return "every core is busy"
    return "the server is the limit" if cpu["server"] >= BUSY else "no core is full, latency is the limit"


def waiting_line(held: Held) -> str:
    return (
        f"{held.memory_mb:.0f} MB, wake p50 {held.wake_p50:.2f} ms, p99 {held.wake_p99:.2f} ms; killed, ready again "
        f"after {held.ready_again_after:.2f} s, {held.memory_again_mb:.0f} MB, wake p50 {held.wake_again_p50:.2f} ms, "
        f"p99 {held.wake_again_p99:.2f} ms"
    )


def as_text(results: Results) -> str:
    """Everything for the terminal."""
    parts = [_aligned([head, *rows]) for head, rows in _tables(results) if rows]
    parts += [sentence.replace("`", "") for sentence in _growth_in_words(results)]
    if results.lost:
        parts.append(f"{results.lost} cycles, waiting asks or listeners' events were lost, which is a bug")
    if results.lost_by_the_peer:
        parts.append(f"{results.lost_by_the_peer} cycles were lost by the peer and never finished")
    others = _others(results)
    if max(others) >= 25:
        parts.append(
            f"other programs used {median(others):.0f} % of a core (median), at most {max(others):.0f} %: "
            "repeat on a quiet machine"
        )
    every = goals(results)
    measured = [goal for goal in every if goal.measured is not None]
    if measured:
        parts.append(_aligned([GOALS, *map(_goal_row, measured)]))
    if len(measured) < len(every):
        parts.append(f"{len(every) - len(measured)} of {len(every)} goals were not measured")
    return "\n\n".join(parts) + "\n"


def sentence(goal: Goal) -> str:
    return f"{goal.what} is {_goal_number(goal, goal.measured)}, wanted {_bound(goal, goal.at_least)}"


def write(results: Results, *, docs: Path, versions: Sequence[str], places: dict[str, Path]) -> None:
    """`versions` of the databases, `places` where each store's lie."""
    docs.mkdir(exist_ok=True)
    (docs / "performance.md").write_text(_markdown(results, versions=versions, places=places))
    _plot(results, docs / "performance.svg")


# Tables -----------------------------------------------------------------------------------------------------

GOALS = ("goal", "SQLite", "PostgreSQL", "at least", "aim for", "")


def _goal_row(goal: Goal) -> tuple[str, ...]:
    return (
        goal.what,
        _goal_number(goal, goal.sqlite),
        _goal_number(goal, goal.postgres),
        _bound(goal, goal.at_least),
        _bound(goal, goal.aim_for),
        goal.verdict,
    )


def _goal_number(goal: Goal, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3g} {goal.unit}" if goal.unit else f"{value:.2f}"


def _bound(goal: Goal, value: float | None) -> str:
    if value is None:
        return "–"
    return f"≤ {value:g} {goal.unit}" if goal.unit else f"{value:g}"


def _tables(results: Results) -> list[tuple[tuple[str, ...], Rows]]:
    return [
        (FIGURES, _figure_rows(results)),
        (LISTENERS, _listener_rows(results)),
        (IN_PROCESS, _in_process_rows(results)),
        (WAITING, _waiting_rows(results)),
        (GROWTH, _growth_rows(results)),
        (TWO_DESKS, _two_desk_rows(results)),
    ]


LATENCIES = ("cycles/s", "ask → visible p50 / p99", "answer → woken p50 / p99")
FIGURES = ("sessions", "", *LATENCIES, "server", "per cycle", "client")


def _figure_rows(results: Results) -> Rows:
    rows = [
        (f"{sessions:,}", TITLES[server], *_figures(samples))
        for (server, sessions), samples in sorted(results.cycles.items(), key=lambda entry: entry[0][1])
    ]
    rows += [("paced 1,000/s", TITLES[store], *_figures(samples)) for store, samples in results.paced.items()]
    return rows


def _figures(samples: list[Sample]) -> tuple[str, ...]:
    return (*_latencies(samples), _server(samples), f"{_ms(_mid(samples, _per_cycle))} ms", _cpu(samples, "client"))


LISTENERS = ("listeners", "", *LATENCIES, "÷ one", "server", "client", "listeners' process")


def _listener_rows(results: Results) -> Rows:
    return [
        (
            f"{listeners:,}",
            TITLES[store],
            *_latencies(samples),
            _share(results.listeners_cost(store, listeners)),
            _server(samples),
            _cpu(samples, "client"),
            _cpu(samples, "listeners"),
        )
        for (store, listeners), samples in results.crowded.items()
    ]


IN_PROCESS = ("in process, 50 sessions", "broker, cycles/s", "bare store, cycles/s", "broker ÷ store")


def _in_process_rows(results: Results) -> Rows:
    rows: Rows = []
    for store in OURS:
        broker, bare = (results.in_process.get((store, level), []) for level in ("broker", "store"))
        if broker and bare:
            rows.append((STORES[store], f"{median(broker):,.0f}", f"{median(bare):,.0f}", _share(ratio(broker, bare))))
    return rows


WAITING = (
    "waiting asks",
    "",
    "opened",
    "memory",
    "wake p50 / p99",
    "after kill -9: ready in",
    "memory",
    "wake p50 / p99",
)


def _waiting_rows(results: Results) -> Rows:
    return [
        (
            f"{held.asks:,}",
            TITLES[store],
            f"{held.opened_per_second:,.0f}/s",
            f"{held.memory_mb:.0f} MB",
            f"{_ms(held.wake_p50)} / {_ms(held.wake_p99)} ms",
            f"{held.ready_again_after:.2f} s",
            f"{held.memory_again_mb:.0f} MB",
            f"{_ms(held.wake_again_p50)} / {_ms(held.wake_again_p99)} ms",
        )
        for store, held in results.held.items()
    ]


GROWTH = ("stored events", "", "sessions", *LATENCIES, "server", "per cycle")


def _growth_rows(results: Results) -> Rows:
    ordered = sorted(results.grown.items(), key=lambda entry: (OURS.index(entry[0][0]), entry[0][2], entry[0][1]))
    return [
        (
            f"{events:,}",
            TITLES[store],
            f"{sessions:,}",
            *_latencies(samples),
            _server(samples),
            f"{_ms(_mid(samples, _per_cycle))} ms",
        )
        for (store, events, sessions), samples in ordered
    ]


def _growth_in_words(results: Results) -> list[str]:
    """Of each store, whether an ask costs the same however much is stored."""
    sentences = []
    for store in OURS:
        sizes = sorted({events for name, events, _ in results.grown if name == store})
        if len(sizes) < 2:
            continue
        few, many = sizes[0], sizes[-1]
        counts = sorted({sessions for name, _, sessions in results.grown if name == store})
        kept = {count: results.kept(store, sessions=count, few=few, many=many) or 0.0 for count in counts}
        shares = ", ".join(f"{share:.2f} at {session_count(count)}" for count, share in kept.items())
        verdict = "flat" if min(kept.values()) >= FLAT else f"not flat (at least {FLAT:g} would be)"
        sentences.append(f"{STORES[store]}, cycles/s with {many:,} stored events ÷ with {few:,}: {shares}: {verdict}.")
    return sentences


TWO_DESKS = ("two desks", *LATENCIES, "servers", "per cycle", "client")


def _two_desk_rows(results: Results) -> Rows:
    return [(load, *_figures(samples)) for load, samples in results.two_desks.items()]


def _latencies(samples: list[Sample]) -> tuple[str, str, str]:
    """As LATENCIES heads them."""

    def ms(value: Callable[[Sample], float]) -> str:
        return _ms(_mid(samples, value))

    return (
        f"{median(rates(samples)):,.0f}",
        f"{ms(lambda sample: sample.visible_p50)} / {ms(lambda sample: sample.visible_p99)} ms",
        f"{ms(lambda sample: sample.woken_p50)} / {ms(lambda sample: sample.woken_p99)} ms",
    )


def _server(samples: list[Sample]) -> str:
    """The server's processor use, with that of what works for it."""
    words = [_cpu(samples, "server")]
    for name in ("agents", "database"):
        used = _mid(samples, lambda sample, name=name: sample.cpu.get(name, 0.0))  # type: ignore[misc]
        if used >= 1:
            words.append(f"{name} {used:.0f} %")
    return " + ".join(words)


def _cpu(samples: list[Sample], name: str) -> str:
    if not all(name in sample.cpu for sample in samples):
        return "–"
    return f"{_mid(samples, lambda sample: sample.cpu[name]):.0f} %"


def _per_cycle(sample: Sample) -> float:
    return sample.server_ms_per_cycle


def _mid(samples: list[Sample], value: Callable[[Sample], float]) -> float:
    found = middle(samples, value)
    assert found is not None
    return found


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


# The page ---------------------------------------------------------------------------------------------------


def _markdown(results: Results, *, versions: Sequence[str], places: dict[str, Path]) -> str:
    others = _others(results)
    workers = next((held.workers for held in results.held.values()), 0)
    parts = [
        "# Performance",
        "Written by `make bench`: every figure on this page was measured in one run, side by side. Speeds differ "
        "from machine to machine and from hour to hour, so the ratios say more than the rates.",
        "![Cycles per second of handraise on both stores and of the peer](performance.svg)",
        "A cycle is the whole way of one question: ask over HTTP, see it on a stream, answer over HTTP, and the "
        "asker has the answer. handraise has then made two durable writes, on SQLite as on PostgreSQL; the peer's "
        "stored path keeps its questions in SQLite without waiting for the disk, its proxy keeps nothing.",
        "## Goals",
        "The goals are those of a desk on SQLite; what the same desk does on PostgreSQL stands beside it. Those about "
        "two desks are of PostgreSQL.",
        _table(GOALS, [_goal_row(goal) for goal in goals(results)]),
        "## Figures",
        _table(FIGURES, _figure_rows(results)),
        "The last three columns are processor use: the server's in percent of one core and per cycle, and the "
        "load client's; `database` is all of PostgreSQL's processes. Under load every session has its "
        "next question ready at once, so latency there is mostly the queue of the others; the paced rows show "
        "it with room to breathe.",
        _table(IN_PROCESS, _in_process_rows(results)),
        "## Many listeners",
        _table(LISTENERS, _listener_rows(results)),
        "50 sessions ask as above while others follow the same stream of all events, as open browser pages and "
        "terminals do. The first listener is the answerer, which is part of the load client; the further ones are in "
        "a process of their own that takes what has come every 10 ms and throws it away, so that neither the client "
        "nor a slow reader is what is measured. At the end each of them must have the desk's newest event, and every "
        "hundredth must have counted all events before it. `÷ one` is cycles/s against one listener in the same round.",
        "## Many waiting asks",
        _table(WAITING, _waiting_rows(results)),
        f"The asks were posted with `worker` and wait over the streams of {workers} workers "
        "(`GET /v1/events?worker=`). Memory is the desk's own. A wake is the time from an answer being sent to its "
        "event on the worker's stream. Then the desk is killed with SIGKILL while the streams are open and started "
        "again on the same database: ready is when it answers `/healthz`, counted from the start of its process. "
        "Some asks are answered before the workers are back; they come back with `Last-Event-ID`, and every worker "
        "must have heard of each of its asks and answers once.",
        "## A store that grows",
        _table(GROWTH, _growth_rows(results)),
        " ".join(_growth_in_words(results)),
        "The database held so many events, three an ask, before the desk was started; new asks belong to sessions "
        "that have old ones, so that they land all over the indexes.",
        "## Two desks on one PostgreSQL",
        _table(TWO_DESKS, _two_desk_rows(results)),
        "Everything is asked at one desk, and seen and answered at the other: `visible` is from the ask at one to "
        "its event on a stream of the other, `woken` from the answer there to the asker that waits here. Both desks' "
        "processor use is added up.",
        "## How it was measured",
        "\n".join(
            [
                f"- {_today()}, {os.cpu_count()} cores, {platform.machine()}, {platform.system()}, "
                f"Python {platform.python_version()}, handraise {version('handraise')}, "
                f"uvicorn {version('uvicorn')}, uvloop {version('uvloop')}, asyncpg {version('asyncpg')}, "
                f"{', '.join(versions)}, {peers.PACKAGE} {peers.VERSION} from npm.",
                f"- {_disks(places)} PostgreSQL has its default settings for memory and disk, so every "
                "commit waits for the disk, and is reached over TCP on loopback.",
                f"- Median of {results.rounds} rounds of {results.seconds:g} s per measurement after a warm-up, "
                "peer and ours in turn; a ratio is the median of the rounds' own ratios. Every measurement starts "
                "a fresh server with an empty database; on PostgreSQL, a fresh schema of one server that runs "
                "throughout. With stored events, one session and 50 are measured one after the other on the same "
                "database, and the largest one serves every round; so are the three loads of two desks. The waiting "
                "asks were measured once.",
                "- Each session is one keep-alive connection that asks again as soon as it has its answer. One "
                "answerer reads one event stream and answers over 1, 50 or 250 connections (1, 50, 1,000 sessions). "
                "Both servers get the same, with a token; both have their access log off. The client's sockets "
                "acknowledge as the system does by default, and the peer leaves Nagle's algorithm on: events on "
                "its stream may wait 40 ms for an acknowledgement, which is where its p99 comes from.",
                "- handraise: `POST /v1/asks?wait=60`, `GET /v1/events`, `POST /v1/asks/{id}/answer`.",
                "- Peer, stored path: `POST /opencode/session/{id}/prompt_async`, `question.asked` on "
                "`/opencode/event`, `POST /opencode/question/{id}/reply`, then `question.replied` and "
                "`session.idle` on the stream.",
                "- Peer, stateless proxy: `session/prompt` to `POST /v1/acp/{id}`, which stays open; an agent of "
                "ours behind it asks `_sandboxagent/session/request_question`; the answer is posted, and the "
                "open call returns. One agent process per 250 sessions.",
                "- In process: the broker makes the calls of the HTTP routes, the bare store the same writes (ask, "
                "answer, and deliveries gathered every 20 ms) with texts made beforehand.",
                f"- The load client is a process of its own. Other programs used {median(others):.0f} % of a core "
                f"meanwhile (median; at most {max(others):.0f} %).",
            ]
        ),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _disks(places: dict[str, Path]) -> str:
    """Where the databases lie and what it costs there to wait for the disk."""
    if len({place.stat().st_dev for place in places.values()}) == 1:
        return f"Databases on {_disk(places[SQLITE])}."
    return " ".join(f"{STORES[store]} on {_disk(place)}." for store, place in places.items())


def _disk(place: Path) -> str:
    return f"{_file_system(place)}, where writing 4 kB and waiting for the disk takes {_fsync_ms(place)}"


def _plot(results: Results, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    # The same run gives the same file: no random ids, no date.
    mpl.rcParams.update({"svg.hashsalt": "handraise", "font.size": 9})
    from matplotlib import pyplot

    counts = sorted({sessions for _, sessions in results.cycles})
    figure, panels = pyplot.subplots(1, len(counts), figsize=(4.2 * len(counts), 2.9), squeeze=False)
    for panel, sessions in zip(panels[0], counts, strict=True):
        servers = [server for server in TITLES if results.rates(server, sessions)]
        rates = [median(results.rates(server, sessions)) for server in servers]
        bars = panel.bar(range(len(servers)), rates, color=[COLOURS[server] for server in servers], width=0.7)
        panel.bar_label(bars, [f"{rate:,.0f}" for rate in rates], padding=2)
        panel.set_xticks(range(len(servers)), [PLOT_LABELS[server] for server in servers])
        panel.tick_params(length=0, labelsize=7)
        panel.set_yticks([])
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.margins(y=0.12)
        panel.set_title(session_count(sessions), fontsize=10)
    figure.suptitle("Cycles per second, more is better (each panel has its own scale)", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _others(results: Results) -> list[float]:
    return [sample.cpu["others"] for sample in results.everything()] or [0.0]


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _file_system(folder: Path) -> str:
    """The type of the longest mount point above the folder."""
    if not sys.platform.startswith("linux"):
        return "disk"
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    above = [(len(mount[1]), mount[2]) for mount in mounts if folder.resolve().is_relative_to(mount[1])]
    return max(above)[1]


def _fsync_ms(folder: Path) -> str:
    times = []
    with tempfile.TemporaryFile(dir=folder) as probe:
        for _ in range(200):
            begin = perf_counter()
            probe.write(bytes(4096))
            probe.flush()
            os.fsync(probe.fileno())
            times.append(perf_counter() - begin)
    return f"{median(times) * 1000:.2f} ms"
