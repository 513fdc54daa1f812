"""Which version of Codex was driven with this release, and how it asks."""

from __future__ import annotations

from handraise.agents._versions import Known

__all__ = ["CODEX", "VERSIONS"]

CODEX = Known(
    name="codex",
    title="Codex",
    version="0.166.0",
    package="@openai/codex",
    questions="a tool of ours, and its own in plan mode, over `codex app-server`",
    permissions="its own, over `codex app-server`",
    attached="its terminal, by the daemon that it starts (`handraise sessions attach`)",
    mcp=True,
)
VERSIONS = (CODEX,)
