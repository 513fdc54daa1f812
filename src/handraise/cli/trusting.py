"""Showing what a project's files would make happen, and asking the person at this terminal whether they may."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from handraise.cli.calling import settings_here
from handraise.errors import HandraiseError

if TYPE_CHECKING:
    from handraise.config import Settings
    from handraise.trust import Trust
    from handraise.trust.project import SeenPart

__all__ = ["check_person", "has_person", "offer", "settings_or_offer", "show"]

STATES = {"trusted": "trusted", "changed": "changed since you trusted it", "new": "new"}
LAUNCHER = "launcher.py"  # of transports: it runs above every agent that handraise starts
# What agents set for the commands they run. `launcher.py` sets the first one, also for a server that it lets go.
MARKS = ("HANDRAISE_AGENT", "CLAUDECODE", "GEMINI_CLI", "OPENCODE")


def show(parts: Sequence[SeenPart]) -> None:
    """What each would do; of one that was trusted before, what changed."""
    for seen in parts:
        print(f"{seen.name} of {seen.project}: {STATES[seen.state]}")
        for line in seen.lines:
            print(f"  {line}")
        for problem in seen.problems:
            print(f"  cannot be trusted: {problem}")
        for owner in seen.owners:
            print(f"  belongs to another user, who can change it: {owner}")


def offer(parts: Sequence[SeenPart], *, trust: Trust) -> bool:
    """Ask for those that are not trusted yet. False where the person does not want to, or cannot for all of them.

    Raises PartChanged where one of them was changed while the person looked at it.
    """
    import typer

    wanted = [seen for seen in parts if seen.state != "trusted" and seen.fingerprint is not None]
    if wanted:
        if not typer.confirm("Trust this, until it changes?", err=True):
            return False
        trust.add([seen.part for seen in wanted], seen=[seen.fingerprint or "" for seen in wanted])
    return all(trust.holds(seen.part) for seen in parts)


def settings_or_offer(folder: Path, *, with_workflows: bool, quietly: bool) -> Settings:
    """The settings for a folder. A person at a terminal first sees what is not trusted yet, and may trust it."""
    from handraise.config import load
    from handraise.trust import Trust
    from handraise.trust.project import look, parts_here

    if not quietly and has_person():
        settings = load(cwd=folder)
        trust = Trust(settings.trust_file)
        parts = parts_here(folder, settings)[0] if with_workflows else settings.untrusted
        seen = [look(part, trust=trust) for part in parts]
        wanted = [each for each in seen if each.state != "trusted" and not each.problems]
        if wanted:
            show(wanted)
            offer(wanted, trust=trust)
    return settings_here(folder)


def has_person() -> bool:
    """Whether somebody at a terminal can be asked here."""
    try:
        check_person()
    except HandraiseError:
        return False
    return True


def check_person() -> None:
    """Raises HandraiseError where this is not a person's own terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise HandraiseError("only a person can trust a project; run `handraise trust` in a terminal")
    if (mark := _mark(os.environ)) or any(_is_launcher(words) for words in _ancestors()):
        why = f" ({mark} is set)" if mark else ""
        raise HandraiseError(
            f"this terminal belongs to an agent{why}, and only a person can trust a project; run `handraise trust` in "
            "a terminal of your own"
        )


def _mark(environ: Mapping[str, str]) -> str | None:
    return next((name for name in MARKS if environ.get(name)), "AGENT" if environ.get("AGENT") == "amp" else None)


def _is_launcher(words: Sequence[str]) -> bool:
    return any(Path(word).parts[-3:] == ("handraise", "transports", LAUNCHER) for word in words)


def _ancestors() -> Iterator[list[str]]:
    """The command lines of the processes above this one."""
    pid, seen = os.getppid(), set[int]()
    while pid > 1 and pid not in seen:
        seen.add(pid)
        parent, words = _process(pid)
        yield words
        pid = parent


def _process(pid: int) -> tuple[int, list[str]]:
    """The parent of a process and its command line; 0 where that cannot be known."""
    place = Path("/proc") / str(pid)
    if not place.exists():  # macOS has none
        found = subprocess.run(
            ["ps", "-o", "ppid=,command=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        parent, *words = found.stdout.split() or ["0"]
        return int(parent), words
    try:
        # The program's name is in parentheses and may hold anything, parentheses too.
        parent = place.joinpath("stat").read_bytes().rpartition(b")")[2].split()[1].decode()
        words = place.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return 0, []
    return int(parent), words
