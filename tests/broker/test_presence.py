"""Whether somebody looks at the desk, at this one or at another on the same database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from handraise.app import open_store
from handraise.broker.presence import Presence
from handraise.stores import Store
from handraise.tables.leases import Leases
from tests.helpers.serving import listening, serving

LONG = 3600.0  # seconds, so that nothing runs out during a test


@pytest.fixture
async def stores(new_database: Callable[[], str]) -> AsyncIterator[tuple[Store, Store]]:
    """Two of them, on one database."""
    address = new_database()
    first, second = await open_store(address), await open_store(address)
    yield first, second
    await first.close()
    await second.close()


def at(store: Store, owner: str, *, seconds: float = LONG) -> Presence:
    return Presence(Leases(store, owner=owner, seconds=seconds))


async def becomes(presence: Presence, wanted: bool) -> None:
    async with asyncio.timeout(10):
        while await presence.is_there() is not wanted:
            await asyncio.sleep(0.01)


async def test_somebody_is_there_until_the_last_one_left() -> None:
    async with Presence() as presence:
        assert not await presence.is_there()
        with presence.looking():
            with presence.looking():
                assert await presence.is_there()
            assert await presence.is_there()
        assert not await presence.is_there()


async def test_who_looks_at_another_desk_is_there(stores: tuple[Store, Store]) -> None:
    async with at(stores[0], "first") as here, at(stores[1], "second") as there:
        assert not await there.is_there()
        with here.looking():
            await becomes(there, True)
        await becomes(there, False)
        with here.looking():
            await becomes(there, True)


async def test_a_desk_that_ends_takes_its_people_with_it(stores: tuple[Store, Store]) -> None:
    async with at(stores[1], "second") as there:
        async with at(stores[0], "first") as here:
            looking = here.looking()
            looking.__enter__()
            await becomes(there, True)
        assert not await there.is_there()


async def test_a_desk_that_says_nothing_any_more_is_looked_at_by_nobody(stores: tuple[Store, Store]) -> None:
    leases = Leases(stores[0], owner="killed", seconds=0.3)
    assert await leases.hold("people at killed")
    await becomes(at(stores[1], "second"), True)
    await becomes(at(stores[1], "second"), False)


async def test_it_is_said_again_before_it_runs_out(stores: tuple[Store, Store]) -> None:
    async with at(stores[0], "first", seconds=0.6) as here, at(stores[1], "second") as there:
        with here.looking():
            await becomes(there, True)
            for _ in range(30):
                await asyncio.sleep(0.05)
                assert await there.is_there()


async def test_a_stream_of_everything_is_somebody_at_every_desk(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    address = new_database()
    async with serving(tmp_path / "a", database=address) as one, serving(tmp_path / "b", database=address) as two:
        async with listening(one.http, session="s1"):
            assert not await two.broker.presence.is_there(), "who follows one session does not see what waits"
        async with listening(one.http):
            await becomes(two.broker.presence, True)
        await becomes(two.broker.presence, False)
