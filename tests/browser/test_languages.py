"""The web app in the language of the person in front of it, also in one that is written from right to left."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import Route, expect

from handraise.text import words
from tests.browser.axe import findings
from tests.browser.people import DESKTOP, PHONE, Desk, People, Tab, a_question

ENGLISH: dict[str, str] = json.loads((words.FOLDER / "en.json").read_text(encoding="utf-8"))
# A language that nobody speaks: English between Arabic letters, so that the direction of a line is that of its words.
PSEUDO = {key: f"ا {text} ا" for key, text in ENGLISH.items()}

# What sticks out of the window, or of its own box where that cuts it off.
STICKING_OUT = """() => [...document.querySelectorAll('body *')].filter((element) => {
  const box = element.getBoundingClientRect();
  if (box.width === 0 || box.height === 0 || element.closest('.unseen, .skip')) return false;
  const style = getComputedStyle(element);
  const isCut = ['hidden', 'clip'].includes(style.overflowX) && element.scrollWidth > element.clientWidth + 1;
  return isCut || box.left < -1 || box.right > document.documentElement.clientWidth + 1;
}).map((element) => element.outerHTML.slice(0, 120))"""


async def asked_and_settled(desk: Desk) -> None:
    """A card of each kind, one of them settled, from two sessions."""
    await desk.ask(id="one", body={"question_timeout": 3600, "on_timeout": "accept-first"})
    several = [
        a_question("Which?", "this", "that", header=name, multiple=name == "Second") for name in ("First", "Second")
    ]
    await desk.ask_several(*several, id="several")
    elsewhere = {"agent": "codex", "session": "c1", "cwd": "/home/ada/projects/shop", "machine": "laptop", "run": "r1"}
    await desk.want(id="wanted", command="git push && rm -rf build", body={"origin": elsewhere})
    await desk.ask(id="settled")
    await desk.answer("settled", "SQLite", by="ada", via="web")


async def from_right_to_left(people: People, texts: dict[str, str], **options: Any) -> Tab:
    """The inbox of somebody who reads these texts, which are those of no language."""
    chosen = [{"name": "handraise.language", "value": json.dumps("ar")}]
    kept = {"cookies": [], "origins": [{"origin": people.desk.url, "localStorage": chosen}]}
    person = await people.stranger(storage_state=kept, **options)

    async def told(route: Route) -> None:
        await route.fulfill(json=texts | {"dir": "rtl"})

    await person.context.route("**/app/words/ar.json", told)
    tab = await person.sign_in()
    await expect(tab.page.locator("html")).to_have_attribute("dir", "rtl")
    return tab


async def test_a_german_browser_is_answered_in_german(desk: Desk, people: People) -> None:
    await asked_and_settled(desk)
    tab = await people.inbox(locale="de-DE")
    await expect(tab.page.locator("html")).to_have_attribute("lang", "de")
    await expect(tab.page.get_by_role("heading", level=1)).to_have_text("Eingang")
    await expect(tab.page.get_by_text("3 warten")).to_be_visible()
    await expect(tab.page).to_have_title("(3) Eingang · handraise")
    one = tab.card("one")
    await expect(one.element).to_contain_text("wird „SQLite“ gewählt")
    await one.element.get_by_label("Eigene Antwort").fill("Oracle")
    await one.send()
    assert (await desk.settled("one"))["answer"]["answers"] == [["Oracle"]]
    await expect(one.element).to_contain_text("im Web")
    await tab.open("#/history")
    await expect(tab.page.get_by_text("SQLite · ada, im Web")).to_be_visible()
    assert await findings(tab) == []


async def test_a_value_that_is_sent_is_the_agents_own_in_every_language(desk: Desk, people: People) -> None:
    await desk.ask("Go on?", {"label": "inbox.title", "value": "action.send"}, "no", id="q1")
    tab = await people.inbox(locale="de-DE")
    await tab.card("q1").element.get_by_text("inbox.title").click()  # never looked up
    assert (await desk.settled("q1"))["answer"]["answers"] == [["action.send"]]


async def test_a_language_that_we_have_not_is_english(people: People) -> None:
    tab = await people.inbox(locale="fr-FR")
    await expect(tab.page.locator("html")).to_have_attribute("lang", "en")
    await expect(tab.page.get_by_role("heading", level=1)).to_have_text("Inbox")


async def test_a_language_is_chosen_at_once_and_kept(inbox: Tab) -> None:
    await inbox.open("#/settings")
    await inbox.page.get_by_label("Deutsch").check()
    await expect(inbox.page.get_by_role("heading", level=1)).to_have_text("Einstellungen")
    await expect(inbox.page.get_by_role("link", name="Verlauf")).to_be_visible()
    await inbox.page.reload()
    await expect(inbox.page.get_by_role("heading", level=1)).to_have_text("Einstellungen")
    await inbox.page.get_by_label("Wie im Browser").check()
    await expect(inbox.page.get_by_role("heading", level=1)).to_have_text("Settings")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_from_right_to_left_nothing_is_cut_off_and_there_are_no_barriers(
    desk: Desk, people: People, size: dict[str, int]
) -> None:
    await asked_and_settled(desk)
    tab = await from_right_to_left(people, PSEUDO, viewport=size)
    shown = {
        "": "article[data-ask='wanted']",
        "sessions": "[data-session='c1']",
        "sessions/c1": "article[data-ask='wanted']",
        "history": "[data-settled='settled']",
        "settings": "fieldset",
    }
    for view, part in shown.items():
        await tab.open(f"#/{view}")
        await expect(tab.page.locator(part).first).to_be_visible()
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await tab.page.evaluate(wide) <= 0, view
        assert await tab.page.evaluate(STICKING_OUT) == [], view
        assert await findings(tab) == [], view
