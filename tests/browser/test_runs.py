"""Runs of workflows as people see them: the list, the form that starts one, its steps as they go, its trace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import FloatRect, Locator, expect

from handraise.agents.scripted import Scripted
from handraise.asks import Option, Question
from tests.browser.axe import findings
from tests.browser.people import PATIENCE, PHONE, Body, Desk, People, Tab
from tests.browser.test_languages import PSEUDO, from_right_to_left
from tests.helpers.serving import told
from tests.helpers.trusting import trust_project

EVIL = "<img src=x onerror=alert(1)> \u202eabc [go](javascript:alert(1))"
FILE = """
from typing import Annotated, Literal
from pydantic import AfterValidator, BaseModel, Field
from handraise.workflow import Workflow, agent, checkpoint, parallel, shell

def even(number: int) -> int:
    if number % 2:
        raise ValueError("it is odd")
    return number

class Goal(BaseModel):
    goal: str = Field(description="What to build")
    pace: Literal["slow", "fast"] = "slow"
    seats: Annotated[int, AfterValidator(even)] = 0

class Review(BaseModel):
    approved: bool

def summary(plan: str, api: str, web: str, review: Review) -> dict[str, str]:
    return {"plan": plan, "api": api, "web": web}

shop = Workflow(
    "shop",
    agent("plan", "plan {input.goal}", agent="scripted", retries=1, backoff=0),
    parallel(
        [agent("api", "ask api", agent="scripted", question_policy="forward"), shell("test_api", "test -e GOOD")],
        agent("web", "ask web", agent="scripted", question_policy="forward"),
    ),
    checkpoint("review", input="Ship {plan}?", output=Review),
    summary,
    input=Goal,
    description="Builds a shop, with you",
)

def counting(number: int):
    def count() -> int:
        return number
    count.__name__ = f"count{number}"
    return count

long = Workflow("long", *map(counting, range(140)), checkpoint("after"))
evil = Workflow(
    "evil",
    shell("say", "printf %s {input.text}"),
    checkpoint("look", input="{say.output}"),
    shell("die", "printf %s {say.output}; exit 1"),
)
pause = Workflow("pause", shell("first", "true"), checkpoint("wait", input="Go on?"), shell("last", "true"))
"""


def staff() -> Scripted:
    agent = Scripted().on_failure("^plan", "the model is away", times=1)
    for name in ("api", "web"):
        options = (Option("SQLite", description="one file"), Option("PostgreSQL"))
        agent.on_question(f"^ask {name}", Question(f"Which database for {name}?", options, header=f"{name} storage"))
    return agent.on("^plan", "three pages").on("^ask", lambda answers: f"with {answers[0].value}")


@pytest_asyncio.fixture(loop_scope="session")
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with Desk(tmp_path / "home", staff=[staff()]) as started:
        yield started


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".handraise" / "workflows").mkdir(parents=True)
    (folder / ".handraise" / "workflows" / "shop.py").write_text(FILE)
    trust_project(folder, home=tmp_path / "home")
    return folder


async def start(desk: Desk, project: Path, workflow: str, **input: Any) -> str:
    """The id of a new run."""
    body = {"workflow": workflow, "cwd": str(project), "input": input}
    return str((await told(desk.http.post("/v1/runs", json=body), 201))["id"])


async def a_shop(desk: Desk, project: Path) -> str:
    """A run in which two agents ask at the same time."""
    run = await start(desk, project, "shop", goal="a shop")
    await until(desk, run, lambda record: record["open_asks"] == 2)
    return run


async def until(desk: Desk, run: str, ready: Callable[[Body], Any]) -> Body:
    """The run as soon as that is so."""
    after = ""
    async with asyncio.timeout(2 * PATIENCE):
        while not ready(record := await told(desk.http.get(f"/v1/runs/{run}"), 200)):
            page = await told(desk.http.get(f"/v1/runs/{run}/trace", params={"after": after, "wait": 5}), 200)
            after = page["next"]
    return record


async def ended(desk: Desk, run: str) -> Body:
    return await until(desk, run, lambda record: record["state"] not in ("running", "waiting"))


def row(tab: Tab, run: str) -> Locator:
    return tab.page.locator(f'.row[data-run="{run}"]')


def node(tab: Tab, step: str) -> Locator:
    return tab.page.locator(f'.node[data-step="{step}"]')


def details(tab: Tab, step: str) -> Locator:
    return tab.page.locator(f'[data-details="{step}"]')


def action(tab: Tab, name: str) -> Locator:
    return tab.page.locator(f'main button[data-action="{name}"]')


def card(tab: Tab, text: str) -> Locator:
    """An ask or a checkpoint, by what its heading says."""
    return tab.page.locator("article").filter(has=tab.page.get_by_role("heading", name=text))


def events(tab: Tab) -> Locator:
    return tab.page.locator(".trace-box li")


async def box(place: Locator) -> FloatRect:
    found = await place.bounding_box()
    assert found is not None
    return found


# What one has to scroll sideways for.
TOO_WIDE = """() => [...document.querySelectorAll('html, main *')].filter((element) => {
  const isPage = element === document.documentElement;
  const isScrolled = ['auto', 'scroll'].includes(getComputedStyle(element).overflowX);
  return (isPage || isScrolled) && element.scrollWidth > element.clientWidth + 1;
}).map((element) => element.outerHTML.slice(0, 120))"""


# The list -----------------------------------------------------------------------------------------------------------


async def test_runs_come_to_the_list_by_themselves_and_are_found_again(desk: Desk, inbox: Tab, project: Path) -> None:
    await inbox.open("#/runs")
    await expect(inbox.page.get_by_text("No workflow was run yet.")).to_be_visible()
    waiting = await start(desk, project, "pause")
    await expect(row(inbox, waiting)).to_contain_text("Waiting for you")
    await expect(row(inbox, waiting)).to_contain_text("1 waiting")
    await expect(row(inbox, waiting)).to_contain_text("by admin")
    failed = await start(desk, project, "evil", text=EVIL)
    await until(desk, failed, lambda record: record["open_checkpoints"])
    await told(desk.http.post(f"/v1/checkpoints/{failed}.look", json={"output": True}), 200)
    await expect(row(inbox, failed)).to_contain_text("die: it ended with 1: <img src=x onerror=alert(1)> \\u202eabc")
    assert [await each.get_attribute("data-run") for each in await inbox.page.locator(".row").all()] == [
        failed,
        waiting,
    ]
    await told(desk.http.post(f"/v1/checkpoints/{waiting}.wait", json={"output": True}), 200)
    await expect(row(inbox, waiting)).to_contain_text("Done")
    await inbox.page.get_by_label("State").select_option("Failed")
    await expect(inbox.page.locator(".row")).to_have_count(1)
    await inbox.page.get_by_label("State").select_option("All")
    await inbox.page.get_by_label("Search").fill(f"PAUSE {project.name}")
    await expect(row(inbox, waiting)).to_be_visible()
    await expect(inbox.page.locator(".row")).to_have_count(1)
    await inbox.page.get_by_label("Search").fill("nothing")
    await expect(inbox.page.get_by_text("Nothing fits the search.")).to_be_visible()


async def test_a_run_is_started_with_the_form_of_its_input(desk: Desk, inbox: Tab, project: Path) -> None:
    inbox.complaints.expect("422")
    (project / ".handraise" / "workflows" / "broken.py").write_text("import nothing_of_that_name\n")
    trust_project(project, home=project.parent / "home")
    await inbox.open("#/runs")
    await inbox.page.get_by_role("button", name="Start a run").click()
    await expect(inbox.page.get_by_text("There are no workflows for this folder.")).to_be_visible()
    folder = inbox.page.get_by_label("Folder")
    await folder.fill("/no/such/folder")
    await folder.press("Enter")
    await expect(inbox.page.get_by_role("alert")).to_contain_text("/no/such/folder")
    await folder.fill(str(project))
    await folder.press("Enter")
    await expect(inbox.page.get_by_role("alert")).to_have_count(0)
    await inbox.page.get_by_label("Workflow").select_option("broken")
    await expect(inbox.page.get_by_text("nothing_of_that_name")).to_be_visible()
    await expect(action(inbox, "start")).to_have_count(0)
    await inbox.page.get_by_label("Workflow").select_option("evil")
    await expect(inbox.page.get_by_label("Input")).to_have_value("{}")  # it takes anything
    await inbox.page.get_by_label("Workflow").select_option("shop")
    await expect(inbox.page.get_by_text("Builds a shop, with you")).to_be_visible()
    await action(inbox, "start").click()
    await expect(inbox.page.locator(".problem")).to_have_text("Fill this in.")
    await expect(inbox.page.get_by_label("goal")).to_be_focused()
    await inbox.page.get_by_label("goal").fill("a shop")
    await inbox.page.get_by_label("fast").check()
    await inbox.page.get_by_label("seats").fill("3")
    await action(inbox, "start").click()
    await expect(inbox.page.locator(".problem")).to_contain_text("it is odd")  # as the author's own type says
    await inbox.page.get_by_label("seats").fill("4")
    assert await findings(inbox) == []
    await action(inbox, "start").click()
    await expect(inbox.page.get_by_role("heading", name="shop", level=1)).to_be_visible()
    run = urlsplit(inbox.page.url).fragment.rpartition("/")[2]
    record = await told(desk.http.get(f"/v1/runs/{run}"), 200)
    assert record["input"] == {"goal": "a shop", "pace": "fast", "seats": 4}
    assert record["cwd"] == str(project)


# One run ------------------------------------------------------------------------------------------------------------


async def test_a_run_is_followed_answered_retried_and_given_on_its_page(desk: Desk, inbox: Tab, project: Path) -> None:
    await desk.ask(id="elsewhere")  # what waits on other pages does not take the focus from this one
    await start(desk, project, "pause")
    run = await start(desk, project, "shop", goal="a shop")
    await inbox.open(f"#/runs/{run}")
    await expect(node(inbox, "plan")).to_contain_text("attempt 2")
    await expect(node(inbox, "review")).to_contain_text("Not begun")
    for name in ("api", "web"):
        await expect(node(inbox, name)).to_contain_text("Waiting for you")
        await expect(card(inbox, f"{name} storage")).to_be_visible()
    # What runs at the same time stands beside each other; what comes before and after, above and below.
    plan, api, web, tested, review = [
        await box(node(inbox, name)) for name in ("plan", "api", "web", "test_api", "review")
    ]
    assert api["x"] + api["width"] <= web["x"] and api["y"] == web["y"]
    assert plan["y"] + plan["height"] < api["y"] and api["y"] + api["height"] < tested["y"]
    assert review["y"] > max(tested["y"] + tested["height"], web["y"] + web["height"])
    assert await inbox.page.locator(".graph ol ul ol").count() == 2, "a list of branches, which are lists"
    await action(inbox, "to-waiting").click()
    await expect(card(inbox, "api storage").get_by_role("heading")).to_be_focused()
    await card(inbox, "web storage").get_by_text("SQLite").click()
    await expect(card(inbox, "web storage")).to_have_attribute("data-state", "answered")
    await expect(card(inbox, "api storage").get_by_role("heading")).to_be_focused()
    await card(inbox, "api storage").get_by_text("PostgreSQL").click()
    # A step fails, and so does the run.
    await expect(inbox.page.locator(".run")).to_have_attribute("data-state", "failed")
    await expect(inbox.page.locator(".run > .error")).to_have_text("test_api: it ended with 1")
    await expect(node(inbox, "test_api")).to_contain_text("Failed")
    await node(inbox, "test_api").click()
    await expect(details(inbox, "test_api").get_by_text("test -e GOOD")).to_be_visible()
    await action(inbox, "retry-from").click()
    await expect(inbox.page.locator(".confirm")).to_contain_text(
        "Done again: test_api, web. After that: review, summary."
    )
    await inbox.press("Escape")
    await action(inbox, "retry").click()
    await expect(inbox.page.locator(".confirm")).to_contain_text("Done again: test_api. After that: review, summary.")
    (project / "GOOD").touch()
    await action(inbox, "confirm").click()
    await expect(inbox.page.locator("#run-title")).to_be_focused()
    await expect(node(inbox, "plan")).to_contain_text("Done before, kept")
    await expect(node(inbox, "test_api")).to_contain_text("Done")
    await expect(details(inbox, "test_api").get_by_text("2 attempts")).to_be_visible()
    # A person decides, and it is done.
    review_card = card(inbox, "shop waits for “review”")
    await expect(review_card).to_contain_text("Ship three pages?")
    await review_card.get_by_label("Yes").check()
    await review_card.locator('[data-action="send"]').click()
    await expect(review_card.locator(".outcome")).to_contain_text("Given by")
    await expect(review_card.get_by_role("heading")).to_be_focused()
    await expect(inbox.page.locator(".run")).to_have_attribute("data-state", "done")
    await expect(
        review_card.get_by_role("heading")
    ).to_be_focused()  # also when the page is drawn as a run that is done
    await inbox.page.locator(".run-values summary", has_text="Output").click()
    await expect(inbox.page.locator(".run-values pre")).to_contain_text('"api": "with PostgreSQL"')
    # What an agent was told, and where it was told so.
    await node(inbox, "api").click()
    await details(inbox, "api").get_by_text("Prompt").click()
    await expect(details(inbox, "api").locator("pre").first).to_have_text("ask api")
    await expect(details(inbox, "api").locator("article")).to_contain_text("PostgreSQL")
    await details(inbox, "api").get_by_role("link", name="Open the session").click()
    await expect(inbox.page.locator('.said[data-role="agent"]')).to_contain_text("with PostgreSQL")
    await inbox.page.get_by_role("link", name=f"run {run}").click()
    await expect(inbox.page.get_by_role("heading", name="shop", level=1)).to_be_visible()


async def test_a_run_is_cancelled_retried_from_a_step_and_run_anew(desk: Desk, inbox: Tab, project: Path) -> None:
    run = await start(desk, project, "pause")
    await inbox.open(f"#/runs/{run}")
    await expect(card(inbox, "pause waits for “wait”")).to_be_visible()
    await action(inbox, "cancel").click()
    await expect(inbox.page.locator(".confirm")).to_contain_text("What is under way is stopped")
    await action(inbox, "leave").click()
    await expect(inbox.page.locator(".confirm")).to_have_count(0)
    assert (await told(desk.http.get(f"/v1/runs/{run}"), 200))["state"] == "waiting"
    await action(inbox, "cancel").click()
    await action(inbox, "confirm").click()
    await expect(inbox.page.locator(".run")).to_have_attribute("data-state", "cancelled")
    await expect(node(inbox, "wait")).to_contain_text("Cancelled")
    await expect(node(inbox, "last")).to_contain_text("Not begun")
    await expect(card(inbox, "pause waits for “wait”")).to_contain_text("Nobody waits for it any more.")
    await node(inbox, "first").click()
    await action(inbox, "retry-from").click()
    await expect(inbox.page.locator(".confirm")).to_contain_text("Done again: first, wait. After that: last.")
    await action(inbox, "confirm").click()
    await expect(node(inbox, "first")).to_contain_text("attempt 2")
    again = card(inbox, "pause waits for “wait”").filter(has=inbox.page.locator("form"))
    await again.get_by_label("Yes").check()
    await again.locator('[data-action="send"]').click()
    await expect(inbox.page.locator(".run")).to_have_attribute("data-state", "done")
    await action(inbox, "rerun").click()
    await expect(inbox.page.locator(".confirm")).to_contain_text("A new run with the same input.")
    await action(inbox, "confirm").click()
    await expect(inbox.page.locator(".run")).to_have_attribute("data-state", "waiting")
    await expect(inbox.page.locator(".run")).not_to_have_attribute("data-run", run)


async def test_what_somebody_else_does_is_seen_and_errors_are_said(desk: Desk, inbox: Tab, project: Path) -> None:
    inbox.complaints.expect("404|409")
    run = await start(desk, project, "pause")
    await inbox.open(f"#/runs/{run}")
    await expect(card(inbox, "pause waits for “wait”")).to_be_visible()
    await action(inbox, "cancel").click()
    await told(desk.http.post(f"/v1/checkpoints/{run}.wait", json={"output": True, "by": "ana", "via": "cli"}), 200)
    await expect(inbox.page.locator(".run")).to_have_attribute("data-state", "done")
    await expect(card(inbox, "pause waits for “wait”")).to_contain_text("Given by ana, in the command line")
    await action(inbox, "confirm").click()
    await expect(inbox.page.get_by_role("alert")).to_contain_text("there is nothing to cancel")
    await inbox.open("#/runs/nobody")
    await expect(inbox.page.get_by_text("There is no such run.")).to_be_visible()


async def test_who_may_only_answer_is_told_so_and_can_answer(desk: Desk, people: People, project: Path) -> None:
    run = await start(desk, project, "pause")
    added = await told(desk.http.post("/v1/tokens", json={"name": "ben", "scopes": ["answer"]}), 201)
    ben = await people.stranger(extra_http_headers={"Authorization": f"Bearer {added['token']}"})
    ben.complaints.expect("403")
    tab = await ben.tab("#/runs")
    await tab.page.get_by_role("button", name="Start a run").click()
    await expect(tab.page.get_by_role("alert")).to_contain_text("Only an admin may start")
    await row(tab, run).get_by_role("link").click()
    await action(tab, "cancel").click()
    await action(tab, "confirm").click()
    await expect(tab.page.get_by_role("alert")).to_contain_text("Only an admin may start, cancel or retry runs.")
    await card(tab, "pause waits for “wait”").get_by_label("Yes").check()
    await card(tab, "pause waits for “wait”").locator('[data-action="send"]').click()
    assert (await ended(desk, run))["state"] == "done"


# The trace ----------------------------------------------------------------------------------------------------------


async def test_the_trace_is_filtered_opened_and_followed_to_its_end(desk: Desk, inbox: Tab, project: Path) -> None:
    run = await start(desk, project, "long")
    await until(desk, run, lambda record: record["open_checkpoints"])
    await inbox.open(f"#/runs/{run}")
    await expect(events(inbox)).to_have_count(200)  # of nearly three hundred
    await expect(events(inbox).last).to_contain_text("checkpoint_waiting")
    await inbox.page.locator(".trace-box").hover()
    await expect(events(inbox).last).to_be_in_viewport()
    await inbox.page.mouse.wheel(0, -500)
    await expect(events(inbox).last).not_to_be_in_viewport()
    await told(desk.http.post(f"/v1/checkpoints/{run}.after", json={"output": True}), 200)
    below = inbox.page.get_by_role("button", name="New below")
    await expect(below).to_be_visible()
    await expect(events(inbox).last).to_contain_text("run_completed")
    await expect(events(inbox).last).not_to_be_in_viewport()
    await below.click()
    await expect(events(inbox).last).to_be_in_viewport()
    await expect(below).to_have_count(0)
    await action(inbox, "older").click()
    await expect(events(inbox).first).to_contain_text("run_started")
    await inbox.page.locator("select[name=step]").select_option("after")
    await expect(events(inbox).locator("code")).to_have_text(
        ["step_started", "checkpoint_waiting", "checkpoint_given", "step_completed"]
    )
    await inbox.page.locator("select[name=event]").select_option("checkpoint")
    await expect(events(inbox).locator("code")).to_have_text(["checkpoint_waiting", "checkpoint_given"])
    await events(inbox).last.locator("summary").click()
    await expect(events(inbox).last.locator("pre")).to_contain_text(f'"checkpoint_id": "{run}.after"')


# For everybody ------------------------------------------------------------------------------------------------------


async def test_a_run_needs_no_pointer(desk: Desk, inbox: Tab, project: Path) -> None:
    run = await a_shop(desk, project)
    await inbox.open("#/runs")
    await row(inbox, run).get_by_role("link").focus()
    await inbox.press("Enter")
    await expect(card(inbox, "web storage")).to_be_visible()
    await node(inbox, "plan").focus()
    await inbox.press("ArrowDown")
    await expect(node(inbox, "api")).to_be_focused()
    await inbox.press("ArrowRight")
    await expect(node(inbox, "web")).to_be_focused()
    await inbox.press("ArrowLeft", "ArrowDown")
    await expect(node(inbox, "test_api")).to_be_focused()
    await inbox.press("End")
    await expect(node(inbox, "summary")).to_be_focused()
    await inbox.press("Home")
    await expect(node(inbox, "plan")).to_be_focused()
    await inbox.press("Enter")
    await expect(details(inbox, "plan").get_by_role("heading")).to_be_focused()
    await expect(node(inbox, "plan")).to_have_attribute("aria-current", "true")
    await inbox.press("Escape")
    await expect(node(inbox, "plan")).to_be_focused()
    await inbox.press("ArrowDown", "Enter")
    await expect(details(inbox, "api").get_by_role("heading", name="api", exact=True)).to_be_focused()
    await card(inbox, "api storage").get_by_role("heading").focus()
    await inbox.press("2")
    await expect(card(inbox, "api storage").get_by_label("PostgreSQL")).to_be_focused()
    await inbox.press("Enter")
    await expect(card(inbox, "api storage")).to_have_attribute("data-state", "answered")
    await expect(card(inbox, "web storage").get_by_role("heading")).to_be_focused()
    await inbox.page.reload()  # the step is in the address
    await expect(details(inbox, "api")).to_be_visible()
    await action(inbox, "cancel").focus()
    await inbox.press("Enter")
    await expect(inbox.page.locator(".confirm")).to_be_focused()
    await inbox.press("Tab", "Enter")
    await expect(inbox.page.locator("#run-title")).to_be_focused()
    assert (await ended(desk, run))["state"] in ("cancelled", "failed")


async def test_nothing_that_a_run_says_becomes_markup(desk: Desk, inbox: Tab, project: Path) -> None:
    hostile = project / EVIL.replace("/", "")
    hostile.mkdir()
    run = await start(desk, hostile, "evil", text=EVIL)
    await inbox.open(f"#/runs/{run}")
    await card(inbox, "evil waits for “look”").get_by_label("Yes").check()
    await card(inbox, "evil waits for “look”").locator('[data-action="send"]').click()
    await expect(inbox.page.locator(".run > .error")).to_contain_text("<img src=x onerror=alert(1)> \\u202eabc")
    await node(inbox, "say").click()
    await expect(details(inbox, "say").locator("pre").last).to_contain_text("\\u202eabc")
    await inbox.page.locator(".run-values summary", has_text="Input").click()
    await expect(inbox.page.locator(".run-values pre").last).to_contain_text("<img src=x onerror=alert(1)> \\u202eabc")
    for line in await events(inbox).all():
        await line.locator("summary").click()
    await expect(events(inbox).first.locator("pre")).to_contain_text("<img src=x")
    assert await inbox.page.locator("main img, main a[href^=javascript]").count() == 0
    assert "\u202e" not in await inbox.page.locator("main").inner_text()


@pytest.mark.parametrize("look", ["light", "dark", "right-to-left"])
async def test_there_are_no_barriers(desk: Desk, people: People, project: Path, look: str) -> None:
    if look == "right-to-left":
        tab = await from_right_to_left(people, PSEUDO, viewport={**PHONE, "width": 320})
    else:
        tab = await people.inbox(color_scheme=look, viewport={"width": 1100, "height": 2000})
    run = await a_shop(desk, project)
    failed = await start(desk, project, "evil", text="wide" * 40)
    await until(desk, failed, lambda record: record["open_checkpoints"])
    await told(desk.http.post(f"/v1/checkpoints/{failed}.look", json={"output": True}), 200)
    await ended(desk, failed)

    async def look_at_it() -> None:
        assert await tab.page.evaluate(TOO_WIDE) == []
        assert await findings(tab) == []

    await tab.open("#/runs")
    await expect(row(tab, failed)).to_be_visible()
    await tab.page.locator("header .aside").click()
    await expect(tab.page.locator(".checkpoint-form, .start .error").first).to_be_visible()
    await look_at_it()
    await tab.open(f"#/runs/{run}")
    await expect(tab.cards).to_have_count(2)
    await node(tab, "plan").click()
    await details(tab, "plan").locator("summary").last.click()
    await action(tab, "cancel").click()
    await expect(action(tab, "confirm")).to_be_visible()
    await look_at_it()
    await tab.open(f"#/runs/{failed}")
    await node(tab, "die").click()
    await action(tab, "retry").click()
    await expect(action(tab, "confirm")).to_be_visible()
    await events(tab).last.locator("summary").click()
    await look_at_it()
