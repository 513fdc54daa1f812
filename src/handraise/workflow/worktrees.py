"""Git worktrees for steps that work apart: made on a branch of their own, and removed once nothing is in them."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from handraise.text.inert import inert
from handraise.transports.search_path import safe_path

__all__ = ["Worktree", "WorktreeFailed", "is_here", "made_before", "make", "settle"]

TURN = 0.02  # seconds until it is tried again to be the only one
FOLDER = Path(".handraise") / "worktrees"


class WorktreeFailed(Exception):
    """Why, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    top: Path  # of the repository's own
    path: Path  # where it lies
    cwd: Path  # the folder in it that corresponds to the one it was made for
    branch: str
    base: str  # the commit it began with


async def make(cwd: Path, *, run: str, step: str, base: str | None = None) -> Worktree:
    """The worktree of this step of this run, made unless it is there. `base` is a commit, by default the current one.

    Raises WorktreeFailed.
    """
    top = Path(await _git(cwd, "rev-parse", "--show-toplevel", hint="its folder has to be in a git repository"))
    inside = await _git(cwd, "rev-parse", "--show-prefix")
    path, branch = top / FOLDER / f"{run}-{step}", f"handraise/{run}/{step}"
    known = await _commit(top, f"refs/heads/{branch}")
    base = base or known or await _git(top, "rev-parse", "--verify", "HEAD^{commit}", hint="there is no commit yet")
    if not (path / ".git").exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        async with _alone(path.parent):
            await _git(top, "worktree", "prune")  # one that somebody removed by hand
            where = [str(path), branch] if known else ["-b", branch, str(path), base]
            await _git(top, "worktree", "add", "--quiet", *where)
    return Worktree(top=top, path=path, cwd=path / inside, branch=branch, base=base)


def made_before(path: Path, *, branch: str, base: str) -> Worktree:
    """One that `make` made, without making it again. For whoever settles it."""
    return Worktree(top=path.parents[len(FOLDER.parts)], path=path, cwd=path, branch=branch, base=base)


def is_here(worktree: Worktree) -> bool:
    """Whether it lies on this machine."""
    return worktree.path.is_dir()


async def settle(worktree: Worktree) -> tuple[str | None, str | None]:
    """Remove it unless it holds work that is not committed; the branch goes too, unless it has commits of its own.

    Returns the path that was kept, and the branch that was. Raises WorktreeFailed.
    """
    top = worktree.top
    if worktree.path.is_dir():
        if await _git(worktree.path, "status", "--porcelain", "--untracked-files=normal"):
            return str(worktree.path), worktree.branch
        current = await _commit(worktree.path, "HEAD")
        if current != await _commit(top, f"refs/heads/{worktree.branch}"):  # somebody is on another branch there
            return str(worktree.path), worktree.branch
        async with _alone(worktree.path.parent):
            await _git(top, "worktree", "remove", str(worktree.path))
    if await _commit(top, f"refs/heads/{worktree.branch}") not in (worktree.base, None):
        return None, worktree.branch
    with suppress(WorktreeFailed):
        await _git(top, "branch", "--quiet", "-D", worktree.branch)
    return None, None


@asynccontextmanager
async def _alone(folder: Path) -> AsyncIterator[None]:
    """git (seen with 2.39) fails now and then where two worktrees of a repository are made or removed at once."""
    file = os.open(folder / ".gitignore", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(TURN)
        if not os.fstat(file).st_size:
            os.write(file, b"*\n")  # worktrees are not part of the one they lie in
        yield
    finally:
        os.close(file)


async def _commit(folder: Path, name: str) -> str | None:
    with suppress(WorktreeFailed):
        return await _git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return None


async def _git(folder: Path, *words: str, hint: str = "") -> str:
    """What it prints. It sees nothing of the repository that we may have been started from."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", *words),
            cwd=folder,
            env={**env, "PATH": safe_path(env), "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as missing:
        raise WorktreeFailed(f"worktree: there is no git here, or no folder {folder}") from missing
    out, err = await process.communicate()
    if process.returncode != 0:
        said = inert(err.decode(errors="replace").strip()[-300:]) or f"git {words[0]} ended with {process.returncode}"
        raise WorktreeFailed(f"worktree: {said}" + (f"; {hint}" if hint else ""))
    return out.decode(errors="replace").strip("\n")
