"""What a shell would run, as parts that can be judged one by one. What is not certain is said, never guessed.

`_reading` has the grammar of what is certain, and `_forms` the ways in which a rule that forbids may know a command.
Here is what becomes of what was read: commands in the text of others, what the shell itself does, and the caps.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from handraise.rules.globs import REGEX, UNKNOWN, has_unknown, matches
from handraise.rules.options import running_of
from handraise.rules.programs import valued
from handraise.rules.shell._forms import (
    ADDING,
    MOST_BRACES,
    WRAPPERS,
    Forms,
    expanded,
    inner_commands,
    pieces_of,
    variants,
    with_added,
)
from handraise.rules.shell._reading import Command, Reading, TooMuch, read

__all__ = ["SHELLS", "Part", "Parts", "begun_inside", "split", "told_to_run"]

LONGEST = 20_000  # characters that are looked at; nobody reads more
MOST_IN_FORMS = 40_000  # characters of all forms of a line
MOST_TOKENS = 100  # words of a command that are looked at for the beginning of another
MOST_BEGUN = 8
LONGEST_TOKENS = 4_000  # characters
MOST_KEPT = 4_000_000  # characters of lines that were read, with their forms
DEEPEST = 8  # lines inside of lines

_QUOTED = re.compile(r"[\s;|&<>()`$'\"\\]")  # what a word of a pattern would not hold as it is
_TOKENS = re.compile(r"[\s\"'`;|&()<>{}=:,!$#]+")
_LINE = re.compile(r"[\w./~-]+(\s|$)")  # what a line may begin with
_PLAIN_LINE = re.compile(r"[\w ./:=@%+,-]*", re.ASCII)  # a line in which every word is itself
SHELLS = frozenset(
    """
    bash sh zsh dash ksh mksh fish ash eval rbash rzsh rksh lksh posh csh tcsh yash nu xonsh elvish osh pwsh
    """.split()  # noqa: SIM905 - a list to read
)
_SCHEDULERS = frozenset({"at", "batch", "crontab"})  # they run later what they read
_SOURCING = frozenset({"source", "."})
_FROM_INPUT = re.compile(
    r"-|/dev/stdin|/dev/fd/.*|/proc/[^/]+/fd/.*|[<=]\(.*", re.DOTALL
)  # no file that could be looked at
# Programs that do more than their words show, by how a word looks; None: where they read their input.
_COMMANDED: tuple[tuple[re.Pattern[str], re.Pattern[str] | None], ...] = tuple(
    (re.compile(program), None if word is None else re.compile(word, re.DOTALL))
    for program, word in (
        (r"(n|g|r)?vi(m|ew|mdiff)?x?|ex|view", r"-c.*|\+\D.*|--cmd|-S.*|-e?s"),
        (r"emacs(client)?", r"--(eval|execute|load|funcall|script).*|-[elf]|--batch"),
        (r"sqlite3|duckdb", r"(?s).*\.(shell|system|sh|read|load|open|once|output)\b.*|-(cmd|init)"),
        (r"psql|mysql|mariadb", r"(?s).*(\\[!ogi]|\bsystem\b|to program|from program).*|-f.*|--file.*"),
        (r"gdb|lldb|rust-gdb|rust-lldb", r"-+(ex|eval-command|command|x|batch|o|one-line|source).*|-[xos]"),
        (r"expect", r"-c.*"),
        (
            r"make|gmake",
            r"(-f|--(make)?file=)?(-|/dev/(stdin|fd/.*)|/proc/.*/fd/.*|[<=]\(.*)|[A-Za-z_.]*SHELL(FLAGS)?[:+?!]*=.*",
        ),
        (r"socat", r"(?i).*(exec|system|shell):.*"),
        (r"gdb|lldb|ed|ex|m4|expect|tclsh|wish|octave|gnuplot|jshell|ghci|irb", None),
    )
)
_DATABASES = re.compile("sqlite3|duckdb|psql|mysql|mariadb")
# Programs of which the file of programs does not speak, and which run nothing.
_PLAIN = frozenset(
    """
    mkdir rmdir touch cp mv rm ln chmod chown chgrp kill pkill killall tee dd install gzip gunzip bzip2 xz truncate
    mktemp mkfifo shred sync apt apt-get brew systemctl service mount umount open code gcc g++ cc clang ld as ar
    """.split()  # noqa: SIM905
)
_HARMLESS_SETTINGS = re.compile(
    r"(?i)(user\.\w+|color\.[\w.]+|advice\.\w+|init\.defaultbranch|(commit|tag)\.gpgsign|log\.\w+|status\.\w+|gc\.auto"
    r"|core\.(quotepath|autocrlf|longpaths|filemode|ignorecase|abbrev|symlinks)|core\.pager=(cat|less|)|push\.default"
    r"|core\.editor=(true|:)|credential\.helper=|pull\.(rebase|ff)|fetch\.\w+|safe\.directory|protocol\.version|merge\."
    r"(conflictstyle|renames?)|diff\.(algorithm|renames|context|noprefix|mnemonicprefix|colormoved)|rebase\.autos\w+)"
    r"(=.*)?"
)
_ELSEWHERE = frozenset({"ssh", "docker", "podman", "kubectl", "oc"})  # what they run has other folders
_GOING = frozenset({"cd", "pushd", "popd", "chdir"})
# They change what later words mean, or run a text; what they do is not in their words.
_CHANGING = frozenset(
    """
    alias unalias export declare typeset local readonly float integer set shopt setopt unsetopt emulate hash unhash
    rehash enable disable source . trap eval exec unset read readarray mapfile let getopts bind complete compgen
    compopt autoload zmodload functions bindkey zle vared sched zcompile zstyle print fc history coproc suspend exit
    return shift break continue wait ulimit umask jobs fg bg disown zparseopts zformat private nameref limit unlimit
    noglob nocorrect repeat
    """.split()  # noqa: SIM905 - lists to read
)
# They give a program another name, load one, or run a line that was typed before.
_RENAMING = frozenset("alias hash enable fc zmodload".split())  # noqa: SIM905
_RUN_WHEN_READ = re.compile(r"\[[^]]*(\$\(|`)")  # the number of a place in a list, which a built-in works out
_ASSIGNING = frozenset("export declare typeset local readonly float integer".split())  # noqa: SIM905
# Built into shells, some of which work out the numbers they are given, and run what stands in them.
_COUNTING = frozenset("printf test [ kill type".split())  # noqa: SIM905
_IDLE = frozenset({"true", "false", ":"})
_FOLDER = re.compile(r"(?!.*\.\.)/[\w./+@%-]*", re.ASCII)  # a whole path, which no CDPATH changes
_TEXT_CONVERSION = re.compile(r"%%|%-?\d*(\.\d+)?[sbqc]")  # of printf: a text, whatever it looks like
_NUMERIC = re.compile(r"-(eq|ne|lt|le|gt|ge)")
_CODE: tuple[tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]], ...] = tuple(
    (re.compile(program), re.compile(code), re.compile(file))
    for program, code, file in (
        # Programs that run code; the options that hold it; the options behind which they need no file.
        (r"(python|pypy)[\d.]*w?", r"-[A-Za-z]*c.*", r"-[mVh]|--version|--help.*"),
        (r"node|nodejs|bun|deno", r"-[a-z]*[ep]|--(eval|print)(=.*)?|eval", r"-[vh]|--version|--help|--test.*|--check"),
        (r"perl[\d.]*", r"-[A-Za-z0-9]*[eE].*", r"-[vVh].*|--version|--help"),
        (r"ruby[\d.]*|jruby", r"-[A-Za-z0-9]*e.*", r"-[vh]|--version|--help"),
        (r"php[\d.]*", r"-[rBRE].*|--(run|process-(begin|code|end)).*", r"-[vhmi]|-S|--version|--help|--info|--ini"),
        (
            r"lua[\d.]*|luajit|osascript|Rscript|R|julia|elixir|groovy|scala|tclsh",
            r"-e.*|--(eval|exec)",
            r"-v|--version|--help",
        ),
    )
)


@dataclass(frozen=True, slots=True)
class Part:
    """One command of a line, such as each side of a pipe."""

    text: str  # in one form, whatever quotes it was written with
    forms: tuple[str, ...] = ()  # others in which a rule that forbids may know it
    words: tuple[str, ...] = ()  # the program and its arguments; what is only known when it runs, as it is written
    written: str = ""  # as it stands there, with where its output goes
    open_forms: tuple[str, ...] = ()  # forms with a pattern in them, for `globs.meets`
    patterns: tuple[int, ...] = ()  # which of its words are patterns, and stand for the names of files
    possible_forms: tuple[str, ...] = ()  # forms that it may have, and need not: what forbids asks then
    is_idle: bool = False  # it does nothing, so that no rule has to allow it
    sets: str = ""  # variables that stand before it and change nothing of account
    values: tuple[int, ...] = ()  # which of its words are only known when it runs, where that does no harm
    is_plain: bool = True  # it runs nothing but what was seen, as far as that is known


@dataclass(slots=True)
class Parts:
    """`doubt` is why it cannot be said for certain what runs."""

    parts: list[Part] = field(default_factory=list)
    doubt: str | None = None
    is_blind: bool = False  # not even which programs run is certain; a doubt may also be about a value or a file
    files: list[str] = field(default_factory=list)  # what is read from or written to by `<` and `>`
    folders: list[str] = field(default_factory=list)  # to which it goes before it does something else

    def doubt_in(self, cwd: str | None) -> str | None:
        """The doubt where the working folder is this one: going to where it is already changes nothing."""
        here = posixpath.normpath(cwd) if cwd else None
        if self.doubt is None and any(posixpath.normpath(folder) != here for folder in self.folders):
            return "it goes to another folder first"
        return self.doubt

    def size(self) -> int:
        """Characters, about."""
        forms = sum(len(form) for part in self.parts for form in (*part.forms, *part.open_forms, *part.possible_forms))
        return forms + sum(2 * len(part.text) + len(part.written) + 200 for part in self.parts) + 200


class _Kept:
    """What was read last, bounded by its size."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._found: OrderedDict[str, tuple[Parts, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, command: str) -> Parts | None:
        with self._lock:
            found = self._found.get(command)
            if found is None:
                return None
            self._found.move_to_end(command)
            return found[0]

    def put(self, command: str, parts: Parts) -> Parts:
        size = len(command) + parts.size()
        with self._lock:
            if command in self._found:
                return self._found[command][0]
            self._found[command] = parts, size
            self._size += size
            while self._size > self._most:
                _, (_, gone) = self._found.popitem(last=False)
                self._size -= gone
        return parts


_kept = _Kept(MOST_KEPT)


def split(command: str) -> Parts:
    """The commands that a line runs. Do not change what you get: it is kept."""
    found = _kept.get(command) if len(command) <= LONGEST else None
    if found is not None:
        return found
    if len(command) > LONGEST:
        return Parts([Part(command[:LONGEST])], "it is too long to be looked through", is_blind=True)
    return _kept.put(command, _Splitting(command).parts())


class _Splitting:
    """One line, with the lines inside of it."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._reading = Reading()
        self._found = Parts()
        self._room = MOST_IN_FORMS
        self._lines: list[tuple[str, int]] = [(command, 0)]  # what is still to be read, and how deep it stands
        self._code: list[str] = []
        self._collected = 0  # commands that are among the parts

    def parts(self) -> Parts:
        found = self._found
        try:
            while self._lines:
                self._one(*self._lines.pop(0))
        except TooMuch:
            self._reading.doubts("it is nested too deep, or too long to be looked through", is_blind=True)
            self._collect(depth=DEEPEST + 1)
        found.doubt, found.is_blind, found.files = self._reading.doubt, self._reading.is_blind, self._reading.files
        if not found.parts:
            found.doubt = found.doubt or "it runs nothing that has a name"
            found.parts.append(Part(self._command))
        if found.is_blind:
            pieces = pieces_of("\n".join([*self._code, self._command]))
            found.parts.append(Part(self._command[:200], tuple(pieces)))
        return found

    def _one(self, line: str, depth: int) -> None:
        if depth > DEEPEST:
            raise TooMuch
        read(line, self._reading)
        self._collect(depth=depth)

    def _collect(self, *, depth: int) -> None:
        commands = self._reading.commands
        while self._collected < len(commands):
            number, command = self._collected, commands[self._collected]
            self._collected += 1
            for assigned in command.assigned:
                self._found.parts.append(_assigned(assigned, is_idle=assigned in command.sets))
            if not command.words:
                if not command.assigned:  # only a redirection: zsh runs `cat` then, or a pager
                    self._found.parts.append(Part(command.written, ("cat", "more"), written=command.written))
                continue
            words = [word.text for word in command.words]
            program = _name(words)
            self._doubts(command, words, is_last=number == len(commands) - 1)
            inner, is_all = inner_commands(words) if program in WRAPPERS else ([], True)
            if program not in _ELSEWHERE and any(re.search(r"[$`]", each[0]) for each in inner[:2]):
                self._reading.doubts("which program it runs is only known when it runs", is_blind=True)
            if not is_all:
                self._reading.doubts("it holds more than is looked through", is_blind=True)
            forms = self._forms(command, words, inner)
            if depth <= DEEPEST:
                for each in (words, *inner):
                    self._look_into(command, each, depth=depth, forms=forms if program in _ELSEWHERE else None)
            if forms.is_full:
                self._reading.doubts("it can be written in more ways than are looked through", is_blind=True)
            self._room = forms.room
            folders = self._found.folders
            text = _text(words)
            forms.plain.pop(text, None)
            self._found.parts.append(
                Part(
                    text,
                    tuple(forms.plain),
                    tuple(words),
                    command.written,
                    tuple(form for form in forms.open if not has_unknown(form)),
                    tuple(number for number, word in enumerate(command.words) if word.has_pattern),
                    tuple(form for form in forms.open if has_unknown(form)),
                    is_idle=command.is_idle or words[0] in _IDLE or (program == "cd" and words[1:] == folders[-1:]),
                    sets=" ".join(command.sets) if command.sets == command.assigned else "",
                    values=tuple(number for number, word in enumerate(command.words) if not word.is_known),
                    is_plain=_is_plain(words),
                )
            )
            self._add_several(command)
            if program in _ASSIGNING:
                self._found.parts += [_assigned(word) for word in words[1:] if "=" in word]

    def _doubts(self, command: Command, words: Sequence[str], *, is_last: bool) -> None:
        program = _name(words)
        values = [word for word in command.words if not word.is_known]
        if values and not (all(word.is_value for word in values) and _is_harmless(words)):
            self._reading.doubts("a part of it is only known when it runs")
        if program in _CHANGING:
            is_blind = program in _RENAMING or any(_RUN_WHEN_READ.search(word) for word in words[1:])
            self._reading.doubts("it changes how the shell works, or what a name means", is_blind=is_blind)
        elif program == "cd" and len(words) == 2 and _FOLDER.fullmatch(words[1]) and command.words[1].is_bare:
            self._found.folders += [] if is_last else [words[1]]
        elif program in _GOING and not is_last:
            self._reading.doubts("it goes to another folder first")
        elif program in _COUNTING:
            is_naming = program in ("printf", "test", "[") and "-v" in words[1:]
            if is_naming or _is_counting(words) or any("$" in word or "`" in word for word in words[1:]):
                is_blind = is_naming and any(_RUN_WHEN_READ.search(word) for word in words[1:])
                self._reading.doubts("the shell may work out a value in it", is_blind=is_blind)

    def _forms(self, command: Command, words: list[str], inner: Sequence[Sequence[str]]) -> Forms:
        forms = Forms(room=self._room)
        forms.add(command.written)
        forms.add(" ".join(words))
        for each in (words, *inner):
            forms.add(" ".join(each))
        for each in (words, *inner):
            forms.add_words(each)
            if command.read_from:
                forms.add_words([*each, *(word.text for word in command.read_from)])
        read = [*command.words, *command.read_from]
        is_open = any(word.has_pattern or word.has_braces or not word.is_known for word in read)
        running = running_of(words) if len(words) > 1 and _name(words) not in WRAPPERS else None
        if running is not None and running.unknown is not None:  # it may stand for any other
            at = words.index(running.unknown)
            forms.add_words([*words[:at], UNKNOWN, *words[at + 1 :]])
        if is_open or _name(words) in ADDING:
            for variant in expanded([word.open for word in read]):
                forms.add_words(variant)
                for each in inner_commands(variant)[0] if _name(variant) in WRAPPERS else ():
                    forms.add_words(with_added(_name(variant), each))
        return forms

    def _add_several(self, command: Command) -> None:
        """Words for which bash and zsh put several: the command is judged in both readings."""
        with_braces = [word for word in command.words if word.has_braces]
        if not with_braces:
            return
        if len(with_braces) > MOST_BRACES or any(word.has_pattern or not word.is_known for word in with_braces):
            self._reading.doubts("it stands for several words, or groups commands")
        if self._reading.doubt is not None:
            return  # nothing but its forms counts then
        words: list[str] = []
        values: list[int] = []
        for word in command.words:
            values += [] if word.is_known else [len(words)]
            words += variants(word.open) if word.has_braces else [word.text]
        self._found.parts.append(Part(_text(words), words=tuple(words), written=command.written, values=tuple(values)))

    def _executed(self, words: Sequence[str]) -> Iterator[str]:
        """Lines in the values of options, and doubts about what they run."""
        program = _name(words)
        values: Sequence[str] = ()
        if program not in WRAPPERS and program not in SHELLS and not any(code[0].fullmatch(program) for code in _CODE):
            running = running_of(words)
            values = running.values if running is not None else ()
        settings = list(_settings(words)) if program == "git" else ()
        if values or any(not _HARMLESS_SETTINGS.fullmatch(each) for each in settings):
            self._reading.doubts("an option of it runs something else", is_blind=True)
        self._code += [*values, *settings]
        yield from (value for value in values if _LINE.match(value))
        for name, _, value in (each.partition("=") for each in settings):
            if name.lower().startswith("alias."):
                yield value[1:] if value.startswith("!") else f"git {value}"

    def _look_into(self, command: Command, words: Sequence[str], *, depth: int, forms: Forms | None) -> None:
        """Lines that a command is told to run, by its words or by what it reads."""
        lines = [*_lines_in(words), *self._executed(words)]
        program = _name(words)
        if _is_from_elsewhere(words):
            told = [*command.told, *_said(command.feeder)]
            if forms is None:
                self._reading.doubts("it runs what it reads", is_blind=True)
            lines += told
        seen = [*command.told, *_said(command.feeder)]
        if _is_code(words, is_fed=command.is_fed or bool(command.told), seen=seen):
            self._reading.doubts("it runs code that is not read", is_blind=True)
            self._code += [*words[1:], *command.told]
        for line in lines:
            if forms is None:
                self._lines.append((line, depth + 1))
                continue
            # It runs elsewhere: forbidden there too, but its folders are not ours.
            inside = _Splitting(line[:LONGEST]) if depth < 2 else None
            if inside is None:
                raise TooMuch
            inside._reading.characters = self._reading.characters
            inside._room = forms.room // 2
            found = inside.parts()
            self._reading.characters = inside._reading.characters
            for part in found.parts:
                for form in (part.text, *part.forms):
                    forms.add(form)
            # One plain command is the same for the shell there, whichever that is.
            if found.doubt is not None or not _PLAIN_LINE.fullmatch(line):
                self._reading.doubts(found.doubt or f"{program} runs it elsewhere", is_blind=found.is_blind)


def _text(words: Sequence[str]) -> str:
    return " ".join(shlex.quote(word) if not word or _QUOTED.search(word) else word for word in words)


def _is_counting(words: Sequence[str]) -> bool:
    """Whether a built-in takes a word for a number. zsh works it out, and `PATH=9` in it sets a variable."""
    match _name(words):
        case "printf":
            form, *rest = [*(word for word in words[1:] if word != "--"), ""]
            left = _TEXT_CONVERSION.sub("\0", form)  # %n sets the variable that a word names
            return bool(re.search(r"%[^a-zA-Z%]*[hjlLtz]*n", left)) or ("%" in left and _has_code(rest))
        case "test" | "[":
            return _has_code(words[1:]) and any(_NUMERIC.fullmatch(word) for word in words[1:])
        case _:
            return False


def _has_code(words: Sequence[str]) -> bool:
    return any("=" in word[1:] or ("[" in word and word != "[") for word in words)


def _name(words: Sequence[str]) -> str:
    return words[0].rpartition("/")[2]


def _assigned(text: str, *, is_idle: bool = False) -> Part:
    """A variable may be set to a command that a program runs, as PAGER is."""
    lines = re.split(r"[;&|\n(]+", text.partition("=")[2].strip("\"'"))
    return Part(text, written=text, is_idle=is_idle, possible_forms=tuple(line.strip() for line in lines[:MOST_BEGUN]))


def _is_harmless(words: Sequence[str]) -> bool:
    """Whether a program does no harm with words that nobody sees."""
    running = running_of(words)
    return running is not None and running.is_harmless


def _is_plain(words: Sequence[str]) -> bool:
    program = _name(words)
    if program in WRAPPERS or program in SHELLS or program in _CHANGING | _GOING | _COUNTING | _PLAIN:
        return True  # what they run has been looked for
    running = running_of(words)
    return running is not None and running.is_plain


@lru_cache(maxsize=256)
def _tokens(words: tuple[str, ...]) -> tuple[Sequence[str], Mapping[str, int]]:
    """Words inside of words too, and those with which a command may begin. Every rule looks at the same ones."""
    found = _TOKENS.sub(" ", " ".join(words[1:])[:LONGEST_TOKENS]).split()[:MOST_TOKENS]
    return found, {each: number for number, text in enumerate(found) for each in _begins(text)}


def _begins(text: str) -> tuple[str, ...]:
    word = text.rpartition("/")[2]
    return (word, word[2:]) if len(word) > 2 and word[0] == "-" != word[1] else (word,)


def begun_inside(part: Part, pattern: str) -> Iterator[str]:
    """Forms of what the pattern of a rule speaks of, where it may begin in the middle of a command that may run it."""
    if part.is_plain or not part.words:
        return
    name = pattern.partition(" ")[0]
    is_expression = pattern.startswith(REGEX)
    if name.startswith("*") and not is_expression:
        return
    texts, begins = _tokens(part.words)
    if not is_expression and "*" not in name and name not in begins:
        return
    found = 0
    for number, text in enumerate(texts):
        for begin in _begins(text):
            if begin and (is_expression or begin == name or ("*" in name and matches(name, begin))):
                forms = Forms(room=4_000)
                forms.add_words([begin, *(each for each in texts[number + 1 :] if each != "--")])
                yield from (*forms.plain, *forms.open)
                found += 1
        if found > MOST_BEGUN:
            return


def _settings(words: Sequence[str]) -> Iterator[str]:
    """What git is told by `-c` and its like, before its verb."""
    for number, word in enumerate(words[1:], 1):
        if not word.startswith("-"):
            if words[number - 1] not in ("-c", "-C", "--git-dir", "--work-tree", "--namespace", "--config-env"):
                return
        elif word in ("-c", "--config-env") and number + 1 < len(words):
            yield words[number + 1]
        elif re.match("-c.", word):
            yield word[2:]
        elif word.startswith("--config-env="):
            yield word.partition("=")[2]


def told_to_run(words: Sequence[str]) -> str | None:
    """The line that a shell in the shell is told to run; None where it is none, or reads it from elsewhere."""
    program = _name(words)
    if program == "eval":
        return " ".join(words[1:])
    if program not in SHELLS:
        return None
    if program == "pwsh":  # it takes the rest of its words, by any beginning of the name and in any case
        begins = (
            number for number, word in enumerate(words) if re.fullmatch(r"(?i)[-/]+c(o(m(m(a(nd?)?)?)?)?)?", word)
        )
        return next((" ".join(words[number + 1 :]) for number in begins), None)
    takes = next(
        (number for number, word in enumerate(words) if re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*|--command", word)), None
    )
    return None if takes is None else next((word for word in words[takes + 1 :] if not word.startswith("-")), None)


def _lines_in(words: Sequence[str]) -> Iterator[str]:
    """Lines that stand among the words of a command."""
    line = told_to_run(words)
    if line is not None:
        yield line
    operands = [word for word in words[1:] if not word.startswith("-")]
    match _name(words):
        case "trap":
            yield from operands[:1]
        case "alias":
            yield from (word.partition("=")[2] for word in operands if "=" in word)
        case "mapfile" | "readarray" | "complete" | "compgen" | "bind":
            yield from operands
        case "env":
            for number, word in enumerate(words[1:], 1):
                if not word.startswith("-"):
                    continue
                if re.match(r"-[a-zA-Z0]*S", word):
                    yield " ".join([word.partition("S")[2], *words[number + 1 :]])
                elif word.startswith("--s"):
                    yield " ".join([word.partition("=")[2], *words[number + 1 :]])
        case "su" | "runuser" | "script" | "flock" | "sg":
            yield from (found[1] for word in words[1:] if (found := re.fullmatch(r"(?s)-[a-bd-z]*c(.+)", word)))
            for number, word in enumerate(words[1:-1], 1):
                if re.fullmatch(r"-[a-z]*c|--command|--session-command", word):
                    yield words[number + 1]
            yield from (word.partition("=")[2] for word in words[1:] if word.startswith("--command="))
        case "watch" | "parallel" | "ssh":
            yield from _joined(words, own=1 if _name(words) == "ssh" else 0)


def _joined(words: Sequence[str], *, own: int) -> Iterator[str]:
    """The line that a program makes of its words, dashes included, behind so many words of its own."""
    taking, number, is_over = valued(_name(words)), 1, False
    while number < len(words):
        word = words[number]
        if not is_over and word.startswith("-") and len(word) > 1:
            is_over = word == "--"
            number += 2 if word in taking or (not word.startswith("--") and f"-{word[-1]}" in taking) else 1
        elif own:
            own, number = own - 1, number + 1
        else:
            yield " ".join(words[number:])
            return


def _is_from_elsewhere(words: Sequence[str]) -> bool:
    """A shell that runs what it reads from its input, or something like one."""
    program = _name(words)
    if program in _SCHEDULERS:
        return not re.fullmatch(r"-[lrVedq]", words[1] if len(words) > 1 else "")
    if program in _SOURCING:
        return any(_FROM_INPUT.fullmatch(word) or re.search("[$`]", word) for word in words[1:2])
    if program == "parallel":
        return all(word.startswith("-") for word in words[1:])
    if _name(words) not in SHELLS or _name(words) == "eval" or told_to_run(words) is not None:
        return False
    is_asking = any(word in ("--version", "--help") for word in words[1:])
    operands = [word for word in words[1:] if not word.startswith(("-", "+"))]
    if operands and _FROM_INPUT.fullmatch(operands[0]):
        return True
    return not is_asking and (not operands or any(re.fullmatch(r"-[a-z]*s[a-z]*", word) for word in words[1:]))


def _said(command: Command | None) -> list[str]:
    """What a command writes, where that can be told."""
    if command is None or not command.words:
        return []
    words = [word.text for word in command.words]
    match _name(words):
        case "echo":
            return [re.sub(r"\\n", "\n", " ".join(words[1:]))]
        case "printf":
            return [re.sub(r"\\n", "\n", word) for word in words[1:]]
        case "cat":
            return command.told
        case _:
            return []


def _is_code(words: Sequence[str], *, is_fed: bool, seen: Sequence[str]) -> bool:
    """Whether a program is told what to do in a language that is not read here. `seen`: what it reads."""
    for program, sign in _COMMANDED:
        if program.fullmatch(_name(words)):
            if is_fed if sign is None else any(sign.fullmatch(word) for word in (*words[1:], *seen)):
                return True
            if is_fed and not seen and _DATABASES.fullmatch(_name(words)):
                return True
    for program, code, fileless in _CODE:
        if program.fullmatch(_name(words)):
            for word in words[1:]:
                if code.fullmatch(word):
                    return True
                if fileless.fullmatch(word):
                    return False
                if _FROM_INPUT.fullmatch(word):
                    return True
                if not word.startswith("-"):
                    return False
            return is_fed or len(words) > 1
    return False
