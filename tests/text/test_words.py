"""The catalogues: every language says everything, nothing is said that nobody uses, and people get their own."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

import handraise
from handraise.text import words
from handraise.text.words import LANGUAGES, language_of, preferred, speak

ROOT = Path(handraise.__file__).parent
WEB = ROOT / "web"
CATEGORIES = ("zero", "one", "two", "few", "many", "other")
COUNTED = {"en": {"one", "other"}, "de": {"one", "other"}}  # what each language tells apart, by CLDR
USE = re.compile(r"""(?<![A-Za-z0-9])(?:_?t|Heading)\(\s*(['"])(?P<key>[\w.]+)\1""")
NOT_LITERAL = re.compile(r"""(?<![\w.'])t\(\s*(?!['"]|key\b|\))\S+""")


def catalogue(language: str) -> dict[str, str]:
    read: dict[str, str] = json.loads((words.FOLDER / f"{language}.json").read_text(encoding="utf-8"))
    return read


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def base(key: str) -> str:
    """The key without its plural category."""
    start, _, last = key.rpartition(".")
    return start if last in CATEGORIES and start else key


def scripts() -> Iterator[Path]:
    yield from (path for path in WEB.rglob("*.js") if "vendor" not in path.parts)


def used() -> dict[str, Path]:
    files = [*scripts(), *(path for path in ROOT.rglob("*.py") if path.parent != words.FOLDER)]
    return {found["key"]: path for path in files for found in USE.finditer(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_exactly_the_english_texts(language: str) -> None:
    ours, english = ({base(key) for key in catalogue(each)} for each in (language, "en"))
    assert (sorted(english - ours), sorted(ours - english)) == ([], [])


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_key_is_there_twice(language: str) -> None:
    pairs: list[tuple[str, str]] = json.loads(
        (words.FOLDER / f"{language}.json").read_text(encoding="utf-8"), object_pairs_hook=list
    )
    keys = [key for key, _ in pairs]
    assert sorted({key for key in keys if keys.count(key) > 1}) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text_has_the_places_of_the_english_one(language: str) -> None:
    english = catalogue("en")
    wanted = {base(key): places(text) for key, text in english.items() if not key.endswith(".one")}
    for key, text in catalogue(language).items():
        # One may be said without a number, and the sentence about one may name more of it.
        allowed = wanted[base(key)] | places(english.get(key, ""))
        missing = set() if base(key) != key else wanted[key] - places(text)
        assert places(text) <= allowed, f"{language}: {key} has other places than the English one"
        assert not missing, f"{language}: {key} lacks {missing}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text_that_counts_has_every_form_of_its_language(language: str) -> None:
    forms: dict[str, set[str]] = {}
    for key in catalogue(language):
        if base(key) != key:
            forms.setdefault(base(key), set()).add(key.rpartition(".")[2])
    assert {key: found for key, found in forms.items() if found != COUNTED[language]} == {}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_is_empty_or_ends_in_a_blank(language: str) -> None:
    for key, text in catalogue(language).items():
        assert text and text == text.strip(), f"{language}: {key}"


def test_every_key_is_used() -> None:
    known = {base(key) for key in catalogue("en")} - {"dir"}
    assert sorted(known - used().keys()) == []


def test_every_key_that_is_used_exists() -> None:
    known = {base(key) for key in catalogue("en")}
    assert {key: path.name for key, path in used().items() if key not in known} == {}


def test_the_web_app_names_its_keys_literally() -> None:
    odd = {path.name: found for path in scripts() if (found := NOT_LITERAL.findall(path.read_text(encoding="utf-8")))}
    assert odd == {}, "a key that is put together cannot be found by this test"


def test_every_catalogue_is_a_language_of_ours_in_python_and_in_the_browser() -> None:
    assert {path.stem for path in words.FOLDER.glob("*.json")} == set(LANGUAGES)
    listed = re.search(r"export const LANGUAGES = \{(.*?)\}", (WEB / "core" / "words.js").read_text(encoding="utf-8"))
    assert listed is not None
    assert tuple(re.findall(r"(\w+):", listed[1])) == LANGUAGES


def test_a_text_is_filled_in() -> None:
    assert speak("en")("deadline.soon", seconds=5, choice="SQLite") == "5 s left: then “SQLite”"
    assert speak("de")("deadline.soon", seconds=5, choice="SQLite") == "Noch 5 s: dann „SQLite“"


def test_what_an_agent_wrote_is_filled_in_as_it_is() -> None:
    assert speak("en")("link.asks", agent="{reason} %s inbox.title") == "{reason} %s inbox.title asks"


@pytest.mark.parametrize(("count", "text"), [(0, "0 warten"), (1, "1 wartet"), (2, "2 warten")])
def test_a_count_picks_its_form(count: int, text: str) -> None:
    assert speak("de")("inbox.waiting", count=count) == text


def test_a_language_that_we_have_not_is_english() -> None:
    assert speak("eo").language == "en"
    assert speak("../de").language == "en"


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("", "en"),
        ("de", "de"),
        ("de-AT,de;q=0.9,en;q=0.8", "de"),
        ("fr-FR,fr;q=0.9,de;q=0.5,en;q=0.4", "de"),
        ("en;q=0.5,de;q=0.9", "de"),
        ("en,de", "en"),
        ("DE-de", "de"),
        ("de;q=0,en;q=0.1", "en"),
        ("de;q=0", "en"),
        ("*", "en"),
        ("de;q=much,en", "en"),
        (", ,;;", "en"),
        ("fr," * 5000 + "de", "en"),
    ],
)
def test_a_browser_gets_what_it_would_rather_read(accepted: str, language: str) -> None:
    assert preferred(accepted) == language


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "de"),
        ({"LANG": "de"}, "de"),
        ({"LANG": "C"}, "en"),
        ({"LANG": "fr_FR.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8", "LC_MESSAGES": "en_GB.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "de_CH.UTF-8", "LC_MESSAGES": "en_GB.UTF-8"}, "de"),
        ({"LC_ALL": "", "LANG": "de_DE"}, "de"),
    ],
)
def test_a_terminal_speaks_the_language_of_its_locale(environment: dict[str, str], language: str) -> None:
    assert language_of(environment) == language
