"""Claude Code in a person's own terminal: what its http hooks call, and what became of each call.

    POST hook    `hook_event_name` says what happened; 204 is no opinion

PermissionRequest runs beside the dialog in the terminal and is held while the ask is open; the first answer counts. It
carries no id of the call, so an ask is known by the session and a hash of what is asked, and two that are the same are
told apart by the order in which they came. What the person does in the terminal is learned like this (2.1.325):

    an answer, or Yes                    PostToolUse or PostToolUseFailure of that call; the held hook hears nothing
    Esc, No, the terminal is closed      the connection of the held hook closes
    the turn, subagent or session ends   PostToolBatch, Stop, SubagentStop, SessionEnd

An answer was taken when one of these shows it: the call ran as it was allowed, or was refused in our words. Until then
it counts as not delivered, since a terminal that was faster ignores ours, and nobody is told.

The hook `Elicitation` is left out: it runs before the form of an MCP server is shown, and would hide it from the person
at the terminal for as long as the desk holds it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from handraise.agents import Asker, Left
from handraise.agents._attached import retire, take_back
from handraise.agents.claude.settings import MANAGED
from handraise.agents.claude.translate import PLAN, QUESTION, from_answer, local_answer, to_ask
from handraise.asks import Answer, Ask, Origin
from handraise.errors import AlreadyAnswered, AskDiffers, AskNotFound, HandraiseError, Withdrawn
from handraise.transports.bodies import TooLarge, read_body, until_gone
from handraise.wire import BadBody, check_values

__all__ = ["ID_PREFIX", "Terminals"]

log = logging.getLogger(__name__)

AGENT = "claude"
ID_PREFIX = "claude-terminal:"  # of the asks that come this way; the dialog they belong to is in a terminal
MOST_SENT = 1000  # answers of which the outcome is waited for; a terminal that was killed never tells it
MOST_TWINS = 100  # of one call, at a time
OPENING = 0.1  # seconds in which an ask that is taken back is heard of

DISMISSED = "answered or dismissed in the terminal"
MOVED_ON = "Claude went on without the answer"
ENDED = "the session has ended"
ELSEWHERE = "it was answered in the terminal first"
IN_THE_TERMINAL = "the desk was restarted; answer in the terminal"


class Broken(Exception):
    """A hook's body that cannot be understood. The message holds nothing that the agent wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One call of a hook."""

    event: str
    session: str
    subagent: str | None
    tool: str
    input: Mapping[str, Any]
    cwd: str | None
    rest: Mapping[str, Any]

    @classmethod
    def parse(cls, body: bytes) -> Happened:
        """Raises Broken."""
        try:
            check_values(body)
            told = json.loads(body)
        except (ValueError, RecursionError, BadBody):
            raise Broken("no JSON") from None
        if not isinstance(told, dict):
            raise Broken("no JSON object")
        event, session = told.get("hook_event_name"), told.get("session_id")
        if not isinstance(event, str) or not isinstance(session, str) or not session:
            raise Broken("no hook_event_name or no session_id")
        tool, given = told.get("tool_name"), told.get("tool_input")
        if event in ("PermissionRequest", *_USED) and (not isinstance(tool, str) or not isinstance(given, dict)):
            raise Broken(f"a {event} without tool_name or tool_input")
        subagent, cwd = told.get("agent_id"), told.get("cwd")
        return cls(
            event=event,
            session=session,
            subagent=subagent if isinstance(subagent, str) and subagent else None,
            tool=tool if isinstance(tool, str) else "",
            input=given if isinstance(given, dict) else {},
            cwd=cwd if isinstance(cwd, str) else None,
            rest=told,
        )

    @property
    def wanted(self) -> str:
        return wanted(self.tool, self.input)

    def ask(self, *, twin: int = 1) -> Ask:
        """What the call asks for. Raises AskDoesNotFit."""
        whose = f"{self.session}/{self.subagent}" if self.subagent else self.session
        origin = Origin(agent=AGENT, session=whose, parent=self.session if self.subagent else None, cwd=self.cwd)
        fields = {key: self.rest[key] for key in ("permission_suggestions", "agent_type") if key in self.rest}
        return to_ask(self.tool, _asked(self.tool, self.input), id=self.id(twin=twin), origin=origin, fields=fields)

    def id(self, *, twin: int = 1) -> str:
        what = digest([self.subagent, self.tool, _asked(self.tool, self.input)])[:24]
        return f"{ID_PREFIX}{self.session}:{what}" + (f"~{twin}" if twin > 1 else "")


_USED = ("PostToolUse", "PostToolUseFailure")


def wanted(tool: str, given: Mapping[str, Any]) -> str:
    """By what a call is known again. There is one plan at a time, and its input is not told again as it was."""
    return "" if tool == PLAN else digest(_asked(tool, given))


def digest(given: Any) -> str:
    return hashlib.sha256(json.dumps(given, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _asked(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The input of a call without the answers that it has by the time it was used."""
    added = ("answers", "annotations", "response") if tool == QUESTION else ()
    return {key: value for key, value in given.items() if key not in added}


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """A PermissionRequest: open until it is answered, then sent until something shows what became of the answer."""

    ask: Ask
    asker: Asker
    owner: str  # the name of the token; sessions of two tokens may claim to be the same
    session: str
    subagent: str | None
    tool: str
    wanted: str
    is_local: bool = False  # the terminal was first, or has moved on
    decision: Mapping[str, Any] | None = None  # what was sent

    @property
    def is_open(self) -> bool:
        return self.decision is None and not self.is_local

    def is_about(self, tool: str, given: Mapping[str, Any]) -> bool:
        return (self.tool, self.wanted) == (tool, wanted(tool, given))

    def ran_as_sent(self, happened: Happened) -> bool:
        """Whether a call was used in the way that our answer allows and no other."""
        if self.decision is None or self.decision["behavior"] != "allow" or self.tool != happened.tool:
            return False
        sent = self.decision["updatedInput"]
        if self.tool == QUESTION:
            return self.is_about(happened.tool, happened.input) and sent["answers"] == happened.input.get("answers")
        return self.tool == PLAN or digest(sent) == digest(happened.input)


class Terminals:
    """The route, and the calls of which the outcome is not known yet. One for each desk."""

    def __init__(self) -> None:
        self._calls: list[Call] = []  # in the order in which they came

    def routes(self) -> Sequence[Route]:
        return [Route("/hook", self._hook, methods=["POST"])]

    async def _hook(self, request: Request) -> Response:
        if request.headers.get(MANAGED):
            return _no_opinion()
        try:
            happened = Happened.parse(await read_body(request.scope, request.receive))
            match happened.event:
                case "PermissionRequest":
                    return await self._asked(happened, request)
                case "PostToolUse" | "PostToolUseFailure":
                    await self._used(happened, request)
                case "PostToolBatch":
                    await self._batch_ended(happened, request)
                case "Stop" | "SubagentStop":
                    calls = self._of(happened, request)
                    await self._retire([call for call in calls if call.subagent == happened.subagent], reason=MOVED_ON)
                case "SessionEnd":
                    await self._retire(list(self._of(happened, request)), reason=ENDED)
        except (Broken, TooLarge) as problem:  # what is too large is what a tool read, not what is asked
            log.warning("a hook of Claude Code said what cannot be understood: %s", problem)
        return _no_opinion()

    # Asking -----------------------------------------------------------------------------------------------

    async def _asked(self, happened: Happened, request: Request) -> Response:
        for twin in range(1, MOST_TWINS + 1):
            try:
                call = self._enter(happened, request, twin=twin)
                if call is None:
                    continue
                since = datetime.now(UTC)
                answer = await self._held(call, request)
                if answer is None:
                    self._leave(call)
                    return _no_opinion()
                if _is_from_before(answer, since):
                    self._leave(call)
                    continue
                call.decision = from_answer(call.ask, answer)
            except AskDiffers:  # one before this, of which the answer was never taken
                continue
            except HandraiseError as problem:
                log.warning("a call in session %s is left to its terminal: %s", happened.session, problem.code)
                return _no_opinion()
            output = {"hookEventName": "PermissionRequest", "decision": call.decision}
            return JSONResponse({"hookSpecificOutput": output})
        return _no_opinion()

    def _enter(self, happened: Happened, request: Request, *, twin: int) -> Call | None:
        """None where another call goes by that id. Raises AskDoesNotFit."""
        owner: str = request.scope["token"].name
        id = happened.id(twin=twin)
        if any((call.owner, call.ask.id) == (owner, id) for call in self._calls):
            return None
        call = Call(
            ask=happened.ask(twin=twin),
            asker=request.scope["asker"],
            owner=owner,
            session=happened.session,
            subagent=happened.subagent,
            tool=happened.tool,
            wanted=happened.wanted,
        )
        self._calls.append(call)
        sent = [call for call in self._calls if call.decision is not None]
        for oldest in sent[:-MOST_SENT]:
            self._settle(oldest)
        return call

    def _leave(self, call: Call) -> None:
        with suppress(ValueError):
            self._calls.remove(call)

    async def _held(self, call: Call, request: Request) -> Answer | None:
        """The answer for the terminal; None where it has none to wait for any more. Raises what asking raises."""
        try:
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(_outcome(call))
                leaving = tasks.create_task(until_gone(request.receive))
                await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
                has_left = leaving.done()
                if has_left and not asking.done():
                    await self._take_back(call, reason=DISMISSED)
                    await asyncio.wait({asking}, timeout=OPENING)
                asking.cancel()
                leaving.cancel()
            outcome = None if asking.cancelled() else asking.result()
        except BaseException:
            self._leave(call)
            raise
        if isinstance(outcome, HandraiseError):
            self._leave(call)
            if isinstance(outcome, Withdrawn):
                return None
            raise outcome
        if outcome is not None and has_left and not call.is_local:
            call.asker.delivered(call.ask.id, error=DISMISSED)
        # Where desks share a database, another one may have heard what was answered in the terminal.
        is_known_there = outcome is not None and outcome.by == "agent"
        return None if has_left or call.is_local or is_known_there else outcome

    async def retire(self, desk: Left) -> None:
        """Withdraw what a desk before this one held: the connections died with it, the dialogs are still open."""

        def is_held(id: str) -> bool:
            return any(id.rpartition("#")[0].endswith(call.ask.id) for call in self._calls)

        await retire(desk, agent=AGENT, prefix=ID_PREFIX, reason=IN_THE_TERMINAL, is_held=is_held)

    # What the terminal tells ------------------------------------------------------------------------------

    async def _used(self, happened: Happened, request: Request) -> None:
        """A call ran, be it as we allowed it or as the person at the terminal did."""
        calls = [call for call in self._of(happened, request) if call.subagent == happened.subagent]
        same = [call for call in calls if call.is_about(happened.tool, happened.input)]
        ours = next((call for call in calls if call.ran_as_sent(happened)), None)
        waiting = next((call for call in same if call.is_open), None)
        too_late = next((call for call in same if call.decision is not None), None)
        if ours is not None:
            self._settle(ours)
        elif waiting is not None:
            answer = local_answer(waiting.ask, happened.input, happened.rest.get("tool_response"))
            await self._take_back(waiting, reason=DISMISSED, answer=answer)
        elif too_late is not None:
            self._settle(too_late, error=ELSEWHERE)
        elif not same:
            await self._used_unheld(happened, request.scope["asker"])

    async def _used_unheld(self, happened: Happened, asker: Asker) -> None:
        """One that another desk holds, or held before this one began. Most calls were never asked about at all."""
        answer = Answer(reply="once", by="agent", via="agent")
        try:
            if happened.tool == QUESTION:
                answer = local_answer(happened.ask(), happened.input, happened.rest.get("tool_response"))
            await asker.withdraw(happened.id(), reason=DISMISSED, answer=answer)
        except (AlreadyAnswered, AskNotFound):
            return
        except HandraiseError as problem:
            log.warning("a call in session %s cannot be told as used: %s", happened.session, problem.code)

    async def _batch_ended(self, happened: Happened, request: Request) -> None:
        """Every call of one message is over. Of one that was refused nothing else tells."""
        entries = happened.rest.get("tool_calls")
        for entry in entries if isinstance(entries, list) else ():
            tool, given = (entry.get("tool_name"), entry.get("tool_input")) if isinstance(entry, dict) else (None, None)
            if not isinstance(tool, str) or not isinstance(given, dict):
                continue
            mine = (call for call in self._of(happened, request) if call.subagent == happened.subagent)
            call = next((call for call in mine if call.is_about(tool, given)), None)
            if call is not None and call.decision is not None and call.decision["behavior"] == "deny":
                told = entry.get("tool_response")
                is_ours = not isinstance(told, str) or call.decision["message"] in told
                self._settle(call, error=None if is_ours else ELSEWHERE)
            elif call is not None:
                await self._retire([call], reason=MOVED_ON)

    def _of(self, happened: Happened, request: Request) -> Iterator[Call]:
        owner, session = request.scope["token"].name, happened.session
        return (call for call in list(self._calls) if (call.owner, call.session) == (owner, session))

    async def _retire(self, calls: Iterable[Call], *, reason: str) -> None:
        """Nobody at the terminal waits for these. An answer of which nothing else was heard was taken."""
        for call in calls:
            if call.decision is not None:
                self._settle(call)
            elif call.is_open:
                await self._take_back(call, reason=reason)

    def _settle(self, call: Call, *, error: str | None = None) -> None:
        self._leave(call)
        call.asker.delivered(call.ask.id, error=error)

    async def _take_back(self, call: Call, *, reason: str, answer: Answer | None = None) -> None:
        """The terminal was faster, or has gone on: the held call ends without an opinion."""
        call.is_local = True
        await take_back(call.asker, call.ask.id, reason=reason, too_late=ELSEWHERE, answer=answer)


def _no_opinion() -> Response:
    return Response(status_code=204)


def _is_from_before(answer: Answer, since: datetime) -> bool:
    """Whether it was meant for a call before this one, the same to the letter, and never taken. It grants nothing."""
    return answer.at is not None and answer.at < since - timedelta(milliseconds=1)  # times are kept in milliseconds


async def _outcome(call: Call) -> Answer | HandraiseError:
    try:
        return await call.asker.ask(call.ask, ordinal=True)
    except HandraiseError as raised:
        return raised
