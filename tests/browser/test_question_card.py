"""The question card: picking and sending, steps, drafts, deadlines, races and lost connections, as people meet them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, Locator, Route, expect

from handraise.testing import FakeClock
from tests.browser.axe import findings
from tests.browser.people import Card, Desk, People, Tab, a_question, gathered
from tests.helpers.serving import DeskProcess, path_of, told

PREVIEWS = ({"label": "Sidebar", "preview": "| |    |"}, {"label": "Top", "preview": "|------|"}, "None")
NARROW = {"width": 320, "height": 640}  # also what is left of 1280 pixels at 400 %
REFUSED = "409"  # browsers log a refused request as an error


async def three_questions(desk: Desk, **fields: Any) -> None:
    await desk.ask_several(
        a_question("Which database?", "SQLite", "Postgres", header="Storage"),
        a_question("Which checks?", "lint", "types", "tests", header="Checks", multiple=True),
        a_question("What is it called?", header="Name", kind="text"),
        id="q1",
        **fields,
    )


def question_of(card: Card, number: int) -> Locator:
    return card.element.get_by_text(f"Question {number} of 3")


async def answers_of(desk: Desk, id: str = "q1") -> Any:
    return (await desk.settled(id))["answer"]["answers"]


async def still_waits(desk: Desk, id: str = "q1") -> bool:
    return bool((await desk.get(id))["state"] == "asked")


async def edited(card: Card) -> None:
    await expect(card.element.get_by_text("Draft saved on this device")).to_be_visible()


# Picking and sending ------------------------------------------------------------------------------------------------


async def test_a_click_on_the_only_single_choice_sends_it(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await inbox.card("q1").element.get_by_text("Postgres").click()
    settled = await desk.settled("q1")
    assert settled["answer"]["answers"] == [["Postgres"]]
    assert settled["answer"]["via"] == "web"
    await expect(inbox.card("q1").element).to_contain_text("Sent. Waiting for scripted to take it.")
    await desk.delivered("q1")
    await expect(inbox.card("q1").element).to_contain_text("scripted has it.")


async def test_arrow_keys_and_numbers_select_and_enter_sends(desk: Desk, inbox: Tab) -> None:
    await desk.ask("Which?", "a", "b", "c", id="q1")
    card = inbox.card("q1")
    await card.heading.focus()
    await inbox.press("1", "ArrowDown", "ArrowDown")
    await expect(card.choice("c")).to_be_checked()
    await inbox.press("Home")
    await expect(card.choice("a")).to_be_checked()
    await inbox.press("Space", "2")
    await expect(card.choice("b")).to_be_focused()
    assert await still_waits(desk)
    await inbox.press("Enter")
    assert await answers_of(desk) == [["b"]]


async def test_enter_on_a_choice_that_is_not_picked_picks_it_first(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await inbox.card("q1").choice("SQLite").focus()
    await inbox.press("Enter")
    await expect(inbox.card("q1").choice("SQLite")).to_be_checked()
    assert await still_waits(desk)
    await inbox.press("Enter")
    assert await answers_of(desk) == [["SQLite"]]


async def test_the_next_card_has_the_focus_after_sending_and_the_last_one_keeps_it(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q 1")
    await desk.ask(id="q2")
    await inbox.card("q 1").choice("SQLite").click()
    await expect(inbox.card("q2").heading).to_be_focused()
    await inbox.press("2", "Enter")
    await expect(inbox.card("q2").element).to_have_attribute("data-state", "answered")
    await expect(inbox.card("q2").heading).to_be_focused()
    assert await answers_of(desk, "q2") == [["Postgres"]]


async def test_enter_in_the_field_sends_what_was_typed_and_shift_enter_begins_a_line(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    card = inbox.card("q1")
    await card.heading.focus()
    await inbox.press("2", "o")
    await expect(card.own).to_be_focused()
    await inbox.page.keyboard.type("MySQL, ")
    await expect(card.choice("Postgres")).not_to_be_checked()
    await inbox.press("Shift+Enter")
    await inbox.page.keyboard.type("the old one")
    await inbox.press("Enter")
    assert await answers_of(desk) == [["MySQL, \nthe old one"]]


async def test_a_choice_picked_after_typing_keeps_the_text_as_a_note_and_sends_nothing(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    card = inbox.card("q1")
    await card.own.fill("but only for now")
    await card.choice("SQLite").click()
    await expect(card.element.get_by_label("Note for scripted")).to_have_value("but only for now")
    await expect(card.own).to_have_value("")
    await card.choice("Postgres").click()
    assert await still_waits(desk)
    await inbox.press("Control+Enter")
    settled = await desk.settled("q1")
    assert settled["answer"]["answers"] == [["Postgres"]]
    assert settled["answer"]["notes"] == ["but only for now"]


async def test_a_multiple_choice_sends_choices_in_the_order_of_the_agent_and_own_text_last(
    desk: Desk, inbox: Tab
) -> None:
    await desk.ask("Which checks?", "lint", "types", "tests", id="q1", multiple=True)
    card = inbox.card("q1")
    await card.own.fill("fuzzing")
    await inbox.press("Enter")
    await expect(card.own).to_have_value("")
    await card.own.fill("a look by hand")
    await card.choice("tests").click()
    await card.choice("types").click()
    await card.choice("lint").click()
    await card.choice("types").click()
    assert await still_waits(desk)
    await card.send()
    assert await answers_of(desk) == [["lint", "tests", "fuzzing", "a look by hand"]]


async def test_an_added_text_can_be_taken_back(desk: Desk, inbox: Tab) -> None:
    await desk.ask("Which checks?", "lint", "types", id="q1", multiple=True)
    card = inbox.card("q1")
    await card.own.fill("fuzzing")
    await inbox.press("Enter")
    await card.element.get_by_role("button", name="Remove “fuzzing”").click()
    await expect(card.own).to_be_focused()
    await inbox.press("Escape", "2", "ArrowUp", "Space", "Control+Enter")
    assert await answers_of(desk) == [["lint", "types"]]


async def test_a_number_has_to_be_one(desk: Desk, inbox: Tab) -> None:
    await desk.ask("How many workers?", id="q1", kind="number", custom=False)
    card = inbox.card("q1")
    await card.own.fill("many")
    await inbox.press("Enter")
    await expect(card.element.get_by_role("alert")).to_have_text("Type a number, such as 2.5.")
    assert await still_waits(desk)
    await card.own.fill(" 12 ")
    await expect(card.element.get_by_role("alert")).to_have_count(0)
    await inbox.press("Enter")
    assert await answers_of(desk) == [["12"]]


async def test_nothing_is_sent_while_nothing_is_answered(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    card = inbox.card("q1")
    await card.heading.focus()
    await inbox.press("Control+Enter")
    await expect(card.element.get_by_role("alert")).to_contain_text("Nothing is answered yet.")
    assert await still_waits(desk)


async def test_where_own_text_is_not_taken_there_is_no_field(desk: Desk, inbox: Tab) -> None:
    await desk.ask("Deploy?", "Yes", "No", id="q1", custom=False)
    await expect(inbox.card("q1").choice("Yes")).to_be_visible()
    await expect(inbox.card("q1").own).to_have_count(0)


async def test_declining_asks_for_a_reason_that_may_be_empty(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await desk.ask(id="q2")
    await inbox.card("q1").heading.focus()
    await inbox.press("x")
    await expect(inbox.card("q1").element.get_by_label("Reason (optional)")).to_be_focused()
    await inbox.page.keyboard.type("ask Ada first")
    await inbox.press("Enter")
    settled = await desk.settled("q1")
    assert (settled["state"], settled["answer"]["reason"]) == ("rejected", "ask Ada first")
    await expect(inbox.card("q1").element).to_contain_text("ask Ada first")
    await inbox.card("q2").action("decline").click()
    await inbox.card("q2").action("confirm-decline").click()
    assert (await desk.settled("q2"))["answer"]["reason"] is None


async def test_a_note_goes_along(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await inbox.card("q1").action("note").click()
    await expect(inbox.card("q1").element.get_by_label("Note for scripted")).to_be_focused()
    await inbox.page.keyboard.type("keep it small")
    await inbox.press("Escape", "1", "Enter")
    assert (await desk.settled("q1"))["answer"]["notes"] == ["keep it small"]


async def test_equal_labels_are_told_apart_and_each_goes_back_as_its_own(desk: Desk, inbox: Tab) -> None:
    await desk.ask("Which one?", "Retry", "Retry", id="q1")
    await inbox.card("q1").choice("Retry (2)").click()
    assert await answers_of(desk) == [["Retry#2"]]


async def test_what_silence_picks_and_what_the_agent_recommends_are_marked(desk: Desk, inbox: Tab) -> None:
    options = ({"label": "a"}, {"label": "b", "recommended": True})
    await desk.ask("Which?", *options, id="q1", body={"question_timeout": 600})
    rows = inbox.card("q1").element.locator(".choice")
    await expect(rows.nth(0).locator(".badge")).to_have_text("default")
    await expect(rows.nth(1).locator(".badge")).to_have_text("recommended")


async def test_every_one_of_many_choices_can_be_reached(desk: Desk, inbox: Tab) -> None:
    await desk.ask("Which?", *(f"choice {number:02}" for number in range(1, 31)), id="q1")
    card = inbox.card("q1")
    await expect(card.element.get_by_role("radio")).to_have_count(20)
    await card.element.get_by_role("button", name="Show all 30 choices").click()
    await card.choice("choice 30").click()
    assert await answers_of(desk) == [["choice 30"]]


async def test_keys_are_hinted_at_where_a_keyboard_was_used(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await desk.ask(id="q2")
    await inbox.card("q1").heading.focus()
    await inbox.press("2")
    await expect(inbox.page.locator(".hints")).to_have_count(1)
    await expect(inbox.card("q1").element.locator(".hints")).to_contain_text("own answer")
    await inbox.card("q2").own.click()
    await expect(inbox.page.locator(".hints")).to_have_count(0)


async def test_a_session_that_was_started_here_can_be_talked_to_instead(desk: Desk, inbox: Tab) -> None:
    started = await told(desk.http.post("/v1/sessions", json={"agent": "scripted", "prompt": "hello"}), 201)
    await desk.ask(id="q1", body={"origin": {"agent": "scripted", "session": started["id"]}})
    await desk.ask(id="q2")
    link = inbox.card("q1").element.get_by_role("link", name="Discuss instead")
    await expect(inbox.card("q2").element).to_be_visible()
    await expect(inbox.page.get_by_role("link", name="Discuss instead")).to_have_count(1)
    await link.click()
    await expect(inbox.page).to_have_url(f"{desk.url}/#/sessions/{started['id']}")
    assert await still_waits(desk)


# Several questions --------------------------------------------------------------------------------------------------


async def test_several_questions_are_stepped_through_reviewed_and_sent_in_order(desk: Desk, inbox: Tab) -> None:
    await three_questions(desk)
    card = inbox.card("q1")
    await card.choice("Postgres").click()
    await expect(question_of(card, 2)).to_be_visible()
    await expect(card.element.locator("legend")).to_be_focused()
    await card.choice("tests").click()
    await card.choice("lint").click()
    await card.action("back").click()
    await card.choice("SQLite").click()  # whoever came back stays
    await expect(question_of(card, 1)).to_be_visible()
    await card.action("next").click()
    await card.action("next").click()
    await card.own.fill("desk")
    await expect(card.action("send")).to_be_visible()
    await inbox.press("Enter")
    review = card.element.locator("[data-review]")
    await expect(review.nth(0)).to_contain_text("SQLite")
    await expect(review.nth(1)).to_contain_text("tests")
    await review.nth(2).get_by_role("button", name="Edit").click()
    await card.own.fill("handraise")
    await inbox.press("Enter")
    await expect(review.nth(2)).to_contain_text("handraise")
    assert await still_waits(desk)
    await card.send()
    assert await answers_of(desk) == [["SQLite"], ["lint", "tests"], ["handraise"]]


async def test_gaps_are_counted_in_the_button_and_sent_as_such(desk: Desk, inbox: Tab) -> None:
    await three_questions(desk)
    card = inbox.card("q1")
    await card.action("skip").click()
    await card.choice("lint").click()
    await card.action("next").click()
    await card.action("skip").click()
    await expect(card.element.locator("[data-review]").nth(0)).to_contain_text("Not answered")
    await expect(card.action("send")).to_have_text("Send 1 of 3")
    await card.send()
    assert await answers_of(desk) == [[], ["lint"], []]
    await expect(card.element).to_contain_text("Not answered · lint · Not answered")


async def test_several_questions_can_be_answered_by_keyboard_alone(desk: Desk, inbox: Tab) -> None:
    await three_questions(desk)
    card = inbox.card("q1")
    await expect(card.element).to_be_visible()
    await inbox.press("j", "2", "Enter")
    await expect(question_of(card, 2)).to_be_visible()
    await inbox.press("1", "End", "Space", "Enter")
    await expect(question_of(card, 3)).to_be_visible()
    await inbox.press("o")
    await expect(card.own).to_be_focused()
    await inbox.page.keyboard.type("desk")
    await inbox.press("Enter")
    await expect(card.element.locator("[data-review]")).to_have_count(3)
    await expect(card.element.locator("legend")).to_be_focused()
    await inbox.press("Control+Enter")
    assert await answers_of(desk) == [["Postgres"], ["lint", "tests"], ["desk"]]


# Previews -----------------------------------------------------------------------------------------------------------


async def test_a_preview_lies_beside_the_choices_and_leaves_the_own_answer(desk: Desk, inbox: Tab) -> None:
    await desk.ask("Which layout?", *PREVIEWS, id="q1")
    card = inbox.card("q1")
    pane = card.element.locator(".preview")
    await card.choice("Top").hover()
    await expect(pane).to_have_text("|------|")
    await card.heading.focus()
    await inbox.press("1")
    await expect(pane).to_have_text("| |    |")
    await inbox.press("p")
    await expect(pane).to_have_count(0)
    await inbox.press("p", "o")
    await expect(pane).to_be_visible()
    await expect(card.own).to_be_focused()
    await inbox.page.keyboard.type("both")
    await inbox.press("Enter")
    assert await answers_of(desk) == [["both"]]


async def test_on_a_narrow_page_a_preview_opens_below_its_choice_without_picking_it(desk: Desk, people: People) -> None:
    await desk.ask("Which layout?", *PREVIEWS, id="q1")
    tab = await people.inbox(viewport=NARROW)
    card = tab.card("q1")
    await card.action("preview").nth(1).click()
    await expect(card.element.locator(".choice").nth(1).locator(".preview")).to_have_text("|------|")
    await expect(card.own).to_be_visible()
    assert await still_waits(desk)


# Leaving it ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["choice", "own", "note", "reason", "heading"])
async def test_escape_leaves_step_by_step_and_never_answers(desk: Desk, inbox: Tab, place: str) -> None:
    await desk.ask("Which layout?", *PREVIEWS, id="q1", header="Layout")
    card = inbox.card("q1")
    await card.heading.focus()
    await inbox.press("1", *{"own": "o", "note": "n", "reason": "x"}.get(place, ""))
    if place in ("own", "note", "reason"):
        await expect(card.element.locator(f'[data-field="{place}"]')).to_be_focused()
        await inbox.page.keyboard.type("text")
        await inbox.press("Escape")
    if place == "heading":
        await card.heading.focus()
    await expect(card.element.locator(".preview")).to_be_visible()
    await expect(card.element.locator("textarea:focus, input[type=text]:focus")).to_have_count(0)
    await inbox.press("Escape")
    await expect(card.element.locator(".preview")).to_have_count(0)
    if place != "heading":
        await inbox.press("Escape")
    await expect(card.heading).to_be_focused()
    await inbox.press("Escape")
    await expect(inbox.page.locator("#inbox-title")).to_be_focused()
    assert await still_waits(desk)
    await edited(card)


@pytest.mark.parametrize(
    ("keys", "place"), [("n", "note"), ("x", "reason"), ("x Escape", "decline")], ids=["note", "reason", "out of it"]
)
async def test_the_focus_is_there_before_the_next_key_can_be(desk: Desk, inbox: Tab, keys: str, place: str) -> None:
    await desk.ask("Which layout?", *PREVIEWS, id="q1", header="Layout")
    await inbox.card("q1").heading.focus()
    pressing = """async (keys) => {
      for (const key of keys) {
        document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
        for (let turn = 0; turn < 20; turn += 1) await null; // no frame is drawn meanwhile
      }
      const {dataset} = document.activeElement;
      return dataset.field ?? dataset.action;
    }"""
    assert await inbox.page.evaluate(pressing, keys.split()) == place


async def test_escape_from_the_review_leaves_everything_as_it_is(desk: Desk, inbox: Tab) -> None:
    await three_questions(desk)
    card = inbox.card("q1")
    await card.choice("SQLite").click()
    await card.element.get_by_role("button", name="Review").click()
    await expect(card.element.locator("legend")).to_be_focused()
    await inbox.press("Escape", "Escape")
    await expect(card.action("send")).to_have_text("Send 1 of 3")
    assert await still_waits(desk)


# Drafts -------------------------------------------------------------------------------------------------------------


async def test_typed_text_and_caret_survive_live_updates_and_a_reload(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1", body={"question_timeout": 600})
    field = inbox.card("q1").own
    await field.fill("half a thought")
    await field.evaluate("field => field.setSelectionRange(5, 6)")
    for number in range(5):
        await desk.ask(id=f"more{number}", body={"question_timeout": 6000})
        await told(desk.http.post(path_of("q1", "keep-waiting")), 200)
    await expect(inbox.cards).to_have_count(6)
    await expect(field).to_be_focused()
    assert await field.evaluate("field => [field.value, field.selectionStart, field.selectionEnd]") == [
        "half a thought",
        5,
        6,
    ]
    await inbox.page.reload()
    await expect(field).to_have_value("half a thought")


async def test_picked_choices_steps_and_notes_survive_a_reload(desk: Desk, inbox: Tab) -> None:
    await three_questions(desk)
    card = inbox.card("q1")
    await card.choice("Postgres").click()
    await expect(question_of(card, 2)).to_be_visible()
    await card.choice("types").click()
    await card.action("note").click()
    note = card.element.get_by_label("Note for scripted")
    await expect(note).to_be_focused()
    await inbox.page.keyboard.type("strictly")
    await expect(note).to_have_value("strictly")
    await inbox.page.reload()
    await expect(question_of(card, 2)).to_be_visible()
    await expect(card.choice("types")).to_be_checked()
    await expect(note).to_have_value("strictly")
    await card.action("back").click()
    await expect(card.choice("Postgres")).to_be_checked()


async def test_a_draft_that_another_tab_sent_is_not_called_unsent(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await inbox.card("q1").own.fill("MySQL")
    await inbox.page.reload()  # which writes it, without the pause
    other = await inbox.person.tab()
    await expect(other.card("q1").own).to_have_value("MySQL")
    await other.card("q1").own.press("Enter")
    await expect(inbox.card("q1").element.locator(".outcome")).to_contain_text("MySQL")
    await expect(inbox.card("q1").element.get_by_text("Your draft was not sent.")).to_have_count(0)


async def test_what_was_kept_is_not_trusted(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await expect(inbox.card("q1").element).to_be_visible()
    broken = {"picked": [["gone"], 7], "own": {"0": 1}, "notes": None, "step": 12.5, "reason": ["x"]}
    await inbox.page.evaluate("text => localStorage.setItem('handraise.draft.q1', text)", json.dumps(broken))
    await inbox.page.reload()
    await inbox.card("q1").choice("SQLite").click()
    assert await answers_of(desk) == [["SQLite"]]


# Deadlines ----------------------------------------------------------------------------------------------------------


async def test_when_time_is_up_the_fallback_applies_and_the_draft_is_still_there(
    fake_clock: FakeClock, desk: Desk, people: People, inbox: Tab
) -> None:
    await desk.ask(id="q1", body={"question_timeout": 40, "on_timeout": "accept-first"})
    card = inbox.card("q1")
    await card.own.fill("a thought that came too late")
    await expect(card.element.get_by_role("timer")).to_contain_text("If nobody answers by")
    await people.advance(79)
    await expect(card.element.get_by_role("timer")).to_contain_text("left: then “SQLite”")
    await people.advance(2)
    await expect(card.element).to_contain_text("SQLite was picked")
    await expect(card.element).to_contain_text("Your draft was not sent.")
    await expect(card.element).to_contain_text("a thought that came too late")
    await expect(card.heading).to_be_focused()
    assert (await desk.get("q1"))["answer"]["by"] == "policy:timeout"


async def test_the_first_edit_moves_the_deadline_once(fake_clock: FakeClock, desk: Desk, inbox: Tab) -> None:
    first = await desk.ask(id="q1", body={"question_timeout": 40})
    card = inbox.card("q1")
    async with inbox.page.expect_response("**/keep-waiting"):
        await card.own.fill("a")
    moved = (await desk.get("q1"))["deadline"]
    assert moved > first["deadline"]
    await card.own.fill("ab")
    await card.own.fill("")
    await card.own.fill("c")
    await inbox.page.reload()
    await card.own.fill("cd")
    await card.action("note").click()
    assert (await desk.get("q1"))["deadline"] == moved


async def test_one_click_on_a_choice_moves_no_deadline(fake_clock: FakeClock, desk: Desk, inbox: Tab) -> None:
    first = await desk.ask(id="q1", body={"question_timeout": 40})
    await inbox.card("q1").choice("SQLite").click()
    assert (await desk.settled("q1"))["deadline"] == first["deadline"]


async def test_keep_waiting_moves_the_deadline_for_everybody(
    fake_clock: FakeClock, desk: Desk, people: People, inbox: Tab
) -> None:
    first = await desk.ask(id="q1", body={"question_timeout": 50})
    other = await people.inbox()
    for tab in (inbox, other):
        await expect(tab.card("q1").element.get_by_role("timer")).to_contain_text(" s left: then “SQLite”")
    await inbox.card("q1").action("keep-waiting").click()
    for tab in (inbox, other):
        await expect(tab.card("q1").element.get_by_role("timer")).to_contain_text("If nobody answers by")
    assert (await desk.get("q1"))["deadline"] > first["deadline"]
    await other.card("q1").heading.focus()
    async with other.page.expect_response("**/keep-waiting"):
        await other.press("w")
    assert (await desk.get("q1"))["remaining"] == 150
    assert await still_waits(desk)


# Races and trouble --------------------------------------------------------------------------------------------------


async def test_of_two_people_at_once_one_wins_and_both_see_the_same(desk: Desk, people: People) -> None:
    await desk.ask(id="q1")
    tabs = [await people.inbox(), await people.inbox()]
    for tab, key in zip(tabs, "12", strict=True):
        tab.complaints.allow(REFUSED)
        await tab.card("q1").heading.focus()
        await tab.press(key)
    await asyncio.gather(*(tab.press("Enter") for tab in tabs))
    answer = (await desk.settled("q1"))["answer"]
    [taken] = answer["answers"][0]
    lost = {"SQLite": "Postgres", "Postgres": "SQLite"}[taken]
    for tab in tabs:
        outcome = tab.card("q1").element.locator(".outcome")
        await expect(outcome).to_contain_text(f"{taken} · {answer['by']}, in the browser")
    loser = tabs[taken == "SQLite"].card("q1").element
    await expect(loser).to_contain_text("Your draft was not sent.")
    await expect(loser.locator("blockquote")).to_have_text(lost)


async def test_a_late_answer_is_told_who_was_first_and_keeps_the_draft(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    card = inbox.card("q1")
    await card.own.fill("MySQL")

    async def be_late(route: Route) -> None:
        await desk.answer("q1", "Postgres", by="ana", via="slack")
        await route.continue_()

    await inbox.page.route("**/answer", be_late)
    inbox.complaints.expect(REFUSED)
    await inbox.press("Enter")
    alert = card.element.get_by_role("alert")
    await expect(alert).to_have_text("Already answered by ana in slack: Postgres")
    await expect(card.element.locator("blockquote")).to_have_text("MySQL")
    await expect(card.element.locator(".outcome")).to_contain_text("Postgres · ana, in slack")
    await expect(card.heading).to_be_focused()
    assert await answers_of(desk) == [["Postgres"]]


async def test_whoever_types_while_somebody_else_answers_sees_the_answer_and_the_draft(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    card = inbox.card("q1")
    await card.own.fill("MySQL")
    await desk.answer("q1", "Postgres", by="ana", via="slack")
    await expect(card.element.locator(".outcome")).to_contain_text("Postgres · ana, in slack")
    await expect(card.element).to_contain_text("Your draft was not sent.")
    await expect(card.heading).to_be_focused()
    await expect(card.element.locator("input, textarea")).to_have_count(0)
    await card.element.get_by_text("Show what was offered").click()
    await expect(card.element.locator(".offered li")).to_have_text(["SQLite", "✓ taken: Postgres"])


async def test_an_agent_that_did_not_take_the_answer_is_told_about(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await inbox.card("q1").choice("SQLite").click()
    await desk.settled("q1")
    await desk.delivered("q1", "the session is gone")
    await expect(inbox.card("q1").element).to_contain_text("scripted did not take the answer: the session is gone")
    inbox.complaints.expect("409")
    await inbox.card("q1").action("deliver").click()
    await expect(inbox.card("q1").element).to_contain_text("not one that was started here")


async def test_a_withdrawn_question_says_so(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    await expect(inbox.card("q1").choice("SQLite")).to_be_visible()
    await desk.withdraw("q1", "session ended")
    await expect(inbox.card("q1").element).to_contain_text("scripted is no longer waiting: session ended")


async def test_an_answer_that_could_not_be_sent_stays_and_can_be_sent_again(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    card = inbox.card("q1")
    sentence = {"error": "store_unavailable", "message": "The disk is full."}
    await inbox.page.route("**/answer", lambda route: route.fulfill(status=503, json=sentence))
    inbox.complaints.expect("503")
    await card.own.fill("MySQL")
    await inbox.press("Enter")
    alert = card.element.get_by_role("alert")
    await expect(alert).to_contain_text("The answer could not be sent. The disk is full.")
    await expect(alert).to_be_focused()
    await expect(card.own).to_have_value("MySQL")
    assert await findings(inbox, within="article") == []
    await inbox.page.unroute("**/answer")
    await card.action("retry").click()
    assert await answers_of(desk) == [["MySQL"]]
    await expect(card.heading).to_be_focused()


async def test_while_an_answer_is_under_way_nothing_can_be_changed(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="q1")
    card = inbox.card("q1")
    may_go = asyncio.Event()

    async def hold(route: Route) -> None:
        await may_go.wait()
        await route.continue_()

    await inbox.page.route("**/answer", hold)
    await card.choice("SQLite").click()
    await expect(card.action("send")).to_have_text("Sending…")
    await expect(card.choice("Postgres")).to_be_disabled()
    await expect(card.own).to_be_disabled()
    await expect(card.heading).to_be_focused()
    await inbox.press("2", "Enter", "x")
    await expect(card.element.get_by_label("Reason (optional)")).to_have_count(0)
    may_go.set()
    assert await answers_of(desk) == [["SQLite"]]


class KilledDesk(Desk):
    """A desk of its own process, which is shot rather than stopped."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._process = DeskProcess(home)

    async def start(self) -> None:
        self._process.settings.home.mkdir(parents=True, exist_ok=True)
        await self._process.start()
        self._client = self._process.client()

    async def stop(self) -> None:
        await self._client.aclose()
        await self._process.kill()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def http(self) -> httpx2.AsyncClient:
        return self._client

    @property
    def url(self) -> str:
        return self._process.url

    async def get(self, id: str) -> dict[str, Any]:
        return await told(self.http.get(path_of(id)), 200)


@asynccontextmanager
async def a_desk_to_kill(home: Path, browser: Browser) -> AsyncIterator[tuple[KilledDesk, People]]:
    async with KilledDesk(home) as desk, gathered(browser, desk) as people:
        yield desk, people
        people.check()


async def test_an_answer_given_while_the_desk_was_dead_is_sent_once_when_it_is_back(
    browser: Browser, tmp_path: Path
) -> None:
    async with a_desk_to_kill(tmp_path, browser) as (desk, people):
        await desk.ask(id="q1")
        await desk.ask(id="q2")
        tab = await people.inbox()
        tab.complaints.allow("ERR_|fetching the script")  # that nobody answers
        await expect(tab.cards).to_have_count(2)
        await desk.stop()
        await tab.card("q1").choice("Postgres").click()
        await expect(tab.card("q1").element).to_contain_text("Kept here.")
        await expect(tab.card("q2").heading).to_be_focused()
        sent: list[str] = []
        tab.page.on("request", lambda request: request.method == "POST" and sent.append(request.url))
        await desk.start()
        await tab.page.evaluate("dispatchEvent(new Event('online'))")  # rather than wait for the next try
        assert await answers_of(desk) == [["Postgres"]]
        await expect(tab.card("q1").element).to_have_attribute("data-state", "answered")
        await expect(tab.card("q2").element).to_have_attribute("data-state", "asked")
        await tab.card("q2").choice("SQLite").click()
        assert await answers_of(desk, "q2") == [["SQLite"]]
        assert [url.rpartition("asks/")[2] for url in sent] == ["q1/answer", "q2/answer"]


# What agents write --------------------------------------------------------------------------------------------------


async def test_what_an_agent_writes_is_text_whatever_it_is(desk: Desk, inbox: Tab) -> None:
    image = "<img src=x onerror=\"document.title='taken over'\">"
    long = "long " * 2000
    await desk.ask(
        f"{image} [a link](javascript:alert(1)) and [another](https://example.org/a)",
        {"label": image, "description": image, "preview": image},
        {"label": "\x1b[31mred\x1b[0m \u202egpj.exe"},
        {"label": long},
        id="q1",
        header=image,
    )
    card = inbox.card("q1").element
    await expect(card.locator("legend")).to_contain_text(image)
    await expect(card.locator("label").nth(0)).to_have_text(image)
    await expect(card.locator("label").nth(1)).to_have_text("\\x1b[31mred\\x1b[0m \\u202egpj.exe")
    assert len(await card.locator("label").nth(2).inner_text()) < 130
    assert await card.locator("img, script, iframe").count() == 0
    assert await card.locator("legend a").evaluate_all("links => links.map(link => [link.href, link.rel])") == [
        ["https://example.org/a", "noopener noreferrer nofollow"]
    ]
    await expect(card.locator("legend a")).to_contain_text("(example.org)")
    await card.get_by_role("button", name="Show all (10000 characters)").click()
    await expect(card.locator("label").nth(2)).to_have_text(long.strip())
    assert await inbox.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await card.locator("input[type=radio]").nth(2).click()
    assert await answers_of(desk) == [[long]]


async def test_a_link_in_a_description_opens_without_answering(desk: Desk, inbox: Tab) -> None:
    await desk.ask("Which?", {"label": "a", "description": f"see {desk.url}/healthz"}, "b", id="q1")
    async with inbox.page.expect_popup() as opened:
        await inbox.card("q1").element.get_by_role("link", name="healthz").click()
    await (await opened.value).close()
    assert await still_waits(desk)


# For everybody ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_there_are_no_barriers_in_any_state(desk: Desk, people: People, scheme: str) -> None:
    await three_questions(desk, body={"question_timeout": 600})
    await desk.ask("Which layout?", *PREVIEWS, id="q2", header="Layout", multiple=True)
    await desk.ask(id="q3")
    # Nothing lies under the bar at the top: what is half covered counts as too small.
    tab = await people.inbox(color_scheme=scheme, viewport={"width": 1100, "height": 2400})
    await tab.card("q2").choice("Top").click()
    await tab.card("q2").own.fill("and this")
    await tab.press("Enter")
    await tab.card("q3").action("decline").click()
    await expect(tab.card("q3").element.get_by_label("Reason (optional)")).to_be_focused()
    assert await findings(tab) == []
    await tab.card("q1").element.get_by_role("button", name="Review").click()
    await tab.card("q3").action("confirm-decline").click()
    await expect(tab.card("q3").element).to_have_attribute("data-state", "rejected")
    await tab.card("q3").element.get_by_text("Show what was offered").click()
    await expect(tab.card("q1").element).to_contain_text("Answer at least one question")
    assert await findings(tab) == []


async def test_at_320_pixels_nothing_sticks_out_and_everything_can_be_hit(desk: Desk, people: People) -> None:
    await three_questions(desk, body={"question_timeout": 50})
    await desk.ask("Which layout?", *PREVIEWS, id="q2", header="A header that is longer than any line")
    tab = await people.inbox(viewport=NARROW, has_touch=True)
    card = tab.card("q1")
    await tab.card("q2").action("preview").nth(0).tap()
    await tab.card("q2").action("decline").tap()
    await card.choice("SQLite").tap()
    await expect(question_of(card, 2)).to_be_visible()
    await no_sideways(tab)
    small = await tab.page.locator("article :is(button, textarea, .choice, .like-button, summary)").evaluate_all(
        """all => all.map(each => [each.outerHTML.slice(0, 80), each.getBoundingClientRect()])
            .filter(([, box]) => box.width < 44 || box.height < 44).map(([html]) => html)"""
    )
    assert small == []
    await card.element.get_by_role("button", name="Review").tap()
    await no_sideways(tab)
    await card.action("send").tap()
    assert await answers_of(desk) == [["SQLite"], [], []]
    await expect(card.element).to_have_attribute("data-state", "answered")
    await no_sideways(tab)


async def no_sideways(tab: Tab) -> None:
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


async def test_one_question_has_an_address_of_its_own(desk: Desk, inbox: Tab) -> None:
    await desk.ask(id="team/q 1")
    await desk.ask(id="other")
    await inbox.open("#/ask/team%2Fq%201")
    await expect(inbox.cards).to_have_count(1)
    assert await findings(inbox) == []
    await inbox.card("team/q 1").choice("SQLite").click()
    assert await answers_of(desk, "team/q 1") == [["SQLite"]]
    await expect(inbox.card("team/q 1").heading).to_be_focused()
    inbox.complaints.expect("404")
    await inbox.open("#/ask/nobody")
    await expect(inbox.page.get_by_text("There is no such ask any more.")).to_be_visible()
