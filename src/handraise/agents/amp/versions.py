"""Which version of Amp was driven with this release, and how it asks."""

from __future__ import annotations

from handraise.agents._versions import Known

__all__ = ["AMP", "VERSIONS"]

AMP = Known(
    name="amp",
    title="Amp",
    version="0.0.1790142911",
    package="@ampcode/cli",
    package_version="0.0.1790142911-g7618fb",
    questions="the tool of our MCP server",
    permissions="the delegate of its rules",
    attached="its terminal (`handraise install`)",
    note="its turns run at its own server, so they were driven with a stand-in; permissions and tools with the program",
)
VERSIONS = (AMP,)
