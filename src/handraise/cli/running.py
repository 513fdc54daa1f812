"""Running a desk in the foreground, for the commands that do."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import sys
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from handraise.app import Running, bind, run_desk
from handraise.config import Settings
from handraise.errors import HandraiseError, SettingsError

__all__ = ["run_loop", "run_until_ended"]

T = TypeVar("T")


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
    """Raises HandraiseError where the port is taken, StoreInUse where this home has its desk already."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    settings = replace(settings, allowed_hosts=(*settings.allowed_hosts, *allowed_hosts))
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
    print(
        f"handraise: this desk listens on {host}, so other machines can reach it. Everybody needs a token "
        "(`handraise token add NAME --scope answer`), nothing is encrypted on the way, and it answers only to host "
        f"names it was told of ({names}; add yours with --allowed-host NAME).",
        file=sys.stderr,
        flush=True,
    )
