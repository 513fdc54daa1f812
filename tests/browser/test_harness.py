"""What tests in a browser are written with does what it says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, Route, expect

from handraise.testing import FakeClock
from tests.browser import pictures
from tests.browser.axe import findings
from tests.browser.install import chromium, main
from tests.browser.people import Desk, People, Tab, gathered
from tests.live.programs import ProgramUnavailable

CONFUSING = """() => {
  document.body.innerHTML = '<main><h1>A heading</h1><input><p class="faint">x</p></main>';
}"""


async def test_whoever_uses_the_link_is_signed_in(desk: Desk, inbox: Tab) -> None:
    await expect(inbox.page).to_have_url(f"{desk.url}/")
    assert await inbox.page.evaluate("import('/app/core/api.js').then(({ call }) => call('/v1/asks'))") == {"asks": []}


async def test_a_stranger_is_not_signed_in(desk: Desk, people: People) -> None:
    stranger = await people.stranger()
    assert (await stranger.context.request.get(f"{desk.url}/v1/asks")).status == 401


async def test_two_people_have_two_browsers(people: People) -> None:
    first, second = await people.inbox(), await people.inbox()
    cookies = [await tab.person.context.cookies() for tab in (first, second)]
    assert cookies[0][0]["value"] != cookies[1][0]["value"]


async def test_an_error_that_a_page_logs_is_heard(inbox: Tab) -> None:
    inbox.complaints.expect("something broke")
    await inbox.page.evaluate("console.error('something broke')")
    await inbox.page.evaluate("console.warn('something is odd')")


async def test_an_error_that_a_page_throws_is_heard(inbox: Tab) -> None:
    inbox.complaints.expect("nobody caught me")
    async with inbox.page.expect_event("pageerror"):
        await inbox.page.evaluate("queueMicrotask(() => { throw new Error('nobody caught me') })")


async def test_what_the_content_security_policy_forbids_is_heard(inbox: Tab) -> None:
    inbox.complaints.expect("Content Security Policy")
    async with inbox.page.expect_event("console"):
        await inbox.page.evaluate("document.head.append(Object.assign(document.createElement('script'), {text: '1'}))")


async def test_a_complaint_that_was_not_announced_fails_the_test(people: People) -> None:
    tab = await people.inbox()
    async with tab.page.expect_event("console"):
        await tab.page.evaluate("console.error('something broke')")
    with pytest.raises(AssertionError, match="something broke"):
        people.check()
    tab.complaints.expect("something broke")
    people.check()


async def test_a_complaint_that_was_announced_and_did_not_come_fails_the_test(people: People) -> None:
    tab = await people.inbox()
    tab.complaints.expect("something broke")
    with pytest.raises(AssertionError, match="was expected to complain"):
        people.check()
    await tab.page.evaluate("console.error('something broke')")


async def test_what_a_test_routed_fails_in_no_other_test(browser: Browser, desk: Desk, inbox: Tab) -> None:
    begun, end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(route: Route) -> None:
        reply = await route.fetch()
        begun.set()
        await end.wait()
        try:
            await route.fulfill(response=reply, body=await reply.text())
        finally:
            ended.set()

    async with gathered(browser, desk) as people:
        tab = await people.inbox()
        await tab.page.route("**/v1/asks?limit=1", slow)
        await tab.page.evaluate("() => { fetch('/v1/asks?limit=1').catch(() => {}); }")
        await begun.wait()
    end.set()
    await ended.wait()
    for _ in range(2):  # what went wrong meanwhile is raised by whatever is called next
        await inbox.page.title()


async def test_barriers_are_found(inbox: Tab) -> None:
    await inbox.page.evaluate(CONFUSING)
    found = await findings(inbox)
    assert any(each.startswith("label: ") for each in found), found


async def test_time_passes_for_the_desk_and_in_the_browser_alike(
    fake_clock: FakeClock, desk: Desk, inbox: Tab, people: People
) -> None:
    await desk.ask(id="q1", body={"question_timeout": 30, "on_timeout": "accept-first"})
    assert abs(await inbox.page.evaluate("Date.now()") - fake_clock.now()) < 30_000
    await people.advance(600)
    assert abs(await inbox.page.evaluate("Date.now()") - fake_clock.now()) < 30_000
    assert (await desk.settled("q1"))["answer"]["by"] == "policy:timeout"


async def test_a_picture_is_taken_where_it_is_wanted_and_missed_where_it_is_not_there(
    inbox: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "FOLDER", tmp_path / "pictures")
    monkeypatch.delenv("HANDRAISE_WRITE_PICTURES", raising=False)
    page = inbox.page.locator("html")
    with pytest.raises(AssertionError, match=r"there is no inbox\.png yet"):
        await pictures.picture(inbox, "inbox", shows=page)
    monkeypatch.setenv("HANDRAISE_WRITE_PICTURES", "1")
    await pictures.picture(inbox, "inbox", shows=page)
    monkeypatch.delenv("HANDRAISE_WRITE_PICTURES")
    await pictures.picture(inbox, "inbox", shows=page)
    assert (tmp_path / "pictures" / "inbox.png").read_bytes().startswith(b"\x89PNG")


async def test_a_desk_comes_back_at_its_address(desk: Desk) -> None:
    await desk.ask(id="q1")
    url = desk.url
    await desk.stop()
    await desk.start()
    assert desk.url == url
    assert (await desk.get("q1"))["state"] == "asked"


async def test_an_ask_is_raised_and_settled(desk: Desk) -> None:
    await desk.ask("Which colour?", "red", "blue", id="q1", header="Colour")
    await desk.want(id="p1", command="git push")
    await desk.answer("q1", "blue")
    assert (await desk.settled("q1"))["answer"]["answers"] == [["blue"]]
    assert (await desk.get("p1"))["permission"]["input"] == {"command": "git push"}


def test_a_browser_that_is_not_there_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HANDRAISE_WITHOUT_BROWSER", raising=False)
    monkeypatch.setenv("HANDRAISE_BROWSER", "no-such-browser")
    with pytest.raises(ProgramUnavailable, match="there is no no-such-browser"):
        chromium()
    assert main([]) == 1
    assert "HANDRAISE_WITHOUT_BROWSER=1" in capsys.readouterr().err


def test_whoever_wants_no_browser_gets_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HANDRAISE_WITHOUT_BROWSER", "1")
    assert main([]) == 0
    assert "left out" in capsys.readouterr().out
