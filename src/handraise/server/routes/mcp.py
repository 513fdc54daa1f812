"""`/mcp`: the question tool for agents that speak MCP by HTTP. What they may ask, each in its token's name, is here."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from starlette.types import Message, Receive, Scope, Send

from handraise.asks import LONGEST_TEXT, Ask, Handling
from handraise.broker import Broker
from handraise.errors import AskNotFound, Overloaded
from handraise.mcp.translate import name_of
from handraise.server.declare import TEXT, Parameter, Raw, Tag, declare
from handraise.server.gate import require, source_of
from handraise.server.http import ExtraMissing, TooLarge, WrongMethod, hung_up, is_here, query, read_body
from handraise.server.routes import RouteGroup
from handraise.tables.raw_messages import Wires
from handraise.tables.tokens import Token
from handraise.wire import BadBody, check_values
from handraise.wire.schema import reference

if TYPE_CHECKING:
    from handraise.mcp.http import Guest, Http

__all__ = ["Mcp"]

PACKAGES = ("mcp", "mcp_types")  # what the extra brings
METHODS = ("DELETE", "GET", "POST")
MOST_REQUESTS = 5_000  # at once, streams among them; each costs a connection and some tasks
LONGEST_LIMIT = 86_400.0
ENDING = 1.0  # seconds that calls get to return `pending` when the desk stops

MCP = Tag("mcp", "The question tool for agents that speak MCP. Messages and replies are that protocol's own.")
MCP_SESSION = Parameter(
    "session", schema=TEXT, meaning="Which conversation it is; the client's own, unless said here.", key="mcp_session"
)
MCP_CWD = Parameter("cwd", schema=TEXT, meaning="The folder that the agent works in, for people to see.", key="mcp_cwd")
MCP_LIMIT = Parameter(
    "limit",
    schema={"type": "number", "minimum": 1, "maximum": 86400},
    meaning="When a question that waits returns as pending; 45, or 240 for a client that takes progress.",
    key="mcp_limit",
)
MCP_PROTOCOL_VERSION = Parameter(
    "MCP-Protocol-Version", schema=TEXT, meaning="The era: `2026-07-28`, or one before it.", place="header"
)
MCP_SESSION_ID = Parameter(
    "Mcp-Session-Id", schema=TEXT, meaning="In the older era, what the first reply told.", place="header"
)

MCP_MESSAGE = Raw(
    "McpMessage",
    {
        "type": "object",
        "properties": {
            "jsonrpc": {"const": "2.0", "type": "string"},
            "id": {"type": ["string", "integer"]},
            "method": TEXT,
            "params": {"type": "object"},
        },
        "required": ["jsonrpc", "method"],
    },
)
MCP_ERROR = Raw(
    "McpError",
    {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "jsonrpc": TEXT,
                    "error": {
                        "type": "object",
                        "properties": {"code": {"type": "integer"}, "message": TEXT},
                        "required": ["code", "message"],
                    },
                },
                "required": ["jsonrpc", "error"],
            },
            reference("BadRequest"),
        ],
    },
)
SETTINGS = (MCP_SESSION, MCP_CWD, MCP_LIMIT, MCP_PROTOCOL_VERSION, MCP_SESSION_ID)
REFUSED: Mapping[int, tuple[Raw, str]] = {
    400: (MCP_ERROR, "A setting, a message or an era that cannot be read, or no session where there has to be one."),
    404: (MCP_ERROR, "There is no such session, or it was opened with another token. Open a new one."),
    406: (MCP_ERROR, "The reply may be JSON or a stream; accept both."),
}


class Mcp:
    """The route. Use as an async context manager; leaving it, or `stop`, ends calls and withdraws nothing.

    The package is loaded with the first request: that takes a second, and few desks need it.
    """

    def __init__(self, broker: Broker, *, wires: Wires | None = None) -> None:
        """`wires` keeps what agents send and get; without it nobody does."""
        self._broker = broker
        self._wires = wires
        self._http: asyncio.Future[Http | None] | None = None  # None in it: the package is missing
        self._stopping = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self._requests = 0

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        await self._tasks.__aexit__(None, None, None)

    def stop(self) -> None:
        """Calls that wait are let go by the broker; once they have returned, sessions and streams are ended."""
        self._stopping.set()

    @declare(
        "POST /mcp",
        id="send_a_message_by_mcp",
        summary="One message of MCP, over streamable HTTP, in both eras of that protocol",
        tag=MCP,
        scope="ask",
        parameters=SETTINGS,
        body=MCP_MESSAGE,
        replies={
            200: ("text/event-stream", "Progress and the result; plain JSON where that was there at once."),
            202: (None, "A notification was taken."),
            **REFUSED,
        },
        refusals=(TooLarge, ExtraMissing, Overloaded),
    )
    @declare(
        "GET /mcp",
        id="follow_a_session_by_mcp",
        summary="What the desk tells a session beside its calls: nothing. Clients of the older era listen all the same",
        tag=MCP,
        scope="ask",
        parameters=SETTINGS,
        replies={
            200: ("text/event-stream", "Comments, to keep the connection."),
            **REFUSED,
        },
        refusals=(ExtraMissing, Overloaded),
    )
    @declare(
        "DELETE /mcp",
        id="end_a_session_by_mcp",
        summary="End a session of the older era, and withdraw what was asked in it and not taken",
        tag=MCP,
        scope="ask",
        parameters=SETTINGS,
        replies={
            200: (None, "It is over."),
            **REFUSED,
        },
        refusals=(ExtraMissing, Overloaded),
    )
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = require(scope, "ask")
        if scope["method"] not in METHODS:
            raise WrongMethod(f"this route takes {', '.join(METHODS)}", allow=", ".join(METHODS))
        settings = _settings(scope["query_string"])
        if self._requests >= MOST_REQUESTS:
            raise Overloaded(f"{MOST_REQUESTS} requests are open here already; try again later")
        if scope["method"] == "POST":
            if not _is_json(scope):
                raise BadBody("MCP is JSON; send it with `Content-Type: application/json`")
            body = await read_body(scope, receive)
            check_values(body)
            receive = _again(body, receive)
        http = await self._loaded()
        guest = _guest(token, _Door(self._broker, token, source=source_of(scope)), settings, is_here=is_here(scope))
        if self._wires is not None:
            guest.seen = self._wires.seen
        self._requests += 1
        try:
            await http.serve(scope, receive, _noticing(send, receive, guest=guest), guest=guest)
        finally:
            self._requests -= 1

    async def _loaded(self) -> Http:
        """Raises ExtraMissing, and Overloaded where the desk stops."""
        if self._http is None and not self._stopping.is_set():
            self._http = asyncio.get_running_loop().create_future()
            self._tasks.create_task(self._run(self._http))
        http = await asyncio.shield(self._http) if self._http is not None else None
        if self._stopping.is_set():
            raise Overloaded("the desk is stopping; try again in a moment")
        if http is None:
            raise ExtraMissing("this desk has no MCP; `pip install 'handraise[mcp]'` where it runs, and start it again")
        return http

    async def _run(self, loaded: asyncio.Future[Http | None]) -> None:
        try:
            kind = await asyncio.to_thread(_load)
        except Exception as problem:
            if isinstance(problem, ModuleNotFoundError) and (problem.name or "").partition(".")[0] in PACKAGES:
                loaded.set_result(None)
            else:
                loaded.set_exception(problem)
            return
        http = kind(tasks=self._tasks)
        async with http.running():
            loaded.set_result(http)
            await self._stopping.wait()
            await http.quiet(within=ENDING)


def _load() -> type[Http]:
    from handraise.mcp.http import Http

    return Http


class _Door:
    """The desk as the holder of one token sees it: only asks of its own."""

    def __init__(self, broker: Broker, token: Token, *, source: str) -> None:
        self._broker = broker
        self._token = token
        self._source = source

    async def open(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Ask:
        own = replace(ask, id=self._token.own_id(ask.id))
        opened = await self._broker.open(own, handling=handling, owner=self._token.owner, ordinal=ordinal)
        return opened.stored.ask()

    async def get(self, id: str) -> Ask:
        own, store = self._token.own_id(id), self._broker.store
        stored = await store.get(own) or (await store.newest([own])).get(own)
        if stored is None or stored.owner != self._token.owner:
            raise AskNotFound(id)
        return stored.ask()

    async def wait(self, id: str, *, timeout: float) -> Ask:
        """Without the timeout, which is for connections that may be cut: whoever waits here has a limit of its own."""
        stored = await self._broker.wait(self._token.own_id(id), timeout=math.inf)
        if stored.state == "asked":
            raise Overloaded("the desk is stopping; the ask stays open")
        return stored.ask()

    async def withdraw(self, id: str, *, reason: str | None = None) -> Ask:
        stored = await self._broker.withdraw_stored(self._token.own_id(id), reason=reason, source=self._source)
        return stored.ask()

    def delivered(self, id: str, *, error: str | None = None) -> None:
        self._broker.delivered(self._token.own_id(id), error=error)


def _settings(query_string: bytes) -> dict[str, str]:
    """What the address says beside the path, as `handraise mcp` takes it. Raises BadBody."""
    found = query(query_string, "session", "cwd", "limit")
    if "session" in found and not name_of(found["session"]):
        raise BadBody("session is a name of printable characters, 500 at most")
    if not 0 < len(found.get("cwd", "/")) <= LONGEST_TEXT:
        raise BadBody("cwd is the folder that the agent works in")
    if "limit" in found and not 1 <= _number(found["limit"]) <= LONGEST_LIMIT:  # NaN fits nowhere
        raise BadBody(f"limit is a number of seconds from 1 to {LONGEST_LIMIT:g}")
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _guest(token: Token, door: _Door, settings: dict[str, str], *, is_here: bool) -> Guest:
    from handraise.mcp.http import Guest

    return Guest(
        name=token.name,
        door=door,
        session=name_of(settings["session"]) if "session" in settings else None,
        cwd=settings.get("cwd"),
        limit=float(settings["limit"]) if "limit" in settings else None,
        machine=socket.gethostname() if is_here else None,
    )


def _is_json(scope: Scope) -> bool:
    kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    return bool(kind.partition(b";")[0].strip().lower() == b"application/json")


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, for whoever comes next."""
    bodies = [body]

    async def replayed() -> Message:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        return await receive()

    return replayed


def _noticing(send: Send, receive: Receive, *, guest: Guest) -> Send:
    """An answer counts as taken once the whole reply has gone out to a client that was still there."""

    async def noticing(message: Message) -> None:
        is_last = message["type"] == "http.response.body" and not message.get("more_body")
        is_there = is_last and not hung_up(receive)
        await send(message)
        if is_there:
            guest.taken()

    return noticing


plugin = RouteGroup(handlers=(Mcp,), hot=lambda desk: {} if desk.mcp is None else {"/mcp": desk.mcp})
