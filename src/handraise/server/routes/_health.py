"""Whether the desk is well: `ok`, `degraded` while it still takes asks, `down` while it cannot even read.

Whoever asks needs no token, so nothing but codes is told; the sentences, which may name an address, go into the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Generic, Literal, NamedTuple, TypeVar

from handraise.broker.counts import Lag
from handraise.stores import Store

__all__ = ["PROBLEMS", "VERSION", "BoundedRead", "Condition", "Health"]

log = logging.getLogger(__name__)

T = TypeVar("T")

VERSION = version("handraise")  # read from a file, so only once

PATIENCE = 2.0  # seconds a database that is there takes at most to read one number
GIVEN_UP = 30.0  # seconds after which a read that never ended is left behind for a new one
SLOW = 0.5  # seconds
LATE = 1.0  # seconds

PROBLEMS = {
    "database_away": "the database does not answer",
    "write_failed": "the last write failed, and none has succeeded since",
    "not_listening": "what other desks do is heard late or not at all",
    "database_slow": f"the database took longer than {SLOW:g} s to read one number",
    "loop_lag": f"the desk came more than {LATE:g} s late to something within the last minute",
}
_OF_THE_STORE = {"writing": "write_failed", "reading": "database_away", "listening": "not_listening"}


class Condition(NamedTuple):
    status: Literal["ok", "degraded", "down"]
    problems: tuple[str, ...]  # of PROBLEMS


class BoundedRead(Generic[T]):
    """One read at a time, however many ask for it, and nobody waits longer than `seconds` after it began.

    A read that takes longer is not cancelled: a driver that waits for a silent database would not let go of its
    connection, and each next read would take another one. It ends with the store at the latest.
    """

    def __init__(self, read: Callable[[], Awaitable[T]], *, seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._began = 0.0
        self._running: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """Raises TimeoutError, and whatever the read raised."""
        loop = asyncio.get_running_loop()
        if self._running is None or loop.time() > self._began + GIVEN_UP:
            self._running = asyncio.create_task(self._run())
            self._running.add_done_callback(self._ended)
            self._began = loop.time()
        running = self._running
        await asyncio.wait([running], timeout=max(0.0, self._began + self._seconds - loop.time()))
        if not running.done():
            raise TimeoutError
        return running.result()

    async def _run(self) -> T:
        return await self._read()

    def _ended(self, task: asyncio.Task[T]) -> None:
        if self._running is task:
            self._running = None
        if not task.cancelled():
            task.exception()  # looked at, also where nobody waited for it


class Health:
    def __init__(self, store: Store, *, lag: Lag, patience: float = PATIENCE, slow: float = SLOW) -> None:
        self._store = store
        self._lag = lag
        self._slow = slow
        self._cursor = BoundedRead(store.cursor, seconds=patience)
        self._told = Condition("ok", ())

    async def look(self) -> Condition:
        """Reads from the database and waits at most `patience` for it. Safe to call often."""
        began = asyncio.get_running_loop().time()
        try:
            await self._cursor()
        except Exception as failure:  # whatever a driver raises, what is asked is whether it works
            why = str(failure) or "; ".join(self._store.troubles.values())
            return self._tell(Condition("down", ("database_away",)), why=why)
        took = asyncio.get_running_loop().time() - began
        found = [_OF_THE_STORE[what] for what in self._store.troubles]
        if took > self._slow:
            found.append("database_slow")
        if self._lag.worst > LATE:
            found.append("loop_lag")
        return self._tell(
            Condition("degraded" if found else "ok", tuple(found)), why="; ".join(self._store.troubles.values())
        )

    def _tell(self, condition: Condition, *, why: str) -> Condition:
        if condition != self._told:
            self._told = condition
            said = "; ".join(PROBLEMS[problem] for problem in condition.problems)
            if condition.status == "ok":
                log.info("the desk is well again")
            else:
                log.warning("the desk is %s: %s%s", condition.status, said, f" ({why})" if why else "")
        return condition
