"""Random operations on a desk, restarts included, against a model of its rules in a few lines."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from handraise.asks import Answer, Handling, Question
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
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing import FakeClock, an_ask
from handraise.wire import Stored

T = TypeVar("T")

IDS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["SQLite", "Postgres"])
SECONDS = st.sampled_from([1, 30, 60, 61, 500])
TIMEOUT = 60_000
HANDLINGS = {
    "wait": Handling(),
    "a minute": Handling(question_timeout=60),
    "a minute, then no": Handling(question_timeout=60, on_timeout="reject"),
    "first": Handling(question_policy="accept-first"),
    "no": Handling(question_policy="reject"),
}


@dataclass
class Model:
    """What an ask should be."""

    has_options: bool  # the ids are asked with one of two contents
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

    def refusal(self, value: str | None) -> type[HandraiseError] | None:
        """What somebody hears who closes it with that value."""
        if self.state == "withdrawn":
            return AskWithdrawn
        return None if self.state == "asked" or self.value == value else AlreadyAnswered


class Desk(RuleBasedStateMachine):
    """A desk on a store in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        self.model: dict[str, Model] = {}
        self.told: list[tuple[str, str]] = []
        self.waiting: dict[str, asyncio.Task[Stored]] = {}
        self.store: Store = self.run(self.open_store())
        self.broker = self.run(self.start())

    async def open_store(self) -> Store:
        return await SqliteStore.open_file(MEMORY)

    async def reopen_store(self) -> Store:
        return self.store  # nothing but the broker ends

    async def start(self) -> Broker:
        return await Broker(self.store, clock=self.clock).__aenter__()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(5):
                return await work

        return self.runner.run(bounded())

    def outcome(self, work: Coroutine[Any, Any, object]) -> type[HandraiseError] | None:
        try:
            self.run(work)
        except HandraiseError as refused:
            return type(refused)
        return None

    def tell(self, id: str, *types: str) -> None:
        self.told += [(type, id) for type in types]

    @rule(id=IDS, handling=st.sampled_from(sorted(HANDLINGS)), has_options=st.sampled_from([True, True, True, False]))
    def ask(self, id: str, handling: str, has_options: bool) -> None:
        ask = an_ask(id=id) if has_options else an_ask(id=id, questions=(Question("Which name?"),))
        known = self.model.get(id)
        outcome = self.outcome(self.broker.open(ask, handling=HANDLINGS[handling]))
        if known is not None and known.has_options != has_options:
            assert outcome is AskDiffers
            return
        assert outcome is None
        if known is None or known.state == "withdrawn":
            opened = self.model.setdefault(id, Model(has_options=has_options))
            self.tell(id, *opened.decide(handling, now=self.clock.now()))
        self.wait_for(id)

    def wait_for(self, id: str) -> None:
        async def begin() -> asyncio.Task[Stored]:
            waiting = asyncio.create_task(self.broker.wait(id))
            await asyncio.sleep(0)
            return waiting

        if id not in self.waiting:
            self.waiting[id] = self.run(begin())

    @rule(id=IDS, value=VALUES)
    def answer(self, id: str, value: str) -> None:
        outcome = self.outcome(self.broker.answer(id, Answer(answers=((value,),), by="ana")))
        self.closed(id, value, outcome)

    @rule(id=IDS)
    def reject(self, id: str) -> None:
        self.closed(id, None, self.outcome(self.broker.reject(id, by="ana")))

    def closed(self, id: str, value: str | None, outcome: type[HandraiseError] | None) -> None:
        ask = self.model.get(id)
        if ask is None:
            assert outcome is AskNotFound
            return
        assert outcome is ask.refusal(value)
        if ask.state == "asked":
            self.tell(id, ask.close(value, by="ana"))

    @rule(id=IDS)
    def answer_what_does_not_fit(self, id: str) -> None:
        outcome = self.outcome(self.broker.answer(id, Answer(answers=(("x",), ("y",)))))
        ask = self.model.get(id)
        if ask is None:
            assert outcome is AskNotFound
        elif ask.state == "asked":
            assert outcome is AnswerDoesNotFit
        else:
            assert outcome is (AskWithdrawn if ask.state == "withdrawn" else AlreadyAnswered)

    @rule(id=IDS)
    def withdraw(self, id: str) -> None:
        outcome = self.outcome(self.broker.withdraw(id))
        ask = self.model.get(id)
        if ask is None:
            assert outcome is AskNotFound
        elif ask.state in ("answered", "rejected"):
            assert outcome is AlreadyAnswered
        else:
            assert outcome is None
            if ask.state == "asked":
                ask.state = "withdrawn"
                self.tell(id, "withdrawn")

    @rule(id=IDS)
    def keep_waiting(self, id: str) -> None:
        outcome = self.outcome(self.broker.keep_waiting(id))
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

    @rule(id=IDS, error=st.sampled_from([None, "it had died"]))
    def deliver(self, id: str, error: str | None) -> None:
        (reported,) = self.run(self.broker.report([(id, error)]))
        ask = self.model.get(id)
        assert (reported is None) == (ask is None)
        if ask is not None and ask.state in ("answered", "rejected") and not ask.delivered:
            ask.delivered, ask.error = error is None, error
            self.tell(id, "delivered")

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: int) -> None:
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
            self.run(self.broker.wait(id))

    @rule(seconds=st.sampled_from([0, 0, 61]))
    def restart(self, seconds: int) -> None:
        """The desk ends, time passes, and another one begins with what the first one left."""
        self.run(self.broker.__aexit__(None, None, None))
        for id, waiting in self.waiting.items():
            assert self.run(_result(waiting)).state == "asked", f"the wait for {id} ended with another state"
        self.waiting = {}
        self.run(self.clock.advance(seconds))
        self.store = self.run(self.reopen_store())
        self.broker = self.run(self.start())
        self.deadlines_pass()
        for id in [id for id, ask in self.model.items() if ask.state == "asked"]:
            self.wait_for(id)

    @invariant()
    def every_ask_is_as_it_should_be(self) -> None:
        for id, model in self.model.items():
            ask = self.run(self.broker.get(id))
            assert ask.state == model.state
            assert (ask.answer.value if ask.answer else None) == model.value
            assert (ask.answer.by if ask.answer else "") == model.by
            assert (ask.deadline and round(ask.deadline.timestamp() * 1000)) == model.deadline
            assert (ask.delivered_at is not None, ask.delivery_error) == (model.delivered, model.error)

    @precondition(lambda self: self.waiting)
    @invariant()
    def whoever_waits_hears_of_the_end(self) -> None:
        for id in [id for id in self.waiting if self.model[id].state != "asked"]:
            heard = self.run(_result(self.waiting.pop(id)))
            assert heard.state == self.model[id].state

    def teardown(self) -> None:
        history = self.run(self.store.history(Query(), after=0, limit=10_000))
        self.run(self.broker.__aexit__(None, None, None))
        self.run(self.store.close())
        self.runner.close()
        assert [(event.type, event.ask.id) for event in history] == self.told
        assert [event.cursor for event in history] == list(range(1, len(history) + 1))


class DeskOnDisk(Desk):
    """The same on a file, which a restart closes and opens again."""

    async def open_store(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return await SqliteStore.open_file(Path(self.folder.name) / "desk.db")

    async def reopen_store(self) -> Store:
        await self.store.close()
        return await SqliteStore.open_file(Path(self.folder.name) / "desk.db")

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.folder.cleanup()


async def _result(waiting: asyncio.Task[Stored]) -> Stored:
    return await waiting


TestDeskInMemory = Desk.TestCase
TestDeskInMemory.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestDeskOnDisk = DeskOnDisk.TestCase
TestDeskOnDisk.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
