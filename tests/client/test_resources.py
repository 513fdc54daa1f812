"""Every resource of a desk as typed records, with asyncio and without."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from handraise import Desk, sync
from handraise.client import asks
from handraise.client.resources import Resources
from handraise.errors import (
    ChatNotFound,
    CheckpointNotFound,
    DeskBroke,
    RunNotFound,
    SessionNotFound,
    WorkflowNotFound,
)
from handraise.testing import an_ask
from handraise.wire.rules import RuleBody, RuleTestBody
from tests.helpers.serving import Served, serving

RESOURCES = [name for name in vars(Resources) if not name.startswith("_")]
FOR_CHANNELS = {"ask", "open", "showed", "places", "left", "cursor", "delivered"}  # the broker's, not for people


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with asyncio.timeout(30), serving(tmp_path / "home") as served:
        yield served


@pytest.fixture
async def desk(served: Served) -> AsyncIterator[Desk]:
    async with Desk(settings=served.settings) as desk:
        yield desk


async def test_tokens_are_made_listed_and_revoked(desk: Desk) -> None:
    made = await desk.tokens.add("ci", scopes=["ask"])
    assert (made.name, made.scopes) == ("ci", ("ask",))
    assert "ci" in [token.name for token in await desk.tokens.list()]
    await desk.tokens.revoke("ci")
    assert "ci" not in [token.name for token in await desk.tokens.list()]
    assert (await desk.tokens.sign_in()).startswith("http://")


async def test_asks_are_listed_read_and_answered(desk: Desk) -> None:
    await desk.client.open(an_ask(id="a/1"))
    assert [ask.id async for ask in desk.asks(state="asked")] == ["a/1"]
    await desk.reply_question("a/1", "SQLite", by="ana")
    assert (await desk.asks.get("a/1")).state == "answered"
    assert [(line.ask, line.answers) async for line in desk.audit.lines(page=1)] == [("a/1", (("SQLite",),))]


async def test_rules_are_added_tried_and_removed(desk: Desk) -> None:
    added = await desk.rules.add(RuleBody(tool="shell", action="reject", matches={"command": "rm *"}))
    decided = await desk.rules.test(RuleTestBody(tool="shell", arguments={"command": "rm -rf build"}))
    assert decided.action == "reject"
    listed = await desk.rules.list()
    assert added in listed.rules
    assert added.id is not None
    assert await desk.rules.remove(added.id) == added


async def test_what_is_empty_is_an_empty_list(desk: Desk) -> None:
    assert await desk.sessions.list() == ()
    assert await desk.runs.list(limit=3) == ()
    assert await desk.checkpoints.list(state="open") == ()
    assert await desk.channels.list() == ()
    assert (await desk.chats.list()).chats == ()
    assert (await desk.trust.get()).projects == ()
    assert isinstance(await desk.agents.list(), tuple)
    assert isinstance(await desk.workflows.list(), tuple)


async def test_what_is_not_there_is_said_by_its_own_error(desk: Desk) -> None:
    with pytest.raises(SessionNotFound):
        await desk.sessions.get("a/b?c")
    with pytest.raises(RunNotFound):
        await desk.runs.get("run_1")
    with pytest.raises(CheckpointNotFound):
        await desk.checkpoints.give("run_1.x", True)
    with pytest.raises(ChatNotFound):
        await desk.chats.get("chat_1")
    with pytest.raises(WorkflowNotFound):
        await desk.runs.start("nothing")


async def test_a_reply_of_another_form_is_no_record(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever answers there, nothing is taken for a session that is none."""
    async with Desk(settings=served.settings) as desk:
        for told in (b'{"sessions": [{"id": 7}]}', b'{"sessions": {}}', b"[]", b"nonsense"):

            async def other(*args: object, told: bytes = told, **more: object) -> bytes:
                return told

            monkeypatch.setattr(desk.connection, "call", other)
            with pytest.raises(DeskBroke):
                await desk.sessions.list()


async def test_without_asyncio_it_is_the_same(served: Served) -> None:
    def work() -> tuple[object, ...]:
        with sync.Desk(settings=served.settings) as desk:
            made = desk.tokens.add("ci", scopes=["ask"])
            return made.scopes, desk.sessions.list(), [ask.id for ask in desk.asks()], list(desk.audit.lines())

    assert await asyncio.to_thread(work) == (("ask",), (), [], [])


def public(kind: type) -> set[str]:
    return {name for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["asks", *RESOURCES])
def test_each_has_a_blocking_twin_and_a_line_in_the_page(name: str) -> None:
    kind = asks.Asks if name == "asks" else inspect.signature(vars(Resources)[name].func).return_annotation
    module = __import__(f"handraise.client.{'runs' if name in ('checkpoints', 'workflows') else name}", fromlist=["x"])
    methods = public(getattr(module, name.capitalize())) - (FOR_CHANNELS if kind is asks.Asks else set())
    assert public(getattr(sync, name.capitalize())) == methods
    page = (Path(__file__).parents[2] / "docs" / "howto" / "python-client.md").read_text()
    row = re.search(rf"^\| `{name}` \|(.*)\|$", page, re.MULTILINE)
    assert row is not None
    assert set(re.findall(r"`(\w+)`", row[1])) == methods
