"""A search looks through many asks, a part at a time, and misses none at the borders."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handraise.asks import Question
from handraise.stores import Row, Store
from handraise.stores._search import Dialect, Search, holds, search
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing import an_ask
from handraise.testing.stores import row
from handraise.wire import content_text

DIALECT = Dialect("instr(lower({column}), ?) > 0")  # one that every SQLite has


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = await SqliteStore.open_file(MEMORY)
    yield store
    await store.close()


def about(id: str, text: str) -> str:
    return content_text(an_ask(id=id, questions=(Question(text),)))


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 100])
async def test_parts_of_any_size_find_the_same(store: Store, at_once: int, newest: bool) -> None:
    for number in range(20):
        await store.open(row(str(number), content=about(str(number), "Grün" if number % 3 else "Rot")))

    async def fetch(sql: str, values: Sequence[Any]) -> list[Row]:
        return await store.read(sql, *values)

    found: list[str] = []
    after = 0
    while page := await search(
        "GRÜN", (), after=after, limit=4, newest=newest, dialect=DIALECT, fetch=fetch, at_once=at_once
    ):
        found += [stored.id for stored in page]
        after = page[-1].seq
    expected = [str(number) for number in range(20) if number % 3]
    assert found == (expected[::-1] if newest else expected)


@given(st.text(max_size=30), st.text(max_size=10), st.text(max_size=10), st.booleans())
def test_what_a_database_is_asked_for_is_in_every_ask_that_is_found(
    text: str, before: str, behind: str, is_upper: bool
) -> None:
    there = text.upper() if is_upper and text.upper().casefold() == text.casefold() else text
    written = json.dumps(f"{before}{there}{behind}", ensure_ascii=False)
    # As the databases do it: A to Z only.
    lowered = "".join(each.lower() if each.isascii() else each for each in written)
    assert any(piece in lowered for piece in Search(text).pieces)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Übergröße", ["bergr"]),
        ('a"bcd', ["bcd"]),
        ("Strasse", ["stra"]),
        ("数据", ["数据"]),
        ("Ж", ["ж", "Ж"]),
        ("ŉ", ["ʼ", "ŉ"]),
        ("Ꭰ", ["Ꭰ", "ꭰ"]),  # which has no case when it is a capital
        ('"', [""]),
    ],
)
def test_the_piece_is_the_longest_that_cannot_be_mistaken(text: str, pieces: list[str]) -> None:
    assert Search(text).pieces == pieces


@pytest.mark.parametrize("text", ["questions", "choice", "editable", "reject"])
async def test_what_is_only_the_name_of_a_field_is_not_read(store: Store, text: str) -> None:
    await store.open(row("a"))
    await store.open(row("b", content=about("b", f"Is {text.upper()} right?")))
    statements: list[str] = []

    async def fetch(sql: str, values: Sequence[Any]) -> list[Row]:
        statements.append(sql)
        return await store.read(sql, *values)

    async def found(wanted: list[tuple[str, str | None]]) -> list[str]:
        page = await search(text, wanted, after=0, limit=9, newest=False, dialect=DIALECT, fetch=fetch)
        return [stored.id for stored in page]

    assert await found([]) == ["b"]
    statements.clear()
    assert await found([("id", "a")]) == []
    assert len(statements) == 1, "the ask was read although the text is only in its form"


@given(st.text("aSßéİ\U0001f600", min_size=1, max_size=12), st.integers(0, 40), st.integers(1, 8))
def test_what_lies_across_two_parts_of_a_large_text_is_found(text: str, before: int, part: int) -> None:
    whole = "-" * before + text + "-" * 20
    folded = text.swapcase().casefold()
    assert holds(whole, folded, part=part) == (folded in whole.casefold())
