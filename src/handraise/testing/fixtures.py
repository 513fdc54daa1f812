"""Pytest fixtures, found by pytest through an entry point: `fake_clock`, `scripted_agent`, `broker`, `person`.

Loaded in every test run of whoever installed handraise, so nothing is imported before a fixture is used. The two that
are asynchronous are there where pytest-asyncio is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from handraise.agents.scripted import Scripted
    from handraise.broker import Broker
    from handraise.testing.clock import FakeClock
    from handraise.testing.person import ScriptedPerson


@pytest.fixture
def fake_clock() -> FakeClock:
    """The clock of `broker`; it stands still until `await fake_clock.advance(seconds)`."""
    from handraise.testing import FakeClock

    return FakeClock()


@pytest.fixture
def scripted_agent() -> Scripted:
    """An agent without a script; give it one with `on`, `on_question` and `on_permission`."""
    from handraise.testing import Scripted

    return Scripted()


if find_spec("pytest_asyncio") is not None:
    import pytest_asyncio

    @pytest_asyncio.fixture
    async def broker(fake_clock: FakeClock) -> AsyncIterator[Broker]:
        """A desk in memory, on the fake clock."""
        from handraise.broker import Broker
        from handraise.stores.sqlite import MEMORY, SqliteStore

        store = await SqliteStore.open_file(MEMORY)
        async with Broker(store, clock=fake_clock) as desk:
            yield desk
        await store.close()

    @pytest_asyncio.fixture
    async def person(broker: Broker) -> AsyncIterator[ScriptedPerson]:
        """A person at `broker` who says nothing until told what to with `on`."""
        import asyncio

        from handraise.testing import ScriptedPerson

        scripted = ScriptedPerson()
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(scripted.run(broker))
            yield scripted
            looking.cancel()
