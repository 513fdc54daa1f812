"""The table of modes: what it promises of every agent, and how one that cannot keep to a mode says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from handraise import agents
from handraise.agents import AgentSettings, Start
from handraise.agents._modes import MODES, Modes
from handraise.agents.codex.modes import MODES as CODEX
from handraise.agents.opencode.modes import MODES as OPENCODE
from handraise.asks import Mode
from handraise.errors import SettingsError
from handraise.plugins import load, names
from handraise.worker.agents import NOT_SHOWN

AGENTS: dict[str, Modes[Any]] = {name: load("agents", name).modes for name in names("agents") if name not in NOT_SHOWN}
CHANGING = {"edit", "bash", "task", "write", "patch"}  # what OpenCode calls them


def test_every_mode_has_a_row_and_agents_know_the_same_words() -> None:
    assert set(MODES) == set(get_args(Mode))
    assert all(set(modes.become) <= set(MODES) and modes.agent == name for name, modes in AGENTS.items())
    assert agents.MODES is MODES


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_takes_the_modes_it_has_and_refuses_the_others_with_the_reason(agent: str, tmp_path: Path) -> None:
    adapter = load("agents", agent)(AgentSettings(home=tmp_path, command=("true",)))
    has = AGENTS[agent].names
    assert "default" in has
    for mode in get_args(Mode):
        start = Start(session="s1", mode=mode)
        if mode in has:
            adapter.check(start)
            continue
        with pytest.raises(SettingsError) as refused:
            adapter.check(start)
        why = AGENTS[agent].others
        assert str(refused.value) == f"{agent} has no mode {mode!r}: {why}; choose one of: {', '.join(has)}"


def test_a_word_that_is_no_mode_is_refused_without_a_reason() -> None:
    with pytest.raises(SettingsError, match=r"^codex has no mode 'yolo'; choose one of: default, "):
        CODEX.check("yolo")
    AGENTS["amp"].check(None)


def test_only_an_agent_that_has_every_mode_needs_no_reason() -> None:
    assert all(bool(modes.others) == (len(modes.names) < len(MODES)) for modes in AGENTS.values())


def test_where_nothing_may_be_changed_nobody_is_asked_to_let_it() -> None:
    for mode in ("read-only", "workspace-write"):
        codex = CODEX.become[mode]  # type: ignore[index]
        assert codex.settings["approvalPolicy"] == "never" and "sandbox" not in codex.settings
        files = codex.settings["config"][f"permissions.{codex.profile}.filesystem"]
        assert "deny" in files.values(), "without it, a rule that a person saved lets commands out of the sandbox"
        assert [place for place, may in files.items() if may == "write"] == (
            [":workspace_roots"] if mode == "workspace-write" else []
        )
    opencode = OPENCODE.become["read-only"]
    assert opencode.first == (("*", "deny"),) and not CHANGING & set(opencode.own)


@pytest.mark.parametrize(
    ("mode", "granted"),
    [("default", ""), ("accept-edits", "edit"), ("bypass", "edit bash"), ("plan", ""), ("full-access", "edit bash")],
)
def test_a_subagent_of_opencode_is_granted_what_its_mode_grants(mode: Mode, granted: str) -> None:
    rules = OPENCODE.become[mode]
    assert [permission for permission in ("edit", "bash") if rules.grants(permission)] == granted.split()
