"""No command runs a program of the project that it is called in, because the PATH leads there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from handraise.agents._programs import found, version_of
from handraise.asks import Ask, Origin, Permission
from handraise.channels.linear import worktrees as linear_worktrees
from handraise.errors import AgentFailed, SettingsError
from handraise.rules import book as rulebook
from handraise.transports.search_path import safe_path
from handraise.workflow import worktrees
from tests.helpers.serving import serving, told


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What somebody downloaded, with a program of its own that is called like an agent."""
    folder = tmp_path / "clone"
    for place in ("bin", "src/node_modules/.bin"):
        (folder / place).mkdir(parents=True)
        _program(folder / place / "claude", "evil")
        _program(folder / place / "node", "evil")
    (folder / ".git").mkdir()
    monkeypatch.chdir(folder / "src")
    return folder


def _program(file: Path, says: str) -> None:
    file.write_text(f"#!/bin/sh\necho {says} > ran\necho 1.2.3\n")
    file.chmod(0o755)


@pytest.mark.parametrize("entry", ["../bin", "", ".", "./node_modules/.bin", "{clone}/bin", "{clone}/../clone/bin"])
async def test_a_program_of_the_project_is_not_found(clone: Path, entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if entry in ("", "."):
        _program(clone / "src" / "claude", "evil")
    monkeypatch.setenv("PATH", f"{entry.format(clone=clone)}:/usr/bin:/bin")
    with pytest.raises(AgentFailed, match="is not used: the PATH leads to it inside of this project"):
        found("claude", env=dict(os.environ), install="install it")


async def test_the_one_of_the_machine_is_used_instead_and_it_is_said(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "claude").write_text("#!/usr/bin/env node\n")
    (own / "claude").chmod(0o755)
    _program(own / "node", "good")
    monkeypatch.setenv("PATH", f"{clone}/bin:{own}:/usr/bin:/bin")
    env = dict(os.environ)
    assert found("claude", env=env, install="") == str(own / "claude")
    assert found("claude", env=env, install="") == str(own / "claude")
    assert [record.message for record in caplog.records] == [
        f"{clone}/bin/claude is not used: the PATH leads to it inside of this project"
    ]
    assert await version_of([str(own / "claude")], env=env, install="") == "1.2.3"  # and its interpreter
    assert (clone / "src" / "ran").read_text() == "good\n"


def test_a_path_of_the_settings_is_used_as_it_is(clone: Path) -> None:
    """The user's own, or those of a project that is trusted."""
    assert found("claude", env={"PATH": f"{clone}/bin"}, install="") == f"{clone}/bin/claude"


def test_a_home_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "bin").mkdir()
    _program(tmp_path / "bin" / "claude", "good")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin")
    for cwd in (tmp_path, tmp_path / "work", Path("/")):
        monkeypatch.chdir(cwd)
        assert found("claude", env=dict(os.environ), install="") == str(tmp_path / "bin" / "claude")


@pytest.mark.parametrize("path", ["", ".", ":", "./bin", "bin:."])
def test_a_path_that_leads_nowhere_else_is_never_empty(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty one would mean the folder that the program runs in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    assert safe_path(os.environ) == os.defpath
    monkeypatch.setenv("PATH", f"{path}:/opt/tools::/usr/bin:{tmp_path}/bin")
    assert safe_path(os.environ) == "/opt/tools:/usr/bin"


def a_trap(folder: Path, name: str) -> Path:
    """A program of a stranger's folder that leaves a note where it is run."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\ntouch {folder}/RAN\nexit 0\n")
    program.chmod(0o755)
    return folder / "RAN"


@pytest.mark.parametrize("path", [":", "./bin:"])
async def test_a_program_that_decides_is_not_taken_from_the_folder_of_the_agent(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone, own = tmp_path / "clone", tmp_path / "own"
    traps = [a_trap(clone / "bin", "may-i"), a_trap(clone, "may-i"), a_trap(clone / "bin", "sh"), a_trap(clone, "sh")]
    own.mkdir()
    (own / "may-i").write_text("#!/usr/bin/env sh\necho no >&2\nexit 2\n")
    (own / "may-i").chmod(0o755)
    monkeypatch.setenv("PATH", f"{path}{own}:/usr/bin:/bin")
    origin = Origin(agent="any", session="any", cwd=str(clone))
    ask = Ask(id="a", permission=Permission(tool="shell", command="make"), origin=origin)
    assert await rulebook._run(ask, ("may-i",), doubt=None) == (2, "no")
    assert not [trap for trap in traps if trap.exists()]


@pytest.mark.parametrize("git", [worktrees._git, linear_worktrees._git], ids=["workflow", "linear"])
async def test_git_is_not_taken_from_the_repository(git: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = tmp_path / "clone"
    trap = a_trap(clone, "git")
    monkeypatch.chdir(clone)
    monkeypatch.setenv("PATH", ":/usr/bin:/bin")
    with pytest.raises((SettingsError, worktrees.WorktreeFailed)):
        await git(clone if git is worktrees._git else str(clone), "rev-parse", "--verify", "HEAD")
    assert not trap.exists()


@pytest.mark.parametrize(
    "to",
    [
        ["./bin/may-i"],
        ["bin/may-i"],
        ["sh", "bin/may-i"],
        ["sh", "./may-i.sh"],
        ["sh", "may-i.sh"],
        ["python3", "-m", "decide"],
        ["python3", "-c", "import decide"],
    ],
    ids=" ".join,
)
async def test_a_rule_of_the_desk_leaves_nothing_to_a_file_of_the_folder_that_an_ask_names(
    to: list[str], tmp_path: Path
) -> None:
    """Whoever may ask names the folder, and the file there would allow what it likes."""
    clone = tmp_path / "clone"
    traps = [a_trap(clone / "bin", "may-i"), a_trap(clone, "may-i.sh")]
    (clone / "decide.py").write_text(f"open({str(traps[0])!r}, 'w')")
    body = {
        "permission": {"tool": "shell", "command": "make"},
        "origin": {"agent": "any", "session": "any", "cwd": str(clone)},
    }
    async with serving(tmp_path / "home") as desk:
        await told(desk.http.post("/v1/rules", json={"tool": "shell", "action": "delegate", "to": to}), 201)
        asked = await told(desk.http.post("/v1/asks", json=body), 201)
    assert asked["state"] == "asked"
    assert not [trap for trap in traps if trap.exists()]
