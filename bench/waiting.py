"""Many asks that nobody answers, over the streams of a few workers; then answers to some, and again after a kill -9.

A process of its own. It prints a line of JSON when it has measured, and waits for a line on stdin that says that the
desk was killed and runs again on the same port; then it measures again and prints another line.
"""

import argparse
import asyncio
import gc
import json
import random
import re
import sys
from array import array
from functools import partial
from time import perf_counter
from typing import Any

import uvloop

from http1 import Client, Connection, Pool, ServerMisbehaved, Target
from processes import resident_megabytes
from programs import told
from scenarios import Handraise, percentiles

SESSIONS = 1000  # over which the asks are spread
CONNECTIONS = 64  # that open them
ANSWER_CONNECTIONS = 8
ANSWERS_PER_SECOND = 250  # few enough that one wake does not wait for another
ARRIVAL_SECONDS = 5.0  # that the last answers may take
ID = re.compile(rb"(?:^|\n)id: (\d+)")


class Worker:
    """Waits on its stream for everything it asked, and comes back with the id of the last event it has."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last_event_id: int | None = None
        self.asked = 0
        self.answered = 0
        self.sent_at: dict[bytes, float] = {}  # of answers that have not come yet
        self.wakes = array("d")

    async def listen(self, client: Client) -> None:
        await client.stream(
            f"/v1/events?worker={self.name}", on_frames=self._on_frames, last_event_id=self.last_event_id
        )

    def _on_frames(self, frames: list[bytes], now: float) -> None:
        for frame in frames:
            if b"event: asked\n" in frame:
                self.asked += 1
            elif b"event: answered\n" in frame:
                self.answered += 1
                if sent_at := self.sent_at.pop(Handraise.name_in(frame), None):
                    self.wakes.append(now - sent_at)
        newest = next((found for frame in reversed(frames) if (found := ID.search(frame))), None)
        if newest:
            self.last_event_id = int(newest[1])


class Waiting:
    """The asks, the workers that wait for them, and what was answered so far."""

    def __init__(self, target: Target, *, asks: int, workers: int, pid: int, quiet: float) -> None:
        self.client = Client(target)
        self.asks = asks
        self.pid = pid
        self.quiet = quiet
        self.workers = [Worker(f"w-{number}") for number in range(workers)]
        # Which asks are answered, in which order: the same in every run.
        self.answering = iter(random.Random(1).sample(range(asks), asks))
        self.sent = 0

    async def open(self) -> float:
        """Ask everything; how many were opened in a second."""
        requests = [
            Handraise.ask_request(
                self.client.target, path="/v1/asks", session=session, worker=self._worker_of(session).name
            )
            for session in range(min(SESSIONS, self.asks))
        ]
        numbers = iter(range(self.asks))

        async def open_some(connection: Connection) -> None:
            for number in numbers:
                before, after = requests[number % SESSIONS]
                await connection.request(before + _name(number) + after)

        connections = await self.client.connect(count=CONNECTIONS)
        begin = perf_counter()
        await asyncio.gather(*map(open_some, connections))
        return self.asks / (perf_counter() - begin)

    async def listen(self) -> None:
        for worker in self.workers:
            await worker.listen(self.client)

    async def answer(self, count: int) -> None:
        """Answer some of those that are open, at a pace. Returns when the last answer was sent."""
        pool = await self.client.pool(size=ANSWER_CONNECTIONS)
        begin = perf_counter()
        for number in range(count):
            await self.client.unless_failed(asyncio.sleep(begin + number / ANSWERS_PER_SECOND - perf_counter()))
            self._answer(next(self.answering), pool=pool)

    async def wakes(self, count: int) -> dict[str, float]:
        """Answer some, and the time from an answer being written to its event on the worker's stream."""
        for worker in self.workers:
            del worker.wakes[:]
        await self.answer(count)
        await self.arrived()
        return percentiles(array("d", (wake for worker in self.workers for wake in worker.wakes)))

    async def arrived(self) -> None:
        """Every answer is on its worker's stream, or never will be."""
        deadline = perf_counter() + ARRIVAL_SECONDS
        while sum(worker.answered for worker in self.workers) < self.sent and perf_counter() < deadline:
            await self.client.unless_failed(asyncio.sleep(0.02))

    async def memory(self) -> float:
        await self.client.unless_failed(asyncio.sleep(self.quiet))
        return round(resident_megabytes([self.pid]), 1)

    async def lost(self) -> int:
        """Asks and answers that some worker never heard of or heard of twice, and asks that are no longer open."""
        [caller] = await self.client.connect(count=1)
        metrics = (await caller.request(self.client.target.get("/metrics"))).decode()
        still_open = re.search(r"^handraise_asks_open (\d+)$", metrics, flags=re.MULTILINE)
        assert still_open is not None
        return (
            abs(self.asks - sum(worker.asked for worker in self.workers))
            + abs(self.sent - sum(worker.answered for worker in self.workers))
            + abs(self.asks - self.sent - int(still_open[1]))
        )

    async def come_back(self, *, pid: int) -> None:
        """To the desk that runs where the killed one ran. All streams broke when it was killed."""
        await asyncio.wait((self.client.failure,), timeout=ARRIVAL_SECONDS)
        if not self.client.failure.done():
            raise ServerMisbehaved("the desk was to be killed, and the streams are still open")
        self.client.failure.exception()
        self.client, self.pid = Client(self.client.target), pid

    def _answer(self, number: int, *, pool: Pool) -> None:
        before, after = Handraise.answer_request(self.client.target)
        name = _name(number)
        self.sent += 1
        pool.send(before + name + after, partial(self._worker_of(number).sent_at.__setitem__, name))

    def _worker_of(self, number: int) -> Worker:
        return self.workers[number % SESSIONS % len(self.workers)]


def _name(number: int) -> bytes:
    return Handraise.name(number % SESSIONS, number // SESSIONS)


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    waiting = Waiting(
        Target(args.port, token=args.token),
        asks=args.asks,
        workers=args.workers,
        pid=args.server_pid,
        quiet=args.quiet,
    )
    memory_before = await waiting.memory()
    await waiting.listen()
    opened_per_second = await waiting.open()
    result: dict[str, Any] = {
        "asks": args.asks,
        "workers": args.workers,
        "opened_per_second": round(opened_per_second, 1),
        "memory_before_mb": memory_before,
        "memory_mb": await waiting.memory(),
        "wake_ms": await waiting.wakes(args.answers),
    }
    print(json.dumps(result), flush=True)

    again = await told()
    await waiting.come_back(pid=again["server_pid"])
    # What is answered before a worker is back it learns from the id of the last event it has.
    await waiting.answer(args.answers // 10)
    await waiting.listen()
    await waiting.arrived()
    return {
        "memory_mb": await waiting.memory(),
        "wake_ms": await waiting.wakes(args.answers),
        "lost": await waiting.lost(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--server-pid", type=int, required=True)
    parser.add_argument("--asks", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--answers", type=int, default=1000, help="how many are answered, before and after")
    parser.add_argument("--quiet", type=float, default=1, help="seconds before memory is read")
    args = parser.parse_args()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(measure(args))
    except ServerMisbehaved as problem:
        sys.exit(f"waiting: {problem}")
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
