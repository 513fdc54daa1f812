"""The contract of stores: asks and their events, kept so that nothing acknowledged is ever lost.

A store decides no rule of its own. It opens an ask unless its id is taken, and changes one on a condition; the write
itself decides who was first. Which change is allowed when is said in `broker/` alone.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from handraise.asks import State
from handraise.stores._asks import SETTLED, writable
from handraise.wire import Stored, StoredEvent

__all__ = [
    "NO_EXTRA_WRITES",
    "SETTLED",
    "AlsoWrite",
    "Change",
    "Changed",
    "Database",
    "NewAsk",
    "OpenAsks",
    "Opened",
    "Page",
    "Query",
    "Row",
    "Seen",
    "Statement",
    "Store",
    "StoreKind",
    "Tail",
    "without_password",
    "writable",
]

Row: TypeAlias = tuple[Any, ...]
Statement: TypeAlias = tuple[str, Sequence[Any]]  # with its values
Tail: TypeAlias = Callable[[Sequence[StoredEvent]], None]
Page: TypeAlias = tuple[str, Sequence[str], Sequence[Row]]  # of a table: its name, columns, whole rows


class AlsoWrite(NamedTuple):
    """What another room writes in the commit that opens or closes an ask, and only if that write was the one."""

    statements: Sequence[Statement] = ()
    topic: str | None = None  # told to those who hear it, once it is committed


NO_EXTRA_WRITES = AlsoWrite()


class NewAsk(NamedTuple):
    """A row to be: the columns of an ask with its verdict. `events` are told with it, in order."""

    id: str
    base: str | None  # for ids that carry an ordinal: the id without it
    owner: str
    worker: str | None
    session: str
    run: str | None
    agent: str
    content: str
    state: State
    asked_at: int
    timeout: int | None
    deadline: int | None
    fallback: str | None
    answer: str | None
    judgement: str | None
    events: tuple[str, ...]


class Opened(NamedTuple):
    """What became of opening: `new` and `reopened` were written, `joined` and `differs` found what was there."""

    how: Literal["new", "reopened", "joined", "differs"]
    stored: Stored


class Change(NamedTuple):
    """A write that happens only if the ask is in one of `states` and every other condition holds."""

    states: tuple[State, ...]
    set: Mapping[str, Any]  # column -> value
    event: str
    at: int
    due: int | None = None  # only if its deadline is at or before this
    empty: tuple[str, ...] = ()  # only if nothing stands in these columns yet
    source: str | None = None  # who did it and from where, as JSON; kept with the event for the audit, told to nobody
    also_write: AlsoWrite = NO_EXTRA_WRITES


class Changed(NamedTuple):
    """`done` says whether this write was the one; `stored` is the ask afterwards either way."""

    done: bool
    stored: Stored


class OpenAsks(NamedTuple):
    """How many asks wait for an answer, and since when the oldest one does."""

    total: int
    oldest: int | None  # when it was asked; looked for among the thousand with the lowest `seq` only


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which asks, or events about which asks. Empty means all."""

    state: State | Literal["settled"] | None = None  # settled: whatever is not asked any more
    agent: str | None = None
    session: str | None = None
    run: str | None = None
    worker: str | None = None
    owner: str | None = None

    def matches(self, stored: Stored) -> bool:
        if self.state == SETTLED:
            return stored.state != "asked" and replace(self, state=None).matches(stored)
        return all(value is None or getattr(stored, key) == value for key, value in self.items())

    def items(self) -> tuple[tuple[str, str | None], ...]:
        return (
            ("state", self.state),
            ("agent", self.agent),
            ("session", self.session),
            ("run", self.run),
            ("worker", self.worker),
            ("owner", self.owner),
        )

    @property
    def everything(self) -> bool:
        return all(value is None for _, value in self.items())


class Seen(NamedTuple):
    """A database as `look` finds it, which makes nothing, locks nothing and migrates nothing."""

    shown: str  # where it is, for people; without a password
    place: str  # equal for two addresses of one database, however they are spelled
    version: int | None  # None where no desk has been yet
    is_old: bool = False  # a desk that starts there would migrate it first


class StoreKind(Protocol):
    """What a member of this family gives as `plugin`. Its name is the scheme of the addresses that it opens."""

    async def open_address(self, address: str, /) -> Store:
        """Raises StoreError, StoreInUse, StoreTooNew, SettingsError."""

    async def look(self, address: str, /) -> Seen:
        """What is there, without making, locking or migrating anything. Raises StoreError, SettingsError."""


class Database(Protocol):
    """What other rooms (tokens, sessions, runs, chats) keep their own rows with."""

    clock: str  # its own time in milliseconds since 1970, as SQL

    async def write(self, sql: str, *values: Any, topic: str | None = None) -> list[Row]:
        """Run one statement durably, in the next commit. Rows come from RETURNING.

        With a `topic`, whoever hears it is told once it is committed, at every desk of the database.
        """

    async def write_all(self, *statements: Statement, topic: str | None = None) -> list[list[Row]]:
        """The same with several statements, which are all in one commit, or none of them is."""

    async def read(self, sql: str, *values: Any) -> list[Row]:
        """Read what was committed. For small, keyed reads."""

    async def read_page(self, sql: str, *values: Any, contents: Sequence[str], most: int) -> list[Row]:
        """Read a list of what may be large, beside the loop. It ends with the row with which the texts in the columns
        `contents` have `most` characters, if that comes before the limit, which is the last value."""

    def hear(self, topic: str, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when something was written under this topic, here or at another desk, and when that may
        have been missed; until the returned function is called."""

    # Moving house: what `handraise store copy` needs.

    async def tables(self) -> dict[str, list[str]]:
        """Every table that holds state, with its columns; the first column is its key."""

    async def fill(self, pages: AsyncIterable[Page]) -> None:
        """Write whole rows into an empty database, all or nothing."""


class Store(Database, Protocol):
    async def open(self, new: NewAsk, *, also_write: AlsoWrite = NO_EXTRA_WRITES) -> Opened:
        """Write a new ask, or find the one that has its id; one that was withdrawn opens again."""

    async def change(self, id: str, change: Change) -> Changed | None:
        """Change an ask if the conditions hold when it is written. None if there is no such ask."""

    async def change_all(self, changes: Sequence[tuple[str, Change]]) -> list[Changed | None]:
        """Several changes in one commit, each on its own condition."""

    async def get(self, id: str) -> Stored | None:
        """The ask as it was last committed."""

    async def newest(self, bases: Sequence[str]) -> dict[str, Stored]:
        """By base, the ask opened last among those whose id is that base with an ordinal."""

    async def find(
        self,
        query: Query,
        *,
        after: int = 0,
        limit: int = 100,
        newest: bool = False,
        text: str | None = None,
        most: int | None = None,
    ) -> list[Stored]:
        """Asks in the order they were first asked, those with `seq` above `after`. With `most` they end with the one
        with which their contents have so many characters, if that comes before the limit.

        With `newest` it is the other way around: those with `seq` below `after`, where 0 begins with the last one.
        With `text` only those in which people see it, in any case: in what was asked, answered, or said at the end.
        """

    async def history(
        self,
        query: Query,
        *,
        after: int,
        limit: int,
        since: int | None = None,
        types: Sequence[str] = (),
        most: int | None = None,
    ) -> list[StoredEvent]:
        """Committed events with a cursor above `after`, in order; only those told at `since` or later, or of these
        `types`, where given. `query.state` does not apply. `most` as with `find`."""

    async def cursor(self) -> int:
        """The cursor of the last committed event, 0 if there is none."""

    async def open_asks(self) -> OpenAsks:
        """What waits, without reading all of it; for the metrics."""

    async def deadlines(self) -> list[tuple[int, str]]:
        """`(deadline, id)` of every open ask that has one."""

    async def untaken(self) -> list[str]:
        """Ids of those among the asks of the last 10,000 events that have an answer, and no word from its agent."""

    async def prune(self, *, before: int, limit: int) -> int:
        """Forget the oldest events, at most `limit` of them and none told at `before` or later, and the settled asks
        that have no event left. Returns how many events went; fewer than `limit` means that was all.

        No cursor is ever given out twice.
        """

    async def pruned(self) -> int:
        """The cursor up to which events were pruned: whoever stands before it has missed something."""

    def tail(self, listener: Tail) -> Callable[[], None]:
        """Call `listener` with the events of each commit, in order, until the returned function is called.

        Those of other desks on the same database are told as well, in the order of their cursors. Events told to a
        listener are committed. Those of a writer are told before the writer's own call returns.
        """

    @property
    def trouble(self) -> str | None:
        """What does not work right now, in a sentence; None when all is well."""

    @property
    def troubles(self) -> Mapping[str, str]:
        """All that does not work right now: `writing`, `reading` or `listening` to other desks, each in a sentence."""

    @property
    def about(self) -> tuple[str, str]:
        """The kind of database and its version, such as `("sqlite", "3.45.1")`; for the metrics."""

    @property
    def commits(self) -> Mapping[int, int]:
        """How many commits since the start carried how many operations; for the metrics."""

    async def close(self) -> None:
        """Finish what was accepted, then let go of the database."""


def without_password(address: str) -> str:
    """An address of a database as it may be shown. Of one that is spelled wrong it rather leaves too little."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        scheme, rest = "", address
    if scheme == "sqlite":
        return address
    rest = re.sub(r"(?<=[?&])(ssl)?password=[^&]*&?", "", rest, flags=re.IGNORECASE).rstrip("?&")
    secret, at, place = rest.rpartition("@")
    return f"{scheme}{mark}{secret.partition(':')[0]}{at}{place}"
