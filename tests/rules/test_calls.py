"""What a call names besides what it shows: other words, folders, files and rights. None of it passes a rule unseen."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handraise.agents.acp.translate import to_ask as acp_ask
from handraise.agents.amp.translate import to_ask as amp_ask
from handraise.agents.claude.translate import to_ask as claude_ask
from handraise.agents.codex.translate import COMMAND, FILES
from handraise.agents.codex.translate import to_ask as codex_ask
from handraise.agents.opencode.translate import to_ask as opencode_ask
from handraise.asks import Ask, Origin, Permission
from handraise.asks.card import parts_of, shown_paths, whole_of
from handraise.asks.places import resolve
from handraise.rules import Decision, Rule, decide
from handraise.rules.match import MOST_PATHS
from handraise.rules.reading import parse_rule
from handraise.rules.risks import judge

CWD = "/shop"
ORIGIN = Origin(agent="any", session="s", cwd=CWD)


def rule(tool: str, action: str, **matches: Any) -> Rule:
    return parse_rule({"tool": tool, "action": action, "matches": matches}, source="rules:1")


def wanting(tool: str, **more: Any) -> Ask:
    return followed(Ask(id="1", permission=Permission(tool=tool, **{"cwd": CWD, **more}), origin=ORIGIN))


def followed(ask: Ask) -> Ask:
    """As if there were no links."""
    assert ask.permission is not None
    cwd = ask.permission.cwd or CWD
    real = tuple(posixpath.normpath(posixpath.join(cwd, path)) for path in ask.permission.files)
    return replace(ask, permission=replace(ask.permission, resolved=real or None, resolved_cwd=cwd))


def permission_of(ask: Ask) -> Permission:
    assert ask.permission is not None
    return ask.permission


def decided(ask: Ask, *rules: Rule) -> str | None:
    return decide(ask, rules).action


STATUS = rule("shell", "allow", command=["git status *", "ls *", "git", "npm test"])


# Commands -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["command", "input"])
def test_a_tool_of_a_server_is_never_the_shell_where_something_is_allowed(field: str) -> None:
    given = {"host": "a", "command": "ls", "then": "rm -rf /"}
    ask = wanting("mcp__prod__exec", input=given, **({"command": "ls"} if field == "command" else {}))
    assert decided(ask, STATUS) is None
    assert decided(ask, rule("*", "allow", command="ls *")) is None
    assert decided(ask, rule("mcp", "reject"), STATUS) == "reject"
    assert decided(ask, rule("shell", "reject", command="ls *")) == "reject"
    assert decided(ask, rule("mcp__prod__exec", "allow", command="ls *")) == "allow"  # written for this tool
    assert judge(ask).only_at_desk is not None


def acp(raw: dict[str, Any], **tool: Any) -> Ask:
    params = {
        "toolCall": {"toolCallId": "1", "kind": "execute", "rawInput": raw, **tool},
        "options": [{"optionId": "y", "name": "yes", "kind": "allow_once"}],
    }
    return followed(acp_ask("permission", params, id="1", origin=ORIGIN))


def test_words_beside_a_command_belong_to_it() -> None:
    assert permission_of(acp({"command": "git", "args": ["push", "-f", "a b"]})).command == "git push -f 'a b'"
    assert decided(acp({"command": "git", "args": ["push", "-f"]}), STATUS) is None
    assert decided(acp({"command": "git", "args": ["push"]}), rule("shell", "reject", command="git push *")) == "reject"
    assert decided(acp({"command": "git", "args": []}), STATUS) == "allow"
    for odd in ("push -f", {"0": "push"}, ["push", 1]):
        ask = acp({"command": "git", "args": odd})
        assert permission_of(ask).command is None
        assert decided(ask, STATUS) is None
    unjoined = wanting("shell", command="git", input={"command": "git", "args": ["push"]})
    assert decided(unjoined, STATUS) is None
    assert judge(unjoined).doubt is not None


def test_a_command_that_is_not_the_one_among_the_arguments_is_in_doubt() -> None:
    ask = wanting("Bash", command="git status", input={"command": "git push"})
    assert decided(ask, STATUS) is None
    assert decided(ask, rule("shell", "reject", command="git push *")) == "reject"
    assert judge(ask).doubt == "the command that it shows is not the one among its arguments"
    assert judge(wanting("Bash", command="git status", input={"command": "git status"})).doubt is None


@pytest.mark.parametrize("name", ["cwd", "directory", "workdir", "dir_path"])
def test_the_folder_among_the_arguments_is_where_a_command_runs(name: str) -> None:
    here = rule("shell", "allow", command="npm test", cwd=CWD)
    assert decided(acp({"command": "npm test", name: "/tmp/evil"}), here) is None
    assert decided(acp({"command": "npm test", name: CWD}), here) == "allow"
    assert permission_of(acp({"command": "npm test", name: "web"})).cwd == "/shop/web"
    said = wanting("shell", command="npm test", input={"command": "npm test", name: "/tmp/evil"})
    assert decided(said, here) is None
    assert judge(said).doubt == "its arguments name another folder than it says"
    assert judge(acp({"command": "npm test", name: "/a", "working_directory": "/b"})).doubt is not None


def opencode(tool: str, patterns: list[str], **metadata: Any) -> Ask:
    request = {
        "id": "p",
        "sessionID": "s",
        "permission": tool,
        "patterns": patterns,
        "metadata": metadata,
        "always": [],
    }
    return followed(opencode_ask(request, kind="permission", origin=Origin(agent="opencode", session="s", cwd=CWD)))


def test_the_folder_of_opencode_counts() -> None:
    ask = opencode("bash", ["npm test"], command="npm test", workdir="/tmp/evil")
    assert permission_of(ask).cwd == "/tmp/evil"
    assert decided(ask, rule("shell", "allow", command="npm test", cwd=CWD)) is None


@pytest.mark.parametrize(
    ("command", "is_plain"),
    [
        ("bash -lc 'git status'", True),
        ("/bin/zsh -lc 'git status'", True),
        ("/opt/homebrew/bin/bash -c 'git status'", True),
        ("/tmp/evil/bash -c 'git status'", False),
        ("./bash -lc 'git status'", False),
    ],
)
def test_only_a_shell_of_the_system_is_taken_off_a_command_of_codex(command: str, is_plain: bool) -> None:
    ask = codex_ask(COMMAND, {"command": command, "cwd": CWD}, id="1", origin=ORIGIN)
    assert permission_of(ask).command == ("git status" if is_plain else command)
    assert decided(ask, STATUS) == ("allow" if is_plain else None)


def test_a_command_outside_the_sandbox_is_more_than_the_command() -> None:
    claude = claude_ask("Bash", {"command": "git status", "dangerouslyDisableSandbox": True}, id="1", origin=ORIGIN)
    params = {"command": "git status", "cwd": CWD, "sandboxPermissions": "require_escalated"}
    codex = codex_ask(COMMAND, params, id="1", origin=ORIGIN)
    for ask in (claude, codex):
        assert decided(ask, STATUS) is None
        assert judge(ask).risks == ("sandbox",)
    usual = codex_ask(COMMAND, {**params, "sandboxPermissions": "use_default"}, id="1", origin=ORIGIN)
    assert decided(usual, STATUS) == "allow"
    assert judge(usual).risks == ()


# Files --------------------------------------------------------------------------------------------------------------

SRC = [rule("edit", "allow", path="src/*"), rule("read", "allow", path="src/*")]


def claude(tool: str, **given: Any) -> Ask:
    return followed(claude_ask(tool, given, id="1", origin=ORIGIN))


def codex_change(*changes: dict[str, Any]) -> Ask:
    return followed(codex_ask(FILES, {}, id="1", origin=ORIGIN, item={"changes": list(changes)}))


def acp_edit(raw: dict[str, Any], **tool: Any) -> Ask:
    return acp(raw, **{"kind": "edit", "locations": [{"path": "src/a"}], **tool})


@pytest.mark.parametrize(
    "ask",
    [
        opencode("edit", ["src/a"], filepath="src/a", files=[{"filePath": "/shop/src/a", "movePath": "/etc/x"}]),
        codex_change({"path": "src/a", "kind": {"type": "update", "movePath": "/etc/x"}, "diff": ""}),
        codex_change({"path": "src/a", "kind": {"type": "update", "move_path": "/etc/x"}, "diff": ""}),
        codex_change({"path": "src/a", "kind": {"type": "add"}, "diff": ""}, {"kind": {"type": "add"}, "diff": "x"}),
        acp_edit({"file_path": "/etc/x"}),
        acp_edit({"path": "src/a", "to": "/etc/x"}, kind="move"),
        followed(
            amp_ask(
                "apply_patch",
                {"patchText": "*** Add File: src/a\n+a\n *** Add File: /etc/x\n+b"},
                id="1",
                origin=ORIGIN,
            )
        ),
        claude("MultiEdit", file_path="src/a", edits=[{"file_path": "/etc/x", "old_string": "a", "new_string": "b"}]),
        claude("Glob", pattern="/etc/**", path="src/a"),
        claude("Grep", pattern="x", path="src/a", glob="../../../*"),
        wanting("move", paths=("src/a",), input={"path": "src/a", "destination": "/etc/x"}),
        wanting("edit", paths=("src/a",), input={"changes": [{"file_path": "/etc/x"}]}),
        wanting("edit", paths=("src/a",), input={"many": [{"path": "src/a"}] * 5000}),
    ],
)
def test_a_second_path_is_not_covered_by_a_rule_for_the_first(ask: Ask) -> None:
    assert decided(ask, *SRC) is None
    assert judge(ask).only_at_desk is not None


@pytest.mark.parametrize(
    "ask",
    [
        opencode("edit", ["src/a", "src/b"], filepath="src/a, src/b", files=[{"filePath": "/shop/src/a"}]),
        codex_change({"path": "src/a", "kind": {"type": "update", "movePath": "src/b"}, "diff": ""}),
        acp_edit({"file_path": "/shop/src/a"}),
        acp_edit({"path": "src/a", "to": "src/b"}, kind="move"),
        claude("MultiEdit", file_path="src/a", edits=[{"old_string": "a", "new_string": "b"}]),
        claude("Grep", pattern="/etc", path="src/a", glob="**/*.py"),
        claude("Glob", pattern="**/*.py", path="src/a"),
    ],
)
def test_a_second_path_that_is_covered_too_passes(ask: Ask) -> None:
    assert decided(ask, *SRC) == "allow"


def test_a_rule_that_forbids_finds_every_path_in_any_case() -> None:
    secret = rule("edit", "reject", path="*.env")
    assert decided(claude("Write", file_path="src/.ENV", content="x"), secret, *SRC) == "reject"
    assert decided(wanting("move", paths=("src/a",), input={"destination": "src/prod.env"}), secret, *SRC) == "reject"
    assert decided(wanting("edit", paths=("SRC/a",)), *SRC) is None  # what allows means what it says


@pytest.mark.parametrize("tool", ["StrReplace", "str_replace_editor", "update_file", "WriteFile", "Create"])
def test_what_changes_files_is_known_by_what_agents_call_it(tool: str) -> None:
    assert decided(wanting(tool, paths=("src/a",)), rule("edit", "reject")) == "reject"


def test_more_files_than_anybody_looks_at_are_allowed_by_no_rule() -> None:
    ask = wanting("edit", paths=tuple(f"src/{number}" for number in range(MOST_PATHS + 1)))
    assert decided(ask, rule("edit", "allow")) is None
    assert decided(ask, rule("edit", "reject", path="src/7")) == "reject"


def test_what_would_take_too_long_to_compare_is_asked() -> None:
    many = [rule("edit", "reject", path=f"a{number}/*") for number in range(1000)]
    ask = wanting("edit", paths=tuple(f"src/{number}" for number in range(MOST_PATHS)))
    too_much = Decision(why=("too much would have to be compared with the rules, so a person is asked",))
    assert decide(ask, [*many, rule("edit", "allow")]) == too_much
    assert decided(ask, rule("edit", "allow")) == "allow"


# What a person sees -------------------------------------------------------------------------------------------------


async def test_where_a_link_leads_is_judged_and_shown(tmp_path: Path) -> None:
    shop, outside = tmp_path / "shop", tmp_path / ".bashrc"
    shop.mkdir()
    outside.write_text("")
    (shop / "notes.txt").symlink_to(outside)
    (tmp_path / "other").symlink_to(shop)
    origin = Origin(agent="any", session="s", cwd=str(shop))
    permission = Permission(tool="Edit", paths=("notes.txt",), cwd=str(shop), input={"file_path": "notes.txt"})
    ask = await resolve(Ask(id="1", permission=permission, origin=origin))
    assert set(judge(ask).risks) >= {"later"}
    assert judge(ask).only_at_desk == "it can do harm"
    assert shown_paths(permission_of(ask)) == (f"notes.txt → {outside}",)
    assert str(outside) in whole_of(permission_of(ask))
    (shop / "plain.txt").write_text("")
    for cwd in (shop, tmp_path / "other"):  # a folder that is itself reached by a link
        for path in ("plain.txt", str(cwd / "plain.txt")):
            plain = Permission(tool="Edit", paths=(path,), cwd=str(cwd), input={"file_path": path})
            there = await resolve(Ask(id="1", permission=plain, origin=replace(origin, cwd=str(cwd))))
            assert shown_paths(permission_of(there)) == (path,)
            assert judge(there).risks == ()


def test_a_link_that_leads_out_of_the_folder_is_outside() -> None:
    ask = wanting("Edit", paths=("notes.txt",))
    linked = replace(ask, permission=replace(permission_of(ask), resolved=("/srv/data",)))
    assert judge(linked).risks == ("sandbox",)


@pytest.mark.parametrize("more", [{"command": "rm x"}, {"paths": ("a",)}, {"url": "https://a.example"}, {"diff": "+x"}])
def test_a_plan_that_wants_to_do_something_is_none(more: dict[str, Any]) -> None:
    ask = wanting("ExitPlanMode", kind="plan", input={"plan": "Be good."}, **more)
    judged = judge(ask)
    assert judged.only_at_desk is not None
    assert judged.doubt == "it is called a plan and wants to do something"
    assert decided(ask, rule("plan", "allow"), rule("*", "allow"), rule("shell", "allow")) is None
    parts = {part.name: part.text for part in parts_of(permission_of(ask))}
    assert "Be good." in parts["arguments"]
    assert {"plan", "arguments"} & parts.keys() == {"arguments"} and len(parts) == 2
    assert judge(wanting("ExitPlanMode", kind="plan", input={"plan": "Be good."})).only_at_desk is None


@pytest.mark.parametrize("tool", ["edit", "Write", "read_file", "apply_patch"])
def test_a_file_that_is_not_named_is_in_doubt(tool: str) -> None:
    assert judge(wanting(tool, input={"content": "x"})).doubt == "the agent did not say which files"
    assert judge(wanting("Grep", input={"pattern": "x"})).doubt is None  # it looks in the folder


@pytest.mark.parametrize(
    "path",
    """
    .git/hooks/pre-commit .git/config web/.git/config .claude/settings.json .claude/settings.local.json
    .vscode/tasks.json handraise.toml .handraise/workflows/a.py .github/workflows/ci.yml .husky/pre-push .bashrc .ZSHRC
    """.split(),  # noqa: SIM905 - a list to read
)
def test_a_change_of_what_runs_later_is_a_risk(path: str) -> None:
    assert "later" in judge(wanting("Edit", paths=(path,))).risks
    assert "later" not in judge(wanting("Read", paths=(path,))).risks
    assert judge(wanting("Edit", paths=(f"{path}x/a",))).risks in ((), ("later",))
