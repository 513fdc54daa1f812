"""Where each ask was shown: sent, seen, or why not; and where to find it again when it is settled.

A channel writes what became of its own; nobody else changes that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from handraise.stores import Database, writable
from handraise.wire import time_text
from handraise.wire.channels import Showing
from handraise.wire.plain import shape_of

__all__ = ["TOPIC", "ShowingRecord", "Showings"]

TOPIC = "showings"


class ShowingRecord(NamedTuple):
    channel: str
    state: Literal["sent", "shown", "failed"]
    error: str | None
    at: int

    def to_shape(self) -> Showing:
        return shape_of(Showing, self, at=time_text(self.at))


class Showings:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, ask: str, channel: str, state: str, *, place: str | None, error: str | None, at: int) -> None:
        """The newest word counts. A place that is not named again stays, and stays left where it was left."""
        await self._database.write(
            "insert into showings (id, ask, channel, state, place, error, at) values (?, ?, ?, ?, ?, ?, ?) "
            "on conflict (id) do update set state = excluded.state, error = excluded.error, at = excluded.at, "
            "place = coalesce(excluded.place, showings.place), "
            "left_at = case when excluded.place is null then showings.left_at end",
            _id(ask, channel),
            ask,
            channel,
            state,
            writable(place),
            writable(error),
            at,
            topic=TOPIC,
        )

    async def of(self, ask: str) -> list[ShowingRecord]:
        rows = await self._database.read(
            "select channel, state, error, at from showings where ask = ? order by channel", ask
        )
        return [ShowingRecord._make(row) for row in rows]

    async def waiting(self, *, limit: int) -> list[tuple[str, ShowingRecord]]:
        """Those of asks that wait, with the ask, the oldest ask first."""
        rows = await self._database.read(
            "select showings.ask, showings.channel, showings.state, showings.error, showings.at from asks "
            "join showings on showings.ask = asks.id where asks.state = 'asked' "
            "order by asks.seq, showings.channel limit ?",
            limit,
        )
        return [(ask, ShowingRecord._make(rest)) for ask, *rest in rows]

    async def places(self, channel: str) -> Mapping[str, str]:
        """By ask, where it is shown and does not say yet how it ended."""
        rows = await self._database.read(
            "select ask, place from showings where channel = ? and place is not null and left_at is null", channel
        )
        return dict(rows)

    async def leave(self, ask: str, channel: str, *, at: int) -> None:
        await self._database.write("update showings set left_at = ? where id = ?", at, _id(ask, channel), topic=TOPIC)

    async def trouble(self, ask: str) -> str | None:
        """Why nobody was shown this; None where somebody was, or where nobody tried."""
        records = await self.of(ask)
        if not records or any(record.state != "failed" for record in records):
            return None
        return "; ".join(f"{record.channel}: {record.error or 'it failed'}" for record in records)

    async def forget(self, *, limit: int) -> None:
        """Showings of asks that were pruned."""
        await self._database.write(
            "delete from showings where id in (select showings.id from showings left join asks "
            "on asks.id = showings.ask where asks.id is null limit ?)",
            limit,
        )


def _id(ask: str, channel: str) -> str:
    return f"{channel} {ask}"
