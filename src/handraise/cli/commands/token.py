"""`handraise token`: who may do what at the desk."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handraise.cli.calling import Json, Url, call_or_open
from handraise.cli.commands import Command
from handraise.cli.printing import print_json
from handraise.errors import HandraiseError
from handraise.text.inert import inert
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.broker import Broker
    from handraise.client import Client
    from handraise.tables.tokens import Tokens

__all__ = ["plugin"]

ADD = """\b
Examples:
  handraise token add ci --scope ask
  export HANDRAISE_TOKEN=$(handraise token add phone --scope answer)

\b
Scopes: ask raises hands and sees its own asks; answer lists, watches and answers;
admin does everything. Only the token is printed, and only now: the desk keeps a hash."""
LIST = """\b
Examples:
  handraise token list
  handraise token list --json | jq -r .name"""
REVOKE = """\b
Example:
  handraise token revoke ci"""

NAME = typer.Argument(metavar="NAME", help="What to call it: letters, digits, dots, dashes.")


class Scope(StrEnum):  # typer takes no list of literals
    ask = "ask"
    answer = "answer"
    admin = "admin"


token = typer.Typer(
    help="Make, list and revoke the tokens that callers need.",
    epilog="\b\nExample:\n  handraise token add ci --scope ask",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@token.command(epilog=ADD)
def add(
    name: Annotated[str, NAME],
    scope: Annotated[
        list[Scope],
        typer.Option(help="What it may do; repeatable.", show_default=False),
    ],
    url: Url = None,
) -> None:
    """Make a token and print it, and nothing else."""

    async def over_http(client: Client) -> str:
        return (await client.tokens.add(name, scopes=scope)).token

    async def on_store(broker: Broker, tokens: Tokens) -> str:
        return await tokens.add(name, scopes=scope)

    print(call_or_open(over_http, on_store, url=url))


@token.command("list", epilog=LIST)
def list_(as_json: Json = False, url: Url = None) -> None:
    """List the tokens, without their secrets."""

    async def over_http(client: Client) -> list[dict[str, Any]]:
        return [to_plain(token) for token in await client.tokens.list()]

    async def on_store(broker: Broker, tokens: Tokens) -> list[dict[str, Any]]:
        return [to_plain(token.to_shape()) for token in tokens.all()]

    found = call_or_open(over_http, on_store, url=url)
    width = max((len(told["name"]) for told in found), default=0)
    for told in found:
        if as_json:
            print_json(told)
        else:
            print(f"{told['name']:{width}}  {','.join(told['scopes']):10}  since {told['created_at'][:10]}")


@token.command(epilog=REVOKE)
def revoke(name: Annotated[str, NAME], url: Url = None) -> None:
    """Refuse a token from now on."""

    async def over_http(client: Client) -> None:
        await client.tokens.revoke(name)

    async def on_store(broker: Broker, tokens: Tokens) -> None:
        if not await tokens.revoke(name):
            raise HandraiseError("there is no token of that name; `handraise token list` shows them")

    call_or_open(over_http, on_store, url=url)
    print(f"revoked {inert(name, keep='')}")


plugin = Command(token, group="desk")
