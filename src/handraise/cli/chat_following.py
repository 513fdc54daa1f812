"""One chat as it is at the desk, kept up to date, and how what is said in it is told: each part once, as it comes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from handraise.chat.contract import violation_in
from handraise.cli.calling import chat_path
from handraise.cli.following import stop
from handraise.cli.printing import cut
from handraise.client import Client
from handraise.errors import CursorTooOld, HandraiseError
from handraise.text.inert import inert
from handraise.text.words import Words

__all__ = ["Conversation", "Teller", "header_of", "is_question", "text_of"]

GROWING = ("content", "reasoning_content")  # what grows piece by piece


def is_question(block: Mapping[str, Any]) -> bool:
    return block.get("action_type") == "question_request"


def header_of(block: Mapping[str, Any]) -> str:
    """What a question is called, in a few words."""
    extra = block.get("extra") or {}
    return str(extra.get("questionHeader") or extra.get("questionText") or block.get("content") or "")


def text_of(message: Mapping[str, Any]) -> str:
    return "\n\n".join(str(block["content"]) for block in message["blocks"] if block["type"] == "content")


class Conversation:
    """A chat and its messages, kept up with the desk while the context is open."""

    def __init__(self, client: Client, told: dict[str, Any]) -> None:
        self._client = client
        self._messages: dict[str, dict[str, Any]] = {}
        self._chat: dict[str, Any] = {}
        self._behind: int | None = None  # the version after which something is missing
        self._stale = asyncio.Event()
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()
        self._trouble: HandraiseError | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._take(told)

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._hear()), asyncio.create_task(self._keep_up())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            await stop(task)

    @property
    def id(self) -> str:
        return str(self._chat["id"])

    @property
    def state(self) -> str:
        return str(self._chat["state"])

    @property
    def ask(self) -> str | None:
        """Of the question that waits."""
        return self._chat["ask"]  # type: ignore[no-any-return]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Those that count, in the order they were said."""
        return [said for _, said in sorted(self._messages.items()) if said["state"] != "replaced"]

    @property
    def question(self) -> dict[str, Any] | None:
        """The block of the question that waits."""
        if self.ask is None:
            return None
        last = [block for said in self.messages for block in said["blocks"] if is_question(block)]
        return last[-1] if last else None

    async def news(self) -> None:
        """Return when something is different than at the call before. Raises why nothing more is heard, as where the
        chat was deleted."""
        await self._changed.wait()
        self._changed.clear()
        if self._trouble is not None:
            raise self._trouble

    async def look(self) -> None:
        """Be as the desk is now."""
        async with self._reading:
            behind, self._behind = self._behind, None
            since = self._chat["version"] if behind is None else min(behind, self._chat["version"])
            self._take(await self._client.call("GET", f"{chat_path(self.id)}?since={since}"))

    # What the desk tells ------------------------------------------------------------------------------------

    async def _hear(self) -> None:
        try:
            while True:
                with suppress(CursorTooOld):  # we slept longer than the desk keeps events
                    events = self._client.events(session=self.id, also={"chats": self._stale.set}, drafts=self._grow)
                    async for _ in events:
                        pass  # what happens to its asks changes the chat, too
        except HandraiseError as failure:
            self._fail(failure)

    async def _keep_up(self) -> None:
        try:
            while True:
                await self._stale.wait()
                self._stale.clear()
                await self.look()
        except HandraiseError as failure:
            self._fail(failure)

    def _fail(self, trouble: HandraiseError) -> None:
        self._trouble = trouble
        self._changed.set()

    def _take(self, told: dict[str, Any]) -> None:
        for said in told.pop("messages"):
            before = self._messages.get(said["id"])
            self._messages[said["id"]] = said if before is None else _with_pieces(said, before)
        self._chat = told
        self._changed.set()

    def _grow(self, piece: dict[str, Any]) -> None:
        """Take a piece of a reply, or look again where something before it is missing."""
        if piece.get("chat") != self.id:
            return
        said = self._messages.get(str(piece.get("message")))
        if said is None:
            self._miss(self._chat["version"])
            return
        blocks = said["blocks"]
        if piece["block"] >= len(blocks) or blocks[piece["block"]]["type"] not in GROWING:
            self._miss(said["version"] - 1)
            return
        block = blocks[piece["block"]]
        known = len(block["content"].encode("utf-16-le")) // 2 - piece["offset"]  # as the desk counts
        if known < 0:
            self._miss(said["version"] - 1)
            return
        more = piece["text"].encode("utf-16-le")[2 * known :].decode("utf-16-le", errors="replace")
        if more:
            block["content"] += more
            self._changed.set()

    def _miss(self, version: int) -> None:
        self._behind = max(0, version if self._behind is None else min(version, self._behind))
        self._stale.set()


def _with_pieces(said: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """A message as it was read, with the pieces that came while that was under way."""
    if said["state"] != "writing":
        return said
    for new, old in zip(said["blocks"], before["blocks"], strict=False):
        if new["type"] in GROWING and str(old.get("content", "")).startswith(new["content"]):
            new["content"] = old["content"]
    return said


class Teller:
    """Tells what is said, each part once, as far as it is known.

    `write` takes text as it comes, `beside` a line that is no part of what is said. On a screen, what a model wrote is
    made inert; a program gets it as it is.
    """

    def __init__(
        self, *, t: Words, write: Callable[[str], None], beside: Callable[[str], None] | None, on_screen: bool
    ) -> None:
        self._t = t
        self._write_on = write
        self._beside = beside or self._line
        self._on_screen = on_screen
        self._told: dict[tuple[str, int], int] = {}  # how many characters of a block, 1 for what is told at once
        self._failed: set[tuple[str, int]] = set()  # tools whose failure was told
        self._over: set[str] = set()  # messages of which nothing more is to be told
        self._shown: set[str] = set()  # replies whose question waited when it was first seen, and has a card
        self._has_text: set[str] = set()
        self._open: tuple[str, int] | None = None  # the text that may go on
        self._at_start = True  # of a line

    def know(self, *ids: str) -> None:
        """Whoever reads this has seen these messages."""
        self._over.update(ids)

    def is_behind(self, messages: Iterable[dict[str, Any]]) -> bool:
        return any(said["id"] not in self._over for said in messages)

    def recall(self, messages: list[dict[str, Any]], *, most: int) -> None:
        """What was said before, so that people know where they are: its end."""
        earlier = messages[:-most] if len(messages) > most else []
        if earlier:
            self.know(*(said["id"] for said in earlier))
            self._line(self._t("terminal.chat.earlier", count=len(earlier)))
        self.tell(messages, who="")

    def tell(self, messages: Iterable[dict[str, Any]], *, who: str | None = None) -> None:
        """All that was not told yet. `who` says messages that were not sent from here."""
        before: dict[str, Any] | None = None
        for said in messages:
            if said["id"] not in self._over:
                if said["role"] == "assistant":
                    self._reply(said)
                elif not self._was_answered(before):
                    self._person(said, who=self._t("terminal.by.somebody") if who is None else who)
                if said["state"] != "writing":
                    self.know(said["id"])
            before = said

    def _was_answered(self, before: dict[str, Any] | None) -> bool:
        """Whether the message after this one is the answer to a question, which was told with its card."""
        if before is None or before["id"] not in self._shown:
            return False
        return any(is_question(block) and block["status"] == "success" for block in before["blocks"])

    def end(self) -> None:
        """What comes next begins on a line of its own."""
        self._open = None
        if not self._at_start:
            self._write("\n")

    def _person(self, said: dict[str, Any], *, who: str) -> None:
        lines = inert(text_of(said)).splitlines() or [""]
        begins = f"{who} ›" if who else "›"
        for line in ("", f"{begins} {lines[0]}", *(f"  {line}" for line in lines[1:])):
            self._beside(line)

    def _reply(self, said: dict[str, Any]) -> None:
        for place, block in enumerate(said["blocks"]):
            self._block(said["id"], place, block)
        if said["state"] != "writing":
            self.end()
            if said["state"] == "stopped":
                self._beside(self._t("terminal.chat.stopped"))

    def _block(self, id: str, place: int, block: dict[str, Any]) -> None:
        at, content = (id, place), str(block.get("content", ""))
        told = self._told.get(at, 0)
        if block["type"] == "content":
            if len(content) > told:
                self._text(at, content, told=told)
                self._told[at] = len(content)
            return
        if told == 0:
            self._told[at] = 1
            self._once(id, block, content)
        if block["type"] == "tool_call" and block.get("status") == "error" and at not in self._failed:
            self._failed.add(at)
            self._remark(f"! {block['tool_call']['name']}: {block['tool_call'].get('response', '')}")

    def _once(self, id: str, block: dict[str, Any], content: str) -> None:
        """What is told in a line, when it is first seen."""
        match block["type"]:
            case "reasoning_content":
                self._remark(f"· {self._t('terminal.chat.thinks')}")
            case "tool_call":
                self._remark(f"· {block['tool_call']['name']} {block['tool_call']['params']}")
            case "error":
                self._remark(f"! {self._error(block, content)}", whole=True)
            case "action" if is_question(block):
                if block["status"] == "pending":
                    self._shown.add(id)
                    return
                declined = f" · {self._t('terminal.said.declined')}" if block["status"] == "denied" else ""
                self._remark(f"? {content}{declined}", whole=True)
            case kind:
                self._remark(f"· {block.get('action_type') or kind}: {content}")

    def _error(self, block: dict[str, Any], content: str) -> str:
        """In the reader's language where we have the words for it; a newer desk may have others."""
        violation = violation_in(block)
        try:
            return content if violation is None else violation.text(self._t)
        except KeyError:
            return content

    def _text(self, at: tuple[str, int], content: str, *, told: int) -> None:
        if self._open != at:
            self.end()
            if at[0] in self._has_text:
                self._write("\n")  # texts of one reply are paragraphs
            self._has_text.add(at[0])
            self._open = at
        if not self._on_screen:
            self._write(content[told:])
            return
        # Whether a character hides something depends on the one before it.
        context = content[max(0, told - 1) : told]
        self._write(inert(content[max(0, told - 1) :])[len(inert(context)) :])

    def _remark(self, line: str, *, whole: bool = False) -> None:
        self.end()
        line = inert(line, keep="")
        self._beside(line if whole else cut(line, shutil.get_terminal_size().columns))

    def _line(self, line: str) -> None:
        self.end()
        self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        self._write_on(text)
        self._at_start = text.endswith("\n")
