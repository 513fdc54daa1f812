"""Amp's calls as asks, and answers as what its delegate is told. Pure: no I/O, no state.

Amp tells the name of a tool and its arguments and nothing else. The names are those of 0.0.1790142911, and the older
ones that its other modes still have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from handraise.agents import _phrases as wording
from handraise.asks import Answer, Ask, Origin, Permission, Scope
from handraise.errors import AskDoesNotFit
from handraise.rules.tools import folder_in, named_paths, patched_files
from handraise.transports.loose_json import hunks, one_line, text_of

__all__ = ["AGENT", "from_answer", "is_same_call", "to_ask", "told_later"]

AGENT = "amp"
SHELL = "shell"
SHELLS = {"shell_command": "command", "async_shell_command": "command", "Bash": "cmd"}  # where the command stands
PATCH = "apply_patch"
SESSION_SCOPE = "session"
_PATCH_FRAME = ("*** Begin Patch", "*** End Patch")


def to_ask(tool: str, given: Any, *, id: str, origin: Origin, remembers: bool = False) -> Ask:
    """What a call asks for. `remembers`: the session is known by a name of its own, so `always` can be kept for it.

    Raises AskDoesNotFit.
    """
    if not tool or not isinstance(given, Mapping):
        raise AskDoesNotFit("a call of Amp has the name of a tool, and arguments as an object")
    command, url = text_of(given, SHELLS.get(tool, "")), text_of(given, "url")
    diff, paths = _change(tool, given)
    exactly = command or (url if tool == "read_web_page" else "")
    # A star in it would be read as a pattern, and allow more than was seen.
    scopes = (
        (Scope(id=SESSION_SCOPE, label="for this thread, exactly this", patterns=(exactly,), by_desk=True),)
        if remembers and exactly and "*" not in exactly
        else ()
    )
    permission = Permission(
        tool=SHELL if tool in SHELLS else tool,
        summary=_summary(tool, given, command=command, paths=paths),
        command=command or None,
        paths=paths,
        diff=diff,
        cwd=folder_in(given, cwd=origin.cwd) if command else origin.cwd,
        url=url or None,
        input=dict(given) or None,
        replies=("once", "always", "reject") if scopes else ("once", "reject"),
        scopes=scopes,
        extra={"tool": tool, **({"patterns": [exactly]} if scopes else {})},
    )
    return Ask(id=id, permission=permission, origin=origin)


def _change(tool: str, given: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """The diff, and the files that it is about."""
    path = text_of(given, "path")
    match tool:
        case "apply_patch":
            text = text_of(given, "patchText")
            lines = [line for line in text.splitlines() if line.strip() not in _PATCH_FRAME]
            return "\n".join(lines) or None, tuple(patched_files(text))
        case "edit_file":
            lines = hunks(text_of(given, "old_str"), text_of(given, "new_str"))
        case "create_file":
            lines = hunks("", text_of(given, "content"))
        case _:
            lines = []
    more = () if tool in SHELLS else named_paths(given, tool=tool)
    return "\n".join(lines) or None, tuple(dict.fromkeys(filter(None, (path, *more))))


def _summary(tool: str, given: Mapping[str, Any], *, command: str, paths: tuple[str, ...]) -> str:
    if command:
        return one_line(command)
    files = ", ".join(paths)
    match tool:
        case "apply_patch" | "edit_file":
            line = f"Change {files or 'files; Amp does not say which'}"
        case "create_file":
            line = f"Write {files}"
        case "delete_file":
            line = f"Delete {files}"
        case "read_web_page":
            line = f"Read {text_of(given, 'url')}"
        case "web_search":
            line = f"Search the web for {text_of(given, 'objective') or _arguments(given)}"
        case "Task":
            line = f"Start a subagent: {text_of(given, 'description') or text_of(given, 'prompt')}"
        case _:
            line = f"{tool} {_arguments(given)}"
    return one_line(line)


def _arguments(given: Mapping[str, Any]) -> str:
    return json.dumps(given, ensure_ascii=False)[:1000] if given else ""


def from_answer(ask: Ask, answer: Answer) -> dict[str, Any]:
    """What the delegate is told. `always` is for the desk to remember: Amp is only ever told that it may."""
    if answer.rejected or answer.reply == "reject":
        return {"decision": "reject", "reason": wording.refusal(ask, answer)}
    if answer.reply in ("once", "always"):
        return {"decision": "allow"}
    return {"decision": "reject", "reason": "The answer was not one that Amp takes; nothing was run."}


def is_same_call(ask: Ask, other: Ask) -> bool:
    """Whether both want exactly the same."""
    one, two = ask.permission, other.permission
    return one is not None and two is not None and (one.tool, one.cwd, one.input) == (two.tool, two.cwd, two.input)


def told_later(ask: Ask, answer: Answer) -> str:
    """What Amp is told in a prompt where the call that asked is gone."""
    wanted = f"for permission: {ask.title}"
    return wording.told_later(ask, answer, wanted=wanted, answered="", again="make exactly that call again")
