"""A person looks at a project in the browser and trusts it; no page of another port can."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Locator, expect

from handraise.trust import Trust
from tests.browser.axe import findings
from tests.browser.hostile import Elsewhere, Wiretap, listening_elsewhere
from tests.browser.people import PHONE, Desk, People, Tab
from tests.browser.test_hostile_page import NOISE, POSTS, REFUSED
from tests.helpers.serving import told

SETTINGS = """
[[rules]]
tool = "shell"
matches = { command = "make*" }
action = "allow"

[agents.claude]
command = ["./bin/agent"]
env = { NAME = "<img src=x onerror=alert(1)> \\u202eabc" }
"""
WORKFLOW = """
from handraise.workflow import Workflow

def step(input: dict) -> str:
    return "done"

nightly = Workflow("nightly", step)
"""
# What a button does that is pressed as soon as it is drawn, by whoever waits for it in the page.
PRESS_AT_ONCE = """() => {
  window.pressed = [];
  new MutationObserver(() => {
    const button = document.querySelector('[data-action="trust"]');
    if (!button || window.pressed.length > 0) return;
    window.pressed.push(button.disabled);
    button.click();
  }).observe(document.body, { childList: true, subtree: true });
}"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / ".handraise" / "workflows").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "agent").write_text("#!/bin/sh\n")
    (folder / "handraise.toml").write_text(SETTINGS)
    (folder / ".handraise" / "workflows" / "nightly.py").write_text(WORKFLOW)
    return folder


def part(tab: Tab, name: str) -> Locator:
    return tab.page.locator(f'[data-part="{name}"]')


def yes(tab: Tab) -> Locator:
    return tab.page.locator('[data-action="trust"]')


def trusted(desk: Desk) -> dict[str, list[str]]:
    projects = Trust(desk.served.settings.trust_file).projects()
    return {project: sorted(parts) for project, parts in projects.items()}


async def trust_all(tab: Tab, clone: Path) -> None:
    await tab.open(f"#/trust?cwd={clone}")
    await yes(tab).click()
    await expect(part(tab, "rules")).to_have_attribute("data-state", "trusted")


async def test_a_run_that_nobody_trusts_leads_to_the_page_and_works_after_the_yes(
    desk: Desk, inbox: Tab, clone: Path
) -> None:
    page = inbox.page
    await inbox.open("#/runs")
    await page.get_by_role("button", name="Start a run").click()
    await page.locator("input[name=cwd]").fill(str(clone))
    await page.get_by_role("button", name="Find workflows").click()
    await page.get_by_role("link", name="Look at it and trust it").click()
    await expect(part(inbox, "workflow nightly.py")).to_contain_text("would run Python")
    await expect(part(inbox, "agents")).to_contain_text("would run: ./bin/agent (as claude)")
    assert trusted(desk) == {}

    await yes(inbox).click()
    await expect(page.get_by_text("All of it is trusted, until it changes.")).to_be_visible()
    await expect(yes(inbox)).to_have_count(0)
    assert await inbox.focused() == "h1 trust-title"
    assert trusted(desk) == {str(clone): ["agents", "rules", "workflow nightly.py"]}
    await told(desk.http.post("/v1/runs", json={"workflow": "nightly", "input": {}, "cwd": str(clone)}), 201)


async def test_a_part_that_changed_shows_the_difference(desk: Desk, inbox: Tab, clone: Path) -> None:
    await trust_all(inbox, clone)
    (clone / "bin" / "agent").write_text("#!/bin/sh\ncurl evil.example\n")
    await inbox.page.get_by_role("button", name="Look at it").click()
    await expect(part(inbox, "agents")).to_have_attribute("data-state", "changed")
    await expect(part(inbox, "agents")).to_contain_text("+curl evil.example")
    await expect(part(inbox, "rules")).to_have_attribute("data-state", "trusted")


async def test_what_changes_while_the_person_looks_is_shown_again_and_not_trusted(
    desk: Desk, inbox: Tab, clone: Path
) -> None:
    inbox.complaints.expect("409")
    await inbox.open(f"#/trust?cwd={clone}")
    await expect(yes(inbox)).to_be_enabled()
    (clone / "bin" / "agent").write_text("#!/bin/sh\ncurl evil.example\n")
    await yes(inbox).click()
    await expect(inbox.page.get_by_role("alert")).to_contain_text("nothing was trusted")
    assert trusted(desk) == {}
    await yes(inbox).click()
    await expect(part(inbox, "agents")).to_have_attribute("data-state", "trusted")


async def test_the_button_has_no_focus_and_cannot_be_pressed_at_once(desk: Desk, inbox: Tab, clone: Path) -> None:
    posts: list[str] = []
    inbox.page.on("request", lambda request: posts.append(request.url) if request.method == "POST" else None)
    await inbox.page.evaluate(PRESS_AT_ONCE)
    await inbox.page.evaluate("(hash) => void (location.hash = hash)", f"#/trust?cwd={clone}")
    await expect(yes(inbox)).to_be_disabled()
    await expect(yes(inbox)).to_be_enabled()
    assert await inbox.page.evaluate("window.pressed") == [True]
    assert "trust" not in (await inbox.focused()).split()
    assert not [url for url in posts if url.endswith("/v1/trust")]
    assert trusted(desk) == {}


async def test_what_others_can_change_is_shown_with_what_helps_and_left_out(
    desk: Desk, inbox: Tab, clone: Path
) -> None:
    (clone / "bin" / "agent").chmod(0o777)
    await inbox.open(f"#/trust?cwd={clone}")
    await expect(part(inbox, "agents")).to_contain_text("chmod o-w")
    await yes(inbox).click()
    await expect(part(inbox, "rules")).to_have_attribute("data-state", "trusted")
    await expect(part(inbox, "agents")).to_have_attribute("data-state", "new")
    assert trusted(desk) == {str(clone): ["rules", "workflow nightly.py"]}


async def test_what_a_project_wrote_is_text_with_everything_hidden_in_sight(
    desk: Desk, inbox: Tab, clone: Path
) -> None:
    (clone / ".handraise" / "workflows" / "<b>\u202e.py").write_text(WORKFLOW)
    await inbox.open(f"#/trust?cwd={clone}")
    await expect(part(inbox, "agents")).to_contain_text("<img src=x onerror=alert(1)> \\u202eabc")
    await expect(inbox.page.get_by_role("heading", name="Workflow <b>\\u202e.py")).to_be_visible()
    assert await inbox.page.locator("#main img, #main b").count() == 0


async def test_a_folder_that_is_not_there_is_said(inbox: Tab) -> None:
    inbox.complaints.expect("422")
    await inbox.open("#/trust?cwd=/no/such/folder")
    await expect(inbox.page.get_by_role("alert")).to_contain_text("there is no folder")


async def test_settings_list_what_is_trusted_and_forget_it(desk: Desk, inbox: Tab, clone: Path) -> None:
    await trust_all(inbox, clone)
    await inbox.open("#/settings")
    line = inbox.page.locator(f'[data-project="{clone}"]')
    await expect(line).to_contain_text("agents, rules, workflow nightly.py")
    await line.get_by_role("button").click()
    await expect(inbox.page.get_by_text("No project is trusted.")).to_be_visible()
    assert trusted(desk) == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_can_be_used_by_everybody(people: People, clone: Path, scheme: str) -> None:
    tab = await people.inbox(color_scheme=scheme)
    (clone / "bin" / "agent").chmod(0o777)
    await tab.open(f"#/trust?cwd={clone}")
    await expect(yes(tab)).to_be_enabled()
    assert await findings(tab) == []
    await tab.page.set_viewport_size(PHONE)
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# Another port -------------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session")
async def elsewhere() -> AsyncIterator[Elsewhere]:
    async with listening_elsewhere() as listening:
        yield listening


@pytest.mark.parametrize("way", [*POSTS, "fetch with all that it can know"])
async def test_a_page_of_another_port_cannot_trust(
    desk: Desk, inbox: Tab, elsewhere: Elsewhere, clone: Path, way: str
) -> None:
    """It knows what the project is, since it may have written it."""
    seen = await told(desk.http.get("/v1/trust", params={"cwd": str(clone)}), 200)
    body = {"cwd": str(clone), "parts": [{key: each[key] for key in ("name", "fingerprint")} for each in seen["parts"]]}
    inbox.complaints.allow(NOISE)
    page = await inbox.person.context.new_page()
    await page.goto(f"{elsewhere.url()}/")
    tap = Wiretap()
    await tap.listen(page, desk.url)
    if way in POSTS:
        await page.evaluate(POSTS[way], f"{desk.url}/v1/trust")
    else:
        script = """([url, body]) => fetch(url, { method: 'POST', mode: 'no-cors', credentials: 'include',
            body: JSON.stringify(body) }).catch(() => 0)"""
        await page.evaluate(script, [f"{desk.url}/v1/trust", body])
    assert await tap.status("/v1/trust") in REFUSED
    assert trusted(desk) == {}
