"""One live conversation with Claude Code: its requests become asks, answers go back, and it is let go of safely.

A question and a plan are held in a PreToolUse hook, because only there a call can be deferred: then the program may
end, and the same call comes again when the session is resumed. Permissions are held in `can_use_tool`, which has no
time limit but is lost when the program dies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from handraise.agents import Asker, Message, Reply, Start
from handraise.agents._conversation import ABORTED, LONGEST_WORDS, STOP, Conversation, Held, Prompt, origin_of
from handraise.agents._programs import last_words
from handraise.agents.claude.control import Control, blocks_of, problem_of, result_text
from handraise.agents.claude.translate import (
    PLAN,
    QUESTION,
    form_to_ask,
    from_answer,
    from_form_answer,
    is_same_call,
    to_ask,
    told_later,
)
from handraise.asks import Origin
from handraise.errors import AgentFailed, AnswerDoesNotFit, HandraiseError, Overloaded, ProcessFailed
from handraise.transports.process import Process

__all__ = ["HOOKS", "ClaudeSession"]

log = logging.getLogger(__name__)

NAME = "claude"
HOOK_TIMEOUT = 86_400  # seconds; when it is over the call fails instead of going on to `can_use_tool`
HOLD = HOOK_TIMEOUT - 600.0  # so before that a call is passed on there, where it waits without a limit
HOOKS = {
    "PreToolUse": [{"matcher": f"{QUESTION}|{PLAN}", "hookCallbackIds": ["hold"], "timeout": HOOK_TIMEOUT}],
}
START = 60.0  # seconds for the first answer; it takes under one on a quiet machine
BURNT = "failed schema validation"  # in the result of a call whose `updatedInput` it did not take


@dataclass(slots=True, kw_only=True)
class _Held(Held):
    id: str
    kind: Literal["hook", "tool", "form"]


_Serving = Callable[[_Held, dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Sent:
    """An answer that was sent, and how we see that it was taken."""

    ask: str
    by_state: bool = False  # Claude runs again; otherwise the result of the call has to come
    is_answered: bool = False  # a question that was answered: its result is an error only where that was not taken
    is_edited: bool = False
    is_form: bool = False


class ClaudeSession:
    """Made by `Claude.open`, which also calls `begin`."""

    def __init__(
        self,
        process: Process,
        *,
        asker: Asker,
        start: Start,
        session: str,
        is_new: bool = False,
        hold: float = HOLD,
    ) -> None:
        """`is_new`: Claude knows nothing of it yet, even where `start.cut` is there."""
        self._control = Control(process, listener=start.listener)
        self._talk: Conversation[_Held] = Conversation(process, name=NAME, asker=asker, start=start, lost=self._give_up)
        self._asker = asker
        self._start = start
        self._session = session
        self._is_new = is_new
        self._hold = hold
        self._result: Mapping[str, Any] | None = None  # of the turn that runs, or of its first part
        self._decided: dict[str, dict[str, Any]] = {}  # by call: what its `can_use_tool` gets, which follows the hook
        self._sent: dict[str, _Sent] = {}  # by call, or by request where there is none
        self._tells_state = False
        self._tasks: tuple[str, ...] = ()  # what runs in the background
        self._deferred = asyncio.Event()
        self._is_cut = False  # a deferred call came again, and nobody has taken it up yet

    @property
    def handle(self) -> Mapping[str, Any]:
        return {"session": self._session, "turns": self._talk.turns}

    @property
    def pid(self) -> int:
        """The program's process."""
        return self._talk.process.pid

    async def begin(self) -> Mapping[str, Any]:
        """Shake hands. Returns what the program says of itself; raises AgentFailed with its words."""
        if self._start.cut is not None:
            self._talk.new_turn()  # a call that was deferred comes by itself, perhaps before the handshake is over
        self._talk.begin(lambda: self._control.listen(self._hear), last_words=self._last_words)
        try:
            told = await self._control.request("initialize", timeout=START, hooks=HOOKS)
        except (AgentFailed, ProcessFailed) as error:
            await self._talk.end()
            words = last_words(self._talk.process) or error.message
            raise AgentFailed(f"claude did not start: {words}") from error
        except BaseException:
            await self._talk.end()
            raise
        self._is_cut = self._talk.turn is not None and told.get("session_state") == "running"
        if not self._is_cut:
            self._talk.turn = None
            self._talk.idle.set()
        return told

    # Turns ----------------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> Reply:
        """What a worker before us left and nobody goes on with is given up for this."""
        if self._is_cut:
            self._is_cut = False
            await self.abort()
        await self._talk.let_go_of_recorded(reason="the session went on with another prompt")
        return await self._prompt(Prompt(text))

    async def go_on(self) -> Reply | None:
        """A deferred call comes again by itself. After a kill, the answers are waited for and told in a prompt."""
        if not self._talk.was_cut:
            return None
        self._is_cut = False
        if self._talk.turn is not None:
            reply = self._talk.turn.reply
            try:
                return await asyncio.shield(reply)
            finally:
                if reply.done() and not self._talk.is_over:
                    await self._talk.let_go_of_recorded(reason="claude no longer waits for it")
        prompt = await self._talk.take_up(told_later, is_new=self._is_new)
        return None if prompt is None else await self._prompt(prompt)

    async def _prompt(self, prompt: Prompt) -> Reply:
        turn = self._talk.new_turn(prompt)
        self._result = None
        try:
            await self._control.say(prompt.text)
        except ProcessFailed as error:
            raise AgentFailed(error.message) from error
        # Cancelling the call ends nothing but the waiting; the turn goes on until it is aborted or left.
        return await asyncio.shield(turn.reply)

    def _finish_turn(self) -> None:
        """Claude is idle: nothing it was sent is still under way."""
        self._give_up("the turn ended before claude took it")
        self._decided.clear()
        result = self._result or {}
        text = result.get("result")
        self._talk.finish(problem=problem_of(result), text=text if isinstance(text, str) else "")

    def _give_up(self, problem: str) -> None:
        """What was sent and gave no sign will give none any more."""
        for sent in self._sent.values():
            self._asker.delivered(sent.ask, error=problem)
        self._sent.clear()

    # Stopping -------------------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """Interrupt the turn; `prompt` is cancelled and the program stays for the next one."""
        await self._talk.abort(self._interrupt)

    async def _interrupt(self) -> None:
        """The interrupt alone ends no command that runs in the background, and no such subagent."""
        await self._talk.withdraw_held(reason=ABORTED)
        await self._stop_tasks()  # first: a task that ends while Claude is idle makes it begin a turn by itself
        await self._control.request("interrupt", timeout=STOP)
        await self._stop_tasks()  # one that was begun in between

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            try:
                await self._control.request("stop_task", timeout=STOP, task_id=task)
            except AgentFailed:
                if task in self._tasks:  # else it ended at this moment
                    raise

    async def close(self) -> None:
        await self._talk.close()

    async def leave(self) -> None:
        await self._talk.leave(self._defer)

    async def _defer(self, held: Sequence[_Held]) -> None:
        """The one question or plan that was held, if there is nothing else, comes again when the session is resumed."""
        if len(held) != 1 or held[0].kind != "hook" or self._sent:
            return
        output = {"hookEventName": "PreToolUse", "permissionDecision": "defer"}
        try:
            await self._control.reply(held[0].id, {"hookSpecificOutput": output})
            async with asyncio.timeout(STOP):
                await self._deferred.wait()
        except (ProcessFailed, TimeoutError):
            log.warning("claude session %s was not deferred; its answer is told in a prompt later", self._session)

    # Listening ------------------------------------------------------------------------------------------------------

    def _last_words(self) -> str:
        return last_words(self._talk.process) or problem_of(self._result or {})

    def _hear(self, message: dict[str, Any]) -> None:
        try:
            self._start.listener.active()
            self._dispatch(message)
        except Exception as error:  # whatever is in one message, the conversation goes on
            log.error("a message of claude session %s broke: %s", self._session, type(error).__name__)

    def _dispatch(self, message: dict[str, Any]) -> None:
        match message.get("type"):
            case "result" if self._talk.is_leaving:
                self._deferred.set()
            case _ if self._talk.is_leaving:
                return  # nothing that comes now is ours to report; whoever takes the session up sees what was open
            case "control_request":
                self._on_request(message)
            case "control_cancel_request":
                self._on_cancel(str(message.get("request_id")))
            case "assistant":
                self._on_message(message)
            case "user":
                self._on_tool_results(message)
            case "result":
                self._on_result(message)
            case "system" if message.get("subtype") == "session_state_changed":
                self._on_state(message.get("state"))
            case "system" if message.get("subtype") == "background_tasks_changed":
                self._tasks = tuple(_ids_of(message.get("tasks")))

    def _on_state(self, state: Any) -> None:
        self._tells_state = True
        if state == "idle":
            turn = self._talk.turn
            is_open = turn is not None and not turn.reply.done()
            if is_open and self._result is None and not self._talk.is_aborting:
                return  # that was the end of something before it: every turn has a result
            self._finish_turn()
            return
        self._talk.idle.clear()  # a turn may also begin by itself, when a background task ends
        if state == "running":
            self._deliver_by_state()

    def _deliver_by_state(self, *, only_forms: bool = False) -> None:
        for key in [key for key, sent in self._sent.items() if sent.by_state and (sent.is_form or not only_forms)]:
            self._asker.delivered(self._sent.pop(key).ask)

    def _on_result(self, result: Mapping[str, Any]) -> None:
        """The end of a turn, but perhaps not of all that is under way: that is told by the state."""
        self._result = result
        if not self._tells_state:
            self._finish_turn()

    def _on_message(self, message: Mapping[str, Any]) -> None:
        turn, is_main = self._talk.turn, message.get("parent_tool_use_id") is None
        if is_main:
            self._talk.read_prompt()
        extra = {} if is_main else {"agent_id": message.get("agent_id")}
        for block in blocks_of(message):
            match block:
                case {"type": "text", "text": str(text)} if text:
                    if turn is not None and is_main:
                        turn.text = text
                    self._start.listener.said(Message(role="agent", text=text, extra=extra or None))
                case {"type": "tool_use", "name": str(name)}:
                    called = {"name": name, "input": block.get("input"), **extra}
                    self._start.listener.said(Message(role="tool", text=name, extra=called))

    def _on_tool_results(self, message: Mapping[str, Any]) -> None:
        """The result of a call shows what became of the answer that it waited for."""
        for block in blocks_of(message):
            if block.get("type") != "tool_result":
                continue
            sent = self._sent.pop(str(block.get("tool_use_id")), None)
            if sent is not None:
                text = result_text(block)
                failed = block.get("is_error") is True and (sent.is_answered or (sent.is_edited and BURNT in text))
                self._asker.delivered(sent.ask, error=text[:LONGEST_WORDS] if failed else None)
            if not self._tells_state:  # a form has no call of its own, so this is the next best sign
                self._deliver_by_state(only_forms=True)

    # Asking ---------------------------------------------------------------------------------------------------------

    def _on_request(self, message: Mapping[str, Any]) -> None:
        request_id, request = message.get("request_id"), message.get("request")
        if not isinstance(request_id, str) or not isinstance(request, dict):
            log.warning("claude session %s sent a request without an id", self._session)
            return
        if request_id in self._talk.held:
            log.warning("claude session %s sent the id of an open request again; it is dropped", self._session)
            return
        match request.get("subtype"):
            case "hook_callback":
                held, serving = _Held(id=request_id, kind="hook"), self._serve_hook
            case "can_use_tool":
                held, serving = _Held(id=request_id, kind="tool"), self._serve_tool
            case "elicitation":
                held, serving = _Held(id=request_id, kind="form"), self._serve_form
            case _:
                self._talk.spawn(self._refuse(request_id))
                return
        try:
            self._talk.hold(request_id, held)
        except Overloaded as full:
            self._talk.spawn(self._reply(request_id, _refused(held, full.message)))
            return
        held.task = self._talk.spawn(self._serve(held, request, serving))

    def _on_cancel(self, request_id: str) -> None:
        """Claude does not wait for this any more: it was interrupted, or its own limit is over."""
        self._talk.withdraw_later(self._talk.take(request_id), reason="claude stopped waiting")

    async def _refuse(self, request_id: str) -> None:
        try:
            await self._control.refuse(request_id, "this host does not know that request")
        except ProcessFailed:
            return  # which is noticed where it is listened to

    async def _serve(self, held: _Held, request: dict[str, Any], serving: _Serving) -> None:
        """Wait for the answer and send it. When the desk closes first, the request stays held, to be deferred."""
        try:
            response = await serving(held, request)
        except HandraiseError as error:
            log.warning("claude asked what became no answer, as %s: %s", held.id, error.code)
            response = _refused(held, error.message)
        except Exception as error:  # whatever is in one message, the others are not to suffer
            log.error("a request of claude broke, %s: %s", held.id, type(error).__name__)
            response = _refused(held, "the host could not read this request")
        if self._talk.release(held.id):  # else it was cancelled, or left, at this very moment
            await self._reply(held.id, response)

    async def _reply(self, request_id: str, response: Mapping[str, Any]) -> None:
        try:
            await self._control.reply(request_id, response)
        except ProcessFailed:
            return  # which is noticed where it is listened to

    async def _serve_hook(self, held: _Held, request: dict[str, Any]) -> dict[str, Any]:
        """A question or a plan. What a hook cannot say, or not well, is kept for the `can_use_tool` that follows."""
        given = request.get("input")
        if not isinstance(given, dict):
            return {}
        call = _call(given.get("tool_use_id") or request.get("tool_use_id"), held)
        try:
            async with asyncio.timeout(self._hold):
                decision = await self._decide(held, given, tool_input=given.get("tool_input"), call=call)
        except TimeoutError:
            return {}
        except HandraiseError as error:
            log.warning("claude asked what became no answer, as %s: %s", call, error.code)
            decision = {"behavior": "deny", "message": error.message}
        if decision["behavior"] == "deny" or given.get("tool_name") != QUESTION:
            # From here the model would hear of a hook's error, and an edited plan or a mode would not be taken.
            self._decided[call] = decision
            return {}
        output = {"hookEventName": "PreToolUse", "permissionDecision": "allow"}
        return {"hookSpecificOutput": {**output, "updatedInput": decision["updatedInput"]}}

    async def _serve_tool(self, held: _Held, request: dict[str, Any]) -> dict[str, Any]:
        call = _call(request.get("tool_use_id"), held)
        decided = self._decided.pop(call, None)
        if decided is not None and call in self._sent:  # the hook has asked, and this carries the answer
            self._start.listener.became(self._sent[call].ask, request=held.id)
        return decided or await self._decide(held, request, tool_input=request.get("input"), call=call)

    async def _decide(self, held: _Held, request: dict[str, Any], *, tool_input: Any, call: str) -> dict[str, Any]:
        """What `can_use_tool` takes for this call."""
        tool = str(request.get("tool_name"))
        granted = self._talk.take_granted(lambda ask: is_same_call(ask, tool, tool_input))
        if granted is not None:
            ask, answer = granted
            self._start.listener.became(ask.id, request=held.id)
        else:
            id, origin = f"{NAME}:{self._session}:{call}", self._origin(request)
            recorded = self._talk.recorded.pop(id, None)
            ask = recorded or to_ask(tool, tool_input, id=id, origin=origin, fields=request)
            self._start.listener.became(ask.id, request=held.id)
            answer = await self._talk.answer_to(held, ask)
        decision = from_answer(ask, answer)
        is_edited = answer.input is not None
        self._sent[call] = _Sent(
            ask.id,
            by_state=held.kind == "tool" and decision["behavior"] == "allow" and not is_edited,
            is_answered=ask.permission is None and not answer.rejected,
            is_edited=is_edited,
        )
        return decision

    async def _serve_form(self, held: _Held, request: dict[str, Any]) -> dict[str, Any]:
        """What an MCP server wants filled in. It dies with the program, so the request's own id is durable enough."""
        ask = form_to_ask(request, id=f"{NAME}:{self._session}:{held.id}", origin=self._origin(request))
        self._start.listener.became(ask.id, request=held.id)
        answer = await self._talk.answer_to(held, ask)
        try:
            reply = from_form_answer(ask, answer)
        except AnswerDoesNotFit as misfit:
            self._asker.delivered(ask.id, error=misfit.message)
            return {"action": "cancel"}
        self._sent[held.id] = _Sent(ask.id, by_state=True, is_form=True)
        return reply

    def _origin(self, request: Mapping[str, Any]) -> Origin:
        subagent = request.get("agent_id")
        return origin_of(self._start, agent=NAME, subagent=subagent if isinstance(subagent, str) else None)


def _refused(held: _Held, problem: str) -> dict[str, Any]:
    match held.kind:
        case "hook":
            return {}  # and `can_use_tool` follows
        case "tool":
            return {"behavior": "deny", "message": problem}
        case "form":
            return {"action": "cancel"}


def _call(id: Any, held: _Held) -> str:
    return id if isinstance(id, str) and id else held.id


def _ids_of(tasks: Any) -> Iterator[str]:
    for task in tasks if isinstance(tasks, list) else ():
        id = task.get("task_id") if isinstance(task, dict) else None
        if isinstance(id, str):
            yield id
