"""`handraise sessions`: the conversations with agents, or one of them with what was said."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.calling import Json, Url, call, complete_session, find_session
from handraise.cli.commands import DEFAULT, Command, WithDefault
from handraise.cli.commands.sessions import abort, attach, close, prompt
from handraise.cli.printing import command, duration, print_json, say, table
from handraise.text.inert import inert
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.client import Client
    from handraise.wire.sessions import Session

__all__ = ["plugin"]

SAYS = {"person": "you", "tool": "·", "notice": "handraise"}

EXAMPLES = """\b
Examples:
  handraise sessions
  handraise sessions ses_5d41             what was said in it
  handraise sessions --json | jq -r 'select(.state == "waiting") | .id'"""


def list_(
    id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="Show this one; its beginning or end will do.", autocompletion=complete_session
        ),
    ] = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """List the sessions of agents, or show what was said in one."""
    if id is not None:
        call(lambda client: _show(client, id, as_json=as_json), url=url)
    else:
        call(lambda client: _list(client, as_json=as_json), url=url)


async def _list(client: Client, *, as_json: bool) -> None:
    listed = await client.sessions.list()
    if as_json:
        for session in listed:
            print_json(to_plain(session))
        return
    if not listed:
        print("There are no sessions.")
        return
    on_terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns if on_terminal else None
    heads = ["ID", "STATE", "AGENT", "AGE", "ASKS", "WHERE"]
    for line in table(heads, [_row(session) for session in listed], columns=columns):
        print(line)
    if on_terminal:
        say("")
        say(f"See one: {command('sessions')} ID · go on with one: {command('sessions', 'prompt')} ID PROMPT")


def _row(session: Session) -> list[str]:
    age = (datetime.now(UTC) - datetime.fromisoformat(session.created_at)).total_seconds()
    state = session.state if session.managed else f"{session.state} (not ours)"
    asks = str(session.open_asks or "")
    cells = [session.id, state, session.agent, duration(age), asks, session.cwd or ""]
    return [inert(cell, keep="") for cell in cells]


async def _show(client: Client, id: str, *, as_json: bool) -> None:
    from handraise.cli.following import messages_of

    session = await find_session(client, id)
    said = [message async for message in messages_of(client, session.id)]
    if as_json:
        print_json({**to_plain(session), "messages": to_plain(said)})
        return
    facts = [session.state, session.agent, session.mode, session.cwd, session.machine]
    print(inert(session.id, keep=""))
    print(inert(" · ".join(filter(None, facts)), keep=""))
    if session.error:
        print(inert(session.error, keep=""))
    for message in said:
        who = SAYS.get(message.role, session.agent)
        print(f"\n{inert(who, keep='')}: {inert(message.text)}")
    if session.open_asks:
        say("")
        say(f"{session.open_asks} waiting for you: {command('asks')}")


sessions = typer.Typer(
    cls=WithDefault,
    help="List the sessions of agents, show one, or steer one.",
    epilog=EXAMPLES,
    rich_markup_mode=None,
)
Command(list_, examples=EXAMPLES).add_to(sessions, DEFAULT, hidden=True)
prompt.plugin.add_to(sessions, "prompt")
abort.plugin.add_to(sessions, "abort")
close.plugin.add_to(sessions, "close")
attach.plugin.add_to(sessions, "attach")
plugin = Command(sessions, group="agents")
