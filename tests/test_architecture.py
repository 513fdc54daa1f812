"""The documents are true: names in docs/architecture.md exist, and every module opens with a sentence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import handraise
import handraise.testing
import handraise.workflow

SOURCE = Path(handraise.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
NAMED = re.compile(r"`([\w/.]+\.(?:py|js)):([\w.]+)`")
FOLDER = re.compile(r"(?m)^    ([a-z_]+)/ ")
LONGEST = 60  # lines of a function, without its signature: that of a command has a line for each option


def places() -> list[tuple[str, str]]:
    return sorted(set(NAMED.findall(PAGE.read_text())))


@pytest.mark.parametrize(("file", "name"), places())
def test_a_name_on_the_page_exists(file: str, name: str) -> None:
    text = (SOURCE / file).read_text()
    if file.endswith(".js"):
        assert re.search(rf"\b(function|const|class) {name}\b", text), f"{file} has no {name}"
    else:
        assert name in set(names_in(ast.parse(text))), f"{file} has no {name}"


def test_the_page_shows_five_walks() -> None:
    walks = re.findall(r"(?ms)^### (.+?)\n(.+?)(?=^##|\Z)", PAGE.read_text().partition("## Walks")[2])
    assert len(walks) >= 5
    for title, steps in walks:
        assert len(NAMED.findall(steps)) >= 4, title


def test_every_room_is_drawn() -> None:
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")} | {"web"}
    assert set(FOLDER.findall(PAGE.read_text())) == rooms


def test_every_module_opens_with_a_sentence() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        said = ast.get_docstring(ast.parse(path.read_text())) or ""
        if not re.search(r"[.:]$", said.partition("\n\n")[0].strip()):
            wrong.append(str(path.relative_to(SOURCE)))
    assert not wrong


def test_no_function_is_longer_than_a_screen() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body[-1].end_lineno - node.body[0].lineno > LONGEST  # type: ignore[operator]
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", [handraise, handraise.workflow, handraise.testing])
def test_what_can_be_imported_is_what_is_exported(module: object) -> None:
    exported = getattr(module, "__all__", None)
    assert exported is not None
    assert sorted(set(exported)) == sorted(exported)
    assert not [name for name in exported if not hasattr(module, name)]
    ours = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("handraise")
    }
    assert ours <= set(exported)


def names_in(tree: ast.AST, *, prefix: str = "") -> Iterator[str]:
    """Functions, classes, methods and functions inside of functions, with dots between them; and names of a module."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"{prefix}{node.name}"
            yield from names_in(node, prefix=f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign) and not prefix:
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
