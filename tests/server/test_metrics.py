"""What `/metrics` tells: read strictly, compared with what really happened at the desk."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import asyncpg
import httpx2
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from handraise.asks import Answer
from handraise.broker import Broker
from handraise.broker.counts import RECENT, Counts, Histogram, Lag
from handraise.errors import AlreadyAnswered
from handraise.server.routes._health import BoundedRead
from handraise.server.routes._metrics import NAMES, Metrics
from handraise.stores import OpenAsks, Store
from handraise.stores._asks import OPEN_ASKS
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing import FakeClock, a_permission, an_ask
from handraise.testing.postgres import postgres_server
from tests.helpers.serving import (
    PATIENCE,
    Served,
    a_body,
    a_permission_body,
    eventually,
    listening,
    path_of,
    refused,
    serving,
    told,
)

SQLITE = Answer(answers=(("SQLite",),), by="ana")


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database) as desk:
        yield desk


class Told:
    """One scrape. `found["name", "label value", …]` is a sample, with the values in the order of their labels."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __getitem__(self, key: str | tuple[str, ...]) -> float:
        return self.samples[key if isinstance(key, tuple) else (key,)]


async def scrape(client: httpx2.AsyncClient) -> Told:
    response = await client.get("/metrics")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    return Told(response.text)


# At the desk ------------------------------------------------------------------------------------------------


async def test_every_metric_is_told_strictly_in_its_type_with_its_meaning(desk: Served) -> None:
    await desk.ask()
    found = await scrape(desk.http)
    assert {name: (family.type, family.documentation) for name, family in found.families.items()} == NAMES
    assert all(family.samples for family in found.families.values())
    units = {name: family.unit for name, family in found.families.items() if family.unit}
    assert units == {name: name.rpartition("_")[2] for name in NAMES if name.endswith(("_seconds", "_bytes"))}
    kind = "postgres" if desk.settings.database.startswith("postgresql:") else "sqlite"
    ((_, found_kind, number),) = (key for key in found.samples if key[0] == "handraise_database_info")
    assert found_kind == kind and number[0].isdigit()
    assert found["process_resident_memory_bytes"] > 1_000_000


async def test_what_agents_ask_and_people_answer_is_counted(desk: Served) -> None:
    ben = await desk.caller("ben", "answer")
    await desk.ask(id="answered")
    await desk.ask(id="rejected")
    await desk.ask(id="withdrawn")
    await desk.ask(id="open")
    await desk.ask(id="at once", question_policy="accept-first")
    for id in ("granted", "open permission"):
        await told(desk.http.post("/v1/asks", json=a_permission_body(id=id)), 201)
    await told(desk.http.post("/v1/asks", json=a_body(id="open")), 200)  # joins
    before = await scrape(desk.http)
    await desk.answer("answered", "SQLite")
    await told(desk.http.post(path_of("granted", "answer"), json={"reply": "once"}), 200)
    await told(desk.http.post(path_of("rejected", "reject")), 200)
    await told(desk.http.post(path_of("withdrawn", "withdraw")), 200)
    await desk.answer("answered", "SQLite")  # the same again has not lost
    await refused(ben.post(path_of("answered", "answer"), json={"answers": [["Postgres"]]}), 409, "already_answered")
    await refused(ben.post(path_of("answered", "answer"), json={"answers": [["a", "b"]]}), 409, "already_answered")
    await refused(ben.post(path_of("withdrawn", "reject")), 410, "ask_withdrawn")
    await refused(ben.post(path_of("open", "answer"), json={"answers": [["a", "b"]]}), 422, "answer_does_not_fit")

    found = await scrape(desk.http)
    assert (before["handraise_asks_open"], found["handraise_asks_open"]) == (6, 2)
    assert found["handraise_asks_raised_total", "question"] == 5
    assert found["handraise_asks_raised_total", "permission"] == 2
    decided = {who: found["handraise_time_to_answer_seconds_count", who] for who in Counts().answers}
    assert decided == {"person": 3, "policy": 1, "timeout": 0, "agent": 0}
    assert found["handraise_races_lost_total"] == 3
    assert found["handraise_asks_withdrawn_total"] == 1
    assert found["handraise_store_trouble"] == 0


async def test_deliveries_are_counted_once_and_failures_as_failures(desk: Served) -> None:
    for id in ("taken", "failed", "open"):
        await desk.ask(id=id)
    await desk.answer("taken", "SQLite")
    await desk.answer("failed", "SQLite")
    for _ in range(2):  # the second time the first one is delivered already
        reports = [{"id": "taken"}, {"id": "failed", "error": "it died"}, {"id": "open"}, {"id": "nobody"}]
        await told(desk.http.post("/v1/deliveries", json={"deliveries": reports}), 200)
    waited = await told(
        desk.http.post("/v1/asks", params={"wait": 1}, json=a_body(id="at once", question_policy="accept-first")), 201
    )
    assert waited["state"] == "answered"
    await eventually(lambda: desk.broker.counts.delivered == 2)
    found = await scrape(desk.http)
    assert found["handraise_deliveries_total", "delivered"] == 2
    assert found["handraise_deliveries_total", "failed"] == 2


async def test_what_the_clock_decided_is_counted_as_such(desk: Served) -> None:
    asked = desk.http.post("/v1/asks", params={"wait": 5}, json=a_body(question_timeout=0.05))
    assert (await told(asked, 201))["answer"]["by"] == "policy:timeout"
    found = await scrape(desk.http)
    assert found["handraise_time_to_answer_seconds_count", "timeout"] == 1
    assert found["handraise_time_to_answer_seconds_sum", "timeout"] >= 0.05


async def test_waits_listeners_and_commits_are_told_as_they_are(desk: Served) -> None:
    before = await scrape(desk.http)
    async with listening(desk.http, session="s1"):
        call = asyncio.create_task(desk.http.post("/v1/asks", params={"wait": 60}, json=a_body(id="q1")))
        await eventually(lambda: desk.broker.waits == 1)
        async with asyncio.timeout(PATIENCE):
            while (parked := await scrape(desk.http))["handraise_asks_open"] == 0:
                pass
        assert (parked["handraise_waits"], parked["handraise_listeners"]) == (1, 1)
        assert parked["handraise_oldest_ask_age_seconds"] >= 0
        await desk.answer("q1", "SQLite")
        await told(call, 201)
    await eventually(lambda: len(desk.broker.feeds) == 0)
    after = await scrape(desk.http)
    assert (after["handraise_waits"], after["handraise_listeners"]) == (0, 0)
    assert after["handraise_commits_total"] - before["handraise_commits_total"] >= 2
    assert after["handraise_commits_total"] == after["handraise_commit_operations_count"]
    assert after["handraise_commit_operations_sum"] >= after["handraise_commit_operations_count"]
    assert after["handraise_oldest_ask_age_seconds"] == 0


async def test_no_word_of_an_agent_or_a_person_is_told(desk: Served) -> None:
    await desk.ask(id="marmalade", origin={"agent": "marmalade", "session": "marmalade"})
    caller = await desk.caller("marmalade", "answer")
    await told(caller.post(path_of("marmalade", "reject"), json={"reason": "marmalade"}), 200)
    assert "marmalade" not in (await desk.http.get("/metrics")).text


async def test_a_scrape_takes_a_token_that_may_answer(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        ask, answer = await desk.caller("ci", "ask"), await desk.caller("prometheus", "answer")
        await refused((await desk.client()).get("/metrics"), 401, "unauthorized")
        assert (await refused(ask.get("/metrics"), 403, "forbidden"))["scope"] == "answer"
        await scrape(answer)
        head = await answer.head("/metrics")
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) > 1000


async def test_desks_that_share_a_database_count_their_own_and_see_what_waits_in_all(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    database = new_database()
    async with serving(tmp_path / "a", database=database) as one, serving(tmp_path / "b", database=database) as other:
        await one.ask(id="q1")
        await one.ask(id="q2")
        await other.answer("q1", "SQLite")
        await refused(one.http.post(path_of("q1", "reject")), 409, "already_answered")
        await told(other.http.post("/v1/deliveries", json={"deliveries": [{"id": "q1"}]}), 200)
        await eventually(lambda: not one.broker.waits)
        here, there = await scrape(one.http), await scrape(other.http)
    assert here["handraise_asks_open"] == there["handraise_asks_open"] == 1
    names = (
        *(("handraise_asks_raised_total", "question"), ("handraise_time_to_answer_seconds_count", "person")),
        *(("handraise_races_lost_total",), ("handraise_deliveries_total", "delivered")),
    )
    assert [here[name] for name in names] == [2, 0, 1, 0]
    assert [there[name] for name in names] == [0, 1, 0, 1]


async def test_a_scrape_while_the_database_is_away_tells_what_is_known(tmp_path: Path) -> None:
    with postgres_server() as server:
        async with serving(tmp_path, database=server.address()) as desk:
            await desk.ask()
            assert (await scrape(desk.http))["handraise_asks_open"] == 1
            await asyncio.to_thread(server.stop)
            away = await asyncio.gather(*(scrape(desk.http) for _ in range(20)))
            assert {(each["handraise_asks_open"], each["handraise_store_trouble"]) for each in away} == {(1, 1)}
            assert away[0]["handraise_asks_raised_total", "question"] == 1
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(2 * PATIENCE):
                while (await scrape(desk.http))["handraise_store_trouble"]:
                    await asyncio.sleep(0.05)


class BrokenStore(SqliteStore):
    """On a disk that cannot be read any more."""

    async def open_asks(self) -> OpenAsks:
        raise sqlite3.OperationalError("disk I/O error")


async def test_before_anything_was_read_nothing_is_made_up() -> None:
    store = await BrokenStore.open_file(MEMORY)
    async with Broker(store) as broker:
        found = Told(await Metrics(broker, lag=Lag()).text())
        assert "handraise_asks_open" not in found.families
        assert found["handraise_store_trouble"] == 1
        assert found["handraise_asks_raised_total", "question"] == 0
    await store.close()


# Counting ---------------------------------------------------------------------------------------------------


async def test_an_answer_is_counted_by_who_decided_and_how_long_it_took(store: Store, fake_clock: FakeClock) -> None:
    async with Broker(store, clock=fake_clock) as broker:
        for id in ("a", "b"):
            await broker.open(an_ask(id=id))
        await fake_clock.advance(90)
        await broker.answer("a", SQLITE)
        await broker.answer("b", Answer(answers=(("SQLite",),), by="agent"))
        found = Told(await Metrics(broker, lag=Lag()).text())
        for who in ("person", "agent"):
            assert found["handraise_time_to_answer_seconds_bucket", who, "60.0"] == 0
            assert found["handraise_time_to_answer_seconds_bucket", who, "300.0"] == 1
            assert found["handraise_time_to_answer_seconds_sum", who] == 90
        with pytest.raises(AlreadyAnswered):
            await broker.reject("a")
        assert broker.counts.races_lost == 1


async def test_the_oldest_ask_ages_and_one_reopened_is_young_again(store: Store, fake_clock: FakeClock) -> None:
    async with Broker(store, clock=fake_clock) as broker:
        metrics = Metrics(broker, lag=Lag())
        await broker.open(an_ask(id="first"))
        await fake_clock.advance(60)
        await broker.open(a_permission(id="second"))
        await fake_clock.advance(60)
        assert Told(await metrics.text())["handraise_oldest_ask_age_seconds"] == 120
        await broker.withdraw("first")
        await broker.open(an_ask(id="first"))
        assert Told(await metrics.text())["handraise_oldest_ask_age_seconds"] == 60
        assert broker.counts.questions == 2


async def test_pruned_events_are_counted(store: Store, fake_clock: FakeClock) -> None:
    async with Broker(store, clock=fake_clock) as broker:
        for id in ("a", "b"):
            await broker.open(an_ask(id=id))
            await broker.answer(id, SQLITE)
    await fake_clock.advance(7200)
    async with Broker(store, clock=fake_clock, keep=timedelta(hours=1)) as broker:
        await eventually(lambda: broker.counts.pruned >= 3)  # SQLite numbers on after the newest, so that one stays
        assert Told(await Metrics(broker, lag=Lag()).text())["handraise_events_pruned_total"] == broker.counts.pruned


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    found = Histogram((1, 2))
    for value in (0, 1, 1.5, 2, 2.1):
        found.add(value)
    assert (found.counts, found.sum) == ([2, 2, 1], 6.6)


def test_clocks_that_disagree_make_no_negative_time() -> None:
    counts = Counts()
    counts.decided("ana", after=-5000)
    assert (counts.answers["person"].counts[0], counts.answers["person"].sum) == (1, 0)


# The loop ---------------------------------------------------------------------------------------------------


async def test_a_loop_that_is_late_is_known_for_a_minute() -> None:
    now = 0.0
    lag = Lag(now=lambda: now)
    watching = asyncio.create_task(lag.watch())
    await asyncio.sleep(0)
    assert lag.worst == 0
    now = 3.5  # half a second of it was due
    assert lag.worst == 3
    await eventually(lambda: sum(lag.all.counts) == 1)
    assert (lag.worst, lag.all.sum) == (3, 3)
    watching.cancel()
    await asyncio.wait([watching])
    now += RECENT
    assert lag.worst == 3
    now += 0.1
    assert lag.worst == 0


# Reading ----------------------------------------------------------------------------------------------------


async def test_one_read_serves_all_who_ask_and_nobody_waits_longer_for_a_slow_one() -> None:
    reads = 0
    go_on = asyncio.Event()

    async def read() -> int:
        nonlocal reads
        reads += 1
        number = reads
        await go_on.wait()
        return number

    bounded = BoundedRead(read, seconds=0.01)
    late = await asyncio.gather(*(bounded() for _ in range(50)), return_exceptions=True)
    assert [type(each) for each in late] == [TimeoutError] * 50
    with pytest.raises(TimeoutError):
        await bounded()
    assert reads == 1
    go_on.set()
    async with asyncio.timeout(PATIENCE):
        while reads == 1:
            with suppress(TimeoutError):
                await bounded()
    assert await asyncio.gather(*(bounded() for _ in range(50))) == [3] * 50


async def test_what_waits_is_counted_in_the_indexes_alone_by_sqlite(tmp_path: Path) -> None:
    store = await SqliteStore.open_file(tmp_path / "desk.db")
    await store.close()
    connection = sqlite3.connect(tmp_path / "desk.db")
    plan = [row[3] for row in connection.execute(f"explain query plan {OPEN_ASKS}")]
    connection.close()
    scans = [step for step in plan if "asks" in step]
    assert [step.rpartition(" ")[2] for step in scans] == ["asks_open", "asks_open"]


async def test_what_waits_is_counted_in_the_indexes_alone_by_postgres(tmp_path: Path) -> None:
    with postgres_server() as server:
        async with serving(tmp_path, database=server.address(schema="desk")):
            connection = await asyncpg.connect(server.address())
            await connection.execute("set search_path = desk; set enable_seqscan = off")
            plan = "\n".join(row[0] for row in await connection.fetch(f"explain {OPEN_ASKS}"))
            await connection.close()
    assert plan.count("asks_open") == 2
    assert "Seq Scan" not in plan
