"""One conversation with a program of its own: its turn, what the agent asked and waits for, and a sure end.

An adapter owns a `Conversation` and keeps what differs: how a turn begins, what goes over the wire, and what shows that
an answer was taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from handraise.agents import Asker, Listener, Start, Wire
from handraise.agents._turns import ABORTED, LONGEST_WORDS, Prompt, Turn, Turns
from handraise.asks import Answer, Ask, Origin
from handraise.errors import AgentFailed, AskNotFound, HandraiseError, Overloaded, ProcessFailed, Withdrawn
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

STOP = 15.0  # seconds for a program to stop when told to
MOST_OPEN = 200  # requests that wait at once; nobody could look through more, and an agent's own limit is far below

Id: TypeAlias = int | str


@dataclass(slots=True, kw_only=True)
class Held:
    """A request of the agent that waits for us. An adapter adds what it takes to answer it."""

    ask: Ask | None = None  # once it is known
    waiting: asyncio.Future[Answer] | None = None  # for the desk
    task: asyncio.Task[Any] | None = None  # what works on the request and ends when nobody waits for it any more


H = TypeVar("H", bound=Held)


class Conversation(Turns, Generic[H]):
    """The turns of a session whose agent is a program of its own. Tells the desk what becomes of every ask, whichever
    way a request, a turn or the program ends."""

    def __init__(
        self,
        process: Process,
        *,
        name: str,
        asker: Asker,
        start: Start,
        lost: Callable[[str], object] = lambda problem: None,
    ) -> None:
        """`lost` is told why answers that were sent will not be taken."""
        super().__init__(name=name, asker=asker, start=start)
        self.process = process
        self.held: dict[Id, H] = {}
        self.is_leaving = False
        self._lost = lost
        self._tasks: asyncio.TaskGroup | None = None
        self._running: asyncio.Task[None] | None = None

    # The program ----------------------------------------------------------------------------------------------------

    def begin(self, listen: Callable[[], Awaitable[None]], *, last_words: Callable[[], str]) -> None:
        """Hear the program until it ends. `last_words` are its own, where it ended by itself."""
        self._running = self._waits.start(self._run(listen, last_words))

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
        self.conclude(AgentFailed(f"{self.name} ended in the middle of its turn: {self.words}"))

    def _untaken(self) -> str:
        return f"{self.name} ended before it took it: {self.words}"

    def _lose(self, problem: str) -> None:
        self.lose_answers(problem)
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
        await self._waits.close()

    async def leave(self, letting_go: Callable[[Sequence[H]], Awaitable[None]] | None = None) -> None:
        """End it and withdraw nothing. `letting_go` may still say something to it, with what it was waiting for."""
        self.is_leaving = True
        await self.cancel_recalling()
        held = self.forget_held()
        if letting_go is not None and not self.is_over:
            await letting_go(held)
        await self.end()
        await self._waits.close()

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
        held.waiting = self._waits.start(self._asker.ask(ask, ordinal=ordinal))
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
            await self.withdraw_ask(held.ask, reason=reason)


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


def seen_by(listener: Listener, *, detail: Callable[[str, Any], str] = lambda method, message: "") -> Seen:
    """What a listener is told of a JSON-RPC connection. `detail` is what a message is about, beside its method."""

    def seen(way: Literal["in", "out"], message: Any, *, method: str, request: Id | None) -> None:
        name = f"{method} {detail(method, message)}".rstrip()
        is_piece = name.lower().endswith(("delta", "_chunk"))
        key = None if request is None else request_key(request)
        listener.seen(Wire(way=way, body=message, name=name, request=key, is_piece=is_piece))

    return seen


def request_key(id: Id) -> str:
    """An id of a request as listeners know it; the number 1 and the text "1" are two."""
    return repr(id)
