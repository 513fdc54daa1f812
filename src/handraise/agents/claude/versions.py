"""Which version of Claude Code was driven with this release, and how it asks."""

from __future__ import annotations

from handraise.agents._versions import Known

__all__ = ["CLAUDE", "VERSIONS"]

CLAUDE = Known(
    name="claude",
    title="Claude Code",
    version="2.1.325",
    package="claude-agent-sdk",
    package_version="0.2.182",
    questions="its own, over the control protocol",
    permissions="its own, over the control protocol; plans too",
    attached="its terminal (`handraise install`)",
    mcp=True,
)
VERSIONS = (CLAUDE,)
