"""The desk itself: whether it is well, and proof of which desk it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from handraise.wire.fields import Count

Problem = Literal["database_away", "write_failed", "not_listening", "database_slow", "loop_lag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    proof: str

    EXAMPLE: ClassVar[Any] = {"proof": "5d9c68c6c50ed3d02a2fcf54f63993b65d9c68c6c50ed3d02a2fcf54f63993b6"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    status: Literal["ok", "degraded"]
    version: str
    problems: tuple[Problem, ...]

    EXAMPLE: ClassVar[Any] = {"status": "ok", "version": "0.1.0", "problems": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Down:
    error: Literal["store_failed"]
    message: str
    status: Literal["down"]
    version: str
    problems: tuple[Problem, ...]

    EXAMPLE: ClassVar[Any] = {
        "error": "store_failed",
        "message": "the database does not answer; the log of the desk says why",
        "status": "down",
        "version": "0.1.0",
        "problems": ["database_away"],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    cursor: Count

    EXAMPLE: ClassVar[Any] = {"cursor": 2}
