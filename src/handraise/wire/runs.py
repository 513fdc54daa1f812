"""Workflows, their runs with the trace of each, and the checkpoints at which people give something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from handraise.wire.fields import OR_NULL, Count, Doc, Limits, Name, Time

# Every type of event in a trace, and when it is told.
TYPES: Mapping[str, str] = {
    "run_started": "A worker began with it; `steps` are those of the workflow, in their order.",
    "run_completed": "It is done; `output` is what its last step gave.",
    "run_failed": "A step failed for good; `error` says which and why.",
    "run_cancelled": "Somebody cancelled it.",
    "run_retried": "Somebody made it go on, from `step_id` or from what did not succeed; `by` says who.",
    "steps_changed": "Its file has other `steps` by now, and it goes on with those.",
    "step_started": "An attempt of a step began; `kind` is `agent`, `checkpoint`, `shell` or `function`.",
    "step_completed": "It succeeded; `output` is what it gave.",
    "step_failed": "An attempt failed. One that does not count (`counts`) takes none of the step's retries.",
    "step_cut": "It was under way when its worker died; `decision` says what was done about it.",
    "session_started": "An agent was started for a step, in the session `session_id`.",
    "agent_repaired": "What an agent gave does not fit the step's output, and it was told so.",
    "checkpoint_waiting": "The run waits for a person at `checkpoint_id`.",
    "checkpoint_given": "A person gave what it waited for; `by` says who.",
    "worktree_made": "A step works in a git worktree at `path`, on a `branch` that began with commit `base`.",
    "worktree_removed": "Nothing was left in it. `branch` is there where it has commits, and null otherwise.",
    "worktree_kept": "It holds work that is not committed, so it stays at `path`; or `error` says why it could not go.",
    "agent_question_asked": "An agent asked something.",
    "agent_question_answered": "It has answers; `by` says from whom, `why` which rules decided or were skipped.",
    "agent_question_rejected": "A person or policy refused to answer; `reason` says why.",
    "agent_question_withdrawn": "The agent stopped waiting.",
    "agent_permission_asked": "An agent wants to do something.",
    "agent_permission_answered": "It may, or may not: `reply`; `why` names the rules that decided.",
    "agent_permission_withdrawn": "The agent stopped waiting.",
}
RunState = Literal["running", "waiting", "done", "failed", "cancelled", "parked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBody:
    """What `POST /v1/runs` takes."""

    workflow: Annotated[str, Limits(min_length=1, max_length=200)]
    input: Annotated[Any, Doc("What the workflow takes, at most 1 MiB of it. Without one, an empty object.")] = field(
        default_factory=dict
    )
    cwd: Annotated[
        Annotated[str, Limits(min_length=1, max_length=20_000)] | None,
        Doc(
            "A folder on the machine of the desk: where the workflow is looked for, and where it runs. Without "
            "one, that of the desk."
        ),
    ] = None

    EXAMPLE: ClassVar[Any] = {"workflow": "shop", "input": {"goal": "a health check"}, "cwd": "/home/ana/shop"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBody:
    """What `POST /v1/runs/{run}/retry` takes."""

    __pydantic_config__: ClassVar = {"alias_generator": lambda name: name.rstrip("_")}

    from_: Annotated[
        Name | None, Doc("The step from which everything is done again. Without one, what did not succeed.")
    ] = None
    dry_run: Annotated[bool, Doc("Only say what would be done.")] = False

    EXAMPLE: ClassVar[Any] = {"from": "review", "dry_run": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBody:
    """What `POST /v1/checkpoints/{checkpoint}` takes."""

    output: Annotated[Any, Doc("What the checkpoint's `schema` wants.")]
    by: Annotated[Name | None, Doc("Who gave it, where the token may speak for others.")] = None
    via: Annotated[Name | None, Doc("The place it was given in.")] = None

    EXAMPLE: ClassVar[Any] = {"output": {"approved": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStep:
    IN_PLACE: ClassVar = True

    id: str
    kind: Literal["agent", "checkpoint", "shell", "function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    name: str
    description: str
    file: str
    steps: tuple[WorkflowStep, ...]
    input: Annotated[Mapping[str, Any] | None, Doc("JSON Schema of what a run begins with.")]
    problem: Annotated[str | None, Doc("Why the file cannot be loaded; then `name` is the file's.")] = None
    untrusted: Annotated[bool | None, Doc("With `problem`: nobody trusted it as it is now.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflows:
    workflows: tuple[Workflow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run as a list has it, without what it began with and what it gave."""

    id: str
    workflow: str
    state: Annotated[
        RunState, Doc("`waiting` is for a person; `parked` cannot go on as it is, and says why in `error`.")
    ]
    error: str | None
    file: Annotated[str, Doc("Where the workflow was found.")]
    cwd: str
    created_at: Time
    created_by: Annotated[str, Doc("Name of the token.")]
    updated_at: Time
    open_asks: Count
    open_checkpoints: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(ListedRun):
    input: Any
    output: Annotated[Any, Doc("What its last step gave.")]

    EXAMPLE: ClassVar[Any] = {
        "id": "run_5d41402abc4b",
        "workflow": "shop",
        "state": "waiting",
        "input": {"goal": "a health check"},
        "output": None,
        "error": None,
        "file": "/home/ana/shop/.handraise/workflows/shop.py",
        "cwd": "/home/ana/shop",
        "created_at": "2026-01-01T12:00:00.000Z",
        "created_by": "admin",
        "updated_at": "2026-01-01T12:00:00.000Z",
        "open_asks": 0,
        "open_checkpoints": 1,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    runs: tuple[ListedRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried(Run):
    again: Annotated[tuple[str, ...], Doc("Steps that were begun before and are done again.")]
    then: Annotated[tuple[str, ...] | None, Doc("Steps that come after them, for the first time.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOption:
    IN_PLACE: ClassVar = True

    label: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuestion:
    IN_PLACE: ClassVar = True

    question: str
    header: str
    options: tuple[RunOption, ...]
    multiple: bool
    custom: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQuestion:
    id: str
    session_id: str
    step_id: str
    questions: tuple[RunQuestion, ...]
    asked_at: Time


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    id: str
    type: Annotated[str, Doc("More are in [events](events.md#the-trace-of-a-run).", examples=tuple(TYPES))]
    run_id: str
    step_id: Annotated[str | None, OR_NULL] = None
    session_id: str | None = None
    question: Annotated[AgentQuestion | None, Doc("Of `agent_question_asked`.")] = None
    question_id: Annotated[str | None, Doc("Of the other events about a question.")] = None
    answers: Annotated[
        tuple[tuple[str, ...], ...] | None, Doc("Of `agent_question_answered`: labels, a list per question.")
    ] = None
    permission: Annotated[Mapping[str, Any] | None, Doc("Of `agent_permission_asked`.")] = None
    permission_id: Annotated[str | None, Doc("Of the other events about a permission.")] = None
    reply: Annotated[str | None, Doc("Of `agent_permission_answered`: `once`, `always` or `reject`.")] = None
    reason: Annotated[str | None, OR_NULL] = None
    by: Annotated[str | None, OR_NULL] = None
    why: Annotated[
        tuple[str, ...] | None, Doc("Of an answer that policy gave: the rules that decided or were skipped.")
    ] = None
    checkpoint_id: str | None = None
    attempt: Count | None = None
    kind: Annotated[str | None, Doc("Of a step.")] = None
    command: Annotated[str | None, Doc("Of `step_started` of a shell step: what is run.")] = None
    steps: Annotated[
        tuple[Mapping[str, Any], ...] | None,
        Doc(
            "Of `run_started` and `steps_changed`: what stands after what. Each has an `id` and a `kind`, or "
            "`branches` that run at the same time, which are lists of the same.",
        ),
    ] = None
    output: Annotated[Any, Doc("Of a step or a run that is done.")] = None
    error: Annotated[str | None, OR_NULL] = None
    timestamp: Time

    EXAMPLE: ClassVar[Any] = {
        "id": "run_5d41402abc4b-ask-000000000002",
        "type": "agent_question_answered",
        "run_id": "run_5d41402abc4b",
        "step_id": "plan",
        "session_id": "ses_run_5d41402abc4b_plan_1",
        "question_id": "que_1",
        "answers": [["Postgres"]],
        "by": "ana",
        "timestamp": "2026-01-01T12:00:42.000Z",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    events: tuple[TraceEvent, ...]
    next: Annotated[str, Doc("Give it as `after` to read on.")]
    state: Annotated[RunState, Doc("Of the run, when it was looked at.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    id: str
    run: str
    workflow: str
    cwd: str
    step: str
    state: Literal["open", "given", "withdrawn"]
    input: Annotated[str, Doc("What people are shown.")]
    schema: Annotated[Mapping[str, Any] | bool, Doc("JSON Schema of what they have to give.")]
    output: Annotated[Any, Doc("What was given.")]
    by: str | None
    via: str | None
    asked_at: Time

    EXAMPLE: ClassVar[Any] = {
        "id": "run_5d41402abc4b.review",
        "run": "run_5d41402abc4b",
        "workflow": "feature",
        "cwd": "/home/ana/shop",
        "step": "review",
        "state": "open",
        "input": "Do this?",
        "schema": {"type": "boolean"},
        "output": None,
        "by": None,
        "via": None,
        "asked_at": "2026-01-01T12:00:42.000Z",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    checkpoints: tuple[Checkpoint, ...]
    next: str | None = None
