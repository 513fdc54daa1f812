"""`handraise asks`: what waits, with checkpoints beside it, or one ask in full."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from handraise.asks import Ask
from handraise.cli.calling import Json, Url, call, complete_id, find_ask
from handraise.cli.commands import Command
from handraise.cli.printing import ask_fields, command, duration, print_json, say, table
from handraise.text.inert import inert
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.client import Client
    from handraise.wire.runs import Checkpoint

__all__ = ["list_asks", "plugin"]

Which = Literal["asked", "answered", "rejected", "withdrawn", "settled", "all"]

EXAMPLES = """\b
Examples:
  handraise asks
  handraise asks deploy-17
  handraise asks --state all --agent claude
  handraise asks --state settled --newest --search 'drop table'
  handraise asks --json | jq -r '.id // .checkpoint.id'

\b
Checkpoints of runs that wait for somebody follow in a table of their own, in JSON as lines with
`checkpoint`; not where --agent, --session, --search or --state asks for something else."""


def asks(
    id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="Show this one in full; its beginning or end will do.", autocompletion=complete_id
        ),
    ] = None,
    state: Annotated[Which, typer.Option(help="Which ones to list.")] = "asked",
    agent: Annotated[str | None, typer.Option(help="Only those of this agent.")] = None,
    session: Annotated[str | None, typer.Option(help="Only those of this session.")] = None,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only those in which this text stands, in any case.")
    ] = None,
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """List what waits for an answer, or show one ask in full."""
    if id is not None:
        call(lambda client: _show(client, id, as_json=as_json), url=url)
    else:
        wanted = {"agent": agent, "session": session, "search": search}
        call(lambda client: list_asks(client, state, wanted, newest=newest, as_json=as_json), url=url)


async def _show(client: Client, id: str, *, as_json: bool) -> None:
    ask = await find_ask(client, id)
    if as_json:
        print_json(ask_fields(ask))
        return
    from handraise.channels.terminal import draw, wants_colour

    print(inert(ask.id, keep=""))
    print(draw(ask, colour=wants_colour()))
    if ask.state == "asked" and sys.stdout.isatty():
        say(f"Answer it: {command('answer', ask.id)} …, or {command('reject', ask.id)}")


async def list_asks(
    client: Client, state: Which, wanted: Mapping[str, str | None], *, newest: bool = False, as_json: bool = False
) -> None:
    found = client.asks(state=None if state == "all" else state, newest=newest, **wanted)
    with_checkpoints = state == "asked" and not any(wanted.values())
    if as_json:
        async for ask in found:
            print_json(ask_fields(ask))
        for each in await client.checkpoints.list(state="open") if with_checkpoints else ():
            print_json({"checkpoint": to_plain(each)})
        return
    asks = [ask async for ask in found]
    checkpoints = await client.checkpoints.list(state="open") if with_checkpoints else ()
    if not asks and not checkpoints:
        print("Nothing is waiting for you." if state == "asked" else "There are none.")
        return
    on_terminal = sys.stdout.isatty()
    columns, now = shutil.get_terminal_size().columns if on_terminal else None, datetime.now(UTC)
    if asks:
        ordered = asks if newest else sorted(asks, key=_urgency)
        for line in _table(ordered, columns=columns, now=now, states=state in ("all", "settled")):
            print(line)
    if checkpoints:
        for line in ([""] if asks else []) + list(_checkpoint_table(checkpoints, columns=columns, now=now)):
            print(line)
    if on_terminal and state == "asked":
        say("")
        if asks:
            say(f"Answer one: {command('answer')} ID CHOICE · see one: {command('asks')} ID · all: {command('watch')}")
        if checkpoints:
            checkpoint = command("runs", "checkpoint")
            say(f"Give to a checkpoint: {checkpoint} ID OUTPUT · see one: {checkpoint} ID")


def _checkpoint_table(checkpoints: Sequence[Checkpoint], *, columns: int | None, now: datetime) -> Iterator[str]:
    from handraise.cli.checkpoint_forms import wanted

    rows = []
    for told in checkpoints:
        age = duration((now - datetime.fromisoformat(told.asked_at)).total_seconds())
        about = f"{told.input} · {wanted(told.schema)}" if told.input else wanted(told.schema)
        rows.append([inert(cell, keep="") for cell in (told.id, age, about)])
    yield from table(["CHECKPOINT", "AGE", "WANTS"], rows, columns=columns)


def _urgency(ask: Ask) -> tuple[bool, float, float]:
    """The nearest deadline first, then the oldest."""
    settled_at = 0.0 if ask.asked_at is None else ask.asked_at.timestamp()
    is_due = ask.state == "asked" and ask.deadline is not None
    return (not is_due, ask.deadline.timestamp() if is_due and ask.deadline else 0.0, settled_at)


def _table(asks: Sequence[Ask], *, columns: int | None, now: datetime, states: bool) -> Iterator[str]:
    rows = [_row(ask, now=now, states=states) for ask in asks]
    heads = ["ID", "AGENT", "AGE", *(["STATE"] if states else []), "DEADLINE", "ABOUT"]
    if not any(row[-2] for row in rows):
        heads.pop(-2)
        for row in rows:
            row.pop(-2)
    yield from table(heads, rows, columns=columns)


def _row(ask: Ask, *, now: datetime, states: bool) -> list[str]:
    age = "" if ask.asked_at is None else duration((now - ask.asked_at).total_seconds())
    cells = [ask.id, ask.origin.agent, age, *([ask.state] if states else []), _deadline(ask), ask.title]
    return [inert(cell, keep="") for cell in cells]


def _deadline(ask: Ask) -> str:
    if ask.remaining is None or ask.fallback is None:
        return ""
    picked = [
        question.label_of(value)
        for question, values in zip(ask.questions, ask.fallback.answers or (), strict=False)
        for value in values
    ]
    return f"in {duration(ask.remaining)}: {', '.join(picked) or 'rejected'}"


plugin = Command(asks, examples=EXAMPLES, group="answer")
