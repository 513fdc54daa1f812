"""Sessions with agents, what was said in them, and the raw messages behind that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from handraise.asks import Ask, Mode
from handraise.wire.asks import HandlingBody
from handraise.wire.fields import NO_CONTROLS, OR_NULL, Count, Doc, Limits, Name, Time

Prompt = Annotated[str, Limits(min_length=1, max_length=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBody(HandlingBody):
    """What `POST /v1/sessions` takes."""

    agent: Annotated[Name, Limits(pattern=NO_CONTROLS)]
    prompt: Prompt
    cwd: Annotated[
        Annotated[str, Limits(min_length=1, max_length=20_000)] | None,
        Doc("A folder on the machine of the desk that starts it."),
    ] = None
    mode: Annotated[Mode | None, Doc("What it may do without asking. Without one its own configuration decides.")] = (
        None
    )
    command: Annotated[
        Annotated[tuple[Annotated[str, Limits(max_length=20_000)], ...], Limits(max_length=200)],
        Doc("What to run, for the agent `acp`: a program that speaks ACP, and its arguments."),
    ] = ()
    id: Annotated[
        Annotated[str, Limits(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}$")] | None,
        Doc("Makes it safe to repeat: the same id with the same content is the same session."),
    ] = None
    # Without a sign of life and without an open ask. Less than a second is no silence.
    stale_after: Annotated[
        Annotated[float, Limits(ge=1, le=31_536_000, allow_inf_nan=False)] | None,
        Doc("Seconds without a sign of life and without an open ask after which a turn is stopped."),
    ] = None

    EXAMPLE: ClassVar[Any] = {
        "agent": "claude",
        "prompt": "Add a health check to the shop",
        "cwd": "/home/ana/shop",
        "mode": "accept-edits",
        "question_timeout": 600,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBody:
    prompt: Prompt

    EXAMPLE: ClassVar[Any] = {"prompt": "And a test for it"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    id: str
    agent: str
    state: Annotated[
        Literal["running", "waiting", "idle", "failed", "done"],
        Doc("`waiting` is for a person; `failed` says why in `error` and takes another prompt; `done` takes none."),
    ]
    managed: Annotated[bool, Doc("It was started here, so it can be steered from here.")]
    parent: Annotated[str | None, Doc("Of a subagent: the session that it works for.")]
    cwd: str | None
    machine: str | None
    run: Annotated[str | None, Doc("The run of a workflow that started it.")]
    step: Annotated[str | None, Doc("And the step of that run.")]
    mode: Mode | None
    command: Annotated[
        tuple[str, ...] | None, Doc("Of the agent `acp`: what is run, where the settings do not say it.")
    ]
    error: str | None
    created_at: Time
    updated_at: Time
    open_asks: Annotated[Count, Doc("Its own and those of its subagents.")]

    EXAMPLE: ClassVar[Any] = {
        "id": "claude:4f1c",
        "agent": "claude",
        "state": "idle",
        "managed": False,
        "parent": None,
        "cwd": "/home/ana/shop",
        "machine": "laptop",
        "run": None,
        "step": None,
        "mode": None,
        "command": None,
        "error": None,
        "created_at": "2026-01-01T12:00:00.000Z",
        "updated_at": "2026-01-01T12:00:00.000Z",
        "open_asks": 0,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    sessions: tuple[Session, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    id: Annotated[str, Doc("Ids sort in the order in which it was said.")]
    role: Annotated[Literal["person", "agent", "tool", "notice"], Doc("A `notice` is the desk's own.")]
    text: str
    at: Time
    extra: Annotated[
        Mapping[str, Any] | None,
        Doc(
            "Of a tool: its name and input. Of a notice about a turn that did not reach its end: `turn`, which is"
            " `aborted` or `failed`.",
        ),
    ] = None

    EXAMPLE: ClassVar[Any] = {
        "id": "1767268842000-000000-1f3a9c",
        "role": "agent",
        "text": "The health check is in.",
        "at": "2026-01-01T12:00:42.000Z",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    messages: tuple[Message, ...]
    next: Annotated[
        str | None, Doc("Only where there are more: give it as `after` to read on, or as `before` if you did.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    id: str
    at: Time
    way: Annotated[Literal["in", "out"], Doc("From the agent, or to it.")]
    name: Annotated[str, Doc("What the agent's protocol calls it; empty where it has no name for it.")]
    ask: Annotated[str | None, Doc("The ask that it is, or whose answer it carries.")]
    body: Annotated[Any, Doc("As it was, but for secrets and for what is too long.")]
    size: Annotated[Count, Doc("Its characters, before it was cut.")]
    pieces: Annotated[Count, Doc("How many in a row it stands for; the body is that of the last one.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    wire: tuple[Wire, ...]
    recording: Annotated[bool, Doc("Whether this desk keeps such messages.")]
    ask: Annotated[
        Ask | None, OR_NULL, Doc("With `ask=`: the ask, without secrets too, or null where there is none.")
    ] = None
    next: str | None = None
