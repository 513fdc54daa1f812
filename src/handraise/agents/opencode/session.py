"""One conversation with OpenCode: its turns, and how it goes on after a worker has died.

A folder is a server and the stream of its events, which all our sessions of that project share.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from handraise.agents import Asker, Message, Reply, Start
from handraise.agents._turns import Prompt, Turn, Turns
from handraise.agents.opencode.events import Event, Failed, News, Part, Said, Status
from handraise.agents.opencode.modes import MODES, Rules
from handraise.agents.opencode.relay import Gone, Relay, Statuses
from handraise.agents.opencode.requests import (
    ELSEWHERE,
    ENDED,
    MOOT,
    STOPPED,
    Owner,
    answer_in,
    answers_of,
    tool_state,
)
from handraise.agents.opencode.server import CallRefused, Server
from handraise.agents.opencode.translate import from_answer
from handraise.asks import Answer, Ask
from handraise.errors import AgentFailed, AskNotFound
from handraise.tasks import Tasks
from handraise.text.inert import inert

__all__ = ["Folder", "OpenCodeSession", "session_rules"]

log = logging.getLogger(__name__)

NAME = "OpenCode"
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
        self._tasks = Tasks()
        self._following = self._tasks.start(self._follow())

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
        await self._tasks.close()
        await self.relay.close()
        await self.server.close()


@dataclass(eq=False, slots=True)
class _Current:
    """A turn of ours, as far as OpenCode told of it."""

    turn: Turn
    before: str | None = None  # the last message of the conversation when the turn was asked for
    has_begun: bool = False
    is_adopted: bool = False  # it was asked for by a worker before us
    is_ending: bool = False
    error: str | None = None


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
        self._turns = Turns(name=NAME, asker=asker, start=start)
        self._rules = MODES.of(start.mode) or Rules()
        self._owner = Owner(asker=asker, start=start, cwd=folder.cwd, rules=self._rules)
        self._asker = asker
        self._start = start
        self._id = id
        self._folder = folder
        self._join = join
        self._release = release
        self._current: _Current | None = None
        self._answering: set[str] = set()  # messages of the model
        self._said: set[str] = set()
        self._tasks = Tasks(complaint="opencode: the end of a turn was not found out")
        self._is_closed = False
        folder.relay.own(id, self._owner, self._hear)

    @property
    def handle(self) -> Mapping[str, Any]:
        return {"session": self._id, "directory": self._folder.cwd}

    # A turn -------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> Reply:
        """Run one turn. If the server ended since the last one, a new one goes on with the same conversation."""
        return await self._prompt(Prompt(text))

    async def _prompt(self, prompt: Prompt) -> Reply:
        await self._ready()
        before = _id_of(await self._messages(limit=1))
        current = self._current = _Current(self._turns.new_turn(prompt), before=before)
        body: dict[str, Any] = {"parts": [{"type": "text", "text": prompt.text}]}
        if self._rules.agent:
            body["agent"] = self._rules.agent
        try:
            path = f"/session/{self._id}/prompt_async"
            await self._folder.server.post(path, body, directory=self._folder.cwd, seen=self._start.listener.seen)
            self._turns.read_prompt()
            return await current.turn.reply
        finally:
            self._let_go_of(current)

    def _let_go_of(self, current: _Current) -> None:
        """Nobody waits for the turn here any more. One that has no end was cut off: it goes on at the server."""
        current.turn.reply.cancel()
        if self._current is current:
            self._current = None

    async def _ready(self) -> None:
        if self._is_closed:
            raise AgentFailed("this session was closed; start a new one")
        if self._folder.is_over:
            over = self._folder
            over.relay.disown(self._id)
            self._folder = await self._join()
            self._folder.relay.own(self._id, self._owner, self._hear)
            await self._release(over, False)
        await self._folder.until_connected()

    async def go_on(self) -> Reply | None:
        """Where the server waits, its asks are joined by the lists. Where it is another one, it is told the answers."""
        cut = self._start.cut
        if cut is None or cut.prompt is None:
            return None
        await self._ready()
        current = self._current = _Current(self._turns.new_turn(), is_adopted=True)
        self._turns.idle.set()  # as far as we know yet
        try:
            statuses = await self._folder.relay.relist(self._folder.cwd)
            is_busy = self._id in statuses
            lost = [ask for ask in cut.asks if not await self._is_accounted_for(ask, is_busy=is_busy)]
            if is_busy:
                current.has_begun = True
                self._turns.idle.clear()
                return await current.turn.reply
            if not lost:
                return await self._last_of(current, cut.prompt)
        finally:
            self._let_go_of(current)
        return await self._tell(lost)

    async def _is_accounted_for(self, ask: Ask, *, is_busy: bool) -> bool:
        """Whether OpenCode waits for it, or went on with it while we were away. False: its server lost it."""
        if self._folder.relay.is_open(ask):
            return True
        state = await tool_state(self._folder.server, ask, directory=self._folder.cwd)
        status = state.get("status")
        if not is_busy and status not in ("completed", "error"):
            return False
        if ask.state == "asked":
            await self._withdraw(ask, reason=MOOT, answer=answer_in(state, ask))
        elif ask.answer is not None:
            answers, sent = answers_of(state), (from_answer(ask, ask.answer).body or {}).get("answers")
            is_taken = status != "error" and (answers is None or answers == sent)
            self._asker.delivered(ask.id, error=None if is_taken else ELSEWHERE)
        return True

    async def _last_of(self, current: _Current, prompt: str) -> Reply:
        """The turn has ended while nobody listened, or never began."""
        messages = await self._messages(limit=100)
        asked = [message for message in messages if _info(message).get("role") == "user"]
        if not asked or _text(asked[-1]) != prompt:
            self._let_go_of(current)
            return await self._prompt(Prompt(prompt))
        if _info(messages[-1]).get("role") != "assistant" or not _is_complete(messages[-1]):
            raise AgentFailed("OpenCode's server ended in the middle of the turn; send the prompt again")
        await self._finish(current)
        return await current.turn.reply

    async def _tell(self, lost: Sequence[Ask]) -> Reply:
        """A new server knows the conversation, but not that it had asked: wait for the answers, and say them."""
        for ask in lost:
            if ask.permission is not None:
                await self._withdraw(ask, reason=ASKS_AGAIN)
        given = await self._turns.recall([ask for ask in lost if ask.permission is None])
        return await self._prompt(Prompt(_retell(given), told=[ask.id for ask, _ in given]))

    # The end of it ------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """End the running turn, whose `prompt` is cancelled, and withdraw what it waits for."""
        if self._current is not None:
            self._current.turn.reply.cancel()
        await self._turns.stop_recalling(reason=STOPPED)
        folder, asks = self._folder, self._folder.relay.open_asks(self._owner)
        if self._turns.idle.is_set() and not asks:
            return
        await self._abort_there()
        await folder.relay.end_all(self._owner, reason=STOPPED)
        if not folder.is_over:
            await folder.relay.clear(asks, directory=folder.cwd)

    async def _abort_there(self) -> None:
        folder = self._folder
        if not folder.is_over:
            try:
                await folder.server.post(
                    f"/session/{self._id}/abort", directory=folder.cwd, seen=self._start.listener.seen
                )
            except AgentFailed as trouble:
                log.warning("opencode: session %s could not be aborted: %s", self._id, trouble)
        self._turns.idle.set()

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
        if self._current is not None:
            self._current.turn.reply.cancel()
        await self._turns.cancel_recalling()
        if not is_over:
            await self._let_go(may_end=self._turns.idle.is_set())
            return
        self._folder.relay.disown(self._id)  # first, so that nothing at the desk ends with it
        await self._abort_there()
        await self._let_go(may_end=True, is_disowned=True)

    async def _let_go(self, *, may_end: bool, is_disowned: bool = False) -> None:
        self._is_closed = True
        if not is_disowned:
            self._folder.relay.disown(self._id)
        await self._tasks.close()
        await self._release(self._folder, may_end)

    async def _withdraw(self, ask: Ask, *, reason: str, answer: Answer | None = None) -> None:
        with suppress(AskNotFound):
            await self._turns.withdraw_ask(ask, reason=reason, too_late=reason, answer=answer)

    # What happens there -------------------------------------------------------------------------------------

    def _hear(self, happened: Event | Statuses | Gone) -> None:
        match happened:
            case Gone():
                self._turns.idle.set()
                self._fail(AgentFailed("OpenCode's server ended in the middle of the turn; send the prompt again"))
            case Statuses(statuses):
                self._on_connected(is_busy=self._id in statuses)
            case Event() if happened.session == self._id:
                self._on_news(happened.news)

    def _on_connected(self, *, is_busy: bool) -> None:
        """The end of the turn may have been told while we did not hear."""
        current = self._current
        if is_busy:
            self._on_status(is_idle=False)
        elif current is None or current.has_begun:
            self._on_status(is_idle=True)
        elif not current.is_adopted:
            self._tasks.start(self._look_for(current))

    def _on_news(self, news: News | None) -> None:
        match news:
            case Said(info):
                self._on_message(info)
            case Part(part):
                self._on_part(part)
            case Status(is_idle):
                self._on_status(is_idle=is_idle)
            case Failed(error) if (current := self._current) is not None:
                current.error = _words(error)
                if not current.has_begun:  # such as an agent that does not exist: no status and no idle follows
                    asyncio.get_running_loop().call_later(UNSTARTED, self._fail_unstarted, current)

    def _on_status(self, *, is_idle: bool) -> None:
        current = self._current
        if not is_idle:
            self._turns.idle.clear()
            if current is not None:
                current.has_begun = True
        elif current is None:
            self._turns.idle.set()
        elif current.has_begun:  # otherwise it is an echo of the turn before: an abort is told twice
            self._turns.idle.set()
            self._end_turn(current)

    def _fail(self, problem: AgentFailed, *, of: _Current | None = None) -> None:
        """`of` is the turn that failed, if it is still the one that runs."""
        if self._current is not None and of in (None, self._current):
            self._turns.conclude(problem)

    def _fail_unstarted(self, current: _Current) -> None:
        if not current.has_begun and current.error is not None:
            self._fail(AgentFailed(f"OpenCode: {current.error}"), of=current)

    def _on_message(self, info: Mapping[str, Any]) -> None:
        id = info.get("id")
        if info.get("role") != "assistant" or not isinstance(id, str):
            return
        if id not in self._answering and self._current is not None:
            self._current.has_begun = True
            self._current.error = None  # it went on after all
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

    def _end_turn(self, current: _Current) -> None:
        if not current.is_ending:
            current.is_ending = True
            self._tasks.start(self._finish(current))

    async def _look_for(self, current: _Current) -> None:
        """The stream was broken when the turn was asked for: see what became of it."""
        for pause in LOOKS:
            await asyncio.sleep(pause)
            if current.has_begun or current.turn.reply.done():
                return
            try:
                messages = await self._messages(limit=1)
                is_busy = await self._is_busy()
            except AgentFailed as trouble:
                log.info("opencode: %s", trouble)
                continue
            if is_busy:
                current.has_begun = True  # and the stream tells its end
                return
            if _id_of(messages) != current.before and _info(messages[-1]).get("role") == "assistant":
                self._turns.idle.set()
                self._end_turn(current)
                return
        self._fail(AgentFailed("OpenCode did not take the prompt; send it again"), of=current)

    async def _finish(self, current: _Current) -> None:
        """The turn with what was said last, or with what went wrong."""
        try:
            messages = await self._messages(limit=1)
            is_under_way = bool(messages) and not _has_ended(messages[-1]) and await self._is_busy()
        except AgentFailed as trouble:
            self._fail(trouble, of=current)
            return
        if is_under_way:  # what was told was the end of the turn before
            current.is_ending, current.error = False, None
            self._turns.idle.clear()
            return
        problem = current.error
        if not messages or _info(messages[-1]).get("role") != "assistant":
            problem = problem or "the turn ended without a reply; send the prompt again"
        elif (error := _info(messages[-1]).get("error")) is not None:
            problem = problem or _words(error)
        if problem is not None:
            self._fail(AgentFailed(f"OpenCode: {problem}"), of=current)
        elif self._current is current:
            self._turns.finish(text=_text(messages[-1]))

    async def _is_busy(self) -> bool:
        statuses = await self._folder.server.get("/session/status", directory=self._folder.cwd)
        return isinstance(statuses, dict) and self._id in statuses

    async def _messages(self, *, limit: int) -> list[Any]:
        path = f"/session/{self._id}/message"
        messages = await self._folder.server.get(
            path, directory=self._folder.cwd, seen=self._start.listener.seen, limit=limit
        )
        return messages if isinstance(messages, list) else []


def _id_of(messages: Sequence[Any]) -> str | None:
    return str(_info(messages[-1]).get("id")) if messages else None


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


def _retell(given: Sequence[tuple[Ask, Answer]]) -> str:
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
    mode = MODES.of(start.mode) or Rules()
    rules = [_rule(permission, action) for permission, action in mode.first]
    if mode.own or mode.asked:
        own = await _rules_of_agent(server, cwd=cwd, name=mode.agent)
        again = own if "*" in mode.own else _own(own, *mode.own)
        rules += map(_granted, again) if mode.granted else again
        rules += [_asked(rule) for rule in own if rule["permission"] in mode.asked]
    if start.handling.question_policy == "reject":
        rules.append(_rule("question", "deny"))
    return rules


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
