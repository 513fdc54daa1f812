"""The command line: one file per command, each a thin user of `client/`. Heavy imports wait inside the commands."""

from __future__ import annotations

import os
import sys
from typing import Annotated, TextIO

import typer

from handraise.cli import (
    abort,
    agents,
    answer,
    ask,
    asks,
    attach,
    audit,
    cancel,
    channels,
    chat,
    checkpoint,
    close,
    deliver,
    demo,
    doctor,
    install,
    keep_waiting,
    mcp,
    prompt,
    reject,
    rerun,
    retry,
    rules,
    run,
    runs,
    serve,
    sessions,
    start,
    store,
    token,
    trace,
    trust,
    watch,
    worker,
    workflows,
)
from handraise.cli import open as open_page
from handraise.errors import (
    AlreadyAnswered,
    AnswerDoesNotFit,
    AskDoesNotFit,
    DeskUnreachable,
    HandraiseError,
    InputDoesNotFit,
    OutputDoesNotFit,
    Refused,
    Rejected,
    SettingsError,
    Unauthorized,
)
from handraise.text.inert import inert

__all__ = ["app", "main"]

# What scripts may rely on. Usage errors that typer finds by itself are 2 as well, and Ctrl+C is 130.
FAILED, USAGE, REJECTED, UNREACHABLE = 1, 2, 4, 5

app = typer.Typer(
    name="handraise",
    help="The one desk where every coding agent's raised hand arrives.",
    epilog=(
        "\b\nExamples:\n  handraise demo                          four scripted agents that ask\n"
        "  handraise serve                         run the desk\n"
        '  handraise start claude "Fix the test"   start an agent, and answer what it asks\n'
        "  handraise run feature                   run a workflow, and answer what its steps ask\n"
        "  handraise chat                          talk with a model, and answer what it asks\n"
        '  handraise ask "Deploy now?" yes no      raise a hand from a script\n'
        "  handraise watch                         answer what comes\n\n"
        "\b\nExit codes: 0 done, 1 failed or withdrawn, 2 usage, 3 something waits for a person,\n"
        "4 rejected, 5 no desk was reached, 130 Ctrl+C."
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (serve, worker, install, demo, start, prompt, abort, close, sessions, agents, attach, mcp, chat):
    command.add_to(app)
for command in (run, runs, trace, workflows, cancel, retry, rerun, checkpoint):
    command.add_to(app)
for command in (ask, asks, answer, reject, keep_waiting, deliver, watch, rules, trust, audit, token, store):
    command.add_to(app)
for command in (channels, open_page, doctor):
    command.add_to(app)


@app.callback(invoke_without_command=True)
def handraise(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(f"handraise {installed('handraise')}")
        raise typer.Exit


def main() -> None:
    """Run a command. What handraise raises on purpose becomes one sentence and an exit code scripts can use."""
    for stream in (sys.stdout, sys.stderr):
        _never_fail_on_a_letter(stream)
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
    if isinstance(raised, BaseExceptionGroup):
        return next((error for inner in raised.exceptions if (error := _first(inner)) is not None), None)
    return raised if isinstance(raised, HandraiseError) else None


def _never_fail_on_a_letter(stream: TextIO) -> None:
    """A terminal without Unicode shows escapes instead of ending the command."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _complain(sentence: str) -> None:
    print(f"handraise: {inert(sentence, keep='')}", file=sys.stderr)


def _leave(code: str | int | None) -> None:
    """Exit, quietly even if whoever read our output has gone (`handraise asks | head -1`)."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _sentence(error: HandraiseError) -> str:
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
    match error:
        case DeskUnreachable():
            return UNREACHABLE
        case Rejected():
            return REJECTED
        case SettingsError() | AnswerDoesNotFit() | AskDoesNotFit() | InputDoesNotFit() | OutputDoesNotFit():
            return USAGE
        case _:
            return FAILED
