"""What an agent over ACP wants to run, where its title is not that: the model's words are never taken for a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handraise.agents.acp.quirks import Quirks, quirks_of
from handraise.agents.acp.translate import to_ask
from handraise.asks import Ask, Origin, Permission
from handraise.rules import Rule, decide
from handraise.rules.risks import UNREADABLE, risks_of

WIRE = Path(__file__).parents[1] / "wire" / "acp"
ORIGIN = Origin(agent="acp", session="s1", cwd="/project")
OPTIONS = [
    {"optionId": "once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]
HARMLESS, PUSHES = "git status", "git push origin main --force"


def recorded(name: str) -> tuple[Ask, Quirks]:
    """The permission that a real agent asked for, translated as a session would, and what is known of the agent."""
    said = [json.loads(line)["msg"] for line in (WIRE / f"{name}.jsonl").read_text().splitlines()]
    info = next(each["result"]["agentInfo"] for each in said if "agentInfo" in each.get("result", {}))
    quirks = quirks_of(info, ["node"])
    calls: dict[str, dict[str, Any]] = {}
    for each in said:
        if each.get("method") == "session/update":
            update = each["params"]["update"]
            if "toolCallId" in update:
                calls.setdefault(update["toolCallId"], {}).update(update)
        if each.get("method") == "session/request_permission":
            call = calls.get(each["params"]["toolCall"]["toolCallId"])
            return to_ask("permission", each["params"], id="a", origin=ORIGIN, call=call, quirks=quirks), quirks
    raise AssertionError("it asked for nothing")


def asked(*, call: dict[str, Any] | None = None, quirks: Quirks | None = None, **tool: Any) -> Ask:
    params = {"sessionId": "s", "toolCall": {"toolCallId": "c", **tool}, "options": OPTIONS}
    return to_ask("permission", params, id="a", origin=ORIGIN, call=call, quirks=quirks)


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": words}}]


def wanted(ask: Ask) -> Permission:
    assert ask.permission is not None
    return ask.permission


def rule(action: str, *, tool: str = "shell", **matches: str) -> Rule:
    return Rule(tool=tool, action=action, matches={name: (each,) for name, each in matches.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gemini-cli-0.61.0", "kimi-code-2.1.0"])
def test_the_command_of_a_real_agent_is_shown_and_judged(name: str) -> None:
    ask, _ = recorded(name)
    assert wanted(ask).command == PUSHES
    assert decide(ask, [rule("reject", command="git push *")]).action == "reject"
    assert decide(ask, [rule("allow", command="git *")]).action != "reject"
    assert "push" in risks_of(ask)


@pytest.mark.parametrize("name", ["gemini-cli-0.61.0", "kimi-code-2.1.0"])
def test_the_same_messages_of_an_unknown_agent_show_no_command_and_are_allowed_by_no_pattern(name: str) -> None:
    said = [json.loads(line)["msg"] for line in (WIRE / f"{name}.jsonl").read_text().splitlines()]
    params = next(each["params"] for each in said if each.get("method") == "session/request_permission")
    ask = to_ask("permission", params, id="a", origin=ORIGIN)
    assert wanted(ask).command is None
    for allowing in (rule("allow", command="*"), rule("allow", tool="*"), rule("allow", tool="*", command="git *")):
        assert decide(ask, [allowing]).action is None
    assert decide(ask, [rule("reject", command="git push *")]).action == "reject"  # its words say so
    assert UNREADABLE in risks_of(ask)


@pytest.mark.parametrize(
    "lie",
    [
        {"rawInput": {"command": "rm -rf ~"}},
        {"rawInput": {"cmd": "rm -rf ~"}},
        {"rawInput": {"command": ["rm", "-rf", "~"]}},
        {"rawInput": {"command": {"line": "rm -rf ~"}}},
        {"content": text("rm -rf ~")},
        {"content": text('{"command": "rm -rf ~"}')},
        {"rawInput": {}, "content": text("rm -rf ~")},
        {"call": {"rawInput": {"command": "rm -rf ~"}}},
        {"call": {"content": text('{"command": "rm -rf ~"}')}},
        {"name": "Bash"},
        {},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["execute", None])
def test_a_title_that_lies_allows_nothing(lie: dict[str, Any], kind: str | None) -> None:
    ask = asked(title=HARMLESS, kind=kind, **lie)
    assert wanted(ask).command != HARMLESS
    for tool in ("shell", "*", "exec*"):
        for pattern in (HARMLESS, "git *", "*status"):
            assert decide(ask, [rule("allow", tool=tool, command=pattern)]).action != "allow"
    if wanted(ask).command is None and wanted(ask).tool != "tool":  # else its arguments are shown
        assert decide(ask, [rule("allow", tool="*")]).action is None
        assert decide(ask, [rule("allow", command="*")]).action is None
        assert "does not show" in wanted(ask).summary and HARMLESS in wanted(ask).summary
        assert UNREADABLE in risks_of(ask)


@pytest.mark.parametrize("content", ["rm -rf ~", "Requesting approval to Running: rm -rf ~", '{"command": "rm -rf ~"}'])
def test_a_rule_that_forbids_finds_the_command_in_what_the_agent_says_of_it(content: str) -> None:
    ask = asked(title="Clean up", kind="execute", content=text(content))
    assert decide(ask, [rule("reject", command="rm -rf *")]).action == "reject"
    assert decide(ask, [rule("reject", command="git push *"), rule("allow", command="*")]).action is None


def test_a_rule_for_any_command_still_means_any_command() -> None:
    ask = asked(title=HARMLESS, kind="execute")
    assert decide(ask, [rule("allow", tool="shell")]).action == "allow"
    assert decide(ask, [rule("allow", tool="execute")]).action == "allow"
    assert decide(ask, [rule("reject", tool="shell")]).action == "reject"
    assert decide(ask, [rule("allow", tool="shell", cwd="/project")]).action is None


def test_files_that_a_command_names_do_not_stand_for_it() -> None:
    ask = asked(title=HARMLESS, kind="execute", locations=[{"path": "/project/src/a.py"}])
    assert decide(ask, [rule("allow", tool="*", path="src/**")]).action is None


@pytest.mark.parametrize(
    ("info", "command", "reads_title"),
    [
        ({"name": "gemini-cli", "version": "0.61.0"}, ["gemini"], True),
        ({"name": "gemini-cli", "version": "0.70.0-nightly.1"}, ["gemini"], True),
        ({"name": "gemini-cli", "version": "0.20.0"}, ["gemini"], False),
        ({"name": "gemini-cli"}, ["gemini"], False),
        ({"name": "my-gemini-agent", "version": "0.61.0"}, ["gemini"], False),
        ({"name": "other", "version": "9.0.0"}, ["gemini", "--acp"], False),
        (None, ["python", "agent.py", "--model", "gemini-2.5-pro"], False),
        (None, ["gemini", "--acp"], False),
    ],
)
def test_a_title_is_a_command_only_where_the_agent_says_who_it_is(
    info: dict[str, str] | None, command: list[str], reads_title: bool
) -> None:
    ask = asked(title=HARMLESS, kind="execute", quirks=quirks_of(info, command))
    assert wanted(ask).command == (HARMLESS if reads_title else None)


def test_arguments_that_came_in_pieces_are_no_command_until_they_are_whole() -> None:
    kimi = quirks_of({"name": "Kimi Code CLI", "version": "2.1.0"}, ["kimi"])
    for pieces in ('{"command": "git sta', "", "[]", '"git status"', '{"command": 1}'):
        ask = asked(title="Bash", call={"kind": "execute", "content": text(pieces)}, quirks=kimi)
        assert wanted(ask).command is None
    whole = asked(title="Bash", call={"kind": "execute", "content": text('{"command": "git status"}')}, quirks=kimi)
    assert wanted(whole).command == HARMLESS
