"""What a server of OpenCode tells on its stream, read once: nobody else looks at an event's type. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from handraise.agents.opencode.translate import ASKED, SETTLED, Kind

__all__ = [
    "Asked",
    "Connected",
    "Deleted",
    "Disposed",
    "Event",
    "Failed",
    "News",
    "Part",
    "Related",
    "Said",
    "Settled",
    "Status",
    "read",
]


@dataclass(frozen=True, slots=True)
class Connected:
    """The stream begins. What is open already stands in the lists."""


@dataclass(frozen=True, slots=True)
class Disposed:
    """OpenCode let go of a folder, with all that waited there."""

    folder: Any


@dataclass(frozen=True, slots=True)
class Related:
    """A session, and the one that it is a subagent of."""

    parent: Any


@dataclass(frozen=True, slots=True)
class Deleted:
    """A session is gone."""


@dataclass(frozen=True, slots=True)
class Asked:
    kind: Kind
    generation: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A request has its answer, whoever gave it."""

    request: str
    generation: int


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a message: text, or the call of a tool, as it is by now."""

    part: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """A message, without its parts."""

    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Status:
    is_idle: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """Something of a turn went wrong; perhaps it goes on all the same."""

    error: Any


News: TypeAlias = Connected | Disposed | Related | Deleted | Asked | Settled | Part | Said | Status | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    type: str
    properties: dict[str, Any]
    directory: str | None = None
    session: str | None = None
    news: News | None = None  # None: nothing that anybody here needs

    def as_json(self) -> dict[str, Any]:
        return {"type": self.type, "properties": self.properties}

    @property
    def request(self) -> str | None:
        """OpenCode's id of the request that it is about."""
        id = self.properties.get("id" if isinstance(self.news, Asked) else "requestID")
        return id if isinstance(id, str) else None

    @property
    def is_piece(self) -> bool:
        """Whether it is a few more words of what is still being said."""
        if not isinstance(self.news, Part):
            return self.type.endswith(".delta")
        time = self.news.part.get("time")
        return self.news.part.get("type") in ("text", "reasoning") and not (isinstance(time, dict) and "end" in time)


def read(told: Mapping[str, Any], *, directory: str | None) -> Event | None:
    """An event of one directory; without that, of any, which is named beside it. None for what is no event."""
    if directory is None:
        where, payload = told.get("directory"), told.get("payload")
        directory, told = where if isinstance(where, str) else None, payload if isinstance(payload, dict) else {}
    type, properties = told.get("type"), told.get("properties")
    if not isinstance(type, str) or not isinstance(properties, dict):
        return None  # such as `sync`, which repeats what was told
    news = _news(type, properties)
    return Event(type=type, properties=properties, directory=directory, session=_session(properties), news=news)


def _news(type: str, properties: Mapping[str, Any]) -> News | None:
    info, part, status = properties.get("info"), properties.get("part"), properties.get("status")
    match type:
        case "server.connected":
            return Connected()
        case "server.instance.disposed":
            return Disposed(properties.get("directory"))
        case "session.created" | "session.updated" if isinstance(info, dict):
            return Related(info.get("parentID"))
        case "session.deleted":
            return Deleted()
        case "session.idle":
            return Status(is_idle=True)
        case "session.status":
            return Status(is_idle=isinstance(status, dict) and status.get("type") == "idle")
        case "session.error":
            return Failed(properties.get("error"))
        case "message.updated" if isinstance(info, dict):
            return Said(info)
        case "message.part.updated" if isinstance(part, dict):
            return Part(part)
        case _ if type in ASKED:
            return Asked(*ASKED[type])
        case _ if type in SETTLED:
            return Settled(str(properties.get("requestID")), 2 if ".v2." in type else 1)
    return None


def _session(properties: Mapping[str, Any]) -> str | None:
    """Events name their session here or there."""
    for place in (properties, properties.get("part"), properties.get("info")):
        if isinstance(place, dict) and isinstance(place.get("sessionID"), str):
            session: str = place["sessionID"]
            return session
    return None
