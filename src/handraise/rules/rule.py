"""One rule that decides permissions, as it was written and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["WIDE", "Action", "Condition", "Context", "Rule"]

Action: TypeAlias = Literal["allow", "reject", "ask", "delegate"]
Condition: TypeAlias = tuple[str | bool, ...]  # any of these
Context: TypeAlias = Literal["thread", "subagent"]

WIDE: frozenset[Action] = frozenset({"reject", "ask"})  # they match also what only looks like their case


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    tool: str  # a pattern for the tool's name: the common one or the agent's own
    action: Action
    matches: Mapping[str, Condition] = field(default_factory=dict)  # by argument; all of them have to hold
    agent: str | None = None  # a pattern too
    context: Context | None = None
    message: str | None = None  # of a rejection, for the agent
    to: tuple[str, ...] = ()  # the program that decides, with its arguments
    timeout: float | None = None  # seconds that it has
    session: str | None = None  # only for this session and its subagents: what a person said `always` to
    source: str = ""  # as in `handraise.toml:12`

    def __str__(self) -> str:
        conditions = [f"{name} = {_shown(condition)}" for name, condition in self.matches.items()]
        about = [f"agent {self.agent}"] if self.agent else []
        about += [self.context] if self.context else []
        about += [f"session {self.session}"] if self.session else []
        said = ", ".join([self.tool, *about, *conditions])
        return f"{said}: {self.action}" + (f" {' '.join(self.to)}" if self.to else "")


def _shown(condition: Condition) -> str:
    return " or ".join(str(each).lower() if isinstance(each, bool) else repr(each) for each in condition) or "[]"
