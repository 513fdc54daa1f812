"""The project around a folder as a person sees it before they trust it: its parts, how each stands, what it would do.

The folder may be anybody's, so all of this is bounded. It still reads many files: a desk does it in a thread.
"""

from __future__ import annotations

import pwd
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from handraise.config import Settings
from handraise.errors import SettingsError, WorkflowBroken
from handraise.text.inert import inert
from handraise.trust import Part, Trust
from handraise.workflow.loading import MOST_FILES, files_in, part_of, places

__all__ = ["SeenPart", "State", "look", "parts_here"]

State: TypeAlias = Literal["trusted", "changed", "new"]

WITHIN = 10.0  # seconds in which files of workflows are read; one that was begun is finished
LONGEST = 2000  # characters of a line
MOST_PROBLEMS = 20  # of a part that are told one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPart:
    """A part as it is shown to a person. Every text of it is inert, and one line each."""

    part: Part
    state: State
    lines: tuple[str, ...]  # what it would do; of a changed one, what changed
    problems: tuple[str, ...]  # why nobody can trust it
    owners: tuple[str, ...]  # files that other users can change, each with its user
    fingerprint: str | None  # of what is shown; None where nobody can trust it

    @property
    def name(self) -> str:
        return inert(self.part.name, keep="")

    @property
    def project(self) -> str:
        return inert(str(self.part.project), keep="")


def parts_here(folder: Path, settings: Settings, *, within: float = WITHIN) -> tuple[list[Part], list[str]]:
    """Every part of the project around a folder, and what is wrong with files of workflows that cannot be read.

    Raises SettingsError where the folder cannot be looked at.
    """
    parts, problems = list(settings.parts), []
    end = time.monotonic() + within
    try:
        folders = places(folder, config=None)
    except OSError as problem:
        raise SettingsError(f"{folder} cannot be looked at: {problem.strerror}") from None
    for place in folders:
        files, is_cut = files_in(place)
        if is_cut:
            problems.append(f"{place} has too many files; the first {MOST_FILES} are looked at")
        for number, file in enumerate(files):
            if time.monotonic() > end:
                problems.append(f"there was no time to look at {len(files) - number} more files of {place}")
                break
            try:
                parts.append(part_of(file))
            except WorkflowBroken as broken:
                problems.append(broken.message)
    return parts, problems


def look(part: Part, *, trust: Trust) -> SeenPart:
    """What each would do; of one that was trusted before, what changed."""
    problems = part.problems()
    # First, so that what is shown is not newer than what it stands for.
    fingerprint = None if problems else part.fingerprint()
    state: State = "trusted" if trust.holds(part) else "changed" if trust.knew(part) else "new"
    lines = trust.difference(part) if state == "changed" and not part.is_too_much() else part.lines
    if not lines:
        lines = ("nothing of its text; who can change its files is another matter now",)
    if len(problems) > MOST_PROBLEMS:
        problems = [*problems[:MOST_PROBLEMS], f"… and {len(problems) - MOST_PROBLEMS} more"]
    return SeenPart(
        part=part,
        state=state,
        lines=tuple(_shown(line) for line in lines),
        problems=tuple(_shown(problem) for problem in problems),
        owners=tuple(_shown(f"{file} ({_user(owner)})") for owner, file in part.owners().items()),
        fingerprint=fingerprint,
    )


def _shown(line: str) -> str:
    cut = inert(line[:LONGEST], keep="")
    return cut if len(line) <= LONGEST else f"{cut}… and {len(line) - LONGEST} more characters"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
