"""The checkpoint card: what a step of a run wants from a person, as a form in the inbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.browser.axe import findings
from tests.browser.people import Body, Desk, People, Tab
from tests.helpers.serving import told
from tests.helpers.trusting import trust_project

FILE = """
from typing import Annotated, Literal
from pydantic import AfterValidator, BaseModel, Field
from handraise.workflow import Workflow, checkpoint

def even(number: int) -> int:
    if number % 2:
        raise ValueError("it is odd")
    return number

class Review(BaseModel):
    approved: bool
    pace: Literal["slow", "fast"]
    seats: Annotated[int, AfterValidator(even)] = 0
    note: str | None = Field(None, description="What to keep in mind")
    parts: list[Literal["api", "web"]] = []

yes_or_no = Workflow("yes_or_no", checkpoint("go_on", input="Is **this** fine? <b>really</b>"))
review = Workflow("review", checkpoint("look", input='{{"files": ["a.py"], "lines": 12}}', output=Review))
anything = Workflow("anything", checkpoint("plan", output=list[dict[str, int]]))
"""


@pytest.fixture
def project(tmp_path: Path) -> str:
    folder = tmp_path / "project" / ".handraise" / "workflows"
    folder.mkdir(parents=True)
    (folder / "checks.py").write_text(FILE)
    trust_project(tmp_path / "project", home=tmp_path / "home")
    return str(tmp_path / "project")


async def waiting(desk: Desk, project: str, workflow: str) -> Body:
    """The checkpoint of a new run."""
    run = await told(desk.http.post("/v1/runs", json={"workflow": workflow, "cwd": project, "input": {}}), 201)
    await told(desk.http.get(f"/v1/runs/{run['id']}?wait=10"), 200)
    (found,) = (await told(desk.http.get(f"/v1/checkpoints?run={run['id']}"), 200))["checkpoints"]
    return dict(found)


async def given(tab: Tab, checkpoint: Body) -> Any:
    """What the run went on with, once the card says that it was given."""
    desk = tab.person.desk
    await expect(card_of(tab, checkpoint).locator(".outcome")).to_be_visible()
    run = await told(desk.http.get(f"/v1/runs/{checkpoint['run']}?wait=10"), 200)
    assert run["state"] == "done", run
    return (await told(desk.http.get(f"/v1/checkpoints/{checkpoint['id']}"), 200))["output"]


async def is_open(desk: Desk, checkpoint: Body) -> bool:
    return bool((await told(desk.http.get(f"/v1/checkpoints/{checkpoint['id']}"), 200))["state"] == "open")


def card_of(tab: Tab, checkpoint: Body) -> Locator:
    return tab.page.locator(f'article[data-checkpoint="{checkpoint["id"]}"]')


def send(card: Locator) -> Locator:
    return card.locator('button[data-action="send"]')


async def test_a_checkpoint_comes_into_the_inbox_and_is_given(desk: Desk, inbox: Tab, project: str) -> None:
    checkpoint = await waiting(desk, project, "yes_or_no")
    card = card_of(inbox, checkpoint)
    await expect(card.get_by_role("heading")).to_have_text("yes_or_no waits for “go_on”")
    await expect(card.locator(".origin")).to_contain_text(checkpoint["run"])
    await expect(card.locator(".prose")).to_have_text("Is this fine? <b>really</b>")
    await expect(inbox.page).to_have_title("(1) Inbox · handraise")
    await card.get_by_label("Yes").check()
    await send(card).click()
    assert await given(inbox, checkpoint) is True
    await expect(card.locator(".outcome")).to_contain_text("Given by")
    await expect(card.get_by_role("heading")).to_be_focused()
    await expect(inbox.page).to_have_title("Inbox · handraise")


async def test_an_object_is_a_form_of_its_fields(desk: Desk, inbox: Tab, project: str) -> None:
    checkpoint = await waiting(desk, project, "review")
    card = card_of(inbox, checkpoint)
    await expect(card.locator(".values dt")).to_have_text(["files", "lines"])
    await card.get_by_label("No", exact=True).check()
    await card.get_by_label("fast").check()
    await card.get_by_label("seats").fill("4")
    await card.get_by_label("web").check()
    await send(card).click()
    wanted = {"approved": False, "pace": "fast", "seats": 4, "parts": ["web"]}
    assert await given(inbox, checkpoint) == wanted


async def test_what_does_not_fit_is_said_at_its_field_and_kept(desk: Desk, inbox: Tab, project: str) -> None:
    inbox.complaints.allow("422")
    checkpoint = await waiting(desk, project, "review")
    card = card_of(inbox, checkpoint)
    await card.get_by_label("seats").fill("three")
    await send(card).click()
    await expect(card.locator(".problem")).to_have_text(["Fill this in.", "Fill this in.", "A number is wanted."])
    await card.get_by_label("Yes").check()
    await card.get_by_label("slow").check()
    await card.get_by_label("seats").fill("3")
    await send(card).click()
    await expect(card.locator(".problem")).to_contain_text("it is odd")
    await expect(card.get_by_label("seats")).to_be_focused()
    assert await is_open(desk, checkpoint)
    await inbox.page.reload()
    await expect(card.get_by_label("seats")).to_have_value("3")
    await card.get_by_label("seats").fill("2")
    await inbox.press("Control+Enter")
    assert await given(inbox, checkpoint) == {"approved": True, "pace": "slow", "seats": 2}


async def test_what_is_no_form_is_given_as_json(desk: Desk, inbox: Tab, project: str) -> None:
    checkpoint = await waiting(desk, project, "anything")
    card = card_of(inbox, checkpoint)
    field = card.get_by_label("Answer")
    await field.fill('[{"a": 1}')
    await expect(card.locator(".problem")).to_contain_text("That is no JSON")
    await send(card).click()
    assert await is_open(desk, checkpoint)
    await field.fill('[{"a": 1}]')
    await expect(card.locator(".problem")).to_have_count(0)
    await send(card).click()
    assert await given(inbox, checkpoint) == [{"a": 1}]


async def test_what_somebody_else_gave_is_told_and_the_draft_is_not_lost(desk: Desk, inbox: Tab, project: str) -> None:
    checkpoint = await waiting(desk, project, "anything")
    card = card_of(inbox, checkpoint)
    await card.get_by_role("textbox").fill("[my draft")
    said = {"output": [{"b": 2}], "by": "ana", "via": "http"}
    await told(desk.http.post(f"/v1/checkpoints/{checkpoint['id']}", json=said), 200)
    await expect(card.locator(".outcome")).to_contain_text("Given by ana, in the API")
    await expect(card.get_by_text("[my draft")).to_be_visible()
    await expect(card.locator("button, textarea")).to_have_count(0)
    await inbox.page.get_by_role("button", name="Clear what is done").click()
    await expect(card).to_have_count(0)


async def test_the_focus_goes_on_and_escape_gives_nothing(desk: Desk, inbox: Tab, project: str) -> None:
    first = await waiting(desk, project, "yes_or_no")
    second = await waiting(desk, project, "anything")
    await expect(card_of(inbox, second)).to_be_visible()
    await card_of(inbox, first).get_by_label("No").focus()
    await inbox.press("Space", "Escape")
    assert await inbox.focused() == "main main"
    assert await is_open(desk, first)
    await card_of(inbox, first).get_by_label("No").focus()
    await inbox.press("Control+Enter")
    await expect(card_of(inbox, second).get_by_role("heading")).to_be_focused()
    assert await given(inbox, first) is False


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_there_are_no_barriers(desk: Desk, people: People, project: str, scheme: str) -> None:
    tab = await people.inbox(color_scheme=scheme, viewport={"width": 1100, "height": 2000})
    review = await waiting(desk, project, "review")
    simple = await waiting(desk, project, "yes_or_no")
    await send(card_of(tab, review)).click()
    await expect(card_of(tab, review).locator(".problem").first).to_be_visible()
    await card_of(tab, simple).get_by_label("Yes").check()
    await send(card_of(tab, simple)).click()
    await expect(card_of(tab, simple).locator(".outcome")).to_be_visible()
    assert await findings(tab) == []
