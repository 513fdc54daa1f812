"""What a person said `always` to, as rules for the rest of the session. Pure.

The patterns are the agent's: `*` is anything, and a final ` *` may be missing. They become conditions of a rule that
cover the same or less. A pattern that cannot be translated for certain becomes no rule, and the agent asks again.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence

from handraise.asks import Answer, Ask, Permission
from handraise.rules import Condition, Rule
from handraise.rules.programs import command_of
from handraise.rules.shell import split
from handraise.rules.tools import SHELL, command_in, common_names, is_foreign_shell, names_of

__all__ = ["lasting_rules"]

ANYTHING = "*"
_REGEX = "re:"
# A word of a pattern for commands that means nothing to a shell but itself.
_PLAIN = re.compile(r"[\w@%+=:,./*-]+")
_PROGRAM = re.compile(r"[\w@%+:,./-]+")


def lasting_rules(ask: Ask, answer: Answer) -> list[Rule]:
    """The rules that an `always` makes, where the desk is to keep it. None for any other answer."""
    permission = ask.permission
    if permission is None or answer.reply != "always" or permission.is_plan:
        return []
    scope = next((each for each in permission.scopes if each.by_desk and answer.scope in (None, each.id)), None)
    if scope is None or is_foreign_shell(permission) or permission.tool not in names_of(permission):
        return []
    if not _is_literal(permission.tool) or not _is_literal(ask.origin.agent):
        return []
    patterns = scope.patterns if answer.patterns is None else answer.patterns
    return [
        Rule(
            tool=permission.tool,
            action="allow",
            matches=conditions,
            agent=ask.origin.agent,
            session=ask.origin.root,
        )
        for conditions in _conditions(permission, patterns, cwd=permission.cwd or ask.origin.cwd)
    ]


def _conditions(permission: Permission, patterns: Sequence[str], *, cwd: str | None) -> list[Mapping[str, Condition]]:
    """What each rule wants of a call."""
    if command_in(permission) is not None:
        return _of_commands(patterns, cwd=cwd)
    if permission.paths:
        paths = tuple(found for each in patterns if (found := _path(each, cwd=cwd)) is not None)
        return [{"path": paths}] if paths and permission.url is None else []
    if permission.diff is not None or common_names().get(permission.tool.lower()) == SHELL:
        return []  # which files, or which command, it does not say
    if permission.url is not None:
        urls = tuple(each for each in patterns if each == ANYTHING or ("://" in each and not each.startswith(_REGEX)))
        return [{"url": urls}] if urls else []
    return [{}] if ANYTHING in patterns else []


def _of_commands(patterns: Sequence[str], *, cwd: str | None) -> list[Mapping[str, Condition]]:
    """The same command in another folder is another one, so the folder is a condition as well."""
    if cwd is not None and not _is_folder(cwd):
        return []
    here: Mapping[str, Condition] = {} if cwd is None else {"cwd": (cwd,)}
    commands: list[str] = []
    lines: list[str] = []
    for pattern in patterns:
        if ANYTHING in pattern:
            commands += [pattern] if _is_command(pattern) else []
            continue
        read = split(pattern)
        if read.doubt is not None or any(part.text.startswith(_REGEX) for part in read.parts):
            continue
        if len(read.parts) == 1:
            commands.append(read.parts[0].text)
        else:
            lines.append(pattern)
    found: list[Mapping[str, Condition]] = []
    found += [{**here, "command": tuple(commands)}] if commands else []
    found += [{**here, "command_line": tuple(lines)}] if lines else []
    return found


def _is_command(pattern: str) -> bool:
    """Whether it names a program, and nothing in it means more to a shell than itself."""
    if pattern.startswith(_REGEX):
        return False
    words = pattern.split(" ")
    program = words[0]
    if len(words) == 1:  # `git*` is git, but `./*` and `g*` are many programs
        program = program.removesuffix(ANYTHING)
        if command_of(program.rpartition("/")[2]) is None:
            return False
    return _PROGRAM.fullmatch(program) is not None and all(_PLAIN.fullmatch(word) for word in words[1:])


def _path(pattern: str, *, cwd: str | None) -> str | None:
    """Anything is anything in the folder that the agent works in: what lies outside of it was not shown."""
    if pattern == ANYTHING:
        return None if cwd is None or not _is_folder(cwd) else f"{posixpath.normpath(cwd)}/*"
    whole = pattern.startswith("/") and ".." not in pattern.split("/") and not pattern.startswith("//")
    return pattern if whole and pattern.rstrip("/*") else None


def _is_folder(cwd: str) -> bool:
    return posixpath.isabs(cwd) and ANYTHING not in cwd


def _is_literal(name: str) -> bool:
    """Whether a pattern with this text means this name and no other."""
    return ANYTHING not in name and not name.startswith(_REGEX)
