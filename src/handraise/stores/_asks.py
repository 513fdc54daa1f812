"""How asks and events lie in tables: the statements that are the same in every SQL database, with `?` for values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import Any

from handraise.errors import StoreTooNew
from handraise.wire import Stored, StoredEvent

__all__ = [
    "COLUMNS",
    "CONTENT",
    "CONTENT_OF_EVENT",
    "DEADLINES",
    "EVENT_COLUMNS",
    "FIND_ID",
    "FOUND_TOGETHER",
    "NEWEST",
    "OPEN_ASKS",
    "SETTLED",
    "UNTAKEN",
    "event_of",
    "event_row",
    "find",
    "find_seqs",
    "history",
    "migrations",
    "until_full",
    "window",
    "writable",
]

COLUMNS = ", ".join(Stored._fields)
FIND_ID = f"select {COLUMNS} from asks where id = ?"  # noqa: S608 - names of our own columns, here and below
NEWEST = f"select {COLUMNS} from asks where base = ? order by seq desc limit 1"  # noqa: S608
OPEN_ASKS = """
select (select count(*) from asks where state = 'asked'),
    (select min(asked_at) from (select asked_at from asks where state = 'asked' order by seq limit 1000) as first)"""
DEADLINES = "select deadline, id from asks where state = 'asked' and deadline is not null"

# Among the latest events: an index of its own would cost every answer more than this costs a start.
UNTAKEN = """select distinct asks.id from events join asks on asks.seq = events.ask
where events.cursor > (select coalesce(max(cursor), 0) - 10000 from events)
and asks.state in ('answered', 'rejected') and asks.delivered_at is null and asks.delivery_error is null"""

CONTENT = Stored._fields.index("content")  # in a row of `find`
CONTENT_OF_EVENT = CONTENT + 4  # in a row of `history`

SETTLED = "settled"  # every state but `asked`, where asks are looked for
FOUND_TOGETHER = 100
_FIND_SEQS = f"select {COLUMNS} from asks where seq in ({', '.join('?' * FOUND_TOGETHER)})"  # noqa: S608
_TEXTS = ("answer", "withdrawn_reason", "delivery_error")

# What an event keeps of its ask: the columns that change. The rest is read from the ask itself.
_KEPT = ("state", "asked_at", "deadline", "answer", "delivered_at", "delivery_error", "withdrawn_reason")
EVENT_COLUMNS = ("cursor", "type", "at", "source", "ask", *_KEPT)
_TOLD = ", ".join(f"events.{name}" if name in _KEPT else f"asks.{name}" for name in Stored._fields)
_HISTORY = f"""
select events.cursor, events.type, events.at, events.source, {_TOLD}
from events join asks on asks.seq = events.ask where events.cursor > ?"""  # noqa: S608


def find(
    wanted: Iterable[tuple[str, str | None]], *, after: int, limit: int, newest: bool = False
) -> tuple[str, list[Any]]:
    return _ordered(COLUMNS, [], wanted, after=after, limit=limit, newest=newest)


def window(
    wanted: Iterable[tuple[str, str | None]],
    *,
    after: int,
    limit: int,
    newest: bool,
    contains: str,
    pieces: Sequence[str],
    ignored: Iterable[str] = (),
) -> tuple[str, list[Any]]:
    """The next asks by their numbers, each with whether one of the pieces is in a column that holds texts, and with the
    length of its content.

    What is `ignored` of the content are words of our own.
    """
    content = "asks.content"
    for word in ignored:
        content = f"replace({content}, '{word}', '')"
    columns = [content, *(f"coalesce(asks.{name}, '')" for name in _TEXTS)]
    held = " or ".join(contains.format(column=column) for column in columns for _ in pieces)
    values = [*pieces] * len(columns)
    return _ordered(f"seq, ({held}), length(asks.content)", values, wanted, after=after, limit=limit, newest=newest)


def find_seqs(seqs: Sequence[int]) -> tuple[str, list[Any]]:
    """At most FOUND_TOGETHER asks by their numbers; fewer are filled up, so that it is one statement."""
    return _FIND_SEQS, [*seqs, *[seqs[-1]] * (FOUND_TOGETHER - len(seqs))]


def _ordered(
    columns: str,
    first: Sequence[Any],
    wanted: Iterable[tuple[str, str | None]],
    *,
    after: int,
    limit: int,
    newest: bool,
) -> tuple[str, list[Any]]:
    conditions, values = _conditions(wanted)
    if not newest:
        conditions, values = ["seq > ?", *conditions], [after, *values]
    elif after:
        conditions, values = ["seq < ?", *conditions], [after, *values]
    where = f"where {' and '.join(conditions)} " if conditions else ""
    sql = f"select {columns} from asks {where}order by seq{' desc' if newest else ''} limit ?"  # noqa: S608
    return sql, [*first, *values, limit]


def history(
    wanted: Iterable[tuple[str, str | None]], *, after: int, limit: int, since: int | None, types: Sequence[str]
) -> tuple[str, list[Any]]:
    conditions, values = _conditions((key, value) for key, value in wanted if key != "state")
    if since is not None:
        conditions.append("events.at >= ?")
        values.append(since)
    if types:
        conditions.append(f"events.type in ({', '.join('?' * len(types))})")
        values += types
    return f"{' and '.join([_HISTORY, *conditions])} order by events.cursor limit ?", [after, *values, limit]


def _conditions(wanted: Iterable[tuple[str, str | None]]) -> tuple[list[str], list[Any]]:
    given = [(key, value) for key, value in wanted if value is not None]
    if ("state", "asked") in given:  # as a literal, so that the partial index on open asks is used
        given.remove(("state", "asked"))
        literal = ["asks.state = 'asked'"]
    elif ("state", SETTLED) in given:
        given.remove(("state", SETTLED))
        literal = ["asks.state <> 'asked'"]
    else:
        literal = []
    return [*literal, *(f"asks.{key} = ?" for key, _ in given)], [value for _, value in given]


def until_full(rows: Iterable[Sequence[Any]], *, contents: Sequence[int], most: int | None) -> list[Any]:
    """The rows up to the one with which their contents, in those columns, have `most` characters. None: all."""
    if most is None:
        return list(rows)
    found, size = [], 0
    for row in rows:
        found.append(row)
        size += sum(len(row[content] or "") for content in contents)
        if size >= most:
            break
    return found


def writable(text: str | None) -> str | None:
    """Free text as every database takes it: a file name or a terminal may bring half of a surrogate pair, or a NUL."""
    return None if text is None else text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def event_of(row: Sequence[Any]) -> StoredEvent:
    """From a row of `history`."""
    return StoredEvent(row[0], row[1], row[2], Stored._make(row[4:]), row[3])


def event_row(event: StoredEvent) -> tuple[Any, ...]:
    """In the order of EVENT_COLUMNS."""
    ask = event.ask
    return (
        event.cursor,
        event.type,
        event.at,
        event.source,
        ask.seq,
        ask.state,
        ask.asked_at,
        ask.deadline,
        ask.answer,
        ask.delivered_at,
        ask.delivery_error,
        ask.withdrawn_reason,
    )


def migrations(kind: str, *, version: int) -> Iterator[tuple[int, str]]:
    """The numbered files that a database of this version has not seen. Raises StoreTooNew."""
    steps = sorted(
        (int(file.name[:4]), file)
        for file in (resources.files("handraise.stores") / "migrations" / kind).iterdir()
        if file.name.endswith(".sql")
    )
    newest = steps[-1][0]
    if version > newest:
        raise StoreTooNew(
            f"this database was written by a newer handraise (its version is {version}, this program knows "
            f"{newest}); upgrade handraise, or start with another database"
        )
    for number, file in steps:
        if number > version:
            yield number, file.read_text()
