"""`handraise serve`: run the desk."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    @app.command(
        epilog="Examples:  handraise serve  ·  handraise serve --port 5000  ·  HANDRAISE_HOME=/srv/desk handraise serve"
    )
    def serve(
        port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 4263,
        host: Annotated[str | None, typer.Option(help="Address to listen on; loopback unless you say so.")] = None,
    ) -> None:
        """Run the desk until Ctrl+C."""
        from handraise.cli.running import run_until_ended
        from handraise.config import load

        settings = load()
        run_until_ended(settings, host=host or settings.host, port=port)
