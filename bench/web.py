"""`make bench-web`: the web app in a real Chromium, beside `handraise serve` on SQLite.

Three figures: how long until a card is visible in an open tab, measured from the agent's call; which tasks block the
page of somebody who scrolls through thousands of cards and answers some; and what the first page costs over the wire.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from playwright.async_api import Browser, BrowserContext, Page, StorageState

from servers import Server, desk
from tests.browser.install import chromium
from tests.browser.people import DESKTOP, a_browser
from tests.live.programs import ProgramUnavailable

DOCS = Path(__file__).parent.parent / "docs"
VISIBLE = 100.0  # milliseconds from the ask to its card, at most
LONG = 50.0  # milliseconds from which on a task is called long
BYTES = 100_000  # of the first page, at most
PATIENCE = 20.0  # seconds
WARM_UP = 2  # cards after a page was loaded that are not counted
AT_A_TIME = 10  # cards that are counted before it is loaded again
AT_ONCE = 50  # asks raised together where time is not measured
WHEEL = 600  # pixels a turn
MOST_TURNS = 5000
TURNS_AT_THE_END = 5  # more cards may be drawn when the end comes near

QUESTIONS = (
    {
        "header": "Database",
        "question": "Which database should this feature use?",
        "options": [
            {"label": "SQLite", "description": "one file, no server"},
            {"label": "PostgreSQL", "description": "shared, needs a server"},
        ],
    },
    {
        "header": "Checks",
        "question": "Which checks should run before I open the pull request?",
        "multiple": True,
        "options": [{"label": "Unit tests"}, {"label": "Linter"}, {"label": "Type checker"}],
    },
)
PERMISSION = {
    "tool": "Bash",
    "summary": "Clean up and build the release",
    "command": "rm -rf dist && python -m build",
    "cwd": "/home/ana/shop",
    "replies": ["once", "always", "reject"],
    "scopes": [{"id": "session", "label": "this session", "patterns": ["rm -rf dist", "python -m build"]}],
}

# Notes when each card is in a frame that is about to be shown, in milliseconds since 1970.
WATCH = """
globalThis.seen = {};
addEventListener('DOMContentLoaded', () => {
  const note = () => {
    const at = performance.timeOrigin + performance.now();
    for (const card of document.querySelectorAll('article[data-ask]')) globalThis.seen[card.dataset.ask] ??= at;
  };
  new MutationObserver(() => requestAnimationFrame(note)).observe(document, { childList: true, subtree: true });
});
"""
# Collects what blocks the page; `buffered` has those of the load as well.
TASKS = """
globalThis.tasks = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) globalThis.tasks.push([entry.startTime, entry.duration]);
}).observe({ type: 'longtask', buffered: true });
"""
AT_THE_END = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
  const page = document.scrollingElement;
  done(page.scrollTop + page.clientHeight >= page.scrollHeight - 2);
})))"""


# Found by the page itself: Playwright's locators walk through every element, which would be a long task of our own.
LAST_CHOICE = "() => [...document.querySelectorAll('article[data-ask] input[type=radio]:enabled')].at(-1) ?? null"
SEND = "(choice) => choice.closest('article').querySelector('button[data-action=send]')"


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """The long tasks of one thing that somebody did."""

    what: str
    tasks: list[float]  # milliseconds each

    @property
    def count(self) -> int:
        return len(self.tasks)

    @property
    def longest(self) -> float:
        return max(self.tasks, default=0.0)

    @property
    def together(self) -> float:
        return sum(self.tasks)


@dataclass(frozen=True, kw_only=True)
class Figures:
    visible: list[float]  # milliseconds
    waiting: int
    blocked: list[Blocked]
    requests: dict[str, int]  # path: bytes over the wire


def an_ask(number: int, *, prefix: str) -> dict[str, Any]:
    """Of the kinds that the demo raises; every third is one with a single choice."""
    origin = {"agent": ("opencode", "claude", "codex")[number % 3], "session": f"bench-{number % 20}"}
    wanted = {"permission": PERMISSION} if number % 3 == 2 else {"questions": [QUESTIONS[number % 3]]}
    return {"id": f"{prefix}-{number}", "origin": origin, **wanted}


async def measure(*, asks: int, waiting: int, answers: int) -> Figures:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with desk(folder, database=f"sqlite:///{folder / 'desk.db'}") as server:
            async with (
                a_browser(chromium()) as browser,
                httpx2.AsyncClient(
                    base_url=f"http://127.0.0.1:{server.port}",
                    headers={"Authorization": f"Bearer {server.token}"},
                    timeout=PATIENCE,
                    trust_env=False,
                ) as http,
            ):
                kept = await signed_in(browser, http)
                requests = await first_load(browser, server, http, kept)
                visible = await until_visible(browser, server, http, kept, asks=asks)
                blocked = await long_tasks(browser, server, http, kept, waiting=waiting, answers=answers)
    return Figures(visible=visible, waiting=waiting, blocked=blocked, requests=requests)


async def signed_in(browser: Browser, http: httpx2.AsyncClient) -> StorageState:
    """What a browser that used the link keeps: its cookie and its half of the session."""
    async with a_tab(browser, {}) as page:
        await page.goto((await http.post("/v1/signin", json={})).json()["url"])
        await page.get_by_role("button").click()
        await page.wait_for_url(lambda url: "/signin/" not in url)
        return await page.context.storage_state()


@asynccontextmanager
async def a_tab(browser: Browser, kept: StorageState) -> AsyncIterator[Page]:
    """A tab of a browser that has loaded nothing before. The files for later, which a service worker fetches after
    the page has been shown, are left out."""
    context: BrowserContext = await browser.new_context(
        viewport=DESKTOP,  # type: ignore[arg-type]
        service_workers="block",
        storage_state=kept,
    )
    context.set_default_timeout(PATIENCE * 1000)
    yield await context.new_page()
    await context.close()


# What the first page costs -------------------------------------------------------------------------------------------


async def first_load(browser: Browser, server: Server, http: httpx2.AsyncClient, kept: StorageState) -> dict[str, int]:
    """Bytes with headers, as they were received, until the one card is visible and everything has arrived."""
    await raise_ask(http, an_ask(0, prefix="first"))
    paths: dict[str, str] = {}
    received: dict[str, int] = {}

    def sent(event: dict[str, Any]) -> None:
        paths[event["requestId"]] = httpx2.URL(event["request"]["url"]).path

    def finished(event: dict[str, Any]) -> None:
        path = paths.get(event["requestId"], "?")
        received[path] = received.get(path, 0) + int(event["encodedDataLength"])

    async with a_tab(browser, kept) as page:
        session = await page.context.new_cdp_session(page)
        session.on("Network.requestWillBeSent", sent)
        session.on("Network.loadingFinished", finished)
        await session.send("Network.enable")
        await page.goto(f"http://127.0.0.1:{server.port}/", wait_until="load")
        await page.locator("article[data-ask='first-0']").wait_for()
        endless = {"/v1/events"}  # which may be asked for only after the card is there
        async with asyncio.timeout(PATIENCE):
            while set(paths.values()) - endless - received.keys():
                await page.evaluate("new Promise(requestAnimationFrame)")
    await settle(http, "first-0")
    return received


# From the ask to the card --------------------------------------------------------------------------------------------


async def until_visible(
    browser: Browser, server: Server, http: httpx2.AsyncClient, kept: StorageState, *, asks: int
) -> list[float]:
    """Milliseconds from before the call until the frame in which the card is shown, one ask after the other."""
    found: list[float] = []
    async with a_tab(browser, kept) as page:
        await page.add_init_script(WATCH)
        while len(found) < asks:
            # Answered cards stay where they were until the page is loaded again, and push new ones off its end.
            await page.goto(f"http://127.0.0.1:{server.port}/")
            ids = [f"card-{len(found)}-{number}" for number in range(WARM_UP + AT_A_TIME)]
            found += [await _one_card(page, http, id) for id in ids][WARM_UP:]
    return found[:asks]


async def _one_card(page: Page, http: httpx2.AsyncClient, id: str) -> float:
    called = time.time() * 1000
    await raise_ask(http, {"id": id, "origin": {"agent": "opencode", "session": "s"}, "questions": [QUESTIONS[0]]})
    await page.wait_for_function("(id) => id in globalThis.seen", arg=id)
    seen = float(await page.evaluate("(id) => globalThis.seen[id]", id))
    await settle(http, id)
    return seen - called


# Thousands of cards --------------------------------------------------------------------------------------------------


async def long_tasks(
    browser: Browser, server: Server, http: httpx2.AsyncClient, kept: StorageState, *, waiting: int, answers: int
) -> list[Blocked]:
    for begin in range(0, waiting, AT_ONCE):
        numbers = range(begin, min(begin + AT_ONCE, waiting))
        await asyncio.gather(*(raise_ask(http, an_ask(number, prefix="many")) for number in numbers))
    async with a_tab(browser, kept) as page:
        await page.add_init_script(TASKS)
        await page.goto(f"http://127.0.0.1:{server.port}/", wait_until="load")
        await page.wait_for_function("() => document.querySelector('article[data-ask]') !== null")
        await page.evaluate("new Promise((done) => requestIdleCallback(done))")
        blocked = [Blocked(what="load", tasks=await tasks(page))]
        await scroll_to_the_end(page)
        blocked.append(Blocked(what="scroll to the end", tasks=await tasks(page)))
        for _ in range(answers):
            await answer_the_last(page, http)
        blocked.append(Blocked(what=f"answer {answers} of them", tasks=await tasks(page)))
    return blocked


async def tasks(page: Page) -> list[float]:
    """How long each long task took since this was last called."""
    taken = await page.evaluate("new Promise((done) => setTimeout(() => done(globalThis.tasks.splice(0)), 0))")
    return [duration for _, duration in taken if duration > LONG]


async def scroll_to_the_end(page: Page) -> None:
    """With the wheel, as a person does, until there is nothing more below for a while."""
    await page.mouse.move(DESKTOP["width"] / 2, DESKTOP["height"] / 2)
    at_the_end = 0
    for _ in range(MOST_TURNS):
        await page.mouse.wheel(0, WHEEL)
        at_the_end = at_the_end + 1 if await page.evaluate(AT_THE_END) else 0
        if at_the_end == TURNS_AT_THE_END:
            return
    raise RuntimeError(f"the page does not end after {MOST_TURNS} turns of the wheel")


async def answer_the_last(page: Page, http: httpx2.AsyncClient) -> None:
    """The last card on the page that offers a single choice: choose by keyboard, then send."""
    choice = (await page.evaluate_handle(LAST_CHOICE)).as_element()
    if choice is None:
        raise RuntimeError("no card with a single choice is left on the page")
    id = await choice.evaluate("(choice) => choice.closest('article').dataset.ask")
    await choice.focus()
    await page.keyboard.press("Space")
    send = (await choice.evaluate_handle(SEND)).as_element()
    if send is None:
        raise RuntimeError(f"the card of {id} has no button that sends")
    await send.click()
    told = await http.get(f"/v1/asks/{id}", params={"wait": PATIENCE})
    if told.json()["state"] != "answered":
        raise RuntimeError(f"the answer to {id} did not arrive")
    await page.wait_for_function("(choice) => !choice.isConnected || choice.matches(':disabled')", arg=choice)


async def raise_ask(http: httpx2.AsyncClient, body: dict[str, Any]) -> None:
    (await http.post("/v1/asks", json=body)).raise_for_status()


async def settle(http: httpx2.AsyncClient, id: str) -> None:
    (await http.post(f"/v1/asks/{id}/answer", json={"answers": [["SQLite"]]})).raise_for_status()


# The page ------------------------------------------------------------------------------------------------------------


def report(figures: Figures) -> tuple[str, bool]:
    middle = statistics.median(figures.visible)
    *_, p95 = statistics.quantiles(figures.visible, n=20, method="inclusive")
    total = sum(figures.requests.values())
    used = [blocked for blocked in figures.blocked if blocked.what != "load"]
    goals = {
        f"a card within {VISIBLE:g} ms of the ask": p95 < VISIBLE,
        f"no task over {LONG:g} ms while scrolling and answering": not any(blocked.tasks for blocked in used),
        f"a first page under {BYTES // 1000} kB": total < BYTES,
    }
    lines = [
        "# How quick the web app is",
        "",
        "Written by `make bench-web`: Chromium without a window, and `handraise serve` on SQLite, on one machine.",
        "",
        "| goal | |",
        "| --- | --- |",
        *(f"| {goal} | {'met' if is_met else 'NOT MET'} |" for goal, is_met in goals.items()),
        "",
        "## From the ask to the card",
        "",
        "From before the agent's call to the frame in which an open tab shows the card, in milliseconds.",
        "",
        "| asks | median | 95th percentile | slowest |",
        "| --- | --- | --- | --- |",
        f"| {len(figures.visible)} | {middle:.1f} | {p95:.1f} | {max(figures.visible):.1f} |",
        "",
        f"## With {figures.waiting:,} waiting",
        "",
        f"Tasks of more than {LONG:g} ms, during which the page cannot react.",
        "",
        "| what somebody does | long tasks | longest, ms | together, ms |",
        "| --- | --- | --- | --- |",
        *(f"| {each.what} | {each.count} | {each.longest:.0f} | {each.together:.0f} |" for each in figures.blocked),
        "",
        "## The first page over the wire",
        "",
        "In a browser that has nothing of it yet, with headers, packed as they travel. A service worker fetches what",
        "it keeps for later afterwards.",
        "",
        "| file | bytes |",
        "| --- | --- |",
        *(
            f"| `{path}` | {size:,} |"
            for path, size in sorted(figures.requests.items(), key=lambda each: (-each[1], each[0]))
        ),
        f"| **{len(figures.requests)} together** | **{total:,}** |",
    ]
    return "\n".join(lines) + "\n", all(goals.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asks", type=int, default=50, help="whose cards are timed")
    parser.add_argument("--waiting", type=int, default=2000, help="cards to scroll through")
    parser.add_argument("--answers", type=int, default=10, help="of those")
    parser.add_argument("--no-write", action="store_true", help="leave docs/web-performance.md as it is")
    chosen = parser.parse_args()
    try:
        figures = asyncio.run(measure(asks=chosen.asks, waiting=chosen.waiting, answers=chosen.answers))
    except ProgramUnavailable as error:
        sys.exit(f"bench-web: {error}")
    text, good = report(figures)
    print(text)
    if not chosen.no_write:
        (DOCS / "web-performance.md").write_text(text)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
