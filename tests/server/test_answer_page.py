"""Answer links and the page behind them, which needs no script: a GET never answers (U3, U6, X1)."""

from __future__ import annotations

import asyncio
import re
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus, urlencode, urlsplit

import httpx2
import pytest

from handraise.app import open_store
from handraise.clock import SystemClock
from handraise.server.pages.typed import read_form
from handraise.tables.links import LONGEST, Links
from tests.helpers.serving import (
    BASH,
    DATABASE,
    Served,
    a_permission_body,
    path_of,
    refused,
    serving,
    told,
)

HARMLESS = {**BASH, "tool": "Bash", "command": "git status", "summary": "Look", "input": {"command": "git status"}}


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database) as desk:
        yield desk


@pytest.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Served]:
    """For what has nothing to do with the database."""
    async with serving(tmp_path, database="sqlite:///:memory:") as desk:
        yield desk


async def link_to(desk: Served, id: str, **body: Any) -> str:
    return str((await told(desk.http.post(path_of(id, "link"), json=body), 201))["url"])


async def raised(desk: Served, *questions: Mapping[str, Any], **changes: Any) -> str:
    """A link to a new ask with these questions."""
    ask = await desk.ask(**({"questions": questions} if questions else {}), **changes)
    return await link_to(desk, ask["id"])


async def wanted(desk: Served, permission: Mapping[str, Any], **changes: Any) -> str:
    ask = await told(desk.http.post("/v1/asks", json=a_permission_body(permission=permission, **changes)), 201)
    return await link_to(desk, ask["id"])


async def fill(client: httpx2.AsyncClient, url: str, **fields: str | list[str]) -> httpx2.Response:
    """Send the form as a browser does, which names the page's own origin."""
    parts = urlsplit(url)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"{parts.scheme}://{parts.netloc}"}
    return await client.post(url, content=urlencode(fields, doseq=True), headers=headers)


class Form(HTMLParser):
    """What a browser would see of a page: its fields, and its text."""

    def __init__(self, page: httpx2.Response) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def fields(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.tags if attrs.get("name") == name]

    def checked(self, name: str) -> list[str | None]:
        return [attrs["value"] for attrs in self.fields(name) if "checked" in attrs]

    @property
    def buttons(self) -> list[str | None]:
        return [attrs.get("value") for tag, attrs in self.tags if tag == "button" and attrs.get("name") == "do"]


# Links ------------------------------------------------------------------------------------------------------


async def test_whoever_holds_a_link_answers_its_ask_without_a_token(desk: Served) -> None:
    await desk.ask(id="q1")
    made = await told(desk.http.post(path_of("q1", "link"), json={"by": "ana", "via": "mail"}), 201)
    assert made.keys() == {"url", "expires_at"}
    assert made["url"].startswith(f"{desk.url}/a/")
    nobody = await desk.client()
    page = await nobody.get(made["url"])
    assert page.status_code == 200
    sent = await fill(nobody, made["url"], do="send", q0="1")
    assert sent.status_code == 200
    assert "Postgres" in sent.text and "ana" in sent.text
    answer = (await desk.get("q1"))["answer"]
    assert (answer["answers"], answer["by"], answer["via"]) == ([["Postgres"]], "ana", "mail")
    [line] = (await told(desk.http.get("/v1/audit"), 200))["lines"]
    assert (line["decided_by"], line["by"], line["via"]) == ("person", "ana", "mail")
    assert (line["token"], line["address"]) == (desk.admin, "127.0.0.1")


async def test_looking_at_a_link_answers_nothing_and_does_not_use_it_up(desk: Served) -> None:
    url = await raised(desk, id="q1", question_timeout=600)
    before = await desk.get("q1")
    nobody = await desk.client()
    for tried in ("", "?do=send&q0=0", "?do=decline", "?do=wait"):
        assert (await nobody.get(url + tried)).status_code == 200
        assert (await nobody.head(url + tried)).status_code == 200
    after = await desk.get("q1")
    assert {**after, "remaining": 0} == {**before, "remaining": 0}
    assert (await fill(nobody, url, do="send", q0="0")).status_code == 200


async def test_a_link_answers_once(desk: Served) -> None:
    url = await raised(desk, id="q1")
    nobody = await desk.client()
    assert (await fill(nobody, url, do="send", q0="0")).status_code == 200
    for again in (await fill(nobody, url, do="send", q0="1"), await nobody.get(url)):
        assert again.status_code == 410
        assert "This link was used" in again.text and "SQLite" in again.text
        assert "<form" not in again.text
    assert (await desk.get("q1"))["answer"]["answers"] == [["SQLite"]]


async def test_a_link_answers_nothing_that_is_asked_later_under_the_same_id(desk: Served) -> None:
    used, unused = await raised(desk, id="q1"), await link_to(desk, "q1")
    nobody = await desk.client()
    assert (await fill(nobody, used, do="send", q0="0")).status_code == 200
    assert await desk.broker.store.prune(before=2**52, limit=1000) == 2
    await desk.ask(id="q1", questions=[{"question": "Remove everything?", "options": [{"label": "yes"}]}])
    assert (await fill(nobody, used, do="send", q0="0")).status_code == 410
    await desk.broker.store.prune(before=0, limit=1)
    await desk.http.post(path_of("q1", "withdraw"))
    await desk.broker.store.prune(before=2**52, limit=1000)
    await desk.broker.links.forget()  # as the desk does after it has pruned
    await desk.ask(id="q1")
    assert (await fill(nobody, unused, do="send", q0="0")).status_code == 404
    assert (await desk.get("q1"))["state"] == "asked"


async def test_of_two_who_send_at_once_one_wins_and_the_other_is_told(desk: Served) -> None:
    await desk.ask(id="q1")
    links = [await link_to(desk, "q1", by=by) for by in ("ana", "ben")]
    nobody = await desk.client()
    pages = await asyncio.gather(*(fill(nobody, url, do="send", q0=str(place)) for place, url in enumerate(links)))
    assert sorted(page.status_code for page in pages) in ([200, 409], [200, 410])
    (lost,) = [page for page in pages if page.status_code != 200]
    answer = (await desk.get("q1"))["answer"]
    assert answer["by"] in lost.text and answer["answers"][0][0] in lost.text


async def test_a_link_is_kept_as_a_hash_and_outlives_the_desk(tmp_path: Path, lasting_database: str) -> None:
    async with serving(tmp_path, database=lasting_database) as desk:
        url = await raised(desk, id="q1")
        stored = repr(await desk.broker.store.read("select * from links"))
    path = urlsplit(url).path
    secret = path.removeprefix("/a/")
    assert len(secret) >= 43 and "q1" in stored and secret not in stored
    async with serving(tmp_path, database=lasting_database) as desk:
        nobody = await desk.client()
        assert (await nobody.get(path)).status_code == 200
        assert (await fill(nobody, desk.url + path, do="send", q0="0")).status_code == 200
        assert (await desk.get("q1"))["state"] == "answered"


async def test_a_link_works_at_every_desk_of_a_database(tmp_path: Path, new_database: Any) -> None:
    address = new_database()
    async with (
        serving(tmp_path / "one", database=address) as one,
        serving(tmp_path / "two", database=address) as two,
    ):
        path = urlsplit(await raised(one, id="q1")).path
        there = await two.client()
        assert (await there.get(path)).status_code == 200
        assert (await fill(there, two.url + path, do="send", q0="0")).status_code == 200
        assert (await (await one.client()).get(path)).status_code == 410
        assert (await one.get("q1"))["answer"]["via"] == "link"


async def test_a_link_ends_with_its_time(desk: Served) -> None:
    await desk.ask(id="q1")
    made = await told(desk.http.post(path_of("q1", "link"), json={"expires_in": 3600}), 201)
    hash_of_it = "select hash from links"
    await desk.broker.store.write("update links set expires_at = ?", SystemClock().now() - 1)
    assert len(await desk.broker.store.read(hash_of_it)) == 1
    nobody = await desk.client()
    for page in (await nobody.get(made["url"]), await fill(nobody, made["url"], do="send", q0="0")):
        assert page.status_code == 410
        assert "no longer works" in page.text
        assert "SQLite" not in page.text and "Database" not in page.text
    assert (await desk.get("q1"))["state"] == "asked"


async def test_a_link_ends_when_the_token_is_revoked_that_made_it(desk: Served) -> None:
    ana = await desk.caller("ana", "answer")
    await desk.ask(id="q1")
    url = (await told(ana.post(path_of("q1", "link")), 201))["url"]
    nobody = await desk.client()
    assert (await nobody.get(url)).status_code == 200
    assert (await desk.http.delete("/v1/tokens/ana")).status_code == 204
    assert (await nobody.get(url)).status_code == 410
    assert (await fill(nobody, url, do="send", q0="0")).status_code == 410
    assert (await desk.get("q1"))["state"] == "asked"


async def test_links_that_ended_long_ago_are_forgotten(desk: Served) -> None:
    links = Links(desk.broker.store, clock=SystemClock())
    old, _ = await links.make("q1", by="ana", via="link", maker="admin")
    newer, _ = await links.make("q1", by="ana", via="link", maker="admin")
    long_ago = SystemClock().now() - 2 * LONGEST * 1000
    first = await links.find(old)
    assert first is not None
    await desk.broker.store.write("update links set expires_at = ? where hash = ?", long_ago, first.hash)
    await links.make("q1", by="ana", via="link", maker="admin")
    assert await links.find(old) is None
    assert await links.find(newer) is not None


async def test_only_an_admin_says_in_whose_name_a_link_answers(desk: Served) -> None:
    ana = await desk.caller("ana", "answer")
    await desk.ask(id="q1")
    url = (await told(ana.post(path_of("q1", "link"), json={"by": "boss", "via": "policy"}), 201))["url"]
    await fill(await desk.client(), url, do="send", q0="0")
    answer = (await desk.get("q1"))["answer"]
    assert (answer["by"], answer["via"]) == ("ana", "link")
    for by in ("policy:timeout", "agent"):
        await desk.ask(id=by)
        await fill(await desk.client(), await link_to(desk, by, by=by), do="send", q0="0")
        assert (await desk.get(by))["answer"]["by"] == desk.admin


async def test_making_a_link_wants_the_scope_an_open_ask_and_a_time_that_ends(desk: Served) -> None:
    await desk.ask(id="q1")
    ci = await desk.caller("ci", "ask")
    await refused(ci.post(path_of("q1", "link")), 403, "forbidden")
    await refused((await desk.client()).post(path_of("q1", "link")), 401, "unauthorized")
    await refused(desk.http.post(path_of("nobody", "link")), 404, "ask_not_found")
    for seconds in (0, -1, LONGEST + 1, "day", 1e400):
        body = f'{{"expires_in": {seconds if seconds != "day" else chr(34) + "day" + chr(34)}}}'.replace("inf", "1e999")
        await refused(desk.http.post(path_of("q1", "link"), content=body), 400, "bad_request")
    await refused(desk.http.get(path_of("q1", "link")), 405, "method_not_allowed")
    await told(desk.http.post(path_of("q1", "link"), json={"expires_in": LONGEST}), 201)
    await desk.answer("q1", "SQLite")
    await refused(desk.http.post(path_of("q1", "link")), 409, "already_answered")
    await desk.ask(id="q2")
    await told(desk.http.post(path_of("q2", "withdraw")), 200)
    await refused(desk.http.post(path_of("q2", "link")), 410, "ask_withdrawn")


async def test_what_leads_nowhere_says_so_and_many_of_them_are_slowed_down(desk: Served) -> None:
    url = await raised(desk, id="q1")
    nobody = await desk.client()
    secret = url.rpartition("/")[2]
    wrong = ["x", "x" * 43, secret[:-1], secret + "A", secret[::-1], secret.swapcase(), "é", "%00", "a b"]
    for each in wrong:
        page = await nobody.get(f"/a/{each}")
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert (await nobody.post(f"/a/{each}", content="do=send&q0=0")).status_code == 404
    statuses = [(await nobody.get("/a/" + "y" * 43)).status_code for _ in range(30)]
    assert statuses[-1] == 429 and set(statuses) == {404, 429}
    assert (await nobody.get(url)).status_code == 200, "and a link that leads somewhere works all the same"
    assert (await desk.get("q1"))["state"] == "asked"


async def test_a_page_of_another_origin_cannot_send_the_form(desk: Served) -> None:
    url = await raised(desk, id="q1")
    nobody = await desk.client()
    for origin in ("https://evil.example", "null"):
        headers = {"Origin": origin, "Content-Type": "application/x-www-form-urlencoded"}
        await refused(nobody.post(url, content="do=send&q0=0", headers=headers), 403, "forbidden")
    await refused(nobody.get(url, headers={"Host": "evil.example"}), 403, "forbidden")
    assert (await desk.get("q1"))["state"] == "asked"


async def test_no_page_is_kept_referred_to_found_or_scripted(quick: Served) -> None:
    url = await raised(quick)
    nobody = await quick.client()
    pages = [await nobody.get(url), await fill(nobody, url, do="send"), await fill(nobody, url, do="send", q0="0")]
    pages += [await nobody.get(url), await nobody.get("/a/unknown")]
    assert [page.status_code for page in pages] == [200, 422, 200, 410, 404]
    for page in pages:
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "same-origin"
        assert "noindex" in page.headers["x-robots-tag"]
        assert page.headers["x-content-type-options"] == "nosniff"
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; form-action 'self'")
        assert (
            "<script" not in page.text and " style=" not in page.text and " on" not in re.sub(r">[^<]*<", "", page.text)
        )
        links = [attrs.get("href") or "" for tag, attrs in Form(page).tags if tag in ("a", "link")]
        assert all(link.startswith(("#q", "/a/style.css")) for link in links), links
    style = await nobody.get("/a/style.css")
    assert (style.status_code, style.headers["content-type"]) == (200, "text/css; charset=utf-8")


# Questions --------------------------------------------------------------------------------------------------

TARGETS = {
    "header": "Targets",
    "question": "Which hosts?",
    "multiple": True,
    "options": [{"label": "web"}, {"label": "db"}],
}
STRICT = {"question": "Really?", "custom": False, "options": [{"label": "yes"}, {"label": "no"}]}
COUNT = {"question": "How many?", "kind": "number"}


async def test_every_question_is_a_fieldset_with_native_choices(quick: Served) -> None:
    url = await raised(quick, DATABASE, TARGETS, STRICT, COUNT)
    form = Form(await (await quick.client()).get(url))
    assert [attrs["id"] for tag, attrs in form.tags if tag == "fieldset"] == ["q0", "q1", "q2", "q3"]
    assert [attrs["value"] for attrs in form.fields("q0")] == ["0", "1", "own", ""]
    assert {attrs["type"] for attrs in form.fields("q0")} == {"radio"}
    assert [(attrs["type"], attrs["value"]) for attrs in form.fields("q1")] == [("checkbox", "0"), ("checkbox", "1")]
    assert [attrs["value"] for attrs in form.fields("q2")] == ["0", "1", ""]
    assert not form.fields("own2") and form.fields("own0") and form.fields("own1") and form.fields("own3")
    assert not any(form.checked(f"q{index}") for index in range(4)), "nothing is chosen for anybody"
    assert form.buttons == ["send", "decline"]
    assert "Which database should I use?" in form.text and "one file" in form.text and "Question 4 of 4" in form.text


async def test_answers_go_back_as_the_agents_own_values_in_its_order(desk: Served) -> None:
    valued = {"question": "Where?", "options": [{"label": "Here", "value": "h"}, {"label": "There", "value": "t\r\nx"}]}
    url = await raised(desk, valued, TARGETS, DATABASE, COUNT, id="q1")
    fields: dict[str, Any] = {"q0": "1", "q1": ["0", "1"], "own1": "cache", "own2": "  two\r\nlines ", "own3": "4"}
    assert (await fill(await desk.client(), url, do="send", **fields)).status_code == 200
    assert (await desk.get("q1"))["answer"]["answers"] == [["t\r\nx"], ["web", "db", "cache"], ["two\nlines"], ["4"]]


async def test_one_of_several_questions_may_be_left_out(desk: Served) -> None:
    url = await raised(desk, DATABASE, STRICT, id="q1")
    sent = await fill(await desk.client(), url, do="send", q0="", q1="0", own0="")
    assert sent.status_code == 200 and "Not answered; yes" in sent.text
    assert (await desk.get("q1"))["answer"]["answers"] == [[], ["yes"]]


@pytest.mark.parametrize(
    ("fields", "problem", "kept"),
    [
        ({}, "nothing is answered", {}),
        ({"q0": "0", "own0": "mine"}, "You picked a choice and typed an answer", {"q0": ["0"]}),
        ({"q0": "own"}, "You picked your own answer, but typed none", {"q0": ["own"]}),
        ({"own0": "x", "own2": "many"}, "&#39;many&#39; is not a number", {}),
        ({"q0": "9"}, "Use one of the buttons", {}),
        ({"q0": ["0", "1"]}, "one value only", {"q0": ["0", "1"]}),
        ({"q1": ["0", "0"]}, "given twice", {"q1": ["0"]}),
        ({"own1": "<script>alert(1)</script>", "own2": "x"}, "is not a number", {}),
    ],
)
async def test_what_does_not_fit_comes_back_with_what_was_typed(
    quick: Served, fields: dict[str, Any], problem: str, kept: dict[str, list[str]]
) -> None:
    url = await raised(quick, DATABASE, TARGETS, COUNT, id="q1")
    nobody = await quick.client()
    again = await fill(nobody, url, do="send", reason="<because>", **fields)
    assert again.status_code == 422
    assert problem in again.text and 'role="alert"' in again.text
    assert "<script" not in again.text and "<because" not in again.text and "&lt;because&gt;" in again.text
    form = Form(again)
    assert all(form.checked(name) == values for name, values in kept.items())
    assert all(
        value in form.text or value in again.text
        for name, value in fields.items()
        if name.startswith("own") and "<" not in value
    )
    assert (await quick.get("q1"))["state"] == "asked"
    assert (await fill(nobody, url, do="send", q0="0")).status_code == 200, "the link is as good as before"


async def test_a_button_that_is_not_there_does_nothing(quick: Served) -> None:
    url = await raised(quick, id="q1")
    nobody = await quick.client()
    for body in (
        b"",
        b"q0=0",
        b"do=allow&reply=0",
        b"do=answer&q0=0",
        b"\xff\xfe=%ff&do",
        b"&" * 50_000,
        b'{"do":"send"}',
    ):
        page = await nobody.post(url, content=body)
        assert page.status_code == 422, body
    assert (await nobody.post(url, content=b"x" * 5_000_000)).status_code == 413
    assert (await quick.get("q1"))["state"] == "asked"


async def test_declining_takes_a_reason(desk: Served) -> None:
    url = await raised(desk, id="q1")
    page = await fill(await desk.client(), url, do="decline", reason="let us talk\r\nfirst", q0="0")
    assert page.status_code == 200 and "Declined by" in page.text and "let us talk" in page.text
    ask = await desk.get("q1")
    assert (ask["state"], ask["answer"]["reason"]) == ("rejected", "let us talk\nfirst")


async def test_the_page_says_what_silence_does_and_moves_the_deadline(desk: Served) -> None:
    url = await raised(desk, id="q1", question_timeout=600, on_timeout="accept-first")
    nobody = await desk.client()
    before = await desk.get("q1")
    page = await nobody.get(url)
    assert re.search(r"If nobody answers by \d{4}-\d\d-\d\d \d\d:\d\d UTC, “SQLite” is picked\.", page.text)
    assert '<span class="badge">default</span>' in page.text
    moved = await fill(nobody, url, do="wait", own0="half a sent")
    assert moved.status_code == 200 and "The deadline was moved." in moved.text and "half a sent" in moved.text
    assert (await desk.get("q1"))["deadline"] > before["deadline"]
    assert "wait" not in Form(await nobody.get(await raised(desk, id="q2"))).buttons


async def test_what_was_decided_elsewhere_is_told_with_who_and_what(desk: Served) -> None:
    nobody, ana = await desk.client(), await desk.caller("ana", "answer")
    answered, declined, withdrawn = [await raised(desk, id=id) for id in ("q1", "q2", "q3")]
    await told(ana.post(path_of("q1", "answer"), json={"answers": [["Postgres"]], "via": "web"}), 200)
    await told(ana.post(path_of("q2", "reject"), json={"reason": "not <now>"}), 200)
    await told(desk.http.post(path_of("q3", "withdraw")), 200)
    for url, words in (
        (answered, ("Already decided", "Postgres", "ana")),
        (declined, ("Declined by ana", "not &lt;now&gt;")),
    ):
        for page in (await nobody.get(url), await fill(nobody, url, do="send", q0="0")):
            assert page.status_code == 410 and "<form" not in page.text
            assert all(word in page.text for word in words), page.text
    gone = await nobody.get(withdrawn)
    assert gone.status_code == 410 and "scripted is no longer waiting." in gone.text


async def test_the_page_speaks_the_language_of_the_browser(quick: Served) -> None:
    url = await raised(quick)
    nobody = await quick.client()
    german = await nobody.get(url, headers={"Accept-Language": "de-DE,de;q=0.9,en;q=0.8"})
    assert '<html lang="de"' in german.text and "scripted fragt" in german.text
    assert german.headers["content-language"] == "de"
    assert "Which database should I use?" in german.text
    assert '<html lang="en"' in (await nobody.get(url, headers={"Accept-Language": "xx"})).text
    sign_in = (await told(quick.http.post("/v1/signin"), 201))["url"]
    assert '<html lang="de"' in (await nobody.get(sign_in, headers={"Accept-Language": "de"})).text


async def test_what_an_agent_wrote_is_inert_and_what_is_hidden_is_seen(quick: Served) -> None:
    evil = "<img src=x onerror=alert(1)>\u202e\x1b[31m\u200b"
    question = {
        "header": evil,
        "question": f"{evil} {{agent}} {{0}}",
        "options": [{"label": f"{evil}{number}", "description": evil, "preview": evil} for number in range(3)]
        + [{"label": "x" * 10_000}],
    }
    origin = {
        "agent": evil.replace("\x1b", "").replace("\u202e", "").replace("\u200b", ""),
        "session": "s",
        "cwd": evil,
    }
    url = await raised(quick, question, origin=origin)
    page = await (await quick.client()).get(url)
    assert page.status_code == 200
    assert not any(character in page.text for character in "\u202e\x1b\u200b")
    assert "<img" not in page.text and "&lt;img src=x onerror=alert(1)&gt;" in page.text
    assert r"<mark>\u202e</mark>" in page.text and r"<mark>\x1b</mark>" in page.text
    assert "{agent} {0}" in page.text
    assert "Show all (10000 characters)" in page.text and "x" * 10_000 in page.text


async def test_the_largest_ask_can_be_shown_and_answered(quick: Served) -> None:
    many = [
        {"question": "é" * 200, "multiple": True, "options": [{"label": f"é{n}"} for n in range(100)]}
        for _ in range(50)
    ]
    url = await raised(quick, *many, id="q1")
    nobody = await quick.client()
    assert (await nobody.get(url)).status_code == 200
    fields = {f"q{index}": [str(n) for n in range(100)] for index in range(50)}
    assert (await fill(nobody, url, do="send", **fields)).status_code == 200
    assert len((await quick.get("q1"))["answer"]["answers"][49]) == 100


# Permissions ------------------------------------------------------------------------------------------------


async def test_a_permission_that_is_too_long_to_be_shown_can_only_be_denied(quick: Served) -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n" + "+line\n" * 100_000
    edit = {"tool": "Edit", "paths": ["x"], "resolved": ["/x"], "diff": diff, "replies": ["once", "reject"]}
    whole = Form(await (await quick.client()).get(await wanted(quick, {**edit, "diff": diff[:30_000]})))
    assert "allow" in whole.buttons
    url = await wanted(quick, edit)
    nobody = await quick.client()
    page = await nobody.get(url)
    assert len(page.text) < 500_000
    form = Form(page)
    assert form.buttons == ["deny"] and "Open it at the desk" in form.text
    assert (await fill(nobody, url, do="allow")).status_code == 403
    assert (await fill(nobody, url, do="deny")).status_code == 200


async def test_a_permission_is_shown_whole_with_what_hides_in_it(quick: Served) -> None:
    permission = {
        **BASH,
        "command": " echo \u202etxt\t'" + "long " * 500 + "' \nsecond  ",
        "paths": ["src/a b.py"],
        "diff": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new \u200b \n",
        "cwd": "/srv/shop",
    }
    page = await (await quick.client()).get(await wanted(quick, permission))
    text = Form(page).text
    assert "scripted wants to run a command" in text
    assert "long " * 500 in text
    assert r"·echo \u202etxt\t&#x27;".replace("&#x27;", "'") in text
    assert "⏎\nsecond··" in text
    assert "src/a b.py" in text and "in /srv/shop" in text and "Contains hidden characters" in text
    assert '<span class="del">-old</span>' in page.text and r"+new <mark>\u200b</mark><mark>·</mark>" in page.text


async def test_only_replies_that_the_agent_takes_are_offered(quick: Served) -> None:
    nobody = await quick.client()
    only_once = Form(await nobody.get(await wanted(quick, {**HARMLESS, "replies": ["once", "reject"], "scopes": []})))
    assert not only_once.fields("reply") and only_once.buttons == ["allow", "deny"] and "Allow once" in only_once.text
    scoped = Form(await nobody.get(await wanted(quick, HARMLESS)))
    assert len(scoped.fields("reply")) == 3 and scoped.checked("reply") == ["0"]
    assert "this session" in scoped.text and "rm -rf build" in scoped.text and "rm *" in scoped.text
    nothing = Form(await nobody.get(await wanted(quick, {**HARMLESS, "replies": ["reject"], "scopes": []})))
    assert nothing.buttons == ["deny"]


async def test_allowing_denying_and_remembering_reach_the_agent(desk: Served) -> None:
    nobody = await desk.client()
    once = await fill(nobody, await wanted(desk, HARMLESS, id="p1"), do="allow", reply="0")
    assert once.status_code == 200 and "Allowed once" in once.text
    always = await fill(nobody, await wanted(desk, HARMLESS, id="p2"), do="allow", reply="2")
    assert always.status_code == 200 and "this project" in always.text
    denied = await fill(nobody, await wanted(desk, HARMLESS, id="p3"), do="deny", reply="0", reason="use a branch")
    assert denied.status_code == 200 and "use a branch" in denied.text
    answers = [(await desk.get(id))["answer"] for id in ("p1", "p2", "p3")]
    assert [answer["reply"] for answer in answers] == ["once", "always", "reject"]
    assert answers[1]["scope"] == "project" and answers[2]["reason"] == "use a branch"


async def test_a_reply_that_was_not_offered_is_refused(quick: Served) -> None:
    url = await wanted(quick, HARMLESS, id="p1")
    nobody = await quick.client()
    for reply in (["3"], ["0", "1"], ["always"], ["-1"], []):
        assert (await fill(nobody, url, do="allow", reply=reply)).status_code == 422
    assert (await quick.get("p1"))["state"] == "asked"


async def test_what_is_risky_is_denied_there_and_allowed_only_at_the_desk(desk: Served) -> None:
    url = await wanted(desk, {**BASH, "command": "rm -rf /srv/shop"}, id="a/p1")
    nobody = await desk.client()
    shown = Form(await nobody.get(url))
    assert shown.buttons == ["deny"] and not shown.fields("reply")
    assert "sign in at the desk" in shown.text
    assert [attrs["href"] for tag, attrs in shown.tags if tag == "a"] == ["/#/ask/a%2Fp1"]
    for tried in ({"reply": "0"}, {"reply": "2"}, {"reply": "0", "sure": "yes"}, {}):
        refused_ = await fill(nobody, url, do="allow", reason="kept", **tried)
        assert refused_.status_code == 403
        assert "Nothing was sent yet" in refused_.text and "kept" in refused_.text
    assert (await desk.get("a/p1"))["state"] == "asked"
    assert (await fill(nobody, url, do="deny", reason="not this folder")).status_code == 200
    assert (await desk.get("a/p1"))["answer"]["reason"] == "not this folder"
    harmless = Form(await nobody.get(await wanted(desk, HARMLESS)))
    assert harmless.buttons == ["allow", "deny"] and "sign in at the desk" not in harmless.text


async def test_a_plan_is_shown_as_a_plan(quick: Served) -> None:
    plan = {
        "tool": "ExitPlanMode",
        "kind": "plan",
        "input": {"plan": "1. Look\n2. Leap"},
        "replies": ["once", "reject"],
    }
    text = Form(await (await quick.client()).get(await wanted(quick, plan))).text
    assert "scripted wants its plan approved" in text and "1. Look\n2. Leap" in text


async def test_enter_presses_no_button(quick: Served) -> None:
    for url in (await raised(quick), await wanted(quick, HARMLESS)):
        page = await (await quick.client()).get(url)
        first = next(attrs for tag, attrs in Form(page).tags if tag == "button")
        assert first.keys() == {"disabled", "hidden"}


# When something fails ---------------------------------------------------------------------------------------


async def test_links_come_along_when_a_store_is_copied(tmp_path: Path) -> None:
    from handraise.stores._copy import copy

    async with serving(tmp_path, database=f"sqlite:///{tmp_path / 'one.db'}") as desk:
        url = await raised(desk, id="q1")
    source, target = [await open_store(f"sqlite:///{tmp_path / name}") for name in ("one.db", "two.db")]
    await copy(source, target)
    await source.close()
    await target.close()
    async with serving(tmp_path, database=f"sqlite:///{tmp_path / 'two.db'}") as desk:
        assert (await (await desk.client()).get(urlsplit(url).path)).status_code == 200


@pytest.mark.parametrize("unit", ["%41", "%f0%9f%98%80", "%41é", "%00", "+%3D="])
def test_a_form_full_of_escapes_is_read_like_any_other_and_takes_little_memory(unit: str) -> None:
    value = unit * (1_000_000 // len(unit.encode()))
    body = f"own0={value}&do=send".encode()
    tracemalloc.start()
    try:
        typed = read_form(body)
        assert typed.button == "send" and typed.text("own0") == unquote_plus(unit) * (len(value) // len(unit))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("body", [b"do=deny&x=%4", b"do=deny&x=%zz", b"do=deny" + b"&a=b" * 30_000])
def test_a_form_that_no_browser_sends_says_nothing(body: bytes) -> None:
    assert read_form(body).button == ""
