"""The turns of one session, whatever its agent is: the one that runs, and what a worker before us left of one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from handraise.agents import Asker, Message, Reply, Start
from handraise.asks import Answer, Ask
from handraise.errors import AgentFailed, AlreadyAnswered, AskNotFound, AskWithdrawn, HandraiseError, Withdrawn
from handraise.tasks import Tasks
from handraise.text.inert import inert

__all__ = ["ABORTED", "LONGEST_WORDS", "Answered", "Prompt", "Turn", "Turns", "look_at"]

log = logging.getLogger(__name__)

ABORTED = "the turn was aborted"
LONGEST_WORDS = 1000  # of what an agent says about its own trouble

Answered: TypeAlias = tuple[Ask, Answer]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an agent is told."""

    text: str
    told: Sequence[str] = ()  # asks whose answers are in the text
    granted: Sequence[Answered] = ()  # calls it may make once without asking again


@dataclass(slots=True)
class Turn:
    """What runs between a prompt and its end."""

    reply: asyncio.Future[Reply]
    told: list[str] = field(default_factory=list)  # as in the prompt, until the agent has read it
    granted: list[Answered] = field(default_factory=list)  # as in the prompt, until it has made the call
    text: str = ""  # what the agent said last


class Turns:
    """Tells the desk which answers of a prompt the agent took, however the turn ends."""

    def __init__(self, *, name: str, asker: Asker, start: Start) -> None:
        """`name` is what sentences call the agent."""
        self.name = name
        self.turn: Turn | None = None  # the newest one, also when it is over
        self.turns = _count(start)  # that have ended
        self.idle = asyncio.Event()  # the agent is, whether or not somebody waits for the end of a turn
        self.recorded = {ask.id: ask for ask in (start.cut.asks if start.cut is not None else ())}
        self.is_aborting = self.is_over = False
        self.words = ""  # why it is over
        self._asker = asker
        self._start = start
        self._waits = Tasks()  # for the desk
        self._recalling: asyncio.Task[list[Answered]] | None = None
        self.idle.set()

    def new_turn(self, prompt: Prompt | None = None) -> Turn:
        """Raises AgentFailed where there can be none."""
        if self.is_over:
            raise AgentFailed(f"{self.name} has ended: {self.words}" if self.words else "the session is closed")
        if self.turn is not None and not self.turn.reply.done():
            raise AgentFailed(f"{self.name} is still busy with the turn before; wait for it, or abort it")
        self.idle.clear()
        self.turn = Turn(asyncio.get_running_loop().create_future())
        self.turn.reply.add_done_callback(look_at)
        if prompt is not None:
            self.turn.told += prompt.told
            self.turn.granted += prompt.granted
        return self.turn

    def read_prompt(self) -> None:
        """The agent speaks, or calls something, so it has read what it was told."""
        if self.turn is not None:
            told, self.turn.told = self.turn.told, []
            for id in told:
                self._asker.delivered(id)

    def take_granted(self, is_same: Callable[[Ask], bool]) -> Answered | None:
        """The grant of a call that was lost with its process, for the first one that is exactly the same."""
        granted = self.turn.granted if self.turn is not None else []
        for number, (ask, _) in enumerate(granted):
            if is_same(ask):
                return granted.pop(number)
        return None

    def finish(self, *, problem: str = "", text: str = "") -> None:
        """The turn is over, with this text or what was said last. `problem` is why it failed, in the agent's words."""
        self.turns += 1
        self.idle.set()
        self.lose_answers(
            f"the turn ended before {self.name} took it", unused=f"{self.name} did not make that call again"
        )
        if problem:
            words = inert(problem)[:LONGEST_WORDS]
            self.conclude(AgentFailed(f"{self.name} could not finish: {words}"))
        elif self.turn is not None:
            self.conclude(Reply(text=text or self.turn.text))

    def conclude(self, outcome: Reply | AgentFailed) -> None:
        """End the wait for the turn."""
        reply = self.turn.reply if self.turn is not None else None
        if reply is None or reply.done():
            return
        if self.is_aborting:
            return  # `abort` ends the wait, once nothing of the turn runs any more
        if isinstance(outcome, AgentFailed):
            reply.set_exception(outcome)
        else:
            reply.set_result(outcome)

    def lose_answers(self, problem: str, *, unused: str | None = None) -> None:
        """What the agent was told and has not read, it will not read any more."""
        if self.turn is None:
            return
        for id in self.turn.told:
            self._asker.delivered(id, error=problem)
        for ask, _ in self.turn.granted:
            self._asker.delivered(ask.id, error=unused or problem)
        self.turn.told.clear()
        self.turn.granted.clear()

    # What a worker before us left -----------------------------------------------------------------------------------

    @property
    def was_cut(self) -> bool:
        """Whether there is a turn to finish."""
        cut = self._start.cut
        return cut is not None and (cut.prompt is not None or bool(cut.asks))

    async def take_up(self, told_later: Callable[[Ask, Answer], str], *, is_new: bool = False) -> Prompt | None:
        """What the agent is told so that the turn goes on, once all of it is answered; None where there was none.

        `is_new`: the agent knows nothing of the conversation. Raises AgentFailed where the turn is lost.
        """
        cut, listener = self._start.cut, self._start.listener
        if cut is None or not self.was_cut:
            return None
        if is_new and cut.prompt is not None and not cut.asks:
            name = self.name[:1].upper() + self.name[1:]
            listener.said(Message(role="notice", text=f"{name} knows nothing of this turn; it begins again."))
            return Prompt(cut.prompt)
        if not cut.asks:
            raise AgentFailed(
                f"the worker before this one died in the middle of a turn, and {self.name} does not take that up by "
                "itself; prompt the session to go on"
            )
        answered = await self.recall(cut.asks)
        if not answered:
            raise AgentFailed(f"everything {self.name} had asked was withdrawn meanwhile; prompt the session to go on")
        lines = ["The session was interrupted before this reached you.", *(told_later(*each) for each in answered)]
        if is_new and cut.prompt is not None:
            lines.insert(0, cut.prompt)
        text = "\n".join(lines)
        listener.said(Message(role="notice", text=text))
        granted = [(ask, answer) for ask, answer in answered if ask.permission is not None and not answer.rejected]
        used = {ask.id for ask, _ in granted}
        return Prompt(text, told=[ask.id for ask, _ in answered if ask.id not in used], granted=granted)

    async def recall(self, asks: Sequence[Ask]) -> list[Answered]:
        """The answers to asks whose request is gone. Those that were withdrawn are left out.

        `stop_recalling` cancels it, and withdraws them.
        """
        self.recorded = {ask.id: ask for ask in asks}
        # All at once: one that is withdrawn while another is waited for would be raised anew if its turn came later.
        waits = [self._waits.start(self._answer_or_none(ask)) for ask in asks]
        self._recalling = self._waits.start(_all_of(asks, waits))
        try:
            answered = await self._recalling
        finally:
            for each in waits:
                each.cancel()
        self.recorded.clear()
        return answered

    async def _answer_or_none(self, ask: Ask) -> Answer | None:
        try:
            return await self._asker.ask(ask)
        except Withdrawn:
            return None

    async def let_go_of_recorded(self, *, reason: str) -> None:
        """Withdraw what the agent has not asked again."""
        recorded, self.recorded = self.recorded, {}
        for ask in recorded.values():
            with suppress(AskNotFound):
                await self.withdraw_ask(ask, reason=reason)

    async def stop_recalling(self, *, reason: str = ABORTED) -> None:
        """What was waited for on behalf of a request that is gone is withdrawn too."""
        if await self.cancel_recalling():
            await self.let_go_of_recorded(reason=reason)

    async def cancel_recalling(self) -> bool:
        """Whether there was something to cancel. Its asks stay open."""
        if self._recalling is None or self._recalling.done():
            return False
        self._recalling.cancel()
        await asyncio.wait([self._recalling])
        return True

    async def withdraw_ask(self, ask: Ask, *, reason: str, too_late: str = "", answer: Answer | None = None) -> None:
        """`too_late` is for whoever answered it first, `answer` is what was said in the agent. Raises AskNotFound."""
        try:
            await self._asker.withdraw(ask.id, reason=reason, answer=answer)
        except AlreadyAnswered:
            self._asker.delivered(ask.id, error=too_late or f"{reason} before {self.name} took the answer")
        except AskNotFound:
            raise
        except AskWithdrawn:
            return
        except HandraiseError as error:
            log.warning("ask %s of %s could not be withdrawn: %s", ask.id, self.name, error.code)


async def _all_of(asks: Sequence[Ask], waits: Sequence[asyncio.Task[Answer | None]]) -> list[Answered]:
    answers = await asyncio.gather(*waits)
    return [(ask, answer) for ask, answer in zip(asks, answers, strict=True) if answer is not None]


def _count(start: Start) -> int:
    turns = start.cut.handle.get("turns") if start.cut is not None else 0
    return turns if isinstance(turns, int) else 0


def look_at(done: asyncio.Future[Any]) -> None:
    """Nobody may wait for it any more, which is no reason to warn of an exception that nobody saw."""
    if not done.cancelled():
        done.exception()
