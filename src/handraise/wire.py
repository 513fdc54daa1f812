"""Our JSON in both directions and its schema; the one module that knows pydantic.

An ask is encoded once. `Stored.content` is the part that never changes, as the text that goes into the database,
the events and the replies; what changes is put around it when it is told.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from handraise.asks import Answer, Ask, AutoRule, Handling, Judgement, Mode, Origin, Permission, Question, State
from handraise.errors import AnswerDoesNotFit, AskDoesNotFit, CursorTooOld, HandraiseError, SettingsError
from handraise.events import Event, event

__all__ = [
    "LARGE",
    "AnswerBody",
    "AskBody",
    "BadBody",
    "ChatBody",
    "ChatMessageBody",
    "ChatTitleBody",
    "CheckpointBody",
    "DeliveriesBody",
    "Delivery",
    "LinkBody",
    "RejectBody",
    "RetryBody",
    "RuleBody",
    "RuleTestBody",
    "RunBody",
    "Stored",
    "StoredEvent",
    "TokenBody",
    "TrustBody",
    "WithdrawBody",
    "check_values",
    "json_schemas",
    "judgement_text",
    "parse",
    "pruned_frame",
    "time_text",
]

T = TypeVar("T")

log = logging.getLogger(__name__)

LARGE = 256 * 1024  # characters of a content from which copying it is worth avoiding
PRUNED = "pruned"  # the type of the one event that is not about an ask
MOST_DELIVERIES = 2_000  # reported in one call
Seconds = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]  # at most a year
Name = Annotated[str, Field(min_length=1, max_length=200)]
Prompt = Annotated[str, Field(min_length=1, max_length=1_000_000)]
ChatText = Annotated[str, Field(pattern=r"\S", max_length=100_000)]
_NO_CONTROLS = r"^[^\x00-\x1f\x7f]+$"


class BadBody(HandraiseError):
    """The body is not JSON, or not of the form that is documented."""

    code = "bad_request"


# Times ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def time_text(milliseconds: int) -> str:
    """RFC 3339 in UTC with milliseconds. A time is told several times, in events and replies, so it is kept."""
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def to_time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def to_milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _quoted(text: str) -> str:
    return to_json(text).decode()


def _time_or_null(milliseconds: int | None) -> str:
    return "null" if milliseconds is None else f'"{time_text(milliseconds)}"'


# What is stored and told ------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """An ask as the store holds it: columns, not records. Times are milliseconds since 1970."""

    seq: int
    id: str
    owner: str  # the token it was asked with; empty for the desk's own
    worker: str | None
    session: str
    run: str | None
    agent: str
    content: str
    openings: int
    state: State
    asked_at: int
    timeout: int | None  # what one keep-waiting adds
    deadline: int | None
    fallback: str | None
    answer: str | None
    delivered_at: int | None
    delivery_error: str | None
    withdrawn_reason: str | None
    judgement: str | None = None  # see `judgement_text`; of a question there is none

    def text(self, now: int) -> str:
        """The ask as JSON. `remaining` counts from `now`."""
        return f"{{{self.content}{self._rest(now)}"

    def pieces(self, now: int) -> Iterable[bytes]:
        """`text` as bytes, to be sent one behind the other. A large content is encoded in parts, and never copied only
        to put something around it."""
        return (self.text(now).encode(),) if len(self.content) <= LARGE else self._parts(now)

    def _parts(self, now: int) -> Iterator[bytes]:
        yield b"{"
        for start in range(0, len(self.content), LARGE):
            yield self.content[start : start + LARGE].encode()
        yield self._rest(now).encode()

    def _rest(self, now: int) -> str:
        """What comes behind the content."""
        remaining = "null"
        if self.deadline is not None and self.state == "asked":
            remaining = f"{max(0, self.deadline - now) / 1000:.3f}"
        error, reason = self.delivery_error, self.withdrawn_reason
        about = self.judgement
        if about is None:
            about = _UNJUDGED if self._is_unjudged() else ""
        return (
            f'{about},"state":"{self.state}","asked_at":"{time_text(self.asked_at)}",'
            f'"deadline":{_time_or_null(self.deadline)},"remaining":{remaining},'
            f'"fallback":{self.fallback or "null"},"answer":{self.answer or "null"},'
            f'"delivered_at":{_time_or_null(self.delivered_at)},'
            f'"delivery_error":{"null" if error is None else _quoted(error)},'
            f'"withdrawn_reason":{"null" if reason is None else _quoted(reason)}}}'
        )

    def _is_unjudged(self) -> bool:
        """Whether it is a permission that was stored before judgements were. Behind the id, whose quotes are escaped,
        comes a question, or there is none."""
        begin = '","questions":['
        if self.content.startswith(begin + "{", len(self.id) + 6):
            return False
        return self.content.startswith("]", self.content.find(begin) + len(begin))

    def ask(self) -> Ask:
        """The record of it, for everything that reads more than it copies."""
        about = self.judgement or (_UNJUDGED if self._is_unjudged() else "")
        # As text it would take four bytes for each character where one of them is an emoji.
        content = _CONTENT.validate_json(b"".join((b"{", self.content.encode(), about.encode(), b"}")))
        return replace(
            content,
            state=self.state,
            asked_at=to_time(self.asked_at),
            deadline=None if self.deadline is None else to_time(self.deadline),
            fallback=None if self.fallback is None else parse_answer(self.fallback),
            answer=self.settled(),
            delivered_at=None if self.delivered_at is None else to_time(self.delivered_at),
            delivery_error=self.delivery_error,
            withdrawn_reason=self.withdrawn_reason,
        )

    def settled(self) -> Answer | None:
        return None if self.answer is None else parse_answer(self.answer)


def judgement_text(judgement: Judgement) -> str:
    """What a desk tells of a permission beside its content, as it is stored and told. It is never a part of that: a
    later version that reads a command better must still find that an ask is the one it knows."""
    told = {"risks": judgement.risks, "commands": judgement.commands or None, "doubt": judgement.doubt}
    told["only_at_desk"] = judgement.only_at_desk
    return "," + to_json({key: value for key, value in told.items() if value is not None}).decode()[1:-1]


class StoredEvent(NamedTuple):
    """One event with the ask as it was then."""

    cursor: int
    type: str
    at: int
    ask: Stored
    source: str | None = None  # see `Change.source`

    def text(self, now: int) -> str:
        return f"{self._begin()}{self.ask.text(now)}}}"

    def frame(self, now: int) -> bytes:
        """The event as server-sent events carry it."""
        return f"id: {self.cursor}\nevent: {self.type}\ndata: {self.text(now)}\n\n".encode()

    def pieces(self, now: int) -> Iterator[bytes]:
        """`frame`, to be sent one behind the other; a large ask is in pieces of its own."""
        yield f"id: {self.cursor}\nevent: {self.type}\ndata: {self._begin()}".encode()
        yield from self.ask.pieces(now)
        yield b"}\n\n"

    def _begin(self) -> str:
        return f'{{"type":"{self.type}","at":"{time_text(self.at)}","ask":'

    def event(self) -> Event:
        return event(self.type, cursor=self.cursor, at=to_time(self.at), ask=self.ask.ask())


def pruned_frame(through: int, *, now: int) -> bytes:
    """What a stream tells a listener whose cursor is older than what is kept."""
    message = "events up to this one were pruned before you read them; list the asks again, then go on from here"
    told = f'{{"type":"{PRUNED}","at":"{time_text(now)}","through":{through},"message":"{message}"}}'
    return f"id: {through}\nevent: {PRUNED}\ndata: {told}\n\n".encode()


def content_text(ask: Ask) -> str:
    """The part of an ask that never changes, as the inside of a JSON object. Raises AskDoesNotFit."""
    try:
        parts = (
            b'"id":',
            to_json(ask.id),
            b',"questions":',
            _QUESTIONS.dump_json(ask.questions, exclude_none=True),
            b',"permission":',
            b"null" if ask.permission is None else _PERMISSION.dump_json(ask.permission, exclude_none=True),
            b',"origin":',
            _ORIGIN.dump_json(ask.origin, exclude_none=True),
            *((b',"extra":', to_json(ask.extra)) if ask.extra else ()),
        )
    except PydanticSerializationError as problem:  # half of a surrogate pair, an object that is no JSON
        raise AskDoesNotFit(f"it cannot be written as JSON: {problem}") from None
    content = b"".join(parts)
    del parts  # a large one is not held twice while it is decoded
    return content.decode()


def ask_fields(ask: Ask) -> dict[str, Any]:
    """What an adapter filled in of an ask, as the fields of a body."""
    fields: dict[str, Any] = json.loads(f"{{{content_text(ask)}}}")
    return fields


def answer_text(answer: Answer, *, at: int | None = None) -> str:
    """The answer as JSON, given at `at` where it does not say so itself. Raises AnswerDoesNotFit."""
    if at is None and answer.at is not None:
        at = to_milliseconds(answer.at)
    told: dict[str, Any] = {
        "answers": answer.answers,
        "reply": answer.reply,
        "rejected": answer.rejected,
        "reason": answer.reason,
        "notes": answer.notes,
        "by": answer.by,
        "via": answer.via,
        "at": None if at is None else time_text(at),
    }
    for key in ("input", "scope", "patterns"):  # empty is not missing: an input edited away, no pattern left
        value = getattr(answer, key)
        if value is not None:
            told[key] = value
    if answer.why:
        told["why"] = answer.why
    try:
        return to_json(told).decode()
    except PydanticSerializationError as problem:
        raise AnswerDoesNotFit([{"question": None, "problem": f"it cannot be written as JSON: {problem}"}]) from None


def parse_answer(text: str | bytes) -> Answer:
    return _ANSWER.validate_json(text)


def parse_ask(text: str | bytes) -> Ask:
    """An ask as a desk told it."""
    return _ASK.validate_json(text)


def parse_event(text: str | bytes, *, cursor: int) -> Event:
    """An event as a desk told it, from the data of one frame. Raises CursorTooOld where it says so instead."""
    try:
        told = _EVENT.validate_json(text)
    except ValidationError:
        if from_json(text)["type"] != PRUNED:
            raise
        raise CursorTooOld(through=cursor) from None
    return event(told.type, cursor=cursor, at=told.at, ask=told.ask)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    type: str
    at: datetime
    ask: Ask


_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)
_ASK: TypeAdapter[Ask] = TypeAdapter(Ask)
_CONTENT = _ASK
# Of what was asked before judgements were stored. Nobody reads such a command again.
_NOT_KEPT = "it was asked before this desk kept what it finds out about a command"
_UNJUDGED = judgement_text(Judgement(risks=("unreadable",), doubt=_NOT_KEPT, only_at_desk=_NOT_KEPT))
_EVENT: TypeAdapter[_Told] = TypeAdapter(_Told)
_QUESTIONS: TypeAdapter[tuple[Question, ...]] = TypeAdapter(tuple[Question, ...])
_PERMISSION: TypeAdapter[Permission] = TypeAdapter(Permission)
_ORIGIN: TypeAdapter[Origin] = TypeAdapter(Origin)


# What callers send ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    auto: Annotated[tuple[AutoRule, ...], Field(max_length=500)]


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

    id: Annotated[str, Field(min_length=1, max_length=400, pattern=_NO_CONTROLS)] | None = None
    questions: tuple[Question, ...] = ()
    permission: Permission | None = None
    origin: Origin | None = None
    worker: Annotated[Name, Field(pattern=_NO_CONTROLS)] | None = None  # who waits for it on `GET /v1/events?worker=`
    ordinal: bool = False  # the id may repeat by accident: joins only while open or not yet delivered
    extra: dict[str, Any] | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectBody:
    reason: Annotated[str, Field(max_length=20_000)] | None = None
    by: Name | None = None
    via: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkBody:
    """What `POST /v1/asks/{id}/link` takes."""

    by: Name | None = None  # who will answer with it, where the token may speak for others
    via: Name | None = None  # the place it is sent to
    expires_in: Annotated[float, Field(ge=1, le=2_592_000, allow_inf_nan=False)] | None = None  # at most 30 days


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowingBody:
    """What `POST /v1/asks/{id}/showings` takes: what became of it in a channel, or that nothing is left to do there."""

    channel: Annotated[Name, Field(pattern=_NO_CONTROLS)]
    state: Literal["sent", "shown", "failed"] | None = None
    place: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None  # the channel's own word for where
    error: Annotated[str, Field(max_length=2_000)] | None = None
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTestBody:
    """What `POST /v1/channels/{name}/test` takes."""

    where: Annotated[str, Field(max_length=2_000)] = ""  # in a channel that shows only what belongs to a place in it


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAnswer(AnswerBody):
    """What a person said in the agent's own terminal, as the agent learned it."""

    rejected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawBody:
    reason: Annotated[str, Field(max_length=20_000)] | None = None
    answer: LocalAnswer | None = None  # closes the ask as answered or rejected by `agent`, and delivered


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    id: Annotated[str, Field(min_length=1)]
    error: Annotated[str, Field(max_length=20_000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveriesBody:
    deliveries: Annotated[tuple[Delivery, ...], Field(max_length=MOST_DELIVERIES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBody(HandlingBody):
    """What `POST /v1/sessions` takes."""

    agent: Annotated[Name, Field(pattern=_NO_CONTROLS)]
    prompt: Prompt
    cwd: Annotated[str, Field(min_length=1, max_length=20_000)] | None = None
    mode: Mode | None = None
    command: Annotated[tuple[Annotated[str, Field(max_length=20_000)], ...], Field(max_length=200)] = ()
    # Without a sign of life and without an open ask. Less than a second is no silence.
    stale_after: Annotated[float, Field(ge=1, le=31_536_000, allow_inf_nan=False)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBody:
    prompt: Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatBody:
    """What `POST /v1/chats` takes; with a text, the chat begins with that message."""

    model: Name | None = None
    title: Annotated[str, Field(max_length=1_000)] | None = None
    text: ChatText | None = None
    by: Name | None = None
    via: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessageBody:
    """What `POST /v1/chats/{chat}/messages` takes. The same nonce again is the same message."""

    text: ChatText
    nonce: Name | None = None
    by: Name | None = None
    via: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTitleBody:
    title: Annotated[str, Field(min_length=1, max_length=1_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBody:
    """What `POST /v1/runs` takes."""

    workflow: Annotated[str, Field(min_length=1, max_length=200)]
    input: Any = field(default_factory=dict)
    cwd: Annotated[str, Field(min_length=1, max_length=20_000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBody:
    """What `POST /v1/runs/{run}/retry` takes."""

    step: Annotated[Name | None, Field(alias="from")] = None
    dry_run: bool = False  # only say what would be done again


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBody:
    """What `POST /v1/checkpoints/{checkpoint}` takes."""

    output: Any
    by: Name | None = None
    via: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBody:
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    scopes: Annotated[tuple[Literal["ask", "answer", "admin"], ...], Field(min_length=1, max_length=3)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBody:
    """A part of a project as a person saw it."""

    name: Annotated[str, Field(max_length=20_000)]
    fingerprint: Annotated[str, Field(max_length=200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustBody:
    """What `POST /v1/trust` takes."""

    cwd: Annotated[str, Field(min_length=1, max_length=20_000)]
    parts: Annotated[tuple[PartBody, ...], Field(min_length=1, max_length=1_000)]


Pattern = Annotated[str, Field(max_length=20_000)]
PatternOrFlag = Pattern | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleBody:
    """What `POST /v1/rules` takes: a rule as in `[[rules]]` of a settings file."""

    tool: Annotated[str, Field(min_length=1, max_length=20_000)]
    action: Literal["allow", "reject", "ask", "delegate"]
    matches: Mapping[str, PatternOrFlag | tuple[PatternOrFlag, ...]] = field(default_factory=dict)
    agent: Name | None = None
    context: Literal["thread", "subagent"] | None = None
    message: Annotated[str, Field(min_length=1, max_length=20_000)] | None = None
    to: tuple[Annotated[str, Field(min_length=1, max_length=20_000)], ...] = ()
    timeout: Annotated[float, Field(gt=0, le=300)] | None = None
    first: bool = False  # before the others that are kept here, rather than behind them


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTestBody:
    """What `POST /v1/rules/test` takes: a call as an agent might make it."""

    tool: Name
    arguments: Mapping[str, Any] = field(default_factory=dict)
    agent: Name = "any"
    cwd: Annotated[str, Field(max_length=20_000)] | None = None
    context: Literal["thread", "subagent"] = "thread"


MOST_VALUES = 25_000  # in a body; parsing more of them takes longer than others should wait
MOST_PROBLEMS = 1_000  # that are looked at one by one
_STRUCTURE = b'"{[,'
_OTHERS = bytes(set(range(256)) - set(_STRUCTURE))


def _values_in(body: bytes) -> int:
    """About how many values a JSON text has, found without parsing it: commas and brackets outside of its strings."""
    if len(body) <= MOST_VALUES or len(body.translate(None, _OTHERS)) <= MOST_VALUES:
        return 0
    # Without what is escaped, every quote begins or ends a string.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    quotes = plain.count(b'"')
    if quotes > 4 * MOST_VALUES:  # a key and a text for each; taken apart they would cost what we avoid
        return quotes // 2
    return sum(map(len, plain.split(b'"')[::2]))


def check_values(body: bytes) -> None:
    """Raises BadBody where a JSON text holds so many values that it would take too long to parse them."""
    if _values_in(body) > MOST_VALUES:
        raise BadBody(f"the body holds more than {MOST_VALUES:,} values; send fewer")


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def adapter(kind: type[T]) -> TypeAdapter[T]:
    found = _ADAPTERS.get(kind)
    if found is None:
        found = _ADAPTERS[kind] = TypeAdapter(kind)
    return found


def parse(kind: type[T], body: bytes) -> T:
    """The body as `kind`. Raises BadBody, or for asks and answers the error that lists what does not fit."""
    check_values(body)
    try:
        return adapter(kind).validate_json(body or b"{}", strict=True)
    except ValidationError as invalid:
        raise _refusal(kind, invalid) from None


def json_schemas(*kinds: type, refs: str) -> dict[str, Any]:
    """The JSON schema of each kind and of everything it holds, by name. `refs` is where `{model}` will be found."""
    wanted: list[Any] = [(kind, "validation", adapter(kind)) for kind in kinds]
    _, schemas = TypeAdapter.json_schemas(wanted, ref_template=refs)
    definitions: dict[str, Any] = schemas["$defs"]
    return definitions


def parse_handling(table: Mapping[str, Any], *, onto: Handling) -> Handling:
    """A `[policy]` table over the settings it refines. Raises SettingsError."""
    unknown = table.keys() - _known(HandlingBody)
    if unknown:
        raise SettingsError(f"does not know {sorted(unknown)[0]!r}; it knows {', '.join(sorted(_known(HandlingBody)))}")
    try:
        return parse(HandlingBody, to_json(table)).handling(onto=onto)
    except BadBody as unfit:
        raise SettingsError(str(unfit)) from None


def handling_fields(handling: Handling) -> dict[str, Any]:
    """A handling as the fields of an ask's body."""
    policy: Any = handling.question_policy
    if isinstance(policy, tuple):
        policy = {"auto": [{"match": rule.match, "answers": rule.answers} for rule in policy]}
    return {
        "question_policy": policy,
        "permission_policy": handling.permission_policy,
        "question_timeout": handling.question_timeout,
        "on_timeout": handling.on_timeout,
    }


def parse_ask_body(body: bytes) -> AskBody:
    """`parse` for asks, with the fields we do not know kept in `extra` of the record they came with."""
    check_values(body)
    try:
        return adapter(AskBody).validate_json(body, strict=True, extra="forbid")
    except ValidationError:  # wrong, or with fields we do not know: the slow way finds out which
        parsed = parse(AskBody, body)
    raw = from_json(body or b"{}")
    questions = tuple(
        _keep(question, told, options=_keep_all(question.options, told.get("options")))
        for question, told in zip(parsed.questions, raw.get("questions", ()), strict=True)
    )
    permission, origin = parsed.permission, parsed.origin
    if permission is not None:
        told = raw["permission"]
        permission = _keep(permission, told, scopes=_keep_all(permission.scopes, told.get("scopes")))
    if origin is not None:
        origin = _keep(origin, raw["origin"])
    return _keep(parsed, raw, questions=questions, permission=permission, origin=origin)


def _keep_all(records: tuple[T, ...], raw: Any) -> tuple[T, ...]:
    return tuple(_keep(record, told) for record, told in zip(records, raw or (), strict=True))


@cache
def _known(kind: Any) -> frozenset[str]:
    return frozenset(entry.name for entry in dataclasses.fields(kind))


def _keep(record: T, raw: Mapping[str, Any], **changed: Any) -> T:
    kind: Any = type(record)
    known = _known(kind)
    if not raw.keys() <= known:
        unknown = {key: value for key, value in raw.items() if key not in known}
        changed["extra"] = {**(raw.get("extra") or {}), **unknown}
    elif all(getattr(record, key) == value for key, value in changed.items()):
        return record
    return replace(record, **changed)  # type: ignore[type-var]


def _refusal(kind: type, invalid: ValidationError) -> HandraiseError:
    if invalid.error_count() > MOST_PROBLEMS:  # to describe each would take longer than to find them
        sentence = f"{invalid.error_count():,} things of it do not fit"
        if kind is AnswerBody:
            return AnswerDoesNotFit([{"question": None, "problem": sentence}])
        return AskDoesNotFit(sentence, [{"at": "", "problem": sentence}]) if kind is AskBody else BadBody(sentence)
    problems = invalid.errors(include_url=False, include_context=False, include_input=False)
    if problems[0]["type"] == "json_invalid":
        return BadBody(f"the body is not JSON: {problems[0]['msg'].removeprefix('Invalid JSON: ')}")
    said = [{"at": ".".join(map(str, entry["loc"])), "problem": entry["msg"]} for entry in problems[:20]]
    if kind is AnswerBody:
        return AnswerDoesNotFit([_question_problem(entry) for entry in problems[:20]])
    sentence = "; ".join(f"{entry['at'] or 'body'}: {entry['problem']}" for entry in said[:3])
    if kind is AskBody:
        return AskDoesNotFit(sentence, said)
    return BadBody(sentence)


def _question_problem(entry: Any) -> dict[str, Any]:
    where = entry["loc"]
    index = where[1] if len(where) > 1 and where[0] == "answers" and isinstance(where[1], int) else None
    at = ".".join(map(str, where)) or "body"
    return {"question": index, "problem": f"{at}: {entry['msg']}"}
