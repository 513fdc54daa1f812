"""Plain ASGI, as little of it as the hot routes need: write JSON, tell an error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from pydantic_core import to_json
from starlette.types import Scope, Send

from handraise.errors import HandraiseError
from handraise.transports.bodies import MOST_BYTES, Gone, TooLarge, hung_up, read_body
from handraise.wire import BadBody
from handraise.wire.plain import to_plain

__all__ = [
    "LONGEST_WAIT",
    "MOST_BYTES",
    "ExtraMissing",
    "Gone",
    "RouteNotFound",
    "TooLarge",
    "WrongMethod",
    "encode",
    "error_body",
    "error_headers",
    "hung_up",
    "is_here",
    "query",
    "read_body",
    "seconds_in",
    "send_error",
    "send_json",
    "send_pieces",
]

LONGEST_WAIT = 300.0  # seconds that a call is parked

_JSON = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]


class WrongMethod(HandraiseError):
    code = "method_not_allowed"
    status = 405


class RouteNotFound(HandraiseError):
    code = "not_found"
    status = 404


class ExtraMissing(HandraiseError):
    code = "extra_missing"
    status = 501


def encode(told: Any) -> bytes:
    """A shape, or what JSON can hold."""
    return to_json(to_plain(told))


def error_body(error: HandraiseError) -> bytes:
    return to_json({"error": error.code, "message": error.message, **error.fields})


async def send_json(send: Send, body: bytes, *, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    await send_pieces(send, (body,), status=status, headers=headers)


async def send_pieces(
    send: Send, pieces: Sequence[bytes], *, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """The same with a body that is not joined, since that would copy it."""
    size = sum(map(len, pieces))
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*_JSON, (b"content-length", b"%d" % size), *headers],
        }
    )
    for piece in pieces[:-1]:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": pieces[-1]})


def error_headers(error: HandraiseError) -> list[tuple[bytes, bytes]]:
    match error.status:
        case 401:
            return [(b"www-authenticate", b'Bearer realm="handraise"')]
        case 405:
            return [(b"allow", str(error.fields["allow"]).encode())]
        case 503:
            return [(b"retry-after", b"1")]
        case _:
            return []


async def send_error(send: Send, error: HandraiseError) -> None:
    await send_json(send, error_body(error), status=error.status, headers=error_headers(error))


def seconds_in(asked: Mapping[str, str]) -> float | None:
    """How long a caller wants to wait, from a query; None where it does not say. Raises BadBody."""
    if "wait" not in asked:
        return None
    try:
        seconds = float(asked["wait"])
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_WAIT:  # NaN fits nowhere
        raise BadBody(f"wait is a number of seconds from 0 to {LONGEST_WAIT:g}")
    return seconds


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


_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"})


def is_here(scope: Scope) -> bool:
    """Whether the caller is on this machine: it called by loopback, and nobody passed the call on."""
    client = scope.get("client")
    is_loopback = client is not None and client[0] in ("127.0.0.1", "::1")
    return is_loopback and not any(name in _FORWARDED for name, _ in scope["headers"])
