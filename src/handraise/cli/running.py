"""Running a desk in the foreground, for the commands that do."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from handraise.app import Running, agents_of, bind, open_parts, open_worker, run_desk, wires_of
from handraise.cli.printing import say
from handraise.client import Client
from handraise.config import Settings
from handraise.errors import DeskUnreachable, HandraiseError, SettingsError, StoreInUse
from handraise.server.connections import raise_descriptors
from handraise.transports import tls

__all__ = ["desk_for", "desk_or_own", "run_loop", "run_until_ended", "work_until_ended"]

T = TypeVar("T")

STARTS_WITHIN = 5.0  # seconds that a desk gets which holds the database and has not written down its address
LOOK_AGAIN = 0.1


@asynccontextmanager
async def desk_or_own(settings: Settings, *, port: int) -> AsyncIterator[Running | None]:
    """A desk in this process for as long as the context is open, or None where one runs already.

    Takes a free port where the wanted one is taken. Raises DeskUnreachable where settings name a desk that is silent,
    StoreInUse where somebody holds the database and gives no address.
    """
    async with AsyncExitStack() as stack:
        own = None
        give_up = asyncio.get_running_loop().time() + STARTS_WITHIN
        while not await _runs(settings):
            listener = _bind(settings.host, port)
            try:
                own = await stack.enter_async_context(run_desk(settings, listener=listener))
                break
            except StoreInUse:
                listener.close()
                if asyncio.get_running_loop().time() > give_up:
                    raise
                await asyncio.sleep(LOOK_AGAIN)
        yield own


def _bind(host: str, port: int) -> socket.socket:
    try:
        return bind(host, port)
    except SettingsError as taken:
        listener = bind(host, 0)
        say(f"handraise: {str(taken).partition(';')[0]}; took port {listener.getsockname()[1]} instead")
        return listener


async def _runs(settings: Settings) -> bool:
    if settings.url is None and settings.running_desk() is None:
        return False
    try:
        async with Client(settings=settings) as client:
            await client.cursor()
    except DeskUnreachable:
        if settings.url is not None:
            raise
        return False
    return True


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on the fast loop where there is one."""
    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def run_until_ended(
    settings: Settings,
    *,
    host: str,
    port: int,
    allowed_hosts: tuple[str, ...] = (),
    as_json: bool = False,
    has_worker: bool = True,
) -> None:
    """Raises HandraiseError where the port is taken, StoreInUse where this home has its desk already, SettingsError
    where a certificate cannot be used."""
    _log_to_stderr()
    raise_descriptors()
    settings = replace(settings, allowed_hosts=(*settings.allowed_hosts, *allowed_hosts))
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls.check(settings.tls_cert, key=settings.tls_key)
    try:
        listener = bind(host, port)
    except SettingsError as taken:  # the option was fine, the machine was not
        raise HandraiseError(str(taken)) from None

    async def serve() -> None:
        async with run_desk(settings, listener=listener, has_worker=has_worker) as desk:
            _say_ready(desk, as_json=as_json)
            if not _is_loopback(host):
                _warn_of_others(settings, host=host)
            await desk.ended()
        if not as_json:
            print("handraise has left; what was asked is kept", flush=True)

    run_loop(serve())


def work_until_ended(settings: Settings) -> None:
    """Raises SettingsError where nobody shares the database, HandraiseError where this home has its worker already."""
    if settings.database.startswith("sqlite:"):
        raise SettingsError(
            "a worker shares its database with desks, and a SQLite file has room for one process; set "
            "HANDRAISE_DATABASE to postgresql://… for this one and for its desks, or run `handraise serve`"
        )
    _log_to_stderr()

    async def work() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        async with (
            open_parts(settings) as (broker, _),
            wires_of(settings, broker) as wires,
            open_worker(settings, broker, agents=agents_of(settings), wires=wires) as worker,
        ):
            if worker is None:
                raise HandraiseError(
                    f"another process runs the sessions of {settings.home}; set HANDRAISE_HOME to another folder "
                    "for a second worker"
                )
            print(f"handraise works as {worker.name}", flush=True)
            await ended.wait()
            worker.stop()
        print("handraise has left; others go on with its runs", flush=True)

    run_loop(work())


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for talkative in ("mcp", "uvicorn", "httpx2", "httpcore2"):  # the last two tell every call to an agent's address
        logging.getLogger(talkative).setLevel(logging.WARNING)


def _say_ready(desk: Running, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"url": desk.url, "sign_in_url": desk.sign_in_url, "pid": os.getpid()}), flush=True)
        return
    print(f"handraise is at your desk: {desk.url}", flush=True)
    print(f"  sign in with a browser (once, within 15 minutes): {desk.sign_in_url}", flush=True)
    print("  answer from another terminal: handraise watch", flush=True)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _warn_of_others(settings: Settings, *, host: str) -> None:
    names = ", ".join(settings.allowed_hosts) or "none yet"
    way = "nothing is encrypted on the way, " if settings.tls_cert is None else ""
    print(
        f"handraise: this desk listens on {host}, so other machines can reach it. Everybody needs a token "
        f"(`handraise token add NAME --scope answer`), {way}and it answers only to host "
        f"names it was told of ({names}; add yours with --allowed-host NAME).",
        file=sys.stderr,
        flush=True,
    )


@asynccontextmanager
async def desk_for(settings: Settings) -> AsyncIterator[Running | None]:
    """The desk that runs (None), or one in this process. Of its log only what is broken is for this terminal."""
    logging.basicConfig(level=logging.ERROR, format="handraise: %(message)s")
    async with desk_or_own(settings, port=0) as own:
        yield own
