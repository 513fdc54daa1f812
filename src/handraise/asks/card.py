"""The card: what a person must see of an ask before deciding, computed once, as data. Places only lay it out.

A card refers to the texts of its ask and copies none of them. What an agent wrote is as it wrote it: a place makes it
inert when it shows it. Every part, every risk and the doubt are shown in every place, or that place says that something
is missing and where all of it can be seen.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from urllib.parse import urlsplit

from handraise.asks import RECOMMENDED, Ask, Judgement, Option, Permission
from handraise.asks.changes import LONGEST_SPLIT, besides_change, named_files
from handraise.text.inert import has_hidden, inert
from handraise.text.words import Words

__all__ = [
    "IN_NOTIFICATION",
    "MOST_DESCRIPTION",
    "MOST_HEADER",
    "MOST_LABEL",
    "MOST_NAME",
    "MOST_PREVIEW",
    "MOST_QUESTION",
    "Card",
    "Heading",
    "Part",
    "Silence",
    "badges_of",
    "cut",
    "due_of",
    "is_longer",
    "names",
    "parts_of",
    "picked_by_silence",
    "shown_paths",
    "silence_of",
    "to_card",
    "whole_of",
]

# How much of each text is shown, in characters. Limits of display, not of what is accepted.
MOST_NAME = MOST_HEADER = 60
MOST_LABEL = 120
MOST_DESCRIPTION = 500
MOST_QUESTION = 4_000
MOST_PREVIEW = 20_000
IN_NOTIFICATION = 300  # characters of a command that a browser's notification shows; of anything else it shows a title
MOST_FOLDERS = 20  # of a path that is compared with the names in a diff

# `plan` is prose; `commands` are those of one line; `arguments` are what no other part shows of the tool's input;
# `approved` is what an agent takes back along with its plan.
PartName = Literal["plan", "command", "commands", "paths", "url", "diff", "arguments", "approved"]

_FETCHES = frozenset({"fetch", "webfetch", "web_fetch", "read_web_page"})
_READS = frozenset(
    "read read_file read_many_files view list ls list_directory glob grep search".split()  # noqa: SIM905
)
_LIMITS = {"agent": MOST_NAME, "tool": MOST_NAME, "path": MOST_LABEL, "host": MOST_LABEL}
_ADDRESSED = re.compile(r"[\w.-]+(:\d+)?|\[[\da-fA-F:.]+\](:\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Heading:
    """A sentence of the catalogue that says what an agent wants. The texts that it takes are the agent's own."""

    key: str
    texts: Mapping[str, str]
    count: int | None = None

    def say(self, t: Words, *, show: Callable[[str, int], str]) -> str:
        """`show` makes a text of the agent inert, on one line, and at most so many characters long."""
        shown = {name: show(text, _LIMITS[name]) for name, text in self.texts.items()}
        return t(self.key, **shown) if self.count is None else t(self.key, **shown, count=self.count)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of what a permission is about: a text, several, or arguments."""

    name: PartName
    value: str | tuple[str, ...] | Mapping[str, Any]

    @property
    def texts(self) -> tuple[str, ...]:
        """As it is read; arguments as JSON."""
        if isinstance(self.value, Mapping):
            return (json.dumps(self.value, indent=2, ensure_ascii=False, default=str),)
        return (self.value,) if isinstance(self.value, str) else self.value

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


@dataclass(frozen=True, slots=True)
class Silence:
    """What happens if nobody answers: `deadline.pick`, `deadline.reject` or `deadline.deny` of the catalogue."""

    at: datetime
    does: Literal["pick", "reject", "deny"]
    picks: tuple[tuple[str, ...], ...] = ()  # the labels of what is picked, for each question

    def say(self, t: Words, *, time: str, choice: str) -> str:
        return t(f"deadline.{self.does}", time=time, choice=choice)

    def choice(self, *, show: Callable[[str], str]) -> str:
        """What is picked, in one line. `show` makes a label of the agent inert."""
        return "; ".join(", ".join(map(show, labels)) for labels in self.picks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """All that a place needs to show an ask. Of questions the ask itself says the rest."""

    ask: Ask
    heading: Heading
    parts: tuple[Part, ...] = ()  # what it is about, in the order in which it is read
    cwd: str | None = None
    host: str | None = None  # of its address, where programs agree which host that names
    tool: str = ""
    claim: str = ""  # what the agent says that it does, where no part says the same. It may lie, so it comes second
    lacks_diff: bool = False  # files are to be changed, and the agent does not show how
    risks: tuple[str, ...] = ()
    doubt: str | None = None
    ways: tuple[tuple[str, str | None], ...] = ()  # each reply that allows it, with its scope, the narrowest first
    only_at_desk: str | None = None  # why a link, a notification or a shared place may not allow it
    silence: Silence | None = None

    @property
    def needs_second_press(self) -> bool:
        """Whether one press, one key or one click is not enough to allow it."""
        return bool(self.risks)

    @property
    def fits_notification(self) -> bool:
        """Whether a browser's notification, which shows a command and nothing else, may allow it."""
        if self.only_at_desk is not None or {part.name for part in self.parts} - {"commands"} != {"command"}:
            return False
        command = self.parts[0].text
        return len(command) <= IN_NOTIFICATION and len(inert(command)) <= IN_NOTIFICATION

    def is_hiding(self, *, within: int | None = None) -> bool:
        """Whether a text of it has characters that nobody sees, in the first so many characters that a place shows."""
        permission = self.ask.permission
        said = (self.cwd or "", self.tool, permission.summary) if permission is not None else ()
        texts = (*said, *(text for part in self.parts for text in part.texts))
        return any(has_hidden(text[:within]) for text in texts)

    @property
    def whole(self) -> str:
        """All that it is about in one text. The commands of a line are in the line."""
        return "\n".join(part.text for part in self.parts if part.name != "commands")

    def named(self, name: PartName) -> Part | None:
        return next((part for part in self.parts if part.name == name), None)

    def warnings(self, t: Words) -> list[str]:
        """What to think twice about: each risk, and the doubt."""
        told = [t("perm.risky", effect=_effect(t, risk)) for risk in self.risks]
        return told if self.doubt is None else [*told, t("perm.doubt", why=inert(self.doubt, keep=""))]


def to_card(ask: Ask, judged: Judgement | None = None, *, now: datetime | None = None) -> Card:
    """The card of an ask. `judged` is needed only for one that no desk has seen; a desk tells what it found with it.

    `now` is the time at which the ask was told, for a place that counts from then.
    """
    permission, silence = ask.permission, silence_of(ask, now=now)
    if permission is None:
        return Card(ask=ask, heading=Heading("link.asks", {"agent": ask.origin.agent}), silence=silence)
    host = _host(permission.url) if permission.url else None
    judged = judged or Judgement(ask.risks or (), ask.commands, ask.doubt, ask.only_at_desk)
    parts = parts_of(permission, commands=judged.commands)
    return Card(
        ask=ask,
        heading=_heading(permission, agent=ask.origin.agent, host=host),
        parts=parts,
        cwd=permission.cwd or ask.origin.cwd,
        host=host,
        tool=permission.tool,
        claim="" if _says(parts, permission.summary) else permission.summary,
        lacks_diff=permission.diff is None and _changes_files(permission),
        risks=judged.risks,
        doubt=judged.doubt,
        ways=permission.ways,
        only_at_desk=judged.only_at_desk,
        silence=silence,
    )


def _effect(t: Words, risk: str) -> str:
    with suppress(KeyError):
        return t(f"risk.{risk}")
    return inert(risk, keep="")  # one that a newer desk knows


def _says(parts: Sequence[Part], summary: str) -> bool:
    """Whether a part says the same in other blanks."""
    wanted = summary.split()
    texts = (text for part in parts if part.name in ("plan", "command", "paths", "url") for text in part.texts)
    return any(len(text) <= LONGEST_SPLIT and text.split() == wanted for text in texts)


# What it is about -------------------------------------------------------------------------------------------


def parts_of(permission: Permission, *, commands: tuple[str, ...] = ()) -> tuple[Part, ...]:
    """What a permission is about, in the order in which it is read."""
    if permission.is_plan:
        given = (permission.input or {}).get("plan")
        plan = given if isinstance(given, str) else permission.summary
        found = [
            Part("plan", plan),
            Part("arguments", _arguments(permission, shown=(plan,))),
            Part("approved", _approved(permission)),
        ]
    else:
        found = [
            Part("command", permission.command or ""),
            Part("commands", commands),
            Part("paths", shown_paths(permission)),
            Part("url", permission.url or ""),
            Part("diff", permission.diff or ""),
            Part("arguments", _arguments(permission)),
        ]
    return tuple(part for part in found if part.value)


def _arguments(permission: Permission, *, shown: Sequence[str] = ()) -> Mapping[str, Any]:
    """The tool's arguments that no other part shows. Of an edit's, those that its diff does not show."""
    if permission.diff is not None and permission.kind != "plan":
        return besides_change(permission)
    told = {*shown, *permission.paths, permission.command, permission.url, permission.cwd, permission.summary} | {""}
    given = (permission.input or {}).items()
    return {key: value for key, value in given if not isinstance(value, str) or value not in told}


def _approved(permission: Permission) -> Mapping[str, Any]:
    """What goes back to the agent with its plan, beside the plan."""
    more = (permission.extra or {}).get("input")
    if not isinstance(more, Mapping):
        return {}
    return {key: value for key, value in more.items() if key != "planFilePath"}


def shown_paths(permission: Permission) -> tuple[str, ...]:
    """Each file as the agent names it, and where it really lies if a link leads elsewhere."""
    real = permission.resolved or ()
    if not permission.paths or len(real) != len(permission.paths):
        return permission.paths
    folders = [folder for folder in (permission.cwd, permission.resolved_cwd) if folder]
    return tuple(
        path if _is_there(path, leads_to, folders) else f"{path} → {leads_to}"
        for path, leads_to in zip(permission.paths, real, strict=True)
    )


def _is_there(path: str, real: str, folders: Sequence[str]) -> bool:
    """Whether it says where it lies. The working folder itself may be reached by a link."""
    found = {posixpath.normpath(posixpath.join(folder, path)) for folder in folders or ["/"]}
    if len(folders) == 2 and (beneath := posixpath.relpath(path, folders[0])) and posixpath.isabs(path):
        found.add(posixpath.normpath(posixpath.join(folders[1], beneath)))
    return real in found


def whole_of(permission: Permission) -> str:
    """All that it is about in one text."""
    return "\n".join(part.text for part in parts_of(permission))


def is_longer(permission: Permission, longest: int) -> bool:
    """Whether a place that shows so many characters cannot show all of it."""
    whole = whole_of(permission)
    return len(whole) > longest or len(inert(whole)) > longest


# What the agent wants, in a sentence ------------------------------------------------------------------------


def _heading(permission: Permission, *, agent: str, host: str | None) -> Heading:
    who, tool, paths = {"agent": agent}, permission.tool.casefold(), permission.paths
    if permission.is_plan:
        return Heading("perm.title.plan", who)
    if permission.command is not None:
        return Heading("perm.title.command", who)
    if _changes_files(permission):
        return Heading("perm.title.edit", who, _count_of_files(permission))
    if paths and tool in _READS:
        texts = {**who, "path": paths[0]}
        return Heading("perm.title.readMore", texts, len(paths) - 1) if paths[1:] else Heading("perm.title.read", texts)
    if permission.url and tool in _FETCHES:
        return Heading("perm.title.fetch", {**who, "host": host or permission.url})
    return Heading("perm.title.tool", {**who, "tool": permission.tool})


def _changes_files(permission: Permission) -> bool:
    """Whether it is about changing files. Agents name their tools as they like: edit, Write, apply_patch."""
    if permission.command is not None or permission.is_plan:
        return False
    named = any(word in permission.tool.casefold() for word in ("edit", "write", "patch"))
    return permission.diff is not None or (named and bool(permission.paths))


def _count_of_files(permission: Permission) -> int:
    """How many files it is about, by what the agent says and by what its diff changes."""
    diff = permission.diff or ""
    named = named_files(diff) if len(diff) <= LONGEST_SPLIT else set()
    unshown = [path for path in set(permission.paths) if not any(end in named for end in _ends(path))]
    return max(1, len(named) + len(unshown))


def _ends(path: str) -> Iterator[str]:
    """A path, and what is left of it without its first folders: a diff may name a file from another folder."""
    yield path
    *folders, end = path.rsplit("/", MOST_FOLDERS)
    yield end
    for folder in reversed(folders[1:]):
        end = f"{folder}/{end}"
        yield end


def _host(url: str) -> str | None:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname and "\\" not in url and _ADDRESSED.fullmatch(parts.netloc.rpartition("@")[2]):
            return parts.hostname
    return None


# Questions and time -----------------------------------------------------------------------------------------


def cut(text: str, limit: int, *, t: Words, keep: str = "") -> str:
    """Inert, one line unless told otherwise, and no longer than its limit, with a mark where it was cut."""
    more = len(text) - limit
    return inert(text[:limit], keep=keep) + (t("terminal.cut", count=more) if more > 0 else "")


def names(options: Sequence[Option], *, t: Words) -> list[str]:
    """The labels as they are shown. Those that look the same get an ordinal."""
    shown: dict[str, None] = {}
    ordinals: dict[str, int] = {}
    for option in options:
        name = label = cut(option.label, MOST_LABEL, t=t)
        while name in shown:
            ordinals[label] = ordinal = ordinals.get(label, 1) + 1
            name = f"{label} #{ordinal}"
        shown[name] = None
    return list(shown)


def badges_of(option: Option, *, is_default: bool) -> list[str]:
    """Which ones an option has: `question.…` of the catalogue. A label that says itself that it is recommended needs
    no badge for it.
    """
    says_so = option.label.rstrip().lower().endswith(RECOMMENDED)
    return [*(["recommended"] if option.recommended and not says_so else []), *(["default"] if is_default else [])]


def picked_by_silence(ask: Ask, index: int) -> tuple[str, ...]:
    """The values that silence picks for a question."""
    fallback = ask.fallback
    return () if fallback is None or fallback.rejected or not fallback.answers else fallback.answers[index]


def due_of(ask: Ask, now: datetime | None) -> datetime | None:
    """The deadline. Clocks differ: on the clock of `now`, what the desk says that remains counts where it says so."""
    if now is not None and ask.remaining is not None:
        return now + timedelta(seconds=ask.remaining)
    return ask.deadline if now is None or ask.deadline is None else ask.deadline.astimezone(now.tzinfo)


def silence_of(ask: Ask, *, now: datetime | None = None) -> Silence | None:
    """`now` is when the ask was told, on the clock of the place that shows it."""
    due, fallback = due_of(ask, now), ask.fallback
    if due is None or fallback is None:
        return None
    if fallback.rejected or ask.permission is not None:
        return Silence(due, "reject" if ask.permission is None else "deny")
    chosen = zip(ask.questions, fallback.answers or (), strict=False)
    return Silence(due, "pick", tuple(tuple(map(question.label_of, values)) for question, values in chosen))
