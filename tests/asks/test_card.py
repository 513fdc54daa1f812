"""The card: computed once, and no place leaves anything of it out without saying so."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from handraise.asks import Answer, Ask, Option, Origin, Permission, Question, Scope
from handraise.asks.card import Card, is_longer, shown_paths, to_card, whole_of
from handraise.asks.plain import CUT, to_text
from handraise.broker import Broker
from handraise.channels.linear.translate import elicitation
from handraise.channels.notify import LONGEST, Told
from handraise.channels.terminal.drawing import draw
from handraise.channels.terminal.filling import Form
from handraise.channels.terminal.painting import Painter
from handraise.rules.risks import judge
from handraise.server.pages.ask import AskForm
from handraise.server.pages.typed import Typed
from handraise.stores import Store
from handraise.testing import a_permission, an_ask
from handraise.text.inert import inert
from handraise.text.words import speak
from handraise.wire import Stored, answer_text, content_text, judgement_text, to_milliseconds
from tests.helpers.serving import a_permission_body, serving

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
ORIGIN = Origin(agent="claude", session="s1", cwd="/shop")
DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1,1 +1,1 @@\n-old\n+new\u200b  \n"
LIE = "Only looks at the weather"
LINK = "https://desk.example.com/#/ask/p1"
ENGLISH = speak("en")


def wanting(**fields: Any) -> Ask:
    """A permission as a desk tells it."""
    ask = Ask(id="p1", permission=Permission(**{"tool": "Bash", **fields}), origin=ORIGIN)
    judged = judge(ask)
    return replace(
        ask,
        risks=judged.risks,
        commands=judged.commands,
        doubt=judged.doubt,
        only_at_desk=judged.only_at_desk,
        deadline=NOON + timedelta(hours=1),
        fallback=Answer(rejected=True),
    )


EVERYTHING: dict[str, Any] = {
    "command": "rm -rf build && git push --force",
    "paths": ("notes.txt", "b.py"),
    "resolved": ("/etc/passwd", "/shop/b.py"),
    "cwd": "/shop",
    "resolved_cwd": "/shop",
    "diff": DIFF,
    "url": "https://safe.example@evil.example/x",
    "input": {"then": "git push", "deep": {"more": ["reboot"]}},
    "summary": LIE,
}
ASKS = {
    "everything": wanting(**EVERYTHING),
    "harmless": wanting(command="git status", input={"command": "git status"}),
    "hidden": wanting(command="echo a\u202e\tb \n second ", summary="Say\u200b hello"),
    "unknown arguments": wanting(tool="mcp__bank__pay", input={"to": "eve", "sum": 10**6}, summary=LIE),
    "change": wanting(
        tool="Edit", paths=("a.py",), diff=DIFF, input={"file_path": "a.py", "mode": "push --force", "line": 5}
    ),
    "change unseen": wanting(tool="Write", paths=("a.py", "b.py")),
    "long": wanting(command="rm -rf " + "x/" * 30_000 + "end", summary=LIE),
    "long change": wanting(tool="Edit", paths=("a.py",), diff="--- a.py\n+++ a.py\n" + "+line\n" * 3_000, summary=LIE),
    "many paths": wanting(tool="Read", paths=tuple(f"/etc/{number}.key" for number in range(300))),
    "plan": wanting(
        tool="ExitPlanMode",
        kind="plan",
        input={"plan": "# Plan\n\n1. Build it", "also": "deploy"},
        extra={"input": {"allowedPrompts": ["rm"], "planFilePath": "/x"}},
    ),
    "address": wanting(tool="WebFetch", url="https://docs.example/a?b=c", input={"method": "DELETE"}),
}


def line_mode(ask: Ask) -> str:
    return draw(ask, columns=100, now=NOON)


def full_mode(ask: Ask) -> str:
    form = Form(ask)
    painted = Painter(form, columns=100, rows=40, colour=False, now=NOON).paint()
    return "\n".join([*painted.top, *painted.bottom])


def linear(ask: Ask) -> str:
    return re.sub(r"\\([^\w\s])", r"\1", elicitation(ask, 0).content["body"])


def short_text(ask: Ask) -> str:
    return to_text(ask, longest=1_000)


def notification(ask: Ask) -> str:
    return Told(ENGLISH, ask).body(LINK, is_personal=False, longest=LONGEST)


def answer_page(ask: Ask) -> str:
    content, judged = content_text(ask), judgement_text(judge(ask))
    assert ask.deadline is not None and ask.fallback is not None
    stored = Stored(
        seq=1,
        id=ask.id,
        owner="",
        worker=None,
        session="s1",
        run=None,
        agent="claude",
        content=content,
        openings=1,
        state="asked",
        asked_at=to_milliseconds(NOON),
        timeout=None,
        deadline=to_milliseconds(ask.deadline),
        fallback=answer_text(ask.fallback),
        answer=None,
        delivered_at=None,
        delivery_error=None,
        withdrawn_reason=None,
        judgement=judged,
    )
    page = bytes(AskForm(ENGLISH, stored).draw(Typed()).body).decode()
    return html.unescape(re.sub(r"<[^>]*>", "", page.partition("<h1")[2]))


# Each place, with what it says where something is missing.
PLACES: dict[str, tuple[Callable[[Ask], str], str]] = {
    "line mode": (line_mode, "never"),
    "full mode": (full_mode, "changed lines: p shows them above"),
    "linear": (linear, "characters more at the desk"),
    "text": (to_text, "never"),
    "short text": (short_text, re.escape(CUT)),
    "answer page": (answer_page, "This is not all of it; the desk shows the rest"),
    "notification": (notification, f"This is not all of it; the desk shows the rest|…\n[^>]*{re.escape(LINK)}$"),
}


def flat(text: str) -> str:
    """Without blanks, and without what places show in their stead."""
    return re.sub(r"\s|·|⏎|\\t|\\n", "", text)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ASKS)
def test_every_part_is_shown_or_said_to_be_missing(name: str, place: str) -> None:
    draws, missing = PLACES[place]
    shown = draws(ASKS[name])
    seen, card = flat(shown), to_card(ASKS[name])
    is_said = re.search(missing, shown) is not None
    for part in card.parts:
        lines = [line for text in part.texts for line in text.split("\n")]
        left_out = [line for line in lines if flat(inert(line, keep="")) not in seen]
        assert not left_out or is_said, f"{place} hides {part.name}: {left_out[:3]}"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ASKS)
def test_every_risk_and_every_doubt_is_shown(name: str, place: str) -> None:
    shown = flat(PLACES[place][0](ASKS[name]))
    for warning in to_card(ASKS[name]).warnings(ENGLISH):
        assert flat(warning) in shown


@pytest.mark.parametrize("place", PLACES)
def test_hidden_characters_are_told_and_shown(place: str) -> None:
    shown = PLACES[place][0](ASKS["hidden"])
    assert "Contains hidden characters" in shown and "\\u202e" in shown
    assert not re.search("[\u202e\u200b]", shown)


@pytest.mark.parametrize("place", PLACES)
def test_what_silence_does_is_told(place: str) -> None:
    shown = PLACES[place][0](ASKS["everything"])
    assert re.search(r"If nobody answers by .*13:00.*, it is denied|No answer by 13:00 → denied", shown)


@pytest.mark.parametrize("place", PLACES)
def test_what_the_agent_says_comes_second_and_is_marked(place: str) -> None:
    shown = PLACES[place][0](ASKS["everything"])
    assert f"claude says: {LIE}" in shown
    assert shown.index("rm -rf build") < shown.index(LIE)
    assert LIE not in shown.partition("\n")[0]


def test_line_mode_says_no_more_of_what_is_not_risky() -> None:
    ask = replace(wanting(command="git status && git log", summary="Look"), deadline=None, fallback=None)
    assert draw(ask, columns=100).split("\n")[2:-1] == [
        "claude wants to run a command",
        "  │ git status && git log",
        "tool Bash",
        "Look",
    ]


# What it is made of -----------------------------------------------------------------------------------------


def heading(**fields: Any) -> str:
    return to_card(wanting(**fields)).heading.say(ENGLISH, show=lambda text, limit: text[:limit])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tool": "Edit", "paths": ("/shop/a.py",), "diff": DIFF}, "change 1 file"),
        ({"tool": "Edit", "paths": ("b.py",), "diff": DIFF}, "change 2 files"),
        ({"tool": "Edit", "diff": "*** Update File: a\n+x\n*** Add File: b\n+y"}, "change 2 files"),
        ({"tool": "Edit", "diff": "+" * 500_000, "paths": ("a", "b", "c")}, "change 3 files"),
        ({"tool": "Read", "paths": ("a", "b", "c")}, "read a and 2 more"),
        ({"tool": "thread_delete", "paths": ("a",)}, "use thread_delete"),
        ({"tool": "publish", "url": "https://a.example"}, "use publish"),
        ({"tool": "fetch", "url": "https://a.example\\@b.example/"}, "open https://a.example\\@b.example/"),
        ({"tool": "fetch", "url": "https://а.example/"}, "open https://а.example/"),
        ({"tool": "fetch", "url": "http://[::1]:80/x"}, "open ::1"),
        ({"tool": "ExitPlanMode", "kind": "plan", "command": "rm x"}, "run a command"),
    ],
)
def test_the_heading_promises_no_more_than_the_desk_knows(fields: dict[str, Any], sentence: str) -> None:
    assert heading(**fields) == f"claude wants to {sentence}"


def test_a_card_refers_to_the_texts_of_its_ask() -> None:
    ask = ASKS["long"]
    assert ask.permission is not None
    command = to_card(ask).named("command")
    assert command is not None and command.value is ask.permission.command


def test_what_a_part_says_already_is_not_said_again_as_the_agents_word() -> None:
    assert to_card(wanting(command="git  status", summary="git status")).claim == ""
    assert to_card(wanting(command="git status", summary="Look")).claim == "Look"


def test_numbers_that_a_diff_does_not_show_are_arguments() -> None:
    card = to_card(wanting(tool="Edit", paths=("a.py",), diff=DIFF, input={"line": 5, "deep": {"mode": [511]}}))
    arguments = card.named("arguments")
    assert arguments is not None and arguments.value == {"line": 5, "deep": {"mode": [511]}}


def test_a_path_says_where_its_link_leads() -> None:
    permission = ASKS["everything"].permission
    assert permission is not None
    assert shown_paths(permission) == ("notes.txt → /etc/passwd", "b.py")


def test_all_of_it_is_what_a_place_is_measured_by() -> None:
    card, permission = to_card(ASKS["everything"]), ASKS["everything"].permission
    assert permission is not None
    assert card.whole == whole_of(permission)
    assert is_longer(permission, len(card.whole)) and not is_longer(permission, len(inert(card.whole)))


def test_what_may_be_done_where_is_a_part_of_it() -> None:
    risky, harmless = to_card(ASKS["everything"]), to_card(ASKS["harmless"])
    assert (risky.needs_second_press, risky.only_at_desk) == (True, "it can do harm")
    assert (harmless.needs_second_press, harmless.only_at_desk) == (False, None)
    scopes = (Scope(id="session"), Scope(id="project"))
    wide = to_card(wanting(command="ls", replies=("always", "once", "reject"), scopes=scopes))
    assert wide.ways == (("once", None), ("always", "session"), ("always", "project"))


def test_a_question_says_what_silence_picks() -> None:
    question = Question("Which?", (Option("SQLite", value="1"), Option("Postgres", value="2")), multiple=True)
    picks = Answer(answers=(("1", "2"),))
    ask = Ask(id="q1", questions=(question,), origin=ORIGIN, remaining=60, deadline=NOON, fallback=picks)
    silence = to_card(ask, now=NOON).silence
    assert silence is not None
    assert (silence.at, silence.does, silence.picks) == (NOON + timedelta(minutes=1), "pick", (("SQLite", "Postgres"),))
    assert to_card(replace(ask, fallback=Answer(rejected=True))).silence == replace(
        silence, at=NOON, does="reject", picks=()
    )


@pytest.mark.parametrize("paths", [("a/" * 10_000 + "b",) * 500, tuple(f"{number}/a.py" for number in range(50_000))])
def test_a_hostile_list_of_paths_is_counted_in_time(paths: tuple[str, ...]) -> None:
    diff = "".join(f"--- a/{number}.py\n+++ b/{number}.py\n" for number in range(3_000))
    card: Card = to_card(Ask(id="p", permission=Permission(tool="Edit", paths=paths, diff=diff), origin=ORIGIN))
    assert card.heading.count == 3_000 + len(set(paths))


# What is told with an ask -----------------------------------------------------------------------------------


def told(ask: Ask) -> dict[str, Any]:
    text = judgement_text(judge(ask), card=to_card(ask, judge(ask)))
    fields: dict[str, Any] = json.loads(f"{{{text[1:]}}}")
    card: dict[str, Any] = fields["card"]
    return card


@pytest.mark.parametrize(
    ("name", "card"),
    [
        (
            "everything",
            {
                "heading": {"key": "perm.title.command"},
                "parts": ["command", "commands", "paths", "url", "diff", "arguments"],
                "arguments": ["then", "deep"],
                "elsewhere": [0],
                "host": "evil.example",
                "claim": True,
            },
        ),
        ("harmless", {"heading": {"key": "perm.title.command"}, "parts": ["command"], "notification": True}),
        (
            "change unseen",
            {"heading": {"key": "perm.title.edit", "count": 2}, "parts": ["paths"], "lacks_diff": True},
        ),
        (
            "plan",
            {
                "heading": {"key": "perm.title.plan"},
                "parts": ["plan", "arguments", "approved"],
                "arguments": ["also"],
                "approved": ["allowedPrompts"],
            },
        ),
        (
            "address",
            {
                "heading": {"key": "perm.title.fetch"},
                "host": "docs.example",
                "parts": ["url", "arguments"],
                "arguments": ["method"],
            },
        ),
    ],
)
def test_a_card_is_told_by_the_names_of_fields(name: str, card: dict[str, Any]) -> None:
    assert told(ASKS[name]) == card


@pytest.mark.parametrize("name", ASKS)
def test_a_card_that_is_told_is_small_however_long_its_ask(name: str) -> None:
    assert len(json.dumps(told(ASKS[name]))) < 400


def test_many_arguments_are_not_named_one_by_one() -> None:
    for hostile in ({f"name {number}": "x" for number in range(10_000)}, {"x" * 500_000: "y"}):
        card = told(wanting(tool="post", input=hostile))
        assert card["parts"] == ["arguments"] and "arguments" not in card


async def test_a_desk_tells_the_card_with_a_permission_and_none_with_a_question(store: Store) -> None:
    async with Broker(store) as broker:
        wanted = (await broker.open(a_permission(command="git status"))).stored
        asked = (await broker.open(an_ask())).stored
        assert json.loads(wanted.text(0))["card"]["parts"] == ["command"]
        assert "card" not in json.loads(asked.text(0))
        assert wanted.ask().permission == a_permission(command="git status").permission


async def test_who_asks_cannot_say_what_is_on_the_card(tmp_path: Path) -> None:
    lies = {"heading": {"key": "inbox.empty"}, "parts": []}
    async with serving(tmp_path, database="sqlite:///:memory:") as desk:
        body = a_permission_body(id="p1") | {"card": lies, "extra": {"card": lies}}
        reply = await desk.http.post("/v1/asks", json=body)
        assert reply.status_code == 201
        card = (await desk.get("p1"))["card"]
        assert card["heading"] == {"key": "perm.title.command"} and card["parts"][0] == "command"
