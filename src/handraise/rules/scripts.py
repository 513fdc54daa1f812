"""Whether a program for sed, awk, jq or psql reaches no file and no other program. What is not certain does harm."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["is_harmless_script"]

# What leaves the database: commands of psql itself, files of the server, programs, code in another language.
_SQL_OUTSIDE = re.compile(
    r"(?i)\\|\b(copy|program|load|do|create|alter|extension|language|(pg|lo|dblink)_\w+|dblink)\b"
    # Names that are written by numbers, and texts that are run as a query.
    r"|\bu&|\buescape\b|\b(query_to_xml\w*|cursor_to_xml\w*|ts_stat|ts_rewrite)\b"
)
# A file of more code, or of data, in a program for jq.
_JQ_IMPORT = re.compile(r"(?<![.\w$])(?:import|include)(?:\s|#[^\n]*(?:\n|\Z))*[\"@]")
LONGEST = 4000  # characters that are looked at

_SED_ADDRESS = re.compile(r"\s*(?:\d+(?:~\d+)?|\$|(?=[/\\]))")
_SED_SPACE = re.compile(r"[\s;{}]*")
_SED_PLAIN = re.compile(r"[=dDgGhHlnNpPxzF]|[qQlL][ ]*\d*")
_BRACKET = re.compile(r"\^?\]?(?:\[[:.=][^\]\n]*\]|[^\]\n])*\]")  # what follows a `[`
_SED_FLAGS = re.compile(r"[gpiIMm0-9]*")
_SED_NO_FLAG = re.compile(r"[^\s\w;{}#]|[a-df-hj-lnoq-vx-zA-DF-HJ-LN-Z]")  # no sed knows it behind `s/a/b/`
_SED_END = re.compile(r"[ \t]*(?:[;\n}]|\Z)")


def is_harmless_script(script: str, *, language: str) -> bool:
    if len(script) > LONGEST:
        return False
    match language:
        case "sed":
            return _is_harmless_sed(script)
        case "awk":
            return _is_harmless_awk(script)
        case "jq":
            return _JQ_IMPORT.search(script) is None
        case _:
            return _SQL_OUTSIDE.search(script) is None


def _is_harmless_awk(script: str) -> bool:
    """It starts nothing, opens nothing and loads nothing: there is no other way to do so than these words and signs.

    `>` and `|` open something only behind `print` or `printf`, and `|` also before `getline`. Before the first of these
    words they compare, or stand in a regular expression.
    """
    if re.search(r"system|getline|@|\\\s*\n", script):
        return False
    _, _, behind = script.partition("print")
    rest = re.sub(r"(?<!>)>=", "", behind.replace("||", ""))
    return "|" not in rest and ">" not in rest


class _Broken(Exception):
    """Every sed refuses the script before it does anything."""


def _is_harmless_sed(script: str) -> bool:
    """Whether a bracket may hold the sign between the pieces of `s/[/]/x/` differs: it is harmless in both readings."""
    readings = [_read_sed(script, has_brackets=has_brackets) for has_brackets in (True, False)]
    return "harmless" in readings and None not in readings


def _read_sed(script: str, *, has_brackets: bool) -> Literal["harmless", "broken"] | None:
    try:
        return "harmless" if _is_harmless_reading(script, has_brackets=has_brackets) else None
    except _Broken:
        return "broken"


def _is_harmless_reading(script: str, *, has_brackets: bool) -> bool:
    """Addresses, and commands that only print or change what goes through: none that reads, writes or runs."""
    place = 0
    while True:
        place = _skip(_SED_SPACE, script, place)
        if place >= len(script):
            return True
        after = _after_addresses(script, place, has_brackets=has_brackets)
        if after is None:
            return False
        place = _skip(re.compile(r"[ \t!]*"), script, after)
        if script[place : place + 1] == "{":
            continue
        end = _after_command(script, place, has_brackets=has_brackets)
        if end is None or (ending := _SED_END.match(script, end)) is None:
            return False
        place = ending.end() if script[ending.end() - 1 : ending.end()] != "}" else ending.end() - 1


def _after_addresses(script: str, place: int, *, has_brackets: bool) -> int | None:
    for number in range(2):
        if number:
            comma = re.compile(r"[ \t]*,[ \t]*[+~]?").match(script, place)
            if comma is None:
                return place
            place = comma.end()
        found = _SED_ADDRESS.match(script, place)
        if found is None:
            return None if number else place
        place = found.end()
        if script[place : place + 1] in ("/", "\\"):
            opening = place + (1 if script[place] == "\\" else 0)
            after = _after_pieces(script, opening, pieces=1, has_brackets=has_brackets)
            if after is None:
                return None
            place = _skip(re.compile(r"[IM]*"), script, after)
    return place


def _after_command(script: str, place: int, *, has_brackets: bool) -> int | None:
    letter = script[place : place + 1]
    if letter in ("s", "y"):
        after = _after_pieces(script, place + 1, pieces=2, has_brackets=has_brackets and letter == "s")
        if after is None or letter == "y":
            return after
        end = _skip(_SED_FLAGS, script, after)
        if end == after and _SED_NO_FLAG.match(script, end):
            raise _Broken
        return end
    plain = _SED_PLAIN.match(script, place)
    return None if plain is None else plain.end()


def _after_pieces(script: str, place: int, *, pieces: int, has_brackets: bool) -> int | None:
    """Behind `/a/b/`, with any sign in place of `/`. Only the first piece is an expression, which may have brackets."""
    sign = script[place : place + 1]
    if not sign or sign in "\\\n" or sign.isalnum() or sign.isspace() or sign in ";{}":
        return None
    place += 1
    for piece in range(pieces):
        while True:
            letter = script[place : place + 1]
            if not letter or letter == "\n":
                return None
            if letter == "\\":
                if script[place + 1 : place + 2] in ("", "\n"):
                    return None
                place += 2
                continue
            place += 1
            if letter == sign:
                break
            if letter == "[" and piece == 0 and has_brackets:
                closing = _BRACKET.match(script, place)
                if closing is None or "\\" in closing.group():
                    return None
                place = closing.end()
    return place


def _skip(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    assert found is not None
    return found.end()
