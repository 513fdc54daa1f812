"""Reading what others sent: whatever is not of the kind that is expected counts as not there. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["hunks", "mapping_of", "one_line", "rest_of", "text_of"]

LONGEST_LINE = 200
MOST_COMPARED = 500  # lines of a text up to which a diff is worked out; above, it is shown as removed and added


def text_of(mapping: Any, key: str) -> str:
    value = mapping.get(key) if isinstance(mapping, Mapping) else None
    return value if isinstance(value, str) else ""


def mapping_of(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = mapping.get(key)
    return value if isinstance(value, Mapping) else {}


def rest_of(entry: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any] | None:
    """What we do not know, kept as it came."""
    return {key: value for key, value in entry.items() if key not in known} or None


def one_line(text: str) -> str:
    """For a summary."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def hunks(old: str, new: str) -> list[str]:
    """The lines of a unified diff, without its head."""
    before, after = old.splitlines(), new.splitlines()
    if before and max(len(before), len(after)) <= MOST_COMPARED:
        return list(difflib.unified_diff(before, after, lineterm=""))[2:]
    head = f"@@ -{min(len(before), 1)},{len(before)} +{min(len(after), 1)},{len(after)} @@"
    return [head, *(f"-{line}" for line in before), *(f"+{line}" for line in after)]
