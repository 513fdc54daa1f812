"""Server-sent events from bytes to frames. Knows nothing of what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from handraise.errors import HandraiseError

__all__ = ["LARGEST_EVENT", "EventTooLarge", "Frame", "Frames"]

LARGEST_EVENT = 64 * 1024 * 1024  # bytes; the result of an agent's tool is one event


class EventTooLarge(HandraiseError):
    """The other side sent an event beyond the limit. What came of it is dropped, and so should be the stream."""

    code = "event_too_large"


class Frame(NamedTuple):
    """One event of a stream. An id without data only says where the stream stands."""

    event: str
    data: str
    id: str | None


class Frames:
    """Feed it chunks as they arrive; it gives frames as they end. Lines end with LF, CR or CRLF and nothing else.

    Every byte is looked at once, however many chunks an event comes in.
    """

    def __init__(self, *, most: int = LARGEST_EVENT) -> None:
        self._most = most
        self._lines: list[bytes] = []  # of the event that has not ended
        self._line: list[bytes] = []  # the parts of its last line
        self._size = 0  # bytes of both
        self._ended_with_cr = False

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that end in this chunk. Raises EventTooLarge."""
        if not chunk:
            return
        if self._ended_with_cr:
            chunk = chunk.removeprefix(b"\n")  # the other half of a CRLF
        self._ended_with_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._add(part)
            line, self._line = b"".join(self._line), []
            if line:
                self._lines.append(line)
                continue
            lines, self._lines, self._size = self._lines, [], 0
            frame = _frame(lines)
            if frame is not None:
                yield frame
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._most:
            self._lines, self._line, self._size = [], [], 0
            raise EventTooLarge(f"an event of the stream is larger than {self._most:,} bytes; it was not read")
        self._line.append(part)


def _frame(lines: list[bytes]) -> Frame | None:
    event, data, id = "message", [], None
    for line in lines:
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
