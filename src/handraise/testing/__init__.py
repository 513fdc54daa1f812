"""Everything to test a workflow, an agent, a channel, a policy or a store with, in milliseconds and without a network.

Workflows: `run_workflow`, `a_run`. Fakes: `Scripted` (an agent), `ScriptedPerson`, `ScriptedModel` (for real agent
programs), `FakeClock`, `an_ask`, `a_permission`. Contract suites: `check_agent`, `check_channel`, `check_policy`,
`check_store`. Pytest finds the fixtures in `fixtures` by itself, in every test run of whoever installed handraise; so
names are imported here only when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handraise.agents.scripted import Scripted
    from handraise.testing.agents import AgentDriver, Late, Stage, check_agent
    from handraise.testing.cases import Report
    from handraise.testing.channels import ChannelDriver, check_channel
    from handraise.testing.clock import FakeClock
    from handraise.testing.model import ScriptedModel, call, repeat
    from handraise.testing.person import ScriptedPerson
    from handraise.testing.policies import check_policy
    from handraise.testing.runs import Run, a_run, run_workflow
    from handraise.testing.samples import a_permission, an_ask
    from handraise.testing.stores import check_store

__all__ = [
    "AgentDriver",
    "ChannelDriver",
    "FakeClock",
    "Late",
    "Report",
    "Run",
    "Scripted",
    "ScriptedModel",
    "ScriptedPerson",
    "Stage",
    "a_permission",
    "a_run",
    "an_ask",
    "call",
    "check_agent",
    "check_channel",
    "check_policy",
    "check_store",
    "repeat",
    "run_workflow",
]

_HOMES = {
    "AgentDriver": "handraise.testing.agents",
    "ChannelDriver": "handraise.testing.channels",
    "FakeClock": "handraise.testing.clock",
    "Late": "handraise.testing.agents",
    "Report": "handraise.testing.cases",
    "Run": "handraise.testing.runs",
    "Scripted": "handraise.agents.scripted",
    "ScriptedModel": "handraise.testing.model",
    "ScriptedPerson": "handraise.testing.person",
    "Stage": "handraise.testing.agents",
    "a_permission": "handraise.testing.samples",
    "a_run": "handraise.testing.runs",
    "an_ask": "handraise.testing.samples",
    "call": "handraise.testing.model",
    "check_agent": "handraise.testing.agents",
    "check_channel": "handraise.testing.channels",
    "check_policy": "handraise.testing.policies",
    "check_store": "handraise.testing.stores",
    "repeat": "handraise.testing.model",
    "run_workflow": "handraise.testing.runs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'handraise.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
