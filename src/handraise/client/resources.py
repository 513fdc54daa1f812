"""Everything a desk has beside asks, one attribute each. Each file is loaded when it is first used."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from handraise.client.connection import Connection

if TYPE_CHECKING:
    from handraise.client.agents import Agents
    from handraise.client.audit import Audit
    from handraise.client.channels import Channels
    from handraise.client.chats import Chats
    from handraise.client.rules import Rules
    from handraise.client.runs import Checkpoints, Runs, Workflows
    from handraise.client.sessions import Sessions
    from handraise.client.tokens import Tokens
    from handraise.client.trust import Trust

__all__ = ["Resources"]


class Resources:
    connection: Connection

    @cached_property
    def sessions(self) -> Sessions:
        from handraise.client.sessions import Sessions

        return Sessions(self.connection)

    @cached_property
    def runs(self) -> Runs:
        from handraise.client.runs import Runs

        return Runs(self.connection)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        from handraise.client.runs import Checkpoints

        return Checkpoints(self.connection)

    @cached_property
    def workflows(self) -> Workflows:
        from handraise.client.runs import Workflows

        return Workflows(self.connection)

    @cached_property
    def chats(self) -> Chats:
        from handraise.client.chats import Chats

        return Chats(self.connection)

    @cached_property
    def rules(self) -> Rules:
        from handraise.client.rules import Rules

        return Rules(self.connection)

    @cached_property
    def tokens(self) -> Tokens:
        from handraise.client.tokens import Tokens

        return Tokens(self.connection)

    @cached_property
    def channels(self) -> Channels:
        from handraise.client.channels import Channels

        return Channels(self.connection)

    @cached_property
    def audit(self) -> Audit:
        from handraise.client.audit import Audit

        return Audit(self.connection)

    @cached_property
    def agents(self) -> Agents:
        from handraise.client.agents import Agents

        return Agents(self.connection)

    @cached_property
    def trust(self) -> Trust:
        from handraise.client.trust import Trust

        return Trust(self.connection)
