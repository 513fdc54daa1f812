"""A person's own Codex: what its daemon asks, brought to the desk, and the answers brought back.

Every `codex` in a terminal is a client of one daemon, and so are we: the first of us to answer counts. What the desk
has no answer for stays unanswered, so that the terminal goes on as if nobody listened.

    asked ── desk answers ── sent ── resolved                                  (delivered)
      │                       └───── resolved before that, or the turn ended   (delivered, with an error)
      └── resolved, the turn ended, the daemon is gone   (withdrawn, with the answer where it is known)
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from handraise.agents import Asker, HandlingAsker, Left
from handraise.agents._attached import PASSING, withdraw
from handraise.agents._handled import Handled
from handraise.agents.codex.translate import (
    COMMAND,
    ELICITATION,
    FILES,
    INPUT,
    METHODS,
    TOOL,
    ask_id,
    content_id,
    from_answer,
    is_tool_approval,
    to_ask,
    to_steer,
)
from handraise.asks import Answer, Ask, Handling, Origin
from handraise.errors import (
    AnswerDoesNotFit,
    AskDiffers,
    HandraiseError,
    SettingsError,
    Withdrawn,
)
from handraise.tasks import Tasks
from handraise.text.inert import inert
from handraise.transports.jsonrpc import Id, JsonRpc, PeerGone, RpcError
from handraise.transports.websocket import SocketGone, WebSocket

__all__ = ["DAEMON", "ENDED", "FIRST", "IN_THE_TERMINAL", "MEANWHILE", "STOPPED", "Relay", "check_owner", "socket_of"]

log = logging.getLogger(__name__)

NAME = "codex"
DAEMON = "daemon"  # the address of the one that a plain `codex` starts
SOCKET = Path("app-server-control") / "app-server-control.sock"  # in CODEX_HOME; a link (0.166.0)

IN_THE_TERMINAL = "answered in the terminal"
FIRST = "it was answered in the terminal first"
STOPPED = "the turn was stopped in the terminal"
MOOT = "Codex no longer waits for it"
MEANWHILE = "Codex stopped waiting for it while nobody listened"
ENDED = "Codex's daemon ended"
OVER = "the turn ended before Codex took it"
UNSEEN = "the connection broke before Codex showed that it took it"

START = 30.0  # seconds for the first answers; it takes milliseconds on a quiet machine
JOIN = 10.0  # seconds to join those that wait already; whoever takes longer comes later
UNASKED = 0.5  # seconds for a request of a thread that we hear already; joining it would bring it twice
STEER = 15.0  # seconds to take a reason
GRACE = 2.0  # seconds to learn how a request was answered in the terminal; a command may run on for hours
CHORES = 10.0  # seconds to tell the desk what is over, when nobody listens any more
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between two tries
JOINS = 20  # tries to join a thread: one that has just begun is not written down yet
REMEMBERED = 1000  # requests and turns that are over; one may come up behind its own end
PAGES = 100  # of the list of threads

# The terminal answers a question that does not block by itself after 120 seconds, with nothing (0.166.0). The fallback
# of the desk is better than that, so it comes before.
COUNTDOWN = 100.0
CLOSES = "the terminal closes this question by itself after two minutes"

# `item/tool/call` is a tool that some other client declared and answers.
MIRRORED = METHODS - {TOOL}
# What there is much of and nobody here needs.
UNHEARD = (
    "item/agentMessage/delta",
    "item/commandExecution/outputDelta",
    "item/commandExecution/terminalInteraction",
    "item/fileChange/outputDelta",
    "item/fileChange/patchUpdated",
    "item/mcpToolCall/progress",
    "item/plan/delta",
    "item/reasoning/summaryPartAdded",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta",
    "account/rateLimits/updated",
    "thread/tokenUsage/updated",
    "turn/diff/updated",
    "turn/plan/updated",
)
YES = Answer(reply="once", by="agent", via=NAME)  # in the terminal
NO = Answer(reply="reject", rejected=True, by="agent", via=NAME)


def socket_of(address: str, *, environ: Mapping[str, str]) -> Path:
    """Where to connect. Raises SettingsError."""
    if address == DAEMON:
        home = environ.get("CODEX_HOME") or Path(environ.get("HOME") or Path.home()) / ".codex"
        return Path(home) / SOCKET
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    path = Path(unquote(parts.path))
    if parts.scheme != "unix" or parts.netloc or not path.is_absolute():
        raise SettingsError(
            f"codex is listened to at `{DAEMON}`, which your own `codex` starts, or at a socket, as in "
            "unix:///home/you/codex.sock"
        )
    return path


def check_owner(path: Path) -> Path:
    """The socket itself, behind links: those may have longer names than a socket can have.

    Raises SettingsError where somebody else could have put it there, since whoever listens is told what you allow and
    decides what you are asked; FileNotFoundError.
    """
    target = path.resolve(strict=True)
    for place in dict.fromkeys((path.parent, path, target.parent, target)):
        found = place.lstat() if place == path else place.stat()
        is_open = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
        if found.st_uid != os.getuid() or is_open:
            raise SettingsError(
                f"{place} is not yours alone, so somebody else may listen at {path}; use a socket in a folder that "
                "only you can write to"
            )
    return target


@dataclass(eq=False, slots=True, kw_only=True)
class _Request:
    """A request of Codex that is at the desk."""

    ask: Ask
    method: str
    thread: str
    turn: str
    item: str  # whose end tells how it was answered; empty where nothing does
    is_numbered: bool  # its id may repeat, so that the desk numbers it
    asker: Asker
    wire: Id | None  # its id on the connection there is; None: it has not come up there
    answer: Answer | None = None  # the desk's
    is_sent: bool = False
    is_resolved: bool = False
    outcome: asyncio.Future[Answer | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def learn(self, outcome: Answer | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


@dataclass(frozen=True, slots=True)
class _Thread:
    cwd: str | None
    parent: str | None


class Relay:
    """`follow` it, then `close` it."""

    def __init__(
        self, asker: HandlingAsker, path: Path, *, handling: Handling | None = None, grace: float = GRACE
    ) -> None:
        """`handling` is that of the settings, for questions that cannot wait as long as it says."""
        self._asker = asker
        self._path = path
        self._handling = handling or Handling()
        self._grace = grace
        self._has_complained = False
        self._open: dict[str, _Request] = {}  # by the id of the ask; across connections
        # What is still to be told to the desk.
        self._chores = Tasks(complaint="codex: what became of a request was not told")
        # Of the connection there is.
        self._rpc: JsonRpc
        self._tasks = Tasks()
        self._threads: dict[str, _Thread] = {}
        self._waiting: set[str] = set()  # threads that say so
        self._joined: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._heard: set[str] = set()  # threads that we hear without having joined them, such as those of subagents
        self._items: dict[tuple[str, str], dict[str, Any]] = {}  # by thread and id: what is in progress
        self._over: dict[Id, None] = {}  # requests and turns, some of which we did not look at yet

    async def follow(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Carry what is asked until cancelled, across restarts of the daemon and quietly while there is none.

        Raises SettingsError where the socket is somebody else's, or a package is missing.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                async with await WebSocket.connect(check_owner(self._path), extra=NAME) as socket:
                    if await self._listen(socket, ready=ready):
                        pause = FIRST_PAUSE
            except FileNotFoundError:
                self._end_all()
            except SocketGone as gone:
                if gone.is_absent:
                    self._end_all()
                else:
                    self._complain(gone.message)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def close(self) -> None:
        """Stop carrying. Nothing that is open is withdrawn; what is over already is still told to the desk."""
        self._open.clear()
        await self._chores.close(within=CHORES)

    def _complain(self, words: str) -> None:
        """Once, until it works again."""
        level = logging.DEBUG if self._has_complained else logging.WARNING
        log.log(level, "codex: %s; it is tried again and again", inert(words))
        self._has_complained = True

    def _end_all(self) -> None:
        """There is no daemon, and a request does not outlive the one that made it."""
        for request in list(self._open.values()):
            self._end(request, reason=ENDED, error=f"{ENDED} before it took the answer")

    # The connection -------------------------------------------------------------------------------------------------

    async def _listen(self, socket: WebSocket, *, ready: Callable[[], None]) -> bool:
        """Until the connection ends. Whether it was of any use."""
        self._rpc = JsonRpc(socket, asked=self._on_request, told=self._on_notification, version=None)
        for state in (self._threads, self._waiting, self._joined, self._leaving, self._heard, self._items, self._over):
            state.clear()
        for request in self._open.values():
            if not request.is_resolved:
                request.wire, request.is_sent = None, False
        listening = self._tasks.start(self._rpc.listen())
        try:
            async with asyncio.timeout(START):
                await self._shake_hands()
                await self._look_around()
            self._has_complained = False
            ready()
            await listening
        except (RpcError, PeerGone, SocketGone, TimeoutError) as trouble:
            words = trouble.message if isinstance(trouble, HandraiseError) else "it did not answer in time"
            self._complain(f"its daemon could not be asked what is open: {words}")
            return False
        finally:
            await self._tasks.close()
        return True

    async def _shake_hands(self) -> None:
        client = {"name": "handraise", "title": "handraise", "version": "1"}
        capabilities = {"experimentalApi": True, "optOutNotificationMethods": list(UNHEARD)}
        await self._rpc.request("initialize", {"clientInfo": client, "capabilities": capabilities})
        await self._rpc.notify("initialized")

    async def _look_around(self) -> None:
        """Join every thread that waits. What was open and does not come up again is over."""
        for thread in await self._list_threads():
            if await self._is_known_to_wait(thread):
                self._waiting.add(thread)
                self._join(thread)
        if self._joined:
            await asyncio.wait(self._joined.values(), timeout=JOIN)
        # What a thread has open comes behind the answer to its joining, and ahead of an answer to anything later. If it
        # did not, it would be raised once more under its own id.
        await self._rpc.request("thread/loaded/list", {})
        for request in [each for each in self._open.values() if each.wire is None and not each.is_resolved]:
            self._end(request, reason=MEANWHILE, error=UNSEEN)
        await self._retire()

    async def _list_threads(self) -> list[str]:
        """The threads that the daemon has in memory; no other one can wait."""
        found: dict[str, None] = {}
        cursor: str | None = None
        for _ in range(PAGES):
            told = await self._rpc.request("thread/loaded/list", {} if cursor is None else {"cursor": cursor})
            page = told if isinstance(told, dict) else {}
            listed = page.get("data")
            found |= {id: None for id in listed if isinstance(id, str)} if isinstance(listed, list) else {}
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                break
        return list(found)

    async def _is_known_to_wait(self, thread: str) -> bool | None:
        """What the daemon says of a thread, which is known from then on. None where there is no such thread."""
        try:
            told = await self._rpc.request("thread/read", {"threadId": thread})
        except RpcError:
            return None
        read = told.get("thread") if isinstance(told, dict) else None
        self._know(read)
        return isinstance(read, dict) and _is_waiting(read.get("status"))

    async def _retire(self) -> None:
        """Withdraw what terminals of this daemon had asked before we were started, and no longer wait for."""
        if not isinstance(self._asker, Left):
            return
        try:
            left = [ask async for ask in self._asker.asks(state="asked", agent=NAME)]
        except HandraiseError as trouble:  # a token that may only ask
            log.debug("codex: what was left open could not be read: %s", trouble.code)
            return
        for ask in left:
            thread = ask.origin.session
            is_attached = ask.id.startswith(f"{NAME}:{thread}:")  # the session of one that we started is another id
            is_open = ask.id in self._open or ask.id.rpartition("#")[0] in self._open
            if is_attached and not is_open and await self._is_known_to_wait(thread) is False:
                self._chores.start(self._withdraw(ask, reason=MEANWHILE))

    # Threads --------------------------------------------------------------------------------------------------------

    def _join(self, thread: str) -> None:
        """Hear what a thread asks, beginning with what is open there."""
        if thread not in self._joined:
            self._joined[thread] = self._tasks.start(self._resume(thread))

    async def _resume(self, thread: str) -> None:
        """Nothing is said but which thread, so that its settings stay those of the person."""
        if (leaving := self._leaving.get(thread)) is not None:
            await asyncio.wait([leaving])
        if thread in self._heard:
            await asyncio.sleep(UNASKED)
            if any(request.wire is not None for request in self._of(thread)):
                return
        # Its newest turn is enough: a patch that waits there is announced nowhere else.
        page = {"limit": 1, "itemsView": "full"}
        wanted = {"threadId": thread, "excludeTurns": True, "initialTurnsPage": page}
        pause = FIRST_PAUSE
        for _ in range(JOINS):
            try:
                self._take_thread(thread, await self._rpc.request("thread/resume", wanted))
                return
            except (PeerGone, SocketGone):
                return  # which is noticed where it is listened to
            except RpcError as error:
                if thread not in self._waiting:
                    break
                log.debug("codex: a thread could not be joined, and is tried again: %s", inert(error.message))
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        else:
            log.warning("codex: the thread %s waits and could not be joined; answer it in its terminal", inert(thread))
        self._joined.pop(thread, None)

    def _take_thread(self, thread: str, told: Any) -> None:
        answer = told if isinstance(told, dict) else {}
        info = answer.get("thread")
        self._know(info)
        for turn in [*_entries(answer.get("initialTurnsPage"), "data"), *_entries(info, "turns")]:
            for item in _entries(turn, "items"):
                if item.get("status") == "inProgress":
                    self._items[thread, str(item.get("id"))] = item

    def _know(self, info: Any) -> None:
        if not isinstance(info, dict) or not isinstance(info.get("id"), str):
            return
        cwd, parent = info.get("cwd"), info.get("parentThreadId")
        self._threads[info["id"]] = _Thread(
            cwd=cwd if isinstance(cwd, str) else None, parent=parent if isinstance(parent, str) else None
        )

    def _leave(self, thread: str) -> None:
        """A thread that somebody listens to is kept in memory, also when its terminal is gone."""
        if thread not in self._joined and thread not in self._heard:
            return
        self._heard.discard(thread)
        if (joining := self._joined.pop(thread, None)) is not None:
            joining.cancel()
        leaving = self._leaving[thread] = self._tasks.start(self._unsubscribe(thread))
        leaving.add_done_callback(lambda done: self._has_left(thread, done))

    async def _unsubscribe(self, thread: str) -> None:
        try:
            await self._rpc.request("thread/unsubscribe", {"threadId": thread})
        except HandraiseError as trouble:
            log.debug("codex: a thread could not be left: %s", trouble.code)

    def _has_left(self, thread: str, task: asyncio.Task[None]) -> None:
        if self._leaving.get(thread) is task:
            del self._leaving[thread]

    # Listening ------------------------------------------------------------------------------------------------------

    def _on_notification(self, method: str, params: dict[str, Any]) -> None:
        thread = str(params.get("threadId"))
        match method:
            case "turn/started" if thread not in self._joined and thread not in self._leaving:
                self._heard.add(thread)
            case "thread/started":
                self._know(params.get("thread"))
            case "thread/status/changed":
                self._on_status(thread, params.get("status"))
            case "item/started" if isinstance(item := params.get("item"), dict):
                self._items[thread, str(item.get("id"))] = item
            case "item/completed" if isinstance(item := params.get("item"), dict):
                self._items.pop((thread, str(item.get("id"))), None)
                for request in self._of(thread):
                    if request.item and request.item == item.get("id"):
                        request.learn(_outcome(item))
            case "serverRequest/resolved":
                self._on_resolved(params.get("requestId"))
            case "turn/completed" if isinstance(turn := params.get("turn"), dict):
                self._on_turn_end(thread, turn)
            case "thread/closed":
                self._on_closed(thread)

    def _of(self, thread: str) -> Iterator[_Request]:
        return (request for request in list(self._open.values()) if request.thread == thread)

    def _on_status(self, thread: str, status: Any) -> None:
        if _is_waiting(status):
            self._waiting.add(thread)
            self._join(thread)
            return
        self._waiting.discard(thread)
        if isinstance(status, dict) and status.get("type") in ("notLoaded", "systemError"):
            self._on_closed(thread)

    def _on_closed(self, thread: str) -> None:
        if (joining := self._joined.pop(thread, None)) is not None:
            joining.cancel()
        self._threads.pop(thread, None)
        self._heard.discard(thread)
        self._drop_items(thread)
        for request in self._of(thread):
            self._end(request, reason=MOOT, error=OVER)

    def _on_turn_end(self, thread: str, turn: Mapping[str, Any]) -> None:
        id = str(turn.get("id"))
        self._remember(id)
        self._drop_items(thread)
        is_stopped = turn.get("status") == "interrupted"
        for request in self._of(thread):
            if request.turn not in ("", id):
                continue
            if request.is_resolved and request.item and is_stopped:
                # A terminal says no by an answer that ends the turn. The item's own end is often not told then.
                request.learn(NO)
            self._end(request, reason=STOPPED if is_stopped else MOOT, error=OVER)
        if thread not in self._waiting:
            self._leave(thread)

    def _drop_items(self, thread: str) -> None:
        for key in [key for key in self._items if key[0] == thread]:
            del self._items[key]

    def _on_resolved(self, id: Any) -> None:
        """Somebody's answer was taken, or nobody's is wanted any more. Which one, Codex does not say."""
        if not isinstance(id, int | str):
            return
        self._remember(id)
        request = next((each for each in self._open.values() if each.wire == id), None)
        if request is None or request.is_resolved:
            return
        request.is_resolved = True
        self._rpc.forget(id)
        self._chores.start(self._settle(request))

    async def _settle(self, request: _Request) -> None:
        """A request that is resolved: learn how, where that can be seen, and tell the desk."""
        if request.item and not (request.answer is not None and not request.is_sent):
            await asyncio.wait([request.outcome], timeout=self._grace)
        self._forget(request)
        outcome = request.outcome.result() if request.outcome.done() else None
        if request.answer is None:
            await self._withdraw(request.ask, reason=IN_THE_TERMINAL, answer=outcome)
            return
        is_other = outcome is not None and _is_no(outcome) != _is_no(request.answer)
        self._asker.delivered(request.ask.id, error=FIRST if is_other or not request.is_sent else None)

    # Asking ---------------------------------------------------------------------------------------------------------

    async def _on_request(self, id: Id, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The desk's answer to a request, or none at all: an error would be an answer too, and might be the first."""
        thread = params.get("threadId")
        if method in MIRRORED and isinstance(thread, str) and thread not in self._threads:
            await self._is_known_to_wait(thread)  # of a subagent: Codex lets everybody hear those without asking
        request = self._begin(id, method, params)
        result = await self._carry(request) if request is not None else None
        if result is None:
            self._rpc.forget(id)
            await asyncio.get_running_loop().create_future()  # ends by that
        assert result is not None
        return result

    def _begin(self, id: Id, method: str, params: dict[str, Any]) -> _Request | None:
        """The request with its ask, known from here on. None where it is not for the desk."""
        thread, turn = str(params.get("threadId") or ""), str(params.get("turnId") or "")
        if method not in MIRRORED or not thread or id in self._over or (turn and turn in self._over):
            return None
        try:
            request = self._read(id, method, params, thread=thread, turn=turn)
        except HandraiseError as misfit:
            log.warning("codex asked what no desk takes, with %s: %s; its terminal has it", method, misfit.code)
            return None
        except Exception as broken:  # whatever is in one message, the others are not to suffer
            log.error("a request of codex broke, %s: %s", method, type(broken).__name__)
            return None
        self._open[request.ask.id] = request
        return request

    def _read(self, id: Id, method: str, params: dict[str, Any], *, thread: str, turn: str) -> _Request:
        item = self._item_of(thread, method, params)
        durable = ask_id(method, params, thread=thread, item=item)
        known = self._threads.get(thread, _Thread(cwd=None, parent=None))
        ask = to_ask(
            method,
            params,
            id=durable or self._unused(content_id(params, thread=thread)),
            origin=Origin(agent=NAME, session=thread, parent=known.parent, cwd=known.cwd),
            item=item,
        )
        hurry = _hurry(method, params)
        if hurry is not None:
            ask = replace(ask, extra={**(ask.extra or {}), "terminal": CLOSES})
        has_end = method in (COMMAND, FILES) or (item is not None and is_tool_approval(params))
        ends_with = params.get("itemId") if item is None else item.get("id")
        return _Request(
            ask=ask,
            method=method,
            thread=thread,
            turn=turn,
            # A command with several approvals may be allowed here and stopped there.
            item=str(ends_with) if has_end and not params.get("approvalId") else "",
            is_numbered=durable is None,
            asker=self._asker if hurry is None else Handled(self._asker, self._within(hurry)),
            wire=id,
        )

    def _within(self, seconds: float) -> Handling:
        own = self._handling.question_timeout
        return replace(self._handling, question_timeout=seconds if own is None else min(own, seconds))

    def _item_of(self, thread: str, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """What Codex announced before it asked. An MCP tool's call is found by what it is called with."""
        if method != ELICITATION:
            return self._items.get((thread, str(params.get("itemId"))))
        if not is_tool_approval(params):
            return None
        for (of, _), item in self._items.items():
            if of != thread or item.get("type") != "mcpToolCall" or item.get("server") != params.get("serverName"):
                continue
            is_it = (item.get("arguments") or {}) == (params["_meta"].get("tool_params") or {})
            if is_it and not self._is_taken(ask_id(method, params, thread=thread, item=item)):
                return item
        return None

    def _is_taken(self, id: str | None) -> bool:
        """Whether that is the ask of another request on this connection."""
        request = self._open.get(id) if id is not None else None
        return request is not None and request.wire is not None

    def _unused(self, id: str) -> str:
        """Two that are the same and wait at the same time are two: one answer is not to grant both."""
        number, unused = 1, id
        while self._is_taken(unused):
            number += 1
            unused = f"{id}:{number}"
        return unused

    async def _carry(self, request: _Request) -> dict[str, Any] | None:
        """What Codex is to be told; None where the desk has no answer for it."""
        answer = await self._answer_to(request)
        if answer is None:
            self._forget(request)
            return None
        request.answer = answer
        try:
            result = from_answer(request.method, request.ask, answer)
        except AnswerDoesNotFit as misfit:
            self._forget(request)
            self._asker.delivered(request.ask.id, error=misfit.message)
            return None
        if (words := to_steer(request.method, request.ask, answer)) is not None:
            await self._steer(request, words)
        request.is_sent = True
        return result

    async def _answer_to(self, request: _Request) -> Answer | None:
        """What the desk says, however long it takes. None: the terminal is the place to answer it."""
        ask, pause = request.ask, FIRST_PAUSE
        while True:
            try:
                return await request.asker.ask(ask, ordinal=request.is_numbered)
            except Withdrawn:
                return None
            except AskDiffers:
                log.warning("codex: ask %s is at the desk already, from elsewhere", inert(ask.id))
                return None
            except PASSING as trouble:
                log.warning("codex: ask %s could not be raised, and is tried again: %s", inert(ask.id), trouble.code)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            except HandraiseError as misfit:
                log.warning("codex asked what the desk does not take, as %s: %s", inert(ask.id), misfit.code)
                return None

    async def _steer(self, request: _Request, words: str) -> None:
        """Tell the model why. A refusal itself carries no words, so they are queued before it and arrive behind it."""
        said = [{"type": "text", "text": words, "text_elements": []}]
        params = {"threadId": request.thread, "expectedTurnId": request.turn, "input": said}
        try:
            async with asyncio.timeout(STEER):
                await self._rpc.request("turn/steer", params)
        except (HandraiseError, TimeoutError) as error:
            log.warning("the reason of a refusal did not reach codex: %s", type(error).__name__)

    # What is over ---------------------------------------------------------------------------------------------------

    def _end(self, request: _Request, *, reason: str, error: str) -> None:
        """Nobody there waits for it. `error` is for whoever answered it at the desk."""
        if request.is_resolved:  # and is being told
            request.learn(None)
            return
        self._forget(request)
        if request.wire is not None:
            self._rpc.forget(request.wire)
        if request.answer is not None:
            self._asker.delivered(request.ask.id, error=error)
            return
        outcome = request.outcome.result() if request.outcome.done() else None
        self._chores.start(self._withdraw(request.ask, reason=reason, answer=outcome))

    async def _withdraw(self, ask: Ask, *, reason: str, answer: Answer | None = None) -> None:
        too_late = FIRST if reason == IN_THE_TERMINAL else reason
        await withdraw(self._asker, ask.id, reason=reason, too_late=too_late, answer=answer)

    def _forget(self, request: _Request) -> None:
        if self._open.get(request.ask.id) is request:
            del self._open[request.ask.id]

    def _remember(self, id: Id) -> None:
        self._over[id] = None
        if len(self._over) > REMEMBERED:
            del self._over[next(iter(self._over))]


def _is_waiting(status: Any) -> bool:
    flags = status.get("activeFlags") if isinstance(status, dict) else None
    return isinstance(flags, list) and ("waitingOnApproval" in flags or "waitingOnUserInput" in flags)


def _hurry(method: str, params: Mapping[str, Any]) -> float | None:
    """Seconds after which the desk has to have answered, because the terminal would do it soon after."""
    if method != INPUT or params.get("isBlocking") is not False:
        return None
    after = params.get("autoResolutionMs")
    if not isinstance(after, int) or isinstance(after, bool) or after <= 0:
        return COUNTDOWN
    return min(COUNTDOWN, after / 1000 * 5 / 6)


def _outcome(item: Mapping[str, Any]) -> Answer | None:
    """How the approval of an item was answered, from how it ended; None where that does not tell."""
    error = item.get("error")
    words = error.get("message") if isinstance(error, dict) else None
    match item.get("type"), item.get("status"):
        case (("commandExecution" | "fileChange" | "mcpToolCall"), "completed"):
            return YES
        case (("commandExecution" | "fileChange"), "declined"):
            return NO
        case "commandExecution", "failed" if isinstance(item.get("exitCode"), int):
            return YES  # it ran
        case "mcpToolCall", "failed" if words in ("user rejected MCP tool call", "user cancelled MCP tool call"):
            return NO
        case _:
            return None


def _is_no(answer: Answer) -> bool:
    return answer.rejected or answer.reply == "reject"


def _entries(holder: Any, key: str) -> list[dict[str, Any]]:
    listed = holder.get(key) if isinstance(holder, dict) else None
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
