"""Patterns as people write them in rules: `*` is anything, everything else is itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

import re2

from handraise.errors import SettingsError

__all__ = ["covers", "matches", "matches_address"]

REGEX = "re:"


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Callable[[str], bool]:
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    if pattern.startswith(REGEX):
        expression = pattern.removeprefix(REGEX)
    else:
        expression = ".*".join(re2.escape(piece) for piece in pattern.split("*"))
        if pattern.endswith(" *") and pattern.strip(" *"):
            expression = f"{expression.removesuffix('.*').removesuffix(re2.escape(' '))}( .*)?"
    try:
        compiled = re2.compile(expression, options)
    except re2.error as problem:
        said = problem.args[0] if problem.args else problem
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise SettingsError(f"{pattern!r} is not a regular expression: {text}") from None
    return lambda text: compiled.fullmatch(text) is not None


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text is what the pattern says. A final ` *` may be missing; `re:` begins a regular expression.

    Raises SettingsError for what is no regular expression.
    """
    return _compiled(pattern)(text)


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
    return (
        matches(scheme.lower(), told.scheme)
        and matches(host.lower(), told.netloc.lower())
        and matches(f"/{path}" if slash else "/", _path_of(told))
    )


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
