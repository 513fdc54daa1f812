"""The rules that hold for an ask, from where they are kept, and the programs that some of them leave the decision to.

A project's `handraise.toml` comes first, then the user's own file, then the rules that are kept at the desk. Those that
a person made for one session by saying `always` come last, so that whatever forbids or asks comes before them. A
project may have come from anywhere, and the agent that works in it can write to it: its rules that allow something, or
leave it to a program, count only after a person has looked at exactly those rules and programs (`handraise trust`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import posixpath
import signal
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from handraise.agents import SECRETS
from handraise.asks import Answer, Ask, Origin, Permission
from handraise.errors import RuleNotFound, SettingsError
from handraise.rules import STRICTNESS, WIDE, Decision, Rule, decide, never_match, warnings_of
from handraise.rules.lasting import lasting_rules
from handraise.rules.reading import find_projects, parse_rule, rules_in, told
from handraise.rules.tools import PLAN
from handraise.stores import Database, Statement
from handraise.text.inert import inert
from handraise.transports.files import read_settings
from handraise.transports.search_path import safe_path
from handraise.trust import Part, Trust, anchored, notice, rules_part

__all__ = ["KeptRule", "Rulebook", "Rules", "answer_of", "call_of"]

log = logging.getLogger(__name__)

DESK = "desk"  # begins the source of a rule that is kept in the database
PATIENCE = 10.0  # seconds for a program whose rule says nothing else
LONGEST_REASON = 2000
READERS = 4  # files of settings that are read at the same time
MOST_SAID = 1000  # problems that are not logged again
MOST_DELEGATES = 5  # programs that one call is left to
MOST_LISTED = 1000  # rules of sessions, the newest of them
BY_RULE = "policy:rule"
_KEEP = """
insert into rules (id, place, rule, created_at, created_by, session, owner) values (?, 0, ?, ?, ?, ?, ?)"""
_HOLDING = """
select id, rule, created_by, session from rules
where session is null or (session = ? and owner = ?) order by session is not null, place, created_at, id"""
_OF_SESSIONS = """
select id, rule, created_by, session from rules where session is not null order by created_at desc, id limit ?"""


class KeptRule(NamedTuple):
    """A rule of the desk's own."""

    id: str
    rule: Rule
    by: str = ""  # who made it

    def told(self) -> dict[str, Any]:
        return {**_listed(self.rule), **({"by": self.by} if self.rule.session is not None else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Those that hold somewhere, in their order, and what stands in the way of others."""

    rules: tuple[Rule, ...] = ()
    bans: tuple[tuple[Rule, ...], ...] = ()  # of each project that nobody trusts, or that lies above: they only forbid
    problems: tuple[str, ...] = ()
    is_broken: bool = False  # a file could not be read, so that nothing is allowed
    untrusted: tuple[Rule, ...] = ()  # they would allow something, in a file that nobody looked at


class Rulebook:
    def __init__(self, database: Database, *, user: Path | None = None, trust: Trust | None = None) -> None:
        """`user` is the user's own file. Without `trust`, no project's rules are looked for."""
        self._database = database
        self._user = user
        self._trust = trust
        self._said: set[str] = set()
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="rules")  # they end with this

    async def decide(self, ask: Ask, *, owner: str = "", lasting: bool = True) -> Decision:
        """What the rules say to a permission. One that leaves it to a program runs none here.

        `owner` is whose token asks: a session that somebody else made up is another one. Without `lasting`, what was
        allowed for the session does not count.
        """
        if ask.permission is None:
            return Decision()
        found = await self.holding(ask.origin, owner=owner)
        if not lasting:
            found = replace(found, rules=tuple(rule for rule in found.rules if rule.session is None))
        for problem in found.problems:
            self._warn(problem)
        return decide(ask, found.rules, bans=found.bans)

    async def delegated(self, ask: Ask, decision: Decision, *, doubt: str | None = None) -> Decision:
        """What the programs of the rules say, the strictest of them. Whatever goes wrong with one, a person is asked.

        `doubt` is why it cannot be said for certain what the command does, and the program is told.
        """
        rules = decision.delegates or tuple(filter(None, [decision.rule]))
        if len(rules) > MOST_DELEGATES:
            return replace(
                decision, action="ask", why=(*decision.why, f"more than {MOST_DELEGATES} programs would decide")
            )
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(self._asked(ask, decision, rule, doubt=doubt)) for rule in rules]
        said = [task.result() for task in asked]
        why = tuple(dict.fromkeys(line for each in said for line in each.why))
        return replace(max(said, key=lambda each: STRICTNESS[each.action]), why=why)

    async def _asked(self, ask: Ask, decision: Decision, rule: Rule, *, doubt: str | None) -> Decision:
        program = _program_of(rule)
        if (word := _of_the_folder(program, _folder_of(ask.origin))) is not None:
            return _undecided(
                decision, rule, f"{word} would be a file of the agent's folder; name it by its whole path"
            )
        try:
            async with asyncio.timeout(rule.timeout or PATIENCE):
                code, said = await _run(ask, program, doubt=doubt)
        except TimeoutError:
            return _undecided(decision, rule, f"it did not decide in {rule.timeout or PATIENCE:g} s")
        except (OSError, ValueError) as problem:
            return _undecided(decision, rule, f"it cannot be started ({problem})")
        why = (*decision.why, f"{rule.to[0]} ended with {code}")
        match code:
            case 0:
                return replace(decision, action="allow", rule=rule, why=why)
            case 1:
                return replace(decision, action="ask", rule=rule, why=why)
            case 2:
                return replace(decision, action="reject", rule=replace(rule, message=said or None), why=why)
            case _:
                return _undecided(decision, rule, f"it ended with {code}, which says nothing")

    async def holding(self, origin: Origin, *, owner: str = "", is_looked_at: bool = False) -> Rules:
        """The rules for asks from there. Where a file cannot be read, none that allows something counts.

        With `is_looked_at`, its problems also say why nobody can trust a project.
        """
        # Disks are slow, and other asks wait on the loop.
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, self._written, origin, is_looked_at)
        kept = [kept.rule for kept in await self.kept(session=origin.root, owner=owner)]
        rules = (*found.rules, *kept)
        if found.is_broken:
            rules = tuple(rule for rule in rules if rule.action in WIDE)
        return replace(found, rules=rules)

    def _written(self, origin: Origin, is_looked_at: bool) -> Rules:
        """What the files say: a project that a person trusts, then the user. Every other `handraise.toml`, up to the
        root of the file system, can only forbid: an agent may have written it, to be rid of the one above it."""
        rules: list[Rule] = []
        bans: list[tuple[Rule, ...]] = []
        untrusted: list[Rule] = []
        left_out: list[str] = []
        problems: list[str] = []
        projects, is_all = _projects_of(origin) if self._trust is not None else ([], True)
        if not is_all:
            problems.append(f"{origin.cwd} lies too deep to look for the rules above it; no rule allows anything there")
        has_trusted = False
        for file in projects:
            try:
                content = read_settings(file)
                written = _rules_of(content, file)
            except SettingsError as problem:
                problems.append(f"{problem.message}; until then no rule allows anything there")
                continue
            part = _part_of(content, file)
            is_trusted = part is not None and self._trust is not None and self._trust.holds(part)
            if is_trusted and not has_trusted:
                rules += written
                has_trusted = True
                continue
            if part is not None and not is_trusted and not has_trusted:
                untrusted += [rule for rule in written if rule.action not in WIDE]
                left_out.append(notice([part], cwd=Path(origin.cwd or "/"), is_looked_at=is_looked_at) or "")
            bans.append(tuple(rule for rule in written if rule.action in WIDE))
        if self._user is not None:
            try:
                rules += _rules_of(read_settings(self._user), self._user)
            except SettingsError as problem:
                problems.append(f"{problem.message}; until then no rule allows anything there")
        return Rules(
            rules=tuple(rules),
            bans=tuple(filter(None, bans)),
            problems=(*problems, *left_out),
            untrusted=tuple(untrusted),
            is_broken=bool(problems),
        )

    async def tested(self, ask: Ask) -> dict[str, Any]:
        """What would be decided, as JSON; no program is run for it."""
        found = await self.holding(ask.origin, is_looked_at=True)
        decision = decide(ask, found.rules, bans=found.bans)
        return {
            "action": decision.action or "ask",
            "rule": None if decision.rule is None else _listed(decision.rule),
            "why": list(decision.why),
            "problems": list(found.problems),
        }

    async def listed(self, origin: Origin) -> dict[str, Any]:
        """The rules that hold for asks from there, as JSON, with why one can never match and what one covers unseen.
        Those that people made for a session come last, of all sessions."""
        found = await self.holding(origin, is_looked_at=True)
        found = replace(found, rules=tuple(rule for rule in found.rules if rule.session is None))
        lasting = await self._of_sessions()
        lists = [*found.bans, [*found.rules, *(kept.rule for kept in lasting)]]
        useless = {id(rule): why for rules in lists for rule, why in never_match(rules)}
        return {
            "rules": [
                *(_listed(rule, never=useless.get(id(rule))) for rules in found.bans for rule in rules),
                *(_listed(rule, never=useless.get(id(rule)), warnings=warnings_of(rule)) for rule in found.rules),
                *({**kept.told(), **_never(useless.get(id(kept.rule)))} for kept in lasting),
            ],
            "untrusted": [_listed(rule) for rule in found.untrusted],
            "problems": list(found.problems),
        }

    def _warn(self, problem: str) -> None:
        if problem not in self._said:
            if len(self._said) >= MOST_SAID:
                self._said.clear()
            self._said.add(problem)
            log.warning("%s", problem)

    # Kept at the desk -------------------------------------------------------------------------------------

    async def kept(self, *, session: str = "", owner: str = "") -> list[KeptRule]:
        """Those for everybody, and behind them those for this session of whoever asks with that token."""
        return [_kept(*row) for row in await self._database.read(_HOLDING, session, owner)]

    async def _of_sessions(self) -> list[KeptRule]:
        return [_kept(*row) for row in await self._database.read(_OF_SESSIONS, MOST_LISTED)]

    def keeping(self, ask: Ask, answer: Answer, *, owner: str, at: int) -> list[Statement]:
        """What writes the rules that an `always` makes, for the commit of the answer. Nothing for any other answer."""
        rules = [(rule.session, json.dumps(told(replace(rule, session=None)))) for rule in lasting_rules(ask, answer)]
        return [(_KEEP, (uuid4().hex[:12], rule, at, answer.by, session, owner)) for session, rule in rules]

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
        rows = await self._database.write("delete from rules where id = ? returning id, rule, created_by, session", id)
        if not rows:
            raise RuleNotFound(id)
        return _kept(*rows[0])


def answer_of(decision: Decision) -> Answer | None:
    """What the rules decided, as the answer that the agent gets; None where a person is to be asked."""
    match decision.action:
        case "allow":
            return Answer(reply="once", by=BY_RULE, via="policy", why=decision.why)
        case "reject":
            message = decision.rule.message if decision.rule is not None else None
            reason = message or "a rule does not allow this"
            return Answer(reply="reject", rejected=True, reason=reason, by=BY_RULE, via="policy", why=decision.why)
        case _:
            return None


def _kept(id: str, rule: str, by: str, session: str | None) -> KeptRule:
    return KeptRule(id, replace(parse_rule(json.loads(rule), source=f"{DESK}:{id}"), session=session), by)


def _listed(rule: Rule, *, never: str | None = None, warnings: Sequence[str] = ()) -> dict[str, Any]:
    kept = {"id": rule.source.removeprefix(f"{DESK}:")} if rule.source.startswith(f"{DESK}:") else {}
    found = {"warnings": list(warnings)} if warnings else {}
    return {**kept, "source": rule.source, **told(rule), **_never(never), **found}


def _never(why: str | None) -> dict[str, str]:
    return {"never": why} if why else {}


def call_of(
    tool: str, arguments: Mapping[str, Any], *, agent: str = "any", cwd: str | None = None, subagent: bool = False
) -> Ask:
    """A permission as an agent would ask for it, to try rules on. Its paths count as free of links."""
    given = arguments.get("path", ())
    paths = (given,) if isinstance(given, str) else tuple(str(path) for path in given)
    command, url = arguments.get("command"), arguments.get("url")
    permission = Permission(
        tool=tool,
        kind="plan" if tool == PLAN else "tool",
        command=command if isinstance(command, str) else None,
        paths=paths,
        resolved=tuple(posixpath.normpath(posixpath.join(cwd or "/", path)) for path in paths),
        resolved_cwd=cwd,
        url=url if isinstance(url, str) else None,
        cwd=cwd,
        input=arguments,
    )
    origin = Origin(agent=agent, session="test", cwd=cwd, parent="parent" if subagent else None)
    return Ask(id="test", permission=permission, origin=origin)


def _projects_of(origin: Origin) -> tuple[list[Path], bool]:
    """The projects that an ask of this machine comes from, the nearest first, and whether those are all of them."""
    if not origin.cwd or not Path(origin.cwd).is_absolute() or origin.machine not in (None, socket.gethostname()):
        return [], True
    try:
        return find_projects(Path(origin.cwd))
    except (OSError, ValueError):
        return [], True


@lru_cache(maxsize=64)
def _rules_of(content: bytes, file: Path) -> tuple[Rule, ...]:
    try:
        return rules_in(content.decode(), file=file)
    except UnicodeDecodeError:
        raise SettingsError(f"{file} is not UTF-8") from None


def _part_of(content: bytes, file: Path) -> Part | None:
    return _part_in(content, file, os.path.realpath(file.parent))


@lru_cache(maxsize=64)
def _part_in(content: bytes, file: Path, folder: str) -> Part | None:
    """`folder` is where the file really lies now."""
    return rules_part(file, _rules_of(content, file))


# Programs that decide -----------------------------------------------------------------------------------------------


def _undecided(decision: Decision, rule: Rule, problem: str) -> Decision:
    log.warning("%s: %s: %s, so a person is asked", rule.source, rule.to[0], problem)
    return replace(decision, action="ask", why=(*decision.why, f"{rule.to[0]}: {problem}"))


def _program_of(rule: Rule) -> tuple[str, ...]:
    """It runs in the agent's folder, with the files of the folder that its rule stands in."""
    if rule.source.startswith(f"{DESK}:"):
        return rule.to
    return anchored(rule.to, folder=Path(rule.source.rpartition(":")[0]).parent, is_strict=True)


def _of_the_folder(program: Sequence[str], folder: str | None) -> str | None:
    """The word that names a file of the agent's folder, which anybody may have written; None where none does."""
    first, *others = program
    if "/" in first and not Path(first).is_absolute():
        return first
    here = Path(folder or os.curdir)
    for word in others:
        looks_like_a_file = ("/" in word or "." in word) and not Path(word).is_absolute()
        if looks_like_a_file and os.path.exists(here / word):  # noqa: PTH110 - a Path raises where a name is too long
            return word
    return None


async def _run(ask: Ask, program: Sequence[str], *, doubt: str | None) -> tuple[int, str]:
    """Its exit code, and what it said on stderr. It and what it started end with the wait."""
    permission = ask.permission
    assert permission is not None
    # What the rules judged and people see counts; an argument of the same name may say something else.
    named = {name: getattr(permission, name) for name in ("command", "url", "diff", "cwd")}
    given = {**(permission.input or {}), **{name: value for name, value in named.items() if value is not None}}
    if permission.paths:
        given["paths"] = list(permission.paths)
    environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
    environment |= {
        "PATH": safe_path(os.environ),
        "AGENT": ask.origin.agent,
        "AGENT_TOOL_NAME": permission.tool,
        "HANDRAISE_SESSION": ask.origin.session,
        "AGENT_DOUBT": (doubt or "").replace("\0", ""),
    }
    if Path(program[0]).name.startswith("python") and {"-m", "-c"} & {*program}:
        environment["PYTHONSAFEPATH"] = "1"  # else it imports from the agent's folder first
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
        # It need not read what it does not care for. uvloop says RuntimeError where it has ended already.
        with suppress(BrokenPipeError, ConnectionResetError, RuntimeError):
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
