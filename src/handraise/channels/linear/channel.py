"""The Linear channel: work that people give to the agent there becomes a session here, and what it asks goes back.

What Linear sends is written down and answered at once, and carried out afterwards; what is posted is written down with
the change it tells (`room`, `outbox`). So a restart between any two steps goes on where it was, and the same thing told
twice happens once.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from handraise.asks import Ask, Handling
from handraise.channels import ChannelSettings, Postbox, Reach, SendFailed
from handraise.channels.linear.api import Api
from handraise.channels.linear.dismissals import notice_dismissed
from handraise.channels.linear.outbox import Outbox
from handraise.channels.linear.replies import Replies, TooEarly, Writers, deadline_text
from handraise.channels.linear.room import NOTHING_SHOWN, LinearSession, Link, Post, Room
from handraise.channels.linear.saying import assignment_prompt, mirrored, question_prompt
from handraise.channels.linear.settings import LinearSettings
from handraise.channels.linear.translate import (
    LONGEST,
    elicitation,
    error,
    markdown,
    outcome,
    plain,
    response,
    thought,
)
from handraise.channels.linear.webhooks import (
    Created,
    Other,
    Prompted,
    Stale,
    kept,
    key_of,
    read,
    read_kept,
    verify,
)
from handraise.channels.linear.worktrees import Worktrees, branch_for
from handraise.errors import (
    AskNotFound,
    HandraiseError,
    SessionEnded,
    SessionNotFound,
    SettingsError,
    StoreError,
)
from handraise.events import DeadlineMoved, Event
from handraise.tables.sessions import NewSession, SaidMessage, SessionRecord
from handraise.text.inert import inert

__all__ = ["Linear"]

log = logging.getLogger(__name__)

OURS = "linear:"  # how the sessions begin that we started
CALM = 2.0  # seconds between two looks at what agents said
CLOSE_WITHIN = 20.0  # seconds that an agent gets to end before its worktree is left alone
RETRY = 1.0  # seconds until what could not be written is tried again
BETWEEN_LOOKS = 5.0  # seconds at least, also where much seems to be missed
CATCH_UP = timedelta(days=1)  # how far back we look for what nobody told us; what is older, nobody waits for
PAGE = 500  # messages that are read at once


class Linear:
    """Use as the desk does: `run` at one desk of the database, `receive` at any."""

    def __init__(self, settings: ChannelSettings, options: LinearSettings) -> None:
        self.name = settings.name
        self.reach = Reach(
            options=100,
            text=True,
            edits=True,
            needs_address=options.poll is None,
            acknowledge=5.0,
            starts_agents=True,
            longest=LONGEST,
            identity="strong",
        )
        self._settings = settings
        self._options = options
        self._clock = settings.clock
        self._writers = Writers(settings.people, settings.name)
        self._room = Room(settings.database, settings.name)
        self._worktrees = Worktrees(settings.home / "worktrees")
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._missed = asyncio.Event()  # something came that could not be taken, and is to be looked for
        self._unassigned = asyncio.Event()  # an issue was taken from us
        self._mirroring: set[str] = set()  # sessions that are about to be looked at
        self._taken: set[str] = set()  # what came in and is being carried out

    def _api(self) -> Api:
        return Api(self._options.access, url=self._options.url, clock=self._clock)

    # What Linear tells us ---------------------------------------------------------------------------------

    async def receive(self, body: bytes, headers: Mapping[str, str]) -> None:
        known = [self._options.secret] if self._options.secret else []
        try:
            told = verify(body, signature=headers.get("linear-signature"), secrets=known, now=self._clock.now())
        except Stale as stale:
            log.warning("a webhook of %s was signed but is not of now: %s", self.name, stale)
            self._missed.set()  # whether a retry is stamped anew is nowhere written down
            raise
        event = read(told)
        if isinstance(event, Other):
            level = logging.ERROR if (event.type, event.action) == ("OAuthApp", "revoked") else logging.INFO
            log.log(level, "%s tells of %r %r, which is not for us", self.name, event.type[:100], event.action[:100])
            if event.action == "issueUnassignedFromYou":
                self._unassigned.set()
            return
        await self._receive(event, delivery=headers.get("linear-delivery", ""))

    async def _receive(self, event: Created | Prompted, *, delivery: str = "") -> None:
        """The same session or activity is the same thing, however often and in whatever way it is told."""
        if isinstance(event, Prompted) and not event.activity:
            event = replace(event, activity=delivery)
        if not await self._room.receive(key_of(event), kept(event), at=self._clock.now()):
            log.info("%s told %s again", self.name, key_of(event))

    async def _look(self, api: Api) -> None:
        """For what nobody told us: while the desk was away, or always, where Linear cannot call us."""
        since = begun = datetime.fromtimestamp(self._clock.now() / 1000, UTC) - CATCH_UP
        while True:
            pause = self._options.poll
            try:
                for at, prompted in await api.prompts(since=since):
                    await self._receive(prompted)
                    since = max(since, at)
                for created in await api.sessions(since=begun):
                    await self._receive(created)
            except SendFailed as failure:
                log.warning("%s could not be looked at: %s", self.name, failure)
                pause = max(pause or 0.0, failure.again or 0.0, 60.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._missed.wait()
                await asyncio.sleep(BETWEEN_LOOKS)
            self._missed.clear()

    # Running ----------------------------------------------------------------------------------------------

    async def run(self, inbox: Postbox) -> None:
        hands = self._settings.hands
        if hands is None:
            raise SettingsError("no agent can be started by this desk, so nothing of Linear's can be carried out here")
        self._inbox, self._hands = inbox, hands
        self._replies = Replies(
            self,
            room=self._room,
            inbox=inbox,
            hands=hands,
            writers=self._writers,
            clock=self._clock,
            session_for=self._options.session_for,
            identity=self.reach.identity,
        )
        self._taken.clear()
        self._mirroring.clear()
        async with self._api() as api, asyncio.TaskGroup() as self._tasks:
            for task in (
                self._take_in(),
                self._follow_asks(),
                self._follow_sessions(),
                self._watch_clock(),
                self._look(api),
                notice_dismissed(self._room, api, inbox, name=self.name, hint=self._unassigned),
                Outbox(self._room, api, name=self.name, clock=self._clock).run(inbox),
            ):
                self._tasks.create_task(task)

    def _begin(self, work: Coroutine[Any, Any, None], session: str) -> None:
        self._tasks.create_task(self._guarded(work, session))

    async def _guarded(self, work: Coroutine[Any, Any, None], session: str) -> None:
        """What goes wrong in one session is logged, and the others go on. Without the database nobody does: then the
        channel is begun again, and finds what it missed."""
        try:
            await work
        except StoreError:
            raise
        except Exception:
            log.exception("session %s of %s", session, self.name)

    async def _take_in(self) -> None:
        news = asyncio.Event()
        news.set()
        hush = self._room.hear(news.set)
        try:
            while True:
                await news.wait()
                news.clear()
                received = await self._room.received()
                self._taken &= {key for key, _ in received}
                for key, body in received:
                    if key not in self._taken:
                        self._taken.add(key)
                        self._tasks.create_task(self._carry_out(key, body, news))
        finally:
            hush()

    async def _carry_out(self, key: str, body: Mapping[str, Any], news: asyncio.Event) -> None:
        """One thing that came in; those of a session one after the other."""
        session = str(body.get("session"))
        try:
            async with self._locks[session]:
                event = read_kept(body)
                await (self._created(event) if isinstance(event, Created) else self._replies.take(event))
                await self._room.done(key, at=self._clock.now())
        except TooEarly as early:
            self._taken.discard(key)  # the end of the posting is news, and then it is carried out
            if not await self._room.is_posting(session, early.ask):  # it ended before the line above
                news.set()
        except StoreError as failure:
            log.error("%s could not be carried out, trying again: %s", key, failure)
            await asyncio.sleep(RETRY)
            self._taken.discard(key)
            news.set()
        except Exception:
            log.exception("%s cannot be carried out", key)
            sorry = "Something is wrong with this at the desk; its log says more."
            row = await self._room.get(session)
            if row is not None and row.state == "new":
                await self.end(row, reason=sorry)
            else:
                await self._room.write(session, Post(key, error(sorry)), at=self._clock.now())
            await self._room.done(key, at=self._clock.now())

    # Work that is given to us -----------------------------------------------------------------------------

    async def _created(self, event: Created) -> None:
        row = await self._room.get(event.session)
        if row is not None and row.state != "new":
            log.info("session %s is known already", event.session)
            return
        if event.creator is not None and event.creator.id == event.app_user:
            log.info("session %s was made by ourselves, so nothing begins", event.session)
            return
        now = self._clock.now()
        if row is None:
            row = self._new(event, at=now)
            refusal = self._refusal(event)
            if refusal is not None:
                log.warning("session %s was refused: %s", event.session, refusal)
                row = replace(row, state="ended", ended_at=now)
                await self._room.create(row, Post("refused", error(refusal)))
                return
            begun = Post("begun", thought("Looking at it."), ephemeral=True)
            await self._room.create(row, begun, link=self._link_to(row.session))
        try:
            worktree = None
            if row.repository is not None and row.branch is not None:
                worktree = await self._worktrees.make(
                    row.repository, row.id, branch=row.branch, base=self._options.base
                )
                await self._room.write(row.id, at=now, worktree=worktree)
            await self._hands.create(self._wanted(event, replace(row, worktree=worktree)))
        except StoreError:
            raise
        except HandraiseError as failed:
            await self.end(row, reason=f"This could not be started: {failed}")
            return
        await self._room.write(row.id, at=now, state="live")
        await self._show_next(row)  # one that was started before a sudden end may have asked already

    def _new(self, event: Created, *, at: int) -> LinearSession:
        identifier = event.issue.identifier if event.issue is not None else ""
        repository = self._options.repository_for(identifier)
        return LinearSession(
            id=event.session,
            session=f"{OURS}{event.session}",
            ticket=None if event.issue is None else identifier or event.issue.id,
            kind="question" if event.is_question else "assignment",
            state="new",
            created_at=at,
            expires_at=at + self._options.session_for,
            repository=repository,
            branch=branch_for(identifier, session=event.session),
        )

    def _refusal(self, event: Created) -> str | None:
        """Why nobody works on this; None where somebody may."""
        if event.creator is None:
            if not self._options.automations:
                return f"No person started this, and `automations` of [channels.{self.name}] is not true at the desk."
        else:
            person = self._writers.find(event.creator)
            if person is None:
                return self._writers.refuse(event.creator)
            if "start" not in person.may:
                return f"{plain(person.name)} may not start agents at this desk."
        identifier = event.issue.identifier if event.issue is not None else ""
        if self._options.repository_for(identifier) is None:
            return f"No repository is set for {plain(identifier) or 'this'}: [channels.{self.name}] repository says it."
        return None

    def _wanted(self, event: Created, row: LinearSession) -> NewSession:
        return NewSession(
            id=row.session,
            agent=self._options.agent,
            mode=self._options.mode,
            cwd=row.worktree,
            prompt=question_prompt(event) if event.is_question else assignment_prompt(event, branch=row.branch),
            handling=self._handling(),
        )

    def _handling(self) -> Handling:
        """As the desk decides, but nobody is waited for longer than the settings say."""
        own, limit = self._settings.handling, self._options.question_for / 1000
        if self._is_limit_ours():
            return replace(own, question_timeout=limit, on_timeout="reject")
        return own

    def _is_limit_ours(self) -> bool:
        """Whether it is for us to give up: the desk's own policy may do something else before."""
        own = self._settings.handling.question_timeout
        return own is None or own > self._options.question_for / 1000

    def _link_to(self, session: str) -> Link | None:
        address = self._settings.address
        return Link("Open in handraise", f"{address}/#/sessions/{quote(session, safe='')}") if address else None

    # What agents ask --------------------------------------------------------------------------------------

    async def _follow_asks(self) -> None:
        after = await self._inbox.cursor()
        for row in await self._room.open():
            self._begin(self._pick_up(row.id), row.id)
        async for event in self._inbox.events(after=after):
            row_id = _row_of(event.ask)
            if row_id is not None:
                self._begin(self._on_event(row_id, event), row_id)

    async def _pick_up(self, id: str) -> None:
        """Go on where the one before us was."""
        async with self._locks[id]:
            row = await self._room.get(id)
            if row is None or row.state not in ("live", "closing"):
                return
            if row.state == "closing":
                self._begin(self._close(row.id), row.id)
            elif row.ask is None:
                await self._show_next(row)
            else:
                try:
                    ask = await self._inbox.get(row.ask)
                except AskNotFound:
                    await self._room.write(row.id, at=self._clock.now(), ask=None)
                else:
                    if ask.state != "asked":
                        await self._settled(row, ask)

    async def _on_event(self, id: str, event: Event) -> None:
        async with self._locks[id]:
            row, ask = await self._room.get(id), event.ask
            if row is None or row.state != "live":
                return
            if isinstance(event, DeadlineMoved) and ask.deadline is not None:
                until = round(ask.deadline.timestamp() * 1000)
                await self._room.write(id, at=self._clock.now(), expires_at=max(row.expires_at, until))
            if ask.state == "asked":
                await self._show_next(row)
            elif row.ask == ask.id:
                await self._settled(row, ask)

    async def _show_next(self, row: LinearSession) -> None:
        """The oldest of what waits, where nothing is shown. Linear has room for one."""
        if row.ask is not None:
            return
        waiting = await self._waiting(row)
        if not waiting:
            return
        now = self._clock.now()
        row = replace(row, ask=waiting[0].id, place=0, answers=())
        remaining = max(0, row.expires_at - now) if row.remaining is None else row.remaining
        shown = self.show(row, waiting[0])
        changed = {**NOTHING_SHOWN, "ask": row.ask, "remaining": remaining}
        await self._room.write(row.id, shown, at=now, **changed)

    async def _waiting(self, row: LinearSession) -> list[Ask]:
        """What the session and its subagents ask, the oldest first."""
        sessions = [row.session, *await self._hands.sessions.children(row.session)]
        asks = [ask for each in sessions async for ask in self._inbox.asks(state="asked", session=each)]
        return sorted(asks, key=lambda ask: ask.asked_at or datetime.max.replace(tzinfo=UTC))

    def show(self, row: LinearSession, ask: Ask) -> Post:
        address = self._settings.address
        link = f"{address}/#/ask/{quote(ask.id, safe='')}" if address else None
        activity = elicitation(ask, row.place, deadline=deadline_text(ask).strip() or None, link=link)
        return Post(_once(), activity, ask=ask.id)

    async def _settled(self, row: LinearSession, ask: Ask) -> None:
        """Tell how it ended, then show the next. A session that waits for nobody has the time again that it had."""
        now = self._clock.now()
        told = Post(_once(), outcome(ask))
        if row.kind == "test":
            thanks = Post(
                "thanks", response("That was a test, and it went well." if ask.answer else "The test is over.")
            )
            await self._room.write(row.id, told, thanks, at=now, state="ended", ended_at=now, **NOTHING_SHOWN)
            return
        expires_at = row.expires_at if row.remaining is None else now + row.remaining
        row = replace(row, ask=None, expires_at=expires_at, remaining=None)
        changed = {**NOTHING_SHOWN, "expires_at": expires_at, "remaining": None}
        await self._room.write(row.id, told, at=now, **changed)
        if self._is_limit_ours() and _is_given_up(ask):
            minutes = self._options.question_for / 60_000
            await self.end(row, reason=f"Nobody answered within {minutes:g} minutes, so this was stopped.")
        else:
            await self._show_next(row)

    # What agents say and do -------------------------------------------------------------------------------

    async def _follow_sessions(self) -> None:
        async with self._hands.sessions.changes() as changed:
            changed.set()
            while True:
                await changed.wait()
                changed.clear()
                for row in await self._room.open():
                    if row.state == "live" and row.kind != "test" and row.id not in self._mirroring:
                        self._mirroring.add(row.id)
                        self._begin(self._mirror_in_turn(row.id), row.id)
                await asyncio.sleep(CALM)

    async def _mirror_in_turn(self, id: str) -> None:
        async with self._locks[id]:
            self._mirroring.discard(id)  # what is said from now on is for the next look
            await self.mirror(id)

    async def mirror(self, id: str) -> None:
        """Tell what was said and done since; whoever calls this holds the lock of the session."""
        row = await self._room.get(id)
        if row is None or row.state != "live":
            return
        try:
            record = await self._hands.sessions.get(row.session)
        except SessionNotFound:
            return
        replies = await self._hands.sessions.replies(row.session)
        is_over = len(replies) > row.turns
        if row.ask is not None and not is_over:
            return  # whatever is posted now would clear the choices that somebody is looking at
        posts, last = mirrored(await self._said(row), is_over=is_over)
        if last:
            await self._room.write(id, *posts, at=self._clock.now(), mirrored=last)
        if is_over:
            await self._end_turns(row, record, replies)

    async def _said(self, row: LinearSession) -> list[SaidMessage]:
        """All that was not told yet: what is left for later would be told after the response."""
        said: list[SaidMessage] = []
        while page := await self._hands.sessions.messages(
            row.session, after=said[-1].id if said else row.mirrored, limit=PAGE
        ):
            said += page
        return said

    async def _end_turns(self, row: LinearSession, record: SessionRecord, replies: list[str | None]) -> None:
        now = self._clock.now()
        ended = list(enumerate(replies))[row.turns :]
        posts = [
            Post(f"turn {number}", response(await self._final(row, reply)))
            for number, reply in ended
            if reply is not None
        ]
        posts += [
            Post(f"turn {number}", response("It was stopped at the desk."))
            for number, reply in ended
            if reply is None and record.state != "failed"
        ]
        changed: dict[str, Any] = {"turns": len(replies)}
        if record.orders == 0:
            changed |= {"expires_at": now + self._options.session_for, "remaining": None}
        await self._room.write(row.id, *posts, at=now, **changed)
        if record.state == "failed":
            await self.end(row, reason=f"The agent failed: {plain(inert(record.error or 'it did not say why'))}")

    async def _final(self, row: LinearSession, reply: str) -> str:
        text = markdown(reply) or "Done."
        if row.repository is None or row.branch is None:
            return text
        try:
            commits = await self._worktrees.commits(row.repository, row.branch, base=self._options.base)
        except SettingsError as failed:
            log.warning("session %s: %s", row.id, failed)
            return text
        return f"{text}\n\n{commits} commit{'s' * (commits != 1)} on `{row.branch}`." if commits else text

    # The end ----------------------------------------------------------------------------------------------

    async def _watch_clock(self) -> None:
        tick = asyncio.Event()
        hush = self._room.hear(tick.set)
        try:
            while True:
                tick.clear()
                cancel = await self._let_time_pass(tick)
                await tick.wait()
                cancel()
        finally:
            hush()

    async def _let_time_pass(self, tick: asyncio.Event) -> Callable[[], None]:
        """End what is due, and set the clock for what is due next. Returns how to stop that."""
        now, live = self._clock.now(), [row for row in await self._room.open() if row.state == "live"]
        for row in live:
            if row.expires_at <= now:
                async with self._locks[row.id]:
                    await self._expire(row.id)
        later = [row.expires_at for row in live if row.expires_at > now]
        return self._clock.call_at(min(later), tick.set) if later else lambda: None

    async def _expire(self, id: str) -> None:
        row = await self._room.get(id)
        if row is None or row.state != "live" or row.expires_at > self._clock.now():
            return
        if row.kind == "test":
            await self._room.write(id, at=self._clock.now(), state="ended", ended_at=self._clock.now())
            return
        minutes = self._options.session_for / 60_000
        is_busy = await self.is_busy(row)  # else it has said what it had to say
        reason = f"This took longer than {minutes:g} minutes, so it was stopped."
        await self.end(row, reason=reason if is_busy else None)

    async def is_busy(self, row: LinearSession) -> bool:
        try:
            record = await self._hands.sessions.get(row.session)
        except SessionNotFound:
            return False
        return record.shown_state in ("running", "waiting")

    async def end(self, row: LinearSession, *, reason: str | None) -> None:
        """Without a reason nobody is told: there is nothing to miss."""
        await self._room.write(row.id, at=self._clock.now(), state="closing", reason=reason, **NOTHING_SHOWN)
        self._begin(self._close(row.id), row.id)

    async def _close(self, id: str) -> None:
        row = await self._room.get(id)
        if row is None or row.state != "closing":
            return
        is_closed = await self._close_session(row.session)
        left = await self._clean_up(row) if is_closed else f"the agent did not end, so {row.worktree} was kept"
        posts = []
        if row.reason is not None:
            posts.append(Post("end", error(f"{row.reason} {left[0].upper()}{left[1:]}." if left else row.reason)))
        elif left:
            log.warning("session %s: %s", id, left)
        now = self._clock.now()
        await self._room.write(id, *posts, at=now, state="ended", ended_at=now, worktree=row.worktree if left else None)
        self._locks.pop(id, None)

    async def _close_session(self, session: str) -> bool:
        """End the agent. False where it does not."""

        async def is_over() -> bool:
            return (await self._hands.sessions.get(session)).state in ("done", None)

        try:
            await self._hands.sessions.order(session, "close", at=self._clock.now())
        except (SessionEnded, SessionNotFound):
            return True
        return await self._hands.sessions.wait_until(is_over, timeout=CLOSE_WITHIN)

    async def _clean_up(self, row: LinearSession) -> str | None:
        """Remove the worktree. Uncommitted work is kept, and said."""
        if row.repository is None or row.worktree is None or row.branch is None:
            return None
        try:
            removed = await self._worktrees.remove(
                row.repository, row.worktree, branch=row.branch, base=self._options.base
            )
        except SettingsError as failed:
            return f"its worktree {row.worktree} could not be removed: {failed}"
        return None if removed else f"uncommitted work was kept in {row.worktree}"

    # Trying it --------------------------------------------------------------------------------------------

    async def place_for_test(self, where: str) -> str:
        if not where:
            raise SettingsError(f"say on which issue to try it, as in: handraise channels test {self.name} ENG-42")
        async with self._api() as api:
            try:
                id = await api.open_on_issue(where, link=self._settings.address or None)
            except SendFailed as failure:
                raise SettingsError(f"no session could be opened on {where}: {failure}") from None
        now = self._clock.now()
        expires_at = now + self._options.session_for
        row = LinearSession(
            id=id,
            session=f"{OURS}{id}",
            ticket=where,
            kind="test",
            state="live",
            created_at=now,
            expires_at=expires_at,
        )
        if not await self._room.create(row):
            raise SettingsError(f"the session that was opened on {where} was taken for work; try it again")
        return row.session

    async def examine(self) -> list[str]:
        """What is wrong with the token, the repositories or the address."""
        problems = []
        async with self._api() as api:
            try:
                me = await api.me()
                if not me.is_app:
                    problems.append(
                        "its token is a person's, and only an app is given work: use one of your Linear app"
                    )
                if api.lacks:
                    problems.append(
                        f"the app lacks {', '.join(api.lacks)}: allow it in Linear, and install the app anew"
                    )
            except SendFailed as failure:
                problems.append(str(failure))
        repositories = {self._options.repository, *self._options.repositories.values()} - {None}
        if not repositories:
            problems.append(f"no repository is set, so nothing can be worked on: [channels.{self.name}] repository")
        for repository in sorted(filter(None, repositories)):
            try:
                await Worktrees.check(repository)
            except SettingsError as failed:
                problems.append(str(failed))
        if not any(self.name in person.known_as for person in self._settings.people):
            problems.append(f'nobody may use it: [people.NAME] {self.name} = "you@example.com" says who you are there')
        return problems


def _once() -> str:
    """The key of what is written down in the commit that makes it necessary, and so never a second time."""
    return secrets.token_hex(16)


def _row_of(ask: Ask) -> str | None:
    """The session of Linear's that an ask belongs to, also one of a subagent."""
    for session in (ask.origin.session, ask.origin.parent or ""):
        if session.startswith(OURS):
            return session.removeprefix(OURS)
    return None


def _is_given_up(ask: Ask) -> bool:
    """Whether nobody answered in time, and nothing was chosen in their place."""
    return ask.answer is not None and ask.answer.by == "policy:timeout" and ask.answer.rejected
