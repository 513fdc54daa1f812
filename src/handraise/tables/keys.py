"""Keys of rows that are read in the order in which they were written."""

from __future__ import annotations

import secrets

__all__ = ["Keys"]


class Keys:
    """Keys sort in the order they are made here, and those of another process fall between by their time."""

    def __init__(self) -> None:
        self._last = (0, 0)
        self._suffix = secrets.token_hex(3)  # so that no other process makes the same key

    def make(self, at: int, *, after: str | None = None) -> str:
        """A key for this moment, in milliseconds; behind the key `after`, whoever's clock that came from."""
        if after is not None:
            at = max(at, int(after.partition("-")[0]) + 1)
        last, count = self._last
        self._last = (at, 0) if at > last else (last, count + 1)
        return f"{self._last[0]:013d}-{self._last[1]:06d}-{self._suffix}"
