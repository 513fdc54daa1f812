"""An agent from another package: one folder and an entry point, and nothing of it is missing anywhere."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from handraise.rules import tools
from tests.helpers.serving import PATIENCE, DeskProcess, told

ADAPTER = """
from handraise.agents import Capabilities
from handraise.agents._modes import Modes
from handraise.agents._versions import Known
from handraise.agents.scripted import Scripted
from handraise.asks import Option, Permission, Question

MODES = Modes(agent="gadget", become={"default": "calm", "plan": "thinking"}, others="it has only two")


class Gadget(Scripted):
    name = "gadget"
    modes = MODES
    versions = (Known(name="gadget", title="Gadget", version="3.1"),)

    def __init__(self, settings):
        super().__init__(settings)
        page = Permission(tool="Scribble", paths=("src/page.txt",), input={"path": "src/page.txt", "nib": "fine"})
        self.on_permission("draw", page)
        self.on_question("ask", Question("Which colour?", (Option("red"), Option("blue"))))
        self.on("draw", lambda answers: f"the page was {answers[0].reply}")
        self.on("ask", lambda answers: answers[0].answers[0][0])

    def check(self, start):
        MODES.check(start.mode)

    async def look(self, *, probe=False):
        return Capabilities(agent="gadget", installed=True, version="3.2", questions=True, modes=MODES.names)


plugin = Gadget
"""
TOOLS = """
[edit]
tools = ["Scribble"]
arguments = ["nib"]

[read]
tools = ["Bash"]
"""


def install(folder: Path, *, tools: str = TOOLS) -> dict[str, str]:
    """The environment of a process that knows the agent."""
    package, about = folder / "gadget_agent", folder / "gadget_agent-1.dist-info"
    package.mkdir(parents=True)
    about.mkdir()
    (package / "__init__.py").write_text(ADAPTER)
    (package / "tools.toml").write_text(tools)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: gadget-agent\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[handraise.agents]\ngadget = gadget_agent:plugin\n")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))}


@pytest_asyncio.fixture
async def desk(tmp_path: Path) -> AsyncIterator[DeskProcess]:
    async with DeskProcess(tmp_path / "home", **install(tmp_path / "packages")) as running:
        yield running
        await running.stop()


async def play(desk: DeskProcess, prompt: str, **changes: Any) -> dict[str, Any]:
    """A session of the agent, and what it said last."""
    async with desk.client() as http:
        body = {"agent": "gadget", "prompt": prompt, "cwd": str(desk.settings.home), **changes}
        id = (await told(http.post("/v1/sessions", json=body), 201))["id"]
        session = await told(http.get(f"/v1/sessions/{id}", params={"wait": PATIENCE}), 200)
        listed = await told(http.get(f"/v1/sessions/{id}/messages"), 200)
        return {**session, "said": listed["messages"][-1]["text"]}


async def test_it_is_listed_with_its_modes_and_the_version_that_was_driven(desk: DeskProcess) -> None:
    async with desk.client() as http:
        agents = {each["agent"]: each for each in (await told(http.get("/v1/agents"), 200))["agents"]}
        mode = {"agent": "gadget", "prompt": "x", "mode": "bypass"}
        refused = await http.post("/v1/sessions", json=mode)
    gadget = agents["gadget"]
    assert (gadget["modes"], gadget["version"], gadget["driven"]) == (["default", "plan"], "3.2", "3.1")
    assert refused.json()["message"] == ("gadget has no mode 'bypass': it has only two; choose one of: default, plan")


async def test_what_it_asks_is_handled_as_its_session_says(desk: DeskProcess) -> None:
    session = await play(desk, "ask", mode="plan", question_policy="accept-first")
    assert (session["state"], session["said"]) == ("idle", "red")


async def test_rules_know_its_tools_and_their_arguments_and_keep_their_own_words(desk: DeskProcess) -> None:
    async with desk.client() as http:
        for rule in (
            {"tool": "edit", "matches": {"path": "src/*"}, "action": "allow"},
            {"tool": "read", "action": "allow"},
        ):
            await told(http.post("/v1/rules", json=rule), 201)
        shell = {"tool": "Bash", "arguments": {"command": "rm -r src"}}
        decided = await told(http.post("/v1/rules/test", json=shell), 200)
    (desk.settings.home / "src").mkdir()
    (desk.settings.home / "src" / "page.txt").write_text("")
    session = await play(desk, "draw")
    assert (session["state"], session["said"]) == ("idle", "the page was once")
    assert decided["action"] != "allow", "an agent from elsewhere cannot make a shell something that only reads"


@pytest.mark.parametrize(
    "broken",
    ["[edit", "[edit]\ntools = 1", "[edit]\ntools = [1]", "[fly]\ntools = []", "edit = 1", "[edit]\nsafe = []", "\xff"],
)
def test_a_broken_list_of_tools_is_left_out_and_named(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path)
    path = tmp_path / "gadget_agent" / "tools.toml"
    path.write_bytes(broken.encode("latin-1"))
    monkeypatch.syspath_prepend(str(tmp_path))
    tools._tools.cache_clear()
    try:
        names = tools.common_names()
    finally:
        tools._tools.cache_clear()
    assert names["bash"] == "shell" and "scribble" not in names
    assert f"{path} is left out" in caplog.text
