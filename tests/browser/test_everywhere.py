"""One ask in three places at once, in a browser, at a terminal and in Linear: answered in one, the others say who did.

They have a second for it. Each place notes by itself when it says so, by the clock of the machine, so that what is
measured is not how often somebody looks.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pty
import re
import termios
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from handraise.agents.scripted import Scripted
from handraise.asks import Option, Question
from handraise.config import ChannelTable
from handraise.people import Person
from tests.browser.people import PATIENCE, Desk, People, Tab, gathered
from tests.channels.test_linear import a_repository
from tests.helpers.commands import HANDRAISE, running
from tests.helpers.commands import Person as Somebody
from tests.helpers.linear_desk import StandIn, linear

SOON = 1_000  # milliseconds after the answer was given
STORAGE = Question("Which database?", (Option("SQLite"), Option("PostgreSQL")), header="Storage")
SCREEN = (40, 200)  # lines and columns, wide enough that nothing is broken


class Terminal:
    """`handraise watch` as somebody has it before them."""

    def __init__(self, keyboard: int) -> None:
        self._keyboard = keyboard
        self._shown = ""
        self._came: list[tuple[int, float]] = []  # how much was shown at which time
        self._changed = asyncio.Event()

    def read(self) -> None:
        try:
            new = os.read(self._keyboard, 65_536).decode(errors="replace")
        except OSError:  # it has ended
            asyncio.get_running_loop().remove_reader(self._keyboard)
            return
        self._shown += new
        self._came.append((len(self._shown), time.time() * 1000))
        self._changed.set()

    def type(self, line: str) -> None:
        os.write(self._keyboard, f"{line}\r".encode())

    async def says(self, pattern: str) -> float:
        """When it did, in milliseconds of the clock."""
        try:
            async with asyncio.timeout(PATIENCE):
                while (found := re.search(pattern, self._shown)) is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"the terminal did not say {pattern!r}: {self._shown[-2000:]}") from None
        return next(at for length, at in self._came if length >= found.end())


@asynccontextmanager
async def a_terminal(person: Somebody, by: str) -> AsyncIterator[Terminal]:
    keyboard, screen = pty.openpty()
    termios.tcsetwinsize(screen, SCREEN)
    env = {**person.env, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
    loop, terminal = asyncio.get_running_loop(), Terminal(keyboard)
    loop.add_reader(keyboard, terminal.read)
    try:
        words = (*HANDRAISE, "watch", "--quiet", "--by", by)
        async with running(*words, env=env, cwd=person.folder, stdin=screen, stdout=screen, stderr=screen):
            os.close(screen)
            await terminal.says("Nothing is waiting")
            yield terminal
    finally:
        loop.remove_reader(keyboard)
        os.close(keyboard)


class Note:
    """Notes when a card first says all of these words."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def begin(self, ask: str, *words: str) -> None:
        await self._page.evaluate(_NOTE, [f"article[data-ask={json.dumps(ask)}]", list(words)])

    async def made(self) -> float:
        try:
            async with asyncio.timeout(PATIENCE):
                return float(await self._page.evaluate("globalThis.noted"))
        except TimeoutError:
            text = await self._page.locator("main").inner_text()
            raise TimeoutError(f"the page did not say it: {text[:2000]}") from None


_NOTE = """([card, words]) => {
  globalThis.noted = new Promise((resolve) => {
    const look = () => {
      const text = document.querySelector(card)?.textContent ?? '';
      if (!words.every((word) => text.includes(word))) return;
      observer.disconnect();
      resolve(Date.now());
    };
    const observer = new MutationObserver(look);
    observer.observe(document.body, { subtree: true, childList: true, characterData: true });
    look();
  });
}"""


@dataclass(frozen=True)
class House:
    """A desk with all three places, for every scene here."""

    linear: StandIn
    desk: Desk
    agent: Scripted
    browser: Browser
    somebody: Somebody
    ada: dict[str, Any]
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(42))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def house(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("everywhere")
    repository, agent, somebody = a_repository(folder / "app"), Scripted(), Somebody(folder)
    async with linear() as stand_in:
        table = {"api": stand_in.url, "agent": "scripted", "repository": str(repository)}
        desk = Desk(
            somebody.home,
            staff=[agent],
            channels={"linear": ChannelTable(kind="linear", table=table)},
            people={"ada": Person(name="ada", known_as={"linear": "ada@example.com"})},
        )
        stack = AsyncExitStack()
        with pytest.MonkeyPatch.context() as environ:
            environ.setenv("LINEAR_TOKEN", stand_in.token)
            environ.setenv("LINEAR_WEBHOOK_SECRET", stand_in.secret)
            await stack.enter_async_context(desk)
        async with stack:
            stand_in.webhook = f"{desk.url}/webhooks/linear"
            ada = stand_in.person("Ada", email="ada@example.com")
            yield House(stand_in, desk, agent, browser, somebody, ada)


@dataclass(frozen=True)
class Scene:
    """An ask that all three places show."""

    house: House
    ask: str
    session: str
    tab: Tab
    terminal: Terminal
    note: Note

    async def linear_says(self, result: str) -> float:
        """When the thread got the line of how it ended."""
        said: list[tuple[float, dict[str, str]]] = []

        def is_told() -> bool:
            posted = [each["content"] for each in self.house.linear.posted(self.session)]
            said.extend((time.time() * 1000, each) for each in posted if each.get("action") == "Answered")
            return bool(said)

        await self.house.linear.until(is_told, timeout=PATIENCE)
        at, line = said[0]
        assert (line["parameter"], line["result"]) == ("Storage", result)
        return at

    async def answered(self, *, by: str, via: str, value: str, **seen: float) -> None:
        """It is, by that one there; and each of the other places said so within a second of it."""
        answer = (await self.house.desk.settled(self.ask))["answer"]
        assert (answer["answers"], answer["by"], answer["via"]) == ([[value]], by, via)
        at = datetime.fromisoformat(answer["at"]).timestamp() * 1000
        late = {place: round(when - at) for place, when in seen.items() if when - at > SOON}
        if late:  # as running out of time, which a busy machine may do once
            raise TimeoutError(f"it took longer than {SOON} ms until they said who answered: {late}")


@pytest_asyncio.fixture(loop_scope="session")
async def people(house: House) -> AsyncIterator[People]:
    async with gathered(house.browser, house.desk) as present:
        yield present


@pytest_asyncio.fixture(loop_scope="session")
async def scene(house: House, people: People) -> AsyncIterator[Scene]:
    """Ada gives an issue to the agent, it asks, and everybody sees it."""
    issue = house.linear.issue(f"ENG-{next(house.numbers)}", "Choose the storage")
    house.agent.on_question(issue["identifier"], STORAGE)
    tab = await people.inbox()
    await tab.open("#/settings")
    await tab.page.get_by_label("Your name").fill("wes")
    await tab.open("#/")
    async with a_terminal(house.somebody, "cleo") as terminal:
        session = await house.linear.delegate(issue, by=house.ada)
        await house.linear.until(lambda: house.linear.status(session) == "awaitingInput", timeout=PATIENCE)
        ask = house.agent.asked[-1].id
        await expect(tab.card(ask).choice("SQLite")).to_be_visible()
        await terminal.says(r"Select \[1-2")
        yield Scene(house, ask, session, tab, terminal, Note(tab.page))


async def test_an_answer_in_linear_is_told_in_the_browser_and_at_the_terminal(scene: Scene) -> None:
    await scene.note.begin(scene.ask, "PostgreSQL", "ada", "linear")
    await scene.house.linear.reply(scene.session, "postgresql", by=scene.house.ada)
    terminal, web = await asyncio.gather(
        scene.terminal.says("Already answered by ada in linear: PostgreSQL"), scene.note.made()
    )
    await scene.answered(by="ada", via="linear", value="PostgreSQL", web=web, terminal=terminal)


async def test_an_answer_in_the_browser_is_told_in_linear_and_at_the_terminal(scene: Scene) -> None:
    there, terminal, _ = await asyncio.gather(
        scene.linear_says("SQLite (wes, in web)"),
        scene.terminal.says("Already answered by wes in web: SQLite"),
        scene.tab.card(scene.ask).element.get_by_text("SQLite").click(),
    )
    await scene.answered(by="wes", via="web", value="SQLite", linear=there, terminal=terminal)


async def test_an_answer_at_the_terminal_is_told_in_linear_and_in_the_browser(scene: Scene) -> None:
    await scene.note.begin(scene.ask, "PostgreSQL", "cleo", "terminal")
    scene.terminal.type("2")
    there, web = await asyncio.gather(scene.linear_says("PostgreSQL (cleo, in terminal)"), scene.note.made())
    await scene.answered(by="cleo", via="terminal", value="PostgreSQL", linear=there, web=web)
