"""A page on another port of the same machine: it gets the browser's cookie, and nothing else (X1)."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from handraise.server.gate import cookie_name
from tests.browser.hostile import Elsewhere, Wiretap, listening_elsewhere
from tests.browser.people import PATIENCE, Desk, People, Tab
from tests.helpers.serving import path_of, told

REFUSED = (401, 403)
NOISE = "ERR_|Failed to load|Refused to|frame|40[13]|CORS|MIME|blocked|Content Security Policy"

# Everything that makes a browser send a request by itself, each for a path that the script is given.
LOADS = {
    "fetch": "(url) => fetch(url, { mode: 'no-cors', credentials: 'include' }).catch(() => 0)",
    "fetch that may read": "(url) => fetch(url, { credentials: 'include' }).catch(() => 0)",
    "image": "(url) => void document.body.append(Object.assign(new Image(), { src: url }))",
    "script": "(url) => void document.body.append(Object.assign(document.createElement('script'), { src: url }))",
    "style": """(url) => void document.head.append(
        Object.assign(document.createElement('link'), { rel: 'stylesheet', href: url }))""",
    "frame": "(url) => void document.body.append(Object.assign(document.createElement('iframe'), { src: url }))",
    "object": "(url) => void document.body.append(Object.assign(document.createElement('object'), { data: url }))",
    "sound": "(url) => void new Audio(url).play().catch(() => 0)",
    "event source": "(url) => void new EventSource(url, { withCredentials: true })",
}
POSTS = {
    "form": """(url) => {
        const frame = Object.assign(document.createElement('iframe'), { name: 'here' });
        const form = Object.assign(document.createElement('form'),
            { action: url, method: 'post', target: 'here', enctype: 'text/plain' });
        document.body.append(frame, form);
        form.submit();
    }""",
    "fetch": "(url) => fetch(url, { method: 'POST', mode: 'no-cors', credentials: 'include' }).catch(() => 0)",
    "beacon": "(url) => void navigator.sendBeacon(url, '{}')",
}
PATHS = ("/v1/asks?limit=1", "/v1/agents", "/metrics", "/openapi.json", "/question", "/app/main.js", "/sw.js")
ASK_WORKER = """async ([url, options]) => {
  const { active } = await navigator.serviceWorker.ready;
  const { port1, port2 } = new MessageChannel();
  const told = new Promise((done) => (port1.onmessage = ({ data }) => done(data)));
  active.postMessage({ url, options }, [port2]);
  return told;
}"""
START_WORKER = """async () => {
  await navigator.serviceWorker.register('/worker.js');
  await navigator.serviceWorker.ready;
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def elsewhere() -> AsyncIterator[Elsewhere]:
    async with listening_elsewhere() as listening:
        yield listening


@pytest_asyncio.fixture(loop_scope="session")
async def hostile(inbox: Tab, elsewhere: Elsewhere) -> Tab:
    """A tab with its page, in the browser of somebody who is signed in."""
    inbox.complaints.allow(NOISE)
    page = await inbox.person.context.new_page()
    await page.goto(f"{elsewhere.url()}/")
    return Tab(page, inbox.person)


def name_of(desk: Desk) -> str:
    return cookie_name(urlsplit(desk.url).port or 0)


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


async def test_the_cookie_that_another_port_receives_opens_no_call(
    desk: Desk, hostile: Tab, elsewhere: Elsewhere
) -> None:
    """Cookies know no ports, so it does arrive there. A program can send any header that it likes."""
    await desk.ask(id="q1")
    name, value = name_of(desk), elsewhere.stolen(name_of(desk))
    cookie = {"Cookie": f"{name}={value}"}
    attempts: list[dict[str, str]] = [
        {"Authorization": f"Bearer {value}"},
        {"Authorization": basic(f"any:{value}")},
        cookie,
        {**cookie, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"},
        *({**cookie, "X-Handraise-Session": guess} for guess in ("", value, "x" * 43, "undefined", "null")),
        {**cookie, "Authorization": f"Bearer {value}", "X-Handraise-Session": value},
    ]
    nobody = await desk.served.client()
    for headers in attempts:
        for method, path, body in (
            ("GET", "/v1/asks", None),
            ("GET", "/v1/tokens", None),
            ("GET", "/v1/events", None),
            ("POST", "/v1/signin", {}),
            ("POST", path_of("q1", "reject"), {}),
        ):
            response = await nobody.request(method, path, headers=headers, json=body)
            assert response.status_code == 401, (method, path, headers)
    assert (await desk.get("q1"))["state"] == "asked"


async def test_the_other_half_is_out_of_reach_of_another_port(desk: Desk, hostile: Tab, elsewhere: Elsewhere) -> None:
    stored = await hostile.page.evaluate(
        """async () => [document.cookie, { ...localStorage }, { ...sessionStorage }, await caches.keys(),
            await indexedDB.databases()]"""
    )
    assert stored == ["", {}, {}, [], []]
    opened = await hostile.page.evaluate(
        """async (url) => {
          const opened = window.open(url);
          await new Promise((done) => setTimeout(done, 500));
          try { return opened?.localStorage ? 'read' : 'gone'; } catch (error) { return error.name; }
        }""",
        f"{desk.url}/",
    )
    assert opened in ("gone", "SecurityError")
    held = await hostile.person.context.cookies()
    secret = await desk_secret(desk, hostile)
    assert secret and all(secret not in json.dumps(cookie) for cookie in held)
    assert not any(secret.encode() in head for head in elsewhere.heard)


async def desk_secret(desk: Desk, tab: Tab) -> str:
    """The half that the app keeps, as its own page reads it."""
    own = await tab.person.tab()
    secret = await own.page.evaluate("JSON.parse(localStorage['handraise.session'])")
    await own.page.close()
    return str(secret)


@pytest.mark.parametrize("way", LOADS)
async def test_nothing_that_a_page_of_another_port_loads_is_answered(desk: Desk, hostile: Tab, way: str) -> None:
    tap = Wiretap()
    await tap.listen(hostile.page, desk.url)
    for path in PATHS:
        await hostile.page.evaluate(LOADS[way], desk.url + path)
        assert await tap.status(path) in REFUSED, path


@pytest.mark.parametrize("way", POSTS)
async def test_nothing_that_a_page_of_another_port_sends_is_done(desk: Desk, hostile: Tab, way: str) -> None:
    await desk.ask(id="q1")
    tap = Wiretap()
    await tap.listen(hostile.page, desk.url)
    for path in (path_of("q1", "reject"), "/v1/signin"):
        await hostile.page.evaluate(POSTS[way], desk.url + path)
        assert await tap.status(path) in REFUSED, path
    assert (await desk.get("q1"))["state"] == "asked"


async def test_no_page_of_the_desk_is_shown_in_a_frame_of_another_port(desk: Desk, hostile: Tab) -> None:
    await desk.ask(id="q1")
    link = urlsplit((await told(desk.http.post(path_of("q1", "link"), json={}), 201))["url"]).path
    sign_in = urlsplit((await told(desk.http.post("/v1/signin", json={}), 201))["url"]).path
    tap = Wiretap()
    await tap.listen(hostile.page, desk.url)
    for path in ("/", link, sign_in):
        await hostile.page.evaluate(LOADS["frame"], desk.url + path)
        assert await tap.status(path) == 403, path


async def led(page: Page, url: str) -> int:
    """The status of what a page leads its own tab to."""
    async with page.expect_response(url) as reply, page.expect_event("domcontentloaded"):
        await page.evaluate("(url) => void (location = url)", url)
    return (await reply.value).status


async def test_a_page_of_another_port_leads_a_browser_to_entry_pages_alone(
    desk: Desk, hostile: Tab, elsewhere: Elsewhere
) -> None:
    await desk.ask(id="q1")
    link = (await told(desk.http.post(path_of("q1", "link"), json={}), 201))["url"]
    sign_in = (await told(desk.http.post("/v1/signin", json={}), 201))["url"]
    for path in ("/v1/asks?state=asked", "/openapi.json", "/metrics"):
        assert await led(hostile.page, desk.url + path) in REFUSED, path
        await hostile.page.goto(f"{elsewhere.url()}/")
    for url in (link, sign_in):
        assert await led(hostile.page, url) == 200
        await hostile.page.goto(f"{elsewhere.url()}/")
    await led(hostile.page, f"{desk.url}/")
    await expect(hostile.card("q1").element).to_be_visible()


async def test_a_service_worker_of_another_port_hears_nothing(desk: Desk, hostile: Tab) -> None:
    """A call that is let in waits, and is counted, also where its caller may not look into the reply."""
    await desk.ask(id="q1")
    await hostile.page.evaluate(START_WORKER)
    ways: tuple[dict[str, Any], ...] = (
        {"mode": "no-cors", "credentials": "include"},
        {"credentials": "include"},
        {"credentials": "include", "headers": {"x-handraise-session": "x" * 43}},
    )
    for options in ways:
        call = hostile.page.evaluate(ASK_WORKER, [f"{desk.url}{path_of('q1')}?wait=5", options])
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
            told_worker = tasks.create_task(call)
            while not told_worker.done():
                assert desk.served.broker.waits == 0, options
                await asyncio.sleep(0.01)  # nobody tells when a call is parked
        heard = told_worker.result()
        assert heard.get("type") == "opaque" or "failed" in heard


async def test_what_a_page_does_under_one_name_of_the_machine_does_not_count_under_another(
    desk: Desk, inbox: Tab, elsewhere: Elsewhere
) -> None:
    """`localhost` and `127.0.0.1` are one desk and two sites."""
    await desk.ask(id="q1")
    local = desk.url.replace("127.0.0.1", "localhost")
    inbox.complaints.allow(NOISE)
    page = await inbox.person.context.new_page()
    await page.goto(f"{local}/")
    await expect(page.get_by_text("handraise open")).to_be_visible()
    assert await led(page, f"{desk.url}/v1/asks") in REFUSED
    await page.goto(f"{elsewhere.url('localhost')}/")
    tap = Wiretap()
    await tap.listen(page, desk.url)
    for path in PATHS:
        await page.evaluate(LOADS["image"], desk.url + path)
        assert await tap.status(path) in REFUSED, path
    await page.goto(f"{local}/")
    await led(page, f"{desk.url}/")
    await expect(page.locator('article[data-ask="q1"]')).to_be_visible()


async def test_cookies_that_another_port_sets_lock_nobody_out(desk: Desk, hostile: Tab, elsewhere: Elsewhere) -> None:
    name = name_of(desk)
    folders = ("/v1", "/v1/asks", "/v1/events", "/app", "/app/core")
    elsewhere.cookies = [f"{name}={'x' * 43}; Path={folder}" for folder in folders]
    await hostile.page.goto(f"{elsewhere.url()}/toss")
    await desk.ask(id="q1")
    await hostile.page.goto(f"{desk.url}/")
    await hostile.card("q1").choice("SQLite").click()
    assert (await desk.settled("q1"))["state"] == "answered"


async def test_a_cookie_of_somebody_else_that_another_port_sets_speaks_for_nobody(
    desk: Desk, people: People, hostile: Tab, elsewhere: Elsewhere
) -> None:
    """The half that the app holds belongs to another session, so the two together are none."""
    name = name_of(desk)
    other = await people.inbox()
    [cookie] = [each for each in await other.person.context.cookies() if each["name"] == name]
    elsewhere.cookies = [f"{name}={cookie['value']}; Path=/"]
    await desk.ask(id="q1")
    await hostile.page.goto(f"{elsewhere.url()}/toss")
    nobody = await desk.served.client()
    mixed = {"Cookie": f"{name}={cookie['value']}", "X-Handraise-Session": await desk_secret(desk, hostile)}
    assert (await nobody.get("/v1/asks", headers=mixed)).status_code == 401
    await hostile.page.goto(f"{desk.url}/")
    await expect(hostile.page.get_by_text("handraise open")).to_be_visible()
    assert (await desk.get("q1"))["state"] == "asked"
