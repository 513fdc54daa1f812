"""`handraise audit`: who or what decided, when, through what and from where; to read, or to take elsewhere."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from handraise.cli.calling import Json, Url, call
from handraise.cli.commands import Command
from handraise.cli.printing import print_json
from handraise.errors import SettingsError
from handraise.text.inert import inert

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["plugin"]

PAGE = 500  # lines asked for at once; no more are ever held
LEAST_ABOUT = 12  # cells that what was asked keeps on a terminal
HEADS = ("WHEN", "DECISION", "WHO", "FROM", "AGENT", "MACHINE", "ABOUT")

# What a spreadsheet takes for the beginning of a formula, with the wide forms that Asian keyboards type.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(rf"(\d{{1,9}})([{''.join(_UNITS)}])", re.ASCII)

EXAMPLES = """\b
Examples:
  handraise audit --since 24h
  handraise audit --since 2026-01-01 --until 2026-02-01 --csv > january.csv
  handraise audit --since 09:00 --json | jq -r 'select(.decided_by == "timeout").ask'

\b
WHEN is a date (2026-01-31), a time (2026-01-31T14:00, or 14:00 for today), or an age (7d, 24h, 30m).
Without an offset it is your local time. --until excludes the moment it names."""

Line = dict[str, Any]


def audit(
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only what was decided at this time or later.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Only what was decided before this time.")] = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with a header row.")] = False,
    url: Url = None,
) -> None:
    """List every decision the desk still keeps, the oldest first. Takes a token with the scope admin."""
    if as_json and as_csv:
        raise SettingsError("--json and --csv are two forms of the same; choose one")
    now = datetime.now().astimezone()
    asked = {
        name: _when(text, name=name, now=now).astimezone(UTC).isoformat(timespec="milliseconds")
        for name, text in (("since", since), ("until", until))
        if text is not None
    }
    show = _print_json if as_json else _csv_printer() if as_csv else _table_printer()

    async def work(client: Client) -> None:
        found = False
        async for lines in _pages(client, asked):
            found = found or bool(lines)
            show(lines)
        if not found and not as_json and not as_csv:
            print("There are none.")

    call(work, url=url)


async def _pages(client: Client, asked: dict[str, str]) -> AsyncIterator[list[Line]]:
    params = {**asked, "limit": str(PAGE)}
    while True:
        page = await client.call("GET", f"/v1/audit?{urlencode(params)}")
        yield page["lines"]
        if "next" not in page:
            return
        params["after"] = page["next"]


def _when(text: str, *, name: str, now: datetime) -> datetime:
    """A date, a time or an age as a moment. Raises SettingsError."""
    try:
        if age := _AGE.fullmatch(text):
            return now - timedelta(**{_UNITS[age[2]]: int(age[1])})
        if ":" in text and "-" not in text.partition(":")[0]:
            return datetime.combine(now.date(), time.fromisoformat(text)).astimezone()
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise SettingsError(
            f"--{name} {text!r}: give a date (2026-01-31), a time (2026-01-31T14:00 or 14:00) or an age (7d, 24h, 30m)"
        ) from None


def _print_json(lines: list[Line]) -> None:
    for line in lines:
        print_json(line)


# CSV --------------------------------------------------------------------------------------------------------


def _csv_printer() -> Callable[[list[Line]], None]:
    from handraise.tables.audit import FIELDS

    writer = csv.writer(sys.stdout)  # with CRLF, as RFC 4180 has it
    heads = [FIELDS]

    def show(lines: list[Line]) -> None:
        writer.writerows(heads)
        heads.clear()
        writer.writerows([_cell(line.get(name)) for name in FIELDS] for line in lines)
        sys.stdout.flush()

    return show


def _cell(value: Any) -> str:
    """Inert and on one line, and no formula in whatever opens it: an agent chose some of the words."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ("'" if text.startswith(_FORMULA) else "") + inert(text, keep="")


# A table ----------------------------------------------------------------------------------------------------


def _table_printer() -> Callable[[list[Line]], None]:
    """A page at a time; columns that need more room get it from then on. Cut to the terminal, if there is one."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    widths = [len(head) for head in HEADS[:-1]]
    heads = [HEADS]

    def show(lines: list[Line]) -> None:
        rows = [_row(line) for line in lines]
        for index, width in enumerate(widths):
            widths[index] = max(width, *(_width(row[index]) for row in rows)) if rows else width
        is_narrow = columns is not None and columns < sum(widths) + 2 * len(widths) + LEAST_ABOUT
        if rows and not is_narrow:
            rows = [*heads, *rows]
            heads.clear()
        for line in _folded(rows, columns=columns or 0) if is_narrow else _drawn(rows, widths, columns=columns):
            print(line)
        sys.stdout.flush()

    return show


def _folded(rows: Sequence[Sequence[str]], *, columns: int) -> Iterator[str]:
    """Two lines each, for a terminal that is too narrow for the table."""
    for row in rows:
        yield _cut(" · ".join(filter(None, row[:-1])), columns)
        yield f"  {_cut(row[-1], columns - 2)}"


def _drawn(rows: Sequence[Sequence[str]], widths: Sequence[int], *, columns: int | None) -> Iterator[str]:
    room = None if columns is None else columns - sum(widths) - 2 * len(widths)
    for row in rows:
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1] if room is None else _cut(row[-1], room)])


def _row(line: Line) -> Sequence[str]:
    at = datetime.fromisoformat(line["at"]).astimezone()
    via = f", in {line['via']}" if line["via"] and line["decided_by"] in ("person", "agent") else ""
    who = f"{line['by'] or ('somebody' if line['decided_by'] == 'person' else line['decided_by'])}{via}"
    came = "" if line["token"] is None else f"{line['token']} at {line['address'] or 'an unknown address'}"
    cells = (
        f"{at:%Y-%m-%d %H:%M:%S}",
        line["decision"].replace("_", " "),
        who,
        came,
        line["agent"],
        line["machine"] or "",
    )
    said = _said(line)
    return [inert(cell, keep="") for cell in (*cells, line["title"] + (f" → {said}" if said else ""))]


def _said(line: Line) -> str:
    if line["decision"] == "answered" and line["answers"] is not None:
        return ", ".join(value for values in line["answers"] for value in values)
    if line["decision"] == "answered":
        return " ".join(filter(None, (line["reply"], line["scope"])))
    return line["reason"] or ""


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, cells: int) -> str:
    from rich.cells import set_cell_size

    return text if _width(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


plugin = Command(audit, examples=EXAMPLES, group="desk")
