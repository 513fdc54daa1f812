"""Which version of OpenCode was driven with this release, and how it asks."""

from __future__ import annotations

from handraise.agents._versions import Known

__all__ = ["OPENCODE", "VERSIONS"]

OPENCODE = Known(
    name="opencode",
    title="OpenCode",
    version="1.18.33",
    package="opencode-ai",
    questions="its own, over its HTTP API",
    permissions="its own, over its HTTP API",
    attached="a server that runs (`handraise sessions attach`), a plain terminal (`handraise install`)",
    mcp=True,
)
VERSIONS = (OPENCODE,)
