"""`handraise deliver`: have an agent told an answer that it could not take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handraise.cli.calling import AskId, Json, Url, call, find_ask
from handraise.cli.commands import Command
from handraise.cli.printing import ask_fields, print_json
from handraise.text.inert import inert

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

EXAMPLES = """\b
Example:
  handraise deliver deploy-17"""


def deliver(id: AskId, as_json: Json = False, url: Url = None) -> None:
    """Tell an agent again what it could not take."""

    async def work(client: Client) -> None:
        ask = await client.deliver_again((await find_ask(client, id)).id)
        if as_json:
            print_json(ask_fields(ask))
        else:
            print(f"{inert(ask.origin.agent, keep='')} will be told the answer to {inert(ask.id, keep='')}")

    call(work, url=url)


plugin = Command(deliver, examples=EXAMPLES, group="answer")
