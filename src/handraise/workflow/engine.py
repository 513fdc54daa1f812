"""Takes up runs, for as long as its worker counts as alive, and hands them over when it leaves.

A worker has a lease, by the database's clock. One that could not renew it in time stops what it runs, agents and
commands too, before anybody else may start that: it trusts the last beat that was acknowledged for `SURE` of the lease.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from contextlib import suppress
from functools import partial

from handraise.clock import Clock
from handraise.errors import StoreError
from handraise.workflow.execution import ENDED_WITHIN, RETRY, Execution, RunContext, RunWorker
from handraise.workflow.flow import Authors
from handraise.workflow.journal import NEVER, Journal

__all__ = ["Engine"]

log = logging.getLogger(__name__)

TTL = 15.0  # seconds after which a worker that says nothing counts as dead
SURE = 0.8  # of them, in which it may rely on its last beat; the rest is for ending what runs
SLOTS = 100_000  # runs that one worker has at once; those that sleep are nobody's
BATCH = 200  # of them that it takes at a time, so that others get theirs


class _Dead(Exception):
    """This worker counts as dead, for the others or for itself."""


class Engine:
    """Use as an async context manager. Leaving it hands its runs over: nothing of them is ended."""

    def __init__(
        self,
        journal: Journal,
        worker: RunWorker,
        *,
        clock: Clock,
        ttl: float = TTL,
        slots: int = SLOTS,
        authors: Authors,
        is_alone: bool = False,
    ) -> None:
        """`authors` has the code of workflows. `is_alone`: no other process can reach the database, so nobody takes
        over while this one says nothing."""
        self._journal = journal
        self._worker = worker
        self._clock = clock
        self._ttl = ttl
        self._slots = slots
        self._is_alone = is_alone
        self._id = ""
        self._heard = 0.0  # when the last beat was sent that the database has acknowledged, by the clock of the loop
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._new: dict[str, float] = {}  # runs that were claimed, and when; without those that lasted
        self._cancelling: set[str] = set()
        self._changed = asyncio.Event()
        self._due: int | None = None  # when the first of those is to be woken that sleep, as far as we know
        self._context = RunContext(
            journal=journal,
            worker=worker,
            clock=clock,
            authors=authors,
            ttl=ttl,
            cancelling=self._cancelling,
            is_sure=self.is_sure,
            sleeps_until=self._sleeps_until,
        )

    async def serve(self) -> None:
        """Until cancelled. A worker that was declared dead stops all it runs, and begins anew under another name."""
        while True:
            self._id = f"{self._worker.name}-{secrets.token_hex(4)}"
            try:
                await self._live()
            except StoreError as trouble:
                log.warning("the database is away, so no run goes on here: %s", trouble)
            except Exception:
                log.exception("the engine of runs broke; it begins anew")
            await asyncio.sleep(min(1.0, self._ttl / 4))

    def is_sure(self) -> bool:
        """Whether nobody else can have our runs, by a clock that also runs while this process is stopped."""
        return self._is_alone or asyncio.get_running_loop().time() - self._heard < SURE * self._ttl

    async def _live(self) -> None:
        """One life of a worker: from registering to being declared dead."""
        self._heard = asyncio.get_running_loop().time()
        self._cancelling.clear()
        self._new.clear()
        await self._journal.register(self._id, name=self._worker.name, ttl=self._ttl)
        try:
            async with self._journal.changes() as self._changed, asyncio.TaskGroup() as tasks:
                tasks.create_task(self._beat())
                await self._take_runs(self._changed, tasks)
        except* _Dead as dead:
            log.warning("%s; its runs and their agents were stopped, and it begins anew", dead.exceptions[0])
        finally:
            # Bounded: with the database away, the lease ends by itself.
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(self._ttl / 4):
                    await self._journal.leave(self._id)

    async def _beat(self) -> None:
        """Renew the lease. Raises _Dead when it was lost, or when too long nobody said that it was not."""
        loop = asyncio.get_running_loop()
        pause = self._ttl / 4
        while True:
            await asyncio.sleep(max(0.0, self._heard + pause - loop.time()))
            sent = loop.time()
            left = math.inf if self._is_alone else self._heard + SURE * self._ttl - sent
            if left <= 0:
                await self._drop_all()
                raise _Dead(f"this worker could not renew its lease for {sent - self._heard:.1f} s")
            try:
                # One that hangs is none. Nothing is read here: to cancel that may take as long as the database does.
                async with asyncio.timeout(min(left, self._ttl)):
                    if not await self._journal.beat(self._id, ttl=self._ttl):
                        break
                self._heard = sent
            except (StoreError, TimeoutError) as trouble:
                log.warning("the lease of this worker could not be renewed: %s", str(trouble) or "no answer in time")
                await asyncio.sleep(min(RETRY, pause / 4))
        await self._drop_all()
        raise _Dead("this worker was thought dead")

    async def _drop_all(self) -> None:
        """End the agents first: what waits for a database that says nothing may take its time to be cancelled."""
        within = ENDED_WITHIN * self._ttl
        await asyncio.gather(*(self._worker.drop(run, within=within) for run in list(self._runs)))

    async def _lasted(self) -> None:
        """Runs that we have had for a while brought nobody down, so that having taken them up says nothing."""
        before = asyncio.get_running_loop().time() - self._ttl
        old = [run for run, since in self._new.items() if since < before]
        if old:
            await self._journal.lasted(self._id, old)
            for run in old:
                self._new.pop(run, None)

    async def _take_runs(self, changed: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        looked = -math.inf  # when the leases of the others were looked at
        while True:
            changed.clear()
            try:
                if loop.time() - looked >= self._ttl / 4 and self.is_sure():
                    looked = loop.time()
                    await self._journal.expire_dead_workers()
                    await self._lasted()
                    self._worker.other_workers_exist = await self._journal.other_workers_exist(self._id)
                    self._due = await self._journal.next_due()
                await self._wake_some()
                await self._cancel_some()
                claims = await self._journal.claim(self._id, limit=min(BATCH, self._slots - len(self._runs)))
                if len(claims) == BATCH:  # there may be more
                    changed.set()
                for claim in claims:
                    task = tasks.create_task(Execution(self._context, claim, before=self._runs.get(claim.run)).run())
                    self._runs[claim.run] = task
                    self._new[claim.run] = loop.time()
                    task.add_done_callback(partial(self._over, claim.run))
            except StoreError as trouble:  # whether we may go on with those we have is for the heart to say
                log.warning("no run can be taken up: %s", trouble)
                await asyncio.sleep(min(RETRY, self._ttl / 4))
                continue
            stop = None if self._due is None else self._clock.call_at(self._due, changed.set)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, looked + self._ttl / 4 - loop.time())):
                    await changed.wait()
            if stop is not None:
                stop()

    def _sleeps_until(self, until: int) -> None:
        """A run of ours falls asleep. What others leave asleep is seen in time, unless they are gone in between."""
        if until < NEVER and (self._due is None or until < self._due):
            self._due = until
            self._changed.set()

    async def _wake_some(self) -> None:
        if self._due is not None and self._due <= (now := self._clock.now()):
            await self._journal.wake(now=now)
            self._due = await self._journal.next_due()

    def _over(self, run: str, task: asyncio.Task[None]) -> None:
        if self._runs.get(run) is task:
            del self._runs[run]
            self._new.pop(run, None)
            self._cancelling.discard(run)

    async def _cancel_some(self) -> None:
        for run in await self._journal.cancelled(self._id):
            task = self._runs.get(run)
            if task is not None and run not in self._cancelling:
                self._cancelling.add(run)
                task.cancel()
