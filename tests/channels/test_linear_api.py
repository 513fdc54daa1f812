"""Calls to Linear against the stand-in: what each does, and what each says when Linear does not; then the stand-in."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from graphql import GraphQLNonNull, get_named_type, parse, validate
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handraise.asks import Ask, Option, Origin, Permission, Question
from handraise.channels import SendFailed
from handraise.channels.linear import api as linear_api
from handraise.channels.linear.api import DOCUMENTS, Access, Api
from handraise.channels.linear.translate import Activity, elicitation
from handraise.channels.linear.webhooks import Created, Prompted, read, verify
from handraise.clock import Clock, SystemClock
from handraise.testing import FakeClock
from tests.helpers.linear_desk import SCHEMA, Record, StandIn, linear, serve

DATA = Path(__file__).parents[1] / "data" / "linear"
THOUGHT = Activity(content={"type": "thought", "body": "On it."})
CHOICE = Activity(
    content={"type": "elicitation", "body": "Which?"},
    signal="select",
    metadata={"options": [{"value": "SQLite", "label": "SQLite"}, {"value": "PostgreSQL"}]},
)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
async def stand_in() -> AsyncIterator[StandIn]:
    async with linear() as running:
        yield running


@pytest.fixture
async def api(stand_in: StandIn) -> AsyncIterator[Api]:
    async with calling(stand_in) as called:
        yield called


@asynccontextmanager
async def calling(
    stand_in: StandIn, access: Access | None = None, *, clock: Clock | None = None, patience: float = 5
) -> AsyncIterator[Api]:
    access = access or Access(token=stand_in.token)
    async with Api(access, url=stand_in.url, patience=patience, clock=clock or SystemClock()) as api:
        yield api


def by_client(stand_in: StandIn, **changes: str) -> Access:
    return replace(Access(client_id=stand_in.client_id, client_secret=stand_in.client_secret), **changes)


async def a_session(stand_in: StandIn) -> str:
    return await stand_in.delegate(stand_in.issue("ENG-42", "Choose the storage"), by=stand_in.person("Ada"))


def activity_id(name: str) -> str:
    """The same for the same name."""
    return str(UUID(bytes=hashlib.sha256(name.encode()).digest()[:16], version=4))


async def failing(call: Any) -> SendFailed:
    with pytest.raises(SendFailed) as failed:
        await call
    return failed.value


# What each call does ------------------------------------------------------------------------------------------


async def test_we_learn_who_we_are(api: Api, stand_in: StandIn) -> None:
    me = await api.me()
    assert (me.id, me.name, me.is_app) == (stand_in.app_user["id"], "Handraise", True)
    assert (me.organization, me.url_key) == (stand_in.organization["id"], "acme")


async def test_the_key_of_a_person_is_sent_bare_and_says_that_it_is_no_app(stand_in: StandIn) -> None:
    async with calling(stand_in, Access(token=stand_in.key)) as api:
        me = await api.me()
    assert (me.name, me.is_app) == ("Olga", False)


async def test_an_activity_is_posted_and_moves_the_session(api: Api, stand_in: StandIn) -> None:
    session = await a_session(stand_in)
    await api.create(id=activity_id("1"), session=session, activity=THOUGHT, ephemeral=True)
    assert stand_in.status(session) == "active"
    await api.create(id=activity_id("2"), session=session, activity=CHOICE)
    assert stand_in.status(session) == "awaitingInput"
    [shown] = stand_in.activities(session)  # the thought has given way
    assert shown == {
        "id": activity_id("2"),
        "content": CHOICE.content,
        "signal": "select",
        "signalMetadata": CHOICE.metadata,
        "ephemeral": False,
    }
    assert [each["content"]["type"] for each in stand_in.posted(session)] == ["thought", "elicitation"]
    done = Activity(content={"type": "action", "action": "Answered", "parameter": "Storage", "result": "SQLite"})
    await api.create(id=activity_id("3"), session=session, activity=done)
    await api.create(
        id=activity_id("4"), session=session, activity=Activity(content={"type": "response", "body": "Done."})
    )
    assert stand_in.status(session) == "complete"


@pytest.mark.parametrize(
    "ask",
    [
        {"questions": (Question("Which?", (Option("SQLite", description="one file"), Option("PostgreSQL"))),)},
        {"questions": (Question("Which ones?", (Option("a"), Option("b")), multiple=True),)},
        {"questions": (Question("Why? \ud800 é \u202e"),)},
        {"permission": Permission(tool="Bash", summary="Remove it", command="rm -rf build")},
    ],
)
async def test_what_we_translate_is_taken(api: Api, stand_in: StandIn, ask: dict[str, Any]) -> None:
    session = await a_session(stand_in)
    shown = elicitation(Ask(id="a", origin=Origin(agent="claude", session="s"), **ask), 0)
    await api.create(id=activity_id("a"), session=session, activity=shown)
    assert stand_in.activities(session)[0]["content"] == shown.content


async def test_the_same_id_is_posted_once(api: Api, stand_in: StandIn) -> None:
    session = await a_session(stand_in)
    for _ in range(3):
        await api.create(id=activity_id("ask-1"), session=session, activity=CHOICE)
    assert len(stand_in.posted(session)) == 1


@pytest.mark.parametrize("status", [200, 400, 502])
async def test_what_arrived_while_its_answer_was_lost_is_not_posted_again(
    api: Api, stand_in: StandIn, status: int
) -> None:
    session = await a_session(stand_in)
    stand_in.fail(status=status, body=b"<html>", carried_out=True)
    lost = await failing(api.create(id=activity_id("ask-1"), session=session, activity=CHOICE))
    assert lost.again is not None
    await api.create(id=activity_id("ask-1"), session=session, activity=CHOICE)
    assert len(stand_in.posted(session)) == 1


async def test_a_refusal_counts_as_sent_where_the_activity_is_there(api: Api, stand_in: StandIn) -> None:
    session = await a_session(stand_in)
    stand_in.fail(code="INTERNAL_SERVER_ERROR", status=500, only="CreateActivity", carried_out=True)
    await api.create(id=activity_id("ask-1"), session=session, activity=CHOICE)
    assert stand_in.calls == ["CreateActivity", "HasActivity"]


async def test_where_nobody_can_tell_whether_it_is_there_it_is_tried_again(api: Api, stand_in: StandIn) -> None:
    session = await a_session(stand_in)
    stand_in.fail(code="INVALID_INPUT", only="CreateActivity")
    stand_in.fail(code="INTERNAL_ERROR", status=200, only="HasActivity")
    failed = await failing(api.create(id=activity_id("ask-1"), session=session, activity=CHOICE))
    assert failed.again == 1


async def test_an_activity_for_an_unknown_session_is_never_tried_again(api: Api) -> None:
    failed = await failing(api.create(id=activity_id("1"), session="nobody", activity=THOUGHT))
    assert failed.again is None
    assert str(failed) == "Linear does not take this: Entity not found: AgentSession"


async def test_a_session_is_opened_on_an_issue_with_its_link(api: Api, stand_in: StandIn) -> None:
    issue = stand_in.issue("ENG-7", "Mend it")
    session = await api.open_on_issue("ENG-7", link="https://desk.example/r/1")
    assert stand_in.links(session) == [{"label": "Open at the desk", "url": "https://desk.example/r/1"}]
    other = await api.open_on_issue(issue["id"], link=None)
    assert other != session and stand_in.links(other) == []
    assert (await failing(api.open_on_issue("ENG-8", link=None))).again is None


async def test_links_are_added_once(api: Api, stand_in: StandIn) -> None:
    session = await a_session(stand_in)
    await api.add_link(session, label="Run", url="https://desk.example/r/1")
    await api.add_link(session, label="Run", url="https://desk.example/r/1")
    await api.add_link(session, label="Pull request", url="https://desk.example/p/2")
    assert [link["label"] for link in stand_in.links(session)] == ["Run", "Pull request"]
    assert (await failing(api.add_link(session, label="Bad", url="javascript:x"))).again is None


async def test_sessions_read_as_their_webhooks_do(api: Api, stand_in: StandIn) -> None:
    ada = stand_in.person("Ada", email="ada@example.com")
    issue = stand_in.issue("ENG-42", "Choose <one>", description="Fast & small")
    given = await stand_in.delegate(issue, by=ada)
    asked = await stand_in.mention(issue, "Which one, @handraise?", by=ada, previous=["We need a database."])
    automatic = await stand_in.mention(None, "Look at this", by=None)
    told = [read(delivery.payload) for delivery in stand_in.deliveries]
    found = await api.sessions(since=LONG_AGO)
    assert [each.session for each in found] == [given, asked, automatic]
    for one, other in zip(found, told, strict=True):
        assert isinstance(other, Created) and replace(other, context=one.context) == one
    assert [each.is_question for each in found] == [False, True, True]
    assert found[0].context == (
        '<issue identifier="ENG-42">\n<title>Choose &lt;one&gt;</title>\n'
        "<description>Fast &amp; small</description>\n</issue>"
    )
    assert found[1].context.endswith("</issue>\n<comment>Which one, @handraise?</comment>")
    assert found[2].context == "<comment>Look at this</comment>"


async def test_sessions_that_are_over_dismissed_or_of_other_agents_are_left_out(api: Api, stand_in: StandIn) -> None:
    ada, other_agent = stand_in.person("Ada"), stand_in.person("Other", app=True)
    issue = stand_in.issue("ENG-42", "Choose the storage")
    over, failed, dismissed, open_one = [await stand_in.delegate(issue, by=ada) for _ in range(4)]
    await stand_in.delegate(issue, by=ada, to=other_agent)
    by_an_agent = await stand_in.delegate(issue, by=other_agent)
    by_ourselves = await stand_in.delegate(issue, by=stand_in.app_user)
    for session, kind in ((over, "response"), (failed, "error")):
        activity = Activity(content={"type": kind, "body": "Done."})
        await api.create(id=activity_id(session), session=session, activity=activity)
    stand_in.dismiss(dismissed)
    found = await api.sessions(since=LONG_AGO)
    assert [each.session for each in found] == [open_one, by_an_agent, by_ourselves]
    assert [each.creator and each.creator.id for each in found] == [ada["id"], None, found[0].app_user]
    assert [each.session for each in await api.sessions(since=LONG_AGO, limit=1)] == [by_ourselves]


async def test_sessions_of_before_are_left_out(api: Api, stand_in: StandIn) -> None:
    ada, issue = stand_in.person("Ada"), stand_in.issue("ENG-42", "Choose the storage")
    await stand_in.delegate(issue, by=ada)
    await asyncio.sleep(0.005)  # Linear's times are in milliseconds
    since = datetime.now(UTC)
    new = await stand_in.delegate(issue, by=ada)
    assert [each.session for each in await api.sessions(since=since - timedelta(milliseconds=1))] == [new]


async def test_prompts_read_as_their_webhooks_do(api: Api, stand_in: StandIn) -> None:
    ada, session = stand_in.person("Ada", email="ada@example.com"), await a_session(stand_in)
    await api.create(id=activity_id("1"), session=session, activity=CHOICE)  # no prompt
    await stand_in.reply(session, "PostgreSQL — größer", by=ada)
    await stand_in.stop(session, by=ada)
    told = [read(delivery.payload) for delivery in stand_in.deliveries[1:]]
    found = await api.prompts(since=LONG_AGO)
    assert [prompt for _, prompt in found] == told
    assert [(prompt.text, prompt.stop) for _, prompt in found] == [("PostgreSQL — größer", False), ("", True)]
    assert [prompt for _, prompt in await api.prompts(since=found[0][0])] == told[1:]
    assert await api.prompts(since=found[1][0]) == []


async def test_prompts_to_other_agents_are_not_ours(api: Api, stand_in: StandIn) -> None:
    ada, issue = stand_in.person("Ada"), stand_in.issue("ENG-42", "Choose the storage")
    theirs = await stand_in.delegate(issue, by=ada, to=stand_in.person("Other", app=True))
    await stand_in.reply(theirs, "stop it", by=ada)
    assert await api.prompts(since=LONG_AGO) == []


async def test_prompts_of_all_pages_come_the_oldest_first(
    api: Api, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_api, "PAGE", 2)
    ada, session = stand_in.person("Ada"), await a_session(stand_in)
    for number in range(5):
        await stand_in.reply(session, str(number), by=ada)
    found = await api.prompts(since=LONG_AGO.astimezone())
    assert [prompt.text for _, prompt in found] == ["0", "1", "2", "3", "4"]
    assert stand_in.calls == ["Prompts"] * 3


async def test_a_session_is_gone_once_dismissed_archived_or_unknown(api: Api, stand_in: StandIn) -> None:
    session = await a_session(stand_in)
    assert not await api.is_gone(session)
    stand_in.dismiss(session)
    assert await api.is_gone(session)
    assert await api.is_gone("4f0e9d8c-7b6a-4594-8372-615243342555")


@pytest.mark.parametrize("code", ["INVALID_INPUT", "GRAPHQL_VALIDATION_FAILED", "INTERNAL_ERROR", "FORBIDDEN"])
async def test_a_session_is_not_gone_for_any_other_refusal(api: Api, stand_in: StandIn, code: str) -> None:
    stand_in.fail(code=code)
    await failing(api.is_gone(await a_session(stand_in)))


# What goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "again"),
    [
        ({"code": "RATELIMITED", "status": 400}, 60),
        ({"code": "RATELIMITED", "status": 200}, 60),
        ({"status": 429, "body": b"slow down"}, 60),
        ({"status": 400, "headers": {"X-RateLimit-Requests-Reset": "{now+90}"}}, 90),
        ({"status": 400, "headers": {"X-RateLimit-Requests-Reset": "{now-5}"}}, 1),
        ({"status": 400, "headers": {"X-RateLimit-Requests-Reset": "9" * 15}}, 3600),
        ({"status": 400, "headers": {"X-RateLimit-Requests-Reset": "9" * 5000}}, 60),
        ({"status": 400, "headers": {"X-RateLimit-Requests-Reset": "soon", "Retry-After": "7"}}, 7),
        ({"status": 429, "headers": {"Retry-After": "0"}}, 1),
        ({"status": 429, "headers": {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}}, 60),
        (
            {
                "status": 400,
                "headers": {
                    "X-RateLimit-Requests-Remaining": "4000",
                    "X-RateLimit-Requests-Reset": "{now+3000}",
                    "X-RateLimit-Complexity-Remaining": "0",
                    "X-RateLimit-Complexity-Reset": "{now+20}",
                },
            },
            20,
        ),
    ],
)
async def test_too_many_calls_say_when_more_are_taken(stand_in: StandIn, failure: dict[str, Any], again: float) -> None:
    clock = FakeClock()
    headers = {key: _instant(value, clock) for key, value in failure.pop("headers", {}).items()}
    stand_in.fail(**failure, headers=headers)
    async with calling(stand_in, clock=clock) as api:
        failed = await failing(api.me())
    assert failed.again == again
    assert str(failed) == f"Linear has had too many calls from this app; it takes more in {again:.0f} s"


def _instant(text: str, clock: Clock) -> str:
    return str(clock.now() + int(text[4:-1]) * 1000) if text.startswith("{now") else text


@pytest.mark.parametrize(
    ("failure", "again", "words"),
    [
        ({"code": "INVALID_INPUT", "message": "body is too long."}, None, "does not take this: body is too long"),
        ({"code": "INPUT_ERROR", "status": 200}, None, "does not take this"),
        ({"code": "GRAPHQL_VALIDATION_FAILED"}, None, "does not take this"),
        ({"code": "FORBIDDEN", "status": 200}, 60, "check its scopes"),
        ({"status": 403, "body": b""}, 60, "check its scopes"),
        ({"code": "INTERNAL_SERVER_ERROR", "status": 200}, 1, "could not do this"),
        ({"code": "LOCK_TIMEOUT"}, 1, "could not do this"),
        ({"code": "SOMETHING_NEW", "status": 503}, 1, "could not do this"),
        ({"code": "SOMETHING_NEW"}, 60, "could not do this"),
        ({"status": 500, "body": b"oops"}, 1, "trouble of its own (status 500)"),
        ({"status": 503, "body": b""}, 1, "trouble of its own"),
        ({"status": 400, "body": b"what"}, 60, "look at `api`"),
        ({"status": 404, "body": b"{}"}, 60, "look at `api`"),
        ({"status": 200, "body": b""}, 1, "cannot be read"),
        ({"status": 200, "body": b"{"}, 1, "cannot be read"),
        ({"status": 200, "body": b"\xff\xfe\xfa"}, 1, "cannot be read"),
        ({"status": 200, "body": b"[" * 100_000}, 1, "cannot be read"),
        ({"status": 200, "body": b"[]"}, 1, "cannot be read"),
        ({"status": 200, "body": b"{}"}, 1, "cannot be read"),
        ({"status": 200, "body": b'{"data": null}'}, 1, "cannot be read"),
        ({"status": 200, "body": b'{"data": {"viewer": null}}'}, 1, "cannot be read"),
        ({"status": 200, "body": b'{"data": {"viewer": []}}'}, 1, "cannot be read"),
        ({"status": 200, "body": b'{"errors": "all of it"}'}, 60, "does not answer as Linear does"),
        ({"status": 200, "body": b'{"errors": [null, {"extensions": 7, "message": []}]}'}, 60, "could not do this"),
    ],
)
async def test_a_failure_says_what_is_wrong_and_when_to_try_again(
    api: Api, stand_in: StandIn, failure: dict[str, Any], again: float | None, words: str
) -> None:
    stand_in.fail(**failure)
    failed = await failing(api.me())
    assert failed.again == again
    assert words in str(failed) and "\n" not in str(failed)
    assert (await api.me()).name == "Handraise"  # and the next call goes through


async def test_a_refused_token_names_the_setting(stand_in: StandIn) -> None:
    for token in ("lin_oauth_old", "lin_api_old"):
        async with calling(stand_in, Access(token=token)) as api:
            failed = await failing(api.me())
            assert failed.again == 60 and token not in str(failed)
            assert str(failed).startswith("Linear refuses the token; look at LINEAR_TOKEN")
    assert stand_in.calls == ["Me", "Me"]  # there is no other token to try


async def test_a_token_is_fetched_once_and_again_after_it_was_refused(stand_in: StandIn) -> None:
    async with calling(stand_in, by_client(stand_in)) as api:
        await api.me()
        await api.me()
        assert stand_in.calls == ["oauth/token", "Me", "Me"]
        stand_in.revoke()
        await api.me()
        assert stand_in.calls[3:] == ["Me", "oauth/token", "Me"]
        stand_in.fail(code="AUTHENTICATION_ERROR", status=200, times=2)
        failed = await failing(api.me())
        assert failed.again == 60 and "LINEAR_CLIENT_ID and LINEAR_CLIENT_SECRET" in str(failed)


async def test_calls_that_are_refused_together_fetch_one_token(stand_in: StandIn) -> None:
    async with calling(stand_in, by_client(stand_in)) as api:
        await asyncio.gather(*(api.me() for _ in range(5)))
        assert stand_in.calls.count("oauth/token") == 1
        stand_in.hang()
        calls = [asyncio.create_task(api.me()) for _ in range(5)]
        await stand_in.until(lambda: stand_in.calls.count("Me") == 10)
        stand_in.revoke()
        stand_in.hang(False)
        await asyncio.gather(*calls)
        assert stand_in.calls.count("oauth/token") == 2


async def test_a_wrong_secret_of_the_app_names_the_settings(stand_in: StandIn) -> None:
    async with calling(stand_in, by_client(stand_in, client_secret="wrong-secret")) as api:
        failed = await failing(api.me())
        assert failed.again == 60 and "LINEAR_CLIENT_ID and LINEAR_CLIENT_SECRET" in str(failed)
        assert "wrong-secret" not in str(failed)
        await failing(api.me())
    assert stand_in.calls == ["oauth/token", "oauth/token"]


async def test_a_linear_that_hangs_is_given_up(stand_in: StandIn) -> None:
    session = await a_session(stand_in)
    stand_in.hang()
    async with calling(stand_in, patience=0.05) as api:
        failed = await failing(api.create(id=activity_id("1"), session=session, activity=THOUGHT))
    assert (str(failed), failed.again) == ("Linear did not answer within 0.05 s", 1)


async def test_a_name_that_no_machine_can_have_is_not_reached() -> None:
    async with Api(Access(token="t"), url="http://127.0.0.1..x", clock=SystemClock()) as api:
        assert str(await failing(api.me())).startswith("Linear cannot be reached at http://")


async def test_a_linear_that_is_not_there_is_tried_again_soon() -> None:
    async with linear() as stand_in:
        pass
    async with calling(stand_in) as api:
        failed = await failing(api.me())
    assert failed.again == 1 and stand_in.url in str(failed) and stand_in.token not in str(failed)


@asynccontextmanager
async def answering(answer: Callable[[Request], Response]) -> AsyncIterator[Api]:
    """Something else at the address of Linear."""
    routes = [Route("/{path:path}", lambda request: answer(request), methods=["GET", "POST"])]
    async with serve(Starlette(routes=routes)) as url, Api(Access(token="t"), url=url, clock=SystemClock()) as api:
        yield api


async def test_no_redirect_is_followed() -> None:
    seen = []

    def elsewhere(request: Request) -> Response:
        seen.append(request.url.path)
        return Response(status_code=307, headers={"Location": "/other"})

    async with answering(elsewhere) as api:
        failed = await failing(api.me())
    assert seen == ["/graphql"] and failed.again == 60 and "status 307" in str(failed)


async def test_no_answer_is_read_without_end() -> None:
    async with answering(lambda _: Response(b" " * (linear_api.LONGEST + 1))) as api:
        failed = await failing(api.me())
    assert str(failed) == "Linear's answer is longer than 4 MiB"


def told(data: Record, **beside: Any) -> Callable[[Request], Response]:
    return lambda _: Response(json.dumps({"data": data, **beside}))


async def test_what_cannot_be_read_in_a_list_is_passed_over() -> None:
    me = {"id": "me"}
    good = {"id": "1", "appUser": me, "status": "a-new-one", "createdAt": 7, "creator": 3, "issue": [], "comment": "x"}
    nodes: list[Any] = [None, 3, {}, {"id": 5, "appUser": me}, {"id": "2", "appUser": None}, good]
    async with answering(told({"viewer": me, "agentSessions": {"nodes": nodes}})) as api:
        assert [each.session for each in await api.sessions(since=LONG_AGO)] == ["1"]
    unusable: list[Any] = [{"nodes": None}, {"nodes": "x"}, [], "x"]
    for broken in unusable:
        async with answering(told({"viewer": me, "agentSessions": broken, "agentActivities": broken})) as api:
            assert await api.sessions(since=LONG_AGO) == [] and await api.prompts(since=LONG_AGO) == []
    session = {"id": "s", "appUser": me}
    good = {"id": "a", "agentSession": session, "createdAt": "yesterday", "signal": "new", "content": None}
    nodes = [None, {}, {"id": "b"}, {"agentSession": session}, {"id": "c", "agentSession": 1}, good]
    async with answering(told({"viewer": me, "agentActivities": {"nodes": nodes, "pageInfo": None}})) as api:
        expected = Prompted(session="s", activity="a", text="", user=None, stop=False, at="yesterday")
        assert await api.prompts(since=LONG_AGO) == [(LONG_AGO, expected)]


async def test_pages_without_end_are_not_all_read(caplog: pytest.LogCaptureFixture) -> None:
    calls = count()

    def page(cursor: Callable[[int], str]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            info = {"hasNextPage": True, "endCursor": cursor(next(calls))}
            return told({"viewer": {"id": "me"}, "agentActivities": {"nodes": [], "pageInfo": info}})(request)

        return answer

    async with answering(page(str)) as api:
        assert await api.prompts(since=LONG_AGO) == []
    assert next(calls) == linear_api.PAGES and "left out" in caplog.text
    calls = count()
    async with answering(page(lambda _: "the same")) as api:
        assert await api.prompts(since=LONG_AGO) == []
    assert next(calls) == 2


async def test_an_answer_in_part_is_used_where_something_is_read_and_fails_where_something_is_done() -> None:
    errors = [{"message": "one field failed", "extensions": {"type": "internal error"}}]
    viewer = {"viewer": {"id": "me"}, "organization": {"id": "o"}}
    async with answering(told(viewer, errors=errors)) as api:
        assert (await api.me()).id == "me"
    done = {"agentSessionCreateOnIssue": {"success": True, "agentSession": {"id": "s"}}}
    async with answering(told(done, errors=errors)) as api:
        assert (await failing(api.open_on_issue("ENG-1", link=None))).again == 1
    unclear: list[Any] = [{"success": False}, {"success": "yes"}, {}, []]
    for undone in unclear:
        async with answering(told({"agentActivityCreate": undone})) as api:
            failed = await failing(api.create(id=activity_id("1"), session="s", activity=THOUGHT))
            assert failed.again == 60


async def test_no_secret_is_said_or_logged(stand_in: StandIn, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = [stand_in.token, stand_in.key, stand_in.client_secret]
    said = []
    for access in (Access(token=stand_in.token), Access(token=stand_in.key), by_client(stand_in)):
        async with calling(stand_in, access) as api:
            await api.me()
            assert api._token is not None
            secrets.append(api._token)
            for code, message in (
                ("INVALID_INPUT", f"no \u202e {api._token}\n!"),
                ("AUTHENTICATION_ERROR", api._token),
            ):
                stand_in.fail(code=code, message=message, times=2)
                failed = await failing(api.me())
                said += [str(failed), repr(failed.__cause__), repr(access), repr(api)]
                stand_in._failures.clear()
    everything = "\n".join([*said, caplog.text])
    assert not [secret for secret in secrets if secret in everything]
    assert "\u202e" not in everything


# Our own mistakes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "activity",
    [
        Activity(content={}),
        Activity(content={"type": "prompt", "body": "I am a person"}),
        Activity(content={"type": "thought"}),
        Activity(content={"type": "thought", "body": "x", "action": "y"}),
        Activity(content={"type": "thought", "body": None}),  # type: ignore[dict-item]
        Activity(content={"type": "action", "action": "Ran"}),
        Activity(content={"type": "action", "body": "Ran"}),
        Activity(content={"type": "action", "action": "Ran", "parameter": "x", "body": "y"}),
        replace(THOUGHT, signal="select", metadata=CHOICE.metadata),
        replace(THOUGHT, metadata={"a": 1}),
        replace(CHOICE, signal="stop"),
        replace(CHOICE, signal="continue"),
        replace(CHOICE, metadata=None),
        replace(CHOICE, metadata={"options": []}),
        replace(CHOICE, metadata={"options": "SQLite"}),
        replace(CHOICE, metadata={"options": ["SQLite"]}),
        replace(CHOICE, metadata={"options": [{"label": "SQLite"}]}),
        replace(CHOICE, metadata={"options": [{"value": 3}]}),
        replace(CHOICE, signal="auth", metadata={"providerName": "x"}),
    ],
)
async def test_what_linear_could_not_show_is_not_sent(api: Api, stand_in: StandIn, activity: Activity) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        await api.create(id=activity_id("1"), session="s", activity=activity)
    assert stand_in.calls == []


async def test_what_stays_is_not_ephemeral_and_an_id_is_one_that_linear_takes(api: Api, stand_in: StandIn) -> None:
    with pytest.raises(ValueError, match="ephemeral"):
        await api.create(id=activity_id("1"), session="s", activity=CHOICE, ephemeral=True)
    for id in ("", "1", "4f0e9d8c-7b6a-1594-8372-615243342555", activity_id("1").upper(), activity_id("1") + "\n"):
        with pytest.raises(ValueError, match="UUID"):
            await api.create(id=id, session="s", activity=THOUGHT)
    with pytest.raises(ValueError, match="zone"):
        await api.prompts(since=datetime(2026, 1, 1))
    for limit in (0, 251):
        with pytest.raises(ValueError, match="250"):
            await api.sessions(since=LONG_AGO, limit=limit)
    assert stand_in.calls == []


@pytest.mark.parametrize("access", [{}, {"client_id": "a"}, {"client_secret": "b"}])
def test_access_is_a_token_or_an_app(access: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="Linear wants a token"):
        Api(Access(**access), clock=SystemClock())


@pytest.mark.parametrize("token", ["", "secret-1\n", "secret-1 é", "secret-1\udce9"])
async def test_what_cannot_be_a_token_is_not_sent(stand_in: StandIn, token: str) -> None:
    async with calling(stand_in, Access(token=token)) as api:
        failed = await failing(api.me())
    assert failed.again == 60 and str(failed).startswith("the token for Linear is not one; look at LINEAR_TOKEN")
    assert "secret-1" not in str(failed) and stand_in.calls == []


async def test_an_app_that_cannot_be_one_is_refused(stand_in: StandIn) -> None:
    async with calling(stand_in, by_client(stand_in, client_id="é \udce9\n")) as api:
        assert (await failing(api.me())).again == 60


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.linear.app",
        "ftp://x",
        "file:///x",
        "https://",
        "https://u:p@x",
        "https://x?a",
        "https://x#a",
        "https://x:y",
    ],
)
def test_the_address_is_one_of_the_web(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        Api(Access(token="t"), url=url, clock=SystemClock())


# The schema, and the stand-in that is held to it --------------------------------------------------------------


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_we_send_is_valid_in_the_schema(name: str) -> None:
    document = parse(DOCUMENTS[name])
    assert validate(SCHEMA, document) == []
    assert [definition.name.value for definition in document.definitions] == [name]  # type: ignore[attr-defined]


def test_the_stand_in_knows_the_schema_of_the_recorded_webhooks() -> None:
    for file in sorted(DATA.glob("webhook-*.json")):
        assert misfits(json.loads(file.read_bytes())) == [], file.name


async def test_its_webhooks_have_the_fields_that_the_schema_says(stand_in: StandIn) -> None:
    ada, issue = stand_in.person("Ada"), stand_in.issue("ENG-42", "Choose the storage")
    session = await stand_in.mention(issue, "Which?", by=ada, previous=["Well."])
    await stand_in.delegate(None, by=None)
    await stand_in.reply(session, "this", by=ada)
    await stand_in.stop(session, by=ada)
    assert [misfits(delivery.payload) for delivery in stand_in.deliveries] == [[]] * 4


def misfits(value: Any, type_: Any = SCHEMA.type_map["AgentSessionEventWebhookPayload"], *, at: str = "") -> list[str]:
    """Where a body differs from its type: a field that is not known, or one that must be there and is not."""
    if isinstance(value, list):
        return [found for number, each in enumerate(value) for found in misfits(each, type_, at=f"{at}[{number}]")]
    fields = getattr(type_, "fields", None)
    if fields is None or value is None:
        return []
    found = [f"{at}.{name} is unknown" for name in value.keys() - fields.keys()]
    for name, each in fields.items():
        if isinstance(each.type, GraphQLNonNull) and value.get(name) is None:
            found.append(f"{at}.{name} is missing")
        found += misfits(value.get(name), get_named_type(each.type), at=f"{at}.{name}")
    return found


async def posting(stand_in: StandIn, query: str, *, token: str | None = None, **variables: Any) -> Record:
    headers = {"Authorization": f"Bearer {token or stand_in.token}"}
    async with httpx2.AsyncClient(trust_env=False, verify=False, headers=headers) as http:
        reply = await http.post(f"{stand_in.url}/graphql", json={"query": query, "variables": variables})
    body: Record = reply.json()
    return {"status": reply.status_code, **body}


CREATE = "mutation C($input: AgentActivityCreateInput!) { agentActivityCreate(input: $input) { success } }"


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        ("query Q { viewer { id shoeSize } }", {}),
        ("query Q { nobody }", {}),
        ("query Q {", {}),
        (CREATE, {}),
        (CREATE, {"input": {"agentSessionId": "s"}}),
        (CREATE, {"input": {"agentSessionId": "s", "content": {}, "signal": "selekt"}}),
        (CREATE, {"input": {"agentSessionId": "s", "content": {}, "colour": "red"}}),
        ("query Q { agentSession(id: 3.5) { id } }", {}),
        ("query Q { agentActivities(orderBy: name) { nodes { id } } }", {}),
    ],
)
async def test_it_refuses_what_is_not_in_the_schema(stand_in: StandIn, query: str, variables: Record) -> None:
    refused = await posting(stand_in, query, **variables)
    assert (refused["status"], refused["errors"][0]["extensions"]["code"]) == (400, "GRAPHQL_VALIDATION_FAILED")


@pytest.mark.parametrize(
    "fields",
    [
        {"content": {"type": "prompt", "body": "x"}},
        {"content": {"type": "poem", "body": "x"}},
        {"content": {"type": "thought", "body": 3}},
        {"content": {"type": "thought", "body": "x", "colour": "red"}},
        {"content": ["thought"]},
        {"content": {"type": "action", "action": "Ran"}},
        {"content": {"type": "response", "body": "x"}, "ephemeral": True},
        {"content": {"type": "thought", "body": "x"}, "signal": "select"},
        {"content": {"type": "elicitation", "body": "x"}, "signal": "select"},
        {"content": {"type": "elicitation", "body": "x"}, "signal": "select", "signalMetadata": {"options": [{}]}},
        {"content": {"type": "elicitation", "body": "x"}, "signal": "auth"},
        {"content": {"type": "elicitation", "body": "x"}, "signal": "stop"},
        {"content": {"type": "thought", "body": "x"}, "id": "mine"},
        {"content": {"type": "thought", "body": "x"}, "agentSessionId": "another"},
    ],
)
async def test_it_refuses_activities_that_linear_could_not_show(stand_in: StandIn, fields: Record) -> None:
    session = await a_session(stand_in)
    refused = await posting(stand_in, CREATE, input={"agentSessionId": session, **fields})
    assert (refused["status"], refused["data"]) == (200, None)
    assert refused["errors"][0]["extensions"]["type"] == "invalid input"
    assert stand_in.posted(session) == [] and stand_in.status(session) == "pending"


async def test_it_wants_the_token_that_is_valid_now(stand_in: StandIn) -> None:
    for token in ("None", "other", stand_in.client_secret):
        refused = await posting(stand_in, "{ viewer { id } }", token=token)
        assert (refused["status"], refused["errors"][0]["extensions"]["code"]) == (401, "AUTHENTICATION_ERROR")
    bare = await posting(stand_in, "{ viewer { id } }", token=stand_in.key)
    assert (bare["status"], bare["errors"][0]["extensions"]["code"]) == (400, "INPUT_ERROR")
    async with calling(stand_in, by_client(stand_in)) as first, calling(stand_in, by_client(stand_in)) as second:
        await first.me()
        await second.me()  # which ends the token of the first
        await first.me()
    assert stand_in.calls[4:] == ["oauth/token", "Me", "oauth/token", "Me", "Me", "oauth/token", "Me"]


async def test_it_pages_and_filters_the_newest_first(stand_in: StandIn) -> None:
    ada, session, other = stand_in.person("Ada"), await a_session(stand_in), await a_session(stand_in)
    ids = [await stand_in.reply(session, str(number), by=ada) for number in range(5)]
    theirs = await stand_in.reply(other, "other", by=ada)

    async def listed(how: str) -> tuple[list[str], Record]:
        answer = await posting(
            stand_in,
            f"{{ agentActivities({how}) {{ nodes {{ id createdAt }} pageInfo {{ hasNextPage endCursor }} }} }}",
        )
        page: Record = answer["data"]["agentActivities"]
        return [node["id"] for node in page["nodes"]], page["pageInfo"]

    assert await listed("first: 2") == ([theirs, ids[4]], {"hasNextPage": True, "endCursor": ids[4]})
    assert await listed(f'first: 9, after: "{ids[1]}"') == ([ids[0]], {"hasNextPage": False, "endCursor": ids[0]})
    assert (await listed(f'last: 2, before: "{ids[1]}"'))[0] == [ids[3], ids[2]]
    assert (await listed(f'filter: {{agentSessionId: {{eq: "{other}"}}}}'))[0] == [theirs]
    assert (await listed(f'filter: {{type: {{neq: "prompt"}}}}'))[0] == []  # noqa: F541
    at = stand_in._activities[ids[3]]["createdAt"]
    for how, found in (("gt", [theirs, ids[4]]), ("gte", [theirs, ids[4], ids[3]]), ("eq", [ids[3]])):
        assert (await listed(f'filter: {{createdAt: {{{how}: "{at}"}}}}'))[0] == found
    either = f'{{id: {{in: ["{ids[0]}"]}}}}, {{id: {{eq: "{ids[1]}"}}}}'
    assert (await listed(f"filter: {{or: [{either}]}}"))[0] == [ids[1], ids[0]]
    assert (await listed(f"filter: {{and: [{either}]}}"))[0] == []
    for wrong in ("first: 0", "first: 251", 'after: "nowhere"', 'filter: {createdAt: {gt: "soon"}}'):
        refused = await posting(stand_in, f"{{ agentActivities({wrong}) {{ nodes {{ id }} }} }}")
        assert refused["errors"][0]["extensions"]["code"] == "INVALID_INPUT", wrong


async def test_it_keeps_links_and_plans(stand_in: StandIn) -> None:
    session = await a_session(stand_in)
    update = DOCUMENTS["AddLink"]
    plan = [{"content": "Choose", "status": "inProgress"}]
    links = [{"label": name, "url": f"https://desk.example/{name}"} for name in "ab"]
    await posting(stand_in, update, id=session, input={"plan": plan, "externalUrls": links})
    assert (stand_in.plan(session), stand_in.links(session)) == (plan, links)
    await posting(stand_in, update, id=session, input={"removedExternalUrls": [links[0]["url"]]})
    assert stand_in.links(session) == links[1:]
    for wrong in ({"plan": [{"content": "x", "status": "done"}]}, {"addedExternalUrls": links[1:]}):
        refused = await posting(stand_in, update, id=session, input=wrong)
        assert refused["errors"][0]["extensions"]["code"] == "INVALID_INPUT"


@asynccontextmanager
async def receiving(stand_in: StandIn) -> AsyncIterator[list[tuple[dict[str, str], bytes]]]:
    """Whoever takes the webhooks."""
    received: list[tuple[dict[str, str], bytes]] = []

    async def take(request: Request) -> Response:
        received.append((dict(request.headers), await request.body()))
        return Response(status_code=202)

    async with serve(Starlette(routes=[Route("/webhooks/linear", take, methods=["POST"])])) as url:
        stand_in.webhook = f"{url}/webhooks/linear"
        yield received


async def test_its_deliveries_are_signed_and_stamped_by_its_clock() -> None:
    clock = FakeClock()
    async with linear(clock=clock) as stand_in, receiving(stand_in) as received:
        session = await a_session(stand_in)
        await stand_in.reply(session, "größer", by=stand_in.person("Ada"))
        await clock.advance(3600)
        assert await stand_in.redeliver(fresh=False) == 202
        assert await stand_in.redeliver() == 202
        assert await stand_in.deliver({"type": "OAuthApp", "action": "revoked"}, secret="other", id="one") == 202
        async with serve(Starlette()) as stand_in.webhook:
            pass
        assert await stand_in.reply(session, "to nobody", by=stand_in.person("Ada"))
        assert stand_in.deliveries[-1].status == 0
    start, now = clock.now() - 3_600_000, clock.now()
    for (headers, raw), stamp in zip(received[:4], (start, start, start, now), strict=True):
        body = verify(raw, signature=headers["linear-signature"], secrets=[stand_in.secret], now=stamp)
        assert body["webhookTimestamp"] == stamp
    ids = [headers["linear-delivery"] for headers, _ in received]
    assert ids[1] == ids[2] == ids[3] != ids[0] and ids[4] == "one"
    headers, raw = received[4]
    assert verify(raw, signature=headers["linear-signature"], secrets=["other"], now=now)["type"] == "OAuthApp"
    assert headers["linear-event"] == "OAuthApp"


async def test_times_go_on_where_the_clock_stands_still() -> None:
    clock = FakeClock()
    async with linear(clock=clock) as stand_in, calling(stand_in, clock=clock) as api:
        session = await a_session(stand_in)
        for number in range(3):
            await stand_in.reply(session, str(number), by=stand_in.person("Ada"))
        found = await api.prompts(since=LONG_AGO)
        assert [prompt.text for _, prompt in await api.prompts(since=found[0][0])] == ["1", "2"]
        assert found[0][0] - datetime.fromtimestamp(clock.now() / 1000, UTC) < timedelta(seconds=1)


async def test_whoever_waits_in_vain_is_told_what_there_was(stand_in: StandIn, api: Api) -> None:
    session = await a_session(stand_in)
    waiting = asyncio.create_task(stand_in.until(lambda: stand_in.activities(session)))
    await api.create(id=activity_id("1"), session=session, activity=THOUGHT)
    await waiting
    with pytest.raises(AssertionError, match="On it"):
        await stand_in.until(lambda: False, timeout=0)
