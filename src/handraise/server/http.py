"""Plain ASGI, as little of it as the hot routes need: read a body, write JSON, tell an error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from handraise.errors import (
    AlreadyAnswered,
    AnswerDoesNotFit,
    AskDiffers,
    AskDoesNotFit,
    AskNotFound,
    AskWithdrawn,
    Forbidden,
    HandraiseError,
    Overloaded,
    PluginNotFound,
    SessionEnded,
    SessionNotFound,
    SettingsError,
    StoreError,
    Unauthorized,
)
from handraise.wire import BadBody

__all__ = [
    "MOST_BYTES",
    "Gone",
    "RouteNotFound",
    "TooLarge",
    "WrongMethod",
    "error_body",
    "error_headers",
    "hung_up",
    "query",
    "read_body",
    "send_error",
    "send_json",
    "status_of",
]

MOST_BYTES = 4 * 1024 * 1024

_JSON = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]


class TooLarge(HandraiseError):
    code = "too_large"


class WrongMethod(HandraiseError):
    code = "method_not_allowed"


class RouteNotFound(HandraiseError):
    code = "not_found"


class Gone(Exception):
    """The caller hung up. Nobody is left to be told anything."""


# The one place where an exception becomes a status; `client.py` turns the code back into the exception.
_STATUS: list[tuple[type[HandraiseError], int]] = [
    (AskNotFound, 404),
    (SessionNotFound, 404),
    (PluginNotFound, 404),
    (RouteNotFound, 404),
    (WrongMethod, 405),
    (AskDiffers, 409),
    (AlreadyAnswered, 409),
    (SessionEnded, 409),
    (AskWithdrawn, 410),
    (TooLarge, 413),
    (AskDoesNotFit, 422),
    (AnswerDoesNotFit, 422),
    (SettingsError, 422),
    (BadBody, 400),
    (Unauthorized, 401),
    (Forbidden, 403),
    (Overloaded, 503),
    (StoreError, 503),
]


def status_of(error: HandraiseError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def error_body(error: HandraiseError) -> bytes:
    return to_json({"error": error.code, "message": error.message, **error.fields})


async def send_json(send: Send, body: bytes, *, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*_JSON, (b"content-length", b"%d" % len(body)), *headers],
        }
    )
    await send({"type": "http.response.body", "body": body})


def error_headers(error: HandraiseError) -> list[tuple[bytes, bytes]]:
    match status_of(error):
        case 401:
            return [(b"www-authenticate", b'Bearer realm="handraise"')]
        case 405:
            return [(b"allow", str(error.fields["allow"]).encode())]
        case 503:
            return [(b"retry-after", b"1")]
        case _:
            return []


async def send_error(send: Send, error: HandraiseError) -> None:
    await send_json(send, error_body(error), status=status_of(error), headers=error_headers(error))


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """The whole body. Raises TooLarge without keeping more than the limit, Gone when the caller hangs up.

    What comes after the limit is left to uvicorn, which reads it and throws it away. Closing the connection instead
    would reset it under a caller that still sends, and the refusal would never be read.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > MOST_BYTES:
            raise _too_large()
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > MOST_BYTES:
            raise _too_large()
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large() -> TooLarge:
    return TooLarge(f"the body is larger than {MOST_BYTES // 1024 // 1024} MiB; ask with less text")


def hung_up(receive: Receive) -> bool:
    """Whether the caller of a request whose body was read has left. Takes one step of `receive`, which else waits."""
    step = receive()
    try:
        step.send(None)  # type: ignore[attr-defined]
    except StopIteration as told:
        return bool(told.value["type"] == "http.disconnect")
    step.close()  # type: ignore[attr-defined]
    return False


def query(raw: bytes, *known: str) -> dict[str, Any]:
    """The query's parameters. Raises BadBody for one that the route does not know or that is given twice."""
    if not raw:
        return {}
    found: dict[str, Any] = {}
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError:
        raise BadBody("the query string cannot be read") from None
    for key, value in pairs:
        if key not in known:
            raise BadBody(f"unknown parameter {key!r}; known here: {', '.join(known) or 'none'}")
        if key in found:
            raise BadBody(f"parameter {key!r} is given twice")
        found[key] = value
    return found
