"""Asks and events as a store holds them and as a desk tells them.

An ask is encoded once. `Stored.content` is the part that never changes, as the text that goes into the database,
the events and the replies; what changes is put around it when it is told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from handraise.asks import Answer, Ask, Judgement, Origin, Permission, Question, State
from handraise.asks.card import MOST_LABEL, Card, Part
from handraise.errors import AnswerDoesNotFit, AskDoesNotFit, CursorTooOld
from handraise.events import Event, event
from handraise.wire.times import time_text, to_milliseconds, to_time

__all__ = [
    "LARGE",
    "Stored",
    "StoredEvent",
    "answer_text",
    "ask_fields",
    "content_text",
    "judgement_text",
    "parse_answer",
    "parse_ask",
    "parse_event",
    "pruned_frame",
]

LARGE = 256 * 1024  # characters of a content from which copying it is worth avoiding
MOST_KEYS = 50  # arguments that a card names one by one
PRUNED = "pruned"  # the type of the one event that is not about an ask


def _quoted(text: str) -> str:
    return to_json(text).decode()


def _time_or_null(milliseconds: int | None) -> str:
    return "null" if milliseconds is None else f'"{time_text(milliseconds)}"'


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


def judgement_text(judgement: Judgement, *, card: Card | None = None) -> str:
    """What a desk tells of a permission beside its content, as it is stored and told. It is never a part of that: a
    later version that reads a command better must still find that an ask is the one it knows."""
    told = {
        "risks": judgement.risks,
        "commands": judgement.commands or None,
        "doubt": judgement.doubt,
        "only_at_desk": judgement.only_at_desk,
        "card": None if card is None else _card_fields(card),
    }
    return "," + to_json({key: value for key, value in told.items() if value is not None}).decode()[1:-1]


def _card_fields(card: Card) -> dict[str, Any]:
    """A card as it is told: it names fields of its ask, and repeats none of their texts."""
    permission, heading = card.ask.permission, card.heading
    assert permission is not None
    about = {"key": heading.key, "count": heading.count}
    shown = card.named("paths")
    places = zip(permission.paths, () if shown is None else shown.texts, strict=False)
    elsewhere = [at for at, (path, there) in enumerate(places) if path != there]
    told = {
        "heading": {key: value for key, value in about.items() if value is not None},
        "parts": [part.name for part in card.parts],
        "arguments": _keys(card.named("arguments")),
        "approved": _keys(card.named("approved")),
        "elsewhere": elsewhere,
        "host": card.host,
        "claim": bool(card.claim),
        "lacks_diff": card.lacks_diff,
        "notification": card.fits_notification,
    }
    return {key: value for key, value in told.items() if value or key == "parts"}


def _keys(part: Part | None) -> list[str]:
    """The names of arguments, where they are few; otherwise all of them are meant."""
    value = {} if part is None or not isinstance(part.value, Mapping) else part.value
    is_short = len(value) <= MOST_KEYS and sum(map(len, value)) <= MOST_KEYS * MOST_LABEL
    return list(value) if is_short else []


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
