"""HTTP/1.1 and Server-Sent Events by hand on asyncio transports; what the bytes mean is not known here.

A general HTTP client would need as much of a core as the servers it is to measure.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

ResponseHandler = Callable[[bytes], None]
FramesHandler = Callable[[list[bytes], float], None]
Failure = asyncio.Future[None]
T = TypeVar("T")
AnyProtocol = TypeVar("AnyProtocol", bound=asyncio.Protocol)


class ServerMisbehaved(Exception):
    """A status, a silence or a closed connection that makes the measurement worthless."""


@dataclass(frozen=True)
class Target:
    """Where requests go; builds their bytes."""

    port: int
    token: str

    def get(self, path: str, *, last_event_id: int | None = None) -> bytes:
        resumed = "" if last_event_id is None else f"Last-Event-ID: {last_event_id}\r\n"
        return f"GET {path} {self._headers()}{resumed}\r\n".encode()

    def post(self, path: str, *, body: bytes) -> bytes:
        return self.post_head(path, length=len(body)) + body

    def post_head(self, path: str, *, length: int) -> bytes:
        return (
            f"POST {path} {self._headers()}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        ).encode()

    def _headers(self) -> str:
        return f"HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {self.token}\r\n"


class Connection(asyncio.Protocol):
    """One keep-alive connection, one request at a time; anything but a 2xx ends the measurement."""

    transport: asyncio.WriteTransport

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        self.handler: ResponseHandler | None = None
        self.unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def send(self, request: bytes, handler: ResponseHandler) -> None:
        self.handler = handler
        self.transport.write(request)

    async def request(self, request: bytes) -> bytes:
        """The body of the response, for what happens before the clock runs."""
        response = asyncio.get_running_loop().create_future()
        self.send(request, response.set_result)
        await asyncio.wait((response, self.failure), return_when=asyncio.FIRST_COMPLETED, timeout=30)
        if self.failure.done():
            self.failure.result()
        if not response.done():
            raise ServerMisbehaved(f"no response within 30 s to {request[:80]!r}")
        return bytes(response.result())

    def data_received(self, data: bytes) -> None:
        if self.unread:
            data = self.unread + data
        body = _body_of(data)
        if body is None:
            self.unread = data
            return
        self.unread = b""
        handler, self.handler = self.handler, None
        if handler is None or data[9:10] != b"2":
            fail(self.failure, f"unexpected response {data[:600]!r}")
            return
        handler(body)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.handler is not None:
            fail(self.failure, f"the connection was closed before the response came ({exc})")


class Stream(asyncio.Protocol):
    """One event stream, handed on as whole frames together with the moment they were read."""

    transport: asyncio.WriteTransport

    def __init__(self, failure: Failure, *, request: bytes, on_frames: FramesHandler) -> None:
        self.failure = failure
        self.request = request
        self.on_frames = on_frames
        self.opened = asyncio.get_running_loop().create_future()
        self.chunks = b""
        self.text = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now = perf_counter()
        self.chunks += data
        if not self.opened.done() and not self._read_head():
            return
        self._join_chunks()
        *frames, self.text = self.text.split(b"\n\n")
        if frames:
            self.on_frames(frames, now)

    def _read_head(self) -> bool:
        head, separator, rest = self.chunks.partition(b"\r\n\r\n")
        if not separator:
            return False
        if head[9:12] != b"200" or b"transfer-encoding: chunked" not in head.lower():
            fail(self.failure, f"unexpected response to the stream's request: {head!r}")
            return False
        self.opened.set_result(None)
        self.chunks = rest
        return True

    def _join_chunks(self) -> None:
        data, position, parts = self.chunks, 0, [self.text]
        while (line_end := data.find(b"\r\n", position)) >= 0:
            start = line_end + 2
            end = start + int(data[position:line_end], 16)
            if len(data) < end + 2:
                break
            parts.append(data[start:end])
            position = end + 2
        self.chunks = data[position:]
        self.text = b"".join(parts)

    def connection_lost(self, exc: Exception | None) -> None:
        fail(self.failure, f"the stream was closed ({exc})")


class Pool:
    """A few connections shared by many senders; a request waits here until one of them is free."""

    def __init__(self, client: "Client", connections: list[Connection]) -> None:
        self.client = client
        self.free = connections
        self.waiting: deque[tuple[bytes, Callable[[float], None]]] = deque()

    def send(self, request: bytes, on_written: Callable[[float], None]) -> None:
        if self.free:
            self._write(self.free.pop(), request, on_written)
        else:
            self.waiting.append((request, on_written))

    def _write(self, connection: Connection, request: bytes, on_written: Callable[[float], None]) -> None:
        def on_response(body: bytes) -> None:
            if self.waiting:
                self._write(connection, *self.waiting.popleft())
            else:
                self.free.append(connection)

        on_written(perf_counter())
        connection.send(request, on_response)


class Client:
    """Opens connections to one target; the first thing that goes wrong on any of them is its `failure`.

    Clients of several targets may share one.
    """

    def __init__(self, target: Target, *, failure: Failure | None = None) -> None:
        self.target = target
        self.failure: Failure = failure or asyncio.get_running_loop().create_future()

    async def connect(self, *, count: int) -> list[Connection]:
        """Opens them one after the other: a burst of a thousand would overrun a server's accept queue."""
        return [await self._open(lambda: Connection(self.failure)) for _ in range(count)]

    async def pool(self, *, size: int) -> Pool:
        return Pool(self, await self.connect(count=size))

    async def stream(self, path: str, *, on_frames: FramesHandler, last_event_id: int | None = None) -> None:
        request = self.target.get(path, last_event_id=last_event_id)
        stream = await self._open(lambda: Stream(self.failure, request=request, on_frames=on_frames))
        await asyncio.wait((stream.opened, self.failure), return_when=asyncio.FIRST_COMPLETED, timeout=10)
        if self.failure.done():
            self.failure.result()

    async def unless_failed(self, work: Awaitable[T]) -> T:
        """Wait for it, or raise as soon as something goes wrong."""
        task = asyncio.ensure_future(work)
        await asyncio.wait((task, self.failure), return_when=asyncio.FIRST_COMPLETED)
        if self.failure.done():
            task.cancel()
            self.failure.result()
        return task.result()

    async def _open(self, factory: Callable[[], AnyProtocol]) -> AnyProtocol:
        _, protocol = await asyncio.get_running_loop().create_connection(
            factory, host="127.0.0.1", port=self.target.port
        )
        return protocol


def fail(failure: Failure, message: str) -> None:
    if not failure.done():
        failure.set_exception(ServerMisbehaved(message))


def _body_of(data: bytes) -> bytes | None:
    """The body if the response is complete; these servers write header names in lower case."""
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0:
        return None
    start = head_end + 4
    at = data.find(b"content-length: ", 0, head_end)
    if at < 0:
        return b""
    end = start + int(data[at + 16 : data.index(b"\r", at)])
    return data[start:end] if len(data) >= end else None
