"""How commands print: JSON that hides nothing, ages, and commands that can be typed as they stand."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from handraise.asks import Answer, Ask
from handraise.client import records
from handraise.client.records import answer_fields, time_text
from handraise.errors import SettingsError
from handraise.text.inert import inert

__all__ = [
    "agree",
    "ask_fields",
    "command",
    "cut",
    "duration",
    "how_to_answer",
    "print_json",
    "print_values",
    "say",
    "table",
    "tell",
    "time_text",
]


NARROW = 60  # columns under which every row gets two lines
LEAST_LAST = 12  # cells that the last column keeps on a terminal


def print_json(value: Any) -> None:
    """One line. What is not ASCII is escaped, so nothing hidden gets through to a terminal or a log."""
    print(json.dumps(value), flush=True)


def ask_fields(ask: Ask) -> dict[str, Any]:
    """An ask in the form `GET /v1/asks/{id}` has."""
    return {
        **records.ask_fields(ask),
        "state": ask.state,
        "asked_at": time_text(ask.asked_at),
        "deadline": time_text(ask.deadline),
        "remaining": ask.remaining,
        "fallback": None if ask.fallback is None else answer_fields(ask.fallback),
        "answer": None if ask.answer is None else answer_fields(ask.answer),
        "delivered_at": time_text(ask.delivered_at),
        "delivery_error": ask.delivery_error,
        "withdrawn_reason": ask.withdrawn_reason,
    }


def tell(ask: Ask, *, as_json: bool) -> None:
    """What became of an ask."""
    if as_json:
        print_json(ask_fields(ask))
        return
    from handraise.channels.terminal import record_line, wants_colour

    print(record_line(ask, colour=wants_colour()), flush=True)


def print_values(answer: Answer) -> None:
    """One a line. A program gets them as they are; on a terminal they are made inert."""
    values = [value for values in answer.answers or () for value in values] or [answer.reply or ""]
    for value in values:
        print(inert(value) if sys.stdout.isatty() else value, flush=True)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, columns: int | None) -> Iterator[str]:
    """Lines of a table. Without `columns` nothing is cut. On a narrow terminal the last column goes under the rest."""
    if columns is not None and columns < NARROW:
        for row in rows:
            yield " · ".join(filter(None, row[:-1]))
            yield f"  {cut(row[-1], columns - 2)}"
        return
    widths = [max(_width(line[index]) for line in (heads, *rows)) for index in range(len(heads) - 1)]
    room = None if columns is None else max(LEAST_LAST, columns - sum(widths) - 2 * len(widths))
    for line in (heads, *rows):
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=False)]
        yield "  ".join([*cells, line[-1] if room is None else cut(line[-1], room)])


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # for start-up time

    return cell_len(text)


def cut(text: str, cells: int) -> str:
    """The text, or its beginning where it takes more cells."""
    from rich.cells import set_cell_size

    return text if _width(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def say(sentence: str) -> None:
    """A remark beside the output, for a person."""
    print(inert(sentence, keep=""), file=sys.stderr, flush=True)


def agree(question: str, *, yes: bool) -> None:
    """Go on only if the person wants to, who was told what will be done. Raises SettingsError where none is here."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SettingsError("nobody is here to agree; --yes does it without asking")
    import typer

    typer.confirm(question, abort=True, err=True)


def command(*words: str) -> str:
    """A handraise command as it can be typed into a shell, whatever is in the words."""
    return " ".join([_program(), *(shlex.quote(inert(word, keep="")) for word in words)])


def how_to_answer(ask: Ask) -> str:
    """A command that answers it."""
    if ask.permission is not None:
        return command("answer", ask.id, "once")
    first = [question.options[0].label if question.options else None for question in ask.questions]
    if first == [None]:
        return command("answer", ask.id, "--text", "…")
    return command("answer", ask.id, *(label or "…" for label in first))


def _program() -> str:
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m handraise"
    found = shutil.which(called.name)
    if found is not None and os.path.realpath(found) == os.path.realpath(called):
        return called.name
    return shlex.quote(str(called))


def duration(seconds: float) -> str:
    """Roughly, in one unit."""
    seconds = max(0.0, seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
