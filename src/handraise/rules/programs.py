"""The file of what programs do (`programs.toml`), read once and made ready command by command. It decides nothing."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias

__all__ = [
    "DOES",
    "HARMFUL",
    "KINDS",
    "Command",
    "Option",
    "command_of",
    "commands",
    "examples",
    "rows",
    "runners",
    "valued",
]

Kind: TypeAlias = Literal["harmless", "writes", "executes", "configures", "reads", "sends", "deletes"]
Does: TypeAlias = Literal["reads", "changes", "executes", "configures"]

# What an option does that a wildcard does not cover, in words for people.
KINDS: Mapping[Kind, str] = {
    "writes": "writes a file",
    "executes": "runs something else",
    "configures": "takes settings, code or another place from elsewhere",
    "reads": "reads what the command does not name",
    "sends": "sends data",
    "deletes": "removes something",
}
HARMFUL: frozenset[Kind] = frozenset({"writes", "executes", "configures", "deletes"})
DOES: Sequence[Does] = ("reads", "changes", "executes", "configures")
FILE = Path(__file__).with_name("programs.toml")
_SPECIAL = ("sets", "valued", "risks")  # tables that are no commands
_TOKEN = re.compile(r"(--?|\+)(\[no-\])?(.*?)(\[=\]|=.*)?")


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command. `takes` says whether the next word may be its value, or only what is attached."""

    name: str
    kind: Kind
    takes: Literal["nothing", "next", "attached"]
    fits: re.Pattern[str] | None = None  # with a value that fits, it is harmless
    takes_dashes: bool = False  # the next word is its value for certain, even if it looks like an option


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program, or a program with a subcommand, as the file describes it."""

    name: str  # as it is typed: `git remote add`
    does: Does = "reads"
    options: Mapping[str, Option] = field(default_factory=dict)
    subcommands: Mapping[str, Does] = field(default_factory=dict)
    has_words: bool = False  # options are words behind one dash
    is_anywhere: bool = False  # its options may follow its subcommands
    is_loose: bool = False
    is_apart: bool = False  # values are never attached
    takes_dashes: bool = False  # of every option that takes one, the next word is its value for certain
    stops: int | None = None  # so many words that are no options; what follows is for something else
    runs: int | None = None
    adds: bool = False
    assigns: bool = False
    is_code: bool = False
    is_free: bool = False
    is_old: bool = False
    is_plain: bool = False
    module: str | None = None
    has_response: bool = False  # words that begin with `@` are read from a file
    is_each: bool = False  # every word has to fit one that the rule names
    is_inside: bool = False  # words that are no options are files, and those of another folder bring code or settings
    past: frozenset[str] = frozenset()  # options that are looked for behind `--` too
    places: frozenset[str] = frozenset()  # options whose values are words like those without an option
    starts: frozenset[str] = frozenset()  # options that are followed by a command, up to `;` or `{} +`
    operand: tuple[re.Pattern[str], Kind] | None = None
    most: tuple[int, Kind] | None = None
    script: tuple[str, frozenset[str]] | None = None  # its language, and the options whose values are written in it

    @property
    def is_harmless(self) -> bool:
        """Whether nothing that could follow it does harm, as far as the file knows."""
        return not (
            self.subcommands
            or self.operand
            or self.most
            or (self.script and self.script[0] != "jq")  # jq only reads
            or self.has_response
            or self.is_code
            or self.runs is not None
            or self.does != "reads"
            or any(option.kind in HARMFUL for option in self.options.values())
        )


@lru_cache(maxsize=1024)
def command_of(name: str) -> Command | None:
    """A command by its name; None: the file does not know it."""
    return _made(name) if name in _tables() else None


def commands() -> Iterator[Command]:
    """All of them, for tests and warnings."""
    yield from (command for name in _tables() if (command := command_of(name)) is not None)


def examples() -> Iterator[tuple[str, str, bool]]:
    """Each example of the file: the command that it belongs to, the line, and whether `<command> *` covers it."""
    for key, table in _file().items():
        if key not in _SPECIAL:
            for line in (*table.get("passes", ()), *table.get("asks", ())):
                yield _owner(key, line), line, line in table.get("passes", ())


def rows() -> tuple[tuple[str, str, str], ...]:
    """What commands risk: the risk, the commands, and why."""
    found: Mapping[str, list[list[str]]] = _file()["risks"]
    return tuple((risk, when, why) for risk, told in found.items() for when, why in told)


@cache
def runners() -> Mapping[str, tuple[frozenset[str], int]]:
    """Programs that run what follows: which of their options take the next word, and how many words are their own."""
    found = {}
    for name, tables in _tables().items():
        if " " not in name and (runs := _last(tables, "runs")) is not None:
            found[name] = (valued(name), runs)
    return found


@lru_cache(maxsize=1024)
def valued(name: str) -> frozenset[str]:
    """The options of a command that take the next word."""
    command = command_of(name)
    if command is None:
        return frozenset(_valued().get(name, "").split())
    return frozenset(option.name for option in command.options.values() if option.takes == "next")


@cache
def _valued() -> Mapping[str, str]:
    told: Mapping[str, str] = _file()["valued"]
    return {name: options for names, options in told.items() for name in names.split()}


@cache
def _file() -> Mapping[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


@cache
def _tables() -> Mapping[str, list[Mapping[str, Any]]]:
    """By the name of the command; several tables may speak of one."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for key, table in _file().items():
        if key in _SPECIAL:
            continue
        for words in product(*(word.split("|") for word in key.split())):
            found.setdefault(" ".join(words), []).append(table)
            for does in DOES:
                for each in table.get("others", {}).get(does, "").split():
                    found.setdefault(" ".join((*words, each)), []).insert(0, {"does": does})
    return found


def _owner(key: str, line: str) -> str:
    """Which of the commands that a table speaks of an example shows."""
    names = [" ".join(words) for words in product(*(word.split("|") for word in key.split()))]
    return next((name for name in names if f"{line} ".startswith(f"{name} ")), names[0])


def _last(tables: Sequence[Mapping[str, Any]], key: str, default: Any = None) -> Any:
    return next((table[key] for table in reversed(tables) if key in table), default)


def _made(name: str) -> Command:
    tables = _tables()[name]
    outer = name.rpartition(" ")[0]
    above = command_of(outer) if outer else None
    options: dict[str, Option] = {}
    if above is not None and above.is_anywhere:
        options |= above.options
    for table in tables:
        for listed in (*(_file()["sets"][each] for each in table.get("options", ())), table):
            options |= {option.name: option for option in _options(listed)}
            for each, fits in listed.get("values", {}).items():
                options[each] = replace(options[each], fits=re.compile(fits, re.DOTALL))
    if _last(tables, "dashes", above is not None and above.takes_dashes):
        options = {name: replace(option, takes_dashes=True) for name, option in options.items()}
    operand, most, script = (_last(tables, key) for key in ("operand", "most", "script"))
    return Command(
        name=name,
        does=_last(tables, "does", "reads"),
        options=options,
        subcommands=_subcommands().get(name, {}),
        has_words=_last(tables, "style", "words" if above is not None and above.has_words else "") == "words",
        is_anywhere=_last(tables, "anywhere", above is not None and above.is_anywhere),
        is_loose=_last(tables, "loose", above is not None and above.is_loose),
        is_apart=_last(tables, "apart", False),
        takes_dashes=_last(tables, "dashes", above is not None and above.takes_dashes),
        stops=_last(tables, "stops"),
        runs=_last(tables, "runs"),
        adds=_last(tables, "adds", False),
        assigns=_last(tables, "assigns", False),
        is_code=_last(tables, "code", False),
        is_free=_last(tables, "free", False),
        is_old=_last(tables, "old", False),
        is_plain=_last(tables, "plain", False),
        module=_last(tables, "module", "").removesuffix("=") or None,
        has_response=_last(tables, "response", False),
        is_each=_last(tables, "each", False),
        is_inside=_last(tables, "inside", False),
        past=frozenset(_last(tables, "past", "").split()),
        places=frozenset(_last(tables, "places", "").split()),
        starts=frozenset(_last(tables, "starts", "").split()),
        operand=(re.compile(operand[0]), operand[1]) if operand else None,
        most=(most[0], most[1]) if most else None,
        script=(script[0], frozenset(script[1].split())) if script else None,
    )


@cache
def _subcommands() -> Mapping[str, Mapping[str, Does]]:
    found: dict[str, dict[str, Does]] = {}
    for name, tables in _tables().items():
        above, _, last = name.rpartition(" ")
        found.setdefault(above, {})[last] = _last(tables, "does", "reads")
    return found


def _options(table: Mapping[str, Any]) -> Iterator[Option]:
    kinds: tuple[Kind, ...] = ("harmless", *KINDS)
    for kind in kinds:
        for token in table.get(kind, "").split():
            yield from _option(token, kind)


def _option(token: str, kind: Kind) -> Iterator[Option]:
    told = _TOKEN.fullmatch(token)
    assert told is not None, token
    dashes, negated, name, value = told.groups()
    takes: Literal["nothing", "next", "attached"] = "nothing"
    fits = None
    if value is not None:
        takes = "next" if value in ("=", "=-") else "attached"
        fits = re.compile(re.escape(value[1:])) if value not in ("=", "=-", "[=]") else None
    yield Option(dashes + name, kind, takes, fits, takes_dashes=value == "=-")
    if negated:
        yield Option(f"{dashes}no-{name}", kind, "nothing")
