"""What every page shares: its frame, its headers and its language."""

from __future__ import annotations

from htpy import Node, body, h1, head, html, link, main, meta
from htpy import title as title_element
from starlette.requests import Request
from starlette.responses import HTMLResponse

from handraise.text.words import Words, preferred, speak

__all__ = ["STYLE", "page", "words_for"]

STYLE = "/a/style.css"
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    # To nobody else. `no-referrer` would make browsers send `Origin: null` with a form, which no gate could tell from
    # a stranger's.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-robots-tag": "noindex, nofollow",
    "cache-control": "no-store",
}


def page(t: Words, title: str, content: Node, *, status: int = 200, agent_title: bool = False) -> HTMLResponse:
    """A whole page. Where an agent wrote part of the title, it is read in its own direction."""
    whole = html(lang=t.language, dir=t("dir"))[
        head[
            meta(charset="utf-8"),
            title_element[f"{title} · handraise"],
            meta(name="viewport", content="width=device-width, initial-scale=1"),
            meta(name="robots", content="noindex"),
            meta(name="color-scheme", content="light dark"),
            link(rel="stylesheet", href=STYLE),
        ],
        body[main[h1(dir="auto" if agent_title else None)[title], content]],
    ]
    headers = HEADERS | {"content-language": t.language, "vary": "accept-language"}
    return HTMLResponse(str(whole), status_code=status, headers=headers)


def words_for(request: Request) -> Words:
    return speak(preferred(request.headers.get("accept-language", "")))
