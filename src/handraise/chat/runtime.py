"""Who writes when: claims the replies that are wanted, writes them, and pauses a chat at its question.

A question is an ask at the desk. The block that shows it changes in the commit that opens or closes the ask, whoever
answers it and wherever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from handraise.asks import Answer, Ask, Handling
from handraise.asks.places import on_this_machine
from handraise.broker import Broker
from handraise.chat import ChatSettings
from handraise.chat.contract import AGENT, cut_off, error_block, inserted_text, question_block, question_of, to_ask
from handraise.chat.transcript import ChatRecord, Said, Transcript, title_of
from handraise.chat.writing import Asked, Draft, ModelFailed, Writer
from handraise.errors import AlreadyAnswered, AskWithdrawn, ChatBusy, HandraiseError, SettingsError
from handraise.stores import NO_EXTRA_WRITES, AlsoWrite
from handraise.tasks import Tasks, running

__all__ = ["Chats", "Piece"]

log = logging.getLogger(__name__)

LEASE = 20_000  # milliseconds after which a reply that nobody goes on with is given up
SAVE_EVERY = 1.0  # seconds, so that this much of a reply is lost at most
END_WITHIN = 10.0  # seconds that the ends of replies have to be written when the desk closes
LOOK_EVERY = 10.0  # seconds between two looks for replies that were given up, where several desks share a database
ENDED = "The desk ended while this was written."


class Piece(NamedTuple):
    """Text that a reply grew by."""

    chat: str
    message: str
    block: int
    offset: int  # in UTF-16 code units: where it goes
    text: str


class Chats:
    """Use as an async context manager. `is_alone` says that no other desk has this database.

    Leaving it ends the replies that are being written; they can be tried again.
    """

    def __init__(self, broker: Broker, settings: ChatSettings, *, is_alone: bool) -> None:
        self.settings = settings
        self.transcript = Transcript(broker.store)
        self._broker = broker
        self._is_alone = is_alone
        self._writer = Writer(settings)
        self._writing: dict[str, asyncio.Task[None]] = {}  # by the reply
        self._drafts: dict[str, Draft] = {}
        self._stopped: set[str] = set()
        self._listeners: list[Callable[[Piece], None]] = []
        self._wake = asyncio.Event()
        self._tasks = Tasks()
        self._endings = Tasks(complaint="the end of a reply could not be written")
        self._hush: Callable[[], None] = lambda: None

    async def __aenter__(self) -> Self:
        await self._writer.__aenter__()
        self._broker.commit_hooks[AGENT] = self
        self._broker.forgetting.append(self.transcript.forget)
        self._hush = self.transcript.hear(self._wake.set)
        self._wake.set()
        self._tasks.start(self._serve())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hush()
        await self._tasks.close()
        await self._endings.close(within=END_WITHIN)
        del self._broker.commit_hooks[AGENT]
        self._broker.forgetting.remove(self.transcript.forget)
        await self._writer.__aexit__(kind, value, trace)

    def hear(self, listener: Callable[[Piece], None]) -> Callable[[], None]:
        """Hear the pieces of replies that are written here, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def messages(self, chat: str, *, since: int = -1) -> AsyncIterator[Said]:
        """The messages of a chat that changed after a version, with what is being written here as it is now. They are
        read page by page, however many there are."""
        after = ""
        while page := await self.transcript.page(chat, since=since, after=after):
            after = page[-1].id
            while page:
                yield self._as_it_is(page.pop(0))

    def _as_it_is(self, said: Said) -> Said:
        """One that was written has its end in the transcript, and the draft may be there for a moment longer."""
        draft = self._drafts.get(said.id) if said.state == "writing" else None
        return said if draft is None else replace(said, blocks=draft.blocks)

    # What people do -----------------------------------------------------------------------------------------

    async def create(self, *, model: str | None = None, title: str = "") -> ChatRecord:
        """Raises SettingsError where there is no such model."""
        chosen = model or self.settings.default
        if chosen is None:
            raise SettingsError(
                'no model is configured; name one in your config.toml, as in [models.local] api = "openai" '
                'model = "NAME" url = "http://127.0.0.1:11434/v1", then start the desk again'
            )
        if chosen not in self.settings.models:
            raise SettingsError(f"there is no model {chosen!r}; there are: {', '.join(self.settings.models) or 'none'}")
        return await self.transcript.create(title=title_of(title), model=chosen, at=self._broker.clock.now())

    async def say(
        self, chat: str, text: str, *, nonce: str | None = None, by: str = "", via: str = "", source: str | None = None
    ) -> Said:
        """A person's message. It answers the question that waits, if one does; else a reply to it is written.

        The same `nonce` again is the same message. Raises ChatBusy while a reply is written.
        """
        if nonce is not None and (known := await self.transcript.known(chat, nonce)) is not None:
            return known
        record = await self.transcript.get(chat)
        now = self._broker.clock.now()
        asked = None if record.ask is None else await self._asked_in(record.ask)
        id: str | None
        if asked is not None:
            answer = Answer(answers=((text,),), by=by, via=via)
            also_write, id = self.transcript.answering(asked, text, at=now, by_hand=True, nonce=nonce)
            # Somebody who was faster is not overruled: the message finds a chat in which a reply is written.
            with suppress(AlreadyAnswered, AskWithdrawn):
                await self._broker.answer_stored(
                    _ask_of(asked), answer, allow_repeat=False, source=source, also_write=also_write
                )
        else:
            id = await self.transcript.say(chat, text, nonce=nonce, at=now)
            if id is not None and not record.title:
                await self.transcript.rename(chat, title=title_of(text))
        said = None if id is None else await self.transcript.message(id)
        if said is None:
            raise _busy(chat)
        return said

    async def stop(self, chat: str) -> None:
        await self.transcript.get(chat)
        await self.transcript.stop(chat)

    async def retry(self, chat: str) -> None:
        """Write the last reply anew. Raises ChatBusy while one is written, or a question of it waits or was settled."""
        await self.transcript.get(chat)
        last = await self.transcript.last(chat)
        if last is not None and question_of(last.blocks) is not None:
            raise _busy(chat, why="its last reply asked a question, which stays; write a message instead")
        if last is None:
            raise _busy(chat, why="nothing was said in it yet")
        if not await self.transcript.again(chat, at=self._broker.clock.now()):
            raise _busy(chat)

    async def rename(self, chat: str, *, title: str) -> None:
        await self.transcript.get(chat)
        await self.transcript.rename(chat, title=title_of(title))

    async def delete(self, chat: str) -> None:
        """With all that was said in it. What it asks is withdrawn."""
        record = await self.transcript.get(chat)
        await self.transcript.stop(chat)
        if record.ask is not None:
            try:
                await self._broker.withdraw(record.ask, reason="the chat was deleted")
            except HandraiseError as over:
                log.info("the question of chat %s was settled before it was deleted: %s", chat, over.code)
        await self.transcript.delete(chat)

    # The commit hook of asks ----------------------------------------------------------------------------------

    async def closing(self, ask: Ask, answer: Answer | None, *, at: int) -> AlsoWrite:
        asked = await self._asked_in(ask.id)
        if asked is None:
            return NO_EXTRA_WRITES
        text = None if answer is None or answer.rejected else inserted_text(ask, answer)
        also_write, _ = self.transcript.answering(asked, text, at=at)
        return also_write

    async def _asked_in(self, ask: str) -> Said | None:
        """The message that asked, if that is one of ours."""
        said = await self.transcript.message(ask.rpartition(":")[2])
        return said if said is not None and _ask_of(said) == ask and question_of(said.blocks) is not None else None

    # Writing --------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            try:
                await self._look()
            except HandraiseError as failure:
                log.error("chats could not be looked through, trying again: %s", failure)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._wake.wait()
            self._wake.clear()

    async def _look(self) -> None:
        busy = await self.transcript.busy()
        given_up = await self.transcript.given_up() if busy and not self._is_alone else set()
        for chat in busy:
            try:
                await self._look_after(chat, is_given_up=self._is_alone or chat.id in given_up)
            except Exception:  # one that cannot be read hurts nobody but itself
                log.exception("chat %s could not be looked after, trying again", chat.id)

    async def _look_after(self, chat: ChatRecord, *, is_given_up: bool) -> None:
        task = self._writing.get(chat.writer or "")
        if chat.state == "queued":
            said = await self.transcript.claim(chat.id, lease=LEASE, at=self._broker.clock.now())
            if said is not None:
                task = self._writing[said.id] = self._tasks.start(self._write(chat, said))
                task.add_done_callback(partial(self._written, said.id))
        elif task is not None:
            if chat.state == "stopping" and chat.writer is not None:
                self._stopped.add(chat.writer)
                task.cancel()
        elif is_given_up:
            await self._give_up(chat)

    async def _give_up(self, chat: ChatRecord) -> None:
        """Whoever wrote it is gone."""
        said = await self.transcript.message(chat.writer or "")
        if said is not None:
            blocks = [*cut_off(said.blocks), error_block(ENDED)]
            await self.transcript.finish(replace(said, state="failed", blocks=blocks), at=self._broker.clock.now())

    async def _write(self, chat: ChatRecord, said: Said) -> None:
        draft = Draft(grown=lambda place, offset, text: self._tell(Piece(said.chat, said.id, place, offset, text)))
        self._drafts[said.id] = draft
        state, asked = "done", None
        try:
            async with running(self._save(said, draft)):
                told = await self.transcript.messages(chat.id)
                before = [each for each in told if _counts(each) and each.id < said.id]
                asked = await self._writer.reply(chat.model, before, draft)
        except asyncio.CancelledError:
            state = "stopped"
            if said.id not in self._stopped:
                draft.refuse(ENDED)
                state = "failed"
        except ModelFailed as failure:
            state = "failed"
            draft.refuse(failure.message)
        except Exception as broken:
            log.exception("a reply in chat %s broke", chat.id)
            state = "failed"
            draft.refuse(f"this reply broke off: {type(broken).__name__}; the desk's log says more")
        await asyncio.shield(self._endings.start(self._end(said, draft, asked, state=state)))

    async def _end(self, said: Said, draft: Draft, asked: Asked | None, *, state: str) -> None:
        try:
            if asked is not None:
                await self._ask(said, draft, asked)
            else:
                written = replace(said, state=state, blocks=cut_off(draft.blocks), raw=draft.raw())
                await self.transcript.finish(written, at=self._broker.clock.now())
        except HandraiseError as failure:
            log.error("the end of a reply in chat %s could not be written: %s", said.chat, failure)

    def _written(self, reply: str, _: asyncio.Task[None]) -> None:
        del self._writing[reply]
        self._drafts.pop(reply, None)
        self._stopped.discard(reply)
        self._wake.set()

    async def _ask(self, said: Said, draft: Draft, asked: Asked) -> None:
        """Pause at a question: the block and the ask are written together."""
        ask = to_ask(asked.call, id=_ask_of(said), chat=said.chat)
        draft.add(question_block(asked.call, ask=ask.id, tool_call=asked.tool_call))
        written = replace(said, state="done", blocks=draft.blocks, raw=draft.raw())
        also_write = self.transcript.asking(written, ask=ask.id, at=self._broker.clock.now())
        await self._broker.open(on_this_machine(ask), handling=Handling(), also_write=also_write)
        if (await self.transcript.get(said.chat)).ask != ask.id:  # given up by another desk meanwhile
            await self._broker.withdraw(ask.id, reason="the chat has moved on")

    async def _save(self, said: Said, draft: Draft) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY)
            try:
                await self.transcript.write_on(replace(said, blocks=draft.blocks), lease=LEASE)
            except HandraiseError as failure:
                log.error("a reply in chat %s could not be saved, trying again: %s", said.chat, failure)

    def _tell(self, piece: Piece) -> None:
        for listener in tuple(self._listeners):
            listener(piece)


def _ask_of(said: Said) -> str:
    """The id of what a reply asks: a reply asks once."""
    return f"{said.chat}:{said.id}"


def _busy(chat: str, *, why: str = "a reply is being written; wait for it, or stop it") -> ChatBusy:
    return ChatBusy(f"chat {chat!r} takes nothing now: {why}", id=chat)


def _counts(said: Said) -> bool:
    return said.state != "replaced"
