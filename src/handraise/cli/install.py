"""`handraise install` and `handraise uninstall`: attach an agent in your own terminal to the desk, and detach it."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from handraise.cli.calling import Json, Url, call, machine, settings_here
from handraise.cli.shown import print_json
from handraise.errors import DeskUnreachable, PluginNotFound, Refused, SettingsError
from handraise.text.inert import inert

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from handraise.agents import Edit, Installable
    from handraise.client import Client
    from handraise.config import Settings
    from handraise.edits.installing import Change
    from handraise.mcp.clients import McpClient

__all__ = ["add_to"]

INSTALL = """\b
Examples:
  handraise install claude --dry-run     show what would change, and change nothing
  handraise install claude
  handraise install opencode --yes       without being asked
  handraise install gemini               give it the question tool, by MCP
  handraise install --list               every agent, and what it gets
  handraise uninstall claude             put everything back

\b
It takes a desk that runs, and makes a token there that can ask and nothing else."""
UNINSTALL = """\b
Examples:
  handraise uninstall claude
  handraise uninstall gemini --dry-run

\b
Files that nobody changed since are again what they were, byte for byte; from the others
only what was put in is taken out."""

A_TOKEN = "hr_made-when-it-is-installed"  # noqa: S105 - stands for one while people read what would change

OWN = "what it asks in your terminals comes to the desk too"
BY_MCP = "the tool `question`, by MCP"
BOTH = "Answer there or in the terminal, whichever is first. Without a desk it works as it did before."

Agent = Annotated[str, typer.Argument(metavar="AGENT", help="Which agent; `install --list` names them.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]


def add_to(app: typer.Typer) -> None:
    @app.command(epilog=INSTALL)
    def install(
        agent: Annotated[
            str | None, typer.Argument(metavar="AGENT", help="Which agent; `--list` names them.", show_default=False)
        ] = None,
        listed: Annotated[bool, typer.Option("--list", help="Show every agent there is, and what it gets.")] = False,
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
        dry_run: DryRun = False,
        as_json: Json = False,
        url: Url = None,
    ) -> None:
        """Bring what an agent in your own terminals asks to the desk."""
        from handraise.client import addresses
        from handraise.edits import installing

        settings = settings_here()
        if listed:
            _list(_all(settings), as_json=as_json)
            return
        if agent is None:
            raise SettingsError(f"which agent? There are {', '.join(_all(settings))}")
        installable = _installable(agent, settings=settings)
        is_mcp = isinstance(installable, _ByMcp)
        if is_mcp:
            _check_extra()
        address = addresses(settings, url=url)[0]
        record = installing.Installed.read(settings.home, agent)
        shown = installing.plan(installable.edits(url=address, token=A_TOKEN), record=record)
        token = _token_name(agent)
        if not dry_run:
            call(_tokens, url=address)  # without a desk there is nothing to look at
        if not as_json:
            _show(shown)
        _warn_of_links(shown)
        if dry_run:
            _tell(shown, agent=agent, url=address, token=token, done=False, as_json=as_json)
            return
        _ask_for_consent(yes)

        async def work(client: Client) -> list[Change]:
            await _revoke(client, token)
            made = await client.call("POST", "/v1/tokens", body={"name": token, "scopes": ["ask"]})
            try:
                changes = installing.plan(installable.edits(url=address, token=made["token"]), record=record)
                if [(each.now, each.real) for each in changes] != [(each.now, each.real) for each in shown]:
                    raise SettingsError("a file was changed by somebody else meanwhile; run it again")
                installing.install(changes, home=settings.home, agent=agent, url=address, token=token, record=record)
            except BaseException:
                await _revoke(client, token)
                raise
            return changes

        changes = call(work, url=address)
        _tell(changes, agent=agent, url=address, token=token, done=True, as_json=as_json)
        if is_mcp and not as_json:
            print(f"{agent} now has the tool `question`, which asks at {address}, from the next session you start.")
            print("Say in the file of instructions that it reads: ask with the tool `question`, never in your reply.")
            print(f"To undo this: handraise uninstall {agent}")
        elif not as_json:
            print(f"{agent} in your terminals now raises its hand at {address} too, from the next session you start.")
            print(getattr(installable, "how_to_answer", BOTH))
            print(f"To undo this: handraise uninstall {agent}")

    @app.command(epilog=UNINSTALL)
    def uninstall(agent: Agent, dry_run: DryRun = False, as_json: Json = False, url: Url = None) -> None:
        """Take out what `install` put in, and revoke its token."""
        from handraise.client import addresses
        from handraise.edits import installing

        settings = settings_here()
        record = installing.Installed.read(settings.home, agent)
        address = url or (record.url if record is not None else addresses(settings)[0])
        changes = installing.plan_removal(_edits(agent, settings, url=address, known=record is not None), record=record)
        if record is None and all(change.what == "unchanged" for change in changes):
            if as_json:
                print_json({"agent": agent, "done": False, "files": []})
            else:
                print(f"nothing of handraise is installed for {agent}")
            return
        token = record.token if record is not None else _token_name(agent)
        if dry_run:
            if not as_json:
                _show(changes)
            _tell(changes, agent=agent, url=address, token=token, done=False, as_json=as_json)
            return
        installing.uninstall(changes)

        async def work(client: Client) -> bool:
            return await _revoke(client, token)

        stays = ""
        try:
            call(work, url=address)
        except DeskUnreachable:
            stays = f"no desk was reached at {address}, so the token {token!r} stays"
        except Refused as refused:
            stays = f"the token {token!r} stays, since the desk refused to revoke it: {refused}"
        installing.remove_record(settings.home, agent)
        _tell(changes, agent=agent, url=address, token=token, done=True, as_json=as_json)
        if stays:
            revoke = f"handraise token revoke {token}"
            print(f"handraise: {inert(stays, keep='')}; later: {revoke}", file=sys.stderr)
        elif not as_json:
            print(f"{agent} is again as it was without handraise; its token is revoked")


class _ByMcp:
    """An agent that only knows MCP."""

    def __init__(self, client: McpClient, *, environ: Mapping[str, str]) -> None:
        self._client = client
        self._environ = environ

    def edits(self, *, url: str, token: str) -> Sequence[Edit]:
        from handraise.mcp.clients import program

        return self._client.edits(url=url, token=token, environ=self._environ, command=program())


def _installable(name: str, *, settings: Settings) -> Installable:
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
        return _ByMcp(CLIENTS[name], environ={**os.environ, **(table.env if table is not None else {})})
    there = ", ".join(_all(settings))
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


def _all(settings: Settings) -> dict[str, str]:
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


def _list(gets: Mapping[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json({"agents": [{"agent": name, "gets": what} for name, what in gets.items()]})
        return
    for name, what in gets.items():
        print(inert(f"{name:<16}{what}", keep=""))


def _check_extra() -> None:
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise SettingsError("MCP needs a package that is not installed; `pip install 'handraise[mcp]'` brings it")


def _edits(name: str, settings: Settings, *, url: str, known: bool) -> Sequence[Edit]:
    """Those of the agent, or none where it is gone and a record says what to do."""
    try:
        return _installable(name, settings=settings).edits(url=url, token=A_TOKEN)
    except PluginNotFound:
        if not known:
            raise
        return ()


def _token_name(agent: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{agent}-{machine()}")[:63]


async def _tokens(client: Client) -> list[str]:
    return [told["name"] for told in (await client.call("GET", "/v1/tokens"))["tokens"]]


async def _revoke(client: Client, token: str) -> bool:
    """False if there is none of that name."""
    if token not in await _tokens(client):
        return False
    await client.call("DELETE", f"/v1/tokens/{quote(token, safe='')}")
    return True


def _ask_for_consent(yes: bool) -> None:
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SettingsError("this changes files of yours; say --yes to have it done, or --dry-run to see what changes")
    if not typer.confirm("Change this?", default=False):
        print("nothing was changed")
        raise typer.Exit(1)


def _warn_of_links(changes: Sequence[Change]) -> None:
    from handraise.edits.installing import elsewhere

    for change in changes:
        if (said := elsewhere(change)) is not None:
            print(f"handraise: {inert(said, keep='')}", file=sys.stderr, flush=True)


def _show(changes: Sequence[Change]) -> None:
    from handraise.edits.installing import diff

    for change in changes:
        text = diff(change)
        print(text if text else f"{inert(str(change.path), keep='')} stays as it is", flush=True)


def _tell(changes: Sequence[Change], *, agent: str, url: str, token: str, done: bool, as_json: bool) -> None:
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
