"""The rules that hold for an ask, from where they are kept, and the programs that some of them leave the decision to.

A project's `handraise.toml` comes first, then the user's own file, then the rules that are kept at the desk. A project
may have come from anywhere, and the agent that works in it can write to it: its rules that allow something count only
after a person has looked at exactly that file (`handraise rules trust`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from handraise.agents import SECRETS
from handraise.asks import Ask, Origin, Permission
from handraise.errors import RuleNotFound, SettingsError
from handraise.inert import inert
from handraise.rules import WIDE, Decision, Rule, decide, never_match
from handraise.rules.reading import find_project, parse_rule, rules_in, told
from handraise.rules.tools import PLAN
from handraise.stores import Database

__all__ = ["KeptRule", "Rulebook", "Rules", "Trusted", "call_of"]

log = logging.getLogger(__name__)

DESK = "desk"  # begins the source of a rule that is kept in the database
PATIENCE = 10.0  # seconds for a program whose rule says nothing else
LONGEST_REASON = 2000
LARGEST_FILE = 1 << 20


class KeptRule(NamedTuple):
    """A rule of the desk's own."""

    id: str
    rule: Rule

    def told(self) -> dict[str, Any]:
        return _listed(self.rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Those that hold somewhere, in their order, and what stands in the way of others."""

    rules: tuple[Rule, ...] = ()
    problems: tuple[str, ...] = ()
    untrusted: tuple[Rule, ...] = ()  # they would allow something, in a file that nobody looked at


class Trusted:
    """Which files of projects a person has looked at, as they were then."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def holds(self, path: Path, content: bytes) -> bool:
        return self._read().get(str(path)) == _print(content)

    def add(self, path: Path, content: bytes) -> None:
        """Raises SettingsError."""
        known = {**self._read(), str(path): _print(content)}
        fresh = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as handle:
                json.dump(known, handle, indent=1)
            fresh.replace(self._file)
        except OSError as problem:
            raise SettingsError(f"{self._file} cannot be written: {problem.strerror}") from None

    def _read(self) -> dict[str, str]:
        try:
            known = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def _print(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Rulebook:
    def __init__(self, database: Database, *, user: Path | None = None, trusted: Trusted | None = None) -> None:
        """`user` is the user's own file. Without `trusted`, no project's rules are looked for."""
        self._database = database
        self._user = user
        self._trusted = trusted
        self._said: set[str] = set()

    async def decide(self, ask: Ask) -> Decision:
        """What the rules say to a permission. One that leaves it to a program runs none here."""
        if ask.permission is None:
            return Decision()
        found = await self.holding(ask.origin)
        for problem in found.problems:
            self._warn(problem)
        return decide(ask, found.rules, resolve=_resolved)

    async def delegated(self, ask: Ask, decision: Decision) -> Decision:
        """What the program of the rule says. Whatever goes wrong with it, a person is asked."""
        rule = decision.rule
        assert rule is not None
        try:
            async with asyncio.timeout(rule.timeout or PATIENCE):
                code, said = await _run(ask, rule.to)
        except TimeoutError:
            return _undecided(decision, rule, f"it did not decide in {rule.timeout or PATIENCE:g} s")
        except (OSError, ValueError) as problem:
            return _undecided(decision, rule, f"it cannot be started ({problem})")
        why = (*decision.why, f"{rule.to[0]} ended with {code}")
        match code:
            case 0:
                return replace(decision, action="allow", why=why)
            case 1:
                return replace(decision, action="ask", why=why)
            case 2:
                return replace(decision, action="reject", rule=replace(rule, message=said or None), why=why)
            case _:
                return _undecided(decision, rule, f"it ended with {code}, which says nothing")

    async def holding(self, origin: Origin) -> Rules:
        """The rules for asks from there. Where a file cannot be read, none that allows something counts."""
        files = [(self._user, False)] if self._user is not None else []
        if self._trusted is not None and (project := _project_of(origin)) is not None:
            files.insert(0, (project, True))
        rules: list[Rule] = []
        untrusted: list[Rule] = []
        problems: list[str] = []
        for file, is_project in files:
            try:
                content = _content(file)
                written = _rules_of(content, file)
            except SettingsError as problem:
                problems.append(f"{problem.message}; until then no rule allows anything there")
                continue
            if is_project and self._trusted is not None and not self._trusted.holds(file, content):
                untrusted += [rule for rule in written if rule.action not in WIDE]
                written = tuple(rule for rule in written if rule.action in WIDE)
            rules += written
        rules += [kept.rule for kept in await self.kept()]
        if problems:
            rules = [rule for rule in rules if rule.action in WIDE]
        if untrusted:
            problems.append(
                f"{files[0][0]} would allow something, and nobody has looked at it as it is now; "
                "run `handraise rules trust` in its folder"
            )
        return Rules(rules=tuple(rules), problems=tuple(problems), untrusted=tuple(untrusted))

    async def tested(self, ask: Ask) -> dict[str, Any]:
        """What would be decided, as JSON; no program is run for it."""
        found = await self.holding(ask.origin)
        decision = decide(ask, found.rules, resolve=_resolved)
        return {
            "action": decision.action or "ask",
            "rule": None if decision.rule is None else _listed(decision.rule),
            "why": list(decision.why),
            "problems": list(found.problems),
        }

    async def listed(self, origin: Origin) -> dict[str, Any]:
        """The rules that hold for asks from there, as JSON: those that can never match with why."""
        found = await self.holding(origin)
        useless = {id(rule): why for rule, why in never_match(found.rules)}
        return {
            "rules": [_listed(rule, never=useless.get(id(rule))) for rule in found.rules],
            "untrusted": [_listed(rule) for rule in found.untrusted],
            "problems": list(found.problems),
        }

    def _warn(self, problem: str) -> None:
        if problem not in self._said:
            self._said.add(problem)
            log.warning("%s", problem)

    # Kept at the desk -------------------------------------------------------------------------------------

    async def kept(self) -> list[KeptRule]:
        rows = await self._database.read("select id, rule from rules order by place, id")
        return [KeptRule(id, parse_rule(json.loads(rule), source=f"{DESK}:{id}")) for id, rule in rows]

    async def add(self, given: Mapping[str, Any], *, at: int, by: str, first: bool = False) -> KeptRule:
        """Behind the others, or before them with `first`. Raises SettingsError."""
        id = uuid4().hex[:8]
        rule = parse_rule(given, source=f"{DESK}:{id}")
        edge = "min(place), 0) - 1" if first else "max(place), 0) + 1"
        await self._database.write(
            f"insert into rules (id, place, rule, created_at, created_by) "  # noqa: S608 - one of two texts of ours
            f"select cast(? as text), coalesce({edge}, cast(? as text), cast(? as bigint), cast(? as text) from rules",
            id,
            json.dumps(told(rule)),
            at,
            by,
        )
        return KeptRule(id, rule)

    async def remove(self, id: str) -> KeptRule:
        """Raises RuleNotFound."""
        rows = await self._database.write("delete from rules where id = ? returning rule", id)
        if not rows:
            raise RuleNotFound(id)
        return KeptRule(id, parse_rule(json.loads(rows[0][0]), source=f"{DESK}:{id}"))


def _listed(rule: Rule, *, never: str | None = None) -> dict[str, Any]:
    kept = {"id": rule.source.removeprefix(f"{DESK}:")} if rule.source.startswith(f"{DESK}:") else {}
    return {**kept, "source": rule.source, **told(rule), **({"never": never} if never else {})}


def call_of(
    tool: str, arguments: Mapping[str, Any], *, agent: str = "any", cwd: str | None = None, subagent: bool = False
) -> Ask:
    """A permission as an agent would ask for it, to try rules on."""
    paths = arguments.get("path", ())
    command, url = arguments.get("command"), arguments.get("url")
    permission = Permission(
        tool=tool,
        kind="plan" if tool == PLAN else "tool",
        command=command if isinstance(command, str) else None,
        paths=(paths,) if isinstance(paths, str) else tuple(str(path) for path in paths),
        url=url if isinstance(url, str) else None,
        cwd=cwd,
        input=arguments,
    )
    origin = Origin(agent=agent, session="test", cwd=cwd, parent="parent" if subagent else None)
    return Ask(id="test", permission=permission, origin=origin)


def _project_of(origin: Origin) -> Path | None:
    """The project that an ask comes from, where that is on this machine."""
    if not origin.cwd or not Path(origin.cwd).is_absolute() or origin.machine not in (None, socket.gethostname()):
        return None
    try:
        return find_project(Path(origin.cwd))
    except (OSError, ValueError):
        return None


def _content(file: Path) -> bytes:
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise SettingsError(f"{file} is too large for a file of settings")
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as problem:
        raise SettingsError(f"{file} cannot be read: {problem.strerror}") from None


@lru_cache(maxsize=64)
def _rules_of(content: bytes, file: Path) -> tuple[Rule, ...]:
    try:
        return rules_in(content.decode(), file=file)
    except UnicodeDecodeError:
        raise SettingsError(f"{file} is not UTF-8") from None


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


# Programs that decide -----------------------------------------------------------------------------------------------


def _undecided(decision: Decision, rule: Rule, problem: str) -> Decision:
    log.warning("%s: %s: %s, so a person is asked", rule.source, rule.to[0], problem)
    return replace(decision, action="ask", why=(*decision.why, f"{rule.to[0]}: {problem}"))


async def _run(ask: Ask, program: Sequence[str]) -> tuple[int, str]:
    """Its exit code, and what it said on stderr. It and what it started end with the wait."""
    permission = ask.permission
    assert permission is not None
    given = dict(permission.input or {})
    for name in ("command", "url"):
        if (value := getattr(permission, name)) is not None:
            given.setdefault(name, value)
    if permission.paths:
        given.setdefault("paths", list(permission.paths))
    environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
    environment |= {
        "AGENT": ask.origin.agent,
        "AGENT_TOOL_NAME": permission.tool,
        "HANDRAISE_SESSION": ask.origin.session,
    }
    process = await asyncio.create_subprocess_exec(
        *program,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        cwd=_folder_of(ask.origin),
        env=environment,
        start_new_session=True,
    )
    try:
        assert process.stdin is not None
        assert process.stderr is not None
        with suppress(BrokenPipeError, ConnectionResetError):  # it need not read what it does not care for
            process.stdin.write(json.dumps(given).encode())
            await process.stdin.drain()
        process.stdin.close()
        said = await process.stderr.read(LONGEST_REASON * 4)
        while await process.stderr.read(1 << 16):
            continue
        code = await process.wait()
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return code, inert(said.decode(errors="replace").strip())[:LONGEST_REASON]


def _folder_of(origin: Origin) -> str | None:
    return origin.cwd if origin.cwd and Path(origin.cwd).is_dir() else None
