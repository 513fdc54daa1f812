"""Which parts of a project's files a person has looked at, and what each part would make happen.

A project may have come from anywhere, and the agent that works in it can write to it. So what its files start, answer,
allow or run counts only while it is exactly what a person agreed to (`handraise trust`). What they forbid counts at
once.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import hashlib
import json
import os
import pwd
import re
import shlex
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from difflib import unified_diff
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from handraise.errors import PartChanged, SettingsError
from handraise.rules import WIDE, Rule
from handraise.rules.reading import told
from handraise.text.inert import inert
from handraise.transports.files import open_ordinary, read_ordinary

__all__ = [
    "KINDS",
    "Kind",
    "Part",
    "Trust",
    "agents_part",
    "anchored",
    "changed",
    "notice",
    "policy_part",
    "rules_part",
    "workflow_part",
]

Kind: TypeAlias = Literal["agents", "policy", "rules", "workflow"]
KINDS: tuple[Kind, ...] = ("agents", "policy", "rules", "workflow")

UNREADABLE = ""  # in place of a digest; it equals nothing
LARGEST_PROGRAM = 256 << 20  # bytes; an agent may bring its own interpreter along
LARGEST_DECIDER = 16 << 20  # bytes of a program that a rule leaves the decision to: it is looked at for each ask
MOST_PROGRAMS = 100
MOST_TOGETHER = 1 << 30  # bytes of all programs of a part
MOST_WORDS = 2_000  # of all commands of a part; each is looked for
MOST_KEPT = 64 << 10  # bytes of a file that are kept to show a difference later
LONGEST_LINE = 2000
MOST_LINES = 400  # of a difference
MOST_COMPARED = 1_000  # lines of a text; to compare long ones that somebody made for it takes hours
CHUNK = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something that the files of a project would make happen, as they are now."""

    project: Path  # its folder, without links
    kind: Kind
    name: str  # what it is called in that project: the kind, or `workflow` and its file
    text: str  # what stands in the settings, so that every change of it is one
    lines: tuple[str, ...]  # what it would do, for a person; not inert yet
    written_in: Path  # the file that says it
    commands: tuple[tuple[str, ...], ...] = ()  # what it would run; the content of the files they name belongs to it
    sources: Mapping[Path, bytes] = field(default_factory=dict)  # other files that belong to it, with their content

    def programs(self) -> list[Path]:
        """The files that its commands name; none where there are too many to look for."""
        if sum(map(len, self.commands)) > MOST_WORDS:
            return []
        found = (
            path
            for words in self.commands
            for path in _named(words, folder=self.written_in.parent, absolute=self.kind == "rules")
        )
        return list(dict.fromkeys(found))

    def problems(self) -> list[str]:
        """Why nobody can trust it: somebody else could change it at any time, or there is too much to look at."""
        programs = self.programs()
        files = dict.fromkeys((self.written_in, *programs[:MOST_PROGRAMS], *self.sources))
        found = dict.fromkeys(problem for file in files for problem in _loose(file, root=self.project))
        return [*found, *_too_much(self, programs)]

    def is_too_much(self) -> bool:
        """Whether its files are too many or too large to be read."""
        return any(_too_much(self, self.programs()))

    def fingerprint(self) -> str:
        """The same for as long as nothing of it changes."""
        return _fingerprint(self, _digests(self))

    def owners(self) -> dict[int, str]:
        """The other users that its files belong to, each with one of the files. Root is nobody else: it may do all."""
        found: dict[int, str] = {}
        for file in (self.written_in, *self.programs(), *self.sources):
            for place in _chain(file, root=self.project):
                with suppress(OSError):
                    owner = place.stat().st_uid
                    if owner not in (0, os.getuid()):
                        found.setdefault(owner, str(place))
        return found


# What the files of a project say -------------------------------------------------------------------------------------


def agents_part(file: Path, agents: Mapping[str, Mapping[str, Any]]) -> Part | None:
    """`[agents.…]` of a project's file: what is started, with which variables, and where it listens."""
    if not agents:
        return None
    lines: list[str] = []
    words: list[str] = []
    commands: list[tuple[str, ...]] = []
    for name, table in agents.items():
        if command := table.get("command"):
            lines.append(f"would run: {shlex.join(command)} (as {name})")
            commands.append(tuple(command))
        program = (command or [name])[0]
        for variable, value in table.get("env", {}).items():
            lines.append(f"would set {variable}={value} (for {name})")
            if variable == "PATH":  # where its program is looked for
                words += [f"{place}/{program}" for place in value.split(os.pathsep)]
            words += [word for word in re.split(r"[\s=:,;]+", value) if "." in word or "/" in word]
        lines += [f"would listen to {name} at {address}" for address in table.get("watch", ())]
    return _part("agents", file, text=agents, lines=lines, commands=(*commands, ("", *words)))


def policy_part(file: Path, policy: Mapping[str, Any]) -> Part | None:
    """`[policy]` of a project's file, where it does more than to reject."""
    lines: list[str] = []
    for name, value in policy.items():
        match name, value:
            case "question_policy", {"auto": [*rules]}:
                lines += [f"would answer {rule.get('match')!r} with {_listed(rule.get('answers'))}" for rule in rules]
                lines.append("would answer every other question with its first option")
            case "question_policy", "accept-first" | "accept-recommended":
                lines.append(f"would answer questions by itself: {value}")
            case "question_timeout", _:
                lines.append(f"would decide after {value} s without an answer")
            case "on_timeout", "accept-first" | "accept-recommended":
                lines.append(f"would decide a question whose time is up: {value}")
            case _:
                lines.append(f"would set {name} = {value}")
    return _part("policy", file, text=policy, lines=lines) if lines else None


def rules_part(file: Path, rules: Sequence[Rule]) -> Part | None:
    """`[[rules]]` of a project's file, where one allows something or leaves it to a program.

    All of them belong to it: without the one above that rejects, the one below allows more.
    """
    if all(rule.action in WIDE for rule in rules):
        return None
    lines: list[str] = []
    for rule in rules:
        lines.append(f"rule: {rule}")
        lines += [f"would run: {shlex.join(rule.to)} (to decide)"] if rule.to else []
    text = [{**told(rule), "to": [_relative(word, folder=file.parent) for word in rule.to]} for rule in rules]
    return _part("rules", file, text=text, lines=lines, commands=tuple(rule.to for rule in rules if rule.to))


def workflow_part(file: Path, *, root: Path, sources: Mapping[Path, bytes]) -> Part:
    """A file of workflows with every file of the project that it imports."""
    lines = [
        f"would run Python: {_relative(str(path), folder=root)}, {len(content.splitlines())} lines"
        for path, content in sources.items()
    ]
    return Part(
        project=Path(os.path.realpath(root)),
        kind="workflow",
        name=f"workflow {file.name}",
        text="",
        lines=tuple(lines),
        written_in=file,
        sources={Path(os.path.realpath(root), _relative(str(path), folder=root)): sources[path] for path in sources},
    )


def _part(
    kind: Kind, file: Path, *, text: Any, lines: Sequence[str], commands: tuple[tuple[str, ...], ...] = ()
) -> Part:
    return Part(
        project=Path(os.path.realpath(file.parent)),
        kind=kind,
        name=kind,
        text=json.dumps(text, sort_keys=True, default=str),
        lines=tuple(lines),
        written_in=file,
        commands=commands,
    )


def anchored(words: Sequence[str], *, folder: Path, is_strict: bool) -> tuple[str, ...]:
    """The words of a command, each that names a file of the folder with its whole path.

    It is run in other folders too, and a file of the same name there is not the one that a person looked at. Where that
    is not `is_strict`, a word counts only if it looks like a file: `serve` may be a command and a file.
    """
    first = Path(words[0]).expanduser()
    found = [str(folder / first) if "/" in words[0] else words[0]]
    for word in words[1:]:
        path = _file(word, folder=folder) if is_strict or "/" in word or "." in word else None
        found.append(word if path is None else str(path))
    return tuple(found)


def _named(words: Sequence[str], *, folder: Path, absolute: bool) -> Iterator[Path]:
    """The files that the words of a command name, from the folder.

    The program itself is also looked for on the PATH, and counts from there only inside of the project. One that is
    named by its `absolute` path and lies elsewhere belongs to this machine, unless that is wanted too.
    """
    root = os.path.realpath(folder)
    for number, word in enumerate(words):
        if number == 0 and "/" not in word:
            program = shutil.which(word) if word else None
            path = Path(program) if program is not None and _is_inside(program, root) else None
        else:
            path = _file(word, folder=folder) or _file(word.partition("=")[2], folder=folder)
            is_elsewhere = path is not None and Path(word).expanduser().is_absolute() and not _is_inside(path, root)
            if is_elsewhere and not absolute:
                path = None
        if path is not None:
            yield path


def _file(word: str, *, folder: Path) -> Path | None:
    if not word:
        return None
    path = folder / Path(word).expanduser() if word.startswith("~/") else folder / word
    return path if os.path.isfile(path) else None  # noqa: PTH113 - a Path raises where a name is too long


def _is_inside(path: str | Path, root: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(root)


def _relative(word: str, *, folder: Path) -> str:
    path = Path(word)
    return str(path.relative_to(folder)) if path.is_absolute() and path.is_relative_to(folder) else word


def _listed(values: Any) -> str:
    return ", ".join(map(str, values)) if isinstance(values, list | tuple) else str(values)


# Who else could change it -------------------------------------------------------------------------------------------


def _chain(file: Path, *, root: Path) -> Iterator[Path]:
    """The file and the folders above it up to that of the project, also where it really lies."""
    real = Path(os.path.realpath(file))
    for path in dict.fromkeys((Path(os.path.realpath(file.parent), file.name), real)):
        yield path
        for folder in path.parents:
            yield folder
            if folder == root:
                break


def _loose(file: Path, *, root: Path) -> Iterator[str]:
    for place in _chain(file, root=root):
        try:
            seen = place.stat()
        except OSError as problem:
            yield f"{place} cannot be looked at: {problem.strerror}"
            continue
        if stat.S_ISDIR(seen.st_mode) and seen.st_mode & stat.S_ISVTX:
            continue  # there everybody may add files, and nobody replaces those of others
        mode = seen.st_mode & 0o7777
        if mode & stat.S_IWOTH:
            yield f"everybody can change {place}, mode {mode:04o}; chmod o-w {shlex.quote(str(place))}"
        elif mode & stat.S_IWGRP and (others := _others_in(seen.st_gid)):
            yield f"{others} can change {place}, mode {mode:04o}; chmod g-w {shlex.quote(str(place))}"


@lru_cache(maxsize=64)
def _others_in(group: int) -> str | None:
    """Who is in a group besides this user; None where nobody is."""
    try:
        found = grp.getgrgid(group)
    except KeyError:
        return f"group {group}"  # nobody can say who is in it
    mine = {user.pw_name for user in pwd.getpwall() if user.pw_uid == os.getuid()}
    members = {*found.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == group)}
    return f"group {found.gr_name}" if members - mine else None


def _too_much(part: Part, programs: Sequence[Path]) -> Iterator[str]:
    """Why it cannot be looked at whole."""
    if len(programs) > MOST_PROGRAMS or sum(map(len, part.commands)) > MOST_WORDS:
        yield f"it names too many files; at most {MOST_PROGRAMS} are looked at"
        return
    most = LARGEST_DECIDER if part.kind == "rules" else LARGEST_PROGRAM
    together = 0
    for file in programs:
        with suppress(OSError):
            size = file.stat().st_size
            together += size
            if size > most:
                yield f"{file} is too large to be looked at: at most {most >> 20} MiB"
        if not os.access(file, os.R_OK):
            yield f"{file} cannot be read, so nobody can look at it"
    if together > MOST_TOGETHER:
        yield f"its programs are too large to be looked at: at most {MOST_TOGETHER >> 20} MiB together"


# What a person agreed to ---------------------------------------------------------------------------------------------


class Trust:
    """What was trusted on this machine, as it was then, in one file of the home."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def holds(self, part: Part) -> bool:
        """Whether a person agreed to exactly this, and nobody else can change it."""
        known = self._known(part)
        if known is None or known.get("text") != _digest(part.text.encode()):
            return False  # first, so that a project that nobody trusts cannot have large files read
        if part.problems() or not part.owners().keys() <= set(known.get("owners", ())):
            return False
        files, now = known.get("files"), _digests(part)
        if not isinstance(files, dict) or UNREADABLE in now.values():
            return False
        return {name: _of(kept, "digest") for name, kept in files.items()} == now

    def knew(self, part: Part) -> bool:
        """Whether something of that name was trusted there, also where it has changed."""
        return self._known(part) is not None

    def difference(self, part: Part) -> list[str]:
        """What changed since it was trusted, as lines for a person; not inert yet."""
        known = self._known(part) or {}
        before = [line for line in known.get("lines", ()) if isinstance(line, str)]
        found = _compared(before, part.lines) if part.kind != "workflow" else []
        files = known.get("files") if isinstance(known.get("files"), dict) else {}
        contents = _contents(part)
        for name in dict.fromkeys((*(files or {}), *contents)):
            now, kept = contents.get(name), (files or {}).get(name)
            if now is None:
                found.append(f"{name} is no longer part of it")
            elif _of(kept, "digest") != _digest_of(now):
                found.append(f"{name}:" if kept is not None else f"{name} is new:")
                found += _text_difference(_of(kept, "text") if kept is not None else "", now)
        if len(found) > MOST_LINES:
            found = [*found[:MOST_LINES], f"… and {len(found) - MOST_LINES} more lines; look at the files"]
        return found

    def add(self, parts: Sequence[Part], *, seen: Sequence[str] | None = None) -> None:
        """Remember them as they are, all or none.

        `seen` are their fingerprints from when the person looked. What is compared with them is what is remembered, so
        nothing can change between the two. Raises PartChanged where one differs, and SettingsError, also where somebody
        else could change one of the files.
        """
        for part in parts:
            for problem in part.problems():
                raise SettingsError(f"{part.name}: {problem}")
        records = [_record(part) for part in parts]
        now = [fingerprint for fingerprint, _ in records]
        for part, before, after in zip(parts, now if seen is None else seen, now, strict=True):
            if before != after:
                raise changed(part.name)
        with self._changing() as projects:
            for part, (_, record) in zip(parts, records, strict=True):
                projects.setdefault(str(part.project), {})[part.name] = record

    def forget(self, project: Path) -> list[str]:
        """The names of the parts that were trusted there, and are not from now on."""
        with self._changing() as projects:
            return list(projects.pop(os.path.realpath(project), {}))

    def forget_around(self, folder: Path) -> tuple[Path, list[str]] | None:
        """The same for the nearest project above a folder that something of is trusted; None where there is none."""
        known, here = self.projects(), Path(os.path.realpath(folder))
        project = next((place for place in (here, *here.parents) if str(place) in known), None)
        return None if project is None else (project, self.forget(project))

    def projects(self) -> dict[str, dict[str, Any]]:
        """What is remembered: the parts of each project by their names."""
        try:
            if self._file.stat().st_mode & 0o022:
                return {}  # whoever wrote that, a person at this terminal need not have
            known = json.loads(self._file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        found = known.get("projects") if isinstance(known, dict) else None
        if not isinstance(found, dict):
            return {}  # of an older version, which did not look at the programs
        return {name: parts for name, parts in found.items() if isinstance(parts, dict)}

    def _known(self, part: Part) -> dict[str, Any] | None:
        known = self.projects().get(str(part.project), {}).get(part.name)
        return known if isinstance(known, dict) else None

    @contextmanager
    def _changing(self) -> Iterator[dict[str, dict[str, Any]]]:
        """What is remembered, to be changed and written whole. Others who change it wait."""
        fresh = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self._file.parent, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                projects = self.projects()
                yield projects
                with suppress(FileNotFoundError):
                    fresh.unlink()
                with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
                    json.dump({"version": 2, "projects": projects}, handle, indent=1)
                fresh.replace(self._file)
            finally:
                os.close(lock)
        except OSError as problem:
            raise SettingsError(f"{self._file} cannot be written: {problem.strerror}") from None


def _of(kept: Any, name: str) -> Any:
    return kept.get(name) if isinstance(kept, dict) else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def changed(name: str) -> PartChanged:
    shown = inert(name, keep="")
    return PartChanged(f"{shown} was changed while you looked at it, so nothing was trusted; look again", name=shown)


def _fingerprint(part: Part, digests: Mapping[str, str]) -> str:
    return _digest(json.dumps([part.text, digests, sorted(part.owners())]).encode())


def _record(part: Part) -> tuple[str, dict[str, Any]]:
    """What is remembered of a part, and the fingerprint of just that. Raises SettingsError."""
    contents = _contents(part)
    digests = {name: _digest_of(content) for name, content in contents.items()}
    files = {name: {"digest": digest} for name, digest in digests.items()}
    for name, content in contents.items():
        if digests[name] == UNREADABLE:
            raise SettingsError(f"{part.name}: {name} cannot be read")
        text = _text(content)
        if text is not None and _digest(text.encode()) == digests[name]:
            files[name]["text"] = text
    record = {
        "text": _digest(part.text.encode()),
        "lines": [line[:LONGEST_LINE] for line in part.lines],
        "files": files,
        "owners": sorted(part.owners()),
        "at": int(time.time()),
    }
    return _fingerprint(part, digests), record


def _digest_of(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return _digest(content)
    try:
        seen = content.stat()
        return _file_digest(content, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    except OSError:
        return UNREADABLE


@lru_cache(maxsize=256)
def _file_digest(file: Path, *_: int) -> str:
    """Read once for each state of the file. Nobody sets the time of a change of it by hand."""
    found, left = hashlib.sha256(), LARGEST_PROGRAM
    with open_ordinary(file) as reading:
        while chunk := reading.read(CHUNK):
            left -= len(chunk)
            if left < 0:  # files of the system say that they are empty, and never end
                raise OSError(errno.EFBIG, "it is too large", str(file))
            found.update(chunk)
    return found.hexdigest()


def _contents(part: Part) -> dict[str, bytes | Path]:
    """The files that belong to a part by their names in the project: their content, or where it is."""
    found: dict[str, bytes | Path] = {}
    for path, content in part.sources.items():
        found[_relative(str(path), folder=part.project)] = content
    for path in part.programs():
        real = Path(os.path.realpath(path.parent), path.name)
        found[_relative(str(real), folder=part.project)] = path
    return found


def _digests(part: Part) -> dict[str, str]:
    return {name: _digest_of(content) for name, content in _contents(part).items()}


def _text(content: bytes | Path) -> str | None:
    """What is kept of a file to show a difference later: all of it, where it is a text and not long."""
    try:
        found = read_ordinary(content, most=MOST_KEPT) if isinstance(content, Path) else content
    except OSError:
        return None
    if found is None or len(found) > MOST_KEPT or b"\0" in found:
        return None
    try:
        return found.decode()
    except UnicodeDecodeError:
        return None


def _text_difference(before: Any, now: bytes | Path) -> list[str]:
    text = _text(now)
    if text is None or not isinstance(before, str):
        return ["  it changed, and is no text or too long to be shown here"]
    return [f"  {line}" for line in _compared(before.splitlines(), text.splitlines())]


def _compared(before: Sequence[str], now: Sequence[str]) -> list[str]:
    if max(len(before), len(now)) > MOST_COMPARED:
        return [*(f"-{line}" for line in before), *(f"+{line}" for line in now)]
    return list(unified_diff(before, now, lineterm="", n=2))[2:]


# What commands say ---------------------------------------------------------------------------------------------------


def notice(parts: Sequence[Part], *, cwd: Path | None = None, is_looked_at: bool = True) -> str | None:
    """One line that says what of a project is not used, and what to type; None where nothing was left out.

    Where its files are not to be looked at, which takes time, it does not say why nobody can trust it.
    """
    if not parts:
        return None
    names = [part.name for part in parts]
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    is_one = len(parts) == 1 and parts[0].kind in ("policy", "workflow")
    loose = next((problem for part in parts for problem in part.problems()), None) if is_looked_at else None
    told = f"{'is' if is_one else 'are'} not used until you trust {'it' if is_one else 'them'}"
    why = f" ({loose})" if loose else ""
    subject = listed if parts[0].kind == "workflow" else f"{parts[0].written_in.name}: its {listed}"
    return inert(f"{subject} {told}{why}: {_command(parts[0].project, cwd=cwd or Path.cwd())}", keep="")


def _command(project: Path, *, cwd: Path) -> str:
    is_here = Path(os.path.realpath(cwd)).is_relative_to(project)
    return "handraise trust" if is_here else f"handraise trust {shlex.quote(str(project))}"
