"""The tools on standard input and output, by the official package `mcp`, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from handraise.client import Client
from handraise.config import load
from handraise.mcp.tools import Caller, Result, Tools
from handraise.mcp.translate import TOOLS

__all__ = ["serve"]

INSTRUCTIONS = (
    "The tool `question` reaches the people you work for, wherever they are. Use it whenever a decision is theirs, "
    "instead of guessing and instead of asking in your reply. While it is pending, call `question_result`."
)
# What agents send when they end: Claude Code goes from SIGINT to SIGKILL within half a second.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def serve(*, url: str | None = None, session: str | None = None, limit: float | None = None) -> None:
    """Serve until standard input ends. A signal ends the whole process, once the desk was told."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(url, settings=load()))
        start = secrets.token_hex(4)
        # Read anew for each ask, so that a policy that was changed counts at once.
        tools = Tools(client, session=session, start=start, handling=lambda: load().handling, limit=limit)
        await stack.enter_async_context(tools)
        async with asyncio.TaskGroup() as tasks:
            leaving = tasks.create_task(_leave_on_signal(stack))
            async with stdio_server() as (incoming, outgoing):
                wire = _Wire(outgoing, tools=tools)
                server = _server(tools, wire)
                await server.run(incoming, wire, server.create_initialization_options())
            leaving.cancel()


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


def _server(tools: Tools, wire: _Wire) -> Server[Any]:
    # The low-level server rather than MCPServer: what is wrong with the arguments is said in our words, question by
    # question, and a result may hold more than one text.
    listed = [types.Tool.model_validate(tool) for tool in TOOLS]
    names = {tool.name for tool in listed}

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if params.name not in names:
            unknown = f"There is no tool {params.name[:100]!r}; there are: {', '.join(sorted(names))}."
            return _to_wire(Result((unknown,), is_error=True))
        result = await tools.call(params.name, params.arguments or {}, caller=_caller(context))
        if result.ask is not None:
            wire.expect(context.request_id, ask=result.ask)
        return _to_wire(result)

    return Server(
        "handraise",
        version=version("handraise"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _to_wire(result: Result) -> types.CallToolResult:
    # No structured content: clients that know it show it to the model in place of the texts.
    texts: list[Any] = [types.TextContent(text=text) for text in result.texts]
    return types.CallToolResult(content=texts, is_error=result.is_error)


def _caller(context: ServerRequestContext[Any]) -> Caller:
    client = context.session.client_params
    meta: Mapping[str, Any] = dict(context.meta or {})

    async def progress(told: float, message: str) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the client has gone; that is told too
            await context.session.report_progress(told, None, message)

    return Caller(
        name=client.client_info.name if client is not None else "",
        meta=meta,
        wants_progress=meta.get("progress_token") is not None or meta.get("progressToken") is not None,
        progress=progress,
    )
