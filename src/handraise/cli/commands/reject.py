"""`handraise reject`: refuse an ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.calling import AskId, By, Json, Url, call, find_ask, person
from handraise.cli.commands import Command
from handraise.cli.printing import tell

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise reject deploy-17
  handraise reject deploy-17 --reason "not on a Friday\""""


def reject(
    id: AskId,
    reason: Annotated[str | None, typer.Option(help="Why. The agent is told.")] = None,
    by: By = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Refuse an ask, question or permission. It is final."""

    async def work(client: Client) -> None:
        ask = await find_ask(client, id)
        ended = await client.reject(ask.id, reason=reason, by=by or person(), via="cli")
        tell(ended, as_json=as_json)

    call(work, url=url)


plugin = Command(reject, examples=EXAMPLES, group="answer")
