"""What each mode becomes for Claude Code: arguments of the program."""

from __future__ import annotations

import json

from handraise.agents._modes import Modes

__all__ = ["MODES"]

MODES: Modes[tuple[str, ...]] = Modes(
    agent="claude",
    others="it cannot be kept to the working folder",
    describe=lambda flags: f"`claude {' '.join(flags)}`",
    become={
        "default": ("--permission-mode", "default"),
        "accept-edits": ("--permission-mode", "acceptEdits"),
        "bypass": ("--permission-mode", "bypassPermissions"),
        # Otherwise a model decides over commands while it plans, and nobody is asked (2.1.325).
        "plan": ("--permission-mode", "plan", "--settings", json.dumps({"useAutoModeDuringPlan": False})),
        # Without the tools that change something, the servers and the commands that could; nothing is left to a prompt.
        "read-only": (
            *("--permission-mode", "default", "--tools", "Read,Glob,Grep,AskUserQuestion"),
            *("--strict-mcp-config", "--disable-slash-commands"),
        ),
        "full-access": ("--permission-mode", "bypassPermissions"),
    },
)
