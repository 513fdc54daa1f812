"""The Linear channel where it is easy to get wrong: what is meant, what comes twice or late, what nobody sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from handraise.agents.scripted import Scripted
from handraise.asks import Ask, Option, Origin, Permission, Question, Scope
from handraise.channels.linear import channel, dismissals
from handraise.channels.linear.room import Post, Room
from handraise.channels.linear.translate import thought, unclear
from handraise.config import ChannelTable
from handraise.testing.clock import FakeClock
from tests.channels.test_linear import NAME, STORAGE, Scene, a_desk, a_repository, a_scene, git, lasting, passes
from tests.helpers.linear_desk import linear
from tests.helpers.serving import PATIENCE, Served, told

BUILD = Permission(tool="Bash", summary="Run the build", command="make build", replies=("once", "always", "reject"))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "CALM", 0.01)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with a_scene(tmp_path) as found:
        yield found


async def undone(desk: Served, key: str) -> None:
    """As if the desk had ended right after it carried something out, before it could write down that it had."""
    await desk.broker.store.write("update linear_deliveries set done_at = null where id like ?", f"{key}%")


# What is asked, and what is answered ------------------------------------------------------------------------


async def test_a_choice_called_skip_is_a_choice(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", Question("And the failing test?", (Option("Fix"), Option("Skip"))))
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    shown = await scene.asks(session)
    await scene.linear.reply(session, shown["signalMetadata"]["options"][1]["value"], by=scene.ada)
    await scene.ends(session)
    closed = await scene.desk.broker.get(scene.agent.asked[0].id)
    assert closed.state == "answered" and closed.answer is not None
    assert closed.answer.answers == (("Skip",),)


async def test_a_choice_that_is_shown_in_other_letters_is_still_that_choice(scene: Scene) -> None:
    developer = "👩\u200d💻 Developer"  # one sign for the eye, whose joiner is made visible where it is shown
    scene.agent.on_question("ENG-42", Question("For whom?", (Option(developer), Option("Everybody"))))
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    shown = await scene.asks(session)
    await scene.linear.reply(session, shown["signalMetadata"]["options"][0]["value"], by=scene.ada)
    await scene.ends(session)
    answer = (await scene.desk.broker.get(scene.agent.asked[0].id)).answer
    assert answer is not None and answer.answers == ((developer,),)


async def test_a_number_is_itself_where_a_number_is_asked_for(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", Question("How many?", (Option("5"), Option("10")), kind="number"))
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    await scene.linear.reply(session, "2", by=scene.ada)
    await scene.ends(session)
    answer = (await scene.desk.broker.get(scene.agent.asked[0].id)).answer
    assert answer is not None and answer.answers == (("2",),)


async def test_allowing_it_always_says_for_what_and_means_that(scene: Scene) -> None:
    project = Scope(id="project", label="in this project", patterns=("make *",))
    scene.agent.on_permission(
        "ENG-42", Permission(tool="Bash", command="make", replies=BUILD.replies, scopes=(project,))
    )
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    shown = await scene.asks(session)
    labels = [option["value"] for option in shown["signalMetadata"]["options"]]
    assert "Allow for this session" not in labels and any("in this project" in label for label in labels)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (
            Permission(tool="ExitPlanMode", kind="plan", summary="Plan: Two steps", input={"plan": "Drop it all"}),
            "Drop it all",
        ),
        (Permission(tool="mcp__bank__pay", summary="pay", input={"amount": 9000, "to": "mallory"}), "mallory"),
    ],
)
async def test_nobody_allows_what_is_not_shown(scene: Scene, wanted: Permission, text: str) -> None:
    scene.agent.on_permission("ENG-42", wanted)
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    shown = await scene.asks(session)
    assert text in shown["content"]["body"]


async def test_what_was_written_before_a_permission_was_shown_does_not_grant_it(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE).on_permission("ENG-42", BUILD)
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    webhook, scene.linear.webhook = scene.linear.webhook, None
    late = await scene.linear.reply(session, "2", by=scene.ada)  # the second database; it is still on its way
    await scene.desk.answer(scene.agent.asked[0].id, "SQLite")  # somebody at the desk is faster
    await scene.asks(session, count=2)
    scene.linear.webhook = webhook
    before = len(scene.linear.posted(session))
    assert await scene.linear.deliver(scene.linear.prompted(late)) == 200
    await scene.until(lambda: len(scene.linear.posted(session)) > before)
    assert (await scene.desk.broker.get(scene.agent.asked[1].id)).state == "asked"


async def test_a_reply_counts_that_came_before_linear_told_us_that_the_question_is_shown(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", [STORAGE, NAME])
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    scene.linear.fail(only="CreateActivity", carried_out=True, status=502, body=b"")
    await scene.linear.reply(session, "SQLite", by=scene.ada)
    await scene.asks(session, count=2)  # people see it; we do not know that yet
    await scene.linear.reply(session, "desk", by=scene.ada)
    await scene.ends(session)
    answer = (await scene.desk.broker.get(scene.agent.asked[0].id)).answer
    assert answer is not None and answer.answers == (("SQLite",), ("desk",))
    assert len(scene.posted(session, "elicitation")) == 2


# Once and not twice -----------------------------------------------------------------------------------------


async def test_a_reply_that_was_carried_out_is_not_carried_out_again(tmp_path: Path) -> None:
    async with lasting(tmp_path, Scripted().on_question("ENG-42", [STORAGE, NAME])) as begin:
        async with begin() as scene:
            session = await scene.linear.delegate(scene.issue, by=scene.ada)
            await scene.asks(session)
            await scene.linear.reply(session, "SQLite", by=scene.ada)
            await scene.asks(session, count=2)
            await undone(scene.desk, "prompted")
        async with begin() as scene:
            await scene.linear.reply(session, "desk", by=scene.ada)
            await scene.ends(session)
            answer = (await scene.desk.broker.get(scene.agent.asked[0].id)).answer
            assert answer is not None and answer.answers == (("SQLite",), ("desk",))


async def test_an_agent_is_told_once_what_to_do_next(tmp_path: Path) -> None:
    agent = Scripted().on("ENG-42", "Done.").on("And the tests", "Tests too.").on("That is all", "Good.")
    async with lasting(tmp_path, agent) as begin:
        async with begin() as scene:
            session = await scene.linear.delegate(scene.issue, by=scene.ada)
            await scene.ends(session)
            await scene.linear.reply(session, "And the tests?", by=scene.ada)
            await scene.ends(session, count=2)
            await undone(scene.desk, "prompted")
        async with begin() as scene:
            await scene.linear.reply(session, "That is all.", by=scene.ada)
            await scene.until(
                lambda: "Good." in [each["content"]["body"] for each in scene.posted(session, "response")]
            )
            assert [each.text for each in agent.prompted][1:] == ["And the tests?", "That is all."]


async def test_what_was_given_to_us_while_the_desk_was_away_is_begun(tmp_path: Path) -> None:
    async with lasting(tmp_path, Scripted().on("ENG-42", "Done.")) as begin:
        async with begin() as scene:
            pass
        scene.linear.webhook = None
        # Linear tries again later, with a time that is not of now.
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        async with begin() as scene:
            assert await scene.ends(session) == "Done."


# What nobody sees -------------------------------------------------------------------------------------------


async def counts_as(scene: Scene, ask: Ask, state: str) -> None:
    """Return once that is known of showing it in Linear."""
    states: list[str] = []
    async with asyncio.timeout(3 * PATIENCE):
        while state not in states:
            await asyncio.sleep(0.05)
            showings = (await told(scene.desk.http.get(f"/v1/asks/{ask.id}/showings"), 200))["showings"]
            states = [each["state"] for each in showings]


async def test_a_question_for_which_linear_has_no_room_counts_as_not_shown_within_seconds(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE)
    scene.linear.fail(times=1000, code="RATELIMITED", status=400)  # and not for how long, so a minute is assumed
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    ask = await scene.ask_of(session)
    await counts_as(scene, ask, "failed")


async def test_a_question_in_a_session_that_was_dismissed_counts_as_not_shown(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE).on_question("ENG-42", NAME)
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    scene.linear.dismiss(session, by=scene.ada)
    await scene.desk.answer(scene.agent.asked[0].id, "SQLite")
    await scene.until(lambda: len(scene.agent.asked) == 2)
    await counts_as(scene, scene.agent.asked[1], "failed")


async def test_a_question_that_waits_in_a_session_is_not_shown_any_more_once_that_is_dismissed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dismissals, "EVERY", 0.05)
    async with a_scene(tmp_path) as scene:
        scene.agent.on_question("ENG-42", STORAGE)
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        await scene.asks(session)
        scene.linear.fail(times=1, code="INTERNAL_SERVER_ERROR", status=500)  # which says nothing about it
        scene.linear.dismiss(session, by=scene.ada)
        await counts_as(scene, scene.agent.asked[0], "failed")
        await scene.desk.answer(scene.agent.asked[0].id, "SQLite")  # where it still can be
        await scene.ends(session)


async def test_an_issue_that_was_taken_from_us_is_looked_at_at_once(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE)
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    await counts_as(scene, scene.agent.asked[0], "sent")
    scene.linear.dismiss(session, by=scene.ada)
    taken = {"type": "AppUserNotification", "action": "issueUnassignedFromYou", "notification": {}}
    assert await scene.linear.deliver(taken) == 200
    await counts_as(scene, scene.agent.asked[0], "failed")


# Work and its end -------------------------------------------------------------------------------------------


async def test_what_was_committed_without_a_branch_is_not_thrown_away(tmp_path: Path) -> None:
    clock = FakeClock()
    async with a_scene(tmp_path, clock=clock) as scene:
        made: list[str] = []

        def commits(_: object) -> str:
            (worktree,) = scene.worktrees()
            (Path(worktree) / "fix.py").write_text("x = 1\n")
            git(Path(worktree), "add", "fix.py")
            git(Path(worktree), "commit", "-q", "-m", "Fix it")
            made.append(git(Path(worktree), "rev-parse", "HEAD"))
            return "Fixed."

        scene.agent.on("Please fix", commits)
        session = await scene.linear.mention(scene.issue, "Please fix the typo, @handraise", by=scene.ada)
        await scene.ends(session)
        await passes(scene, clock, 61)
        await scene.ended(session)
        kept = git(scene.repository, "for-each-ref", "--contains", made[0]) or scene.worktrees()
        assert kept, "the commit is in no branch and in no worktree"


async def test_a_session_whose_worktree_cannot_be_made_is_over(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        (tmp_path / "home" / "worktrees").write_text("not a folder")
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        await scene.ends(session, "error")
        await scene.ended(session)


async def test_whoever_presses_stop_is_told_something_also_when_it_is_over(scene: Scene) -> None:
    scene.agent.on_failure("ENG-42", "the model is gone")
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.ended(session)
    await scene.linear.stop(session, by=scene.ada)
    await scene.ends(session)
    assert scene.linear.status(session) != "stopping"


async def test_stop_loses_no_response_of_the_turn_before(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "CALM", 1.0)  # nearer to how calm it is
    scene.agent.on_question("ENG-42", STORAGE).on("ENG-42", "The first is done.").on_silence("And the tests")
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    await scene.desk.broker.sessions.order(
        f"linear:{session}", "prompt", "And the tests", at=scene.desk.broker.clock.now()
    )
    await scene.linear.reply(session, "SQLite", by=scene.ada)
    await scene.until(lambda: len(scene.agent.prompted) == 2)
    await scene.linear.stop(session, by=scene.ada)
    await scene.until(
        lambda: "The first is done." in [each["content"]["body"] for each in scene.posted(session, "response")]
    )


def test_a_choice_is_text_also_where_it_is_named_again() -> None:
    ask = Ask(
        id="q1",
        questions=(Question("Which?", (Option("![x](https://example.com/x)"),), custom=False),),
        origin=Origin(agent="a", session="s"),
    )
    assert "![x](" not in unclear(ask, 0)


async def test_two_channels_of_linear_do_not_take_each_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have the same tables, so that each carries out and posts what is the other's, with its own token."""
    agent, repository = Scripted().on("ENG-42", "Done."), a_repository(tmp_path / "app")
    async with linear() as stand_in, linear() as other:
        ada, issue = stand_in.person("Ada", email="ada@example.com"), stand_in.issue("ENG-42", "Choose")
        monkeypatch.setenv("SECOND_TOKEN", other.token)
        table = {"agent": "scripted", "repository": str(repository)}
        channels = {
            "linear": ChannelTable(kind="linear", table={**table, "api": stand_in.url}),
            "second": ChannelTable(kind="linear", table={**table, "api": other.url, "token_env": "SECOND_TOKEN"}),
        }
        async with a_desk(tmp_path / "home", stand_in, repository, agent, channels=channels) as desk:
            scene = Scene(stand_in, desk, agent, repository, ada, ada, issue)
            session = await stand_in.delegate(issue, by=ada)
            assert await scene.ends(session) == "Done."
            assert scene.posted(session, "error") == []
            assert "CreateActivity" not in other.calls


async def test_what_an_agent_says_shows_no_picture_from_elsewhere(scene: Scene) -> None:
    scene.agent.on("ENG-42", "**Done.** ![x](https://example.com/?secret=1)")
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    assert await scene.ends(session) == "**Done.** ! [x](https://example.com/?secret=1)"


async def test_choices_that_are_called_the_same_can_be_told_apart(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", Question("Which?", (Option("Here"), Option("Here"))))
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    shown = await scene.asks(session)
    values = [option["value"] for option in shown["signalMetadata"]["options"]]
    assert values == ["Here", "Here#2"]
    await scene.linear.reply(session, "Here#2", by=scene.ada)
    await scene.ends(session)
    answer = (await scene.desk.broker.get(scene.agent.asked[0].id)).answer
    assert answer is not None and answer.answers == (("Here#2",),)


async def test_a_webhook_that_came_too_late_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "BETWEEN_LOOKS", 0.01)
    async with a_scene(tmp_path) as scene:
        scene.agent.on_question("ENG-42", STORAGE)
        session = await scene.linear.delegate(scene.issue, by=scene.ada)
        await scene.asks(session)
        webhook, scene.linear.webhook = scene.linear.webhook, None
        late = await scene.linear.reply(session, "SQLite", by=scene.ada)
        scene.linear.webhook = webhook
        then = scene.desk.broker.clock.now() - 3_600_000
        assert await scene.linear.deliver(scene.linear.prompted(late), sent_at=then) == 401
        await scene.ends(session)


async def test_what_linear_would_never_take_holds_up_nothing_after_it(scene: Scene) -> None:
    scene.agent.on_question("ENG-42", STORAGE)
    session = await scene.linear.delegate(scene.issue, by=scene.ada)
    await scene.asks(session)
    await Room(scene.desk.broker.store, "linear").write(session, Post("empty", thought("")), at=1)
    await scene.linear.reply(session, "SQLite", by=scene.ada)
    await scene.ends(session)
