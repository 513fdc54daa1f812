"""The desk in the middle: ask -> verdict -> wait -> answer. The only place where an ask changes state.

    asked ── answer ──▶ answered ┐
      │ ├─── reject ──▶ rejected ┴─ delivered, or why not; after a minute of silence: nobody came for it
      │ └── deadline ─▶ answered or rejected, as the verdict said when it was asked
      └─── withdraw ──▶ withdrawn ── asked again ──▶ asked

Each arrow is one conditional write, which decides every race: two people, a person against the clock, a person against
the agent's own terminal. Timers and waiters hold no truth; losing all of them loses nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from handraise.asks import Answer, Ask, Handling, Judgement, State, bound, fit
from handraise.broker.counts import Counts
from handraise.broker.feed import LONGEST_PAGE, Feeds
from handraise.broker.presence import Presence
from handraise.clock import Clock, SystemClock, give_way
from handraise.errors import (
    AlreadyAnswered,
    AnswerDoesNotFit,
    AskDiffers,
    AskDoesNotFit,
    AskNotFound,
    AskWithdrawn,
    CursorTooOld,
    HandraiseError,
    SettingsError,
    StoreError,
    Withdrawn,
)
from handraise.events import Event
from handraise.policies import Forward, policy_for
from handraise.policies.carried import carried
from handraise.rules.book import Rulebook, answer_of
from handraise.rules.risks import judge
from handraise.stores import NO_EXTRA_WRITES, AlsoWrite, Change, NewAsk, Opened, Query, Store, writable
from handraise.tables.links import Links
from handraise.tables.sessions import Sessions
from handraise.tables.showings import Showings
from handraise.wire import (
    LARGE,
    Stored,
    StoredEvent,
    answer_text,
    content_text,
    judgement_text,
    parse_ask,
)

if TYPE_CHECKING:
    from handraise.channels import Showing

__all__ = ["Broker", "CommitHook"]

log = logging.getLogger(__name__)

DELIVERIES_AFTER = 0.02  # seconds in which deliveries gather, so that the next ask does not queue behind their commit
RETRY = 1000  # milliseconds until a write of our own that failed is tried again
MOST_AT_ONCE = 500  # deadlines closed, or events pruned, in one commit
PRUNE_EVERY = 60_000  # milliseconds
BETWEEN_PRUNES = 0.05  # seconds
MOST_REMEMBERED = 4096  # asks, none of them large, that are kept parsed, so that an answer is checked without reading
SETTLED = frozenset({"answered", "rejected", "withdrawn"})
TAKEN_WITHIN = timedelta(minutes=1)
NOBODY_CAME = "nobody has come for it yet; it is kept"
UNSEEN_AFTER = 10_000  # milliseconds that other channels get to show what one could not
BY_UNSEEN = "policy:unseen"  # who gave an answer because nobody could be asked
BY_AGENT = "agent"  # who gave an answer that an agent learned without us


class _How(NamedTuple):
    """What is said about an ask besides itself."""

    handling: Handling | None
    owner: str
    worker: str | None
    base: str | None = None  # the id without its ordinal, where it has one
    also_write: AlsoWrite = NO_EXTRA_WRITES


class CommitHook(Protocol):
    """Keeps a record of what one kind of agent asks. The record changes in the commit that closes the ask."""

    async def closing(self, ask: Ask, answer: Answer | None, *, at: int) -> AlsoWrite:
        """What is also written if this closes the ask. Without an answer it is withdrawn."""


class Broker:
    """Use as an async context manager. Leaving it cancels waits and withdraws nothing."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        handling: Handling | None = None,
        rules: Rulebook | None = None,
        keep: timedelta | None = None,
        taken_within: timedelta | None = TAKEN_WITHIN,
    ) -> None:
        """Without `rules`, only those that are kept in the store hold. `keep` is how long events and settled asks are
        kept; without it, for ever. `taken_within` is how long an agent has to take an answer or to say why it cannot,
        until it is told that nobody came; without it, for ever."""
        self.store = store
        self.clock: Clock = clock or SystemClock()
        self.feeds = Feeds(store, self.clock)
        self.sessions = Sessions(store)
        self.showings = Showings(store)
        self.links = Links(store, clock=self.clock)
        self.address = ""  # where people open the desk
        self.presence = Presence()  # of people who look at what waits
        self.rules = rules or Rulebook(store)
        self.handling = handling or Handling()
        self.counts = Counts()
        self.commit_hooks: dict[str, CommitHook] = {}  # by the name of the agent
        self._keep = keep
        self._taken_within = None if taken_within is None else round(taken_within.total_seconds() * 1000)
        self._opening: dict[str, tuple[str, Ask]] = {}
        self._remembered: dict[str, Ask] = {}
        self._waiters: dict[str, list[asyncio.Future[Stored | None]]] = {}
        self._deadlines: list[tuple[int, str]] = []
        self._deliveries: list[tuple[str, str | None]] = []
        self._untaken: dict[str, int] = {}  # answers without a word from their agents, and until when; oldest first
        self._looks_for_untaken = False
        self._cancel_look: Callable[[], None] = lambda: None
        self._doubtful: list[tuple[int, str]] = []  # asks that a channel could not show, and when to look again
        self._alarmed: set[str] = set()  # open asks of which it was told that nobody sees them
        self._flushing = asyncio.Lock()
        self._chores = asyncio.Event()
        self._cancel_timer: Callable[[], None] = lambda: None
        self._closing = False
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._stack.callback(self.store.tail(self._told))
        self._stack.callback(self.feeds.close)
        self._stack.push_async_callback(self._flush_deliveries)
        self._deadlines += await self.store.deadlines()  # and those told while it was read
        heapq.heapify(self._deadlines)
        for id in await self.store.untaken():
            self._expect_taking(id, since=self.clock.now())
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        chores = tasks.create_task(self._do_chores())
        self._stack.callback(chores.cancel)
        if self._keep is not None:
            forgetting = tasks.create_task(self._forget_in_turn(self._keep))
            self._stack.callback(forgetting.cancel)
        self._set_timer()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel_waits()
        self._cancel_timer()
        self._cancel_look()
        await self._stack.aclose()

    # Asking -----------------------------------------------------------------------------------------------

    async def open(
        self,
        ask: Ask,
        *,
        handling: Handling | None = None,
        owner: str = "",
        worker: str | None = None,
        ordinal: bool = False,
        wait: float | None = None,
        also_write: AlsoWrite = NO_EXTRA_WRITES,
    ) -> Opened:
        """Raise a hand, or join the one raised before under the same id. Policy may have answered when this returns.

        With `wait` it returns once the ask is settled, or as it is after that many seconds or when the desk closes.

        `ordinal` is for ids that may repeat by accident: the desk adds a number to it, and joins the newest one only
        while that is open or its answer was not taken, so that an old answer never grants a new command.
        `also_write` is written in the commit that opens it.
        Raises AskDoesNotFit, and AskDiffers where the id stands for something else.
        """
        how = _How(handling=handling, owner=owner, worker=worker, also_write=also_write)
        if not ordinal:
            opening = self._open(ask, how, wait=wait)
            del ask  # so that a large one is let go of before it is written
            return await opening
        opened = await self._open_numbered(ask, how)
        if wait is None or opened.stored.state in SETTLED:
            return opened
        return opened._replace(stored=await self.wait(opened.stored.id, timeout=wait))

    async def _open_numbered(self, ask: Ask, how: _How) -> Opened:
        await self._flush_deliveries()  # what the agent has taken is over, also if that is not written yet
        newest = (await self.store.newest([ask.id])).get(ask.id)
        number = 1
        if newest is not None:
            number = int(newest.id.rpartition("#")[2]) + _is_over(newest)
        while True:
            opened = await self._open(replace(ask, id=f"{ask.id}#{number}"), how._replace(base=ask.id))
            if opened.how == "new" or not _is_over(opened.stored):
                return opened
            number += 1

    async def _open(self, ask: Ask, how: _How, *, wait: float | None = None) -> Opened:
        content = content_text(ask)
        bound(ask, size=len(content))  # first: nothing is looked at that does not fit
        is_large = len(content) > LARGE
        if is_large:
            await give_way()
        judgement = None if ask.permission is None else judge(ask)
        before = await self._carried(ask, how) if judgement is None else await self._ruled(ask, how, judgement)
        row = self._decided(ask, how, content=content, judgement=judgement, before=before)
        await self.sessions.mention(ask.origin, at=row.asked_at)
        id, settled = row.id, self._listen(row.id)
        kept = None if is_large else ask
        del ask, content  # what is large is in the row, and nowhere else while it is written
        if kept is not None:
            self._opening[id] = row.content, kept
        try:
            opened = await self.store.open(row, also_write=how.also_write)
            if opened.how == "differs":
                ask = kept or parse_ask(f"{{{row.content}}}")
                same = _as_looked_up_before(ask, opened.stored.ask())
                if same == ask:
                    raise AskDiffers(id)
                return await self._open(same, how, wait=wait)
            if opened.how != "joined":
                self._count_opening(row)
            if wait is None or opened.stored.state in SETTLED:
                return opened
            done, openings = opened.how, opened.stored.openings
            del opened, row, kept  # nobody holds a large one while it waits
            heard = await self._settled(settled, timeout=wait)
        finally:
            self._opening.pop(id, None)
            self._hush(id, settled)
        if heard is not None and heard.openings != openings:  # how the opening before this one ended
            heard = await self.wait(id, timeout=wait)
        return Opened(done, heard or await self.stored(id))

    def _count_opening(self, row: NewAsk) -> None:
        if row.judgement is None:
            self.counts.questions += 1
        else:
            self.counts.permissions += 1
        if row.answer is not None:
            self.counts.answers["policy"].add(0)

    async def _ruled(self, ask: Ask, how: _How, judgement: Judgement) -> Answer | None:
        """What the rules decide, those among them that a person made for the session. None where they say nothing."""
        lasting = (how.handling or self.handling).permission_policy != "reject"
        decision = await self.rules.decide(ask, owner=how.owner, lasting=lasting)
        if decision.action == "delegate":
            stored = await self.store.get(ask.id)
            if stored is not None and stored.state != "withdrawn":
                return None  # it joins, and what was decided for it stands
            decision = await self.rules.delegated(ask, decision, doubt=judgement.doubt)
        return answer_of(decision)

    async def _carried(self, ask: Ask, how: _How) -> Answer | None:
        """What a person said to the same questions in the same step of a run, in an attempt whose machine is gone.

        Never for permissions: what was allowed there may look the same here, and do something else. Never from asks of
        another token: a run and a step can be named by anybody.
        """
        origin = ask.origin
        if origin.run is None or origin.step is None:
            return None
        lost = await self.sessions.lost(run=origin.run, step=origin.step)
        if not lost:
            return None
        return carried(ask, [each async for each in self.asks(run=origin.run, owner=how.owner)], lost=lost)

    def _decided(
        self, ask: Ask, how: _How, *, content: str, judgement: Judgement | None, before: Answer | None
    ) -> NewAsk:
        """The row of a new ask with policy's verdict in it. Nobody evaluates policy again for it."""
        try:
            verdict = before or policy_for(how.handling or self.handling)(ask)
        except SettingsError as unusable:
            raise AskDoesNotFit(str(unusable)) from None
        now = self.clock.now()
        row = NewAsk(
            id=ask.id,
            base=how.base,
            owner=how.owner,
            worker=how.worker,
            session=ask.origin.session,
            run=ask.origin.run,
            agent=ask.origin.agent,
            content=content,
            state="asked",
            asked_at=now,
            timeout=None,
            deadline=None,
            fallback=None,
            answer=None,
            judgement=None if judgement is None else judgement_text(judgement),
            events=("asked",),
        )
        if isinstance(verdict, Forward):
            if verdict.timeout is None or verdict.then is None:
                return row
            timeout = round(verdict.timeout * 1000)
            return row._replace(timeout=timeout, deadline=now + timeout, fallback=answer_text(verdict.then))
        state, told = _closing(verdict)
        return row._replace(state=state, answer=answer_text(verdict, at=now), events=("asked", told))

    async def ask(
        self,
        ask: Ask,
        *,
        handling: Handling | None = None,
        worker: str | None = None,
        ordinal: bool = False,
    ) -> Answer:
        """Raise a hand and wait, however long it takes. A rejection is an Answer too; raises Withdrawn.

        Cancelling the wait is not a withdrawal: asking again under the same id joins.
        """
        opened = await self.open(ask, handling=handling, worker=worker, ordinal=ordinal, wait=math.inf)
        stored = opened.stored
        if stored.state == "asked":
            raise asyncio.CancelledError("the desk is closing; the ask stays open")
        answer = stored.settled()
        if answer is None:
            raise Withdrawn(stored.ask())
        return answer

    async def wait(self, id: str, *, timeout: float = math.inf) -> Stored:
        """The ask once it is settled, or as it is when `timeout` seconds have passed or the desk closes."""
        settled = self._listen(id)
        try:
            stored = await self.stored(id)
            if stored.state in SETTLED:
                return stored
            return await self._settled(settled, timeout=timeout) or await self.stored(id)
        finally:
            self._hush(id, settled)

    def _listen(self, id: str) -> asyncio.Future[Stored | None]:
        """A future that hears of the ask being settled, from now on. Give it back with `_hush`."""
        settled: asyncio.Future[Stored | None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(id, []).append(settled)
        return settled

    def _hush(self, id: str, settled: asyncio.Future[Stored | None]) -> None:
        waiting = self._waiters.get(id)
        if waiting is not None and settled in waiting:
            waiting.remove(settled)
            if not waiting:
                del self._waiters[id]

    async def _settled(self, settled: asyncio.Future[Stored | None], *, timeout: float) -> Stored | None:
        """What was heard, or None when the time is up or the desk closes."""
        if self._closing:
            return None
        if timeout == math.inf:
            return await settled
        timer = asyncio.get_running_loop().call_later(timeout, _give_up, settled)
        try:
            return await settled
        finally:
            timer.cancel()

    @property
    def waits(self) -> int:
        """How many callers wait for an answer right now."""
        return sum(map(len, self._waiters.values()))

    def cancel_waits(self) -> None:
        """End every wait, as a desk does that shuts down. The asks stay open."""
        self._closing = True
        self.sessions.cancel_waits()
        for waiting in self._waiters.values():
            for settled in waiting:
                _give_up(settled)

    async def withdraw(self, id: str, *, reason: str | None = None, answer: Answer | None = None) -> Ask:
        """The agent stopped waiting. Raises AlreadyAnswered where somebody was faster.

        An id that carries an ordinal may be given without it: the newest one is meant. `answer` is what a person said
        in the agent's own terminal: it closes the ask as `agent`'s, and the agent has it already.
        """
        return (await self.withdraw_stored(id, reason=reason, answer=answer)).ask()

    async def withdraw_stored(
        self, id: str, *, reason: str | None = None, answer: Answer | None = None, source: str | None = None
    ) -> Stored:
        """`withdraw`, for those who want the text. `source` is where it came from, kept for the audit alone."""
        if answer is not None:
            settled = await self._answered_there(id, answer, source=source)
            if settled is not None:
                return settled
        # Written without looking first: behind an opening that was cancelled and may still be written.
        now = self.clock.now()
        change = Change(
            states=("asked",),
            set={"state": "withdrawn", "withdrawn_reason": writable(reason)},
            event="withdrawn",
            at=now,
            source=source,
            also_write=await self._withdrawal_writes(id, at=now),
        )
        changed = await self.store.change(id, change)
        if changed is None:
            newest = (await self.store.newest([id])).get(id)
            if newest is None:
                raise AskNotFound(id)
            return await self.withdraw_stored(newest.id, reason=reason, answer=answer, source=source)
        self.counts.withdrawn += changed.done
        if changed.done or changed.stored.state == "withdrawn":
            return changed.stored
        raise _already_answered(changed.stored)

    async def _hook_writes(self, ask: Ask, answer: Answer | None, *, at: int) -> AlsoWrite:
        hook = self.commit_hooks.get(ask.origin.agent)
        return NO_EXTRA_WRITES if hook is None else await hook.closing(ask, answer, at=at)

    async def _answer_writes(self, ask: Ask, answer: Answer, *, at: int) -> AlsoWrite:
        """What a commit hook writes, and the rules that an `always` makes: an agent may ask again at once."""
        also_write = await self._hook_writes(ask, answer, at=at)
        # What an agent says of its own terminal lasts there. Here whoever may only ask would make rules for others.
        if answer.reply != "always" or answer.by == BY_AGENT:
            return also_write
        kept = self.rules.keeping(ask, answer, owner=(await self.stored(ask.id)).owner, at=at)
        return also_write._replace(statements=[*also_write.statements, *kept])

    def _taken_in_commit(self, stored: Stored) -> None:
        """What is in its record by the same commit has arrived."""
        if stored.agent in self.commit_hooks:
            self.delivered(stored.id)

    async def _withdrawal_writes(self, id: str, *, at: int) -> AlsoWrite:
        stored = await self.store.get(id) if self.commit_hooks else None
        if stored is None or stored.agent not in self.commit_hooks:
            return NO_EXTRA_WRITES
        return await self._hook_writes(stored.ask(), None, at=at)

    async def _answered_there(self, id: str, answer: Answer, *, source: str | None) -> Stored | None:
        """The ask, settled by what the agent learned without us; None where that cannot be its answer."""
        try:
            settled = await self.answer_stored(id, replace(answer, by=BY_AGENT, at=None), source=source)
        except AskWithdrawn:
            return await self.stored(id)
        except AskNotFound:  # its ordinal is missing, or it is not there
            return None
        except AnswerDoesNotFit as unfit:
            log.warning("what was answered in the agent's own terminal does not fit ask %s: %s", id, unfit.code)
            return None
        self.delivered(id)
        return settled

    def delivered(self, id: str, *, error: str | None = None) -> None:
        """The agent took the answer, or could not. Written soon, in batches, off the waiting path."""
        if not self._deliveries:
            asyncio.get_running_loop().call_later(DELIVERIES_AFTER, self._chores.set)
        self._deliveries.append((id, error))

    # Answering --------------------------------------------------------------------------------------------

    async def answer(self, id: str, answer: Answer) -> Ask:
        """Close a pending ask. First come, first served: a different second answer gets AlreadyAnswered.

        Raises AnswerDoesNotFit with every problem and leaves the ask open; AskNotFound; AskWithdrawn.
        """
        return (await self.answer_stored(id, answer)).ask()

    async def reject(self, id: str, *, reason: str | None = None, by: str = "", via: str = "") -> Ask:
        """Refuse it, finally. The reason reaches the agent."""
        return await self.answer(id, Answer(rejected=True, reason=reason, by=by, via=via))

    async def answer_stored(
        self,
        id: str,
        answer: Answer,
        *,
        allow_repeat: bool = True,
        source: str | None = None,
        also_write: AlsoWrite | None = None,
    ) -> Stored:
        """`answer`, for those who want the text rather than the record. `source` is kept for the audit alone.

        Without `allow_repeat` only the first one is let through: the same answer a second time is AlreadyAnswered too.
        `also_write` is for a commit hook that closes its own ask: it is written in the same commit, and what it answers
        stands as it is, also where the question offers other choices.
        """
        try:
            ask = await self._content(id)
            fitted = fit(ask, answer) if also_write is None else answer
        except AnswerDoesNotFit:
            stored = await self.stored(id)
            if stored.state == "asked":
                raise
            self.counts.races_lost += 1
            raise _lost(stored) from None
        now = self.clock.now()
        state, told = _closing(fitted)
        change = Change(
            states=("asked",),
            set={"state": state, "answer": answer_text(fitted, at=now)},
            event=told,
            at=now,
            source=source,
            also_write=await self._answer_writes(ask, fitted, at=now) if also_write is None else also_write,
        )
        del ask  # a large one is not held while the answer is written
        changed = await self.store.change(id, change)
        if changed is None:
            raise AskNotFound(id)
        if changed.done:
            self.counts.decided(fitted.by, after=now - changed.stored.asked_at)
            self._taken_in_commit(changed.stored)
            return changed.stored
        winner = changed.stored.settled()
        if allow_repeat and winner is not None and winner.same_as(fitted):
            return changed.stored
        self.counts.races_lost += 1
        raise _lost(changed.stored)

    async def keep_waiting(self, id: str) -> Ask:
        """Move the deadline by the time the ask was given. Without a deadline there is nothing to move."""
        return (await self.keep_waiting_stored(id)).ask()

    async def keep_waiting_stored(self, id: str, *, source: str | None = None) -> Stored:
        """`keep_waiting`, for those who want the text. `source` is kept for the audit alone."""
        stored = await self.stored(id)
        now = self.clock.now()
        if stored.state == "asked" and stored.deadline is not None and stored.timeout is not None:
            change = Change(
                states=("asked",),
                set={"deadline": max(stored.deadline, now) + stored.timeout},
                event="deadline_moved",
                at=now,
                source=source,
            )
            changed = await self.store.change(id, change)
            stored = stored if changed is None else changed.stored
        if stored.state != "asked":
            raise _lost(stored)
        return stored

    # Showing ----------------------------------------------------------------------------------------------

    async def link(self, id: str, *, by: str, via: str) -> str:
        """Where whoever opens it may answer this ask, once, in the name of `by`.

        Raises AskNotFound, AlreadyAnswered, AskWithdrawn.
        """
        stored = await self.pending(id)
        secret, _ = await self.links.make(stored.id, by=by, via=via, maker="")
        return f"{self.address}/a/{secret}"

    async def showed(
        self, id: str, state: Showing, *, channel: str, place: str | None = None, error: str | None = None
    ) -> None:
        """What became of showing an ask in a channel. One that nobody could be shown does not wait unseen."""
        now = self.clock.now()
        if state == "failed":
            self._doubtful.append((now + UNSEEN_AFTER, id))
            self.clock.call_at(now + UNSEEN_AFTER, self._chores.set)
        await self.showings.write(id, channel, state, place=place, error=error, at=now)

    async def places(self, channel: str) -> Mapping[str, str]:
        return await self.showings.places(channel)

    async def left(self, id: str, *, channel: str) -> None:
        await self.showings.leave(id, channel, at=self.clock.now())

    async def _look_again(self) -> None:
        """At what a channel could not show: no other has shown it since, and nobody looks at the desk."""
        now = self.clock.now()
        due = dict.fromkeys(id for when, id in self._doubtful if when <= now)
        try:
            for id in due:
                trouble = None if await self.presence.is_there() else await self.showings.trouble(id)
                if trouble is not None:
                    await self._go_on_unseen(id, trouble)
        except StoreError as failure:
            log.error("what nobody was shown could not be looked at, trying again: %s", failure)
            self.clock.call_at(now + RETRY, self._chores.set)
            return
        self._doubtful = [(when, id) for when, id in self._doubtful if when > now]

    async def _go_on_unseen(self, id: str, trouble: str) -> None:
        """What policy says about silence happens now. Where it says to wait, that is told as an alarm."""
        now = self.clock.now()
        stored = await self.store.get(id)
        if stored is None or stored.state != "asked" or id in self._alarmed:
            return
        log.error("nobody could be shown ask %s: %s", id, trouble)
        self.counts.unseen += 1
        if stored.fallback is None:
            self._alarmed.add(id)  # told once, however often the channel tries
            alarm = Change(states=("asked",), set={"state": "asked"}, event="unseen", at=now)
            rung = await self.store.change(id, alarm)
            if rung is None or not rung.done:
                self._alarmed.discard(id)
            return
        reason = f"nobody could be shown this ({trouble})"
        fallback = stored._replace(answer=stored.fallback).settled()
        assert fallback is not None
        answer = replace(
            fallback,
            by=BY_UNSEEN,
            reason=reason if fallback.rejected else None,
            why=(reason, *fallback.why[1:]),
        )
        changed = await self.store.change(id, await self._closed_by_policy(stored, answer, at=now))
        if changed is not None and changed.done:
            self.counts.decided(BY_UNSEEN, after=now - stored.asked_at)
            self._taken_in_commit(changed.stored)

    # Reading ----------------------------------------------------------------------------------------------

    async def stored(self, id: str) -> Stored:
        stored = await self.store.get(id)
        if stored is None:
            raise AskNotFound(id)
        return stored

    async def pending(self, id: str) -> Stored:
        """The ask, if it waits for an answer. Raises AskNotFound, AlreadyAnswered, AskWithdrawn."""
        stored = await self.stored(id)
        if stored.state != "asked":
            raise _lost(stored)
        return stored

    async def cursor(self) -> int:
        """Where events stand now."""
        return await self.store.cursor()

    async def get(self, id: str) -> Ask:
        return (await self.stored(id)).ask()

    async def asks(
        self,
        *,
        state: State | None = None,
        agent: str | None = None,
        session: str | None = None,
        run: str | None = None,
        owner: str | None = None,
    ) -> AsyncIterator[Ask]:
        """Every ask that fits, oldest first."""
        query = Query(state=state, agent=agent, session=session, run=run, owner=owner)
        after = 0
        while page := await self.store.find(query, after=after, most=LONGEST_PAGE):
            after = page[-1].seq
            while page:  # none is held for longer than it takes
                yield page.pop(0).ask()

    async def events(
        self,
        *,
        after: int | None = None,
        session: str | None = None,
        run: str | None = None,
        worker: str | None = None,
    ) -> AsyncIterator[Event]:
        """What happens from now on, or after a cursor: every event once, in order, until the desk closes.

        Raises CursorTooOld where events after that cursor were pruned. 0 is the oldest event there is.
        """
        if after is None:
            after = await self.cursor()
        feed = self.feeds.follow(Query(session=session, run=run, worker=worker), after=after)
        try:
            async for batches in feed.batches():
                for batch in batches:
                    if batch.pruned is not None and after:
                        raise CursorTooOld(through=batch.pruned)
                    for told in batch.events:
                        after = told.cursor
                        yield told.event()
        finally:
            self.feeds.leave(feed)

    # Behind the scenes ------------------------------------------------------------------------------------

    def _remember(self, ask: Ask) -> None:
        if len(self._remembered) >= MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[ask.id] = ask

    async def _content(self, id: str) -> Ask:
        """Questions and permission of an ask. They never change, so a remembered one is as good as a stored one."""
        remembered = self._remembered.get(id)
        if remembered is None:
            stored = await self.stored(id)
            remembered = stored.ask()
            if len(stored.content) <= LARGE:
                self._remember(remembered)
            else:
                await give_way()  # what is done with it takes a while as well
        return remembered

    def _told(self, events: Sequence[StoredEvent]) -> None:
        earliest = self._deadlines[0] if self._deadlines else None
        for told in events:
            stored = told.ask
            if told.type == "asked":
                content, ask = self._opening.pop(stored.id, (None, None))
                if ask is not None and content == stored.content:
                    self._remember(ask)
                else:  # another desk's; under an id that was pruned it may ask something else
                    self._remembered.pop(stored.id, None)
            if told.type == "answered" or told.type == "rejected":
                self._expect_taking(stored.id, since=told.at)
            elif self._untaken:
                self._untaken.pop(stored.id, None)
            if stored.state in SETTLED:
                self._alarmed.discard(stored.id)
                for settled in self._waiters.pop(stored.id, ()):
                    if not settled.done():
                        settled.set_result(stored)
            elif stored.deadline is not None:
                heapq.heappush(self._deadlines, (stored.deadline, stored.id))
        if self._deadlines and self._deadlines[0] != earliest:
            self._set_timer()

    def _set_timer(self) -> None:
        self._cancel_timer()
        if self._deadlines:
            self._cancel_timer = self.clock.call_at(self._deadlines[0][0], self._chores.set)

    async def _do_chores(self) -> None:
        """Let deadlines pass and report deliveries: our own writes, which nobody waits for."""
        while True:
            await self._chores.wait()
            self._chores.clear()
            await self._flush_deliveries()
            await self._expire()
            await self._look_again()
            await self._tell_untaken()
            self._set_timer()

    async def _expire(self) -> None:
        now = self.clock.now()
        due: dict[str, None] = {}  # told in the order of their deadlines; of one that was moved the last entry counts
        while self._deadlines and self._deadlines[0][0] <= now and len(due) < MOST_AT_ONCE:
            _, id = heapq.heappop(self._deadlines)
            due.pop(id, None)
            due[id] = None
        try:
            closings = [closing for id in due if (closing := await self._closing_by_timeout(id, now=now)) is not None]
            for changed in await self.store.change_all(closings):
                if changed is not None and changed.done:
                    self.counts.decided("policy:timeout", after=now - changed.stored.asked_at)
                    self._taken_in_commit(changed.stored)
        except StoreError as failure:
            log.error("%d deadlines could not be written, trying again: %s", len(due), failure)
            for id in due:
                heapq.heappush(self._deadlines, (now + RETRY, id))

    async def _closing_by_timeout(self, id: str, *, now: int) -> tuple[str, Change] | None:
        stored = await self.store.get(id)
        if stored is None or stored.state != "asked" or stored.fallback is None:
            return None
        fallback = stored._replace(answer=stored.fallback).settled()
        assert fallback is not None
        # A deadline that was moved meanwhile is not due, and its own entry is in the heap.
        return id, await self._closed_by_policy(stored, fallback, at=now, due=now)

    async def _closed_by_policy(self, stored: Stored, answer: Answer, *, at: int, due: int | None = None) -> Change:
        state, told = _closing(answer)
        also_write = NO_EXTRA_WRITES
        if stored.agent in self.commit_hooks:
            also_write = await self._hook_writes(stored.ask(), answer, at=at)
        closing = {"state": state, "answer": answer_text(answer, at=at)}
        return Change(states=("asked",), set=closing, event=told, at=at, due=due, also_write=also_write)

    def _expect_taking(self, id: str, *, since: int) -> None:
        if self._taken_within is None:
            return
        self._untaken[id] = since + self._taken_within
        if not self._looks_for_untaken:  # one timer for all of them
            self._look_for_untaken(at=since + self._taken_within)

    def _look_for_untaken(self, *, at: int) -> None:
        def look() -> None:
            self._looks_for_untaken = False
            self._chores.set()

        self._looks_for_untaken = True
        self._cancel_look = self.clock.call_at(at, look)

    async def _tell_untaken(self) -> None:
        """Say of answers that nobody came for them. An agent that comes later still gets its answer."""
        if self._looks_for_untaken or not self._untaken:
            return
        now = self.clock.now()
        due = [id for id, until in takewhile(lambda entry: entry[1] <= now, self._untaken.items())]
        untaken = _delivery(now, error=NOBODY_CAME)._replace(empty=("delivered_at", "delivery_error"))
        try:
            for changed in await self.store.change_all([(id, untaken) for id in due]):
                self.counts.failed += changed is not None and changed.done
        except StoreError as failure:
            log.error("%d answers that nobody came for could not be told, trying again: %s", len(due), failure)
            self._look_for_untaken(at=now + RETRY)
            return
        for id in due:
            self._untaken.pop(id, None)
        if self._untaken:
            self._look_for_untaken(at=next(iter(self._untaken.values())))

    async def _forget_in_turn(self, keep: timedelta) -> None:
        """Prune what is too old, a little at a time, so that nobody's write waits for it."""
        while True:
            try:
                before = self.clock.now() - round(keep.total_seconds() * 1000)
                gone = MOST_AT_ONCE
                while gone == MOST_AT_ONCE:
                    gone = await self.store.prune(before=before, limit=MOST_AT_ONCE)
                    self.counts.pruned += gone
                    await asyncio.sleep(BETWEEN_PRUNES)
                await self.showings.forget(limit=MOST_AT_ONCE)
                await self.links.forget()
            except StoreError as failure:
                log.error("what is older than %s could not be pruned, trying again later: %s", keep, failure)
            later = asyncio.Event()
            self.clock.call_at(self.clock.now() + PRUNE_EVERY, later.set)
            await later.wait()

    async def _flush_deliveries(self) -> None:
        """When this returns, what was reported before is written."""
        async with self._flushing:
            deliveries, self._deliveries = self._deliveries, []
            if not deliveries:
                return
            try:
                await self.report(deliveries)
            except StoreError as failure:
                log.error("%d deliveries could not be written, trying again: %s", len(deliveries), failure)
                self._deliveries = deliveries + self._deliveries
                self.clock.call_at(self.clock.now() + RETRY, self._chores.set)
            except asyncio.CancelledError:  # who was cancelled here is not the one who reported them
                self._deliveries = deliveries + self._deliveries
                self._chores.set()
                raise

    async def report(self, deliveries: Iterable[tuple[str, str | None]]) -> list[Stored | None]:
        """Write deliveries now, `(id, error)` each; None stands for an ask nobody knows.

        An ask is written once, however often it is named: taken if one entry says so, else with the last error.
        """
        now = self.clock.now()
        taken = _delivery(now, error=None)
        named = list(deliveries)
        said: dict[str, str | None] = {}
        for id, error in named:
            if said.get(id, "") is not None:
                said[id] = error
        changes = {id: taken if error is None else _delivery(now, error=error) for id, error in said.items()}
        reported = dict(zip(changes, await self.store.change_all(list(changes.items())), strict=True))
        newest = await self._without_number([id for id, changed in reported.items() if changed is None])
        again = [(stored.id, changes[id]) for id, stored in newest.items()]
        reported |= zip(newest, await self.store.change_all(again), strict=True)
        for id, changed in reported.items():
            if changed is not None and changed.done:
                self.counts.delivered += changes[id] is taken
                self.counts.failed += changes[id] is not taken
        return [None if (changed := reported[id]) is None else changed.stored for id, _ in named]

    async def _without_number(self, ids: Sequence[str]) -> dict[str, Stored]:
        """The asks that are meant by ids without their ordinal."""
        return await self.store.newest(ids) if ids else {}


def _give_up(settled: asyncio.Future[Stored | None]) -> None:
    if not settled.done():
        settled.set_result(None)


def _closing(answer: Answer) -> tuple[Any, str]:
    """The state an answer leads to, and the event that tells it."""
    return ("rejected", "rejected") if answer.rejected else ("answered", "answered")


def _delivery(now: int, *, error: str | None) -> Change:
    taken = {"delivered_at": now, "delivery_error": None} if error is None else {"delivery_error": writable(error)}
    return Change(states=("answered", "rejected"), empty=("delivered_at",), set=taken, event="delivered", at=now)


def _is_over(stored: Stored) -> bool:
    """Settled, and nobody still waits to be told."""
    return stored.state == "withdrawn" or (stored.state != "asked" and stored.delivered_at is not None)


def _lost(stored: Stored) -> HandraiseError:
    if stored.state == "withdrawn":
        return AskWithdrawn(stored.id, reason=stored.withdrawn_reason)
    return _already_answered(stored)


def _as_looked_up_before(ask: Ask, stored: Ask) -> Ask:
    """A link may lead elsewhere when the same is asked again. What was judged is what stands there."""
    if ask.permission is None or stored.permission is None:
        return ask
    before = stored.permission
    return replace(ask, permission=replace(ask.permission, resolved=before.resolved, resolved_cwd=before.resolved_cwd))


def _already_answered(stored: Stored) -> AlreadyAnswered:
    winner = stored.settled()
    assert winner is not None
    assert stored.answer is not None
    verb = "rejected" if winner.rejected else "answered"
    told = json.loads(stored.answer)
    return AlreadyAnswered(
        f"ask {stored.id!r} was already {verb} by {winner.by or 'somebody'}"
        + (f" in {winner.via}" if winner.via else ""),
        id=stored.id,
        by=winner.by,
        via=winner.via,
        at=told["at"],
        answer=told,
    )
