"""Commands are judged whole: nothing that runs more than a rule speaks of passes it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handraise.asks import Ask, Origin, Permission
from handraise.rules import Decision, Rule, decide
from handraise.rules.shell import split

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


def test_the_same_line_is_read_once() -> None:
    assert split("git status") is split("git status")


# Bash has the last word: whatever is allowed runs `git status` there, and nothing else.

RECORDER = """
command_not_found_handle() { printf '%s\\n' "$1" >> "$RAN"; return 127; }
git() { printf 'git %s\\n' "$1" >> "$RAN"; }
"""
PIECES = [
    *("git status", "git", "status", "evil", "-s", "'", '"', "\\", "`", "$(", ")", "(", "{", "}", ";", "&", "|", "\n"),
    *("<", ">", "<<E", "\nE\n", "<<<", "#", "!", "$", "$'", '$"', "=", "x=1", "~", "*", "?", "[", "]", " ", "\t", "\r"),
    *("${", "$((", "))", "[[", "]]", "if ", "then ", "fi", "do ", "done", "for ", "function ", "time ", "coproc "),
    *("eval ", "exec ", "command ", "env ", ",", "..", "2>&1", ">/dev/null", "\\\n", "&&", "||", ";;", "|&", "()"),
]


def lines() -> st.SearchStrategy[str]:
    spoilt = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
    return st.one_of(
        spoilt,
        spoilt.map(lambda rest: f"git status {rest}"),
        spoilt.map(lambda rest: f"git status{rest}"),
        st.tuples(spoilt, spoilt).map(lambda both: f"{both[0]} git status {both[1]}"),
    )


@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command=lines())
def test_bash_runs_nothing_but_what_was_allowed(command: str, tmp_path: Path) -> None:
    words = Rule(tool="shell", action="allow", matches={"command": ("git status *",)})
    if judged(command, words).action != "allow":
        return
    folder = tmp_path / "empty"
    folder.mkdir(exist_ok=True)
    ran = tmp_path / "ran"
    ran.write_text("")
    subprocess.run(
        ["/bin/bash", "--norc", "-c", f"{RECORDER}\neval {_quoted(command)}"],
        cwd=folder,
        env={"RAN": str(ran), "PATH": "/nonexistent"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    assert set(ran.read_text().splitlines()) <= {"git status"}, command
    assert list(folder.iterdir()) == [], command


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
