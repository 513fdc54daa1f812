"""A scripted model on loopback, for real agent programs that run whole turns without a network and without a key.

It speaks what agents speak: OpenAI's chat completions and responses, Anthropic's messages, streaming or not. It keeps
no state of a conversation: `SCENARIO:<name>` in what the user said picks the script, and the number of the model's own
messages since then picks the step. So it survives retries, resumed sessions and subagents.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias
from uuid import uuid4

__all__ = ["Call", "Hold", "Request", "ScriptedModel", "Step", "call", "raw_call", "repeat"]

Api: TypeAlias = Literal["chat", "messages", "responses"]
Json: TypeAlias = dict[str, Any]

PATHS: Mapping[str, Api] = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "messages",
    "/v1/responses": "responses",
}
MARKER = re.compile(r"SCENARIO:([\w-]+)")
# Tools that Codex 0.166 wants called by a namespace and a name: those of MCP servers, and its own for subagents.
NAMESPACED = re.compile(r"(mcp__.+?|multi_agent_v\d+)__(.+)")
NOTHING_TO_SAY = "ok"
HEAD_LIMIT = 1 << 20  # bytes of a request's head


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model calls. Use `call` or `raw_call` to make one."""

    name: str
    arguments: str  # JSON, or what is to be taken for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an agent sent to the model."""

    at: float  # on the monotonic clock
    api: Api
    headers: Mapping[str, str]  # names in lower case
    body: Json
    scenario: str | None  # None for a side call, which offers no tools, and where nobody named one
    step: int  # counts from 0
    tools: tuple[str, ...]  # the names of those offered
    tool_results: tuple[str, ...]  # what tools said since the scenario began, in the order in which it was sent
    session: str | None  # the agent's own id for the conversation, where it says so
    parent: str | None  # the same for the session that started this one as its subagent


Part: TypeAlias = str | Call
Step: TypeAlias = Part | Sequence[Part] | Callable[[Request], "Step"]


def call(name: str, /, **arguments: object) -> Call:
    """A tool call with these arguments."""
    return Call(name, json.dumps(arguments))


def raw_call(name: str, arguments: str) -> Call:
    """A tool call whose arguments are sent as they stand, broken JSON too."""
    return Call(name, arguments)


def repeat(request: Request) -> str:
    """A step that repeats all that tools said since the scenario began, so that a test sees what reached the model."""
    return "\n".join(request.tool_results) or "no tool said anything"


class Hold:
    """A gate in front of one step of a scenario. Use `ScriptedModel.hold` to get one."""

    def __init__(self) -> None:
        self._released = asyncio.Event()
        self._reached = asyncio.Event()
        self._abandoned = asyncio.Event()

    def release(self) -> None:
        """Let through what waits, and whatever comes later."""
        self._released.set()

    async def reached(self) -> None:
        """Wait until a request waits here, or did."""
        await self._reached.wait()

    async def abandoned(self) -> None:
        """Wait until an agent hung up instead of waiting any longer."""
        await self._abandoned.wait()

    async def _pass(self, reader: asyncio.StreamReader) -> bool:
        """False if the agent hung up first."""
        self._reached.set()
        released = asyncio.ensure_future(self._released.wait())
        hung_up = asyncio.ensure_future(_end_of(reader))
        try:
            await asyncio.wait({released, hung_up}, return_when=asyncio.FIRST_COMPLETED)
            if not self._released.is_set():
                self._abandoned.set()
            return self._released.is_set()
        finally:
            for waiting in (released, hung_up):
                waiting.cancel()
            await asyncio.gather(released, hung_up, return_exceptions=True)


class ScriptedModel:
    """A model that knows beforehand what to say: each scenario is a list of steps, one for each request of the turn.

    A step is a text, which ends the turn, a `call`, a list of those, or a function of the Request that returns one.
    After the last step, and where no scenario is named, the model says "ok". `scenarios` may be changed at any time.

    Use it with `async with`. A step that raises is refused towards the agent, and raised when the block ends.
    """

    def __init__(self, scenarios: Mapping[str, Sequence[Step]] | None = None) -> None:
        self.scenarios: MutableMapping[str, Sequence[Step]] = dict(scenarios or {})
        self.requests: list[Request] = []
        self._port: int | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self._holds: dict[tuple[str, int], Hold] = {}
        self._pauses: dict[tuple[str, int], tuple[int, Hold]] = {}
        self._failures: dict[tuple[str, int], int] = {}  # the status
        self._failures_left: Counter[tuple[str, int]] = Counter()
        self._errors: list[Exception] = []

    @property
    def url(self) -> str:
        """Where it listens, without `/v1`: Anthropic's clients want it like this, OpenAI's with `/v1` behind it."""
        assert self._port is not None, "the model listens only inside `async with`"
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=HEAD_LIMIT)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        if error is None and self._errors:
            raise self._errors[0]

    async def requested(self, number: int = 1, *, scenario: str | None = None) -> Request:
        """The request that came as number so-and-so, of a scenario or of all; waits for it."""

        def those() -> list[Request]:
            return [each for each in self.requests if scenario is None or each.scenario == scenario]

        async with self._changed:
            await self._changed.wait_for(lambda: len(those()) >= number)
        return those()[number - 1]

    def hold(self, scenario: str, *, step: int) -> Hold:
        """Answer this step, counted from 0, only after `release()` of what is returned."""
        return self._holds.setdefault((scenario, step), Hold())

    def pause(self, scenario: str, *, step: int, after: int = 1) -> Hold:
        """Stream the first texts of this step, `after` of them, and the rest only after `release()`.

        For OpenAI's chat completions and Anthropic's messages.
        """
        return self._pauses.setdefault((scenario, step), (after, Hold()))[1]

    def failing(self, scenario: str, *, step: int, status: int, times: int = 1) -> None:
        """Refuse this step with an HTTP status, so many times; then answer it."""
        self._failures[scenario, step] = status
        self._failures_left[scenario, step] = times

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection."""
        try:
            reply = await self._exchange(reader, writer)
            if isinstance(reply, _Paused):
                writer.write(reply.before)
                await writer.drain()
                reply = reply.after if await reply.hold._pass(reader) else None
            if reply is not None:
                writer.write(reply)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (asyncio.IncompleteReadError, OSError):
            pass  # the agent left
        except Exception as error:
            self._errors.append(error)  # raised when the block ends
        finally:
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | _Paused | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the head of the request is too large")
        lines = head.decode("latin-1").split("\r\n")
        method, target, *_ = [*lines[0].split(" "), "", ""]
        fields = (line.partition(":") for line in lines[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        if "transfer-encoding" in headers:
            return _refusal(HTTPStatus.LENGTH_REQUIRED, "send the body with a content-length")
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            return _refusal(HTTPStatus.BAD_REQUEST, "the content-length is not a number")
        body = await reader.readexactly(int(length))
        path = target.partition("?")[0]
        match method, path:
            case (("HEAD" | "GET"), "/"):
                return _response(HTTPStatus.OK, b"", kind="text/plain")
            case "GET", "/v1/models":
                return _response(HTTPStatus.OK, json.dumps(_MODELS).encode())
            case "POST", _ if path in PATHS:
                return await self._answer(PATHS[path], headers, body, reader)
            case _:
                return _refusal(HTTPStatus.NOT_FOUND, f"the scripted model has no {method} {path}")

    async def _answer(
        self, api: Api, headers: Mapping[str, str], raw: bytes, reader: asyncio.StreamReader
    ) -> bytes | _Paused | None:
        try:
            body = json.loads(raw)
            request = _request(api, headers, body)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            return _refusal(HTTPStatus.BAD_REQUEST, f"the body is not what {api} takes: {error!r}")
        async with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        place = (request.scenario or "", request.step)
        if self._failures_left[place] > 0:
            self._failures_left[place] -= 1
            return _refusal(self._failures[place], "this failure was asked for")
        if place in self._holds and not await self._holds[place]._pass(reader):
            return None
        try:
            parts = self._parts(request)
        except Exception as error:  # a step is the test's own code, and the test has to hear of it
            self._errors.append(error)
            return _refusal(HTTPStatus.BAD_REQUEST, f"step {request.step} of {request.scenario} raised {error!r}")
        message = _Message(uuid4().hex, str(body.get("model", "scripted")), parts)
        speaking, whole = _VOICES[api]
        if body.get("stream"):
            frames = list(speaking(message))
            spoken = _response(HTTPStatus.OK, b"".join(frames), kind="text/event-stream")
            if place not in self._pauses:
                return spoken
            texts, hold = self._pauses[place]
            left = len(b"".join(frames[1 + texts * _FRAMES_OF_A_TEXT[api] :]))
            return _Paused(spoken[:-left], hold, spoken[-left:])
        return _response(HTTPStatus.OK, json.dumps(whole(message)).encode())

    def _parts(self, request: Request) -> list[Part]:
        if request.scenario is None:
            return [NOTHING_TO_SAY]
        if request.scenario not in self.scenarios:
            return [f"there is no scenario {request.scenario!r}; there are: {', '.join(self.scenarios) or 'none'}"]
        steps = self.scenarios[request.scenario]
        step: Step = steps[request.step] if request.step < len(steps) else NOTHING_TO_SAY
        while callable(step):
            step = step(request)
        parts = [step] if isinstance(step, str | Call) else list(step)
        for part in parts:
            if not isinstance(part, str | Call):
                raise TypeError(f"a step is made of texts and calls, not of {part!r}")
        return parts


# What an agent sent -------------------------------------------------------------------------------------------------


class _Said(NamedTuple):
    """One entry of a conversation, whichever API it came by."""

    by: Literal["user", "model", "tool"]
    text: str = ""


def _request(api: Api, headers: Mapping[str, str], body: Json) -> Request:
    said = list(_CONVERSATIONS[api](body))
    tools = tuple(_tool_names(body.get("tools") or ()))
    scenario, since = None, 0
    for place, each in enumerate(said):
        if each.by == "user" and (named := MARKER.findall(each.text)):
            scenario, since = named[-1], place
    after = said[since:]
    return Request(
        at=time.monotonic(),
        api=api,
        headers=headers,
        body=body,
        scenario=scenario if tools else None,
        step=sum(each.by == "model" for each in after),
        tools=tools,
        tool_results=tuple(each.text for each in after if each.by == "tool"),
        session=_session(headers),
        parent=headers.get("x-parent-session-id"),
    )


def _chat(body: Json) -> Iterator[_Said]:
    for message in body["messages"]:
        match message["role"]:
            case "user":
                yield _Said("user", _text(message["content"]))
            case "assistant":
                yield _Said("model")
            case "tool":
                yield _Said("tool", _text(message["content"]))


def _messages(body: Json) -> Iterator[_Said]:
    for message in body["messages"]:
        if message["role"] == "assistant":
            yield _Said("model")
        elif message["role"] == "user":
            content = message["content"]
            for block in content if isinstance(content, list) else ():
                if block["type"] == "tool_result":
                    yield _Said("tool", _text(block.get("content") or ""))
            yield _Said("user", _text(content))


def _responses(body: Json) -> Iterator[_Said]:
    """Here the model's message is several items; those that came in one response count as one."""
    items = body["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    speaking, response = False, ""
    for item in items:
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") == "user":
            speaking = False
            yield _Said("user", _text(item["content"]))
        elif kind.endswith("_output"):
            speaking = False
            yield _Said("tool", _text(item["output"]))
        elif kind.endswith("_call") or kind == "reasoning" or item.get("role") == "assistant":
            came_in = _response_of(item)
            # The result of one call may stand between two calls of the same response.
            if not speaking and not (came_in and came_in == response):
                yield _Said("model")
                response = ""
            speaking, response = True, came_in or response


_CONVERSATIONS: Mapping[Api, Callable[[Json], Iterator[_Said]]] = {
    "chat": _chat,
    "messages": _messages,
    "responses": _responses,
}


def _text(content: Any) -> str:
    """Of a string, or of a list of blocks, where what is no text is left out."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return json.dumps(content)
    return "\n".join(block["text"] for block in content if isinstance(block, dict) and "text" in block)


def _tool_names(tools: Sequence[Json]) -> Iterator[str]:
    for tool in tools:
        name = (tool.get("function") or tool).get("name") or tool.get("type", "")
        if "tools" in tool:  # a server's, as Codex groups them
            yield from (f"{name}__{each}" for each in _tool_names(tool["tools"]))
        else:
            yield name


def _session(headers: Mapping[str, str]) -> str | None:
    names = ("x-session-id", "x-claude-code-session-id", "session-id")  # OpenCode 1.18, Claude Code 2.1, Codex 0.166
    return next((headers[name] for name in names if name in headers), None)


# What the model says ------------------------------------------------------------------------------------------------


class _Message(NamedTuple):
    id: str
    model: str
    parts: list[Part]

    def call_id(self, place: int, *, prefix: str = "call") -> str:
        """Unique, and it tells in which message the call was made."""
        return f"{prefix}_{self.id}_{place}"

    @property
    def calls(self) -> bool:
        return any(isinstance(part, Call) for part in self.parts)


def _response_of(item: Json) -> str:
    """The message in which a call of ours was made; empty for what has no such id."""
    found = re.fullmatch(r"call_([0-9a-f]+)_\d+", item.get("call_id") or "")
    return found[1] if found else ""


def _event(data: Json, *, name: str | None = None) -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(data).encode() + b"\n\n"


def _chat_head(message: _Message, kind: str) -> Json:
    return {"id": f"chatcmpl-{message.id}", "object": kind, "created": int(time.time()), "model": message.model}


_CHAT_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def _chat_calls(message: _Message) -> list[Json]:
    calls = ((place, part) for place, part in enumerate(message.parts) if isinstance(part, Call))
    return [
        {
            "id": message.call_id(place),
            "type": "function",
            "function": {"name": part.name, "arguments": part.arguments},
        }
        for place, part in calls
    ]


def _chat_stream(message: _Message) -> Iterator[bytes]:
    head = _chat_head(message, "chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        return _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for part in message.parts:
        if isinstance(part, str):
            yield chunk({"content": part})
    for index, made in enumerate(_chat_calls(message)):
        announced = {**made, "index": index, "function": {**made["function"], "arguments": ""}}
        yield chunk({"tool_calls": [announced]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": made["function"]["arguments"]}}]})
    yield chunk({}, "tool_calls" if message.calls else "stop")
    yield _event({**head, "choices": [], "usage": _CHAT_USAGE})
    yield b"data: [DONE]\n\n"


def _chat_whole(message: _Message) -> Json:
    said: Json = {
        "role": "assistant",
        "content": "".join(part for part in message.parts if isinstance(part, str)) or None,
    }
    if message.calls:
        said["tool_calls"] = _chat_calls(message)
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls" if message.calls else "stop"}
    return {**_chat_head(message, "chat.completion"), "choices": [choice], "usage": _CHAT_USAGE}


def _messages_stream(message: _Message) -> Iterator[bytes]:
    def event(kind: str, **data: object) -> bytes:
        return _event({"type": kind, **data}, name=kind)

    whole = _messages_whole(message)
    yield event("message_start", message={**whole, "content": [], "stop_reason": None})
    for index, (part, block) in enumerate(zip(message.parts, whole["content"], strict=True)):
        delta: Json
        if isinstance(part, str):
            start, delta = {**block, "text": ""}, {"type": "text_delta", "text": part}
        else:
            start, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": part.arguments}
        yield event("content_block_start", index=index, content_block=start)
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=stop, usage={"output_tokens": 1})
    yield event("message_stop")


def _messages_whole(message: _Message) -> Json:
    content: list[Json] = []
    for place, part in enumerate(message.parts):
        if isinstance(part, str):
            content.append({"type": "text", "text": part})
        else:
            id = message.call_id(place, prefix="toolu")
            content.append({"type": "tool_use", "id": id, "name": part.name, "input": _parsed(part.arguments)})
    return {
        "id": f"msg_{message.id}",
        "type": "message",
        "role": "assistant",
        "model": message.model,
        "content": content,
        "stop_reason": "tool_use" if message.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _parsed(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments  # broken on purpose


def _responses_items(message: _Message) -> list[Json]:
    items: list[Json] = []
    for place, part in enumerate(message.parts):
        if isinstance(part, str):
            content = [{"type": "output_text", "text": part, "annotations": []}]
            id = f"msg_{message.id}_{place}"
            items.append({"type": "message", "id": id, "status": "completed", "role": "assistant", "content": content})
            continue
        item = {"type": "function_call", "id": f"fc_{message.id}_{place}", "status": "completed"}
        item |= {"call_id": message.call_id(place), "name": part.name, "arguments": part.arguments}
        if server := NAMESPACED.fullmatch(part.name):
            item |= {"namespace": server[1], "name": server[2]}
        items.append(item)
    return items


def _responses_stream(message: _Message) -> Iterator[bytes]:
    number = iter(range(1_000_000))

    def event(kind: str, **data: object) -> bytes:
        return _event({"type": kind, "sequence_number": next(number), **data}, name=kind)

    whole = _responses_whole(message)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(whole["output"]):
        at = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            part = item["content"][0]
            within = {**at, "content_index": 0}
            announced = {**item, "status": "in_progress", "content": []}
            yield event("response.output_item.added", output_index=index, item=announced)
            yield event("response.content_part.added", **within, part={**part, "text": ""})
            yield event("response.output_text.delta", **within, delta=part["text"])
            yield event("response.output_text.done", **within, text=part["text"])
            yield event("response.content_part.done", **within, part=part)
        else:
            announced = {**item, "status": "in_progress", "arguments": ""}
            yield event("response.output_item.added", output_index=index, item=announced)
            yield event("response.function_call_arguments.delta", **at, delta=item["arguments"])
            yield event("response.function_call_arguments.done", **at, arguments=item["arguments"])
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=whole)


def _responses_whole(message: _Message) -> Json:
    return {
        "id": f"resp_{message.id}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": message.model,
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "output": _responses_items(message),
        "usage": {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        },
    }


_FRAMES_OF_A_TEXT = {"chat": 1, "messages": 3}  # after one that begins the message
_VOICES: Mapping[Api, tuple[Callable[[_Message], Iterator[bytes]], Callable[[_Message], Json]]] = {
    "chat": (_chat_stream, _chat_whole),
    "messages": (_messages_stream, _messages_whole),
    "responses": (_responses_stream, _responses_whole),
}

_MODELS = {
    "object": "list",
    "data": [{"id": "scripted", "object": "model", "type": "model", "created": 0, "owned_by": "scripted"}],
}


class _Paused(NamedTuple):
    """A response of which a part is sent later."""

    before: bytes
    hold: Hold
    after: bytes


# HTTP ---------------------------------------------------------------------------------------------------------------


def _response(status: int, body: bytes, *, kind: str = "application/json") -> bytes:
    # The phrase stays empty: nobody reads it, and 529, by which Anthropic says that it is overloaded, has none.
    head = f"HTTP/1.1 {int(status)} \r\ncontent-type: {kind}\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


def _refusal(status: int, message: str) -> bytes:
    """In a form that both OpenAI's and Anthropic's clients can read."""
    error = {"type": "error", "error": {"type": "scripted_model", "message": message}}
    return _response(status, json.dumps(error).encode())


async def _end_of(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(1 << 16):
            pass
