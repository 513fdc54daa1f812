"""`handraise install`: attach an agent in your own terminal to the desk."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.calling import Json, Url, call, settings_here
from handraise.cli.commands import Command
from handraise.cli.installing import (
    A_TOKEN,
    ByMcp,
    DryRun,
    installable_agents,
    installable_for,
    revoke,
    show,
    tell,
    token_name,
    token_names,
)
from handraise.cli.printing import print_json
from handraise.errors import SettingsError
from handraise.text.inert import inert

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from handraise.client import Client
    from handraise.edits.installing import Change

__all__ = ["plugin"]

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

BOTH = "Answer there or in the terminal, whichever is first. Without a desk it works as it did before."


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
        _list(installable_agents(settings), as_json=as_json)
        return
    if agent is None:
        raise SettingsError(f"which agent? There are {', '.join(installable_agents(settings))}")
    installable = installable_for(agent, settings=settings)
    is_mcp = isinstance(installable, ByMcp)
    if is_mcp:
        _check_extra()
    address = addresses(settings, url=url)[0]
    record = installing.Installed.read(settings.home, agent)
    shown = installing.plan(installable.edits(url=address, token=A_TOKEN), record=record)
    token = token_name(agent)
    if not dry_run:
        call(token_names, url=address)  # without a desk there is nothing to look at
    if not as_json:
        show(shown)
    _warn_of_links(shown)
    if dry_run:
        tell(shown, agent=agent, url=address, token=token, done=False, as_json=as_json)
        return
    _ask_for_consent(yes)

    async def work(client: Client) -> list[Change]:
        await revoke(client, token)
        made = await client.tokens.add(token, scopes=["ask"])
        try:
            changes = installing.plan(installable.edits(url=address, token=made.token), record=record)
            if [(each.now, each.real) for each in changes] != [(each.now, each.real) for each in shown]:
                raise SettingsError("a file was changed by somebody else meanwhile; run it again")
            installing.install(changes, home=settings.home, agent=agent, url=address, token=token, record=record)
        except BaseException:
            await revoke(client, token)
            raise
        return changes

    changes = call(work, url=address)
    tell(changes, agent=agent, url=address, token=token, done=True, as_json=as_json)
    if is_mcp and not as_json:
        print(f"{agent} now has the tool `question`, which asks at {address}, from the next session you start.")
        print("Say in the file of instructions that it reads: ask with the tool `question`, never in your reply.")
        print(f"To undo this: handraise uninstall {agent}")
    elif not as_json:
        print(f"{agent} in your terminals now raises its hand at {address} too, from the next session you start.")
        print(getattr(installable, "how_to_answer", BOTH))
        print(f"To undo this: handraise uninstall {agent}")


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


plugin = Command(install, examples=INSTALL, group="set-up")
