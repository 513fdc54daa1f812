"""One conversation with a program of its own: its turn, what the agent asked and waits for, and a sure end.

An adapter owns a `Conversation` and keeps what differs: how a turn begins, what goes over the wire, and what shows that
an answer was taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from handraise.agents import Asker, Listener, Message, Reply, Start, Wire
from handraise.asks import Answer, Ask, Origin
from handraise.errors import (
    AgentFailed,
    AlreadyAnswered,
    AskNotFound,
    HandraiseError,
    Overloaded,
    ProcessFailed,
    Withdrawn,
)
from handraise.text.inert import inert
from handraise.transports.jsonrpc import Seen
from handraise.transports.process import Process

__all__ = [
    "ABORTED",
    "LONGEST_WORDS",
    "MOST_OPEN",
    "STOP",
    "Conversation",
    "Held",
    "Prompt",
    "Turn",
    "origin_of",
    "request_key",
    "seen_by",
]

log = logging.getLogger(__name__)

ABORTED = "the turn was aborted"
STOP = 15.0  # seconds for a program to stop when told to
MOST_OPEN = 200  # requests that wait at once; nobody could look through more, and an agent's own limit is far below
LONGEST_WORDS = 1000  # of what an agent says about its own trouble

Id: TypeAlias = int | str
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


@dataclass(slots=True, kw_only=True)
class Held:
    """A request of the agent that waits for us. An adapter adds what it takes to answer it."""

    ask: Ask | None = None  # once it is known
    waiting: asyncio.Future[Answer] | None = None  # for the desk
    task: asyncio.Task[Any] | None = None  # what works on the request and ends when nobody waits for it any more


H = TypeVar("H", bound=Held)


class Conversation(Generic[H]):
    """Tells the desk what becomes of every ask, whichever way a request, a turn or the program ends."""

    def __init__(
        self,
        process: Process,
        *,
        name: str,
        asker: Asker,
        start: Start,
        lost: Callable[[str], object] = lambda problem: None,
    ) -> None:
        """`name` is what sentences call the agent. `lost` is told why answers that were sent will not be taken."""
        self.name = name
        self.process = process
        self.turn: Turn | None = None  # the newest one, also when it is over
        self.turns = _turns(start)  # that have ended
        self.idle = asyncio.Event()  # the agent is, whether or not somebody waits for the end of a turn
        self.held: dict[Id, H] = {}
        self.recorded = {ask.id: ask for ask in (start.cut.asks if start.cut is not None else ())}
        self.is_aborting = self.is_leaving = self.is_over = False
        self.words = ""  # why it is over
        self._asker = asker
        self._start = start
        self._lost = lost
        self._recalling: asyncio.Task[list[Answered]] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._running: asyncio.Task[None] | None = None
        self.idle.set()

    # The program ----------------------------------------------------------------------------------------------------

    def begin(self, listen: Callable[[], Awaitable[None]], *, last_words: Callable[[], str]) -> None:
        """Hear the program until it ends. `last_words` are its own, where it ended by itself."""
        self._running = asyncio.create_task(self._run(listen, last_words))

    async def _run(self, listen: Callable[[], Awaitable[None]], last_words: Callable[[], str]) -> None:
        words = ""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    await listen()
                except ProcessFailed as error:
                    words = error.message
                if not self.is_over and not self.is_leaving:
                    await self._gone(words, last_words)
        finally:
            self.is_over = True

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Work that ends with the program at the latest. What it raises ends the conversation."""
        assert self._tasks is not None, "begin first"
        return self._tasks.create_task(work)

    async def _gone(self, words: str, last_words: Callable[[], str]) -> None:
        """The program ended by itself. Nobody there waits for an answer any more."""
        self.is_over = True
        await self.process.close()
        self.words = words or last_words() or f"its process ended with exit code {self.process.exit_code}"
        await self.withdraw_held(reason=f"{self.name} ended: {self.words}")
        self.idle.set()
        self._lose(self._untaken())
        self._conclude(AgentFailed(f"{self.name} ended in the middle of its turn: {self.words}"))

    def _untaken(self) -> str:
        return f"{self.name} ended before it took it: {self.words}"

    def _lose(self, problem: str) -> None:
        self._not_taken(problem)
        self._lost(problem)

    async def end(self) -> None:
        """Kill the program while its stdin is open, and forget what was under way. Withdraws nothing."""
        self.is_over = True
        self.forget_held()
        await self.process.close()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=STOP)  # it may have to withdraw what a dead program asked
            self._running.cancel()
            await asyncio.wait([self._running])
        if self.turn is not None:
            self.turn.reply.cancel()

    async def close(self) -> None:
        """End it, and withdraw what it waits for."""
        await self.stop_recalling()
        held = self.take_held()
        await self.end()
        await self.withdraw(held, reason="the session was closed")
        if not self.is_leaving:  # else whoever takes it up tells the answers
            self._lose(f"the session was closed before {self.name} took it")

    async def leave(self, letting_go: Callable[[Sequence[H]], Awaitable[None]] | None = None) -> None:
        """End it and withdraw nothing. `letting_go` may still say something to it, with what it was waiting for."""
        self.is_leaving = True
        await self._cancel_recalling()
        held = self.forget_held()
        if letting_go is not None and not self.is_over:
            await letting_go(held)
        await self.end()

    # Turns ----------------------------------------------------------------------------------------------------------

    def new_turn(self, prompt: Prompt | None = None) -> Turn:
        """Raises AgentFailed where there can be none."""
        if self.is_over:
            raise AgentFailed(f"{self.name} has ended: {self.words}" if self.words else "the session is closed")
        if self.turn is not None and not self.turn.reply.done():
            raise AgentFailed(f"{self.name} is still busy with the turn before; wait for it, or abort it")
        self.idle.clear()
        self.turn = Turn(asyncio.get_running_loop().create_future())
        self.turn.reply.add_done_callback(_look_at)
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
        self._not_taken(
            f"the turn ended before {self.name} took it", unused=f"{self.name} did not make that call again"
        )
        if problem:
            words = inert(problem)[:LONGEST_WORDS]
            self._conclude(AgentFailed(f"{self.name} could not finish: {words}"))
        elif self.turn is not None:
            self._conclude(Reply(text=text or self.turn.text))

    def _conclude(self, outcome: Reply | AgentFailed) -> None:
        reply = self.turn.reply if self.turn is not None else None
        if reply is None or reply.done():
            return
        if self.is_aborting:
            return  # `abort` ends the wait, once nothing of the turn runs any more
        if isinstance(outcome, AgentFailed):
            reply.set_exception(outcome)
        else:
            reply.set_result(outcome)

    def _not_taken(self, problem: str, *, unused: str | None = None) -> None:
        if self.turn is None:
            return
        for id in self.turn.told:
            self._asker.delivered(id, error=problem)
        for ask, _ in self.turn.granted:
            self._asker.delivered(ask.id, error=unused or problem)
        self.turn.told.clear()
        self.turn.granted.clear()

    async def abort(self, interrupt: Callable[[], Awaitable[object]]) -> None:
        """`interrupt` tells the agent and withdraws what it waits for, in the order that its protocol wants.

        Raises AgentFailed where it does not stop, and ends it.
        """
        await self.stop_recalling()
        if self.is_over or self.idle.is_set():
            return
        self.is_aborting = True
        try:
            await interrupt()
            async with asyncio.timeout(STOP):
                await self.idle.wait()
            await self.withdraw_held(reason=ABORTED)  # what it asked before it heard of it
        except (HandraiseError, TimeoutError) as error:
            self.words = "it did not stop when it was interrupted"
            held = self.take_held()
            await self.end()
            await self.withdraw(held, reason=ABORTED)
            self._lose(self._untaken())
            raise AgentFailed(f"{self.name} did not stop when it was interrupted, so its process was ended") from error
        finally:
            self.is_aborting = False
            if self.turn is not None:
                self.turn.reply.cancel()

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
        self._recalling = asyncio.create_task(self._recall(cut.asks))
        answered = await self._recalling  # cancelled by an abort
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

    async def _recall(self, asks: Sequence[Ask]) -> list[Answered]:
        """The answers to asks whose request is gone. Those that were withdrawn are left out."""
        # All at once: one that is withdrawn while another is waited for would be raised anew if its turn came later.
        waits = [asyncio.ensure_future(self._answer_or_none(ask)) for ask in asks]
        try:
            answers = await asyncio.gather(*waits)
        finally:
            for each in waits:
                each.cancel()
        self.recorded.clear()
        return [(ask, answer) for ask, answer in zip(asks, answers, strict=True) if answer is not None]

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
                await self._withdraw(ask, reason=reason)

    async def stop_recalling(self) -> None:
        """What was waited for on behalf of a request that is gone is withdrawn too."""
        if await self._cancel_recalling():
            await self.let_go_of_recorded(reason=ABORTED)

    async def _cancel_recalling(self) -> bool:
        if self._recalling is None or self._recalling.done():
            return False
        self._recalling.cancel()
        await asyncio.wait([self._recalling])
        return True

    # What the agent waits for ---------------------------------------------------------------------------------------

    def hold(self, id: Id, held: H) -> H:
        """Remember a request until it is answered or called off. Raises Overloaded for one too many."""
        if len(self.held) >= MOST_OPEN:
            raise Overloaded(
                f"{MOST_OPEN} requests of this session wait for an answer, and no more are taken; wait for those first"
            )
        self.held[id] = held
        return held

    def release(self, id: Id) -> bool:
        """The request has its answer. False where nobody waits for that any more."""
        held = self.held.pop(id, None)
        if held is not None and held.waiting is not None:
            held.waiting.cancel()
        return held is not None

    def raise_hand(self, held: H, ask: Ask, *, ordinal: bool = False) -> asyncio.Future[Answer]:
        """The answer to come. The wait outlives the work on the request, so that what is on its way to the desk can be
        withdrawn there; when the desk closes it is cancelled."""
        held.ask = ask
        held.waiting = asyncio.ensure_future(self._asker.ask(ask, ordinal=ordinal))
        held.waiting.add_done_callback(_look_at)
        return held.waiting

    async def answer_to(self, held: H, ask: Ask, *, ordinal: bool = False) -> Answer:
        """Raises HandraiseError where there will be no answer, in words for the model."""
        try:
            return await asyncio.shield(self.raise_hand(held, ask, ordinal=ordinal))
        except Withdrawn as error:
            reason = error.ask.withdrawn_reason
            said = "This was withdrawn before anybody answered" + (f": {reason}" if reason else ".")
            raise AgentFailed(said) from None

    def take(self, *ids: Id) -> list[H]:
        """Stop working on requests, and answer them nothing. Their asks are the caller's to withdraw."""
        taken = [self.held.pop(id) for id in ids if id in self.held]
        for held in taken:
            if held.task is not None:
                held.task.cancel()
        return taken

    def take_held(self, which: Callable[[H], bool] = lambda held: True) -> list[H]:
        return self.take(*(id for id, held in self.held.items() if which(held)))

    def forget_held(self) -> list[H]:
        """The same with all of them, where their asks stay as they are."""
        taken = self.take_held()
        for held in taken:
            if held.waiting is not None:
                held.waiting.cancel()
        return taken

    async def withdraw_held(self, *, reason: str) -> None:
        await self.withdraw(self.take_held(), reason=reason)

    async def withdraw(self, held: Iterable[H], *, reason: str) -> None:
        """Nobody waits for these any more."""
        for each in held:
            await self._call_off(each, reason=reason)

    def withdraw_later(self, held: Iterable[H], *, reason: str) -> None:
        for each in held:
            self.spawn(self._call_off(each, reason=reason))

    async def _call_off(self, held: H, *, reason: str) -> None:
        """One that came and went in the same breath gets to the desk before its withdrawal, or not at all."""
        if held.ask is None or held.waiting is None:
            return
        held.waiting.cancel()
        await asyncio.wait([held.waiting])
        with suppress(AskNotFound):
            await self._withdraw(held.ask, reason=reason)

    async def _withdraw(self, ask: Ask, *, reason: str) -> None:
        """Raises AskNotFound."""
        try:
            await self._asker.withdraw(ask.id, reason=reason)
        except AlreadyAnswered:
            self._asker.delivered(ask.id, error=f"{reason} before {self.name} took the answer")
        except AskNotFound:
            raise
        except HandraiseError as error:
            log.warning("ask %s of %s could not be withdrawn: %s", ask.id, self.name, error.code)


def origin_of(start: Start, *, agent: str, subagent: str | None = None) -> Origin:
    """`subagent` is what the agent calls the one of its own that asks."""
    return Origin(
        agent=agent,
        session=f"{start.session}/{subagent}" if subagent else start.session,
        run=start.run,
        step=start.step,
        parent=start.session if subagent else start.parent,
        cwd=start.cwd,
    )


def seen_by(listener: Listener) -> Seen:
    """What a listener is told of a JSON-RPC connection."""

    def seen(way: Literal["in", "out"], message: Any, *, method: str, request: Id | None) -> None:
        name, is_piece = method, method.lower().endswith("delta")
        if method == "session/update":  # of ACP, where nearly everything is that
            params = message.get("params")
            update = params.get("update") if isinstance(params, dict) else None
            kind = update.get("sessionUpdate") if isinstance(update, dict) else None
            name, is_piece = f"{method} {kind}", isinstance(kind, str) and kind.endswith("_chunk")
        key = None if request is None else request_key(request)
        listener.seen(Wire(way=way, body=message, name=name, request=key, is_piece=is_piece))

    return seen


def request_key(id: Id) -> str:
    """An id of a request as listeners know it; the number 1 and the text "1" are two."""
    return repr(id)


def _turns(start: Start) -> int:
    turns = start.cut.handle.get("turns") if start.cut is not None else 0
    return turns if isinstance(turns, int) else 0


def _look_at(done: asyncio.Future[Any]) -> None:
    """Nobody may wait for it any more, which is no reason to warn of an exception that nobody saw."""
    if not done.cancelled():
        done.exception()
