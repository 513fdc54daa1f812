"""Random operations on a desk, or on two desks of one database, restarts included, against a model of the rules."""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from handraise.app import open_store
from handraise.asks import Answer, Ask, Handling, Question
from handraise.broker import Broker
from handraise.errors import (
    AlreadyAnswered,
    AnswerDoesNotFit,
    AskDiffers,
    AskNotFound,
    AskWithdrawn,
    HandraiseError,
)
from handraise.stores import Query, Store
from handraise.testing import FakeClock, an_ask
from handraise.wire import Stored, StoredEvent

pytestmark = pytest.mark.slow

T = TypeVar("T")
Refusal: TypeAlias = type[HandraiseError] | None

PATIENCE = 10  # seconds any one step may take
NUMBERED = "n"  # asked with an ordinal
# Which ask is asked again, see `id_of`; -1 is one that was forgotten, None a new one.
AGAIN = st.sampled_from([None, None, None, 0, 1, 2, -1, -1])
WHICH = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 4, -1])  # of the asks there are, see `id_of`; -1 is NUMBERED
DESKS = st.integers(0, 1)  # where there is one desk, both mean that one
SECONDS = st.sampled_from([30, 30, 60, 61, 119, 500])
TIMEOUT = 60_000
HANDLINGS = {
    "wait": Handling(),
    "a minute": Handling(question_timeout=60),
    "a minute, then no": Handling(question_timeout=60, on_timeout="reject"),
    "first": Handling(question_policy="accept-first"),
    "no": Handling(question_policy="reject"),
}
HOW = st.sampled_from(["wait", "a minute", "a minute", "a minute, then no", "first", "no"])
# What people and agents do to end an ask: an answer, None for a rejection, or one of these.
WITHDRAW, MISFIT = "withdraw", "two answers to one question"
ENDINGS = st.sampled_from(["SQLite", "7", None, WITHDRAW, MISFIT])


@dataclass
class Model:
    """What an ask should be."""

    has_options: bool  # the ids are asked with one of two contents; the other one wants a number
    state: str = "asked"
    value: str | None = None
    by: str = ""
    deadline: int | None = None
    at_deadline: str | None = None
    delivered: bool = False
    error: str | None = None

    def decide(self, handling: str, *, now: int) -> list[str]:
        """Open it, or open it again. Returns the events."""
        self.state, self.value, self.by, self.deadline, self.at_deadline = "asked", None, "", None, None
        match handling:
            case "a minute" | "a minute, then no":
                self.deadline = now + TIMEOUT
                self.at_deadline = "SQLite" if handling == "a minute" and self.has_options else None
            case "first":
                return ["asked", self.close("SQLite" if self.has_options else None, by="policy:accept-first")]
            case "no":
                return ["asked", self.close(None, by="policy:reject")]
        return ["asked"]

    def close(self, value: str | None, *, by: str) -> str:
        self.value, self.by = value, by
        self.state = "rejected" if value is None else "answered"
        return self.state

    def end(self, how: str | None) -> tuple[Refusal, list[str]]:
        """What somebody hears who ends it that way, and the events."""
        if how == WITHDRAW:
            if self.state in ("answered", "rejected"):
                return AlreadyAnswered, []
            before, self.state = self.state, "withdrawn"
            return None, ["withdrawn"] if before == "asked" else []
        if self.state == "withdrawn":
            return AskWithdrawn, []
        if self.state != "asked":
            return None if self.value == how else AlreadyAnswered, []
        if how == MISFIT or (how == "SQLite" and not self.has_options):
            return AnswerDoesNotFit, []
        return None, [self.close(how, by="ana")]

    @property
    def is_over(self) -> bool:
        """Settled, and nobody waits to be told: under an ordinal the next one is another ask."""
        return self.state == "withdrawn" or (self.state != "asked" and self.delivered)


class Place:
    """One desk: a broker on a store of its own, and what that store told."""

    def __init__(self, store: Store, broker: Broker) -> None:
        self.store = store
        self.broker = broker
        self.waiting: dict[str, asyncio.Task[Stored]] = {}
        self.opened_at = 0
        self.heard: list[StoredEvent] = []
        self._news = asyncio.Event()
        self.hush = store.tail(self._hear)

    def _hear(self, events: Any) -> None:
        self.heard += events
        self._news.set()

    async def has_heard(self, cursor: int) -> None:
        while (self.heard[-1].cursor if self.heard else self.opened_at) < cursor:
            self._news.clear()
            await self._news.wait()


class Desks(RuleBasedStateMachine):
    """`count` desks on the database of an address. One in memory is not opened again when its desk restarts."""

    def __init__(self, address: str, *, count: int = 1) -> None:
        super().__init__()
        self.address = address
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        self.model: dict[str, Model] = {}
        self.told: list[tuple[str, str]] = []
        self.pruned = 0
        self.number = 0
        self.forgotten: list[str] = []
        self.places = [self.run(self.start()) for _ in range(count)]

    async def start(self, store: Store | None = None) -> Place:
        store = store or await open_store(self.address)
        place = Place(store, Broker(store, clock=self.clock, taken_within=None))
        place.opened_at = await store.cursor()
        await place.broker.__aenter__()
        return place

    def at(self, desk: int) -> Broker:
        return self.places[desk % len(self.places)].broker

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(PATIENCE):
                return await work

        return self.runner.run(bounded())

    def outcomes(self, *works: Coroutine[Any, Any, object]) -> list[Refusal]:
        """What came of things that were done at once."""

        async def together() -> list[object]:
            return await asyncio.gather(*works, return_exceptions=True)

        ends = self.run(together())
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, HandraiseError):
                raise end
        return [type(end) if isinstance(end, HandraiseError) else None for end in ends]

    def outcome(self, work: Coroutine[Any, Any, object]) -> Refusal:
        (outcome,) = self.outcomes(work)
        return outcome

    def tell(self, id: str, *types: str) -> None:
        self.told += [(type, id) for type in types]

    def everybody_has_heard(self) -> None:
        for place in self.places:
            self.run(place.has_heard(len(self.told)))

    # Asking -----------------------------------------------------------------------------------------------

    @rule(
        desk=DESKS,
        again=AGAIN,
        handling=HOW,
        has_options=st.sampled_from([True, True, True, False]),
    )
    def ask(self, desk: int, again: int | None, handling: str, has_options: bool) -> None:
        id = self.id_to_ask(again)
        outcome = self.outcome(self.at(desk).open(asked(id, has_options=has_options), handling=HANDLINGS[handling]))
        self.was_asked(id, handling, has_options, outcome)

    @rule(again=AGAIN, handlings=st.tuples(HOW, HOW), has_options=st.booleans())
    def two_ask_at_once(self, again: int | None, handlings: tuple[str, str], has_options: bool) -> None:
        """One of them opens it and the other one joins, whatever it thinks should become of it."""
        id = self.id_to_ask(again)
        ask = asked(id, has_options=has_options)
        outcomes = self.outcomes(*(self.at(n).open(ask, handling=HANDLINGS[handlings[n]]) for n in (0, 1)))
        known = self.model.get(id)
        first = 0
        if outcomes[0] is None and (known is None or known.state == "withdrawn"):
            ends = [copy.copy(known) if known else Model(has_options=has_options) for _ in handlings]
            for end, handling in zip(ends, handlings, strict=True):
                end.decide(handling, now=self.clock.now())
            first = [fits(end, self.run(self.at(0).get(id))) for end in ends].index(True)
        for n in (first, 1 - first):
            self.was_asked(id, handlings[n], has_options, outcomes[n])

    def was_asked(self, id: str, handling: str, has_options: bool, outcome: Refusal) -> None:
        known = self.model.get(id)
        if known is not None and known.has_options != has_options:
            assert outcome is AskDiffers
            return
        assert outcome is None
        if known is None or known.state == "withdrawn":
            opened = self.model.setdefault(id, Model(has_options=has_options))
            self.tell(id, *opened.decide(handling, now=self.clock.now()))
        self.wait_for(id)

    @rule(desk=DESKS, handling=st.sampled_from(["wait", "a minute", "first"]))
    def ask_with_an_ordinal(self, desk: int, handling: str) -> None:
        ask = asked(NUMBERED, has_options=True)
        opened = self.run(self.at(desk).open(ask, handling=HANDLINGS[handling], ordinal=True))
        newest = self.newest_numbered()
        if newest is None or self.model[newest].is_over:
            number = 1 + (0 if newest is None else int(newest.partition("#")[2]))
            newest = f"{NUMBERED}#{number}"
            self.model[newest] = Model(has_options=True)
            self.tell(newest, *self.model[newest].decide(handling, now=self.clock.now()))
        assert opened.stored.id == newest
        self.wait_for(newest)

    def newest_numbered(self) -> str | None:
        numbers = [int(id.partition("#")[2]) for id in self.model if id.startswith(f"{NUMBERED}#")]
        return f"{NUMBERED}#{max(numbers)}" if numbers else None

    def wait_for(self, id: str) -> None:
        """Somebody at each desk."""

        async def begin(place: Place) -> None:
            if id not in place.waiting:
                place.waiting[id] = asyncio.create_task(place.broker.wait(id))
                await asyncio.sleep(0)

        for place in self.places:
            self.run(begin(place))

    def id_to_ask(self, again: int | None) -> str:
        self.number += 1
        known = self.forgotten if again == -1 else self.model
        if again is None or again >= len(known) or not known:
            return f"q{self.number}"
        return self.forgotten.pop() if again == -1 else self.id_of(again, first="settled")

    def id_of(self, which: int, *, first: str = "asked") -> str:
        """Those in one kind of state come first, else most of what happens would be a refusal."""
        if which == -1:
            return NUMBERED
        newest_first = [*reversed(self.model.items())]
        ids = [id for id, ask in newest_first if (ask.state == "asked") == (first == "asked")]
        ids += [id for id, _ in newest_first if id not in ids]
        return [*ids, *["nobody"] * 5][which]

    # Ending -----------------------------------------------------------------------------------------------

    def ending(self, desk: int, id: str, how: str | None) -> Coroutine[Any, Any, object]:
        if how == WITHDRAW:
            return self.at(desk).withdraw(id)
        if how is None:
            return self.at(desk).reject(id, by="ana")
        answers = (("x",), ("y",)) if how == MISFIT else ((how,),)
        return self.at(desk).answer(id, Answer(answers=answers, by="ana"))

    def meant(self, id: str, how: str | None) -> str | None:
        """The ask that an id stands for. People answer what they saw; an agent may withdraw its newest."""
        if id == NUMBERED and how == WITHDRAW:
            return self.newest_numbered()
        return id if id in self.model else None

    @rule(desk=DESKS, which=WHICH, how=ENDINGS)
    def end(self, desk: int, which: int, how: str | None) -> None:
        id = self.id_of(which)
        outcome = self.outcome(self.ending(desk, id, how))
        meant = self.meant(id, how)
        if meant is None:
            assert outcome is AskNotFound
            return
        expected, events = self.model[meant].end(how)
        assert outcome is expected
        self.tell(meant, *events)

    @rule(which=WHICH, ways=st.tuples(ENDINGS, ENDINGS))
    def two_end_it_at_once(self, which: int, ways: tuple[str | None, str | None]) -> None:
        """Whoever was first, both hear what they would have heard one after the other."""
        id = self.id_of(which)
        outcomes = self.outcomes(*(self.ending(n, id, ways[n]) for n in (0, 1)))
        meant = [self.meant(id, how) for how in ways]
        known = {id: self.model[id] for id in meant if id is not None}
        for first in (0, 1):
            after = copy.deepcopy(known)
            heard: dict[int, Refusal] = {}
            events: list[tuple[str, str]] = []
            for n in (first, 1 - first):
                ended = meant[n]
                if ended is None:
                    heard[n] = AskNotFound
                    continue
                heard[n], types = after[ended].end(ways[n])
                events += [(type, ended) for type in types]
            if [heard[0], heard[1]] == outcomes:
                self.model |= after
                self.told += events
                return
        raise AssertionError(f"{ways} at once were heard as {outcomes}, which no order explains")

    @rule(desk=DESKS, which=WHICH)
    def keep_waiting(self, desk: int, which: int) -> None:
        id = self.id_of(which)
        outcome = self.outcome(self.at(desk).keep_waiting(id))
        ask = self.model.get(id)
        if ask is None:
            assert outcome is AskNotFound
        elif ask.state != "asked":
            assert outcome is (AskWithdrawn if ask.state == "withdrawn" else AlreadyAnswered)
        else:
            assert outcome is None
            if ask.deadline is not None:
                ask.deadline += TIMEOUT
                self.tell(id, "deadline_moved")

    @rule(desk=DESKS, which=WHICH, error=st.sampled_from([None, "it had died"]))
    def deliver(self, desk: int, which: int, error: str | None) -> None:
        id = self.id_of(which, first="settled")
        (reported,) = self.run(self.at(desk).report([(id, error)]))
        meant = self.newest_numbered() if id == NUMBERED else id
        ask = self.model.get(meant) if meant is not None else None
        assert (reported is None) == (ask is None)
        if ask is not None and ask.state in ("answered", "rejected") and not ask.delivered:
            ask.delivered, ask.error = error is None, error
            self.tell(meant or "", "delivered")

    # Time -------------------------------------------------------------------------------------------------

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: int) -> None:
        self.everybody_has_heard()  # of deadlines that were moved: a desk that has not may close them out of order
        self.run(self.clock.advance(seconds))
        self.deadlines_pass()

    def deadlines_pass(self) -> None:
        due = [
            (ask.deadline, id, ask)
            for id, ask in self.model.items()
            if ask.state == "asked" and ask.deadline is not None and ask.deadline <= self.clock.now()
        ]
        for _, id, ask in sorted(due, key=lambda entry: entry[:2]):
            self.tell(id, ask.close(ask.at_deadline, by="policy:timeout"))
            for place in self.places:
                self.run(place.broker.wait(id))

    @rule(desk=DESKS, seconds=st.sampled_from([0, 0, 61]))
    def restart(self, desk: int, seconds: int) -> None:
        """A desk ends, time passes, and another one begins with what the first one left."""
        self.everybody_has_heard()
        number = desk % len(self.places)
        place = self.places[number]
        assert set(self.leave(place).values()) <= {"asked"}, "the desk left, and that settled an ask"
        kept = place.store if ":memory:" in self.address else None
        if kept is None:
            self.let_go(place.store)
        self.run(self.clock.advance(seconds))
        self.places[number] = self.run(self.start(kept))
        self.deadlines_pass()
        for id in [id for id, ask in self.model.items() if ask.state == "asked"]:
            self.wait_for(id)

    def leave(self, place: Place) -> dict[str, str]:
        """How the waits end that are still going on."""
        self.run(place.broker.__aexit__(None, None, None))
        place.hush()
        return {id: self.run(result(waiting)).state for id, waiting in place.waiting.items()}

    def let_go(self, store: Store) -> None:
        self.run(store.close())

    def state_of(self, id: str) -> str | None:
        return self.model[id].state if id in self.model else None

    @rule(desk=DESKS, limit=st.sampled_from([3, 1000]))
    def forget(self, desk: int, limit: int) -> None:
        """Prune what was told. An open ask stays, and so does a settled one of which something is left to tell."""
        self.everybody_has_heard()
        self.pruned += self.run(self.at(desk).store.prune(before=self.clock.now() + 1, limit=limit))
        assert self.pruned == self.run(self.at(desk).store.pruned())
        told_of = {id for _, id in self.told[self.pruned :]}
        for id in [id for id, ask in self.model.items() if ask.state != "asked" and id not in told_of]:
            assert self.outcome(self.at(desk).get(id)) is AskNotFound
            del self.model[id]
            self.forgotten += [id] if "#" not in id else []  # a number is given again by itself

    # What holds after each of these -----------------------------------------------------------------------

    @invariant()
    def every_ask_is_as_it_should_be_at_every_desk(self) -> None:
        for place in self.places:
            stored = self.run(listed(place.broker))
            assert stored.keys() == self.model.keys()
            for id, model in self.model.items():
                assert fits(model, stored[id]), f"{id} should be {model}"

    @precondition(lambda self: any(place.waiting for place in self.places))
    @invariant()
    def whoever_waits_hears_of_the_end(self) -> None:
        for place in self.places:
            for id in [id for id in place.waiting if self.state_of(id) != "asked"]:
                heard = self.run(result(place.waiting.pop(id)))
                assert heard.state == self.state_of(id)

    def teardown(self) -> None:
        is_broken = sys.exception() is not None  # then that is what has to be seen
        with ExitStack() as undo:
            undo.callback(self.runner.close)
            for place in self.places:
                undo.callback(self.let_go, place.store)
                undo.callback(self.leave, place)
            if is_broken:
                return
            self.everybody_has_heard()
            histories = [self.run(place.store.history(Query(), after=0, limit=10_000)) for place in self.places]
        for place, history in zip(self.places, histories, strict=True):
            assert summary(history) == [
                (cursor, *told) for cursor, told in enumerate(self.told, 1) if cursor > self.pruned
            ]
            first = len(self.told) - len(place.heard)
            assert first <= place.opened_at
            assert summary(place.heard) == [
                (cursor, *told) for cursor, told in enumerate(self.told, 1) if cursor > first
            ]


def asked(id: str, *, has_options: bool) -> Ask:
    return an_ask(id=id) if has_options else an_ask(id=id, questions=(Question("How many?", kind="number"),))


def fits(model: Model, ask: Ask) -> bool:
    answer, fallback = ask.answer, ask.fallback
    return (
        ask.state == model.state
        and (answer.value if answer else None) == model.value
        and (answer.by if answer else "") == model.by
        and (ask.deadline and round(ask.deadline.timestamp() * 1000)) == model.deadline
        and (fallback is not None, fallback.value if fallback else None)
        == (model.deadline is not None, model.at_deadline)
        and (ask.delivered_at is not None, ask.delivery_error) == (model.delivered, model.error)
    )


def summary(events: list[StoredEvent]) -> list[tuple[int, str, str]]:
    return [(event.cursor, event.type, event.ask.id) for event in events]


async def listed(broker: Broker) -> dict[str, Ask]:
    return {ask.id: ask async for ask in broker.asks()}


async def result(waiting: asyncio.Task[Stored]) -> Stored:
    return await waiting


def run_at_random(make: Callable[[], Desks], *, examples: int, shrink: bool = True) -> None:
    """Without `shrink` what failed is shown as it was: where desks race, the same steps may end otherwise next time."""
    phases = [phase for phase in Phase if shrink or phase not in (Phase.shrink, Phase.explain)]
    wanted = settings(
        max_examples=examples,
        stateful_step_count=40,
        phases=phases,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    run_state_machine_as_test(make, settings=wanted)  # type: ignore[arg-type]


def test_a_desk_in_memory_keeps_the_rules() -> None:
    run_at_random(lambda: Desks("sqlite:///:memory:"), examples=100)


def test_a_desk_on_a_disk_keeps_the_rules(tmp_path_factory: pytest.TempPathFactory) -> None:
    def make() -> Desks:
        folder: Path = tmp_path_factory.mktemp("desk")
        return Desks(f"sqlite:///{folder / 'desk.db'}")

    run_at_random(make, examples=30)


def test_a_desk_in_postgres_keeps_the_rules(new_database: Callable[[], str]) -> None:
    run_at_random(lambda: Desks(new_database()), examples=20, shrink=False)


def test_two_desks_of_one_database_keep_the_rules_as_if_they_were_one(new_database: Callable[[], str]) -> None:
    run_at_random(lambda: Desks(new_database(), count=2), examples=40, shrink=False)
