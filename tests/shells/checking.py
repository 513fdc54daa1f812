"""The check itself: what is allowed runs as it was read in every shell, and what is forbidden is never allowed."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from handraise.asks import Ask, Origin, Permission
from handraise.rules import Action, Rule, decide
from handraise.rules.shell import Parts, split
from tests.shells.lines import lines, may_run
from tests.shells.running import Ran, Shells

__all__ = ["check"]

BATCH = 400
SAMPLED = 0.12  # of the lines that are not allowed


def rule(action: Action, *patterns: str) -> Rule:
    return Rule(tool="shell", action=action, matches={"command": patterns})


RULES = (
    rule("reject", "rm *"),
    rule("allow", "cat *", "ls *", "git diff *", "git status *", "npm test *", "grep *", "echo *"),
)


def decision(line: str) -> Action | None:
    permission = Permission(tool="bash", command=line, input={"command": line})
    return decide(Ask(id="1", permission=permission, origin=Origin(agent="any", session="s")), RULES).action


def check(*, seed: int, count: int) -> Counter[str]:
    """Raises AssertionError with the lines that are judged wrongly. Says how many lines were of each kind."""
    rng = random.Random(seed + 1)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    chosen: list[str] = []
    with Shells() as shells:
        for line in (*lines(seed, count), None):
            if line is not None:
                counts["lines"] += 1
                action = decision(line)
                counts[str(action)] += 1
                is_wanted = action == "allow" or rng.random() < SAMPLED
                if not is_wanted or not may_run(line):
                    counts["not run"] += 1
                    continue
                chosen.append(line)
            if chosen and (line is None or len(chosen) >= BATCH):
                counts["run"] += len(chosen)
                for each, rans in zip(chosen, shells.run(chosen), strict=True):
                    wrong += (f"{each!r}: {why}" for why in _wrong(each, rans))
                chosen = []
                assert len(wrong) < 30, _told(wrong, seed)
    assert not wrong, _told(wrong, seed)
    return counts


def _told(wrong: Sequence[str], seed: int) -> str:
    return f"seed {seed}:\n" + "\n".join(wrong)


def _wrong(line: str, rans: Iterable[Ran]) -> Iterator[str]:
    read = split(line)
    action = decision(line)
    for ran in rans:
        if action == "allow":
            more = _not_claimed(ran.commands, read)
            if more:
                yield f"allowed, and {ran.shell} ran {sorted(more)}, not {[part.words for part in read.parts]}"
            if ran.files:
                yield f"allowed, and {ran.shell} wrote {ran.files}"
        names = {command[0] for command in ran.commands}
        if "rm" in names and action != "reject" and not read.is_blind:
            yield f"{ran.shell} ran rm, and it is {action} ({read.doubt})"
        if not read.is_blind and (unseen := names - _known(read)):
            yield f"{ran.shell} ran {sorted(unseen)}, which was not seen ({read.doubt})"


def _not_claimed(commands: Iterable[tuple[str, ...]], read: Parts) -> list[tuple[str, ...]]:
    """What ran and was not read. A word that is only known when it runs may be any word, but one."""
    claimed = [
        tuple(None if number in part.values else word for number, word in enumerate(part.words))
        for part in read.parts
        if part.words
    ]
    claimed.sort(key=lambda claim: claim.count(None))
    more = []
    for command in commands:
        for claim in claimed:
            if len(claim) == len(command) and all(
                word in (None, each) for word, each in zip(claim, command, strict=True)
            ):
                claimed.remove(claim)
                break
        else:
            more.append(command)
    return more


def _known(read: Parts) -> set[str]:
    """Programs that a rule could have found."""
    return {
        form.split(" ")[0].rpartition("/")[2]
        for part in read.parts
        for form in (part.text.replace("'", ""), *part.forms)
    }


def seeds_of(environment: os._Environ[str] = os.environ) -> tuple[int, int]:
    """The seed and how many lines: fixed in `make test`, chosen in `make test-shell-long`."""
    return int(environment.get("HANDRAISE_SHELL_SEED", "1")), int(environment.get("HANDRAISE_SHELL_LINES", "20000"))
