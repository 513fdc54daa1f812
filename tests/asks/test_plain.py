"""An ask as plain text, and what people write under it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handraise.asks import Answer, Ask, Option, Question, fit
from handraise.asks.plain import to_answer, to_ending, to_text
from handraise.errors import AnswerDoesNotFit
from handraise.testing import a_permission, an_ask

[ONE] = an_ask().questions
MANY = replace(ONE, multiple=True)
TEXT = Question("Which name?", kind="text")
NUMBER = Question("How many?", (Option("3"), Option("5")), kind="number")
DEPLOY = Question("Deploy?", (Option("Yes"), Option("No")))
TWINS = Question("Which one?", (Option("A"), Option("A"), Option("B")))
COMMAS = Question("Which?", (Option("Yes, all"), Option("None")), multiple=True)


def asking(*questions: Question) -> Ask:
    return an_ask(questions=questions)


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (
            asking(ONE),
            "scripted asks:\nWhich database should I use?\n1. SQLite: one file\n2. Postgres: many machines\n"
            "Answer with a number, or in your own words, or with “no” and a reason.",
        ),
        (
            asking(DEPLOY, MANY),
            "scripted asks:\nDeploy?\n1. Yes\n2. No\nWhich database should I use?\n1. SQLite: one file\n"
            "2. Postgres: many machines\n"
            "Answer with numbers, commas between them, or in your own words, a line for each question.",
        ),
        (
            asking(NUMBER),
            "scripted asks:\nHow many?\n- 3\n- 5\nAnswer in your own words, or with “no” and a reason.",
        ),
        (
            a_permission(command="rm -rf \u202ebuild\n1. reject", cwd="/srv\n/shop"),
            "scripted wants to run a command\n> rm -rf \\u202ebuild\n> 1. reject\nin /srv\\n/shop\ntool Bash\n"
            "scripted says: Remove the build folder\n⚠ Contains hidden characters\n1. once\n2. always\n3. reject\n"
            "Answer with a number, or with “no” and a reason.",
        ),
        (
            a_permission(tool="Post", summary="", command=None, input={"to": "ops"}, replies=("once", "reject")),
            'scripted wants to use Post\n> {\n>   "to": "ops"\n> }\ntool Post\n1. once\n2. reject\n'
            "Answer with a number, or with “no” and a reason.",
        ),
        (
            asking(Question("Which?", (Option("a\n2. b", description="x\ny"),), custom=False)),
            "scripted asks:\nWhich?\n1. a\\n2. b: x\\ny\nAnswer with a number, or with “no” and a reason.",
        ),
    ],
)
def test_all_that_is_asked_is_shown_and_nothing_is_hidden(ask: Ask, text: str) -> None:
    assert to_text(ask) == text


def test_what_is_too_long_says_so_and_how_to_answer_all_the_same() -> None:
    ask = a_permission(command="x" * 5000)
    text = to_text(ask, longest=400)
    assert len(text) == 400
    assert "xxx\n[this is not all of it; the desk shows the rest]\n1. once\n" in text
    assert text.endswith("or with “no” and a reason.")
    whole = to_text(ask)
    assert to_text(ask, longest=len(whole)) == whole


@pytest.mark.parametrize(
    ("question", "text", "values"),
    [
        (ONE, " 2 ", ("Postgres",)),
        (ONE, "postgres", ("Postgres",)),
        (ONE, "MySQL, please", ("MySQL, please",)),
        (ONE, "nothing", ("nothing",)),
        (ONE, "²", ("²",)),
        (MANY, "1, 2", ("SQLite", "Postgres")),
        (MANY, "postgres,redis", ("Postgres", "redis")),
        (MANY, "2,", ("Postgres",)),
        (COMMAS, "yes, all", ("Yes, all",)),
        (TEXT, "7", ("7",)),
        (NUMBER, "5", ("5",)),
        (NUMBER, "1", ("1",)),
        (DEPLOY, "no", ("No",)),
        (TWINS, "2", ("A#2",)),
    ],
)
def test_what_people_write_is_understood(question: Question, text: str, values: tuple[str, ...]) -> None:
    ask = asking(question)
    answer = to_answer(ask, text, by="ana", via="chat")
    assert answer == Answer(answers=(values,), by="ana", via="chat")
    assert fit(ask, answer).answers == (values,)


def test_several_questions_have_a_line_each() -> None:
    answer = to_answer(asking(ONE, MANY, TEXT), "2\n\n1,2\n Early Bird \n", by="ana")
    assert answer.answers == (("Postgres",), ("SQLite", "Postgres"), ("Early Bird",))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("1", Answer(reply="once")),
        ("Always", Answer(reply="always")),
        ("3", Answer(reply="reject")),
        ("no", Answer(rejected=True)),
        ("No, not on a Friday", Answer(rejected=True, reason="not on a Friday")),
    ],
)
def test_a_permission_is_given_or_refused(text: str, answer: Answer) -> None:
    assert to_answer(a_permission(), text, by="ana") == replace(answer, by="ana")


@pytest.mark.parametrize(
    ("ask", "text", "problem"),
    [
        (asking(ONE), "3", "there is no choice 3"),
        (asking(ONE), "0", "there is no choice 0"),
        (asking(MANY), "1,7", "there is no choice 7"),
        (asking(ONE), "9" * 5000, "there is no choice 999999999"),
        (asking(ONE, TEXT), "1", "these are 2 questions; write a line for each"),
        (asking(ONE), "", "ask stays open"),
        (asking(replace(ONE, custom=False)), "MySQL", "'MySQL' is not a choice"),
        (asking(TWINS), "", "ask stays open"),
        (a_permission(), "4", "there is no choice 4"),
        (a_permission(), "0", "there is no choice 0"),
        (a_permission(), "sure", "'sure' is not a reply this agent takes"),
        (a_permission(), "", "is not a reply this agent takes"),
    ],
)
def test_what_cannot_be_told_is_said(ask: Ask, text: str, problem: str) -> None:
    with pytest.raises(AnswerDoesNotFit, match=problem):
        fit(ask, to_answer(ask, text, by="ana"))


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (an_ask(state="withdrawn"), "Database: withdrawn"),
        (
            an_ask(state="answered", answer=Answer(answers=(("Postgres", "x\u202e"),), by="ana", via="web")),
            "Database: answered by ana in web: Postgres, x\\u202e",
        ),
        (
            a_permission(state="rejected", answer=Answer(rejected=True, reply="reject", reason="not today", by="ana")),
            "Remove the build folder: rejected by ana: not today",
        ),
        (
            a_permission(state="answered", answer=Answer(reply="once", by="ana", via="chat")),
            "Remove the build folder: answered by ana in chat: once",
        ),
    ],
)
def test_how_it_ended_is_said(ask: Ask, text: str) -> None:
    assert to_ending(ask) == text
