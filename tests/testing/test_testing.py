"""What others test theirs with (T1): the fakes do what they say, and each suite finds what is wrong."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import handraise.testing
from handraise.agents import Asker, Reply, Start
from handraise.asks import Answer, Ask, Handling
from handraise.broker import Broker
from handraise.channels import Inbox, Postbox, SendFailed
from handraise.client import Client
from handraise.errors import AlreadyAnswered, AnswerDoesNotFit, AskWithdrawn
from handraise.policies import Forward, Policy, accept_first, reject
from handraise.stores import Change, Changed, NewAsk, Opened
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing import (
    AgentDriver,
    ChannelDriver,
    FakeClock,
    Scripted,
    ScriptedPerson,
    a_permission,
    an_ask,
    check_agent,
    check_channel,
    check_policy,
    check_store,
)
from handraise.testing.postgres import postgres_server
from tests.helpers.serving import PATIENCE, serving
from tests.helpers.wall import Notes, WallDriver

# The fakes --------------------------------------------------------------------------------------------------


async def test_a_fake_clock_fires_timers_in_order_at_their_own_time() -> None:
    clock = FakeClock()
    start = clock.now()
    fired: list[tuple[str, int]] = []
    clock.call_at(start + 3000, lambda: fired.append(("late", clock.now() - start)))
    clock.call_at(start + 1000, lambda: fired.append(("early", clock.now() - start)))
    cancel = clock.call_at(start + 2000, lambda: fired.append(("never", 0)))
    cancel()
    await clock.advance(2.5)
    assert (fired, clock.now() - start) == ([("early", 1000)], 2500)
    await clock.advance(0.5)
    assert fired == [("early", 1000), ("late", 3000)]


async def test_a_timer_that_a_timer_sets_fires_in_the_same_advance() -> None:
    clock = FakeClock()
    times: list[int] = []

    def tick() -> None:
        times.append(clock.now())
        clock.call_at(clock.now() + 1000, tick)

    clock.call_at(clock.now() + 1000, tick)
    await clock.advance(3)
    assert len(times) == 3


async def test_a_timer_of_the_past_fires_at_once() -> None:
    clock = FakeClock()
    fired = asyncio.Event()
    clock.call_at(clock.now() - 1, fired.set)
    async with asyncio.timeout(5):
        await fired.wait()


def test_sample_asks_take_changes_of_the_ask_its_origin_and_its_permission() -> None:
    assert an_ask() == an_ask()
    assert an_ask(id="x", run="r", extra={"k": 1}).origin.run == "r"
    asked = a_permission(id="x", tool="Edit", session="s9", cwd="/c")
    assert asked.permission is not None
    assert (asked.id, asked.permission.tool, asked.permission.cwd, asked.origin.session) == ("x", "Edit", "/c", "s9")


PERSONS: dict[str, tuple[Ask, Callable[[ScriptedPerson], object], str]] = {
    "the header": (an_ask(), lambda person: person.on("^Database$", [["Postgres"]]), "Postgres"),
    "the text": (an_ask(), lambda person: person.on("should I use", [["Postgres"]]), "Postgres"),
    "the first line that matches": (
        an_ask(),
        lambda person: person.on("no", [["x"]]).on("Data", [["SQLite"]]).on("Data", [["Postgres"]]),
        "SQLite",
    ),
    "the summary": (a_permission(), lambda person: person.on("build folder", reply="once"), "once"),
    "the command": (a_permission(), lambda person: person.on(r"rm -rf", reply="always"), "always"),
    "the tool": (a_permission(), lambda person: person.on("^Bash$", reject="no"), "reject"),
}


@pytest.mark.parametrize("what", PERSONS)
async def test_a_scripted_person_answers_what_matches(what: str, broker: Broker, person: ScriptedPerson) -> None:
    ask, script, expected = PERSONS[what]
    script(person)
    async with asyncio.timeout(5):
        answer = await broker.ask(ask)
    assert (answer.value, answer.by, answer.via) == (expected, "person", "script")
    assert [seen.id for seen in person.seen] == [ask.id]


async def test_a_scripted_person_answers_what_was_open_before_it_came_or_before_the_line(
    broker: Broker, person: ScriptedPerson
) -> None:
    await broker.open(an_ask())
    await broker.open(an_ask(id="decided"), handling=Handling(question_policy="accept-first"))
    assert (await person.sees("Database")).id == "ask-1"
    assert [ask.id for ask in person.open] == ["ask-1"]
    person.on("Database", [["Postgres"]])
    async with asyncio.timeout(5):
        await broker.wait("ask-1")
        await person.until(lambda: not person.open)
    assert [ask.id for ask in person.seen] == ["ask-1"]


async def test_a_scripted_person_and_a_scripted_agent_meet_at_a_desk_elsewhere(tmp_path: Path) -> None:
    agent = Scripted().on_question("go", an_ask().questions).on("go", lambda answers: f"with {answers[0].value}")
    async with (
        asyncio.timeout(PATIENCE),
        serving(tmp_path) as desk,
        Client(desk.url, token=desk.token) as client,
        asyncio.TaskGroup() as tasks,
    ):
        looking = tasks.create_task(ScriptedPerson().on("Database", [["Postgres"]]).run(client))
        session = await agent.open(client, Start(session="s1"))
        assert (await session.prompt("go")).text == "with Postgres"
        looking.cancel()


async def test_a_scripted_person_with_a_line_that_does_not_fit_says_so(broker: Broker) -> None:
    await broker.open(an_ask())
    with pytest.raises(ExceptionGroup) as failed:
        async with asyncio.timeout(5):
            await ScriptedPerson().on("Database", [["a"], ["b"]]).run(broker)
    assert failed.group_contains(AnswerDoesNotFit)


@pytest.mark.parametrize("said", [{}, {"answers": [["x"]], "reply": "once"}])
def test_a_scripted_person_says_one_thing_at_a_time(said: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="one of"):
        ScriptedPerson().on("x", **said)


def test_every_public_name_is_there() -> None:
    for name in handraise.testing.__all__:
        assert getattr(handraise.testing, name).__name__ == name
    assert dir(handraise.testing) == handraise.testing.__all__
    with pytest.raises(AttributeError, match="nothing"):
        handraise.testing.nothing  # noqa: B018


def run_python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Without the plugins that happen to be installed here."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)


def test_the_fixtures_cost_those_who_do_not_use_them_nothing(tmp_path: Path) -> None:
    script = "import sys, handraise.testing.fixtures; print(*sys.modules)"
    loaded = run_python("-c", script, cwd=tmp_path).stdout.split()
    assert "handraise.testing.fixtures" in loaded
    assert not {"pydantic", "sqlite3", "handraise.broker", "handraise.wire", "re2"} & set(loaded)


def test_the_fixtures_break_nobody_elses_tests(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text("def test_theirs():\n    assert True\n")
    done = run_python("-m", "pytest", "-W", "error", "-p", "handraise.testing.fixtures", cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_without_pytest_asyncio_the_plain_fixtures_are_there(tmp_path: Path) -> None:
    script = (
        "import sys, importlib.util as util, pytest; real = util.find_spec; "
        "util.find_spec = lambda name, *rest: None if name == 'pytest_asyncio' else real(name, *rest); "
        "sys.exit(pytest.main(['-p', 'handraise.testing.fixtures']))"
    )
    theirs = "def test_plain(fake_clock, scripted_agent): ...\ndef test_not_there(broker): ...\n"
    (tmp_path / "test_theirs.py").write_text(theirs)
    done = run_python("-c", script, cwd=tmp_path)
    assert "1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "fixture 'broker' not found" in done.stdout


# The suites find what is wrong ------------------------------------------------------------------------------


class Careless(SqliteStore):
    """Closes whatever is there, and forgets to tell."""

    async def change(self, id: str, change: Change) -> Changed | None:
        return await super().change(id, change._replace(states=("asked", "answered", "rejected", "withdrawn")))

    async def open(self, new: NewAsk) -> Opened:
        return await super().open(new._replace(events=()) if new.id == "b" else new)


async def test_check_store_names_every_case_that_failed() -> None:
    with pytest.raises(AssertionError, match=r"check_store: \d+ of \d+ cases failed") as failed:
        await check_store(lambda: Careless.open_file(MEMORY))
    said = str(failed.value)
    assert "many closings at once have one winner: 50 of 50 won" in said
    assert "a change happens in its states only: an open ask was delivered" in said
    assert "the same ask again joins" not in said


def granting(ask: Ask) -> Answer:
    return Answer(reply="once", by="policy:generous") if ask.permission else accept_first(ask)


def moody(ask: Ask, _moods: Iterator[int] = count()) -> Answer:  # noqa: B008 - not pure, on purpose
    return replace(reject(ask), reason=f"mood {next(_moods)}")


def guessing(ask: Ask) -> Answer:
    return Answer(answers=(("a",),), by="somebody") if ask.questions else reject(ask)


def endless(ask: Ask) -> Forward:
    return Forward(timeout=5)


BAD_POLICIES: dict[str, Policy] = {
    "it grants no permission: a permission: granted with": granting,
    "it says the same twice: one choice": moody,
    "what it answers fits: several questions: the answer does not fit": guessing,
    "it says that no person decided: one choice: `by` is 'somebody'": guessing,
    "a timeout has an answer: one choice": endless,
}


@pytest.mark.parametrize("said", BAD_POLICIES)
async def test_check_policy_names_every_case_that_failed(said: str) -> None:
    with pytest.raises(AssertionError) as failed:
        await check_policy(BAD_POLICIES[said])
    assert said in str(failed.value)


class Board:
    """The smallest channel: a board on which asks hang, and a person who writes on it."""

    def __init__(self) -> None:
        self.hanging: dict[str, Ask] = {}
        self.changed = asyncio.Condition()
        self._written: asyncio.Queue[tuple[Ask, Answer]] = asyncio.Queue()

    async def run(self, inbox: Inbox) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._bring_back(inbox))
            after = await inbox.cursor()
            async for ask in inbox.asks(state="asked"):
                await self._hang(ask)
            async for event in inbox.events(after=after):
                await self._hang(event.ask)

    def write(self, ask: Ask, answer: Answer) -> None:
        self._written.put_nowait((ask, answer))

    async def _hang(self, ask: Ask) -> None:
        async with self.changed:
            self.hanging[ask.id] = ask
            if ask.state != "asked":
                del self.hanging[ask.id]
            self.changed.notify_all()

    async def _bring_back(self, inbox: Inbox) -> None:
        while True:
            ask, answer = await self._written.get()
            try:
                await inbox.answer(ask.id, replace(answer, by="ana", via="board"))
            except (AlreadyAnswered, AskWithdrawn):
                continue


POSTS = (
    "what is shown is reported",
    "what could not be sent is reported and shown later",
    "a restart shows nothing twice",
    "what was answered while it was away says so afterwards",
)
HEARS = (
    "the same answer delivered twice counts once",
    "an answer that does not fit is said and leaves it open",
    "who is not listed is told and changes nothing",
)


class BoardDriver(ChannelDriver):
    cannot: Mapping[str, str] = dict.fromkeys((*POSTS, *HEARS), "it hangs in one room, before the eyes of one person")

    def __init__(self, board: Any = None) -> None:
        self._board = Board()
        self.channel = board or self._board

    async def shown(self, ask: Ask) -> None:
        async with self._board.changed:
            await self._board.changed.wait_for(lambda: ask.id in self._board.hanging)

    async def settled(self, ask: Ask) -> None:
        async with self._board.changed:
            await self._board.changed.wait_for(lambda: ask.id not in self._board.hanging)

    async def answer(self, ask: Ask, answer: Answer) -> None:
        self._board.write(ask, answer)


class PersonDriver(ChannelDriver):
    cannot: Mapping[str, str] = dict.fromkeys((*POSTS, *HEARS), "this person is no place, and always says what fits")

    def __init__(self) -> None:
        self._person = ScriptedPerson()
        self.channel = self._person

    async def shown(self, ask: Ask) -> None:
        await self._person.until(lambda: ask.id in [seen.id for seen in self._person.seen])

    async def settled(self, ask: Ask) -> None:
        await self._person.until(lambda: ask.id not in [still.id for still in self._person.open])

    async def answer(self, ask: Ask, answer: Answer) -> None:
        reason = (answer.reason or "") if answer.rejected else None
        self._person.on("", answer.answers, reply=answer.reply, reject=reason)


@pytest.mark.parametrize("driver", [BoardDriver, PersonDriver, WallDriver])
async def test_check_channel_passes_what_works(driver: type[Any]) -> None:
    report = await check_channel(driver)
    assert "an answer comes back" in report.passed
    assert report.cannot == driver.cannot


class Fragile:
    """A channel that falls over when it loses a race."""

    def __init__(self) -> None:
        self.board = Board()

    async def run(self, inbox: Inbox) -> None:
        async for event in inbox.events(after=0):
            if event.ask.state != "asked":
                raise RuntimeError("somebody else answered!")
            async with self.board.changed:
                self.board.hanging[event.ask.id] = event.ask
                self.board.changed.notify_all()


class FragileDriver(BoardDriver):
    cannot: Mapping[str, str] = {
        case: "it only shows"
        for case in (
            "an answer comes back",
            "a permission is granted as it was said",
            "a refusal comes back with its reason",
            "an answer that comes too late changes nothing",
            "a timeout closes it and the place says so",
            *POSTS,
            *HEARS,
        )
    }

    def __init__(self) -> None:
        fragile = Fragile()
        super().__init__(fragile)
        self._board = fragile.board


async def test_check_channel_names_every_case_that_failed_and_skips_what_cannot_be() -> None:
    with pytest.raises(AssertionError, match=r"check_channel: 3 of \d+ cases failed") as failed:
        await check_channel(FragileDriver)
    assert "a withdrawn ask is survived: RuntimeError: somebody else answered!" in str(failed.value)


class Silent(Notes):
    """Keeps to itself what became of showing it, and where."""

    async def run(self, inbox: Postbox) -> None:
        async def hush(*said: object, **more: object) -> None: ...

        await super().run(Different(inbox, showed=hush))


class Sulking(Notes):
    """Breaks where an answer does not count, and tells nobody."""

    async def listen(self, inbox: Inbox) -> None:
        while True:
            ask, said = await self.wall.replies.get()
            await inbox.answer(ask.id, replace(said, by="ana", via=self.name))


class Indelible(Notes):
    """Never says how it ended."""

    async def rewrite(self, place: str, ask: Ask) -> None: ...


class Hopeless(Notes):
    """Tries once."""

    async def post(self, ask: Ask) -> str:
        try:
            return await super().post(ask)
        except SendFailed as failure:
            raise SendFailed(str(failure), again=None) from None


class Guessing(Notes):
    """Takes whatever is said for an answer to the newest note."""

    async def listen(self, inbox: Inbox) -> None:
        while True:
            _, said = await self.wall.replies.get()
            with suppress(AlreadyAnswered, AskWithdrawn):
                await inbox.answer(self.wall.notes[-1].ask.id, replace(said, by="ana", via=self.name))


class Forgetful(Notes):
    """Begins anew each time it is started."""

    async def run(self, inbox: Postbox) -> None:
        async def nowhere(channel: str) -> Mapping[str, str]:
            return {}

        await super().run(Different(inbox, places=nowhere))


class Different:
    """A desk of which a channel sees one thing otherwise."""

    def __init__(self, inbox: Postbox, **changes: Any) -> None:
        self._inbox = inbox
        self.__dict__ |= changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inbox, name)


BAD_CHANNELS: dict[type[Notes], list[str]] = {
    Silent: ["what is shown is reported: it took too long"],
    Guessing: ["the same answer delivered twice counts once: what came twice answered something else"],
    Sulking: [
        "an answer that does not fit is said and leaves it open: it took too long",
        "who is not listed is told and changes nothing: it took too long",
    ],
    Indelible: [
        "an answer given elsewhere is noticed: it took too long",
        "a timeout closes it and the place says so: it took too long",
    ],
    Hopeless: ["what could not be sent is reported and shown later: it took too long"],
    Forgetful: [
        "a restart shows nothing twice: it was shown 2 times",
        "what was answered while it was away says so afterwards: it took too long",
    ],
}


@pytest.mark.parametrize("kind", BAD_CHANNELS)
async def test_check_channel_finds_what_is_wrong(kind: type[Notes]) -> None:
    with pytest.raises(AssertionError) as failed:
        await check_channel(lambda: WallDriver(kind), patience=0.5)
    assert [said for said in BAD_CHANNELS[kind] if said not in str(failed.value)] == []
    assert "a question is shown: " not in str(failed.value)


async def test_check_channel_says_what_a_driver_lacks() -> None:
    class Bare(BoardDriver):
        cannot: Mapping[str, str] = {}

    with pytest.raises(AssertionError, match="shown later: give the driver `break_sending`, or say in `cannot` why"):
        await check_channel(Bare, patience=0.5)


class Stubborn:
    """An agent that asks anew each time, takes no answer and hears of no abort."""

    name = "stubborn"
    asked = 0

    async def open(self, asker: Asker, start: Start) -> Stubborn:
        self._asker = asker
        return self

    async def prompt(self, text: str) -> Reply:
        Stubborn.asked += 1
        await self._asker.ask(an_ask(id=f"ask {Stubborn.asked}"))
        return Reply(text="done")

    async def abort(self) -> None: ...

    async def close(self) -> None: ...


async def test_check_agent_names_every_case_that_failed() -> None:
    with pytest.raises(AssertionError, match="check_agent: 12 of 12 cases failed") as failed:
        await check_agent(lambda: AgentDriver(open=Stubborn().open, one="go"), patience=0.2)
    said = str(failed.value)
    assert "announced twice: give the driver `again`, or say in `cannot` why this agent cannot have the case" in said
    assert "a refusal with a reason does not end the turn: the reason did not reach the agent" in said
    assert "abort while pending: it took too long" in said


async def test_what_cannot_be_is_a_case_and_has_a_reason() -> None:
    def driver(cannot: Mapping[str, str]) -> Callable[[], AgentDriver]:
        return lambda: AgentDriver(open=Scripted().open, one="go", cannot=cannot)

    with pytest.raises(AssertionError, match="`cannot` names 'announced thrice', which is no case"):
        await check_agent(driver({"announced thrice": "so"}))
    with pytest.raises(AssertionError, match="give a reason"):
        await check_agent(driver({"announced twice": ""}))


def test_a_postgres_that_was_stopped_already_is_left_quietly() -> None:
    with postgres_server() as server:
        assert server.is_running
        server.stop()
    assert not server.folder.exists()
