"""What several test files share. Fakes come from `handraise.testing`, whose fixtures pytest finds by itself."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from handraise.app import open_store
from handraise.stores import Store
from handraise.testing.postgres import PostgresServer, postgres_server
from handraise.text.words import language_of

DATABASES = ("memory", "sqlite", "postgres")
SLOW_FOLDERS = {"live", "browser", "shells"}  # real agents, a real browser, real shells


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="leave out real agents, browser, shells, PostgreSQL and `slow`"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fast"):
        slow = [item for item in items if is_slow(item)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not is_slow(item)]


def is_slow(item: pytest.Item) -> bool:
    """Whether `make test-fast` leaves it out."""
    callspec = getattr(item, "callspec", None)
    on_postgres = "postgres" in getattr(item, "fixturenames", ()) or (
        callspec is not None and "postgres" in [value for value in callspec.params.values() if isinstance(value, str)]
    )
    return (
        on_postgres
        or bool(SLOW_FOLDERS & {*item.path.relative_to(Path(__file__).parent).parts})
        or item.get_closest_marker("slow") is not None
    )


@pytest.fixture(scope="session", autouse=True)
def in_english() -> Iterator[None]:
    """Whoever runs the tests may speak another language; what commands say at a terminal is read in English."""
    with pytest.MonkeyPatch.context() as patched:
        if language_of(os.environ) != "en":
            patched.setenv("LC_ALL", "C.UTF-8")
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One real PostgreSQL for the whole run. Tests that stop or restart a server bring their own."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def new_database(postgres: PostgresServer) -> Callable[[], str]:
    """Makes the address of an empty place in PostgreSQL, a schema that nobody else uses."""
    numbers = count(1)
    return lambda: postgres.address(schema=f"test_{next(numbers)}")


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address for HANDRAISE_DATABASE: in memory, then the same test again on disk and in PostgreSQL."""
    return address_of(request, tmp_path)


@pytest.fixture(params=("sqlite", "postgres"))
def lasting_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same for tests that start the desk a second time; what is in memory would be gone."""
    return address_of(request, tmp_path)


@pytest.fixture(scope="module", params=DATABASES)
def shared_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same for a desk that serves many tests, none of which minds what the others did."""
    return address_of(request, tmp_path_factory.mktemp("database"))


def address_of(request: pytest.FixtureRequest, folder: Path) -> str:
    """For fixtures that take one of DATABASES as their parameter."""
    match request.param:
        case "memory":
            return "sqlite:///:memory:"
        case "sqlite":
            return f"sqlite:///{folder / 'desk.db'}"
        case _:
            made: str = request.getfixturevalue("new_database")()
            return made


@pytest.fixture
async def store(database: str) -> AsyncIterator[Store]:
    """An open store of each kind."""
    opened = await open_store(database)
    yield opened
    await opened.close()
