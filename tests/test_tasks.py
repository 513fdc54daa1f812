"""Tasks end with their owner, and one that breaks is seen and ends no other."""

from __future__ import annotations

import asyncio

import pytest

from handraise.tasks import Tasks, running


async def forever(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("ended")


async def breaks() -> None:
    raise ValueError("broken")


async def test_leaving_the_block_ends_what_still_runs() -> None:
    ended: list[str] = []
    async with Tasks() as tasks:
        task = tasks.start(forever(ended))
        await asyncio.sleep(0)
    assert task.cancelled() and ended == ["ended"]


async def test_what_is_nearly_done_may_finish() -> None:
    tasks, may_go = Tasks(), asyncio.Event()
    task = tasks.start(may_go.wait())
    asyncio.get_running_loop().call_soon(may_go.set)
    await tasks.close(within=5.0)
    assert task.result()


async def test_one_that_breaks_is_logged_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []
    tasks = Tasks(complaint="a chore was dropped")
    other = tasks.start(forever(ended))
    await asyncio.wait([tasks.start(breaks())])
    assert not other.done() and "a chore was dropped" in caplog.text and "ValueError: broken" in caplog.text
    await tasks.close()
    assert other.cancelled()


async def test_a_task_may_close_its_own_owner() -> None:
    tasks = Tasks()
    await asyncio.wait_for(tasks.start(tasks.close()), 5.0)


async def test_what_runs_beside_a_block_ends_with_it_however_the_block_ends() -> None:
    begun: list[asyncio.Task[bool]] = []

    async def block() -> None:
        async with running(asyncio.Event().wait()) as task:
            begun.append(task)
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        await block()
    assert begun[0].cancelled()


async def test_whoever_awaits_what_runs_beside_a_block_sees_what_it_raises() -> None:
    async def work() -> None:
        raise ValueError("of the work")

    async with running(work()) as task:
        with pytest.raises(ValueError, match="of the work"):
            await task
