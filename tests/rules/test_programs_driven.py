"""What the file says about programs, with the real ones: what is not covered does harm, what is covered does none.

Where a program cannot be had its examples are only read (test_programs.py), and the tests here say that it is missing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from handraise.rules import programs as file
from tests.rules.test_programs import is_allowed

pytestmark = pytest.mark.slow

# A rule, a command that it fits, and what shows that the command did more than its author reads: `MARK` exists, or the
# file that is named does. `PROOF` is a program that makes `MARK`.
HARMFUL = [
    ("git diff *", "git diff --output=MARK HEAD~1"),
    ("git log *", "git log -p --output=MARK"),
    ("git show *", "git show --output=MARK"),
    ("git *", "git -c core.fsmonitor=PROOF status"),
    ("git *", "git -c alias.x='!PROOF' x"),
    ("git *", "git --config-env=alias.x=HARM x"),
    ("git *", "git -c diff.external=PROOF diff HEAD~1"),
    ("git *", "git bisect start HEAD HEAD~1 && git bisect run PROOF"),
    ("git *", "git submodule foreach PROOF; git difftool -y -x PROOF HEAD~1"),
    ("git grep *", "git grep -OPROOF one"),
    ("git grep *", "git grep --open-files-in-pager=PROOF one"),
    ("git grep *", "git grep -nOPROOF one"),
    ("git rebase *", "git rebase -x PROOF HEAD~1"),
    ("git rebase *", "git rebase --exec PROOF HEAD~1"),
    ("git fetch *", "git fetch --upload-pack=PROOF ."),
    ("git fetch *", "git fetch --upload-pac PROOF ."),
    ("git ls-remote *", "git ls-remote --exec=PROOF ."),
    ("git push *", "git push --receive-pack=PROOF . HEAD:refs/heads/x"),
    ("git clone *", "git clone -q -c core.fsmonitor=PROOF . copy; git -C copy status"),
    ("git clone *", "git clone -u PROOF . copy"),
    ("git config *", "git config alias.x '!PROOF' && git x"),
    ("git archive *", "git archive -o MARK.tar HEAD; mv MARK.tar MARK"),
    ("sort *", "sort -o MARK a.txt"),
    ("sort *", "sort -uoMARK a.txt"),
    ("sort *", "sort --outp=MARK a.txt"),
    ("sort *", "sort a.txt -o MARK"),
    ("sort *", "sort -S1 --compress-program=PROOF big.txt"),
    ("sort *", "cd odd && sort *; mv MARK .."),
    ("uniq *", "uniq a.txt MARK"),
    ("shuf *", "shuf -o MARK a.txt"),
    ("split *", "split --filter=PROOF a.txt"),
    ("find *", "find . -maxdepth 0 -exec PROOF {} +"),
    ("find *", "find . -maxdepth 0 -execdir PROOF ';'"),
    ("find *", "find . -fprint MARK"),
    ("find *", "find . -maxdepth 0 -fprintf MARK x"),
    ("tar *", "tar cf t.tar a.txt && tar xf t.tar --to-command=PROOF"),
    ("tar *", "tar cf t.tar a.txt --checkpoint=1 --checkpoint-action=exec=PROOF"),
    ("tar *", "tar cIf PROOF t.tar a.txt"),
    ("tar *", "tar -I PROOF -cf t.tar a.txt"),
    ("sed *", "sed -n 'w MARK' a.txt"),
    ("sed *", "sed '1e PROOF' a.txt"),
    ("sed *", "sed 's|.*|PROOF|e' a.txt"),
    ("sed *", "sed 's/a/b/w MARK' a.txt"),
    ("sed *", "sed -n '1{w MARK\n}' a.txt"),
    ("awk *", "awk 'BEGIN{system(\"PROOF\")}'"),
    ("awk *", "awk '{print > \"MARK\"}' a.txt"),
    ("awk *", "awk '{print | \"PROOF\"}' a.txt"),
    ("awk *", "awk 'BEGIN{\"PROOF\" | getline}'"),
    ("make *", "make SHELL=PROOF"),
    ("make *", "make --eval='$(shell PROOF)'"),
    ("make *", "make -f evil.mk"),
    ("npm test*", "npm test --script-shell=PROOF"),
    ("npm test*", "npm test --script-shell PROOF"),
    ("npm test*", "npm test --scrip=PROOF"),
    ("npm test*", "npm test --prefix=evil"),
    ("npm test*", "npm test --node-options='--require ./evil.js'"),
    ("npm run *", "npm run -C evil test"),
    ("node *.js", "node --require ./evil.js a.js"),
    ("node *.js", "node -e 'require(\"./evil.js\")' a.js"),
    ("python3 *.py", 'python3 -c \'open("MARK", "w") #.py\''),
    ("pytest *", "pytest -q -p evil --co"),
    ("pytest *", "pytest -q --co --junitxml=MARK"),
    ("pytest *", "pytest -q -c evil.ini"),
    ("xargs *", "echo | xargs PROOF"),
    ("xargs sort *", "echo '-o MARK a.txt' | xargs sort"),
    ("curl *", "curl -s -D MARK file:///dev/null"),
    ("curl *", "curl -s -o MARK file://PWD/a.txt"),
    ("curl *", "curl -s --stderr MARK nowhere.invalid"),
    ("ssh *", "ssh -o ProxyCommand=PROOF nowhere.invalid"),
    ("ssh *", "ssh -TF evil.ssh nowhere.invalid"),
    ("scp *", "scp -S PROOF a.txt nowhere.invalid:b"),
    ("zip *", "zip -q t.zip a.txt -T -TT PROOF"),
    ("env *", "env -S PROOF"),
    ("env *", "env PATH=evilbin git status"),
    ("timeout 5 *", "timeout 5 git diff --output=MARK HEAD~1"),
    ("test *", "test -v 'a[$(PROOF)]'"),
    ("printf *", "printf -v PATH %s PWD/evilbin; git status"),
    ("wget *", "wget -q --use-askpass=PROOF http://127.0.0.1:1/"),
    ("tree *", "tree -o MARK"),
    ("rg *", "rg --pre PROOF one"),
    ("rg *", "rg --hostname-bin PROOF --hyperlink-format '{host}{path}' --color always one"),
    ("fd *", "fd a.txt -x PROOF"),
    ("rsync *", "rsync -e PROOF a.txt nowhere:b"),
    ("go test *", "go test -exec PROOF ./..."),
    ("ssh nowhere.invalid *", "ssh nowhere.invalid -oProxyCommand=PROOF true"),
    ("ssh nowhere.invalid *", "ssh nowhere.invalid -T -F evil.ssh true"),
    ("pytest *", "pytest -q -- -pevil"),
    ("pytest *", "pytest -q -k @evil.words"),
    ("python3 -m pytest*", "python3 -m pytest.__main__ -p evil"),
    ("python3 *.py", 'echo \'open("MARK", "w")\' | python3 - a.py'),
    ("python3 *.py", 'echo \'open("MARK", "w")\' | python3 /dev/stdin a.py'),
    ("python3 *.py", "python3 evil.txt a.py"),
    ("node *.js", "echo 'require(\"./evil.js\")' | node - a.js"),
    ("uniq *", "uniq two/u*"),
    ("find * -exec sort *", "find a.txt -exec sort -t + -o MARK {} \\;"),
    ("find * -exec uniq *", "find two/u1 two/u2 -exec uniq {} +"),
    ("git *", "git bisect start HEAD HEAD~1 && git bisect view gitd/../../proof"),
    ("git *", "git bundle create MARK HEAD"),
    ("git *", "git -C bare/tree status"),
    ("rustc *", "rustc --cfg @rust.words a.rs"),
    ("xxd *", "xxd a.txt MARK"),
    ("openssl *", "openssl rand -out MARK 1"),
    ("ss *", "ss -D MARK"),
    ("find *", "find -- . -maxdepth 0 -fprint MARK"),
    ("find *", "find -- . -maxdepth 0 -exec PROOF ';'"),
    ("find *", "cd dashed && find . -name -*; test -e ./-a || touch ../MARK"),
    ("git log *", "git config gpg.program PROOF; git log -1 --format=%G? $(git hash-object -t commit -w signed)"),
    ("git push *", "git branch x && git push -q . :x; git rev-parse -q --verify x || touch MARK"),
    ("npm test*", "npm test -sC evil"),
    ("awk *", "cd named && awk -v x* a; mv MARK .."),
    ("uniq *", "cd ones && uniq -f 1*"),
    ("sed -n *", "export POSIXLY_CORRECT=1; sed -n 'w MARK' a.txt -e p"),
    ("busybox *", "echo PROOF | busybox xargs -I cat cat x"),
    ("pytest *", "pytest -q -p no:cacheprovider ../elsewhere"),
    ("python3 src/*.py", "python3 src/../evil.py"),
    ("jq *", 'jq -e -n \'import "a" as $d {search:"."}; $d\' && touch MARK'),
    ("test *", "test -- = -- -a -v 'a[$(PROOF)]'"),
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a few files, and programs beside it that leave a mark."""
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "odd").mkdir()
    (root / "evil").mkdir()
    (root / "evilbin").mkdir()
    proof = tmp_path / "proof"
    proof.write_text(f'#!/bin/sh\n: > "{root}/MARK"\n')
    proof.chmod(0o755)
    (root / "evilbin" / "git").symlink_to(proof)
    (root / "a.txt").write_text("one a\ntwo b\n")
    (root / "b.txt").write_text("one a\nthree\n")
    (root / "odd" / "-oMARK").write_text("")
    (root / "odd" / "a").write_text("x\n")
    (root / "README.md").write_text("# One\n")
    (root / "a.json").write_text('{"a": [{"b": 1}], "name": "x"}')
    (root / "src" / "app.py").write_text("import os\n")
    (root / "a.js").write_text("")
    (root / "evil.js").write_text(f'require("fs").writeFileSync("{root}/MARK", "")')
    (root / "evil.py").write_text(f"open({str(root / 'MARK')!r}, 'w').close()\n")
    (root / "evil.mk").write_text(f"all:\n\t{proof}\n")
    (root / "evil.ini").write_text("[pytest]\naddopts = -p evil\n")
    (root / "evil.ssh").write_text(f"Host *\n  ProxyCommand {proof}\n")
    (root / "evil.words").write_text("x\n--junitxml=MARK\n")
    (root / "evil.txt").write_text((root / "evil.py").read_text())
    (root / "rust.words").write_text("x\n--emit=dep-info=MARK\n")
    (root / "a.rs").write_text("fn main() {}\n")
    (root / "gitd").mkdir()
    for folder, names in {
        "dashed": ("-a", "-delete"),
        "named": ("x=1", 'x=system("touch MARK")'),
        "ones": ("1", "1a"),
    }.items():
        (root / folder).mkdir()
        for name in names:
            (root / folder / name).write_text("")
    (root / "named" / "a").write_text("x\n")
    (root / "ones" / "1b").symlink_to("../MARK")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "test_x.py").write_text((root / "evil.py").read_text())
    (root / "two").mkdir()
    (root / "two" / "u1").write_text("x\n")
    (root / "two" / "u2").symlink_to("../MARK")
    bare = root / "bare"  # a repository that may come with a checkout, as ordinary files
    for folder in (bare / "tree", bare / "objects", bare / "refs"):
        folder.mkdir(parents=True)
        (folder / "x").write_text("")
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    (bare / "config").write_text(
        f"[core]\n  repositoryformatversion = 0\n  bare = false\n  worktree = tree\n  fsmonitor = {proof}\n"
    )
    (root / "Makefile").write_text("all:\n\t@true\n")
    (root / "package.json").write_text('{"name": "x", "scripts": {"test": "node a.js"}}')
    (root / "evil" / "package.json").write_text(f'{{"name": "evil", "scripts": {{"test": "{proof}"}}}}')
    (root / "big.txt").write_text("".join(f"{number * 7919 % 100003}\n" for number in range(200_000)))
    run("git init -q -b main && git config user.name a && git config user.email a@b", root)
    for command in ("add -A", "commit -qm one", "commit -qm two --allow-empty"):
        run(f"git {command}", root)
    (root / "a.txt").write_text("one a\ntwo c\n")
    run("git add -A && git commit -qm three", root)
    signed = "gpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----"
    about = f"tree {run('git write-tree', root).stdout}author a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000"
    (root / "signed").write_text(f"{about}\n{signed}\n\nfour\n")
    return root


def run(command: str, root: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "HARM": f"!{root.parent}/proof",
        "PYTHONPATH": str(root),
        "PYTHONDONTWRITEBYTECODE": "1",
        "npm_config_cache": str(root.parent / "npm"),
        "npm_config_update_notifier": "false",
    }
    return subprocess.run(
        ["bash", "-c", command],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
    )


def needed(pattern: str) -> str:
    program = pattern.split()[0].rstrip("*")
    if shutil.which(program) is None and program not in ("test", "printf"):
        pytest.skip(f"{program} is not here; its options are only read")
    return program


@pytest.mark.parametrize(("pattern", "command"), HARMFUL)
def test_what_a_rule_does_not_cover_really_does_harm(pattern: str, command: str, project: Path) -> None:
    needed(pattern)
    command = command.replace("PROOF", str(project.parent / "proof")).replace("PWD", str(project))
    assert not is_allowed(command, pattern, "mv *", "touch *", "cd *", "echo *")
    said = run(command, project)
    assert (project / "MARK").exists(), said.stderr


def contents(root: Path) -> dict[str, str]:
    """Every file but for what git keeps about the times of files."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git/index" not in str(path)
    }


READING = """
    cat head tail ls wc cut tr sort uniq date du df ps stat file which diff sed awk find grep jq echo printf test
"""


def does(name: str) -> str | None:
    command = file.command_of(name)
    return command.does if command is not None else None


def reading_examples() -> list[str]:
    """Lines of the file that are covered, of commands that only read."""
    chosen = set(READING.split())
    return [
        line
        for name, line, is_covered in file.examples()
        if is_covered
        and (
            name in chosen
            or (name.startswith("git ") and (command := file.command_of(name)) and command.does == "reads")
        )
    ]


@pytest.mark.parametrize("line", reading_examples())
def test_what_a_rule_covers_of_reading_programs_changes_nothing(line: str, project: Path) -> None:
    needed(line)
    if "tail -f" in line:
        pytest.skip("it waits for ever, as it should")
    before = contents(project)
    run(line, project)
    assert contents(project) == before


def test_git_takes_values_where_the_file_says_so(project: Path) -> None:
    """git lists its options, with `=` where a value has to follow. Another reading would take an option for a value."""
    wrong = []
    for command in file.commands():
        program, _, rest = command.name.partition(" ")
        if program != "git" or not rest or " " in rest or not command.options:
            continue
        listed = run(f"git {rest} --git-completion-helper-all", project).stdout.split()
        if not listed or not all(word.startswith("-") for word in listed):
            continue
        with_values = {word.removesuffix("=") for word in listed if word.endswith("=")}
        without = {word for word in listed if not word.endswith("=") and word != "--"} - with_values
        for option in command.options.values():
            if option.kind != "harmless":
                continue  # what follows it is not covered anyway
            if option.name in without and option.takes == "next":
                wrong.append(f"git {rest} {option.name} takes no separate value")
            if option.name in with_values and option.takes == "nothing":
                wrong.append(f"git {rest} {option.name} takes a value")
    assert wrong == []


@pytest.mark.parametrize(
    ("command", "harmful", "before"),
    [
        ("git diff", "--output=MARK", ""),
        ("git log", "--output=MARK", ""),
        ("git show", "--output=MARK", ""),
        ("git rev-list", "--output=MARK", "HEAD"),
        ("git stash list", "--output=MARK", ""),
        ("git reflog", "--output=MARK", ""),
        ("git grep", "-OPROOF", "one"),
        ("sort", "-oMARK", "a.txt"),
        ("find", "-fprint", "."),
    ],
)
def test_a_next_word_that_is_called_a_value_is_none_of_the_options(
    command: str, harmful: str, before: str, project: Path
) -> None:
    """Where a program does not take it, the option is read, and does its harm even if the call fails."""
    found = file.command_of(command)
    assert found is not None
    proof = str(project.parent / "proof")
    wrong = []
    for option in found.options.values():
        if option.kind == "harmless" and option.takes == "next" and option.takes_dashes:
            run(f"{command} {before} {option.name} {harmful.replace('PROOF', proof)} MARK", project)
            if (project / "MARK").exists():
                wrong.append(option.name)
                (project / "MARK").unlink()
    assert wrong == []
