"""What a trace says of its run. Nothing here needs a database, an agent or a clock."""

from __future__ import annotations

from typing import Any

import pytest

from handraise.workflow.flow import CheckpointStep, Flow, Parallel, ShellStep, Step
from handraise.workflow.journal import Event
from handraise.workflow.replay import Replay, last_number, left_over, to_do


def shell(id: str) -> ShellStep:
    return ShellStep(id=id, where="flow.py:1", command="true")


def flow(*parts: Step | Parallel) -> Flow:
    return Flow(name="release", where="flow.py", parts=parts)


def trace(*events: tuple[str, str | None, dict[str, Any]]) -> list[Event]:
    return [
        Event(id=f"run-{number}", run="run", type=type, step=step, at=number * 1000, data=data)
        for number, (type, step, data) in enumerate(events, 1)
    ]


def started(step: str, *, attempt: int = 1, **data: Any) -> tuple[str, str, dict[str, Any]]:
    return "step_started", step, {"attempt": attempt, "kind": "shell", **data}


def completed(step: str, output: Any = None) -> tuple[str, str, dict[str, Any]]:
    return "step_completed", step, {"attempt": 1, "output": output}


def failed(step: str, **data: Any) -> tuple[str, str, dict[str, Any]]:
    return "step_failed", step, {"attempt": 1, "error": "it ended with 1", **data}


TWO = flow(shell("build"), shell("test"))


def test_what_was_done_has_its_output_and_what_was_under_way_is_cut() -> None:
    replay = Replay.of(trace(started("build"), completed("build", {"code": 0}), started("test")), TWO)
    build, test = replay.past("build"), replay.past("test")
    assert (build.is_done, build.output, build.is_cut) == (True, {"code": 0}, False)
    assert (test.is_done, test.is_cut, test.attempts, test.started_at) == (False, True, 1, 3000)
    assert replay.last == 3 and replay.ended is None


def test_an_empty_trace_says_that_nothing_was_done() -> None:
    replay = Replay.of([], TWO)
    assert (replay.steps, replay.last, replay.ended, last_number([])) == ({}, 0, None, 0)


def test_only_failures_that_count_take_a_retry_and_only_the_last_one_is_final() -> None:
    rows = (started("build"), failed("build", counts=False), started("build", attempt=2), failed("build"))
    past = Replay.of(trace(*rows), TWO).past("build")
    assert (past.attempts, past.failed, past.failed_at, past.error) == (2, 1, 4000, None)
    final = Replay.of(trace(*rows, started("build", attempt=3), failed("build", final=True)), TWO).past("build")
    assert (final.failed, final.error) == (2, "it ended with 1")


def test_a_new_attempt_forgets_corrections_and_that_a_checkpoint_was_told() -> None:
    rows = (
        started("build"),
        ("agent_repaired", "build", {"correction": "with JSON alone"}),
        ("checkpoint_waiting", "build", {}),
    )
    told = Replay.of(trace(*rows), TWO).past("build")
    assert (told.corrections, told.has_asked) == (["with JSON alone"], True)
    again = Replay.of(trace(*rows, started("build", attempt=2)), TWO).past("build")
    assert (again.corrections, again.has_asked) == ([], False)


@pytest.mark.parametrize("ending", ["run_completed", "run_failed", "run_cancelled"])
def test_a_run_that_ended_is_open_again_once_it_is_retried(ending: str) -> None:
    rows = (started("build"), completed("build"), (ending, None, {}))
    assert (ended := Replay.of(trace(*rows), TWO).ended) is not None and ended.type == ending
    assert Replay.of(trace(*rows, ("run_retried", None, {})), TWO).ended is None


def test_a_retry_from_a_step_does_that_and_all_later_ones_again() -> None:
    rows = (started("build"), completed("build", 1), started("test"), completed("test", 2), ("run_failed", None, {}))
    replay = Replay.of(trace(*rows, ("run_retried", "test", {})), TWO)
    assert replay.past("build").is_done and not replay.past("test").is_done
    assert to_do(trace(*rows), TWO, step="build") == (["build", "test"], [])


def test_a_retry_without_a_step_does_again_what_did_not_succeed() -> None:
    three = flow(shell("build"), shell("test"), shell("ship"))
    rows = (started("build"), completed("build"), started("test"), failed("test", final=True), ("run_failed", None, {}))
    replay = Replay.of(trace(*rows, ("run_retried", None, {})), three)
    assert (replay.past("test").error, replay.past("test").failed) == (None, 0)
    assert to_do(trace(*rows), three, step=None) == (["test"], ["ship"])


def test_steps_that_are_gone_or_of_another_kind_do_not_fit() -> None:
    replay = Replay.of(trace(started("build"), completed("build"), started("test")), TWO)
    assert replay.misfits(TWO) == []
    changed = flow(CheckpointStep(id="build", where="flow.py:1"))
    assert replay.misfits(changed) == [
        "step 'build' was a shell step and is a checkpoint step now",
        "step 'test' was run, and the file has no such step any more",
    ]


def test_a_step_that_now_comes_later_than_one_which_was_not_run_does_not_fit() -> None:
    replay = Replay.of(trace(started("build"), completed("build")), TWO)
    assert replay.misfits(flow(shell("test"), shell("build"))) == [
        "step 'build' was run before 'test', which now comes first"
    ]
    beside = flow(Parallel(branches=((shell("test"),), (shell("build"),))))
    assert replay.misfits(beside) == []


def test_sessions_and_worktrees_that_nobody_ended_are_left_over() -> None:
    tree = {"path": "/srv/repo/.handraise/worktrees/one", "branch": "run/one", "base": "abc"}
    rows = (
        started("one", session_id="ses_one"),
        ("worktree_made", "one", tree),
        started("two", session_id="ses_two"),
        ("worktree_made", "two", tree),
        completed("two"),
        ("worktree_removed", "two", {}),
    )
    sessions, worktrees = left_over(trace(*rows))
    assert sessions == ["ses_one"]
    assert {step: (str(each.path), each.branch, each.base) for step, each in worktrees.items()} == {
        "one": (tree["path"], "run/one", "abc")
    }
