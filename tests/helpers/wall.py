"""A place for notes that outlives the channels in front of it, a small channel that posts there, and its driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from handraise.asks import Answer, Ask
from handraise.channels import Inbox, Postbox, Reach, SendFailed
from handraise.channels._posting import keep_posted
from handraise.errors import AlreadyAnswered, AnswerDoesNotFit, AskWithdrawn, Forbidden
from handraise.testing import ChannelDriver

ANA = "ana@example.com"


@dataclass(kw_only=True)
class Note:
    ask: Ask
    ending: Ask | None = None  # as which it was crossed out
    under: list[str] = field(default_factory=list)  # what the channel wrote there since


class Wall:
    """Takes notes while `takes` is true; `replies` is what people write under them."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.takes = True
        self.tries = 0
        self.replies: asyncio.Queue[tuple[Ask, Answer]] = asyncio.Queue()
        self._changed = asyncio.Condition()

    async def put(self, ask: Ask) -> str:
        self.check()
        self.notes.append(Note(ask=ask))
        await self._tell()
        return str(len(self.notes) - 1)

    async def cross_out(self, place: str, ask: Ask) -> None:
        self.check()
        self.notes[int(place)].ending = ask
        await self._tell()

    async def write_under(self, ask: Ask, text: str) -> None:
        self.of(ask)[-1].under.append(text)
        await self._tell()

    def check(self) -> None:
        self.tries += 1
        if not self.takes:
            raise SendFailed("the wall is wet", again=0)

    def of(self, ask: Ask | str) -> list[Note]:
        id = ask if isinstance(ask, str) else ask.id
        return [note for note in self.notes if note.ask.id == id]

    def hangs(self, ask: Ask | str) -> bool:
        return any(note.ending is None for note in self.of(ask))

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until a look at the notes finds that it happened."""
        async with asyncio.timeout(5), self._changed:
            await self._changed.wait_for(happened)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class Notes:
    """The channel. It gives up after one try and tries again at once, so that no test waits for it."""

    def __init__(self, wall: Wall, *, name: str = "wall", reach: Reach | None = None, by: str = ANA) -> None:
        self.name = name
        self.reach = reach or Reach(text=True, edits=True, identity="strong")
        self.wall = wall
        self._by = by

    async def run(self, inbox: Postbox) -> None:
        await keep_posted(inbox, self, attempts=1, pause=0.001, calm=0.005, listen=self.listen)

    async def post(self, ask: Ask) -> str:
        return await self.wall.put(ask)

    async def rewrite(self, place: str, ask: Ask) -> None:
        await self.wall.cross_out(place, ask)

    async def listen(self, inbox: Inbox) -> None:
        while True:
            ask, said = await self.wall.replies.get()
            try:
                with suppress(AlreadyAnswered, AskWithdrawn):
                    await inbox.answer(ask.id, replace(said, by=self._by, via=self.name))
            except (AnswerDoesNotFit, Forbidden) as problem:
                await self.wall.write_under(ask, str(problem))


class WallDriver(ChannelDriver):
    cannot: Mapping[str, str] = {}

    def __init__(self, kind: type[Notes] = Notes) -> None:
        self.wall = Wall()
        self.channel = kind(self.wall)
        self._kind = kind
        self._said: list[tuple[Ask, Answer]] = []

    async def shown(self, ask: Ask) -> None:
        await self.wall.until(lambda: self.wall.hangs(ask))

    async def settled(self, ask: Ask) -> None:
        await self.wall.until(lambda: bool(self.wall.of(ask)) and not self.wall.hangs(ask))

    async def answer(self, ask: Ask, answer: Answer) -> None:
        self._said.append((ask, answer))
        self.wall.replies.put_nowait((ask, answer))

    async def deliver_again(self) -> None:
        self.wall.replies.put_nowait(self._said[-1])

    async def told(self, ask: Ask) -> None:
        await self.wall.until(lambda: any(note.under for note in self.wall.of(ask)))

    def restart(self) -> None:
        self.channel = self._kind(self.wall)

    def times_shown(self, ask: Ask) -> int:
        return len(self.wall.of(ask))

    def break_sending(self) -> None:
        self.wall.takes = False

    def mend(self) -> None:
        self.wall.takes = True
