"""What Linear sends and shows, read and written without a network: signatures, webhooks, elicitations, replies."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from handraise.asks import Ask, Option, Origin, Permission, Question
from handraise.asks.plain import to_entries
from handraise.channels.linear.saying import mirrored
from handraise.channels.linear.translate import elicitation, refusal_in, reply_in
from handraise.channels.linear.webhooks import BadSignature, Created, Other, Prompted, Stale, read, verify
from handraise.errors import AnswerDoesNotFit
from handraise.tables.sessions import SaidMessage
from handraise.wire import BadBody

DATA = Path(__file__).parents[1] / "data" / "linear"
VECTORS = json.loads((DATA / "signature-vectors.json").read_text())
SECRET = VECTORS["secret"]
ORIGIN = Origin(agent="claude", session="s1")


def raw_of(vector: dict[str, Any]) -> bytes:
    return (DATA / vector["file"]).read_bytes() if "file" in vector else vector["body"].encode()


@pytest.mark.parametrize("vector", [each for each in VECTORS["vectors"] if "timestamp" in each])
def test_what_linear_signed_is_taken(vector: dict[str, Any]) -> None:
    body = verify(raw_of(vector), signature=vector["signature"], secrets=["other", SECRET], now=vector["timestamp"])
    assert body["webhookTimestamp"] == vector["timestamp"]


def test_other_bytes_other_case_or_no_signature_are_refused() -> None:
    vector = VECTORS["vectors"][0]
    raw, now = raw_of(vector), vector["timestamp"]
    for given, bytes_ in (
        (None, raw),
        ("", raw),
        (vector["signature"].upper(), raw),
        (vector["signature"], json.dumps(json.loads(raw)).encode()),
        (vector["signature"], raw + b" "),
        ("é" * 64, raw),
    ):
        with pytest.raises(BadSignature):
            verify(bytes_, signature=given, secrets=[SECRET], now=now)
    with pytest.raises(BadSignature):
        verify(raw, signature=vector["signature"], secrets=[], now=now)


@pytest.mark.parametrize("apart", [60_001, -60_001, 10**12])
def test_what_is_too_old_or_too_early_is_refused(apart: int) -> None:
    vector = VECTORS["vectors"][0]
    with pytest.raises(Stale):
        verify(raw_of(vector), signature=vector["signature"], secrets=[SECRET], now=vector["timestamp"] + apart)


@pytest.mark.parametrize(
    "body",
    [
        b'{"webhookTimestamp":NaN}',
        b'{"webhookTimestamp":Infinity}',
        b'{"webhookTimestamp":-Infinity}',
        b'{"webhookTimestamp":1e999}',
        b'{"webhookTimestamp":1%s}' % (b"0" * 400),
        b'{"webhookTimestamp":1%s}' % (b"0" * 5000),
        b'{"webhookTimestamp":0,"x":NaN}',
        b'{"webhookTimestamp":0,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"webhookTimestamp":0,"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"webhookTimestamp":0,"x":[' + b"[]," * 100_000 + b"1]}",
        b"\xff",
        b"nonsense",
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_a_signed_body_that_no_place_sends_is_refused_as_one(body: bytes) -> None:
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    with pytest.raises(BadBody):
        verify(body, signature=signature, secrets=[SECRET], now=0)


def test_recorded_webhooks_are_read() -> None:
    created = read(json.loads((DATA / "webhook-created.json").read_bytes()))
    assert isinstance(created, Created) and not created.is_question
    assert created.issue is not None and created.issue.identifier == "ENG-42"
    picked = read(json.loads((DATA / "webhook-prompted.json").read_bytes()))
    assert isinstance(picked, Prompted) and (picked.text, picked.stop) == ("SQLite", False)
    stop = read(json.loads((DATA / "webhook-prompted-stop.json").read_bytes()))
    assert isinstance(stop, Prompted) and stop.stop


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": "OAuthApp", "action": "revoked"},
        {"type": "AgentSessionEvent", "action": "new", "agentSession": {"id": "x"}},
    ],
)
def test_what_is_not_ours_is_left_alone(body: dict[str, Any]) -> None:
    assert isinstance(read(body), Other)


STORAGE = Question(
    "Which?", (Option("SQLite", description="one file"), Option("PostgreSQL"), Option("2 tables")), header="Storage"
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("SQLite", "SQLite"),
        (" sqlite\n", "SQLite"),
        ("1", "SQLite"),
        ("2.", "PostgreSQL"),
        ("2 tables", "2 tables"),
        ("3)", "2 tables"),
        ("both", "both"),
    ],
)
def test_a_reply_is_a_choice_or_own_words(text: str, value: str) -> None:
    assert to_entries(STORAGE, text) == (value,)


def test_several_are_read_from_one_text() -> None:
    several = Question("Which?", STORAGE.options, multiple=True)
    assert to_entries(several, "1, postgresql; 1") == ("SQLite", "PostgreSQL")
    assert to_entries(several, "1 and something") == ("1 and something",)


def test_without_own_words_what_fits_nothing_is_unclear() -> None:
    with pytest.raises(AnswerDoesNotFit):
        to_entries(Question("Which?", STORAGE.options, custom=False), "both")


@pytest.mark.parametrize(
    ("text", "reply"), [("Allow once", "once"), ("ALLOW ONCE", "once"), ("1", "once"), ("2", "reject")]
)
def test_a_permission_is_granted_by_plain_words_only(text: str, reply: str) -> None:
    assert reply_in(Permission(tool="Bash"), text) == (reply, None)


@pytest.mark.parametrize(
    ("text", "reason"), [("deny", None), ("No", None), ("Deny", None), ("no: not today", "not today"), ("skip", None)]
)
def test_a_permission_is_refused_by_a_word_and_maybe_a_reason(text: str, reason: str | None) -> None:
    assert refusal_in(Ask(id="a", origin=ORIGIN, permission=Permission(tool="Bash")), 0, text) == (True, reason)


@pytest.mark.parametrize("text", ["", "ok", "yes", "sure, allow it", "always", "👍"])
def test_anything_else_grants_nothing(text: str) -> None:
    with pytest.raises(AnswerDoesNotFit):
        reply_in(Permission(tool="Bash"), text)


def test_what_an_agent_wrote_is_no_markup() -> None:
    ask = Ask(id="a", origin=ORIGIN, questions=(Question("![x](http://evil) @ana <b>", (Option("[a](b)"),)),))
    shown = elicitation(ask, 0)
    assert "![" not in shown.content["body"] and "\\!\\[x\\]" in shown.content["body"]
    fenced = elicitation(Ask(id="a", origin=ORIGIN, permission=Permission(tool="Bash", command="echo ```\n# hi")), 0)
    assert "````\necho ```\n# hi\n````" in fenced.content["body"]


def said(*messages: tuple[str, str]) -> list[SaidMessage]:
    extra = {"name": "Bash"}
    return [
        SaidMessage(id=f"{at:03}", session="s", role=role, text=text, extra=extra if role == "tool" else None, at=at)
        for at, (role, text) in enumerate(messages)
    ]


def test_few_words_tell_what_an_agent_says_and_does() -> None:
    posts, last = mirrored(
        said(
            ("person", "Go"), ("agent", "First."), ("tool", "ls"), ("agent", "Then."), ("tool", "make"), ("agent", "?")
        ),
        is_over=False,
    )
    assert [(post.activity.content, post.ephemeral) for post in posts] == [
        ({"type": "thought", "body": "First.\n\nThen."}, False),
        ({"type": "action", "action": "Bash", "parameter": "make"}, True),
    ]
    assert last == "004"  # what it said last may be its response, and waits


def test_the_last_word_of_a_turn_is_left_to_the_response() -> None:
    posts, last = mirrored(said(("agent", "First."), ("tool", "ls"), ("agent", "Done.")), is_over=True)
    assert [post.activity.content for post in posts] == [{"type": "thought", "body": "First."}]
    assert last == "002"
    assert mirrored(said(("agent", "Perhaps the end")), is_over=False) == ([], "")


def test_a_tool_that_asks_is_not_told_as_something_done() -> None:
    asking = SaidMessage(id="1", session="s", role="tool", text="…", extra={"name": "AskUserQuestion"}, at=1)
    assert mirrored([asking], is_over=False) == ([], "1")
