"""Raw messages of agents (U5): seen without waiting, written in batches, bounded, without secrets, and read again."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from handraise.agents import Wire
from handraise.agents.scripted import Scripted
from handraise.app import wires_of
from handraise.asks import Option, Permission, Question
from handraise.config import AgentTable
from handraise.errors import StoreError
from handraise.stores import Row, Statement, Store
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.tables.raw_messages import KEPT, LONGEST, MOST_BYTES, MOST_KEPT, SLACK, Wires
from handraise.testing import FakeClock
from handraise.text.masking import DOTS, Mask, secret_values
from tests.helpers.serving import Served, a_client, eventually, first_event, path_of, refused, serving, told

GITHUB = "ghp_" + "a1B2" * 9
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----"
OURS = 'our own "secret" \\ value'  # what JSON has to escape


# Secrets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # by the name of a field, in whichever spelling
        ({"password": "hunter2"}, {"password": DOTS}),
        ({"apiKey": "k"}, {"apiKey": DOTS}),
        ({"X-API-Key": "0123456789abcdef"}, {"X-API-Key": f"{DOTS}cdef"}),
        ({"AWS_SECRET_ACCESS_KEY": "s"}, {"AWS_SECRET_ACCESS_KEY": DOTS}),
        ({"client_secret": {"value": "s", "pin": 1234}}, {"client_secret": {"value": DOTS, "pin": DOTS}}),
        ({"Set-Cookie": ["a=b"]}, {"Set-Cookie": [DOTS]}),
        ({"authorization": "Basic dTpw"}, {"authorization": DOTS}),
        ([{"name": "OPENAI_API_KEY", "value": "k"}], [{"name": "OPENAI_API_KEY", "value": DOTS}]),
        (["curl", "--token", "abc", "x"], ["curl", "--token", DOTS, "x"]),
        # by its own shape
        (f"use {GITHUB} here", f"use {DOTS}a1B2 here"),
        (f"jwt {JWT}", f"jwt {DOTS}VyZQ"),
        (f"key:\n{KEY}\nend", f"key:\n{DOTS}\nend"),
        ("sk-ant-api03-abcdefghijklmnopqrstuv", f"{DOTS}stuv"),
        ("AKIAIOSFODNN7EXAMPLE", f"{DOTS}MPLE"),
        ("xoxb-123456789012-abc", f"{DOTS}-abc"),
        # by where it stands in a text
        ("curl -H 'Authorization: Bearer abc.def-123456' x", f"curl -H 'Authorization: {DOTS}3456' x"),
        ("postgresql://ana:s3cret@db/shop", f"postgresql://ana:{DOTS}@db/shop"),
        ("DB_PASSWORD=hunter2 make", f"DB_PASSWORD={DOTS} make"),
        ("login --password hunter2 --now", f"login --password {DOTS} --now"),
        ('{"api_key": "k1", "n": 1}', f'{{"api_key": "{DOTS}", "n": 1}}'),
        ('{"a": "{\\"token\\": \\"t1\\"}"}', f'{{"a": "{{\\"token\\": \\"{DOTS}\\"}}"}}'),
        # what this process knows
        (f"it is {OURS}!", f"it is {DOTS}alue!"),
        ({"deep": [json.dumps({"note": OURS})]}, {"deep": [f'{{"note": "{DOTS}alue"}}']}),
        # what is none
        ({"input_tokens": 12, "tokens": {"output": 3}, "maxTokens": 9}, None),
        ({"token_type": "bearer", "author": "ana", "keyboard": "de"}, None),
        ("def f(token: str) -> None: ...", None),
        ({"isSecret": True, "password": None, "text": "a plain text of nothing in particular"}, None),
    ],
)  # fmt: skip
def test_a_secret_is_hidden_and_nothing_else(before: Any, after: Any) -> None:
    assert Mask([OURS]).json(before) == (before if after is None else after)


LINK = "aB3-" * 10 + "xyz"  # the secret of a link has 43 characters
WORD = "a1B2c3D4e5F6g7H8i9J0"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # links and tokens of ours
        (f"open http://127.0.0.1:4263/a/{LINK} now", f"open http://127.0.0.1:4263/a/{DOTS}-xyz now"),
        (f"http://127.0.0.1:4263/signin/{LINK}", f"http://127.0.0.1:4263/signin/{DOTS}-xyz"),
        (f'{{"url":"https://desk.example.org/a/{LINK}"}}', f'{{"url":"https://desk.example.org/a/{DOTS}-xyz"}}'),
        (f"HANDRAISE=hr_{LINK}", f"HANDRAISE={DOTS}-xyz"),
        # addresses
        ("redis://:hunter2@db:6379/0", f"redis://:{DOTS}@db:6379/0"),
        ("https://ana:p@ss$word@example.org/x", f"https://ana:{DOTS}@example.org/x"),
        (f"git clone https://{WORD}@github.com/a/b", f"git clone https://{DOTS}i9J0@github.com/a/b"),
        # names
        ("DB_PASS=hunter2 make", f"DB_PASS={DOTS} make"),
        ("export MYSQL_PWD=hunter2", f"export MYSQL_PWD={DOTS}"),
        ("deploy --db-pass hunter2 --now", f"deploy --db-pass {DOTS} --now"),
        ("smtp_pass: 'hunter2'", f"smtp_pass: '{DOTS}'"),
        ({"SMTP_PASS": "p", "dbPwd": "p", "db_pwd": "p"}, {"SMTP_PASS": DOTS, "dbPwd": DOTS, "db_pwd": DOTS}),
        (f"AccountName=x;AccountKey={WORD}==;", f"AccountName=x;AccountKey={DOTS}J0==;"),
        # blocks
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQdG\n-----END PGP PRIVATE KEY BLOCK-----\nx", f"{DOTS}\nx"),
        ("-----BEGIN PGP MESSAGE-----\nhQEM\n-----END PGP MESSAGE-----", DOTS),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQdG and it was cut", DOTS),
        # webhooks of chat services
        (f"https://hooks.slack.com/services/T01/B02/{WORD}", f"https://hooks.slack.com/{DOTS}i9J0"),
        (f"https://discord.com/api/webhooks/123456789012345678/{WORD}", f"https://discord.com/api/webhooks/{DOTS}i9J0"),
        (f"https://x.webhook.office.com/webhookb2/{WORD}", f"https://x.webhook.office.com/{DOTS}i9J0"),
        (f"https://outlook.office.com/webhook/{WORD}", f"https://outlook.office.com/webhook/{DOTS}i9J0"),
        (f"https://chat.googleapis.com/v1/spaces/A/messages?x={WORD}", f"https://chat.googleapis.com/{DOTS}i9J0"),
        (f"https://api.telegram.org/bot123456789:{WORD}{WORD}/getMe", f"https://api.telegram.org/bot{DOTS}i9J0/getMe"),
        (f"https://chat.example.org/hooks/{WORD}abcdef", f"https://chat.example.org/hooks/{DOTS}cdef"),
        # clouds and vaults
        (f"https://x.windows.net/c?sv=1&sig={WORD}%3D&se=2", f"https://x.windows.net/c?sv=1&sig={DOTS}0%3D&se=2"),
        (f"https://s3.example.org/x?X-Amz-Signature={WORD}", f"https://s3.example.org/x?X-Amz-Signature={DOTS}i9J0"),
        (f"vault hvs.{WORD}{WORD}", f"vault {DOTS}i9J0"),
        ("vault s.aB3dE5gH7jK9mN1pQ3rS5tU7", f"vault {DOTS}5tU7"),
        *((f"x {begin}{WORD}{WORD}", f"x {DOTS}i9J0") for begin in ("glpat-", "gldt-", "npm_", "hf_", "gsk_")),
        *((f"x {begin}{WORD}{WORD}", f"x {DOTS}i9J0") for begin in ("sk_live_", "lin_api_", "ya29.", "GOCSPX-")),
        *((f"x {begin}{WORD}{WORD}", f"x {DOTS}i9J0") for begin in ("dckr_pat_", "xai-")),
        (f"dop_v1_{'0a' * 32}", f"{DOTS}0a0a"),
        (f"SG.{WORD}.{WORD}", f"{DOTS}i9J0"),
        (json.dumps({"env": f"a\n{GITHUB}"}), f'{{"env": "a\\n{DOTS}a1B2"}}'),
        # what only looks like one
        ("tests_passed=1234 by_pass_count=9999 compass: north-north-west", None),
        ("https://github.com/a/b/blob/main/src/a/file.py and http://desk/a/style.css", None),
        ("git@github.com:ana/shop.git https://example.org/@ana/post user@example.org", None),
        ("postgresql://ana:$PASSWORD@db/shop https://ana:${PW}@db", None),
        ("-----BEGIN PGP PUBLIC KEY BLOCK-----\nmQEN\n-----END PGP PUBLIC KEY BLOCK-----", None),
        ("-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----", None),
        ("cls.some_method_of_a_class(s.length) s.abcdefghijklmnopqrstuvwx", None),
        ("task-force desk-top config=abcdefghijklmnopqrstuvwxyz design=abcdefghijklmnopqrstuvwxyz", None),
        ("https://example.org/webhook/github and /hooks/pre-commit/ webhooks/incoming", None),
        ({"passed": 3, "bypass": True, "compass": "north", "encompass": "all"}, None),
    ],
)  # fmt: skip
def test_what_lets_somebody_in_is_hidden_and_what_only_looks_like_it_is_not(before: Any, after: Any) -> None:
    assert Mask().json(before) == (before if after is None else after)


_plain = st.text(st.characters(codec="utf-8", exclude_characters="•"), max_size=30)
_key = st.text("abcdefghijklmnopqrstuvwxyz", max_size=8)


@st.composite
def _planted(draw: st.DrawFn) -> tuple[Any, str, list[str]]:
    """A message that holds a secret somewhere, the secret, and what this process knows."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    word = draw(st.text(letters, min_size=36, max_size=50))
    known: list[str] = []
    match draw(st.sampled_from(["name", "known", "shape", "header", "address", "text", "words"])):
        case "name":
            name = draw(
                st.sampled_from(["password", "accessToken", "API-KEY", "x_secret_y", "Cookie", "authorization"])
            )
            secret = draw(st.text(st.characters(codec="utf-8"), min_size=12))
            value: Any = {draw(_key): 1, name: draw(st.sampled_from([secret, [secret], {"a": {"b": secret}}]))}
        case "known":
            secret = draw(st.text(st.characters(codec="utf-8", exclude_characters="•"), min_size=9, max_size=60))
            known = [secret]
            value = draw(_plain) + secret + draw(_plain)
        case "shape":
            secret = draw(st.sampled_from(["ghp_", "sk-", "xoxb-", "npm_", "hr_" + "x" * 20])) + word
            value = f"{draw(_plain)} {secret} {draw(_plain)}"
        case "header":
            secret = word
            value = f"curl -H 'authorization: bearer {secret}' {draw(_plain)}"
        case "address":
            secret = word
            value = f"{draw(_plain)} https://ana:{secret}@example.org/ {draw(_plain)}"
        case "text":
            secret = word
            value = json.dumps({"note": draw(_plain), "api_key": secret})
        case _:
            secret = word
            value = ["deploy", "--api-key", secret, draw(_plain)]
    for _ in range(draw(st.integers(0, 3))):
        value = draw(st.sampled_from([[value], {draw(_key): value}, [draw(_plain), value]]))
    return value, secret, known


@given(_planted())
def test_no_planted_secret_survives(planted: tuple[Any, str, list[str]]) -> None:
    value, secret, known = planted
    # What is a secret by its name alone is none where it stands a second time by chance.
    assume(sum(text.count(secret) for text in _texts(value)) == 1)
    masked = Mask(known).json(value)
    assert not [text for text in _texts(masked) if secret in text]


def _texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for key, inner in value.items() for text in (key, *_texts(inner))]
        case list():
            return [text for inner in value for text in _texts(inner)]
    return []


def test_variables_of_ours_that_look_secret_are_known() -> None:
    ours = {"SHOP_API_KEY": "0123456789", "CI_TOKEN": "short", "PATH": "/usr/bin:/bin", "HANDRAISE_DATABASE": "x" * 20}
    assert secret_values(ours, {"GIT_TOKEN": "of the agent"}, names={"HANDRAISE_DATABASE"}) == [
        "0123456789",
        "x" * 20,
        "of the agent",
    ]


async def test_a_secret_across_the_cut_is_gone() -> None:
    for before in range(LONGEST - 45, LONGEST + 5, 7):
        text = "x " * (before // 2) + GITHUB + " y" * 10_000
        masked = Mask(longest=LONGEST).json(text)
        assert len(masked) < LONGEST + 100 and masked.endswith("characters more)")
        assert "ghp_" not in masked


# Keeping ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def wires(store: Store, clock: FakeClock) -> Wires:
    """Not opened: what was seen is written when a test says so."""
    return Wires(store, clock=clock, known=[OURS])


def a_wire(body: Any = None, **changes: Any) -> Wire:
    return Wire(**{"way": "in", "body": {"n": 1} if body is None else body, "name": "note", **changes})


async def kept(wires: Wires, session: str = "s1", **asked: Any) -> list[tuple[str, Any]]:
    await wires.flush()
    return [(each.name, each.body) for each in (await wires.read(session, **asked)).wires]


async def test_what_was_seen_is_written_in_one_batch_in_order_and_without_secrets(store: Store, wires: Wires) -> None:
    before = sum(store.commits.values())
    for number in range(150):
        wires.seen("s1", a_wire({"n": number, "token": "t"}, name=f"m{number}"))
    wires.seen("s2", a_wire(f"of another {OURS}"))
    assert not (await wires.read("s1")).wires
    found = await kept(wires)
    assert found == [(f"m{number}", {"n": number, "token": DOTS}) for number in range(150)]
    assert await kept(wires, "s2") == [("note", f"of another {DOTS}alue")]
    assert sum(store.commits.values()) == before + 1


async def test_while_it_is_open_it_writes_by_itself_and_the_rest_at_the_end(store: Store) -> None:
    clock = FakeClock()
    async with Wires(store, clock=clock) as wires:
        wires.seen("s1", a_wire("first"))
        assert [each.body for each in (await wires.wait("s1", after="", timeout=5)).wires] == ["first"]
        wires.seen("s1", a_wire("last"))
        wires.seen("s1", a_wire("piece", is_piece=True))
    assert [each.body for each in (await wires.read("s1")).wires] == ["first", "last", "piece"]


async def test_a_request_and_its_response_are_found_by_the_ask_they_became(wires: Wires) -> None:
    wires.seen("s1", a_wire("asks", request="1"))
    wires.became("s1", "ask-1", request="1")
    wires.seen("s1", a_wire("other", request="2"))
    wires.seen("s1", a_wire("answers", way="out", request="1"))
    await wires.flush()
    wires.became("s1", "ask-2", request="2")  # which is written already
    wires.seen("s1", a_wire("the same id once more", request="1"))
    assert await kept(wires, asks=["ask-1"]) == [("note", "asks"), ("note", "answers")]
    assert await kept(wires, asks=["ask-2"]) == [("note", "other")]
    assert await kept(wires, is_ask=True) == [("note", "asks"), ("note", "other"), ("note", "answers")]


async def test_a_row_of_pieces_is_kept_as_one(wires: Wires) -> None:
    for number in range(400):
        wires.seen("s1", a_wire(number, name="delta", is_piece=True))
        wires.seen("s1", a_wire(number, name="thought", is_piece=True))
    wires.seen("s1", a_wire("whole", name="message"))
    wires.seen("s1", a_wire("more", name="delta", is_piece=True))
    await wires.flush()
    found = (await wires.read("s1")).wires
    assert [(each.name, each.body, each.pieces) for each in found] == [
        ("delta", 399, 400),
        ("thought", 399, 400),
        ("message", "whole", 1),
        ("delta", "more", 1),
    ]


async def test_of_a_long_message_the_beginning_is_kept_and_its_size_is_said(wires: Wires) -> None:
    bodies = {
        "text": "x" * 1_000_000,
        "field": {"command": "cat all", "output": "y" * 1_000_000, "id": 7},
        "entries": list(range(500_000)),
        "fields": [{"a": "b" * 1000} for _ in range(1000)],
    }
    for name, body in bodies.items():
        wires.seen("s1", a_wire(body, name=name))
    await wires.flush()
    for each in (await wires.read("s1")).wires:
        assert len(json.dumps(each.body)) < LONGEST * 1.2
        assert each.size > LONGEST
    field = (await wires.read("s1", name="field")).wires[0]
    assert (field.body["command"], field.body["id"]) == ("cat all", 7)
    assert field.body["output"].startswith("yyy") and field.body["output"].endswith("characters more)")
    assert field.size > 1_000_000


async def test_only_the_newest_messages_of_a_session_are_kept(wires: Wires) -> None:
    wires.seen("s2", a_wire("of another"))
    for start in range(0, 2 * MOST_KEPT, 200):
        for number in range(start, start + 200):
            wires.seen("s1", a_wire(number))
        await wires.flush()
    found = (await wires.read("s1", limit=10_000)).wires
    assert MOST_KEPT <= len(found) <= MOST_KEPT * SLACK
    assert [each.body for each in found] == list(range(2 * MOST_KEPT - len(found), 2 * MOST_KEPT))
    assert await kept(wires, "s2") == [("note", "of another")]


async def test_no_session_keeps_more_than_its_bytes(wires: Wires) -> None:
    for number in range(100):
        wires.seen("s1", a_wire({"n": number, "text": "x" * (LONGEST - 100)}))
        await wires.flush()
    found = (await wires.read("s1", limit=1000)).wires
    assert 0.9 * MOST_BYTES < sum(len(json.dumps(each.body)) for each in found) <= MOST_BYTES * SLACK
    assert found[-1].body["n"] == 99


async def test_what_is_old_is_forgotten(store: Store, wires: Wires, clock: FakeClock) -> None:
    wires.seen("s1", a_wire("old"))
    await wires.flush()
    await clock.advance(KEPT.total_seconds() / 2)
    wires.seen("s1", a_wire("new"))
    await wires.flush()
    await clock.advance(KEPT.total_seconds() / 2 + 1)
    await wires.forget_old()
    assert await kept(wires) == [("note", "new")]
    await Wires(store, clock=clock, keep=timedelta(days=1)).forget_old()
    assert not await kept(wires)


class Failing(SqliteStore):
    """A store that does not take what is written in batches, for as long as a test says so."""

    is_failing = True

    async def write_all(self, *statements: Statement, topic: str | None = None) -> list[list[Row]]:
        if self.is_failing:
            raise StoreError("the disk is full")
        return await super().write_all(*statements, topic=topic)


async def test_a_database_that_fails_is_said_once_and_fails_nobody(caplog: pytest.LogCaptureFixture) -> None:
    store = await Failing.open_file(MEMORY)
    wires = Wires(store, clock=FakeClock())
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            wires.seen("s1", a_wire(number))
            await wires.flush()
    assert [record.getMessage() for record in caplog.records] == [
        "messages of agents are not kept for now: the disk is full"
    ]
    store.is_failing = False
    wires.seen("s1", a_wire("again"))
    assert await kept(wires) == [("note", "again")]
    await store.close()


async def test_a_message_that_cannot_be_kept_takes_no_other_along(wires: Wires) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    odd = {"text": "half of a pair \ud800 and a NUL \0", 7: {1, 2}}
    for body in (deep, odd, "fine"):
        wires.seen("s1", a_wire(body))
    found = [body for _, body in await kept(wires)]
    assert found[0] == "(this message could not be kept)"
    assert "half of a pair" in found[1]["text"]
    assert found[2] == "fine"


async def test_while_nothing_can_be_written_the_newest_wait(wires: Wires) -> None:
    for number in range(12_000):
        wires.seen("s1", a_wire(number))
    found = (await wires.read("s1", limit=10_000)).wires
    assert not found
    await wires.flush()
    assert (await wires.read("s1", limit=1)).wires[0].body == 11_999


# Reading ------------------------------------------------------------------------------------------------------------

DATABASE = Question("Which database?", (Option("SQLite"), Option("Postgres")), header="Database")
TOUCH = Permission(tool="Bash", summary="make a file", command="touch one", input={"command": "touch one"})


def an_agent() -> Scripted:
    agent = Scripted()
    agent.on_question("database", DATABASE)
    agent.on_permission("touch", TOUCH)
    return agent.on("hello", f"hello yourself, {GITHUB}").on("", "as you say")


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database, staff=[an_agent()]) as desk:
        yield desk


async def run(http: httpx2.AsyncClient, prompt: str) -> str:
    body = {"agent": "scripted", "prompt": prompt}
    return str((await told(http.post("/v1/sessions", json=body), 201))["id"])


async def wire(http: httpx2.AsyncClient, session: str, **asked: Any) -> dict[str, Any]:
    return await told(http.get(f"/v1/sessions/{session}/wire", params=asked), 200)


async def until(http: httpx2.AsyncClient, session: str, name: str) -> list[dict[str, Any]]:
    """All messages, once one of this name is among them."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        while name not in [each["name"] for each in found]:
            after = found[-1]["id"] if found else ""
            found += (await wire(http, session, after=after, wait=5))["wire"]
    return found


async def test_a_session_can_be_read_followed_and_searched(desk: Served) -> None:
    session = await run(desk.http, "hello")
    found = await until(desk.http, session, "reply")
    assert [(each["way"], each["name"]) for each in found] == [("out", "prompt"), ("in", "reply")]
    assert found[1]["body"] == {"type": "reply", "text": f"hello yourself, {DOTS}a1B2"}
    assert found[1]["size"] > 20 and found[1]["pieces"] == 1 and found[1]["ask"] is None
    everything = await wire(desk.http, session)
    assert everything["recording"] is True and everything["wire"] == found and "next" not in everything
    for asked, names in [
        ({"way": "in"}, ["reply"]),
        ({"name": "prompt"}, ["prompt"]),
        ({"q": "HELLO your"}, ["reply"]),
        ({"q": "%"}, []),
        ({"q": '"hello"'}, []),
        ({"after": found[0]["id"]}, ["reply"]),
        ({"before": found[1]["id"]}, ["prompt"]),
        ({"after": found[1]["id"]}, []),
        ({"after": found[0]["id"], "way": "out", "wait": 0.01}, []),
    ]:
        assert [each["name"] for each in (await wire(desk.http, session, **asked))["wire"]] == names, asked
    last = await wire(desk.http, session, limit=1)
    assert [each["name"] for each in last["wire"]] == ["reply"]
    assert [each["name"] for each in (await wire(desk.http, session, limit=1, before=last["next"]))["wire"]] == [
        "prompt"
    ]
    first = await wire(desk.http, session, limit=1, after="")
    assert first["next"] == found[0]["id"]


async def test_an_asks_translation_is_whole(desk: Served) -> None:
    session = await run(desk.http, "database touch")
    asked = await first_event(desk.broker, lambda event: event.type == "asked")
    question = asked.ask.id  # type: ignore[attr-defined]
    await desk.answer(question, "Postgres")
    second = await first_event(
        desk.broker,
        lambda event: event.type == "asked" and event.ask.id != question,  # type: ignore[attr-defined]
    )
    permission = second.ask.id  # type: ignore[attr-defined]
    await told(desk.http.post(path_of(permission, "answer"), json={"reply": "reject", "message": "not now"}), 200)
    await until(desk.http, session, "reply")
    found = await wire(desk.http, session, ask=question)
    sent, got = found["wire"]
    assert (sent["way"], sent["body"]["wanted"][0]["question"]) == ("in", "Which database?")
    assert found["ask"]["id"] == question and found["ask"]["answer"]["answers"] == [["Postgres"]]
    assert (got["way"], got["body"]["answers"]) == ("out", [["Postgres"]])
    assert len((await wire(desk.http, session, ask="*"))["wire"]) == 4
    found = await wire(desk.http, session, ask=permission)
    assert [each["name"] for each in found["wire"]] == ["permission", "answer"]
    assert found["wire"][1]["body"]["reason"] == found["ask"]["answer"]["reason"] == "not now"
    assert await wire(desk.http, session, ask="nobody") == {"recording": True, "wire": [], "ask": None}


async def test_only_an_admin_reads_it_and_wrong_questions_are_refused(desk: Served) -> None:
    session = await run(desk.http, "hello")
    path = f"/v1/sessions/{session}/wire"
    for scope in ("ask", "answer"):
        caller = await desk.caller(f"may-{scope}", scope)
        assert (await refused(caller.get(path), 403, "forbidden"))["scope"] == "admin"
    await refused(desk.http.get("/v1/sessions/nobody/wire"), 404, "session_not_found")
    for asked in (
        {"way": "up"},
        {"limit": 501},
        {"limit": 0},
        {"wait": 301},
        {"q": "x" * 501},
        {"what": "else"},
    ):
        await refused(desk.http.get(path, params=asked), 400, "bad_request")
    await desk.ask(origin={"agent": "script", "session": "ends/wire"})
    assert (await told(desk.http.get("/v1/sessions/ends%2Fwire"), 200))["id"] == "ends/wire"
    assert (await told(desk.http.get("/v1/sessions/ends%2Fwire/wire"), 200))["wire"] == []


async def test_a_desk_that_is_told_not_to_keeps_nothing_and_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, staff=[an_agent()], inspect=False) as desk:
        session = await run(desk.http, "hello")
        await told(desk.http.get(f"/v1/sessions/{session}", params={"wait": 5}), 200)
    async with serving(tmp_path, staff=[an_agent()], inspect=False) as desk:
        assert await wire(desk.http, session) == {"recording": False, "wire": []}


async def test_it_outlasts_the_desk_that_saw_it(tmp_path: Path, lasting_database: str) -> None:
    async with serving(tmp_path, database=lasting_database, staff=[an_agent()]) as desk:
        session = await run(desk.http, "hello")
        await told(desk.http.get(f"/v1/sessions/{session}", params={"wait": 5}), 200)
    async with serving(tmp_path, database=lasting_database, staff=[an_agent()]) as desk:
        assert [each["name"] for each in (await wire(desk.http, session))["wire"]] == ["prompt", "reply"]


async def test_a_desk_elsewhere_hears_of_it(tmp_path: Path, new_database: Callable[[], str]) -> None:
    database = new_database()
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(serving(tmp_path / "a", database=database, staff=[an_agent()]))
        there = await stack.enter_async_context(serving(tmp_path / "b", database=database, has_worker=False))
        session = await run(here.http, "hello")
        assert [each["name"] for each in await until(there.http, session, "reply")] == ["prompt", "reply"]


async def test_a_desk_that_stops_ends_the_waits(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        desk = await stack.enter_async_context(serving(tmp_path, staff=[an_agent()]))
        session = await run(desk.http, "hello")
        last = (await until(desk.http, session, "reply"))[-1]["id"]
        async with a_client(desk.url, desk.token) as other:
            waiting = asyncio.create_task(wire(other, session, after=last, wait=60))
            await eventually(lambda: "wires" in [topic for topic, _ in desk.broker.store._hearers])  # type: ignore[attr-defined]
            await stack.aclose()
            assert (await waiting)["wire"] == []


COMMAND = f"GH_TOKEN={GITHUB} make"
HOOK = {"hook_event_name": "PermissionRequest", "session_id": "c1", "cwd": "/repo", "tool_name": "Bash"}
EVENT = {"id": "per_1", "sessionID": "ses_1", "permission": "bash", "patterns": [COMMAND], "always": []}
TERMINALS = {
    "claude/hook": {**HOOK, "tool_input": {"command": COMMAND}},
    "opencode/ask": {"type": "permission.asked", "properties": {**EVENT, "metadata": {"command": COMMAND}}},
    "amp/call": {"call": "a" * 20, "tool": "Bash", "input": {"cmd": COMMAND}, "thread": "T-1"},
}


@pytest.mark.parametrize("path", TERMINALS)
async def test_the_call_of_a_terminal_and_its_reply_are_kept_with_the_ask(tmp_path: Path, path: str) -> None:
    name = f"POST /attach/{path}"
    async with serving(tmp_path) as desk:
        terminal = await desk.caller("terminal", "ask")
        held = asyncio.create_task(terminal.post(f"/attach/{path}", json=TERMINALS[path]))
        event = await first_event(desk.broker, lambda event: event.type == "asked")
        ask = event.ask  # type: ignore[attr-defined]
        session = ask.origin.session
        await until(desk.http, session, name)
        open_still = await wire(desk.http, session, ask=ask.id)
        assert [each["way"] for each in open_still["wire"]] == ["in"]
        await told(desk.http.post(path_of(ask.id, "answer"), json={"reply": "once"}), 200)
        reply = await told(held, 200)
        await until(desk.http, session, f"200 {name}")
        found = await wire(desk.http, session, ask=ask.id)
    sent, got = found["wire"]
    assert sent["ask"] == got["ask"] == ask.id
    assert sent["body"].keys() == TERMINALS[path].keys()
    assert found["ask"]["permission"]["command"] == f"GH_TOKEN={DOTS}a1B2 make"
    assert got["body"] == json.loads(json.dumps(reply).replace(GITHUB, f"{DOTS}a1B2"))
    assert GITHUB not in json.dumps(found)


async def test_no_secret_of_the_settings_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "the key of the shop")
    agents = {"amp": AgentTable(env={"AMP_API_KEY": "the key of amp"})}
    database = f"sqlite:///{MEMORY}"
    async with serving(tmp_path, database=database, token="the token of ana", agents=agents) as desk:
        wires = wires_of(desk.settings, desk.broker)
        wires.seen("s1", a_wire("the key of the shop, the key of amp, the token of ana"))
        assert await kept(wires) == [("note", f"{DOTS}shop, {DOTS}, {DOTS} ana")]
