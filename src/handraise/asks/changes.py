"""What a diff changes, and what a call that changes files says besides the diff that people see. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

from handraise.asks import Permission

__all__ = ["LONGEST_SPLIT", "besides_change", "changed_files", "is_more_text", "named_files"]

LONGEST_SPLIT = 128 * 1024  # characters of a diff, or of a file, whose lines are told apart
LONGEST_COMPARED = 2_000  # characters of a text that is looked for in a longer one
MOST_PARTS = 50  # lines that are looked for as parts of others
DEEPEST = 8
_OLD = ("old_string", "old_str", "oldText", "oldString", "old")
_NEW = ("new_string", "new_str", "newText", "newString", "new")
# They say how a change is told, and nothing of what it does.
_TELLING = frozenset({"type", "kind", "relativePath", "status", "diff", "patch", "patchText"})
# What the model says of it.
_WORDS = frozenset({"description", "explanation", "instruction", "instructions", "note", "reason", "title", "summary"})
# The whole file as it will be, of which a diff shows only what changes.
_WHOLE = frozenset({"content", "contents", "text", "file_text", "newText"})
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NAMES = re.compile(r"^--- (.+)\n\+\+\+ (.+)$|^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_PATCHED = re.compile(r"\*\*\* (?:Add|Update|Delete) File: (.+)")


def besides_change(permission: Permission) -> dict[str, Any]:
    """The arguments of a call that its diff, its paths and its folder do not show, in the form they have."""
    if permission.diff is None:
        return {}
    left = _Shown(permission).without(permission.input or {})
    return left if isinstance(left, dict) else {}


def is_more_text(value: Any) -> bool:
    """Whether what is left holds a text that may be written to a file, and not only a switch or the model's words."""
    if isinstance(value, Mapping):
        return any(is_more_text(each) for key, each in value.items() if key not in _WORDS)
    if isinstance(value, list):
        return any(map(is_more_text, value))
    return isinstance(value, str)


def changed_files(diff: str) -> list[tuple[str, int, int]]:
    """The files of a diff, each with how many lines come and go. One that the diff does not name is called ``""``."""
    names: list[str] = []
    counts: list[Counter[str]] = []
    left = 0  # lines of the hunk that are still to come, in which `---` is no header
    lines = diff.split("\n")
    for number, line in enumerate(lines):
        sign = line[:1]
        if sign == "@" and (hunk := _HUNK.match(line)) is not None:
            left = int(hunk[1] or 1) + int(hunk[2] or 1)
        elif left <= 0 and (name := _named_in(line, lines[number + 1 : number + 2])) is not None:
            names.append(name)
            counts.append(Counter())
        elif sign in ("+", "-") and not (left <= 0 and line.startswith("+++ ")):
            if not names:
                names, counts = [""], [Counter()]
            counts[-1][sign] += 1
            left -= 1
        elif sign == " ":
            left -= 2
    return [(name, count["+"], count["-"]) for name, count in zip(names, counts, strict=True)]


def named_files(diff: str) -> set[str]:
    """The names of those files, found quickly. Lines of a change that look like the two names of a file count too."""
    return {_name(before, after) if after else patched for before, after, patched in _NAMES.findall(diff)}


def _name(before: str, after: str) -> str:
    before, after = before.split("\t")[0], after.split("\t")[0]
    return re.sub(r"^[ab]/", "", before if after == "/dev/null" else after)


def _named_in(line: str, following: Sequence[str]) -> str | None:
    """The file that begins with this line outside of a hunk."""
    if line.startswith("--- ") and following and following[0].startswith("+++ "):
        return _name(line[4:], following[0][4:])
    patched = _PATCHED.match(line) if line.startswith("***") else None
    return None if patched is None else patched[1]


class _Shown:
    """The lines that a person sees."""

    def __init__(self, permission: Permission) -> None:
        self._diff = permission.diff or ""
        lines = self._diff.splitlines() if len(self._diff) <= LONGEST_SPLIT else []
        self._lines = {*lines, *(line[1:] for line in lines)}
        self._added = {line[1:] for line in lines if line.startswith("+") and not line.startswith("+++ ")}
        self._is_partial = any(line.startswith("@@") for line in lines)
        named = (permission.command, permission.url, permission.cwd, permission.summary)
        self._named = {*permission.paths, *filter(None, named)}

    def without(self, value: Any, *, unchanged: Set[str] = frozenset(), depth: int = 0) -> Any:
        """What is left of a value; None where all of it is shown, or says nothing."""
        if isinstance(value, Mapping) and depth < DEEPEST:
            return self._of_object(value, depth=depth)
        if isinstance(value, list | tuple) and depth < DEEPEST:
            left = [self.without(each, unchanged=unchanged, depth=depth + 1) for each in value]
            return [each for each in left if each is not None] or None
        if isinstance(value, str):
            return None if self._has(value, unchanged) else value
        return None if value is False else value

    def _of_object(self, value: Mapping[str, Any], *, depth: int) -> dict[str, Any] | None:
        unchanged = _lines_of(value, _OLD) & _lines_of(value, _NEW)
        left: dict[str, Any] = {}
        for key, each in value.items():
            if key in _TELLING and isinstance(each, str) and (len(each) < 20 or self._has(each, frozenset())):
                continue
            if key in _WHOLE and isinstance(each, str) and self._changes(each):
                continue
            rest = self.without(each, unchanged=unchanged, depth=depth + 1)
            if rest is not None:
                left[key] = rest
        return left or None

    def _changes(self, text: str) -> bool:
        """Whether it may be the whole file after a change of which the diff shows the lines around it alone."""
        return self._is_partial and len(text) <= LONGEST_SPLIT and self._added <= {*text.splitlines()}

    def _has(self, text: str, unchanged: Set[str]) -> bool:
        if not text.strip() or text in self._named:
            return True
        if not self._lines:
            return len(text) > LONGEST_COMPARED or self._has_parts(text.splitlines())
        return self._has_parts(
            [line for line in text.splitlines() if line not in self._lines and line not in unchanged]
        )

    def _has_parts(self, lines: Sequence[str]) -> bool:
        """A text that an edit looks for may begin and end in the middle of lines."""
        return len(lines) <= MOST_PARTS and all(line.strip() in self._diff for line in lines)


def _lines_of(value: Mapping[str, Any], names: Sequence[str]) -> set[str]:
    found = (value.get(name) for name in names)
    return {line for text in found if isinstance(text, str) for line in text.splitlines()}
