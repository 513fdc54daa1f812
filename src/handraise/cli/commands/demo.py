"""`handraise demo`: a desk with four scripted agents that ask, and how to answer each of them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from handraise.cli.commands import Command
from handraise.errors import SettingsError

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise demo                      then answer from another terminal
  handraise demo --watch              answer right here
  handraise demo --port 5000"""


def demo(
    port: Annotated[int, typer.Option(help="Port for a desk of its own, if none runs yet.", min=0, max=65535)] = 4263,
    watch: Annotated[bool, typer.Option("--watch", help="Answer in this terminal.")] = False,
    exit_when_done: Annotated[
        bool, typer.Option("--exit-when-done", help="Leave when all are answered, rather than on Ctrl+C.")
    ] = False,
) -> None:
    """Let four scripted agents ask something."""
    from handraise.cli.running import run_loop
    from handraise.cli.staging import play

    if watch and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SettingsError("--watch needs a terminal; answer with `handraise answer` instead")
    run_loop(play(port=port, watch=watch, exit_when_done=exit_when_done))


plugin = Command(demo, examples=EXAMPLES, group="set-up")
