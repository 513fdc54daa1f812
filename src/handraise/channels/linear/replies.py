"""What people write in Linear: a reply to what is asked there, the next thing for the agent to do, or a stop."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from handraise.asks import Answer, Ask
from handraise.asks.plain import to_entries
from handraise.channels import Hands, Postbox
from handraise.channels.linear.room import NOTHING_SHOWN, LinearSession, Post, Room
from handraise.channels.linear.translate import (
    plain,
    refusal_in,
    reply_in,
    response,
    thought,
    unclear,
    wants_more_time,
)
from handraise.channels.linear.webhooks import Person, Prompted, key_of
from handraise.clock import Clock
from handraise.errors import (
    AlreadyAnswered,
    AnswerDoesNotFit,
    AskNotFound,
    AskWithdrawn,
    Forbidden,
    SessionEnded,
    SessionNotFound,
)
from handraise.people import Identity, People
from handraise.people import Person as Listed
from handraise.text.inert import inert

__all__ = ["Conversation", "Replies", "TooEarly", "Writers", "deadline_text"]

log = logging.getLogger(__name__)


class TooEarly(Exception):
    """Whether a reply counts is known only once Linear says since when people see the question."""

    def __init__(self, ask: str) -> None:
        super().__init__(ask)
        self.ask = ask


class Conversation(Protocol):
    """What the channel does in a session, whose lock is held."""

    async def mirror(self, id: str) -> None:
        """Tell what was said and done since."""

    async def is_busy(self, row: LinearSession) -> bool: ...

    async def end(self, row: LinearSession, *, reason: str | None) -> None: ...

    def show(self, row: LinearSession, ask: Ask) -> Post:
        """What is posted to ask it."""


@dataclass(frozen=True, slots=True)
class Writers:
    """The people who write there, as the settings list them."""

    people: People
    channel: str

    def name_of(self, user: Person) -> str:
        """What somebody is known by: the id, or the address, whichever is listed."""
        return self.people.known(self.channel, user.id, user.email) or user.id

    def find(self, user: Person | None) -> Listed | None:
        return None if user is None else self.people.find(self.channel, self.name_of(user))

    def refuse(self, user: Person | None) -> str:
        """What is said to somebody who is not listed."""
        if user is None:
            return "I cannot tell who wrote this, so it does not count."
        listed = f'`[people.NAME]` with `{self.channel} = "{plain(user.id)}"`'
        name = plain(inert(user.name)) or "This person"
        return f"{name} may not do this here. Whoever runs the desk can add {listed} to its config.toml."


class Replies:
    def __init__(
        self,
        conversation: Conversation,
        *,
        room: Room,
        inbox: Postbox,
        hands: Hands,
        writers: Writers,
        clock: Clock,
        session_for: int,
        identity: Identity,
    ) -> None:
        """`session_for` is how many milliseconds a session has from its last prompt on."""
        self._conversation = conversation
        self._room = room
        self._inbox = inbox
        self._hands = hands
        self._writers = writers
        self._clock = clock
        self._session_for = session_for
        self._identity = identity

    async def take(self, event: Prompted) -> None:
        row = await self._room.get(event.session)
        if row is None:
            log.warning("%s tells of session %s, which is not known here", self._writers.channel, event.session)
            return
        if event.stop:
            await self._stop(row, event)
        elif row.state != "live":
            over = "This session is over. Mention or assign me again to begin a new one."
            await self._tell(row, Post(event.activity, response(over)))
        elif row.ask is not None:
            await self._reply(row, event, await self._inbox.get(row.ask))
        else:
            await self._go_on(row, event)

    async def _stop(self, row: LinearSession, event: Prompted) -> None:
        """Anybody may: it does no harm."""
        if row.state != "live":
            await self._tell(row, Post(event.activity, response("This session is over; nothing is running.")))
            return
        await self._conversation.mirror(row.id)  # a turn that is over has its own response
        row = await self._room.get(row.id) or row
        if not await self._conversation.is_busy(row):
            await self._tell(row, Post(event.activity, response("Nothing is running.")))
            return
        stopped = Post(f"turn {row.turns}", response("Stopped at your request. Nothing further will run."))
        with suppress(SessionEnded, SessionNotFound):
            await self._hands.sessions.order(row.session, "abort", at=self._clock.now())
        await self._room.write(
            row.id, stopped, at=self._clock.now(), done=key_of(event), remaining=None, **NOTHING_SHOWN
        )

    async def _go_on(self, row: LinearSession, event: Prompted) -> None:
        """Nothing is asked, so it is what the agent does next."""
        person = self._writers.find(event.user)
        if person is None or "start" not in person.may:
            await self._tell(row, Post(event.activity, thought(self._writers.refuse(event.user))))
            return
        now = self._clock.now()
        try:
            done = self._room.is_done(key_of(event), at=now)
            await self._hands.sessions.order(row.session, "prompt", event.text, at=now, beside=[done])
        except (SessionEnded, SessionNotFound):
            await self._conversation.end(
                row, reason="The agent's session is over. Mention or assign me again to begin a new one."
            )
            return
        heard = Post(event.activity, thought("On it."), ephemeral=True)
        await self._room.write(row.id, heard, at=now, expires_at=now + self._session_for)

    async def _reply(self, row: LinearSession, event: Prompted, ask: Ask) -> None:
        by = "" if event.user is None else self._writers.name_of(event.user)
        if ask.state != "asked":
            return  # somebody was faster, which its event tells
        if row.shown_at is None:
            if await self._room.is_posting(row.id, ask.id):
                raise TooEarly(ask.id)
            row = await self._room.get(row.id) or row  # it may have been posted since the row was read
        if not _is_about(row, event):
            await self._repeat(row, event, ask, "That was written before this was asked, so it does not count.")
            return
        try:
            answers = await self._answer(row, event, ask, by=by)
        except Forbidden as refused:
            problem = plain(str(refused)) if self._writers.find(event.user) else self._writers.refuse(event.user)
            await self._repeat(row, event, ask, problem)
        except AnswerDoesNotFit as unfit:
            await self._repeat(row, event, ask, unclear(ask, row.place) or plain(str(unfit)))
        except (AlreadyAnswered, AskWithdrawn, AskNotFound):
            log.info("session %s: somebody was faster", row.id)  # which its event tells
        else:
            if answers is not None:  # to the questions so far: ask the next one
                row = replace(row, place=len(answers), answers=answers)
                changed = {"place": row.place, "answers": row.answers, "shown_at": None}
                shown = self._conversation.show(row, ask)
                await self._room.write(row.id, shown, at=self._clock.now(), done=key_of(event), **changed)

    async def _answer(
        self, row: LinearSession, event: Prompted, ask: Ask, *, by: str
    ) -> tuple[tuple[str, ...], ...] | None:
        """Answer or reject the ask. Returns the answers so far where it has questions left.

        Raises Forbidden, AnswerDoesNotFit, AlreadyAnswered, AskWithdrawn, AskNotFound.
        """
        via = self._writers.channel
        self._writers.people.check(by, ask, channel=via, identity=self._identity)
        if wants_more_time(event.text):
            later = await self._inbox.keep_waiting(ask.id)
            await self._repeat(row, event, later, f"I keep waiting.{deadline_text(later)}")
            return None
        refuses, reason = refusal_in(ask, row.place, event.text)
        if refuses:
            await self._inbox.reject(ask.id, reason=reason, by=by, via=via)
            return None
        if ask.permission is not None:
            reply, scope = reply_in(ask.permission, event.text)
            await self._inbox.answer(
                ask.id, Answer(reply=reply, scope=scope, rejected=reply == "reject", by=by, via=via)
            )
            return None
        answers = (*row.answers, to_entries(ask.questions[row.place], event.text))
        if len(answers) < len(ask.questions):
            return answers
        await self._inbox.answer(ask.id, Answer(answers=answers, by=by, via=via))
        return None

    async def _repeat(self, row: LinearSession, event: Prompted, ask: Ask, why: str) -> None:
        """Say why it did not count, and ask again: whatever is posted clears the list of choices."""
        posts = [Post(event.activity, thought(why)), self._conversation.show(row, ask)]
        await self._room.write(row.id, *posts, at=self._clock.now(), done=key_of(event))

    async def _tell(self, row: LinearSession, post: Post) -> None:
        await self._room.write(row.id, post, at=self._clock.now())


def _is_about(row: LinearSession, event: Prompted) -> bool:
    """Whether it was written when what is asked now stood there already. Both times are Linear's."""
    if row.shown_at is None:
        return False
    try:
        return datetime.fromisoformat(event.at) >= datetime.fromisoformat(row.shown_at)
    except ValueError:  # it does not say when
        return True


def deadline_text(ask: Ask) -> str:
    if ask.deadline is None:
        return ""
    return f" Please answer by {ask.deadline.astimezone(UTC):%H:%M} UTC, or write “keep waiting”."
