"""The load client, a process of its own: sessions ask, one answerer answers, every step is timed and printed as JSON; servers are started elsewhere.

A cycle is: the question goes out, the answerer sees it on a stream and answers it, the asker learns of the answer.
Every session has one connection and asks again as soon as it has its answer, unless a pace is given.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import uvloop
from http1 import Client, Connection, Pool, ServerMisbehaved, Target, fail
from processes import CpuClock, descendants, resident_megabytes

# The first pair whose number of sessions is large enough says how many connections the answerer has.
ANSWER_CONNECTIONS = ((1, 1), (50, 8), (sys.maxsize, 16))
# How long the cycles that are open when the clock stops may take to finish; after that the server lost them.
DRAIN_SECONDS = 8.0
# At 1,000 cycles/s of a few milliseconds each, only a handful of these are busy at once.
PACED_CONNECTIONS = 250
# The peer's proxy silently skips messages for a reader that is more than 512 behind. So many sessions with two
# messages in flight each cannot get there, and no lost question slows the peer down.
SESSIONS_PER_PROXIED_AGENT = 250

QUESTIONS = (
    b'"questions":[{"header":"Storage","question":"Which database?","options":['
    b'{"label":"SQLite","description":"one file"},{"label":"PostgreSQL","description":"shared"},'
    b'{"label":"None","description":"in memory"}]}]'
)


class Session:
    """One asker and the times of the cycle it is in."""

    __slots__ = (
        "answered_at",
        "asked_at",
        "asking",
        "connection",
        "count",
        "index",
        "note_answer",
        "on_response",
        "outstanding",
        "request",
    )

    def __init__(self, index: int, *, connection: Connection) -> None:
        self.index = index
        self.connection = connection
        self.count = 0
        self.asking = False
        self.asked_at = 0.0
        self.answered_at = 0.0
        self.outstanding = 0
        self.request: tuple[bytes, bytes] = (b"", b"")
        self.on_response: Callable[[bytes], None] = lambda body: None
        self.note_answer: Callable[[float], None] = partial(setattr, self, "answered_at")


@dataclass
class Timings:
    """What happened while recording was on; cycles before and after are run and not written down."""

    recording: bool = False
    cycles: int = 0
    visible: "array[float]" = field(default_factory=lambda: array("d"))
    woken: "array[float]" = field(default_factory=lambda: array("d"))

    def saw(self, session: Session, now: float) -> None:
        if self.recording:
            self.visible.append(now - session.asked_at)

    def woke(self, session: Session, now: float) -> None:
        if self.recording:
            self.woken.append(now - session.answered_at)


class Scenario(Protocol):
    """How one kind of server is asked and answered. `finished` is set by the driver and called once per cycle."""

    finished: Callable[[Session], None]

    async def prepare(self, sessions: list[Session]) -> None: ...

    def ask(self, session: Session) -> None: ...


class Handraise:
    """`POST /v1/asks?wait=` stays open until the answer; the question is seen on `/v1/events`."""

    finished: Callable[[Session], None]
    # Ids have one length, so that each request's bytes but the id are built once.
    name_format = b"b-%05d-%08d"
    name_length = 16

    def __init__(self, client: Client, *, pool: Pool, timings: Timings) -> None:
        self.client = client
        self.pool = pool
        self.timings = timings
        body = b'{"answers":[["SQLite"]]}'
        before, _, after = client.target.post("/v1/asks/ID/answer", body=body).partition(b"ID")
        self.answer = (before, after)
        self.sessions: list[Session] = []

    async def prepare(self, sessions: list[Session]) -> None:
        self.sessions = sessions
        for session in sessions:
            session.request = self._ask_request(session.index)
            session.on_response = partial(self._on_woken, session)
        await self.client.stream("/v1/events", on_frames=self._on_frames)

    def _ask_request(self, index: int, *, path: str = "/v1/asks?wait=60") -> tuple[bytes, bytes]:
        before = b'{"id":"'
        after = b'",%s,"origin":{"agent":"bench","session":"s-%d"}}' % (QUESTIONS, index)
        length = len(before) + self.name_length + len(after)
        return self.client.target.post_head(path, length=length) + before, after

    def ask(self, session: Session) -> None:
        session.count += 1
        before, after = session.request
        session.asked_at = perf_counter()
        session.connection.send(
            before + self.name_format % (session.index, session.count) + after, session.on_response
        )

    def _on_frames(self, frames: list[bytes], now: float) -> None:
        before, after = self.answer
        for frame in frames:
            if b"event: asked\n" not in frame:
                continue
            at = frame.find(b'"b-') + 1
            name = frame[at : at + self.name_length]
            session = self.sessions[int(name[2:7])]
            self.timings.saw(session, now)
            self.pool.send(before + name + after, session.note_answer)

    def _on_woken(self, session: Session, body: bytes) -> None:
        self.timings.woke(session, perf_counter())
        if b'"SQLite"' not in body or b'"answered"' not in body:
            fail(self.client.failure, f"the wait ended without the answer: {body!r}")
        self.finished(session)


class PeerStored:
    """The peer's `/opencode` layer over SQLite: the prompt returns at once, everything else is seen on `/opencode/event`."""

    finished: Callable[[Session], None]

    def __init__(self, client: Client, *, pool: Pool, timings: Timings) -> None:
        self.client = client
        self.pool = pool
        self.timings = timings
        body = b'{"answers":[["Yes"]]}'
        before, _, after = client.target.post("/opencode/question/ID/reply", body=body).partition(b"ID")
        self.answer = (before, after)
        self.session_of: dict[bytes, Session] = {}

    async def prepare(self, sessions: list[Session]) -> None:
        prompt = b'{"parts":[{"type":"text","text":"ask me a question"}]}'
        for session in sessions:
            created = await session.connection.request(
                self.client.target.post("/opencode/session", body=b"{}")
            )
            name = json.loads(created)["id"]
            self.session_of[name.encode()] = session
            session.request = (
                self.client.target.post(f"/opencode/session/{name}/prompt_async", body=prompt),
                b"",
            )
            session.on_response = partial(self._on_step, session)
        await self.client.stream("/opencode/event", on_frames=self._on_frames)

    def ask(self, session: Session) -> None:
        # The next prompt needs both: the connection free again, and the session idle again.
        session.outstanding = 2
        session.asked_at = perf_counter()
        session.connection.send(session.request[0], session.on_response)

    def _on_frames(self, frames: list[bytes], now: float) -> None:
        before, after = self.answer
        for frame in frames:
            if b'"type":"question.asked"' in frame:
                session = self.session_of[_quoted(frame, b'"sessionID":"')]
                self.timings.saw(session, now)
                self.pool.send(before + _quoted(frame, b'"id":"') + after, session.note_answer)
            elif b'"type":"question.replied"' in frame:
                self.timings.woke(self.session_of[_quoted(frame, b'"sessionID":"')], now)
            elif b'"type":"session.idle"' in frame:
                self._on_step(self.session_of[_quoted(frame, b'"sessionID":"')], b"")

    def _on_step(self, session: Session, body: bytes) -> None:
        session.outstanding -= 1
        if session.outstanding == 0:
            self.finished(session)


class PeerProxy:
    """The peer's `/v1/acp/{id}`: `session/prompt` stays open until the agent behind it has its answer.

    The agent is `asking_agent.py`. One agent process serves many sessions, with one stream per process, since that
    is how the peer hands out events.
    """

    finished: Callable[[Session], None]

    def __init__(self, client: Client, *, pool: Pool, timings: Timings) -> None:
        self.client = client
        self.pool = pool
        self.timings = timings

    async def prepare(self, sessions: list[Session]) -> None:
        for number, first in enumerate(range(0, len(sessions), SESSIONS_PER_PROXIED_AGENT)):
            await self._prepare_agent(f"a{number}", sessions[first : first + SESSIONS_PER_PROXIED_AGENT])

    async def _prepare_agent(self, agent: str, sessions: list[Session]) -> None:
        post, path = self.client.target.post, f"/v1/acp/{agent}"
        session_of: dict[bytes, Session] = {}
        await sessions[0].connection.request(
            post(f"{path}?agent=mock", body=_call("initialize", b"1", b'{"protocolVersion":1}'))
        )
        for session in sessions:
            created = await session.connection.request(
                post(path, body=_call("session/new", b"2", b'{"cwd":"/","mcpServers":[]}'))
            )
            name = json.loads(created)["result"]["sessionId"].encode()
            session_of[name] = session
            session.request = self._prompt_request(path, name)
            session.on_response = partial(self._on_woken, session)
        await self.client.stream(path, on_frames=partial(self._on_frames, session_of, path))

    def _prompt_request(self, path: str, name: bytes) -> tuple[bytes, bytes]:
        params = b'{"sessionId":"%s","prompt":[{"type":"text","text":"ask me a question"}]}' % name
        body = _call("session/prompt", b"000000000000", params)
        before, _, after = self.client.target.post(path, body=body).partition(b"000000000000")
        return before, after

    def ask(self, session: Session) -> None:
        session.count += 1
        before, after = session.request
        session.asked_at = perf_counter()
        # Twelve digits without a leading zero: unique among the sessions of one agent, and valid JSON.
        number = b"%d" % (100_000_000_000 + session.index * 10_000_000 + session.count)
        session.connection.send(before + number + after, session.on_response)

    def _on_frames(
        self, session_of: dict[bytes, Session], path: str, frames: list[bytes], now: float
    ) -> None:
        for frame in frames:
            if b"request_question" not in frame:
                continue
            question = _quoted(frame, b'"id":"')
            session = session_of[question.split(b"-")[1]]
            self.timings.saw(session, now)
            body = (
                b'{"jsonrpc":"2.0","id":"%s","result":{"status":"answered","answers":[["SQLite"]]}}'
                % question
            )
            self.pool.send(self.client.target.post(path, body=body), session.note_answer)

    def _on_woken(self, session: Session, body: bytes) -> None:
        self.timings.woke(session, perf_counter())
        if b"end_turn" not in body:
            fail(self.client.failure, f"the prompt ended without an answer: {body!r}")
        self.finished(session)


SCENARIOS: dict[str, Callable[..., Scenario]] = {
    "handraise": Handraise,
    "peer-stored": PeerStored,
    "peer-proxy": PeerProxy,
}


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
        """Starts what is due every millisecond. A cycle that finds no session free is started later and counted."""
        started, begin = 0, perf_counter()
        while self.running:
            due = int((perf_counter() - begin) * rate)
            while started < due and self.idle:
                started += 1
                self._ask(self.idle.pop())
            self.late += due - started
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


def _quoted(frame: bytes, key: bytes) -> bytes:
    """The JSON string that follows the key's first appearance."""
    start = frame.index(key) + len(key)
    return frame[start : frame.index(b'"', start)]


def _call(method: str, number: bytes, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%s,"method":"%s","params":%s}' % (number, method.encode(), params)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--server-pid", type=int, required=True)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument(
        "--rate", type=float, help="cycles per second; without it, as many as the server gives"
    )
    parser.add_argument(
        "--listeners", type=int, default=1, help="readers of the event stream, the answerer included"
    )
    args = parser.parse_args()
    gc.set_threshold(100_000, 50, 50)
    uvloop.install()
    try:
        result = asyncio.run(
            measure(
                Target(args.port, token=args.token),
                scenario_name=args.scenario,
                session_count=args.sessions,
                server_pid=args.server_pid,
                seconds=args.seconds,
                warm_up=args.warm_up,
                rate=args.rate,
                listeners=args.listeners,
            )
        )
    except ServerMisbehaved as problem:
        sys.exit(f"{args.scenario}: {problem}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
