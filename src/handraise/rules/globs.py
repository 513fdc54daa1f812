"""Patterns as people write them in rules: `*` is anything, everything else is itself."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

import re2

from handraise.errors import SettingsError

__all__ = [
    "MARKS",
    "covers",
    "has_unknown",
    "matches",
    "matches_address",
    "matches_host",
    "may_meet",
    "meets",
    "without_case",
]

REGEX = "re:"
# What patterns of a shell are in a text that is compared with a pattern of a rule: any text, any character, the same at
# the beginning of a name (where a dot is not meant), the marks of braces, and what is only known when it runs: any text
# and any number of words, or one word. They are private characters, which a command does not hold by itself without
# being in doubt.
MARKS = ANY, ONE, ANY_FIRST, ONE_FIRST, OPEN, COMMA, CLOSE, UNKNOWN, UNKNOWN_WORD = tuple(
    map(chr, range(0xE000, 0xE009))
)

_UNMARKED = re.compile(f"[^{MARKS[0]}-{MARKS[-1]}]*")


MOST_MEMORY = 128 << 10  # bytes for one regular expression; a pattern with `*` alone needs none
MOST_COMPILED = 256  # of them that are kept, so 32 MB at most
LARGEST_PROGRAM = 2_000  # instructions; more is a text that was made to cost something


@lru_cache(maxsize=MOST_COMPILED)
def _expression(expression: str, any_case: bool) -> re2._Regexp[str]:
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    options.max_mem = MOST_MEMORY
    options.case_sensitive = not any_case
    try:
        compiled = re2.compile(expression, options)
    except re2.error as problem:
        said = problem.args[0] if problem.args else problem
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise SettingsError(f"{REGEX + expression!r} is not a regular expression: {text}") from None
    if compiled.programsize > LARGEST_PROGRAM:
        raise SettingsError(f"{REGEX + expression[:100]!r} is too large a regular expression; write several rules")
    return compiled


def matches(pattern: str, text: str, *, any_case: bool = False) -> bool:
    """Whether the whole text is what the pattern says. A final ` *` may be missing; `re:` begins a regular expression.

    Raises SettingsError for what is no regular expression.
    """
    if pattern.startswith(REGEX):
        return _expression(pattern.removeprefix(REGEX), any_case).fullmatch(text) is not None
    if any_case:
        pattern, text = without_case(pattern), without_case(text)
    if "*" not in pattern:
        return pattern == text
    if pattern.endswith(" *") and pattern.strip(" *") and _fits(pattern[:-2], text):
        return True
    return _fits(pattern, text)


def _fits(pattern: str, text: str) -> bool:
    """`*` is anything. The first place where a piece is found is as good as any later one."""
    first, *pieces = pattern.split("*")
    if not pieces:
        return pattern == text
    last = pieces.pop()
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for piece in pieces:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def without_case(text: str) -> str:
    """As a disk that tells no capitals from small letters compares names."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text).casefold()


def matches_address(pattern: str, url: str) -> bool:
    """The same for an address, where the pattern of the host cannot reach into the path, nor one of the path out of it.

    An address with a user name in it matches nothing: it is there to look like another host.
    """
    if pattern.startswith(REGEX) or "://" not in pattern:
        return matches(pattern, url)
    scheme, _, rest = pattern.partition("://")
    host, slash, path = rest.partition("/")
    try:
        told = urlsplit(url)
        has_user = "@" in told.netloc
    except ValueError:
        return False
    if has_user or "\\" in url:
        return False
    if not matches(scheme.lower(), told.scheme) or not matches_host(host.lower(), told.netloc.lower()):
        return False
    path = f"/{path}" if slash else "/"
    return matches(path, _path_of(told)) and _stays_in(path, told)


def matches_host(pattern: str, host: str) -> bool:
    """Whether the host with its port is the one of the pattern. A `*` directly behind a name stands for a port only:
    `localhost*` is not `localhost.evil.example`."""
    name = pattern.removesuffix("*")
    if name == pattern or not name[-1:].isalnum() or ":" in name:
        return matches(pattern, host)
    before, _, port = host.rpartition(":")
    return matches(name, host) or (port.isdecimal() and matches(name, before))


def _stays_in(pattern: str, told: SplitResult) -> bool:
    """`/api/../admin` is `/admin` to what fetches it, also where the dots are written by their number."""
    steps = re.sub("(?i)%2e", ".", told.path)
    if ".." not in steps.split("/"):
        return True
    plain = posixpath.normpath(steps) + ("/" if steps.endswith("/") else "")
    return matches(pattern, _path_of(told._replace(path=plain.replace("//", "/"))))


def _path_of(told: SplitResult) -> str:
    path = told.path or "/"
    return path + (f"?{told.query}" if told.query else "") + (f"#{told.fragment}" if told.fragment else "")


def covers(wide: str, narrow: str) -> bool:
    """Whether everything that `narrow` matches is matched by `wide`. False where that is not certain."""
    if wide == narrow or wide == "*":
        return True
    if wide.startswith(REGEX) or narrow.startswith(REGEX):
        return False
    # What stands for `*` in the narrow one is text like any other to a wide `*`, and to nothing else.
    return matches(wide, narrow.replace("*", "\0")) and (
        not narrow.endswith(" *") or matches(wide, narrow.removesuffix(" *").replace("*", "\0"))
    )


def meets(pattern: str, text: str) -> bool:
    """Whether a pattern of a rule and a text with patterns of a shell (MARKS) can mean the same. False for `re:`."""
    if pattern.startswith(REGEX):
        return False
    begin, known = pattern.partition("*")[0], _UNMARKED.match(text)
    assert known is not None
    if begin[: known.end()] != known[0][: len(begin)]:
        return False  # they differ before either is open, as nearly all do
    optional = len(pattern) - 2 if pattern.endswith(" *") and pattern.strip(" *") else None
    stars = 0
    places: dict[str, int] = {}
    for number, each in enumerate(pattern):
        if each == "*":
            stars |= 1 << number
        else:
            places[each] = places.get(each, 0) | 1 << number
    slashes, dots = places.get("/", 0), places.get(".", 0)
    every = (1 << len(pattern)) - 1 & ~stars & ~places.get(" ", 0)

    def rest(states: int) -> int:
        """With those behind a `*`, which may be nothing."""
        while more := (states & stars) << 1 & ~states:
            states |= more
        return states

    def one(states: int, fits: int) -> int:
        return rest((states & fits) << 1 | states & stars)

    def some(states: int) -> int:
        while more := one(states, every & ~slashes) & ~states:
            states |= more
        return states

    states = rest(1)
    for each in text:
        if each in (UNKNOWN, UNKNOWN_WORD):
            # From the first place on, each. A word in quotes may hold spaces, as a pattern for it may.
            states = (1 << len(pattern) + 1) - (states & -states)
        elif each == ANY:
            states = some(states)
        elif each == ANY_FIRST:
            states |= some(one(states, every & ~slashes & ~dots))
        elif each == ONE:
            states = one(states, every & ~slashes)
        elif each == ONE_FIRST:
            states = one(states, every & ~slashes & ~dots)
        else:
            states = one(states, places.get(each, 0))
        if not states:
            return False
    return bool(states >> len(pattern) & 1) or (optional is not None and bool(states >> optional & 1))


def has_unknown(text: str) -> bool:
    return UNKNOWN in text or UNKNOWN_WORD in text


@lru_cache(maxsize=1024)
def _range(pattern: str) -> tuple[bytes, bytes]:
    """Between which texts everything lies that a pattern matches."""
    try:
        least, most = _expression(pattern.removeprefix(REGEX), False).possiblematchrange(100)
        return bytes(least), bytes(most)
    except re2.error:
        return b"", b"\xff"


def may_meet(pattern: str, text: str) -> bool:
    """The same as `meets` also for `re:`, which is held against what stands before the first mark."""
    if not pattern.startswith(REGEX):
        return meets(pattern, text)
    first = next((number for number, each in enumerate(text) if each in MARKS), len(text))
    known = text[:first].encode(errors="replace")
    least, most = _range(pattern)
    return least <= known + b"\xff" and known <= most
