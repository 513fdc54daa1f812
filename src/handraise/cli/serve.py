"""`handraise serve`: run the desk."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["add_to"]

EXAMPLES = """\b
Examples:
  handraise serve
  handraise serve --port 5000
  HANDRAISE_HOME=/srv/desk handraise serve
  handraise serve --host 0.0.0.0 --allowed-host desk.example.org
  HANDRAISE_DATABASE=postgresql://desk@db.example.org/desk handraise serve"""


def add_to(app: typer.Typer) -> None:
    @app.command(epilog=EXAMPLES)
    def serve(
        port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 4263,
        host: Annotated[str | None, typer.Option(help="Address to listen on; loopback unless you say so.")] = None,
        allowed_host: Annotated[
            list[str] | None,
            typer.Option(metavar="NAME", help="Host name this desk answers to besides its address; repeatable."),
        ] = None,
        no_worker: Annotated[
            bool,
            typer.Option(
                "--no-worker",
                help="Only the desk; sessions are run by workers elsewhere.",
            ),
        ] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print the address as one line of JSON.")] = False,
    ) -> None:
        """Run the desk until Ctrl+C."""
        from handraise.cli.running import run_until_ended
        from handraise.config import load

        settings = load()
        run_until_ended(
            settings,
            host=host or settings.host,
            port=port,
            allowed_hosts=tuple(allowed_host or ()),
            as_json=as_json,
            has_worker=not no_worker,
        )
