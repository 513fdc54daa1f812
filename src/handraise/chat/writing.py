"""One reply of a model, as it is written: text grows, tools run, and a question may end it.

The library drives the model and its tools and repairs malformed arguments once; what a response may ask is decided by
`contract.py`. Nothing is stored here.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from handraise.chat import KEYS, ChatSettings, ModelTable
from handraise.chat.contract import (
    TOOL,
    Block,
    QuestionCall,
    content_block,
    corrected,
    error_block,
    malformed,
    question_of,
    tool_result,
    violation,
    violation_block,
)
from handraise.chat.transcript import Said
from handraise.errors import HandraiseError, SettingsError
from handraise.text.words import speak

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model

__all__ = ["Asked", "Draft", "ModelFailed", "Writer", "key_variable", "load_tools"]

MOST_REFUSED = 2  # questions against the contract in one reply; after that it ends
MOST_REQUESTS = 30  # to the model in one reply
LONGEST_RESULT = 4_000  # characters of what a tool said that are shown
NO_KEY = "none"  # for servers that want a key and look at none
INSTRUCTIONS = (
    "You talk with a person in a chat. When you need the person to decide something, or to choose between likely next "
    f"steps, call the tool `{TOOL}`: one question in a call, the only tool call of your response, and the last thing "
    "you do. The answer comes as the person's next message. Do not repeat the question or its options in your text."
)


class ModelFailed(HandraiseError):
    """The model, or the server it is on, did not give a whole reply. Said in a sentence for people."""

    code = "model_failed"


class Asked(NamedTuple):
    call: QuestionCall
    tool_call: str


class Draft:
    """A reply while it is written. `grown` hears each piece of text: its block, the length of that before, the text."""

    def __init__(self, *, grown: Callable[[int, int, str], None] = lambda place, offset, text: None) -> None:
        self.blocks: list[Block] = []
        self._lengths: dict[int, int] = {}  # of blocks that grow, as JavaScript counts: in UTF-16 code units
        self._grown = grown
        self._messages: list[ModelMessage] = []
        self._known = 0

    def add(self, block: Block) -> int:
        self.blocks.append(block)
        return len(self.blocks) - 1

    def grow(self, place: int, text: str) -> None:
        self.blocks[place]["content"] += text
        before = self._lengths.get(place, 0)
        self._lengths[place] = before + len(text.encode("utf-16-le", "surrogatepass")) // 2
        self._grown(place, before, text)

    def refuse(self, reason: str) -> None:
        self.add(error_block(reason))

    def know(self, messages: Sequence[ModelMessage], *, before: int) -> None:
        """What went between us and the model so far; the first responses, `before` of them, are of earlier replies."""
        self._messages, self._known = list(messages), before

    def raw(self) -> str:
        """What the model has to be shown next time: what it said, with the results of what it called."""
        if not self._messages:  # it was never asked, maybe for want of the library
            return "[]"
        from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, repair_messages

        responses = [at for at, message in enumerate(self._messages) if message.kind == "response"][self._known :]
        own: list[ModelMessage] = self._messages[responses[0] :] if responses else []
        said = "".join(
            part.content for each in own if each.kind == "response" for part in each.parts if part.part_kind == "text"
        )
        shown = "".join(block["content"] for block in self.blocks if block["type"] == "content")
        if len(shown) > len(said):  # it was stopped in the middle of a text
            own.append(ModelResponse(parts=[TextPart(shown[len(said) :])]))
        if question_of(self.blocks) is None:
            own = repair_messages(own)
        return ModelMessagesTypeAdapter.dump_json(own).decode()


class Writer:
    """Use as an async context manager: it holds the connections to models."""

    def __init__(self, settings: ChatSettings) -> None:
        self._settings = settings
        self._client: AsyncClient | None = None
        self._making = asyncio.Lock()
        self._agents: dict[str, Agent[None, Any]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def reply(self, model: str, before: Sequence[Said], draft: Draft) -> Asked | None:
        """Write a reply to what was said before. Returns the question that it ends with, if it ends with one.

        Raises ModelFailed. What was written until then, or until it was cancelled, is in the draft.
        """
        async with self._making:
            agent = await asyncio.to_thread(self._agent, model)
        from pydantic_ai import DeferredToolRequests, DeferredToolResults, ModelRetry
        from pydantic_ai.exceptions import AgentRunError, UserError

        messages = history(before)
        known = sum(message.kind == "response" for message in messages)
        draft.know(messages, before=known)
        results: DeferredToolResults | None = None
        for refused in range(MOST_REFUSED + 1):
            try:
                output, messages = await self._run(agent, messages, results, draft, known=known)
            except (AgentRunError, UserError) as failure:
                raise ModelFailed(_said(failure, model=self._settings.models[model])) from failure
            if not isinstance(output, DeferredToolRequests):
                return None
            last = next(message for message in reversed(messages) if message.kind == "response")
            problem = violation([call.tool_name for call in last.tool_calls])
            [first, *_] = output.calls
            if problem is None:
                return Asked(QuestionCall.model_validate(first.args_as_dict()), first.tool_call_id)
            draft.add(violation_block(problem))
            if refused == MOST_REFUSED:
                break
            refusal = ModelRetry(corrected(problem.text(speak("en"))))
            results = DeferredToolResults(calls={call.tool_call_id: refusal for call in output.calls})
        raise ModelFailed("The model asked against the rules again and again; write to it, or try again.")

    async def _run(
        self,
        agent: Agent[None, Any],
        messages: Sequence[ModelMessage],
        results: Any,
        draft: Draft,
        *,
        known: int,
    ) -> tuple[Any, list[ModelMessage]]:
        """Requests and tools until the model is done or asks. Every response goes into the draft as it comes."""
        from pydantic_ai import Agent as _Agent
        from pydantic_ai import UsageLimits

        limits = UsageLimits(request_limit=MOST_REQUESTS)
        async with agent.iter(message_history=messages, deferred_tool_results=results, usage_limits=limits) as run:
            async for node in run:
                if _Agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as events:
                        await _take_response(events, draft)
                elif _Agent.is_call_tools_node(node):
                    draft.know(run.all_messages(), before=known)
                    async with node.stream(run.ctx) as called:
                        await _take_calls(called, draft)
                draft.know(run.all_messages(), before=known)
            assert run.result is not None
            return run.result.output, run.all_messages()

    def _agent(self, name: str) -> Agent[None, Any]:
        """Made once, in a thread: the library takes a second to be read."""
        if name not in self._settings.models:
            raise ModelFailed(
                f"there is no model {name!r} in the settings any more; there are: "
                f"{', '.join(self._settings.models) or 'none'}"
            )
        if name not in self._agents:
            try:
                import pydantic_ai
                from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, Tool
            except ImportError:
                raise ModelFailed("chats need an extra; install handraise[chat] where the desk runs") from None
            pydantic_ai.BANNER_ENABLED = False  # it would draw itself on the terminal that people chat at

            def question(arguments: QuestionCall) -> str:
                """Ask the person one question and wait. Call it alone, as the last thing of your response."""
                raise CallDeferred

            tools: list[Any] = [Tool(question, name=TOOL, max_retries=1), *load_tools(self._settings.tools)]
            instructions = [INSTRUCTIONS, self._settings.instructions]
            self._agents[name] = Agent(
                self._model(self._settings.models[name]),
                output_type=[str, DeferredToolRequests],
                instructions=[text for text in instructions if text],
                tools=tools,
            )
        return self._agents[name]

    def _model(self, table: ModelTable) -> Model:
        import httpx2

        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=httpx2.Timeout(600, connect=10), follow_redirects=False)
        key = _key(table)
        if table.api == "anthropic":
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            house = AnthropicProvider(api_key=key, base_url=table.url, http_client=self._client)
            return AnthropicModel(table.model, provider=house)
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIChatModel(
            table.model, provider=OpenAIProvider(base_url=table.url, api_key=key, http_client=self._client)
        )


def key_variable(table: ModelTable) -> str | None:
    """Which variable holds the key of a model. That of the API's own house is never sent to another address without
    being named."""
    return table.key_env or (KEYS[table.api] if table.url is None else None)


def _key(table: ModelTable) -> str:
    name = key_variable(table)
    if name is None:
        return NO_KEY
    key = os.environ.get(name, "")
    if not key:
        raise ModelFailed(f"the desk has no key for this model: set {name} where it runs, then start it again")
    return key


def load_tools(names: Sequence[str]) -> list[Callable[..., Any]]:
    """The functions that a model may call besides the question. Raises SettingsError."""
    found: list[Callable[..., Any]] = []
    for name in names:
        module, _, function = name.partition(":")
        try:
            found.append(getattr(importlib.import_module(module), function))
        except (ImportError, AttributeError, ValueError) as problem:
            raise SettingsError(f"[chat] tools has {name!r}, which cannot be loaded: {problem}") from None
    return found


def history(before: Sequence[Said]) -> list[ModelMessage]:
    """What was said, as the model is told it. An answered question returns that the answer follows."""
    from pydantic import ValidationError
    from pydantic_ai.messages import (
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelRequestPart,
        ModelResponse,
        TextPart,
        ToolReturnPart,
        UserPromptPart,
    )

    told: list[ModelMessage] = []
    open_call: Block | None = None
    for said in before:
        if said.role == "user":
            parts: list[ModelRequestPart] = []
            if open_call is not None:
                call = open_call["extra"]["toolCallId"]
                parts.append(ToolReturnPart(tool_name=TOOL, content=tool_result(open_call), tool_call_id=call))
            told.append(ModelRequest(parts=[*parts, UserPromptPart(said.text)]))
            open_call = None
            continue
        open_call = question_of(said.blocks)
        try:
            own = ModelMessagesTypeAdapter.validate_json(said.raw or "[]")
        except ValidationError:  # written by another version of the library
            own, open_call = [ModelResponse(parts=[TextPart(said.text)])], None
        told += own
    return told


async def _take_response(events: Any, draft: Draft) -> None:
    """Text and reasoning, piece by piece."""
    places: dict[int, int] = {}
    async for event in events:
        if event.event_kind == "part_start" and event.part.part_kind in ("text", "thinking"):
            kind = "content" if event.part.part_kind == "text" else "reasoning_content"
            places[event.index] = draft.add({**content_block(""), "type": kind})
            if event.part.content:
                draft.grow(places[event.index], event.part.content)
        elif event.event_kind == "part_delta" and event.index in places and event.delta.content_delta:
            draft.grow(places[event.index], event.delta.content_delta)


async def _take_calls(events: Any, draft: Draft) -> None:
    """Tools that run, and what was wrong with a question that was not understood."""
    places: dict[str, int] = {}
    async for event in events:
        if event.event_kind == "function_tool_call" and event.part.tool_name != TOOL:
            called = {
                "id": event.part.tool_call_id,
                "name": event.part.tool_name,
                "params": event.part.args_as_json_str(),
            }
            places[event.part.tool_call_id] = draft.add({"type": "tool_call", "tool_call": called, "status": "loading"})
        elif event.event_kind == "function_tool_result":
            part = event.part
            if part.tool_name == TOOL:
                if isinstance(part.content, list):
                    draft.refuse(f"{malformed(part.content)} It was told to correct it.")
                continue
            place = places.get(part.tool_call_id)
            if place is None:
                continue
            is_well = getattr(part, "outcome", "success") == "success"
            block = draft.blocks[place]
            said = part.model_response_str() if hasattr(part, "model_response_str") else str(part.content)
            draft.blocks[place] = {
                **block,
                "tool_call": {**block["tool_call"], "response": said[:LONGEST_RESULT]},
                "status": "success" if is_well else "error",
            }


def _said(failure: Exception, *, model: ModelTable) -> str:
    """Why there is no whole reply, for people."""
    from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UsageLimitExceeded

    where = model.url or f"the {model.api} API"
    match failure:
        case ModelHTTPError(status_code=401 | 403):
            key = model.key_env or KEYS[model.api]
            return f"{where} did not accept the key of this model; check {key}, then try again"
        case ModelHTTPError(status_code=404):
            return f"{where} does not know the model {model.model!r}; check its name in [models], then try again"
        case ModelHTTPError(status_code=429):
            return f"{where} has too many requests right now, or the account no credit; try again later"
        case ModelHTTPError(status_code=status):
            return f"{where} answered with an error ({status}): {_short(failure.body)}"
        case ModelAPIError():
            return f"{where} could not be reached: {_short(failure)}; check that it runs, then try again"
        case UsageLimitExceeded():
            return f"the model called tools {MOST_REQUESTS} times without an end; write to it, or try again"
        case UnexpectedModelBehavior() if repr(TOOL) in str(failure):
            return "The model asked a question that cannot be shown, and did not correct it; write to it, or try again"
    return f"the model did not reply as it should: {_short(failure)}"


def _short(about: object) -> str:
    if isinstance(about, Mapping):
        about = about.get("message") or about.get("error") or about
    text = " ".join(str(about).split())
    return text if len(text) <= 300 else f"{text[:299]}…"
