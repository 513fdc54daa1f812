"""Following a run until it has ended: its trace as lines, and on a terminal what waits for a person, asked right here.

What the agents ask and what checkpoints want takes its turn, first in first out, however many steps run side by side.
Without a terminal nobody is prompted, and the command leaves when nothing goes on without a person.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from handraise.asks import Ask
from handraise.channels.terminal import Terminal, wants_colour
from handraise.cli.calling import person, terminal_words
from handraise.cli.checkpoint_inbox import CheckpointInbox
from handraise.cli.following import Interrupts, first_of, stop
from handraise.cli.narrowed import SKIP, Narrowed
from handraise.cli.printing import command, cut, duration, how_to_answer, print_json, say
from handraise.client import Client
from handraise.text.inert import inert
from handraise.wire.plain import to_plain
from handraise.wire.runs import Checkpoint, Run
from handraise.workflow.trace import line

if TYPE_CHECKING:
    from rich.live import Live

__all__ = ["OPEN", "WAIT", "FollowedRun", "trace_of"]

FAILED, WAITING, INTERRUPTED = 1, 3, 130
WAIT = 50.0  # seconds one call is parked
OPEN = ("running", "waiting")
ENDS = ("run_completed", "run_failed", "run_cancelled")
TICK = 0.25  # seconds between two looks at what runs
LAST_WORDS = 0.3  # seconds in which the terminal may still say what became of what it asked


class TracePage(NamedTuple):
    events: list[dict[str, Any]]  # the oldest first
    next: str  # where to read on
    state: str  # of the run, as it was before they were read

    @property
    def is_last(self) -> bool:
        return not self.events and self.state not in OPEN


async def trace_of(client: Client, run: str, *, after: str = "", wait: float = 0.0) -> TracePage:
    """What happened; waits for the first of it."""
    page = await client.runs.trace(run, after=after, wait=wait)
    return TracePage(page["events"], page["next"], page["state"])


class FollowedRun:
    """One run and what becomes of it. With `stays` it is followed although nothing goes on without a person."""

    def __init__(
        self, client: Client, run: Run, *, as_json: bool, stays: bool, goes_on: str, full: bool = False
    ) -> None:
        """`goes_on` says what becomes of the run when nobody follows it any more; `full` is the terminal's mode."""
        self._client = client
        self._run = run
        self._as_json = as_json
        self._stays = stays
        self._goes_on = goes_on
        self._colour = wants_colour()
        self._running: dict[str, tuple[str, float]] = {}  # by step: its kind, and since when
        by_hand = not as_json and sys.stdin.isatty() and sys.stdout.isatty()
        self._progress = _Progress(self._running, is_shown=by_hand and os.environ.get("TERM") != "dumb")
        self._inbox = CheckpointInbox(
            client, Narrowed(client, run=run.id), listens=False, before=self._progress.hide, skip=SKIP[full]
        )
        self._terminal = (
            Terminal(
                by=person(),
                full=full,
                greets=False,
                tells=False,
                heading=self._inbox.heading,
                words=terminal_words(),
                out=self._print,
            )
            if by_hand
            else None
        )

    async def follow(self, *, leaving: asyncio.Task[None] | None = None) -> None:
        """Return when it is done. Leaves with 1 where it failed or was cancelled, with 3 where it waits for a person.

        Ctrl+C leaves; the run goes on without us. `leaving` is the desk in this process, where there is one.
        """
        if not self._as_json:
            self._note(f"run {self._id} of {self._run.workflow}")
        with Interrupts() as interrupts:
            ended = asyncio.create_task(self._until_ended())
            tasks: list[asyncio.Task[Any]] = [ended]
            if self._terminal is not None:
                tasks += [asyncio.create_task(self._terminal.run(self._inbox)), asyncio.create_task(self._draw())]
            gone = [] if leaving is None else [leaving]
            try:
                await first_of(*tasks, interrupts.next(), *gone)
                if ended.done() and self._terminal is not None:
                    await asyncio.wait(tasks[1:2], timeout=LAST_WORDS)
                for task in tasks[1:]:
                    if task.done() and not ended.done():
                        task.result()
                    await stop(task)
                self._progress.hide()
                if not ended.done():
                    await self._leave(desk_left=any(task.done() for task in gone))
                is_over = ended.result()
            finally:
                self._progress.hide()
                for task in tasks:
                    await stop(task)
        if not is_over:
            await self._say_what_waits()
            raise typer.Exit(WAITING)
        self._tell()

    @property
    def _id(self) -> str:
        return self._run.id

    async def _leave(self, *, desk_left: bool) -> None:
        say(f"handraise: run {self._id} {self._goes_on}; {command('runs', 'cancel', self._id)} ends it")
        if desk_left:
            raise typer.Exit(FAILED)
        raise typer.Exit(INTERRUPTED if self._inbox.is_empty else WAITING)

    # What happens ---------------------------------------------------------------------------------------------------

    async def _until_ended(self) -> bool:
        """Whether it has ended. False: nothing goes on without a person, and none is here."""
        after, is_stuck = "", False
        while True:
            page = await trace_of(self._client, self._id, after=after, wait=0.0 if is_stuck else WAIT)
            after = page.next
            for event in page.events:
                await self._hear(event)
            if page.is_last or (is_stuck and not page.events):
                break
            is_stuck = self._terminal is None and not self._stays and await self._is_stuck()
        self._inbox.withdraw()
        self._run = await self._client.runs.get(self._id)
        return page.is_last

    async def _hear(self, event: dict[str, Any]) -> None:
        step = event.get("step_id", "")
        match event["type"]:
            case "step_started":
                self._running[step] = (str(event.get("kind", "")), time.monotonic())
            case "step_completed" | "step_failed":
                self._running.pop(step, None)
            case _ if event["type"] in ENDS:
                self._running.clear()
        if self._as_json:
            print_json(event)
        else:
            self._note(line(event, color=self._colour, zone=None))
        if self._terminal is not None and event["type"] in ("checkpoint_waiting", "checkpoint_given"):
            await self._inbox.look_at(event["checkpoint_id"])

    async def _is_stuck(self) -> bool:
        """Whether every step that runs waits for a person, and no deadline will answer instead."""
        asks, checkpoints = await self._waiting()
        waiting = {ask.origin.step for ask in asks if ask.deadline is None} | {told.step for told in checkpoints}
        return bool(waiting) and self._running.keys() <= waiting

    async def _waiting(self) -> tuple[list[Ask], tuple[Checkpoint, ...]]:
        asks = [ask async for ask in self._client.asks(state="asked", run=self._id)]
        return asks, await self._client.checkpoints.list(run=self._id, state="open")

    # What is said ---------------------------------------------------------------------------------------------------

    def _print(self, text: str) -> None:
        self._progress.hide()
        print(text, flush=True)

    def _note(self, text: str) -> None:
        """A line of what happens: at once, or after the turn that somebody has at the prompt."""
        if self._terminal is None:
            self._print(text)
        else:
            self._terminal.note(text)

    async def _draw(self) -> None:
        """Keep what runs in sight, while nobody is asked anything."""
        assert self._terminal is not None
        while True:
            if self._inbox.is_empty and not self._terminal.is_prompting:
                self._progress.show()
            await asyncio.sleep(TICK)

    async def _say_what_waits(self) -> None:
        asks, checkpoints = await self._waiting()
        for ask in asks:
            say(f"{ask.origin.step or ask.origin.agent} asks: {ask.title} · {how_to_answer(ask)}")
        for told in checkpoints:
            say(f"{told.step} waits for you · {command('runs', 'checkpoint', told.id)}")
        say(f"handraise: run {self._id} waits for a person and {self._goes_on}")
        if self._as_json:
            print_json(to_plain(self._run))

    def _tell(self) -> None:
        """How it ended, and what came of it."""
        state, output = self._run.state, self._run.output
        if self._as_json:
            print_json(to_plain(self._run))
        elif state == "done" and output is not None:
            print(inert(output if isinstance(output, str) else json.dumps(output, indent=2, ensure_ascii=False)))
        if state == "done":
            return
        if state == "parked":
            say(f"handraise: run {self._id} is parked: {self._run.error}")
        say(f"handraise: run {self._id} is {state}; {command('runs', 'retry', self._id)} goes on where it stopped")
        raise typer.Exit(FAILED)


class _Progress:
    """The steps that run, redrawn in place under the lines. It is hidden before anything else is printed."""

    def __init__(self, running: dict[str, tuple[str, float]], *, is_shown: bool) -> None:
        self._running = running
        self._is_shown = is_shown
        self._live: Live | None = None
        self._frame = 0

    def show(self) -> None:
        if not self._is_shown:
            return
        if not self._running:
            self.hide()
            return
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            console = Console(highlight=False, markup=False)
            self._live = Live(
                console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        from rich.text import Text

        self._frame += 1
        self._live.update(Text("\n".join(self._lines())), refresh=True)

    def hide(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _lines(self) -> list[str]:
        wheel = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"[self._frame % 10]
        columns = shutil.get_terminal_size().columns
        return [
            cut(f"  {wheel} {inert(step, keep='')} · {kind} · {duration(time.monotonic() - since)}", columns - 1)
            for step, (kind, since) in self._running.items()
        ]
