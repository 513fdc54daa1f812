"""The hooks of a person's own Claude Code: recorded calls, sent to a real desk."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from handraise.agents.claude.hooks import ID_PREFIX, IN_THE_TERMINAL
from handraise.asks import Ask, Handling
from handraise.events import Event
from tests.helpers.serving import PATIENCE, Served, first_event, path_of, refused, serving, told

SAMPLE = Path(__file__).parents[1] / "wire" / "claude" / "terminal-hooks.jsonl"
RECORDED = [json.loads(line) for line in SAMPLE.read_text().splitlines()]


def recorded(case: str, event: str) -> dict[str, Any]:
    """The body that a hook sent."""
    bodies = (line["event"] for line in RECORDED if line.get("case") == case and "event" in line)
    return cast(dict[str, Any], next(body for body in bodies if body["hook_event_name"] == event))


BY_HOOK, BASH = "question answered by the hook", "bash allowed by the hook"
LOCALLY = "question answered locally while the hook waits"
SUBAGENT = "subagent bash allowed by the hook"
SESSION: str = recorded(BY_HOOK, "Stop")["session_id"]
QUESTION: str = "Which database should we use?"
PLAN = {
    **recorded(BASH, "PermissionRequest"),
    "tool_name": "ExitPlanMode",
    "tool_input": {"plan": "# Ship it\n\n1. test", "planFilePath": "/home/dev/.claude/plans/a.md"},
}


def a_batch(asked: dict[str, Any], response: str) -> dict[str, Any]:
    call = {"tool_name": asked["tool_name"], "tool_input": asked["tool_input"], "tool_response": response}
    return {**asked, "hook_event_name": "PostToolBatch", "tool_calls": [{**call, "tool_use_id": "toolu_1"}]}


class Terminal:
    """A person's Claude Code that calls its hooks."""

    def __init__(self, desk: Served, http: httpx2.AsyncClient) -> None:
        self.desk = desk
        self.http = http

    async def tells(self, body: Any, **headers: str) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post("/attach/claude/hook", content=content, headers=headers)

    @asynccontextmanager
    async def asking(self, body: dict[str, Any]) -> AsyncIterator[tuple[Ask, asyncio.Task[httpx2.Response]]]:
        """A held hook; its ask as the desk has it. Leaving the block closes its connection."""
        before = {ask.id async for ask in self.desk.broker.asks()}
        held = asyncio.create_task(self.tells(body))
        asked = await first_event(self.desk.broker, lambda event: event.type == "asked" and _id(event) not in before)
        try:
            yield cast(Any, asked).ask, held
        finally:
            held.cancel()
            await asyncio.wait({held})

    async def settled(self, ask: Ask, kind: str) -> dict[str, Any]:
        """The ask, once an event of this kind was told about it."""
        await first_event(self.desk.broker, lambda event: event.type == kind and _id(event) == ask.id)
        return await self.desk.get(ask.id)


def _id(event: Event) -> str:
    return str(cast(Any, event).ask.id)


async def decision(held: asyncio.Task[httpx2.Response]) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        output = (await told(held, 200))["hookSpecificOutput"]
    assert output["hookEventName"] == "PermissionRequest"
    return cast(dict[str, Any], output["decision"])


async def no_opinion(held: asyncio.Task[httpx2.Response]) -> None:
    async with asyncio.timeout(PATIENCE):
        response = await held
    assert (response.status_code, response.content) == (204, b"")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as running:
        yield running


@pytest.fixture
async def terminal(desk: Served) -> Terminal:
    return Terminal(desk, await desk.caller("claude-here", "ask"))


async def test_an_answer_of_the_desk_goes_to_the_terminal(desk: Served, terminal: Terminal) -> None:
    asked = recorded(BY_HOOK, "PermissionRequest")
    async with terminal.asking(asked) as (ask, held):
        assert ask.id.startswith(f"@claude-here:{ID_PREFIX}{SESSION}:")
        assert (ask.origin.agent, ask.origin.session, ask.origin.cwd) == ("claude", SESSION, "/repo")
        await desk.answer(ask.id, "MySQL")
        assert await decision(held) == {
            "behavior": "allow",
            "updatedInput": {**asked["tool_input"], "answers": {QUESTION: "MySQL"}},
        }


async def test_it_counts_as_delivered_once_the_call_ran_with_it(desk: Served, terminal: Terminal) -> None:
    async with terminal.asking(recorded(BY_HOOK, "PermissionRequest")) as (ask, held):
        await desk.answer(ask.id, "MySQL")
        await decision(held)
        await desk.broker.report([])
        assert (await desk.get(ask.id))["delivered_at"] is None
        await terminal.tells(recorded(BY_HOOK, "PostToolUse"))
        assert (await terminal.settled(ask, "delivered"))["delivered_at"]


async def test_an_answer_in_the_terminal_closes_the_ask_with_what_was_said(terminal: Terminal) -> None:
    async with terminal.asking(recorded(LOCALLY, "PermissionRequest")) as (ask, held):
        await terminal.tells(recorded(LOCALLY, "PostToolUse"))
        await no_opinion(held)
        after = await terminal.settled(ask, "delivered")
        assert (after["state"], after["answer"]["answers"], after["answer"]["by"]) == (
            "answered",
            [["PostgreSQL"]],
            "agent",
        )


async def test_yes_in_the_terminal_closes_the_permission(terminal: Terminal) -> None:
    for used in ("PostToolUse", "PostToolUseFailure"):
        async with terminal.asking(recorded(BASH, "PermissionRequest")) as (ask, held):
            await terminal.tells({**recorded(BASH, "PostToolUse"), "hook_event_name": used})
            await no_opinion(held)
            after = await terminal.settled(ask, "answered")
            assert (after["answer"]["reply"], after["answer"]["by"]) == ("once", "agent")


async def test_esc_or_a_closed_terminal_withdraws(terminal: Terminal) -> None:
    async with terminal.asking(recorded(BY_HOOK, "PermissionRequest")) as (ask, held):
        held.cancel()
        after = await terminal.settled(ask, "withdrawn")
        assert (after["state"], after["withdrawn_reason"]) == ("withdrawn", "answered or dismissed in the terminal")


async def test_a_permission_is_allowed_as_it_stands_edited_or_for_the_session(desk: Served, terminal: Terminal) -> None:
    asked = recorded(BASH, "PermissionRequest")
    wanted = asked["tool_input"]
    edited = {**wanted, "command": "echo hello"}
    adding = {"type": "addDirectories", "directories": ["/repo"], "destination": "session"}
    for reply, expected in (
        ({"reply": "once"}, {"behavior": "allow", "updatedInput": wanted}),
        ({"reply": "once", "input": edited}, {"behavior": "allow", "updatedInput": edited}),
        (
            {"reply": "always", "scope": "session"},
            {"behavior": "allow", "updatedInput": wanted, "updatedPermissions": [adding]},
        ),
    ):
        async with terminal.asking(asked) as (ask, held):
            assert ask.permission is not None
            assert ask.permission.command == wanted["command"]
            await told(desk.http.post(path_of(ask.id, "answer"), json=reply), 200)
            assert await decision(held) == expected
            await terminal.tells({**recorded(BASH, "PostToolUse"), "tool_input": expected["updatedInput"]})
            assert (await terminal.settled(ask, "delivered"))["delivery_error"] is None


async def test_a_refusal_is_delivered_when_the_batch_tells_it(desk: Served, terminal: Terminal) -> None:
    asked = recorded(BASH, "PermissionRequest")
    async with terminal.asking(asked) as (ask, held):
        await told(desk.http.post(path_of(ask.id, "reject"), json={"reason": "not on a Friday"}), 200)
        assert await decision(held) == {"behavior": "deny", "message": "not on a Friday"}
        await terminal.tells(a_batch(asked, "not on a Friday"))
        after = await terminal.settled(ask, "delivered")
        assert after["delivered_at"] and after["delivery_error"] is None


@pytest.mark.parametrize("sign", ["PostToolUse", "PostToolBatch"])
async def test_a_refusal_that_came_after_a_yes_in_the_terminal_is_not_told_as_taken(
    desk: Served, terminal: Terminal, sign: str
) -> None:
    asked = recorded(BASH, "PermissionRequest")
    async with terminal.asking(asked) as (ask, held):
        await told(desk.http.post(path_of(ask.id, "reject"), json={}), 200)
        await decision(held)
        await terminal.tells(recorded(BASH, sign) if sign == "PostToolUse" else a_batch(asked, "hello"))
        after = await terminal.settled(ask, "delivered")
        assert (after["delivered_at"], after["delivery_error"]) == (None, "it was answered in the terminal first")


async def test_another_choice_in_the_terminal_is_not_told_as_ours(desk: Served, terminal: Terminal) -> None:
    async with terminal.asking(recorded(LOCALLY, "PermissionRequest")) as (ask, held):
        await desk.answer(ask.id, "MySQL")
        await decision(held)
        await terminal.tells(recorded(LOCALLY, "PostToolUse"))  # it says PostgreSQL
        assert (await terminal.settled(ask, "delivered"))["delivery_error"]


async def test_a_plan_is_approved_with_an_input_since_claude_ignores_it_without(
    desk: Served, terminal: Terminal
) -> None:
    async with terminal.asking(PLAN) as (ask, held):
        assert ask.permission is not None
        assert (ask.permission.kind, ask.permission.summary) == ("plan", "Plan: Ship it")
        await told(desk.http.post(path_of(ask.id, "answer"), json={"reply": "once"}), 200)
        assert await decision(held) == {"behavior": "allow", "updatedInput": PLAN["tool_input"]}
        await terminal.tells({**PLAN, "hook_event_name": "PostToolUse", "tool_input": {}})
        assert (await terminal.settled(ask, "delivered"))["delivery_error"] is None


async def test_a_subagent_asks_under_its_parent_and_outlives_the_turn(desk: Served, terminal: Terminal) -> None:
    asked = recorded(SUBAGENT, "PermissionRequest")
    async with terminal.asking(asked) as (ask, held):
        assert ask.origin.session == f"{SESSION}/{asked['agent_id']}"
        assert ask.origin.parent == SESSION
        await terminal.tells(recorded(SUBAGENT, "Stop"))
        assert (await desk.get(ask.id))["state"] == "asked"
        await terminal.tells(recorded(SUBAGENT, "SubagentStop"))
        await no_opinion(held)
        assert (await desk.get(ask.id))["state"] == "withdrawn"


@pytest.mark.parametrize("sign", ["Stop", "SessionEnd", "PostToolBatch"])
async def test_what_is_left_when_claude_went_on_is_withdrawn(desk: Served, terminal: Terminal, sign: str) -> None:
    asked = recorded(BASH, "PermissionRequest")
    async with terminal.asking(asked) as (ask, held):
        await terminal.tells(a_batch(asked, "x") if sign == "PostToolBatch" else {**asked, "hook_event_name": sign})
        await no_opinion(held)
        assert (await desk.get(ask.id))["state"] == "withdrawn"


async def test_an_answer_of_which_nothing_else_is_heard_was_taken(desk: Served, terminal: Terminal) -> None:
    async with terminal.asking(recorded(BASH, "PermissionRequest")) as (ask, held):
        await told(desk.http.post(path_of(ask.id, "answer"), json={"reply": "once"}), 200)
        await decision(held)
        await terminal.tells(recorded(BASH, "Stop"))
        assert (await terminal.settled(ask, "delivered"))["delivered_at"]


async def test_two_calls_that_are_the_same_are_two_asks_and_end_in_their_order(
    desk: Served, terminal: Terminal
) -> None:
    asked = recorded(LOCALLY, "PermissionRequest")
    async with terminal.asking(asked) as (first, held_first), terminal.asking(asked) as (second, held_second):
        assert first.id != second.id
        await terminal.tells(recorded(LOCALLY, "PostToolUse"))
        await no_opinion(held_first)
        assert (await desk.get(first.id))["answer"]["by"] == "agent"
        await desk.answer(second.id, "SQLite")
        assert (await decision(held_second))["updatedInput"]["answers"] == {QUESTION: "SQLite"}


async def test_an_answer_of_which_the_outcome_is_unknown_grants_nothing_later(tmp_path: Path) -> None:
    asked = recorded(BASH, "PermissionRequest")
    async with serving(tmp_path) as desk:
        http = await desk.caller("claude-here", "ask")
        async with Terminal(desk, http).asking(asked) as (ask, held):
            await told(desk.http.post(path_of(ask.id, "answer"), json={"reply": "once"}), 200)
            await decision(held)
        token = http.headers["authorization"].removeprefix("Bearer ")
    async with serving(tmp_path) as desk:  # which knows nothing of what the desk before it had sent
        terminal = Terminal(desk, await desk.client(token))
        async with terminal.asking(asked) as (again, held):
            assert again.id != ask.id
            assert not held.done()
            assert (await desk.get(again.id))["state"] == "asked"


async def test_hooks_of_a_session_that_the_desk_started_say_nothing(desk: Served, terminal: Terminal) -> None:
    response = await terminal.tells(recorded(BASH, "PermissionRequest"), **{"X-Handraise-Session": "s1"})
    assert response.status_code == 204
    assert [ask async for ask in desk.broker.asks()] == []


async def test_policy_answers_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, handling=Handling(question_policy="accept-first")) as desk:
        terminal = Terminal(desk, await desk.caller("claude-here", "ask"))
        response = await terminal.tells(recorded(BY_HOOK, "PermissionRequest"))
        decided = response.json()["hookSpecificOutput"]["decision"]["updatedInput"]
        assert decided["answers"] == {QUESTION: "PostgreSQL"}
        assert "no person was asked" in decided["annotations"][QUESTION]["notes"]


async def test_one_token_cannot_speak_for_the_terminal_of_another(desk: Served, terminal: Terminal) -> None:
    other = Terminal(desk, await desk.caller("claude-there", "ask"))
    async with terminal.asking(recorded(LOCALLY, "PermissionRequest")) as (ask, held):
        for event in ("PostToolUse", "Stop"):
            assert (await other.tells(recorded(LOCALLY, event))).status_code == 204
        assert (await desk.get(ask.id))["state"] == "asked"
        assert not held.done()


async def test_the_token_may_ask_and_not_answer(desk: Served, terminal: Terminal) -> None:
    async with terminal.asking(recorded(BY_HOOK, "PermissionRequest")) as (ask, _):
        call = terminal.http.post(path_of(ask.id, "answer"), json={"answers": [["MySQL"]]})
        await refused(call, 403, "forbidden")
    nobody = Terminal(desk, await desk.client(None))
    assert (await nobody.tells(recorded(BY_HOOK, "PermissionRequest"))).status_code == 401


BROKEN: list[Any] = [
    b"",
    b"{",
    b"[]",
    b'{"a":' * 3000,
    {},
    {"hook_event_name": "PermissionRequest", "session_id": 7},
    {"hook_event_name": "PermissionRequest", "session_id": "s", "tool_name": "Bash"},
    {"hook_event_name": "PermissionRequest", "session_id": "s", "tool_name": "AskUserQuestion", "tool_input": {}},
    {"hook_event_name": "PermissionRequest", "session_id": "s\x00", "tool_name": "Bash", "tool_input": {"a": "secret"}},
    {"hook_event_name": "PostToolUse", "session_id": "s", "tool_name": "AskUserQuestion", "tool_input": {}},
    {"hook_event_name": "PostToolBatch", "session_id": "s", "tool_calls": [7, {"tool_name": "Bash"}]},
    {"hook_event_name": "SomethingNew", "session_id": "s"},
]


async def test_what_cannot_be_understood_is_no_opinion(
    desk: Served, terminal: Terminal, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for body in BROKEN:
            response = await terminal.tells(body)
            assert (response.status_code, response.content) == (204, b""), body
    assert "secret" not in caplog.text
    assert len(caplog.records) >= 8
    assert [ask async for ask in desk.broker.asks()] == []
    async with terminal.asking(recorded(BY_HOOK, "PermissionRequest")) as (ask, held):
        await desk.answer(ask.id, "MySQL")
        await decision(held)


async def test_after_a_restart_what_terminals_asked_is_withdrawn(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        terminal = Terminal(desk, await desk.caller("claude-here", "ask"))
        other = await desk.ask(origin={"agent": "claude", "session": "managed"})
        async with terminal.asking(recorded(BY_HOOK, "PermissionRequest")) as (ask, held):
            desk.broker.cancel_waits()
            await no_opinion(held)
    async with serving(tmp_path) as desk:
        after = await Terminal(desk, desk.http).settled(ask, "withdrawn")
        assert (after["state"], after["withdrawn_reason"]) == ("withdrawn", IN_THE_TERMINAL)
        assert (await desk.get(other["id"]))["state"] == "asked"


async def test_a_desk_that_starts_leaves_what_another_one_holds(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    """Of desks that share a database, any may hear what happened in a terminal."""
    database = new_database()
    async with serving(tmp_path / "one", database=database) as one:
        http = await one.caller("claude-here", "ask")
        async with Terminal(one, http).asking(recorded(LOCALLY, "PermissionRequest")) as (ask, held):
            async with serving(tmp_path / "two", database=database) as two:
                token = http.headers["authorization"].removeprefix("Bearer ")
                terminal = Terminal(two, await two.client(token))
                await terminal.tells(recorded(LOCALLY, "PostToolUse"))
                await no_opinion(held)
                after = await two.get(ask.id)
            assert (after["state"], after["answer"]["answers"]) == ("answered", [["PostgreSQL"]])


async def test_the_same_call_of_a_subagent_is_another_one(desk: Served, terminal: Terminal) -> None:
    asked = recorded(BASH, "PermissionRequest")
    theirs = {**asked, "agent_id": "a1", "agent_type": "general-purpose"}
    async with terminal.asking(asked) as (ask, held), terminal.asking(theirs) as (subagents, held_theirs):
        await terminal.tells({**recorded(BASH, "PostToolUse"), "agent_id": "a1"})
        await no_opinion(held_theirs)
        assert (await desk.get(subagents.id))["state"] == "answered"
        assert (await desk.get(ask.id))["state"] == "asked"
        assert not held.done()
