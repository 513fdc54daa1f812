"""What authors of workflows get: tests of a few lines on a clock that stands still, and steps that keep their word."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from handraise import Option, Permission, Question
from handraise.agents import Asker, Start
from handraise.agents.scripted import ScriptedSession
from handraise.asks import AutoRule
from handraise.errors import AnswerDoesNotFit, OutputDoesNotFit, RunEnded, SettingsError, WorkflowBroken
from handraise.testing import Run, Scripted, ScriptedPerson, a_run, run_workflow
from handraise.workflow import Workflow, agent, checkpoint, parallel, shell
from handraise.workflow.journal import Journal
from tests.helpers.serving import Served, serving
from tests.workflow.test_engine import a_desk, has_ended, started, types, until, written

DATABASE = Question("Which database?", (Option("SQLite"), Option("Postgres")), header="DB Choice")
NAME = Question("What shall it be called?", header="Name")


def asking(*questions: Question) -> Scripted:
    """An agent that asks when it explores, and says what it was told."""

    def told(answers: list[Any]) -> str:
        if answers[0].rejected:
            return f"rejected: {answers[0].reason}"
        return ", ".join("+".join(values) for values in answers[0].answers)

    return Scripted().on_question("explore", questions or (DATABASE,)).on("explore", told)


def exploring(**options: Any) -> Workflow:
    return Workflow("one", agent("explore", "explore it", **options))


# Questions: the policies of a step ------------------------------------------------------------------------------------


async def test_a_question_is_forwarded_answered_and_in_the_trace() -> None:
    person = ScriptedPerson().on("DB Choice", [["Postgres"]])
    run = await run_workflow(exploring(question_policy="forward"), agents=asking(), person=person)
    assert (run.state, run.output) == ("done", "Postgres")
    asked, answered = (event for event in run.trace if event["type"].startswith("agent_question"))
    assert asked["type"] == "agent_question_asked"
    assert (asked["step_id"], asked["question"]["questions"][0]["header"]) == ("explore", "DB Choice")
    assert asked["session_id"] == answered["session_id"]
    assert answered["type"] == "agent_question_answered"
    assert (answered["question_id"], answered["answers"]) == (asked["question"]["id"], [["Postgres"]])


async def test_a_forwarded_question_waits_for_its_answer() -> None:
    async with a_run(exploring(question_policy="forward"), agents=asking()) as run:
        await run.waits_for("DB Choice")
        await run.clock.advance(7 * 86400)
        assert (await run.look()).state == "waiting"
        assert run.events[-1] == "agent_question_asked explore"
        run.person.on("DB Choice", [["SQLite"]])
        assert (await run.ended()).output == "SQLite"


async def test_rejecting_is_what_a_step_does_where_nobody_said_otherwise() -> None:
    for workflow in (exploring(), exploring(question_policy="reject")):
        run = await run_workflow(workflow, agents=asking())
        assert run.state == "done"
        assert run.output.startswith("rejected")
        assert run.asked[0].answer is not None
        assert (run.asked[0].state, run.asked[0].answer.by) == ("rejected", "policy:reject")
        assert run.person.seen == []


async def test_accept_first_takes_the_first_option_and_asks_nobody() -> None:
    run = await run_workflow(exploring(question_policy="accept-first"), agents=asking(DATABASE, DATABASE))
    assert run.output == "SQLite, SQLite"
    assert run.person.seen == []


async def test_accept_first_rejects_what_has_no_options() -> None:
    run = await run_workflow(exploring(question_policy="accept-first"), agents=asking(DATABASE, NAME))
    assert (run.state, run.asked[0].state) == ("done", "rejected")


async def test_rules_answer_what_they_match_and_the_first_option_the_rest() -> None:
    rules = [AutoRule(match="DB", answers=("Postgres",)), AutoRule(match="called", answers=("Early Bird",))]
    colour = Question("Which colour?", (Option("red"), Option("blue")))
    for questions, expected in (((DATABASE,), "Postgres"), ((NAME,), "Early Bird"), ((colour,), "red")):
        run = await run_workflow(exploring(question_policy=rules), agents=asking(*questions))
        assert run.output == expected
    run = await run_workflow(exploring(question_policy=rules), agents=asking(Question("Why?")))
    assert run.asked[0].state == "rejected"


@pytest.mark.parametrize(("question", "expected"), [(DATABASE, "SQLite"), (NAME, "rejected: no answer in 30 s")])
async def test_silence_takes_the_first_option_and_rejects_free_text(question: Question, expected: str) -> None:
    workflow = exploring(question_policy="forward", question_timeout=30)
    async with a_run(workflow, agents=asking(question)) as run:
        await run.waits_for(question.header)
        await run.clock.advance(29)
        assert (await run.look()).state == "waiting"
        await run.clock.advance(1)
        assert (await run.ended()).output == expected
    assert run.asked[0].answer is not None
    assert run.asked[0].answer.by == "policy:timeout"


async def test_silence_rejects_where_the_author_wants_that() -> None:
    workflow = exploring(question_policy="forward", question_timeout=30, on_timeout="reject")
    async with a_run(workflow, agents=asking()) as run:
        await run.waits_for("DB Choice")
        await run.clock.advance(30)
        assert (await run.ended()).output == "rejected: no answer in 30 s"


async def test_several_questions_are_one_ask_with_an_answer_each() -> None:
    hosts = Question("Which hosts?", (Option("web1"), Option("db1")), multiple=True)
    person = ScriptedPerson().on("DB Choice", [["Postgres"], ["web1", "db1"], ["Early Bird"]])
    workflow = exploring(question_policy="forward")
    run = await run_workflow(workflow, agents=asking(DATABASE, hosts, NAME), person=person)
    assert run.output == "Postgres, web1+db1, Early Bird"
    assert len(run.asked) == 1


async def test_steps_that_run_at_the_same_time_ask_at_the_same_time() -> None:
    one = Scripted().on_question("", Question("Left?", (Option("a"),))).on("", lambda said: said[0].value or "")
    two = Scripted().on_question("", Question("Right?", (Option("b"),))).on("", lambda said: said[0].value or "")
    workflow = Workflow(
        "two",
        parallel(
            agent("left", "go", agent="claude", question_policy="forward"),
            agent("right", "go", agent="opencode", question_policy="forward"),
        ),
        shell("both", "echo {left} {right}"),
    )
    async with a_run(workflow, agents={"claude": one, "opencode": two}) as run:
        await run.waits_for("Left")
        await run.waits_for("Right")
        assert {ask.origin.step for ask in run.person.open} == {"left", "right"}
        assert len({ask.origin.session for ask in run.person.open}) == 2
        run.person.on("Right", [["b"]])
        await run.until("step_completed right")
        assert run.state == "waiting"
        run.person.on("Left", [["a"]])
        assert (await run.ended()).output["output"] == "a b\n"


async def test_a_permission_of_a_step_waits_for_a_person_whatever_its_questions_do() -> None:
    wanted = Permission(tool="Bash", summary="Remove it", command="rm -rf build", replies=("once", "reject"))
    cleaner = Scripted().on_permission("", wanted).on("", lambda said: said[0].reply or "")
    async with a_run(exploring(question_policy="accept-first", question_timeout=5), agents=cleaner) as run:
        await run.waits_for("rm -rf")
        run.person.on("rm -rf", reply="once")
        assert (await run.ended()).output == "once"
    assert "agent_permission_answered explore" in run.events


async def told_of(desk: Served, run: str, event: str) -> None:
    """Wait until the trace has it."""
    async with asyncio.timeout(20), Journal(desk.broker.store).changes() as changed:
        while event not in await types(desk, run):
            await changed.wait()
            changed.clear()


# Time -----------------------------------------------------------------------------------------------------------------


async def test_a_step_that_waits_for_a_person_is_not_stale() -> None:
    silent = asking().on_silence("explore")
    async with a_run(exploring(question_policy="forward", stale_after=60), agents=silent) as run:
        await run.waits_for("DB Choice")
        await run.clock.advance(3600)
        assert (await run.look()).state == "waiting"
        run.person.on("DB Choice", [["SQLite"]])
        await run.until("agent_question_answered")
        await run.clock.advance(59)  # the answer began it anew
        assert (await run.look()).state == "running"
        await run.clock.advance(1)
        await run.ended()
        assert (run.state, run.error) == ("failed", "explore: no sign of life for 60 s")


async def test_a_step_without_a_sign_of_life_is_stopped_and_the_trace_says_why() -> None:
    silent = Scripted().on_silence("explore", times=1).on("explore", "there it is")
    async with a_run(exploring(stale_after=60, retries=1, backoff=0), agents=silent) as run:
        await run.until(lambda: bool(silent.prompted))
        await run.clock.advance(60)
        assert (await run.ended()).output == "there it is"
    (failed,) = (event for event in run.trace if event["type"] == "step_failed")
    assert failed["error"] == "no sign of life for 60 s"


async def test_a_step_may_take_only_so_long_also_while_it_asks() -> None:
    async with a_run(exploring(question_policy="forward", timeout=100), agents=asking()) as run:
        await run.waits_for("DB Choice")
        await run.clock.advance(100)
        assert (await run.ended()).error == "explore: it took longer than 100 s"
        await run.until(lambda: not run.person.open)
        assert (await run.look()).asked[0].state == "withdrawn"


async def test_a_checkpoint_that_took_too_long_waits_for_nobody_any_more() -> None:
    async with a_run(Workflow("one", checkpoint("review", timeout=3600))) as run:
        waiting = await run.waits_at("review")
        await run.clock.advance(3600)
        assert (await run.ended()).error == "review: it took longer than 3600 s"
        with pytest.raises(RunEnded, match="nobody waits for it any more"):
            await run.journal.give(waiting.id, True, by="ana", via="test", at=0)


async def test_a_step_is_tried_again_after_a_pause_that_doubles() -> None:
    broken = Scripted().on_failure("explore", "the model is away", times=2).on("explore", "there it is")
    async with a_run(exploring(retries=3, backoff=10), agents=broken) as run:
        for attempt, pause in ((1, 10), (2, 20)):
            await run.until(lambda attempt=attempt: run.events.count("step_failed explore") == attempt)  # type: ignore[misc]
            await run.clock.advance(pause - 1)
            assert (await run.look()).events.count("step_started explore") == attempt
            await run.clock.advance(1)
        assert (await run.ended()).output == "there it is"
    assert [event["error"] for event in run.trace if event["type"] == "step_failed"] == ["the model is away"] * 2
    assert len({asked.session for asked in broken.prompted}) == 3


async def test_a_step_that_failed_too_often_fails_the_run() -> None:
    broken = Scripted().on_failure("explore", "the model is away")
    run = await run_workflow(exploring(retries=1, backoff=0), agents=broken)
    assert (run.state, run.error) == ("failed", "explore: the model is away")
    assert len(broken.prompted) == 2


async def test_a_step_that_failed_for_good_is_not_tried_again_by_the_next_desk(tmp_path: Path) -> None:
    text = """
from handraise.workflow import *
w = Workflow("two", parallel(
    shell("no", "echo x >> TRIES; exit 3"),
    agent("explore", "explore it", agent="scripted", question_policy="forward"),
))
"""
    file, database = written(tmp_path / "shop", text), f"sqlite:///{tmp_path / 'desk.db'}"
    async with a_desk(tmp_path / "home", database, asking()) as desk:
        run = await started(desk, file, workflow="two")
        await until(desk, run.id, lambda record: record.open_asks == 1)
        await told_of(desk, run.id, "step_failed no")
    person = ScriptedPerson().on("DB Choice", [["SQLite"]])
    async with a_desk(tmp_path / "home", database, asking(), person) as desk:
        ended = await until(desk, run.id, has_ended)
        assert (ended.state, ended.error) == ("failed", "no: it ended with 3")
    assert (tmp_path / "shop" / "TRIES").read_text() == "x\n"


async def test_a_pause_before_a_retry_is_kept_by_the_next_desk(tmp_path: Path) -> None:
    text = """
from handraise.workflow import *
w = Workflow("one", shell("no", "exit 3", retries=1, backoff=3600))
"""
    file, database = written(tmp_path / "shop", text), f"sqlite:///{tmp_path / 'desk.db'}"
    async with a_desk(tmp_path / "home", database, asking()) as desk:
        run = await started(desk, file, workflow="one")
        await told_of(desk, run.id, "step_failed no")
    async with a_desk(tmp_path / "home", database, asking()) as desk:
        other = await started(desk, written(tmp_path / "other", text.replace("3600", "0")), workflow="one")
        assert (await until(desk, other.id, has_ended)).state == "failed"  # it was taken up after the first one
        assert (await types(desk, run.id)).count("step_started no") == 1


async def test_the_time_of_a_step_goes_on_while_no_desk_is_there(tmp_path: Path) -> None:
    text = 'from handraise.workflow import *\nw = Workflow("one", checkpoint("review", timeout=0.3))'
    file, database = written(tmp_path / "shop", text), f"sqlite:///{tmp_path / 'desk.db'}"
    async with a_desk(tmp_path / "home", database, asking()) as desk:
        run = await started(desk, file, workflow="one")
        await until(desk, run.id, lambda record: record.open_checkpoints == 1)
        begun = (await until(desk, run.id, lambda record: True)).created_at
    async with a_desk(tmp_path / "home", database, asking()) as desk:
        ended = await until(desk, run.id, has_ended)
        assert ended.error == "review: it took longer than 0.3 s"
        told = await types(desk, run.id)
        assert ended.updated_at - begun >= 300
    assert told.count("step_started review") == told.count("checkpoint_waiting review") == 1


# What a step gives ----------------------------------------------------------------------------------------------------


def branch(run: str, say: Any) -> str:
    return f"{run} {say.output.strip()}"


async def test_the_id_of_the_run_is_filled_in_too() -> None:
    run = await run_workflow(Workflow("one", shell("say", "echo handraise/{run}"), branch))
    assert run.output == f"{run.id} handraise/{run.id}"
    with pytest.raises(WorkflowBroken, match=r"\{run.id\}: run is a str and has nothing inside"):
        Workflow("one", shell("say", "echo {run.id}"))
    with pytest.raises(WorkflowBroken, match=r"'run' is no name for a step; .* input and run are not"):
        Workflow("one", shell("run", "true"))


class Plan(BaseModel):
    steps: list[str]
    days: int = 1


async def test_an_agent_is_told_what_its_answer_has_to_look_like_and_what_is_wrong_with_it() -> None:
    planner = Scripted().on("days: Input should be", 'Sorry:\n```json\n{"steps": ["a"], "days": 2}\n```')
    planner.on("plan", '{"steps": ["a"], "days": "soon"}')
    workflow = Workflow("one", agent("plan", "plan it", output=Plan), shell("say", "echo {plan.days}: {plan.steps[0]}"))
    run = await run_workflow(workflow, agents=planner)
    assert run.outputs["plan"] == {"steps": ["a"], "days": 2}
    assert run.output["output"] == "2: a\n"
    first, second = (prompted.text for prompted in planner.prompted)
    assert first.startswith("plan it\n\n") and '"days"' in first and "JSON alone" in first
    assert second.startswith("Your last answer does not fit:\n- days: Input should be")
    assert len({prompted.session for prompted in planner.prompted}) == 1
    assert run.events.count("agent_repaired plan") == 1


async def test_a_checkpoint_that_is_done_again_asks_again() -> None:
    workflow = Workflow("one", checkpoint("review", output=int), shell("say", "echo {review}"))
    async with a_run(workflow) as run:
        await run.give("review", 3)
        assert (await run.ended()).output["output"] == "3\n"
        await run.retry("review")
        await run.give("review", 4)
        assert (await run.ended()).output["output"] == "4\n"


async def test_a_run_that_was_cancelled_goes_on_when_it_is_retried() -> None:
    workflow = Workflow("one", shell("first", "echo x"), checkpoint("review", output=int))
    async with a_run(workflow) as run:
        await run.waits_at("review")
        await run.cancel()
        assert (await run.ended()).state == "cancelled"
        await run.retry()
        await run.give("review", 4)
        assert (await run.ended()).output == 4
    assert run.events.count("step_started first") == 1


# Worktrees ------------------------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=Ana", "-c", "user.email=ana@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project with one commit."""
    folder = tmp_path.resolve() / "shop"
    (folder / "web").mkdir(parents=True)
    (folder / "web" / "page").write_text("hello")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


class Builder(Scripted):
    """An agent that does something in the folder it is started in."""

    def __init__(self, build: Callable[[Path], object]) -> None:
        super().__init__()
        self.folders: list[Path] = []
        self._build = build
        self.on("", self._built)

    async def open(self, asker: Asker, start: Start) -> ScriptedSession:
        assert start.cwd is not None
        self.folders.append(Path(start.cwd))
        return await super().open(asker, start)

    def _built(self, answers: list[Any]) -> str:
        self._build(self.folders[-1])
        return "built"


def worktree_events(run: Run) -> dict[str, dict[str, Any]]:
    return {event["type"]: event for event in run.trace if event["type"].startswith("worktree_")}


async def test_a_step_works_in_a_worktree_of_its_own_which_goes_when_it_is_clean(shop: Path) -> None:
    builder = Builder(lambda folder: None)
    workflow = Workflow("one", agent("build", "build it", worktree=True))
    run = await run_workflow(workflow, agents=builder, cwd=shop)
    assert (run.state, run.error) == ("done", None)
    path = shop / ".handraise" / "worktrees" / f"{run.id}-build"
    assert builder.folders == [path]
    told = worktree_events(run)
    assert told["worktree_made"]["base"] == git(shop, "rev-parse", "HEAD")
    assert told["worktree_made"]["path"] == str(path)
    assert told["worktree_removed"]["branch"] is None
    assert not path.exists()
    assert git(shop, "branch", "--format=%(refname:short)") == "main"
    assert git(shop, "status", "--porcelain") == ""


async def test_a_worktree_with_work_that_is_not_committed_is_kept(shop: Path) -> None:
    builder = Builder(lambda folder: (folder / "new").write_text("work"))
    workflow = Workflow("one", agent("build", "build it", worktree=True, cwd="web"))
    run = await run_workflow(workflow, agents=builder, cwd=shop)
    told = worktree_events(run)["worktree_kept"]
    assert "error" not in told
    kept = Path(told["path"])
    assert (kept / "web" / "new").read_text() == "work"
    assert builder.folders == [kept / "web"]
    assert not (shop / "web" / "new").exists()
    assert git(shop, "status", "--porcelain") == ""


async def test_what_was_committed_in_a_worktree_is_on_its_branch(shop: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "new").write_text("work")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", "work")

    workflow = Workflow("one", agent("build", "build it", worktree=True))
    run = await run_workflow(workflow, agents=Builder(build), cwd=shop)
    removed = worktree_events(run)["worktree_removed"]
    assert not Path(removed["path"]).exists()
    assert removed["branch"] == f"handraise/{run.id}/build"
    assert git(shop, "show", f"{removed['branch']}:new") == "work"
    assert git(shop, "rev-parse", f"{removed['branch']}~1") == worktree_events(run)["worktree_made"]["base"]


async def test_steps_at_the_same_time_have_a_worktree_each(shop: Path) -> None:
    builder = Builder(lambda folder: (folder / "new").write_text("work"))
    steps = [agent(name, "build it", worktree=True) for name in ("left", "middle", "right")]
    run = await run_workflow(Workflow("three", parallel(*steps)), agents=builder, cwd=shop)
    assert (run.state, run.error) == ("done", None)
    assert len(set(builder.folders)) == 3


async def test_the_attempts_of_a_step_share_a_worktree_and_a_failure_keeps_what_is_in_it(shop: Path) -> None:
    builder = Builder(lambda folder: None).on_failure("", "broke")
    workflow = Workflow("one", agent("build", "build it", worktree=True, retries=1, backoff=0))
    run = await run_workflow(workflow, agents=builder, cwd=shop)
    assert (run.state, run.error) == ("failed", "build: broke")
    assert len(builder.folders) == 2 and len(set(builder.folders)) == 1
    assert [event.split()[0] for event in run.events if "worktree" in event] == ["worktree_made", "worktree_removed"]


async def test_a_cancelled_step_leaves_no_clean_worktree(shop: Path) -> None:
    builder = Builder(lambda folder: None).on_silence("")
    async with a_run(Workflow("one", agent("build", "build it", worktree=True)), agents=builder, cwd=shop) as run:
        await run.until(lambda: bool(builder.prompted))
        await run.cancel()
        assert (await run.ended()).state == "cancelled"
    assert "worktree_removed" in worktree_events(run)


async def test_a_worktree_is_found_again_by_the_next_desk(shop: Path, tmp_path: Path) -> None:
    text = """
from handraise.workflow import *
w = Workflow("one", agent("build", "explore it", agent="scripted", worktree=True, question_policy="forward"))
"""
    file, database = written(shop, text), f"sqlite:///{tmp_path / 'desk.db'}"
    async with a_desk(tmp_path / "home", database, asking()) as desk:
        run = await started(desk, file, workflow="one")
        await until(desk, run.id, lambda record: record.open_asks == 1)
    (path,) = (each for each in (shop / ".handraise" / "worktrees").iterdir() if each.is_dir())
    (path / "new").write_text("work")
    person = ScriptedPerson().on("DB Choice", [["SQLite"]])
    async with a_desk(tmp_path / "home", database, asking(), person) as desk:
        ended = await until(desk, run.id, has_ended)
        assert (ended.state, ended.error) == ("done", None)
        told = await types(desk, run.id)
    assert (path / "new").read_text() == "work"
    assert [event for event in told if "worktree" in event] == ["worktree_made build", "worktree_kept build"]


async def test_a_run_that_was_cancelled_while_no_desk_was_there_leaves_nothing_behind(
    shop: Path, tmp_path: Path
) -> None:
    text = """
from handraise.workflow import *
w = Workflow("one", agent("build", "explore it", agent="scripted", worktree=True, question_policy="forward"))
"""
    file, database = written(shop, text), f"sqlite:///{tmp_path / 'desk.db'}"
    async with a_desk(tmp_path / "home", database, asking()) as desk:
        run = await started(desk, file, workflow="one")
        await until(desk, run.id, lambda record: record.open_asks == 1)
    async with serving(tmp_path / "home", database=database, has_worker=False) as desk:
        await Journal(desk.broker.store).cancel(run.id, at=desk.broker.clock.now())
    async with a_desk(tmp_path / "home", database, asking()) as desk:
        ended = await until(desk, run.id, lambda record: has_ended(record) and not record.open_asks)
        assert ended.state == "cancelled"
        told = await types(desk, run.id)
    assert told[-2:] == ["worktree_removed build", "run_cancelled"]
    assert not [each for each in (shop / ".handraise" / "worktrees").iterdir() if each.is_dir()]


async def test_a_worktree_needs_a_repository_with_a_commit(tmp_path: Path) -> None:
    workflow = Workflow("one", agent("build", "build it", worktree=True, retries=3))
    run = await run_workflow(workflow, agents=Scripted(), cwd=tmp_path)
    assert run.error is not None
    assert run.error.startswith("build: worktree: ") and run.error.endswith("has to be in a git repository")
    git(tmp_path, "init", "--quiet")
    run = await run_workflow(workflow, agents=Scripted(), cwd=tmp_path)
    assert run.error is not None
    assert run.error.endswith("there is no commit yet")


# The tools of the test ------------------------------------------------------------------------------------------------


async def test_a_test_is_told_what_the_run_waits_for() -> None:
    with pytest.raises(AssertionError, match="step explore asks 'DB Choice', and the person has no line for it"):
        await run_workflow(exploring(question_policy="forward"), agents=asking(), within=0.2)
    with pytest.raises(AssertionError, match="checkpoint review waits, and the person has no line for it"):
        await run_workflow(Workflow("one", checkpoint("review")), within=0.2)


async def test_a_test_is_told_what_is_wrong_with_the_person() -> None:
    strict = Question("Which?", (Option("a"),), custom=False)
    person = ScriptedPerson().on("Which", [["b"]]).on_checkpoint("review", "soon")
    with pytest.raises(AnswerDoesNotFit):
        await run_workflow(exploring(question_policy="forward"), agents=asking(strict), person=person)
    with pytest.raises(OutputDoesNotFit, match='"soon" is not of type "integer"'):
        await run_workflow(Workflow("one", checkpoint("review", output=int)), person=person)


async def test_a_test_starts_no_agent_that_nobody_stands_in_for() -> None:
    workflow = Workflow("two", agent("plan", "plan"), agent("build", "build", agent="codex"))
    with pytest.raises(SettingsError, match="nobody stands in for codex; give agents="):
        await run_workflow(workflow, agents={"claude": Scripted()})
    with pytest.raises(SettingsError, match="nobody stands in for claude"):
        await run_workflow(workflow)


async def test_an_input_that_does_not_fit_starts_nothing() -> None:
    with pytest.raises(ValidationError, match="steps"):
        await run_workflow(Workflow("one", shell("say", "echo"), input=Plan), {"days": 3})
    run = await run_workflow(Workflow("one", shell("say", "echo {input.days}"), input=Plan), Plan(steps=[], days=3))
    assert run.output["output"] == "3\n"
