"""A workflow as plain data, and the door to the code behind it: all that the desk, the worker and the commands know.

What crosses the door is JSON. The author's code describes itself, checks values with the author's types, fills texts
and runs functions; it never sees the journal, the database or a secret of the desk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from handraise.asks import Handling, Mode

__all__ = [
    "INPUT",
    "RUN",
    "AgentStep",
    "Author",
    "Authors",
    "CheckpointStep",
    "DoesNotFit",
    "Flow",
    "FunctionStep",
    "IfCut",
    "Parallel",
    "Problem",
    "ShellStep",
    "Step",
    "StepFailed",
    "is_name",
]

IfCut: TypeAlias = Literal["ask", "rerun", "fail"]
Problem: TypeAlias = Mapping[str, str]  # `at`, the place in the value, and `problem`, a sentence

INPUT = "input"  # the name of what the run was started with
RUN = "run"  # the name of its id
MOST_PROBLEMS = 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class StepFailed(Exception):
    """Why, for people."""


class DoesNotFit(Exception):
    """What the author's type has against a value."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(f"{problems[0]['at'] or 'it'}: {problems[0]['problem']}")
        self.problems = list(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    id: str
    where: str  # the file and line it was written in
    schema: Mapping[str, Any] | None = None  # of what it gives; None where its type cannot be described
    is_text: bool = False  # it gives text as it is
    timeout: float | None = None  # seconds
    retries: int = 0
    backoff: float = 1.0  # seconds before the first retry; twice as long before each one after


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStep(_Common):
    """An agent is told something, may ask, and says something in the end."""

    prompt: str
    agent: str
    handling: Handling
    mode: Mode | None = None
    cwd: str | None = None
    worktree: bool = False  # in a git worktree of its own
    command: tuple[str, ...] = ()
    stale_after: float | None = None
    repairs: int = 2  # how often it is told what is wrong with its answer
    kind: Literal["agent"] = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStep(_Common):
    """The run waits until a person gives what fits."""

    input: str = ""  # what they are shown
    kind: Literal["checkpoint"] = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellStep(_Common):
    command: str
    cwd: str | None = None
    check: bool = True  # a code other than 0 fails the step
    if_cut: IfCut = "ask"  # it may have run already, when the process died in the middle
    kind: Literal["shell"] = "shell"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionStep(_Common):
    """A function of the author's. Its parameters are named like the steps whose outputs it takes."""

    takes: tuple[str, ...]
    if_cut: IfCut = "rerun"
    kind: Literal["function"] = "function"


Step: TypeAlias = AgentStep | CheckpointStep | ShellStep | FunctionStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Branches that run at the same time, each one step after the other."""

    branches: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Flow:
    """A workflow without its code."""

    name: str
    where: str
    parts: tuple[Step | Parallel, ...]
    description: str = ""
    schema: Mapping[str, Any] | None = None  # of its input

    @cached_property
    def steps(self) -> Mapping[str, Step]:
        """Every step by its id, in the order it is written."""
        return {step.id: step for part in self.parts for step in _steps_of(part)}

    @cached_property
    def outline(self) -> list[dict[str, Any]]:
        """What stands after what and beside what, as JSON: a step is `id` and `kind`, a parallel its `branches`."""
        return [
            {"branches": [[_named(step) for step in branch] for branch in part.branches]}
            if isinstance(part, Parallel)
            else _named(part)
            for part in self.parts
        ]

    def check(self) -> Flow:
        """Itself. Raises ValueError where it is none that the author's side would have let through.

        Names become parts of ids, folders and branches.
        """
        ids = [step.id for part in self.parts for step in _steps_of(part)]
        if not ids or len(set(ids)) < len(ids) or not is_name(self.name.replace("-", "_")):
            raise ValueError("a workflow has a name, and steps of different names")
        if not all(is_name(id) and id not in (INPUT, RUN) for id in ids):
            raise ValueError("the name of a step is made of letters, digits and _")
        return self


class Author(Protocol):
    """The door to the code of one workflow. Every method raises WorkflowBroken where the code itself breaks down.

    Values are JSON, named by the step that gave them, `input` or `run`.
    """

    @property
    def flow(self) -> Flow: ...

    async def fit(self, id: str, value: Any) -> Any:
        """The value as the type of this step or of the input writes it. Raises DoesNotFit."""

    async def read(self, step: str, reply: str) -> Any:
        """The same for the words of an agent that hold JSON. Raises DoesNotFit."""

    async def fill(self, step: str, text: str, values: Mapping[str, Any]) -> str:
        """A text of a step (`prompt`, `command` …) with its places filled. Raises SettingsError, StepFailed."""

    async def call(self, step: str, values: Mapping[str, Any]) -> Any:
        """Run the function of a step, for as long as it takes: cancelled, it is ended. Raises StepFailed."""


class Authors(Protocol):
    """Finds the code of workflows."""

    async def open(self, file: Path, name: str) -> Author:
        """Raises WorkflowBroken, WorkflowNotFound, WorkflowNotTrusted."""


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _named(step: Step) -> dict[str, Any]:
    return {"id": step.id, "kind": step.kind}


def _steps_of(part: Step | Parallel) -> Iterator[Step]:
    if isinstance(part, Parallel):
        for branch in part.branches:
            yield from branch
    else:
        yield part
