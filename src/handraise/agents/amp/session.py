"""One conversation with Amp that the desk started: `amp -x` with JSON lines both ways, and a delegate that knocks here.

What Amp says tells nothing of permissions. It runs the delegate for each, and that connects to a socket of ours and
waits. There is no word that stops a turn: an abort ends the program, and the next prompt goes on with its thread, which
is kept at Amp's server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from handraise.agents import Asker, Message, Reply, Start, Wire
from handraise.agents._conversation import ABORTED, Conversation, Held, Prompt, origin_of
from handraise.agents._programs import last_words
from handraise.agents.amp.attach import Called
from handraise.agents.amp.translate import AGENT, from_answer, is_same_call, to_ask, told_later
from handraise.errors import AgentFailed, HandraiseError, ProcessFailed
from handraise.tasks import Tasks
from handraise.transports.bodies import MOST_BYTES
from handraise.transports.loose_json import text_of
from handraise.transports.process import Process
from handraise.wire import BadBody, parse

__all__ = ["DOOR", "AmpSession"]

log = logging.getLogger(__name__)

DOOR = "desk.sock"  # in the session's own folder
NO_LOGIN = "No API key found"  # what it says before it waits for somebody to log in by a browser
LOG_IN = "amp is not logged in; run `amp login`, or give AMP_API_KEY in `[agents.amp] env`"
NOT_TAKEN = "Amp stopped waiting"
DELEGATE = "delegate"  # what listeners know its calls by


class AmpSession:
    """Made by `Amp.open`, which also calls `begin`."""

    def __init__(
        self, *, asker: Asker, start: Start, folder: Path, launch: Callable[[str | None], Awaitable[Process]]
    ) -> None:
        """`folder` is the session's own and goes with it. `launch` starts the program, on a thread if there is one."""
        self._asker = asker
        self._start = start
        self._folder = folder
        self._launch = launch
        self._thread = text_of(start.cut.handle, "thread") if start.cut is not None else ""
        self._is_new = not self._thread
        self._is_aborted = False

    @property
    def handle(self) -> Mapping[str, Any]:
        return {"thread": self._thread, "turns": self._talk.turns}

    @property
    def pid(self) -> int:
        """The program's process."""
        return self._talk.process.pid

    async def begin(self) -> None:
        """Raises AgentFailed where the program does not start."""
        door = str(self._folder / DOOR)
        try:
            self._server = await asyncio.start_unix_server(self._on_delegate, path=door, limit=MOST_BYTES)
        except OSError as error:
            raise AgentFailed(f"there can be no socket at {door} ({error}); set TMPDIR to a shorter folder") from error
        try:
            self._talk = await self._run()
        except BaseException:
            self._server.close()
            raise

    async def _run(self) -> Conversation[Held]:
        try:
            process = await self._launch(self._thread or None)
        except ProcessFailed as error:
            raise AgentFailed(error.message) from error
        talk: Conversation[Held] = Conversation(process, name=AGENT, asker=self._asker, start=self._start)
        talk.begin(lambda: self._listen(process), last_words=lambda: last_words(process))
        return talk

    # Turns ----------------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> Reply:
        """What a worker before us left and nobody goes on with is given up for this."""
        await self._talk.let_go_of_recorded(reason="the session went on with another prompt")
        if self._is_aborted:
            turns = self._talk.turns
            self._talk = await self._run()
            self._talk.recorded.clear()
            self._talk.turns = turns
            self._is_aborted = False
        return await self._prompt(Prompt(text))

    async def go_on(self) -> Reply | None:
        """The calls are gone with their program: the answers are waited for and told in a prompt."""
        prompt = await self._talk.take_up(told_later, is_new=self._is_new)
        return None if prompt is None else await self._prompt(prompt)

    async def _prompt(self, prompt: Prompt) -> Reply:
        turn = self._talk.new_turn(prompt)
        said = {"role": "user", "content": [{"type": "text", "text": prompt.text}]}
        told = {"type": "user", "message": said}
        self._start.listener.seen(Wire(way="out", body=told, name="user"))
        try:
            await self._talk.process.write_line(json.dumps(told).encode())
        except ProcessFailed as error:
            if not turn.reply.done():
                await asyncio.wait([turn.reply], timeout=1.0)  # whoever listens knows better why
            if not turn.reply.done():
                raise AgentFailed(error.message) from error
        # Cancelling the call ends nothing but the waiting; the turn goes on until it is aborted or left.
        return await asyncio.shield(turn.reply)

    async def abort(self) -> None:
        """End the program; `prompt` is cancelled, and the next one starts it again."""
        self._is_aborted = not self._talk.idle.is_set() and not self._talk.is_over
        await self._talk.abort(self._interrupt)

    async def _interrupt(self) -> None:
        await self._talk.withdraw_held(reason=ABORTED)
        self._talk.process.kill()

    async def close(self) -> None:
        await self._talk.close()
        self._clear_away()

    async def leave(self) -> None:
        await self._talk.leave()
        self._clear_away()

    def _clear_away(self) -> None:
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Listening ------------------------------------------------------------------------------------------------------

    async def _listen(self, process: Process) -> None:
        async for line in process.lines():
            self._start.listener.active()
            try:
                message = json.loads(line)
            except ValueError:
                if NO_LOGIN.encode() in line:
                    raise ProcessFailed(LOG_IN) from None
                log.warning("amp %d wrote a line of %d bytes that is not JSON", process.pid, len(line))
                self._start.listener.seen(Wire(way="in", body=line.decode(errors="backslashreplace")))
                continue
            self._start.listener.seen(Wire(way="in", body=message, name=_name(message)))
            if isinstance(message, dict):
                self._hear(message)

    def _hear(self, message: Mapping[str, Any]) -> None:
        thread = text_of(message, "session_id")
        if thread and message.get("parent_tool_use_id") is None:
            self._thread = thread
        match message.get("type"):
            case "assistant":
                self._on_message(message)
            case "result":
                is_failed = message.get("is_error") is True or message.get("subtype", "success") != "success"
                problem = text_of(message, "error") or text_of(message, "subtype") or "it did not say why"
                self._talk.finish(problem=problem if is_failed else "", text=text_of(message, "result"))

    def _on_message(self, message: Mapping[str, Any]) -> None:
        is_main = message.get("parent_tool_use_id") is None
        if is_main:
            self._talk.read_prompt()
        inner = message.get("message")
        content = inner.get("content") if isinstance(inner, Mapping) else None
        for block in content if isinstance(content, list) else ():
            match block:
                case {"type": "text", "text": str(text)} if text:
                    if is_main and self._talk.turn is not None:
                        self._talk.turn.text = text
                    self._start.listener.said(Message(role="agent", text=text))
                case {"type": "tool_use", "name": str(name)}:
                    called = {"name": name, "input": block.get("input")}
                    self._start.listener.said(Message(role="tool", text=name, extra=called))

    # Asking ---------------------------------------------------------------------------------------------------------

    async def _on_delegate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A delegate. Where it leaves before it has its answer, Amp has ended or given the call up."""
        try:
            told = await self._reply_to(await reader.readline(), reader)
            if told is not None:
                self._start.listener.seen(Wire(way="out", body=told, name=DELEGATE, request=told["call"]))
                writer.write(json.dumps(told).encode() + b"\n")
                await writer.drain()
        except (BadBody, ValueError):  # it does not fit, or is no call; without its id nothing is allowed
            log.warning("a call of amp in session %s cannot be understood", self._start.session)
            writer.write(b"{}\n")
        except OSError:
            log.warning("a call of amp in session %s broke off", self._start.session)
        finally:
            writer.close()

    async def _reply_to(self, line: bytes, reader: asyncio.StreamReader) -> dict[str, Any] | None:
        """What the delegate is told; None where nobody waits for it any more."""
        called = parse(Called, line)
        self._start.listener.seen(Wire(way="in", body=json.loads(line), name=DELEGATE, request=called.call))
        try:
            decision = await self._decide(called, reader)
        except HandraiseError as error:
            log.warning("amp asked what became no answer, as %s: %s", called.call, error.code)
            decision = {"decision": "reject", "reason": f"Nobody could be asked: {error.message}"}
        return None if decision is None else {"call": called.call, **decision}

    async def _decide(self, called: Called, reader: asyncio.StreamReader) -> dict[str, Any] | None:
        """None where nobody waits for it any more. Raises HandraiseError where there will be no answer."""
        origin = origin_of(self._start, agent=AGENT)
        ask = to_ask(
            called.tool,
            called.input,
            id=f"{AGENT}:{self._start.session}:{called.call}",
            origin=origin,
            remembers=True,
        )
        granted = self._talk.take_granted(lambda before: is_same_call(before, ask))
        self._start.listener.became(granted[0].id if granted is not None else ask.id, request=called.call)
        if granted is not None:
            self._asker.delivered(granted[0].id)
            return from_answer(*granted)
        held = self._talk.hold(called.call, Held())
        waiting = self._talk.raise_hand(held, ask)
        async with Tasks() as tasks:
            either: set[asyncio.Future[Any]] = {waiting, tasks.start(reader.read())}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            await self._talk.withdraw(self._talk.take_held(lambda other: other is held), reason=NOT_TAKEN)
            return None
        if waiting.cancelled():  # aborted, or left
            return None
        self._talk.release(called.call)
        told = from_answer(ask, waiting.result())
        self._asker.delivered(ask.id)
        return told


def _name(message: Any) -> str:
    """What Amp calls a message."""
    told: Mapping[str, Any] = message if isinstance(message, Mapping) else {}
    return " ".join(word for word in (told.get("type"), told.get("subtype")) if isinstance(word, str))
