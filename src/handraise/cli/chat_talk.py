"""A chat on a terminal: a person types, the reply grows, and what it asks is answered as every ask is."""

from __future__ import annotations

import asyncio
import math
import secrets
import sys
from contextlib import suppress
from typing import Any

import typer

from handraise.channels.terminal import Terminal
from handraise.channels.terminal.endings import Left
from handraise.channels.terminal.keyboard import Changed
from handraise.cli.calling import chat_path, person, terminal_words
from handraise.cli.chat_following import Conversation, Teller, header_of, text_of
from handraise.cli.chat_prompt import ChatKeyboard
from handraise.cli.following import Interrupts, first_of, stop
from handraise.cli.narrowed import Narrowed
from handraise.cli.printing import command, say
from handraise.client import Client
from handraise.errors import ChatNotFound, DeskUnreachable, HandraiseError, Refused
from handraise.text.inert import inert

__all__ = ["Talk"]

FAILED, WAITING = 1, 3
TWICE = 2.0  # seconds in which a second Ctrl+C leaves
AGAIN = 0.05  # seconds between two tries to close a prompt
MOST_RECALLED = 4  # messages that are shown when a chat goes on


class Talk:
    """One sitting at a chat. `model` is what a new one is with."""

    def __init__(self, client: Client, *, model: str, full: bool) -> None:
        self._client = client
        self._model = model
        self._full = full
        self._t = terminal_words()
        self._keyboard = ChatKeyboard()
        self._teller = Teller(t=self._t, write=_write, beside=None, on_screen=True)
        self._interrupts = Interrupts()
        self._draft = ""
        self._kept: str | None = None  # the ask that the person did not want to answer on its card
        self._interrupted_at = -math.inf

    async def run(self, told: dict[str, Any] | None, *, text: str | None = None) -> None:
        """Go on with a chat, or begin one. With a text, say that and return when there is nothing to wait for; leaves
        with 3 where its question was left open, and with 1 where there is no whole reply.
        """
        is_once = text is not None
        with self._interrupts:
            if not is_once:
                _print(self._t("terminal.chat.keys", model=inert(self._model, keep="")))
            try:
                if told is None:
                    told, text = await self._begin(text), None
            except EOFError:
                return
            async with Conversation(self._client, told) as chat:
                with suppress(EOFError):
                    await self._talk(chat, text, is_once=is_once)
                self._teller.end()
                say(self._t("terminal.chat.back", command=command("chat", "--continue", chat.id)))
                if is_once and chat.ask is not None:
                    raise typer.Exit(WAITING)
                if is_once and chat.messages[-1]["state"] != "done":
                    raise typer.Exit(FAILED)

    async def _begin(self, text: str | None) -> dict[str, Any]:
        """The chat, with what it begins with. Raises EOFError where the person leaves instead."""
        while True:
            said = text if text is not None else await self._typed(None)
            if said is None or not said.strip():
                continue
            body = {"model": self._model, "text": said, "by": person(), "via": "terminal"}
            try:
                told: dict[str, Any] = await self._client.call("POST", "/v1/chats", body=body, once=True)
            except HandraiseError as failure:
                if text is not None or isinstance(failure, DeskUnreachable | Refused):
                    raise
                self._refuse(said, failure)
                continue
            self._teller.know(told["messages"][0]["id"])
            return told

    async def _talk(self, chat: Conversation, text: str | None, *, is_once: bool) -> None:
        self._keyboard.remember([text_of(said) for said in chat.messages if said["role"] == "user"])
        if text is not None:
            self._teller.know(*(said["id"] for said in chat.messages))
            await self._send(chat, text, keeps=False)
        elif not is_once:
            self._teller.recall(chat.messages, most=MOST_RECALLED)
        while True:
            self._teller.tell(chat.messages)
            if chat.state == "writing":
                await self._hear(chat)
            elif chat.ask is not None and chat.ask != self._kept:
                await self._answer(chat)
            elif is_once:
                return
            else:
                said = await self._typed(chat)
                if said is not None and said.strip():
                    await self._send(chat, said)
                elif said is not None:
                    self._kept = None  # the question again, where one waits

    # What the person says -----------------------------------------------------------------------------------

    async def _typed(self, chat: Conversation | None) -> str | None:
        """A message; None where something else has to be told first. Raises EOFError where the person leaves."""
        self._teller.end()
        _print("")
        if chat is not None and chat.question is not None:
            header = inert(header_of(chat.question), keep="")
            _print(f"{self._t('chat.willAnswer', header=header)} {self._t('terminal.chat.card')}")
        draft, self._draft = self._draft, ""
        typing = asyncio.create_task(self._keyboard.message(draft=draft))
        try:
            if chat is not None:
                await self._until_news(chat, typing)
            return await typing
        except Changed:
            self._draft = self._keyboard.typed
        except Left:
            self._interrupt()
        finally:
            await self._close(typing)
            self._interrupts.listen()  # the prompt took our handler along when it ended
        return None

    async def _close(self, typing: asyncio.Task[str]) -> None:
        """Close the prompt. One that has not begun yet cannot be closed, so that is tried until it is."""
        while not typing.done():
            self._keyboard.interrupt()
            await asyncio.wait([typing], timeout=AGAIN)
        if not typing.cancelled():
            typing.exception()

    async def _until_news(self, chat: Conversation, typing: asyncio.Task[str]) -> None:
        """Return when something was typed, or the prompt was closed since something happened that is to be told."""
        ask = chat.ask
        while True:
            news = asyncio.create_task(chat.news())
            await first_of(typing, news)
            if typing.done():
                await stop(news)
                return
            news.result()
            if chat.state == "writing" or chat.ask != ask or self._teller.is_behind(chat.messages):
                await self._close(typing)
                return

    def _interrupt(self) -> None:
        """Ctrl+C: it drops what was typed, and twice it leaves."""
        now = asyncio.get_running_loop().time()
        if now - self._interrupted_at < TWICE:
            raise EOFError
        self._interrupted_at = now
        _print(self._t("terminal.chat.twice"))

    async def _send(self, chat: Conversation, text: str, *, keeps: bool = True) -> None:
        """Say it. What the desk does not take is kept at the prompt, if there will be one."""
        body = {"text": text, "nonce": secrets.token_hex(8), "by": person(), "via": "terminal"}
        try:
            said = await self._client.call("POST", chat_path(chat.id, "messages"), body=body)
        except HandraiseError as failure:
            if not keeps or isinstance(failure, ChatNotFound | Refused):
                raise
            self._refuse(text, failure)
        else:
            self._teller.know(said["id"])
        await chat.look()

    def _refuse(self, text: str, failure: HandraiseError) -> None:
        """The desk did not take it; it is kept at the prompt."""
        self._draft = text
        say(f"handraise: {failure}")

    # What the model says ------------------------------------------------------------------------------------

    async def _hear(self, chat: Conversation) -> None:
        """Until the reply is over. Ctrl+C stops it, a second one leaves."""
        is_stopped = False
        with self._keyboard.watching(self._interrupts.press):
            while chat.state == "writing":
                pressed, news = self._interrupts.next(), asyncio.create_task(chat.news())
                await first_of(pressed, news)
                if not pressed.done():
                    news.result()
                    self._teller.tell(chat.messages)
                    continue
                await stop(news)
                if is_stopped:
                    raise EOFError
                is_stopped = True
                await self._client.call("POST", chat_path(chat.id, "stop"), body={})
                await chat.look()

    async def _answer(self, chat: Conversation) -> None:
        """What it asks, on the card that every ask has."""
        ask = chat.ask
        self._teller.end()
        _write("\a")
        terminal = Terminal(by=person(), full=self._full, greets=False, stays=False, words=self._t, out=_print)
        await terminal.run(Narrowed(self._client, session=chat.id))
        self._interrupts.listen()
        if terminal.has_quit:
            raise EOFError
        await chat.look()
        if chat.ask == ask:
            self._kept = ask
            self._interrupted_at = asyncio.get_running_loop().time()


def _print(text: str) -> None:
    print(text, flush=True)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
