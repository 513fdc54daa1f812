"""Agents that speak ACP, as clients by HTTP see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from handraise.wire.fields import Count, Doc


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpServer:
    serverId: str
    agent: str
    createdAtMs: Annotated[Count, Doc("Milliseconds since 1970.")]
    session: Annotated[str, Doc("The desk's session that its asks belong to.")]
    state: Literal["starting", "running", "ended"]
    exitCode: Annotated[int | None, Doc("Negative for the signal that ended it.")]
    lastEventId: Annotated[Count, Doc("The number of the newest message.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpServers:
    servers: tuple[AcpServer, ...]
