"""Forms of MCP servers (A2, A7): a schema becomes questions, and answers become content of its types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handraise.asks import Answer, Ask, Option, Origin, bound, fit
from handraise.asks.forms import to_content, to_questions, to_visit
from handraise.errors import AnswerDoesNotFit, AskDoesNotFit


def a_schema(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def filled_in(schema: dict[str, Any], *answers: list[str]) -> dict[str, Any]:
    """The content after the answers went through a desk, which knows nothing of forms."""
    ask = Ask(
        id="form", questions=to_questions(schema, message="Please fill in"), origin=Origin(agent="a", session="s")
    )
    bound(ask)
    answer = fit(ask, Answer(answers=tuple(map(tuple, answers))))
    assert answer.answers is not None
    return to_content(ask.questions, answer.answers)


def test_each_property_is_a_question_and_the_first_carries_the_message() -> None:
    schema = a_schema(
        ("colour",),
        colour={"type": "string", "title": "Colour", "description": "any of these", "enum": ["red", "green"]},
        why={"type": "string"},
        count={"type": "integer", "title": "How many"},
    )
    colour, why, count = to_questions(schema, message="For the wall", order=["colour", "gone", "why"])
    assert (colour.header, colour.question) == ("Colour", "For the wall\nany of these")
    assert [option.value for option in colour.options] == ["red", "green"]
    assert not colour.custom and not colour.multiple
    assert (why.header, why.question, why.kind, why.custom) == ("why", "why (optional)", "text", True)
    assert (count.header, count.kind) == ("How many", "number")


def test_a_single_property_without_words_of_its_own_is_asked_in_those_of_the_message() -> None:
    [question] = to_questions(a_schema(("name",), name={"type": "string"}), message="What is it called?")
    assert question.question == "What is it called?"


def test_the_content_has_the_types_of_the_form() -> None:
    schema = a_schema(
        text={"type": "string"},
        whole={"type": "integer", "minimum": 1, "maximum": 9},
        number={"type": "number"},
        sure={"type": "boolean"},
        one={"type": "string", "enum": ["a", "b"], "enumNames": ["first", "second"]},
        titled={"type": "string", "oneOf": [{"const": "x", "title": "The X"}, {"const": "y"}]},
        several={"type": "array", "items": {"type": "string", "enum": ["p", "q", "r"]}, "maxItems": 2},
        titles={"type": "array", "items": {"anyOf": [{"const": "m", "title": "The M"}, {"const": "n", "title": "N"}]}},
    )
    content = filled_in(schema, ["words"], ["3"], ["2.5"], ["No"], ["second"], ["The X"], ["p", "r"], ["The M"])
    assert content == {
        "text": "words",
        "whole": 3,
        "number": 2.5,
        "sure": False,
        "one": "b",
        "titled": "x",
        "several": ["p", "r"],
        "titles": ["m"],
    }


def test_what_was_skipped_is_left_out_or_takes_its_default() -> None:
    schema = a_schema(
        ("kept", "name"), kept={"type": "integer", "default": 4}, gone={"type": "string"}, name={"type": "string"}
    )
    assert filled_in(schema, [], [], ["x"]) == {"kept": 4, "name": "x"}


@pytest.mark.parametrize(
    ("schema", "answer", "problem"),
    [
        ({"type": "integer"}, ["2.5"], "a whole number is wanted"),
        ({"type": "number", "minimum": 3}, ["2"], "at least 3 is wanted"),
        ({"type": "number", "maximum": 3}, ["4"], "at most 3 is wanted"),
        ({"type": "string", "minLength": 3}, ["ab"], "at least 3 characters are wanted"),
        ({"type": "string", "maxLength": 1}, ["ab"], "at most 1 characters are wanted"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}, ["a"], "choose at least 2"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 1}, ["a", "b"], "choose at most 1"),
    ],
)
def test_what_the_form_does_not_take_is_said(schema: dict[str, Any], answer: list[str], problem: str) -> None:
    with pytest.raises(AnswerDoesNotFit, match=problem):
        filled_in(a_schema(("it",), it=schema), answer)


def test_a_required_property_is_not_left_out_in_silence() -> None:
    schema = a_schema(("it",), it={"type": "string"}, other={"type": "string"})
    with pytest.raises(AnswerDoesNotFit, match="the form wants an answer here"):
        filled_in(schema, [], ["x"])


def test_the_default_of_a_choice_is_what_is_recommended() -> None:
    schema = a_schema(
        size={"type": "string", "enum": ["s", "l"], "default": "l"}, ok={"type": "boolean", "default": False}
    )
    size, ok = to_questions(schema, message="")
    assert [option.recommended for option in size.options] == [False, True]
    assert [option.recommended for option in ok.options] == [False, True]


def test_a_form_without_properties_wants_a_yes_and_a_page_wants_to_be_visited() -> None:
    [question] = to_questions({"type": "object"}, message="Go on?")
    assert (question.question, question.options) == ("Go on?", (Option("OK"),))
    assert to_content([question], [["OK"]]) == {}
    [question] = to_visit("https://example.org/login", message="Please log in")
    assert question.question == "Please log in\nhttps://example.org/login"
    assert to_content([question], [["Done"]]) == {}


@pytest.mark.parametrize("schema", [None, [], "text", {"properties": []}, {"properties": {"a": 7}}])
def test_what_is_no_form_is_refused(schema: Any) -> None:
    with pytest.raises(AskDoesNotFit):
        to_questions(schema, message="fill in")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["type", "enum", "enumNames", "oneOf", "anyOf", "items", "default", "title", "minimum", "const"])
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "array", "object"])


@given(st.dictionaries(st.text(max_size=5), st.dictionaries(KEYS, JSON | TYPES, max_size=4) | JSON, max_size=3))
def test_whatever_a_server_sends_becomes_questions_or_a_refusal(properties: dict[str, Any]) -> None:
    try:
        questions = to_questions({"properties": properties}, message="fill in")
    except AskDoesNotFit:
        return
    answers = [[question.options[0].value] if question.options else ["7"] for question in questions]
    try:
        content = to_content(questions, answers)
    except AnswerDoesNotFit:
        return
    assert content.keys() <= properties.keys()
