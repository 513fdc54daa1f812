"""`handraise runs checkpoint`: see what a run waits for, and give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.calling import By, CheckpointId, Json, Url, call, find_checkpoint, person
from handraise.cli.commands import Command
from handraise.cli.printing import command, print_json, say
from handraise.text.inert import inert
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.client import Client
    from handraise.wire.runs import Checkpoint

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise runs checkpoint run_5d41.review                         what it shows, and what it wants
  handraise runs checkpoint run_5d41.review '{"approved": true}'    give it, as JSON
  handraise runs checkpoint run_5d41 true                           the one that this run waits for

\b
The first one counts: if somebody else gave something different before, the exit code is 1. If
yours does not fit it is 2, and the checkpoint stays open."""


def checkpoint(
    id: CheckpointId,
    output: Annotated[
        str | None, typer.Argument(metavar="OUTPUT", help="What you give: JSON, or text where text is wanted.")
    ] = None,
    by: By = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Show a checkpoint, or give what it waits for."""

    async def work(client: Client) -> None:
        found = await find_checkpoint(client, id)
        if output is not None:
            from handraise.cli.checkpoint_forms import read_output

            given = read_output(found.schema, output)
            found = await client.checkpoints.give(found.id, given, by=by or person(), via="cli")
        if as_json:
            print_json(to_plain(found))
        elif output is not None:
            print(f"checkpoint {inert(found.id, keep='')} was given; its run goes on")
        else:
            _show(found)

    call(work, url=url)


def _show(found: Checkpoint) -> None:
    import json

    from handraise.cli.checkpoint_forms import wanted

    print(inert(found.id, keep=""))
    if found.input:
        print(inert(found.input))
    if found.state == "open":
        print(f"wants {inert(wanted(found.schema), keep='')}")
        say(f"Give it: {command('runs', 'checkpoint', found.id)} OUTPUT")
    elif found.state == "given":
        said = json.dumps(found.output, ensure_ascii=False)
        print(inert(f"{said} · {found.by}, in {found.via}", keep=""))
    else:
        print("nobody waits for it any more")


plugin = Command(checkpoint, examples=EXAMPLES)
