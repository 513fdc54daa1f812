"""`/healthz` tells a desk that is well from one with a problem and from one that is down, with real troubles."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from handraise.broker.counts import TICK, Lag
from handraise.server.routes._health import LATE, PROBLEMS, Health
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing.postgres import PostgresServer, postgres_server
from tests.helpers.serving import PATIENCE, START, Served, a_body, refused, serving, told

ROOT = Path(__file__).parents[2]
FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from tests.helpers.serving import a_body, serving

def allow(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    async with serving(Path(sys.argv[1])) as desk:
        async def ask_until(status):
            for _ in range(500):
                if (await desk.http.post("/v1/asks", json=a_body())).status_code == status:
                    break
            health = await desk.http.get("/healthz")
            print(status, health.status_code, health.text)
        await ask_until(201)
        allow(200_000)
        await ask_until(503)
        allow(resource.RLIM_INFINITY)
        await ask_until(201)

asyncio.run(main())
"""


async def health_of(desk: Served) -> tuple[int, str, list[str]]:
    """Status code, status and problems, asked for without a token."""
    response = await (await desk.client()).get("/healthz")
    body = response.json()
    assert body["version"]
    return response.status_code, body["status"], body["problems"]


async def until_well(desk: Served) -> None:
    async with asyncio.timeout(2 * PATIENCE):
        while (await health_of(desk))[1] != "ok":
            await asyncio.sleep(0.05)


async def test_a_desk_that_is_well_says_so_to_anybody(tmp_path: Path, database: str) -> None:
    async with serving(tmp_path, database=database) as desk:
        nobody = await desk.client()
        assert (await told(nobody.get("/healthz"), 200)).keys() == {"status", "version", "problems"}
        assert await health_of(desk) == (200, "ok", [])
        head = await nobody.head("/healthz")
        assert (head.status_code, head.content) == (200, b"")


async def test_a_desk_whose_database_is_away_is_down_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with postgres_server() as server:
        async with serving(tmp_path, database=server.address()) as desk:
            await desk.ask()
            await asyncio.to_thread(server.stop)
            nobody = await desk.client()
            down = await refused(nobody.get("/healthz"), 503, "store_failed")
            assert (down["status"], down["problems"]) == ("down", ["database_away"])
            assert "127.0.0.1" not in json.dumps(down) and str(server.port) not in json.dumps(down)
            assert (await nobody.head("/healthz")).status_code == 503
            assert (await nobody.get("/healthz")).headers["retry-after"] == "1"
            assert str(server.port) in caplog.text, "the log says where"
            fail = [check for check in await doctor(tmp_path) if check["status"] == "fail"]
            assert [check["name"] for check in fail] == ["desk"] and "does not answer" in fail[0]["said"]
            await asyncio.to_thread(server.start)
            await until_well(desk)
            await desk.ask()
    assert "well again" in caplog.text


async def test_a_commit_that_fails_degrades_the_desk_until_one_succeeds(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """The database refuses every write as a full disk would, and can be read all the same."""
    connection = await asyncpg.connect(postgres.address())
    async with serving(tmp_path, database=postgres.address(schema="full")) as desk:
        await desk.ask()
        await connection.execute(
            """
            create function "full".full_disk() returns trigger language plpgsql as $$
            begin raise exception 'no space left at 10.0.0.7' using errcode = 'disk_full'; end $$;
            create trigger full_disk before insert or update on "full".writers execute function "full".full_disk();
            """
        )
        await refused(desk.http.post("/v1/asks", json=a_body()), 503, "store_failed")
        assert await health_of(desk) == (200, "degraded", ["write_failed"])
        assert "10.0.0.7" not in (await desk.http.get("/healthz")).text
        assert (await desk.http.get("/metrics")).text.count("handraise_store_trouble 1\n") == 1
        said = [check["said"] for check in await doctor(tmp_path) if check["name"] == "desk"]
        assert said[1:] == [PROBLEMS["write_failed"]]
        await connection.execute('drop trigger full_disk on "full".writers')
        await desk.ask()
        assert await health_of(desk) == (200, "ok", [])
    await connection.close()


def test_a_full_disk_degrades_the_desk_until_there_is_room(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=2 * START,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    said = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert [(asked, health) for asked, health, _ in said] == [("201", "200"), ("503", "200"), ("201", "200")]
    bodies = [json.loads(body) for _, _, body in said]
    assert [body["status"] for body in bodies] == ["ok", "degraded", "ok"]
    assert bodies[1]["problems"] == ["write_failed"]


async def test_a_loop_that_was_blocked_degrades_the_desk(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        time.sleep(LATE + TICK + 0.1)  # what is tested: nothing else runs meanwhile
        assert await health_of(desk) == (200, "degraded", ["loop_lag"])
        text = (await desk.http.get("/metrics")).text
        (worst,) = (line for line in text.splitlines() if line.startswith("handraise_loop_lag_worst_seconds "))
        assert float(worst.split()[1]) > LATE
        await desk.ask()


# Troubles that come and go too quickly elsewhere -------------------------------------------------------------


class TroubledStore(SqliteStore):
    """Reads when it is allowed to, and hears nothing of other desks."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        self.reads = 0
        self.allowed = asyncio.Event()
        self.allowed.set()
        self.said: dict[str, str] = {}

    async def cursor(self) -> int:
        self.reads += 1
        await self.allowed.wait()
        return await super().cursor()

    @property
    def troubles(self) -> Mapping[str, str]:
        return self.said


@pytest.fixture
async def troubled() -> AsyncIterator[TroubledStore]:
    store = await TroubledStore.open_file(MEMORY)
    assert isinstance(store, TroubledStore)
    store.reads = 0
    yield store
    await store.close()


async def test_a_database_that_says_nothing_is_asked_once_however_many_want_to_know(troubled: TroubledStore) -> None:
    health = Health(troubled, lag=Lag(), patience=0.01)
    troubled.allowed.clear()
    conditions = await asyncio.gather(*(health.look() for _ in range(100)))
    assert {condition.status for condition in conditions} == {"down"}
    assert (await health.look()).problems == ("database_away",)
    assert troubled.reads == 1
    troubled.allowed.set()
    async with asyncio.timeout(PATIENCE):
        while (await health.look()).status != "ok":
            await asyncio.sleep(0.002)


async def test_what_degrades_a_desk_is_told_in_a_word_each_and_logged_whole_once(
    troubled: TroubledStore, caplog: pytest.LogCaptureFixture
) -> None:
    troubled.said = {"listening": "the database at postgresql://10.0.0.7 is away", "writing": "no space left"}
    health = Health(troubled, lag=Lag(), slow=-1)
    for _ in range(3):
        condition = await health.look()
    assert condition == ("degraded", ("not_listening", "write_failed", "database_slow"))
    assert len(caplog.messages) == 1
    assert "postgresql://10.0.0.7" in caplog.text and "no space left" in caplog.text


async def test_a_store_that_breaks_in_its_own_way_is_down_too(troubled: TroubledStore) -> None:
    await troubled.close()
    assert (await Health(troubled, lag=Lag()).look()).status == "down"


async def doctor(home: Path) -> list[dict[str, str]]:
    """What `handraise doctor` finds at the desk of a home."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("HANDRAISE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handraise", "doctor", "--json"),
        env={**mine, "HANDRAISE_HOME": str(home)},
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), START)
    return [json.loads(line) for line in out.splitlines()]
