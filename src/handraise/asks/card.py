"""What a person must see of a permission before allowing it, as text. How it is laid out is up to each place."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from handraise.asks import Permission
from handraise.asks.changes import besides_change
from handraise.text.inert import inert

__all__ = ["is_longer", "object_of", "shown_paths", "whole_of"]


def object_of(permission: Permission) -> tuple[list[str], str]:
    """What it is about: what has a name of its own, and the rest as text."""
    if permission.is_plan:
        return [], _plan(permission)
    return [*filter(None, (permission.command, *shown_paths(permission), permission.url))], _arguments(permission)


def shown_paths(permission: Permission) -> list[str]:
    """Each file as the agent names it, and where it really lies if a link leads elsewhere."""
    real = permission.resolved or ()
    if not permission.paths or len(real) != len(permission.paths):
        return list(permission.paths)
    folders = [folder for folder in (permission.cwd, permission.resolved_cwd) if folder]
    return [
        path if _is_there(path, leads_to, folders) else f"{path} → {leads_to}"
        for path, leads_to in zip(permission.paths, real, strict=True)
    ]


def _is_there(path: str, real: str, folders: Sequence[str]) -> bool:
    """Whether it says where it lies. The working folder itself may be reached by a link."""
    found = {posixpath.normpath(posixpath.join(folder, path)) for folder in folders or ["/"]}
    if len(folders) == 2 and (beneath := posixpath.relpath(path, folders[0])) and posixpath.isabs(path):
        found.add(posixpath.normpath(posixpath.join(folders[1], beneath)))
    return real in found


def _plan(permission: Permission) -> str:
    """The plan as text, with what else the agent wants approved along with it."""
    plan = (permission.input or {}).get("plan")
    text = plan if isinstance(plan, str) else permission.summary
    more = (permission.extra or {}).get("input")  # what goes back to the agent with the plan
    more = {key: value for key, value in more.items() if key != "planFilePath"} if isinstance(more, Mapping) else {}
    rest = (_arguments(permission, shown=(text,)), _as_json(more))
    return "\n\n".join(filter(None, (text, *rest)))


def _arguments(permission: Permission, *, shown: Sequence[str] = ()) -> str:
    """The tool's arguments that are not shown already, as JSON. Of an edit's, those that its diff does not show."""
    if permission.diff is not None and permission.kind != "plan":
        return _as_json(besides_change(permission))
    shown = (*shown, permission.command or "", permission.url or "", permission.cwd or "", permission.summary)
    rest = {key: value for key, value in (permission.input or {}).items() if value not in (*shown, *permission.paths)}
    return _as_json(rest)


def _as_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str) if value else ""


def whole_of(permission: Permission) -> str:
    """All of it in one text."""
    named, text = object_of(permission)
    return "\n".join(filter(None, (*named, permission.diff, text)))


def is_longer(permission: Permission, longest: int) -> bool:
    """Whether a place that shows so many characters cannot show all of it."""
    whole = whole_of(permission)
    return len(whole) > longest or len(inert(whole)) > longest
