"""`always` where the desk remembers it: what a grant covers, for whom, and who decided in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from handraise import audit
from handraise.asks import Answer, Ask, Handling, Scope
from handraise.broker import Broker
from handraise.policies.remembered import Grant, remembered
from handraise.stores import Store
from handraise.testing import FakeClock, a_permission, an_ask

GIT = Grant(agent="scripted", tool="Bash", patterns=("git *",), by="ana")
OFFERED = ("git *", "make test")


def wanting(*parts: str, id: str = "permission-1", scopes: tuple[Scope, ...] | None = None, **changes: Any) -> Ask:
    """An ask for a permission to do these parts, whose `always` the desk is to remember."""
    kept = (Scope(id="session", label="this session", patterns=OFFERED, by_desk=True),)
    return about(list(parts), id=id, scopes=kept if scopes is None else scopes, **changes)


def about(parts: Any, **changes: Any) -> Ask:
    ask = a_permission(**changes)
    assert ask.permission is not None
    return replace(ask, permission=replace(ask.permission, extra={"patterns": parts}))


@pytest.fixture
async def desk(store: Store, fake_clock: FakeClock) -> AsyncIterator[Broker]:
    async with Broker(store, clock=fake_clock) as broker:
        yield broker


async def say(desk: Broker, ask: Ask, reply: str = "always", **more: Any) -> None:
    await desk.open(ask)
    await desk.answer(ask.id, Answer(reply=reply, by="ana", via="cli", **more))


async def state_of(desk: Broker, ask: Ask, **how: Any) -> str:
    return (await desk.open(ask, **how)).stored.state


# What a grant covers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("git *", "git status"),
        ("git *", "git"),
        ("git *", "git log --oneline -- src/*.py"),
        ("make test", "make test"),
        ("*", "anything at all"),
        ("npm run * --quiet", "npm run build --quiet"),
        ("src/*", "src/a/b.py"),
        ("a.b", "a.b"),
        ("echo [x] (y) *", "echo [x] (y) z"),
        ("grüße *", "grüße 😀"),
    ],
)
def test_a_pattern_covers_what_it_says(pattern: str, part: str) -> None:
    answer = remembered(wanting(part), [Grant(agent="scripted", tool="Bash", patterns=(pattern,), by="ana")])
    assert answer is not None
    assert (answer.reply, answer.by, answer.via) == ("once", "policy:always", "policy")
    assert answer.why == (f"ana allowed {pattern} for this session",)


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("git *", "gitk"),
        ("git *", "rm -rf / # git "),
        ("git *", ""),
        ("git", "git status"),
        ("git *", "GIT status"),
        ("make test", "make test install"),
        ("npm run * --quiet", "npm run build"),
        ("a.b", "axb"),
        ("a+", "aaa"),
        ("", "git"),
    ],
)
def test_a_pattern_covers_nothing_else(pattern: str, part: str) -> None:
    grant = Grant(agent="scripted", tool="Bash", patterns=(pattern,), by="ana")
    assert remembered(wanting(part), [grant]) is None


@pytest.mark.parametrize(
    "part",
    [
        "git log $(rm -rf /)",
        "git log `rm -rf /`",
        "git diff <(rm -rf /)",
        "git log >(rm -rf /)",
        "git log\nrm -rf /",
        "git log\rrm -rf /",
    ],
)
def test_nothing_that_a_shell_runs_inside_is_covered(part: str) -> None:
    anything = Grant(agent="scripted", tool="Bash", patterns=("git *", "*"), by="ana")
    assert remembered(wanting(part), [anything]) is None


def test_every_part_has_to_be_covered_be_it_by_several_grants() -> None:
    make = Grant(agent="scripted", tool="Bash", patterns=("make test",), by="bob")
    both = wanting("git status", "make test")
    assert remembered(both, [GIT]) is None
    answer = remembered(both, [GIT, make])
    assert answer is not None
    assert answer.why == ("ana allowed git * for this session", "bob allowed make test for this session")


def test_a_grant_is_for_one_agent_and_one_tool() -> None:
    assert remembered(wanting("git status", agent="claude"), [GIT]) is None
    assert remembered(wanting("git status", tool="Write"), [GIT]) is None
    assert remembered(wanting("git status"), []) is None


def test_an_ask_whose_agent_remembers_by_itself_is_left_alone() -> None:
    assert remembered(wanting("git status", scopes=(Scope(id="session", patterns=OFFERED),)), [GIT]) is None
    assert remembered(wanting("git status", scopes=()), [GIT]) is None


@pytest.mark.parametrize("parts", [None, [], "git status", [1], {"git status": 1}])
def test_an_ask_that_does_not_say_what_it_is_about_is_never_covered(parts: Any) -> None:
    everything = Grant(agent="scripted", tool="Bash", patterns=("*",), by="ana")
    kept = (Scope(id="session", patterns=OFFERED, by_desk=True),)
    assert remembered(about(parts, scopes=kept), [everything]) is None
    assert remembered(a_permission(scopes=kept), [everything]) is None
    assert remembered(about(["git status"], scopes=kept), [everything]) is not None


def test_a_question_is_never_covered() -> None:
    assert remembered(an_ask(), [GIT]) is None


# Through the desk -------------------------------------------------------------------------------------------


async def test_always_is_remembered_for_the_session_and_told_as_policys_answer(desk: Broker) -> None:
    await say(desk, wanting("git status"), scope="session")
    opened = await desk.open(wanting("git log", id="second"))
    answer = opened.stored.settled()
    assert answer is not None
    assert (opened.stored.state, answer.reply, answer.by) == ("answered", "once", "policy:always")
    assert answer.why == ("ana allowed git *, make test for this session",)
    lines, _ = await audit.lines(desk.store)
    assert [(line["decided_by"], line["by"], line["reply"]) for line in lines] == [
        ("person", "ana", "always"),
        ("policy", "policy:always", "once"),
    ]
    assert lines[-1]["why"] == ("ana allowed git *, make test for this session",)


async def test_a_subagent_of_the_session_may_do_it_too_and_another_session_not(desk: Broker) -> None:
    await say(desk, wanting("git status"))
    assert await state_of(desk, wanting("git log", id="child", session="sub", parent="s1")) == "answered"
    assert await state_of(desk, wanting("git log", id="other", session="s2")) == "asked"
    assert await state_of(desk, wanting("git log", id="child of another", session="sub2", parent="s2")) == "asked"


async def test_what_a_subagent_was_allowed_holds_for_the_session_it_works_for(desk: Broker) -> None:
    await say(desk, wanting("git status", session="sub", parent="s1"))
    assert await state_of(desk, wanting("git log", id="parent")) == "answered"
    assert await state_of(desk, wanting("git log", id="sibling", session="sub2", parent="s1")) == "answered"


async def test_only_the_patterns_that_were_left_are_remembered(desk: Broker) -> None:
    await say(desk, wanting("git status"), scope="session", patterns=("make test",))
    assert await state_of(desk, wanting("git log", id="second")) == "asked"
    assert await state_of(desk, wanting("make test", id="third")) == "answered"
    assert await state_of(desk, wanting("make test", "git log", id="fourth")) == "asked"


async def test_an_always_without_a_pattern_left_is_remembered_by_nobody(desk: Broker) -> None:
    await say(desk, wanting("git status"), scope="session", patterns=())
    assert await state_of(desk, wanting("git status", id="second")) == "asked"


@pytest.mark.parametrize("reply", ["once", "reject"])
async def test_no_other_reply_is_remembered(desk: Broker, reply: str) -> None:
    await say(desk, wanting("git status"), reply)
    assert await state_of(desk, wanting("git status", id="second")) == "asked"


async def test_a_scope_that_the_agent_remembers_is_not_remembered_here(desk: Broker) -> None:
    scopes = (
        Scope(id="session", patterns=OFFERED, by_desk=True),
        Scope(id="project", patterns=("git *",)),
    )
    await say(desk, wanting("git status", scopes=scopes), scope="project", patterns=("git *",))
    assert await state_of(desk, wanting("git status", id="second", scopes=scopes)) == "asked"


async def test_what_a_shell_runs_inside_is_asked_again(desk: Broker) -> None:
    await say(desk, wanting("git status"))
    assert await state_of(desk, wanting("git log $(rm -rf /)", id="second")) == "asked"


async def test_a_policy_that_rejects_permissions_wins(desk: Broker) -> None:
    await say(desk, wanting("git status"))
    handling = Handling(permission_policy="reject")
    opened = await desk.open(wanting("git log", id="second"), handling=handling)
    answer = opened.stored.settled()
    assert answer is not None
    assert (opened.stored.state, answer.by) == ("rejected", "policy:reject")


async def test_what_the_agent_says_of_its_own_terminal_is_not_remembered_here(desk: Broker) -> None:
    await desk.open(wanting("git status"))
    await desk.withdraw("permission-1", answer=Answer(reply="always", scope="session"))
    assert await state_of(desk, wanting("git log", id="second")) == "asked"


async def test_a_grant_outlasts_a_restart_of_the_desk(store: Store) -> None:
    async with Broker(store) as before:
        await say(before, wanting("git status"))
    async with Broker(store) as after:
        assert await state_of(after, wanting("git log", id="second")) == "answered"


async def test_a_grant_is_not_for_whoever_only_names_the_same_session(desk: Broker) -> None:
    await desk.open(wanting("git status"), owner="stranger")
    await desk.answer("permission-1", Answer(reply="always", by="ana"))
    assert await state_of(desk, wanting("git log", id="second")) == "asked"
    again = await desk.open(wanting("git log", id="third"), owner="stranger")
    assert again.stored.state == "answered"
