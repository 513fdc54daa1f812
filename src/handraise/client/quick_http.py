"""HTTP calls with the standard library alone, for commands that make a few of them and end.

It starts in a fraction of the time that an HTTP library takes. What lives long, and streams, use `pooled_http`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from handraise.client.replies import Call, Lost, NotProven, NotSent, Reply
from handraise.errors import SettingsError
from handraise.transports import proof

__all__ = ["QuickHttp"]

CONNECT = 10.0  # seconds to reach an address
PROOF = 5.0  # seconds that a desk may take to prove itself
MOST_HEAD = 64 << 10  # bytes before the body of a reply
CHUNK = 64 << 10
MOST_IDLE = 20  # connections that are kept for the next call
_UNSAFE = re.compile(r"[^\x20-\x7e]")


class _Open(NamedTuple):
    """A connection that can take a call."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class QuickHttp:
    """Connections that take one call at a time, and are kept for the next one to the same address."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._idle: dict[str, list[_Open]] = {}

    async def request(self, call: Call) -> Reply:
        """Raises NotSent, NotProven and Lost."""
        sent = _bytes_of(call)
        opened = self._kept(call.url) or await self._connect(call)
        is_kept = False
        try:
            opened.writer.write(sent)
            reply, takes_more = await _Reading(opened.reader, silence=call.silence).reply()
            idle = self._idle.setdefault(call.url, [])
            is_kept = takes_more and len(idle) < MOST_IDLE
            if is_kept:
                idle.append(opened)
            return reply
        except (OSError, EOFError, ValueError) as problem:  # a time-out is an OSError too
            raise Lost(str(problem) or type(problem).__name__) from None
        finally:
            if not is_kept:
                opened.writer.transport.abort()

    async def close(self) -> None:
        for opened in (each for idle in self._idle.values() for each in idle):
            opened.writer.transport.abort()

    def _kept(self, url: str) -> _Open | None:
        idle = self._idle.get(url, [])
        while idle:
            opened = idle.pop()
            if not opened.reader.at_eof():
                return opened
            opened.writer.transport.abort()
        return None

    async def _connect(self, call: Call) -> _Open:
        """Raises NotSent. Where the desk has to prove itself it has done so when this returns."""
        at = urlsplit(call.url)
        port = at.port or (80 if self._context is None else 443)
        try:
            async with asyncio.timeout(CONNECT):
                opened = _Open(*await asyncio.open_connection(at.hostname, port, ssl=self._context))
        except OSError as problem:
            raise NotSent(str(problem) or type(problem).__name__) from None
        is_proven = call.key is None
        try:
            if call.key is not None:
                is_proven = await _is_proven(opened, url=call.url, key=call.key)
        finally:
            if not is_proven:
                opened.writer.transport.abort()
        if not is_proven:
            raise NotProven
        return opened


def _bytes_of(call: Call) -> bytes:
    at = urlsplit(call.url)
    fields = {"Host": at.netloc, "Accept": "*/*", "Accept-Encoding": "identity", **call.headers}
    if call.content is not None or call.method != "GET":
        fields["Content-Length"] = str(len(call.content or b""))
    lines = [f"{call.method} {at.path}{call.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    if any(_UNSAFE.search(line) for line in lines):
        raise SettingsError("a token or an address with a line break or a letter beyond ASCII cannot be sent")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (call.content or b"")


async def _is_proven(opened: _Open, *, url: str, key: str) -> bool:
    async def read() -> bytes:
        async with asyncio.timeout(PROOF):
            return await opened.reader.read(proof.LONGEST_REPLY)

    async def write(data: bytes) -> None:
        opened.writer.write(data)

    try:
        return await proof.is_proven(key, url=url, read=read, write=write)
    except OSError:
        return False


class _Reading:
    """One reply, read from a connection. Raises ValueError where it is no HTTP, and EOFError where it ends too soon."""

    def __init__(self, reader: asyncio.StreamReader, *, silence: float) -> None:
        self._reader = reader
        self._silence = silence

    async def reply(self) -> tuple[Reply, bool]:
        """The reply, and whether the connection takes another call."""
        status, fields = await self._head()
        while 100 <= status < 200:  # a remark before the reply
            status, fields = await self._head()
        media_type = fields.get("content-type", "").partition(";")[0].strip()
        keeps_open = fields.get("connection", "").lower() != "close"
        if status in (204, 304):
            return Reply(status, media_type, b""), keeps_open
        if (coding := fields.get("transfer-encoding")) is not None:
            if coding.strip().lower() != "chunked":
                raise ValueError(f"a transfer encoding that nobody asked for: {coding!r}")
            content = b"".join([chunk async for chunk in self._chunks()])
        elif (length := fields.get("content-length")) is not None:
            content = await self._exactly(_number(length, base=10))
        else:
            content, keeps_open = b"".join([part async for part in self._rest()]), False
        return Reply(status, media_type, content), keeps_open

    async def _head(self) -> tuple[int, dict[str, str]]:
        line = await self._line()
        version, _, rest = line.partition(" ")
        if version not in ("HTTP/1.1", "HTTP/1.0"):
            raise ValueError("what answers there does not speak HTTP")
        status = _number(rest[:3], base=10)
        fields: dict[str, str] = {"connection": "close"} if version == "HTTP/1.0" else {}
        size = len(line)
        while line := await self._line():
            size += len(line)
            name, colon, value = line.partition(":")
            if not colon or size > MOST_HEAD:
                raise ValueError("the head of the reply is broken or too long")
            fields[name.strip().lower()] = value.strip()
        return status, fields

    async def _line(self) -> str:
        """Without its end. A line is as long as the reader lets it be, 64 kB."""
        async with asyncio.timeout(self._silence):
            line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the connection ended within the reply")
        return line.decode("latin-1").rstrip("\r\n")

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := _number((await self._line()).partition(";")[0].strip(), base=16):
            yield await self._exactly(size)
            if await self._line():
                raise ValueError("a chunk of the reply is longer than it says")
        while await self._line():  # fields behind the body
            pass

    async def _exactly(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            content += await self._some(min(CHUNK, size - len(content)))
        return bytes(content)

    async def _rest(self) -> AsyncIterator[bytes]:
        with suppress(EOFError):
            while True:
                yield await self._some(CHUNK)

    async def _some(self, most: int) -> bytes:
        async with asyncio.timeout(self._silence):
            part = await self._reader.read(most)
        if not part:
            raise EOFError("the connection ended within the reply")
        return part


_DIGITS = {10: frozenset("0123456789"), 16: frozenset("0123456789abcdefABCDEF")}


def _number(text: str, *, base: int) -> int:
    """Digits alone: what `int` takes beyond them, such as a sign or an underscore, is no length."""
    if not text or len(text) > 15 or not _DIGITS[base].issuperset(text):
        raise ValueError("a number of the reply is broken")
    return int(text, base)
