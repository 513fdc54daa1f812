"""Rules for permissions: what they match, which one wins, what they say, and which can never match."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handraise.asks import Ask, Origin, Permission
from handraise.errors import SettingsError
from handraise.rules import Decision, Rule, decide, never_match
from handraise.rules.globs import covers, matches, matches_address
from handraise.rules.reading import parse_rule, rules_in, told
from handraise.testing import an_ask


def wanting(tool: str, *, agent: str = "any", parent: str | None = None, cwd: str = "/shop", **more: Any) -> Ask:
    permission = Permission(tool=tool, cwd=cwd, **more)
    real = tuple(posixpath.normpath(posixpath.join(cwd, path)) for path in permission.files)  # there are no links
    permission = replace(permission, resolved=real or None)
    return Ask(id="1", permission=permission, origin=Origin(agent=agent, session="s", parent=parent, cwd=cwd))


def rule(tool: str, action: str, **more: Any) -> Rule:
    return parse_rule({"tool": tool, "action": action, **more}, source="rules:1")


def action(ask: Ask, *rules: Rule) -> str | None:
    return decide(ask, rules).action


# Which tool ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "tool", "more", "common"),
    [
        ("opencode", "bash", {"command": "ls"}, "shell"),
        ("claude", "Bash", {"command": "ls"}, "shell"),
        ("codex", "shell", {"command": "ls"}, "shell"),
        ("amp", "shell_command", {"command": "ls"}, "shell"),
        ("acp", "execute", {"command": "ls"}, "shell"),
        ("acp", "run_shell_command", {"command": "ls"}, "shell"),
        ("opencode", "edit", {"paths": ("a",)}, "edit"),
        ("claude", "Write", {"paths": ("a",)}, "edit"),
        ("claude", "MultiEdit", {"paths": ("a",)}, "edit"),
        ("codex", "apply_patch", {"paths": ("a",)}, "edit"),
        ("acp", "Something of its own", {"extra": {"kind": "edit"}}, "edit"),
        ("opencode", "glob", {}, "read"),
        ("claude", "Read", {"paths": ("a",)}, "read"),
        ("acp", "search", {}, "read"),
        ("opencode", "webfetch", {"url": "https://a.example/"}, "fetch"),
        ("claude", "WebSearch", {}, "fetch"),
        ("amp", "read_web_page", {"url": "https://a.example/"}, "fetch"),
        ("claude", "mcp__github__create_issue", {}, "mcp"),
        ("codex", "mcp__github__create_issue", {}, "mcp"),
        ("claude", "ExitPlanMode", {"kind": "plan"}, "plan"),
    ],
)
def test_a_tool_is_known_by_its_common_name_and_by_its_own(
    agent: str, tool: str, more: dict[str, Any], common: str
) -> None:
    ask = wanting(tool, agent=agent, **more)
    assert action(ask, rule(common, "reject")) == "reject"
    assert action(ask, rule(tool, "reject")) == "reject"
    assert action(ask, rule("another", "reject")) is None


def test_a_tool_that_only_calls_itself_harmless_is_what_it_does() -> None:
    ask = wanting("read", command="rm -rf /")
    assert action(ask, rule("read", "allow")) is None
    assert action(ask, rule("shell", "reject")) == "reject"


def test_a_shell_whose_language_is_another_is_not_read_as_this_one() -> None:
    ask = wanting("PowerShell", command="git status")
    assert action(ask, rule("shell", "allow", matches={"command": "git status"})) is None
    assert action(ask, rule("PowerShell", "allow", matches={"command": "git status"})) is None
    assert action(ask, rule("PowerShell", "reject", matches={"command": "git *"})) == "reject"
    assert action(ask, rule("PowerShell", "reject")) == "reject"


def test_a_command_is_judged_whole_also_where_a_server_runs_it() -> None:
    def wants(command: str) -> Ask:
        return wanting("mcp__box__run", input={"command": command})

    listing = rule("mcp__box__*", "allow", matches={"command": "ls *"})
    assert action(wants("ls -l"), listing) == "allow"
    assert action(wants("ls; rm -rf /"), listing) is None
    assert action(wants("ls; rm -rf /"), rule("mcp", "reject", matches={"command": "rm *"})) == "reject"


def test_an_argument_that_may_be_a_path_or_an_address_does_not_lead_elsewhere() -> None:
    def wants(**given: Any) -> Ask:
        return wanting("mcp__files__write", input=given)

    for name in ("path", "target"):
        inside = rule("mcp", "allow", matches={name: "src/*"})
        assert action(wants(**{name: "src/a.py"}), inside) == "allow"
        assert action(wants(**{name: "src/../.env"}), inside) is None
    docs = rule("mcp", "allow", matches={"address": "https://docs.python.org/*"})
    assert action(wants(address="https://docs.python.org/3/"), docs) == "allow"
    assert action(wants(address="https://docs.python.org@evil.example/"), docs) is None


def test_a_plan_is_no_tool_among_others() -> None:
    plan = wanting("ExitPlanMode", kind="plan")
    assert action(plan, rule("*", "allow")) is None
    assert action(plan, rule("plan", "allow")) == "allow"


def test_questions_are_never_answered() -> None:
    assert decide(an_ask(), [rule("*", "allow"), rule("*", "reject")]) == Decision()


# Which call ---------------------------------------------------------------------------------------------------------


def test_the_first_rule_that_matches_decides() -> None:
    rules = [rule("mcp__github__*", "ask"), rule("mcp", "reject", message="not from here"), rule("*", "allow")]
    assert action(wanting("mcp__github__list"), *rules) == "ask"
    decision = decide(wanting("mcp__other__list"), rules)
    assert (decision.action, decision.rule) == ("reject", rules[1])
    assert action(wanting("read"), *rules) == "allow"


def test_where_no_rule_speaks_a_person_is_asked() -> None:
    assert decide(wanting("read"), [rule("edit", "allow")]) == Decision()
    assert decide(wanting("read"), []) == Decision()


def test_the_agent_and_who_asks_can_be_conditions() -> None:
    assert action(wanting("read", agent="codex"), rule("*", "allow", agent="codex")) == "allow"
    assert action(wanting("read", agent="claude"), rule("*", "allow", agent="codex")) is None
    assert action(wanting("read", parent="p"), rule("*", "allow", context="subagent")) == "allow"
    assert action(wanting("read"), rule("*", "allow", context="subagent")) is None
    assert action(wanting("read"), rule("*", "allow", context="thread")) == "allow"
    assert action(wanting("read", parent="p"), rule("*", "allow", context="thread")) is None


def test_arguments_are_matched_by_pattern_expression_list_and_flag() -> None:
    ask = wanting("deploy", input={"to": "staging", "force": True, "replicas": 3, "how": {"slow": False}})
    assert action(ask, rule("deploy", "allow", matches={"to": "stag*"})) == "allow"
    assert action(ask, rule("deploy", "allow", matches={"to": "re:(staging|test)"})) == "allow"
    assert action(ask, rule("deploy", "allow", matches={"to": "re:stag"})) is None  # the whole of it
    assert action(ask, rule("deploy", "allow", matches={"to": ["test", "staging"]})) == "allow"
    assert action(ask, rule("deploy", "allow", matches={"to": []})) is None
    assert action(ask, rule("deploy", "allow", matches={"force": True, "replicas": "3"})) == "allow"
    assert action(ask, rule("deploy", "allow", matches={"force": False})) is None
    assert action(ask, rule("deploy", "allow", matches={"how.slow": False})) == "allow"
    assert action(ask, rule("deploy", "allow", matches={"missing": "*"})) is None
    assert action(ask, rule("deploy", "allow", matches={"missing": False})) is None


def test_a_list_passes_whole_and_is_refused_for_one_of_it() -> None:
    ask = wanting("tag", input={"names": ["a-1", "b-1"]})
    assert action(ask, rule("tag", "allow", matches={"names": "a-*"})) is None
    assert action(ask, rule("tag", "allow", matches={"names": "*-1"})) == "allow"
    assert action(ask, rule("tag", "reject", matches={"names": "a-*"})) == "reject"


def test_where_an_agent_cannot_be_allowed_once_a_person_decides() -> None:
    ask = wanting("read", replies=("always", "reject"))
    decision = decide(ask, [rule("*", "allow")])
    assert decision.action is None
    assert decision.why[-1] == "the agent offers no way to allow it once"


def test_more_than_the_command_is_not_covered_by_a_rule_for_commands() -> None:
    status = rule("shell", "allow", matches={"command": "git status*"})
    for more in (
        {"additionalPermissions": {"fileSystem": {"write": ["/"]}}},
        {"networkApprovalContext": {"host": "evil.example"}},
        {"kind": "writeStdin"},
    ):
        ask = wanting("shell", command="git status", input={"command": "git status", **more})
        assert action(ask, status) is None
        assert action(ask, rule("shell", "allow")) == "allow"
    assert action(wanting("shell", command="git status", input={"kind": "command"}), status) == "allow"


# Files and addresses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("src/*", "/shop/src/app.py", True),
        ("src/*", "src/deep/app.py", True),
        ("src/*", "src/../.env", False),
        ("src/*", "/shop/src/../../etc/passwd", False),
        ("src/*", "/elsewhere/src/app.py", False),
        ("src/*", "srcs/app.py", False),
        ("/shop/*", "README.md", True),
        ("*.env", "/shop/prod.env", True),
        ("*.env", "/shop/prod.env.py", False),
        ("./src/*", "src/app.py", True),
        ("re:/shop/[a-z]+[.]py", "app.py", True),
    ],
)
def test_paths_are_compared_from_the_working_folder(pattern: str, path: str, fits: bool) -> None:
    found = action(wanting("edit", paths=(path,)), rule("edit", "allow", matches={"path": pattern}))
    assert found == ("allow" if fits else None)


def test_each_file_of_a_patch_is_judged() -> None:
    rules = [rule("edit", "reject", matches={"path": "*.env"}), rule("edit", "allow", matches={"path": "src/*"})]
    assert action(wanting("apply_patch", paths=("src/a.py", "src/b.py")), *rules) == "allow"
    assert action(wanting("apply_patch", paths=("src/a.py", "README.md")), *rules) is None
    assert action(wanting("apply_patch", paths=("src/a.py", "src/.env")), *rules) == "reject"
    assert action(wanting("apply_patch", paths=()), *rules) is None


@pytest.mark.parametrize(
    ("pattern", "url", "fits"),
    [
        ("https://docs.python.org/*", "https://docs.python.org/3/library/", True),
        ("https://docs.python.org/*", "https://docs.python.org", True),
        ("https://docs.python.org/*", "https://DOCS.python.org/3/", True),
        ("https://docs.python.org/*", "http://docs.python.org/3/", False),
        ("https://docs.python.org/*", "https://docs.python.org.evil.example/", False),
        ("https://docs.python.org/*", "https://docs.python.org@evil.example/", False),
        ("https://docs.python.org/*", "https://docs.python.org:x@evil.example/", False),
        ("https://docs.python.org/*", "https://evil.example\\@docs.python.org/", False),
        ("https://docs.python.org/*", "https://docs.python.org:8443/", False),
        ("https://*.python.org/*", "https://docs.python.org/?q=1#top", True),
        ("https://*.python.org/*", "https://evil.example/.python.org/", False),
        ("https://*.python.org/*", "https://evil.example?.python.org/", False),
        ("https://*.python.org/*", "https://evil.example#.python.org/", False),
        ("https://docs.python.org/3/*", "https://docs.python.org/2/", False),
        ("*", "https://anything.example/", True),
        ("https://docs.python.org/*", "https://[broken", False),
    ],
)
def test_an_address_is_what_it_leads_to(pattern: str, url: str, fits: bool) -> None:
    assert matches_address(pattern, url) is fits
    assert action(wanting("fetch", url=url), rule("fetch", "allow", matches={"url": pattern})) == (
        "allow" if fits else None
    )


# Patterns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("git *", "git", True),
        ("git *", "git push", True),
        ("git *", "gitk", False),
        ("git*", "gitk", True),
        ("*", "", True),
        ("a.c", "abc", False),
        ("a*c", "a\nc", True),
        ("[ab]", "a", False),
        ("?", "a", False),
        ("re:a.c", "abc", True),
        ("re:(?i)GIT", "git", True),
    ],
)
def test_a_pattern_means_the_whole_text(pattern: str, text: str, fits: bool) -> None:
    assert matches(pattern, text) is fits


@pytest.mark.parametrize(
    ("wide", "narrow", "is_wider"),
    [
        ("*", "git *", True),
        ("git *", "git push*", True),
        ("git *", "git push", True),
        ("git *", "git", True),
        ("git*", "git *", True),
        ("git *", "git*", False),
        ("git push*", "git *", False),
        ("git push", "git push *", False),
        ("a*c", "a*bc", True),
        ("re:.*", "x", False),
        ("re:x", "re:x", True),
    ],
)
def test_whether_one_pattern_takes_all_of_another(wide: str, narrow: str, is_wider: bool) -> None:
    assert covers(wide, narrow) is is_wider


# Rules that say nothing ---------------------------------------------------------------------------------------------


def useless(*rules: Rule) -> list[int]:
    found = [each for each, _ in never_match(rules)]
    return [number for number, each in enumerate(rules, start=1) if any(each is one for one in found)]


def test_a_rule_behind_one_that_takes_all_of_it_can_never_match() -> None:
    git = rule("shell", "reject", matches={"command": "git *"})
    push = rule("shell", "allow", matches={"command": "git push*"})
    assert useless(git, push) == [2]
    assert useless(push, git) == []
    assert useless(rule("*", "ask"), git, push) == [2, 3]
    assert useless(rule("*", "ask", agent="codex"), git) == []
    assert useless(rule("*", "ask", context="thread"), git) == []
    assert useless(rule("*", "ask"), rule("plan", "allow")) == []
    assert useless(rule("deploy", "ask", matches={"force": True}), rule("deploy", "allow", matches={"force": True}))
    assert not useless(rule("deploy", "ask", matches={"force": True}), rule("deploy", "allow"))
    assert useless(rule("shell", "allow", matches={"command": []})) == [1]


def test_what_forbids_finds_more_than_what_allows_before_it() -> None:
    allowed = rule("shell", "allow", matches={"command": "git *"})
    forbidden = rule("shell", "reject", matches={"command": "git push*"})
    assert useless(allowed, forbidden) == []
    assert action(wanting("bash", command="sudo git push"), allowed, forbidden) == "reject"


# Reading ------------------------------------------------------------------------------------------------------------

WRITTEN = """
[policy]
question_timeout = 60

[[rules]]
tool = "shell"
matches = { command = ["git status*", "git diff*"] }
action = "allow"

  [[ rules ]]  # with a remark
tool = "*"
action = "delegate"
to = "bin/decide"
timeout = 5
"""


def test_rules_are_read_with_the_lines_they_stand_in(tmp_path: Path) -> None:
    file = tmp_path / "handraise.toml"
    first, second = rules_in(WRITTEN, file=file)
    assert (first.source, second.source) == (f"{file}:5", f"{file}:10")
    assert first.matches == {"command": ("git status*", "git diff*")}
    assert (second.to, second.timeout) == ((str(tmp_path / "bin" / "decide"),), 5)
    assert parse_rule(told(first), source=first.source) == first
    assert str(first) == "shell, command = 'git status*' or 'git diff*': allow"
    inline = rules_in('\nrules = [{tool="a", action="ask"}, {tool="b", action="ask"}]', file=file)
    assert [each.source for each in inline] == [f"{file}:2", f"{file}:2"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"action": "allow"}, "tool is missing"),
        ({"tool": "*"}, "action is one of allow, reject, ask, delegate"),
        ({"tool": "*", "action": "permit"}, "action is one of allow, reject, ask, delegate"),
        ({"tool": "", "action": "allow"}, "tool is a text"),
        ({"tool": "*", "action": "allow", "mathces": {}}, "a rule has no 'mathces'"),
        ({"tool": "*", "action": "allow", "matches": "git"}, "matches is a table"),
        ({"tool": "*", "action": "allow", "matches": {"a": 1}}, "matches.a is a pattern"),
        ({"tool": "*", "action": "allow", "matches": {"a": ["x", 2]}}, "matches.a is a pattern"),
        ({"tool": "*", "action": "allow", "matches": {"a": "re:("}}, "not a regular expression"),
        ({"tool": "*", "action": "allow", "context": "child"}, "context is one of thread, subagent"),
        ({"tool": "*", "action": "allow", "message": "no"}, "a message is for the agent that is refused"),
        ({"tool": "*", "action": "delegate"}, "to names the program"),
        ({"tool": "*", "action": "allow", "to": "x"}, "to names the program"),
        ({"tool": "*", "action": "delegate", "to": [1]}, "to names the program"),
        ({"tool": "*", "action": "delegate", "to": "x", "timeout": 0}, "timeout is for the program"),
        ({"tool": "*", "action": "delegate", "to": "x", "timeout": 301}, "timeout is for the program"),
        ({"tool": "*", "action": "allow", "timeout": 5}, "timeout is for the program"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said_with_its_place(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as raised:
        parse_rule(given, source="handraise.toml:3")
    assert raised.value.message.startswith("handraise.toml:3: ")
    assert problem in raised.value.message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("rules = 1", "rules are tables"),
        ("rules = [1]", "rules are tables"),
        ("[rules", "cannot be read"),
        ('[[rules]]\ntool="*"\naction="ask"\n' * 1001, "at most 1000 rules"),
    ],
)
def test_a_file_that_is_wrong_is_named(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=problem):
        rules_in(text, file=tmp_path / "handraise.toml")
