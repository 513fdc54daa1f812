"""One question in one channel, and how it comes back, for `handraise channels test`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Any

import typer

from handraise.asks import Answer, Ask
from handraise.cli.printing import ask_fields, command, duration, print_json, say
from handraise.client import Client
from handraise.errors import AlreadyAnswered, HandraiseError
from handraise.text.inert import inert
from handraise.wire.plain import to_plain

__all__ = ["ChannelTest"]

FAILED, WAITING, REJECTED = 1, 3, 4
UNTIL_SENT = 0.3  # seconds between two looks at whether it was sent
AFTERWARDS = 2.0  # seconds between two looks at whether it was seen
LEAVE_WITHIN = 5.0  # seconds to tell the desk that nobody waits any more
SHOWN = ("sent", "shown")


class ChannelTest:
    """Tells what becomes of the question while it goes on. It opens no stream: a test that looks like somebody at the
    desk would keep an alarm from going off."""

    def __init__(self, client: Client, name: str, *, as_json: bool) -> None:
        self._client = client
        self._name = name
        self._as_json = as_json
        self._showing: dict[str, Any] | None = None  # what the channel last said of it

    async def run(self, where: str, *, timeout: float) -> None:
        """Leaves with the exit code that says how it ended."""
        id = await self._client.channels.test(self._name, where=where)
        try:
            ask = await self._client.get(id)
            self._say(f"asked as {id}; waiting for {self._name} to send it")
            if (trouble := await self._trouble()) is not None:
                self._say(f"{self._name} is broken right now: {trouble}")
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    ask = await self._until_over(ask)
        except asyncio.CancelledError:
            await self._withdraw(id, reason="the test was interrupted")
            raise
        code = await self._end(ask, timeout=timeout)
        if self._as_json:
            ask = await self._client.get(id)
            print_json({"channel": self._name, "showing": self._showing, "ask": ask_fields(ask)})
        if code:
            raise typer.Exit(code)

    async def _until_over(self, ask: Ask) -> Ask:
        """The ask once it is settled or the channel could not show it."""
        while ask.state == "asked":
            await self._look(ask)
            if self._is("failed"):
                return ask
            ask = await self._client.wait(ask.id, timeout=AFTERWARDS if self._is(*SHOWN) else UNTIL_SENT)
        await self._look(ask)
        return ask

    async def _look(self, ask: Ask) -> None:
        """What the channel says of it; told where that is new."""
        listed = to_plain(await self._client.channels.showings(ask.id))
        showing = next((showing for showing in listed if showing["channel"] == self._name), None)
        before, self._showing = self._showing, showing
        if showing is not None and (before is None or before["state"] != showing["state"]) and self._is(*SHOWN):
            self._say(f"{showing['state']} after {_after(ask, datetime.fromisoformat(showing['at']))}")

    def _is(self, *states: str) -> bool:
        return self._showing is not None and self._showing["state"] in states

    async def _end(self, ask: Ask, *, timeout: float) -> int:
        """Say how it ended; the exit code."""
        if ask.state == "asked":
            await self._withdraw(ask.id, reason="the test is over")
            if self._is("failed"):
                self._complain(f"{self._name} could not send it: {self._failure()}")
                return FAILED
            if self._is(*SHOWN):
                self._complain(f"nobody answered within {timeout:g} s")
                return WAITING
            trouble = await self._trouble()
            self._complain(f"{self._name} did not send it within {timeout:g} s" + (f": {trouble}" if trouble else ""))
            return FAILED
        if ask.answer is None:
            self._complain(f"somebody withdrew it: {ask.withdrawn_reason or 'no reason was given'}")
            return FAILED
        return self._answered(ask, ask.answer)

    def _answered(self, ask: Ask, answer: Answer) -> int:
        after = "" if answer.at is None else f" after {_after(ask, answer.at)}"
        if answer.by_policy:
            self._complain(f"nobody answered, and policy did{after}: {answer.reason or ', '.join(answer.why)}")
            return FAILED
        who = f"by {answer.by or 'somebody'}" + (f" in {answer.via}" if answer.via else "")
        if answer.rejected:
            self._complain(f"rejected {who}{after}" + (f": {answer.reason}" if answer.reason else ""))
            return REJECTED
        self._say(f"answered {who}{after}: {', '.join(answer.values) or 'nothing'}")
        if not self._is(*SHOWN):
            self._complain(f"{self._name} had not sent it by then" + (f": {self._failure()}" if self._showing else ""))
            return FAILED
        if answer.via != self._name:
            say(f"handraise: that was not in {self._name}, so whether answers come back from there is still open")
        return 0

    def _failure(self) -> str:
        return str((self._showing or {}).get("error") or "it does not say why")

    async def _trouble(self) -> str | None:
        """Why the channel does not run, where it is so."""
        listed = to_plain(await self._client.channels.list())
        return next((told["trouble"] for told in listed if told["name"] == self._name), None)

    async def _withdraw(self, id: str, *, reason: str) -> None:
        try:
            async with asyncio.timeout(LEAVE_WITHIN):
                await self._client.withdraw(id, reason=reason)
        except AlreadyAnswered as faster:
            say(f"handraise: {faster}, just now")
        except (HandraiseError, TimeoutError):
            say(f"handraise: the desk could not be told, so it stays open there: {command('reject', id)}")

    def _say(self, line: str) -> None:
        if not self._as_json:
            print(inert(line, keep=""), flush=True)

    def _complain(self, line: str) -> None:
        say(f"handraise: {line}")


def _after(ask: Ask, time: datetime) -> str:
    """How long after the question, by the desk's clock."""
    seconds = 0.0 if ask.asked_at is None else max(0.0, (time - ask.asked_at).total_seconds())
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
