"""OpenCode, over its HTTP API: sessions that we start, servers that already run, and a person's own terminal.

`translate.py` is the mapping, `server.py` the wire, `events.py` reads what it tells, `relay.py` follows that,
`requests.py` carries what is asked, `session.py` runs turns, and `attach.py` is for a terminal that opens no port. Seen
with OpenCode 1.18.33.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handraise.agents import AgentSettings, Asker, Capabilities, Edit, Left, Start
from handraise.agents._programs import version_of
from handraise.agents.opencode.attach import Terminals, edits
from handraise.agents.opencode.modes import MODES
from handraise.agents.opencode.relay import Relay
from handraise.agents.opencode.requests import Owner
from handraise.agents.opencode.server import (
    USER,
    CallRefused,
    Server,
    ServerGone,
    Servers,
    check_locked,
    command_of,
    environment,
)
from handraise.agents.opencode.session import Folder, OpenCodeSession, session_rules
from handraise.agents.opencode.versions import VERSIONS
from handraise.errors import AgentFailed, ProcessFailed, SettingsError
from handraise.text.inert import inert
from handraise.transports.process import Process

if TYPE_CHECKING:
    from starlette.routing import Route

__all__ = ["OpenCode", "plugin"]

log = logging.getLogger(__name__)

PROBE = 90.0  # seconds to start a server, on a busy machine
ROUTES = {
    "questions": "/question/{requestID}/reply",
    "permissions": "/permission/{requestID}/reply",
    "resume": "/session/{sessionID}/prompt_async",
}


class OpenCode:
    """One server for each project folder, which all sessions there share."""

    name = "opencode"
    modes = MODES
    versions = VERSIONS

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._servers = Servers(settings)
        self._folders: dict[str, Folder] = {}
        self._used: dict[str, None] = {}  # folders in which a server of ours may run
        self._joining = asyncio.Lock()
        self._terminals = Terminals()

    def check(self, start: Start) -> None:
        MODES.check(start.mode)
        if start.cwd is not None and not Path(start.cwd).is_dir():
            raise SettingsError(f"there is no folder {start.cwd!r} to start opencode in; create it or choose another")
        command_of(self._settings)

    async def open(self, asker: Asker, start: Start) -> OpenCodeSession:
        self.check(start)
        try:
            return await self._open(asker, start)
        except ServerGone:  # it was about to end when we found it
            return await self._open(asker, start)

    async def _open(self, asker: Asker, start: Start) -> OpenCodeSession:
        cut = start.cut
        cwd = _resolve(str(cut.handle["directory"]) if cut is not None else start.cwd)
        folder = await self._join(cwd)
        try:
            if cut is not None:
                id = await _find(folder, str(cut.handle["session"]))
            else:
                id = await _create(folder, start)
        except BaseException:
            await self._release(folder, may_end=True)
            raise

        async def join() -> Folder:
            return await self._join(cwd)

        async def release(given: Folder, may_end: bool) -> None:
            await self._release(given, may_end=may_end)

        return OpenCodeSession(asker, start, id=id, folder=folder, join=join, release=release)

    async def _join(self, cwd: str) -> Folder:
        """The folder with one user more. Raises AgentFailed, SettingsError."""
        async with self._joining:
            folder = self._folders.get(cwd)
            if folder is None or folder.is_over:
                self._used[cwd] = None
                folder = self._folders[cwd] = Folder(await self._servers.get(cwd), cwd=cwd)
            folder.users += 1
        try:
            await folder.until_connected()
        except BaseException:
            await self._release(folder, may_end=False)
            raise
        return folder

    async def _release(self, folder: Folder, *, may_end: bool) -> None:
        """One user less. After the last one nobody listens, and the server ends if it may and does nothing."""
        folder.users -= 1
        if folder.users:
            return
        async with self._joining:
            if self._folders.get(folder.cwd) is folder:
                del self._folders[folder.cwd]
            await folder.close()
            if may_end and folder.cwd not in self._folders:
                await self._servers.end_if_idle(folder.cwd)

    async def close(self) -> None:
        """End the servers that do nothing. One that is in the middle of a turn stays, for the next worker."""
        for folder in list(self._folders.values()):
            await folder.close()
        self._folders.clear()
        for cwd in self._used:
            try:
                await self._servers.end_if_idle(cwd)
            except AgentFailed as trouble:
                log.warning("opencode: the server of %s could not be ended: %s", cwd, trouble)
        self._used.clear()

    async def watch(self, asker: Asker, address: str, *, ready: Callable[[], None] = lambda: None) -> None:
        """`http://[user:password@]host:port` of `opencode serve`, `opencode web` or `opencode --port`."""
        server = Server.at(address)
        relay = Relay(server, everyone=Owner(asker=asker))
        try:
            await _warn_of_unlocked(server)
            await relay.follow(ready=ready)
        finally:
            await relay.close()
            await server.close()

    async def look(self, *, probe: bool = False) -> Capabilities:
        try:
            command = command_of(self._settings)
            version = await version_of(command, env=environment(self._settings), install="check that it is OpenCode")
        except (SettingsError, AgentFailed, ProcessFailed) as missing:
            return Capabilities(agent=self.name, installed=False, problem=str(missing))
        known = Capabilities(
            agent=self.name,
            installed=True,
            version=version,
            program=command[0],
            questions=True,
            permissions=True,
            several_questions=True,
            multi_select=True,
            free_text=True,
            notes=True,
            subagents=True,
            resume=True,
            attach=True,
            modes=MODES.names,
        )
        if not probe:
            return known
        try:
            async with self._probe(command) as server:
                return await _check_server(known, server)
        except (AgentFailed, SettingsError) as trouble:
            return replace(known, problem=str(trouble))

    @asynccontextmanager
    async def _probe(self, command: Sequence[str]) -> AsyncIterator[Server]:
        """A server to ask: one that runs, or one for the moment."""
        for folder in self._folders.values():
            if not folder.is_over:
                yield folder.server
                return
        served = [*command, "serve", "--hostname", "127.0.0.1", "--port", "0"]
        with tempfile.TemporaryDirectory() as cwd:
            env = environment(self._settings) | {"HANDRAISE_MANAGED": "1"}
            password = secrets.token_urlsafe(32)  # that of the person is for their own servers
            env |= {"OPENCODE_SERVER_PASSWORD": password, "OPENCODE_SERVER_USERNAME": USER}
            try:
                async with await Process.start(served, cwd=cwd, env=env) as process:
                    server = Server(await _address_of(process), password=password)
                    try:
                        await check_locked(server)
                        yield server
                    finally:
                        await server.close()
            except ProcessFailed as error:
                raise AgentFailed(str(error)) from error

    def routes(self) -> Sequence[Route]:
        return self._terminals.routes()

    async def retire(self, desk: Left) -> None:
        await self._terminals.retire(desk)

    def edits(self, *, url: str, token: str) -> Sequence[Edit]:
        return edits(url=url, token=token, environ=environment(self._settings))


def _resolve(cwd: str | None) -> str:
    """As OpenCode names it: a folder and a link to it would be two projects."""
    return str(Path(cwd or ".").resolve())


async def _create(folder: Folder, start: Start) -> str:
    body: dict[str, Any] = {"title": f"handraise {start.session}"}  # one without a title asks the model for one
    if rules := await session_rules(start, folder.server, cwd=folder.cwd):
        body["permission"] = rules
    session = await folder.server.post("/session", body, directory=folder.cwd, seen=start.listener.seen)
    if not isinstance(session, dict) or not isinstance(session.get("id"), str):
        raise AgentFailed("OpenCode made no session; is it a version that we do not know?")
    id: str = session["id"]
    return id


async def _find(folder: Folder, id: str) -> str:
    try:
        await folder.server.get(f"/session/{id}", directory=folder.cwd)
    except CallRefused as refused:
        raise AgentFailed(f"OpenCode no longer has the session {inert(id)}; start a new one") from refused
    return id


async def _address_of(process: Process) -> str:
    """Where a server listens, as it says when it does."""
    try:
        async with asyncio.timeout(PROBE):
            async for line in process.lines():
                if found := re.search(rb"listening on (http://\S+)", line):
                    return found[1].decode()
    except TimeoutError:
        raise AgentFailed(f"OpenCode's server did not start within {PROBE:.0f} seconds; try again") from None
    last = process.stderr_tail.strip().rpartition("\n")[2]
    raise AgentFailed("OpenCode's server did not start" + (f"; it said last: {inert(last)[:500]}" if last else ""))


async def _check_server(known: Capabilities, server: Server) -> Capabilities:
    """What the running server says of itself."""
    version = await server.health()
    told = await server.get("/experimental/tool/ids")
    tools = set(map(str, told)) if isinstance(told, list) else set()
    document = await server.get("/doc")
    paths = document.get("paths") if isinstance(document, dict) else None
    has = {name: isinstance(paths, dict) and path in paths for name, path in ROUTES.items()}
    questions = has["questions"] and "question" in tools
    problem = None
    if not questions:
        problem = f"OpenCode {inert(str(version))} has no questions as we know them; use a version 1.18"
    return replace(
        known,
        version=version or known.version,
        questions=questions,
        permissions=has["permissions"],
        several_questions=questions,
        multi_select=questions,
        free_text=questions,
        notes=questions,
        plans="plan_exit" in tools,
        subagents="task" in tools,
        resume=has["resume"],
        checked=("version", "questions", "permissions", "plans", "subagents", "resume"),
        problem=problem,
    )


async def _warn_of_unlocked(server: Server) -> None:
    """A person's own server is theirs to open; they may not know that they did."""
    with suppress(ServerGone):
        if not await server.is_locked():
            log.warning(
                "OpenCode's server at %s wants no password, so every program on its machine can drive it; start it "
                "with OPENCODE_SERVER_PASSWORD and give that in the address",
                server.url,
            )


plugin = OpenCode
