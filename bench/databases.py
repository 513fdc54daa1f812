"""The databases that desks are measured on: each time a SQLite file, or a schema in a PostgreSQL of our own."""

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

import asyncpg

from handraise.testing.postgres import PostgresServer, postgres_server

LONGEST_PLACE = 70  # characters: the path of a socket below it has 107 at most


class DatabaseUnavailable(Exception):
    """The database cannot be had on this machine; the message says why."""


class Databases(Protocol):
    """Where empty databases come from."""

    pid: int | None  # of the database's own process, where it has one
    version: str
    folder: Path  # on the disk that they lie on

    def fresh(self, folder: Path) -> AbstractContextManager[str]:
        """The address of an empty database. It is gone when the block ends."""


class SqliteFiles:
    pid: int | None = None
    version = f"SQLite {sqlite3.sqlite_version}"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def fresh(self, folder: Path) -> Iterator[str]:
        yield f"sqlite:///{folder / 'desk.db'}"


class PostgresSchemas:
    """Use `postgres()` to get one."""

    def __init__(self, server: PostgresServer) -> None:
        self.folder = server.folder
        self.pid: int | None = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
        self.version = asyncio.run(_version(server.address()))
        self._server = server
        self._numbers = count(1)

    @contextmanager
    def fresh(self, folder: Path) -> Iterator[str]:
        schema = f"bench_{next(self._numbers)}"
        try:
            yield self._server.address(schema=schema)
        finally:
            # What a measurement leaves behind would be vacuumed and written to disk during the next ones.
            asyncio.run(_run(self._server.address(), f"drop schema if exists {schema} cascade", "checkpoint"))


@contextmanager
def postgres(*, beside: Path) -> Iterator[PostgresSchemas]:
    """A server that waits for the disk as it does by default, on the disk of the folder if there is a way."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_server(durable=True, root=place_for_postgres(beside)))
        except (RuntimeError, OSError) as problem:
            raise DatabaseUnavailable(f"PostgreSQL does not start here: {problem}") from None
        yield PostgresSchemas(server)


def place_for_postgres(beside: Path) -> Path:
    """Under root PostgreSQL runs as somebody who cannot enter root's home: then another folder of the same disk."""
    places = [beside, Path("/var/tmp"), Path("/var/lib"), Path("/srv"), Path(tempfile.gettempdir())]
    usable = [place for place in places if _is_usable(place)]
    if not usable:
        raise DatabaseUnavailable(
            f"PostgreSQL needs a folder that others may enter; tried {', '.join(map(str, places))}"
        )
    disk = beside.stat().st_dev
    return next((place for place in usable if place.stat().st_dev == disk), usable[0])


def _is_usable(place: Path) -> bool:
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK) or len(str(place)) > LONGEST_PLACE:
        return False
    return os.geteuid() != 0 or all(above.stat().st_mode & 0o001 for above in (place, *place.parents))


async def _version(address: str) -> str:
    connection = await asyncpg.connect(address)
    try:
        told: str = await connection.fetchval("show server_version")
        return f"PostgreSQL {told.split()[0]}"
    finally:
        await connection.close()


async def _run(address: str, *statements: str) -> None:
    connection = await asyncpg.connect(address)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
