"""Amp: a person's own terminal, by the delegate of its permissions, and sessions that we start.

`translate.py` is the mapping, `delegate.py` the program that Amp runs, `attach.py` what it calls, `settings.py` what is
written into a person's files, `session.py` runs turns. Questions come by the tool of our MCP server: Amp has none.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from starlette.routing import Route

from handraise.agents import AgentSettings, Asker, Capabilities, Edit, Left, Start
from handraise.agents._programs import found, looked_at
from handraise.agents.amp.attach import Terminals
from handraise.agents.amp.modes import MODES
from handraise.agents.amp.session import DOOR, AmpSession
from handraise.agents.amp.settings import DELEGATE, MCP, SERVER, delegate, edits, for_session, settings_file
from handraise.agents.amp.versions import VERSIONS
from handraise.errors import AgentFailed
from handraise.transports.process import Process

__all__ = ["Amp", "plugin"]

INSTALL = "install Amp (`npm install -g @ampcode/cli`), or give its full path in `[agents.amp] command`"
STREAM = ("-x", "--stream-json", "--stream-json-input")
NOT_INHERITED = {"AGENT", "AGENT_TOOL_NAME", "AMP_THREAD_ID"}  # of an Amp that started us

KNOWN = Capabilities(
    agent="amp",
    installed=True,
    questions=True,  # by our MCP server
    permissions=True,
    several_questions=True,
    multi_select=True,
    free_text=True,
    notes=True,
    resume=True,
    attach=True,
    modes=MODES.names,
)


class Amp:
    """One program for each session; nothing outlives it but the thread, which Amp keeps at its server."""

    name = "amp"
    modes = MODES
    versions = VERSIONS
    how_to_answer = (
        "Answer there: the terminal only waits meanwhile. Without a desk Amp asks in the terminal, for every call that "
        "no rule of yours decides."
    )

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._terminals = Terminals()

    def check(self, start: Start) -> None:
        MODES.check(start.mode)

    async def open(self, asker: Asker, start: Start) -> AmpSession:
        self.check(start)
        command = self._command()
        folder = Path(tempfile.mkdtemp(prefix="handraise-amp-"))  # for us alone; a socket's path has to be short
        try:
            return await self._open(asker, start, folder=folder, command=command)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    async def _open(self, asker: Asker, start: Start, *, folder: Path, command: tuple[str, ...]) -> AmpSession:
        file = self._write(folder, start)
        env = {**self._env(), "HANDRAISE_SESSION": start.session}

        async def launch(thread: str | None) -> Process:
            going_on = ("threads", "continue", thread) if thread is not None else ()
            words = [*command, *going_on, *STREAM, "--settings-file", str(file), "--no-archive-after-execute"]
            return await Process.start(words, cwd=start.cwd, env=env)

        session = AmpSession(asker=asker, start=start, folder=folder, launch=launch)
        await session.begin()
        return session

    def _write(self, folder: Path, start: Start) -> Path:
        """The settings of a session, with a delegate of its own. A person's own settings stay as they are."""
        program = folder / DELEGATE
        program.write_text(delegate(url=f"unix:{folder / DOOR}", token="", attended=False))
        program.chmod(0o700)
        if not os.access(program, os.X_OK):
            raise AgentFailed(f"no program may be run in {folder.parent}; set TMPDIR to a folder where that is allowed")
        own = settings_file(self._env())
        before = own.read_bytes() if own.is_file() else None
        settings = for_session(before, path=own, program=program, allow_all=MODES.of(start.mode) or False)
        servers = settings.get("amp.mcpServers")
        servers = dict(servers) if isinstance(servers, dict) else {}
        if start.handling.question_policy != "reject":
            env = {"HANDRAISE_HOME": str(self._settings.home)}
            arguments = [*MCP, "--session", start.session]
            servers[SERVER] = {"command": sys.executable, "args": arguments, "env": env}
        file = folder / "settings.json"
        file.write_text(json.dumps({**settings, "amp.mcpServers": servers}, indent=2))
        file.chmod(0o600)
        return file

    async def look(self, *, probe: bool = False) -> Capabilities:
        return await looked_at(KNOWN, self._command, env=self._env(), install=INSTALL)

    async def close(self) -> None:
        return

    def routes(self) -> Sequence[Route]:
        return self._terminals.routes()

    async def retire(self, desk: Left) -> None:
        await self._terminals.retire(desk)

    def edits(self, *, url: str, token: str) -> Sequence[Edit]:
        return edits(url=url, token=token, environ=self._env(), home=self._settings.home)

    def _command(self) -> tuple[str, ...]:
        """The settings' own, else the program on the PATH."""
        return self._settings.command or (found("amp", env=self._env(), install=INSTALL),)

    def _env(self) -> dict[str, str]:
        return self._settings.environment(without=NOT_INHERITED)


plugin = Amp
