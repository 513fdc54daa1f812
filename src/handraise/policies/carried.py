"""Answers that outlive the agent who got them: a step that begins again elsewhere asks nobody a second time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from handraise.asks import Answer, Ask

__all__ = ["BY", "carried"]

BY = "policy:carried"


def carried(ask: Ask, asks: Sequence[Ask], *, lost: Collection[str]) -> Answer | None:
    """What a person said to the same questions in an attempt that was lost; None where nobody did.

    `asks` are those of the run, the oldest first, and `lost` the sessions of the attempts. An agent that asks the same
    twice gets the answers in the order in which they were given.
    """
    same = [each for each in asks if _is_same(each, ask)]
    number = sum(each.origin.session == ask.origin.session and each.id != ask.id for each in same)
    answers: dict[str, list[Answer]] = {}
    for each in same:
        attempt = each.origin.session if each.origin.session in lost else each.origin.parent
        if attempt in lost and attempt is not None and each.answer is not None and _counts(each.answer):
            answers.setdefault(attempt, []).append(each.answer)
    for given in reversed(answers.values()):
        if number < len(given):
            answer = given[number]
            why = answer.why if answer.by == BY else (f"{answer.by or 'somebody'} answered this before",)
            return replace(answer, by=BY, via="policy", at=None, why=why)
    return None


def _is_same(one: Ask, other: Ask) -> bool:
    return one.permission is None and one.questions == other.questions and one.origin.step == other.origin.step


def _counts(answer: Answer) -> bool:
    """What policy decided, it decides again."""
    return not answer.by_policy or answer.by == BY
