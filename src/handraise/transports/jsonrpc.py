"""JSON-RPC over the lines of a process: requests, notifications and answers in both directions. No idea what they mean.

Each direction counts its own ids, so an id alone names nothing: what we asked and what we were asked are kept apart.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import count
from typing import Any, Literal, Protocol, TypeAlias

from handraise.errors import HandraiseError
from handraise.tasks import Tasks

__all__ = [
    "CANCELLED",
    "INTERNAL",
    "INVALID_PARAMS",
    "METHOD_NOT_FOUND",
    "JsonRpc",
    "Lines",
    "PeerGone",
    "RpcError",
    "Seen",
]

log = logging.getLogger(__name__)

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL, CANCELLED = -32601, -32602, -32603, -32800

Id: TypeAlias = int | str
Params: TypeAlias = Mapping[str, Any]


class RpcError(HandraiseError):
    """What the other side answered instead of a result, or what we answer it."""

    code = "rpc_error"

    def __init__(self, message: str, *, number: int = INTERNAL, data: Any = None) -> None:
        super().__init__(message, number=number, data=data)
        self.number = number
        self.data = data


class PeerGone(HandraiseError):
    """The other side ended before it answered."""

    code = "peer_gone"


class Lines(Protocol):
    """What carries the messages, such as a `Process`."""

    async def write_line(self, line: bytes) -> None: ...

    def lines(self) -> AsyncIterator[bytes]: ...


Asked: TypeAlias = Callable[[Id, str, dict[str, Any]], Awaitable[Any]]
Told: TypeAlias = Callable[[str, dict[str, Any]], None]


class Seen(Protocol):
    """Who looks on: every message, with the method it is about. `request` is the id of what the other side asks."""

    def __call__(self, way: Literal["in", "out"], message: Any, *, method: str, request: Id | None) -> None: ...


class JsonRpc:
    """One connection. Whoever owns it keeps `listen` running; everything else waits for what that hears.

    `asked` answers a request of the other side: its result, or an RpcError. Each runs in a task of its own, so that one
    that waits for a person holds up nothing. `told` hears notifications, in order.
    """

    def __init__(
        self, lines: Lines, *, asked: Asked, told: Told, version: str | None = "2.0", seen: Seen | None = None
    ) -> None:
        """`version` is what messages carry as `jsonrpc`; None leaves it out, as Codex does."""
        self._lines = lines
        self._asked = asked
        self._told = told
        self._seen = seen
        self._head: dict[str, Any] = {} if version is None else {"jsonrpc": version}
        self._numbers = count(1)
        self._waiting: dict[Id, asyncio.Future[Any]] = {}
        self._methods: dict[Id, str] = {}  # of what we asked
        self._answering: dict[Id, asyncio.Task[None]] = {}
        self._tasks = Tasks()
        self._is_over = False

    async def listen(self) -> None:
        """Hear the other side until its output ends. Then what we still asked raises PeerGone, and what it asked is
        dropped: nobody is there to be answered."""
        try:
            async for line in self._lines.lines():
                self._take(line)
        finally:
            self._is_over = True
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(PeerGone("it ended before it answered"))
                    waiting.exception()  # whoever asked may be gone too
            await self._tasks.close()

    async def request(self, method: str, params: Params | None = None) -> Any:
        """The result. Raises RpcError with the other side's words, PeerGone. Cancelling stops only the waiting."""
        if self._is_over:
            raise PeerGone("it has ended")
        id = next(self._numbers)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[id], self._methods[id] = answered, method
        try:
            message = {"id": id, "method": method} | ({} if params is None else {"params": params})
            await self._write(message, method=method)
            return await answered
        finally:
            del self._waiting[id], self._methods[id]

    async def notify(self, method: str, params: Params | None = None) -> None:
        await self._write({"method": method} | ({} if params is None else {"params": params}), method=method)

    def forget(self, id: Id) -> bool:
        """Stop working on a request of the other side and answer it nothing. False if there is none."""
        task = self._answering.pop(id, None)
        if task is not None:
            task.cancel()
        return task is not None

    def _take(self, line: bytes) -> None:
        """A line that is no message is logged and hurts nobody else."""
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except ValueError:
            log.warning("a line of %d bytes is not JSON", len(line))
            self._look("in", line.decode(errors="backslashreplace"))
            return
        if not isinstance(message, dict):
            log.warning("a line is no message")
            self._look("in", message)
            return
        id, method, params = message.get("id"), message.get("method"), message.get("params")
        given = params if isinstance(params, dict) else {}
        if isinstance(method, str) and isinstance(id, int | str) and not isinstance(id, bool):
            self._look("in", message, method=method, request=id)
            self._serve(id, method, given)
        elif isinstance(method, str):
            self._look("in", message, method=method)
            self._hear(method, given)
        else:
            self._look("in", message, method=self._methods.get(id, "") if isinstance(id, int | str) else "")
            self._answered(message)

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        try:
            self._told(method, params)
        except Exception:
            log.exception("the notification %s was not understood", method[:100])

    def _answered(self, message: Mapping[str, Any]) -> None:
        id = message.get("id")
        waiting = self._waiting.get(id) if isinstance(id, int | str) else None
        if waiting is None or waiting.done():
            log.warning("an answer came to nothing that was asked")
            return
        error = message.get("error")
        if error is None:
            waiting.set_result(message.get("result"))
            return
        told = error if isinstance(error, dict) else {}
        number = told.get("code")
        waiting.set_exception(
            RpcError(
                str(told.get("message") or "it did not say why"),
                number=number if isinstance(number, int) else INTERNAL,
                data=told.get("data"),
            )
        )

    def _serve(self, id: Id, method: str, params: dict[str, Any]) -> None:
        if id in self._answering:
            log.warning("the id of an open request came again with %s; it is dropped", method[:100])
            return
        task = self._answering[id] = self._tasks.start(self._answer(id, method, params))
        task.add_done_callback(lambda done: self._done(id, done))

    def _done(self, id: Id, task: asyncio.Task[None]) -> None:
        if self._answering.get(id) is task:
            del self._answering[id]

    async def _answer(self, id: Id, method: str, params: dict[str, Any]) -> None:
        try:
            reply: dict[str, Any] = {"result": await self._asked(id, method, params)}
        except RpcError as refused:
            reply = {"error": {"code": refused.number, "message": refused.message}}
            if refused.data is not None:
                reply["error"]["data"] = refused.data
        except HandraiseError as failed:
            log.warning("the request %s became no answer: %s", method[:100], failed.code)
            reply = {"error": {"code": INTERNAL, "message": failed.message}}
        except Exception:
            log.exception("the request %s broke", method[:100])
            reply = {"error": {"code": INTERNAL, "message": "the request could not be read"}}
        if self._answering.get(id) is not asyncio.current_task():
            return  # forgotten at this very moment
        try:
            await self._write({"id": id} | reply, method=method, request=id)
        except HandraiseError:
            return  # it is gone, which `listen` notices

    async def _write(self, message: Mapping[str, Any], *, method: str, request: Id | None = None) -> None:
        whole = {**self._head, **message}
        self._look("out", whole, method=method, request=request)
        await self._lines.write_line(json.dumps(whole, separators=(",", ":")).encode())

    def _look(self, way: Literal["in", "out"], message: Any, *, method: str = "", request: Id | None = None) -> None:
        if self._seen is not None:
            self._seen(way, message, method=method, request=request)
