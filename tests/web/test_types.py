"""The types of the web app say what the desk tells."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from handraise.server.openapi import document
from tests.helpers.serving import ORIGIN, a_body, serving, told

SCRIPT = Path(__file__).parents[2] / "docs" / "generate_types.py"


@pytest.fixture(scope="module")
def generate_types() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_types", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_types_are_those_of_the_document(generate_types: ModuleType) -> None:
    assert generate_types.FILE.read_text() == generate_types.types(), "run `make docs`"


def test_every_schema_has_a_type(generate_types: ModuleType) -> None:
    text = generate_types.types()
    for name in document()["components"]["schemas"]:
        assert f"export interface {name} {{" in text or f"export type {name} = " in text


async def test_what_is_typed_as_always_there_is_told_of_an_ask_that_says_little(
    generate_types: ModuleType, tmp_path: Path
) -> None:
    little = {"questions": [{"question": "Which?", "options": [{"label": "this"}]}]}
    permission: dict[str, Any] = {"tool": "Bash", "replies": ["once", "always"], "scopes": [{"id": "session"}]}
    async with serving(tmp_path) as desk:
        asked = await desk.ask(**little)
        wanted = await told(desk.http.post("/v1/asks", json={"permission": permission, "origin": ORIGIN}), 201)
        answered = await desk.answer((await desk.ask(**a_body()))["id"], "SQLite")
    shown = {
        "Ask": [asked, wanted, answered],
        "Answer": [answered["answer"]],
        "Origin": [asked["origin"]],
        "Question": asked["questions"],
        "Option": asked["questions"][0]["options"],
        "Permission": [wanted["permission"]],
        "Scope": wanted["permission"]["scopes"],
    }
    assert generate_types.shared() <= shown.keys()
    for name, records in shown.items():
        for record in records:
            assert generate_types.always_told(name) <= record.keys(), name
    for name in generate_types.shared():
        assert all(value is not None for record in shown[name] for value in record.values())
