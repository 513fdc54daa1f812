"""A program that is gone without a word leaves nothing open: what it asked is withdrawn once its lease has run out."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from handraise.asks import Answer
from handraise.broker import Broker
from handraise.broker.askers import GONE, withdraw_of_gone
from handraise.stores import Store
from handraise.tables.leases import MOST_GONE, AskLeases
from handraise.testing import an_ask
from tests.helpers.serving import Served, refused, serving, told


async def run_out(store: Store) -> None:
    await store.write("update leases set lease_until = 1")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "home") as running:
        yield running


async def test_what_is_open_goes_and_what_was_answered_stays(store: Store) -> None:
    leases = AskLeases(store)
    async with Broker(store) as broker:
        for id, worker, owner in (
            ("open", "w", "ci"),
            ("answered", "w", "ci"),
            ("of another worker", "v", "ci"),
            ("of another token", "w", "laptop"),
            ("of nobody", None, "ci"),
        ):
            await broker.open(an_ask(id=id), worker=worker, owner=owner)
        await broker.answer("answered", Answer(answers=(("SQLite",),)))
        await leases.renew("w", owner="ci", seconds=60)
        await withdraw_of_gone(broker)
        assert (await broker.get("open")).state == "asked"
        await run_out(store)
        await leases.renew("v", owner="ci", seconds=60)
        await withdraw_of_gone(broker)
        states = {ask.id: ask.state async for ask in broker.asks()}
        assert states == {
            "open": "withdrawn",
            "answered": "answered",
            "of another worker": "asked",
            "of another token": "asked",
            "of nobody": "asked",
        }
        assert (await broker.get("open")).withdrawn_reason == GONE
        assert await leases.gone() == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"worker": "w"},
        {"worker": "", "seconds": 60},
        {"worker": "w\n", "seconds": 60},
        {"worker": "w", "seconds": 0},
    ],
)
async def test_a_lease_that_is_none_is_refused(desk: Served, body: dict[str, Any]) -> None:
    await refused(desk.http.post("/v1/leases", json=body), 400, "bad_request")


async def test_a_token_with_many_leases_is_looked_at_a_part_at_a_time(store: Store) -> None:
    leases = AskLeases(store)
    await asyncio.gather(*(leases.renew(f"w{number}", owner="ci", seconds=60) for number in range(MOST_GONE + 20)))
    await store.write("update leases set lease_until = 1")
    assert len(await leases.gone()) == MOST_GONE
    async with Broker(store) as broker:
        await withdraw_of_gone(broker)
    assert len(await leases.gone()) == 20


async def test_a_token_leases_only_what_it_asked_itself(desk: Served) -> None:
    await desk.ask(id="theirs", worker="w")
    asker = await desk.caller("asker", "ask")
    assert await told(asker.post("/v1/leases", json={"worker": "w", "seconds": 60}), 200) == {
        "worker": "w",
        "seconds": 60,
    }
    await refused(
        (await desk.caller("ana", "answer")).post("/v1/leases", json={"worker": "w", "seconds": 60}), 403, "forbidden"
    )
    await run_out(desk.broker.store)
    await withdraw_of_gone(desk.broker)
    assert (await desk.get("theirs"))["state"] == "asked"


async def test_the_question_tool_that_was_killed_leaves_no_ask_open(desk: Served, tmp_path: Path) -> None:
    mine = {key: value for key, value in os.environ.items() if not key.startswith(("HANDRAISE_", "XDG_"))}
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handraise", "mcp"),
        env=mine | {"HANDRAISE_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path)},
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    question = {"questions": [{"question": "Which?", "header": "W", "options": [{"label": "a", "description": ""}]}]}
    for message in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "question", "arguments": question}},
    ):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    try:
        async with asyncio.timeout(30):
            while not (asks := [ask async for ask in desk.broker.asks(state="asked")]):
                await asyncio.sleep(0.02)
    finally:
        server.send_signal(signal.SIGKILL)
        await server.communicate()
    await withdraw_of_gone(desk.broker)
    assert (await desk.get(asks[0].id))["state"] == "asked"  # it may only be slow
    await run_out(desk.broker.store)
    await withdraw_of_gone(desk.broker)
    assert (await desk.get(asks[0].id))["state"] == "withdrawn"
