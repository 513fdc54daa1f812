"""Owners of tasks: whoever starts work beside their own ends it, and sees how it ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

__all__ = ["Tasks", "running"]

log = logging.getLogger(__name__)
T = TypeVar("T")


class Tasks:
    """The tasks of one object or one block, which ends them. Unlike a TaskGroup, one that breaks ends no other."""

    def __init__(self, *, complaint: str = "") -> None:
        """`complaint` is logged with what a task raises. Without one, whoever awaits the task sees that."""
        self._complaint = complaint
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    async def close(self, *, within: float = 0.0) -> None:
        """End those that still run after so many seconds. Cancelling this call cancels them at once."""
        own = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not own]
        try:
            if tasks and within:
                await asyncio.wait(tasks, timeout=within)
        finally:
            for task in tasks:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._complaint:
            log.error("%s", self._complaint, exc_info=error)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run it for as long as the context is open, or shorter. What it raises, whoever awaits the task sees."""
    async with Tasks() as tasks:
        yield tasks.start(work)
