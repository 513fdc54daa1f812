"""Claude Code's control protocol: JSON lines both ways on the program's stdin and stdout. No idea what an ask is.

    claude -p --input-format stream-json --output-format stream-json --verbose --permission-prompt-tool stdio

Both sides may request something of the other and cancel nothing but their own requests; in between, the program tells
what happens in the conversation.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Literal

from handraise.agents import Listener, Silent, Wire
from handraise.errors import AgentFailed
from handraise.text.inert import inert
from handraise.transports.process import Process

__all__ = ["Control", "blocks_of", "problem_of", "result_text"]

log = logging.getLogger(__name__)


class Control:
    """One running program. Whoever owns it keeps `listen` running; everything else waits for what that hears."""

    def __init__(self, process: Process, *, listener: Listener | None = None) -> None:
        self.process = process
        self._listener = listener or Silent()
        self._numbers = count(1)
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def listen(self, hear: Callable[[dict[str, Any]], None]) -> None:
        """Give every message to `hear`, except what answers a `request`, until the program ends its output."""
        try:
            async for line in self.process.lines():
                try:
                    message = json.loads(line)
                except ValueError:
                    log.warning("claude %d wrote a line of %d bytes that is not JSON", self.process.pid, len(line))
                    self._listener.seen(Wire(way="in", body=line.decode(errors="backslashreplace")))
                    continue
                self._listener.seen(_wire("in", message))
                if not isinstance(message, dict):
                    log.warning("claude %d wrote a line that is no object", self.process.pid)
                elif message.get("type") == "control_response":
                    self._on_response(message.get("response"))
                else:
                    hear(message)
        finally:
            for waiting in self._waiting.values():
                waiting.cancel()

    async def request(self, subtype: str, *, timeout: float, **fields: Any) -> dict[str, Any]:
        """Ask the program something. Raises AgentFailed with its words, or where it says nothing or is gone."""
        id = f"handraise_{next(self._numbers)}"
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[id] = answered
        try:
            await self._write({"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}})
            await asyncio.wait([answered], timeout=timeout)
            if not answered.done():
                raise AgentFailed(f"claude did not answer {subtype!r} in {timeout:.0f} seconds; start it again")
            if answered.cancelled():
                raise AgentFailed(f"claude ended instead of answering {subtype!r}; start it again")
            response = answered.result()
        finally:
            del self._waiting[id]
        if response.get("subtype") != "success":
            raise AgentFailed(f"claude refused {subtype!r}: {response.get('error') or 'it did not say why'}")
        told = response.get("response")
        return told if isinstance(told, dict) else {}

    async def reply(self, request_id: str, response: Mapping[str, Any]) -> None:
        """Answer a request of the program. One it has forgotten is ignored there."""
        answer = {"subtype": "success", "request_id": request_id, "response": response}
        await self._write({"type": "control_response", "response": answer})

    async def refuse(self, request_id: str, problem: str) -> None:
        """Answer a request of the program that we cannot do anything with."""
        answer = {"subtype": "error", "request_id": request_id, "error": problem}
        await self._write({"type": "control_response", "response": answer})

    async def say(self, text: str) -> None:
        """A prompt, as the person would type it."""
        message = {"role": "user", "content": text}
        await self._write({"type": "user", "message": message, "parent_tool_use_id": None, "session_id": "default"})

    async def _write(self, message: Mapping[str, Any]) -> None:
        self._listener.seen(_wire("out", message))
        await self.process.write_line(json.dumps(message).encode())

    def _on_response(self, response: Any) -> None:
        id = response.get("request_id") if isinstance(response, dict) else None
        waiting = self._waiting.get(id) if isinstance(id, str) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(response)


def _wire(way: Literal["in", "out"], message: Any) -> Wire:
    """A message as listeners hear of it, with the id where it is a request of the program or our answer to one."""
    told: Mapping[str, Any] = message if isinstance(message, Mapping) else {}
    kind, request, response = told.get("type"), told.get("request"), told.get("response")
    words, id = [kind, told.get("subtype")], None
    if kind == "control_request" and isinstance(request, Mapping):
        words[1] = request.get("subtype")
        id = told.get("request_id") if way == "in" else None
    elif kind == "control_response" and isinstance(response, Mapping) and way == "out":
        id = response.get("request_id")
    name = " ".join(word for word in words if isinstance(word, str))
    is_piece = kind == "stream_event"
    return Wire(way=way, body=message, name=name, request=id if isinstance(id, str) else None, is_piece=is_piece)


def blocks_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of what was said or of what came of calls."""
    inner = message.get("message")
    content = inner.get("content") if isinstance(inner, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def result_text(block: Mapping[str, Any]) -> str:
    content = block.get("content")
    if isinstance(content, list):
        return "\n".join(str(each.get("text", "")) for each in content if isinstance(each, dict))
    return content if isinstance(content, str) else ""


def problem_of(result: Mapping[str, Any]) -> str:
    """Why a turn failed, in Claude's words; empty if it did not."""
    if result.get("stop_reason") == "tool_deferred_unavailable":
        return "the call that was deferred cannot be taken up here"
    if not result.get("is_error") and result.get("subtype", "success") == "success":
        return ""
    errors = result.get("errors")
    words = [str(each) for each in errors] if isinstance(errors, list) else []
    said = result.get("result")
    if isinstance(said, str) and said:
        words.insert(0, said)
    reason = result.get("terminal_reason") or result.get("subtype") or "it did not say why"
    return inert("; ".join(words) or str(reason))
