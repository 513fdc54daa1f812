"""What each mode becomes for Codex: how a thread is opened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handraise.agents._modes import Modes

__all__ = ["MODES", "Thread"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """How a thread is opened."""

    settings: Mapping[str, Any] = field(default_factory=dict)  # parameters of `thread/start` and `thread/resume`
    plans: bool = False  # its turns are in plan mode

    @property
    def profile(self) -> str | None:
        """The permissions that Codex has to confirm, where the mode is a promise. Servers of MCP tools, which no
        sandbox holds, are left out then."""
        return self.settings.get("permissions")


def _confine(files: Mapping[str, str]) -> Thread:
    """A thread that nobody can let out: it may not ask, and its commands never leave the sandbox.

    A rule that a person saved lets a command out of any sandbox but one that denies reading something, whatever it is
    (0.166.0): so a place that does not exist is denied. Network is off in a profile that does not name it.
    """
    config = {
        "permissions.handraise.filesystem": {":root": "read", **files, "/nonexistent/handraise": "deny"},
        "features.apps": False,
        "features.plugins": False,
    }
    return Thread(settings={"approvalPolicy": "never", "permissions": "handraise", "config": config})


def _describe(thread: Thread) -> str:
    parts = ["its plan mode"] if thread.plans else []
    parts += [f"`{name} = {json.dumps(value)}`" for name, value in thread.settings.items() if name != "config"]
    parts += [f"`{name} = {json.dumps(value)}`" for name, value in thread.settings.get("config", {}).items()]
    parts += ["no servers of MCP tools"] if thread.profile is not None else []
    return ", ".join(parts) or "its own configuration"


MODES = Modes(
    agent="codex",
    describe=_describe,
    become={
        "default": Thread(),
        "accept-edits": Thread(settings={"sandbox": "workspace-write", "approvalPolicy": "on-request"}),
        "bypass": Thread(settings={"sandbox": "danger-full-access", "approvalPolicy": "never"}),
        "plan": Thread(settings={"sandbox": "read-only", "approvalPolicy": "on-request"}, plans=True),
        "read-only": _confine({}),
        "workspace-write": _confine({":workspace_roots": "write"}),
        "full-access": Thread(settings={"sandbox": "danger-full-access", "approvalPolicy": "never"}),
    },
)
