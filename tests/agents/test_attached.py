"""How what agents in terminals asked is taken back, and how the calls that bring it are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from handraise.agents._attached import retire, take_back, withdraw
from handraise.asks import Answer, Ask, Handling
from handraise.broker import Broker
from handraise.errors import AskDoesNotFit, DeskUnreachable, Overloaded, StoreFailed
from handraise.testing import an_ask
from handraise.transports.bodies import MOST_BYTES, Gone, TooLarge, hung_up, read_body, until_gone
from tests.helpers.serving import PATIENCE

GONE, LATE = "the terminal is gone", "somebody was faster"
Taking = Callable[..., Any]


class Troubled:
    """A broker that raises what it is given before it withdraws, and notes what it is told of deliveries."""

    def __init__(self, broker: Broker, *troubles: Exception) -> None:
        self.broker = broker
        self.troubles = list(troubles)
        self.tried = asyncio.Event()
        self.told: dict[str, str | None] = {}

    async def ask(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Answer:
        raise NotImplementedError

    async def withdraw(self, id: str, *, reason: str | None = None, answer: Answer | None = None) -> Ask:
        self.tried.set()
        if self.troubles:
            raise self.troubles.pop(0)
        return await self.broker.withdraw(id, reason=reason, answer=answer)

    def delivered(self, id: str, *, error: str | None = None) -> None:
        self.told[id] = error


async def state_of(broker: Broker, id: str) -> tuple[str, str | None]:
    ask = await broker.get(id)
    return ask.state, ask.withdrawn_reason


# Taking back ----------------------------------------------------------------------------------------------------------


async def test_an_ask_that_is_only_just_being_raised_is_taken_back(broker: Broker) -> None:
    desk = Troubled(broker)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        taking = tasks.create_task(take_back(desk, "a", reason=GONE, too_late=LATE))
        await desk.tried.wait()
        await broker.open(an_ask(id="a"))
        await taking
    assert await state_of(broker, "a") == ("withdrawn", GONE)
    assert desk.told == {}


@pytest.mark.parametrize("taking", [take_back, withdraw])
async def test_whoever_answered_first_is_told_that_it_was_too_late(taking: Taking, broker: Broker) -> None:
    await broker.open(an_ask(id="a"))
    await broker.answer("a", Answer(answers=(("SQLite",),)))
    desk = Troubled(broker)
    await taking(desk, "a", reason=GONE, too_late=LATE)
    assert desk.told == {"a": LATE}


@pytest.mark.parametrize("taking", [take_back, withdraw])
async def test_what_cannot_be_withdrawn_is_said_once(
    taking: Taking, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.open(an_ask(id="a"))
    await taking(Troubled(broker, AskDoesNotFit("no")), "a", reason=GONE, too_late=LATE)
    assert [record.message for record in caplog.records] == ["ask a cannot be withdrawn: ask_does_not_fit"]
    assert await state_of(broker, "a") == ("asked", None)


async def test_a_desk_that_is_away_for_a_while_hears_of_it(broker: Broker) -> None:
    await broker.open(an_ask(id="a"))
    passing = (Overloaded("stopping"), StoreFailed("locked"), DeskUnreachable("nobody there"))
    async with asyncio.timeout(PATIENCE):
        await withdraw(Troubled(broker, *passing), "a", reason=GONE, too_late=LATE)
    assert await state_of(broker, "a") == ("withdrawn", GONE)


async def test_what_was_never_asked_at_a_desk_elsewhere_is_not_looked_for(broker: Broker) -> None:
    desk = Troubled(broker)
    await withdraw(desk, "a", reason=GONE, too_late=LATE)
    assert desk.told == {}


async def test_what_nobody_holds_any_more_is_withdrawn_after_a_restart(broker: Broker) -> None:
    for id in ("t:1", "t:2", "other"):
        await broker.open(an_ask(id=id, agent="claude"))
    await broker.open(an_ask(id="t:3", agent="codex"))
    await retire(broker, agent="claude", prefix="t:", reason=GONE, is_held=lambda id: id == "t:2")
    asked = {ask.id async for ask in broker.asks(state="asked")}
    assert asked == {"t:2", "t:3", "other"}
    assert await state_of(broker, "t:1") == ("withdrawn", GONE)


# Calls over HTTP ------------------------------------------------------------------------------------------------------


def a_call(*messages: dict[str, Any]) -> Callable[[], Any]:
    told = iter(messages)

    async def receive() -> dict[str, Any]:
        message = next(told, None)
        if message is None:
            await asyncio.Event().wait()
        assert message is not None
        return message

    return receive


def a_part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


LEFT = {"type": "http.disconnect"}
SCOPE: dict[str, Any] = {"type": "http", "headers": []}


async def test_a_body_is_read_to_its_end() -> None:
    assert await read_body(SCOPE, a_call(a_part(b"a", more=True), a_part(b"b"), a_part(b"c"))) == b"ab"
    assert len(await read_body(SCOPE, a_call(a_part(b"x" * MOST_BYTES)))) == MOST_BYTES


async def test_a_body_beyond_the_limit_is_refused_before_it_is_read_if_it_says_so() -> None:
    says_so = {"type": "http", "headers": [(b"content-length", b"%d" % (MOST_BYTES + 1))]}
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(TooLarge, match="larger than 4 MiB"):
            await read_body(says_so, a_call())
        with pytest.raises(TooLarge):
            await read_body(SCOPE, a_call(a_part(b"x" * MOST_BYTES, more=True), a_part(b"x", more=True)))


async def test_a_caller_that_leaves_is_noticed() -> None:
    with pytest.raises(Gone):
        await read_body(SCOPE, a_call(a_part(b"a", more=True), LEFT))
    async with asyncio.timeout(PATIENCE):
        await until_gone(a_call(a_part(b""), LEFT))
    assert hung_up(a_call(LEFT))
    assert not hung_up(a_call())
