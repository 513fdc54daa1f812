"""The tools on standard input and output, for the one agent that started us."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from handraise.client import Client
from handraise.config import load, warn_of_untrusted
from handraise.mcp.lease import Leased
from handraise.mcp.server import caller_of, make_server
from handraise.mcp.tools import Place, Result, Tools

__all__ = ["serve"]

# What agents send when they end: Claude Code goes from SIGINT to SIGKILL within half a second.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def serve(*, url: str | None = None, session: str | None = None, limit: float | None = None) -> None:
    """Serve until standard input ends, then withdraw what nobody took.

    A signal ends the whole process, once the desk was told.
    """
    place = Place(
        otherwise=f"mcp:{secrets.token_hex(4)}",
        session=session,
        cwd=str(Path.cwd()),
        machine=socket.gethostname(),
        limit=limit,
    )
    settings = load()
    warn_of_untrusted(settings)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(url, settings=settings))
        leased = Leased(client)
        tools = Tools(
            leased,
            tasks=await stack.enter_async_context(asyncio.TaskGroup()),
            handling=lambda: load().handling,  # read for each ask: what was changed counts at once
            reach=partial(client.call, "GET", "/healthz"),  # a desk that was reached is waited for from then on
        )
        stack.push_async_callback(tools.leave)
        async with asyncio.TaskGroup() as tasks:
            leaving = tasks.create_task(_leave_on_signal(stack))
            keeping = tasks.create_task(leased.keep())
            async with stdio_server() as (incoming, outgoing):
                wire = _Wire(outgoing, tools=tools)

                async def call(context: ServerRequestContext[Any], name: str, arguments: Mapping[str, Any]) -> Result:
                    result = await tools.call(name, arguments, caller=caller_of(context, place=place))
                    if result.ask is not None:
                        wire.expect(context.request_id, ask=result.ask)
                    return result

                server = make_server(call)
                await server.run(incoming, wire, server.create_initialization_options())
            leaving.cancel()
            keeping.cancel()


async def _leave_on_signal(stack: AsyncExitStack) -> None:
    """Ends the process itself: the thread that reads standard input cannot be stopped."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in SIGNALS:
        loop.add_signal_handler(each, signalled.set)
    await signalled.wait()
    await stack.aclose()
    os._exit(0)


class _Wire:
    """What goes out. Once the result of a call is on its way, the tools hear that it was taken."""

    def __init__(self, outgoing: Any, *, tools: Tools) -> None:
        self._outgoing = outgoing
        self._tools = tools
        self._results: dict[types.RequestId, str] = {}

    def expect(self, request: types.RequestId | None, *, ask: str) -> None:
        """The result of this request will be the answer of an ask. One that was cancelled never goes out."""
        if request is not None:
            self._results[request] = ask

    async def send(self, item: SessionMessage, /) -> None:
        await self._outgoing.send(item)
        message = item.message
        if isinstance(message, types.JSONRPCResponse) and (ask := self._results.pop(message.id, None)) is not None:
            self._tools.taken(ask)

    async def aclose(self) -> None:
        await self._outgoing.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        await self.aclose()
        return None
