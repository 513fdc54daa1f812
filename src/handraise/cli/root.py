"""The command line as typer runs it: finds each command when it is named, and lists them in groups."""

from __future__ import annotations

import sys
from contextlib import suppress
from copy import copy
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from handraise import plugins
from handraise.cli.commands import Command
from handraise.cli.values import take_as_they_are
from handraise.errors import HandraiseError, PluginNotFound
from handraise.text.inert import inert

__all__ = ["MOVED", "app", "commands", "load"]

FIRST = ("serve", "start", "watch", "asks", "answer", "ask")  # what most people need
HEADINGS = {
    "first": "Most used",
    "answer": "Answer",
    "ask": "Ask",
    "agents": "Agents",
    "workflows": "Workflows",
    "desk": "The desk",
    "set-up": "Set up",
    "more": "More",
}
# What was a command of its own before it moved into a group. It still works, and is not listed.
MOVED = dict.fromkeys(("abort", "attach", "close", "prompt"), "sessions") | dict.fromkeys(
    ("cancel", "checkpoint", "rerun", "retry", "trace"), "runs"
)
EPILOG = """\b
Examples:
  handraise demo                          four scripted agents that ask
  handraise serve                         run the desk
  handraise start claude "Fix the test"   start an agent, and answer what it asks
  handraise run feature                   run a workflow, and answer what its steps ask
  handraise chat                          talk with a model, and answer what it asks
  handraise ask "Deploy now?" yes no      raise a hand from a script
  handraise watch                         answer what comes

\b
Exit codes: 0 done, 1 failed or withdrawn, 2 usage, 3 something waits for a person,
4 rejected, 5 no desk was reached, 130 Ctrl+C."""


def commands() -> dict[str, list[str]]:
    """The names of all commands by the group that lists them, those that matter most first."""
    groups: dict[str, list[str]] = {group: [] for group in HEADINGS} | {"first": list(FIRST)}
    for module in plugins.names("cli.commands"):
        name = module.replace("_", "-")
        if name not in FIRST:
            group = "more"
            with suppress(HandraiseError):  # one that is broken stands there
                group = load(name).group
            groups[group if group in groups else "more"].append(name)
    return groups


def load(name: str) -> Command:
    """Raises PluginNotFound, and HandraiseError where a stranger's command is broken."""
    try:
        found = plugins.load("cli.commands", name.replace("-", "_"))
    except HandraiseError:
        raise
    except Exception as problem:
        raise HandraiseError(f"the command {name} cannot be loaded: {type(problem).__name__}: {problem}") from problem
    if not isinstance(found, Command):
        raise HandraiseError(
            f"the command {name} cannot be loaded: its entry point is no handraise.cli.commands.Command"
        )
    return found


class _Commands(TyperGroup):
    """Loads the file of the one command that is named. Only `--help` looks at all of them."""

    def get_params(self, ctx: Any) -> list[Any]:
        return take_as_they_are(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in commands().values() for name in names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in MOVED:
            alias = copy(self.get_command(ctx, MOVED[cmd_name]).commands[cmd_name])
            alias.hidden = True
            return alias
        if "_" in cmd_name:  # that is the name of a file
            return None
        try:
            return load(cmd_name).build(cmd_name)
        except PluginNotFound:
            return None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups = commands()
        widest = max(len(name) for names in groups.values() for name in names)
        for group, names in groups.items():
            if names:
                with formatter.section(HEADINGS[group]):
                    limit = formatter.width - 6 - widest
                    formatter.write_dl([(name.ljust(widest), self._about(ctx, name, limit)) for name in names])

    def _about(self, ctx: Any, name: str, limit: int) -> str:
        try:
            return str(self.get_command(ctx, name).get_short_help_str(limit))
        except HandraiseError as broken:
            return inert(str(broken), keep="")


app = typer.Typer(
    name="handraise",
    cls=_Commands,
    help="The one desk where every coding agent's raised hand arrives.",
    epilog=EPILOG,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def handraise(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        from handraise.cli import print_version

        print_version()
    elif context.invoked_subcommand is None:
        if sys.stdout.isatty():
            from handraise.cli.overview import overview

            overview()
        else:
            print(context.get_help(), file=sys.stderr)
            raise typer.Exit(2)
