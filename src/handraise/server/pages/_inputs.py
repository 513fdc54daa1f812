"""The parts that forms are made of."""

from __future__ import annotations

import htpy
from htpy import Element, label, p, textarea
from markupsafe import Markup

from handraise.server.pages._text import NOTHING, Template, show
from handraise.text.words import Words

__all__ = ["FOLDED", "button", "buttons", "choice", "reason_field", "whole_text"]

CHOICE = Template(
    '<div class="choice"><label><input type="{}" name="{}" value="{}"{}{}><span dir="auto">{}</span>{}</label>{}</div>'
)
CHECKED = Markup(" checked")
DESCRIBED = Template(' aria-describedby="{}"')
FOLDED = Template('<details><summary>{}</summary><pre dir="auto">{}</pre></details>')


def button(value: str, name: str, *, kind: str | None = None) -> Element:
    return htpy.button(name="do", value=value, class_=kind)[name]


def buttons(*pressed: Element) -> Element:
    return p(class_="buttons")[pressed]


def choice(
    name: str,
    value: str,
    text: str,
    *,
    checked: bool,
    kind: str = "radio",
    described: str = "",
    beside: str = NOTHING,
    below: str = NOTHING,
) -> Markup:
    """A box to tick with its text, what stands beside the text, and what stands below both."""
    about = DESCRIBED(described) if described else NOTHING
    return CHOICE(kind, name, value, CHECKED if checked else NOTHING, about, text, beside, below)


def whole_text(t: Words, text: str, *, limit: int) -> Markup:
    """All of a text that was cut."""
    return FOLDED(t("text.showAll", count=len(text)), show(text)) if len(text) > limit else NOTHING


def reason_field(name: str, *, text: str) -> list[Element]:
    # A form drops the first end of a line, so it begins with one.
    field = textarea(id="reason", name="reason", rows="2", dir="auto")["\n", text]
    return [label(for_="reason")[name], field]
