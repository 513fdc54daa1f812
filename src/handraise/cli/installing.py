"""What `install` and `uninstall` share: which agents can be attached, their token, and how a change is shown."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handraise.cli.calling import machine
from handraise.cli.printing import print_json
from handraise.errors import PluginNotFound, SettingsError
from handraise.text.inert import inert

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from handraise.agents import Edit, Installable
    from handraise.client import Client
    from handraise.config import Settings
    from handraise.edits.installing import Change
    from handraise.mcp.clients import McpClient

__all__ = [
    "A_TOKEN",
    "ByMcp",
    "DryRun",
    "edits_for",
    "installable_agents",
    "installable_for",
    "revoke",
    "show",
    "tell",
    "token_name",
    "token_names",
]

A_TOKEN = "hr_made-when-it-is-installed"  # noqa: S105 - stands for one while people read what would change

OWN = "what it asks in your terminals comes to the desk too"
BY_MCP = "the tool `question`, by MCP"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]


class ByMcp:
    """An agent that only knows MCP."""

    def __init__(self, client: McpClient, *, environ: Mapping[str, str]) -> None:
        self._client = client
        self._environ = environ

    def edits(self, *, url: str, token: str) -> Sequence[Edit]:
        from handraise.mcp.clients import program

        return self._client.edits(url=url, token=token, environ=self._environ, command=program())


def installable_for(name: str, *, settings: Settings) -> Installable:
    """The agent's own way, else the one by MCP. Raises SettingsError, PluginNotFound that name those that have one."""
    from handraise.agents import Installable
    from handraise.mcp.clients import CLIENTS

    try:
        agent = _agent(name, settings=settings)
    except PluginNotFound:
        agent = None
    if isinstance(agent, Installable):
        return agent
    if name in CLIENTS:
        table = settings.agents.get(name)
        return ByMcp(CLIENTS[name], environ={**os.environ, **(table.env if table is not None else {})})
    there = ", ".join(installable_agents(settings))
    if agent is not None:
        raise SettingsError(f"{name} has nothing to install; these have: {there}")
    raise PluginNotFound(f"there is no agent {name!r} to install for; there are {there}", family="agents", name=name)


def _agent(name: str, *, settings: Settings) -> Any:
    """Raises PluginNotFound."""
    from handraise.agents import AgentSettings
    from handraise.plugins import load

    table = settings.agents.get(name)
    command, env = ((), {}) if table is None else (table.command, table.env)
    return load("agents", name)(AgentSettings(home=settings.home, command=command, env=env))


def installable_agents(settings: Settings) -> dict[str, str]:
    """Every agent that can be installed, and what it gets."""
    from handraise.agents import Installable
    from handraise.mcp.clients import CLIENTS
    from handraise.plugins import names

    found = {name: f"{client.title}: {BY_MCP}" for name, client in CLIENTS.items()}
    for name in names("agents"):
        with suppress(PluginNotFound):  # a module of the family that is no agent
            if isinstance(_agent(name, settings=settings), Installable):
                found[name] = OWN
    return dict(sorted(found.items()))


def edits_for(name: str, settings: Settings, *, url: str, known: bool) -> Sequence[Edit]:
    """Those of the agent, or none where it is gone and a record says what to do."""
    try:
        return installable_for(name, settings=settings).edits(url=url, token=A_TOKEN)
    except PluginNotFound:
        if not known:
            raise
        return ()


def token_name(agent: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{agent}-{machine()}")[:63]


async def token_names(client: Client) -> list[str]:
    return [token.name for token in await client.tokens.list()]


async def revoke(client: Client, token: str) -> bool:
    """False if there is none of that name."""
    if token not in await token_names(client):
        return False
    await client.tokens.revoke(token)
    return True


def show(changes: Sequence[Change]) -> None:
    from handraise.edits.installing import diff

    for change in changes:
        text = diff(change)
        print(text if text else f"{inert(str(change.path), keep='')} stays as it is", flush=True)


def tell(changes: Sequence[Change], *, agent: str, url: str, token: str, done: bool, as_json: bool) -> None:
    if as_json:
        files: list[dict[str, Any]] = [_fields(change) for change in changes]
        print_json({"agent": agent, "url": url, "token": token, "done": done, "files": files})
        return
    for change in changes:
        print(f"{change.what if done else 'would be ' + change.what}: {inert(str(change.path), keep='')}")


def _fields(change: Change) -> dict[str, Any]:
    from handraise.edits.installing import elsewhere

    told = {"path": str(change.path), "change": change.what}
    return told if elsewhere(change) is None else {**told, "real": str(change.real)}
