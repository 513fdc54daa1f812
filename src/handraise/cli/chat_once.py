"""A chat without a terminal: one message and the reply to it, as text or as JSON."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import typer

from handraise.channels.terminal import draw, wants_colour
from handraise.cli.calling import chat_path, person
from handraise.cli.chat_following import Conversation, Teller
from handraise.cli.following import Interrupts, first_of, stop
from handraise.cli.printing import command, print_json, say
from handraise.client import Client
from handraise.text.inert import inert
from handraise.text.words import speak

__all__ = ["talk_once"]

FAILED, WAITING, INTERRUPTED = 1, 3, 130

Tell: TypeAlias = Callable[[list[dict[str, Any]]], None]


async def talk_once(
    client: Client, told: dict[str, Any] | None, text: str | None, *, model: str, as_json: bool, page: str | None
) -> None:
    """Say something and print the reply; without a text, print what was said. `page` is a desk that stays.

    Leaves with 3 where a question waits, and with 1 where there is no whole reply.
    """
    first = ""  # the message from which on it is told
    whose = {"by": person(), "via": "cli"}
    if told is None:
        told = await client.call("POST", "/v1/chats", body={"model": model, "text": text, **whose}, once=True)
    elif text is not None:
        body = {"text": text, "nonce": secrets.token_hex(8), **whose}
        first = (await client.call("POST", chat_path(told["id"], "messages"), body=body))["id"]
        told = await client.call("GET", chat_path(told["id"]))
    assert told is not None
    async with Conversation(client, told) as chat:
        await _hear(client, chat, _as_json(chat.id, first) if as_json else _as_text(first))
        if chat.ask is not None:
            if not as_json:
                await _point_out(client, chat, page=page)
            raise typer.Exit(WAITING)
        if any(said["state"] in ("failed", "stopped") for said in chat.messages[-1:]):
            raise typer.Exit(FAILED)


async def _hear(client: Client, chat: Conversation, tell: Tell) -> None:
    """Until the reply is over. Ctrl+C stops it and ends the command."""
    tell(chat.messages)
    with Interrupts() as interrupts:
        while chat.state == "writing":
            pressed, news = interrupts.next(), asyncio.create_task(chat.news())
            await first_of(pressed, news)
            if pressed.done():
                await stop(news)
                await client.call("POST", chat_path(chat.id, "stop"), body={})
                raise typer.Exit(INTERRUPTED)
            news.result()
            tell(chat.messages)


def _as_json(chat: str, first: str) -> Tell:
    printed: set[str] = set()

    def tell(messages: list[dict[str, Any]]) -> None:
        for said in messages:
            if said["id"] >= first and said["state"] != "writing" and said["id"] not in printed:
                printed.add(said["id"])
                print_json({"chat": chat, **said})

    return tell


def _as_text(first: str) -> Tell:
    """What the model says goes to the output, everything else beside it. It is for programs, so it is in English."""

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    teller = Teller(t=speak("en"), write=write, beside=say, on_screen=sys.stdout.isatty())

    def tell(messages: list[dict[str, Any]]) -> None:
        teller.know(*(said["id"] for said in messages if said["role"] == "user" or said["id"] < first))
        teller.tell(messages)

    return tell


async def _point_out(client: Client, chat: Conversation, *, page: str | None) -> None:
    """The question that waits, where it is, and how it is answered from a shell."""
    assert chat.ask is not None
    ask = await client.get(chat.ask)
    print(draw(ask, colour=wants_colour()), flush=True)
    where = "" if page is None else f" · {page}/#/chats/{chat.id}"
    print(f"waiting: {inert(ask.id, keep='')}{where}", flush=True)
    options = ask.questions[0].options
    say(f"answer it: {command('chat', '--continue', chat.id, options[0].label if options else '…')}")
