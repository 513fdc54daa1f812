"""`handraise runs`: the runs of workflows, or one of them."""

from __future__ import annotations

import json
import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.calling import Json, RunId, Url, call, find_run
from handraise.cli.commands import DEFAULT, Command, WithDefault
from handraise.cli.commands.runs import cancel, checkpoint, rerun, retry, trace
from handraise.cli.printing import command, duration, how_to_answer, print_json, say, table
from handraise.text.inert import inert
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.client import Client
    from handraise.wire.runs import ListedRun

__all__ = ["plugin"]

LIST = """\b
Examples:
  handraise runs
  handraise runs show run_5d41            one of them, and what it waits for
  handraise runs --json | jq -r 'select(.state == "waiting") | .id'"""
SHOW = """\b
Examples:
  handraise runs show run_5d41
  handraise runs show run_5d41 --json | jq .output"""

OPEN = ("running", "waiting")


def list_(
    limit: Annotated[int, typer.Option(metavar="NUMBER", help="The newest so many.", min=1, max=1000)] = 100,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """List the runs of workflows, or show one."""
    call(lambda client: _list(client, limit=limit, as_json=as_json), url=url)


def show(id: RunId, as_json: Json = False, url: Url = None) -> None:
    """Show a run: its state, what it waits for, and what came of it."""
    call(lambda client: _show(client, id, as_json=as_json), url=url)


async def _list(client: Client, *, limit: int, as_json: bool) -> None:
    listed = await client.runs.list(limit=limit)
    if as_json:
        for run in listed:
            print_json(to_plain(run))
        return
    if not listed:
        print("There are no runs.")
        return
    on_terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns if on_terminal else None
    for line in table(
        ["ID", "STATE", "WORKFLOW", "AGE", "WAITS", "WHERE"], [_row(run) for run in listed], columns=columns
    ):
        print(line.rstrip())
    if on_terminal:
        say("")
        say(f"See one: {command('runs', 'show')} ID · what happened in it: {command('runs', 'trace')} ID")


def _row(run: ListedRun) -> list[str]:
    age = (datetime.now(UTC) - datetime.fromisoformat(run.created_at)).total_seconds()
    waits = str(run.open_asks + run.open_checkpoints or "")
    cells = [run.id, run.state, run.workflow, duration(age), waits, run.cwd]
    return [inert(cell, keep="") for cell in cells]


async def _show(client: Client, typed: str, *, as_json: bool) -> None:
    run = await find_run(client, typed)
    asks = [ask async for ask in client.asks(state="asked", run=run.id)]
    checkpoints = await client.checkpoints.list(run=run.id, state="open")
    if as_json:
        waiting = {"asks": [ask.id for ask in asks], "checkpoints": [each.id for each in checkpoints]}
        print_json({**to_plain(run), **waiting})
        return
    print(inert(run.id, keep=""))
    print(inert(" · ".join([run.state, run.workflow, run.cwd, f"by {run.created_by}"]), keep=""))
    print(f"input: {inert(json.dumps(run.input, ensure_ascii=False), keep='')}")
    if run.error:
        print(inert(run.error, keep=""))
    if run.output is not None:
        print(f"output: {inert(json.dumps(run.output, indent=2, ensure_ascii=False))}")
    for ask in asks:
        where = inert(f"{ask.origin.step or ask.origin.agent} asks: {ask.title}", keep="")
        print(f"{where} · {how_to_answer(ask)}")
    for told in checkpoints:
        print(f"{inert(told.step, keep='')} waits for you · {command('runs', 'checkpoint', told.id)}")
    if sys.stdout.isatty():
        say("")
        then = "" if run.state == "done" else f" · {command('runs', 'retry', run.id)} goes on with it"
        then = f" · {command('runs', 'cancel', run.id)} ends it" if run.state in OPEN else then
        say(f"What happened: {command('runs', 'trace', run.id)}{then}")


runs = typer.Typer(
    cls=WithDefault,
    help="List the runs of workflows, show one, or steer one.",
    epilog=LIST,
    rich_markup_mode=None,
)
Command(list_, examples=LIST).add_to(runs, DEFAULT, hidden=True)
Command(show, examples=SHOW).add_to(runs, "show")
trace.plugin.add_to(runs, "trace")
checkpoint.plugin.add_to(runs, "checkpoint")
cancel.plugin.add_to(runs, "cancel")
retry.plugin.add_to(runs, "retry")
rerun.plugin.add_to(runs, "rerun")
plugin = Command(runs, group="workflows")
