"""The terminal's full mode: what a key does, how a card looks, and a person with a keyboard at a real desk."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.utils import get_cwidth

from handraise.asks import Answer, Ask, Handling, Option, Origin, Permission, Question, Scope
from handraise.asks.changes import changed_files
from handraise.broker import Broker
from handraise.channels import Inbox
from handraise.channels.terminal import Terminal
from handraise.channels.terminal.filling import Edit, Form, GoTo, Keep, Send, Unfold
from handraise.channels.terminal.full import notifies
from handraise.channels.terminal.painting import Painter
from handraise.channels.terminal.reading import Wait
from handraise.errors import DeskUnreachable
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing import ChannelDriver, FakeClock, a_permission, check_channel

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
ENTER, ESCAPE = "c-m", "escape"

STORAGE = Question(
    "Which database should this feature use?",
    (Option("SQLite", description="one file, no server"), Option("PostgreSQL", description="shared, needs a server")),
    header="Storage",
)
AUTH = Question("How do people sign in?", (Option("Password"), Option("Passkey"), Option("Link")), header="Auth")
HOSTS = Question("Which hosts?", (Option("web1"), Option("web2"), Option("db1")), multiple=True)
CLOSED = replace(STORAGE, custom=False)
NAME = Question("Which name?", kind="text")
NUMBER = Question("How many?", kind="number")
ORIGIN = Origin(agent="opencode", session="7f3", run="7f3", step="plan")
TOUCH = "touch done"  # a command that nobody calls risky


def ask(*questions: Question, **changes: Any) -> Ask:
    return replace(Ask(id="q1", questions=questions or (STORAGE,), origin=ORIGIN), **changes)


def permission(**fields: Any) -> Ask:
    wanted = Permission(**{"tool": "Bash", "command": TOUCH, "replies": ("once", "always", "reject"), **fields})
    return Ask(id="p1", permission=wanted, origin=Origin(agent="claude", session="s1"))


def pressed(form: Form, *keys: str) -> Any:
    """What the last of the keys does."""
    act = None
    for key in keys:
        act = form.press(key)
    return act


def typed(form: Form, text: str) -> Any:
    form.text = text
    return form.done()


def said(*answers: tuple[str, ...], **more: Any) -> Send:
    return Send(Answer(answers=answers, **more))


# What keys do -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "act"),
    [
        (["1"], said(("SQLite",))),
        (["2"], said(("PostgreSQL",))),
        ([ENTER], said(("SQLite",))),
        (["down", ENTER], said(("PostgreSQL",))),
        (["j", "k", "j", ENTER], said(("PostgreSQL",))),
        (["j", "up", ENTER], said(("SQLite",))),
        (["end", "up", ENTER], said(("PostgreSQL",))),
        (["end", "home", ENTER], said(("SQLite",))),
        (["j", " "], None),
        (["9"], None),
        (["down", "right", "l", "h", "left", "c-i"], None),
        (["?"], None),
        (["?", ESCAPE], None),
        (["n"], None),
        (["x"], None),
        (["3"], None),
        (["o"], None),
        (["e"], Edit()),
        (["p"], Unfold()),
        (["w"], Wait()),
        (["J"], GoTo(1)),
        (["K"], GoTo(-1)),
        ([ESCAPE], Keep()),
        (["y"], None),
        (["d"], None),
        (["A"], None),
        (["c-x"], None),
        (["<bracketed-paste>"], None),
    ],
)
def test_a_key_at_a_question_does_what_it_says(keys: list[str], act: object) -> None:
    assert pressed(Form(ask()), *keys) == act


def test_several_are_chosen_with_space_and_numbers_and_sent_in_the_agents_order() -> None:
    form = Form(ask(HOSTS))
    assert pressed(form, ENTER) is None and "Nothing is chosen yet" in form.problem
    assert pressed(form, "3", "1", "2", "2") is None
    pressed(form, "o")
    assert typed(form, "mine") == said(("web1", "db1", "mine"))
    form = Form(ask(HOSTS))
    assert pressed(form, "j", " ", ENTER) == said(("web2",))


def test_own_text_clears_the_choice_and_a_choice_keeps_the_text_as_a_note() -> None:
    form = Form(ask())
    pressed(form, "j", " ", "o")
    form.text = "MySQL"
    form.leave_field()
    assert form.filled[0].chosen == []
    assert pressed(form, "2") is None, "somebody typed, so a number does not send"
    assert "note" in form.problem
    assert pressed(form, ENTER) == said(("PostgreSQL",), notes=("MySQL",))


def test_a_note_goes_along() -> None:
    form = Form(ask())
    pressed(form, "n")
    assert typed(form, "for now") is None
    assert pressed(form, "1") == said(("SQLite",), notes=("for now",))


def test_where_no_own_answer_is_taken_none_can_be_typed() -> None:
    form = Form(ask(CLOSED))
    for key in ("o", "e", "3"):
        assert pressed(form, key) is None and form.field is None and form.problem


def test_a_text_is_typed_at_once_and_a_number_has_to_be_one() -> None:
    assert typed(Form(ask(NAME)), "7\nor 8") == said(("7\nor 8",))
    form = Form(ask(NUMBER))
    assert form.field == "own"
    assert typed(form, "many") is None and "not a number" in form.problem and form.field == "own"
    assert typed(form, "7") == said(("7",))


def test_several_questions_are_stepped_through_changed_reviewed_and_sent() -> None:
    form = Form(ask(STORAGE, AUTH, NAME))
    assert pressed(form, "1") is None and form.at == 1
    assert pressed(form, "j", ENTER) is None and form.at == 2
    assert form.field == "own" and typed(form, "shop") is None
    assert form.is_review
    assert pressed(form, "2") is None and form.at == 1
    assert pressed(form, "3") is None and form.at == 1, "who came back to change it stays"
    assert pressed(form, "h", "right", "l", "c-i") is None and form.is_review
    assert pressed(form, ENTER) == said(("SQLite",), ("Link",), ("shop",))


def test_a_question_may_be_left_out_but_not_all_of_them() -> None:
    form = Form(ask(STORAGE, AUTH))
    assert pressed(form, "l", "l", ENTER) is None and "Nothing is chosen yet" in form.problem
    assert pressed(form, "1", "1", "l", ENTER) == said(("SQLite",), ())


def test_declining_takes_a_reason_or_none() -> None:
    form = Form(ask())
    pressed(form, "x")
    assert typed(form, " not now ") == Send(Answer(rejected=True, reason="not now"))
    form = Form(ask())
    pressed(form, "x")
    assert form.done() == Send(Answer(rejected=True))


@pytest.mark.parametrize("way", [[], ["x"], ["o"], ["n"], ["?"], ["j"], [" "], ["l"], ["2", "l"], ["l", "l", "l"]])
@pytest.mark.parametrize("asked", [ask(), ask(HOSTS), ask(STORAGE, AUTH), ask(NAME), permission()])
def test_escape_never_answers_or_declines(asked: Ask, way: list[str]) -> None:
    form = Form(asked)
    for key in way:
        if form.field is None and not isinstance(form.press(key), Send):
            continue
        break
    for _ in range(5):
        if form.field is not None:
            form.leave_field()
            continue
        act = form.press(ESCAPE)
        assert act in (None, Keep())
        if act == Keep():
            return
    raise AssertionError("escape does not lead out")


def test_what_was_typed_anywhere_can_be_given_back() -> None:
    form = Form(ask(STORAGE, NAME))
    pressed(form, "o")
    form.text = "own"
    form.leave_field()
    pressed(form, "n")
    form.text = "note"
    form.leave_field()
    pressed(form, "x")
    form.text = "reason"
    assert form.typed == ["own", "note", "reason"]


@pytest.mark.parametrize(
    ("keys", "act"),
    [
        (["y"], Send(Answer(reply="once"))),
        (["d"], Send(Answer(rejected=True))),
        (["A", ENTER], Send(Answer(reply="always"))),
        (["A", ESCAPE], None),
        ([ENTER], None),
        (["2"], None),
        (["2", ENTER], Send(Answer(reply="once"))),
        (["j", ENTER], Send(Answer(rejected=True))),
        (["j", "j", ENTER], Send(Answer(reply="once"))),
        (["right", "l", "left", ENTER], Send(Answer(rejected=True))),
        (["end", ENTER], None),
        (["home", ENTER], Send(Answer(rejected=True))),
        (["n"], None),
        (["o"], None),
        (["e"], None),
        ([" "], None),
        ([ESCAPE], Keep()),
    ],
)
def test_a_key_at_a_permission_does_what_it_says(keys: list[str], act: object) -> None:
    assert pressed(Form(permission()), *keys) == act


def test_what_an_agent_does_not_take_cannot_be_said_to_it() -> None:
    form = Form(permission(replies=("for-the-turn", "reject")))
    assert pressed(form, "y") is None and form.problem
    assert pressed(form, "A") is None and form.problem and form.panel is None
    assert pressed(form, "2", ENTER) == Send(Answer(reply="for-the-turn"))


SCOPES = (
    Scope(id="session", label="for this session", patterns=("git status",)),
    Scope(id="project", label="in this project", patterns=("git *", "gh *")),
)


def test_allow_more_saves_exactly_the_patterns_shown_and_fewer_where_some_are_taken_out() -> None:
    form = Form(permission(scopes=SCOPES))
    assert pressed(form, "A", ENTER) == Send(Answer(reply="always", scope="session", patterns=("git status",)))
    form = Form(permission(scopes=SCOPES))
    allowed = pressed(form, "A", "2", "j", "j", " ", ENTER)
    assert allowed == Send(Answer(reply="always", scope="project", patterns=("git *",)))
    form = Form(permission(scopes=SCOPES))
    assert pressed(form, "A", "j", " ", ENTER) is None and "Nothing of it is left" in form.problem
    assert pressed(form, " ", ENTER) == Send(Answer(reply="always", scope="session", patterns=("git status",)))


RISKY = permission(command="rm -rf build", scopes=SCOPES)


def test_a_risky_permission_takes_no_number_and_wants_a_second_press() -> None:
    form = Form(RISKY)
    assert pressed(form, "2", ENTER) is None and form.armed is None
    assert pressed(form, "y") is None
    assert pressed(form, "y") is None, "the same key again, held too long, is not the second press"
    assert pressed(form, ESCAPE) is None, "back to the card"
    assert pressed(form, ENTER) is None
    assert pressed(form, "y", ENTER) == Send(Answer(reply="once"))
    assert pressed(Form(RISKY), "A", ENTER) is None
    assert pressed(Form(RISKY), "d") == Send(Answer(rejected=True)), "to deny is never risky"


# How a card looks -------------------------------------------------------------------------------------------


def card(asked: Ask | Form, *, columns: int = 80, rows: int = 40, **more: Any) -> str:
    form = asked if isinstance(asked, Form) else Form(asked)
    painted = Painter(form, columns=columns, rows=rows, colour=False, now=NOON, **more).paint()
    label = [f"  {painted.label} › "] if painted.label else []
    return "\n".join([*painted.top, *label, *painted.bottom])


def test_a_question_is_drawn_as_a_card() -> None:
    due = {"deadline": NOON + timedelta(minutes=5), "fallback": Answer(answers=(("SQLite",), ("Password",)))}
    assert card(ask(STORAGE, AUTH, **due), columns=78, waiting=2) == (
        "── opencode · run 7f3 · step plan ─────────────────────────────── 2 waiting ──\n"
        "  Storage                                           ● Storage ○ Auth ○ Review\n"
        "  Which database should this feature use?\n"
        "\n"
        "  › 1  SQLite      default\n"
        "       one file, no server\n"
        "    2  PostgreSQL\n"
        "       shared, needs a server\n"
        "    3  Type your own answer\n"
        "\n"
        "  No answer by 12:05 → SQLite; Password                       w keep waiting\n"
        "  ↑↓ move · 1-3 pick · ←→ question · n note · x decline · esc later · ? keys"
    )


def test_a_narrow_terminal_gives_descriptions_lines_without_indent_and_wraps_the_rest() -> None:
    drawn = card(ask(), columns=40)
    assert "  › 1  SQLite\none file, no server\n    2  PostgreSQL\nshared, needs a server\n" in drawn
    assert "  Which database should this feature\n  use?\n" in drawn
    assert all(len(line) <= 40 for line in drawn.split("\n"))


@pytest.mark.parametrize("columns", [40, 59, 60, 100])
def test_wide_characters_are_measured(columns: int) -> None:
    question = Question(
        "どのデータベース を 使い ますか", (Option("日本語", recommended=True), Option("x")), header="保存"
    )
    origin = Origin(agent="代理人", session="s1", cwd="/家/" + "日本語/" * 20)
    drawn = card(ask(question, question, origin=origin), columns=columns)
    rule, *rest = drawn.split("\n")
    assert get_cwidth(rule) == columns
    assert all(get_cwidth(line) <= columns for line in rest)
    if columns >= 60:
        one, other = (line for line in rest if line.lstrip(" ›").startswith(("1 ", "2 ")))
        assert "日本語  recommended" in one and "x" in other


@pytest.mark.parametrize(
    ("seconds", "fallback", "line"),
    [
        (300, Answer(answers=(("SQLite",),)), "No answer by 12:05 → SQLite"),
        (300, Answer(rejected=True), "No answer by 12:05 → declined"),
        (59.2, Answer(answers=(("SQLite",),)), "No answer in 60 s → SQLite"),
        (9.5, Answer(rejected=True), "No answer in 10 s → declined"),
        (0, Answer(answers=(("SQLite",),)), "Picking “SQLite”…"),
        (-1, Answer(rejected=True), "Declining…"),
        (86400, Answer(rejected=True), "No answer by 2026-01-02 12:00 → declined"),
    ],
)
def test_the_deadline_says_what_happens_and_counts_at_the_end(seconds: float, fallback: Answer, line: str) -> None:
    drawn = card(ask(deadline=NOON + timedelta(seconds=seconds), fallback=fallback))
    assert f"  {line} " in drawn
    assert "w keep waiting" in drawn


def test_badges_choices_and_boxes_are_words_and_marks() -> None:
    options = (Option("SQLite", recommended=True), Option("PostgreSQL"))
    due = {"deadline": NOON + timedelta(hours=1), "fallback": Answer(answers=(("SQLite",), ()))}
    form = Form(ask(replace(STORAGE, options=options), HOSTS, **due))
    pressed(form, " ")
    assert "  › 1  SQLite      chosen · recommended · default\n" in card(form)
    pressed(form, "l", "2")
    assert "    1  [ ] web1\n  › 2  [x] web2\n" in card(form)


def test_the_review_lists_every_answer_and_what_is_missing() -> None:
    form = Form(ask(STORAGE, AUTH))
    pressed(form, "1", "n")
    form.text = "why not"
    form.done()
    pressed(form, "l")
    drawn = card(form)
    assert "    1  Storage: SQLite\n    2  Auth: not answered\n       Note: why not\n" in drawn
    assert "  › Send 1 of 2\n" in drawn
    assert "✓ Storage ○ Auth ● Review" in drawn


def test_a_preview_stands_under_the_marked_choice_and_a_long_one_is_cut_with_a_mark() -> None:
    options = (Option("Tabs", preview="a\n\tb"), Option("Spaces", preview="\n".join("xyz" * 10)))
    form = Form(ask(replace(STORAGE, options=options)))
    assert "  › 1  Tabs\n       │ a\n       │     b\n    2  Spaces\n    3  Type your own" in card(form)
    pressed(form, "j")
    assert "18 more lines: p shows all of it above\n    3  Type your own answer" in card(form)
    form.shows_previews = False
    assert "│" not in card(form)


def test_a_permission_shows_its_command_whole_and_each_command_of_it() -> None:
    drawn = card(permission(command=" git status\t&& gh pr list\u202e " + "x" * 300 + " ", cwd="/home/ana/shop"))
    assert "  claude wants to run a command\n  │ ·git status\\t&& gh pr list\\u202e " + "x" * 300 + "·\n" in drawn
    assert "  ⚠ Contains hidden characters\n  in /home/ana/shop\n  tool Bash\n" in drawn
    assert "It runs these:" not in drawn, "what cannot be seen may run something else"
    assert "It is not certain what this does: it holds characters that cannot be seen." in drawn
    assert "›" not in drawn, "nothing is marked at first"
    plain = card(permission(command="git status && gh pr list"))
    assert "  It runs these:\n    git status\n    gh pr list" in plain
    assert "    1  Deny            d\n    2  Allow once      y\n    3  Allow more…     A\n" in plain


def test_a_risky_permission_has_no_numbers_and_says_why() -> None:
    form = Form(RISKY)
    assert "  ⚠ This can delete files.\n\n       Deny            d\n       Allow once      y\n" in card(form)
    pressed(form, "y")
    assert "  ⚠ This can delete files.\n\n  › Run it\n" in card(form) and "Allow once" not in card(form)


def test_allow_more_shows_who_keeps_it_and_exactly_what() -> None:
    form = Form(permission(scopes=(*SCOPES, Scope(id="desk", by_desk=True))))
    pressed(form, "A", "j", " ")
    drawn = card(form)
    assert "  Allow more: claude remembers it, exactly these patterns.\n" in drawn
    assert "    1  for this session  chosen\n  ›    [ ] git status\n    2  in this project\n       [x] git *\n" in drawn
    pressed(form, "3")
    assert "  Allow more: The desk remembers it for this session, and names no patterns.\n" in card(form)


DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-\told\n+\tnew  \n--- a/b.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x\n--- y\n"


def test_a_diff_begins_with_its_files() -> None:
    edit = permission(tool="Edit", command=None, paths=("a.py", "b.py"), diff=DIFF)
    assert changed_files(DIFF) == [("a.py", 1, 1), ("b.py", 0, 2)]
    drawn = card(edit)
    assert "  claude wants to change 2 files\n  a.py  +1 -1\n  b.py  +0 -2\n" in drawn
    assert "  │ -    old\n  │ +    new··\n" in drawn


def test_a_long_diff_is_folded_until_it_is_wanted() -> None:
    long = "--- a/a.py\n+++ b/a.py\n@@ -0,0 +1,300 @@\n" + "+new\n" * 300
    form = Form(permission(tool="Edit", command=None, paths=("a.py",), diff=long))
    assert "  a.py  +300 -0\n" in card(form) and "300 changed lines: p shows them above" in card(form)
    assert "+new" not in card(form)
    form.shows_diff = True
    assert card(form).count("  │ +new\n") == 300


def test_a_folded_diff_is_allowed_only_after_it_was_shown_and_denied_at_once() -> None:
    long = "--- a/a.py\n+++ b/a.py\n@@ -0,0 +1,300 @@\n" + "+new\n" * 300
    form = Form(permission(tool="Edit", command=None, paths=("a.py",), diff=long))
    for key in ("y", "A"):
        assert form.press(key) is None
        assert "folded" in form.problem and form.panel is None
    assert form.press("d") == Send(Answer(rejected=True))
    form.has_seen_diff = True
    assert form.press("y") == Send(Answer(reply="once"))


def test_nothing_an_agent_wrote_reaches_the_terminal_as_more_than_text() -> None:
    evil = "e\x1b[2J\u202e\u200b\x9b\r"
    origin = Origin(agent=evil, session=evil, run=evil, step=evil, cwd=evil)
    question = Question(evil, (Option(evil, description=evil, preview=evil),), header=evil)
    scopes = (Scope(id=evil, label=evil, patterns=(evil, evil + "\n")),)
    wanted = Permission(
        tool=evil, summary=evil, command=f"{evil}; {evil}", paths=(evil,), diff=evil, cwd=evil, url=evil, scopes=scopes
    )
    wanted = replace(wanted, replies=("once", "always", evil), diff=f"--- {evil}\n+++ {evil}\n+{evil}")
    fallback = {"fallback": Answer(answers=((evil,), (evil,))), "deadline": NOON + timedelta(hours=1)}
    several, one = Form(ask(question, question, origin=origin, **fallback)), Form(ask(question, origin=origin))
    reviewed = Form(ask(question, question, origin=origin))
    pressed(reviewed, "1", "1")
    allowed, asked = Form(ask(permission=wanted, origin=origin)), Form(ask(permission=wanted, origin=origin))
    for form in (allowed, asked):
        form.ask = replace(form.ask, questions=())
    pressed(allowed, "A")
    for form in (several, one, reviewed, allowed, asked):
        form.problem = evil
        for columns in (30, 100):
            assert card(form, columns=columns).replace("\n", "").isprintable()


def test_colour_adds_nothing_but_colour() -> None:
    for asked in (ask(STORAGE, AUTH), RISKY, permission(scopes=SCOPES, command=" x\t")):
        painter = Painter(Form(asked), columns=80, rows=40, colour=True, now=NOON)
        painted = painter.paint()
        coloured = "\n".join([*painted.top, *painted.bottom])
        assert "\x1b[" in coloured
        assert re.sub(r"\x1b\[\d+m", "", coloured) == card(asked)


# A person at a desk -----------------------------------------------------------------------------------------


class Screen(DummyOutput):
    """A terminal: what was printed, and the card under it as it is drawn again and again."""

    def __init__(self, *, columns: int = 80, rows: int = 40) -> None:
        self.size = Size(rows=rows, columns=columns)
        self.bells = 0
        self.alternate = False
        self.raw = ""
        self._lines: list[dict[int, str]] = [{}]
        self._x = self._y = 0
        self._changed = asyncio.Event()

    @property
    def text(self) -> str:
        lines = ["".join(line.get(x, " ") for x in range(max(line, default=-1) + 1)).rstrip() for line in self._lines]
        return "\n".join(lines).rstrip("\n") + "\n"

    def print(self, text: str) -> None:
        for line in text.split("\n"):
            self.write(line + "\r\n")
        self._changed.set()

    def get_size(self) -> Size:
        return self.size

    def bell(self) -> None:
        self.bells += 1

    def write_raw(self, data: str) -> None:
        self.raw += data
        if data in ("\r", "\n", "\r\n"):
            self.write(data)

    def enter_alternate_screen(self) -> None:
        self.alternate = True

    def write(self, data: str) -> None:
        for character in data:
            if character == "\n":
                self._move(1)
            elif character == "\r":
                self._x = 0
            else:
                self._lines[self._y][self._x] = character
                self._x += max(1, get_cwidth(character))

    def _move(self, rows: int) -> None:
        self._y = max(0, self._y + rows)
        self._lines += [{} for _ in range(self._y + 1 - len(self._lines))]

    def cursor_up(self, amount: int) -> None:
        self._move(-amount)

    def cursor_down(self, amount: int) -> None:
        self._move(amount)

    def cursor_forward(self, amount: int) -> None:
        self._x += amount

    def cursor_backward(self, amount: int) -> None:
        self._x = max(0, self._x - amount)

    def erase_end_of_line(self) -> None:
        self._lines[self._y] = {x: each for x, each in self._lines[self._y].items() if x < self._x}

    def erase_down(self) -> None:
        self.erase_end_of_line()
        self._lines[self._y + 1 :] = []

    def flush(self) -> None:
        self._changed.set()

    async def shows(self, *texts: str, without: str | None = None) -> str:
        """Wait until all of the texts are there at once."""

        def is_there() -> bool:
            return all(text in self.text for text in texts) and (without is None or without not in self.text)

        return await self.until(is_there, what=f"{texts} without {without!r}")

    async def until(self, is_there: Callable[[], bool], *, what: str) -> str:
        try:
            async with asyncio.timeout(5):
                while not is_there():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"never showed {what}, but:\n{self.text}") from None
        return self.text


class Seat:
    """A person in front of a terminal at a desk."""

    def __init__(self, inbox: Inbox, keys: PipeInput, tasks: asyncio.TaskGroup, **settings: Any) -> None:
        self.screen = Screen(columns=settings.pop("columns", 80), rows=settings.pop("rows", 40))
        self.shows = self.screen.shows
        self._keys = keys
        self.terminal = Terminal(
            **{
                "by": "bob",
                "full": True,
                "colour": False,
                "input": keys,
                "output": self.screen,
                "out": self.screen.print,
                **settings,
            }
        )
        self.running = tasks.create_task(self.terminal.run(inbox))

    def type(self, text: str) -> None:
        self._keys.send_text(text)

    async def ended(self) -> None:
        async with asyncio.timeout(5):
            await self.running


@asynccontextmanager
async def seated(inbox: Inbox, **settings: Any) -> AsyncIterator[Seat]:
    with create_pipe_input() as keys:
        async with asyncio.TaskGroup() as tasks:
            seat = Seat(inbox, keys, tasks, **settings)
            yield seat
            seat.running.cancel()


@pytest.fixture
def fake_clock() -> FakeClock:
    """It stands still, but begins where the clock of the terminal is."""
    return FakeClock(start=datetime.now(UTC))


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as pipe:
        yield pipe


async def answer_of(broker: Broker, id: str) -> Answer:
    answer = (await broker.wait(id, timeout=5)).ask().answer
    assert answer is not None
    return answer


async def test_a_number_answers_and_the_card_becomes_two_lines(broker: Broker) -> None:
    async with seated(broker, greets=False) as seat:
        await broker.open(ask())
        await seat.shows("── opencode · run 7f3 · step plan ", "1 waiting ──", "› 1  SQLite", "? keys")
        seat.type("2")
        answer = await answer_of(broker, "q1")
        assert (answer.values, answer.by, answer.via) == (("PostgreSQL",), "bob", "terminal")
        shown = await seat.shows("answered: PostgreSQL")
    assert shown == (
        "? opencode: Storage Which database should this feature use?\n"
        "→ opencode: answered: PostgreSQL · bob, in terminal\n"
    )
    assert not seat.screen.alternate


async def test_the_log_goes_on_above_the_card(broker: Broker) -> None:
    async with seated(broker) as seat:
        await seat.shows("Nothing is waiting for you.")
        await broker.open(ask())
        await seat.shows("? keys")
        seat.terminal.note("a line of the run")
        await broker.open(ask(id="q2"))
        await broker.open(ask(id="q3"))
        await seat.shows("3 waiting ──")
        await broker.answer("q3", Answer(answers=(("SQLite",),), by="ana", via="web"))
        shown = await seat.shows("answered: SQLite · ana, in web", "2 waiting ──")
        lines = shown.split("\n")
        assert lines[:3] == [
            "Nothing is waiting for you. Ctrl+C quits.",
            "a line of the run",
            "→ opencode: answered: SQLite · ana, in web",
        ]
        assert shown.count("── opencode") == 1 and lines[3].startswith("── opencode")


async def test_own_text_of_several_lines_is_typed_on_the_card(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("? keys")
        seat.type("o")
        await seat.shows("Your own answer ›")
        seat.type("one\x1b\rtwo\nthree 3 j")
        await seat.shows("Your own answer › one\n", "two\n", "three 3 j\n")
        seat.type("\r")
        assert (await answer_of(broker, "q1")).value == "one\ntwo\nthree 3 j"


async def test_several_questions_are_filled_in_reviewed_and_sent(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask(STORAGE, AUTH, NAME))
        await seat.shows("● Storage ○ Auth ○ Question 3 ○ Review")
        seat.type("1")
        await seat.shows("✓ Storage ● Auth")
        seat.type("\x1b[B\r")
        await seat.shows("Your own answer ›")
        seat.type("shop\r")
        await seat.shows("1  Storage: SQLite", "2  Auth: Passkey", "3  Which name?: shop", "› Send")
        seat.type("\x1b[D\x1b[Dj ")
        await seat.shows("Link", "chosen")
        seat.type("\t\t\r")
        assert (await answer_of(broker, "q1")).answers == (("SQLite",), ("Link",), ("shop",))


async def test_what_does_not_fit_is_said_on_the_card_and_nothing_is_lost(broker: Broker) -> None:
    class Picky(Desk):
        failed = 0

        async def answer(self, id: str, answer: Answer) -> Ask:
            self.failed += 1
            if self.failed == 1:
                raise DeskUnreachable("no desk answers there")
            return await broker.answer(id, answer)

    async with seated(Picky(broker)) as seat:
        await broker.open(ask())
        await seat.shows("? keys")
        seat.type("o")
        await seat.shows("Your own answer ›")
        seat.type("mine\r")
        await seat.shows("The answer could not be sent. no desk answers there", "Your own answer: mine")
        seat.type("\r")
        await seat.shows("Your own answer › mine")
        seat.type("\r")
        assert (await answer_of(broker, "q1")).value == "mine"


async def test_a_risky_permission_is_run_at_the_second_press(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(a_permission())
        await seat.shows("scripted wants to run a command", "⚠ This can delete files.", "Allow once      y")
        seat.type("2yy")
        await seat.shows("› Run it")
        assert (await broker.get("permission-1")).state == "asked"
        seat.type("\r")
        assert (await answer_of(broker, "permission-1")).reply == "once"
        await seat.shows("? scripted: wants to run a command Remove the build folder\n→ scripted: allowed once")


async def test_denying_says_why(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(permission())
        await seat.shows("x deny and say why")
        seat.type("x")
        await seat.shows("Reason (optional) ›")
        seat.type("not on a Friday\r")
        answer = await answer_of(broker, "p1")
        assert (answer.rejected, answer.reason) == (True, "not on a Friday")


async def test_allow_more_is_told_to_the_desk_with_what_is_left_of_it(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(permission(scopes=SCOPES))
        await seat.shows("? keys")
        seat.type("A")
        await seat.shows("› 1  for this session", "[x] gh *")
        seat.type("2jj ")
        await seat.shows("[ ] gh *")
        seat.type("\r")
        answer = await answer_of(broker, "p1")
        assert (answer.reply, answer.scope, answer.patterns) == ("always", "project", ("git *",))


async def test_a_card_answered_elsewhere_closes_with_who_where_what_and_what_was_typed(broker: Broker) -> None:
    async with seated(broker, greets=False) as seat:
        await broker.open(ask(STORAGE, NAME))
        await seat.shows("? keys")
        seat.type("n")
        await seat.shows("Note ›")
        seat.type("a note\r")
        await seat.shows("Note: a note")
        seat.type("o")
        await seat.shows("Your own answer ›")
        seat.type("half a thou")
        await seat.shows("half a thou")
        await broker.answer("q1", Answer(answers=(("PostgreSQL",), ("x",)), by="ana", via="web"))
        shown = await seat.shows("Your draft was not sent:", without="? keys")
    assert shown == (
        "? opencode: Storage Which database should this feature use? (and 1 more)\n"
        "Already answered by ana in web: PostgreSQL; x\n"
        "Your draft was not sent:\n"
        "half a thou\n"
        "a note\n"
    )


async def test_keys_meant_for_a_card_that_closed_do_not_answer_the_next(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(permission())
        await broker.open(replace(permission(), id="p2"))
        await seat.shows("2 waiting ──")
        await broker.withdraw("p1")
        await seat.shows("claude is no longer waiting")
        seat.type("y")
        await seat.shows("1 waiting ──")
        assert (await broker.get("p2")).state == "asked"
        seat.type("d")
        assert (await answer_of(broker, "p2")).rejected


async def test_whoever_sends_second_hears_who_was_first(broker: Broker) -> None:
    class Race(Desk):
        async def answer(self, id: str, answer: Answer) -> Ask:
            await broker.answer(id, Answer(answers=(("PostgreSQL",),), by="ana", via="web"))
            return await broker.answer(id, answer)

    async with seated(Race(broker)) as seat:
        await broker.open(ask())
        await seat.shows("? keys")
        seat.type("1")
        await seat.shows("Already answered by ana in web: PostgreSQL", without="? keys")


async def test_the_deadline_passes_and_the_draft_is_still_there(broker: Broker, fake_clock: FakeClock) -> None:
    async with seated(broker) as seat:
        await broker.open(ask(), handling=Handling(question_timeout=30))
        await seat.shows("SQLite      default", "s → SQLite", "w keep waiting")
        seat.type("o")
        await seat.shows("Your own answer ›")
        seat.type("half")
        await seat.shows("half")
        await fake_clock.advance(31)
        await seat.shows("No answer in 30 s: SQLite was picked.\nYour draft was not sent:\nhalf\n", without="? keys")


async def test_w_moves_the_deadline_and_says_so_where_there_is_none(broker: Broker) -> None:
    async with seated(broker) as seat:
        opened = await broker.open(ask(), handling=Handling(question_timeout=600))
        await seat.shows("No answer by ")
        seat.type("w")
        async with asyncio.timeout(5):
            while (await broker.get("q1")).deadline == opened.stored.ask().deadline:
                await asyncio.sleep(0)
        seat.type("1")
        await answer_of(broker, "q1")
        await broker.open(ask(id="q2"))
        await seat.shows("answered: SQLite", "? keys")
        seat.type("w")
        await seat.shows("It has no deadline: it waits until somebody answers.")


async def test_a_deadline_moved_elsewhere_is_drawn_and_keeps_what_was_typed(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask(), handling=Handling(question_timeout=59))
        await seat.shows("No answer in ")
        seat.type("o")
        await seat.shows("Your own answer ›")
        seat.type("my")
        await seat.shows("› my")
        await broker.keep_waiting("q1")
        await seat.shows("No answer by ", "› my")


async def test_escape_leaves_the_field_then_keeps_the_question_and_j_brings_it_back_as_it_was(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("? keys")
        seat.type("o")
        await seat.shows("Your own answer ›")
        seat.type("half")
        await seat.shows("› half")
        seat.type("\x1b")
        await seat.shows("Your own answer: half", without="Your own answer ›")
        seat.type("\x1b")
        await seat.shows("1 kept for later · J shows it", without="? keys")
        assert (await broker.get("q1")).state == "asked"
        seat.type("J")
        await seat.shows("Your own answer: half", "? keys")
        seat.type("o")
        await seat.shows("Your own answer › half")
        seat.type(" done\r")
        assert (await answer_of(broker, "q1")).value == "half done"


async def test_other_asks_are_looked_at_and_come_back_to(broker: Broker) -> None:
    async with seated(broker) as seat:
        for name in ("One", "Two", "Three"):
            await broker.open(ask(replace(STORAGE, header=name), id=name))
        await seat.shows("  One\n", "3 waiting")
        seat.type("J")
        await seat.shows("  Two\n")
        seat.type("J")
        await seat.shows("  Three\n")
        seat.type("J")
        await seat.shows("  One\n")
        seat.type("K")
        await seat.shows("  Three\n")
        seat.type("2")
        assert (await answer_of(broker, "Three")).value == "PostgreSQL"
        await seat.shows("  One\n", "2 waiting")


async def test_what_was_kept_for_later_and_settled_elsewhere_is_gone(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("? keys")
        seat.type("\x1b")
        await seat.shows("1 kept for later")
        await broker.answer("q1", Answer(answers=(("SQLite",),), by="ana", via="web"))
        await seat.shows("answered: SQLite · ana, in web")
        await broker.open(ask(id="q2"))
        await seat.shows("1 waiting ──", without="kept for later")


async def test_control_c_leaves_it_unanswered_and_twice_quits(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await broker.open(ask(id="q2"))
        await seat.shows("2 waiting ──")
        seat.type("\x03")
        await seat.shows("Left unanswered; it stays open on the desk. Ctrl+C again quits.", "? keys")
        seat.type("\x03")
        await seat.ended()
        await seat.shows("2 still waiting on the desk.", without="? keys")


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["Ctrl+C", "Ctrl+D"])
@pytest.mark.parametrize("way", ["", "\x1b"], ids=["nothing asked", "kept for later"])
async def test_between_cards_one_key_quits(broker: Broker, way: str, key: str) -> None:
    async with seated(broker) as seat:
        await seat.shows("Nothing is waiting for you.")
        if way:
            await broker.open(ask())
            await seat.shows("? keys")
            seat.type(way)
            await seat.shows("1 kept for later")
        seat.type(key)
        await seat.ended()


@pytest.mark.parametrize("way", ["", "o"], ids=["on the card", "in an empty field"])
async def test_control_d_quits_and_leaves_it_open(broker: Broker, way: str) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("? keys")
        seat.type(way)
        await seat.shows("›")
        seat.type("\x04")
        await seat.ended()
        assert (await broker.get("q1")).state == "asked"


async def test_the_keys_are_explained_when_asked_for(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("? keys")
        seat.type("?")
        await seat.shows("  J K          next, previous ask")
        seat.type("?")
        await seat.shows("? keys", without="next, previous ask")


async def test_the_answer_is_edited_in_the_persons_editor(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "and more\\nlines" >> "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("? keys")
        seat.type("o")
        await seat.shows("Your own answer ›")
        seat.type("this \x1b")
        await seat.shows("Your own answer: this")
        seat.type("e")
        await seat.shows("Your own answer › this and more\n", "lines")
        seat.type("\r")
        assert (await answer_of(broker, "q1")).value == "this and more\nlines"


async def test_a_terminal_that_changes_its_size_is_drawn_anew(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("       one file, no server\n")
        seat.screen.size = Size(rows=40, columns=40)
        os.kill(os.getpid(), signal.SIGWINCH)
        shown = await seat.shows("\none file, no server\n")
        assert max(map(len, shown.split("\n"))) <= 42
        seat.type("1")
        assert (await answer_of(broker, "q1")).value == "SQLite"


async def test_a_command_that_does_not_fit_the_screen_is_printed_whole_above_the_card(broker: Broker) -> None:
    command = "\n".join(f"echo line {number}" for number in range(30))
    async with seated(broker, rows=16) as seat:
        await broker.open(permission(command=command))
        shown = await seat.shows("It is shown whole above.", "? keys")
        assert all(f"  │ echo line {number}" in shown for number in range(30))
        card = shown[shown.rindex("── claude") :]
        assert card.count("\n") <= 16 and "echo line" not in card
        seat.type("y")
        assert (await answer_of(broker, "p1")).reply == "once"


async def test_more_choices_than_the_screen_has_rows_can_all_be_reached(broker: Broker) -> None:
    options = tuple(Option(f"choice {number}") for number in range(40))
    async with seated(broker, rows=12) as seat:
        await broker.open(ask(replace(STORAGE, options=options)))
        await seat.shows("› 1  choice 0\n")
        seat.type("\x1b[F\x1b[A")
        await seat.shows("› 40 choice 39\n", "? keys")
        seat.type("\r")
        assert (await answer_of(broker, "q1")).value == "choice 39"


async def test_a_preview_that_was_cut_is_printed_above_and_a_short_one_is_hidden(broker: Broker) -> None:
    options = (Option("long", preview="\n".join(f"row {number}" for number in range(40))), Option("short", preview="x"))
    async with seated(broker) as seat:
        await broker.open(ask(replace(STORAGE, options=options)))
        await seat.shows("more lines: p shows all of it above")
        seat.type("p")
        await seat.shows("│ row 39")
        seat.type("j")
        await seat.shows("       │ x\n")
        seat.type("p")
        await seat.shows("? keys", without="       │ x\n")


@pytest.mark.parametrize(("quiet", "bells"), [(False, 2), (True, 0)])
async def test_the_bell_rings_once_for_each_new_ask_unless_quiet(broker: Broker, quiet: bool, bells: int) -> None:
    await broker.open(ask(id="q0"))
    async with seated(broker, quiet=quiet) as seat:
        await seat.shows("1 waiting ──")
        await broker.open(ask())
        await broker.open(permission())
        await broker.keep_waiting("q1")
        await seat.shows("3 waiting ──")
        assert seat.screen.bells == bells
        assert "\x1b]9" not in seat.screen.raw


async def test_a_terminal_that_can_shows_a_notification_with_inert_text(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM_PROGRAM", "WezTerm")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("TMUX", raising=False)
    async with seated(broker) as seat:
        await seat.shows("Nothing is waiting")
        await broker.open(ask(replace(STORAGE, header="a\x07\x1b]0;b")))
        await seat.shows("? keys")
        assert "\x1b]9;handraise: opencode asks: a\\x07\\x1b]0;b\x07" in seat.screen.raw


@pytest.mark.parametrize(
    ("environ", "can"),
    [
        ({"TERM_PROGRAM": "iTerm.app", "TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM_PROGRAM": "iTerm.app", "TERM": "screen-256color"}, False),
        ({"TERM_PROGRAM": "ghostty", "TERM": "xterm-ghostty", "TMUX": "/tmp/x"}, False),
        ({"TERM_PROGRAM": "Apple_Terminal"}, False),
        ({}, False),
    ],
)
def test_only_terminals_that_are_known_to_take_it_get_a_notification(environ: dict[str, str], can: bool) -> None:
    assert notifies(environ) is can


async def test_it_ends_when_the_desk_closes(broker: Broker) -> None:
    store = await SqliteStore.open_file(MEMORY)
    async with seated(desk := Broker(store)) as seat:
        async with desk:
            await desk.open(ask())
            await seat.shows("? keys")
            seat.type("o")
            await seat.shows("Your own answer ›")
            seat.type("half")
            await seat.shows("half")
        await seat.shows("Your draft was not sent:\nhalf\n", "The desk has closed.")
        await seat.ended()
    await store.close()


async def test_pasted_text_answers_nothing_outside_of_a_field(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("? keys")
        seat.type("\x1b[200~1\ry\x1b[201~j")
        await seat.shows("› 2  PostgreSQL")
        assert (await broker.get("q1")).state == "asked"


class Driver(ChannelDriver):
    """The hands and eyes of a person, for the suite that every channel must pass."""

    cannot: Mapping[str, str] = {
        "the same answer delivered twice counts once": "a key that was pressed is not pressed again",
        "an answer that does not fit is said and leaves it open": "only what fits can be chosen there",
        "who is not listed is told and changes nothing": "a desk runs none; who sits there has a token",
        "what is shown is reported": "who looks at it is seen by the desk",
        "what could not be sent is reported and shown later": "nothing is sent",
        "a restart shows nothing twice": "a screen begins empty",
        "what was answered while it was away says so afterwards": "a screen begins empty",
    }

    def __init__(self, keys: PipeInput) -> None:
        self._keys = keys
        self._screen = Screen()
        self._asked = 0
        self.channel = Terminal(
            by="bob", full=True, input=keys, colour=False, output=self._screen, out=self._screen.print
        )

    async def shown(self, ask: Ask) -> None:
        """On a card of its own, when the cards before it have become records; or it is counted behind another."""
        self._asked += 1

        def is_there() -> bool:
            text = self._screen.text
            is_alone = "? keys" in text and text.count("? scripted: ") >= self._asked - 1
            return is_alone or "2 waiting ──" in text

        await self._screen.until(is_there, what="the card")

    async def settled(self, ask: Ask) -> None:
        settled = re.compile("Already answered by ana in elsewhere: SQLite|scripted is no longer|No answer in 60 s")
        await self._screen.until(lambda: settled.search(self._screen.text) is not None, what="what became of it")

    async def answer(self, ask: Ask, answer: Answer) -> None:
        if answer.rejected:
            self._keys.send_text("x")
            await self._screen.shows("Reason (optional) ›")
            self._keys.send_text(f"{answer.reason}\r")
        elif answer.reply:
            self._keys.send_text("y\r")
        else:
            [question] = ask.questions
            values = [option.value for option in question.options]
            self._keys.send_text(str(values.index(answer.value or "") + 1))


async def test_it_is_a_channel_like_every_other(keys: PipeInput) -> None:
    await check_channel(lambda: Driver(keys))


class Desk:
    """A desk of which a test changes one thing."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)
