"""Where a real agent lives during a test: a home and a project of its own, and an environment with nothing else in it.

The environment is built from nothing, so that neither the settings nor the keys of whoever runs the tests get in.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITTEN_WITHIN = 60.0  # seconds; a busy machine
KEY = "sk-ant-scripted-0123456789abcdefghij"  # any text will do; the TUI wants to know its last 20 characters


@dataclass(frozen=True, kw_only=True)
class Home:
    """Give `env` and `project` to whatever starts the agent."""

    env: dict[str, str]  # all of it, not an addition to this process's own
    project: Path  # the working folder; absolute, without links in it
    settings: Path  # the agent's settings: a JSON file, or Codex's TOML


def opencode_home(folder: Path, *, model: str, **settings: Any) -> Home:
    """A home for OpenCode under `folder`, which is made. `settings` are added to its opencode.json, or replace."""
    home, project = _folders(folder)
    scripted = {
        "npm": "@ai-sdk/openai-compatible",  # it is built in
        "name": "Scripted",
        "options": {"baseURL": f"{model}/v1", "apiKey": "none"},
        "models": {"scripted": {"name": "Scripted", "tool_call": True, "limit": {"context": 100_000, "output": 8_000}}},
    }
    file = project / "opencode.json"
    whole = {
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "enabled_providers": ["scripted"],
        "provider": {"scripted": scripted},
        "autoupdate": False,
        "share": "disabled",
        **settings,
    }
    file.write_text(json.dumps(whole, indent=2))
    env = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return Home(env={**_bare(home), **env}, project=project, settings=file)


def claude_home(folder: Path, *, model: str, **settings: Any) -> Home:
    """A home for Claude Code under `folder`, which is made. `settings` become the user's settings.json."""
    home, project = _folders(folder)
    config = home / ".claude"
    config.mkdir()
    file = config / "settings.json"
    file.write_text(json.dumps(settings, indent=2))
    # What a person has answered before the first prompt of the TUI.
    answered = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    (config / ".claude.json").write_text(json.dumps(answered))
    env = {
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CONFIG_DIR": str(config),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",  # else it refuses to bypass permissions as root
    }
    return Home(env={**_bare(home), **env}, project=project, settings=file)


def qwen_home(folder: Path, *, model: str) -> Home:
    """A home for Qwen Code under `folder`, which is made."""
    home, project = _folders(folder)
    config = home / ".qwen"
    config.mkdir()
    file = config / "settings.json"
    file.write_text(json.dumps({"general": {"disableAutoUpdate": True}, "privacy": {"usageStatisticsEnabled": False}}))
    env = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{model}/v1", "OPENAI_MODEL": "scripted"}
    return Home(env={**_bare(home), **env}, project=project, settings=file)


def codex_home(folder: Path, *, model: str, more: str = "", **settings: str) -> Home:
    """A home for Codex under `folder`, which is made. `settings` replace what config.toml says, `more` ends it."""
    home, project = _folders(folder)
    config = home / ".codex"
    config.mkdir()
    first = {
        "model": "scripted",
        "model_provider": "scripted",
        "approval_policy": "on-request",
        "sandbox_mode": "read-only",
        **settings,
    }
    provider = {"name": "scripted", "base_url": f"{model}/v1", "wire_api": "responses"}
    lines = [
        *(f"{key} = {json.dumps(value)}" for key, value in first.items()),
        "check_for_update_on_startup = false",
        "[analytics]",
        "enabled = false",
        "[model_providers.scripted]",
        *(f"{key} = {json.dumps(value)}" for key, value in provider.items()),
        "requires_openai_auth = false",
        "request_max_retries = 0",
        "stream_max_retries = 0",
        f"[projects.{json.dumps(str(project))}]",
        'trust_level = "trusted"',
        more,
    ]
    file = config / "config.toml"
    file.write_text("\n".join(lines))
    return Home(env={**_bare(home), "CODEX_HOME": str(config)}, project=project, settings=file)


def amp_home(folder: Path, *, server: str, **settings: Any) -> Home:
    """A home for Amp under `folder`, which is made. `server` stands for Amp's own; `settings` are the person's."""
    home, project = _folders(folder)
    file = home / ".config" / "amp" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"amp.updates.mode": "disabled", **settings}, indent=2))
    # Without a key most commands open a browser and wait for minutes; with one that is no key they ask the server.
    return Home(env={**_bare(home), "AMP_URL": server, "AMP_API_KEY": "none"}, project=project, settings=file)


def _folders(folder: Path) -> tuple[Path, Path]:
    home, project = folder.resolve() / "home", folder.resolve() / "project"
    home.mkdir(parents=True)
    project.mkdir()
    return home, project


def _bare(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(home), "TERM": "xterm-256color"}


def transcripts(home: Home) -> list[Path]:
    """What Claude Code or Codex keeps of its conversations."""
    folder = home.settings.parent
    return [*folder.glob("projects/*/*.jsonl"), *folder.glob("sessions/**/*.jsonl")]


async def written_down(home: Home, id: str) -> None:
    """Until the agent has written down the call of this ask: it does so a moment later, and tells nobody."""
    call = id.rpartition(":")[2]
    async with asyncio.timeout(WRITTEN_WITHIN):
        while not any(call in transcript.read_text() for transcript in transcripts(home)):
            await asyncio.sleep(0.02)
