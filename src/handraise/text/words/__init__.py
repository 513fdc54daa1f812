"""What people read, in their language: one flat catalogue a language, the same for web, terminal and messages.

`en.json` decides which keys there are. A text has places in braces; one that counts has a form per plural category
(`key.one`, `key.other`). What agents wrote is filled into places and never looked up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "LANGUAGES", "Words", "language_of", "preferred", "speak"]

FOLDER = Path(__file__).parent
LANGUAGES = ("en", "de")


class Words:
    """The texts of one language. Call it with a key and what its places take."""

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self._texts = texts

    def __call__(self, key: str, /, **values: Any) -> str:
        """Raises KeyError for a key that no catalogue has, or a place that got no value."""
        if "count" in values and key not in self._texts:
            key = f"{key}.{'one' if values['count'] == 1 else 'other'}"  # as English and German count
        return self._texts[key].format_map(values)


@cache
def speak(language: str) -> Words:
    """The texts of a language, English where we have none of it."""
    known = language if language in LANGUAGES else LANGUAGES[0]
    return Words(known, json.loads((FOLDER / f"{known}.json").read_text(encoding="utf-8")))


def preferred(accepted: str) -> str:
    """Which of our languages a browser would rather read, by its `Accept-Language`."""
    wanted: list[tuple[float, str]] = []
    for part in accepted.split(",")[:20]:
        tag, _, quality = part.strip().partition(";q=")
        try:
            weight = float(quality) if quality else 1.0
        except ValueError:
            continue
        wanted.append((-weight, tag.strip().lower().partition("-")[0]))
    wanted.sort(key=lambda pair: pair[0])
    return next((tag for weight, tag in wanted if tag in LANGUAGES and weight < 0), LANGUAGES[0])


def language_of(environment: Mapping[str, str]) -> str:
    """Which of our languages a terminal speaks, by its locale."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := environment.get(name):
            language = value.partition(".")[0].partition("_")[0].lower()
            return language if language in LANGUAGES else LANGUAGES[0]
    return LANGUAGES[0]
