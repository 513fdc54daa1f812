"""`handraise start`: start an agent and follow it to the end of its first turn."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handraise.asks import Handling, Mode, OnTimeout, PermissionPolicy, QuestionPolicy
from handraise.cli.calling import Full, Json, Url, call
from handraise.cli.commands import Command
from handraise.cli.printing import command, print_json, say
from handraise.cli.trusting import settings_or_offer
from handraise.errors import SettingsError
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.app import Running
    from handraise.client import Client
    from handraise.config import Settings
    from handraise.wire.sessions import Session

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise start opencode "Add a health check"
  handraise start claude "Fix the failing test" --cwd ~/shop --mode accept-edits
  handraise start claude "Tidy up" --policy accept-recommended --permission-policy reject
  handraise start opencode "Upgrade it all" --timeout 600 --on-timeout reject
  handraise start claude "Fix it" --full               answer with keys, on a card that is redrawn
  handraise start claude "Long work" --detach          print the id and leave

\b
On a terminal it prints what the agent says and you answer what it asks right here. Without
one the last thing the agent said goes to the output, everything else beside it. It uses the
desk that runs, or is one itself until the turn has ended.
Ctrl+C aborts the turn, a second one leaves at once.
Exit codes: 0 the turn ended, 1 it failed or was aborted, 2 usage, 5 no desk was reached."""


def start(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Which agent; `handraise agents` lists them.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What it is to do.")],
    policy: Annotated[
        QuestionPolicy | None,
        typer.Option(help="Who answers its questions; a person (forward) unless handraise.toml says otherwise."),
    ] = None,
    permission_policy: Annotated[
        PermissionPolicy | None, typer.Option(help="Who decides on permissions; a person unless said otherwise.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long a question waits for a person, then --on-timeout.", min=0.001),
    ] = None,
    on_timeout: Annotated[OnTimeout | None, typer.Option(help="What --timeout does.", show_default=False)] = None,
    cwd: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where it works; here, unless said otherwise.")
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="What it may do by itself; its own configuration unless said otherwise.")
    ] = None,
    command_: Annotated[
        str | None,
        typer.Option("--command", help="With the agent acp: what to run, any program that speaks ACP."),
    ] = None,
    stale: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Stop a turn that gives no sign of life for so long and waits for nobody.",
            min=1,
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Only start it at the desk that runs, and print its id.")
    ] = False,
    full: Full = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Start an agent, and answer what it asks."""
    import asyncio

    folder = (cwd or Path.cwd()).expanduser().absolute()
    settings = settings_or_offer(folder, with_workflows=False, quietly=as_json)
    if url is not None:
        settings = replace(settings, url=url)
    handling = _handling(
        settings.handling,
        policy=policy,
        permission_policy=permission_policy,
        timeout=timeout,
        on_timeout=on_timeout,
    )
    wanted = {
        "agent": agent,
        "prompt": prompt,
        "cwd": str(folder),
        "mode": mode,
        "command": shlex.split(command_) if command_ else [],
        "stale_after": stale,
        "handling": handling,
    }
    if detach:
        call(lambda client: _detach(client, wanted, as_json=as_json), url=url)
    else:
        asyncio.run(_start(settings, wanted, as_json=as_json, full=full))


def _handling(
    handling: Handling,
    *,
    policy: QuestionPolicy | None,
    permission_policy: PermissionPolicy | None,
    timeout: float | None,
    on_timeout: OnTimeout | None,
) -> Handling:
    """What was said here over what the files say."""
    if policy is not None:
        handling = replace(handling, question_policy=policy)
    if permission_policy is not None:
        handling = replace(handling, permission_policy=permission_policy)
    if timeout is not None:
        handling = replace(handling, question_timeout=timeout)
    if on_timeout is not None:
        handling = replace(handling, on_timeout=on_timeout)
        if handling.question_timeout is None:
            raise SettingsError("--on-timeout says what --timeout does; give that too")
    return handling


async def _detach(client: Client, wanted: dict[str, Any], *, as_json: bool) -> None:
    session = await _create(client, wanted)
    if as_json:
        print_json(to_plain(session))
        return
    print(session.id, flush=True)
    say(f"look at it: {command('sessions', session.id)} · answer what it asks: {command('watch')}")


async def _create(client: Client, wanted: dict[str, Any]) -> Session:
    await client.reach()
    return await client.sessions.start(**wanted)


async def _start(settings: Settings, wanted: dict[str, Any], *, as_json: bool, full: bool | None) -> None:
    from handraise.cli.following import Followed
    from handraise.cli.running import desk_for
    from handraise.client import Client

    async with desk_for(settings) as own, Client(own.url if own is not None else None, settings=settings) as client:
        session = await _create(client, wanted)
        followed = Followed(client, session, prompt=wanted["prompt"], as_json=as_json, full=full)
        try:
            await followed.follow(leaving=None if own is None else own.serving)
        finally:
            if own is not None:
                await _say_what_waits(own)


async def _say_what_waits(own: Running) -> None:
    waiting = [ask async for ask in own.broker.asks(state="asked")]
    if waiting:
        say(f"handraise: {len(waiting)} still waiting; {command('serve')} and {command('watch')} bring them back")


plugin = Command(start, examples=EXAMPLES, group="agents")
