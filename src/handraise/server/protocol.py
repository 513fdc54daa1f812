"""uvicorn's HTTP protocol with one difference: what is written within one turn of the loop is sent in one piece.

A response is two writes in ASGI, its head and its body, and each would be a system call and a packet of its own.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["JoiningProtocol"]


class JoiningProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(_Joining(transport))  # type: ignore[arg-type]


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
