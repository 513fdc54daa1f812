"""What every store must hold. Each case gets a fresh store; the ones about restarts need `reopen`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from handraise.asks import Answer
from handraise.errors import StoreFailed
from handraise.stores import Change, NewAsk, Query, Store
from handraise.testing.cases import Report, run_cases
from handraise.testing.samples import an_ask
from handraise.wire import StoredEvent, answer_text, content_text

__all__ = ["check_store"]

NOW = 1_767_225_600_000
WITHDRAWN = Change(
    states=("asked",), set={"state": "withdrawn", "withdrawn_reason": "gone"}, event="withdrawn", at=NOW + 1
)
TAKEN = Change(
    states=("answered", "rejected"), set={"delivered_at": NOW + 2}, event="delivered", at=NOW + 2, undelivered=True
)
NOT_DURABLE = {"what was acknowledged is there after a restart": "it keeps nothing (no `reopen` was given)"}


@dataclass(kw_only=True)
class Subject:
    store: Store
    reopen: Callable[[Store], Awaitable[Store]] | None


async def check_store(
    make: Callable[[], Awaitable[Store]], *, reopen: Callable[[Store], Awaitable[Store]] | None = None
) -> Report:
    """Raises AssertionError with every case that failed.

    `make` gives a store with nothing in it. `reopen` closes a store and opens what it left; without it the suite
    reports that nothing was said about restarts.
    """

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Subject]:
        subject = Subject(store=await make(), reopen=reopen)
        try:
            yield subject
        finally:
            await subject.store.close()

    return await run_cases("check_store", _CASES, fresh, cannot={} if reopen else NOT_DURABLE)


# Opening ----------------------------------------------------------------------------------------------------


async def a_new_ask_is_kept_as_it_came(subject: Subject) -> None:
    new = row("a", base="b", owner="token", worker="w", run="r", timeout=5, deadline=NOW + 5, fallback="{}")
    opened = await subject.store.open(new)
    assert opened.how == "new", f"opened as {opened.how}"
    for column in set(NewAsk._fields) & set(opened.stored._fields):
        kept, given = getattr(opened.stored, column), getattr(new, column)
        assert kept == given, f"{column}: {given!r} became {kept!r}"
    assert await subject.store.get("a") == opened.stored, "`get` says something else than `open`"
    assert await subject.store.get("b") is None, "an id that nobody asked is there"


async def the_same_ask_again_joins(subject: Subject) -> None:
    first = await subject.store.open(row("a"))
    again = await subject.store.open(row("a", asked_at=NOW + 9, deadline=NOW + 10))
    assert (again.how, again.stored) == ("joined", first.stored), f"the second one was {again}"
    await subject.store.change("a", closing())
    answered = await subject.store.open(row("a"))
    assert (answered.how, answered.stored.state) == ("joined", "answered"), f"the third one was {answered}"
    assert len(await history(subject.store)) == 2, "joining was told as an event"


async def a_worker_that_joins_an_open_ask_has_it_from_then_on(subject: Subject) -> None:
    await subject.store.open(row("a", worker="w1"))
    joined = await subject.store.open(row("a", worker="w2"))
    found = await subject.store.find(Query(worker="w2"))
    assert joined.stored.worker == "w2" and len(found) == 1, "the ask stayed with the worker that went away"


async def other_content_under_the_same_id_differs(subject: Subject) -> None:
    first = await subject.store.open(row("a"))
    other = await subject.store.open(row("a", content=content_text(an_ask(id="a", questions=()))))
    assert (other.how, other.stored) == ("differs", first.stored), f"it was {other.how}"
    await subject.store.change("a", WITHDRAWN)
    later = await subject.store.open(row("a", content=content_text(an_ask(id="a", questions=()))))
    assert later.how == "differs", f"a withdrawn ask was opened again with other content ({later.how})"


async def a_withdrawn_ask_opens_again(subject: Subject) -> None:
    first = await subject.store.open(row("a"))
    await subject.store.change("a", WITHDRAWN)
    again = await subject.store.open(
        row("a", asked_at=NOW + 5, timeout=7, deadline=NOW + 12, fallback="{}", worker="w")
    )
    stored = again.stored
    assert again.how == "reopened", f"it was {again.how}"
    assert (stored.state, stored.withdrawn_reason) == ("asked", None), f"it is {stored.state}"
    assert (stored.seq, stored.openings) == (first.stored.seq, 2), "it became another ask"
    verdict = (stored.asked_at, stored.timeout, stored.deadline, stored.fallback, stored.worker)
    assert verdict == (NOW + 5, 7, NOW + 12, "{}", "w"), f"of the new verdict {verdict} was kept"
    assert [event.type for event in await history(subject.store)] == ["asked", "withdrawn", "asked"]


async def an_ask_decided_at_once_is_told_as_asked_and_then_as_decided(subject: Subject) -> None:
    opened = await subject.store.open(row("a", state="answered", answer=said(), events=("asked", "answered")))
    asked, answered = await history(subject.store)
    assert (asked.type, asked.ask.state, asked.ask.answer) == ("asked", "asked", None), f"first {asked}"
    assert (answered.type, answered.ask) == ("answered", opened.stored), f"then {answered}"


async def many_openings_of_one_id_at_once_make_one_ask(subject: Subject) -> None:
    opened = await asyncio.gather(*(subject.store.open(row("a")) for _ in range(50)))
    how = [each.how for each in opened]
    assert (how.count("new"), how.count("joined")) == (1, 49), f"{how.count('new')} of 50 were new"


# Changing ---------------------------------------------------------------------------------------------------


async def a_change_happens_in_its_states_only(subject: Subject) -> None:
    await subject.store.open(row("a"))
    early = await subject.store.change("a", TAKEN)
    assert early is not None and not early.done, "an open ask was delivered"
    closed = await subject.store.change("a", closing())
    assert closed is not None and closed.done and closed.stored.state == "answered", f"closing gave {closed}"
    late = await subject.store.change("a", WITHDRAWN)
    assert late is not None and not late.done, "an answered ask was withdrawn"
    assert late.stored == closed.stored, "the loser is not told what is the case"


async def a_change_of_an_unknown_ask_is_none(subject: Subject) -> None:
    assert await subject.store.change("a", WITHDRAWN) is None
    assert await subject.store.change_all([("a", WITHDRAWN)]) == [None]


async def a_deadline_closes_when_it_is_due_only(subject: Subject) -> None:
    await subject.store.open(row("a", deadline=NOW + 10))
    await subject.store.open(row("b"))
    for id, due, expected in (("a", NOW + 9, False), ("b", NOW + 99, False), ("a", NOW + 10, True)):
        changed = await subject.store.change(id, closing(due=due))
        assert changed is not None and changed.done is expected, f"ask {id} at {due - NOW} ms: done is {changed}"


async def an_answer_is_taken_once(subject: Subject) -> None:
    await subject.store.open(row("a"))
    await subject.store.change("a", closing())
    first, second = [await subject.store.change("a", TAKEN) for _ in range(2)]
    assert first is not None and first.done and first.stored.delivered_at == NOW + 2, f"first {first}"
    assert second is not None and not second.done, "it was taken twice"


async def many_closings_at_once_have_one_winner(subject: Subject) -> None:
    await subject.store.open(row("a"))
    answers = [said(f"person {number}") for number in range(50)]
    closings = await asyncio.gather(*(subject.store.change("a", closing(answer)) for answer in answers))
    winners = [answer for answer, closed in zip(answers, closings, strict=True) if closed and closed.done]
    stored = await subject.store.get("a")
    assert stored is not None and winners == [stored.answer], f"{len(winners)} of 50 won"
    assert all(closed and closed.stored == stored for closed in closings), "a loser is not told who won"
    assert [event.type for event in await history(subject.store)] == ["asked", "answered"]


async def several_changes_each_have_their_own_condition(subject: Subject) -> None:
    for id in "abc":
        await subject.store.open(row(id))
    await subject.store.change("b", closing())
    changes = [("a", WITHDRAWN), ("b", WITHDRAWN), ("x", WITHDRAWN), ("c", closing()), ("c", TAKEN)]
    changed = await subject.store.change_all(changes)
    assert [each and each.done for each in changed] == [True, False, None, True, True], f"{changed}"
    assert await subject.store.change_all([]) == []


# Reading ----------------------------------------------------------------------------------------------------


async def the_newest_of_a_base_is_the_one_opened_last(subject: Subject) -> None:
    assert await subject.store.newest("a") is None
    for number in (1, 2, 3):
        await subject.store.open(row(f"a#{number}", base="a"))
    await subject.store.open(row("b#9", base="b"))
    newest = await subject.store.newest("a")
    assert newest is not None and newest.id == "a#3", f"it is {newest}"


async def asks_are_found_page_by_page_in_the_order_they_were_asked(subject: Subject) -> None:
    ids = [f"ask {number}" for number in range(25)]
    for id in ids:
        await subject.store.open(row(id))
    found: list[str] = []
    after = 0
    while page := await subject.store.find(Query(), after=after, limit=10):
        assert len(page) <= 10, f"a page of 10 has {len(page)}"
        assert page[0].seq > after, f"what comes after {after} begins with {page[0].seq}"
        found += [stored.id for stored in page]
        after = page[-1].seq
    assert found == ids, f"found {found}"


async def asks_are_found_by_every_column_of_a_query(subject: Subject) -> None:
    await subject.store.open(row("a", owner="o1", worker="w1", session="s1", run="r1", agent="x"))
    await subject.store.open(row("b", owner="o2", worker="w2", session="s2", run="r2", agent="y"))
    await subject.store.change("b", closing())
    queries = (
        Query(state="answered"),
        Query(owner="o2"),
        Query(worker="w2"),
        Query(session="s2"),
        Query(run="r2"),
        Query(agent="y"),
        Query(agent="y", session="s2", state="answered"),
    )
    for query in queries:
        found = [stored.id for stored in await subject.store.find(query)]
        assert found == ["b"], f"{query}: found {found}"
    for query in (Query(state="asked", session="s2"), Query(agent="x", run="r2")):
        assert await subject.store.find(query) == [], f"{query} found something"


async def history_is_every_event_once_with_the_ask_as_it_was_then(subject: Subject) -> None:
    opened = await subject.store.open(row("a", deadline=NOW + 10))
    answered = await subject.store.change("a", closing())
    taken = await subject.store.change("a", TAKEN)
    assert answered is not None and taken is not None
    events = await history(subject.store, limit=1)
    assert [event.type for event in events] == ["asked", "answered", "delivered"]
    assert [event.at for event in events] == [NOW, NOW + 1, NOW + 2], "events carry another time than their change"
    assert [event.ask for event in events] == [opened.stored, answered.stored, taken.stored]
    cursors = [event.cursor for event in events]
    assert cursors == sorted(set(cursors)) and cursors[0] > 0, f"cursors do not rise: {cursors}"
    assert await subject.store.cursor() == cursors[-1], "`cursor` is not that of the last event"


async def history_has_what_a_query_wants(subject: Subject) -> None:
    assert await subject.store.cursor() == 0, "a fresh store has events"
    await subject.store.open(row("a", session="s1", run="r1", worker="w1"))
    await subject.store.open(row("b", session="s2"))
    await subject.store.change("a", closing())
    for query in (Query(session="s1"), Query(run="r1"), Query(worker="w1"), Query(session="s1", state="withdrawn")):
        told = [(event.type, event.ask.id) for event in await history(subject.store, query)]
        assert told == [("asked", "a"), ("answered", "a")], f"{query}: {told}"


async def deadlines_are_those_of_open_asks(subject: Subject) -> None:
    await subject.store.open(row("a", deadline=NOW + 10))
    await subject.store.open(row("b", deadline=NOW + 20))
    await subject.store.open(row("c"))
    await subject.store.change("a", closing())
    assert await subject.store.deadlines() == [(NOW + 20, "b")]


# Telling ----------------------------------------------------------------------------------------------------


async def a_listener_is_told_before_the_writer_goes_on(subject: Subject) -> None:
    told: list[str] = []
    stop = subject.store.tail(lambda events: told.extend(event.type for event in events))
    await subject.store.open(row("a"))
    assert told == ["asked"], f"after `open` returned, the listener knew {told}"
    await subject.store.change("a", closing())
    assert told == ["asked", "answered"], f"after `change` returned, the listener knew {told}"
    stop()
    await subject.store.change("a", TAKEN)
    assert told == ["asked", "answered"], "a listener that left is still told"


async def what_a_listener_is_told_is_committed_and_in_order(subject: Subject) -> None:
    told: list[StoredEvent] = []
    reads: list[asyncio.Task[list[StoredEvent]]] = []
    async with asyncio.TaskGroup() as tasks:

        def listen(events: Any) -> None:
            told.extend(events)
            after = events[0].cursor - 1
            reads.append(tasks.create_task(subject.store.history(Query(), after=after, limit=len(events))))

        subject.store.tail(listen)
        async with asyncio.TaskGroup() as writers:
            for number in range(30):
                writers.create_task(_ask_and_answer(subject.store, f"ask {number}"))
    assert [event for read in reads for event in read.result()] == told, "an event was told that was not committed"
    assert told == await history(subject.store), "events were told in another order than they are kept"


async def a_listener_that_breaks_hurts_nobody_else(subject: Subject) -> None:
    told: list[str] = []

    def broken(events: Any) -> None:
        raise RuntimeError("a listener broke, as this case wants it to")

    stop = subject.store.tail(broken)
    subject.store.tail(lambda events: told.extend(event.type for event in events))
    await subject.store.open(row("a"))
    await subject.store.change("a", closing())
    stop()
    assert told == ["asked", "answered"], f"the other listener knew {told}"


# Other rooms and troubles -----------------------------------------------------------------------------------


async def other_rooms_write_and_read_their_rows(subject: Subject) -> None:
    insert = "insert into sessions (id, agent, created_at) values (?, ?, ?) returning id"
    assert await subject.store.write(insert, "s1", "scripted", NOW) == [("s1",)]
    rows = await subject.store.read("select id, agent, parent, created_at from sessions where id = ?", "s1")
    assert rows == [("s1", "scripted", None, NOW)], f"read {rows}"


async def what_cannot_be_written_hurts_only_itself(subject: Subject) -> None:
    store = subject.store
    results = await asyncio.gather(
        store.open(row("before")),
        store.open(row("a lone surrogate \ud800")),
        store.write("this is not a statement"),
        store.change("before", Change(states=("asked",), set={"no_such_column": 1}, event="answered", at=NOW)),
        store.open(row("after")),
        store.change("before", closing()),
        return_exceptions=True,
    )
    failed = [isinstance(result, Exception) for result in results]
    assert failed == [False, True, True, True, False, False], f"{results}"
    assert [event.type for event in await history(store)] == ["asked", "asked", "answered"]


async def a_caller_that_gives_up_leaves_the_store_well(subject: Subject) -> None:
    impatient = asyncio.create_task(subject.store.open(row("a")))
    patient = asyncio.create_task(subject.store.open(row("b")))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).how == "new"
    assert (await subject.store.open(row("c"))).how == "new"


async def closing_finishes_what_was_accepted(subject: Subject) -> None:
    writes = [asyncio.create_task(subject.store.open(row(f"ask {number}"))) for number in range(30)]
    await asyncio.sleep(0)  # every write is handed in
    await subject.store.close()
    opened = await asyncio.gather(*writes)
    assert [each.how for each in opened] == ["new"] * 30
    try:
        await subject.store.open(row("late"))
    except StoreFailed:
        pass
    else:
        raise AssertionError("a closed store took a write")
    if subject.reopen is not None:
        subject.store = await subject.reopen(subject.store)
        assert len(await subject.store.find(Query(), limit=100)) == 30, "what was accepted is not there"


async def what_was_acknowledged_is_there_after_a_restart(subject: Subject) -> None:
    assert subject.reopen is not None
    await subject.store.open(row("a", deadline=NOW + 10))
    await _ask_and_answer(subject.store, "b")
    asks, events = await subject.store.find(Query()), await history(subject.store)
    store = subject.store = await subject.reopen(subject.store)
    assert await store.find(Query()) == asks, "the asks changed"
    assert await history(store) == events, "the events changed"
    assert await store.deadlines() == [(NOW + 10, "a")]
    await store.open(row("c"))
    assert await store.cursor() > events[-1].cursor, "cursors began again"


_CASES = (
    a_new_ask_is_kept_as_it_came,
    the_same_ask_again_joins,
    a_worker_that_joins_an_open_ask_has_it_from_then_on,
    other_content_under_the_same_id_differs,
    a_withdrawn_ask_opens_again,
    an_ask_decided_at_once_is_told_as_asked_and_then_as_decided,
    many_openings_of_one_id_at_once_make_one_ask,
    a_change_happens_in_its_states_only,
    a_change_of_an_unknown_ask_is_none,
    a_deadline_closes_when_it_is_due_only,
    an_answer_is_taken_once,
    many_closings_at_once_have_one_winner,
    several_changes_each_have_their_own_condition,
    the_newest_of_a_base_is_the_one_opened_last,
    asks_are_found_page_by_page_in_the_order_they_were_asked,
    asks_are_found_by_every_column_of_a_query,
    history_is_every_event_once_with_the_ask_as_it_was_then,
    history_has_what_a_query_wants,
    deadlines_are_those_of_open_asks,
    a_listener_is_told_before_the_writer_goes_on,
    what_a_listener_is_told_is_committed_and_in_order,
    a_listener_that_breaks_hurts_nobody_else,
    other_rooms_write_and_read_their_rows,
    what_cannot_be_written_hurts_only_itself,
    a_caller_that_gives_up_leaves_the_store_well,
    closing_finishes_what_was_accepted,
    what_was_acknowledged_is_there_after_a_restart,
)


def row(id: str, **changes: Any) -> NewAsk:
    content = "" if "content" in changes or not id.isprintable() else content_text(an_ask(id=id))
    new = NewAsk(
        id=id,
        base=None,
        owner="",
        worker=None,
        session="s1",
        run=None,
        agent="scripted",
        content=content,
        state="asked",
        asked_at=NOW,
        timeout=None,
        deadline=None,
        fallback=None,
        answer=None,
        events=("asked",),
    )
    return new._replace(**changes)


def said(by: str = "person") -> str:
    return answer_text(Answer(answers=(("SQLite",),), by=by))


def closing(answer: str | None = None, *, due: int | None = None) -> Change:
    changes = {"state": "answered", "answer": answer or said()}
    return Change(states=("asked",), set=changes, event="answered", at=NOW + 1, due=due)


async def history(store: Store, query: Query | None = None, *, limit: int = 100) -> list[StoredEvent]:
    events: list[StoredEvent] = []
    after = 0
    while page := await store.history(query or Query(), after=after, limit=limit):
        assert page[0].cursor > after, f"what comes after {after} begins with {page[0].cursor}"
        events += page
        after = page[-1].cursor
    return events


async def _ask_and_answer(store: Store, id: str) -> None:
    await store.open(row(id))
    await store.change(id, closing())
