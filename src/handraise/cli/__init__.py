"""The command line: one file per command, each a thin user of `client.py`. Heavy imports wait inside the commands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from handraise.cli import serve
from handraise.errors import DeskUnreachable, HandraiseError, Rejected, Withdrawn

__all__ = ["app", "main"]

app = typer.Typer(
    name="handraise",
    help="The one desk where every coding agent's raised hand arrives.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
serve.add_to(app)


@app.callback()
def handraise(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(f"handraise {installed('handraise')}")
        raise typer.Exit


DONE, FAILED, USAGE, WAITING, REJECTED, UNREACHABLE = 0, 1, 2, 3, 4, 5


def main() -> None:
    """Run a command. What handraise raises on purpose becomes one sentence and an exit code scripts can use."""
    try:
        app()
    except HandraiseError as error:
        print(f"handraise: {error}", file=sys.stderr)
        sys.exit(_exit_code(error))


def _exit_code(error: HandraiseError) -> int:
    match error:
        case DeskUnreachable():
            return UNREACHABLE
        case Rejected():
            return REJECTED
        case Withdrawn():
            return FAILED
        case _:
            return FAILED
