"""The load client, a process of its own: drives one server, times every step and prints JSON; starts no server.

A cycle is: a question goes out, the answerer sees it on a stream and answers, the asker learns of the answer.
Every session has one connection and asks again as soon as it has its answer, unless a rate is given.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
from time import perf_counter
from typing import Any

import uvloop

from http1 import Client, ServerMisbehaved, Target
from processes import CpuClock, descendants, resident_megabytes
from scenarios import SCENARIOS, Scenario, Session, Timings, percentiles

# The first pair whose number of sessions is large enough says how many connections the answerer has.
ANSWER_CONNECTIONS = ((1, 1), (50, 50), (sys.maxsize, 250))
# How long the cycles that are open when the clock stops may take to finish; after that the server lost them.
DRAIN_SECONDS = 8.0
# The pacer looks at the clock once a millisecond, so that much and a little more is on time.
LATE_SECONDS = 0.005


class Driver:
    """Keeps every session asking (a closed loop), or starts cycles at a fixed rate on whichever session is free."""

    def __init__(self, scenario: Scenario, *, sessions: list[Session], timings: Timings) -> None:
        self.scenario = scenario
        self.sessions = sessions
        self.timings = timings
        self.running = True
        self.idle = list(sessions)
        self.late = 0
        scenario.finished = self._finished

    def ask_again_and_again(self) -> None:
        self.scenario.finished = self._finished_and_ask
        while self.idle:
            self._ask(self.idle.pop())

    async def ask_at(self, rate: float) -> None:
        """Starts what is due, every millisecond. A cycle that found no session free is timed from when it was due."""
        started, begin = 0, perf_counter()
        while self.running:
            now = perf_counter()
            due = int((now - begin) * rate)
            while started < due and self.idle:
                session = self.idle.pop()
                self._ask(session)
                started += 1
                due_at = begin + started / rate
                if now - due_at > LATE_SECONDS:
                    session.asked_at = due_at
                    self.late += 1
            await asyncio.sleep(0.001)

    async def stop(self) -> int:
        """Lets the open cycles finish, and returns how many never did: the server lost a question or an answer."""
        self.running = False
        deadline = perf_counter() + DRAIN_SECONDS
        while (left := sum(session.asking for session in self.sessions)) and perf_counter() < deadline:
            await asyncio.sleep(0.05)
        return left

    def _ask(self, session: Session) -> None:
        session.asking = True
        self.scenario.ask(session)

    def _finished(self, session: Session) -> None:
        session.asking = False
        self.timings.cycles += self.timings.recording
        self.idle.append(session)

    def _finished_and_ask(self, session: Session) -> None:
        self.timings.cycles += self.timings.recording
        if self.running:
            self.scenario.ask(session)
        else:
            session.asking = False


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """One measurement; raises ServerMisbehaved as soon as something other than the expected comes back."""
    client, timings = Client(Target(args.port, token=args.token)), Timings()
    answerer = Client(Target(args.answer_port or args.port, token=args.token), failure=client.failure)
    pool_size = next(size for most, size in ANSWER_CONNECTIONS if args.sessions <= most)
    scenario = SCENARIOS[args.scenario](client, pool=await answerer.pool(size=pool_size), timings=timings)
    connections = await client.connect(count=args.sessions)
    sessions = [
        Session(index, connection=connection, count=args.asked_before) for index, connection in enumerate(connections)
    ]
    await scenario.prepare(sessions)

    driver = Driver(scenario, sessions=sessions, timings=timings)
    pacer = asyncio.ensure_future(driver.ask_at(args.rate)) if args.rate else None
    if pacer is None:
        driver.ask_again_and_again()
    await client.unless_failed(asyncio.sleep(args.warm_up))

    clock = CpuClock(_watched(args))
    begin, timings.recording = perf_counter(), True
    await client.unless_failed(asyncio.sleep(args.seconds))
    timings.recording, elapsed = False, perf_counter() - begin
    cpu = clock.percent()
    lost = await driver.stop()
    if pacer:
        await pacer
    return {
        "cycles_per_second": round(timings.cycles / elapsed, 1),
        "cycles": timings.cycles,
        "visible_ms": percentiles(timings.visible),
        "woken_ms": percentiles(timings.woken),
        "cpu_percent": cpu,
        "memory_mb": round(resident_megabytes(args.server_pids), 1),
        "lost": lost,
        "late": driver.late,
    }


def _watched(args: argparse.Namespace) -> dict[str, list[int]]:
    """Whose processor use is told, and which processes they are by now."""
    groups = {
        "server": args.server_pids,
        "agents": [pid for server in args.server_pids for pid in descendants(server)],
        "client": [os.getpid()],
    }
    if args.database_pid:
        groups["database"] = [args.database_pid, *descendants(args.database_pid)]
    if args.listeners_pid:
        groups["listeners"] = [args.listeners_pid]
    return groups


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--server-pids", type=_numbers, required=True)
    parser.add_argument("--database-pid", type=int, help="of PostgreSQL, whose processor use is told as well")
    parser.add_argument("--listeners-pid", type=int, help="of the process that reads along, likewise")
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--rate", type=float, help="cycles per second; without it, as many as the server gives")
    parser.add_argument("--answer-port", type=int, help="of another desk, where questions are seen and answered")
    parser.add_argument("--asked-before", type=int, default=0, help="the number after which asks are named")
    args = parser.parse_args()
    # The client keeps no cycles of references; collecting them would only show up as latency.
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(measure(args))
    except ServerMisbehaved as problem:
        sys.exit(f"{args.scenario}: {problem}")
    print(json.dumps(result))


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
