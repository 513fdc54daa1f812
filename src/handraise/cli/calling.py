"""Calling the desk, for the commands that do: one client for the length of a command, and the ask that an id means."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from handraise.asks import Ask
from handraise.cli.printing import say
from handraise.errors import (
    AlreadyAnswered,
    AskNotFound,
    AskWithdrawn,
    ChatNotFound,
    CheckpointNotFound,
    DeskUnreachable,
    HandraiseError,
    RunNotFound,
    SessionNotFound,
    SettingsError,
)
from handraise.text.inert import inert

if TYPE_CHECKING:
    from handraise.broker import Broker
    from handraise.client import Client
    from handraise.config import Settings
    from handraise.tables.tokens import Tokens
    from handraise.text.words import Words
    from handraise.wire.runs import Checkpoint, Run
    from handraise.wire.sessions import Session

__all__ = [
    "AskId",
    "By",
    "CheckpointId",
    "Full",
    "Json",
    "RunId",
    "SessionId",
    "Url",
    "Yes",
    "call",
    "call_or_open",
    "chat_path",
    "complete_chat",
    "complete_checkpoint",
    "complete_id",
    "complete_run",
    "complete_session",
    "find_ask",
    "find_chat",
    "find_checkpoint",
    "find_run",
    "find_session",
    "lost",
    "machine",
    "person",
    "settings_here",
    "terminal_words",
    "wants_full",
]

T = TypeVar("T")

MOST_NAMED = 5  # asks that an ambiguous id lists
COMPLETE_WITHIN = 2.0  # seconds; a shell waits for it
# What a shell takes literally. Nothing that an agent made up is completed, or evaluated, into something that runs.
_HARMLESS_ID = re.compile(r"[A-Za-z0-9_.@/+=:,%-][A-Za-z0-9_.@/+=:,%#-]*")
_HARMFUL = re.compile(r"[^\w ?.,/-]+")

Url = Annotated[
    str | None,
    typer.Option(
        help="Where the desk is, or several with commas between; otherwise HANDRAISE_URL, the desk of HANDRAISE_HOME, "
        "the default."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Full = Annotated[
    bool | None,
    typer.Option(
        "--full/--no-full",
        help="On a terminal: redraw what is asked in place and take keys, not lines; your config.toml may say so too.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
By = Annotated[str | None, typer.Option(help="In whose name; you, unless said otherwise.")]


_said: set[str] = set()  # what of projects is not used, so that a command says it once


def settings_here(cwd: Path | None = None) -> Settings:
    """The settings for a folder. What of its project nobody trusts is left out, which one line on stderr says."""
    import os

    from handraise.config import load

    settings = load(cwd=cwd)
    if not settings.untrusted:
        return settings
    from handraise.trust import notice

    said = notice(settings.untrusted)
    if said is not None and said not in _said and "_HANDRAISE_COMPLETE" not in os.environ:
        _said.add(said)
        say(said)
    return settings


def call(work: Callable[[Client], Awaitable[T]], *, url: str | None) -> T:
    """Run `work` with a client of the desk. Ctrl+C cancels it and then ends the command."""
    import asyncio

    from handraise.client import Client

    settings = settings_here()

    async def calling() -> T:
        async with Client(url, settings=settings, quick=True) as client:
            return await work(client)

    return asyncio.run(calling())


def call_or_open(
    over_http: Callable[[Client], Awaitable[T]],
    on_store: Callable[[Broker, Tokens], Awaitable[T]],
    *,
    url: str | None,
    quietly: bool = False,
) -> T:
    """At the desk that runs; where this home has none, in its store, whose lock keeps a starting desk out.

    `quietly` leaves it to the caller to say what of a project is not used.
    """
    import asyncio

    from handraise.app import open_parts
    from handraise.client import Client
    from handraise.config import load

    settings = load() if quietly else settings_here()

    async def run() -> T:
        is_elsewhere = bool(url or settings.url)
        if is_elsewhere or settings.token or settings.running_desk():
            try:
                async with Client(url, settings=settings, quick=True) as client:
                    return await over_http(client)
            except DeskUnreachable:
                if is_elsewhere:
                    raise
        async with open_parts(settings) as (broker, tokens):
            return await on_store(broker, tokens)

    return asyncio.run(run())


def wants_full(said: bool | None) -> bool:
    """Whether the terminal is to be in full mode: as the command says, else as the user's settings do."""
    import os

    from handraise.config import load

    can = os.environ.get("TERM") != "dumb"
    return can and (load().full if said is None else said)


def terminal_words() -> Words:
    """What the terminal speaks: as the user's settings say, else as its locale does."""
    import os

    from handraise.config import load
    from handraise.text.words import language_of, speak

    return speak(load().language or language_of(os.environ))


def person() -> str:
    """The name of whoever runs this, as answers carry it."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as containers have
        return "somebody"


def machine() -> str:
    import socket

    return socket.gethostname()


async def find_ask(client: Client, typed: str) -> Ask:
    """The ask with this id, or the one whose id begins or ends like this; an open one rather than a settled one.

    Raises AskNotFound, and SettingsError that lists them where it could be several.
    """
    try:
        return await client.get(typed)
    except AskNotFound:
        if not typed:
            raise
    for state in ("asked", None):
        found = [ask async for ask in client.asks(state=state) if ask.id.startswith(typed) or ask.id.endswith(typed)]
        if len(found) == 1:
            return found[0]
        if found:
            raise _ambiguous(typed, [ask.id for ask in found])
    raise AskNotFound(typed)


class _Named(Protocol):
    @property
    def id(self) -> str: ...


async def _find(
    typed: str,
    *,
    get: Callable[[str], Awaitable[T]],
    known: Callable[[], Awaitable[Iterable[_Named]]],
    missing: type[HandraiseError],
) -> T:
    """What has this id, or the one of those that are known whose id begins or ends like this.

    Raises `missing`, and SettingsError that lists them where it could be several.
    """
    try:
        return await get(typed)
    except HandraiseError as problem:
        if not typed or problem.code not in (missing.code, "not_found"):
            raise
    found = [each.id for each in await known() if each.id.startswith(typed) or each.id.endswith(typed)]
    if len(found) > 1:
        raise _ambiguous(typed, found)
    if not found:
        raise missing(typed)
    return await get(found[0])


async def find_session(client: Client, typed: str) -> Session:
    """Among the newest. Raises SessionNotFound, and SettingsError that lists them where it could be several."""
    return await _find(typed, get=client.sessions.get, known=client.sessions.list, missing=SessionNotFound)


async def find_chat(client: Client, typed: str) -> dict[str, Any]:
    """The chat and its messages. Raises ChatNotFound, and SettingsError that lists them where it could be several."""

    async def get(id: str) -> dict[str, Any]:
        return await client.call("GET", chat_path(id))  # type: ignore[no-any-return]

    async def known() -> Iterable[_Named]:
        return (await client.chats.list()).chats

    return await _find(typed, get=get, known=known, missing=ChatNotFound)


def chat_path(id: str, action: str = "") -> str:
    from handraise.client.connection import path

    return path("chats", id, *([action] if action else []))


async def find_run(client: Client, typed: str) -> Run:
    """Among the newest. Raises RunNotFound, and SettingsError that lists them where it could be several."""
    return await _find(typed, get=client.runs.get, known=client.runs.list, missing=RunNotFound)


async def find_checkpoint(client: Client, typed: str) -> Checkpoint:
    """Also an open one by its run or its step. Raises CheckpointNotFound, and SettingsError that lists them where it
    could be several."""
    return await _find(
        typed,
        get=client.checkpoints.get,
        known=lambda: client.checkpoints.list(state="open"),
        missing=CheckpointNotFound,
    )


def _ambiguous(typed: str, ids: list[str]) -> SettingsError:
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return SettingsError(f"{typed!r} could be {', '.join(ids[:MOST_NAMED])}{more}; type more of the id")


def lost(ask: Ask) -> HandraiseError:
    """Why a settled ask takes no answer: the same sentence that the desk would say."""
    if ask.answer is None:
        return AskWithdrawn(ask.id, reason=ask.withdrawn_reason)
    told = {"answers": ask.answer.answers, "reply": ask.answer.reply, "rejected": ask.answer.rejected}
    who = (ask.answer.by or "somebody") + (f" in {ask.answer.via}" if ask.answer.via else "")
    return AlreadyAnswered(
        f"ask {ask.id!r} was already {ask.state} by {who}", answer={**told, "reason": ask.answer.reason}
    )


def complete_id(incomplete: str) -> Iterator[tuple[str, str]]:
    """The ids that wait, for the shell, with what each is about."""

    async def listed(client: Client) -> list[tuple[str, str]]:
        return [(ask.id, ask.title) async for ask in client.asks(state="asked")]

    yield from _completed(incomplete, listed)


def complete_session(incomplete: str) -> Iterator[tuple[str, str]]:
    """The ids of sessions that were started here and are not over, for the shell, each with its agent."""

    async def listed(client: Client) -> list[tuple[str, str]]:
        found = await client.sessions.list()
        return [(session.id, session.agent) for session in found if session.managed and session.state != "done"]

    yield from _completed(incomplete, listed)


def complete_run(incomplete: str) -> Iterator[tuple[str, str]]:
    """The ids of the newest runs, for the shell, each with its workflow and its state."""

    async def listed(client: Client) -> list[tuple[str, str]]:
        return [(run.id, f"{run.workflow} {run.state}") for run in await client.runs.list()]

    yield from _completed(incomplete, listed)


def complete_chat(incomplete: str) -> Iterator[tuple[str, str]]:
    """The ids of the newest chats, for the shell, each with its title."""

    async def listed(client: Client) -> list[tuple[str, str]]:
        return [(chat.id, chat.title) for chat in (await client.chats.list()).chats]

    yield from _completed(incomplete, listed)


def complete_checkpoint(incomplete: str) -> Iterator[tuple[str, str]]:
    """The ids of checkpoints that wait, for the shell, each with what it shows."""

    async def listed(client: Client) -> list[tuple[str, str]]:
        return [(found.id, str(found.input)) for found in await client.checkpoints.list(state="open")]

    yield from _completed(incomplete, listed)


def _completed(
    incomplete: str, listed: Callable[[Client], Awaitable[list[tuple[str, str]]]]
) -> Iterator[tuple[str, str]]:
    """Ids that begin like this, each with what it is about, without what a shell would evaluate."""
    import asyncio

    async def soon(client: Client) -> list[tuple[str, str]]:
        async with asyncio.timeout(COMPLETE_WITHIN):
            return await listed(client)

    try:
        found = call(soon, url=None)
    except (HandraiseError, OSError, TimeoutError):
        return
    for id, about in found:
        if id.startswith(incomplete) and _HARMLESS_ID.fullmatch(id):
            yield id, inert(_HARMFUL.sub(" ", about[:60]), keep="")


RunId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the run, or how it begins or ends.", autocompletion=complete_run)
]
CheckpointId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Id of the checkpoint, or how it begins or ends.", autocompletion=complete_checkpoint
    ),
]
SessionId = Annotated[
    str,
    typer.Argument(metavar="ID", help="Id of the session, or how it begins or ends.", autocompletion=complete_session),
]
AskId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the ask, or how it begins or ends.", autocompletion=complete_id)
]
