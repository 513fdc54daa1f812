"""What every store must hold. Each case gets a fresh store; those about restarts need `reopen`, those about several
desks on one database need `second`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from handraise.asks import Answer, Option, Question
from handraise.errors import StoreFailed
from handraise.stores import AlsoWrite, Change, NewAsk, Opened, Page, Query, Store
from handraise.testing.cases import Case, Report, run_cases
from handraise.testing.samples import a_permission, an_ask
from handraise.wire import StoredEvent, answer_text, content_text

__all__ = ["check_store"]

NOW = 1_767_225_600_000
WITHDRAWN = Change(
    states=("asked",), set={"state": "withdrawn", "withdrawn_reason": "gone"}, event="withdrawn", at=NOW + 1
)
TAKEN = Change(
    states=("answered", "rejected"),
    set={"delivered_at": NOW + 2},
    event="delivered",
    at=NOW + 2,
    empty=("delivered_at",),
)
Make: TypeAlias = Callable[[], Awaitable[Store]]
From: TypeAlias = Callable[[Store], Awaitable[Store]]


@dataclass(kw_only=True)
class Subject:
    store: Store
    make: Make
    reopen: From | None
    second: From | None
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def empty(self) -> Store:
        """Another one with nothing in it."""
        return await self._open(self.make())

    async def beside(self) -> Store:
        """Another desk's, on the same database."""
        assert self.second is not None
        return await self._open(self.second(self.store))

    async def _open(self, opening: Awaitable[Store]) -> Store:
        store = await opening
        self.opened.push_async_callback(store.close)
        return store


async def check_store(make: Make, *, reopen: From | None = None, second: From | None = None) -> Report:
    """Raises AssertionError with every case that failed.

    `make` gives a store with nothing in it. `reopen` closes a store and opens what it left. `second` opens another
    store on the database of one that stays open, as a second desk does. Where one of them is not given, the suite
    reports what it said nothing about.
    """

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Subject]:
        subject = Subject(store=await make(), make=make, reopen=reopen, second=second)
        try:
            async with subject.opened:
                yield subject
        finally:
            await subject.store.close()

    cannot = {} if reopen else _why(_DURABLE, "it keeps nothing (no `reopen` was given)")
    cannot |= {} if second else _why(_SHARED, "desks cannot share it (no `second` was given)")
    return await run_cases("check_store", (*_CASES, *_DURABLE, *_SHARED), fresh, cannot=cannot)


def _why(cases: Iterable[Case[Subject]], reason: str) -> dict[str, str]:
    return {case.__name__.replace("_", " "): reason for case in cases}


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


async def what_is_written_beside_an_ask_is_written_with_it_or_not_at_all(subject: Subject) -> None:
    heard: Counter[str] = Counter()
    subject.store.hear("rooms", lambda: heard.update(["rooms"]))

    async def mentioned() -> list[str]:
        return [id for (id,) in await subject.store.read("select id from sessions order by id")]

    await subject.store.open(row("a"), also_write=_beside("opened"))
    await subject.store.open(row("a"), also_write=_beside("joined"))
    await subject.store.open(row("a", content="{}"), also_write=_beside("differs"))
    assert await mentioned() == ["opened"], "what was beside an opening is kept if it was the one, and only then"
    first, second, unknown = await asyncio.gather(
        subject.store.change("a", closing(said("ana"))._replace(also_write=_beside("won"))),
        subject.store.change("a", closing(said("ben"))._replace(also_write=_beside("lost"))),
        subject.store.change("x", closing()._replace(also_write=_beside("unknown"))),
    )
    assert first is not None and first.done and second is not None and not second.done and unknown is None
    assert await mentioned() == ["opened", "won"], "what was beside a change is kept if it was the one, and only then"
    await _until(lambda: heard["rooms"], "nobody heard the topic of what was written beside")
    await subject.store.open(row("b"))
    try:
        await subject.store.change_all([("b", closing()._replace(also_write=_beside("won")))])  # that key is taken
    except Exception:
        stored = await subject.store.get("b")
        assert stored is not None and stored.state == "asked", "an ask was closed without what was beside it"
    else:
        raise AssertionError("it was taken")


# Reading ----------------------------------------------------------------------------------------------------


async def the_newest_of_a_base_is_the_one_opened_last(subject: Subject) -> None:
    assert await subject.store.newest(["a"]) == {}
    for number in (1, 2, 3):
        await subject.store.open(row(f"a#{number}", base="a"))
    await subject.store.open(row("b#9", base="b"))
    newest = await subject.store.newest(["a", "b", "c"])
    assert {base: stored.id for base, stored in newest.items()} == {"a": "a#3", "b": "b#9"}, f"they are {newest}"


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


async def the_newest_asks_are_found_first_where_that_is_wanted(subject: Subject) -> None:
    ids = [f"ask {number}" for number in range(12)]
    for id in ids:
        await subject.store.open(row(id))
    found: list[str] = []
    after = 0
    while page := await subject.store.find(Query(), after=after, limit=5, newest=True):
        assert len(page) <= 5, f"a page of 5 has {len(page)}"
        found += [stored.id for stored in page]
        after = page[-1].seq
        await subject.store.open(row(f"meanwhile {after}"))
        if len(found) < 8:
            await subject.store.change(found[0], closing())
    assert found == ids[::-1], f"with others arriving meanwhile, found {found}"
    [last] = await subject.store.find(Query(), limit=1, newest=True)
    assert last.id == f"meanwhile {after}", f"the newest one is {last.id}"


async def what_is_settled_is_found_whatever_became_of_it(subject: Subject) -> None:
    for id in "abcd":
        await subject.store.open(row(id, agent="x" if id in "ab" else "y"))
    await subject.store.change("a", closing())
    await subject.store.change("b", closing()._replace(set={"state": "rejected", "answer": said()}, event="rejected"))
    await subject.store.change("c", WITHDRAWN)
    for query, ids in ((Query(state="settled"), "abc"), (Query(state="settled", agent="y"), "c")):
        found = await subject.store.find(query)
        assert [stored.id for stored in found] == list(ids), f"{query}: found {[stored.id for stored in found]}"
        assert all(query.matches(stored) for stored in found), f"{query} does not match what it finds"
    waiting = await subject.store.get("d")
    assert waiting is not None and not Query(state="settled").matches(waiting), "what waits matches as settled"


async def a_text_is_found_wherever_people_see_it(subject: Subject) -> None:
    question = Question("Shall I drop Ærø?", (Option("Yes, now", description="at once", preview="select 1"),))
    ask = an_ask(id="asked", questions=(question,), agent="zed", cwd="/srv/shop", run="r7", extra={"ticket": "AB-12"})
    command = a_permission(id="wanted", command='echo "100%" \\ a_b', input={"deep": ["inside"]}, session="s2")
    for each in (ask, command):
        await subject.store.open(row(each.id, content=content_text(each), session=each.origin.session))
    await subject.store.open(row("answered"))
    await subject.store.change("answered", closing(answer_text(Answer(reason="Frühestens morgen", by="ana"))))
    await subject.store.open(row("withdrawn"))
    await subject.store.change("withdrawn", WITHDRAWN._replace(set={"state": "withdrawn", "withdrawn_reason": "Weg."}))
    expected = {
        "asked": ("drop ærø", "ÆRØ", "yes, NOW", "at once", "select 1", "zed", "/srv/shop", "r7", "ab-12", "asked"),
        "wanted": ('echo "100%" \\ A_B', "100%", "a_b", '"', "\\", "inside", "Bash", "build folder"),
        "answered": ("FRÜHESTENS", "morgen", "ana"),
        "withdrawn": ("weg.", "Weg"),
    }
    for id, texts in expected.items():
        for text in texts:
            found = [stored.id for stored in await subject.store.find(Query(), text=text)]
            assert found == [id], f"{text!r}: found {found}"
    for text in ("%", "_"):  # signs for anything, elsewhere
        found = [stored.id for stored in await subject.store.find(Query(), text=text)]
        assert found == ["wanted"], f"{text!r}: found {found}"
    for text in ("a%b", "d_op", "questions", "permission", "choice", "Ær0", "nowhere", "\0", "\ud800", "x" * 500):
        found = [stored.id for stored in await subject.store.find(Query(), text=text)]
        assert found == [], f"{text!r}: found {found}"


async def a_text_is_found_in_any_case(subject: Subject) -> None:
    texts = {"a": "STRASSE nach ΑΘΉΝΑ", "b": "Straße nach Москва", "c": "数据库 İstanbul"}
    for id, text in texts.items():
        await subject.store.open(row(id, content=content_text(an_ask(id=id, questions=(Question(text),)))))
    for text, ids in {
        "straße": "ab",
        "strasse": "ab",
        "αθήνα": "a",
        "МОСКВА": "b",
        "数据": "c",
        "ISTANBUL": "",
    }.items():
        found = [stored.id for stored in await subject.store.find(Query(), text=text)]
        assert found == list(ids), f"{text!r}: found {found}"


async def a_search_pages_and_keeps_to_its_query(subject: Subject) -> None:
    for number in range(30):
        header = "Deploy" if number % 3 == 0 else "Build"
        content = content_text(an_ask(id=f"{number:02}", questions=(Question("Go on?", header=header),)))
        await subject.store.open(row(f"{number:02}", content=content, agent="x" if number % 2 else "y"))
    for newest in (False, True):
        found: list[str] = []
        after = 0
        while page := await subject.store.find(Query(), after=after, limit=3, newest=newest, text="deploy"):
            found += [stored.id for stored in page]
            after = page[-1].seq
            await subject.store.open(row(f"meanwhile {newest} {after}"))
        expected = [f"{number:02}" for number in range(0, 30, 3)]
        assert found == (expected[::-1] if newest else expected), f"newest={newest}: found {found}"
    found = [stored.id for stored in await subject.store.find(Query(agent="x"), text="deploy")]
    assert found == [f"{number:02}" for number in range(3, 30, 6)], f"of agent x: found {found}"


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


async def history_has_what_was_told_since_and_the_types_that_are_wanted(subject: Subject) -> None:
    for number in range(3):
        await subject.store.open(row(f"ask {number}", asked_at=NOW + number))
        await subject.store.change(f"ask {number}", closing(at=NOW + 10 + number))

    async def told(after: int = 0, limit: int = 100, query: Query | None = None, **wanted: Any) -> list[int]:
        events = await subject.store.history(query or Query(), after=after, limit=limit, **wanted)
        return [event.at - NOW for event in events]

    assert await told(since=NOW + 2) == [10, 11, 2, 12], "`since` is not the first time that is wanted"
    assert await told(types=("answered",)) == [10, 11, 12], "other types came too"
    assert await told(types=("asked", "answered"), since=NOW + 11) == [11, 12]
    assert await told(types=("answered",), limit=2) == [10, 11], "`limit` counts what is not wanted"
    after = (await history(subject.store))[1].cursor
    assert await told(types=("answered",), after=after) == [11, 12], "`after` was forgotten"
    assert await told(types=("withdrawn",)) == [] and await told(since=NOW + 99) == []
    assert await told(types=("asked",), since=NOW + 1, query=Query(session="other")) == []


async def the_source_of_a_change_is_kept_and_told_to_nobody(subject: Subject) -> None:
    source = '{"via":"a secret address"}'
    told: list[StoredEvent] = []
    subject.store.tail(told.extend)
    await subject.store.open(row("a"))
    await subject.store.change("a", closing()._replace(source=source))
    kept = await history(subject.store)
    assert [event.source for event in kept] == [None, source], f"kept were {[event.source for event in kept]}"
    assert not any("secret" in event.text(NOW) for event in (*kept, *told)), "the source is in the text of the event"


async def deadlines_are_those_of_open_asks(subject: Subject) -> None:
    await subject.store.open(row("a", deadline=NOW + 10))
    await subject.store.open(row("b", deadline=NOW + 20))
    await subject.store.open(row("c"))
    await subject.store.change("a", closing())
    assert await subject.store.deadlines() == [(NOW + 20, "b")]


async def answers_of_which_no_agent_said_anything_are_untaken(subject: Subject) -> None:
    for id in ("open", "taken", "failed", "answered", "rejected"):
        await subject.store.open(row(id))
    for id in ("taken", "failed", "answered"):
        await subject.store.change(id, closing())
    await subject.store.change("rejected", closing()._replace(set={"state": "rejected", "answer": said()}))
    for id, told in (("taken", {"delivered_at": NOW}), ("failed", {"delivery_error": "gone"})):
        await subject.store.change(id, Change(states=("answered",), set=told, event="delivered", at=NOW))
    assert sorted(await subject.store.untaken()) == ["answered", "rejected"]


async def what_waits_is_counted_with_the_age_of_the_oldest(subject: Subject) -> None:
    assert await subject.store.open_asks() == (0, None), "something waits in an empty store"
    for id in "abc":
        await subject.store.open(row(id, asked_at=NOW + 7))
    await subject.store.change("b", closing())
    await subject.store.change("a", WITHDRAWN)
    await subject.store.open(row("a", asked_at=NOW + 9))
    found = await subject.store.open_asks()
    assert found == (2, NOW + 7), f"of 2 that wait, the first was reopened later: {found}"


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


# Pruning ----------------------------------------------------------------------------------------------------


async def pruning_takes_the_oldest_events_and_none_from_the_given_time_on(subject: Subject) -> None:
    for number in range(5):
        await subject.store.open(row(f"ask {number}", asked_at=NOW + number))
    events = await history(subject.store)
    assert await subject.store.pruned() == 0, "a fresh store has pruned something"
    assert await subject.store.prune(before=NOW, limit=100) == 0, "what was told at that very time was pruned"
    assert await subject.store.prune(before=NOW + 2, limit=100) == 2
    assert await history(subject.store) == events[2:], "other events than the two oldest were pruned"
    assert await subject.store.pruned() == events[1].cursor, "`pruned` is not the last one that went"
    assert await subject.store.prune(before=NOW + 2, limit=100) == 0
    assert await subject.store.pruned() == events[1].cursor, "pruning nothing changed `pruned`"


async def pruning_takes_no_more_than_it_may_at_once(subject: Subject) -> None:
    for number in range(5):
        await subject.store.open(row(f"ask {number}", asked_at=NOW + number))
    events = await history(subject.store)
    gone = [await subject.store.prune(before=NOW + 4, limit=3) for _ in range(2)]
    assert gone == [3, 1], f"of four, three at a time, {gone} went"
    assert await history(subject.store) == events[4:]


async def what_is_pruned_is_always_the_beginning(subject: Subject) -> None:
    for number, at in enumerate((0, 9, 1, 10)):  # clocks of desks differ
        await subject.store.open(row(f"ask {number}", asked_at=NOW + at))
    events = await history(subject.store)
    assert await subject.store.prune(before=NOW + 5, limit=100) == 1
    assert await history(subject.store) == events[1:], "an event went while one before it stayed"


async def settled_asks_go_with_their_last_event_and_open_ones_stay(subject: Subject) -> None:
    await _ask_and_answer(subject.store, "gone")
    open = (await subject.store.open(row("open", deadline=NOW + 500))).stored
    await subject.store.open(row("answered later"))
    later = await subject.store.change("answered later", closing(at=NOW + 100))
    assert later is not None
    assert await subject.store.prune(before=NOW + 50, limit=100) == 4
    assert await subject.store.get("gone") is None, "a settled ask stayed without events"
    assert await subject.store.get("open") == open, "an open ask went with its events"
    assert await subject.store.get("answered later") == later.stored, "an ask went although an event of it is left"
    assert await subject.store.deadlines() == [(NOW + 500, "open")]
    assert [event.ask for event in await history(subject.store)] == [later.stored]
    closed = await subject.store.change("open", closing(at=NOW + 101))
    assert closed is not None and closed.done, "an ask without events could not be answered"
    assert [event.ask for event in await history(subject.store)] == [later.stored, closed.stored]


async def an_ask_settled_while_its_first_event_is_pruned_stays_with_its_last(subject: Subject) -> None:
    await subject.store.open(row("a"))
    closed, _ = await asyncio.gather(
        subject.store.change("a", closing(at=NOW + 100)), subject.store.prune(before=NOW + 50, limit=100)
    )
    assert closed is not None and closed.done
    assert await subject.store.get("a") == closed.stored, "it went"
    assert (await history(subject.store))[-1].ask == closed.stored, "its last event went"


async def no_number_is_given_out_twice_after_everything_was_pruned(subject: Subject) -> None:
    last = await _ask_answer_and_prune(subject.store)
    await _begins_after(subject.store, last)


async def no_number_is_given_out_twice_after_everything_was_pruned_and_a_restart(subject: Subject) -> None:
    assert subject.reopen is not None
    last = await _ask_answer_and_prune(subject.store)
    pruned = await subject.store.pruned()
    subject.store = await subject.reopen(subject.store)
    assert await subject.store.pruned() == pruned, "what was pruned is forgotten"
    await _begins_after(subject.store, last)


async def _ask_answer_and_prune(store: Store) -> StoredEvent:
    """The last event there was."""
    for number in range(3):
        await _ask_and_answer(store, f"ask {number}")
    [*_, last] = await history(store)
    while await store.prune(before=NOW + 1000, limit=4) == 4:
        pass
    left = len(await history(store))
    assert left <= 1, f"{left} events of the past are left; at most the newest may be"
    return last


async def _begins_after(store: Store, last: StoredEvent) -> None:
    assert await store.cursor() == last.cursor, "the cursor changed by pruning"
    opened = await store.open(row("ask 0", asked_at=NOW + 5000))
    [*_, asked] = await history(store)
    assert opened.how == "new", f"an id that was pruned opens as {opened.how}"
    assert opened.stored.seq > last.ask.seq, f"ask {opened.stored.seq} came after {last.ask.seq}"
    assert asked.cursor > last.cursor, f"event {asked.cursor} came after {last.cursor}"


# Other rooms and troubles -----------------------------------------------------------------------------------


async def other_rooms_write_and_read_their_rows(subject: Subject) -> None:
    insert = "insert into sessions (id, agent, created_at) values (?, ?, ?) returning id"
    assert await subject.store.write(insert, "s1", "scripted", NOW) == [("s1",)]
    rows = await subject.store.read("select id, agent, parent, created_at from sessions where id = ?", "s1")
    assert rows == [("s1", "scripted", None, NOW)], f"read {rows}"


async def several_statements_are_one_commit(subject: Subject) -> None:
    insert = "insert into sessions (id, agent, created_at) values (?, ?, ?) returning id"
    both = [(insert, ("s1", "scripted", NOW)), (insert, ("s2", "scripted", NOW))]
    assert await subject.store.write_all(*both) == [[("s1",)], [("s2",)]]
    try:
        await subject.store.write_all((insert, ("s3", "scripted", NOW)), both[0])
    except Exception:
        rows = await subject.store.read("select id from sessions order by id")
        assert rows == [("s1",), ("s2",)], f"of statements that failed together there is {rows}"
    else:
        raise AssertionError("it was taken")


async def a_topic_is_heard_by_those_who_want_it(subject: Subject) -> None:
    heard: Counter[str] = Counter()
    stop = subject.store.hear("rules", lambda: heard.update(["left"]))
    subject.store.hear("rules", lambda: heard.update(["rules"]))
    subject.store.hear("rule", lambda: heard.update(["another topic"]))
    await _mention(subject.store, "s1")
    assert not heard, f"a write without a topic was heard: {heard}"
    await _mention(subject.store, "s2", topic="rules")
    await _until(lambda: heard["rules"] and heard["left"], "nobody heard of a topic that was written")
    stop()
    left, rules = heard["left"], heard["rules"]
    await _mention(subject.store, "s3", topic="rules")
    await _until(lambda: heard["rules"] > rules, "a topic was heard only once")
    assert heard["left"] == left, "somebody who left still hears"
    assert not heard["another topic"], "somebody who wants another topic was told"


async def a_topic_that_was_not_written_is_not_heard(subject: Subject) -> None:
    heard: list[str] = []
    subject.store.hear("rules", lambda: heard.append("rules"))
    subject.store.hear("marks", lambda: heard.append("marks"))
    try:
        await subject.store.write("this is not a statement", topic="rules")
    except Exception:
        await _mention(subject.store, "s1", topic="marks")
    else:
        raise AssertionError("it was taken")
    await _until(lambda: heard, "nobody heard of a topic that was written")
    assert "rules" not in heard, "a write that failed was heard"


async def somebody_who_hears_and_breaks_hurts_nobody_else(subject: Subject) -> None:
    heard: list[str] = []

    def broken() -> None:
        raise RuntimeError("somebody who hears broke, as this case wants it to")

    subject.store.hear("rules", broken)
    subject.store.hear("rules", lambda: heard.append("rules"))
    rows = await asyncio.gather(*(_mention(subject.store, f"s{number}", topic="rules") for number in range(3)))
    assert rows == [[(f"s{number}",)] for number in range(3)], f"the writers got {rows}"
    await _until(lambda: heard, "the other one heard nothing")


async def tables_are_those_that_hold_state_with_their_key_first(subject: Subject) -> None:
    await _ask_and_answer(subject.store, "a")
    await _mention(subject.store, "s1")
    tables = await subject.store.tables()
    assert {"asks", "events", "sessions", "tokens"} <= tables.keys(), f"the tables are {', '.join(tables)}"
    for name, columns in tables.items():
        rows = await subject.store.read(_all_of(name, columns))
        assert len({row[0] for row in rows}) == len(rows), f"{columns[0]} is no key of {name}"
        assert all(len(row) == len(columns) for row in rows), f"{name} has other columns than those"


async def what_one_store_has_fills_an_empty_one(subject: Subject) -> None:
    await _mention(subject.store, "s1")
    await _ask_and_answer(subject.store, "old")
    assert await subject.store.prune(before=NOW + 1, limit=1) == 1
    for number in range(10):
        await subject.store.open(row(f"ask {number}", asked_at=NOW + 2, deadline=NOW + number))
        await subject.store.change(f"ask {number}", closing()._replace(source="{}"))
    await subject.store.open(row("open", asked_at=NOW + 3))
    other = await subject.empty()
    told: list[StoredEvent] = []
    other.tail(told.extend)
    await other.fill(_pages(subject.store))
    for what, wanted, got in (
        ("asks", await subject.store.find(Query()), await other.find(Query())),
        ("events", await history(subject.store), await history(other)),
        ("cursor", await subject.store.cursor(), await other.cursor()),
        ("pruned", await subject.store.pruned(), await other.pruned()),
    ):
        assert got == wanted, f"{what}: {wanted} became {got}"
    assert await other.read("select id from sessions") == [("s1",)]
    [*_, last] = await history(subject.store)
    opened = await other.open(row("new", asked_at=NOW + 5))
    await other.change("open", closing())
    assert opened.stored.seq > last.ask.seq, "an ask got the number of one that was filled in"
    assert [event.cursor for event in told] == [last.cursor + 1, last.cursor + 2], "cursors do not go on"


async def what_has_lost_its_newest_to_pruning_fills_an_empty_one(subject: Subject) -> None:
    last = await _ask_answer_and_prune(subject.store)
    other = await subject.empty()
    await other.fill(_pages(subject.store))
    await _begins_after(other, last)


async def filling_is_all_or_nothing(subject: Subject) -> None:
    await _ask_and_answer(subject.store, "a")
    other = await subject.empty()

    meanwhile: list[asyncio.Task[Opened]] = []

    async def breaking() -> AsyncIterator[Page]:
        async for page in _pages(subject.store):
            yield page
            if not meanwhile:
                meanwhile.append(asyncio.create_task(other.open(row("meanwhile"))))
                for _ in range(5):  # until it tries
                    await asyncio.sleep(0)
            if page[0] == "events":
                raise RuntimeError("the other side broke, as this case wants it to")

    try:
        await other.fill(breaking())
    except RuntimeError:
        pass
    else:
        raise AssertionError("`fill` says nothing of pages that broke")
    assert (await meanwhile[0]).how == "new", "what was written meanwhile is lost"
    assert [stored.id for stored in await other.find(Query())] == ["meanwhile"], "something of it was kept"
    assert [event.cursor for event in await history(other)] == [1], "something of it was kept"


async def all_is_well_and_counted(subject: Subject) -> None:
    store = subject.store
    assert sum(store.commits.values()) == 0, "a fresh store has commits"
    await asyncio.gather(*(_ask_and_answer(store, f"ask {number}") for number in range(10)))
    carried = sum(size * times for size, times in store.commits.items())
    assert carried == 20, f"20 operations were counted as {carried}"
    assert store.trouble is None and not store.troubles, f"all is well, but it says {store.troubles}"
    assert all(store.about), f"it does not say what it is: {store.about}"


async def what_cannot_be_written_hurts_only_itself(subject: Subject) -> None:
    store = subject.store
    results = await asyncio.gather(
        store.open(row("before")),
        store.open(row("a lone surrogate \ud800")),
        store.write("this is not a statement"),
        store.write("delete from sessions where id = ?"),
        store.change("before", Change(states=("asked",), set={"no_such_column": 1}, event="answered", at=NOW)),
        store.open(row("after")),
        store.change("before", closing()),
        return_exceptions=True,
    )
    failed = [isinstance(result, Exception) for result in results]
    assert failed == [False, True, True, True, True, False, False], f"{results}"
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


# Several desks ----------------------------------------------------------------------------------------------


async def what_one_desk_wrote_the_other_has(subject: Subject) -> None:
    one, other = subject.store, await subject.beside()
    opened = await one.open(row("a", deadline=NOW + 5))
    assert await other.get("a") == opened.stored, "what was acknowledged at one desk is not there at the other"
    closed = await other.change("a", closing())
    assert closed is not None and closed.done, "an ask of one desk cannot be answered at the other"
    assert await one.get("a") == closed.stored
    assert await one.cursor() == await other.cursor() == (await history(one))[-1].cursor
    assert await one.prune(before=NOW + 1, limit=9) == 1
    assert await other.pruned() == await one.pruned() > 0


async def events_of_both_desks_are_told_at_both_in_order_and_once(subject: Subject) -> None:
    desks = subject.store, await subject.beside()
    told: tuple[list[StoredEvent], ...] = ([], [])
    own: Counter[str] = Counter()
    for desk, heard in zip(desks, told, strict=True):
        desk.tail(heard.extend)

    async def write(number: int) -> None:
        desk, heard = desks[number % 2], told[number % 2]
        await desk.open(row(f"ask {number}"))
        own["told"] += any(event.ask.id == f"ask {number}" for event in heard)
        await desks[number // 2 % 2].change(f"ask {number}", closing())

    await asyncio.gather(*(write(number) for number in range(40)))
    assert own["told"] == 40, "a desk went on before its own listeners were told"
    await _until(lambda: min(map(len, told)) >= 80, "what one desk did was not told at the other")
    events = await history(subject.store)
    assert told[0] == events, "one desk told events twice, or in another order than they are kept"
    assert told[1] == events, "the other desk told events twice, or in another order than they are kept"


async def a_reader_misses_nothing_while_both_desks_write(subject: Subject) -> None:
    """An event that is committed late must not lie before one that could be read already."""
    desks = subject.store, await subject.beside()

    async def write(number: int) -> None:
        for turn in range(15):  # one after the other, so that there are many commits
            await _ask_and_answer(desks[number % 2], f"ask {number} {turn}")

    writing = asyncio.gather(*(write(number) for number in range(6)))
    read: list[StoredEvent] = []
    is_over = False
    while not is_over:
        is_over = writing.done()  # and what is read next is the rest
        for desk in desks:
            read += await desk.history(Query(), after=read[-1].cursor if read else 0, limit=1000)
    await writing
    assert read == await history(subject.store), f"of 180 events {len(read)} were read"


async def one_ask_opened_at_both_desks_is_one(subject: Subject) -> None:
    desks = subject.store, await subject.beside()
    opened = await asyncio.gather(*(desks[number % 2].open(row("a")) for number in range(20)))
    how = Counter(each.how for each in opened)
    assert how == {"new": 1, "joined": 19}, f"20 openings were {dict(how)}"
    assert len({each.stored for each in opened}) == 1, "they joined different asks"
    await desks[0].change("a", WITHDRAWN)
    again = await asyncio.gather(*(desk.open(row("a")) for desk in desks))
    assert {each.how for each in again} == {"reopened", "joined"}, f"a withdrawn one was {again}"


async def closings_at_both_desks_have_one_winner(subject: Subject) -> None:
    desks = subject.store, await subject.beside()
    await desks[0].open(row("a"))
    answers = [said(f"person {number}") for number in range(20)]
    closings = await asyncio.gather(
        *(desks[number % 2].change("a", closing(answer)) for number, answer in enumerate(answers))
    )
    winners = [answer for answer, closed in zip(answers, closings, strict=True) if closed and closed.done]
    stored = await desks[1].get("a")
    assert stored is not None and winners == [stored.answer], f"{len(winners)} of 20 won"
    assert all(closed and closed.stored == stored for closed in closings), "a loser is not told who won"


async def a_topic_is_heard_at_the_other_desk(subject: Subject) -> None:
    one, other = subject.store, await subject.beside()
    heard: Counter[str] = Counter()
    stop = other.hear("rules", lambda: heard.update(["left"]))
    other.hear("rules", lambda: heard.update(["rules"]))
    other.hear("marks", lambda: heard.update(["marks"]))
    await _mention(one, "s1", topic="rules")
    await _until(lambda: heard["rules"] and heard["left"], "the other desk did not hear of it")
    assert await other.read("select id from sessions") == [("s1",)], "it heard before it was committed"
    stop()
    left, rules = heard["left"], heard["rules"]
    await _mention(one, "s2", topic="rules")
    await _until(lambda: heard["rules"] > rules, "the other desk heard only once")
    assert heard["left"] == left, "somebody who left still hears"
    assert not heard["marks"], "somebody who wants another topic was told"


async def a_desk_that_closes_leaves_the_other_well(subject: Subject) -> None:
    other = await subject.beside()
    await other.open(row("a"))
    await other.close()
    assert (await subject.store.open(row("a"))).how == "joined"
    assert subject.store.trouble is None


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
    what_is_written_beside_an_ask_is_written_with_it_or_not_at_all,
    the_newest_of_a_base_is_the_one_opened_last,
    asks_are_found_page_by_page_in_the_order_they_were_asked,
    asks_are_found_by_every_column_of_a_query,
    the_newest_asks_are_found_first_where_that_is_wanted,
    what_is_settled_is_found_whatever_became_of_it,
    a_text_is_found_wherever_people_see_it,
    a_text_is_found_in_any_case,
    a_search_pages_and_keeps_to_its_query,
    history_is_every_event_once_with_the_ask_as_it_was_then,
    history_has_what_a_query_wants,
    history_has_what_was_told_since_and_the_types_that_are_wanted,
    the_source_of_a_change_is_kept_and_told_to_nobody,
    deadlines_are_those_of_open_asks,
    answers_of_which_no_agent_said_anything_are_untaken,
    what_waits_is_counted_with_the_age_of_the_oldest,
    a_listener_is_told_before_the_writer_goes_on,
    what_a_listener_is_told_is_committed_and_in_order,
    a_listener_that_breaks_hurts_nobody_else,
    pruning_takes_the_oldest_events_and_none_from_the_given_time_on,
    pruning_takes_no_more_than_it_may_at_once,
    what_is_pruned_is_always_the_beginning,
    settled_asks_go_with_their_last_event_and_open_ones_stay,
    an_ask_settled_while_its_first_event_is_pruned_stays_with_its_last,
    no_number_is_given_out_twice_after_everything_was_pruned,
    other_rooms_write_and_read_their_rows,
    several_statements_are_one_commit,
    a_topic_is_heard_by_those_who_want_it,
    a_topic_that_was_not_written_is_not_heard,
    somebody_who_hears_and_breaks_hurts_nobody_else,
    tables_are_those_that_hold_state_with_their_key_first,
    what_one_store_has_fills_an_empty_one,
    what_has_lost_its_newest_to_pruning_fills_an_empty_one,
    filling_is_all_or_nothing,
    all_is_well_and_counted,
    what_cannot_be_written_hurts_only_itself,
    a_caller_that_gives_up_leaves_the_store_well,
    closing_finishes_what_was_accepted,
)
_DURABLE = (
    what_was_acknowledged_is_there_after_a_restart,
    no_number_is_given_out_twice_after_everything_was_pruned_and_a_restart,
)
_SHARED = (
    what_one_desk_wrote_the_other_has,
    events_of_both_desks_are_told_at_both_in_order_and_once,
    a_reader_misses_nothing_while_both_desks_write,
    one_ask_opened_at_both_desks_is_one,
    closings_at_both_desks_have_one_winner,
    a_topic_is_heard_at_the_other_desk,
    a_desk_that_closes_leaves_the_other_well,
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
        judgement=None,
        events=("asked",),
    )
    return new._replace(**changes)


def said(by: str = "person") -> str:
    return answer_text(Answer(answers=(("SQLite",),), by=by))


def closing(answer: str | None = None, *, at: int = NOW + 1, due: int | None = None) -> Change:
    changes = {"state": "answered", "answer": answer or said()}
    return Change(states=("asked",), set=changes, event="answered", at=at, due=due)


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


def _beside(session: str) -> AlsoWrite:
    insert = "insert into sessions (id, agent, created_at) values (?, ?, ?)"
    return AlsoWrite([(insert, (session, "scripted", NOW))], topic="rooms")


async def _mention(store: Store, session: str, *, topic: str | None = None) -> list[tuple[Any, ...]]:
    insert = "insert into sessions (id, agent, created_at) values (?, ?, ?) returning id"
    return await store.write(insert, session, "scripted", NOW, topic=topic)


async def _pages(store: Store) -> AsyncIterator[Page]:
    for name, columns in (await store.tables()).items():
        rows = await store.read(_all_of(name, columns))
        for at in range(0, len(rows), 5):
            yield name, columns, rows[at : at + 5]


def _all_of(table: str, columns: Sequence[str]) -> str:
    return f"select {', '.join(columns)} from {table} order by {columns[0]}"


async def _until(happened: Callable[[], Any], otherwise: str) -> None:
    """For what other desks hear: it has no call that returns when it is there."""
    try:
        async with asyncio.timeout(3):
            while not happened():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(otherwise) from None
