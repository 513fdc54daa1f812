"""The stream of events and the lists of one server of OpenCode: what comes up there, and whose it is.

The stream is the way; the lists are read whenever it was connected anew. `requests.py` carries what was found here, and
`session.py` owns a session and hears what happens in it. Nothing here knows a session: whoever owns one gives an
`Owner`, which is data, and one function to be told by.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from handraise.agents import Wire
from handraise.agents.opencode.events import Asked, Connected, Deleted, Disposed, Event, Part, Related, Settled, Status
from handraise.agents.opencode.events import read as read_event
from handraise.agents.opencode.requests import ENDED, MOOT, STOPPED, Owner, Request, Requests, entries, tool_state
from handraise.agents.opencode.server import CallRefused, Server, ServerGone, StreamEnded
from handraise.agents.opencode.translate import Kind, clearing, from_answer, refusal, request_of, to_ask
from handraise.asks import Answer, Ask
from handraise.errors import AskDoesNotFit, HandraiseError

__all__ = ["Gone", "Relay", "Statuses", "Tell"]

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between two tries
AWAY = 30.0  # seconds without a server elsewhere on the network after which its asks are nobody's
DIRECTORIES = 20  # whose lists are read at first: OpenCode loads the project of every folder that it is asked about


@dataclass(frozen=True, slots=True)
class Statuses:
    """The lists were read anew. A session that is not in here is idle."""

    by_session: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Gone:
    """The server has ended."""


Tell: TypeAlias = Callable[[Event | Statuses | Gone], None]


class Relay:
    """`follow` it in a task; `own` the sessions that concern you, or give `everyone`."""

    def __init__(self, server: Server, *, directory: str | None = None, everyone: Owner | None = None) -> None:
        """One directory, or all of them where that is None."""
        self.server = server
        self.is_over = False  # the server has ended, and nothing comes any more
        self._requests = Requests(server)
        self._directory = directory
        self._everyone = everyone
        self._owners: dict[str, tuple[Owner, Tell]] = {}  # by their root session
        self._parents: dict[str, str | None] = {}
        self._directories: dict[str, None] = {} if directory is None else {directory: None}
        self._connected = asyncio.Event()
        self._alone = asyncio.Lock()  # an event and a reading of the lists do not mix

    # Whose they are -----------------------------------------------------------------------------------------

    def own(self, session: str, owner: Owner, tell: Tell) -> None:
        """`tell` is called with all that happens in the session and in its subagents."""
        self._owners[session] = owner, tell
        self._parents[session] = None

    def disown(self, session: str) -> None:
        """Stop carrying what that session asks. Nothing is withdrawn; whoever owns it next finds it again."""
        if (owned := self._owners.pop(session, None)) is not None:
            self._requests.drop(owned[0])

    def open_asks(self, owner: Owner) -> list[Ask]:
        return [request.ask for request in self._requests if request.owner is owner]

    def is_open(self, ask: Ask) -> bool:
        return self._requests.is_open(request_of(ask)[1])

    async def end_all(self, owner: Owner, *, reason: str) -> None:
        """The turn is over: withdraw what its tree asked."""
        ended = [self._requests.end(each, reason=reason) for each in self._requests if each.owner is owner]
        if tasks := [task for task in ended if task is not None]:
            await asyncio.wait(tasks)

    async def clear(self, asks: Iterable[Ask], *, directory: str) -> None:
        """Take what an aborted turn asked off OpenCode's list, before another one begins.

        Later it would do harm: a permission that is rejected takes the others of its session along.
        """
        for ask in asks:
            self._requests.remember(request_of(ask)[1])
            await self._requests.post(clearing(ask), directory=directory)

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
                return self.give_up()
            is_long = asyncio.get_running_loop().time() - away_since > AWAY
            if self.server.process is None and (self.server.is_local or is_long) and not await self.server.health():
                self._end_everything(ENDED)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def close(self) -> None:
        """Stop carrying. Nothing that is open is withdrawn; what is over already is still told to the desk."""
        await self._requests.close()

    def give_up(self) -> None:
        """The server is gone for good, as far as anybody here will know."""
        self.is_over = True
        self._end_everything(ENDED)
        for _, tell in list(self._owners.values()):
            tell(Gone())
        self._connected.set()

    def _end_everything(self, reason: str) -> None:
        for request in self._requests:
            self._requests.end(request, reason=reason, is_listed=False)

    async def _take(self, told: Mapping[str, Any], *, ready: Callable[[], None]) -> None:
        """One event. A broken one is logged and hurts nobody else."""
        event = read_event(told, directory=self._directory)
        if event is None:
            return
        try:
            if isinstance(event.news, Connected):
                await self._on_connected()
                ready()
                return
            async with self._alone:
                await self._on_event(event)
        except (ServerGone, CallRefused) as trouble:
            log.warning("opencode: %s could not be looked into: %s", event.type, trouble)
            if isinstance(event.news, Connected):
                raise StreamEnded("its lists could not be read") from trouble
        except HandraiseError:
            raise
        except Exception:
            log.exception("opencode: an event %s was not understood", event.type)

    async def _on_connected(self) -> None:
        if self._directory is None:
            await self._find_directories()
        for directory in list(self._directories):
            await self.relist(directory)
        self._connected.set()

    async def _on_event(self, event: Event) -> None:
        """What it means for requests first, then what it means for the session it is of."""
        if event.directory is not None:
            self._directories[event.directory] = None
        session, requests = event.session, self._requests
        match event.news:
            case Disposed(folder):
                for request in requests:
                    if request.directory == folder:
                        requests.end(request, reason=MOOT, is_listed=False)
                return
            case _ if session is None:
                return
            case Related(parent):
                self._parents[session] = parent if isinstance(parent, str) else None
            case Asked(kind, generation):
                await self._begin(event.properties, kind=kind, generation=generation, directory=event.directory)
            case Settled() as news:
                requests.settle(event, news)
            case Part(part):
                requests.see_part(part)
            case Deleted() | Status(is_idle=True):
                for request in requests:
                    if request.session == session:
                        requests.end(request, reason=STOPPED)
        if self._owners and (owned := self._owners.get(await self._root(session))) is not None:
            self._tell(event, *owned)

    def _tell(self, event: Event, owner: Owner, tell: Tell) -> None:
        owner.listener.active()
        ask = self._requests.ask_of(event.request)
        owner.listener.seen(Wire(way="in", body=event.as_json(), name=event.type, ask=ask, is_piece=event.is_piece))
        tell(event)

    # The lists ----------------------------------------------------------------------------------------------

    async def relist(self, directory: str) -> Mapping[str, Any]:
        """Read what is open in a directory, begin what is new and end what is gone. Returns the statuses."""
        async with self._alone:
            listed = await self._listed(directory)
            told = await self.server.get("/session/status", directory=directory)
            statuses: dict[str, Any] = told if isinstance(told, dict) else {}
            for kind, generation, request in listed.values():
                await self._begin(request, kind=kind, generation=generation, directory=directory, statuses=statuses)
            for known in self._requests:
                if known.directory == directory and request_of(known.ask)[1] not in listed:
                    await self._requests.look_after(known)
            for _, tell in list(self._owners.values()):
                tell(Statuses(statuses))
            return statuses

    async def _listed(self, directory: str) -> dict[str, tuple[Kind, int, dict[str, Any]]]:
        listed: dict[str, tuple[Kind, int, dict[str, Any]]] = {}
        kinds: tuple[Kind, ...] = ("question", "permission")
        for kind in kinds:
            for request in entries(await self.server.get(f"/{kind}", directory=directory)):
                listed[str(request.get("id"))] = (kind, 1, request)
        if self._everyone is None:
            return listed  # sessions that we started are all of the first generation
        for kind in kinds:
            try:
                told = await self.server.get(f"/api/{kind}/request", directory=directory)
            except CallRefused:
                continue  # a version that does not have it
            for request in entries(told.get("data") if isinstance(told, dict) else None):
                listed[str(request.get("id"))] = (kind, 2, request)
        return listed

    async def _find_directories(self) -> None:
        """OpenCode has no list over all folders; those of its newest sessions are the ones that may have something."""
        with_directory: list[Any] = [await self.server.get("/path")]
        try:
            with_directory += entries(await self.server.get("/experimental/session", limit=100))
        except CallRefused:
            log.info("opencode: this version does not list the sessions of all folders")
        for each in with_directory:
            directory = each.get("directory") if isinstance(each, dict) else None
            if isinstance(directory, str) and len(self._directories) < DIRECTORIES:
                self._directories[directory] = None

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

    # A request that comes up ---------------------------------------------------------------------------------

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
        if self._requests.is_known(id):
            return
        root = await self._root(session)
        owner = self._owners[root][0] if root in self._owners else self._everyone
        if owner is None:
            return
        origin, seen = owner.origin(session, root=root, directory=directory), owner.listener.seen
        try:
            ask = to_ask(told, kind=kind, generation=generation, origin=origin)
        except AskDoesNotFit as misfit:
            log.warning("opencode asked what no desk takes, as %s of %s", id, session)
            self._requests.remember(id)
            call = refusal(told, kind=kind, generation=generation, problem=misfit.message)
            self._requests.post_later(call, directory=directory, seen=seen)
            return
        if statuses is not None and generation == 1 and await self._is_ghost(ask, statuses, directory=directory):
            self._requests.remember(id)
            self._requests.withdraw_later(owner.asker, ask, reason=STOPPED)
            if kind == "question":
                self._requests.post_later(clearing(ask), directory=directory, seen=seen)
            return
        # The rules of a session are not those of its subagents (OpenCode 1.18.33); the mode is.
        if ask.permission is not None and session != root and owner.rules.grants(ask.permission.tool):
            self._requests.remember(id)
            self._requests.post_later(from_answer(ask, Answer(reply="once")), directory=directory, seen=seen)
            return
        request = Request(ask=ask, owner=owner, session=session, directory=directory)
        if statuses is not None:
            request.see(Wire(way="in", body=told, name=f"GET /{kind}"))
        self._requests.begin(request)
