"""`handraise uninstall`: put everything back that `install` changed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.calling import Json, Url, call, settings_here
from handraise.cli.commands import Command
from handraise.cli.installing import DryRun, edits_for, revoke, show, tell, token_name
from handraise.cli.printing import print_json
from handraise.errors import DeskUnreachable, Refused
from handraise.text.inert import inert

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

UNINSTALL = """\b
Examples:
  handraise uninstall claude
  handraise uninstall gemini --dry-run

\b
Files that nobody changed since are again what they were, byte for byte; from the others
only what was put in is taken out."""


Agent = Annotated[str, typer.Argument(metavar="AGENT", help="Which agent; `install --list` names them.")]


def uninstall(agent: Agent, dry_run: DryRun = False, as_json: Json = False, url: Url = None) -> None:
    """Take out what `install` put in, and revoke its token."""
    from handraise.client import addresses
    from handraise.edits import installing

    settings = settings_here()
    record = installing.Installed.read(settings.home, agent)
    address = url or (record.url if record is not None else addresses(settings)[0])
    changes = installing.plan_removal(edits_for(agent, settings, url=address, known=record is not None), record=record)
    if record is None and all(change.what == "unchanged" for change in changes):
        if as_json:
            print_json({"agent": agent, "done": False, "files": []})
        else:
            print(f"nothing of handraise is installed for {agent}")
        return
    token = record.token if record is not None else token_name(agent)
    if dry_run:
        if not as_json:
            show(changes)
        tell(changes, agent=agent, url=address, token=token, done=False, as_json=as_json)
        return
    installing.uninstall(changes)

    async def work(client: Client) -> bool:
        return await revoke(client, token)

    stays = ""
    try:
        call(work, url=address)
    except DeskUnreachable:
        stays = f"no desk was reached at {address}, so the token {token!r} stays"
    except Refused as refused:
        stays = f"the token {token!r} stays, since the desk refused to revoke it: {refused}"
    installing.remove_record(settings.home, agent)
    tell(changes, agent=agent, url=address, token=token, done=True, as_json=as_json)
    if stays:
        later = f"handraise token revoke {token}"
        print(f"handraise: {inert(stays, keep='')}; later: {later}", file=sys.stderr)
    elif not as_json:
        print(f"{agent} is again as it was without handraise; its token is revoked")


plugin = Command(uninstall, examples=UNINSTALL, group="set-up")
