"""What a workflow is made of, as plain data. Everything that can be checked is checked when the file is loaded."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_type_hints

from pydantic import BaseModel, PydanticUserError, TypeAdapter

from handraise.asks import AutoRule, Handling, Mode
from handraise.errors import SettingsError, WorkflowBroken
from handraise.policies import policy_for
from handraise.wire import parse_handling
from handraise.workflow import templates

__all__ = [
    "AgentStep",
    "CheckpointStep",
    "FunctionStep",
    "Parallel",
    "ShellResult",
    "ShellStep",
    "Step",
    "Workflow",
    "agent",
    "checkpoint",
    "parallel",
    "shell",
]

IfCut: TypeAlias = Literal["ask", "rerun", "fail"]

INPUT = "input"  # the name of what the run was started with
RUN = "run"  # the name of its id
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class ShellResult(BaseModel):
    """What a command did."""

    code: int
    output: str = ""  # what it wrote, both streams as they came
    cut: bool = False  # the output was longer than what is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    id: str
    where: str  # the file and line it was written in
    output: Any = str  # the type of what it gives
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
    """The run waits until a person gives what fits `output`."""

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

    function: Callable[..., Any]
    takes: tuple[str, ...]
    if_cut: IfCut = "rerun"
    kind: Literal["function"] = "function"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Branches that run at the same time, each one step after the other."""

    branches: tuple[tuple[Step, ...], ...]
    where: str


Step: TypeAlias = AgentStep | CheckpointStep | ShellStep | FunctionStep
Part: TypeAlias = Step | Parallel
Given: TypeAlias = Part | Callable[..., Any]  # a plain function is a step


def agent(
    id: str,
    prompt: str,
    *,
    agent: str = "claude",
    output: Any = str,
    question_policy: str | Sequence[AutoRule] | Mapping[str, Any] = "reject",
    permission_policy: str = "forward",
    question_timeout: float | None = None,
    on_timeout: str = "accept-first",
    mode: Mode | None = None,
    cwd: str | None = None,
    worktree: bool = False,
    command: Sequence[str] = (),
    timeout: float | None = None,
    stale_after: float | None = None,
    retries: int = 0,
    backoff: float = 1.0,
    repairs: int = 2,
) -> AgentStep:
    """A step in which an agent works. `output` other than `str` is what its last words have to be, as JSON."""
    where = _where()
    handling = _handling(
        where,
        id,
        question_policy=question_policy,
        permission_policy=permission_policy,
        question_timeout=question_timeout,
        on_timeout=on_timeout,
    )
    return AgentStep(
        id=id,
        where=where,
        prompt=prompt,
        agent=agent,
        output=output,
        handling=handling,
        mode=mode,
        cwd=cwd,
        worktree=worktree,
        command=tuple(command),
        timeout=timeout,
        stale_after=stale_after,
        retries=retries,
        backoff=backoff,
        repairs=repairs,
    )


def checkpoint(id: str, *, input: str = "", output: Any = bool, timeout: float | None = None) -> CheckpointStep:
    """A step in which a person decides. `input` is shown to them; what they give has to fit `output`."""
    return CheckpointStep(id=id, where=_where(), input=input, output=output, timeout=timeout)


def shell(
    id: str,
    command: str,
    *,
    cwd: str | None = None,
    check: bool = True,
    timeout: float | None = None,
    retries: int = 0,
    backoff: float = 1.0,
    if_cut: IfCut = "ask",
) -> ShellStep:
    """A command. What is filled in from steps before is one word each, however it is written."""
    return ShellStep(
        id=id,
        where=_where(),
        command=command,
        output=ShellResult,
        cwd=cwd,
        check=check,
        timeout=timeout,
        retries=retries,
        backoff=backoff,
        if_cut=if_cut,
    )


def parallel(*branches: Given | Sequence[Given]) -> Parallel:
    """Branches that run at the same time: a step each, or a list of steps."""
    where = _where()
    made = [
        tuple(_step(each, where=where) for each in (branch if isinstance(branch, list | tuple) else (branch,)))
        for branch in branches
    ]
    return Parallel(branches=tuple(made), where=where)


class Workflow:
    """Steps in their order. Raises WorkflowBroken with the line where something does not fit, before anything runs."""

    def __init__(self, name: str, *steps: Given, input: Any = dict, description: str = "") -> None:
        self.name = name
        self.input = input
        self.description = description
        self.where = _where()
        self.parts: tuple[Part, ...] = tuple(
            each if isinstance(each, Parallel) else _step(each, where=self.where) for each in steps
        )
        _check(self)

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

    def adapter(self, id: str) -> TypeAdapter[Any]:
        """What reads and writes the output of a step, or the input of a run."""
        return TypeAdapter(self.input if id == INPUT else self.steps[id].output)

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {', '.join(self.steps)})"


def _named(step: Step) -> dict[str, Any]:
    return {"id": step.id, "kind": step.kind}


def _steps_of(part: Part) -> Iterator[Step]:
    if isinstance(part, Parallel):
        for branch in part.branches:
            yield from branch
    else:
        yield part


def _step(given: Given, *, where: str) -> Step:
    if isinstance(given, AgentStep | CheckpointStep | ShellStep | FunctionStep):
        return given
    if isinstance(given, Parallel):
        raise WorkflowBroken(f"{given.where}: a branch holds steps; a `parallel` of its own does not fit in there")
    if not callable(given):
        raise WorkflowBroken(f"{where}: {given!r} is no step; write agent(…), checkpoint(…), shell(…) or a function")
    return _function(given)


def _function(function: Callable[..., Any]) -> FunctionStep:
    code = getattr(function, "__code__", None)
    where = f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code is not None else "a function"
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise WorkflowBroken(f"{where}: {function.__name__}: *{parameter.name} is no name of a step before it")
    takes = tuple(parameter.name for parameter in parameters)
    return FunctionStep(
        id=function.__name__, where=where, function=function, takes=takes, output=hints.get("return", Any)
    )


def _where() -> str:
    """The line of the author's file that we are called from."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "") == __name__:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _handling(where: str, id: str, **given: Any) -> Handling:
    policy = given["question_policy"]
    if isinstance(policy, list | tuple):
        given["question_policy"] = {"auto": [{"match": rule.match, "answers": rule.answers} for rule in policy]}
    try:
        made = parse_handling({name: value for name, value in given.items() if value is not None}, onto=Handling())
        policy_for(made)
    except SettingsError as problem:
        raise WorkflowBroken(f"{where}: {id}: {problem.message}") from None
    return made


def _check(workflow: Workflow) -> None:
    if not _NAME.fullmatch(workflow.name.replace("-", "_")):
        raise WorkflowBroken(f"{workflow.where}: {workflow.name!r} is no name; letters, digits and dashes are")
    if not workflow.parts:
        raise WorkflowBroken(f"{workflow.where}: {workflow.name} has no steps")
    seen: dict[str, str] = {}
    _check_type(workflow.input, where=workflow.where, what="input")
    known: dict[str, Any] = {INPUT: workflow.input, RUN: str}
    for part in workflow.parts:
        branches = part.branches if isinstance(part, Parallel) else ((part,),)
        after = dict(known)
        for branch in branches:
            inside = dict(known)  # a branch sees what came before it, and itself
            for step in branch:
                _check_step(step, known=inside, seen=seen)
                inside[step.id] = after[step.id] = step.output
        known = after


def _check_step(step: Step, *, known: Mapping[str, Any], seen: dict[str, str]) -> None:
    if not _NAME.fullmatch(step.id) or step.id in (INPUT, RUN):
        raise WorkflowBroken(
            f"{step.where}: {step.id!r} is no name for a step; letters, digits and _ are, input and run are not"
        )
    if step.id in seen:
        raise WorkflowBroken(f"{step.where}: there is a step {step.id!r} already, at {seen[step.id]}")
    seen[step.id] = step.where
    _check_type(step.output, where=step.where, what=f"{step.id}: output")
    if step.retries < 0 or step.backoff < 0 or (step.timeout is not None and step.timeout <= 0):
        raise WorkflowBroken(f"{step.where}: {step.id}: timeout, retries and backoff are not negative")
    texts: list[str] = []
    match step:
        case AgentStep():
            texts = [step.prompt, step.cwd or ""]
        case CheckpointStep():
            texts = [step.input]
        case ShellStep():
            texts = [step.command, step.cwd or ""]
        case FunctionStep():
            missing = [name for name in step.takes if name not in known]
            if missing:
                there = ", ".join(known)
                raise WorkflowBroken(
                    f"{step.where}: {step.id} takes {missing[0]!r}; nothing before it is called that; there is {there}"
                )
    for text in texts:
        try:
            templates.check(text, known)
        except SettingsError as problem:
            raise WorkflowBroken(f"{step.where}: {step.id}: {problem.message}") from None


def _check_type(kind: Any, *, where: str, what: str) -> None:
    try:
        TypeAdapter(kind)
    except (PydanticUserError, TypeError, NameError) as problem:
        first = str(problem).splitlines()[0]
        raise WorkflowBroken(f"{where}: {what} is no type that can be read and written: {first}") from None
