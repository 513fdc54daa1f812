"""The hooks of handraise in a person's `settings.json` of Claude Code: put in and taken out of the text as it stands.

The file is somebody's own. It is read to find the places and never written anew: what is not ours keeps its order,
indentation, line ends and everything else, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from handraise.agents import Edit
from handraise.edits.json import Span, cut, inserted, read, text_to_change, without
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
    text = _without_ours(text_to_change(before, path=path), path=path)
    root = read(text, path=path)
    _check_obstacles(root, url=next(iter(hooks.values()))["url"], path=path)
    if root.last("hooks") is None:
        text = inserted(text, root, "hooks", {}, root=root)
    for event, hook in hooks.items():
        root = read(text, path=path)
        table = root.last("hooks")
        if table is None or not isinstance(table.value, dict):
            raise SettingsError(f'{path}: "hooks" is not a table of events, as Claude Code wants it; correct it first')
        groups = table.last(event)
        if groups is None:
            text = inserted(text, table, event, [{"hooks": [hook]}], root=root)
        elif isinstance(groups.value, list):
            text = inserted(text, groups, None, {"hooks": [hook]}, root=root)
        else:
            raise SettingsError(f'{path}: "hooks" has no list for {event}, as Claude Code wants it; correct it first')
    return text.encode()


def _remove(now: bytes, *, path: Path) -> bytes | None:
    return without(now, partial(_without_ours, path=path), path=path)


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


def _without_ours(text: str, *, path: Path) -> str:
    """The text without our hooks, and without the groups, lists and tables that they leave empty."""
    while (found := next(_ours(read(text, path=path)), None)) is not None:
        text = cut(text, *found)
    return text


def _ours(root: Span) -> Iterator[tuple[Span, int]]:
    """What to take out of what, the outermost that holds nothing but ours first. Each changes all places after it."""
    for name, _, table in root.members:
        if name != "hooks" or not isinstance(table.value, dict):
            continue
        for index, (_, _, groups) in enumerate(table.members):
            for number, (_, _, group) in enumerate(groups.members if isinstance(groups.value, list) else ()):
                hooks = group.last("hooks") if isinstance(group.value, dict) else None
                if hooks is None or not isinstance(hooks.value, list) or not any(map(_is_ours, hooks.value)):
                    continue
                if not all(map(_is_ours, hooks.value)):
                    yield hooks, next(at for at, hook in enumerate(hooks.value) if _is_ours(hook))
                elif len(groups.members) > 1:
                    yield groups, number
                elif len(table.members) > 1:
                    yield table, index
                else:
                    yield root, root.index(table)
