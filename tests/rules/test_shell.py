"""Commands are judged whole: nothing that runs more than a rule speaks of passes it."""

from __future__ import annotations

import tracemalloc

import pytest

from handraise.asks import Ask, Origin, Permission
from handraise.rules import Action, Decision, Rule, decide
from handraise.rules.globs import ANY, ANY_FIRST, ONE, ONE_FIRST, meets
from handraise.rules.risks import judge
from handraise.rules.shell import Parts, split
from tests.helpers.hostile_commands import BY_READING, CANNOT_BE, EVERYDAY, MAY_BE, MUST_REJECT, UNREADABLE

STATUS = Rule(tool="shell", action="allow", matches={"command": ("git status*",)}, source="rules:1")

PLAIN = [
    "git status",
    "git status --porcelain",
    "git status --porcelain=v2 --branch",
    "git  status   -s",
    "git\tstatus",
    "git status -- src/app.py 'a file.txt'",
    "git status 2>/dev/null",
    "git status >/dev/null 2>&1",
    "git status; git status -s",
    "git status && git status -s || git status",
    "git status | git status",
    "(git status)",
    "git status;",
    "git status &",
    "'git' \"status\"",
    "g\\it status",
    "git status\ngit status -s\n",
    "git status stash@{0}",
    "git status \\\n  --porcelain",
]

# Each would run or do something that nobody allowed with `git status*`.
HOSTILE = [
    "rm -rf /",
    "git status && rm -rf /",
    "git status & rm -rf /",
    "git status; rm -rf /",
    "git status;rm -rf /",
    "git status\nrm -rf /",
    "git status\r\nrm -rf /",
    "git status | sh",
    "git status |& sh",
    "git status | tee /etc/passwd",
    "git status || rm -rf /",
    "git status $(rm -rf /)",
    "git status `rm -rf /`",
    'git status "$(rm -rf /)"',
    'git status "`rm -rf /`"',
    "git status <(rm -rf /)",
    "git status >(rm -rf /)",
    "git status > /etc/passwd",
    "git status >> ~/.bashrc",
    "git status >| file",
    "git status &> file",
    "git status >& file",
    "git status 2> file",
    "git status <> file",
    "git status > >(sh)",
    "git status < /etc/shadow",
    "git status 2>&1\\\nfile",
    "git status '\\\n'; rm -rf / '",
    "git status <<< $(rm -rf /)",
    "git status <<EOF\n$(rm -rf /)\nEOF",
    "git status <<'EOF'\nrm\nEOF\nrm -rf /",
    "git status <<-EOF\n\t`rm -rf /`\n\tEOF",
    "git status $((x[$(rm -rf /)]))",
    "git status $[x[$(rm -rf /)]]",
    "git status ${x:-$(rm -rf /)}",
    "git status ${x:=`rm -rf /`}",
    "git status ${!x}",
    "git status ${x@P}",
    "git status $x",
    "git status $@",
    "git status $'\\x3b rm -rf /'",
    'git status $"rm"',
    "git $x status",
    "$(echo git status)",
    "`echo git` status",
    "$git status",
    "${git} status",
    "g${x}it status",
    "git status{,;rm}",
    "git {status,push}",
    "{git,status}",
    "{ git status; rm -rf /; }",
    "(git status; rm -rf /)",
    "(rm -rf /) ; git status",
    "! rm -rf / || git status",
    "if git status; then rm -rf /; fi",
    "while git status; do rm -rf /; done",
    "until git status; do rm -rf /; done",
    "for x in git status; do rm -rf $x; done",
    "for ((;;)); do git status; rm -rf /; done",
    "select x in a; do rm -rf /; done",
    "case git in git) rm -rf /;; esac",
    "git() { rm -rf /; }; git status",
    "function git { rm -rf /; }; git status",
    "function git() { rm -rf /; }\ngit status",
    "git () rm; git status",
    "alias git='rm -rf /'; git status",
    "alias git=rm\ngit status",
    "coproc rm -rf /",
    "coproc git status { rm -rf /; }",
    "time rm -rf /",
    "exec rm -rf /",
    "eval rm -rf /",
    "eval 'git status; rm -rf /'",
    "eval git status",
    "bash -c 'git status; rm -rf /'",
    "bash -c 'git status'",
    "sh -c 'git status'",
    "bash -lc 'git status && rm -rf /'",
    "/bin/bash -c 'rm -rf /'",
    "bash <<< 'rm -rf /'",
    "bash <(git status)",
    "echo 'rm -rf /' | bash",
    "env git status",
    "env -S 'rm -rf /' git status",
    "env rm -rf /",
    "sudo git status",
    "sudo rm -rf /",
    "doas git status",
    "nohup git status",
    "timeout 5 git status",
    "nice -n 5 git status",
    "xargs git status",
    "git status | xargs rm",
    "find . -exec git status ;",
    "command git status",
    "builtin eval 'rm -rf /'",
    "watch git status",
    "ssh host git status",
    "GIT_PAGER='rm -rf /' git status",
    "GIT_DIR=/tmp/evil git status",
    "LD_PRELOAD=/tmp/evil.so git status",
    "PATH=/tmp/evil git status",
    "PATH=/tmp/evil; git status",
    "export PATH=/tmp/evil; git status",
    "export PATH=/tmp/evil && git status",
    "declare -x PATH=/tmp/evil\ngit status",
    "readonly X=$(rm -rf /); git status",
    "hash -p /tmp/evil git; git status",
    "enable -f /tmp/evil.so git; git status",
    "source evil.sh; git status",
    ". ./evil.sh; git status",
    "cd /tmp/evil && git status",
    "trap 'rm -rf /' EXIT; git status",
    "set -- rm; git status",
    "shopt -s expand_aliases; git status",
    "IFS=x; git status",
    "x=git; $x status",
    "./git status",
    "/tmp/git status",
    "~/git status",
    "gi? status",
    "/bin/gi* status",
    "[g]it status",
    "git -c core.fsmonitor='rm -rf /' status",
    "git -C /tmp/evil status",
    "git --exec-path=/tmp/evil status",
    "git push",
    "git statu",
    " ",
    "",
    "#",
    "git # status",
    "git status # x\nrm -rf /",
    "# git status\nrm -rf /",
    "git status \\\n; rm -rf /",
    "git status \\; rm ; rm -rf /",
    "git status 'a' ; rm -rf / ; echo 'b'",
    'git status "a" ; rm -rf / ; echo "b"',
    "git status 'it''s' ; rm -rf /",
    'git status "\'" ; rm -rf / ; echo "\'"',
    "git status '\"' ; rm -rf / ; echo '\"'",
    "git status \\' ; rm -rf / ; echo \\'",
    'git status \\" ; rm -rf / ; echo \\"',
    "git status 'unfinished ; rm -rf /",
    'git status "unfinished ; rm -rf /',
    "git status (rm -rf /)",
    "git status ) rm -rf /",
    "git status;;rm -rf /",
    "git status\x00; rm -rf /",
    "git status\x1b[A; rm",
    "git status\u2028rm -rf /; rm",
    "git status\u00a0; rm -rf /",
    "git\u00a0status",
    "ｇit status",
    "git status *(e:'rm -rf /':)",
    "=git status",
    "git status &! rm -rf /",
    "git status; [[ x =~ $(rm -rf /) ]]",
    "[ -f x ] && rm -rf /",
    "test -f x; git status",
    "((x=1)); git status",
    "let x=1; git status",
    "printf -v PATH /tmp/evil; git status",
    "read -r PATH < file; git status",
    "mapfile < file; git status",
    "unset PATH; git status",
    "git status; disown; rm",
    "git status; wait; rm -rf /",
    "git status & wait; rm -rf /",
    "git status " + "x" * 30_000 + "; rm -rf /",
    "(" * 200 + "git status; rm -rf /" + ")" * 200,
]


def judged(command: str, *rules: Rule, tool: str = "bash") -> Decision:
    permission = Permission(tool=tool, command=command, input={"command": command})
    return decide(Ask(id="1", permission=permission, origin=Origin(agent="any", session="s")), rules or (STATUS,))


@pytest.mark.parametrize("command", PLAIN)
def test_what_a_rule_speaks_of_is_allowed(command: str) -> None:
    decision = judged(command)
    assert decision.action == "allow", decision.why
    assert "rules:1" in decision.why[0]


@pytest.mark.parametrize("command", HOSTILE)
def test_nothing_else_passes_a_rule_that_allows(command: str) -> None:
    assert judged(command).action is None


def test_the_corpus_is_as_large_as_it_is_said_to_be() -> None:
    assert len(set(HOSTILE)) >= 150


REFUSED = [
    "rm -rf /",
    "rm  -rf  /",
    "'rm' -rf /",
    "r\\m -rf /",
    '"rm" "-rf" /',
    "/bin/rm -rf /",
    "sudo rm -rf /",
    "sudo -u root /bin/rm -rf /",
    "env X=1 rm -rf /",
    "timeout 5 rm -rf /",
    "nohup nice rm -rf / &",
    "xargs rm -rf /",
    "find . -exec rm -rf {} +",
    "git status && rm -rf /",
    "git status; rm -rf /",
    "git status | rm -rf /",
    "git status $(rm -rf /)",
    "git status `rm -rf /`",
    'git status "$(rm -rf /)"',
    "git status <(rm -rf /)",
    "git status > $(rm -rf /)",
    "cat <<EOF\n$(rm -rf /)\nEOF",
    "X=$(rm -rf /) git status",
    "{ rm -rf /; }",
    "(rm -rf /)",
    "if true; then rm -rf /; fi",
    "for x in 1; do rm -rf /; done",
    "f() { rm -rf /; }; f",
    "! rm -rf /",
    "bash -c 'rm -rf /'",
    'bash -c "git status; rm -rf /"',
    "bash -c 'bash -c \"rm -rf /\"'",
    "eval rm -rf /",
    "eval 'rm -rf /'",
    "exec rm -rf /",
    "time rm -rf /",
]


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_forbidden_is_found_wherever_it_hides(command: str) -> None:
    forbidden = Rule(tool="shell", action="reject", matches={"command": ("rm -rf *",)}, source="rules:1")
    everything = Rule(tool="*", action="allow", source="rules:2")
    assert judged(command, forbidden, everything).action == "reject"


ALLOW_ALL = Rule(tool="*", action="allow", source="rules:2")


def rule_for(action: Action, pattern: str) -> Rule:
    return Rule(tool="shell", action=action, matches={"command": (pattern,)}, source="rules:1")


@pytest.mark.parametrize(("pattern", "command", "why"), BY_READING)
def test_a_wildcard_covers_nothing_that_a_shell_reads_differently(pattern: str, command: str, why: str) -> None:
    assert judged(command, rule_for("allow", pattern)).action is None, why


@pytest.mark.parametrize(("pattern", "command"), MUST_REJECT)
def test_a_rule_that_forbids_sees_through(pattern: str, command: str) -> None:
    assert judged(command, rule_for("reject", pattern), ALLOW_ALL).action == "reject"
    assert judged(command, rule_for("ask", pattern), ALLOW_ALL).action == "ask"


@pytest.mark.parametrize(("pattern", "command"), UNREADABLE)
def test_what_cannot_be_read_is_not_allowed_beside_a_rule_that_forbids(pattern: str, command: str) -> None:
    assert judged(command, rule_for("reject", pattern), ALLOW_ALL).action in (None, "reject")
    assert split(command).is_blind


@pytest.mark.parametrize(("pattern", "command"), MAY_BE)
def test_what_may_be_forbidden_is_not_allowed_beside_a_rule_that_forbids(pattern: str, command: str) -> None:
    assert judged(command, rule_for("reject", pattern), ALLOW_ALL).action in (None, "reject")
    assert judged(command, rule_for("ask", pattern), ALLOW_ALL).action in (None, "ask")
    assert judged(command, ALLOW_ALL, rule_for("reject", pattern)).action in (None, "allow"), "the first rule decides"


@pytest.mark.parametrize(("pattern", "command"), CANNOT_BE)
def test_what_cannot_be_forbidden_is_left_to_a_rule_that_allows_everything(pattern: str, command: str) -> None:
    decision = judged(command, rule_for("reject", pattern), ALLOW_ALL)
    assert decision.action == "allow", decision.why


def test_what_may_be_forbidden_says_by_which_rule() -> None:
    why = judged("git $x", rule_for("reject", "git push *"), ALLOW_ALL).why
    assert why[-1] == "it may be what rules:1 (shell, command = 'git push *': reject) speaks of"


@pytest.mark.parametrize(("pattern", "command"), EVERYDAY)
def test_everyday_commands_stay_allowed(pattern: str, command: str) -> None:
    decision = judged(command, rule_for("allow", pattern), rule_for("reject", "rm -rf *"))
    assert decision.action == "allow", decision.why


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("rm *", "cat rm"),
        ("rm *", "git commit -m 'rm -rf /'"),
        ("rm *", "git commit -m 'gone; rm -rf / too'"),
        ("rm *", "git log --grep rm"),
        ("git push*", "git commit -m push"),
        ("git push*", "git log push"),
        ("rm -rf *", "rm -r build"),
        ("rm -rf *", "rm -f build"),
        ("cat .env", "cat *"),
        ("cat .env", "cat ?env"),
        ("cat .env", "cat .env.example"),
        ("cat .env", "ls .en?"),
        ("rm *", "cat > x <<'E'\nrm -rf /\nE"),
        ("rm *", "grep -rn 'rm -rf' src"),
        ("rm *", "find . -name rm"),
    ],
)
def test_a_rule_that_forbids_finds_no_more_than_its_case(pattern: str, command: str) -> None:
    assert judged(command, rule_for("reject", pattern), ALLOW_ALL).action == "allow"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cd /shop && git status", "allow"),
        ("cd /shop/; git status", "allow"),
        ("cd /shop/src && git status", None),
        ("cd src && git status", None),
        ("cd /shop/../etc && git status", None),
        ("cd /shop && cd src && git status", None),
        ("cd $x && git status", None),
        ("cd - && git status", None),
        ("cd /shop && rm x", None),
    ],
)
def test_going_to_the_folder_where_it_is_already_changes_nothing(command: str, expected: str | None) -> None:
    permission = Permission(tool="bash", command=command, input={"command": command}, cwd="/shop")
    ask = Ask(id="1", permission=permission, origin=Origin(agent="any", session="s"))
    assert decide(ask, (STATUS,)).action == expected
    assert (judge(ask).doubt is None) == (expected == "allow" or "rm" in command)


def test_a_rule_may_name_a_variable_that_changes_nothing_of_account() -> None:
    rule = rule_for("allow", "NODE_ENV=test npm test*")
    assert judged("NODE_ENV=test npm test -- --watch=false", rule).action == "allow"
    assert judged("NODE_ENV=production npm test", rule).action is None
    assert judged("npm test", rule).action is None


def test_a_rule_for_whatever_is_run_means_that() -> None:
    for rule in (
        Rule(tool="shell", action="allow"),
        Rule(tool="*", action="allow"),
        Rule(tool="shell", action="allow", matches={"command": ("*",)}),
    ):
        assert judged("git status > $(date).txt", rule).action == "allow"


def test_what_is_in_doubt_says_why() -> None:
    assert judged("git status > file").why[-1] == "it reads from a file or writes to one, so a person is asked"


def test_each_part_may_be_allowed_by_a_rule_of_its_own() -> None:
    diff = Rule(tool="shell", action="allow", matches={"command": ("git diff*", "head *")}, source="rules:2")
    decision = judged("git status && git diff | head -5", STATUS, diff)
    assert decision.action == "allow"
    assert [why.partition(":")[0] for why in decision.why] == ["'git status'", "'git diff'", "'head -5'"]


def test_only_commas_inside_of_braces_part_words() -> None:
    assert [part.words for part in split("cat x,{a,b},y").parts] == [("cat", "x,{a,b},y"), ("cat", "x,a,y", "x,b,y")]


def test_the_same_line_is_read_once() -> None:
    assert split("git status") is split("git status")


# What one line costs ------------------------------------------------------------------------------------------------

LONG = [
    "a|" * 10_000,
    "a;" * 10_000,
    "a " * 10_000,
    "eval " * 4_000,
    "{a," * 6_666,
    "$(" * 10_000,
    "(" * 20_000,
    "`" * 20_000,
    '"$(' * 6_666,
    "${" * 10_000,
    "a()" * 6_666,
    "))" * 10_000,
    "a=(" * 6_666,
    ">" * 20_000,
    "<" * 20_000,
    "[" * 20_000,
    "[[ a =~ (" * 2_222,
    "a <<E " * 3_333,
    "a <<E\n" * 3_333,
    "cat <<E\n" + "\\\n" * 9_000,
    "cat <<E\n" + "$(a)" * 4_900 + "\nE",
    "bash -c '" * 2_222,
    "trap 'a' EXIT;" * 1_400,
    "ssh a 'b;c';" * 1_600,
    "sudo " * 4_000,
    "sudo -x " * 2_500,
    "sudo " + "w " * 9_000,
    "env " + "A=1 " * 4_900 + "rm",
    "git " + "-C . " * 3_900 + "push",
    "rm " + "--recursive --force " * 950,
    "cat " + "a/b.c " * 3_300,
    "cat " + "*a*b*c " * 2_800,
    "cat " + "*" * 19_000,
    "cat " + "?" * 19_000,
    "cat " + "{a,b,c}{d,e} " * 1_500,
    "find . " + "-exec sh -c 'a' \\; " * 900,
    "python3 -c '" + 'os.system("a");' * 1_300 + "'",
    "alias " + "a='b;c' " * 2_400,
    "''" * 9_999,
    "\\a" * 9_999,
    "case x in " * 2_000,
    "for a in b;do " * 1_400,
    ";".join(f"sudo -u a -g b git -C . push --force x{number} a/b c.d" for number in range(380)),
]


def size_of(parts: Parts) -> int:
    return sum(len(form) for part in parts.parts for form in (part.text, part.written, *part.forms, *part.open_forms))


@pytest.mark.parametrize("command", LONG, ids=lambda command: command[:12])
def test_a_long_line_costs_little(command: str) -> None:
    """Counted, not timed: characters of what is kept, parts, forms, and bytes at the worst moment."""
    command = command[:20_000]
    tracemalloc.start()
    try:
        parts = split(command)
        _, worst = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert worst < 4_000_000
    assert len(parts.parts) <= 102
    assert sum(len(part.forms) + len(part.open_forms) for part in parts.parts) <= 2_500
    assert size_of(parts) <= 150_000
    assert parts.doubt is not None or len(parts.parts) == 1


def test_what_is_over_a_cap_is_in_doubt_and_blind() -> None:
    for command in ("a|" * 200 + "a", "a " * 2_000, "eval " * 20 + "a", "(" * 40 + "a" + ")" * 40, "x" * 20_001):
        assert split(command).is_blind and split(command).doubt, command[:20]


def test_what_is_kept_of_lines_that_were_read_is_bounded_by_its_size() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(300):
            split(f"cat {number} " + "a/b.c " * 900)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 30_000_000


# Patterns of a shell beside patterns of a rule ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("cat .env", f"cat .en{ONE}", True),
        ("cat .env", f"cat .e{ANY}", True),
        ("cat .env", f"cat {ANY_FIRST}", False),
        ("cat .env", f"cat {ONE_FIRST}env", False),
        ("cat .env", f"cat .{ANY}", True),
        ("cat .env", f"cat .en{ONE}{ONE}", False),
        ("cat a/b", f"cat {ANY_FIRST}", False),
        ("cat a/b", f"cat {ANY_FIRST}/b", True),
        ("cat *.env", f"cat {ANY_FIRST}", True),
        ("cat *.env", f"cat src/.e{ONE}v", True),
        ("rm *", f"r{ONE} -rf /", True),
        ("rm *", f"r{ONE}", True),
        ("rm *", f"r{ONE}{ONE} x", False),
        ("*", f"{ANY_FIRST}", True),
        ("re:cat .*", f"cat {ANY_FIRST}", False),
    ],
)
def test_a_pattern_of_a_rule_meets_a_pattern_of_a_shell(pattern: str, text: str, expected: bool) -> None:
    assert meets(pattern, text) is expected
