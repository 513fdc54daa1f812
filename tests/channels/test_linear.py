"""The Linear channel, whole: a stand-in of Linear, a real desk, a git repository, and an agent that plays a script."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from handraise.agents.scripted import Scripted
from handraise.asks import Answer, Ask, Handling, Option, Permission, Question
from handraise.broker import Broker
from handraise.channels import ChannelSettings
from handraise.channels.linear import channel, outbox, plugin
from handraise.channels.linear.room import Room
from handraise.channels.linear.webhooks import Created, Prompted, read
from handraise.clock import Clock, SystemClock
from handraise.config import ChannelTable
from handraise.events import Event
from handraise.people import MAY, People, Person
from handraise.tables.sessions import Sessions
from handraise.testing import ChannelDriver, check_channel
from handraise.testing.clock import FakeClock
from tests.helpers.linear_desk import StandIn, linear
from tests.helpers.serving import PATIENCE, Served, refused, serving, told

ONE_AT_A_TIME = "it shows one question at a time"
STORAGE = Question(
    "Which database?", (Option("SQLite", description="one file"), Option("PostgreSQL")), header="Storage"
)
EXTRAS = Question("Which extras?", (Option("Search"), Option("Chat"), Option("Audit")), header="Extras", multiple=True)
NAME = Question("What is it called?", header="Name")
BUILD = Permission(tool="Bash", summary="Run the build", command="make build", replies=("once", "always", "reject"))
DELETE = Permission(tool="Bash", summary="Clean", command="rm -rf /srv/data", replies=("once", "reject"))


@dataclass
class Scene:
    """A desk that has a Linear, with a person who is listed there and one who is not."""

    linear: StandIn
    desk: Served
    agent: Scripted
    repository: Path
    ada: dict[str, Any]
    bob: dict[str, Any]
    issue: dict[str, Any]

    def posted(self, session: str, type: str) -> list[dict[str, Any]]:
        """What we posted of one type, oldest first."""
        return [each for each in self.linear.posted(session) if each["content"]["type"] == type]

    async def until(self, happened: Callable[[], object]) -> None:
        await self.linear.until(happened, timeout=PATIENCE)

    async def asks(self, session: str, *, count: int = 1) -> dict[str, Any]:
        """The elicitation that is shown last, once there are so many."""
        await self.until(lambda: len(self.posted(session, "elicitation")) >= count)
        return self.posted(session, "elicitation")[-1]

    async def ends(self, session: str, type: str = "response", *, count: int = 1) -> str:
        """The last word."""
        await self.until(lambda: len(self.posted(session, type)) >= count)
        return str(self.posted(session, type)[-1]["content"]["body"])

    async def ask_of(self, session: str) -> Ask:
        """What waits for a person."""
        async with asyncio.timeout(PATIENCE):
            while True:
                async for ask in self.desk.broker.asks(state="asked", session=f"linear:{session}"):
                    return ask
                await asyncio.sleep(0.005)

    def worktrees(self) -> list[str]:
        listed = git(self.repository, "worktree", "list", "--porcelain")
        return [line.removeprefix("worktree ") for line in listed.splitlines() if line.startswith("worktree ")][1:]

    async def ticket(self, session: str) -> str | None:
        """The issue that is kept with it."""
        rows = await self.desk.broker.store.read("select ticket from linear_sessions where id = ?", session)
        return rows[0][0] if rows else None

    async def ended(self, session: str) -> None:
        """Once nothing is left of it here."""
        async with asyncio.timeout(PATIENCE):
            while True:
                rows = await self.desk.broker.store.read("select state from linear_sessions where id = ?", session)
                if rows == [("ended",)]:
                    return
                await asyncio.sleep(0.01)


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def a_repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "README").write_text("An app.\n")
    git(folder, "add", "README")
    git(folder, "commit", "-q", "-m", "Begin")
    return folder


@asynccontextmanager
async def a_scene(folder: Path, **changes: Any) -> AsyncIterator[Scene]:
    async with lasting(folder, Scripted(), **changes) as begin, begin() as scene:
        yield scene


@asynccontextmanager
async def lasting(
    folder: Path, agent: Scripted, *, clock: Clock | None = None, **changes: Any
) -> AsyncIterator[Callable[[], AbstractAsyncContextManager[Scene]]]:
    """A Linear and a repository that outlast desks. Each call of what it gives begins one there, as a restart does."""
    repository = a_repository(folder / "app")
    async with linear(clock=clock) as stand_in:
        ada = stand_in.person("Ada", email="ada@example.com")
        bob = stand_in.person("Bob", email="bob@example.com")
        issue = stand_in.issue("ENG-42", "Choose the storage", description="Pick one and wire it up.")

        @asynccontextmanager
        async def begin() -> AsyncIterator[Scene]:
            async with a_desk(folder / "home", stand_in, repository, agent, clock=clock, **changes) as desk:
                yield Scene(stand_in, desk, agent, repository, ada, bob, issue)

        yield begin


@asynccontextmanager
async def a_desk(
    home: Path,
    stand_in: StandIn,
    repository: Path,
    agent: Scripted,
    *,
    clock: Clock | None = None,
    settings: dict[str, Any] | None = None,
    **changes: Any,
) -> AsyncIterator[Served]:
    table = {"api": stand_in.url, "agent": "scripted", "repository": str(repository), **(settings or {})}
    given: dict[str, Any] = {
        "channels": {"linear": ChannelTable(kind="linear", table=table)},
        "people": {"ada": Person(name="ada", known_as={"linear": "ada@example.com"}, may=MAY)},
        **changes,
    }
    stack = AsyncExitStack()
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("LINEAR_TOKEN", stand_in.token)
        if "poll_seconds" not in table:
            environ.setenv("LINEAR_WEBHOOK_SECRET", stand_in.secret)
        desk = await stack.enter_async_context(serving(home, staff=[agent], clock=clock, **given))
    async with stack:
        stand_in.webhook = f"{desk.url}/webhooks/linear"
        yield desk


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "CALM", 0.01)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with a_scene(tmp_path) as found:
        yield found


async def test_an_assignment_is_worked_on_and_its_question_answered_in_linear(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE).on(
        "ENG-42",
        lambda answers: f"I took {answers[0].answers[0][0]}.",  # type: ignore[index]
    )
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    shown = await scene.asks(session)
    assert scene.linear.status(session) == "awaitingInput"
    assert shown["signal"] == "select"
    assert [option["value"] for option in shown["signalMetadata"]["options"]] == ["SQLite", "PostgreSQL"]
    assert "Which database?" in shown["content"]["body"] and "one file" in shown["content"]["body"]
    assert scene.linear.posted(session)[0]["content"]["type"] == "thought"
    assert scene.linear.links(session)[0]["label"] == "Open in handraise"
    (worktree,) = scene.worktrees()
    prompted = scene.agent.prompted[0]
    assert "Pick one and wire it up." in prompted.text and "handraise/eng-42-" in prompted.text

    await scene.linear.reply(session, "postgresql", by=scene.ada)
    assert (await scene.ends(session)).startswith("I took PostgreSQL.")
    assert scene.linear.status(session) == "complete"
    (answered,) = scene.posted(session, "action")
    assert answered["content"] == {
        "type": "action",
        "action": "Answered",
        "parameter": "Storage",
        "result": "PostgreSQL (ada, in linear)",
    }
    lines = (await told(scene.desk.http.get("/v1/audit"), 200))["lines"]
    assert (lines[-1]["by"], lines[-1]["via"], lines[-1]["identity"]) == ("ada", "linear", "strong")
    asked = scene.agent.asked[0]
    shown_there = (await told(scene.desk.http.get(f"/v1/asks/{asked.id}/showings"), 200))["showings"]
    assert [(each["channel"], each["state"]) for each in shown_there] == [("linear", "sent")]
    record = await told(scene.desk.http.get(f"/v1/sessions/linear:{session}"), 200)
    assert record["cwd"] == worktree
    assert await scene.ticket(session) == "ENG-42"


async def test_a_session_goes_on_with_what_is_written_next(scene: Scene) -> None:
    scene.agent.on("ENG-42", "Done with the first.").on("And the tests", "Tests too.")
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    assert await scene.ends(session) == "Done with the first."
    await scene.linear.reply(session, "And the tests?", by=scene.ada)
    assert await scene.ends(session, count=2) == "Tests too."
    assert [each.text for each in scene.agent.prompted][1:] == ["And the tests?"]
    assert len({each.session for each in scene.agent.prompted}) == 1


async def test_a_question_in_a_comment_is_answered_with_what_was_said_before(scene: Scene) -> None:
    scene.agent.on("Why SQLite", "Because it is one file.")
    session = await scene.linear.mention(
        scene.issue, "Why SQLite, @handraise?", by=scene.ada, previous=["We took SQLite.", "Did we?"]
    )
    assert await scene.ends(session) == "Because it is one file."
    (prompted,) = scene.agent.prompted
    assert prompted.text.index("We took SQLite.") < prompted.text.index("Did we?") < prompted.text.index("Why SQLite")


async def test_several_questions_are_shown_one_at_a_time_and_given_back_together(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", [STORAGE, EXTRAS, NAME])
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    first = await scene.asks(session)
    assert "Question 1 of 3" in first["content"]["body"]
    await scene.linear.reply(session, "2", by=scene.ada)
    second = await scene.asks(session, count=2)
    assert second["signal"] is None and "1. Search" in second["content"]["body"]
    await scene.linear.reply(session, "1, audit", by=scene.ada)
    await scene.asks(session, count=3)
    await scene.linear.reply(session, "Ünïcode name ✓", by=scene.ada)
    await scene.ends(session)
    answer = (await scene.desk.broker.get(scene.agent.asked[0].id)).answer
    assert answer is not None
    assert answer.answers == (("PostgreSQL",), ("Search", "Audit"), ("Ünïcode name ✓",))


async def test_a_reply_that_fits_nothing_is_politely_asked_again(scene: Scene) -> None:
    strict = Question("Which one?", (Option("A"), Option("B")), custom=False)
    scene.agent.on_question("ENG-42", strict)
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    await scene.linear.reply(session, "the blue one", by=scene.ada)
    again = await scene.asks(session, count=2)
    assert again["signal"] == "select" and scene.linear.status(session) == "awaitingInput"
    said = scene.posted(session, "thought")[-1]["content"]["body"]
    assert said == "I could not match that to a choice. Please reply with one of: A, B."
    await scene.linear.reply(session, "b", by=scene.ada)
    await scene.ends(session)


async def test_own_words_are_an_answer_where_they_are_allowed(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE)
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    await scene.linear.reply(session, "Neither: use a CSV file", by=scene.ada)
    await scene.ends(session)
    answer = (await scene.desk.broker.get(scene.agent.asked[0].id)).answer
    assert answer is not None and answer.answers == (("Neither: use a CSV file",),)


async def test_permissions_are_granted_and_refused(scene: Scene) -> None:
    scene.agent.on_permission("ENG-42", BUILD).on_permission("ENG-42", BUILD)
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    shown = await scene.asks(session)
    values = [option["value"] for option in shown["signalMetadata"]["options"]]
    assert values == ["Allow once", "Allow always", "Deny"] and "make build" in shown["content"]["body"]
    await scene.linear.reply(session, "sure, why not", by=scene.ada)  # not plainly a yes
    await scene.asks(session, count=2)
    await scene.linear.reply(session, "Allow once", by=scene.ada)
    await scene.asks(session, count=3)
    await scene.linear.reply(session, "Deny: not on a Friday", by=scene.ada)
    await scene.ends(session)
    given = [(await scene.desk.broker.get(ask.id)).answer for ask in scene.agent.asked]
    assert [(each.reply, each.rejected, each.reason) for each in given if each is not None] == [
        ("once", False, None),
        ("reject", True, "not on a Friday"),
    ]


async def test_a_question_can_be_refused(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE)
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    await scene.linear.reply(session, "skip: decide yourself", by=scene.ada)
    await scene.ends(session)
    closed = await scene.desk.broker.get(scene.agent.asked[0].id)
    assert closed.state == "rejected" and closed.answer is not None
    assert closed.answer.reason == "decide yourself"


async def test_an_answer_given_elsewhere_is_told_in_the_thread(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE)
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    await scene.desk.answer(scene.agent.asked[0].id, "SQLite")
    await scene.until(lambda: scene.posted(session, "action"))
    assert scene.posted(session, "action")[0]["content"]["result"] == "SQLite (admin, in http)"
    await scene.ends(session)


async def test_stop_ends_the_turn_and_a_new_prompt_goes_on(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE).on("Go on", "Gone on.")
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    await scene.linear.stop(session, by=scene.bob)  # anybody may
    assert "Stopped at your request" in await scene.ends(session)
    assert scene.linear.status(session) == "complete"
    await scene.until(lambda: scene.agent.asked)
    async with asyncio.timeout(PATIENCE):
        while (await scene.desk.broker.get(scene.agent.asked[0].id)).state != "withdrawn":
            await asyncio.sleep(0.005)
    await scene.linear.reply(session, "Go on", by=scene.ada)
    assert await scene.ends(session, count=2) == "Gone on."
    assert len(scene.posted(session, "response")) == 2


async def test_what_is_told_twice_happens_once(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", [STORAGE, NAME])
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    assert await scene.linear.redeliver(fresh=True) == 200
    assert await scene.linear.deliver(scene.linear.created(session)) == 200  # another delivery of the same session
    await scene.linear.reply(session, "SQLite", by=scene.ada)
    await scene.asks(session, count=2)
    assert await scene.linear.redeliver(fresh=True) == 200
    await scene.linear.reply(session, "desk", by=scene.ada)
    await scene.ends(session)
    assert len(scene.agent.prompted) == 1 and len(scene.worktrees()) == 1
    answer = (await scene.desk.broker.get(scene.agent.asked[0].id)).answer
    assert answer is not None and answer.answers == (("SQLite",), ("desk",))


async def test_what_linear_did_not_sign_now_is_refused(scene: Scene) -> None:
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.ends(session)
    payload = scene.linear.created(session)
    now = scene.desk.broker.clock.now()
    assert await scene.linear.deliver(payload, secret="not ours") == 401
    assert await scene.linear.deliver(payload, sent_at=now - 61_000) == 401
    assert await scene.linear.deliver(payload, sent_at=now + 61_000) == 401
    url = f"{scene.desk.url}/webhooks/linear"
    await refused((await scene.desk.client()).post(url, content=b"{}"), 401, "bad_signature")
    await refused((await scene.desk.client()).post(f"{scene.desk.url}/webhooks/other", content=b"{}"), 401, "bad_call")
    assert len(scene.agent.prompted) == 1


async def test_what_is_not_for_us_is_taken_and_ignored(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.ends(session)
    prompted = scene.linear.created(session) | {"action": "prompted"}
    unknown = dict(prompted, agentSession={**prompted["agentSession"], "id": "nobody-knows"})
    unknown["agentActivity"] = {"id": "a1", "content": {"type": "prompt", "body": "Hello?"}, "user": None}
    assert await scene.linear.deliver(unknown) == 200
    await scene.until(lambda: "nobody-knows, which is not known here" in caplog.text)
    for changed in ({"type": "OAuthApp", "action": "revoked"}, {"action": "sung"}, {"type": "NewThing"}):
        assert await scene.linear.deliver(scene.linear.created(session) | changed) == 200
    assert len(scene.agent.prompted) == 1


async def test_who_is_not_listed_starts_and_answers_nothing(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE)
    theirs = await scene.linear.delegate(scene.issue, by=scene.bob)
    said = await scene.ends(theirs, "error")
    assert "Bob may not do this here" in said and scene.linear.status(theirs) == "error"
    nobodys = await scene.linear.delegate(scene.issue, by=None)
    assert "No person started this" in await scene.ends(nobodys, "error")
    assert scene.agent.prompted == []

    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    await scene.linear.reply(session, "SQLite", by=scene.bob)
    await scene.asks(session, count=2)
    assert "Bob may not do this here" in scene.posted(session, "thought")[-1]["content"]["body"]
    assert (await scene.ask_of(session)).state == "asked"


async def test_what_is_risky_is_for_those_who_may(tmp_path: Path) -> None:
    people = {"ada": Person(name="ada", known_as={"linear": "ada@example.com"})}
    async with a_scene(tmp_path, people=people) as scene:
        scene.agent.on_permission("ENG-42", DELETE)
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        await scene.asks(session)
        await scene.linear.reply(session, "Allow once", by=scene.ada)
        await scene.asks(session, count=2)
        assert "may not decide this" in scene.posted(session, "thought")[-1]["content"]["body"]
        await scene.linear.reply(session, "no", by=scene.ada)
        await scene.ends(session)
        assert (await scene.desk.broker.get(scene.agent.asked[0].id)).state == "rejected"


async def test_an_agent_that_fails_is_told_and_cleaned_up(scene: Scene) -> None:
    scene.agent.on_failure("ENG-42", "the model is gone")
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    assert "The agent failed: the model is gone" in (await scene.ends(session, "error")).replace("\\", "")
    assert scene.linear.status(session) == "error"
    await scene.ended(session)
    assert scene.worktrees() == [] and git(scene.repository, "branch", "--list", "handraise/*") == ""
    await scene.linear.reply(session, "Try again", by=scene.ada)
    assert "This session is over" in await scene.ends(session)


async def test_an_agent_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    async with a_scene(tmp_path, settings={"agent": "nobody"}) as scene:
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        assert "could not be started" in await scene.ends(session, "error")
        await scene.ended(session)
        assert scene.worktrees() == []


async def test_an_issue_without_a_repository_is_refused(tmp_path: Path) -> None:
    async with a_scene(tmp_path, settings={"repository": "", "repositories": {"OPS": str(tmp_path / "app")}}) as scene:
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        assert "No repository is set for ENG" in (await scene.ends(session, "error")).replace("\\", "")
        other = await scene.linear.delegate(scene.linear.issue("OPS-1", "Rotate the keys"), by=scene.ada)
        await scene.ends(other)


async def passes(scene: Scene, clock: FakeClock, minutes: float) -> None:
    await clock.advance(minutes * 60)


async def test_nobody_is_waited_for_longer_than_half_an_hour(tmp_path: Path) -> None:
    clock = FakeClock()
    async with a_scene(tmp_path, clock=clock) as scene:
        scene.agent.on_question("ENG-42", STORAGE)
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        await scene.asks(session)
        await passes(scene, clock, 29.9)
        assert (await scene.ask_of(session)).state == "asked"
        await passes(scene, clock, 0.2)
        assert "Nobody answered within 30 minutes" in await scene.ends(session, "error")
        await scene.ended(session)
        assert scene.worktrees() == [] and scene.linear.status(session) == "error"
        record = await scene.desk.broker.sessions.get(f"linear:{session}")
        assert record.state == "done"


async def test_a_session_takes_an_hour_at_most_and_uncommitted_work_is_kept(tmp_path: Path) -> None:
    clock = FakeClock()
    async with a_scene(tmp_path, clock=clock) as scene:
        scene.agent.on_silence("ENG-42")
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        await scene.until(lambda: scene.agent.prompted)
        (worktree,) = scene.worktrees()
        (Path(worktree) / "half.py").write_text("x = 1\n")
        await passes(scene, clock, 61)
        said = await scene.ends(session, "error")
        assert "took longer than 60 minutes" in said and f"Uncommitted work was kept in {worktree}" in said
        await scene.ended(session)
        assert scene.worktrees() == [worktree]


async def test_the_earlier_deadline_acts_keep_waiting_moves_it_and_an_answer_gives_the_time_back(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with a_scene(tmp_path, clock=clock, settings={"question_minutes": 45}) as scene:
        scene.agent.on_question("ENG-42", STORAGE).on_question("ENG-42", NAME).on_silence("ENG-42")
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        await scene.asks(session)
        await passes(scene, clock, 30)
        await scene.linear.reply(session, "keep waiting", by=scene.ada)  # to minute 90
        await scene.asks(session, count=2)
        await passes(scene, clock, 55)  # minute 85, beyond the hour
        assert (await scene.ask_of(session)).state == "asked"
        await scene.linear.reply(session, "SQLite", by=scene.ada)
        await scene.asks(session, count=3)  # an hour was left when it asked first: to minute 145
        await passes(scene, clock, 40)
        await scene.linear.reply(session, "desk", by=scene.ada)
        await scene.until(lambda: len(scene.posted(session, "action")) == 2)
        await passes(scene, clock, 50)
        assert scene.posted(session, "error") == []
        await passes(scene, clock, 15)
        assert "took longer than 60 minutes" in await scene.ends(session, "error")


async def test_what_is_done_is_cleaned_up_quietly_and_commits_stay(tmp_path: Path) -> None:
    clock = FakeClock()
    async with a_scene(tmp_path, clock=clock) as scene:

        def commits(_: object) -> str:
            (worktree,) = scene.worktrees()
            (Path(worktree) / "new.py").write_text("x = 1\n")
            git(Path(worktree), "add", "new.py")
            git(Path(worktree), "commit", "-q", "-m", "Add it")
            return "Added."

        scene.agent.on("ENG-42", commits)
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        branch = git(scene.repository, "branch", "--list", "handraise/*", "--format=%(refname:short)")
        assert await scene.ends(session) == f"Added.\n\n1 commit on `{branch or _branch(scene)}`."
        await passes(scene, clock, 61)
        await scene.ended(session)
        assert scene.worktrees() == [] and scene.posted(session, "error") == []
        assert git(scene.repository, "log", "-1", "--format=%s", _branch(scene)) == "Add it"


def _branch(scene: Scene) -> str:
    return git(scene.repository, "branch", "--list", "handraise/*", "--format=%(refname:short)")


async def test_the_policy_of_the_desk_comes_first_where_it_is_shorter(tmp_path: Path) -> None:
    clock = FakeClock()
    async with a_scene(tmp_path, clock=clock, handling=Handling(question_timeout=60)) as scene:
        scene.agent.on_question("ENG-42", STORAGE)
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        await scene.asks(session)
        await passes(scene, clock, 1.1)
        await scene.ends(session)
        assert scene.posted(session, "action")[0]["content"]["result"] == "SQLite (timeout)"


async def test_a_restart_between_question_and_reply_loses_nothing(tmp_path: Path) -> None:
    async with lasting(tmp_path, Scripted().on_question("ENG-42", [STORAGE, NAME])) as begin:
        async with begin() as scene:
            session = await scene.linear.delegate(scene.issue, by=scene.ada)
            await scene.asks(session)
            await scene.linear.reply(session, "SQLite", by=scene.ada)
            await scene.asks(session, count=2)
        scene.linear.webhook = None
        await scene.linear.reply(session, "desk", by=scene.ada)  # nobody was there to hear it
        async with begin() as scene:
            await scene.ends(session)
            answer = (await scene.desk.broker.get(scene.agent.asked[0].id)).answer
            assert answer is not None and answer.answers == (("SQLite",), ("desk",))
            assert len(scene.posted(session, "elicitation")) == 2  # nothing was posted twice


async def test_it_works_without_an_address_by_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handraise.channels.linear.settings.LEAST_POLL", 0.01)
    async with a_scene(tmp_path, settings={"poll_seconds": 0.05}) as scene:
        scene.linear.webhook = None
        scene.agent.on_question("ENG-42", STORAGE)
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        await scene.asks(session)
        await scene.linear.reply(session, "SQLite", by=scene.ada)
        await scene.ends(session)
        assert len(scene.agent.prompted) == 1


async def test_when_linear_limits_us_it_is_tried_again_and_nobody_waits(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE)
    scene.linear.fail(times=2, code="RATELIMITED", status=400, headers={"Retry-After": "1"})
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    ask = await scene.ask_of(session)
    await scene.desk.answer(ask.id, "SQLite")  # whoever is at the desk is not held up
    await scene.ends(session)


async def test_a_linear_that_hangs_holds_up_nobody(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE)
    scene.linear.hang()
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    ask = await scene.ask_of(session)
    await scene.desk.answer(ask.id, "SQLite")
    async with asyncio.timeout(PATIENCE):
        while (await scene.desk.broker.sessions.get(f"linear:{session}")).state != "idle":
            await asyncio.sleep(0.005)
    scene.linear.hang(False)
    await scene.ends(session)
    assert scene.posted(session, "elicitation") == []  # it was settled before it could be shown


async def test_it_can_be_tried_on_an_issue(scene: Scene) -> None:
    tried = await told(scene.desk.http.post("/v1/channels/linear/test", json={"where": "ENG-42"}), 201)
    session = scene.linear.sessions[-1]
    shown = await scene.asks(session)
    assert "Does it reach you?" in shown["content"]["body"]
    await scene.linear.reply(session, "Yes", by=scene.ada)
    await scene.ends(session)
    answered = await told(scene.desk.http.get(f"/v1/asks/{tried['ask']}"), 200)
    assert answered["answer"]["by"] == "ada"
    assert await scene.ticket(session) == "ENG-42"
    await refused(scene.desk.http.post("/v1/channels/linear/test", json={}), 422, "settings")


class Renaming:
    """A desk whose one session is called as if it had been started in Linear."""

    def __init__(self, broker: Broker, session: str) -> None:
        self._broker = broker
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def _renamed(self, ask: Ask) -> Ask:
        return replace(ask, origin=replace(ask.origin, session=self._session))

    async def get(self, id: str) -> Ask:
        return self._renamed(await self._broker.get(id))

    async def asks(self, *, session: str, **filters: Any) -> AsyncIterator[Ask]:
        assert session == self._session
        async for ask in self._broker.asks(**filters):
            yield self._renamed(ask)

    async def events(self, **filters: Any) -> AsyncIterator[Event]:
        async for event in self._broker.events(**filters):
            yield replace(event, ask=self._renamed(event.ask))


@dataclass
class Nobody:
    """Hands that start nothing: the suite asks by itself."""

    sessions: Sessions


class LinearDriver(ChannelDriver):
    """The channel in front of a session of the stand-in that was there before. What Linear sends, it sends at once."""

    def __init__(self, stand_in: StandIn, home: Path) -> None:
        self._linear = stand_in
        self._home = home
        self._ada = stand_in.person("Ada", email="ada@example.com")
        self._told: dict[str, Any] = {}
        self._said = 0
        self.channel = self
        self.cannot = {
            "what could not be sent is reported and shown later": f"{ONE_AT_A_TIME}; tested by itself",
            "a restart shows nothing twice": f"{ONE_AT_A_TIME}; tested by itself",
            "who is not listed is told and changes nothing": "it looks people up itself; tested by itself",
        }
        self._session = ""

    def restart(self) -> None:
        """Every run makes a new channel."""

    async def run(self, inbox: Broker) -> None:
        if not self._session:
            self._session = await self._linear.delegate(self._linear.issue("ENG-42", "Choose"), by=self._ada)
        environ = {"LINEAR_TOKEN": self._linear.token, "LINEAR_WEBHOOK_SECRET": self._linear.secret}
        settings = ChannelSettings(
            name="linear",
            table={"api": self._linear.url},
            environ=environ,
            people=People({"ada": Person(name="ada", known_as={"linear": self._ada["id"]}, may=MAY)}),
            home=self._home,
            database=inbox.store,
            clock=inbox.clock,
            address="http://desk",
            handling=Handling(question_timeout=60),
            hands=Nobody(inbox.sessions),  # type: ignore[arg-type]
        )
        self._channel = plugin(settings)
        created = read(self._linear.created(self._session))
        assert isinstance(created, Created)
        row = replace(self._channel._new(created, at=inbox.clock.now()), state="live")
        await Room(inbox.store, "linear").create(row)
        await self._channel.run(Renaming(inbox, row.session))  # type: ignore[arg-type]

    def _posted(self, *types: str) -> list[dict[str, Any]]:
        return [each for each in self._linear.posted(self._session) if each["content"]["type"] in types]

    async def shown(self, ask: Ask) -> None:
        def is_shown() -> bool:
            posted = self._posted("elicitation", "action")
            return bool(posted) and f"/#/ask/{quote(ask.id, safe='')})" in posted[-1]["content"].get("body", "")

        await self._linear.until(is_shown)

    async def settled(self, ask: Ask) -> None:
        await self._linear.until(lambda: self._posted("elicitation", "action")[-1]["content"]["type"] == "action")

    async def answer(self, ask: Ask, answer: Answer) -> None:
        text = f"deny: {answer.reason}" if answer.rejected else {"once": "Allow once"}.get(answer.reply or "", "")
        self._said = len(self._posted("thought"))
        id = await self._linear.reply(self._session, text or (answer.answers or ())[0][0], by=self._ada)
        self._told = self._linear.prompted(id)
        await self.deliver_again()

    async def deliver_again(self) -> None:
        event = read(self._told)
        assert isinstance(event, Prompted)
        await self._channel._receive(event)

    async def told(self, ask: Ask) -> None:
        await self._linear.until(lambda: len(self._posted("thought")) > self._said)


async def test_it_is_a_channel(tmp_path: Path) -> None:
    async with linear() as stand_in:
        report = await check_channel(lambda: LinearDriver(stand_in, tmp_path))
    assert len(report.passed) == 15


async def test_what_cannot_be_posted_is_reported_and_posted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "CALM", 0.1)
    async with a_scene(tmp_path) as scene:
        scene.agent.on_question("ENG-42", STORAGE)
        limited = {"Retry-After": "61"}
        scene.linear.fail(times=9, code="RATELIMITED", status=400, headers=limited, only="CreateActivity")
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        ask = await scene.ask_of(session)
        async with asyncio.timeout(PATIENCE):
            while not (found := await scene.desk.broker.showings.of(ask.id)):
                await asyncio.sleep(0.01)
        assert [(each.channel, each.state) for each in found] == [("linear", "failed")]
        assert found[0].error is not None and "too many calls" in found[0].error


async def test_what_failed_a_few_times_is_tried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "CALM", 0.1)
    async with a_scene(tmp_path) as scene:
        scene.agent.on_question("ENG-42", STORAGE)
        scene.linear.fail(times=5, status=502, body=b"Bad gateway", only="CreateActivity")
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        await scene.linear.until(lambda: scene.posted(session, "elicitation"), timeout=3 * PATIENCE)
        ask = await scene.ask_of(session)
        async with asyncio.timeout(PATIENCE):
            while [each.state for each in await scene.desk.broker.showings.of(ask.id)] != ["sent"]:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_what_one_desk_is_told_another_carries_out(tmp_path: Path, database: str) -> None:
    """Linear calls a desk that starts no agents; the one that has a worker does what was asked for."""
    async with a_scene(tmp_path, database=database) as scene:
        scene.agent.on_question("ENG-42", STORAGE)
        async with a_desk(
            tmp_path / "other", scene.linear, scene.repository, Scripted(), database=database, has_worker=False
        ) as other:
            assert scene.linear.webhook is not None and scene.linear.webhook.startswith(other.url)
            session = await scene.linear.delegate(scene.issue, by=scene.ada)
            await scene.asks(session)
            await scene.linear.reply(session, "SQLite", by=scene.ada)
            await scene.ends(session)
            states = (await told(other.http.get("/v1/channels"), 200))["channels"]
            assert [(each["name"], each["state"]) for each in states] == [("linear", "elsewhere")]


async def test_what_is_wrong_with_it_is_found(tmp_path: Path) -> None:
    async with linear() as stand_in:

        async def problems(**table: str) -> list[str]:
            settings = ChannelSettings(
                name="linear",
                table={"api": stand_in.url, "poll_seconds": 15, **table},
                environ={
                    "LINEAR_CLIENT_ID": stand_in.client_id,
                    "LINEAR_CLIENT_SECRET": stand_in.client_secret,
                    "PERSONS": stand_in.key,
                    "WRONG": "lin_oauth_wrong",
                },
                people=People({"ada": Person(name="ada", known_as={} if "token_env" in table else {"linear": "x"})}),
                home=tmp_path,
                database=None,  # type: ignore[arg-type]
                clock=SystemClock(),
            )
            return await plugin(settings).examine()

        repository = str(a_repository(tmp_path / "app"))
        assert await problems(repository=repository) == []
        stand_in.scope = "read write"
        [lacking] = await problems(repository=repository)
        assert lacking.startswith("the app lacks app:assignable, app:mentionable")
        persons, nothing, nobody = await problems(token_env="PERSONS")
        assert "a person's" in persons and "no repository is set" in nothing and "nobody may use it" in nobody
        assert "token" in (await problems(token_env="WRONG"))[0]
        assert "there is no folder" in (await problems(repository=str(tmp_path / "nowhere")))[1]
