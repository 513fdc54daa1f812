"""Codex: sessions that we start, over `codex app-server`, and a person's own terminal.

`translate.py` is the mapping, `session.py` runs turns, `attach.py` listens to the daemon of a plain `codex`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from handraise.agents import AgentSettings, Asker, Capabilities, HandlingAsker, Start
from handraise.agents._programs import found, last_words, listening, looked_at
from handraise.agents.codex.attach import DAEMON, Relay, socket_of
from handraise.agents.codex.modes import MODES, Thread
from handraise.agents.codex.session import CodexSession, shake_hands
from handraise.agents.codex.translate import QUESTION_TOOL
from handraise.agents.codex.versions import VERSIONS
from handraise.errors import AgentFailed, HandraiseError, ProcessFailed
from handraise.text.inert import inert
from handraise.transports.jsonrpc import METHOD_NOT_FOUND, Id, JsonRpc, PeerGone, RpcError
from handraise.transports.process import Process

__all__ = ["Codex", "plugin"]

PROBE_PATIENCE = 60.0  # seconds
INSTALL = "install Codex (`npm install -g @openai/codex`), or give its full path in `[agents.codex] command`"
# Of a Codex that started us. It would take itself for a part of that one.
NOT_INHERITED = {
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "CODEX_THREAD_ID",
    "CODEX_TOOL_CALL_ID",
    "CODEX_INTERNAL_ORIGINATOR_OVERRIDE",
}

KNOWN = Capabilities(
    agent="codex",
    installed=True,
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


class Codex:
    """One `codex app-server` for each session; nothing outlives it but the thread that Codex writes down by itself."""

    name = "codex"
    modes = MODES
    versions = VERSIONS
    found_at = DAEMON

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings

    def check(self, start: Start) -> None:
        MODES.check(start.mode)

    async def open(self, asker: Asker, start: Start) -> CodexSession:
        self.check(start)
        try:
            process = await Process.start(
                [*self._command(), "app-server"], cwd=start.cwd, env=self._env(session=start.session)
            )
        except ProcessFailed as error:
            raise AgentFailed(error.message) from error
        session = CodexSession(process, asker=asker, start=start, thread=MODES.of(start.mode) or Thread())
        await session.begin()
        return session

    async def look(self, *, probe: bool = False) -> Capabilities:
        seen = await looked_at(KNOWN, self._command, env=self._env(), install=INSTALL)
        if not probe or not seen.installed:
            return seen
        try:
            return await self._probe(seen)
        except HandraiseError as error:
            return replace(seen, problem=inert(error.message))
        except TimeoutError:
            problem = f"{seen.program!r} did not answer in {PROBE_PATIENCE:.0f} seconds; check that it runs"
            return replace(seen, problem=problem)

    async def close(self) -> None:
        return

    async def watch(self, asker: HandlingAsker, address: str, *, ready: Callable[[], None] = lambda: None) -> None:
        """`daemon`, the one that a plain `codex` of this user starts, or `unix:///path` of another app-server."""
        path = socket_of(address, environ=self._env())
        relay = Relay(asker, path, handling=self._settings.handling)
        try:
            await relay.follow(ready=ready)
        finally:
            await relay.close()

    async def _probe(self, seen: Capabilities) -> Capabilities:
        """Open a thread that is not kept, in an empty folder, without a turn."""

        async def nobody(id: Id, method: str, params: dict[str, Any]) -> None:
            raise RpcError("handraise only looks", number=METHOD_NOT_FOUND)

        with tempfile.TemporaryDirectory(prefix="handraise-") as folder:
            process = await Process.start([*self._command(), "app-server"], cwd=folder, env=self._env())
            rpc = JsonRpc(process, asked=nobody, told=lambda method, params: None, version=None)
            async with process, listening(rpc.listen()):
                try:
                    async with asyncio.timeout(PROBE_PATIENCE):
                        await shake_hands(rpc)
                        wanted = {"cwd": folder, "ephemeral": True, "approvalsReviewer": "user"}
                        told = await rpc.request("thread/start", {**wanted, "dynamicTools": [dict(QUESTION_TOOL)]})
                        account = await rpc.request("account/read", {"refreshToken": False})
                except PeerGone:
                    raise AgentFailed(f"codex app-server ended ({last_words(process)}); check that it runs") from None
        checked = [*seen.checked, "questions"]  # the tool of ours was taken
        if isinstance(told, dict) and told.get("approvalsReviewer") == "user":
            checked.append("permissions")
        is_out = isinstance(account, dict) and account.get("requiresOpenaiAuth") and not account.get("account")
        problem = "codex is not logged in; run `codex login`" if is_out else None
        return replace(seen, checked=tuple(checked), problem=problem)

    def _command(self) -> tuple[str, ...]:
        """The settings' own, else the program on the PATH."""
        if self._settings.command:
            return self._settings.command
        return (found(self.name, env=self._env(), install=INSTALL),)

    def _env(self, *, session: str | None = None) -> dict[str, str]:
        ours = {} if session is None else {"HANDRAISE_SESSION": session}
        return {**self._settings.environment(without=NOT_INHERITED), **ours}


plugin = Codex
