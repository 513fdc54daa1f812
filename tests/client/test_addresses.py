"""Clients that know several desks of one database: they move on when one of them goes away, and lose nothing by it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from handraise import sync
from handraise.asks import Answer, Ask
from handraise.client import Client, Desk
from handraise.client.connection import PATIENCE as REFUSALS
from handraise.config import Settings, load
from handraise.errors import DeskUnreachable, SettingsError, StoreFailed, Unauthorized, Withdrawn
from handraise.testing import a_permission, an_ask
from tests.helpers.serving import PATIENCE, START, DeskProcess, Served, eventually, first_event, serving

TOKEN = "hr_for-every-desk-of-this-database"
OVERLOADED = b'{"error":"overloaded","message":"too many; ask again later"}'
FAILED = b'{"error":"store_failed","message":"the database is away; try again"}'


class Pair:
    """Two desks in this process on one database, each with a home of its own, either of which may leave."""

    def __init__(self, a: Served, b: Served, *, settings: Settings, leave: AsyncExitStack) -> None:
        self.a, self.b = a, b
        self.settings = settings
        self._leave = leave

    @property
    def urls(self) -> list[str]:
        return [self.a.url, self.b.url]

    def client(self, url: str | list[str] | None = None) -> Client:
        return Client(url or self.urls, settings=self.settings)

    async def lose_a(self) -> None:
        await self._leave.aclose()


@pytest.fixture
async def pair(tmp_path: Path, new_database: Callable[[], str]) -> AsyncIterator[Pair]:
    shared = {"database": new_database(), "token": TOKEN}
    async with serving(tmp_path / "b", **shared) as b, AsyncExitStack() as leave:
        a = await leave.enter_async_context(serving(tmp_path / "a", **shared))
        yield Pair(a, b, settings=Settings(home=tmp_path / "client", token=TOKEN), leave=leave)


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def a_reply(status: str, body: bytes, *, media_type: str = "application/json") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


@asynccontextmanager
async def standing_in(
    reply: bytes | Callable[[bytes, bytes], Awaitable[bytes]],
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Somebody who listens in place of a desk, writes down what is sent there, and hangs up after the reply."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        body = await reader.readexactly(int(length[1])) if length else b""
        heard.append(head)
        writer.write(reply if isinstance(reply, bytes) else await reply(head, body))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


async def told_of(client: Client, id: str) -> list[str]:
    """The types of all events about an ask, in order."""
    newest = await client.cursor()
    found: list[str] = []
    async with asyncio.timeout(PATIENCE):
        async for event in client.events(after=0):
            if event.ask.id == id:
                found.append(event.type)
            if event.cursor == newest:
                break
    return found


# Which address ----------------------------------------------------------------------------------------------


async def test_a_call_goes_on_to_the_next_address_and_stays_there(pair: Pair, nobody: str) -> None:
    async with standing_in(b"") as (mute, heard), pair.client([nobody, mute, pair.b.url]) as client:
        assert client.url == nobody
        await client.open(an_ask())
        assert client.url == pair.b.url
        assert len(heard) == 1
        assert [ask.id async for ask in client.asks()] == ["ask-1"]
        assert len(heard) == 1, "it went back to one that had failed"


async def test_addresses_are_a_list_or_a_text_with_commas(pair: Pair, nobody: str) -> None:
    both = f"{nobody}, {pair.b.url}/"
    by_environment = load({"HANDRAISE_HOME": str(pair.settings.home), "HANDRAISE_URL": both, "HANDRAISE_TOKEN": TOKEN})
    assert by_environment.url == f"{nobody},{pair.b.url}"
    for url, settings in (
        (both, pair.settings),
        ([nobody, pair.b.url], pair.settings),
        ((nobody, pair.b.url), pair.settings),
        (None, by_environment),
        (pair.b.url, by_environment),  # what is given counts before the environment
    ):
        async with Desk(url, settings=settings) as desk:
            assert [ask async for ask in desk.asks()] == []
            assert desk.client.url == pair.b.url


def test_the_blocking_twin_takes_several_addresses_too(nobody: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    for url in ([nobody, f"{nobody}/other"], f"{nobody},{nobody}/other"):
        with (
            sync.Desk(url, settings=settings) as desk,
            pytest.raises(DeskUnreachable, match=rf"{nobody} or {nobody}/other;"),
        ):
            desk.ask("Anybody?")


@pytest.mark.parametrize(
    ("status", "body", "media_type"),
    [
        ("503 Service Unavailable", OVERLOADED, "application/json"),
        ("503 Service Unavailable", FAILED, "application/json"),
        ("502 Bad Gateway", b"<h1>Bad Gateway</h1>", "text/html"),
        ("503 Service Unavailable", b"no server is available", "text/plain"),
        ("504 Gateway Timeout", b"", "text/html"),
    ],
)
async def test_a_desk_that_cannot_right_now_leaves_it_to_the_next(
    pair: Pair, status: str, body: bytes, media_type: str
) -> None:
    async with standing_in(a_reply(status, body, media_type=media_type)) as (busy, heard):
        async with pair.client([busy, pair.a.url]) as client:
            await client.open(an_ask())
            assert (client.url, len(heard)) == (pair.a.url, 1)
        async with pair.client([busy, pair.a.url]) as client:
            assert [event.type async for event in first(client.events(after=0))] == ["asked"]
            assert (client.url, len(heard)) == (pair.a.url, 2)


async def first(events: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async with asyncio.timeout(PATIENCE):
        yield await anext(events)
    await events.aclose()  # type: ignore[attr-defined]


async def test_what_every_desk_says_is_raised_in_the_end(pair: Pair, nobody: str) -> None:
    async with standing_in(a_reply("503 Service Unavailable", FAILED)) as (busy, heard):
        async with pair.client([nobody, busy]) as client:
            with pytest.raises(StoreFailed, match="the database is away"):
                await client.open(an_ask())
        assert len(heard) == REFUSALS


async def test_a_refusal_is_no_reason_to_ask_elsewhere(pair: Pair) -> None:
    async with Client(pair.urls, token="wrong", settings=Settings(home=pair.settings.home)) as stranger:
        with pytest.raises(Unauthorized):
            await stranger.open(an_ask())
        assert stranger.url == pair.a.url


@pytest.mark.parametrize("reply", [b"", a_reply("502 Bad Gateway", b"<h1>Bad Gateway</h1>", media_type="text/html")])
async def test_no_desk_is_an_error_once_every_address_was_tried(tmp_path: Path, nobody: str, reply: bytes) -> None:
    async with standing_in(reply) as (mute, heard):
        async with Client([nobody, mute], settings=Settings(home=tmp_path)) as client:
            for work in (client.open(an_ask()), anext(client.events())):
                with pytest.raises(DeskUnreachable, match=f"{nobody} or {mute}; .*handraise serve") as unreachable:
                    await asyncio.wait_for(work, PATIENCE)
                assert unreachable.value.fields["url"] == f"{nobody},{mute}"
        assert len(heard) == 2


# Tokens -----------------------------------------------------------------------------------------------------


async def test_a_token_that_was_given_goes_to_every_address(pair: Pair) -> None:
    for where in ({"token": TOKEN, "settings": Settings(home=pair.settings.home)}, {"settings": pair.settings}):
        async with standing_in(b"") as (mute, heard), Client([mute, pair.a.url], **where) as client:  # type: ignore[arg-type]
            assert [ask async for ask in client.asks()] == []
            assert f"authorization: bearer {TOKEN}" in heard[0].decode().lower()


async def test_the_token_of_a_home_goes_to_the_desk_of_that_home_alone(pair: Pair) -> None:
    home = Settings(home=pair.a.settings.home)
    async with standing_in(b"") as (mute, heard), Client([mute, pair.a.url, pair.b.url], settings=home) as client:
        assert [ask async for ask in client.asks()] == []
        await pair.lose_a()
        with pytest.raises(Unauthorized):
            await client.cursor()
        assert client.url == pair.b.url
    assert heard and not any(b"authorization" in head.lower() for head in heard)


# Asking -----------------------------------------------------------------------------------------------------


async def test_an_ask_goes_on_waiting_at_the_next_desk(pair: Pair) -> None:
    async with pair.client() as client, pair.client(pair.b.url) as person:
        call = asyncio.create_task(client.ask(an_ask()))
        await first_event(pair.b.broker, lambda event: event.type == "asked")
        await eventually(lambda: pair.a.broker.waits == 1)
        await pair.lose_a()
        await eventually(lambda: pair.b.broker.waits == 1)
        await person.answer("ask-1", Answer(answers=(("Postgres",),), by="ana"))
        answer = await asyncio.wait_for(call, PATIENCE)
        assert (answer.value, answer.by, client.url) == ("Postgres", "ana", pair.b.url)
        client.delivered("ask-1")
        await first_event(pair.b.broker, lambda event: event.type == "delivered")
        assert await told_of(person, "ask-1") == ["asked", "answered", "delivered"]


async def test_an_ask_that_is_waited_for_is_delivered_when_the_adapter_says_so(pair: Pair) -> None:
    async with pair.client() as client:
        call = asyncio.create_task(client.ask(an_ask()))
        await first_event(pair.b.broker, lambda event: event.type == "asked")
        call.cancel()
        await asyncio.wait([call])
        await pair.b.answer("ask-1", "SQLite")
        assert (await client.wait("ask-1", timeout=PATIENCE)).state == "answered"
        assert (await pair.b.get("ask-1"))["delivered_at"] is None
        assert (await client.ask(an_ask())).value == "SQLite"
        assert (await pair.b.get("ask-1"))["delivered_at"] is None
        client.delivered("ask-1")
    assert (await pair.b.get("ask-1"))["delivered_at"] is not None


async def test_an_ask_that_was_withdrawn_while_its_desk_was_away_stays_withdrawn(pair: Pair) -> None:
    parked, back = asyncio.Event(), asyncio.Event()

    async def be_away_once(head: bytes, body: bytes) -> bytes:
        if b"wait=" in head and not parked.is_set():
            parked.set()
            await back.wait()
            return b""
        method, path, _ = head.split(b" ", 2)
        response = await pair.a.http.request(method.decode(), path.decode(), content=body)
        return a_reply(f"{response.status_code} OK", response.content)

    async with standing_in(be_away_once) as (front, _), pair.client([front]) as client:
        call = asyncio.create_task(client.ask(an_ask()))
        await asyncio.wait_for(parked.wait(), PATIENCE)
        await pair.b.broker.withdraw("ask-1", reason="the agent moved on")
        back.set()
        with pytest.raises(Withdrawn, match="the agent moved on"):
            await asyncio.wait_for(call, PATIENCE)
    async with pair.client() as client:
        assert await told_of(client, "ask-1") == ["asked", "withdrawn"]


@asynccontextmanager
async def losing_replies(desk: Served) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A front that hands every call to a desk and never tells what the desk said."""

    async def lose(head: bytes, body: bytes) -> bytes:
        method, path, _ = head.split(b" ", 2)
        await desk.http.request(method.decode(), path.decode(), content=body)
        return b""

    async with standing_in(lose) as front:
        yield front


@pytest.mark.parametrize("ordinal", [False, True])
async def test_an_ask_whose_acknowledgement_was_lost_is_joined_at_the_next_desk(pair: Pair, ordinal: bool) -> None:
    async with losing_replies(pair.a) as (front, heard), pair.client([front, pair.b.url]) as client:
        call = asyncio.create_task(client.ask(a_permission(), ordinal=ordinal))
        await eventually(lambda: pair.b.broker.waits == 1)
        id = "permission-1#1" if ordinal else "permission-1"
        assert [ask.id async for ask in client.asks()] == [id]
        await pair.a.broker.answer(id, Answer(reply="once"))
        assert (await asyncio.wait_for(call, PATIENCE)).reply == "once"
        client.delivered("permission-1")
        await first_event(pair.b.broker, lambda event: event.type == "delivered")
        assert await told_of(client, id) == ["asked", "answered", "delivered"]
        assert len(heard) == 1


async def test_an_answer_whose_acknowledgement_was_lost_still_is_the_one_that_won(pair: Pair) -> None:
    async with losing_replies(pair.a) as (front, heard), pair.client([front, pair.b.url]) as person:
        await pair.b.ask(id="q1")
        ask = await person.answer("q1", Answer(answers=(("Postgres",),), by="ana"))
        assert ask.answer is not None
        assert (ask.state, ask.answer.value, ask.answer.by, len(heard)) == ("answered", "Postgres", "ana", 1)


async def test_an_id_with_an_ordinal_never_gets_an_answer_that_was_taken(pair: Pair) -> None:
    async with pair.client() as client, pair.client([pair.b.url]) as other:
        for turn in range(1, 11):
            call = asyncio.create_task(client.ask(a_permission(), ordinal=True))
            id = f"permission-1#{turn}"
            await first_event(pair.b.broker, lambda event, id=id: event.ask.id == id)  # type: ignore[misc]
            reply = "once" if turn % 3 else "always"
            await other.answer(id, Answer(reply=reply, scope="session" if reply == "always" else None))
            assert (await asyncio.wait_for(call, PATIENCE)).reply == reply
            client.delivered("permission-1")  # and asks again at once, before that can have been told


async def test_a_token_that_may_only_ask_waits_for_its_own_asks(pair: Pair) -> None:
    added = (await pair.a.http.post("/v1/tokens", json={"name": "ci", "scopes": ["ask"]})).json()
    async with Client(pair.urls, token=added["token"], settings=Settings(home=pair.settings.home)) as client:
        for turn, ordinal in ((1, False), (2, True)):
            call = asyncio.create_task(client.ask(an_ask(id=f"q{turn}"), ordinal=ordinal))
            id = f"@ci:q{turn}" + ("#1" if ordinal else "")
            await first_event(pair.b.broker, lambda event, id=id: event.ask.id == id)  # type: ignore[misc]
            await pair.b.broker.answer(id, Answer(answers=(("SQLite",),)))
            assert (await asyncio.wait_for(call, PATIENCE)).value == "SQLite"


async def test_an_agent_that_waits_outlasts_desks_that_cannot_say_right_now(pair: Pair) -> None:
    async def refuse_for_a_while(head: bytes, body: bytes) -> bytes:
        if b"GET " in head and sum(b"GET " in other for other in heard) <= REFUSALS:
            return a_reply("503 Service Unavailable", OVERLOADED)
        method, path, _ = head.split(b" ", 2)
        response = await pair.a.http.request(method.decode(), path.decode(), content=body)
        return a_reply(f"{response.status_code} OK", response.content)

    async with standing_in(refuse_for_a_while) as (busy, heard), pair.client([busy]) as client:
        call = asyncio.create_task(client.ask(an_ask()))
        await first_event(pair.b.broker, lambda event: event.type == "asked")
        await pair.b.answer("ask-1", "SQLite")
        async with asyncio.timeout(4 * PATIENCE):
            assert (await call).value == "SQLite"
        assert sum(b"GET " in head for head in heard) > REFUSALS


async def test_an_agent_that_waits_asks_again_where_the_desk_forgot_what_it_asked(pair: Pair) -> None:
    async def forget_once(head: bytes, body: bytes) -> bytes:
        if b"GET " in head and sum(b"GET " in other for other in heard) == 1:
            return a_reply("404 Not Found", b'{"error":"ask_not_found","message":"there is none","id":"ask-1"}')
        method, path, _ = head.split(b" ", 2)
        response = await pair.a.http.request(method.decode(), path.decode(), content=body)
        return a_reply(f"{response.status_code} OK", response.content)

    async with standing_in(forget_once) as (forgetful, heard), pair.client([forgetful]) as client:
        call = asyncio.create_task(client.ask(an_ask()))
        await eventually(lambda: sum(b"POST /v1/asks " in head for head in heard) == 2)
        await pair.b.answer("ask-1", "SQLite")
        assert (await asyncio.wait_for(call, PATIENCE)).value == "SQLite"


# Streams and handlers ---------------------------------------------------------------------------------------


async def test_a_stream_goes_on_at_the_next_desk_without_loss_or_repeats(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    shared = {"HANDRAISE_DATABASE": new_database(), "HANDRAISE_TOKEN": TOKEN}
    told = 60

    async def heard(client: Client) -> list[tuple[int, str, str]]:
        found: list[tuple[int, str, str]] = []
        async for event in client.events(after=0):
            found.append((event.cursor, event.type, event.ask.id))
            if event.ask.id == f"q{told - 1}":
                break
        return found

    async with (
        serving(tmp_path / "c", database=shared["HANDRAISE_DATABASE"], token=TOKEN) as c,
        DeskProcess(tmp_path / "a", **shared) as a,
        DeskProcess(tmp_path / "b", **shared) as b,
        Client([a.url, b.url], settings=Settings(home=tmp_path / "client", token=TOKEN)) as client,
    ):
        listening = asyncio.create_task(heard(client))
        for number in range(told):
            match number:
                case 20:
                    await a.kill()
                case 30:
                    await a.start()
                case 40:
                    assert await b.stop() == 0
            await c.ask(id=f"q{number}")
        found = await asyncio.wait_for(listening, START)
        assert client.url == a.url
    assert [id for _, _, id in found] == [f"q{number}" for number in range(told)]
    assert [cursor for cursor, _, _ in found] == list(range(1, told + 1))


async def test_a_stream_from_now_on_loses_nothing_by_moving(pair: Pair) -> None:
    async with pair.client() as client:
        events = client.events()
        await pair.b.ask(id="before")
        waiting = asyncio.ensure_future(anext(events))
        await eventually(lambda: len(pair.a.broker.feeds) == 1)
        await pair.lose_a()
        await pair.b.ask(id="after")
        assert (await asyncio.wait_for(waiting, PATIENCE)).ask.id == "after"
        await events.aclose()  # type: ignore[attr-defined]


async def test_handlers_go_on_at_the_next_desk(pair: Pair) -> None:
    offered: list[str] = []

    def pick(ask: Ask) -> str:
        offered.append(ask.id)
        return "SQLite"

    async with (
        Desk(pair.urls, settings=pair.settings) as desk,
        pair.client(pair.b.url) as asker,
        asyncio.timeout(START),
    ):
        desk.on_question(pick)
        assert (await asker.ask(an_ask(id="q1"))).value == "SQLite"
        await pair.lose_a()
        assert (await asker.ask(an_ask(id="q2"))).value == "SQLite"
    assert offered == ["q1", "q2"]


# The commands -----------------------------------------------------------------------------------------------


async def command(folder: Path, *words: str, **env: str) -> tuple[int, str, str]:
    folder.mkdir(exist_ok=True)
    mine = {key: value for key, value in os.environ.items() if not key.startswith("HANDRAISE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handraise", *words),
        cwd=folder,
        env={**mine, "HANDRAISE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), **env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), START)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_the_commands_take_several_addresses(pair: Pair, nobody: str, tmp_path: Path) -> None:
    both, folder = f"{nobody},{pair.b.url}", tmp_path / "work"
    asked, listed, watched = (
        await command(
            folder, "ask", "Deploy?", "yes", "--id", "q1", "--timeout", "0", "--url", both, HANDRAISE_TOKEN=TOKEN
        ),
        await command(folder, "asks", "--json", HANDRAISE_URL=both, HANDRAISE_TOKEN=TOKEN),
        await command(folder, "watch", "--url", both, HANDRAISE_TOKEN=TOKEN),
    )
    assert asked[0] == 3, asked
    assert (listed[0], json.loads(listed[1])["id"]) == (0, "q1"), listed
    assert (watched[0], watched[1].split(" · ")[:2]) == (3, ["1 waiting", pair.b.url]), watched
    code, out, _ = await command(folder, "doctor", "--url", both, HANDRAISE_TOKEN=TOKEN)
    assert code == 0 and f"runs at {pair.b.url}, version" in out, out


async def test_commands_that_reach_no_desk_name_every_address(nobody: str, tmp_path: Path) -> None:
    for words in (("asks",), ("ask", "Deploy?")):
        code, out, err = await command(tmp_path, *words, "--url", f"{nobody},http://127.0.0.1:1")
        assert (code, out) == (5, "")
        assert f"no desk answers at {nobody} or http://127.0.0.1:1; start one" in err


MALFORMED = (
    "http://a:4263,",
    ",http://a:4263",
    "http://a:4263,,http://b:4263",
    "http://a:4263,b:4263",
    "http://a:4263 http://b:4263",
    "http://a:4263;http://b:4263",
    "http://a:4263,ftp://b",
    "http://a:4263,http://",
    "http://a:4263,http://b:nonsense",
    "http://a:4263,http://b:99999",
    "http://a:4263,http://b:4263?x=1",
    "http://a:4263,http://[::1",
    ",",
)


@pytest.mark.parametrize("url", MALFORMED)
def test_a_list_that_is_none_is_refused_before_anything_is_sent(url: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    for wrong in (url, url.split(",")):
        for made in (Client, Desk):
            with pytest.raises(SettingsError, match="several have commas between them"):
                made(wrong, settings=settings)
    with pytest.raises(SettingsError, match="the address is"):
        Client(settings=Settings(home=tmp_path, url=url))
    with pytest.raises(SettingsError, match="HANDRAISE_URL is"):
        load({"HANDRAISE_HOME": str(tmp_path), "HANDRAISE_URL": url}, cwd=tmp_path)


async def test_a_list_that_is_none_is_exit_code_2(tmp_path: Path) -> None:
    by_option = await command(tmp_path, "asks", "--url", "http://127.0.0.1:1,desk")
    by_environment = await command(tmp_path, "asks", HANDRAISE_URL="http://127.0.0.1:1,desk")
    for code, out, err in (by_option, by_environment):
        assert (code, out) == (2, "")
        assert "is 'http://127.0.0.1:1,desk'; an address looks like http://127.0.0.1:4263" in err
