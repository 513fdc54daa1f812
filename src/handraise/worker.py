"""The worker: owns live sessions with agents. It knows the desk only as an asker, its sessions and their open asks.

Orders come from the database and every change goes back there, so whoever asked for it may be at another desk. A turn
that is under way when this process ends stays written as running: the worker that starts here next goes on with it.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from handraise.agents import (
    Agent,
    AgentSettings,
    Attachable,
    Capabilities,
    Cut,
    Haltable,
    HandlingAsker,
    Message,
    Reply,
    Session,
    Silent,
    Start,
    Watchable,
    Wire,
)
from handraise.agents._handled import Handled
from handraise.agents._versions import driven_version
from handraise.asks import Answer, Ask, Handling, State
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
    StoreError,
)
from handraise.plugins import load, names
from handraise.tables.raw_messages import Wires
from handraise.tables.sessions import NewSession, Order, SessionRecord, Sessions
from handraise.workflow.execution import Outcome

__all__ = ["Agents", "Desk", "Worker", "own_name", "sole_worker"]

log = logging.getLogger(__name__)

IDLE = 600.0  # seconds after which an agent that has nothing to do is let go; its session can go on later
RETRY = 1.0  # seconds until the database is asked again after it failed
LEAVE_WITHIN = 10.0  # seconds in which sessions are left when the worker stops
WATCH_AGAIN = 10.0  # seconds until an address that could not be watched is tried again
NOT_SHOWN = {"scripted"}  # agents for tests and demos


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


class Agents:
    """The agents of this machine by name, each made when it is first wanted."""

    def __init__(self, settings: Callable[[str], AgentSettings]) -> None:
        self._settings = settings
        self._made: dict[str, Agent] = {}

    def __getitem__(self, name: str) -> Agent:
        """Raises PluginNotFound."""
        if name not in self._made:
            self._made[name] = load("agents", name)(self._settings(name))
        return self._made[name]

    def settings(self, name: str) -> AgentSettings:
        """How the settings have it, whether or not there is an adapter of that name."""
        return self._settings(name)

    def put(self, agent: Agent, *, name: str | None = None) -> None:
        """Use this one for its name, or for another."""
        self._made[name or agent.name] = agent

    def attachable(self) -> list[Attachable]:
        """Those that people's own terminals may call us from."""
        usable: list[object] = [self._usable(name) for name in self.names()]
        return [agent for agent in usable if isinstance(agent, Attachable)]

    def _usable(self, name: str) -> Agent | None:
        """None where somebody's adapter cannot be loaded: that must hurt nobody else."""
        try:
            return self[name]
        except Exception as broken:
            log.error("the adapter of agent %s cannot be loaded: %s", name, broken, exc_info=not _ours(broken))
            return None

    def names(self) -> list[str]:
        return [name for name in names("agents") if name not in NOT_SHOWN]

    async def look(self, *, probe: bool = False) -> list[Capabilities]:
        return list(await asyncio.gather(*(self._look(name, probe=probe) for name in self.names())))

    async def _look(self, name: str, *, probe: bool) -> Capabilities:
        agent = self._usable(name)
        if agent is None:
            problem = f"the adapter of {name} cannot be loaded; the log of the desk says why"
            return Capabilities(agent=name, installed=False, problem=problem)
        try:
            found = await agent.look(probe=probe)
            return replace(
                found, driven=driven_version(getattr(agent, "versions", ()), agent=name, program=found.program)
            )
        except HandraiseError as failed:
            return Capabilities(agent=name, installed=False, problem=str(failed))

    async def close(self) -> None:
        for agent in self._made.values():
            await agent.close()


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
        self._live: dict[str, _Live] = {}
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
            or (ask.state in ("answered", "rejected") and ask.delivered_at is None and ask.delivery_error is None)
        )

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
                        live = self._live[record.id] = _Live(self, record)
                        live.task = self._tasks.create_task(live.run())
                    await live.take(await self.sessions.orders(record.id))
            except Exception as failure:
                log.error("orders could not be read, trying again: %s", failure, exc_info=not _ours(failure))
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


class _Outcome(NamedTuple):
    """How a session is after an order."""

    state: str
    error: str | None = None
    reply: str | None = None  # what the agent said at the end of the turn
    handle: Mapping[str, object] | None = None


class _Live:
    """One session while it is in this process."""

    task: asyncio.Task[None]

    def __init__(self, worker: Worker, record: SessionRecord) -> None:
        self._worker = worker
        self._record = record
        self.run_id = record.run
        self._session: Session | None = None
        self._port = _SessionPort(worker, record)
        self._orders: dict[str, Order] = {}
        self._done: set[str] = set()
        self._has_order = asyncio.Event()
        self._turn: asyncio.Task[Reply | None] | None = None
        self._stopping = False
        self._may_go = False
        self._aborted = ""  # why the turn was ended, where that was us
        self._outcome: _Outcome | None = None  # of the order that was carried out last

    async def take(self, orders: list[Order]) -> None:
        for order in orders:
            if order.id in self._orders or order.id in self._done:  # it may have been read before it was done
                continue
            self._orders[order.id] = order
            self._has_order.set()
            if order.kind != "prompt" and self._turn is not None:
                await self._abort("it was aborted")

    def stop(self) -> None:
        """The worker ends: leave the agent as it is."""
        if self._stopping:
            return
        self._stopping = True
        self._has_order.set()
        if self._turn is not None:
            self._turn.cancel()

    def let_go(self) -> None:
        """Nobody is likely to want more of it: leave the agent once it has nothing to do."""
        self._may_go = True
        self._has_order.set()

    async def run(self) -> None:
        keeping = asyncio.create_task(self._port.keep())
        staleness = asyncio.create_task(self._watch_staleness())
        try:
            await self._run()
        except Exception:
            log.exception("session %s broke", self._record.id)
            await self._write("failed", error="handraise broke here; the log of the worker says why")
            self._worker.ended(self._record.id)
        finally:
            staleness.cancel()
            await self._leave()
            await self._port.close()
            await asyncio.wait([keeping])
            self._worker.forget(self._record.id)  # an order that came meanwhile finds the session anew

    async def _run(self) -> None:
        while not self._stopping:
            order = next(iter(self._orders.values()), None)
            if order is None:
                if self._may_go:
                    return
                self._has_order.clear()
                try:
                    async with asyncio.timeout(IDLE):
                        await self._has_order.wait()
                except TimeoutError:
                    return
                continue
            if not await self._carry_out(order):
                return
            self._done.add(order.id)
            await self._end(order)
            del self._orders[order.id]

    async def _carry_out(self, order: Order) -> bool:
        """False where it is to be carried out by the next worker, or where the session is over."""
        if order.kind == "abort":
            return True
        if order.kind == "close":
            if self._session is not None:
                session, self._session = self._session, None
                await session.close()
            # Nobody else takes back what it asked before it was left.
            await self._worker.withdraw_asks(self._record.id, reason="its session was closed")
            self._outcome = _Outcome("done")
            await self._end(order)
            return False
        return await self._run_turn(order)

    async def _end(self, order: Order) -> None:
        """The order is carried out. How the session is after it goes into the same commit: a worker that died in
        between would leave a turn that is over and looks as if it were not, and the next one would run it again."""
        outcome, self._outcome = self._outcome, None
        writes = [self._worker.sessions.done(order, at=self._now(), reply=outcome.reply if outcome else None)]
        if outcome is not None:
            writes.append(self._write(outcome.state, error=outcome.error, handle=outcome.handle))
        await asyncio.gather(*writes)  # begun in one breath, they are in one batch of the store
        self._worker.ended(self._record.id)

    async def _run_turn(self, order: Order) -> bool:
        if not order.started:
            await self._worker.sessions.begin(order, at=self._now())
            await self._worker.sessions.said(self._record.id, Message(role="person", text=order.text), at=self._now())
        await self._write("running")
        self._aborted = ""
        self._turn = asyncio.create_task(self._turn_of(order))
        self._port.active()
        if any(later.kind != "prompt" for later in self._orders.values()):  # that was said before it began
            await self._abort("it was aborted")
        try:
            said = await self._turn
        except asyncio.CancelledError:
            if self._stopping or _own_task().cancelling():
                return False
            self._port.notice(f"The turn ended: {self._aborted or 'it was aborted'}.", turn="aborted")
            await self._port.kept()
            if self._session is None:  # it was still being opened, and nobody took up what it had asked before
                await self._worker.withdraw_asks(self._record.id, reason=self._aborted or "it was aborted")
            is_stale = self._aborted.startswith(STALE)
            self._outcome = _Outcome("failed", error=self._aborted) if is_stale else _Outcome("idle")
        except HandraiseError as failed:
            await self._fail(str(failed))
        except Exception:  # of the adapter; the same prompt would break it again
            log.exception("session %s broke", self._record.id)
            await self._fail("handraise broke here; the log of the worker says why")
        else:
            await self._port.kept()
            handle = self._session.handle if self._session is not None else None
            self._outcome = _Outcome("idle", reply=said.text if said is not None else "", handle=handle)
        finally:
            self._turn = None
        return True

    async def _fail(self, error: str) -> None:
        log.warning("session %s failed", self._record.id)
        self._port.notice(f"The turn failed: {error}", turn="failed")
        await self._port.kept()
        if self._session is not None:
            session, self._session = self._session, None
            with suppress(HandraiseError):
                await session.close()
        await self._worker.withdraw_asks(self._record.id, reason=f"the turn failed: {error}")
        self._outcome = _Outcome("failed", error=error)

    async def _turn_of(self, order: Order) -> Reply | None:
        """The turn of a prompt; one that had begun under a worker before us goes on, and is not said again."""
        if self._session is None:
            record = await self._worker.sessions.get(self._record.id)
            cut = None
            if record.handle is not None:
                under_way = order.text if order.started else None
                cut = Cut(handle=record.handle, prompt=under_way, asks=await self._worker.left_open(record.id))
            self._session = await self._open(record, cut=cut)
            await self._write("running", handle=self._session.handle)
            if cut is not None and order.started:
                return await self._session.go_on()
        return await self._session.prompt(order.text)

    async def _open(self, record: SessionRecord, *, cut: Cut | None) -> Session:
        start = Start(
            session=record.id,
            cwd=record.cwd,
            handling=record.handling,
            mode=record.mode,
            command=record.command,
            run=record.run,
            step=record.step,
            cut=cut,
            listener=self._port,
        )
        return await self._worker.agents[record.agent].open(Handled(self._port, record.handling), start)

    async def _abort(self, why: str) -> None:
        turn, session = self._turn, self._session
        if turn is None or turn.done():
            return
        self._aborted = self._aborted or why
        if session is None:  # it is still being started
            turn.cancel()
            return
        try:
            await session.abort()
        except HandraiseError as failed:
            log.warning("session %s could not be aborted: %s", self._record.id, failed.code)
        turn.cancel()

    async def _leave(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        try:
            is_handed_over = self._stopping and self.run_id is not None and self._worker.other_workers_exist
            if is_handed_over and isinstance(session, Haltable):
                self._worker.halted(self._record.id)
                await session.halt()
            else:
                await session.leave()
        except HandraiseError as failed:
            log.warning("session %s could not be left in order: %s", self._record.id, failed.code)

    async def _watch_staleness(self) -> None:
        """Stop a turn that gives no sign of life and waits for nobody."""
        limit = self._record.stale_after
        if limit is None:
            return
        while True:
            await self._port.silent_for(limit)
            if self._turn is not None and not self._turn.done():
                await self._abort(f"{STALE} for {limit:g} s")
            self._port.active()

    async def _write(self, state: str, *, error: str | None = None, handle: Mapping[str, object] | None = None) -> None:
        await self._worker.sessions.write(
            self._record.id,
            state=state,  # type: ignore[arg-type]
            error=error,
            handle=handle,
            at=self._now(),
            worker=self._worker.name,
        )

    def _now(self) -> int:
        return self._worker.clock.now()


STALE = "no sign of life"


class _SessionPort:
    """What a session says and does goes through here: to the desk, to the record, and to the stale timer."""

    def __init__(self, worker: Worker, record: SessionRecord) -> None:
        self._worker = worker
        self._record = record
        self._onlooker = worker.wires.of(record.id) if worker.wires is not None else Silent()
        self._said: asyncio.Queue[Message | None] = asyncio.Queue()
        self._open = 0
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._last = worker.clock.now()

    # The asker of the adapter. A wait for a person is no silence of the agent.

    async def ask(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Answer:
        if not self._worker.may_speak(self._record.run):
            await asyncio.Event().wait()  # another worker may have the run by now; we are about to be dropped
        self._open += 1
        self._none_open.clear()
        try:
            return await self._worker.desk.ask(await resolve(ask), handling=handling, ordinal=ordinal)
        finally:
            self.active()
            self._open -= 1
            if not self._open:
                self._none_open.set()

    async def withdraw(self, id: str, *, reason: str | None = None, answer: Answer | None = None) -> Ask:
        return await self._worker.desk.withdraw(id, reason=reason, answer=answer)

    def delivered(self, id: str, *, error: str | None = None) -> None:
        self._worker.desk.delivered(id, error=error)

    # The listener of the adapter.

    def said(self, message: Message) -> None:
        self.active()
        self._said.put_nowait(message)

    def active(self) -> None:
        self._last = self._worker.clock.now()

    def seen(self, wire: Wire) -> None:
        self._onlooker.seen(wire)

    def became(self, ask: str, *, request: str) -> None:
        self._onlooker.became(ask, request=request)

    def notice(self, text: str, **extra: str) -> None:
        self._said.put_nowait(Message(role="notice", text=text, extra=extra))

    async def keep(self) -> None:
        """Write down what is said, in order, until closed."""
        while (message := await self._said.get()) is not None:
            try:
                await self._worker.sessions.said(self._record.id, message, at=self._worker.clock.now())
            except StoreError as failure:
                log.error("what session %s said could not be written: %s", self._record.id, failure)
            self._said.task_done()
        self._said.task_done()

    async def kept(self) -> None:
        """Once everything said so far is written down."""
        await self._said.join()

    async def close(self) -> None:
        self._said.put_nowait(None)
        if self._worker.wires is not None:
            self._worker.wires.forget(self._record.id)

    async def silent_for(self, seconds: float) -> None:
        """Return when nothing was heard for so long while no ask was open."""
        clock = self._worker.clock
        while True:
            await self._none_open.wait()
            due = self._last + round(seconds * 1000)
            if clock.now() >= due:
                return
            later = asyncio.Event()
            cancel = clock.call_at(due, later.set)
            try:
                await later.wait()
            finally:
                cancel()


def _is_here(address: str) -> bool:
    """Whether an agent at this address is on this machine; a socket's path has no host."""
    try:
        return urlsplit(address).hostname in (None, "127.0.0.1", "localhost", "::1")
    except ValueError:
        return False


def _ours(failure: Exception) -> bool:
    return isinstance(failure, HandraiseError)


def _own_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


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
