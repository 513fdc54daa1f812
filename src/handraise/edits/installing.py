"""Changes to the files of a person's own programs, made whole or not at all, and taken back exactly.

What a file held before, and what we made of it, is kept in the home before the first byte is written. So a file that
is still as we left it gets back what it had, and a run that was cut short is finished by running it again.
"""

from __future__ import annotations

import base64
import difflib
import json
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from handraise.agents import Edit
from handraise.errors import SettingsError
from handraise.text.inert import inert

__all__ = ["Change", "Installed", "diff", "elsewhere", "install", "plan", "plan_removal", "remove_record", "uninstall"]

CONTEXT = 2  # lines around a change
PRIVATE = 0o600
_NAMES = ("key", "token", "secret", "password")  # how the names of secrets end
_SECRETS = (
    re.compile(r"hr_[A-Za-z0-9_-]{8,}"),
    re.compile(r"(?<=Bearer )[^\s\"']+"),
    re.compile(r"(?i)(?<=key\": \")[^\"]+|(?<=token\": \")[^\"]+|(?<=secret\": \")[^\"]+|(?<=password\": \")[^\"]+"),
    # The same in TOML.
    *(re.compile(rf"(?i)(?<={name}{gap})[^\"]+") for name in _NAMES for gap in (' = "', '="', '" = "')),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to become of one file. None stands for no file."""

    path: Path
    now: bytes | None
    then: bytes | None
    before: bytes | None  # without us
    mode: int | None = None  # it had before; None: there was no file
    private: bool = False
    executable: bool = False
    folders: tuple[Path, ...] = ()  # that we made for it, the outermost first
    real: Path | None = None  # where it lies when every link is followed; None: nobody looked

    @property
    def what(self) -> str:
        if self.now == self.then:
            return "unchanged"
        if self.now is None:
            return "created"
        return "removed" if self.then is None else "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What was installed for one agent: the files, and the token that is written in them."""

    agent: str
    url: str
    token: str  # its name
    files: tuple[Change, ...] = ()

    @classmethod
    def read(cls, home: Path, agent: str) -> Installed | None:
        """Raises SettingsError where the record cannot be read."""
        file = _record_file(home, agent)
        try:
            told = json.loads(file.read_bytes())
            files = tuple(_change_from(each) for each in told["files"])
            return cls(agent=agent, url=str(told["url"]), token=str(told["token"]), files=files)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise SettingsError(f"{file} cannot be read; move it away and run this again") from None

    def file(self, path: Path) -> Change | None:
        return next((change for change in self.files if change.path == path), None)


def plan(edits: Sequence[Edit], *, record: Installed | None = None) -> list[Change]:
    """What each file will look like. Raises SettingsError and leaves everything as it is."""
    return [_planned(edit, record=record) for edit in edits]


def _planned(edit: Edit, *, record: Installed | None) -> Change:
    now, mode = _read(edit.path)
    known = record.file(edit.path) if record is not None else None
    if now is None:
        before = mode = None
    elif known is not None:
        before, mode = known.before if now == known.then else edit.remove(now), known.mode
    else:
        before = edit.remove(now)
    return Change(
        path=edit.path,
        now=now,
        then=edit.add(before),
        before=before,
        mode=mode,
        private=edit.private,
        executable=edit.executable,
        folders=known.folders if known is not None else tuple(_missing(edit.path.parent)),
        real=edit.path.resolve(),
    )


def plan_removal(edits: Sequence[Edit], *, record: Installed | None) -> list[Change]:
    """How the files are without us: as they were, where nobody changed them since, else without what is ours."""
    if record is None:
        return [_found(edit) for edit in edits]
    return [_taken_back(known, edits=edits) for known in record.files]


def _found(edit: Edit) -> Change:
    now, mode = _read(edit.path)
    return Change(path=edit.path, now=now, then=None if now is None else edit.remove(now), before=None, mode=mode)


def _taken_back(known: Change, *, edits: Sequence[Edit]) -> Change:
    now, _ = _read(known.path)
    if now is None:
        return replace(known, now=None, then=None)
    if now in (known.then, known.before):
        return replace(known, now=now, then=known.before)
    # The folder may be another one by now; what is ours in the file is recognised all the same.
    same = [edit for edit in edits if edit.path == known.path] or [e for e in edits if e.path.name == known.path.name]
    if not same:
        raise SettingsError(f"{known.path} was changed since, and nobody knows how; take what is ours out by hand")
    then = same[0].remove(now)
    if then is None and known.before is not None and _is_bare(same[0], known.before):
        then = known.before
    return replace(known, now=now, then=then)


def _is_bare(edit: Edit, before: bytes) -> bool:
    """Whether a file held nothing of its own, so that giving it back brings nothing back that was taken out since."""
    return edit.remove(edit.add(before)) is None


def install(
    changes: Sequence[Change], *, home: Path, agent: str, url: str, token: str, record: Installed | None = None
) -> None:
    """Write them, after the record of it. `token` is the name of the one that is in them.

    Files of an earlier record that are not among them stay in it. Raises SettingsError where a file is no longer as it
    was planned.
    """
    for change in changes:
        _check(change)
    paths = {change.path for change in changes}
    others = [known for known in record.files if known.path not in paths] if record is not None else []
    _write_record(home, Installed(agent=agent, url=url, token=token, files=(*others, *changes)))
    for change in changes:
        assert change.then is not None
        mode = change.mode if change.mode is not None else 0o666 & ~_umask()
        mode = PRIVATE if change.private else mode
        _write(change.path, change.then, mode=mode | (mode & 0o444) >> 2 if change.executable else mode)


def uninstall(changes: Sequence[Change]) -> None:
    """Write the files without us. What is known about them is forgotten with `remove_record`, once all is done.

    Raises SettingsError where a file is no longer as it was planned.
    """
    for change in changes:
        _check(change)
    for change in changes:
        if change.then is not None:
            if change.now != change.then:
                _write(change.path, change.then, mode=change.mode if change.mode is not None else PRIVATE)
            continue
        change.path.resolve().unlink(missing_ok=True)
        for folder in reversed(change.folders):
            with suppress(OSError):  # somebody else keeps something there by now
                folder.rmdir()


def remove_record(home: Path, agent: str) -> None:
    file = _record_file(home, agent)
    file.unlink(missing_ok=True)
    with suppress(OSError):
        file.parent.rmdir()


def elsewhere(change: Change) -> str | None:
    """What people should know before a secret is written there: the file lies elsewhere, or others will see it."""
    if change.real is None or change.now == change.then:
        return None
    link, tree = _link_in(change.path), _work_tree(change.real)
    said = []
    if link == change.path:
        said.append(f"{change.path} is a link, so the token is written to {change.real}")
    elif link is not None:
        said.append(f"{link} is a link, so the token is written to {change.real}")
    if tree is not None:
        begin = "which lies" if said else f"{change.path} lies"
        said.append(f"{begin} in the git work tree {tree}: whoever gets its commits gets the token")
    return ", ".join(said) or None


def _link_in(path: Path) -> Path | None:
    """The innermost part of a path that is a link. Those of the system, such as /tmp, are left out."""
    path = path.absolute()
    return next((part for part in (path, *path.parents) if len(part.parts) > 2 and part.is_symlink()), None)


def _work_tree(file: Path) -> Path | None:
    return next((folder for folder in file.parents if (folder / ".git").exists()), None)


def diff(change: Change) -> str:
    """What happens to the file, for people to read: nothing hidden in it, and no secrets."""
    before, after = (_lines(content) for content in (change.now, change.then))
    old, new = (os.devnull if content is None else str(change.path) for content in (change.now, change.then))
    lines = difflib.unified_diff(before, after, old, new, n=CONTEXT, lineterm="")
    return "\n".join(inert(_without_secrets(line), keep="\t") for line in lines)


def _lines(content: bytes | None) -> list[str]:
    return [] if content is None else re.split(r"\r?\n", content.decode(errors="replace").removesuffix("\n"))


def _without_secrets(line: str) -> str:
    for secret in _SECRETS:
        line = secret.sub("…", line)
    return line


# Files ------------------------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[bytes | None, int | None]:
    """What it holds and its mode. A link is followed: the file behind it is the one that is meant."""
    try:
        with path.open("rb") as handle:
            return handle.read(), stat.S_IMODE(os.fstat(handle.fileno()).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None, None


def _check(change: Change) -> None:
    now, _ = _read(change.path)
    if now != change.now or change.real not in (None, change.path.resolve()):
        raise SettingsError(f"{change.path} was changed by somebody else meanwhile, nothing was written; run it again")


def _missing(folder: Path) -> list[Path]:
    """The folders that are not there yet, the outermost first."""
    return [place for place in (*reversed(folder.parents), folder) if not place.exists()]


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """The file is there whole, or as it was; for its owner alone until it has its name."""
    real = path.resolve()
    real.parent.mkdir(parents=True, exist_ok=True)
    fresh = real.with_name(f".{real.name}.handraise-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fchmod(handle.fileno(), mode)
            os.fsync(handle.fileno())
        fresh.replace(real)
    finally:
        fresh.unlink(missing_ok=True)
    folder = os.open(real.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# The record -------------------------------------------------------------------------------------------------


def _record_file(home: Path, agent: str) -> Path:
    return home / "installed" / f"{agent}.json"


def _write_record(home: Path, record: Installed) -> None:
    told = {
        "agent": record.agent,
        "url": record.url,
        "token": record.token,
        "files": [_change_fields(change) for change in record.files],
    }
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(_record_file(home, record.agent), json.dumps(told, indent=1).encode() + b"\n", mode=PRIVATE)


def _change_fields(change: Change) -> dict[str, Any]:
    return {
        "path": str(change.path),
        "before": _packed(change.before),
        "then": _packed(change.then),
        "mode": change.mode,
        "private": change.private,
        "folders": [str(folder) for folder in change.folders],
    }


def _change_from(told: dict[str, Any]) -> Change:
    return Change(
        path=Path(told["path"]),
        now=None,
        then=_unpacked(told["then"]),
        before=_unpacked(told["before"]),
        mode=told["mode"],
        private=told["private"],
        folders=tuple(map(Path, told["folders"])),
    )


def _packed(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _unpacked(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
