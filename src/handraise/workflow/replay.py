"""What a trace says of its run: what is done, what was under way, what fits the steps as they are now. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from handraise.workflow.flow import Flow, Parallel
from handraise.workflow.journal import Event, State
from handraise.workflow.worktrees import Worktree, made_before

__all__ = ["ENDINGS", "Past", "Replay", "last_number", "left_over", "to_do"]

ENDINGS: Mapping[State, str] = {"done": "run_completed", "failed": "run_failed", "cancelled": "run_cancelled"}


@dataclass(slots=True)
class Past:
    """What the trace says of one step."""

    attempts: int = 0
    failed: int = 0  # attempts that ended so
    is_cut: bool = False  # the last attempt has no end
    output: Any = None
    is_done: bool = False
    corrections: list[str] = field(default_factory=list)  # that the last attempt's agent was told
    started_at: int = 0  # the last attempt
    failed_at: int = 0
    error: str | None = None  # why it failed for good
    has_asked: bool = False  # the last attempt's checkpoint was told
    base: str | None = None  # the commit that its worktree began with
    has_worktree: bool = False  # that nobody has looked after since


@dataclass(slots=True)
class Replay:
    """A run as far as its trace goes."""

    steps: dict[str, Past] = field(default_factory=dict)
    last: int = 0  # the number of the last row
    ended: Event | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    outline: Any = None  # of the steps, as it was told last

    def past(self, step: str) -> Past:
        return self.steps.setdefault(step, Past())

    @classmethod
    def of(cls, events: Sequence[Event], workflow: Flow) -> Replay:
        made = cls()
        for event in events:
            made._add(event, workflow)
        made.last = last_number(events)
        return made

    def _add(self, event: Event, workflow: Flow) -> None:
        if event.type == "run_retried":
            self.ended = None
            self.forget(event.step, workflow)
            return
        if event.type in ENDINGS.values():
            self.ended = event
            return
        if event.step is None:
            self.outline = event.data.get("steps", self.outline)
            return
        past = self.past(event.step)
        match event.type:
            case "step_started":
                past.attempts, past.is_cut, past.corrections = int(event.data["attempt"]), True, []
                past.started_at, past.has_asked = event.at, False
                self.kinds[event.step] = str(event.data["kind"])
            case "step_failed":
                past.is_cut, past.failed_at = False, event.at
                past.failed += bool(event.data.get("counts", True))
                past.error = str(event.data["error"]) if event.data.get("final") else None
            case "checkpoint_waiting":
                past.has_asked = True
            case "worktree_made":
                past.base, past.has_worktree = str(event.data["base"]), True
            case "worktree_kept" | "worktree_removed":
                past.has_worktree = False
            case "agent_repaired":
                past.corrections.append(str(event.data["correction"]))
            case "step_completed":
                past.is_cut, past.is_done, past.output = False, True, event.data["output"]

    def forget(self, step: str | None, workflow: Flow) -> None:
        """From this step on everything is done again; without one, what did not succeed."""
        order = list(workflow.steps)
        later = set(order[order.index(step) :]) if step in order else set()
        if later:  # what these were before, and what is not in the file any more, has nothing left to fit
            self.kinds = {id: kind for id, kind in self.kinds.items() if id in order and id not in later}
        for id, past in self.steps.items():
            if id in later or not past.is_done:
                past.error = past.base = None
            if id in later:
                past.is_done, past.is_cut, past.output, past.failed = False, False, None, 0
            elif not past.is_done:
                past.is_cut, past.failed = False, 0

    def misfits(self, workflow: Flow) -> list[str]:
        """Why what was done does not fit the steps as they are now."""
        found = []
        for id, kind in self.kinds.items():
            step = workflow.steps.get(id)
            if step is None:
                found.append(f"step {id!r} was run, and the file has no such step any more")
            elif step.kind != kind:
                found.append(f"step {id!r} was a {kind} step and is a {step.kind} step now")
        done = [id for id in workflow.steps if id in self.steps and self.steps[id].is_done]
        for id in done:
            missing = [before for before in _before(workflow, id) if not self.past(before).is_done]
            if missing:
                found.append(f"step {id!r} was run before {missing[0]!r}, which now comes first")
        return found


def to_do(events: Sequence[Event], workflow: Flow, *, step: str | None) -> tuple[list[str], list[str]]:
    """What a retry would run: the steps that were begun before, which it does again, and those that were not."""
    replay = Replay.of(events, workflow)
    replay.forget(step, workflow)
    left = [id for id in workflow.steps if id not in replay.steps or not replay.steps[id].is_done]
    begun = {id for id, past in replay.steps.items() if past.attempts}
    return [id for id in left if id in begun], [id for id in left if id not in begun]


def _before(workflow: Flow, id: str) -> list[str]:
    """The steps that have to be done before this one."""
    found: list[str] = []
    for part in workflow.parts:
        branches = part.branches if isinstance(part, Parallel) else ((part,),)
        for branch in branches:
            ids = [step.id for step in branch]
            if id in ids:
                return found + ids[: ids.index(id)]
        found += [step.id for branch in branches for step in branch]
    return found


def last_number(events: Sequence[Event]) -> int:
    """The number of the last row."""
    return int(events[-1].id.rpartition("-")[2]) if events else 0


def left_over(events: Sequence[Event]) -> tuple[list[str], dict[str, Worktree]]:
    """The sessions whose steps have not ended, and the worktrees that nobody has settled, by step."""
    sessions: dict[str | None, str] = {}
    left: dict[str, Worktree] = {}
    for event in events:
        match event.type:
            case "step_started" if "session_id" in event.data:
                sessions[event.step] = str(event.data["session_id"])
            case "step_completed" | "step_failed":
                sessions.pop(event.step, None)
            case "worktree_made" if event.step is not None:
                path, branch, base = (str(event.data[key]) for key in ("path", "branch", "base"))
                left[event.step] = made_before(Path(path), branch=branch, base=base)
            case "worktree_kept" | "worktree_removed" if event.step is not None:
                left.pop(event.step, None)
    return list(sessions.values()), left
