"""What a shell would run, as parts that can be judged one by one. What is not certain is said, never guessed.

Two readers have to agree: the grammar of bash (tree-sitter), and the standard library's splitter of words. Where they
do not, or where a value is only known when it runs, the command is in doubt.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

__all__ = ["SHELLS", "Part", "Parts", "split", "told_to_run"]

LONGEST = 20_000  # characters that are looked at; nobody reads more
DEEPEST = 50  # of what is nested
_PLAIN = frozenset({"program", "list", "pipeline", "negated_command", "subshell", "comment"})
_BRACES = re.compile(r"(?s)\{.*(,|\.\.).*\}")
_UNKNOWN = re.compile(r"[*?$`]")  # in the name of a program: which one it is stands nowhere
_QUOTED = re.compile(r"[\s;|&<>()`$'\"\\]")  # what a word of a pattern would not hold as it is
_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh", "fish", "ash", "eval"})
# They run what follows. Which of their words begin it is not known, so each may.
_WRAPPERS = frozenset(
    """
    env sudo doas su nohup nice ionice time timeout stdbuf setsid command builtin exec xargs watch strace ltrace chroot
    unshare nsenter flock script parallel busybox find ssh docker podman kubectl runuser setpriv taskset chrt coproc
    """.split()  # noqa: SIM905 - a list to read
)


@dataclass(frozen=True, slots=True)
class Part:
    """One command of a line, such as each side of a pipe."""

    text: str  # in one form, whatever quotes it was written with
    forms: tuple[str, ...] = ()  # others in which a rule that forbids may know it
    words: tuple[str, ...] = ()  # the program and its arguments; what is only known when it runs, as it is written
    written: str = ""  # as it stands there, with where its output goes


@dataclass(slots=True)
class Parts:
    """`doubt` is why it cannot be said for certain what runs."""

    parts: list[Part] = field(default_factory=list)
    doubt: str | None = None
    is_blind: bool = False  # not even which programs run is certain; a doubt may also be about a value or a file
    files: list[str] = field(default_factory=list)  # what is read from or written to by `<` and `>`


@lru_cache(maxsize=512)
def split(command: str) -> Parts:
    """The commands that a line runs. Do not change what you get: it is kept."""
    found = Parts()
    if len(command) > LONGEST:
        _doubt(found, "it is too long to be looked through", is_blind=True)
        found.parts.append(Part(command[:LONGEST]))
        return found
    _read(command, found, depth=0)
    if not found.parts:
        found.doubt = found.doubt or "it runs nothing that has a name"
        found.parts.append(Part(command))
    return found


def _read(command: str, found: Parts, *, depth: int) -> None:
    if depth > DEEPEST:
        _doubt(found, "it is nested too deep", is_blind=True)
        return
    if "\\\n" in command:
        if "'" in command:
            _doubt(found, "it goes on in another line, in or out of quotes")
        # As bash does it before anything else; the grammar would take the parts for two words.
        command = re.sub(r"\\(\n|.)", lambda pair: "" if pair[1] == "\n" else pair[0], command, flags=re.DOTALL)
    reader = _Reader(found, depth=depth)
    source = command.encode(errors="surrogatepass")
    root = _parser().parse(source).root_node
    if root.has_error or any(each < " " and each not in "\n\t" for each in command):
        _doubt(found, "it is no plain shell command", is_blind=True)
    reader.statement(root, depth)
    if found.doubt is None and reader.words != _second_reading(command):
        # The second reader takes comments for words.
        _doubt(found, "it can be read in two ways", is_blind=not reader.has_comments)


def _doubt(found: Parts, why: str, *, is_blind: bool = False) -> None:
    if found.doubt is None:
        found.doubt = why
    found.is_blind = found.is_blind or is_blind


@cache
def _parser() -> Any:
    import tree_sitter  # only people who write rules about commands pay for its import
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _second_reading(command: str) -> list[list[str]] | None:
    """The words of each part by the standard library's rules; redirections are left out. None: it could not."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t"
    lexer.commenters = ""
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:
        return None
    parts: list[list[str]] = [[]]
    into_file = False
    for token in tokens:
        if set(token) <= set("();|&\n"):
            parts.append([])
        elif set(token) <= set("<>&"):
            if parts[-1] and re.fullmatch(r"\d", parts[-1][-1]):
                parts[-1].pop()  # the number of what is redirected
            into_file = True
        elif into_file:
            into_file = False
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


class _Reader:
    """Walks the tree of one line."""

    def __init__(self, found: Parts, *, depth: int) -> None:
        self._found = found
        self._depth = depth
        self.words: list[list[str]] = []  # of each command, in order
        self.has_comments = False

    def statement(self, node: Any, depth: int) -> None:
        if depth > DEEPEST:
            _doubt(self._found, "it is nested too deep", is_blind=True)
            return
        kind = node.type
        if kind == "command":
            self._command(node, depth)
        elif kind == "redirected_statement":
            before, last = len(self._found.parts), -1
            for child in node.named_children:
                if child.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
                    if child.type == "file_redirect" and last >= before:
                        self._append(last, _text(child))
                    self._redirect(child, depth)
                else:
                    self.statement(child, depth + 1)
                    last = len(self._found.parts) - 1
        elif kind == "comment":
            self.has_comments = True
        elif kind in _PLAIN:
            for child in node.named_children:
                self.statement(child, depth + 1)
        elif kind == "compound_statement" and node.children and node.children[0].type == "{":
            _doubt(self._found, "it groups commands")
            self._look_inside(node, depth)
        else:
            _doubt(self._found, f"it holds a {kind.replace('_', ' ')}")
            self._look_inside(node, depth)

    def _append(self, number: int, redirect: str) -> None:
        part = self._found.parts[number]
        self._found.parts[number] = replace(part, written=f"{part.written} {redirect}")

    def _look_inside(self, node: Any, depth: int) -> None:
        """Everything in there that is a command: what a rule forbids is forbidden there too."""
        if node.type in ("variable_assignment", "declaration_command", "unset_command", "test_command"):
            self._found.parts.append(Part(_text(node), written=_text(node)))
        for child in node.named_children:
            if child.type in ("command", "redirected_statement", *_PLAIN):
                self.statement(child, depth + 1)
            elif depth < DEEPEST:
                self._look_inside(child, depth + 1)
            else:
                _doubt(self._found, "it is nested too deep", is_blind=True)

    def _redirect(self, node: Any, depth: int) -> None:
        target = node.child_by_field_name("destination")
        if node.type != "file_redirect" or target is None:
            _doubt(self._found, "it reads from a text of its own")
        elif target.type == "number" and _text(target) in ("1", "2") and "&" in _text(node):
            return  # one of its outputs into the other
        elif target.type != "word" or _text(target) not in _HARMLESS_TARGETS:
            _doubt(self._found, "it reads from a file or writes to one")
            self._found.files.append(re.sub("[\"']", "", _text(target)))
        self._look_inside(node, depth)

    def _command(self, node: Any, depth: int) -> None:
        words: list[str] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                _doubt(self._found, "it sets a variable")
                self._look_inside(child, depth)
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                self._redirect(child, depth)
            else:
                inner = child.named_children[0] if child.type == "command_name" and child.named_children else child
                words.append(self._word(inner, depth))
        if words:
            if re.search(r"[*?\[~]", words[0]):
                _doubt(self._found, "which program it runs is only known when it runs")
            if _UNKNOWN.search(words[0]) or _BRACES.search(words[0]):
                _doubt(self._found, "which program it runs is only known when it runs", is_blind=True)
            self.words.append(words)
            self._found.parts.append(_part(_text(node), words))
            self._unwrap(words)

    def _word(self, node: Any, depth: int) -> str:
        text = _text(node)
        match node.type:
            case "word" | "number":
                if "$" in text or "`" in text:
                    _doubt(self._found, "a part of it is only known when it runs")
                if _BRACES.search(text):
                    _doubt(self._found, "it stands for several words")
                return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
            case "raw_string":
                return text[1:-1]
            case "string" if "$" not in text and "`" not in text:
                return re.sub(r'\\(["\\])', r"\1", text[1:-1])
            case "concatenation":
                if _BRACES.search(text):
                    _doubt(self._found, "it stands for several words")
                return "".join(self._word(child, depth) for child in node.children)
            case _:
                _doubt(self._found, "a part of it is only known when it runs")
                self._look_inside(node, depth)
                return text

    def _unwrap(self, words: list[str]) -> None:
        """A shell in the shell: what it is told to run is judged as well."""
        line = told_to_run(words)
        if line is None:
            return
        inner = Parts()
        _read(line, inner, depth=self._depth + 1)
        self._found.parts += inner.parts
        if inner.doubt is not None:
            _doubt(self._found, inner.doubt, is_blind=inner.is_blind)
        self._found.files += inner.files


def told_to_run(words: Sequence[str]) -> str | None:
    """The line that a shell in the shell is told to run; None where it is none, or reads it from elsewhere."""
    program = words[0].rpartition("/")[2]
    if program == "eval":
        return " ".join(words[1:])
    if program not in SHELLS:
        return None
    takes = next((number for number, word in enumerate(words) if re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", word)), None)
    return None if takes is None else next((word for word in words[takes + 1 :] if not word.startswith("-")), None)


def _part(written: str, words: list[str]) -> Part:
    program = words[0].rpartition("/")[2]
    plain = " ".join(words)
    forms = [written, plain, " ".join([program, *words[1:]])]
    if program in _WRAPPERS or program in SHELLS:
        for number in range(1, len(words)):
            inner = words[number].rpartition("/")[2]
            forms += [" ".join(words[number:]), " ".join([inner, *words[number + 1 :]])]
    text = " ".join(shlex.quote(word) if not word or _QUOTED.search(word) else word for word in words)
    return Part(text, tuple(dict.fromkeys(form for form in forms if form != text)), tuple(words), written)


def _text(node: Any) -> str:
    return (node.text or b"").decode(errors="replace")
