"""One live conversation with Codex: its requests become asks, answers go back, and it is let go of safely.

Codex waits for an answer without a limit, but only as long as its process lives: a request is lost with it, and the
answer is then told in a new turn of the same thread, which is kept on disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handraise.agents import Asker, Message, Reply, Start
from handraise.agents._conversation import (
    ABORTED,
    STOP,
    Conversation,
    Held,
    Prompt,
    Turn,
    origin_of,
    request_key,
    seen_by,
)
from handraise.agents._programs import last_words
from handraise.agents.codex.modes import Thread
from handraise.agents.codex.translate import (
    ELICITATION,
    METHODS,
    QUESTION_TOOL,
    TOOL,
    ask_id,
    called,
    content_id,
    from_answer,
    is_same_call,
    is_tool_approval,
    refused,
    to_ask,
    to_steer,
    told_later,
)
from handraise.errors import AgentFailed, AnswerDoesNotFit, HandraiseError, ProcessFailed
from handraise.text.inert import inert
from handraise.transports.jsonrpc import METHOD_NOT_FOUND, Id, JsonRpc, PeerGone, RpcError
from handraise.transports.process import Process, seconds_after_boot, until_ended_below

__all__ = ["CodexSession", "shake_hands"]

log = logging.getLogger(__name__)

NAME = "codex"
START = 60.0  # seconds for the first answers; it takes under one on a quiet machine
COMMANDS_END = 3.0  # seconds for the commands of an aborted turn
CLOSED = "thread not found"  # what 0.166 says of a subagent that was closed; its commands ended with it
NOT_FOUND = "no rollout found"  # what it says of a thread that it had not written down
# On stderr: its log, and a warning about links that it does not make under a temporary folder.
NO_WORDS = re.compile(r"(\x1b\[\d*m)*\d{4}-\d\d-\d\dT|WARNING: proceeding")

_Key = tuple[str, ...] | Id


@dataclass(slots=True, kw_only=True)
class _Held(Held):
    thread: str
    turn: str


@dataclass(frozen=True, slots=True)
class _Sent:
    """An answer that was sent and that Codex has not taken yet, as far as we know."""

    ask: str
    thread: str


@dataclass(slots=True)
class _Current:
    """A turn of ours, as Codex calls it."""

    turn: Turn
    id: str = ""  # known once it has begun
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    since: float | None = field(default_factory=seconds_after_boot)


async def shake_hands(rpc: JsonRpc) -> Mapping[str, Any]:
    """What the program says of itself. The tool of ours and its plan mode want the experimental part of its API."""
    client = {"name": "handraise", "title": "handraise", "version": "1"}
    told = await rpc.request("initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}})
    await rpc.notify("initialized")
    return told if isinstance(told, dict) else {}


class CodexSession:
    """Made by `Codex.open`, which also calls `begin`."""

    def __init__(self, process: Process, *, asker: Asker, start: Start, thread: Thread) -> None:
        self._talk: Conversation[_Held] = Conversation(process, name=NAME, asker=asker, start=start, lost=self._lose)
        seen = seen_by(start.listener)
        self._rpc = JsonRpc(process, asked=self._on_request, told=self._on_notification, version=None, seen=seen)
        self._asker = asker
        self._start = start
        self._mode = thread
        self._model = ""
        self._effort: str | None = None
        self._thread = ""
        self._is_new = True  # Codex knows nothing of it yet, even where `start.cut` is there
        self._items: dict[tuple[str, str], dict[str, Any]] = {}  # by thread and id: what is in progress
        self._sent: dict[_Key, _Sent] = {}  # by request or, for a tool of ours, by thread and call
        self._subagents: dict[str, str] = {}  # by thread: the turn that runs there
        self._seen: dict[str, None] = {}  # threads of subagents; one whose turn is over may have left a command running
        self._settled: set[Id] = set()  # requests that were over before we looked at them
        self._ended: set[str] = set()  # the same for turns
        self._current: _Current | None = None

    @property
    def handle(self) -> Mapping[str, Any]:
        return {"thread": self._thread, "turns": self._talk.turns}

    @property
    def pid(self) -> int:
        """The program's process."""
        return self._talk.process.pid

    async def begin(self) -> None:
        """Shake hands and open the thread. Raises AgentFailed with the program's words."""
        self._talk.begin(self._rpc.listen, last_words=self._last_words)
        try:
            async with asyncio.timeout(START):
                await shake_hands(self._rpc)
                await self._open_thread()
        except (RpcError, PeerGone, ProcessFailed, TimeoutError) as error:
            await self._talk.end()
            said = error.message if isinstance(error, RpcError) else self._last_words()
            why = inert(said) or (error.message if isinstance(error, HandraiseError) else "it did not answer in time")
            raise AgentFailed(f"codex did not start: {why}") from error
        except BaseException:
            await self._talk.end()
            raise

    async def _open_thread(self) -> None:
        """Go on with the thread of `start.cut`; one that was never written down is begun anew."""
        cut = self._start.cut
        common = {"cwd": self._start.cwd, "approvalsReviewer": "user", **self._mode.settings}
        if self._mode.profile is not None:
            common["config"] = {**common["config"], "mcp_servers": await self._no_servers()}
        if cut is not None:
            self._thread = str(cut.handle["thread"])
            try:
                self._take_thread(await self._rpc.request("thread/resume", {"threadId": self._thread, **common}))
                self._is_new = False
                return
            except RpcError as error:
                if NOT_FOUND not in error.message or self._talk.turns:
                    raise
        tools = [] if self._start.handling.question_policy == "reject" else [dict(QUESTION_TOOL)]
        self._take_thread(await self._rpc.request("thread/start", {**common, "dynamicTools": tools}))

    async def _no_servers(self) -> dict[str, Any]:
        """Every server of MCP tools that its configuration names, switched off: none of them runs in the sandbox."""
        cwd = os.path.abspath(self._start.cwd or ".")  # noqa: PTH100, ASYNC240 - no disk is touched
        told = await self._rpc.request("config/read", {"cwd": cwd, "includeLayers": False})
        config = told.get("config") if isinstance(told, dict) else None
        if not isinstance(config, dict):
            raise RpcError("it does not tell its configuration, so no mode can be set; update it")
        return {name: {"enabled": False} for name in config.get("mcp_servers") or {}}

    def _take_thread(self, told: Any) -> None:
        thread = told.get("thread") if isinstance(told, dict) else None
        if not isinstance(thread, dict) or not isinstance(thread.get("id"), str):
            raise RpcError("it opened a thread and did not say which; check that its version is one we know")
        if told.get("approvalsReviewer") != "user":
            raise RpcError(
                "its configuration lets a model decide over permissions (`approvals_reviewer`), so nobody would be "
                "asked; set it to 'user'"
            )
        profile = told.get("activePermissionProfile")
        is_kept = isinstance(profile, dict) and profile.get("id") == self._mode.profile
        if self._mode.profile is not None and not (is_kept and told.get("approvalPolicy") == "never"):
            raise RpcError(
                f"it does not keep to the mode {self._start.mode!r}, being too old or managed otherwise; update it, or "
                "choose another mode"
            )
        self._thread = thread["id"]
        self._model = str(told.get("model") or "")
        effort = told.get("reasoningEffort")
        self._effort = effort if isinstance(effort, str) else None

    # Turns ----------------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> Reply:
        """What a worker before us left and nobody goes on with is given up for this."""
        await self._talk.let_go_of_recorded(reason="the session went on with another prompt")
        return await self._prompt(Prompt(text))

    async def go_on(self) -> Reply | None:
        """The answers to what was asked before are waited for, and told in a turn of their own."""
        prompt = await self._talk.take_up(told_later, is_new=self._is_new)
        return None if prompt is None else await self._prompt(prompt)

    async def _prompt(self, prompt: Prompt) -> Reply:
        current = self._current = _Current(self._talk.new_turn(prompt))
        params: dict[str, Any] = {"threadId": self._thread, "input": _input(prompt.text)}
        if self._mode.plans:
            settings = {"model": self._model, "reasoning_effort": self._effort, "developer_instructions": None}
            params["collaborationMode"] = {"mode": "plan", "settings": settings}
        self._talk.spawn(self._begin_turn(current, params))
        # Cancelling the call ends nothing but the waiting; the turn goes on until it is aborted or left.
        return await asyncio.shield(current.turn.reply)

    async def _begin_turn(self, current: _Current, params: Mapping[str, Any]) -> None:
        try:
            answered = await self._rpc.request("turn/start", params)
        except (PeerGone, ProcessFailed):
            return  # which is noticed where it is listened to
        except RpcError as error:
            self._finish_turn(current, problem=error.message)
            return
        _note_begin(current, answered)

    def _finish_turn(self, current: _Current, *, problem: str = "") -> None:
        """Nothing it was sent is still under way. `problem` is why it failed, in Codex's words."""
        current.begun.set()
        self._give_up("the turn ended before codex took it", thread=self._thread)
        self._talk.finish(problem=problem)

    def _give_up(self, problem: str, *, thread: str | None = None) -> None:
        """What was sent and gave no sign will give none any more."""
        for key in [key for key, sent in self._sent.items() if thread in (None, sent.thread)]:
            self._asker.delivered(self._sent.pop(key).ask, error=problem)

    # Stopping -------------------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """Interrupt the turn; `prompt` is cancelled and the program stays for the next one."""
        await self._talk.abort(self._interrupt)

    async def _interrupt(self) -> None:
        await self._talk.withdraw_held(reason=ABORTED)
        current = self._current
        if current is None:
            return
        async with asyncio.timeout(STOP):
            await current.begun.wait()
            for thread, id in [(self._thread, current.id), *self._subagents.items()]:
                try:
                    await self._rpc.request("turn/interrupt", {"threadId": thread, "turnId": id})
                except RpcError as error:  # it may have ended by itself at this moment
                    log.info("codex did not take the interrupt: %s", inert(error.message))
            await self._talk.idle.wait()
            for thread in (self._thread, *self._seen):
                await self._end_commands(thread)
        # Codex answers before the commands have ended.
        if not await until_ended_below(self._talk.process.pid, since=current.since, patience=COMMANDS_END):
            log.warning("what codex started in the turn that was aborted still runs after %g s", COMMANDS_END)

    async def _end_commands(self, thread: str) -> None:
        """A command that Codex does not wait for outlives the interrupt, and one that was allowed is in no sandbox.

        Raises RpcError: then nobody can say what still runs, and the whole program has to end.
        """
        try:
            await self._rpc.request("thread/backgroundTerminals/clean", {"threadId": thread})
        except RpcError as error:
            if CLOSED not in error.message:
                raise

    async def close(self) -> None:
        await self._talk.close()

    async def leave(self) -> None:
        """End the program: a request does not outlive it, and it is not to go on unattended."""
        await self._talk.leave()

    # Listening ------------------------------------------------------------------------------------------------------

    def _last_words(self) -> str:
        return last_words(self._talk.process, noise=NO_WORDS)

    def _lose(self, problem: str) -> None:
        self._give_up(problem)
        if self._current is not None:
            self._current.begun.set()  # nobody is to wait for that

    def _on_notification(self, method: str, params: dict[str, Any]) -> None:
        self._start.listener.active()
        if self._talk.is_leaving:
            return  # whoever takes the session up sees what was open
        thread = params.get("threadId")
        match method:
            case "turn/started":
                self._on_turn_started(str(thread), params)
            case "item/started" if isinstance(item := params.get("item"), dict):
                self._items[str(thread), str(item.get("id"))] = item
                self._on_item_started(str(thread), item)
            case "item/completed" if isinstance(item := params.get("item"), dict):
                self._items.pop((str(thread), str(item.get("id"))), None)
                self._on_item_completed(str(thread), item)
            case "serverRequest/resolved":
                self._on_resolved(params.get("requestId"))
            case "turn/completed":
                self._on_turn_completed(str(thread), params.get("turn"))
            case "error" if thread == self._thread:
                self._on_error(params)

    def _on_turn_started(self, thread: str, params: Mapping[str, Any]) -> None:
        begun = params.get("turn")
        if thread != self._thread:
            self._seen[thread] = None
            self._subagents[thread] = str(begun.get("id")) if isinstance(begun, dict) else ""
        elif self._current is not None:
            _note_begin(self._current, params)

    def _on_error(self, params: Mapping[str, Any]) -> None:
        """Something went wrong that may pass: Codex tries again by itself, or fails the turn."""
        error = params.get("error")
        words = error.get("message") if isinstance(error, dict) else None
        if isinstance(words, str) and words and params.get("willRetry"):
            self._start.listener.said(Message(role="notice", text=f"Codex tries again: {words}"))

    def _on_item_started(self, thread: str, item: Mapping[str, Any]) -> None:
        name, given = called(item)
        if name:
            if thread == self._thread:
                self._talk.read_prompt()
            extra = {"name": name, "input": given, **self._by_subagent(thread)}
            self._start.listener.said(Message(role="tool", text=name, extra=extra))

    def _on_item_completed(self, thread: str, item: Mapping[str, Any]) -> None:
        if item.get("type") == "dynamicToolCall":
            sent = self._sent.pop((thread, str(item.get("id"))), None)
            if sent is not None:
                self._asker.delivered(sent.ask)
            return
        text = item.get("text")
        if item.get("type") not in ("agentMessage", "plan") or not isinstance(text, str) or not text:
            return
        self._start.listener.said(Message(role="agent", text=text, extra=self._by_subagent(thread) or None))
        if self._current is not None and thread == self._thread:
            self._current.turn.text = text
            self._talk.read_prompt()

    def _by_subagent(self, thread: str) -> dict[str, Any]:
        return {} if thread == self._thread else {"thread": thread}

    def _on_resolved(self, id: Any) -> None:
        """A request is over: by our answer, or because Codex no longer waits for one."""
        if not isinstance(id, int | str):
            return
        if (sent := self._sent.pop(id, None)) is not None:
            self._asker.delivered(sent.ask)
        elif held := self._talk.take(id):
            self._talk.withdraw_later(held, reason="codex no longer waits for it")
        else:
            self._settled.add(id)

    def _on_turn_completed(self, thread: str, told: Any) -> None:
        ended = told if isinstance(told, dict) else {}
        id = str(ended.get("id"))
        self._ended.add(id)
        for key in [key for key in self._items if key[0] == thread]:
            del self._items[key]
        over = self._talk.take_held(lambda held: held.thread == thread and held.turn in ("", id))
        self._talk.withdraw_later(over, reason="the turn ended")
        if thread != self._thread:
            self._subagents.pop(thread, None)
            self._give_up("the turn ended before codex took it", thread=thread)
            return
        current = self._current
        if current is None or self._talk.idle.is_set() or current.id not in ("", id):
            return
        problem = ""
        if ended.get("status") != "completed":
            error = ended.get("error")
            words = error.get("message") if isinstance(error, dict) else None
            problem = words if isinstance(words, str) and words else f"the turn was {ended.get('status')}"
        self._finish_turn(current, problem=problem)

    # Asking ---------------------------------------------------------------------------------------------------------

    async def _on_request(self, id: Id, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result for a request of Codex. When the desk closes first it stays unanswered, and Codex waits."""
        if method not in METHODS:
            raise RpcError("handraise does not know this request", number=METHOD_NOT_FOUND)
        turn = str(params.get("turnId") or "")
        if self._talk.is_over or self._talk.is_leaving or id in self._settled or turn in self._ended:
            raise RpcError("nobody waits for this any more")
        thread = str(params.get("threadId") or self._thread)
        try:
            held = self._talk.hold(id, _Held(thread=thread, turn=turn, task=asyncio.current_task()))
            result = await self._serve(id, held, method, params)
        except HandraiseError as error:
            log.warning("codex asked what became no answer, with %s: %s", method, error.code)
            result = refused(method, params, error.message)
        except Exception as error:  # whatever is in one message, the others are not to suffer
            log.error("a request of codex broke, %s: %s", method, type(error).__name__)
            result = refused(method, params, "the host could not read this request")
        self._talk.release(id)
        return result

    async def _serve(self, id: Id, held: _Held, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == TOOL and params.get("tool") != QUESTION_TOOL["name"]:
            raise AgentFailed("There is no tool of this name here.")
        item = self._item_of(held.thread, method, params)
        durable = ask_id(method, params, thread=held.thread, item=item)
        asked = to_ask(
            method,
            params,
            id=durable or self._unused(content_id(params, thread=held.thread)),
            origin=origin_of(self._start, agent=NAME, subagent=self._by_subagent(held.thread).get("thread")),
            item=item,
        )
        granted = self._talk.take_granted(lambda ask: is_same_call(ask, asked))
        self._start.listener.became(granted[0].id if granted is not None else asked.id, request=request_key(id))
        if granted is not None:
            ask, answer = granted
        else:
            ask, answer = asked, await self._talk.answer_to(held, asked, ordinal=durable is None)
        try:
            result = from_answer(method, asked, answer)
        except AnswerDoesNotFit as misfit:
            self._asker.delivered(ask.id, error=misfit.message)
            return {"action": "cancel"}
        if (words := to_steer(method, asked, answer)) is not None:
            await self._steer(held, words)
        call = params.get("callId")
        self._sent[(held.thread, str(call)) if method == TOOL else id] = _Sent(ask.id, held.thread)
        return result

    def _item_of(self, thread: str, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """What Codex announced before it asked. An MCP tool's call is found by what it is called with."""
        if method != ELICITATION:
            return self._items.get((thread, str(params.get("itemId"))))
        if not is_tool_approval(params):
            return None
        taken = self._open_asks()
        for (of, _), item in self._items.items():
            if of != thread or item.get("type") != "mcpToolCall" or item.get("server") != params.get("serverName"):
                continue
            is_it = (item.get("arguments") or {}) == (params["_meta"].get("tool_params") or {})
            if is_it and ask_id(method, params, thread=thread, item=item) not in taken:
                return item
        return None

    def _open_asks(self) -> set[str]:
        return {held.ask.id for held in self._talk.held.values() if held.ask is not None}

    def _unused(self, id: str) -> str:
        """Two that are the same and wait at the same time are two: one answer is not to grant both."""
        taken = self._open_asks()
        number, unused = 1, id
        while unused in taken:
            number += 1
            unused = f"{id}:{number}"
        return unused

    async def _steer(self, held: _Held, words: str) -> None:
        """Tell the model why. A refusal itself carries no words, so they are queued before it and arrive behind it."""
        params = {"threadId": held.thread, "expectedTurnId": held.turn, "input": _input(words)}
        try:
            async with asyncio.timeout(STOP):
                await self._rpc.request("turn/steer", params)
        except (RpcError, TimeoutError) as error:
            log.warning("the reason of a refusal did not reach codex: %s", type(error).__name__)


def _note_begin(current: _Current, told: Any) -> None:
    begun = told.get("turn") if isinstance(told, dict) else None
    if not current.id and isinstance(begun, dict) and isinstance(begun.get("id"), str):
        current.id = begun["id"]
        current.begun.set()


def _input(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text, "text_elements": []}]
