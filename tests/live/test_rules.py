"""One file of rules, four real agents: the same calls are decided in the same way, whoever makes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest

from handraise.testing import ScriptedModel, call, repeat
from handraise.testing.model import Call
from tests.helpers.serving import DeskProcess, path_of
from tests.helpers.trusting import trust_project
from tests.live.homes import Home, amp_home, opencode_home
from tests.live.terminals import PATIENCE, handraise
from tests.live.test_amp import a_call
from tests.live.test_codex import run
from tests.live.test_desk import a_desk, until_idle

RULES = """
[[rules]]
tool = "shell"
matches = { command = "touch refused*" }
action = "reject"
message = "Ana makes those"

[[rules]]
tool = "shell"
matches = { command = ["touch allowed*", "mkdir *"] }
action = "allow"
"""
# What is called, what becomes of it, and the files that are there afterwards. A person refuses what they are asked.
CALLS = {
    "touch allowed-1": ("answered", "policy:rule", "allowed-1"),
    "touch refused-1": ("rejected", "policy:rule", None),
    "touch other": ("rejected", "admin", None),
    "mkdir folder && touch allowed-2": ("answered", "policy:rule", "allowed-2"),
    "touch allowed-3 && touch refused-3": ("rejected", "policy:rule", None),
    "touch allowed-4; touch evil-4": ("rejected", "admin", None),
    "touch allowed-5 $(touch evil-5)": ("rejected", "admin", None),
    "touch allowed-6 > evil-6": ("rejected", "admin", None),
}
Decided: TypeAlias = dict[str, tuple[str, str]]  # by command: the state of its ask, and who decided

SHELLS: dict[str, Callable[[str], Call]] = {
    "opencode": lambda command: call("bash", command=command, description="run it"),
    "claude": lambda command: call("Bash", command=command, description="run it"),
    "codex": run,
}


def with_rules(home: Home, desk: DeskProcess) -> None:
    file = home.project / "handraise.toml"
    file.write_text(RULES)
    trust_project(home.project, home=desk.settings.home)


async def refuse_what_is_open(http: httpx2.AsyncClient) -> None:
    """As a person would who does not want it, until cancelled."""
    while True:
        for ask in (await http.get("/v1/asks", params={"state": "asked"})).json()["asks"]:
            await http.post(path_of(ask["id"], "reject"), json={"reason": "not that"})
        await asyncio.sleep(0.05)


async def decided(http: httpx2.AsyncClient) -> Decided:
    asks = (await http.get("/v1/asks")).json()["asks"]
    return {ask["permission"]["command"]: (ask["state"], ask["answer"]["by"]) for ask in asks}


async def by_agent(agent: str, home: Home, desk: DeskProcess, model: ScriptedModel) -> Decided:
    model.scenarios["calls"] = [*(SHELLS[agent](command) for command in CALLS), repeat]
    async with desk.client() as http, asyncio.TaskGroup() as tasks:
        person = tasks.create_task(refuse_what_is_open(http))
        body = {"agent": agent, "prompt": "SCENARIO:calls", "cwd": str(home.project)}
        session = (await http.post("/v1/sessions", json=body)).json()["id"]
        told = await until_idle(http, session)
        person.cancel()
        assert (told["state"], told["error"]) == ("idle", None)
        assert "Ana makes those" in json.dumps(model.requests[-1].body)
        return await decided(http)


async def by_amp(amp: Path, home: Home, desk: DeskProcess) -> Decided:
    """It decides without a turn, so that nothing is run."""
    await handraise(desk, home, "install", "amp", "--yes")
    async with desk.client() as http, asyncio.TaskGroup() as tasks:
        person = tasks.create_task(refuse_what_is_open(http))
        for command, (state, by, _) in CALLS.items():
            async with a_call(amp, home, command) as made:
                code, said = await made.decided()
                assert code == (0 if state == "answered" else 2), command
                if code:
                    assert said["error"].startswith("Ana makes those" if by == "policy:rule" else "not that")
        person.cancel()
        return await decided(http)


@pytest.mark.parametrize("agent", ["opencode", "claude", "codex", "amp"])
async def test_the_same_rules_decide_the_same_for_every_agent(
    agent: str, request: pytest.FixtureRequest, model: ScriptedModel, tmp_path: Path
) -> None:
    program: Path = request.getfixturevalue(agent)
    home: Home
    match agent:
        case "opencode":
            home = opencode_home(tmp_path / agent, model=model.url, permission={"bash": "ask"})
        case "amp":
            home = amp_home(tmp_path / agent, server="http://127.0.0.1:9")
        case _:
            home = request.getfixturevalue(f"{agent}_env")
    async with asyncio.timeout(2 * PATIENCE), a_desk(tmp_path / "desk", agent, program, home) as desk:
        with_rules(home, desk)
        found = await (by_amp(program, home, desk) if agent == "amp" else by_agent(agent, home, desk, model))
    expected: dict[str, Any] = {command: (state, by) for command, (state, by, _) in CALLS.items()}
    assert found == expected
    made = {
        file.name for file in home.project.iterdir() if file.name.startswith(("allowed", "evil", "refused", "other"))
    }
    assert made == (set() if agent == "amp" else {file for _, _, file in CALLS.values() if file is not None})
