"""Keeping a place posted: what waits is shown there once, what is settled is rewritten, and a failure is tried again.

For channels whose place takes messages. Each ask has a task of its own, so that one that hangs holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Protocol, TypeVar

from handraise.asks import Ask
from handraise.channels import Postbox, SendFailed
from handraise.clock import Backoff, sleep
from handraise.errors import AskNotFound

__all__ = ["Poster", "keep_posted", "often"]

log = logging.getLogger(__name__)

T = TypeVar("T")
PATIENCE = 10.0  # seconds that one call may take
ATTEMPTS = 3  # after which it counts as failed; it is tried on, calmly
AT_ONCE = 8  # calls to one place
MOST_REWRITES = 100  # times that a place is told, calmly, how an ask ended
SOON = 10.0  # seconds that may pass before one more try; longer is for whoever calls
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds


class Poster(Protocol):
    name: str

    async def post(self, ask: Ask) -> str:
        """Show it, and return what `rewrite` needs to find it. Whatever it raises counts as a failure.

        SendFailed says when to try again, or never. After a sudden end it may be asked to show the same ask again.
        """

    async def rewrite(self, place: str, ask: Ask) -> None:
        """Say how it ended, where that is possible. It may raise as `post` does."""


async def keep_posted(
    inbox: Postbox,
    poster: Poster,
    *,
    patience: float = PATIENCE,
    attempts: int = ATTEMPTS,
    pause: float = FIRST_PAUSE,
    calm: float = LONGEST_PAUSE,
    wants: Callable[[Ask], bool] = lambda ask: True,
    listen: Callable[[Postbox], Awaitable[None]] | None = None,
) -> None:
    """Until cancelled. What was posted before a restart is not posted again, and what it does not want never is.

    A call that takes longer than `patience` seconds has failed. It is tried `attempts` times, with a `pause` that
    doubles; then the ask counts as not shown there, and is tried again every `calm` seconds.

    `listen` brings back what people say there, and runs beside. Where it breaks it is begun again after a `pause`, so
    that of a place which is away it is said that it shows nothing.
    """
    posting = _Posting(inbox, poster, patience=patience, attempts=attempts, pause=pause, calm=calm)
    async with asyncio.TaskGroup() as tasks:
        beside = [] if listen is None else [tasks.create_task(posting.hear(listen))]
        await posting.run(wants)
        for task in beside:
            task.cancel()


class _Shown:
    """One ask that is shown, or about to be."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.settled = asyncio.Event()
        self.reopened = asyncio.Event()  # asked again while what was shown is still being rewritten


class _Posting:
    def __init__(
        self, inbox: Postbox, poster: Poster, *, patience: float, attempts: int, pause: float, calm: float
    ) -> None:
        self._inbox = inbox
        self._poster = poster
        self._patience = patience
        self._attempts = attempts
        self._pause = pause
        self._calm = calm
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._shown: dict[str, _Shown] = {}
        self._stumbled: set[type[Exception]] = set()

    async def run(self, wants: Callable[[Ask], bool]) -> None:
        after = await self._inbox.cursor()
        known = dict(await self._inbox.places(self._poster.name))
        async with asyncio.TaskGroup() as tasks:
            async for ask in self._inbox.asks(state="asked"):
                if wants(ask):
                    self._begin(tasks, ask, place=known.pop(ask.id, None))
            for id, place in known.items():
                await self._begin_settled(tasks, id, place)
            async for event in self._inbox.events(after=after):
                shown = self._shown.get(event.ask.id)
                if event.ask.state != "asked":
                    if shown is not None:
                        shown.reopened.clear()
                        shown.settled.set()
                elif shown is None:
                    if wants(event.ask):
                        self._begin(tasks, event.ask, place=None)
                elif shown.settled.is_set():
                    shown.reopened.set()

    async def hear(self, listen: Callable[[Postbox], Awaitable[None]]) -> None:
        backoff, loop = Backoff(self._pause, longest=self._calm), asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await listen(self._inbox)
                problem = "it stopped listening"
            except Exception as broken:
                problem = self._stumble(broken)
            log.warning("%s does not hear what people say, and tries again: %s", self._poster.name, problem)
            if loop.time() - began > self._calm:
                backoff.reset()
            await backoff.wait()

    def _stumble(self, broken: Exception) -> str:
        if type(broken) not in self._stumbled:  # a place that is away would fill the log
            self._stumbled.add(type(broken))
            log.error("%s stumbled", self._poster.name, exc_info=broken)
        return f"{type(broken).__name__}: {broken}"

    async def _begin_settled(self, tasks: asyncio.TaskGroup, id: str, place: str) -> None:
        """What was settled while nobody was here to rewrite it."""
        try:
            ask = await self._inbox.get(id)
        except AskNotFound:  # so long ago that it was pruned
            await self._inbox.left(id, channel=self._poster.name)
        else:
            self._begin(tasks, ask, place=place)

    def _begin(self, tasks: asyncio.TaskGroup, ask: Ask, *, place: str | None) -> None:
        shown = self._shown[ask.id] = _Shown(ask)
        if ask.state != "asked":
            shown.settled.set()
        tasks.create_task(self._look_after(shown, place=place))

    async def _look_after(self, shown: _Shown, *, place: str | None) -> None:
        """One ask, until it says there how it ended."""
        while True:
            place = place or await self._post(shown)
            await shown.settled.wait()
            if place is None or await self._is_rewritten(shown, place):
                place = None
                if not shown.reopened.is_set():
                    break
            else:
                await shown.reopened.wait()  # the desk knows it before it is told
            if shown.reopened.is_set():  # and not settled again since
                shown.reopened.clear()
                shown.settled.clear()
        del self._shown[shown.ask.id]

    async def _is_rewritten(self, shown: _Shown, place: str) -> bool:
        """False where the same is asked again by now: then it stands there as it should."""
        for _ in range(MOST_REWRITES):
            try:
                ended = await self._inbox.get(shown.ask.id)
                if ended.state == "asked":
                    return False
                await self._often(partial(self._poster.rewrite, place, ended), until=shown.reopened)
                break
            except AskNotFound:
                break
            except SendFailed as failure:  # it is settled: that one place does not say so holds up nobody
                log.warning("%s still shows ask %s as open: %s", self._poster.name, shown.ask.id, failure)
                if failure.again is None:
                    break
                await sleep(max(failure.again, self._calm), until=shown.reopened)
        await self._inbox.left(shown.ask.id, channel=self._poster.name)
        return True

    async def _post(self, shown: _Shown) -> str | None:
        """Where it is shown; None where it was settled first, or the place never takes it."""
        id, settled = shown.ask.id, shown.settled
        while not settled.is_set():
            try:
                place = await self._often(partial(self._poster.post, shown.ask), until=settled)
            except SendFailed as failure:
                if settled.is_set():
                    return None
                log.warning("%s cannot show ask %s: %s", self._poster.name, id, failure)
                await self._inbox.showed(id, "failed", channel=self._poster.name, error=str(failure))
                if failure.again is None:
                    return None
                await sleep(max(failure.again, self._calm), until=settled)
            else:
                await self._inbox.showed(id, "sent", channel=self._poster.name, place=place)
                return place
        return None

    async def _often(self, call: Callable[[], Awaitable[T]], *, until: asyncio.Event) -> T:
        async def carefully() -> T:
            try:
                return await call()
            except (SendFailed, TimeoutError):
                raise
            except Exception as broken:  # an ask that a channel stumbles over does not take the others with it
                raise SendFailed(self._stumble(broken), again=0) from broken

        return await often(
            carefully,
            patience=self._patience,
            attempts=self._attempts,
            pause=self._pause,
            until=until,
            turns=self._turns,
        )


async def often(
    call: Callable[[], Awaitable[T]],
    *,
    patience: float = PATIENCE,
    attempts: int = ATTEMPTS,
    pause: float = FIRST_PAUSE,
    until: asyncio.Event | None = None,
    turns: asyncio.Semaphore | None = None,
) -> T:
    """Try a few times, each for so long, or until nobody wants it any more. Raises SendFailed with the last reason.

    With `turns` each attempt waits for one; that time does not count.
    """
    backoff = Backoff(pause, longest=LONGEST_PAUSE)
    while True:
        attempts -= 1
        try:
            async with turns or nullcontext():
                if until is not None and until.is_set():
                    raise SendFailed("nobody wants it any more")
                async with asyncio.timeout(patience):
                    return await call()
        except TimeoutError:
            failure = SendFailed(f"it did not answer within {patience:g} s", again=0)
        except SendFailed as refused:
            failure = refused
        if failure.again is None or failure.again > SOON or not attempts or (until is not None and until.is_set()):
            raise failure
        await backoff.wait(least=failure.again, until=until)
