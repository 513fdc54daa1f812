"""`handraise sessions close`: end a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handraise.cli.calling import Json, SessionId, Url, call, find_session, session_path
from handraise.cli.commands import Command
from handraise.cli.printing import print_json
from handraise.text.inert import inert

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
        session = await find_session(client, id)
        session = await client.call("POST", session_path(session["id"], "close"), body={})
        if as_json:
            print_json(session)
        else:
            print(f"session {inert(session['id'], keep='')} was told to end")

    call(work, url=url)


plugin = Command(close, examples=EXAMPLES)
