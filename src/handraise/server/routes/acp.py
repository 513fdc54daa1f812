"""`/v1/acp`: agents that speak ACP, for clients by HTTP. A message is POSTed, and what the agent says is a stream.

Nothing depends on one call staying open: a response is on the stream too, and whoever was cut sends the same once more
and joins. How the process is spoken to, and what becomes an ask, is `handraise.agents.acp.proxy`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from handraise.agents.acp import NOT_INHERITED
from handraise.agents.acp.backlog import MOST_BYTES, MOST_MESSAGES, Overrun
from handraise.agents.acp.proxy import Call, Caller, Message, Proxy, kind_of, parsed
from handraise.agents.acp.quirks import PRESETS, command_of
from handraise.asks import Answer, Ask, Origin
from handraise.asks.places import resolve
from handraise.broker import Broker
from handraise.errors import (
    AcpDiffers,
    AcpEnded,
    AcpNotFound,
    AlreadyAnswered,
    AnswerDoesNotFit,
    AskWithdrawn,
    HandraiseError,
    MessagesGone,
    Overloaded,
    ProcessFailed,
    RequestAnswered,
    RequestNotFound,
    SettingsError,
    StoreFailed,
)
from handraise.plugins import names
from handraise.server.declare import POSITION, TEXT, Parameter, Raw, Tag, declare, in_path, mount
from handraise.server.gate import source_of, token_of
from handraise.server.http import Gone, RouteNotFound, TooLarge, WrongMethod, query, read_body
from handraise.server.routes import RouteGroup
from handraise.server.routes.api import json_response
from handraise.server.stream import LAST_EVENT_ID, stream
from handraise.stores import Query
from handraise.tasks import running
from handraise.transports.bodies import until_gone
from handraise.wire import BadBody, check_values
from handraise.wire.acp import AcpServer, AcpServers
from handraise.worker import Agents, Worker

__all__ = ["Acp"]

log = logging.getLogger(__name__)

AGENT = "acp"
MOST_SERVERS = 32  # at once, the ended ones among them; each is a process and a backlog
LONGEST_ID = 200
HEARTBEAT = 15.0  # seconds of silence after which a stream says that it is there
STOPPED = "the desk was stopped"

ACP = Tag("acp", "Agents that speak ACP, for clients by HTTP: messages are JSON-RPC, as the protocol has them.")
SERVER_IN_PATH = in_path("server", meaning="What you call the agent, percent-encoded: at most 200 characters.")
ACP_AGENT = Parameter(
    "agent",
    schema=TEXT,
    meaning="With the first message: `gemini`, `qwen`, `copilot`, `claude-agent-acp`, `codex-acp`, or a name "
    "that has a `command` in the settings. Later it may be left out.",
    key="acp_agent",
)
PREFER = Parameter("Prefer", schema=TEXT, meaning="`respond-async` does not wait for the response.", place="header")
AFTER_ACP_MESSAGE = Parameter(
    "after", schema=POSITION, meaning="Read on after this message. Without it, from the start.", key="after_acp_message"
)

ACP_MESSAGE = Raw(
    "AcpMessage",
    {
        "type": "object",
        "properties": {
            "jsonrpc": {"const": "2.0", "type": "string"},
            "id": {"type": ["string", "integer"]},
            "method": TEXT,
            "params": {"type": ["object", "array"]},
            "result": {},
            "error": {"type": "object", "properties": {"code": {"type": "integer"}}, "required": ["code"]},
        },
        "required": ["jsonrpc"],
        "oneOf": [
            {"title": "A request or a notification", "required": ["method"]},
            {"title": "A result", "required": ["id", "result"], "not": {"required": ["method"]}},
            {"title": "An error", "required": ["id", "error"], "not": {"required": ["method"]}},
        ],
    },
)


@dataclass(slots=True, eq=False)
class _Server:
    """An agent under its id; `started` once there is a process."""

    id: str
    agent: str
    session: str
    created_at: int
    started: asyncio.Future[Proxy] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    task: asyncio.Task[None] | None = None

    @property
    def proxy(self) -> Proxy | None:
        is_there = self.started.done() and not self.started.cancelled() and self.started.exception() is None
        return self.started.result() if is_there else None

    def to_shape(self) -> AcpServer:
        proxy = self.proxy
        return AcpServer(
            serverId=self.id,
            agent=self.agent,
            createdAtMs=self.created_at,
            session=self.session,
            state="starting" if proxy is None else "ended" if proxy.is_over else "running",
            exitCode=None if proxy is None else proxy.exit_code,
            lastEventId=0 if proxy is None else proxy.backlog.last,
        )


class Acp:
    """The routes and the agents behind them. Use as an async context manager; leaving it ends the agents.

    Without a worker nothing is started here. `most` and `most_bytes` are what is kept of each agent's messages.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        worker: Worker | None,
        most: int = MOST_MESSAGES,
        most_bytes: int = MOST_BYTES,
        most_servers: int = MOST_SERVERS,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self._broker = broker
        self._agents = worker.agents if worker is not None else None
        self._worker = f"acp:{worker.name}" if worker is not None else ""
        self._wires = worker.wires if worker is not None else None
        self._limits = {"most": most, "most_bytes": most_bytes}
        self._most_servers = most_servers
        self._heartbeat = heartbeat
        self._servers: dict[str, _Server] = {}
        self._stopping = asyncio.Event()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        if self._worker:
            await self._retire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        servers, self._servers = self._servers, {}
        for server in servers.values():
            await self._end(server, reason=STOPPED)
        await self._tasks.__aexit__(None, None, None)

    def stop(self) -> None:
        """Streams and calls end from now on."""
        self._stopping.set()
        for server in self._servers.values():
            if server.proxy is not None:
                server.proxy.backlog.close()

    async def _retire(self) -> None:
        """The agents of a desk that was killed died with it, and nobody waits for what they had asked."""
        query = Query(state="asked", worker=self._worker)
        try:
            while left := await self._broker.store.find(query):
                for stored in left:
                    await self._broker.withdraw(stored.id, reason="the desk was started anew, and its agent is gone")
        except HandraiseError as failed:
            log.error("what agents over ACP had asked before could not be withdrawn: %s", failed)

    def routes(self) -> list[Route]:
        return mount(self)

    # Routes ---------------------------------------------------------------------------------------------------------

    @declare(
        "GET /v1/acp",
        id="list_acp_agents",
        summary="The agents that run over ACP here, and those that have ended and were not deleted",
        tag=ACP,
        scope="admin",
        replies={200: (AcpServers, "In the order in which they were started.")},
    )
    async def list(self, request: Request) -> Response:
        return json_response(AcpServers(servers=tuple(server.to_shape() for server in self._servers.values())))

    @declare(
        "POST /v1/acp/{server:path}",
        id="send_to_an_acp_agent",
        summary="Send one message: the first starts the agent. A request waits for its response, without limit; "
        "sent once more under its id it joins, as long as nobody has the response",
        tag=ACP,
        scope="admin",
        parameters=(SERVER_IN_PATH, ACP_AGENT, PREFER),
        body=ACP_MESSAGE,
        replies={
            200: (ACP_MESSAGE, "To a request: the agent's response, which the stream has too."),
            202: (
                None,
                "To a response or a notification: it was taken. To a request with `Prefer: respond-async` too.",
            ),
        },
        refusals=(
            BadBody,
            TooLarge,
            RouteNotFound,
            AcpNotFound,
            RequestNotFound,
            AcpDiffers,
            AcpEnded,
            RequestAnswered,
            AlreadyAnswered,
            AskWithdrawn,
            AnswerDoesNotFit,
            SettingsError,
            ProcessFailed,
            Overloaded,
            StoreFailed,
        ),
    )
    async def post(self, request: Request) -> Response:
        token = token_of(request.scope)
        id = _id(request.scope)
        agent = query(request.scope["query_string"], "agent").get("agent")
        message, kind = _read(await read_body(request.scope, request.receive))
        caller = Caller(token.name, source_of(request.scope))
        if kind == "response" and id not in self._servers:
            raise AcpNotFound(id)
        proxy = await self._proxy(id, agent=agent)
        if kind == "request":
            return await self._request(proxy, message, request, caller=caller)
        if kind == "notification":
            await proxy.notify(message, caller=caller)
        else:
            await proxy.respond(message, caller=caller)
        return Response(status_code=202)

    @declare(
        "GET /v1/acp/{server:path}",
        id="follow_an_acp_agent",
        summary="What the agent says, after a number or from the start: requests, notifications and responses",
        tag=ACP,
        scope="admin",
        parameters=(SERVER_IN_PATH, AFTER_ACP_MESSAGE, LAST_EVENT_ID),
        replies={
            200: ("text/event-stream", "Each frame is a `message`, with a number as `id` and JSON-RPC as `data`.")
        },
        refusals=(BadBody, RouteNotFound, AcpNotFound, MessagesGone, ProcessFailed),
    )
    async def follow(self, request: Request) -> Response:
        if request.method != "GET":  # the framework adds HEAD, for which there is nothing to tell
            raise WrongMethod("this route takes DELETE, GET, POST", allow="DELETE, GET, POST")
        asked = query(request.scope["query_string"], "after").get("after")
        proxy = await self._started(self._found(_id(request.scope)))
        after = _number(request.headers.get("last-event-id") or asked)
        if after is not None:
            proxy.backlog.check(after)
        return _Stream(proxy, after=after, heartbeat=self._heartbeat)

    @declare(
        "DELETE /v1/acp/{server:path}",
        id="end_an_acp_agent",
        summary="End the agent and withdraw what it asks. The id is free afterwards",
        tag=ACP,
        scope="admin",
        parameters=(SERVER_IN_PATH,),
        replies={204: (None, "It is told to end, and what it asked is withdrawn.")},
        refusals=(RouteNotFound, AcpNotFound),
    )
    async def delete(self, request: Request) -> Response:
        server = self._found(_id(request.scope))
        del self._servers[server.id]
        await self._end(server, reason="the agent was ended")
        return Response(status_code=204)

    async def _request(self, proxy: Proxy, message: Message, request: Request, *, caller: Caller) -> Response:
        call = await proxy.request(message, caller=caller)
        if _prefers_async(request.headers):
            proxy.taken(call)
            return Response(status_code=202, headers={"preference-applied": "respond-async"})
        await self._held(call, request)
        proxy.taken(call)
        return json_response(call.response.result())

    async def _held(self, call: Call, request: Request) -> None:
        """Until the agent has responded, however long that takes. Raises Gone, and Overloaded where the desk stops."""
        async with running(until_gone(request.receive)) as hung_up, running(self._stopping.wait()) as stopping:
            until: list[asyncio.Future[Any]] = [call.response, hung_up, stopping]
            await asyncio.wait(until, return_when=asyncio.FIRST_COMPLETED)
            if hung_up.done():
                raise Gone
            if not call.response.done():
                raise Overloaded("the desk is stopping, and the agent with it")

    # Agents ---------------------------------------------------------------------------------------------------------

    def _found(self, id: str) -> _Server:
        if id not in self._servers:
            raise AcpNotFound(id)
        return self._servers[id]

    async def _proxy(self, id: str, *, agent: str | None) -> Proxy:
        """The agent of that id, which is started if need be. Raises ProcessFailed, SettingsError, AcpDiffers."""
        server = self._servers.get(id)
        if server is None:
            server = self._begin(id, agent=agent)
        elif agent is not None and agent != server.agent:
            raise AcpDiffers(id, agent=server.agent)
        proxy = await self._started(server)
        if proxy.is_over:
            raise AcpEnded(id, agent=server.agent)
        return proxy

    async def _started(self, server: _Server) -> Proxy:
        """Raises ProcessFailed."""
        try:
            return await asyncio.shield(server.started)
        except asyncio.CancelledError:
            if server.started.cancelled():
                raise AcpNotFound(server.id) from None
            raise

    def _begin(self, id: str, *, agent: str | None) -> _Server:
        if len(id) > LONGEST_ID or not id.isprintable():
            raise BadBody(f"an id has 1 to {LONGEST_ID} printable characters")
        if agent is None:
            raise BadBody(f"nothing runs as {id!r} yet; the first message names the agent with `?agent=`")
        if self._agents is None:
            raise SettingsError("this desk starts no agents; ask one that has a worker")
        if self._stopping.is_set():
            raise Overloaded("the desk is stopping; try again in a moment")
        if len(self._servers) >= self._most_servers:
            raise Overloaded(f"{self._most_servers} agents run over ACP here already; delete one first")
        command, env = _launch(agent, self._agents)
        session = f"acp:{id}:{secrets.token_hex(4)}"
        server = _Server(id, agent, session, self._broker.clock.now())
        self._servers[id] = server
        server.task = self._tasks.create_task(self._run(server, command, {**env, "HANDRAISE_SESSION": session}))
        return server

    async def _run(self, server: _Server, command: tuple[str, ...], env: Mapping[str, str]) -> None:
        """One agent from its start to its end. What goes wrong with it hurts no other."""
        try:
            proxy = await self._start(server, command, env)
        except asyncio.CancelledError:  # it was deleted
            server.started.cancel()
            return
        except Exception as failed:
            if not isinstance(failed, HandraiseError):
                log.exception("the agent over ACP of %s could not be started", server.session)
            if self._servers.get(server.id) is server:
                del self._servers[server.id]
            server.started.set_exception(failed)
            server.started.exception()  # whoever waited may be gone
            return
        server.started.set_result(proxy)
        try:
            await proxy.run()
        except Exception:
            log.exception("the agent over ACP of %s broke", server.session)
            await proxy.end(reason="handraise broke here; the log of the desk says why")

    async def _start(self, server: _Server, command: tuple[str, ...], env: Mapping[str, str]) -> Proxy:
        origin = Origin(agent=AGENT, session=server.session, machine=socket.gethostname())
        await self._broker.sessions.mention(origin, at=server.created_at)
        door = _Door(self._broker, worker=self._worker)
        listener = self._wires.of(server.session) if self._wires is not None else None
        return await Proxy.start(command, env=env, desk=door, session=server.session, listener=listener, **self._limits)

    async def _end(self, server: _Server, *, reason: str) -> None:
        """What it asked is withdrawn when this returns. That nothing of it is left, nobody need wait for."""
        proxy = server.proxy
        if proxy is None:
            if server.task is not None and not server.started.done():
                server.task.cancel()
            return
        await proxy.end(reason=reason)
        self._tasks.create_task(proxy.close())


class _Stream(Response):
    """What the agent says, as server-sent events."""

    def __init__(self, proxy: Proxy, *, after: int | None, heartbeat: float) -> None:
        super().__init__()
        self._proxy = proxy
        self._after = after
        self._heartbeat = heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(Overrun):  # the connection is closed without its end, so that the reader knows to come back
            await stream(self._frames(), receive, send)

    async def _frames(self) -> AsyncIterator[bytes]:
        backlog = self._proxy.backlog
        is_whole = self._after is None
        after = backlog.gone if self._after is None else self._after
        yield b"retry: 1000\n\n"
        if is_whole and after:
            told = {"jsonrpc": "2.0", "method": "_adapter/messages_gone", "params": {"through": after}}
            yield b"event: message\ndata: %s\n\n" % to_json(told)
        async for page in backlog.read(after=after, held=is_whole, silence=self._heartbeat):
            yield b"".join(b"id: %d\nevent: message\ndata: %s\n\n" % each for each in page)


class _Door:
    """The desk as the proxy sees it."""

    def __init__(self, broker: Broker, *, worker: str) -> None:
        self._broker = broker
        self._worker = worker

    async def open(self, ask: Ask) -> Ask:
        return (await self._broker.open(await resolve(ask), worker=self._worker)).stored.ask()

    async def wait(self, id: str) -> Ask:
        return (await self._broker.wait(id)).ask()

    async def settle(self, id: str, answer: Answer, *, again: bool, source: str) -> None:
        await self._broker.answer_stored(id, answer, allow_repeat=again, source=source)

    async def withdraw(self, id: str, *, reason: str) -> None:
        await self._broker.withdraw(id, reason=reason)

    def delivered(self, id: str, *, error: str | None = None) -> None:
        self._broker.delivered(id, error=error)


def _launch(name: str, agents: Agents) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """What to run for an agent of that name, and in which environment. Raises SettingsError."""
    if name in names("agents") and name != AGENT:
        raise SettingsError(f"agent: {name} is driven in its own way; start it with `POST /v1/sessions`")
    settings = agents.settings(name)
    command = settings.command or ((name,) if name in PRESETS else ())
    if not command:
        raise SettingsError(
            f"agent: no program that speaks ACP is known as {name[:100]!r}; there are {', '.join(PRESETS)}, and those "
            "with a `command` of their own in handraise.toml, as in `[agents.acp]`"
        )
    return command_of(command), settings.environment(without=NOT_INHERITED)


def _read(body: bytes) -> tuple[Message, str]:
    """The message and what kind it is. Raises BadBody."""
    check_values(body)
    try:
        message = parsed(body)
        return message, kind_of(message)
    except ValueError as problem:
        raise BadBody(f"the body cannot be read: {problem}") from None


def _id(scope: Scope) -> str:
    """What follows `/v1/acp` in the raw path. Raw, so that an id may hold any character."""
    parts = scope["raw_path"].decode("utf-8", "replace").split("/")[3:]
    id = unquote(parts[0]) if len(parts) == 1 else ""
    if not id:
        raise RouteNotFound("there is no such route; `/openapi.json` lists them")
    return id


def _number(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadBody("after (or Last-Event-ID) is the id of a message: a whole number")
    return int(text)


def _prefers_async(headers: Mapping[str, str]) -> bool:
    wanted = headers.get("prefer", "")
    return any(each.strip().lower() == "respond-async" for each in wanted.replace(";", ",").split(","))


plugin = RouteGroup(handlers=(Acp,), routes=lambda desk: () if desk.acp is None else desk.acp.routes())
