"""What a line typed at a prompt means, and the prompt that says what may be typed. Pure; nothing is sent from here.

What may be typed is the same in every language; only what is said about it comes from the catalogue.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from handraise.asks import Ask, Option, Permission, Question, Scope
from handraise.asks.card import MOST_LABEL, MOST_NAME, cut, names
from handraise.channels.terminal.drawing import ENGLISH
from handraise.text.inert import inert
from handraise.text.words import Words

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
    "takes_own_text",
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


def parse(
    question: Question, line: str, *, several: bool = False, t: Words = ENGLISH
) -> Choice | Decline | Wait | Skip | Help | Problem:
    """What a line typed at a question means; `several` says that the ask holds more questions.

    Nothing is guessed: where a number and a label collide, or a choice comes after own text, it is a Problem.
    With `multiple`, choices come first and own text last: `1,3,something else`.
    """
    text = line.strip()
    if text.startswith(":"):
        return _command(text, several=several, t=t)
    if not text.strip(" ,"):
        return Problem(t("terminal.wrong.nothing", choices=_choices(question, t=t)))
    if text.startswith("="):
        return _own(question, text[1:], t=t)
    if question.multiple:
        return _parse_multiple(question, text, t=t)
    match _find(question, text, t=t):
        case Option() as option:
            return Choice((option.value,))
        case Problem() as problem:
            return problem
    if "," in text and all(isinstance(_find(question, part, t=t), Option) for part in _parts(text)):
        return Problem(t("terminal.wrong.onlyOne", choices=_choices(question, t=t)))
    return _own(question, text, t=t)


def parse_permission(
    permission: Permission, line: str, *, t: Words = ENGLISH
) -> Reply | Decline | Wait | Help | Problem:
    """What a line typed at a permission means. `d` and `:d` take a reason, which reaches the agent."""
    text = line.strip()
    if text.startswith(":"):
        said = _command(text, several=False, t=t)
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
    problem = t("terminal.wrong.keys", keys=_or([key for key, _ in _keys(permission, t=t)], t=t))
    if " " not in text:
        return Problem(problem)
    return Problem(f"{problem} {t('terminal.wrong.deny', text=inert(text, keep=''))}")


def parse_scope(scopes: Sequence[Scope], line: str, *, t: Words = ENGLISH) -> Scope | Problem | None:
    """Which scope an `always` means; None goes back without allowing anything."""
    text = line.strip()
    if not text:
        return None
    number = _number(text)
    if number is not None and 1 <= number <= len(scopes):
        return scopes[number - 1]
    return Problem(t("terminal.wrong.scope", numbers=_range(len(scopes))))


def _command(text: str, *, several: bool, t: Words) -> Decline | Wait | Skip | Help | Problem:
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
            return Problem(t("terminal.wrong.skip"))
        case _:
            return Problem(t("terminal.wrong.command", word=inert(word, keep="")))


def _parse_multiple(question: Question, text: str, *, t: Words) -> Choice | Problem:
    chosen: list[Option] = []
    rest = text
    while rest := rest.lstrip(" ,"):
        found, after = _find(question, rest, t=t), ""  # whole first: a label may hold commas
        if not isinstance(found, Option):
            part, _, after = rest.partition(",")
            found = _find(question, part, t=t)
        if isinstance(found, Problem):
            return found
        if found is None:
            break
        chosen.append(found)
        rest = after
    values = tuple(option.value for option in question.options if option in chosen)
    if not rest:
        return Choice(values)
    if not rest.startswith("=") and any(_find(question, part, t=t) is not None for part in _parts(rest)[1:]):
        return Problem(t("terminal.wrong.order"))
    own = _own(question, rest.removeprefix("="), t=t)
    return own if isinstance(own, Problem) else Choice(tuple(dict.fromkeys((*values, *own.values))))


def _find(question: Question, typed: str, *, t: Words) -> Option | Problem | None:
    """The option that is meant by number, label or value; None where the text is none of these."""
    typed = typed.strip()
    options, number = question.options, _number(typed)
    called = [
        option
        for option, name in zip(options, names(options, t=t), strict=True)
        if typed.casefold() in (option.label.strip().casefold(), name.casefold()) or typed == option.value
    ]
    numbered = [options[number - 1]] if number is not None and 1 <= number <= len(options) else []
    found = [option for option in options if option in called or option in numbered]
    shown = inert(typed, keep="")
    if len(found) == 1:
        return found[0]
    if numbered:
        return Problem(t("terminal.wrong.numberOrLabel", text=shown))
    if found:
        numbers = _or([str(options.index(option) + 1) for option in found], t=t)
        return Problem(t("terminal.wrong.several", text=shown, numbers=numbers))
    if number is not None and options:
        own = [t("terminal.wrong.asOwn", text=shown)] if takes_own_text(question) else []
        return Problem(" ".join([t("terminal.wrong.noChoice", text=shown), _choices(question, t=t), *own]))
    return None


def _own(question: Question, text: str, *, t: Words) -> Choice | Problem:
    for option in question.options:
        if option.label == text:
            return Choice((option.value,))
    if not text.strip():
        return Problem(t("terminal.wrong.nothing", choices=_choices(question, t=t)))
    shown = cut(text, MOST_LABEL, t=t)
    if not takes_own_text(question):
        return Problem(t("terminal.wrong.notOffered", text=shown, choices=_choices(question, t=t)))
    if question.kind == "number" and not _is_number(text):
        return Problem(t("terminal.wrong.notNumber", text=shown))
    return Choice((text,))


def _number(text: str) -> int | None:
    """The number of a choice, if the text is one. No list is so long that nine digits are too few."""
    return int(text[:9]) if text.isascii() and text.isdecimal() else None


def takes_own_text(question: Question) -> bool:
    return question.custom or (not question.options and question.kind != "choice")


def _is_number(text: str) -> bool:
    """As the desk sees it: `1_000` and digits of other scripts are numbers to Python, but hardly to an agent."""
    with suppress(ValueError):
        return text.isascii() and "_" not in text and math.isfinite(float(text))
    return False


def _parts(text: str) -> list[str]:
    return [part for part in text.split(",") if part.strip()]


def _choices(question: Question, *, t: Words) -> str:
    if not question.options:
        return t("terminal.choices.number") if question.kind == "number" else t("terminal.choices.text")
    named = [f"{number}. {name}" for number, name in enumerate(names(question.options, t=t), 1)]
    choices, more = ", ".join(named[:MOST_REPEATED]), len(named) - MOST_REPEATED
    return t(
        "terminal.choices",
        choices=t("terminal.choices.more", choices=choices, count=more) if more > 0 else choices,
    )


def _or(words: Sequence[str], *, t: Words) -> str:
    *others, last = words
    return t("terminal.or", first=", ".join(others), last=last) if others else last


def _range(count: int) -> str:
    return "1" if count == 1 else f"1-{count}"


def prompt_for(wanted: Question | Permission, *, t: Words = ENGLISH) -> str:
    """The line before the cursor: it names every way to answer."""
    if isinstance(wanted, Permission):
        return "  ".join(f"[{key}] {meaning}" if meaning else f"[{key}]" for key, meaning in _keys(wanted, t=t)) + ": "
    if not wanted.options:
        return (t("terminal.prompt.number") if wanted.kind == "number" else t("terminal.prompt.answer")) + " "
    ways = [_range(len(wanted.options))]
    if wanted.multiple:
        ways.append(t("terminal.prompt.commas"))
    if wanted.custom:
        ways.append(t("terminal.prompt.orNumber") if wanted.kind == "number" else t("terminal.prompt.custom"))
    return t("terminal.prompt.select", ways=", ".join(ways)) + " "


def prompt_for_scope(scopes: Sequence[Scope], *, t: Words) -> str:
    return t("terminal.prompt.scope", numbers=_range(len(scopes))) + " "


def _keys(permission: Permission, *, t: Words) -> Iterator[tuple[str, str]]:
    """What may be typed at a permission: only what its agent takes."""
    for reply in permission.replies:
        match reply:
            case "once":
                yield "y", t("terminal.reply.approve") if permission.is_plan else t("terminal.reply.once")
            case "always":
                yield "a", t("terminal.reply.always")
            case "reject":
                yield "d", t("terminal.reply.deny")
            case _:
                yield cut(reply, MOST_NAME, t=t), ""


def help_for(ask: Ask, *, t: Words = ENGLISH) -> str:
    reason = t("terminal.key.reason")
    rows = [
        ("y", t("terminal.help.once")),
        ("a", t("terminal.help.always")),
        (f"d {reason}", t("terminal.help.denyWhy")),
    ]
    if ask.questions:
        rows = [
            ("2", t("terminal.help.number")),
            ("1,3", t("terminal.help.several")),
            (f"={t('terminal.key.text')}", t("terminal.help.own")),
            (f":d {reason}", t("terminal.help.declineWhy")),
        ]
    rows += [(":w", t("terminal.help.wait"))]
    rows += [(":s", t("terminal.help.skip"))] if len(ask.questions) > 1 else []
    rows += [(":?", t("terminal.help.help")), (t("terminal.key.control"), t("terminal.help.leave"))]
    return "\n".join(f"  {key:<11}{meaning}" for key, meaning in rows)
