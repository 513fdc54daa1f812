"""The worker: owns live sessions with agents. It knows the desk only as an asker, its sessions and their open asks.

Orders come from the database and every change goes back there, so whoever asked for it may be at another desk. Here
sessions are claimed and held; `live.py` carries out the orders of one, `port.py` is the desk as its adapter sees it,
`agents.py` has the agents by name.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import urlsplit

from handraise.agents import HandlingAsker, Start, Watchable
from handraise.asks import NOBODY_CAME, Answer, Ask, Handling, State
from handraise.asks.places import resolve
from handraise.clock import Clock
from handraise.errors import (
    AlreadyAnswered,
    AskNotFound,
    AskWithdrawn,
    HandraiseError,
    SessionEnded,
    SessionNotFound,
    SettingsError,
)
from handraise.tables.raw_messages import Wires
from handraise.tables.sessions import NewSession, SessionRecord, Sessions
from handraise.worker.agents import Agents
from handraise.worker.live import LiveSession
from handraise.workflow.execution import Outcome

__all__ = ["Agents", "Desk", "Worker", "own_name", "sole_worker"]

log = logging.getLogger(__name__)

RETRY = 1.0  # seconds until the database is asked again after it failed
LEAVE_WITHIN = 10.0  # seconds in which sessions are left when the worker stops
WATCH_AGAIN = 10.0  # seconds until an address that could not be watched is tried again


class Desk(HandlingAsker, Protocol):
    """What a worker needs of the desk besides its sessions."""

    def asks(
        self,
        *,
        state: State | None = None,
        agent: str | None = None,
        session: str | None = None,
        run: str | None = None,
    ) -> AsyncIterator[Ask]: ...


def own_name(home: Path) -> str:
    """What the worker of a home is called. Sessions live on a machine, so its worker keeps its name over restarts."""
    machine = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname())[:40]
    return f"{machine}-{hashlib.sha256(str(home).encode()).hexdigest()[:6]}"


class Worker:
    """Use as an async context manager. Leaving it leaves the sessions: nothing is withdrawn, no agent goes on alone."""

    def __init__(
        self,
        desk: Desk,
        sessions: Sessions,
        agents: Agents,
        *,
        name: str,
        clock: Clock,
        wires: Wires | None = None,
    ) -> None:
        """`wires` keeps the raw messages of its sessions; without it nobody does."""
        self.name = name
        self.wires = wires
        self.agents = agents
        self.sessions = sessions
        self.clock = clock
        self.desk = desk
        self._live: dict[str, LiveSession] = {}
        self.other_workers_exist = False  # which take over our runs when we leave or seem dead
        self._halted: set[str] = set()
        self._held: dict[str, Callable[[], bool]] = {}  # the runs whose sessions are ours, and whether they still are
        self._awaited: dict[str, asyncio.Event] = {}  # the sessions that steps wait for; set when an order has ended
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._changed = await self._stack.enter_async_context(self.sessions.changes())
        self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._serving = self._tasks.create_task(self._serve())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        live = [session.task for session in self._live.values()]
        if live:
            await asyncio.wait(live, timeout=LEAVE_WITHIN)
        for task in live:
            task.cancel()
        await self._stack.aclose()
        await self.agents.close()

    def stop(self) -> None:
        """Leave the sessions from now on. Said before the desk ends its waits, which would look like an abort."""
        self._serving.cancel()
        for session in self._live.values():
            session.stop()

    def check(self, wanted: NewSession) -> None:
        """Raises SettingsError or PluginNotFound where this cannot be started on this machine."""
        if wanted.cwd is not None and not os.path.isdir(wanted.cwd):  # noqa: PTH112 - a Path raises where it is too long
            raise SettingsError(f"cwd: there is no folder {wanted.cwd!r} on {socket.gethostname()}")
        agent = self.agents[wanted.agent]
        if wanted.command and not getattr(agent, "takes_command", False):
            raise SettingsError(f"command: {wanted.agent} has a program of its own; `acp` runs any that speaks ACP")
        command = wanted.command
        agent.check(Start(session="new", cwd=wanted.cwd, handling=wanted.handling, mode=wanted.mode, command=command))

    async def create(self, wanted: NewSession) -> SessionRecord:
        """Start a session. Raises SettingsError, PluginNotFound; what goes wrong later is in its state."""
        self.check(wanted)
        return await self.sessions.create(wanted, worker=self.name, machine=socket.gethostname(), at=self.clock.now())

    # What workflows need: sessions that are told what to do by a run, and questions of its own.

    async def work(self, wanted: NewSession, *, turns: int) -> Outcome:
        record = await self.create(wanted)
        ended = self._awaited[record.id] = asyncio.Event()
        try:
            while True:
                ended.clear()
                record = await self.sessions.get(record.id)
                if record.worker not in (None, self.name) or record.id in self._halted:
                    return Outcome(None, is_lost=True)
                replies = await self.sessions.replies(record.id)
                if len(replies) >= turns and record.state == "idle" and not record.orders:
                    return Outcome(replies[turns - 1], error="the turn was aborted")
                if record.state in ("failed", "done") and not record.orders:
                    return Outcome(None, error=record.error or "the session was closed")
                await ended.wait()  # all that can end it is carried out here
        finally:
            if self._awaited.get(record.id) is ended:
                del self._awaited[record.id]

    async def tell(self, session: str, text: str, *, turn: int) -> None:
        if await self.sessions.prompts(session) < turn:
            await self.sessions.order(session, "prompt", text, at=self.clock.now())

    async def stop_session(self, session: str) -> None:
        with suppress(SessionNotFound, SessionEnded):
            await self.sessions.order(session, "close", at=self.clock.now())

    async def ask(self, ask: Ask, *, handling: Handling | None = None) -> Answer:
        return await self.desk.ask(await resolve(ask), handling=handling)

    def hold(self, run: str, *, is_ours: Callable[[], bool]) -> None:
        self._held[run] = is_ours
        self._changed.set()

    def let_go(self, session: str) -> None:
        if (live := self._live.get(session)) is not None:
            live.let_go()

    def release(self, run: str) -> None:
        self._held.pop(run, None)
        for live in self._live.values():
            if live.run_id == run:
                live.let_go()
        self._changed.set()  # what was ordered meanwhile may be carried out now

    async def drop(self, run: str, *, within: float) -> None:
        self._held.pop(run, None)
        live = [session for session in self._live.values() if session.run_id == run]
        for session in live:
            session.stop()
        if live:
            left = [session.task for session in live]
            await asyncio.wait(left, timeout=within)
            for task in left:
                task.cancel()  # which kills an agent that is still being left in order
            await asyncio.wait(left, timeout=within)

    async def withdraw_asks(
        self, session: str, *, reason: str = "its machine is gone, and the step began again"
    ) -> None:
        """Nobody takes an answer there any more: what is open is withdrawn, an untaken answer is told as not taken."""
        for ask in await self.left_open(session):
            if ask.state == "asked":
                try:
                    await self.desk.withdraw(ask.id, reason=reason)
                    continue
                except (AskWithdrawn, AskNotFound):
                    continue
                except AlreadyAnswered:  # at this moment
                    pass
            self.desk.delivered(ask.id, error=f"{reason} before the agent took it")

    async def left_open(self, session: str) -> tuple[Ask, ...]:
        """Asks of this session and its subagents that nobody has answered, or whose answer the agent has not taken."""
        tree = [session, *await self.sessions.children(session)]
        asks = [ask for each in tree async for ask in self.desk.asks(session=each)]
        return tuple(
            ask
            for ask in asks
            if ask.state == "asked"
            or (
                ask.state in ("answered", "rejected")
                and ask.delivered_at is None
                and ask.delivery_error in (None, NOBODY_CAME)
            )
        )

    async def not_taken(self, session: str, id: str) -> Ask | None:
        """The ask of this session or its subagents, if its agent could not take the answer."""
        for each in (session, *await self.sessions.children(session)):
            async for ask in self.desk.asks(session=each):
                if ask.id == id:
                    return ask if ask.delivered_at is None and ask.delivery_error is not None else None
        return None

    def halted(self, session: str) -> None:
        self._halted.add(session)

    def may_speak(self, run: str | None) -> bool:
        """Whether a session of this run is still ours, where that is for a run to say."""
        is_ours = None if run is None else self._held.get(run)
        return is_ours is None or is_ours()

    async def _may_drive(self, record: SessionRecord) -> bool:
        if record.run is None:
            return True
        if record.run in self._held:
            return self.may_speak(record.run)
        return await self.sessions.may_be_driven(record.run)

    async def watch(self, agent: str, address: str) -> None:
        """Listen to an agent that runs by itself. What goes wrong is logged and tried again, until cancelled."""
        watched = self.agents[agent]
        if not isinstance(watched, Watchable):
            raise SettingsError(f"[agents.{agent}] watch: {agent} is not an agent that can be listened to")
        while True:
            try:
                await watched.watch(_Here(self.desk) if _is_here(address) else self.desk, address)
            except HandraiseError as failed:
                log.error("%s at an address of [agents.%s] watch: %s", agent, agent, failed)
            await asyncio.sleep(WATCH_AGAIN)

    async def _serve(self) -> None:
        """Carry out orders: each session's own task does, one after the other; an abort overtakes."""
        while True:
            try:
                await self.sessions.claim(self.name)
                for record in await self.sessions.owned(self.name):
                    if record.id in self._halted or not await self._may_drive(record):
                        continue
                    live = self._live.get(record.id)
                    if live is None or live.task.done():
                        live = self._live[record.id] = LiveSession(self, record)
                        live.task = self._tasks.create_task(live.run())
                    await live.take(await self.sessions.orders(record.id))
            except Exception as failure:
                log.error(
                    "orders could not be read, trying again: %s",
                    failure,
                    exc_info=not isinstance(failure, HandraiseError),
                )
                await asyncio.sleep(RETRY)
                continue
            await self._changed.wait()
            self._changed.clear()

    def ended(self, session: str) -> None:
        """One of its orders was carried out, or broke."""
        if (awaited := self._awaited.get(session)) is not None:
            awaited.set()

    def forget(self, id: str) -> None:
        self._live.pop(id, None)
        self._changed.set()


class _Here:
    """The desk for agents of this machine that we did not start."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.withdraw, self.delivered, self.asks = desk.withdraw, desk.delivered, desk.asks

    async def ask(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Answer:
        return await self._desk.ask(await resolve(ask), handling=handling, ordinal=ordinal)


def _is_here(address: str) -> bool:
    """Whether an agent at this address is on this machine; a socket's path has no host."""
    try:
        return urlsplit(address).hostname in (None, "127.0.0.1", "localhost", "::1")
    except ValueError:
        return False


@contextmanager
def sole_worker(home: Path) -> Iterator[bool]:
    """Whether we are the one worker of this home, for as long as the context is open. Others of it have no sessions."""
    file = os.open(home / "worker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)
