"""One conversation with OpenCode: its turns, and how it goes on after a worker has died.

A folder is a server and the stream of its events, which all our sessions of that project share.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handraise.agents import Asker, Message, Reply, Start, Wire
from handraise.agents.opencode.modes import MODES, Rules
from handraise.agents.opencode.relay import ENDED, STOPPED, Place, Relay, answers_of, tool_state
from handraise.agents.opencode.server import CallRefused, Server
from handraise.agents.opencode.translate import ASKED, from_answer, local_answer
from handraise.asks import Answer, Ask, Permission
from handraise.errors import AgentFailed, AlreadyAnswered, AskNotFound, AskWithdrawn, Withdrawn
from handraise.text.inert import inert

__all__ = ["Folder", "OpenCodeSession", "session_rules"]

log = logging.getLogger(__name__)

CONNECT = 180.0  # seconds; a folder with plugins loads for 71 s where their packages cannot be reached
UNSTARTED = 3.0  # seconds after an error in which a turn that does begin has begun
LOOKS = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0)  # seconds before each, until a prompt that left no trace is given up
PLANS = "opencode/plans/*.md"
ASKS_AGAIN = f"{ENDED}; it will ask again"

Rule = dict[str, str]


class Folder:
    """A server and what it asks, in one project folder."""

    def __init__(self, server: Server, *, cwd: str) -> None:
        self.cwd = cwd
        self.server = server
        self.relay = Relay(server, directory=cwd)
        self.users = 0
        self._following = asyncio.create_task(self._follow())

    @property
    def is_over(self) -> bool:
        return self.relay.is_over or self._following.done() or self.server.is_gone()

    async def until_connected(self) -> None:
        """Raises ServerGone, or AgentFailed where it takes too long."""
        try:
            async with asyncio.timeout(CONNECT):
                await self.relay.until_connected()
        except TimeoutError:
            raise AgentFailed(f"OpenCode's server tells nothing after {CONNECT:.0f} seconds; try again") from None

    async def _follow(self) -> None:
        try:
            await self.relay.follow()
        except Exception:
            log.exception("opencode: the events of %s cannot be followed", self.cwd)
            self.relay.give_up()

    async def close(self) -> None:
        """Let go of the server, which runs on."""
        self._following.cancel()
        await asyncio.wait([self._following])
        await self.relay.close()
        await self.server.close()


@dataclass(eq=False, slots=True)
class _Turn:
    over: asyncio.Future[Reply] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    before: str | None = None  # the last message of the conversation when the turn was asked for
    has_begun: bool = False
    is_adopted: bool = False  # it was asked for by a worker before us
    is_ending: bool = False
    error: str | None = None

    def fail(self, error: Exception) -> None:
        if not self.over.done():
            self.over.set_exception(error)


class OpenCodeSession:
    """Its asks are called `opencode:{OpenCode's session}:{OpenCode's request}`."""

    def __init__(
        self,
        asker: Asker,
        start: Start,
        *,
        id: str,
        folder: Folder,
        join: Callable[[], Awaitable[Folder]],
        release: Callable[[Folder, bool], Awaitable[None]],
    ) -> None:
        """`join` gives the folder once more when its server ended; `release` gives it back, and may end the server."""
        self._asker = asker
        self._start = start
        self._id = id
        self._folder = folder
        self._join = join
        self._release = release
        self._turn: _Turn | None = None
        self._is_working = False  # OpenCode is, whether or not somebody waits for the end of the turn
        self._telling: asyncio.Task[Reply] | None = None  # a turn that waits for answers without OpenCode
        self._told: tuple[Ask, ...] = ()  # what it waits for
        self._answering: set[str] = set()  # messages of the model
        self._said: set[str] = set()
        self._asks: dict[str, str] = {}  # by OpenCode's request
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        folder.relay.own(id, self)

    @property
    def handle(self) -> Mapping[str, Any]:
        return {"session": self._id, "directory": self._folder.cwd}

    # A turn -------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> Reply:
        """Run one turn. If the server ended since the last one, a new one goes on with the same conversation."""
        return await self._run(text)

    async def _run(self, text: str, *, on_sent: Callable[[], None] = lambda: None) -> Reply:
        await self._ready()
        turn = self._turn = _Turn(before=_id_of(await self._messages(limit=1)))
        body: dict[str, Any] = {"parts": [{"type": "text", "text": text}]}
        if agent := _rules_of(self._start).agent:
            body["agent"] = agent
        try:
            self._is_working = True
            path = f"/session/{self._id}/prompt_async"
            await self._folder.server.post(path, body, directory=self._folder.cwd, seen=self.seen)
            on_sent()
            return await self._end_of(turn)
        finally:
            self._turn = None

    async def _end_of(self, turn: _Turn) -> Reply:
        """Its reply. A turn that is let go of without an end was cut off: it goes on at the server."""
        try:
            return await turn.over
        finally:
            turn.over.cancel()

    async def _ready(self) -> None:
        if self._is_closed:
            raise AgentFailed("this session was closed; start a new one")
        if self._folder.is_over:
            over = self._folder
            over.relay.disown(self._id)
            self._folder = await self._join()
            self._folder.relay.own(self._id, self)
            await self._release(over, False)
        await self._folder.until_connected()

    async def go_on(self) -> Reply | None:
        """Where the server waits, its asks are joined by the lists. Where it is another one, it is told the answers."""
        cut = self._start.cut
        if cut is None or cut.prompt is None:
            return None
        await self._ready()
        turn = self._turn = _Turn(is_adopted=True)
        try:
            statuses = await self._folder.relay.relist(self._folder.cwd)
            is_busy = self._id in statuses
            lost = [ask for ask in cut.asks if not await self._is_accounted_for(ask, is_busy=is_busy)]
            if is_busy:
                turn.has_begun = self._is_working = True
                return await self._end_of(turn)
            if not lost:
                return await self._last_of(turn, cut.prompt)
        finally:
            self._turn = None
        self._told = tuple(ask for ask in lost if ask.permission is None)
        self._telling = asyncio.create_task(self._tell(lost))
        try:
            return await self._telling
        finally:
            self._telling.cancel()
            self._telling, self._told = None, ()

    async def _is_accounted_for(self, ask: Ask, *, is_busy: bool) -> bool:
        """Whether OpenCode waits for it, or went on with it while we were away. False: its server lost it."""
        if self._folder.relay.is_known(ask):
            return True
        state = await tool_state(self._folder.server, ask, directory=self._folder.cwd)
        status = state.get("status")
        if not is_busy and status not in ("completed", "error"):
            return False
        answers = answers_of(state)
        local = None if answers is None else local_answer(ask, {"properties": {"answers": answers}})
        if ask.state == "asked":
            await self._withdraw(ask, reason="OpenCode no longer waits for it", answer=local)
        elif ask.answer is not None:
            sent = (from_answer(ask, ask.answer).body or {}).get("answers")
            is_taken = status != "error" and (answers is None or answers == sent)
            self._asker.delivered(ask.id, error=None if is_taken else "it was settled in OpenCode first")
        return True

    async def _last_of(self, turn: _Turn, prompt: str) -> Reply:
        """The turn has ended while nobody listened, or never began."""
        messages = await self._messages(limit=100)
        asked = [message for message in messages if _info(message).get("role") == "user"]
        if not asked or _text(asked[-1]) != prompt:
            return await self._run(prompt)
        if _info(messages[-1]).get("role") != "assistant" or not _is_complete(messages[-1]):
            raise AgentFailed("OpenCode's server ended in the middle of the turn; send the prompt again")
        await self._finish(turn)
        return await self._end_of(turn)

    async def _tell(self, lost: Sequence[Ask]) -> Reply:
        """A new server knows the conversation, but not that it had asked: wait for the answers, and say them."""
        questions = [ask for ask in lost if ask.permission is None]
        for ask in lost:
            if ask.permission is not None:
                await self._withdraw(ask, reason=ASKS_AGAIN)
        answers = await asyncio.gather(*map(self._answer_to, questions))
        given = [(ask, answer) for ask, answer in zip(questions, answers, strict=True) if answer is not None]

        def delivered() -> None:
            for ask, _ in given:
                self._asker.delivered(ask.id)

        return await self._run(_retold(given), on_sent=delivered)

    async def _answer_to(self, ask: Ask) -> Answer | None:
        asked = Ask(id=ask.id, questions=ask.questions, origin=ask.origin, extra=ask.extra)
        try:
            return await self._asker.ask(asked)
        except Withdrawn:
            return None

    # The end of it ------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """End the running turn, whose `prompt` is cancelled, and withdraw what it waits for."""
        turn, telling, told = self._turn, self._telling, self._told
        if turn is not None:
            turn.over.cancel()
        if telling is not None:
            telling.cancel()
            await asyncio.wait([telling])
            for ask in told:
                await self._withdraw(ask, reason=STOPPED)
        folder, asks = self._folder, self._folder.relay.open_asks(self)
        if not self._is_working and not asks:
            return
        await self._abort_there()
        await folder.relay.end_all(self, reason=STOPPED)
        if not folder.is_over:
            await folder.relay.clear(asks, directory=folder.cwd)

    async def _abort_there(self) -> None:
        folder = self._folder
        if not folder.is_over:
            try:
                await folder.server.post(f"/session/{self._id}/abort", directory=folder.cwd, seen=self.seen)
            except AgentFailed as trouble:
                log.warning("opencode: session %s could not be aborted: %s", self._id, trouble)
        self._is_working = False

    async def close(self) -> None:
        """The conversation stays in OpenCode's history. The server ends with its last session."""
        if self._is_closed:
            return
        await self.abort()
        await self._let_go(may_end=True)

    async def leave(self) -> None:
        """Stop listening. The server goes on with a turn that runs, and its questions wait there."""
        await self._leave(is_over=False)

    async def halt(self) -> None:
        await self._leave(is_over=True)

    async def _leave(self, *, is_over: bool) -> None:
        if self._is_closed:
            return
        if self._turn is not None:
            self._turn.over.cancel()
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait([self._telling])
        if not is_over:
            await self._let_go(may_end=not self._is_working)
            return
        self._folder.relay.disown(self._id)  # first, so that nothing at the desk ends with it
        await self._abort_there()
        await self._let_go(may_end=True, is_disowned=True)

    async def _let_go(self, *, may_end: bool, is_disowned: bool = False) -> None:
        self._is_closed = True
        if not is_disowned:
            self._folder.relay.disown(self._id)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._release(self._folder, may_end)

    async def _withdraw(self, ask: Ask, *, reason: str, answer: Answer | None = None) -> None:
        try:
            await self._asker.withdraw(ask.id, reason=reason, answer=answer)
        except AlreadyAnswered:
            self._asker.delivered(ask.id, error=reason)
        except (AskNotFound, AskWithdrawn):
            return

    # What the relay tells (`Owner`) -------------------------------------------------------------------------

    @property
    def asker(self) -> Asker:
        return self._asker

    def place(self, session: str, *, root: str, directory: str | None) -> Place:
        start, cwd = self._start, self._start.cwd or self._folder.cwd
        if session == self._id:
            return Place(session=start.session, parent=start.parent, cwd=cwd, run=start.run, step=start.step)
        return Place(session=session, parent=start.session, cwd=cwd, run=start.run, step=start.step)

    def lets(self, permission: Permission, *, session: str) -> bool:
        """The rules of a session are not those of its subagents (OpenCode 1.18.33); the mode is."""
        return session != self._id and _rules_of(self._start).grants(permission.tool)

    def seen(self, wire: Wire) -> None:
        self._start.listener.seen(wire)

    def became(self, ask: str, *, request: str) -> None:
        self._asks[request] = ask

    def connected(self, statuses: Mapping[str, Any]) -> None:
        """The end of the turn may have been told while we did not hear."""
        if self._id in statuses:
            self._on_status(is_idle=False)
        elif self._turn is None or self._turn.has_begun:
            self._on_status(is_idle=True)
        elif not self._turn.is_adopted:
            self._spawn(self._look_for(self._turn))

    def gone(self) -> None:
        self._is_working = False
        if self._turn is not None:
            self._turn.fail(AgentFailed("OpenCode's server ended in the middle of the turn; send the prompt again"))

    def heard(self, type: str, properties: Mapping[str, Any], *, session: str, root: str) -> None:
        self._start.listener.active()
        request = properties.get("id" if type in ASKED else "requestID")
        ask = self._asks.get(request) if isinstance(request, str) else None
        event = {"type": type, "properties": properties}
        self.seen(Wire(way="in", body=event, name=type, ask=ask, is_piece=_is_piece(type, properties)))
        if session != self._id:
            return
        turn, info, part = self._turn, properties.get("info"), properties.get("part")
        if type == "message.updated" and isinstance(info, dict):
            self._on_message(info)
        elif type == "message.part.updated" and isinstance(part, dict):
            self._on_part(part)
        elif type == "session.status":
            status = properties.get("status")
            self._on_status(is_idle=isinstance(status, dict) and status.get("type") == "idle")
        elif type == "session.idle":
            self._on_status(is_idle=True)
        elif type == "session.error" and turn is not None:
            turn.error = _words(properties.get("error"))
            if not turn.has_begun:  # such as an agent that does not exist: no status and no idle follows
                asyncio.get_running_loop().call_later(UNSTARTED, _fail_unstarted, turn)

    def _on_status(self, *, is_idle: bool) -> None:
        turn = self._turn
        if not is_idle:
            self._is_working = True
            if turn is not None:
                turn.has_begun = True
        elif turn is None:
            self._is_working = False
        elif turn.has_begun:  # otherwise it is an echo of the turn before: an abort is told twice
            self._is_working = False
            self._end_turn(turn)

    def _on_message(self, info: Mapping[str, Any]) -> None:
        id = info.get("id")
        if info.get("role") != "assistant" or not isinstance(id, str):
            return
        if id not in self._answering and self._turn is not None:
            self._turn.has_begun = True
            self._turn.error = None  # it went on after all
        self._answering.add(id)

    def _on_part(self, part: Mapping[str, Any]) -> None:
        """What is said is told once, when it is whole."""
        id, state, time = part.get("id"), part.get("state"), part.get("time")
        if not isinstance(id, str) or id in self._said or part.get("messageID") not in self._answering:
            return
        said: Message | None = None
        if part.get("type") == "text" and isinstance(time, dict) and "end" in time and part.get("text"):
            said = Message(role="agent", text=str(part["text"]))
        elif part.get("type") == "tool" and isinstance(state, dict) and state.get("status") not in (None, "pending"):
            name, given = str(part.get("tool")), state.get("input")
            arguments = given if isinstance(given, dict) else {}
            said = Message(role="tool", text=_line(name, arguments), extra={"name": name, "input": arguments})
        if said is not None:
            self._said.add(id)
            self._start.listener.said(said)

    def _end_turn(self, turn: _Turn) -> None:
        if not turn.is_ending:
            turn.is_ending = True
            self._spawn(self._finish(turn))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_for(self, turn: _Turn) -> None:
        """The stream was broken when the turn was asked for: see what became of it."""
        for pause in LOOKS:
            await asyncio.sleep(pause)
            if turn.has_begun or turn.over.done():
                return
            try:
                messages = await self._messages(limit=1)
                is_busy = await self._is_busy()
            except AgentFailed as trouble:
                log.info("opencode: %s", trouble)
                continue
            if is_busy:
                turn.has_begun = True  # and the stream tells its end
                return
            if _id_of(messages) != turn.before and _info(messages[-1]).get("role") == "assistant":
                self._is_working = False
                self._end_turn(turn)
                return
        turn.fail(AgentFailed("OpenCode did not take the prompt; send it again"))

    async def _finish(self, turn: _Turn) -> None:
        """The turn with what was said last, or with what went wrong."""
        try:
            messages = await self._messages(limit=1)
            is_under_way = bool(messages) and not _has_ended(messages[-1]) and await self._is_busy()
        except AgentFailed as trouble:
            turn.fail(trouble)
            return
        if is_under_way:  # what was told was the end of the turn before
            turn.is_ending, turn.error, self._is_working = False, None, True
            return
        if not messages or _info(messages[-1]).get("role") != "assistant":
            turn.fail(AgentFailed(f"OpenCode: {turn.error or 'the turn ended without a reply; send the prompt again'}"))
            return
        error = _info(messages[-1]).get("error")
        if error is not None or turn.error is not None:
            turn.fail(AgentFailed(f"OpenCode: {turn.error or _words(error)}"))
        elif not turn.over.done():
            turn.over.set_result(Reply(text=_text(messages[-1])))

    async def _is_busy(self) -> bool:
        statuses = await self._folder.server.get("/session/status", directory=self._folder.cwd)
        return isinstance(statuses, dict) and self._id in statuses

    async def _messages(self, *, limit: int) -> list[Any]:
        path = f"/session/{self._id}/message"
        messages = await self._folder.server.get(path, directory=self._folder.cwd, seen=self.seen, limit=limit)
        return messages if isinstance(messages, list) else []


def _is_piece(type: str, properties: Mapping[str, Any]) -> bool:
    """Whether it is a few more words of what is still being said."""
    part = properties.get("part")
    if type != "message.part.updated" or not isinstance(part, dict):
        return type.endswith(".delta")
    time = part.get("time")
    return part.get("type") in ("text", "reasoning") and not (isinstance(time, dict) and "end" in time)


def _id_of(messages: Sequence[Any]) -> str | None:
    return str(_info(messages[-1]).get("id")) if messages else None


def _fail_unstarted(turn: _Turn) -> None:
    if not turn.has_begun and turn.error is not None:
        turn.fail(AgentFailed(f"OpenCode: {turn.error}"))


def _info(message: Any) -> Mapping[str, Any]:
    info = message.get("info") if isinstance(message, dict) else None
    return info if isinstance(info, dict) else {}


def _has_ended(message: Any) -> bool:
    time = _info(message).get("time")
    return isinstance(time, dict) and "completed" in time


def _is_complete(message: Any) -> bool:
    return _has_ended(message) and _info(message).get("finish") != "tool-calls"


def _text(message: Any) -> str:
    parts = message.get("parts") if isinstance(message, dict) else None
    texts = [part for part in parts or () if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(str(part.get("text", "")) for part in texts if not part.get("synthetic"))


def _words(error: Any) -> str:
    """OpenCode's own words for what went wrong."""
    if not isinstance(error, dict):
        return "something went wrong"
    data = error.get("data")
    message = data.get("message") if isinstance(data, dict) else None
    words = message if isinstance(message, str) and message.strip() else error.get("name")
    return inert(str(words).strip().split("\n")[0])[:1000]


def _line(tool: str, given: Mapping[str, Any]) -> str:
    """A tool call in one line."""
    keys = ("command", "filePath", "path", "url", "pattern", "query", "description")
    what = next((given[key] for key in keys if isinstance(given.get(key), str)), "")
    return f"{tool} {' '.join(what.split())}".strip()


def _retold(given: Sequence[tuple[Ask, Answer]]) -> str:
    """What a new server has to say to the model."""
    if not given:
        return "You were interrupted while you waited for a permission. Go on; you will be asked for it again."
    lines = ["You were interrupted while you waited for an answer."]
    for ask, answer in given:
        replies = (from_answer(ask, answer).body or {})["answers"]
        for question, labels in zip(ask.questions, replies, strict=False):
            lines.append(f"You asked: {question.question} The answer is: {', '.join(labels) or 'left unanswered'}")
    return "\n".join([*lines, "Go on with that in mind."])


# What a session may do --------------------------------------------------------------------------------------


async def session_rules(start: Start, server: Server, *, cwd: str) -> list[Rule]:
    """The rules of a session. OpenCode puts them behind those of its agent, and the last one that matches decides.

    They are made from the agent's own, so that what a person's configuration forbids stays forbidden.
    """
    mode = _rules_of(start)
    rules = [_rule(permission, action) for permission, action in mode.first]
    if mode.own or mode.asked:
        own = await _rules_of_agent(server, cwd=cwd, name=mode.agent)
        again = own if "*" in mode.own else _own(own, *mode.own)
        rules += map(_granted, again) if mode.granted else again
        rules += [_asked(rule) for rule in own if rule["permission"] in mode.asked]
    if start.handling.question_policy == "reject":
        rules.append(_rule("question", "deny"))
    return rules


def _rules_of(start: Start) -> Rules:
    return MODES.of(start.mode) or Rules()


def _own(rules: Sequence[Rule], *permissions: str) -> list[Rule]:
    """The rules as they are for these permissions, and for no other."""
    return [
        {**rule, "permission": permission}
        for permission in permissions
        for rule in rules
        if rule["permission"] in (permission, "*")
    ]


async def _rules_of_agent(server: Server, *, cwd: str, name: str | None = None) -> list[Rule]:
    try:
        config = await server.get("/config", directory=cwd)
        agents = await server.get("/agent", directory=cwd)
    except CallRefused as refused:
        raise AgentFailed(f"OpenCode does not tell its rules, so no mode can be set: {refused}") from refused
    name = name or (config.get("default_agent") if isinstance(config, dict) else None) or "build"
    for agent in agents if isinstance(agents, list) else ():
        if isinstance(agent, dict) and agent.get("name") == name and isinstance(agent.get("permission"), list):
            return [
                {key: str(rule[key]) for key in ("permission", "pattern", "action")} for rule in agent["permission"]
            ]
    raise AgentFailed(f"OpenCode does not tell the rules of its agent {name!r}, so no mode can be set")


def _granted(rule: Rule) -> Rule:
    return {**rule, "action": "allow"} if rule["action"] == "ask" else rule


def _asked(rule: Rule) -> Rule:
    """The files in which it writes its plans are its own."""
    is_own = rule["pattern"].endswith(PLANS)
    return {**rule, "action": "ask"} if rule["action"] == "allow" and not is_own else rule


def _rule(permission: str, action: str) -> Rule:
    return {"permission": permission, "pattern": "*", "action": action}
