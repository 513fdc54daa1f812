"""The tools themselves, as a thin client of the desk. Which wire a call came by, and how it is told, is not known here.

A question outlives the call that asked it: a call that was cancelled or ran into its limit leaves it open, and the same
question again, or `question_result`, picks it up. Where the agent says that it ends, what nobody has taken by then is
withdrawn.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from handraise.agents.claude import translate as claude
from handraise.asks import Ask, Handling, Origin
from handraise.errors import AlreadyAnswered, AskDoesNotFit, AskNotFound, DeskBroke, HandraiseError, Overloaded
from handraise.mcp.translate import base_of, id_of, is_ours, name_of, session_of, to_ask, to_result, to_wait

__all__ = ["Caller", "Door", "Place", "Result", "Tools"]

log = logging.getLogger(__name__)

# Clients that ask for no progress commonly give up after 60 s, and some proxies after 50 s without a header; the
# others after 300 s at the earliest.
LIMIT, LIMIT_WITH_PROGRESS = 45.0, 240.0
PROGRESS = 10.0  # seconds; clients that count silence allow 60 at least
WAIT = 50.0  # seconds one call of the desk is parked
GOODBYE = 1.0  # seconds; an agent that leaves kills those who linger
GONE = "the agent that asked is gone"


class Door(Protocol):
    """All the tools know of the house: a client of a desk, or the desk itself in the name of one caller."""

    async def open(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Ask:
        """Raise a hand without waiting, or join the one that is raised."""

    async def get(self, id: str) -> Ask:
        """Raises AskNotFound, also where it is somebody else's."""

    async def wait(self, id: str, *, timeout: float) -> Ask:
        """The ask once it is settled, or as it is after so many seconds. Raises Overloaded where the desk stops."""

    async def withdraw(self, id: str, *, reason: str | None = None) -> Ask:
        """Raises AlreadyAnswered, AskNotFound. The id may lack its ordinal: the newest is meant."""

    def delivered(self, id: str, *, error: str | None = None) -> None:
        """The agent took the answer, or `error` says why it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a call comes from, and what a person set for all that come from there."""

    otherwise: str  # the name of the conversation where neither the agent nor a person gives one
    session: str | None = None  # what a person called the conversation
    cwd: str | None = None
    machine: str | None = None
    limit: float | None = None  # seconds a call may take before it returns `pending`
    is_shared: bool = False  # `otherwise` may be the name of another agent's conversation, then or later


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who made a call, and what can be told while it lasts."""

    name: str  # what the client calls itself
    place: Place
    meta: Mapping[str, Any]
    wants_progress: bool
    progress: Callable[[float, str], Awaitable[None]]

    @property
    def origin(self) -> Origin:
        place = self.place
        session = place.session or session_of(self.meta) or place.otherwise
        return Origin(agent=name_of(self.name) or "mcp", session=session, cwd=place.cwd, machine=place.machine)

    @property
    def limit(self) -> float:
        if self.place.limit is not None:
            return self.place.limit
        return LIMIT_WITH_PROGRESS if self.wants_progress else LIMIT


class Result(NamedTuple):
    """What a call returns. Once the client has it, whoever handed it over says `taken`, where `ask` is given."""

    texts: tuple[str, ...]
    is_error: bool = False
    ask: str | None = None


async def _is_there() -> None:
    """The desk is this process."""


class Tools:
    """The tools for one agent. Whoever hears that it ends says `leave`; without that nothing is withdrawn."""

    def __init__(
        self,
        door: Door,
        *,
        tasks: asyncio.TaskGroup,
        handling: Callable[[], Handling | None] = lambda: None,
        reach: Callable[[], Awaitable[Any]] = _is_there,
    ) -> None:
        """`tasks` outlives the calls: it finishes what one that was cancelled has to tell.

        `reach` raises where there is no desk. Without a `handling` the desk has its own.
        """
        self._door = door
        self._tasks = tasks
        self._handling = handling
        self._reach = reach
        self._untaken: dict[str, None] = {}  # ids without their ordinal, in the order they were asked
        self._giving_up: set[asyncio.Task[None]] = set()

    async def call(self, name: str, arguments: Mapping[str, Any], *, caller: Caller) -> Result:
        """One call, however long it takes. Cancelling it withdraws no question. Raises KeyError for an unknown tool."""
        tool = {
            "question": self._question,
            "question_result": self._question_result,
            "permission_prompt": self._permission_prompt,
        }[name]
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(_tell_progress(caller))
            try:
                return await tool(arguments, caller)
            except AskDoesNotFit as unfit:
                return Result((f"Nobody was asked: {unfit}. Correct the arguments and call {name} again.",), True)
            except HandraiseError as problem:
                return Result((_without_an_answer(problem),), True)
            finally:
                telling.cancel()

    def taken(self, id: str) -> None:
        """The client has the answer of this ask."""
        self._untaken.pop(base_of(id), None)
        self._door.delivered(id)

    async def leave(self) -> None:
        """The agent is gone: nobody needs to answer what it asked. Takes a second at most."""
        for task in self._giving_up:  # a desk that is away would hold us; what they leave undone is done next
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE), asyncio.TaskGroup() as tasks:
                for id in tuple(self._untaken):
                    tasks.create_task(self._take_back(id, reason=GONE))

    # The tools ----------------------------------------------------------------------------------------------------

    async def _question(self, arguments: Mapping[str, Any], caller: Caller) -> Result:
        ask = to_ask(arguments, origin=caller.origin)
        return _told(await self._asked(ask, limit=caller.limit))

    async def _question_result(self, arguments: Mapping[str, Any], caller: Caller) -> Result:
        id, seconds = to_wait(arguments)
        ask: Ask | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(caller.limit):
                with suppress(AskNotFound):
                    ask = await self._door.get(id)
                if ask is None or not is_ours(ask, origin=caller.origin):
                    problem = f"there is no question with the request_id {id[:100]!r}; ask with question"
                    return Result((f"{problem}.",), True)
                with suppress(Overloaded):
                    async with asyncio.timeout(seconds):
                        while ask.state == "asked":
                            ask = await self._door.wait(ask.id, timeout=WAIT)
        if ask is None:
            raise _silent(caller.limit)
        return _told(ask)

    async def _permission_prompt(self, arguments: Mapping[str, Any], caller: Caller) -> Result:
        """Waits without limit, since there is no other call that could pick the answer up. What fails is a refusal."""
        tool, given, call = (arguments.get(name) for name in ("tool_name", "input", "tool_use_id"))
        if not isinstance(tool, str) or not tool or not isinstance(given, Mapping):
            raise AskDoesNotFit("`tool_name` is the name of a tool, and `input` the object it is called with")
        call = call if isinstance(call, str) and call else None
        if call is None and caller.place.is_shared:  # what one agent was granted must not fall to another
            call = secrets.token_hex(8)
        ask = claude.to_ask(tool, given, id="", origin=caller.origin)
        ask = replace(ask, id=id_of(ask, call=call))
        try:
            settled = await self._asked(ask, limit=math.inf)
        except HandraiseError as problem:
            return _decided({"behavior": "deny", "message": f"Nobody could be asked, so nothing was run: {problem}."})
        except asyncio.CancelledError:
            if call is not None and ask.id in self._untaken:  # that call of a tool is over for good
                task = self._tasks.create_task(self._take_back(ask.id, reason="the agent gave up the call"))
                self._giving_up.add(task)
                task.add_done_callback(self._giving_up.discard)
            raise
        if settled.state == "asked":
            return _decided({"behavior": "deny", "message": "The desk is stopping; nothing was run. Try it again."})
        if settled.answer is None:
            return _decided({"behavior": "deny", "message": "The request was taken back; nothing was run."})
        return _decided(claude.from_answer(settled, settled.answer), ask=settled.id)

    # The desk -----------------------------------------------------------------------------------------------------

    async def _asked(self, ask: Ask, *, limit: float) -> Ask:
        """The ask once it is settled, or still open after `limit` seconds or when the desk stops.

        Joins the same ask of this conversation while that is open, or was answered to a call that had gone.
        Raises where it could not be asked by then.
        """
        handling = self._handling()
        found: Ask | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(limit if math.isfinite(limit) else None):
                await self._reach()
                self._untaken[ask.id] = None  # from here on it may exist, also if we are cancelled before we know
                try:
                    found = await self._door.open(ask, handling=handling, ordinal=True)
                except HandraiseError:
                    self._untaken.pop(ask.id, None)
                    raise
                while found.state == "asked":
                    try:
                        found = await self._door.wait(found.id, timeout=WAIT)
                    except Overloaded:
                        break
                    except AskNotFound:  # the database is a backup from before it was asked
                        found = await self._door.open(ask, handling=handling, ordinal=True)
        if found is None:
            raise _silent(limit)
        if found.state == "withdrawn":
            self._untaken.pop(ask.id, None)
        return found

    async def _take_back(self, id: str, *, reason: str) -> None:
        try:
            await self._door.withdraw(id, reason=reason)
        except AlreadyAnswered:
            self._door.delivered(id, error=f"{reason}, and had not taken the answer")
        except AskNotFound:
            return  # it is not raised yet, and may be in a moment: the end tries again
        except HandraiseError as problem:
            log.warning("the desk could not be told that nobody waits for %s any more: %s", id, problem)
        self._untaken.pop(id, None)


async def _tell_progress(caller: Caller) -> None:
    """At once, then every few seconds: a client that hears nothing gives up sooner."""
    told = 0
    while True:
        told += 1
        await caller.progress(told, "waiting for a person to answer")
        await asyncio.sleep(PROGRESS)


def _told(ask: Ask) -> Result:
    result, sentence = to_result(ask)
    texts = (json.dumps(result, ensure_ascii=False), sentence)
    return Result(texts, ask=ask.id if ask.answer is not None else None)


def _decided(decision: Mapping[str, Any], *, ask: str | None = None) -> Result:
    return Result((json.dumps(decision, ensure_ascii=False),), ask=ask)


def _silent(limit: float) -> DeskBroke:
    return DeskBroke(f"the desk, which was there before, has said nothing for {limit:g} s")


def _without_an_answer(problem: HandraiseError) -> str:
    return (
        f"Nobody could be asked: {problem}. Go on without an answer: take the safest choice and say that you did, or "
        "stop and say what you need to know."
    )
