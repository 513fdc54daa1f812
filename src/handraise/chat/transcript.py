"""What is kept of chats: conversations and their messages, and the statements that change them.

A chat is `idle`, `queued` (a reply is wanted), `writing`, `stopping` or `asking` (its question waits). Every change of
it counts up its version, and a message that changes takes that version, so that a reader asks for what is newer.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from handraise.chat.contract import Block, content_block, question_of, rejected, replied
from handraise.errors import ChatNotFound
from handraise.stores import AlsoWrite, Database, Row, Statement, writable
from handraise.tables.keys import Keys
from handraise.wire import time_text
from handraise.wire.chats import ChatMessage, ListedChat
from handraise.wire.plain import shape_of

__all__ = ["TOPIC", "ChatRecord", "Said", "Transcript", "title_of"]

TOPIC = "chats"
LONGEST_TITLE = 80
MOST_TOLD = 200  # messages that are read at once to be told
LONGEST_PAGE = 1024 * 1024  # characters of them
BUSY = ("queued", "writing", "stopping")

State = Literal["idle", "queued", "writing", "stopping", "asking"]
_CHAT = "select id, title, model, state, ask, writer, version, created_at, updated_at from chats"
_MESSAGE = "select id, chat, role, state, blocks, raw, at, version from chat_messages"
_TOLD = _MESSAGE.replace(" raw,", " null,")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRecord:
    id: str
    title: str
    model: str
    state: State
    ask: str | None  # of the question that waits
    writer: str | None  # the reply that is written
    version: int
    created_at: int
    updated_at: int

    @property
    def is_busy(self) -> bool:
        return self.state in BUSY

    def to_shape(self) -> ListedChat:
        return shape_of(
            ListedChat,
            self,
            state="writing" if self.is_busy else self.state,
            created_at=time_text(self.created_at),
            updated_at=time_text(self.updated_at),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message. One of the assistant is `writing`, `done`, `stopped`, `failed`, or `replaced` by another."""

    id: str  # they sort in the order they were said
    chat: str
    role: Literal["user", "assistant"]
    state: str
    blocks: list[Block]
    raw: str | None  # what went between us and the model, for the next request
    at: int
    version: int

    @property
    def text(self) -> str:
        return "\n\n".join(block["content"] for block in self.blocks if block["type"] == "content")

    def to_shape(self) -> ChatMessage:
        return shape_of(ChatMessage, self, at=time_text(self.at))


class Transcript:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys = Keys()

    def hear(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._database.hear(TOPIC, listener)

    # Reading ------------------------------------------------------------------------------------------------

    async def get(self, id: str) -> ChatRecord:
        rows = await self._database.read(f"{_CHAT} where id = ?", id)
        if not rows:
            raise ChatNotFound(id)
        return _chat(rows[0])

    async def newest(self, *, limit: int = 200) -> list[ChatRecord]:
        """Those that changed last come first."""
        rows = await self._database.read(f"{_CHAT} order by updated_at desc, id limit ?", limit)
        return [_chat(row) for row in rows]

    async def busy(self) -> list[ChatRecord]:
        """Those somebody writes in, or should."""
        rows = await self._database.read(f"{_CHAT} where state in ('queued', 'writing', 'stopping')")
        return [_chat(row) for row in rows]

    async def given_up(self) -> set[str]:
        """Those whose writer has not been heard of for too long, by the clock of the database."""
        rows = await self._database.read(
            "select id from chats where state in ('writing', 'stopping') "  # noqa: S608 - our own clock
            f"and lease_until < {self._database.clock}"
        )
        return {id for (id,) in rows}

    async def messages(self, chat: str, *, since: int = -1) -> list[Said]:
        """Those that changed after a version, in the order they were said."""
        rows = await self._database.read(f"{_MESSAGE} where chat = ? and version > ? order by id", chat, since)
        return [_said(row) for row in rows]

    async def page(self, chat: str, *, since: int, after: str) -> list[Said]:
        """Those behind a message, without what went between us and the model. It ends where it is long enough, and
        none are left where it is empty."""
        changed = "chat = ?" if since < 0 else "id in (select id from chat_messages where chat = ? and version > ?)"
        rows = await self._database.read_page(
            f"{_TOLD} where {changed} and id > ? order by id limit ?",
            *(chat, since)[: 1 if since < 0 else 2],
            *(after, MOST_TOLD),
            contents=("blocks",),
            most=LONGEST_PAGE,
        )
        return [_said(row) for row in rows]

    async def message(self, id: str) -> Said | None:
        rows = await self._database.read(f"{_MESSAGE} where id = ?", id)
        return _said(rows[0]) if rows else None

    async def known(self, chat: str, nonce: str) -> Said | None:
        """The message that somebody sent under this nonce."""
        rows = await self._database.read(f"{_MESSAGE} where chat = ? and nonce = ?", chat, nonce)
        return _said(rows[0]) if rows else None

    async def last(self, chat: str) -> Said | None:
        rows = await self._database.read(f"{_MESSAGE} where chat = ? order by id desc limit 1", chat)
        return _said(rows[0]) if rows else None

    # Chats --------------------------------------------------------------------------------------------------

    async def create(self, *, title: str, model: str, at: int) -> ChatRecord:
        id = f"chat_{secrets.token_hex(10)}"
        await self._database.write(
            "insert into chats (id, title, model, state, version, created_at, updated_at) "
            "values (?, ?, ?, 'idle', 0, ?, ?)",
            id,
            writable(title),
            model,
            at,
            at,
            topic=TOPIC,
        )
        return await self.get(id)

    async def rename(self, id: str, *, title: str) -> None:
        await self._database.write(
            "update chats set title = ?, version = version + 1 where id = ?", writable(title), id, topic=TOPIC
        )

    async def delete(self, id: str) -> None:
        await self._database.write_all(
            ("delete from chat_messages where chat = ?", (id,)), ("delete from chats where id = ?", (id,)), topic=TOPIC
        )

    async def forget(self, *, before: int, limit: int) -> int:
        """Forget chats that nobody wrote in since, unless one waits for somebody: at most about `limit` rows.

        Returns how many rows went; 0 means that was all.
        """
        over = "updated_at < ? and state = 'idle' and not exists (select 1 from asks where asks.session = chats.id)"
        old = f"select id from chats where {over} order by updated_at, id limit 1"  # noqa: S608 - our own words
        found = await self._database.read(old, before)
        if not found:
            return 0
        ((chat,),) = found
        some = "select id from chat_messages where chat = ? limit ?"
        gone = await self._database.write(
            f"delete from chat_messages where id in ({some}) returning id",  # noqa: S608
            chat,
            limit,
        )
        if gone:
            return len(gone)
        delete = f"delete from chats where id = ? and {over} returning id"  # noqa: S608
        return len(await self._database.write(delete, chat, before, topic=TOPIC))

    # What people say ----------------------------------------------------------------------------------------

    async def say(self, chat: str, text: str, *, nonce: str | None, at: int) -> str | None:
        """Add a person's message and want a reply, if nobody writes and no question waits. None where one does."""
        id = await self._next_key(chat, at=at)
        done = await self._database.write_all(
            _want(chat, wish=id, at=at), _insert(id, chat, text, at=at, nonce=nonce, wish=id), topic=TOPIC
        )
        return id if done[0] else None

    def answering(
        self, said: Said, text: str | None, *, at: int, by_hand: bool = False, nonce: str | None = None
    ) -> tuple[AlsoWrite, str]:
        """What is written with the answer to the question that a message ends with, and the id of the message that
        the answer becomes; without a text it is rejected, and there is none.

        `by_hand` says that a person wrote it instead of choosing.
        """
        block = question_of(said.blocks)
        assert block is not None
        id = self._keys.make(at, after=said.id)
        resolved = rejected(block) if text is None else replied(block, text, message=id if by_hand else None)
        state = "idle" if text is None else "queued"
        statements: list[Statement] = [
            (
                "update chats set state = ?, ask = null, version = version + 1, updated_at = ? where id = ?",
                (state, at, said.chat),
            ),
            _rewrite(replace(said, blocks=[*said.blocks[:-1], resolved])),
        ]
        if text is not None:
            statements.append(_insert(id, said.chat, text, at=at, nonce=nonce))
        return AlsoWrite(statements, TOPIC), id

    async def again(self, chat: str, *, at: int) -> bool:
        """Want another reply in the place of the last one. False where somebody writes or a question waits."""
        last = await self.last(chat)
        wish = self._keys.make(at)
        statements = [_want(chat, wish=wish, at=at)]
        if last is not None and last.role == "assistant":
            statements.append(_rewrite(replace(last, state="replaced"), writer=wish))
        done = await self._database.write_all(*statements, topic=TOPIC)
        return bool(done[0])

    async def stop(self, chat: str) -> None:
        """Whoever writes hears it; a reply that nobody began is not wanted any more."""
        await self._database.write(
            "update chats set state = case state when 'queued' then 'idle' else 'stopping' end, version = version + 1 "
            "where id = ? and state in ('queued', 'writing')",
            chat,
            topic=TOPIC,
        )

    # What the writer writes ---------------------------------------------------------------------------------

    async def claim(self, chat: str, *, lease: int, at: int) -> Said | None:
        """Begin the reply that is wanted. None where somebody else does, or nobody wants it any more.

        Who writes a chat is known by the reply: whatever is written to it later counts only while it is that one.
        """
        id = await self._next_key(chat, at=at)
        said = Said(id=id, chat=chat, role="assistant", state="writing", blocks=[], raw=None, at=at, version=0)
        done = await self._database.write_all(
            (
                f"update chats set state = 'writing', writer = ?, lease_until = {self._until}, "  # noqa: S608 - ours
                "version = version + 1 where id = ? and state = 'queued' returning version",
                (id, lease, chat),
            ),
            (
                "insert into chat_messages (id, chat, role, state, blocks, at, version) "
                "select ?, id, 'assistant', 'writing', '[]', ?, version from chats where id = ? and writer = ?",
                (id, at, chat, id),
            ),
            topic=TOPIC,
        )
        return said if done[0] else None

    async def write_on(self, said: Said, *, lease: int) -> None:
        """What was written so far, so that nothing of it is lost and others see it grow."""
        await self._database.write_all(
            (
                f"update chats set lease_until = {self._until}, version = version + 1 "  # noqa: S608 - our own clock
                "where id = ? and writer = ?",
                (lease, said.chat, said.id),
            ),
            _rewrite(said, writer=said.id),
            topic=TOPIC,
        )

    async def finish(self, said: Said, *, at: int) -> None:
        """The reply is over, and the chat waits for a person."""
        await self._database.write_all(*_over(said, state="idle", ask=None, at=at), topic=TOPIC)

    def asking(self, said: Said, *, ask: str, at: int) -> AlsoWrite:
        """What is written with the question that a reply ends with."""
        return AlsoWrite(_over(said, state="asking", ask=ask, at=at), TOPIC)

    @property
    def _until(self) -> str:
        """The end of a lease of so many milliseconds, as SQL: clocks of machines differ, the database has one."""
        return f"{self._database.clock} + cast(? as bigint)"

    async def _next_key(self, chat: str, *, at: int) -> str:
        """Behind all that was said in a chat."""
        last = await self.last(chat)
        return self._keys.make(at, after=None if last is None else last.id)


def title_of(text: str) -> str:
    """A short line that names a chat by how it begins."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1].rstrip()}…"


def _want(chat: str, *, wish: str, at: int) -> Statement:
    """Want a reply. What else is written with it holds only where this wish was the one."""
    return (
        "update chats set state = 'queued', writer = ?, version = version + 1, updated_at = ? "
        "where id = ? and state = 'idle' returning id",
        (wish, at, chat),
    )


def _over(said: Said, *, state: State, ask: str | None, at: int) -> list[Statement]:
    return [
        _rewrite(said, writer=said.id, bump=1),
        (
            "update chats set state = ?, ask = ?, writer = null, lease_until = null, version = version + 1, "
            "updated_at = ? where id = ? and writer = ?",
            (state, ask, at, said.chat, said.id),
        ),
    ]


def _insert(id: str, chat: str, text: str, *, at: int, nonce: str | None = None, wish: str | None = None) -> Statement:
    """A person's message, in the version that its chat has by then."""
    return (
        "insert into chat_messages (id, chat, role, state, blocks, nonce, at, version) "  # noqa: S608 - our condition
        "select ?, id, 'user', 'done', ?, ?, ?, version from chats where id = ?"
        + ("" if wish is None else " and writer = ?"),
        (id, json.dumps([content_block(text)]), nonce, at, chat, *(() if wish is None else (wish,))),
    )


def _rewrite(said: Said, *, writer: str | None = None, bump: int = 0) -> Statement:
    """The message as it is now, in its chat's version or the next one; for a writer, as long as the chat is theirs."""
    whose = "" if writer is None else " and exists (select 1 from chats where id = ? and writer = ?)"
    return (
        "update chat_messages set state = ?, blocks = ?, raw = ?, "  # noqa: S608 - our own condition
        f"version = (select version + {bump} from chats where id = ?) where id = ?{whose}",
        (
            said.state,
            json.dumps(said.blocks),
            said.raw,
            said.chat,
            said.id,
            *(() if writer is None else (said.chat, writer)),
        ),
    )


def _chat(row: Row) -> ChatRecord:
    id, title, model, state, ask, writer, version, created_at, updated_at = row
    return ChatRecord(
        id=id,
        title=title,
        model=model,
        state=state,
        ask=ask,
        writer=writer,
        version=version,
        created_at=created_at,
        updated_at=updated_at,
    )


def _said(row: Row) -> Said:
    id, chat, role, state, blocks, raw, at, version = row
    return Said(id=id, chat=chat, role=role, state=state, blocks=json.loads(blocks), raw=raw, at=at, version=version)
