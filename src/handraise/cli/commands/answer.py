"""`handraise answer`: answer an ask."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handraise.asks import Answer, Ask, Permission, Question, Scope
from handraise.cli.calling import AskId, By, Json, Url, call, find_ask, lost, person
from handraise.cli.commands import Command
from handraise.cli.printing import tell
from handraise.errors import AnswerDoesNotFit, SettingsError

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

SKIP = "-"

EXAMPLES = """\b
Examples:
  handraise answer db-7 2                       the second option
  handraise answer db-7 SQLite                  by its label
  handraise answer hosts-1 1 3                  several, where that is asked; 1,3 is the same
  handraise answer name-4 --text "2 words"      your own text, even if it looks like a number
  handraise answer setup-2 2 "my text" 1,3      three questions, one argument each; - skips one
  handraise answer rm-9 once                    a permission: once, always or reject
  handraise answer rm-9 always --scope session
  handraise answer rm-9 reject --message "not on a Friday"

\b
An id may be shortened to how it begins or ends. The first answer counts: if somebody else
was faster the exit code is 1, if yours does not fit it is 2 and the ask stays open.
A value that begins with a dash goes after --."""


def answer(
    id: AskId,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="VALUE", help="Number or label of an option, own text, or a permission's reply."),
    ] = None,
    text: Annotated[str | None, typer.Option(help="Your own text, taken as it is.")] = None,
    note: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A remark for the agent; repeat it for each of several questions."),
    ] = None,
    message: Annotated[str | None, typer.Option(help="With reject: why. The agent is told.")] = None,
    scope: Annotated[str | None, typer.Option(help="With always: how far, as the agent offers it.")] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="With always: only these of the scope's patterns; repeatable."),
    ] = None,
    edited: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="The tool's input as you changed it.")
    ] = None,
    by: By = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Answer an ask: by number, label or own text."""

    async def work(client: Client) -> None:
        ask = await find_ask(client, id)
        try:
            if ask.permission is None:
                _refuse(message=message, scope=scope, pattern=pattern, input=edited, because="this ask has questions")
                said = Answer(answers=_answers(ask, values or [], text=text), notes=_notes(ask, note or []))
            else:
                _refuse(text=text, note=note, because="this ask wants a permission")
                said = _reply(ask.permission, values or [], scope=scope, patterns=pattern, edited=edited)
                said = replace(said, reason=message or said.reason)
        except (AnswerDoesNotFit, SettingsError):
            if ask.state == "asked":
                raise
            raise lost(ask) from None  # somebody was faster, which says more
        ended = await client.answer(ask.id, replace(said, by=by or person(), via="cli"))
        tell(ended, as_json=as_json)

    call(work, url=url)


def _refuse(*, because: str, **options: object) -> None:
    given = next((name for name, value in options.items() if value), None)
    if given is not None:
        raise SettingsError(f"{because}, so --{given} does not apply; `handraise answer --help` shows what does")


# Questions --------------------------------------------------------------------------------------------------


def _answers(ask: Ask, values: Sequence[str], *, text: str | None) -> tuple[tuple[str, ...], ...]:
    arguments: list[Sequence[str]] = [(value,) for value in values]
    if len(ask.questions) == 1:
        arguments = [[*values, *([] if text is None else [f"={text}"])]]
        if not arguments[0]:
            raise SettingsError(f"say what you choose: {_offered(ask.questions[0])}")
    elif text is not None:
        raise SettingsError("this ask has several questions: give one argument for each, =TEXT for your own text")
    elif len(values) != len(ask.questions):
        titles = ", ".join(question.title for question in ask.questions)
        raise SettingsError(
            f"this ask has {len(ask.questions)} questions ({titles}): give one argument for each, in order, "
            f"and {SKIP} to skip one; got {len(values)}"
        )
    problems: list[dict[str, Any]] = []
    answers = tuple(
        () if list(entries) == [SKIP] else _entries(question, entries, index=index, problems=problems)
        for index, (question, entries) in enumerate(zip(ask.questions, arguments, strict=True))
    )
    if problems:
        raise AnswerDoesNotFit(problems)
    return answers


def _entries(
    question: Question, entries: Sequence[str], *, index: int, problems: list[dict[str, Any]]
) -> tuple[str, ...]:
    """What the arguments for one question mean: choices in the agent's order, own text last."""
    from handraise.channels.terminal import Choice, Problem, parse

    said: list[str] = []
    for entry in entries:
        match parse(question, entry):
            case Choice(values=values):
                said += values
            case Problem(message=message):
                problems.append({"question": index, "problem": message})
            case _:
                message = f"`{entry}` means something at the prompt of `handraise watch` only; `={entry}` is the text"
                problems.append({"question": index, "problem": message})
    places = {option.value: place for place, option in enumerate(question.options)}
    return tuple(sorted(dict.fromkeys(said), key=lambda value: places.get(value, len(places))))


def _offered(question: Question) -> str:
    labels = [f"{number} {option.label}" for number, option in enumerate(question.options[:20], start=1)]
    own = ["--text TEXT"] if question.custom or not question.options else []
    return ", ".join(labels + own)


def _notes(ask: Ask, notes: Sequence[str]) -> tuple[str | None, ...]:
    if len(notes) > len(ask.questions):
        raise SettingsError(f"this ask takes {len(ask.questions)} --note at most, one per question")
    padded = [note or None for note in notes] + [None] * (len(ask.questions) - len(notes))
    return tuple(padded) if notes else ()


# Permissions ------------------------------------------------------------------------------------------------


def _reply(
    permission: Permission,
    values: Sequence[str],
    *,
    scope: str | None,
    patterns: Sequence[str] | None,
    edited: str | None,
) -> Answer:
    from handraise.channels.terminal import Decline, Reply, parse_permission

    if len(values) != 1:
        raise SettingsError(f"this ask wants a permission: reply with one of {', '.join(permission.replies)}")
    match parse_permission(permission, values[0]):
        case Decline(reason=reason):
            return Answer(rejected=True, reason=reason)
        case Reply(reply=reply):
            chosen = _scope(permission, scope) if reply == "always" or scope is not None else None
            return Answer(
                reply=reply,
                scope=None if chosen is None else chosen.id,
                patterns=None if not patterns else tuple(patterns),
                input=None if edited is None else _object(edited),
            )
        case _:
            problem = f"{values[0]!r} is not a reply this agent takes; it takes: {', '.join(permission.replies)}"
            raise AnswerDoesNotFit([{"question": None, "problem": problem}])


def _scope(permission: Permission, named: str | None) -> Scope | None:
    """How far an `always` reaches. Where the agent offers several, nothing is assumed."""
    if named is None and len(permission.scopes) < 2:
        return next(iter(permission.scopes), None)
    for number, scope in enumerate(permission.scopes, start=1):
        if named is not None and named.casefold() in (scope.id.casefold(), scope.label.casefold(), str(number)):
            return scope
    offered = ", ".join(f"{scope.id} ({', '.join(scope.patterns) or scope.label})" for scope in permission.scopes)
    problem = f"always needs --scope, one of: {offered or 'none is offered here'}"
    raise AnswerDoesNotFit([{"question": None, "problem": problem}])


def _object(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as problem:
        raise SettingsError(f"--input is not JSON: {problem}") from None
    if not isinstance(parsed, dict):
        raise SettingsError('--input is a JSON object, such as \'{"command": "make"}\'')
    return parsed


plugin = Command(answer, examples=EXAMPLES, group="answer")
