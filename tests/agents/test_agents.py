"""What every agent is given, and how agents are found by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from handraise.agents import AgentSettings
from handraise.errors import PluginNotFound
from handraise.plugins import load, names
from handraise.worker import Agents


def test_an_agent_is_not_given_what_would_let_it_answer_its_own_asks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HANDRAISE_TOKEN", "secret")
    monkeypatch.setenv("HANDRAISE_DATABASE", "postgresql://desk:secret@db/desk")
    monkeypatch.setenv("ONLY_OURS", "1")
    monkeypatch.setenv("KEPT", "1")
    environment = AgentSettings(home=tmp_path, env={"GIVEN": "2"}).environment(without={"ONLY_OURS"})
    assert not {"HANDRAISE_TOKEN", "HANDRAISE_DATABASE", "ONLY_OURS"} & environment.keys()
    assert (environment["KEPT"], environment["GIVEN"]) == ("1", "2")


def test_an_agent_is_found_by_its_name_and_an_unknown_one_names_those_there_are(tmp_path: Path) -> None:
    assert {"acp", "claude", "opencode", "scripted"} <= set(names("agents"))
    for name in names("agents"):
        assert load("agents", name)(AgentSettings(home=tmp_path)).name == name
    for unknown in ("clippy", "__init__", "../policies", "os"):
        with pytest.raises(PluginNotFound, match=r"there are .*claude, .*opencode"):
            load("agents", unknown)


async def test_an_adapter_that_cannot_be_loaded_hurts_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agents = Agents(lambda name: AgentSettings(home=tmp_path, command=("/no/such/program",)))
    monkeypatch.setattr(agents, "names", lambda: ["broken", "claude"])
    looked = {found.agent: found for found in await agents.look()}
    assert not looked["broken"].installed
    assert "cannot be loaded" in (looked["broken"].problem or "")
    assert "no such program" in (looked["claude"].problem or "")
    assert [agent.name for agent in agents.attachable()] == ["claude"]
