"""The shapes of our JSON: what they cost to import, and that they go to JSON and back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from handraise import wire
from handraise.wire.asks import Event, Reported
from handraise.wire.plain import from_plain, to_plain
from handraise.wire.rules import Rule
from handraise.wire.runs import RetryBody, Run, Workflow, WorkflowStep
from handraise.wire.schema import body_schemas, reply_schema
from handraise.wire.sessions import Messages, Session

WITH_PYDANTIC = {"parsing", "schema", "stored"}
MODULES = {module.name for module in iter_modules(wire.__path__)}


def shapes() -> Iterator[Any]:
    for name in sorted(MODULES - WITH_PYDANTIC):
        module = import_module(f"handraise.wire.{name}")
        yield from (kind for kind in vars(module).values() if is_dataclass(kind) and kind.__module__ == module.__name__)


def test_shapes_are_loaded_without_pydantic() -> None:
    names = ", ".join(f"handraise.wire.{name}" for name in sorted(MODULES - WITH_PYDANTIC))
    script = f"import sys, {names}; print(*(name for name in sys.modules if name.startswith('pydantic')))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == []


def test_the_door_gives_every_name_that_it_lists_and_no_other() -> None:
    assert all(getattr(wire, name) is not None for name in wire.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Ask'"):
        wire.Ask  # noqa: B018


TOLD = [
    kind for kind in shapes() if "EXAMPLE" in vars(kind) and not kind.__name__.endswith("Body") and kind is not Event
]


@pytest.mark.parametrize("shape", TOLD, ids=lambda kind: kind.__name__)
def test_an_example_becomes_the_shape_and_the_same_json_again(shape: Any) -> None:
    assert to_plain(from_plain(shape, shape.EXAMPLE)) == shape.EXAMPLE


def test_a_body_is_written_with_the_names_of_the_wire() -> None:
    assert to_plain(RetryBody(from_="review", dry_run=True)) == RetryBody.EXAMPLE


def test_what_is_nothing_is_left_out_where_the_shape_says_so() -> None:
    assert to_plain(Messages(messages=())) == {"messages": []}
    assert to_plain(Reported(reported=0, unknown=())) == {"reported": 0, "unknown": []}
    session = to_plain(from_plain(Session, Session.EXAMPLE))
    assert session["mode"] is None


def test_what_an_agent_wrote_is_not_copied() -> None:
    given = [[1, (2, 3)], {"a": [4]}]
    run = {**Run.EXAMPLE, "input": given}
    assert to_plain(from_plain(Run, run))["input"] is given
    assert to_plain([Reported(reported=0, unknown=())]) == [{"reported": 0, "unknown": []}]


def test_a_shape_is_read_with_what_it_holds_and_without_what_it_does_not_know() -> None:
    told = {
        "name": "shop",
        "description": "",
        "file": "shop.py",
        "steps": [{"id": "a", "kind": "shell"}],
        "input": None,
    }
    read = from_plain(Workflow, told | {"newer": True})
    assert read.steps == (WorkflowStep(id="a", kind="shell"),)
    assert read.problem is None


def test_a_reply_that_lacks_something_is_refused_with_its_name() -> None:
    with pytest.raises(KeyError, match="Rule has no 'action'"):
        from_plain(Rule, {"source": "x", "tool": "shell"})


def test_the_schema_of_a_reply_says_what_may_be_left_out_and_what_may_be_null() -> None:
    session, rule = reply_schema(Session), reply_schema(Rule)
    assert session["required"] == list(session["properties"])
    assert session["properties"]["cwd"] == {"type": ["string", "null"]}
    assert session["properties"]["mode"]["enum"][-1] is None
    assert rule["required"] == ["source", "tool", "action"]
    assert rule["properties"]["agent"] == {"type": "string"}


def test_limits_are_checked_in_a_body_and_told_in_its_schema() -> None:
    assert wire.parse(RetryBody, b'{"from": "review"}').from_ == "review"
    with pytest.raises(wire.BadBody, match="at least 1 character"):
        wire.parse(RetryBody, b'{"from": ""}')
    schema = body_schemas(RetryBody)["RetryBody"]["properties"]["from"]
    assert schema["description"].startswith("The step from which")
    assert schema["anyOf"][0]["maxLength"] == 200
