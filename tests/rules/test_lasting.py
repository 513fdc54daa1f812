"""`always` where the desk keeps it: the rules that it makes, what they cover, for whom, and what comes before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handraise.asks import Answer, Ask, Handling, Scope
from handraise.asks.places import resolve
from handraise.broker import Broker
from handraise.rules.book import Rulebook
from handraise.rules.lasting import lasting_rules
from handraise.stores import Store
from handraise.tables import audit
from handraise.testing import FakeClock, a_permission, an_ask

OFFERED = ("git *", "make test")
HERE = "/srv/shop"
SAID = Answer(reply="always", by="ana")


def wanting(command: str | None = None, *, patterns: tuple[str, ...] = OFFERED, **changes: Any) -> Ask:
    """An ask for a permission whose `always` the desk is to keep."""
    kept = (Scope(id="session", label="this session", patterns=patterns, by_desk=True),)
    return a_permission(**{"tool": "bash", "command": command, "cwd": HERE, "scopes": kept, **changes})


@pytest.fixture
async def desk(store: Store, fake_clock: FakeClock) -> AsyncIterator[Broker]:
    async with Broker(store, clock=fake_clock) as broker:
        yield broker


async def say(desk: Broker, ask: Ask, reply: str = "always", **more: Any) -> None:
    await desk.open(ask)
    await desk.answer(ask.id, Answer(reply=reply, by="ana", via="cli", **more))


async def state_of(desk: Broker, ask: Ask, **how: Any) -> str:
    return (await desk.open(ask, **how)).stored.state


def made(ask: Ask, **said: Any) -> list[Mapping[str, Any]]:
    return [rule.matches for rule in lasting_rules(ask, replace(SAID, **said))]


# The rules that it makes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "condition"),
    [
        ("git *", "git *"),
        ("git status *", "git status *"),
        ("git diff*", "git diff*"),
        ("git*", "git*"),
        ("./gradlew test *", "./gradlew test *"),
        ("npm run * --quiet", "npm run * --quiet"),
        ("make test", "make test"),
        ("echo 'a  b'", "echo 'a  b'"),
        ('echo "a b"', "echo 'a b'"),
    ],
)
def test_a_pattern_for_commands_is_a_condition_on_the_command_in_its_folder(pattern: str, condition: str) -> None:
    assert made(wanting("git log", patterns=(pattern,))) == [{"cwd": (HERE,), "command": (condition,)}]


@pytest.mark.parametrize(
    "pattern",
    [
        *("*", "* *", "*git *", "re:.*", "re:git *", "git * > x", "git *; rm *", "git $(*)", "git *\nrm *", "git `*`"),
        *("$X *", "git 'a *", "git log > x", "git log $(rm)", "X=1 make", "~/run *", "", " *", "a\tb *"),
        *("/bin/*", "./*", "../*", "/*", "g*", "./run*"),  # many programs
    ],
)
def test_a_pattern_that_no_rule_can_say_for_certain_makes_none(pattern: str) -> None:
    assert made(wanting("git log", patterns=(pattern,))) == []


def test_a_line_of_several_commands_is_allowed_as_that_line_and_none_of_its_parts() -> None:
    line = "make lint && make test"
    assert made(wanting(line, patterns=(line,))) == [{"cwd": (HERE,), "command_line": (line,)}]


@pytest.mark.parametrize(
    ("changes", "patterns", "expected"),
    [
        ({"tool": "edit", "paths": ("src/a.py",)}, ("*",), [{"path": (f"{HERE}/*",)}]),
        ({"tool": "edit", "paths": ("src/a.py",), "cwd": None}, ("*",), []),
        ({"tool": "edit", "paths": ("src/a.py",), "cwd": "/srv/*"}, ("*",), []),
        ({"tool": "edit", "paths": ("src/a.py",)}, ("src/*",), []),
        ({"tool": "edit", "diff": "+x"}, ("*",), []),
        ({"tool": "external_directory", "paths": ("/etc/hosts",)}, ("/etc/*",), [{"path": ("/etc/*",)}]),
        ({"tool": "external_directory", "paths": ("/etc/hosts",)}, ("/etc/../*", "/*", "//x/*", "~/*"), []),
        ({"tool": "webfetch", "url": "https://a.org/x"}, ("*",), [{"url": ("*",)}]),
        ({"tool": "webfetch", "url": "https://a.org/x"}, ("https://a.org/*",), [{"url": ("https://a.org/*",)}]),
        ({"tool": "webfetch", "url": "https://a.org/x"}, ("a.org*", "re:://"), []),
        ({"tool": "todowrite"}, ("*",), [{}]),
        ({"tool": "todowrite"}, ("x",), []),
        ({"tool": "bash"}, ("git *",), []),
        ({"tool": "PowerShell", "command": "git log"}, ("git *",), []),
        ({"tool": "read", "command": "git log"}, ("git *",), []),
        ({"tool": "*", "command": "git log"}, ("git *",), []),
        ({"tool": "re:.*", "command": "git log"}, ("git *",), []),
        ({"command": "git log", "agent": "*"}, ("git *",), []),
        ({"command": "git log", "cwd": "src"}, ("git *",), []),
        ({"kind": "plan", "tool": "plan"}, ("*",), []),
    ],
)
def test_what_a_call_names_is_what_the_rule_wants_of_it(
    changes: dict[str, Any], patterns: tuple[str, ...], expected: list[Any]
) -> None:
    assert made(wanting(patterns=patterns, **changes)) == expected


def test_only_an_always_makes_rules_and_only_of_a_scope_that_the_desk_keeps() -> None:
    assert made(wanting("git log"), reply="once") == made(wanting("git log"), scope="project") == made(an_ask()) == []
    assert made(wanting("git log", scopes=(Scope(id="session", patterns=OFFERED),))) == []
    assert made(wanting("git log"), patterns=()) == []
    assert made(wanting("git log"), patterns=("make test",)) == [{"cwd": (HERE,), "command": ("make test",)}]


# Through the desk -------------------------------------------------------------------------------------------


async def test_always_holds_for_the_session_and_is_told_as_a_rules_answer(desk: Broker) -> None:
    await say(desk, wanting("git status"), scope="session")
    opened = await desk.open(wanting("git log", id="second"))
    answer = opened.stored.settled()
    assert answer is not None
    assert (opened.stored.state, answer.reply, answer.by) == ("answered", "once", "policy:rule")
    [rule] = (await desk.rules.listed(an_ask().origin))["rules"]
    assert (rule["session"], rule["by"], rule["action"]) == ("s1", "ana", "allow")
    assert rule["source"] in answer.why[0] and "session s1" in answer.why[0]
    lines, _ = await audit.lines(desk.store)
    assert [(line["decided_by"], line["by"], line["reply"]) for line in lines] == [
        ("person", "ana", "always"),
        ("policy", "policy:rule", "once"),
    ]


async def test_it_ends_where_its_rule_is_removed(desk: Broker) -> None:
    await say(desk, wanting("git status"))
    [rule] = (await desk.rules.listed(an_ask().origin))["rules"]
    removed = await desk.rules.remove(rule["id"])
    assert (removed.told()["session"], removed.told()["by"]) == ("s1", "ana")
    assert await state_of(desk, wanting("git log", id="second")) == "asked"


async def test_the_rule_is_there_as_soon_as_the_answer_is(desk: Broker) -> None:
    """An agent that asks again at once, as soon as it is told, is not asked twice."""
    await desk.open(wanting("git status"))
    states: list[str] = []

    async def go_on() -> None:
        await desk.wait("permission-1")
        states.append(await state_of(desk, wanting("git log", id="second")))

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(go_on())
        await asyncio.sleep(0)
        tasks.create_task(desk.answer("permission-1", SAID))
    assert states == ["answered"]


async def test_a_subagent_of_the_session_may_do_it_too_and_another_session_not(desk: Broker) -> None:
    await say(desk, wanting("git status"))
    assert await state_of(desk, wanting("git log", id="child", session="sub", parent="s1")) == "answered"
    assert await state_of(desk, wanting("git log", id="other", session="s2")) == "asked"
    assert await state_of(desk, wanting("git log", id="child of another", session="sub2", parent="s2")) == "asked"


async def test_what_a_subagent_was_allowed_holds_for_the_session_it_works_for(desk: Broker) -> None:
    await say(desk, wanting("git status", session="sub", parent="s1"))
    assert await state_of(desk, wanting("git log", id="parent")) == "answered"
    assert await state_of(desk, wanting("git log", id="sibling", session="sub2", parent="s1")) == "answered"


async def test_it_is_for_one_agent_one_tool_and_one_folder(desk: Broker) -> None:
    await say(desk, wanting("git status"))
    assert await state_of(desk, wanting("git log", id="2", agent="claude")) == "asked"
    assert await state_of(desk, wanting("git log", id="3", tool="other")) == "asked"
    assert await state_of(desk, wanting("git log", id="4", cwd="/srv/other")) == "asked"


async def test_every_part_has_to_be_covered_be_it_by_several(desk: Broker) -> None:
    await say(desk, wanting("git status"), patterns=("git *",))
    assert await state_of(desk, wanting("git log && make test", id="2")) == "asked"
    await say(desk, wanting("make test", id="3"), patterns=("make test",))
    assert await state_of(desk, wanting("git log && make test", id="4")) == "answered"


async def test_exactly_one_line_is_exactly_that_line(desk: Broker) -> None:
    line = "make lint && make test"
    await say(desk, wanting(line, patterns=(line,)))
    assert await state_of(desk, wanting(line, id="2")) == "answered"
    assert await state_of(desk, wanting("make test", id="3")) == "asked"
    assert await state_of(desk, wanting("make test && make lint", id="4")) == "asked"
    assert await state_of(desk, wanting(line, id="5", input={"additionalPermissions": {"network": True}})) == "asked"


async def test_edits_are_allowed_in_the_folder_and_nowhere_else(desk: Broker, tmp_path: Path) -> None:
    edit = {"tool": "edit", "cwd": str(tmp_path), "patterns": ("*",)}
    (tmp_path / "out").symlink_to("/etc")
    await say(desk, await resolve(wanting(paths=("src/a.py",), **edit)))
    assert await state_of(desk, await resolve(wanting(id="2", paths=("src/b.py",), diff="+x", **edit))) == "answered"
    for number, path in enumerate(("/etc/passwd", "../x", "out/passwd", "src/../../x", "/home/ana/.bashrc")):
        assert await state_of(desk, await resolve(wanting(id=f"out {number}", paths=(path,), **edit))) == "asked"
    assert await state_of(desk, await resolve(wanting(id="3", paths=("src/b.py", "/etc/passwd"), **edit))) == "asked"
    assert await state_of(desk, wanting(id="4", paths=("src/b.py",), **edit)) == "asked"  # nobody followed its links


async def test_a_yes_to_a_tool_covers_no_call_that_names_more(desk: Broker) -> None:
    anything = {"tool": "custom", "patterns": ("*",)}
    await say(desk, wanting(**anything))
    assert await state_of(desk, wanting(id="2", input={"a": 1}, **anything)) == "answered"
    assert await state_of(desk, wanting("rm -rf /", id="3", **anything)) == "asked"
    assert await state_of(desk, wanting(id="4", input={"command": "rm -rf /"}, **anything)) == "asked"
    assert await state_of(desk, wanting(id="5", paths=("/etc/passwd",), **anything)) == "asked"
    assert await state_of(desk, wanting(id="6", url="https://a.org", **anything)) == "asked"
    assert await state_of(desk, wanting(id="7", diff="+x", **anything)) == "asked"


async def test_only_the_patterns_that_were_left_are_kept(desk: Broker) -> None:
    await say(desk, wanting("git status"), scope="session", patterns=("make test",))
    assert await state_of(desk, wanting("git log", id="second")) == "asked"
    assert await state_of(desk, wanting("make test", id="third")) == "answered"


async def test_an_always_without_a_pattern_left_is_kept_by_nobody(desk: Broker) -> None:
    await say(desk, wanting("git status"), scope="session", patterns=())
    assert await state_of(desk, wanting("git status", id="second")) == "asked"


@pytest.mark.parametrize("reply", ["once", "reject"])
async def test_no_other_reply_is_kept(desk: Broker, reply: str) -> None:
    await say(desk, wanting("git status"), reply)
    assert await state_of(desk, wanting("git status", id="second")) == "asked"


async def test_a_scope_that_the_agent_keeps_is_not_kept_here(desk: Broker) -> None:
    scopes = (Scope(id="session", patterns=OFFERED, by_desk=True), Scope(id="project", patterns=("git *",)))
    await say(desk, wanting("git status", scopes=scopes), scope="project", patterns=("git *",))
    assert await state_of(desk, wanting("git status", id="second", scopes=scopes)) == "asked"


async def test_a_policy_that_rejects_permissions_wins(desk: Broker) -> None:
    await say(desk, wanting("git status"))
    handling = Handling(permission_policy="reject")
    opened = await desk.open(wanting("git log", id="second"), handling=handling)
    answer = opened.stored.settled()
    assert answer is not None
    assert (opened.stored.state, answer.by) == ("rejected", "policy:reject")


@pytest.mark.parametrize(("action", "state"), [("reject", "rejected"), ("ask", "asked")])
async def test_what_forbids_or_asks_comes_before_it_wherever_and_whenever_it_was_written(
    store: Store, tmp_path: Path, action: str, state: str
) -> None:
    user = tmp_path / "config.toml"
    async with Broker(store, rules=Rulebook(store, user=user)) as desk:
        await say(desk, wanting("git status"))
        assert await state_of(desk, wanting("git log", id="2")) == "answered"
        user.write_text(f'[[rules]]\ntool = "shell"\nmatches = {{ command = "git push*" }}\naction = "{action}"\n')
        assert await state_of(desk, wanting("git push", id="3")) == state
        kept = {"tool": "shell", "action": action, "matches": {"command": "git fetch*"}}
        await desk.rules.add(kept, at=1, by="ana")
        assert await state_of(desk, wanting("git fetch", id="4")) == state
        assert await state_of(desk, wanting("git log", id="5")) == "answered"
        user.write_text("[[rules")
        assert await state_of(desk, wanting("git log", id="6")) == "asked", "what forbids it may stand there"


async def test_what_the_agent_says_of_its_own_terminal_is_not_kept_here(desk: Broker) -> None:
    await desk.open(wanting("git status"))
    await desk.withdraw("permission-1", answer=Answer(reply="always", scope="session"))
    assert await state_of(desk, wanting("git log", id="second")) == "asked"


async def test_it_outlasts_a_restart_of_the_desk(store: Store) -> None:
    async with Broker(store) as before:
        await say(before, wanting("git status"))
    async with Broker(store) as after:
        assert await state_of(after, wanting("git log", id="second")) == "answered"


async def test_it_is_not_for_whoever_only_names_the_same_session(desk: Broker) -> None:
    await desk.open(wanting("git status"), owner="stranger")
    await desk.answer("permission-1", Answer(reply="always", by="ana"))
    assert await state_of(desk, wanting("git log", id="second")) == "asked"
    again = await desk.open(wanting("git log", id="third"), owner="stranger")
    assert again.stored.state == "answered"


async def test_an_answer_that_was_too_late_makes_no_rule(desk: Broker) -> None:
    await desk.open(wanting("git status"))
    await desk.reject("permission-1", by="bob")
    with pytest.raises(Exception, match="already"):
        await desk.answer("permission-1", SAID)
    assert (await desk.rules.listed(an_ask().origin))["rules"] == []
