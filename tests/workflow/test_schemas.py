"""What people give at a checkpoint is checked by the desk, and no schema and no value holds it up."""

from __future__ import annotations

from typing import Any

import pytest

from handraise.workflow.schemas import MOST_PROBLEMS, check_schema, problems_of

pytestmark = pytest.mark.slow


def doubling(levels: int) -> dict[str, Any]:
    """A short schema that is checked twice as often with each level."""
    parts: dict[str, Any] = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**parts, f"a{levels}": {"type": "string"}}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def test_what_is_wrong_is_said_by_its_place() -> None:
    schema = {"type": "object", "properties": {"a": {"items": {"type": "integer"}}}, "required": ["a", "b"]}
    assert problems_of(schema, {"a": [1, "x"]}) == [
        {"at": "", "problem": 'it: "b" is a required property'},
        {"at": "a.1", "problem": 'a.1: "x" is not of type "integer"'},
    ]
    assert problems_of(schema, {"a": [1], "b": None}) == []


def test_a_type_that_refers_to_itself_is_checked() -> None:
    tree = {"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"left": {"$ref": "#/$defs/t"}}, "required": ["v"]}}}
    assert problems_of(tree, {"v": 1, "left": {"v": 2}}) == []
    assert [each["at"] for each in problems_of(tree, {"v": 1, "left": {"left": {"v": 1}}})] == ["left"]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$ref": "http://127.0.0.1:9/schema"}, "its own parts"),
        ({"$ref": "file:///etc/passwd"}, "its own parts"),
        ({"items": {"$dynamicRef": "http://127.0.0.1:9/schema"}}, "its own parts"),
        ({"$ref": "#/$defs/missing"}, "does not exist"),
        ({"type": "nonsense"}, "nonsense"),
        ({"pattern": "(?=a)b"}, "regex"),
        ({"pattern": "(((a{1,100}){1,100}){1,100})"}, "regex"),
        (doubling(20), "parts"),
        (nested(100), "levels deep"),
    ],
)
def test_a_schema_that_fetches_doubles_or_cannot_be_read_is_refused(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_schema(schema)
    [problem] = problems_of(schema, "x")
    assert problem["problem"].startswith("it cannot be checked: ")


def test_a_pattern_takes_linear_time() -> None:
    """With a pattern that tries every way, as Python's own do, this takes longer than anybody can wait."""
    assert problems_of({"pattern": "^(a+)+$"}, "a" * 10_000 + "!") != []


def test_of_many_values_the_first_problem_is_enough() -> None:
    assert len(problems_of({"items": {"type": "integer"}}, ["x"] * 25_000)) == 1
    assert len(problems_of({"items": {"type": "integer"}}, ["x"] * 100)) == MOST_PROBLEMS
    [problem] = problems_of({"items": {"enum": list(range(400))}}, [1] * 25_000)
    assert "too many values" in problem["problem"]
