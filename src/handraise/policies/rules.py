"""Rules that answer questions by their text. People write the patterns, so they run in linear time (RE2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from handraise.asks import Answer, Ask, AutoRule, Origin, Question, fit
from handraise.errors import AnswerDoesNotFit, SettingsError

__all__ = ["apply_rules", "compiled"]


@lru_cache(maxsize=1024)
def compiled(match: str) -> Callable[[str], bool]:
    """Whether a text matches. Raises SettingsError where `re:` is followed by no regular expression."""
    if not match.startswith("re:"):
        part = match.casefold()
        return lambda text: part in text.casefold()

    import re2  # only people who write patterns pay for its import

    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(match.removeprefix("re:"), options)
    except re2.error as problem:
        said = problem.args[0] if problem.args else problem
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise SettingsError(f"the rule {match!r} is not a regular expression: {text}") from None
    return lambda text: pattern.search(text) is not None


def apply_rules(question: Question, rules: Sequence[AutoRule]) -> tuple[tuple[str, ...] | None, list[str]]:
    """The values of the first rule that matches and fits, or None; and what to say about it in the trace."""
    said: list[str] = []
    alone = Ask(id="-", questions=(question,), origin=Origin(agent="-", session="-"))
    for number, rule in enumerate(rules, start=1):
        matches = compiled(rule.match)
        if not any(text and matches(text) for text in (question.header, question.question)):
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
