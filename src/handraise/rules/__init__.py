"""Rules that decide permissions, the same for every agent: first match wins, and where none speaks a person is asked.

What an agent wants to do is judged in its smallest parts, each command of a line and each file of a patch, and the
strictest decision counts. A rule that allows has to fit all of a part; one that forbids or asks needs to find only
something of it. Rules never answer questions.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from handraise.asks import Ask, Permission
from handraise.rules.globs import covers, matches, matches_address, may_meet, meets, without_case
from handraise.rules.options import named_words, not_covered, up_to_script, warnings_about
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

__all__ = ["Action", "Condition", "Decision", "Rule", "decide", "never_match", "warnings_of"]

Action: TypeAlias = Literal["allow", "reject", "ask", "delegate"]
Condition: TypeAlias = tuple[str | bool, ...]  # any of these
Context: TypeAlias = Literal["thread", "subagent"]

STRICTNESS: Mapping[Action | None, int] = {"allow": 0, "delegate": 1, None: 2, "ask": 2, "reject": 3}
MOST_WORDS = 400  # of what is said of a command that is not shown
MOST_PATHS = 200  # of one call that are looked at; a person is asked about more
MOST_STEPS = 25_000  # comparisons for one decision, and one more for each 1,000 characters: some 40 ms
WIDE: frozenset[Action] = frozenset({"reject", "ask"})  # they match also what only looks like their case


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
    session: str | None = None  # only for this session and its subagents: what a person said `always` to
    source: str = ""  # as in `handraise.toml:12`

    def __str__(self) -> str:
        conditions = [f"{name} = {_shown(condition)}" for name, condition in self.matches.items()]
        about = [f"agent {self.agent}"] if self.agent else []
        about += [self.context] if self.context else []
        about += [f"session {self.session}"] if self.session else []
        said = ", ".join([self.tool, *about, *conditions])
        return f"{said}: {self.action}" + (f" {' '.join(self.to)}" if self.to else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the rules say. `action` is None where none of them speaks."""

    action: Action | None = None
    rule: Rule | None = None
    why: tuple[str, ...] = ()
    delegates: tuple[Rule, ...] = ()  # of `delegate`: each rule whose program has to allow it


@dataclass(frozen=True, slots=True)
class _Unit:
    """The smallest thing that is judged by itself."""

    shown: str = ""
    part: Part | None = None
    path: str | None = None  # from the root
    real: str | None = None  # where the path leads, where that is known


class _TooMuch(Exception):
    """To compare all of it would hold up others."""


class _Call:
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
        self.held_back: dict[_Unit, str] = {}  # why a rule that fits the text of a part does not allow it
        self.may_be: dict[_Unit, Rule] = {}  # what forbids or asks, and may speak of a part only known when it runs
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

    def _units(self, cwd: str | None) -> list[_Unit]:
        permission = self.permission
        command = command_in(permission)
        if command is not None and not is_foreign_shell(permission):
            parts = split(command)
            self.doubt, self.is_blind = self.doubt or parts.doubt_in(self.cwd), parts.is_blind
            return [_Unit(part.text, part=part) for part in parts.parts]
        if self.is_hidden:  # the files that it names do not stand for it
            return [_Unit(permission.summary or permission.tool)]
        places = permission.places
        unnamed, is_all = unnamed_paths(permission, cwd=cwd)
        if len(places) + len(unnamed) > MOST_PATHS or not is_all:
            self.is_cut = f"it names more than {MOST_PATHS} files"
        units = [_Unit(path, path=_whole(path, self.cwd), real=real) for path, real in places[:MOST_PATHS]]
        # Nobody followed the links of what the permission does not name, so that no rule for paths allows it.
        units += [_Unit(path, path=_whole(path, self.cwd)) for path in unnamed[:MOST_PATHS]]
        return units or [_Unit(permission.url or permission.summary or permission.tool)]

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

    def first(self, rules: Sequence[Rule], unit: _Unit) -> Rule | None:
        """The first that speaks about this part, of those that concern the call. Raises _TooMuch."""
        return next((rule for rule in rules if self._fits(rule, unit)), None)

    def _fits(self, rule: Rule, unit: _Unit) -> bool:
        if self._hold_all(rule, unit):
            return True
        is_looked_for = rule.action in WIDE and "command" in rule.matches and unit not in self.may_be
        if is_looked_for and self._hold_all(rule, unit, is_possible=True):
            self.may_be[unit] = rule
        return False

    def _hold_all(self, rule: Rule, unit: _Unit, *, is_possible: bool = False) -> bool:
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

    def _may_be_command(self, pattern: str | bool, unit: _Unit) -> bool:
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
            raise _TooMuch

    def _matches(self, pattern: str, text: str, *, any_case: bool = False) -> bool:
        self._steps += 1 + len(text) // 1000
        if pattern.startswith("re:"):
            self._steps += 5 + len(text) // 200
        if self._steps > MOST_STEPS:
            raise _TooMuch
        return matches(pattern, text, any_case=any_case)

    def _holds(self, name: str, expected: str | bool, unit: _Unit, rule: Rule) -> bool:
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

    def _is_command(self, pattern: str, unit: _Unit, rule: Rule) -> bool:
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
        unit = _Unit(text, part=Part(text, words=tuple(words), written=text))
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


def decide(ask: Ask, rules: Sequence[Rule], *, bans: Sequence[Sequence[Rule]] = ()) -> Decision:
    """What the rules say to a permission.

    `bans` are lists that may only make it stricter: of projects that nobody trusts, and of the folders above. Each is a
    list of its own, and no rule of another takes anything from it.
    """
    permission = ask.permission
    if permission is None or not (rules or any(bans)):
        return Decision()
    call = _Call(ask, permission)
    every = [call.concerning(each) for each in (rules, *bans)]
    call.allowing = every[0]
    try:
        found = [(unit, _decided(call, unit, every)) for unit in call.units]
    except _TooMuch:
        return Decision(why=("too much would have to be compared with the rules, so a person is asked",))
    # What does nothing needs no rule, as long as something else is there.
    found = [each for each in found if each[1] or not (each[0].part and each[0].part.is_idle)] or found
    strictest = _strictest([rule for _, rule in found])
    why = tuple(dict.fromkeys(_why(unit, rule, held_back=call.held_back.get(unit)) for unit, rule in found))
    if strictest is None:
        if call.is_unfollowed:
            why = (*why, "nobody followed the links of its paths, so a person is asked")
        spoke = call.is_unfollowed or bool(call.held_back) or any(rule is not None for _, rule in found)
        return Decision(why=why if spoke else ())
    if strictest.action in ("allow", "delegate"):
        problem = _not_to_allow(call, [rule for _, rule in found], every)
        if problem is not None:
            return Decision(why=(*why, problem))
    delegates: dict[tuple[str, ...], Rule] = {}
    for _, rule in found:
        if strictest.action == "delegate" and rule is not None and rule.to:
            delegates.setdefault((rule.source.rpartition(":")[0], *rule.to), rule)
    return Decision(action=strictest.action, rule=strictest, why=why, delegates=tuple(delegates.values()))


def _decided(call: _Call, unit: _Unit, every: Sequence[Sequence[Rule]]) -> Rule | None:
    first, *bans = (call.first(rules, unit) for rules in every)
    return _strictest([first, *(rule for rule in bans if rule is not None)])


def _strictest(rules: Sequence[Rule | None]) -> Rule | None:
    """The first of the strictest. Where no rule speaks, a person is asked, and a rule that asks says so."""
    found = max(rules, key=lambda rule: STRICTNESS[rule.action if rule else None])
    if found is None:
        return next((rule for rule in rules if rule is not None and rule.action == "ask"), None)
    return found


def _not_to_allow(call: _Call, rules: Sequence[Rule | None], every: Sequence[Sequence[Rule]]) -> str | None:
    """Why a person is asked where the rules would allow it."""
    permission = call.permission
    if "once" not in permission.replies:
        return "the agent offers no way to allow it once"
    if permission.kind == "plan" and call.doubt is not None:
        return f"{call.doubt}, so a person is asked"
    if call.is_hidden and not all(_names_tool(rule) for rule in rules):
        return "the agent does not show the command, so a person is asked"
    if call.is_cut is not None:
        return f"{call.is_cut}, so a person is asked"
    if call.doubt is not None and not all(_speaks_of_all(rule) for rule in rules):
        return f"{call.doubt}, so a person is asked"
    forbidding = (rule for each in every for rule in each if rule.action in WIDE)
    if (call.is_blind or call.besides) and any("command" in rule.matches for rule in forbidding):
        return f"{call.doubt or 'its arguments may hold a command'}, and what another rule speaks of may be in it"
    if (possible := next(iter(call.may_be.values()), None)) is not None:
        return f"it may be what {possible.source or 'a rule'} ({possible}) speaks of"
    return None


def _speaks_of_all(rule: Rule | None) -> bool:
    """Whether it was written for whatever is run."""
    if rule is None or rule.matches.keys() & {"command_line", "path", "url"}:
        return False
    return "*" in rule.matches.get("command", ("*",))


def _names_tool(rule: Rule | None) -> bool:
    """Whether it was written for exactly this tool, whatever it does."""
    return rule is not None and not rule.matches and not rule.tool.startswith("re:") and not set("*?[") & set(rule.tool)


def _ends(text: str) -> Iterator[str]:
    """The text from each of its words on, as far as a command may begin there."""
    words = text.split()
    for place, word in enumerate(words[: MOST_WORDS + 1]):
        yield " ".join([word.lstrip("\"'`({["), *words[place + 1 :]]).rstrip("\"'`)}]")


def _why(unit: _Unit, rule: Rule | None, *, held_back: str | None) -> str:
    about = unit.shown if len(unit.shown) <= 200 else f"{unit.shown[:200]}…"
    return f"{about!r}: " + (f"{rule.source or 'a rule'} ({rule})" if rule is not None else held_back or "no rule")


def warnings_of(rule: Rule) -> tuple[str, ...]:
    """What a rule covers that its author may not see."""
    if rule.action != "allow":
        return ()
    patterns = [each for each in rule.matches.get("command", ()) if isinstance(each, str)]
    return tuple(dict.fromkeys(f"{each!r}: {warning}" for each in patterns for warning in warnings_about(each)))


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
    if wide.session is not None and wide.session != narrow.session:
        return False
    if wide.agent is not None and (narrow.agent is None or not covers(wide.agent, narrow.agent)):
        return False
    if not covers(wide.tool, narrow.tool) or (wide.tool == "*" and narrow.tool == PLAN):
        return False
    return all(
        name in narrow.matches and all(_covered(condition, each, name, wide, narrow) for each in narrow.matches[name])
        for name, condition in wide.matches.items()
    )


def _covered(condition: Condition, text: str | bool, name: str, wide: Rule, narrow: Rule) -> bool:
    if isinstance(text, bool):
        return any(each is text for each in condition)
    found = [each for each in condition if isinstance(each, str) and covers(each, text)]
    if name != "command" or wide.action != "allow" or not found:
        return bool(found)
    if narrow.action != "allow" and "*" not in found:
        return False  # what allows does not cover every option
    return any(not_covered(each, named_words(text)) is None for each in found)


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


def _shown(condition: Condition) -> str:
    return " or ".join(str(each).lower() if isinstance(each, bool) else repr(each) for each in condition) or "[]"
