"""The agents that a desk can start, and what each can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from handraise.wire.fields import Doc


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    agent: str
    installed: bool
    version: str | None
    driven: Annotated[str | None, Doc("The version that was run with this release of handraise, if any.")]
    program: Annotated[str | None, Doc("Where it is.")]
    questions: bool
    permissions: bool
    several_questions: bool
    multi_select: bool
    free_text: bool
    notes: bool
    edits: bool
    plans: bool
    subagents: bool
    resume: bool
    attach: bool
    modes: tuple[str, ...]
    checked: Annotated[tuple[str, ...], Doc("The fields that were asked of the running program.")]
    problem: Annotated[str | None, Doc("Why it cannot be used here, and what to do.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    agents: tuple[Capabilities, ...]
