"""The version of each program that was run with this release. Each agent's own are in its `versions.py`.

The tests take the versions that they run from there, the reference page is written from it, and `handraise agents` says
where what is installed differs. Nothing is looked up anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

__all__ = ["Known", "compare", "driven_version"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One program at one version, and how it asks. An adapter exports those that it runs as `versions`."""

    name: str  # of the program
    title: str
    version: str | None  # None: it is our own and has none
    seen: Literal["driven", "replayed", "read"] = "driven"
    package: str | None = None  # what brings it
    package_version: str | None = None  # where that counts otherwise than the program
    questions: str = ""  # how they reach the desk; empty: not at all
    permissions: str = ""
    attached: str = ""  # the same for a person's own, which we did not start
    mcp: bool = False  # it was driven as a client of our MCP server too
    note: str = ""


def driven_version(versions: Iterable[Known], *, agent: str, program: str | None) -> str | None:
    """The version of an agent that was driven. Of one that runs any program, that of `program`, if it was driven."""
    driven = {known.name: known.version for known in versions if known.seen == "driven"}
    return driven.get(agent) or driven.get(PurePath(program or "").name)


def compare(version: str | None, driven: str | None) -> Literal["newer", "older"] | None:
    """How an installed version stands to the driven one; None where they are the same or cannot be compared."""
    here, there = _numbers(version), _numbers(driven)
    if not here or not there or here == there:
        return None
    return "newer" if here > there else "older"


def _numbers(version: str | None) -> tuple[int, ...]:
    """1.2 and 1.2.0 are the same. What follows the numbers does not count."""
    found = re.match(r"\d{1,12}(?:\.\d{1,12})*", version or "")
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
