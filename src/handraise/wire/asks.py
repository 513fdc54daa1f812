"""Asks, their answers and the events about them, as they are sent and told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from handraise.asks import Answer, Ask, AutoRule, Handling, Origin, Permission, Question
from handraise.wire.fields import NO_CONTROLS, Count, Doc, Limits, Name, Seconds, Time, Url

MOST_DELIVERIES = 2_000  # reported in one call
# Taken from a real reply; the tests ask the same again and compare.
ASK_EXAMPLE: Any = {
    "id": "build-7",
    "questions": [
        {
            "question": "Which database should I use?",
            "options": [
                {"label": "SQLite", "description": "one file", "value": "SQLite", "recommended": False},
                {"label": "Postgres", "description": "", "value": "Postgres", "recommended": False},
            ],
            "header": "Database",
            "multiple": False,
            "custom": True,
            "kind": "choice",
        }
    ],
    "permission": None,
    "origin": {"agent": "claude", "session": "claude:4f1c", "cwd": "/home/ana/shop", "machine": "laptop"},
    "state": "answered",
    "asked_at": "2026-01-01T12:00:00.000Z",
    "deadline": "2026-01-01T12:10:00.000Z",
    "remaining": None,
    "fallback": {
        "answers": [["SQLite"]],
        "reply": None,
        "rejected": False,
        "reason": None,
        "notes": [],
        "by": "policy:timeout",
        "via": "policy",
        "at": None,
        "why": ["no answer in 600 s", "accept-first"],
    },
    "answer": {
        "answers": [["Postgres"]],
        "reply": None,
        "rejected": False,
        "reason": None,
        "notes": [],
        "by": "ana",
        "via": "http",
        "at": "2026-01-01T12:00:42.000Z",
    },
    "delivered_at": None,
    "delivery_error": None,
    "withdrawn_reason": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    auto: Annotated[tuple[AutoRule, ...], Limits(max_length=500)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlingBody:
    """How an ask wants to be decided; what is not given is left to the desk."""

    question_policy: Literal["reject", "accept-first", "accept-recommended", "forward"] | Auto | None = None
    permission_policy: Literal["reject", "forward"] | None = None
    question_timeout: Seconds | None = None
    on_timeout: Literal["accept-first", "accept-recommended", "reject"] | None = None

    def handling(self, *, onto: Handling) -> Handling:
        """The settings given here, over those of `onto`."""
        given = (self.question_policy, self.permission_policy, self.question_timeout, self.on_timeout)
        if given == (None, None, None, None):
            return onto
        policy = self.question_policy.auto if isinstance(self.question_policy, Auto) else self.question_policy
        return Handling(
            question_policy=onto.question_policy if policy is None else policy,
            permission_policy=self.permission_policy or onto.permission_policy,
            question_timeout=onto.question_timeout if self.question_timeout is None else self.question_timeout,
            on_timeout=self.on_timeout or onto.on_timeout,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AskBody(HandlingBody):
    """What `POST /v1/asks` takes."""

    id: Annotated[str, Limits(min_length=1, max_length=400, pattern=NO_CONTROLS)] | None = None
    questions: tuple[Question, ...] = ()
    permission: Permission | None = None
    origin: Origin | None = None
    worker: Annotated[Name, Limits(pattern=NO_CONTROLS)] | None = None  # who waits for it on `GET /v1/events?worker=`
    ordinal: bool = False  # the id may repeat by accident: joins only while open or not yet delivered
    extra: dict[str, Any] | None = None

    ALSO: ClassVar[Any] = {
        "oneOf": [
            {
                "title": "Questions",
                "required": ["questions"],
                "properties": {"questions": {"minItems": 1}, "permission": {"type": "null"}},
            },
            {
                "title": "A permission",
                "required": ["permission"],
                "properties": {"permission": {"type": "object"}, "questions": {"maxItems": 0}},
            },
        ]
    }

    EXAMPLE: ClassVar[Any] = {
        "id": "build-7",
        "questions": [
            {
                "header": "Database",
                "question": "Which database should I use?",
                "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres"}],
            }
        ],
        "origin": {"agent": "claude", "session": "claude:4f1c", "cwd": "/home/ana/shop", "machine": "laptop"},
        "question_timeout": 600,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerBody:
    """What `POST /v1/asks/{id}/answer` takes: `answers` for questions, `reply` for a permission."""

    answers: tuple[tuple[str, ...], ...] | None = None
    notes: tuple[str | None, ...] = ()
    reply: str | None = None
    message: str | None = None
    input: dict[str, Any] | None = None
    scope: str | None = None
    patterns: tuple[str, ...] | None = None
    by: Name | None = None  # who answers, where the token may speak for others
    via: Name | None = None  # the place it was answered in

    def answer(self, *, by: str, via: str) -> Answer:
        return Answer(
            by=by,
            via=via,
            answers=self.answers,
            notes=self.notes,
            reply=self.reply,
            reason=self.message,
            input=self.input,
            scope=self.scope,
            patterns=self.patterns,
        )

    ALSO: ClassVar[Any] = {
        "oneOf": [
            {
                "title": "Answers",
                "required": ["answers"],
                "properties": {"answers": {"type": "array"}, "reply": {"type": "null"}},
            },
            {
                "title": "A reply",
                "required": ["reply"],
                "properties": {"reply": {"type": "string"}, "answers": {"type": "null"}},
            },
        ]
    }
    EXAMPLE: ClassVar[Any] = {"answers": [["Postgres"]]}


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectBody:
    reason: Annotated[str, Limits(max_length=20_000)] | None = None
    by: Name | None = None
    via: Name | None = None

    EXAMPLE: ClassVar[Any] = {"reason": "let us talk first"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkBody:
    """What `POST /v1/asks/{id}/link` takes."""

    by: Name | None = None  # who will answer with it, where the token may speak for others
    via: Name | None = None  # the place it is sent to
    expires_in: Annotated[float, Limits(ge=1, le=2_592_000, allow_inf_nan=False)] | None = None  # at most 30 days

    EXAMPLE: ClassVar[Any] = {"by": "ana", "via": "mail", "expires_in": 3600}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAnswer(AnswerBody):
    """What a person said in the agent's own terminal, as the agent learned it."""

    rejected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawBody:
    reason: Annotated[str, Limits(max_length=20_000)] | None = None
    answer: Annotated[
        LocalAnswer | None,
        Doc(
            "What a person said in the agent's own terminal. One that does not fit is a withdrawal. Its `by` is "
            "not read: it is `agent`."
        ),
    ] = None

    EXAMPLE: ClassVar[Any] = {"reason": "aborted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    id: Annotated[str, Limits(min_length=1)]
    error: Annotated[str, Limits(max_length=20_000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveriesBody:
    deliveries: Annotated[tuple[Delivery, ...], Limits(max_length=MOST_DELIVERIES)]

    EXAMPLE: ClassVar[Any] = {"deliveries": [{"id": "build-7"}, {"id": "build-6", "error": "the agent had died"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseBody:
    """What `POST /v1/leases` takes."""

    worker: Annotated[Annotated[Name, Limits(pattern=NO_CONTROLS)], Doc("The `worker` of the asks that it waits for.")]
    seconds: Annotated[
        Annotated[float, Limits(ge=10, le=3_600, allow_inf_nan=False)],
        Doc("How long it may say nothing before its open asks are withdrawn."),
    ]

    EXAMPLE: ClassVar[Any] = {"worker": "ci-7", "seconds": 120}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    worker: str
    seconds: float

    EXAMPLE: ClassVar[Any] = {"worker": "ci-7", "seconds": 120.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asks:
    asks: tuple[Ask, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    reported: Count
    unknown: tuple[str, ...]

    EXAMPLE: ClassVar[Any] = {"reported": 1, "unknown": ["build-6"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    type: Annotated[
        str,
        Doc(
            "Newer desks may tell more of them.",
            examples=("asked", "answered", "rejected", "withdrawn", "delivered", "deadline_moved", "unseen"),
        ),
    ]
    at: Time
    ask: Ask

    EXAMPLE: ClassVar[Any] = {"type": "answered", "at": "2026-01-01T12:00:42.000Z", "ask": ASK_EXAMPLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    type: Literal["pruned"]
    at: Time
    through: Annotated[Count, Doc("The cursor of the last event that is gone, and the `id` of the frame.")]
    message: str

    EXAMPLE: ClassVar[Any] = {
        "type": "pruned",
        "at": "2026-01-01T12:00:42.000Z",
        "through": 1000,
        "message": "events up to this one were pruned before you read them; list the asks again, then go on from here",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    type: Literal["changed"]
    at: Time
    what: Annotated[
        tuple[Literal["chats", "checkpoints", "runs", "sessions", "showings"], ...],
        Doc("Of these something may have changed. The first hint of a stream names all you asked for."),
    ]

    EXAMPLE: ClassVar[Any] = {"type": "changed", "at": "2026-01-01T12:00:42.000Z", "what": ["checkpoints"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLink:
    url: Url
    expires_at: Time
