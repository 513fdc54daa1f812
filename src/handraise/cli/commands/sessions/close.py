"""`handraise sessions close`: end a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handraise.cli.calling import Json, SessionId, Url, call, find_session
from handraise.cli.commands import Command
from handraise.cli.printing import print_json
from handraise.text.inert import inert
from handraise.wire.plain import to_plain

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

EXAMPLES = """\b
Example:
  handraise sessions close ses_5d41"""


def close(id: SessionId, as_json: Json = False, url: Url = None) -> None:
    """End a session, and withdraw what it asks.

    Its agent's process ends, and it takes no further prompt."""

    async def work(client: Client) -> None:
        session = await client.sessions.close((await find_session(client, id)).id)
        if as_json:
            print_json(to_plain(session))
        else:
            print(f"session {inert(session.id, keep='')} was told to end")

    call(work, url=url)


plugin = Command(close, examples=EXAMPLES)
