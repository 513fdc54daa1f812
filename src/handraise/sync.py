"""The blocking twin of `handraise.Desk`: the same object on a background loop, its methods wrapped, not repeated."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from handraise import client
from handraise.client import agents, asks, audit, channels, chats, rules, runs, sessions, tokens, trust
from handraise.config import Settings

__all__ = ["Desk"]

P = ParamSpec("P")
R = TypeVar("R")


class _Blocking(Protocol):
    """What is wrapped, and how its coroutines are run."""

    _wrapped: Any

    def _run(self, work: Coroutine[Any, Any, R]) -> R: ...

    def _is_over(self) -> bool: ...


def _blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    def call(self: _Blocking, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(method(self._wrapped, *args, **kwargs))

    call.__doc__ = method.__doc__
    call.__name__ = getattr(method, "__name__", "call")
    return call


def _iterating(method: Callable[Concatenate[Any, P], AsyncIterator[R]]) -> Callable[Concatenate[Any, P], Iterator[R]]:
    def iterate(self: _Blocking, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        items = method(self._wrapped, *args, **kwargs)
        try:
            while True:
                try:
                    yield self._run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            if not self._is_over():
                self._run(_close(items))

    iterate.__doc__ = method.__doc__
    iterate.__name__ = getattr(method, "__name__", "iterate")
    return iterate


async def _next(items: AsyncIterator[R]) -> R:
    return await anext(items)


async def _close(items: AsyncIterator[Any]) -> None:
    if isinstance(items, AsyncGenerator):
        await items.aclose()


class _Resource:
    """One kind of thing that a desk has, as in `handraise.client`."""

    def __init__(self, desk: Desk, wrapped: Any) -> None:
        self._wrapped = wrapped
        self._run = desk._run
        self._is_over = desk._is_over


class Asks(_Resource):
    withdraw = _blocking(asks.Asks.withdraw)
    answer = _blocking(asks.Asks.answer)
    reject = _blocking(asks.Asks.reject)
    keep_waiting = _blocking(asks.Asks.keep_waiting)
    deliver_again = _blocking(asks.Asks.deliver_again)
    link = _blocking(asks.Asks.link)
    get = _blocking(asks.Asks.get)
    wait = _blocking(asks.Asks.wait)
    __call__ = _iterating(asks.Asks.__call__)


class Sessions(_Resource):
    list = _blocking(sessions.Sessions.list)
    get = _blocking(sessions.Sessions.get)
    start = _blocking(sessions.Sessions.start)
    prompt = _blocking(sessions.Sessions.prompt)
    abort = _blocking(sessions.Sessions.abort)
    close = _blocking(sessions.Sessions.close)
    messages = _blocking(sessions.Sessions.messages)


class Runs(_Resource):
    list = _blocking(runs.Runs.list)
    get = _blocking(runs.Runs.get)
    start = _blocking(runs.Runs.start)
    cancel = _blocking(runs.Runs.cancel)
    retry = _blocking(runs.Runs.retry)
    rerun = _blocking(runs.Runs.rerun)
    trace = _blocking(runs.Runs.trace)


class Checkpoints(_Resource):
    list = _blocking(runs.Checkpoints.list)
    get = _blocking(runs.Checkpoints.get)
    give = _blocking(runs.Checkpoints.give)


class Workflows(_Resource):
    list = _blocking(runs.Workflows.list)


class Chats(_Resource):
    list = _blocking(chats.Chats.list)
    get = _blocking(chats.Chats.get)
    begin = _blocking(chats.Chats.begin)
    say = _blocking(chats.Chats.say)
    rename = _blocking(chats.Chats.rename)
    stop = _blocking(chats.Chats.stop)
    retry = _blocking(chats.Chats.retry)
    delete = _blocking(chats.Chats.delete)


class Rules(_Resource):
    list = _blocking(rules.Rules.list)
    add = _blocking(rules.Rules.add)
    test = _blocking(rules.Rules.test)
    remove = _blocking(rules.Rules.remove)


class Tokens(_Resource):
    list = _blocking(tokens.Tokens.list)
    add = _blocking(tokens.Tokens.add)
    revoke = _blocking(tokens.Tokens.revoke)
    sign_in = _blocking(tokens.Tokens.sign_in)


class Channels(_Resource):
    list = _blocking(channels.Channels.list)
    test = _blocking(channels.Channels.test)
    showings = _blocking(channels.Channels.showings)


class Audit(_Resource):
    lines = _iterating(audit.Audit.lines)


class Agents(_Resource):
    list = _blocking(agents.Agents.list)


class Trust(_Resource):
    get = _blocking(trust.Trust.get)
    allow = _blocking(trust.Trust.allow)
    forget = _blocking(trust.Trust.forget)


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
            self._wrapped = ready.result()
        except BaseException:
            self.close()
            raise
        self.asks = Asks(self, self._wrapped.asks)
        self.sessions = Sessions(self, self._wrapped.sessions)
        self.runs = Runs(self, self._wrapped.runs)
        self.checkpoints = Checkpoints(self, self._wrapped.checkpoints)
        self.workflows = Workflows(self, self._wrapped.workflows)
        self.chats = Chats(self, self._wrapped.chats)
        self.rules = Rules(self, self._wrapped.rules)
        self.tokens = Tokens(self, self._wrapped.tokens)
        self.channels = Channels(self, self._wrapped.channels)
        self.audit = Audit(self, self._wrapped.audit)
        self.agents = Agents(self, self._wrapped.agents)
        self.trust = Trust(self, self._wrapped.trust)
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

    def on_question(self, handler: client.Handler) -> client.Handler:
        """As `handraise.Desk.on_question`; the handler runs in a thread of its own and may block."""
        self._run(_register(self._wrapped.on_question, handler))
        return handler

    def on_permission(self, handler: client.Handler) -> client.Handler:
        """As `handraise.Desk.on_permission`; the handler runs in a thread of its own and may block."""
        self._run(_register(self._wrapped.on_permission, handler))
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

    def _is_over(self) -> bool:
        return self._living.done()

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
