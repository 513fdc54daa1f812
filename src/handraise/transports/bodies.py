"""The body of a call over HTTP, and whether its caller is still there. Plain ASGI, for the desk's own routes and those
that agents in terminals call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handraise.errors import HandraiseError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

__all__ = ["CONNECTION", "MOST_BYTES", "Gone", "TooLarge", "hung_up", "read_body", "until_gone"]

MOST_BYTES = 4 * 1024 * 1024
SMALL = 64 * 1024  # a body that needs no room of its own: the server holds as much of any request
CONNECTION = "handraise.connection"  # the key of a scope under which the desk's own server puts its connection


class TooLarge(HandraiseError):
    code = "too_large"
    status = 413


class Gone(Exception):
    """The caller hung up. Nobody is left to be told anything."""


async def read_body(scope: Scope, receive: Receive, *, most: int = MOST_BYTES) -> bytes:
    """The whole body. Raises TooLarge without keeping more than the limit, Gone when the caller hangs up.

    What comes after the limit is left to the server, which reads it and throws it away. Closing the connection instead
    would reset it under a caller that still sends, and the refusal would never be read. A larger body waits until there
    is room for it; raises Overloaded where that takes too long.
    """
    expected = most
    for name, value in scope["headers"]:
        if name == b"content-length":
            if len(value) > 19 or not value.isdigit() or int(value) > most:
                raise _too_large(most)
            expected = int(value)
    chunks: list[bytes] = []
    size, room = 0, SMALL
    connection = scope.get(CONNECTION)
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > most:
            raise _too_large(most)
        if size > room and connection is not None:
            await connection.reserve(expected)
            room = expected
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body is larger than {most // 1024 // 1024} MiB; send less text")


def hung_up(receive: Receive) -> bool:
    """Whether the caller of a request whose body was read has left. Takes one step of `receive`, which else waits."""
    step = receive()
    try:
        step.send(None)  # type: ignore[attr-defined]
    except StopIteration as told:
        return bool(told.value["type"] == "http.disconnect")
    step.close()  # type: ignore[attr-defined]
    return False


async def until_gone(receive: Receive) -> None:
    """Return once the caller of a request whose body was read has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
