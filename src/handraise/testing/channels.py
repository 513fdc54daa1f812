"""What every channel must hold, tried with a real desk in memory and a person whom the channel's own test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from handraise.asks import Answer, Ask
from handraise.broker import Broker
from handraise.channels import Channel
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing.cases import PATIENCE, Report, run_cases
from handraise.testing.clock import FakeClock
from handraise.testing.samples import a_permission, an_ask

__all__ = ["ChannelDriver", "check_channel"]


class ChannelDriver(Protocol):
    """One channel, and the hands and eyes of a person in front of it."""

    channel: Channel
    cannot: Mapping[str, str]  # a case this channel cannot have, with the reason: one that only notifies, say

    async def shown(self, ask: Ask) -> None:
        """Return once a person could see that the ask waits."""

    async def settled(self, ask: Ask) -> None:
        """Return once a person could see that it no longer waits."""

    async def answer(self, ask: Ask, answer: Answer) -> None:
        """Do what a person does there to say this: `answers`, a `reply`, or `rejected` with a `reason`."""


class Room:
    """A desk and a channel, which runs from the first ask on."""

    def __init__(self, driver: ChannelDriver, broker: Broker, tasks: asyncio.TaskGroup) -> None:
        self.driver = driver
        self.broker = broker
        self._tasks = tasks
        self._running: asyncio.Task[None] | None = None

    def enter(self) -> None:
        if self._running is None:
            self._running = self._tasks.create_task(self.driver.channel.run(self.broker))

    def leave(self) -> None:
        if self._running is not None:
            self._running.cancel()

    async def ask(self, ask: Ask) -> Ask:
        """Raise a hand and wait until the channel shows it."""
        self.enter()
        opened = await self.broker.open(ask)
        await self.driver.shown(ask)
        return opened.stored.ask()

    async def closed(self, ask: Ask) -> Ask:
        return (await self.broker.wait(ask.id)).ask()


async def check_channel(make: Callable[[], ChannelDriver], *, patience: float = PATIENCE) -> Report:
    """Raises AssertionError with every case that failed. `make` gives a fresh driver for each.

    `patience` is how many seconds a case may take.
    """

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Room]:
        store = await SqliteStore.open_file(MEMORY)
        try:
            async with Broker(store, clock=FakeClock()) as broker, asyncio.TaskGroup() as tasks:
                room = Room(make(), broker, tasks)
                yield room
                room.leave()
        finally:
            await store.close()

    return await run_cases("check_channel", _CASES, fresh, cannot=make().cannot, patience=patience)


async def an_ask_is_shown(room: Room) -> None:
    await room.ask(an_ask())
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
    assert closed.answer.by and closed.answer.via, "nobody can see who answered (`by`) and where (`via`)"


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
    await room.broker.answer(ask.id, Answer(answers=(("SQLite",),), by="ana", via="elsewhere"))
    await room.driver.settled(ask)
    await _still_works(room)


async def an_answer_that_comes_too_late_changes_nothing(room: Room) -> None:
    ask = await room.ask(an_ask())
    await room.broker.answer(ask.id, Answer(answers=(("SQLite",),), by="ana", via="elsewhere"))
    await room.driver.answer(ask, Answer(answers=(("Postgres",),)))
    await _still_works(room)
    answer = (await room.broker.get(ask.id)).answer
    assert answer is not None and answer.by == "ana", f"the second answer won: {answer}"


async def a_withdrawn_ask_is_survived(room: Room) -> None:
    ask = await room.ask(an_ask())
    await room.broker.withdraw(ask.id, reason="the agent moved on")
    await room.driver.settled(ask)
    await _still_works(room)


async def _still_works(room: Room) -> None:
    ask = await room.ask(an_ask(id="another"))
    await room.driver.answer(ask, Answer(answers=(("Postgres",),)))
    assert (await room.closed(ask)).state == "answered"


_CASES = (
    an_ask_is_shown,
    what_was_asked_before_it_came_is_shown,
    an_answer_comes_back,
    a_permission_is_granted_as_it_was_said,
    a_refusal_comes_back_with_its_reason,
    an_answer_given_elsewhere_is_noticed,
    an_answer_that_comes_too_late_changes_nothing,
    a_withdrawn_ask_is_survived,
)
