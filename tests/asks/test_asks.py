"""The records of an ask: what is refused, and which answer fits what was asked (M1, M2, M5, M9)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from handraise.asks import (
    LONGEST_NAME,
    LONGEST_TEXT,
    MOST_LEVELS,
    MOST_OPTIONS,
    MOST_QUESTIONS,
    Answer,
    Ask,
    Option,
    Permission,
    Question,
    Scope,
    bound,
    fit,
)
from handraise.errors import AnswerDoesNotFit, AskDoesNotFit
from handraise.testing import a_permission, an_ask

AB = (Option("a"), Option("b"))


def ask_of(*questions: Question) -> Ask:
    return an_ask(questions=questions)


def said(*answers: Any, **fields: Any) -> Answer:
    return Answer(answers=tuple(tuple(values) for values in answers), **fields)


# Records ----------------------------------------------------------------------------------------------------


def test_the_value_of_an_option_is_its_label_unless_it_has_one() -> None:
    assert [option.value for option in (Option("Yes"), Option("Yes", value="y"))] == ["Yes", "y"]


@pytest.mark.parametrize("label", ["SQLite (Recommended)", "SQLite (recommended)  "])
def test_a_label_that_says_so_marks_its_option_as_recommended(label: str) -> None:
    assert Option(label).recommended
    assert not Option("SQLite").recommended
    assert Option("SQLite", recommended=True).recommended


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (["a", "a"], ["a", "a#2"]),
        (["a", "a", "a"], ["a", "a#2", "a#3"]),
        (["a", "a", "a#2"], ["a", "a#3", "a#2"]),
        (["a#2", "a", "a"], ["a#2", "a", "a#3"]),
        (["a", "a", "b", "b"], ["a", "a#2", "b", "b#2"]),
        (["a#2", "a#2", "a", "a"], ["a#2", "a#2#2", "a", "a#3"]),
    ],
)
def test_options_that_repeat_get_values_of_their_own(given: list[str], values: list[str]) -> None:
    question = Question("Which?", tuple(Option(label) for label in given), custom=False)
    assert [option.value for option in question.options] == values
    assert [question.label_of(value) for value in values] == given
    assert fit(ask_of(question), said([values[1]])).values == (values[1],)


def test_very_many_options_that_repeat_are_numbered_in_no_time() -> None:
    started = time.monotonic()
    question = Question("Which?", (Option("a"),) * 50_000)
    assert question.options[-1].value == "a#50000"
    assert time.monotonic() - started < 5


def test_a_title_names_the_ask() -> None:
    assert an_ask().title == "Database"
    assert ask_of(Question("Why?"), Question("How?", header="Way")).title == "Why?, Way"
    assert a_permission().title == "Remove the build folder"
    assert a_permission(summary="").title == "rm -rf build"
    assert a_permission(summary="", command=None).title == "Bash"


def test_an_answer_has_short_ways_to_its_values() -> None:
    answer = said(["x", "y"], ["z"])
    assert (answer.values, answer.value) == (("x", "y"), "x")
    assert (Answer(reply="once").values, Answer(reply="once").value) == ((), "once")
    assert Answer(by="policy:timeout").by_policy
    assert not Answer(by="ana").by_policy


def test_two_answers_are_the_same_if_they_say_the_same_to_the_agent() -> None:
    assert said(["a"], by="ana", reason="so").same_as(said(["a"], by="bob"))
    assert not said(["a"]).same_as(said(["b"]))
    assert not Answer(reply="once").same_as(Answer(reply="always"))
    assert not said(["a"]).same_as(Answer(rejected=True))


# What is refused (M9) ---------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    inner: Any = "deep"
    for _ in range(depth):
        inner = {"in": inner}
    return inner


LONG = "x" * (LONGEST_TEXT + 1)
REFUSED = {
    "no id": (an_ask(id=""), "id"),
    "a long id": (an_ask(id="x" * (LONGEST_NAME + 1)), "id"),
    "a line break in an id": (an_ask(id="a\nb"), "id"),
    "a lone surrogate in an id": (an_ask(id="\ud800"), "id"),
    "no agent": (an_ask(agent=""), "origin.agent"),
    "no session": (an_ask(session=""), "origin.session"),
    "a hidden character in a run": (an_ask(run="r\u202e1"), "origin.run"),
    "a long step": (an_ask(step="x" * (LONGEST_NAME + 1)), "origin.step"),
    "a long cwd": (an_ask(cwd=LONG), "origin.cwd"),
    "nothing asked": (an_ask(questions=()), "questions"),
    "questions and a permission": (a_permission(questions=an_ask().questions), "questions"),
    "too many questions": (ask_of(*[Question("q")] * (MOST_QUESTIONS + 1)), "questions"),
    "a question without text": (ask_of(Question("", AB)), "questions.0.question"),
    "a long question": (ask_of(Question("q"), Question(LONG)), "questions.1.question"),
    "a long header": (ask_of(Question("q", header=LONG)), "questions.0.header"),
    "too many options": (ask_of(Question("q", (Option("a"),) * (MOST_OPTIONS + 1))), "questions.0.options"),
    "an option without a label": (ask_of(Question("q", (Option(""),))), "questions.0.options"),
    "a long preview": (ask_of(Question("q", (Option("a", preview=LONG),))), "questions.0.options.0.preview"),
    "a question nobody could answer": (ask_of(Question("q", custom=False)), "questions.0.options"),
    "a permission without a tool": (a_permission(tool=""), "permission.tool"),
    "a permission without replies": (a_permission(replies=()), "permission.replies"),
    "a long command": (a_permission(command=LONG), "permission.command"),
    "an input nested too deep": (a_permission(input=nested(MOST_LEVELS)), "permission.input"),
    "an unknown field nested too deep": (an_ask(extra={"odd": [nested(MOST_LEVELS - 2)]}), "extra"),
    "an option's unknown field nested too deep": (
        ask_of(Question("q", (Option("a", extra=nested(MOST_LEVELS)),))),
        "questions.0.options.0.extra",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_M9_what_no_surface_could_show_is_refused(what: str) -> None:
    ask, at = REFUSED[what]
    with pytest.raises(AskDoesNotFit) as refused:
        bound(ask)
    assert at in [problem["at"] for problem in refused.value.fields["problems"]]


TAKEN = {
    "one choice": an_ask(),
    "free text only": ask_of(Question("Which name?")),
    "a number": ask_of(Question("How many?", kind="number", custom=False)),
    "the most questions": ask_of(*[Question("q", AB)] * MOST_QUESTIONS),
    "the most options": ask_of(Question("q", tuple(Option(str(number)) for number in range(MOST_OPTIONS)))),
    "the longest text": ask_of(Question("x" * LONGEST_TEXT, header="x" * LONGEST_TEXT)),
    "hidden characters in a text": ask_of(Question("a\u202eb\x00\x1b[2J", (Option("\u200b"),))),
    "a permission": a_permission(),
    "a plan": an_ask(questions=(), permission=Permission(tool="ExitPlanMode", kind="plan", summary="The plan")),
    "a long diff": a_permission(diff=LONG),
    "an input nested deep": a_permission(input=nested(MOST_LEVELS - 1)),
    "every part of an origin": an_ask(run="r", step="s", parent="p", cwd="/c", machine="m"),
}


@pytest.mark.parametrize("what", TAKEN)
def test_M9_what_is_within_the_limits_is_taken(what: str) -> None:
    bound(TAKEN[what])


def test_every_problem_of_an_ask_is_said() -> None:
    with pytest.raises(AskDoesNotFit) as refused:
        bound(replace(ask_of(Question(""), Question("q", custom=False)), id=""))
    places = [problem["at"] for problem in refused.value.fields["problems"]]
    assert places == ["id", "questions.0.question", "questions.1.options"]


# Answers to questions (M1, M5) ------------------------------------------------------------------------------

YES = Question("Sure?", (Option("Yes", value="y"), Option("No", value="n")), custom=False)
SWAPPED = Question("Which?", (Option("a", value="b"), Option("b", value="a")), custom=False)
MANY = Question("Which ones?", AB, multiple=True)
NAME = Question("Which name?")
NUMBER = Question("How many?", kind="number")

FITS: dict[str, tuple[tuple[Question, ...], Any, Any]] = {
    "a value": ((YES,), [["y"]], (("y",),)),
    "a label": ((YES,), [["No"]], (("n",),)),
    "a value before a label": ((SWAPPED,), [["a"]], (("a",),)),
    "own text": ((Question("Which?", AB),), [["c"]], (("c",),)),
    "own text without options": ((NAME,), [["handraise"]], (("handraise",),)),
    "a text question without custom": ((replace(NAME, kind="text", custom=False),), [["x"]], (("x",),)),
    "several choices": ((MANY,), [["b", "a"]], (("b", "a"),)),
    "a choice and own text": ((MANY,), [["b", "z"]], (("b", "z"),)),
    "own text before choices": ((MANY,), [["z", "b", "a"]], (("b", "a", "z"),)),
    "a skipped question beside an answered one": ((YES, NAME), [[], ["x"]], ((), ("x",))),
    "a number": ((NUMBER,), [["12"]], (("12",),)),
    "a number with a point": ((NUMBER,), [["-1.5e3"]], (("-1.5e3",),)),
    "an option of a number": ((Question("How many?", (Option("all"),), kind="number"),), [["all"]], (("all",),)),
    "text with hidden characters": ((NAME,), [["\u202ex"]], (("\u202ex",),)),
}


@pytest.mark.parametrize("what", FITS)
def test_M5_an_answer_that_fits_is_stored_as_values(what: str) -> None:
    questions, given, stored = FITS[what]
    assert fit(ask_of(*questions), said(*given)).answers == stored


MISFITS: dict[str, tuple[tuple[Question, ...], Answer, list[tuple[int | None, str]]]] = {
    "no answers": ((YES,), Answer(), [(None, "give `answers`")]),
    "a reply": ((YES,), Answer(reply="once"), [(None, "give `answers`")]),
    "a reply to reject": ((YES,), Answer(reply="reject"), [(None, "give `answers`")]),
    "an edited input": ((YES,), said(["y"], input={}), [(None, "give `answers`")]),
    "too few lists": ((YES, YES), said(["y"]), [(None, "2 lists of values expected")]),
    "too many lists": ((YES,), said(["y"], ["y"]), [(None, "one list of values expected")]),
    "two values": ((YES,), said(["y", "n"]), [(0, "one value only; got 2")]),
    "not a choice": ((YES,), said(["maybe"]), [(0, "the choices are: 'y', 'n'")]),
    "the same choice twice": ((MANY,), said(["a", "a"]), [(0, "'a' is given twice")]),
    "the same choice as value and label": (
        (replace(YES, multiple=True),),
        said(["y", "Yes"]),
        [(0, "'y' is given twice")],
    ),
    "an empty text": ((NAME,), said([" "]), [(0, "an empty text is no answer")]),
    "nothing at all": ((YES, NAME), said([], []), [(0, "nothing is answered")]),
    "a text for a number": ((NUMBER,), said(["many"]), [(0, "is not a number")]),
    "NaN": ((NUMBER,), said(["nan"]), [(0, "is not a number")]),
    "infinity": ((NUMBER,), said(["-inf"]), [(0, "is not a number")]),
    "a number beyond every limit": ((NUMBER,), said(["1e999"]), [(0, "is not a number")]),
    "a number only Python reads": ((NUMBER,), said(["1_000"]), [(0, "is not a number")]),
    "a number in other digits": ((NUMBER,), said(["٣"]), [(0, "is not a number")]),
    "a note too few": ((YES, YES), said(["y"], ["y"], notes=("n",)), [(None, "one note")]),
    "too many values": ((MANY,), said([str(number) for number in range(MOST_OPTIONS + 1)]), [(0, "at most")]),
    "two questions wrong": ((YES, NUMBER), said(["x"], ["x"]), [(0, "not a choice"), (1, "not a number")]),
}


@pytest.mark.parametrize("what", MISFITS)
def test_M5_what_does_not_fit_is_said_per_question(what: str) -> None:
    questions, answer, expected = MISFITS[what]
    with pytest.raises(AnswerDoesNotFit) as misfit:
        fit(ask_of(*questions), answer)
    problems = misfit.value.problems
    assert [problem["question"] for problem in problems] == [question for question, _ in expected]
    for problem, (_, words) in zip(problems, expected, strict=True):
        assert words in problem["problem"]


def test_notes_and_who_answered_are_kept() -> None:
    answer = said(["y"], ["x"], notes=(None, "as we said"), by="ana", via="cli")
    assert fit(ask_of(YES, NAME), answer) == answer


@pytest.mark.parametrize("ask", [an_ask(), ask_of(NAME), a_permission(), a_permission(replies=("once",))])
def test_every_ask_can_be_rejected_with_a_reason(ask: Ask) -> None:
    fitted = fit(ask, said(["y"], rejected=True, reason="not now", scope="session", by="ana"))
    assert (fitted.rejected, fitted.reason, fitted.by) == (True, "not now", "ana")
    assert (fitted.answers, fitted.scope) == (None, None)
    assert fitted.reply == ("reject" if ask.permission else None)


# Replies to permissions (M2) --------------------------------------------------------------------------------

SCOPES = (Scope(id="session", patterns=("git *", "git push")), Scope(id="project", patterns=("npm *",)))
WIDE = a_permission(scopes=SCOPES, editable=True, input={"command": "git push"})

REPLIES = {
    "once": Answer(reply="once"),
    "always": Answer(reply="always"),
    "always with a scope": Answer(reply="always", scope="project"),
    "always with fewer patterns": Answer(reply="always", scope="session", patterns=("git push",)),
    "always with no pattern": Answer(reply="always", scope="session", patterns=()),
    "always with patterns of any scope": Answer(reply="always", patterns=("git *", "npm *")),
    "an edited input": Answer(reply="once", input={"command": "git push --dry-run"}),
    "an input edited away": Answer(reply="once", input={}),
}


@pytest.mark.parametrize("what", REPLIES)
def test_M2_a_reply_the_agent_takes_fits(what: str) -> None:
    assert fit(WIDE, REPLIES[what]) == REPLIES[what]


PLAN = an_ask(questions=(), permission=Permission(tool="ExitPlanMode", kind="plan", replies=("once", "reject")))
WRONG_REPLIES = {
    "no reply": (WIDE, Answer(), "give `reply`, one of: once, always, reject"),
    "answers": (WIDE, said(["once"]), "give `reply`"),
    "answers beside a reply": (WIDE, said(["x"], reply="once"), "give `reply`"),
    "another word": (WIDE, Answer(reply="yes"), "it takes: once, always, reject"),
    "always where it takes once": (PLAN, Answer(reply="always"), "it takes: once, reject"),
    "an edited input it does not take": (PLAN, Answer(reply="once", input={}), "does not take an edited input"),
    "an input nested too deep": (WIDE, Answer(reply="once", input=nested(MOST_LEVELS)), "nested deeper"),
    "a scope for once": (WIDE, Answer(reply="once", scope="session"), "`always` only"),
    "patterns for once": (WIDE, Answer(reply="once", patterns=()), "`always` only"),
    "a scope it does not offer": (WIDE, Answer(reply="always", scope="world"), "it offers: session, project"),
    "a pattern it does not offer": (WIDE, Answer(reply="always", patterns=("*",)), "not widened"),
    "a pattern of another scope": (WIDE, Answer(reply="always", scope="session", patterns=("npm *",)), "not widened"),
}


@pytest.mark.parametrize("what", WRONG_REPLIES)
def test_M2_a_reply_the_agent_does_not_take_is_refused(what: str) -> None:
    ask, answer, words = WRONG_REPLIES[what]
    with pytest.raises(AnswerDoesNotFit, match="the ask stays open") as misfit:
        fit(ask, answer)
    assert words in misfit.value.problems[0]["problem"]


def test_a_plan_is_approved_once_or_rejected_with_what_to_change() -> None:
    assert fit(PLAN, Answer(reply="once")).reply == "once"
    assert fit(PLAN, Answer(reply="reject", reason="smaller steps")).rejected
