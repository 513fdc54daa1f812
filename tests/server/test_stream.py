"""The event stream: every event once and in order, whatever happens to the connection (S1)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from handraise.testing import an_ask
from handraise.transports.sse import Frame
from tests.helpers.serving import (
    PATIENCE,
    DeskProcess,
    Listener,
    Served,
    a_body,
    a_client,
    eventually,
    listening,
    path_of,
    refused,
    serving,
    told,
)


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database) as desk:
        yield desk


async def heard(listener: Listener, count: int) -> list[tuple[str, str]]:
    """The next events as (type, id of the ask)."""
    frames = [await listener.frame() for _ in range(count)]
    return [(frame.event, json.loads(frame.data)["ask"]["id"]) for frame in frames]


# What is told -----------------------------------------------------------------------------------------------


async def test_a_stream_tells_the_whole_life_of_an_ask(desk: Served) -> None:
    async with listening(desk.http) as listener:
        assert listener.response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert listener.response.headers["cache-control"] == "no-store"
        asked = await desk.ask(id="q1", question_timeout=60)
        moved = await told(desk.http.post(path_of("q1", "keep-waiting")), 200)
        answered = await desk.answer("q1", "SQLite")
        await told(desk.http.post("/v1/deliveries", json={"deliveries": [{"id": "q1"}]}), 200)
        await desk.ask(id="q2", question_policy="reject")
        await desk.ask(id="q3")
        withdrawn = await told(desk.http.post(path_of("q3", "withdraw")), 200)
        frames = [await listener.frame() for _ in range(8)]
    assert [frame.event for frame in frames] == [
        *("asked", "deadline_moved", "answered", "delivered", "asked", "rejected", "asked", "withdrawn")
    ]
    events = [json.loads(frame.data) for frame in frames]
    assert [event["type"] for event in events] == [frame.event for frame in frames]
    assert all(event.keys() == {"type", "at", "ask"} for event in events)
    assert [int(frame.id or "") for frame in frames] == list(range(1, 9))
    for event, ask in ((events[0], asked), (events[1], moved), (events[2], answered), (events[7], withdrawn)):
        assert _still(event["ask"]) == _still(ask)
    assert events[3]["ask"]["delivered_at"] == events[3]["at"]
    assert (events[4]["ask"]["state"], events[4]["ask"]["answer"]) == ("asked", None)  # as it was then


def _still(ask: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in ask.items() if key != "remaining"}


async def test_without_a_cursor_a_stream_begins_now_and_says_where(desk: Served) -> None:
    await desk.ask(id="before")
    async with listening(desk.http) as listener:
        assert listener.raw.startswith(b"retry: 1000\nid: 1\n\n")
        await desk.ask(id="after")
        assert await heard(listener, 1) == [("asked", "after")]


@pytest.mark.parametrize("how", ["after", "last_event_id"])
async def test_a_stream_reads_on_after_a_cursor(desk: Served, how: str) -> None:
    for number in range(5):
        await desk.ask(id=f"q{number}")
    asked: dict[str, Any] = {how: 2}
    async with listening(desk.http, **asked) as listener:
        assert await heard(listener, 3) == [("asked", "q2"), ("asked", "q3"), ("asked", "q4")]
        await desk.ask(id="live")
        assert await heard(listener, 1) == [("asked", "live")]


async def test_the_header_of_a_reconnecting_browser_is_stronger_than_the_query(desk: Served) -> None:
    await desk.ask(id="q1")
    await desk.ask(id="q2")
    async with listening(desk.http, after=0, last_event_id=1) as listener:
        assert await heard(listener, 1) == [("asked", "q2")]


async def test_a_cursor_from_the_future_means_now(desk: Served) -> None:
    await desk.ask(id="q1")
    async with listening(desk.http, after=1_000_000) as listener:
        await desk.ask(id="q2")
        assert await heard(listener, 1) == [("asked", "q2")]


@pytest.mark.parametrize("cursor", ["-1", "x", "1.5", "٣", "9" * 30])
async def test_a_cursor_that_is_none_is_refused(desk: Served, cursor: str) -> None:
    await refused(desk.http.get("/v1/events", params={"after": cursor}), 400, "bad_request")
    headers = [(b"last-event-id", cursor.encode())]
    await refused(desk.http.get("/v1/events", headers=headers), 400, "bad_request")


async def test_an_unknown_filter_is_refused(desk: Served) -> None:
    await refused(desk.http.get("/v1/events?agent=x"), 400, "bad_request")
    await refused(desk.http.get("/v1/events?run=x&run=y"), 400, "bad_request")


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ({"session": "s1"}, "13"),
        ({"run": "r1"}, "12"),
        ({"worker": "w2"}, "2"),
        ({"session": "s1", "run": "r1"}, "1"),
        ({"session": ""}, ""),
    ],
)
async def test_filters_narrow_history_and_what_comes_alike(desk: Served, filters: dict[str, str], numbers: str) -> None:
    async def ask_three(when: str) -> None:
        await desk.ask(id=f"{when}-1", origin={"agent": "a", "session": "s1", "run": "r1"}, worker="w1")
        await desk.ask(id=f"{when}-2", origin={"agent": "a", "session": "s2", "run": "r1"}, worker="w2")
        await desk.ask(id=f"{when}-3", origin={"agent": "a", "session": "s1"})

    await ask_three("before")
    async with listening(desk.http, after=0, **filters) as listener:
        await ask_three("after")
        expected = [("asked", f"{when}-{number}") for when in ("before", "after") for number in numbers]
        assert await heard(listener, len(expected)) == expected
        desk.broker.feeds.poke()
        await listener.until(b": heartbeat")
        assert listener.raw.count(b"data:") == len(expected)


async def test_a_worker_hears_what_it_waits_for_on_one_stream(desk: Served) -> None:
    async with listening(desk.http, worker="w1") as listener:
        for number in range(20):
            await desk.ask(id=f"q{number}", worker="w1" if number % 2 else "w2")
        for number in range(20):
            await desk.answer(f"q{number}", "SQLite")
        odd = [f"q{number}" for number in range(1, 20, 2)]
        assert await heard(listener, 20) == [("asked", id) for id in odd] + [("answered", id) for id in odd]


async def test_an_ask_that_another_worker_took_over_is_told_to_that_one(desk: Served) -> None:
    await desk.ask(id="q1", worker="w1")
    await told(desk.http.post("/v1/asks", json=a_body(id="q1", worker="w2")), 200)
    async with listening(desk.http, worker="w2") as listener:
        await desk.answer("q1", "SQLite")
        assert await heard(listener, 1) == [("answered", "q1")]


async def test_line_breaks_of_any_kind_do_not_break_frames(desk: Served) -> None:
    text = "a\nb\r\nc\rd\u2028e\u2029f\x85g\x0bh\x0ci\n\ndata: j\n\nid: 99\n"
    async with listening(desk.http) as listener:
        await desk.ask(id="q1", questions=[{"question": text, "options": [{"label": text}]}])
        await desk.answer("q1", text)
        asked, answered = await listener.frame(), await listener.frame()
    assert (asked.id, answered.id) == ("1", "2")
    assert json.loads(asked.data)["ask"]["questions"][0]["question"] == text
    assert json.loads(answered.data)["ask"]["answer"]["answers"] == [[text]]
    blocks = listener.raw.strip(b"\n").split(b"\n\n")
    assert len(blocks) == 3 and all(block.count(b"\n") == 2 for block in blocks[1:])


async def test_a_heartbeat_says_how_far_a_stream_has_looked(desk: Served) -> None:
    async with listening(desk.http, session="quiet") as listener:
        await desk.ask(id="elsewhere")
        newest = await desk.broker.cursor()
        desk.broker.feeds.poke()
        await listener.until(b"id: %d\n: heartbeat\n\n" % newest)


async def test_a_quiet_stream_has_a_heartbeat(desk: Served) -> None:
    async with listening(desk.http) as listener, listening(desk.http, session="nobody") as other:
        desk.broker.feeds.poke()
        await listener.until(b": heartbeat\n\n")
        await other.until(b": heartbeat\n\n")
        await desk.ask(id="q1")
        assert await heard(listener, 1) == [("asked", "q1")]


# Coming and going -------------------------------------------------------------------------------------------


async def test_a_reader_that_comes_and_goes_sees_every_event_exactly_once(desk: Served) -> None:
    seen: list[int] = []
    cursor, last = "0", 300

    async def ask() -> None:
        for number in range(last):
            await desk.ask(id=f"q{number}")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ask())
        for visit in range(1000):
            async with listening(desk.http, last_event_id=cursor) as listener:
                for _ in range(visit % 7 + 1):
                    frame = await listener.frame()
                    seen.append(int(frame.id or ""))
                    cursor = frame.id or cursor
                    if seen[-1] == last:
                        break
            if seen[-1] == last:
                break
    assert seen == list(range(1, last + 1))


async def test_history_of_many_pages_flows_into_what_happens_meanwhile(desk: Served) -> None:
    async def ask(numbers: range) -> None:
        for number in numbers:
            await desk.broker.open(an_ask(id=f"q{number}"))

    async with asyncio.TaskGroup() as tasks:
        for start in range(0, 1200, 50):  # at once, so that they share commits
            tasks.create_task(ask(range(start, start + 50)))
    async with listening(desk.http, after=0) as listener, asyncio.TaskGroup() as tasks:
        tasks.create_task(ask(range(1200, 1300)))
        cursors = [int((await listener.frame()).id or "") for _ in range(1300)]
    assert cursors == list(range(1, 1301))


async def test_a_listener_that_does_not_read_is_cut_off_and_resumes_without_loss(desk: Served) -> None:
    desk.broker.feeds.most_waiting = 10
    large = [{"question": "x" * 20_000}] * 20  # 400 kB an event: socket buffers fill after a few
    async with listening(desk.http) as slow, listening(desk.http) as fast:
        for _ in range(50):
            await desk.ask(questions=large)
            await fast.frame()
        await eventually(lambda: len(desk.broker.feeds) == 1)  # the slow one is gone, the fast one is not
        seen = await cursors_until_cut_off(slow)
    assert 0 < len(seen) < 50
    async with listening(desk.http, last_event_id=slow.cursor) as again:
        seen += [int((await again.frame()).id or "") for _ in range(50 - len(seen))]
    assert seen == list(range(1, 51))


async def cursors_until_cut_off(listener: Listener) -> list[int]:
    seen: list[int] = []
    while True:
        try:
            seen.append(int((await listener.frame()).id or ""))
        except httpx2.RemoteProtocolError:  # the end of the body never came
            return seen


async def test_a_listener_that_hangs_up_leaves_nothing_behind(desk: Served) -> None:
    for _ in range(10):
        async with listening(desk.http), listening(desk.http, session="s1"):
            assert len(desk.broker.feeds) == 2
        await eventually(lambda: len(desk.broker.feeds) == 0)


async def test_many_listeners_hear_the_same(desk: Served) -> None:
    ready = asyncio.Semaphore(0)

    async def listen() -> list[tuple[str, str]]:
        async with listening(desk.http) as listener:
            ready.release()
            return await heard(listener, 3)

    async with asyncio.TaskGroup() as tasks:
        listeners = [tasks.create_task(listen()) for _ in range(100)]
        for _ in listeners:
            await ready.acquire()
        for number in range(3):
            await desk.ask(id=f"q{number}")
    assert all(listener.result() == [("asked", f"q{number}") for number in range(3)] for listener in listeners)


# When the desk goes -----------------------------------------------------------------------------------------


async def test_leaving_ends_streams_and_waits_and_withdraws_nothing(tmp_path: Path, lasting_database: str) -> None:
    async with AsyncExitStack() as stack:
        async with serving(tmp_path, database=lasting_database) as desk:
            client = await stack.enter_async_context(a_client(desk.url, desk.token))
            listener = await stack.enter_async_context(listening(client))
            call = asyncio.create_task(client.post("/v1/asks", params={"wait": 60}, json=a_body(id="q1")))
            await listener.frame()
            reading = asyncio.create_task(client.get(path_of("q1"), params={"wait": 60}))
            await eventually(lambda: desk.broker.waits == 2)
        assert (await told(call, 201))["state"] == "asked"
        assert (await told(reading, 200))["state"] == "asked"
        with pytest.raises(StopAsyncIteration):
            await listener.frame()
    async with serving(tmp_path, database=lasting_database) as desk:
        assert (await desk.get("q1"))["state"] == "asked"
        assert (await desk.answer("q1", "SQLite"))["state"] == "answered"


async def parked(client: httpx2.AsyncClient, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while f"handraise_waits {count}\n" not in (await client.get("/metrics")).text:
            await asyncio.sleep(0.002)


async def test_sigterm_ends_the_desk_within_five_seconds_whoever_listens_or_waits(
    tmp_path: Path, lasting_database: str
) -> None:
    async with DeskProcess(tmp_path, HANDRAISE_DATABASE=lasting_database) as desk, desk.client() as client:
        wait = {"wait": 60}
        async with listening(client) as listener, listening(client, session="nobody"):
            call = asyncio.create_task(client.post("/v1/asks", params=wait, json=a_body(id="q1")))
            await listener.frame()
            reading = asyncio.create_task(client.get(path_of("q1"), params=wait))
            await parked(client, 2)
            assert await desk.stop() == 0
            assert (await told(call, 201))["state"] == "asked"
            assert (await told(reading, 200))["state"] == "asked"
        assert not desk.settings.desk_file.exists()
        await desk.start()
        async with desk.client() as later, listening(later, after=0) as listener:
            assert await heard(listener, 1) == [("asked", "q1")]
            assert (await told(later.get(path_of("q1")), 200))["state"] == "asked"


# What is hinted at beside asks ------------------------------------------------------------------------------


def hint(frame: Frame) -> list[str]:
    assert (frame.event, frame.id) == ("changed", None)
    told = json.loads(frame.data)
    assert told.keys() == {"type", "at", "what"}
    return list(told["what"])


async def test_a_listener_that_wants_to_is_told_that_sessions_changed(desk: Served) -> None:
    async with listening(desk.http, also="sessions,checkpoints") as listener:
        assert hint(await listener.frame()) == ["checkpoints", "sessions"]  # read them once, whatever was missed
        await told(desk.http.post("/v1/sessions", json={"agent": "scripted", "prompt": "go"}), 201)
        assert hint(await listener.frame()) == ["sessions"]


async def test_hints_have_no_cursor_and_many_become_few(desk: Served) -> None:
    async with listening(desk.http, also="sessions") as listener:
        assert hint(await listener.frame()) == ["sessions"]
        for _ in range(20):
            await told(desk.http.post("/v1/sessions", json={"agent": "scripted", "prompt": "go"}), 201)
        await desk.ask(id="last")
        frames = [await listener.frame()]
        while {frame.event for frame in frames} != {"asked", "changed"}:
            frames.append(await listener.frame())
        assert len(frames) < 20
        assert listener.cursor == "1"


async def test_a_plain_stream_carries_no_hints(desk: Served) -> None:
    async with listening(desk.http) as listener:
        await desk.ask(id="q1", origin={"agent": "scripted", "session": "s1"})
        await desk.ask(id="q2", origin={"agent": "scripted", "session": "s2"})
        assert await heard(listener, 2) == [("asked", "q1"), ("asked", "q2")]
        assert b"changed" not in listener.raw


async def test_what_may_be_hinted_at_is_said(desk: Served) -> None:
    await refused(desk.http.get("/v1/events", params={"also": "tokens"}), 400, "bad_request")
    made = await told(desk.http.post("/v1/tokens", json={"name": "w", "scopes": ["ask"]}), 201)
    async with a_client(desk.url, made["token"]) as asker:
        await refused(asker.get("/v1/events", params={"also": "runs", "worker": "w"}), 403, "forbidden")
