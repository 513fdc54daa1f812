"""Whatever is sent, the desk refuses it in its own words and lives on; what it takes it gives back exactly (M9)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from handraise.asks import MOST_LEVELS
from handraise.server.http import MOST_BYTES
from tests.helpers.serving import (
    PATIENCE,
    Served,
    a_body,
    a_permission_body,
    listening,
    path_of,
    refused,
    serving,
    told,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = '{"questions":[{"question":"q","options":[{"label":"a"}]}],%s}'
MANY = 100_000
NAMES = ("agent", "session", "run", "step", "parent")  # of an origin


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory, shared_database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("desk"), database=shared_database) as desk:
        yield desk


# Bodies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b" ", 400),
        (b"{", 400),
        (b"nonsense", 400),
        (b"{}x", 400),
        (b"\xef\xbb\xbf{}", 400),
        (b"[]", 422),
        (b"null", 422),
        (b'"ask"', 422),
        (b"7", 422),
        (b"\xff\xfe", 400),
        (b'{"questions":[{"question":"\xff"}]}', 400),
        (b'{"questions":[{"question":"\xed\xa0\x80"}]}', 400),
        (rb'{"questions":[{"question":"\ud800"}]}', 400),
        ((ASK % r'"\ud800":1').encode(), 400),
        (b"[" * MANY + b"]" * MANY, 400),
        (b'{"a":' * MANY + b"1" + b"}" * MANY, 400),
        ((ASK % ('"deep":' + "[" * 150 + "]" * 150)).encode(), 422),
        ((ASK % '"x":NaN').encode(), 422),
        ((ASK % '"x":[{"y":-Infinity}]').encode(), 422),
        ((ASK % '"x":1e999').encode(), 422),
        ((ASK % '"question_timeout":NaN').encode(), 422),
        ((ASK % '"question_timeout":1e999').encode(), 422),
        ((ASK % f'"x":{"9" * 10_000}').encode(), 400),
        ((ASK % f'"question_timeout":{"9" * 400}').encode(), 422),
        ((ASK % r'"id":"a\u0000b"').encode(), 422),
        ((ASK % r'"id":"a\u001bb"').encode(), 422),
        ((ASK % r'"id":"a\u202eb"').encode(), 422),
        ((ASK % '"origin":[]').encode(), 422),
        ((ASK % '"extra":[]').encode(), 422),
        (b'{"permission":{"tool":"t","input":{"a":Infinity}}}', 422),
        (b'{"permission":{"tool":"t","input":' + b'{"a":' * 150 + b"1" + b"}" * 150 + b"}}", 422),
    ],
)
async def test_a_body_that_is_no_ask_is_refused(desk: Served, body: bytes, status: int) -> None:
    before = await told(desk.http.get("/v1/cursor"), 200)
    code = "bad_request" if status == 400 else "ask_does_not_fit"
    await refused(desk.http.post("/v1/asks", content=body), status, code)
    assert await told(desk.http.get("/v1/cursor"), 200) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"questions": [{"question": "q"}] * 51},
        {"questions": [{"question": "q"}] * 10_000},
        {"questions": [{"question": "q", "options": [{"label": str(number)} for number in range(10_000)]}]},
        {"questions": [{"question": "q", "options": [{"label": str(number)} for number in range(501)]}]},
        {"questions": [{"question": "x" * 20_001}]},
        {"questions": [{"question": "q", "header": "x" * 20_001}]},
        {"questions": [{"question": "q", "options": [{"label": "x" * 20_001}]}]},
        {"questions": [{"question": "q", "options": [{"label": "a", "description": "x" * 20_001}]}]},
        {"questions": [{"question": "q", "options": [{"label": "a", "preview": "x" * 20_001}]}]},
        {"origin": {"agent": "a", "session": "x" * 501}},
        {"origin": {"agent": "a", "session": "s", "cwd": "x" * 20_001}},
        {"worker": "x" * 201},
        {"question_policy": {"auto": [{"match": "m", "answers": []}] * 501}},
    ],
)
async def test_an_ask_beyond_the_limits_is_refused(desk: Served, changes: dict[str, Any]) -> None:
    await refused(desk.http.post("/v1/asks", json=a_body(**changes)), 422, "ask_does_not_fit")


async def test_an_ask_at_the_limits_is_taken(desk: Served) -> None:
    options = [{"label": f"{number} " + "x" * 100} for number in range(500)]
    questions = [{"question": "x" * 20_000, "options": options}, *([{"question": "q"}] * 49)]
    ask = await desk.ask(questions=questions)
    assert len(ask["questions"]) == 50 and len(ask["questions"][0]["options"]) == 500
    nested: Any = 1
    for _ in range(MOST_LEVELS - 2):
        nested = [nested]
    deep = await desk.ask(nested=nested)
    assert (await desk.get(deep["id"]))["extra"] == {"nested": nested}


@pytest.mark.parametrize("size", [MOST_BYTES + 1, 10_000_000])
@pytest.mark.parametrize("path", ["/v1/asks", "/v1/asks/q/answer", "/v1/deliveries", "/v1/tokens"])
async def test_a_body_of_more_than_four_mebibytes_is_refused_and_the_refusal_arrives(
    desk: Served, path: str, size: int
) -> None:
    await refused(desk.http.post(path, content=b"x" * size), 413, "too_large")


async def test_a_body_of_four_mebibytes_is_read(desk: Served) -> None:
    body = json.dumps(a_permission_body(permission={"tool": "Edit", "diff": ""}))
    diff = "x" * (MOST_BYTES - len(body))
    body = body.replace('"diff": ""', f'"diff": "{diff}"')
    assert len(body) == MOST_BYTES
    ask = await told(desk.http.post("/v1/asks", content=body), 201)
    assert ask["permission"]["diff"] == diff


async def test_a_body_without_a_length_is_counted_as_it_comes(desk: Served) -> None:
    async def chunks(body: bytes, size: int) -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    await refused(desk.http.post("/v1/asks", content=chunks(b"x" * 6_000_000, 50_000)), 413, "too_large")
    ask = json.dumps(a_body()).encode()
    await told(desk.http.post("/v1/asks", content=chunks(ask, 7)), 201)


async def test_a_key_that_is_given_twice_means_the_same_everywhere(desk: Served) -> None:
    body = '{"id":"first","id":"dup","questions":[],"questions":[{"question":"first","question":"q","x":1,"x":2}]}'
    ask = await told(desk.http.post("/v1/asks", content=body), 201)
    assert ask["id"] == "dup"
    assert (ask["questions"][0]["question"], ask["questions"][0]["extra"]) == ("q", {"x": 2})
    assert await desk.get("dup") == ask
    await refused(desk.http.get(path_of("first")), 404, "ask_not_found")


async def test_numbers_of_any_size_come_back_exactly(desk: Served) -> None:
    numbers = '{"big":%s,"small":-0.1,"zero":-0,"float":1.7976931348623157e308}' % ("9" * 4000)
    response = await desk.http.post("/v1/asks", content=ASK % f'"numbers":{numbers}')
    assert response.status_code == 201
    assert response.json()["extra"]["numbers"] == json.loads(numbers)


# Answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"answers":"SQLite"}', 422),
        (b'{"answers":["SQLite"]}', 422),
        (b'{"answers":{"0":["SQLite"]}}', 422),
        (b'{"answers":[[["SQLite"]]]}', 422),
        (b'{"answers":[[null]]}', 422),
        (b'{"answers":[[1]]}', 422),
        (b'{"answers":[[true]]}', 422),
        (b'{"answers":[]}', 422),
        (b'{"answers":[["a"],["b"]]}', 422),
        (b'{"answers":[["a","b"]]}', 422),
        (b'{"answers":[["not an option"]]}', 422),
        (b'{"answers":[[""]]}', 422),
        (b'{"answers":[["A"]]}', 422),
        (b'{"answers":[["a "]]}', 422),
        (b'{"answers":[[NaN]]}', 422),
        (b'{"answers":[["a"]],"notes":"note"}', 422),
        (b'{"answers":[["a"]],"notes":["one","two"]}', 422),
        (b'{"answers":[["a"]],"input":{"x":NaN}}', 422),
        (b'{"answers":[["\\udfff"]]}', 400),
        (b'{"answers":[["\xff"]]}', 400),
        (b'{"answers":' + b"[" * MANY + b"]" * MANY + b"}", 400),
        (b"[]", 422),
        (b"", 422),
        (b"null", 422),
        (b"{", 400),
    ],
)
async def test_an_answer_that_is_none_is_refused_and_the_ask_stays_open(desk: Served, body: bytes, status: int) -> None:
    ask = await desk.ask(questions=[{"question": "q", "options": [{"label": "a"}, {"label": "b"}], "custom": False}])
    code = "bad_request" if status == 400 else "answer_does_not_fit"
    await refused(desk.http.post(path_of(ask["id"], "answer"), content=body), status, code)
    assert await desk.get(ask["id"]) == ask
    assert (await desk.answer(ask["id"], "a"))["state"] == "answered"


@pytest.mark.parametrize("text", ["NaN", "nan", "Infinity", "-inf", "1e999", "0x10", "1,5", "", "one", "\u202e1"])
async def test_a_number_is_a_finite_number(desk: Served, text: str) -> None:
    ask = await desk.ask(questions=[{"question": "How many?", "kind": "number"}])
    body = {"answers": [[text]]}
    await refused(desk.http.post(path_of(ask["id"], "answer"), json=body), 422, "answer_does_not_fit")
    assert (await desk.answer(ask["id"], "-1.5e3"))["answer"]["answers"] == [["-1.5e3"]]


@pytest.mark.parametrize(
    "edited",
    ['{"a":NaN}', '{"a":[1e999]}', '{"a":' + "[" * 150 + "]" * 150 + "}", "[]", '"rm"'],
)
async def test_an_edited_input_that_is_no_json_object_is_refused(desk: Served, edited: str) -> None:
    ask = await told(desk.http.post("/v1/asks", json=a_permission_body()), 201)
    body = f'{{"reply":"once","input":{edited}}}'
    await refused(desk.http.post(path_of(ask["id"], "answer"), content=body), 422, "answer_does_not_fit")
    assert (await desk.get(ask["id"]))["state"] == "asked"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("reject", b'{"reason":7}'),
        ("reject", b'{"reason":"%s"}' % (b"x" * 20_001)),
        ("reject", b"[]"),
        ("reject", b'{"by":""}'),
        ("withdraw", b'{"reason":["no"]}'),
        ("withdraw", b"{"),
    ],
)
async def test_a_body_beside_an_action_is_checked_too(desk: Served, path: str, body: bytes) -> None:
    ask = await desk.ask()
    await refused(desk.http.post(path_of(ask["id"], path), content=body), 400, "bad_request")
    assert await desk.get(ask["id"]) == ask


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"deliveries":{}}',
        b'{"deliveries":[{}]}',
        b'{"deliveries":[{"id":""}]}',
        b'{"deliveries":["q1"]}',
        b'{"deliveries":[{"id":"q","error":"%s"}]}' % (b"x" * 20_001),
        b'{"deliveries":[%s]}' % b",".join([b'{"id":"q"}'] * 10_001),
    ],
)
async def test_a_report_of_deliveries_that_is_none_is_refused(desk: Served, body: bytes) -> None:
    await refused(desk.http.post("/v1/deliveries", content=body), 400, "bad_request")


# Paths and requests -----------------------------------------------------------------------------------------


NUL = "a\x00b"  # no text for PostgreSQL
SETTLED_BESIDE = "beside"  # a session whose asks were rejected and withdrawn as they should be


async def test_a_name_with_a_nul_is_refused_or_found_nowhere(desk: Served) -> None:
    for changes in ({"worker": NUL}, *({"origin": {"agent": "a", "session": "s", name: NUL}} for name in NAMES)):
        await refused(desk.http.post("/v1/asks", json=a_body(**changes)), 422, "ask_does_not_fit")
    await refused(desk.http.post(path_of(NUL, "answer"), json={"answers": [["a"]]}), 404, "ask_not_found")
    for action in ("reject", "keep-waiting", "withdraw"):
        await refused(desk.http.post(path_of(NUL, action)), 404, "ask_not_found")
    entries = [{"id": NUL}, {"id": (await desk.ask())["id"]}]
    reported = await told(desk.http.post("/v1/deliveries", json={"deliveries": entries}), 200)
    assert reported == {"reported": 1, "unknown": [NUL]}
    for name in ("agent", "session", "run"):
        assert await told(desk.http.get("/v1/asks", params={name: NUL}), 200) == {"asks": []}
    await refused(desk.http.get("/v1/sessions/a%00b"), 404, "session_not_found")
    await refused(desk.http.get("/v1/sessions/a%00b/events"), 404, "session_not_found")
    await refused(desk.http.delete("/v1/tokens/a%00b"), 404, "not_found")
    async with listening(desk.http, session=NUL, worker=NUL, run=NUL, after=0) as listener:
        desk.broker.feeds.poke()
        await listener.until(b": heartbeat")


async def test_a_nul_in_what_is_said_beside_an_ask_stops_nothing(desk: Served) -> None:
    origin = {"agent": "a", "session": SETTLED_BESIDE, "cwd": NUL, "machine": NUL}
    ask = await desk.ask(origin=origin)
    assert (await desk.get(ask["id"]))["origin"] == origin
    assert (await told(desk.http.get(f"/v1/sessions/{SETTLED_BESIDE}"), 200))["cwd"] == "a\\x00b"
    gone = await told(desk.http.post(path_of(ask["id"], "withdraw"), json={"reason": NUL}), 200)
    assert (gone["state"], gone["withdrawn_reason"]) == ("withdrawn", "a\\x00b")
    other = await desk.ask(origin=origin)
    rejected = await told(desk.http.post(path_of(other["id"], "reject"), json={"reason": NUL}), 200)
    assert rejected["answer"]["reason"] == NUL
    entries = [{"id": other["id"], "error": NUL}]
    await told(desk.http.post("/v1/deliveries", json={"deliveries": entries}), 200)
    assert (await desk.get(other["id"]))["delivery_error"] == "a\\x00b"


async def test_names_of_any_allowed_length_and_script_are_kept(desk: Served) -> None:
    long = "".join(chr(0x20000 + number) for number in range(500))  # four bytes each: two thousand to index
    origin = {"agent": "a", "session": "s", **dict.fromkeys(NAMES, long)}
    ask = await desk.ask(id=long[:400], origin=origin, worker=long[:200], ordinal=True)
    assert (ask["id"], ask["origin"]) == (f"{long[:400]}#1", origin)
    listed = await told(desk.http.get("/v1/asks", params={"session": long, "run": long, "agent": long}), 200)
    assert listed == {"asks": [ask]}


@pytest.mark.parametrize("id", ["%00", "%ff", "%ed%a0%80", "%0d%0aSet-Cookie:x", "%", "%zz", "x" * 20_000, "%2e%2e%2f"])
async def test_an_id_that_cannot_be_one_is_not_found(desk: Served, id: str) -> None:
    await refused(raw(desk, "GET", f"/v1/asks/{id}"), 404, "ask_not_found")
    await refused(raw(desk, "POST", f"/v1/asks/{id}/reject"), 404, "ask_not_found")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/asks/\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/asks HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET /v1/asks HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x00" * 100 + b"\r\n\r\n",
        b"GET /v1/asks HTTP/9.9\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused_by_the_server(desk: Served, head: bytes) -> None:
    assert (await spoken(desk, head)).startswith(b"HTTP/1.1 400 ")


async def test_a_request_that_never_ends_hurts_nobody(desk: Served) -> None:
    headers = f"Host: 127.0.0.1\r\nAuthorization: Bearer {desk.token}\r\nContent-Length: 100"
    where = urlsplit(desk.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(f'POST /v1/asks HTTP/1.1\r\n{headers}\r\n\r\n{{"questions"'.encode())
    await writer.drain()
    assert (await desk.ask())["state"] == "asked"
    writer.close()
    await writer.wait_closed()
    assert (await desk.ask())["state"] == "asked"
    assert not reader.at_eof() or await reader.read() == b""


async def raw(desk: Served, method: str, path: str) -> Any:
    """A request whose path is sent as it is, where a client would tidy it up."""
    return await desk.http.send(_untidied(desk, method, path))


def _untidied(desk: Served, method: str, path: str) -> Any:
    request = desk.http.build_request(method, "/")
    request.url = request.url.copy_with(raw_path=path.encode())
    return request


async def spoken(desk: Served, request: bytes) -> bytes:
    """What comes back on a connection of its own."""
    where = urlsplit(desk.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(request)
    async with asyncio.timeout(PATIENCE):
        reply = await reader.read(10_000)
    writer.close()
    await writer.wait_closed()
    return reply


# What is taken ----------------------------------------------------------------------------------------------

STRANGE = [
    "safe\u202etxt.exe",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "a\u200bb",
    "\u200b",
    "\ufeffa",
    "a\x00b",
    "line\nbreak\r\n",
    "\u2028\u2029\x85",
    "data: x\n\nevent: answered",
    "</script><script>alert(1)</script>",
    "' or 1=1; drop table asks --",
    "e\u0301",
    "\U000e0041\U000e0042",
    "🙋‍♀️",
    "[31m&#x1b;%1b",
    " ",
    "\t",
]


@pytest.mark.parametrize("text", STRANGE)
async def test_text_of_any_kind_is_stored_exactly_and_answerable_by_it(desk: Served, text: str) -> None:
    question = {"header": text, "question": text, "options": [{"label": text, "description": text}, {"label": "other"}]}
    async with listening(desk.http) as listener:
        ask = await desk.ask(questions=[{**question, "custom": False}], note={text: text})
        told_live = json.loads((await listener.frame()).data)["ask"]
        answered = await desk.answer(ask["id"], text)
        frame = await listener.frame()
    shown = ask["questions"][0]
    assert (shown["header"], shown["question"]) == (text, text)
    assert (shown["options"][0]["label"], shown["options"][0]["value"]) == (text, text)
    assert ask["extra"] == {"note": {text: text}}
    assert await desk.get(ask["id"]) == answered
    assert told_live == ask
    assert frame.event == "answered"
    assert json.loads(frame.data)["ask"]["answer"]["answers"] == [[text]]


async def test_labels_that_only_look_alike_are_different_choices(desk: Served) -> None:
    labels = ["é", "e\u0301", "yes", "yes\u200b", "Yes", " yes"]
    questions = [{"question": "q", "options": [{"label": label} for label in labels], "custom": False}]
    for label in labels:
        ask = await desk.ask(questions=questions)
        assert (await desk.answer(ask["id"], label))["answer"]["answers"] == [[label]]


async def test_after_all_of_this_the_desk_is_alive(desk: Served) -> None:
    assert (await told(desk.http.get("/healthz"), 200))["status"] == "ok"
    asks = (await told(desk.http.get("/v1/asks", params={"limit": 1000}), 200))["asks"]
    left = [ask["state"] for ask in asks if ask["origin"]["session"] != SETTLED_BESIDE]
    assert left and set(left) <= {"asked", "answered"}
