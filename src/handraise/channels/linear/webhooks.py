"""What Linear sends us: proven by its signature over the raw bytes, then read as one of three things. Pure.

Linear's own types are loose: what we do not know is ignored, and nothing is required but what names the session.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from handraise.channels import BadCall
from handraise.wire import BadBody, check_values

__all__ = [
    "BadSignature",
    "Created",
    "Other",
    "Prompted",
    "Stale",
    "Webhook",
    "kept",
    "key_of",
    "read",
    "read_kept",
    "verify",
]

FURTHEST = 10**15  # milliseconds from 1970, either way: beyond the year 30,000
WINDOW = 60_000  # milliseconds that a delivery may be old or early; Linear's own client takes the same


class BadSignature(BadCall):
    code = "bad_signature"


class Stale(BadCall):
    """The signature is right, the time in the signed body is not."""

    code = "stale_webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    id: str
    identifier: str = ""
    title: str = ""
    description: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    id: str
    name: str = ""
    email: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A person gave the agent an issue, or mentioned it in a comment."""

    session: str
    app_user: str
    creator: Person | None  # None where an automation or another agent did
    issue: Issue | None  # None for documents and projects
    comment: str | None  # what was said where it was mentioned
    context: str  # as Linear prepared it
    previous: tuple[str, ...]  # comments before, the oldest first
    url: str

    @property
    def is_question(self) -> bool:
        """Asked in a comment, where an assignment comes without one."""
        return self.comment is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted:
    """A person wrote in the session, chose an option, or pressed stop."""

    session: str
    activity: str
    text: str
    user: Person | None
    stop: bool
    at: str = ""  # when that was, by Linear's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """Whatever else comes to the same address."""

    type: str
    action: str


Webhook: TypeAlias = Created | Prompted | Other


def verify(raw: bytes, *, signature: str | None, secrets: Sequence[str], now: int) -> Mapping[str, Any]:
    """The body, if one of the secrets signed these bytes within the last minute. Raises BadSignature, Stale, BadBody.

    The time is taken from the signed body alone: anybody can send a header.
    """
    expected = (hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest() for secret in secrets)
    given = (signature or "").encode("ascii", "replace")
    if not any([hmac.compare_digest(given, each.encode()) for each in expected]):
        raise BadSignature("this is not signed with the secret of our webhook; compare it with Linear's settings")
    body = _parsed(raw)
    sent = body.get("webhookTimestamp") if isinstance(body, dict) else None
    if isinstance(sent, bool) or not isinstance(sent, int | float):
        raise Stale("the signed body has no time, so it may have been sent before")
    if not -FURTHEST < sent < FURTHEST:
        raise BadBody("the time in the signed body is none")
    if abs(now - sent) > WINDOW:
        raise Stale(f"this was sent {abs(now - sent) / 1000:.0f} s from now by the desk's clock; check that clock")
    assert isinstance(body, dict)
    return body


def _parsed(raw: bytes) -> Any:
    """What the bytes say, as JSON that everybody reads: json.loads takes NaN and infinities too. Raises BadBody."""
    check_values(raw)
    try:
        return json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BadBody("the signed body is not JSON, or nested too deep") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def read(body: Mapping[str, Any]) -> Webhook:
    session = _table(body, "agentSession")
    kind, action = _text(body, "type"), _text(body, "action")
    if kind != "AgentSessionEvent" or not _text(session, "id"):
        return Other(type=kind, action=action)
    if action == "created":
        comment = _table(session, "comment")
        return Created(
            session=_text(session, "id"),
            app_user=_text(session, "appUserId") or _text(body, "appUserId"),
            creator=_person(session.get("creator")),
            issue=_issue(session.get("issue")),
            comment=_text(comment, "body") if comment else None,
            context=_text(body, "promptContext"),
            previous=tuple(_comments(body.get("previousComments"))),
            url=_text(session, "url"),
        )
    activity = _table(body, "agentActivity")
    if action != "prompted" or not activity:
        return Other(type=kind, action=action)
    content = _table(activity, "content")
    return Prompted(
        session=_text(session, "id"),
        activity=_text(activity, "id"),
        text=_text(content, "body") or _text(activity, "body"),
        user=_person(activity.get("user")),
        stop=activity.get("signal") == "stop",
        at=_text(activity, "createdAt"),
    )


def kept(event: Created | Prompted) -> dict[str, Any]:
    """What came in as it is written down; `read_kept` reads it back."""
    return asdict(event)


def read_kept(body: Mapping[str, Any]) -> Created | Prompted:
    if "activity" in body:
        return Prompted(**{**body, "user": body["user"] and Person(**body["user"])})
    people = {
        "creator": body["creator"] and Person(**body["creator"]),
        "issue": body["issue"] and Issue(**body["issue"]),
    }
    return Created(**{**body, **people, "previous": tuple(body["previous"])})


def _comments(given: Any) -> list[str]:
    comments = given if isinstance(given, list) else []
    return [body for each in comments if isinstance(each, dict) and (body := _text(each, "body"))]


def _person(given: Any) -> Person | None:
    if not isinstance(given, dict) or not _text(given, "id"):
        return None
    return Person(id=_text(given, "id"), name=_text(given, "name"), email=_text(given, "email"))


def _issue(given: Any) -> Issue | None:
    if not isinstance(given, dict) or not _text(given, "id"):
        return None
    return Issue(**{key: _text(given, key) for key in ("id", "identifier", "title", "description", "url")})


def _table(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = given.get(key)
    return value if isinstance(value, dict) else {}


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    return value if isinstance(value, str) else ""


def key_of(event: Created | Prompted) -> str:
    """The same for the same thing, however often and in whatever way it is told."""
    return f"created {event.session}" if isinstance(event, Created) else f"prompted {event.activity}"
