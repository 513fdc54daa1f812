"""Reads a line of shell into commands, words and redirections, in one pass and within caps. It judges nothing.

A line is certain where it is written in this grammar, which bash, dash, zsh and busybox sh read alike:

    line         command, or several of them with `;` `&` `&&` `||` `|` or a new line between, also inside of `( )`
    command      a program and its words, with harmless redirections anywhere among them; `!` may stand before it, and
                 variables that change nothing of account (`CI=1`)
    word         letters, digits and marks that mean themselves; `\\x`; `'…'`; `"…"` without `$`, a backtick or an
                 escaped new line; `*` `?` `[…]` in an argument; `~` or `~/…` at the beginning of an argument;
                 `{a,b}` once in an argument, of which both readings count; `"$(cat <<'E' …)"`, which is its text;
                 `"$NAME"` and `$?` as arguments of a program that does no harm whatever they are
    comment      from `#` at the beginning of a word to the end of the line
    harmless     `N>&M` `N<&M` with N and M of 0, 1, 2 (N may be missing); `N>` `N>>` `N<` to or from `/dev/null`;
                 each descriptor once, and the end of the word directly behind it

Everything else is in doubt. It is read all the same, as far as that goes, since a rule that forbids looks into it.
Where it may have been read wrongly, so that a program runs that was not seen, the reading is blind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from handraise.rules.globs import ANY, ANY_FIRST, CLOSE, COMMA, ONE, ONE_FIRST, OPEN, UNKNOWN, UNKNOWN_WORD

__all__ = ["Command", "Reading", "TooMuch", "Word", "read"]

MOST_READ = 60_000  # characters, with those of lines inside of lines
MOST_COMMANDS = 100
MOST_WORDS = 1_000
MOST_STEPS = 8_000  # marks, quotes and words that the reader stops at
DEEPEST = 16  # brackets, quotes and lines inside of each other

_HARMLESS = re.compile(r"([0-2]?)(?:([<>])&[0-2]|(>>|>|<)[ \t]*/dev/null)(?=[ \t\n;|&)]|\Z)")
# A number before `&>` is a word of its own.
_REDIRECT = re.compile(r"([0-9]*(?!&>)|)(&>>|&>|<<<|<<-|<<|<>|<&|>>[|!]|>&[|!]|>>|>&|>[|!]|>|<)")
_CLOSING = re.compile(r"[0-9]*-[^ \t\n;|&<>()]")
_PLAIN_TARGET = re.compile(r"[A-Za-z0-9_./-]+")
_UPWARDS = re.compile(r"(?:\A|/)\.\.?(?=[*?\[])(?:[.*?]|\[[^\]/]*\])*(?:/|\Z)")
_RUN = re.compile(r"[^ \t\n\\'\"`$*?\[{},<>|&;()]+")
_ONE_VALUE = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9#?$!-]|\{[A-Za-z_]\w*(?::?[-+=?][^@*]*)?\})", re.ASCII)
# A value that is one word in quotes; in zsh `[` and `:` behind it would mean more.
_VALUE = re.compile(r"\$(?:[A-Za-z_]\w*(?![\w\[:])|\?(?![\w\[:{])|\{[A-Za-z_]\w*\})", re.ASCII)
_TEXT = re.compile(r"\$\(cat <<[ \t]*(['\"]([A-Za-z_]\w*)['\"])[ \t]*\n((?:.*\n)*?)\2\n[ \t\n]*\)", re.ASCII)
_HARMLESS_VARIABLE = re.compile(r"(?:CI|NODE_ENV|FORCE_COLOR|NO_COLOR|TZ|LC_ALL|LANG|TERM)=[A-Za-z0-9_.:+-]*", re.ASCII)
_SEVERAL = re.compile(r"\{[A-Za-z0-9_./-]+(?:,[A-Za-z0-9_./-]+)+\}(?![{}\w]*[{}])", re.ASCII)
_PIPE = "/dev/fd/63"  # such as bash puts in place of `<(…)`
_BLANKS = re.compile(r"[ \t]+")
_BEFORE_REDIRECT = re.compile(r"(?:[ \t]|\\\n)*[<>]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=")
_PROGRAM = re.compile(r"[A-Za-z0-9_./~][A-Za-z0-9_./+~@:,-]*|:")
_PLAIN_BRACES = re.compile(r"\{[A-Za-z0-9_^-]*\}")
_CLASS = re.compile(r"\[[!^]?\]?[^\]\s/'\"\\$`;|&<>()]{0,80}\]")
_IN_QUOTES = re.compile(r'[^"\\$`]+')
_IN_TEXT = re.compile(r"[^\\$`]+")
_ANSI = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_ANSI_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "E": "\x1b"}
# Words that begin or go on with what is made of several commands. What follows them is a command again.
_LEADS = frozenset("if then elif else while until do".split())  # noqa: SIM905 - lists to read
_ENDS = frozenset("fi done esac } end".split())  # noqa: SIM905
_LOOPS = frozenset({"for", "select", "foreach"})


class TooMuch(Exception):
    """More than is looked through."""


@dataclass(slots=True)
class Word:
    text: str = ""  # its value; what is only known when it runs, as it is written
    open: str = ""  # the same with `globs.MARKS` for patterns
    is_known: bool = True
    is_bare: bool = True  # nothing in it is quoted
    has_pattern: bool = False
    has_braces: bool = False
    is_coded: bool = False  # by `$'…'`, which dash reads as something else
    is_value: bool = True  # what is not known in it is the value of a variable, and stays in this word

    head: str = ""  # what stands before the first quote

    def add(self, text: str, marked: str | None = None) -> None:
        self.text += text
        if self.is_bare:
            self.head = self.text
        self.open += text if marked is None else marked


@dataclass(slots=True)
class Command:
    words: list[Word] = field(default_factory=list)
    written: str = ""
    assigned: list[str] = field(default_factory=list)  # each `NAME=…` as it is written
    read_from: list[Word] = field(default_factory=list)  # files that are its input
    told: list[str] = field(default_factory=list)  # here-documents and here-strings
    feeder: Command | None = None  # what writes into its input
    is_fed: bool = False  # its input is a pipe or a file
    is_idle: bool = False  # it only hands on a text that is read already
    sets: list[str] = field(default_factory=list)  # of `assigned`, what changes nothing of account


@dataclass(slots=True)
class Reading:
    """What was found so far, also by readers of lines inside of the line."""

    commands: list[Command] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    doubt: str | None = None
    is_blind: bool = False
    characters: int = 0
    words: int = 0
    steps: int = 0

    def doubts(self, why: str, *, is_blind: bool = False) -> None:
        if self.doubt is None:
            self.doubt = why
        self.is_blind = self.is_blind or is_blind


@dataclass(slots=True)
class _HereDocument:
    end: str
    is_quoted: bool
    is_stripped: bool
    command: Command


def read(line: str, reading: Reading, *, depth: int = 0) -> None:
    """Raises TooMuch."""
    reading.characters += len(line)
    if reading.characters > MOST_READ:
        raise TooMuch
    if not line.replace("\n", "").replace("\t", "").isprintable():
        reading.doubts("it holds characters that cannot be seen", is_blind=True)
    _Reader(line, reading, depth=depth).line()


@dataclass(slots=True)
class _Place:
    """Where a list of commands is read."""

    is_wanted: bool = False  # a command has to follow
    is_there: bool = False  # a command stands before
    is_closed: bool = False  # it ended with a bracket or a word such as `fi`: no word may follow
    cases: int = 0
    feeder: Command | None = None
    is_fed: bool = False


class _Reader:
    """One line, from left to right. Every method begins where the one before ended."""

    def __init__(self, line: str, reading: Reading, *, depth: int) -> None:
        self._line = line
        self._at = 0
        self._found = reading
        self._depth = depth
        self._waiting: list[_HereDocument] = []

    def line(self) -> None:
        self._list("")

    # Commands -------------------------------------------------------------------------------------------------

    def _list(self, until: str) -> None:
        """Commands up to a closing bracket, or to the end."""
        self._deeper()
        place = _Place()
        while True:
            self._step()
            self._skip_blanks()
            here = self._peek()
            if not here:
                if until or place.is_wanted:
                    self._strange()
                break
            if here == "\n":
                self._at += 1
                self._here_documents()
                if not place.is_wanted:
                    place.is_there = place.is_closed = False
            elif here == "#":
                self._comment()
            elif here == ")":
                self._at += 1
                if place.cases:
                    place.is_there = place.is_closed = place.is_wanted = False
                    continue
                if until == ")":
                    if place.is_wanted or self._waiting:
                        self._strange()
                    break
                self._strange()
            elif here in ";&|" and not self._line.startswith("&>", self._at):
                self._between(place)
            elif here == "(":
                self._group(place)
            elif not (place.is_closed and self._redirect(None)):
                if place.is_closed:
                    self._strange()
                    place.is_closed = False
                self._one(place)
        self._depth -= 1

    def _between(self, place: _Place) -> None:
        """What stands between two commands."""
        operator = self._operator()
        if operator in (";;", ";&", ";;&", ";|") and place.cases:
            self._found.doubts("it holds a case")
        elif not place.is_there or place.is_wanted or operator not in (";", "&", "&&", "||", "|", "|&"):
            self._strange()
        if operator == "|&":
            self._found.doubts("it pipes in a way that not every shell has")
        place.is_fed = operator in ("|", "|&")
        place.feeder = self._found.commands[-1] if place.is_fed and self._found.commands else None
        place.is_wanted = operator in ("&&", "||", "|", "|&")
        place.is_there = place.is_closed = False

    def _group(self, place: _Place) -> None:
        """Commands in brackets."""
        if place.is_there:
            self._strange()
        if self._line.startswith("((", self._at) or self._line.startswith("()", self._at):
            self._strange()  # arithmetic, two brackets in dash, or a function of zsh without a name
        self._at += 1
        self._list(")")
        place.is_there = place.is_closed = True
        place.is_wanted = False

    def _one(self, place: _Place) -> None:
        """One command, or a word such as `if` that stands before one."""
        match self._command(feeder=place.feeder, is_fed=place.is_fed):
            case "lead":
                place.is_there, place.is_wanted = False, False
                return
            case "not":
                if place.is_fed or place.is_there:
                    self._strange()
                place.is_there, place.is_wanted = False, True
                return
            case "end":
                place.is_closed = True
            case "case":
                place.cases += 1
                place.is_there, place.is_wanted = False, False
                return
            case "esac":
                place.cases = max(place.cases - 1, 0)
                place.is_closed = True
            case _:
                place.is_closed = False
        place.is_there, place.is_wanted, place.is_fed, place.feeder = True, False, False, None

    def _operator(self) -> str:
        found = re.compile(r";;&|;;|;&|;\||;|&&|&!|&\||&|\|\||\|&|\|").match(self._line, self._at)
        assert found is not None
        self._at = found.end()
        return found[0]

    def _command(self, *, feeder: Command | None, is_fed: bool) -> str:
        """Reads one command and keeps it. Says what it was, where that is no plain one."""
        start, end = self._at, self._at
        command = Command(feeder=feeder, is_fed=is_fed)
        aside: Command | None = None  # what dash reads as a second command
        seen: set[str] = set()  # descriptors that already lead elsewhere
        while True:
            self._skip_blanks()
            here = self._peek()
            if here in ("", "\n", ")", ";", "|") or (here == "&" and not self._line.startswith("&>", self._at)):
                break
            if here == "#":
                self._comment()
                break
            if self._line.startswith("&>", self._at):
                aside = aside or Command()
                if self._line[: self._at].endswith(tuple("0123456789")):
                    self._found.doubts("it reads from a file or writes to one", is_blind=True)  # zsh may run `cat`
            if self._redirect(command, seen=seen):
                end = self._at
                continue
            if here == "(":
                if self._is_function(command):
                    return "lead"
                continue
            word = self._word(is_first=not command.words)
            end = self._at
            if not command.words and self._is_assignment(word):
                if word.is_bare and word.is_known and _HARMLESS_VARIABLE.fullmatch(word.text):
                    command.sets.append(word.text)
                else:
                    self._found.doubts("it sets a variable", is_blind=self._line[end : end + 1] == "(")
                command.assigned.append(word.text)
                if len(command.assigned) > MOST_COMMANDS:
                    raise TooMuch
                continue
            if not command.words and word.is_bare and word.is_known and not command.assigned:
                kind = self._keyword(word.text)
                if kind:
                    return kind
            if word.text.endswith("}") and _BEFORE_REDIRECT.match(self._line, self._at):  # zsh lets blanks stand there
                self._found.doubts("it sets a variable")
            command.words.append(word)
            if aside is not None:
                aside.words.append(word)
            self._found.words += 1
            if self._found.words > MOST_WORDS:
                raise TooMuch
        command.written = self._line[start:end].strip()
        if not (command.words or command.assigned or command.read_from or command.told or seen or end > start):
            self._strange()
            self._at += 1
            return ""
        self._keep(command)
        if aside is not None and aside.words:
            aside.written = command.written
            self._keep(aside)
        return ""

    def _keep(self, command: Command) -> None:
        self._found.commands.append(command)
        if len(self._found.commands) > MOST_COMMANDS:
            raise TooMuch
        if not command.words:
            self._found.doubts("it runs nothing that has a name")
            return
        first = command.words[0]
        if first.text == "[" and command.words[-1].text == "]":
            return  # the program of that name
        if not first.is_known or first.has_pattern or first.has_braces or first.is_coded:
            self._found.doubts("which program it runs is only known when it runs", is_blind=True)
        elif not _PROGRAM.fullmatch(first.text) or first.text.startswith("~"):
            # zsh runs what is in `{a}`, and takes `é=b` for a variable, so that the next word is the program.
            is_blind = any(mark in first.text for mark in "{}=")
            self._found.doubts("which program it runs is only known when it runs", is_blind=is_blind)

    def _is_assignment(self, word: Word) -> bool:
        """Reads what stands in the brackets of a list too."""
        if not _ASSIGNMENT.match(word.head):
            return False
        if self._peek() == "(" and word.text.endswith("="):
            self._at += 1
            while True:
                self._skip_blanks(is_line_too=True)
                if self._peek() in ("", ")"):
                    break
                if self._peek() == "#":
                    self._comment()
                elif self._peek() in "<>;&|(" and not self._is_process():
                    self._strange()
                    self._at += 1
                else:
                    self._word()
                self._found.words += 1
                if self._found.words > MOST_WORDS:
                    raise TooMuch
            self._at += 1
        return True

    def _is_function(self, command: Command) -> bool:
        """At a bracket behind words: a function gets its name there; anything else is a pattern of zsh, or wrong."""
        self._at += 1
        self._skip_blanks()
        if self._peek() == ")" and command.words:
            self._at += 1
            self._found.doubts("it defines a function")
            return True
        self._strange()
        self._list(")")
        return False

    def _keyword(self, word: str) -> str:
        """What a word at the place of a program means to the shell; nothing where it is a program."""
        if word == "!":
            return "not"
        if word in _LEADS:
            self._found.doubts(f"it holds a {word}")
            return "lead"
        if word == "{":
            self._found.doubts("it groups commands")
            return "lead"
        if word in _ENDS:
            self._found.doubts("it is made of several commands")
            return "esac" if word == "esac" else "end"
        if word in _LOOPS:
            self._found.doubts(f"it holds a {word}")
            self._skip_blanks()
            if self._line.startswith("((", self._at):
                self._at += 1
                self._list(")")
                self._found.is_blind = True
                return "lead"
            words: list[str] = []
            while self._peek() not in ("", "\n", ";", "&", "|", ")", "("):
                words.append(self._word().text)
                self._skip_blanks()
                if words[1:] in (["do"], ["{"]):
                    return "lead"
            if len(words) > 1 and words[1] != "in":
                self._strange()
            if self._peek() in (";", "\n"):
                self._at += 1
            return "lead"
        if word == "case":
            self._found.doubts("it holds a case")
            self._skip_blanks()
            if self._peek() not in ("", "\n", ";", "&", "|", ")", "("):
                self._word()
            self._skip_blanks(is_line_too=True)
            if self._line.startswith("in", self._at):
                self._at += 2
            else:
                self._strange()
            return "case"
        if word == "function":
            self._found.doubts("it defines a function")
            self._skip_blanks()
            while self._peek() not in ("", "\n", ";", "&", "|", ")", "(", "{"):
                self._word()
                self._skip_blanks()
            if self._peek() == "(":
                self._at += 1
                self._skip_blanks()
                if self._peek() == ")":
                    self._at += 1
                else:
                    self._strange()
            return "lead"
        return ""

    # Redirections ---------------------------------------------------------------------------------------------

    def _is_process(self) -> bool:
        return self._line.startswith(("<(", ">("), self._at)

    def _redirect(self, command: Command | None, *, seen: set[str] | None = None) -> bool:
        """Reads a redirection, where one stands here."""
        if self._is_process():
            return False
        plain = _HARMLESS.match(self._line, self._at)
        if plain:
            self._at = plain.end()
            descriptor = plain[1] or ("0" if "<" in (plain[2] or plain[3]) else "1")
            if seen is not None:
                if descriptor in seen:
                    self._found.doubts("it sends one output to several places")
                seen.add(descriptor)
            if command is not None and descriptor == "0":
                command.is_fed = True
            return True
        found = _REDIRECT.match(self._line, self._at)
        if found is None:
            return False
        self._at = found.end()
        if seen is not None:
            seen.add(found[1] + found[2])
        match found[2]:
            case "<<" | "<<-":
                self._found.doubts("it reads from a text of its own")
                self._skip_blanks()
                start = self._at
                end = self._here_end()
                written = self._line[start : self._at]
                if not end and not written:
                    self._strange()
                self._waiting.append(
                    _HereDocument(
                        end,
                        is_quoted=any(mark in written for mark in "'\"\\"),
                        is_stripped=found[2] == "<<-",
                        command=command or Command(),
                    )
                )
                return True
            case "<<<":
                self._found.doubts("it reads from a text of its own")
                word = self._target()
                if word is not None and command is not None:
                    command.told.append(word.text)
                return True
        # Only zsh has `>!`: others write to a file of that name, and what follows may be the program.
        # Behind `>&-`, which closes, bash begins another word.
        goes_on = found[2] in (">&", "<&") and _CLOSING.match(self._line, self._at) is not None
        self._found.doubts("it reads from a file or writes to one", is_blind=goes_on or found[2].endswith("!"))
        word = self._target()
        if "&" in found[2] and (word is None or not word.is_bare or not _PLAIN_TARGET.fullmatch(word.text)):
            self._found.doubts("it reads from a file or writes to one", is_blind=True)  # bash reads it a second time
        if word is not None:
            self._found.files.append(re.sub("[\"']", "", word.text))
            if command is not None and found[2] in ("<", "<>", "<&"):
                command.read_from.append(word)
                command.is_fed = True
        return True

    def _target(self) -> Word | None:
        self._skip_blanks()
        if self._peek() in ("", "\n", ";", "|", "&", ")", "#") or (self._peek() in "<>(" and not self._is_process()):
            self._strange()
            return None
        return self._word()

    def _here_end(self) -> str:
        """The word that ends a here-document; nothing in it is expanded."""
        end = ""
        while (here := self._peek()) and here not in " \t\n;|&<>()":
            if here == "\\":
                end += self._line[self._at + 1 : self._at + 2]
                self._at += 2
            elif here in "'\"":
                close = self._line.find(here, self._at + 1)
                if close < 0:
                    self._strange()
                    close = len(self._line)
                end += self._line[self._at + 1 : close]
                self._at = close + 1
            else:
                if here in "$`":
                    self._strange()
                end += here
                self._at += 1
        if "\n" in end:
            self._strange()
        return end

    def _here_documents(self) -> None:
        """Behind the end of a line: the texts that commands of that line read."""
        waiting, self._waiting = self._waiting, []
        for document in waiting:
            lines: list[str] = []
            while self._at < len(self._line):
                close = self._line.find("\n", self._at)
                close = len(self._line) if close < 0 else close
                text = self._line[self._at : close]
                self._at = close + 1
                while not document.is_quoted and _is_odd(text) and self._at < len(self._line):
                    # Only there does a line go on behind a backslash.
                    close = self._line.find("\n", self._at)
                    close = len(self._line) if close < 0 else close
                    text = text[:-1] + self._line[self._at : close]
                    self._at = close + 1
                if document.is_stripped:
                    text = text.lstrip("\t")
                if text == document.end:
                    break
                lines.append(text)
            else:
                self._found.doubts("a text in it has no end", is_blind=True)
            self._at = min(self._at, len(self._line))
            body = "\n".join(lines)
            document.command.told.append(body)
            document.command.is_fed = True
            if not document.is_quoted:
                self._inside(body)

    def _inside(self, text: str) -> None:
        """What is run while a text is expanded."""
        if "$" not in text and "`" not in text:
            return
        self._found.characters += len(text)
        if self._found.characters > MOST_READ:
            raise TooMuch
        _Reader(text, self._found, depth=self._depth)._quoted(Word(), is_text=True)

    # Words ----------------------------------------------------------------------------------------------------

    def _word(self, *, is_first: bool = False) -> Word:
        word = Word()
        start = self._at
        while (here := self._peek()) and here not in " \t\n|&;":
            self._step()
            run = _RUN.match(self._line, self._at)
            if run:
                self._plain(word, run[0], is_begin=self._at == start)
                self._at = run.end()
                continue
            match here:
                case "\\":
                    self._escaped(word)
                case "'":
                    self._single(word)
                case '"':
                    word.is_bare = False
                    self._double(word)
                case "$":
                    self._dollar(word)
                case "`":
                    self._backtick(word, is_quoted=False)
                case "*" | "?" | "[":
                    self._pattern(word, here)
                case "{" | "}" | ",":
                    self._brace(word, here)
                case "<" | ">":
                    if not self._is_process():
                        break
                    begin = self._at
                    self._at += 2
                    self._found.doubts("a part of it is only known when it runs")
                    word.is_known = word.is_value = False
                    self._list(")")
                    word.add(self._line[begin : self._at], _PIPE)
                case "(" if self._at > start and word.text.endswith("=") and not is_first:
                    if len(word.text) > 1:
                        break
                    begin = self._at  # `=(…)` of zsh: a process whose output is a file
                    self._at += 1
                    self._strange()
                    word.is_known = word.is_value = False
                    self._list(")")
                    word.add(self._line[begin : self._at], UNKNOWN)
                case _:
                    break
        if word.text in ("[", "[[") and word.is_bare:
            word.has_pattern = False  # the program of that name
            if word.text == "[[" and not is_first:
                self._found.doubts("busybox begins a test at [[, and reads what follows as its words", is_blind=True)
        if word.has_pattern and _UPWARDS.search(word.text):
            self._found.doubts("it may mean the folder above")
        if self._at == start:  # nothing that begins a word
            self._strange()
            self._at += 1
        return word

    def _single(self, word: Word) -> None:
        word.is_bare = False
        close = self._line.find("'", self._at + 1)
        if close < 0:
            self._strange()
            close = len(self._line)
        word.add(self._line[self._at + 1 : close])
        self._at = close + 1

    def _plain(self, word: Word, text: str, *, is_begin: bool) -> None:
        is_home = text.startswith("~/") or (text == "~" and self._ends(1))
        if is_begin and (text[0] == "=" or (text[0] == "~" and not is_home)):
            self._found.doubts("a part of it is only known when it runs")
        if re.search("[=:]~", text) or (text[0] == "~" and word.text.endswith(("=", ":"))):
            self._found.doubts("a part of it is only known when it runs")
        word.add(text)

    def _ends(self, ahead: int) -> bool:
        return self._line[self._at + ahead : self._at + ahead + 1] in ("", *" \t\n;|&)")

    def _escaped(self, word: Word) -> None:
        after = self._line[self._at + 1 : self._at + 2]
        self._at += 2
        if after == "\n":
            # The line goes on in the middle of a word; what stands next to it may be an operator.
            self._found.doubts("it goes on in another line", is_blind=True)
            return
        if not after:
            self._strange()
            self._at = len(self._line)
        word.is_bare = False
        word.add(after)

    def _pattern(self, word: Word, here: str) -> None:
        word.has_pattern = True
        is_begin = not word.text or word.text.endswith("/")
        found = _CLASS.match(self._line, self._at) if here == "[" else None
        if here == "[" and found is None:
            word.add("[")
            self._at += 1
            return
        text = found[0] if found else here
        if here == "*":
            word.add(text, ANY_FIRST if is_begin else ANY)
        else:
            word.add(text, ONE_FIRST if is_begin else ONE)
        self._at += len(text)

    def _brace(self, word: Word, here: str) -> None:
        plain = _PLAIN_BRACES.match(self._line, self._at)
        if plain:
            word.add(plain[0])
            self._at = plain.end()
            return
        several = _SEVERAL.match(self._line, self._at)
        if several and word.is_bare and not (word.has_braces or word.has_pattern):
            word.has_braces = True
            word.add(several[0], several[0].replace("{", OPEN).replace(",", COMMA).replace("}", CLOSE))
            self._at = several.end()
            return
        is_alone = not word.text and self._ends(1)
        if here == "{" and not is_alone:
            word.has_braces = True
        if here != ",":
            self._found.doubts("it stands for several words, or groups commands")
        word.add(here, {"{": OPEN, "}": CLOSE, ",": COMMA}[here] if word.has_braces else here)
        self._at += 1

    def _double(self, word: Word) -> None:
        self._at += 1
        begin = self._at - 1
        inner = Word(has_braces=word.has_braces)
        self._quoted(inner, is_text=False)
        if inner.is_known:
            word.add(inner.text)
        else:
            word.is_known = False
            word.is_value = word.is_value and inner.is_value
            word.add(self._line[begin : self._at], inner.open)

    def _quoted(self, word: Word, *, is_text: bool) -> None:
        """Up to the closing quote, or to the end of a here-document."""
        self._deeper()
        run = _IN_TEXT if is_text else _IN_QUOTES
        while True:
            self._step()
            plain = run.match(self._line, self._at)
            if plain:
                word.add(plain[0])
                self._at = plain.end()
            here = self._peek()
            if not here:
                if not is_text:
                    self._strange()
                break
            if here == '"':
                self._at += 1
                break
            if here == "\\":
                after = self._line[self._at + 1 : self._at + 2]
                self._at = min(self._at + 2, len(self._line))
                if after == "\n":
                    self._found.doubts("it goes on in another line")
                else:
                    if after in ("$", "`"):
                        self._found.doubts("a part of it is only known when it runs")
                    word.add(after if after in ("$", "`", '"', "\\") else "\\" + after)
            elif here == "$":
                self._dollar(word, is_quoted=True)
            else:
                self._backtick(word, is_quoted=True)
        self._depth -= 1

    def _dollar(self, word: Word, *, is_quoted: bool = False) -> None:
        begin = self._at
        self._at += 1
        here = self._peek()
        if here == "'" and not is_quoted:
            self._found.doubts("a part of it is only known when it runs")
            word.is_bare, word.is_coded = False, True
            word.add(self._coded())
            return
        if here == '"' and not is_quoted:
            self._found.doubts("a part of it is only known when it runs")
            word.is_bare, word.is_coded = False, True
            self._double(word)
            return
        text = _TEXT.match(self._line, begin) if is_quoted else None
        # It ends with the first line that is its mark. What follows that is run.
        if text and text[2] not in text[3].split("\n") and _is_text(self._line, begin, text.end()):
            self._at = text.end()
            if word.has_braces:  # it would be run once for each of the words
                self._found.doubts("it stands for several words, or groups commands")
            idle = Command(words=[Word("cat", "cat")], written=f"cat <<{text[1]}", told=[text[3]], is_idle=True)
            self._keep(idle)
            word.add(text[3].rstrip("\n"))
            return
        value = _VALUE.match(self._line, begin)
        if value is not None and (is_quoted or value[0] == "$?"):
            self._at = value.end()
            word.is_known = False
            word.add(value[0], UNKNOWN_WORD)
            return
        self._found.doubts("a part of it is only known when it runs")
        word.is_value = False
        name = _NAME.match(self._line, self._at)
        if here == "(":
            self._substitution()
        elif here == "{":
            self._at += 1
            self._parameter(is_quoted=is_quoted)
        elif here == "[":
            self._at += 1
            self._bracket()
        elif name:
            self._at = name.end()
        else:
            word.add("$")
            return
        word.is_known = False
        written = self._line[begin : self._at]
        is_one = is_quoted and (here == "(" or _ONE_VALUE.fullmatch(written) is not None)
        word.add(written, UNKNOWN_WORD if is_one else UNKNOWN)

    def _substitution(self) -> None:
        if self._line.startswith("((", self._at):
            close = self._arithmetic_end()
            if close is not None:
                # Brackets of arithmetic in every shell: only what is expanded in there runs.
                text = self._line[self._at + 2 : close - 2]
                self._inside(text.replace("\\", " "))
                self._at = close
                return
            self._strange()
        self._at += 1
        self._list(")")

    def _arithmetic_end(self) -> int | None:
        """Behind `))`, where the brackets in between are closed; None where it may be a bracket inside of another."""
        open_brackets = 0
        for found in re.compile(r"[()'\"\\#;\n]").finditer(self._line, self._at + 2):
            if found[0] == "(":
                open_brackets += 1
            elif found[0] != ")":
                return None
            elif open_brackets:
                open_brackets -= 1
            else:
                return found.end() + 1 if self._line.startswith("))", found.start()) else None
        return None

    def _parameter(self, *, is_quoted: bool) -> None:
        """Behind `${`, up to its end."""
        self._deeper()
        if self._peek() in ("(", " ", "\t", "\n", "|", "!", "") or re.compile(r"[^}'\"]{0,80}@[A-Za-z]").match(
            self._line, self._at
        ):
            # Flags of zsh and of bash that expand a value once more, or run commands.
            self._found.is_blind = True
        while True:
            self._step()
            here = self._peek()
            if not here:
                self._strange()
                break
            if here == "}":
                self._at += 1
                break
            if here == "\\":
                self._at = min(self._at + 2, len(self._line))
            elif here == '"':
                self._double(Word())
            elif here == "'" and not is_quoted:
                close = self._line.find("'", self._at + 1)
                if close < 0:
                    self._strange()
                    close = len(self._line)
                self._at = close + 1
            elif here == "$":
                self._dollar(Word(), is_quoted=is_quoted)
            elif here == "`":
                self._backtick(Word(), is_quoted=is_quoted)
            elif self._is_process() and not is_quoted:
                self._at += 2
                self._list(")")
            else:
                self._at += 1
        self._depth -= 1

    def _bracket(self) -> None:
        """Behind `$[`: arithmetic in bash and zsh, text in others."""
        self._deeper()
        self._strange()
        while (here := self._peek()) and here not in "]\n":
            self._step()
            if here == "$":
                self._dollar(Word(), is_quoted=True)
            elif here == "`":
                self._backtick(Word(), is_quoted=True)
            else:
                self._at += 1
        if here:
            self._at += 1
        self._depth -= 1

    def _backtick(self, word: Word, *, is_quoted: bool) -> None:
        self._found.doubts("a part of it is only known when it runs")
        word.is_known = word.is_value = False
        begin = self._at
        close = re.compile(r"(?:[^`\\]|\\.)*`", re.DOTALL).match(self._line, self._at + 1)
        self._at = close.end() if close else len(self._line)
        if close is None:
            self._strange()
        inner = self._line[begin + 1 : self._at - 1 if close else self._at]
        self._deeper()
        read(re.sub(r'\\([$`\\"])' if is_quoted else r"\\([$`\\])", r"\1", inner), self._found, depth=self._depth)
        self._depth -= 1
        word.add(self._line[begin : self._at], UNKNOWN_WORD if is_quoted else UNKNOWN)

    def _coded(self) -> str:
        """The value of `$'…'`."""
        close = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL).match(self._line, self._at + 1)
        end = close.end() if close else len(self._line)
        text = self._line[self._at + 1 : end - 1 if close else end]
        if close is None:
            self._strange()
        self._at = end
        return _ANSI.sub(_decoded, text)

    # Between --------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._line[self._at : self._at + 1]

    def _skip_blanks(self, *, is_line_too: bool = False) -> None:
        while True:
            self._step()
            blanks = _BLANKS.match(self._line, self._at)
            if blanks:
                self._at = blanks.end()
            elif self._line.startswith("\\\n", self._at):
                before = self._line[self._at - 1 : self._at] if self._at else " "
                after = self._line[self._at + 2 : self._at + 3]
                if before not in " \t\n" or after in ("<", ">", "&", "|", ";", "(", ")", "#"):
                    self._found.doubts("it goes on in another line")
                self._at += 2
            elif is_line_too and self._peek() == "\n":
                self._at += 1
            else:
                return

    def _comment(self) -> None:
        """It ends with its line, also behind a backslash. (An interactive zsh reads none; agents use `-c`.)"""
        close = self._line.find("\n", self._at)
        self._at = len(self._line) if close < 0 else close

    def _strange(self) -> None:
        self._found.doubts("it is no plain shell command", is_blind=True)

    def _step(self) -> None:
        self._found.steps += 1
        if self._found.steps > MOST_STEPS:
            raise TooMuch

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise TooMuch


def _is_text(line: str, begin: int, end: int) -> bool:
    """Whether also a shell that only counts brackets and quotes, as bash 3 does, ends `$(` there, or finds no end."""
    for has_comments in (False, True):
        depth, at = 0, begin + 1
        while at < len(line):
            here = line[at]
            if here == "\\":
                at += 1
            elif here in "'\"`":
                close = line.find(here, at + 1)
                at = len(line) if close < 0 else close
            elif here == "#" and has_comments and line[at - 1] in " \t\n":
                close = line.find("\n", at)
                at = len(line) if close < 0 else close
            elif here == "(":
                depth += 1
            elif here == ")":
                depth -= 1
                if not depth:
                    break
            at += 1
        if at < len(line) and at + 1 != end:
            return False
    return True


def _is_odd(text: str) -> bool:
    """Whether the line ends with a backslash that is not escaped itself."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _decoded(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code:
        number = int(code, 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
    if found[4]:
        return chr(int(found[4], 8) & 0xFF)
    if found[5]:
        return chr(ord(found[5]) & 0x1F)
    return _ANSI_LETTERS.get(found[6], found[6])
