"""`handraise run`: run a workflow and follow it to its end."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handraise.cli.calling import Full, Json, Url, call, wants_full
from handraise.cli.commands import Command
from handraise.cli.printing import command, print_json, say
from handraise.cli.trusting import settings_or_offer
from handraise.errors import SettingsError
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.app import Running
    from handraise.client import Client
    from handraise.config import Settings
    from handraise.wire.runs import Run as WorkflowRun

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise run feature --input goal="a health check"
  handraise run release --input version=2.1 --input dry=true --cwd ~/shop
  handraise run feature --input-file goal.json         the whole input; - reads it from here
  handraise run feature --full                         answer with keys, on a card that is redrawn
  handraise run nightly --detach                       print the id and leave
  handraise run feature --json | tail -1 | jq .output  events as JSON lines, the run itself last

\b
Workflows lie in .handraise/workflows of the project and in your config folder; `handraise
workflows` lists them. It prints a line for whatever happens. On a terminal you answer what
the agents ask and what checkpoints want right here, first in first out. Without one nobody
is prompted: when nothing goes on without a person it says how to answer, and leaves. It uses
the desk that runs, or is one itself until the run has ended.
Ctrl+C leaves; the run stays at the desk, and goes on.
Exit codes: 0 done, 1 failed or cancelled, 2 usage, 3 something waits for a person, 5 no desk
was reached."""


def run(
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="Which workflow.", autocompletion=_complete)],
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A field of its input; text, or JSON where no text is wanted."),
    ] = None,
    input_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its input as JSON; --input changes fields of it.")
    ] = None,
    cwd: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where it works and is looked for; here, unless said.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Only start it at the desk that runs, and print its id.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Without a terminal: stay while somebody elsewhere has to answer.")
    ] = False,
    full: Full = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Run a workflow, and answer what its steps ask."""
    import asyncio

    folder = (cwd or Path.cwd()).expanduser().absolute()
    pairs = _pairs(input or ())
    given = _read(input_file)
    if detach:
        call(lambda client: _detach(client, flow, folder, given, pairs, as_json=as_json), url=url)
        return
    settings = settings_or_offer(folder, with_workflows=True, quietly=as_json)
    if url is not None:
        settings = replace(settings, url=url)

    asyncio.run(_run(settings, flow, folder, given, pairs, as_json=as_json, stays=wait, full=full))


def _pairs(words: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, is_pair, value = word.partition("=")
        if not is_pair or not name:
            raise SettingsError(f"--input {word}: write NAME=VALUE, as in --input goal=shop")
        pairs[name] = value
    return pairs


def _read(file: str | None) -> Any:
    if file is None:
        return {}
    try:
        return json.loads(sys.stdin.read() if file == "-" else Path(file).expanduser().read_text())
    except ValueError as problem:
        raise SettingsError(f"--input-file {file} is not JSON: {problem}") from None
    except OSError as problem:
        raise SettingsError(f"--input-file {file} cannot be read: {problem.strerror}") from None


async def _run(
    settings: Settings,
    flow: str,
    folder: Path,
    given: Any,
    pairs: Mapping[str, str],
    *,
    as_json: bool,
    stays: bool,
    full: bool | None,
) -> None:
    from handraise.cli.run_following import FollowedRun
    from handraise.cli.running import desk_for
    from handraise.client import Client

    async with desk_for(settings) as own, Client(own.url if own is not None else None, settings=settings) as client:
        run = await _create(client, flow, folder, given, pairs)
        goes_on = "stays at the desk" if own is None else f"goes on when a desk runs here: {command('serve')}"
        followed = FollowedRun(client, run, as_json=as_json, stays=stays, goes_on=goes_on, full=wants_full(full))
        try:
            await followed.follow(leaving=None if own is None else own.serving)
        finally:
            if own is not None:
                await _say_what_else_waits(own, run.id)


async def _detach(
    client: Client, flow: str, folder: Path, given: Any, pairs: Mapping[str, str], *, as_json: bool
) -> None:
    run = await _create(client, flow, folder, given, pairs)
    if as_json:
        print_json(to_plain(run))
        return
    print(run.id, flush=True)
    say(f"look at it: {command('runs', 'trace', run.id, '--follow')} · answer what it asks: {command('watch')}")


async def _create(client: Client, flow: str, folder: Path, given: Any, pairs: Mapping[str, str]) -> WorkflowRun:
    await client.reach()
    return await client.runs.start(flow, await _input(client, flow, folder, given, pairs), cwd=str(folder))


async def _input(client: Client, flow: str, folder: Path, given: Any, pairs: Mapping[str, str]) -> Any:
    """What was given, each value in the form that the workflow wants."""
    if not pairs:
        return given
    if not isinstance(given, dict):
        raise SettingsError("--input names fields, and what --input-file holds has none; give one of them")
    from handraise.cli.checkpoint_forms import read_value

    listed = await client.workflows.list(cwd=str(folder))
    schema = next((each.input for each in listed if each.name == flow), None) or {}
    fields = schema.get("properties", {})
    inside = {name: {**fields[name], "$defs": schema.get("$defs", {})} for name in pairs if name in fields}
    return {**given, **{name: read_value(inside.get(name), value) for name, value in pairs.items()}}


async def _say_what_else_waits(own: Running, run: str) -> None:
    from handraise.workflow.journal import Journal

    asks = [ask async for ask in own.broker.asks(state="asked") if ask.origin.run != run]
    checkpoints = [each for each in await Journal(own.broker.store).checkpoints() if each.run != run]
    if count := len(asks) + len(checkpoints):
        say(f"handraise: {count} still waiting; {command('serve')} and {command('watch')} bring them back")


def _complete(incomplete: str) -> list[str]:
    """Workflows of this folder by the names of their files, for the shell. To press a key runs none of them."""
    from handraise.config import load
    from handraise.workflow.loading import places

    try:
        user = load().user
    except SettingsError:
        user = None
    folders = places(Path.cwd(), config=None if user is None else user.parent)
    names = sorted({file.stem for folder in folders for file in folder.glob("*.py")})
    return [name for name in names if name.isidentifier() and name.startswith(incomplete)]


plugin = Command(run, examples=EXAMPLES, group="workflows")
