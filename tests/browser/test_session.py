"""The conversation with a coding agent: what was said and asked in its place, and where people write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest_asyncio
from playwright.async_api import Locator, Route, expect

from handraise.agents import Message
from handraise.agents.scripted import Scripted
from handraise.asks import Option, Permission, Question
from tests.browser.axe import findings
from tests.browser.people import PHONE, Body, Desk, People, Tab, a_question
from tests.browser.test_languages import ENGLISH, from_right_to_left
from tests.browser.test_views import DATABASE, a_session, said, until_asked
from tests.helpers.serving import told

CHECKS = Question("Which checks?", (Option("Tests"), Option("Lint")), header="Checks")
REVIEW = Question("Who reviews it?", (Option("Ben"), Option("Chiara")), header="Review")
LICENCE = Question("Which licence?", (Option("MIT"), Option("GPL")), header="Licence", custom=False)


class Talker(Scripted):
    """An agent that asks what its prompt names, and says at the end what it was answered."""

    name = "opencode"

    def __init__(self) -> None:
        super().__init__()
        self.on_question("ask me", DATABASE)
        self.on_question("ask two", (CHECKS, REVIEW))
        self.on_question("ask which licence", LICENCE)
        self.on_permission("ask to tidy", Permission(tool="Bash", summary="Tidy up", command="ls"))
        self.on("", lambda answers: f"Done, with {answers[0].answers or answers[0].reply}." if answers else "**Done.**")


@pytest_asyncio.fixture(loop_scope="session")
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with Desk(tmp_path / "home", staff=[Talker()]) as started:
        yield started


async def say(desk: Desk, session: str, *messages: Message) -> None:
    sessions, now = desk.served.broker.sessions, desk.served.broker.clock.now()
    await asyncio.gather(*(sessions.said(session, message, at=now) for message in messages))


def composer(tab: Tab, agent: str = "opencode") -> Locator:
    return tab.page.get_by_label(f"Message to {agent}")


def line(tab: Tab) -> Locator:
    """What sending will do."""
    return tab.page.locator(".composer .purpose")


def plain(tab: Tab) -> Locator:
    return tab.page.get_by_label("Send as a plain message")


async def write(tab: Tab, text: str) -> None:
    """As somebody does who types, and then presses Enter."""
    await composer(tab).focus()
    await tab.page.keyboard.type(text)
    await tab.press("Enter")


async def prompts(desk: Desk, session: str) -> list[str]:
    messages = (await told(desk.http.get(f"/v1/sessions/{session}/messages"), 200))["messages"]
    return [message["text"] for message in messages if message["role"] == "person"]


def of(session: str, **origin: Any) -> Body:
    """The body of an ask that belongs to a session."""
    return {"origin": {"agent": "opencode", "session": session, **origin}}


# What was said and asked --------------------------------------------------------------------------------------------


async def test_a_conversation_shows_what_was_said_done_and_asked_in_its_order(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "ask me")
    calls = [Message(role="tool", text=name, extra={"input": {"command": "ls"}}) for name in ("Read", "Bash")]
    await say(desk, session, *calls, Message(role="notice", text="Resumed."))
    await inbox.open(f"#/sessions/{session}")
    entries = inbox.page.locator(".talk > li")
    await expect(entries).to_have_count(4)
    await expect(entries.nth(0)).to_contain_text("ask me")
    await expect(entries.nth(1).locator("article")).to_be_visible()
    await expect(entries.nth(2)).to_contain_text("2 tool calls")
    await expect(entries.nth(3)).to_contain_text("Resumed.")
    await expect(inbox.page.get_by_text('"command": "ls"')).to_have_count(0)
    await entries.nth(2).locator("summary").click()
    await expect(inbox.page.get_by_text('"command": "ls"')).to_have_count(2)
    assert await findings(inbox) == []
    card = inbox.card(await until_asked(desk, session))
    await card.element.get_by_text("PostgreSQL").click()
    await expect(said(inbox, "agent")).to_contain_text("PostgreSQL")
    await expect(card.element).to_have_attribute("data-state", "answered")
    await expect(inbox.page.locator("#session-title + .standing")).to_contain_text("Idle")


async def test_asks_stand_where_they_were_asked_also_after_a_reload(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    await desk.ask(id="first", body=of(session))
    await say(desk, session, Message(role="tool", text="Read"))
    await desk.ask("How deep?", "one", "two", id="child", header="Depth", body=of("child", parent=session))
    await say(desk, session, Message(role="tool", text="Bash"))
    await desk.ask("Which colour?", "red", "blue", id="last", header="Colour", body=of(session))
    await say(desk, session, Message(role="notice", text="Waiting."))
    await desk.answer("first", "Postgres", by="ada")
    await desk.answer("child", "two", by="ada")
    await inbox.open(f"#/sessions/{session}")
    entries = inbox.page.locator(".talk > li")
    for _ in range(2):
        await expect(entries).to_have_count(8)
        for place, text in {2: "Database", 3: "Read", 4: "Depth", 5: "Bash", 6: "Colour", 7: "Waiting."}.items():
            await expect(entries.nth(place)).to_contain_text(text)
        await inbox.page.reload()
    first, child = inbox.card("first"), inbox.card("child")
    await expect(child.element.locator(".origin")).to_contain_text("subagent")
    await expect(first.element.locator(".origin")).not_to_contain_text("subagent")
    await expect(first.element.get_by_text("Which database should I use?").first).to_be_visible()
    await expect(first.element).to_contain_text("Postgres · ada")
    await expect(first.element.get_by_text("SQLite")).to_be_hidden()
    await expect(first.element.locator("input, textarea")).to_have_count(0)
    await first.element.locator("summary").click()
    await expect(first.element.get_by_text("SQLite")).to_be_visible()
    await expect(inbox.card("last").choice("red")).to_be_visible()


async def test_stopping_a_turn_takes_back_its_question(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "ask me")
    await inbox.open(f"#/sessions/{session}")
    await inbox.page.get_by_role("button", name="Stop this turn").click()
    await expect(said(inbox, "notice")).to_contain_text("aborted")
    card = inbox.card(await until_asked(desk, session))
    await expect(card.element).to_have_attribute("data-state", "withdrawn")
    await expect(composer(inbox)).to_be_visible()  # it takes another one


async def test_ending_a_session_takes_two_presses(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    await inbox.open(f"#/sessions/{session}")
    await inbox.page.get_by_role("button", name="End the session").click()
    await expect(composer(inbox)).to_be_visible()
    await inbox.page.get_by_role("button", name="Yes, end it").click()
    await expect(inbox.page.get_by_text("This session has ended.")).to_be_visible()
    await expect(composer(inbox)).to_have_count(0)


async def test_a_session_that_is_not_there_is_told_so(inbox: Tab) -> None:
    inbox.complaints.expect("404")
    await inbox.open("#/sessions/nobody")
    await expect(inbox.page.get_by_text("There is no such session.")).to_be_visible()


async def test_a_conversation_is_followed_until_the_person_scrolls_up(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    lines = "\n".join(["line"] * 80)
    await say(desk, session, Message(role="notice", text=lines))
    await inbox.open(f"#/sessions/{session}")
    await say(desk, session, Message(role="notice", text="the newest"))
    await expect(inbox.page.get_by_text("the newest")).to_be_in_viewport()
    await inbox.page.mouse.move(300, 300)
    await inbox.page.mouse.wheel(0, -1000)
    await expect(inbox.page.get_by_text("the newest")).not_to_be_in_viewport()
    await say(desk, session, Message(role="notice", text="newer still"))
    below = inbox.page.get_by_role("button", name="New below")
    await expect(below).to_be_visible()
    await expect(inbox.page.get_by_text("newer still")).not_to_be_in_viewport()
    await below.click()
    await expect(inbox.page.get_by_text("newer still")).to_be_in_viewport()
    await expect(below).to_have_count(0)


async def test_a_long_conversation_opens_at_its_end_and_reads_the_rest_on_demand(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    await desk.ask("Still open?", id="early", header="Early", body=of(session))
    await desk.ask("Settled?", id="gone", header="Gone", body=of(session))
    await desk.answer("gone", "yes")
    await say(desk, session, *(Message(role="tool", text=f"step {number}.") for number in range(30)))
    await say(desk, session, *(Message(role="notice", text=f"step {number}.") for number in range(30, 420)))
    read: list[str] = []
    inbox.page.on("request", lambda request: read.append(request.url) if "/messages" in request.url else None)
    await inbox.open(f"#/sessions/{session}")
    rows = inbox.page.locator(".talk > li")
    await expect(inbox.page.get_by_text("step 419.")).to_be_in_viewport()
    await expect(rows).to_have_count(201)  # and what waits, however old
    await expect(rows.first.locator("article")).to_contain_text("Still open?")
    assert [url for url in read if "before=" in url] == read[:1]
    older = inbox.page.get_by_role("button", name="Show older")
    await older.focus()
    await inbox.press("Enter")
    await expect(rows).to_have_count(392)  # ten of the older two hundred are one row of calls
    await expect(inbox.page.get_by_text("step 220.")).to_be_in_viewport()
    await expect(older).to_be_focused()
    await inbox.press("Enter")
    await expect(rows).to_have_count(396)
    await expect(rows.nth(0)).to_contain_text("go")
    await expect(rows.nth(2)).to_contain_text("Still open?")
    await expect(rows.nth(3)).to_contain_text("Gone")
    await expect(older).to_have_count(0)
    await expect(inbox.page.locator("ol.talk")).to_be_focused()
    assert len([url for url in read if "before=" in url]) == 3


# What people write --------------------------------------------------------------------------------------------------


async def test_a_message_answers_the_question_that_waits(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "ask me")
    ask = await until_asked(desk, session)
    await inbox.open(f"#/sessions/{session}")
    await expect(line(inbox)).to_contain_text("Your message will answer “Database”.")
    assert await findings(inbox, within=".composer") == []
    await write(inbox, "MySQL, as before")
    answer = (await desk.settled(ask))["answer"]
    assert (answer["answers"], answer["via"]) == ([["MySQL, as before"]], "web")
    await expect(inbox.card(ask).element).to_contain_text("MySQL, as before")
    await expect(said(inbox, "agent")).to_contain_text("MySQL, as before")
    await expect(composer(inbox)).to_have_value("")
    await expect(composer(inbox)).to_be_focused()
    await expect(line(inbox)).to_contain_text("Enter sends")
    await expect(plain(inbox)).to_have_count(0)
    assert await prompts(desk, session) == ["ask me"]


async def test_a_message_is_sent_as_a_plain_one_where_people_want_it(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "ask me")
    await inbox.open(f"#/sessions/{session}")
    await composer(inbox).focus()
    await inbox.press("Tab", "Tab", "Space")
    await expect(plain(inbox)).to_be_checked()
    await expect(line(inbox)).to_contain_text("when this turn is over")
    await write(inbox, "and then tidy up")
    queued = inbox.page.locator("[data-queued]")
    await expect(queued).to_contain_text("Is read when this turn is over")
    await inbox.page.reload()
    await expect(plain(inbox)).to_be_checked()  # in this conversation
    other = await a_session(desk, "ask me")
    await inbox.open(f"#/sessions/{other}")
    await expect(plain(inbox)).not_to_be_checked()
    await inbox.open(f"#/sessions/{session}")
    await desk.answer(await until_asked(desk, session), "SQLite")
    await expect(said(inbox, "person").nth(1)).to_contain_text("and then tidy up")
    await expect(said(inbox, "agent")).to_have_count(2)


async def test_a_message_that_was_begun_before_a_question_stays_a_message(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    await inbox.open(f"#/sessions/{session}")
    await composer(inbox).focus()
    await inbox.page.keyboard.type("now the te")
    await desk.ask(id="q1", body=of(session))
    await expect(plain(inbox)).to_be_checked()
    await inbox.page.keyboard.type("sts")
    await inbox.press("Enter")
    await expect(said(inbox, "person").nth(1)).to_contain_text("now the tests")
    assert (await desk.get("q1"))["state"] == "asked"
    await expect(line(inbox)).to_contain_text("Your message will answer “Database”.")  # the next one


async def test_of_several_questions_a_message_answers_the_one_that_is_left(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "ask two")
    ask = await until_asked(desk, session)
    await inbox.open(f"#/sessions/{session}")
    await expect(line(inbox)).to_contain_text("“Checks” is one of several questions: answer them on the card.")
    await write(inbox, "all of them")
    assert (await desk.get(ask))["state"] == "asked"
    assert await prompts(desk, session) == ["ask two"]
    await inbox.card(ask).element.get_by_text("Lint").click()
    await expect(line(inbox)).to_contain_text("Your message will answer “Review”.")
    await expect(composer(inbox)).to_have_value("all of them")
    await composer(inbox).fill("Dora")
    await composer(inbox).press("Enter")
    assert (await desk.settled(ask))["answer"]["answers"] == [["Lint"], ["Dora"]]


async def test_what_need_not_be_answered_may_stay_empty(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    optional = {"extra": {"form": {"name": "x", "schema": {}, "required": False}}}
    questions = (a_question("Which branch?", header="Branch"), a_question("Any words?", header="Words", **optional))
    await desk.ask_several(*questions, id="q1", body=of(session))
    await inbox.open(f"#/sessions/{session}")
    await expect(line(inbox)).to_contain_text("Your message will answer “Branch”.")
    await write(inbox, "main")
    assert (await desk.settled("q1"))["answer"]["answers"] == [["main"], []]


async def test_a_message_joins_what_was_picked_of_several(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    await desk.ask("Which hosts?", "web", "db", id="q1", header="Hosts", multiple=True, body=of(session))
    await inbox.open(f"#/sessions/{session}")
    await inbox.card("q1").choice("db").check()
    await write(inbox, "mail")
    assert (await desk.settled("q1"))["answer"]["answers"] == [["db", "mail"]]


async def test_a_question_without_own_words_is_left_to_its_card(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "ask which licence")
    ask = await until_asked(desk, session)
    await inbox.open(f"#/sessions/{session}")
    await expect(line(inbox)).to_contain_text("“Licence” takes no own words: pick on its card.")
    await write(inbox, "BSD")
    await expect(composer(inbox)).to_have_value("BSD")
    assert (await desk.get(ask))["state"] == "asked"
    await plain(inbox).check()
    await composer(inbox).press("Enter")
    await expect(inbox.page.locator("[data-queued]")).to_contain_text("BSD")
    assert (await desk.get(ask))["state"] == "asked"


async def test_a_message_never_grants_a_permission(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "ask to tidy")
    ask = await until_asked(desk, session)
    await inbox.open(f"#/sessions/{session}")
    await inbox.card(ask).heading.focus()
    await expect(line(inbox)).to_contain_text("A message is read after that")
    await expect(plain(inbox)).to_have_count(0)
    await write(inbox, "yes")
    await expect(inbox.page.locator("[data-queued]")).to_contain_text("yes")
    assert (await desk.get(ask))["state"] == "asked"
    await desk.want(id="p1", body={"origin": {"agent": "claude", "session": "terminal"}})
    await inbox.open("#/sessions/terminal")
    await expect(inbox.card("p1").element).to_be_visible()
    await expect(composer(inbox, "claude")).to_have_count(0)


async def test_the_question_is_that_of_the_card_in_use_else_the_oldest(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    await desk.ask(id="old", body=of(session))
    await desk.ask("Which colour?", id="new", header="Colour", body=of(session))
    await inbox.open(f"#/sessions/{session}")
    await expect(line(inbox)).to_contain_text("“Database”")
    await inbox.card("new").own.fill("gre")
    await expect(line(inbox)).to_contain_text("“Colour”")
    await write(inbox, "blue")
    assert (await desk.settled("new"))["answer"]["answers"] == [["blue"]]
    await expect(line(inbox)).to_contain_text("“Database”")
    await inbox.page.get_by_role("button", name="Show question").click()
    await expect(inbox.card("old").heading).to_be_focused()


async def test_somebody_was_faster_and_the_message_is_still_there(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "ask me")
    ask = await until_asked(desk, session)
    await inbox.open(f"#/sessions/{session}")
    await expect(line(inbox)).to_contain_text("“Database”")
    await composer(inbox).focus()
    await inbox.page.keyboard.type("MySQ")
    await desk.answer(ask, "SQLite", by="ada", via="terminal")
    alert = inbox.page.locator(".composer [role=alert]")
    await expect(alert).to_contain_text("Already answered by ada in the terminal: SQLite")
    await inbox.page.keyboard.type("L")
    await inbox.press("Enter")
    await expect(composer(inbox)).to_have_value("MySQL")
    await expect(said(inbox, "agent")).to_contain_text("SQLite")
    assert await findings(inbox) == []
    await alert.get_by_role("button", name="Close").click()
    await expect(composer(inbox)).to_be_focused()
    await inbox.press("Enter")
    await expect(said(inbox, "agent")).to_have_count(2)
    assert await prompts(desk, session) == ["ask me", "MySQL"]


async def test_two_answers_at_once_have_one_winner_and_the_text_comes_back(desk: Desk, inbox: Tab) -> None:
    inbox.complaints.expect("409")
    session = await a_session(desk, "ask me")
    ask = await until_asked(desk, session)
    await inbox.open(f"#/sessions/{session}")
    await expect(line(inbox)).to_contain_text("“Database”")

    async def late(route: Route) -> None:
        await desk.answer(ask, "SQLite", by="ada", via="terminal")
        await route.continue_()

    await inbox.page.route("**/answer", late)
    await composer(inbox).fill("MySQL")
    await inbox.page.reload()
    await expect(line(inbox)).to_contain_text("“Database”")
    await composer(inbox).press("Enter")
    alert = inbox.page.locator(".composer [role=alert]")
    await expect(alert).to_have_count(1)
    await expect(alert).to_contain_text("Already answered by ada in the terminal: SQLite")
    await expect(composer(inbox)).to_have_value("MySQL")
    await expect(inbox.card(ask).element.locator("[role=alert]")).to_have_count(0)
    assert await prompts(desk, session) == ["ask me"]


async def test_an_answer_that_the_desk_cannot_take_now_comes_back_with_the_reason(desk: Desk, inbox: Tab) -> None:
    inbox.complaints.expect("500")
    session = await a_session(desk, "ask me")
    ask = await until_asked(desk, session)
    await inbox.open(f"#/sessions/{session}")
    await expect(line(inbox)).to_contain_text("“Database”")
    broken = {"error": "desk_broke", "message": "the disk is full"}
    await inbox.page.route("**/answer", lambda route: route.fulfill(status=500, json=broken))
    await write(inbox, "MySQL")
    await expect(inbox.page.locator(".composer [role=alert]")).to_contain_text("the disk is full")
    await expect(composer(inbox)).to_have_value("MySQL")
    await inbox.page.unroute("**/answer")
    await composer(inbox).press("Enter")
    assert (await desk.settled(ask))["answer"]["answers"] == [["MySQL"]]


async def test_while_the_desk_is_away_the_answer_is_kept_and_sent_once(desk: Desk, inbox: Tab) -> None:
    inbox.complaints.allow("net::ERR_|/v1/|fetching the script")
    await desk.ask(id="q1", body={"origin": {"agent": "claude", "session": "terminal"}})
    await inbox.open("#/sessions/terminal")
    await expect(line(inbox)).to_contain_text("“Database”")
    await desk.stop()
    await expect(inbox.page.get_by_text("Reconnecting…")).to_be_visible()
    await composer(inbox, "claude").fill("MySQL")
    await composer(inbox, "claude").press("Enter")
    await expect(line(inbox)).to_contain_text("It is sent when the desk can be reached.")
    await expect(composer(inbox, "claude")).to_have_value("")
    await expect(inbox.card("q1").own).to_have_value("MySQL")
    await desk.start()
    assert (await desk.settled("q1"))["answer"]["answers"] == [["MySQL"]]
    await expect(inbox.card("q1").element).to_contain_text("MySQL · ")


async def test_a_session_that_runs_elsewhere_takes_messages_only_as_answers(desk: Desk, inbox: Tab) -> None:
    origin = {"origin": {"agent": "claude", "session": "a/b c"}}
    await desk.ask(id="q1", body=origin)
    await desk.answer("q1", "SQLite", by="ada")
    await inbox.open(f"#/sessions/{quote('a/b c', safe='')}")
    await expect(inbox.page.get_by_text("Only what it asks is known.")).to_be_visible()
    await expect(inbox.cards).to_have_count(1)
    await expect(inbox.cards.first).to_contain_text("SQLite · ada")
    await expect(composer(inbox, "claude")).to_have_count(0)
    await expect(inbox.page.get_by_role("button", name="Stop")).to_have_count(0)
    await inbox.page.locator("h1").focus()
    await desk.ask(id="q2", body=origin)
    await expect(inbox.card("q2").own).to_be_focused()
    await expect(line(inbox)).to_contain_text("Your message will answer “Database”.")
    await expect(plain(inbox)).to_have_count(0)
    assert await findings(inbox) == []
    await composer(inbox, "claude").fill("MySQL")
    await composer(inbox, "claude").press("Enter")
    assert (await desk.settled("q2"))["answer"]["answers"] == [["MySQL"]]
    await expect(composer(inbox, "claude")).to_have_count(0)
    await expect(inbox.card("q2").heading).to_be_focused()  # never nowhere
    await desk.ask(id="q3", body=origin)
    await expect(inbox.card("q3").own).to_be_focused()
    await composer(inbox, "claude").focus()
    await inbox.page.keyboard.type("half a tho")
    await desk.withdraw("q3")
    await expect(inbox.page.locator(".composer [role=alert]")).to_contain_text("claude is no longer waiting")
    await expect(composer(inbox, "claude")).to_have_value("half a tho")


async def test_writing_an_answer_asks_for_more_time(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    asked = await desk.ask(id="q1", body={**of(session), "question_timeout": 600, "on_timeout": "accept-first"})
    await inbox.open(f"#/sessions/{session}")
    await expect(line(inbox)).to_contain_text("“Database”")
    async with inbox.page.expect_response("**/keep-waiting"):
        await composer(inbox).focus()
        await inbox.page.keyboard.type("My")
    assert (await desk.get("q1"))["deadline"] > asked["deadline"]


async def test_enter_sends_a_message_and_shift_enter_begins_a_line(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    await inbox.open(f"#/sessions/{session}")
    await composer(inbox).focus()
    await inbox.page.keyboard.type("first")
    await inbox.press("Shift+Enter")
    await inbox.page.keyboard.type("second")
    await expect(said(inbox, "person")).to_have_count(1)
    await inbox.press("Enter")
    await expect(said(inbox, "person").nth(1)).to_contain_text("first\nsecond")
    await expect(said(inbox, "agent")).to_have_count(2)
    await expect(composer(inbox)).to_have_value("")


async def test_a_message_that_was_begun_survives_a_reload(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    await inbox.open(f"#/sessions/{session}")
    await composer(inbox).fill("half a thou")
    await inbox.page.reload()
    await expect(composer(inbox)).to_have_value("half a thou")


async def test_a_question_takes_the_focus_in_the_conversation_that_asked(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    await inbox.open(f"#/sessions/{session}")
    await expect(composer(inbox)).to_be_visible()
    await desk.ask(id="q1", body={"origin": {"agent": "opencode", "session": session}})
    await expect(inbox.card("q1").own).to_be_focused()


async def test_a_question_leaves_the_focus_to_whoever_types(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    await inbox.open(f"#/sessions/{session}")
    await composer(inbox).fill("I am ty")
    await desk.ask(id="q1", body={"origin": {"agent": "opencode", "session": session}})
    await expect(inbox.card("q1").element).to_be_visible()
    await inbox.page.keyboard.type("ping")
    await expect(composer(inbox)).to_have_value("I am typing")


async def test_nothing_that_an_agent_says_becomes_markup(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    evil = "<img src=x onerror=alert(1)> [go](javascript:alert(1)) \u202eabc"
    await say(desk, session, *(Message(role=role, text=evil) for role in ("agent", "tool", "notice", "person")))
    await inbox.open(f"#/sessions/{session}")
    await expect(inbox.page.get_by_text("<img src=x onerror=alert(1)>")).to_have_count(4)
    await expect(inbox.page.get_by_text("\\u202eabc")).not_to_have_count(0)
    assert await inbox.page.locator("main img, main a[href^=javascript]").count() == 0


# Everywhere ---------------------------------------------------------------------------------------------------------


async def test_a_conversation_can_be_used_by_the_keyboard_alone(desk: Desk, inbox: Tab) -> None:
    session = await a_session(desk, "go")
    await inbox.open(f"#/sessions/{session}")
    await expect(composer(inbox)).to_be_visible()
    await composer(inbox).focus()
    await inbox.page.keyboard.type("ask me")
    await inbox.press("Enter")
    ask = await until_asked(desk, session)
    await expect(line(inbox)).to_contain_text("“Database”")
    await expect(composer(inbox)).to_be_focused()
    await inbox.page.keyboard.type("a")
    await inbox.press("Shift+Enter")
    await inbox.page.keyboard.type("b")
    await inbox.press("Tab", "Enter")  # the button
    assert (await desk.settled(ask))["answer"]["answers"] == [["a\nb"]]
    await expect(said(inbox, "agent")).to_have_count(2)
    await inbox.press("Shift+Tab")
    await expect(composer(inbox)).to_be_focused()
    await inbox.press("Escape")
    await expect(composer(inbox)).not_to_be_focused()
    await expect(composer(inbox)).to_have_value("")


async def test_a_conversation_is_whole_on_a_phone_in_the_dark_and_from_right_to_left(
    desk: Desk, people: People
) -> None:
    long = "a-rather-long-name-without-any-blank-in-it" * 3
    session = await a_session(desk, "go")
    await desk.ask(f"{long}?", long, id="q1", header=long, body=of(session, parent=long))
    await say(desk, session, Message(role="agent", text=long), Message(role="tool", text=long))
    narrow = {**PHONE, "width": 320}
    dark = await people.inbox(viewport=narrow, color_scheme="dark")
    for tab in (dark, await from_right_to_left(people, ENGLISH, viewport=narrow)):
        await tab.open(f"#/sessions/{session}")
        await expect(line(tab)).to_contain_text("Your message will answer")
        await composer(tab).fill("one\n" * 20)
        assert await findings(tab) == []
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        tall = await composer(tab).evaluate(
            "field => field.clientHeight / parseFloat(getComputedStyle(field).lineHeight)"
        )
        assert 8 <= tall < 9.5  # eight lines and its padding
