"""What tests of the real agent programs share. Each test has agents of its own, with homes of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from handraise.testing import ScriptedModel
from tests.live.homes import Home, claude_home, codex_home, opencode_home
from tests.live.programs import program


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    """A model that listens and has no scenarios; a test adds its own to `model.scenarios`."""
    async with ScriptedModel() as listening:
        yield listening


@pytest.fixture(scope="session")
def opencode() -> Path:
    """The program."""
    return program("opencode")


@pytest.fixture(scope="session")
def claude() -> Path:
    """The program."""
    return program("claude")


@pytest.fixture(scope="session")
def codex() -> Path:
    """The program."""
    return program("codex")


@pytest.fixture(scope="session")
def qwen() -> Path:
    """The program."""
    return program("qwen")


@pytest.fixture(scope="session")
def amp() -> Path:
    """The program."""
    return program("amp")


@pytest.fixture
def opencode_env(tmp_path: Path, model: ScriptedModel) -> Home:
    """A home for OpenCode that knows the model. `opencode_home` makes others, with other settings."""
    return opencode_home(tmp_path / "opencode", model=model.url)


@pytest.fixture
def claude_env(tmp_path: Path, model: ScriptedModel) -> Home:
    """A home for Claude Code that knows the model. `claude_home` makes others, with other settings."""
    return claude_home(tmp_path / "claude", model=model.url)


@pytest.fixture
def codex_env(tmp_path: Path, model: ScriptedModel) -> Home:
    """A home for Codex that knows the model. `codex_home` makes others, with other settings."""
    return codex_home(tmp_path / "codex", model=model.url)
