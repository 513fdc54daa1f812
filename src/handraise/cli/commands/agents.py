"""`handraise agents`: the agents of a machine, and what each can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handraise.agents._versions import compare
from handraise.cli.calling import Json, Url, settings_here
from handraise.cli.commands import Command
from handraise.cli.printing import print_json, table
from handraise.errors import DeskUnreachable, HandraiseError, PluginNotFound
from handraise.text.inert import inert
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.config import Settings

__all__ = ["plugin"]

PROBE_WITHIN = 120.0  # seconds; programs are started one beside the other

# What is asked of every agent: the field, and the words for it.
CAN = {
    "questions": "asks questions",
    "permissions": "asks for permission",
    "several_questions": "several questions at once",
    "multi_select": "several choices",
    "free_text": "own text",
    "notes": "notes beside an answer",
    "edits": "an edited input",
    "plans": "plans to approve",
    "subagents": "its subagents ask too",
    "resume": "goes on after a restart",
    "attach": "your own terminal",
}

EXAMPLES = """\b
Examples:
  handraise agents
  handraise agents --probe                start the programs and ask them
  handraise agents claude --json

\b
A * marks what was asked of the program itself. Without a desk it looks on this machine."""


def agents(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only this one.")] = None,
    probe: Annotated[bool, typer.Option("--probe", help="Start each program to see for itself.")] = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Say which agents can be started, and what each can do."""
    import asyncio

    found = asyncio.run(_look(url, probe=probe))
    if name is not None:
        names = [told["agent"] for told in found]
        found = [told for told in found if told["agent"] == name]
        if not found:
            raise PluginNotFound(f"agents: no {name!r}; there are {', '.join(names) or 'none'}")
    if as_json:
        for told in found:
            print_json(told)
        return
    for line in _shown(found):
        print(line)


async def _look(url: str | None, *, probe: bool) -> list[dict[str, Any]]:
    """What the desk that runs says, or what is here."""
    from handraise.client import Client

    settings = settings_here()
    if url is None and settings.url is None and settings.running_desk() is None:
        return await _look_here(settings, probe=probe)
    try:
        async with Client(url, settings=settings) as client:
            found = await client.agents.list(probe=probe, silence=PROBE_WITHIN)
            listed: list[dict[str, Any]] = [to_plain(each) for each in found]
    except DeskUnreachable:
        if url is not None or settings.url is not None:
            raise
        return await _look_here(settings, probe=probe)
    if not listed:
        raise HandraiseError(f"the desk at {client.url} starts no agents itself; ask the one that runs the sessions")
    return listed


async def _look_here(settings: Settings, *, probe: bool) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from handraise.app import agents_of

    here = agents_of(settings)
    try:
        return [asdict(found) for found in await here.look(probe=probe)]
    finally:
        await here.close()


def _shown(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """One column an agent. What is in the way of using it stands below."""
    usable = [told for told in found if told["installed"]]
    rows = [["version", *(_marked(told, "version", told["version"] or "?") for told in usable)]]
    rows += [["driven by our tests", *(inert(told.get("driven") or "-", keep="") for told in usable)]]
    rows += [
        [words, *(_marked(told, field, "yes" if told[field] else "-") for told in usable)]
        for field, words in CAN.items()
    ]
    if usable:
        yield from (line.rstrip() for line in table(["", *(told["agent"] for told in usable)], rows, columns=None))
        yield ""
    for told in usable:
        yield inert(f"{told['agent']} modes: {', '.join(told['modes']) or 'none'}", keep="")
    for told in usable:
        differs = compare(told["version"], told.get("driven"))
        if differs is not None:
            driven = f"{differs} than {told['driven']}, which our tests drive; if it misbehaves, try that one"
            yield inert(f"{told['agent']}: {told['version']} is {driven}", keep="")
    for told in found:
        if told["problem"]:
            yield inert(f"{told['agent']}: {told['problem']}", keep="")
        elif not told["installed"]:
            yield inert(f"{told['agent']}: it is not installed here", keep="")
    if any(told["checked"] for told in usable):
        yield "* was asked of the program itself"


def _marked(told: dict[str, Any], field: str, text: str) -> str:
    return inert(f"{text}*" if field in told["checked"] else text, keep="")


plugin = Command(agents, examples=EXAMPLES, group="agents")
