"""`handraise runs retry`: go on with a run that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.calling import Json, RunId, Url, Yes, call, find_run
from handraise.cli.commands import Command
from handraise.cli.printing import agree, command, print_json, say
from handraise.text.inert import inert
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.client import Client
    from handraise.wire.runs import Retried, Run

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise runs retry run_5d41                from what did not succeed
  handraise runs retry run_5d41 --from plan    this step and all after it, also of a run that is done
  handraise runs retry run_5d41 --dry-run      only say what would be done again"""


def retry(
    id: RunId,
    step: Annotated[
        str | None, typer.Option("--from", metavar="STEP", help="Do this step again, and all after it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done again.")] = False,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Go on with a run that failed, was cancelled or is parked. What succeeded is not done again."""

    async def work(client: Client) -> None:
        run = await find_run(client, id)
        plan = await client.runs.retry(run.id, step=step, dry_run=True)
        if dry_run:
            if as_json:
                print_json(to_plain(plan))
            else:
                print(inert(_plan(run, plan), keep=""))
            return
        say(_plan(run, plan))
        agree("Go on?", yes=yes)
        told = await client.runs.retry(run.id, step=step)
        if as_json:
            print_json(to_plain(told))
        else:
            print(f"run {inert(run.id, keep='')} goes on")
            say(f"look at it: {command('runs', 'trace', run.id, '--follow')}")

    call(work, url=url)


def _plan(run: Run, plan: Retried) -> str:
    again, then = ", ".join(plan.again), ", ".join(plan.then or ())
    done = f"Done again: {again}." if again else "Nothing is done again."
    after = f" After that: {then}." if then else ""
    return f"run {run.id} of {run.workflow} is {run.state}. {done}{after}"


plugin = Command(retry, examples=EXAMPLES)
