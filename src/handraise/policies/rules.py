"""Rules that answer questions by their text. People write the patterns, so they run in linear time (RE2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from handraise.asks import Answer, Ask, Origin, Question, fit
from handraise.errors import AnswerDoesNotFit, SettingsError

__all__ = ["AutoRule", "apply_rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRule:
    """`match` is a part of the header or the text, in any case, or `re:` and a regular expression (RE2 syntax)."""

    match: str
    answers: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.match.startswith("re:"):
            _compiled(self.match.removeprefix("re:"))

    def matches(self, question: Question) -> bool:
        texts = (question.header, question.question)
        if self.match.startswith("re:"):
            pattern = _compiled(self.match.removeprefix("re:"))
            return any(pattern.search(text) is not None for text in texts)
        return any(self.match.casefold() in text.casefold() for text in texts)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    import re2  # only people who write patterns pay for its import

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as problem:
        said = problem.args[0] if problem.args else problem
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise SettingsError(f"the rule 're:{pattern}' is not a regular expression: {text}") from None


def apply_rules(question: Question, rules: Sequence[AutoRule]) -> tuple[tuple[str, ...] | None, list[str]]:
    """The values of the first rule that matches and fits, or None; and what to say about it in the trace."""
    said: list[str] = []
    alone = Ask(id="-", questions=(question,), origin=Origin(agent="-", session="-"))
    for number, rule in enumerate(rules, start=1):
        if not rule.matches(question):
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
