"""`handraise close`: end a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from handraise.cli.calling import Json, SessionId, Url, call, find_session, session_path
from handraise.cli.shown import print_json
from handraise.text.inert import inert

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["add_to"]

EXAMPLES = """\b
Example:
  handraise close ses_5d41"""


def add_to(app: typer.Typer) -> None:
    @app.command(epilog=EXAMPLES)
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
