"""The stores: the contract on every back end, and what only a file has: locks, versions, full disks, kill -9.
What only a server has is in test_postgres.py."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from handraise.errors import StoreFailed, StoreInUse, StoreTooNew
from handraise.stores import Query, Store
from handraise.stores.postgres import PostgresStore
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing import check_store
from handraise.testing.stores import row

WRITER = """
import asyncio, sys
from handraise.stores.sqlite import SqliteStore
from handraise.testing.stores import closing, row

async def main() -> None:
    store = await SqliteStore.open_file(sys.argv[1])
    async def keep_writing(name: str) -> None:
        for number in range(1_000_000):
            id = f"{name}{number}"
            await store.open(row(id))
            print("asked", id, flush=True)
            await store.change(id, closing())
            print("answered", id, flush=True)
    async with asyncio.TaskGroup() as writers:
        for name in "abcdefgh":
            writers.create_task(keep_writing(name))

asyncio.run(main())
"""

FULL_DISK = """
import asyncio, resource, sys
from handraise.errors import StoreFailed
from handraise.stores.sqlite import SqliteStore
from handraise.testing.stores import row

def allow(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def write(store: SqliteStore, id: str) -> None:
    try:
        await store.open(row(id))
        print("kept", id)
    except StoreFailed as failure:
        print("lost", id, failure)

async def main() -> None:
    store = await SqliteStore.open_file(sys.argv[1])
    await write(store, "before")
    allow(200_000)
    for number in range(200):
        await write(store, f"while full {number}")
    allow(resource.RLIM_INFINITY)
    await asyncio.gather(*(write(store, f"after {number}") for number in range(20)))
    await store.close()

asyncio.run(main())
"""


async def test_a_store_in_memory_fits_the_contract() -> None:
    report = await check_store(lambda: SqliteStore.open_file(MEMORY))
    assert "what was acknowledged is there after a restart" in report.cannot
    assert "closings at both desks have one winner" in report.cannot
    assert set(report.cannot.values()) == {
        "it keeps nothing (no `reopen` was given)",
        "desks cannot share it (no `second` was given)",
    }


async def test_a_store_in_a_file_fits_the_contract(tmp_path: Path) -> None:
    files = iter(tmp_path / f"{number}.db" for number in range(1000))
    paths: dict[Store, Path] = {}

    async def make() -> Store:
        path = next(files)
        store = await SqliteStore.open_file(path)
        paths[store] = path
        return store

    async def reopen(store: Store) -> Store:
        await store.close()
        return await SqliteStore.open_file(paths[store])

    report = await check_store(make, reopen=reopen)
    assert set(report.cannot.values()) == {"desks cannot share it (no `second` was given)"}


async def test_a_store_in_postgres_fits_the_contract(new_database: Callable[[], str]) -> None:
    addresses: dict[Store, str] = {}

    async def make() -> Store:
        return await open(new_database())

    async def open(address: str) -> Store:
        store = await PostgresStore.open_address(address)
        addresses[store] = address
        return store

    async def reopen(store: Store) -> Store:
        await store.close()
        return await open(addresses[store])

    report = await check_store(make, reopen=reopen, second=lambda store: open(addresses[store]))
    assert not report.cannot


async def test_a_second_desk_on_the_same_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "desk.db"
    first = await SqliteStore.open_file(path)
    with pytest.raises(StoreInUse, match=r"another desk \(process \d+\) holds .*desk\.db; use that one, stop it, or"):
        await SqliteStore.open_file(path)
    await first.close()
    await (await SqliteStore.open_file(path)).close()


async def test_a_database_of_a_newer_handraise_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "desk.db"
    await (await SqliteStore.open_file(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 9999")
    connection.close()
    for _ in range(2):  # the lock is free again after the refusal
        with pytest.raises(StoreTooNew, match="upgrade handraise"):
            await SqliteStore.open_file(path)


@pytest.mark.parametrize("name", ["100% #1", "what?", "a b", "ümläut"])
async def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    store = await SqliteStore.open_file(folder / "desk.db")
    await store.open(row("a"))
    await store.close()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (folder / "desk.db").exists()


async def test_a_full_disk_fails_what_it_hits_and_nothing_else(tmp_path: Path) -> None:
    told = run_script(FULL_DISK, tmp_path / "desk.db")
    kept = [line.removeprefix("kept ") for line in told if line.startswith("kept ")]
    lost = [line for line in told if line.startswith("lost ")]
    assert "before" in kept and lost and "while full" in lost[0]
    assert "Free space on the disk" in lost[0]
    assert len([id for id in kept if id.startswith("after")]) == 20
    assert await ids_in(tmp_path / "desk.db") == kept


async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "desk.db"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = [writer.stdout.readline() for _ in range(500)]
        writer.kill()
        acknowledged += [line for line in writer.stdout if line.endswith("\n")]
    store = await SqliteStore.open_file(path)
    states = {stored.id: stored.state for stored in await store.find(Query(), limit=1_000_000)}
    history = await store.history(Query(), after=0, limit=1_000_000)
    await store.close()
    told = {(event.type, event.ask.id) for event in history}
    for type, id in (line.split() for line in acknowledged):
        assert (type, id) in told
        assert states[id] in (type, "answered")


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = await SqliteStore.open_file(tmp_path / "desk.db")
    await store.close()
    await store.close()
    with pytest.raises(StoreFailed, match="the store is closed"):
        await store.open(row("a"))


async def ids_in(path: Path) -> list[str]:
    store = await SqliteStore.open_file(path)
    found = await store.find(Query(), limit=10_000)
    await store.close()
    return [stored.id for stored in found]


def run_script(script: str, path: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
