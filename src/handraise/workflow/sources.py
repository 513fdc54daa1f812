"""Which files of a project a workflow file imports, found by reading them. Nothing is run here.

What is found here is what a person trusts and what the process of the author's code may import. A file that is missed
is refused there, so that a clever way to import costs its author the import and nobody anything else.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tokenize
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import islice
from pathlib import Path

from handraise.errors import WorkflowBroken
from handraise.transports.files import read_ordinary

__all__ = ["root_of", "search_places", "sources_of"]

MOST_FILES = 200
MOST_BYTES = 2 * 1024 * 1024  # of all files together
MOST_DEPTH = 30  # imports from the workflow file to the last one
MOST_IMPORTS = 1_000  # names that one file imports
MOST_PARTS = 20  # of one dotted name
KEPT_BYTES = 64 * 1024  # of a file whose imports are remembered; every run looks for them again


def sources_of(file: Path, *, root: Path) -> dict[Path, bytes]:
    """The workflow file and every file of the project that it imports, with their content, the workflow file first.

    `root` is the folder of the project. Modules are looked for in the folder of the workflow file, and in the folders
    below `root` that this interpreter imports from (where the project itself is installed to be edited). Raises
    WorkflowBroken where a file cannot be read or there is too much.
    """
    places = search_places(file, root=root)
    found: dict[Path, bytes] = {}
    left = MOST_BYTES
    waiting = deque([(file, 0)])
    while waiting:
        path, depth = waiting.popleft()
        if path in found:
            continue
        if len(found) == MOST_FILES or depth > MOST_DEPTH:
            much = f"more than {MOST_FILES} files" if depth <= MOST_DEPTH else f"more than {MOST_DEPTH} levels of files"
            raise WorkflowBroken(f"{file.name}:1: it imports {much} of the project; a workflow takes fewer")
        content = _read(path, most=left)
        if content is None:
            much = f"more than {MOST_BYTES // 1024} KiB"
            raise WorkflowBroken(f"{file.name}:1: it and the files of the project that it imports are {much}; cut it")
        left -= len(content)
        found[path] = content
        waiting += [(module, depth + 1) for module in _imported(path, content, places=places)]
    return found


def root_of(file: Path) -> Path:
    """The folder of the project that a file of workflows belongs to."""
    return file.parents[2] if file.parent.parts[-2:] == (".handraise", "workflows") else file.parent


def search_places(file: Path, *, root: Path) -> list[Path]:
    """The folders of the project that modules are imported from."""
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    places = [file.parent]
    for entry in sys.path:
        place = Path(entry)
        if not place.is_absolute() or not place.is_relative_to(root) or place in places:
            continue
        if not any(place.is_relative_to(each) for each in installed):
            places.append(place)
    return places


def _read(path: Path, *, most: int) -> bytes | None:
    """The content of a regular file, None where that is more than `most`. Raises WorkflowBroken."""
    try:
        return read_ordinary(path, most=most)
    except OSError as problem:
        raise WorkflowBroken(f"{path} cannot be read: {problem.strerror}") from None


def _imported(path: Path, content: bytes, *, places: Sequence[Path]) -> Iterator[Path]:
    """The files that a file imports, the packages they lie in included."""
    seen: set[tuple[Path, tuple[str, ...]]] = set()
    names = _known_names(content) if len(content) <= KEPT_BYTES else _names(content)
    for number, (level, parts) in enumerate(names):
        if number == MOST_IMPORTS or len(parts) > MOST_PARTS:
            raise WorkflowBroken(f"{path.name}:1: it imports more names than can be followed; a workflow takes fewer")
        if level == 0 and parts[:1] == ("handraise",):
            continue
        if level > len(path.parents):
            continue
        begins = places if level == 0 else [path.parents[level - 1]]
        for begin in begins:
            if level and not any(begin.is_relative_to(place) for place in places):
                continue  # Python refuses what climbs out of its package
            for end in range(0 if level else 1, len(parts) + 1):
                if (begin, parts[:end]) not in seen:
                    seen.add((begin, parts[:end]))
                    yield from _modules(begin.joinpath(*parts[:end]))


def _modules(place: Path) -> Iterator[Path]:
    for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
        if os.path.isfile(path):  # noqa: PTH113 - a Path raises where a name is too long
            yield path


@lru_cache(maxsize=128)
def _known_names(content: bytes) -> tuple[tuple[int, tuple[str, ...]], ...]:
    return tuple(islice(_names(content), MOST_IMPORTS + 1))


def _names(content: bytes) -> Iterator[tuple[int, tuple[str, ...]]]:
    """What is imported: how many dots stand before, and the parts of the name.

    By its tokens: the parser of Python can be brought down by a file that is nested deeply enough, and this runs in the
    process of the desk. A file that is no Python is followed as far as it goes.
    """
    statement: list[str] = []
    try:
        for token in tokenize.tokenize(BytesIO(content).readline):
            if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER) or token.string in (";", ":"):
                yield from _statement(statement)
                statement = []
            elif token.type in (tokenize.NAME, tokenize.OP) and (statement or token.string in ("import", "from")):
                statement.append(token.string)
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError, MemoryError):
        return


def _statement(words: list[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """`import a.b as c, d` and `from ..a import (b, c)`; anything else, such as `yield from x`, names nothing."""
    if words[:1] == ["import"]:
        for parts in _dotted(words[1:]):
            yield 0, parts
    elif words[:1] == ["from"] and "import" in words:
        middle = words.index("import")
        base = "".join(words[1:middle])
        level = len(base) - len(base.lstrip("."))
        within = tuple(filter(None, base.split(".")))
        yield level, within
        for parts in _dotted(words[middle + 1 :]):
            yield level, (*within, *parts)


def _dotted(words: list[str]) -> Iterator[tuple[str, ...]]:
    """The names in a list, each before its `as`."""
    name: list[str] = []
    is_renamed = False
    for word in [*words, ","]:
        if word == ",":
            if name:
                yield tuple(name)
            name, is_renamed = [], False
        elif word == "as":
            is_renamed = True
        elif word.isidentifier() and not is_renamed:
            name.append(word)
