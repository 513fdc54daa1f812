"""What a line typed at a prompt means, and the prompt that says what may be typed. Pure; nothing is sent from here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from handraise.asks import Ask, Option, Permission, Question, Scope
from handraise.channels.terminal.drawing import MOST_LABEL, MOST_NAME, cut, names
from handraise.inert import inert

__all__ = [
    "Choice",
    "Decline",
    "Help",
    "Problem",
    "Reply",
    "Said",
    "Skip",
    "Wait",
    "help_for",
    "parse",
    "parse_permission",
    "parse_scope",
    "prompt_for",
    "prompt_for_scope",
]

MOST_REPEATED = 20  # choices an error repeats


@dataclass(frozen=True, slots=True)
class Choice:
    """Values as they go back to the agent: choices in its order, own text last."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back for a permission: once, always, or a reply only its agent knows."""

    reply: str


@dataclass(frozen=True, slots=True)
class Decline:
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Keep waiting: move the deadline."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Leave this one of several questions unanswered."""


@dataclass(frozen=True, slots=True)
class Help:
    pass


@dataclass(frozen=True, slots=True)
class Problem:
    """The line says nothing that could be sent; `message` says why and what to type instead."""

    message: str


Said: TypeAlias = Choice | Reply | Decline | Wait | Skip | Help | Problem


def parse(question: Question, line: str, *, several: bool = False) -> Choice | Decline | Wait | Skip | Help | Problem:
    """What a line typed at a question means; `several` says that the ask holds more questions.

    Nothing is guessed: where a number and a label collide, or a choice comes after own text, it is a Problem.
    With `multiple`, choices come first and own text last: `1,3,something else`.
    """
    text = line.strip()
    if text.startswith(":"):
        return _command(text, several=several)
    if not text.strip(" ,"):
        return Problem(f"Nothing is chosen yet. {_choices(question)}")
    if text.startswith("="):
        return _own(question, text[1:])
    if question.multiple:
        return _parse_multiple(question, text)
    match _find(question, text):
        case Option() as option:
            return Choice((option.value,))
        case Problem() as problem:
            return problem
    if "," in text and all(isinstance(_find(question, part), Option) for part in _parts(text)):
        return Problem(f"Only one can be chosen. {_choices(question)}")
    return _own(question, text)


def parse_permission(permission: Permission, line: str) -> Reply | Decline | Wait | Help | Problem:
    """What a line typed at a permission means. `d` and `:d` take a reason, which reaches the agent."""
    text = line.strip()
    if text.startswith(":"):
        said = _command(text, several=False)
        assert not isinstance(said, Skip)
        return said
    word, _, reason = text.partition(" ")
    if word.casefold() in ("d", "deny"):
        return Decline(reason.strip() or None)
    if text.casefold() in ("n", "no", "reject"):
        return Decline()
    reply = {"y": "once", "yes": "once", "a": "always"}.get(text.casefold(), text)
    if reply in permission.replies:
        return Reply(reply)
    keys = [key for key, _ in _keys(permission)]
    typed = f" `d {inert(text, keep='')}` denies and says why." if " " in text else ""
    return Problem(f"Type {_or(keys)}.{typed}")


def parse_scope(scopes: Sequence[Scope], line: str) -> Scope | Problem | None:
    """Which scope an `always` means; None goes back without allowing anything."""
    text = line.strip()
    if not text:
        return None
    number = _number(text)
    if number is not None and 1 <= number <= len(scopes):
        return scopes[number - 1]
    return Problem(f"Type a number, {_range(len(scopes))}, or press Enter to go back.")


def _command(text: str, *, several: bool) -> Decline | Wait | Skip | Help | Problem:
    word, _, rest = text.partition(" ")
    match word:
        case ":d":
            return Decline(rest.strip() or None)
        case ":w":
            return Wait()
        case ":?":
            return Help()
        case ":s" if several:
            return Skip()
        case ":s":
            return Problem("There is nothing to skip to: it is one question. `:d` declines it.")
        case _:
            return Problem(f"`{inert(word, keep='')}` is no command. `:?` lists them, and `=` sends it as text.")


def _parse_multiple(question: Question, text: str) -> Choice | Problem:
    chosen: list[Option] = []
    rest = text
    while rest := rest.lstrip(" ,"):
        found, after = _find(question, rest), ""  # whole first: a label may hold commas
        if not isinstance(found, Option):
            part, _, after = rest.partition(",")
            found = _find(question, part)
        if isinstance(found, Problem):
            return found
        if found is None:
            break
        chosen.append(found)
        rest = after
    values = tuple(option.value for option in question.options if option in chosen)
    if not rest:
        return Choice(values)
    if not rest.startswith("=") and any(_find(question, part) is not None for part in _parts(rest)[1:]):
        return Problem("Choices come first, own text last: `1,3,my text`. `=` before it sends all of it as text.")
    own = _own(question, rest.removeprefix("="))
    return own if isinstance(own, Problem) else Choice(tuple(dict.fromkeys((*values, *own.values))))


def _find(question: Question, typed: str) -> Option | Problem | None:
    """The option that is meant by number, label or value; None where the text is none of these."""
    typed = typed.strip()
    options, number = question.options, _number(typed)
    called = [
        option
        for option, name in zip(options, names(options), strict=True)
        if typed.casefold() in (option.label.strip().casefold(), name.casefold()) or typed == option.value
    ]
    numbered = [options[number - 1]] if number is not None and 1 <= number <= len(options) else []
    found = [option for option in options if option in called or option in numbered]
    shown = inert(typed, keep="")
    if len(found) == 1:
        return found[0]
    if numbered:
        return Problem(f"“{shown}” is the number of one choice and the label of another; `={shown}` is the label.")
    if found:
        return Problem(
            f"“{shown}” could be {_or([str(options.index(option) + 1) for option in found])}; type the number."
        )
    if number is not None and options:
        own = f" `={shown}` sends it as your own answer." if _takes_own_text(question) else ""
        return Problem(f"There is no choice {shown}. {_choices(question)}{own}")
    return None


def _own(question: Question, text: str) -> Choice | Problem:
    for option in question.options:
        if option.label == text:
            return Choice((option.value,))
    if not text.strip():
        return Problem(f"Nothing is chosen yet. {_choices(question)}")
    shown = cut(text, MOST_LABEL)
    if not _takes_own_text(question):
        return Problem(f"“{shown}” is not a choice. {_choices(question)}")
    if question.kind == "number" and not _is_number(text):
        return Problem(f"“{shown}” is not a number.")
    return Choice((text,))


def _number(text: str) -> int | None:
    """The number of a choice, if the text is one. No list is so long that nine digits are too few."""
    return int(text[:9]) if text.isascii() and text.isdecimal() else None


def _takes_own_text(question: Question) -> bool:
    return question.custom or (not question.options and question.kind != "choice")


def _is_number(text: str) -> bool:
    """As the desk sees it: `1_000` and digits of other scripts are numbers to Python, but hardly to an agent."""
    with suppress(ValueError):
        return text.isascii() and "_" not in text and math.isfinite(float(text))
    return False


def _parts(text: str) -> list[str]:
    return [part for part in text.split(",") if part.strip()]


def _choices(question: Question) -> str:
    if not question.options:
        return "Type a number." if question.kind == "number" else "Type an answer."
    named = [f"{number}. {name}" for number, name in enumerate(names(question.options), 1)]
    more = "" if len(named) <= MOST_REPEATED else f" … and {len(named) - MOST_REPEATED} more"
    return f"Choose: {', '.join(named[:MOST_REPEATED])}{more}."


def _or(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _range(count: int) -> str:
    return "1" if count == 1 else f"1-{count}"


def prompt_for(wanted: Question | Permission) -> str:
    """The line before the cursor: it names every way to answer."""
    if isinstance(wanted, Permission):
        return "  ".join(f"[{key}] {meaning}" if meaning else f"[{key}]" for key, meaning in _keys(wanted)) + ": "
    if not wanted.options:
        return "Number: " if wanted.kind == "number" else "Answer: "
    ways = [_range(len(wanted.options))]
    if wanted.multiple:
        ways.append("comma-separated")
    if wanted.custom:
        ways.append("or type a number" if wanted.kind == "number" else "or type custom")
    return f"Select [{', '.join(ways)}]: "


def prompt_for_scope(scopes: Sequence[Scope]) -> str:
    return f"Always, how far [{_range(len(scopes))}, Enter goes back]: "


def _keys(permission: Permission) -> Iterator[tuple[str, str]]:
    """What may be typed at a permission: only what its agent takes."""
    for reply in permission.replies:
        match reply:
            case "once":
                yield "y", "approve" if permission.kind == "plan" else "allow once"
            case "always":
                yield "a", "always"
            case "reject":
                yield "d", "deny"
            case _:
                yield cut(reply, MOST_NAME), ""


def help_for(ask: Ask) -> str:
    rows = [
        ("y", "allow it this once"),
        ("a", "allow it always; shows first what that means"),
        ("d reason", "deny it; the reason reaches the agent"),
    ]
    if ask.questions:
        rows = [
            ("2", "choose by number, or type the full label"),
            ("1,3", "choose several, where that is asked; own text comes last"),
            ("=text", "your own answer, even if it looks like a number or label"),
            (":d reason", "decline to answer; the reason reaches the agent"),
        ]
    rows += [(":w", "keep waiting: moves the deadline")]
    rows += [(":s", "skip this question")] if len(ask.questions) > 1 else []
    rows += [(":?", "this help"), ("Ctrl+C", "leave it unanswered; twice, or Ctrl+D, quits")]
    return "\n".join(f"  {key:<11}{meaning}" for key, meaning in rows)
