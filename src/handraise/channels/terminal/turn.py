"""One ask at the prompt: what it says to the person, and what the person says to the desk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

from handraise.asks import Answer, Ask, Permission, Scope
from handraise.channels import Inbox
from handraise.channels.terminal.drawing import CardLines, on_our_clock
from handraise.channels.terminal.endings import GONE, Over
from handraise.channels.terminal.keyboard import Changed, Keyboard
from handraise.channels.terminal.reading import (
    Choice,
    Decline,
    Help,
    Problem,
    Reply,
    Said,
    Skip,
    Wait,
    help_for,
    parse,
    parse_permission,
    parse_scope,
    prompt_for,
    prompt_for_scope,
)
from handraise.errors import HandraiseError
from handraise.text.inert import inert
from handraise.text.words import Words

__all__ = ["LineTurn"]


class LineTurn:
    """The card is printed once, and each question has a prompt."""

    def __init__(
        self,
        ask: Ask,
        *,
        t: Words,
        inbox: Inbox,
        keyboard: Keyboard,
        colour: bool,
        out: Callable[[str], None],
        heading: str = "",
    ) -> None:
        self.ask = ask
        self.typed: list[str] = []
        self._t = t
        self._inbox = inbox
        self._keyboard = keyboard
        self._colour = colour
        self._out = out
        self._heading = heading
        self._ended = False

    def change(self, ask: Ask) -> None:
        """The ask is this now. The prompt closes if it is over, and tells the new deadline if that moved."""
        before, self.ask = self.card.deadline(), ask
        if ask.state != "asked" or before != self.card.deadline():
            self._keyboard.interrupt()

    def end(self) -> None:
        """Close the prompt: the desk is gone."""
        self._ended = True
        self._keyboard.interrupt()

    @property
    def is_over(self) -> bool:
        return self._ended or self.ask.state != "asked"

    @property
    def card(self) -> CardLines:
        return CardLines(self.ask, t=self._t, colour=self._colour, heading=self._heading)

    async def __aenter__(self) -> Self:
        self._print("", *self.card.head())
        return self

    async def __aexit__(self, *_: object) -> None:
        """What was printed stays."""

    def title(self) -> list[str]:
        return []

    def bar(self) -> list[str]:
        return [self.card.bar()]

    def refuse(self, *problems: str, question: int | None = None) -> None:
        self._print(*problems)

    def _print(self, *lines: str) -> None:
        self._out("\n".join(lines))

    def _print_deadline(self) -> None:
        line = self.card.deadline()
        if line is not None:
            self._print(f"{line} {self._t('terminal.keepsWaiting')}")

    async def hear(self) -> Answer:
        said = await (self._hear_answers() if self.ask.permission is None else self._hear_reply(self.ask.permission))
        return Answer(rejected=True, reason=said.reason) if isinstance(said, Decline) else said

    async def _hear_answers(self) -> Answer | Decline:
        drafts, self.typed = self.typed, []
        questions = self.ask.questions
        answers: list[tuple[str, ...]] = []
        for index, question in enumerate(questions):
            if index:
                self._print("")
            self._print(*self.card.question(index), "")
            if not index:
                self._print_deadline()
            read = partial(parse, question, several=len(questions) > 1, t=self._t)
            draft = drafts[index] if index < len(drafts) else ""
            said = await self._entry(prompt_for(question, t=self._t), read, draft=draft)
            if isinstance(said, Decline):
                return said
            answers.append(said.values if isinstance(said, Choice) else ())
        return Answer(answers=tuple(answers))

    async def _hear_reply(self, permission: Permission) -> Answer | Decline:
        self._print(*self.card.permission(), "")
        self._print_deadline()
        read = partial(parse_permission, permission, t=self._t)
        while True:
            said = await self._entry(prompt_for(permission, t=self._t), read)
            if isinstance(said, Decline):
                return said
            assert isinstance(said, Reply)
            if said.reply != "always" or not permission.scopes:
                return Answer(reply=said.reply)
            scope = await self._hear_scope(permission.scopes)
            if scope is not None:
                return Answer(reply="always", scope=scope.id, patterns=scope.patterns or None)

    async def _hear_scope(self, scopes: Sequence[Scope]) -> Scope | None:
        """How far an `always` reaches, chosen in sight of its exact patterns; None goes back."""
        for number, scope in enumerate(scopes, 1):
            self._print(*self.card.scope(number, scope))
        while True:
            said = parse_scope(scopes, await self._line(prompt_for_scope(scopes, t=self._t)), t=self._t)
            if not isinstance(said, Problem):
                return said
            self._print(said.message)

    async def _entry(
        self, prompt: str, read: Callable[[str], Said], *, draft: str = ""
    ) -> Choice | Reply | Skip | Decline:
        """What the person says, once it says something. Help and waiting are dealt with here."""
        while True:
            line = await self._line(prompt, draft=draft)
            draft = ""
            match read(line):
                case Problem(message=message):
                    self._print(message)
                case Help():
                    self._print(help_for(self.ask, t=self._t))
                case Wait():
                    await self._keep_waiting()
                case said:
                    self.typed.append(line)
                    return said

    async def _keep_waiting(self) -> None:
        try:
            self.ask = on_our_clock(await self._inbox.keep_waiting(self.ask.id))
        except GONE:
            raise
        except HandraiseError as failure:
            self._print(inert(str(failure), keep=""))
            return
        if self.ask.deadline is None:
            self._print(self._t("terminal.noDeadline"))
        self._print_deadline()

    async def _line(self, prompt: str, *, draft: str = "") -> str:
        while not self.is_over:
            try:
                return await self._keyboard.line(prompt, draft=draft)
            except Changed:
                draft = self._keyboard.typed
            if not self.is_over:
                self._print_deadline()
        self.typed.append(draft)
        raise Over
