"""The command line: `commands/` has one file a command, each a thin user of `client/`; what they share is beside it.

What takes time to load is imported where it is needed: a command is typed, and somebody waits for it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from handraise.cli.root import app
    from handraise.errors import AlreadyAnswered, HandraiseError

__all__ = ["app", "main", "print_version"]

# What scripts may rely on. Usage errors that typer finds by itself are 2 as well, and Ctrl+C is 130.
FAILED, USAGE, REJECTED, UNREACHABLE = 1, 2, 4, 5


def __getattr__(name: str) -> Any:
    if name == "app":
        from handraise.cli.root import app

        return app
    raise AttributeError(f"module 'handraise.cli' has no attribute {name!r}")


def print_version() -> None:
    from importlib.metadata import version

    print(f"handraise {version('handraise')}")


def main() -> None:
    """Run a command. What handraise raises on purpose becomes one sentence and an exit code scripts can use."""
    for stream in (sys.stdout, sys.stderr):
        _never_fail_on_a_letter(stream)
    if sys.argv[1:] == ["--version"]:  # without the command line's own library
        print_version()
        _leave(0)
    from handraise.cli.root import app
    from handraise.errors import HandraiseError

    try:
        app(prog_name="handraise")
    except (HandraiseError, ExceptionGroup) as raised:
        error = _first(raised)
        if error is None:
            raise
        _complain(_sentence(error))
        _leave(_exit_code(error))
    except OSError as problem:
        about = f"{problem.filename}: " if problem.filename else ""
        _complain(f"{about}{problem.strerror or problem}")
        _leave(FAILED)
    except SystemExit as leaving:
        _leave(leaving.code)


def _first(raised: BaseException) -> HandraiseError | None:
    """What was raised on purpose, from inside the task groups it came through."""
    from handraise.errors import HandraiseError

    if isinstance(raised, BaseExceptionGroup):
        return next((error for inner in raised.exceptions if (error := _first(inner)) is not None), None)
    return raised if isinstance(raised, HandraiseError) else None


def _never_fail_on_a_letter(stream: TextIO) -> None:
    """A terminal without Unicode shows escapes instead of ending the command."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _complain(sentence: str) -> None:
    from handraise.text.inert import inert

    print(f"handraise: {inert(sentence, keep='')}", file=sys.stderr)


def _leave(code: str | int | None) -> None:
    """Exit, quietly even if whoever read our output has gone (`handraise asks | head -1`)."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _sentence(error: HandraiseError) -> str:
    from handraise.errors import AlreadyAnswered, Refused, Unauthorized

    match error:
        case AlreadyAnswered():
            return f"{error}{_with_what(error)}"
        case Unauthorized():
            return (
                "the desk does not know this token; set HANDRAISE_TOKEN to one that `handraise token add` made, "
                "or HANDRAISE_HOME to the folder of that desk"
            )
        case Refused():
            return f"{error}; `handraise token add NAME --scope …` makes another token, HANDRAISE_TOKEN uses it"
        case _:
            return str(error)


def _with_what(error: AlreadyAnswered) -> str:
    told = error.fields.get("answer") or {}
    if told.get("rejected"):
        return f": {told['reason']}" if told.get("reason") else ""
    values = [value for values in told.get("answers") or () for value in values]
    return f": {', '.join(values) or told.get('reply') or 'nothing'}"


def _exit_code(error: HandraiseError) -> int:
    from handraise.errors import (
        AnswerDoesNotFit,
        AskDoesNotFit,
        DeskUnreachable,
        InputDoesNotFit,
        OutputDoesNotFit,
        Rejected,
        SettingsError,
    )

    match error:
        case DeskUnreachable():
            return UNREACHABLE
        case Rejected():
            return REJECTED
        case SettingsError() | AnswerDoesNotFit() | AskDoesNotFit() | InputDoesNotFit() | OutputDoesNotFit():
            return USAGE
        case _:
            return FAILED
