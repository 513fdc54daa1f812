"""The ways in which a rule that forbids may know a command: without what is around it, its options in one order.

Forms are only for rules that forbid or ask, so they may say too much. What allows sees the command as it is.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, permutations

from handraise.rules.globs import ANY, CLOSE, COMMA, MARKS, OPEN, UNKNOWN, UNKNOWN_WORD, has_unknown
from handraise.rules.options import valued_options
from handraise.rules.programs import command_of, runners

__all__ = [
    "ADDING",
    "MOST_BRACES",
    "WRAPPERS",
    "Forms",
    "expanded",
    "inner_commands",
    "pieces_of",
    "variants",
    "with_added",
]

MOST_FORMS = 96  # of one command
MOST_STARTS = 16  # places at which the command inside of a command may begin
MOST_BRACES = 4  # words that hold some
MOST_VARIANTS = 16  # of what is in braces
LONGEST_TURNED = 2_000  # characters; longer commands are not written in other orders
MOST_PIECES = 150
LONGEST_PIECES = 10_000

# They run what follows. Which of their words begin it is not known, so each may. Those that the file of programs knows,
# and others.
WRAPPERS = frozenset(runners()) | frozenset(
    """
    su nsenter script parallel find fd ssh docker podman kubectl oc repeat toybox eatmydata fakeroot systemd-run setarch
    linux32 linux64 i386 x86_64 prlimit choom ssh-agent dbus-run-session xvfb-run numactl catchsegv chronic rlwrap
    arch
    """.split()  # noqa: SIM905 - a list to read
)
_FINDERS = frozenset({"find", "fd"})
ADDING = frozenset({"xargs", "parallel", *_FINDERS})  # they add words to the command that they run
_BEFORE_INNER = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# Options that are the same, by program or by program and what it is told to do. The first letter is the one to write.
_SAME: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "rm": {"r": ("-R", "--recursive"), "f": ("--force",)},
    "chmod": {"R": ("--recursive",)},
    "chown": {"R": ("--recursive",)},
    "chgrp": {"R": ("--recursive",)},
    "cp": {"r": ("-R", "-a", "--recursive", "--archive"), "f": ("--force",)},
    "mv": {"f": ("--force",)},
    "ln": {"f": ("--force",), "s": ("--symbolic",)},
    "git push": {"f": ("--force",), "d": ("--delete",)},
    "git clean": {"f": ("--force",)},
    "git checkout": {"f": ("--force",)},
    "git branch": {"D": (), "f": ("--force",)},
}


class Forms:
    """Those of one command, each once, as many as there is room for."""

    def __init__(self, *, room: int) -> None:
        self.plain: dict[str, None] = {}
        self.open: dict[str, None] = {}  # with MARKS in it
        self.room = room  # characters that are left, for all commands of a line
        self.is_full = False

    def add(self, form: str) -> None:
        kept = self.open if any(mark in form for mark in MARKS) else self.plain
        if form in kept:
            return
        if len(self.plain) + len(self.open) >= MOST_FORMS or self.room < len(form):
            self.is_full = True
            return
        self.room -= len(form)
        kept[form] = None

    def add_words(self, words: Sequence[str]) -> None:
        """A command in every order in which its author may have meant it."""
        program = words[0].rpartition("/")[2].removeprefix("=").removesuffix(".exe")
        self.add(" ".join([program, *words[1:]]))
        if program.startswith("git-") or words[1:2] in (["send-pack"], ["http-push"]):
            self.add_words(["git", program[4:], *words[1:]] if program[3:4] == "-" else ["git", "push", *words[2:]])
        if self.is_full or sum(map(len, words)) > LONGEST_TURNED:
            return
        for own in _without_first_options([program, *_without_values(program, words)]):
            self.add(" ".join(own))
            for turned in _turned(own):
                self.add(" ".join(turned))


def _without_values(program: str, words: Sequence[str]) -> Sequence[str]:
    """The words behind the program, where no value of an option that is one word for certain can be taken for more."""
    if not any(UNKNOWN_WORD in word for word in words):
        return words[1:]
    taking = valued_options([program, *words[1:]])
    return [
        "…" if UNKNOWN_WORD in word and UNKNOWN not in word and before in taking else word
        for before, word in pairwise(words)
    ]


def _without_first_options(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """`git -C . push` is `git push` too. Which options take a word is not known, so each may."""
    yield words
    number = 1
    for _ in range(8):
        while number < len(words) and words[number].startswith("-") and words[number] != "--":
            number += 1
        if number >= len(words) or number == 1:
            return
        yield [words[0], *words[number:]]
        if not words[number - 1].startswith("-"):
            return
        number += 1
        if number < len(words) and not words[number].startswith("-"):
            yield [words[0], *words[number:]]
            return


def _turned(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Options first, in several orders; without options; with one path at a time."""
    is_verb = len(words) > 1 and words[1][:1].isalpha() and "." not in words[1] and "/" not in words[1]
    for head in (2, 1) if is_verb else (1,):
        options: list[str] = []
        operands: list[str] = []
        is_over = False
        for word in words[head:]:
            if word == "--" and not is_over:
                is_over = True
            elif word.startswith("-") and len(word) > 1 and not is_over:
                options.append(word)
            else:
                operands.append(word)
        first = list(words[:head])
        paths = [posixpath.normpath(word) if "/" in word and "://" not in word else word for word in operands]
        unknown = [word for word in (*options, *operands) if has_unknown(word[:1] + word[2:3] * (word[:1] == "-"))]
        same = _same_options(" ".join(first), options, is_any=bool(unknown))
        for each in same:
            yield [*first, *each, *paths]
        yield [*first, *options, *operands]
        has_verb = head == 1 and is_verb and _has_verbs(words[0])  # what follows a verb is none
        if unknown and not has_verb:
            yield [*first, *unknown, *(word for word in (*options, *paths) if word not in unknown)]
        yield [*first, *options, *paths]
        for option in options[:6]:
            yield [*first, option, *(other for other in options if other is not option), *paths]
        yield [*first, *paths]
        if len(words) > 2:
            for path in paths[:8]:
                if has_verb and has_unknown(path):
                    continue
                if "." in path or "/" in path or any(mark in path for mark in MARKS):
                    yield [*first, path]


def _has_verbs(program: str) -> bool:
    command = command_of(program)
    return command is not None and bool(command.subcommands)


def _same_options(command: str, options: Sequence[str], *, is_any: bool) -> Iterator[Sequence[str]]:
    """The options that have several names, by each of them and in each order. `is_any`: there may be more of them."""
    same = _SAME.get(command)
    if same is None:
        return
    has = [letter for letter, others in same.items() if any(_is_option(word, letter, others) for word in options)]
    if is_any:
        for order in permutations(same):
            yield ["-" + "".join(order) + UNKNOWN]
    for count in range(len(has), 0, -1):
        for order in permutations(has, count):
            yield ["-" + "".join(order)]
            if count > 1:
                yield ["-" + letter for letter in order]
            yield [next((name for name in same[letter] if name.startswith("--")), f"-{letter}") for letter in order]


def _is_option(word: str, letter: str, others: Sequence[str]) -> bool:
    if word.startswith("--"):
        return len(word) > 2 and any(name.startswith(word.partition("=")[0]) for name in others)
    letters = {letter, *(name[1] for name in others if len(name) == 2)}
    return any(each in letters for each in word[1:])


def inner_commands(words: Sequence[str]) -> tuple[list[Sequence[str]], bool]:
    """What a command that runs another may run, from each word that may begin it; and whether these are all."""
    program = words[0].rpartition("/")[2]
    if program in _FINDERS:
        found = [number + 1 for number, word in enumerate(words[:-1]) if word in _BEFORE_INNER]
        return [words[start:] for start in found[:MOST_STARTS]], len(found) <= MOST_STARTS
    starts: list[int] = []
    is_open = False  # the last word may have been an option's own, so that the command has not begun for certain
    for number in range(1, len(words)):
        word = words[number]
        if (word.startswith("-") and len(word) > 1) or _ASSIGNMENT.match(word):
            is_open = True
            continue
        if len(starts) == MOST_STARTS:
            return [words[start:] for start in starts], not is_open
        starts.append(number)
        if len(starts) < MOST_STARTS:
            is_open = False
    return [words[start:] for start in starts], True


def with_added(program: str, words: Sequence[str]) -> Sequence[str]:
    """The command that a program runs with words that it finds."""
    if program not in ADDING:
        return words
    found = [word.replace("{}", UNKNOWN) for word in words]
    return found if found != list(words) or program == "find" else [*words, UNKNOWN]


def expanded(words: Sequence[str]) -> Iterator[list[str]]:
    """The words that braces stand for, all of them and one at a time, as far as there is room."""
    with_braces = [number for number, word in enumerate(words) if OPEN in word]
    if len(with_braces) > MOST_BRACES:
        yield [word if OPEN not in word else ANY for word in words]
        return
    yield [variant for word in words for variant in variants(word)]
    for number in with_braces:
        for variant in variants(words[number]):
            yield [*words[:number], variant, *words[number + 1 :]]


def variants(word: str) -> list[str]:
    """Of the first braces; what is nested in them, or a range, may be any text."""
    begin = word.find(OPEN)
    end = word.rfind(CLOSE)
    if begin < 0:
        return [word]
    if end < begin:
        return [_as_written(word)]
    inner = word[begin + 1 : end]
    before, after = _as_written(word[:begin]), _as_written(word[end + 1 :])
    if OPEN in inner or CLOSE in inner or COMMA not in inner:
        return [before + ANY + after]
    return [before + each + after for each in inner.split(COMMA)[:MOST_VARIANTS]]


def _as_written(text: str) -> str:
    """What stands outside of braces means itself."""
    return text.replace(OPEN, "{").replace(COMMA, ",").replace(CLOSE, "}")


_PIECES = re.compile(r"[;|&\n(){}`$<>\"',\[\]=]+|\\n")


def pieces_of(text: str) -> list[str]:
    """What may be a command in a text that could not be read: whatever stands between marks; and those in a row."""
    pieces: list[str] = []
    for piece in _PIECES.split(text[:LONGEST_PIECES]):
        piece = " ".join(piece.split())
        if piece == "/" or any(each.isalnum() for each in piece):
            pieces.append(piece)
        if len(pieces) >= MOST_PIECES:
            break
    rows = [" ".join(pieces[number : number + 4]) for number in range(min(len(pieces), MOST_PIECES))]
    return list(dict.fromkeys([*pieces, *rows]))
