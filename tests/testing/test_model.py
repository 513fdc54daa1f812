"""The scripted model speaks three APIs; real agents run against it in tests/live."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from handraise.testing import ScriptedModel, call, repeat
from handraise.testing.model import Request, raw_call
from handraise.transports.sse import Frames
from tests.helpers.serving import PATIENCE, a_client

APIS = ("chat", "messages", "responses")
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages?beta=true", "responses": "/v1/responses"}


class Talk:
    """A conversation as an agent keeps it: what the model said goes back to it the next time, as its API wants it."""

    def __init__(self, http: httpx2.AsyncClient, api: str, *, stream: bool) -> None:
        self.http, self.api, self.stream = http, api, stream
        self.history: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}
        self.tools = True

    def user(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def result(self, call_id: str, text: str) -> None:
        match self.api:
            case "chat":
                self.history.append({"role": "tool", "tool_call_id": call_id, "content": text})
            case "messages":
                block = {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": text}]}
                self.history.append({"role": "user", "content": [block]})
            case _:
                self.history.append({"type": "function_call_output", "call_id": call_id, "output": text})

    async def model(self) -> tuple[str, list[tuple[str, str, str]]]:
        """One request: the text it said, and its calls as id, name and arguments."""
        response = await self.post()
        assert response.status_code == 200, response.text
        said = SAID[self.api](response.text, self.stream)
        self.history += said if isinstance(said, list) else [said]
        return READ[self.api](said)

    async def post(self) -> httpx2.Response:
        offered = {"name": "look", "description": "looks", "parameters": {"type": "object"}}
        tools = [{"type": "function", "function": offered} if self.api == "chat" else {"type": "function", **offered}]
        body = {
            "model": "any",
            "stream": self.stream,
            "input" if self.api == "responses" else "messages": self.history,
            **({"tools": tools} if self.tools else {}),
        }
        return await self.http.post(PATHS[self.api], json=body, headers=self.headers)


def events(text: str) -> list[tuple[str, Any]]:
    return [(frame.event, frame.data) for frame in Frames().feed(text.encode())]


def said_in_chat(text: str, stream: bool) -> dict[str, Any]:
    if not stream:
        message: dict[str, Any] = json.loads(text)["choices"][0]["message"]
        return message
    *chunks, done = [data for _, data in events(text)]
    assert done == "[DONE]"
    content, calls, finish = "", {}, None
    for chunk in map(json.loads, chunks):
        for choice in chunk["choices"]:
            content += choice["delta"].get("content", "")
            finish = choice["finish_reason"] or finish
            for part in choice["delta"].get("tool_calls", []):
                whole = calls.setdefault(part["index"], part)
                if whole is not part:
                    whole["function"]["arguments"] += part["function"]["arguments"]
    assert finish == ("tool_calls" if calls else "stop")
    return {"role": "assistant", "content": content, "tool_calls": list(calls.values())}


def said_in_messages(text: str, stream: bool) -> dict[str, Any]:
    if not stream:
        message = json.loads(text)
        return {"role": message["role"], "content": message["content"]}
    blocks: list[dict[str, Any]] = []
    kinds = []
    for name, data in events(text):
        event = json.loads(data)
        assert event["type"] == name
        kinds.append(name)
        if name == "content_block_start":
            blocks.append(event["content_block"])
        elif name == "content_block_delta":
            match event["delta"]:
                case {"type": "text_delta", "text": more}:
                    blocks[-1]["text"] += more
                case {"type": "input_json_delta", "partial_json": arguments}:
                    blocks[-1]["input"] = json.loads(arguments) if arguments != "{broken" else arguments
    assert (kinds[0], *kinds[-2:]) == ("message_start", "message_delta", "message_stop")
    return {"role": "assistant", "content": blocks}


def said_in_responses(text: str, stream: bool) -> list[dict[str, Any]]:
    if not stream:
        output: list[dict[str, Any]] = json.loads(text)["output"]
        return output
    told = [json.loads(data) for _, data in events(text)]
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert (told[0]["type"], told[-1]["type"]) == ("response.created", "response.completed")
    items = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert items == told[-1]["response"]["output"]
    deltas = [event["delta"] for event in told if event["type"].endswith(".delta")]
    assert deltas == [item["arguments"] if "arguments" in item else item["content"][0]["text"] for item in items]
    return items


def read_chat(said: Any) -> tuple[str, list[tuple[str, str, str]]]:
    calls = [
        (made["id"], made["function"]["name"], made["function"]["arguments"]) for made in said.get("tool_calls", [])
    ]
    return said["content"] or "", calls


def read_messages(said: Any) -> tuple[str, list[tuple[str, str, str]]]:
    texts = [block["text"] for block in said["content"] if block["type"] == "text"]
    uses = [block for block in said["content"] if block["type"] == "tool_use"]
    written = [use["input"] if isinstance(use["input"], str) else json.dumps(use["input"]) for use in uses]
    return "".join(texts), [(use["id"], use["name"], text) for use, text in zip(uses, written, strict=True)]


def read_responses(said: Any) -> tuple[str, list[tuple[str, str, str]]]:
    texts = [item["content"][0]["text"] for item in said if item["type"] == "message"]
    calls = [item for item in said if item["type"] == "function_call"]
    return "".join(texts), [(made["call_id"], made["name"], made["arguments"]) for made in calls]


SAID: dict[str, Any] = {"chat": said_in_chat, "messages": said_in_messages, "responses": said_in_responses}
READ: dict[str, Any] = {"chat": read_chat, "messages": read_messages, "responses": read_responses}


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as listening:
        yield listening


@pytest.fixture
async def http(model: ScriptedModel) -> AsyncIterator[httpx2.AsyncClient]:
    async with a_client(model.url, None) as client:
        yield client


@pytest.fixture(params=[(api, stream) for api in APIS for stream in (True, False)], ids=lambda p: f"{p[0]}-{p[1]}")
def talk(request: pytest.FixtureRequest, http: httpx2.AsyncClient) -> Talk:
    api, stream = request.param
    return Talk(http, api, stream=stream)


# Scenarios and steps ------------------------------------------------------------------------------------------------


async def test_a_turn_goes_through_its_steps(model: ScriptedModel, talk: Talk) -> None:
    model.scenarios["two"] = [["I look.", call("look", name="here"), call("look", name="there")], repeat, "never said"]
    talk.user("please do SCENARIO:two")
    text, calls = await talk.model()
    assert text == "I look."
    assert [(name, json.loads(arguments)) for _, name, arguments in calls] == [
        ("look", {"name": "here"}),
        ("look", {"name": "there"}),
    ]
    for (id, *_), found in zip(calls, ("a cat", "a dog"), strict=True):
        talk.result(id, found)
    assert await talk.model() == ("a cat\na dog", [])
    assert [(each.api, each.scenario, each.step) for each in model.requests] == [
        (talk.api, "two", 0),
        (talk.api, "two", 1),
    ]
    assert model.requests[1].tool_results == ("a cat", "a dog")
    assert model.requests[0].tools == ("look",)


async def test_the_newest_scenario_counts_and_the_last_one_named_in_a_text(model: ScriptedModel, talk: Talk) -> None:
    model.scenarios |= {"first": [call("look"), "first again"], "second": [repeat]}
    talk.user("SCENARIO:first")
    _, [(id, *_)] = await talk.model()
    talk.result(id, "old news SCENARIO:second")
    assert await talk.model() == ("first again", []), "a tool names no scenario"
    talk.user("not SCENARIO:first but SCENARIO:second")
    assert await talk.model() == ("no tool said anything", [])
    talk.user("SCENARIO:first")
    assert len((await talk.model())[1]) == 1, "it begins at its first step again"
    talk.user("what somebody typed meanwhile")
    assert await talk.model() == ("first again", [])


async def test_a_request_sent_again_gets_the_same_step_with_other_ids(model: ScriptedModel, talk: Talk) -> None:
    model.scenarios["one"] = [call("look")]
    talk.user("SCENARIO:one")
    _, [(first, *_)] = await talk.model()
    talk.history.pop()
    _, [(second, *_)] = await talk.model()
    assert first != second
    assert [each.step for each in model.requests] == [0, 0]


async def test_who_names_no_scenario_or_is_at_its_end_hears_ok(model: ScriptedModel, talk: Talk) -> None:
    model.scenarios["short"] = ["a"]
    talk.user("hello")
    assert await talk.model() == ("ok", [])
    talk.user("SCENARIO:short")
    assert await talk.model() == ("a", [])
    assert await talk.model() == ("ok", [])
    talk.user("SCENARIO:shrot")
    assert await talk.model() == ("there is no scenario 'shrot'; there are: short", [])


async def test_a_side_call_without_tools_takes_no_step(model: ScriptedModel, talk: Talk) -> None:
    model.scenarios["one"] = ["never said"]
    talk.tools = False
    talk.user("SCENARIO:one")
    assert await talk.model() == ("ok", [])
    assert (model.requests[0].scenario, model.requests[0].tools) == (None, ())


async def test_arguments_may_be_broken(model: ScriptedModel, talk: Talk) -> None:
    model.scenarios["broken"] = [raw_call("look", "{broken")]
    talk.user("SCENARIO:broken")
    _, calls = await talk.model()
    assert [call[1:] for call in calls] == [("look", "{broken")]


async def test_a_step_may_depend_on_the_request(model: ScriptedModel, talk: Talk) -> None:
    def again(request: Request) -> Any:
        return [call("look"), "more"] if "more" not in request.tool_results else repeat

    model.scenarios["loop"] = [again, again, again]
    talk.user("SCENARIO:loop")
    for found in ("little", "more"):
        _, [(id, *_)] = await talk.model()
        talk.result(id, found)
    assert await talk.model() == ("little\nmore", [])


async def test_a_step_that_raises_is_heard_of(talk: Talk) -> None:
    def wrong(request: Request) -> str:
        raise LookupError(request.scenario)

    async def run() -> None:
        async with ScriptedModel({"bad": [wrong]}) as model, a_client(model.url, None) as http:
            other = Talk(http, talk.api, stream=talk.stream)
            other.user("SCENARIO:bad")
            refused = await other.post()
            assert refused.status_code == 400
            assert "LookupError" in refused.json()["error"]["message"]

    with pytest.raises(LookupError, match="bad"):
        await run()


async def test_results_between_the_calls_of_one_response_are_one_step(
    model: ScriptedModel, http: httpx2.AsyncClient
) -> None:
    model.scenarios["two"] = [[call("look"), call("look")], repeat]
    talk = Talk(http, "responses", stream=True)
    talk.user("SCENARIO:two")
    _, calls = await talk.model()
    user, *made = talk.history
    talk.history = [user]
    for item, (id, *_), found in zip(made, calls, ("a cat", "a dog"), strict=True):
        talk.history.append(item)
        talk.result(id, found)
    assert await talk.model() == ("a cat\na dog", [])


async def test_the_tool_of_an_mcp_server_goes_with_its_namespace(
    model: ScriptedModel, http: httpx2.AsyncClient
) -> None:
    model.scenarios["mcp"] = [call("mcp__desk__ask_human", text="?")]
    talk = Talk(http, "responses", stream=True)
    talk.user("SCENARIO:mcp")
    await talk.model()
    assert (talk.history[-1]["namespace"], talk.history[-1]["name"]) == ("mcp__desk", "ask_human")


async def test_the_session_of_an_agent_is_known(model: ScriptedModel, http: httpx2.AsyncClient) -> None:
    talk = Talk(http, "chat", stream=True)
    talk.headers = {"X-Session-Id": "ses_2", "X-Parent-Session-Id": "ses_1"}
    talk.user("hello")
    await talk.model()
    await Talk(http, "chat", stream=True).model()
    assert [(each.session, each.parent) for each in model.requests] == [("ses_2", "ses_1"), (None, None)]
    assert model.requests[0].headers["x-session-id"] == "ses_2"


# Waiting, holding, failing ------------------------------------------------------------------------------------------


async def test_a_test_can_wait_for_a_request(model: ScriptedModel, talk: Talk) -> None:
    model.scenarios["one"] = ["a", "b"]
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        second = tasks.create_task(model.requested(2, scenario="one"))
        any_third = tasks.create_task(model.requested(3))
        talk.user("hello")
        await talk.model()
        talk.user("SCENARIO:one")
        await talk.model()
        assert not second.done()
        await talk.model()
    assert second.result() is any_third.result() is model.requests[2]


async def test_a_step_that_is_held_is_answered_after_its_release(model: ScriptedModel, talk: Talk) -> None:
    model.scenarios["one"] = ["a", "b"]
    hold = model.hold("one", step=1)
    talk.user("SCENARIO:one")
    await talk.model()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        held = tasks.create_task(talk.model())
        await hold.reached()
        other = Talk(talk.http, talk.api, stream=talk.stream)
        other.user("SCENARIO:one")
        assert await other.model() == ("a", []), "another step is not held"
        assert not held.done()
        hold.release()
    assert held.result() == ("b", [])


async def test_an_agent_that_hangs_up_while_held_is_noticed(model: ScriptedModel) -> None:
    model.scenarios["one"] = ["a"]
    hold = model.hold("one", step=0)
    async with asyncio.timeout(PATIENCE), a_client(model.url, None) as http:
        talk = Talk(http, "chat", stream=True)
        talk.user("SCENARIO:one")
        asking = asyncio.ensure_future(talk.model())
        await hold.reached()
        asking.cancel()
        await asyncio.wait([asking])
        await hold.abandoned()
        hold.release()
        assert await talk.model() == ("a", [])


async def test_a_model_that_closes_lets_go_of_whom_it_holds() -> None:
    async with asyncio.timeout(PATIENCE):
        async with ScriptedModel({"one": ["a"]}) as model:
            hold = model.hold("one", step=0)
            http = a_client(model.url, None)
            talk = Talk(http, "messages", stream=True)
            talk.user("SCENARIO:one")
            asking = asyncio.ensure_future(talk.model())
            await hold.reached()
        with pytest.raises(httpx2.TransportError):
            await asking
        await http.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_step_fails_as_often_as_it_was_told_to(model: ScriptedModel, talk: Talk) -> None:
    model.scenarios["one"] = ["a"]
    model.failing("one", step=0, status=529, times=2)
    talk.user("SCENARIO:one")
    assert [(await talk.post()).status_code for _ in range(2)] == [529, 529]
    assert await talk.model() == ("a", [])


# HTTP ---------------------------------------------------------------------------------------------------------------


async def test_many_at_once_with_large_bodies(model: ScriptedModel, http: httpx2.AsyncClient) -> None:
    model.scenarios |= {f"s{number}": [f"text {number}"] for number in range(20)}
    talks = [Talk(http, APIS[number % 3], stream=True) for number in range(20)]
    for number, talk in enumerate(talks):
        talk.user("x" * (4 << 20 if number < 3 else 1000) + f" SCENARIO:s{number}")
    said = await asyncio.gather(*(talk.model() for talk in talks))
    assert said == [(f"text {number}", []) for number in range(20)]


async def test_what_else_it_is_asked(model: ScriptedModel, http: httpx2.AsyncClient) -> None:
    assert (await http.head("/")).status_code == 200
    assert [each["id"] for each in (await http.get("/v1/models")).json()["data"]] == ["scripted"]
    unknown = await http.post("/v1/embeddings", json={})
    assert (unknown.status_code, unknown.json()["error"]["message"]) == (
        404,
        "the scripted model has no POST /v1/embeddings",
    )
    for body in (b"{", b"[]", b"{}", b'{"messages": 3}'):
        assert (await http.post("/v1/messages", content=body)).status_code == 400
    assert model.requests == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /v1/messages HTTP/1.1\r\ncontent-length: many\r\n\r\n", b"400"),
        (b"POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"411"),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * (2 << 20) + b"\r\n\r\n", b"431"),
        (b"nonsense\r\n\r\n", b"404"),
        (b"POST /v1/messages HTTP/1.1\r\ncontent-length: 9\r\n\r\nshort", b""),
    ],
    ids=["length", "chunked", "large head", "nonsense", "cut off"],
)
async def test_whatever_arrives_it_goes_on(model: ScriptedModel, sent: bytes, status: bytes) -> None:
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(model.url.rpartition(":")[2]))
        writer.write(sent)
        writer.write_eof()
        try:
            got = await reader.read()
        except ConnectionResetError:
            got = b" 431"  # it does not read on what it has refused
        writer.close()
        async with a_client(model.url, None) as http:
            assert (await http.head("/")).status_code == 200
    assert got.partition(b" ")[2][:3] == status
