"""Codex: sessions that we start, over `codex app-server`."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

from handraise.agents import AgentSettings, Asker, Capabilities, Start
from handraise.agents.codex.session import CodexSession, shake_hands
from handraise.agents.codex.translate import QUESTION_TOOL
from handraise.errors import AgentFailed, HandraiseError, ProcessFailed, SettingsError
from handraise.inert import inert
from handraise.transports.jsonrpc import METHOD_NOT_FOUND, Id, JsonRpc, PeerGone, RpcError
from handraise.transports.process import Process

__all__ = ["Codex", "plugin"]

VERSION_PATIENCE = 20.0  # seconds
PROBE_PATIENCE = 60.0
INSTALL = "install Codex (`npm install -g @openai/codex`), or give its full path in `[agents.codex] command`"
# Of a Codex that started us. It would take itself for a part of that one.
NOT_INHERITED = {
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "CODEX_THREAD_ID",
    "CODEX_TOOL_CALL_ID",
    "CODEX_INTERNAL_ORIGINATOR_OVERRIDE",
}
# Its sandbox for the working folder also lets commands write to temporary folders, and to what the configuration adds.
ONLY_THE_FOLDER = {
    "sandbox_workspace_write.exclude_slash_tmp": True,
    "sandbox_workspace_write.exclude_tmpdir_env_var": True,
    "sandbox_workspace_write.writable_roots": [],
}
# What a thread is opened with. Codex has two means: what its sandbox lets a command do, and when it asks for more.
MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "accept-edits": {"sandbox": "workspace-write", "approvalPolicy": "on-request"},
    "bypass": {"sandbox": "danger-full-access", "approvalPolicy": "never"},
    "plan": {"sandbox": "read-only", "approvalPolicy": "on-request"},
    "read-only": {"sandbox": "read-only", "approvalPolicy": "on-request"},
    "workspace-write": {"sandbox": "workspace-write", "approvalPolicy": "on-request", "config": ONLY_THE_FOLDER},
    "full-access": {"sandbox": "danger-full-access", "approvalPolicy": "never"},
}


class Codex:
    """One `codex app-server` for each session; nothing outlives it but the thread that Codex writes down by itself."""

    name = "codex"

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings

    def check(self, start: Start) -> None:
        if start.mode is not None and start.mode not in MODES:
            raise SettingsError(f"codex has no mode {start.mode!r}; choose one of: {', '.join(MODES)}")

    async def open(self, asker: Asker, start: Start) -> CodexSession:
        self.check(start)
        try:
            process = await Process.start(
                [*self._command(), "app-server"], cwd=start.cwd, env=self._env(session=start.session)
            )
        except ProcessFailed as error:
            raise AgentFailed(error.message) from error
        settings = MODES[start.mode] if start.mode is not None else {}
        session = CodexSession(process, asker=asker, start=start, settings=settings, plans=start.mode == "plan")
        await session.begin()
        return session

    async def look(self, *, probe: bool = False) -> Capabilities:
        try:
            command = self._command()
            version = await self._version(command)
        except (AgentFailed, ProcessFailed) as error:
            return Capabilities(agent=self.name, installed=False, problem=error.message)
        checked: tuple[str, ...] = ("installed", "version")
        problem = None
        if probe:
            try:
                more, problem = await self._probe(command)
                checked += more
            except HandraiseError as error:
                problem = inert(error.message)
            except TimeoutError:
                problem = f"{command[0]!r} did not answer in {PROBE_PATIENCE:.0f} seconds; check that it runs"
        return Capabilities(
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
            modes=tuple(MODES),
            checked=checked,
            problem=problem,
        )

    async def close(self) -> None:
        return

    async def _version(self, command: tuple[str, ...]) -> str | None:
        async with await Process.start([*command, "--version"], env=self._env()) as process:
            try:
                async with asyncio.timeout(VERSION_PATIENCE):
                    said = [line async for line in process.lines()]
                    code = await process.wait()
            except TimeoutError:
                raise AgentFailed(f"{command[0]!r} did not say its version; check that it runs") from None
            text = b"\n".join(said).decode(errors="replace")
            found = re.search(r"\d+(?:\.\d+)+", text)
            if code != 0 or found is None:
                words = inert((process.stderr_tail or text).strip()[-300:])
                raise AgentFailed(f"{command[0]!r} did not say its version ({words or f'exit code {code}'}); {INSTALL}")
            return found[0]

    async def _probe(self, command: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
        """Open a thread that is not kept, in an empty folder, without a turn. What was seen, and what is missing."""

        async def nobody(id: Id, method: str, params: dict[str, Any]) -> None:
            raise RpcError("handraise only looks", number=METHOD_NOT_FOUND)

        with tempfile.TemporaryDirectory(prefix="handraise-") as folder:
            process = await Process.start([*command, "app-server"], cwd=folder, env=self._env())
            rpc = JsonRpc(process, asked=nobody, told=lambda method, params: None, version=None)
            async with process, asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(rpc.listen())
                try:
                    async with asyncio.timeout(PROBE_PATIENCE):
                        await shake_hands(rpc)
                        wanted = {"cwd": folder, "ephemeral": True, "approvalsReviewer": "user"}
                        told = await rpc.request("thread/start", {**wanted, "dynamicTools": [dict(QUESTION_TOOL)]})
                        account = await rpc.request("account/read", {"refreshToken": False})
                except PeerGone:
                    words = inert(process.stderr_tail.strip()[-300:])
                    raise AgentFailed(f"codex app-server ended ({words}); check that it runs") from None
                finally:
                    listening.cancel()
        checked = ["questions"]  # the tool of ours was taken
        if isinstance(told, dict) and told.get("approvalsReviewer") == "user":
            checked.append("permissions")
        is_out = isinstance(account, dict) and account.get("requiresOpenaiAuth") and not account.get("account")
        return tuple(checked), "codex is not logged in; run `codex login`" if is_out else None

    def _command(self) -> tuple[str, ...]:
        """The settings' own, else the program on the PATH."""
        if self._settings.command:
            return self._settings.command
        if found := shutil.which("codex", path=self._env().get("PATH")):
            return (found,)
        raise AgentFailed(f"there is no program `codex`; {INSTALL}")

    def _env(self, *, session: str | None = None) -> dict[str, str]:
        ours = {} if session is None else {"HANDRAISE_SESSION": session}
        return {**self._settings.environment(without=NOT_INHERITED), **ours}


plugin = Codex
