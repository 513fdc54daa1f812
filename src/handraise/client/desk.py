"""The desk from a program: raise a hand, answer for people, and everything else the desk does, by resource."""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeAlias

from handraise.asks import Answer, Ask, Handling, Option, Origin, Permission, Question
from handraise.client.asks import Asks
from handraise.client.client import Client
from handraise.client.resources import Resources
from handraise.config import Settings, load, warn_of_untrusted
from handraise.errors import CursorTooOld, HandraiseError, Rejected
from handraise.events import Asked, Event

__all__ = ["Desk", "Handler", "Reply"]

log = logging.getLogger(__name__)

Reply: TypeAlias = str | Sequence[str] | Sequence[Sequence[str]] | Answer | None
Handler: TypeAlias = Callable[[Ask], Reply | Awaitable[Reply]]


class Desk(Resources):
    """Raise a hand from any script, or answer for people.

    async with Desk() as desk:
        answer = await desk.ask("Which database?", "SQLite", "Postgres")
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        """`url` is where the desk is. Where several share a database it may name them all, in a list or with commas:
        when one of them goes away, the next takes over."""
        if settings is None:
            settings = load()
            warn_of_untrusted(settings)
        self._settings = settings
        self.client = Client(url, token=token, settings=self._settings)
        self.connection = self.client.connection
        self._tasks = asyncio.TaskGroup()
        self._serving: list[asyncio.Task[None]] = []
        self._session = f"script:{secrets.token_hex(4)}"

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for serving in self._serving:
            serving.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        except BaseExceptionGroup as failed:  # why no handler could be served: one reason, as it is
            raise failed.exceptions[0] from None
        finally:
            await self.client.__aexit__(kind, value, trace)

    async def ask(
        self,
        question: str | Question | Sequence[Question] | Permission,
        *options: str | Option,
        header: str = "",
        multiple: bool = False,
        custom: bool = True,
        id: str | None = None,
        agent: str = "script",
        session: str | None = None,
        timeout: float | None = None,
        on_timeout: str | None = None,
        handling: Handling | None = None,
    ) -> Answer:
        """Ask people and wait for what they say. Safe to repeat: the same `id` joins, and gets the same answer.

        `timeout` seconds after asking, `on_timeout` decides ("accept-first", "accept-recommended" or "reject").
        Raises Rejected and Withdrawn, AskDoesNotFit, and DeskUnreachable if no desk was ever reached.
        """
        ask = Ask(
            id=id or f"ask_{secrets.token_hex(12)}",
            questions=_questions(question, options, header=header, multiple=multiple, custom=custom),
            permission=question if isinstance(question, Permission) else None,
            origin=self._origin(agent, session=session, id=id),
        )
        handling = handling or self._settings.handling
        if timeout is not None:
            handling = replace(handling, question_timeout=timeout)
        if on_timeout is not None:
            handling = replace(handling, on_timeout=on_timeout)  # type: ignore[arg-type]
        answer = await self.client.ask(ask, handling=handling)
        self.client.delivered(ask.id)
        if answer.rejected:
            raise Rejected(answer)
        return answer

    def _origin(self, agent: str, *, session: str | None, id: str | None) -> Origin:
        """An id that is given may come again from another process: nothing of this one may tell it apart."""
        own = self._session if id is None else f"script:{id}"
        return Origin(agent=agent, session=session or own)

    def on_question(self, handler: Handler) -> Handler:
        """Call `handler` with every open ask that has questions, now and from now on; what it returns is the answer.

        A text, a list of texts, a list per question, or an Answer; None leaves it open. Works as a decorator.
        One ask at a time, in the order they were raised; one that somebody else settled meanwhile is left out.
        """
        return self._on(False, handler)

    def on_permission(self, handler: Handler) -> Handler:
        """Call `handler` with every open permission; it returns "once", "always", "reject", an Answer, or None."""
        return self._on(True, handler)

    def _on(self, permissions: bool, handler: Handler) -> Handler:
        self._serving.append(self._tasks.create_task(self._serve(permissions, handler)))
        return handler

    async def reply_question(self, id: str, answers: Reply, *, by: str = "", via: str = "sdk") -> Ask:
        """Answer an ask. Raises AlreadyAnswered, AnswerDoesNotFit, AskWithdrawn, AskNotFound."""
        ask = await self.client.get(id)
        answer = _answer(ask, answers)
        return await self.client.answer(id, replace(answer, by=answer.by or by, via=answer.via or via))

    async def reject_question(self, id: str, *, reason: str | None = None, by: str = "", via: str = "sdk") -> Ask:
        return await self.client.reject(id, reason=reason, by=by, via=via)

    def watch(
        self, *, after: int | None = None, session: str | None = None, run: str | None = None
    ) -> AsyncIterator[Event]:
        """What happens at the desk, from now on or after a cursor; reconnects by itself and misses nothing."""
        return self.client.events(after=after, session=session, run=run)

    @property
    def asks(self) -> Asks:
        """The asks of the desk. Calling it lists them: `async for ask in desk.asks(state="asked")`."""
        return self.client

    async def _serve(self, permissions: bool, handler: Handler) -> None:
        """Open asks first, then new ones. An ask seen twice is offered once."""
        while True:
            try:
                await self._serve_until_too_old(permissions, handler)
            except CursorTooOld:
                continue
            return

    async def _serve_until_too_old(self, permissions: bool, handler: Handler) -> None:
        offered: set[str] = set()
        newest = await self.client.cursor()
        async for ask in self.client.asks(state="asked"):
            offered.add(ask.id)
            if permissions is (ask.permission is not None):
                await self._offer(ask.id, handler)
        async for event in self.client.events(after=newest):
            ask = event.ask
            if isinstance(event, Asked) and ask.id not in offered and permissions is (ask.permission is not None):
                await self._offer(ask.id, handler)
            offered.discard(ask.id)

    async def _offer(self, id: str, handler: Handler) -> None:
        try:
            ask = await self.client.get(id)
            if ask.state != "asked":
                return
            said = handler(ask)
            answers = await said if inspect.isawaitable(said) else said
            if answers is not None:
                await self.reply_question(id, answers)
        except HandraiseError as problem:
            log.warning("the answer of a handler to ask %s was not taken: %s", id, problem.code)
        except Exception:
            log.exception("a handler failed on ask %s; it stays open", id)


def _questions(
    question: str | Question | Sequence[Question] | Permission,
    options: Sequence[str | Option],
    *,
    header: str,
    multiple: bool,
    custom: bool,
) -> tuple[Question, ...]:
    if isinstance(question, Permission):
        return ()
    if isinstance(question, Question):
        return (question,)
    if not isinstance(question, str):
        return tuple(question)
    choices = tuple(option if isinstance(option, Option) else Option(option) for option in options)
    return (Question(question, choices, header=header, multiple=multiple, custom=custom),)


def _answer(ask: Ask, said: Reply) -> Answer:
    """An Answer from the shapes people return: a text, a list of texts, a list per question."""
    if isinstance(said, Answer):
        return said
    if ask.permission is not None:
        return Answer(reply=str(said))
    if isinstance(said, str):
        return Answer(answers=((said,),))
    entries = list(said or ())
    if all(isinstance(entry, str) for entry in entries):
        return Answer(answers=(tuple(str(entry) for entry in entries),))
    return Answer(answers=tuple(tuple(entry) for entry in entries))
