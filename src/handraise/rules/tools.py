"""Tools of all agents in common words, and what a call names besides. What an agent calls its own tools is in the
`tools.toml` of its folder."""

from __future__ import annotations

import logging
import posixpath
import re
import shlex
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from handraise.asks import Permission
from handraise.asks.changes import besides_change, is_more_text
from handraise.plugins import files

__all__ = [
    "BESIDES",
    "EDIT",
    "MCP",
    "PLAN",
    "READ",
    "SHELL",
    "bounded_hints",
    "command_in",
    "commands_besides",
    "common_names",
    "folder_in",
    "hides_command",
    "hints_of",
    "is_foreign_shell",
    "line_of",
    "more_than_shown",
    "named_paths",
    "names_of",
    "names_to_forbid",
    "needs_path",
    "patched_files",
    "paths_in",
    "plain_command",
    "unnamed_paths",
    "wanted_besides",
    "whole_path",
]

log = logging.getLogger(__name__)

SHELL, EDIT, READ, FETCH, MCP, PLAN = "shell", "edit", "read", "fetch", "mcp", "plan"
SEARCH = "search"  # a way to read: it looks in the working folder where it names none
# What agents that nobody here knows may call their tools.
_NAMES = {
    SHELL: "shell bash execute run_command",
    EDIT: """
        edit write patch delete move str_replace_based_edit_tool str_replace_editor str_replace strreplace update_file
        updatefile writefile editfile createfile create multi_edit search_replace delete_file deletefile move_file
        movefile rename_file insert_edit
    """,
    READ: "read view",
    SEARCH: "list ls glob grep search",
    FETCH: "fetch",
    PLAN: "plan",
}
# What may be wanted besides the command itself, which no pattern for commands speaks of. Of Codex and Claude Code.
BESIDES = {
    "additionalPermissions": "it wants more rights than the command shows",
    "networkApprovalContext": "it wants a connection, which the command does not show",
    "sandboxPermissions": "it wants to run outside the sandbox",
    "sandbox_permissions": "it wants to run outside the sandbox",
    "with_escalated_permissions": "it wants to run outside the sandbox",
    "dangerouslyDisableSandbox": "it wants to run outside the sandbox",
}
_USUAL = ("use_default", "useDefault", "default")  # values that ask for nothing
_MCP = ("mcp_", "mcp:", "mcp.", "mcp/", "mcp-")
MOST_HINTS, LONGEST_HINT = 50, 2000  # texts, and characters of each, that are looked through for a command
MOST_HINTED = 20_000  # characters of all of them
MOST_VALUES = 2_000  # of the arguments of a tool that are looked at for paths
LONGEST_PATCH = 1 << 20  # characters
_OTHER_SHELLS = frozenset({"powershell", "pwsh", "cmd"})  # whose language the rules for commands do not read


class _Tools(NamedTuple):
    """What is known of the tools of all agents."""

    common: Mapping[str, str]  # the common name of each, by the agent's own
    searches: Collection[str]
    understood: Mapping[str, Collection[str]]  # arguments, by what a tool does


@cache
def _tools() -> _Tools:
    """Names that we know ourselves come last: no agent from elsewhere can give one of them another meaning."""
    names: dict[str, str] = {}
    arguments = {kind: set(known) for kind, known in _UNDERSTOOD.items()}
    for path in reversed(files("agents", "tools.toml")):
        try:
            for kind, table in _read_tools(path).items():
                names |= {own.lower(): kind for own in table["tools"]}
                arguments[READ if kind == SEARCH else kind] |= {_flat(name) for name in table["arguments"]}
        except (OSError, ValueError) as broken:
            log.error("%s is left out, so rules do not know those tools: %s", path, broken)
    names |= {own: kind for kind, owns in _NAMES.items() for own in owns.split()}
    common = {own: READ if kind == SEARCH else kind for own, kind in names.items()}
    return _Tools(common, {own for own, kind in names.items() if kind == SEARCH}, arguments)


def _read_tools(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of a file, by kind. Raises ValueError where it is no such file."""
    read = tomllib.loads(path.read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = {}
    for kind, table in read.items():
        if kind not in _NAMES or not isinstance(table, dict) or table.keys() - {"tools", "arguments"}:
            raise ValueError(f"[{kind}] is none of {', '.join(_NAMES)} with `tools` and `arguments`")
        found[kind] = {"tools": table.get("tools", []), "arguments": table.get("arguments", [])}
        for listed in found[kind].values():
            if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
                raise ValueError(f"[{kind}] `tools` and `arguments` are lists of texts")
    return found


def common_names() -> Mapping[str, str]:
    """What a tool is in common words, by what an agent calls it, in small letters."""
    return _tools().common


def names_of(permission: Permission) -> tuple[str, ...]:
    """Under which names a rule may know this tool: the common one, and the agent's own."""
    own = permission.tool
    common = _common(permission)
    if common is None:
        return (own,)
    # A tool that calls itself by a common name and does something else is not what the rules for that name mean.
    return (common,) if common_names().get(own.lower(), common) != common else tuple(dict.fromkeys((common, own)))


def names_to_forbid(permission: Permission) -> tuple[str, ...]:
    """The same for a rule that forbids. A tool that takes a command is perhaps no shell, and may still be one."""
    names = names_of(permission)
    is_perhaps_shell = (MCP in names and command_in(permission) is not None) or bool(commands_besides(permission))
    return (*names, SHELL) if is_perhaps_shell and SHELL not in names else names


def _common(permission: Permission) -> str | None:
    if permission.is_plan:
        return PLAN
    own = permission.tool.lower()
    if is_foreign_shell(permission):
        return None
    if own.startswith(_MCP):  # first: what a server's tool does with an argument `command`, nobody here knows
        return MCP
    if permission.command is not None:
        return SHELL
    kind = (permission.extra or {}).get("kind")
    names = common_names()
    return names.get(own) or (names.get(kind) if isinstance(kind, str) else None)


def is_foreign_shell(permission: Permission) -> bool:
    return permission.tool.lower() in _OTHER_SHELLS


def hides_command(permission: Permission) -> bool:
    """Whether it is a shell's call and nothing says what would run."""
    if permission.is_plan or command_in(permission) is not None:
        return False
    if (permission.input or {}).get("networkApprovalContext"):  # of Codex: a connection, which its address shows
        return False
    return SHELL in names_of(permission)


def hints_of(permission: Permission) -> tuple[list[str], bool]:
    """All that is said of a call whose command is not shown: enough to forbid it, never enough to allow it. And
    whether that is all of it: only so much is looked through."""
    return bounded_hints(_texts((permission.summary, permission.input, permission.extra)))


def bounded_hints(texts: Iterable[str]) -> tuple[list[str], bool]:
    hints: list[str] = []
    left = MOST_HINTED
    for text in texts:
        if len(hints) == MOST_HINTS or left <= 0:
            return hints, False
        hints.append(text[: min(LONGEST_HINT, left)])
        left -= len(text)
    return hints, left >= 0 and all(len(hint) < LONGEST_HINT for hint in hints)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        if value and all(isinstance(each, str) for each in value):
            yield " ".join(value)
        else:
            for each in value:
                yield from _texts(each)


# Commands -----------------------------------------------------------------------------------------------------------


def command_in(permission: Permission) -> str | None:
    """The line that a shell is to run, where the agent says one."""
    line = permission.command or line_of(permission.input or {})
    return line if isinstance(line, str) and line.strip() else None


def line_of(given: Mapping[str, Any]) -> str | None:
    """The command among a tool's arguments, with the words that stand beside it. None where they cannot be joined."""
    command = given.get("command")
    words: Any = next((given[name] for name in _WORDS if given.get(name)), [])
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        return None
    if isinstance(command, list | tuple) and command and all(isinstance(word, str) for word in command):
        return shlex.join([*command, *words])
    if not isinstance(command, str) or not command:
        return None
    return f"{command} {shlex.join(words)}" if words else command


def plain_command(command: str) -> str:
    """What will run, without the shell around it. Only a shell of the system is one: `./bash` may be anything."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    if len(words) != 3 or words[1] not in ("-c", "-lc"):
        return command
    folder, slash, name = words[0].rpartition("/")
    is_shell = name in ("bash", "sh", "zsh") and (not slash or folder in _PROGRAM_FOLDERS)
    return words[2] if is_shell else command


def more_than_shown(permission: Permission, *, cwd: str | None) -> str | None:
    """Why a call wants more than its command says; None where it does not. `cwd` is the session's folder."""
    given = permission.input or {}
    if given.get("kind") == "writeStdin":
        return "it is typed into a program that already runs"
    if (besides := wanted_besides(given)) is not None:
        return besides
    if permission.kind == "plan" and not permission.is_plan:
        return "it is called a plan and wants to do something"
    if next(_not_understood(permission), None) is not None:
        return "it is called with more than this desk understands"
    if is_more_text(besides_change(permission)):
        return "its arguments hold a text that the change does not show"
    if command_in(permission) is None:
        return "its arguments may hold a command" if _may_run(permission) else None
    if _is_read_otherwise(permission):
        return "a shell may read its words otherwise"
    if permission.command is not None and given.get("command"):
        line = line_of(given)
        if line is None or permission.command not in (line, plain_command(line)):
            return "the command that it shows is not the one among its arguments"
    here = whole_path(permission.cwd or ".", cwd)
    if any(whole_path(folder, cwd) != here for folder in _folders(given)):
        return "its arguments name another folder than it says"
    return None


def commands_besides(permission: Permission) -> list[str]:
    """Texts among the arguments that may be run besides what is shown: enough to forbid it, never to allow it."""
    if permission.is_plan or hides_command(permission):  # all that is said of that is looked through
        return []
    given = permission.input or {}
    found = [text for _, value in _not_understood(permission) for text in _texts(value)]
    if _is_read_otherwise(permission):
        found += [" ".join(_texts([given.get("command"), *(given.get(name) for name in _WORDS)]))]
    if command_in(permission) is None and _may_run(permission):
        found += _run_texts(given)
    return list(dict.fromkeys(found))[:MOST_HINTS]


def _not_understood(permission: Permission) -> Iterator[tuple[str, Any]]:
    """Arguments of a tool that is known by what it does, of which nobody here knows what they do. What is empty or
    switched off asks for nothing."""
    kind = names_of(permission)[0]
    known = _tools().understood.get(kind)
    given = permission.input or {}
    if permission.is_plan:
        more = (permission.extra or {}).get("input")
        given = {**given, **(more if isinstance(more, Mapping) else {})}
    if known is None or is_foreign_shell(permission):
        return
    for name, value in given.items():
        is_other_name = _flat(name) == "command" != name
        is_unjoined = name in _WORDS and not isinstance(value, list | tuple)
        if not value or name in BESIDES or (_flat(name) in known and not is_other_name and not is_unjoined):
            continue
        if kind == SHELL and _is_said(value, permission.command or line_of(given) or ""):
            continue
        yield name, value
    # Words that were not put behind the command, since it stands under another name.
    if kind == SHELL and permission.command is not None and not given.get("command"):
        yield from ((name, given[name]) for name in _WORDS if given.get(name))


def _is_said(value: Any, command: str) -> bool:
    """Whether it only says once more what the command says, as in `commands`."""
    texts = list(_texts(value))
    return bool(texts) and all(text.strip() in command for text in texts)


def _is_read_otherwise(permission: Permission) -> bool:
    """Whether a command is given as words in which a shell would see more than words. Some agents join them."""
    given = permission.input or {}
    command = given.get("command")
    words = [*command] if isinstance(command, list | tuple) else []
    for name in _WORDS:
        words += given[name] if isinstance(given.get(name), list | tuple) else []
    if len(words) == 3 and words[1] in ("-c", "-lc") and isinstance(command, list | tuple):
        return False  # a shell, which is looked into
    return any(isinstance(word, str) and _SHELL_SIGNS.search(word) for word in words)


def _may_run(permission: Permission) -> bool:
    """Whether a tool that is no shell is given something that may be a command."""
    if permission.is_plan or SHELL in names_of(permission):
        return False
    return names_of(permission)[0] not in _UNDERSTOOD and next(_run_texts(permission.input or {}), None) is not None


def _run_texts(value: Any, *, is_named: bool = False, depth: int = 0) -> Iterator[str]:
    """Texts under names that things are called by which are run."""
    if isinstance(value, Mapping) and depth < 8:
        for name, each in list(value.items())[:MOST_VALUES]:
            is_run = is_named or (isinstance(name, str) and _flat(name) in _RUN)
            yield from _run_texts(each, is_named=is_run, depth=depth + 1)
    elif isinstance(value, list | tuple) and depth < 8:
        if is_named and value and all(isinstance(each, str) for each in value):
            yield " ".join(value)
            return
        for each in value[:MOST_VALUES]:
            yield from _run_texts(each, is_named=is_named, depth=depth + 1)
    elif isinstance(value, str) and is_named and value.strip():
        yield value


def wanted_besides(given: Mapping[str, Any]) -> str | None:
    """Rights that a call wants and its command does not show, in words."""
    found = (why for name, why in BESIDES.items() if given.get(name) and given[name] not in _USUAL)
    return next(found, None)


def folder_in(given: Mapping[str, Any], *, cwd: str | None) -> str | None:
    """The folder that a command is to run in: the one among its arguments, else the session's."""
    folder = next(_folders(given), None)
    return cwd if folder is None else posixpath.normpath(posixpath.join(cwd or "/", folder))


def _folders(given: Mapping[str, Any]) -> Iterator[str]:
    for name, value in given.items():
        if _flat(name) in _FOLDERS and isinstance(value, str) and value:
            yield value


# Paths --------------------------------------------------------------------------------------------------------------


def unnamed_paths(permission: Permission, *, cwd: str | None) -> tuple[list[str], bool]:
    """Paths among the arguments that the permission does not name, and whether all of them were looked at."""
    if command_in(permission) is not None or permission.is_plan:
        return [], True
    names = names_of(permission)
    is_about_files = bool(permission.files) or EDIT in names or READ in names
    found, is_whole = paths_in(permission.input or {}, tool=permission.tool, is_about_files=is_about_files)
    if not found:
        return [], is_whole
    here = permission.cwd or cwd
    named = {whole_path(path, here) for path in permission.files[: 2 * MOST_VALUES]}
    named.add(whole_path(here or "/", None))  # to look in the working folder is nothing more
    # OpenCode also tells the files of a patch in one text.
    unnamed = [path for path in found if not all(whole_path(each, here) in named for each in path.split(", "))]
    return [path for path in unnamed if whole_path(path, here) not in named], is_whole


def named_paths(given: Mapping[str, Any], *, tool: str, kind: str | None = None) -> list[str]:
    """The files that a tool's arguments name, for an adapter to say which those are. Not what a search looks for."""
    common = common_names().get(tool.lower()) or common_names().get(kind or "")
    found, _ = paths_in(given, is_about_files=common in (EDIT, READ), with_patterns=False)
    return found


def paths_in(
    given: Mapping[str, Any], *, tool: str = "", is_about_files: bool = True, with_patterns: bool = True
) -> tuple[list[str], bool]:
    """What may be a path among a tool's arguments, each once, and whether all of them were looked at."""
    found: dict[str, None] = {}
    waiting: list[tuple[str, Any]] = list(given.items())[MOST_VALUES - 1 :: -1]  # taken from the end
    is_whole = len(given) <= MOST_VALUES
    is_glob = tool.lower() in _GLOB_TOOLS
    seen = 0
    while waiting:
        name, value = waiting.pop()
        seen += 1
        if seen > MOST_VALUES:
            return list(found), False
        if isinstance(value, Mapping):
            # Beside the whole path, one from a folder that is not said.
            inner = [each for each in value.items() if each[0] != "relativePath" or "filePath" not in value]
            is_whole &= len(inner) <= MOST_VALUES
            waiting += inner[MOST_VALUES - 1 :: -1]
        elif isinstance(value, list | tuple):
            is_whole &= len(value) <= MOST_VALUES
            waiting += [(name, each) for each in value[MOST_VALUES - 1 :: -1]]
        elif isinstance(value, str) and value:
            flat = _flat(name)
            if flat in _PATHS or (is_about_files and flat in _PERHAPS_PATHS):
                if (path := _path_of(value)) is not None:
                    found[path] = None
            elif flat in _GLOBS or (is_glob and flat == "pattern"):
                if with_patterns and _leads_out(value):
                    found[value] = None
            elif flat in _PATCHES and "*** " in value:
                found |= dict.fromkeys(patched_files(value[:LONGEST_PATCH]))
                is_whole &= len(value) <= LONGEST_PATCH
    return list(found), is_whole


def _path_of(text: str) -> str | None:
    """A path, also where it is written as an address of a file; None for other addresses and for whole texts."""
    if (address := _FILE_ADDRESS.match(text)) is not None:
        return unquote(text[address.end() :]) or None
    return None if "\n" in text or "://" in text else text


def _leads_out(pattern: str) -> bool:
    return pattern.startswith(("/", "~")) or ".." in re.split(r"[/{},]", pattern)


def patched_files(text: str) -> list[str]:
    """The files that a patch names, as Codex and Amp write patches. They read a line with blanks before it as well."""
    return list(dict.fromkeys(_PATCHED.findall(text)))


def needs_path(permission: Permission) -> bool:
    """Whether it reads or changes files and names none."""
    if permission.files or permission.command is not None or permission.is_plan:
        return False
    names = names_of(permission)
    is_search = permission.tool.lower() in _tools().searches or (permission.extra or {}).get("kind") == SEARCH
    return EDIT in names or (READ in names and not is_search)


def whole_path(path: str, cwd: str | None) -> str:
    """Without `..`, and from the working folder where it is not whole."""
    return posixpath.normpath(posixpath.join(cwd or "/", path))


def _flat(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FILE_ADDRESS = re.compile(r"(?i)file:(//(localhost|127\.0\.0\.1)?(?=/)|(?=/(?!/)))")
_WORDS: Sequence[str] = ("args", "arguments", "argv")
_PROGRAM_FOLDERS = ("/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
_FOLDERS = _words("cwd workdir workingdir workingdirectory dirpath directory dir")
_PATHS = _words(
    """
    path paths file files filename filenames filepath filepaths fileuri absolutepath relativepath notebookpath movepath
    moveto newpath oldpath newfile oldfile targetfile targetpath destinationpath destpath sourcepath srcpath outputpath
    outputfile directory directories dir dirpath folder folders rootpath
    """
)
_PERHAPS_PATHS = _words("to from source src target destination dest dst output root uri newname")
_GLOBS = _words("glob globs include includes includepattern globpattern fileglob filepattern")
_GLOB_TOOLS = _words("glob find file_search find_files list_files glob_file_search")
_PATCHES = _words("patchtext patch input diff patches")
_PATCHED = re.compile(
    r"^[ \t]*\*\*\* (?:Add File|Update File|Delete File|Move to):[ \t]*(\S.*?)[ \t\r]*$", re.MULTILINE
)
# Arguments that are understood, by what a tool does, as agents that nobody here knows may call them.
_ABOUT = _words(
    """
    description explanation reason justification intent intention title summary purpose thought thoughts rationale note
    instruction instructions label displayname callid toolcallid toolname id tool timeout timeoutms timeoutseconds
    timeoutsec kind type
    """
)
_UNDERSTOOD: Mapping[str, frozenset[str]] = {
    SHELL: _ABOUT
    | _FOLDERS
    | _PATHS
    | _words(
        """
        command args arguments argv background maxoutputlength url
        """
    ),
    EDIT: _ABOUT
    | _PATHS
    | _PERHAPS_PATHS
    | _PATCHES
    | _words(
        """
        old new content contents text filetext insertline inserttext insertlinetext edits changes many codeedit append
        overwrite createdirectories cwd url encoding line lines
        """
    ),
    READ: _ABOUT
    | _PATHS
    | _PERHAPS_PATHS
    | _GLOBS
    | _words(
        """
        pattern query queries line lines viewrange maxlines page caseinsensitive ignorecase regex isregex fixedstrings
        depth maxdepth head tail encoding format ignore exclude excludes context contextlines before after maxresults
        cwd url
        """
    ),
    FETCH: _ABOUT
    | _words(
        """
        url urls query queries prompt format maxresults cwd
        """
    ),
    PLAN: _ABOUT | _words("plan"),
}
# What things are called that are run.
_RUN = _words(
    """
    command commands cmd cmds commandline shellcommand bash shell script scripts code exec execute run program
    executable cli snippet sourcecode stdin chars entrypoint input line expression
    """
)
_SHELL_SIGNS = re.compile(r"[;|&<>`$()\n]")
