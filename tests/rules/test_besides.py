"""What a call says besides what is shown: the card has it, no pattern and no link allows it, what forbids finds it."""

from __future__ import annotations

from typing import Any

import pytest

from handraise.agents.acp.translate import to_ask as acp_ask
from handraise.agents.claude.translate import to_ask as claude_ask
from handraise.agents.codex.translate import COMMAND, FILES
from handraise.agents.codex.translate import to_ask as codex_ask
from handraise.agents.opencode.translate import to_ask as opencode_ask
from handraise.asks import Ask, Origin, Permission
from handraise.asks.card import whole_of
from handraise.people import reason_not_to_allow
from handraise.rules import Rule, decide
from handraise.rules.risks import judge
from handraise.rules.tools import more_than_shown, paths_in
from handraise.testing import a_permission

ORIGIN = Origin(agent="x", session="s", cwd="/shop")
PUSHES = "git push origin evil"
NO_PUSH = Rule(tool="shell", action="reject", matches={"command": ("git push *",)})
ANYTHING = Rule(tool="*", action="allow")
NARROW = (
    Rule(tool="*", action="allow", matches={"command": ("ls*",)}),
    Rule(tool="*", action="allow", matches={"path": ("**",)}),
)
DIFF = {"type": "diff", "path": "a.py", "oldText": "a", "newText": "b"}


def acp(*, call: dict[str, Any] | None = None, **tool: Any) -> Ask:
    options = [{"optionId": "y", "name": "yes", "kind": "allow_once"}]
    params = {"toolCall": {"toolCallId": "1", **tool}, "options": options}
    return acp_ask("permission", params, id="1", origin=ORIGIN, call=call)


def claude(tool: str, **given: Any) -> Ask:
    return claude_ask(tool, given, id="1", origin=ORIGIN)


def opencode(tool: str, patterns: list[str], **metadata: Any) -> Ask:
    request = {"id": "p", "sessionID": "s", "permission": tool, "patterns": patterns, "metadata": metadata}
    return opencode_ask(request, kind="permission", origin=Origin(agent="opencode", session="s", cwd="/shop"))


def of(ask: Ask) -> Permission:
    assert ask.permission is not None
    return ask.permission


@pytest.mark.parametrize(
    "ask",
    [
        acp(kind="execute", rawInput={"command": "ls", "then": PUSHES}),
        acp(kind="execute", rawInput={"command": "ls", "Command": PUSHES}),
        acp(kind="execute", rawInput={"command": "ls", "env": {"GIT_PAGER": PUSHES}}),
        acp(kind="execute", rawInput={"command": "ls", "steps": [{"command": PUSHES}]}),
        acp(kind="read", rawInput={"path": "a", "cmd": PUSHES}),
        acp(kind="edit", rawInput={"path": "a.py", "cmd": PUSHES}, content=[DIFF]),
        acp(kind="other", rawInput={"cmd": PUSHES}),
        acp(kind="read", rawInput=PUSHES, locations=[{"path": "a"}]),
        acp(kind="execute", rawInput={"command": "ls"}, call={"rawInput": {"command": PUSHES}}),
        claude("Bash", command="ls", stdin=PUSHES),
        claude("Bash", command="ls", arguments={"more": PUSHES}),
        claude("Read", file_path="/shop/a", script=PUSHES),
        claude("Edit", file_path="/shop/a", old_string="a", new_string="b", then=PUSHES),
        opencode("bash", ["ls"], command="ls", prefix=PUSHES),
        codex_ask(COMMAND, {"command": "ls", "afterwards": PUSHES}, id="1", origin=ORIGIN),
    ],
)
def test_what_a_call_says_besides_is_shown_and_judged(ask: Ask) -> None:
    assert PUSHES in whole_of(of(ask))
    assert decide(ask, [NO_PUSH, ANYTHING]).action != "allow"
    assert decide(ask, NARROW).action != "allow"
    assert reason_not_to_allow(ask, identity="shared") is not None


@pytest.mark.parametrize(
    "more",
    [{"env": {"PATH": "/evil"}}, {"shell": "/evil/sh"}, {"user": "root"}, {"sudo": True}, {"host": "elsewhere"}],
)
def test_an_argument_that_nobody_knows_puts_a_command_in_doubt(more: dict[str, Any]) -> None:
    ask = claude("Bash", command="ls", **more)
    assert judge(ask).doubt == "it is called with more than this desk understands"
    assert decide(ask, NARROW).action is None
    assert decide(ask, [ANYTHING]).action == "allow"  # that is what it says


@pytest.mark.parametrize(
    "more",
    [
        {"description": "Look", "timeout": 5000, "run_in_background": False},
        {"commands": ["ls"], "cwd": "/shop"},
        {"env": {}, "stdin": "", "sudo": False},
    ],
)
def test_everyday_arguments_change_nothing(more: dict[str, Any]) -> None:
    ask = acp(kind="execute", rawInput={"command": "ls", **more})
    assert judge(ask).doubt is None
    assert decide(ask, NARROW).action == "allow"


def test_words_that_a_shell_would_read_otherwise_are_in_doubt() -> None:
    ask = acp(kind="execute", rawInput={"command": ["ls", ";", "git", "push", "origin"]})
    assert decide(ask, NARROW).action is None
    assert decide(ask, [NO_PUSH, ANYTHING]).action == "reject"
    assert judge(ask).only_at_desk is not None
    assert judge(acp(kind="execute", rawInput={"command": ["git", "commit", "-m", "a b"]})).doubt is None


def test_a_text_that_the_change_does_not_show_is_on_the_card() -> None:
    lies = acp(kind="edit", rawInput={"path": "a.py", "old_string": "x", "new_string": "EVIL"}, content=[DIFF])
    both = claude("Edit", file_path="/shop/a", old_string="a", new_string="b", content="EVIL")
    for ask in (lies, both):
        assert "EVIL" in whole_of(of(ask))
        assert judge(ask).only_at_desk is not None
    every = claude("Edit", file_path="/shop/a", old_string="a", new_string="b", replace_all=True)
    assert "replace_all" in whole_of(of(every))


def test_an_everyday_change_shows_its_diff_and_nothing_else() -> None:
    old = "\n".join(f"line {number}" for number in range(40))
    ask = claude("Edit", file_path="/shop/a", old_string=old, new_string=old.replace("line 20", "other"))
    assert whole_of(of(ask)) == f"/shop/a\n{of(ask).diff}"
    part = acp(
        kind="edit",
        rawInput={"path": "a.py", "old_string": "= 1", "new_string": "= 2"},
        content=[{**DIFF, "oldText": "x\na = 1  # one\n", "newText": "x\na = 2  # one\n"}],
    )
    assert whole_of(of(part)) == f"a.py\n{of(part).diff}"


def test_a_whole_file_of_which_the_diff_shows_what_changes_is_an_everyday_change() -> None:
    old = "".join(f"line {number}\n" for number in range(100))
    new = old.replace("line 50\n", "changed\n")
    change = {"type": "diff", "path": "a.py", "oldText": old, "newText": new}
    ask = acp(kind="edit", content=[change], rawInput={"file_path": "a.py", "content": new})
    assert ask.permission is not None
    assert "changed" in whole_of(ask.permission) and "line 1\n" not in whole_of(ask.permission)
    assert more_than_shown(ask.permission, cwd="/shop") is None
    other = acp(kind="edit", content=[change], rawInput={"file_path": "a.py", "content": old})
    assert other.permission is not None and more_than_shown(other.permission, cwd="/shop") is not None


def test_what_is_approved_with_a_plan_is_shown_and_only_a_person_at_the_desk_approves_it() -> None:
    ask = claude("ExitPlanMode", plan="Build it", allowedPrompts=[{"tool": "Bash", "prompt": PUSHES}])
    assert PUSHES in whole_of(of(ask))
    assert judge(ask).only_at_desk is not None
    assert decide(ask, [Rule(tool="plan", action="allow")]).action is None
    plain = claude("ExitPlanMode", plan="Build it", planFilePath="/x/plan.md")
    assert (whole_of(of(plain)), judge(plain).doubt) == ("Build it", None)
    assert decide(plain, [Rule(tool="plan", action="allow")]).action == "allow"


def test_a_change_of_which_one_file_has_no_name_names_none() -> None:
    item = {"changes": [{"path": "a", "kind": {"type": "add"}, "diff": "x"}, "b"]}
    ask = codex_ask(FILES, {}, id="1", origin=ORIGIN, item=item)
    assert of(ask).paths == ()
    assert judge(ask).doubt == "the agent did not say which files"


def test_a_file_that_is_said_twice_and_differs_is_both() -> None:
    ask = opencode("edit", ["/etc/cron.d/x"], filepath="/shop/a.py", diff="-a\n+b")
    assert of(ask).paths == ("/shop/a.py", "/etc/cron.d/x")
    assert of(opencode("edit", ["web/a.py"], filepath="/shop/web/a.py", diff="-a\n+b")).paths == ("/shop/web/a.py",)


@pytest.mark.parametrize(
    "address",
    ["file:///home/a/.ssh/id", "FILE:///home/a/.ssh/id", "file://localhost/home/a/%2Essh/id", "file:/home/a/.ssh/id"],
)
def test_the_address_of_a_file_is_a_path(address: str) -> None:
    assert paths_in({"uri": address}) == (["/home/a/.ssh/id"], True)
    ask = a_permission(tool="read", command=None, paths=("/shop/a",), input={"uri": address})
    no_keys = Rule(tool="read", action="reject", matches={"path": ("/home/*/.ssh/**",)})
    assert decide(ask, [no_keys, ANYTHING]).action == "reject"
