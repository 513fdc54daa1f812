"""What one request costs: heads, bodies and connections that are too large, too many or too slow are refused in words
that their caller can read, and nobody else is kept from the desk."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from handraise.server.connections import Limits
from handraise.server.http import MOST_BYTES
from tests.helpers.serving import (
    DeskProcess,
    Served,
    a_body,
    a_client,
    a_permission_body,
    eventually,
    listening,
    path_of,
    refused,
    serving,
    told,
)

MEBI = 1024 * 1024
LONG = 30  # seconds; several asks of megabytes are written in one test


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("desk")) as desk:
        yield desk


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def head(*lines: str, line: str = "GET /v1/cursor HTTP/1.1") -> bytes:
    return "\r\n".join((line, "Host: 127.0.0.1", *lines, "", "")).encode()


async def reply_to(url: str, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Everything that comes back for these bytes, all of which are sent before the first byte is read."""
    async with asyncio.timeout(LONG), connected(url) as (reader, writer):
        writer.write(request)
        await writer.drain()
        return await reply_on(reader)


async def reply_on(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    top = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in top[1:] if line)}
    return int(top[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


def is_refusal(reply: tuple[int, dict[str, str], bytes], *, status: int, code: str) -> None:
    found, headers, body = reply
    assert found == status, body
    assert headers["connection"] == "close"
    assert json.loads(body)["error"] == code and json.loads(body)["message"]


# Heads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        head("X: " + "x" * 70_000),
        head("X: " + "x" * 5_000_000),
        head(*["X: " + "x" * 1_000] * 70),
        head(*["a:"] * 1_000),
        head(*["a:"] * 500_000),
        head(line=f"GET /{'x' * 70_000} HTTP/1.1"),
        head(line=f"GET /v1/asks?q={'x' * 5_000_000} HTTP/1.1"),
        b"GET /" + b"x" * 300_000,  # without an end
        b"GET / HTTP/1.1\r\nX: " + b"x" * 300_000,
    ],
    ids=lambda value: f"{len(value)}-{value[:6].decode()}",
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_head_beyond_the_limit_is_refused_before_anybody_reads_it(desk: Served, request_: bytes) -> None:
    is_refusal(await reply_to(desk.url, request_), status=431, code="head_too_large")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_head_at_the_limit_is_read(desk: Served) -> None:
    bearer = f"Authorization: Bearer {desk.token}"
    assert (await reply_to(desk.url, head(bearer, "X: " + "x" * 60_000)))[0] == 200
    assert (await reply_to(desk.url, head(bearer, *[f"X-{number}: 1" for number in range(100)])))[0] == 200


@pytest.mark.asyncio(loop_scope="module")
async def test_requests_that_do_not_wait_for_their_replies_are_few(desk: Served) -> None:
    async with asyncio.timeout(LONG), connected(desk.url) as (reader, writer):
        request = head(f"Authorization: Bearer {desk.token}")
        writer.write(request * 5)
        for _ in range(5):
            assert (await reply_on(reader))[0] == 200
        writer.write(request * 5_000)
        assert (await reader.read()).count(b"HTTP/1.1 ") <= 20


# Bodies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("token", "status", "code"), [(True, 413, "too_large"), (False, 401, "unauthorized")])
@pytest.mark.parametrize("size", [MOST_BYTES + 1, 10 * MEBI])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_refusal_arrives_at_a_caller_that_closes_and_still_sends(
    desk: Served, token: bool, status: int, code: str, size: int
) -> None:
    bearer = [f"Authorization: Bearer {desk.token}"] if token else []
    lines = [*bearer, "Connection: close", f"Content-Length: {size}"]
    request = head(*lines, line="POST /v1/asks HTTP/1.1") + b"x" * size
    is_refusal(await reply_to(desk.url, request), status=status, code=code)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_refusal_arrives_without_the_end_of_the_body(desk: Served) -> None:
    async with asyncio.timeout(LONG), connected(desk.url) as (reader, writer):
        lines = [f"Authorization: Bearer {desk.token}", "Connection: close", f"Content-Length: {100 * MEBI}"]
        writer.write(head(*lines, line="POST /v1/asks HTTP/1.1") + b"x" * 100_000)
        is_refusal(await reply_on(reader), status=413, code="too_large")
        assert await reader.read() == b""  # nothing follows, and the desk says so


VALUES = 2 * MEBI


@pytest.mark.parametrize(
    "body",
    [
        b'{"questions":[' + b"{}," * (VALUES // 3) + b"{}]}",
        b'{"questions":[{"question":"q","options":[' + b"{}," * (VALUES // 3) + b"{}]}]}",
        b'{"questions":[{"question":"q"}],"x":[' + b"[]," * (VALUES // 3) + b"1]}",
        b'{"questions":[{"question":"q"}],"x":[' + b"1," * (VALUES // 2) + b"1]}",
        b'{"questions":[{"question":"q"}],' + b'"x":1,' * (VALUES // 6) + b'"y":1}',
        b'{"questions":[{"question":"\\"{{{"}],"x":[' + b"[]," * (VALUES // 3) + b"1]}",
        b"[" * VALUES,
        b'"' * VALUES,
    ],
    ids=lambda value: value[:40].decode(),
)
@pytest.mark.parametrize("path", ["/v1/asks", "/v1/deliveries", "/v1/asks/q/answer", "/v1/rules/test"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(desk: Served, path: str, body: bytes) -> None:
    assert "values" in (await refused(desk.http.post(path, content=body), 400, "bad_request"))["message"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_long_text_is_no_number_of_values(desk: Served) -> None:
    """A diff is as long as a body may be, whatever characters it is made of."""
    for text in ("{},[]:" * 300_000, '\\"' * 300_000, "é,{" * 300_000, "{\n" * 300_000):
        permission = {"tool": "Edit", "diff": text}
        ask = await told(desk.http.post("/v1/asks", json=a_permission_body(permission=permission)), 201)
        assert ask["permission"]["diff"] == text


async def test_a_list_ends_where_it_is_long_enough_and_says_where_to_go_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        ids = []
        for number in range(5):
            body = a_permission_body(permission={"tool": "Edit", "diff": f"{number}" * (2 * MEBI)})
            ids.append((await told(desk.http.post("/v1/asks", json=body), 201))["id"])
        for order, expected in (("oldest", ids), ("newest", ids[::-1])):
            seen: list[str] = []
            asked = {"limit": "1000", "order": order}
            while True:
                response = await desk.http.get("/v1/asks", params=asked)
                assert len(response.content) < 7 * MEBI
                seen += [ask["id"] for ask in response.json()["asks"]]
                if "next" not in response.json():
                    break
                asked["after"] = response.json()["next"]
            assert seen == expected


# Large asks -------------------------------------------------------------------------------------------------

TEXTS = {
    "plain": "x" * 900_000,
    "lines": '+    say("{}", "\\\\")\n' * 30_000,
    "letters": "é漢\u2028" * 150_000,
    "an emoji": "x" * 262_143 + "\U0001f600" + "y" * 600_000,  # at the border of what is encoded at once
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_large_ask_is_given_back_as_it_was_wherever_it_is_told(desk: Served, kind: str) -> None:
    text = TEXTS[kind]
    body = a_permission_body(permission={"tool": "Edit", "diff": text, "input": {"new": text[:10]}})
    cursor = (await told(desk.http.get("/v1/cursor"), 200))["cursor"]
    async with asyncio.timeout(LONG), listening(desk.http) as live:
        asked = await told(desk.http.post("/v1/asks", json=body), 201)
        id = asked["id"]
        read = await desk.get(id)
        listed = (await told(desk.http.get("/v1/asks", params={"order": "newest", "limit": 1}), 200))["asks"]
        answered = await told(desk.http.post(path_of(id, "answer"), json={"reply": "once"}), 200)
        frames = [await live.frame() for _ in range(2)]
    async with asyncio.timeout(LONG), listening(desk.http, after=cursor) as later:
        frames += [await later.frame() for _ in range(2)]
    assert [frame.event for frame in frames] == ["asked", "answered"] * 2
    asks = [asked, read, *listed, answered, *(json.loads(frame.data)["ask"] for frame in frames)]
    assert {ask["id"] for ask in asks} == {id}
    assert all(ask["permission"]["diff"] == text for ask in asks)
    assert [ask["state"] for ask in asks] == ["asked"] * 3 + ["answered", "asked", "answered"] + ["asked", "answered"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_large_ask_joins_opens_again_and_differs_like_any_other(desk: Served) -> None:
    def body(text: str) -> dict[str, Any]:
        return a_permission_body(id="large", permission={"tool": "Edit", "diff": text * 500_000})

    await told(desk.http.post("/v1/asks", json=body("x")), 201)
    assert (await told(desk.http.post("/v1/asks", json=body("x")), 200))["state"] == "asked"
    await refused(desk.http.post("/v1/asks", json=body("y")), 409, "ask_differs")
    await told(desk.http.post(path_of("large", "withdraw")), 200)
    again = await told(desk.http.post("/v1/asks", json=body("x")), 200)
    assert again["state"] == "asked" and again["permission"]["diff"] == "x" * 500_000
    await refused(desk.http.post(path_of("large", "answer"), json={"reply": "sometimes"}), 422, "answer_does_not_fit")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_caller_that_waits_gets_a_large_ask_whole(desk: Served) -> None:
    body = a_permission_body(id="waited", permission={"tool": "Edit", "diff": "x\n" * 300_000})
    async with asyncio.timeout(LONG), listening(desk.http) as live:
        waiting = asyncio.ensure_future(desk.http.post("/v1/asks", params={"wait": 20}, json=body))
        await live.frame()
        await told(desk.http.post(path_of("waited", "answer"), json={"reply": "once"}), 200)
        ask = (await waiting).json()
    assert ask["answer"]["reply"] == "once" and ask["permission"] == {**ask["permission"], **body["permission"]}
    at_once = await told(desk.http.post("/v1/asks", params={"wait": 0}, json=body), 200)
    assert at_once["permission"]["diff"] == body["permission"]["diff"]


async def test_a_listener_that_is_behind_hears_small_and_large_asks_in_their_order(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk, asyncio.timeout(LONG):
        sizes = [10, 900_000, 20, 30, 2 * MEBI, 40]
        for size in sizes:
            await told(
                desk.http.post("/v1/asks", json=a_permission_body(permission={"tool": "Edit", "diff": "x" * size})), 201
            )
        async with listening(desk.http, after=0) as listener:
            frames = [await listener.frame() for _ in sizes]
    assert [int(frame.id or "") for frame in frames] == list(range(1, len(sizes) + 1))
    assert [len(json.loads(frame.data)["ask"]["permission"]["diff"]) for frame in frames] == sizes


async def test_large_asks_are_found_and_are_in_the_audit_page_by_page(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk, asyncio.timeout(LONG):
        for number in range(4):
            diff = "x" * 600_000 + f" Grüße{number} " + "y" * 600_000
            body = a_permission_body(id=f"l{number}", permission={"tool": "Edit", "diff": diff})
            await told(desk.http.post("/v1/asks", json=body), 201)
            await told(desk.http.post(path_of(f"l{number}", "answer"), json={"reply": "once"}), 200)
        found = await told(desk.http.get("/v1/asks", params={"q": "GRÜSSE2"}), 200)
        assert [ask["id"] for ask in found["asks"]] == ["l2"]
        lines: list[str] = []
        asked: dict[str, str] = {}
        while True:
            page = await told(desk.http.get("/v1/audit", params=asked), 200)
            lines += [line["ask"] for line in page["lines"]]
            if "next" not in page:
                break
            asked["after"] = page["next"]
        assert lines == ["l0", "l1", "l2", "l3"]


# Slow callers -----------------------------------------------------------------------------------------------


async def test_a_head_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=Limits(head_seconds=0.2)) as desk, asyncio.timeout(LONG):
        async with connected(desk.url) as (reader, writer):
            writer.write(b"GET /v1/cursor HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
            is_refusal(await reply_on(reader), status=408, code="too_slow")
            assert await reader.read() == b""
        async with connected(desk.url) as (reader, _):
            assert await reader.read() == b""  # it asked for nothing, so nothing is said


async def test_a_head_that_comes_byte_by_byte_has_one_deadline(tmp_path: Path) -> None:
    limits = Limits(head_seconds=0.4)
    async with (
        asyncio.timeout(LONG),
        serving(tmp_path, limits=limits) as desk,
        connected(desk.url) as (reader, writer),
    ):
        reply = asyncio.ensure_future(reply_on(reader))
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        while not reply.done():
            writer.write(b"x")
            await asyncio.wait([reply], timeout=0.05)
        is_refusal(reply.result(), status=408, code="too_slow")


async def test_a_body_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=Limits(body_seconds=0.2)) as desk, asyncio.timeout(LONG):
        async with connected(desk.url) as (reader, writer):
            lines = [f"Authorization: Bearer {desk.token}", "Content-Length: 100"]
            writer.write(head(*lines, line="POST /v1/asks HTTP/1.1") + b"{")
            is_refusal(await reply_on(reader), status=408, code="too_slow")
        assert (await desk.ask())["state"] == "asked"


async def test_a_connection_that_asks_nothing_more_is_closed(tmp_path: Path) -> None:
    limits = Limits(idle_seconds=0.2, head_seconds=0.2)
    async with (
        asyncio.timeout(LONG),
        serving(tmp_path, limits=limits) as desk,
        connected(desk.url) as (reader, writer),
    ):
        for _ in range(2):
            writer.write(head(f"Authorization: Bearer {desk.token}"))
            assert (await reply_on(reader))[0] == 200
        assert await reader.read() == b""


async def test_a_caller_that_waits_for_its_answer_is_not_slow(tmp_path: Path) -> None:
    limits = Limits(head_seconds=0.1, idle_seconds=0.1, body_seconds=0.1, reading_seconds=0.1, closing_seconds=0.1)
    async with serving(tmp_path, limits=limits) as desk, asyncio.timeout(LONG):
        id = (await desk.ask())["id"]
        path = f"{path_of(id)}?wait=30"
        async with connected(desk.url) as (reader, writer):
            writer.write(head(f"Authorization: Bearer {desk.token}", line=f"GET {path} HTTP/1.1"))
            async with connected(desk.url) as (other, _):
                assert await other.read() == b""  # others were swept meanwhile
            await desk.answer(id, "SQLite")
            assert json.loads((await reply_on(reader))[2])["state"] == "answered"


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_a_reply_that_nobody_reads_is_given_up(tmp_path: Path) -> None:
    limits = Limits(reading_seconds=0.2, slowest=1024 * MEBI)
    async with serving(tmp_path, limits=limits) as desk, asyncio.timeout(LONG):
        body = a_permission_body(permission={"tool": "Edit", "diff": "x" * (4 * MEBI - 1000)})
        id = (await told(desk.http.post("/v1/asks", json=body), 201))["id"]
        where = urlsplit(desk.url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=1000)
        try:
            writer.write(head(f"Authorization: Bearer {desk.token}", line=f"GET {path_of(id)} HTTP/1.1") * 2)
            await reader.read(10)
            files = open_files()
            await eventually(lambda: open_files() < files)  # the desk let go of it
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(8 * MEBI)
        finally:
            writer.close()


async def test_bodies_that_are_sent_at_once_wait_for_room(tmp_path: Path) -> None:
    """Of two large bodies that do not fit beside each other the second is read once the first was answered."""
    limits = Limits(bodies_of_one=3 * MEBI)
    async with serving(tmp_path, limits=limits) as desk, asyncio.timeout(LONG):
        agent = await desk.caller("agent", "ask")
        bearer = agent.headers["Authorization"]
        body = json.dumps(a_permission_body(permission={"tool": "Edit", "diff": "x" * (2 * MEBI)})).encode()
        lines = [f"Authorization: {bearer}", f"Content-Length: {len(body)}"]
        async with connected(desk.url) as (first, writer), connected(desk.url) as (second, other):
            writer.write(head(*lines, line="POST /v1/asks HTTP/1.1") + body[:-1])
            await writer.drain()
            other.write(head(*lines, line="POST /v1/asks HTTP/1.1") + body)
            late = asyncio.ensure_future(reply_on(second))
            person = await desk.http.post("/v1/asks", content=body)  # people have room of their own
            assert person.status_code == 201 and not late.done()
            writer.write(body[-1:])
            assert (await reply_on(first))[0] == 201
            assert (await late)[0] == 201


async def test_a_body_in_pieces_of_a_byte_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        lines = [f"Authorization: Bearer {desk.token}", "Transfer-Encoding: chunked"]
        request = head(*lines, line="POST /v1/asks HTTP/1.1") + b"1\r\nx\r\n" * 100_000
        is_refusal(await reply_to(desk.url, request), status=400, code="bad_request")


TRAILED = b"1\r\n \r\n0\r\nx: "  # a body of one space, and a trailer that has just begun


async def test_a_trailer_beyond_the_limit_of_a_head_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        lines = [f"Authorization: Bearer {desk.token}", "Transfer-Encoding: chunked"]
        request = head(*lines, line="POST /v1/asks HTTP/1.1") + TRAILED + b"x" * 5_000_000
        is_refusal(await reply_to(desk.url, request), status=431, code="head_too_large")


async def test_a_caller_that_was_answered_and_sends_an_endless_trailer_is_cut_off(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk, asyncio.timeout(8), connected(desk.url) as (reader, writer):
        writer.write(head("Transfer-Encoding: chunked", line="POST /v1/asks HTTP/1.1") + TRAILED)
        assert (await reply_on(reader))[0] == 401
        with suppress(OSError):
            writer.write(b"x" * 5_000_000)
            await writer.drain()
            assert await reader.read() == b""


async def test_a_body_in_small_chunks_with_a_trailer_is_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        lines = [f"Authorization: Bearer {desk.token}", "Transfer-Encoding: chunked"]
        body = json.dumps(a_permission_body(permission={"tool": "Edit", "diff": "x" * 400_000})).encode()
        chunks = [body[start : start + 16] for start in range(0, len(body), 16)]
        sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\nx: y\r\n\r\n"
        assert (await reply_to(desk.url, head(*lines, line="POST /v1/asks HTTP/1.1") + sent))[0] == 201


async def test_the_lists_of_other_surfaces_are_written_ask_by_ask(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        assert (await desk.http.get("/permission")).json() == []
        for number in range(4):
            body = a_permission_body(id=f"p{number}", permission={"tool": "Edit", "diff": f"{number}" * (2 * MEBI)})
            await told(desk.http.post("/v1/asks", json=body), 201)
        response = await desk.http.get("/permission")
        assert [each["id"] for each in response.json()] == [f"per_p{number}" for number in range(4)]
        assert [each["metadata"]["diff"][0] for each in response.json()] == ["0", "1", "2", "3"]
        assert "content-length" not in response.headers, "nobody held all of it"
        assert (await desk.http.get("/question")).json() == []


# Connections ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def with_few_descriptors(home: Path) -> AsyncIterator[DeskProcess]:
    """A real desk that may have 256 open files."""
    desk = DeskProcess(home, command=("sh", "-c", 'ulimit -n 256; exec "$@"', "sh", sys.executable))
    async with desk:
        yield desk


@asynccontextmanager
async def many(url: str, first: bytes, *, count: int = 400) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections that say this and nothing more."""
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(count):
            try:
                reader, writer = await stack.enter_async_context(connected(url))
                writer.write(first)
                await writer.drain()
            except OSError:
                continue
            readers.append(reader)
        yield readers


@pytest.mark.parametrize(
    "first", [b"", b"G", b"GET / HTTP/1.1\r\nX: ", b"POST /a/x HTTP/1.1\r\nContent-Length: 9\r\n\r\n"]
)
async def test_connections_without_a_token_shut_nobody_out(tmp_path: Path, first: bytes) -> None:
    async with with_few_descriptors(tmp_path) as desk, desk.client() as person, many(desk.url, first):
        assert (await person.get("/v1/cursor")).status_code == 200
        async with a_client(desk.url, desk.token) as another:
            assert (await another.post("/v1/asks", json=a_body())).status_code == 201


async def test_streams_of_a_token_that_may_only_ask_shut_nobody_out(tmp_path: Path) -> None:
    async with with_few_descriptors(tmp_path) as desk, desk.client() as person:
        secret = (await person.post("/v1/tokens", json={"name": "agent", "scopes": ["ask"]})).json()["token"]
        stream = head(f"Authorization: Bearer {secret}", line="GET /v1/events?worker=w HTTP/1.1")
        async with many(desk.url, stream), a_client(desk.url, desk.token) as another:
            assert (await another.post("/v1/asks", json=a_body())).status_code == 201
            async with a_client(desk.url, desk.token) as third, third.stream("GET", "/v1/events") as events:
                assert events.status_code == 200


async def test_waits_of_a_token_that_may_only_ask_shut_nobody_out(tmp_path: Path) -> None:
    async with with_few_descriptors(tmp_path) as desk, desk.client() as person:
        secret = (await person.post("/v1/tokens", json={"name": "agent", "scopes": ["ask"]})).json()["token"]
        other = (await person.post("/v1/tokens", json={"name": "other", "scopes": ["ask"]})).json()["token"]
        async with a_client(desk.url, secret) as agent:
            id = (await agent.post("/v1/asks", json=a_body())).json()["id"]
        wait = head(f"Authorization: Bearer {secret}", line=f"GET {path_of(id)}?wait=60 HTTP/1.1")
        async with many(desk.url, wait), a_client(desk.url, desk.token) as another, a_client(desk.url, other) as agent:
            assert (await another.post("/v1/asks", json=a_body())).status_code == 201
            assert (await agent.post("/v1/asks", json=a_body())).status_code == 201
