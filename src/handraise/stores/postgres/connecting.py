"""Connections to a PostgreSQL database: how they are made and set up, and what is said where that fails.

A connection may be lost at any moment; `Troubles` says what does not work right now.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit
from uuid import uuid4

from handraise.clock import Backoff
from handraise.errors import SettingsError, StoreError
from handraise.stores import without_password
from handraise.stores._asks import migrations

try:
    import asyncpg
except ImportError:
    raise SettingsError(
        "PostgreSQL needs a driver that is not installed; `pip install 'handraise[postgres]'` brings it"
    ) from None

__all__ = [
    "LOCK",
    "NAME",
    "UNUSABLE",
    "Connection",
    "Connector",
    "Patience",
    "Troubles",
    "backoff",
    "hang_up",
    "passes",
    "reason_of",
]

log = logging.getLogger(__name__)

Connection: TypeAlias = Any  # asyncpg comes without types

SCHEMA = "handraise"
OLDEST_VERSION = 13  # those before are not looked after any more
NAME = "handraise"  # as the database knows our connections
LOCK = 4263  # the first half of our advisory lock keys; the second is the table or the purpose
MIGRATING = 1
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between attempts
MIGRATION = 3600.0  # seconds that it may take to bring a large database up to date

# A desk that is suspended in the middle of a commit must not hold up the others, nor one whose machine is gone.
_SESSION = """
set application_name = '{name}';
set search_path = {schema};
set default_transaction_isolation = 'read committed';
set default_transaction_read_only = off;
set lock_timeout = {lock:.0f};
set idle_in_transaction_session_timeout = {stuck:.0f};
set tcp_user_timeout = {stuck:.0f};
set tcp_keepalives_idle = 15;
set tcp_keepalives_interval = 5;
set tcp_keepalives_count = 3;
select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off';
"""

UNUSABLE = (  # what connecting may raise
    OSError,
    ValueError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How many seconds things may take."""

    start: float = 10.0  # for a database that is started beside us to come up
    write: float = 30.0  # that a write waits for a database that is away
    read: float = 5.0  # that a read does; our clients give a desk ten
    close: float = 5.0  # that closing waits for a database that is away
    answer: float = 20.0  # after which a connection that says nothing counts as lost
    lock: float = 10.0  # that a commit waits for those of other desks before it says that something is wrong
    stuck: float = 15.0  # after which the database ends a commit whose desk does not go on with it
    poll: float = 5.0  # after which we look for what no notification told us of
    hello: float = 3.0  # that our own notification may take at the start


class Troubles:
    """What is broken right now: `writing`, `reading` or `listening`, each in a sentence."""

    def __init__(self, shown: str) -> None:
        self.now: dict[str, str] = {}
        self._shown = shown

    def note(self, what: str, sentence: str) -> None:
        if what not in self.now:
            log.warning("%s: %s", what, sentence)
        self.now[what] = sentence

    def clear(self, what: str) -> None:
        if self.now.pop(what, None) is not None:
            log.info("%s: the database at %s is back", what, self._shown)

    def away(self, failure: Exception) -> str:
        return f"the database at {self._shown} is away: {reason_of(failure)}"


class Connector:
    """Makes connections to one schema of one database."""

    def __init__(self, address: str, *, patience: Patience) -> None:
        self.patience = patience
        self.is_closed = False  # the store says so
        self.name = uuid4().hex  # of this store, among all that write to the database
        self.dsn, self.schema = _split(address)
        self.shown = re.sub(r"(?<=[?&])schema=[^&]*&?", "", without_password(address)).rstrip("?&")
        self._session = _SESSION.format(
            name=NAME, schema=_quoted(self.schema), lock=patience.lock * 1000, stuck=patience.stuck * 1000
        )

    async def connect(self) -> Connection:
        answer = self.patience.answer
        connection = await asyncpg.connect(self.dsn, timeout=answer, command_timeout=answer)
        try:
            await self.set_up(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def set_up(self, connection: Connection) -> None:
        await connection.execute(self._session)

    async def first_connection(self) -> Connection:
        """A database that is started beside us gets a moment to come up."""
        loop, tries = asyncio.get_running_loop(), backoff()
        give_up = loop.time() + self.patience.start
        while True:
            try:
                return await self.connect()
            except (ConnectionRefusedError, FileNotFoundError, asyncpg.CannotConnectNowError):
                if loop.time() > give_up:
                    raise
            await tries.wait()

    async def check(self, connection: Connection) -> str:
        """The version of the database. Raises StoreError where it cannot be used."""
        version = connection.get_server_version()
        encoding = await connection.fetchval("select current_setting('server_encoding')")
        _refuse_unfit(f"the database at {self.shown}", version=version.major, encoding=encoding)
        await self._prove_notifications(connection)
        return f"{version.major}.{version.micro}"

    async def _prove_notifications(self, connection: Connection) -> None:
        """A proxy that pools transactions takes LISTEN and never tells anything: better said now than missed later."""
        greeted = asyncio.Event()
        channel = f"handraise_{self.name}"
        listener = await self.connect()
        try:
            await listener.add_listener(channel, lambda *_: greeted.set())
            await connection.execute("select pg_notify($1, 'hello')", channel)
            with suppress(TimeoutError):
                await asyncio.wait_for(greeted.wait(), self.patience.hello)
        finally:
            listener.terminate()
        if not greeted.is_set():
            raise StoreError(_pooled(self.shown))

    async def migrate(self, connection: Connection) -> None:
        """Apply the numbered files that this database has not seen; of several desks that start, one does."""
        async with connection.transaction():
            await connection.execute("set local lock_timeout = 0")
            await connection.execute("select pg_advisory_xact_lock($1, $2)", LOCK, MIGRATING, timeout=MIGRATION)
            if not await connection.fetchval("select to_regnamespace($1)", _quoted(self.schema)):
                await connection.execute(f"create schema {_quoted(self.schema)}")
            await connection.execute("create table if not exists versions (version integer primary key)")
            version = await connection.fetchval("select coalesce(max(version), 0) from versions")
            for number, statements in migrations("postgres", version=version):
                await connection.execute(statements, timeout=MIGRATION)
                await connection.execute("insert into versions values ($1)", number)
            await connection.execute("delete from writers where at < now() - interval '1 day'")

    def explain(self, problem: Exception) -> StoreError:
        where = f"the database at {self.shown}"
        match problem:
            case asyncpg.DuplicatePreparedStatementError() | asyncpg.InvalidSQLStatementNameError():
                return StoreError(_pooled(self.shown))
            case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
                return StoreError(
                    f"{where} does not let us in ({reason_of(problem)}); look at the user and the password, in "
                    "HANDRAISE_DATABASE or PGPASSWORD, and at pg_hba.conf of the server"
                )
            case asyncpg.InvalidCatalogNameError():
                return StoreError(
                    f"{reason_of(problem)}; create it with `createdb`, or name another one in HANDRAISE_DATABASE"
                )
            case asyncpg.InsufficientPrivilegeError():
                return StoreError(
                    f"{where}: {reason_of(problem)}; let its owner run `create schema {_quoted(self.schema)} "
                    "authorization USER`"
                )
            case asyncpg.InvalidSchemaNameError():
                return StoreError(
                    f"the schema {self.schema} of {where} belongs to another user; connect as that one, or name "
                    "another schema with ?schema=NAME"
                )
            case ssl.SSLError():
                return StoreError(
                    f"the TLS of {where} is not as HANDRAISE_DATABASE wants it ({reason_of(problem)}); look at sslmode "
                    "and sslrootcert there"
                )
            case OSError():
                return StoreError(
                    f"no PostgreSQL answers at {self.shown} ({reason_of(problem)}); is it running, and is "
                    "HANDRAISE_DATABASE right?"
                )
            case ValueError() if not isinstance(problem, asyncpg.InterfaceError):  # its text holds parts of the address
                return StoreError(_unreadable(self.shown))
            case _:
                return StoreError(f"{where} cannot be used: {reason_of(problem)}")


def backoff() -> Backoff:
    return Backoff(FIRST_PAUSE, longest=LONGEST_PAUSE)


def passes(failure: Exception) -> bool:
    """Whether it lies in the connection or the moment, so that the same may succeed on a new one."""
    if isinstance(failure, asyncpg.InvalidCachedStatementError):  # a plan made before a migration
        return True
    if isinstance(failure, asyncpg.PostgresError):
        code = str(failure.sqlstate or "")
        # connection lost · rolled back for another's sake · shut down or starting · lock not had · too many
        # connections · now a standby · a commit that took too long
        return code[:2] in ("08", "40", "57") or code in ("55P03", "53300", "25006", "25P03", "25P04")
    return isinstance(failure, OSError | asyncpg.InternalClientError)


def _refuse_unfit(where: str, *, version: int, encoding: str) -> None:
    if version < OLDEST_VERSION:
        raise StoreError(f"{where} is PostgreSQL {version}; handraise needs {OLDEST_VERSION} or newer")
    if encoding != "UTF8":
        raise StoreError(
            f"{where} keeps text as {encoding}, which has not every character; make one with `createdb "
            "--encoding=UTF8 --template=template0`"
        )


def _pooled(shown: str) -> str:
    return (
        f"{shown} is a proxy that pools transactions (such as PgBouncer with pool_mode=transaction), and what one desk "
        "does would not be heard at the others; give the address of PostgreSQL itself, or of a pool with "
        "pool_mode=session"
    )


def _unreadable(shown: str) -> str:
    return (
        f"{shown} cannot be read as an address: is its port a number? In a password, write the characters @ : / # ? % "
        "as %40 %3A %2F %23 %3F %25, or leave it out and set PGPASSWORD"
    )


def reason_of(failure: BaseException) -> str:
    if isinstance(failure, TimeoutError):
        return "it did not answer in time"
    return str(failure).partition("\n")[0] or type(failure).__name__  # what follows may show rows


async def hang_up(connection: Connection) -> None:
    with suppress(Exception):
        await connection.close(timeout=2)
    connection.terminate()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _split(address: str) -> tuple[str, str]:
    """The address as the driver takes it, and the schema."""
    try:
        parts = urlsplit(address)
    except ValueError:
        raise StoreError(_unreadable(without_password(address))) from None
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", SCHEMA)
    if not schema:
        raise SettingsError("HANDRAISE_DATABASE: schema= is empty; leave it out, or name one")
    hosts = f"{parts.netloc.rpartition('@')[2]}{dict(options).get('host', '')}"
    if "," in hosts and "target_session_attrs" not in dict(options):  # of several, one that takes writes
        options.append(("target_session_attrs", "read-write"))
    rest = urlencode([(key, value) for key, value in options if key != "schema"], quote_via=quote)
    return urlunsplit(parts._replace(query=rest)), schema
