"""`handraise channels`: the places where people are reached, and a test of each."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handraise.cli.calling import Json, Url, call
from handraise.cli.commands import Command
from handraise.cli.printing import print_json, table
from handraise.text.inert import inert
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

LIST = """\b
Examples:
  handraise channels
  handraise channels --json | jq -r 'select(.state == "broken") | .trouble'
  handraise channels test notify          ask a question there, and say how it comes back"""
TEST = """\b
Examples:
  handraise channels test notify
  handraise channels test linear ENG-42   in a channel that has to be told where
  handraise channels test notify --timeout 20 --json

\b
The question is a real one: every channel shows it, and whoever is faster answers it.

\b
Exit codes: 0 answered, 1 it could not be sent, 3 nobody answered in time, 4 rejected."""
HOW = """\
No channel is configured. In {file}, say:

  [channels.notify]
  urls = ["ntfys://ntfy.sh/a-topic-that-nobody-guesses"]

and start the desk again."""


channels = typer.Typer(
    help="Say how each channel is, and test one.",
    epilog=LIST,
    invoke_without_command=True,
    rich_markup_mode=None,
)


@channels.callback()
def list_(context: typer.Context, as_json: Json = False, url: Url = None) -> None:
    """Say how each channel is, and test one."""
    if context.invoked_subcommand is not None:
        return
    found = call(_channels, url=url)
    if as_json:
        for told in found:
            print_json(told)
    else:
        for line in _shown(found) if found else _how_to():
            print(line)


@channels.command("test", epilog=TEST)
def try_out(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which channel.")],
    where: Annotated[
        str, typer.Argument(metavar="WHERE", help="Where in it, such as an issue of Linear.", show_default=False)
    ] = "",
    timeout: Annotated[float, typer.Option(min=1, max=600, help="Seconds to wait for somebody.")] = 120,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Ask a question that the channel shows, and say how it comes back."""
    from handraise.cli.channel_testing import ChannelTest

    call(lambda client: ChannelTest(client, name, as_json=as_json).run(where, timeout=timeout), url=url)


async def _channels(client: Client) -> list[dict[str, Any]]:
    return [to_plain(channel) for channel in await client.channels.list()]


# The list ---------------------------------------------------------------------------------------------------


def _shown(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """One line a channel. Why one does not run stands below."""
    rows = [
        [inert(cell, keep="") for cell in (told["name"], told["kind"], told["state"], _can(told["reach"]))]
        for told in found
    ]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    yield from (line.rstrip() for line in table(["NAME", "KIND", "STATE", "CAN"], rows, columns=columns))
    for told in found:
        if told["trouble"]:
            yield inert(f"{told['name']}: {told['trouble']}", keep="")


def _can(reach: dict[str, Any] | None) -> str:
    """What people can do there, in words."""
    if reach is None:
        return ""
    choices = f"{reach['options']} choices" if reach["options"] else "choices as text"
    if not reach["options"] and not reach["text"]:
        choices = "tells people, who answer elsewhere"
    words = {
        choices + (", several at once" if reach["multiple"] else ""): True,
        "own words": reach["text"],
        "says how it ended": reach["edits"],
        "starts agents": reach["starts_agents"],
        "sure who answers": reach["identity"] == "strong",
        "not sure who answers": reach["identity"] != "strong",
    }
    return ", ".join(word for word, is_so in words.items() if is_so)


def _how_to() -> Iterator[str]:
    from handraise.config import load

    yield HOW.format(file=inert(str(load().user), keep=""))


plugin = Command(channels, group="desk")
