"""What somebody typed into a form and what is wrong with it. Who sends it has a link and no token."""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from handraise.errors import AnswerDoesNotFit

__all__ = ["MOST_TYPED", "Problems", "Typed", "read_form"]

MOST_FIELDS = 25_000  # of a form: an ask has fewer options than a body may have values
MOST_TYPED = 1024 * 1024  # bytes of a form
_HALF_ESCAPED = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, kw_only=True)
class Typed:
    """A form as it was sent, still escaped; empty where it is shown for the first time."""

    fields: Mapping[str, Sequence[bytes]] = field(default_factory=dict)

    @property
    def button(self) -> str:
        return self.text("do")

    def text(self, name: str) -> str:
        """As the person wrote it; a form has its own ends of lines."""
        return _unescape((self.fields.get(name) or [b""])[-1]).replace("\r\n", "\n").replace("\r", "\n")

    def picked(self, name: str) -> Sequence[str]:
        return [_unescape(value) for value in self.fields.get(name, ())]

    def places(self, name: str) -> list[int]:
        """The places of the options that were picked."""
        return [int(each) for each in self.picked(name) if each.isascii() and each.isdigit() and len(each) < 5]


def read_form(body: bytes) -> Typed:
    """Only what our own form asks for is unescaped, when it is needed. What no browser sends counts as empty."""
    pieces = body.split(b"&", MOST_FIELDS)
    if len(pieces) > MOST_FIELDS or _HALF_ESCAPED.search(body):
        pieces = []
    fields: dict[str, list[bytes]] = {}
    for piece in pieces:
        name, _, value = piece.partition(b"=")
        fields.setdefault(name.decode("latin-1"), []).append(value)
    return Typed(fields=fields)


def _unescape(value: bytes) -> str:
    """As `urllib` does it, which makes an object of every escape: 72 MB and 0.2 s for a form of 1 MiB. Quoted-printable
    has the same escapes behind another sign, and is read by native code."""
    escaped = value.replace(b"+", b" ")
    if b"%" in escaped:
        escaped = binascii.a2b_qp(escaped.replace(b"=", b"=3D").replace(b"%", b"="))
    return escaped.decode("utf-8", "replace")


@dataclass(frozen=True, kw_only=True)
class Problems:
    """Sentences about the whole form, and about single questions by their place."""

    page: Sequence[str] = ()
    questions: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.page or self.questions)

    @classmethod
    def of(cls, unfit: AnswerDoesNotFit) -> Problems:
        by_question: dict[int, list[str]] = {}
        for each in unfit.problems:
            if each.get("question") is not None:
                by_question.setdefault(each["question"], []).append(str(each["problem"]))
        return cls(
            page=[str(each["problem"]) for each in unfit.problems if each.get("question") is None],
            questions=by_question,
        )
