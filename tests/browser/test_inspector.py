"""The inspector (U5): raw messages as they come, filtered, whole, copied; and an ask's way through the desk."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from handraise.agents import Wire
from handraise.app import wires_of
from tests.browser.axe import findings
from tests.browser.people import Desk, People, Tab
from tests.browser.test_languages import ENGLISH, from_right_to_left
from tests.browser.test_views import Worker, a_session, until_asked
from tests.helpers.serving import told

NARROW: Any = {"width": 320, "height": 640}
WIDE: Any = {"width": 1280, "height": 900}


@pytest_asyncio.fixture(loop_scope="session")
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with Desk(tmp_path / "home", staff=[Worker()]) as started:
        yield started


async def record(desk: Desk, session: str, *wires: Wire) -> None:
    """As if an agent of this session had sent and got these."""
    kept = wires_of(desk.served.settings, desk.served.broker)
    # The desk's own recorder writes half a second later. Its messages are older, so they have to be there first.
    assert (await kept.wait(session, after="", timeout=5, name="reply")).wires
    for wire in wires:
        kept.seen(session, wire)
    await kept.flush()


def lines(page: Page, name: str = "") -> Locator:
    rows = page.get_by_role("listbox", name="Messages").get_by_role("option")
    return rows.filter(has=page.locator(".name").get_by_text(name, exact=True)) if name else rows


def box(page: Page, name: str) -> Locator:
    return page.locator(f'[data-box="{name}"]')


async def test_a_session_is_followed_and_its_ask_is_seen_in_four_boxes(desk: Desk, inbox: Tab) -> None:
    page = inbox.page
    session = await a_session(desk, "ask me")
    await inbox.open(f"#/sessions/{session}")
    await page.get_by_role("link", name="Inspect").click()
    await expect(page.get_by_role("heading", name="Inspector")).to_be_visible()
    await expect(lines(page, "question")).to_contain_text("from the agent")
    await expect(lines(page, "asked")).to_contain_text("at the desk")
    await lines(page, "question").click()
    await expect(box(page, "sent")).to_contain_text("Which database?")
    await expect(box(page, "ask")).to_contain_text('"label": "SQLite"')
    await expect(box(page, "answer")).to_contain_text("Nothing yet.")
    await expect(box(page, "got")).to_contain_text("Nothing yet.")
    await desk.answer(await until_asked(desk, session), "PostgreSQL", by="ana")
    for name, way in (("answered", "at the desk"), ("answer", "to the agent"), ("delivered", "at the desk")):
        await expect(lines(page, name)).to_contain_text(way)
    await expect(lines(page, "reply")).to_contain_text("Done, with PostgreSQL.")
    await expect(box(page, "answer")).to_contain_text('"PostgreSQL"')
    await expect(box(page, "got")).to_contain_text('"PostgreSQL"')
    whole = page.get_by_role("region", name="Message", exact=True)
    await expect(whole).to_contain_text('"type": "question"')
    assert await findings(inbox) == []
    await inbox.open(f"#/inspect/{session}?ask={await until_asked(desk, session)}")
    await expect(box(page, "got")).to_contain_text('"PostgreSQL"')


async def test_messages_are_found_by_direction_kind_text_and_whether_they_ask(desk: Desk, inbox: Tab) -> None:
    page = inbox.page
    session = await a_session(desk, "ask me")
    await desk.answer(await until_asked(desk, session), "SQLite")
    await told(desk.http.get(f"/v1/sessions/{session}", params={"wait": 10}), 200)
    await inbox.open(f"#/inspect/{session}")
    await expect(lines(page, "reply")).to_be_visible()
    await expect(lines(page)).to_have_count(7)  # four on the wire, three at the desk
    await page.get_by_label("Direction").select_option("to the agent")
    await expect(lines(page)).to_have_count(2)
    await page.get_by_label("Direction").select_option("at the desk")
    await expect(lines(page)).to_have_count(3)
    await page.get_by_label("Direction").select_option("All")
    await page.get_by_label("Only asks").check()
    await expect(lines(page)).to_have_count(5)
    await page.get_by_label("Only asks").uncheck()
    await page.get_by_label("Kind").select_option("prompt")
    await expect(lines(page)).to_have_count(1)
    await page.get_by_label("Kind").select_option("All")
    await page.get_by_label("Text in a message").fill("DONE, WITH")
    await expect(lines(page)).to_have_count(1)
    await page.get_by_label("Text in a message").fill("nowhere")
    await expect(page.get_by_text("No message fits the filter.")).to_be_visible()


async def test_it_works_by_keys_alone(desk: Desk, inbox: Tab) -> None:
    page = inbox.page
    session = await a_session(desk, "go")
    await inbox.open(f"#/inspect/{session}")
    await expect(lines(page, "reply")).to_be_visible()
    box = page.get_by_role("listbox", name="Messages")
    await page.get_by_label("Follow").focus()
    await inbox.press("Tab")
    await expect(box).to_be_focused()
    await inbox.press("Home")
    await expect(lines(page, "prompt")).to_have_attribute("aria-selected", "true")
    await inbox.press("ArrowDown")
    await expect(lines(page, "reply")).to_have_attribute("aria-selected", "true")
    chosen = await lines(page, "reply").get_attribute("id")
    await expect(box).to_have_attribute("aria-activedescendant", str(chosen))
    await inbox.press("ArrowDown", "ArrowUp", "End", "PageUp", "PageDown")
    await expect(lines(page, "reply")).to_have_attribute("aria-selected", "true")
    await inbox.press("Tab")
    assert await inbox.focused() == "button copy"
    await inbox.press("Tab")
    await expect(page.get_by_role("region", name="Message", exact=True)).to_be_focused()


async def test_what_is_copied_is_the_message_and_all_of_them(desk: Desk, people: People) -> None:
    session = await a_session(desk, "go")
    person = await people.stranger(permissions=["clipboard-read", "clipboard-write"])
    tab = await person.sign_in()
    page = tab.page
    await tab.open(f"#/inspect/{session}")
    await lines(page, "prompt").click()
    await page.locator("[data-action=copy]").click()
    await expect(page.locator("[data-action=copy]")).to_have_text("Copied")
    assert json.loads(await page.evaluate("navigator.clipboard.readText()")) == {"type": "prompt", "text": "go"}
    await page.locator("[data-action=copy-all]").click()
    await expect(page.locator("[data-action=copy-all]")).to_have_text("Copied")
    copied = [json.loads(line) for line in (await page.evaluate("navigator.clipboard.readText()")).splitlines()]
    assert [each["name"] for each in copied] == ["prompt", "reply"]


async def test_of_many_the_last_are_drawn_and_older_ones_on_demand(desk: Desk, inbox: Tab) -> None:
    page = inbox.page
    session = await a_session(desk, "go")
    pieces = [Wire(way="in", body=number, name="delta", is_piece=True) for number in range(412)]
    await record(desk, session, *(Wire(way="in", body={"n": number}, name="note") for number in range(450)), *pieces)
    await inbox.open(f"#/inspect/{session}")
    await expect(lines(page)).to_have_count(200)
    await expect(lines(page).last).to_contain_text("× 412")
    await expect(lines(page).last).to_be_in_viewport()
    await page.get_by_role("button", name="Older messages").click()
    await expect(lines(page)).to_have_count(400)
    await page.get_by_role("button", name="Older messages").click()
    await expect(lines(page)).to_have_count(453)
    await expect(page.get_by_role("button", name="Older messages")).to_have_count(0)
    await page.get_by_label("Follow").uncheck()
    await record(desk, session, Wire(way="out", body="later", name="later"))
    await page.get_by_label("Follow").check()
    await expect(lines(page, "later")).to_have_count(1)


async def test_nothing_an_agent_sent_can_hide_or_run(desk: Desk, people: People) -> None:
    session = await a_session(desk, "go")
    hostile = {"text": "safe \u202e evil <img src=x onerror=alert(1)>", "long": "x" * 3000}
    await record(desk, session, Wire(way="in", body=hostile, name="a\u200bb" + "long" * 50, ask="nobody"))
    dark = await people.inbox(viewport=NARROW, color_scheme="dark")
    backwards = await from_right_to_left(people, ENGLISH, viewport=NARROW)
    wide = await from_right_to_left(people, ENGLISH, viewport=WIDE)
    for tab in (dark, backwards, wide):
        await tab.open(f"#/inspect/{session}")
        row = lines(tab.page).filter(has_text="longlong")
        await expect(row).to_contain_text("\\u200b")
        await row.click()
        whole = tab.page.get_by_role("region", name="Message", exact=True)
        await expect(whole).to_contain_text("\\u202e")
        await expect(whole).to_contain_text("<img src=x")
        await expect(box(tab.page, "sent")).to_contain_text("\\u202e")
        await expect(box(tab.page, "ask")).to_contain_text("Nothing yet.")
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await findings(tab) == []


async def test_it_says_why_there_is_nothing_to_see(desk: Desk, inbox: Tab, people: People) -> None:
    page = inbox.page
    await desk.ask(id="q1", body={"origin": {"agent": "script", "session": "by hand"}})
    await inbox.open("#/inspect/by%20hand")
    await page.get_by_label("Direction").select_option("from the agent")
    await expect(page.get_by_text("No message fits the filter.")).to_be_visible()
    inbox.complaints.expect("404")
    await inbox.open("#/inspect/nobody")
    await expect(page.get_by_text("There is no such session.")).to_be_visible()
    inbox.complaints.expect("403")
    refusal = {"error": "forbidden", "message": "the token 'ana' may not do this"}
    await page.route("**/wire?*", lambda route: route.fulfill(status=403, json=refusal))
    await inbox.open("#/inspect/by%20hand")
    await expect(page.get_by_text("takes a token with the scope admin")).to_be_visible()
    assert await findings(inbox) == []
    await page.unroute("**/wire?*")
    off = {"wire": [], "recording": False}
    await page.route("**/wire?*", lambda route: route.fulfill(json=off))
    session = await a_session(desk, "go")
    await inbox.open(f"#/inspect/{session}")
    await expect(page.get_by_text("its settings say inspect = false")).to_be_visible()
    await page.unroute_all(behavior="ignoreErrors")
