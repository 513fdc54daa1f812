"""Signing in, and signing in again: what a browser dropped does not cost what the person had begun (X1)."""

from __future__ import annotations

from playwright.async_api import expect

from handraise.app import open_parts
from tests.browser.people import Desk, People, Tab
from tests.helpers.serving import tokens_of

NOT_SIGNED_IN = "This browser is not signed in"
NOISE = "401|ERR_|Failed to load|MIME type"


async def begin(desk: Desk, tab: Tab, text: str) -> None:
    """Type an own answer, and wait until it is kept."""
    await desk.ask(id="q1")
    await tab.card("q1").own.fill(text)
    await tab.keeps("handraise.draft.q1", text)


async def revoke_browsers(desk: Desk) -> None:
    for name in await tokens_of(desk.served):
        if name.startswith("browser-"):
            assert (await desk.http.delete(f"/v1/tokens/{name}")).status_code == 204


async def test_no_history_leads_back_to_the_secret(desk: Desk, inbox: Tab) -> None:
    secret = await inbox.page.evaluate("JSON.parse(localStorage['handraise.session'])")
    assert len(secret) == 43
    inbox.complaints.allow("ERR_|Failed to load")
    for _ in range(3):
        await inbox.page.go_back(wait_until="domcontentloaded")
        assert secret not in await inbox.page.content()
        assert secret not in inbox.page.url


async def test_a_browser_that_dropped_its_secret_is_told_and_signs_in_again_with_its_drafts(
    desk: Desk, inbox: Tab
) -> None:
    inbox.complaints.expect(NOISE)
    await begin(desk, inbox, "DuckDB")
    await inbox.page.evaluate("localStorage.removeItem('handraise.session')")
    await inbox.page.reload()
    await expect(inbox.page.get_by_role("alert")).to_contain_text(f"{NOT_SIGNED_IN} at {desk.url[7:]}")
    await expect(inbox.page.get_by_role("alert")).to_contain_text("handraise open")
    other = await inbox.person.sign_in()
    await expect(other.card("q1").own).to_have_value("DuckDB")
    await inbox.page.evaluate("dispatchEvent(new Event('focus'))")
    await expect(inbox.card("q1").own).to_have_value("DuckDB")
    await expect(inbox.page.get_by_role("alert")).to_have_count(0)
    await inbox.card("q1").send()
    assert (await desk.settled("q1"))["answer"]["answers"] == [["DuckDB"]]


async def test_a_page_that_was_open_while_everything_was_dropped_keeps_its_drafts(desk: Desk, inbox: Tab) -> None:
    inbox.complaints.expect(NOISE)
    await begin(desk, inbox, "DuckDB")
    await inbox.page.evaluate("localStorage.clear()")
    await revoke_browsers(desk)
    await desk.ask(id="q2")  # the stream ends where it would tell something
    await expect(inbox.page.get_by_role("alert")).to_contain_text(NOT_SIGNED_IN)
    await expect(inbox.card("q1").own).to_have_value("DuckDB")
    other = await inbox.person.sign_in()
    await expect(other.card("q1").own).to_have_value("DuckDB")


async def test_a_browser_without_its_cookie_is_told_and_signs_in_again_with_its_drafts(desk: Desk, inbox: Tab) -> None:
    inbox.complaints.expect(NOISE)
    await begin(desk, inbox, "DuckDB")
    await inbox.person.context.clear_cookies()
    await inbox.page.reload()
    await expect(inbox.page.get_by_text("handraise open")).to_be_visible()
    other = await inbox.person.sign_in()
    await expect(other.card("q1").own).to_have_value("DuckDB")


async def test_an_answer_that_cannot_be_sent_signed_out_says_why_and_can_be_sent_afterwards(
    desk: Desk, inbox: Tab
) -> None:
    inbox.complaints.expect(NOISE)
    await begin(desk, inbox, "DuckDB")
    await revoke_browsers(desk)
    await inbox.card("q1").send()
    await expect(inbox.card("q1").element.get_by_role("alert")).to_contain_text(NOT_SIGNED_IN)
    await inbox.person.sign_in()
    await inbox.card("q1").action("retry").click()
    assert (await desk.settled("q1"))["answer"]["answers"] == [["DuckDB"]]


async def test_an_answer_that_waits_for_the_desk_waits_for_the_sign_in_too(desk: Desk, inbox: Tab) -> None:
    inbox.complaints.expect(NOISE)
    await begin(desk, inbox, "DuckDB")
    settings = desk.served.settings
    await desk.stop()
    await expect(inbox.page.get_by_text("Reconnecting…")).to_be_visible()
    await inbox.card("q1").send()
    await inbox.keeps("handraise.outbox")
    async with open_parts(settings) as (_, tokens):  # before the page can reach the desk again
        for token in tokens.all():
            if token.name.startswith("browser-"):
                await tokens.revoke(token.name)
    await desk.start()
    await inbox.page.evaluate("dispatchEvent(new Event('online'))")
    await expect(inbox.page.get_by_role("alert")).to_contain_text(NOT_SIGNED_IN)
    await inbox.person.sign_in()
    assert (await desk.settled("q1"))["answer"]["answers"] == [["DuckDB"]]


async def test_a_browser_that_keeps_nothing_is_told_so(people: People) -> None:
    person = await people.stranger()
    await person.context.add_init_script("Storage.prototype.setItem = () => { throw new Error('full'); };")
    link = (await people.desk.http.post("/v1/signin", json={})).json()["url"]
    page = await person.context.new_page()
    await page.goto(link)
    await page.get_by_role("button").click()
    await expect(page.get_by_text("it cannot stay signed in")).to_be_visible()
