"""Rules that decide permissions, the same for every agent: first match wins, and where none speaks a person is asked.

What an agent wants to do is judged in its smallest parts, each command of a line and each file of a patch, and the
strictest decision counts. A rule that allows has to fit all of a part; one that forbids or asks needs to find only
something of it. Rules never answer questions.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from handraise.asks import Ask, Permission
from handraise.rules.globs import covers, matches, matches_address
from handraise.rules.shell import Part, Parts, split
from handraise.rules.tools import PLAN, is_foreign_shell, names_of

__all__ = ["Action", "Condition", "Decision", "Rule", "decide", "never_match"]

Action: TypeAlias = Literal["allow", "reject", "ask", "delegate"]
Condition: TypeAlias = tuple[str | bool, ...]  # any of these
Context: TypeAlias = Literal["thread", "subagent"]

STRICTNESS: Mapping[Action | None, int] = {"allow": 0, "delegate": 1, None: 2, "ask": 2, "reject": 3}
WIDE: frozenset[Action] = frozenset({"reject", "ask"})  # they match also what only looks like their case
# What Codex may want besides the command itself, which no pattern for commands speaks of.
BESIDES = {
    "additionalPermissions": "it wants more rights than the command shows",
    "networkApprovalContext": "it wants a connection, which the command does not show",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule as it was written, and where."""

    tool: str  # a pattern for the tool's name: the common one or the agent's own
    action: Action
    matches: Mapping[str, Condition] = field(default_factory=dict)  # by argument; all of them have to hold
    agent: str | None = None  # a pattern too
    context: Context | None = None
    message: str | None = None  # of a rejection, for the agent
    to: tuple[str, ...] = ()  # the program that decides, with its arguments
    timeout: float | None = None  # seconds that it has
    source: str = ""  # as in `handraise.toml:12`

    def __str__(self) -> str:
        conditions = [f"{name} = {_shown(condition)}" for name, condition in self.matches.items()]
        about = [f"agent {self.agent}"] if self.agent else []
        about += [self.context] if self.context else []
        said = ", ".join([self.tool, *about, *conditions])
        return f"{said}: {self.action}" + (f" {' '.join(self.to)}" if self.to else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the rules say. `action` is None where none of them speaks."""

    action: Action | None = None
    rule: Rule | None = None
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Unit:
    """The smallest thing that is judged by itself."""

    shown: str = ""
    part: Part | None = None
    path: str | None = None


class _Call:
    """What an agent wants to do, in the words of rules."""

    def __init__(self, ask: Ask, permission: Permission, *, resolve: Callable[[str], str]) -> None:
        self.permission = permission
        self.agent = ask.origin.agent
        self.names = names_of(permission)
        self.context: Context = "subagent" if ask.origin.parent is not None else "thread"
        self.given = permission.input or {}
        self.cwd = permission.cwd or ask.origin.cwd
        self._resolve = resolve
        self.doubt: str | None = None

    def units(self) -> list[_Unit]:
        command = self.permission.command or self.given.get("command")
        if isinstance(command, str) and not is_foreign_shell(self.permission):
            parts = self._parts(command)
            self.doubt = parts.doubt
            return [_Unit(part.text, part=part) for part in parts.parts]
        if paths := self.permission.paths or _texts(self.given.get("path")):
            return [_Unit(path, path=path) for path in paths]
        return [_Unit(self.permission.url or self.permission.summary or self.permission.tool)]

    def _parts(self, command: str) -> Parts:
        parts = split(command)
        doubt = next((why for name, why in BESIDES.items() if self.given.get(name)), parts.doubt)
        if self.given.get("kind") == "writeStdin":
            doubt = "it is typed into a program that already runs"
        return Parts(parts.parts, doubt)

    def fits(self, rule: Rule, unit: _Unit) -> bool:
        """Whether the rule speaks about this part."""
        if rule.agent is not None and not matches(rule.agent, self.agent):
            return False
        if rule.context is not None and rule.context != self.context:
            return False
        if not any(matches(rule.tool, name) for name in self.names) or (PLAN in self.names and rule.tool == "*"):
            return False
        return all(
            any(self._holds(name, each, unit, is_wide=rule.action in WIDE) for each in condition)
            for name, condition in rule.matches.items()
        )

    def _holds(self, name: str, expected: str | bool, unit: _Unit, *, is_wide: bool) -> bool:
        if isinstance(expected, bool):
            return _look_up(self.given, name) is expected
        match name:
            case "command":
                return self._is_command(expected, unit, is_wide=is_wide)
            case "path" if unit.path is not None:
                return self._is_path(expected, unit.path, is_wide=is_wide)
            case "url" if self.permission.url is not None:
                return _is_value(expected, self.permission.url, is_wide=is_wide)
            case "cwd" if self.cwd is not None:
                return matches(_absolute(expected, None), _whole(self.cwd, None))
            case _:
                found = _texts(_look_up(self.given, name))
                holds = [_is_value(expected, text, is_wide=is_wide) for text in found]
                return any(holds) if is_wide else bool(holds) and all(holds)

    def _is_command(self, pattern: str, unit: _Unit, *, is_wide: bool) -> bool:
        if not is_wide:
            return unit.part is not None and matches(pattern, unit.part.text)
        forms = (unit.part.text, *unit.part.forms) if unit.part is not None else ()
        whole = self.permission.command or _look_up(self.given, "command")
        return any(matches(pattern, form) for form in (*forms, *_texts(whole)))

    def _is_path(self, pattern: str, path: str, *, is_wide: bool) -> bool:
        """A link may lead out of the folder that a rule allows, or into one that a rule forbids."""
        wanted, written = _absolute(pattern, self.cwd), _whole(path, self.cwd)
        if is_wide:
            return matches(wanted, written) or matches(wanted, self._resolve(written))
        if not matches(wanted, written):
            return False
        real = self._resolve(written)
        if matches(wanted, real):
            return True
        # The working folder itself may be reached by a link, as temporary ones often are; nothing deeper.
        here = _whole(self.cwd or "/", None)
        beneath = wanted.removeprefix(f"{here}/")
        return beneath != wanted and matches(f"{self._resolve(here)}/{beneath}", real)


def decide(ask: Ask, rules: Sequence[Rule], *, resolve: Callable[[str], str] = lambda path: path) -> Decision:
    """What the rules say to a permission. `resolve` follows links where files can be looked at."""
    permission = ask.permission
    if permission is None or not rules:
        return Decision()
    call = _Call(ask, permission, resolve=resolve)
    found = [(unit, next((rule for rule in rules if call.fits(rule, unit)), None)) for unit in call.units()]
    strictest = max(found, key=lambda each: STRICTNESS[each[1].action if each[1] else None])[1]
    why = tuple(dict.fromkeys(_why(unit, rule) for unit, rule in found))
    if strictest is None:
        spoke = any(rule is not None for _, rule in found)
        return Decision(why=why if spoke else ())
    if strictest.action == "allow":
        if "once" not in permission.replies:
            return Decision(why=(*why, "the agent offers no way to allow it once"))
        if call.doubt is not None and not all(_speaks_of_all(rule) for _, rule in found):
            return Decision(why=(*why, f"{call.doubt}, so a person is asked"))
    return Decision(action=strictest.action, rule=strictest, why=why)


def _speaks_of_all(rule: Rule | None) -> bool:
    """Whether it was written for whatever is run."""
    return rule is not None and "*" in rule.matches.get("command", ("*",))


def _why(unit: _Unit, rule: Rule | None) -> str:
    about = unit.shown if len(unit.shown) <= 200 else f"{unit.shown[:200]}…"
    return f"{about!r}: " + (f"{rule.source or 'a rule'} ({rule})" if rule is not None else "no rule")


def never_match(rules: Sequence[Rule]) -> Iterator[tuple[Rule, str]]:
    """Rules that cannot decide anything, and why."""
    for number, rule in enumerate(rules):
        for name, condition in rule.matches.items():
            if not condition:
                yield rule, f"{name} is an empty list, which nothing is in"
                break
        else:
            earlier = next((other for other in rules[:number] if _covers(other, rule)), None)
            if earlier is not None:
                yield rule, f"{earlier.source or 'a rule before it'} ({earlier}) decides all of it before"


def _covers(wide: Rule, narrow: Rule) -> bool:
    """Whether everything that `narrow` speaks about has been decided by `wide`."""
    if narrow.action in WIDE and wide.action not in WIDE and wide.matches:
        return False  # what forbids finds more than what allows, with the same words
    if wide.context is not None and wide.context != narrow.context:
        return False
    if wide.agent is not None and (narrow.agent is None or not covers(wide.agent, narrow.agent)):
        return False
    if not covers(wide.tool, narrow.tool) or (wide.tool == "*" and narrow.tool == PLAN):
        return False
    return all(
        name in narrow.matches and all(_covered(condition, each) for each in narrow.matches[name])
        for name, condition in wide.matches.items()
    )


def _covered(condition: Condition, narrow: str | bool) -> bool:
    if isinstance(narrow, bool):
        return any(each is narrow for each in condition)
    return any(isinstance(each, str) and covers(each, narrow) for each in condition)


def _whole(path: str, cwd: str | None) -> str:
    """Without `..`, and from the working folder where it is not whole."""
    return posixpath.normpath(posixpath.join(cwd or "/", path))


def _absolute(pattern: str, cwd: str | None) -> str:
    """A pattern for paths, from the working folder unless it begins with anything."""
    if pattern.startswith(("re:", "*")):
        return pattern
    return _whole(posixpath.expanduser(pattern), cwd) + ("/" if pattern.endswith("/") else "")


def _is_value(pattern: str, text: str, *, is_wide: bool) -> bool:
    """An address is what it leads to, and whatever may be a path does not lead out of what is allowed."""
    if "://" in pattern:
        return matches_address(pattern, text) or (is_wide and matches(pattern, text))
    if not matches(pattern, text):
        return False
    return is_wide or ".." not in text.split("/") or matches(pattern, posixpath.normpath(text))


def _look_up(given: Mapping[str, Any], name: str) -> Any:
    """An argument; one inside of another is named with a dot."""
    if name in given:
        return given[name]
    outer, dot, inner = name.partition(".")
    found = given.get(outer) if dot else None
    return _look_up(found, inner) if isinstance(found, Mapping) else None


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int | float):
        return [str(value)]
    return [text for each in value for text in _texts(each)] if isinstance(value, list | tuple) else []


def _shown(condition: Condition) -> str:
    return " or ".join(str(each).lower() if isinstance(each, bool) else repr(each) for each in condition) or "[]"
