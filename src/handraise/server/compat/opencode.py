"""OpenCode's question and permission routes (S5), so that a client written for it answers for every agent."""

from __future__ import annotations

from starlette.routing import Route

from handraise.broker import Broker

__all__ = ["routes"]


def routes(broker: Broker) -> list[Route]:
    return []
