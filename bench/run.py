"""`make bench`: measures handraise beside sandbox-agent, its own broker and its own store, and reports the goals.

Every measurement starts a fresh server with an empty database and loads it from another process. One round goes
once through everything, peer and ours in turn; a second and a third do it again, and the medians count.
"""

import argparse
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import peers
import report
from goals import goals, session_count
from results import OURS, PROXY, STORED, Held, Results, Sample
from servers import Server, ServerDidNotStart, free_port, running

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"

PACE = 1000  # cycles/s
# At 1,000 cycles/s of a few milliseconds each, only a handful of these are busy at once.
PACED_SESSIONS = 250
LISTENERS = 100
IN_PROCESS_SESSIONS = 50
HELD_ASKS = 100_000
# A burst of this many first questions has to be through before the pace is the server's own.
MANY_SESSIONS, WARM_UP, WARM_UP_MANY = 500, 1.0, 3.0

EXAMPLES = """\
examples:
  make bench                                    everything, about five minutes; writes docs/performance.md
  make bench ARGS=--quick                       one short round at 1 and 50 sessions; writes nothing
  make bench ARGS="--no-peer --sessions 50"     only ours
  make bench ARGS="--rounds 5 --seconds 10"     steadier figures
"""

StartServer = Callable[[Path], AbstractContextManager[Server]]


class MeasurementFailed(Exception):
    """A program of the benchmark ended with an error; the message is what it said."""


@contextmanager
def handraise(folder: Path) -> Iterator[Server]:
    port, token = free_port(), "bench-token"
    with running(
        [sys.executable, "-m", "handraise", "serve", "--port", str(port)],
        port=port,
        token=token,
        env={"HANDRAISE_HOME": str(folder / "home"), "HANDRAISE_TOKEN": token},
        folder=folder,
        ready_path="/healthz",
    ) as server:
        yield server


class Bench:
    """One run. Fills `results`, and says on the terminal what it is doing."""

    def __init__(self, *, servers: dict[str, StartServer], sessions: list[int], results: Results) -> None:
        self.servers = servers
        self.sessions = sessions
        self.results = results

    def run(self, *, hold: bool) -> None:
        for number in range(1, self.results.rounds + 1):
            say(f"round {number} of {self.results.rounds}")
            self._round()
        if hold:
            self._hold()

    def _round(self) -> None:
        for sessions in self.sessions:
            for server in self.servers:
                warm_up = WARM_UP_MANY if sessions >= MANY_SESSIONS else WARM_UP
                sample = self._load(server, session_count(sessions), sessions=sessions, warm_up=warm_up)
                self.results.add(server, sessions, sample)
        self.results.paced.append(
            self._load(OURS, f"paced {PACE:,}/s", sessions=PACED_SESSIONS, rate=PACE, warm_up=WARM_UP)
        )
        if IN_PROCESS_SESSIONS in self.sessions:
            self.results.crowded.append(
                self._load(OURS, f"{LISTENERS} listeners", sessions=50, listeners=LISTENERS, warm_up=WARM_UP)
            )
            for level in ("broker", "store"):
                self.results.in_process.setdefault(level, []).append(self._in_process(level))

    def _load(self, server: str, what: str, **options: float) -> Sample:
        message = self._run_load(server, seconds=self.results.seconds, **options)
        sample = Sample.from_json(message)
        say(f"  {server:<12} {what:<15} {report.one_line(sample)}")
        return sample

    def _run_load(self, server: str, **options: float) -> dict[str, Any]:
        with state_folder() as folder, self.servers[server](folder) as started:
            return output_of(
                "load.py",
                server,
                port=started.port,
                token=started.token,
                server_pid=started.pid,
                **options,
            )

    def _in_process(self, level: str) -> float:
        with state_folder() as folder:
            seconds = self.results.seconds
            message = output_of("in_process.py", level, folder=folder, sessions=IN_PROCESS_SESSIONS, seconds=seconds)
        rate = float(message["cycles_per_second"])
        say(f"  {level:<12} {'in process':<15} {rate:>9,.0f} cycles/s")
        return rate

    def _hold(self) -> None:
        say(f"{HELD_ASKS:,} waiting asks, once")
        held = Held.from_json(self._run_load(OURS, hold=HELD_ASKS))
        say(f"  {OURS:<12} {held.memory_mb:.0f} MB, wake p50 {held.wake_p50:.2f} ms, p99 {held.wake_p99:.2f} ms")
        self.results.held = held


@contextmanager
def state_folder() -> Iterator[Path]:
    """Beside the cache rather than in the system's temporary folder, which may be memory, where fsync is free."""
    root = peers.cache_folder()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=root, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def output_of(program: str, argument: str, **options: object) -> dict[str, Any]:
    """Runs a program that lies beside this one and reads the JSON it prints. Raises MeasurementFailed."""
    command = [sys.executable, str(HERE / program), argument]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise MeasurementFailed(f"{program} {argument}: {done.stderr.strip()[-3000:]}")
    message: dict[str, Any] = json.loads(done.stdout)
    return message


def say(line: str) -> None:
    print(line, flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/run.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sessions", type=_numbers, help="how many ask at once, one by one (1,50,1000)")
    parser.add_argument("--rounds", type=int, help="how often everything is measured; the median counts (3)")
    parser.add_argument("--seconds", type=float, help="length of one measurement (5)")
    parser.add_argument("--no-peer", action="store_true", help="measure ours only; writes nothing")
    parser.add_argument("--quick", action="store_true", help="--sessions 1,50 --rounds 1 --seconds 2, writes nothing")
    parser.add_argument("--no-write", action="store_true", help="leave docs/ as it is")
    args = parser.parse_args()
    args.sessions = args.sessions or ([1, 50] if args.quick else [1, 50, 1000])
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.seconds = args.seconds or (2 if args.quick else 5)
    return args


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def allow_many_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> int:
    args = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers it started end with it
    allow_many_connections()
    started = time.monotonic()
    servers: dict[str, StartServer] = {}
    try:
        if not args.no_peer:
            say(f"{peers.PACKAGE} {peers.VERSION}: looking for it, else installing it from npm")
            start_peer = partial(_start_peer, peers.install())
            servers |= {STORED: start_peer, PROXY: start_peer}
        servers[OURS] = handraise
        results = Results(rounds=args.rounds, seconds=args.seconds)
        Bench(servers=servers, sessions=args.sessions, results=results).run(hold=not args.quick)
    except peers.PeerUnavailable as problem:
        print(f"{problem}; --no-peer measures without it", file=sys.stderr)
        return 2
    except (MeasurementFailed, ServerDidNotStart) as problem:
        print(problem, file=sys.stderr)
        return 2
    say("")
    say(report.as_text(results))
    say(f"took {time.monotonic() - started:.0f} s")
    if not (args.no_peer or args.quick or args.no_write):
        with state_folder() as folder:
            report.write(results, docs=DOCS, state_folder=folder)
        say("wrote docs/performance.md and docs/performance.svg")
    missed = [goal for goal in goals(results) if goal.missed]
    for goal in missed:
        print(f"not met: {report.sentence(goal)}", file=sys.stderr)
    return 1 if missed else 0


def _start_peer(binary: Path, folder: Path) -> AbstractContextManager[Server]:
    return peers.peer(binary, folder=folder)


if __name__ == "__main__":
    sys.exit(main())
