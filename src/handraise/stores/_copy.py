"""Moving house: everything a desk keeps, from one database into an empty one, and then compared.

It knows stores by their contract alone, so it works between any two, in either direction. Rows go over as they are, a
page at a time, in one transaction of the target.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from handraise.errors import StoreError
from handraise.stores import Database, Page, Row, Store

__all__ = ["Copied", "Progress", "copy", "counted"]

Tables: TypeAlias = Mapping[str, Sequence[str]]  # name -> columns, the key first

PAGE = 250  # rows in memory at a time; one of them may have megabytes

# Named numbers. Of these, `cursor` is PostgreSQL's own: SQLite reads it from the events, and `fill` sets it.
COUNTERS = "counters"
KEPT_BY_FILL = "cursor"


class Progress(NamedTuple):
    """How far it is: `done` of `total` rows, of all tables together. Comparing counts the rows of both sides."""

    doing: Literal["copying", "comparing"]
    table: str
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What was taken over. Both sides were read again, and were the same."""

    rows: Mapping[str, int]  # table -> how many
    cursor: int  # of the last event: the next one follows it, as it would have in the source


async def copy(source: Store, target: Store, *, progress: Callable[[Progress], None] = lambda _: None) -> Copied:
    """Take everything over. The source stays as it is.

    Raises StoreError where the target is not empty or has other tables, which leaves it as it is; where it fails or
    is cancelled on the way, which leaves it empty; and where the two differ afterwards, which leaves it filled.
    """
    tables = await source.tables()
    _refuse_other_tables(tables, await target.tables())
    total = await _total(source, tables)
    meter = _Meter("copying", total=total, tell=progress)
    async with aclosing(_pages(source, target, tables=tables, meter=meter)) as pages:
        await target.fill(pages)
    # Committed. From here on, both are only read.
    meter = _Meter("comparing", total=total + await _total(target, tables), tell=progress)
    return await _compare(source, target, tables=tables, meter=meter)


def counted(rows: Mapping[str, int]) -> str:
    """`1 ask, 2 events and 1 session`: tables are named in the plural, and those that hold nothing are left out."""
    some = {table: count for table, count in rows.items() if count} or {"rows": 0}
    *first, last = [f"{count:,} {table[:-1] if count == 1 else table}" for table, count in some.items()]
    return f"{', '.join(first)} and {last}" if first else last


class _Meter:
    """Counts what was done, and tells."""

    def __init__(self, doing: Literal["copying", "comparing"], *, total: int, tell: Callable[[Progress], None]) -> None:
        self._doing: Literal["copying", "comparing"] = doing
        self._total = total
        self._tell = tell
        self._done = 0

    def add(self, table: str, count: int) -> None:
        self._done += count
        self._tell(Progress(self._doing, table, self._done, self._total))


async def _pages(source: Database, target: Database, *, tables: Tables, meter: _Meter) -> AsyncGenerator[Page, None]:
    # Looked at from inside `fill`, which keeps everybody else from writing to the target.
    await _refuse_what_is_not_empty(target, tables)
    for table, columns in tables.items():
        async for rows in _rows(source, table, columns):
            yield table, columns, rows
            meter.add(table, len(rows))


async def _rows(database: Database, table: str, columns: Sequence[str]) -> AsyncIterator[list[Row]]:
    """The rows of a table in the order of its key, a page at a time."""
    key = columns[0]
    selected = f"select {', '.join(columns)} from {table}"  # noqa: S608 - names that the database told us
    page = await database.read(f"{selected} order by {key} limit ?", PAGE)
    while page:
        yield [row for row in page if not (table == COUNTERS and row[0] == KEPT_BY_FILL)]
        await asyncio.sleep(0)  # SQLite never lets go of the loop by itself, and Ctrl+C should be heard
        page = await database.read(f"{selected} where {key} > ? order by {key} limit ?", page[-1][0], PAGE)


async def _total(database: Database, tables: Tables) -> int:
    return sum((await _counts(database, tables)).values())


async def _counts(database: Database, tables: Tables) -> dict[str, int]:
    counts = {}
    for table in tables:
        [[counts[table]]] = await database.read(f"select count(*) from {table}")  # noqa: S608
    return counts


# What is refused --------------------------------------------------------------------------------------------


def _refuse_other_tables(source: Tables, target: Tables) -> None:
    for table in sorted(source.keys() | target.keys()):
        ours, theirs = source.get(table, ()), target.get(table, ())
        if set(ours) == set(theirs) and ours[0] == theirs[0]:
            continue
        other = sorted(set(ours) ^ set(theirs))
        what = f"the table {table}" if not (ours and theirs) else f"{', '.join(other) or ours[0]} in the table {table}"
        raise StoreError(
            f"source and target are not of one version: they differ in {what}; bring both up to date by starting a "
            "desk of this version on each of them once, or copy into a new database",
            table=table,
        )


async def _refuse_what_is_not_empty(target: Database, tables: Tables) -> None:
    counts = await _counts(target, tables)
    found = {table: count for table, count in counts.items() if count and table != COUNTERS}
    if found:
        raise StoreError(
            f"the target is not empty, it holds {counted(found)}; nothing was copied. Name another file, or another "
            "schema (postgresql://…?schema=NAME), or move away what is there"
        )


# What is compared -------------------------------------------------------------------------------------------


class _Digest(NamedTuple):
    rows: int
    hash: int


async def _compare(source: Store, target: Store, *, tables: Tables, meter: _Meter) -> Copied:
    """Read both again. Raises StoreError that names the first table in which they differ."""
    rows: dict[str, int] = {}
    for table, columns in tables.items():
        ours, theirs = [await _digest(side, table, columns, meter=meter) for side in (source, target)]
        if ours != theirs:
            raise _differs(f"the table {table}", f"{ours.rows:,} rows", f"{theirs.rows:,} rows", table=table)
        if table != COUNTERS:
            rows[table] = ours.rows
    cursor, copied = await source.cursor(), await target.cursor()
    if cursor != copied:
        raise _differs("the cursor of the last event", str(cursor), str(copied), table="events")
    return Copied(rows=rows, cursor=cursor)


async def _digest(database: Database, table: str, columns: Sequence[str], *, meter: _Meter) -> _Digest:
    """How many rows, and the sum of their hashes: two databases need not sort texts alike."""
    count = hash = 0
    async for rows in _rows(database, table, columns):
        for row in rows:  # of whole numbers, texts and None, whatever the database
            hash += int.from_bytes(hashlib.blake2b(repr(row).encode(), digest_size=32).digest())
        count += len(rows)
        meter.add(table, len(rows))
    return _Digest(count, hash % (1 << 256))


def _differs(what: str, ours: str, theirs: str, *, table: str) -> StoreError:
    said = f"{ours} in the source, {theirs} in the target" if ours != theirs else f"{ours} on both sides, not the same"
    return StoreError(
        f"the copy is not the same as the source: {what} differs ({said}); do not use it. Stop every desk of the "
        "source, then copy again into a new, empty database",
        table=table,
    )
