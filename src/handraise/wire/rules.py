"""Rules for permissions, and what they would decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from handraise.wire.fields import Doc, Limits, Name

Pattern = Annotated[str, Limits(max_length=20_000)]
PatternOrFlag = Pattern | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleBody:
    """What `POST /v1/rules` takes: a rule as in `[[rules]]` of a settings file."""

    tool: Annotated[str, Limits(min_length=1, max_length=20_000)]
    action: Literal["allow", "reject", "ask", "delegate"]
    matches: Mapping[str, PatternOrFlag | tuple[PatternOrFlag, ...]] = field(default_factory=dict)
    agent: Name | None = None
    context: Literal["thread", "subagent"] | None = None
    message: Annotated[str, Limits(min_length=1, max_length=20_000)] | None = None
    to: tuple[Annotated[str, Limits(min_length=1, max_length=20_000)], ...] = ()
    timeout: Annotated[float, Limits(gt=0, le=300)] | None = None
    first: bool = False  # before the others that are kept here, rather than behind them

    EXAMPLE: ClassVar[Any] = {"tool": "shell", "action": "allow", "matches": {"command": ["git status*", "git diff*"]}}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTestBody:
    """What `POST /v1/rules/test` takes: a call as an agent might make it."""

    tool: Name
    arguments: Mapping[str, Any] = field(default_factory=dict)
    agent: Name = "any"
    cwd: Annotated[str, Limits(max_length=20_000)] | None = None
    context: Literal["thread", "subagent"] = "thread"

    EXAMPLE: ClassVar[Any] = {"tool": "shell", "arguments": {"command": "git push"}, "agent": "codex"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    id: Annotated[str | None, Doc("Of one that is kept at the desk.")] = None
    source: Annotated[str, Doc("Where it stands, as in `handraise.toml:12` or `desk:1f3a9c2e`.")]
    tool: str
    action: Literal["allow", "reject", "ask", "delegate"]
    matches: Annotated[
        Mapping[str, Any] | None, Doc("By argument: a pattern, a list of which any has to fit, or a flag.")
    ] = None
    agent: str | None = None
    context: Literal["thread", "subagent"] | None = None
    message: str | None = None
    to: tuple[str, ...] | None = None
    timeout: float | None = None
    session: Annotated[
        str | None, Doc("It holds for this session and its subagents: somebody said `always` there.")
    ] = None
    by: Annotated[str | None, Doc("Who said that.")] = None
    never: Annotated[str | None, Doc("Why it can never match.")] = None
    warnings: Annotated[tuple[str, ...] | None, Doc("What it allows that its author may not see.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    rules: tuple[Rule, ...]
    untrusted: tuple[Rule, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTest:
    action: Literal["allow", "reject", "ask", "delegate"]
    rule: Rule | None
    why: tuple[str, ...]
    problems: tuple[str, ...]
