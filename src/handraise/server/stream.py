"""Server-sent events: history after a cursor, then live, one joined write per listener and commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from starlette.types import Receive, Scope, Send

from handraise.broker import Broker
from handraise.errors import Forbidden
from handraise.feed import Batch, Silence
from handraise.server.gate import require
from handraise.server.http import WrongMethod, query
from handraise.server.protocol import WRITE_CHUNK
from handraise.stores import Query
from handraise.tokens import Token
from handraise.wire import BadBody

__all__ = ["EventRoute", "follow", "start_of", "stream"]

log = logging.getLogger(__name__)

HEARTBEAT = b": heartbeat\n\n"
_TOO_SLOW = "too slow"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that buffers would hold asks back
    (b"x-content-type-options", b"nosniff"),
]


class EventRoute:
    """`GET /v1/events`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            raise WrongMethod("use GET", allow="GET")
        asked = query(scope["query_string"], "after", "run", "session", "worker")
        after = await start_of(self._broker, scope, asked.pop("after", None))
        wanted = Query(**asked, owner=_owner(scope, worker=asked.get("worker")))
        write_chunk = scope.get("extensions", {}).get(WRITE_CHUNK)
        take = None if write_chunk is None else lambda batch: write_chunk(batch.chunk)

        async def frames() -> AsyncIterator[bytes]:
            # An id without data tells a listener where it stands before anything happened.
            yield b"retry: 1000\nid: %d\n\n" % after
            async for batches in follow(self._broker, wanted, after=after, take=take):
                # A listener that comes back after a long silence need not look through what was not for it.
                told = b"id: %d\n" % batches.seen + HEARTBEAT if isinstance(batches, Silence) else b""
                yield told or b"".join(batch.frames for batch in batches)

        await stream(frames(), receive, send)


def _owner(scope: Scope, *, worker: str | None) -> str | None:
    """Whose events a caller hears: all, or, for one that may only ask, those its own worker waits for."""
    token: Token = scope["token"]
    if token.may("answer"):
        return None
    require(scope, "ask")
    if worker is None:
        raise Forbidden(
            f"the token {token.name!r} hears only what its own worker waits for; add `?worker=`", token=token.name
        )
    return token.owner


async def start_of(broker: Broker, scope: Scope, asked: str | None) -> int:
    """Where to read on: `Last-Event-ID`, which a reconnecting client sends, else `?after=`, else from now on."""
    for name, value in scope["headers"]:
        if name == b"last-event-id":
            asked = value.decode("latin-1")
    newest = await broker.store.cursor()
    if asked is None or asked == "":
        return newest
    if not (asked.isascii() and asked.isdigit() and len(asked) < 20):
        raise BadBody("after (or Last-Event-ID) is the id of an event: a whole number")
    return min(int(asked), newest)


async def follow(
    broker: Broker, wanted: Query, *, after: int, take: Callable[[Batch], bool] | None = None
) -> AsyncIterator[list[Batch]]:
    """The batches a listener wants; an empty one is a heartbeat. A listener too slow for its buffer is cut off.

    What `take` takes is not among them.
    """
    listener = asyncio.current_task()
    assert listener is not None
    feed = broker.feeds.follow(wanted, after=after, on_overflow=lambda: _cut_off(listener), take=take)
    try:
        async for batches in feed.batches():
            yield batches
    finally:
        broker.feeds.leave(feed)


def _cut_off(listener: asyncio.Task[object]) -> None:
    log.warning("a listener did not read for too long and was cut off; it may resume by its cursor")
    listener.cancel(_TOO_SLOW)


async def stream(frames: AsyncIterator[bytes], receive: Receive, send: Send) -> None:
    """Send frames until they end, or the listener hangs up or is cut off. An empty one becomes a heartbeat."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    listener = asyncio.current_task()
    assert listener is not None
    hung_up = asyncio.ensure_future(_hung_up(receive))
    hung_up.add_done_callback(lambda done: None if done.cancelled() else listener.cancel())
    try:
        async for joined in frames:
            await send({"type": "http.response.body", "body": joined or HEARTBEAT, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError as cancelled:
        # A stream that just returns is closed by uvicorn without its end, so that the listener knows to come back.
        if cancelled.args != (_TOO_SLOW,) and (not hung_up.done() or hung_up.cancelled()):
            raise
        listener.uncancel()
    finally:
        hung_up.cancel()


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
