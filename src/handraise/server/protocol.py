"""uvicorn's HTTP protocol with two differences, both about writing less often.

What is written within one turn of the loop is sent in one piece: a response is two writes in ASGI, its head and its
body, and each would be a system call and a packet of its own.

A stream may write a chunk that is framed already, past ASGI's `send`: one object in memory for all listeners, where
`send` would copy it for each, and no task has to wake up.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["WRITE_CHUNK", "JoiningProtocol"]

WRITE_CHUNK = "handraise.write_chunk"  # the ASGI extension: `(chunk) -> bool`


class JoiningProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._joining = _Joining(transport)
        super().connection_made(self._joining)  # type: ignore[arg-type]

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {WRITE_CHUNK: self._write_chunk}  # type: ignore[dict-item]

    def _write_chunk(self, chunk: bytes) -> bool:
        """Write it, unless the listener is behind or gone: then it is up to `send`, which waits or finds out."""
        if self.flow.write_paused or self.cycle.disconnected or self._joining.is_closing():
            return False
        self._joining.write_through(chunk)
        return True


class _Joining:
    """A transport that gathers writes until the loop comes around."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        # Asked for on every request; looked up once.
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)

    def write_through(self, data: bytes) -> None:
        """Write as it is, after what was gathered."""
        self._flush()
        self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            if not self._transport.is_closing():
                self._transport.write(b"".join(pieces))
