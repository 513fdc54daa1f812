"""An agent that plays a script: for tests and demos. No process, no model, no wire."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, Self

from handraise.agents import MODES, AgentSettings, Asker, Capabilities, Message, Reply, Start, Wire
from handraise.asks import Answer, Ask, Origin, Permission, Question
from handraise.errors import AgentFailed, AlreadyAnswered, AskDoesNotFit
from handraise.tasks import Tasks

__all__ = ["Prompted", "Scripted", "ScriptedSession", "plugin"]

log = logging.getLogger(__name__)

Pattern = str | re.Pattern[str]
Response = str | Callable[[list[Answer]], str]


class Prompted(NamedTuple):
    session: str
    text: str


class _Line(NamedTuple):
    """What is asked, or said at the end, when a prompt matches."""

    pattern: re.Pattern[str]
    asks: tuple[Question, ...] | Permission | None = None
    delay: float = 0  # seconds before it asks
    response: Response = ""
    error: str | None = None  # that the turn fails with
    times: int | None = None  # how often; always, where nobody said


class Scripted:
    """Say with `on_question` and `on_permission` what it asks, and with `on` what it replies.

    A prompt raises every ask whose pattern is found in it, in the order they were given and one after the other; the
    first `on` that matches gives the reply, which may be a function of the answers. With `on_failure` and `on_silence`
    the turn fails, or never ends. `asked` and `prompted` keep what happened, over all sessions. One that a desk starts
    by its name has no script, and repeats what it is told.
    """

    name = "scripted"

    def __init__(self, settings: AgentSettings | None = None) -> None:
        self.asked: list[Ask] = []
        self.prompted: list[Prompted] = []
        self._asks: list[_Line] = []
        self._replies: list[_Line] = []
        self._ends: list[_Line] = []
        self._ended: Counter[int] = Counter()
        self._repeats = settings is not None  # nobody has given it a script

    def on(self, pattern: Pattern, response: Response) -> Self:
        self._replies.append(_Line(re.compile(pattern), response=response))
        return self

    def on_question(self, pattern: Pattern, questions: Question | Sequence[Question], *, delay: float = 0) -> Self:
        """Several questions are one ask. It works for `delay` seconds before it asks."""
        asked = (questions,) if isinstance(questions, Question) else tuple(questions)
        self._asks.append(_Line(re.compile(pattern), asked, delay))
        return self

    def on_permission(self, pattern: Pattern, permission: Permission, *, delay: float = 0) -> Self:
        self._asks.append(_Line(re.compile(pattern), permission, delay))
        return self

    def on_failure(self, pattern: Pattern, error: str, *, times: int | None = None) -> Self:
        """After what it asks, the turn fails with this; so many times, or always."""
        self._ends.append(_Line(re.compile(pattern), error=error, times=times))
        return self

    def on_silence(self, pattern: Pattern, *, times: int | None = None) -> Self:
        """After what it asks, it gives no sign of life until it is stopped; so many times, or always."""
        self._ends.append(_Line(re.compile(pattern), times=times))
        return self

    def check(self, start: Start) -> None:
        """It does nothing, so it keeps to every mode."""

    async def open(self, asker: Asker, start: Start) -> ScriptedSession:
        return ScriptedSession(self, asker, start)

    async def look(self, *, probe: bool = False) -> Capabilities:
        return Capabilities(
            agent=self.name,
            installed=True,
            questions=True,
            permissions=True,
            several_questions=True,
            multi_select=True,
            free_text=True,
            notes=True,
            edits=True,
            plans=True,
            resume=True,
            modes=tuple(MODES),
        )

    async def close(self) -> None:
        return

    def asks_for(self, text: str) -> Iterator[tuple[tuple[Question, ...] | Permission, float]]:
        """What it asks on this prompt, each with the seconds before it."""
        for line in self._asks:
            if line.asks is not None and line.pattern.search(text):
                yield line.asks, line.delay

    async def end_of(self, text: str) -> None:
        """Where the turn is to fail it raises AgentFailed, and where it is to be silent it never returns."""
        for number, line in enumerate(self._ends):
            if line.pattern.search(text) and (line.times is None or self._ended[number] < line.times):
                self._ended[number] += 1
                if line.error is not None:
                    raise AgentFailed(line.error)
                await asyncio.Event().wait()

    def reply_to(self, text: str, answers: list[Answer]) -> Reply:
        silence = text if self._repeats else ""
        response = next((line.response for line in self._replies if line.pattern.search(text)), silence)
        return Reply(text=response if isinstance(response, str) else response(answers))


class ScriptedSession:
    """Its asks are called `scripted:{session}:{turn}:{n}`, so that a session that is played again joins them."""

    def __init__(self, agent: Scripted, asker: Asker, start: Start) -> None:
        self._agent = agent
        self._asker = asker
        self._start = start
        self._cut = start.cut
        self._turns = int(start.cut.handle["turns"]) if start.cut is not None else 0
        self._tasks = Tasks()
        self._turn: asyncio.Task[Reply] | None = None
        self._open: str | None = None

    @property
    def handle(self) -> Mapping[str, Any]:
        return {"turns": self._turns}

    async def prompt(self, text: str) -> Reply:
        """Ask what the script says and reply. A rejection is one of the answers and ends nothing; an abort cancels."""
        self._agent.prompted.append(Prompted(self._start.session, text))
        return await self._run(text)

    async def go_on(self) -> Reply | None:
        """Play the turn that was cut off once more: its asks have the same ids, so they are joined."""
        if self._cut is None or self._cut.prompt is None:
            return None
        return await self._run(self._cut.prompt)

    async def _run(self, text: str) -> Reply:
        self._turns += 1
        self._start.listener.seen(Wire(way="out", body={"type": "prompt", "text": text}, name="prompt"))
        # Cancelling this call cancels the turn, which withdraws nothing.
        self._turn = self._tasks.start(self._play(text, turn=self._turns))
        reply = await self._turn
        self._start.listener.seen(Wire(way="in", body={"type": "reply", "text": reply.text}, name="reply"))
        self._start.listener.said(Message(role="agent", text=reply.text))
        return reply

    async def abort(self) -> None:
        """End the running turn, whose `prompt` is cancelled, and withdraw what it waits for."""
        turn, id = self._turn, self._open
        if turn is None or turn.done():
            return
        turn.cancel()
        await asyncio.wait([turn])
        if id is None:
            return
        try:
            await self._asker.withdraw(id, reason="the turn was aborted")
        except AlreadyAnswered:
            self._asker.delivered(id, error="the turn was aborted before it took the answer")

    async def close(self) -> None:
        await self.abort()

    async def leave(self) -> None:
        await self._tasks.close()

    async def _play(self, text: str, *, turn: int) -> Reply:
        answers: list[Answer] = []
        for number, (wanted, delay) in enumerate(self._agent.asks_for(text), start=1):
            await asyncio.sleep(delay)
            answers.append(await self._raise(self._ask(wanted, id=f"{turn}:{number}")))
        await self._agent.end_of(text)
        return self._agent.reply_to(text, answers)

    async def _raise(self, ask: Ask) -> Answer:
        self._agent.asked.append(ask)
        self._open = ask.id
        listener, kind = self._start.listener, "question" if ask.permission is None else "permission"
        wanted = [asdict(question) for question in ask.questions] if ask.permission is None else asdict(ask.permission)
        listener.seen(Wire(way="in", body={"type": kind, "wanted": wanted}, name=kind, ask=ask.id))
        try:
            answer = await self._asker.ask(ask)
        except AskDoesNotFit as misfit:
            log.warning("%s asked what no desk takes, as %s: %s", self._agent.name, ask.id, misfit)
            return Answer(rejected=True, reason=misfit.message, by="desk")
        finally:
            self._open = None
        listener.seen(Wire(way="out", body={"type": "answer", **_as_json(answer)}, name="answer", ask=ask.id))
        self._asker.delivered(ask.id)
        return answer

    def _ask(self, wanted: tuple[Question, ...] | Permission, *, id: str) -> Ask:
        start = self._start
        origin = Origin(
            agent=self._agent.name,
            session=start.session,
            run=start.run,
            step=start.step,
            parent=start.parent,
            cwd=start.cwd,
        )
        id = f"{self._agent.name}:{start.session}:{id}"
        if isinstance(wanted, Permission):
            return Ask(id=id, permission=wanted, origin=origin)
        return Ask(id=id, questions=wanted, origin=origin)


def _as_json(answer: Answer) -> dict[str, Any]:
    """An answer as it would be on a wire, if there were one."""
    fields = asdict(answer)
    return {name: fields[name] for name in ("answers", "reply", "rejected", "reason", "notes", "input") if fields[name]}


plugin = Scripted
