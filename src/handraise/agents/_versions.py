"""Which version of each agent was really run with this release, and what it did. Nothing here is looked up anywhere.

The tests take the versions that they run from here, the reference page is written from it, and `handraise agents` says
where what is installed differs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

__all__ = ["AMP", "CLAUDE", "CODEX", "KNOWN", "OPENCODE", "QWEN", "Known", "compared", "driven_version"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One program at one version, and how it asks."""

    name: str  # of the program
    adapter: str  # the agent of ours that runs it
    title: str
    version: str | None  # None: it is our own and has none
    seen: Literal["driven", "replayed", "read"] = "driven"
    package: str | None = None  # what brings it
    package_version: str | None = None  # where that counts otherwise than the program
    questions: str = ""  # how they reach the desk; empty: not at all
    permissions: str = ""
    attached: str = ""  # the same for a person's own, which we did not start
    mcp: bool = False  # it was driven as a client of our MCP server too
    note: str = ""


OPENCODE = Known(
    name="opencode",
    adapter="opencode",
    title="OpenCode",
    version="1.18.33",
    package="opencode-ai",
    questions="its own, over its HTTP API",
    permissions="its own, over its HTTP API",
    attached="a server that runs (`handraise attach`), a plain terminal (`handraise install`)",
    mcp=True,
)
CLAUDE = Known(
    name="claude",
    adapter="claude",
    title="Claude Code",
    version="2.1.325",
    package="claude-agent-sdk",
    package_version="0.2.182",
    questions="its own, over the control protocol",
    permissions="its own, over the control protocol; plans too",
    attached="its terminal (`handraise install`)",
    mcp=True,
)
CODEX = Known(
    name="codex",
    adapter="codex",
    title="Codex",
    version="0.166.0",
    package="@openai/codex",
    questions="a tool of ours, and its own in plan mode, over `codex app-server`",
    permissions="its own, over `codex app-server`",
    attached="its terminal, by the daemon that it starts (`handraise attach`)",
    mcp=True,
)
QWEN = Known(
    name="qwen",
    adapter="acp",
    title="Qwen Code",
    version="0.15.10",
    package="@qwen-code/qwen-code",
    questions="inside of a permission, over ACP",
    permissions="over ACP",
    note="the last version that runs on Node 20",
)
AMP = Known(
    name="amp",
    adapter="amp",
    title="Amp",
    version="0.0.1790142911",
    package="@ampcode/cli",
    package_version="0.0.1790142911-g7618fb",
    questions="the tool of our MCP server",
    permissions="the delegate of its rules",
    attached="its terminal (`handraise install`)",
    note="its turns run at its own server, so they were driven with a stand-in; permissions and tools with the program",
)

KNOWN: tuple[Known, ...] = (
    OPENCODE,
    CLAUDE,
    CODEX,
    QWEN,
    AMP,
    Known(
        name="handraise.testing.acp_agent",
        adapter="acp",
        title="our own test agent",
        version=None,
        questions="forms, addresses and the question extension, over ACP",
        permissions="over ACP",
        note="written with the protocol's official package",
    ),
    Known(
        name="claude-agent-acp",
        adapter="acp",
        title="`claude-agent-acp`",
        version="0.99.1",
        seen="replayed",
        questions="forms, over ACP",
        permissions="over ACP",
    ),
    Known(
        name="codex-acp",
        adapter="acp",
        title="`codex-acp`",
        version="2.6.0",
        seen="read",
        questions="forms, over ACP",
        permissions="over ACP",
    ),
    Known(
        name="gemini",
        adapter="acp",
        title="Gemini CLI",
        version="0.61.0",
        seen="read",
        permissions="over ACP",
        note="it takes its question tool away",
    ),
    Known(
        name="copilot",
        adapter="acp",
        title="Copilot CLI",
        version="1.0.102",
        seen="read",
        permissions="over ACP",
        note="it takes its question tool away",
    ),
)

_DRIVEN: Mapping[str, Known] = {known.name: known for known in KNOWN if known.seen == "driven"}


def driven_version(agent: str, *, program: str | None = None) -> str | None:
    """The version of this agent that was driven. Of one that runs any program, that of `program`, if it was driven."""
    known = _DRIVEN.get(agent)
    if known is None and program is not None:
        known = _DRIVEN.get(PurePath(program).name)
    return known.version if known is not None and known.adapter == agent else None


def compared(version: str | None, driven: str | None) -> Literal["newer", "older"] | None:
    """How an installed version stands to the driven one; None where they are the same or cannot be compared."""
    here, there = _numbers(version), _numbers(driven)
    if not here or not there or here == there:
        return None
    return "newer" if here > there else "older"


def _numbers(version: str | None) -> tuple[int, ...]:
    """1.2 and 1.2.0 are the same. What follows the numbers does not count."""
    found = re.match(r"\d{1,12}(?:\.\d{1,12})*", version or "")
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
