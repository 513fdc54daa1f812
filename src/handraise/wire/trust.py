"""What the files of a project would do, and which of it a person trusts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from handraise.wire.fields import Doc, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBody:
    """A part of a project as a person saw it."""

    name: Annotated[Annotated[str, Limits(max_length=20_000)], Doc("As `GET /v1/trust` told it.")]
    fingerprint: Annotated[
        Annotated[str, Limits(max_length=200)], Doc("As `GET /v1/trust` told it: what the person saw.")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustBody:
    """What `POST /v1/trust` takes."""

    cwd: Annotated[
        Annotated[str, Limits(min_length=1, max_length=20_000)],
        Doc("A folder of the project, on the machine of the desk."),
    ]
    parts: Annotated[tuple[PartBody, ...], Limits(min_length=1, max_length=1_000)]

    EXAMPLE: ClassVar[Any] = {"cwd": "/home/ana/shop", "parts": [{"name": "rules", "fingerprint": "9f86d081884c7d65"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    name: Annotated[str, Doc("What it is called in the project, such as `rules`.")]
    kind: Literal["agents", "policy", "rules", "workflow"]
    project: Annotated[str, Doc("The folder of the project.")]
    state: Annotated[
        Literal["trusted", "changed", "new"],
        Doc("`changed` is one that was trusted before. Only what is `trusted` is used."),
    ]
    lines: Annotated[tuple[str, ...], Doc("What it would do; of a changed one, what changed.")]
    problems: Annotated[tuple[str, ...], Doc("Why nobody can trust it, and what helps.")]
    owners: Annotated[tuple[str, ...], Doc("Files of other users, who can change them.")]
    fingerprint: Annotated[str | None, Doc("Stands for what is shown. Null if nobody can trust it.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedProject:
    project: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    cwd: str | None
    parts: tuple[Part, ...]
    problems: Annotated[tuple[str, ...], Doc("Files of workflows that cannot be read.")]
    projects: Annotated[tuple[TrustedProject, ...], Doc("All that are trusted on this machine.")]
