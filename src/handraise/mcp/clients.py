"""Agents that only know MCP: where each keeps its servers, and what it is told to start ours. One line an agent.

The files are somebody's own: what is not ours stays as it is, byte for byte, and what is ours is taken out exactly.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from handraise.agents import Edit
from handraise.edits import toml
from handraise.edits.json import decoded, put, read, take_out, text_to_change, without
from handraise.errors import SettingsError

__all__ = ["CLIENTS", "McpClient", "program"]

NAME = "handraise"  # of the server, in every file
A_DAY = 86_400  # seconds; a person may be asleep, and where the limit of the client is nearer we come before it
START = 30  # seconds until the server has to be there; Python starts slowly on a busy machine
MARK = "written by handraise; `handraise uninstall codex` takes it out"
URL, TOKEN = "HANDRAISE_URL", "HANDRAISE_TOKEN"

Environ = Mapping[str, str]


def _in_home(*parts: str, unless: str = "", home: str = "") -> Callable[[Environ], Path]:
    """A file under the home. A variable may name its first folder instead, or another home."""

    def path(environ: Environ) -> Path:
        if own := environ.get(unless):
            return Path(own).joinpath(*parts[1:])
        return Path(environ.get(home) or _home(environ)).joinpath(*parts)

    return path


def _in_config(*parts: str) -> Callable[[Environ], Path]:
    """A file where programs with windows keep theirs."""

    def path(environ: Environ) -> Path:
        match sys.platform:
            case "darwin":
                folder = _home(environ) / "Library" / "Application Support"
            case "win32":
                folder = Path(environ.get("APPDATA") or _home(environ) / "AppData" / "Roaming")
            case _:
                folder = Path(environ.get("XDG_CONFIG_HOME") or _home(environ) / ".config")
        return folder.joinpath(*parts)

    return path


def _home(environ: Environ) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


@dataclass(frozen=True, slots=True, kw_only=True)
class McpClient:
    """How one agent is told of a server."""

    title: str
    file: Callable[[Environ], Path]
    table: str = "mcpServers"
    fields: Mapping[str, Any] = field(default_factory=dict)  # beside command, args and env
    is_toml: bool = False

    def edits(self, *, url: str, token: str, environ: Environ, command: Sequence[str]) -> Sequence[Edit]:
        """`command` starts handraise; its first word is a whole path, since programs with windows have little PATH."""
        path = self.file(environ)
        entry = {
            "command": command[0],
            "args": [*command[1:], "mcp"],
            **self.fields,
            "env": {URL: url.rstrip("/"), TOKEN: token},
        }
        add, remove = (_add_toml, _remove_toml) if self.is_toml else (_add_json, _remove_json)
        keys = (self.table, NAME)
        adding, removing = partial(add, entry=entry, path=path, keys=keys), partial(remove, path=path, keys=keys)
        return [Edit(path=path, add=adding, remove=removing, private=True)]


_MS = {"timeout": A_DAY * 1000}
CLIENTS: Mapping[str, McpClient] = {
    "claude-desktop": McpClient(title="Claude Desktop", file=_in_config("Claude", "claude_desktop_config.json")),
    "codex": McpClient(
        title="Codex",
        file=_in_home(".codex", "config.toml", unless="CODEX_HOME"),
        table="mcp_servers",
        fields={"startup_timeout_sec": START, "tool_timeout_sec": A_DAY},
        is_toml=True,
    ),
    "copilot": McpClient(
        title="Copilot CLI",
        file=_in_home(".copilot", "mcp-config.json", unless="COPILOT_HOME"),
        fields={"type": "stdio", "tools": ["*"], **_MS},
    ),
    "cursor": McpClient(title="Cursor", file=_in_home(".cursor", "mcp.json")),
    "gemini": McpClient(
        title="Gemini CLI", file=_in_home(".gemini", "settings.json", home="GEMINI_CLI_HOME"), fields=_MS
    ),
    "qwen": McpClient(title="Qwen Code", file=_in_home(".qwen", "settings.json", unless="QWEN_HOME"), fields=_MS),
    "vscode": McpClient(
        title="VS Code", file=_in_config("Code", "User", "mcp.json"), table="servers", fields={"type": "stdio"}
    ),
    "windsurf": McpClient(title="Windsurf", file=_in_home(".codeium", "windsurf", "mcp_config.json")),
}


def program() -> tuple[str, ...]:
    """What starts this handraise from anywhere: the program beside our Python, or that Python itself."""
    beside = shutil.which("handraise", path=str(Path(sys.executable).parent))
    return (str(Path(beside).absolute()),) if beside else (sys.executable, "-P", "-m", "handraise")


# The files ----------------------------------------------------------------------------------------------------------


def _is_ours(entry: Any) -> bool:
    """A server that a person added by hand has no token of ours in its environment."""
    if not isinstance(entry, dict):
        return False
    args, env = entry.get("args"), entry.get("env")
    is_mcp = isinstance(args, list) and args[-1:] == ["mcp"]
    return is_mcp and isinstance(env, dict) and URL in env and str(env.get(TOKEN, "")).startswith("hr_")


def _found(tables: Any, keys: Sequence[str]) -> Any:
    """What stands under the keys, or None."""
    for key in keys:
        tables = tables.get(key) if isinstance(tables, dict) else None
    return tables


def _check_is_free(tables: Any, keys: Sequence[str], *, path: Path) -> None:
    if _found(tables, keys) is not None:
        raise SettingsError(
            f"{path} has an MCP server {keys[-1]!r} already that is not ours; remove or rename it first"
        )


def _unreadable(path: Path, problem: ValueError) -> SettingsError:
    return SettingsError(f"{path} cannot be changed ({problem}), so nothing was; correct it first")


def _add_json(before: bytes | None, *, entry: Mapping[str, Any], path: Path, keys: Sequence[str]) -> bytes:
    text = _without_json(text_to_change(before, path=path), path=path, keys=keys)
    _check_is_free(read(text, path=path, comments=True).value, keys, path=path)
    return put(text, keys, dict(entry), path=path, comments=True).encode()


def _remove_json(now: bytes, *, path: Path, keys: Sequence[str]) -> bytes | None:
    return without(now, partial(_without_json, path=path, keys=keys), path=path)


def _without_json(text: str, *, path: Path, keys: Sequence[str]) -> str:
    while _is_ours(_found(read(text, path=path, comments=True).value, keys)):
        text = take_out(text, keys, path=path, comments=True)
    return text


def _add_toml(before: bytes | None, *, entry: Mapping[str, Any], path: Path, keys: Sequence[str]) -> bytes:
    text = "" if before is None else decoded(before, path=path)
    try:
        text = _without_toml(text, keys)
        _check_is_free(toml.read(text), keys, path=path)
        return toml.put(text, keys, entry, mark=MARK).encode()
    except ValueError as problem:
        raise _unreadable(path, problem) from None


def _remove_toml(now: bytes, *, path: Path, keys: Sequence[str]) -> bytes | None:
    text = decoded(now, path=path)
    try:
        left = _without_toml(text, keys)
    except ValueError as problem:
        raise _unreadable(path, problem) from None
    return left.encode() if left.strip() or left == text else None


def _without_toml(text: str, keys: Sequence[str]) -> str:
    return toml.take_out(text, keys, mark=MARK) if _is_ours(_found(toml.read(text), keys)) else text
