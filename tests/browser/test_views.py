"""Sessions, history, settings, the key help and the empty inbox, as people see and use them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Locator, expect

from handraise.agents.scripted import Scripted
from handraise.asks import Option, Question
from handraise.events import Asked
from tests.browser.axe import findings
from tests.browser.people import PHONE, Desk, People, Tab
from tests.helpers.serving import first_event, told

DATABASE = Question("Which database?", (Option("SQLite"), Option("PostgreSQL")), header="Database")


class Worker(Scripted):
    """An agent that is installed, and asks where its prompt says so."""

    name = "opencode"

    def __init__(self) -> None:
        super().__init__()
        self.on_question("ask", DATABASE)
        self.on_failure("break", "the model is away")
        self.on("", lambda answers: f"Done, with {answers[0].value}." if answers else "**Done.** Read `notes.md`.")


@pytest_asyncio.fixture(loop_scope="session")
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with Desk(tmp_path / "home", staff=[Worker()]) as started:
        yield started


async def a_session(desk: Desk, prompt: str) -> str:
    """One that was started here, once it waits for a person or for nobody."""
    started = await told(desk.http.post("/v1/sessions", json={"agent": "opencode", "prompt": prompt}), 201)
    id = str(started["id"])
    if "ask" in prompt:
        await until_asked(desk, id)
    else:
        await told(desk.http.get(f"/v1/sessions/{id}", params={"wait": 10}), 200)
    return id


async def until_asked(desk: Desk, session: str) -> str:
    """The id of the first ask of a session."""

    def is_its(event: object) -> bool:
        return isinstance(event, Asked) and event.ask.origin.session == session

    event = await first_event(desk.served.broker, is_its)
    assert isinstance(event, Asked)
    return event.ask.id


def in_group(tab: Tab, name: str, session: str) -> Locator:
    return tab.page.locator(f'[data-group="{name}"] [data-session="{session}"]')


def said(tab: Tab, role: str) -> Locator:
    return tab.page.locator(f'.said[data-role="{role}"]')


# Sessions -----------------------------------------------------------------------------------------------------------


async def test_sessions_stand_under_what_they_do(desk: Desk, inbox: Tab) -> None:
    asking, idle, broken = [await a_session(desk, prompt) for prompt in ("ask me", "go", "break")]
    ended = await a_session(desk, "go")
    await told(desk.http.post(f"/v1/sessions/{ended}/close"), 202)
    await desk.ask(id="q1", body={"origin": {"agent": "claude", "session": "terminal", "cwd": "/src/shop"}})
    await inbox.open("#/sessions")
    await expect(in_group(inbox, "waiting", asking)).to_contain_text("Database")
    await expect(in_group(inbox, "waiting", "terminal")).to_contain_text("/src/shop")
    await expect(in_group(inbox, "idle", idle)).to_contain_text("Idle")
    await expect(in_group(inbox, "idle", broken)).to_contain_text("the model is away")
    await expect(in_group(inbox, "done", ended)).to_contain_text("Ended")
    assert await findings(inbox) == []


async def test_a_session_moves_as_soon_as_it_asks_and_is_answered(desk: Desk, inbox: Tab) -> None:
    await inbox.open("#/sessions")
    await expect(inbox.page.get_by_text("No agent has been here yet.")).to_be_visible()
    session = await a_session(desk, "ask me")
    await expect(in_group(inbox, "waiting", session)).to_be_visible()
    await desk.answer(await until_asked(desk, session), "SQLite")
    await expect(in_group(inbox, "idle", session)).to_be_visible()
    await desk.ask(id="q1", body={"origin": {"agent": "claude", "session": "terminal"}})
    await expect(in_group(inbox, "waiting", "terminal")).to_be_visible()
    await desk.answer("q1", "SQLite")
    await expect(in_group(inbox, "idle", "terminal")).to_contain_text("Not asking")


async def test_a_filter_leaves_the_sessions_that_have_every_word(desk: Desk, inbox: Tab) -> None:
    for place in ("shop", "blog"):
        await desk.ask(id=place, body={"origin": {"agent": "claude", "session": place, "cwd": f"/src/{place}"}})
    await inbox.open("#/sessions")
    rows = inbox.page.locator("[data-session]")
    await expect(rows).to_have_count(2)
    await inbox.page.get_by_label("Filter sessions").fill("CLAUDE  blog")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("/src/blog")
    await inbox.page.get_by_label("Filter sessions").fill("nowhere")
    await expect(inbox.page.get_by_text("No session fits the filter.")).to_be_visible()


async def test_a_session_is_started_in_the_browser(desk: Desk, inbox: Tab, tmp_path: Path) -> None:
    await inbox.open("#/sessions")
    await inbox.page.get_by_role("button", name="Start a session").click()
    form = inbox.page.get_by_role("form", name="Start a session")
    await expect(form.get_by_label("Agent")).to_have_value("opencode")  # the one that is installed
    await form.get_by_text("opencode can").click()
    await expect(form.get_by_role("listitem").filter(has_text="ask questions")).to_be_visible()
    await form.get_by_label("What should it do?").fill("tidy up")
    await form.get_by_label("Folder").fill(str(tmp_path))
    await form.get_by_label("What it may do").select_option("read-only")
    assert await findings(inbox) == []
    await form.get_by_role("button", name="Start").click()
    await expect(said(inbox, "person")).to_contain_text("tidy up")
    await expect(said(inbox, "agent")).to_contain_text("Done.")
    (session,) = (await told(desk.http.get("/v1/sessions"), 200))["sessions"]
    assert (session["cwd"], session["mode"]) == (str(tmp_path), "read-only")


async def test_what_the_desk_does_not_start_it_says_in_its_own_words(inbox: Tab) -> None:
    inbox.complaints.expect("422")
    await inbox.open("#/sessions")
    await inbox.page.get_by_role("button", name="Start a session").click()
    await inbox.page.get_by_label("What should it do?").fill("tidy up")
    await inbox.page.get_by_label("Folder").fill("/no/such/folder")
    await inbox.page.get_by_role("button", name="Start", exact=True).click()
    await expect(inbox.page.get_by_role("alert")).to_contain_text("there is no folder '/no/such/folder'")
    await expect(inbox.page.get_by_label("What should it do?")).to_have_value("tidy up")


# History ------------------------------------------------------------------------------------------------------------


def settled(tab: Tab, id: str) -> Locator:
    return tab.page.locator(f'[data-settled="{id}"]')


async def a_history(desk: Desk) -> None:
    await desk.ask("Which colour?", "red", "blue", id="colour", header="Colour")
    await desk.answer("colour", "blue", by="ada", via="web")
    await desk.delivered("colour")
    await desk.want(id="push", command="git push", body={"origin": {"agent": "codex", "session": "c1"}})
    await desk.reply("push", "reject", message="not on a Friday", by="bo")
    await desk.ask("Which size?", "S", "M", id="size", header="Size")
    await desk.withdraw("size")
    await desk.ask("Still open?", "yes", id="open", header="Open")


async def test_history_is_what_was_settled_and_the_newest_stands_first(desk: Desk, inbox: Tab) -> None:
    await a_history(desk)
    await inbox.open("#/history")
    rows = inbox.page.locator("[data-settled]")
    await expect(rows).to_have_count(3)
    await expect(rows.nth(0)).to_contain_text("no longer waiting")
    await expect(rows.nth(1)).to_contain_text("Denied by bo: not on a Friday")
    await expect(rows.nth(2)).to_contain_text("blue · ada, in the browser")
    await expect(rows.nth(2)).to_contain_text("scripted has it.")
    await rows.nth(2).locator("summary").first.click()
    await expect(rows.nth(2).get_by_text("Which colour?")).to_be_visible()
    await expect(rows.nth(2).get_by_text("red")).to_be_visible()
    assert await findings(inbox) == []


async def test_a_search_and_the_filters_are_part_of_the_address(desk: Desk, inbox: Tab) -> None:
    await a_history(desk)
    await inbox.open("#/history")
    rows = inbox.page.locator("[data-settled]")
    await inbox.page.get_by_label("Search").fill("FRIDAY")
    await expect(rows).to_have_count(1)
    await expect(inbox.page).to_have_url(f"{desk.url}/#/history?q=FRIDAY")
    await inbox.page.get_by_label("Search").fill("")
    await inbox.page.get_by_label("Outcome").select_option("Withdrawn")
    await expect(settled(inbox, "size")).to_be_visible()
    await expect(rows).to_have_count(1)
    await inbox.page.get_by_label("Outcome").select_option("All")
    await inbox.page.get_by_label("Agent").select_option("codex")
    await expect(settled(inbox, "push")).to_be_visible()
    await expect(rows).to_have_count(1)
    await inbox.page.reload()
    await expect(inbox.page.get_by_label("Agent")).to_have_value("codex")
    await expect(rows).to_have_count(1)
    await inbox.page.get_by_label("Search").fill("nothing has this")
    await expect(inbox.page.get_by_text("Nothing fits the search.")).to_be_visible()


async def test_what_is_settled_now_appears_at_the_top_where_it_fits(desk: Desk, inbox: Tab) -> None:
    await a_history(desk)
    await inbox.open("#/history?state=answered")
    rows = inbox.page.locator("[data-settled]")
    await expect(rows).to_have_count(1)
    await desk.ask("Another?", "yes", id="later")
    await desk.want(id="denied", command="make")
    await desk.reply("denied", "reject")
    await desk.answer("later", "yes")
    await expect(rows.first).to_have_attribute("data-settled", "later")
    await expect(rows).to_have_count(2)


async def test_a_long_history_is_read_page_by_page(desk: Desk, inbox: Tab) -> None:
    for number in range(35):
        await desk.ask(id=f"q{number}")
        await desk.answer(f"q{number}", "SQLite")
    await inbox.open("#/history")
    rows = inbox.page.locator("[data-settled]")
    await expect(rows).to_have_count(30)
    await inbox.page.get_by_role("button", name="Show more").click()
    await expect(rows).to_have_count(35)
    await expect(rows.last).to_have_attribute("data-settled", "q0")
    await expect(inbox.page.get_by_role("button", name="Show more")).to_have_count(0)


# Settings and keys --------------------------------------------------------------------------------------------------


async def test_the_name_of_a_person_goes_with_their_answers(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await inbox.open("#/settings")
    await inbox.page.get_by_label("Your name").fill("Ada")
    await inbox.open("#/")
    await inbox.card("q1").element.get_by_text("Postgres").click()
    answer = (await desk.settled("q1"))["answer"]
    assert (answer["by"], answer["via"]) == ("Ada", "web")


async def test_colours_are_chosen_and_kept(inbox: Tab) -> None:
    await inbox.open("#/settings")
    await inbox.page.get_by_label("Dark").check()
    await expect(inbox.page.locator("html")).to_have_attribute("data-theme", "dark")
    assert await findings(inbox) == []
    await inbox.page.reload()
    await expect(inbox.page.locator("html")).to_have_attribute("data-theme", "dark")
    await expect(inbox.page.get_by_label("Dark")).to_be_checked()


async def test_settings_say_which_version_the_desk_has(desk: Desk, inbox: Tab) -> None:
    version = (await told(desk.http.get("/healthz"), 200))["version"]
    await inbox.open("#/settings")
    await expect(inbox.page.get_by_text(f"handraise {version}")).to_be_visible()


async def test_every_key_is_listed_in_a_dialog_that_gives_the_focus_back(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await expect(inbox.card("q1").element).to_be_visible()
    await inbox.press("j")
    await expect(inbox.card("q1").heading).to_be_focused()
    await inbox.press("?")
    dialog = inbox.page.get_by_role("dialog", name="Keys")
    await expect(dialog.get_by_role("row", name="g i To the inbox")).to_be_visible()
    assert await findings(inbox) == []
    await inbox.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(inbox.card("q1").heading).to_be_focused()
    assert (await desk.get("q1"))["state"] == "asked"


async def test_global_keys_can_be_switched_off(inbox: Tab) -> None:
    await inbox.open("#/settings")
    await inbox.page.get_by_label("work everywhere on the page").uncheck()
    await inbox.page.locator("h1").focus()
    await inbox.press("?")
    await expect(inbox.page.get_by_role("dialog")).to_have_count(0)
    await inbox.page.get_by_role("button", name="Show all keys").click()
    await expect(inbox.page.get_by_role("dialog")).to_be_visible()


# The empty inbox ----------------------------------------------------------------------------------------------------


async def test_an_empty_desk_says_how_questions_get_there(inbox: Tab) -> None:
    await expect(inbox.page.get_by_text("Nothing is waiting for you.")).to_be_visible()
    await expect(inbox.page.get_by_role("heading", name="How questions get here")).to_be_visible()
    await expect(inbox.page.get_by_text('handraise ask "Deploy now?" Yes No')).to_be_visible()
    await expect(inbox.page.get_by_text("handraise demo")).to_be_visible()
    assert await findings(inbox) == []


async def test_a_question_for_practice_is_asked_answered_and_taken(desk: Desk, inbox: Tab) -> None:
    await inbox.page.get_by_role("button", name="Ask me something").click()
    await expect(inbox.cards).to_have_count(1)
    await inbox.cards.get_by_text("Early Bird").click()
    await expect(inbox.cards).to_contain_text("handraise has it.")
    await inbox.page.reload()
    await expect(
        inbox.page.get_by_text("How do questions get here?")
    ).to_be_visible()  # folded, once something was asked
    await expect(inbox.page.get_by_role("button", name="Ask me something")).to_be_hidden()


async def test_a_command_is_copied(people: People) -> None:
    person = await people.stranger(permissions=["clipboard-read", "clipboard-write"])
    tab = await person.sign_in()
    await tab.page.get_by_role("button", name="Copy: handraise demo").click()
    await expect(tab.page.get_by_text("Copied")).to_be_visible()
    assert await tab.page.evaluate("navigator.clipboard.readText()") == "handraise demo"


# Everywhere ---------------------------------------------------------------------------------------------------------


async def test_those_who_listen_are_told_that_the_desk_is_back(desk: Desk, inbox: Tab) -> None:
    inbox.complaints.allow("net::ERR_|/v1/|fetching the script")  # Chromium looks for a new service worker
    await expect(inbox.page.get_by_text("Nothing is waiting for you.")).to_be_visible()
    await desk.stop()
    await expect(inbox.page.get_by_text("Reconnecting…")).to_be_visible()
    await desk.start()
    await expect(inbox.page.get_by_text("Connected again.")).to_be_attached()
    await expect(inbox.page.get_by_text("Reconnecting…")).to_have_count(0)


@pytest.mark.parametrize("view", ["", "sessions", "history", "settings"])
async def test_a_phone_shows_every_view_without_scrolling_sideways(desk: Desk, people: People, view: str) -> None:
    long = "a-rather-long-name-without-any-blank-in-it" * 3
    await desk.ask(
        f"{long}?", long, id="q1", header=long, body={"origin": {"agent": "claude", "session": long, "cwd": f"/{long}"}}
    )
    await desk.ask(id="q2", body={"origin": {"agent": long[:60], "session": "s2", "machine": long}})
    await desk.answer("q2", long)
    tab = await people.inbox(viewport={**PHONE, "width": 320})
    await tab.open(f"#/{view}")
    await expect(tab.page.locator("h1")).to_be_visible()
    await expect(
        tab.page.locator("main :is([data-ask], [data-session], [data-settled], fieldset)").first
    ).to_be_visible()
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert await findings(tab) == []
