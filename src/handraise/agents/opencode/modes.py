"""What each mode becomes for OpenCode: the rules of a session."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from handraise.agents._modes import Modes

__all__ = ["MODES", "Rules"]

# What changes nothing, and what is harmless while it plans.
READERS = ("read", "glob", "grep", "list", "lsp", "question", "todoread", "todowrite", "skill")
HARMLESS = ("webfetch", "websearch", "external_directory", "doom_loop", "plan_enter", "plan_exit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a session, in this order. The last one that matches decides, also over its agent's own."""

    agent: str | None = None  # which of its agents takes the turns; None: the one that its configuration names
    first: tuple[tuple[str, str], ...] = ()  # a permission and the action
    own: tuple[str, ...] = ()  # permissions for which the agent's own rules follow again; "*": for all
    granted: bool = False  # what those would ask for is allowed
    asked: tuple[str, ...] = ()  # the same again, but what they would allow is asked for

    def grants(self, permission: str) -> bool:
        """Whether nobody is asked for this. The rules of a session are not those of its subagents; the mode is."""
        return ("*", "allow") in self.first or (self.granted and bool({"*", permission} & set(self.own)))


def _describe(rules: Rules) -> str:
    parts = [f"its agent `{rules.agent}`"] if rules.agent is not None else []
    parts += [f'`"{permission}": "{action}"`' for permission, action in rules.first]
    if rules.own:
        which = "all its own rules" if "*" in rules.own else f"its own rules for {_quote(rules.own)}"
        parts.append(f"{which}, where *ask* becomes *allow*" if rules.granted else which)
    if rules.asked:
        parts.append(f"its own rules for {_quote(rules.asked)}, where *allow* becomes *ask*")
    return "; then ".join(parts) or "its own configuration"


def _quote(permissions: Iterable[str]) -> str:
    return ", ".join(f"`{json.dumps(each)}`" for each in permissions)


MODES = Modes(
    agent="opencode",
    others="its shell is not confined to the working folder",
    describe=_describe,
    become={
        "default": Rules(),
        "accept-edits": Rules(own=("edit",), granted=True),
        "bypass": Rules(own=("*",), granted=True),
        # Its own agent lets a shell do anything, and so do its subagents, which have rules of their own (1.18.33).
        "plan": Rules(agent="plan", first=(("*", "ask"), ("task", "deny")), own=(*READERS, *HARMLESS), asked=("edit",)),
        "read-only": Rules(first=(("*", "deny"),), own=READERS),
        "full-access": Rules(first=(("*", "allow"),)),
    },
)
