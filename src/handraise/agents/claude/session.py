"""One live conversation with Claude Code: its requests become asks, answers go back, and it is let go of safely.

A question and a plan are held in a PreToolUse hook, because only there a call can be deferred: then the program may
end, and the same call comes again when the session is resumed. Permissions are held in `can_use_tool`, which has no
time limit but is lost when the program dies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from handraise.agents import Asker, Message, Reply, Start
from handraise.agents.claude.control import Control
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
from handraise.asks import Answer, Ask, Origin
from handraise.errors import AgentFailed, AlreadyAnswered, AnswerDoesNotFit, HandraiseError, ProcessFailed, Withdrawn
from handraise.inert import inert
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
STOP = 15.0  # seconds for it to stop or to defer when told to
LONGEST_WORDS = 1000  # of what it says about its own trouble
BURNT = "failed schema validation"  # in the result of a call whose `updatedInput` it did not take


@dataclass(slots=True)
class _Held:
    """A request of Claude that waits for us."""

    id: str
    kind: Literal["hook", "tool", "form"]
    ask: Ask | None = None  # once it is known
    task: asyncio.Task[None] | None = None


_Serving = Callable[[_Held, dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Sent:
    """An answer that was sent, and how we see that it was taken."""

    ask: str
    by_state: bool = False  # Claude runs again; otherwise the result of the call has to come
    is_answered: bool = False  # a question that was answered: its result is an error only where that was not taken
    is_edited: bool = False
    is_form: bool = False


@dataclass(slots=True)
class _Turn:
    """What runs between a prompt and the moment Claude is idle again."""

    reply: asyncio.Future[Reply]
    text: str = ""  # what it said last
    result: Mapping[str, Any] | None = None
    told: list[str] = field(default_factory=list)  # asks whose answers are in the prompt
    granted: list[tuple[Ask, Answer]] = field(default_factory=list)  # calls it may make once without asking again


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
        self._control = Control(process)
        self._asker = asker
        self._start = start
        self._session = session
        self._is_new = is_new
        self._hold = hold
        self._turns = 0 if is_new else _turns(start)
        self._held: dict[str, _Held] = {}
        self._decided: dict[str, dict[str, Any]] = {}  # by call: what its `can_use_tool` gets, which follows the hook
        self._sent: dict[str, _Sent] = {}  # by call, or by request where there is none
        self._recorded = {ask.id: ask for ask in (start.cut.asks if start.cut else ())}
        self._recalled: asyncio.Task[list[tuple[Ask, Answer]]] | None = None
        self._turn: _Turn | None = None
        self._tells_state = False
        self._idle = asyncio.Event()
        self._deferred = asyncio.Event()
        self._is_aborting = self._is_leaving = self._is_over = False
        self._is_cut = False  # a deferred call came again, and nobody has taken it up yet
        self._words = ""  # why it is over
        self._tasks: asyncio.TaskGroup | None = None
        self._running: asyncio.Task[None] | None = None
        self._idle.set()

    @property
    def handle(self) -> Mapping[str, Any]:
        return {"session": self._session, "turns": self._turns}

    @property
    def pid(self) -> int:
        """The program's process."""
        return self._control.process.pid

    async def begin(self) -> Mapping[str, Any]:
        """Shake hands. Returns what the program says of itself; raises AgentFailed with its words."""
        if self._start.cut is not None:
            self._new_turn()  # a call that was deferred comes by itself, perhaps before the handshake is over
        self._running = asyncio.create_task(self._run())
        try:
            told = await self._control.request("initialize", timeout=START, hooks=HOOKS)
        except (AgentFailed, ProcessFailed) as error:
            await self._end()
            raise AgentFailed(f"claude did not start: {self._last_words() or error.message}") from error
        except BaseException:
            await self._end()
            raise
        self._is_cut = self._turn is not None and told.get("session_state") == "running"
        if not self._is_cut:
            self._turn = None
            self._idle.set()
        return told

    # Turns ----------------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> Reply:
        """What a worker before us left and nobody goes on with is given up for this."""
        if self._is_cut:
            self._is_cut = False
            await self.abort()
        await self._let_go_of_recorded(reason="the session went on with another prompt")
        return await self._prompt(text)

    async def go_on(self) -> Reply | None:
        """A deferred call comes again by itself. After a kill, the answers are waited for and told in a prompt."""
        cut = self._start.cut
        if cut is None or (cut.prompt is None and not cut.asks):
            return None
        self._is_cut = False
        if self._turn is not None:
            reply = self._turn.reply
            try:
                return await asyncio.shield(reply)
            finally:
                if reply.done() and not self._is_over:
                    await self._let_go_of_recorded(reason="claude no longer waits for it")
        if self._is_new and cut.prompt is not None and not cut.asks:
            self._start.listener.said(
                Message(role="notice", text="Claude knows nothing of this turn; it begins again.")
            )
            return await self._prompt(cut.prompt)
        if not cut.asks:
            raise AgentFailed(
                "the worker before this one died in the middle of a turn, and claude does not take that up by itself; "
                "prompt the session to go on"
            )
        self._recalled = asyncio.create_task(self._recall(cut.asks))
        answered = await self._recalled  # cancelled by an abort
        if not answered:
            raise AgentFailed("everything claude had asked was withdrawn meanwhile; prompt the session to go on")
        lines = ["The session was interrupted before this reached you.", *(told_later(*each) for each in answered)]
        if self._is_new and cut.prompt is not None:
            lines.insert(0, cut.prompt)
        text = "\n".join(lines)
        self._start.listener.said(Message(role="notice", text=text))
        granted = [(ask, answer) for ask, answer in answered if ask.permission is not None and not answer.rejected]
        allowed = {ask.id for ask, _ in granted}
        return await self._prompt(text, told=[ask.id for ask, _ in answered if ask.id not in allowed], granted=granted)

    async def _recall(self, asks: Sequence[Ask]) -> list[tuple[Ask, Answer]]:
        """The answers to asks of a call that is gone. Those that were withdrawn are left out."""

        answered: list[tuple[Ask, Answer]] = []
        for ask in asks:  # in whatever order they are answered, all of them are needed
            try:
                answered.append((ask, await self._asker.ask(ask, handling=self._start.handling)))
            except Withdrawn:
                continue
        self._recorded.clear()
        return answered

    async def _let_go_of_recorded(self, *, reason: str) -> None:
        """What the worker before us had open and Claude has not asked again."""
        recorded, self._recorded = self._recorded, {}
        for ask in recorded.values():
            await self._withdraw(ask, reason=reason)

    async def _prompt(
        self, text: str, *, told: Sequence[str] = (), granted: Sequence[tuple[Ask, Answer]] = ()
    ) -> Reply:
        if self._is_over:
            raise AgentFailed(f"claude has ended: {self._words}" if self._words else "the session is closed")
        if self._turn is not None and not self._turn.reply.done():
            raise AgentFailed("claude is still busy with the turn before; wait for it, or abort it")
        turn = self._new_turn()
        turn.told += told
        turn.granted += granted
        try:
            await self._control.say(text)
        except ProcessFailed as error:
            raise AgentFailed(error.message) from error
        # Cancelling the call ends nothing but the waiting; the turn goes on until it is aborted or left.
        return await asyncio.shield(turn.reply)

    def _new_turn(self) -> _Turn:
        self._idle.clear()
        self._turn = _Turn(asyncio.get_running_loop().create_future())
        self._turn.reply.add_done_callback(_look_at)
        return self._turn

    def _finish_turn(self) -> None:
        """Claude is idle: nothing it was sent is still under way."""
        self._idle.set()
        self._turns += 1
        for sent in self._sent.values():
            self._asker.delivered(sent.ask, error="the turn ended before claude took it")
        self._sent.clear()
        self._decided.clear()
        turn = self._turn
        if turn is None:
            return
        for id in turn.told:
            self._asker.delivered(id, error="the turn ended before claude took it")
        for ask, _ in turn.granted:
            self._asker.delivered(ask.id, error="claude did not make that call again")
        turn.told.clear()
        turn.granted.clear()
        if turn.reply.done():
            return
        if self._is_aborting:
            turn.reply.cancel()
        elif problem := _problem(turn.result or {}):
            turn.reply.set_exception(AgentFailed(f"claude could not finish: {problem}"))
        else:
            text = (turn.result or {}).get("result")
            turn.reply.set_result(Reply(text=text if isinstance(text, str) and text else turn.text))

    # Stopping -------------------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """Interrupt the turn; `prompt` is cancelled and the program stays for the next one."""
        await self._stop_recalling()
        if self._is_over or self._idle.is_set():
            return
        self._is_aborting = True
        try:
            await self._withdraw_held(reason="the turn was aborted")
            await self._control.request("interrupt", timeout=STOP)
            async with asyncio.timeout(STOP):
                await self._idle.wait()
            await self._withdraw_held(reason="the turn was aborted")  # what it asked before it heard of it
        except (AgentFailed, ProcessFailed, TimeoutError) as error:
            self._words = "it did not stop when it was interrupted"
            await self._end()
            raise AgentFailed("claude did not stop when it was interrupted, so its process was ended") from error
        finally:
            self._is_aborting = False
            if self._turn is not None:
                self._turn.reply.cancel()

    async def close(self) -> None:
        await self._stop_recalling()
        held = self._take_held()
        await self._end()
        for each in held:
            if each.ask is not None:
                await self._withdraw(each.ask, reason="the session was closed")

    async def leave(self) -> None:
        """Defer the one question or plan that is held, if there is nothing else; then end the program."""
        self._is_leaving = True
        if self._recalled is not None:
            self._recalled.cancel()
            await asyncio.wait([self._recalled])
        held = self._take_held()
        if len(held) == 1 and held[0].kind == "hook" and not self._sent and not self._is_over:
            output = {"hookEventName": "PreToolUse", "permissionDecision": "defer"}
            try:
                await self._control.reply(held[0].id, {"hookSpecificOutput": output})
                async with asyncio.timeout(STOP):
                    await self._deferred.wait()
            except (ProcessFailed, TimeoutError):
                log.warning("claude session %s was not deferred; its answer is told in a prompt later", self._session)
        await self._end()

    def _take_held(self) -> list[_Held]:
        held = list(self._held.values())
        self._held.clear()
        for each in held:
            if each.task is not None:
                each.task.cancel()
        return held

    async def _withdraw_held(self, *, reason: str) -> None:
        for each in self._take_held():
            if each.ask is not None:
                await self._withdraw(each.ask, reason=reason)

    async def _stop_recalling(self) -> None:
        """What was waited for on behalf of a call that is gone is withdrawn too."""
        if self._recalled is None or self._recalled.done():
            return
        self._recalled.cancel()
        await asyncio.wait([self._recalled])
        for ask in self._recorded.values():
            await self._withdraw(ask, reason="the turn was aborted")
        self._recorded.clear()

    async def _withdraw(self, ask: Ask, *, reason: str) -> None:
        try:
            await self._asker.withdraw(ask.id, reason=reason)
        except AlreadyAnswered:
            self._asker.delivered(ask.id, error=f"{reason} before claude took the answer")
        except HandraiseError as error:
            log.warning("ask %s of claude could not be withdrawn: %s", ask.id, error.code)

    async def _end(self) -> None:
        """Kill the program while its stdin is open, and forget what was under way. Withdraws nothing."""
        self._is_over = True
        self._take_held()
        await self._control.process.close()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=STOP)  # it may have to withdraw what a dead program asked
            self._running.cancel()
            await asyncio.wait([self._running])
        if self._turn is not None:
            self._turn.reply.cancel()

    # Listening ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Hear the program until it ends. What it asks is waited for in tasks of its own."""
        words = ""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    await self._control.listen(self._heard)
                except ProcessFailed as error:
                    words = error.message
                if not self._is_over and not self._is_leaving:
                    await self._gone(words)
        finally:
            self._is_over = True

    async def _gone(self, words: str) -> None:
        """The program ended by itself. Nobody there waits for an answer any more."""
        self._is_over = True
        process = self._control.process
        await process.close()
        said = _problem(self._turn.result or {}) if self._turn is not None else ""
        self._words = self._last_words() or words or said or f"its process ended with exit code {process.exit_code}"
        for each in self._take_held():
            if each.ask is not None:
                await self._withdraw(each.ask, reason=f"claude ended: {self._words}")
        for sent in self._sent.values():
            self._asker.delivered(sent.ask, error=f"claude ended before it took it: {self._words}")
        self._sent.clear()
        self._idle.set()
        turn = self._turn
        if turn is not None and not turn.reply.done():
            for id in [*turn.told, *(ask.id for ask, _ in turn.granted)]:
                self._asker.delivered(id, error=f"claude ended before it took it: {self._words}")
            if self._is_aborting:
                turn.reply.cancel()
            else:
                turn.reply.set_exception(AgentFailed(f"claude ended in the middle of its turn: {self._words}"))

    def _last_words(self) -> str:
        return inert(self._control.process.stderr_tail.strip()[-LONGEST_WORDS:])

    def _heard(self, message: dict[str, Any]) -> None:
        try:
            self._start.listener.active()
            if self._is_leaving:
                self._left(message)
            else:
                self._take(message)
        except Exception as error:  # whatever is in one message, the conversation goes on
            log.error("a message of claude session %s broke: %s", self._session, type(error).__name__)

    def _take(self, message: dict[str, Any]) -> None:
        match message.get("type"):
            case "control_request":
                self._requested(message)
            case "control_cancel_request":
                self._cancelled(str(message.get("request_id")))
            case "assistant":
                self._said(message)
            case "user":
                self._results(message)
            case "result":
                self._ended(message)
            case "system" if message.get("subtype") == "session_state_changed":
                self._state(message.get("state"))

    def _left(self, message: Mapping[str, Any]) -> None:
        """Nothing that comes now is ours to report; whoever takes the session up sees what was open."""
        if message.get("type") == "result":
            self._deferred.set()

    def _state(self, state: Any) -> None:
        self._tells_state = True
        if state == "idle":
            turn = self._turn
            if turn is not None and turn.result is None and not turn.reply.done() and not self._is_aborting:
                return  # that was the end of something before it: every turn has a result
            self._finish_turn()
            return
        self._idle.clear()  # a turn may also begin by itself, when a background task ends
        if state == "running":
            self._running_again()

    def _running_again(self, *, only_forms: bool = False) -> None:
        for key in [key for key, sent in self._sent.items() if sent.by_state and (sent.is_form or not only_forms)]:
            self._asker.delivered(self._sent.pop(key).ask)

    def _ended(self, result: Mapping[str, Any]) -> None:
        """The end of a turn, but perhaps not of all that is under way: that is told by the state."""
        if self._turn is not None:
            self._turn.result = result
        if not self._tells_state:
            self._finish_turn()

    def _said(self, message: Mapping[str, Any]) -> None:
        turn, is_main = self._turn, message.get("parent_tool_use_id") is None
        if turn is not None and is_main:
            for id in turn.told:  # it speaks, so it has read the prompt
                self._asker.delivered(id)
            turn.told.clear()
        extra = {} if is_main else {"agent_id": message.get("agent_id")}
        for block in _blocks(message):
            match block:
                case {"type": "text", "text": str(text)} if text:
                    if turn is not None and is_main:
                        turn.text = text
                    self._start.listener.said(Message(role="agent", text=text, extra=extra or None))
                case {"type": "tool_use", "name": str(name)}:
                    called = {"name": name, "input": block.get("input"), **extra}
                    self._start.listener.said(Message(role="tool", text=name, extra=called))

    def _results(self, message: Mapping[str, Any]) -> None:
        """The result of a call shows what became of the answer that it waited for."""
        for block in _blocks(message):
            if block.get("type") != "tool_result":
                continue
            sent = self._sent.pop(str(block.get("tool_use_id")), None)
            if sent is not None:
                text = _text_of(block)
                failed = block.get("is_error") is True and (sent.is_answered or (sent.is_edited and BURNT in text))
                self._asker.delivered(sent.ask, error=text[:LONGEST_WORDS] if failed else None)
            if not self._tells_state:  # a form has no call of its own, so this is the next best sign
                self._running_again(only_forms=True)

    # Asking ---------------------------------------------------------------------------------------------------------

    def _requested(self, message: Mapping[str, Any]) -> None:
        request_id, request = message.get("request_id"), message.get("request")
        if not isinstance(request_id, str) or not isinstance(request, dict):
            log.warning("claude session %s sent a request without an id", self._session)
            return
        assert self._tasks is not None
        match request.get("subtype"):
            case "hook_callback":
                held, serving = _Held(request_id, "hook"), self._serve_hook
            case "can_use_tool":
                held, serving = _Held(request_id, "tool"), self._serve_tool
            case "elicitation":
                held, serving = _Held(request_id, "form"), self._serve_form
            case _:
                self._tasks.create_task(self._refuse(request_id))
                return
        self._held[request_id] = held
        held.task = self._tasks.create_task(self._serve(held, request, serving))

    def _cancelled(self, request_id: str) -> None:
        """Claude does not wait for this any more: it was interrupted, or its own limit is over."""
        held = self._held.pop(request_id, None)
        if held is None or self._tasks is None:
            return
        if held.task is not None:
            held.task.cancel()
        if held.ask is not None:
            self._tasks.create_task(self._withdraw(held.ask, reason="claude stopped waiting"))

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
        if self._held.pop(held.id, None) is None:
            return  # cancelled, or left, at this very moment
        try:
            await self._control.reply(held.id, response)
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
        return decided or await self._decide(held, request, tool_input=request.get("input"), call=call)

    async def _decide(self, held: _Held, request: dict[str, Any], *, tool_input: Any, call: str) -> dict[str, Any]:
        """What `can_use_tool` takes for this call."""
        tool = str(request.get("tool_name"))
        granted = self._take_granted(tool, tool_input)
        if granted is not None:
            ask, answer = granted
        else:
            id = f"{NAME}:{self._session}:{call}"
            origin = self._origin(request.get("agent_id"))
            ask = (
                self._recorded.pop(id)
                if id in self._recorded
                else to_ask(tool, tool_input, id=id, origin=origin, fields=request)
            )
            held.ask = ask
            answer = await self._asked(ask)
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
        ask = form_to_ask(request, id=f"{NAME}:{self._session}:{held.id}", origin=self._origin(request.get("agent_id")))
        held.ask = ask
        answer = await self._asked(ask)
        try:
            reply = from_form_answer(ask, answer)
        except AnswerDoesNotFit as misfit:
            self._asker.delivered(ask.id, error=misfit.message)
            return {"action": "cancel"}
        self._sent[held.id] = _Sent(ask.id, by_state=True, is_form=True)
        return reply

    async def _asked(self, ask: Ask) -> Answer:
        """The answer; the desk records it. Raises HandraiseError where there will be none."""
        try:
            return await self._asker.ask(ask, handling=self._start.handling)
        except Withdrawn as error:
            reason = error.ask.withdrawn_reason
            raise AgentFailed(
                "This was withdrawn before anybody answered" + (f": {reason}" if reason else ".")
            ) from None

    def _take_granted(self, tool: str, tool_input: Any) -> tuple[Ask, Answer] | None:
        """The grant of a call that was lost with its process, for the first call that is exactly the same."""
        granted = self._turn.granted if self._turn is not None else []
        for number, (ask, _) in enumerate(granted):
            if is_same_call(ask, tool, tool_input):
                return granted.pop(number)
        return None

    def _origin(self, agent_id: Any) -> Origin:
        start = self._start
        is_subagent = isinstance(agent_id, str) and agent_id != ""
        return Origin(
            agent=NAME,
            session=f"{start.session}/{agent_id}" if is_subagent else start.session,
            run=start.run,
            step=start.step,
            parent=start.session if is_subagent else start.parent,
            cwd=start.cwd,
        )


def _turns(start: Start) -> int:
    turns = start.cut.handle.get("turns") if start.cut is not None else 0
    return turns if isinstance(turns, int) else 0


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


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    inner = message.get("message")
    content = inner.get("content") if isinstance(inner, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _text_of(block: Mapping[str, Any]) -> str:
    content = block.get("content")
    if isinstance(content, list):
        return "\n".join(str(each.get("text", "")) for each in content if isinstance(each, dict))
    return content if isinstance(content, str) else ""


def _problem(result: Mapping[str, Any]) -> str:
    """Why a turn failed, in Claude's words; empty if it did not."""
    if result.get("stop_reason") == "tool_deferred_unavailable":
        return "the call that was deferred cannot be taken up here"
    if not result.get("is_error") and result.get("subtype", "success") == "success":
        return ""
    errors = result.get("errors")
    words = [str(each) for each in errors] if isinstance(errors, list) else []
    said = result.get("result")
    if isinstance(said, str) and said:
        words.insert(0, said)
    reason = result.get("terminal_reason") or result.get("subtype") or "it did not say why"
    return inert("; ".join(words) or str(reason))[:LONGEST_WORDS]


def _look_at(reply: asyncio.Future[Reply]) -> None:
    """Nobody may wait for it any more, which is no reason to warn of an exception that nobody saw."""
    if not reply.cancelled():
        reply.exception()
