"""What an agent may do, in one vocabulary, and what each mode becomes for each agent of ours, in its own words.

The adapters start their agents with what stands here, and the reference page is written from it. Agents from elsewhere
keep their own table and their own `check`.

Two of the words are promises, whoever says yes: in `read-only` nothing can be changed, in `workspace-write` only the
working folder. An agent that cannot be kept to one of them does not have it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from handraise.asks import Mode
from handraise.errors import SettingsError

__all__ = ["MODES", "TABLE", "Becomes", "Rules", "Thread", "check_mode", "modes_of"]

AgentName = Literal["opencode", "claude", "codex", "acp", "amp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of an OpenCode session, in this order. The last one that matches decides, also over its agent's own."""

    agent: str | None = None  # which of its agents takes the turns; None: the one that its configuration names
    first: tuple[tuple[str, str], ...] = ()  # a permission and the action
    own: tuple[str, ...] = ()  # permissions for which the agent's own rules follow again; "*": for all
    granted: bool = False  # what those would ask for is allowed
    asked: tuple[str, ...] = ()  # the same again, but what they would allow is asked for

    def grants(self, permission: str) -> bool:
        """Whether nobody is asked for this. The rules of a session are not those of its subagents; the mode is."""
        return ("*", "allow") in self.first or (self.granted and bool({"*", permission} & set(self.own)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """How a thread of Codex is opened."""

    settings: Mapping[str, Any] = field(default_factory=dict)  # parameters of `thread/start` and `thread/resume`
    plans: bool = False  # its turns are in plan mode

    @property
    def profile(self) -> str | None:
        """The permissions that Codex has to confirm, where the mode is a promise. Servers of MCP tools, which no
        sandbox holds, are left out then."""
        return self.settings.get("permissions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Becomes:
    """One mode: what it means, and what it is for each agent. None: it cannot be kept to that."""

    means: str
    opencode: Rules | None
    claude: tuple[str, ...] | None  # arguments of the program
    codex: Thread | None
    acp: tuple[str, ...] | None  # what programs call a mode of their own that is like it, the first one offered counts
    amp: bool | None  # its setting `amp.dangerouslyAllowAll`


# OpenCode: what changes nothing, and what is harmless while it plans.
READERS = ("read", "glob", "grep", "list", "lsp", "question", "todoread", "todowrite", "skill")
HARMLESS = ("webfetch", "websearch", "external_directory", "doom_loop", "plan_enter", "plan_exit")


def _confined(files: Mapping[str, str]) -> Thread:
    """A thread of Codex that nobody can let out: it may not ask, and its commands never leave the sandbox.

    A rule that a person saved lets a command out of any sandbox but one that denies reading something, whatever it is
    (Codex 0.166.0): so a place that does not exist is denied. Network is off in a profile that does not name it.
    """
    config = {
        "permissions.handraise.filesystem": {":root": "read", **files, "/nonexistent/handraise": "deny"},
        "features.apps": False,
        "features.plugins": False,
    }
    return Thread(settings={"approvalPolicy": "never", "permissions": "handraise", "config": config})


TABLE: Mapping[Mode, Becomes] = {
    "default": Becomes(
        means="the agent asks as it does by itself",
        opencode=Rules(),
        claude=("--permission-mode", "default"),
        codex=Thread(),
        acp=("default",),
        amp=False,
    ),
    "accept-edits": Becomes(
        means="files in the working folder are changed without asking",
        opencode=Rules(own=("edit",), granted=True),
        claude=("--permission-mode", "acceptEdits"),
        codex=Thread(settings={"sandbox": "workspace-write", "approvalPolicy": "on-request"}),
        acp=("acceptEdits", "autoEdit"),
        amp=None,
    ),
    "bypass": Becomes(
        means="no permission is asked for; questions still are",
        opencode=Rules(own=("*",), granted=True),
        claude=("--permission-mode", "bypassPermissions"),
        codex=Thread(settings={"sandbox": "danger-full-access", "approvalPolicy": "never"}),
        acp=("bypassPermissions", "yolo"),
        amp=True,
    ),
    "plan": Becomes(
        means="it looks and plans, and asks before it changes anything",
        # Its own agent lets a shell do anything, and so do its subagents, which have rules of their own (1.18.33).
        opencode=Rules(
            agent="plan", first=(("*", "ask"), ("task", "deny")), own=(*READERS, *HARMLESS), asked=("edit",)
        ),
        # Otherwise a model decides over commands while it plans, and nobody is asked (2.1.325).
        claude=("--permission-mode", "plan", "--settings", json.dumps({"useAutoModeDuringPlan": False})),
        codex=Thread(settings={"sandbox": "read-only", "approvalPolicy": "on-request"}, plans=True),
        acp=("plan",),
        amp=None,
    ),
    "read-only": Becomes(
        means="nothing can be changed",
        opencode=Rules(first=(("*", "deny"),), own=READERS),
        # Without the tools that change something, the servers and the commands that could; nothing is left to a prompt.
        claude=(
            *("--permission-mode", "default", "--tools", "Read,Glob,Grep,AskUserQuestion"),
            *("--strict-mcp-config", "--disable-slash-commands"),
        ),
        codex=_confined({}),
        acp=None,
        amp=None,
    ),
    "workspace-write": Becomes(
        means="only the working folder can be changed",
        opencode=None,
        claude=None,
        codex=_confined({":workspace_roots": "write"}),
        acp=None,
        amp=None,
    ),
    "full-access": Becomes(
        means="everything can be changed, and nothing is asked for",
        opencode=Rules(first=(("*", "allow"),)),
        claude=("--permission-mode", "bypassPermissions"),
        codex=Thread(settings={"sandbox": "danger-full-access", "approvalPolicy": "never"}),
        acp=("fullAccess", "bypassPermissions", "yolo"),
        amp=True,
    ),
}
MODES: Mapping[str, str] = {mode: becomes.means for mode, becomes in TABLE.items()}
# Why an agent does not have the others.
REASONS: Mapping[str, str] = {
    "opencode": "its shell is not confined to the working folder",
    "claude": "it cannot be kept to the working folder",
    "acp": "what a program calls so may still ask, and do it once somebody says yes",
    "amp": "its commands cannot be kept from changing things",
}


def modes_of(agent: AgentName) -> tuple[str, ...]:
    """Those that an agent of ours has."""
    return tuple(mode for mode, becomes in TABLE.items() if getattr(becomes, agent) is not None)


def check_mode(agent: AgentName, mode: str | None) -> None:
    """Raises SettingsError where an agent of ours cannot be kept to that mode."""
    has = modes_of(agent)
    if mode is None or mode in has:
        return
    why = f": {REASONS[agent]}" if mode in MODES else ""
    raise SettingsError(f"{agent} has no mode {mode!r}{why}; choose one of: {', '.join(has)}")
