"""Rules out of TOML or JSON, with the place where each stands. What is wrong is said with that place."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from handraise.errors import SettingsError
from handraise.rules import Action, Condition, Context, Rule
from handraise.rules.globs import matches
from handraise.transports.files import PROJECT, parse_toml

__all__ = ["FIELDS", "LONGEST_TIMEOUT", "find_projects", "parse_rule", "rules_in", "told"]

MOST_RULES = 1000
MOST_LEVELS = 32  # folders above the working folder that are looked at for rules
LONGEST_TIMEOUT = 300.0  # seconds; an agent waits meanwhile, and nobody sees its ask
FIELDS = ("tool", "action", "matches", "agent", "context", "message", "to", "timeout")
_HEADING = re.compile(r"\s*\[\[\s*rules\s*\]\]|\s*rules\s*=")


def find_projects(folder: Path) -> tuple[list[Path], bool]:
    """Every `handraise.toml` from the folder up to the root, the nearest first, also from where the folder really is.
    And whether that is all of them: only so many folders are looked at."""
    found: dict[str, Path] = {}
    is_all = True
    for start in dict.fromkeys((folder, Path(os.path.realpath(folder)))):
        places = (start, *start.parents)
        is_all &= len(places) <= MOST_LEVELS + 1
        for place in places[: MOST_LEVELS + 1]:
            file = place / PROJECT
            if file.is_file():
                found.setdefault(os.path.realpath(place), file)
    return list(found.values()), is_all


def rules_in(text: str, *, file: Path) -> tuple[Rule, ...]:
    """The rules of a settings file, in its order. Raises SettingsError."""
    given = parse_toml(text, file=file).get("rules", [])
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise SettingsError(f"{file}: rules are tables; write [[rules]] above each")
    if len(given) > MOST_RULES:
        raise SettingsError(f"{file}: at most {MOST_RULES} rules fit in a file; it has {len(given)}")
    lines = _lines(text, count=len(given))
    return tuple(
        parse_rule(each, source=f"{file}:{line}", folder=file.parent) for each, line in zip(given, lines, strict=True)
    )


def _lines(text: str, *, count: int) -> Sequence[int]:
    """Where each rule begins. In a list on one line they all begin there."""
    found = [number for number, line in enumerate(text.splitlines(), start=1) if _HEADING.match(line)]
    return found if len(found) == count else [found[0] if found else 1] * count


def parse_rule(given: Mapping[str, Any], *, source: str, folder: Path | None = None) -> Rule:
    """One rule. A program in `to` is found from `folder`. Raises SettingsError."""

    def refuse(problem: str) -> SettingsError:
        return SettingsError(f"{source}: {problem}")

    unknown = sorted(set(given) - set(FIELDS))
    if unknown:
        raise refuse(f"a rule has no {unknown[0]!r}; it has {', '.join(FIELDS)}")
    for name in ("tool", "action", "agent", "context", "message"):
        if name in given and (not isinstance(given[name], str) or not given[name]):
            raise refuse(f"{name} is a text")
    action, context = given.get("action"), given.get("context")
    if "tool" not in given:
        raise refuse('tool is missing: the name of a tool or a pattern for it, such as "shell" or "*"')
    if action is None or action not in get_args(Action):
        raise refuse(f"action is one of {', '.join(get_args(Action))}")
    if context is not None and context not in get_args(Context):
        raise refuse(f"context is one of {', '.join(get_args(Context))}")
    if "message" in given and action != "reject":
        raise refuse('a message is for the agent that is refused, so it goes with action = "reject"')
    to = _program(given.get("to", ()), folder=folder)
    if to is None or bool(to) != (action == "delegate"):
        raise refuse('to names the program that decides, and goes with action = "delegate" and with no other')
    timeout = given.get("timeout")
    if timeout is not None and (
        isinstance(timeout, bool)
        or not isinstance(timeout, int | float)
        or not 0 < timeout <= LONGEST_TIMEOUT
        or not to
    ):
        raise refuse(f"timeout is for the program in `to`, in seconds, up to {LONGEST_TIMEOUT:.0f}")
    conditions = given.get("matches", {})
    if not isinstance(conditions, dict):
        raise refuse('matches is a table from an argument to a pattern, as in { command = "git status*" }')
    rule = Rule(
        tool=given["tool"],
        action=action,
        matches={name: _condition(value, name=name, source=source) for name, value in conditions.items()},
        agent=given.get("agent"),
        context=context,
        message=given.get("message"),
        to=to,
        timeout=timeout,
        source=source,
    )
    for pattern in (rule.tool, rule.agent or "", *(each for all in rule.matches.values() for each in all)):
        try:
            matches(str(pattern), "")
        except SettingsError as problem:
            raise refuse(problem.message) from None
    return rule


def _condition(value: Any, *, name: str, source: str) -> Condition:
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str | bool) for each in listed):
        raise SettingsError(f"{source}: matches.{name} is a pattern, a list of patterns, or true or false")
    return tuple(listed)


def _program(given: Any, *, folder: Path | None) -> tuple[str, ...] | None:
    words = [given] if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) and word for word in words):
        return None
    if not words:
        return ()
    program = Path(words[0]).expanduser()
    if folder is not None and "/" in words[0] and not program.is_absolute():
        program = folder / program
    return (str(program) if "/" in words[0] else words[0], *words[1:])


def told(rule: Rule) -> dict[str, Any]:
    """A rule as JSON, without the fields that say nothing."""
    values: dict[str, Any] = {
        "tool": rule.tool,
        "action": rule.action,
        "matches": {name: list(each) if len(each) != 1 else each[0] for name, each in rule.matches.items()},
        "agent": rule.agent,
        "context": rule.context,
        "message": rule.message,
        "to": list(rule.to),
        "timeout": rule.timeout,
        "session": rule.session,
    }
    return {name: value for name, value in values.items() if value not in (None, {}, [])}
