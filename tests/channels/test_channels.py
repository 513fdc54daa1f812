"""Channels at a desk: what keeps a place posted, what runs them side by side, and who may answer there."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from handraise.app import open_store
from handraise.asks import Answer, Ask, Handling
from handraise.broker import Broker
from handraise.channels import Channel, Inbox, Postbox, Reach, SendFailed
from handraise.channels._posting import keep_posted
from handraise.errors import AlreadyAnswered, Forbidden
from handraise.events import Event, Unseen
from handraise.people import MAY, USUALLY, May, People, Person
from handraise.stores import Store
from handraise.switchboard import Channels, Made
from handraise.tables import audit
from handraise.tables.leases import Leases
from handraise.tables.showings import TOPIC, ShowingRecord
from handraise.testing import FakeClock, a_permission, an_ask
from handraise.wire.plain import to_plain
from tests.helpers.serving import PATIENCE, DeskProcess, eventually, first_event, path_of, told
from tests.helpers.wall import ANA, Notes, Wall

LEASE = PATIENCE + 1  # so that who waits for a lease to run out waits too long
POSTGRES = Answer(answers=(("Postgres",),))
SHARED, STRONG = Reach(identity="shared"), Reach(identity="strong")
RISKY, HARMLESS = a_permission(), a_permission(id="harmless", summary="List the files", command="ls")


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
async def desk(store: Store, fake_clock: FakeClock) -> AsyncIterator[Broker]:
    """A desk on each kind of database, on the fake clock."""
    async with Broker(store, clock=fake_clock) as broker:
        yield broker


def people(*may: May, **known_as: str) -> People:
    ana = Person(name="ana", known_as=known_as or {"wall": ANA}, may=may or USUALLY)
    return People({"ana": ana})


def made(*channels: Channel) -> list[Made]:
    return [Made(name=channel.name, kind="notes", channel=channel) for channel in channels]


@asynccontextmanager
async def hosted(
    broker: Broker, *channels: Channel, listed: People | None = None, **more: Any
) -> AsyncIterator[Channels]:
    async with Channels(broker, made(*channels), people=listed or people(), pause=0.001, **more) as host:
        yield host


@asynccontextmanager
async def running(broker: Any, channel: Any) -> AsyncIterator[None]:
    """The channel alone, without those who check who answers; if it breaks, so does the test."""
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(channel.run(broker))
        yield
        task.cancel()


async def showing(broker: Broker, id: str, wanted: Callable[[ShowingRecord], bool]) -> ShowingRecord:
    """The first word on where an ask was shown that fits; waits for it."""
    written = asyncio.Event()
    hush = broker.store.hear(TOPIC, written.set)
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                for record in await broker.showings.of(id):
                    if wanted(record):
                        return record
                await written.wait()
                written.clear()
    finally:
        hush()


async def reported(broker: Broker, id: str, state: str, *, channel: str = "wall") -> ShowingRecord:
    return await showing(broker, id, lambda record: (record.channel, record.state) == (channel, state))


async def left(broker: Broker, id: str) -> None:
    """Return once nothing is left to do there."""
    written = asyncio.Event()
    hush = broker.store.hear(TOPIC, written.set)
    try:
        async with asyncio.timeout(PATIENCE):
            while id in await broker.places("wall"):
                await written.wait()
                written.clear()
    finally:
        hush()


async def outcome(broker: Broker, id: str) -> Answer:
    answer = (await broker.wait(id, timeout=PATIENCE)).ask().answer
    assert answer is not None, f"{id} is still open"
    return answer


# Keeping a place posted -------------------------------------------------------------------------------------


async def test_what_is_asked_is_posted_once_and_says_how_it_ended(desk: Broker, wall: Wall) -> None:
    async with running(desk, Notes(wall)):
        await desk.open(an_ask())
        await reported(desk, "ask-1", "sent")
        await desk.keep_waiting("ask-1")
        await desk.open(an_ask())
        await desk.answer("ask-1", Answer(answers=(("SQLite",),), by="bob", via="web"))
        await wall.until(lambda: not wall.hangs("ask-1"))
        await left(desk, "ask-1")
    [note] = wall.notes
    assert note.ending is not None and note.ending.answer is not None
    assert (note.ending.answer.value, note.ending.answer.by) == ("SQLite", "bob")


async def test_what_policy_answers_at_once_bothers_nobody(broker: Broker, wall: Wall) -> None:
    async with running(broker, Notes(wall)):
        await broker.open(an_ask(id="before"))
        await wall.until(lambda: wall.hangs("before"))
        await broker.open(an_ask(id="decided"), handling=Handling(question_policy="accept-first"))
        await broker.open(an_ask(id="after"))
        await wall.until(lambda: wall.hangs("after"))
    assert not wall.of("decided")


async def test_a_place_that_takes_nothing_is_tried_until_it_does(desk: Broker, wall: Wall) -> None:
    wall.takes = False
    async with running(desk, Notes(wall)):
        await desk.open(an_ask())
        failed = await reported(desk, "ask-1", "failed")
        assert failed.error == "the wall is wet"
        tries = wall.tries
        await eventually(lambda: wall.tries > tries + 2)
        wall.takes = True
        sent = await reported(desk, "ask-1", "sent")
        assert sent.error is None
    assert len(wall.notes) == 1


async def test_what_was_settled_before_the_place_took_it_is_not_posted(broker: Broker, wall: Wall) -> None:
    wall.takes = False
    async with running(broker, Notes(wall)):
        await broker.open(an_ask())
        await reported(broker, "ask-1", "failed")
        await broker.withdraw("ask-1")
        wall.takes = True
        await broker.open(an_ask(id="after"))
        await wall.until(lambda: wall.hangs("after"))
    assert not wall.of("ask-1")


class Stumbling(Notes):
    """Has a mistake of its own, which one kind of ask brings out."""

    async def post(self, ask: Ask) -> str:
        if ask.id == "poison":
            raise KeyError("header")
        return await super().post(ask)


async def test_an_ask_that_a_channel_stumbles_over_does_not_take_the_others_with_it(broker: Broker, wall: Wall) -> None:
    async with running(broker, Stumbling(wall)):
        await broker.open(an_ask(id="poison"))
        failed = await reported(broker, "poison", "failed")
        assert failed.error == "KeyError: 'header'"
        await broker.open(an_ask())
        await wall.until(lambda: wall.hangs("ask-1"))
        await reported(broker, "ask-1", "sent")


class Impatient(Notes):
    """Gives each call little time, and tries a few times; what an ask is called says what becomes of it."""

    def __init__(self, wall: Wall) -> None:
        super().__init__(wall)
        self.calls = Counter[str]()

    async def run(self, inbox: Postbox) -> None:
        await keep_posted(inbox, self, patience=0.05, attempts=3, pause=0.001, calm=3600)

    async def post(self, ask: Ask) -> str:
        self.calls[ask.id] += 1
        match ask.id:
            case "stuck":
                await asyncio.Event().wait()
            case "busy":
                raise SendFailed("too many messages", again=60)
            case "full":
                raise SendFailed("come back in an hour", again=3600)
            case "flaky":
                raise SendFailed("not this time", again=0)
            case "never":
                raise SendFailed("there is no such place", again=None)
        return await super().post(ask)


@pytest.mark.parametrize(
    ("id", "error", "calls"),
    [
        ("stuck", "it did not answer within 0.05 s", 3),
        ("flaky", "not this time", 3),
        ("full", "come back in an hour", 1),
        ("never", "there is no such place", 1),
    ],
)
async def test_what_hangs_or_never_works_is_given_up(
    broker: Broker, wall: Wall, id: str, error: str, calls: int
) -> None:
    channel = Impatient(wall)
    async with running(broker, channel):
        await broker.open(an_ask(id=id))
        await broker.open(an_ask())
        assert (await reported(broker, id, "failed")).error == error
        await wall.until(lambda: wall.hangs("ask-1"))
        await broker.answer(id, POSTGRES)
        await broker.open(an_ask(id="after"))
        await wall.until(lambda: wall.hangs("after"))
    assert channel.calls[id] == calls


async def test_who_is_told_to_wait_does_and_holds_up_no_other_ask(broker: Broker, wall: Wall) -> None:
    channel = Impatient(wall)
    async with running(broker, channel):
        await broker.open(an_ask(id="busy"))
        await broker.open(an_ask(id="flaky"))
        await reported(broker, "flaky", "failed")  # who was not told to wait has tried a few times by now
        await broker.answer("busy", POSTGRES)  # nobody wants it any more, so the minute is over
        await broker.open(an_ask())
        await reported(broker, "ask-1", "sent")
    assert channel.calls["busy"] == 1


async def test_a_place_that_is_away_when_it_ends_says_so_later(broker: Broker, wall: Wall) -> None:
    async with running(broker, Notes(wall)):
        await broker.open(an_ask())
        await reported(broker, "ask-1", "sent")
        wall.takes = False
        await broker.answer("ask-1", POSTGRES)
        tries = wall.tries
        await eventually(lambda: wall.tries > tries + 2)
        assert "ask-1" in await broker.places("wall")
        wall.takes = True
        await wall.until(lambda: not wall.hangs("ask-1"))
        await left(broker, "ask-1")


async def test_what_is_asked_again_is_posted_again_also_while_the_place_is_away(broker: Broker, wall: Wall) -> None:
    async with running(broker, Notes(wall)):
        await broker.open(an_ask())
        await reported(broker, "ask-1", "sent")
        await broker.withdraw("ask-1")
        await wall.until(lambda: not wall.hangs("ask-1"))
        await left(broker, "ask-1")
        wall.takes = False
        await broker.open(an_ask())
        await reported(broker, "ask-1", "failed")
    assert "ask-1" not in await broker.places("wall"), "what hangs there says that it is over"
    wall.takes = True
    async with running(broker, Notes(wall)):
        await wall.until(lambda: len(wall.of("ask-1")) == 2)
        assert wall.hangs("ask-1")


class Slow(Notes):
    """Takes its time to say how it ended."""

    def __init__(self, wall: Wall) -> None:
        super().__init__(wall)
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def rewrite(self, place: str, ask: Ask) -> None:
        self.began.set()
        await self.go_on.wait()
        await super().rewrite(place, ask)


async def test_what_is_asked_again_while_it_is_being_rewritten_is_posted_again(broker: Broker, wall: Wall) -> None:
    channel = Slow(wall)
    async with running(broker, channel):
        await broker.open(an_ask())
        await reported(broker, "ask-1", "sent")
        await broker.withdraw("ask-1")
        await channel.began.wait()
        await broker.open(an_ask())
        await broker.open(an_ask(id="after"))
        await wall.until(lambda: wall.hangs("after"))
        channel.go_on.set()
        await wall.until(lambda: len(wall.of("ask-1")) == 2)
        await broker.answer("ask-1", POSTGRES)
        await wall.until(lambda: not wall.hangs("ask-1"))
    assert [note.ending and note.ending.state for note in wall.of("ask-1")] == ["withdrawn", "answered"]


async def test_what_is_asked_again_before_it_was_rewritten_still_stands_there(broker: Broker, wall: Wall) -> None:
    async with running(broker, Notes(wall)):
        await broker.open(an_ask())
        await reported(broker, "ask-1", "sent")
        wall.takes = False
        await broker.withdraw("ask-1")
        tries = wall.tries
        await eventually(lambda: wall.tries > tries)
        await broker.open(an_ask())
        wall.takes = True
        await broker.open(an_ask(id="after"))
        await wall.until(lambda: wall.hangs("after"))
        await broker.answer("ask-1", POSTGRES)
        await wall.until(lambda: not wall.hangs("ask-1"))
    [note] = wall.of("ask-1")
    assert note.ending is not None and note.ending.state == "answered"


async def test_after_a_restart_nothing_is_posted_twice_and_what_ended_says_so(desk: Broker, wall: Wall) -> None:
    async with running(desk, Notes(wall)):
        for id in ("stays", "ends", "pruned"):
            await desk.open(an_ask(id=id))
            await reported(desk, id, "sent")
    await desk.answer("pruned", POSTGRES)
    while await desk.store.prune(before=desk.clock.now() + 1, limit=100):
        pass
    await desk.answer("ends", POSTGRES)
    async with running(desk, Notes(wall)):
        await wall.until(lambda: not wall.hangs("ends"))
        await desk.open(an_ask(id="after"))
        await wall.until(lambda: wall.hangs("after"))
        await left(desk, "ends")
        await left(desk, "pruned")
        await desk.answer("stays", POSTGRES)
        await wall.until(lambda: not wall.hangs("stays"))
    assert [note.ask.id for note in wall.notes] == ["stays", "ends", "pruned", "after"]
    assert wall.hangs("pruned"), "nobody knows any more how it ended"


# Side by side -----------------------------------------------------------------------------------------------


class Deaf(Notes):
    """Breaks while it listens, a few times."""

    deaf = 3

    async def listen(self, inbox: Inbox) -> None:
        self.deaf -= 1
        if self.deaf:
            raise ConnectionError("the line is dead")
        await super().listen(inbox)


async def test_a_channel_that_cannot_listen_tries_again_and_shows_what_is_asked_meanwhile(
    broker: Broker, wall: Wall
) -> None:
    async with running(broker, Deaf(wall)):
        await broker.open(an_ask())
        await wall.until(lambda: wall.hangs("ask-1"))
        wall.replies.put_nowait((an_ask(), POSTGRES))
        assert (await outcome(broker, "ask-1")).value == "Postgres"


class Late:
    """A desk that says what happened only while `gate` is open; what it has, it shows at once."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.gate = asyncio.Event()
        self.gate.set()
        self.looks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def get(self, id: str) -> Ask:
        self.looks += 1
        return await self._broker.get(id)

    async def events(self, *, after: int) -> AsyncIterator[Event]:
        async for event in self._broker.events(after=after):
            await self.gate.wait()
            yield event


async def test_what_the_desk_knows_before_it_is_told_is_not_posted_twice(broker: Broker, wall: Wall) -> None:
    late = Late(broker)
    async with running(late, Notes(wall)):
        await broker.open(an_ask())
        await reported(broker, "ask-1", "sent")
        wall.takes = False
        await broker.withdraw("ask-1")
        await eventually(lambda: late.looks > 0)
        late.gate.clear()
        await broker.open(an_ask())
        looks = late.looks
        await eventually(lambda: late.looks > looks)
        wall.takes = True
        late.gate.set()
        await broker.open(an_ask(id="after"))
        await wall.until(lambda: wall.hangs("after"))
        await broker.answer("ask-1", POSTGRES)
        await wall.until(lambda: not wall.hangs("ask-1"))
    assert len(wall.of("ask-1")) == 1


class Hanging(Notes):
    async def post(self, ask: Ask) -> str:
        await asyncio.Event().wait()
        return ""


class Breaking(Notes):
    """Breaks in `how` it says, and counts how often it was started."""

    starts = 0

    def __init__(self, wall: Wall, how: Callable[[], Any]) -> None:
        super().__init__(wall, name="breaking")
        self._how = how

    async def run(self, inbox: Postbox) -> None:
        self.starts += 1
        self._how()


def fail(kind: type[BaseException], *said: str) -> Callable[[], None]:
    def how() -> None:
        raise kind(*said)

    return how


async def test_a_channel_that_hangs_or_breaks_delays_neither_the_others_nor_the_agent(desk: Broker, wall: Wall) -> None:
    breaking = Breaking(Wall(), fail(RuntimeError, "no such room"))
    async with (
        asyncio.timeout(PATIENCE),
        hosted(desk, Hanging(Wall(), name="hanging"), breaking, Notes(wall)),
        asyncio.TaskGroup() as tasks,
    ):
        agent = tasks.create_task(desk.ask(an_ask()))
        await wall.until(lambda: wall.hangs("ask-1"))
        wall.replies.put_nowait((an_ask(), POSTGRES))
        answer = await agent
        assert (answer.value, answer.by, answer.via) == ("Postgres", "ana", "wall")
        await wall.until(lambda: not wall.hangs("ask-1"))
        await eventually(lambda: breaking.starts > 2)


async def test_what_a_broken_channel_should_show_does_not_wait_unseen(
    desk: Broker, wall: Wall, fake_clock: FakeClock
) -> None:
    async with hosted(desk, Notes(wall)):
        await desk.open(an_ask(id="shown"))
        await reported(desk, "shown", "sent")
    breaking = Breaking(wall, fail(RuntimeError, "no such room"))
    breaking.name = "wall"
    await desk.open(an_ask(id="before"))
    async with hosted(desk, breaking):
        await desk.open(an_ask(id="after"), handling=Handling(question_timeout=600, on_timeout="reject"))
        for id in ("before", "after"):
            assert (await reported(desk, id, "failed")).error == "no such room"
        await fake_clock.advance(11)
        assert (await outcome(desk, "after")).by == "policy:unseen"
        await first_event(desk, lambda event: isinstance(event, Unseen) and event.ask.id == "before")
    assert [record.state for record in await desk.showings.of("shown")] == ["sent"], "it was there before it broke"


async def test_one_that_cannot_be_made_shows_nothing_and_says_so_where_its_reach_is_known(
    desk: Broker, fake_clock: FakeClock
) -> None:
    wrong = Made(name="pager", kind="notify", problem="urls is missing", reach=Reach())
    starts = Made(name="board", kind="linear", problem="no token", reach=Reach(starts_agents=True))
    unknown = Made(name="other", kind="other", problem="it cannot be loaded")
    async with Channels(desk, [wrong, starts, unknown], people=people()):
        await desk.open(an_ask(), handling=Handling(question_timeout=600, on_timeout="reject"))
        assert (await reported(desk, "ask-1", "failed", channel="pager")).error == "urls is missing"
        await fake_clock.advance(11)
        assert "pager: urls is missing" in ((await outcome(desk, "ask-1")).reason or "")
    assert [record.channel for record in await desk.showings.of("ask-1")] == ["pager"]


@pytest.mark.parametrize(
    ("how", "trouble"),
    [
        (fail(RuntimeError, "no such room"), "no such room"),
        (fail(RuntimeError), "RuntimeError"),
        (fail(asyncio.CancelledError), "it cancelled itself"),
        (lambda: None, "it ended by itself"),
    ],
)
async def test_a_channel_that_breaks_is_started_again_and_its_trouble_told(
    broker: Broker, wall: Wall, how: Callable[[], Any], trouble: str
) -> None:
    channel = Breaking(wall, how)
    async with hosted(broker, channel) as host:
        await eventually(lambda: channel.starts > 2)
        await eventually(lambda: host.states()[0].trouble is not None)
        [state] = host.states()
    assert (state.name, state.kind, state.state, state.trouble) == ("breaking", "notes", "broken", trouble)
    assert "reach" in to_plain(state.to_shape())


async def test_a_channel_that_cannot_be_made_is_told_and_holds_up_nobody(broker: Broker, wall: Wall) -> None:
    channels = [Made(name="odd", kind="telepathy", problem="channels: no 'telepathy'"), *made(Notes(wall))]
    async with Channels(broker, channels, people=people()) as host:
        await broker.open(an_ask())
        await wall.until(lambda: wall.hangs("ask-1"))
        states = {state.name: (state.state, state.trouble) for state in host.states()}
    assert states == {"odd": ("broken", "channels: no 'telepathy'"), "wall": ("running", None)}


@pytest.mark.parametrize(("has_worker", "state"), [(False, "elsewhere"), (True, "running")])
async def test_a_channel_that_starts_agents_runs_where_a_worker_is(
    broker: Broker, wall: Wall, has_worker: bool, state: str
) -> None:
    starting = Notes(wall, reach=Reach(starts_agents=True))
    beside = Wall()
    async with hosted(broker, starting, Notes(beside, name="beside"), has_worker=has_worker) as host:
        await broker.open(an_ask())
        await beside.until(lambda: beside.hangs("ask-1"))
        if has_worker:
            await wall.until(lambda: wall.hangs("ask-1"))
        assert host.states()[0].state == state
    assert wall.hangs("ask-1") == has_worker


# Nobody waits unseen ----------------------------------------------------------------------------------------


async def unseen(broker: Broker) -> list[str]:
    """The asks of which the alarm was told, by all that has happened."""
    found, end = [], await broker.cursor()
    async for event in broker.events(after=0):
        found += [event.ask.id] if isinstance(event, Unseen) else []
        if event.cursor >= end:
            break
    return found


async def test_what_nobody_could_be_shown_is_decided_as_silence_would(
    desk: Broker, wall: Wall, fake_clock: FakeClock
) -> None:
    wall.takes = False
    async with hosted(desk, Notes(wall)):
        await desk.open(an_ask(), handling=Handling(question_timeout=600))
        await reported(desk, "ask-1", "failed")
        await fake_clock.advance(9)
        assert (await desk.get("ask-1")).state == "asked"
        await fake_clock.advance(1)
        answer = await outcome(desk, "ask-1")
    assert (answer.value, answer.by) == ("SQLite", "policy:unseen")
    assert "nobody could be shown this (wall: the wall is wet)" in answer.why
    assert desk.counts.unseen == 1


async def test_a_permission_is_never_granted_because_nobody_could_be_asked(
    desk: Broker, wall: Wall, fake_clock: FakeClock
) -> None:
    wall.takes = False
    async with hosted(desk, Notes(wall)):
        for asked in (RISKY, HARMLESS):
            await desk.open(asked, handling=Handling(question_timeout=600, on_timeout="accept-first"))
            await reported(desk, asked.id, "failed")
        await fake_clock.advance(10)
        answers = [await outcome(desk, asked.id) for asked in (RISKY, HARMLESS)]
    assert [answer.rejected for answer in answers] == [True, True]
    assert {answer.reason for answer in answers} == {"nobody could be shown this (wall: the wall is wet)"}


async def test_where_policy_says_to_wait_the_alarm_is_told_once_and_it_goes_on_waiting(
    desk: Broker, wall: Wall, fake_clock: FakeClock
) -> None:
    wall.takes = False
    async with hosted(desk, Notes(wall)):
        await desk.open(an_ask())
        await reported(desk, "ask-1", "failed")
        await fake_clock.advance(10)
        alarm = await first_event(desk, lambda event: isinstance(event, Unseen))
        assert (alarm.ask.id, alarm.ask.state) == ("ask-1", "asked")
        at = fake_clock.now()
        await fake_clock.advance(60)
        await showing(desk, "ask-1", lambda record: record.state == "failed" and record.at > at)
        await fake_clock.advance(60)
        wall.takes = True
        await wall.until(lambda: wall.hangs("ask-1"))
        wall.replies.put_nowait((an_ask(), POSTGRES))
        assert (await outcome(desk, "ask-1")).by == "ana"
    assert await unseen(desk) == ["ask-1"]


async def test_what_is_asked_again_is_told_again(broker: Broker, wall: Wall, fake_clock: FakeClock) -> None:
    wall.takes = False
    async with hosted(broker, Notes(wall)):
        for _ in range(2):
            await broker.open(an_ask())
            at = fake_clock.now()
            await showing(broker, "ask-1", lambda record, at=at: record.state == "failed" and record.at >= at)
            await fake_clock.advance(10)
            await broker.withdraw("ask-1")
            await fake_clock.advance(1)
    assert await unseen(broker) == ["ask-1", "ask-1"]


async def test_somebody_who_looks_at_the_desk_sees_it(broker: Broker, wall: Wall, fake_clock: FakeClock) -> None:
    wall.takes = False
    async with hosted(broker, Notes(wall)):
        with broker.presence.looking():
            await broker.open(an_ask(), handling=Handling(question_timeout=600))
            await reported(broker, "ask-1", "failed")
            await fake_clock.advance(20)
        assert (await broker.get("ask-1")).state == "asked"
    assert await unseen(broker) == []


async def test_another_channel_has_ten_seconds_to_show_it(desk: Broker, wall: Wall, fake_clock: FakeClock) -> None:
    wall.takes, late = False, Wall()
    late.takes = False
    async with hosted(desk, Notes(wall), Notes(late, name="late")):
        await desk.open(an_ask(), handling=Handling(question_timeout=600))
        await reported(desk, "ask-1", "failed")
        await reported(desk, "ask-1", "failed", channel="late")
        await fake_clock.advance(5)
        late.takes = True
        await reported(desk, "ask-1", "sent", channel="late")
        await fake_clock.advance(20)
        await desk.open(an_ask(id="after"))
        await late.until(lambda: late.hangs("after"))
        assert (await desk.get("ask-1")).state == "asked"
        await fake_clock.advance(600)
        assert (await outcome(desk, "ask-1")).by == "policy:timeout"


# Who may answer ---------------------------------------------------------------------------------------------


REJECTED = Answer(rejected=True, reason="no")
MAY_ANSWER: dict[str, tuple[Ask, Answer, Reach, People, str | None]] = {
    "who is listed": (an_ask(), POSTGRES, SHARED, people(), None),
    "in whatever case": (an_ask(), POSTGRES, SHARED, people(wall=ANA.upper()), None),
    "nobody is listed": (an_ask(), POSTGRES, STRONG, People(), "is not listed under [people]"),
    "listed for elsewhere": (an_ask(), POSTGRES, STRONG, people(linear=ANA), "is not listed under [people]"),
    "a stranger's refusal": (an_ask(), REJECTED, STRONG, People(), "is not listed under [people]"),
    "no questions": (an_ask(), POSTGRES, STRONG, people("permissions", "risky"), "may has no 'questions'"),
    "a permission": (HARMLESS, Answer(reply="once"), SHARED, people(), None),
    "no permissions": (HARMLESS, Answer(reply="once"), STRONG, people("questions"), "may has no 'permissions'"),
    "not even refusing": (HARMLESS, REJECTED, STRONG, people("questions"), "may has no 'permissions'"),
    "risky": (RISKY, Answer(reply="once"), STRONG, people(*MAY), None),
    "not risky by default": (RISKY, Answer(reply="once"), STRONG, people(), "may has no 'risky'"),
    "risky where anybody could be it": (RISKY, Answer(reply="once"), SHARED, people(*MAY), "allow it at the desk"),
    "always is risky too": (RISKY, Answer(reply="always"), SHARED, people(*MAY), "allow it at the desk"),
    "refusing a risky one": (RISKY, REJECTED, SHARED, people(), None),
    "refusing by reply": (RISKY, Answer(reply="reject"), SHARED, people(), None),
}


@pytest.mark.parametrize("who", MAY_ANSWER)
async def test_only_who_may_decide_this_does(broker: Broker, wall: Wall, who: str) -> None:
    ask, said, reach, listed, refused = MAY_ANSWER[who]
    async with asyncio.timeout(PATIENCE), hosted(broker, Notes(wall, reach=reach), listed=listed):
        await broker.open(ask)
        await wall.until(lambda: wall.hangs(ask))
        wall.replies.put_nowait((ask, said))
        if refused is None:
            answer = await outcome(broker, ask.id)
            assert (answer.by, answer.via) == ("ana", "wall")
            assert answer.rejected == (said.rejected or said.reply == "reject")
        else:
            await wall.until(lambda: bool(wall.notes[-1].under))
            assert refused in wall.notes[-1].under[-1]
            assert (await broker.get(ask.id)).state == "asked"


async def test_refusing_through_the_inbox_is_checked_too(broker: Broker, wall: Wall) -> None:
    done: asyncio.Queue[object] = asyncio.Queue()

    class Refusing(Notes):
        async def listen(self, inbox: Inbox) -> None:
            for by in ("eve@example.com", "", ANA):
                try:
                    done.put_nowait(await inbox.reject("ask-1", reason="no", by=by, via="x"))
                except Forbidden as problem:
                    done.put_nowait(problem)
            await asyncio.Event().wait()

    await broker.open(an_ask())
    async with asyncio.timeout(PATIENCE), hosted(broker, Refusing(wall)):
        refused = [await done.get() for _ in range(3)]
    assert [type(each) for each in refused] == [Forbidden, Forbidden, Ask]
    answer = await outcome(broker, "ask-1")
    assert (answer.rejected, answer.reason, answer.by, answer.via) == (True, "no", "ana", "wall")


@pytest.mark.parametrize("reach", [SHARED, STRONG], ids=["shared", "strong"])
async def test_the_audit_says_how_sure_it_is_who_that_was(desk: Broker, wall: Wall, reach: Reach) -> None:
    async with hosted(desk, Notes(wall, reach=reach)):
        await desk.open(an_ask())
        wall.replies.put_nowait((an_ask(), POSTGRES))
        await outcome(desk, "ask-1")
    [line], _ = await audit.lines(desk.store)
    assert {key: line[key] for key in ("decision", "by", "via", "identity", "token", "address")} == {
        "decision": "answered",
        "by": "ana",
        "via": "wall",
        "identity": reach.identity,
        "token": None,
        "address": None,
    }


async def test_who_comes_second_hears_of_the_first(broker: Broker, wall: Wall) -> None:
    async with hosted(broker, Notes(wall), listed=people()):
        await broker.open(an_ask())
        await wall.until(lambda: wall.hangs("ask-1"))
        await broker.answer("ask-1", Answer(answers=(("SQLite",),), by="bob", via="web"))
        wall.replies.put_nowait((an_ask(), POSTGRES))
        await wall.until(lambda: not wall.hangs("ask-1"))
        with pytest.raises(AlreadyAnswered, match="by bob in web"):
            await broker.answer("ask-1", POSTGRES)


# Several desks ----------------------------------------------------------------------------------------------


async def test_of_two_desks_one_runs_it_and_the_other_when_that_one_leaves(
    new_database: Callable[[], str], wall: Wall
) -> None:
    address = new_database()
    stores = [await open_store(address) for _ in range(2)]
    async with Broker(stores[0]) as first, Broker(stores[1]) as second, AsyncExitStack() as leaving:
        host = hosted(first, Notes(wall), leases=Leases(stores[0], owner="first", seconds=LEASE))
        here = await leaving.enter_async_context(host)
        await eventually(lambda: here.states()[0].state == "running")
        async with hosted(second, Notes(wall), leases=Leases(stores[1], owner="second", seconds=LEASE)) as there:
            for id in ("one", "two", "three"):
                await second.open(an_ask(id=id))
                await wall.until(lambda id=id: wall.hangs(id))
            assert [each.states()[0].state for each in (here, there)] == ["running", "elsewhere"]
            await leaving.aclose()
            await eventually(lambda: there.states()[0].state == "running")
            await first.open(an_ask(id="four"))
            await wall.until(lambda: wall.hangs("four"))
    for store in stores:
        await store.close()
    assert [note.ask.id for note in wall.notes] == ["one", "two", "three", "four"]


FILED = '''
import os
from pathlib import Path

from handraise.channels import Reach
from handraise.channels._posting import keep_posted


class Filed:
    """Writes what it posts into a file, and who did it."""

    reach = Reach()

    def __init__(self, settings):
        self.name = settings.name
        self.file = Path(settings.table["file"])

    async def run(self, inbox):
        await keep_posted(inbox, self)

    async def post(self, ask):
        with self.file.open("a") as file:
            file.write(f"{os.getpid()} {ask.id}\\n")
        return ask.id

    async def rewrite(self, place, ask):
        with self.file.open("a") as file:
            file.write(f"{os.getpid()} {ask.id} {ask.state}\\n")
'''


async def test_a_killed_desk_leaves_its_channels_to_the_other(tmp_path: Path, new_database: Callable[[], str]) -> None:
    file, installed = tmp_path / "posted", tmp_path / "installed"
    (installed / "filed-1.dist-info").mkdir(parents=True)
    (installed / "filed-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: filed\nVersion: 1\n")
    (installed / "filed-1.dist-info" / "entry_points.txt").write_text("[handraise.channels]\nfiled = filed:Filed\n")
    (installed / "filed.py").write_text(FILED)
    (tmp_path / "config" / "handraise").mkdir(parents=True)
    settings = f'[desk]\nlease = 1\n[channels.book]\nkind = "filed"\nfile = "{file}"\n'
    (tmp_path / "config" / "handraise" / "config.toml").write_text(settings)
    file.touch()
    environ = {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(installed), os.environ.get("PYTHONPATH")))),
        "HANDRAISE_DATABASE": new_database(),
    }

    def posted(*rest: str) -> list[str]:
        return [line for line in file.read_text().splitlines() if line.split()[1:] == list(rest)]

    async def state(desk: DeskProcess) -> str:
        async with desk.client() as http:
            [channel] = (await told(http.get("/v1/channels"), 200))["channels"]
            return str(channel["state"])

    async with DeskProcess(tmp_path / "a", **environ) as one, DeskProcess(tmp_path / "b", **environ) as two:
        async with two.client() as http:
            await told(http.post("/v1/asks", json=body("before")), 201)
            await eventually(lambda: bool(posted("before")))
            async with asyncio.timeout(PATIENCE):  # until the desk that posted it has written down where
                while not (await told(http.get(path_of("before", "showings")), 200))["showings"]:
                    await asyncio.sleep(0.01)
        states = {desk: await state(desk) for desk in (one, two)}
        assert sorted(states.values()) == ["elsewhere", "running"]
        killed, survivor = sorted((one, two), key=lambda desk: states[desk], reverse=True)
        await killed.kill()
        async with survivor.client() as http:
            await told(http.post("/v1/asks", json=body("after")), 201)
            await told(http.post(path_of("before", "answer"), json={"answers": [["SQLite"]]}), 200)
            await eventually(lambda: bool(posted("after")))
            await eventually(lambda: bool(posted("before", "answered")))
    assert len(posted("before")) == 1, "it was there already"
    [(first, _)], [(second, _)] = ([line.split() for line in posted(id)] for id in ("before", "after"))
    assert first != second


def body(id: str) -> dict[str, Any]:
    question = {"question": "Which database should I use?", "options": [{"label": "SQLite"}, {"label": "Postgres"}]}
    return {"id": id, "questions": [question], "origin": {"agent": "scripted", "session": "s1"}}
