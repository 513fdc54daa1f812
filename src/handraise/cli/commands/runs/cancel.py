"""`handraise runs cancel`: end a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handraise.cli.calling import Json, RunId, Url, Yes, call, find_run
from handraise.cli.commands import Command
from handraise.cli.printing import agree, command, print_json, say
from handraise.text.inert import inert
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.client import Client
    from handraise.wire.runs import Run

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise runs cancel run_5d41
  handraise runs cancel run_5d41 --yes         without being asked"""


def cancel(id: RunId, yes: Yes = False, as_json: Json = False, url: Url = None) -> None:
    """End a run, and withdraw what it asks.

    Its agents are stopped. What its steps gave is kept, so that a retry goes on from there."""

    async def work(client: Client) -> None:
        run = await find_run(client, id)
        if run.state in ("running", "waiting", "parked"):  # otherwise the desk says why not
            say(_plan(run))
            agree("Cancel it?", yes=yes)
        run = await client.runs.cancel(run.id)
        if as_json:
            print_json(to_plain(run))
        else:
            print(f"run {inert(run.id, keep='')} is being cancelled")

    call(work, url=url)


def _plan(run: Run) -> str:
    waiting = run.open_asks + run.open_checkpoints
    asks = f" {waiting} waiting for a person will be withdrawn." if waiting else ""
    return (
        f"run {run.id} of {run.workflow} is {run.state}. What is under way will be stopped.{asks} "
        f"What was done is kept: {command('runs', 'retry', run.id)} goes on from there."
    )


plugin = Command(cancel, examples=EXAMPLES)
