"""Who may come in and do what: tokens, scopes, cookies, hosts and origins (X1)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import pytest_asyncio

from handraise.app import open_store
from handraise.client import Client
from handraise.config import Settings
from handraise.errors import DeskBroke, Unauthorized
from handraise.stores import Store
from handraise.stores._asks import migrations
from tests.helpers.serving import (
    DeskProcess,
    Listener,
    Served,
    a_body,
    a_client,
    a_permission_body,
    listening,
    path_of,
    refused,
    serving,
    tokens_of,
    told,
)

ROUTES = [
    ("GET", "/"),
    ("GET", "/v1/asks"),
    ("POST", "/v1/asks"),
    ("GET", "/v1/asks/q1"),
    ("POST", "/v1/asks/q1/answer"),
    ("POST", "/v1/asks/q1/reject"),
    ("POST", "/v1/asks/q1/keep-waiting"),
    ("POST", "/v1/asks/q1/deliver"),
    ("POST", "/v1/asks/q1/withdraw"),
    ("POST", "/v1/asks/q1/link"),
    ("GET", "/v1/asks/q1/showings"),
    ("POST", "/v1/asks/q1/showings"),
    ("GET", "/v1/channels"),
    ("GET", "/v1/showings"),
    ("GET", "/v1/channels/linear/places"),
    ("POST", "/v1/channels/linear/test"),
    ("POST", "/v1/deliveries"),
    ("POST", "/v1/leases"),
    ("GET", "/v1/events"),
    ("GET", "/v1/cursor"),
    ("GET", "/v1/sessions"),
    ("GET", "/v1/sessions/s1"),
    ("GET", "/v1/sessions/s1/events"),
    ("POST", "/v1/sessions/s1/questions/q1/reply"),
    ("POST", "/v1/sessions"),
    ("POST", "/v1/sessions/s1/prompt"),
    ("POST", "/v1/sessions/s1/abort"),
    ("POST", "/v1/sessions/s1/close"),
    ("GET", "/v1/sessions/s1/messages"),
    ("GET", "/v1/agents"),
    ("GET", "/v1/workflows"),
    ("GET", "/v1/runs"),
    ("POST", "/v1/runs"),
    ("GET", "/v1/runs/r1"),
    ("GET", "/v1/runs/r1/trace"),
    ("POST", "/v1/runs/r1/cancel"),
    ("POST", "/v1/runs/r1/retry"),
    ("POST", "/v1/runs/r1/rerun"),
    ("GET", "/v1/checkpoints"),
    ("GET", "/v1/checkpoints/c1"),
    ("POST", "/v1/checkpoints/c1"),
    ("GET", "/runs/r1"),
    ("POST", "/runs/r1/questions/q1"),
    ("POST", "/attach/claude/hook"),
    ("POST", "/attach/opencode/ask"),
    ("POST", "/attach/amp/call"),
    ("GET", "/v1/trust"),
    ("POST", "/v1/trust"),
    ("DELETE", "/v1/trust"),
    ("GET", "/v1/tokens"),
    ("POST", "/v1/tokens"),
    ("DELETE", "/v1/tokens/ci"),
    ("POST", "/v1/signin"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/question"),
    ("GET", "/event"),
    ("GET", "/no/such/route"),
    ("GET", "/healthz/"),
    ("GET", "/signin"),
    ("GET", "/a"),
    ("GET", "/app/app.css"),
    ("GET", "/sw.js"),
]

in_one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database) as desk:
        yield desk


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory, shared_database: str) -> AsyncIterator[Served]:
    """One desk for the tests that change nothing."""
    async with serving(tmp_path_factory.mktemp("shared"), database=shared_database) as desk:
        yield desk


# Tokens -----------------------------------------------------------------------------------------------------


@in_one_loop
@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_wants_a_token(shared: Served, method: str, path: str) -> None:
    nobody = await shared.client()
    refusal = nobody.request(method, path)
    await refused(refusal, 401, "unauthorized")
    assert (await nobody.request(method, path)).headers["www-authenticate"] == 'Bearer realm="handraise"'


async def test_health_and_the_sign_in_page_want_none(desk: Served) -> None:
    nobody = await desk.client()
    await told(nobody.get("/healthz"), 200)
    assert (await nobody.get("/signin/anything")).status_code == 200


@in_one_loop
@pytest.mark.parametrize(
    "authorization",
    [
        *("", "Bearer", "Bearer wrong", "Bearer {token}x", "Bearer x{token}", "{token}", "Token {token}"),
        *("Basic", "Basic !!!", "Basic {token}", "Basic dG9rZW4=", "Digest {token}", "Bearer\t{token}", "Bearer é"),
    ],
)
async def test_a_wrong_token_is_refused(shared: Served, authorization: str) -> None:
    headers = [(b"authorization", authorization.replace("{token}", shared.token).encode())]
    await refused((await shared.client()).get("/v1/asks", headers=headers), 401, "unauthorized")


async def test_a_token_is_taken_as_bearer_or_as_the_password_of_basic(desk: Served) -> None:
    async def status(authorization: str) -> int:
        return (await nobody.get("/v1/asks", headers={"Authorization": authorization})).status_code

    def basic(text: str) -> str:
        return f"Basic {base64.b64encode(text.encode()).decode()}"

    nobody = await desk.client()
    for right in (f"Bearer {desk.token}", f"bearer {desk.token}", basic(f"me:{desk.token}"), basic(f":{desk.token}")):
        assert await status(right) == 200
    for wrong in (basic(desk.token), basic(f"{desk.token}:"), basic(f"me:{desk.token} ")):
        assert await status(wrong) == 401


async def test_a_revoked_token_is_refused_at_once_also_on_a_connection_in_use(desk: Served) -> None:
    ana = await desk.caller("ana", "answer")
    await told(ana.get("/v1/asks"), 200)
    assert (await desk.http.delete("/v1/tokens/ana")).status_code == 204
    await refused(ana.get("/v1/asks"), 401, "unauthorized")
    await refused(desk.http.delete("/v1/tokens/ana"), 404, "not_found")
    again = await desk.caller("ana", "answer")
    await told(again.get("/v1/asks"), 200)
    await refused(ana.get("/v1/asks"), 401, "unauthorized")


async def test_a_stream_tells_a_revoked_token_nothing_more(desk: Served) -> None:
    ana = await desk.caller("ana", "answer")
    async with listening(ana) as hers, listening(desk.http) as ours:
        await desk.ask(id="before")
        await hers.frame()
        await desk.http.delete("/v1/tokens/ana")
        await desk.ask(id="after")
        await ours.frame()
        await ours.frame()
        with pytest.raises(StopAsyncIteration):
            await hers.frame()
    assert b"after" not in hers.raw
    await refused(ana.get("/v1/events"), 401, "unauthorized")


async def test_tokens_are_listed_without_their_secrets(desk: Served) -> None:
    added = await told(desk.http.post("/v1/tokens", json={"name": "ci", "scopes": ["ask", "answer"]}), 201)
    assert added.keys() == {"name", "scopes", "token"}
    tokens = (await told(desk.http.get("/v1/tokens"), 200))["tokens"]
    assert [(token["name"], token["scopes"]) for token in tokens] == [
        (desk.admin, ["admin"]),
        ("ci", ["answer", "ask"]),
    ]
    assert all(token.keys() == {"name", "scopes", "created_at"} for token in tokens)
    taken = desk.http.post("/v1/tokens", json={"name": "ci", "scopes": ["admin"]})
    await refused(taken, 422, "settings")


@in_one_loop
@pytest.mark.parametrize(
    "body",
    [
        *({}, {"name": "x"}, {"scopes": ["ask"]}, {"name": "x", "scopes": []}, {"name": "x", "scopes": ["root"]}),
        *({"name": "", "scopes": ["ask"]}, {"name": "a:b", "scopes": ["ask"]}, {"name": "a b", "scopes": ["ask"]}),
        *({"name": "x" * 64, "scopes": ["ask"]}, {"name": "@x", "scopes": ["ask"]}, {"name": "é", "scopes": ["ask"]}),
    ],
)
async def test_a_token_needs_a_name_and_scopes(shared: Served, body: dict[str, Any]) -> None:
    await refused(shared.http.post("/v1/tokens", json=body), 400, "bad_request")


# Scopes -----------------------------------------------------------------------------------------------------

ANSWERING = [
    ("GET", "/", None),
    ("GET", "/v1/asks", None),
    ("POST", path_of("q1", "answer"), {"answers": [["SQLite"]]}),
    ("POST", path_of("q1", "reject"), {}),
    ("POST", path_of("q1", "keep-waiting"), {}),
    ("POST", path_of("q1", "link"), {}),
    ("GET", "/app/app.css", None),
    ("GET", "/v1/cursor", None),
    ("GET", "/v1/sessions", None),
    ("GET", "/v1/sessions/s1", None),
    ("GET", "/v1/sessions/s1/events", None),
    ("GET", "/v1/sessions/s1/messages", None),
    ("GET", "/v1/agents", None),
    ("POST", "/v1/sessions/s1/questions/q1/reply", {"answers": [["SQLite"]]}),
    ("POST", "/v1/sessions/s1/questions/q1/reject", {}),
    ("GET", "/question", None),
    ("GET", "/event", None),
    ("POST", "/question/que_q1/reject", {}),
]
ASKING = [
    ("POST", "/v1/asks", a_body(id="q2")),
    ("POST", path_of("q1", "withdraw"), {}),
    ("POST", "/v1/deliveries", {"deliveries": [{"id": "q1"}]}),
]
RULING = [
    ("POST", "/v1/sessions", {"agent": "scripted", "prompt": "hello"}),
    ("POST", "/v1/sessions/s1/prompt", {"prompt": "hello"}),
    ("POST", "/v1/sessions/s1/abort", None),
    ("POST", "/v1/sessions/s1/close", None),
    ("GET", "/v1/agents?probe=1", None),
    ("GET", "/v1/tokens", None),
    ("POST", "/v1/tokens", {"name": "mine", "scopes": ["admin"]}),
    ("DELETE", "/v1/tokens/admin", None),
    ("POST", "/v1/signin", None),
]


async def test_a_token_that_may_only_ask_cannot_answer_or_rule(desk: Served) -> None:
    ci = await desk.caller("ci", "ask")
    ask = await desk.ask(id="q1")
    for method, path, body in (*ANSWERING, *RULING):
        refusal = await refused(ci.request(method, path, json=body), 403, "forbidden")
        assert refusal["token"] == "ci"
    await refused(ci.get("/v1/events"), 403, "forbidden")
    assert await desk.get("q1") == ask


async def test_a_token_that_may_only_answer_cannot_ask_or_rule(desk: Served) -> None:
    ana = await desk.caller("ana", "answer")
    ask = await desk.ask(id="q1")
    for method, path, body in (*ASKING, *RULING):
        await refused(ana.request(method, path, json=body), 403, "forbidden")
    assert await desk.get("q1") == ask
    await refused(desk.http.get(path_of("q2")), 404, "ask_not_found")
    assert (await told(ana.get(path_of("q1")), 200)) == ask
    assert (await told(ana.post(path_of("q1", "answer"), json={"answers": [["SQLite"]]}), 200))["state"] == "answered"


async def test_a_refused_scope_is_refused_before_the_body_is_looked_at(desk: Served) -> None:
    ci = await desk.caller("ci", "ask")
    await refused(ci.post(path_of("q1", "answer"), content=b"{"), 403, "forbidden")
    await refused(ci.post("/v1/tokens", content=b"x" * 5_000_000), 403, "forbidden")


async def test_a_token_that_may_only_ask_hears_only_what_its_own_worker_waits_for(desk: Served) -> None:
    ci = await desk.caller("ci", "ask")
    other = await desk.caller("other", "ask")
    async with listening(ci, worker="w1") as listener:
        await told(other.post("/v1/asks", json=a_body(id="theirs", worker="w1")), 201)
        await desk.ask(id="ours", worker="w1")
        await told(ci.post("/v1/asks", json=a_body(id="elsewhere", worker="w2")), 201)
        mine = await told(ci.post("/v1/asks", json=a_body(id="mine", worker="w1")), 201)
        await desk.answer(mine["id"], "SQLite")
        assert await ids(listener, 2) == ["@ci:mine", "@ci:mine"]
    async with listening(ci, worker="w1", after=0) as listener:
        assert await ids(listener, 2) == ["@ci:mine", "@ci:mine"]


async def ids(listener: Listener, count: int) -> list[str]:
    return [json.loads((await listener.frame()).data)["ask"]["id"] for _ in range(count)]


# Whose ask it is --------------------------------------------------------------------------------------------


async def test_a_token_that_may_only_ask_tells_local_answers_of_its_own_asks_alone(desk: Served) -> None:
    one, two = await desk.caller("one", "ask"), await desk.caller("two", "ask")
    await told(one.post("/v1/asks", json=a_body(id="q1")), 201)
    await desk.ask(id="ours")
    local = {"answer": {"answers": [["Postgres"]], "by": "ana", "via": "opencode"}}
    for id in ("q1", "@one:q1", "ours"):
        await refused(two.post(path_of(id, "withdraw"), json=local), 404, "ask_not_found")
    answered = await told(one.post(path_of("q1", "withdraw"), json=local), 200)
    assert (answered["state"], answered["answer"]["answers"]) == ("answered", [["Postgres"]])
    assert (answered["answer"]["by"], answered["answer"]["via"]) == ("agent", "opencode")
    assert (await desk.get("ours"))["state"] == "asked"
    [line] = (await told(desk.http.get("/v1/audit"), 200))["lines"]
    assert (line["decided_by"], line["by"], line["token"]) == ("agent", "agent", "one")


async def test_a_token_that_may_only_ask_grants_nothing_that_lasts(desk: Served) -> None:
    ci = await desk.caller("ci", "ask")
    everything = {"id": "session", "patterns": ["*"], "by_desk": True}
    permission = {
        **a_permission_body()["permission"],
        "scopes": [everything],
        "patterns": ["rm -rf build"],
    }
    forged = a_permission_body(id="forged", permission=permission)
    await told(ci.post("/v1/asks", json=forged), 201)
    always = {"answer": {"reply": "always", "scope": "session"}}
    assert (await told(ci.post(path_of("forged", "withdraw"), json=always), 200))["state"] == "answered"
    real = await told(desk.http.post("/v1/asks", json=a_permission_body(id="real", permission=permission)), 201)
    assert real["state"] == "asked", "the same session, the same tool, and nobody allowed it"


async def test_ids_of_two_tokens_cannot_collide_and_neither_sees_the_others_ask(desk: Served) -> None:
    one, two = await desk.caller("one", "ask"), await desk.caller("two", "ask")
    first = await told(one.post("/v1/asks", json=a_body(id="q1")), 201)
    second = await told(two.post("/v1/asks", json=a_body(id="q1", questions=[{"question": "Other?"}])), 201)
    ours = await desk.ask(id="q1", questions=[{"question": "Ours?"}])
    assert [ask["id"] for ask in (first, second, ours)] == ["@one:q1", "@two:q1", "q1"]
    assert await told(one.get(path_of("q1")), 200) == first
    assert await told(one.get(path_of("@one:q1")), 200) == first
    assert await told(one.post("/v1/asks", json=a_body(id="@one:q1")), 200) == first
    await refused(two.get(path_of("@one:q1")), 404, "ask_not_found")
    await refused(two.post(path_of("@one:q1", "withdraw")), 404, "ask_not_found")
    unknown = {"deliveries": [{"id": "@one:q1"}]}
    assert (await told(two.post("/v1/deliveries", json=unknown), 200))["unknown"] == ["@one:q1"]
    await told(two.post(path_of("q1", "withdraw")), 200)
    assert await desk.get("@one:q1") == first
    assert await desk.get("q1") == ours


async def test_the_desks_own_asks_are_out_of_reach_of_a_token_named_like_their_agent(desk: Served) -> None:
    ask = await desk.ask(id="claude:s1:t1")
    claude = await desk.caller("claude", "ask")
    for id in ("s1:t1", "claude:s1:t1"):
        await refused(claude.get(path_of(id)), 404, "ask_not_found")
        await refused(claude.post(path_of(id, "withdraw")), 404, "ask_not_found")
        reported = await told(claude.post("/v1/deliveries", json={"deliveries": [{"id": id}]}), 200)
        assert reported["unknown"] == [id]
    assert (await told(claude.post("/v1/asks", json=a_body(id="s1:t1")), 201))["id"] == "@claude:s1:t1"
    assert await desk.get("claude:s1:t1") == ask
    await refused(desk.http.post("/v1/asks", json=a_body(id="@claude:x")), 422, "ask_does_not_fit")


async def test_people_answer_the_ask_of_a_token_under_its_whole_id(desk: Served) -> None:
    ci, ana = await desk.caller("ci", "ask"), await desk.caller("ana", "answer")
    call = asyncio.create_task(ci.post("/v1/asks", params={"wait": 5}, json=a_permission_body(id="deploy")))
    async with listening(ana, after=0) as listener:
        assert await ids(listener, 1) == ["@ci:deploy"]
    await told(ana.post(path_of("@ci:deploy", "answer"), json={"reply": "once"}), 200)
    assert (await told(call, 201))["answer"]["by"] == "ana"


async def test_a_token_that_asks_and_answers_means_its_own_ask_first(desk: Served) -> None:
    both = await desk.caller("both", "ask", "answer")
    ours = await desk.ask(id="q1")
    await desk.ask(id="q2")
    await told(both.post("/v1/asks", json=a_body(id="q1")), 201)
    assert (await told(both.post(path_of("q1", "reject")), 200))["id"] == "@both:q1"
    assert (await told(both.post(path_of("q2", "reject")), 200))["id"] == "q2"
    assert await desk.get("q1") == ours


# Where secrets lie ------------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_secrets_lie_in_files_for_their_owner_alone_and_never_in_the_store(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with serving(home, token="from the environment") as desk:
        secrets = [desk.token, "from the environment"]
        for name, scope in (("ci", "ask"), ("ana", "answer")):
            added = await told(desk.http.post("/v1/tokens", json={"name": name, "scopes": [scope]}), 201)
            secrets.append(added["token"])
        browser = await signed_in(desk)
        secrets += [browser.cookie, browser.secret]
        assert mode(home) == 0o700
        assert {mode(home / name) for name in ("token", "desk.json", "desk.db")} == {0o600}
        assert all(mode(path) & 0o077 == 0 for path in home.glob("desk.db*") if path.suffix != ".lock")
    stored = b"".join(path.read_bytes() for path in home.glob("desk.db*"))
    assert b"ana" in stored
    assert not any(secret.encode() in stored for secret in secrets)
    assert len({*secrets}) == 6


async def everything_in(store: Store) -> str:
    return "\n".join([repr(await store.read(f"select * from {table}")) for table in await store.tables()])


async def test_no_secret_is_in_the_tables_of_the_store(tmp_path: Path, database: str) -> None:
    async with serving(tmp_path, database=database, token="from the environment") as desk:
        browser = await signed_in(desk)
        secrets = [desk.token, "from the environment", browser.cookie, browser.secret]
        added = await told(desk.http.post("/v1/tokens", json={"name": "ana", "scopes": ["answer"]}), 201)
        stored = await everything_in(desk.broker.store)
    assert "ana" in stored and "browser-" in stored and desk.admin in stored
    assert not any(secret in stored for secret in (*secrets, added["token"]))


async def test_the_token_of_a_home_outlives_the_desk_and_its_database(tmp_path: Path, lasting_database: str) -> None:
    async with serving(tmp_path, database=lasting_database) as desk:
        token = desk.token
    async with serving(tmp_path, database=lasting_database) as desk:
        assert desk.token == token
        await told(desk.http.get("/v1/asks"), 200)
    async with serving(tmp_path, database=f"sqlite:///{tmp_path / 'other.db'}") as desk:
        assert desk.token == token
        await told(desk.http.get("/v1/asks"), 200)


async def test_the_token_of_the_environment_is_admin_beside_the_one_in_the_file(
    tmp_path: Path, lasting_database: str
) -> None:
    async with DeskProcess(tmp_path, HANDRAISE_TOKEN="chosen", HANDRAISE_DATABASE=lasting_database) as desk:
        async with a_client(desk.url, "chosen") as chosen, desk.client() as written:
            for client in (chosen, written):
                assert (await told(client.get("/v1/tokens"), 200))["tokens"]
            await told(written.post("/v1/tokens", json={"name": "ci", "scopes": ["ask"]}), 201)
            await told(chosen.get("/v1/tokens"), 200)
        assert await desk.stop() == 0
    store = await open_store(lasting_database)
    stored = await everything_in(store)
    await store.close()
    assert "ci" in stored and "chosen" not in stored


# The browser ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Browser:
    """What signing in gave to a browser. `http` sends both halves, as the app does."""

    http: httpx2.AsyncClient
    cookie_name: str
    cookie: str
    secret: str

    @property
    def cookies(self) -> dict[str, str]:
        return {"Cookie": f"{self.cookie_name}={self.cookie}"}

    @property
    def session(self) -> dict[str, str]:
        return {"X-Handraise-Session": self.secret}


async def signed_in(desk: Served, link: str | None = None) -> Browser:
    """A browser that used this link, or a new one."""
    link = link or (await told(desk.http.post("/v1/signin"), 201))["url"]
    http = await desk.client()
    response = await http.post(link)
    assert response.status_code == 200
    [secret] = re.findall(r'data-secret="([\w-]+)"', response.text)
    (cookie,) = http.cookies.jar
    http.headers["X-Handraise-Session"] = secret
    return Browser(http=http, cookie_name=cookie.name, cookie=cookie.value or "", secret=secret)


async def test_a_link_signs_a_browser_in_once_and_looking_does_not_use_it_up(desk: Served) -> None:
    port = urlsplit(desk.url).port
    link = (await told(desk.http.post("/v1/signin"), 201))["url"]
    assert link.startswith(f"{desk.url}/signin/")
    browser = await desk.client()
    for _ in range(3):
        page = await browser.get(link)
        assert (page.status_code, "set-cookie" in page.headers) == (200, False)
        assert "<button>" in page.text and "script" not in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert (page.headers["cache-control"], page.headers["referrer-policy"]) == ("no-store", "same-origin")
    await refused(browser.get("/v1/asks"), 401, "unauthorized")
    done = await browser.post(link)
    assert (done.status_code, done.headers["cache-control"]) == (200, "no-store")
    assert done.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    assert "frame-ancestors 'none'" in done.headers["content-security-policy"]
    cookie = done.headers["set-cookie"]
    assert cookie.startswith(f"handraise-{port}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "domain" not in cookie.lower()
    [secret] = re.findall(r'data-secret="([\w-]+)"', done.text)
    assert secret not in str(done.headers) and cookie.partition("=")[2].partition(";")[0] not in done.text
    await told(browser.get("/v1/asks", headers={"X-Handraise-Session": secret}), 200)
    assert (await browser.get("/")).status_code == 200
    second = await (await desk.client()).post(link)
    assert (second.status_code, "set-cookie" in second.headers) == (410, False)
    assert "data-secret" not in second.text


async def test_the_link_that_serve_prints_works(desk: Served) -> None:
    browser = await signed_in(desk, desk.running.sign_in_url)
    await told(browser.http.get("/v1/asks"), 200)


async def test_a_browser_stays_signed_in_when_the_desk_comes_back(tmp_path: Path, lasting_database: str) -> None:
    async with serving(tmp_path, database=lasting_database) as desk:
        port = urlsplit(desk.url).port or 0
        before = await signed_in(desk)
    async with serving(tmp_path, database=lasting_database, port=port) as desk:
        await told((await desk.client()).get("/v1/asks", headers=before.cookies | before.session), 200)


async def browsers_of(desk: Served) -> list[str]:
    return [name for name in await tokens_of(desk) if name.startswith("browser-")]


async def test_a_browser_can_be_revoked(desk: Served) -> None:
    browser = await signed_in(desk)
    [name] = await browsers_of(desk)
    await told(browser.http.get("/v1/asks"), 200)
    taken = desk.http.post("/v1/tokens", json={"name": name, "scopes": ["ask"]})
    await refused(taken, 422, "settings")
    assert (await desk.http.delete(f"/v1/tokens/{name}")).status_code == 204
    await refused(browser.http.get("/v1/asks"), 401, "unauthorized")
    await refused((await desk.client()).get("/app/app.css", headers=browser.cookies), 401, "unauthorized")
    assert await browsers_of(desk) == []


async def test_a_stream_tells_a_revoked_browser_nothing_more(desk: Served) -> None:
    browser = await signed_in(desk)
    [name] = await browsers_of(desk)
    async with listening(browser.http) as its, listening(desk.http) as ours:
        await desk.ask(id="before")
        await its.frame()
        await desk.http.delete(f"/v1/tokens/{name}")
        await desk.ask(id="after")
        await ours.frame()
        await ours.frame()
        with pytest.raises(StopAsyncIteration):
            await its.frame()
    assert b"after" not in its.raw


async def test_an_answer_link_is_as_good_as_the_browser_that_made_it(desk: Served) -> None:
    browser = await signed_in(desk)
    await desk.ask(id="q1")
    link = (await told(browser.http.post(path_of("q1", "link"), json={}), 201))["url"]
    nobody = await desk.client()
    assert "<form" in (await nobody.get(link)).text
    [name] = await browsers_of(desk)
    await desk.http.delete(f"/v1/tokens/{name}")
    assert "<form" not in (await nobody.get(link)).text


FILES = ("/", "/app/app.css", "/app/main.js", "/app/words/en.json", "/sw.js", "/manifest.webmanifest")


async def test_a_cookie_alone_opens_the_files_of_the_app_and_nothing_else(desk: Served) -> None:
    """Every port of the machine is sent it."""
    browser = await signed_in(desk)
    await desk.ask(id="q1")
    nobody = await desk.client()
    for method, path in ROUTES:
        if path not in FILES:
            await refused(nobody.request(method, path, headers=browser.cookies), 401, "unauthorized")
    for path in ("/app/../v1/asks", "/app/%2e%2e/v1/asks", "//v1/asks", "/app", "/sw.js/", "/manifest.webmanifest/x"):
        assert (await nobody.get(path, headers=browser.cookies)).status_code in (401, 404)
    for path in FILES:
        assert (await nobody.get(path, headers=browser.cookies)).status_code == 200
        assert (await nobody.post(path, headers=browser.cookies)).status_code == 405


async def test_neither_half_counts_without_the_other_nor_with_that_of_another_browser(desk: Served) -> None:
    one, two = await signed_in(desk), await signed_in(desk)
    nobody = await desk.client()
    for headers in (
        one.session,
        one.cookies | two.session,
        two.cookies | one.session,
        one.cookies | {"X-Handraise-Session": ""},
        one.cookies | {"X-Handraise-Session": one.cookie},
        one.cookies | {"X-Handraise-Session": one.secret + "x"},
        {"Cookie": f"{one.cookie_name}={one.secret}", "X-Handraise-Session": one.cookie},
        {"Cookie": f"{one.cookie_name}={one.secret}", "X-Handraise-Session": one.secret},
    ):
        await refused(nobody.get("/v1/asks", headers=headers), 401, "unauthorized")
    for browser in (one, two):
        await told(nobody.get("/v1/asks", headers=browser.cookies | browser.session), 200)


async def test_no_half_of_a_session_is_a_token_and_no_token_is_half_of_a_session(desk: Served) -> None:
    browser = await signed_in(desk)
    nobody = await desk.client()
    for value in (browser.cookie, browser.secret, f"hr_{browser.cookie}"):
        basic = base64.b64encode(f"any:{value}".encode()).decode()
        for headers in ({"Authorization": f"Bearer {value}"}, {"Authorization": f"Basic {basic}"}):
            for more in ({}, browser.cookies, browser.session):
                await refused(nobody.get("/v1/asks", headers=headers | more), 401, "unauthorized")
    as_cookie = {"Cookie": f"{browser.cookie_name}={desk.token}"}
    as_secret = {"X-Handraise-Session": desk.token}
    for headers in (
        as_cookie,
        as_secret,
        as_cookie | as_secret,
        browser.cookies | as_secret,
        as_cookie | browser.session,
    ):
        await refused(nobody.get("/v1/asks", headers=headers), 401, "unauthorized")
    await refused(nobody.get("/app/app.css", headers=as_cookie), 401, "unauthorized")


async def test_a_cookie_of_another_port_or_a_broken_one_opens_nothing(desk: Served) -> None:
    browser = await signed_in(desk)
    name, value = browser.cookie_name, browser.cookie
    nobody = await desk.client()
    for cookie in (
        *(f"{name}1={value}", f"handraise={value}", f"{name}=", "=;,é", ";", "", f"x{name}={value}", f"{name}"),
        *(f"{name.upper()}={value}", f"a={name}={value}", f"{name}={value}x", f"{name}={value} x", f"{name}={value},"),
    ):
        headers = [(b"cookie", cookie.encode()), (b"x-handraise-session", browser.secret.encode())]
        await refused(nobody.get("/v1/asks", headers=headers), 401, "unauthorized")


async def test_a_cookie_is_found_among_others_of_its_name_and_among_garbage(desk: Served) -> None:
    """Whoever serves a page on another port of this machine can set cookies for it, also of our name."""
    browser = await signed_in(desk)
    own = f"{browser.cookie_name}={browser.cookie}"
    tossed = f"{browser.cookie_name}={'x' * 43}"
    nobody = await desk.client()
    for cookie in (
        *(f"other=1; {own}", f"{own};", f"a; {own} ;a", f'a="b;{own}', f"=;;,{{}};{own}; é=1", f"{own};\tx=y"),
        *(f"{tossed}; {own}", f"{own}; {tossed}", "; ".join([*[tossed] * 500, own]), f"{'a=b; ' * 10_000}{own}"),
    ):
        headers = [(b"cookie", cookie.encode()), (b"x-handraise-session", browser.secret.encode())]
        await told(nobody.get("/v1/asks", headers=headers), 200)
    parted = [(b"cookie", tossed.encode()), (b"cookie", own.encode()), (b"cookie", b"a=b")]
    await told(nobody.get("/v1/asks", headers=[*parted, (b"x-handraise-session", browser.secret.encode())]), 200)


async def test_a_huge_cookie_is_refused_like_any_other(desk: Served) -> None:
    """The standard library takes half a minute to read some of these."""
    name = f"handraise-{urlsplit(desk.url).port}"
    nobody = await desk.client()
    pieces = ("a", "a=", ";", "; ", " ", "\t", '"', "\\", '\\"', "\\1", f"{name}=", f";{name}=", f"{name}=a;", "=", ",")
    for piece in pieces:
        for first, last in (("a", "a"), ('a="', '"')):
            cookie = f"{first}{(piece * 60_000)[:60_000]}{last}"
            headers = [(b"cookie", cookie.encode()), (b"x-handraise-session", b"x")]
            await refused(nobody.get("/v1/asks", headers=headers), 401, "unauthorized")


async def test_a_browser_of_an_older_desk_signs_in_again(tmp_path: Path) -> None:
    """Its cookie was a token, and every port of its machine was sent that."""
    file = tmp_path / "desk.db"
    with closing(sqlite3.connect(file)) as connection:
        for number, statements in migrations("sqlite", version=0):
            if number < 10:
                connection.executescript(f"{statements}; pragma user_version = {number}")
        for name in ("browser-0123abcd", "browser-mine", "browser-0123abcde", "admin"):
            row = (name, hashlib.sha256(name.encode()).hexdigest(), "admin", 1)
            connection.execute("insert into tokens (name, hash, scopes, created_at) values (?, ?, ?, ?)", row)
        connection.commit()
    async with serving(tmp_path, database=f"sqlite:///{file}") as desk:
        assert set(await tokens_of(desk)) == {"browser-mine", "browser-0123abcde"}
        stolen = {"Authorization": "Bearer browser-0123abcd"}
        await refused((await desk.client()).get("/v1/asks", headers=stolen), 401, "unauthorized")


# What browsers say about who caused a request -------------------------------------------------------------------

FOREIGN = ("cross-site", "same-site")  # another port is the same site, and another origin
LED = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


def caused_by(site: str, mode: str = "cors", dest: str = "empty") -> dict[str, str]:
    return {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}


@in_one_loop
@pytest.mark.parametrize("site", [*FOREIGN, "none", "", "Same-Origin", "something new"])
async def test_what_a_page_of_another_origin_causes_is_refused_on_every_route(shared: Served, site: str) -> None:
    browser = await signed_in(shared)
    nobody = await shared.client()
    ways = (caused_by(site), caused_by(site, "no-cors", "image"), caused_by(site, "navigate", "iframe"))
    for method, path in [*ROUTES, ("GET", "/healthz"), ("POST", "/webhooks/linear"), ("POST", "/signin/x")]:
        for way in ways:
            if site == "none" and path in (*FILES, "/healthz"):
                continue
            for headers in (browser.cookies | browser.session, {"Authorization": f"Bearer {shared.token}"}):
                await refused(nobody.request(method, path, headers=headers | way), 403, "forbidden")
    for path in ("/v1/asks", "/app/app.css", "/openapi.json"):  # a tab that is led there
        if (site, path) != ("none", "/app/app.css"):
            headers = browser.cookies | browser.session | caused_by(site, "navigate", "document")
            await refused(nobody.get(path, headers=headers), 403, "forbidden")


@in_one_loop
@pytest.mark.parametrize("site", [*FOREIGN, "none"])
async def test_a_tab_may_be_led_to_entry_pages_and_to_the_front_page(shared: Served, site: str) -> None:
    await told(shared.http.post("/v1/asks", json=a_body(id=f"led-{site}")), 201)
    link = (await told(shared.http.post(path_of(f"led-{site}", "link"), json={}), 201))["url"]
    sign_in = (await told(shared.http.post("/v1/signin"), 201))["url"]
    browser = await signed_in(shared)
    nobody = await shared.client()
    led = caused_by(site, "navigate", "document")
    for url in (link, sign_in):
        assert (await nobody.get(url, headers=led)).status_code == 200
        assert (await nobody.head(url, headers=led)).status_code == 200
        await refused(nobody.post(url, headers=led), 403, "forbidden")
        for dest in ("iframe", "frame", "object", "embed", "empty", "image"):
            if site != "none":  # by which a browser says that no page caused it
                await refused(nobody.get(url, headers=caused_by(site, "navigate", dest)), 403, "forbidden")
    assert (await nobody.get("/", headers=browser.cookies | led)).status_code == 200
    shell = await nobody.get("/", headers=led | {"Accept": "text/html"})
    assert (shell.status_code, "handraise open" in shell.text) == (401, True)
    await refused(nobody.post("/", headers=browser.cookies | led), 403, "forbidden")


@in_one_loop
async def test_a_browser_may_look_for_the_files_of_the_app_by_itself(shared: Served) -> None:
    """Such as icons, and what a typed address names."""
    browser = await signed_in(shared)
    nobody = await shared.client()
    for path in FILES:
        for way in (caused_by("none"), caused_by("none", "navigate", "document"), caused_by("same-origin")):
            assert (await nobody.get(path, headers=browser.cookies | way)).status_code == 200
    await told(nobody.get("/healthz", headers=caused_by("none", "navigate", "document")), 200)


@in_one_loop
async def test_a_page_of_the_desk_itself_may_do_everything(shared: Served) -> None:
    browser = await signed_in(shared)
    for mode in ("cors", "no-cors", "same-origin", "navigate"):
        await told(browser.http.get("/v1/asks", headers=caused_by("same-origin", mode)), 200)


@in_one_loop
@pytest.mark.parametrize(
    "origin",
    [
        *("null", "http://evil.example", "https://127.0.0.1", "http://localhost:1", "file://", "127.0.0.1", ""),
        *("http://127.0.0.1:{port}.evil.example", "http://evil.example/127.0.0.1:{port}", "chrome-extension://abc"),
        *("http://user@127.0.0.1:{port}", "http://127.0.0.1:{port}/", "ws://127.0.0.1:{port}"),
    ],
)
async def test_a_page_of_another_origin_is_refused_even_with_a_token(shared: Served, origin: str) -> None:
    headers = {"Origin": origin.replace("{port}", str(urlsplit(shared.url).port))}
    for path in ("/v1/asks", "/healthz", "/signin/x"):
        await refused(shared.http.get(path, headers=headers), 403, "forbidden")
    await refused(shared.http.post("/v1/asks", json=a_body(id="q1"), headers=headers), 403, "forbidden")
    await refused(shared.http.get(path_of("q1")), 404, "ask_not_found")


async def test_a_page_of_the_desk_itself_and_a_program_without_origin_come_in(desk: Served) -> None:
    await told(desk.http.get("/v1/asks"), 200)
    await told(desk.http.get("/v1/asks", headers={"Origin": desk.url}), 200)
    local = {"Host": "localhost:1", "Origin": "http://localhost:1"}  # a tunnel ends on another port
    await told(desk.http.get("/v1/asks", headers=local), 200)


@in_one_loop
@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0", ""),
        *("evil@127.0.0.1", "127.0.0.1/evil", "127.0.0.1#evil", "127.0.0.1?evil", "127.0.0.1:x", "[::1", "[::1]evil"),
        *("[::2]", "127.0.0.1@evil.example", "evil.example#127.0.0.1", "2130706433", "127.1", "[", "::1", "é"),
    ],
)
async def test_a_name_that_was_made_to_point_here_is_refused(shared: Served, host: str) -> None:
    name = host.replace("{port}", str(urlsplit(shared.url).port)).encode()
    headers = [(b"host", name)]
    for path in ("/v1/asks", "/healthz", "/signin/x"):
        await refused(shared.http.get(path, headers=headers), 403, "forbidden")
    rebound = [*headers, (b"origin", b"http://" + name)]
    await refused(shared.http.post("/v1/asks", json=a_body(), headers=rebound), 403, "forbidden")


@in_one_loop
@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("host", "evil.example", "127.0.0.1"),
        ("origin", "http://evil.example", "http://127.0.0.1"),
        ("sec-fetch-site", "cross-site", "same-origin"),
        ("authorization", "Bearer nobody", "Bearer {token}"),
        ("x-handraise-session", "x", "y"),
    ],
)
async def test_of_two_headers_that_say_who_calls_none_is_believed(
    shared: Served, name: str, first: str, last: str
) -> None:
    for values in ((first, last), (last, first)):
        sent = {"host": ["127.0.0.1"], "authorization": ["Bearer {token}"]} | {name: list(values)}
        lines = [f"{key}: {each.format(token=shared.token)}" for key in sent for each in sent[key]]
        # By hand, since a client of HTTP sends no second Host.
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(shared.url).port)
        with closing(writer):
            writer.write("\r\n".join(("GET /v1/asks HTTP/1.1", *lines, "", "")).encode())
            assert (await reader.readline()).split()[1] == b"400"


@in_one_loop
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:80", "[::1]", "[::1]:4263", "127.0.0.1:1"])
async def test_our_own_names_are_taken(shared: Served, host: str) -> None:
    await told(shared.http.get("/v1/asks", headers={"Host": host}), 200)


async def test_a_host_is_ours_when_the_settings_say_so(tmp_path: Path) -> None:
    async with serving(tmp_path, allowed_hosts=("Desk.example",)) as desk:
        await told(desk.http.get("/v1/asks", headers={"Host": "desk.example:4263"}), 200)
        await told(desk.http.get("/v1/asks", headers={"Host": "desk.example", "Origin": "https://desk.example"}), 200)
        await refused(desk.http.get("/v1/asks", headers={"Host": "other.example"}), 403, "forbidden")


# The client's side ------------------------------------------------------------------------------------------


@asynccontextmanager
async def eavesdropping() -> AsyncIterator[tuple[str, list[bytes]]]:
    """Somebody who listens on a port and writes down what is sent there."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


async def test_the_token_of_a_home_is_sent_only_to_the_desk_of_that_home(desk: Served) -> None:
    settings = Settings(home=desk.settings.home)
    async with Client(settings=settings) as client:
        assert await client.call("GET", "/v1/tokens")
    async with eavesdropping() as (url, heard):
        for where in ({"url": url}, {"settings": Settings(home=desk.settings.home, url=url)}):
            async with Client(**{"settings": settings, **where}) as client:  # type: ignore[arg-type]
                with pytest.raises(DeskBroke):
                    await client.call("GET", "/v1/asks")
                with pytest.raises(DeskBroke):
                    await anext(client.events())
    assert len(heard) >= 2
    assert all(b"GET /v1/" in request for request in heard)
    assert not any(b"authorization" in request.lower() for request in heard)


async def test_a_token_that_was_given_is_sent_where_it_was_told_to(desk: Served) -> None:
    elsewhere = Settings(home=desk.settings.home / "none")
    async with Client(desk.url, token=desk.token, settings=elsewhere) as client:
        assert await client.call("GET", "/v1/tokens")
    from_environment = Settings(home=elsewhere.home, url=desk.url, token=desk.token)
    async with Client(settings=from_environment) as client:
        assert await client.call("GET", "/v1/tokens")
    async with Client(desk.url, settings=elsewhere) as client:
        with pytest.raises(Unauthorized):
            await client.call("GET", "/v1/tokens")


# Logs -------------------------------------------------------------------------------------------------------


async def test_no_answer_ever_appears_in_a_log(tmp_path: Path, database: str) -> None:
    secret = "hunter2-correct-horse"
    async with DeskProcess(tmp_path, HANDRAISE_DATABASE=database) as desk, desk.client() as client:
        for id in ("q1", "q2", "q3", "q4"):
            await told(client.post("/v1/asks", json=a_body(id=id)), 201)
        note = {"answers": [[secret]], "notes": [secret]}
        strict = a_body(id="strict", questions=[{"question": "q", "options": [{"label": "a"}], "custom": False}])
        await told(client.post("/v1/asks", json=strict), 201)
        await told(client.post("/v1/asks", json=a_permission_body(id="p1")), 201)
        async with listening(client, after=0) as listener:
            await told(client.post(path_of("q1", "answer"), json=note), 200)
            await told(client.post(path_of("q1", "answer"), json={"answers": [[f"other {secret}"]]}), 409)
            await told(client.post(path_of("q2", "reject"), json={"reason": secret}), 200)
            await told(client.post(path_of("q3", "withdraw"), json={"reason": secret}), 200)
            await told(client.post(path_of("q3", "answer"), json=note), 410)
            await told(client.post(path_of("strict", "answer"), json=note), 422)
            await told(client.post(path_of("strict", "answer"), json={"answers": secret}), 422)
            await told(client.post(path_of("strict", "answer"), content=f'{{"answers":[["{secret}"'), 400)
            await told(client.post(path_of("nobody", "answer"), json=note), 404)
            await told(client.post(path_of("p1", "answer"), json={"reply": "once", "input": {"command": secret}}), 200)
            await told(client.get(f"/v1/asks?session={secret}&colour={secret}"), 400)
            await listener.until(b'"type":"withdrawn"')
        wait = asyncio.create_task(client.post("/v1/asks", params={"wait": 5}, json=a_body(id="q4")))
        await told(client.post(path_of("q4", "answer"), json=note), 200)
        await told(wait, 200)
        token = desk.token
        assert await desk.stop() == 0
    log = desk.log.read_text()
    assert "handraise has left" in log
    assert secret not in log
    assert token not in log
