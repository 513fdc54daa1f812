"""How each server under test is asked and answered: ours, and the two ways into the peer; no clock runs here."""

import json
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Protocol

from http1 import Client, Connection, Pool, Target, fail

# The peer's proxy silently skips messages for a reader that is more than 512 behind. This many sessions with
# two messages in flight each cannot get there, so no lost question slows the peer down.
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

    def __init__(self, index: int, *, connection: Connection, count: int = 0) -> None:
        self.index = index
        self.connection = connection
        self.count = count  # the number of its last ask
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


def percentiles(seconds: "array[float]") -> dict[str, float]:
    """In milliseconds."""
    ordered = sorted(seconds)
    if not ordered:
        return {"p50": float("nan"), "p99": float("nan")}
    return {
        f"p{percent}": round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000, 3)
        for percent in (50, 99)
    }


class Scenario(Protocol):
    """One kind of server. `finished` is set by whoever drives it and called once per cycle."""

    finished: Callable[[Session], None]

    async def prepare(self, sessions: list[Session]) -> None: ...

    def ask(self, session: Session) -> None: ...


class Handraise:
    """`POST /v1/asks?wait=` stays open until the answer; the question is seen on `/v1/events`.

    It is seen and answered where the pool leads, which may be another desk than the one that was asked.
    """

    finished: Callable[[Session], None]
    # Ids have one length, so that everything in a request but the id is built once.
    name_length = 16

    def __init__(self, client: Client, *, pool: Pool, timings: Timings) -> None:
        self.client = client
        self.pool = pool
        self.timings = timings
        self.answer = self.answer_request(pool.client.target)
        self.sessions: list[Session] = []

    async def prepare(self, sessions: list[Session]) -> None:
        self.sessions = sessions
        for session in sessions:
            session.request = self.ask_request(self.client.target, path="/v1/asks?wait=60", session=session.index)
            session.on_response = partial(self._on_woken, session)
        await self.pool.client.stream("/v1/events", on_frames=self._on_frames)

    def ask(self, session: Session) -> None:
        session.count += 1
        before, after = session.request
        session.asked_at = perf_counter()
        session.connection.send(before + self.name(session.index, session.count) + after, session.on_response)

    @staticmethod
    def name(session: int, count: int) -> bytes:
        return b"b-%05d-%08d" % (session, count)

    @classmethod
    def name_in(cls, frame: bytes) -> bytes:
        at = frame.index(b'"b-') + 1
        return frame[at : at + cls.name_length]

    @classmethod
    def ask_request(cls, target: Target, *, path: str, session: int, worker: str | None = None) -> tuple[bytes, bytes]:
        """What goes before and after the ask's id."""
        before = b'{"id":"'
        waiting = b"" if worker is None else b',"worker":"%s"' % worker.encode()
        after = b'",%s,"origin":{"agent":"bench","session":"s-%d"}%s}' % (QUESTIONS, session, waiting)
        head = target.post_head(path, length=len(before) + cls.name_length + len(after))
        return head + before, after

    @staticmethod
    def answer_request(target: Target) -> tuple[bytes, bytes]:
        """What goes before and after the ask's id."""
        request = target.post("/v1/asks/ID/answer", body=b'{"answers":[["SQLite"]]}')
        before, _, after = request.partition(b"ID")
        return before, after

    def _on_frames(self, frames: list[bytes], now: float) -> None:
        before, after = self.answer
        for frame in frames:
            if b"event: asked\n" in frame:
                name = self.name_in(frame)
                session = self.sessions[int(name[2:7])]
                self.timings.saw(session, now)
                self.pool.send(before + name + after, session.note_answer)

    def _on_woken(self, session: Session, body: bytes) -> None:
        self.timings.woke(session, perf_counter())
        if b'"answers":[["SQLite"]]' not in body:
            fail(self.client.failure, f"the wait ended without the answer: {body!r}")
        self.finished(session)


class PeerStored:
    """The peer's `/opencode` layer over SQLite.

    The prompt returns at once, question and answer are seen on `/opencode/event`.
    """

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
            created = await session.connection.request(self.client.target.post("/opencode/session", body=b"{}"))
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

    The agent is `asking_agent.py`. One agent process serves many sessions, and there is one stream per process,
    since that is how the peer hands out events.
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

    def _on_frames(self, session_of: dict[bytes, Session], path: str, frames: list[bytes], now: float) -> None:
        for frame in frames:
            if b"request_question" not in frame:
                continue
            question = _quoted(frame, b'"id":"')
            session = session_of[question.split(b"-")[1]]
            self.timings.saw(session, now)
            body = b'{"jsonrpc":"2.0","id":"%s","result":{"status":"answered","answers":[["SQLite"]]}}' % question
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


def _quoted(frame: bytes, key: bytes) -> bytes:
    """The JSON string that follows the key's first appearance."""
    start = frame.index(key) + len(key)
    return frame[start : frame.index(b'"', start)]


def _call(method: str, number: bytes, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%s,"method":"%s","params":%s}' % (number, method.encode(), params)
