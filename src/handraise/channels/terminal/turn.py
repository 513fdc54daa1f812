"""One ask at the prompt: what it says to the person, and what the person says to the desk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from handraise.asks import Answer, Ask, Permission, Scope
from handraise.channels import Inbox
from handraise.channels.terminal.drawing import Card, on_our_clock
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
from handraise.errors import AlreadyAnswered, AnswerDoesNotFit, AskNotFound, AskWithdrawn, HandraiseError
from handraise.inert import inert

__all__ = ["GONE", "Over", "Turn"]

GONE = (AlreadyAnswered, AskWithdrawn, AskNotFound)  # what the desk says to one who comes too late


class Over(Exception):
    """Nobody waits for this person's answer any more."""


class Turn:
    """`ask` is the ask as it is now, `typed` what the person entered for it so far."""

    def __init__(
        self,
        ask: Ask,
        *,
        inbox: Inbox,
        keyboard: Keyboard,
        by: str,
        colour: bool,
        out: Callable[[str], None],
        heading: str = "",
    ) -> None:
        self.ask = ask
        self.typed: list[str] = []
        self._inbox = inbox
        self._keyboard = keyboard
        self._by = by
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
    def card(self) -> Card:
        return Card(self.ask, colour=self._colour, heading=self._heading)

    async def take(self) -> Ask:
        """Ask the person, and again until the desk takes what they say; the ask as it then is.

        Raises Over, Left or EOFError where the prompt ended otherwise, and one of GONE where somebody was faster.
        """
        self._print("", *self.card.head())
        while True:
            answer = await self._hear()
            try:
                if answer.rejected:
                    return await self._inbox.reject(self.ask.id, reason=answer.reason, by=answer.by, via=answer.via)
                return await self._inbox.answer(self.ask.id, answer)
            except GONE:
                raise
            except AnswerDoesNotFit as misfit:
                self._print(*(inert(problem["problem"], keep="") for problem in misfit.problems))
            except HandraiseError as failure:
                self._print(f"The answer could not be sent. {inert(str(failure), keep='')}")

    def _print(self, *lines: str) -> None:
        self._out("\n".join(lines))

    def _print_deadline(self) -> None:
        line = self.card.deadline()
        if line is not None:
            self._print(f"{line} `:w` keeps waiting.")

    async def _hear(self) -> Answer:
        said = await (self._hear_answers() if self.ask.permission is None else self._hear_reply(self.ask.permission))
        if isinstance(said, Decline):
            said = Answer(rejected=True, reason=said.reason)
        return replace(said, by=self._by, via="terminal")

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
            read = partial(parse, question, several=len(questions) > 1)
            draft = drafts[index] if index < len(drafts) else ""
            said = await self._entry(prompt_for(question), read, draft=draft)
            if isinstance(said, Decline):
                return said
            answers.append(said.values if isinstance(said, Choice) else ())
        return Answer(answers=tuple(answers))

    async def _hear_reply(self, permission: Permission) -> Answer | Decline:
        self._print(*self.card.permission(permission), "")
        self._print_deadline()
        while True:
            said = await self._entry(prompt_for(permission), partial(parse_permission, permission))
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
            said = parse_scope(scopes, await self._line(prompt_for_scope(scopes)))
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
                    self._print(help_for(self.ask))
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
            self._print("It has no deadline: it waits until somebody answers.")
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
