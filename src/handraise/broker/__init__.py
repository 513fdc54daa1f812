"""The desk in the middle: ask -> verdict -> wait -> answer. The only place where an ask changes state.

`states.py` draws the life of an ask and has every change of its state; `Broker` carries them out. Beside it: `waits`,
`deadlines`, `deliveries` and `unseen` asks, what `closing` brings with it, the `feed` of events, `presence`, `counts`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from handraise.asks import Answer, Ask, Handling, Judgement, State, bound, fit
from handraise.broker import states
from handraise.broker.closing import Closing, CommitHook
from handraise.broker.counts import Counts
from handraise.broker.deadlines import Deadlines
from handraise.broker.deliveries import Deliveries
from handraise.broker.feed import LONGEST_PAGE, Feeds
from handraise.broker.presence import Presence
from handraise.broker.pruning import Forget, prune_in_turn
from handraise.broker.unseen import Unseen
from handraise.broker.waits import Waits
from handraise.clock import Clock, SystemClock, give_way
from handraise.errors import (
    AnswerDoesNotFit,
    AskDiffers,
    AskDoesNotFit,
    AskNotFound,
    AskWithdrawn,
    CursorTooOld,
    SettingsError,
    Withdrawn,
)
from handraise.events import Event
from handraise.policies import Verdict, policy_for
from handraise.policies.carried import carried
from handraise.rules.book import Rulebook, answer_of
from handraise.rules.risks import judge
from handraise.stores import NO_EXTRA_WRITES, AlsoWrite, NewAsk, Opened, Query, Store
from handraise.tables.links import Links
from handraise.tables.sessions import Sessions
from handraise.tables.showings import Showings
from handraise.wire import (
    LARGE,
    Stored,
    StoredEvent,
    content_text,
    parse_ask,
)

if TYPE_CHECKING:
    from handraise.channels import Showing

__all__ = ["Broker", "CommitHook"]

log = logging.getLogger(__name__)

MOST_REMEMBERED = 4096  # asks, none of them large, that are kept parsed, so that an answer is checked without reading
TAKEN_WITHIN = timedelta(minutes=1)


class _How(NamedTuple):
    """What is said about an ask besides itself."""

    handling: Handling | None
    owner: str
    worker: str | None
    base: str | None = None  # the id without its ordinal, where it has one
    also_write: AlsoWrite = NO_EXTRA_WRITES


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
        self.forgetting: list[Forget] = [self.sessions.forget]  # what goes with the oldest events
        self._keep = keep
        self._opening: dict[str, tuple[str, Ask]] = {}
        self._remembered: dict[str, Ask] = {}
        self._waits = Waits()
        self._chores = asyncio.Event()
        wake = self._chores.set
        self._deliveries = Deliveries(
            store,
            clock=self.clock,
            counts=self.counts,
            wake=wake,
            taken_within=None if taken_within is None else round(taken_within.total_seconds() * 1000),
        )
        self._closing = Closing(store, rules=self.rules, counts=self.counts, deliver=self.delivered)
        self.commit_hooks = self._closing.hooks  # by the name of the agent
        self._deadlines = Deadlines(store, clock=self.clock, closing=self._closing, wake=wake)
        self._unseen = Unseen(
            store,
            clock=self.clock,
            counts=self.counts,
            showings=self.showings,
            is_anybody_there=lambda: self.presence.is_there(),
            closing=self._closing,
            wake=wake,
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._stack.callback(self.store.tail(self._told))
        self._stack.callback(self.feeds.close)
        self._stack.push_async_callback(self._deliveries.flush)
        await self._deadlines.read()
        await self._deliveries.read()
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        chores = tasks.create_task(self._do_chores())
        self._stack.callback(chores.cancel)
        if self._keep is not None:
            pruning = tasks.create_task(
                prune_in_turn(
                    self.store,
                    keep=self._keep,
                    clock=self.clock,
                    counts=self.counts,
                    showings=self.showings,
                    links=self.links,
                    forgetting=self.forgetting,
                )
            )
            self._stack.callback(pruning.cancel)
        self._deadlines.set_timer()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel_waits()
        self._deadlines.close()
        self._deliveries.close()
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
        if wait is None or opened.stored.state in states.SETTLED:
            return opened
        return opened._replace(stored=await self.wait(opened.stored.id, timeout=wait))

    async def _open_numbered(self, ask: Ask, how: _How) -> Opened:
        await self._deliveries.flush()  # what the agent has taken is over, also if that is not written yet
        newest = (await self.store.newest([ask.id])).get(ask.id)
        number = 1
        if newest is not None:
            number = int(newest.id.rpartition("#")[2]) + states.is_over(newest)
        while True:
            opened = await self._open(replace(ask, id=f"{ask.id}#{number}"), how._replace(base=ask.id))
            if opened.how == "new" or not states.is_over(opened.stored):
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
        row = states.open_with(
            before or self._verdict(ask, how),
            ask,
            at=self.clock.now(),
            content=content,
            judgement=judgement,
            owner=how.owner,
            worker=how.worker,
            base=how.base,
        )
        await self.sessions.mention(ask.origin, at=row.asked_at)
        id, settled = row.id, self._waits.begin(row.id)
        kept = None if is_large else ask
        del ask, content  # what is large is in the row, and nowhere else while it is written
        if kept is not None:
            self._opening[id] = row.content, kept
        try:
            opened = await self.store.open(row, also_write=how.also_write)
            if opened.how == "differs":
                ask = kept or parse_ask(f"{{{row.content}}}")
                same = _as_found_before(ask, opened.stored.ask())
                if same == ask:
                    raise AskDiffers(id)
                return await self._open(same, how, wait=wait)
            if opened.how != "joined":
                self._count_opening(row)
            if wait is None or opened.stored.state in states.SETTLED:
                return opened
            done, openings = opened.how, opened.stored.openings
            del opened, row, kept  # nobody holds a large one while it waits
            heard = await self._waits.until_settled(settled, timeout=wait)
        finally:
            self._opening.pop(id, None)
            self._waits.end(id, settled)
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

    def _verdict(self, ask: Ask, how: _How) -> Verdict:
        try:
            return policy_for(how.handling or self.handling)(ask)
        except SettingsError as unusable:
            raise AskDoesNotFit(str(unusable)) from None

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
        settled = self._waits.begin(id)
        try:
            stored = await self.stored(id)
            if stored.state in states.SETTLED:
                return stored
            return await self._waits.until_settled(settled, timeout=timeout) or await self.stored(id)
        finally:
            self._waits.end(id, settled)

    @property
    def waits(self) -> int:
        """How many callers wait for an answer right now."""
        return len(self._waits)

    def cancel_waits(self) -> None:
        """End every wait, as a desk does that shuts down. The asks stay open."""
        self.sessions.cancel_waits()
        self._waits.cancel()

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
        also_write = await self._closing.withdrawal_writes(id, at=now)
        change = states.withdraw(reason, at=now, source=source, also_write=also_write)
        changed = await self.store.change(id, change)
        if changed is None:
            newest = (await self.store.newest([id])).get(id)
            if newest is None:
                raise AskNotFound(id)
            return await self.withdraw_stored(newest.id, reason=reason, answer=answer, source=source)
        self.counts.withdrawn += changed.done
        if changed.done or changed.stored.state == "withdrawn":
            return changed.stored
        raise states.already_answered(changed.stored)

    async def _answered_there(self, id: str, answer: Answer, *, source: str | None) -> Stored | None:
        """The ask, settled by what the agent learned without us; None where that cannot be its answer."""
        try:
            settled = await self.answer_stored(id, replace(answer, by=states.BY_AGENT, at=None), source=source)
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
        self._deliveries.add(id, error)

    async def report(self, deliveries: Iterable[tuple[str, str | None]]) -> list[Stored | None]:
        """Write deliveries now, `(id, error)` each; None stands for an ask nobody knows.

        An ask is written once, however often it is named: taken if one entry says so, else with the last error.
        """
        return await self._deliveries.write(deliveries)

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
            raise states.refusal(stored) from None
        now = self.clock.now()
        if also_write is None:
            also_write = await self._closing.answer_writes(ask, fitted, at=now)
        change = states.close(fitted, at=now, source=source, also_write=also_write)
        del ask  # a large one is not held while the answer is written
        changed = await self.store.change(id, change)
        if changed is None:
            raise AskNotFound(id)
        if changed.done:
            self._closing.count(changed, by=fitted.by, at=now)
            return changed.stored
        winner = changed.stored.settled()
        if allow_repeat and winner is not None and winner.same_as(fitted):
            return changed.stored
        self.counts.races_lost += 1
        raise states.refusal(changed.stored)

    async def keep_waiting(self, id: str) -> Ask:
        """Move the deadline by the time the ask was given. Without a deadline there is nothing to move."""
        return (await self.keep_waiting_stored(id)).ask()

    async def keep_waiting_stored(self, id: str, *, source: str | None = None) -> Stored:
        """`keep_waiting`, for those who want the text. `source` is kept for the audit alone."""
        stored = await self.stored(id)
        change = states.move_deadline(stored, at=self.clock.now(), source=source)
        if change is not None:
            changed = await self.store.change(id, change)
            stored = stored if changed is None else changed.stored
        if stored.state != "asked":
            raise states.refusal(stored)
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
            self._unseen.doubt(id, at=now)
        await self.showings.write(id, channel, state, place=place, error=error, at=now)

    async def places(self, channel: str) -> Mapping[str, str]:
        return await self.showings.places(channel)

    async def left(self, id: str, *, channel: str) -> None:
        await self.showings.leave(id, channel, at=self.clock.now())

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
            raise states.refusal(stored)
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
        for told in events:
            stored = told.ask
            if told.type == "asked":
                content, ask = self._opening.pop(stored.id, (None, None))
                if ask is not None and content == stored.content:
                    self._remember(ask)
                else:  # another desk's; under an id that was pruned it may ask something else
                    self._remembered.pop(stored.id, None)
            if told.type == "answered" or told.type == "rejected":
                self._deliveries.expect(stored.id, since=told.at)
            else:
                self._deliveries.forget(stored.id)
            if stored.state in states.SETTLED:
                self._unseen.forget(stored.id)
                self._waits.settle(stored)
            elif stored.deadline is not None:
                self._deadlines.add(stored.deadline, stored.id)

    async def _do_chores(self) -> None:
        """Let deadlines pass and report deliveries: our own writes, which nobody waits for."""
        while True:
            await self._chores.wait()
            self._chores.clear()
            await self._deliveries.flush()
            await self._deadlines.expire()
            await self._unseen.look_again()
            await self._deliveries.tell_untaken()
            self._deadlines.set_timer()


def _as_found_before(ask: Ask, stored: Ask) -> Ask:
    """The ask with what a machine found out when it was first asked: its name, and where links lead.

    Another machine may ask the same again, and a link may lead elsewhere then. What was judged is what stands there.
    """
    ask = replace(ask, origin=replace(ask.origin, machine=stored.origin.machine))
    if ask.permission is None or stored.permission is None:
        return ask
    before = stored.permission
    return replace(ask, permission=replace(ask.permission, resolved=before.resolved, resolved_cwd=before.resolved_cwd))
