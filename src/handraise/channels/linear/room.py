"""What the Linear channel remembers: its sessions, what came in and is not done, what is to be posted.

Whatever is to be posted is written down together with the change that it tells, and sent afterwards; an activity has
the same id however often it is tried.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from handraise.channels.linear.translate import Activity
from handraise.stores import Database, Row, Statement, writable
from handraise.tables.keys import Keys

__all__ = ["NOTHING_SHOWN", "TOPIC", "LinearSession", "Outgoing", "Post", "Room", "activity_id"]

TOPIC = "linear"
NOTHING_SHOWN: Mapping[str, Any] = {"ask": None, "shown_at": None, "place": 0, "answers": ()}
KEEP_SESSIONS = 90 * 24 * 3600 * 1000  # milliseconds that one which is over is remembered as such
KEEP = 7 * 24 * 3600 * 1000  # milliseconds that we know what came in before, so that nothing is taken twice
_COLUMNS = (
    *("id", "session", "ticket", "kind", "state", "repository", "branch", "worktree"),
    *(
        "created_at",
        "expires_at",
        "remaining",
        "ask",
        "shown_at",
        "place",
        "answers",
        "turns",
        "mirrored",
        "reason",
        "ended_at",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearSession:
    """A session of Linear's, and the one of ours that works for it."""

    id: str
    session: str  # ours
    kind: Literal["assignment", "question", "test"]
    state: Literal["new", "live", "closing", "ended"]
    created_at: int
    expires_at: int  # until when it may go on; an answer that is waited for may be due earlier
    ticket: str | None = None  # the issue it works on, as people know it (ENG-42); None for documents and projects
    repository: str | None = None
    branch: str | None = None
    worktree: str | None = None
    remaining: int | None = None  # milliseconds that it had left when it began to wait for a person
    ask: str | None = None  # what is shown right now, or about to be
    shown_at: str | None = None  # since when, by Linear's clock; empty where it does not say, None before
    place: int = 0  # which of its questions
    answers: tuple[tuple[str, ...], ...] = ()  # to those before
    turns: int = 0  # whose end was told
    mirrored: str = ""  # the last message that was told
    reason: str | None = None  # why it ends, where that is to be told
    ended_at: int | None = None


class Post(NamedTuple):
    """Something to be posted. `key` makes its id: the same for the same thing, also after a restart."""

    key: str
    activity: Activity
    ephemeral: bool = False  # it vanishes when the next one comes, so nobody misses it
    ask: str | None = None  # it shows this ask


class Link(NamedTuple):
    """An address to be shown beside the session."""

    label: str
    url: str


class Outgoing(NamedTuple):
    """Something that was not posted yet."""

    id: str
    session: str
    activity: Activity | None  # None: it is a link
    ephemeral: bool
    link: Link | None
    ask: str | None


def activity_id(session: str, key: str) -> str:
    """In the format of a random UUID, which Linear wants."""
    digest = hashlib.sha256(f"handraise linear {session} {key}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


class Room:
    """One channel's part of the tables: several workspaces may be connected, each by a channel of its own."""

    def __init__(self, database: Database, channel: str) -> None:
        self._database = database
        self._channel = channel
        self._keys = Keys()

    def hear(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._database.hear(TOPIC, listener)

    # What came in -----------------------------------------------------------------------------------------

    async def receive(self, key: str, body: Mapping[str, Any], *, at: int) -> bool:
        """Write down what came, once. False where it came before."""
        rows = await self._database.write(
            "insert into linear_deliveries (id, channel, body, received_at) values (?, ?, ?, ?) "
            "on conflict (id) do nothing returning id",
            self._delivery(key),
            self._channel,
            writable(json.dumps({"key": key, **body})),
            at,
            topic=TOPIC,
        )
        return bool(rows)

    async def received(self) -> list[tuple[str, dict[str, Any]]]:
        """What is not done yet, the oldest first."""
        rows = await self._database.read(
            "select body from linear_deliveries where channel = ? and done_at is null order by received_at, id",
            self._channel,
        )
        bodies = [json.loads(body) for (body,) in rows]
        return [(body.pop("key"), body) for body in bodies]

    async def done(self, key: str, *, at: int) -> None:
        """It was carried out. Where that was one commit, `write` said so already."""
        await self._database.write_all(
            self.is_done(key, at=at),
            ("delete from linear_deliveries where done_at < ?", (at - KEEP,)),
            (
                "delete from linear_activities where session in (select id from linear_sessions where ended_at < ?)",
                (at - KEEP,),
            ),
            ("delete from linear_sessions where ended_at < ?", (at - KEEP_SESSIONS,)),
        )

    def is_done(self, key: str, *, at: int) -> Statement:
        """For somebody who carries it out in a commit of theirs."""
        return "update linear_deliveries set done_at = ? where id = ?", (at, self._delivery(key))

    def _delivery(self, key: str) -> str:
        return f"{self._channel} {key}"

    # Sessions ---------------------------------------------------------------------------------------------

    async def create(self, new: LinearSession, *posts: Post, link: Link | None = None) -> bool:
        """False where there is one of that id."""
        row = (
            f"insert into linear_sessions (channel, {', '.join(_COLUMNS)}) "  # noqa: S608 - our own columns
            f"values (?, {', '.join('?' * len(_COLUMNS))}) on conflict (id) do nothing returning id",
            [self._channel, *(_stored(name, getattr(new, name)) for name in _COLUMNS)],
        )
        made = await self._database.write_all(
            row, *self._outgoing(new.id, posts, link=link, at=new.created_at), topic=TOPIC
        )
        return bool(made[0])

    async def get(self, id: str) -> LinearSession | None:
        rows = await self._database.read(
            f"select {', '.join(_COLUMNS)} from linear_sessions where id = ? and channel = ?",  # noqa: S608
            id,
            self._channel,
        )
        return _record(rows[0]) if rows else None

    async def open(self) -> list[LinearSession]:
        """Those that are not over, the oldest first."""
        rows = await self._database.read(
            f"select {', '.join(_COLUMNS)} from linear_sessions where channel = ? and ended_at is null "  # noqa: S608
            "order by created_at, id",
            self._channel,
        )
        return [_record(row) for row in rows]

    async def write(self, id: str, *posts: Post, at: int, done: str | None = None, **changed: Any) -> None:
        """Change a session and write down what tells it, in one commit; `done` is what came in and is carried out
        with that."""
        statements: list[Statement] = [] if done is None else [self.is_done(done, at=at)]
        if changed:
            given = ", ".join(f"{name} = ?" for name in changed)
            values = [_stored(name, value) for name, value in changed.items()]
            statements.append((f"update linear_sessions set {given} where id = ?", (*values, id)))  # noqa: S608
        await self._database.write_all(*statements, *self._outgoing(id, posts, at=at), topic=TOPIC)

    # What is to be posted ---------------------------------------------------------------------------------

    def _outgoing(self, session: str, posts: Sequence[Post], *, at: int, link: Link | None = None) -> list[Statement]:
        rows: list[tuple[str, dict[str, Any], str | None]] = [
            (
                activity_id(session, post.key),
                {
                    "content": post.activity.content,
                    "signal": post.activity.signal,
                    "metadata": post.activity.metadata,
                    "ephemeral": post.ephemeral,
                },
                post.ask,
            )
            for post in posts
        ]
        if link is not None:
            rows.append((activity_id(session, "link"), {"label": link.label, "url": link.url}, None))
        return [
            (
                "insert into linear_activities (id, channel, session, seq, body, ask) values (?, ?, ?, ?, ?, ?) "
                "on conflict (id) do nothing",
                (id, self._channel, session, self._keys.make(at), writable(json.dumps(body)), ask),
            )
            for id, body, ask in rows
        ]

    async def outgoing(self) -> list[Outgoing]:
        """What was not posted yet, in the order it is to be posted."""
        rows = await self._database.read(
            "select id, session, body, ask from linear_activities where channel = ? and sent_at is null "
            "order by session, seq",
            self._channel,
        )
        return [_outgoing(*row) for row in rows]

    async def is_posting(self, session: str, ask: str) -> bool:
        """Whether something that shows this ask is on its way, or perhaps posted without our knowledge."""
        rows = await self._database.read(
            "select 1 from linear_activities where channel = ? and session = ? and ask = ? and sent_at is null limit 1",
            self._channel,
            session,
            ask,
        )
        return bool(rows)

    async def sent(self, waiting: Outgoing, *, at: int, error: str | None = None, shown_at: str | None = None) -> None:
        """It was posted, or never will be. `shown_at` is since when, by Linear's clock, people see what it asks."""
        statements: list[Statement] = [
            ("update linear_activities set sent_at = ?, error = ? where id = ?", (at, writable(error), waiting.id))
        ]
        if waiting.ask is not None and shown_at is not None:
            shown = "update linear_sessions set shown_at = ? where id = ? and ask = ? and shown_at is null"
            statements.append((shown, (shown_at, waiting.session, waiting.ask)))
        await self._database.write_all(*statements, topic=TOPIC)  # a reply may wait for this


def _outgoing(id: str, session: str, body: str, ask: str | None) -> Outgoing:
    told = json.loads(body)
    if "url" in told:
        link = Link(label=told["label"], url=told["url"])
        return Outgoing(id=id, session=session, activity=None, ephemeral=False, link=link, ask=None)
    activity = Activity(content=told["content"], signal=told["signal"], metadata=told["metadata"])
    return Outgoing(id=id, session=session, activity=activity, ephemeral=told["ephemeral"], link=None, ask=ask)


def _stored(name: str, value: Any) -> Any:
    if name == "answers":
        return json.dumps(value)
    return writable(value) if isinstance(value, str) else value


def _record(row: Row) -> LinearSession:
    found = dict(zip(_COLUMNS, row, strict=True))
    found["answers"] = tuple(tuple(entries) for entries in json.loads(found["answers"]))
    return LinearSession(**found)
