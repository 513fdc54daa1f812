"""Agent text is shown inert: nothing moves, hides or reverses what a person reads."""

from __future__ import annotations

import pytest

from handraise.text.inert import has_hidden, inert, pieces

HIDDEN = {
    "right-to-left override": ("\u202e", "\\u202e"),
    "bidirectional isolate": ("\u2067", "\\u2067"),
    "escape": ("\x1b", "\\x1b"),
    "NUL": ("\x00", "\\x00"),
    "carriage return": ("\r", "\\r"),
    "backspace": ("\x08", "\\x08"),
    "bell": ("\x07", "\\x07"),
    "delete": ("\x7f", "\\x7f"),
    "C1 control sequence introducer": ("\x9b", "\\x9b"),
    "C1 operating system command": ("\x9d", "\\x9d"),
    "zero-width space": ("\u200b", "\\u200b"),
    "zero-width joiner": ("\u200d", "\\u200d"),
    "word joiner": ("\u2060", "\\u2060"),
    "byte order mark": ("\ufeff", "\\ufeff"),
    "tag": ("\U000e0041", "\\U000e0041"),
    "variation selector 17": ("\U000e0100", "\\U000e0100"),
    "variation selector 1": ("\ufe00", "\\ufe00"),
    "emoji style after a letter": ("\ufe0f", "\\ufe0f"),
    "soft hyphen": ("\u00ad", "\\xad"),
    "combining grapheme joiner": ("\u034f", "\\u034f"),
    "hangul filler": ("\u3164", "\\u3164"),
    "halfwidth hangul filler": ("\uffa0", "\\uffa0"),
    "braille blank": ("\u2800", "\\u2800"),
    "line separator": ("\u2028", "\\u2028"),
    "paragraph separator": ("\u2029", "\\u2029"),
    "lone surrogate": ("\ud800", "\\ud800"),
}


@pytest.mark.parametrize(("character", "escape"), HIDDEN.values(), ids=HIDDEN.keys())
def test_a_hidden_character_becomes_a_visible_escape(character: str, escape: str) -> None:
    assert inert(f"a{character}b") == f"a{escape}b"
    assert has_hidden(f"a{character}b")


def test_a_link_and_a_colour_of_a_terminal_stay_text() -> None:
    link = "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\"
    assert inert(link) == "\\x1b]8;;https://evil.example\\x1b\\click\\x1b]8;;\\x1b\\"
    assert inert("\x1b[2J\x1b[31mred") == "\\x1b[2J\\x1b[31mred"


def test_newline_and_tab_stay_unless_one_line_is_wanted() -> None:
    assert inert("a\n\tb") == "a\n\tb"
    assert inert("a\n\tb", keep="") == "a\\n\\tb"
    assert inert("a\n\tb", keep="\t") == "a\\n\tb"
    assert not has_hidden("a\n\tb")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain ASCII, with ~all! of (it)",
        "café, naïve, Ångström, cafe\u0301",
        "日本語 한국어 中文",
        "مرحبا بالعالم",
        "שלום עולם",
        "नमस्ते",
        "🎉 👍🏽 🇩🇪 ❤️ ⚠️ 1️⃣ #️⃣ ‼️ ℹ️",
        "un\u00a0espace insécable, «\u202fet fine »",
        "∑ → ≤ ½ € ━",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert inert(text) == text
    assert not has_hidden(text)


def test_a_message_in_variation_selectors_is_seen() -> None:
    assert inert("👍\ufe0f\ufe0e\ufe0f") == "👍\ufe0f\\ufe0e\\ufe0f"


def test_the_pieces_say_which_of_them_were_hidden() -> None:
    assert list(pieces("a\u202e❤\ufe0f")) == [("a", False), ("\\u202e", True), ("❤", False), ("\ufe0f", False)]
