"""The person's hands: all that knows prompt_toolkit, which is imported when somebody is first asked."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from handraise.channels.terminal.endings import Left

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

    from handraise.asks import Ask
    from handraise.text.words import Words

__all__ = ["Changed", "Keyboard"]


class Changed(Exception):
    """The ask at the prompt is not what it was."""


class Keyboard:
    """One prompt at a time. Escape never answers; Ctrl+D is EOFError everywhere."""

    prints_beside = False  # a line in the middle of a card would tear it

    def __init__(self, input: Input | None = None, output: Output | None = None, *, t: Words) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import DummyHistory

        self._session: PromptSession[str] = PromptSession(
            history=DummyHistory(), input=input, output=output, interrupt_exception=Left
        )
        self._t = t
        self._waiting = 0

    @property
    def typed(self) -> str:
        """What stands at the prompt, or stood there when it closed."""
        return self._session.default_buffer.text

    async def line(self, prompt: str, *, draft: str = "") -> str:
        """One line, starting from a draft. Raises Left, and Changed when interrupted."""

        def message() -> str:
            others = self._t("terminal.others", count=self._waiting)
            return f"{others} · {prompt}" if self._waiting else prompt

        return await self._session.prompt_async(
            message, default=draft, set_exception_handler=False, handle_sigint=False
        )

    def tell_waiting(self, count: int) -> None:
        """Say at the prompt how many others wait, without tearing what is typed there."""
        self._waiting = count
        self._session.app.invalidate()

    def interrupt(self) -> None:
        """Close the prompt if one is open. On a dumb terminal it cannot be, and stays until the next Enter."""
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(exception=Changed())

    def ring(self, ask: Ask) -> None:
        self._session.output.bell()
        self._session.output.flush()

    def forget(self, id: str) -> None:
        """Nothing was kept of it."""

    def discard(self) -> None:
        """Forget what was typed so far: it was not meant for what is shown next."""
        from prompt_toolkit.input.typeahead import clear_typeahead

        input = self._session.input
        with input.raw_mode():
            while input.read_keys():
                pass
        input.flush_keys()
        clear_typeahead(input)

    async def idle(self, news: asyncio.Event, *, at_most: float | None = None, kept: int = 0) -> int:
        """Wait for news while keys do nothing, except that Ctrl+C and Ctrl+D quit with EOFError."""
        from prompt_toolkit.keys import Keys

        input = self._session.input
        quits = False

        def typed() -> None:
            nonlocal quits
            pressed = {press.key for press in input.read_keys()}
            if input.closed or pressed & {Keys.ControlC, Keys.ControlD}:
                quits = True
                news.set()

        with input.raw_mode(), input.attach(typed), suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                await news.wait()
        if quits:
            raise EOFError
        return 0
