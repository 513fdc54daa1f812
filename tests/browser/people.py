"""A desk, people with browsers in front of it, the tabs they look at and the cards in those."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    WebError,
    async_playwright,
    expect,
)

from handraise.agents import Agent
from handraise.testing import FakeClock
from tests.browser.install import WITHOUT
from tests.helpers.serving import BASH, DATABASE, ORIGIN, Served, path_of, serving, told
from tests.live.programs import ProgramUnavailable

PATIENCE = 10.0  # seconds that anything in a page may take on a busy machine
PHONE = {"width": 360, "height": 780}
DESKTOP = {"width": 1100, "height": 900}

expect.set_options(timeout=PATIENCE * 1000)

Body = dict[str, Any]


# Playwright brings the rest of what keeps Chromium small and silent.
FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)
START = 60.0  # seconds that Chromium may take on a busy machine


@asynccontextmanager
async def a_browser(program: Path) -> AsyncIterator[Browser]:
    """Chromium without a window, and without its sandbox, which root cannot have."""
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=program, args=FLAGS, chromium_sandbox=False, timeout=START * 1000
        )
        try:
            yield launched
        finally:
            await launched.close()


@asynccontextmanager
async def browser_to_test(find: Callable[[], Path]) -> AsyncIterator[Browser]:
    """Where it cannot be had the test fails, or is skipped if told. `find` is one of those in `install`."""
    if os.environ.get(WITHOUT) == "1":
        pytest.skip(f"the browser is left out ({WITHOUT}=1)")
    try:
        program = find()
    except ProgramUnavailable as error:
        pytest.fail(str(error), pytrace=False)
    async with a_browser(program) as started:
        yield started


# The desk -----------------------------------------------------------------------------------------------------------


def a_question(question: str, *options: str | Body, **fields: Any) -> Body:
    """One question, for `Desk.ask_several`. An option is its label or all of it."""
    return {
        "question": question,
        "options": [option if isinstance(option, dict) else {"label": option} for option in options],
        **fields,
    }


class Desk:
    """A real desk on a port of its own, which can be stopped and started again. `changes` are settings."""

    def __init__(
        self, home: Path, *, clock: FakeClock | None = None, staff: Sequence[Agent] = (), **changes: Any
    ) -> None:
        self.clock = clock
        self._changes = changes
        self._staff = staff
        self._home = home
        self._port = 0
        self._stack: AsyncExitStack | None = None
        self._served: Served | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stack is not None:
            await self.stop()

    async def start(self) -> None:
        """Where it was before, if it was stopped."""
        stack = AsyncExitStack()
        self._served = await stack.enter_async_context(
            serving(self._home, port=self._port, clock=self.clock, staff=self._staff, **self._changes)
        )
        self._stack = stack
        self._port = int(self._served.url.rpartition(":")[2])

    async def stop(self) -> None:
        """People's streams end; the browsers notice by themselves."""
        assert self._stack is not None
        stack, self._stack, self._served = self._stack, None, None
        await stack.aclose()

    @property
    def served(self) -> Served:
        assert self._served is not None, "the desk was stopped"
        return self._served

    @property
    def http(self) -> httpx2.AsyncClient:
        """Speaks for its admin."""
        return self.served.http

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def ask(
        self,
        question: str | None = None,
        *options: str | Body,
        id: str | None = None,
        body: Body | None = None,
        **fields: Any,
    ) -> Body:
        """Raise a hand with one question. `fields` are the question's (header, multiple, …), `body` the ask's.

        Without a question it is the one about the database."""
        asked = {**DATABASE, **fields} if question is None else a_question(question, *options, **fields)
        return await self.ask_several(asked, id=id, body=body)

    async def ask_several(self, *questions: Body, id: str | None = None, body: Body | None = None) -> Body:
        """Raise a hand with all of these in one ask."""
        return await self._raise({"questions": questions}, id, body)

    async def want(self, *, id: str | None = None, body: Body | None = None, **fields: Any) -> Body:
        """Raise a hand for a permission: that to remove the build folder, with these `fields` of it changed.

        With a `command` the input says the same."""
        if "command" in fields:
            fields = {"input": {"command": fields["command"]}, **fields}
        return await self._raise({"permission": {**BASH, **fields}}, id, body)

    async def _raise(self, what: Mapping[str, Any], id: str | None, body: Body | None) -> Body:
        named = {} if id is None else {"id": id}
        return await told(self.http.post("/v1/asks", json={**what, "origin": ORIGIN, **named, **(body or {})}), 201)

    async def get(self, id: str) -> Body:
        return await self.served.get(id)

    async def settled(self, id: str) -> Body:
        """The ask as soon as it is no longer open."""
        ask = await told(self.http.get(path_of(id), params={"wait": PATIENCE}), 200)
        assert ask["state"] != "asked", f"nobody answered {id}"
        return ask

    async def answer(self, id: str, *values: str, by: str | None = None, via: str | None = None) -> Body:
        """Answer its one question from elsewhere."""
        said = {"answers": [values], **({"by": by} if by else {}), **({"via": via} if via else {})}
        return await told(self.http.post(path_of(id, "answer"), json=said), 200)

    async def reply(self, id: str, reply: str, **fields: Any) -> Body:
        """Reply to a permission from elsewhere."""
        return await told(self.http.post(path_of(id, "answer"), json={"reply": reply, **fields}), 200)

    async def withdraw(self, id: str, reason: str | None = None) -> Body:
        """As the agent does when it moved on."""
        return await told(self.http.post(path_of(id, "withdraw"), json={"reason": reason}), 200)

    async def delivered(self, id: str, error: str | None = None) -> Body:
        """Say that the agent took the answer, or why it did not."""
        said = {"id": id, **({"error": error} if error else {})}
        await told(self.http.post("/v1/deliveries", json={"deliveries": [said]}), 200)
        return await self.get(id)


# What pages complain about ------------------------------------------------------------------------------------------


class Complaints:
    """Errors that pages threw or logged, among them whatever the content security policy forbade.

    A test fails where there is one that it did not announce."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._expected: list[str] = []
        self._allowed: list[str] = []

    def expect(self, pattern: str) -> None:
        """This is going to be complained about, at least once."""
        self._expected.append(pattern)

    def allow(self, pattern: str) -> None:
        """This may be complained about."""
        self._allowed.append(pattern)

    def listen(self, context: BrowserContext) -> None:
        context.on("console", self._logged)
        context.on("weberror", self._thrown)

    def check(self) -> None:
        announced = self._expected + self._allowed
        surprises = [said for said in self.heard if not any(re.search(pattern, said) for pattern in announced)]
        assert not surprises, "the page complained: " + "\n".join(surprises)
        silent = [pattern for pattern in self._expected if not any(re.search(pattern, said) for said in self.heard)]
        assert not silent, f"the page was expected to complain about {silent}"

    def _logged(self, message: ConsoleMessage) -> None:
        place = message.location.get("url", "")
        # Chromium asks for this one by itself, of every page that names no icon; and for the service worker again, also
        # when a page was closed or the desk stopped meanwhile.
        is_its_own = place.endswith("/favicon.ico") or "when fetching the script" in message.text
        if message.type == "error" and not is_its_own:
            self.heard.append(f"{message.text} ({place})")

    def _thrown(self, thrown: WebError) -> None:
        self.heard.append(f"{thrown.error.stack or thrown.error.message}")


# People and what they see -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Card:
    """One ask on a page."""

    element: Locator

    def choice(self, label: str) -> Locator:
        """The radio or checkbox."""
        return self.element.get_by_label(label).and_(self.element.locator("input[type=radio], input[type=checkbox]"))

    @property
    def own(self) -> Locator:
        """The field for an own answer."""
        return self.element.get_by_label("Your own answer")

    def action(self, name: str) -> Locator:
        """The button, by its `data-action`: send, decline, keep-waiting, …"""
        return self.element.locator(f'button[data-action="{name}"]')

    @property
    def heading(self) -> Locator:
        return self.element.get_by_role("heading").first

    async def send(self) -> None:
        await self.action("send").click()


@dataclass(frozen=True)
class Tab:
    """One page of somebody's browser. What is not here is done on `page`, which is Playwright's."""

    page: Page
    person: Person

    @property
    def complaints(self) -> Complaints:
        return self.person.complaints

    @property
    def cards(self) -> Locator:
        return self.page.locator("article[data-ask]")

    def card(self, id: str) -> Card:
        return Card(self.page.locator(f"article[data-ask={json.dumps(id)}]"))

    async def open(self, view: str = "#/") -> None:
        """Load the app at a view, as from a bookmark."""
        await self.page.goto(f"{self.person.desk.url}/{view}")

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.page.keyboard.press(key)

    async def keeps(self, name: str, text: str = "") -> None:
        """Wait until the page keeps something under this name that holds the text.

        Playwright's own wait evaluates strings in the page, which the page's policy forbids from the second look on.
        """
        async with asyncio.timeout(PATIENCE):
            while text not in (await self.page.evaluate("(name) => localStorage[name] ?? null", name) or "\0"):
                await asyncio.sleep(0.02)

    async def focused(self) -> str:
        """What has the focus, as text that can be compared: its tag, and what names it."""
        return str(await self.page.evaluate(_FOCUSED))


_FOCUSED = """() => {
  const element = document.activeElement;
  const name = element?.dataset.action || element?.getAttribute('name') || element?.id || '';
  return `${element?.tagName.toLowerCase()} ${name}`.trim();
}"""


class Person:
    """Somebody with a browser of their own, signed in by the real link."""

    def __init__(self, desk: Desk, context: BrowserContext) -> None:
        self.desk = desk
        self.context = context
        self.complaints = Complaints()
        self.complaints.listen(context)

    async def tab(self, view: str = "#/") -> Tab:
        """Another tab of the same browser."""
        tab = Tab(await self.context.new_page(), self)
        await tab.open(view)
        return tab

    async def sign_in(self) -> Tab:
        """Through a new link, in a new tab, which shows the inbox then."""
        link = (await told(self.desk.http.post("/v1/signin", json={}), 201))["url"]
        page = await self.context.new_page()
        await page.goto(link)
        await page.get_by_role("button").click()
        await page.wait_for_url(re.compile(rf"^{re.escape(self.desk.url)}/(#.*)?$"))
        await page.locator("#main").wait_for()
        return Tab(page, self)

    async def leave(self) -> None:
        """What a page asked of a test's route is answered no more: it would fail in the test that comes next."""
        for routed in (self.context, *self.context.pages):
            await routed.unroute_all(behavior="ignoreErrors")
        await self.context.close()


class People:
    """Everybody who sits in front of a desk during a test."""

    def __init__(self, browser: Browser, desk: Desk) -> None:
        self.desk = desk
        self.present: list[Person] = []
        self._browser = browser

    async def stranger(self, **options: Any) -> Person:
        """Somebody who is not signed in, with no tab yet. `options` are those of Playwright's contexts, such as
        `color_scheme="dark"`, `locale="de-DE"`, `viewport=PHONE`, `java_script_enabled=False`."""
        usual = {"viewport": DESKTOP, "locale": "en-GB", "timezone_id": "UTC", "reduced_motion": "reduce"}
        context = await self._browser.new_context(**{**usual, **options})
        context.set_default_timeout(PATIENCE * 1000)
        if self.desk.clock is not None:
            await context.clock.install(time=self._now())
        person = Person(self.desk, context)
        self.present.append(person)
        return person

    async def inbox(self, **options: Any) -> Tab:
        """Somebody else signs in; the tab in which they did. `options` as for `stranger`."""
        return await (await self.stranger(**options)).sign_in()

    async def advance(self, seconds: float) -> None:
        """Let time pass, for the desk and in every browser. The test needs the fixture `fake_clock`."""
        assert self.desk.clock is not None, "this desk runs on the clock of the machine"
        await self.desk.clock.advance(seconds)
        for person in self.present:
            await person.context.clock.fast_forward(round(seconds * 1000))

    def check(self) -> None:
        """Nobody's page complained of anything unannounced."""
        for person in self.present:
            person.complaints.check()

    def _now(self) -> datetime:
        assert self.desk.clock is not None
        return datetime.fromtimestamp(self.desk.clock.now() / 1000, tz=UTC)


@asynccontextmanager
async def gathered(browser: Browser, desk: Desk) -> AsyncIterator[People]:
    people = People(browser, desk)
    try:
        yield people
    finally:
        for person in people.present:
            await person.leave()
