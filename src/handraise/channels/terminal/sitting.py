"""One run of the terminal: keeps up with the desk, and gives one ask after the other its turn at the prompt."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from handraise.asks import Ask
from handraise.channels import Inbox
from handraise.channels.terminal.drawing import lost_line, on_our_clock, record_line, undelivered_line
from handraise.channels.terminal.keyboard import Keyboard, Left
from handraise.channels.terminal.turn import GONE, Over, Turn
from handraise.errors import AskNotFound, CursorTooOld, HandraiseError
from handraise.events import Asked, DeadlineMoved, Delivered, Event
from handraise.inert import inert

__all__ = ["Sitting"]

TWICE = 2.0  # seconds in which a second Ctrl+C quits
HANDS_OFF = 0.7  # seconds in which keys do nothing after a prompt closed by itself: they were meant for that one


class Sitting:
    """Without a keyboard it prints a line for whatever happens, and that is all."""

    def __init__(
        self,
        inbox: Inbox,
        keyboard: Keyboard | None,
        *,
        by: str,
        rings: bool,
        greets: bool,
        colour: bool,
        out: Callable[[str], None],
        tells: bool = True,
        heading: Callable[[Ask], str] = lambda ask: "",
    ) -> None:
        self._inbox = inbox
        self._keyboard = keyboard
        self._by = by
        self._rings = rings
        self._greets = greets
        self._colour = colour
        self._out = out
        self._tells = tells
        self._heading = heading
        self._open: dict[str, Ask] = {}  # in the order in which they came
        self._left: set[str] = set()  # those of them the person did not want to answer now
        self._left_at = -math.inf
        self._turn: Turn | None = None
        self._held: list[str] = []  # lines that would have torn the card of the turn
        self._news = asyncio.Event()
        self._desk_closed = False

    # What the desk tells ----------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Keep up with the desk until it closes."""
        before = await self._inbox.cursor()
        self._greet([ask async for ask in self._inbox.asks(state="asked")])
        while True:
            try:
                async for event in self._inbox.events(after=before):
                    self._tell(event)
                break
            except CursorTooOld:  # we slept longer than the desk keeps events
                before = await self._inbox.cursor()
                await self._look_again([ask async for ask in self._inbox.asks(state="asked")])
        self._desk_closed = True
        self._news.set()
        if self._turn is not None:
            self._turn.end()

    def _greet(self, listed: list[Ask]) -> None:
        if self._greets:
            self.note(*self._greeting(listed))
        for ask in listed:
            self._opened(ask)

    def _greeting(self, listed: list[Ask]) -> list[str]:
        if self._keyboard is None:
            return [record_line(ask, colour=self._colour) for ask in listed]
        if listed:
            return [f"{len(listed)} waiting. `:?` at a prompt explains it."]
        return ["Nothing is waiting for you. Ctrl+C quits."]

    async def _look_again(self, listed: list[Ask]) -> None:
        waiting = {ask.id for ask in listed}
        for id, known in list(self._open.items()):
            if id not in waiting:
                try:
                    self._closed(await self._inbox.get(id))
                except AskNotFound:
                    self._closed(replace(known, state="withdrawn", withdrawn_reason="the desk no longer keeps it"))
        for ask in listed:
            if ask.id not in self._open:
                self._opened(ask)
                self._record(ask)

    def _tell(self, event: Event) -> None:
        ask = event.ask
        match event:
            case _ if ask.state != "asked" and ask.id in self._open:  # also by an event we do not know
                self._closed(ask)
            case Asked() if ask.id not in self._open:
                self._opened(ask)
                self._record(ask)
                if self._keyboard is not None and self._rings:
                    self._keyboard.bell()
            case DeadlineMoved() if ask.id in self._open:
                self._open[ask.id] = on_our_clock(ask)
                if self._turn is not None and self._turn.ask.id == ask.id:
                    self._turn.change(self._open[ask.id])
            case Delivered() if ask.delivery_error is not None:
                self.note(undelivered_line(ask, colour=self._colour))

    def _opened(self, ask: Ask) -> None:
        self._open[ask.id] = on_our_clock(ask)
        self._news.set()
        self._count()

    def _closed(self, ask: Ask) -> None:
        del self._open[ask.id]
        self._left.discard(ask.id)
        self._count()
        if self._turn is not None and self._turn.ask.id == ask.id:
            self._turn.change(ask)
        else:
            self._record(ask)

    def _record(self, ask: Ask) -> None:
        if self._tells:
            self.note(record_line(ask, colour=self._colour))

    def _count(self) -> None:
        if self._keyboard is not None and self._turn is not None:
            self._keyboard.tell_waiting(sum(id not in self._left and id != self._turn.ask.id for id in self._open))

    def note(self, *lines: str) -> None:
        """Print it now, or after the turn that somebody has."""
        self._held += lines
        if self._held and self._turn is None:
            self._print(*self._held)
            self._held.clear()

    def _print(self, *lines: str) -> None:
        self._out("\n".join(lines))

    @property
    def has_turn(self) -> bool:
        """Whether somebody is at the prompt."""
        return self._turn is not None

    # What the person does ---------------------------------------------------------------------------------

    async def serve(self, keyboard: Keyboard) -> None:
        """Give one ask after the other its turn, until the person quits or the desk closes."""
        with suppress(EOFError):
            while not self._desk_closed:
                self._news.clear()
                ask = self._next_ask()
                if ask is None:
                    await keyboard.idle(self._news)
                else:
                    await self._give_turn(ask, keyboard)
        if self._desk_closed:
            self._print("The desk has closed.")
        elif self._open:
            self._print(f"{len(self._open)} still waiting on the desk.")

    def _next_ask(self) -> Ask | None:
        return next((ask for id, ask in self._open.items() if id not in self._left), None)

    async def _give_turn(self, ask: Ask, keyboard: Keyboard) -> None:
        keyboard.discard()
        turn = self._turn = Turn(
            ask,
            inbox=self._inbox,
            keyboard=keyboard,
            by=self._by,
            colour=self._colour,
            out=self._out,
            heading=self._heading(ask),
        )
        self._count()
        try:
            ended = await turn.take()
        except Over:
            self._lost(turn)
            if not self._desk_closed:
                await keyboard.idle(asyncio.Event(), at_most=HANDS_OFF)
        except GONE as gone:
            await self._beaten(turn, gone)
        except Left:
            self._leave(turn)
        else:
            self._print(turn.card.bar(), *([record_line(ended, colour=self._colour)] if self._tells else []))
            self._open.pop(ask.id, None)
        finally:
            self._turn = None
            self.note()

    def _lost(self, turn: Turn) -> None:
        """Somebody was faster, or nobody waits any more. What was typed is printed, so that it is not lost."""
        if turn.ask.state != "asked":
            self._print(lost_line(turn.ask))
        draft = [text for text in turn.typed if text.strip()]
        if draft:
            self._print("Your draft was not sent:", *map(inert, draft))
        self._print(turn.card.bar())

    async def _beaten(self, turn: Turn, gone: HandraiseError) -> None:
        """The desk did not take the answer; it says best what happened instead."""
        self._open.pop(turn.ask.id, None)
        try:
            turn.ask = await self._inbox.get(turn.ask.id)
        except HandraiseError:
            self._print(inert(str(gone), keep=""))
        self._lost(turn)

    def _leave(self, turn: Turn) -> None:
        before, self._left_at = self._left_at, asyncio.get_running_loop().time()
        if self._left_at - before < TWICE:
            raise EOFError
        self._left.add(turn.ask.id)
        self._print("Left unanswered; it stays open on the desk. Ctrl+C again quits.", turn.card.bar())
