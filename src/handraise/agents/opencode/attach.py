"""OpenCode in a person's own terminal: what its plugin calls, and the file that puts the plugin there.

A plain `opencode` opens no port, so nothing reaches it from outside. The plugin carries its events here and makes the
call that comes back; what they mean is decided here.

    POST ask         held while the ask is open. 200: the call to make; 204: still open, ask again; 410: it is over
    POST settled     somebody answered in the terminal itself, or stopped the turn
    POST delivered   the call was made, and what OpenCode said to it

A call that ends says nothing about the terminal: desks restart, connections break, and the plugin comes back under the
same id. Only where it does not come back is the terminal gone, and the ask withdrawn.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from handraise.agents import Asker, Edit, Left
from handraise.agents._attached import retire
from handraise.agents.opencode.translate import AGENT, ASKED, SETTLED, from_answer, local_answer, request_of, to_ask
from handraise.asks import Answer, Ask, Origin
from handraise.errors import AlreadyAnswered, AskDoesNotFit, AskNotFound, HandraiseError, SettingsError, Withdrawn
from handraise.tasks import Tasks
from handraise.transports.bodies import TooLarge, read_body, until_gone
from handraise.wire import BadBody, parse

__all__ = ["GONE", "ID_PREFIX", "STOPPED", "Terminals", "edits"]

log = logging.getLogger(__name__)

ID_PREFIX = f"{AGENT}-terminal:"  # of the asks that come this way, which only a plugin can ask again
HOLD = 50.0  # seconds; proxies cut what is silent for a minute
GRACE = 3.0  # seconds in which the plugin comes back; its first try is a quarter of a second after a call broke
BACK = 10.0  # seconds in which every plugin has found a desk that was restarted; its longest pause is four

AGENTS_OWN = "agent"  # who an answer is by that was given in the terminal
GONE = "the terminal is gone"
STOPPED = "the turn was stopped in the terminal"
ELSEWHERE = "it was answered in the terminal first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """An event of OpenCode in which it asks, and where that was."""

    type: str
    properties: dict[str, Any]
    directory: str | None = None
    parent: str | None = None  # the session that started this one as its subagent

    def ask(self) -> Ask:
        """Raises BadBody, AskDoesNotFit."""
        if self.type not in ASKED:
            raise BadBody(f"{self.type!r} asks for nothing; known here: {', '.join(ASKED)}")
        kind, generation = ASKED[self.type]
        session = self.properties.get("sessionID")
        ask = to_ask(
            self.properties,
            kind=kind,
            origin=Origin(
                agent=AGENT,
                session=session if isinstance(session, str) else "",
                parent=self.parent,
                cwd=self.directory,
            ),
            generation=generation,
        )
        return replace(ask, id=ID_PREFIX + ":".join(request_of(ask)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    asked: Brought
    event: dict[str, Any]  # its `type` and `properties`


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    id: str
    status: int | None = None  # what OpenCode said to the call; None: nothing


class Terminals:
    """The routes, and which call brought an ask last."""

    def __init__(self, *, hold: float = HOLD, grace: float = GRACE, back: float = BACK) -> None:
        self._hold = hold
        self._grace = grace
        self._back = back
        self._asking = Tasks()  # each is ended by its call, or by what is done after the reply
        self._last: dict[tuple[str, str], object] = {}  # by token and ask: ids of two tokens may be the same

    def routes(self) -> Sequence[Route]:
        return [
            Route("/ask", self._ask, methods=["POST"]),
            Route("/settled", self._settled, methods=["POST"]),
            Route("/delivered", self._delivered, methods=["POST"]),
        ]

    async def retire(self, desk: Left) -> None:
        """Withdraw what a desk before this one left open, once those terminals that are still there have come back."""

        def is_held(id: str) -> bool:
            return any(id.endswith(brought) for _, brought in self._last)

        await retire(desk, agent=AGENT, prefix=ID_PREFIX, reason=GONE, is_held=is_held, back=self._back)

    async def _ask(self, request: Request) -> Response:
        try:
            return await self._held(request)
        except (AskDoesNotFit, BadBody, TooLarge) as problem:
            log.warning("what a terminal of OpenCode asks does not fit, and is asked there alone: %s", problem.code)
            raise

    async def _held(self, request: Request) -> Response:
        ask = parse(Brought, await read_body(request.scope, request.receive)).ask()
        asker: Asker = request.scope["asker"]
        key = request.scope["token"].name, ask.id
        this = self._last[key] = object()
        asking = self._asking.start(asker.ask(ask))
        try:
            async with Tasks() as tasks:
                either: list[asyncio.Task[Any]] = [asking, tasks.start(until_gone(request.receive))]
                await asyncio.wait(either, timeout=self._hold, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                self._forget(key, this)
                return _outcome(ask, asking)
        except asyncio.CancelledError:
            asking.cancel()
            raise
        # Also where nobody reads the reply: what is to be done then is the same, and it is done after the reply.
        return Response(status_code=204, background=BackgroundTask(self._see_off, asker, ask, asking, key, this))

    async def _see_off(
        self, asker: Asker, ask: Ask, asking: asyncio.Future[Answer], key: tuple[str, str], this: object
    ) -> None:
        """The call is over and the ask is not: withdraw it unless the plugin comes back, or it is settled meanwhile."""
        try:
            settled, _ = await asyncio.wait({asking}, timeout=self._grace)
        finally:
            asking.cancel()
        if settled:
            self._forget(key, this)
            if not asking.cancelled():
                asking.exception()  # it is told to the next call
        elif self._forget(key, this):
            with suppress(HandraiseError):
                await asker.withdraw(ask.id, reason=GONE)

    def _forget(self, key: tuple[str, str], this: object) -> bool:
        """Whether no call came after this one."""
        is_last = self._last.get(key) is this
        if is_last:
            del self._last[key]
        return is_last

    async def _settled(self, request: Request) -> Response:
        told = parse(Settled, await read_body(request.scope, request.receive))
        ask = told.asked.ask()
        answer = local_answer(ask, told.event) if told.event.get("type") in SETTLED else None
        asker: Asker = request.scope["asker"]
        try:
            await asker.withdraw(ask.id, reason=STOPPED, answer=answer)
        except AlreadyAnswered:
            asker.delivered(ask.id, error=STOPPED if answer is None else ELSEWHERE)
        except AskNotFound:
            pass  # it was settled before it was brought
        return Response(status_code=204)

    async def _delivered(self, request: Request) -> Response:
        told = parse(Delivered, await read_body(request.scope, request.receive))
        asker: Asker = request.scope["asker"]
        match told.status:
            case 200 | 204:
                error = None
            case 404:
                error = ELSEWHERE
            case None:
                error = "OpenCode did not take it"
            case status:
                error = f"OpenCode did not take it (status {status})"
        asker.delivered(told.id, error=error)
        return Response(status_code=204)


def _outcome(ask: Ask, asking: asyncio.Future[Answer]) -> Response:
    try:
        answer = asking.result()
    except asyncio.CancelledError:  # the desk closes; the ask stays open
        return Response(status_code=503, headers={"retry-after": "1"})
    except Withdrawn as withdrawn:
        # Another desk may have missed the terminal that is here.
        return Response(status_code=204 if withdrawn.ask.withdrawn_reason == GONE else 410)
    if answer.by == AGENTS_OWN:
        return Response(status_code=410)
    call = from_answer(ask, answer)
    return JSONResponse({"id": ask.id, "path": call.path, "body": call.body})


# The file ---------------------------------------------------------------------------------------------------


_HEAD = b'const DESK = { url: "", token: "" }\n'
_MARK = b"handraise uninstall opencode"


def edits(*, url: str, token: str, environ: Mapping[str, str]) -> Sequence[Edit]:
    """The plugin, in the folder from which OpenCode takes the plugins of a person.

    Wherever a plugin comes from, OpenCode 1.18.33 starts only after npm has put the plugins' own package into this
    folder. It does so by itself without plugins too, so most people have it: `node_modules`, and the package in
    `package-lock.json`. Where it is missing the next start takes some ten seconds longer, and every start takes 70
    seconds longer for as long as npm cannot reach its registry.
    """
    plugin = files(__package__).joinpath("plugin.js").read_bytes()
    desk = json.dumps({"url": url.rstrip("/"), "token": token}).encode()
    assert _HEAD in plugin
    written = plugin.replace(_HEAD, b"const DESK = " + desk + b"\n")
    path = _plugins(environ) / "handraise.js"
    return [Edit(path=path, add=partial(_add, written=written, path=path), remove=_remove, private=True)]


def _plugins(environ: Mapping[str, str]) -> Path:
    if own := environ.get("OPENCODE_CONFIG_DIR"):
        return Path(own) / "plugins"
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    config = environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else home / ".config") / "opencode" / "plugins"


def _add(before: bytes | None, *, written: bytes, path: Path) -> bytes:
    if before is not None and _MARK not in before:
        raise SettingsError(f"{path} is there already and is not handraise's; move it away and install again")
    return written


def _remove(now: bytes) -> bytes | None:
    return None if _MARK in now else now
