"""`handraise sessions attach`: listen to an agent that already runs, and bring what it asks to the desk."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import SplitResult, quote, urlsplit

import typer

from handraise.cli.calling import Url, call, settings_here
from handraise.cli.commands import Command
from handraise.cli.printing import say
from handraise.errors import SettingsError

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise sessions attach codex
  handraise sessions attach opencode http://127.0.0.1:4096
  OPENCODE_SERVER_PASSWORD=… handraise sessions attach opencode http://build.example.org:4096

\b
Codex needs no address: the daemon that your own `codex` starts is found, also when it
starts later. Another app-server of it is given as unix:///PATH.

\b
The password of opencode may stand in the address (http://opencode:PASSWORD@HOST:PORT), or in the
variable that the agent itself reads, OPENCODE_SERVER_PASSWORD; otherwise you are asked for it.
A desk that is to listen for as long as it runs has `watch` under [agents.opencode] or
[agents.codex] in its config.toml instead."""


def attach(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Which agent runs there.")],
    address: Annotated[
        str | None, typer.Argument(metavar="[ADDRESS]", help="Where it listens. Codex is found without.")
    ] = None,
    url: Url = None,
) -> None:
    """Bring what a running agent asks to the desk, until Ctrl+C."""
    call(lambda client: _attach(client, agent, address), url=url)


async def _attach(client: Client, agent: str, given: str | None) -> None:
    from handraise.agents import Watchable
    from handraise.app import agents_of

    agents = agents_of(settings_here())
    watched = agents[agent]
    if not isinstance(watched, Watchable):
        raise SettingsError(f"{agent} cannot be listened to while it runs by itself; see `handraise install --help`")
    found_at: str | None = getattr(watched, "found_at", None)
    address = given or found_at
    if address is None:
        raise SettingsError(
            f"say where {agent} listens, as in `handraise sessions attach {agent} http://127.0.0.1:4096`"
        )
    has_passwords = found_at is None
    shown = _without_password(address) if has_passwords else address
    await client.reach()  # nothing is listened to that nobody could answer

    def ready() -> None:
        say(f"connected to {agent} at {shown}; what it asks is at {client.url}. Ctrl+C ends this")

    password = os.environ.get(f"{agent.upper()}_SERVER_PASSWORD") if has_passwords else None
    known = _with_password(address, password) if has_passwords else address
    try:
        try:
            await watched.watch(client, known, ready=ready)
        except SettingsError:
            if not has_passwords or _has_password(known) or not sys.stdin.isatty():
                raise
            await watched.watch(client, _with_password(address, _ask_for_password(shown)), ready=ready)
    finally:
        await agents.close()


def _has_password(address: str) -> bool:
    return _parts(address).password is not None


def _with_password(address: str, password: str | None) -> str:
    """The address with this password, unless it has one."""
    parts = _parts(address)
    if password is None or parts.password is not None:
        return address
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username or ''}:{quote(password, safe='')}@{host}").geturl()


def _without_password(address: str) -> str:
    parts = _parts(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _parts(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        if parts.hostname:
            return parts
    except ValueError:  # half of an IPv6 address
        pass
    raise SettingsError("ADDRESS is where the agent listens, as in http://127.0.0.1:4096")


def _ask_for_password(shown: str) -> str:
    import getpass

    return getpass.getpass(f"Password of {shown}: ")


plugin = Command(attach, examples=EXAMPLES)
