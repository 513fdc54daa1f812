"""A rule that allows covers only options that are known as harmless or that it names, for the programs of the file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handraise.asks import Ask, Origin, Permission
from handraise.rules import Decision, Rule, decide, never_match, warnings_of
from handraise.rules import programs as file
from handraise.rules.options import MOST_WORDS
from handraise.rules.scripts import is_harmless_script
from tests.helpers.hostile_commands import BY_OPTIONS, BY_WORDS, EVERYDAY

LABELLED = Path(__file__).parents[1] / "data" / "labelled_commands.txt"


def allowing(*patterns: str, source: str = "rules:1") -> Rule:
    return Rule(tool="shell", action="allow", matches={"command": patterns}, source=source)


def judge(command: str, *rules: Rule) -> Decision:
    permission = Permission(tool="shell", command=command, cwd="/shop")
    return decide(Ask(id="1", permission=permission, origin=Origin(agent="any", session="s", cwd="/shop")), rules)


def is_allowed(command: str, *patterns: str) -> bool:
    return judge(command, allowing(*patterns)).action == "allow"


def labelled() -> list[tuple[str, str, bool]]:
    """Rules as people write them, with lines that they fit and whether those are meant."""
    found, rule = [], ""
    for line in LABELLED.read_text().splitlines():
        if line.startswith(("+ ", "- ")):
            found.append((rule, line[2:], line[0] == "+"))
        elif line and not line.startswith("#"):
            rule = line
    return found


# The file -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "line", "is_covered"), list(file.examples()))
def test_every_example_of_the_file_is_read_as_it_says(command: str, line: str, is_covered: bool) -> None:
    assert is_allowed(line, f"{command} *") is is_covered


def test_no_list_of_the_file_says_two_things_about_an_option() -> None:
    tables = {**file._file(), **{f"set {name}": table for name, table in file._file()["sets"].items()}}
    for name, table in tables.items():
        said: dict[str, object] = {}
        for option in file._options(table) if name not in ("sets", "valued", "risks") else ():
            assert said.setdefault(option.name, (option.kind, option.takes)) == (option.kind, option.takes), name


def test_every_list_and_every_key_of_the_file_is_one_that_is_read() -> None:
    known = {
        *file.KINDS,
        "harmless",
        "does",
        "options",
        "anywhere",
        "others",
        "style",
        "loose",
        "apart",
        "stops",
        "runs",
    }
    known |= {
        "code",
        "module",
        "operand",
        "most",
        "values",
        "script",
        "free",
        "plain",
        "assigns",
        "adds",
        "old",
        "starts",
        "dashes",
        "past",
        "response",
        "places",
        "each",
        "inside",
    }
    for name, table in file._file().items():
        if name not in ("sets", "valued", "risks"):
            assert set(table) <= known | {"passes", "asks"}, name
            assert set(table.get("others", {})) <= set(file.DOES), name
            assert table.get("does", "reads") in file.DOES, name
    assert all(command.name for command in file.commands())


WANTED = """
    git npm pnpm yarn bun npx node python pip uv pytest ruff mypy tsc eslint prettier jest vitest cargo rustc go make
    cmake mvn gradle find fd sort uniq tar zip unzip curl wget kubectl helm terraform gh docker sed awk xargs ssh scp
    rsync rg grep cat head tail ls wc jq yq diff echo printf env date du df ps tree stat file which cut tr less
"""


@pytest.mark.parametrize("program", WANTED.split())
def test_the_programs_that_people_allow_most_are_in_the_file(program: str) -> None:
    assert file.command_of(program) is not None


# What passes and what does not --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "line", "is_meant"), labelled())
def test_a_rule_covers_what_its_author_means_and_nothing_that_does_harm(rule: str, line: str, is_meant: bool) -> None:
    assert is_allowed(line, rule) is is_meant


@pytest.mark.parametrize(("pattern", "command", "why"), BY_OPTIONS + BY_WORDS)
def test_no_option_gets_around_a_rule(pattern: str, command: str, why: str) -> None:
    assert not is_allowed(command, pattern), why


@pytest.mark.parametrize(("pattern", "command"), EVERYDAY)
def test_everyday_commands_still_pass(pattern: str, command: str) -> None:
    assert is_allowed(command, pattern)


@pytest.mark.parametrize(
    ("pattern", "command", "passes"),
    [
        # A rule without a wildcard is that text.
        ("git diff --output=x", "git diff --output=x", True),
        ("git diff --output=x", "git diff --output=y", False),
        # What is named is covered, with the value that is named.
        ("git diff --output=* *", "git diff --output=x HEAD", True),
        ("git diff --output=x *", "git diff --output=x HEAD", True),
        ("git diff --output=x *", "git diff --output=x --output=y", False),
        ("git diff --output=x *", "git diff --output=x --output y", False),
        ("git diff --output x *", "git diff --output x HEAD", True),
        ("sort -o out.txt *", "sort -o out.txt a", True),
        ("sort -o out.txt *", "sort -o out.txt -o /etc/passwd a", False),
        ("sort -o *", "sort -o a b", True),
        ("git -C web *", "git -C web status", True),
        ("git -C web *", "git -C web -C /evil status", False),
        ("git -C web *", "git -C web -c a=b status", False),
        ("npm --prefix web test *", "npm --prefix web test", True),
        ("npm --prefix web test *", "npm --prefix web test --prefix evil", False),
        ("find * -exec grep *", "find . -exec grep -l x {} +", True),
        ("find * -exec grep *", "find . -exec rm {} + -exec grep x {} +", False),
        ("find * -exec git diff *", "find . -exec git diff --output=x {} +", False),
        ("make CC=gcc *", "make CC=gcc all", True),
        ("make CC=gcc *", "make CC=gcc CC=evil", False),
        ("make CC=* *", "make CC=clang all", True),
        ("make CC=* *", "make CC=clang SHELL=evil", False),
        ("git branch -D *", "git branch -D topic", True),
        ("git push --force*", "git push --force-with-lease", False),
        ("tar -xzf * -C out *", "tar -xzf a.tgz -C out x", True),
        ("git diff --frobnicate *", "git diff --frobnicate HEAD", True),
        # Subcommands.
        ("git *", "git push", True),
        ("git *", "git frobnicate", False),
        ("git frobnicate *", "git frobnicate --anything", True),
        ("git config *", "git config --get user.name", True),
        ("git *", "git config --get user.name", True),
        ("git *", "git config user.name ana", False),
        ("docker exec web *", "docker exec web ls -la --privileged", True),
        ("docker exec *", "docker exec --privileged web ls", False),
        # `--` ends the options, and a value is no option.
        ("git diff *", "git diff -- --output=x", True),
        ("git log *", "git log --grep --output=x", True),
        ("git commit *", "git commit -m --no-verify", True),
        ("git commit *", "git commit -m x --no-verify", False),
        ("npm test *", "npm test -- --script-shell=x", True),
        # Letters that are written together.
        ("ls *", "ls -lah", True),
        ("sort *", "sort -rno x a", False),
        ("git log *", "git log -5", True),
        # Regular expressions name only what they spell out.
        ("re:git diff.*", "git diff --stat", True),
        ("re:git diff.*", "git diff --output=x", False),
        (r"re:git diff --output=x( .*)?", "git diff --output=x", True),
        (r"re:git diff --output=x.*", "git diff --output=xy", False),
        (r"re:git diff --output=.*", "git diff --output=x", False),
        (r"re:git (config|status) .*", "git config --get a", True),
        # A wildcard in the place of the program.
        ("* --stat", "git diff --stat", True),
        ("*diff*", "git diff --output=x", False),
        # Whatever is run.
        ("*", "git diff --output=x", True),
        # By its path.
        ("/usr/bin/git diff *", "/usr/bin/git diff --output=x", False),
        ("./node_modules/.bin/tsc *", "./node_modules/.bin/tsc --outDir x", False),
        # Programs that run programs.
        ("timeout 60 *", "timeout 60 git diff --output=x", False),
        ("timeout 60 *", "timeout 60 anything --at-all", True),
        ("timeout 60 git diff --output=x *", "timeout 60 git diff --output=x HEAD", True),
        ("timeout *", "timeout 5 nice git diff --output=x", False),
        ("env FOO=1 npm test *", "env FOO=1 npm test", True),
        ("env *", "env PATH=/evil npm test", False),
        ("xargs rm *", "xargs rm -f", True),
        ("xargs *", "xargs rm -f", False),
        ("xargs git diff *", "xargs git diff", False),
        ("xargs grep *", "xargs grep -n x", True),
        # Interpreters are as wide as they are written.
        ("python *", "python -c 'anything'", False),
        ("python *.py", "python -c 'anything #.py'", False),
        ("python *.py", "python x.py", True),
        ("python -m pytest *", "python -m pytest -q", True),
        ("python -m pytest *", "python -m pytest -p evil", False),
        ("python scripts/*", "python scripts/x.py -c anything", True),
        ("bash scripts/*", "bash scripts/x.sh", True),
        ("node *.js", "node --require ./evil x.js", False),
        # Names of files that look like options.
        ("sort *", "sort *", False),
        ("sort *", "sort ./*", True),
        ("sort *", "sort -- *", True),
        ("sort *", "sort '*'", True),
        ("sort *", 'sort "*.txt" \\*', True),
        ("sort *", "sort '*' *.txt", False),
        ("sort *", "sort src/*.txt", True),
        ("ls *", "ls *.py", True),
        ("cat *", "cat *", True),
        ("find *", "find . -name *.py", True),
        ("find *", "find *", False),
        # A program that is not in the file.
        ("frobnicate *", "frobnicate --output=x", True),
    ],
)
def test_what_a_wildcard_covers(pattern: str, command: str, passes: bool) -> None:
    assert is_allowed(command, pattern) is passes


def test_a_person_is_told_why_a_rule_did_not_cover_it() -> None:
    rule = allowing("git diff *", "git log *")
    said = judge("git diff --outp=x", rule)
    assert said.action is None
    assert said.why == (
        "'git diff --outp=x': rules:1 (shell, command = 'git diff *' or 'git log *': allow) does not cover it: "
        "--outp is not known to be harmless for git diff",
    )
    assert (
        "--output of git diff writes a file, and the rule does not name it" in judge("git diff --output=x", rule).why[0]
    )
    both = judge("git log -1 && git diff --output=x", rule)
    assert both.action is None
    assert ["does not cover" in why for why in both.why] == [False, True]


def test_a_rule_behind_it_may_cover_what_the_first_one_does_not() -> None:
    first, second = allowing("git diff *"), allowing("git diff --output=out/*", source="rules:2")
    assert judge("git diff --output=out/a", first, second).rule == second
    assert judge("git diff --output=../a", first, second).action is None
    assert judge("git diff --output=out/a", first, Rule(tool="shell", action="allow")).action == "allow"
    assert list(never_match([first, second])) == []
    assert [rule for rule, _ in never_match([first, allowing("git diff --stat")])] == [allowing("git diff --stat")]


def test_what_find_starts_may_be_allowed_by_another_rule() -> None:
    both = allowing("find *", "grep *", "uniq *")
    assert judge("find . -name '*.py' -exec grep -l x {} +", both).action == "allow"
    assert judge("find . -exec grep -l x {} + -exec grep -c y {} \\;", both).action == "allow"
    assert judge("find . -exec grep x {} \\;", allowing("find *")).action is None
    assert judge("find . -exec rm {} +", both).action is None
    assert judge("find . -exec grep -l x {} + -exec rm {} +", both).action is None
    assert judge("find . -exec uniq {} +", both).action is None
    assert judge("find . -exec grep x *.py {} +", both).action is None
    assert judge("find . -exec find . -exec grep x {} + ;", both).action is None
    forbidding = Rule(tool="shell", action="reject", matches={"command": ("grep *",)})
    assert judge("find . -exec grep -l x {} +", forbidding, both).action == "reject"


def test_a_program_that_decides_sees_every_option() -> None:
    asked = Rule(tool="shell", action="delegate", matches={"command": ("terraform *",)}, to=("decide",))
    assert judge("terraform plan -out=x", asked).action == "delegate"
    assert list(never_match([allowing("terraform *"), asked])) == []


def test_what_forbids_is_found_whatever_its_options() -> None:
    forbidding = Rule(tool="shell", action="reject", matches={"command": ("git push *",)})
    assert judge("git push --frobnicate", forbidding, allowing("git *")).action == "reject"


def test_a_command_with_more_words_than_anybody_reads_is_not_covered() -> None:
    assert is_allowed("ls " + "a " * (MOST_WORDS - 1), "ls *")
    assert not is_allowed("ls " + "a " * MOST_WORDS, "ls *")


# Scripts ------------------------------------------------------------------------------------------------------------


@given(st.text(alphabet="sywreWR/|,{};!pdq1$ \\\n[]abg&", max_size=20))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_sed_script_that_is_called_harmless_writes_and_runs_nothing(script: str) -> None:
    """`--sandbox` refuses what reads, writes or runs: what we call harmless is never refused for that."""
    if is_harmless_script(script, language="sed"):
        ran = subprocess.run(["sed", "--sandbox", "-n", script], input="a\n", capture_output=True, text=True, timeout=5)
        assert "e/r/w commands disabled" not in ran.stderr


# Warnings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "warning"),
    [
        ("frobnicate *", "what the options of frobnicate do is not known, so all of them are covered"),
        ("python *", "python runs whatever code it is given"),
        ("timeout 60 *", "timeout runs any command"),
        ("timeout 60 frobnicate *", "what the options of frobnicate do is not known"),
        ("git *", "git * also covers what changes something: init"),
        ("git *", "git * does not cover what runs or configures something else"),
        ("git* ", "stands for many programs"),
        ("git diff --output=*", "--output of git diff writes a file"),
        ("git diff --frob *", "what --frob of git diff does is not known"),
        ("git diff --out*", "names no option"),
        ("re:git diff.*", "only those that it spells out are covered"),
        ("git frobnicate *", "what git frobnicate does is not known, so all of its options are covered"),
    ],
)
def test_a_rule_that_covers_more_than_it_shows_is_warned_about(pattern: str, warning: str) -> None:
    assert any(warning in each for each in warnings_of(allowing(pattern)))


@pytest.mark.parametrize(
    "pattern", ["git diff *", "npm test*", "ls *", "git push", "*", "kubectl get *", "gh pr view *"]
)
def test_a_rule_that_says_what_it_covers_has_no_warning(pattern: str) -> None:
    assert warnings_of(allowing(pattern)) == ()
    assert warnings_of(Rule(tool="shell", action="reject", matches={"command": ("frobnicate *",)})) == ()
