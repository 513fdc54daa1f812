"""Facts about running processes from /proc: processor time, children, memory."""

import os
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class CpuClock:
    """Processor use since the last reading, in percent of one core."""

    def __init__(self, groups: dict[str, list[int]]) -> None:
        self.groups = groups
        self.started = perf_counter()
        self.before = self._read()

    def percent(self) -> dict[str, float]:
        """Per group, and `others`: what everything outside the groups used of the machine."""
        now, after = perf_counter(), self._read()
        elapsed = now - self.started
        used = {name: (after[name] - self.before[name]) / elapsed * 100 for name in after}
        machine = used.pop("machine")
        used["others"] = max(0.0, machine - sum(used.values()))
        self.started, self.before = now, after
        return {name: round(value, 1) for name, value in used.items()}

    def _read(self) -> dict[str, float]:
        seconds = {name: sum(map(_cpu_seconds, pids)) for name, pids in self.groups.items()}
        return seconds | {"machine": _machine_busy_seconds()}


def descendants(pid: int) -> list[int]:
    """Children of a process, and theirs, at this moment."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat_fields(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, unseen = [], [pid]
    while unseen:
        below = children.get(unseen.pop(), [])
        found += below
        unseen += below
    return found


def resident_megabytes(pids: Iterable[int]) -> float:
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _cpu_seconds(pid: int) -> float:
    fields = _stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND if fields else 0.0


def _stat_fields(pid: int) -> list[str]:
    """The fields after the command's name, which may itself hold spaces; none if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _machine_busy_seconds() -> float:
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / TICKS_PER_SECOND
