"""The terminal speaks its person's language: German at a prompt and on a card, and no text beside the catalogue."""

from __future__ import annotations

import ast
import json
import re
import string
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handraise.asks import Answer, Ask, Handling, Option, Origin, Permission, Question, Scope
from handraise.broker import Broker
from handraise.channels import terminal
from handraise.channels.terminal.drawing import (
    draw,
    lost_line,
    record_line,
    summary_line,
    undelivered_line,
    unseen_line,
)
from handraise.channels.terminal.filling import Form, key_help
from handraise.channels.terminal.painting import Painter, title_line
from handraise.channels.terminal.reading import Problem, help_for, parse, parse_permission, parse_scope, prompt_for
from handraise.errors import DeskUnreachable
from handraise.rules.risks import judge
from handraise.testing import FakeClock, a_permission
from handraise.text import words
from handraise.text.words import Words, speak
from tests.channels.test_terminal import NOON, Desk, answer_of, ask
from tests.channels.test_terminal import seated as at_prompt
from tests.channels.test_terminal_full import AUTH, RISKY, STORAGE, card
from tests.channels.test_terminal_full import ask as full_ask
from tests.channels.test_terminal_full import seated as at_card

GERMAN = speak("de")
DUE = {"deadline": NOON + timedelta(minutes=5), "fallback": Answer(answers=(("SQLite",), ("Password",)))}


# German -----------------------------------------------------------------------------------------------------


async def test_a_question_is_asked_and_answered_in_german(broker: Broker) -> None:
    async with at_prompt(broker, words=GERMAN) as seat:
        await seat.shows("Nichts wartet auf eine Antwort. Strg+C beendet.")
        await broker.open(ask(), handling=Handling(question_timeout=600, on_timeout="accept-first"))
        await seat.shows("? opencode: Frage: Database Strategy")
        await seat.shows("━━━ Frage eines Agenten ━━━")
        await seat.shows("  1. SQLite [Vorgabe] — lightweight, file-based")
        await seat.shows("Ohne Antwort bis ")
        await seat.shows(" wird „SQLite“ gewählt. `:w` wartet weiter.")
        await seat.shows("Auswahl [1-3, oder eigener Text]:")
        seat.enter("7")
        await seat.shows(
            "Eine Möglichkeit 7 gibt es nicht. Zur Wahl: 1. SQLite, 2. PostgreSQL, 3. None. "
            "`=7` sendet es als eigene Antwort."
        )
        seat.enter("2")
        assert (await answer_of(broker, "q1")).value == "PostgreSQL"
        await seat.shows("→ opencode: beantwortet: PostgreSQL · bob, im Terminal")


async def test_what_is_typed_means_the_same_in_german(broker: Broker) -> None:
    async with at_prompt(broker, words=GERMAN) as seat:
        await broker.open(a_permission())
        await seat.shows("━━━ Agent bittet um Erlaubnis ━━━")
        await seat.shows("scripted möchte einen Befehl ausführen\n  │ rm -rf build\nWerkzeug Bash\n")
        await seat.shows("[y] einmal erlauben  [a] immer  [d] verweigern:")
        seat.enter("ja")
        await seat.shows("y, a oder d eingeben.")
        seat.enter("a")
        await seat.shows("Immer, wie weit [1, Enter geht zurück]:")
        seat.enter("9")
        await seat.shows("Eine Zahl eingeben, 1, oder mit Enter zurück.")
        seat.enter("")
        await seat.shows("[y] einmal erlauben")
        seat.enter(":?")
        await seat.shows("  d Grund    verweigern; der Grund geht an den Agenten\n")
        await seat.shows("  Strg+C     nicht beantworten; zweimal, oder Strg+D, beendet\n")
        seat.enter("d nicht auf diesem Rechner")
        assert (await answer_of(broker, "permission-1")).reason == "nicht auf diesem Rechner"
        await seat.shows("→ scripted: verweigert von bob im Terminal: nicht auf diesem Rechner")


async def test_who_was_faster_is_said_in_german(broker: Broker) -> None:
    async with at_prompt(broker, words=GERMAN) as seat:
        await broker.open(ask())
        await seat.shows("Auswahl")
        seat.type("my draft")
        await seat.shows("my draft")
        await broker.answer("q1", Answer(answers=(("SQLite",),), by="ana", via="web"))
        await seat.shows("Schon beantwortet von ana im Web: SQLite\nDer Entwurf wurde nicht gesendet:\nmy draft\n")
        await broker.open(ask(id="q2"))
        await seat.shows("Auswahl")
        await broker.withdraw("q2")
        await seat.shows("opencode wartet nicht mehr.\n")


async def test_silence_is_told_in_german(broker: Broker, fake_clock: FakeClock) -> None:
    async with at_prompt(broker, words=GERMAN) as seat:
        await broker.open(ask(), handling=Handling(question_timeout=60, on_timeout="accept-first"))
        await seat.shows("Auswahl")
        await fake_clock.advance(61)
        await seat.shows("Keine Antwort in 60 s: SQLite wurde gewählt.")


def test_a_card_of_full_mode_in_german() -> None:
    assert card(Form(full_ask(STORAGE, AUTH, **DUE), t=GERMAN), columns=78, waiting=2) == (
        "── opencode · Lauf 7f3 · Schritt plan ──────────────────────────── 2 warten ──\n"
        "  Storage                                        ● Storage ○ Auth ○ Überblick\n"
        "  Which database should this feature use?\n"
        "\n"
        "  › 1  SQLite      Vorgabe\n"
        "       one file, no server\n"
        "    2  PostgreSQL\n"
        "       shared, needs a server\n"
        "    3  Eigene Antwort eingeben\n"
        "\n"
        "  Keine Antwort bis 12:05 → SQLite; Password                 w weiter warten\n"
        "  ↑↓ bewegen · 1-3 wählen · ←→ Frage · n Notiz · x ablehnen · esc später\n"
        "  ? Tasten"
    )


def test_a_risky_permission_says_so_in_german() -> None:
    form = Form(RISKY, t=GERMAN)
    assert "⚠ Das kann Dateien löschen.\n" in card(form)
    assert "d verweigern · y einmal erlauben · A mehr erlauben · x verweigern und begründen" in card(form, columns=120)
    form.press("y")
    assert "  › Ausführen\n" in card(form)
    assert "enter ausführen · esc zurück" in card(form)


async def test_full_mode_speaks_german_between_the_cards(broker: Broker) -> None:
    async with at_card(broker, words=GERMAN) as seat:
        await broker.open(full_ask())
        await seat.shows("1 wartet ──", "? Tasten")
        seat.type("\x1b")
        await seat.shows("── 1 für später aufgehoben · J zeigt sie · Strg+C beendet")
        seat.type("J")
        await seat.shows("? Tasten")
        seat.type("o")
        await seat.shows("Eigene Antwort ›")
        seat.type("gern\r")
        await seat.shows("→ opencode: beantwortet: gern · bob, im Terminal")


@pytest.mark.parametrize(("count", "sentence"), [(2, "und 1 weitere Datei lesen"), (3, "und 2 weitere Dateien lesen")])
def test_what_is_counted_has_its_form(count: int, sentence: str) -> None:
    wanted = a_permission(tool="Read", command=None, paths=("a.py", "b.py", "c.py")[:count])
    assert f"scripted möchte a.py {sentence}" in draw(wanted, t=GERMAN)


def test_a_german_noun_keeps_its_capital_in_a_record() -> None:
    waits = ask(origin=Origin(agent="build", session="s1", step="sure"))
    assert record_line(waits, heading="Checkpoint", t=GERMAN) == "? build: Checkpoint sure: wartet auf eine Antwort"


# Every language -----------------------------------------------------------------------------------------------


def pseudo() -> Words:
    """A language in which all of our letters are Cyrillic, so that what is not from the catalogue stands out."""
    cyrillic = {ord(c): chr(base + i) for base, letters in _ALPHABETS for i, c in enumerate(letters)}

    def told(text: str) -> Iterator[str]:
        for ours, place, _, _ in string.Formatter().parse(text):
            yield ours.translate(cyrillic)
            yield "" if place is None else f"{{{place}}}"

    english: dict[str, str] = json.loads((words.FOLDER / "en.json").read_text(encoding="utf-8"))
    return Words("xx", {key: "".join(told(text)) for key, text in english.items()})


_ALPHABETS = ((0x0430, string.ascii_lowercase), (0x0410, string.ascii_uppercase))
PSEUDO = pseudo()
LONG = "ω" * 600  # longer than all that is shown of a name, a label, a description or a reason
KEYS = {"Enter", "Esc", "Tab"}  # they have these names on every keyboard
AGENTS = {"rm", "rf", "git", "push", "Edit", "Read"}  # what the agents below say in Latin letters, since it decides

OPTIONS = (
    Option("Ω", description="ω", preview="ω\n" * 40, recommended=True),
    Option("Ω"),
    Option(LONG, description=LONG),
    *(Option(f"Ω{number}") for number in range(20)),
)
ONE = Question("ω " * 2_100, OPTIONS, header="Ω")
SEVERAL = replace(ONE, multiple=True, header="")
CLOSED = replace(ONE, custom=False)
FEW = Question("Ω", (Option("3"), Option("2"), Option("Ω, ω")), custom=True, kind="number")
NUMBER, TEXT = Question("Ω", kind="number"), Question("Ω", kind="text")
ORIGIN = Origin(agent="Ω", session="ω7", run="ω3", step="ω4", cwd="/ω")
DIFF = "@@ -1,300 +1,1 @@\n" + "-ω\n" * 300
SCOPES = (
    Scope(id="1", label="ω", patterns=("ω *",)),
    Scope(id="2", label=LONG),
    Scope(id="3", label="ω", patterns=("ω",), by_desk=True),
    Scope(id="4", label="ω", by_desk=True),
)
REPLIES = ("once", "always", "reject")


def asked(*questions: Question, **changes: Any) -> Ask:
    return replace(Ask(id="1", questions=questions, origin=ORIGIN), **changes)


def permission(**fields: Any) -> Ask:
    wanted = Permission(**{"tool": "Ω", "cwd": "/ω", "summary": LONG, "replies": REPLIES, **fields})
    ask = Ask(id="2", permission=wanted, origin=ORIGIN)
    judged = judge(ask)  # why it is in doubt is said in the desk's own words, in English
    return replace(ask, risks=judged.risks, commands=judged.commands, doubt=judged.doubt and "ω")


ASKS = {
    "one": asked(ONE),
    "several": asked(SEVERAL, TEXT, NUMBER, FEW),
    "closed": asked(CLOSED),
    "number": asked(NUMBER),
    "command": permission(command="ω\u202e", input={"ω": 1}, scopes=SCOPES),
    "risky": permission(command="rm -rf ω && git push", scopes=SCOPES),
    "edit": permission(tool="Edit", paths=("ω", "Ω")),
    "diff": permission(tool="Edit", diff=DIFF),
    "read": permission(tool="Read", paths=("ω", "Ω")),
    "read one": permission(tool="Read", paths=("ω",)),
    "url": permission(url="http://ω/"),
    "plan": permission(kind="plan", input={"plan": "ω"}),
    "nothing said": permission(replies=("always", "ω", "reject")),
    "only no": permission(replies=("reject",)),
}
SILENCES = [
    Answer(rejected=True),
    Answer(answers=(("Ω",), ("ω",), (), ()), reply="always"),
]
SAID = [
    Answer(answers=(("Ω",), ("ω",), (), ()), reply="once", by="ω", via=via)
    for via in ("web", "cli", "terminal", "http", "link", "agent", "ω", "")
]
SAID += [replace(SAID[0], by=by, why=why) for by in ("", "policy:ω") for why in ((), ("ω",))]
SAID += [replace(SAID[0], by="policy:unseen", why=("nobody could be shown this (ω)",))]
SAID += [replace(SAID[0], by="policy:timeout", why=why) for why in ((), ("no answer in 60 s",), ("ω",))]
SAID += [replace(each, rejected=True, reason=reason) for each in SAID for reason in (None, LONG)]


def foreign(text: str) -> list[str]:
    """Words in Latin letters that came neither from the catalogue nor from an agent. One letter is a key."""
    return [word for word in re.findall(r"[A-Za-z]{2,}", text.replace("http://", "")) if word not in KEYS | AGENTS]


@pytest.mark.parametrize("name", ASKS)
def test_a_card_says_nothing_that_is_not_in_the_catalogue(name: str) -> None:
    for seconds in (3600, 90_000, 30):
        for fallback in SILENCES:
            waits = replace(ASKS[name], deadline=NOON + timedelta(seconds=seconds), fallback=fallback)
            assert foreign(draw(waits, columns=100, now=NOON, t=PSEUDO)) == []


@pytest.mark.parametrize("name", ASKS)
def test_no_outcome_is_told_in_words_that_are_not_in_the_catalogue(name: str) -> None:
    one = ASKS[name]
    ends = [replace(one, state="rejected" if each.rejected else "answered", answer=each) for each in SAID]
    ends += [replace(end, delivered_at=NOON) for end in ends[:1]] + [
        replace(end, delivery_error=LONG) for end in ends[:1]
    ]
    ends += [replace(one, state="withdrawn", withdrawn_reason=reason) for reason in (None, LONG)] + [one]
    for end in ends:
        lines = [
            draw(end, columns=100, now=NOON, t=PSEUDO),
            lost_line(end, t=PSEUDO),
            undelivered_line(end, t=PSEUDO),
            unseen_line(end, t=PSEUDO),
            summary_line(end, t=PSEUDO),
            *(record_line(end, heading=heading, t=PSEUDO) for heading in ("", "Ω")),
            title_line(end, colour=False, columns=1000, t=PSEUDO),
        ]
        assert foreign("\n".join(lines)) == []


@pytest.mark.parametrize("name", ASKS)
def test_nothing_at_a_prompt_is_said_in_words_that_are_not_in_the_catalogue(name: str) -> None:
    one = ASKS[name]
    typed = ("", "=", "99", "2", "Ω", "1,2", "1,ω,2", "ω ω", LONG, ":s", ":ω", "=ω")
    said: list[object] = []
    for question in one.questions:
        said += [parse(question, line, t=PSEUDO) for line in typed]
    if one.permission is not None:
        said += [parse_permission(one.permission, line, t=PSEUDO) for line in typed]
        said += [parse_scope(one.permission.scopes, line, t=PSEUDO) for line in typed]
    told = [each.message for each in said if isinstance(each, Problem)]
    told += [help_for(one, t=PSEUDO), key_help(one, t=PSEUDO)]
    told += [prompt_for(each, t=PSEUDO) for each in (*one.questions, *filter(None, [one.permission]))]
    assert foreign("\n".join(told)) == []


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("columns", [40, 120])
def test_no_card_of_full_mode_says_what_is_not_in_the_catalogue(name: str, columns: int) -> None:
    presses = (
        ("?",),
        ("9",),
        ("c-m",),
        ("1", "n"),
        ("n",),
        ("o",),
        ("x",),
        ("2",),
        ("y",),
        ("y", "c-m"),
        ("A",),
        ("A", "down", "down"),
        ("A", "down", "down", "down"),
        ("A", "down", "down", "down", "down", "down"),
        ("A", "down", " ", "c-m"),
        ("right", "right", "right", "right"),
        ("right", "right", "right", "right", "c-m"),
    )
    ends = [(30, SILENCES[0]), (300, SILENCES[1]), (-1, SILENCES[0]), (-1, SILENCES[1])]
    looks: list[tuple[tuple[str, ...], tuple[int, Answer], dict[str, bool]]] = [
        *((keys, ends[0], {}) for keys in presses),
        *(((), end, {}) for end in ends),
        *(((), ends[0], {how: True}) for how in ("is_above", "is_sending")),
    ]
    for keys, (seconds, fallback), how in looks:
        form = Form(replace(ASKS[name], deadline=NOON + timedelta(seconds=seconds), fallback=fallback), t=PSEUDO)
        form.leave_field()
        for filled in form.filled:
            filled.note = "ω"
        for key in keys:
            form.press(key)
        painted = Painter(form, columns=columns, rows=30, colour=False, now=NOON, waiting=2, **how).paint()
        assert foreign("\n".join([*painted.top, painted.label or "", *painted.bottom])) == [], keys


class Refusing(Desk):
    """It takes the second answer only."""

    refused = 0

    async def answer(self, id: str, answer: Answer) -> Ask:
        self.refused += 1
        if self.refused == 1:
            raise DeskUnreachable("ω")
        told: Ask = await self._broker.answer(id, answer)
        return told


async def test_a_sitting_says_nothing_that_is_not_in_the_catalogue(broker: Broker) -> None:
    latin = asked(replace(CLOSED, question="ω", options=(Option("Ω"), Option("ω"))))
    async with at_prompt(Refusing(broker), words=PSEUDO, by="ω") as seat:
        await seat.shows(PSEUDO("terminal.nothing"))
        await broker.open(latin)
        await seat.shows(PSEUDO("terminal.prompt.select", ways="1-2"))
        await broker.open(replace(latin, id="3"))
        await seat.shows(PSEUDO("terminal.others", count=1))
        seat.enter(":w")
        await seat.shows(PSEUDO("terminal.noDeadline"))
        seat.enter("1")
        await seat.shows(PSEUDO("error.sendFailed", reason=""))
        await seat.shows(PSEUDO("terminal.prompt.select", ways="1-2"))
        seat.enter("")
        await seat.shows(PSEUDO("terminal.via.terminal"))
        await seat.shows(PSEUDO("terminal.prompt.select", ways="1-2"))
        seat.type("\x03")
        await seat.shows(PSEUDO("terminal.left"))
        seat.type("\x03")
        await seat.shows(PSEUDO("terminal.still", count=1))
        await seat.ended()
    assert foreign(seat.screen.text) == []


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(Path(terminal.__file__).parent.glob("*.py")):
        yield path.name, ast.parse(path.read_text(encoding="utf-8"))


def test_the_terminal_writes_no_sentence_of_its_own() -> None:
    """What only a test with the right ask would show: two words in a text that is not a key of the catalogue."""
    found = [
        f"{name}: {text}"
        for name, module in modules()
        for text in texts_of(module)
        if re.search(r"[A-Za-z]{2,}[,:]? [A-Za-z]{2,}", text)
    ]
    assert found == [
        "drawing.py: no answer in (?P<seconds>\\S{1,40}) s",
        "drawing.py: nobody could be shown this \\((?P<reason>.*)\\)",
    ], "only what the desk says is known here"


def texts_of(module: ast.Module) -> Iterator[str]:
    """The texts of a module that are not docstrings."""
    docstrings = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_whoever_speaks_english_unless_told_otherwise_is_told_here() -> None:
    """Tests and other commands draw in English; inside of the terminal that would be a language forgotten."""
    trees = dict(modules())
    english = {name for module in trees.values() for name in english_by_default(module)}
    assert {"parse", "prompt_for", "help_for", "Form", "record_line"} <= english
    forgotten = [
        f"{file}:{node.lineno}"
        for file, module in trees.items()
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and english & {each.id for each in (node.func, *node.args[:1]) if isinstance(each, ast.Name)}
        and not any(given.arg == "t" for given in node.keywords)
    ]
    assert forgotten == []


def english_by_default(module: ast.Module) -> Iterator[str]:
    """What takes a `t` that may be left out: functions, and classes by their `__init__`."""
    for node in module.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        for made in inside:
            if isinstance(made, ast.FunctionDef) and (made is node or made.name == "__init__"):
                defaults = dict(zip((arg.arg for arg in made.args.kwonlyargs), made.args.kw_defaults, strict=True))
                if defaults.get("t") is not None:
                    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
                    yield node.name
