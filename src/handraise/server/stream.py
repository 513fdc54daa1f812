"""Server-sent events: history after a cursor, then live, one joined write per listener and commit.

Asks have a history. Of sessions, runs, checkpoints, chats and showings a listener that wants to is told that something
changed, and reads it: such a hint has no cursor, several of them become one, and the first comes with the stream. What
a chat's reply grows by is told as it is written, also without a cursor; whoever missed a piece reads the chat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import chain

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from handraise.broker import Broker
from handraise.broker.feed import Batch, Feed, Silence
from handraise.chat.runtime import Chats, Piece
from handraise.errors import Forbidden
from handraise.server.declare import POSITION, TEXT, Parameter, Tag, declare
from handraise.server.gate import require
from handraise.server.http import WrongMethod, query
from handraise.server.protocol import WRITE_CHUNK
from handraise.server.routes.asks import RUN, SESSION
from handraise.stores import Query
from handraise.tables.tokens import Token
from handraise.transports.bodies import CONNECTION
from handraise.wire import LARGE, BadBody, time_text
from handraise.wire.asks import Event, Hint, Pruned
from handraise.wire.chats import Draft

__all__ = ["HINTED", "EventRoute", "follow", "start_of", "stream"]

log = logging.getLogger(__name__)

HEARTBEAT = b": heartbeat\n\n"
_TOO_SLOW = "too slow"
# What may be told beside asks, and the topics that it changes under: a checkpoint opens with a row of its run's trace.
HINTED: Mapping[str, tuple[str, ...]] = {
    "chats": ("chats",),
    "checkpoints": ("checkpoints", "runs"),
    "runs": ("runs", "checkpoints"),
    "sessions": ("sessions",),
    "showings": ("showings",),
}
CALM = 0.2  # seconds between two hints to one listener
TOGETHER = 0.04  # seconds in which pieces of a reply gather
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that buffers would hold asks back
    (b"x-content-type-options", b"nosniff"),
]

EVENTS = Tag("events", "What happens, as it happens.")
AFTER_EVENT = Parameter(
    "after", schema=POSITION, meaning="Read on after this cursor; 0 is the beginning.", key="after_event"
)
WORKER = Parameter("worker", schema=TEXT, meaning="Only what this worker waits for.")
ALSO = Parameter(
    "also",
    schema={"type": "string", "examples": ["checkpoints,sessions,runs,chats,showings"]},
    meaning="Tell, too, when some of these may have changed: `checkpoints`, `sessions`, `runs`, `chats`, "
    "`showings`, with commas between them. With `chats`, what replies grow by is told as well.",
)
LAST_EVENT_ID = Parameter(
    "Last-Event-ID", schema=POSITION, meaning="As `after`, and stronger; browsers send it.", place="header"
)


class EventRoute:
    """`GET /v1/events`."""

    def __init__(self, broker: Broker, *, chats: Chats | None = None) -> None:
        self._broker = broker
        self._chats = chats

    @declare(
        "GET /v1/events",
        id="follow_events",
        summary="Every event once and in order, after a cursor or from now on. A token that may only ask names its "
        "`worker`",
        tag=EVENTS,
        scope="",
        parameters=(AFTER_EVENT, RUN, SESSION, WORKER, ALSO, LAST_EVENT_ID),
        replies={
            200: (
                "text/event-stream",
                "Each frame has the cursor as `id` and an Event as `data`, or a Pruned where events after your "
                "cursor are no longer kept. With `also`, frames without an id have a Hint: read again what it "
                "names; or, of `chats`, a Draft: what a reply grew by.",
            )
        },
        inside=(Event, Pruned, Hint, Draft),
        refusals=(BadBody,),
    )
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            raise WrongMethod("use GET", allow="GET")
        asked = query(scope["query_string"], "after", "run", "session", "worker", "also")
        also = _also(scope, asked.pop("also", ""))
        after = await start_of(self._broker, scope, asked.pop("after", None))
        wanted = Query(**asked, owner=_owner(scope, worker=asked.get("worker")))
        write_chunk = scope.get("extensions", {}).get(WRITE_CHUNK)
        take = None if write_chunk is None else lambda batch: write_chunk(batch.chunk)

        hints = _Hints(self._broker, also, chats=self._chats)

        async def frames() -> AsyncIterator[bytes]:
            # An id without data tells a listener where it stands before anything happened.
            yield b"retry: 1000\nid: %d\n\n" % after
            async for batches in follow(self._broker, wanted, after=after, take=take, meet=hints.poke):
                changed = hints.take()
                # A listener that comes back after a long silence need not look through what was not for it.
                told = b"id: %d\n" % batches.seen + HEARTBEAT if isinstance(batches, Silence) and not changed else b""
                if sum(batch.size for batch in batches) > LARGE:  # to join them is to copy them for each listener
                    for piece in chain.from_iterable(batch.pieces() for batch in batches):
                        yield piece
                    if changed:
                        yield changed
                    del batches  # they are not held while the next are read
                    continue
                yield told or b"".join(batch.frames for batch in batches) + changed

        connection = scope.get(CONNECTION)
        held = nullcontext() if connection is None else connection.streaming()
        # Who is told whatever is asked is a person: the web app and terminals, and programs like them.
        with held, hints, self._broker.presence.looking() if wanted.everything else nullcontext():
            await stream(frames(), receive, send)


class _Hints:
    """What may have changed since a listener was told, beside asks, and what replies grew by."""

    def __init__(self, broker: Broker, also: Iterable[str], *, chats: Chats | None) -> None:
        self._broker = broker
        self._chats = chats
        self._also = tuple(also)
        self._changed = set(also)
        self._pieces: list[Piece] = []
        self._feed: Feed | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._gathering: asyncio.TimerHandle | None = None
        self._stack = ExitStack()

    def __enter__(self) -> None:
        for what in self._also:
            for topic in HINTED[what]:
                self._stack.callback(self._broker.store.hear(topic, partial(self._note, what)))
        if self._chats is not None and "chats" in self._also:
            self._stack.callback(self._chats.hear(self._gather))

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for timer in (self._resting, self._gathering):
            if timer is not None:
                timer.cancel()

    def poke(self, feed: Feed) -> None:
        self._feed = feed
        self._wake()

    def take(self) -> bytes:
        """The frames that tell it, if there is anything; after a hint there is no other for a moment."""
        told = b""
        if self._pieces and self._gathering is None:
            told = b"".join(
                b"event: draft\ndata: " + to_json({"type": "draft"} | piece._asdict()) + b"\n\n"
                for piece in self._pieces
            )
            self._pieces.clear()
        if not self._changed or self._resting is not None:
            return told
        hint = {"type": "changed", "at": time_text(self._broker.clock.now()), "what": sorted(self._changed)}
        self._changed.clear()
        self._resting = asyncio.get_running_loop().call_later(CALM, self._rested)
        return told + b"event: changed\ndata: " + to_json(hint) + b"\n\n"

    def _note(self, what: str) -> None:
        self._changed.add(what)
        self._wake()

    def _gather(self, piece: Piece) -> None:
        last = self._pieces[-1] if self._pieces else None
        if last is not None and (last.message, last.block) == (piece.message, piece.block):
            self._pieces[-1] = last._replace(text=last.text + piece.text)
        else:
            self._pieces.append(piece)
        if self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(TOGETHER, self._gathered)

    def _gathered(self) -> None:
        self._gathering = None
        self._wake()

    def _rested(self) -> None:
        self._resting = None
        self._wake()

    def _wake(self) -> None:
        is_due = bool(self._changed and self._resting is None) or bool(self._pieces and self._gathering is None)
        if is_due and self._feed is not None:
            self._feed.poke()


def _also(scope: Scope, asked: str) -> tuple[str, ...]:
    """What a listener wants to be told of beside asks. Raises BadBody, Forbidden."""
    if not asked:
        return ()
    require(scope, "answer")
    wanted = dict.fromkeys(asked.split(","))
    if unknown := [what for what in wanted if what not in HINTED]:
        raise BadBody(f"also has {unknown[0]!r}; it is a list with commas of: {', '.join(HINTED)}")
    return tuple(wanted)


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
    broker: Broker,
    wanted: Query,
    *,
    after: int,
    take: Callable[[Batch], bool] | None = None,
    meet: Callable[[Feed], None] | None = None,
) -> AsyncIterator[list[Batch]]:
    """The batches a listener wants; an empty one is a heartbeat. A listener too slow for its buffer is cut off.

    What `take` takes is not among them. `meet` gets the feed, to poke it.
    """
    listener = asyncio.current_task()
    assert listener is not None
    feed = broker.feeds.follow(wanted, after=after, on_overflow=lambda: _cut_off(listener), take=take)
    if meet is not None:
        meet(feed)
    try:
        async for batches in feed.batches():
            yield batches
            del batches
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
