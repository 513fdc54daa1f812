"""`handraise runs trace`: what happened in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.calling import Json, RunId, Url, call, find_run
from handraise.cli.commands import Command
from handraise.cli.printing import print_json

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise runs trace run_5d41
  handraise runs trace run_5d41 --follow       and what happens from now on, until it has ended
  handraise runs trace run_5d41 --json | jq 'select(.type == "step_failed").error'"""


def trace(
    id: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Show what happened in a run, a line for each event."""
    call(lambda client: _trace(client, id, follow=follow, as_json=as_json), url=url)


async def _trace(client: Client, typed: str, *, follow: bool, as_json: bool) -> None:
    from handraise.channels.terminal import wants_colour
    from handraise.cli.run_following import WAIT, trace_of
    from handraise.workflow.trace import line

    run = await find_run(client, typed)
    colour, after = wants_colour(), ""
    while True:
        page = await trace_of(client, run.id, after=after, wait=WAIT if follow else 0.0)
        after = page.next
        for event in page.events:
            if as_json:
                print_json(event)
            else:
                print(line(event, color=colour, zone=None), flush=True)
        if page.is_last or not (page.events or follow):
            return


plugin = Command(trace, examples=EXAMPLES)
