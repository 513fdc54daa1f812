"""Which versions were driven is said in one place: pages name no others, and people learn where theirs differ."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from handraise.agents import Installable, Watchable
from handraise.agents._versions import Known, compare, driven_version
from handraise.agents.claude.versions import CLAUDE
from handraise.app import agents_of
from handraise.config import AgentTable, Settings
from handraise.plugins import load, names
from handraise.worker.agents import NOT_SHOWN
from tests.helpers.serving import START, serving, told

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"acp": "acp.md", "amp": "amp.md", "claude": "claude-code.md", "codex": "codex.md", "opencode": "opencode.md"}
KNOWN: dict[str, tuple[Known, ...]] = {
    name: load("agents", name).versions for name in names("agents") if name not in NOT_SHOWN
}
DRIVEN = [known for each in KNOWN.values() for known in each if known.seen == "driven"]
VERSION = re.compile(r"(?<![\d.])\d+\.\d+\.\d+(?!\.?\d)")  # and no address, which has four numbers


def test_every_agent_that_can_be_started_was_driven() -> None:
    assert all(any(known.seen == "driven" for known in each) for each in KNOWN.values())
    assert all(known.version and known.package for known in DRIVEN if known.name in PAGES)


@pytest.mark.parametrize("adapter", PAGES)
def test_the_page_of_an_agent_names_the_versions_that_are_known_and_no_others(adapter: str) -> None:
    assert {path.name for path in (DOCS / "agents").glob("*.md")} == set(PAGES.values())
    named = set(VERSION.findall((DOCS / "agents" / PAGES[adapter]).read_text()))
    assert named == {known.version for known in KNOWN[adapter] if known.version}


def test_other_pages_name_no_version_of_an_agent_that_was_not_driven() -> None:
    driven = {known.version for known in DRIVEN}
    for page in ("question-tool", "opencode-clients", "sessions"):
        assert set(VERSION.findall((DOCS / "howto" / f"{page}.md").read_text())) <= driven, page


@pytest.mark.parametrize("known", [known for known in DRIVEN if known.name in PAGES], ids=lambda known: known.name)
def test_a_persons_own_agent_is_said_to_be_reached_where_the_adapter_can(known: Known, tmp_path: Path) -> None:
    agent: object = agents_of(Settings(home=tmp_path))[known.name]
    assert bool(known.attached) is isinstance(agent, Installable | Watchable)


@pytest.mark.parametrize(
    ("version", "driven", "how"),
    [
        ("2.1.325", "2.1.325", None),
        ("2.1.326", "2.1.325", "newer"),
        ("2.1.99", "2.1.325", "older"),
        ("2.2", "2.1.325", "newer"),
        ("2.2", "2.2.0", None),
        ("2.2.0-beta.1", "2.2.0", None),
        ("2", "10.0", "older"),
        (None, "1.0", None),
        ("1.0", None, None),
        ("unknown", "1.0", None),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str | None, driven: str | None, how: str | None) -> None:
    assert compare(version, driven) == how


def test_what_was_driven_is_known_by_the_agent_or_by_the_program_that_it_runs() -> None:
    def driven(agent: str, *, program: str | None = None) -> str | None:
        return driven_version(KNOWN[agent], agent=agent, program=program)

    assert driven("claude", program="/opt/another-name") == CLAUDE.version
    assert driven("acp") is None
    assert driven("acp", program="/usr/bin/gemini") is None  # only read about
    assert driven("acp", program="/usr/bin/claude") is None  # which speaks another protocol
    assert driven("acp", program="/usr/bin/qwen") is not None
    assert driven_version((), agent="clippy", program="claude") is None


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("9.0.1", f"claude: 9.0.1 is newer than {CLAUDE.version}, which our tests drive"),
        ("1.0.1", f"claude: 1.0.1 is older than {CLAUDE.version}, which our tests drive"),
        (CLAUDE.version, None),
    ],
)
async def test_an_installed_version_that_differs_is_pointed_out(version: str, said: str | None, tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\necho '{version} (Claude Code)'\n")
    program.chmod(0o755)
    agents = {name: AgentTable(command=("/no/such/program",)) for name in names("agents")}
    agents["claude"] = AgentTable(command=(str(program),))
    async with serving(tmp_path / "home", agents=agents) as desk:
        listed = {agent["agent"]: agent for agent in (await told(desk.http.get("/v1/agents"), 200))["agents"]}
        assert (listed["claude"]["version"], listed["claude"]["driven"]) == (version, CLAUDE.version)
        shown = await agents_shown(tmp_path / "home")
        assert json.loads(await agents_shown(tmp_path / "home", "claude", "--json"))["driven"] == CLAUDE.version
    assert f"driven by our tests        {CLAUDE.version}" in shown.splitlines()
    assert [line for line in shown.splitlines() if "our tests drive" in line] == (
        [f"{said}; if it misbehaves, try that one"] if said else []
    )


async def agents_shown(home: Path, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handraise", "agents", *words),
        env={"PATH": os.environ["PATH"], "HANDRAISE_HOME": str(home), "HOME": str(home)},
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), START)
    assert process.returncode == 0
    return out.decode()
