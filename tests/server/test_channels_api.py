"""The routes of channels: what they can, how they are, what became of an ask there, and where places call (L3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from handraise.channels import Reach
from handraise.config import ChannelTable
from handraise.people import Person
from tests.helpers import pager
from tests.helpers.pager import ANA, PAGERS
from tests.helpers.serving import PATIENCE, Served, listening, path_of, refused, serving, told

CHANNELS = {
    "pager": ChannelTable(kind="pager", table={"problems": ["the key ends tomorrow"]}),
    "called": ChannelTable(kind="called"),
    "rooms": ChannelTable(kind="rooms"),
    "broken": ChannelTable(kind="pager", table={"colour": "red"}),
}
PEOPLE = {"ana": Person(name="ana", known_as={"pager": ANA})}


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("installed")
    pager.install(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database, channels=CHANNELS, people=PEOPLE) as desk:
        yield desk


async def listed(call: Any) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in (await told(call, 200))["channels"]}


async def test_channels_are_told_with_what_they_can_and_how_they_are(desk: Served) -> None:
    answers = await desk.caller("ana", "answer")
    found = await listed(answers.get("/v1/channels"))
    assert list(found) == list(CHANNELS)
    assert found["pager"]["reach"].keys() == set(Reach.__slots__)
    assert found["broken"] == {
        "name": "broken",
        "kind": "pager",
        "state": "broken",
        "trouble": "[channels.broken] does not know 'colour'",
        "reach": None,
    }


async def test_each_looks_what_is_wrong_with_it_where_somebody_wants_to_know(desk: Served) -> None:
    PAGERS["rooms"].examine = None  # type: ignore[method-assign, assignment]
    found = await listed(desk.http.get("/v1/channels?examine=1"))
    assert {name: each["problems"] for name, each in found.items()} == {
        "pager": ["the key ends tomorrow"],
        "called": [],
        "rooms": ["it could not be examined: 'NoneType' object is not callable"],
        "broken": [],
    }
    answers = await desk.caller("ana", "answer")
    await refused(answers.get("/v1/channels?examine=1"), 403, "forbidden")
    await refused(desk.http.get("/v1/channels?examine=yes"), 400, "bad_request")
    await refused(desk.http.get("/v1/channels?exam=1"), 400, "bad_request")


async def test_a_test_is_a_question_that_the_channel_shows(desk: Served) -> None:
    id = (await told(desk.http.post("/v1/channels/pager/test"), 201))["ask"]
    async with asyncio.timeout(PATIENCE):
        asked = await PAGERS["pager"].posted.get()
    assert (asked.id, asked.origin.agent) == (id, "handraise")
    assert (await desk.get(id))["remaining"] > 500, "it ends by itself"
    await PAGERS["pager"].answer(asked, "Yes", by=ANA)
    answer = (await desk.get(id))["answer"]
    assert (answer["answers"], answer["by"], answer["via"]) == ([["Yes"]], "ana", "pager")


async def test_what_cannot_be_tested_is_told(desk: Served) -> None:
    await refused(desk.http.post("/v1/channels/nobody/test"), 404, "not_found")
    await refused(desk.http.post("/v1/channels/rooms/test", json={"where": "the hall"}), 422, "settings")
    refusal = await refused(desk.http.post("/v1/channels/broken/test"), 422, "settings")
    assert "[channels.broken] does not know 'colour'" in refusal["message"]
    for body in ({"where": 1}, [], {"where": "x" * 2001}):
        await refused(desk.http.post("/v1/channels/pager/test", json=body), 400, "bad_request")
    for scopes in (("ask",), ("answer",)):
        caller = await desk.caller(f"only-{scopes[0]}", *scopes)
        await refused(caller.post("/v1/channels/pager/test"), 403, "forbidden")
    assert (await told(desk.http.get("/v1/asks"), 200))["asks"] == []


async def test_a_program_of_its_own_says_what_it_showed_and_where(desk: Served) -> None:
    await desk.ask(id="q1")
    answers = await desk.caller("bridge", "answer")
    said = {"channel": "bridge", "state": "sent", "place": "message 17"}
    showings = await told(answers.post(path_of("q1", "showings"), json=said), 200)
    assert showings == await told(answers.get(path_of("q1", "showings")), 200)
    [ours] = [each for each in showings["showings"] if each["channel"] == "bridge"]
    assert (ours["state"], ours["error"], "place" in ours) == ("sent", None, False)
    assert await told(answers.get("/v1/channels/bridge/places"), 200) == {"places": {"q1": "message 17"}}
    await told(answers.post(path_of("q1", "showings"), json={"channel": "bridge", "left": True}), 200)
    assert await told(answers.get("/v1/channels/bridge/places"), 200) == {"places": {}}


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"channel": "bridge"}, {"state": "sent"}, {"channel": "bridge", "state": "lost"}),
        {"channel": "bridge", "state": "sent", "left": True},
        {"channel": "a\nb", "state": "sent"},
        {"channel": "bridge", "state": "sent", "place": ""},
        {"channel": "bridge", "state": "failed", "error": "x" * 2001},
    ],
)
async def test_a_showing_that_makes_no_sense_is_refused(desk: Served, body: dict[str, Any]) -> None:
    await desk.ask(id="q1")
    await refused(desk.http.post(path_of("q1", "showings"), json=body), 400, "bad_request")


async def test_showings_are_for_those_who_answer_and_of_asks_that_are_there(desk: Served) -> None:
    await desk.ask(id="q1")
    asks = await desk.caller("ci", "ask")
    said = {"channel": "bridge", "state": "sent"}
    await refused(asks.get(path_of("q1", "showings")), 403, "forbidden")
    await refused(asks.post(path_of("q1", "showings"), json=said), 403, "forbidden")
    await refused(asks.get("/v1/channels"), 403, "forbidden")
    await refused(asks.get("/v1/channels/bridge/places"), 403, "forbidden")
    await refused(desk.http.get(path_of("nobody", "showings")), 404, "ask_not_found")
    await refused(desk.http.post(path_of("nobody", "showings"), json=said), 404, "ask_not_found")


async def test_a_place_calls_without_a_token_and_proves_who_it_is(desk: Served) -> None:
    place = await desk.client()
    await refused(place.post("/webhooks/called", content=b"hello"), 401, "bad_call")
    await refused(place.post("/webhooks/called", content=b"hello", headers={"X-Secret": "wrong"}), 401, "bad_call")
    assert PAGERS["called"].problems == []
    right = {"X-Secret": "right"}
    assert await told(place.post("/webhooks/called", content=b"hello", headers=right), 200) == {"received": True}
    assert PAGERS["called"].problems == ["hello"]
    assert (await place.get("/webhooks/called")).status_code == 405
    large = place.post("/webhooks/called", content=b"x" * (5 * 1024 * 1024 + 1), headers=right)
    await refused(large, 413, "too_large")


@pytest.mark.parametrize("name", ["nobody", "pager", "broken", "x%20y"])
async def test_nobody_else_is_called(desk: Served, name: str) -> None:
    for caller in (await desk.client(), desk.http):
        await refused(caller.post(f"/webhooks/{name}", content=b"{}"), 401, "bad_call")


async def test_whoever_looks_is_told_that_showings_changed_and_reads_those_of_what_waits(desk: Served) -> None:
    for id in ("q1", "q2"):
        await desk.ask(id=id)
    async with listening(desk.http, also="showings") as listener:
        assert '"showings"' in (await listener.frame()).data, "the first comes with the stream"
        for id in ("q2", "q1"):
            said = {"channel": "bridge", "state": "failed", "error": "HTTP 500"}
            await told(desk.http.post(path_of(id, "showings"), json=said), 200)
        hint = await listener.frame()
        assert (hint.event, '"what":["showings"]' in hint.data) == ("changed", True)
    await desk.answer("q1", "SQLite")
    found = (await told(desk.http.get("/v1/showings"), 200))["showings"]
    ours = [each for each in found if each["channel"] == "bridge"]
    assert [(each["ask"], each["state"], each["error"]) for each in ours] == [("q2", "failed", "HTTP 500")]
    asks = await desk.caller("ci", "ask")
    await refused(asks.get("/v1/showings"), 403, "forbidden")
