"""Notifications by Apprise: a message with a link arrives, its page answers, and no address is told (L3, X1, X2)."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from handraise.asks import Answer, Ask, Handling, Option, Origin, Permission, Question
from handraise.broker import Broker
from handraise.channels import ChannelSettings
from handraise.channels.notify import LONGEST, Notify, plugin
from handraise.clock import SystemClock
from handraise.config import ChannelTable
from handraise.errors import SettingsError
from handraise.people import USUALLY, May, People, Person
from handraise.server.pages import Pages
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.tables.tokens import Tokens
from handraise.testing import ChannelDriver, an_ask, check_channel
from tests.helpers.serving import (
    BASH,
    PATIENCE,
    DeskProcess,
    Served,
    a_permission_body,
    eventually,
    path_of,
    serving,
    told,
)

SECRET = "tK9-very-secret-topic"
NUMBERS = count()
HARMLESS = {**BASH, "command": "git status", "summary": "Look", "input": {"command": "git status"}}


@dataclass
class Receiver:
    """A service that takes notifications at loopback, as JSON."""

    port: int = 0
    status: int = 200
    hangs: bool = False
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # the path and what was said there
    calls: int = 0
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    def url(self, path: str = SECRET) -> str:
        return f"json://127.0.0.1:{self.port}/{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(re.findall(r"(?i)content-length: (\d+)", head)[0])
            body = await reader.readexactly(length)
            said = json.loads(body) if body.startswith(b"{") else {}
            self.calls += 1
            if self.hangs:
                await reader.read()  # until the caller gives up
                return
            writer.write(f"HTTP/1.1 {self.status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            if self.status < 300:
                async with self._arrived:
                    self.heard.append((head.split()[1], said))
                    self._arrived.notify_all()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def message(self, fits: Callable[[str, dict[str, Any]], bool] = lambda path, said: True) -> dict[str, Any]:
        """The first one that fits; waits for it."""

        def found() -> list[dict[str, Any]]:
            return [said for path, said in self.heard if fits(path, said)]

        async with asyncio.timeout(PATIENCE), self._arrived:
            await self._arrived.wait_for(found)
        return found()[0]

    async def at(self, path: str) -> dict[str, Any]:
        return await self.message(lambda heard, _: heard == f"/{path}")


@asynccontextmanager
async def receiving(**how: Any) -> AsyncIterator[Receiver]:
    receiver = Receiver(**how)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(receiver.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def phone() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


def a_person(*urls: str, name: str = "ana", may: Sequence[May] = USUALLY) -> Person:
    return Person(name=name, notify=urls, may=tuple(may))


def a_desk(home: Path, *people: Person, urls: Sequence[str] = (), **changes: Any) -> Any:
    """A desk that notifies these."""
    table = ChannelTable(kind="notify", table={"urls": list(urls)} if urls else {})
    people_ = {person.name: person for person in people}
    return serving(
        home, **{"channels": {"notify": table}, "people": people_, "database": "sqlite:///:memory:", **changes}
    )


def settings(*people: Person, environ: Mapping[str, str] | None = None, **table: Any) -> ChannelSettings:
    return ChannelSettings(
        name="notify",
        table=table,
        environ=environ or {},
        people=People({person.name: person for person in people}),
        address="https://desk.example.com",
        home=Path("/nowhere"),
        database=None,  # type: ignore[arg-type] - it keeps nothing of its own
        clock=SystemClock(),
    )


@asynccontextmanager
async def a_broker() -> AsyncIterator[Broker]:
    store = await SqliteStore.open_file(MEMORY)
    try:
        async with Broker(store) as broker:
            broker.address = "https://desk.example.com"
            yield broker
    finally:
        await store.close()


@asynccontextmanager
async def running(channel: Notify, broker: Broker) -> AsyncIterator[None]:
    task = asyncio.create_task(channel.run(broker))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def showing(desk: Served, id: str, state: str) -> dict[str, Any]:
    """What became of telling about it, once it is this."""
    async with asyncio.timeout(PATIENCE):
        while True:
            records = (await told(desk.http.get(path_of(id, "showings")), 200))["showings"]
            if records and records[0]["state"] == state:
                return dict(records[0])
            await asyncio.sleep(0.01)


def link_in(said: Mapping[str, Any]) -> str:
    return str(said["message"]).rpartition(" ")[2]


async def fill(client: httpx2.AsyncClient, url: str, **fields: str) -> httpx2.Response:
    return await client.post(url, data=fields, headers={"Origin": "/".join(url.split("/")[:3])})


# Being told and answering -----------------------------------------------------------------------------------


async def test_a_person_is_told_and_answers_by_the_link(tmp_path: Path, phone: Receiver) -> None:
    async with a_desk(tmp_path, a_person(phone.url())) as desk:
        await desk.ask(id="q1", question_timeout=3600)
        said = await phone.message()
        assert said["title"] == "scripted asks: Database"
        assert "> Which database should I use?\n1. SQLite – one file\n2. Postgres\n" in said["message"]
        assert re.search(r"If nobody answers by \d{4}-\d\d-\d\d \d\d:\d\d UTC, “SQLite” is picked\.\n", said["message"])
        url = link_in(said)
        assert url.startswith(f"{desk.url}/a/")
        assert (await showing(desk, "q1", "sent"))["channel"] == "notify"
        nobody = await desk.client()
        assert "Which database" in (await nobody.get(url)).text
        assert (await fill(nobody, url, do="send", q0="1")).status_code == 200
        answer = (await desk.get("q1"))["answer"]
        assert (answer["answers"], answer["by"], answer["via"]) == ([["Postgres"]], "ana", "notify")
        [line] = (await told(desk.http.get("/v1/audit"), 200))["lines"]
        assert (line["decided_by"], line["by"], line["via"], line["identity"]) == ("person", "ana", "notify", "shared")
        assert "This link was used" in (await nobody.get(url)).text


async def test_the_link_to_what_was_answered_elsewhere_says_so(tmp_path: Path, phone: Receiver) -> None:
    async with a_desk(tmp_path, a_person(phone.url())) as desk:
        await desk.ask(id="q1")
        url = link_in(await phone.message())
        await desk.answer("q1", "SQLite")
        page = await (await desk.client()).get(url)
        assert page.status_code == 410 and "Already decided" in page.text and "SQLite" in page.text
        await desk.ask(id="q2")
        await phone.message(lambda _, said: link_in(said) != url)
        assert len(phone.heard) == 2, "how it ended is on the page, not in another message"


async def test_a_place_that_others_read_gets_the_address_of_the_card(tmp_path: Path, phone: Receiver) -> None:
    async with a_desk(tmp_path, urls=[phone.url()], address="https://desk.example.com") as desk:
        await desk.ask(id="a/q 1")
        said = await phone.message()
        assert said["message"].endswith("Open it at the desk: https://desk.example.com/#/ask/a%2Fq%201")
        assert "/a/" not in said["message"].replace("/ask/", "")


async def test_a_harmless_permission_is_allowed_by_the_link(tmp_path: Path, phone: Receiver) -> None:
    async with a_desk(tmp_path, a_person(phone.url())) as desk:
        body = a_permission_body(permission={**HARMLESS, "cwd": "/srv/shop"}, id="p1")
        await told(desk.http.post("/v1/asks", json=body), 201)
        said = await phone.message()
        assert said["title"] == "scripted wants to run a command"
        assert said["message"].startswith("> git status\n> scripted says: Look\n(/srv/shop)\nAnswer: ")
        assert (await fill(await desk.client(), link_in(said), do="allow", reply="0")).status_code == 200
        assert (await desk.get("p1"))["answer"]["by"] == "ana"


async def test_a_risky_permission_is_told_but_answered_at_the_desk(tmp_path: Path, phone: Receiver) -> None:
    async with a_desk(tmp_path, a_person(phone.url(), may=(*USUALLY, "risky"))) as desk:
        await told(desk.http.post("/v1/asks", json=a_permission_body(id="p1")), 201)
        said = await phone.message()
        assert "> rm -rf build\n" in said["message"] and "⚠ This can delete files." in said["message"]
        assert said["message"].endswith(f"This one is answered at the desk, signed in: {desk.url}/#/ask/p1")


async def test_who_may_not_decide_it_is_not_told(tmp_path: Path, phone: Receiver) -> None:
    asker = a_person(phone.url("ana"), may=("questions",))
    guard = a_person(phone.url("ben"), name="ben", may=("permissions",))
    async with a_desk(tmp_path, asker, guard) as desk:
        await desk.ask(id="q1")
        await told(desk.http.post("/v1/asks", json=a_permission_body(id="p1")), 201)
        assert "asks" in (await phone.at("ana"))["title"]
        assert "command" in (await phone.at("ben"))["title"]
        assert len(phone.heard) == 2


async def test_what_nobody_there_may_decide_is_neither_told_nor_failed(tmp_path: Path, phone: Receiver) -> None:
    async with a_desk(tmp_path, a_person(phone.url(), may=("permissions",))) as desk:
        await desk.ask(id="q1")
        await told(desk.http.post("/v1/asks", json=a_permission_body(id="p1")), 201)
        await showing(desk, "p1", "sent")
        assert (await told(desk.http.get(path_of("q1", "showings")), 200))["showings"] == []
        assert len(phone.heard) == 1


@pytest.mark.parametrize("later", [None, a_person(may=("permissions",))], ids=["gone", "may not"])
async def test_a_link_is_as_good_as_the_person_it_was_made_for(
    later: Person | None, tmp_path: Path, phone: Receiver
) -> None:
    file = f"sqlite:///{tmp_path / 'desk.db'}"
    async with a_desk(tmp_path, a_person(phone.url()), database=file) as desk:
        await desk.ask(id="q1")
        secret = link_in(await phone.message()).rpartition("/")[2]
    async with serving(tmp_path, database=file, people={} if later is None else {"ana": later}) as desk:
        nobody, url = await desk.client(), f"{desk.url}/a/{secret}"
        for tried in (await nobody.get(url), await fill(nobody, url, do="send", q0="0")):
            assert tried.status_code == 410 and "no longer works" in tried.text and "database" not in tried.text
        assert (await desk.get("q1"))["state"] == "asked"


async def test_what_was_told_before_a_restart_is_not_told_again(tmp_path: Path, phone: Receiver) -> None:
    file = f"sqlite:///{tmp_path / 'desk.db'}"
    async with a_desk(tmp_path, a_person(phone.url()), database=file) as desk:
        await desk.ask(id="q1")
        await showing(desk, "q1", "sent")
    async with a_desk(tmp_path, a_person(phone.url()), database=file) as desk:
        await desk.ask(id="q2")
        await showing(desk, "q2", "sent")
    assert len(phone.heard) == 2


# Trouble ----------------------------------------------------------------------------------------------------


class Log(logging.Handler):
    """All that reaches the log of a desk."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += f"{self.format(record)}\n"


@pytest.fixture
def everything(caplog: pytest.LogCaptureFixture) -> Iterator[Log]:
    """A log that leaves out nothing. Not pytest's own, which also hears what would be silent."""
    caplog.set_level(logging.DEBUG)
    log = Log()
    logging.getLogger().addHandler(log)
    yield log
    logging.getLogger().removeHandler(log)


async def test_a_service_that_refuses_is_told_by_its_kind_alone(
    tmp_path: Path, everything: Log, capfd: pytest.CaptureFixture[str]
) -> None:
    async with receiving(status=500) as broken:
        url = f"json://user:pass-{SECRET}@127.0.0.1:{broken.port}/{SECRET}?+X-Key={SECRET}"
        async with a_desk(tmp_path, a_person(url)) as desk:
            await desk.ask(id="q1")
            failed = await showing(desk, "q1", "failed")
            states = (await told(desk.http.get("/v1/channels"), 200))["channels"]
    assert failed["error"].startswith("json: ") and "error=500" in failed["error"]
    assert "could not tell of ask q1 by json: " in everything.text
    for place in (json.dumps([failed, states]), everything.text, *capfd.readouterr()):
        assert SECRET not in place and f":{broken.port}" not in place
        assert "/a/" not in place, "a link that answers is a secret too"


async def test_one_that_is_not_there_says_so_without_its_address(tmp_path: Path) -> None:
    async with receiving() as gone:
        pass
    async with a_desk(tmp_path, urls=[gone.url()]) as desk:
        await desk.ask(id="q1")
        failed = await showing(desk, "q1", "failed")
    assert "onnection error" in failed["error"]
    assert SECRET not in failed["error"] and "127.0.0.1" not in failed["error"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ntfy://127.0.0.1:{port}/secret-topic", "secret-topic"),
        ("ntfy://u:hunter2@127.0.0.1:{port}/%73ecret-topic/other-topic", "-topic"),
        ("gotify://127.0.0.1:{port}/Adeqw13fcsdwe", "Adeqw13fcsdwe"),
        ("form://127.0.0.1:{port}/secret-topic", "secret-topic"),
    ],
)
async def test_no_part_of_an_address_is_in_the_reason(url: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apprise.NotifyBase.request_rate_per_sec", 0)  # it would wait for seconds before it tries again
    async with receiving(status=403) as broken, a_broker() as broker:
        channel = Notify(settings(urls=[url.format(port=broken.port)]), patience=2.0)
        async with running(channel, broker):
            await broker.open(an_ask(id="q1"))
            record = await failure_of(broker, "q1")
    assert record.startswith(f"{url.partition('://')[0]}: ") and "403" in record
    assert said not in record and "127.0.0.1" not in record and "hunter2" not in record


async def test_where_one_address_takes_it_somebody_was_told(tmp_path: Path, phone: Receiver) -> None:
    async with receiving(status=500) as broken:
        people = a_person(broken.url(), name="ben"), a_person(phone.url())
        async with a_desk(tmp_path, *people, urls=[broken.url()]) as desk:
            await desk.ask(id="q1")
            await showing(desk, "q1", "sent")
            await eventually(lambda: broken.calls >= 4)  # both are tried on, after somebody was told
    assert len(phone.heard) == 1, "who was told is not told twice"


async def test_one_that_hangs_holds_up_neither_the_others_nor_the_end(phone: Receiver) -> None:
    async with receiving(hangs=True) as stuck, a_broker() as broker:
        channel = Notify(settings(urls=[f"{stuck.url()}?rto=60", phone.url()]), patience=60.0)
        async with running(channel, broker):
            for place in range(20):
                await broker.open(an_ask(id=f"q{place}"))
            await eventually(lambda: len(phone.heard) == 20)
        assert stuck.calls <= 4, "so many threads and no more"


async def test_one_that_hangs_has_failed_when_its_time_is_up() -> None:
    async with receiving(hangs=True) as stuck, a_broker() as broker:
        channel = Notify(settings(urls=[f"{stuck.url()}?rto=60"]), patience=0.1)
        async with running(channel, broker):
            await broker.open(an_ask(id="q1"))
            record = await failure_of(broker, "q1")
    assert record == "json: it did not answer within 0.1 s"


async def test_a_desk_ends_while_a_service_hangs(tmp_path: Path) -> None:
    config = tmp_path / "config" / "handraise" / "config.toml"
    config.parent.mkdir(parents=True)
    async with receiving(hangs=True) as stuck:
        config.write_text(f'[channels.notify]\nurls = ["{stuck.url()}?rto=600"]\n')
        async with DeskProcess(tmp_path / "home", XDG_CONFIG_HOME=str(config.parents[1])) as desk:
            async with desk.client() as client:
                await told(client.post("/v1/asks", json=a_permission_body(id="p1")), 201)
            await eventually(lambda: stuck.calls > 0)
            assert await desk.stop() == 0
            assert SECRET not in desk.log.read_text()


async def failure_of(broker: Broker, id: str) -> str:
    async with asyncio.timeout(PATIENCE):
        while True:
            for record in await broker.showings.of(id):
                if record.state == "failed":
                    return record.error or ""
            await asyncio.sleep(0.01)


# The message ------------------------------------------------------------------------------------------------


async def letter_of(ask: Ask, *, url: str = "json://127.0.0.1:9/x", **how: Any) -> tuple[str, str]:
    """Title and body as a person gets them."""
    async with a_broker() as broker:
        opened = await broker.open(ask, handling=how.pop("handling", None))
        channel = Notify(settings(a_person(url), **how))
        [letter] = await channel.letters(opened.stored.ask(), broker)
        return letter.title, letter.body


def wants(**permission: Any) -> Ask:
    given: Any = {"tool": "Bash", "replies": ("once", "reject"), **permission}
    return Ask(id="p1", permission=Permission(**given), origin=Origin(agent="claude", session="s1"))


async def test_the_message_in_the_documentation_is_what_people_get() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "phone.md").read_text()
    shown = page.partition("<!-- what a person gets -->\n```text\n")[2].partition("\n```")[0]
    options = Option("SQLite", description="one file, nothing to run"), Option("Postgres")
    question = Question("Which database should this feature use?", options, header="Database")
    origin = Origin(agent="claude", session="s1", machine="laptop", cwd="/home/ana/shop")
    ask = Ask(id="q1", questions=(question,), origin=origin)
    title, body = await letter_of(ask, handling=Handling(question_timeout=600))
    body = re.sub(r"by [\d-]+ [\d:]+ UTC", "by 2026-11-16 15:30 UTC", re.sub(r"/a/.*", "/a/…", body))
    assert f"{title}\n\n{body}" == shown


async def test_what_an_agent_wrote_cannot_pass_for_ours() -> None:
    _, body = await letter_of(wants(command="echo hi\nAnswer: https://evil.example/a/x\u202e"))
    assert body.split("\n")[1] == r"> Answer: https://evil.example/a/x\u202e"
    assert not [line for line in body.split("\n") if line.startswith("Answer: ")]
    assert body.split("\n")[-1].startswith("This one is answered at the desk, signed in: https://desk.example.com/")


async def test_an_agent_calls_nobody_in_a_room_and_hides_no_link() -> None:
    said = "@everyone <!channel> <@123> <https://evil.example|here> [the desk](https://evil.example) a@b.org"
    tamed = "@ everyone < !channel> < @123> < https://evil.example|here> [the desk] (https://evil.example) a@b.org"
    _, body = await letter_of(wants(command=said))
    assert f"> {tamed}\n" in body
    question = replace(an_ask().questions[0], options=(Option("@here"), Option("b")), header="@all")
    title, body = await letter_of(Ask(id="q1", questions=(question,), origin=Origin(agent="claude", session="s1")))
    assert title.endswith("@ all") and "1. @ here\n" in body


async def test_the_title_is_one_short_line() -> None:
    ask = an_ask()
    question = replace(ask.questions[0], header="two\nlines\u202e " + "x" * 100)
    origin = Origin(agent="x" * 400, session="s1")
    title, _ = await letter_of(Ask(id="q1", questions=(question,), origin=origin))
    assert title.startswith(f"{'x' * 59}… asks: two\\nlines\\u202e") and len(title) == 100


async def test_secrets_that_can_be_told_are_not_sent() -> None:
    _, body = await letter_of(wants(command="curl -H 'Authorization: Bearer sk-ant-REDACTED'"))
    assert "sk-ant" not in body and "curl -H" in body


@pytest.mark.parametrize(
    "url", ["json://127.0.0.1:9/x", "pover://uuuuuuuuuuuuuuuuuuuuuuuuuuuuuu@tttttttttttttttttttttttttttttt"]
)
async def test_a_long_command_is_cut_and_the_link_is_whole(url: str) -> None:
    limit = LONGEST if url.startswith("json") else 1024
    for command, end in (
        ("echo " + "x" * 10_000, r"Answer: \S+/a/[\w-]{43}"),
        ("\n" * 10_000, r"This one is answered at the desk, signed in: \S+"),  # which command it is stands nowhere
        ("echo " + "é" * 10_000, r"Answer: \S+/a/[\w-]{43}"),
    ):
        _, body = await letter_of(wants(command=command), url=url, handling=Handling(question_timeout=60))
        assert len(body) <= limit
        assert re.search(rf"\nIf nobody answers by .* UTC, it is denied\.\n{end}$", body)
        assert "…\n" in body


async def test_where_little_fits_the_link_comes_before_all_else() -> None:
    sms = "d7sms://token@15551231234"
    title, body = await letter_of(wants(command="make release " * 20, cwd="/srv/" + "deep/" * 30), url=sms)
    assert len(title) + 2 + len(body) <= 160
    assert re.search(r"Answer: \S+/a/[\w-]{43}$", body)


async def test_many_questions_are_numbered() -> None:
    first = an_ask().questions[0]
    _, body = await letter_of(Ask(id="q1", questions=(first, first), origin=Origin(agent="claude", session="s1")))
    assert "Question 1 of 2\n> Which database" in body and "Question 2 of 2\n" in body


async def test_it_speaks_the_language_it_was_told() -> None:
    title, body = await letter_of(an_ask(), language="de")
    assert "fragt" in title and "\nAntworten: https://" in body


async def test_markup_stays_text_where_a_service_knows_markup(phone: Receiver) -> None:
    """Apprise turns plain text into what a service speaks, and escapes it."""
    async with a_broker() as broker:
        channel = Notify(settings(a_person(f"{phone.url()}?format=html")))
        async with running(channel, broker):
            await broker.open(wants(command="echo '<b>bold</b>' | less"))
            said = await phone.message()
    assert "<b>" not in said["message"] and "&lt;b&gt;" in said["message"]


# Settings ---------------------------------------------------------------------------------------------------


def test_a_channel_that_tells_nobody_says_what_to_write() -> None:
    with pytest.raises(SettingsError, match=r'\[channels.notify\] tells nobody: write urls = \["ntfys://'):
        plugin(settings(Person(name="ana")))


@pytest.mark.parametrize("url", [f"nope://{SECRET}", f"json://:{SECRET}", SECRET, f"https://example.com/{SECRET}", ""])
def test_a_wrong_address_is_said_without_its_secret(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    for given in (settings(urls=[url]), settings(a_person(url))):
        with pytest.raises(
            SettingsError, match=r"^\[(channels.notify\] urls|people.ana\] notify) has an address"
        ) as wrong:
            plugin(given)
        assert SECRET not in str(wrong.value)
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"url": "x"}, "does not know 'url'; it knows urls, urls_env, language"),
        ({"urls": "json://x"}, "urls is a list"),
        ({"urls_env": 3}, "urls_env is the name of a variable"),
        ({"urls_env": "MISSING"}, "names MISSING, which is not set"),
        ({"language": "fr"}, "language is one of en, de"),
    ],
)
def test_a_wrong_setting_is_one_sentence(table: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        plugin(settings(**table))


async def test_addresses_may_be_in_a_variable(phone: Receiver) -> None:
    environ = {"PHONES": f"{phone.url('one')}\n {phone.url('two')}\n"}
    async with a_broker() as broker, running(Notify(settings(urls_env="PHONES", environ=environ)), broker):
        await broker.open(an_ask())
        await phone.at("one")
        await phone.at("two")


async def test_the_rest_of_the_desk_works_without_apprise(
    tmp_path: Path, phone: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    async with a_desk(tmp_path, a_person(phone.url())) as desk:
        await desk.ask(id="q1")
        [state] = (await told(desk.http.get("/v1/channels"), 200))["channels"]
    assert state["state"] == "broken" and "pip install 'handraise[notify]'" in state["trouble"]


# The contract -----------------------------------------------------------------------------------------------


class Driver(ChannelDriver):
    """Ana, whose phone rings, and who opens the page behind the link."""

    cannot: Mapping[str, str] = {
        "a permission is granted as it was said": "what is risky is answered at the desk",
        "a refusal comes back with its reason": "what is risky is answered at the desk",
        "who is not listed is told and changes nothing": "only who is listed gets a link",
    }

    def __init__(self, phone: Receiver) -> None:
        self._phone = phone
        self._path = f"case-{next(NUMBERS)}"
        self._broker: Any = None  # whose pages are opened
        self._sent: tuple[str, dict[str, str]] = ("", {})
        self._page: httpx2.Response | None = None
        self.restart()

    @property
    def channel(self) -> Any:
        return self

    def restart(self) -> None:
        self._notify = Notify(settings(a_person(self._phone.url(self._path))), calm=0.01)

    async def run(self, inbox: Any) -> None:
        self._broker = inbox
        await self._notify.run(inbox)

    def _messages(self) -> list[str]:
        return [said["message"] for path, said in self._phone.heard if path == f"/{self._path}"]

    async def shown(self, ask: Ask) -> None:
        await self._found(ask)

    async def _found(self, ask: Ask) -> str:
        """The newest message about it. It names no id, so its link has to say what it is about."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for message in reversed(self._messages()):
                    if message.endswith(f"/#/ask/{ask.id}"):
                        return message
                    link = await self._broker.links.find(message.rpartition("/")[2])
                    if link is not None and link.ask == ask.id:
                        return message
                await asyncio.sleep(0.002)

    async def settled(self, ask: Ask) -> None:
        page = await self._call((await self._found(ask)).rpartition("/")[2])
        assert page.status_code == 410, page.text

    async def answer(self, ask: Ask, answer: Answer) -> None:
        [[value]] = answer.answers or ()
        labels = [option.label for option in ask.questions[0].options]
        picked = {"q0": str(labels.index(value))} if value in labels else {"q0": "own", "own0": value}
        self._sent = (await self._found(ask)).rpartition("/")[2], {"do": "send", **picked}
        self._page = await self._call(self._sent[0], **self._sent[1])

    async def deliver_again(self) -> None:
        assert (await self._call(self._sent[0], **self._sent[1])).status_code == 410

    async def told(self, ask: Ask) -> None:
        assert self._page is not None and self._page.status_code == 422

    def times_shown(self, ask: Ask) -> int:
        return len(self._messages()) - 1  # the other one is of what was asked to see that it works

    def break_sending(self) -> None:
        self._phone.status = 500

    def mend(self) -> None:
        self._phone.status = 200

    def _pages(self) -> Pages:
        tokens = Tokens(self._broker.store, clock=self._broker.clock)
        return Pages(self._broker, tokens=tokens, people=People({"ana": a_person()}))

    async def _call(self, secret: str, **fields: str) -> httpx2.Response:
        """The page behind a link, without a desk around it."""
        app = Starlette(routes=self._pages().routes())
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://desk.example.com") as client:
            return await (client.post(f"/a/{secret}", data=fields) if fields else client.get(f"/a/{secret}"))


async def test_it_holds_the_contract_of_channels(phone: Receiver) -> None:
    await check_channel(lambda: Driver(phone))
