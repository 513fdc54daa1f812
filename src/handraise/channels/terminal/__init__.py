"""The line-mode terminal: the channel, and the pure parts with which other commands show an ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from handraise.asks import Ask
from handraise.channels import Inbox
from handraise.channels.terminal.drawing import draw, outcome_line, record_line, summary_line, wants_colour
from handraise.channels.terminal.keyboard import Keyboard
from handraise.channels.terminal.reading import (
    Choice,
    Decline,
    Help,
    Problem,
    Reply,
    Skip,
    Wait,
    parse,
    parse_permission,
    parse_scope,
    prompt_for,
)
from handraise.channels.terminal.sitting import Sitting

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

__all__ = [
    "Choice",
    "Decline",
    "Help",
    "Problem",
    "Reply",
    "Skip",
    "Terminal",
    "Wait",
    "draw",
    "outcome_line",
    "parse",
    "parse_permission",
    "parse_scope",
    "plugin",
    "prompt_for",
    "record_line",
    "summary_line",
    "wants_colour",
]


class Terminal:
    """Shows asks one at a time, first come first served, and brings back what the person types.

    Without `interactive` it never prompts and only prints a line for whatever happens. `run` ends when the person
    quits or the desk closes; what was not answered stays open on the desk.
    """

    def __init__(
        self,
        *,
        by: str,
        quiet: bool = False,
        interactive: bool = True,
        greets: bool = True,
        tells: bool = True,
        heading: Callable[[Ask], str] = lambda ask: "",
        colour: bool | None = None,
        input: Input | None = None,
        output: Output | None = None,
        out: Callable[[str], None] = print,
    ) -> None:
        """`quiet` rings no bell; without `greets` it says nothing before the first ask, and without `tells` no line
        says that something was asked or answered: somebody else does. `heading` may name what an ask is, on its card.

        `input` and `output` are prompt_toolkit's; `out` prints all but the prompt itself.
        """
        self._by = by
        self._quiet = quiet
        self._interactive = interactive
        self._greets = greets
        self._tells = tells
        self._heading = heading
        self._colour = wants_colour() if colour is None else colour
        self._input, self._output = input, output
        self._out = out
        self._sitting: Sitting | None = None

    def note(self, line: str) -> None:
        """Print this beside the asks: now, or after the turn that somebody has."""
        if self._sitting is None:
            self._out(line)
        else:
            self._sitting.note(line)

    @property
    def is_prompting(self) -> bool:
        return self._sitting is not None and self._sitting.has_turn

    async def run(self, inbox: Inbox) -> None:
        keyboard = Keyboard(self._input, self._output) if self._interactive else None
        sitting = self._sitting = Sitting(
            inbox,
            keyboard,
            by=self._by,
            rings=not self._quiet,
            greets=self._greets,
            colour=self._colour,
            out=self._out,
            tells=self._tells,
            heading=self._heading,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(sitting.follow())
                if keyboard is not None:
                    await sitting.serve(keyboard)
                    following.cancel()
        except ExceptionGroup as failed:  # whoever called wants the error, not the shape of our tasks
            raise failed.exceptions[0] from None
        finally:
            self._sitting = None


plugin = Terminal
