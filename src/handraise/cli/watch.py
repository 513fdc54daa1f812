"""`handraise watch`: see what is asked as it comes, and answer it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from handraise.asks import Answer, Ask, State
from handraise.cli.calling import Url, call, person
from handraise.cli.shown import ask_fields, command, print_json, time_text
from handraise.events import Asked, Event

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["Narrowed", "add_to"]

WAITING = 3

EXAMPLES = """\b
Examples:
  handraise watch                     on a terminal: answer what comes, one after the other
  handraise watch --agent claude
  handraise watch < /dev/null         print how many wait; exit code 3 if any do, else 0
  handraise watch --follow            a line for whatever happens, no prompts
  handraise watch --json | jq .type   the same as JSON lines: first what waits, then events"""


def add_to(app: typer.Typer) -> None:
    @app.command(epilog=EXAMPLES)
    def watch(
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Ring no bell.")] = False,
        follow: Annotated[
            bool, typer.Option("--follow", help="Print a line for whatever happens; never prompt.")
        ] = False,
        as_json: Annotated[bool, typer.Option("--json", help="As --follow, in JSON, one event a line.")] = False,
        agent: Annotated[str | None, typer.Option(help="Only what this agent asks.")] = None,
        session: Annotated[str | None, typer.Option(help="Only what is asked in this session.")] = None,
        by: Annotated[str | None, typer.Option(help="In whose name you answer; you, unless said otherwise.")] = None,
        url: Url = None,
    ) -> None:
        """Answer what is asked, as it comes.

        Without a terminal it prompts nobody and says what waits."""

        async def work(client: Client) -> None:
            some = Narrowed(client, agent=agent, session=session)
            if as_json:
                await _stream(some)
            elif follow:
                await _terminal(some, by=by or person(), quiet=True, interactive=False)
            elif sys.stdin.isatty() and sys.stdout.isatty():
                await _terminal(some, by=by or person(), quiet=quiet, interactive=True)
            else:
                await _count(some)

        call(work, url=url)


async def _count(inbox: Narrowed) -> None:
    waiting = [ask async for ask in inbox.asks(state="asked")]
    if not waiting:
        print("Nothing is waiting for you.")
        return
    print(f"{len(waiting)} waiting · {inbox.url} · {command('asks')}", flush=True)
    raise typer.Exit(WAITING)


async def _terminal(inbox: Narrowed, *, by: str, quiet: bool, interactive: bool) -> None:
    from handraise.channels.terminal import Terminal

    def out(text: str) -> None:
        print(text, flush=True)

    await Terminal(by=by, quiet=quiet, interactive=interactive, out=out).run(inbox)


async def _stream(inbox: Narrowed) -> None:
    """What waits now as `asked`, then every event, each once."""
    before = await inbox.cursor()
    listed: set[str] = set()
    async for ask in inbox.asks(state="asked"):
        listed.add(ask.id)
        print_json({"type": "asked", "at": time_text(ask.asked_at), "ask": ask_fields(ask)})
    async for event in inbox.events(after=before):
        if not (isinstance(event, Asked) and event.ask.id in listed):
            print_json({"type": event.type, "at": time_text(event.at), "ask": ask_fields(event.ask)})
        listed.discard(event.ask.id)


class Narrowed:
    """The desk's inbox, narrowed to an agent, to a session, or to the asks that `only` says yes to."""

    def __init__(
        self,
        client: Client,
        *,
        agent: str | None = None,
        session: str | None = None,
        only: Callable[[Ask], bool] = lambda ask: True,
    ) -> None:
        self._client = client
        self._agent = agent
        self._session = session
        self._only = only

    @property
    def url(self) -> str:
        return self._client.url

    async def asks(
        self,
        *,
        state: State | None = None,
        agent: str | None = None,
        session: str | None = None,
        run: str | None = None,
    ) -> AsyncIterator[Ask]:
        agent, session = agent or self._agent, session or self._session
        async for ask in self._client.asks(state=state, agent=agent, session=session, run=run):
            if self._only(ask):
                yield ask

    async def events(
        self,
        *,
        after: int | None = None,
        session: str | None = None,
        run: str | None = None,
        worker: str | None = None,
    ) -> AsyncIterator[Event]:
        async for event in self._client.events(after=after, session=session or self._session, run=run, worker=worker):
            if self._agent in (None, event.ask.origin.agent) and self._only(event.ask):
                yield event

    async def cursor(self) -> int:
        return await self._client.cursor()

    async def get(self, id: str) -> Ask:
        return await self._client.get(id)

    async def answer(self, id: str, answer: Answer) -> Ask:
        return await self._client.answer(id, answer)

    async def reject(self, id: str, *, reason: str | None = None, by: str = "", via: str = "") -> Ask:
        return await self._client.reject(id, reason=reason, by=by, via=via)

    async def keep_waiting(self, id: str) -> Ask:
        return await self._client.keep_waiting(id)
