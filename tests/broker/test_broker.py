"""The broker: the life of an ask from raising a hand to taking the answer, its races, its deadlines, its events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from handraise.asks import Answer, Ask, AutoRule, Handling, Question
from handraise.broker import Broker
from handraise.broker.feed import MOST_WAITING
from handraise.errors import (
    AlreadyAnswered,
    AnswerDoesNotFit,
    AskDiffers,
    AskDoesNotFit,
    AskNotFound,
    AskWithdrawn,
    Withdrawn,
)
from handraise.events import Event
from handraise.stores import Store
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing import FakeClock, a_permission, an_ask
from handraise.wire import content_text, parse_ask_body

SQLITE = Answer(answers=(("SQLite",),), by="ana", via="cli")
POSTGRES = Answer(answers=(("Postgres",),), by="bob", via="web")
MINUTE = Handling(question_timeout=60)


@pytest.fixture
async def desk(store: Store, fake_clock: FakeClock) -> AsyncIterator[Broker]:
    """A desk on each kind of store."""
    async with Broker(store, clock=fake_clock) as broker:
        yield broker


async def within(awaited: Any) -> Any:
    async with asyncio.timeout(5):
        return await awaited


async def events_of(broker: Broker, number: int, **query: Any) -> list[Event]:
    """The first so many events; waits for them."""
    events: list[Event] = []
    async with asyncio.timeout(5):
        async for event in broker.events(**{"after": 0, **query}):
            events.append(event)
            if len(events) == number:
                return events
    raise AssertionError("the desk closed")


async def types_of(broker: Broker, number: int) -> list[str]:
    return [event.type for event in await events_of(broker, number)]


@asynccontextmanager
async def asking(broker: Broker, ask: Ask, **options: Any) -> AsyncIterator[asyncio.Task[Answer]]:
    """Somebody who asks and waits. The ask is open when this is entered."""
    await broker.open(ask, **options)
    waiting = asyncio.create_task(broker.ask(ask, **options))
    await asyncio.sleep(0)
    try:
        yield waiting
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


# One life cycle (M4) ----------------------------------------------------------------------------------------


async def test_M4_an_answer_reaches_whoever_asked(desk: Broker) -> None:
    async with asking(desk, an_ask()) as waiting:
        told = await desk.answer("ask-1", SQLITE)
        answer = await within(waiting)
    assert (told.state, told.answer) == ("answered", answer)
    assert (answer.value, answer.by, answer.via) == ("SQLite", "ana", "cli")
    assert answer.at is not None
    assert await types_of(desk, 2) == ["asked", "answered"]


async def test_M4_a_rejection_is_an_answer_too(desk: Broker) -> None:
    async with asking(desk, an_ask()) as waiting:
        told = await desk.reject("ask-1", reason="let us talk", by="ana")
        answer = await within(waiting)
    assert told.state == "rejected"
    assert (answer.rejected, answer.reason, answer.by) == (True, "let us talk", "ana")


async def test_M4_asking_again_joins_an_open_ask_and_both_get_the_answer(desk: Broker) -> None:
    async with asking(desk, an_ask()) as first, asking(desk, an_ask()) as second:
        await desk.answer("ask-1", SQLITE)
        assert await within(first) == await within(second)
    assert [ask.id async for ask in desk.asks()] == ["ask-1"]


async def test_M4_asking_again_after_the_answer_gives_it_at_once(desk: Broker) -> None:
    await desk.open(an_ask())
    await desk.answer("ask-1", SQLITE)
    assert (await within(desk.ask(an_ask()))).value == "SQLite"
    assert await types_of(desk, 2) == ["asked", "answered"]


async def test_M4_asking_again_after_a_withdrawal_opens_it_again(desk: Broker) -> None:
    await desk.open(an_ask())
    await desk.withdraw("ask-1", reason="aborted")
    assert (await desk.open(an_ask())).how == "reopened"
    ask = await desk.get("ask-1")
    assert (ask.state, ask.withdrawn_reason) == ("asked", None)
    assert (await desk.answer("ask-1", SQLITE)).state == "answered"


async def test_M4_whoever_waits_is_told_of_a_withdrawal(desk: Broker) -> None:
    async with asking(desk, an_ask()) as waiting:
        await desk.withdraw("ask-1", reason="aborted")
        with pytest.raises(Withdrawn, match="aborted"):
            await within(waiting)


async def test_M4_answering_a_withdrawn_ask_says_so(desk: Broker) -> None:
    await desk.open(an_ask())
    await desk.withdraw("ask-1", reason="aborted")
    with pytest.raises(AskWithdrawn, match="aborted"):
        await desk.answer("ask-1", SQLITE)
    assert (await desk.withdraw("ask-1")).withdrawn_reason == "aborted"


async def test_what_was_answered_in_the_agents_own_terminal_is_told_as_its_answer(desk: Broker) -> None:
    async with asking(desk, an_ask()) as waiting:
        said = Answer(answers=(("Postgres",),), by="ana", via="opencode")
        ask = await desk.withdraw("ask-1", answer=said)
        answer = await within(waiting)
    assert (ask.state, answer.value) == ("answered", "Postgres")
    assert (answer.by, answer.via) == ("agent", "opencode"), "nobody chooses in whose name"
    assert await types_of(desk, 3) == ["asked", "answered", "delivered"]
    assert (await desk.get("ask-1")).delivered_at is not None


async def test_what_was_rejected_in_the_agents_own_terminal_is_told_as_rejected(desk: Broker) -> None:
    await desk.open(an_ask())
    ask = await desk.withdraw("ask-1", answer=Answer(rejected=True, reason="not now"))
    assert ask.answer is not None
    assert (ask.state, ask.answer.by, ask.answer.reason) == ("rejected", "agent", "not now")
    await desk.open(a_permission())
    ask = await desk.withdraw("permission-1", answer=Answer(reply="reject"))
    assert ask.state == "rejected"


async def test_a_local_answer_that_does_not_fit_is_a_withdrawal(desk: Broker) -> None:
    await desk.open(an_ask())
    ask = await desk.withdraw("ask-1", reason="moved on", answer=Answer(answers=(("SQLite",), ("Postgres",))))
    assert (ask.state, ask.answer, ask.withdrawn_reason) == ("withdrawn", None, "moved on")


async def test_a_local_answer_comes_too_late_where_somebody_was_faster(desk: Broker) -> None:
    await desk.open(an_ask())
    await desk.answer("ask-1", SQLITE)
    with pytest.raises(AlreadyAnswered, match="by ana in cli"):
        await desk.withdraw("ask-1", answer=Answer(answers=(("Postgres",),)))
    with pytest.raises(AlreadyAnswered, match="by ana in cli"):
        await desk.withdraw("ask-1", answer=Answer(answers=(("neither", "nor"),)))
    ask = await desk.get("ask-1")
    assert ask.answer is not None and ask.answer.value == "SQLite"
    await desk.open(an_ask(id="ask-2"))
    await desk.withdraw("ask-2", reason="aborted")
    assert (await desk.withdraw("ask-2", answer=SQLITE)).state == "withdrawn"


async def test_a_local_answer_finds_the_newest_ask_of_an_id_with_an_ordinal(desk: Broker) -> None:
    await desk.open(a_permission(), ordinal=True)
    ask = await desk.withdraw("permission-1", answer=Answer(reply="once"))
    assert (ask.id, ask.state) == ("permission-1#1", "answered")


async def test_M4_withdrawing_an_answered_ask_is_a_conflict(desk: Broker) -> None:
    await desk.open(an_ask())
    await desk.answer("ask-1", SQLITE)
    with pytest.raises(AlreadyAnswered, match="by ana"):
        await desk.withdraw("ask-1")


async def test_M4_the_same_answer_again_is_fine(desk: Broker) -> None:
    await desk.open(an_ask())
    first = await desk.answer("ask-1", SQLITE)
    again = await desk.answer("ask-1", Answer(answers=(("SQLite",),), by="bob"))
    assert again.answer == first.answer
    assert await types_of(desk, 2) == ["asked", "answered"]


@pytest.mark.parametrize("other", [POSTGRES, Answer(rejected=True, by="bob"), Answer(answers=(("x",), ("y",)))])
async def test_M4_a_different_answer_is_told_who_won_when_where_and_with_what(desk: Broker, other: Answer) -> None:
    await desk.open(an_ask())
    won = (await desk.answer("ask-1", SQLITE)).answer
    assert won is not None and won.at is not None
    with pytest.raises(AlreadyAnswered, match="'ask-1' was already answered by ana in cli") as lost:
        await desk.answer("ask-1", other)
    fields = lost.value.fields
    assert (fields["by"], fields["via"], fields["answer"]["answers"]) == ("ana", "cli", [["SQLite"]])
    assert fields["at"] == won.at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


async def test_M4_the_same_id_with_other_content_differs(desk: Broker) -> None:
    await desk.open(an_ask())
    with pytest.raises(AskDiffers):
        await desk.open(an_ask(questions=(Question("Something else?"),)))
    assert (await desk.get("ask-1")).questions == an_ask().questions


async def test_M5_an_answer_that_does_not_fit_leaves_the_ask_open(desk: Broker) -> None:
    await desk.open(a_permission())
    with pytest.raises(AnswerDoesNotFit, match="stays open"):
        await desk.answer("permission-1", Answer(reply="perhaps"))
    assert (await desk.get("permission-1")).state == "asked"
    assert (await desk.answer("permission-1", Answer(reply="once"))).state == "answered"


async def test_an_ask_that_does_not_exist_is_not_found(desk: Broker) -> None:
    calls: tuple[Callable[[], Any], ...] = (
        lambda: desk.get("nope"),
        lambda: desk.wait("nope"),
        lambda: desk.answer("nope", SQLITE),
        lambda: desk.reject("nope"),
        lambda: desk.withdraw("nope"),
        lambda: desk.keep_waiting("nope"),
    )
    for call in calls:
        with pytest.raises(AskNotFound, match="nope"):
            await within(call())


# Untrusted content (M9) -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        an_ask(questions=(Question("half a pair \ud800"),)),
        a_permission(input={"command": "\udcff"}),
        a_permission(input={"when": object()}),
        an_ask(id="\ud800"),
    ],
)
async def test_M9_what_cannot_be_written_is_refused_and_hurts_nobody(desk: Broker, ask: Ask) -> None:
    with pytest.raises(AskDoesNotFit):
        await desk.open(ask, handling=Handling(question_policy=(AutoRule(match="re:pair", answers=("x",)),)))
    assert (await desk.open(an_ask(id="good"))).how == "new"


async def test_M9_an_answer_that_cannot_be_written_leaves_the_ask_open(desk: Broker) -> None:
    await desk.open(an_ask())
    with pytest.raises(AnswerDoesNotFit):
        await desk.answer("ask-1", Answer(answers=(("\ud800",),)))
    assert (await desk.get("ask-1")).state == "asked"


async def test_M9_a_reason_from_a_broken_terminal_is_kept_readable(desk: Broker) -> None:
    await desk.open(an_ask())
    assert (await desk.withdraw("ask-1", reason="bad \udcff byte")).withdrawn_reason == "bad \\udcff byte"
    await desk.open(an_ask(id="ask-2"))
    await desk.answer("ask-2", SQLITE)
    desk.delivered("ask-2", error="no file \udcff")
    assert (await events_of(desk, 5))[-1].ask.delivery_error == "no file \\udcff"


async def test_M9_unknown_fields_are_kept_through_the_desk(desk: Broker) -> None:
    body = {
        "id": "x",
        "questions": [
            {"question": "Q?", "multiSelect": True, "options": [{"label": "a", "color": None}], "extra": {"k": 1}}
        ],
        "origin": {"agent": "a", "session": "s", "pid": 7},
        "urgency": [1, {"deep": "yes"}],
    }
    parsed = parse_ask_body(json.dumps(body).encode())
    assert parsed.id is not None and parsed.origin is not None
    await desk.open(Ask(id=parsed.id, questions=parsed.questions, origin=parsed.origin, extra=parsed.extra))
    kept = await desk.get("x")
    assert kept.extra == {"urgency": [1, {"deep": "yes"}]}
    assert kept.questions[0].extra == {"k": 1, "multiSelect": True}
    assert kept.questions[0].options[0].extra == {"color": None}
    assert kept.origin.extra == {"pid": 7}


@pytest.mark.parametrize(
    "answer",
    [
        Answer(reply="once", input={}),
        Answer(reply="always", scope="session", patterns=()),
        Answer(reply="always", scope="session", patterns=("rm *",)),
    ],
)
async def test_what_a_person_edited_away_stays_away(desk: Broker, answer: Answer) -> None:
    await desk.open(a_permission(editable=True, input={"command": "rm -rf build"}))
    await desk.answer("permission-1", answer)
    kept = (await desk.get("permission-1")).answer
    assert kept is not None
    assert (kept.reply, kept.input, kept.patterns) == (answer.reply, answer.input, answer.patterns)


# Races ------------------------------------------------------------------------------------------------------


async def test_of_two_answers_at_once_one_wins_and_the_other_hears_who(desk: Broker) -> None:
    for number in range(30):
        id = f"ask {number}"
        await desk.open(an_ask(id=id))
        racers = [SQLITE, POSTGRES] if number % 2 else [POSTGRES, SQLITE]
        results = await asyncio.gather(*(desk.answer(id, answer) for answer in racers), return_exceptions=True)
        stored = (await desk.get(id)).answer
        assert stored is not None
        (lost,) = [result for result in results if isinstance(result, AlreadyAnswered)]
        (won,) = [result for result in results if isinstance(result, Ask)]
        assert won.answer == stored
        assert lost.fields["by"] == stored.by


async def test_an_answer_in_the_instant_of_the_timeout_leaves_no_doubt(desk: Broker, fake_clock: FakeClock) -> None:
    for number in range(30):
        id = f"ask {number}"
        async with asking(desk, an_ask(id=id), handling=MINUTE) as waiting:
            racers = [desk.answer(id, POSTGRES), fake_clock.advance(60)]
            results = await asyncio.gather(*(racers if number % 2 else racers[::-1]), return_exceptions=True)
            told = await within(waiting)
        stored = (await desk.get(id)).answer
        assert told == stored
        person_won = any(isinstance(result, Ask) for result in results)
        assert told.by == ("bob" if person_won else "policy:timeout")
        if not person_won:
            assert any(isinstance(result, AlreadyAnswered) for result in results)


async def test_of_an_answer_and_a_withdrawal_at_once_one_wins(desk: Broker) -> None:
    for number in range(20):
        id = f"ask {number}"
        await desk.open(an_ask(id=id))
        racers = [desk.answer(id, SQLITE), desk.withdraw(id)]
        results = await asyncio.gather(*(racers if number % 2 else racers[::-1]), return_exceptions=True)
        (lost,) = [result for result in results if isinstance(result, Exception)]
        state = (await desk.get(id)).state
        assert isinstance(lost, AlreadyAnswered if state == "answered" else AskWithdrawn)


async def test_many_who_wait_are_all_told(desk: Broker) -> None:
    await desk.open(an_ask())
    waiting = [asyncio.create_task(desk.ask(an_ask())) for _ in range(50)]
    await asyncio.sleep(0)
    await desk.answer("ask-1", SQLITE)
    assert {answer.value for answer in await within(asyncio.gather(*waiting))} == {"SQLite"}


class SlowStore:
    """A store elsewhere: every read takes its time."""

    def __init__(self, store: Store, *, turns: int = 50) -> None:
        self.history_was_read = asyncio.Event()
        self._store = store
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, id: str) -> Any:
        await self._pause()
        return await self._store.get(id)

    async def history(self, *query: Any, **page: Any) -> Any:
        await self._pause()
        found = await self._store.history(*query, **page)
        self.history_was_read.set()
        return found

    async def deadlines(self) -> Any:
        found = await self._store.deadlines()
        await self._pause()
        return found

    async def _pause(self) -> None:
        for _ in range(self._turns):
            await asyncio.sleep(0)


async def test_one_who_leaves_late_takes_no_other_waiter_along(store: Store, fake_clock: FakeClock) -> None:
    slow: Any = SlowStore(store)
    async with Broker(slow, clock=fake_clock) as desk:
        await desk.open(an_ask())
        early = asyncio.create_task(desk.wait("ask-1", timeout=0))
        for _ in range(70):  # its time is up and it reads the ask once more
            await asyncio.sleep(0)
        await desk.withdraw("ask-1")
        await desk.open(an_ask())
        late = asyncio.create_task(desk.wait("ask-1"))
        await within(early)
        await desk.answer("ask-1", SQLITE)
        assert (await within(late)).state == "answered"


# Deadlines (P1, P4) -----------------------------------------------------------------------------------------


async def test_P4_a_deadline_gives_the_fallback_at_its_time_and_once(desk: Broker, fake_clock: FakeClock) -> None:
    async with asking(desk, an_ask(), handling=MINUTE) as waiting:
        ask = await desk.get("ask-1")
        assert ask.fallback is not None and ask.fallback.value == "SQLite"
        await fake_clock.advance(59.999)
        assert (await desk.get("ask-1")).state == "asked"
        await fake_clock.advance(0.001)
        answer = await within(waiting)
    assert (answer.by, answer.value) == ("policy:timeout", "SQLite")
    assert answer.at == ask.deadline
    await desk.report([("ask-1", None)])
    await fake_clock.advance(1000)
    await desk.open(an_ask(id="last"))
    assert await types_of(desk, 4) == ["asked", "answered", "delivered", "asked"]


async def test_P2_the_deadline_of_a_permission_denies(desk: Broker, fake_clock: FakeClock) -> None:
    async with asking(desk, a_permission(), handling=MINUTE) as waiting:
        await fake_clock.advance(60)
        answer = await within(waiting)
    assert (answer.rejected, answer.reply, answer.reason) == (True, "reject", "no answer in 60 s")


async def test_P1_keep_waiting_moves_the_deadline_by_the_time_given(desk: Broker, fake_clock: FakeClock) -> None:
    async with asking(desk, an_ask(), handling=MINUTE) as waiting:
        first = (await desk.get("ask-1")).deadline
        await fake_clock.advance(30)
        moved = (await desk.keep_waiting("ask-1")).deadline
        assert first is not None and moved is not None
        assert (moved - first).total_seconds() == 60
        await fake_clock.advance(89)
        assert (await desk.get("ask-1")).state == "asked"
        await fake_clock.advance(1)
        assert (await within(waiting)).by == "policy:timeout"
    assert await types_of(desk, 3) == ["asked", "deadline_moved", "answered"]


async def test_keep_waiting_without_a_deadline_or_after_the_answer(desk: Broker) -> None:
    await desk.open(an_ask())
    assert (await desk.keep_waiting("ask-1")).deadline is None
    await desk.answer("ask-1", SQLITE)
    with pytest.raises(AlreadyAnswered, match="ana"):
        await desk.keep_waiting("ask-1")
    assert await types_of(desk, 2) == ["asked", "answered"]


async def test_many_deadlines_each_fire_in_their_order(desk: Broker, fake_clock: FakeClock) -> None:
    seconds = [7, 3, 5, 3, 9, 1]
    for number, timeout in enumerate(seconds):
        await desk.open(an_ask(id=f"ask {number}"), handling=Handling(question_timeout=timeout))
    for second in range(1, 10):
        await fake_clock.advance(1)
        due = [f"ask {number}" for number, timeout in enumerate(seconds) if timeout <= second]
        for id in due:
            await within(desk.wait(id))
        assert {ask.id async for ask in desk.asks(state="answered")} == set(due)


async def test_a_deadline_is_kept_by_a_desk_that_was_restarted(store: Store, fake_clock: FakeClock) -> None:
    async with Broker(store, clock=fake_clock) as before:
        await before.open(an_ask(), handling=MINUTE)
    await fake_clock.advance(30)
    async with Broker(store, clock=fake_clock) as after:
        await fake_clock.advance(29)
        assert (await after.get("ask-1")).state == "asked"
        await fake_clock.advance(1)
        assert (await within(after.wait("ask-1"))).state == "answered"


async def test_a_deadline_that_passed_while_the_desk_was_down_counts_at_its_start(
    store: Store, fake_clock: FakeClock
) -> None:
    async with Broker(store, clock=fake_clock) as before:
        await before.open(an_ask(), handling=MINUTE)
    await fake_clock.advance(3600)
    async with Broker(store, clock=fake_clock) as after:
        stored = await within(after.wait("ask-1"))
    answer = stored.settled()
    assert answer is not None and answer.by == "policy:timeout"


async def test_deadlines_that_passed_while_the_desk_was_down_are_told_in_their_order(
    store: Store, fake_clock: FakeClock
) -> None:
    async with Broker(store, clock=fake_clock) as before:
        for number in range(10):
            await before.open(an_ask(id=f"ask {number}"), handling=Handling(question_timeout=20 - number))
    await fake_clock.advance(3600)
    async with Broker(store, clock=fake_clock) as after:
        told = await events_of(after, 10, after=10)
    assert [event.ask.id for event in told] == [f"ask {number}" for number in reversed(range(10))]


async def test_a_deadline_told_while_a_desk_starts_is_not_forgotten(store: Store, fake_clock: FakeClock) -> None:
    slow: Any = SlowStore(store)
    async with Broker(store, clock=fake_clock) as first:
        starting = asyncio.create_task(Broker(slow, clock=fake_clock).__aenter__())
        await asyncio.sleep(0)
        await first.open(an_ask(), handling=MINUTE)
        second = await within(starting)
        first.cancel_waits()
        await first.__aexit__(None, None, None)
        await fake_clock.advance(60)
        assert (await within(second.wait("ask-1"))).state == "answered"
        await second.__aexit__(None, None, None)


# Policy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handling", "state", "by"),
    [
        (Handling(question_policy="reject"), "rejected", "policy:reject"),
        (Handling(question_policy="accept-first"), "answered", "policy:accept-first"),
        (Handling(question_policy="accept-recommended"), "answered", "policy:accept-recommended"),
        (Handling(question_policy=(AutoRule(match="database", answers=("Postgres",)),)), "answered", "policy:auto"),
    ],
)
async def test_M7_what_policy_answers_is_told_like_an_answer_and_marked(
    desk: Broker, handling: Handling, state: str, by: str
) -> None:
    answer = await within(desk.ask(an_ask(), handling=handling))
    assert answer.by == by and answer.by_policy
    asked, decided = await events_of(desk, 2)
    assert (asked.type, asked.ask.state, asked.ask.answer) == ("asked", "asked", None)
    assert (decided.type, decided.ask.state, decided.ask.answer) == (state, state, answer)


async def test_policy_is_evaluated_once_by_whoever_asked_first(desk: Broker) -> None:
    await desk.open(an_ask(), handling=Handling())
    joined = await desk.open(an_ask(), handling=Handling(question_policy="accept-first"))
    assert (joined.how, joined.stored.state) == ("joined", "asked")


async def test_a_desk_has_a_handling_for_those_who_bring_none(store: Store) -> None:
    async with Broker(store, handling=Handling(question_policy="accept-first")) as desk:
        assert (await within(desk.ask(an_ask()))).value == "SQLite"
        opened = await desk.open(an_ask(id="mine"), handling=Handling())
    assert opened.stored.state == "asked"


async def test_P3_a_rule_that_is_no_regular_expression_refuses_the_ask(desk: Broker) -> None:
    with pytest.raises(AskDoesNotFit, match="not a regular expression"):
        await desk.open(an_ask(), handling=Handling(question_policy=(AutoRule(match="re:(", answers=("x",)),)))


# Accepted and delivered (M6) --------------------------------------------------------------------------------


async def test_M6_an_answer_is_delivered_when_the_agent_took_it(desk: Broker) -> None:
    await desk.open(an_ask())
    await desk.answer("ask-1", SQLITE)
    assert (await desk.get("ask-1")).delivered_at is None
    desk.delivered("ask-1")
    told = (await events_of(desk, 3))[-1]
    assert (told.type, told.ask.delivery_error) == ("delivered", None)
    assert (await desk.get("ask-1")).delivered_at == told.at


async def test_M6_an_answer_nobody_took_is_not_shown_as_delivered(desk: Broker) -> None:
    await desk.open(an_ask())
    await desk.answer("ask-1", SQLITE)
    desk.delivered("ask-1", error="the process had died")
    told = (await events_of(desk, 3))[-1].ask
    assert (told.delivered_at, told.delivery_error) == (None, "the process had died")
    desk.delivered("ask-1")
    told = (await events_of(desk, 4))[-1].ask
    assert told.delivered_at is not None and told.delivery_error is None


async def test_M6_what_is_open_or_unknown_cannot_be_delivered(desk: Broker) -> None:
    await desk.open(an_ask())
    open_ask, unknown = await desk.report([("ask-1", None), ("nope", None)])
    assert open_ask is not None and open_ask.delivered_at is None
    assert unknown is None
    assert await types_of(desk, 1) == ["asked"]


async def test_M6_an_answer_that_nobody_comes_for_is_told_as_not_taken(desk: Broker, fake_clock: FakeClock) -> None:
    for number in (1, 2, 3, 4):
        await desk.open(an_ask(id=f"ask-{number}"))
    await desk.answer("ask-1", SQLITE)
    await desk.answer("ask-2", SQLITE)
    await desk.report([("ask-2", None)])
    await desk.reject("ask-3")
    await desk.report([("ask-3", "the process had died")])
    await fake_clock.advance(59)
    assert (await desk.get("ask-1")).delivery_error is None, "an agent has a minute"
    await desk.answer("ask-4", SQLITE)
    await fake_clock.advance(1)
    told = (await events_of(desk, 11))[-1]
    assert (told.type, told.ask.id) == ("delivered", "ask-1")
    assert (told.ask.delivered_at, told.ask.delivery_error) == (None, "nobody has come for it yet; it is kept")
    others = {id: await desk.get(id) for id in ("ask-2", "ask-3", "ask-4")}
    assert others["ask-2"].delivered_at is not None and others["ask-2"].delivery_error is None
    assert others["ask-3"].delivery_error == "the process had died", "the agent's own word stands"
    assert others["ask-4"].delivery_error is None, "its minute is not over"
    await fake_clock.advance(59)
    assert (await events_of(desk, 12))[-1].ask.id == "ask-4"
    assert (await within(desk.ask(an_ask(id="ask-1")))).values == ("SQLite",), "who comes later gets it"
    await desk.report([("ask-1", None)])
    taken = await desk.get("ask-1")
    assert taken.delivered_at is not None and taken.delivery_error is None


async def test_M6_two_desks_tell_once_that_nobody_came(store: Store, fake_clock: FakeClock) -> None:
    async with Broker(store, clock=fake_clock) as desk, Broker(store, clock=fake_clock):
        await desk.open(an_ask())
        await desk.answer("ask-1", SQLITE)
        await fake_clock.advance(60)
        await events_of(desk, 3)
        await desk.open(an_ask(id="last"))
        assert await types_of(desk, 4) == ["asked", "answered", "delivered", "asked"]


async def test_M6_an_answer_that_nobody_came_for_is_told_after_a_restart_too(
    store: Store, fake_clock: FakeClock
) -> None:
    async with Broker(store, clock=fake_clock) as before:
        await before.open(an_ask())
        await before.answer("ask-1", SQLITE)
    async with Broker(store, clock=fake_clock) as desk:
        await fake_clock.advance(60)
        assert (await events_of(desk, 3))[-1].ask.delivery_error is not None


@pytest.mark.parametrize("turns", range(12))
async def test_M6_a_desk_that_closes_writes_what_was_reported(store: Store, fake_clock: FakeClock, turns: int) -> None:
    """However far the report had come: ids with an ordinal take more than one step."""
    async with Broker(store, clock=fake_clock) as before:
        await before.open(a_permission(), ordinal=True)
        await before.answer("permission-1#1", Answer(reply="once"))
        before.delivered("permission-1")
        for _ in range(turns):
            await asyncio.sleep(0)
    stored = await store.get("permission-1#1")
    assert stored is not None and stored.delivered_at is not None


# Ids that repeat by accident (DESIGN, step 1) ---------------------------------------------------------------


async def test_an_id_with_an_ordinal_joins_while_it_is_open(desk: Broker) -> None:
    first, second = [await desk.open(a_permission(), ordinal=True) for _ in range(2)]
    assert (first.how, second.how) == ("new", "joined")
    assert first.stored.id == second.stored.id == "permission-1#1"


async def test_an_id_with_an_ordinal_joins_until_its_answer_was_taken(desk: Broker) -> None:
    await desk.open(a_permission(), ordinal=True)
    await desk.answer("permission-1#1", Answer(reply="once", by="ana"))
    answer = await within(desk.ask(a_permission(), ordinal=True))
    assert (answer.reply, answer.by) == ("once", "ana")
    desk.delivered("permission-1", error="the agent had died")
    assert (await within(desk.ask(a_permission(), ordinal=True))).reply == "once"


@pytest.mark.parametrize("turns", range(8))
async def test_yesterdays_answer_never_grants_todays_command(desk: Broker, turns: int) -> None:
    """Even if the agent asks again in the very moment in which it took the answer."""
    async with asking(desk, a_permission(), ordinal=True) as waiting:
        await desk.answer("permission-1#1", Answer(reply="once"))
        await within(waiting)
    desk.delivered("permission-1")
    for _ in range(turns):
        await asyncio.sleep(0)
    again = await desk.open(a_permission(), ordinal=True)
    assert (again.how, again.stored.id, again.stored.state) == ("new", "permission-1#2", "asked")


async def test_a_withdrawn_id_with_an_ordinal_is_a_new_ask_next_time(desk: Broker) -> None:
    await desk.open(a_permission(), ordinal=True)
    assert (await desk.withdraw("permission-1")).id == "permission-1#1"
    again = await desk.open(a_permission(), ordinal=True)
    assert (again.how, again.stored.id) == ("new", "permission-1#2")


async def test_many_who_ask_at_once_with_an_ordinal_share_one_ask(desk: Broker) -> None:
    for round in (1, 2, 3):
        opened = await asyncio.gather(*(desk.open(a_permission(), ordinal=True) for _ in range(20)))
        assert {each.stored.id for each in opened} == {f"permission-1#{round}"}
        await desk.answer(f"permission-1#{round}", Answer(reply="once"))
        await desk.report([("permission-1", None)])


# Waiting and closing ----------------------------------------------------------------------------------------


async def test_a_wait_with_a_limit_gives_the_ask_as_it_is(desk: Broker) -> None:
    await desk.open(an_ask())
    assert (await within(desk.wait("ask-1", timeout=0))).state == "asked"


async def test_cancelling_a_wait_withdraws_nothing(desk: Broker) -> None:
    async with asking(desk, an_ask()) as waiting:
        waiting.cancel()
        await asyncio.wait([waiting])
    assert (await desk.get("ask-1")).state == "asked"


async def test_a_desk_that_closes_ends_waits_and_withdraws_nothing(store: Store) -> None:
    async with Broker(store) as before:
        await before.open(an_ask())
        asked = asyncio.create_task(before.ask(an_ask()))
        polled = asyncio.create_task(before.wait("ask-1"))
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await within(asked)
    assert (await within(polled)).state == "asked"
    async with Broker(store) as after, asking(after, an_ask()) as waiting:
        await after.answer("ask-1", SQLITE)
        assert (await within(waiting)).value == "SQLite"


# Events -----------------------------------------------------------------------------------------------------


async def test_one_who_reads_on_from_a_cursor_sees_every_event_once(desk: Broker) -> None:
    cursors: list[int] = []

    async def read(number: int) -> None:
        """One connection, which breaks after so many events."""
        async with asyncio.timeout(5):
            async for event in desk.events(after=cursors[-1] if cursors else 0):
                cursors.append(event.cursor)
                if (number := number - 1) == 0:
                    return

    async def write() -> None:
        for index in range(60):
            await desk.open(an_ask(id=f"ask {index}"), handling=Handling(question_policy="accept-first"))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        for number in (1, 7, 30, 2, 80):
            await read(number)
    assert cursors == list(range(1, 121))


async def test_one_who_follows_from_now_on_sees_what_comes(desk: Broker) -> None:
    await desk.open(an_ask(id="before"))
    events: Any = desk.events()
    following = asyncio.ensure_future(anext(events))
    for _ in range(20):
        await asyncio.sleep(0)
    await desk.open(an_ask(id="after"))
    assert (await within(following)).ask.id == "after"
    await events.aclose()
    assert len(desk.feeds) == 0


async def test_events_are_filtered_by_session_run_and_worker(desk: Broker) -> None:
    await desk.open(an_ask(id="a", session="s1", run="r1"), worker="w1")
    await desk.open(an_ask(id="b", session="s2", run="r2"), worker="w2")
    for query in ({"session": "s2"}, {"run": "r2"}, {"worker": "w2"}):
        assert [event.ask.id for event in await events_of(desk, 1, **query)] == ["b"]


@pytest.mark.parametrize("session", [None, "s1"])
async def test_what_is_committed_while_history_is_read_is_seen_once(store: Store, session: str | None) -> None:
    slow: Any = SlowStore(store)
    async with Broker(slow, handling=Handling(question_policy="accept-first")) as desk:
        reading = asyncio.create_task(events_of(desk, 8, session=session))
        await asyncio.sleep(0)
        for id in ("a", "b", "c"):  # told live, and read from history a little later
            await desk.open(an_ask(id=id))
        await within(slow.history_was_read.wait())
        await desk.open(an_ask(id="d"))
        events = await within(reading)
    assert [event.cursor for event in events] == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_one_who_falls_too_far_behind_still_sees_every_event_once() -> None:
    store = await SqliteStore.open_file(MEMORY)
    async with Broker(store, handling=Handling(question_policy="accept-first")) as desk:
        events: Any = desk.events(after=0)
        await desk.open(an_ask(id="first"))
        seen = [(await within(anext(events))).cursor for _ in range(2)]
        number = MOST_WAITING // 2 + 1
        await asyncio.gather(*(desk.open(an_ask(id=f"ask {index}")) for index in range(number)))
        await desk.open(an_ask(id="one too many"))
        async with asyncio.timeout(5):
            while seen[-1] < 2 * (number + 2):
                seen.append((await anext(events)).cursor)
        await events.aclose()
    assert seen == list(range(1, 2 * (number + 2) + 1))
    await store.close()


async def test_events_end_when_the_desk_closes(store: Store) -> None:
    async with Broker(store) as desk:
        await desk.open(an_ask())
        seen: list[str] = []

        async def follow() -> None:
            async for event in desk.events(after=0):
                seen.append(event.type)

        following = asyncio.create_task(follow())
        await types_of(desk, 1)
    await within(following)
    assert seen == ["asked"]


async def test_one_who_comes_after_the_desk_closed_is_not_kept(store: Store) -> None:
    async with Broker(store) as desk:
        await desk.open(an_ask())

    async def follow() -> list[Event]:
        return [event async for event in desk.events(after=0)]

    assert await within(follow()) == []


async def test_asks_are_listed_oldest_first_over_many_pages(desk: Broker) -> None:
    ids = [f"ask {index}" for index in range(250)]
    await asyncio.gather(*(desk.open(an_ask(id=id)) for id in ids))
    assert [ask.id async for ask in desk.asks(state="asked", agent="scripted")] == ids


async def test_what_is_stored_is_what_was_asked(desk: Broker) -> None:
    ask = a_permission(
        editable=True, input={"a": None, "b": [1, 2.5, "x"]}, diff="-a\n+b", cwd="/c", extra={"z": {"y": [None]}}
    )
    await desk.open(ask)
    assert content_text(await desk.get(ask.id)) == content_text(ask)


async def test_an_ask_whose_opening_was_cancelled_can_be_withdrawn_at_once(store: Store) -> None:
    async with Broker(store) as broker:
        await broker.open(an_ask(id="before"))  # so that the session is known
        asking = asyncio.create_task(broker.ask(an_ask(id="cut-off")))
        await asyncio.sleep(0)  # it is on its way to the store
        asking.cancel()
        with suppress(AskNotFound):  # or it never got that far
            await broker.withdraw("cut-off", reason="the agent moved on")
        await asyncio.wait([asking])
        left = [ask.id async for ask in broker.asks(state="asked")]
        assert left == ["before"]
