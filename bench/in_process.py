"""The same cycle without HTTP: through the broker, or through the bare store; a process of its own, prints JSON."""

import argparse
import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter

import uvloop

from handraise.app import open_store
from handraise.asks import Answer, Ask, Option, Origin, Question
from handraise.broker import Broker
from handraise.broker.deliveries import DELIVERIES_AFTER
from handraise.stores import Change, NewAsk, Query
from handraise.wire import answer_text, content_text

WARM_UP_SECONDS = 0.5
QUESTIONS = (
    Question(
        "Which database?",
        (
            Option("SQLite", description="one file"),
            Option("PostgreSQL", description="shared"),
            Option("None", description="in memory"),
        ),
        header="Storage",
    ),
)
ANSWER = Answer(answers=(("SQLite",),), by="bench", via="bench")

# One cycle of the session with this number; the count makes its ask's id.
Cycle = Callable[[int, int], Awaitable[None]]


@asynccontextmanager
async def broker_cycles(database: str) -> AsyncIterator[Cycle]:
    """The calls the HTTP routes make, without HTTP; each question is answered in a task of its own."""
    store = await open_store(database)
    async with Broker(store) as broker, asyncio.TaskGroup() as tasks:
        feed = broker.feeds.follow(Query(), after=await store.cursor())

        async def answer_everything() -> None:
            async for batches in feed.batches():
                for event in (event for batch in batches for event in batch.events):
                    if event.type == "asked":
                        tasks.create_task(broker.answer_stored(event.ask.id, ANSWER))

        async def cycle(session: int, count: int) -> None:
            opened = await broker.open(_ask(session, count), wait=60)
            assert opened.stored.state == "answered"
            broker.delivered(opened.stored.id)

        answerer = tasks.create_task(answer_everything())
        yield cycle
        answerer.cancel()
        broker.feeds.leave(feed)
    await store.close()


@asynccontextmanager
async def store_cycles(database: str) -> AsyncIterator[Cycle]:
    """The durable writes of a cycle, with texts made beforehand; deliveries are gathered as the broker gathers them."""
    store = await open_store(database)
    texts = [content_text(_ask(session, 0)) for session in range(1000)]
    answer = answer_text(ANSWER)

    async def cycle(session: int, count: int) -> None:
        id = f"b-{session}-{count}"
        await store.open(
            NewAsk(
                id=id,
                base=None,
                owner="",
                worker=None,
                session=f"s-{session}",
                run=None,
                agent="bench",
                content=texts[session],
                state="asked",
                asked_at=count,
                timeout=None,
                deadline=None,
                fallback=None,
                answer=None,
                judgement=None,
                events=("asked",),
            )
        )
        changed = await store.change(
            id,
            Change(states=("asked",), set={"state": "answered", "answer": answer}, event="answered", at=count),
        )
        assert changed is not None
        assert changed.done
        delivered.append((id, taken))

    async def report_deliveries() -> None:
        while True:
            await asyncio.sleep(DELIVERIES_AFTER)
            gathered, delivered[:] = list(delivered), []
            if gathered:
                await store.change_all(gathered)

    taken = Change(
        states=("answered", "rejected"), empty=("delivered_at",), set={"delivered_at": 1}, event="delivered", at=1
    )
    delivered: list[tuple[str, Change]] = []
    async with asyncio.TaskGroup() as tasks:
        reporting = tasks.create_task(report_deliveries())
        yield cycle
        reporting.cancel()
    await store.close()


LEVELS = {"broker": broker_cycles, "store": store_cycles}


async def measure(level: str, *, database: str, sessions: int, seconds: float) -> dict[str, float]:
    async with LEVELS[level](database) as cycle:
        finished, running = 0, True

        async def again_and_again(session: int) -> None:
            nonlocal finished
            count = 0
            while running:
                count += 1
                await cycle(session, count)
                finished += 1

        async with asyncio.TaskGroup() as tasks:
            for session in range(sessions):
                tasks.create_task(again_and_again(session))
            await asyncio.sleep(WARM_UP_SECONDS)
            before, begin = finished, perf_counter()
            await asyncio.sleep(seconds)
            counted, elapsed = finished - before, perf_counter() - begin
            running = False
    return {"cycles_per_second": round(counted / elapsed, 1)}


def _ask(session: int, count: int) -> Ask:
    return Ask(id=f"b-{session}-{count}", questions=QUESTIONS, origin=Origin(agent="bench", session=f"s-{session}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("level", choices=sorted(LEVELS))
    parser.add_argument("--database", required=True, help="the address of an empty one, as HANDRAISE_DATABASE takes it")
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5)
    args = parser.parse_args()
    # As `handraise serve` sets it.
    gc.set_threshold(50_000, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(measure(args.level, database=args.database, sessions=args.sessions, seconds=args.seconds))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
