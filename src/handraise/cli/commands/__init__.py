"""The commands, one file or folder each: the name of the file is the name of the command. What they share is in `cli/`.

A stranger's command is an entry point of the group `handraise.commands` that names a `Command`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from handraise.cli.values import take_as_they_are

__all__ = ["DEFAULT", "Command", "WithDefault"]

DEFAULT = "list"  # the command that the name of a `WithDefault` stands for


@dataclass(frozen=True, slots=True)
class Command:
    """A command as its file gives it, by the name `plugin`."""

    run: Callable[..., None] | typer.Typer  # a function that typer reads, or several commands
    _: KW_ONLY
    examples: str = ""  # what stands under its help
    group: str = "more"  # under which heading `handraise --help` lists it
    cls: type[TyperCommand] | None = None

    def add_to(self, app: typer.Typer, name: str, *, hidden: bool = False) -> None:
        assert not isinstance(self.run, typer.Typer)
        app.command(name, epilog=self.examples, cls=self.cls or _Quick, hidden=hidden)(self.run)

    def build(self, name: str) -> Any:
        """What runs it: a command or a group of typer's."""
        if isinstance(self.run, typer.Typer):
            built: Any = get_group(self.run)
        else:
            app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
            self.add_to(app, name)
            built = get_command(app)
        built.name = name
        return built


class _Quick(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return take_as_they_are(super().get_params(ctx))


class WithDefault(TyperGroup):
    """Several commands whose common name is a command too: where none of them is named, that one takes the words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        if not is_named and not (ctx.resilient_parsing and not args):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*self.commands[DEFAULT].collect_usage_pieces(ctx), "| COMMAND [ARGS]..."]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.commands[DEFAULT].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        found = super().shell_complete(ctx, incomplete)
        for parameter in self.commands[DEFAULT].params:
            if parameter.param_type_name == "argument":
                found += parameter.shell_complete(ctx, incomplete)
        return found
