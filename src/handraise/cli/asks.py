"""`handraise asks`: what waits, or one ask in full."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from handraise.asks import Ask
from handraise.cli.calling import Json, Url, call, complete_id, find_ask
from handraise.cli.shown import ask_fields, command, duration, print_json, say, table
from handraise.inert import inert

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["add_to"]

Which = Literal["asked", "answered", "rejected", "withdrawn", "all"]

EXAMPLES = """\b
Examples:
  handraise asks
  handraise asks deploy-17
  handraise asks --state all --agent claude
  handraise asks --json | jq -r .id"""


def add_to(app: typer.Typer) -> None:
    @app.command(epilog=EXAMPLES)
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
        as_json: Json = False,
        url: Url = None,
    ) -> None:
        """List what waits for an answer, or show one ask in full."""
        if id is not None:
            call(lambda client: _show(client, id, as_json=as_json), url=url)
        else:
            call(lambda client: _list(client, state, agent=agent, session=session, as_json=as_json), url=url)


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


async def _list(client: Client, state: Which, *, agent: str | None, session: str | None, as_json: bool) -> None:
    found = client.asks(state=None if state == "all" else state, agent=agent, session=session)
    if as_json:
        async for ask in found:
            print_json(ask_fields(ask))
        return
    asks = [ask async for ask in found]
    if not asks:
        print("Nothing is waiting for you." if state == "asked" else "There are none.")
        return
    on_terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns if on_terminal else None
    for line in _table(sorted(asks, key=_urgency), columns=columns, now=datetime.now(UTC), states=state == "all"):
        print(line)
    if on_terminal and state == "asked":
        say("")
        say(f"Answer one: {command('answer')} ID CHOICE · see one: {command('asks')} ID · all: {command('watch')}")


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
