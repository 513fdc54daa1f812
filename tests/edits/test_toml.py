"""Settings that somebody else wrote are read up to a size, and nothing in them can hold up a desk."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from handraise import config
from handraise.errors import SettingsError
from handraise.rules.reading import rules_in
from handraise.transports.files import LARGEST_FILE, parse_toml, read_settings

HOSTILE = [
    (".".join("a" * 25_000) + "=1", "a key of more than"),
    ("[" + ".".join("a" * 25_000) + "]", "a key of more than"),
    ("x = { " + ".".join("a" * 25_000) + "=1 }", "a key of more than"),
    ("# '''\n" + ".".join("a" * 25_000) + "=1\n# '''", "a key of more than"),
    ('x = "\\\\"\n' + ".".join("a" * 25_000) + "=1", "a key of more than"),
    ("a=" + "[" * 60_000, "nests deeper"),
    ("a=" + "{a=" * 20_000, "nests deeper"),
    ("a='" + "x" * LARGEST_FILE + "'", "at most 64 kB"),
    ('a="""' + '\\"""' * 15_000, "cannot be read"),
    ("a=" + "9" * 60_000, "cannot be read"),
]


@pytest.mark.parametrize(("text", "problem"), HOSTILE)
def test_a_file_that_would_cost_too_much_is_refused_before_it_is_parsed(
    text: str, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "handraise.toml"
    file.write_text(text)
    for reading in (
        lambda: parse_toml(text, file=file),
        lambda: rules_in(text, file=file),
        lambda: config.load({"HANDRAISE_HOME": str(tmp_path)}, cwd=tmp_path),
    ):
        with pytest.raises(SettingsError, match=problem):
            reading()


@pytest.mark.parametrize(
    "text",
    [
        'message = "' + "No... " * 1000 + '"\n',
        'a = """\n[[[[\n' + "...\n" * 100 + '"""\n',
        "a = '''[[[['''\nb = [[1], [2, [3]]] # [[[[[ ...\n",
        'a.b.c = 1\n[x.y]\nz = ["a", "b.c"]\n',
        "a = \"it's\" # it's \"\nb = 'say \"'\n",
        'a = """x"""""\nb = 1\n',
    ],
)
def test_what_people_write_is_read(text: str) -> None:
    assert parse_toml(text, file="f") == tomllib.loads(text)


def test_no_more_is_read_than_fits(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as writing:
        writing.truncate(10 << 30)  # it takes no room, and would take all memory
    with pytest.raises(SettingsError, match="too large"):
        read_settings(file)
    assert read_settings(tmp_path / "none") == b""
