"""What happens at a desk, as it happens: one stream that outlasts the desk's restarts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from handraise.asks import Ask
from handraise.client.connection import PASSING, Connection, Tries, path
from handraise.client.replies import read
from handraise.errors import CursorTooOld
from handraise.events import Event, event
from handraise.transports.sse import Frame, Frames
from handraise.wire.plain import from_plain

__all__ = ["Also", "Drafts", "Stream"]

Also = Mapping[str, Callable[[], None]]
Drafts = Callable[[dict[str, Any]], None]

PRUNED = "pruned"  # the type of the one event that is not about an ask


@dataclass(kw_only=True)
class Stream:
    """Every event once, in order, from now on or after a cursor."""

    connection: Connection
    filters: Mapping[str, str | None]
    after: int | None
    also: Also = field(default_factory=dict)
    drafts: Drafts | None = None

    def __post_init__(self) -> None:
        self._cursor = None if self.after is None else str(self.after)
        # Whether it wants what there is; once it was connected, 0 is a place like any other.
        self._begins = self.after == 0

    async def events(self) -> AsyncIterator[Event]:
        """Raises CursorTooOld where events after the cursor were pruned."""
        target = path("events", **self.filters, also=",".join(self.also) or None)
        tries = Tries(self.connection)
        while True:
            headers = {} if self._cursor is None else {"Last-Event-ID": self._cursor}
            url, lived, problem = await tries.next(), False, None
            try:
                async with self.connection.stream(url, target, headers=headers) as content:
                    lived, tries = True, Tries(self.connection)
                    frames = Frames()
                    async for chunk in content:
                        for frame in frames.feed(chunk):
                            for told in self._take(frame):
                                yield told
            except PASSING as failure:
                problem = failure
            self._begins = self._begins and not lived
            await tries.failed(url, problem, lived=lived)

    def _take(self, frame: Frame) -> Iterator[Event]:
        """The event of a frame, if it is one."""
        seen, self._cursor = self._cursor, frame.id if frame.id is not None else self._cursor
        if frame.event == "changed":
            for what in read(frame.data, _what_changed):
                self.also.get(what, lambda: None)()
        elif frame.event == "draft":
            if self.drafts is not None:
                self.drafts(read(frame.data, _draft))
        elif frame.data and self._cursor is not None:
            try:
                yield read((frame.data, self._cursor), _event)
            except CursorTooOld:
                if seen != "0" or not self._begins:
                    raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    type: str
    at: datetime
    ask: Ask


def _event(frame: tuple[str, str]) -> Event:
    """From the data of a frame and the cursor there."""
    told, cursor = json.loads(frame[0]), int(frame[1])
    if told["type"] == PRUNED:
        raise CursorTooOld(through=cursor)
    known = from_plain(_Told, told)
    return event(known.type, cursor=cursor, at=known.at, ask=known.ask)


def _what_changed(told: str) -> list[str]:
    return [str(what) for what in json.loads(told)["what"]]


def _draft(told: str) -> dict[str, Any]:
    """What a reply grew by, with all that whoever takes it needs."""
    draft: dict[str, Any] = json.loads(told)
    block, offset = int(draft["block"]), int(draft["offset"])
    return {**draft, "block": block, "offset": offset, "text": str(draft["text"])}
