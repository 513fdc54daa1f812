"""A server of OpenCode: its HTTP, its stream of events, and the ones we start ourselves. Knows nothing of asks.

One that we start belongs to a project folder, outlives us, and is recorded in a file for the next of us to find.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2

from handraise.agents import AgentSettings, Wire
from handraise.agents._programs import found
from handraise.errors import AgentFailed, ProcessFailed, SettingsError
from handraise.text.inert import inert
from handraise.transports.process import Process, Started, end, is_running
from handraise.transports.sse import EventTooLarge, Frames

__all__ = [
    "USER",
    "CallRefused",
    "Server",
    "ServerGone",
    "Servers",
    "StreamEnded",
    "check_locked",
    "command_of",
    "environment",
]

log = logging.getLogger(__name__)

USER = "opencode"
SILENCE = 25.0  # seconds; it sends a heartbeat every ten
PATIENCE = 120.0  # seconds for a call: the first one for a folder with plugins waits for their packages, 71 s were seen
START = 90.0  # seconds; two on an idle machine, more than a minute was seen on a busy one
KNOCK = 5.0  # seconds in which a server that is alive tells how it is
ENDING = 5.0  # seconds to end by itself
TRIES = 3  # a free port may be taken by the time it is used
MOST_OF_LOG = 1 << 20  # bytes after which the log of a server begins anew


class ServerGone(AgentFailed):
    """Nothing answers there any more."""


class StreamEnded(AgentFailed):
    """The stream of events broke off, or fell silent."""


class CallRefused(AgentFailed):
    """It answered, with a status that is no success."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message, status=status)
        self.status = status


class Server:
    """One server of OpenCode. `process` is known of those that we started."""

    def __init__(
        self,
        url: str,
        *,
        user: str = USER,
        password: str | None = None,
        process: Started | None = None,
        version: str | None = None,
    ) -> None:
        self.url = url
        self.process = process
        self.version = version
        self._http = httpx2.AsyncClient(
            base_url=url,
            auth=(user, password) if password is not None else None,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=5),
            timeout=httpx2.Timeout(PATIENCE, connect=10.0, pool=None),
            trust_env=False,
        )

    @classmethod
    def at(cls, address: str) -> Server:
        """The server at `http://[user:password@]host:port`. Raises SettingsError where that is no address."""
        try:
            parts = urlsplit(address)
            port, host = parts.port, parts.hostname
        except ValueError:
            host = port = None
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not host:
            raise SettingsError("an OpenCode server has an address such as http://opencode:PASSWORD@127.0.0.1:4096")
        name = f"[{host}]" if ":" in host else host
        url = f"{parts.scheme}://{name}" + (f":{port}" if port else "")
        password = unquote(parts.password) if parts.password is not None else None
        return cls(url, user=unquote(parts.username or USER), password=password)

    @property
    def is_local(self) -> bool:
        return urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")

    async def get(
        self, path: str, *, directory: str | None = None, seen: Callable[[Wire], None] | None = None, **parameters: Any
    ) -> Any:
        """The JSON at a path. `seen` is told of the call and of its reply. Raises ServerGone, CallRefused."""
        return await self._call("GET", path, directory=directory, parameters=parameters, seen=seen)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        directory: str | None = None,
        seen: Callable[[Wire], None] | None = None,
    ) -> Any:
        """Raises ServerGone, CallRefused."""
        return await self._call("POST", path, directory=directory, body=body, seen=seen)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        directory: str | None,
        seen: Callable[[Wire], None] | None,
        body: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(parameters or {}) | ({"directory": directory} if directory is not None else {})
        name = f"{method} {path}"
        if seen is not None:
            seen(Wire(way="out", body=body, name=name))
        try:
            response = await self._http.request(method, path, params=given, json=body)
        except httpx2.TransportError as error:
            raise ServerGone(f"OpenCode's server at {self.url} does not answer ({type(error).__name__})") from error
        if seen is not None:
            seen(Wire(way="in", body=_body(response), name=f"{response.status_code} {name}"))
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            raise self._locked()
        if not response.is_success:
            raise CallRefused(_problem_in(response), status=response.status_code)
        try:
            return response.json() if response.content else None
        except ValueError as error:
            raise CallRefused(f"{self.url} does not answer as OpenCode does", status=response.status_code) from error

    def _locked(self) -> SettingsError:
        return SettingsError(
            f"OpenCode's server at {self.url} wants another password; give it as http://opencode:PASSWORD@HOST:PORT"
        )

    async def health(self) -> str | None:
        """Its version, or None where no server of OpenCode answers in time. Raises SettingsError for the password."""
        try:
            async with asyncio.timeout(KNOCK):
                told = await self.get("/global/health")
        except (TimeoutError, ServerGone, CallRefused):
            return None
        return str(told.get("version", "")) if isinstance(told, dict) and told.get("healthy") else None

    async def is_locked(self) -> bool:
        """Whether it refuses a call without the password. Raises ServerGone."""
        try:
            async with asyncio.timeout(KNOCK):
                response = await self._http.get("/session", auth=None)
        except (TimeoutError, httpx2.TransportError) as error:
            raise ServerGone(f"OpenCode's server at {self.url} does not answer ({type(error).__name__})") from error
        return response.status_code in (httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN)

    async def events(self, path: str, *, directory: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """What it tells from now on, as it told it. Raises StreamEnded at the end or after too long a silence."""
        parameters = {"directory": directory} if directory is not None else {}
        timeout = httpx2.Timeout(PATIENCE, connect=10.0, read=SILENCE, pool=None)
        frames = Frames()
        try:
            async with self._http.stream("GET", path, params=parameters, timeout=timeout) as stream:
                if stream.status_code == httpx2.codes.UNAUTHORIZED:
                    raise self._locked()
                if not stream.is_success:
                    raise StreamEnded(f"OpenCode's server at {self.url} has no events ({stream.status_code})")
                async for chunk in stream.aiter_raw():
                    for frame in frames.feed(chunk):
                        if (event := _event(frame.data)) is not None:
                            yield event
        except EventTooLarge as error:
            raise StreamEnded(f"OpenCode's server at {self.url}: {error}") from error
        except httpx2.TransportError as error:
            raise StreamEnded(f"the events of {self.url} broke off ({type(error).__name__})") from error
        raise StreamEnded(f"the events of {self.url} ended")

    def is_gone(self) -> bool:
        """Whether its process has ended; False too where we do not know the process."""
        return self.process is not None and not is_running(self.process)

    async def close(self) -> None:
        """Let go of it. It runs on."""
        await self._http.aclose()


def _body(response: httpx2.Response) -> Any:
    """JSON, or a text."""
    try:
        return response.json() if response.content else None
    except ValueError:
        return response.text


def _event(data: str) -> dict[str, Any] | None:
    try:
        event = json.loads(data)
    except ValueError:
        log.warning("opencode: an event is no JSON (%d characters)", len(data))
        return None
    return event if isinstance(event, dict) else None


def _problem_in(response: httpx2.Response) -> str:
    """OpenCode's own words for a refusal, if it has any."""
    words: object = None
    with suppress(ValueError):
        body = response.json()
        if isinstance(body, dict):
            data = body.get("data")
            words = body.get("message") or (data.get("message") if isinstance(data, dict) else None)
    told = inert(" ".join(words.split()))[:500] if isinstance(words, str) else "it gave no reason"
    return f"OpenCode refused a call with {response.status_code}: {told}"


# Those that we start ----------------------------------------------------------------------------------------


def command_of(settings: AgentSettings) -> tuple[str, ...]:
    """The program as it is started. Raises SettingsError where there is none."""
    if settings.command:
        return settings.command
    install = (
        "install it (https://opencode.ai), "
        'or name it in the settings: [agents.opencode] command = ["/path/to/opencode"]'
    )
    try:
        return (found("opencode", env=environment(settings), install=install),)
    except AgentFailed as problem:
        raise SettingsError(problem.message) from None


def environment(settings: AgentSettings) -> dict[str, str]:
    return settings.environment(without={"OPENCODE_CLIENT"})  # as `acp` it has no questions


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A server that one of us started, as it stands in the file."""

    url: str
    password: str
    pid: int
    started: float | None
    version: str
    cwd: str
    made_of: str  # a hash of the command and the settings it was started with

    @property
    def process(self) -> Started:
        return Started(self.pid, self.started)

    def server(self) -> Server:
        return Server(self.url, password=self.password, process=self.process, version=self.version)


class Servers:
    """The servers of this home, one for each project folder."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._folder = settings.home / "agents" / "opencode"
        shown = json.dumps([settings.command, sorted(settings.env.items())])
        self._made_of = hashlib.sha256(shown.encode()).hexdigest()

    def file(self, cwd: str) -> Path:
        return self._folder / f"{hashlib.sha256(cwd.encode()).hexdigest()[:20]}.json"

    async def running(self, cwd: str) -> Server | None:
        """The server of a folder, if it is alive."""
        record = _read(self.file(cwd))
        if record is None or not is_running(record.process):
            return None
        server = record.server()
        try:
            async with asyncio.timeout(
                PATIENCE
            ):  # one that works hard is slow to answer, and must not be taken for dead
                while is_running(record.process):
                    if await server.health() is not None:
                        await check_locked(server)
                        return server
                    await asyncio.sleep(0.2)
        except _Unlocked as unlocked:
            log.warning("opencode: the server of pid %s is not used: %s", record.pid, unlocked)
        except (TimeoutError, SettingsError, ServerGone):  # or somebody else has its port by now
            log.warning("opencode: the server of pid %s does not answer", record.pid)
        await server.close()
        return None

    async def get(self, cwd: str) -> Server:
        """The server of a folder, started if there is none. Raises AgentFailed, SettingsError."""
        async with self._alone(cwd):
            server = await self.running(cwd)
            if server is not None and not await self._is_outdated(cwd, server):
                return server
            if server is not None:
                await server.close()
            await self._remove(cwd)
            return await self._start(cwd)

    async def end_if_idle(self, cwd: str) -> bool:
        """End the server of a folder unless it works on something, for us or for another of us. False if it stays."""
        async with self._alone(cwd):
            server = await self.running(cwd)
            if server is not None:
                try:
                    if await server.get("/session/status", directory=cwd):
                        return False
                except AgentFailed:
                    log.info(
                        "opencode: the server of pid %s does not tell whether it works; it is ended", server.process
                    )
                finally:
                    await server.close()
            await self._remove(cwd)
        return True

    async def _is_outdated(self, cwd: str, server: Server) -> bool:
        """Whether it was started with other settings, and can be replaced because it does nothing."""
        record = _read(self.file(cwd))
        if record is None or record.made_of == self._made_of:
            return False
        return not await server.get("/session/status", directory=cwd)

    async def _remove(self, cwd: str) -> None:
        record = _read(self.file(cwd))
        if record is not None:
            try:
                await end(record.process, patience=ENDING)
            except ProcessFailed as error:
                raise AgentFailed(str(error)) from error
        self.file(cwd).unlink(missing_ok=True)

    async def _start(self, cwd: str) -> Server:
        command = command_of(self._settings)
        logged = self.file(cwd).with_suffix(".log")
        for left in reversed(range(TRIES)):
            try:
                return await self._try_to_start(command, cwd, logged=logged)
            except ProcessFailed as error:
                raise AgentFailed(str(error)) from error
            except ServerGone:
                if not left:
                    raise
        raise AssertionError("unreachable")

    async def _try_to_start(self, command: Sequence[str], cwd: str, *, logged: Path) -> Server:
        port, password = _free_port(), secrets.token_urlsafe(32)
        given = environment(self._settings)
        env = given | {
            "OPENCODE_CONFIG_CONTENT": _going_on(given.get("OPENCODE_CONFIG_CONTENT", "")),
            "OPENCODE_SERVER_PASSWORD": password,
            "OPENCODE_SERVER_USERNAME": USER,
            "HANDRAISE_MANAGED": "1",  # the plugin for terminals stays out of it
        }
        before = _ready_to_log(logged)
        served = [*command, "serve", "--hostname", "127.0.0.1", "--port", str(port)]
        process = await Process.start_detached(served, cwd=cwd, env=env, log=logged)
        server = Server(f"http://127.0.0.1:{port}", password=password, process=process)
        try:
            server.version = await _until_healthy(server, logged=logged, before=before)
            await check_locked(server)
            record = Record(
                url=server.url,
                password=password,
                pid=process.pid,
                started=process.started,
                version=server.version,
                cwd=cwd,
                made_of=self._made_of,
            )
            _write(self.file(cwd), record)
        except BaseException:
            await server.close()
            await asyncio.shield(end(process, patience=0.0))
            raise
        return server

    @asynccontextmanager
    async def _alone(self, cwd: str) -> AsyncIterator[None]:
        """Two workers of one home start one server."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.file(cwd).with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            async with asyncio.timeout(START + PATIENCE):
                while True:
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        await asyncio.sleep(0.05)
        except TimeoutError:
            os.close(descriptor)
            raise AgentFailed(f"another worker has been starting OpenCode in {cwd} for too long; try again") from None
        except BaseException:
            os.close(descriptor)
            raise
        try:
            yield
        finally:
            os.close(descriptor)


class _Unlocked(AgentFailed):
    """It serves everybody."""


async def check_locked(server: Server) -> None:
    """Raises AgentFailed where every program of this machine, and every page in a browser, could drive the agent."""
    if not await server.is_locked():
        raise _Unlocked(
            f"the server at {server.url} answers without the password that it was given, so anybody on this machine "
            "could use it, and it was ended; check that `command` in [agents.opencode] is OpenCode itself"
        )


async def _until_healthy(server: Server, *, logged: Path, before: int) -> str:
    """Its version once it answers. Raises ServerGone if it ended, AgentFailed if it takes too long."""
    try:
        async with asyncio.timeout(START):
            while True:
                if server.is_gone():
                    raise ServerGone(f"OpenCode's server did not start{_tail(logged, before=before)}")
                try:
                    version = await server.health()
                except SettingsError:
                    raise ServerGone("another program took the port for OpenCode's server; try again") from None
                if version is not None:
                    return version
                await asyncio.sleep(0.05)  # nothing tells when it listens
    except TimeoutError:
        raise AgentFailed(f"OpenCode's server did not answer within {START:.0f} seconds; try again") from None


def _going_on(config: str) -> str:
    """The configuration that a person gave in a variable, with the setting by which a refusal does not end a turn.

    One permission that is refused takes the others of its session along, without a word to the model.
    """
    try:
        given = json.loads(config or "{}")
        experimental = {"continue_loop_on_deny": True, **given.get("experimental", {})}
    except (ValueError, TypeError, AttributeError):
        return config  # with comments in it, or broken: OpenCode has to say so
    return json.dumps({**given, "experimental": experimental})


def _ready_to_log(logged: Path) -> int:
    """How long it is already."""
    if logged.exists() and logged.stat().st_size > MOST_OF_LOG:
        logged.unlink()
    logged.touch(mode=0o600)
    return logged.stat().st_size


def _tail(logged: Path, *, before: int) -> str:
    """The last line that it printed."""
    try:
        with logged.open("rb") as file:
            file.seek(before)
            lines = file.read(64 * 1024).decode("utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"; it said last: {inert(last)[:500]}" if last else ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _read(file: Path) -> Record | None:
    try:
        return Record(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):  # none, torn, or of another version of ours
        return None


def _write(file: Path, record: Record) -> None:
    new = file.with_suffix(".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        json.dump(asdict(record), out)
    new.replace(file)
