"""Any agent that speaks ACP (the Agent Client Protocol) on its stdin and stdout: the one that the settings name."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handraise.agents import AgentSettings, Asker, Capabilities, Start
from handraise.agents._programs import found
from handraise.agents.acp.handshake import shake_hands
from handraise.agents.acp.modes import MODES
from handraise.agents.acp.quirks import PRESETS, command_of
from handraise.agents.acp.session import AcpSession
from handraise.agents.acp.versions import VERSIONS
from handraise.errors import AgentFailed, ProcessFailed, SettingsError
from handraise.text.inert import inert
from handraise.transports.process import Process

__all__ = ["Acp", "plugin"]

# Of an agent that started us. It would take itself for a part of that one.
NOT_INHERITED = {"CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_PROJECT_DIR"}
NAME_IT = (
    'name one with `--command "gemini --acp"`, or in handraise.toml as `command` of `[agents.acp]`; one word is enough '
    f"for {', '.join(PRESETS)}"
)


class Acp:
    """One program, and one connection, for each session: the one it was started with, else that of the settings."""

    name = "acp"
    modes = MODES
    versions = VERSIONS
    takes_command = True

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings

    def check(self, start: Start) -> None:
        """Which modes there are is known once the program runs; here only what no program has is refused."""
        self._command(start)
        MODES.check(start.mode)

    async def open(self, asker: Asker, start: Start) -> AcpSession:
        self.check(start)
        opened = await self._start(asker, start)
        await opened.begin()
        return opened

    async def look(self, *, probe: bool = False) -> Capabilities:
        """What an agent can do depends on the program; this is what the protocol has room for."""
        try:
            program = self._program(self._command(None))
            told = await self._probe() if probe else {}
        except (AgentFailed, ProcessFailed, SettingsError) as error:
            return Capabilities(agent=self.name, installed=False, problem=error.message)
        able, info = _mapping(told, "agentCapabilities"), _mapping(told, "agentInfo")
        said = info.get("version")
        resumes = able.get("loadSession") is True or "resume" in _mapping(able, "sessionCapabilities")
        return Capabilities(
            agent=self.name,
            installed=True,
            version=inert(said, keep="")[:100] if isinstance(said, str) else None,
            program=program,
            questions=True,
            permissions=True,
            several_questions=True,
            multi_select=True,
            free_text=True,
            plans=True,
            subagents=True,
            resume=resumes,
            modes=MODES.names,
            checked=("installed", "version", "resume") if told else ("installed",),
        )

    async def close(self) -> None:
        return

    async def _start(self, asker: Asker, start: Start) -> AcpSession:
        command = self._command(start)
        try:
            process = await Process.start(command, cwd=start.cwd, env=self._env(session=start.session))
        except ProcessFailed as error:
            raise AgentFailed(error.message) from error
        return AcpSession(process, command=command, asker=asker, start=start)

    async def _probe(self) -> Mapping[str, Any]:
        """Shake hands with the program, in an empty folder, without a session."""
        command = self._command(None)
        with tempfile.TemporaryDirectory(prefix="handraise-") as folder:
            async with await Process.start(command, cwd=folder, env=self._env()) as process:
                return await shake_hands(process, name=Path(command[0]).name)

    def _command(self, start: Start | None) -> tuple[str, ...]:
        command = (start.command if start is not None else ()) or self._settings.command
        if not command:
            raise SettingsError(f"no program that speaks ACP is known here; {NAME_IT}")
        return command_of(command)

    def _program(self, command: tuple[str, ...]) -> str:
        return found(command[0], env=self._env(), install=f"install it, or {NAME_IT}")

    def _env(self, *, session: str | None = None) -> dict[str, str]:
        ours = {} if session is None else {"HANDRAISE_SESSION": session}
        return {**self._settings.environment(without=NOT_INHERITED), **ours}


def _mapping(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = mapping.get(key)
    return value if isinstance(value, Mapping) else {}


plugin = Acp
