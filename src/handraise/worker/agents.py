"""The agents of this machine, by name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from handraise.agents import Agent, AgentSettings, Attachable, Capabilities
from handraise.agents._versions import driven_version
from handraise.errors import HandraiseError
from handraise.plugins import load, names

__all__ = ["Agents"]

log = logging.getLogger(__name__)

NOT_SHOWN = {"scripted"}  # agents for tests and demos


class Agents:
    """The agents of this machine by name, each made when it is first wanted."""

    def __init__(self, settings: Callable[[str], AgentSettings]) -> None:
        self._settings = settings
        self._made: dict[str, Agent] = {}

    def __getitem__(self, name: str) -> Agent:
        """Raises PluginNotFound."""
        if name not in self._made:
            self._made[name] = load("agents", name)(self._settings(name))
        return self._made[name]

    def settings(self, name: str) -> AgentSettings:
        """How the settings have it, whether or not there is an adapter of that name."""
        return self._settings(name)

    def put(self, agent: Agent, *, name: str | None = None) -> None:
        """Use this one for its name, or for another."""
        self._made[name or agent.name] = agent

    def attachable(self) -> list[Attachable]:
        """Those that people's own terminals may call us from."""
        usable: list[object] = [self._usable(name) for name in self.names()]
        return [agent for agent in usable if isinstance(agent, Attachable)]

    def _usable(self, name: str) -> Agent | None:
        """None where somebody's adapter cannot be loaded: that must hurt nobody else."""
        try:
            return self[name]
        except Exception as broken:
            log.error(
                "the adapter of agent %s cannot be loaded: %s",
                name,
                broken,
                exc_info=not isinstance(broken, HandraiseError),
            )
            return None

    def names(self) -> list[str]:
        return [name for name in names("agents") if name not in NOT_SHOWN]

    async def look(self, *, probe: bool = False) -> list[Capabilities]:
        return list(await asyncio.gather(*(self._look(name, probe=probe) for name in self.names())))

    async def _look(self, name: str, *, probe: bool) -> Capabilities:
        agent = self._usable(name)
        if agent is None:
            problem = f"the adapter of {name} cannot be loaded; the log of the desk says why"
            return Capabilities(agent=name, installed=False, problem=problem)
        try:
            found = await agent.look(probe=probe)
            return replace(
                found, driven=driven_version(getattr(agent, "versions", ()), agent=name, program=found.program)
            )
        except HandraiseError as failed:
            return Capabilities(agent=name, installed=False, problem=str(failed))

    async def close(self) -> None:
        for agent in self._made.values():
            await agent.close()
