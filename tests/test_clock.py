"""Pauses between tries: they double, have a longest, are shortened by chance and begin again after a success."""

from __future__ import annotations

import asyncio

from handraise.clock import Backoff, sleep
from handraise.testing import FakeClock


def test_each_pause_is_twice_as_long_as_the_one_before_up_to_the_longest() -> None:
    backoff = Backoff(1.0, longest=6.0)
    for whole in (1.0, 2.0, 4.0, 6.0, 6.0):
        assert whole / 2 <= backoff.next() <= whole


def test_chance_tells_pauses_apart() -> None:
    assert len({Backoff(1.0, longest=1.0).next() for _ in range(20)}) > 1


def test_a_success_begins_again_with_the_first_pause() -> None:
    backoff = Backoff(1.0, longest=60.0)
    for _ in range(5):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 1.0


def test_a_first_pause_is_never_longer_than_the_longest() -> None:
    assert Backoff(10.0, longest=1.0).next() <= 1.0


async def test_a_pause_ends_when_the_clock_it_was_given_says_so() -> None:
    clock = FakeClock()
    waiting = asyncio.ensure_future(Backoff(60.0, longest=60.0, clock=clock).wait(least=60.0))
    await asyncio.sleep(0)
    await clock.advance(59)
    assert not waiting.done()
    await clock.advance(1)
    assert waiting.done()


async def test_an_event_ends_a_pause_early() -> None:
    clock, event = FakeClock(), asyncio.Event()
    waits = [
        asyncio.ensure_future(Backoff(3600.0, longest=3600.0, clock=given).wait(until=event)) for given in (None, clock)
    ]
    await asyncio.sleep(0)
    event.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*waits)


async def test_a_clock_that_calls_back_early_is_asked_again() -> None:
    class Hasty(FakeClock):
        def call_at(self, when: int, callback):  # type: ignore[no-untyped-def]
            return super().call_at(min(when, self.now() + 1000), callback)

    clock = Hasty()
    waiting = asyncio.ensure_future(sleep(3.0, clock=clock))
    await asyncio.sleep(0)
    await clock.advance(2)
    assert not waiting.done()
    await clock.advance(1)
    assert waiting.done()
