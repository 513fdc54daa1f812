"""One live conversation with Codex: its requests become asks, answers go back, and it is let go of safely.

Codex waits for an answer without a limit, but only as long as its process lives: a request is lost with it, and the
answer is then told in a new turn of the same thread, which is kept on disk.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handraise.agents import Asker, Message, Reply, Start
from handraise.agents.codex.translate import (
    ELICITATION,
    METHODS,
    QUESTION_TOOL,
    TOOL,
    ask_id,
    content_id,
    from_answer,
    is_same_call,
    is_tool_approval,
    refused,
    to_ask,
    to_steer,
    told_later,
)
from handraise.asks import Answer, Ask, Origin
from handraise.errors import AgentFailed, AlreadyAnswered, AnswerDoesNotFit, HandraiseError, ProcessFailed, Withdrawn
from handraise.inert import inert
from handraise.transports.jsonrpc import METHOD_NOT_FOUND, Id, JsonRpc, PeerGone, RpcError
from handraise.transports.process import Process

__all__ = ["CodexSession", "shake_hands"]

log = logging.getLogger(__name__)

NAME = "codex"
START = 60.0  # seconds for the first answers; it takes under one on a quiet machine
STOP = 15.0  # seconds for it to stop when told to
LONGEST_WORDS = 1000  # of what it says about its own trouble
NOT_FOUND = "no rollout found"  # what it says of a thread that it had not written down
# On stderr: its log, and a warning about links that it does not make under a temporary folder.
NO_WORDS = re.compile(r"(\x1b\[\d*m)*\d{4}-\d\d-\d\dT|WARNING: proceeding")

_Key = tuple[str, ...] | Id


@dataclass(slots=True)
class _Held:
    """A request of Codex that waits for us."""

    thread: str
    turn: str
    ask: Ask | None = None  # once it is known


@dataclass(frozen=True, slots=True)
class _Sent:
    """An answer that was sent and that Codex has not taken yet, as far as we know."""

    ask: str
    thread: str


@dataclass(slots=True)
class _Turn:
    """What runs between a prompt and the moment Codex has finished it."""

    reply: asyncio.Future[Reply]
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    id: str = ""  # known once it has begun
    text: str = ""  # what Codex said last
    told: list[str] = field(default_factory=list)  # asks whose answers are in the prompt
    granted: list[tuple[Ask, Answer]] = field(default_factory=list)  # calls it may make once without asking again


async def shake_hands(rpc: JsonRpc) -> Mapping[str, Any]:
    """What the program says of itself. The tool of ours and its plan mode want the experimental part of its API."""
    client = {"name": "handraise", "title": "handraise", "version": "1"}
    told = await rpc.request("initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}})
    await rpc.notify("initialized")
    return told if isinstance(told, dict) else {}


class CodexSession:
    """Made by `Codex.open`, which also calls `begin`."""

    def __init__(
        self,
        process: Process,
        *,
        asker: Asker,
        start: Start,
        settings: Mapping[str, Any],
        plans: bool = False,
    ) -> None:
        """`settings` are those of the thread: sandbox and approval policy. `plans`: its turns are in plan mode."""
        self._process = process
        self._rpc = JsonRpc(process, asked=self._asked, told=self._told, version=None)
        self._asker = asker
        self._start = start
        self._settings = settings
        self._plans = plans
        self._model = ""
        self._effort: str | None = None
        self._thread = ""
        self._turns = 0
        self._is_new = True  # Codex knows nothing of it yet, even where `start.cut` is there
        self._items: dict[tuple[str, str], dict[str, Any]] = {}  # by thread and id: what is in progress
        self._held: dict[Id, _Held] = {}
        self._sent: dict[_Key, _Sent] = {}  # by request or, for a tool of ours, by thread and call
        self._subagents: dict[str, str] = {}  # by thread: the turn that runs there
        self._settled: set[Id] = set()  # requests that were over before we looked at them
        self._ended: set[str] = set()  # the same for turns
        self._recorded = {ask.id: ask for ask in (start.cut.asks if start.cut else ())}
        self._recalled: asyncio.Task[list[tuple[Ask, Answer]]] | None = None
        self._turn: _Turn | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_aborting = self._is_leaving = self._is_over = False
        self._words = ""  # why it is over
        self._tasks: asyncio.TaskGroup | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def handle(self) -> Mapping[str, Any]:
        return {"thread": self._thread, "turns": self._turns}

    @property
    def pid(self) -> int:
        """The program's process."""
        return self._process.pid

    async def begin(self) -> None:
        """Shake hands and open the thread. Raises AgentFailed with the program's words."""
        self._running = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(START):
                await shake_hands(self._rpc)
                await self._open_thread()
        except (RpcError, PeerGone, ProcessFailed, TimeoutError) as error:
            await self._end()
            said = error.message if isinstance(error, RpcError) else self._last_words()
            why = inert(said) or (error.message if isinstance(error, HandraiseError) else "it did not answer in time")
            raise AgentFailed(f"codex did not start: {why}") from error
        except BaseException:
            await self._end()
            raise

    async def _open_thread(self) -> None:
        """Go on with the thread of `start.cut`; one that was never written down is begun anew."""
        cut = self._start.cut
        common = {"cwd": self._start.cwd, "approvalsReviewer": "user", **self._settings}
        if cut is not None:
            self._thread, self._turns = str(cut.handle["thread"]), _turns(start=self._start)
            try:
                self._opened(await self._rpc.request("thread/resume", {"threadId": self._thread, **common}))
                self._is_new = False
                return
            except RpcError as error:
                if NOT_FOUND not in error.message or self._turns:
                    raise
        tools = [] if self._start.handling.question_policy == "reject" else [dict(QUESTION_TOOL)]
        self._opened(await self._rpc.request("thread/start", {**common, "dynamicTools": tools}))

    def _opened(self, told: Any) -> None:
        thread = told.get("thread") if isinstance(told, dict) else None
        if not isinstance(thread, dict) or not isinstance(thread.get("id"), str):
            raise RpcError("it opened a thread and did not say which; check that its version is one we know")
        if told.get("approvalsReviewer") != "user":
            raise RpcError(
                "its configuration lets a model decide over permissions (`approvals_reviewer`), so nobody would be "
                "asked; set it to 'user'"
            )
        self._thread = thread["id"]
        self._model = str(told.get("model") or "")
        effort = told.get("reasoningEffort")
        self._effort = effort if isinstance(effort, str) else None

    # Turns ----------------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> Reply:
        """What a worker before us left and nobody goes on with is given up for this."""
        await self._let_go_of_recorded(reason="the session went on with another prompt")
        return await self._prompt(text)

    async def go_on(self) -> Reply | None:
        """The answers to what was asked before are waited for, and told in a turn of their own."""
        cut = self._start.cut
        if cut is None or (cut.prompt is None and not cut.asks):
            return None
        if self._is_new and cut.prompt is not None and not cut.asks:
            self._start.listener.said(Message(role="notice", text="Codex knows nothing of this turn; it begins again."))
            return await self._prompt(cut.prompt)
        if not cut.asks:
            raise AgentFailed(
                "the worker before this one died in the middle of a turn, and codex does not take that up by itself; "
                "prompt the session to go on"
            )
        self._recalled = asyncio.create_task(self._recall(cut.asks))
        answered = await self._recalled  # cancelled by an abort
        if not answered:
            raise AgentFailed("everything codex had asked was withdrawn meanwhile; prompt the session to go on")
        lines = ["The session was interrupted before this reached you.", *(told_later(*each) for each in answered)]
        if self._is_new and cut.prompt is not None:
            lines.insert(0, cut.prompt)
        text = "\n".join(lines)
        self._start.listener.said(Message(role="notice", text=text))
        granted = [(ask, answer) for ask, answer in answered if ask.permission is not None and not answer.rejected]
        allowed = {ask.id for ask, _ in granted}
        return await self._prompt(text, told=[ask.id for ask, _ in answered if ask.id not in allowed], granted=granted)

    async def _recall(self, asks: Sequence[Ask]) -> list[tuple[Ask, Answer]]:
        """The answers to asks of requests that are gone. Those that were withdrawn are left out."""
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
            await self._withdraw(ask, reason=reason)

    async def _prompt(
        self, text: str, *, told: Sequence[str] = (), granted: Sequence[tuple[Ask, Answer]] = ()
    ) -> Reply:
        if self._is_over:
            raise AgentFailed(f"codex has ended: {self._words}" if self._words else "the session is closed")
        if self._turn is not None and not self._idle.is_set():
            raise AgentFailed("codex is still busy with the turn before; wait for it, or abort it")
        turn = self._turn = _Turn(asyncio.get_running_loop().create_future())
        turn.reply.add_done_callback(_look_at)
        turn.told += told
        turn.granted += granted
        self._idle.clear()
        params: dict[str, Any] = {"threadId": self._thread, "input": _input(text)}
        if self._plans:
            settings = {"model": self._model, "reasoning_effort": self._effort, "developer_instructions": None}
            params["collaborationMode"] = {"mode": "plan", "settings": settings}
        assert self._tasks is not None
        self._tasks.create_task(self._begin_turn(turn, params))
        # Cancelling the call ends nothing but the waiting; the turn goes on until it is aborted or left.
        return await asyncio.shield(turn.reply)

    async def _begin_turn(self, turn: _Turn, params: Mapping[str, Any]) -> None:
        try:
            answered = await self._rpc.request("turn/start", params)
        except (PeerGone, ProcessFailed):
            return  # which is noticed where it is listened to
        except RpcError as error:
            self._finish_turn(turn, problem=error.message)
            return
        self._begun(turn, answered)

    def _begun(self, turn: _Turn, told: Any) -> None:
        begun = told.get("turn") if isinstance(told, dict) else None
        if not turn.id and isinstance(begun, dict) and isinstance(begun.get("id"), str):
            turn.id = begun["id"]
            turn.begun.set()

    def _finish_turn(self, turn: _Turn, *, problem: str | None) -> None:
        """Nothing it was sent is still under way. `problem` is why it failed, in Codex's words."""
        self._idle.set()
        turn.begun.set()
        self._turns += 1
        self._give_up_sent(self._thread)
        for id in turn.told:
            self._asker.delivered(id, error="the turn ended before codex took it")
        for ask, _ in turn.granted:
            self._asker.delivered(ask.id, error="codex did not make that call again")
        turn.told.clear()
        turn.granted.clear()
        if turn.reply.done():
            return
        if self._is_aborting:
            turn.reply.cancel()
        elif problem is not None:
            turn.reply.set_exception(AgentFailed(f"codex could not finish: {inert(problem)[:LONGEST_WORDS]}"))
        else:
            turn.reply.set_result(Reply(text=turn.text))

    def _give_up_sent(self, thread: str) -> None:
        for key in [key for key, sent in self._sent.items() if sent.thread == thread]:
            self._asker.delivered(self._sent.pop(key).ask, error="the turn ended before codex took it")

    # Stopping -------------------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """Interrupt the turn; `prompt` is cancelled and the program stays for the next one."""
        await self._stop_recalling()
        turn = self._turn
        if self._is_over or self._idle.is_set() or turn is None:
            return
        self._is_aborting = True
        try:
            await self._withdraw_held(reason="the turn was aborted")
            async with asyncio.timeout(STOP):
                await turn.begun.wait()
                for thread, id in [(self._thread, turn.id), *self._subagents.items()]:
                    try:
                        await self._rpc.request("turn/interrupt", {"threadId": thread, "turnId": id})
                    except RpcError as error:  # it may have ended by itself at this moment
                        log.info("codex did not take the interrupt: %s", inert(error.message))
                await self._idle.wait()
            await self._withdraw_held(reason="the turn was aborted")  # what it asked before it heard of it
        except (PeerGone, ProcessFailed, TimeoutError) as error:
            self._words = "it did not stop when it was interrupted"
            await self._end()
            raise AgentFailed("codex did not stop when it was interrupted, so its process was ended") from error
        finally:
            self._is_aborting = False
            turn.reply.cancel()

    async def close(self) -> None:
        await self._stop_recalling()
        held = self._take_held()
        await self._end()
        for each in held:
            if each.ask is not None:
                await self._withdraw(each.ask, reason="the session was closed")

    async def leave(self) -> None:
        """End the program: a request does not outlive it, and it is not to go on unattended."""
        self._is_leaving = True
        if self._recalled is not None:
            self._recalled.cancel()
            await asyncio.wait([self._recalled])
        self._take_held()
        await self._end()

    def _take_held(self, which: Callable[[_Held], bool] = lambda held: True) -> list[_Held]:
        taken = {id: held for id, held in self._held.items() if which(held)}
        for id in taken:
            del self._held[id]
            self._rpc.forget(id)
        return list(taken.values())

    async def _withdraw_held(self, *, reason: str) -> None:
        for each in self._take_held():
            if each.ask is not None:
                await self._withdraw(each.ask, reason=reason)

    async def _stop_recalling(self) -> None:
        """What was waited for on behalf of a request that is gone is withdrawn too."""
        if self._recalled is None or self._recalled.done():
            return
        self._recalled.cancel()
        await asyncio.wait([self._recalled])
        await self._let_go_of_recorded(reason="the turn was aborted")

    async def _withdraw(self, ask: Ask, *, reason: str) -> None:
        try:
            await self._asker.withdraw(ask.id, reason=reason)
        except AlreadyAnswered:
            self._asker.delivered(ask.id, error=f"{reason} before codex took the answer")
        except HandraiseError as error:
            log.warning("ask %s of codex could not be withdrawn: %s", ask.id, error.code)

    def _withdraw_later(self, held: Sequence[_Held], *, reason: str) -> None:
        for each in held:
            if each.ask is not None and self._tasks is not None:
                self._tasks.create_task(self._withdraw(each.ask, reason=reason))

    async def _end(self) -> None:
        """Kill the program while its stdin is open, and forget what was under way. Withdraws nothing."""
        self._is_over = True
        self._take_held()
        await self._process.close()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=STOP)  # it may have to withdraw what a dead program asked
            self._running.cancel()
            await asyncio.wait([self._running])
        if self._turn is not None:
            self._turn.reply.cancel()

    # Listening ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Hear the program until it ends."""
        words = ""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    await self._rpc.listen()
                except ProcessFailed as error:
                    words = error.message
                if not self._is_over and not self._is_leaving:
                    await self._gone(words)
        finally:
            self._is_over = True

    async def _gone(self, words: str) -> None:
        """The program ended by itself. Nobody there waits for an answer any more."""
        self._is_over = True
        await self._process.close()
        self._words = words or self._last_words() or f"its process ended with exit code {self._process.exit_code}"
        await self._withdraw_held(reason=f"codex ended: {self._words}")
        for sent in self._sent.values():
            self._asker.delivered(sent.ask, error=f"codex ended before it took it: {self._words}")
        self._sent.clear()
        self._idle.set()
        turn = self._turn
        if turn is None or turn.reply.done():
            return
        turn.begun.set()
        for id in [*turn.told, *(ask.id for ask, _ in turn.granted)]:
            self._asker.delivered(id, error=f"codex ended before it took it: {self._words}")
        if self._is_aborting:
            turn.reply.cancel()
        else:
            turn.reply.set_exception(AgentFailed(f"codex ended in the middle of its turn: {self._words}"))

    def _last_words(self) -> str:
        """Its own, such as what is wrong with its configuration. Empty where it was killed."""
        lines = self._process.stderr_tail.strip().splitlines()
        return inert("\n".join(line for line in lines if not NO_WORDS.match(line))[-LONGEST_WORDS:])

    def _told(self, method: str, params: dict[str, Any]) -> None:
        self._start.listener.active()
        if self._is_leaving:
            return  # whoever takes the session up sees what was open
        thread = params.get("threadId")
        match method:
            case "turn/started":
                self._turn_started(str(thread), params)
            case "item/started" if isinstance(item := params.get("item"), dict):
                self._items[str(thread), str(item.get("id"))] = item
                self._item_started(str(thread), item)
            case "item/completed" if isinstance(item := params.get("item"), dict):
                self._items.pop((str(thread), str(item.get("id"))), None)
                self._item_completed(str(thread), item)
            case "serverRequest/resolved":
                self._resolved(params.get("requestId"))
            case "turn/completed":
                self._turn_completed(str(thread), params.get("turn"))
            case "error" if thread == self._thread:
                self._trouble(params)

    def _turn_started(self, thread: str, params: Mapping[str, Any]) -> None:
        begun = params.get("turn")
        if thread != self._thread:
            self._subagents[thread] = str(begun.get("id")) if isinstance(begun, dict) else ""
        elif self._turn is not None:
            self._begun(self._turn, params)

    def _trouble(self, params: Mapping[str, Any]) -> None:
        """Something went wrong that may pass: Codex tries again by itself, or fails the turn."""
        error = params.get("error")
        words = error.get("message") if isinstance(error, dict) else None
        if isinstance(words, str) and words and params.get("willRetry"):
            self._start.listener.said(Message(role="notice", text=f"Codex tries again: {words}"))

    def _item_started(self, thread: str, item: Mapping[str, Any]) -> None:
        name, given = _called(item)
        if name:
            if self._turn is not None and thread == self._thread:
                self._read_prompt(self._turn)
            extra = {"name": name, "input": given, **self._by_subagent(thread)}
            self._start.listener.said(Message(role="tool", text=name, extra=extra))

    def _item_completed(self, thread: str, item: Mapping[str, Any]) -> None:
        if item.get("type") == "dynamicToolCall":
            sent = self._sent.pop((thread, str(item.get("id"))), None)
            if sent is not None:
                self._asker.delivered(sent.ask)
            return
        text = item.get("text")
        if item.get("type") not in ("agentMessage", "plan") or not isinstance(text, str) or not text:
            return
        self._start.listener.said(Message(role="agent", text=text, extra=self._by_subagent(thread) or None))
        if self._turn is not None and thread == self._thread:
            self._turn.text = text
            self._read_prompt(self._turn)

    def _read_prompt(self, turn: _Turn) -> None:
        """It speaks, or calls something, so it has read what it was told."""
        for id in turn.told:
            self._asker.delivered(id)
        turn.told.clear()

    def _by_subagent(self, thread: str) -> dict[str, Any]:
        return {} if thread == self._thread else {"thread": thread}

    def _resolved(self, id: Any) -> None:
        """A request is over: by our answer, or because Codex no longer waits for one."""
        if not isinstance(id, int | str):
            return
        if (sent := self._sent.pop(id, None)) is not None:
            self._asker.delivered(sent.ask)
        elif id in self._held:
            held = self._held.pop(id)
            self._rpc.forget(id)
            self._withdraw_later([held], reason="codex no longer waits for it")
        else:
            self._settled.add(id)

    def _turn_completed(self, thread: str, told: Any) -> None:
        ended = told if isinstance(told, dict) else {}
        id = str(ended.get("id"))
        self._ended.add(id)
        for key in [key for key in self._items if key[0] == thread]:
            del self._items[key]
        over = self._take_held(lambda held: held.thread == thread and held.turn in ("", id))
        self._withdraw_later(over, reason="the turn ended")
        if thread != self._thread:
            self._subagents.pop(thread, None)
            self._give_up_sent(thread)
            return
        turn = self._turn
        if turn is None or self._idle.is_set() or turn.id not in ("", id):
            return
        problem = None
        if ended.get("status") != "completed":
            error = ended.get("error")
            words = error.get("message") if isinstance(error, dict) else None
            problem = words if isinstance(words, str) and words else f"the turn was {ended.get('status')}"
        self._finish_turn(turn, problem=problem)

    # Asking ---------------------------------------------------------------------------------------------------------

    async def _asked(self, id: Id, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result for a request of Codex. When the desk closes first it stays unanswered, and Codex waits."""
        if method not in METHODS:
            raise RpcError("handraise does not know this request", number=METHOD_NOT_FOUND)
        turn = str(params.get("turnId") or "")
        if self._is_over or self._is_leaving or id in self._settled or turn in self._ended:
            raise RpcError("nobody waits for this any more")
        held = self._held[id] = _Held(thread=str(params.get("threadId") or self._thread), turn=turn)
        try:
            result = await self._serve(id, held, method, params)
        except HandraiseError as error:
            log.warning("codex asked what became no answer, with %s: %s", method, error.code)
            result = refused(method, params, error.message)
        except Exception as error:  # whatever is in one message, the others are not to suffer
            log.error("a request of codex broke, %s: %s", method, type(error).__name__)
            result = refused(method, params, "the host could not read this request")
        self._held.pop(id, None)
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
            origin=self._origin(held.thread),
            item=item,
        )
        granted = self._take_granted(asked)
        if granted is not None:
            ask, answer = granted
        else:
            ask = held.ask = asked
            answer = await self._wait_for(ask, ordinal=durable is None)
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
        taken = {held.ask.id for held in self._held.values() if held.ask is not None}
        for (of, _), item in self._items.items():
            if of != thread or item.get("type") != "mcpToolCall" or item.get("server") != params.get("serverName"):
                continue
            is_it = (item.get("arguments") or {}) == (params["_meta"].get("tool_params") or {})
            if is_it and ask_id(method, params, thread=thread, item=item) not in taken:
                return item
        return None

    def _unused(self, id: str) -> str:
        """Two that are the same and wait at the same time are two: one answer is not to grant both."""
        taken = {held.ask.id for held in self._held.values() if held.ask is not None}
        number, unused = 1, id
        while unused in taken:
            number += 1
            unused = f"{id}:{number}"
        return unused

    async def _wait_for(self, ask: Ask, *, ordinal: bool) -> Answer:
        """The answer; the desk records it. Raises HandraiseError where there will be none."""
        try:
            return await self._asker.ask(ask, handling=self._start.handling, ordinal=ordinal)
        except Withdrawn as error:
            reason = error.ask.withdrawn_reason
            raise AgentFailed(
                "This was withdrawn before anybody answered" + (f": {reason}" if reason else ".")
            ) from None

    async def _steer(self, held: _Held, words: str) -> None:
        """Tell the model why. A refusal itself carries no words, so they are queued before it and arrive behind it."""
        params = {"threadId": held.thread, "expectedTurnId": held.turn, "input": _input(words)}
        try:
            async with asyncio.timeout(STOP):
                await self._rpc.request("turn/steer", params)
        except (RpcError, TimeoutError) as error:
            log.warning("the reason of a refusal did not reach codex: %s", type(error).__name__)

    def _take_granted(self, asked: Ask) -> tuple[Ask, Answer] | None:
        """The grant of a request that was lost with its process, for the first one that is exactly the same."""
        granted = self._turn.granted if self._turn is not None else []
        for number, (ask, _) in enumerate(granted):
            if is_same_call(ask, asked):
                return granted.pop(number)
        return None

    def _origin(self, thread: str) -> Origin:
        start = self._start
        is_subagent = thread != self._thread
        return Origin(
            agent=NAME,
            session=f"{start.session}/{thread}" if is_subagent else start.session,
            run=start.run,
            step=start.step,
            parent=start.session if is_subagent else start.parent,
            cwd=start.cwd,
        )


def _turns(*, start: Start) -> int:
    turns = start.cut.handle.get("turns") if start.cut is not None else 0
    return turns if isinstance(turns, int) else 0


def _input(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text, "text_elements": []}]


def _called(item: Mapping[str, Any]) -> tuple[str, Any]:
    """The name and input of a tool that is called; nothing for other items."""
    match item.get("type"):
        case "commandExecution":
            return "shell", {"command": item.get("command"), "cwd": item.get("cwd")}
        case "fileChange":
            return "apply_patch", {"changes": item.get("changes")}
        case "dynamicToolCall":
            return str(item.get("tool")), item.get("arguments")
        case "mcpToolCall":
            return f"mcp__{item.get('server')}__{item.get('tool')}", item.get("arguments")
        case "webSearch":
            return "web_search", {"query": item.get("query")}
        case _:
            return "", None


def _look_at(reply: asyncio.Future[Reply]) -> None:
    """Nobody may wait for it any more, which is no reason to warn of an exception that nobody saw."""
    if not reply.cancelled():
        reply.exception()
