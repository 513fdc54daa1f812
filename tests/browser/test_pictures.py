"""The pictures of the documentation: what they show is brought about here, so that they never go stale.

`make pictures` takes them anew."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Browser, Route, expect

from handraise.agents import Message, Wire
from handraise.agents.scripted import Scripted
from handraise.app import wires_of
from handraise.asks import Option, Question
from handraise.chat import ChatSettings, ModelTable
from handraise.chat.contract import content_block
from handraise.events import Asked, Event
from handraise.tables.sessions import NewSession
from handraise.testing import FakeClock
from handraise.testing.model import ScriptedModel, call
from tests.browser.people import PHONE, Desk, People, Tab, a_question, gathered
from tests.browser.pictures import picture
from tests.browser.test_languages import ENGLISH, from_right_to_left
from tests.helpers.serving import first_event, told
from tests.helpers.talking import Talk
from tests.helpers.trusting import trust_project

WIDE = {"width": 1100, "height": 960}
DARK: Any = {"color_scheme": "dark"}
OPENCODE = {"agent": "opencode", "session": "ses_7f3", "run": "run_7f3", "step": "plan", "cwd": "/home/ada/shop"}
CLAUDE = {"agent": "claude", "session": "ses_a41", "cwd": "/home/ada/shop", "machine": "workshop"}
CODEX = {"agent": "codex", "session": "ses_c90", "cwd": "/home/ada/blog"}


async def raise_hands(desk: Desk) -> None:
    """A working day: one question that will be answered by itself, one command to look at twice, one with parts."""
    await desk.ask(
        "Which database should this feature use?",
        {"label": "SQLite", "description": "one file, no server"},
        {"label": "PostgreSQL", "description": "shared, needs a server", "recommended": True},
        id="storage",
        header="Storage",
        body={"origin": OPENCODE, "question_timeout": 1200, "on_timeout": "accept-first"},
    )
    await desk.want(
        id="publish",
        tool="Bash",
        summary="Clean the build and publish version 2.1",
        command="rm -rf dist && npm run build && npm publish",
        cwd="/home/ada/shop",
        body={"origin": CLAUDE},
    )
    await desk.ask_several(
        a_question(
            "Which checks run before the pull request?", "Tests", "Types", "Lint", header="Checks", multiple=True
        ),
        a_question("Who should review it?", "Ben", "Chiara", header="Review"),
        id="checks",
        body={"origin": CODEX},
    )


async def inbox_of(people: People, **options: Any) -> Tab:
    tab = await people.inbox(**{"viewport": WIDE, **options})
    await expect(tab.cards).to_have_count(3)
    return tab


async def test_the_inbox_in_the_light(fake_clock: FakeClock, desk: Desk, people: People) -> None:
    await raise_hands(desk)
    tab = await inbox_of(people)
    await picture(tab, "inbox-light", shows=tab.card("publish").element.get_by_text("npm publish").first)


async def test_the_inbox_in_the_dark(fake_clock: FakeClock, desk: Desk, people: People) -> None:
    await raise_hands(desk)
    tab = await inbox_of(people, **DARK)
    await picture(tab, "inbox-dark", shows=tab.card("storage").choice("SQLite"))


async def test_the_inbox_on_a_phone(fake_clock: FakeClock, desk: Desk, people: People) -> None:
    await raise_hands(desk)
    tab = await inbox_of(people, viewport=PHONE, device_scale_factor=2, has_touch=True, is_mobile=True)
    await picture(tab, "inbox-phone", shows=tab.card("storage").choice("SQLite"))


async def test_the_inbox_from_right_to_left(fake_clock: FakeClock, desk: Desk, people: People) -> None:
    await raise_hands(desk)
    tab = await from_right_to_left(people, ENGLISH, viewport=WIDE)
    await picture(tab, "inbox-right-to-left", shows=tab.card("storage").element)


async def test_the_history(fake_clock: FakeClock, desk: Desk, people: People) -> None:
    await raise_hands(desk)
    await desk.answer("storage", "SQLite", by="ada", via="web")
    await desk.delivered("storage")
    await desk.reply("publish", "reject", message="not on a Friday", by="ben", via="terminal")
    tab = await people.inbox(viewport=WIDE)
    await tab.open("#/history")
    await picture(tab, "history", shows=tab.page.get_by_text("not on a Friday"))


async def test_a_conversation(fake_clock: FakeClock, desk: Desk, people: People) -> None:
    sessions, at = desk.served.broker.sessions, fake_clock.now()
    wanted = NewSession(agent="opencode", prompt="", cwd="/home/ada/shop", id="ses_7f3")
    await sessions.create(wanted, worker="elsewhere", machine="workshop", at=at)
    await sessions.said("ses_7f3", Message(role="person", text="Add a table for orders, with a migration."), at=at)
    for used in ("Read schema.sql", "Bash: pytest -q"):
        await sessions.said("ses_7f3", Message(role="tool", text=used), at=at)
    text = "The schema has **three** tables, all with an integer key. I will add `orders`."
    await sessions.said("ses_7f3", Message(role="agent", text=text), at=at)
    await desk.ask(
        "Which key should the new table have?",
        {"label": "An integer", "description": "as the others have"},
        {"label": "A UUID", "description": "can be made anywhere", "recommended": True},
        id="key",
        header="Primary key",
        body={"origin": {"agent": "opencode", "session": "ses_7f3", "cwd": "/home/ada/shop"}},
    )
    tab = await people.inbox(viewport={**WIDE, "height": 1080})
    await tab.open("#/sessions/ses_7f3")
    await expect(tab.card("key").choice("A UUID")).to_be_visible()
    await tab.page.get_by_label("Message to opencode").fill("A UUID, but one that sorts by time")
    await picture(tab, "session", shows=tab.page.get_by_text("Your message will answer “Primary key”."))


async def test_the_inspector(fake_clock: FakeClock, desk: Desk, people: People) -> None:
    session, ask = "ses_7f3", "acp:7f3:permission:5"
    sessions, broker = desk.served.broker.sessions, desk.served.broker
    wanted = NewSession(agent="acp", prompt="", cwd="/home/ada/shop", id=session)
    await sessions.create(wanted, worker="elsewhere", machine="workshop", at=fake_clock.now())
    wires = wires_of(desk.served.settings, broker)

    async def seen(way: Literal["in", "out"], name: str, *, seconds: float = 0.12, **fields: Any) -> None:
        about = {"ask": ask} if "request_permission" in name else {}
        wires.seen(session, Wire(way=way, name=name, body={"jsonrpc": "2.0", **fields}, **about))
        await fake_clock.advance(seconds)

    prompt = [{"type": "text", "text": "Add a table for orders, with a migration."}]
    command = "psql postgresql://shop:hunter2@db/shop -f orders.sql"
    call = {"toolCallId": "call_9", "title": command, "kind": "execute", "rawInput": {"command": command}}
    options = [
        {"optionId": "once", "name": "Allow once", "kind": "allow_once"},
        {"optionId": "no", "name": "Reject", "kind": "reject_once"},
    ]
    await seen("out", "session/prompt", id=3, method="session/prompt", params={"prompt": prompt})
    thought = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "I will"}}
    for _ in range(38):
        piece = Wire(way="in", name="session/update agent_message_chunk", body={"params": thought}, is_piece=True)
        wires.seen(session, piece)
    update = {"sessionUpdate": "tool_call", **call}
    await seen("in", "session/update tool_call", method="session/update", params={"update": update})
    method = "session/request_permission"
    await seen("in", method, id=5, method=method, params={"toolCall": call, "options": options}, seconds=0.004)
    origin = {"agent": "acp", "session": session, "cwd": "/home/ada/shop"}
    shown = {"tool": "execute", "summary": "Make the table", "replies": ["once", "reject"], "scopes": []}
    await desk.want(id=ask, command=command, **shown, body={"origin": origin})
    await fake_clock.advance(21.3)
    await desk.reply(ask, "once", by="ada", via="web")
    await fake_clock.advance(0.003)
    chosen = {"outcome": {"outcome": "selected", "optionId": "once"}}
    await seen("out", method, id=5, result=chosen)
    await desk.delivered(ask)
    await wires.flush()
    tab = await people.inbox(viewport=WIDE)
    await tab.open(f"#/inspect/{session}")
    await tab.page.get_by_role("listbox", name="Messages").get_by_role("option").nth(3).click()
    await picture(tab, "inspector", shows=tab.page.locator("[data-box=got]").get_by_text('"optionId": "once"'))


FEATURE = """
from handraise.workflow import Workflow, agent, checkpoint, parallel, shell

def work(step, agent_of_it):
    return agent(step, step, agent=agent_of_it, question_policy="forward")

feature = Workflow(
    "feature",
    work("explore", "claude"),
    work("plan", "claude"),
    parallel([work("api", "codex"), shell("test", "make test")], work("pages", "claude")),
    checkpoint("review", input="Ship it?"),
    shell("publish", "make publish"),
)
"""


class Claude(Scripted):
    name = "claude"


class Codex(Scripted):
    name = "codex"


async def test_a_run(fake_clock: FakeClock, browser: Browser, tmp_path: Path) -> None:
    database = Question(
        "Which database should the orders be kept in?",
        (
            Option("SQLite", description="one file, no server"),
            Option("PostgreSQL", description="shared, needs a server"),
        ),
        header="Storage",
    )
    held = Question("Go on?", (Option("Yes"),), header="Go on")
    claude = (
        Claude().on_question("explore|plan|pages", held).on("explore", "A shop with three products.").on("", "Done.")
    )
    project = tmp_path / "shop"
    (project / ".handraise" / "workflows").mkdir(parents=True)
    (project / ".handraise" / "workflows" / "feature.py").write_text(FEATURE)
    trust_project(project, home=tmp_path / "home")
    staff = [claude, Codex().on_question("api", database)]
    async with Desk(tmp_path / "home", clock=fake_clock, staff=staff) as desk, gathered(browser, desk) as people:
        body = {"workflow": "feature", "cwd": str(project), "input": {"goal": "a shop"}}
        run = (await told(desk.http.post("/v1/runs", json=body), 201))["id"]
        for step, seconds in (("explore", 42), ("plan", 75), ("pages", 96)):  # each takes its time

            def is_its(event: Event, step: str = step) -> bool:
                return isinstance(event, Asked) and event.ask.origin.step == step

            asked = await first_event(desk.served.broker, is_its)
            assert isinstance(asked, Asked)
            await fake_clock.advance(seconds)
            await desk.answer(asked.ask.id, "Yes")

        async def at_home(route: Route) -> None:  # and not in the folder of a test
            reply = await route.fetch()
            await route.fulfill(response=reply, body=(await reply.text()).replace(str(project), "/home/ada/shop"))

        person = await people.stranger(viewport=WIDE)
        await person.context.route(re.compile("/v1/(runs|asks)"), at_home)
        tab = await person.sign_in()
        await tab.open(f"#/runs/{run}")
        await expect(tab.page.locator(".node[data-standing=done]")).to_have_count(3)
        await picture(tab, "run", shows=tab.page.locator("article[data-ask]").get_by_text("PostgreSQL"))


PLAN = """Orders are written one at a time and read all day, so both would do. What decides is where the shop will run:

- on **one machine**, a file is all it needs: `shop.db`
- on several, they have to share a server"""
STORAGE = {
    "header": "Storage",
    "question": "Where should the shop keep its orders?",
    "options": [
        {"label": "SQLite", "description": "one file, no server"},
        {"label": "PostgreSQL", "description": "shared, needs a server"},
    ],
}


@asynccontextmanager
async def a_chat(browser: Browser, folder: Path, clock: FakeClock) -> AsyncIterator[tuple[People, Talk]]:
    """People in front of a desk with a chat that waits at its question."""
    said = "Plan how the shop keeps its orders."
    async with ScriptedModel({"shop": [[PLAN, call("question", **STORAGE)]]}) as model:
        local = ModelTable(api="openai", model="qwen3", url=f"{model.url}/v1")
        settings = ChatSettings(models={"local": local})
        async with Desk(folder / "home", clock=clock, chat=settings) as desk, gathered(browser, desk) as people:
            talk = await Talk.begin(desk.http, "SCENARIO:shop")
            await talk.question()
            await told(desk.http.post(f"/v1/chats/{talk.id}", json={"title": said}), 200)
            blocks = json.dumps([content_block(said)])  # in the place of the scenario's name
            await desk.served.broker.store.write(
                "update chat_messages set blocks = ? where chat = ? and role = 'user'", blocks, talk.id
            )
            yield people, talk
            people.check()


async def test_a_chat(fake_clock: FakeClock, browser: Browser, tmp_path: Path) -> None:
    async with a_chat(browser, tmp_path, fake_clock) as (people, talk):
        tab = await people.inbox(viewport=WIDE)
        await tab.open(f"#/chats/{talk.id}")
        await picture(tab, "chat", shows=tab.page.get_by_text("one file, no server"))


async def test_a_chat_on_a_phone(fake_clock: FakeClock, browser: Browser, tmp_path: Path) -> None:
    async with a_chat(browser, tmp_path, fake_clock) as (people, talk):
        tab = await people.inbox(viewport=PHONE, device_scale_factor=2, has_touch=True, is_mobile=True)
        await tab.open(f"#/chats/{talk.id}")
        await picture(tab, "chat-phone", shows=tab.page.get_by_text("one file, no server"))
