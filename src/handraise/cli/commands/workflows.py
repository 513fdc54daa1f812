"""`handraise workflows`: what can be run here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handraise.cli.calling import Json, Url, settings_here
from handraise.cli.commands import Command
from handraise.cli.printing import print_json
from handraise.errors import DeskUnreachable
from handraise.text.inert import inert
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.config import Settings

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise workflows
  handraise workflows --cwd ~/shop
  handraise workflows --json | jq -r 'select(.problem) | .problem'

\b
They lie in .handraise/workflows of the project and in your config folder. A file that cannot be
loaded is listed with the line where something is wrong, and the exit code is 1. Without a desk it
looks on this machine."""

FAILED = 1


def workflows(
    cwd: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder they are looked for from; here, unless said.")
    ] = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """List the workflows that can be run, and what each takes."""
    import asyncio

    folder = (cwd or Path.cwd()).expanduser().absolute()
    found = asyncio.run(_look(folder, url=url))
    if as_json:
        for told in found:
            print_json(told)
    elif not found:
        print("There are no workflows here; they lie in .handraise/workflows.")
    else:
        print("\n\n".join(_shown(told) for told in found))
    if any(told.get("problem") for told in found):
        raise typer.Exit(FAILED)


async def _look(folder: Path, *, url: str | None) -> list[dict[str, Any]]:
    """What the desk that runs says, or what is here."""
    from handraise.client import Client

    settings = settings_here(folder)
    is_elsewhere = url is not None or settings.url is not None
    if is_elsewhere or settings.running_desk() is not None:
        try:
            async with Client(url, settings=settings) as client:
                return [to_plain(flow) for flow in await client.workflows.list(cwd=str(folder))]
        except DeskUnreachable:
            if is_elsewhere:
                raise
    return await _listed_here(folder, settings)


async def _listed_here(folder: Path, settings: Settings) -> list[dict[str, Any]]:
    """The workflows of this machine, in the form that the desk tells them."""
    from handraise.app import authors_of, config_of
    from handraise.workflow.loading import listed, places

    async with authors_of(settings) as authors:
        return await listed(places(folder, config=config_of(settings)), authors)


def _shown(told: Mapping[str, Any]) -> str:
    if told.get("problem"):
        return inert(f"{told['name']}: {told['problem']}", keep="")
    described = f": {told['description']}" if told.get("description") else ""
    steps = " → ".join(f"{step['id']} ({step['kind']})" for step in told["steps"])
    schema = told["input"] or {}
    fields, required = schema.get("properties", {}), schema.get("required", ())
    takes = ", ".join(f"{name}{'' if name in required else ' (optional)'}" for name in fields)
    lines = [f"{told['name']}{described}", f"  {steps}", *([f"  input: {takes}"] if takes else []), f"  {told['file']}"]
    return "\n".join(inert(line, keep="") for line in lines)


plugin = Command(workflows, examples=EXAMPLES, group="workflows")
