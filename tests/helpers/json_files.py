"""JSON as people keep it in their files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

__all__ = ["COMMENTED", "VALUES", "Style", "wild"]

COMMENTED = """\
{
    // what I like
    "theme":   "dark", /* or light */
    "TABLE": {
        "files": { "command": "npx", "args": ["-y", "files"] }, // the first
        "web": {
            "url": "https://mcp.example.com"
        } // the last
    },
    "other": [1, 2, ],
}
"""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a program writes a file."""

    indent: int | str | None
    is_tight: bool
    newline: str
    end: str

    def written(self, settings: Any) -> str:
        separators = (",", ":") if self.is_tight else None
        return (json.dumps(settings, indent=self.indent, separators=separators) + self.end).replace("\n", self.newline)

    @staticmethod
    def any() -> st.SearchStrategy[Style]:
        return st.builds(
            Style,
            indent=st.sampled_from([None, 1, 2, "\t", ""]),
            is_tight=st.booleans(),
            newline=st.sampled_from(["\n", "\r\n"]),
            end=st.sampled_from(["", "\n", "\n\n  "]),
        )


_GAPS = st.lists(
    st.sampled_from([" ", "\t", "\n", "\r\n", "\n  ", "// }],\n", "// x\r\n  ", "/* ], */", "/* x\n*/", "/**/"]),
    max_size=3,
).map("".join)
_KEYS = st.sampled_from(["a", "b", 'c"', "ü//"])


@st.composite
def wild(draw: st.DrawFn) -> str:
    """A table as a person may have written it: comments and line ends anywhere, keys twice, a comma too many."""
    gap = st.just("") if draw(st.booleans()) else _GAPS

    def value(depth: int) -> str:
        kind = draw(st.sampled_from("{[1") if depth < 3 else st.just("1"))
        return (
            draw(st.sampled_from(["1", "-2.5e3", "null", '"x"', '"// {\\""'])) if kind == "1" else members(kind, depth)
        )

    def members(kind: str, depth: int) -> str:
        text = kind
        count = draw(st.integers(0, 3))
        for index in range(count):
            text += draw(gap)
            if kind == "{":
                text += json.dumps(draw(_KEYS), ensure_ascii=False) + draw(gap) + ":" + draw(gap)
            text += value(depth + 1) + draw(gap)
            text += "," if index < count - 1 or draw(st.booleans()) else ""
        return text + draw(gap) + ("}" if kind == "{" else "]")

    return draw(st.sampled_from(["", "\ufeff"])) + draw(gap) + members("{", 0) + draw(gap)
