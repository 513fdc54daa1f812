"""The pictures of the documentation: what they show is brought about here, so that they never go stale.

`make pictures` takes them anew."""

from __future__ import annotations

from typing import Any

from playwright.async_api import expect

from browser.people import PHONE, Desk, People, Tab, a_question
from browser.pictures import picture
from browser.test_languages import ENGLISH, from_right_to_left
from handraise.testing import FakeClock

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
