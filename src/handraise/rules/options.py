"""Whether a rule that allows covers the options of a command: only those that are known as harmless, or that it names.

What a program's options do stands in `programs.toml`. A program that is not there is covered as the rule is written.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from handraise.rules.globs import REGEX, matches, matches_address, matches_host
from handraise.rules.programs import HARMFUL, KINDS, Command, Option, command_of, valued
from handraise.rules.scripts import is_harmless_script

__all__ = ["Running", "named_words", "not_covered", "running_of", "up_to_script", "valued_options", "warnings_about"]

MOST_WORDS = 500  # of a command that are looked at; nobody reads more
MOST_LETTERS = 30  # of options that are written together
MOST_OPEN_WORDS = 20  # that stand for files and are compared with options
LONGEST_OPEN_WORD = 200
DEEPEST = 8  # programs that run programs
MOST_STARTED = 8  # commands among the words that other rules are asked about
NEVER = 1_000_000  # more `--` than there are
ANY = "*"
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_FROM_INPUT = re.compile(r"-|/dev/(stdin|fd/\d+|tcp/.*|udp/.*)|/proc/(self|thread-self|\d+)/fd/\d+")
_HIDDEN = re.compile(r"\.[*?\[]")  # a pattern that may stand for `..`
_REPLACING = frozenset({"-I", "-i", "-J", "--replace"})  # of xargs: what is replaced by words that it reads
# What a subcommand does that a wildcard in its place does not cover.
_UNSEEN: Mapping[str, str] = {"executes": KINDS["executes"], "configures": KINDS["configures"]}


def not_covered(
    pattern: str,
    words: Sequence[str],
    *,
    written: str = "",
    is_allowed: Callable[[Sequence[str]], bool] | None = None,
    cwd: str | None = None,
) -> str | None:
    """Why a pattern that fits the text of a command does not cover it; None where it does.

    `written` is the command as it stands in the line, with its quotes. `is_allowed` says whether another rule allows a
    command that stands among the words, as behind `find -exec`. `cwd` is the working folder.
    """
    if pattern == ANY or not _is_open(pattern) or not words:
        return None
    if len(words) > MOST_WORDS:
        return "it has too many words to be looked through"
    return _Judge(_said_by(pattern), written=written, is_allowed=is_allowed, cwd=cwd).judge(words)


def up_to_script(pattern: str, words: Sequence[str]) -> Sequence[str]:
    """The words of a call of an interpreter up to its script, where the pattern ends with one: `python *.py` covers
    `python a.py --x 1`, since what follows goes to the script. Otherwise all of them."""
    program = _program(words) if words else None
    command = command_of(program) if program is not None else None
    if program is None or command is None or not (command.is_code and command.stops):
        return words
    last = _said_by(pattern).words[1:][-1:]
    if not last or ANY not in last[0] or last[0] == ANY:
        return words
    reader = _Reader(program, words[:MOST_WORDS])
    items = list(reader.items())
    return words[: reader.number] if items and not items[-1].name else words


def _is_open(pattern: str) -> bool:
    return pattern.startswith(REGEX) or ANY in pattern


# What a rule names --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Said:
    """What a pattern says in so many words. Of a regular expression only whole words count."""

    words: tuple[str, ...] = ()
    text: str | None = None  # of a regular expression

    def rest(self, number: int) -> _Said:
        return self if self.text is not None else _Said(self.words[number:])

    def holds(self, word: str) -> bool:
        """Whether the word itself stands there, or its name with a wildcard for its value."""
        if self.text is not None:
            return _stands_in(word, self.text) or _stands_in(re.escape(word), self.text)
        name, equals, _ = word.partition("=")
        return any(
            each == word or (equals and each.startswith(f"{name}=") and matches(each, word)) for each in self.words
        )


def _stands_in(word: str, text: str) -> bool:
    """Whether a text holds the word, and not only as a part of a longer one."""
    place = text.find(word)
    while place >= 0:
        before, after = text[place - 1 : place] if place else "", text[place + len(word) : place + len(word) + 1]
        if not (before.isalnum() or before in ("-", "_")) and not (after.isalnum() or after in ("-", "_", "=")):
            return True
        place = text.find(word, place + 1)
    return False


@lru_cache(maxsize=1024)
def _said_by(pattern: str) -> _Said:
    if pattern.startswith(REGEX):
        return _Said(text=pattern.removeprefix(REGEX))
    return _Said(named_words(pattern))


def named_words(pattern: str) -> tuple[str, ...]:
    """The words of a pattern; a wildcard is a word, or a part of one."""
    try:
        return tuple(shlex.split(pattern))
    except ValueError:
        return tuple(pattern.split())


@dataclass(slots=True)
class _Named:
    """The options that a pattern names, with a pattern for the value of each."""

    options: list[tuple[str, str | None]] = field(default_factory=list)
    path: tuple[str, ...] = ()  # of subcommands
    operands: list[str] = field(default_factory=list)  # words that are no options
    inner: _Said = field(default_factory=_Said)  # what follows the words of a program that runs another

    def has(self, name: str, value: str | None, option: Option | None) -> bool:
        """A `*` alone stands for no value that makes a harmless option do harm: `tar tf *` is not `tar tf host:x`."""
        is_narrow = option is not None and option.kind == "harmless" and option.fits is not None
        return any(
            name == each
            and (value == said or (said is not None and value is not None and matches(said, value)))
            and not (is_narrow and said == ANY)
            for each, said in self.options
        )


@lru_cache(maxsize=4096)
def _named(said: _Said, program: str, path: tuple[str, ...]) -> _Named:
    """Read a pattern as a call of the command. A wildcard may stand for its subcommands."""
    found = _Named()
    reader = _Reader(program, said.words)
    chain = list(path)
    depth = 0
    for item in reader.items():
        if item.option is not None or item.name:
            found.options.append((item.name, item.value))
        elif ANY in item.word and reader.command.subcommands:
            reader.skip_to(chain)
        elif len(reader.path) == depth:
            found.operands.append(item.word)
        depth = len(reader.path)
        if reader.is_inner:
            break
    found.path = reader.path
    found.inner = said.rest(reader.number)
    return found


# The words of a command ---------------------------------------------------------------------------------------------


class _Item(NamedTuple):
    """An option with its value, or a word that is none (`name` is empty)."""

    word: str
    name: str = ""
    value: str | None = None
    option: Option | None = None  # None: the file does not know it


class _Reader:
    """Walks the words of a call, as the program itself would."""

    def __init__(self, program: str, words: Sequence[str]) -> None:
        """`program` is the name in the file: `words[0]` may have a path."""
        found = command_of(program)
        assert found is not None
        self.command: Command = found
        self.path: tuple[str, ...] = ()
        self.unknown: str | None = None  # a subcommand that the file does not know
        self.number = 1
        self.is_inner = False  # the rest is a command, or words for one
        self.started: list[Sequence[str]] = []  # commands among the words, as behind `find -exec`
        self.is_ended = False  # by a `--` that is no value
        self._words = words
        self._is_alone = False  # a word is looked at by itself: the next one is no value
        self._own = 0  # words that are no options, since the last subcommand

    def skip_to(self, chain: Sequence[str]) -> None:
        """Go on as if these subcommands had been read."""
        self.path = tuple(chain)
        self.command = command_of(" ".join((self.command.name.split()[0], *chain))) or self.command

    def items(self) -> Iterator[_Item]:
        if self.command.is_plain:
            return
        if self.command.is_old and self.number < len(self._words) and not self._words[self.number].startswith("-"):
            yield from self._old()
        while self.number < len(self._words):
            word, is_over = self._words[self.number], self.is_ended
            if not is_over and word == "--":
                self.is_ended = True
                self.number += 1
                if self.command.runs is not None and self._own >= self.command.runs:
                    self.is_inner = True
                    return
            elif len(word) > 1 and word.startswith("-") and (not is_over or self._is_past(word)):
                self.number += 1
                yield from self._option(word)
                if self.is_inner:
                    return
            elif self._starts_another(word):
                self.is_inner = True
                return
            else:
                self.number += 1
                yield self._operand(word)
                if self.unknown is not None or self._is_stopped():
                    self.is_inner = True
                    return

    def _is_stopped(self) -> bool:
        stops = self.command.stops
        return stops is not None and self.command.runs is None and self._own >= stops

    def _is_past(self, word: str) -> bool:
        return any(word.startswith(option) for option in self.command.past)

    def _starts_another(self, word: str) -> bool:
        if self.command.runs is None or self._own < self.command.runs:
            return False
        return not (self.command.assigns and _ASSIGNMENT.match(word))

    def _operand(self, word: str) -> _Item:
        command = self.command
        if command.subcommands and not self._own and word in command.subcommands:
            self.path = (*self.path, word)
            self.command = command_of(f"{command.name} {word}") or command
            return _Item(word)
        if command.subcommands and not self._own and not command.is_free and ANY not in word:
            self.unknown = word
        self._own += 1
        return _Item(word)

    def _option(self, word: str) -> Iterator[_Item]:
        if self.command.has_words:
            name, equals, value = word.partition("=")
            name = name if name in self.command.options or not name.startswith("--") else name[1:]
            letter = word[:2]
            if name not in self.command.options and word[2:].isdecimal() and letter in self.command.options:
                name, equals, value = letter, "=", word[2:]  # `-j8`
            yield from self._valued(word, name, value if equals else None)
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            yield from self._valued(word, name, value if equals else None)
        elif re.fullmatch(r"-\d+", word) and (number := self.command.options.get("-#")) is not None:
            yield _Item(word, "-#", word[1:], number)
        elif word in self.command.options and len(word) > 2:  # such as `-nv` of wget
            yield from self._valued(word, word, None)
        else:
            yield from self._cluster(word)

    def _valued(self, word: str, name: str, value: str | None) -> Iterator[_Item]:
        option = self.command.options.get(name)
        if option is None and name in ("--help", "--version") and value is None:
            option = Option(name, "harmless", "nothing")
        is_next = option is not None and option.takes == "next" and value is None
        if option is not None and is_next:
            value = self._next(option)
        if option is not None and option.name in self.command.starts and value is not None:
            self._start(option.name)
        yield _Item(word, name, value, option)
        self._hand_on(option, value)
        if is_next:
            yield from self._seen_as_option(option, value)

    def _start(self, name: str) -> None:
        """The command behind `find -exec`, up to `;` or `{} +`. With `+` there may be more names than one."""
        begin, is_many = self.number - 1, False
        while self.number < len(self._words) and not is_many and self._words[self.number] != ";":
            is_last = self._words[self.number] == "+" and self._words[self.number - 1] == "{}"
            is_many = is_last and not name.startswith("-ok")
            self.number += 1
        found = [*self._words[begin : self.number]]
        self.started.append([*found[:-1], "{}"] if is_many else found)

    def _seen_as_option(self, option: Option | None, value: str | None) -> Iterator[_Item]:
        """A next word that begins with a dash: not every version takes it as a value, so it is an option too."""
        if option is None or option.takes_dashes or value is None or len(value) < 2 or not value.startswith("-"):
            return
        if value == "--":
            return
        self._is_alone = True
        yield from self._option(value)
        self._is_alone = False

    def _cluster(self, word: str) -> Iterator[_Item]:
        was_alone = self._is_alone
        yield from self._letters(word)
        self._is_alone = was_alone

    def _letters(self, word: str) -> Iterator[_Item]:
        for place, letter in enumerate(word[1:], start=2):
            name = f"-{letter}"
            if place > MOST_LETTERS:
                yield _Item(word, name)
                return
            option = self.command.options.get(name)
            rest = word[place:]
            if option is None:
                yield _Item(word, name, rest or None)
                return
            if option.takes == "nothing":
                yield _Item(word, name, None, option)
                continue
            value: str | None = rest or None
            is_next = value is None and option.takes == "next"
            if is_next:
                value = self._next(option)
            yield _Item(word, name, value, option)
            self._hand_on(option, value)
            if is_next:
                yield from self._seen_as_option(option, value)
            if rest[:1] in ("", "=") or rest[:1].isdecimal() or not self.command.is_loose:
                return
            self._is_alone = True  # `jest -tc x` is `-t -c x`: such programs read letters as options

    def _old(self) -> Iterator[_Item]:
        """A first word of letters, whose values follow one by one."""
        word = self._words[self.number]
        self.number += 1
        for letter in word:
            option = self.command.options.get(f"-{letter}")
            value = self._next(option) if option is not None and option.takes == "next" else None
            yield _Item(word, f"-{letter}", value, option)

    def _next(self, option: Option) -> str | None:
        if self.number >= len(self._words) or self._is_alone:
            return None
        word = self._words[self.number]
        if self.command.is_loose and word.startswith("-"):
            return None
        self.number += 1
        return word

    def _hand_on(self, option: Option | None, value: str | None) -> None:
        """`python -m pytest …`: the rest are words for that program."""
        if option is not None and option.name == self.command.module and value is not None:
            self.is_inner = True


# Judging ------------------------------------------------------------------------------------------------------------


def _program(words: Sequence[str]) -> str | None:
    """The program that is called, where the file knows it."""
    name = words[0].rpartition("/")[2]
    return name if " " not in name and command_of(name) is not None else None


class _Judge:
    def __init__(
        self,
        said: _Said,
        *,
        written: str,
        ends: int = 0,
        is_allowed: Callable[[Sequence[str]], bool] | None = None,
        cwd: str | None = None,
    ) -> None:
        """`ends` is how many `--` stand before the command in what is written."""
        self._said = said
        self._written = written
        self._ends = ends
        self._is_allowed = is_allowed
        self._allows_all: bool | None = None
        self._cwd = cwd

    def judge(self, words: Sequence[str], *, depth: int = 0) -> str | None:
        if depth > DEEPEST:
            return "it runs programs that run programs, too deep to be looked through"
        if why := self._program(words[0]):
            return why
        program = _program(words)
        if program is None:
            return None
        reader = _Reader(program, words)
        if reader.command.is_code and self._said.words[1:] == (ANY,):
            return None  # code of any kind: as wide as it says
        items = list(reader.items())
        named = _named(self._said, program, reader.path)
        return (
            self._subcommand(reader)
            or self._response(reader.command, words)
            or next((why for item in items if (why := self._item(reader, item, named))), None)
            or self._words(reader, items, named)
            or self._files(reader, items, words)
            or self._inner(reader, items, words, named, depth=depth)
        )

    def _program(self, word: str) -> str | None:
        """`tsc*` is tsc, and not tsc-evil, which its author does not see."""
        said = self._said.words[0].rpartition("/")[2] if self._said.words else ""
        name, star, rest = said.partition(ANY)
        if not star or rest or " " in name or command_of(name) is None:
            return None
        called = word.rpartition("/")[2]
        if re.fullmatch(rf"{re.escape(name)}[\d.]*", called):
            return None
        return f"{_short(called)} is another program than {name}; write the program and a space before the *"

    def _subcommand(self, reader: _Reader) -> str | None:
        name = reader.command.name.split()[0]
        is_reading = len(reader.path) > 1 and reader.command.does == "reads"
        for number, word in enumerate(() if is_reading else reader.path):
            above = command_of(" ".join((name, *reader.path[:number])))
            does = above.subcommands[word] if above is not None else "reads"
            if does in _UNSEEN and not self._names(word):
                return f"{name} {' '.join(reader.path[: number + 1])} {_UNSEEN[does]}, and the rule does not name it"
        if reader.unknown is not None and not self._said.holds(reader.unknown):
            return f"{reader.command.name} {reader.unknown} is not known"
        return None

    def _names(self, subcommand: str) -> bool:
        return self._said.holds(subcommand) if self._said.text is not None else subcommand in self._said.words

    def _response(self, command: Command, words: Sequence[str]) -> str | None:
        if not command.has_response:
            return None
        told = next((word for word in words[1:] if word.startswith("@") and not self._said.holds(word)), None)
        return None if told is None else f"{_short(told)} is a file with more words, and the rule does not name it"

    def _item(self, reader: _Reader, item: _Item, named: _Named) -> str | None:
        if not item.name:
            return None
        option = item.option
        if option is not None:
            has_fitting_value = option.fits is not None and option.fits.fullmatch(item.value or "") is not None
            if has_fitting_value or (option.kind == "harmless" and option.fits is None):
                return None
            if option.name in reader.command.starts and self._all_allowed(reader):
                return None
        if named.has(item.name, item.value, option) or (self._said.text is not None and self._said.holds(item.word)):
            return None
        return _blame(item, option, reader.command.name)

    def _all_allowed(self, reader: _Reader) -> bool:
        """Whether other rules allow all commands among the words. They are asked once."""
        if self._is_allowed is None or not 0 < len(reader.started) <= MOST_STARTED:
            return False
        if self._allows_all is None:
            opened = {word for word, _ in _patterns(self._written)}
            self._allows_all = all(
                opened.isdisjoint(started) and self._is_allowed(started) for started in reader.started
            )
        return self._allows_all

    def _words(self, reader: _Reader, items: Sequence[_Item], named: _Named) -> str | None:
        """The words that are no options, where they do more than name something."""
        command = reader.command
        operands = [item.word for item in items if not item.name][len(reader.path) :]
        return (
            self._scripts(command, items, operands)
            or self._code(command, operands, named)
            or self._operands(command, [*operands, *_values(items, command.places)], named)
            or self._elsewhere(command, [*operands, *_values(items, command.places)], named)
            or self._most(command, operands)
        )

    def _scripts(self, command: Command, items: Sequence[_Item], operands: Sequence[str]) -> str | None:
        if command.script is None:
            return None
        language, options = command.script
        scripts = [item.value for item in items if item.name in options]
        # awk by Kernighan passes over options that it does not know, such as --source.
        if language != "sql" and (not scripts or None in scripts or language == "awk"):
            scripts += operands[:1]
        if language == "sed" and scripts and _begins_with_word(items, options):
            scripts += operands[:1]  # where options end with the first word, as on macOS, it is the script
        if language == "jq":
            scripts = list(operands)  # options with two values may stand before the script
        opened = {word for word, _ in _patterns(self._written)}
        for number, script in enumerate(scripts):
            is_harmless = is_harmless_script(script or "", language=language)
            is_harmless = is_harmless and (script not in opened or (language == "jq" and number > 0))
            if not is_harmless and not self._said.holds(script or ""):
                return f"what {command.name} does with {_short(script or '')} is not known to be harmless"
        return None

    def _code(self, command: Command, operands: Sequence[str], named: _Named) -> str | None:
        """The script of an interpreter: the first word, which has to fit that of the rule."""
        if not command.is_code or not operands:
            return None
        script = operands[0]
        if _FROM_INPUT.fullmatch(script) and not self._said.holds(script):
            return f"{command.name} runs the code that it reads"
        if named.operands and not matches(named.operands[0], script):
            return f"{command.name} runs {_short(script)}, and the rule names {_short(named.operands[0])}"
        return None

    def _operands(self, command: Command, operands: Sequence[str], named: _Named) -> str | None:
        if command.operand is not None:
            fits, kind = command.operand
            for word in operands:
                if fits.fullmatch(word) is None and not self._said.holds(word):
                    return f"{_short(word)} {KINDS[kind]}, and the rule does not name it"
        if not command.is_each:
            return None
        if self._said.text is not None and len({_host(word) for word in operands}) > 1:
            return "it has addresses of several hosts"
        addresses = [word for word in named.operands if word != ANY]
        for word in operands if addresses else ():
            if not any(_is_address(each, word) or each == word for each in addresses):
                return f"{_short(word)} is another address than the rule names"
        return None

    def _elsewhere(self, command: Command, operands: Sequence[str], named: _Named) -> str | None:
        """Files of another folder, where they bring code or settings."""
        if not command.is_inside:
            return None
        for word in operands:
            is_named = any(each != ANY and matches(each, word) for each in named.operands)
            if _leads_out(word, self._cwd) and not is_named and not self._said.holds(word):
                return f"{_short(word)} is not in the working folder, and the rule does not name it"
        return None

    def _most(self, command: Command, operands: Sequence[str]) -> str | None:
        if command.most is None:
            return None
        most, kind = command.most
        return next(
            (
                f"{_short(word)} {KINDS[kind]}, and the rule does not name it"
                for word in operands[most:]
                if not self._said.holds(word)
            ),
            None,
        )

    def _files(self, reader: _Reader, items: Sequence[_Item], words: Sequence[str]) -> str | None:
        """Words that are patterns of the shell: the names that they stand for are not known."""
        command = reader.command
        operands = {item.word for item in items if not item.name}
        values = {item.value for item in items if item.value is not None}
        is_ended = reader.is_ended and not command.past
        end = self._ends + words[: reader.number].count("--") if is_ended else None
        for number, (word, ends) in enumerate(_patterns(self._written)):
            if number >= MOST_OPEN_WORDS or len(word) > LONGEST_OPEN_WORD:
                return "it has too many patterns, or too long ones, to be looked through"
            if word in operands and _may_be_more(word, command):
                return f"{_short(word)} stands for files, and what they are called matters to {command.name}"
            if word in values and _counts_words(command):
                return f"{_short(word)} may stand for several words, and the next one matters to {command.name}"
            is_before = end is None or ends < end
            is_open = word[:1] in "*?[" or (word[:1] == "-" and word in values)
            if is_before and is_open and _may_be_option(word, command):
                return f"{_short(word)} stands for files, and one that is called like an option is one; write ./{word}"
        return None

    def _inner(
        self, reader: _Reader, items: Sequence[_Item], words: Sequence[str], named: _Named, *, depth: int
    ) -> str | None:
        command = reader.command
        for started in () if self._all_allowed(reader) else reader.started:
            judge = _Judge(self._said, written=self._written, ends=NEVER, cwd=self._cwd)
            if why := judge.judge(started, depth=depth + 1):
                return why
        rest = words[reader.number :]
        ends = self._ends + words[: reader.number].count("--")
        if command.module is not None and reader.is_inner and items and items[-1].name == command.module:
            said = self._said.rest(0)
            if self._said.text is None:
                is_named = any(name == command.module for name, _ in named.options)
                module = next((value for name, value in named.options if name == command.module), None)
                said = _Said((module or items[-1].value or "", *(named.inner.words if is_named else (ANY,))))
            judge = _Judge(said, written=self._written, ends=ends, cwd=self._cwd)
            return judge.judge([items[-1].value or "", *rest], depth=depth + 1)
        if command.runs is None or not rest:
            return None
        inner = named.inner
        if command.adds:
            if any(item.value and item.value in rest[0] for item in items if item.name in _REPLACING):
                return f"{command.name} puts words that nobody sees in place of {_short(rest[0])}"
            program = _program(rest)
            added = command_of(program) if program is not None else None
            if added is None and not self._said.holds(rest[0]):
                return f"{command.name} adds words to {_short(rest[0])} that nobody sees"
            if added is not None and not _resolved(added, rest).is_harmless:
                return f"{command.name} adds words to {added.name} that nobody sees, and some of its options do harm"
        return _Judge(inner, written=self._written, ends=ends, cwd=self._cwd).judge(rest, depth=depth + 1)


def _begins_with_word(items: Sequence[_Item], options: frozenset[str]) -> bool:
    """Whether a word that is no option stands before the first of these options."""
    return next((not item.name for item in items if not item.name or item.name in options), False)


def _host(address: str) -> str:
    return re.split("[/?#]", address.rpartition("://")[2], maxsplit=1)[0].lower()


def _is_address(pattern: str, address: str) -> bool:
    if "://" in pattern:
        return matches_address(pattern, address)
    return matches(pattern, address) and matches_host(_host(pattern), _host(address))


def _leads_out(path: str, cwd: str | None) -> bool:
    """Whether a file may lie outside of the working folder. A link inside of it is not followed."""
    path = path.partition("::")[0]
    if path.startswith("~") or any(step == ".." or _HIDDEN.match(step) for step in path.split("/")):
        return True
    if not path.startswith("/"):
        return False
    return cwd is None or not f"{posixpath.normpath(path)}/".startswith(f"{posixpath.normpath(cwd).rstrip('/')}/")


def _counts_words(command: Command) -> bool:
    """Whether it matters to a command which of its words is the first or the second."""
    is_told = command.operand is not None or command.most is not None or command.script is not None
    return is_told or command.is_code or command.runs is not None or command.stops is not None


def _values(items: Sequence[_Item], names: frozenset[str]) -> list[str]:
    return [item.value or "" for item in items if item.name in names]


def _resolved(command: Command, words: Sequence[str]) -> Command:
    reader = _Reader(command.name, words)
    for _ in reader.items():
        continue
    return reader.command


def _blame(item: _Item, option: Option | None, command: str) -> str:
    if option is None or option.kind == "harmless":
        with_value = f" with {_short(item.value)}" if option is not None and item.value is not None else ""
        return f"{item.name}{with_value} is not known to be harmless for {command}"
    return f"{item.name} of {command} {KINDS[option.kind]}, and the rule does not name it"


def _short(word: str) -> str:
    return repr(word if len(word) <= 60 else f"{word[:60]}…")


def _patterns(written: str) -> Iterator[tuple[str, int]]:
    """Words with `*`, `?` or `[` outside of quotes, without their quotes: they stand for files. And how many `--` stand
    before each."""
    quote, text, number, ends = "", "", 0, 0
    is_open = False
    while number <= len(written):
        letter = written[number : number + 1]
        number += 1
        if quote:
            if letter in (quote, ""):
                quote = ""
            elif letter == "\\" and quote == '"' and written[number : number + 1] in ("$", "`", '"', "\\", "\n"):
                text += written[number : number + 1]
                number += 1
            else:
                text += letter
        elif letter in ("", " ", "\t", "\n"):
            if is_open and text != "[":
                yield text, ends
            ends += text == "--"
            text, is_open = "", False
        elif letter in ("'", '"'):
            quote = letter
        elif letter == "\\":
            text += written[number : number + 1]
            number += 1
        else:
            is_open |= letter in "*?["
            text += letter


def _may_be_more(word: str, command: Command) -> bool:
    """Whether a file that the word stands for could be a word that does more than name something, or a second one."""
    if command.most is not None:
        return True
    if command.operand is None:
        return False
    is_about_first_letter = re.fullmatch(r"\[\^.\]\.\*", command.operand[0].pattern)
    return is_about_first_letter is None or word[:1] in "*?["


def _may_be_option(word: str, command: Command) -> bool:
    """Whether a file that the word stands for could be one of the command's options that do harm."""
    return any(
        option.kind in HARMFUL
        and ((option.takes != "nothing" and not command.is_apart) or fnmatchcase(option.name, word))
        for option in command.options.values()
    )


def valued_options(words: Sequence[str]) -> frozenset[str]:
    """The options of a call that take the next word, with those of its subcommands."""
    program = _program(words)
    if program is None:
        return valued(words[0].rpartition("/")[2])
    reader = _Reader(program, words[:MOST_WORDS])
    for _ in reader.items():
        if reader.is_inner:
            break
    names = [" ".join((program, *reader.path[:number])) for number in range(len(reader.path) + 1)]
    return frozenset[str]().union(*(valued(name) for name in names))


# What a script that is not known to be harmless holds, where it may run something.
_MAY_RUN = {
    "sed": re.compile(r"(?:^|[\s;{}!/,$\d])e(?:\s|$)|[^\w\s][\w]*e\w*\s*(?:[;}\n]|$)"),
    "awk": re.compile(r"system|getline|\||@"),
    "sql": re.compile(r"\\|(?i:program|language)"),
    "jq": re.compile(r"(?!)"),  # it runs nothing
}


class Running(NamedTuple):
    """What a call runs besides its own program, as far as the file says."""

    is_plain: bool  # nothing but what stands in `values`
    unknown: str | None  # a subcommand that the file does not know: an alias, or a program of somebody else
    values: tuple[str, ...]  # of options that run something, and scripts that may
    is_harmless: bool  # whatever else it is told


def running_of(words: Sequence[str]) -> Running | None:
    """None: the file does not know the program."""
    program = _program(words)
    if program is None:
        return None
    words = words[:MOST_WORDS]
    reader = _Reader(program, words)
    items = list(reader.items())
    command = reader.command
    values = [
        item.value
        for item in items
        if item.option is not None
        and item.option.kind == "executes"
        and item.value
        and not (item.option.fits is not None and item.option.fits.fullmatch(item.value))
    ]
    if command.script is not None:
        language, options = command.script
        operands = [item.word for item in items if not item.name][len(reader.path) :]
        scripts = [item.value or "" for item in items if item.name in options] or operands[:1]
        values += [
            script
            for script in scripts
            if not is_harmless_script(script, language=language) and _MAY_RUN[language].search(script.replace("||", ""))
        ]
    is_plain = command.does in ("reads", "changes") and command.runs is None and not command.is_code
    is_plain = is_plain and reader.unknown is None
    return Running(is_plain, reader.unknown, tuple(values), is_plain and command.is_harmless)


# Warnings -----------------------------------------------------------------------------------------------------------


def warnings_about(pattern: str) -> Iterator[str]:
    """What a rule that allows this pattern covers that its author may not see."""
    if pattern == ANY or not _is_open(pattern):
        return
    if pattern.startswith(REGEX):
        yield "of the options that the expression fits, only those that it spells out are covered"
        return
    words = named_words(pattern)
    program = words[0].rpartition("/")[2] if words else ""
    if ANY in program:
        # `git*` is git and whatever else begins like it.
        yield f"{words[0]!r} stands for many programs; write the program and a space before the *"
        return
    command = command_of(program)
    if command is None:
        yield f"what the options of {program} do is not known, so all of them are covered"
        return
    if command.is_code and words[1:] == (ANY,):
        yield f"{program} runs whatever code it is given"
        return
    yield from _warnings(words, program)


def _warnings(words: Sequence[str], program: str) -> Iterator[str]:
    reader = _Reader(program, words)
    for item in reader.items():
        if item.name and ANY in item.name:
            yield f"{item.word!r} names no option: those that it fits are not covered unless they are harmless"
        elif item.option is not None and item.option.kind != "harmless":
            yield f"{item.name} of {reader.command.name} {KINDS[item.option.kind]}"
        elif item.name and item.option is None:
            yield f"what {item.name} of {reader.command.name} does is not known"
        elif not item.name and ANY in item.word and reader.command.subcommands:
            yield from _about_subcommands(reader.command, item.word.partition(ANY)[0])
            return
    rest = words[reader.number :]
    if reader.command.runs is not None and rest:
        if ANY in rest[0]:
            yield f"{program} runs any command"
        else:
            yield from warnings_about(" ".join(rest))
    if reader.unknown is not None:
        yield f"what {reader.command.name} {reader.unknown} does is not known, so all of its options are covered"


def _about_subcommands(command: Command, start: str) -> Iterator[str]:
    """`start` is what stands before the wildcard."""
    fitting = {name: does for name, does in command.subcommands.items() if name.startswith(start)}
    if start and len(fitting) == 1:
        return
    if changing := [name for name, does in fitting.items() if does == "changes"]:
        yield f"{command.name} {start}* also covers what changes something: {_listed(changing)}"
    if unseen := [name for name, does in fitting.items() if does in _UNSEEN]:
        yield f"{command.name} {start}* does not cover what runs or configures something else: {_listed(unseen)}"


def _listed(names: Sequence[str], *, most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
