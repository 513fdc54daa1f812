"""`handraise watch`: see what is asked as it comes, and answer it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from handraise.asks import Ask
from handraise.cli.calling import Full, Url, call, person, terminal_words, wants_full
from handraise.cli.commands import Command
from handraise.cli.narrowed import SKIP, Narrowed
from handraise.cli.printing import ask_fields, command, print_json, time_text
from handraise.events import Asked

if TYPE_CHECKING:
    from handraise.cli.checkpoint_inbox import CheckpointInbox
    from handraise.client import Client

__all__ = ["plugin"]

WAITING = 3

EXAMPLES = """\b
Examples:
  handraise watch                     on a terminal: answer what comes, one after the other
  handraise watch --full              the same with keys, on a card that is redrawn; ? explains them
  handraise watch --agent claude
  handraise watch < /dev/null         print how many wait; exit code 3 if any do, else 0
  handraise watch --follow            a line for whatever happens, no prompts
  handraise watch --json | jq .type   the same as JSON lines: first what waits, then events

\b
Checkpoints of runs come beside what agents ask, unless --agent or --session narrows it."""


def watch(
    full: Full = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Ring no bell.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Print a line for whatever happens; never prompt.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As --follow, in JSON, one event a line.")] = False,
    agent: Annotated[str | None, typer.Option(help="Only what this agent asks.")] = None,
    session: Annotated[str | None, typer.Option(help="Only what is asked in this session.")] = None,
    by: Annotated[str | None, typer.Option(help="In whose name you answer; you, unless said otherwise.")] = None,
    url: Url = None,
) -> None:
    """Answer what is asked, as it comes.

    Without a terminal it prompts nobody and says what waits."""

    async def work(client: Client) -> None:
        is_full = wants_full(full)
        some = _inbox(client, agent=agent, session=session, full=is_full)
        if as_json:
            await _stream(some)
        elif follow:
            await _terminal(some, by=by or person(), quiet=True, interactive=False)
        elif sys.stdin.isatty() and sys.stdout.isatty():
            await _terminal(some, by=by or person(), quiet=quiet, interactive=True, full=is_full)
        else:
            await _count(some, client=client)

    call(work, url=url)


def _inbox(client: Client, *, agent: str | None, session: str | None, full: bool) -> Narrowed | CheckpointInbox:
    """A checkpoint is no agent's and of no session, so whoever names one does not mean it."""
    asks = Narrowed(client, agent=agent, session=session)
    if agent is not None or session is not None:
        return asks
    from handraise.cli.checkpoint_inbox import CheckpointInbox

    return CheckpointInbox(client, asks, skip=SKIP[full])


async def _count(inbox: Narrowed | CheckpointInbox, *, client: Client) -> None:
    waiting = [ask async for ask in inbox.asks(state="asked")]
    if not waiting:
        print("Nothing is waiting for you.")
        return
    print(f"{len(waiting)} waiting · {client.url} · {command('asks')}", flush=True)
    raise typer.Exit(WAITING)


async def _terminal(
    inbox: Narrowed | CheckpointInbox, *, by: str, quiet: bool, interactive: bool, full: bool = False
) -> None:
    from handraise.channels.terminal import Terminal
    from handraise.text.words import speak

    def out(text: str) -> None:
        print(text, flush=True)

    words = terminal_words() if interactive else speak("en")  # a log is read by programs, too
    terminal = Terminal(
        by=by, quiet=quiet, full=full, interactive=interactive, heading=inbox.heading, words=words, out=out
    )
    await terminal.run(inbox)


async def _stream(inbox: Narrowed | CheckpointInbox) -> None:
    """What waits now as `asked`, then every event, each once."""
    before = await inbox.cursor()
    listed: set[str] = set()
    async for ask in inbox.asks(state="asked"):
        listed.add(ask.id)
        _print_event(inbox, "asked", at=time_text(ask.asked_at), ask=ask)
    async for event in inbox.events(after=before):
        if not (isinstance(event, Asked) and event.ask.id in listed):
            _print_event(inbox, event.type, at=time_text(event.at), ask=event.ask)
        listed.discard(event.ask.id)


CHECKPOINT_EVENTS = {
    "asked": "checkpoint_waiting",
    "answered": "checkpoint_given",
    "withdrawn": "checkpoint_withdrawn",
}


def _print_event(inbox: Narrowed | CheckpointInbox, type: str, *, at: str | None, ask: Ask) -> None:
    checkpoint = inbox.checkpoint_of(ask)
    if checkpoint is None:
        print_json({"type": type, "at": at, "ask": ask_fields(ask)})
    else:
        print_json({"type": CHECKPOINT_EVENTS[type], "at": at, "checkpoint": checkpoint})


plugin = Command(watch, examples=EXAMPLES, group="answer")
