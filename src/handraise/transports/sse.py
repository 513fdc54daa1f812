"""Server-sent events from bytes to frames. Knows nothing of what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Frame", "Frames"]


class Frame(NamedTuple):
    """One event of a stream. An id without data only says where the stream stands."""

    event: str
    data: str
    id: str | None


class Frames:
    """Feed it chunks as they arrive; it gives frames as they end. Lines end with LF, CR or CRLF and nothing else."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        self._rest += chunk
        if b"\r" in self._rest:
            held = self._rest.endswith(b"\r")  # it may be half of a CRLF
            text = self._rest[:-1] if held else self._rest
            self._rest = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + (b"\r" if held else b"")
        *blocks, self._rest = self._rest.split(b"\n\n")
        for block in blocks:
            frame = _frame(block)
            if frame is not None:
                yield frame


def _frame(block: bytes) -> Frame | None:
    event, data, id = "message", [], None
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", errors="replace")
        match name:
            case b"event":
                event = text
            case b"data":
                data.append(text)
            case b"id":
                id = text
    return Frame(event, "\n".join(data), id) if data or id is not None else None
