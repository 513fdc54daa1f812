"""The inbox as a whole: what it shows in which order, over many tabs, without the desk, and before anybody looks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.async_api import Page, Request, expect

from handraise.testing import FakeClock
from tests.browser.axe import findings
from tests.browser.people import Desk, People, Tab
from tests.helpers.serving import eventually, path_of, told

WEB = Path(__file__).parents[2] / "src" / "handraise" / "web"
TABS = 9  # more than the six connections that a browser has for one host


def ids(tab: Tab) -> Any:
    return tab.cards.evaluate_all("cards => cards.map(card => card.dataset.ask)")


async def test_a_new_card_appears_is_counted_and_announced_without_taking_the_focus(desk: Desk, people: People) -> None:
    await desk.ask(id="q1")
    inbox = await people.inbox()
    await inbox.card("q1").own.fill("half a thou")
    await desk.ask(id="q2", header="Colour")
    await expect(inbox.card("q2").element).to_be_visible()
    await expect(inbox.page.get_by_role("status").filter(has_text="New question from")).to_have_count(1)
    await expect(inbox.card("q1").own).to_be_focused()
    await expect(inbox.page).to_have_title("(2) Inbox · handraise")


async def test_a_burst_of_new_questions_is_one_sentence(desk: Desk, inbox: Tab) -> None:
    await expect(inbox.page.get_by_text("Nothing is waiting for you.")).to_be_visible()
    for number in range(3):
        await desk.ask(id=f"q{number}")
    await expect(inbox.page.get_by_role("status").filter(has_text=re.compile(r"\d new questions"))).to_have_count(1)


async def test_the_nearest_deadline_comes_first_then_what_is_risky_then_the_oldest(desk: Desk, people: People) -> None:
    await desk.ask(id="old")
    await desk.want(id="risky", command="rm -rf build")
    await desk.ask(id="later", body={"question_timeout": 3000})
    await desk.ask(id="soon", body={"question_timeout": 300})
    await desk.ask(id="young")
    tab = await people.inbox()
    await expect(tab.cards).to_have_count(5)
    assert await ids(tab) == ["soon", "later", "risky", "old", "young"]


async def test_what_would_come_above_the_card_in_use_waits_behind_a_pill(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await inbox.card("q1").own.focus()
    await desk.ask(id="soon", body={"question_timeout": 300})
    pill = inbox.page.get_by_role("button", name="1 new above")
    await expect(pill).to_be_visible()
    assert await ids(inbox) == ["q1"]
    await desk.ask(id="after")
    await expect(inbox.card("after").element).to_be_visible()
    await pill.click()
    await expect(inbox.card("soon").element).to_be_visible()
    assert await ids(inbox) == ["soon", "q1", "after"]


async def test_many_tabs_stay_live_on_one_stream(desk: Desk, people: People) -> None:
    person = await people.stranger()
    streams: list[str] = []
    person.context.on("request", lambda request: _note(request, streams))
    tabs = [await person.sign_in()] + [await person.tab() for _ in range(TABS - 1)]
    for tab in tabs:
        await expect(tab.page.get_by_text("Nothing is waiting for you.")).to_be_visible()
    await desk.ask(id="q1")
    for tab in tabs:
        await expect(tab.card("q1").element).to_be_visible()
    assert len(streams) == 1
    await tabs[0].page.close()
    await desk.ask(id="q2")
    for tab in tabs[1:]:
        await expect(tab.card("q2").element).to_be_visible()
    await eventually(lambda: len(streams) == 2)  # the list may be read before it
    await desk.answer("q1", "SQLite", by="ana")
    for tab in tabs[1:]:
        await expect(tab.card("q1").element).to_contain_text("ana")
    assert len(streams) == 2


def _note(request: Request, streams: list[str]) -> None:
    if "/v1/events" in request.url:
        streams.append(request.url)


async def test_what_happened_while_the_desk_was_away_is_there_when_it_is_back(desk: Desk, inbox: Tab) -> None:
    inbox.complaints.allow("ERR_|Failed to load")
    await desk.ask(id="q1")
    await desk.ask(id="q2")
    await expect(inbox.cards).to_have_count(2)
    await desk.stop()
    await expect(inbox.page.get_by_text("Reconnecting…")).to_be_visible()
    await desk.start()
    await desk.answer("q1", "SQLite", by="ana")
    await desk.ask(id="q3")
    await inbox.page.evaluate("dispatchEvent(new Event('online'))")
    await expect(inbox.card("q3").element).to_be_visible()
    await expect(inbox.card("q1").element).to_contain_text("ana")
    await expect(inbox.page.get_by_text("Reconnecting…")).to_have_count(0)
    await expect(inbox.card("q2").element).to_have_attribute("data-state", "asked")


async def test_the_page_opens_without_the_desk_with_what_was_known(desk: Desk, inbox: Tab) -> None:
    inbox.complaints.allow("ERR_|Failed to load|Failed to fetch")
    await desk.ask(id="q1", header="Storage")
    await expect(inbox.card("q1").element).to_be_visible()
    await is_kept(inbox.page)
    await desk.stop()
    await inbox.page.reload()
    await expect(inbox.page.get_by_text(re.compile(r"This is how things stood at \d\d:\d\d"))).to_be_visible()
    await expect(inbox.card("q1").element).to_contain_text("Storage")


async def is_kept(page: Page) -> None:
    """Until the service worker has every file, and the cards are remembered."""
    assert await page.evaluate(
        """async () => {
          for (let turn = 0; turn < 200; turn += 1) {
            const cache = await caches.open('handraise-page');
            const kept = new Set((await cache.keys()).map((request) => new URL(request.url).pathname));
            const named = [...document.querySelectorAll('link[rel=modulepreload], link[rel=stylesheet], script')];
            const wanted = named.map((element) => new URL(element.href ?? element.src).pathname);
            const cards = JSON.parse(localStorage['handraise.last'] ?? '{"asks": []}').asks;
            if (['/', '/app/words/en.json', ...wanted].every((path) => kept.has(path)) && cards.length) return true;
            await new Promise((done) => setTimeout(done, 50));
          }
          return false;
        }"""
    )


async def test_nothing_that_the_desk_told_is_in_the_cache_of_the_page(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await expect(inbox.card("q1").element).to_be_visible()
    await is_kept(inbox.page)
    kept = await inbox.page.evaluate("caches.open('handraise-page').then(c => c.keys()).then(k => k.map(r => r.url))")
    assert not [url for url in kept if "/v1/" in url or "signin" in url]


async def test_a_link_from_another_site_opens_the_inbox_of_who_is_signed_in(desk: Desk, inbox: Tab) -> None:
    """The cookie does not come along with such a link; the page's own script brings it."""
    await desk.ask(id="q1")
    other = await inbox.person.context.new_page()
    inbox.complaints.allow("401")  # the page itself, by the browser's own words
    await other.goto(f"data:text/html,<a href='{desk.url.replace('127.0.0.1', 'localhost')}/'>there</a>")
    response = await other.request.get(f"{desk.url}/", headers={"accept": "text/html", "cookie": ""})
    assert response.status == 401
    assert "handraise open" in await response.text()
    await other.goto(f"{desk.url}/", referer="https://chat.example/")
    await expect(other.locator('article[data-ask="q1"]')).to_be_visible()


async def test_a_stranger_is_told_how_to_sign_in(desk: Desk, people: People) -> None:
    stranger = await people.stranger()
    stranger.complaints.allow("401|MIME type")  # no file comes without a token
    tab = await stranger.tab()
    await expect(tab.page.get_by_text("handraise open")).to_be_visible()


async def test_a_token_that_is_revoked_signs_the_page_out(desk: Desk, inbox: Tab) -> None:
    inbox.complaints.allow("401|ERR_")
    await desk.ask(id="q1")
    await expect(inbox.card("q1").element).to_be_visible()
    tokens = (await desk.http.get("/v1/tokens")).json()["tokens"]
    for token in tokens:
        if token["name"].startswith("browser-"):
            await desk.http.delete(f"/v1/tokens/{token['name']}")
    await desk.ask(id="q2")
    await expect(inbox.page.get_by_role("alert").filter(has_text="not signed in")).to_be_visible()


async def test_a_deadline_is_announced_once_at_sixty_seconds_and_at_ten(
    fake_clock: FakeClock, desk: Desk, inbox: Tab, people: People
) -> None:
    await desk.ask(id="q1", header="Storage", body={"question_timeout": 90, "on_timeout": "accept-first"})
    await expect(inbox.card("q1").element).to_contain_text("is picked")
    spoken = inbox.page.get_by_role("status")
    await people.advance(31)  # and what passes by itself meanwhile
    await expect(spoken.filter(has_text=re.compile(r"Storage: (60|5\d) seconds left"))).to_have_count(1)
    await people.advance(45)
    await expect(spoken.filter(has_text=re.compile(r"Storage: (10|\d) seconds left"))).to_have_count(1)


async def test_where_a_question_was_sent_and_that_nobody_could_be_told(
    desk: Desk, people: People, fake_clock: FakeClock
) -> None:
    await desk.ask(id="q1")
    await desk.ask(id="q2", body={"question_timeout": 600})
    failed = {"channel": "pager", "state": "failed", "error": "HTTP 500 \u202e"}
    for id in ("q1", "q2"):
        await told(desk.http.post(path_of(id, "showings"), json=failed), 200)
    await fake_clock.advance(11)
    assert (await desk.settled("q2"))["answer"]["by"] == "policy:unseen"
    tab = await people.inbox()
    await expect(tab.card("q1").element).to_be_visible()
    await people.advance(4)  # until there is nothing else to do
    where = tab.card("q1").element.locator("[data-showings]")
    await expect(where).to_have_text("Nobody could be told about this: pager: HTTP 500 \\u202e. It waits here.")
    banner = tab.page.get_by_role("link", name="Nobody could be told about one question. It waits here.")
    await expect(banner).to_have_attribute("href", "#/ask/q1")
    assert await findings(tab) == []
    sent = {"channel": "linear", "state": "sent", "place": "17"}
    await told(desk.http.post(path_of("q1", "showings"), json=sent), 200)
    await expect(where).to_have_text(re.compile(r"^Sent to linear \d.+ · pager failed: HTTP 500 "))
    await expect(banner).to_have_count(0)
    await tab.page.goto(f"{desk.url}/#/ask/q2")
    await expect(tab.card("q2").element).to_contain_text("Nobody could be told (pager: HTTP 500 ")
    await expect(tab.card("q2").element).to_contain_text("SQLite was picked")


async def test_long_lists_are_drawn_as_they_are_read(desk: Desk, people: People) -> None:
    for number in range(60):
        await desk.ask(id=f"q{number:02}")
    tab = await people.inbox()
    await expect(tab.card("q00").element).to_be_visible()
    assert await tab.card("q00").element.get_attribute("aria-setsize") == "60"
    await tab.page.evaluate(SCROLL)
    await expect(tab.card("q59").element).to_be_visible()
    assert await tab.card("q59").element.get_attribute("aria-posinset") == "60"
    assert await tab.cards.count() < 60  # those far above keep their place, and cost nothing
    await tab.page.evaluate("scrollTo(0, 0)")
    await expect(tab.card("q00").element).to_be_in_viewport()


async def test_what_is_being_typed_outlasts_a_long_way_away(desk: Desk, people: People) -> None:
    for number in range(60):
        await desk.ask(id=f"q{number:02}")
    tab = await people.inbox()
    await tab.card("q00").own.fill("half a thou")
    await tab.page.evaluate(SCROLL)
    await expect(tab.card("q59").element).to_be_visible()
    await tab.page.evaluate("scrollTo(0, 0)")
    await expect(tab.card("q00").own).to_have_value("half a thou")


# To the end of a list that grows on the way.
SCROLL = """async () => {
  for (let turn = 0; turn < 300 && !document.querySelector('article[data-ask="q59"]'); turn += 1) {
    scrollTo(0, document.body.scrollHeight);
    await new Promise((done) => setTimeout(done, 30));
  }
  scrollTo(0, document.body.scrollHeight);
}"""


# Files ------------------------------------------------------------------------------------------------------


def test_every_module_is_preloaded_and_nothing_else() -> None:
    found: set[str] = set()
    left = [WEB / "main.js"]
    while left:
        file = left.pop()
        path = f"/app/{file.relative_to(WEB).as_posix()}"
        if path not in found:
            found.add(path)
            if "vendor" not in path:
                imports = re.findall(
                    r"^(?:import|export) .*?from '(.+?)'|^import '(.+?)'", file.read_text(), re.M | re.S
                )
                left += [(file.parent / (one or other)).resolve() for one, other in imports]
    shell = (WEB / "index.html").read_text()
    assert set(re.findall(r'rel="modulepreload" href="(.+?)"', shell)) == found - {"/app/main.js"}
