"""The question tool for agents that speak MCP: the real server on real pipes, the package's own client, a real desk."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Implementation

from handraise.asks import Answer, Ask, Option, Origin, Question
from handraise.errors import AskDoesNotFit
from handraise.mcp.translate import base_of, session_of, to_ask, to_result
from tests.helpers.serving import PATIENCE, START, DeskProcess, Served, first_event, listening, path_of, serving, told
from tests.helpers.trusting import trust_project

ERAS = ["legacy", "2026-07-28"]
WHICH = {"questions": [{"question": "Which database?", "header": "DB", "options": ["SQLite", {"label": "Postgres"}]}]}
ORIGIN = Origin(agent="codex", session="s1")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "home") as served:
        yield served


@asynccontextmanager
async def an_agent(folder: Path, *options: str, mode: str = "legacy", **environ: str) -> AsyncIterator[Client]:
    """A client that has started `handraise mcp` in a project, and knows the desk by its home."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    started = StdioServerParameters(
        command=sys.executable,
        args=["-m", "handraise", "mcp", *options],
        env=environment(folder, **environ),
        cwd=project,
    )
    with (folder / "mcp.log").open("a") as log:
        transport = stdio_client(started, errlog=log)
        async with Client(transport, mode=mode, client_info=Implementation(name="codex", version="1")) as client:
            yield client


def environment(folder: Path, **changes: str) -> dict[str, str]:
    mine = {key: value for key, value in os.environ.items() if not key.startswith(("HANDRAISE_", "XDG_"))}
    return mine | {"HANDRAISE_HOME": str(folder / "home"), "XDG_CONFIG_HOME": str(folder)} | changes


async def call(agent: Client, tool: str, arguments: Mapping[str, Any], **how: Any) -> CallToolResult:
    async with asyncio.timeout(START):
        return await agent.call_tool(tool, dict(arguments), **how)


async def noticed(agent: Client) -> None:
    """Until the server has heard that a call before was cancelled: it reads one message after the other."""
    assert (await call(agent, "question_result", {"request_id": "mcp_none", "wait_seconds": 0})).is_error


def result_of(result: CallToolResult) -> dict[str, Any]:
    """The JSON of a result that is none of an error."""
    assert not result.is_error, texts(result)
    parsed: dict[str, Any] = json.loads(texts(result)[0])
    return parsed


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content]  # type: ignore[union-attr]


async def asked(desk: Served, *, number: int = 1) -> Ask:
    """The first, second, … ask of the desk; waits for it, and for a server that starts."""
    seen = 0

    def is_it(event: Any) -> bool:
        nonlocal seen
        seen += event.type == "asked"
        return seen == number

    async with asyncio.timeout(START):
        while True:
            seen = 0
            try:
                return (await first_event(desk.broker, is_it)).ask  # type: ignore[attr-defined,no-any-return]
            except TimeoutError:
                continue  # an agent that starts takes longer than an event


async def happened(desk: Served, type: str) -> Any:
    return await first_event(desk.broker, lambda event: event.type == type)


async def count(desk: Served) -> int:
    return len((await told(desk.http.get("/v1/asks"), 200))["asks"])


# Questions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_a_question_is_answered_and_only_then_delivered(mode: str, desk: Served, tmp_path: Path) -> None:
    heard = asyncio.Event()

    async def progress(at: float, total: float | None, message: str | None) -> None:
        heard.set()

    async with an_agent(tmp_path, mode=mode) as agent, asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call(agent, "question", WHICH, progress_callback=progress))
        ask = await asked(desk)
        await asyncio.wait_for(heard.wait(), PATIENCE)
        assert (ask.origin.agent, ask.origin.cwd) == ("codex", str(tmp_path / "project"))
        assert ask.origin.session.startswith("mcp:")
        assert (await desk.answer(ask.id, "Postgres"))["delivered_at"] is None
        result = await calling
        assert result_of(result) == {"status": "answered", "answers": [["Postgres"]], "request_id": ask.id}
        assert texts(result)[1] == 'The answer: DB → "Postgres".'
        assert (await happened(desk, "delivered")).ask.id == ask.id


@pytest.mark.parametrize("mode", ERAS)
async def test_the_tools_are_listed_in_both_eras(mode: str, tmp_path: Path) -> None:
    async with an_agent(tmp_path, mode=mode) as agent:
        tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
    assert list(tools) == ["question", "question_result", "permission_prompt"]
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())


async def test_a_rejection_tells_the_reason(desk: Served, tmp_path: Path) -> None:
    async with an_agent(tmp_path) as agent, asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call(agent, "question", WHICH))
        ask = await asked(desk)
        await told(desk.http.post(path_of(ask.id, "reject"), json={"reason": "use what is there"}), 200)
        result = await calling
        assert result_of(result) == {"status": "rejected", "reason": "use what is there", "request_id": ask.id}
        assert "use what is there" in texts(result)[1]
        await happened(desk, "delivered")


async def test_several_questions_are_one_ask(desk: Served, tmp_path: Path) -> None:
    questions = [
        {"question": "Which hosts?", "options": [{"label": "web"}, {"label": "db"}], "multiSelect": True},
        {"question": "What is it called?", "kind": "text"},
        {"question": "Anything else?"},
    ]
    async with an_agent(tmp_path) as agent, asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call(agent, "question", {"questions": questions, "context": "We release."}))
        ask = await asked(desk)
        assert [question.question for question in ask.questions] == [
            "We release.\n\nWhich hosts?",
            "What is it called?",
            "Anything else?",
        ]
        said = {"answers": [["web", "db"], ["Early Bird"], []], "notes": ["both", None, None]}
        await told(desk.http.post(path_of(ask.id, "answer"), json=said), 200)
        result = await calling
    assert result_of(result) == {"status": "answered", **said, "request_id": ask.id}
    assert texts(result)[1] == (
        'The answer: Which hosts? → "web", "db" (note: both); What is it called? → "Early Bird"; '
        "Anything else? → left open."
    )


@pytest.mark.parametrize("mode", ERAS)
async def test_a_question_that_takes_long_is_pending_and_picked_up(mode: str, desk: Served, tmp_path: Path) -> None:
    async with an_agent(tmp_path, "--limit", "1", mode=mode) as agent:
        pending = await call(agent, "question", WHICH)
        id = result_of(pending)["request_id"]
        assert result_of(pending) == {"status": "pending", "request_id": id}
        assert "question_result" in texts(pending)[1]
        looked = await call(agent, "question_result", {"request_id": id, "wait_seconds": 0})
        assert result_of(looked)["status"] == "pending"
        answered = await desk.answer(id, "SQLite")
        assert answered["delivered_at"] is None
        result = await call(agent, "question_result", {"request_id": id})
        assert result_of(result) == {"status": "answered", "answers": [["SQLite"]], "request_id": id}
        await happened(desk, "delivered")


async def test_a_call_that_timed_out_and_is_made_again_joins(desk: Served, tmp_path: Path) -> None:
    async with an_agent(tmp_path) as agent, asyncio.TaskGroup() as tasks:
        with pytest.raises(MCPError):
            await agent.call_tool("question", WHICH, read_timeout_seconds=0.2)
        await noticed(agent)
        again = {"questions": [{**WHICH["questions"][0], "question": " Which database? "}]}
        calling = tasks.create_task(call(agent, "question", again))
        ask = await asked(desk)
        await desk.answer(ask.id, "SQLite")
        assert result_of(await calling)["answers"] == [["SQLite"]]
        assert await count(desk) == 1


@pytest.mark.parametrize("mode", ERAS)
async def test_an_answer_to_a_cancelled_call_is_kept_for_the_next(mode: str, desk: Served, tmp_path: Path) -> None:
    async with an_agent(tmp_path, mode=mode) as agent, asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call(agent, "question", WHICH))
        ask = await asked(desk)
        calling.cancel()
        await asyncio.wait([calling])
        await noticed(agent)
        assert (await desk.answer(ask.id, "SQLite"))["delivered_at"] is None
        assert result_of(await call(agent, "question", WHICH)) == {
            "status": "answered",
            "answers": [["SQLite"]],
            "request_id": ask.id,
        }
        # What was taken is over: the same question is a new one.
        calling = tasks.create_task(call(agent, "question", WHICH))
        newer = await asked(desk, number=2)
        assert newer.id != ask.id
        await desk.answer(newer.id, "Postgres")
        assert result_of(await calling)["answers"] == [["Postgres"]]


async def test_the_agent_says_which_conversation_asks(desk: Served, tmp_path: Path) -> None:
    async with an_agent(tmp_path) as agent, asyncio.TaskGroup() as tasks:
        meta: Any = {"threadId": "thread-7"}
        calling = tasks.create_task(call(agent, "question", WHICH, meta=meta))
        ask = await asked(desk)
        assert ask.origin.session == "thread-7"
        await desk.answer(ask.id, "SQLite")
        await calling


async def test_the_policy_of_the_project_decides(desk: Served, tmp_path: Path) -> None:
    async with an_agent(tmp_path) as agent:
        (tmp_path / "project" / "handraise.toml").write_text('[policy]\nquestion_policy = "accept-first"\n')
        trust_project(tmp_path / "project", home=desk.settings.home)
        result = await call(agent, "question", WHICH)
    assert result_of(result)["answers"] == [["SQLite"]]
    assert "No person was asked" in texts(result)[1]


async def test_what_somebody_else_asked_is_not_told(desk: Served, tmp_path: Path) -> None:
    other = await desk.ask(id="mcp_other")
    await desk.answer(other["id"], "SQLite")
    async with an_agent(tmp_path) as agent:
        for id in (other["id"], "mcp_none"):
            result = await call(agent, "question_result", {"request_id": id})
            assert result.is_error
            assert "there is no question" in texts(result)[0]


async def test_malformed_arguments_are_corrected_and_nobody_is_asked(desk: Served, tmp_path: Path) -> None:
    async with an_agent(tmp_path) as agent:
        questions = [{"question": "Fine?"}, {"header": 7, "options": [{}, "a", "a"]}]
        result = await call(agent, "question", {"questions": questions})
        assert result.is_error
        assert texts(result)[0] == (
            "Nobody was asked: question 2: `question` is missing; give the text to ask; question 2: `header` is a "
            "text; question 2: option 1 has no `label`; question 2: two options are called 'a'; give each a label of "
            "its own. Correct the arguments and call question again."
        )
        for tool, arguments in (("question_result", {"wait_seconds": -1}), ("permission_prompt", {}), ("unknown", {})):
            assert (await call(agent, tool, arguments)).is_error
    assert await count(desk) == 0


# Permissions --------------------------------------------------------------------------------------------------------

BASH = {"tool_name": "Bash", "input": {"command": "rm -rf build"}, "tool_use_id": "toolu_1"}


@pytest.mark.parametrize(
    ("said", "decision"),
    [
        ({"reply": "once"}, {"behavior": "allow", "updatedInput": {"command": "rm -rf build"}}),
        (
            {"reply": "once", "input": {"command": "rm -r build"}},
            {"behavior": "allow", "updatedInput": {"command": "rm -r build"}},
        ),
        ({"reply": "reject", "message": "not today"}, {"behavior": "deny", "message": "not today"}),
    ],
    ids=["allow", "edited", "deny"],
)
async def test_a_permission_prompt_is_decided(
    said: dict[str, Any], decision: dict[str, Any], desk: Served, tmp_path: Path
) -> None:
    async with an_agent(tmp_path, "--limit", "1") as agent, asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call(agent, "permission_prompt", BASH))
        ask = await asked(desk)
        assert ask.permission is not None and ask.permission.command == "rm -rf build"
        await told(desk.http.post(path_of(ask.id, "answer"), json=said), 200)
        result = await calling
        assert len(result.content) == 1
        assert result_of(result) == decision
        await happened(desk, "delivered")


async def test_a_permission_whose_call_was_given_up_is_withdrawn(desk: Served, tmp_path: Path) -> None:
    async with an_agent(tmp_path) as agent, asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call(agent, "permission_prompt", BASH))
        await asked(desk)
        calling.cancel()
        withdrawn = await happened(desk, "withdrawn")
        assert withdrawn.ask.withdrawn_reason == "the agent gave up the call"


# Coming and going ---------------------------------------------------------------------------------------------------


async def test_an_agent_that_ends_leaves_no_question_behind(desk: Served, tmp_path: Path) -> None:
    async with an_agent(tmp_path, "--limit", "1") as agent:
        left = result_of(await call(agent, "question", WHICH))["request_id"]
        other = {"questions": [{"question": "Which name?"}]}
        answered = result_of(await call(agent, "question", other))["request_id"]
        await desk.answer(answered, "Bird")
    withdrawn = await desk.get(left)
    assert (withdrawn["state"], withdrawn["withdrawn_reason"]) == ("withdrawn", "the agent that asked is gone")
    kept = await desk.get(answered)
    assert kept["state"] == "answered" and kept["delivered_at"] is None
    assert "had not taken the answer" in kept["delivery_error"]


async def test_a_named_session_gets_the_answer_that_it_missed(desk: Served, tmp_path: Path) -> None:
    async with an_agent(tmp_path, "--session", "release", "--limit", "1") as agent:
        id = result_of(await call(agent, "question", WHICH))["request_id"]
        await desk.answer(id, "SQLite")
    async with an_agent(tmp_path, "--session", "release") as agent:
        result = await call(agent, "question", WHICH)
        assert result_of(result) == {"status": "answered", "answers": [["SQLite"]], "request_id": id}
    assert (await desk.get(id))["origin"]["session"] == "release"
    assert await count(desk) == 1


async def test_a_token_that_may_only_ask_is_enough(desk: Served, tmp_path: Path) -> None:
    added = await told(desk.http.post("/v1/tokens", json={"name": "agents", "scopes": ["ask"]}), 201)
    given = {"HANDRAISE_TOKEN": added["token"], "HANDRAISE_URL": desk.url}
    async with an_agent(tmp_path, "--limit", "1", **given) as agent:
        id = result_of(await call(agent, "question", WHICH))["request_id"]
        assert id.startswith("@agents:mcp_")
        await desk.answer(id, "SQLite")
        assert result_of(await call(agent, "question_result", {"request_id": id}))["answers"] == [["SQLite"]]
        await happened(desk, "delivered")
        left = result_of(await call(agent, "question", WHICH))["request_id"]
    assert (await desk.get(id))["delivery_error"] is None
    assert (await desk.get(left))["state"] == "withdrawn"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_that_is_told_to_end_withdraws_what_is_open(
    how: signal.Signals, desk: Served, tmp_path: Path
) -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handraise", "mcp"),
        env=environment(tmp_path),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    for message in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "question", "arguments": WHICH}},
    ):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    try:
        ask = await asked(desk)
        server.send_signal(how)
        assert await asyncio.wait_for(server.wait(), PATIENCE) == 0
    finally:
        if server.returncode is None:
            server.kill()
        await server.communicate()
    assert (await desk.get(ask.id))["state"] == "withdrawn"


async def test_a_desk_that_was_killed_and_came_back_still_answers(tmp_path: Path) -> None:
    async with DeskProcess(tmp_path / "home") as desk, an_agent(tmp_path) as agent, asyncio.TaskGroup() as tasks:
        async with desk.client() as http, listening(http) as events:
            calling = tasks.create_task(call(agent, "question", WHICH))
            id = json.loads((await events.frame()).data)["ask"]["id"]
        await desk.kill()
        await desk.start()
        async with desk.client() as http:
            await told(http.post(path_of(id, "answer"), json={"answers": [["SQLite"]]}), 200)
        assert result_of(await calling) == {"status": "answered", "answers": [["SQLite"]], "request_id": id}


async def test_without_a_desk_the_model_is_told_to_go_on(tmp_path: Path) -> None:
    async with an_agent(tmp_path, HANDRAISE_URL="http://127.0.0.1:9") as agent:
        result = await call(agent, "question", WHICH)
        assert result.is_error
        assert texts(result)[0].startswith("Nobody could be asked: no desk answers at http://127.0.0.1:9")
        assert "Go on without an answer" in texts(result)[0]
        refused = result_of(await call(agent, "permission_prompt", BASH))
        assert refused["behavior"] == "deny" and "nothing was run" in refused["message"]


async def test_a_desk_that_went_away_holds_a_question_no_longer_than_the_limit(tmp_path: Path) -> None:
    async with an_agent(tmp_path, "--limit", "1") as agent:
        async with serving(tmp_path / "home") as desk:
            await call(agent, "question", WHICH)
            url = desk.url
        result = await call(agent, "question", {"questions": [{"question": f"And without {url}?"}]})
        assert result.is_error and "has said nothing for 1 s" in texts(result)[0]


def test_a_missing_package_says_the_name_of_its_extra(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules |= {'mcp': None, 'mcp_types': None}; sys.argv = ['handraise', 'mcp']; "
        "from handraise.cli import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment(tmp_path), capture_output=True, text=True, timeout=START
    )
    assert ended.returncode == 2
    assert "handraise[mcp]" in ended.stderr and ended.stdout == ""


# The words ----------------------------------------------------------------------------------------------------------


def test_the_id_is_of_the_content_and_the_conversation() -> None:
    ids = {
        to_ask(arguments, origin=origin).id
        for arguments in (WHICH, {**WHICH, "context": "now"})
        for origin in (ORIGIN, Origin(agent="codex", session="s2"))
    }
    assert len(ids) == 4
    assert to_ask(WHICH, origin=ORIGIN).id in ids
    assert base_of("@build:mcp_12#3") == base_of("mcp_12#3") == "mcp_12"


def test_what_is_beyond_the_limits_is_said_by_question() -> None:
    with pytest.raises(AskDoesNotFit, match="question 2: question: at most"):
        to_ask({"questions": [{"question": "Fine?"}, {"question": "x" * 30_000}]}, origin=ORIGIN)
    with pytest.raises(AskDoesNotFit, match="question 1: options: without options"):
        to_ask({"questions": [{"question": "How?", "custom": False}]}, origin=ORIGIN)


def test_the_conversation_is_found_under_several_names() -> None:
    assert session_of({"progressToken": 1, "vendor.example/session_id": "s"}) == "s"
    assert session_of({"threadId": "\x1b[2J"}) is None
    assert session_of({"sessionId": 7}) is None


def test_a_withdrawn_question_tells_why() -> None:
    question = Question("Which?", (Option("a"),))
    ask = Ask(id="mcp_1#1", questions=(question,), origin=ORIGIN, state="withdrawn", withdrawn_reason="stopped")
    assert to_result(ask)[0] == {"status": "withdrawn", "request_id": "mcp_1#1", "reason": "stopped"}
    policy = Ask(
        id="mcp_1#2",
        questions=(question,),
        origin=ORIGIN,
        state="rejected",
        answer=Answer(rejected=True, by="policy:reject"),
    )
    assert to_result(policy)[0] == {"status": "rejected", "request_id": "mcp_1#2"}
    assert "Decide yourself" in to_result(policy)[1]
