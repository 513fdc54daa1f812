"""Reaching people while the page is not in front of them: what a notification says, and what its buttons do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from playwright.async_api import Browser, Worker, expect

from tests.browser.install import chromium
from tests.browser.people import Desk, People, Tab, browser_to_test

# As the browser does it when somebody presses one of the buttons, or the notification itself (no action).
PRESS = """async ([tag, action]) => {
  const [notification] = await registration.getNotifications({ tag });
  dispatchEvent(new NotificationEvent('notificationclick', { notification, action }));
}"""
SHOWN = """async () => (await registration.getNotifications()).map(({ title, body, tag, actions }) =>
  ({ title, body, tag, actions: actions.map(({ title }) => title) }))"""
# The page hands the worker its words to keep when it begins to listen for new asks.
LISTENS = """async () => {
  for (let turn = 0; turn < 200; turn += 1) {
    if (await caches.match('/app/words/en.json')) return true;
    await new Promise((done) => setTimeout(done, 25));
  }
  return false;
}"""
NOBODY_LOOKS = "clients.matchAll = async () => []"
# Counts what was shown. A browser that is asked for its notifications while it is about to show one can forget it.
COUNT = """() => {
  const show = registration.showNotification.bind(registration);
  globalThis.displayed = 0;
  registration.showNotification = async (...told) => {
    await show(...told);
    displayed += 1;
  };
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """All of Chromium: its shell shows no notifications."""
    async with browser_to_test(chromium) as started:
        yield started


async def reader(people: People, **stored: Any) -> tuple[Tab, Worker]:
    """Somebody who wants notifications and looks at something else, and the worker that shows them."""
    wanted = {"handraise.notify": True, **stored}
    storage = [{"name": name, "value": json.dumps(value)} for name, value in wanted.items()]
    kept = {"cookies": [], "origins": [{"origin": people.desk.url, "localStorage": storage}]}
    person = await people.stranger(permissions=["notifications"], storage_state=kept)
    async with person.context.expect_event("serviceworker") as started:
        tab = await person.sign_in()
    worker: Worker = await started.value
    assert await tab.page.evaluate(LISTENS)
    await worker.evaluate(NOBODY_LOOKS)
    await worker.evaluate(COUNT)
    return tab, worker


async def shown(worker: Worker, count: int) -> list[dict[str, Any]]:
    """The notifications, once that many were shown and not closed since."""
    found: list[dict[str, Any]] = []
    displayed = 0
    for _ in range(200):
        displayed = await worker.evaluate("displayed")
        if displayed >= count:
            found = await worker.evaluate(SHOWN)
            if len(found) == count:
                return found
        await asyncio.sleep(0.05)  # a worker's event is over before the browser shows or closes anything
    raise AssertionError(f"{count} notifications were expected, {displayed} were shown, and there are: {found}")


async def test_a_question_can_be_answered_in_its_notification(desk: Desk, people: People) -> None:
    _, worker = await reader(people, **{"handraise.name": "ada"})
    await desk.ask(id="q1", header="Storage")
    [notification] = await shown(worker, 1)
    assert notification["title"] == "scripted asks: Storage"
    assert notification["body"] == "Which database should I use?"
    assert notification["actions"] == ["SQLite", "Postgres"]
    await worker.evaluate(PRESS, ["q1", "choice-1"])
    answer = (await desk.settled("q1"))["answer"]
    assert (answer["answers"], answer["by"], answer["via"]) == ([["Postgres"]], "ada", "web")
    await shown(worker, 0)


async def test_what_is_harmless_can_be_allowed_there_and_what_is_risky_cannot(desk: Desk, people: People) -> None:
    _, worker = await reader(people)
    await desk.want(id="risky", command="git push --force")
    [risky] = await shown(worker, 1)
    warned = "git push --force\n⚠ This can delete files.\n⚠ This can send something to others."
    assert (risky["body"], risky["actions"]) == (warned, [])
    await desk.want(id="harmless", command="ls")
    await shown(worker, 2)
    await worker.evaluate(PRESS, ["harmless", "once"])
    assert (await desk.settled("harmless"))["answer"]["reply"] == "once"


async def test_a_notification_goes_when_somebody_else_answered(desk: Desk, people: People) -> None:
    _, worker = await reader(people)
    await desk.ask(id="q1")
    await shown(worker, 1)
    await desk.answer("q1", "SQLite", by="ben")
    await shown(worker, 0)


async def test_whoever_looks_at_the_page_gets_none(desk: Desk, people: People) -> None:
    tab, worker = await reader(people)
    await worker.evaluate(
        "globalThis.looked = new Promise((told) => {"
        "  clients.matchAll = async () => (setTimeout(told, 100), [{ focused: true }]);"
        "}); undefined"
    )
    await desk.ask(id="q1")
    await expect(tab.card("q1").element).to_be_visible()
    await worker.evaluate("looked")
    assert await worker.evaluate(SHOWN) == []


async def test_nobody_is_notified_who_did_not_ask_for_it(desk: Desk, people: People) -> None:
    tab, worker = await reader(people, **{"handraise.notify": False})
    await desk.ask(id="q1")
    await expect(tab.card("q1").element).to_be_visible()
    assert await worker.evaluate(SHOWN) == []


async def test_the_icon_carries_the_count(desk: Desk, people: People) -> None:
    person = await people.stranger()
    await person.context.add_init_script(
        "globalThis.badges = [];"
        "navigator.setAppBadge = async (count) => void badges.push(count);"
        "navigator.clearAppBadge = async () => void badges.push(0);"
    )
    tab = await person.sign_in()
    await desk.ask(id="q1")
    await expect(tab.page).to_have_title("(1) Inbox · handraise")
    await desk.answer("q1", "SQLite")
    await expect(tab.page).to_have_title("Inbox · handraise")
    assert (await tab.page.evaluate("badges"))[-2:] == [1, 0]


async def test_notifications_are_switched_on_and_off(people: People) -> None:
    person = await people.stranger(permissions=["notifications"])
    tab = await person.sign_in()
    await tab.open("#/settings")
    await tab.page.get_by_role("button", name="Switch them on").click()
    await expect(tab.page.get_by_text("They are on.")).to_be_visible()
    await tab.page.get_by_role("button", name="Switch them off").click()
    await expect(tab.page.get_by_role("button", name="Switch them on")).to_be_visible()


async def test_a_browser_that_forbids_notifications_is_told_so(inbox: Tab) -> None:
    await inbox.open("#/settings")
    await inbox.page.get_by_role("button", name="Switch them on").click()  # and Chromium without a window says no
    await expect(inbox.page.get_by_text("This browser was told not to show any from here.")).to_be_visible()
