"""A call to a desk and what comes back: a reply, a problem on the way, or the error that the desk tells."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from handraise import errors
from handraise.errors import (
    AnswerDoesNotFit,
    AskDoesNotFit,
    AskNotFound,
    AskWithdrawn,
    DeskBroke,
    HandraiseError,
    RuleNotFound,
    SessionEnded,
    SessionNotFound,
)

__all__ = ["Away", "Call", "Http", "Lost", "NotProven", "NotSent", "Reply", "error_of", "read"]

T = TypeVar("T")
R = TypeVar("R")

AWAY = (502, 503, 504)  # what a proxy says in place of a desk that is not there


class Call(NamedTuple):
    """One request over HTTP."""

    method: str
    url: str  # the address of the desk
    target: str  # path and query behind that
    headers: Mapping[str, str]
    content: bytes | None = None
    silence: float = 10.0  # seconds that may pass without a byte of the reply
    key: str | None = None  # what the desk proves itself with on a new connection; None where it has not to


class Reply(NamedTuple):
    """A whole reply over HTTP."""

    status: int
    media_type: str
    content: bytes


class Http(Protocol):
    """A way to make calls. With TLS `context` says whom to trust; without it there is no TLS."""

    def __init__(self, context: ssl.SSLContext | None) -> None: ...

    async def request(self, call: Call) -> Reply:
        """Raises NotSent, NotProven and Lost."""

    async def close(self) -> None: ...


class Lost(Exception):
    """The connection failed, and nobody knows whether the desk took the call."""


class NotSent(Lost):
    """There was no connection, so the desk has not taken the call."""


class NotProven(NotSent):
    """Another program listens where the desk of this home was, or the desk is an older one that has no proof."""

    def __init__(self) -> None:
        super().__init__("it could not prove that it is the desk which wrote down its address")


class Away(Lost):
    """A proxy spoke in place of the desk, which is not there."""


def read(told: T, parse: Callable[[T], R]) -> R:
    """What a desk told, parsed. Raises DeskBroke where no desk would tell such a thing."""
    try:
        return parse(told)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DeskBroke("what answers there does not speak as a handraise desk does") from None


def error_of(status: int, body: bytes) -> HandraiseError | Away:
    """The exception that the desk raised, from what it told."""
    try:
        told = json.loads(body)
        code, message = told.pop("error"), told.pop("message")
    except (ValueError, KeyError, AttributeError, TypeError):
        sentence = f"what answers there is not a handraise desk (status {status})"
        return Away(sentence) if status in AWAY else DeskBroke(sentence, status=status)
    match code:
        case "rule_not_found":
            return RuleNotFound(told.get("id", ""))
        case "ask_not_found":
            return AskNotFound(told.get("id", ""))
        case "session_not_found":
            return SessionNotFound(told.get("id", ""))
        case "chat_not_found":
            return errors.ChatNotFound(told.get("id", ""))
        case "run_not_found":
            return errors.RunNotFound(told.get("id", ""))
        case "checkpoint_not_found":
            return errors.CheckpointNotFound(told.get("id", ""))
        case "workflow_not_found":
            return errors.WorkflowNotFound(told.get("name", ""), known=told.get("known", ()))
        case "session_ended":
            return SessionEnded(told.get("id", ""), state=told.get("state", "done"))
        case "ask_withdrawn":
            return AskWithdrawn(told.get("id", ""), reason=told.get("reason"))
        case "answer_does_not_fit":
            return AnswerDoesNotFit(told.get("problems", []))
        case "ask_does_not_fit":
            return AskDoesNotFit(message, told.get("problems", []))
        case "ask_differs":
            return errors.AskDiffers(told.get("id", ""))
    kinds = (getattr(errors, name) for name in errors.__all__)
    kind: type[HandraiseError] = next((kind for kind in kinds if kind.code == code), HandraiseError)
    error = kind(message, **told)
    error.code = str(code)  # also where we have no exception of that name
    return error
