"""`handraise runs rerun`: the same workflow with the same input, from the beginning."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from handraise.cli.calling import Json, RunId, Url, Yes, call, find_run
from handraise.cli.commands import Command
from handraise.cli.printing import agree, command, print_json, say
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.client import Client
    from handraise.wire.runs import Run

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise runs rerun run_5d41                prints the id of the new run
  handraise runs rerun run_5d41 --yes          without being asked"""


def rerun(id: RunId, yes: Yes = False, as_json: Json = False, url: Url = None) -> None:
    """Run a workflow anew, with the input of an earlier run.

    The file is read again, and the earlier run stays as it is."""

    async def work(client: Client) -> None:
        run = await find_run(client, id)
        say(_plan(run, await _steps(client, run)))
        agree("Run it?", yes=yes)
        made = await client.runs.rerun(run.id)
        if as_json:
            print_json(to_plain(made))
            return
        print(made.id, flush=True)
        say(f"look at it: {command('runs', 'trace', made.id, '--follow')}")

    call(work, url=url)


async def _steps(client: Client, run: Run) -> list[str]:
    listed = await client.workflows.list(cwd=run.cwd)
    found = [flow.steps for flow in listed if flow.name == run.workflow and flow.steps]
    return [step.id for step in found[0]] if found else []


def _plan(run: Run, steps: list[str]) -> str:
    given = json.dumps(run.input)
    done = f"All of it is done again: {', '.join(steps)}." if steps else "All of it is done again."
    return f"a new run of {run.workflow} in {run.cwd} with the input {given}. {done}"


plugin = Command(rerun, examples=EXAMPLES)
