"""Full mode: the card is redrawn in place under the log, never in the alternate screen, and keys act at once.

What keys mean is in `filling`, how it looks in `painting`; here is all of it that knows prompt_toolkit.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from handraise.asks import Answer, Ask
from handraise.asks.card import MOST_LABEL, cut
from handraise.channels import Inbox
from handraise.channels.terminal.drawing import agent_of, on_our_clock
from handraise.channels.terminal.endings import GONE, Elsewhere, Later, Left, Over
from handraise.channels.terminal.filling import Act, Edit, Form, GoTo, Keep, Send, Unfold
from handraise.channels.terminal.keyboard import Keyboard
from handraise.channels.terminal.painting import Painted, Painter, height, title_line
from handraise.channels.terminal.reading import Wait
from handraise.errors import HandraiseError
from handraise.tasks import running
from handraise.text.inert import inert

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.layout import Container, Layout, Window
    from prompt_toolkit.output import Output

    from handraise.text.words import Words

__all__ = ["FullKeyboard", "FullTurn"]

ESCAPE_AFTER = 0.1  # seconds after which Escape is a key, and not how the next one begins
TICK = 0.5  # seconds between two looks at the clock, where there is a deadline
MOST_FIELD_LINES = 8
# Terminals that show a notification for OSC 9, by what they say of themselves; others print its text.
NOTIFIES = frozenset({"iTerm.app", "WezTerm", "ghostty"})


def notifies(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the terminal is known to take OSC 9. Inside of tmux or screen nobody knows."""
    environ = os.environ if environ is None else environ
    is_inside = "TMUX" in environ or environ.get("TERM", "").startswith(("screen", "tmux"))
    return not is_inside and (environ.get("TERM_PROGRAM") in NOTIFIES or environ.get("TERM") == "xterm-kitty")


class FullKeyboard:
    """The hands between cards. It keeps what was filled in on those that are looked at later."""

    prints_beside = True

    def __init__(
        self,
        input: Input | None = None,
        output: Output | None = None,
        *,
        t: Words,
        colour: bool,
        out: Callable[[str], None],
    ) -> None:
        from prompt_toolkit.application.current import get_app_session

        self._keys = Keyboard(input, output, t=t)
        self.t = t
        self.input, self.output = input or get_app_session().input, output or get_app_session().output
        self.colour = colour
        self.waiting = 0
        self._out = out
        self._forms: dict[str, Form] = {}
        self._app: Application[Any] | None = None
        self._held: list[str] = []  # lines that would have been printed into the person's editor
        self._is_editing = False

    # What the sitting wants of it ---------------------------------------------------------------------------

    def ring(self, ask: Ask) -> None:
        self.output.bell()
        if notifies():
            asked = {"agent": agent_of(ask, t=self.t), "header": cut(ask.title, MOST_LABEL, t=self.t)}
            self.output.write_raw(f"\x1b]9;handraise: {self.t('push.question.title', **asked)}\x07")
        self.output.flush()

    def tell_waiting(self, count: int) -> None:
        self.waiting = count
        self.redraw()

    def discard(self) -> None:
        self._keys.discard()

    def forget(self, id: str) -> None:
        self._forms.pop(id, None)

    async def idle(self, news: asyncio.Event, *, at_most: float | None = None, kept: int = 0) -> int:
        if at_most is not None or not kept:
            return await self._keys.idle(news, at_most=at_most)
        steps = 0

        def pressed(key: str) -> None:
            nonlocal steps
            if key in ("J", "K"):
                steps = 1 if key == "J" else -1
                news.set()

        line = f"── {self.t('terminal.kept', count=kept)} "
        async with self.showing(_one_line(line), on_key=pressed) as shown, running(news.wait()) as waiting:
            await asyncio.wait({shown, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if shown.done():
                raise EOFError
        return steps

    # What turns want of it ----------------------------------------------------------------------------------

    def form_of(self, ask: Ask) -> Form:
        form = self._forms.setdefault(ask.id, Form(ask, t=self.t))
        form.ask = ask
        return form

    def print(self, text: str) -> None:
        """Above the card, which is drawn again under it."""
        if self._is_editing:
            self._held.append(text)
            return
        if self._app is not None and self._app.is_running:
            self._app.renderer.erase()
        self._out(text)
        self.redraw()

    def redraw(self) -> None:
        if self._app is not None and self._app.is_running:
            self._app.invalidate()

    async def edit(self, buffer: Buffer) -> None:
        """In the person's own editor, which has the terminal meanwhile."""
        self._is_editing = True
        try:
            await buffer.open_in_editor()
        finally:
            self._is_editing = False
            held, self._held = self._held, []
            for text in held:
                self.print(text)

    def showing(
        self,
        layout: Layout,
        *,
        on_key: Callable[[str], None],
        keys: KeyBindings | None = None,
        refresh: float | None = None,
    ) -> _Showing:
        """Show this, and hand on the keys that no field takes. The context is the task that ends with it."""
        from prompt_toolkit.application import Application
        from prompt_toolkit.filters import buffer_has_focus
        from prompt_toolkit.key_binding import KeyBindings, merge_key_bindings
        from prompt_toolkit.keys import Keys
        from prompt_toolkit.output import ColorDepth

        every = KeyBindings()

        @every.add("c-c", eager=True)
        def _(event: KeyPressEvent) -> None:
            _exit(event.app, Left())

        @every.add("c-d", filter=~buffer_has_focus)
        def _(event: KeyPressEvent) -> None:
            _exit(event.app, EOFError())

        @every.add(Keys.Any, filter=~buffer_has_focus)
        def _(event: KeyPressEvent) -> None:
            key = event.key_sequence[0].key
            on_key(key.value if isinstance(key, Keys) else key)
            self.redraw()

        app: Application[None] = Application(
            layout=layout,
            key_bindings=merge_key_bindings([every, *([keys] if keys is not None else [])]),
            full_screen=False,
            erase_when_done=True,
            color_depth=None if self.colour else ColorDepth.DEPTH_1_BIT,
            refresh_interval=refresh,
            input=self.input,
            output=self.output,
        )
        app.ttimeoutlen = app.timeoutlen = ESCAPE_AFTER
        return _Showing(self, app)

    def shown(self, app: Application[Any] | None) -> None:
        self._app = app


class _Showing:
    """One thing on the screen, from the first time it is drawn until it is erased."""

    def __init__(self, keyboard: FullKeyboard, app: Application[None]) -> None:
        self._keyboard = keyboard
        self._app = app
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> asyncio.Task[None]:
        self._keyboard.shown(self._app)
        running = self._app.run_async(set_exception_handler=False, handle_sigint=False)
        self._running = asyncio.ensure_future(running)
        return self._running

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None
        await asyncio.sleep(0)  # what was never begun could not be ended
        if self._app.is_running and not self._app.is_done:
            self._app.exit()
        await asyncio.wait([self._running])
        if not self._running.cancelled():
            self._running.exception()
        self._keyboard.shown(None)


class FullTurn:
    """One card on the screen. It stays there while the answer is under way, and is erased at the end."""

    def __init__(
        self,
        ask: Ask,
        *,
        inbox: Inbox,
        keyboard: FullKeyboard,
        colour: bool,
        heading: str = "",
    ) -> None:
        self._inbox = inbox
        self._keyboard = keyboard
        self._t = keyboard.t
        self._colour = colour
        self._heading = heading
        self._form = keyboard.form_of(ask)
        self._buffer: Buffer | None = None
        self._layout: Layout | None = None
        self._field: Window | None = None
        self._card: Window | None = None
        self._showing: _Showing | None = None
        self._running: asyncio.Task[None] | None = None
        self._said: asyncio.Future[Answer] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_sending = False
        self._is_above = False
        self._ended = False

    # What the sitting wants of it ---------------------------------------------------------------------------

    @property
    def ask(self) -> Ask:
        return self._form.ask

    @ask.setter
    def ask(self, ask: Ask) -> None:
        self._form.ask = ask

    @property
    def typed(self) -> list[str]:
        return self._form.typed

    async def __aenter__(self) -> Self:
        self._show_above_what_does_not_fit()
        self._build()
        assert self._layout is not None
        refresh = TICK if self.ask.deadline is not None else None
        self._showing = self._keyboard.showing(
            self._layout, on_key=self._press, keys=self._field_keys(), refresh=refresh
        )
        self._running = await self._showing.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait([*self._tasks])
        assert self._showing is not None
        await self._showing.__aexit__()

    async def hear(self) -> Answer:
        self._is_sending = False
        if self.is_over:
            raise Over
        said: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._said = said
        self._sync()
        assert self._running is not None
        either: set[asyncio.Future[Any]] = {said, self._running}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not said.done():
            said.cancel()
            self._running.result()
            raise EOFError
        try:
            return said.result()
        except Over:
            if self._tasks:  # the editor has the terminal; what was written there is worth keeping
                await asyncio.wait([*self._tasks])
            raise

    def refuse(self, *problems: str, question: int | None = None) -> None:
        self._is_sending = False
        if question is not None:
            self._form.show(question)
        self._form.problem = "\n".join(problems)
        self._sync()

    def change(self, ask: Ask) -> None:
        self._form.ask = ask
        if ask.state != "asked":
            self._end(Over())
        self._keyboard.redraw()

    def end(self) -> None:
        self._ended = True
        self._end(Over())

    @property
    def is_over(self) -> bool:
        return self._ended or self.ask.state != "asked"

    def title(self) -> list[str]:
        columns = self._keyboard.output.get_size().columns
        return [title_line(self.ask, colour=self._colour, columns=columns, heading=self._heading, t=self._t)]

    def bar(self) -> list[str]:
        return []

    # What the person does -----------------------------------------------------------------------------------

    def _end(self, how: BaseException) -> None:
        """Unless the answer is under way: then the desk says how it ends."""
        if self._said is not None and not self._said.done() and not self._is_sending:
            self._said.set_exception(how)

    def _press(self, key: str) -> None:
        if self._is_sending or self.is_over:
            return
        if self._painter().is_overdue and key not in ("escape", "J", "K", "w", "?"):
            return  # the desk is picking
        self._do(self._form.press(key))

    def _do(self, act: Act | None) -> None:
        match act:
            case Send(answer=answer):
                self._is_sending = True
                if self._said is not None and not self._said.done():
                    self._said.set_result(answer)
            case Keep():
                self._end(Later())
            case GoTo(steps=steps):
                self._end(Elsewhere(steps))
            case Wait():
                self._begin(self._keep_waiting())
            case Unfold():
                self._unfold()
            case Edit():
                self._sync()
                assert self._buffer is not None
                self._begin(self._edit(self._buffer))
        self._sync()

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_waiting(self) -> None:
        try:
            self._form.ask = on_our_clock(await self._inbox.keep_waiting(self.ask.id))
        except GONE as gone:
            self._end(gone)
        except HandraiseError as failure:
            self._form.problem = inert(str(failure), keep="")
        else:
            if self.ask.deadline is None:
                self._form.problem = self._t("terminal.noDeadline")
        self._keyboard.redraw()

    async def _edit(self, buffer: Buffer) -> None:
        await self._keyboard.edit(buffer)
        self._keyboard.redraw()

    def _unfold(self) -> None:
        """What fits is shown on the card or not; what does not is printed above it, where it can be scrolled to."""
        permission, question = self.ask.permission, self._form.question
        if permission is not None:
            if permission.diff is None:
                self._form.problem = self._t("terminal.wrong.notFolded")
                return
            self._form.shows_diff = not self._form.shows_diff
            self._form.has_seen_diff = True
            if self._form.shows_diff and not self._fits():
                self._form.shows_diff = False
                self._print_object()
            return
        options = question.options if question is not None else ()
        marked = self._form.filled[self._form.at].marked if question is not None else 0
        preview = options[marked].preview if marked < len(options) else None
        if not any(option.preview for option in options):
            self._form.problem = self._t("terminal.wrong.noPreview")
        elif preview is not None and self._form.shows_previews and self._painter().cuts(preview):
            self._keyboard.print("\n".join(self._painter().preview(preview)))
        else:
            self._form.shows_previews = not self._form.shows_previews

    def _fits(self) -> bool:
        size = self._keyboard.output.get_size()
        painted = self._paint()
        return height([*painted.top, *painted.bottom], columns=size.columns) < size.rows

    def _show_above_what_does_not_fit(self) -> None:
        """Nobody is to allow what they could not see whole."""
        if self.ask.permission is not None and not self._fits():
            self._print_object()
            self._is_above = True

    def _print_object(self) -> None:
        assert self.ask.permission is not None
        whole = self._painter().whole(self.ask.permission)
        self._keyboard.print("\n".join([*self.title(), *whole]))

    # What it looks like -------------------------------------------------------------------------------------

    def _painter(self) -> Painter:
        size = self._keyboard.output.get_size()
        return Painter(
            self._form,
            columns=size.columns,
            rows=size.rows,
            colour=self._colour,
            now=datetime.now().astimezone(),
            waiting=self._keyboard.waiting + 1,
            heading=self._heading,
            is_above=self._is_above,
            is_sending=self._is_sending,
        )

    def _paint(self) -> Painted:
        return self._painter().paint()

    def _sync(self) -> None:
        """Bring the text field in line with the form."""
        if self._buffer is None or self._layout is None or self._field is None or self._card is None:
            return
        if self._form.field is not None and not self._is_sending:
            if not self._layout.has_focus(self._field) or self._buffer.text != self._form.text:
                self._buffer.text = self._form.text
                self._buffer.cursor_position = len(self._buffer.text)
            self._layout.focus(self._field)
        else:
            self._layout.focus(self._card)
        self._keyboard.redraw()

    def _build(self) -> None:
        from prompt_toolkit.buffer import Buffer
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.layout import (
            BufferControl,
            ConditionalContainer,
            Dimension,
            FormattedTextControl,
            HSplit,
            Layout,
            VerticalAlign,
            VSplit,
            Window,
        )

        def typed(buffer: Buffer) -> None:
            if self._form.field is not None:
                self._form.text = buffer.text

        def label() -> str:
            return f"  {self._paint().label} › "

        self._buffer = Buffer(multiline=True, on_text_changed=typed)
        self._card = Window(
            FormattedTextControl(self._top, focusable=True, show_cursor=False),
            wrap_lines=True,
            dont_extend_height=True,
            always_hide_cursor=True,
        )
        self._field = Window(
            BufferControl(self._buffer),
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(min=1, max=MOST_FIELD_LINES),
        )
        foot = Window(FormattedTextControl(self._bottom), wrap_lines=True, dont_extend_height=True)
        before = Window(FormattedTextControl(label), dont_extend_width=True, dont_extend_height=True)
        is_open = Condition(lambda: self._form.field is not None and not self._is_sending)
        parts: list[Container] = [self._card, ConditionalContainer(VSplit([before, self._field]), is_open), foot]
        self._layout = Layout(HSplit(parts, align=VerticalAlign.TOP), focused_element=self._card)

    def _top(self) -> StyleAndTextTuples:
        painted = self._paint()
        return _fragments(painted.top, marked=painted.marked)

    def _bottom(self) -> StyleAndTextTuples:
        return _fragments(self._paint().bottom)

    def _field_keys(self) -> KeyBindings:
        from prompt_toolkit.filters import Condition, buffer_has_focus
        from prompt_toolkit.key_binding import KeyBindings

        keys = KeyBindings()
        is_empty = Condition(lambda: self._buffer is None or not self._buffer.text)

        @keys.add("enter", filter=buffer_has_focus, eager=True)
        def _(event: KeyPressEvent) -> None:
            if not self.is_over and not self._painter().is_overdue:
                self._do(self._form.done())

        @keys.add("c-j", filter=buffer_has_focus, eager=True)
        @keys.add("escape", "enter", filter=buffer_has_focus)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("escape", filter=buffer_has_focus)
        def _(event: KeyPressEvent) -> None:
            self._form.leave_field()
            self._sync()

        @keys.add("c-d", filter=buffer_has_focus & is_empty, eager=True)
        def _(event: KeyPressEvent) -> None:
            _exit(event.app, EOFError())

        return keys


def _exit(app: Application[Any], how: BaseException) -> None:
    if app.is_running and not app.is_done:  # a second key may come before the first has ended it
        app.exit(exception=how)


def _fragments(lines: list[str], *, marked: int | None = None) -> StyleAndTextTuples:
    from prompt_toolkit.formatted_text import ANSI, to_formatted_text

    found: StyleAndTextTuples = []
    for number, line in enumerate(lines):
        if number == marked:
            found.append(("[SetCursorPosition]", ""))
        found += to_formatted_text(ANSI(line + ("\n" if number < len(lines) - 1 else "")))
    return found


def _one_line(text: str) -> Layout:
    from prompt_toolkit.layout import FormattedTextControl, Layout, Window

    return Layout(Window(FormattedTextControl(text, focusable=True), height=1, always_hide_cursor=True))
