"""A person who knows beforehand what to say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from handraise.asks import Answer, Ask
from handraise.channels import Inbox
from handraise.errors import AlreadyAnswered, AskWithdrawn, RunEnded
from handraise.events import Asked

if TYPE_CHECKING:
    from handraise.clock import Clock
    from handraise.workflow.journal import Journal

__all__ = ["ScriptedPerson"]


class _Line(NamedTuple):
    pattern: re.Pattern[str]
    answer: Answer


class ScriptedPerson:
    """A channel that answers what it has a line for and leaves the rest open.

    A pattern is looked for in header and text of each question, and in summary, command and tool of a permission.
    The first line that matches speaks. `seen` has every ask that was open when the person saw it. At a checkpoint of
    a workflow the person gives what `on_checkpoint` says.
    """

    def __init__(self, *, by: str = "person", via: str = "script") -> None:
        self.seen: list[Ask] = []
        self._by = by
        self._via = via
        self._lines: list[_Line] = []
        self._outputs: dict[str, Any] = {}  # by the step
        self._decided = asyncio.Event()
        self._open: dict[str, Ask] = {}
        self._changed = asyncio.Condition()
        self._news = asyncio.Event()

    def on(
        self,
        pattern: str | re.Pattern[str],
        answers: Sequence[Sequence[str]] | None = None,
        *,
        reply: str | None = None,
        reject: str | None = None,
    ) -> Self:
        """Say `answers` (a list per question), give a permission the `reply`, or `reject` with that reason.

        Also counts for what is open already.
        """
        if [answers, reply, reject].count(None) != 2:
            raise TypeError("give one of: answers, reply, reject")
        answer = Answer(
            answers=None if answers is None else tuple(tuple(values) for values in answers),
            reply=reply,
            rejected=reject is not None,
            reason=reject or None,
            by=self._by,
            via=self._via,
        )
        self._lines.append(_Line(re.compile(pattern), answer))
        self._news.set()
        return self

    def on_checkpoint(self, step: str, output: Any) -> Self:
        """Give this at the checkpoint of that name. Also counts for one that waits already."""
        self._outputs[step] = output
        self._decided.set()
        return self

    @property
    def open(self) -> list[Ask]:
        """What the person sees waiting, oldest first."""
        return list(self._open.values())

    async def sees(self, pattern: str | re.Pattern[str]) -> Ask:
        """The first ask seen that matches; waits for it."""
        wanted = re.compile(pattern)

        def found() -> Ask | None:
            return next((ask for ask in self.seen if _matches(wanted, ask)), None)

        await self.until(lambda: found() is not None)
        ask = found()
        assert ask is not None
        return ask

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until a look at `seen` or `open` finds that it happened."""
        async with self._changed:
            await self._changed.wait_for(happened)

    async def run(self, inbox: Inbox) -> None:
        """Look and speak until cancelled. An answer that does not fit ends it with AnswerDoesNotFit."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look(inbox))
            tasks.create_task(self._speak(inbox))

    async def decide(self, journal: Journal, *, clock: Clock) -> None:
        """Give what is known at checkpoints until cancelled. What does not fit ends it with OutputDoesNotFit."""
        async with journal.changes() as self._decided:
            while True:
                self._decided.clear()
                for checkpoint in await journal.checkpoints():
                    if checkpoint.step in self._outputs:
                        output = self._outputs[checkpoint.step]
                        with suppress(RunEnded):  # somebody was faster, or nobody waits
                            await journal.give(checkpoint.id, output, by=self._by, via=self._via, at=clock.now())
                await self._decided.wait()

    async def _look(self, inbox: Inbox) -> None:
        after = await inbox.cursor()
        async for ask in inbox.asks(state="asked"):
            await self._see(ask)
        async for event in inbox.events(after=after):
            if isinstance(event, Asked):
                await self._see(await inbox.get(event.ask.id))  # policy may have been faster
            elif event.ask.state != "asked":
                await self._see(event.ask)

    async def _see(self, ask: Ask) -> None:
        async with self._changed:
            if ask.state != "asked":
                self._open.pop(ask.id, None)
            elif ask.id not in self._open:
                self.seen.append(ask)
                self._open[ask.id] = ask
                self._news.set()
            self._changed.notify_all()

    async def _speak(self, inbox: Inbox) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            for ask in self.open:
                line = next((line for line in self._lines if _matches(line.pattern, ask)), None)
                if line is not None:
                    await self._say(inbox, ask, line.answer)

    async def _say(self, inbox: Inbox, ask: Ask, answer: Answer) -> None:
        try:
            if answer.rejected:
                await inbox.reject(ask.id, reason=answer.reason, by=answer.by, via=answer.via)
            else:
                await inbox.answer(ask.id, answer)
        except (AlreadyAnswered, AskWithdrawn):
            return  # somebody was faster, or nobody waits; its event says so too


def _matches(pattern: re.Pattern[str], ask: Ask) -> bool:
    return any(pattern.search(text) for text in _texts(ask))


def _texts(ask: Ask) -> Iterator[str]:
    for question in ask.questions:
        yield question.header
        yield question.question
    if ask.permission is not None:
        yield ask.permission.summary
        yield ask.permission.command or ""
        yield ask.permission.tool
