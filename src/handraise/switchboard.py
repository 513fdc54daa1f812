"""Reaching people: runs the channels of a desk, each by itself, and holds who may answer what there.

A channel that breaks, hangs or is told to slow down holds up nobody: it has a task, a feed and a record of its own.
Where several desks share a database, each channel runs at one of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from handraise.asks import Answer, Ask
from handraise.broker import Broker
from handraise.channels import BadCall, Called, Channel, Examinable, Reach
from handraise.clock import Backoff
from handraise.errors import HandraiseError, StoreError
from handraise.events import Asked
from handraise.people import People
from handraise.tables.audit import source
from handraise.tables.leases import Leases
from handraise.tasks import Tasks, running
from handraise.wire import channels as shapes
from handraise.wire.plain import shape_of

__all__ = ["ChannelState", "Channels", "Made", "examined"]

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds until a channel that broke is started again
STEADY = 60.0  # seconds after which it counts as well again
EXAMINE_WITHIN = 15.0  # seconds; a place that does not answer by then is told as a problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A channel of the settings, or why there is none."""

    name: str
    kind: str
    channel: Channel | None = None
    problem: str | None = None
    reach: Reach | None = None  # as its class says, where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """What `handraise channels` tells of one."""

    name: str
    kind: str
    state: str  # running, elsewhere (another desk has it), broken
    trouble: str | None
    reach: Reach | None

    def to_shape(self, *, problems: Sequence[str] | None = None) -> shapes.Channel:
        """`problems` are what the channel found wrong with itself, where it looked."""
        reach = None if self.reach is None else shape_of(shapes.Reach, self.reach)
        return shape_of(shapes.Channel, self, reach=reach, problems=None if problems is None else tuple(problems))


class Channels:
    """Use as an async context manager. Without `leases` no other desk has this database; `has_worker` says that agents
    can be started here."""

    def __init__(
        self,
        broker: Broker,
        made: Sequence[Made],
        *,
        people: People,
        leases: Leases | None = None,
        has_worker: bool = False,
        pause: float = FIRST_PAUSE,
    ) -> None:
        """A channel that broke is started again after `pause` seconds, which double."""
        self._broker = broker
        self._made = {each.name: each for each in made}
        self._people = people
        self._leases = leases
        self._has_worker = has_worker
        self._pause = pause
        self._troubles: dict[str, str] = {}
        self._running: set[str] = set()
        self._tasks = Tasks()

    async def __aenter__(self) -> Self:
        for each in self._made.values():
            if each.channel is None:
                work = self._excuse(each.name, each.reach, each.problem or "it cannot be made")
            elif self._has_worker or not each.channel.reach.starts_agents:
                work = self._keep(each.channel)
            else:
                continue
            self._tasks.start(work)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.close()

    @property
    def people(self) -> People:
        return self._people

    def __getitem__(self, name: str) -> Channel | None:
        made = self._made.get(name)
        return None if made is None else made.channel

    def states(self) -> list[ChannelState]:
        return [self._state(made) for made in self._made.values()]

    def _state(self, made: Made) -> ChannelState:
        trouble = made.problem or self._troubles.get(made.name)
        state = "broken" if trouble is not None else "running" if made.name in self._running else "elsewhere"
        reach = made.reach if made.channel is None else made.channel.reach
        return ChannelState(name=made.name, kind=made.kind, state=state, trouble=trouble, reach=reach)

    async def examine(self) -> dict[str, list[str]]:
        """What is wrong with each, as it finds out itself."""
        channels = {name: made.channel for name, made in self._made.items() if made.channel is not None}
        found = await asyncio.gather(*(examined(channel) for channel in channels.values()))
        return dict(zip(channels, found, strict=True))

    async def receive(self, name: str, body: bytes, headers: Mapping[str, str]) -> None:
        """What a place sends us. Raises BadCall."""
        await self.check_called(name).receive(body, headers)

    def check_called(self, name: str) -> Called:
        """The channel of that name. Raises BadCall where its place does not call it."""
        channel = self[name]
        if not isinstance(channel, Called):
            raise BadCall(f"no channel {name!r} of this desk is called by its place")
        return channel

    # Running ----------------------------------------------------------------------------------------------

    async def _keep(self, channel: Channel) -> None:
        """Run it for as long as it is ours to run."""
        leases = self._leases
        if leases is None:
            await self._run(channel)
            return
        while True:
            if not await _is_ours(channel.name, leases):
                await asyncio.sleep(leases.seconds / 3)
                continue
            try:
                async with running(self._run(channel)):
                    while await _is_ours(channel.name, leases):  # noqa: ASYNC110 - nobody tells us of a lost lease
                        await asyncio.sleep(leases.seconds / 3)
            finally:
                self._troubles.pop(channel.name, None)
                await leases.let_go(channel.name)

    async def _run(self, channel: Channel) -> None:
        backoff, loop = Backoff(self._pause, longest=LONGEST_PAUSE), asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                self._running.add(channel.name)
                await channel.run(_Inbox(self._broker, channel, people=self._people))
                problem = "it ended by itself"
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is None or task.cancelling():
                    raise
                problem = "it cancelled itself"
                log.error("the channel %s broke: %s", channel.name, problem)
            except Exception as broken:
                problem = _said(broken)
                log.error("the channel %s broke: %s", channel.name, problem, exc_info=not _ours(broken))
            finally:
                self._running.discard(channel.name)
            self._troubles[channel.name] = problem
            if loop.time() - began > STEADY:
                backoff.reset()
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff.next()):
                    await self._excuse(channel.name, channel.reach, problem)
            self._troubles.pop(channel.name, None)

    async def _excuse(self, name: str, reach: Reach | None, problem: str) -> None:
        """While it is broken, say of what waits that it does not show it, so nothing waits unseen. Until cancelled."""
        if reach is None or reach.starts_agents:  # what it shows is asked by agents that it started, if by any
            await asyncio.Event().wait()
        broker = self._broker
        while True:
            try:
                after, placed = await broker.cursor(), await broker.places(name)
                async for ask in broker.asks(state="asked"):
                    if ask.id not in placed:
                        await self._failed(name, ask, problem)
                async for event in broker.events(after=after):
                    if isinstance(event, Asked):
                        await self._failed(name, event.ask, problem)
                await asyncio.Event().wait()  # the desk ends
            except StoreError as failure:
                log.error("what the channel %s does not show cannot be told, trying again: %s", name, failure)
                await asyncio.sleep(self._pause)

    async def _failed(self, name: str, ask: Ask, problem: str) -> None:
        made = self._made[name]
        if made.channel is None and self._leases is not None and name in await self._leases.held():
            return  # another desk could make it
        await self._broker.showed(ask.id, "failed", channel=name, error=problem)


async def _is_ours(channel: str, leases: Leases) -> bool:
    """For the next seconds. Where the database does not say, it is not."""
    try:
        async with asyncio.timeout(leases.seconds / 3):  # what is said later than that may not hold any more
            return await leases.hold(channel)
    except (StoreError, TimeoutError) as failure:
        log.warning("whether the channel %s is ours cannot be told: %s", channel, str(failure) or "it takes too long")
        return False


async def examined(channel: Channel) -> list[str]:
    """What a channel says is wrong with it. One that cannot say it has a problem too."""
    if not isinstance(channel, Examinable):
        return []
    try:
        async with asyncio.timeout(EXAMINE_WITHIN):
            return await channel.examine()
    except TimeoutError:
        return [f"it could not be examined within {EXAMINE_WITHIN:g} s: its place does not answer"]
    except Exception as broken:
        log.warning("the channel %s could not be examined: %s", channel.name, broken, exc_info=not _ours(broken))
        return [f"it could not be examined: {_said(broken)}"]


def _ours(broken: BaseException) -> bool:
    if isinstance(broken, BaseExceptionGroup):
        return all(map(_ours, broken.exceptions))
    return isinstance(broken, HandraiseError)


def _said(broken: BaseException) -> str:
    while isinstance(broken, BaseExceptionGroup):
        broken = broken.exceptions[0]
    return str(broken) or type(broken).__name__


class _Inbox:
    """The desk as one channel sees it: who answers there is looked up, and may or may not."""

    def __init__(self, broker: Broker, channel: Channel, *, people: People) -> None:
        self._broker = broker
        self._channel = channel
        self._people = people
        self.asks, self.events, self.cursor, self.get = broker.asks, broker.events, broker.cursor, broker.get
        self.keep_waiting, self.link = broker.keep_waiting, broker.link
        self.showed, self.places, self.left = broker.showed, broker.places, broker.left

    async def answer(self, id: str, answer: Answer) -> Ask:
        """Raises Forbidden where whoever the place names may not decide this."""
        name, identity = self._channel.name, self._channel.reach.identity
        ask = await self._broker.get(id)
        reply = None if answer.rejected or answer.reply == "reject" else answer.reply
        person = self._people.check(
            answer.by, ask, channel=name, identity=identity, longest=self._channel.reach.longest, reply=reply
        )
        answer = replace(answer, by=person.name, via=name)
        return (await self._broker.answer_stored(id, answer, source=source(None, None, identity=identity))).ask()

    async def reject(self, id: str, *, reason: str | None = None, by: str = "", via: str = "") -> Ask:
        return await self.answer(id, Answer(rejected=True, reason=reason, by=by, via=via))
