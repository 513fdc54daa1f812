"""`handraise mcp`: the question tool for an agent that speaks MCP."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from handraise.cli.calling import Url
from handraise.cli.commands import Command
from handraise.errors import SettingsError

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise install codex                  writes it into the agent's own settings
  claude mcp add desk -- handraise mcp
  handraise mcp --limit 25                 for a client that gives up after 30 seconds"""


def mcp(
    limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="When a question that waits returns as pending; 45, or 240 for a client that takes progress.",
            min=1,
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(help="Which conversation it belongs to; the agent's own, unless said otherwise."),
    ] = None,
    url: Url = None,
) -> None:
    """Give an agent the tool to ask people, as an MCP server."""
    import asyncio

    if limit is not None and not math.isfinite(limit):
        raise SettingsError("--limit takes a number of seconds")
    try:
        from handraise.mcp.stdio import serve
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise SettingsError(
            "MCP needs a package that is not installed; `pip install 'handraise[mcp]'` brings it"
        ) from None
    from handraise.mcp.translate import name_of

    if session is not None and not name_of(session):
        raise SettingsError("--session takes a name of printable characters, 500 at most")
    asyncio.run(serve(url=url, session=session, limit=limit))


plugin = Command(mcp, examples=EXAMPLES, group="ask")
