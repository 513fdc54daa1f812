"""What a permission can do that people should think twice about, and the commands that a line runs. Pure.

It makes people look twice and decides nothing: what it does not find is not safe. So it leaves everyday work alone,
since a mark that everything has means nothing. A program's own text (`python -c`, a script, a container's insides) is
not read.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

from handraise.asks import Ask, Judgement, Permission
from handraise.rules.options import valued_options
from handraise.rules.programs import rows, runners, valued
from handraise.rules.shell import SHELLS, split, told_to_run
from handraise.rules.tools import (
    MCP,
    command_in,
    common_names,
    hides_command,
    is_foreign_shell,
    more_than_shown,
    names_of,
    needs_path,
    patched_files,
    unnamed_paths,
    wanted_besides,
)
from handraise.text.masking import GIVEN, GIVEN_NEXT, HEADER, IN_ADDRESS, has_token

__all__ = ["RISKS", "ROWS", "commands_of", "judge", "judgement_of", "risks_of", "rows_that_fit"]

log = logging.getLogger(__name__)

DELETE, PUSH, SPEND, SANDBOX = "delete", "push", "spend", "sandbox"
SECRETS, PRIVILEGES, LATER, UNREADABLE = "secrets", "privileges", "later", "unreadable"
# In the order in which they are told.
RISKS = (DELETE, PUSH, SPEND, SANDBOX, SECRETS, PRIVILEGES, LATER, UNREADABLE)

DEEPEST = 8  # wrappers around wrappers
MOST_COMMANDS = 100
MOST_LOOKED_AT = 200_000  # characters of a tool's arguments
MOST_TEXTS = 1_000  # of them
MOST_FILES = 2_000  # of a permission whose paths are looked at


class Row(NamedTuple):
    """A line of the file of what programs do, which says how `when` is written."""

    risk: str
    when: str
    why: str


# Read with the module, so that no ask waits for it.
ROWS: tuple[Row, ...] = tuple(Row(*row) for row in rows())

# They run what follows: after their options, of which these take a word of their own, and so many words of their own.
_WRAPPERS = runners()
# The same for what runs in another place: its folders are not ours.
_ELSEWHERE: Mapping[tuple[str, str], frozenset[str]] = {
    (program, verb): valued(f"{program} {verb}")
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

# They write to a file, move or replace it, or let it be run.
_WRITERS = frozenset("cp mv tee ln install rsync curl wget patch touch chmod dd truncate rm unlink".split())  # noqa: SIM905

_DATABASES = frozenset("psql mysql mariadb sqlite3 duckdb cockroach clickhouse-client sqlcmd mongosh mongo".split())  # noqa: SIM905
_DROPS = re.compile(
    r"(?i)\bdrop\s+(table|database|schema|index|view|column|user|role|collection)\b|\btruncate\s+\w|\bdelete\s+from\b|"
    r"\bdropDatabase\b|\.drop\(|\bdelete(One|Many)\("
)

_SECRET_FILES = re.compile(
    r"(?i)(^|/)(\.env(\.(?!example|sample|template|dist|defaults?)[\w.-]+)?|\.envrc|id_(rsa|dsa|ecdsa|ed25519)(_sk)?|\.netrc|_netrc|"
    r"\.pgpass|\.my\.cnf|\.npmrc|\.pypirc|\.htpasswd|\.git-credentials|credentials(\.json|\.ya?ml|\.toml|\.db)?|"
    r"secrets?\.(json|ya?ml|toml|env|txt)|service[-_]account[\w-]*\.json|kubeconfig|[^/]+\.(pem|p12|pfx|kdbx|jks|keystore|"
    r"key))$|(^|/)\.(ssh|gnupg|aws|kube|password-store)(/(?!config$|known_hosts$|.*\.pub$)|$)|^/etc/(shadow|gshadow|sudoers)|"
    r"(^|/)\.docker/config\.json$"
)

# Files that something else runs or obeys later, without anybody asking again. Compared in small letters.
_RUN_LATER = re.compile(
    r"(^|/)\.git/(hooks/|config$|info/attributes$)|(^|/)\.(husky|githooks)/|(^|/)\.github/(workflows|actions)/|(^|/)\.gitlab-ci\.yml$|"
    r"(^|/)\.claude/(settings[^/]*\.json$|hooks/|commands/|agents/)|(^|/)\.mcp\.json$|(^|/)\.(codex|opencode|amp|gemini)/|"
    r"(^|/)\.vscode/(tasks|launch|settings)\.json$|(^|/)\.cursor/|(^|/)\.idea/|(^|/)handraise\.toml$|(^|/)\.handraise/|"
    r"(^|/)\.(bash_profile|bash_login|bash_logout|bashrc|profile|zshrc|zshenv|zprofile|zlogin|zlogout|kshrc|inputrc|envrc|"
    r"direnvrc|gitconfig|vimrc|pre-commit-config\.yaml)$|(^|/)config\.fish$"
)

_DIFF_DELETES = ("\ndeleted file mode ", "\n*** Delete File: ")
_PATCHED = r"\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)"
# The two names of a file. A line of a change may look like one of them, but not like both.
_HEADERS = r"--- (.*)\n\+\+\+ (.*)(?=\n@@|\n\n|\n?\Z)"
_OUTSIDE_TOOLS = frozenset({"external_directory", "request_permissions"})  # of OpenCode, of Codex
_TOOL_WORDS = {
    **dict.fromkeys(("delete", "remove", "drop", "destroy", "purge"), DELETE),
    **dict.fromkeys(("push", "publish", "merge", "deploy"), PUSH),
    **dict.fromkeys(("pay", "purchase", "charge", "buy"), SPEND),
}


def judge(ask: Ask) -> Judgement:
    """All of it. What fails to be looked at is told as something that cannot be read, and holds up nobody else."""
    permission = ask.permission
    if permission is None:
        return Judgement()
    try:
        risks, commands, doubt = risks_of(ask), commands_of(permission), _doubt_of(ask, permission)
    except Exception:
        log.exception("a permission could not be looked at; it is told as one that cannot be read")
        problem = "this desk failed to read it"
        return Judgement(risks=(UNREADABLE,), doubt=problem, only_at_desk=problem)
    return Judgement(risks, commands, doubt, _only_at_desk(permission, risks=risks, doubt=doubt))


def judgement_of(ask: Ask) -> Judgement:
    """As it was judged when it was asked. One that no desk has seen is judged now."""
    if ask.risks is None:
        return judge(ask)
    return Judgement(ask.risks, ask.commands, ask.doubt, ask.only_at_desk)


def _doubt_of(ask: Ask, permission: Permission) -> str | None:
    if permission.is_plan:
        return more_than_shown(permission, cwd=ask.origin.cwd)
    if is_foreign_shell(permission):
        return "it is for a shell whose language this desk does not read"
    if needs_path(permission):
        return "the agent did not say which files"
    if (more := more_than_shown(permission, cwd=ask.origin.cwd)) is not None:
        return more
    if (line := command_in(permission)) is not None:
        return split(line).doubt_in(permission.cwd or ask.origin.cwd)
    if hides_command(permission):
        return "the agent did not say which command"
    if any(real is None for _, real in permission.places):
        return "nobody followed the links of its paths"
    unnamed, is_all = unnamed_paths(permission, cwd=ask.origin.cwd)
    if unnamed or not is_all:
        return "its arguments name other files than it says"
    return None


def _only_at_desk(permission: Permission, *, risks: Sequence[str], doubt: str | None) -> str | None:
    """For a place that proves only that somebody answers. Which tools are known is said in `rules.tools`."""
    if risks:
        return "it can do harm"
    if doubt is not None:
        return doubt
    if permission.kind != "tool" and not permission.is_plan:
        return "this desk does not know this kind of permission"
    names = names_of(permission)
    if names[0] == MCP or names[0] not in common_names():
        return "this desk does not know what this tool does"
    return None


def risks_of(ask: Ask) -> tuple[str, ...]:
    """What a permission can do, in the order of RISKS; nothing for questions and for plans."""
    permission = ask.permission
    if permission is None or permission.is_plan:
        return ()
    found = set(_Look(permission, cwd=ask.origin.cwd).risks())
    return tuple(risk for risk in RISKS if risk in found)


def commands_of(permission: Permission) -> tuple[str, ...]:
    """The commands that a line runs, in order and as they are written, where there is more than one of them."""
    line = _line_of(permission)
    if line is None or permission.is_plan:
        return ()
    read = split(line)
    if read.is_blind:
        return ()
    commands = [part.written for part in read.parts if part.words and told_to_run(part.words) is None]
    return tuple(commands[:MOST_COMMANDS]) if len(commands) > 1 else ()


def _line_of(permission: Permission) -> str | None:
    """What a shell is to run, of those whose language is read."""
    return None if is_foreign_shell(permission) else command_in(permission)


class _Look:
    """One look at a permission."""

    def __init__(self, permission: Permission, *, cwd: str | None) -> None:
        self._permission = permission
        self._root = _normal(cwd or permission.cwd)
        self._here = _normal(permission.cwd or cwd)
        self._seen: dict[tuple[str, bool, bool, str | None], tuple[str, ...]] = {}  # paths that were looked at

    def risks(self) -> Iterator[str]:
        permission = self._permission
        given = permission.input or {}
        if wanted_besides(given) or permission.tool in _OUTSIDE_TOOLS:
            yield SANDBOX
        if self._here is not None and self._is_outside(self._here):
            yield SANDBOX
        diff = _Diff(permission.diff or "")
        yield from self._files(diff)
        if diff.deletes_files():
            yield DELETE
        line = _line_of(permission)
        if line is not None:
            yield from self._line(line)
            if given.get("kind") == "writeStdin":  # it is typed into a program that already runs
                yield UNREADABLE
        elif is_foreign_shell(permission) or hides_command(permission):
            yield UNREADABLE
        else:
            yield from self._tool()
        texts = [permission.url or "", *_texts(given)] if line is None else [permission.url or "", line]
        text = "\n".join(_bounded(texts))
        if has_token(text) or IN_ADDRESS.search(text):
            yield SECRETS

    def _files(self, diff: _Diff) -> Iterator[str]:
        """Its files as they are written, those that its links lead to, and those that only its arguments name."""
        permission = self._permission
        unnamed, is_all = unnamed_paths(permission, cwd=self._root)
        is_read = _is_reader(permission)
        paths = [*islice(chain(permission.files, unnamed, diff.paths()), MOST_FILES + 1)]
        if len(paths) > MOST_FILES or diff.has_more or not is_all:
            yield UNREADABLE
        for path in dict.fromkeys(paths):
            yield from self._path(path, is_read=is_read)
            yield from [LATER] if self._is_run_later(path, is_read=is_read) else []
        # The folder may itself be reached by a link. What is in it is not outside.
        here = permission.resolved_cwd
        for path, real in zip(permission.files[:MOST_FILES], (permission.resolved or ())[:MOST_FILES], strict=False):
            if here is None or not _is_in(real, (here,)):
                yield from self._path(real, is_read=is_read)
            elif _SECRET_FILES.search(real) and not _SECRET_FILES.search(path):
                yield SECRETS
            yield from [LATER] if self._is_run_later(real, is_read=is_read) else []

    def _is_run_later(self, path: str, *, is_read: bool) -> bool:
        return not is_read and _RUN_LATER.search(path.lower()) is not None

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
            yield from [LATER] if self._is_run_later(path, is_read=False) else []
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
        is_writer = call.program in _WRITERS or (call.program in ("sed", "gsed", "perl") and call.has("-i|--in-place"))
        if is_writer and any(self._is_run_later(f"{word}/", is_read=False) for word in call.places):
            yield LATER
        if is_writer and any(self._is_run_later(word, is_read=False) for word in call.places):
            yield LATER
        if call.program == "git":  # `HEAD:.env` is a file of a commit
            for word in call.operands:
                yield from [SECRETS] if _SECRET_FILES.search(word.partition(":")[2] or "-") else []
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

    def _path(self, path: str, *, is_read: bool = False, is_folder: bool = False) -> Sequence[str]:
        """The same word may stand in a line, and in what its wrappers run, hundreds of times."""
        key = (path, is_read, is_folder, self._here)
        if key not in self._seen:
            self._seen[key] = tuple(self._risks_of_path(path, is_read=is_read, is_folder=is_folder))
        return self._seen[key]

    def _risks_of_path(self, path: str, *, is_read: bool, is_folder: bool) -> Iterator[str]:
        path = re.sub(r"(?i)^file:(//(localhost)?(?=/)|(?=/(?!/)))", "", path.removeprefix("@"))
        if "\n" in path or "://" in path:
            return
        if not is_folder and any(map(_SECRET_FILES.search, _spellings(path.strip("\"'")))):
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


# What a pattern may stand for.
_SECRET_NAMES = tuple(
    """
    .env .env.local .env.production .envrc id_rsa id_ecdsa id_ed25519 .netrc .pgpass .my.cnf .npmrc .pypirc .htpasswd
    .git-credentials credentials credentials.json secrets.json secrets.yml secrets.yaml kubeconfig .ssh .gnupg .aws
    .kube
    """.split()  # noqa: SIM905 - a list to read
)


def _spellings(path: str) -> Iterator[str]:
    """A path, and the names of secrets that it may stand for where it is a pattern. `*` alone is everyday."""
    yield path
    braces = re.fullmatch(r"([^{}]*)\{([^{}]*)\}([^{}]*)", path)
    if braces:
        yield from (braces[1] + each + braces[3] for each in braces[2].split(",")[:20])
    folder, slash, name = path.rpartition("/")
    literal = re.sub(r"\[[^]]*\]|[*?]", "", name)
    if literal != name and len(literal) > 1 and name[0] not in "*?[" and len(name) < 100:
        yield from (folder + slash + each for each in _SECRET_NAMES if fnmatchcase(each, name))


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


class _Diff:
    """A diff of any size. Nothing of it is copied but the lines that name files."""

    def __init__(self, diff: str) -> None:
        self._diff = diff
        self._headers = [
            (old.partition("\t")[0].strip(), new.partition("\t")[0].strip())
            for old, new in islice(_lines_in(diff, _HEADERS), MOST_FILES + 1)
        ]

    @property
    def has_more(self) -> bool:
        """Whether it names more files than are looked at."""
        return len(self._headers) > MOST_FILES

    def deletes_files(self) -> bool:
        if any(mark in self._diff or self._diff.startswith(mark[1:]) for mark in _DIFF_DELETES):
            return True
        return any(new == "/dev/null" for _, new in self._headers)

    def paths(self) -> Iterator[str]:
        for old, new in self._headers:
            is_git = old.startswith(("a/", "/dev/null")) and new.startswith(("b/", "/dev/null"))
            yield from (path[2:] if is_git and path[0] != "/" else path for path in (old, new) if path != "/dev/null")
        yield from (path for (path,) in _lines_in(self._diff, _PATCHED))
        if " *** " in self._diff or "\t*** " in self._diff:  # what applies it may read a line with blanks before it
            yield from patched_files(self._diff)


def _lines_in(diff: str, pattern: str) -> Iterator[Sequence[str]]:
    """What a pattern for the beginning of a line finds. Behind an end of a line it is looked for as plain characters,
    so that megabytes take milliseconds."""
    first = re.match(pattern, diff)
    yield from chain([first.groups()] if first else [], (each.groups() for each in re.finditer("\n" + pattern, diff)))


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
    for text in islice(texts, MOST_TEXTS):
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
        taking = valued_options(words)
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
                takes = word if word in taking or (word in _MESSAGES and call.program in ("git", "gh", "glab")) else ""
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
                # fd adds what it finds where nothing stands for it.
                yield from [([*inner, "{}"] if call.program == "fd" else inner, True)] if inner else []
                inner, is_inside = [], False
            elif is_inside:
                inner = [*inner, word]
            else:
                is_inside = word in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch")


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
