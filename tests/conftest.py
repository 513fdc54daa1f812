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
