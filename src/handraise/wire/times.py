"""Times as texts: RFC 3339 in UTC. Inside, a time is milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

__all__ = ["time_text", "to_milliseconds", "to_time"]


@lru_cache(maxsize=4096)
def time_text(milliseconds: int) -> str:
    """RFC 3339 in UTC with milliseconds. A time is told several times, in events and replies, so it is kept."""
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def to_time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def to_milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
