"""The tools by HTTP, for many agents at once: the official package's sessions, and whose tools a call means.

Who calls, and whether they may, was found out before. In the older era a client opens a session, and that session is
the agent; in the one of 2026-07-28 each request stands alone, and the token with the client's name is the agent. Both
name their conversation after token and client, so that the same question joins when a session had to be opened anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import Message, Receive, Scope, Send

from handraise.agents import Wire
from handraise.mcp.server import caller_of, client_of, make_server
from handraise.mcp.tools import Door, Place, Result, Tools

__all__ = ["Guest", "Http"]

IDLE = 3600.0  # seconds a session may be silent; a call that waits, or an open stream, is no silence
MOST_SESSIONS = 2_000  # most clients never say that they end, so that many may lie about for an hour
MOST_CALLS = 2_000  # under way at once; in the older era one goes on after its connection was cut
LONGEST_CLIENT = 100  # characters of a client's name that go into the name of a conversation
GUEST = "handraise.guest"  # where a request's scope has its Guest


@dataclass(slots=True, kw_only=True)
class Guest:
    """Who makes one request of HTTP. Whoever serves it says `taken` when the reply has gone out."""

    name: str  # of the token
    door: Door
    session: str | None = None  # of these three: what the address says
    cwd: str | None = None
    limit: float | None = None
    machine: str | None = None  # where the caller is, if that is known
    seen: Callable[[str, Wire], None] = lambda session, wire: None  # what is said in a session, for people to look at
    _answer: tuple[Tools, str] | None = field(default=None, init=False)

    def expect(self, tools: Tools, *, ask: str) -> None:
        """The reply will hold the answer of this ask."""
        self._answer = tools, ask

    def taken(self) -> None:
        if self._answer is not None:
            tools, ask = self._answer
            tools.taken(ask)

    def conversation(self, client: str) -> str:
        shown = "".join(filter(str.isprintable, client))[:LONGEST_CLIENT].strip()
        return f"mcp:{self.name}:{shown}" if shown else f"mcp:{self.name}"

    def place(self, conversation: str) -> Place:
        return Place(
            otherwise=conversation,
            session=self.session,
            cwd=self.cwd,
            machine=self.machine,
            limit=self.limit,
            is_shared=True,
        )


@dataclass(slots=True, kw_only=True)
class _Agent:
    """The tools of one session, or of one request that has none."""

    tools: Tools
    conversation: str
    calls: int = 0  # that are under way
    called_at: float = 0.0  # the last one, on the loop's clock


class Http:
    """Use `running` around all requests."""

    def __init__(self, *, tasks: asyncio.TaskGroup) -> None:
        """`tasks` outlives every request."""
        self._tasks = tasks
        self._manager = StreamableHTTPSessionManager(
            make_server(self._call), session_idle_timeout=IDLE, max_sessions=MOST_SESSIONS
        )
        # By the id of their session, the one that called last at the end. The package does not say when a session has
        # ended by silence, so those are forgotten that have not called for as long.
        self._agents: dict[str, _Agent] = {}
        self._calls = 0
        self._posts = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Leaving it ends sessions and streams, and withdraws nothing."""
        async with self._manager.run():
            yield

    async def quiet(self, *, within: float) -> None:
        """Return once no call is under way, or after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._quiet.wait()

    async def serve(self, scope: Scope, receive: Receive, send: Send, *, guest: Guest) -> None:
        """One request. The DELETE of a session withdraws what was asked in it and not taken."""
        # A session is for whoever opened it: the package compares what it finds under `user`.
        user = AuthenticatedUser(AccessToken(token="", client_id=guest.name, scopes=[]))
        status = 500

        async def telling(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._counted(is_post=scope["method"] == "POST"):
            await self._manager.handle_request({**scope, "user": user, GUEST: guest}, receive, telling)
        if scope["method"] == "DELETE" and status < 400:
            agent = self._agents.pop(_session_of(scope) or "", None)
            if agent is not None:
                await agent.tools.leave()

    @contextmanager
    def _counted(self, *, is_post: bool) -> Iterator[None]:
        self._posts += is_post
        if self._posts:
            self._quiet.clear()
        try:
            yield
        finally:
            self._posts -= is_post
            if not self._posts:
                self._quiet.set()

    async def _call(self, context: ServerRequestContext[Any], name: str, arguments: Mapping[str, Any]) -> Result:
        assert context.request is not None
        scope: Scope = context.request.scope
        guest: Guest = scope[GUEST]
        session = _session_of(scope) if context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS else None
        agent = self._agent(session, guest=guest, client=client_of(context))
        caller = caller_of(context, place=guest.place(agent.conversation))
        if self._calls >= MOST_CALLS:
            return Result((f"The desk has {MOST_CALLS} calls under way already. Try again in a while.",), is_error=True)
        self._calls += 1
        agent.calls += 1
        conversation = caller.origin.session
        guest.seen(conversation, Wire(way="in", body={"name": name, "arguments": arguments}, name="tools/call"))
        try:
            result = await agent.tools.call(name, arguments, caller=caller)
        finally:
            self._calls -= 1
            agent.calls -= 1
        told = {"content": result.texts, "isError": result.is_error}
        guest.seen(conversation, Wire(way="out", body=told, name="tools/call", ask=result.ask))
        if result.ask is not None:
            guest.expect(agent.tools, ask=result.ask)
        return result

    def _agent(self, session: str | None, *, guest: Guest, client: str) -> _Agent:
        if session is None:
            return _Agent(tools=Tools(guest.door, tasks=self._tasks), conversation=guest.conversation(client))
        now = asyncio.get_running_loop().time()
        agent = self._agents.pop(session, None)
        if agent is None:
            self._forget(before=now - IDLE)
            agent = _Agent(
                tools=Tools(guest.door, tasks=self._tasks), conversation=self._free(guest.conversation(client))
            )
        agent.called_at = now
        self._agents[session] = agent
        return agent

    def _forget(self, *, before: float) -> None:
        """Those that called last before that time, and at least so many that another one finds room."""
        idle = [id for id, agent in self._agents.items() if not agent.calls]
        for at, id in enumerate(idle):
            if self._agents[id].called_at < before or at <= len(idle) - MOST_SESSIONS:
                del self._agents[id]

    def _free(self, conversation: str) -> str:
        """The name, with a number where another session has it."""
        taken = {agent.conversation for agent in self._agents.values()}
        names = (conversation, *(f"{conversation}:{number}" for number in range(2, len(taken) + 2)))
        return next(name for name in names if name not in taken)


def _session_of(scope: Scope) -> str | None:
    wanted = MCP_SESSION_ID_HEADER.encode()
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), None)
