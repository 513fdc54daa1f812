"""Lists that hold what agents and workflows wrote end where they are large enough, and miss nothing on the way."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from handraise.server.routes import runs as server_runs
from handraise.stores.sqlite import SqliteStore
from tests.helpers.serving import Served, a_permission_body, refused, serving, told

Json = dict[str, Any]

LARGEST_REPLY = 5 * 1024 * 1024  # bytes: a page, with one entry of some megabytes at its end
RUN = "run_large"


@pytest_asyncio.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database, has_worker=False) as desk:
        yield desk


async def a_run(desk: Served, *, state: str = "done") -> None:
    await desk.broker.store.write(
        "insert into runs (id, workflow, file, cwd, input, state, epoch, idle_claims, cancelled, created_at, "
        "created_by, updated_at) values (?, 'shop', '/shop.py', '/', '{}', ?, 0, 0, 0, 1, 'me', 1)",
        *(RUN, state),
    )


async def happened(desk: Served, number: int, output: Any, *, at: int) -> None:
    await desk.broker.store.write(
        "insert into trace (id, run, type, step, at, data) values (?, ?, 'step_completed', ?, ?, ?)",
        *(f"{RUN}-{number:09d}", RUN, f"step{number}", at, json.dumps({"output": output})),
    )


async def asked(desk: Served, diff: str) -> str:
    body = a_permission_body(
        permission={"tool": "Edit", "diff": diff}, origin={"agent": "any", "session": "any", "run": RUN}
    )
    return str((await told(desk.http.post("/v1/asks", json=body), 201))["id"])


async def pages(desk: Served, path: str, **asked: str) -> AsyncIterator[Json]:
    """Every page, as long as one says where to go on."""
    while True:
        response = await desk.http.get(path, params=asked)
        assert response.status_code == 200, response.text
        assert len(response.content) < LARGEST_REPLY
        page = response.json()
        yield page
        if "next" not in page:
            return
        asked["after"] = page["next"]


async def trace(desk: Served) -> list[list[Json]]:
    found: list[list[Json]] = []
    async for page in pages(desk, f"/v1/runs/{RUN}/trace"):
        if not page["events"]:
            return found
        found.append(page["events"])
    raise AssertionError("the trace does not end")


async def test_a_trace_of_large_outputs_and_asks_ends_its_pages_by_size(desk: Served) -> None:
    await a_run(desk)
    for number in range(1, 9):
        await happened(desk, number, "x" * 1_100_000, at=number)
    ids = [await asked(desk, f"{number}" * 900_000) for number in range(4)]
    found = [event for page in await trace(desk) for event in page]
    assert [event["step_id"] for event in found if event["type"] == "step_completed"] == [
        f"step{number}" for number in range(1, 9)
    ]
    assert [event["permission"]["id"] for event in found if "permission" in event] == ids
    assert len(found) == 12


async def test_a_trace_cut_by_size_is_the_same_as_one_that_is_not(
    desk: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_run(desk)
    now = desk.broker.clock.now()
    for number in range(1, 30):  # some before what was asked, and some after it
        await happened(desk, number, "é" * (number * 37 % 11) * 50, at=now + (number - 15) * 1000)
        if not number % 3:
            await asked(desk, "d" * (number * 13 % 7) * 100)
    (whole,) = await trace(desk)
    for most in (1, 300, 1000, 5000):
        monkeypatch.setattr(server_runs, "LONGEST_PAGE", most)
        cut = await trace(desk)
        assert len(cut) > 1
        assert [event for page in cut for event in page] == whole


async def said(desk: Served, texts: list[str], *, extra: Json | None = None) -> list[str]:
    await told(desk.http.post("/v1/asks", json=a_permission_body(origin={"agent": "any", "session": "ses"})), 201)
    ids = [f"{number:020d}" for number in range(len(texts))]
    for id, text in zip(ids, texts, strict=True):
        await desk.broker.store.write(
            "insert into messages (id, session, role, text, extra, at) values (?, 'ses', 'agent', ?, ?, 1)",
            *(id, text, None if extra is None else json.dumps(extra)),
        )
    return ids


async def test_messages_end_their_pages_by_size_in_both_directions(desk: Served) -> None:
    ids = await said(desk, [f"{number}" * 1_000_000 for number in range(8)], extra={"name": "Edit", "é": ["\\", 1]})
    forward = [page async for page in pages(desk, "/v1/sessions/ses/messages")]
    messages = [message for page in forward for message in page["messages"]]
    assert [message["id"] for message in messages] == ids
    assert [message["text"][:2] for message in messages] == [f"{number}" * 2 for number in range(8)]
    assert all(message["extra"] == {"name": "Edit", "é": ["\\", 1]} for message in messages)
    assert len(forward) > 3

    backward: list[str] = []
    before: str | None = ""
    while before is not None:
        response = await desk.http.get("/v1/sessions/ses/messages", params={"before": before})
        assert len(response.content) < LARGEST_REPLY
        backward = [message["id"] for message in response.json()["messages"]] + backward
        before = response.json().get("next")
    assert backward == ids


async def test_messages_say_whether_there_are_more(desk: Served) -> None:
    ids = await said(desk, ["a", "b", "c"])

    async def read(**asked: Any) -> tuple[list[str], str | None]:
        page = await told(desk.http.get("/v1/sessions/ses/messages", params=asked), 200)
        return [message["text"] for message in page["messages"]], page.get("next")

    assert await read() == (["a", "b", "c"], None)
    assert await read(limit=3) == (["a", "b", "c"], None)
    assert await read(limit=2) == (["a", "b"], ids[1])
    assert await read(limit=2, after=ids[1]) == (["c"], None)
    assert await read(limit=2, before="") == (["b", "c"], ids[1])
    assert await read(limit=2, before=ids[1]) == (["a"], None)


async def checkpoints(desk: Served, count: int, *, input: str, state: str = "open") -> list[str]:
    """Many were asked for at the same moment."""
    ids = [f"{RUN}-{state}-{number:04d}" for number in range(count)]
    rows = [
        (
            "insert into checkpoints (id, run, step, input, schema, state, asked_at) "
            "values (?, ?, 'review', ?, ?, ?, ?)",
            (id, RUN, input, '{"type": "object"}', state, 1000 + number // 7),
        )
        for number, id in enumerate(ids)
    ]
    await desk.broker.store.write_all(*rows)
    return ids


async def test_checkpoints_are_listed_page_by_page(desk: Served) -> None:
    await a_run(desk, state="open")
    ids = await checkpoints(desk, 1_500, input="look")
    await checkpoints(desk, 3, input="look", state="given")

    async def listed(**asked: str) -> list[list[str]]:
        return [[each["id"] for each in page["checkpoints"]] async for page in pages(desk, "/v1/checkpoints", **asked)]

    found = await listed(state="open")
    assert [id for page in found for id in page] == ids
    assert len(found) == 2
    short = await listed(state="open", run=RUN, limit="100")
    assert [len(page) for page in short] == [100] * 15
    assert [id for page in short for id in page] == ids
    assert len([id for page in await listed() for id in page]) == 1_503
    assert await listed(state="withdrawn") == [[]]
    assert (await told(desk.http.get("/v1/checkpoints?state=open&after="), 200))["checkpoints"][0]["id"] == ids[0]


async def test_large_checkpoints_end_their_page_by_size(desk: Served) -> None:
    await a_run(desk, state="open")
    ids = await checkpoints(desk, 8, input="i" * 900_000)
    found = [page async for page in pages(desk, "/v1/checkpoints", state="open")]
    assert [each["id"] for page in found for each in page["checkpoints"]] == ids
    assert len(found) > 3


@pytest.mark.parametrize("query", ["after=here", "after=-1-a", "after=9", "limit=0", "limit=1001"])
async def test_a_place_in_the_list_of_checkpoints_that_is_none_is_refused(desk: Served, query: str) -> None:
    await refused(desk.http.get(f"/v1/checkpoints?{query}"), 400, "bad_request")


async def test_a_long_chat_is_told_whole_and_read_page_by_page(desk: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    store = desk.broker.store
    await store.write(
        "insert into chats (id, title, model, state, version, created_at, updated_at) "
        "values ('chat_a', 'Long', 'local', 'idle', 20, 1, 1)"
    )
    for number in range(8):
        blocks = [{"type": "content", "content": f"{number}" * 700_000, "status": "success"}]
        await store.write(
            "insert into chat_messages (id, chat, role, state, blocks, raw, at, version) "
            "values (?, 'chat_a', 'assistant', 'done', ?, 'not told', 1, ?)",
            *(f"{number:020d}", json.dumps(blocks), 20 - number),
        )
    sizes: list[int] = []
    read_page = store.read_page

    async def noting(*args: Any, **options: Any) -> list[Any]:
        rows = await read_page(*args, **options)
        sizes.append(sum(len(str(value)) for row in rows for value in row))
        return rows

    monkeypatch.setattr(store, "read_page", noting)
    chat = await told(desk.http.get("/v1/chats/chat_a"), 200)
    assert [message["blocks"][0]["content"][0] for message in chat["messages"]] == [*"01234567"]
    assert (chat["title"], chat["version"]) == ("Long", 20)
    assert max(sizes) < 2 * 1024 * 1024
    since = await told(desk.http.get("/v1/chats/chat_a?since=17"), 200)
    assert [message["version"] for message in since["messages"]] == [20, 19, 18]
    assert (await told(desk.http.get("/v1/chats/chat_a?since=20"), 200))["messages"] == []
    await refused(desk.http.get("/v1/chats/chat_b"), 404, "chat_not_found")


async def test_lists_are_read_in_the_order_of_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that is sorted, or that is looked for in a whole table, costs the loop the more the more there is."""
    plans: dict[str, list[str]] = {}
    async with serving(tmp_path, has_worker=False) as desk:
        store = desk.broker.store
        assert isinstance(store, SqliteStore)
        read, read_page = store.read, store.read_page

        async def plan_of(sql: str, *values: Any) -> None:
            plans[sql] = [row[3] for row in await read(f"explain query plan {sql}", *values)]

        async def explained(sql: str, *values: Any) -> list[Any]:
            await plan_of(sql, *values)
            return await read(sql, *values)

        async def explained_page(sql: str, *values: Any, **options: Any) -> list[Any]:
            await plan_of(sql, *values)
            return await read_page(sql, *values, **options)

        monkeypatch.setattr(store, "read", explained)
        monkeypatch.setattr(store, "read_page", explained_page)
        for path in (
            "/v1/sessions",
            "/v1/checkpoints",
            "/v1/checkpoints?state=open",
            "/v1/checkpoints?state=given&after=1-a",
            "/v1/runs",
        ):
            await told(desk.http.get(path), 200)
        await desk.broker.sessions.claim("worker")
    assert len(plans) >= 6
    for sql, steps in plans.items():
        assert not any("TEMP B-TREE" in step for step in steps), (sql, steps)
        assert not any(step.startswith("SCAN") and "USING" not in step for step in steps), (sql, steps)
