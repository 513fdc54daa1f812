"""`handraise open`: a one-time link that signs a browser in."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.calling import Url, call
from handraise.cli.commands import Command
from handraise.cli.printing import say
from handraise.text.inert import inert

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise open
  handraise open --print
  handraise open --print --at desk.example.org
  handraise open --print --at https://desk.example.org"""


def open_(
    only_print: Annotated[bool, typer.Option("--print", help="Print the link and start no browser.")] = False,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Host name, or whole address, under which that browser reaches the desk, as from a phone.",
        ),
    ] = None,
    url: Url = None,
) -> None:
    """Sign a browser in.

    Prints a link that works once, within 15 minutes, and opens it."""

    async def link(client: Client) -> str:
        return await client.tokens.sign_in()

    found = call(link, url=url)
    if at is not None:
        found = _moved(found, at)
    print(inert(found, keep=""), flush=True)
    if not only_print and _has_screen():
        import webbrowser

        if not webbrowser.open(found):
            say("handraise: no browser could be started; open the link yourself")


def _moved(link: str, at: str) -> str:
    """The link at another name of the same desk: a bare name keeps scheme and port. Raises SettingsError."""
    from urllib.parse import urlsplit

    from handraise.config import parse_addresses

    there = urlsplit(link)
    if "://" not in at:
        is_bare = ":" not in at.rpartition("]")[2]
        at = f"{there.scheme}://{at}" + (f":{there.port}" if there.port and is_bare else "")
    (address,) = parse_addresses([at], name="--at")
    return address + there.path


def _has_screen() -> bool:
    """Whether a browser would open in front of this person, rather than in their terminal or far away."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


plugin = Command(open_, examples=EXAMPLES, group="answer")
