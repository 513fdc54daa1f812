"""One session while its agent runs in this process: carries out the orders of people and runs, one after the other.

A turn that is under way when this process ends stays written as running: the worker that starts here next goes on with
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from handraise.agents import Cut, Haltable, Message, Reply, Session, Start
from handraise.agents._handled import Handled
from handraise.agents._phrases import answer_told_again
from handraise.errors import HandraiseError
from handraise.tables.sessions import Order, SessionRecord
from handraise.worker.port import SessionPort

if TYPE_CHECKING:
    from handraise.worker import Worker

__all__ = ["LiveSession"]

log = logging.getLogger(__name__)

IDLE = 600.0  # seconds after which an agent that has nothing to do is let go; its session can go on later
STALE = "no sign of life"


class _Result(NamedTuple):
    """How a session is after an order."""

    state: str
    error: str | None = None
    reply: str | None = None  # what the agent said at the end of the turn
    handle: Mapping[str, object] | None = None


class LiveSession:
    task: asyncio.Task[None]

    def __init__(self, worker: Worker, record: SessionRecord) -> None:
        self._worker = worker
        self._record = record
        self.run_id = record.run
        self._session: Session | None = None
        self._port = SessionPort(worker, record)
        self._orders: dict[str, Order] = {}
        self._done: set[str] = set()
        self._has_order = asyncio.Event()
        self._turn: asyncio.Task[Reply | None] | None = None
        self._stopping = False
        self._may_go = False
        self._aborted = ""  # why the turn was ended, where that was us
        self._result: _Result | None = None  # of the order that was carried out last

    async def take(self, orders: list[Order]) -> None:
        for order in orders:
            if order.id in self._orders or order.id in self._done:  # it may have been read before it was done
                continue
            self._orders[order.id] = order
            self._has_order.set()
            if order.ends_turn and self._turn is not None:
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
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(self._port.keep())
            staleness = tasks.create_task(self._watch_staleness())
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
            self._result = _Result("done")
            await self._end(order)
            return False
        if order.kind == "deliver":
            return await self._deliver(order)
        return await self._run_turn(order)

    async def _deliver(self, order: Order) -> bool:
        """Tell the agent in words what it could not take before. Words grant nothing: what it does is asked anew."""
        ask = await self._worker.not_taken(self._record.id, order.text)
        if ask is None or ask.answer is None:
            return True
        if not await self._run_turn(replace(order, text=answer_told_again(ask, ask.answer))):
            return False
        if self._result is not None and self._result.reply is not None:
            self._worker.desk.delivered(ask.id)
        return True

    async def _end(self, order: Order) -> None:
        """The order is carried out. How the session is after it goes into the same commit: a worker that died in
        between would leave a turn that is over and looks as if it were not, and the next one would run it again."""
        result, self._result = self._result, None
        writes = [self._worker.sessions.done(order, at=self._now(), reply=result.reply if result else None)]
        if result is not None:
            writes.append(self._write(result.state, error=result.error, handle=result.handle))
        await asyncio.gather(*writes)  # begun in one breath, they are in one batch of the store
        self._worker.ended(self._record.id)

    async def _run_turn(self, order: Order) -> bool:
        if not order.started:
            await self._worker.sessions.begin(order, at=self._now())
            role: Literal["person", "notice"] = "person" if order.kind == "prompt" else "notice"
            await self._worker.sessions.said(self._record.id, Message(role=role, text=order.text), at=self._now())
        await self._write("running")
        self._aborted = ""
        turn = self._turn = asyncio.create_task(self._turn_of(order))
        self._port.active()
        try:
            if any(later.ends_turn for later in self._orders.values()):  # that was said before it began
                await self._abort("it was aborted")
            said = await turn
        except asyncio.CancelledError:
            if self._stopping or _own_task().cancelling():
                return False
            self._port.notice(f"The turn ended: {self._aborted or 'it was aborted'}.", turn="aborted")
            await self._port.kept()
            if self._session is None:  # it was still being opened, and nobody took up what it had asked before
                await self._worker.withdraw_asks(self._record.id, reason=self._aborted or "it was aborted")
            is_stale = self._aborted.startswith(STALE)
            self._result = _Result("failed", error=self._aborted) if is_stale else _Result("idle")
        except HandraiseError as failed:
            await self._fail(str(failed))
        except Exception:  # of the adapter; the same prompt would break it again
            log.exception("session %s broke", self._record.id)
            await self._fail("handraise broke here; the log of the worker says why")
        else:
            await self._port.kept()
            handle = self._session.handle if self._session is not None else None
            self._result = _Result("idle", reply=said.text if said is not None else "", handle=handle)
        finally:
            turn.cancel()
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
        self._result = _Result("failed", error=error)

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
        except Exception:  # of the adapter
            log.exception("session %s could not be aborted", self._record.id)
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


def _own_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task
