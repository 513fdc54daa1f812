"""What a run found, as text for the terminal, as docs/performance.md and as a plot; measures nothing but the disk."""

import os
import platform
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter

import peers
from goals import Goal, goals, session_count
from results import OURS, PROXY, STORED, Results, Sample

TITLES = {
    OURS: "handraise",
    STORED: "peer, stored path",
    PROXY: "peer, stateless proxy",
}
PLOT_LABELS = {
    OURS: "handraise\n2 durable writes",
    STORED: "peer, stored path\nno wait for the disk",
    PROXY: "peer, proxy\nstores nothing",
}
COLOURS = {OURS: "#2f6fed", STORED: "#9aa3b2", PROXY: "#c9ced8"}
BUSY = 90  # percent of a core from which on a process counts as the limit


def one_line(sample: Sample) -> str:
    """One measurement while the run goes on, with who was the limit."""
    rate = f"{sample.cycles_per_second:>9,.0f} cycles/s"
    latency = f"visible {sample.visible_p50:.2f} ms, woken {sample.woken_p50:.2f} ms"
    notes = [f"{sample.lost} cycles lost" if sample.lost else "", f"{sample.late} late" if sample.late else ""]
    return "  ".join([rate, f"{latency:<38}", processors(sample.cpu), *filter(None, notes)])


def processors(cpu: dict[str, float]) -> str:
    """`server 99 % of a core, client 31 %`, and whose limit the measurement shows."""
    used = [f"server {cpu['server']:.0f} % of a core", f"client {cpu['client']:.0f} %"]
    if cpu["agents"] >= 1:
        used.insert(1, f"agents {cpu['agents']:.0f} %")
    if cpu["others"] >= 10:
        used.append(f"other programs {cpu['others']:.0f} %")
    return f"{', '.join(used)}: {limit(cpu)}"


def limit(cpu: dict[str, float]) -> str:
    if cpu["client"] >= BUSY:
        return "the client is the limit"
    if sum(cpu.values()) >= BUSY * (os.cpu_count() or 1):
        return "every core is busy"
    return "the server is the limit" if cpu["server"] >= BUSY else "no core is full, latency is the limit"


def as_text(results: Results) -> str:
    rows = [("goal", "measured", "at least", "aim for", "")]
    rows += [_goal_row(goal) for goal in goals(results)]
    return f"{_figures_text(results)}\n\n{_aligned(rows)}\n"


def sentence(goal: Goal) -> str:
    _, measured, at_least, *_ = _goal_row(goal)
    return f"{goal.what} is {measured}, wanted {at_least}"


def write(results: Results, *, docs: Path, state_folder: Path) -> None:
    docs.mkdir(exist_ok=True)
    (docs / "performance.md").write_text(_markdown(results, state_folder=state_folder))
    _plot(results, docs / "performance.svg")


def _goal_row(goal: Goal) -> tuple[str, str, str, str, str]:
    sign = "≤ " if goal.unit else ""

    def number(value: float | None) -> str:
        if value is None:
            return "–"
        return f"{value:.3g} {goal.unit}".rstrip() if goal.unit else f"{value:.2f}"

    return (
        goal.what,
        number(goal.measured),
        f"{sign}{goal.at_least:g} {goal.unit}".rstrip(),
        f"{sign}{goal.aim_for:g} {goal.unit}".rstrip(),
        goal.verdict,
    )


def _figure_rows(results: Results) -> list[tuple[str, ...]]:
    rows = []
    for (server, sessions), samples in sorted(results.cycles.items(), key=lambda entry: entry[0][1]):
        rows.append((f"{sessions:,}", TITLES[server], *_figures(samples)))
    if results.paced:
        rows.append(("paced 1,000/s", TITLES[OURS], *_figures(results.paced)))
    if results.crowded:
        rows.append(("50, 100 listeners", TITLES[OURS], *_figures(results.crowded)))
    return rows


FIGURES = (
    "sessions",
    "",
    "cycles/s",
    "ask → visible p50 / p99",
    "answer → woken p50 / p99",
    "server",
    "per cycle",
    "client",
)


def _figures(samples: list[Sample]) -> tuple[str, ...]:
    def mid(value: Callable[[Sample], float]) -> float:
        return median(map(value, samples))

    server, agents = mid(lambda sample: sample.cpu["server"]), mid(lambda sample: sample.cpu["agents"])
    return (
        f"{mid(lambda sample: sample.cycles_per_second):,.0f}",
        f"{_ms(mid(lambda sample: sample.visible_p50))} / {_ms(mid(lambda sample: sample.visible_p99))} ms",
        f"{_ms(mid(lambda sample: sample.woken_p50))} / {_ms(mid(lambda sample: sample.woken_p99))} ms",
        f"{server:.0f} %" + (f" + agents {agents:.0f} %" if agents >= 1 else ""),
        f"{_ms(mid(lambda sample: sample.server_ms_per_cycle))} ms",
        f"{mid(lambda sample: sample.cpu['client']):.0f} %",
    )


def _figures_text(results: Results) -> str:
    lines = [_aligned([FIGURES, *_figure_rows(results)])]
    if results.in_process:
        lines.append("")
    for level, rates in results.in_process.items():
        lines.append(f"in process, {level}: {median(rates):,.0f} cycles/s at 50 sessions")
    if held := results.held:
        lines.append(
            f"{held.asks:,} waiting asks: {held.memory_mb:.0f} MB, opened at {held.opened_per_second:,.0f}/s, "
            f"wake p50 {held.wake_p50:.2f} ms, p99 {held.wake_p99:.2f} ms"
        )
    if lost := sum(sample.lost for sample in results.everything()) + (results.held.lost if results.held else 0):
        lines.append(f"{lost} cycles were lost by a server and never finished")
    others = _others(results)
    if max(others) >= 25:
        lines.append(
            f"other programs used {median(others):.0f} % of a core (median), at most {max(others):.0f} %: "
            "repeat on a quiet machine"
        )
    return "\n".join(lines)


def _markdown(results: Results, *, state_folder: Path) -> str:
    goal_rows = [_goal_row(goal) for goal in goals(results)]
    others = _others(results)
    parts = [
        "# Performance",
        "Written by `make bench`: every figure on this page was measured in one run, side by side. Speeds differ "
        "from machine to machine and from hour to hour, so the ratios say more than the rates.",
        "![Cycles per second of handraise and of the peer](performance.svg)",
        "A cycle is the whole way of one question: ask over HTTP, see it on a stream, answer over HTTP, and the "
        "asker has the answer. handraise has then made two durable writes; the peer's stored path keeps its "
        "questions in SQLite without waiting for the disk, its proxy keeps nothing.",
        "## Goals",
        _table(("goal", "measured", "at least", "aim for", ""), goal_rows),
        "## Figures",
        _table(FIGURES, _figure_rows(results)),
        "The last three columns are processor use: the server's in percent of one core and per cycle, and the "
        "load client's. Under load every session has its "
        "next question ready at once, so latency there is mostly the queue of the others; the paced row shows "
        "it with room to breathe.",
        _in_words(results),
        "## How it was measured",
        "\n".join(
            [
                f"- {_today()}, {os.cpu_count()} cores, {platform.machine()}, {platform.system()}, "
                f"Python {platform.python_version()}, handraise {version('handraise')}, "
                f"uvicorn {version('uvicorn')}, uvloop {version('uvloop')}, "
                f"{peers.PACKAGE} {peers.VERSION} from npm.",
                f"- Databases on {_file_system(state_folder)}, where writing 4 kB and waiting for the disk takes "
                f"{_fsync_ms(state_folder):.2f} ms.",
                f"- Median of {results.rounds} rounds of {results.seconds:g} s per measurement after a warm-up, "
                "peer and ours in turn; a ratio is the median of the rounds' own ratios. Every measurement starts "
                "a fresh server with an empty database. The waiting asks were measured once.",
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


def _in_words(results: Results) -> str:
    parts = [f"{level} {median(rates):,.0f} cycles/s" for level, rates in results.in_process.items()]
    words = f"In process at 50 sessions: {', '.join(parts)}." if parts else ""
    if held := results.held:
        words += (
            f" With {held.asks:,} asks waiting the server holds {held.memory_mb:.0f} MB, and an answer to one of "
            f"them is on the stream after {_ms(held.wake_p50)} ms (p50), {_ms(held.wake_p99)} ms (p99)."
        )
    return words


def _plot(results: Results, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    # The same run gives the same file: no random ids, no date.
    mpl.rcParams.update({"svg.hashsalt": "handraise", "font.size": 9})
    from matplotlib import pyplot

    counts = sorted({sessions for _, sessions in results.cycles})
    figure, panels = pyplot.subplots(1, len(counts), figsize=(3.1 * len(counts), 2.9), squeeze=False)
    for panel, sessions in zip(panels[0], counts, strict=True):
        servers = [server for server in (OURS, STORED, PROXY) if results.rates(server, sessions)]
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


def _fsync_ms(folder: Path) -> float:
    times = []
    with (folder / "probe").open("wb") as probe:
        for _ in range(200):
            begin = perf_counter()
            probe.write(bytes(4096))
            probe.flush()
            os.fsync(probe.fileno())
            times.append(perf_counter() - begin)
    return median(times) * 1000
