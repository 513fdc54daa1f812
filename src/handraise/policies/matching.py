"""Rules that answer questions by their text. People write the patterns, so they run in linear time (RE2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from handraise.asks import Answer, Ask, AutoRule, Origin, Question, fit
from handraise.errors import AnswerDoesNotFit, SettingsError

__all__ = ["Matcher", "apply_rules", "compiled", "is_too_much"]


LONGEST_KEPT = 1_000  # characters of a pattern that is remembered
LARGEST = 1 << 18  # bytes that a regular expression may take; RE2 allows 8 MB unless told
MOST_WORK = 5_000_000  # steps for one ask; RE2 takes up to 6 ns for each
PLAIN = 1  # steps a character where a part is looked for


class Matcher(NamedTuple):
    """What a rule looks for. `weight` is the most steps that one character of a text takes."""

    weight: int
    fits: Callable[[str], bool]


def compiled(match: str) -> Matcher:
    """Raises SettingsError where `re:` is followed by no regular expression."""
    return _kept(match) if len(match) <= LONGEST_KEPT else _compiled(match)


@lru_cache(maxsize=256)
def _kept(match: str) -> Matcher:
    return _compiled(match)


def _compiled(match: str) -> Matcher:
    if not match.startswith("re:"):
        part = match.casefold()
        return Matcher(PLAIN, lambda text: part in text.casefold())

    import re2  # only people who write patterns pay for its import

    options = re2.Options()
    options.log_errors = False
    options.max_mem = LARGEST
    try:
        pattern = re2.compile(match.removeprefix("re:"), options)
    except re2.error as problem:
        said = problem.args[0] if problem.args else problem
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise SettingsError(f"the rule {match!r} is not a regular expression: {text}") from None
    return Matcher(pattern.programsize, lambda text: pattern.search(text) is not None)


def is_too_much(ask: Ask, matchers: Sequence[Matcher]) -> bool:
    """Whether to compare each of its texts with each of these could hold up everybody else."""
    characters = sum(len(question.header) + len(question.question) for question in ask.questions)
    return characters * sum(matcher.weight for matcher in matchers) > MOST_WORK


def apply_rules(
    question: Question, rules: Sequence[AutoRule], matchers: Sequence[Matcher]
) -> tuple[tuple[str, ...] | None, list[str]]:
    """The values of the first rule that matches and fits, or None; and what to say about it in the trace."""
    said: list[str] = []
    alone = Ask(id="-", questions=(question,), origin=Origin(agent="-", session="-"))
    for number, (rule, matcher) in enumerate(zip(rules, matchers, strict=True), start=1):
        if not any(text and matcher.fits(text) for text in (question.header, question.question)):
            continue
        name = f"rule {number} ({rule.match!r})"
        try:
            fitted = fit(alone, Answer(answers=(rule.answers,)))
        except AnswerDoesNotFit as misfit:
            said.append(f"{question.title!r}: {name} skipped, {misfit.problems[0]['problem']}")
            continue
        said.append(f"{question.title!r}: {name}")
        return fitted.values, said
    return None, said
