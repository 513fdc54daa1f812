"""The pages of signing in: the button, what hands a browser its half of the session, and the link that was used."""

from __future__ import annotations

from htpy import button, form, fragment, noscript, p, script
from starlette.responses import HTMLResponse

from handraise.server.pages._page import page
from handraise.text.words import Words

__all__ = ["sign_in_over_page", "sign_in_page", "signed_in_page"]


def sign_in_page(t: Words) -> HTMLResponse:
    """A button to press, so that a preview of the link signs nobody in."""
    return page(t, t("signin.title"), form(method="post")[button[t("signin.button")]])


def sign_in_over_page(t: Words) -> HTMLResponse:
    return page(t, t("signin.over"), p[t("signin.over.text", command="handraise open")], status=410)


def signed_in_page(t: Words, secret: str) -> HTMLResponse:
    """Hands a browser its half of a session: a script of the app keeps it for this origin, and goes on to the inbox.

    It stands in the page, which no other origin can read, no cache keeps and no history leads back to. An address
    would be written down on the way."""
    content = fragment[
        p(id="session", data_secret=secret, hidden=True)[t("signin.unkept")],
        noscript[p[t("signin.noScript")]],
        script(type="module", src="/app/sign_in.js"),
    ]
    response = page(t, t("signin.title"), content)
    response.headers["content-security-policy"] = (
        "default-src 'none'; script-src 'self'; style-src 'self'; form-action 'none'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )
    return response
