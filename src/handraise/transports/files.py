"""Files that a stranger may have put there: only ordinary ones are read, without waiting, and only up to a limit.

TOML is looked at before it is parsed, so that no text can hold up a desk.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, BinaryIO

from handraise.errors import SettingsError

__all__ = [
    "LARGEST_FILE",
    "PROJECT",
    "find_project",
    "open_ordinary",
    "parse_toml",
    "problem_of_toml",
    "read_ordinary",
    "read_settings",
]

PROJECT = "handraise.toml"  # the settings of a project

LARGEST_FILE = 64 << 10  # bytes
MOST_DOTS = 100  # of a line, outside of texts: the parser's time grows with the square of a key's parts
DEEPEST = 50  # brackets in brackets; the parser calls itself for each
# Texts and remarks, also those that nobody closed, so that each character is looked at once.
_QUIET = re.compile(
    r'"""(?:[^\\"]|\\.|"(?!""))*(?:"{3,5}|\Z)?|'
    r"'''(?:[^']|'(?!''))*(?:'{3,5}|\Z)?|"
    r'"(?:[^"\\\n]|\\.)*"?|'
    r"'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)


def open_ordinary(path: Path) -> BinaryIO:
    """Raises OSError, also where it is no ordinary file: to open a pipe of that name would wait for ever."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
    return os.fdopen(opened, "rb", buffering=0)


def read_ordinary(path: Path, *, most: int) -> bytes | None:
    """The content, None where that is more than `most` bytes. Raises OSError."""
    content = bytearray()
    with open_ordinary(path) as reading:
        while len(content) <= most and (chunk := reading.read(most + 1 - len(content))):
            content += chunk
    return bytes(content) if len(content) <= most else None


def find_project(folder: Path) -> Path | None:
    """The nearest `handraise.toml`, from the folder upwards."""
    for place in (folder, *folder.parents):
        file = place / PROJECT
        if file.is_file():
            return file
    return None


def read_settings(file: Path) -> bytes:
    """All of a settings file; nothing where there is none. Raises SettingsError."""
    try:
        content = read_ordinary(file, most=LARGEST_FILE)
    except FileNotFoundError:
        return b""
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise SettingsError(f"{file} cannot be read: {reason}") from None
    if content is None:
        raise SettingsError(f"{file} is too large for a file of settings: at most {LARGEST_FILE >> 10} kB are read")
    return content


def parse_toml(content: str | bytes, *, file: Path | str) -> dict[str, Any]:
    """Raises SettingsError that names the file."""
    if len(content) > LARGEST_FILE:
        raise SettingsError(f"{file} is too large for a file of settings: at most {LARGEST_FILE >> 10} kB are read")
    try:
        text = content.decode() if isinstance(content, bytes) else content
    except UnicodeDecodeError:
        raise SettingsError(f"{file} is not UTF-8") from None
    if (problem := problem_of_toml(text)) is not None:
        raise SettingsError(f"{file} cannot be read: {problem}")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        raise SettingsError(f"{file} cannot be read: {problem}") from None


def problem_of_toml(text: str) -> str | None:
    """Why a text would cost too much to parse; None where it does not."""
    bare = _QUIET.sub(lambda found: "\n" * found[0].count("\n"), text)
    depth = 0
    for number, line in enumerate(bare.split("\n"), start=1):
        if line.count(".") > MOST_DOTS:
            return f"line {number} has a key of more than {MOST_DOTS} parts"
        for each in re.findall(r"[\[\]{}]", line):
            depth = depth + 1 if each in "[{" else max(0, depth - 1)
            if depth > DEEPEST:
                return f"line {number} nests deeper than {DEEPEST} levels"
    return None
