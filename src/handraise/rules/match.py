"""What one call of an agent says, compared with rules: its smallest parts, and whether a rule speaks of one.

A rule that allows has to fit all of a part; one that forbids or asks needs to find only something of it.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handraise.asks import Ask, Permission
from handraise.rules.globs import matches, matches_address, may_meet, meets, without_case
from handraise.rules.options import not_covered, up_to_script
from handraise.rules.rule import WIDE, Context, Rule
from handraise.rules.shell import Part, begun_inside, split
from handraise.rules.tools import (
    MCP,
    PLAN,
    bounded_hints,
    command_in,
    commands_besides,
    hides_command,
    hints_of,
    is_foreign_shell,
    line_of,
    more_than_shown,
    names_of,
    names_to_forbid,
    unnamed_paths,
)
from handraise.rules.tools import whole_path as _whole

__all__ = ["Call", "TooMuch", "Unit"]

MOST_WORDS = 400  # of what is said of a command that is not shown
MOST_PATHS = 200  # of one call that are looked at; a person is asked about more
MOST_STEPS = 25_000  # comparisons for one decision, and one more for each 1,000 characters: some 40 ms


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest thing that is judged by itself."""

    shown: str = ""
    part: Part | None = None
    path: str | None = None  # from the root
    real: str | None = None  # where the path leads, where that is known


class TooMuch(Exception):
    """To compare all of it would hold up others."""


class Call:
    """What an agent wants to do, in the words of rules. What many rules compare is worked out once."""

    def __init__(self, ask: Ask, permission: Permission) -> None:
        self.allowing: Sequence[Rule] = ()  # the rules for this tool that may allow it
        self._is_inside = False  # a command among the words of another is looked at
        self.permission = permission
        self.agent = ask.origin.agent
        self.session = ask.origin.root
        self.names = names_of(permission)
        self.names_to_forbid = names_to_forbid(permission)
        self.context: Context = "subagent" if ask.origin.parent is not None else "thread"
        self.given = permission.input or {}
        self.cwd = permission.cwd or ask.origin.cwd
        self.doubt = more_than_shown(permission, cwd=ask.origin.cwd)
        self.is_blind = False
        self.is_hidden = hides_command(permission)
        self.besides = commands_besides(permission)  # what may be run, and is not what is shown
        self.is_cut: str | None = None  # why not all of it is compared
        self.held_back: dict[Unit, str] = {}  # why a rule that fits the text of a part does not allow it
        self.may_be: dict[Unit, Rule] = {}  # what forbids or asks, and may speak of a part only known when it runs
        self.is_unfollowed = False  # a rule would allow a path, and nobody followed its links
        self.units = self._units(ask.origin.cwd)
        self._named: dict[tuple[str, bool], bool] = {}
        self._patterns: dict[tuple[str, bool], tuple[str, ...]] = {}
        self._in_any_case: dict[str, str] = {}
        self._values: dict[str, list[str]] = {}
        self._lines = list(dict.fromkeys(_texts([permission.command, line_of(self.given), self.given.get("command")])))
        self._in_line: dict[str, bool] = {}
        self._begins: dict[str, list[str]] | None = None
        self._steps = 0

    def _units(self, cwd: str | None) -> list[Unit]:
        permission = self.permission
        command = command_in(permission)
        if command is not None and not is_foreign_shell(permission):
            parts = split(command)
            self.doubt, self.is_blind = self.doubt or parts.doubt_in(self.cwd), parts.is_blind
            return [Unit(part.text, part=part) for part in parts.parts]
        if self.is_hidden:  # the files that it names do not stand for it
            return [Unit(permission.summary or permission.tool)]
        places = permission.places
        unnamed, is_all = unnamed_paths(permission, cwd=cwd)
        if len(places) + len(unnamed) > MOST_PATHS or not is_all:
            self.is_cut = f"it names more than {MOST_PATHS} files"
        units = [Unit(path, path=_whole(path, self.cwd), real=real) for path, real in places[:MOST_PATHS]]
        # Nobody followed the links of what the permission does not name, so that no rule for paths allows it.
        units += [Unit(path, path=_whole(path, self.cwd)) for path in unnamed[:MOST_PATHS]]
        return units or [Unit(permission.url or permission.summary or permission.tool)]

    def concerning(self, rules: Sequence[Rule]) -> list[Rule]:
        """Those for this tool, whatever it is called with."""
        return [rule for rule in rules if self._concerns(rule)]

    def _concerns(self, rule: Rule) -> bool:
        if rule.context is not None and rule.context != self.context:
            return False
        if rule.session is not None and not (rule.session == self.session and self._names_all(rule)):
            return False
        if rule.agent is not None and not matches(rule.agent, self.agent):
            return False
        return self._is_tool(rule.tool, is_wide=rule.action in WIDE)

    def _is_tool(self, pattern: str, *, is_wide: bool) -> bool:
        """Many rules have the same pattern for the tool."""
        if (pattern, is_wide) not in self._named:
            names = self.names_to_forbid if is_wide else self.names
            is_named = any(matches(pattern, name) for name in names)
            self._named[pattern, is_wide] = is_named and not (PLAN in names and pattern == "*")
        return self._named[pattern, is_wide]

    def _names_all(self, rule: Rule) -> bool:
        """Whether a rule that an answer made has a condition for everything that the call names. A person said yes to
        calls of one form, and the same tool may be called with more."""
        given, permission = rule.matches, self.permission
        if command_in(permission) is not None and not given.keys() & {"command", "command_line"}:
            return False
        if (permission.paths or permission.diff) and "path" not in given:
            return False
        return permission.url is None or "url" in given

    def first(self, rules: Sequence[Rule], unit: Unit) -> Rule | None:
        """The first that speaks about this part, of those that concern the call. Raises TooMuch."""
        return next((rule for rule in rules if self._fits(rule, unit)), None)

    def _fits(self, rule: Rule, unit: Unit) -> bool:
        if self._hold_all(rule, unit):
            return True
        is_looked_for = rule.action in WIDE and "command" in rule.matches and unit not in self.may_be
        if is_looked_for and self._hold_all(rule, unit, is_possible=True):
            self.may_be[unit] = rule
        return False

    def _hold_all(self, rule: Rule, unit: Unit, *, is_possible: bool = False) -> bool:
        """`is_possible`: the command may be one that the rule speaks of, and need not."""
        for name, condition in rule.matches.items():
            for each in condition:
                if is_possible and name == "command":
                    if self._may_be_command(each, unit):
                        break
                elif self._holds(name, each, unit, rule):
                    break
            else:
                return False
        return True

    def _may_be_command(self, pattern: str | bool, unit: Unit) -> bool:
        """Whether the pattern may speak of a command that is only known when it runs, or that another one runs."""
        if isinstance(pattern, bool) or unit.part is None:
            return False
        for form in (*unit.part.possible_forms, *begun_inside(unit.part, pattern)):
            self._step(form)
            if may_meet(pattern, form):
                return True
        return False

    def _step(self, text: str = "") -> None:
        self._steps += 1 + len(text) // 1000
        if self._steps > MOST_STEPS:
            raise TooMuch

    def _matches(self, pattern: str, text: str, *, any_case: bool = False) -> bool:
        self._steps += 1 + len(text) // 1000
        if pattern.startswith("re:"):
            self._steps += 5 + len(text) // 200
        if self._steps > MOST_STEPS:
            raise TooMuch
        return matches(pattern, text, any_case=any_case)

    def _holds(self, name: str, expected: str | bool, unit: Unit, rule: Rule) -> bool:
        is_wide = rule.action in WIDE
        if isinstance(expected, bool):
            return _look_up(self.given, name) is expected
        match name:
            case "command":
                return self._is_command(expected, unit, rule)
            case "command_line":
                return self._may_compare_command(rule) and command_in(self.permission) == expected
            case "path" if unit.path is not None:
                return self._is_path(expected, unit.path, real=unit.real, is_wide=is_wide)
            case "url" if self.permission.url is not None:
                self._step(self.permission.url)
                return _is_value(expected, self.permission.url, is_wide=is_wide)
            case "cwd" if self.cwd is not None:
                return self._matches(_absolute(expected, None), _whole(self.cwd, None), any_case=is_wide)
            case _:
                return self._is_argument(name, expected, is_wide=is_wide)

    def _is_argument(self, name: str, expected: str, *, is_wide: bool) -> bool:
        if name not in self._values:
            self._values[name] = _texts(_look_up(self.given, name))
        texts = self._values[name]
        for text in texts:
            self._step(text)
            if _is_value(expected, text, is_wide=is_wide) == is_wide:
                return is_wide  # one is enough to forbid, and one that does not fit is enough not to allow
        return bool(texts) and not is_wide

    def _may_compare_command(self, rule: Rule) -> bool:
        """What a tool of a server does with its argument `command` is known only to who wrote a rule for that tool."""
        return rule.action in WIDE or MCP not in self.names or rule.tool.lower().startswith(MCP)

    def _is_command(self, pattern: str, unit: Unit, rule: Rule) -> bool:
        part = unit.part
        if rule.action not in WIDE:
            if part is not None and part.sets:
                pattern = pattern.removeprefix(f"{part.sets} ")
            if part is None or not self._may_compare_command(rule) or not self._is_text(pattern, part):
                return False
            # A program that decides sees the whole command, so only what allows by itself is held back.
            why = None
            if rule.action == "allow":
                inside = None if self._is_inside else self._is_allowed_inside
                why = not_covered(pattern, part.words, written=part.written, is_allowed=inside, cwd=self.cwd)
            if why is not None:
                self.held_back.setdefault(unit, f"{rule.source or 'a rule'} ({rule}) does not cover it: {why}")
            return why is None
        if part is not None and any(self._matches(pattern, form) for form in (part.text, *part.forms)):
            return True
        if pattern not in self._in_line:  # the same for each part of the line
            self._in_line[pattern] = any(self._matches(pattern, line) for line in self._lines)
        if self._in_line[pattern]:
            return True
        if (self.is_hidden or self.besides) and self._is_hinted_at(pattern):
            return True
        for form in part.open_forms if part is not None else ():
            self._step(form)
            if meets(pattern, form):
                return True
        return False

    def _is_text(self, pattern: str, part: Part) -> bool:
        if self._matches(pattern, part.text):
            return self._stays_in(pattern, part.words)
        script = up_to_script(pattern, part.words)
        is_text = len(script) < len(part.words) and self._matches(pattern, shlex.join(script))
        return is_text and self._stays_in(pattern, script)

    def _stays_in(self, pattern: str, words: Sequence[str]) -> bool:
        """Whether the pattern also fits where paths are made plain: `src/../x` is not in `src`."""
        if pattern == shlex.join(words) or not any(".." in word.split("/") for word in words):
            return True
        return self._matches(pattern, shlex.join([_plain(word) for word in words]))

    def _is_allowed_inside(self, words: Sequence[str]) -> bool:
        """Whether a rule allows a command that stands among the words of another. What forbids finds it by itself."""
        text = shlex.join(words)
        unit = Unit(text, part=Part(text, words=tuple(words), written=text))
        self._is_inside = True
        try:
            return any(
                rule.action == "allow" and "command" in rule.matches and self._fits(rule, unit)
                for rule in self.allowing
            )
        finally:
            self._is_inside = False

    def _is_hinted_at(self, pattern: str) -> bool:
        """Whether what is said of a command that is not shown holds such a command, from one of its words on."""
        if self._begins is None:
            hints, is_all = hints_of(self.permission) if self.is_hidden else bounded_hints(self.besides)
            self._begins = {}
            count = 0
            for end in (end for hint in hints for end in _ends(hint)):
                count += 1
                if count > MOST_WORDS:
                    break
                self._begins.setdefault(end.partition(" ")[0], []).append(end)
            if not is_all or count > MOST_WORDS:
                self.is_cut = "more is said of its command than is looked through"
        first, space, _ = pattern.partition(" ")
        is_plain = bool(space) and "*" not in first and not pattern.startswith("re:")
        ends = [self._begins.get(first, [])] if is_plain else list(self._begins.values())
        return any(self._matches(pattern, end) for each in ends for end in each)

    def _is_path(self, pattern: str, path: str, *, real: str | None, is_wide: bool) -> bool:
        """A link may lead out of the folder that a rule allows, or into one that a rule forbids. Where nobody followed
        the links, it is in doubt. What forbids counts in any case: many disks do not tell `.ENV` from `.env`."""
        if (pattern, is_wide) not in self._patterns:
            wanted = _absolute(pattern, self.cwd)
            found = (wanted, *self._from_real_folder(wanted))
            self._patterns[pattern, is_wide] = (
                tuple(map(without_case, found)) if is_wide and wanted[:3] != "re:" else found
            )
        places = self._patterns[pattern, is_wide]
        any_case = is_wide and places[0].startswith("re:")
        is_written = self._matches(places[0], self._folded(path) if is_wide else path, any_case=any_case)
        if is_written if is_wide else not is_written:
            return is_wide
        if real is None:
            self.is_unfollowed |= not is_wide
            return False
        if real == path and not is_written and len(places) == 1:
            return False  # there was no link
        real = self._folded(real) if is_wide else real
        return any(self._matches(each, real, any_case=any_case) for each in places)

    def _folded(self, path: str) -> str:
        if path not in self._in_any_case:
            self._in_any_case[path] = without_case(path)
        return self._in_any_case[path]

    def _from_real_folder(self, wanted: str) -> Iterator[str]:
        """The working folder itself may be reached by a link, as temporary ones often are; nothing deeper."""
        here, real = _whole(self.cwd or "/", None), self.permission.resolved_cwd
        beneath = wanted.removeprefix(f"{here}/")
        if real is not None and beneath != wanted:
            yield f"{real}/{beneath}"


def _ends(text: str) -> Iterator[str]:
    """The text from each of its words on, as far as a command may begin there."""
    words = text.split()
    for place, word in enumerate(words[: MOST_WORDS + 1]):
        yield " ".join([word.lstrip("\"'`({["), *words[place + 1 :]]).rstrip("\"'`)}]")


def _plain(word: str) -> str:
    """A word without the steps of a path that lead back, also as the value of an option or in an address."""
    if ".." not in word.split("/"):
        return word
    name, equals, _ = word.partition("=") if word.startswith("-") else ("", "", "")
    before = f"{name}=" if equals else ""
    scheme, colon, path = word.removeprefix(before).rpartition("://")
    return f"{before}{scheme}{colon}{posixpath.normpath(path)}"


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
