"""What `handraise install amp` writes: the delegate, and the lines of a person's `settings.json` that have Amp run it.

Amp takes the first rule that fits. What a person has decided stays above ours, which is for everything else, and keeps
Amp's built-in rules from allowing it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from handraise.agents import Edit
from handraise.edits.json import Span, cut, inserted, put, read, take_out, text_to_change, without
from handraise.errors import SettingsError
from handraise.transports.loose_json import mapping_of

__all__ = ["DELEGATE", "MCP", "SERVER", "delegate", "edits", "for_session", "settings_file"]

RULES, SERVERS, ALLOW_ALL = "amp.permissions", "amp.mcpServers", "amp.dangerouslyAllowAll"
SERVER = "handraise"
DELEGATE = "amp-delegate"
# Amp runs it in the folder of the project. Without -P, Python would import what lies there under one of our names.
MCP = ("-P", "-m", "handraise", "mcp")
QUESTIONS = {"tool": f"mcp__{SERVER}__*", "action": "allow"}
# They change nothing and show a person nothing to decide about; Amp itself never asks for them.
LOOKS = tuple(
    {"tool": tool, "action": "allow"}
    for tool in ("Read", "Grep", "glob", "Glob", "finder", "get_diagnostics", "skill", "shell_command_status")
)

_HEAD = 'DESK = {"url": "", "token": "", "attended": None}\n'
_MARK = "the adapter writes a copy of it"


def edits(*, url: str, token: str, environ: Mapping[str, str], home: Path) -> Sequence[Edit]:
    """The delegate lies in handraise's own folder, for its owner alone: the token that is in it can ask."""
    program = home / DELEGATE
    path = settings_file(environ)
    written = delegate(url=url.rstrip("/"), token=token).encode()
    env = {"HANDRAISE_URL": url, "HANDRAISE_TOKEN": token}
    server = {"command": sys.executable, "args": list(MCP), "env": env}
    return [
        Edit(
            path=program,
            add=partial(_add_program, written=written, path=program),
            remove=_remove_program,
            private=True,
            executable=True,
        ),
        Edit(
            path=path,
            add=partial(_add, program=program, server=server, path=path),
            remove=partial(_remove, path=path),
            private=True,
        ),
    ]


def settings_file(environ: Mapping[str, str]) -> Path:
    """A person's own, which apply in every project."""
    if own := environ.get("AMP_SETTINGS_FILE"):
        return Path(own)
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    config = environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else home / ".config") / "amp" / "settings.json"


# The program ------------------------------------------------------------------------------------------------


def delegate(*, url: str, token: str, attended: bool | None = None) -> str:
    """The text of the program. `attended` says whether somebody sits at Amp's terminal, where that is known.

    It is started through the shell: what follows `#!` may neither be long nor hold spaces. To Python the second line is
    a text that nobody uses.
    """
    python = sys.executable
    if any(mark in python for mark in '"$`\\\n'):
        raise SettingsError(
            f"Amp cannot run {python!r}, which has marks of the shell in its name; install it elsewhere"
        )
    desk = {"url": url, "token": token, "attended": attended}
    source = files(__package__).joinpath("delegate.py").read_text()
    assert _HEAD in source
    return f'#!/bin/sh\n"exec" "{python}" "-I" "-S" "$0"\n' + source.replace(_HEAD, f"DESK = {desk!r}\n")


def _add_program(before: bytes | None, *, written: bytes, path: Path) -> bytes:
    if before is not None and _MARK.encode() not in before:
        raise SettingsError(f"{path} is there already and is not handraise's; move it away and install again")
    return written


def _remove_program(now: bytes) -> bytes | None:
    return None if _MARK.encode() in now else now


# The settings -----------------------------------------------------------------------------------------------


def _add(before: bytes | None, *, program: Path, server: Mapping[str, Any], path: Path) -> bytes:
    """Raises SettingsError where the file is not what Amp reads, or would keep the delegate from being run."""
    text = _without_ours(text_to_change(before, path=path), path=path)
    _check_obstacles(_read(text, path=path).value, path=path)
    for key, empty in ((RULES, []), (SERVERS, {})):
        root = _read(text, path=path)
        held = root.last(key)
        if held is None:
            text = inserted(text, root, key, empty, root=root)
        elif type(held.value) is not type(empty):
            raise SettingsError(f'{path}: "{key}" is not what Amp wants there; correct it first')
    everything = {"tool": "*", "action": "delegate", "to": str(program)}
    text = _with_rule(text, QUESTIONS, path=path, first=True)
    for rule in (*LOOKS, everything):
        text = _with_rule(text, rule, path=path)
    if SERVER in _read(text, path=path).value[SERVERS]:
        raise SettingsError(f'{path}: "{SERVERS}" has a "{SERVER}" that is not ours; rename it first')
    return put(text, (SERVERS, SERVER), server, path=path, comments=True).encode()


def _with_rule(text: str, rule: Mapping[str, Any], *, path: Path, first: bool = False) -> str:
    root = _read(text, path=path)
    rules = root.last(RULES)
    assert rules is not None
    return inserted(text, rules, None, rule, root=root, first=first)


def _remove(now: bytes, *, path: Path) -> bytes | None:
    return without(now, partial(_without_ours, path=path), path=path)


def _read(text: str, *, path: Path) -> Span:
    return read(text, path=path, comments=True)


def _check_obstacles(settings: Mapping[str, Any], *, path: Path) -> None:
    """Settings with which Amp would never ask us, and not say so."""
    if settings.get(ALLOW_ALL) is True:
        raise SettingsError(
            f'{path} says "{ALLOW_ALL}": true, which switches every permission off, so nothing would reach the desk; '
            "remove that first"
        )
    rules = settings.get(RULES)
    for rule in rules if isinstance(rules, list) else ():
        if (
            isinstance(rule, Mapping)
            and rule.get("tool") == "*"
            and not rule.get("matches")
            and not rule.get("context")
        ):
            raise SettingsError(
                f'{path}: a rule of "{RULES}" decides over every tool, so nothing would reach the desk; remove it first'
            )


def _without_ours(text: str, *, path: Path) -> str:
    """The text without our rules and server, and without the list and table that they leave empty."""
    root = _read(text, path=path)
    rules = root.last(RULES)
    ours = _our_rules(rules.value) if rules is not None and isinstance(rules.value, list) else []
    if rules is not None and ours and len(ours) == len(rules.members):
        text = cut(text, root, root.index(rules))
    else:
        for index in reversed(ours):  # the places of those before it stay as they are
            rules = _read(text, path=path).last(RULES)
            assert rules is not None
            text = cut(text, rules, index)
    while _is_our_server(mapping_of(_read(text, path=path).value, SERVERS).get(SERVER)):
        text = take_out(text, (SERVERS, SERVER), path=path, comments=True)
    return text


def _our_rules(rules: Sequence[Any]) -> list[int]:
    """Which rules are ours: the one with our delegate, those right before it as we put them, and that for questions.

    A person may have allowed tools that only look in other places; those stay.
    """
    found = {number for number, rule in enumerate(rules) if rule == QUESTIONS}
    for number in (number for number, rule in enumerate(rules) if _is_delegate(rule)):
        found.add(number)
        for before, look in zip(range(number - 1, -1, -1), reversed(LOOKS), strict=False):
            if rules[before] != look:
                break
            found.add(before)
    return sorted(found)


def _is_delegate(rule: Any) -> bool:
    to = rule.get("to") if isinstance(rule, Mapping) else None
    return isinstance(to, str) and Path(to).name == DELEGATE


def _is_our_server(server: Any) -> bool:
    arguments = server.get("args") if isinstance(server, Mapping) else None
    return isinstance(arguments, list) and arguments[-3:] == list(MCP[-3:])


# A session of ours ------------------------------------------------------------------------------------------


def for_session(before: bytes | None, *, path: Path, program: Path, allow_all: bool) -> dict[str, Any]:
    """The settings of a session that the desk starts: a person's own, with a delegate of its own after their rules."""
    own = _read(_without_ours(text_to_change(before, path=path), path=path), path=path).value
    rules = own.get(RULES)
    everything = {"tool": "*", "action": "delegate", "to": str(program)}
    kept = rules if isinstance(rules, list) else []
    return {**own, RULES: [QUESTIONS, *kept, *LOOKS, everything], ALLOW_ALL: allow_all}
