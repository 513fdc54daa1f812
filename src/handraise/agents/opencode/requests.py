"""What one server of OpenCode asks and has no answer to: brought to the desk, and the answers brought back.

A request is known from the moment it is seen until it is settled here or there, and never comes up a second time.

    seen ── desk answers ── handed on ── taken: the tool went on          (delivered)
      │                         └─────── settled there first, or the turn ended   (delivered, with an error)
      └──── settled there, or the turn ended   (withdrawn, with the answer where it is known)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from handraise.agents import Asker, Listener, Silent, Start, Wire
from handraise.agents._attached import PASSING, withdraw
from handraise.agents.opencode.events import Event, Settled
from handraise.agents.opencode.modes import Rules
from handraise.agents.opencode.server import CallRefused, Server, ServerGone
from handraise.agents.opencode.translate import AGENT, Call, clearing, from_answer, local_answer, request_of
from handraise.asks import Answer, Ask, Origin
from handraise.errors import AgentFailed, AskDiffers, HandraiseError, Withdrawn
from handraise.tasks import Tasks

__all__ = [
    "ELSEWHERE",
    "ENDED",
    "MOOT",
    "STOPPED",
    "Owner",
    "Request",
    "Requests",
    "answer_in",
    "answers_of",
    "entries",
    "tool_state",
]

log = logging.getLogger(__name__)

ENDED = "OpenCode's server ended"
STOPPED = "the turn was stopped"
OVER = "the turn was over before it took the answer"
ELSEWHERE = "it was settled in OpenCode first"
MOOT = "OpenCode no longer waits for it"
DESK = "desk"  # nobody's answer: the desk has no such ask, and the agent has to hear of it

SIGN = 20.0  # seconds for OpenCode to show that it took an answer, which is a matter of milliseconds, before we look
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between two tries
CHORES = 10.0  # seconds to tell the desk what is over, when nobody listens any more
ENDINGS = ("completed", "error")  # of a call of a tool
REMEMBERED = 10_000  # requests that are settled; a list may still hold them for a moment


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Owner:
    """Whose requests they are: one session of ours with its subagents, or every session of a server."""

    asker: Asker
    start: Start | None = None  # None: every session, under its own id
    cwd: str | None = None  # where `start` names none
    rules: Rules = field(default_factory=Rules)  # what the mode grants a subagent, which has rules of its own

    @property
    def listener(self) -> Listener:
        return Silent() if self.start is None else self.start.listener

    def origin(self, session: str, *, root: str, directory: str | None) -> Origin:
        """What the desk calls a session of OpenCode; `root` is the one that it is a subagent of, or itself."""
        start, is_root = self.start, session == root
        if start is None:
            return Origin(agent=AGENT, session=session, parent=None if is_root else root, cwd=directory)
        return Origin(
            agent=AGENT,
            session=start.session if is_root else session,
            parent=start.parent if is_root else start.session,
            cwd=start.cwd or self.cwd,
            run=start.run,
            step=start.step,
        )


@dataclass(eq=False, slots=True, kw_only=True)
class Request:
    ask: Ask
    owner: Owner
    session: str
    directory: str | None
    task: asyncio.Task[None] | None = None
    answer: Answer | None = None  # what we hand on, from then on
    event: Mapping[str, Any] | None = None  # which told that it is settled
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    sign: asyncio.Future[str | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def call(self) -> tuple[str, str] | None:
        return _call_of(self.ask)

    def see(self, wire: Wire) -> None:
        self.owner.listener.seen(replace(wire, ask=self.ask.id))

    @property
    def is_refused(self) -> bool:
        """Whether it is a permission that the desk said no to."""
        return self.ask.permission is not None and self.answer is not None and self.answer.rejected

    def show(self, error: str | None) -> None:
        """The agent took the answer, or did not, and why."""
        if not self.sign.done():
            self.sign.set_result(error)


class Requests:
    """Those that are open at one server, by OpenCode's id."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._open: dict[str, Request] = {}
        self._over: dict[str, str | None] = {}  # settled ones, with their asks
        self._changed = asyncio.Event()  # set, and replaced, when a request is decided or over
        self._tasks = Tasks(complaint="opencode: a request was dropped")

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._open.values()))

    def is_open(self, id: str) -> bool:
        return id in self._open

    def is_known(self, id: str) -> bool:
        """Whether it came up before, so that it is not new."""
        return id in self._open or id in self._over

    def ask_of(self, id: str | None) -> str | None:
        """The ask that a request became."""
        if id is None:
            return None
        request = self._open.get(id)
        return request.ask.id if request is not None else self._over.get(id)

    def begin(self, request: Request) -> None:
        self._open[request_of(request.ask)[1]] = request
        request.task = self._tasks.start(self._carry(request))

    def drop(self, owner: Owner) -> None:
        """Stop carrying what is theirs. Nothing is withdrawn; whoever owns it next finds it again."""
        for request in self:
            if request.owner is owner:
                del self._open[request_of(request.ask)[1]]
                if request.task is not None:
                    request.task.cancel()

    async def close(self) -> None:
        """Stop carrying. Nothing that is open is withdrawn; what is over already is still told to the desk."""
        for request in self:
            if request.task is not None:
                request.task.cancel()
        self._open.clear()
        await self._tasks.close(within=CHORES)

    # What OpenCode shows ------------------------------------------------------------------------------------

    def settle(self, event: Event, news: Settled) -> None:
        """Somebody's answer was taken."""
        request = self._open.get(news.request)
        self.remember(news.request)
        if request is None:
            return
        if request.answer is None:
            self.end(request, reason=ELSEWHERE, answer=local_answer(request.ask, event.as_json()), is_listed=False)
            return
        request.event = event.as_json()
        request.settled.set()
        self._announce()
        if request.ask.permission is not None or request.call is None or news.generation > 1:
            request.show(None)  # the turn was under way until now, so somebody listened

    def see_part(self, part: Mapping[str, Any]) -> None:
        """A tool that went on, or was stopped, had waited for a request."""
        state = part.get("state")
        if part.get("type") != "tool" or not isinstance(state, dict) or state.get("status") not in ENDINGS:
            return
        for request in self:
            if request.call != (part.get("messageID"), part.get("callID")):
                continue
            if request.answer is not None:
                request.show(OVER if was_interrupted(state) else None)
            elif was_interrupted(state):
                self.end(request, reason=STOPPED)

    async def look_after(self, request: Request) -> None:
        """It was open and is no longer listed: something happened while we did not hear."""
        state = await tool_state(self._server, request.ask, directory=request.directory)
        if request.answer is not None:
            request.show(OVER if was_interrupted(state) else None)
            return
        self.end(request, reason=MOOT, answer=answer_in(state, request.ask), is_listed=False)

    # One request --------------------------------------------------------------------------------------------

    async def _carry(self, request: Request) -> None:
        answer = await self._answer_to(request)
        if answer is None:
            self._forget(request)
            return
        request.answer = answer
        self._announce()
        error = await self._hand_on(request, answer)
        self._forget(request)
        if answer.by != DESK:
            request.owner.asker.delivered(request.ask.id, error=error)

    async def _answer_to(self, request: Request) -> Answer | None:
        """What the desk says, however long it takes. None: somebody else brings this request to the desk."""
        ask, pause = request.ask, FIRST_PAUSE
        while True:
            try:
                return await request.owner.asker.ask(ask)
            except AskDiffers:
                log.warning("opencode: ask %s is at the desk already, from elsewhere", ask.id)
                return None
            except Withdrawn as withdrawn:
                return Answer(rejected=True, reason=withdrawn.ask.withdrawn_reason or "it was withdrawn", by=DESK)
            except PASSING as trouble:
                log.warning("opencode: ask %s could not be raised, and is tried again: %s", ask.id, trouble.code)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            except HandraiseError as misfit:
                log.warning("opencode asked what the desk does not take, as %s: %s", ask.id, misfit.code)
                reason = f"this could not be asked: {misfit.message}"
                return Answer(rejected=True, reason=reason, by=DESK)

    async def _hand_on(self, request: Request, answer: Answer) -> str | None:
        """None once the agent took it, else why it did not. A 200 alone is no proof: ghosts give it too."""
        if request.is_refused:
            answer = await self._join_refusals(request, answer)
            if request.sign.done() and (over := request.sign.result()) is not None:
                return over
        call, pause = from_answer(request.ask, answer), FIRST_PAUSE
        while True:
            try:
                await self._server.post(call.path, call.body, directory=request.directory, seen=request.see)
                break
            except CallRefused as refused:
                if refused.status != 404:
                    return refused.message
                return await self._compare(request, answer)
            except ServerGone:  # either it comes back, or `follow` notices that it ended
                if request.sign.done():
                    return request.sign.result()
                await asyncio.wait([request.sign], timeout=pause)
                pause = min(pause * 2, LONGEST_PAUSE)
        await asyncio.wait([request.sign], timeout=SIGN)
        if not request.sign.done():
            try:
                state = await tool_state(self._server, request.ask, directory=request.directory)
            except AgentFailed:
                state = {}
            request.show(OVER if was_interrupted(state) else None)
        return request.sign.result()

    async def _join_refusals(self, request: Request, answer: Answer) -> Answer:
        """Wait until nothing else of the session is to be granted, since OpenCode refuses all of it along with this.

        The agent loses no time, as it waits for all of them. It hears the reasons for all with the first.
        """
        while True:
            others = [each for each in self._open.values() if each.session == request.session and each is not request]
            if request.sign.done() or not any(each.ask.permission and not each.is_refused for each in others):
                break
            await self._changed.wait()
        refusals = [answer, *(each.answer for each in others if each.is_refused and each.answer is not None)]
        reasons = dict.fromkeys(each.reason for each in refusals if each.reason)
        return replace(answer, reason="; ".join(reasons)) if reasons else answer

    async def _compare(self, request: Request, answer: Answer) -> str | None:
        """What settled it there first, beside our own answer."""
        try:
            async with asyncio.timeout(SIGN):
                await request.settled.wait()
        except TimeoutError:
            return ELSEWHERE
        assert request.event is not None
        # A reply of ours whose response was lost comes back as 404 when it is repeated.
        replied = (request.event["properties"] or {}).get("answers")
        is_ours = replied is not None and replied == (from_answer(request.ask, answer).body or {}).get("answers")
        is_same = local_answer(request.ask, request.event).same_as(answer)
        return None if is_ours or is_same else ELSEWHERE

    # The end of it ------------------------------------------------------------------------------------------

    def end(
        self, request: Request, *, reason: str, is_listed: bool = True, answer: Answer | None = None
    ) -> asyncio.Task[None] | None:
        """It is over on OpenCode's side. If it was being answered, whoever hands the answer on hears of it.

        The task is done once the desk knows.
        """
        self._forget(request)
        if request.answer is not None:
            request.show(ENDED if reason == ENDED else OVER)
            return request.task
        if request.task is not None:
            request.task.cancel()
        if is_listed and request.ask.permission is None:
            self.post_later(clearing(request.ask), directory=request.directory, seen=request.see)
        return self.withdraw_later(request.owner.asker, request.ask, reason=reason, answer=answer)

    def withdraw_later(
        self, asker: Asker, ask: Ask, *, reason: str, answer: Answer | None = None
    ) -> asyncio.Task[None]:
        too_late = f"{reason}, before it took the answer"
        return self._tasks.start(withdraw(asker, ask.id, reason=reason, too_late=too_late, answer=answer))

    def post_later(self, call: Call, *, directory: str | None, seen: Callable[[Wire], None]) -> None:
        self._tasks.start(self.post(call, directory=directory, seen=seen))

    async def post(self, call: Call, *, directory: str | None, seen: Callable[[Wire], None] | None = None) -> None:
        """Where OpenCode does not take it, that is logged and nothing else."""
        try:
            await self._server.post(call.path, call.body, directory=directory, seen=seen)
        except AgentFailed as trouble:
            log.info("opencode: %s", trouble)

    def remember(self, id: str) -> None:
        """It is settled, and does not come up again."""
        self._over[id] = self.ask_of(id)
        if len(self._over) > REMEMBERED:
            del self._over[next(iter(self._over))]

    def _forget(self, request: Request) -> None:
        _, id = request_of(request.ask)
        if self._open.get(id) is request:
            self.remember(id)
            del self._open[id]
            self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def tool_state(server: Server, ask: Ask, *, directory: str | None) -> Mapping[str, Any]:
    """The state of the tool call that asks, as OpenCode keeps it; empty where it is not known."""
    call = _call_of(ask)
    if call is None:
        return {}
    session, _ = request_of(ask)
    try:
        message = await server.get(f"/session/{session}/message/{call[0]}", directory=directory)
    except CallRefused:
        return {}
    for part in entries(message.get("parts") if isinstance(message, dict) else None):
        if part.get("callID") == call[1] and isinstance(part.get("state"), dict):
            state: dict[str, Any] = part["state"]
            return state
    return {}


def answer_in(state: Mapping[str, Any], ask: Ask) -> Answer | None:
    """What was answered in OpenCode itself, where its tool says so."""
    answers = answers_of(state)
    return None if answers is None else local_answer(ask, {"properties": {"answers": answers}})


def answers_of(state: Mapping[str, Any]) -> list[Any] | None:
    """What a question that is answered was told."""
    metadata = state.get("metadata")
    answers = metadata.get("answers") if isinstance(metadata, dict) else None
    return answers if state.get("status") == "completed" and isinstance(answers, list) else None


def was_interrupted(state: Mapping[str, Any]) -> bool:
    metadata = state.get("metadata")
    is_marked = isinstance(metadata, dict) and metadata.get("interrupted") is True
    return state.get("status") == "error" and (is_marked or state.get("error") == "Tool execution aborted")


def _call_of(ask: Ask) -> tuple[str, str] | None:
    """The message and the call that asks."""
    tool = (ask.extra or {}).get("tool")
    if not isinstance(tool, Mapping):
        return None
    message, call = tool.get("messageID"), tool.get("callID")
    return (message, call) if isinstance(message, str) and isinstance(call, str) else None


def entries(listed: Any) -> Collection[dict[str, Any]]:
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else ()
