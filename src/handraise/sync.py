"""The blocking twin of `handraise.Desk`: the same object on a background loop, its methods wrapped, not repeated."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
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
        try:
            while True:
                try:
                    yield self._run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            if not self._living.done():
                self._run(_close(items))

    iterate.__doc__ = method.__doc__
    iterate.__name__ = getattr(method, "__name__", "iterate")
    return iterate


async def _next(items: AsyncIterator[R]) -> R:
    return await anext(items)


async def _close(items: AsyncIterator[Any]) -> None:
    if isinstance(items, AsyncGenerator):
        await items.aclose()


class Desk:
    """Raise a hand from a script without asyncio. Closed at the end of the `with`, by `close()`, or with the program.

    with Desk() as desk:
        answer = desk.ask("Which database?", "SQLite", "Postgres")
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="handraise-desk", daemon=True)
        self._thread.start()
        self._leave = asyncio.Event()
        ready: Future[client.Desk] = Future()
        # The desk is entered and left by one task, as task groups demand.
        self._living = asyncio.run_coroutine_threadsafe(self._live(ready, url, token, settings), self._loop)
        try:
            self._desk = ready.result()
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)  # a script that ends without closing ends as quietly

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what still runs and the thread it ran on. Raises what kept handlers from being served."""
        if self._loop.is_closed():
            return
        atexit.unregister(self.close)
        self._loop.call_soon_threadsafe(self._leave.set)
        try:
            self._living.result()
        finally:
            asyncio.run_coroutine_threadsafe(_tidy(), self._loop).result()
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
        self,
        ready: Future[client.Desk],
        url: str | Sequence[str] | None,
        token: str | None,
        settings: Settings | None,
    ) -> None:
        try:
            desk = client.Desk(url, token=token, settings=settings)
        except Exception as failure:
            ready.set_exception(failure)
            return
        async with desk:
            ready.set_result(desk)
            await self._leave.wait()

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        if self._living.done():
            work.close()
            self._living.result()  # why handlers could not be served, which ended this desk
            raise RuntimeError("this desk was closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException as failure:  # Ctrl+C in the caller ends the call on the loop too
            future.cancel()
            if isinstance(failure, RuntimeError | CancelledError) and self._living.done():
                self._living.result()
            raise


async def _tidy() -> None:
    """End what a caller left behind when it was interrupted."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


async def _register(on: Callable[[client.Handler], client.Handler], handler: client.Handler) -> None:
    async def threaded(ask: Any) -> Any:
        said = await _in_a_thread(handler, ask)
        return await said if inspect.isawaitable(said) else said

    on(threaded)


async def _in_a_thread(handler: client.Handler, ask: Any) -> Any:
    """A thread that ends with the program, where one of a pool would keep it from ending while a handler blocks."""
    said: Future[Any] = Future()

    def call() -> None:
        said.set_running_or_notify_cancel()
        try:
            said.set_result(handler(ask))
        except Exception as failure:
            said.set_exception(failure)
        except BaseException as leaving:  # sys.exit() in a handler ends the handler, not the desk
            said.set_exception(RuntimeError(f"the handler ended with {leaving!r}"))

    threading.Thread(target=call, name="handraise-handler", daemon=True).start()
    return await asyncio.wrap_future(said)
