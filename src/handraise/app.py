"""Where concrete parts meet: a store, a broker and the HTTP desk become one running process."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from handraise.agents import SECRETS, AgentSettings
from handraise.broker import Broker
from handraise.broker.askers import watch_askers
from handraise.broker.counts import Lag
from handraise.broker.presence import Presence
from handraise.channels import ChannelSettings
from handraise.chat.runtime import Chats
from handraise.client import Client
from handraise.clock import Clock, SystemClock
from handraise.config import AgentTable, Settings
from handraise.errors import HandraiseError, PluginNotFound, SettingsError
from handraise.people import People
from handraise.plugins import load
from handraise.rules.book import Rulebook
from handraise.server import create_app
from handraise.server.connections import Connections, Limits
from handraise.server.protocol import LimitedProtocol
from handraise.server.routes.acp import Acp
from handraise.server.routes.api import SignIn
from handraise.server.routes.attach import Attached
from handraise.server.routes.mcp import Mcp
from handraise.server.routes.runs import Runs
from handraise.server.routes.trust import TrustRoutes
from handraise.stores import Seen, Store, StoreKind, without_password
from handraise.switchboard import Channels, Made
from handraise.tables.leases import Leases
from handraise.tables.raw_messages import Wires
from handraise.tables.tokens import Tokens
from handraise.text.masking import secret_values
from handraise.transports import proof, tls
from handraise.trust import Trust
from handraise.worker import Agents, Worker, own_name, sole_worker
from handraise.workflow.author import AuthorProcesses
from handraise.workflow.engine import Engine
from handraise.workflow.journal import Journal
from handraise.workflow.loading import trusted_only

__all__ = [
    "Running",
    "agents_of",
    "authors_of",
    "bind",
    "config_of",
    "look_at",
    "open_parts",
    "open_store",
    "open_worker",
    "run_desk",
    "wires_of",
]

log = logging.getLogger(__name__)

HEARTBEAT = 15.0
ANSWERS_WITHIN = 2.0  # seconds that another desk of this home gets to say that it is there
GRACE = 2  # seconds that open calls get to end; streams and waits are ended before


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A desk that listens."""

    url: str
    sign_in_url: str
    broker: Broker
    serving: asyncio.Task[None]

    async def ended(self) -> None:
        """Return once a signal ended it."""
        await asyncio.wait([self.serving])


async def open_store(database: str) -> Store:
    """The store that an address names. Raises SettingsError, StoreInUse, StoreTooNew."""
    return await _kind_of(database).open_address(database)


async def look_at(database: str) -> Seen:
    """What is at an address, found without making, locking or migrating anything. Raises StoreError, SettingsError."""
    return await _kind_of(database).look(database)


def _kind_of(database: str) -> StoreKind:
    """The member of `stores` that the beginning of an address names. Raises SettingsError."""
    scheme, separator, _ = database.partition("://")
    try:
        kind: StoreKind = load("stores", "postgres" if scheme == "postgresql" else scheme if separator else "")
    except PluginNotFound:
        raise SettingsError(
            f"{without_password(database)!r} is no address of a database; one is sqlite:///path/to/desk.db or "
            "postgresql://user@host/database. Set it as HANDRAISE_DATABASE"
        ) from None
    return kind


@asynccontextmanager
async def open_parts(settings: Settings, *, clock: Clock | None = None) -> AsyncIterator[tuple[Broker, Tokens]]:
    """The desk without HTTP: store, broker, tokens. On SQLite whoever holds them is the one desk of the file."""
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = await open_store(settings.database)
    try:
        clock = clock or SystemClock()
        async with Tokens(store, clock=clock) as tokens:
            await _first_token(settings, tokens)
            rules = Rulebook(store, user=settings.user, trust=Trust(settings.trust_file))
            async with Broker(
                store, clock=clock, handling=settings.handling, rules=rules, keep=settings.keep
            ) as broker:
                yield broker, tokens
    finally:
        await store.close()


async def _first_token(settings: Settings, tokens: Tokens) -> None:
    """The admin token of this home lies in a file for its owner alone; the store keeps only the hash."""
    if settings.token is not None:
        tokens.accept(settings.token)
    file, name = settings.token_file, _admin_of(settings)
    if file.exists():
        secret = file.read_text().strip()
        if secret and tokens.find(secret.encode()) is None:
            await tokens.add(name, scopes=("admin",), secret=secret, replace=True)
        return
    secret = await tokens.add(name, scopes=("admin",), replace=True)
    _write_private(file, secret + "\n")


def _admin_of(settings: Settings) -> str:
    """What the home's token is called. Homes that share a database must not replace each other's."""
    if settings.database.startswith("sqlite:"):
        return "admin"
    machine = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname())[:40]
    return f"admin-{machine}-{hashlib.sha256(str(settings.home).encode()).hexdigest()[:6]}"


def _write_private(file: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        fresh.unlink()
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.write(text)
    fresh.replace(file)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SettingsError that says what to do when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as problem:
        listener.close()
        raise SettingsError(
            f"port {port} on {host} cannot be used ({problem.strerror}); choose another one with --port",
        ) from None
    listener.setblocking(False)
    return listener


def wires_of(settings: Settings, broker: Broker) -> Wires:
    """Where raw messages are kept. No secret that this process knows of is among them."""
    names = SECRETS | _channels_secrets(settings)
    known = secret_values(os.environ, *(table.env for table in settings.agents.values()), names=names)
    known += [settings.token or "", urlsplit(settings.database).password or ""]
    return Wires(broker.store, clock=broker.clock, known=known, keep=settings.keep, is_on=settings.inspect)


@asynccontextmanager
async def open_worker(
    settings: Settings,
    broker: Broker,
    *,
    agents: Agents,
    wires: Wires | None = None,
    authors: AuthorProcesses | None = None,
) -> AsyncIterator[Worker | None]:
    """The worker of this home, with what it watches; None where another process is that already.

    Without `wires` nobody keeps the raw messages of its agents; without `authors` it has processes of its own.
    """
    if authors is None:
        async with (
            authors_of(settings) as own,
            open_worker(settings, broker, agents=agents, wires=wires, authors=own) as worker,
        ):
            yield worker
        return
    with sole_worker(settings.home) as is_ours:
        if not is_ours:
            log.warning("another process runs the sessions of %s; this desk starts none", settings.home)
            yield None
            return
        name = own_name(settings.home)
        worker = Worker(broker, broker.sessions, agents, name=name, clock=broker.clock, wires=wires)
        async with worker:
            # Left by hand, so that what the body raises comes out as it is rather than in a group.
            watching = await asyncio.TaskGroup().__aenter__()
            watched = [
                watching.create_task(worker.watch(name, address))
                for name, table in settings.agents.items()
                for address in table.watch
            ]
            journal = Journal(broker.store)
            is_alone = _is_alone(settings)
            if is_alone:  # whoever was here before is gone, since we hold its lock
                await journal.expire_dead_workers(everybody=True)
            engine = Engine(journal, worker, clock=broker.clock, ttl=settings.lease, authors=authors, is_alone=is_alone)
            watched.append(watching.create_task(engine.serve()))
            try:
                yield worker
            finally:
                for task in watched:
                    task.cancel()
                await watching.__aexit__(None, None, None)


def config_of(settings: Settings) -> Path | None:
    """The user's own folder of settings."""
    return None if settings.user is None else settings.user.parent


# What a client of PostgreSQL is signed in with, beside its address.
_DATABASE_SECRETS = frozenset({"PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE"})


def authors_of(settings: Settings) -> AuthorProcesses:
    """Processes for the code of workflows, with nothing of this process that opens the desk or its database."""
    database = urlsplit(settings.database)
    return AuthorProcesses(
        config=config_of(settings),
        may_load=trusted_only(Trust(settings.trust_file)),
        secrets=SECRETS | _channels_secrets(settings) | _DATABASE_SECRETS,
        values=[settings.token or "", settings.database, database.password or ""],
    )


def agents_of(settings: Settings) -> Agents:
    """The agents as the settings have them."""

    def made(name: str) -> AgentSettings:
        table = settings.agents.get(name, AgentTable())
        return AgentSettings(
            home=settings.home,
            command=table.command,
            env=table.env,
            handling=settings.handling,
            secrets=_channels_secrets(settings),
        )

    return Agents(made)


def channels_of(settings: Settings, broker: Broker, *, worker: Worker | None) -> list[Made]:
    """The channels as the settings have them. One that cannot be made is told, and holds up nobody."""
    people, made = People(settings.people), []
    for name, table in settings.channels.items():
        given = ChannelSettings(
            name=name,
            table=table.table,
            environ=os.environ,
            people=people,
            address=broker.address,
            home=settings.home,
            database=broker.store,
            clock=broker.clock,
            handling=broker.handling,
            hands=worker,
        )
        plugin = None
        try:
            plugin = load("channels", table.kind)
            made.append(Made(name=name, kind=table.kind, channel=plugin(given)))
        except Exception as broken:
            is_ours = isinstance(broken, HandraiseError)
            log.error("[channels.%s] cannot be used: %s", name, broken, exc_info=not is_ours)
            problem = str(broken) if is_ours else "it cannot be loaded; the log of the desk says why"
            made.append(Made(name=name, kind=table.kind, problem=problem, reach=getattr(plugin, "reach", None)))
    return made


def _channels_secrets(settings: Settings) -> frozenset[str]:
    """The variables that channels are signed in with, as their tables name them."""
    named = (each.table.get(key) for each in settings.channels.values() for key in each.table if key.endswith("_env"))
    return frozenset(name for name in named if isinstance(name, str))


@asynccontextmanager
async def run_desk(
    settings: Settings,
    *,
    listener: socket.socket,
    has_worker: bool = True,
    agents: Agents | None = None,
    clock: Clock | None = None,
    limits: Limits | None = None,
) -> AsyncIterator[Running]:
    """Serve on a bound socket for as long as the context is open, or until SIGTERM or SIGINT.

    Leaving it ends streams and waits and withdraws nothing. Raises SettingsError where a certificate cannot be used.
    """
    place = _place_of(settings, listener)
    async with AsyncExitStack() as parts:
        made = await _assemble(parts, settings, place, has_worker=has_worker, agents=agents, clock=clock)
        connections = Connections(limits)
        config = _uvicorn_config(made.app, settings, connections=connections)
        server = _Server(config, connections=connections, before_shutdown=made.let_go)
        # Left by hand, so that what the body raises comes out as it is rather than in a group.
        tasks = await asyncio.TaskGroup().__aenter__()
        serving = tasks.create_task(server.serve(sockets=[listener]))
        chores = [tasks.create_task(chore()) for chore in made.chores]
        written = json.dumps(place.written)
        try:
            await server.ready.wait()
            if not await _has_desk(settings):  # desks that share a database may share a home too
                _write_private(settings.desk_file, written + "\n")
            _collect_less()
            yield Running(url=place.url, sign_in_url=made.sign_in.link(place.url), broker=made.broker, serving=serving)
        finally:
            server.stop()
            await asyncio.wait([serving])
            for chore in chores:
                chore.cancel()
            _remove_own(settings.desk_file, written)
            await tasks.__aexit__(None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a desk listens."""

    host: str
    port: int
    key: str  # with which the desk proves that it is the one that wrote down its address
    certificate: str | None  # itself and not its path: that file may be renewed while we still show this one

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"

    @property
    def written(self) -> dict[str, Any]:
        """What clients of this home read."""
        about = {"url": self.url, "pid": os.getpid(), "key": self.key}
        return about if self.certificate is None else {**about, "certificate": self.certificate}


def _place_of(settings: Settings, listener: socket.socket) -> _Place:
    """Raises SettingsError where a certificate cannot be used."""
    certificate = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls.check(settings.tls_cert, key=settings.tls_key)
        certificate = tls.leaf(settings.tls_cert)
    host, port = listener.getsockname()[:2]
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    return _Place(host=shown, port=port, key=proof.new_key(), certificate=certificate)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assembled:
    """The parts of a desk that whoever runs it needs."""

    app: object
    broker: Broker
    sign_in: SignIn
    chores: Sequence[Callable[[], Coroutine[Any, Any, None]]]  # to be run for as long as the desk is
    let_go: Callable[[], None]  # ends waits and streams


async def _assemble(
    parts: AsyncExitStack,
    settings: Settings,
    place: _Place,
    *,
    has_worker: bool,
    agents: Agents | None,
    clock: Clock | None,
) -> _Assembled:
    """Make every part of a desk; `parts` ends them in the reverse order."""
    broker, tokens = await parts.enter_async_context(open_parts(settings, clock=clock))
    agents = agents or agents_of(settings)
    wires = await parts.enter_async_context(wires_of(settings, broker))
    authors = await parts.enter_async_context(authors_of(settings))
    worker = None
    if has_worker:
        opening = open_worker(settings, broker, agents=agents, wires=wires, authors=authors)
        worker = await parts.enter_async_context(opening)
    attached = Attached(broker, agents.attachable(), name=own_name(settings.home), wires=wires)
    mcp = await parts.enter_async_context(Mcp(broker, wires=wires))
    acp = await parts.enter_async_context(Acp(broker, worker=worker))
    runs = Runs(broker, config=config_of(settings), authors=authors)
    chats = await parts.enter_async_context(Chats(broker, settings.chat, is_alone=_is_alone(settings)))
    broker.address = settings.address or place.url
    reaching = await _open_channels(parts, settings, broker, worker=worker)
    sign_in, lag = SignIn(clock=broker.clock), Lag()
    app = create_app(
        broker,
        tokens=tokens,
        sign_in=sign_in,
        port=place.port,
        lag=lag,
        worker=worker,
        attached=attached,
        mcp=mcp,
        acp=acp,
        runs=runs,
        talks=chats,
        wires=wires,
        reaching=reaching,
        trust=parts.enter_context(TrustRoutes(settings)),
        prove=lambda nonce: proof.sign(place.key, url=place.url, nonce=nonce),
        allowed_hosts=(*settings.allowed_hosts, place.host, urlsplit(broker.address).hostname or place.host),
    )
    return _Assembled(
        app=app,
        broker=broker,
        sign_in=sign_in,
        chores=[partial(_beat, broker), partial(watch_askers, broker), lag.watch, attached.retire],
        let_go=partial(_let_go, broker, worker, mcp, acp, runs, wires),
    )


async def _open_channels(
    parts: AsyncExitStack, settings: Settings, broker: Broker, *, worker: Worker | None
) -> Channels:
    """The channels, and who looks at the desk: both are shared with other desks of the database."""
    own = f"{own_name(settings.home)} {os.getpid()}"
    leases = None if _is_alone(settings) else Leases(broker.store, owner=own, seconds=settings.lease)
    broker.presence = await parts.enter_async_context(Presence(leases))
    channels = Channels(
        broker,
        channels_of(settings, broker, worker=worker),
        people=People(settings.people),
        leases=leases,
        has_worker=worker is not None,
    )
    return await parts.enter_async_context(channels)


def _is_alone(settings: Settings) -> bool:
    """Whether no other desk can reach the database."""
    return settings.database.startswith("sqlite:")


async def _has_desk(settings: Settings) -> bool:
    """Whether the desk that this home wrote down is there, and not only a process with its id."""
    if settings.running_desk() is None:
        return False
    try:
        async with asyncio.timeout(ANSWERS_WITHIN), Client(settings=replace(settings, url=None)) as client:
            await client.reach()
    except (HandraiseError, TimeoutError):
        return False
    return True


def _let_go(broker: Broker, worker: Worker | None, mcp: Mcp, acp: Acp, runs: Runs, wires: Wires) -> None:
    if worker is not None:
        worker.stop()
    broker.cancel_waits()
    broker.feeds.close()
    mcp.stop()
    acp.stop()
    runs.stop()
    wires.cancel_waits()


async def _beat(broker: Broker) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT)
        broker.feeds.poke()


def _remove_own(file: Path, text: str) -> None:
    with suppress(OSError):
        if file.read_text().strip() == text:
            file.unlink()


def _collect_less() -> None:
    """With a thousand open calls the default thresholds spend a fifth of the time looking for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _uvicorn_config(app: object, settings: Settings, *, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        http=partial(LimitedProtocol, connections=connections),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
    )


class _Server(uvicorn.Server):
    """uvicorn, but connections are accepted by ours, streams are ended before it waits for them, and signals end us in
    order instead of at once."""

    def __init__(
        self, config: uvicorn.Config, *, connections: Connections, before_shutdown: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._before_shutdown = before_shutdown
        self._listeners: list[socket.socket] = []
        self._stopped = asyncio.Event()
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Without the servers that uvicorn would make: `main_loop` accepts."""
        self._listeners = sockets or []
        self.servers = []
        self.started = True
        self.ready.set()

    async def main_loop(self) -> None:
        """Accept until we are stopped. uvicorn looks ten times a second, for a date header that we do not have."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._connections.sweep())]
            for listener in self._listeners:
                accepting = self._connections.accept(listener, self._make, tls=self.config.ssl)
                running.append(tasks.create_task(accepting))
            await self._stopped.wait()
            for task in running:
                task.cancel()

    def _make(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state={}, _loop=asyncio.get_running_loop()
        )
        return made

    def stop(self) -> None:
        self.should_exit = True
        self._stopped.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._before_shutdown()
        await super().shutdown(sockets)
