"""One live conversation with an agent over ACP: its requests become asks, answers go back, and it is ended safely.

A request lives in the connection: it is neither repeated nor answered after the program has ended. So what was open
then is told in words, in a session that the agent loads again where it can.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from handraise.agents import Asker, Message, Reply, Start
from handraise.agents.acp.quirks import Quirks, mode_of, names_of, quirks_of
from handraise.agents.acp.translate import METHODS, Kind, dismissed, from_answer, is_same_call, to_ask, told_later
from handraise.asks import Answer, Ask, Origin
from handraise.errors import (
    AgentFailed,
    AlreadyAnswered,
    AnswerDoesNotFit,
    AskDoesNotFit,
    AskNotFound,
    HandraiseError,
    ProcessFailed,
    SettingsError,
    Withdrawn,
)
from handraise.inert import inert
from handraise.transports.jsonrpc import (
    CANCELLED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    JsonRpc,
    PeerGone,
    RpcError,
)
from handraise.transports.process import Process

__all__ = ["CLIENT", "VERSION", "AcpSession", "shake_hands"]

log = logging.getLogger(__name__)

NAME = "acp"
VERSION = 1  # of the protocol
CLIENT: Mapping[str, Any] = {
    "fs": {"readTextFile": False, "writeTextFile": False},
    "terminal": False,
    "elicitation": {"form": {}, "url": {}},  # without it, agents take their question tool away
    "_meta": {"sandboxagent.dev": {"sessionRequestQuestion": True}},
}
START = 60.0  # seconds for each step of the handshake; agents in Node take some on a busy machine
STOP = 15.0  # seconds for it to stop when told to
AGAIN, TRIES = 0.05, 40  # seconds, and how often, to find an ask at the desk that is just being raised there
MOST_OPEN = 200  # requests that wait at once; nobody could look through more, and an agent's own limit is far below
MOST_CALLS = 1000  # tool calls that are remembered until they are done
LONGEST_WORDS = 1000  # of what it says about its own trouble
OVERLOADED, LOGIN_WANTED = -32001, -32000  # the second is the protocol's own
STOPPED: Mapping[str, str] = {
    "max_tokens": "it came to the limit of what the model may say; prompt the session to go on",
    "max_turn_requests": "it came to its limit of steps in a turn; prompt the session to go on",
    "refusal": "the model refused to go on; say it in another way",
    "cancelled": "it cancelled the turn by itself; prompt the session to go on",
}


@dataclass(slots=True)
class _Held:
    """A request of the agent that waits for the desk."""

    ask: Ask
    kind: Kind
    waiting: asyncio.Future[Answer]
    stopping: asyncio.Future[None]  # done once nobody is to answer it any more
    by_agent: bool = False  # it was the agent that said so


@dataclass(slots=True)
class _Turn:
    """What runs between a prompt and its result."""

    reply: asyncio.Future[Reply]
    told: list[str] = field(default_factory=list)  # asks whose answers are in the prompt
    granted: list[tuple[Ask, Answer]] = field(default_factory=list)  # calls it may make once without asking again
    text: str = ""  # the last message that is whole
    task: asyncio.Task[None] | None = None


class AcpSession:
    """Made by `Acp.open`, which also calls `begin`."""

    def __init__(self, process: Process, *, command: Sequence[str], asker: Asker, start: Start) -> None:
        self._process = process
        self._command = command
        self._asker = asker
        self._start = start
        self._cwd = str(Path(start.cwd or ".").absolute())  # the protocol wants a whole path
        self._rpc = JsonRpc(process, asked=self._asked, told=self._told)
        self._connection = uuid4().hex  # in the ids of asks, since the agent counts anew in each connection
        self._used: Counter[str] = Counter()
        self._session = ""
        self._name = Path(command[0]).name
        self._quirks = Quirks()
        self._held: dict[int | str, _Held] = {}
        self._sent: list[str] = []  # asks whose answers were written and that the agent gave no sign after
        self._calls: dict[str, dict[str, Any]] = {}
        self._said: set[str] = set()  # calls that the listener was told of
        self._words: list[str] = []  # of the message that is still being said
        self._message: str | None = None  # its id, where the agent gives one
        self._recorded = {ask.id: ask for ask in (start.cut.asks if start.cut else ())}
        self._recalled: asyncio.Task[list[tuple[Ask, Answer]]] | None = None
        self._turn: _Turn | None = None
        self._is_loading = self._is_aborting = self._is_leaving = self._is_over = False
        self._last = ""  # why it is over
        self._running: asyncio.Task[None] | None = None

    @property
    def handle(self) -> Mapping[str, Any]:
        return {"session": self._session}

    @property
    def pid(self) -> int:
        """The program's process."""
        return self._process.pid

    # Beginning ------------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Shake hands and open the conversation, or load it. Raises AgentFailed with its words, SettingsError."""
        self._running = asyncio.create_task(self._run())
        try:
            told = await _introduce(self._rpc, self._process, name=self._name)
            self._meet(told.get("agentInfo"))
            opened = await self._open(told)
            await self._set_mode(opened)
        except BaseException:
            await self._end()
            raise

    def _meet(self, info: Any) -> None:
        self._quirks = quirks_of(names_of(info, self._command))
        if isinstance(info, Mapping) and isinstance(info.get("name"), str) and info["name"]:
            self._name = inert(info["name"], keep="")[:100]

    async def _open(self, told: Mapping[str, Any]) -> Mapping[str, Any]:
        where = {"cwd": self._cwd, "mcpServers": []}
        cut = self._start.cut
        if cut is None:
            opened = await self._request("session/new", where)
            session = opened.get("sessionId")
            if not isinstance(session, str) or not session:
                raise AgentFailed(f"{self._name} opened a session without an id; report that to whoever makes it")
            self._session = session
            return opened
        self._session = str(cut.handle.get("session"))
        self._is_loading = True  # what it tells now was said before
        try:
            for method in _loading(told):
                try:
                    return await self._request(method, {"sessionId": self._session, **where})
                except AgentFailed as failed:
                    # Qwen Code 0.15.10 says that it resumes, under this name in vain.
                    if not isinstance(failed.__cause__, RpcError) or failed.__cause__.number != METHOD_NOT_FOUND:
                        raise
        finally:
            self._is_loading = False
        raise AgentFailed(f"{self._name} cannot take up a session again; start a new one with `handraise start`")

    async def _set_mode(self, opened: Mapping[str, Any]) -> None:
        wanted = self._start.mode
        if wanted is None:
            return
        modes = opened.get("modes")
        offered = modes.get("availableModes") if isinstance(modes, Mapping) else None
        ids = [each.get("id") for each in offered if isinstance(each, Mapping)] if isinstance(offered, list) else []
        known = [id for id in ids if isinstance(id, str)]
        mode = mode_of(wanted, known)
        if mode is None and not known and wanted == "default":
            return  # it has no modes, so it is in none
        if mode is None:
            offers = inert(", ".join(known), keep="")[:LONGEST_WORDS]
            offers = f"it offers {offers}" if offers else "it offers none"
            raise SettingsError(f"{self._name} has no mode like {wanted!r}, {offers}; start it without --mode")
        await self._request("session/set_mode", {"sessionId": self._session, "modeId": mode})

    async def _request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return await _request(self._rpc, self._process, method, params, name=self._name)

    # Turns ----------------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> Reply:
        """What a worker before us left and nobody goes on with is given up for this."""
        await self._let_go_of_recorded(reason="the session went on with another prompt")
        return await self._prompt(text)

    async def go_on(self) -> Reply | None:
        """The requests are gone with their connection: their answers are waited for and told in a prompt."""
        cut = self._start.cut
        if cut is None or (cut.prompt is None and not cut.asks):
            return None
        if not cut.asks:
            raise AgentFailed(
                f"the worker before this one died in the middle of a turn, and {self._name} does not take that up by "
                "itself; prompt the session to go on"
            )
        self._recalled = asyncio.create_task(self._recall(cut.asks))
        answered = await self._recalled  # cancelled by an abort
        if not answered:
            raise AgentFailed(f"everything {self._name} had asked was withdrawn meanwhile; prompt the session to go on")
        text = "\n".join(
            ["The session was interrupted before this reached you.", *(told_later(*each) for each in answered)]
        )
        self._start.listener.said(Message(role="notice", text=text))
        granted = [(ask, answer) for ask, answer in answered if ask.permission is not None and not answer.rejected]
        return await self._prompt(text, told=[ask.id for ask, _ in answered], granted=granted)

    async def _recall(self, asks: Sequence[Ask]) -> list[tuple[Ask, Answer]]:
        """The answers to asks whose request is gone. Those that were withdrawn are left out."""
        answered: list[tuple[Ask, Answer]] = []
        for ask in asks:  # in whatever order they are answered, all of them are needed
            try:
                answered.append((ask, await self._asker.ask(ask, handling=self._start.handling)))
            except Withdrawn:
                continue
        self._recorded.clear()
        return answered

    async def _let_go_of_recorded(self, *, reason: str) -> None:
        recorded, self._recorded = self._recorded, {}
        for ask in recorded.values():
            with suppress(AskNotFound):
                await self._withdraw(ask, reason=reason)

    async def _prompt(
        self, text: str, *, told: Sequence[str] = (), granted: Sequence[tuple[Ask, Answer]] = ()
    ) -> Reply:
        if self._is_over:
            raise AgentFailed(f"{self._name} has ended: {self._last}" if self._last else "the session is closed")
        if self._turn is not None:
            raise AgentFailed(f"{self._name} is still busy with the turn before; wait for it, or abort it")
        turn = _Turn(asyncio.get_running_loop().create_future(), told=list(told), granted=list(granted))
        turn.reply.add_done_callback(_look_at)
        self._turn = turn
        turn.task = asyncio.create_task(self._play(turn, text))
        # Cancelling the call ends nothing but the waiting; the turn goes on until it is aborted or left.
        return await asyncio.shield(turn.reply)

    async def _play(self, turn: _Turn, text: str) -> None:
        """The turn to its end. Where the program ends first, `_gone` says so."""
        prompt = [{"type": "text", "text": text}]
        try:
            result = await self._rpc.request("session/prompt", {"sessionId": self._session, "prompt": prompt})
        except RpcError as error:
            told, turn.told = turn.told, []
            for id in told:
                self._asker.delivered(id, error="the turn failed before it was read")
            self._finish(turn, problem=inert(error.message)[:LONGEST_WORDS])
            return
        except (PeerGone, ProcessFailed):
            return
        reason = result.get("stopReason") if isinstance(result, Mapping) else None
        self._finish(turn, problem="" if reason == "end_turn" else STOPPED.get(str(reason), "it did not say why"))

    def _finish(self, turn: _Turn, *, problem: str) -> None:
        self._spoken()
        self._taken()
        self._calls.clear()
        self._said.clear()
        self._turn = None
        if turn.reply.done():
            return
        if self._is_aborting:
            turn.reply.cancel()
        elif problem:
            turn.reply.set_exception(AgentFailed(f"{self._name} could not finish: {problem}"))
        else:
            turn.reply.set_result(Reply(text=turn.text))

    # Stopping -------------------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """Cancel the turn; `prompt` is cancelled and the program stays for the next one."""
        await self._stop_recalling()
        turn = self._turn
        if self._is_over or turn is None or turn.task is None:
            return
        self._is_aborting = True
        try:
            await self._rpc.notify("session/cancel", {"sessionId": self._session})
            await self._stop_held()
            await asyncio.wait([turn.task], timeout=STOP)
            if not turn.task.done():
                raise AgentFailed(f"{self._name} did not stop when its turn was cancelled, so its process was ended")
        except (AgentFailed, ProcessFailed) as error:
            self._last = "it did not stop when its turn was cancelled"
            await self._end()
            raise AgentFailed(error.message) from error
        finally:
            self._is_aborting = False
            turn.reply.cancel()

    async def close(self) -> None:
        await self._stop_recalling()
        held, turn = self._take_held(), self._turn
        await self._end()
        for each in held:
            await self._call_off(each, reason="the session was closed")
        self._not_taken("the session was closed before it took the answer", turn=turn)

    async def leave(self) -> None:
        """End the program: it would go on unattended. What it asked stays open, for `go_on` of whoever comes next."""
        self._is_leaving = True
        if self._recalled is not None:
            self._recalled.cancel()
            await asyncio.wait([self._recalled])
        await self._end()

    async def _stop_held(self) -> None:
        """Each is answered that it was cancelled, as the protocol wants it."""
        held = [each for each in self._held.values() if not each.stopping.done()]
        for each in held:
            each.stopping.set_result(None)
        for each in held:
            await self._call_off(each, reason="the turn was aborted")

    async def _stop_recalling(self) -> None:
        """What was waited for on behalf of a request that is gone is withdrawn too."""
        if self._recalled is None or self._recalled.done():
            return
        self._recalled.cancel()
        await asyncio.wait([self._recalled])
        await self._let_go_of_recorded(reason="the turn was aborted")

    def _take_held(self) -> list[_Held]:
        held = [each for each in self._held.values() if not each.stopping.done()]
        self._held.clear()
        return held

    async def _call_off(self, held: _Held, *, reason: str) -> None:
        """Withdraw what nobody waits for. One that came and went in the same breath may be on its way to the desk."""
        for _ in range(TRIES):
            try:
                await self._withdraw(held.ask, reason=reason)
            except AskNotFound:
                await asyncio.wait([held.waiting], timeout=AGAIN)
                if not held.waiting.done():
                    continue
            break
        held.waiting.cancel()

    async def _withdraw(self, ask: Ask, *, reason: str) -> None:
        try:
            await self._asker.withdraw(ask.id, reason=reason)
        except AlreadyAnswered:
            self._asker.delivered(ask.id, error=f"{reason} before {self._name} took the answer")
        except AskNotFound:
            raise
        except HandraiseError as error:
            log.warning("ask %s of %s could not be withdrawn: %s", ask.id, self._name, error.code)

    async def _end(self) -> None:
        """Kill the program while its stdin is open, and forget what was under way. Withdraws nothing."""
        self._is_over = True
        for held in self._take_held():
            held.waiting.cancel()
        await self._process.close()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=STOP)  # it may have to withdraw what a dead program asked
            self._running.cancel()
            await asyncio.wait([self._running])
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.reply.cancel()
            if turn.task is not None:
                turn.task.cancel()
                await asyncio.wait([turn.task])

    # Listening ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Hear the program until it ends. JsonRpc owns the tasks of what it asks, and ends them then."""
        words = ""
        try:
            await self._rpc.listen()
        except ProcessFailed as error:
            words = error.message
        if not self._is_over and not self._is_leaving:
            await self._gone(words)

    async def _gone(self, words: str) -> None:
        """The program ended by itself. Nobody there waits for an answer any more."""
        self._is_over = True
        await self._process.close()
        self._last = (
            _last_words(self._process) or words or f"its process ended with exit code {self._process.exit_code}"
        )
        for each in self._take_held():
            await self._call_off(each, reason=f"{self._name} ended: {self._last}")
        self._not_taken(f"{self._name} ended before it took it: {self._last}", turn=self._turn)
        turn, self._turn = self._turn, None
        if turn is None or turn.reply.done():
            return
        if self._is_aborting:
            turn.reply.cancel()
        else:
            turn.reply.set_exception(AgentFailed(f"{self._name} ended in the middle of its turn: {self._last}"))

    def _not_taken(self, problem: str, *, turn: _Turn | None) -> None:
        for id in self._take_sent(turn):
            self._asker.delivered(id, error=problem)

    def _taken(self) -> None:
        """The agent says something. The protocol knows no receipt, and this is the next best sign."""
        for id in self._take_sent(self._turn):
            self._asker.delivered(id)

    def _take_sent(self, turn: _Turn | None) -> list[str]:
        sent, self._sent = self._sent, []
        if turn is not None:
            sent = [*sent, *turn.told]
            turn.told.clear()
        return sent

    def _told(self, method: str, params: dict[str, Any]) -> None:
        if self._is_over or self._is_leaving or self._is_loading:
            return
        self._start.listener.active()
        self._taken()
        match method:
            case "session/update":
                update = params.get("update")
                if isinstance(update, dict):
                    self._updated(update, is_main=params.get("sessionId") == self._session)
            case "$/cancel_request":
                # After the request's own task has begun, which may have come in the same breath.
                asyncio.get_running_loop().call_soon(self._cancelled, params.get("requestId"))

    def _updated(self, update: dict[str, Any], *, is_main: bool) -> None:
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                content, message = update.get("content"), update.get("messageId")
                text = content.get("text") if isinstance(content, dict) else None
                if not is_main or not isinstance(text, str):
                    return
                if isinstance(message, str) and message != self._message:
                    self._spoken()
                    self._message = message
                self._words.append(text)
            case "tool_call" | "tool_call_update" if isinstance(update.get("toolCallId"), str):
                self._called(update, is_first=update["sessionUpdate"] == "tool_call")

    def _called(self, update: dict[str, Any], *, is_first: bool) -> None:
        """A call is told once: when it says what it is about. Some send that a moment after its beginning."""
        id = update["toolCallId"]
        if is_first:
            self._spoken()
        call = self._calls.pop(id, {})
        call.update({key: value for key, value in update.items() if value is not None})
        self._calls[id] = call  # the newest last
        if len(self._calls) > MOST_CALLS:
            oldest = next(iter(self._calls))
            del self._calls[oldest]
            self._said.discard(oldest)
        title = call.get("title")
        if id in self._said or not isinstance(title, str) or (is_first and call.get("rawInput") == {}):
            return
        self._said.add(id)
        called = {"name": str(call.get("name") or call.get("kind") or "tool"), "input": call.get("rawInput")}
        self._start.listener.said(Message(role="tool", text=title, extra=called))

    def _spoken(self) -> None:
        """What it was saying is whole."""
        text, self._words, self._message = "".join(self._words), [], None
        if not text:
            return
        if self._turn is not None:
            self._turn.text = text
        self._start.listener.said(Message(role="agent", text=text))

    def _cancelled(self, id: Any) -> None:
        """The agent does not wait for this any more."""
        held = self._held.get(id) if isinstance(id, int | str) and not isinstance(id, bool) else None
        if held is not None and not held.stopping.done():
            held.by_agent = True
            held.stopping.set_result(None)

    # Asking ---------------------------------------------------------------------------------------------------------

    async def _asked(self, id: int | str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer one request. When the desk closes first, it stays held, and the agent hears nothing."""
        kind = METHODS.get(method)
        if kind is None:
            raise RpcError(f"this client does not know {method[:100]}", number=METHOD_NOT_FOUND)
        self._start.listener.active()
        self._taken()
        self._spoken()
        if self._is_aborting or self._is_over or self._is_leaving:
            return dismissed(kind)
        if len(self._held) >= MOST_OPEN:
            raise RpcError(
                f"{MOST_OPEN} requests of this session wait for an answer, and no more are taken; wait for those first",
                number=OVERLOADED,
            )
        ask = self._to_ask(id, kind, params)
        granted = self._take_granted(ask)
        if granted is not None:
            return from_answer(ask, granted, quirks=self._quirks)
        waiting = asyncio.ensure_future(self._asker.ask(ask, handling=self._start.handling))
        waiting.add_done_callback(_look_at)
        self._held[id] = held = _Held(ask, kind, waiting, asyncio.get_running_loop().create_future())
        until: list[asyncio.Future[Any]] = [held.waiting, held.stopping]
        await asyncio.wait(until, return_when=asyncio.FIRST_COMPLETED)
        return await self._answer(id, held)

    async def _answer(self, id: int | str, held: _Held) -> dict[str, Any]:
        ask = held.ask
        if not held.stopping.done() and held.waiting.cancelled():
            raise asyncio.CancelledError  # the desk ended its waits
        self._held.pop(id, None)
        if held.by_agent:
            await self._call_off(held, reason=f"{self._name} stopped waiting")
            raise RpcError("the request was cancelled", number=CANCELLED)
        if held.stopping.done():
            return dismissed(held.kind)
        try:
            reply = from_answer(ask, held.waiting.result(), quirks=self._quirks)
        except Withdrawn:
            return dismissed(held.kind)
        except AnswerDoesNotFit as misfit:
            self._asker.delivered(ask.id, error=misfit.message)
            return dismissed(held.kind)
        except AskDoesNotFit as misfit:
            raise RpcError(misfit.message, number=INVALID_PARAMS) from misfit
        self._sent.append(ask.id)
        return reply

    def _to_ask(self, id: int | str, kind: Kind, params: Mapping[str, Any]) -> Ask:
        if kind == "form" and params.get("mode", "form") not in ("form", "url"):
            raise RpcError("this client fills in forms and opens addresses; `mode` is neither", number=INVALID_PARAMS)
        said = params.get("toolCall")
        call = said.get("toolCallId") if isinstance(said, Mapping) else None
        key = f"{NAME}:{self._connection}:{self._session}:{kind}:{json.dumps(id)}"
        # An id that comes again is another request, and yesterday's answer must not grant today's command.
        again = self._used[key] + 1
        try:
            ask = to_ask(
                kind,
                params,
                id=key if again == 1 else f"{key}#{again}",
                origin=self._origin(params.get("sessionId")),
                call=self._calls.get(call) if isinstance(call, str) else None,
            )
        except AskDoesNotFit as misfit:
            raise RpcError(misfit.message, number=INVALID_PARAMS) from misfit
        self._used[key] = again
        if ask.permission is not None and isinstance(said, dict) and isinstance(call, str):
            self._called(said, is_first=False)  # some say nothing of a call before they ask for it
        return ask

    def _take_granted(self, ask: Ask) -> Answer | None:
        """The grant of a call that was lost with its connection, for the first one that is exactly the same."""
        granted = self._turn.granted if self._turn is not None else []
        for number, (recorded, answer) in enumerate(granted):
            if is_same_call(recorded, ask):
                del granted[number]
                return answer
        return None

    def _origin(self, session: Any) -> Origin:
        """A session of the agent's that is not ours is one of a subagent."""
        start = self._start
        is_subagent = isinstance(session, str) and session not in ("", self._session)
        return Origin(
            agent=NAME,
            session=f"{start.session}/{session}" if is_subagent else start.session,
            run=start.run,
            step=start.step,
            parent=start.session if is_subagent else start.parent,
            cwd=start.cwd,
        )


async def shake_hands(process: Process, *, name: str) -> Mapping[str, Any]:
    """What an agent says of itself, without a session. Raises AgentFailed."""
    rpc = JsonRpc(process, asked=_refuse, told=lambda method, params: None)
    listening = asyncio.create_task(rpc.listen())
    try:
        return await _introduce(rpc, process, name=name)
    finally:
        listening.cancel()
        await asyncio.wait([listening])


async def _refuse(id: int | str, method: str, params: dict[str, Any]) -> Any:
    raise RpcError(f"there is no session for {method[:100]}", number=METHOD_NOT_FOUND)


async def _introduce(rpc: JsonRpc, process: Process, *, name: str) -> Mapping[str, Any]:
    ours = {"name": "handraise", "version": version("handraise")}
    asking = {"protocolVersion": VERSION, "clientCapabilities": CLIENT, "clientInfo": ours}
    told = await _request(rpc, process, "initialize", asking, name=name)
    spoken = told.get("protocolVersion")
    if spoken != VERSION:
        raise AgentFailed(
            f"{name} speaks version {inert(str(spoken), keep='')[:20]} of ACP and not {VERSION}; "
            "install a version of it that does"
        )
    return told


async def _request(
    rpc: JsonRpc, process: Process, method: str, params: Mapping[str, Any], *, name: str
) -> Mapping[str, Any]:
    """A step that takes seconds at most. Raises AgentFailed."""
    try:
        async with asyncio.timeout(START):
            told = await rpc.request(method, params)
    except TimeoutError:
        raise AgentFailed(
            f"{name} did not answer {method!r} in {START:.0f} seconds; check that it speaks ACP"
        ) from None
    except RpcError as error:
        words = inert(error.message)[:LONGEST_WORDS]
        if error.number == LOGIN_WANTED:
            raise AgentFailed(f"{name} wants you to log in ({words}); start it once by itself") from error
        raise AgentFailed(f"{name} refused {method!r}: {words}") from error
    except (PeerGone, ProcessFailed) as error:
        await process.close()
        words = _last_words(process) or f"its process ended with exit code {process.exit_code}"
        raise AgentFailed(f"{name} did not start: {words}") from error
    return told if isinstance(told, Mapping) else {}


def _last_words(process: Process) -> str:
    return inert(process.stderr_tail.strip()[-LONGEST_WORDS:])


def _loading(told: Mapping[str, Any]) -> list[str]:
    """How the agent takes a session up again. Resuming comes first: it does not tell everything once more."""
    able = told.get("agentCapabilities")
    if not isinstance(able, Mapping):
        return []
    of_sessions = able.get("sessionCapabilities")
    resumes = isinstance(of_sessions, Mapping) and isinstance(of_sessions.get("resume"), Mapping)
    return ["session/resume"] * resumes + ["session/load"] * (able.get("loadSession") is True)


def _look_at(done: asyncio.Future[Any]) -> None:
    """Nobody may wait for it any more, which is no reason to warn of an exception that nobody saw."""
    if not done.cancelled():
        done.exception()
