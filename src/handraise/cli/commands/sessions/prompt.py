"""`handraise sessions prompt`: tell a session something, and follow it to the end of that turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.calling import Json, SessionId, Url, call, find_session
from handraise.cli.commands import Command
from handraise.cli.printing import print_json, say
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise sessions prompt ses_5d41 "And a test for it"
  handraise sessions prompt ses_5d41 "Then deploy" --detach     say it and leave

\b
A session that works already does this afterwards. Everything else is as with
`handraise start`, also the exit codes."""


def prompt(
    id: SessionId,
    text: Annotated[str, typer.Argument(metavar="PROMPT", help="What it is to do.")],
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end of the turn.")] = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Tell a session something, and answer what it asks."""
    call(lambda client: _prompt(client, id, text, detach=detach, as_json=as_json), url=url)


async def _prompt(client: Client, id: str, text: str, *, detach: bool, as_json: bool) -> None:
    from handraise.cli.following import Followed, newest_message

    session = await find_session(client, id)
    after = await newest_message(client, session.id)
    session = await client.sessions.prompt(session.id, text)
    if not detach:
        await Followed(client, session, prompt=text, after=after, as_json=as_json).follow()
    elif as_json:
        print_json(to_plain(session))
    else:
        say(f"handraise: session {session.id} was told")


plugin = Command(prompt, examples=EXAMPLES)
