"""A channel for tests: a place that takes messages, does what the test says, and is known as an entry point."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from handraise.asks import Answer, Ask
from handraise.channels import BadCall, ChannelSettings, Postbox, Reach, SendFailed
from handraise.channels._posting import keep_posted
from handraise.errors import SettingsError

PAGERS: dict[str, Pager] = {}  # those of the desks in this process, by name
ANA = "+49 170 2"  # how a person is known there


class Pager:
    """`refuses` is why it takes no message, `hangs` that it never says; `problems` what it finds wrong with itself."""

    def __init__(self, settings: ChannelSettings) -> None:
        table = dict(settings.table)
        key_env = table.pop("key_env", None)
        if key_env is not None and not settings.environ.get(key_env):
            raise SettingsError(f"{key_env} is not in the environment of the desk")
        self.name = settings.name
        self.refuses: str | None = table.pop("refuses", None)
        self.problems: list[str] = table.pop("problems", [])
        self.reach = Reach(
            options=table.pop("options", 4), edits=True, needs_address=table.pop("needs_address", False), text=True
        )
        if table:
            raise SettingsError(f"[channels.{settings.name}] does not know {sorted(table)[0]!r}")
        self.hangs = False
        self.posted: asyncio.Queue[Ask] = asyncio.Queue()
        self.rewritten: asyncio.Queue[Ask] = asyncio.Queue()
        self._inbox: Postbox | None = None
        PAGERS[settings.name] = self

    async def run(self, inbox: Postbox) -> None:
        self._inbox = inbox
        await keep_posted(inbox, self, attempts=1)

    async def post(self, ask: Ask) -> str:
        if self.hangs:
            await asyncio.Event().wait()
        if self.refuses is not None:
            raise SendFailed(self.refuses)
        self.posted.put_nowait(ask)
        return f"message {ask.id}"

    async def rewrite(self, place: str, ask: Ask) -> None:
        self.rewritten.put_nowait(ask)

    async def answer(self, ask: Ask, value: str, *, by: str) -> None:
        assert self._inbox is not None
        await self._inbox.answer(ask.id, Answer(answers=((value,),), by=by))

    async def examine(self) -> list[str]:
        return self.problems


class RoomPager(Pager):
    """One that has to be told where."""

    async def place_for_test(self, where: str) -> str:
        if not where.startswith("ROOM-"):
            raise SettingsError(f"{where!r} is no room; say which one, as in ROOM-1")
        return f"pager:{where}"


class CalledPager(Pager):
    """One whose place calls the desk."""

    async def receive(self, body: bytes, headers: Mapping[str, str]) -> None:
        if headers.get("x-secret") != "right":
            raise BadCall("the signature is wrong")
        self.problems = [body.decode()]


def install(folder: Path) -> dict[str, str]:
    """Makes the channels known to whoever has the folder on the path; the environment of a process that is to."""
    about = folder / "pager-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pager\nVersion: 1\n")
    kinds = {"pager": "Pager", "rooms": "RoomPager", "called": "CalledPager"}
    lines = "".join(f"{kind} = tests.helpers.pager:{name}\n" for kind, name in kinds.items())
    (about / "entry_points.txt").write_text(f"[handraise.channels]\n{lines}")
    paths = [str(folder), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
