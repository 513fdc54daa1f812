"""`handraise keep-waiting`: give an ask more time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handraise.cli.calling import AskId, Json, Url, call, find_ask
from handraise.cli.commands import Command
from handraise.cli.printing import ask_fields, duration, print_json
from handraise.text.inert import inert

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

EXAMPLES = """\b
Example:
  handraise keep-waiting deploy-17"""


def keep_waiting(id: AskId, as_json: Json = False, url: Url = None) -> None:
    """Move the deadline of an ask by the time it was given."""

    async def work(client: Client) -> None:
        ask = await find_ask(client, id)
        ask = await client.keep_waiting(ask.id)
        if as_json:
            print_json(ask_fields(ask))
        elif ask.remaining is None:
            print(f"{inert(ask.id, keep='')} has no deadline: it waits until somebody answers")
        else:
            print(f"{inert(ask.id, keep='')} now waits for another {duration(ask.remaining)}")

    call(work, url=url)


plugin = Command(keep_waiting, examples=EXAMPLES, group="answer")
