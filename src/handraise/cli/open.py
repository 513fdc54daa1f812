"""`handraise open`: a one-time link that signs a browser in."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.calling import Url, call
from handraise.cli.shown import say
from handraise.inert import inert

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["add_to"]

EXAMPLES = """\b
Examples:
  handraise open
  handraise open --print"""


def add_to(app: typer.Typer) -> None:
    @app.command("open", epilog=EXAMPLES)
    def open_(
        only_print: Annotated[bool, typer.Option("--print", help="Print the link and start no browser.")] = False,
        url: Url = None,
    ) -> None:
        """Sign a browser in.

        Prints a link that works once, within 15 minutes, and opens it."""

        async def link(client: Client) -> str:
            return str((await client.call("POST", "/v1/signin", body={}))["url"])

        found = call(link, url=url)
        print(inert(found, keep=""), flush=True)
        if not only_print and _has_screen():
            import webbrowser

            if not webbrowser.open(found):
                say("handraise: no browser could be started; open the link yourself")


def _has_screen() -> bool:
    """Whether a browser would open in front of this person, rather than in their terminal or far away."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
