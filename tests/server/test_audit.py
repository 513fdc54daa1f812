"""Every decision has a line that says who or what, when, through what and from where; and it can be taken elsewhere."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import pty
import re
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from typer.testing import CliRunner

from handraise.asks import Answer, Question
from handraise.broker import Broker
from handraise.cli import app
from handraise.cli.commands.audit import PAGE, _when
from handraise.errors import SettingsError
from handraise.server.openapi import document
from handraise.stores import Store
from handraise.tables.audit import DECISIONS, FIELDS, lines
from handraise.testing import FakeClock, a_permission, an_ask
from handraise.wire import time_text
from tests.helpers.serving import PATIENCE, Served, a_permission_body, listening, path_of, refused, serving, told

Line = dict[str, Any]
SQLITE = Answer(answers=(("SQLite",),), by="ana", via="terminal")
HOUR = 60 * 60


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database) as running:
        yield running


@pytest.fixture
async def on_disk(tmp_path: Path) -> AsyncIterator[Served]:
    """For what does not depend on the database."""
    async with serving(tmp_path / "home") as running:
        yield running


async def audit(desk: Served, **asked: Any) -> list[Line]:
    """All the lines of one page, each as it is documented."""
    page = await told(desk.http.get("/v1/audit", params=asked), 200)
    schema = {"$ref": "#/components/schemas/AuditLine", "components": document()["components"]}
    for line in page["lines"]:
        jsonschema_rs.Draft202012Validator(schema, validate_formats=True).validate(line)
        assert tuple(line) == FIELDS
    found: list[Line] = page["lines"]
    return found


async def only(desk: Served) -> Line:
    [line] = await audit(desk)
    return line


def facts(line: Line, *names: str) -> tuple[Any, ...]:
    return tuple(line[name] for name in names)


WHO = ("decision", "decided_by", "by", "via", "token", "address")


# What a line says -------------------------------------------------------------------------------------------


async def test_an_answer_has_a_line_with_everything_about_it(desk: Served) -> None:
    origin = {"agent": "claude", "session": "s1", "run": "r1", "step": "build", "cwd": "/shop", "machine": "laptop"}
    asked = await desk.ask(id="build-7", origin=origin)
    ana = await desk.caller("ana", "answer")
    body = {"answers": [["Postgres"]], "notes": ["it scales"], "via": "phone"}
    answered = await told(ana.post(path_of("build-7", "answer"), json=body), 200)
    assert await only(desk) == {
        "cursor": 2,
        "at": answered["answer"]["at"],
        "decision": "answered",
        "decided_by": "person",
        "by": "ana",
        "via": "phone",
        "identity": "strong",
        "token": "ana",
        "address": "127.0.0.1",
        "ask": "build-7",
        "kind": "question",
        "title": asked["questions"][0]["question"],
        **origin,
        "answers": [["Postgres"]],
        "reply": None,
        "scope": None,
        "patterns": None,
        "input": None,
        "reason": None,
        "notes": ["it scales"],
        "why": None,
    }


async def test_a_permission_has_what_was_granted_how_far_and_how_it_was_edited(desk: Served) -> None:
    await told(desk.http.post("/v1/asks", json=a_permission_body(id="p1")), 201)
    always = {"reply": "always", "scope": "session", "patterns": ["rm *"], "input": {"command": "rm -r build"}}
    await told(desk.http.post(path_of("p1", "answer"), json={**always, "message": "go on"}), 200)
    line = await only(desk)
    assert facts(line, "decision", "kind", "title", "answers") == ("answered", "permission", "Bash: rm -rf build", None)
    assert {name: line[name] for name in always} == always
    assert line["reason"] == "go on"


async def test_a_rejection_has_its_reason_and_whose_token_it_was(desk: Served) -> None:
    await told(desk.http.post("/v1/asks", json=a_permission_body(id="p1")), 201)
    body = {"reason": "not on a Friday", "by": "ana"}  # an admin's program speaks for her
    await told(desk.http.post(path_of("p1", "reject"), json=body), 200)
    line = await only(desk)
    assert facts(line, *WHO) == ("rejected", "person", "ana", "http", desk.admin, "127.0.0.1")
    assert facts(line, "reply", "reason") == ("reject", "not on a Friday")


async def test_an_ask_that_is_taken_back_and_more_time_are_decisions_too(desk: Served) -> None:
    ci = await desk.caller("ci", "ask")
    ana = await desk.caller("ana", "answer")
    question = {"question": "Which?", "options": [{"label": "a"}]}
    raised = await told(ci.post("/v1/asks", json={"id": "q", "questions": [question], "question_timeout": 600}), 201)
    await told(ana.post(path_of(raised["id"], "keep-waiting")), 200)
    await told(ci.post(path_of("q", "withdraw"), json={"reason": "the build was stopped"}), 200)
    waited, withdrawn = await audit(desk)
    assert facts(waited, *WHO) == ("kept_waiting", "person", "ana", "http", "ana", "127.0.0.1")
    assert facts(withdrawn, *WHO) == ("withdrawn", "agent", "agent", "http", "ci", "127.0.0.1")
    assert (waited["reason"], withdrawn["reason"]) == (None, "the build was stopped")
    assert {line["ask"] for line in (waited, withdrawn)} == {raised["id"]}


async def test_an_ask_that_is_taken_back_without_its_ordinal_says_where_that_came_from(desk: Served) -> None:
    await desk.ask(id="rm", ordinal=True)
    await told(desk.http.post(path_of("rm", "withdraw")), 200)
    assert facts(await only(desk), "decision", "ask", "token") == ("withdrawn", "rm#1", desk.admin)


async def test_what_policy_and_silence_decide_has_lines_with_the_reason(desk: Served) -> None:
    rules = {"auto": [{"match": "database", "answers": ["Postgres"]}]}
    await told(desk.http.post("/v1/asks", json={**_question(), "id": "by rule", "question_policy": rules}), 201)
    late = {**_question(), "id": "by timeout", "question_timeout": 0.01, "on_timeout": "accept-first"}
    await told(desk.http.post("/v1/asks?wait=5", json=late), 201)
    ruled, silent = await audit(desk)
    assert facts(ruled, *WHO) == ("answered", "policy", "policy:auto", "policy", None, None)
    assert facts(silent, *WHO) == ("answered", "timeout", "policy:timeout", "policy", None, None)
    assert "database" in ruled["why"][0] and ruled["answers"] == [["Postgres"]]
    assert silent["why"] == ["no answer in 0.01 s", "accept-first"] and silent["answers"] == [["SQLite"]]


def _question() -> Line:
    options = [{"label": "SQLite"}, {"label": "Postgres"}]
    return {
        "questions": [{"question": "Which database?", "options": options}],
        "origin": {"agent": "a", "session": "s1"},
    }


async def test_decisions_through_the_routes_of_others_say_where_they_came_from(desk: Served) -> None:
    ana = await desk.caller("ana", "answer")
    for id in ("s3", "s3 no", "que_1", "que_2"):
        await desk.ask(id=id)
    for id in ("per_1", "per_2"):
        await told(desk.http.post("/v1/asks", json=a_permission_body(id=id)), 201)
    calls: list[tuple[str, Any, str]] = [
        ("/v1/sessions/s1/questions/s3/reply", {"answers": [["SQLite"]]}, "sandbox-agent"),
        ("/v1/sessions/s1/questions/s3%20no/reject", {}, "sandbox-agent"),
        ("/question/que_1/reply", {"answers": [["SQLite"]]}, "opencode"),
        ("/question/que_2/reject", {}, "opencode"),
        ("/permission/per_1/reply", {"reply": "once"}, "opencode"),
        ("/session/ses_s1/permissions/per_2", {"response": "reject"}, "opencode"),
    ]
    for path, body, _ in calls:
        assert (await ana.post(path, json=body)).status_code in (200, 204), path
    assert [facts(line, "ask", "via", "by", "token", "address") for line in await audit(desk)] == [
        (id, via, "ana", "ana", "127.0.0.1")
        for id, (_, _, via) in zip(("s3", "s3 no", "que_1", "que_2", "per_1", "per_2"), calls, strict=True)
    ]


async def test_no_header_is_believed(on_disk: Served) -> None:
    ana = await on_disk.caller("ana", "answer")
    await on_disk.ask(id="a")
    forged = {"X-Forwarded-For": "10.9.8.7", "Forwarded": "for=10.9.8.7", "X-Real-IP": "10.9.8.7"}
    body = {"answers": [["SQLite"]], "by": "the-boss"}
    await told(ana.post(path_of("a", "answer"), json=body, headers=forged), 200)
    assert facts(await only(on_disk), "by", "token", "address") == ("ana", "ana", "127.0.0.1")


async def test_a_channel_inside_the_desk_has_no_token_and_no_address(desk: Served) -> None:
    await desk.ask(id="a", question_timeout=600)
    await desk.ask(id="b")
    await desk.broker.keep_waiting("a")
    await desk.broker.answer("a", SQLITE)
    await desk.broker.withdraw("b")
    assert [facts(line, *WHO) for line in await audit(desk)] == [
        ("kept_waiting", "person", None, None, None, None),
        ("answered", "person", "ana", "terminal", None, None),
        ("withdrawn", "agent", "agent", None, None, None),
    ]


async def test_an_answer_in_the_agents_own_terminal_is_the_agents(desk: Served) -> None:
    await desk.ask(id="a")
    await desk.broker.answer("a", Answer(answers=(("SQLite",),), by="agent", via="its own terminal"))
    assert facts(await only(desk), "decided_by", "by", "via") == ("agent", "agent", "its own terminal")


async def test_only_what_decided_something_has_a_line(desk: Served) -> None:
    await desk.ask(id="a")
    await told(desk.http.post(path_of("a", "keep-waiting")), 200)  # it has no deadline to move
    await desk.answer("a", "SQLite")
    await desk.answer("a", "SQLite")
    await refused(desk.http.post(path_of("a", "reject")), 409, "already_answered")
    await refused(desk.http.post(path_of("a", "withdraw")), 409, "already_answered")
    await told(desk.http.post("/v1/deliveries", json={"deliveries": [{"id": "a"}]}), 200)
    assert facts(await only(desk), "decision", "answers") == ("answered", [["SQLite"]])


async def test_an_ask_that_was_asked_again_has_a_line_each_time(desk: Served) -> None:
    await desk.ask(id="a")
    await told(desk.http.post(path_of("a", "withdraw"), json={"reason": "first"}), 200)
    await told(desk.http.post("/v1/asks", json={**await _again(desk, "a")}), 200)
    await desk.answer("a", "SQLite")
    assert [facts(line, "decision", "reason", "answers") for line in await audit(desk)] == [
        ("withdrawn", "first", None),
        ("answered", None, [["SQLite"]]),
    ]


async def _again(desk: Served, id: str) -> Line:
    ask = await desk.get(id)
    return {name: ask[name] for name in ("id", "questions", "origin")}


async def test_where_it_came_from_is_told_to_nobody_else(desk: Served) -> None:
    quiet = await desk.caller("a-quiet-token", "admin")
    async with listening(desk.http) as stream, listening(desk.http, "/event") as opencode:
        await desk.ask(id="a")
        body = {"answers": [["SQLite"]], "by": "ana"}
        reply = await quiet.post(path_of("a", "answer"), json=body)
        while (await stream.frame()).event != "answered":
            pass
        await opencode.until(b"question.replied")
        for said in (stream.raw, opencode.raw, reply.content, (await quiet.get("/v1/asks")).content):
            assert b"SQLite" in said
            assert b"a-quiet-token" not in said and b"127.0.0.1" not in said
    assert (await only(desk))["token"] == "a-quiet-token"


@pytest.mark.parametrize(
    ("wanted", "kind", "title"),
    [
        ({"summary": "Tidy up", "command": "rm -rf /"}, "permission", "Bash: rm -rf /"),
        ({"summary": "Tidy up", "command": "ls\nrm -rf /"}, "permission", "Bash: ls\\nrm -rf /"),
        ({"command": "echo \u202egnp.exe"}, "permission", "Bash: echo \\u202egnp.exe"),
        ({"command": None, "url": "https://x.example"}, "permission", "Bash: https://x.example"),
        ({"command": None, "paths": ("a.py", "b.py")}, "permission", "Bash: a.py, b.py"),
        ({"command": None, "summary": "", "kind": "plan", "tool": "plan"}, "plan", "plan"),
    ],
)
async def test_the_title_of_a_permission_is_what_is_to_be_done(
    broker: Broker, wanted: Any, kind: str, title: str
) -> None:
    await broker.open(a_permission(**wanted))
    await broker.reject("permission-1")
    [line], _ = await lines(broker.store)
    assert facts(line, "kind", "title") == (kind, title)


async def test_the_title_of_questions_is_all_of_them_on_one_line(broker: Broker) -> None:
    await broker.open(an_ask(id="a", questions=(Question("Which\ndatabase?", header="DB"), Question("Why?"))))
    await broker.reject("a")
    [line], _ = await lines(broker.store)
    assert line["title"] == "Which\\ndatabase? · Why?"


# Which lines ------------------------------------------------------------------------------------------------


async def test_lines_come_page_by_page_in_order_and_each_once(desk: Served) -> None:
    for number in range(7):
        await desk.ask(id=f"a{number}")
        await desk.answer(f"a{number}", "SQLite")
    found: list[str] = []
    asked: dict[str, Any] = {"limit": 3}
    for _ in range(3):
        page = await told(desk.http.get("/v1/audit", params=asked), 200)
        found += [line["ask"] for line in page["lines"]]
        asked["after"] = page.get("next")
    assert asked["after"] is None
    assert found == [f"a{number}" for number in range(7)]


async def test_since_is_taken_in_and_until_is_not(store: Store, fake_clock: FakeClock) -> None:
    start = fake_clock.now()
    async with Broker(store, clock=fake_clock) as broker:
        for hour in range(4):
            await broker.open(an_ask(id=f"at {hour}"))
            await broker.answer(f"at {hour}", SQLITE)
            await fake_clock.advance(HOUR)

    async def found(**asked: Any) -> list[str]:
        told, more = await lines(store, **asked)
        assert more is None
        return [line["ask"] for line in told]

    one, two = start + HOUR * 1000, start + 2 * HOUR * 1000
    assert await found(since=one) == ["at 1", "at 2", "at 3"]
    assert await found(since=one + 1) == ["at 2", "at 3"]
    assert await found(until=two) == ["at 0", "at 1"]
    assert await found(until=two + 1) == ["at 0", "at 1", "at 2"]
    assert await found(since=one, until=two) == ["at 1"]
    assert await found(since=two, until=one) == []


async def test_a_clock_that_was_set_hides_no_line(store: Store) -> None:
    for year in (2026, 2030, 2026):
        async with Broker(store, clock=FakeClock(start=datetime(year, 1, 1, tzinfo=UTC))) as broker:
            id = f"{year} {await store.cursor()}"
            await broker.open(an_ask(id=id))
            await broker.answer(id, SQLITE)
    until = round(datetime(2027, 1, 1, tzinfo=UTC).timestamp() * 1000)
    found: list[str] = []
    after: int | None = 0
    while after is not None:
        page, after = await lines(store, until=until, after=after, limit=1)
        found += [line["ask"] for line in page]
    assert found == ["2026 0", "2026 4"]


async def test_times_over_http_are_those_of_rfc_3339(on_disk: Served) -> None:
    await on_disk.ask(id="a")
    await on_disk.answer("a", "SQLite")
    at = datetime.fromisoformat((await only(on_disk))["at"])
    later = at + timedelta(milliseconds=1)
    for time, is_there in ((at, True), (later, False)):
        for text in (time.isoformat(), time.astimezone(_zone(+2)).isoformat(), f"{time:%Y-%m-%dt%H:%M:%S.%f}z"):
            assert bool(await audit(on_disk, since=text)) is is_there, text
            assert bool(await audit(on_disk, until=text)) is not is_there, text
    plus = (await on_disk.http.get(f"/v1/audit?since={at.astimezone(_zone(2)).isoformat()}")).json()
    assert len(plus["lines"]) == 1  # the `+` of the offset was not encoded


def _zone(hours: int) -> timezone:
    return timezone(timedelta(hours=hours))


@pytest.mark.parametrize(
    "query",
    [
        "since=yesterday",
        "since=2026-01-01",
        "since=2026-01-01T00:00:00",
        "until=2026-13-01T00:00:00Z",
        "since=",
        "limit=0",
        "limit=1001",
        "after=-1",
        "before=2026-01-01T00:00:00Z",
    ],
)
async def test_what_cannot_be_read_is_refused_with_a_sentence(on_disk: Served, query: str) -> None:
    await refused(on_disk.http.get(f"/v1/audit?{query}"), 400, "bad_request")


async def test_only_an_admin_reads_the_audit(on_disk: Served) -> None:
    for scope in ("ask", "answer"):
        caller = await on_disk.caller(f"only-{scope}", scope)
        await refused(caller.get("/v1/audit"), 403, "forbidden")


async def test_what_is_pruned_is_gone_from_the_audit_too(desk: Served) -> None:
    for id in ("old", "new"):
        await desk.ask(id=id)
        await desk.answer(id, "SQLite")
    await desk.broker.store.prune(before=2**52, limit=2)
    assert [line["ask"] for line in await audit(desk)] == ["new"]


def test_the_document_names_every_field_and_every_decision_in_order() -> None:
    line = document()["components"]["schemas"]["AuditLine"]
    assert tuple(line["properties"]) == FIELDS == tuple(line["required"])
    assert all(field["description"] for field in line["properties"].values())
    assert line["properties"]["decision"]["enum"] == list(DECISIONS.values())


# The command ------------------------------------------------------------------------------------------------


class Run:
    """`handraise audit` in this process, against a desk."""

    def __init__(self, desk: Served) -> None:
        self._env = {"HANDRAISE_TOKEN": desk.token, "HANDRAISE_HOME": str(desk.settings.home), "TZ": "UTC"}
        self._url = desk.url

    async def __call__(self, *words: str) -> str:
        done = await asyncio.to_thread(
            CliRunner().invoke, app, ["audit", "--url", self._url, *words], env=self._env, catch_exceptions=False
        )
        assert done.exit_code == 0, done.output
        return done.stdout_bytes.decode()


async def test_json_lines_are_the_lines_of_the_desk(on_disk: Served) -> None:
    for id in ("a", "b"):
        await on_disk.ask(id=id)
        await on_disk.answer(id, "SQLite")
    printed = await Run(on_disk)("--json")
    assert [json.loads(line) for line in printed.splitlines()] == await audit(on_disk)
    assert await Run(on_disk)("--json", "--until", "1d") == ""


async def test_csv_has_a_header_row_and_no_formula_of_whoever_asked(on_disk: Served) -> None:
    hostile = {"agent": "=cmd|' /C calc'!A0", "session": "+1", "cwd": "-2+3", "machine": "\t=1"}
    questions = [{"question": '=HYPERLINK("http://x","a, b")'}]
    ci = await on_disk.caller("ci", "ask")
    await told(ci.post("/v1/asks", json={"id": "sum", "origin": hostile, "questions": questions}), 201)
    await told(on_disk.http.post(path_of("@ci:sum", "reject"), json={"reason": "\r\n=1+1\u202e", "by": "ana"}), 200)
    await on_disk.ask(id="plain, with a comma")
    await on_disk.answer("plain, with a comma", 'a "quoted" text')
    printed = await Run(on_disk)("--csv")
    assert printed.count("\r\n") == 3 == printed.count("\n")  # a record is a line
    heads, first, second = csv.reader(io.StringIO(printed, newline=""))
    assert tuple(heads) == FIELDS
    line = dict(zip(heads, first, strict=True))
    assert facts(line, "agent", "session", "cwd") == ("'=cmd|' /C calc'!A0", "'+1", "'-2+3")
    assert facts(line, "ask", "machine", "reason") == ("'@ci:sum", "'\\t=1", "'\\r\\n=1+1\\u202e")
    assert line["title"] == '\'=HYPERLINK("http://x","a, b")'
    line = dict(zip(heads, second, strict=True))
    assert facts(line, "ask", "run", "agent") == ("plain, with a comma", "", "scripted")
    assert json.loads(line["answers"]) == [['a "quoted" text']]
    assert (line["cursor"], line["why"]) == ("4", "")


async def test_without_a_line_there_is_still_a_header(on_disk: Served) -> None:
    assert await Run(on_disk)("--csv") == ",".join(FIELDS) + "\r\n"
    assert await Run(on_disk)() == "There are none.\n"


async def test_the_table_says_who_what_and_from_where_and_nothing_hidden(on_disk: Served) -> None:
    question = {"question": "Which \x1b[31mone\x1b[0m?"}
    await on_disk.ask(id="a", origin={"agent": "克劳德", "session": "s1"}, questions=[question], question_timeout=600)
    await told(on_disk.http.post(path_of("a", "keep-waiting")), 200)
    await told(on_disk.http.post(path_of("a", "answer"), json={"answers": [["Post\u202egres"]], "by": "ana"}), 200)
    there = {**_question()["origin"], "machine": "laptop"}
    body = {**_question(), "id": "b", "origin": there, "question_policy": "reject"}
    await told(on_disk.http.post("/v1/asks", json=body), 201)
    heads, waited, answered, rejected = (await Run(on_disk)()).splitlines()
    assert heads.split() == ["WHEN", "DECISION", "WHO", "FROM", "AGENT", "MACHINE", "ABOUT"]
    assert re.match(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d +kept waiting +{on_disk.admin}, in http ", waited)
    assert f"ana, in http  {on_disk.admin} at 127.0.0.1  克劳德" in re.sub(r" {2,}", "  ", answered)
    assert answered.endswith("Which \\x1b[31mone\\x1b[0m? → Post\\u202egres")
    assert "rejected  policy:reject  a  laptop  Which database? → no person" in re.sub(r" {2,}", "  ", rejected)
    assert len({heads.index("AGENT"), waited.index("克"), answered.index("克"), rejected.index(" a ") + 1}) == 1
    assert rejected.index("Which") == heads.index("ABOUT") == answered.index("Which") + 3  # three are two cells wide


@pytest.mark.parametrize("columns", [40, 90])
async def test_a_terminal_gets_lines_that_fit(on_disk: Served, columns: int) -> None:
    await on_disk.ask(id="a", questions=[{"question": "Why? " * 100}])
    await on_disk.answer("a", "because")
    here, there = pty.openpty()
    env = {**os.environ, "HANDRAISE_TOKEN": on_disk.token, "COLUMNS": str(columns), "TZ": "UTC"}
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handraise", "audit", "--url", on_disk.url), env=env, stdout=there
        )
        assert await asyncio.wait_for(process.wait(), 4 * PATIENCE) == 0
        printed = os.read(here, 65536).decode()
    finally:
        os.close(here)
        os.close(there)
    shown = printed.splitlines()
    assert len(shown) == 2
    assert all(len(line) <= columns for line in shown)
    assert "Why?" in shown[1] and shown[1].endswith("…")


async def test_what_does_not_fit_into_a_page_comes_as_well_and_a_closed_pipe_ends_it_quietly(on_disk: Served) -> None:
    count = 3 * PAGE + 1
    await asyncio.gather(*(on_disk.broker.open(an_ask(id=f"a{number}")) for number in range(count)))
    await asyncio.gather(*(on_disk.broker.answer(f"a{number}", SQLITE) for number in range(count)))
    printed = await Run(on_disk)("--json")
    assert [json.loads(line)["ask"] for line in printed.splitlines()] == [f"a{number}" for number in range(count)]
    assert len((await Run(on_disk)("--csv")).splitlines()) == count + 1
    assert (await Run(on_disk)()).count("WHEN") == 1
    for form in ("--json", "--csv"):
        reading, writing = os.pipe()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handraise", "audit", "--url", on_disk.url, form),
            env={**os.environ, "HANDRAISE_TOKEN": on_disk.token},
            stdout=writing,
            stderr=asyncio.subprocess.PIPE,
        )
        os.close(writing)
        assert await asyncio.wait_for(asyncio.to_thread(os.read, reading, 10), 4 * PATIENCE)
        os.close(reading)
        _, said = await asyncio.wait_for(process.communicate(), 4 * PATIENCE)
        assert said == b""


NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC).astimezone()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30m", NOON - timedelta(minutes=30)),
        ("24h", NOON - timedelta(hours=24)),
        ("7d", NOON - timedelta(days=7)),
        ("2w", NOON - timedelta(weeks=2)),
        ("90s", NOON - timedelta(seconds=90)),
        ("2026-01-31", datetime(2026, 1, 31).astimezone()),
        ("2026-01-31T14:00", datetime(2026, 1, 31, 14).astimezone()),
        ("2026-01-31 14:00:30", datetime(2026, 1, 31, 14, 0, 30).astimezone()),
        ("2026-01-31T14:00:00Z", datetime(2026, 1, 31, 14, tzinfo=UTC)),
        ("2026-01-31T14:00:00+02:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("09:30", datetime.combine(NOON.date(), datetime(1, 1, 1, 9, 30).time()).astimezone()),
    ],
)
def test_when_is_a_date_a_time_or_an_age(text: str, expected: datetime) -> None:
    assert _when(text, name="since", now=NOON) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "7", "7x", "-7d", "2026", "2026-02-30", "25:00", "999999999w", "٧d"])
def test_when_is_nothing_else(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^--since .*: give a date .*, a time .* or an age"):
        _when(text, name="since", now=NOON)


async def test_the_command_sends_when_it_was_told(on_disk: Served) -> None:
    await on_disk.ask(id="a")
    await on_disk.answer("a", "SQLite")
    run = Run(on_disk)
    at = time_text(on_disk.broker.clock.now() + 1000)
    assert (await run("--since", "1h")).count("SQLite") == 1
    assert (await run("--until", "1h")) == "There are none.\n"
    assert (await run("--since", at)) == "There are none.\n"
    assert (await run("--since", "1h", "--until", at)).count("SQLite") == 1


def test_two_forms_at_once_are_refused() -> None:
    with pytest.raises(SettingsError, match="choose one"):
        CliRunner().invoke(app, ["audit", "--json", "--csv"], catch_exceptions=False)
