"""The load client, a process of its own: drives one server, times every step and prints JSON; starts no server.

A cycle is: a question goes out, the answerer sees it on a stream and answers, the asker learns of the answer.
Every session has one connection and asks again as soon as it has its answer, unless a rate is given.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import sys
from array import array
from collections.abc import Awaitable
from functools import partial
from time import perf_counter
from typing import Any

import uvloop

from http1 import Client, Connection, Pool, ServerMisbehaved, Target
from processes import CpuClock, descendants, resident_megabytes
from scenarios import SCENARIOS, Handraise, Scenario, Session, Timings

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
                due_at = begin + started / rate
                if now - due_at > LATE_SECONDS:
                    session.asked_at = due_at
                    self.late += 1
                started += 1
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


async def measure(
    target: Target,
    *,
    scenario_name: str,
    session_count: int,
    server_pid: int,
    seconds: float,
    warm_up: float,
    rate: float | None,
    listeners: int,
) -> dict[str, Any]:
    """One measurement; raises ServerMisbehaved as soon as something other than the expected comes back."""
    client, timings = Client(target), Timings()
    pool_size = next(size for most, size in ANSWER_CONNECTIONS if session_count <= most)
    scenario = SCENARIOS[scenario_name](client, pool=await client.pool(size=pool_size), timings=timings)
    connections = await client.connect(count=session_count)
    sessions = [Session(index, connection=connection) for index, connection in enumerate(connections)]
    await scenario.prepare(sessions)
    extra = [await client.listen("/v1/events") for _ in range(listeners - 1)]

    driver = Driver(scenario, sessions=sessions, timings=timings)
    pacer = asyncio.ensure_future(driver.ask_at(rate)) if rate else None
    if pacer is None:
        driver.ask_again_and_again()
    await _unless_failed(client, asyncio.sleep(warm_up))

    clock = CpuClock({"server": [server_pid], "agents": descendants(server_pid), "client": [os.getpid()]})
    begin, timings.recording = perf_counter(), True
    await _unless_failed(client, asyncio.sleep(seconds))
    timings.recording, elapsed = False, perf_counter() - begin
    cpu = clock.percent()
    lost = await driver.stop()
    if pacer:
        await pacer
    return {
        "cycles_per_second": round(timings.cycles / elapsed, 1),
        "cycles": timings.cycles,
        "visible_ms": _percentiles(timings.visible),
        "woken_ms": _percentiles(timings.woken),
        "cpu_percent": cpu,
        "memory_mb": round(resident_megabytes([server_pid]), 1),
        "lost": lost,
        "late": driver.late,
        "silent_listeners": sum(listener.received == 0 for listener in extra),
    }


async def hold(target: Target, *, asks: int, probes: int, probe_rate: float, server_pid: int) -> dict[str, Any]:
    """Opens many asks nobody answers, as a worker does that waits on its stream, then answers a few of them."""
    client = Client(target)
    answered = Answered(client)
    await client.stream("/v1/events", on_frames=answered.on_frames)
    before = resident_megabytes([server_pid])
    begin = perf_counter()
    await _open_asks(client, count=asks)
    opened_in = perf_counter() - begin
    await _unless_failed(client, asyncio.sleep(1))
    held = resident_megabytes([server_pid])

    pool = await client.pool(size=8)
    begin = perf_counter()
    for number, index in enumerate(random.sample(range(asks), probes)):
        await _unless_failed(client, asyncio.sleep(begin + number / probe_rate - perf_counter()))
        answered.answer(index, pool=pool)
    await _unless_failed(client, asyncio.sleep(1))
    return {
        "asks": asks,
        "opened_per_second": round(asks / opened_in, 1),
        "memory_mb": round(held, 1),
        "memory_before_mb": round(before, 1),
        "wake_ms": _percentiles(answered.latencies),
        "lost": probes - len(answered.latencies),
    }


class Answered:
    """The time from an answer being written to its event on the stream."""

    def __init__(self, client: Client) -> None:
        self.request = Handraise.answer_request(client.target)
        self.written_at: dict[bytes, float] = {}
        self.latencies = array("d")

    def answer(self, index: int, *, pool: Pool) -> None:
        name = Handraise.name(0, index)
        before, after = self.request
        pool.send(before + name + after, partial(self.written_at.__setitem__, name))

    def on_frames(self, frames: list[bytes], now: float) -> None:
        for frame in frames:
            if b"event: answered\n" in frame and (written := self.written_at.pop(Handraise.name_in(frame), None)):
                self.latencies.append(now - written)


async def _open_asks(client: Client, *, count: int) -> None:
    before, after = Handraise.ask_request(client.target, path="/v1/asks", session=0)
    numbers = iter(range(count))

    async def open_some(connection: Connection) -> None:
        for number in numbers:
            await connection.request(before + Handraise.name(0, number) + after)

    async with asyncio.TaskGroup() as group:
        for connection in await client.connect(count=64):
            group.create_task(open_some(connection))


async def _unless_failed(client: Client, work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, client.failure), return_when=asyncio.FIRST_COMPLETED)
    if client.failure.done():
        task.cancel()
        client.failure.result()


def _percentiles(seconds: "array[float]") -> dict[str, float]:
    ordered = sorted(seconds)
    if not ordered:
        return {"p50": float("nan"), "p99": float("nan")}
    return {
        f"p{percent}": round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000, 3)
        for percent in (50, 99)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--server-pid", type=int, required=True)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--rate", type=float, help="cycles per second; without it, as many as the server gives")
    parser.add_argument("--listeners", type=int, default=1, help="readers of the stream, the answerer included")
    parser.add_argument("--hold", type=int, help="instead of cycles: open this many asks of handraise and wait")
    args = parser.parse_args()
    # The client keeps no cycles of references; collecting them would only show up as latency.
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(_run(args))
    except ServerMisbehaved as problem:
        sys.exit(f"{args.scenario}: {problem}")
    print(json.dumps(result))


async def _run(args: argparse.Namespace) -> dict[str, Any]:
    target = Target(args.port, token=args.token)
    if args.hold:
        return await hold(target, asks=args.hold, probes=1000, probe_rate=250, server_pid=args.server_pid)
    return await measure(
        target,
        scenario_name=args.scenario,
        session_count=args.sessions,
        server_pid=args.server_pid,
        seconds=args.seconds,
        warm_up=args.warm_up,
        rate=args.rate,
        listeners=args.listeners,
    )


if __name__ == "__main__":
    main()
