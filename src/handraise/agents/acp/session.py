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
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from handraise.agents import Asker, Message, Reply, Start
from handraise.agents._conversation import (
    ABORTED,
    LONGEST_WORDS,
    Conversation,
    Held,
    Prompt,
    origin_of,
    request_key,
    seen_by,
)
from handraise.agents._programs import last_words
from handraise.agents.acp.handshake import introduce, request, ways_to_load
from handraise.agents.acp.modes import mode_of
from handraise.agents.acp.quirks import Quirks, quirks_of
from handraise.agents.acp.translate import (
    METHODS,
    Kind,
    detail_of,
    dismissed,
    from_answer,
    is_same_call,
    to_ask,
    told_later,
)
from handraise.asks import Ask
from handraise.errors import (
    AgentFailed,
    AnswerDoesNotFit,
    AskDoesNotFit,
    Overloaded,
    ProcessFailed,
    SettingsError,
    Withdrawn,
)
from handraise.text.inert import inert
from handraise.transports.jsonrpc import (
    CANCELLED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Id,
    JsonRpc,
    PeerGone,
    RpcError,
)
from handraise.transports.process import Process

__all__ = ["AcpSession"]

log = logging.getLogger(__name__)

NAME = "acp"
MOST_CALLS = 1000  # tool calls that are remembered until they are done
OVERLOADED = -32001
STOPPED: Mapping[str, str] = {
    "max_tokens": "it came to the limit of what the model may say; prompt the session to go on",
    "max_turn_requests": "it came to its limit of steps in a turn; prompt the session to go on",
    "refusal": "the model refused to go on; say it in another way",
    "cancelled": "it cancelled the turn by itself; prompt the session to go on",
}


@dataclass(slots=True, kw_only=True)
class _Held(Held):
    kind: Kind
    stopping: asyncio.Future[None]  # done once nobody is to answer it any more; it is told so all the same
    by_agent: bool = False  # it was the agent that said so


class AcpSession:
    """Made by `Acp.open`, which also calls `begin`."""

    def __init__(self, process: Process, *, command: Sequence[str], asker: Asker, start: Start) -> None:
        self._talk: Conversation[_Held] = Conversation(
            process, name=Path(command[0]).name, asker=asker, start=start, lost=self._give_up
        )
        self._command = command
        self._asker = asker
        self._start = start
        self._cwd = str(Path(start.cwd or ".").absolute())  # the protocol wants a whole path
        self._rpc = JsonRpc(
            process,
            asked=self._on_request,
            told=self._on_notification,
            seen=seen_by(start.listener, detail=detail_of),
        )
        self._connection = uuid4().hex  # in the ids of asks, since the agent counts anew in each connection
        self._used: Counter[str] = Counter()
        self._session = ""
        self._quirks = Quirks()
        self._sent: list[str] = []  # asks whose answers were written and that the agent gave no sign after
        self._calls: dict[str, dict[str, Any]] = {}
        self._said: set[str] = set()  # calls that the listener was told of
        self._words: list[str] = []  # of the message that is still being said
        self._message: str | None = None  # its id, where the agent gives one
        self._is_loading = False

    @property
    def handle(self) -> Mapping[str, Any]:
        return {"session": self._session}

    @property
    def pid(self) -> int:
        """The program's process."""
        return self._talk.process.pid

    # Beginning ------------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Shake hands and open the conversation, or load it. Raises AgentFailed with its words, SettingsError."""
        self._talk.begin(self._rpc.listen, last_words=lambda: last_words(self._talk.process))
        try:
            told = await introduce(self._rpc, self._talk.process, name=self._talk.name)
            self._meet(told.get("agentInfo"))
            opened = await self._open(told)
            await self._set_mode(opened)
        except BaseException:
            await self._talk.end()
            raise

    def _meet(self, info: Any) -> None:
        self._quirks = quirks_of(info, self._command)
        if isinstance(info, Mapping) and isinstance(info.get("name"), str) and info["name"]:
            self._talk.name = inert(info["name"], keep="")[:100]

    async def _open(self, told: Mapping[str, Any]) -> Mapping[str, Any]:
        where = {"cwd": self._cwd, "mcpServers": []}
        cut = self._start.cut
        if cut is None:
            opened = await self._request("session/new", where)
            session = opened.get("sessionId")
            if not isinstance(session, str) or not session:
                raise AgentFailed(f"{self._talk.name} opened a session without an id; report that to whoever makes it")
            self._session = session
            return opened
        self._session = str(cut.handle.get("session"))
        self._is_loading = True  # what it tells now was said before
        try:
            for method in ways_to_load(told):
                try:
                    return await self._request(method, {"sessionId": self._session, **where})
                except AgentFailed as failed:
                    # Qwen Code 0.15.10 says that it resumes, under this name in vain.
                    if not isinstance(failed.__cause__, RpcError) or failed.__cause__.number != METHOD_NOT_FOUND:
                        raise
        finally:
            self._is_loading = False
        raise AgentFailed(f"{self._talk.name} cannot take up a session again; start a new one with `handraise start`")

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
            raise SettingsError(f"{self._talk.name} has no mode like {wanted!r}, {offers}; start it without --mode")
        await self._request("session/set_mode", {"sessionId": self._session, "modeId": mode})

    async def _request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return await request(self._rpc, self._talk.process, method, params, name=self._talk.name)

    # Turns ----------------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> Reply:
        """What a worker before us left and nobody goes on with is given up for this."""
        await self._talk.let_go_of_recorded(reason="the session went on with another prompt")
        return await self._prompt(Prompt(text))

    async def go_on(self) -> Reply | None:
        """The requests are gone with their connection: their answers are waited for and told in a prompt."""
        prompt = await self._talk.take_up(told_later)
        return None if prompt is None else await self._prompt(prompt)

    async def _prompt(self, prompt: Prompt) -> Reply:
        turn = self._talk.new_turn(prompt)
        self._talk.spawn(self._play(prompt.text))
        # Cancelling the call ends nothing but the waiting; the turn goes on until it is aborted or left.
        return await asyncio.shield(turn.reply)

    async def _play(self, text: str) -> None:
        """The turn to its end. Where the program ends first, `_gone` says so."""
        prompt = [{"type": "text", "text": text}]
        try:
            result = await self._rpc.request("session/prompt", {"sessionId": self._session, "prompt": prompt})
        except RpcError as error:
            self._finish(problem=error.message)
            return
        except (PeerGone, ProcessFailed):
            return
        reason = result.get("stopReason") if isinstance(result, Mapping) else None
        self._talk.read_prompt()
        self._finish(problem="" if reason == "end_turn" else STOPPED.get(str(reason), "it did not say why"))

    def _finish(self, *, problem: str) -> None:
        self._deliver_sent()
        try:
            self._tell_words()
        except Exception as error:  # of whoever listens, which is not to keep the turn open
            log.error("what %s said last could not be told: %s", self._talk.name, type(error).__name__)
        self._calls.clear()
        self._said.clear()
        self._talk.finish(problem=problem)

    # Stopping -------------------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """Cancel the turn; `prompt` is cancelled and the program stays for the next one."""
        await self._talk.abort(self._cancel)

    async def _cancel(self) -> None:
        """What it waits for is answered that it was cancelled, as the protocol wants it."""
        await self._rpc.notify("session/cancel", {"sessionId": self._session})
        held = self._talk.take_held()
        for each in held:
            if not each.stopping.done():
                each.stopping.set_result(None)
        await self._talk.withdraw(held, reason=ABORTED)

    async def close(self) -> None:
        await self._talk.close()

    async def leave(self) -> None:
        """End the program: it would go on unattended. What it asked stays open, for `go_on` of whoever comes next."""
        await self._talk.leave()

    # Listening ------------------------------------------------------------------------------------------------------

    def _give_up(self, problem: str) -> None:
        """What was sent and gave no sign will give none any more."""
        sent, self._sent = self._sent, []
        for id in sent:
            self._asker.delivered(id, error=problem)

    def _deliver_sent(self) -> None:
        """The agent does something. The protocol knows no receipt, and this is the next best sign."""
        sent, self._sent = self._sent, []
        for id in sent:
            self._asker.delivered(id)

    def _on_notification(self, method: str, params: dict[str, Any]) -> None:
        if self._talk.is_over or self._talk.is_leaving or self._is_loading:
            return
        self._start.listener.active()
        self._talk.read_prompt()
        self._deliver_sent()
        match method:
            case "session/update":
                update = params.get("update")
                if isinstance(update, dict):
                    self._on_update(update, is_main=params.get("sessionId") == self._session)
            case "$/cancel_request":
                # After the request's own task has begun, which may have come in the same breath.
                asyncio.get_running_loop().call_soon(self._on_cancel, params.get("requestId"))

    def _on_update(self, update: dict[str, Any], *, is_main: bool) -> None:
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                content, message = update.get("content"), update.get("messageId")
                text = content.get("text") if isinstance(content, dict) else None
                if not is_main or not isinstance(text, str):
                    return
                if isinstance(message, str) and message != self._message:
                    self._tell_words()
                    self._message = message
                self._words.append(text)
            case "tool_call" | "tool_call_update" if isinstance(update.get("toolCallId"), str):
                self._note_call(update, is_first=update["sessionUpdate"] == "tool_call")

    def _note_call(self, update: dict[str, Any], *, is_first: bool) -> None:
        """A call is told once: when it says what it is about. Some send that a moment after its beginning."""
        id = update["toolCallId"]
        if is_first:
            self._tell_words()
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

    def _tell_words(self) -> None:
        """What it was saying is whole."""
        text, self._words, self._message = "".join(self._words), [], None
        if not text:
            return
        if self._talk.turn is not None:
            self._talk.turn.text = text
        self._start.listener.said(Message(role="agent", text=text))

    def _on_cancel(self, id: Any) -> None:
        """The agent does not wait for this any more."""
        held = self._talk.held.get(id) if isinstance(id, int | str) and not isinstance(id, bool) else None
        if held is not None and not held.stopping.done():
            held.by_agent = True
            held.stopping.set_result(None)

    # Asking ---------------------------------------------------------------------------------------------------------

    async def _on_request(self, id: Id, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer one request. When the desk closes first, it stays held, and the agent hears nothing."""
        kind = METHODS.get(method)
        if kind is None:
            raise RpcError(f"this client does not know {method[:100]}", number=METHOD_NOT_FOUND)
        self._start.listener.active()
        self._talk.read_prompt()
        self._deliver_sent()
        self._tell_words()
        if self._talk.is_aborting or self._talk.is_over or self._talk.is_leaving:
            return dismissed(kind)
        stopping = asyncio.get_running_loop().create_future()
        try:
            held = self._talk.hold(id, _Held(kind=kind, stopping=stopping))
        except Overloaded as full:
            raise RpcError(full.message, number=OVERLOADED) from full
        try:
            result = await self._serve(id, held, params)
        except AskDoesNotFit as misfit:
            self._talk.release(id)
            raise RpcError(misfit.message, number=INVALID_PARAMS) from misfit
        except Exception:
            self._talk.release(id)
            raise
        self._talk.release(id)
        return result

    async def _serve(self, id: Id, held: _Held, params: Mapping[str, Any]) -> dict[str, Any]:
        ask = self._to_ask(id, held.kind, params)
        granted = self._talk.take_granted(lambda recorded: is_same_call(recorded, ask))
        if granted is not None:
            recorded, answer = granted
            self._start.listener.became(recorded.id, request=request_key(id))
            self._sent.append(recorded.id)
            return from_answer(ask, answer, quirks=self._quirks)
        self._start.listener.became(ask.id, request=request_key(id))
        waiting = self._talk.raise_hand(held, ask)
        until: list[asyncio.Future[Any]] = [waiting, held.stopping]
        await asyncio.wait(until, return_when=asyncio.FIRST_COMPLETED)
        if held.by_agent:
            await self._talk.withdraw(self._talk.take(id), reason=f"{self._talk.name} stopped waiting")
            raise RpcError("the request was cancelled", number=CANCELLED)
        if held.stopping.done():
            return dismissed(held.kind)
        try:
            reply = from_answer(ask, await waiting, quirks=self._quirks)
        except Withdrawn:
            return dismissed(held.kind)
        except AnswerDoesNotFit as misfit:
            self._asker.delivered(ask.id, error=misfit.message)
            return dismissed(held.kind)
        self._sent.append(ask.id)
        return reply

    def _to_ask(self, id: Id, kind: Kind, params: Mapping[str, Any]) -> Ask:
        if kind == "form" and params.get("mode", "form") not in ("form", "url"):
            raise RpcError("this client fills in forms and opens addresses; `mode` is neither", number=INVALID_PARAMS)
        said = params.get("toolCall")
        call = said.get("toolCallId") if isinstance(said, Mapping) else None
        key = f"{NAME}:{self._connection}:{self._session}:{kind}:{json.dumps(id)}"
        # An id that comes again is another request, and yesterday's answer must not grant today's command.
        again = self._used[key] + 1
        ask = to_ask(
            kind,
            params,
            id=key if again == 1 else f"{key}#{again}",
            origin=origin_of(self._start, agent=NAME, subagent=self._subagent(params.get("sessionId"))),
            call=self._calls.get(call) if isinstance(call, str) else None,
            quirks=self._quirks,
        )
        self._used[key] = again
        if ask.permission is not None and isinstance(said, dict) and isinstance(call, str):
            self._note_call(said, is_first=False)  # some say nothing of a call before they ask for it
        return ask

    def _subagent(self, session: Any) -> str | None:
        """A session of the agent's that is not ours is one of a subagent."""
        return session if isinstance(session, str) and session != self._session else None
