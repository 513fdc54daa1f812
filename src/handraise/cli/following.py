"""Following a session until its turn has ended, for the commands that tell it something.

What it says is printed as it comes. What it asks is answered right here where this is a terminal; elsewhere a line says
how to answer it.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Self

import typer

from handraise.asks import Ask
from handraise.channels.terminal import Terminal
from handraise.cli.calling import person, terminal_words, wants_full
from handraise.cli.narrowed import Narrowed
from handraise.cli.printing import command, cut, how_to_answer, print_json, say
from handraise.client import Client
from handraise.errors import CursorTooOld, HandraiseError
from handraise.events import Asked
from handraise.text.inert import inert
from handraise.wire.plain import to_plain
from handraise.wire.sessions import Message, Session

__all__ = ["Followed", "Interrupts", "first_of", "messages_of", "newest_message", "stop"]

FAILED, INTERRUPTED = 1, 130
WAIT = 50.0  # seconds one call is parked
BUSY = ("running", "waiting")
LAST_WORDS = 0.3  # seconds in which the terminal may still say what became of the last ask


class Followed:
    """One session and what came of it. `prompt` is what it was told from here; `after` is the last message before."""

    def __init__(
        self,
        client: Client,
        session: Session,
        *,
        prompt: str,
        as_json: bool,
        after: str = "",
        full: bool | None = None,
    ) -> None:
        self._client = client
        self._session = session
        self._prompt = prompt
        self._after = after
        self._as_json = as_json
        self._by_hand = not as_json and sys.stdin.isatty() and sys.stdout.isatty()
        self._terminal = (
            Terminal(by=person(), full=wants_full(full), greets=False, words=terminal_words(), out=_print)
            if self._by_hand
            else None
        )
        self._text: str | None = None  # what the agent said last
        self._is_held = False  # and nobody was shown it yet
        self._broken = False  # the last turn was aborted or failed

    async def follow(self, *, leaving: asyncio.Task[None] | None = None) -> None:
        """Return when the turn has ended as it should. Leaves with 1 where it was aborted or failed.

        Ctrl+C aborts the turn, a second one leaves at once. `leaving` is the desk in this process, where there is one.
        """
        self._say(f"session {self._id} of {self._session.agent}")
        with Interrupts() as interrupts:
            ended = asyncio.create_task(self._until_ended())
            asking = asyncio.create_task(self._show_asks())
            tasks = [ended, asking]
            gone = [] if leaving is None else [leaving]
            try:
                await first_of(ended, asking, interrupts.next(), *gone)
                if asking.done() and not ended.done():
                    asking.result()
                if ended.done() and self._by_hand:
                    await asyncio.wait([asking], timeout=LAST_WORDS)
                await stop(asking)
                if not ended.done() and not any(task.done() for task in gone):
                    interrupts.listen()  # the prompt took our handler along when it ended
                    tasks.append(asyncio.create_task(self._abort()))
                    await first_of(ended, interrupts.next(), *gone)
                if not ended.done():
                    self._leave(desk_left=any(task.done() for task in gone))
                ended.result()
            finally:
                for task in tasks:
                    await stop(task)
        self._tell()

    def _leave(self, *, desk_left: bool) -> None:
        if not desk_left:
            raise typer.Exit(INTERRUPTED)
        say(f"handraise has left; session {self._id} goes on when a desk runs here again: {command('serve')}")
        raise typer.Exit(FAILED)

    async def _abort(self) -> None:
        say("handraise: aborting the turn; Ctrl+C again leaves at once")
        with suppress(HandraiseError):  # it may have ended just now
            await self._client.sessions.abort(self._id)

    @property
    def _id(self) -> str:
        return self._session.id

    # What it says -----------------------------------------------------------------------------------------

    async def _until_ended(self) -> None:
        reading = asyncio.create_task(self._read_on())
        try:
            while self._session.state in BUSY:
                self._session = await self._client.sessions.get(self._id, wait=WAIT)
        finally:
            await stop(reading)
        async for message in self._messages():
            self._hear(message)

    async def _read_on(self) -> None:
        """Hear what is said, until cancelled."""
        while True:
            async for message in self._messages(wait=WAIT):
                self._hear(message)

    async def _messages(self, *, wait: float = 0.0) -> AsyncIterator[Message]:
        """Those that were not heard yet; waits for the first of them."""
        async for message in messages_of(self._client, self._id, after=self._after, wait=wait):
            self._after = message.id
            yield message

    def _hear(self, message: Message) -> None:
        text, extra = message.text, message.extra or {}
        match message.role:
            case "person":
                self._broken = False
                if text != self._prompt:
                    self._say(f"somebody said: {text}")
            case "agent":
                self._show_held()
                self._text = text
                if self._terminal is not None:
                    self._terminal.note(inert(text))
                else:
                    self._is_held = True  # if it was the last, it goes to where the output goes
            case "tool":
                self._show_held()
                self._say(f"· {text or extra.get('name') or 'a tool'}")
            case _:
                self._broken = self._broken or "turn" in extra
                self._say(f"handraise: {text}")

    def _show_held(self) -> None:
        if self._is_held and self._text is not None:
            print(inert(self._text), file=sys.stderr, flush=True)
        self._is_held = False

    def _say(self, line: str) -> None:
        """A line beside what the agent says."""
        if self._terminal is None:
            say(line)
        else:
            self._terminal.note(cut(inert(line, keep=""), shutil.get_terminal_size().columns))

    def _tell(self) -> None:
        """How it ended, and what the agent said last where nobody saw that yet."""
        if self._as_json:
            print_json({**to_plain(self._session), "text": self._text})
        elif self._terminal is None and self._text is not None:
            print(inert(self._text) if sys.stdout.isatty() else self._text, flush=True)
        state, error = self._session.state, self._session.error
        if state == "failed" and not self._broken:
            say(f"handraise: {error or 'the session failed'}")
        if state != "done" and self._terminal is not None:
            say(f"go on with it: {command('sessions', 'prompt', self._id)} …")
        if self._broken or state == "failed":
            raise typer.Exit(FAILED)

    # What it asks -----------------------------------------------------------------------------------------

    async def _show_asks(self) -> None:
        """Those of the session and its subagents. Returns when the person at the terminal wants to quit."""
        inbox = Narrowed(self._client, only=self._is_ours)
        if self._terminal is not None:
            await self._terminal.run(inbox)
            return
        shown: set[str] = set()
        while True:
            before = await inbox.cursor()
            async for ask in inbox.asks(state="asked"):
                if ask.id not in shown:
                    _point_out(ask)
                shown.add(ask.id)
            with suppress(CursorTooOld):  # we slept longer than the desk keeps events
                async for event in inbox.events(after=before):
                    if isinstance(event, Asked) and event.ask.state == "asked" and event.ask.id not in shown:
                        _point_out(event.ask)
                        shown.add(event.ask.id)
                    elif event.ask.state != "asked":
                        shown.discard(event.ask.id)

    def _is_ours(self, ask: Ask) -> bool:
        return self._id in (ask.origin.session, ask.origin.parent)


def _point_out(ask: Ask) -> None:
    say(f"{ask.origin.agent} asks: {ask.title} · {how_to_answer(ask)}")


def _print(text: str) -> None:
    print(text, flush=True)


async def newest_message(client: Client, session: str) -> str:
    """The id of what was said last; nothing where nothing was said."""
    page = (await client.sessions.messages(session, before="", limit=1)).messages
    return page[0].id if page else ""


async def messages_of(client: Client, session: str, *, after: str = "", wait: float = 0.0) -> AsyncIterator[Message]:
    """What was said in a session, the oldest first; waits for the first of them."""
    while True:
        page = (await client.sessions.messages(session, after=after, wait=wait)).messages
        for message in page:
            after = message.id
            yield message
        if not page:
            return
        wait = 0.0


async def first_of(*tasks: asyncio.Task[Any]) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def stop(task: asyncio.Task[Any]) -> None:
    """Cancel it and wait for its end. Where it had failed by itself, that was said or does not matter any more."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


class Interrupts:
    """Ctrl+C as something to wait for, while the context is open."""

    def __init__(self) -> None:
        self._pressed: asyncio.Queue[None] = asyncio.Queue()
        self._waiting: list[asyncio.Task[None]] = []

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        for waiting in self._waiting:
            waiting.cancel()

    def listen(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self.press)

    def press(self) -> None:
        """What Ctrl+C does, for a terminal that takes it as a key."""
        self._pressed.put_nowait(None)

    def next(self) -> asyncio.Task[None]:
        """Ends when Ctrl+C is pressed, once more than at the call before."""
        for waiting in self._waiting:
            if not waiting.done():
                return waiting
        self._waiting.append(asyncio.create_task(self._pressed.get()))
        return self._waiting[-1]
