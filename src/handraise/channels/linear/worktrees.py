"""A git worktree for each session that works on an issue, beside the repository it belongs to."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from handraise.errors import SettingsError
from handraise.transports.search_path import safe_path

__all__ = ["Worktrees", "branch_for"]

PATIENCE = 120.0  # seconds that git may take


def branch_for(issue: str, *, session: str) -> str:
    """What a branch for an issue is called; other sessions of the issue have others."""
    name = re.sub(r"[^a-z0-9]+", "-", issue.lower()).strip("-")[:40] or "issue"
    return f"handraise/{name}-{re.sub(r'[^a-z0-9]', '', session.lower())[:8]}"


class Worktrees:
    def __init__(self, folder: Path) -> None:
        """`folder` is where they are made."""
        self._folder = folder

    async def make(self, repository: str, name: str, *, branch: str, base: str) -> str:
        """The folder of a worktree of that name, which may be there from before. Raises SettingsError."""
        folder = self._folder / re.sub(r"[^A-Za-z0-9._-]+", "-", name)
        if (folder / ".git").exists():
            return str(folder)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise SettingsError(f"no worktree can be made in {folder.parent}: {problem.strerror}") from None
        await _git(repository, "worktree", "prune")
        is_there = await self._has(repository, branch)
        how = [str(folder), branch] if is_there else ["-b", branch, str(folder), base]
        await _git(repository, "worktree", "add", *how)
        return str(folder)

    async def _has(self, repository: str, branch: str) -> bool:
        return bool(await _git(repository, "branch", "--list", branch))

    async def commits(self, repository: str, branch: str, *, base: str) -> int:
        """How many the branch has that the base has not."""
        return int(await _git(repository, "rev-list", "--count", f"{base}..{branch}"))

    async def remove(self, repository: str, folder: str, *, branch: str, base: str) -> bool:
        """Remove it, and its branch if nothing was committed there. False where uncommitted work is in it: it stays."""
        if _is_there(folder):
            if await _git(folder, "status", "--porcelain", "--untracked-files=normal"):
                return False
            # Without --force git refuses whatever was written since we looked.
            await _git(repository, "worktree", "remove", folder)
        if await self._has(repository, branch) and not await self.commits(repository, branch, base=base):
            await _git(repository, "branch", "-D", branch)
        return True

    @staticmethod
    async def check(repository: str) -> None:
        """Raises SettingsError where this is no repository that a worktree can be made of."""
        if not _is_there(repository):
            raise SettingsError(f"there is no folder {repository!r} here")
        await _git(repository, "rev-parse", "--verify", "HEAD")


def _is_there(folder: str) -> bool:
    return Path(folder).is_dir()


async def _git(folder: str, *arguments: str) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            "-C",
            folder,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PATH": safe_path(os.environ), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise SettingsError("git is not installed here, and worktrees are made with it") from None
    try:
        async with asyncio.timeout(PATIENCE):
            said, complained = await process.communicate()
    except BaseException as stopped:
        process.kill()
        await process.wait()
        if isinstance(stopped, TimeoutError):
            raise SettingsError(f"git {arguments[0]} in {folder} took longer than {PATIENCE:g} s") from None
        raise
    if process.returncode:
        reason = complained.decode(errors="replace").strip().splitlines()
        raise SettingsError(f"git {arguments[0]} in {folder} failed: {reason[-1] if reason else process.returncode}")
    return said.decode(errors="replace").strip()
