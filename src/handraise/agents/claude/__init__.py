"""Claude Code: sessions that we start. The hooks of a person's own terminal are in `hooks.py`."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

from starlette.routing import Route

from handraise.agents import AgentSettings, Asker, Capabilities, Edit, Left, Start
from handraise.agents.claude.control import Control
from handraise.agents.claude.hooks import Terminals
from handraise.agents.claude.session import HOOKS, ClaudeSession
from handraise.agents.claude.settings import edits
from handraise.errors import AgentFailed, ProcessFailed, SettingsError
from handraise.inert import inert
from handraise.transports.process import Process

__all__ = ["Claude", "plugin"]

STREAM = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
VERSION_PATIENCE = 20.0  # seconds
PROBE_PATIENCE = 60.0
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
MODES: Mapping[str, tuple[str, ...]] = {
    "default": ("--permission-mode", "default"),
    "accept-edits": ("--permission-mode", "acceptEdits"),
    "bypass": ("--permission-mode", "bypassPermissions"),
    "plan": ("--permission-mode", "plan"),
    # Without the tools that change something, the servers and the commands that could; nothing is left to a prompt.
    "read-only": (
        "--permission-mode",
        "default",
        "--tools",
        "Read,Glob,Grep,AskUserQuestion",
        "--strict-mcp-config",
        "--disable-slash-commands",
    ),
    "full-access": ("--permission-mode", "bypassPermissions"),
}
INSTALL = "install Claude Code (`npm install -g @anthropic-ai/claude-code`), or `pip install 'handraise[claude]'`"


class Claude:
    """One program for each session; nothing outlives it but the transcript that Claude writes by itself."""

    name = "claude"

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._terminals = Terminals()

    def check(self, start: Start) -> None:
        if start.mode is not None and start.mode not in MODES:
            raise SettingsError(
                f"claude has no mode {start.mode!r}: it cannot be kept to the working folder; choose one of: "
                f"{', '.join(MODES)}"
            )

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
        arguments += MODES[start.mode] if start.mode is not None else ()
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
        try:
            command = self._command()
            version = await self._version(command)
        except (AgentFailed, ProcessFailed) as error:
            return Capabilities(agent=self.name, installed=False, problem=error.message)
        checked: tuple[str, ...] = ("installed", "version")
        problem = None
        if probe:
            try:
                version, checked = await self._probe(version)
            except (AgentFailed, ProcessFailed) as error:
                problem = error.message
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
            edits=True,
            plans=True,
            subagents=True,
            resume=True,
            attach=True,
            modes=tuple(MODES),
            checked=checked,
            problem=problem,
        )

    async def close(self) -> None:
        return

    def routes(self) -> Sequence[Route]:
        return self._terminals.routes()

    async def retire(self, desk: Left) -> None:
        await self._terminals.retire(desk)

    def edits(self, *, url: str, token: str) -> Sequence[Edit]:
        return edits(url=url, token=token, environ=self._env())

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

    async def _probe(self, version: str | None) -> tuple[str | None, tuple[str, ...]]:
        """Shake hands with the program, in an empty folder, without a turn."""
        with tempfile.TemporaryDirectory(prefix="handraise-") as folder:
            process = await Process.start(
                [*self._command(), *STREAM, "--permission-prompt-tool", "stdio"],
                cwd=folder,
                env=self._env(),
            )
            control = Control(process)
            async with process, asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(control.listen(lambda message: None))
                try:
                    told = await control.request("initialize", timeout=PROBE_PATIENCE, hooks=HOOKS)
                finally:
                    listening.cancel()
        checked = ["installed", "version"]
        if told.get("hooks_applied") is True:  # where questions and plans are held
            checked += ["questions", "permissions", "plans"]
        said = told.get("claude_code_version")
        version = said if isinstance(said, str) else version
        if version is not None and tuple(map(int, version.split(".")[:3])) >= DEFERS_SINCE:
            checked.append("resume")
        return version, tuple(checked)

    def _command(self) -> tuple[str, ...]:
        """The settings' own, else the program on the PATH, else the one that the SDK's package brings along."""
        if self._settings.command:
            return self._settings.command
        if found := shutil.which("claude", path=self._env().get("PATH")):
            return (found,)
        package = find_spec("claude_agent_sdk")
        if package is not None and package.origin is not None:
            bundled = Path(package.origin).parent / "_bundled" / "claude"
            if bundled.is_file():
                return (str(bundled),)
        raise AgentFailed(f"there is no program `claude`; {INSTALL}")

    def _env(self, *, session: str | None = None) -> dict[str, str]:
        ours = {"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}
        if session is not None:
            ours["HANDRAISE_SESSION"] = session  # hooks of an attached terminal see by it that this one is ours already
        return {**self._settings.environment(without=NOT_INHERITED), **ours}


plugin = Claude
