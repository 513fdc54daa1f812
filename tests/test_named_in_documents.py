"""What the documents for contributors and the glossary name in the source exists."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "handraise"
GLOSSARY = ROOT / "docs" / "glossary.md"


def code_in(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", page.read_text())


@pytest.mark.parametrize("name", ["AGENTS.md", "CONTRIBUTING.md"])
def test_every_file_named_exists(name: str) -> None:
    paths = [code for code in code_in(ROOT / name) if re.fullmatch(r"[\w./-]+(?:/|\.(?:py|md|js|ts))", code)]
    assert len(paths) > 5
    places = (ROOT, SOURCE, SOURCE / "web")
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []


def resolves(name: str) -> bool:
    """Whether a dotted name below `handraise` is a module, or something in one."""
    room, _, rest = name.partition(".")
    found: object = import_module(f"handraise.{room}")
    for part in rest.split(".") if rest else ():
        if not hasattr(found, part):
            try:
                import_module(f"handraise.{room}.{part}")
            except ModuleNotFoundError:
                return False
        found = getattr(found, part)
    return True


def test_every_name_that_the_glossary_gives_for_a_word_exists() -> None:
    named = re.findall(r"\(`([a-z_]+(?:\.\w+)*)`\)", GLOSSARY.read_text())
    rooms = {path.stem for path in SOURCE.iterdir()}
    named = [name for name in named if name.partition(".")[0] in rooms]
    assert len(named) > 20
    assert [name for name in named if not resolves(name)] == []


def test_the_glossary_lists_every_room_and_no_other() -> None:
    _, _, rest = GLOSSARY.read_text().partition("\n## Rooms\n")
    table, _, _ = rest.partition("\n## ")
    listed = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert listed == {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
