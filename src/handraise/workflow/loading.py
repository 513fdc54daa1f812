"""Workflows out of files: those of the project, and those of the user."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from handraise.errors import WorkflowBroken, WorkflowNotFound
from handraise.workflow.steps import Workflow

__all__ = ["find", "found_in", "load_file", "places"]

FOLDER = Path(".handraise") / "workflows"


def places(cwd: Path, *, config: Path | None) -> list[Path]:
    """Where workflows lie: in the nearest project above, then in the user's config folder."""
    found = [place / FOLDER for place in (cwd, *cwd.parents) if (place / FOLDER).is_dir()][:1]
    if config is not None and (config / "workflows").is_dir():
        found.append(config / "workflows")
    return found


def found_in(folders: list[Path]) -> Iterator[tuple[Path, Workflow | WorkflowBroken]]:
    """Every workflow with its file; for a file that cannot be loaded, why."""
    for folder in folders:
        for file in sorted(folder.glob("*.py")):
            try:
                for workflow in _workflows(file):
                    yield file, workflow
            except WorkflowBroken as broken:
                yield file, broken


def find(name: str, folders: list[Path]) -> tuple[Path, Workflow]:
    """Raises WorkflowNotFound, and WorkflowBroken where its file, or one that may have held it, cannot be loaded."""
    known: list[str] = []
    broken: list[WorkflowBroken] = []
    for file, workflow in found_in(folders):
        if isinstance(workflow, WorkflowBroken):
            if file.stem == name:
                raise workflow
            broken.append(workflow)
        elif workflow.name == name:
            return file, workflow
        else:
            known.append(workflow.name)
    if broken:
        raise broken[0]
    raise WorkflowNotFound(name, known=known)


def load_file(file: Path, name: str) -> Workflow:
    """The workflow of that name in a file. Raises WorkflowBroken, WorkflowNotFound."""
    workflows = _workflows(file)
    for workflow in workflows:
        if workflow.name == name:
            return workflow
    raise WorkflowNotFound(name, known=[workflow.name for workflow in workflows])


_loaded: dict[Path, tuple[bytes, list[Workflow]]] = {}


def _workflows(file: Path) -> list[Workflow]:
    """Loaded once, and again where the file has changed."""
    try:
        content = file.read_bytes()
    except OSError as problem:
        raise WorkflowBroken(f"{file} cannot be read: {problem.strerror}") from None
    fingerprint = sha256(content).digest()
    known = _loaded.get(file)
    if known is not None and known[0] == fingerprint:
        return known[1]
    module = _run(file)
    workflows = [value for value in vars(module).values() if isinstance(value, Workflow)]
    _loaded[file] = fingerprint, workflows
    return workflows


def _run(file: Path) -> object:
    name = f"handraise_workflow_{sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # records that are defined there are looked up in it
    try:
        spec.loader.exec_module(module)
    except WorkflowBroken:
        raise
    except SyntaxError as problem:
        raise WorkflowBroken(f"{file.name}:{problem.lineno}: {problem.msg}") from None
    except (Exception, SystemExit) as problem:  # a file that leaves is not to take the desk with it
        frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == str(file)]
        line = frames[-1].lineno if frames else 1
        raise WorkflowBroken(f"{file.name}:{line}: {type(problem).__name__}: {problem}") from problem
    return module
