"""The tools as the official package `mcp` serves them, in both eras of the protocol. Wires are not known here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from handraise.mcp.tools import Caller, Place, Result
from handraise.mcp.translate import TOOLS

__all__ = ["caller_of", "client_of", "make_server"]

INSTRUCTIONS = (
    "The tool `question` reaches the people you work for, wherever they are. Use it whenever a decision is theirs, "
    "instead of guessing and instead of asking in your reply. While it is pending, call `question_result`."
)

Call = Callable[[ServerRequestContext[Any], str, Mapping[str, Any]], Awaitable[Result]]


def make_server(call: Call) -> Server[Any]:
    """`call` gets the name and the arguments of a call of one of our tools."""
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
        return _to_wire(await call(context, params.name, params.arguments or {}))

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


def client_of(context: ServerRequestContext[Any]) -> str:
    """What the client calls itself."""
    client = context.session.client_params
    return client.client_info.name if client is not None else ""


def caller_of(context: ServerRequestContext[Any], *, place: Place) -> Caller:
    """Who made this call, and from where."""
    meta: Mapping[str, Any] = dict(context.meta or {})

    async def progress(told: float, message: str) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the client has gone; that is told too
            await context.session.report_progress(told, None, message)

    return Caller(
        name=client_of(context),
        place=place,
        meta=meta,
        wants_progress=meta.get("progress_token") is not None or meta.get("progressToken") is not None,
        progress=progress,
    )
