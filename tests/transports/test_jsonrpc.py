"""JSON-RPC over lines, with two ends of it in one process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from handraise.transports.jsonrpc import METHOD_NOT_FOUND, JsonRpc, PeerGone, RpcError

PATIENCE = 5.0


class Wire:
    """One direction of lines is what the other end reads."""

    def __init__(self) -> None:
        self.written: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other: Wire

    async def write_line(self, line: bytes) -> None:
        self.written.put_nowait(line)

    async def lines(self) -> AsyncIterator[bytes]:
        while (line := await self.other.written.get()) is not None:
            yield line


async def nothing(id: int | str, method: str, params: dict[str, Any]) -> Any:
    raise RpcError(f"there is no {method}", number=METHOD_NOT_FOUND)


@asynccontextmanager
async def an_end(
    asked: Callable[[int | str, str, dict[str, Any]], Awaitable[Any]] = nothing,
    told: Callable[[str, dict[str, Any]], None] = lambda method, params: None,
    **options: Any,
) -> AsyncIterator[tuple[JsonRpc, Wire]]:
    """One end, and the wire to the other: write what it shall read, read what it wrote."""
    mine, theirs = Wire(), Wire()
    mine.other, theirs.other = theirs, mine
    rpc = JsonRpc(mine, asked=asked, told=told, **options)
    listening = asyncio.create_task(rpc.listen())
    try:
        async with asyncio.timeout(PATIENCE):
            yield rpc, theirs
    finally:
        theirs.written.put_nowait(None)
        await listening


async def says(wire: Wire, message: Any) -> None:
    await wire.write_line(message if isinstance(message, bytes) else json.dumps(message).encode())


async def hears(wire: Wire) -> dict[str, Any]:
    line = await wire.other.written.get()
    assert line is not None
    told: dict[str, Any] = json.loads(line)
    return told


async def test_a_request_gets_its_result_or_the_words_of_the_other_side() -> None:
    async with an_end() as (rpc, wire):
        asking = asyncio.create_task(rpc.request("greet", {"name": "ana"}))
        asked = await hears(wire)
        assert asked == {"jsonrpc": "2.0", "id": asked["id"], "method": "greet", "params": {"name": "ana"}}
        await says(wire, {"id": asked["id"], "result": "hello"})
        assert await asking == "hello"
        asking = asyncio.create_task(rpc.request("greet"))
        asked = await hears(wire)
        await says(wire, {"id": asked["id"], "error": {"code": -7, "message": "not today", "data": [1]}})
        with pytest.raises(RpcError, match="not today") as refused:
            await asking
        assert (refused.value.number, refused.value.data) == (-7, [1])


async def test_what_the_other_side_asks_is_answered_in_any_order_and_under_its_own_ids() -> None:
    released = asyncio.Event()

    async def asked(id: int | str, method: str, params: dict[str, Any]) -> Any:
        if method == "slow":
            await released.wait()
        return {"id was": id}

    async with an_end(asked) as (rpc, wire):
        ours = asyncio.create_task(rpc.request("ours"))
        number = (await hears(wire))["id"]
        await says(wire, {"id": number, "method": "slow"})  # the same number, in the other direction
        await says(wire, {"id": "x", "method": "fast"})
        assert await hears(wire) == {"jsonrpc": "2.0", "id": "x", "result": {"id was": "x"}}
        released.set()
        assert (await hears(wire))["id"] == number
        assert not ours.done()
        await says(wire, {"id": number, "result": 1})
        assert await ours == 1


async def test_a_broken_line_hurts_nobody_else() -> None:
    heard: list[str] = []

    def told(method: str, params: dict[str, Any]) -> None:
        if method == "bad":
            raise ValueError(method)
        heard.append(method)

    async with an_end(told=told) as (_, wire):
        for broken in (b"{half", b"[1, 2]", b'"text"', b"", b'{"id": true, "method": 3}', b'{"id": 99, "result": 1}'):
            await says(wire, broken)
        await says(wire, {"method": "bad"})
        await says(wire, {"method": "good", "params": ["no", "object"]})
        await says(wire, {"id": 1, "method": "what"})
        assert (await hears(wire))["error"] == {"code": METHOD_NOT_FOUND, "message": "there is no what"}
        assert heard == ["good"]


async def test_an_open_id_that_comes_again_is_dropped_and_one_that_is_forgotten_is_not_answered() -> None:
    began: list[str] = []
    both = asyncio.Event()

    async def asked(id: int | str, method: str, params: dict[str, Any]) -> Any:
        began.append(method)
        if method == "last":
            both.set()
            return "done"
        return await asyncio.Event().wait()

    async with an_end(asked) as (rpc, wire):
        await says(wire, {"id": 1, "method": "first"})
        await says(wire, {"id": 1, "method": "again"})
        await says(wire, {"id": 2, "method": "last"})
        await both.wait()
        assert began == ["first", "last"]
        assert rpc.forget(1)
        assert not rpc.forget(1)
        assert (await hears(wire))["id"] == 2
        assert wire.other.written.empty()


async def test_when_the_other_side_ends_what_was_asked_of_it_fails() -> None:
    async with an_end() as (rpc, wire):
        asking = asyncio.create_task(rpc.request("greet"))
        await hears(wire)
        wire.written.put_nowait(None)
        with pytest.raises(PeerGone):
            await asking
        with pytest.raises(PeerGone):
            await rpc.request("greet")


async def test_the_version_may_be_left_out() -> None:
    async with an_end(version=None) as (rpc, wire):
        await rpc.notify("initialized")
        assert await hears(wire) == {"method": "initialized"}
