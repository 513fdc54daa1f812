"""Makes text that an agent wrote safe to show. Every surface calls this, and nothing else does the job."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

__all__ = ["has_hidden", "inert", "pieces"]

# Cc control, Cf format (bidirectional, zero-width, tags), Cs lone surrogates, Zl/Zp line and paragraph separators.
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# Letters and marks by category, nothing to the eye (Unicode: Default_Ignorable_Code_Point, and the blank of Braille).
_BLANK = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0xFE00, 0xFE0E), *range(0xFFF0, 0xFFF9))))
)
_SELECTORS = range(0xE0000, 0xE1000)  # tags, variation selectors and what is reserved beside them
# Text or emoji style. Part of the symbol before it; after anything else it is a bit of a hidden message.
_STYLES = "\ufe0e\ufe0f"


def _hides(character: str, before: str) -> bool:
    if character in _STYLES:
        return not before or (before != "ℹ" and unicodedata.category(before)[0] not in "SNP")
    return character in _BLANK or ord(character) in _SELECTORS or unicodedata.category(character) in _HIDDEN_CATEGORIES


def pieces(text: str, *, keep: str = "\n\t") -> Iterator[tuple[str, bool]]:
    """The inert text character by character, each with whether it stands for a hidden one: for a warning colour."""
    before = ""
    for character in text:
        hidden = character not in keep and _hides(character, before)
        yield (_escape(character) if hidden else character), hidden
        before = character


def has_hidden(text: str) -> bool:
    """Whether the text holds characters that a reader would not see. Newline and tab do not count."""
    return not _is_plain(text) and any(hidden for _, hidden in pieces(text))


def inert(text: str, *, keep: str = "\n\t") -> str:
    """The text with every control, bidirectional, zero-width or otherwise hidden character as a visible escape.

    `keep` names the control characters that stay: newline and tab by default, none for a single line.
    """
    return text if _is_plain(text) else "".join(shown for shown, _ in pieces(text, keep=keep))


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _escape(character: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    if named is not None:
        return named
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
