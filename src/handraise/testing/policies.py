"""What every policy must hold, on a table of asks: pure, fitting, and never a grant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from handraise.asks import Answer, Ask, Option, Permission, Question, fit
from handraise.errors import AnswerDoesNotFit
from handraise.policies import Forward, Policy, Verdict
from handraise.testing.cases import Report, run_cases
from handraise.testing.samples import a_permission, an_ask

__all__ = ["check_policy"]

_AB = (Option("a"), Option("b"))

SAMPLES: dict[str, Ask] = {
    "one choice": an_ask(),
    "a recommended choice": an_ask(questions=(Question("Which?", (Option("a"), Option("b (Recommended)"))),)),
    "several questions": an_ask(questions=(Question("One?", _AB), Question("Two?", _AB, multiple=True))),
    "choices only": an_ask(questions=(Question("Which?", _AB, custom=False),)),
    "values that are not the labels": an_ask(questions=(Question("Which?", (Option("Yes", value="y"),)),)),
    "labels that repeat": an_ask(questions=(Question("Which?", (Option("a"), Option("a")), custom=False),)),
    "text only": an_ask(questions=(Question("Which name?"),)),
    "a number": an_ask(questions=(Question("How many?", kind="number"),)),
    "a number to choose": an_ask(questions=(Question("How many?", (Option("1"), Option("2")), kind="number"),)),
    "text beside a choice": an_ask(questions=(Question("Which?", _AB), Question("Why?"))),
    "fifty questions": an_ask(questions=(Question("Which?", _AB),) * 50),
    "a permission": a_permission(),
    "a permission without always": a_permission(replies=("once", "reject")),
    "a permission that can be edited": a_permission(editable=True, input={"command": "rm -rf build"}),
    "a permission that takes yes only": a_permission(replies=("once",)),
    "a plan": an_ask(questions=(), permission=Permission(tool="ExitPlanMode", kind="plan", summary="The plan")),
}


async def check_policy(policy: Policy) -> Report:
    """Raises AssertionError with every case that failed, and in it the asks for which it did."""

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Policy]:
        yield policy

    cases = (
        it_returns_a_verdict,
        it_says_the_same_twice,
        it_grants_no_permission,
        what_it_answers_fits,
        it_says_that_no_person_decided,
        a_timeout_has_an_answer,
    )
    return await run_cases("check_policy", cases, fresh, cannot={})


async def it_returns_a_verdict(policy: Policy) -> None:
    for name, ask in SAMPLES.items():
        verdict: object = policy(ask)
        assert isinstance(verdict, Answer | Forward), f"{name}: {verdict!r} is neither an Answer nor a Forward"


async def it_says_the_same_twice(policy: Policy) -> None:
    for name, ask in SAMPLES.items():
        first, second = policy(ask), policy(ask)
        assert first == second, f"{name}: first {first!r}, then {second!r}"


async def it_grants_no_permission(policy: Policy) -> None:
    for name, ask in SAMPLES.items():
        answer = _answer(policy(ask))
        if ask.permission is not None and answer is not None:
            assert answer.rejected, f"{name}: granted with {answer!r}; only a person or a permission rule may"


async def what_it_answers_fits(policy: Policy) -> None:
    for name, ask in SAMPLES.items():
        answer = _answer(policy(ask))
        if answer is None:
            continue
        try:
            fitted = fit(ask, answer)
        except AnswerDoesNotFit as misfit:
            raise AssertionError(f"{name}: {misfit}") from misfit
        assert fitted == answer, f"{name}: {answer!r} is not in the form that is stored: {fitted!r}"


async def it_says_that_no_person_decided(policy: Policy) -> None:
    for name, ask in SAMPLES.items():
        answer = _answer(policy(ask))
        if answer is not None:
            assert answer.by_policy, f"{name}: `by` is {answer.by!r}; it begins with 'policy:'"


async def a_timeout_has_an_answer(policy: Policy) -> None:
    for name, ask in SAMPLES.items():
        verdict = policy(ask)
        if isinstance(verdict, Forward) and verdict.timeout is not None:
            assert verdict.timeout > 0, f"{name}: a timeout of {verdict.timeout} s lets nobody answer"
            assert verdict.then is not None, f"{name}: nothing is said about what happens after {verdict.timeout} s"


def _answer(verdict: Verdict) -> Answer | None:
    return verdict.then if isinstance(verdict, Forward) else verdict
