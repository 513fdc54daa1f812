"""The contract of policies: a pure function that looks at an ask and returns a verdict. No clock, no I/O.

Questions and permissions are decided apart: what picks an option never grants a permission, since silence
may pick an option but never lets an agent do something.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from handraise.asks import Answer, Ask, AutoRule, Handling, Option, Question
from handraise.errors import SettingsError
from handraise.policies.matching import apply_rules, compiled, is_too_much

__all__ = [
    "Forward",
    "Policy",
    "Verdict",
    "accept_first",
    "accept_recommended",
    "auto",
    "forward",
    "policy_for",
    "reject",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Wait for a person; after `timeout` seconds give `then`. No timeout waits until somebody answers."""

    timeout: float | None = None
    then: Answer | None = None


Verdict: TypeAlias = Answer | Forward
Policy: TypeAlias = Callable[[Ask], Verdict]


def reject(ask: Ask) -> Answer:
    return _rejection(ask, by="policy:reject", reason="no person is asked here (policy: reject)")


def accept_first(ask: Ask) -> Answer:
    """The first option of every question; rejects where one has none, and every permission."""
    return _pick(ask, by="policy:accept-first", choose=lambda question: question.options[0])


def accept_recommended(ask: Ask) -> Answer:
    """The recommended option of every question, else its first."""
    return _pick(ask, by="policy:accept-recommended", choose=_recommended)


def forward(*, timeout: float | None = None, on_timeout: Policy = accept_first) -> Policy:
    """A person decides. When the time is up `on_timeout` does, which must answer by itself."""

    def policy(ask: Ask) -> Verdict:
        if timeout is None:
            return Forward()
        fallback = on_timeout(ask)
        if isinstance(fallback, Forward):
            raise SettingsError("on_timeout must decide by itself: accept-first, accept-recommended or reject")
        waited = f"no answer in {timeout:g} s"
        if fallback.rejected:
            then = _rejection(ask, by="policy:timeout", reason=waited, why=(waited, *fallback.why))
        else:
            then = Answer(
                answers=fallback.answers,
                by="policy:timeout",
                via="policy",
                why=(waited, fallback.by.removeprefix("policy:"), *fallback.why),
            )
        return Forward(timeout=timeout, then=then)

    return policy


def auto(*rules: AutoRule) -> Policy:
    """Each question is answered by the first rule that matches and fits it, else by its first option.

    Raises SettingsError for a rule whose regular expression is none, and for rules that are too long together.
    """
    if sum(len(rule.match) for rule in rules) > LONGEST_RULES:
        raise SettingsError(f"what its rules match has more than {LONGEST_RULES} characters")
    matchers = [compiled(rule.match) for rule in rules]

    def policy(ask: Ask) -> Verdict:
        if ask.permission is not None:
            return _rejection(ask, by="policy:auto", reason="rules for questions grant no permission")
        if is_too_much(ask, matchers):
            return _rejection(ask, by="policy:auto", reason="its texts are too long for this many rules")
        answers: list[tuple[str, ...]] = []
        why: list[str] = []
        for question in ask.questions:
            chosen, said = apply_rules(question, rules, matchers)
            why += said
            if chosen is None and question.options:
                chosen = (question.options[0].value,)
                why.append(f"{question.title!r}: no rule, first option")
            if chosen is None:
                why.append(f"{question.title!r}: no rule and no option")
                reason = f"no rule answers {question.title!r} and it has no options"
                return _rejection(ask, by="policy:auto", reason=reason, why=tuple(why))
            answers.append(chosen)
        return Answer(answers=tuple(answers), by="policy:auto", via="policy", why=tuple(why))

    return policy


LONGEST_RULES = 100_000  # characters of what all rules of a policy match; to read them takes 10 ms
LONGEST_KEPT = 10_000  # characters of a policy that is remembered: those of asks come from anybody who may ask
_NAMED: dict[str, Policy] = {
    "reject": reject,
    "accept-first": accept_first,
    "accept-recommended": accept_recommended,
}


def policy_for(handling: Handling) -> Policy:
    """The one policy that a handling means for questions and permissions alike."""
    rules = handling.question_policy if isinstance(handling.question_policy, tuple) else ()
    size = sum(len(rule.match) + sum(map(len, rule.answers)) for rule in rules)
    return _kept_policy(handling) if size <= LONGEST_KEPT else _policy(handling)


@lru_cache(maxsize=256)
def _kept_policy(handling: Handling) -> Policy:
    return _policy(handling)


def _policy(handling: Handling) -> Policy:
    on_timeout = _NAMED[handling.on_timeout]
    forwarded = forward(timeout=handling.question_timeout, on_timeout=on_timeout)
    if isinstance(handling.question_policy, tuple):
        for_questions = auto(*handling.question_policy)
    else:
        for_questions = _NAMED.get(handling.question_policy, forwarded)
    for_permissions = reject if handling.permission_policy == "reject" else forwarded

    def policy(ask: Ask) -> Verdict:
        return for_permissions(ask) if ask.permission is not None else for_questions(ask)

    return policy


def _recommended(question: Question) -> Option:
    return next((option for option in question.options if option.recommended), question.options[0])


def _pick(ask: Ask, *, by: str, choose: Callable[[Question], Option]) -> Answer:
    if ask.permission is not None:
        return _rejection(ask, by=by, reason="no policy but a rule or a person grants a permission")
    without = [question for question in ask.questions if not question.options]
    if without:
        return _rejection(ask, by=by, reason=f"{without[0].title!r} has no options to pick from")
    return Answer(answers=tuple((choose(question).value,) for question in ask.questions), by=by, via="policy")


def _rejection(ask: Ask, *, by: str, reason: str, why: tuple[str, ...] = ()) -> Answer:
    reply = "reject" if ask.permission is not None else None
    return Answer(rejected=True, reply=reply, reason=reason, by=by, via="policy", why=why)
