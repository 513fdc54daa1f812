"""Chats with a model in the browser: what the question tool promises, on both model APIs where that matters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Route, expect

from handraise.chat import ChatSettings, ModelTable
from handraise.testing.model import ScriptedModel, call
from tests.browser.axe import findings
from tests.browser.people import PATIENCE, PHONE, Body, Card, Desk, People, Tab, gathered
from tests.browser.test_languages import ENGLISH, STICKING_OUT, from_right_to_left
from tests.browser.test_views import said
from tests.helpers.commands import Person as Somebody
from tests.helpers.serving import told
from tests.helpers.talking import ASK, STORAGE, Talk, model_settings, texts

EVIL = "<img src=x onerror=alert(1)> [go](javascript:alert(1)) \u202eabc"


def weather(city: str = "here") -> str:
    """A tool besides the question."""
    return f"it rains {city}"


def _answer(request: Any) -> str:
    """A reply that repeats the person's last message as the model got it."""
    content = [each for each in request.body["messages"] if each["role"] == "user"][-1]["content"]
    if not isinstance(content, str):
        content = [part["text"] for part in content if part["type"] == "text"][-1]
    return f"You said {content!r}."


SCENARIOS: dict[str, Any] = {
    "hello": ["Hello there.", "And again."],
    "ask": [["Let me *ask*. ", ASK], _answer, _answer],
    "many": [call("question", **STORAGE, multiple=True), _answer],
    "fixed": [call("question", **STORAGE, custom=False), _answer],
    "two": [[ASK, ASK], "Sorry for two."],
    "beside": [[call("weather"), ASK], "Sorry for beside."],
    "after": [[ASK, call("weather")], "Sorry for after."],
    "malformed": [call("question", question="?", options=[{"label": "x" * 31}]), ASK, _answer],
    "tool": [call("weather", city="in Rome"), "So it rains."],
    "grow": [["First words.\n\nThe second ", "paragraph **grows** on."], "ok"],
    "fails": ["never said"],
    "evil": [
        [
            EVIL,
            call("question", question=EVIL, header=EVIL[:29], options=[{"label": EVIL[:28], "description": EVIL}]),
        ],
        EVIL,
    ],
}
APIS = ("openai", "anthropic")
on_both_apis = pytest.mark.parametrize("desk", APIS, indirect=True)


@pytest_asyncio.fixture(loop_scope="session")
async def model() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel(SCENARIOS) as scripted:
        yield scripted


@pytest_asyncio.fixture(loop_scope="session")
async def desk(request: pytest.FixtureRequest, tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Desk]:
    api = getattr(request, "param", "openai")
    settings = model_settings(model, api=api, tools=("tests.browser.test_chat:weather",))
    async with Desk(tmp_path / "home", chat=settings) as started:
        yield started


async def begin(desk: Desk, tab: Tab, scenario: str) -> Talk:
    """A chat in which the scenario was named, shown in the tab."""
    talk = await Talk.begin(desk.http, f"SCENARIO:{scenario}")
    await tab.open(f"#/chats/{talk.id}")
    return talk


async def asked(desk: Desk, tab: Tab, scenario: str = "ask") -> tuple[Talk, Card]:
    """The same, once it waits at its question."""
    talk = await begin(desk, tab, scenario)
    card = tab.card((await talk.question())["extra"]["askId"])
    await expect(card.element).to_have_attribute("data-state", "asked")
    return talk, card


def composer(tab: Tab) -> Locator:
    return tab.page.get_by_label("Message to scripted")


def line(tab: Tab) -> Locator:
    """What sending will do."""
    return tab.page.locator(".composer .purpose")


async def write(tab: Tab, text: str) -> None:
    """As somebody does who types, and then presses Enter when that sends it."""
    await composer(tab).focus()
    await tab.page.keyboard.type(text)
    await expect(tab.page.locator(".composer [data-action=send]")).not_to_have_attribute("aria-disabled", "true")
    await tab.press("Enter")


def replies(tab: Tab) -> Locator:
    return said(tab, "agent")


async def is_resolved(card: Card, state: str) -> None:
    """Question and outcome are there; nothing can be pressed or typed; what was offered is folded away."""
    await expect(card.element).to_have_attribute("data-state", state)
    await expect(card.element).to_contain_text(STORAGE["question"])
    await expect(card.element.locator("button, input, textarea")).to_have_count(0)
    await expect(card.element.get_by_text("one file")).to_be_hidden()
    await card.element.locator("summary").click()
    await expect(card.element.get_by_text("one file")).to_be_visible()
    await card.element.locator("summary").click()


# The question tool --------------------------------------------------------------------------------------------------


@on_both_apis
async def test_a_question_waits_under_the_message_that_asked_and_a_click_sends_its_label(
    desk: Desk, inbox: Tab, model: ScriptedModel, subtests: pytest.Subtests
) -> None:
    talk, card = await asked(desk, inbox)
    with subtests.test("the pending block is under the current assistant message"):
        under = replies(inbox).last.locator("article")
        await expect(under).to_have_attribute("data-ask", (await talk.read())["ask"])
        await expect(replies(inbox).last.locator(".prose").first).to_have_text("Let me ask.")
        await expect(inbox.page.locator("#chat-title + .standing")).to_contain_text("Asks you")
        await expect(card.heading).to_have_text("Storage")
    with subtests.test("the session is paused until there is a reply"):
        await inbox.page.reload()
        await expect(card.choice("SQLite")).to_be_visible()
        assert len(model.requests) == 1
        assert (await talk.read())["state"] == "asking"
    with subtests.test("single-select: clicking an option inserts its label and sends it"):
        await card.element.get_by_text("PostgreSQL").click()
        await expect(said(inbox, "person").nth(1)).to_contain_text("PostgreSQL")
        await expect(replies(inbox).last).to_contain_text("You said 'PostgreSQL'.")
        await expect(said(inbox, "person")).to_have_count(2)
    with subtests.test("replied: question and answer, no buttons, no inputs"):
        await expect(card.heading).to_be_focused()
        await is_resolved(card, "answered")
        await expect(card.element.locator(".outcome")).to_contain_text("PostgreSQL")
        await expect(inbox.page.locator("#chat-title + .standing")).to_contain_text("Idle")
    block = (await talk.read())["messages"][1]["blocks"][-1]
    assert (block["status"], block["extra"]["answerText"]) == ("success", "PostgreSQL")


@on_both_apis
async def test_several_choices_become_one_label_a_line_with_own_text_last(desk: Desk, inbox: Tab) -> None:
    talk, card = await asked(desk, inbox, "many")
    await card.choice("PostgreSQL").click()
    await card.choice("SQLite").click()
    await expect(said(inbox, "person")).to_have_count(1)  # a click only selects
    await card.own.fill("and a cache")
    await inbox.press("Control+Enter")
    await expect(said(inbox, "person").nth(1).locator(".lines")).to_have_text("SQLite\nPostgreSQL\nand a cache")
    await expect(replies(inbox).last).to_contain_text("You said 'SQLite\\nPostgreSQL\\nand a cache'.")
    await is_resolved(card, "answered")
    assert texts(await talk.until())[2] == ("user", "SQLite\nPostgreSQL\nand a cache")


@on_both_apis
async def test_a_typed_answer_is_sent_by_enter(desk: Desk, inbox: Tab) -> None:
    _, card = await asked(desk, inbox)
    await card.own.focus()
    await inbox.page.keyboard.type("neither")
    await inbox.press("Enter")
    await expect(replies(inbox).last).to_contain_text("You said 'neither'.")
    await expect(said(inbox, "person").nth(1)).to_contain_text("neither")
    await is_resolved(card, "answered")


async def test_a_note_to_a_choice_reaches_the_model(desk: Desk, inbox: Tab) -> None:
    _, card = await asked(desk, inbox)
    await card.own.fill("but small")
    await card.element.get_by_text("SQLite").click()  # with something typed a click only selects
    await card.send()
    await expect(replies(inbox).last).to_contain_text("You said 'SQLite\\nbut small'.")
    await expect(card.element.locator(".outcome")).to_contain_text("but small")


@on_both_apis
async def test_a_message_by_hand_answers_without_an_extra_one(
    desk: Desk, inbox: Tab, subtests: pytest.Subtests
) -> None:
    for scenario in ("ask", "fixed"):
        with subtests.test(scenario):
            talk, card = await asked(desk, inbox, scenario)
            await expect(line(inbox)).to_contain_text("Your message will answer “Storage”.")
            await expect(inbox.page.get_by_label("Send as a plain message")).to_have_count(0)
            await expect(card.own).to_have_count(0 if scenario == "fixed" else 1)
            await write(inbox, "think again")
            await is_resolved(card, "answered")
            await expect(replies(inbox).last).to_contain_text("You said 'think again'.")
            await expect(said(inbox, "person")).to_have_count(2)
            await expect(line(inbox)).not_to_contain_text("will answer")
            await expect(composer(inbox)).to_have_value("")
            answer = (await talk.read())["messages"][1]["blocks"][-1]["extra"]
            assert answer["answerMessageId"] == (await talk.read())["messages"][2]["id"]


@on_both_apis
async def test_a_rejection_inserts_nothing_and_waits(desk: Desk, inbox: Tab, model: ScriptedModel) -> None:
    talk, card = await asked(desk, inbox)
    await card.action("decline").click()
    await card.element.locator("[data-field=reason]").fill("not now")
    await card.action("confirm-decline").click()
    await is_resolved(card, "rejected")
    await expect(card.element.locator(".outcome")).to_contain_text("Rejected")
    await expect(card.element).to_contain_text("not now")
    await expect(said(inbox, "person")).to_have_count(1)
    assert (await talk.until())["state"] == "idle"
    assert len(model.requests) == 1
    await write(inbox, "just go on")
    await expect(replies(inbox).last).to_contain_text("You said 'just go on'.")
    await expect(card.element).to_have_attribute("data-state", "rejected")


@on_both_apis
async def test_questions_against_the_rules_show_an_error_and_do_not_pause(
    desk: Desk, inbox: Tab, subtests: pytest.Subtests
) -> None:
    reasons = {"two": "One question at a time", "beside": "must stand alone", "after": "must be the last"}
    for scenario, reason in reasons.items():
        with subtests.test(scenario):
            talk = await begin(desk, inbox, scenario)
            await talk.until()
            await expect(replies(inbox).last.locator(".error")).to_contain_text(reason)
            await expect(replies(inbox).last).to_contain_text(f"Sorry for {scenario}.")
            await expect(inbox.cards).to_have_count(0)
            await expect(inbox.page.locator("#chat-title + .standing")).to_contain_text("Idle")
            await inbox.page.reload()
            await expect(replies(inbox).last.locator(".error")).not_to_have_attribute("role", "alert")
    with subtests.test("said aloud where it happens"):
        await write(inbox, "SCENARIO:two")
        await expect(inbox.page.get_by_role("alert")).to_contain_text("One question at a time")


@on_both_apis
async def test_malformed_arguments_are_shown_and_corrected(desk: Desk, inbox: Tab) -> None:
    _, card = await asked(desk, inbox, "malformed")
    await expect(replies(inbox).last.locator(".error")).to_contain_text("cannot be shown")
    await expect(replies(inbox)).to_have_count(1)
    await card.element.get_by_text("SQLite").click()
    await expect(replies(inbox).last).to_contain_text("You said 'SQLite'.")


# While it waits -----------------------------------------------------------------------------------------------------


async def test_a_question_survives_a_restart_of_the_desk(desk: Desk, inbox: Tab) -> None:
    inbox.complaints.allow("ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
    _, card = await asked(desk, inbox)
    await card.own.fill("half a tho")
    await composer(inbox).fill("a second one")
    await desk.stop()
    await expect(inbox.page.get_by_text("Reconnecting…")).to_be_visible()
    await expect(card.own).to_have_value("half a tho")
    await write(inbox, " to lose")
    await expect(inbox.page.locator(".composer [role=alert]")).to_be_visible()
    await expect(composer(inbox)).to_have_value("a second one to lose")
    await desk.start()
    await expect(inbox.page.get_by_text("Reconnecting…")).to_be_hidden()
    await expect(card.own).to_have_value("half a tho")
    await card.element.get_by_text("SQLite").click()
    await card.send()
    await expect(replies(inbox).last).to_contain_text("You said 'SQLite\\nhalf a tho'.")


async def test_what_is_answered_elsewhere_changes_under_ones_eyes_and_keeps_what_was_typed(
    desk: Desk, inbox: Tab, people: People, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    ada = await people.inbox()
    with subtests.test("from the inbox page"):
        _, card = await asked(desk, inbox)
        await card.own.focus()
        await inbox.page.keyboard.type("MyS")
        await ada.open("#/")
        await ada.cards.get_by_text("PostgreSQL").click()
        await expect(card.element).to_have_attribute("data-state", "answered")
        await expect(card.element.locator(".outcome")).to_contain_text("PostgreSQL")
        await expect(card.element).to_contain_text("Your draft was not sent.")
        await expect(card.element.locator("blockquote")).to_have_text("MyS")
        await expect(card.heading).to_be_focused()  # never nowhere
        await expect(replies(inbox).last).to_contain_text("You said 'PostgreSQL'.")
    with subtests.test("from the terminal"):
        talk, card = await asked(desk, inbox)
        somebody = Somebody(
            tmp_path, HANDRAISE_URL=desk.url, HANDRAISE_TOKEN=desk.served.settings.token_file.read_text().strip()
        )
        await composer(inbox).focus()
        await inbox.page.keyboard.type("Ora")
        done = await somebody.run("answer", (await talk.read())["ask"], "1", "--by", "ben")
        assert done.code == 0, done.err
        await is_resolved(card, "answered")
        await expect(card.element).to_contain_text("SQLite")
        await expect(card.element).to_contain_text("Given by ben, in the command line")
        await expect(inbox.page.locator(".composer [role=alert]")).to_contain_text("Already answered by ben")
        await expect(composer(inbox)).to_have_value("Ora")
        await composer(inbox).focus()
        await inbox.press("Enter")  # what was meant for the question goes nowhere else by itself
        await expect(composer(inbox)).to_have_value("Ora")
        await inbox.page.locator(".composer [data-action=close]").click()
        await expect(composer(inbox)).to_be_focused()
        await expect(replies(inbox).last).to_contain_text("You said 'SQLite'.")
        await inbox.press("Enter")
        await expect(replies(inbox).last).to_contain_text("You said 'Ora'.")


async def test_a_message_that_comes_too_late_says_who_was_faster_and_stays(
    desk: Desk, inbox: Tab, model: ScriptedModel
) -> None:
    talk, card = await asked(desk, inbox)
    writing = model.hold("ask", step=1)
    ask = (await talk.read())["ask"]

    async def be_faster(route: Route) -> None:
        await desk.answer(ask, "SQLite", by="ada")
        await route.continue_()

    await inbox.page.route("**/v1/chats/*/messages", be_faster)
    inbox.complaints.allow("409")
    await write(inbox, "Oracle")
    await expect(inbox.page.locator(".composer [role=alert]")).to_contain_text("Already answered by ada")
    await expect(composer(inbox)).to_have_value("Oracle")
    writing.release()
    await is_resolved(card, "answered")


async def test_a_settled_question_is_read_from_its_block_where_the_ask_is_gone(desk: Desk, inbox: Tab) -> None:
    _, card = await asked(desk, inbox)
    await card.element.get_by_text("SQLite").click()
    await expect(replies(inbox)).to_have_count(2)

    async def nothing(route: Route) -> None:
        await route.fulfill(json={"asks": [], "next": None})

    await inbox.page.route("**/v1/asks?session=*", nothing)
    await inbox.page.reload()
    await is_resolved(card, "answered")
    await expect(card.element.locator(".outcome")).to_contain_text("SQLite")
    await expect(card.element.locator("[data-taken]")).to_contain_text("SQLite")
    await expect(card.element).not_to_contain_text("Given by")


async def test_a_card_in_the_inbox_leads_to_its_chat_which_is_no_session(desk: Desk, inbox: Tab) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:ask")
    await talk.question()
    await inbox.cards.locator(".origin a").click()
    await expect(inbox.page).to_have_url(f"{desk.url}/#/chats/{talk.id}")
    await expect(inbox.page.locator("#chat-title")).to_have_text("SCENARIO:ask")
    await inbox.open("#/sessions")
    await expect(inbox.page.get_by_text("No agent has been here yet.")).to_be_visible()


# What a model writes ------------------------------------------------------------------------------------------------


@on_both_apis
async def test_a_reply_grows_as_it_is_written_and_can_be_stopped_and_tried_again(
    desk: Desk, inbox: Tab, model: ScriptedModel, subtests: pytest.Subtests
) -> None:
    hold = model.pause("grow", step=0)
    talk = await begin(desk, inbox, "grow")
    second = await inbox.person.tab(f"#/chats/{talk.id}")
    reply = replies(inbox).last
    with subtests.test("it grows, in every tab"):
        for tab in (inbox, second):
            await expect(replies(tab).last).to_contain_text("The second")
            await expect(tab.page.locator("#chat-title + .standing")).to_contain_text("Writing")
        await expect(reply).to_have_attribute("aria-busy", "true")
        assert await findings(inbox) == []
    with subtests.test("nothing can be sent meanwhile, and what is written stays"):
        await composer(inbox).focus()
        await inbox.page.keyboard.type("one more thing")
        await inbox.press("Enter")
        await expect(line(inbox)).to_contain_text("when the reply is complete")
        await expect(composer(inbox)).to_have_value("one more thing")
    with subtests.test("Escape stops nothing, the button does"):
        await inbox.press("Escape")
        assert (await talk.read())["state"] == "writing"
        await inbox.page.locator("button[data-action=stop]").click()
        await expect(reply).to_contain_text("Stopped.")
        await expect(reply).to_contain_text("The second")
        await expect(composer(inbox)).to_be_focused()
        await expect(composer(inbox)).to_have_value("one more thing")
    with subtests.test("tried again, with what is selected left alone until it is let go"):
        await second.page.bring_to_front()
        await second.page.locator("button[data-action=retry]").click()
        growing = replies(second).last.locator(".prose p").last
        await expect(growing).to_have_text("The second")
        await expect(replies(second).last).not_to_contain_text("Stopped.")
        first = replies(second).last.locator(".prose p").first
        await first.select_text()
        kept = await first.element_handle()
        hold.release()
        await talk.until()
        await expect(second.page.locator("#chat-title + .standing")).to_contain_text("Idle")
        if await replies(second).last.locator("> .prose").count() == 1:  # on one of the APIs each text is a block
            await expect(growing).to_have_text("The second")
        assert await second.page.evaluate("getSelection().toString()") == "First words."
        await second.page.evaluate("getSelection().removeAllRanges()")
        await expect(growing).to_contain_text("paragraph grows on.")
        assert await second.page.evaluate("node => node.isConnected", kept)  # never drawn anew
        await expect(replies(second)).to_have_count(1)
        await expect(replies(inbox).last).to_contain_text("paragraph grows on.")
        await expect(inbox.page.locator(".said strong")).to_have_text("grows")
        await expect(second.page.locator(".unseen[role=status]")).to_contain_text("grows on")  # and is read out


async def test_a_reply_is_heard_in_every_tab_and_no_late_reading_takes_it_back(
    desk: Desk, inbox: Tab, model: ScriptedModel
) -> None:
    hold = model.pause("grow", step=0)
    talk = await begin(desk, inbox, "grow")
    tabs = (inbox, await inbox.person.tab(f"#/chats/{talk.id}"))
    for tab in tabs:
        await expect(replies(tab)).to_contain_text("The second")
    read, heard = asyncio.Event(), asyncio.Event()

    async def be_late(route: Route) -> None:
        if read.is_set() or route.request.frame.page != inbox.page:
            await route.abort()
            return
        early = await route.fetch()
        read.set()
        await heard.wait()
        await route.fulfill(response=early)

    reading = "**/v1/chats/*?since=*"
    await inbox.person.context.route(reading, be_late)
    inbox.complaints.allow("ERR_FAILED")
    async with asyncio.timeout(PATIENCE):
        await read.wait()
    hold.release()
    for tab in tabs:
        await expect(replies(tab).locator(".prose p").last).to_have_text("The second paragraph grows on.")
        await expect(replies(tab)).to_have_attribute("data-state", "writing")  # more than that nobody could read
    async with inbox.page.expect_response(reading) as late:
        heard.set()
    await (await late.value).finished()
    await inbox.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert await replies(inbox).locator(".prose p").last.inner_text() == "The second paragraph grows on."


@on_both_apis
async def test_a_model_that_fails_says_why_and_can_be_tried_again(desk: Desk, inbox: Tab, model: ScriptedModel) -> None:
    model.failing("fails", step=0, status=401, times=9)
    talk = await begin(desk, inbox, "fails")
    reply = replies(inbox).last
    await expect(reply.locator(".error")).to_contain_text("did not accept the key")
    await expect(reply).to_have_attribute("data-state", "failed")
    assert await findings(inbox) == []
    model.failing("fails", step=0, status=401, times=0)
    model.scenarios["fails"] = ["Now it works."]
    await reply.locator("[data-action=retry]").focus()
    await inbox.press("Enter")
    await expect(replies(inbox).last).to_contain_text("Now it works.")
    await expect(replies(inbox)).to_have_count(1)
    await expect(composer(inbox)).to_be_focused()  # never nowhere
    assert (await talk.until())["state"] == "idle"


async def test_a_long_reply_is_followed_unless_one_reads_further_up(
    desk: Desk, inbox: Tab, model: ScriptedModel
) -> None:
    lines = [f"Line {number}.\n\n" for number in range(60)]
    model.scenarios["long"] = [["".join(lines), "The end."]]
    hold = model.pause("long", step=0)
    await begin(desk, inbox, "long")
    await expect(inbox.page.get_by_text("Line 59.")).to_be_in_viewport()
    await inbox.page.evaluate("scrollTo(0, 0)")
    await expect(inbox.page.get_by_text("Line 59.")).not_to_be_in_viewport()
    hold.release()
    await expect(inbox.page.locator(".said").get_by_text("The end.")).to_be_attached()
    assert await inbox.page.evaluate("scrollY") == 0
    await inbox.page.get_by_role("button", name="New below").click()
    await expect(inbox.page.locator(".said").get_by_text("The end.")).to_be_in_viewport()


async def test_tools_are_folded_with_what_they_were_given_and_gave(desk: Desk, inbox: Tab) -> None:
    await begin(desk, inbox, "tool")
    tool = replies(inbox).last.locator("details")
    await expect(tool.locator("summary")).to_contain_text("weather")
    await expect(replies(inbox).last).to_contain_text("So it rains.")
    await expect(replies(inbox).last).not_to_contain_text("it rains in Rome")
    await tool.locator("summary").click()
    await expect(tool).to_contain_text('"city": "in Rome"')
    await expect(tool).to_contain_text("it rains in Rome")


async def insert(desk: Desk, talk: Talk, *blocks: Body) -> None:
    """Put these under the last reply, as a desk might that is newer than this page."""
    reply = (await talk.until())["messages"][-1]
    await desk.served.broker.store.write_all(
        ("update chats set version = version + 1 where id = ?", (talk.id,)),
        (
            "update chat_messages set blocks = ?, version = version + 1 where id = ?",
            (json.dumps([*reply["blocks"], *blocks]), reply["id"]),
        ),
        topic="chats",
    )


async def test_what_a_page_does_not_know_is_a_plain_line(desk: Desk, inbox: Tab) -> None:
    talk = await begin(desk, inbox, "hello")
    await expect(replies(inbox).last).to_contain_text("Hello there.")
    await insert(
        desk,
        talk,
        {"type": "action", "action_type": "vote", "content": "Vote on it", "status": "pending", "extra": {"a": 1}},
        {"type": "action", "action_type": "question_request", "content": "A broken one", "status": "pending"},
        {"type": "hologram"},
        {"type": "reasoning_content", "content": "I thought"},
    )
    last = replies(inbox).last
    await expect(last.locator(".action")).to_have_count(3)
    await expect(last.locator('[data-action-type="vote"]')).to_have_text("Vote on itpending")
    await expect(last).to_contain_text("A broken one")
    await expect(last).to_contain_text("Not shown here: hologram")
    await expect(last.locator(".action button, .action input")).to_have_count(0)
    await expect(last).not_to_contain_text("I thought")
    await last.get_by_text("Reasoning").click()
    await expect(last).to_contain_text("I thought")
    assert await findings(inbox) == []


async def test_nothing_that_a_model_wrote_becomes_markup(desk: Desk, inbox: Tab) -> None:
    talk = await begin(desk, inbox, "evil")
    await talk.question()
    await expect(inbox.cards.first).to_be_visible()
    inert = "main img, main a[href^=javascript], main [onerror]"
    await expect(inbox.page.get_by_text("\\u202eabc")).not_to_have_count(0)
    assert await inbox.page.locator(inert).count() == 0
    await write(inbox, EVIL)
    await expect(replies(inbox)).to_have_count(2)
    await expect(replies(inbox).last).to_contain_text("<img src=x onerror=alert(1)>")
    await insert(
        desk,
        talk,
        {"type": "error", "content": EVIL},
        {"type": EVIL, "content": EVIL, "status": EVIL},
        {"type": "tool_call", "tool_call": {"id": "x", "name": EVIL, "params": EVIL, "response": EVIL}, "status": EVIL},
    )
    await inbox.page.locator(".workings summary").click()
    await expect(inbox.page.locator(".workings dd")).to_have_count(2)
    assert await inbox.page.locator(inert).count() == 0


# The list -----------------------------------------------------------------------------------------------------------


async def test_chats_are_begun_renamed_and_deleted(
    desk: Desk, inbox: Tab, people: People, model: ScriptedModel
) -> None:
    hold = model.hold("hello", step=0)
    other = await people.inbox()
    await other.open("#/chats")
    await inbox.open("#/chats")
    await expect(inbox.page.get_by_label("Model", exact=True)).to_have_count(0)  # there is one
    await inbox.page.get_by_label("New chat").focus()
    await inbox.page.keyboard.type("SCENARIO:hello")
    await inbox.press("Enter")
    await expect(inbox.page.locator("#chat-title")).to_have_text("SCENARIO:hello")
    await expect(inbox.page.locator("#chat-title")).to_be_focused()
    row = other.page.locator("li[data-chat]")
    await expect(row).to_contain_text("SCENARIO:hello")
    await expect(row).to_contain_text("Writing")
    await expect(row).to_contain_text("scripted")
    hold.release()
    await expect(replies(inbox)).to_contain_text("Hello there.")
    await expect(row).to_contain_text("Idle")
    await (await Talk.begin(desk.http, "SCENARIO:ask")).question()
    await expect(row.first).to_contain_text("Asks you")  # the newest first
    assert await findings(other) == []
    await row.nth(1).get_by_role("button", name="Rename").click()
    await expect(other.page.get_by_label("Name")).to_be_focused()
    await other.page.get_by_label("Name").fill("A greeting")
    await other.press("Enter")
    await expect(row.nth(1).get_by_role("link")).to_contain_text("A greeting")
    await expect(inbox.page.locator("#chat-title")).to_have_text("A greeting")
    await row.nth(1).get_by_role("button", name="Delete").click()
    await expect(other.page.get_by_role("button", name="Cancel")).to_be_focused()
    await expect(row).to_have_count(2)
    await row.nth(1).get_by_role("button", name="Yes, delete the chat").click()
    await expect(row).to_have_count(1)
    for tab in (inbox, other):
        tab.complaints.allow("404")
    await expect(inbox.page.get_by_text("There is no such chat.")).to_be_visible()
    await row.get_by_role("link").click()
    await other.page.get_by_role("button", name="Delete").click()
    await other.page.get_by_role("button", name="Yes, delete the chat").click()
    await expect(other.page).to_have_url(f"{desk.url}/#/chats")
    await expect(row).to_have_count(0)


async def test_a_model_is_chosen_where_there_are_several_and_explained_where_there_is_none(
    browser: Browser, tmp_path: Path, model: ScriptedModel
) -> None:
    table = ModelTable(api="openai", model="scripted", url=f"{model.url}/v1")
    several = ChatSettings(models={"small": table, "large": table}, model="large")
    async with Desk(tmp_path / "several", chat=several) as desk, gathered(browser, desk) as people:
        tab = await people.inbox()
        await tab.open("#/chats")
        await expect(tab.page.get_by_label("Model")).to_have_value("large")
        await tab.page.get_by_label("Model").select_option("small")
        await tab.page.get_by_label("New chat").fill("SCENARIO:hello")
        await tab.press("Enter")
        await expect(replies(tab)).to_contain_text("Hello there.")
        [chat] = (await told(desk.http.get("/v1/chats"), 200))["chats"]
        assert chat["model"] == "small"
        people.check()
    async with Desk(tmp_path / "none") as desk, gathered(browser, desk) as people:
        tab = await people.inbox()
        await tab.open("#/chats")
        await expect(tab.page.get_by_text("No model is set up yet.")).to_be_visible()
        await expect(tab.page.get_by_text('api = "openai"')).to_be_visible()
        await expect(tab.page.get_by_label("New chat")).to_have_count(0)
        assert await findings(tab) == []
        people.check()


# Everywhere ---------------------------------------------------------------------------------------------------------


async def test_a_chat_can_be_used_by_the_keyboard_alone(desk: Desk, inbox: Tab, subtests: pytest.Subtests) -> None:
    await inbox.open("#/chats")
    await inbox.page.get_by_label("New chat").focus()
    await inbox.page.keyboard.type("SCENARIO:ask")
    await inbox.press("Enter")
    card = Card(inbox.cards)
    with subtests.test("the focus goes to the own answer when the question comes"):
        await expect(card.own).to_be_focused()
    with subtests.test("Escape answers nothing"):
        await inbox.press("Escape", "Escape", "Escape")
        await expect(card.element).to_have_attribute("data-state", "asked")
    with subtests.test("a number selects, Enter sends"):
        await card.heading.focus()
        await inbox.press("2")
        await expect(card.choice("PostgreSQL")).to_be_checked()
        await expect(said(inbox, "person")).to_have_count(1)
        await inbox.press("Enter")
        await expect(replies(inbox).last).to_contain_text("You said 'PostgreSQL'.")
        await expect(card.heading).to_be_focused()
    with subtests.test("from an empty message field the focus goes to the question too"):
        await write(inbox, "SCENARIO:many")
        many = Card(inbox.page.locator("article[data-state=asked]"))
        await expect(many.own).to_be_focused()
    with subtests.test("several choices: Enter adds the text, Ctrl+Enter sends all"):
        await inbox.page.keyboard.type("a cache")
        await inbox.press("Enter")
        await expect(many.element.locator(".added")).to_contain_text("a cache")
        await expect(many.element).to_have_attribute("data-state", "asked")
        await many.heading.focus()
        await inbox.press("1", "Control+Enter")
        await expect(replies(inbox).last).to_contain_text("You said 'SQLite\\na cache'.")
    with subtests.test("without own words the focus goes to the first choice"):
        await write(inbox, "SCENARIO:fixed")
        fixed = Card(inbox.page.locator("article[data-state=asked]"))
        await expect(fixed.choice("SQLite")).to_be_focused()
        await expect(fixed.choice("SQLite")).not_to_be_checked()
        await inbox.press("ArrowDown", "Enter")
        await expect(replies(inbox).last).to_contain_text("You said 'PostgreSQL'.")


async def test_a_question_leaves_the_focus_to_whoever_types_or_selects(
    desk: Desk, inbox: Tab, model: ScriptedModel
) -> None:
    hold = model.pause("ask", step=0)
    await begin(desk, inbox, "ask")
    await expect(replies(inbox).last).to_contain_text("Let me ask.")
    await composer(inbox).focus()
    await inbox.page.keyboard.type("I am ty")
    hold.release()
    await expect(inbox.cards).to_have_attribute("data-state", "asked")
    await inbox.page.keyboard.type("ping")
    await expect(composer(inbox)).to_have_value("I am typing")
    await inbox.press("Enter")
    await expect(replies(inbox).last).to_contain_text("You said 'I am typing'.")
    hold = model.pause("ask", step=0)
    hold_again = model.hold("many", step=0)
    await write(inbox, "SCENARIO:many")
    await composer(inbox).blur()
    await replies(inbox).first.locator(".prose p").first.select_text()
    hold_again.release()
    await expect(inbox.page.locator("article[data-state=asked]")).to_have_count(1)
    assert await inbox.page.evaluate("getSelection().toString()") == "Let me ask."
    assert await inbox.focused() == "body"


async def test_there_are_no_barriers_asked_replied_rejected_or_failed_in_any_light_or_direction(
    desk: Desk, inbox: Tab, people: People
) -> None:
    long = "a-rather-long-name-without-any-blank" * 3
    narrow = {**PHONE, "width": 320}
    dark = await people.inbox(viewport=narrow, color_scheme="dark")
    backwards = await from_right_to_left(people, ENGLISH, viewport=narrow)
    talk, _ = await asked(desk, inbox)
    await desk.answer((await talk.read())["ask"], "SQLite", by="ada")
    await talk.until()
    await talk.say(f"SCENARIO:two {long}")
    await talk.until()
    await talk.say("SCENARIO:many")
    await talk.question()
    rejected, _ = await asked(desk, inbox)
    await told(desk.http.post(f"/v1/asks/{(await rejected.read())['ask']}/reject", json={"reason": long}), 200)
    for tab in (inbox, dark, backwards):
        await tab.open(f"#/chats/{talk.id}")
        await expect(tab.page.locator("article[data-state=asked]")).to_be_visible()
        await expect(tab.page.locator("article[data-state=answered]")).to_be_attached()
        await expect(tab.page.locator(".said .error")).to_be_attached()
        assert await findings(tab) == []
        assert await tab.page.evaluate(STICKING_OUT) == []
        await tab.open(f"#/chats/{rejected.id}")
        await expect(tab.page.locator("article[data-state=rejected]")).to_be_visible()
        assert await findings(tab) == []
        await tab.open("#/chats")
        await expect(tab.page.locator("li[data-chat]")).to_have_count(2)
        assert await findings(tab) == []
        assert await tab.page.evaluate(STICKING_OUT) == []
