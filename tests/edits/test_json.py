"""Changes in the text of somebody else's JSON: what is put in can be taken out exactly, and nothing else is touched."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from handraise.edits import json as jsontext
from handraise.edits.json import DEEPEST, Span, cut, inserted, text_to_change, without
from handraise.errors import SettingsError
from tests.helpers import json_files
from tests.helpers.json_files import VALUES, Style, wild

PATH = Path("settings.json")
OURS = {"args": ["mcp"], "env": {}}
KEYS = ("servers", "ours")
COMMENTED = json_files.COMMENTED.replace("TABLE", "servers")


def read(text: str) -> Span:
    return jsontext.read(text, path=PATH, comments=True)


def put(text: str, keys: tuple[str, ...] = KEYS, value: Any = OURS) -> str:
    return jsontext.put(text, keys, value, path=PATH, comments=True)


def take_out(text: str, keys: tuple[str, ...] = KEYS) -> str:
    return jsontext.take_out(text, keys, path=PATH, comments=True)


def places(span: Span) -> Iterator[Span]:
    """Every table and list."""
    if isinstance(span.value, dict | list):
        yield span
    for member in span.members:
        yield from places(member.value)


def comments(text: str) -> list[str]:
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*.*?\*/', text, re.DOTALL)
    return [token for token in tokens if not token.startswith('"')]


# Reading --------------------------------------------------------------------------------------------------------------


@given(settings=st.dictionaries(st.text(max_size=5), VALUES, max_size=3), style=Style.any())
def test_json_is_read_as_everybody_reads_it(settings: dict[str, Any], style: Style) -> None:
    for allowed in (True, False):
        assert jsontext.read(style.written(settings), path=PATH, comments=allowed).value == settings


def test_comments_and_a_comma_too_many_are_read_where_the_program_does() -> None:
    assert read(COMMENTED).value["other"] == [1, 2]
    assert read(COMMENTED).value["servers"].keys() == {"files", "web"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a": }', "line 1 cannot be read"),
        ('{\n"a": 1 "b": 2}', "line 2 cannot be read"),
        ('{\r\n"a": 1,\r\n,}', "line 3 cannot be read"),
        ('{"a": NaN}', "line 1 cannot be read"),
        ('{"a": -Infinity}', "line 1 cannot be read"),
        ('{"a": "\n"}', "line 1 cannot be read"),
        ('{"a": "\\x"}', "line 1 cannot be read"),
        ('{"a"\n1}', "line 2 cannot be read"),
        ("{'a': 1}", "line 1 cannot be read"),
        ("{} {}", "line 1 cannot be read"),
        ("{\n", "line 2 cannot be read"),
        ("{} /", "line 1 cannot be read"),
        ("[]", "holds no JSON object"),
        ('{"a":' * 50_000, "nested too deep"),
        ('{"a":' + "[" * DEEPEST + "]" * DEEPEST + "}", "nested too deep"),
    ],
)
def test_what_is_no_json_is_refused_with_its_line(text: str, sentence: str) -> None:
    for allowed in (True, False):
        with pytest.raises(SettingsError, match=rf"settings\.json.*{sentence}.*; correct it first"):
            jsontext.read(text, path=PATH, comments=allowed)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('// mine\n{"a": 1}', "line 1 holds a comment"),
        ('{\n"a": 1 /* mine */\n}', "line 2 holds a comment"),
        ('{"a": 1,\n}', "line 2 cannot be read"),
        ('{"a": [1, ]}', "line 1 cannot be read"),
    ],
)
def test_what_only_some_programs_read_is_refused_for_the_others(text: str, sentence: str) -> None:
    assert read(text).value["a"]
    with pytest.raises(SettingsError, match=sentence):
        jsontext.read(text, path=PATH)


def test_a_comment_without_an_end_is_refused() -> None:
    with pytest.raises(SettingsError, match="line 2 cannot be read"):
        read('{"a": 1}\n/* open')


def test_nesting_up_to_the_limit_is_read() -> None:
    assert read('{"a":' + "[" * (DEEPEST - 1) + "]" * (DEEPEST - 1) + "}")


# Under keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(COMMENTED, id="with comments"),
        pytest.param(COMMENTED.replace("\n", "\r\n"), id="with CRLF"),
        pytest.param(COMMENTED.replace("    ", "\t"), id="with tabs"),
        pytest.param("\ufeff" + COMMENTED, id="with a byte order mark"),
        pytest.param('{"theme":"dark","servers":{"a":{},"b":{}}}', id="on one line"),
        pytest.param('{ "servers" : { "a" : { } , } , }', id="with a comma too many on one line"),
        pytest.param('{\n  "servers": {\n    "a": {},\n  },\n}\n', id="with a comma too many"),
        pytest.param('{\n  "servers": {\n    "a": {} /* x\n y */\n  }\n}', id="with a long comment at the end"),
        pytest.param('{\n  "servers": {\n    "a": 1 /* x */ } /* y */\n}', id="with comments around a bracket"),
        pytest.param('{\n  "servers": {\n    "a": 1 // x\n  , }\n}', id="with a comma after a comment"),
        pytest.param('{\n  "theme": "dark" // mine\n}\n', id="without the table"),
        pytest.param('// head\n{"theme": "}//{"}\n// foot', id="with comments around"),
        pytest.param('{\n  "theme": "dark", "servers": {"a": {}}}', id="half in lines"),
        pytest.param("{ // nothing yet\n   }", id="with nothing but a comment"),
        pytest.param("{ /* nothing yet */ }", id="with nothing but a comment on one line"),
        pytest.param('{"servers": {"a": 1}, "servers": {}}', id="with a table twice"),
    ],
)
def test_what_is_not_ours_comes_back(text: str) -> None:
    changed = put(text)
    assert read(changed).value["servers"]["ours"] == OURS
    assert changed.count("\r\n") == changed.count("\n") or "\r\n" not in text
    assert comments(changed) == comments(text)
    assert take_out(changed) == text


def test_ours_is_written_as_the_rest_of_the_file_is() -> None:
    assert re.search(r'        \}, // the last\n        "ours": \{"args": .*\}\n    \},\n', put(COMMENTED))
    bare = put('{\n\t"theme": "dark"\n}')
    assert re.fullmatch(r'\{\n\t"theme": "dark",\n\t"servers": \{\n\t\t"ours": \{.*\}\n\t\}\n\}', bare)
    assert put('{"theme":"dark","a":{"b":1}}', ("a",)) == '{"theme":"dark","a":{"b":1},"a":{"args":["mcp"],"env":{}}}'


def test_text_is_written_as_it_is_and_what_is_no_text_is_escaped() -> None:
    assert put("{}", ("a",), "/home/jürgen") == '{\n  "a": "/home/jürgen"\n}'
    assert put("{}", ("a",), "/home/\udcff").encode() == b'{\n  "a": "/home/\\udcff"\n}'


def test_of_what_is_there_twice_the_one_that_counts_is_taken_out() -> None:
    assert take_out('{"servers": {"ours": 1, "a": 2, "ours": 3}}') == '{"servers": {"ours": 1, "a": 2}}'
    assert take_out('{"servers": {"a": 2}, "servers": {"ours": 3}}') == '{"servers": {"a": 2}, "servers": {}}'


def test_tables_that_are_left_empty_go_too() -> None:
    assert take_out('{"a": 1, "servers": {"x": {"ours": 1}}}', ("servers", "x", "ours")) == '{"a": 1}'
    assert take_out('{"servers": {"y": 1, "x": {"ours": 1}}}', ("servers", "x", "ours")) == '{"servers": {"y": 1}}'


def test_what_is_no_table_is_left_alone() -> None:
    for change in (put, take_out):
        with pytest.raises(SettingsError, match='"servers" is no table'):
            change('{"servers": []}')
    with pytest.raises(SettingsError, match='no "ours" to take out'):
        take_out('{"servers": {}}')


@given(
    rest=st.dictionaries(st.text(max_size=5), VALUES, max_size=3),
    others=st.none() | st.dictionaries(st.text(max_size=5), VALUES, min_size=1, max_size=3),
    first=st.booleans(),
    style=Style.any(),
)
def test_putting_in_and_taking_out_leaves_any_json_as_it_was(
    rest: dict[str, Any], others: Any, first: bool, style: Style
) -> None:
    table = {} if others is None else {"servers": others}
    settings = {**table, **rest} if first else {**rest, **table}
    changed = put(style.written(settings))
    assert json.loads(changed) == {**settings, "servers": {**(others or {}), "ours": OURS}}
    assert take_out(changed) == style.written(settings)


@given(text=wild(), keys=st.sampled_from([("o",), ("a", "o"), ("a", "b", "o")]))
@example(text='{"a":\n1 // x\n}', keys=("o",))
def test_putting_in_and_taking_out_leaves_any_text_as_it_was(text: str, keys: tuple[str, ...]) -> None:
    before = read(text)
    expected: dict[str, Any] = json.loads(json.dumps(before.value))
    place: Span | None = before
    table = expected
    for name in keys[:-1]:
        if place is not None:
            place = place.last(name)
            # What is there already may be neither another thing nor empty, for then it goes with ours.
            assume(place is None or (isinstance(place.value, dict) and place.members))
        table = table.setdefault(name, {})
    table[keys[-1]] = OURS
    assume(place is None or restorable(text, place))
    assume(restorable(text, before))
    changed = put(text, keys)
    assert read(changed).value == expected
    assert comments(changed) == comments(text)
    assert take_out(changed, keys) == text


# In a place -----------------------------------------------------------------------------------------------------------


def restorable(text: str, place: Span) -> bool:
    """An empty place with nothing but white space in it is `{}` afterwards."""
    inner = text[place.start + 1 : place.end - 1]
    return bool(place.members or inner.strip() or not inner)


def order(span: Span) -> list[Any]:
    """Every member, keys that are there twice too."""
    return [(member.key, order(member.value) or member.value.value) for member in span.members]


@given(text=wild(), data=st.data(), first=st.booleans())
def test_what_is_inserted_anywhere_can_be_cut_again(text: str, data: st.DataObject, first: bool) -> None:
    root = read(text)
    number, place = data.draw(st.sampled_from(list(enumerate(places(root)))))
    assume(restorable(text, place))
    key = "ours" if isinstance(place.value, dict) else None
    changed = inserted(text, place, key, "ours", root=root, first=first)
    after = list(places(read(changed)))[number]
    ours = [(key, "ours")]
    assert order(after) == (ours + order(place) if first else order(place) + ours)
    assert comments(changed) == comments(text)
    assert cut(changed, after, 0 if first else len(place.members)) == text


@given(text=wild(), data=st.data())
def test_cutting_takes_one_member_and_no_comment_beside_it(text: str, data: st.DataObject) -> None:
    filled = [each for each in enumerate(places(read(text))) if each[1].members]
    assume(filled)
    number, place = data.draw(st.sampled_from(filled))
    index = data.draw(st.integers(0, len(place.members) - 1))
    left = cut(text, place, index)
    after = list(places(read(left)))[number]
    expected = order(place)
    del expected[index]
    assert order(after) == expected
    start, end = place.members[index].start, place.members[index].value.end
    # One that moves up to the line of another is one with it.
    kept = "".join(comments(text[:start]) + comments(text[end:]))
    assert "".join("".join(comments(left)).split()) == "".join(kept.split())


@pytest.mark.parametrize(
    ("text", "index", "left"),
    [
        ('{"a": 1, // x\n  "b": 2 }', 1, '{"a": 1 // x\n }'),
        ('{"a": 1, // x\n  "b": 2, "c": 3}', 1, '{"a": 1, // x\n  "c": 3}'),
        ('{\n  "a": 1, // x\n  "b": 2 // y\n}', 1, '{\n  "a": 1 // x // y\n}'),
        ('{"a": 1, /* x */ "b": 2}', 1, '{"a": 1 /* x */}'),
        ('{"a": 1, /* x */ "b": 2}', 0, '{/* x */ "b": 2}'),
        ('{"a": 1 /* x */, "b": 2}', 0, '{/* x */ "b": 2}'),
        ('{ /* x */ "a": 1 }', 0, "{ /* x */  }"),
        ('{\n  "a": 1,\n}', 0, "{}"),
    ],
)
def test_what_follows_a_comment_does_not_end_up_in_it(text: str, index: int, left: str) -> None:
    assert cut(text, read(text), index) == left
    assert read(left)


def test_the_first_of_a_list_comes_after_the_comment_about_the_list() -> None:
    text = '{"a": [ // mine\n  // one\n  1\n]}'
    root = read(text)
    assert inserted(text, root.members[0].value, None, 0, root=root, first=True) == (
        '{"a": [ // mine\n  0,\n  // one\n  1\n]}'
    )


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "text"),
    [
        (None, "{}\n"),
        (b"", "{}\n"),
        (b" \r\n", "{}\r\n"),
        (b"\xef\xbb\xbf\n", "\ufeff{}\n"),
        (b'{"a": 1}', '{"a": 1}'),
    ],
)
def test_a_file_with_nothing_in_it_becomes_an_empty_object(before: bytes | None, text: str) -> None:
    assert text_to_change(before, path=PATH) == text


def test_a_file_that_is_no_text_is_refused() -> None:
    with pytest.raises(SettingsError, match="is not UTF-8"):
        text_to_change(b"\xff\xfe", path=PATH)


def test_a_file_in_which_nothing_is_left_goes_and_a_comment_is_something() -> None:
    for before, after in (
        (b'\xef\xbb\xbf{"servers": {"ours": 1}}\r\n', None),
        (b'{"servers": {"ours": 1}} // mine', b"{} // mine"),
        (b'{"servers": {"ours": 1}, "a": 1}', b'{"a": 1}'),
    ):
        assert without(before, take_out, path=PATH) == after
    for untouched in (b"", b"\n", b'{"a": 1}'):
        assert without(untouched, lambda text: text, path=PATH) == untouched
