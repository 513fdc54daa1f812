"""One run of the terminal: keeps up with the desk, and gives one ask after the other its turn at the prompt."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, Self

from handraise.asks import Answer, Ask
from handraise.channels import Inbox
from handraise.channels.terminal.drawing import lost_line, on_our_clock, record_line, undelivered_line, unseen_line
from handraise.channels.terminal.endings import GONE, Elsewhere, Later, Left, Over
from handraise.errors import AnswerDoesNotFit, AskNotFound, CursorTooOld, HandraiseError
from handraise.events import Asked, DeadlineMoved, Delivered, Event, Unseen
from handraise.text.inert import inert
from handraise.text.words import Words

__all__ = ["Begin", "Hands", "Sitting", "Turn"]

TWICE = 2.0  # seconds in which a second Ctrl+C quits
HANDS_OFF = 0.7  # seconds in which keys do nothing after a prompt closed by itself: they were meant for that one


class Turn(Protocol):
    """One ask in front of the person, for as long as the context is open."""

    ask: Ask  # as it is now

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    @property
    def typed(self) -> list[str]:
        """What the person entered so far."""

    async def hear(self) -> Answer:
        """What the person says; called again where that did not do.

        Raises Over, Left, Later, Elsewhere or EOFError where the turn ends otherwise, and one of GONE where the desk
        said so meanwhile.
        """

    def refuse(self, *problems: str, question: int | None = None) -> None:
        """Say why what the person said did not do."""

    def change(self, ask: Ask) -> None:
        """The ask is this now. The turn is over with it, or tells the new deadline if that moved."""

    def end(self) -> None:
        """The desk is gone."""

    def title(self) -> list[str]:
        """What it was about, for a log that does not have the card."""

    def bar(self) -> list[str]:
        """What ends the card, where that was printed."""


class Hands(Protocol):
    """The keyboard between turns, and what the terminal can do beside them."""

    @property
    def prints_beside(self) -> bool:
        """Whether a line may be printed while somebody has a turn."""

    def ring(self, ask: Ask) -> None: ...

    def tell_waiting(self, count: int) -> None:
        """So many others wait."""

    def discard(self) -> None:
        """Forget what was typed so far: it was not meant for what is shown next."""

    def forget(self, id: str) -> None:
        """An ask that is over needs no draft."""

    async def idle(self, news: asyncio.Event, *, at_most: float | None = None, kept: int = 0) -> int:
        """Wait for news, or for the person to want one of those `kept` for later: so many steps further, or back."""


class Begin(Protocol):
    def __call__(self, ask: Ask, *, heading: str) -> Turn: ...


class Sitting:
    """Without hands it prints a line for whatever happens, and that is all.

    It decides whose turn it is and tells the desk what was said, however the turn is drawn.
    """

    def __init__(
        self,
        inbox: Inbox,
        hands: Hands | None,
        *,
        t: Words,
        by: str,
        rings: bool,
        greets: bool,
        colour: bool,
        out: Callable[[str], None],
        tells: bool = True,
        stays: bool = True,
        heading: Callable[[Ask], str] = lambda ask: "",
    ) -> None:
        self._inbox = inbox
        self._hands = hands
        self._t = t
        self._by = by
        self._rings = rings
        self._greets = greets
        self._colour = colour
        self._out = out
        self._tells = tells
        self._stays = stays
        self._heading = heading
        self.has_quit = False  # the person wants to do something else altogether
        self._open: dict[str, Ask] = {}  # in the order in which they came
        self._left: set[str] = set()  # those of them the person did not want to answer now
        self._left_at = -math.inf
        self._wanted: str | None = None  # the one that the person wants to see next
        self._turn: Turn | None = None
        self._held: list[str] = []  # lines that would have torn the card of the turn
        self._news = asyncio.Event()
        self._desk_closed = False
        self._has_listed = False

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
        self._has_listed = True
        if not self._stays:
            self._news.set()

    def _greeting(self, listed: list[Ask]) -> list[str]:
        if self._hands is None:
            return [self._line(ask) for ask in listed]
        if listed:
            return [self._t("terminal.greeting", count=len(listed))]
        return [self._t("terminal.nothing")]

    async def _look_again(self, listed: list[Ask]) -> None:
        waiting = {ask.id for ask in listed}
        for id, known in list(self._open.items()):
            if id not in waiting:
                try:
                    self._closed(await self._inbox.get(id))
                except AskNotFound:
                    forgotten = self._t("terminal.lost.forgotten")
                    self._closed(replace(known, state="withdrawn", withdrawn_reason=forgotten))
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
                if self._hands is not None and self._rings:
                    self._hands.ring(ask)
            case DeadlineMoved() if ask.id in self._open:
                self._open[ask.id] = on_our_clock(ask)
                if self._turn is not None and self._turn.ask.id == ask.id:
                    self._turn.change(self._open[ask.id])
            case Unseen() if ask.id in self._open:
                self.note(unseen_line(ask, colour=self._colour, t=self._t))
            case Delivered() if ask.delivery_error is not None:
                self.note(undelivered_line(ask, colour=self._colour, t=self._t))

    def _opened(self, ask: Ask) -> None:
        self._open[ask.id] = on_our_clock(ask)
        self._news.set()
        self._count()

    def _closed(self, ask: Ask) -> None:
        del self._open[ask.id]
        self._left.discard(ask.id)
        if self._hands is not None:
            self._hands.forget(ask.id)
        self._count()
        if self._turn is not None and self._turn.ask.id == ask.id:
            self._turn.change(ask)
        else:
            self._record(ask)

    def _record(self, ask: Ask) -> None:
        is_shown = (
            ask.state == "asked" and self._hands is not None and self._hands.prints_beside
        )  # as a card, or counted
        if self._tells and not is_shown:
            self.note(self._line(ask))

    def _line(self, ask: Ask) -> str:
        return record_line(ask, colour=self._colour, heading=self._heading(ask), t=self._t)

    def _count(self) -> None:
        if self._hands is not None and self._turn is not None:
            self._hands.tell_waiting(sum(id not in self._left and id != self._turn.ask.id for id in self._open))

    def note(self, *lines: str) -> None:
        """Print it now, or after the turn that somebody has where it would tear the card."""
        self._held += lines
        if self._held and (self._turn is None or (self._hands is not None and self._hands.prints_beside)):
            self._print(*self._held)
            self._held.clear()

    def _print(self, *lines: str) -> None:
        self._out("\n".join(lines))

    @property
    def has_turn(self) -> bool:
        """Whether somebody is at the prompt."""
        return self._turn is not None

    # What the person does ---------------------------------------------------------------------------------

    async def serve(self, hands: Hands, begin: Begin) -> None:
        """Give one ask after the other its turn, until the person quits or the desk closes; where it does not stay,
        until each that was open has had its turn.
        """
        try:
            while not self._desk_closed:
                self._news.clear()
                ask = self._next_ask()
                if ask is not None:
                    await self._give_turn(begin(ask, heading=self._heading(ask)), hands)
                elif self._has_listed and not self._stays:
                    return
                elif steps := await hands.idle(self._news, kept=len(self._open)):
                    self._go(steps)
        except EOFError:
            self.has_quit = True
        if self._desk_closed:
            self._print(self._t("terminal.closed"))
        elif self._open:
            self._print(self._t("terminal.still", count=len(self._open)))

    def _next_ask(self) -> Ask | None:
        wanted, self._wanted = self._wanted, None
        if wanted in self._open:
            return self._open[wanted]
        return next((ask for id, ask in self._open.items() if id not in self._left), None)

    def _go(self, steps: int, *, at: str | None = None) -> None:
        """The person wants another one, counted from where they are."""
        ids = list(self._open)
        if ids:
            here = ids.index(at) if at in self._open else (-1 if steps > 0 else 0)
            self._wanted = ids[(here + steps) % len(ids)]

    async def _give_turn(self, turn: Turn, hands: Hands) -> None:
        hands.discard()
        self._turn = turn
        self._count()
        try:
            async with turn:
                ended = await self._settle(turn)
        except Over:
            self._lost(turn)
            if not self._desk_closed:
                await hands.idle(asyncio.Event(), at_most=HANDS_OFF)
        except GONE as gone:
            await self._beaten(turn, gone)
        except Left:
            self._leave(turn)
        except Later:
            self._left.add(turn.ask.id)
        except Elsewhere as elsewhere:
            self._go(elsewhere.steps, at=turn.ask.id)
        else:
            self._print(*turn.bar(), *([*turn.title(), self._line(ended)] if self._tells else []))
            self._open.pop(turn.ask.id, None)
            hands.forget(turn.ask.id)
        finally:
            self._turn = None
            self.note()

    async def _settle(self, turn: Turn) -> Ask:
        """Ask the person, and again until the desk takes what they say; the ask as it then is."""
        while True:
            said = replace(await turn.hear(), by=self._by, via="terminal")
            try:
                if said.rejected:
                    return await self._inbox.reject(turn.ask.id, reason=said.reason, by=said.by, via=said.via)
                return await self._inbox.answer(turn.ask.id, said)
            except GONE:
                raise
            except AnswerDoesNotFit as misfit:
                first = next((each["question"] for each in misfit.problems if each.get("question") is not None), None)
                turn.refuse(*(inert(each["problem"], keep="") for each in misfit.problems), question=first)
            except HandraiseError as failure:
                turn.refuse(self._t("error.sendFailed", reason=inert(str(failure), keep="")))

    def _lost(self, turn: Turn) -> None:
        """Somebody was faster, or nobody waits any more. What was typed is printed, so that it is not lost."""
        if turn.ask.state != "asked":
            self._print(*turn.title(), lost_line(turn.ask, t=self._t))
        draft = [text for text in turn.typed if text.strip()]
        if draft:
            self._print(self._t("terminal.lost.draft"), *map(inert, draft))
        if bar := turn.bar():
            self._print(*bar)

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
        self._print(self._t("terminal.left"), *turn.bar())
