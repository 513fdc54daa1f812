"""The keyboard of a chat: a prompt for messages, and the keys that count while a reply is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from handraise.channels.terminal.endings import Left
from handraise.channels.terminal.keyboard import Changed

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import Output

__all__ = ["ChatKeyboard"]

PROMPT = "› "


class ChatKeyboard:
    """One prompt at a time. Enter sends, Alt+Enter and Ctrl+J begin a new line, the up key brings back messages."""

    def __init__(self, input: Input | None = None, output: Output | None = None) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory

        self._history = InMemoryHistory()
        self._session: PromptSession[str] = PromptSession(
            history=self._history,
            input=input,
            output=output,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            key_bindings=_keys(),
            interrupt_exception=Left,
        )
        self._ahead = ""  # typed while there was no prompt

    def remember(self, texts: Sequence[str]) -> None:
        """What the up key brings back, the newest last."""
        for text in texts:
            self._history.append_string(text)

    @property
    def typed(self) -> str:
        """What stands at the prompt, or stood there when it closed."""
        return self._session.default_buffer.text

    async def message(self, *, draft: str = "") -> str:
        """A message, starting from a draft. Raises Left for Ctrl+C, EOFError for Ctrl+D, Changed when interrupted."""
        draft, self._ahead = draft or self._ahead, ""
        return await self._session.prompt_async(PROMPT, default=draft, set_exception_handler=False, handle_sigint=False)

    def interrupt(self) -> None:
        """Close the prompt if one is open. On a dumb terminal it cannot be, and stays until the next Enter."""
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(exception=Changed())

    @contextmanager
    def watching(self, on_interrupt: Callable[[], None]) -> Iterator[None]:
        """Hear Ctrl+C while there is no prompt. What else is typed stands at the next one, and is not sent."""
        from prompt_toolkit.keys import Keys

        input = self._session.input

        def pressed() -> None:
            for press in input.read_keys():
                if press.key == Keys.ControlC:
                    self._ahead = ""
                    on_interrupt()
                elif press.key in (Keys.Backspace, Keys.ControlH):
                    self._ahead = self._ahead[:-1]
                elif not isinstance(press.key, Keys) or press.key == Keys.BracketedPaste:
                    self._ahead += press.data

        with input.raw_mode(), input.attach(pressed):
            yield


def _keys() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter", eager=True)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("c-j", eager=True)
    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
