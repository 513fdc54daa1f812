"""Real desks to test against: in this process on a free loopback port, or as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx2

from handraise.agents import Agent
from handraise.app import Running, agents_of, bind, run_desk
from handraise.broker import Broker
from handraise.clock import Clock
from handraise.config import Settings
from handraise.events import Event
from handraise.server.connections import Limits
from handraise.transports.sse import Frame, Frames

PATIENCE = 5.0  # seconds anything may take
START = 20.0  # seconds a process may take to start on a busy machine

DATABASE = {
    "header": "Database",
    "question": "Which database should I use?",
    "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres"}],
}
BASH = {
    "tool": "Bash",
    "summary": "Remove the build folder",
    "command": "rm -rf build",
    "input": {"command": "rm -rf build"},
    "replies": ["once", "always", "reject"],
    "scopes": [
        {"id": "session", "label": "this session", "patterns": ["rm -rf build", "rm *"]},
        {"id": "project", "label": "this project", "patterns": ["rm -rf *"]},
    ],
    "editable": True,
}
ORIGIN = {"agent": "scripted", "session": "s1"}


def a_body(**changes: Any) -> dict[str, Any]:
    """What `POST /v1/asks` takes: one question with two options."""
    return {"questions": [DATABASE], "origin": ORIGIN, **changes}


def a_permission_body(**changes: Any) -> dict[str, Any]:
    """The same for a permission. `changes` are fields of the body; `permission` replaces the whole of it."""
    return {"permission": BASH, "origin": ORIGIN, **changes}


def path_of(id: str, action: str = "") -> str:
    return f"/v1/asks/{quote(id, safe='')}" + (f"/{action}" if action else "")


@dataclass(frozen=True, kw_only=True)
class Served:
    """A desk that listens. `http` speaks for its admin."""

    settings: Settings
    running: Running
    http: httpx2.AsyncClient
    admin: str  # the name of its admin's token
    _stack: AsyncExitStack

    @property
    def url(self) -> str:
        return self.running.url

    @property
    def broker(self) -> Broker:
        return self.running.broker

    @property
    def token(self) -> str:
        return self.settings.token_file.read_text().strip()

    async def caller(self, name: str, *scopes: str) -> httpx2.AsyncClient:
        """A client with a new token of these scopes."""
        added = await self.http.post("/v1/tokens", json={"name": name, "scopes": scopes})
        assert added.status_code == 201, added.text
        return await self.client(added.json()["token"])

    async def client(self, token: str | None = None, **headers: str) -> httpx2.AsyncClient:
        """A client of its own, with its own connections."""
        return await self._stack.enter_async_context(a_client(self.url, token, **headers))

    async def ask(self, **changes: Any) -> dict[str, Any]:
        """Raise a hand without waiting; the ask as it was told."""
        return await told(self.http.post("/v1/asks", json=a_body(**changes)), 201)

    async def get(self, id: str) -> dict[str, Any]:
        return await told(self.http.get(path_of(id)), 200)

    async def answer(self, id: str, *values: str) -> dict[str, Any]:
        return await told(self.http.post(path_of(id, "answer"), json={"answers": [values]}), 200)


async def first_event(broker: Broker, wanted: Callable[[Event], bool]) -> Event:
    """The first event in the history of a desk that fits; waits for it."""
    events: Any = broker.events(after=0)
    async with asyncio.timeout(PATIENCE), aclosing(events):
        async for event in events:
            if wanted(event):
                return event  # type: ignore[no-any-return]
    raise AssertionError("the desk left before it happened")


async def eventually(happened: Callable[[], bool]) -> None:
    """Wait for something that has no event of its own."""
    async with asyncio.timeout(PATIENCE):
        while not happened():
            await asyncio.sleep(0.002)


async def told(call: Any, status: int) -> dict[str, Any]:
    """The JSON of a reply that has this status."""
    response = await call
    assert response.status_code == status, f"{response.status_code}: {response.text[:2000]}"
    body: dict[str, Any] = response.json()
    return body


async def refused(call: Any, status: int, code: str) -> dict[str, Any]:
    """The JSON of a refusal, which always has an error code and a sentence."""
    body = await told(call, status)
    assert body["error"] == code, body
    assert isinstance(body["message"], str) and body["message"]
    return body


async def tokens_of(desk: Served) -> dict[str, list[str]]:
    """The scopes of the tokens that were made, by name."""
    listed = (await told(desk.http.get("/v1/tokens"), 200))["tokens"]
    return {token["name"]: token["scopes"] for token in listed if not token["name"].startswith("admin")}


def a_client(url: str, token: str | None, **headers: str) -> httpx2.AsyncClient:
    bearer = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.AsyncClient(
        base_url=url,
        headers={**bearer, **headers},
        timeout=httpx2.Timeout(PATIENCE, read=30),
        limits=httpx2.Limits(max_connections=None),
        trust_env=False,
        verify=False,  # there is no TLS here, and to read the certificates of the machine takes longer than a test
    )


@asynccontextmanager
async def serving(
    home: Path,
    *,
    port: int = 0,
    has_worker: bool = True,
    staff: Sequence[Agent] = (),
    clock: Clock | None = None,
    limits: Limits | None = None,
    **changes: Any,
) -> AsyncIterator[Served]:
    """A desk in this process, through the same door as `handraise serve`. `changes` are settings.

    Its worker uses the agents of `staff` in place of those of their names.
    """
    settings = Settings(**{"home": home, "database": f"sqlite:///{home / 'desk.db'}", **changes})
    async with AsyncExitStack() as stack:
        agents = agents_of(settings)
        for agent in staff:
            agents.put(agent)
        listener = bind("127.0.0.1", port)
        desk = run_desk(settings, listener=listener, has_worker=has_worker, agents=agents, clock=clock, limits=limits)
        running = await stack.enter_async_context(desk)
        token = settings.token_file.read_text().strip()
        http = await stack.enter_async_context(a_client(running.url, token))
        tokens = (await told(http.get("/v1/tokens"), 200))["tokens"]
        admins = [token for token in tokens if token["name"].startswith("admin")]
        admin = max(admins, key=lambda token: str(token["created_at"]))["name"]  # desks of one database have one each
        yield Served(settings=settings, running=running, http=http, admin=admin, _stack=stack)


@contextmanager
def serving_in_a_thread(home: Path, **changes: Any) -> Iterator[str]:
    """A desk beside a test that blocks; its address."""
    ready: Future[str] = Future()
    leave: Future[None] = Future()

    async def serve() -> None:
        async with serving(home, **changes) as desk:
            ready.set_result(desk.url)
            await asyncio.wrap_future(leave)

    with ThreadPoolExecutor(1, thread_name_prefix="desk") as pool:
        served = pool.submit(asyncio.run, serve())
        try:
            either: list[Future[Any]] = [served, ready]
            wait(either, timeout=START, return_when=FIRST_COMPLETED)
            if served.done():
                served.result()  # why it did not start
            yield ready.result()
        finally:
            leave.set_result(None)
            served.result(PATIENCE)


class DeskProcess:
    """`python -m handraise serve` on one port, which can be stopped, shot and started again. Use as a context."""

    def __init__(
        self, home: Path, *, log: Path | None = None, command: Sequence[str] = (sys.executable,), **environ: str
    ) -> None:
        """`command` runs Python."""
        self.settings = Settings(home=home)
        self._command = command
        self.log = log or home / "serve.log"
        self.url = ""
        self._environ = environ
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self.settings.home.mkdir(parents=True, exist_ok=True)
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None and self._process.returncode is None:
            await self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def token(self) -> str:
        return self.settings.token_file.read_text().strip()

    def client(self) -> httpx2.AsyncClient:
        return a_client(self.url, self.token)

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*self._command, "-u", "-m", "handraise", "serve", "--port", str(self._port)),
                env={**_without_settings(), "HANDRAISE_HOME": str(self.settings.home), **self._environ},
                cwd=self.settings.home,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = (await asyncio.wait_for(self._process.stdout.readline(), START)).decode()
        assert "http://" in line, f"the desk did not start: {line} {self.log.read_text()}"
        self.url = line.split()[-1]
        self._port = int(self.url.rpartition(":")[2])

    async def kill(self) -> None:
        """SIGKILL: the desk gets no chance to tidy up."""
        assert self._process is not None
        self._process.kill()
        await self._process.communicate()

    async def stop(self) -> int:
        """SIGTERM; its exit code. Raises TimeoutError where it takes longer than five seconds."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            output, _ = await self._process.communicate()
        with self.log.open("ab") as log:
            log.write(output)
        assert self._process.returncode is not None
        return self._process.returncode


def _without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HANDRAISE_")}


class Listener:
    """One reader of an event stream, frame by frame."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.raw = b""
        self.cursor: str | None = None
        self._chunks = response.aiter_bytes()
        self._frames = Frames()
        self._read: list[Frame] = []

    async def frame(self) -> Frame:
        """The next event with data; where the stream stands is in `cursor`."""
        async with asyncio.timeout(PATIENCE):
            while True:
                while self._read:
                    frame = self._read.pop(0)
                    self.cursor = frame.id if frame.id is not None else self.cursor
                    if frame.data:
                        return frame
                await self._more()

    async def until(self, text: bytes) -> None:
        """Read until these bytes came by, be it a comment or part of an event."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.raw:
                await self._more()

    async def _more(self) -> None:
        chunk = await anext(self._chunks)
        self.raw += chunk
        self._read += self._frames.feed(chunk)


@asynccontextmanager
async def listening(client: httpx2.AsyncClient, path: str = "/v1/events", **asked: Any) -> AsyncIterator[Listener]:
    """Open a stream; on entry the desk has said where it stands, so nothing after that is missed."""
    headers = {"Last-Event-ID": str(asked.pop("last_event_id"))} if "last_event_id" in asked else {}
    async with client.stream("GET", path, params=asked, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        listener = Listener(response)
        await listener.until(b"\n\n")
        yield listener
