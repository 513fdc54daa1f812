"""What tests in a browser share: one Chromium for all of them, and for each a desk and people of its own.

It is the shell, which is faster; a file whose tests need all of Chromium has a fixture `browser` of its own.

A test takes `desk` to raise hands, `inbox` for the tab of somebody who is signed in, and `people` for more of them.
With `fake_clock` the desk and the browsers run on that clock. A test fails where a page complained of anything that the
test did not announce with `complaints.expect` or `complaints.allow`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.browser.install import shell
from tests.browser.people import Desk, People, Tab, browser_to_test, gathered


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They share a browser, so they share the event loop that it lives on."""
    folder = Path(__file__).parent
    for item in items:
        is_ours = folder in item.path.parents and isinstance(item, pytest.Function)
        if is_ours and inspect.iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """What a page complained of is a failure of the test itself."""
    done = yield
    people = pyfuncitem.funcargs.get("people")
    if isinstance(people, People):
        people.check()
    return done


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with browser_to_test(shell) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk on SQLite, in this process."""
    clock = request.getfixturevalue("fake_clock") if "fake_clock" in request.fixturenames else None
    async with Desk(tmp_path / "home", clock=clock) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def people(browser: Browser, desk: Desk) -> AsyncIterator[People]:
    """Who sits in front of the desk: nobody yet."""
    async with gathered(browser, desk) as present:
        yield present


@pytest_asyncio.fixture(loop_scope="session")
async def inbox(people: People) -> Tab:
    """The inbox of somebody who just signed in."""
    return await people.inbox()
