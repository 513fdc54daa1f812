"""`handraise store`: look after the database of a desk."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.calling import Json
from handraise.cli.commands import Command
from handraise.cli.printing import duration, print_json, say
from handraise.errors import SettingsError, StoreError, StoreInUse
from handraise.text.inert import inert

if TYPE_CHECKING:
    from handraise.stores import Store
    from handraise.stores._copy import Copied, Progress

__all__ = ["plugin"]

COPY = """\b
Examples:
  handraise store copy sqlite:///srv/desk/desk.db postgresql://desk@db.example.org/desk
  handraise store copy postgresql://desk@db.example.org/desk sqlite:///srv/desk/back.db

\b
Stop every desk of the source first. The target must be empty, and stays so on Ctrl+C or
when something fails on the way. At the end both are read again and compared. A password is
better left out of the command: PGPASSWORD and ~/.pgpass are read."""

BETWEEN = 0.1  # seconds between two looks at how far it is


store = typer.Typer(
    help="Copy a desk's database into another one.",
    epilog="\b\nExample:\n  handraise store copy sqlite:///srv/desk/desk.db postgresql://desk@db.example.org/desk",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@store.command(epilog=COPY)
def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Address of the database; it is only read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Address of an empty one, made if need be.")],
    as_json: Json = False,
) -> None:
    """Take everything a desk keeps over into an empty database, and compare both."""
    import asyncio

    from handraise.stores import without_password
    from handraise.stores._copy import counted

    began = time.monotonic()
    copied = asyncio.run(_copy(source, target))
    seconds = time.monotonic() - began
    if as_json:
        print_json(
            {
                "source": without_password(source),
                "target": without_password(target),
                "rows": copied.rows,
                "cursor": copied.cursor,
                "seconds": round(seconds, 3),
            }
        )
        return
    print(f"copied {counted(copied.rows)} in {_seconds(seconds)}; both databases hold the same", flush=True)
    shown = without_password(target)
    password = " (and its password)" if shown != target else ""
    say(f"start the desk on it{password}: HANDRAISE_DATABASE={shlex.quote(inert(shown, keep=''))} handraise serve")


async def _copy(source: str, target: str) -> Copied:
    import sqlite3

    from handraise.stores._copy import copy

    await _refuse(source, target)
    try:
        opened = await _open(source)
        try:
            into = await _open(target)
            try:
                with _Line() as line:
                    return await copy(opened, into, progress=line.show)
            finally:
                await into.close()
        finally:
            await opened.close()
    except sqlite3.Error as broken:
        raise StoreError(f"the source cannot be read: {broken}; restore it from a backup, then copy again") from None


async def _refuse(source: str, target: str) -> None:
    """What can be said before anything is opened, and so before anything is made or migrated."""
    from handraise.app import look_at

    ours, theirs = await look_at(source), await look_at(target)
    if ours.place == theirs.place:
        raise SettingsError(f"source and target are the same database, {ours.shown}; name an empty one to copy into")
    if ours.version is None:
        raise StoreError(f"there is no desk in {ours.shown}, so nothing can be copied; is the address right?")
    if ours.is_old:
        raise StoreError(
            f"{ours.shown} was written by an older handraise, and copying changes nothing in its source; back it up, "
            "start a desk of this version on it once, which brings it up to date, stop that desk, and copy again"
        )
    if theirs.is_old:
        raise StoreError(f"{theirs.shown} holds a desk of an older handraise; name a new file or schema to copy into")


async def _open(address: str) -> Store:
    from handraise.app import open_store

    try:
        return await open_store(address)
    except StoreInUse as held:
        raise StoreInUse(f"{str(held).partition(';')[0]}; stop that desk first, then copy again") from None


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


class _Line:
    """How far it is, in one line that is written over; only for a person at a terminal. Gone when it is left."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._width = 0
        self._last = 0.0

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._write("")
            self._write("")

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if not self._is_shown or now - self._last < BETWEEN:
            return
        self._last = now
        share = progress.done * 100 // max(1, progress.total)
        self._write(f"{progress.doing} {progress.table}: {share} %, {progress.done:,} of {progress.total:,} rows")

    def _write(self, text: str) -> None:
        with suppress(OSError):  # a terminal that was closed is no reason to stop
            print(f"\r{text.ljust(self._width)}", end="", file=sys.stderr, flush=True)
        self._width = len(text)


plugin = Command(store, group="desk")
