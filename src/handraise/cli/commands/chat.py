"""`handraise chat`: talk with a model, and answer what it asks."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from handraise.cli.calling import Full, Url, complete_chat, find_chat, settings_here, wants_full
from handraise.cli.commands import Command
from handraise.cli.printing import command, duration, print_json, say, table
from handraise.errors import SettingsError
from handraise.text.inert import inert

if TYPE_CHECKING:
    from handraise.client import Client
    from handraise.config import Settings

__all__ = ["plugin"]

FAILED = 1
STDIN = "-"

EXAMPLES = """\b
Examples:
  handraise chat                                     type, and read the replies; Ctrl+D leaves
  handraise chat "Which database for a small shop?"  one message, one reply
  git diff | handraise chat -                        the message is what is piped in
  handraise chat --continue                          go on with the newest chat
  handraise chat --continue chat_5d41 "And backups?" one more message in that one
  handraise chat --list
  handraise chat --json "Hello" | jq -r '.blocks[] | select(.type == "content") | .content'

\b
While a reply is written Ctrl+C stops it. At the prompt Ctrl+C drops what was typed, and twice
it leaves; Alt+Enter or Ctrl+J is a new line. What the model asks is answered as with
`handraise watch`. It uses the desk that runs, or is one itself for as long as it takes.
Exit codes: 0 done, 1 the reply failed or was stopped, 2 usage, 3 a question of the model waits
and nobody is here to answer it, 5 no desk was reached."""


class _Command(TyperCommand):
    """`--continue` may stand without an id; what is parsed then has an empty one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if ctx.resilient_parsing else _with_empty_id(args))


def _with_empty_id(args: list[str]) -> list[str]:
    end = args.index("--") if "--" in args else len(args)
    return [
        "--continue=" if word == "--continue" and at < end and "".join(args[at + 1 : at + 2])[:1] in ("", "-") else word
        for at, word in enumerate(args)
    ]


def chat(
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="Say this and leave after the reply; - reads the input.")
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--continue",
            metavar="[ID]",
            help="Go on with this chat, its beginning or end will do; without an id, with the newest.",
            autocompletion=complete_chat,
            show_default=False,
        ),
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Begin a new chat; so it is without --continue.")] = False,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="A model of your config.toml, for a new chat.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the chats, those that changed last first.")] = False,
    full: Full = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, a whole message or chat a line; never prompt.")
    ] = False,
    url: Url = None,
) -> None:
    """Talk with a model, and answer what it asks."""
    import asyncio

    by_hand = not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    if id is not None and (new or model is not None):
        raise SettingsError(f"a chat that goes on keeps what it has; leave {'--new' if new else '--model'} out")
    said = None if listed else _message(text, may_type=by_hand or (as_json and id is not None))
    settings = settings_here()
    if url is not None:
        settings = replace(settings, url=url)
    asyncio.run(
        _chat(settings, said, id=id, model=model, listed=listed, by_hand=by_hand, full=wants_full(full), json=as_json)
    )


def _message(text: str | None, *, may_type: bool) -> str | None:
    """What is to be said; None where somebody will type it, or nothing has to be said."""
    if text is None:
        if not may_type:
            raise SettingsError("nobody is here to type; give the text, or - to read it from the input")
        return None
    said = sys.stdin.buffer.read().decode(errors="replace") if text == STDIN else text
    if not said.strip():
        raise SettingsError("there is nothing in the message; say something")
    return said.rstrip("\n") if text == STDIN else said


async def _chat(
    settings: Settings,
    text: str | None,
    *,
    id: str | None,
    model: str | None,
    listed: bool,
    by_hand: bool,
    full: bool,
    json: bool,
) -> None:
    import asyncio

    from handraise.cli.following import first_of, stop
    from handraise.cli.running import desk_for
    from handraise.client import Client

    async with desk_for(settings) as own, Client(own.url if own is not None else None, settings=settings) as client:
        known = await client.call("GET", "/v1/chats")
        if listed:
            _list(known["chats"], as_json=json)
            return
        told = None if id is None else await _found(client, id, known=known["chats"])
        chosen = told["model"] if told is not None else _model(known, model, settings=settings, is_own=own is not None)
        if by_hand:
            from handraise.cli.chat_talk import Talk

            talk = Talk(client, model=chosen, full=full).run(told, text=text)
        else:
            from handraise.cli.chat_once import talk_once

            page = client.url if own is None else None
            talk = talk_once(client, told, text, model=chosen, as_json=json, page=page)
        talking = asyncio.create_task(talk)
        try:
            await first_of(talking, *([] if own is None else [own.serving]))
            if not talking.done():
                say(f"handraise has left; what was said is kept: {command('chat', '--list')}")
                raise typer.Exit(FAILED)
            talking.result()
        finally:
            await stop(talking)


# Which chat -------------------------------------------------------------------------------------------------


async def _found(client: Client, id: str, *, known: list[dict[str, Any]]) -> dict[str, Any]:
    """The chat with its messages; without an id, the newest."""
    if id:
        return await find_chat(client, id)
    if not known:
        raise SettingsError("there is no chat to go on with; leave --continue out")
    return await find_chat(client, known[0]["id"])


def _model(known: dict[str, Any], wanted: str | None, *, settings: Settings, is_own: bool) -> str:
    """What a new chat is with. Raises SettingsError that says what to write where."""
    names = [model["name"] for model in known["models"]]
    if not names:
        file = str(settings.user) if settings.url is None else "the config.toml of the desk"
        then = "" if is_own else ", then start the desk again"
        raise SettingsError(
            f'no model is configured; write [models.local] with api = "openai", model = "NAME" and '
            f'url = "http://127.0.0.1:11434/v1" into {file}{then}'
        )
    if wanted is not None and wanted not in names:
        raise SettingsError(f"there is no model {wanted!r}; there are: {', '.join(names)}")
    return str(wanted or known["model"])


def _list(chats: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        for chat in chats:
            print_json(chat)
        return
    if not chats:
        print("There are no chats.")
        return
    on_terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns if on_terminal else None
    for line in table(["ID", "STATE", "MODEL", "AGE", "TITLE"], [_row(chat) for chat in chats], columns=columns):
        print(line)
    if on_terminal:
        say("")
        say(f"Go on with one: {command('chat', '--continue')} ID")


def _row(chat: dict[str, Any]) -> list[str]:
    age = (datetime.now(UTC) - datetime.fromisoformat(chat["updated_at"])).total_seconds()
    return [inert(cell, keep="") for cell in (chat["id"], chat["state"], chat["model"], duration(age), chat["title"])]


plugin = Command(chat, examples=EXAMPLES, group="ask", cls=_Command)
