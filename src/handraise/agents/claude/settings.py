"""The hooks of handraise in a person's `settings.json` of Claude Code: put in and taken out of the text as it stands.

The file is somebody's own. It is read to find the places and never written anew: what is not ours keeps its order,
indentation, line ends and everything else, byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from handraise.agents import Edit
from handraise.errors import SettingsError

__all__ = ["EVENTS", "MANAGED", "edits"]

PATH = "/attach/claude/hook"
OURS = "/attach/claude/"  # in the path of a hook's address
FOR_A_DAY = 86_400  # seconds; the hook is told 600 otherwise, and a person may be asleep
AT_ONCE = 5  # seconds; Claude Code waits for these hooks, and a desk that hangs must not hold it up

# Each was seen to arrive over http from the terminal of 2.1.325. PreToolUse and UserPromptSubmit are left out: they
# hold up every call and every prompt, and say nothing about what is open, since calls run beside each other and a
# prompt may be typed ahead in the middle of a turn. SessionStart does not come over http.
EVENTS: Mapping[str, int] = {
    "PermissionRequest": FOR_A_DAY,
    "PostToolUse": AT_ONCE,
    "PostToolUseFailure": AT_ONCE,
    "PostToolBatch": AT_ONCE,
    "Stop": AT_ONCE,
    "SubagentStop": AT_ONCE,
    "SessionEnd": AT_ONCE,
}
# What tells a session that the desk itself started, and hears without hooks. Empty everywhere else.
MANAGED, MANAGED_BY = "X-Handraise-Session", "HANDRAISE_SESSION"

_BOM = "\ufeff"
_SPACE = re.compile(r"[ \t\r\n]*")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR = re.compile(r"[^\s,\]}]+")


def edits(*, url: str, token: str, environ: Mapping[str, str]) -> Sequence[Edit]:
    """The user's settings, which apply in every project."""
    own = environ.get("CLAUDE_CONFIG_DIR")
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    path = (Path(own) if own else home / ".claude") / "settings.json"
    hooks = {event: _hook(url, token, timeout=timeout) for event, timeout in EVENTS.items()}
    return [
        Edit(path=path, add=partial(_add, hooks=hooks, path=path), remove=partial(_remove, path=path), private=True)
    ]


def _hook(url: str, token: str, *, timeout: int) -> dict[str, Any]:
    return {
        "type": "http",
        "url": url.rstrip("/") + PATH,
        "timeout": timeout,
        "headers": {"Authorization": f"Bearer {token}", MANAGED: f"${MANAGED_BY}"},
        "allowedEnvVars": [MANAGED_BY],
    }


def _is_ours(hook: Any) -> bool:
    url = hook.get("url") if isinstance(hook, dict) else None
    if not isinstance(url, str):
        return False
    try:
        return OURS in urlsplit(url).path
    except ValueError:
        return False


def _add(before: bytes | None, *, hooks: Mapping[str, dict[str, Any]], path: Path) -> bytes:
    """Raises SettingsError where the file is not what Claude Code reads, or would keep the hooks from being called."""
    text = "" if before is None else _decoded(before, path=path)
    if not text.strip(_BOM + " \t\r\n"):
        newline = "\r\n" if "\r\n" in text else "\n"
        text = (_BOM if text.startswith(_BOM) else "") + "{}" + newline
    text = _without_ours(text, path=path)
    root = _read(text, path=path)
    _check_obstacles(root, url=next(iter(hooks.values()))["url"], path=path)
    if root.last("hooks") is None:
        text = _appended(text, root, "hooks", {}, root=root)
    for event, hook in hooks.items():
        root = _read(text, path=path)
        table = root.last("hooks")
        if table is None or not isinstance(table.value, dict):
            raise SettingsError(f'{path}: "hooks" is not a table of events, as Claude Code wants it; correct it first')
        groups = table.last(event)
        if groups is None:
            text = _appended(text, table, event, [{"hooks": [hook]}], root=root)
        elif isinstance(groups.value, list):
            text = _appended(text, groups, None, {"hooks": [hook]}, root=root)
        else:
            raise SettingsError(f'{path}: "hooks" has no list for {event}, as Claude Code wants it; correct it first')
    return text.encode()


def _remove(now: bytes, *, path: Path) -> bytes | None:
    text = _decoded(now, path=path)
    if not text.strip(_BOM + " \t\r\n"):
        return now
    left = _without_ours(text, path=path)
    if left == text:
        return now
    return None if _read(left, path=path).value == {} else left.encode()


def _check_obstacles(root: Span, *, url: str, path: Path) -> None:
    """Settings with which Claude Code would never call us, and not say so."""
    if root.value.get("disableAllHooks") is True:
        raise SettingsError(f'{path} says "disableAllHooks": true, so nothing would reach the desk; remove that first')
    allowed = root.value.get("allowedHttpHookUrls")
    if isinstance(allowed, list) and not any(_allows(pattern, url) for pattern in allowed):
        wanted = url.removesuffix(PATH) + "/*"
        raise SettingsError(f'{path}: "allowedHttpHookUrls" keeps hooks from calling the desk; add "{wanted}" to it')


def _allows(pattern: Any, url: str) -> bool:
    return isinstance(pattern, str) and bool(re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), url))


# Places in the text -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """A value and where it stands."""

    start: int
    end: int
    value: Any
    members: tuple[tuple[str | None, int, Span], ...] = ()  # key (None in a list), where the member begins, its value

    def last(self, key: str) -> Span | None:
        """Of keys that are there twice the last one counts, as it does for Claude Code."""
        return next((span for name, _, span in reversed(self.members) if name == key), None)


def _decoded(content: bytes, *, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8, so Claude Code cannot read it either; correct it first") from None


def _read(text: str, *, path: Path) -> Span:
    """Raises SettingsError where it is no JSON object."""
    start = len(_BOM) if text.startswith(_BOM) else 0
    try:
        json.loads(text[start:], parse_constant=_refuse)
        root = _span(text, _skip(text, start))
    except ValueError as problem:
        raise SettingsError(f"{path} is not JSON ({problem}), nothing was changed; correct it first") from None
    except RecursionError:
        raise SettingsError(f"{path} is nested too deep, nothing was changed; correct it first") from None
    if not isinstance(root.value, dict):
        raise SettingsError(f"{path} holds no JSON object, nothing was changed; correct it first")
    return root


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None
    return space.end()


def _span(text: str, at: int) -> Span:
    """The value that begins here. The text is JSON: whoever calls has parsed it."""
    if text[at] == '"':
        return _matched(_TEXT, text, at)
    if text[at] not in "{[":
        return _matched(_SCALAR, text, at)
    close = "}" if text[at] == "{" else "]"
    members: list[tuple[str | None, int, Span]] = []
    here = _skip(text, at + 1)
    while text[here] != close:
        begins, key = here, None
        if close == "}":
            name = _matched(_TEXT, text, here)
            key = str(name.value)
            here = _skip(text, _skip(text, name.end) + 1)  # past the colon
        member = _span(text, here)
        members.append((key, begins, member))
        here = _skip(text, member.end)
        if text[here] == ",":
            here = _skip(text, here + 1)
    value: Any = {key: span.value for key, _, span in members} if close == "}" else [span.value for *_, span in members]
    return Span(at, here + 1, value, tuple(members))


def _matched(pattern: re.Pattern[str], text: str, at: int) -> Span:
    found = pattern.match(text, at)
    assert found is not None
    return Span(at, found.end(), json.loads(found[0], strict=False))


# Changes to the text ----------------------------------------------------------------------------------------


def _appended(text: str, place: Span, key: str | None, value: Any, *, root: Span) -> str:
    """The text with one more member at the end of a table or list, on a line of its own where the others have one."""
    if not place.members:
        newline = "\r\n" if "\r\n" in text else "\n"
        outer = _indent_at(text, place.start)
        opened, closed = text[: place.start + 1], text[place.end - 1 :]
        return f"{opened}{newline}{outer}{_unit(text, root)}{_member(key, value)}{newline}{outer}{closed}"
    _, begins, _ = place.members[0]
    end = place.members[-1][2].end
    lead = text[place.start + 1 : begins]
    if "\n" in lead:
        return f"{text[:end]},{lead}{_member(key, value)}{text[end:]}"
    between = text[place.members[0][2].end : place.members[1][1]] if len(place.members) > 1 else ", "
    return f"{text[:end]}{between}{_member(key, value, tight=between == ',')}{text[end:]}"


def _member(key: str | None, value: Any, *, tight: bool = False) -> str:
    comma, colon = (",", ":") if tight else (", ", ": ")
    written = json.dumps(value, separators=(comma, colon))
    return written if key is None else f"{json.dumps(key)}{colon}{written}"


def _unit(text: str, root: Span) -> str:
    """One step of indentation, as the file has it."""
    if root.members:
        lead = text[root.start + 1 : root.members[0][1]]
        step = lead.rpartition("\n")[2]
        if "\n" in lead and step and not step.strip(" \t"):
            return step
    return "  "


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at].lstrip(_BOM)
    space = re.match(r"[ \t]*", line)
    assert space is not None
    return space[0]


def _without_ours(text: str, *, path: Path) -> str:
    """The text without our hooks, and without the groups, lists and tables that they leave empty."""
    while (cut := next(_cuts(_read(text, path=path)), None)) is not None:
        text = text[: cut[0]] + text[cut[1] :]
    return text


def _cuts(root: Span) -> Iterator[tuple[int, int]]:
    """What to take out, the outermost that holds nothing but ours first. Each one changes all places after it."""
    for name, _, table in root.members:
        if name != "hooks" or not isinstance(table.value, dict):
            continue
        for index, (_, _, groups) in enumerate(table.members):
            for number, (_, _, group) in enumerate(groups.members if isinstance(groups.value, list) else ()):
                hooks = group.last("hooks") if isinstance(group.value, dict) else None
                if hooks is None or not isinstance(hooks.value, list) or not any(map(_is_ours, hooks.value)):
                    continue
                if not all(map(_is_ours, hooks.value)):
                    yield _cut(hooks, next(at for at, hook in enumerate(hooks.value) if _is_ours(hook)))
                elif len(groups.members) > 1:
                    yield _cut(groups, number)
                elif len(table.members) > 1:
                    yield _cut(table, index)
                else:
                    yield _cut(root, next(at for at, (_, _, span) in enumerate(root.members) if span is table))


def _cut(place: Span, index: int) -> tuple[int, int]:
    """From where to where a member goes, with the comma that would be left over."""
    if index > 0:
        return place.members[index - 1][2].end, place.members[index][2].end
    if len(place.members) > 1:
        return place.members[0][1], place.members[1][1]
    return place.start + 1, place.end - 1
