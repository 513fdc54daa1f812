"""What every channel must hold, tried with a real desk in memory and a person whom the channel's own test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from handraise.asks import Answer, Ask, Handling
from handraise.broker import Broker
from handraise.channels import Channel
from handraise.people import People
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.switchboard import Channels, Made
from handraise.tables.showings import TOPIC
from handraise.testing.cases import PATIENCE, Report, run_cases
from handraise.testing.clock import FakeClock
from handraise.testing.samples import a_permission, an_ask

__all__ = ["ChannelDriver", "check_channel"]

STRICT = an_ask(id="strict", questions=(replace(an_ask().questions[0], custom=False),))  # takes no words of one's own


class Runs(Protocol):
    """As much of a channel as every case needs; one that a desk runs by itself has the rest of `Channel` too."""

    async def run(self, inbox: Any) -> None: ...


class ChannelDriver(Protocol):
    """One channel, and the hands and eyes of a person in front of it.

    Inherit from it. What stands below `answer` belongs to cases that not every channel can have: write it, or name
    those cases in `cannot`.
    """

    channel: Runs
    cannot: Mapping[str, str] = {}  # a case this channel cannot have, with the reason: one that only notifies, say

    async def shown(self, ask: Ask) -> None:
        """Return once a person could see that the ask waits."""

    async def settled(self, ask: Ask) -> None:
        """Return once a person could see that it no longer waits."""

    async def answer(self, ask: Ask, answer: Answer) -> None:
        """Do what a person does there to say this: `answers`, a `reply`, or `rejected` with a `reason`."""

    async def deliver_again(self) -> None:
        """Let the place send once more what it sent last, as places do that are not sure whether it arrived."""
        raise _missing("deliver_again")

    async def told(self, ask: Ask) -> None:
        """Return once a person could see that what was said last about this does not count."""
        raise _missing("told")

    def restart(self) -> None:
        """Make `channel` a new one in front of the same place, as a new process would. The old one has ended."""
        raise _missing("restart")

    def times_shown(self, ask: Ask) -> int:
        """How often it was put up there, whatever it says by now."""
        raise _missing("times_shown")

    def break_sending(self) -> None:
        """From now on the place takes nothing. Make the channel so that it gives up, and tries again, in no time."""
        raise _missing("break_sending")

    def mend(self) -> None:
        """The place works again."""
        raise _missing("mend")


def _missing(name: str) -> AssertionError:
    return AssertionError(f"give the driver `{name}`, or say in `cannot` why this channel cannot have the case")


class Room:
    """A desk and a channel, which runs from the first ask on."""

    def __init__(self, driver: ChannelDriver, broker: Broker, clock: FakeClock, tasks: asyncio.TaskGroup) -> None:
        self.driver = driver
        self.broker = broker
        self.clock = clock
        self._tasks = tasks
        self._running: asyncio.Task[None] | None = None

    def enter(self) -> None:
        if self._running is None:
            self._running = self._tasks.create_task(self.driver.channel.run(self.broker))

    async def leave(self) -> None:
        """End the channel. If it broke, that is said by whoever waits for its task."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait([running])

    async def ask(self, ask: Ask, *, handling: Handling | None = None) -> Ask:
        """Raise a hand and wait until the channel shows it."""
        self.enter()
        opened = await self.broker.open(ask, handling=handling)
        await self.driver.shown(ask)
        return opened.stored.ask()

    async def closed(self, ask: Ask) -> Ask:
        return (await self.broker.wait(ask.id)).ask()

    async def is_reported(self, ask: Ask, *states: str) -> None:
        """Return once a channel has said one of these about showing it."""
        written = asyncio.Event()
        hush = self.broker.store.hear(TOPIC, written.set)
        try:
            while not any(record.state in states for record in await self.broker.showings.of(ask.id)):
                await written.wait()
                written.clear()
        finally:
            hush()


async def check_channel(make: Callable[[], ChannelDriver], *, patience: float = PATIENCE) -> Report:
    """Raises AssertionError with every case that failed. `make` gives a fresh driver for each.

    `patience` is how many seconds a case may take.
    """

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Room]:
        store = await SqliteStore.open_file(MEMORY)
        clock = FakeClock()
        try:
            async with Broker(store, clock=clock) as broker, asyncio.TaskGroup() as tasks:
                room = Room(make(), broker, clock, tasks)
                yield room
                await room.leave()
        finally:
            await store.close()

    return await run_cases("check_channel", _CASES, fresh, cannot=make().cannot, patience=patience)


# What every channel does ------------------------------------------------------------------------------------


async def a_question_is_shown(room: Room) -> None:
    await room.ask(an_ask())


async def a_permission_is_shown(room: Room) -> None:
    await room.ask(a_permission())


async def what_was_asked_before_it_came_is_shown(room: Room) -> None:
    await room.broker.open(an_ask())
    room.enter()
    await room.driver.shown(an_ask())


async def an_answer_comes_back(room: Room) -> None:
    ask = await room.ask(an_ask())
    await room.driver.answer(ask, Answer(answers=(("Postgres",),)))
    closed = await room.closed(ask)
    assert closed.answer is not None and closed.answer.answers == (("Postgres",),), f"it came back as {closed.answer}"
    is_told = closed.answer.via or isinstance(room.driver.channel, _Hosted)  # a desk that runs it says which it was
    assert closed.answer.by and is_told, "nobody can see who answered (`by`) and where (`via`)"


async def a_permission_is_granted_as_it_was_said(room: Room) -> None:
    ask = await room.ask(a_permission())
    await room.driver.answer(ask, Answer(reply="once"))
    closed = await room.closed(ask)
    assert closed.answer is not None and closed.answer.reply == "once", f"it came back as {closed.answer}"


async def a_refusal_comes_back_with_its_reason(room: Room) -> None:
    ask = await room.ask(a_permission())
    await room.driver.answer(ask, Answer(rejected=True, reason="not on this machine"))
    closed = await room.closed(ask)
    assert closed.state == "rejected", f"it is {closed.state}"
    assert closed.answer is not None and closed.answer.reason == "not on this machine", f"{closed.answer}"


async def an_answer_given_elsewhere_is_noticed(room: Room) -> None:
    ask = await room.ask(an_ask())
    await _answer_elsewhere(room, ask)
    await room.driver.settled(ask)
    await _still_works(room)


async def an_answer_that_comes_too_late_changes_nothing(room: Room) -> None:
    ask = await room.ask(an_ask())
    await _answer_elsewhere(room, ask)
    await room.driver.answer(ask, Answer(answers=(("Postgres",),)))
    await _still_works(room)
    answer = (await room.broker.get(ask.id)).answer
    assert answer is not None and answer.by == "ana", f"the second answer won: {answer}"


async def a_withdrawn_ask_is_survived(room: Room) -> None:
    ask = await room.ask(an_ask())
    await room.broker.withdraw(ask.id, reason="the agent moved on")
    await room.driver.settled(ask)
    await _still_works(room)


async def a_withdrawn_ask_that_is_asked_again_is_shown_again(room: Room) -> None:
    ask = await room.ask(an_ask())
    await room.broker.withdraw(ask.id, reason="the agent moved on")
    await room.driver.settled(ask)
    ask = await room.ask(an_ask())
    await room.driver.answer(ask, Answer(answers=(("Postgres",),)))
    assert (await room.closed(ask)).state == "answered"


async def a_timeout_closes_it_and_the_place_says_so(room: Room) -> None:
    ask = await room.ask(an_ask(), handling=Handling(question_timeout=60))
    await room.clock.advance(60)
    answer = (await room.closed(ask)).answer
    assert answer is not None and answer.by == "policy:timeout", f"it was closed by {answer}"
    await room.driver.settled(ask)
    await _still_works(room)


# What comes in ----------------------------------------------------------------------------------------------


async def the_same_answer_delivered_twice_counts_once(room: Room) -> None:
    ask = await room.ask(an_ask())
    await room.driver.answer(ask, Answer(answers=(("Postgres",),)))
    await room.closed(ask)
    other = await room.ask(an_ask(id="another"))
    await room.driver.deliver_again()
    await room.driver.answer(other, Answer(answers=(("SQLite",),)))
    answer = (await room.closed(other)).answer
    assert answer is not None and answer.value == "SQLite", f"what came twice answered something else: {answer}"


async def an_answer_that_does_not_fit_is_said_and_leaves_it_open(room: Room) -> None:
    ask = await room.ask(STRICT)
    await room.driver.answer(ask, Answer(answers=(("a pencil",),)))
    await room.driver.told(ask)
    assert (await room.broker.get(ask.id)).state == "asked", "it was closed"
    await room.driver.answer(ask, Answer(answers=(("Postgres",),)))
    assert (await room.closed(ask)).state == "answered"


async def who_is_not_listed_is_told_and_changes_nothing(room: Room) -> None:
    channel = room.driver.channel
    assert isinstance(channel, _Hosted), "a desk runs what has a `name` and a `reach`"
    made = Made(name=channel.name, kind=channel.name, channel=channel)
    async with Channels(room.broker, [made], people=People()) as host:
        await room.broker.open(an_ask())
        await room.driver.shown(an_ask())
        await room.driver.answer(an_ask(), Answer(answers=(("Postgres",),)))
        await room.driver.told(an_ask())
        assert (await room.broker.get("ask-1")).state == "asked", "the answer of a stranger counted"
        [state] = host.states()
        assert state.trouble is None, f"it broke: {state.trouble}"


@runtime_checkable
class _Hosted(Channel, Protocol):
    """A whole channel, which can be told apart from one that somebody starts by hand."""


# What goes out ----------------------------------------------------------------------------------------------


async def what_is_shown_is_reported(room: Room) -> None:
    ask = await room.ask(an_ask())
    await room.is_reported(ask, "sent", "shown")


async def what_could_not_be_sent_is_reported_and_shown_later(room: Room) -> None:
    room.enter()
    room.driver.break_sending()
    await room.broker.open(an_ask())
    await room.is_reported(an_ask(), "failed")
    room.driver.mend()
    await _still_works(room)
    await room.driver.shown(an_ask())
    await room.is_reported(an_ask(), "sent", "shown")


async def a_restart_shows_nothing_twice(room: Room) -> None:
    ask = await room.ask(an_ask())
    await room.is_reported(ask, "sent", "shown")
    await room.leave()
    room.driver.restart()
    await _still_works(room)
    times = room.driver.times_shown(ask)
    assert times == 1, f"it was shown {times} times"
    await room.driver.answer(ask, Answer(answers=(("Postgres",),)))
    assert (await room.closed(ask)).state == "answered"


async def what_was_answered_while_it_was_away_says_so_afterwards(room: Room) -> None:
    ask = await room.ask(an_ask())
    await room.is_reported(ask, "sent", "shown")
    await room.leave()
    await _answer_elsewhere(room, ask)
    room.driver.restart()
    room.enter()
    await room.driver.settled(ask)
    await _still_works(room)


# ------------------------------------------------------------------------------------------------------------


async def _answer_elsewhere(room: Room, ask: Ask) -> None:
    await room.broker.answer(ask.id, Answer(answers=(("SQLite",),), by="ana", via="elsewhere"))


async def _still_works(room: Room) -> None:
    ask = await room.ask(an_ask(id="another"))
    await room.driver.answer(ask, Answer(answers=(("Postgres",),)))
    assert (await room.closed(ask)).state == "answered"


_CASES = (
    a_question_is_shown,
    a_permission_is_shown,
    what_was_asked_before_it_came_is_shown,
    an_answer_comes_back,
    a_permission_is_granted_as_it_was_said,
    a_refusal_comes_back_with_its_reason,
    an_answer_given_elsewhere_is_noticed,
    an_answer_that_comes_too_late_changes_nothing,
    a_withdrawn_ask_is_survived,
    a_withdrawn_ask_that_is_asked_again_is_shown_again,
    a_timeout_closes_it_and_the_place_says_so,
    the_same_answer_delivered_twice_counts_once,
    an_answer_that_does_not_fit_is_said_and_leaves_it_open,
    who_is_not_listed_is_told_and_changes_nothing,
    what_is_shown_is_reported,
    what_could_not_be_sent_is_reported_and_shown_later,
    a_restart_shows_nothing_twice,
    what_was_answered_while_it_was_away_says_so_afterwards,
)
