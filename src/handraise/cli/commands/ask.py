"""`handraise ask`: raise a hand from a shell script."""

from __future__ import annotations

import math
import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from handraise.asks import Ask, Handling, Kind, OnTimeout, Option, Origin, Permission, Question, QuestionPolicy
from handraise.cli.calling import Json, Url, call, machine, settings_here
from handraise.cli.commands import Command
from handraise.cli.printing import ask_fields, how_to_answer, print_json, print_values, say
from handraise.errors import (
    AlreadyAnswered,
    AskDiffers,
    AskNotFound,
    HandraiseError,
    Rejected,
    SettingsError,
    Withdrawn,
)

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

WAITING = 3
WAIT = 50.0  # seconds one call is parked
LEAVE_WITHIN = 3.0  # seconds that the last call may take; the desk may be down

EXAMPLES = """\b
Examples:
  handraise ask "Deploy now?" yes no
  handraise ask "Which hosts?" web1 web2 db1 --multiple --no-custom
  handraise ask "Release name?" --kind text --timeout 600
  handraise ask "Go on?" yes no --answer-by 300 --on-timeout accept-first
  handraise ask "Clean up" --command "rm -rf build" && rm -rf build
  handraise ask --id deploy-$BUILD "Deploy?" yes no      repeat it as often as you like

\b
Exit codes: 0 answered (the values are printed, one a line), 1 failed or withdrawn,
2 usage, 3 --timeout ran out and the ask stays open, 4 rejected, 5 no desk was reached.
Ctrl+C withdraws the ask."""


def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to ask.", show_default=False)] = "",
    options: Annotated[
        list[str] | None, typer.Argument(metavar="OPTION", help="The choices, if there are any.")
    ] = None,
    header: Annotated[str, typer.Option(help="A short label for lists.")] = "",
    describe: Annotated[
        list[str] | None, typer.Option(metavar="OPTION=TEXT", help="What an option means; repeatable.")
    ] = None,
    recommend: Annotated[str | None, typer.Option(metavar="OPTION", help="The option you would take yourself.")] = None,
    multiple: Annotated[bool, typer.Option("--multiple", help="More than one option may be chosen.")] = False,
    no_custom: Annotated[bool, typer.Option("--no-custom", help="Take nothing but the options.")] = False,
    kind: Annotated[Kind, typer.Option(help="What is asked for.")] = "choice",
    permission: Annotated[
        bool, typer.Option("--permission", help="Ask for a permission; QUESTION says what for.")
    ] = False,
    command_: Annotated[
        str | None,
        typer.Option("--command", metavar="COMMAND", help="Ask for the permission to run this; nothing is run."),
    ] = None,
    id: Annotated[str | None, typer.Option(help="Name the ask: the same id again joins it, never asks twice.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long this command waits; 0 only asks. The ask stays open.", min=0),
    ] = None,
    answer_by: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="When the desk decides by itself, by --on-timeout.", min=0.001),
    ] = None,
    on_timeout: Annotated[OnTimeout | None, typer.Option(help="What --answer-by does.", show_default=False)] = None,
    policy: Annotated[
        QuestionPolicy | None,
        typer.Option(help="Who decides; a person (forward) unless handraise.toml says otherwise."),
    ] = None,
    agent: Annotated[str, typer.Option(help="Who asks.")] = "script",
    session: Annotated[str | None, typer.Option(help="Which conversation it belongs to.")] = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Raise a hand and print what people say."""
    import secrets

    origin = Origin(agent=agent, session=session or f"{agent}@{machine()}", machine=machine(), cwd=str(Path.cwd()))
    wanted = Ask(id=id or f"ask_{secrets.token_hex(6)}", origin=origin)
    if permission or command_ is not None:
        if options or multiple or no_custom or describe or recommend or kind != "choice":
            raise SettingsError("a permission takes no options: its replies are once and reject")
        # The folder is part of what is permitted: what was allowed in one is not allowed in another.
        tool = "shell" if command_ is not None else "script"
        permitted = Permission(tool=tool, summary=question, command=command_, cwd=origin.cwd)
        wanted = replace(wanted, permission=permitted)
    else:
        choices = _options(options or [], describe=describe or [], recommend=recommend)
        custom = not no_custom
        asked = Question(question, choices, header=header, multiple=multiple, custom=custom, kind=kind)
        wanted = replace(wanted, questions=(asked,))
    for name, seconds in (("--timeout", timeout), ("--answer-by", answer_by)):
        if seconds is not None and not math.isfinite(seconds):
            raise SettingsError(f"{name} takes a number of seconds; leave it out to wait without end")
    if not question and command_ is None:
        raise SettingsError('say what to ask: handraise ask "Deploy now?" yes no')
    handling = _handling(
        settings_here().handling,
        policy=policy,
        answer_by=answer_by,
        on_timeout=on_timeout,
        is_permission=not wanted.questions,
    )
    call(lambda client: _ask(client, wanted, handling=handling, timeout=timeout, as_json=as_json), url=url)


def _options(labels: list[str], *, describe: list[str], recommend: str | None) -> tuple[Option, ...]:
    said = dict.fromkeys(labels, "")
    for entry in describe:
        label, equals, text = entry.partition("=")
        if not equals or label not in said:
            raise SettingsError(f"--describe {entry!r}: write OPTION=TEXT, with one of the options")
        said[label] = text
    if recommend is not None and recommend not in said:
        raise SettingsError(f"--recommend {recommend!r}: name one of the options")
    return tuple(Option(label, description=said[label], recommended=label == recommend) for label in labels)


def _handling(
    handling: Handling,
    *,
    policy: QuestionPolicy | None,
    answer_by: float | None,
    on_timeout: OnTimeout | None,
    is_permission: bool,
) -> Handling:
    if policy is not None and is_permission:
        if policy not in ("forward", "reject"):
            raise SettingsError("--policy of a permission is forward or reject: no policy grants one")
        handling = replace(handling, permission_policy=policy)
    elif policy is not None:
        handling = replace(handling, question_policy=policy)
    if answer_by is not None:
        handling = replace(handling, question_timeout=answer_by)
    if on_timeout is not None:
        handling = replace(handling, on_timeout=on_timeout)
        if handling.question_timeout is None:
            raise SettingsError("--on-timeout says what --answer-by does; give that too")
    return handling


async def _ask(client: Client, ask: Ask, *, handling: Handling, timeout: float | None, as_json: bool) -> None:
    """Raises Rejected and Withdrawn, and leaves with 3 when the time of this command ran out."""
    import asyncio

    await client.reach()  # from here on the desk was reached, and its restarts are waited for
    try:
        opened = await _open(client, ask, handling=handling)
        if opened.state == "asked" and sys.stderr.isatty():
            say(f"waiting for an answer · {how_to_answer(opened)}")
        settled = await _wait(client, opened, timeout=timeout)
    except asyncio.CancelledError:
        await _take_back(client, ask.id)
        raise
    _tell(settled, as_json=as_json)
    if settled.state == "asked":
        name = shlex.quote(settled.id)
        waited = f"no answer within {timeout:g} s; " if timeout else ""
        say(f"handraise: {waited}the ask stays open as {name}; the same command with --id {name} picks it up again")
        raise typer.Exit(WAITING)
    if settled.answer is None:
        raise Withdrawn(settled)
    client.delivered(settled.id)
    if settled.answer.rejected:
        raise Rejected(settled.answer)


async def _wait(client: Client, ask: Ask, *, timeout: float | None) -> Ask:
    """The ask once it is settled, or as it was when the time ran out."""
    import asyncio

    with suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            while ask.state == "asked":
                ask = await client.wait(ask.id, timeout=WAIT)
    return ask


def _tell(ask: Ask, *, as_json: bool) -> None:
    """Print what was said, if anything was."""
    if as_json:
        print_json(ask_fields(ask))
    elif ask.answer is not None and not ask.answer.rejected:
        print_values(ask.answer)
        for note in filter(None, ask.answer.notes):
            say(f"note from {ask.answer.by or 'somebody'}: {note}")


async def _open(client: Client, ask: Ask, *, handling: Handling) -> Ask:
    """Raise the ask, or join the one of that name.

    An id that is known from another machine or folder means the same ask if the same is asked: a job that is repeated
    elsewhere joins.
    """
    try:
        return await client.open(ask, handling=handling)
    except AskDiffers:
        before = await client.get(ask.id)
        if (before.questions, before.permission) != (ask.questions, ask.permission):
            raise
        return await client.open(replace(ask, origin=before.origin), handling=handling)


async def _take_back(client: Client, id: str) -> None:
    """Ctrl+C: nobody waits any more, and the desk is told so."""
    import asyncio

    try:
        async with asyncio.timeout(LEAVE_WITHIN):
            await client.withdraw(id, reason="the script was interrupted")
    except AlreadyAnswered as faster:
        say(f"handraise: {faster}, just before Ctrl+C")
    except AskNotFound:
        return  # it had not been raised yet
    except (HandraiseError, TimeoutError):
        say(f"handraise: the desk could not be told, so the ask {id} stays open there")
    else:
        say(f"handraise: withdrew the ask {id}")


plugin = Command(ask, examples=EXAMPLES, group="ask")
