"""What an author writes a workflow with. Everything that can be checked is checked when the file is loaded.

What the rest of the house knows of a workflow is its `flow`; types and functions stay in the author's process.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, get_type_hints

from pydantic import BaseModel, PydanticUserError, TypeAdapter

from handraise.asks import AutoRule, Handling, Mode
from handraise.errors import SettingsError, WorkflowBroken
from handraise.policies import policy_for
from handraise.workflow import flow, templates
from handraise.workflow.flow import INPUT, RUN, Flow, IfCut, is_name

__all__ = [
    "Parallel",
    "ShellResult",
    "Workflow",
    "WrittenStep",
    "agent",
    "checkpoint",
    "function",
    "parallel",
    "shell",
]


class ShellResult(BaseModel):
    """What a command did."""

    code: int
    output: str = ""  # what it wrote, both streams as they came
    cut: bool = False  # the output was longer than what is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenStep:
    """A step as its author wrote it: the data of it, and what stays in the author's process."""

    plain: flow.Step
    output: Any = str  # the type of what it gives
    function: Callable[..., Any] | None = None

    @property
    def id(self) -> str:
        return self.plain.id

    def described(self) -> flow.Step:
        return replace(self.plain, schema=_schema(self.output), is_text=self.output is str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Branches that run at the same time, each one step after the other."""

    branches: tuple[tuple[WrittenStep, ...], ...]
    where: str


Part: TypeAlias = WrittenStep | Parallel
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
) -> WrittenStep:
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
    plain = flow.AgentStep(
        id=id,
        where=where,
        prompt=prompt,
        agent=agent,
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
    return WrittenStep(plain=plain, output=output)


def checkpoint(id: str, *, input: str = "", output: Any = bool, timeout: float | None = None) -> WrittenStep:
    """A step in which a person decides. `input` is shown to them; what they give has to fit `output`."""
    plain = flow.CheckpointStep(id=id, where=_where(), input=input, timeout=timeout)
    return WrittenStep(plain=plain, output=output)


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
) -> WrittenStep:
    """A command. What is filled in from steps before is one word each, however it is written."""
    plain = flow.ShellStep(
        id=id,
        where=_where(),
        command=command,
        cwd=cwd,
        check=check,
        timeout=timeout,
        retries=retries,
        backoff=backoff,
        if_cut=if_cut,
    )
    return WrittenStep(plain=plain, output=ShellResult)


def function(
    function: Callable[..., Any],
    *,
    timeout: float | None = None,
    retries: int = 0,
    backoff: float = 1.0,
    if_cut: IfCut = "rerun",
) -> WrittenStep:
    """A function as a step, where it needs more than to be named: a limit of its time, or to be tried again."""
    made = _function(function)
    plain = replace(made.plain, timeout=timeout, retries=retries, backoff=backoff)
    assert isinstance(plain, flow.FunctionStep)
    return replace(made, plain=replace(plain, if_cut=if_cut))


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
    def steps(self) -> Mapping[str, WrittenStep]:
        """Every step by its id, in the order it is written."""
        return {step.id: step for part in self.parts for step in _steps_of(part)}

    @cached_property
    def flow(self) -> Flow:
        """All that others need to know of it."""
        parts = [
            flow.Parallel(branches=tuple(tuple(step.described() for step in branch) for branch in part.branches))
            if isinstance(part, Parallel)
            else part.described()
            for part in self.parts
        ]
        return Flow(
            name=self.name,
            where=self.where,
            parts=tuple(parts),
            description=str(self.description),
            schema=_schema(self.input),
        )

    def adapter(self, id: str) -> TypeAdapter[Any]:
        """What reads and writes the output of a step, or the input of a run."""
        return TypeAdapter(self.input if id == INPUT else self.steps[id].output)

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {', '.join(self.steps)})"


def _schema(kind: Any) -> Mapping[str, Any] | None:
    try:
        return TypeAdapter(kind).json_schema()
    except Exception:  # a type that can be read but not described
        return None


def _steps_of(part: Part) -> Iterator[WrittenStep]:
    if isinstance(part, Parallel):
        for branch in part.branches:
            yield from branch
    else:
        yield part


def _step(given: Given, *, where: str) -> WrittenStep:
    if isinstance(given, WrittenStep):
        return given
    if isinstance(given, Parallel):
        raise WorkflowBroken(f"{given.where}: a branch holds steps; a `parallel` of its own does not fit in there")
    if not callable(given):
        raise WorkflowBroken(f"{where}: {given!r} is no step; write agent(…), checkpoint(…), shell(…) or a function")
    return _function(given)


def _function(function: Callable[..., Any]) -> WrittenStep:
    code = getattr(function, "__code__", None)
    where = f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code is not None else "a function"
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise WorkflowBroken(f"{where}: {function.__name__}: *{parameter.name} is no name of a step before it")
    takes = tuple(parameter.name for parameter in parameters)
    plain = flow.FunctionStep(id=function.__name__, where=where, takes=takes)
    return WrittenStep(plain=plain, output=hints.get("return", Any), function=function)


def _where() -> str:
    """The line of the author's file that we are called from."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "") == __name__:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _handling(where: str, id: str, **given: Any) -> Handling:
    from handraise.wire import parse_handling  # as long to load as all else here, and not every file has agents

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
    if not is_name(workflow.name.replace("-", "_")):
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


def _check_step(written: WrittenStep, *, known: Mapping[str, Any], seen: dict[str, str]) -> None:
    step = written.plain
    if not is_name(step.id) or step.id in (INPUT, RUN):
        raise WorkflowBroken(
            f"{step.where}: {step.id!r} is no name for a step; letters, digits and _ are, input and run are not"
        )
    if step.id in seen:
        raise WorkflowBroken(f"{step.where}: there is a step {step.id!r} already, at {seen[step.id]}")
    seen[step.id] = step.where
    _check_type(written.output, where=step.where, what=f"{step.id}: output")
    if step.retries < 0 or step.backoff < 0 or (step.timeout is not None and step.timeout <= 0):
        raise WorkflowBroken(f"{step.where}: {step.id}: timeout, retries and backoff are not negative")
    texts: list[str] = []
    match step:
        case flow.AgentStep():
            texts = [step.prompt, step.cwd or ""]
        case flow.CheckpointStep():
            texts = [step.input]
        case flow.ShellStep():
            texts = [step.command, step.cwd or ""]
        case flow.FunctionStep():
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
