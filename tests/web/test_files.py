"""The web app's files over HTTP: who gets them, in which form, and that nothing else can be had (U1, X1)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
import pytest_asyncio

from handraise.server.web import FOLDER, TYPES
from handraise.text import words
from tests.helpers.serving import PATIENCE, Served, refused, serving, told

in_one_loop = pytest.mark.asyncio(loop_scope="module")

SERVED = [
    path.relative_to(FOLDER).as_posix()
    for path in sorted(FOLDER.rglob("*"))
    if path.suffix in TYPES and not path.name.startswith("tsconfig")
]
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("web"), database="sqlite:///:memory:") as desk:
        yield desk


def address_of(name: str) -> str:
    return {"index.html": "/", "sw.js": "/sw.js", "manifest.webmanifest": "/manifest.webmanifest"}.get(
        name, f"/app/{name}"
    )


async def plain(client: httpx2.AsyncClient, path: str, **headers: str) -> httpx2.Response:
    """Without the encodings that the client would name by itself."""
    return await client.get(path, headers={"Accept-Encoding": "identity", **headers})


@in_one_loop
@pytest.mark.parametrize("name", SERVED)
async def test_a_file_is_served_as_it_lies_in_the_package(desk: Served, name: str) -> None:
    answered = await plain(desk.http, address_of(name))
    assert answered.status_code == 200
    assert answered.content == (FOLDER / name).read_bytes()
    assert answered.headers["content-type"] == TYPES[Path(name).suffix]
    assert answered.headers["cache-control"] == "no-cache"
    assert answered.headers["x-content-type-options"] == "nosniff"
    if name not in ("index.html", "sw.js"):  # nothing of its own to allow; said with each it would be most of the bytes
        assert "content-security-policy" not in answered.headers
        return
    assert answered.headers["referrer-policy"] == "same-origin"
    assert answered.headers["cross-origin-opener-policy"] == "same-origin"
    policy = answered.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy


@in_one_loop
@pytest.mark.parametrize("language", words.LANGUAGES)
async def test_the_words_are_those_that_python_speaks(desk: Served, language: str) -> None:
    spoken = json.loads((words.FOLDER / f"{language}.json").read_bytes())
    answered = await desk.http.get(f"/app/words/{language}.json")
    assert answered.status_code == 200
    assert answered.json() == {key: text for key, text in spoken.items() if not key.startswith("terminal.")}
    assert answered.headers["content-type"] == "application/json"


@in_one_loop
async def test_a_script_is_javascript_and_a_style_is_css(desk: Served) -> None:
    assert (await desk.http.get("/app/vendor/preact.js")).headers["content-type"] == "text/javascript; charset=utf-8"
    assert (await desk.http.get("/app/app.css")).headers["content-type"] == "text/css; charset=utf-8"
    assert (await desk.http.get("/")).headers["content-type"] == "text/html; charset=utf-8"


@in_one_loop
async def test_what_is_text_comes_packed_to_whoever_takes_that(desk: Served) -> None:
    whole = (FOLDER / "app.css").read_bytes()
    packed = await desk.http.get("/app/app.css", headers={"Accept-Encoding": "br;q=1, gzip;q=0.5"})
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "accept-encoding")
    assert int(packed.headers["content-length"]) < len(whole) / 2
    assert packed.content == whole
    for refusing in ("identity", "br", "gzip;q=0", "gzip; q=0.0, identity"):
        assert (
            "content-encoding" not in (await plain(desk.http, "/app/app.css", **{"Accept-Encoding": refusing})).headers
        )
    picture = next(name for name in SERVED if name.endswith(".png"))
    assert "content-encoding" not in (await desk.http.get(f"/app/{picture}")).headers


@in_one_loop
async def test_the_same_file_is_not_sent_twice(desk: Served) -> None:
    whole = await plain(desk.http, "/app/app.css")
    packed = await desk.http.get("/app/app.css", headers={"Accept-Encoding": "gzip"})
    assert whole.headers["etag"] != packed.headers["etag"], "a tag stands for bytes"
    for tag in (whole.headers["etag"], f"W/{packed.headers['etag']}", f'"other", {packed.headers["etag"]}', "*"):
        again = await desk.http.get("/app/app.css", headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] in (whole.headers["etag"], packed.headers["etag"])
        assert again.headers["cache-control"] == "no-cache"
    for tag in ('"other"', whole.headers["etag"].strip('"'), ""):
        assert (await desk.http.get("/app/app.css", headers={"If-None-Match": tag})).status_code == 200


@in_one_loop
async def test_the_head_of_a_file_is_that_of_the_file(desk: Served) -> None:
    for path in ("/", "/app/app.css", "/sw.js"):
        whole, head = await plain(desk.http, path), await desk.http.head(path, headers={"Accept-Encoding": "identity"})
        assert (head.status_code, head.content) == (200, b"")
        assert {**head.headers} == {**whole.headers}


@in_one_loop
@pytest.mark.parametrize(
    "path",
    [
        *("/app/", "/app", "/app/nothing.js", "/app/core", "/app/core/", "/app//app.css", "/app/./app.css"),
        *("/app/../app.css", "/app/%2e%2e/app.py", "/app/..%2fapp.py", "/app/%2e%2e%2f%2e%2e%2fapp.py"),
        *("/app/..\\app.py", "/app/%5c..%5capp.py", "/app/%00app.css", "/app/app.css%00", "/app/etc/passwd"),
        *("/app//etc/passwd", "/app/file:///etc/passwd", "/app/APP.CSS", "/app/app.css/"),
        *("/app/index.html", "/app/sw.js", "/app/manifest.webmanifest", "/index.html", "/app.css"),
        *("/app/words/__init__.py", "/app/words/../wire.py", "/app/vendor/README.md", "/app/tsconfig.json"),
        *("/app/types/api.d.ts", "/app/vendor/preact.d.ts"),
    ],
)
async def test_nothing_but_the_files_of_the_app_can_be_had(desk: Served, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(desk.url).port)
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {desk.token}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())  # as it stands: a client would tidy the path up
    async with asyncio.timeout(PATIENCE):
        answered = await reader.read()
    writer.close()
    assert answered.startswith(b"HTTP/1.1 404 "), answered
    assert b'"error":"not_found"' in answered


@in_one_loop
@pytest.mark.parametrize("path", ["/", "/app/app.css", "/app/words/en.json", "/sw.js", "/manifest.webmanifest"])
async def test_files_want_a_token_that_may_answer(desk: Served, path: str) -> None:
    await refused((await desk.client()).get(path), 401, "unauthorized")
    added = await told(desk.http.post("/v1/tokens", json={"name": f"ci{hash(path)}", "scopes": ["ask"]}), 201)
    await refused((await desk.client(added["token"])).get(path), 403, "forbidden")


@in_one_loop
async def test_a_browser_that_brings_no_cookie_gets_the_shell_which_says_how_to_sign_in(desk: Served) -> None:
    nobody = await desk.client()
    shell = await nobody.get("/", headers=BROWSER)
    assert shell.status_code == 401
    assert shell.headers["content-type"] == "text/html; charset=utf-8"
    assert shell.headers["www-authenticate"] == 'Bearer realm="handraise"'
    assert shell.headers["cache-control"] == "no-store"
    assert "script-src 'self'" in shell.headers["content-security-policy"]
    assert "handraise open" in shell.text
    assert shell.content == (FOLDER / "index.html").read_bytes()
    wrong = await nobody.get("/", headers={**BROWSER, "Cookie": "handraise-1=x", "If-None-Match": "*"})
    assert wrong.status_code == 401
    assert (await nobody.head("/", headers=BROWSER)).status_code == 401
    for path in ("/app/app.css", "/v1/asks", "/sw.js", "/no/such/page"):
        await refused(nobody.get(path, headers=BROWSER), 401, "unauthorized")
    await refused(nobody.post("/", headers=BROWSER), 401, "unauthorized")


@in_one_loop
async def test_the_shell_is_not_shown_under_a_foreign_name_or_to_a_foreign_page(desk: Served) -> None:
    nobody = await desk.client()
    await refused(nobody.get("/", headers={**BROWSER, "Host": "evil.example"}), 403, "forbidden")
    await refused(nobody.get("/", headers={**BROWSER, "Origin": "https://evil.example"}), 403, "forbidden")


def test_no_page_has_a_script_or_a_style_of_its_own_or_loads_from_elsewhere() -> None:
    for name in SERVED:
        if not name.endswith((".html", ".css")):
            continue
        text = (FOLDER / name).read_text()
        assert "http://" not in text and "https://" not in text and "//cdn" not in text, name
        assert "<style" not in text and " style=" not in text and " onclick=" not in text, name
        assert text.count("<script") == text.count('<script type="module" src="/app/'), name
