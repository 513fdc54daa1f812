"""Hostile texts through every page that needs no script: they stay text, wherever they stand."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from markupsafe import Markup, escape

from handraise.server.pages._text import Template, show, show_line, show_verbatim
from handraise.text.inert import has_hidden, inert
from tests.helpers.serving import BASH, DATABASE, Served, serving, told
from tests.server.test_answer_page import COUNT, HARMLESS, TARGETS, Form, fill, raised, wanted

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "\"'`&<>=/",
    "</textarea></pre></code></title><script>alert(1)</script>",
    '" autofocus onfocus="alert(1)',
    "' onmouseover='alert(1)",
    "&lt;b&gt;&#60;script&#62;",
    "a\u202eb\u2066c\u200bd\x1b[31m\u2028e\U000e0041",
    "<!-- --><![CDATA[x]]><?php",
    "{agent} {0} %s {}",
    "javascript:alert(1)",
]
TAGS = """
    html head meta title link body main h1 p span form button fieldset legend label input textarea details summary pre
    mark div ul ol li a code br
""".split()  # noqa: SIM905 - a list to read
ATTRIBUTES = """
    lang dir charset name content rel href method accept-charset disabled hidden class id value type checked open role
    rows for aria-label aria-describedby inputmode autocomplete
""".split()  # noqa: SIM905 - a list to read


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path, database="sqlite:///:memory:") as desk:
        yield desk


def check(page: httpx2.Response, text: str, *, shows: bool = True) -> None:
    """Nothing but our own markup is there, nothing hidden came through, and the text can be read where it is shown."""
    form = Form(page)
    assert {tag for tag, _ in form.tags} <= {*TAGS}
    assert {name for _, attributes in form.tags for name in attributes} <= {*ATTRIBUTES}
    links = [attributes.get("href") or "" for _, attributes in form.tags]
    assert all(re.fullmatch(r"|#q\d+|/a/style\.css|/#/ask/[\w%.~-]+", link) for link in links), links
    outside = page.text if not re.search("textarea|inputmode", page.text) else without_fields(page.text)
    assert not has_hidden(outside)
    if shows:
        assert inert(text, keep="") in form.text.replace("·", " ")


def without_fields(text: str) -> str:
    """A field holds what the person typed as it was typed, to be sent again."""
    return re.sub(r'(?s)<textarea.*?</textarea>|value="[^"]*"', "", text)


@pytest.mark.parametrize("text", HOSTILE)
async def test_a_question_stays_text_on_every_page(desk: Served, text: str) -> None:
    options = [{"label": f"{text}{place}", "description": text, "preview": text} for place in range(2)]
    question = {"header": text, "question": f"{text} twice {text}", "options": [*options, {"label": text * 50}]}
    origin = {"agent": re.sub(r"[^ -~]", "", text), "session": "s", "cwd": text, "run": "r"}
    asked: dict[str, Any] = {"origin": origin, "question_timeout": 600, "on_timeout": "accept-first"}
    url = await raised(desk, question, DATABASE, TARGETS, COUNT, **asked)
    nobody = await desk.client()
    check(await nobody.get(url), text)
    for button, status in (("send", 422), ("nothing", 422), ("wait", 200)):
        again = await fill(nobody, url, do=button, own0=text, own3=text, reason=text, q0="0")
        assert again.status_code == status
        check(again, text)
        typed = [attributes["value"] for attributes in Form(again).fields("own3")]
        assert typed == [text.strip()] or typed == [text]
    sent = await fill(nobody, url, do="send", own0=text, own3="3")
    assert sent.status_code == 200
    check(sent, text)
    check(await nobody.get(url), text)
    declined = await fill(nobody, await raised(desk, question, origin=origin), do="decline", reason=text)
    assert declined.status_code == 200
    check(declined, text)


@pytest.mark.parametrize("text", HOSTILE)
async def test_a_permission_stays_text_on_every_page(desk: Served, text: str) -> None:
    nobody = await desk.client()
    risky = {
        **BASH,
        "tool": f"Bash{text}",
        "command": f"rm -rf / {text}",
        "summary": text,
        "paths": [text],
        "diff": f"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-{text}\n+{text} \n",
        "cwd": f"/{text}",
        "input": {"note": text},
    }
    scopes = [{"id": "s", "label": text, "patterns": [text]}, {"id": text, "label": "", "patterns": []}]
    for permission, allowed in ((risky, 403), ({**HARMLESS, "summary": text, "scopes": scopes}, 200)):
        url = await wanted(desk, permission)
        check(await nobody.get(url), text)
        check(await fill(nobody, url, do="allow", reason=text, reply="9"), text)
        done = await fill(nobody, url, do="allow", reason=text, reply="1")
        assert done.status_code == allowed
        check(done, text)
        if allowed == 403:
            check(await fill(nobody, url, do="deny", reason=text), text)


@pytest.mark.parametrize("text", HOSTILE)
async def test_an_address_that_leads_nowhere_is_never_shown(desk: Served, text: str) -> None:
    nobody = await desk.client()
    for path in ("/a/", "/signin/"):
        page = await nobody.get(path + quote(text, safe="").replace("%2F", "x"))
        assert page.status_code in (200, 404)
        check(page, text, shows=False)
        assert text not in page.text and str(escape(text)) not in page.text


async def test_the_secret_of_a_browser_stands_in_one_attribute(desk: Served) -> None:
    url = (await told(desk.http.post("/v1/signin"), 201))["url"]
    page = await (await desk.client()).post(url, headers={"Origin": desk.url})
    tags = Form(page).tags
    assert [attributes for tag, attributes in tags if tag == "script"] == [
        {"type": "module", "src": "/app/sign_in.js"}
    ], "one script of ours, none in the page"
    assert sum("data-secret" in attributes for _, attributes in tags) == 1


@pytest.mark.parametrize("text", HOSTILE)
def test_a_template_escapes_texts_and_keeps_markup(text: str) -> None:
    template = Template('<i title="{}">{}</i>')
    assert template(text, Markup("<b>")) == f'<i title="{escape(text)}"><b></i>'
    assert template(text, text).count("<") == 2
    with pytest.raises(ValueError, match="argument"):
        template(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_an_agent_has_no_markup_but_marks(text: str) -> None:
    for drawn in (show(text), show_line(text), show_verbatim(f" {text}\n{text} ")):
        assert "<" not in re.sub("</?mark>", "", drawn)
        assert not has_hidden(drawn)
