"""The terminal: the channel in its two modes, and the pure parts with which other commands show an ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from handraise.asks import Ask
from handraise.channels import Inbox
from handraise.channels.terminal.drawing import ENGLISH, draw, outcome_line, record_line, summary_line, wants_colour
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
from handraise.channels.terminal.sitting import Begin, Hands, Sitting
from handraise.channels.terminal.turn import LineTurn
from handraise.text.words import Words

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
        full: bool = False,
        interactive: bool = True,
        greets: bool = True,
        tells: bool = True,
        stays: bool = True,
        heading: Callable[[Ask], str] = lambda ask: "",
        words: Words = ENGLISH,
        colour: bool | None = None,
        input: Input | None = None,
        output: Output | None = None,
        out: Callable[[str], None] = print,
    ) -> None:
        """`quiet` rings no bell; `full` redraws a card in place and takes keys, where line mode takes lines. Without
        `greets` it says nothing before the first ask, and without `tells` no line says that something was asked or
        answered: somebody else does. Without `stays` it returns once everything that was open has had its turn.
        `heading` may name what an ask is, on its card. `words` is the person's language.

        `input` and `output` are prompt_toolkit's; `out` prints all but the prompt itself.
        """
        self._by = by
        self._quiet = quiet
        self._full = full
        self._interactive = interactive
        self._greets = greets
        self._tells = tells
        self._stays = stays
        self._heading = heading
        self._words = words
        self._colour = wants_colour() if colour is None else colour
        self._input, self._output = input, output
        self._out = out
        self._sitting: Sitting | None = None
        self.has_quit = False  # the person left the last run by Ctrl+C twice, or by Ctrl+D

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
        hands, begin, out = self._mode(inbox)
        sitting = self._sitting = Sitting(
            inbox,
            hands,
            t=self._words,
            by=self._by,
            rings=not self._quiet,
            greets=self._greets,
            colour=self._colour,
            out=out,
            tells=self._tells,
            stays=self._stays,
            heading=self._heading,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(sitting.follow())
                if hands is not None and begin is not None:
                    await sitting.serve(hands, begin)
                    following.cancel()
        except ExceptionGroup as failed:  # whoever called wants the error, not the shape of our tasks
            raise failed.exceptions[0] from None
        finally:
            self.has_quit = sitting.has_quit
            self._sitting = None

    def _mode(self, inbox: Inbox) -> tuple[Hands | None, Begin | None, Callable[[str], None]]:
        """The hands, how they begin a turn, and how to print beside it."""
        if not self._interactive:
            return None, None, self._out
        if self._full:
            from handraise.channels.terminal.full import FullKeyboard, FullTurn

            hands = FullKeyboard(self._input, self._output, t=self._words, colour=self._colour, out=self._out)
            card = partial(FullTurn, inbox=inbox, keyboard=hands, colour=self._colour)
            return hands, card, hands.print
        keyboard = Keyboard(self._input, self._output, t=self._words)
        begin = partial(LineTurn, t=self._words, inbox=inbox, keyboard=keyboard, colour=self._colour, out=self._out)
        return keyboard, begin, self._out


plugin = Terminal
