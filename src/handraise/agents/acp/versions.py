"""Which programs that speak ACP were driven with this release, replayed or read about, and how they ask."""

from __future__ import annotations

from handraise.agents._versions import Known

__all__ = ["QWEN", "VERSIONS"]

QWEN = Known(
    name="qwen",
    title="Qwen Code",
    version="0.15.10",
    package="@qwen-code/qwen-code",
    questions="inside of a permission, over ACP",
    permissions="over ACP",
    note="the last version that runs on Node 20",
)
VERSIONS = (
    QWEN,
    Known(
        name="handraise.testing.acp_agent",
        title="our own test agent",
        version=None,
        questions="forms, addresses and the question extension, over ACP",
        permissions="over ACP",
        note="written with the protocol's official package",
    ),
    Known(
        name="claude-agent-acp",
        title="`claude-agent-acp`",
        version="0.99.1",
        seen="replayed",
        questions="forms, over ACP",
        permissions="over ACP",
    ),
    Known(
        name="codex-acp",
        title="`codex-acp`",
        version="2.6.0",
        seen="read",
        questions="forms, over ACP",
        permissions="over ACP",
    ),
    Known(
        name="gemini",
        title="Gemini CLI",
        version="0.61.0",
        seen="read",
        permissions="over ACP",
        note="it takes its question tool away",
    ),
    Known(
        name="copilot",
        title="Copilot CLI",
        version="1.0.102",
        seen="read",
        permissions="over ACP",
        note="it takes its question tool away",
    ),
)
