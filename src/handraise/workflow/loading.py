"""Where workflows lie: those of the project, and those of the user; and what they are, as everybody is told it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from handraise.errors import WorkflowBroken, WorkflowNotFound, WorkflowNotTrusted
from handraise.tasks import Tasks
from handraise.trust import Part, Trust, notice, workflow_part
from handraise.workflow.author import MayLoad
from handraise.workflow.flow import Author, Flow
from handraise.workflow.sources import root_of, sources_of

__all__ = ["Files", "files_in", "find", "found_in", "listed", "part_of", "places", "trusted_only"]

FOLDER = Path(".handraise") / "workflows"
MOST_FILES = 200  # of one folder that are looked at
MOST_ENTRIES = 20_000  # of one folder that are listed to find them
WITHIN = 30.0  # seconds in which a list is told, with whatever there is by then


class Files(Protocol):
    """What knows the workflows of a file. Both methods raise WorkflowBroken, WorkflowNotTrusted."""

    async def flows(self, file: Path) -> Sequence[Flow]: ...

    async def open(self, file: Path, name: str) -> Author: ...


def trusted_only(trust: Trust) -> MayLoad:
    """Raises WorkflowNotTrusted for a file of a project that nobody has looked at as it is now, with all it imports."""

    def may_load(file: Path, sources: Mapping[Path, bytes]) -> None:
        part = workflow_part(file, root=root_of(file), sources=sources)
        if not trust.holds(part):
            raise WorkflowNotTrusted(notice([part]) or "")

    return may_load


def part_of(file: Path) -> Part:
    """A file of workflows with what it imports, as a part of its project. Raises WorkflowBroken."""
    root = root_of(file)
    return workflow_part(file, root=root, sources=sources_of(file, root=root))


def places(cwd: Path, *, config: Path | None) -> list[Path]:
    """Where workflows lie: in the nearest project above, then in the user's config folder."""
    found = [place / FOLDER for place in (cwd, *cwd.parents) if (place / FOLDER).is_dir()][:1]
    if config is not None and (config / "workflows").is_dir():
        found.append(config / "workflows")
    return found


def files_in(folder: Path) -> tuple[list[Path], bool]:
    """The files of workflows in a folder, by name, and whether there are more of them than are looked at."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, MOST_ENTRIES) if entry.name.endswith(".py"))
            is_cut = next(entries, None) is not None
    except OSError:
        return [], False
    return [folder / name for name in names[:MOST_FILES]], is_cut or len(names) > MOST_FILES


async def found_in(
    folders: Sequence[Path], files: Files
) -> AsyncGenerator[tuple[Path, Flow | WorkflowBroken | WorkflowNotTrusted], None]:
    """Every workflow with its file; for a file that cannot be loaded, why. A file that hangs holds up no other."""
    paths = [file for folder in folders for file in files_in(folder)[0]]
    tasks = Tasks()
    looking = [tasks.start(_look(file, files)) for file in paths]
    end = asyncio.get_running_loop().time() + WITHIN
    try:
        for file, task in zip(paths, looking, strict=True):
            await asyncio.wait([task], timeout=max(0.0, end - asyncio.get_running_loop().time()))
            if not task.done():
                yield file, WorkflowBroken(f"{file.name}:1: there was no time left to load it; ask again")
                continue
            for flow in task.result():
                yield file, flow
    finally:
        await tasks.close()


async def _look(file: Path, files: Files) -> Sequence[Flow | WorkflowBroken | WorkflowNotTrusted]:
    try:
        return await files.flows(file)
    except (WorkflowBroken, WorkflowNotTrusted) as problem:
        return [problem]


async def find(name: str, folders: Sequence[Path], files: Files) -> tuple[Path, Author]:
    """Raises WorkflowNotFound, and WorkflowBroken or WorkflowNotTrusted for the file that it, or maybe it, lies in."""
    known: list[str] = []
    problems: list[WorkflowBroken | WorkflowNotTrusted] = []
    async with aclosing(found_in(folders, files)) as found:
        async for file, flow in found:
            if not isinstance(flow, Flow):
                if file.stem == name:
                    raise flow
                problems.append(flow)
            elif flow.name == name:
                return file, await files.open(file, name)
            else:
                known.append(flow.name)
    if problems:
        raise problems[0]
    raise WorkflowNotFound(name, known=known)


async def listed(folders: Sequence[Path], files: Files) -> list[dict[str, Any]]:
    """What can be run, and what cannot and why. Of one name the first counts, as when it is run."""
    found: dict[str, dict[str, Any]] = {}
    async for file, flow in found_in(folders, files):
        told = _told(file, flow) if isinstance(flow, Flow) else _broken(file, flow)
        found.setdefault(told["name"], told)
    return list(found.values())


def _told(file: Path, flow: Flow) -> dict[str, Any]:
    return {
        "name": flow.name,
        "description": flow.description,
        "file": str(file),
        "steps": [{"id": step.id, "kind": step.kind} for step in flow.steps.values()],
        "input": flow.schema,
    }


def _broken(file: Path, why: WorkflowBroken | WorkflowNotTrusted) -> dict[str, Any]:
    return {
        "name": file.stem,
        "description": "",
        "file": str(file),
        "steps": [],
        "input": None,
        "problem": why.message,
        "untrusted": isinstance(why, WorkflowNotTrusted),
    }
