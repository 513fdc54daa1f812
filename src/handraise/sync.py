"""The blocking twin of `handraise.Desk`: the same object on a background loop, its methods wrapped, not repeated."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from handraise import client
from handraise.config import Settings

__all__ = ["Desk"]

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    method: Callable[Concatenate[client.Desk, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Desk, P], R]:
    def call(self: Desk, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(method(self._desk, *args, **kwargs))

    call.__doc__ = method.__doc__
    call.__name__ = getattr(method, "__name__", "call")
    return call


def _iterating(
    method: Callable[Concatenate[client.Desk, P], AsyncIterator[R]],
) -> Callable[Concatenate[Desk, P], Iterator[R]]:
    def iterate(self: Desk, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        items = method(self._desk, *args, **kwargs)
        while True:
            try:
                yield self._run(_next(items))
            except StopAsyncIteration:
                return

    iterate.__doc__ = method.__doc__
    iterate.__name__ = getattr(method, "__name__", "iterate")
    return iterate


async def _next(items: AsyncIterator[R]) -> R:
    return await anext(items)


class Desk:
    """Raise a hand from a script without asyncio.

    with Desk() as desk:
        answer = desk.ask("Which database?", "SQLite", "Postgres")
    """

    def __init__(self, url: str | None = None, *, token: str | None = None, settings: Settings | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="handraise-desk", daemon=True)
        self._thread.start()
        self._leave = asyncio.Event()
        ready: asyncio.Future[client.Desk] = self._run(_future())
        # The desk is entered and left by one task, as task groups demand.
        self._living = asyncio.run_coroutine_threadsafe(self._live(ready, url, token, settings), self._loop)
        self._desk: client.Desk = self._run(_wait(ready))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._leave.set)
        self._living.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    ask = _blocking(client.Desk.ask)
    reply_question = _blocking(client.Desk.reply_question)
    reject_question = _blocking(client.Desk.reject_question)
    watch = _iterating(client.Desk.watch)
    asks = _iterating(client.Desk.asks)

    def on_question(self, handler: client.Handler) -> client.Handler:
        """As `handraise.Desk.on_question`; the handler runs in a thread of its own and may block."""
        self._run(_register(self._desk.on_question, handler))
        return handler

    def on_permission(self, handler: client.Handler) -> client.Handler:
        """As `handraise.Desk.on_permission`; the handler runs in a thread of its own and may block."""
        self._run(_register(self._desk.on_permission, handler))
        return handler

    async def _live(
        self, ready: asyncio.Future[client.Desk], url: str | None, token: str | None, settings: Settings | None
    ) -> None:
        try:
            async with client.Desk(url, token=token, settings=settings) as desk:
                ready.set_result(desk)
                await self._leave.wait()
        except BaseException as failure:
            if ready.done():
                raise
            ready.set_exception(failure)

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl+C in the caller ends the call on the loop too
            future.cancel()
            raise


async def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


async def _wait(future: asyncio.Future[R]) -> R:
    return await future


async def _register(on: Callable[[client.Handler], client.Handler], handler: client.Handler) -> None:
    async def threaded(ask: Any) -> Any:
        return await asyncio.to_thread(handler, ask)

    on(threaded)
