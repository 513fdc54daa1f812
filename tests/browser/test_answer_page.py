"""The page behind an answer link, in a browser that runs no scripts."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.axe import findings
from tests.browser.people import Desk, People, Tab
from tests.helpers.serving import path_of, told

NARROW: Any = {"width": 320, "height": 640}
HOSTILE = "<img src=x onerror=alert(1)> \u202e \x1b[31m"


async def link_to(desk: Desk, id: str) -> str:
    return str((await told(desk.http.post(path_of(id, "link"), json={"by": "ada"}), 201))["url"])


async def opened(desk: Desk, people: People, id: str, **options: Any) -> Page:
    """The page of an ask, for somebody who is not signed in and runs no scripts."""
    person = await people.stranger(java_script_enabled=False, **{"viewport": NARROW, **options})
    person.complaints.allow("status of 4")  # the browser's own word for a page that says why not
    page = await person.context.new_page()
    await page.goto(await link_to(desk, id))
    return page


async def test_a_question_is_answered_without_scripts_on_a_narrow_screen(desk: Desk, people: People) -> None:
    await desk.ask(id="q1", body={"question_timeout": 600})
    page = await opened(desk, people, "q1")
    await expect(page.get_by_text("is picked")).to_be_visible()
    await page.get_by_label("Postgres").check()
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_role("heading", name="Sent")).to_be_visible()
    answer = (await desk.settled("q1"))["answer"]
    assert (answer["answers"], answer["by"], answer["via"]) == ([["Postgres"]], "ada", "link")
    await page.go_back()
    await page.reload()
    await expect(page.get_by_role("heading", name="This link was used")).to_be_visible()


async def test_what_was_typed_is_still_there_when_it_does_not_fit(desk: Desk, people: People) -> None:
    await desk.ask("How many?", id="q1", kind="number")
    page = await opened(desk, people, "q1")
    await page.get_by_role("textbox").first.fill("a few")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_text("Nothing was sent yet:")).to_be_visible()
    await expect(page.get_by_role("textbox").first).to_have_value("a few")
    await page.get_by_role("textbox").first.fill("3")
    await page.get_by_role("button", name="Send").click()
    assert (await desk.settled("q1"))["answer"]["answers"] == [["3"]]


async def test_what_is_risky_can_only_be_denied_there(desk: Desk, people: People) -> None:
    await desk.want(id="p1", command="rm -rf build\u202e", replies=["once", "reject"], scopes=[])
    page = await opened(desk, people, "p1")
    await expect(page.get_by_text("\\u202e").first).to_be_visible()
    await expect(page.get_by_role("link", name="Open it at the desk")).to_have_attribute("href", "/#/ask/p1")
    assert await page.get_by_role("button", name="Allow").count() == 0
    await page.get_by_role("button", name="Deny").click()
    assert (await desk.settled("p1"))["answer"]["reply"] == "reject"


async def test_to_look_at_it_answers_nothing(desk: Desk, people: People) -> None:
    await desk.ask(id="q1")
    page = await opened(desk, people, "q1")
    for _ in range(3):
        await page.reload()
    assert (await desk.get("q1"))["state"] == "asked"
    await page.get_by_label("SQLite").check()
    await page.get_by_role("button", name="Send").click()
    assert (await desk.settled("q1"))["answer"]["answers"] == [["SQLite"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_there_are_no_barriers_and_nothing_sticks_out(desk: Desk, people: People, scheme: str) -> None:
    await desk.ask(HOSTILE, HOSTILE, "x" * 300, id="q1", header=HOSTILE, multiple=True)
    await desk.want(id="p1", command="git push && " + "rm -rf build " * 30)
    person = await people.stranger(viewport=NARROW, color_scheme=scheme)  # the search for barriers is a script
    for id in ("q1", "p1"):
        tab = Tab(await person.context.new_page(), person)
        await tab.page.goto(await link_to(desk, id))
        await expect(tab.page.get_by_role("heading").first).to_be_visible()
        assert await findings(tab) == []
        sideways = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await tab.page.evaluate(sideways) <= 0
        assert await tab.page.locator("img").count() == 0
