"""`make bench`: measures handraise on both stores, beside sandbox-agent, its own broker and its own store.

Every measurement starts a fresh server with an empty database and loads it from another process. One round goes
once through everything, peer and ours in turn; a second and a third do it again, and the medians count.
"""

import argparse
import asyncio
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import peers
import report
from databases import Databases, DatabaseUnavailable, SqliteFiles, postgres
from filling import fill
from goals import TWO_DESKS_ALONE, TWO_DESKS_FULL, TWO_DESKS_PACED, WAITING, goals, session_count
from programs import MeasurementFailed, output_of, talking_to
from results import OURS, POSTGRES, PROXY, SQLITE, STORED, Held, Results, Sample
from servers import Server, ServerDidNotStart, desk

DOCS = Path(__file__).parent.parent / "docs"

PACE = 1000  # cycles/s
# At 1,000 cycles/s of a few milliseconds each, only a handful of these are busy at once.
PACED_SESSIONS = 250
TWO_DESKS = {
    TWO_DESKS_ALONE: {"sessions": 1},
    TWO_DESKS_PACED: {"sessions": 50, "rate": 200},
    TWO_DESKS_FULL: {"sessions": 50},
}
SESSIONS = 50  # of every measurement that is not about their number
GROWN_SESSIONS = (1, 50)
# A burst of this many first questions has to be through before the pace is the server's own.
MANY_SESSIONS, WARM_UP_MANY = 500, 3.0
# A measurement adds tens of thousands of events: next to nothing to these, so such a database serves every round.
FILLED_ONCE = 1_000_000
# A database may be asked more than once, and then by other names; no session asks more often in one measurement.
NAMES = 100_000

PARTS = ("cycles", "paced", "listeners", "in-process", "growth", "two-desks", "waiting")
EXAMPLES = """\
parts, for --only:
  cycles       the whole way of one question at 1, 50 and 1,000 sessions, peer and ours
  paced        the same at 1,000 a second
  listeners    the same at 50 sessions, with 1, 100 and 1,000 readers of the stream
  in-process   the same without HTTP, through the broker and through the bare store
  growth       the same with 1,000 to 1,000,000 events stored before
  two-desks    ask at one desk, answer at the other (PostgreSQL)
  waiting      100,000 asks that wait over workers' streams, and a kill -9

examples:
  make bench                                        everything, about a quarter of an hour; writes docs/performance.md
  make bench ARGS=--quick                           each part in miniature, under a minute; writes nothing
  make bench ARGS="--only listeners,growth"         some parts
  make bench ARGS="--no-peer --stores sqlite"       only ours, on one store
  make bench ARGS="--rounds 5 --seconds 10"         steadier figures
"""

StartServer = Callable[[Path], AbstractContextManager[Server]]


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    parts: tuple[str, ...] = PARTS
    sessions: tuple[int, ...] = (1, 50, 1000)
    rounds: int = 3
    seconds: float = 4
    warm_up: float = 1
    listeners: tuple[int, ...] = (1, 100, 1000)
    stored: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    waiting: int = WAITING
    answers: int = 1000  # of the waiting asks, before and after the restart
    quiet: float = 1.0  # seconds before memory is read
    fresh: bool = True  # a desk for every measurement, or one for those that can share it


QUICK = Plan(
    sessions=(1, 50),
    rounds=1,
    seconds=0.4,
    warm_up=0.2,
    listeners=(1, 10),
    stored=(1_000, 10_000),
    waiting=2000,
    answers=50,
    quiet=0.1,
    fresh=False,
)


class Bench:
    """One run. Fills `results`, and says on the terminal what it is doing. Use as a context."""

    def __init__(
        self, plan: Plan, *, peer: dict[str, StartServer], stores: dict[str, Databases], results: Results
    ) -> None:
        self.plan = plan
        self.peer = peer
        self.stores = stores
        self.results = results
        self.filled: dict[tuple[str, int], str] = {}  # addresses of the databases that serve every round
        self.shared: dict[str, Server] = {}  # desks that serve several measurements
        self.names = 0
        self._stack = ExitStack()

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self) -> None:
        parts = {
            "cycles": self._cycles,
            "paced": self._paced,
            "listeners": self._listeners,
            "in-process": self._in_process,
            "growth": self._growth,
            "two-desks": self._two_desks,
        }
        chosen = [measure for name, measure in parts.items() if name in self.plan.parts]
        for number in range(1, self.plan.rounds + 1 if chosen else 1):
            say(f"round {number} of {self.plan.rounds}")
            for measure in chosen:
                measure()
        if "waiting" in self.plan.parts:
            say(f"{self.plan.waiting:,} waiting asks, once")
            for store in self.stores:
                self._waiting(store)

    # The parts --------------------------------------------------------------------------------------------

    def _cycles(self) -> None:
        for sessions in self.plan.sessions:
            warm_up = max(WARM_UP_MANY, self.plan.warm_up) if sessions >= MANY_SESSIONS else self.plan.warm_up
            for server in (*self.peer, *self.stores):
                with self._started(server) as started:
                    sample = self._load(server, session_count(sessions), started, sessions=sessions, warm_up=warm_up)
                self.results.cycles.setdefault((server, sessions), []).append(sample)

    def _paced(self) -> None:
        for store in self.stores:
            with self._started(store) as started:
                sample = self._load(store, f"paced {PACE:,}/s", started, sessions=PACED_SESSIONS, rate=PACE)
            self.results.paced.setdefault(store, []).append(sample)

    def _listeners(self) -> None:
        for listeners in self.plan.listeners:
            for store in self.stores:
                what = f"{listeners:,} listener{'s' * (listeners > 1)}"
                with self._started(store) as started:
                    sample = self._crowded(store, what, started, listeners=listeners)
                self.results.crowded.setdefault((store, listeners), []).append(sample)

    def _crowded(self, store: str, what: str, started: Server, *, listeners: int) -> Sample:
        if listeners == 1:  # the answerer
            return self._load(store, what, started, sessions=SESSIONS)
        with talking_to("listeners.py", port=started.port, token=started.token, count=listeners - 1) as crowd:
            crowd.hear()  # all streams are open
            sample = self._load(store, what, started, sessions=SESSIONS, listeners_pid=crowd.pid)
            crowd.tell(end=True)
            heard = crowd.hear()
        self.results.incomplete_listeners += heard["incomplete"]
        if heard["incomplete"]:
            say(f"  {store:<12} {heard['incomplete']} of {heard['listeners']} listeners did not get every event")
        return sample

    def _in_process(self) -> None:
        for level in ("broker", "store"):
            for store in self.stores:
                with state_folder() as folder, self.stores[store].fresh(folder) as database:
                    seconds = self.plan.seconds
                    message = output_of("in_process.py", level, database=database, sessions=SESSIONS, seconds=seconds)
                rate = float(message["cycles_per_second"])
                say(f"  {store:<12} {f'in process, {level}':<22} {rate:>9,.0f} cycles/s")
                self.results.in_process.setdefault((store, level), []).append(rate)

    def _growth(self) -> None:
        for events in self.plan.stored:
            for store in self.stores:
                with (
                    state_folder() as folder,
                    self._filled(store, events) as database,
                    desk(folder, database=database) as started,
                ):
                    for sessions in GROWN_SESSIONS:
                        what = f"{events:,} events, {sessions}"
                        sample = self._load(store, what, started, sessions=sessions)
                        self.results.grown.setdefault((store, events, sessions), []).append(sample)

    @contextmanager
    def _filled(self, store: str, events: int) -> Iterator[str]:
        """A database that holds so many events already."""
        if (store, events) in self.filled:
            yield self.filled[store, events]
            return
        with ExitStack() as undo:
            folder = undo.enter_context(state_folder())
            database = undo.enter_context(self.stores[store].fresh(folder))
            asyncio.run(fill(database, events=events))
            if events >= FILLED_ONCE:
                self.filled[store, events] = database
                self._stack.push(undo.pop_all())
            yield database

    def _two_desks(self) -> None:
        if POSTGRES not in self.stores:
            return
        with (
            state_folder() as folder,
            self.stores[POSTGRES].fresh(folder) as database,
            desk(folder / "one", database=database) as one,
            desk(folder / "other", database=database) as other,
        ):
            for load, options in TWO_DESKS.items():
                sample = self._load(
                    POSTGRES,
                    f"two desks, {load}",
                    one,
                    server_pids=f"{one.pid},{other.pid}",
                    answer_port=other.port,
                    **options,
                )
                self.results.two_desks.setdefault(load, []).append(sample)

    def _waiting(self, store: str) -> None:
        with state_folder() as folder, self.stores[store].fresh(folder) as database, ExitStack() as stack:
            with desk(folder, database=database) as first:
                program = stack.enter_context(
                    talking_to(
                        "waiting.py",
                        port=first.port,
                        token=first.token,
                        server_pid=first.pid,
                        asks=self.plan.waiting,
                        answers=self.plan.answers,
                        quiet=self.plan.quiet,
                    )
                )
                before = program.hear()
                first.kill()
            with desk(folder, database=database, port=first.port) as again:
                program.tell(server_pid=again.pid)
                held = Held.from_json(before, program.hear(), ready_again_after=again.ready_after)
        say(f"  {store:<12} {report.waiting_line(held)}")
        self.results.held[store] = held

    # What they share --------------------------------------------------------------------------------------

    @contextmanager
    def _started(self, server: str) -> Iterator[Server]:
        if server in self.shared:
            yield self.shared[server]
            return
        with ExitStack() as undo:
            folder = undo.enter_context(state_folder())
            if server in self.peer:
                yield undo.enter_context(self.peer[server](folder))
                return
            database = undo.enter_context(self.stores[server].fresh(folder))
            started = undo.enter_context(desk(folder, database=database))
            if not self.plan.fresh:
                self.shared[server] = started
                self._stack.push(undo.pop_all())
            yield started

    def _load(self, server: str, what: str, started: Server, **options: Any) -> Sample:
        common: dict[str, Any] = {
            "port": started.port,
            "token": started.token,
            "server_pids": started.pid,
            "seconds": self.plan.seconds,
            "warm_up": self.plan.warm_up,
        }
        if server in self.stores:
            self.names += NAMES
            common |= {"database_pid": self.stores[server].pid, "asked_before": self.names}
        scenario = "handraise" if server in self.stores else server
        sample = Sample.from_json(output_of("load.py", scenario, **{**common, **options}))
        say(f"  {server:<12} {what:<22} {report.one_line(sample)}")
        return sample


@contextmanager
def state_folder() -> Iterator[Path]:
    """Beside the cache rather than in the system's temporary folder, which may be memory, where fsync is free."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=cache_folder(), ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def cache_folder() -> Path:
    folder = peers.cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def say(line: str) -> None:
    print(line, flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/run.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", type=_names(PARTS), default=PARTS, metavar="PART,…", help="run these; writes nothing")
    parser.add_argument("--stores", type=_names(OURS), default=OURS, metavar="STORE,…", help="sqlite, postgres or both")
    parser.add_argument("--sessions", type=_numbers, help="how many ask at once, one by one (1,50,1000)")
    parser.add_argument("--rounds", type=int, help="how often everything is measured; the median counts (3)")
    parser.add_argument("--seconds", type=float, help="length of one measurement (4)")
    parser.add_argument("--no-peer", action="store_true", help="measure ours only; writes nothing")
    parser.add_argument("--quick", action="store_true", help="each part in miniature; writes nothing")
    parser.add_argument("--no-write", action="store_true", help="leave docs/ as it is")
    args = parser.parse_args()
    if args.only == ("two-desks",) and POSTGRES not in args.stores:
        parser.error("two desks share a PostgreSQL; add it to --stores")
    given = {name: getattr(args, name) for name in ("sessions", "rounds", "seconds") if getattr(args, name)}
    args.plan = replace(QUICK if args.quick else Plan(), parts=args.only, **given)
    whole = set(args.only) == set(PARTS) and set(args.stores) == set(OURS)
    args.write = whole and not (args.no_peer or args.quick or args.no_write)
    return args


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _names(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def names(text: str) -> tuple[str, ...]:
        wanted = tuple(text.split(","))
        for name in wanted:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return wanted

    return names


def allow_many_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def end_in_order() -> None:
    """So that Ctrl+C and SIGTERM end everything that was started; a second one must not end the tidying up."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, end)


def main() -> int:
    args = parse_arguments()
    end_in_order()
    allow_many_connections()
    started = time.monotonic()
    results = Results(rounds=args.plan.rounds, seconds=args.plan.seconds)
    try:
        with ExitStack() as stack:
            peer = {} if args.no_peer or "cycles" not in args.only else find_peer()
            stores = start_stores(args.stores, stack=stack)
            stack.enter_context(bench := Bench(args.plan, peer=peer, stores=stores, results=results))
            bench.run()
            say("")
            say(report.as_text(results))
            say(f"took {time.monotonic() - started:.0f} s")
            if args.write:
                places = {name: store.folder for name, store in stores.items()}
                report.write(results, docs=DOCS, versions=[store.version for store in stores.values()], places=places)
                say("wrote docs/performance.md and docs/performance.svg")
    except peers.PeerUnavailable as problem:
        print(f"{problem}; --no-peer measures without it", file=sys.stderr)
        return 2
    except DatabaseUnavailable as problem:
        print(f"{problem}; --stores sqlite measures without it", file=sys.stderr)
        return 2
    except (MeasurementFailed, ServerDidNotStart) as problem:
        print(problem, file=sys.stderr)
        return 2
    missed = [goal for goal in goals(results) if goal.missed]
    for goal in missed:
        print(f"not met: {report.sentence(goal)}", file=sys.stderr)
    return 1 if missed or results.lost else 0


def find_peer() -> dict[str, StartServer]:
    say(f"{peers.PACKAGE} {peers.VERSION}: looking for it, else installing it from npm")
    start = partial(_start_peer, peers.install())
    return {STORED: start, PROXY: start}


def start_stores(names: tuple[str, ...], *, stack: ExitStack) -> dict[str, Databases]:
    stores: dict[str, Databases] = {}
    if SQLITE in names:
        stores[SQLITE] = SqliteFiles(cache_folder())
    if POSTGRES in names:
        say("PostgreSQL: starting one")
        stores[POSTGRES] = stack.enter_context(postgres(beside=cache_folder()))
    return stores


def _start_peer(binary: Path, folder: Path) -> AbstractContextManager[Server]:
    return peers.peer(binary, folder=folder)


if __name__ == "__main__":
    sys.exit(main())
