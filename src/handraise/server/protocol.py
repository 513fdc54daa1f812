"""uvicorn's HTTP protocol, with limits and with fewer writes.

A head that is too large, a body that is too slow and too many requests at once are refused here, before the app sees
them. A refusal is read: a connection whose caller still sends is closed only after that was read and thrown away, since
closing it at once would reset it, and the caller would never see why.

What is written within one turn of the loop is sent in one piece: a response is two writes in ASGI, its head and its
body, and each would be a system call and a packet of its own. A stream may write a chunk that is framed already, past
ASGI's `send`: one object in memory for all listeners, where `send` would copy it for each, and no task has to wake up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import httptools
from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from handraise.server.connections import Connections
from handraise.tables.tokens import Token
from handraise.transports.bodies import CONNECTION
from handraise.wire import LARGE

__all__ = ["WRITE_CHUNK", "LimitedProtocol"]

WRITE_CHUNK = "handraise.write_chunk"  # the ASGI extension: `(pieces of a chunk) -> bool`
FEW_CHUNKS, SHORTEST_CHUNK = 4096, 16  # so many chunks may be shorter than that; each costs a call


class _Refused(Exception):
    """Raised out of the parser."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class LimitedProtocol(HttpToolsProtocol):
    def __init__(self, *args: Any, connections: Connections, **named: Any) -> None:
        super().__init__(*args, **named)
        self.token: Token | None = None
        self._connections = connections
        self._limits = connections.limits
        self._refused: _Refused | None = None
        self._in_head = True  # a head is under way or comes next
        self._has_begun = False  # it is under way
        self._head = 0  # bytes of its lines that are whole
        self._fed = 0  # bytes that the parser was given of it
        self._has_more = False  # of a body
        self._since = 0.0  # when that body began
        self._body = 0  # bytes of it
        self._chunks = 0  # pieces it came in
        self._beside = 0  # bytes that came since its last piece and are none of it: what describes a chunk, trailers
        self._thrown_away = 0
        self._is_closing = False

    @property
    def is_busy(self) -> bool:
        """Worked on by the app; a request whose body is still under way is not."""
        cycle = self._cycle
        return cycle is not None and not cycle.response_complete and not self._has_more

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        """The last request, if there was one. uvicorn's own attribute is typed as if there always were."""
        return self.cycle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._joining = _Joining(transport, close=self._close)
        super().connection_made(self._joining)  # type: ignore[arg-type]
        self._connections.made(self, now=self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.lost(self)
        super().connection_lost(exc)

    # Reading ----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            self._throw_away(len(data))
            return
        was_in_head, body, since = self._in_head, self._body, self._since
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._unsupported_upgrade_warning()
        except httptools.HttpParserError:
            self._refuse(self._refused or _Refused(400, "bad_request", "this is no HTTP request"))
            return
        if self._has_begun:
            self._note_head(len(data) if was_in_head else 1)
        elif self._has_more:
            self._connections.send(self, self._deadline)
            is_same = not was_in_head and since == self._since
            self._note_beside(len(data) if is_same and body == self._body else 0)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= self._limits.pipelined:
            self._fail(503, "overloaded", "wait for the replies to earlier requests before you send more")
        super().on_message_begin()
        self._has_begun, self._head, self._fed = True, 0, 0
        self.scope["extensions"] = {WRITE_CHUNK: self._write_chunk}  # type: ignore[dict-item]
        self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        if len(self.headers) >= self._limits.headers:
            self._fail_head(f"this request has more than {self._limits.headers} headers; send fewer")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._has_begun, self._has_more, self._body, self._chunks = False, False, True, 0, 0
        self._since = self.loop.time()
        self._connections.heard(self, now=self._since, head=0)
        self._connections.begin(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        self._chunks += 1
        if self._chunks > FEW_CHUNKS + self._body // SHORTEST_CHUNK:
            self._fail(400, "bad_request", "the chunks of this body are too short; send it in larger ones")
        if self.cycle.response_complete:  # nobody reads it any more
            self._throw_away(len(body))
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._has_more, self._thrown_away = True, False, 0
        self._connections.send(self, None)
        super().on_message_complete()
        if self.cycle.response_complete and not self._is_closing:
            self._connections.rest(self, now=self.loop.time())

    def on_response_complete(self) -> None:
        """As uvicorn does it, but idle connections are closed by a sweep and not by a timer each."""
        self.server_state.total_requests += 1
        if self._joining.is_closing():
            self._connections.release(self)
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._connections.release(self)
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif not self._has_more:
            self._connections.rest(self, now=self.loop.time())

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > self._limits.head:
            self._fail_head(_too_large(self._limits.head))

    def _note_head(self, size: int) -> None:
        """The parser keeps a line until it is whole, so what it was given counts."""
        self._fed += size
        if self._fed > self._limits.head:
            self._refuse(_Refused(431, "head_too_large", _too_large(self._limits.head)))
        else:
            self._connections.heard(self, now=self.loop.time(), head=self._fed)

    def _note_beside(self, size: int) -> None:
        """The parser keeps a trailer until its line is whole, as it does with a header."""
        self._beside = self._beside + size if size else 0
        if self._beside <= self._limits.head:
            return
        if self.cycle.response_complete:  # it was told something already
            self.drop()
        else:
            self._refuse(_Refused(431, "head_too_large", _too_large(self._limits.head)))

    def _fail_head(self, message: str) -> None:
        self._fail(431, "head_too_large", message)

    def _fail(self, status: int, code: str, message: str) -> None:
        self._refused = _Refused(status, code, message)
        raise self._refused

    def _deadline(self) -> float:
        """When the body must be there. It does not count while we do not read."""
        if self.flow.read_paused:
            return float("inf")
        return self._since + self._limits.body_seconds + self._body / self._limits.slowest

    # What the app may ask for -----------------------------------------------------------------------------

    def enter(self, token: Token) -> None:
        """This connection is of a caller with this token. Raises Overloaded where such callers hold too many."""
        if token is not self.token:
            self._connections.admit(self, token)

    async def reserve(self, size: int) -> None:
        """Wait for room for a larger body. Raises Overloaded."""
        await self._connections.reserve(self, size)

    def streaming(self) -> AbstractContextManager[None]:
        """For as long as a stream lasts. Raises Overloaded where callers with this token have too many."""
        return nullcontext() if self.token is None else self._connections.streaming(self.token)

    def _write_chunk(self, chunk: Sequence[bytes]) -> bool:
        """Write it, unless the listener is behind or gone: then it is up to `send`, which waits or finds out."""
        if self.flow.write_paused or self.cycle.disconnected or self._joining.is_closing():
            return False
        self._joining.write_through(chunk)
        return True

    # Writing and closing ----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        unread = self._joining.get_write_buffer_size()
        self._connections.stop_reading(self, unread=unread, now=self.loop.time())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connections.read_again(self)

    def time_out(self) -> None:
        self._refuse(_Refused(408, "too_slow", "this request takes too long to arrive; send it faster"))

    def drop(self) -> None:
        self._joining.abort()

    def shutdown(self) -> None:
        if self._is_closing:
            self._joining.abort()
            return
        super().shutdown()

    def _refuse(self, refused: _Refused) -> None:
        """Say why and close, unless something else is being said or nothing was asked."""
        if self._joining.is_closing():
            return
        cycle = self._cycle
        has_asked = self._has_begun or self._has_more
        is_saying = cycle is not None and not cycle.response_complete and (cycle.response_started or not self._has_more)
        if is_saying or (refused.status == 408 and not has_asked):
            self._close(lingers=has_asked or refused.status != 408)
            return
        body = to_json({"error": refused.code, "message": refused.message})
        lines = (
            STATUS_LINE[refused.status],
            b"content-type: application/json\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n",
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body),
            body,
        )
        self._joining.write(b"".join(lines))
        self._close(lingers=True)

    def _close(self, *, lingers: bool = False) -> None:
        """Close, but not while the caller sends: then what it sends is read and thrown away until it stops."""
        if self._joining.is_closing():
            return
        self._joining.flush()
        if not lingers and not self._has_more:
            self._joining.end()
            return
        self._is_closing = True
        self._joining.is_closing = lambda: True
        self.pipeline.clear()
        cycle = self._cycle
        if cycle is not None and not cycle.response_complete:  # the app may wait for a body that is cut off
            cycle.disconnected = True
            cycle.message_event.set()
        self._connections.close(self, now=self.loop.time())
        self._joining.write_end()
        self.flow.resume_reading()

    def _throw_away(self, size: int) -> None:
        self._thrown_away += size
        if self._thrown_away > self._limits.thrown_away:
            self._joining.abort()


def _too_large(most: int) -> str:
    return f"the head of this request is longer than {most // 1024} kB; send less in its line and headers"


class _Joining:
    """A transport that gathers writes until the loop comes around, and lets the protocol decide how it is closed."""

    def __init__(self, transport: Any, *, close: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        # Asked for on every request; looked up once.
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.close = close

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces.append(data)

    def write_through(self, pieces: Sequence[bytes]) -> None:
        """Write them as they are, after what was gathered."""
        self.flush()
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)

    def write_end(self) -> None:
        """Nothing follows. TLS cannot say so without closing."""
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def end(self) -> None:
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def flush(self) -> None:
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            if self.is_closing():
                return
            if sum(map(len, pieces)) > LARGE:  # joining them would copy them
                self._transport.writelines(pieces)
            else:
                self._transport.write(b"".join(pieces))
