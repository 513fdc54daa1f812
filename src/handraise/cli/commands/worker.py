"""`handraise worker`: run sessions and workflows for the desks of a database, without one of its own."""

from __future__ import annotations

from handraise.cli.calling import settings_here
from handraise.cli.commands import Command

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  HANDRAISE_DATABASE=postgresql://desk@db.example.org/desk handraise worker
  HANDRAISE_HOME=/srv/second handraise worker     another one on the same machine"""


def worker() -> None:
    """Run sessions and workflows of a shared database.

    Ctrl+C ends it, and others take over what is left."""
    from handraise.cli.running import work_until_ended

    work_until_ended(settings_here())


plugin = Command(worker, examples=EXAMPLES, group="desk")
