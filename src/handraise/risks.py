"""What a permission can do that people should think twice about, and the commands that a line runs. Pure.

It makes people look twice and decides nothing: what it does not find is not safe. So it leaves everyday work alone,
since a mark that everything has means nothing. A program's own text (`python -c`, a script, a container's insides) is
not read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from handraise.asks import Ask, Permission
from handraise.masking import GIVEN, GIVEN_NEXT, HEADER, IN_ADDRESS, TOKENS
from handraise.rules.shell import SHELLS, split, told_to_run
from handraise.rules.tools import is_foreign_shell

__all__ = ["RISKS", "ROWS", "commands_of", "risks_of", "rows_that_fit"]

DELETE, PUSH, SPEND, SANDBOX = "delete", "push", "spend", "sandbox"
SECRETS, PRIVILEGES, UNREADABLE = "secrets", "privileges", "unreadable"
# In the order in which they are told.
RISKS = (DELETE, PUSH, SPEND, SANDBOX, SECRETS, PRIVILEGES, UNREADABLE)

DEEPEST = 8  # wrappers around wrappers
MOST_COMMANDS = 100
MOST_LOOKED_AT = 200_000  # characters of a tool's arguments


class Row(NamedTuple):
    """`when` is a command by its words: `a|b` is either, `*` is any one word, `**` any number of them, and more words
    may follow. An option stands for itself wherever it is written, with `!` it must not be there."""

    risk: str
    when: str
    why: str


ROWS: tuple[Row, ...] = (
    # What is gone afterwards.
    Row(DELETE, "rm|unlink|shred|srm|wipefs *", "it removes files, without a bin"),
    Row(DELETE, "mkfs*|fdisk|parted *", "it makes a new file system over what is there"),
    Row(DELETE, "dd ** of=*", "it writes over a file or a disk from its first byte"),
    Row(DELETE, "truncate *", "it cuts files off"),
    Row(DELETE, "find|fd -delete", "it removes all that it finds"),
    Row(DELETE, "rsync --delete*", "it removes what the other side does not have"),
    Row(DELETE, "git clean !-n !--dry-run", "it removes files that were never committed"),
    Row(DELETE, "git reset --hard", "it throws away what is not committed"),
    Row(DELETE, "git checkout -f|--force|--", "it throws away what is not committed"),
    Row(DELETE, "git checkout .", "it throws away what is not committed"),
    Row(DELETE, "git restore !--staged", "it throws away what is not committed"),
    Row(DELETE, "git stash drop|clear", "what was put aside is gone"),
    Row(DELETE, "git branch -D", "it drops commits that may be nowhere else"),
    Row(DELETE, "git tag|update-ref -d", "it drops a name that may be the last one of its commits"),
    Row(DELETE, "git worktree remove", "it removes a folder with its changes"),
    Row(DELETE, "git rm !--cached !--dry-run !-n", "it removes files"),
    Row(DELETE, "git push -d|-f|--delete|--force|--force-with-lease|--mirror", "it drops what others have there"),
    Row(DELETE, "git filter-branch|filter-repo", "it writes the history anew"),
    Row(DELETE, "docker|podman rm|rmi", "containers and images go, with what was written inside"),
    Row(DELETE, "docker|podman system|volume|image|container|network|builder|buildx prune|rm", "as above, in one go"),
    Row(DELETE, "docker|podman compose down -v|--volumes", "the data of its services goes too"),
    Row(DELETE, "docker-compose down -v|--volumes", "the data of its services goes too"),
    Row(DELETE, "kubectl|oc delete|drain !--dry-run*", "it takes things out of a cluster"),
    Row(DELETE, "helm uninstall|delete !--dry-run", "it takes a release out of a cluster"),
    Row(DELETE, "terraform|tofu|terragrunt|pulumi|cdk destroy", "it takes down what runs"),
    Row(DELETE, "terraform|tofu|terragrunt apply -destroy", "it takes down what runs"),
    Row(DELETE, "aws s3 rm|rb !--dryrun", "it removes stored objects"),
    Row(DELETE, "aws ** delete-*|terminate-*|deregister-*", "it removes things from an account"),
    Row(DELETE, "gcloud|gsutil|az|doctl|hcloud|heroku ** delete|rm|rb|destroy|*:destroy", "as above"),
    Row(DELETE, "fly|flyctl|vercel|netlify|eksctl ** destroy|remove|rm|delete", "as above"),
    Row(DELETE, "gh repo|release|issue|run|secret|gist delete", "it removes things that others see"),
    Row(DELETE, "npm|pnpm|yarn unpublish", "others can no longer install it"),
    Row(DELETE, "dropdb|dropuser *", "a database is gone"),
    Row(DELETE, "redis-cli ** flushall|flushdb|FLUSHALL|FLUSHDB", "all keys are gone"),
    Row(DELETE, "crontab -r", "all planned jobs are gone"),
    # What others see, or get, afterwards.
    Row(PUSH, "git push|send-email !--dry-run !-n", "others have the commits then"),
    Row(PUSH, "hg|jj|sl push", "others have the commits then"),
    Row(PUSH, "jj|sl git push", "others have the commits then"),
    Row(PUSH, "svn commit|ci", "others have the commit then"),
    Row(
        PUSH, "npm|pnpm|yarn|bun|cargo|uv|poetry|hatch|flit|pdm|vsce publish !--dry-run", "a version once out stays out"
    ),
    Row(PUSH, "yarn npm publish", "a version once out stays out"),
    Row(PUSH, "twine upload", "a version once out stays out"),
    Row(PUSH, "gem push", "a version once out stays out"),
    Row(PUSH, "mvn|gradle|gradlew deploy|publish", "a version once out stays out"),
    Row(PUSH, "docker|podman|helm push", "others may run the image then"),
    Row(PUSH, "docker|podman compose|image|manifest push", "others may run the image then"),
    Row(PUSH, "docker buildx|build --push", "others may run the image then"),
    Row(PUSH, "gh release create|edit|upload", "others are told and may download it"),
    Row(PUSH, "gh|glab pr|mr|issue create|merge|comment|review|close|edit|note", "others see it under your name"),
    Row(PUSH, "gh repo create|edit|rename|archive", "others see it"),
    Row(PUSH, "gh workflow run", "it starts work elsewhere, with the rights of the repository"),
    Row(PUSH, "gh api -X|--method|-f|-F|--field|--raw-field|--input", "it changes something there"),
    Row(PUSH, "kubectl|oc apply|create|replace|patch|scale|set|rollout !--dry-run*", "it changes a running cluster"),
    Row(PUSH, "helm install|upgrade|rollback !--dry-run", "it changes a running cluster"),
    Row(PUSH, "vercel|netlify|firebase|fly|flyctl|wrangler|serverless|sls|cdk deploy|publish", "it changes what runs"),
    Row(PUSH, "vercel --prod", "it changes what runs"),
    Row(PUSH, "gcloud ** deploy", "it changes what runs"),
    Row(PUSH, "ansible-playbook * !--check", "it changes other machines"),
    Row(PUSH, "scp|rsync|sftp ** *:*", "files go from machine to machine"),
    Row(PUSH, "aws s3 cp|sync|mv ** s3://* !--dryrun", "files go to, or come from, an account"),
    Row(PUSH, "mail|mailx|sendmail|mutt|msmtp *", "somebody gets it"),
    # What costs money.
    Row(SPEND, "terraform|tofu|terragrunt apply", "what it makes is paid for"),
    Row(SPEND, "pulumi up|update", "what it makes is paid for"),
    Row(SPEND, "aws ** run-*|create-*|request-*|purchase-*|start-instances", "what it makes is paid for"),
    Row(SPEND, "gcloud|az|doctl|hcloud|linode-cli|eksctl ** create", "what it makes is paid for"),
    Row(SPEND, "heroku addons:create|ps:scale|ps:resize", "what it makes is paid for"),
    Row(SPEND, "fly|flyctl scale", "what it makes is paid for"),
    Row(SPEND, "stripe ** create|confirm|capture|pay", "money moves, unless it is a test key"),
    # What others than the agent may do.
    Row(PRIVILEGES, "sudo|doas|su|pkexec|run0|runuser", "it runs as another user"),
    Row(PRIVILEGES, "chmod *+*s|[2-7][0-7][0-7][0-7]", "whoever starts the file has its owner's rights"),
    Row(PRIVILEGES, "setcap|visudo|usermod|useradd|adduser|passwd|chsh|groupadd", "it changes who may do what"),
    Row(PRIVILEGES, "docker|podman run --privileged", "the container has the whole machine"),
    Row(PRIVILEGES, "mount|umount|insmod|modprobe|sysctl|nsenter *", "it changes the machine below everything"),
    # What hands out a secret.
    Row(SECRETS, "gh auth token", "it prints a token"),
    Row(SECRETS, "aws secretsmanager|ssm get-*", "it prints a secret"),
    Row(SECRETS, "kubectl|oc get|describe secret*", "it prints a secret"),
    Row(SECRETS, "vault kv|read|login", "it prints a secret"),
    Row(SECRETS, "op read|item|inject", "it prints a secret"),
    Row(SECRETS, "pass show|insert|edit", "it prints a secret"),
    Row(SECRETS, "security find-generic-password|find-internet-password|dump-keychain", "it prints a secret"),
    Row(SECRETS, "gcloud auth print-*", "it prints a token"),
    Row(SECRETS, "gpg|gpg2 --export-secret-*", "it prints a key"),
    # Other machines are outside of every folder.
    Row(SANDBOX, "ssh *", "it runs on another machine"),
)

# Options that take a word of their own, so that the next one is what the program is told to do.
_VALUED: Mapping[str, frozenset[str]] = {
    program: frozenset(options.split())
    for programs, options in (
        ("git", "-C -c --git-dir --work-tree --namespace --exec-path"),
        ("docker podman", "-H --host --context -c --config -l --log-level -f --file -p --project-name --profile"),
        (
            "kubectl oc helm",
            "-n --namespace --context --kubeconfig --cluster -s --server --token --user --kube-context",
        ),
        ("npm pnpm yarn", "--prefix -C --dir -w --workspace --cwd --filter -F"),
        ("aws", "--profile --region --output --endpoint-url --query --ca-bundle"),
        ("gcloud", "--project --account --configuration --format"),
        ("az", "--subscription -g --resource-group -o --output --query"),
        ("gh glab", "-R --repo --hostname"),
        ("cargo uv poetry", "--manifest-path --config -Z --directory --project -C"),
        ("redis-cli", "-h -p -a -n -u --user --pass"),
        ("fly flyctl", "-a --app -c --config"),
        ("heroku", "-a --app -r --remote"),
        ("ssh", "-p -i -l -o -F -J -L -R -D -b -c -E -e -I -m -O -Q -S -W -w"),
    )
    for program in programs.split()
}

# They run what follows: after their options, of which these take a word of their own, and so many words of their own.
_WRAPPERS: Mapping[str, tuple[frozenset[str], int]] = {
    program: (frozenset(options.split()), own)
    for programs, options, own in (
        ("env", "-u --unset -C --chdir", 0),
        ("sudo doas run0", "-u -g -h -p -C -D -R -T -U -r -t --user --group --host --chdir --chroot", 0),
        ("xargs", "-n -I -P -L -d -s -a -E --max-args --max-procs --max-lines --delimiter --arg-file --replace", 0),
        ("nohup setsid command builtin exec busybox pkexec unbuffer caffeinate", "-a", 0),
        ("time", "-f -o --format --output", 0),
        ("nice ionice", "-n -c -p --adjustment --class --classdata", 0),
        ("stdbuf", "-i -o -e", 0),
        ("timeout", "-s -k --signal --kill-after", 1),
        ("taskset chrt flock chroot runuser", "-u -w -E -p", 1),
        ("strace ltrace", "-e -o -p -s -u", 0),
        ("watch", "-n --interval", 0),
        ("npx bunx uvx pipx poetry-run", "-p --package --from --with", 0),
        ("unshare setpriv", "-S -G --reuid --regid", 0),
    )
    for program in programs.split()
}
# The same for what runs in another place: its folders are not ours.
_ELSEWHERE: Mapping[tuple[str, str], frozenset[str]] = {
    (program, verb): frozenset(
        """
        -e --env --env-file -v --volume -w --workdir -u --user --name --network --net -p --publish --entrypoint -l
        --label --platform --mount -m --memory --cpus --gpus --add-host -h --hostname -n --namespace -c --container
        --restart --tmpfs --device --ip --link --shm-size --ulimit
        """.split()  # noqa: SIM905
    )
    for program in ("docker", "podman", "kubectl", "oc")
    for verb in ("exec", "run")
}

# Whose words are no paths: all of them, or the first.
_TALKERS = frozenset("echo printf tr cut basename dirname expr seq date true false export alias unset set".split())  # noqa: SIM905
_SEARCHERS = frozenset("grep egrep fgrep rg ag ack sed gsed awk gawk mawk jq yq perl".split())  # noqa: SIM905
_MESSAGES = frozenset({"-m", "--message", "-b", "--body", "-t", "--title", "--grep", "--format"})
# They only look, so that what belongs to the system and holds no secrets is not out of bounds.
_READERS = frozenset(
    """
    cat ls head tail less more grep egrep fgrep rg ag find fd stat file wc du df diff cmp tree test [ realpath readlink
    which strings nm ldd objdump man pkg-config
    """.split()  # noqa: SIM905
)
_PUBLIC = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/nix/store", "/opt/homebrew", "/proc/cpuinfo", "/proc/meminfo")
_PUBLIC_FILES = frozenset({"/etc/os-release", "/etc/hosts", "/etc/debian_version", "/etc/passwd", "/etc/group"})
_PROGRAMS = ("/usr/", "/bin/", "/sbin/", "/opt/homebrew/", "/nix/store/")
_ANYBODYS = (
    *("/tmp", "/var/tmp", "/private/tmp"),  # noqa: S108 - named, not used
    *("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd", "/dev/zero", "/dev/urandom"),
)

_DATABASES = frozenset("psql mysql mariadb sqlite3 duckdb cockroach clickhouse-client sqlcmd mongosh mongo".split())  # noqa: SIM905
_DROPS = re.compile(
    r"(?i)\bdrop\s+(table|database|schema|index|view|column|user|role|collection)\b|\btruncate\s+\w|\bdelete\s+from\b|"
    r"\bdropDatabase\b|\.drop\(|\bdelete(One|Many)\("
)

_SECRET_FILES = re.compile(
    r"(^|/)(\.env(\.(?!example|sample|template|dist|defaults?)[\w.-]+)?|\.envrc|id_(rsa|dsa|ecdsa|ed25519)(_sk)?|\.netrc|_netrc|"
    r"\.pgpass|\.my\.cnf|\.npmrc|\.pypirc|\.htpasswd|\.git-credentials|credentials(\.json|\.ya?ml|\.toml|\.db)?|"
    r"secrets?\.(json|ya?ml|toml|env|txt)|service[-_]account[\w-]*\.json|kubeconfig|[^/]+\.(pem|p12|pfx|kdbx|jks|keystore|"
    r"key))$|(^|/)\.(ssh|gnupg|aws|kube|password-store)(/(?!config$|known_hosts$|.*\.pub$)|$)|^/etc/(shadow|gshadow|sudoers)|"
    r"(^|/)\.docker/config\.json$"
)

_DIFF_DELETES = re.compile(r"(?m)^(deleted file mode |\*\*\* Delete File: )")
_PATCHED = re.compile(r"(?m)^\*\*\* (?:Add|Update|Delete) File: (.+)$|^\*\*\* Move to: (.+)$")
_OUT_OF_THE_SANDBOX = ("dangerouslyDisableSandbox", "additionalPermissions", "networkApprovalContext")
_OUTSIDE_TOOLS = frozenset({"external_directory", "request_permissions"})  # of OpenCode, of Codex
_TOOL_WORDS = {
    **dict.fromkeys(("delete", "remove", "drop", "destroy", "purge"), DELETE),
    **dict.fromkeys(("push", "publish", "merge", "deploy"), PUSH),
    **dict.fromkeys(("pay", "purchase", "charge", "buy"), SPEND),
}


def risks_of(ask: Ask) -> tuple[str, ...]:
    """What a permission can do, in the order of RISKS; nothing for questions and for plans."""
    permission = ask.permission
    if permission is None or permission.kind == "plan":
        return ()
    found = set(_Look(permission, cwd=ask.origin.cwd).risks())
    return tuple(risk for risk in RISKS if risk in found)


def commands_of(permission: Permission) -> tuple[str, ...]:
    """The commands that a line runs, in order and as they are written, where there is more than one of them."""
    line = _line_of(permission)
    if line is None or permission.kind == "plan":
        return ()
    read = split(line)
    if read.is_blind:
        return ()
    commands = [part.written for part in read.parts if part.words and told_to_run(part.words) is None]
    return tuple(commands[:MOST_COMMANDS]) if len(commands) > 1 else ()


def _line_of(permission: Permission) -> str | None:
    """What a shell is to run, of those whose language is read."""
    line = permission.command or (permission.input or {}).get("command")
    return line if isinstance(line, str) and line.strip() and not is_foreign_shell(permission) else None


class _Look:
    """One look at a permission."""

    def __init__(self, permission: Permission, *, cwd: str | None) -> None:
        self._permission = permission
        self._root = _normal(cwd or permission.cwd)
        self._here = _normal(permission.cwd or cwd)

    def risks(self) -> Iterator[str]:
        permission = self._permission
        given = permission.input or {}
        if any(given.get(name) for name in _OUT_OF_THE_SANDBOX) or permission.tool in _OUTSIDE_TOOLS:
            yield SANDBOX
        if self._here is not None and self._is_outside(self._here):
            yield SANDBOX
        for path in (*permission.paths, *_paths_in(permission.diff or "")):
            yield from self._path(path, is_read=_is_reader(permission))
        if _deletes_files(permission.diff or ""):
            yield DELETE
        line = _line_of(permission)
        if line is not None:
            yield from self._line(line)
            if given.get("kind") == "writeStdin":  # it is typed into a program that already runs
                yield UNREADABLE
        elif is_foreign_shell(permission):
            yield UNREADABLE
        else:
            yield from self._tool()
        texts = [permission.url or "", *_texts(given)] if line is None else [permission.url or "", line]
        if any(TOKENS.search(text) or IN_ADDRESS.search(text) for text in _bounded(texts)):
            yield SECRETS

    def _tool(self) -> Iterator[str]:
        """What its name says: of a tool that is no shell nothing else is known."""
        names = [self._permission.tool]
        kind = (self._permission.extra or {}).get("kind")
        names += [kind] if isinstance(kind, str) else []
        for name in names:
            words = re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
            yield from (_TOOL_WORDS[word] for word in words if word in _TOOL_WORDS)

    # Commands -------------------------------------------------------------------------------------------------

    def _line(self, line: str, *, depth: int = 0, is_here: bool = True) -> Iterator[str]:
        read = split(line)
        if read.is_blind or depth > DEEPEST:
            yield UNREADABLE
        programs = set()
        for part in read.parts:
            if part.words:
                programs.add(_program(part.words))
                yield from self._command(part.words, depth=depth, is_here=is_here, is_unfolded=True)
            elif GIVEN.match(part.text):  # a variable that is set
                yield SECRETS
        for path in read.files if is_here else ():
            yield from self._path(path)
        if programs & _DATABASES and _DROPS.search(line):
            yield DELETE
        if HEADER.search(line) and not programs <= _TALKERS | _SEARCHERS:
            yield SECRETS

    def _command(self, words: Sequence[str], *, depth: int, is_here: bool, is_unfolded: bool = False) -> Iterator[str]:
        """`is_unfolded`: what a shell in the shell runs is looked at beside it, and not once more from here."""
        program = _program(words)
        if depth > DEEPEST or re.search(r"[$`*?]", words[0]):
            yield UNREADABLE
            return
        call = _Call.of(words)
        yield from (row.risk for row in rows_that_fit(words))
        yield from self._special(call)
        if is_here:
            yield from self._places(call)
        if program not in _TALKERS | _SEARCHERS:
            yield from self._given(words)
        line, is_inner_here = _inner_line(call)
        if line is not None:
            if program not in SHELLS or not is_unfolded:
                yield from self._line(line, depth=depth + 1, is_here=is_here and is_inner_here)
        elif program in SHELLS and (not call.operands or call.has("-s")) and not call.has("--version|--help"):
            yield UNREADABLE  # what it runs comes from elsewhere, as in `curl … | sh`
        for inner, is_inner_here in _inner_commands(call):
            yield from self._command(inner, depth=depth + 1, is_here=is_here and is_inner_here)

    def _special(self, call: _Call) -> Iterator[str]:
        is_recursive = call.program in ("chmod", "chown", "chgrp") and call.has("-R|--recursive")
        if is_recursive and any(re.fullmatch(r"/[^/]*/?\*?", path) for path in call.operands[1:]):
            yield PRIVILEGES  # all of the machine, or one of its first folders

    def _given(self, words: Sequence[str]) -> Iterator[str]:
        """Secrets among the arguments."""
        for word, after in zip(words, (*words[1:], ""), strict=True):
            if GIVEN.match(word) or (GIVEN_NEXT.match(word) and after and not after.startswith(("-", "$", '"$'))):
                yield SECRETS
            if word in ("-u", "--user") and _program(words) in ("curl", "wget") and ":" in after:
                yield SECRETS

    def _places(self, call: _Call) -> Iterator[str]:
        """Paths among the words of a command that lead out of the working folder, or to secrets."""
        if call.words[0].startswith(("/", "~", "..", "$HOME")) and not call.words[0].startswith(_PROGRAMS):
            yield from self._path(call.words[0])
        if call.program in ("cd", "pushd"):
            yield from self._go(call.operands)
            return
        if call.program in _TALKERS:
            return
        if (call.program, call.operands[:1]) in ((program, [verb]) for program, verb in _ELSEWHERE):
            mounted = [after for word, after in call.pairs if word in ("-v", "--volume")]
            for path in mounted:
                yield from self._path(path.partition(":")[0])
            return
        skipped = 1 if call.program in _SEARCHERS and not call.has("-e|--regexp|-f|--file|--expression") else 0
        for word in call.places[skipped:]:
            yield from self._path(word, is_read=call.program in _READERS)

    def _go(self, operands: Sequence[str]) -> Iterator[str]:
        """What follows is seen from there, as far as it is known."""
        where = operands[0] if operands else "~"
        if where == "-" or (where.startswith(("$", '"$')) and self._whole(where) is None):
            return
        yield from self._path(where, is_folder=True)
        self._here = self._whole(where) or self._here

    # Paths ----------------------------------------------------------------------------------------------------

    def _path(self, path: str, *, is_read: bool = False, is_folder: bool = False) -> Iterator[str]:
        path = path.removeprefix("file://").removeprefix("@")
        if "\n" in path or "://" in path:
            return
        if _SECRET_FILES.search(path.strip("\"'")) and not is_folder:
            yield SECRETS
        whole = self._whole(path)
        if whole is None or not self._is_outside(whole):
            return
        if is_read and (_is_in(whole, _PUBLIC) or whole in _PUBLIC_FILES):
            return
        yield SANDBOX

    def _whole(self, path: str) -> str | None:
        """The path from the root, where that can be said. What lies in an unknown folder is told by how it begins."""
        path = path.replace('"', "")
        home = _home_of(self._root)
        path = re.sub(r"^(\$HOME|\$\{HOME\}|~[\w-]*)(?=/|$)", home, path)
        path = re.sub(r"^(\$PWD|\$\{PWD\}|\$\(pwd\))(?=/|$)", self._here or ".", path)
        path = re.sub(r"^(\$TMPDIR|\$\{TMPDIR\})(?=/|$)", _ANYBODYS[0], path)
        if path.startswith(("$", "`")):
            return None
        if path.startswith("/"):
            return _normal(path)
        if self._here is not None:
            return _normal(posixpath.join(self._here, path))
        return "/.." if (_normal(path) or "").startswith("..") else None

    def _is_outside(self, whole: str) -> bool:
        if whole.startswith((_HOME, "/..")):
            return True
        return self._root is not None and not _is_in(whole, (self._root, *_ANYBODYS))


_HOME = "/~"  # of somebody; which folder that is, the desk cannot know


def _home_of(folder: str | None) -> str:
    """The home folder in which a folder lies, by how it is called on the systems that we know."""
    found = re.match(r"/home/[^/]+|/Users/[^/]+|/root", folder or "")
    return found[0] if found else _HOME


def _normal(path: str | None) -> str | None:
    return posixpath.normpath(path) if path else None


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _is_reader(permission: Permission) -> bool:
    kind = (permission.extra or {}).get("kind")
    return permission.tool.lower() in ("read", "read_file", "view", "list", "ls", "glob", "grep") or kind == "read"


def _deletes_files(diff: str) -> bool:
    return bool(_DIFF_DELETES.search(diff)) or any(new == "/dev/null" for _, new in _headers(diff))


def _paths_in(diff: str) -> Iterator[str]:
    for old, new in _headers(diff):
        is_git = old.startswith(("a/", "/dev/null")) and new.startswith(("b/", "/dev/null"))
        yield from (path[2:] if is_git and path[0] != "/" else path for path in (old, new) if path != "/dev/null")
    for pair in _PATCHED.findall(diff):
        yield from (path for path in pair if path)


def _headers(diff: str) -> Iterator[tuple[str, str]]:
    """The two names of each file. A line of a change may look like one of them, but not like both."""
    lines = diff.split("\n")
    for old, new, hunk in zip(lines, lines[1:], [*lines[2:], ""], strict=False):
        if old.startswith("--- ") and new.startswith("+++ ") and (hunk.startswith("@@") or not hunk):
            yield old[4:].partition("\t")[0].strip(), new[4:].partition("\t")[0].strip()


def _texts(value: Any, *, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and depth < DEEPEST:
        for each in value.values():
            yield from _texts(each, depth=depth + 1)
    elif isinstance(value, list | tuple) and depth < DEEPEST:
        for each in value:
            yield from _texts(each, depth=depth + 1)


def _bounded(texts: Iterable[str]) -> Iterator[str]:
    left = MOST_LOOKED_AT
    for text in texts:
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return


# The words of a command ---------------------------------------------------------------------------------------------


class _Call:
    """A command in its parts."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.program = _program(words)
        self.options: list[str] = []
        self.operands: list[str] = []
        self.places: list[str] = []  # what may be a path
        self.pairs = list(pairwise(words))

    @classmethod
    def of(cls, words: Sequence[str]) -> _Call:
        call = cls(words)
        valued = _VALUED.get(call.program, frozenset())
        is_over, takes = False, ""
        for word in words[1:]:
            if takes:
                if takes not in _MESSAGES or call.program in _SEARCHERS:
                    call.places.append(word)
                takes = ""
            elif is_over or not word.startswith("-") or word == "-":
                call.operands.append(word)
                call.places.append(word)
            elif word == "--":
                is_over = True
                call.options.append(word)
            else:
                call.options.append(word)
                name, equals, value = word.partition("=")
                if equals and name not in _MESSAGES:
                    call.places.append(value)
                takes = word if word in valued or (word in _MESSAGES and call.program in ("git", "gh", "glab")) else ""
        return call

    def has(self, wanted: str) -> bool:
        return any(_is_option(each, word) for each in wanted.split("|") for word in self.options)


def _program(words: Sequence[str]) -> str:
    return words[0].rpartition("/")[2]


def _is_option(wanted: str, word: str) -> bool:
    """`-r` is in `-rf` too, and `--force` is there in `--force=yes`."""
    if len(wanted) == 2 and wanted != "--":
        return re.fullmatch(rf"-[A-Za-z]*{wanted[1]}[A-Za-z]*", word) is not None
    return fnmatchcase(word.partition("=")[0], wanted) or fnmatchcase(word, wanted)


class _Pattern(NamedTuple):
    """A row, made ready."""

    programs: tuple[str, ...]
    words: tuple[str, ...]
    options: tuple[str, ...]  # each has to be there
    refused: tuple[str, ...]  # none of them

    def fits(self, call: _Call) -> bool:
        if any(call.has(each) for each in self.refused) or not all(call.has(each) for each in self.options):
            return False
        if call.options[:1] in (["--help"], ["--version"]):
            return False
        return _begins(self.words, call.operands)


def _begins(wanted: Sequence[str], words: Sequence[str]) -> bool:
    if not wanted:
        return True
    if wanted[0] == "**":
        return any(_begins(wanted[1:], words[number:]) for number in range(len(words) + 1))
    return (
        bool(words)
        and any(fnmatchcase(words[0], each) for each in wanted[0].split("|"))
        and (_begins(wanted[1:], words[1:]))
    )


@cache
def _patterns() -> tuple[tuple[Row, _Pattern], ...]:
    return tuple((row, _pattern(row)) for row in ROWS)


def _pattern(row: Row) -> _Pattern:
    programs, *rest = row.when.split()
    return _Pattern(
        programs=tuple(programs.split("|")),
        words=tuple(each for each in rest if not each.startswith(("-", "!"))),
        options=tuple(each for each in rest if each.startswith("-")),
        refused=tuple(each[1:] for each in rest if each.startswith("!")),
    )


def _rows_of(program: str) -> Iterator[tuple[Row, _Pattern]]:
    return (each for each in _patterns() if any(fnmatchcase(program, name) for name in each[1].programs))


def rows_that_fit(words: Sequence[str]) -> list[Row]:
    """Which rows of the table speak of a command by itself."""
    call = _Call.of(words)
    return [row for row, pattern in _rows_of(call.program) if pattern.fits(call)]


# What is run by what is run -----------------------------------------------------------------------------------------


def _inner_line(call: _Call) -> tuple[str | None, bool]:
    """A line that is given as text, and whether it runs in the same place."""
    words = call.words
    match call.program:
        case "ssh":
            return " ".join(call.operands[1:]) or None, False
        case "su" | "runuser" | "script":
            return next((after for word, after in call.pairs if word in ("-c", "--command")), None), True
        case "watch" | "parallel":
            return " ".join(_after_options(words, *_WRAPPERS["watch"])) or None, True
        case "env":
            return next((after for word, after in call.pairs if word in ("-S", "--split-string")), None), True
        case _:
            return told_to_run(words), True


def _inner_commands(call: _Call) -> Iterator[tuple[Sequence[str], bool]]:
    """Commands that are given as words, and whether they run in the same place."""
    words = call.words
    if call.program in _WRAPPERS and call.program != "watch":
        inner = _after_options(words, *_WRAPPERS[call.program])
        if inner:
            # What it finds on its input are arguments too.
            yield (*inner, "{}") if call.program == "xargs" else inner, True
    elif (verb := call.operands[:1]) and (options := _ELSEWHERE.get((call.program, verb[0]))) is not None:
        after = words[words.index(verb[0]) + 1 :]
        inner = after[after.index("--") + 1 :] if "--" in after else _after_options(["", *after], options, 1)
        if inner:
            yield inner, False
    elif call.program in ("find", "fd"):
        inner, is_inside = [], False
        for word in (*words, ";"):
            if is_inside and word in (";", "+"):
                yield from [(inner, True)] if inner else []
                inner, is_inside = [], False
            elif is_inside:
                inner = [*inner, word]
            else:
                is_inside = word in ("-exec", "-execdir", "-ok", "-okdir", "-x")


def _after_options(words: Sequence[str], valued: frozenset[str], own: int) -> Sequence[str]:
    """What is left behind the options of a wrapper, the variables it sets, and its own words."""
    number = 1
    while number < len(words):
        word = words[number]
        if word == "--":
            number += 1
            break
        if word.startswith("-") and word != "-":
            number += 2 if word in valued else 1
        elif re.match(r"[A-Za-z_]\w*=", word):
            number += 1
        else:
            break
    return words[number + own :]
