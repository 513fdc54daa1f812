"""One agent that speaks ACP, for clients that are somewhere else: its process and its JSON-RPC. No HTTP.

What clients say is passed on to the agent, and what it says is kept for them in a backlog. What it asks of people goes
to the desk as well, and whoever answers first has answered: a client, a person at the desk, or policy.

Each direction counts its own ids. What a client asks gets a number of ours towards the agent, so that two clients that
count alike do not meet; what the agent asks keeps its own id, by which clients answer it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal, Protocol, Self, TypeAlias
from uuid import uuid4

from handraise.agents import Listener, Silent
from handraise.agents._conversation import request_key, seen_by
from handraise.agents.acp.answers import declined, to_answer
from handraise.agents.acp.backlog import MOST_BYTES, MOST_MESSAGES, Backlog
from handraise.agents.acp.quirks import Quirks, quirks_of
from handraise.agents.acp.translate import METHODS, Kind, detail_of, dismissed, from_answer, to_ask
from handraise.asks import Answer, Ask, Origin
from handraise.errors import (
    AlreadyAnswered,
    AnswerDoesNotFit,
    AskDoesNotFit,
    AskNotFound,
    AskWithdrawn,
    HandraiseError,
    Overloaded,
    ProcessFailed,
    RequestAnswered,
    RequestNotFound,
)
from handraise.tasks import Tasks
from handraise.text.inert import inert
from handraise.transports.jsonrpc import CANCELLED, INTERNAL, INVALID_PARAMS, METHOD_NOT_FOUND
from handraise.transports.process import Process

__all__ = ["Call", "Caller", "Desk", "Message", "Proxy", "kind_of", "parsed"]

log = logging.getLogger(__name__)

AGENT = "acp"  # what asks call it
VIA = "acp"  # how clients answer
MOST_OPEN = 200  # requests of the agent that wait at once
MOST_CALLS = 1000  # requests of clients that wait at once
MOST_KEPT = 1000  # of each: tool calls, sessions
MOST_OVER = 200  # of each: requests that are over, responses that nobody took
ENDING = 2.0  # seconds that an agent which says nothing more gets to end by itself
LONGEST_RAW = 10_000  # characters of a line that is no message
MOST_LEVELS = 150  # of what is nested; many readers of JSON give up at 200
LONGEST_ID = 200  # of an id of the agent's, as it stands in the id of an ask
OVERLOADED, ENDED = -32001, -32000
EXTENSION = "sandboxagent.dev"
ABLE: Mapping[str, Any] = {"form": {}, "url": {}}  # what the desk answers, whatever the client itself can

Message: TypeAlias = dict[str, Any]
Id: TypeAlias = int | str


class Desk(Protocol):
    """What the proxy needs of the desk."""

    async def open(self, ask: Ask) -> Ask:
        """Raise it. Policy may have answered when this returns."""

    async def wait(self, id: str) -> Ask:
        """The ask once it is settled; as it is when the desk closes."""

    async def settle(self, id: str, answer: Answer, *, again: bool, source: str) -> None:
        """Raises AlreadyAnswered, AskWithdrawn, AnswerDoesNotFit. `again` allows the same answer once more."""

    async def withdraw(self, id: str, *, reason: str) -> None:
        """Raises AlreadyAnswered, AskNotFound."""

    def delivered(self, id: str, *, error: str | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a message."""

    name: str
    source: str  # for the audit


@dataclass(slots=True, eq=False)
class Call:
    """A request of a client. `response` is what the agent said, under the client's id."""

    id: Id
    method: str
    key: tuple[str, str, bytes]  # who sent it, under which id, and what it was
    params: Mapping[str, Any]
    response: asyncio.Future[Message]
    taken: bool = False  # a client has the response, or knows that it will come another way


@dataclass(slots=True, eq=False)
class _Asked:
    """A request of the agent."""

    message: Message
    kind: Kind | None = None  # None: the desk has nothing to do with it
    ask: Ask | None = None
    place: int = 0  # in the backlog; 0: no client knows of it
    stopping: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    by_agent: bool = False  # it was the agent that stopped waiting
    answering: asyncio.Lock = field(default_factory=asyncio.Lock)  # a client's response is on its way to the desk
    verbatim: Any = None  # the result that a client gave and that counted
    response: bytes = b""  # the digest of what a client said, where the desk has nothing to do with it
    by: str = ""


class Proxy:
    """Made by `start`. Whoever owns it keeps `run` running, and calls `end` and `close`."""

    def __init__(
        self,
        process: Process,
        *,
        command: Sequence[str],
        desk: Desk,
        session: str,
        backlog: Backlog,
        listener: Listener,
    ) -> None:
        self.backlog = backlog
        self._listener = listener
        self._seen = seen_by(listener, detail=detail_of)
        self.session = session
        self._process = process
        self._command = command
        self._desk = desk
        self._connection = uuid4().hex  # in the ids of asks, since an agent counts anew in each connection
        self._quirks = Quirks()
        self._numbers = count(1)
        self._calls: dict[int, Call] = {}
        self._posted: dict[tuple[str, str, bytes], Call] = {}  # those that are under way
        self._untaken: dict[tuple[str, str, bytes], Call] = {}  # those that are over, and whose caller was cut
        self._open: dict[str, _Asked] = {}
        self._closed: dict[str, _Asked] = {}
        self._used: Counter[str] = Counter()
        self._sent: list[str] = []  # asks whose answers were written and that the agent gave no sign after
        self._tools: dict[str, dict[str, Any]] = {}
        self._folders: dict[str, str | None] = {}  # by the agent's own session
        self._is_over = False
        self._gone = asyncio.Event()

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        desk: Desk,
        session: str,
        most: int = MOST_MESSAGES,
        most_bytes: int = MOST_BYTES,
        listener: Listener | None = None,
    ) -> Self:
        """`session` is the desk's id for what it asks. Raises ProcessFailed."""
        process = await Process.start(command, env=env)
        backlog = Backlog(most=most, most_bytes=most_bytes)
        listener = listener or Silent()
        return cls(process, command=command, desk=desk, session=session, backlog=backlog, listener=listener)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.exit_code

    @property
    def is_over(self) -> bool:
        """Nothing is taken any more."""
        return self._is_over

    # Its life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Hear the agent until it ends. Then nobody waits for anything here any more."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                problem = await self._listen()
                await self._stop("it ended before it answered", reason=f"the agent ended{self._last_words(problem)}")
            code = self._process.exit_code
            exited = {"success": code == 0, "code": code if code is not None and code >= 0 else None}
            self._publish({"method": "_adapter/agent_exited", "params": exited})
        finally:
            self._gone.set()

    async def _listen(self) -> str:
        """To the end of the process; what was wrong with what it said, if that was why."""
        problem = ""
        try:
            async for line in self._process.lines():
                if not self._is_over:
                    self._take_safely(line)
        except ProcessFailed as error:  # a line without an end
            problem = error.message
        else:
            with suppress(TimeoutError):  # its output ends a moment before it does
                async with asyncio.timeout(ENDING):
                    await self._process.wait()
        await self._process.close()
        return problem

    async def end(self, *, reason: str) -> None:
        """Kill it and withdraw what it asked. Returns when that is said, which may be before it is dead."""
        self._process.kill()
        await self._stop("it was ended before it answered", reason=reason)

    async def close(self) -> None:
        """Wait until nothing of it is left."""
        await self._process.close()
        await self._gone.wait()
        self.backlog.close()

    async def _stop(self, problem: str, *, reason: str) -> None:
        """Nobody is there to take an answer, or to give one."""
        self._is_over = True
        for call in list(self._calls.values()):
            self._finish(call, {"error": {"code": ENDED, "message": problem}})
        self._calls.clear()
        self._not_taken(reason)
        asked, self._open = self._open, {}
        for key, each in asked.items():
            self._keep(self._closed, key, each, most=MOST_OVER)
            self._hide(each)
            if not each.stopping.done():
                each.stopping.set_result(reason)
        raised = [each.ask for each in asked.values() if each.ask is not None]
        await asyncio.gather(*(self._withdraw(ask, reason=reason) for ask in raised))

    def _last_words(self, problem: str) -> str:
        words = inert(self._process.stderr_tail.strip()[-500:]) or problem
        return f": {words}" if words else ""

    # From clients ---------------------------------------------------------------------------------------------------

    async def request(self, message: Message, *, caller: Caller) -> Call:
        """Pass a request on, or join the one that the caller sent before under this id and that nobody has taken.

        Raises Overloaded.
        """
        id, method = message["id"], message["method"]
        key = (caller.name, json.dumps(id), _digest(message))
        before = self._posted.get(key) or self._untaken.get(key)
        if before is not None:
            return before
        if len(self._calls) >= MOST_CALLS:
            raise Overloaded(f"{MOST_CALLS} requests to this agent are under way; wait for their responses")
        params = message.get("params")
        call = Call(id, method, key, params if isinstance(params, dict) else {}, _future())
        number = next(self._numbers)
        self._calls[number] = self._posted[key] = call
        self._know(call.params.get("sessionId"), call.params.get("cwd"))
        passed = {**message, "id": number}
        if method == "initialize" and isinstance(params, dict):
            passed["params"] = _introduced(params)
        try:
            await self._write(passed)
        except ProcessFailed as error:
            if self._calls.pop(number, None) is not None:
                self._finish(call, {"error": {"code": ENDED, "message": error.message}})
        return call

    def taken(self, call: Call) -> None:
        """A client has been told; the same id is another request from now on, once this one is over."""
        call.taken = True
        if self._untaken.get(call.key) is call:
            del self._untaken[call.key]

    async def notify(self, message: Message, *, caller: Caller) -> None:
        """Pass a notification on. Raises ProcessFailed."""
        params = message.get("params")
        given = params if isinstance(params, dict) else {}
        if message["method"] == "$/cancel_request":
            number = self._number_of(given.get("requestId"), caller=caller)
            if number is None:
                return  # it is over, and the number may be another's
            message = {**message, "params": {**given, "requestId": number}}
        await self._write(message)
        if message["method"] == "session/cancel":
            self._cancel_turn(given.get("sessionId"))

    async def respond(self, message: Message, *, caller: Caller) -> None:
        """Answer a request of the agent: by way of the desk if it asks for somebody. The same again is fine.

        Raises RequestNotFound, RequestAnswered; of the desk AlreadyAnswered, AskWithdrawn, AnswerDoesNotFit.
        """
        key = json.dumps(message["id"])
        asked = self._open.get(key) or self._closed.get(key)
        if asked is None or not asked.place:
            raise RequestNotFound(message["id"])
        if asked.ask is not None:
            await self._answer(asked, asked.ask, message, caller=caller)
            return
        if asked.stopping.done():
            return  # the agent stopped waiting, and has been told so in its client's name
        if not asked.response:
            asked.response, asked.by = _digest(message), caller.name
            asked.message = {"id": message["id"]}  # a file may be in it
            self._settle(key, asked)
            await self._write(message)
        elif asked.response != _digest(message):
            raise RequestAnswered(message["id"], by=asked.by)

    async def _answer(self, asked: _Asked, ask: Ask, message: Message, *, caller: Caller) -> None:
        error = message.get("error")
        if error is not None and error["code"] == METHOD_NOT_FOUND and asked.kind != "permission":
            return  # that client cannot ask its person; somebody else may
        answer = to_answer(ask, message["result"]) if error is None else declined(error)
        answer = replace(answer, by=caller.name, via=VIA)
        try:
            async with asked.answering:
                await self._desk.settle(ask.id, answer, again=False, source=caller.source)
                asked.verbatim = message.get("result")
        except AlreadyAnswered:
            await self._desk.settle(ask.id, answer, again=True, source=caller.source)
        except AskWithdrawn:
            if not answer.rejected:  # else it says what is the case
                raise

    def _number_of(self, id: Any, *, caller: Caller) -> int | None:
        """Ours for a request of this caller that is under way; the newest where it used the id for several."""
        mine = [
            number
            for number, call in self._calls.items()
            if call.key[:2] == (caller.name, json.dumps(id)) and not call.response.done()
        ]
        return mine[-1] if mine else None

    def _cancel_turn(self, session: Any) -> None:
        """What the turn asked gets the answer that the protocol wants then. Clients may give it too."""
        for asked in list(self._open.values()):
            is_of_turn = asked.kind is not None and asked.message["params"].get("sessionId") == session
            if is_of_turn and not asked.stopping.done():
                asked.stopping.set_result("the turn was cancelled")

    # From the agent -------------------------------------------------------------------------------------------------

    def _take_safely(self, line: bytes) -> None:
        """A message that we cannot handle hurts no other."""
        try:
            self._take(line)
        except Exception:
            log.exception("a message of %s broke", self.session)
            self._reject(line, "it could not be read")

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = parsed(line)
            kind = kind_of(message)
        except ValueError as problem:
            self._reject(line, str(problem))
            return
        self._look("in", message)
        self._taken()
        match kind:
            case "request":
                self._asked(message, line)
            case "notification":
                self._told(message)
            case "response":
                self._answered(message, line)

    def _reject(self, line: bytes, problem: str) -> None:
        raw = line[: LONGEST_RAW * 4].decode("utf-8", errors="replace")[:LONGEST_RAW]
        self._publish({"method": "_adapter/invalid_stdout", "params": {"error": problem, "raw": raw}})

    def _told(self, message: Message) -> None:
        params = message.get("params")
        given = params if isinstance(params, dict) else {}
        if message["method"] == "session/update":
            self._note(given.get("update"))
        elif message["method"] == "$/cancel_request":
            self._stopped(message, given.get("requestId"))
            return
        self._publish(message)

    def _stopped(self, message: Message, id: Any) -> None:
        """The agent does not wait for this any more."""
        asked = self._open.get(json.dumps(id))
        if asked is None:
            self._publish(message)
            return
        if asked.place:
            self._publish(message)
        asked.by_agent = True
        if asked.kind is None:
            self._settle(json.dumps(id), asked)
            self._tasks.create_task(self._send(_refusal(asked, CANCELLED, "the request was cancelled")))
        if not asked.stopping.done():
            asked.stopping.set_result("the agent stopped waiting")

    def _answered(self, message: Message, line: bytes) -> None:
        number = message["id"]
        call = self._calls.pop(number, None) if isinstance(number, int) else None
        if call is None:
            self._reject(line, "it answers nothing that was asked")
            return
        result = message.get("result")
        if isinstance(result, dict):
            self._know(result.get("sessionId"), call.params.get("cwd"))
            if call.method == "initialize":
                self._quirks = quirks_of(result.get("agentInfo"), self._command)
                message = {**message, "result": _advertised(result)}
        self._finish(call, message)

    def _finish(self, call: Call, message: Mapping[str, Any]) -> None:
        """Tell the response to whoever holds the call, and to everybody who reads."""
        told: Message = {"jsonrpc": "2.0", **message, "id": call.id}
        self._publish(told)
        if not call.response.done():
            call.response.set_result(told)
        if self._posted.get(call.key) is call:
            del self._posted[call.key]
        if not call.taken:
            self._keep(self._untaken, call.key, call, most=MOST_OVER)

    def _asked(self, message: Message, line: bytes) -> None:
        key = json.dumps(message["id"])
        if key in self._open:
            self._reject(line, "a request with that id is open already")
            return
        asked = _Asked(message, METHODS.get(message["method"]))
        if len(self._open) >= MOST_OPEN:
            problem = f"{MOST_OPEN} requests wait for an answer here, and no more are taken; wait for those first"
            self._tasks.create_task(self._send(_refusal(asked, OVERLOADED, problem)))
            return
        self._closed.pop(key, None)
        self._open[key] = asked
        if asked.kind is None:
            self._show(asked)
            return
        try:
            ask = self._to_ask(asked.kind, message)
        except Exception as failed:
            log.warning("a request of %s cannot be asked", self.session, exc_info=not _ours(failed))
            del self._open[key]
            problem = failed.message if isinstance(failed, HandraiseError) else "the request could not be read"
            self._tasks.create_task(self._send(_refusal(asked, INVALID_PARAMS, problem)))
            return
        self._listener.became(ask.id, request=request_key(message["id"]))
        self._tasks.create_task(self._bring(key, asked, ask))

    # Asking ---------------------------------------------------------------------------------------------------------

    async def _bring(self, key: str, asked: _Asked, ask: Ask) -> None:
        """One request to the desk and the answer back. What goes wrong with it hurts no other."""
        try:
            await self._ask(key, asked, ask)
        except Exception as failed:
            log.warning("ask %s could not be brought to the desk: %s", ask.id, failed, exc_info=not _ours(failed))
            number = INVALID_PARAMS if isinstance(failed, AskDoesNotFit) else INTERNAL
            problem = failed.message if isinstance(failed, HandraiseError) else "the request could not be read"
            if asked.ask is not None:
                await self._withdraw(asked.ask, reason="it could not be brought to an end")
            await self._give(key, asked, {"error": {"code": number, "message": problem}})

    async def _ask(self, key: str, asked: _Asked, ask: Ask) -> None:
        """Where the desk closes first, the request stays open and the agent hears nothing."""
        asked.ask = settled = await self._desk.open(ask)
        if settled.state == "asked" and not asked.stopping.done():
            self._show(asked)
            settled = await self._settled(asked, settled)
        if settled.state != "asked":
            async with asked.answering:  # by now it is known whose answer counted
                pass
            await self._give(key, asked, {"result": self._result(asked, settled)}, settled=settled)
        elif asked.stopping.done():
            await self._withdraw(settled, reason=asked.stopping.result())
            await self._give(key, asked, _dismissal(asked))

    async def _settled(self, asked: _Asked, ask: Ask) -> Ask:
        async with Tasks() as tasks:
            waiting = tasks.start(self._desk.wait(ask.id))
            until: list[asyncio.Future[Any]] = [waiting, asked.stopping]
            await asyncio.wait(until, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else ask

    def _result(self, asked: _Asked, settled: Ask) -> Any:
        if asked.verbatim is not None:
            self._sent.append(settled.id)
            return asked.verbatim
        if settled.answer is not None:
            try:
                result = from_answer(settled, settled.answer, quirks=self._quirks)
            except AnswerDoesNotFit as misfit:
                self._desk.delivered(settled.id, error=misfit.message)
            else:
                self._sent.append(settled.id)
                return result
        assert asked.kind is not None
        return dismissed(asked.kind)

    async def _give(self, key: str, asked: _Asked, reply: Message, *, settled: Ask | None = None) -> None:
        """Clients hear that it is over, and the agent what came of it."""
        if asked.place and not asked.by_agent:
            self._publish({"method": "$/cancel_request", "params": _settlement(asked, settled)})
        self._settle(key, asked)
        if self._is_over:
            self._not_taken("the agent ended")
            return
        await self._send({"jsonrpc": "2.0", "id": asked.message["id"], **reply})

    async def _withdraw(self, ask: Ask, *, reason: str) -> None:
        try:
            await self._desk.withdraw(ask.id, reason=reason)
        except AlreadyAnswered:
            self._desk.delivered(ask.id, error=f"{reason} before it took the answer")
        except AskNotFound:
            return
        except HandraiseError as error:
            log.warning("ask %s could not be withdrawn: %s", ask.id, error.code)

    def _to_ask(self, kind: Kind, message: Message) -> Ask:
        params = message.get("params")
        if not isinstance(params, dict):
            raise AskDoesNotFit("the request has no params")
        if kind == "form" and params.get("mode", "form") not in ("form", "url"):
            raise AskDoesNotFit("forms are filled in here and addresses opened; `mode` is neither")
        said = params.get("toolCall")
        tool = said.get("toolCallId") if isinstance(said, dict) else None
        id = json.dumps(message["id"])
        if len(id) > LONGEST_ID:
            id = hashlib.sha256(id.encode()).hexdigest()
        key = f"{AGENT}:{self._connection}:{kind}:{id}"
        # An id that comes again is another request, and yesterday's answer must not grant today's command.
        again = self._used[key] + 1
        ask = to_ask(
            kind,
            params,
            id=key if again == 1 else f"{key}#{again}",
            origin=self._origin(params.get("sessionId")),
            call=self._tools.get(tool) if isinstance(tool, str) else None,
            quirks=self._quirks,
        )
        self._used[key] = again
        return ask

    def _origin(self, session: Any) -> Origin:
        """A session that no client opened is one of a subagent."""
        own = session if isinstance(session, str) else ""
        folder = self._folders.get(own)
        if not own or not self._folders or own in self._folders:
            return Origin(agent=AGENT, session=self.session, cwd=folder)
        return Origin(agent=AGENT, session=f"{self.session}/{own}", parent=self.session)

    def _know(self, session: Any, folder: Any) -> None:
        if isinstance(session, str) and session:
            known = self._folders.pop(session, None)
            where = folder if isinstance(folder, str) and folder else known
            self._keep(self._folders, session, where, most=MOST_KEPT)

    def _note(self, update: Any) -> None:
        """What an agent says of a tool call, for the request that only names it."""
        if not isinstance(update, dict) or update.get("sessionUpdate") not in ("tool_call", "tool_call_update"):
            return
        id = update.get("toolCallId")
        if isinstance(id, str):
            tool = self._tools.pop(id, {})
            tool.update({key: value for key, value in update.items() if value is not None})
            self._keep(self._tools, id, tool, most=MOST_KEPT)

    # Telling --------------------------------------------------------------------------------------------------------

    def _show(self, asked: _Asked) -> None:
        """Clients hear of the request, and go on to do so until it is over, however late they come."""
        message = asked.message
        params = message.get("params")
        about = params.get("requestId") if isinstance(params, dict) else None
        call = self._calls.get(about) if isinstance(about, int) else None
        if call is not None:  # a client knows its request by its own id
            message = {**message, "params": {**message["params"], "requestId": call.id}}
        asked.place = self._publish(message, hold=True)

    def _hide(self, asked: _Asked) -> None:
        self.backlog.let_go(asked.place)

    def _settle(self, key: str, asked: _Asked) -> None:
        """It is over."""
        self._hide(asked)
        if self._open.get(key) is asked:
            del self._open[key]
            self._keep(self._closed, key, asked, most=MOST_OVER)

    def _keep(self, kept: dict[Any, Any], key: Any, value: Any, *, most: int) -> None:
        """The newest ones."""
        kept[key] = value
        if len(kept) > most:
            del kept[next(iter(kept))]

    def _publish(self, message: Mapping[str, Any], *, hold: bool = False) -> int:
        told = {"jsonrpc": "2.0", **message}
        return self.backlog.add(json.dumps(told, separators=(",", ":")).encode(), hold=hold)

    async def _send(self, message: Message) -> None:
        """To the agent. If it is gone, that is noticed elsewhere."""
        try:
            await self._write(message)
        except ProcessFailed:
            return

    async def _write(self, message: Mapping[str, Any]) -> None:
        self._look("out", message)
        await self._process.write_line(json.dumps(message, separators=(",", ":")).encode())

    def _look(self, way: Literal["in", "out"], message: Mapping[str, Any]) -> None:
        """Let whoever listens see a message, with the method it is about."""
        id, method = message.get("id"), message.get("method")
        request = None
        if way == "in" and method is not None:
            request = id
        elif way == "out" and method is None:
            key, request = json.dumps(id), id
            asked = self._open.get(key) or self._closed.get(key)
            # Of one that is long over nothing but its id is left.
            method = None if asked is None else asked.message.get("method")
        elif method is None and isinstance(id, int):
            method = self._calls[id].method if id in self._calls else None
        self._seen(way, message, method=str(method or ""), request=request)

    def _taken(self) -> None:
        """The agent says something. The protocol knows no receipt, and this is the next best sign."""
        for id in self._take_sent():
            self._desk.delivered(id)

    def _not_taken(self, reason: str) -> None:
        for id in self._take_sent():
            self._desk.delivered(id, error=f"{reason} before it took the answer")

    def _take_sent(self) -> list[str]:
        sent, self._sent = self._sent, []
        return sent


# Messages -----------------------------------------------------------------------------------------------------------


def parsed(text: bytes) -> Message:
    """One message. Raises ValueError with what is wrong with it."""
    try:
        message = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except ValueError as problem:
        raise ValueError(f"it is not JSON: {problem}") from None
    if isinstance(message, list):
        raise ValueError("it is a list; send one message at a time")
    if not isinstance(message, dict):
        raise ValueError("it is no JSON-RPC message")
    if _levels(message) > MOST_LEVELS:
        raise ValueError("it is nested too deep")
    return message


def _levels(message: Message) -> int:
    """How deep it is nested, as far as that matters."""
    level: list[Any] = [message]
    for number in range(MOST_LEVELS + 1):
        level = [
            deeper
            for each in level
            for deeper in (each.values() if isinstance(each, dict) else each)
            if isinstance(deeper, dict | list)
        ]
        if not level:
            return number + 1
    return MOST_LEVELS + 1


def kind_of(message: Message) -> Literal["request", "notification", "response"]:
    """Raises ValueError with what is wrong with it."""
    if message.get("jsonrpc") != "2.0":
        raise ValueError('it is no JSON-RPC message: `jsonrpc` is not "2.0"')
    if "id" in message and not _is_id(message["id"]):
        raise ValueError("`id` is a text or a whole number")
    if "method" in message:
        if not isinstance(message["method"], str):
            raise ValueError("`method` is a text")
        if not isinstance(message.get("params", {}), dict | list):
            raise ValueError("`params` is an object or a list")
        return "request" if "id" in message else "notification"
    error = message.get("error")
    if "id" not in message or ("result" in message) == (error is not None):
        raise ValueError("it has neither a `method`, nor an `id` with either a `result` or an `error`")
    if error is not None and (not isinstance(error, dict) or not isinstance(error.get("code"), int)):
        raise ValueError("`error` is an object with a `code`")
    return "response"


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _digest(message: Message) -> bytes:
    """What a message is, but for its id."""
    content = {name: value for name, value in message.items() if name != "id"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()


def _ours(failed: Exception) -> bool:
    return isinstance(failed, HandraiseError)


def _future() -> asyncio.Future[Message]:
    return asyncio.get_running_loop().create_future()


def _refusal(asked: _Asked, number: int, problem: str) -> Message:
    return {"jsonrpc": "2.0", "id": asked.message["id"], "error": {"code": number, "message": problem}}


def _dismissal(asked: _Asked) -> Message:
    """What the agent gets where nobody will answer."""
    if asked.by_agent:
        return {"error": {"code": CANCELLED, "message": "the request was cancelled"}}
    assert asked.kind is not None
    return {"result": dismissed(asked.kind)}


def _settlement(asked: _Asked, settled: Ask | None) -> dict[str, Any]:
    """Why a client need not answer: who did, where somebody did."""
    told: dict[str, Any] = {"requestId": asked.message["id"]}
    if settled is None or settled.answer is None:
        return {**told, "_meta": {"handraise": {"state": "withdrawn"}}}
    answer = settled.answer
    return {**told, "_meta": {"handraise": {"state": settled.state, "by": answer.by, "via": answer.via}}}


def _introduced(params: Mapping[str, Any]) -> dict[str, Any]:
    """What a client says of itself, and what the desk can do besides."""
    able = _copy(params.get("clientCapabilities"))
    elicitation = _copy(able.get("elicitation"))
    for name, ours in ABLE.items():
        if not isinstance(elicitation.get(name), dict):
            elicitation[name] = ours
    able["elicitation"] = elicitation
    return {**params, "clientCapabilities": _extended(able, {"sessionRequestQuestion": True})}


def _advertised(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the agent says of itself, and that its questions are brought to people."""
    able = _copy(result.get("agentCapabilities"))
    extensions = _copy(_copy(_copy(able.get("_meta")).get(EXTENSION)).get("extensions"))
    extensions["sessionRequestQuestion"] = True
    return {**result, "agentCapabilities": _extended(able, {"extensions": extensions})}


def _extended(able: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    meta = _copy(able.get("_meta"))
    meta[EXTENSION] = {**_copy(meta.get(EXTENSION)), **more}
    return {**able, "_meta": meta}


def _copy(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
