"""The session routes of sandbox-agent (S3)."""

from __future__ import annotations

from starlette.routing import Route

from handraise.broker import Broker

__all__ = ["routes"]


def routes(broker: Broker) -> list[Route]:
    return []
