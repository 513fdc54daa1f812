"""Makes text that an agent wrote safe to show. Every surface calls this, and nothing else does the job."""

from __future__ import annotations

import unicodedata

__all__ = ["has_hidden", "inert"]

# Letters by category, blanks to the eye: used to hide or fake text.
_BLANK_LETTERS = "\u115f\u1160\u3164\uffa0\u2800"
# Cc control, Cf format (bidirectional, zero-width, tags), Cs lone surrogates, Zl/Zp line and paragraph separators.
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _hides(character: str) -> bool:
    return character in _BLANK_LETTERS or unicodedata.category(character) in _HIDDEN_CATEGORIES


def has_hidden(text: str) -> bool:
    """Whether the text holds characters that a reader would not see. Newline and tab do not count."""
    return any(_hides(character) and character not in "\n\t" for character in text)


def inert(text: str, *, keep: str = "\n\t") -> str:
    """The text with every control, bidirectional, zero-width or otherwise hidden character as a visible escape.

    `keep` names the control characters that stay: newline and tab by default, none for a single line.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape(character) if _hides(character) and character not in keep else character for character in text
    )


def _escape(character: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    if named is not None:
        return named
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
