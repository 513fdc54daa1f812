"""`handraise worker`: run sessions and workflows for the desks of a database, without one of its own."""

from __future__ import annotations

import typer

from handraise.cli.calling import settings_here

__all__ = ["add_to"]

EXAMPLES = """\b
Examples:
  HANDRAISE_DATABASE=postgresql://desk@db.example.org/desk handraise worker
  HANDRAISE_HOME=/srv/second handraise worker     another one on the same machine"""


def add_to(app: typer.Typer) -> None:
    @app.command(epilog=EXAMPLES)
    def worker() -> None:
        """Run sessions and workflows of a shared database.

        Ctrl+C ends it, and others take over what is left."""
        from handraise.cli.running import work_until_ended

        work_until_ended(settings_here())
