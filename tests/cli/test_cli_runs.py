"""The commands for runs of workflows as people and scripts run them: real processes, and real terminals."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from handraise.agents.scripted import Scripted
from handraise.asks import Answer, Option, Permission, Question
from handraise.cli.checkpoint_forms import output_of, read_output, to_ask, wanted
from handraise.client import Client
from handraise.errors import AnswerDoesNotFit, SettingsError
from handraise.events import Asked, Event
from tests.cli.test_cli_sessions import Place, Screen, a_screen
from tests.helpers.quick import quick_handraise
from tests.helpers.serving import START, Served, first_event, serving, told
from tests.helpers.trusting import trust_project

FLOWS = """
from typing import Literal
from pydantic import BaseModel, Field
from handraise.workflow import Workflow, agent, checkpoint, parallel, shell

class Goal(BaseModel):
    goal: str
    times: int = 1
    tags: list[str] = []

class Review(BaseModel):
    approved: bool
    stars: int = Field(3, ge=1, le=5)
    note: str = ""

class Nested(BaseModel):
    reviews: list[Review]

def shout(input: Goal) -> dict[str, object]:
    return {"goal": input.goal * input.times, "tags": input.tags}

quiet = Workflow("quiet", shout, input=Goal, description="says it louder")
database = Workflow("database", agent("plan", "database", agent="scripted", question_policy="forward"))
both = Workflow(
    "both",
    parallel(
        agent("left", "left", agent="scripted", question_policy="forward"),
        agent("right", "right", agent="scripted", question_policy="forward"),
    ),
)
review = Workflow("review", checkpoint("look", input="Is it \\x1b[31mgood\\u202e?", output=Review))
yes = Workflow("yes", checkpoint("sure", input="Go?"), shell("go", "echo went"))
nested = Workflow("nested", checkpoint("deep", output=Nested))
fails = Workflow("fails", shell("first", "echo one >> FIRST"), shell("second", "test -e FINE"), shell("third", "true"))
bounded = Workflow(
    "bounded",
    agent("plan", "database", agent="scripted", question_policy="forward", question_timeout=0.05),
)
allowed = Workflow("allowed", agent("clean", "clean", agent="scripted"))
"""


def asking(header: str) -> Question:
    return Question(f"Which {header}?", (Option("SQLite", description="one file"), Option("Postgres")), header=header)


def script() -> Scripted:
    agent = Scripted().on_permission("clean", Permission(tool="Bash", summary="Clean up", command="rm -rf build"))
    agent.on("clean", lambda answers: f"clean: {answers[0].reply}")
    for word, header in (("database", "Database"), ("left", "Left side"), ("right", "Right side")):
        agent.on_question(word, asking(header))
        agent.on(word, lambda answers: f"it is {answers[0].value or answers[0].reason}")
    return agent


@pytest.fixture(scope="module", autouse=True)
def program() -> Iterator[None]:
    """`handraise` on the PATH. Each call is a process of its own, only quicker to start."""
    with quick_handraise() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    flows = made.folder / ".handraise" / "workflows" / "flows.py"
    flows.parent.mkdir(parents=True)
    flows.write_text(FLOWS)
    trust_project(made.folder, home=made.home)
    yield made
    await made.clear()


@pytest.fixture
async def desk(place: Place) -> AsyncIterator[Served]:
    async with serving(place.home, staff=[script()]) as desk:
        yield desk


async def asked(desk: Served, header: str) -> Event:
    def fits(event: Event) -> bool:
        return isinstance(event, Asked) and event.ask.title == header

    return await first_event(desk.broker, fits)


async def newest(desk: Served) -> dict[str, Any]:
    run = (await told(desk.http.get("/v1/runs"), 200))["runs"][0]
    return await told(desk.http.get(f"/v1/runs/{run['id']}"), 200)


async def detached(place: Place, *words: str) -> str:
    done = await place.run("run", *words, "--detach")
    assert done.code == 0, done.err
    return done.out.strip()


async def waiting_checkpoint(desk: Served, run: str) -> str:
    assert (await told(desk.http.get(f"/v1/runs/{run}?wait=10"), 200))["state"] == "waiting"
    [found] = (await told(desk.http.get(f"/v1/checkpoints?run={run}&state=open"), 200))["checkpoints"]
    return str(found["id"])


def lines_of(out: str) -> list[str]:
    """Without the time of day that each begins with."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in out.splitlines()]


# run --------------------------------------------------------------------------------------------------------


async def test_run_prints_a_line_for_each_event_and_then_the_output(desk: Served, place: Place) -> None:
    done = await place.run("run", "quiet", "--input", "goal=12", "--input", "times=2", "--input", 'tags=["a"]')
    run = await newest(desk)
    assert (done.code, done.err) == (0, "")
    lines = lines_of(done.out)
    assert lines[0] == f"run {run['id']} of quiet"
    assert lines[1:5] == [
        f"INFO  ▸ quiet {run['id']} started",
        "INFO      ⟳ shout: started",
        "INFO      ✓ shout: completed",
        "INFO  ✓ completed",
    ]
    assert json.loads("\n".join(lines[5:])) == {"goal": "1212", "tags": ["a"]}, "text stays text, the rest is JSON"
    assert run["cwd"] == str(place.folder)


async def test_as_json_there_are_events_and_at_last_the_run(desk: Served, place: Place) -> None:
    (place.folder / "input.json").write_text('{"goal": "a", "times": 2}')
    done = await place.run("run", "quiet", "--input-file", "input.json", "--input", "goal=b", "--json")
    *events, run = map(json.loads, done.out.splitlines())
    assert done.code == 0
    assert [event["type"] for event in events][0::3] == ["run_started", "run_completed"]
    assert (run["state"], run["output"]["goal"]) == ("done", "bb")


async def test_without_a_terminal_it_leaves_with_3_and_says_how_to_answer(desk: Served, place: Place) -> None:
    done = await place.run("run", "database")
    run = await newest(desk)
    assert done.code == 3
    assert lines_of(done.out)[-1] == "WARN      ? plan: agent asks: Database"
    said = done.err.splitlines()
    assert said[0].startswith("plan asks: Database · ")
    assert said[1] == f"handraise: run {run['id']} waits for a person and stays at the desk"
    assert (await place.run(*shlex.split(said[0].partition(" · ")[2])[1:])).code == 0
    ended = await told(desk.http.get(f"/v1/runs/{run['id']}?wait=10"), 200)
    assert (ended["state"], ended["output"]) == ("done", "it is SQLite")


async def test_a_checkpoint_is_waited_for_too_and_given_from_the_command_line(desk: Served, place: Place) -> None:
    done = await place.run("run", "yes", "--json")
    run = await newest(desk)
    assert done.code == 3
    assert json.loads(done.out.splitlines()[-1])["state"] == "waiting"
    how = re.search(r"sure waits for you · (.*)", done.err)
    assert how is not None
    shown = await place.run(*shlex.split(how[1])[1:])
    assert shown.out.splitlines() == [f"{run['id']}.sure", "Go?", "wants true or false"]
    given = await place.run(*shlex.split(how[1])[1:], "true")
    assert (given.code, given.out) == (0, f"checkpoint {run['id']}.sure was given; its run goes on\n")
    ended = await told(desk.http.get(f"/v1/runs/{run['id']}?wait=10"), 200)
    assert ended["output"]["output"] == "went\n"


async def test_a_permission_is_waited_for_as_a_question_is(desk: Served, place: Place) -> None:
    done = await place.run("run", "allowed")
    assert done.code == 3
    assert lines_of(done.out)[-1] == "WARN      ? clean: agent wants to: Clean up"
    how = done.err.splitlines()[0].partition(" · ")[2]
    assert (await place.run(*shlex.split(how)[1:])).code == 0
    ended = await told(desk.http.get(f"/v1/runs/{(await newest(desk))['id']}?wait=10"), 200)
    assert ended["output"] == "clean: once"


async def test_what_a_deadline_answers_is_not_left_for(desk: Served, place: Place) -> None:
    done = await place.run("run", "bounded")
    assert done.code == 0, done.err
    assert lines_of(done.out)[-1] == "it is SQLite"


async def test_with_wait_it_stays_until_somebody_elsewhere_has_answered(desk: Served, place: Place) -> None:
    process = await place.begin("handraise", "run", "database", "--wait")
    await desk.answer((await asked(desk, "Database")).ask.id, "Postgres")
    done = await place.end(process)
    assert done.code == 0
    assert lines_of(done.out)[-3:] == ["INFO      ✓ plan: completed", "INFO  ✓ completed", "it is Postgres"]
    assert "INFO      → plan: answered: Postgres" in lines_of(done.out)


async def test_a_run_that_fails_is_exit_code_1_and_says_how_to_go_on(desk: Served, place: Place) -> None:
    done = await place.run("run", "fails")
    run = await newest(desk)
    assert done.code == 1
    assert lines_of(done.out)[-1] == "ERROR ✗ failed: second: it ended with 1"
    assert f"run {run['id']} is failed; " in done.err and f"retry {run['id']}" in done.err


async def test_what_cannot_be_run_is_said_in_a_sentence(desk: Served, place: Place) -> None:
    for words, code, said in (
        (("nothing",), 1, "there is no workflow 'nothing'"),
        (("quiet",), 2, "goal: Field required"),
        (("quiet", "--input", "goal=a", "--input", "times=many"), 2, "times: "),
        (("quiet", "--input", "goal"), 2, "NAME=VALUE"),
        (("quiet", "--input-file", "nowhere.json"), 2, "cannot be read"),
        (("quiet", "--cwd", "/no/such/folder"), 2, "no folder"),
        (("quiet", "--url", "http://127.0.0.1:9"), 5, "handraise serve"),
    ):
        done = await place.run("run", *words)
        assert (done.code, done.out) == (code, ""), (words, done)
        assert said in done.err and "Traceback" not in done.err
    assert (await told(desk.http.get("/v1/runs"), 200))["runs"] == []


async def test_without_a_desk_it_is_one_itself_and_the_run_goes_on_at_the_next(place: Place) -> None:
    done = await place.run("run", "quiet", "--input", "goal=a")
    assert (done.code, done.err) == (0, "")
    left = await place.run("run", "yes")
    assert left.code == 3
    assert "goes on when a desk runs here: " in left.err
    again = await place.run("run", "quiet", "--input", "goal=a")
    assert "handraise: 1 still waiting; " in again.err
    async with serving(place.home, staff=[script()]) as desk:
        [waiting] = [run for run in (await told(desk.http.get("/v1/runs"), 200))["runs"] if run["workflow"] == "yes"]
        given = await place.run("checkpoint", waiting["id"], "true", "--json")
        assert (given.code, json.loads(given.out)["state"]) == (0, "given")
        ended = await told(desk.http.get(f"/v1/runs/{waiting['id']}?wait=10"), 200)
        assert ended["state"] == "done"


async def test_ctrl_c_leaves_and_the_run_goes_on(desk: Served, place: Place) -> None:
    process = await place.begin(sys.executable, "-m", "handraise", "run", "database", "--wait")
    ask = (await asked(desk, "Database")).ask
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readuntil(b"agent asks"), START)
    process.send_signal(signal.SIGINT)
    done = await place.end(process)
    assert done.code == 130, done.err
    assert "stays at the desk" in done.err
    assert (await desk.get(ask.id))["state"] == "asked"


# runs, trace, workflows -------------------------------------------------------------------------------------


async def test_runs_are_listed_and_one_is_shown_with_what_it_waits_for(desk: Served, place: Place) -> None:
    assert (await place.run("runs")).out == "There are no runs.\n"
    first = await detached(place, "quiet", "--input", "goal=a")
    await told(desk.http.get(f"/v1/runs/{first}?wait=10"), 200)
    second = await detached(place, "review")
    checkpoint = await waiting_checkpoint(desk, second)
    listed = (await place.run("runs")).out.splitlines()
    assert listed[0].split() == ["ID", "STATE", "WORKFLOW", "AGE", "WAITS", "WHERE"]
    assert [line.split()[:3] for line in listed[1:]] == [[second, "waiting", "review"], [first, "done", "quiet"]]
    as_json = [json.loads(line)["id"] for line in (await place.run("runs", "--json", "--limit", "1")).out.splitlines()]
    assert as_json == [second]
    shown = (await place.run("runs", "show", second[:10])).out
    assert f"look waits for you · handraise runs checkpoint {checkpoint}" in shown
    whole = json.loads((await place.run("runs", "show", first, "--json")).out)
    assert (whole["output"]["goal"], whole["checkpoints"]) == ("a", [])


async def test_a_trace_is_shown_and_followed_to_the_end(desk: Served, place: Place) -> None:
    run = await detached(place, "database")
    ask = (await asked(desk, "Database")).ask
    process = await place.begin("handraise", "trace", run, "--follow")
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readuntil(b"agent asks: Database\n"), START)
    await desk.answer(ask.id, "Postgres")
    rest = await place.end(process)
    assert (rest.code, lines_of(rest.out)[-1]) == (0, "INFO  ✓ completed")
    types = [json.loads(line)["type"] for line in (await place.run("trace", run[-6:], "--json")).out.splitlines()]
    assert types[-3:] == ["agent_question_answered", "step_completed", "run_completed"]


async def test_what_agents_and_authors_wrote_is_inert_everywhere(desk: Served, place: Place) -> None:
    run = await detached(place, "review")
    checkpoint = await waiting_checkpoint(desk, run)
    for words in (("runs",), ("runs", "show", run), ("trace", run), ("checkpoint", checkpoint)):
        out = (await place.run(*words)).out
        assert "\x1b" not in out and "\u202e" not in out, words
    assert "Is it \\x1b[31mgood\\u202e?" in (await place.run("checkpoint", checkpoint)).out


async def test_workflows_are_listed_with_and_without_a_desk(place: Place) -> None:
    broken = place.folder / ".handraise" / "workflows" / "broken.py"
    broken.write_text("from handraise.workflow import *\nw = Workflow('broken')\n")
    trust_project(place.folder, home=place.home)
    alone = await place.run("workflows")
    async with serving(place.home):
        served = await place.run("workflows")
        as_json = await place.run("workflows", "--json")
    assert alone == served
    assert alone.code == 1, "a file cannot be loaded"
    assert "broken: broken.py:2: broken has no steps" in alone.out
    assert "quiet: says it louder\n  shout (function)\n  input: goal, times (optional), tags (optional)\n" in alone.out
    assert {"quiet", "broken"} <= {json.loads(line)["name"] for line in as_json.out.splitlines()}
    elsewhere = await place.run("workflows", "--cwd", "/")
    assert (elsewhere.code, elsewhere.out) == (0, "There are no workflows here; they lie in .handraise/workflows.\n")


# cancel, retry, rerun ---------------------------------------------------------------------------------------


async def test_cancel_says_what_it_ends_and_wants_a_yes(desk: Served, place: Place) -> None:
    run = await detached(place, "database")
    ask = (await asked(desk, "Database")).ask
    unsure = await place.run("cancel", run)
    assert (unsure.code, unsure.out) == (2, "")
    assert "What is under way will be stopped. 1 waiting for a person will be withdrawn." in unsure.err
    assert "--yes" in unsure.err
    assert (await desk.get(ask.id))["state"] == "asked"
    done = await place.run("cancel", run[:10], "--yes")
    assert (done.code, done.out) == (0, f"run {run} is being cancelled\n")
    process = await place.run("trace", run, "--follow")
    assert lines_of(process.out)[-1] == "WARN  ⊘ cancelled"
    again = await place.run("cancel", run, "--yes")
    assert again.code == 1 and "nothing to cancel" in again.err


async def test_retry_says_what_is_done_again_and_goes_on_from_there(desk: Served, place: Place) -> None:
    await place.run("run", "fails")
    run = (await newest(desk))["id"]
    planned = await place.run("retry", run, "--dry-run")
    assert (planned.code, planned.out) == (0, f"run {run} of fails is failed. Done again: second. After that: third.\n")
    whole = await place.run("retry", run, "--dry-run", "--from", "first", "--json")
    assert json.loads(whole.out)["again"] == ["first", "second"]
    unknown = await place.run("retry", run, "--from", "zeroth", "--yes")
    assert unknown.code == 2 and "no step 'zeroth'" in unknown.err
    assert (await place.run("retry", run)).code == 2, "nobody agreed"
    (place.folder / "FINE").touch()
    done = await place.run("retry", run, "--yes")
    assert (done.code, done.out) == (0, f"run {run} goes on\n")
    assert lines_of((await place.run("trace", run, "--follow")).out)[-1] == "INFO  ✓ completed"
    assert (place.folder / "FIRST").read_text() == "one\n", "what succeeded is not done again"
    assert (await place.run("retry", run, "--yes")).code == 1
    await place.run("retry", run, "--from", "first", "--yes")
    await place.run("trace", run, "--follow")
    assert (place.folder / "FIRST").read_text() == "one\none\n"


async def test_rerun_is_a_new_run_with_the_same_input(desk: Served, place: Place) -> None:
    first = await detached(place, "quiet", "--input", "goal=a")
    assert (await place.run("rerun", first)).code == 2
    done = await place.run("rerun", first, "--yes")
    assert done.code == 0
    assert 'with the input {"goal": "a"}. All of it is done again: shout.' in done.err
    second = done.out.strip()
    assert second != first
    assert (await told(desk.http.get(f"/v1/runs/{second}?wait=10"), 200))["output"]["goal"] == "a"


# checkpoint -------------------------------------------------------------------------------------------------


async def test_what_does_not_fit_a_checkpoint_is_said_and_it_stays_open(desk: Served, place: Place) -> None:
    run = await detached(place, "review")
    checkpoint = await waiting_checkpoint(desk, run)
    shown = await place.run("checkpoint", run)
    assert shown.out.splitlines()[-1] == "wants {approved: true or false, stars?: a whole number, note?: text}"
    for output, said in (("good", "that is no JSON"), ('{"approved": true, "stars": 9}', "stars: ")):
        done = await place.run("checkpoint", checkpoint, output)
        assert (done.code, done.out) == (2, "")
        assert said in done.err
    given = await place.run("checkpoint", checkpoint, '{"approved": true}', "--by", "ana")
    assert given.code == 0
    ended = await told(desk.http.get(f"/v1/runs/{run}?wait=10"), 200)
    assert ended["output"] == {"approved": True, "stars": 3, "note": ""}
    late = await place.run("checkpoint", checkpoint, '{"approved": false}')
    assert late.code == 1 and "ana gave something else first" in late.err
    assert (await place.run("checkpoint", checkpoint)).out.endswith('{"approved": true} · ana, in cli\n')


async def test_the_shell_completes_ids_and_runs_no_workflow_for_their_names(desk: Served, place: Place) -> None:
    run = await detached(place, "yes")
    checkpoint = await waiting_checkpoint(desk, run)
    (place.folder / ".handraise" / "workflows" / "hostile.py").write_text("open('RAN', 'w')\n")
    place.env |= {"_HANDRAISE_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    for typed, expected in (
        ("trace run", run),
        ("checkpoint run", checkpoint),
        ("run ho", "hostile"),
        ("run f", "flows"),
    ):
        place.env["COMP_WORDS"] = f"handraise {typed}"
        assert (await place.run()).out.split() == [expected]
    assert not (place.folder / "RAN").exists()


async def test_ids_that_mean_several_or_none_are_said(desk: Served, place: Place) -> None:
    for _ in range(2):
        await detached(place, "quiet", "--input", "goal=a")
    several = await place.run("trace", "run_")
    assert several.code == 2 and "type more of the id" in several.err
    commands = (("trace", "none"), ("runs", "show", "no/ne"), ("cancel", "none"), ("retry", "none"), ("rerun", "none"))
    for command in commands:
        done = await place.run(*command)
        assert (done.code, done.out) == (1, ""), done
        assert "there is no run" in done.err
    done = await place.run("checkpoint", "none")
    assert done.code == 1 and "there is no checkpoint" in done.err


# On a terminal ----------------------------------------------------------------------------------------------


async def test_on_a_terminal_questions_of_parallel_steps_are_asked_first_in_first_out(
    desk: Served, place: Place
) -> None:
    await desk.ask(id="somebody else's", origin={"agent": "claude", "session": "theirs"})
    async with a_screen() as screen:
        await screen.start(place, "run", "both")
        first = await screen.shows("1 more waiting · Select [1-2, or type custom]:")
        order = ["Left side", "Right side"] if "Which Left side?" in first else ["Right side", "Left side"]
        assert f"Which {order[1]}?" not in first, "one at a time"
        await screen.press("2", "Enter")
        await screen.shows(f"Which {order[1]}?")
        await screen.press("my own", "Enter")
        shown = await screen.shows("left with 0")
    lines = [line.rstrip() for line in shown.splitlines()]
    card = lines.index("━━━ Agent Question ━━━")
    asked_first = order[0]
    assert lines[card + 2 : card + 6] == [
        asked_first,
        f"Which {asked_first}?",
        "  1. SQLite — one file",
        "  2. Postgres",
    ]
    assert "━" * len("━━━ Agent Question ━━━") in lines
    step = asked_first.split()[0].lower()
    assert f"INFO      → {step}: answered: Postgres" in lines_of("\n".join(lines))
    assert "Which database should I use?" not in shown, "what others ask is not asked here"
    output = json.loads(shown[shown.index("{") : shown.index("}") + 1])
    assert sorted(output.values()) == ["it is Postgres", "it is my own"]


async def test_on_a_terminal_a_checkpoint_is_asked_field_by_field_until_it_fits(desk: Served, place: Place) -> None:
    async with a_screen() as screen:
        await screen.start(place, "run", "review")
        shown = await screen.shows("Select [1-2]:")
        assert "━━━ Checkpoint ━━━" in shown
        assert "Is it \\x1b[31mgood\\u202e?" in shown
        await screen.press("1", "Enter")
        assert "(optional; `:s` leaves it at 3)" in await screen.shows("Number:")
        await screen.press("9", "Enter")
        await screen.shows("Answer:")
        await screen.press("fine", "Enter")
        await screen.shows("at most 5 is wanted")
        await answer_again(screen)
        shown = await screen.shows("left with 0")
    run = await newest(desk)
    assert run["output"] == {"approved": True, "stars": 4, "note": "fine"}
    [given] = (await told(desk.http.get(f"/v1/checkpoints?run={run['id']}"), 200))["checkpoints"]
    assert given["via"] == "terminal"


async def answer_again(screen: Screen) -> None:
    """What was typed stands there as a draft; only the number is changed."""
    await screen.press("Enter")
    await screen.shows("Number: 9")
    await screen.press("BSpace", "4", "Enter")
    await screen.shows("Answer: fine")
    await screen.press("Enter")


async def test_on_a_terminal_what_is_not_flat_is_given_as_json(desk: Served, place: Place) -> None:
    async with a_screen() as screen:
        await screen.start(place, "run", "nested")
        await screen.shows("Answer:")
        await screen.press("nonsense", "Enter")
        await screen.shows("That is no JSON")
        for _ in "nonsense":
            await screen.press("BSpace")
        await screen.press('{"reviews": []}', "Enter")
        await screen.shows("left with 0")
    assert (await newest(desk))["output"] == {"reviews": []}


async def test_on_a_terminal_a_prompt_closes_when_somebody_else_answers(desk: Served, place: Place) -> None:
    async with a_screen() as screen:
        await screen.start(place, "run", "database")
        await screen.shows("Select [1-2, or type custom]:")
        await screen.press("half an ans")
        await screen.shows("half an ans")
        ask = (await asked(desk, "Database")).ask
        await desk.broker.answer(ask.id, Answer(answers=(("Postgres",),), by="bea", via="web"))
        shown = await screen.shows("left with 0")
    assert "Already answered by bea in web: Postgres" in shown
    assert "Your draft was not sent:" in shown
    assert "it is Postgres" in shown


async def test_on_a_terminal_a_checkpoint_that_somebody_else_gave_closes_too(desk: Served, place: Place) -> None:
    async with a_screen() as screen:
        await screen.start(place, "run", "yes")
        await screen.shows("Select [1-2]:")
        checkpoint = await waiting_checkpoint(desk, (await newest(desk))["id"])
        body = {"output": True, "by": "bea", "via": "web"}
        await told(desk.http.post(f"/v1/checkpoints/{checkpoint}", json=body), 200)
        shown = await screen.shows("left with 0")
    assert "Already answered by bea in web: true" in shown


async def test_on_a_terminal_without_a_desk_it_is_one_itself(place: Place) -> None:
    async with a_screen() as screen:
        await screen.start(place, "run", "yes")
        await screen.shows("Select [1-2]:")
        await screen.press("1", "Enter")
        shown = await screen.shows("left with 0")
    assert "▶ sure: given by " in shown
    assert not (place.home / "desk.json").exists()


async def test_on_a_terminal_a_run_that_somebody_else_cancels_closes_the_prompt(desk: Served, place: Place) -> None:
    async with a_screen() as screen:
        await screen.start(place, "run", "yes")
        await screen.shows("Select [1-2]:")
        run = await newest(desk)
        await told(desk.http.post(f"/v1/runs/{run['id']}/cancel", json={}), 202)
        shown = await screen.shows("left with 1")
    assert "yes is no longer waiting." in shown
    assert "⊘ cancelled" in shown


async def test_on_a_terminal_ctrl_c_twice_leaves_and_the_run_waits(desk: Served, place: Place) -> None:
    async with a_screen() as screen:
        await screen.start(place, "run", "yes")
        await screen.shows("Select [1-2]:")
        await screen.press("C-c")
        await screen.shows("Left unanswered")
        await screen.press("C-c")
        shown = await screen.shows("left with 3")
    assert "stays at the desk" in shown
    assert (await newest(desk))["state"] == "waiting"


@pytest.fixture
def slow(place: Place) -> None:
    """A workflow whose steps run until there is a file STOP."""
    (place.folder / ".handraise" / "workflows" / "slow.py").write_text(
        "from handraise.workflow import *\n"
        "wait = 'until test -e STOP; do sleep 0.05; done'\n"
        "w = Workflow('slow', parallel(shell('one', wait), shell('two', wait)))\n"
    )
    trust_project(place.folder, home=place.home)


@pytest.mark.usefixtures("slow")
async def test_on_a_terminal_ctrl_c_leaves_what_runs(desk: Served, place: Place) -> None:
    async with a_screen() as screen:
        await screen.start(place, "run", "slow")
        await screen.shows(" two · shell · ")
        await screen.press("C-c")
        shown = await screen.shows("left with 130")
    assert "stays at the desk" in shown
    run = await newest(desk)
    assert run["state"] == "running"
    (place.folder / "STOP").touch()
    assert (await told(desk.http.get(f"/v1/runs/{run['id']}?wait=10"), 200))["state"] == "done"


@pytest.mark.usefixtures("slow")
async def test_on_a_terminal_what_runs_is_kept_in_sight(desk: Served, place: Place) -> None:
    async with a_screen() as screen:
        await screen.start(place, "run", "slow")
        shown = await screen.shows(" two · shell · ")
        assert " one · shell · " in shown
        (place.folder / "STOP").touch()
        shown = await screen.shows("left with 0")
    assert "one · shell" not in shown, "it is gone when it has ended"


# Checkpoints beside asks ------------------------------------------------------------------------------------


async def test_checkpoints_are_listed_beside_asks_in_a_part_of_their_own(desk: Served, place: Place) -> None:
    run = await detached(place, "review")
    checkpoint = await waiting_checkpoint(desk, run)
    alone = await place.run("asks")
    head, row = alone.out.splitlines()
    assert head.split() == ["CHECKPOINT", "AGE", "WANTS"]
    assert row.startswith(checkpoint)
    assert "Is it \\x1b[31mgood\\u202e? · {approved: true or false, stars?: a whole number" in row
    await desk.ask(id="beside")
    both = await place.run("asks")
    asks, checkpoints = both.out.split("\n\n")
    assert (alone.code, both.code) == (0, 0)
    assert asks.splitlines()[1].startswith("beside") and checkpoint in checkpoints
    told_as_json = [json.loads(line) for line in (await place.run("asks", "--json")).out.splitlines()]
    assert [told_as_json[0]["id"], told_as_json[1]["checkpoint"]["id"]] == ["beside", checkpoint]
    for words in (("--agent", "nobody"), ("--session", "nothing"), ("--state", "answered")):
        assert checkpoint not in (await place.run("asks", *words)).out
    counted = await place.run("watch")
    assert (counted.code, counted.out.split(" · ")[0]) == (3, "2 waiting")
    assert (await place.run("watch", "--agent", "nobody")).code == 0


async def test_watch_tells_checkpoints_as_lines_and_as_json(desk: Served, place: Place) -> None:
    first = await waiting_checkpoint(desk, await detached(place, "yes"))
    events = await place.begin(sys.executable, "-m", "handraise", "watch", "--json")
    lines = await place.begin(sys.executable, "-m", "handraise", "watch", "--follow")
    assert events.stdout is not None and lines.stdout is not None

    async def next_event() -> tuple[str, str]:
        assert events.stdout is not None
        told = json.loads(await asyncio.wait_for(events.stdout.readline(), START))
        return told["type"], told["checkpoint"]["id"]

    async def next_line() -> str:
        assert lines.stdout is not None
        return (await asyncio.wait_for(lines.stdout.readline(), START)).decode().strip()

    assert await next_event() == ("checkpoint_waiting", first)
    assert await next_line() == "? yes: checkpoint sure: waits for you"
    run = await detached(place, "yes")
    second = await waiting_checkpoint(desk, run)
    assert await next_event() == ("checkpoint_waiting", second)
    assert await next_line() == "? yes: checkpoint sure: waits for you"
    body = {"output": True, "by": "bea", "via": "web"}
    await told(desk.http.post(f"/v1/checkpoints/{first}", json=body), 200)
    assert await next_event() == ("checkpoint_given", first)
    assert await next_line() == "→ yes: checkpoint sure: given: true · bea, in web"
    await told(desk.http.post(f"/v1/runs/{run}/cancel", json={}), 202)
    assert await next_event() == ("checkpoint_withdrawn", second)
    assert await next_line() == "→ yes: checkpoint sure: no longer waiting"


async def test_a_listener_is_told_that_checkpoints_may_have_changed(desk: Served, place: Place) -> None:
    changed: asyncio.Queue[None] = asyncio.Queue()

    async def listen(client: Client) -> None:
        async for _ in client.events(also={"checkpoints": lambda: changed.put_nowait(None)}):
            pass

    async with Client(desk.url, token=desk.token) as client, asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(listen(client))
        await asyncio.wait_for(changed.get(), START)  # at the start, so that whoever lists then misses nothing
        await detached(place, "yes")
        await asyncio.wait_for(changed.get(), START)
        listening.cancel()


async def test_an_ask_that_calls_itself_like_a_checkpoint_is_not_taken_for_it(desk: Served, place: Place) -> None:
    checkpoint = await waiting_checkpoint(desk, await detached(place, "yes"))
    await desk.ask(id=checkpoint)
    async with a_screen() as screen:
        await screen.start(place, "watch")
        await screen.shows("Which database should I use?")
        await screen.press("1", "Enter")
        await screen.shows("━━━ Checkpoint ━━━")
        assert (await desk.get(checkpoint))["state"] == "answered"
        found = await told(desk.http.get(f"/v1/checkpoints/{checkpoint}"), 200)
        assert found["state"] == "open"


async def test_watch_on_a_terminal_shows_a_checkpoint_when_it_opens_and_gives_it(desk: Served, place: Place) -> None:
    async with a_screen() as screen:
        await screen.start(place, "watch", "--by", "ana")
        await screen.shows("Nothing is waiting for you.")
        first = await waiting_checkpoint(desk, await detached(place, "yes"))
        shown = await screen.shows("Select [1-2]:")
        assert "━━━ Checkpoint ━━━" in shown and "Go?" in shown
        await screen.press("1", "Enter")
        await screen.shows("→ yes: checkpoint sure: given: true · ana, in terminal")
        assert (await told(desk.http.get(f"/v1/checkpoints/{first}"), 200))["output"] is True
        run = await detached(place, "yes")
        second = await waiting_checkpoint(desk, run)
        await screen.shows(f"yes · run {run} · step sure")
        body = {"output": False, "by": "bea", "via": "web"}
        await told(desk.http.post(f"/v1/checkpoints/{second}", json=body), 200)
        await screen.shows("Already answered by bea in web: false")


# Full mode --------------------------------------------------------------------------------------------------


async def test_in_full_mode_a_run_is_answered_with_keys_under_its_log(desk: Served, place: Place) -> None:
    async with a_screen() as screen:
        await screen.start(place, "run", "both", "--full")
        shown = await screen.shows("2 waiting ──")
        order = ["Left side", "Right side"] if "Which Left side?" in shown else ["Right side", "Left side"]
        assert "› 1  SQLite" in shown and "one file" in shown
        assert "agent asks: Left side" in shown and "agent asks: Right side" in shown, "the log is above"
        await screen.press("2")
        await screen.shows(f"Which {order[1]}?")
        await screen.press("o")
        await screen.shows("Your own answer ›")
        await screen.press("my own", "Enter")
        shown = await screen.shows("left with 0")
    assert "waiting ──" not in shown and "? keys" not in shown, "the cards are gone"
    output = json.loads(shown[shown.index("{") : shown.index("}") + 1])
    assert sorted(output.values()) == ["it is Postgres", "it is my own"]


async def test_in_full_mode_a_checkpoint_is_filled_in_and_reviewed(desk: Served, place: Place) -> None:
    async with a_screen() as screen:
        await screen.start(place, "run", "review", "--full")
        shown = await screen.shows("● approved ○ stars ○ note ○ Review")
        assert "── Checkpoint · review · run " in shown and "Is it \\x1b[31mgood\\u202e?" in shown
        await screen.press("1")
        assert "(optional; `→` leaves it at 3)" in await screen.shows("● stars")
        await screen.press("Right")
        await screen.shows("● note")
        await screen.press("o")
        await screen.shows("Your own answer ›")
        await screen.press("fine", "Enter")
        await screen.shows("› Send 2 of 3")
        await screen.press("Enter")
        await screen.shows("left with 0")
    assert (await told(desk.http.get(f"/v1/runs/{(await newest(desk))['id']}"), 200))["output"] == {
        "approved": True,
        "stars": 3,
        "note": "fine",
    }


async def test_full_mode_may_be_set_and_a_command_has_the_last_word(desk: Served, place: Place) -> None:
    config = Path(place.env["XDG_CONFIG_HOME"]) / "handraise" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("[terminal]\nfull = true\n")
    await desk.ask(id="q1")
    async with a_screen() as screen:
        await screen.start(place, "watch")
        await screen.shows("› 1  SQLite")
        await screen.press("Escape")
        await screen.shows("1 kept for later · J shows it")
        await screen.press("C-c")
        await screen.shows("left with 0")
    async with a_screen() as screen:
        await screen.start(place, "watch", "--no-full")
        await screen.shows("Select [1-2, or type custom]:")
    assert (await desk.get("q1"))["state"] == "asked"


# What a checkpoint wants, as questions ----------------------------------------------------------------------


def a_checkpoint(schema: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "id": "run_1.look",
        "run": "run_1",
        "workflow": "w",
        "cwd": "/srv",
        "step": "look",
        "state": "open",
        "input": "Look!",
        "schema": schema,
        "output": None,
        "by": None,
        "via": None,
        "asked_at": "2026-01-01T00:00:00.000Z",
        **changes,
    }


def given(schema: dict[str, Any], *answers: tuple[str, ...]) -> Any:
    checkpoint = a_checkpoint(schema)
    return output_of(checkpoint, to_ask(checkpoint), Answer(answers=answers))


def test_an_output_that_is_no_object_is_one_question() -> None:
    assert given({"type": "boolean"}, ("true",)) is True
    assert given({"type": "integer"}, ("3",)) == 3
    assert given({"type": "string"}, ("3",)) == "3"
    assert given({"enum": ["a", "b"], "type": "string"}, ("b",)) == "b"
    assert given({"type": "array", "items": {"type": "integer"}}, ("[1, 2]",)) == [1, 2]
    with pytest.raises(AnswerDoesNotFit, match="no JSON"):
        given({"type": "array", "items": {"type": "integer"}}, ("1, 2",))
    [question] = to_ask(a_checkpoint({"type": "boolean"})).questions
    assert (question.header, question.question) == ("look", "Look!")


def test_optional_fields_and_choices_by_reference_are_flat() -> None:
    colour = {"$defs": {"Colour": {"enum": ["red", "blue"], "type": "string"}}}
    fields = {
        "colour": {"$ref": "#/$defs/Colour"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    }
    schema = {**colour, "type": "object", "properties": fields, "required": ["colour"]}
    questions = to_ask(a_checkpoint(schema)).questions
    assert [[option.label for option in question.options] for question in questions] == [["red", "blue"], []]
    assert given(schema, ("red",), ()) == {"colour": "red"}
    assert wanted(schema) == '{colour: "red" or "blue", note?: text}'


def test_one_word_is_read_as_the_form_wants_it() -> None:
    assert read_output({"type": "string"}, "true") == "true"
    assert read_output({"type": "boolean"}, "true") is True
    with pytest.raises(SettingsError, match="what is wanted is a whole number"):
        read_output({"type": "integer"}, "many")
