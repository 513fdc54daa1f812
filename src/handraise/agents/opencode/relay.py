"""What one server of OpenCode asks, brought to the desk, and the answers brought back.

The stream of events is the way; the lists are read whenever it was connected anew. A request is known from the moment
it is seen until it is settled here or there, and never comes up a second time.

    seen ── desk answers ── handed on ── taken: the tool went on          (delivered)
      │                         └─────── settled there first, or the turn ended   (delivered, with an error)
      └──── settled there, or the turn ended   (withdrawn, with the answer where it is known)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from handraise.agents import Asker, Wire
from handraise.agents._attached import PASSING, withdraw
from handraise.agents.opencode.server import CallRefused, Server, ServerGone, StreamEnded
from handraise.agents.opencode.translate import (
    ASKED,
    SETTLED,
    Call,
    Kind,
    clearing,
    from_answer,
    local_answer,
    refusal,
    request_of,
    to_ask,
)
from handraise.asks import Answer, Ask, Permission
from handraise.errors import (
    AgentFailed,
    AskDiffers,
    AskDoesNotFit,
    HandraiseError,
    Withdrawn,
)

__all__ = ["ENDED", "STOPPED", "Owner", "Place", "Relay", "answers_of", "tool_state"]

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
AWAY = 30.0  # seconds without a server elsewhere on the network after which its asks are nobody's
REMEMBERED = 10_000  # requests that are settled; a list may still hold them for a moment
DIRECTORIES = 20  # whose lists are read at first: OpenCode loads the project of every folder that it is asked about


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the desk calls the session that asks."""

    session: str
    parent: str | None = None
    cwd: str | None = None
    run: str | None = None
    step: str | None = None


class Owner(Protocol):
    """Whose requests they are."""

    @property
    def asker(self) -> Asker: ...

    def place(self, session: str, *, root: str, directory: str | None) -> Place: ...

    def lets(self, permission: Permission, *, session: str) -> bool:
        """Whether the mode that was chosen grants this, so that nobody is asked."""

    def heard(self, type: str, properties: Mapping[str, Any], *, session: str, root: str) -> None:
        """Something happened in a session of theirs."""

    def seen(self, wire: Wire) -> None:
        """What is sent to the server on their behalf, and what it says to that."""

    def became(self, ask: str, *, request: str) -> None:
        """A request of theirs is this ask. Told before `heard` of the event in which it was made."""

    def connected(self, statuses: Mapping[str, Any]) -> None:
        """The lists were read anew. A session that is not in the statuses is idle."""

    def gone(self) -> None:
        """The server has ended."""


@dataclass(eq=False, slots=True, kw_only=True)
class _Request:
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

    def seen(self, wire: Wire) -> None:
        self.owner.seen(replace(wire, ask=self.ask.id))

    @property
    def is_refused(self) -> bool:
        """Whether it is a permission that the desk said no to."""
        return self.ask.permission is not None and self.answer is not None and self.answer.rejected

    def show(self, error: str | None) -> None:
        """The agent took the answer, or did not, and why."""
        if not self.sign.done():
            self.sign.set_result(error)


class Relay:
    """`follow` it in a task; `own` the sessions that concern you, or give `everyone`."""

    def __init__(self, server: Server, *, directory: str | None = None, everyone: Owner | None = None) -> None:
        """One directory, or all of them where that is None."""
        self.server = server
        self.is_over = False  # the server has ended, and nothing comes any more
        self._directory = directory
        self._everyone = everyone
        self._owners: dict[str, Owner] = {}  # by their root session
        self._open: dict[str, _Request] = {}  # by OpenCode's id
        self._settled: dict[str, None] = {}
        self._parents: dict[str, str | None] = {}
        self._directories: dict[str, None] = {} if directory is None else {directory: None}
        self._connected = asyncio.Event()
        self._alone = asyncio.Lock()  # an event and a reading of the lists do not mix
        self._changed = asyncio.Event()  # set, and replaced, when a request is decided or over
        self._tasks: set[asyncio.Task[None]] = set()  # those that carry, and the chores after what is over

    # Whose they are -----------------------------------------------------------------------------------------

    def own(self, session: str, owner: Owner) -> None:
        self._owners[session] = owner
        self._parents[session] = None

    def disown(self, session: str) -> None:
        """Stop carrying what that session asks. Nothing is withdrawn; whoever owns it next finds it again."""
        owner = self._owners.pop(session, None)
        for id, request in list(self._open.items()):
            if request.owner is owner:
                del self._open[id]
                if request.task is not None:
                    request.task.cancel()

    def open_asks(self, owner: Owner) -> list[Ask]:
        return [request.ask for request in self._open.values() if request.owner is owner]

    def is_known(self, ask: Ask) -> bool:
        return request_of(ask)[1] in self._open

    async def end_all(self, owner: Owner, *, reason: str) -> None:
        """The turn is over: withdraw what its tree asked."""
        requests = [request for request in self._open.values() if request.owner is owner]
        if ended := [self._end(request, reason=reason) for request in requests]:
            await asyncio.wait(ended)

    async def clear(self, asks: Iterable[Ask], *, directory: str) -> None:
        """Take what an aborted turn asked off OpenCode's list, before another one begins.

        Later it would do harm: a permission that is rejected takes the others of its session along.
        """
        for ask in asks:
            self._remember(request_of(ask)[1])
            await self._post(clearing(ask), directory=directory)

    # The stream ---------------------------------------------------------------------------------------------

    async def until_connected(self) -> None:
        """Raises ServerGone if that does not come to pass."""
        await self._connected.wait()
        if self.is_over:
            raise ServerGone(f"{ENDED}; start again")

    async def follow(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Carry what is asked until cancelled, across breaks; returns when a server of ours has ended.

        Raises SettingsError where the server wants another password.
        """
        path = "/event" if self._directory is not None else "/global/event"
        pause, away_since = FIRST_PAUSE, asyncio.get_running_loop().time()
        while True:
            try:
                async for event in self.server.events(path, directory=self._directory):
                    await self._take(event, ready=ready)
                    pause, away_since = FIRST_PAUSE, asyncio.get_running_loop().time()
            except StreamEnded as ended:
                log.log(logging.WARNING if pause == FIRST_PAUSE else logging.DEBUG, "opencode: %s", ended)
            self._connected.clear()
            if self.server.is_gone():
                return self._gone()
            is_long = asyncio.get_running_loop().time() - away_since > AWAY
            if self.server.process is None and (self.server.is_local or is_long) and not await self.server.health():
                self._end_everything(ENDED)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def close(self) -> None:
        """Stop carrying. Nothing that is open is withdrawn; what is over already is still told to the desk."""
        for request in self._open.values():
            if request.task is not None:
                request.task.cancel()
        self._open.clear()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CHORES)
            for task in late:
                task.cancel()

    def give_up(self) -> None:
        """The server is gone for good, as far as anybody here will know."""
        self._gone()

    def _gone(self) -> None:
        self.is_over = True
        self._end_everything(ENDED)
        for owner in list(self._owners.values()):
            owner.gone()
        self._connected.set()

    def _end_everything(self, reason: str) -> None:
        for request in list(self._open.values()):
            self._end(request, reason=reason, is_listed=False)

    async def _take(self, told: Mapping[str, Any], *, ready: Callable[[], None]) -> None:
        """One event. A broken one is logged and hurts nobody else."""
        directory = self._directory
        if directory is None:
            directory, told = told.get("directory"), told.get("payload") or {}
        type = told.get("type")
        properties = told.get("properties")
        if not isinstance(type, str) or not isinstance(properties, dict):
            return  # such as `sync`, which repeats what was told
        try:
            if type == "server.connected":
                await self._on_connected()
                ready()
                return
            async with self._alone:
                await self._on_event(type, properties, directory=directory)
        except (ServerGone, CallRefused) as trouble:
            log.warning("opencode: %s could not be looked into: %s", type, trouble)
            if type == "server.connected":
                raise StreamEnded("its lists could not be read") from trouble
        except HandraiseError:
            raise
        except Exception:
            log.exception("opencode: an event %s was not understood", type)

    async def _on_connected(self) -> None:
        if self._directory is None:
            await self._find_directories()
        for directory in list(self._directories):
            await self.relist(directory)
        self._connected.set()

    async def _on_event(self, type: str, properties: dict[str, Any], *, directory: str | None) -> None:
        if directory is not None:
            self._directories[directory] = None
        if type == "server.instance.disposed":
            disposed = properties.get("directory")
            for request in [each for each in self._open.values() if each.directory == disposed]:
                self._end(request, reason=MOOT, is_listed=False)
            return
        session = _session_of(properties)
        if session is None:
            return
        info = properties.get("info")
        if type in ("session.created", "session.updated") and isinstance(info, dict):
            self._parents[session] = info.get("parentID")
        if type in ASKED:
            kind, generation = ASKED[type]
            await self._begin(properties, kind=kind, generation=generation, directory=directory)
        elif type in SETTLED:
            self._on_settled(type, properties)
        elif type == "message.part.updated":
            self._on_part(properties.get("part"))
        elif type == "session.deleted" or _is_idle(type, properties):
            for request in [each for each in self._open.values() if each.session == session]:
                self._end(request, reason=STOPPED)
        if session not in self._parents and self._everyone is None and not self._owners:
            return
        root = await self._root(session)
        owner = self._owners.get(root, self._everyone)
        if owner is not None:
            owner.heard(type, properties, session=session, root=root)

    def _on_settled(self, type: str, properties: dict[str, Any]) -> None:
        id = str(properties.get("requestID"))
        request = self._open.get(id)
        self._remember(id)
        if request is None:
            return
        event = {"type": type, "properties": properties}
        if request.answer is None:
            self._end(request, reason=ELSEWHERE, answer=local_answer(request.ask, event), is_listed=False)
            return
        request.event = event
        request.settled.set()
        self._change()
        if request.ask.permission is not None or request.call is None or ".v2." in type:
            request.show(None)  # the turn was under way until now, so somebody listened

    def _on_part(self, part: Any) -> None:
        if not isinstance(part, dict) or part.get("type") != "tool" or not isinstance(part.get("state"), dict):
            return
        status = part["state"].get("status")
        if status not in ("completed", "error"):
            return
        for request in list(self._open.values()):
            if request.call != (part.get("messageID"), part.get("callID")):
                continue
            if request.answer is not None:
                request.show(None if status == "completed" or not _was_interrupted(part["state"]) else OVER)
            elif status == "error" and _was_interrupted(part["state"]):
                self._end(request, reason=STOPPED)

    # The lists ----------------------------------------------------------------------------------------------

    async def relist(self, directory: str) -> Mapping[str, Any]:
        """Read what is open in a directory, begin what is new and end what is gone. Returns the statuses."""
        async with self._alone:
            listed = await self._listed(directory)
            told = await self.server.get("/session/status", directory=directory)
            statuses: dict[str, Any] = told if isinstance(told, dict) else {}
            for kind, generation, request in listed.values():
                await self._begin(request, kind=kind, generation=generation, directory=directory, statuses=statuses)
            for id, known in list(self._open.items()):
                if known.directory == directory and id not in listed:
                    await self._look_after(known)
            for owner in set(self._owners.values()):
                owner.connected(statuses)
            return statuses

    async def _listed(self, directory: str) -> dict[str, tuple[Kind, int, dict[str, Any]]]:
        listed: dict[str, tuple[Kind, int, dict[str, Any]]] = {}
        kinds: tuple[Kind, ...] = ("question", "permission")
        for kind in kinds:
            for request in _entries(await self.server.get(f"/{kind}", directory=directory)):
                listed[str(request.get("id"))] = (kind, 1, request)
        if self._everyone is None:
            return listed  # sessions that we started are all of the first generation
        for kind in kinds:
            try:
                told = await self.server.get(f"/api/{kind}/request", directory=directory)
            except CallRefused:
                continue  # a version that does not have it
            for request in _entries(told.get("data") if isinstance(told, dict) else None):
                listed[str(request.get("id"))] = (kind, 2, request)
        return listed

    async def _find_directories(self) -> None:
        """OpenCode has no list over all folders; those of its newest sessions are the ones that may have something."""
        with_directory: list[Any] = [await self.server.get("/path")]
        try:
            with_directory += _entries(await self.server.get("/experimental/session", limit=100))
        except CallRefused:
            log.info("opencode: this version does not list the sessions of all folders")
        for each in with_directory:
            directory = each.get("directory") if isinstance(each, dict) else None
            if isinstance(directory, str) and len(self._directories) < DIRECTORIES:
                self._directories[directory] = None

    async def _look_after(self, request: _Request) -> None:
        """It was open and is no longer listed: something happened while we did not hear."""
        state = await tool_state(self.server, request.ask, directory=request.directory)
        if request.answer is not None:
            request.show(OVER if _was_interrupted(state) else None)
            return
        answers = answers_of(state)
        answer = None if answers is None else local_answer(request.ask, {"properties": {"answers": answers}})
        self._end(request, reason=MOOT, answer=answer, is_listed=False)

    async def _is_ghost(self, ask: Ask, statuses: Mapping[str, Any], *, directory: str | None) -> bool:
        """An abort leaves its requests in the list, and nobody waits for them (OpenCode 1.18.33)."""
        session, _ = request_of(ask)
        if session not in statuses:
            return True
        state = await tool_state(self.server, ask, directory=directory)
        return state.get("status") in ("completed", "error")

    async def _root(self, session: str) -> str:
        for _ in range(100):  # a ring of parents would be OpenCode's error, and not ours to hang on
            if session not in self._parents:
                try:
                    info = await self.server.get(f"/session/{session}")
                except CallRefused:
                    info = None  # deleted, or of the second generation
                self._parents[session] = info.get("parentID") if isinstance(info, dict) else None
            parent = self._parents[session]
            if not isinstance(parent, str) or session in self._owners:
                return session
            session = parent
        return session

    # One request --------------------------------------------------------------------------------------------

    async def _begin(
        self,
        told: dict[str, Any],
        *,
        kind: Kind,
        generation: int,
        directory: str | None,
        statuses: Mapping[str, Any] | None = None,
    ) -> None:
        """Carry a request that is new. With statuses it comes from a list, and may be a ghost."""
        id, session = str(told.get("id")), str(told.get("sessionID"))
        if id in self._open or id in self._settled:
            return
        root = await self._root(session)
        owner = self._owners.get(root, self._everyone)
        if owner is None:
            return
        place = owner.place(session, root=root, directory=directory)
        try:
            ask = to_ask(
                told,
                kind=kind,
                generation=generation,
                session=place.session,
                parent=place.parent,
                cwd=place.cwd,
                run=place.run,
                step=place.step,
            )
        except AskDoesNotFit as misfit:
            log.warning("opencode asked what no desk takes, as %s of %s", id, session)
            self._remember(id)
            call = refusal(told, kind=kind, generation=generation, problem=misfit.message)
            self._spawn(self._post(call, directory=directory, seen=owner.seen))
            return
        if statuses is not None and generation == 1 and await self._is_ghost(ask, statuses, directory=directory):
            self._remember(id)
            self._spawn(self._withdraw(owner.asker, ask, reason=STOPPED))
            if kind == "question":
                self._spawn(self._post(clearing(ask), directory=directory, seen=owner.seen))
            return
        if ask.permission is not None and owner.lets(ask.permission, session=session):
            self._remember(id)
            self._spawn(self._post(from_answer(ask, Answer(reply="once")), directory=directory, seen=owner.seen))
            return
        request = _Request(ask=ask, owner=owner, session=session, directory=directory)
        self._open[id] = request
        owner.became(ask.id, request=id)
        if statuses is not None:
            request.seen(Wire(way="in", body=told, name=f"GET /{kind}"))
        request.task = self._spawn(self._carry(request))

    async def _carry(self, request: _Request) -> None:
        answer = await self._answered(request)
        if answer is None:
            self._forget(request)
            return
        request.answer = answer
        self._change()
        error = await self._hand_on(request, answer)
        self._forget(request)
        if answer.by != DESK:
            request.owner.asker.delivered(request.ask.id, error=error)

    async def _answered(self, request: _Request) -> Answer | None:
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

    async def _hand_on(self, request: _Request, answer: Answer) -> str | None:
        """None once the agent took it, else why it did not. A 200 alone is no proof: ghosts give it too."""
        if request.is_refused:
            answer = await self._together(request, answer)
            if request.sign.done() and (over := request.sign.result()) is not None:
                return over
        call, pause = from_answer(request.ask, answer), FIRST_PAUSE
        while True:
            try:
                await self.server.post(call.path, call.body, directory=request.directory, seen=request.seen)
                break
            except CallRefused as refused:
                if refused.status != 404:
                    return refused.message
                return await self._settled_elsewhere(request, answer)
            except ServerGone:  # either it comes back, or `follow` notices that it ended
                if request.sign.done():
                    return request.sign.result()
                await asyncio.wait([request.sign], timeout=pause)
                pause = min(pause * 2, LONGEST_PAUSE)
        await asyncio.wait([request.sign], timeout=SIGN)
        if not request.sign.done():
            try:
                state = await tool_state(self.server, request.ask, directory=request.directory)
            except AgentFailed:
                state = {}
            request.show(OVER if _was_interrupted(state) else None)
        return request.sign.result()

    async def _together(self, request: _Request, answer: Answer) -> Answer:
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

    async def _settled_elsewhere(self, request: _Request, answer: Answer) -> str | None:
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

    def _end(
        self, request: _Request, *, reason: str, is_listed: bool = True, answer: Answer | None = None
    ) -> asyncio.Task[None]:
        """It is over on OpenCode's side. If it was being answered, whoever hands the answer on hears of it."""
        self._forget(request)
        if request.answer is not None:
            request.show(ENDED if reason == ENDED else OVER)
            return request.task or self._spawn(_nothing())
        if request.task is not None:
            request.task.cancel()
        if is_listed and request.ask.permission is None:
            self._spawn(self._post(clearing(request.ask), directory=request.directory, seen=request.seen))
        return self._spawn(self._withdraw(request.owner.asker, request.ask, reason=reason, answer=answer))

    async def _withdraw(self, asker: Asker, ask: Ask, *, reason: str, answer: Answer | None = None) -> None:
        too_late = f"{reason}, before it took the answer"
        await withdraw(asker, ask.id, reason=reason, too_late=too_late, answer=answer)

    async def _post(self, call: Call, *, directory: str | None, seen: Callable[[Wire], None] | None = None) -> None:
        try:
            await self.server.post(call.path, call.body, directory=directory, seen=seen)
        except AgentFailed as trouble:
            log.info("opencode: %s", trouble)

    def _forget(self, request: _Request) -> None:
        _, id = request_of(request.ask)
        if self._open.get(id) is request:
            del self._open[id]
            self._remember(id)
            self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _remember(self, id: str) -> None:
        self._settled[id] = None
        if len(self._settled) > REMEMBERED:
            del self._settled[next(iter(self._settled))]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("opencode: a request was dropped", exc_info=error)


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
    for part in _entries(message.get("parts") if isinstance(message, dict) else None):
        if part.get("callID") == call[1] and isinstance(part.get("state"), dict):
            state: dict[str, Any] = part["state"]
            return state
    return {}


def answers_of(state: Mapping[str, Any]) -> list[Any] | None:
    """What a question that is answered was told."""
    metadata = state.get("metadata")
    answers = metadata.get("answers") if isinstance(metadata, dict) else None
    return answers if state.get("status") == "completed" and isinstance(answers, list) else None


def _was_interrupted(state: Mapping[str, Any]) -> bool:
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


def _session_of(properties: Mapping[str, Any]) -> str | None:
    """Events name their session here or there."""
    places: Iterable[Any] = (properties, properties.get("part"), properties.get("info"))
    for place in places:
        if isinstance(place, dict) and isinstance(place.get("sessionID"), str):
            session: str = place["sessionID"]
            return session
    return None


def _is_idle(type: str, properties: Mapping[str, Any]) -> bool:
    status = properties.get("status")
    return type == "session.idle" or (
        type == "session.status" and isinstance(status, dict) and status.get("type") == "idle"
    )


def _entries(listed: Any) -> Collection[dict[str, Any]]:
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else ()


async def _nothing() -> None:
    return
