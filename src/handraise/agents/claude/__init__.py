"""Claude Code: sessions that we start. The hooks of a person's own terminal are in `hooks.py`."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

from starlette.routing import Route

from handraise.agents import AgentSettings, Asker, Capabilities, Edit, Left, Start
from handraise.agents._programs import found, listening, looked_at
from handraise.agents.claude.control import Control
from handraise.agents.claude.hooks import Terminals
from handraise.agents.claude.modes import MODES
from handraise.agents.claude.session import HOOKS, ClaudeSession
from handraise.agents.claude.settings import edits
from handraise.agents.claude.versions import VERSIONS
from handraise.errors import AgentFailed, ProcessFailed
from handraise.transports.process import Process

__all__ = ["Claude", "plugin"]

STREAM = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
PROBE_PATIENCE = 60.0  # seconds
DEFERS_SINCE = (2, 1, 89)  # as the vendor's documents say; before, a session only goes on by a prompt
NOT_FOUND = "No conversation found"  # what it says when it does not know a session
# Of a Claude that started us. It would take itself for a part of that one.
NOT_INHERITED = {
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_PID",
    "CLAUDE_PROJECT_DIR",
}
INSTALL = "install Claude Code (`npm install -g @anthropic-ai/claude-code`), or `pip install 'handraise[claude]'`"

KNOWN = Capabilities(
    agent="claude",
    installed=True,
    questions=True,
    permissions=True,
    several_questions=True,
    multi_select=True,
    free_text=True,
    notes=True,
    edits=True,
    plans=True,
    subagents=True,
    resume=True,
    attach=True,
    modes=MODES.names,
)


class Claude:
    """One program for each session; nothing outlives it but the transcript that Claude writes by itself."""

    name = "claude"
    modes = MODES
    versions = VERSIONS

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._terminals = Terminals()

    def check(self, start: Start) -> None:
        MODES.check(start.mode)

    async def open(self, asker: Asker, start: Start) -> ClaudeSession:
        self.check(start)
        cut = start.cut
        if cut is None:
            return await self._open(asker, start, session=str(uuid4()))
        session = str(cut.handle["session"])
        try:
            return await self._open(asker, start, session=session, resume=True)
        except AgentFailed as error:
            # It writes a conversation down a moment after it began, so one that was killed early is new to it.
            if NOT_FOUND not in error.message or cut.handle.get("turns"):
                raise
            return await self._open(asker, start, session=session)

    async def _open(self, asker: Asker, start: Start, *, session: str, resume: bool = False) -> ClaudeSession:
        arguments = [*STREAM, "--permission-prompt-tool", "stdio", "--resume" if resume else "--session-id", session]
        arguments += MODES.of(start.mode) or ()
        if start.handling.question_policy == "reject":
            arguments += ("--disallowedTools", "AskUserQuestion")
        try:
            process = await Process.start(
                [*self._command(), *arguments], cwd=start.cwd, env=self._env(session=start.session)
            )
        except ProcessFailed as error:
            raise AgentFailed(error.message) from error
        opened = ClaudeSession(process, asker=asker, start=start, session=session, is_new=not resume)
        await opened.begin()
        return opened

    async def look(self, *, probe: bool = False) -> Capabilities:
        seen = await looked_at(KNOWN, self._command, env=self._env(), install=INSTALL)
        if not probe or not seen.installed:
            return seen
        try:
            return await self._probe(seen)
        except (AgentFailed, ProcessFailed) as error:
            return replace(seen, problem=error.message)

    async def close(self) -> None:
        return

    def routes(self) -> Sequence[Route]:
        return self._terminals.routes()

    async def retire(self, desk: Left) -> None:
        await self._terminals.retire(desk)

    def edits(self, *, url: str, token: str) -> Sequence[Edit]:
        return edits(url=url, token=token, environ=self._env())

    async def _probe(self, seen: Capabilities) -> Capabilities:
        """Shake hands with the program, in an empty folder, without a turn."""
        with tempfile.TemporaryDirectory(prefix="handraise-") as folder:
            process = await Process.start(
                [*self._command(), *STREAM, "--permission-prompt-tool", "stdio"],
                cwd=folder,
                env=self._env(),
            )
            control = Control(process)
            async with process, listening(control.listen(lambda message: None)):
                told = await control.request("initialize", timeout=PROBE_PATIENCE, hooks=HOOKS)
        checked = list(seen.checked)
        if told.get("hooks_applied") is True:  # where questions and plans are held
            checked += ["questions", "permissions", "plans"]
        said = told.get("claude_code_version")
        version = said if isinstance(said, str) else seen.version or ""
        if tuple(map(int, re.findall(r"\d+", version)[:3])) >= DEFERS_SINCE:
            checked.append("resume")
        return replace(seen, version=version, checked=tuple(checked))

    def _command(self) -> tuple[str, ...]:
        """The settings' own, else the program on the PATH, else the one that the SDK's package brings along."""
        if self._settings.command:
            return self._settings.command
        try:
            return (found(self.name, env=self._env(), install=INSTALL),)
        except AgentFailed:
            package = find_spec("claude_agent_sdk")
            bundled = Path(package.origin).parent / "_bundled" / "claude" if package and package.origin else None
            if bundled is None or not bundled.is_file():
                raise
            return (str(bundled),)

    def _env(self, *, session: str | None = None) -> dict[str, str]:
        ours = {"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}
        if session is not None:
            ours["HANDRAISE_SESSION"] = session  # hooks of an attached terminal see by it that this one is ours already
        return {**self._settings.environment(without=NOT_INHERITED), **ours}


plugin = Claude
