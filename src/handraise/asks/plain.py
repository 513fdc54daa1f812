"""An ask as plain text with numbered choices, and what people write under it read back. Pure.

For places where people read and write and nothing more. Words are English, as those of a script are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC

from handraise.asks import Answer, Ask, Permission, Question
from handraise.asks.card import MOST_DESCRIPTION, MOST_LABEL, Card, cut, to_card
from handraise.errors import AnswerDoesNotFit
from handraise.text.inert import inert
from handraise.text.words import speak

__all__ = ["to_answer", "to_ending", "to_entries", "to_text"]

NO = "no"  # and a reason
_ORDINAL = re.compile(r"([0-9]+)\s*[.):]?")
_BETWEEN = re.compile(r"[\n,;]+")
ENGLISH = speak("en")
CUT = "[this is not all of it; the desk shows the rest]"


def to_text(ask: Ask, *, longest: int | None = None) -> str:
    """What is asked and how to answer it. What makes it longer than so many characters is left out, and says so.

    What is risky about it, what happens if nobody answers and how to answer are left out last.
    """
    card = to_card(ask)
    asked, warned, end = [*_asked(card)], _warned(card, within=longest), [*_how(card)]
    if longest is not None and len("\n".join([*warned, *end])) > longest // 2:
        asked, warned = [*asked, *warned], []
    end = [*warned, *end]
    text, how = "\n".join(asked), "\n".join(end)
    if longest is not None and len(text) + 1 + len(how) > longest:
        text = f"{text[: max(0, longest - len(CUT) - len(how) - 2)]}\n{CUT}"
    return f"{text}\n{how}"


def to_ending(ask: Ask) -> str:
    """What it says there once it is settled: how it ended, and by whom."""
    answer = ask.answer
    if answer is None:
        return inert(f"{ask.title}: {ask.state}")
    said = answer.reply or "; ".join(", ".join(values) for values in answer.answers or ())
    said = answer.reason or "" if answer.rejected else said
    by = f" by {answer.by}" + (f" in {answer.via}" if answer.via else "")
    return inert(f"{ask.title}: {ask.state}{by if answer.by else ''}" + (f": {said}" if said else ""))


def to_answer(ask: Ask, text: str, *, by: str, via: str = "") -> Answer:
    """What somebody means who writes this: numbers, labels or own words, a line for each question; or `no` and why.

    Raises AnswerDoesNotFit where that cannot be told. Whether it fits what was asked, the desk says.
    """
    text = text.strip()
    word, _, reason = text.partition(" ")
    if word.casefold().rstrip(",:.") == NO and not _offers_no(ask):
        return Answer(rejected=True, reason=reason.strip() or None, by=by, via=via)
    if ask.permission is not None:
        return Answer(reply=_reply(ask.permission, text), by=by, via=via)
    lines = [text] if len(ask.questions) == 1 else list(filter(None, map(str.strip, text.splitlines())))
    if len(lines) != len(ask.questions):
        raise _unclear(f"these are {len(ask.questions)} questions; write a line for each, in their order")
    answers = tuple(map(to_entries, ask.questions, lines))
    return Answer(answers=answers, by=by, via=via)


def _asked(card: Card) -> Iterator[str]:
    heading = card.heading.say(ENGLISH, show=_short)
    if card.ask.permission is not None:
        yield heading
        yield from _wanted(card)
        return
    yield f"{heading}:"
    for question in card.ask.questions:
        yield inert(question.question)
        for number, option in enumerate(question.options, 1):
            described = f": {_line(option.description)}" if option.description else ""
            yield f"{'-' if question.kind == 'number' else f'{number}.'} {_line(option.label)}{described}"


def _wanted(card: Card) -> Iterator[str]:
    for part in card.parts:
        if part.name == "commands":
            yield ENGLISH("terminal.runs")
        yield from (f"> {line}" for line in inert(part.text).split("\n"))  # marked, so that none looks like a choice
    if card.lacks_diff:
        yield ENGLISH("perm.noDiff")
    if card.cwd:
        yield ENGLISH("perm.cwd", path=_line(card.cwd))
    yield ENGLISH("terminal.tool", tool=_short(card.tool, MOST_LABEL))
    if card.claim:
        agent = _line(card.ask.origin.agent)
        yield ENGLISH("perm.says", agent=agent, text=_short(card.claim, MOST_DESCRIPTION))


def _warned(card: Card, *, within: int | None) -> list[str]:
    """What to think twice about, and what silence does."""
    warned = [f"⚠ {each}" for each in card.warnings(ENGLISH)]
    warned += [f"⚠ {ENGLISH('text.hidden')}"] if card.is_hiding(within=within) else []
    if (silence := card.silence) is not None:
        time = f"{silence.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        warned.append(
            silence.say(ENGLISH, time=time, choice=silence.choice(show=lambda text: _short(text, MOST_LABEL)))
        )
    return warned


def _how(card: Card) -> Iterator[str]:
    ask = card.ask
    if ask.permission is not None:
        for number, reply in enumerate(ask.permission.replies, 1):
            yield f"{number}. {_line(reply)}"
        yield f"Answer with a number, or with “{NO}” and a reason."
        return
    ways = []
    if any(question.options and question.kind != "number" for question in ask.questions):
        is_several = any(question.multiple for question in ask.questions)
        ways.append("with numbers, commas between them" if is_several else "with a number")
    if any(question.custom or not question.options for question in ask.questions):
        ways.append("in your own words")
    each = "" if len(ask.questions) == 1 else ", a line for each question"
    refusing = "" if _offers_no(ask) else f", or with “{NO}” and a reason"
    yield f"Answer {', or '.join(ways)}{each}{refusing}."


def _line(text: str) -> str:
    return inert(text, keep="")


def _short(text: str, limit: int) -> str:
    return cut(text, limit, t=ENGLISH)


def _offers_no(ask: Ask) -> bool:
    """Whether the word is a choice, so that it cannot stand for a refusal."""
    return any(option.label.casefold() == NO for question in ask.questions for option in question.options)


def _reply(permission: Permission, text: str) -> str:
    if not text.isdecimal():
        return text.casefold()
    if not 1 <= int(text[:9]) <= len(permission.replies):
        raise _unclear(f"there is no choice {text[:9]}")
    return permission.replies[int(text[:9]) - 1]


def to_entries(question: Question, text: str) -> tuple[str, ...]:
    """The entries of an answer to one question that somebody means who writes this: choices, or their own words.

    Raises AnswerDoesNotFit where it is neither.
    """
    said = text.strip()
    if (chosen := _choice(question, said)) is not None:
        return (chosen,)
    has_own = question.custom or not question.options
    if question.multiple:
        parts = [part.strip() for part in _BETWEEN.split(said) if part.strip()]
        several = [_choice(question, part) or part for part in parts]
        chosen_ones = [entry for entry in several if question.value_of(entry) is not None]
        if chosen_ones and (has_own or len(chosen_ones) == len(several)):
            return tuple(dict.fromkeys(several))
    if said and has_own:
        return (said,)
    raise _unclear(f"{said[:100]!r} is not a choice")


def _choice(question: Question, said: str) -> str | None:
    """The value of the option that is named by this: by its value, its label or its number."""
    folded = said.casefold()
    for option in question.options:
        if option.value.strip().casefold() == folded:
            return option.value
    same = [
        option.value for option in question.options if folded in (_folded(option.label), _folded(inert(option.label)))
    ]
    if len(same) == 1:
        return same[0]
    ordinal = None if question.kind == "number" else _ORDINAL.fullmatch(said)
    if ordinal is None or not question.options:
        return None
    number = int(ordinal[1][:9])
    if not 1 <= number <= len(question.options):
        raise _unclear(f"there is no choice {number}")
    return question.options[number - 1].value


def _folded(label: str) -> str:
    return label.strip().casefold()


def _unclear(problem: str) -> AnswerDoesNotFit:
    return AnswerDoesNotFit([{"question": None, "problem": problem}])
