"""The line-mode terminal: what a typed line means, how an ask is drawn, and a person at a real desk."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from handraise.asks import Answer, Ask, Handling, Option, Origin, Permission, Question, Scope
from handraise.broker import Broker
from handraise.channels import Inbox
from handraise.channels.terminal import (
    Choice,
    Decline,
    Help,
    Problem,
    Reply,
    Skip,
    Terminal,
    Wait,
    draw,
    outcome_line,
    parse,
    parse_permission,
    parse_scope,
    prompt_for,
    record_line,
    summary_line,
    wants_colour,
)
from handraise.errors import DeskUnreachable, Unauthorized
from handraise.events import Event
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing import ChannelDriver, FakeClock, a_permission, check_channel

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)

DATABASE = Question(
    "Which database should this feature use?",
    (
        Option("SQLite", description="lightweight, file-based"),
        Option("PostgreSQL", description="full-featured, production-ready"),
        Option("None", description="use in-memory only"),
    ),
    header="Database Strategy",
)
ONE = DATABASE
CLOSED = replace(DATABASE, custom=False)
MANY = replace(DATABASE, multiple=True)
MANY_CLOSED = replace(MANY, custom=False)
TEXT = Question("Which name?", kind="text")
NUMBER = Question("How many?", kind="number")
NUMBERS = Question("How many retries?", (Option("3"), Option("5"), Option("10")), kind="number")
TWINS = Question("Which one?", (Option("A"), Option("A"), Option("B")))
COMMAS = Question("Which?", (Option("Yes, all"), Option("No")), multiple=True)

SQLITE, POSTGRES = Choice(("SQLite",)), Choice(("PostgreSQL",))


# What a typed line means ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "line", "said"),
    [
        (ONE, "2", POSTGRES),
        (ONE, " 2 ", POSTGRES),
        (ONE, "postgresql", POSTGRES),
        (ONE, "POSTGRESQL", POSTGRES),
        (ONE, "MySQL please", Choice(("MySQL please",))),
        (ONE, "=7", Choice(("7",))),
        (ONE, "=2", Choice(("2",))),
        (ONE, "=:d", Choice((":d",))),
        (ONE, "-1", Choice(("-1",))),
        (CLOSED, "3", Choice(("None",))),
        (CLOSED, "=SQLite", SQLITE),
        (MANY, "1,3", Choice(("SQLite", "None"))),
        (MANY, "3, 1, 1,", Choice(("SQLite", "None"))),
        (MANY, "none,sqlite", Choice(("SQLite", "None"))),
        (MANY, "2", POSTGRES),
        (MANY, "1,3,my own text", Choice(("SQLite", "None", "my own text"))),
        (MANY, "1, redis, but for the cache", Choice(("SQLite", "redis, but for the cache"))),
        (MANY, "redis, but for the cache", Choice(("redis, but for the cache",))),
        (MANY, "1,=7", Choice(("SQLite", "7"))),
        (MANY, "=1,3", Choice(("1,3",))),
        (COMMAS, "yes, all", Choice(("Yes, all",))),
        (COMMAS, "2, Yes, all", Choice(("Yes, all", "No"))),
        (TEXT, "7", Choice(("7",))),
        (TEXT, "anything, at all", Choice(("anything, at all",))),
        (NUMBER, "7", Choice(("7",))),
        (NUMBER, " -1.5 ", Choice(("-1.5",))),
        (NUMBERS, "10", Choice(("10",))),
        (NUMBERS, "=7", Choice(("7",))),
        (NUMBERS, "=3", Choice(("3",))),
        (TWINS, "2", Choice(("A#2",))),
        (TWINS, "A #2", Choice(("A#2",))),
        (TWINS, "A#2", Choice(("A#2",))),
        (ONE, ":d", Decline()),
        (ONE, ":d  not now ", Decline("not now")),
        (ONE, ":w", Wait()),
        (ONE, ":?", Help()),
    ],
)
def test_a_line_is_understood(question: Question, line: str, said: object) -> None:
    assert parse(question, line) == said


@pytest.mark.parametrize(
    ("question", "line", "hint"),
    [
        (ONE, "", "Choose: 1. SQLite, 2. PostgreSQL, 3. None."),
        (ONE, "  ", "Nothing is chosen yet"),
        (ONE, "7", "There is no choice 7"),
        (ONE, "7", "`=7` sends it as your own answer"),
        (ONE, "0", "There is no choice 0"),
        (ONE, "9" * 5000, "There is no choice"),
        (ONE, "1,3", "Only one can be chosen"),
        (ONE, "=", "Nothing is chosen yet"),
        (ONE, ":x", "`:x` is no command"),
        (ONE, ":D", "`:D` is no command"),
        (ONE, ":s", "it is one question"),
        (CLOSED, "MySQL", "“MySQL” is not a choice. Choose: 1. SQLite, 2. PostgreSQL, 3. None."),
        (CLOSED, "=MySQL", "“MySQL” is not a choice"),
        (CLOSED, "7", "There is no choice 7. Choose: 1. SQLite, 2. PostgreSQL, 3. None."),
        (MANY, ",", "Nothing is chosen yet"),
        (MANY, "1,7", "There is no choice 7"),
        (MANY, "1, redis, 3", "Choices come first, own text last"),
        (MANY, "no, SQLite, please", "Choices come first, own text last"),
        (MANY_CLOSED, "1,MySQL", "“MySQL” is not a choice"),
        (TEXT, "", "Type an answer."),
        (NUMBER, "many", "“many” is not a number"),
        (NUMBER, "nan", "is not a number"),
        (NUMBER, "1_000", "is not a number"),
        (NUMBER, "", "Type a number."),
        (NUMBERS, "3", "`=3` is the label"),
        (NUMBERS, "7", "There is no choice 7"),
        (TWINS, "a", "“a” could be 1 or 2; type the number."),
        (replace(ONE, options=(Option("evil\x1b[2J"),)), "", "1. evil\\x1b[2J"),
    ],
)
def test_a_line_that_says_nothing_is_a_problem_that_helps(question: Question, line: str, hint: str) -> None:
    problem = parse(question, line)
    assert isinstance(problem, Problem)
    assert hint in problem.message


def test_one_of_several_questions_can_be_skipped() -> None:
    assert parse(ONE, ":s", several=True) == Skip()


def test_what_is_sent_is_the_agents_value_however_long_or_strange() -> None:
    label = "x" * 500 + "\u202e"
    assert parse(Question("Which?", (Option(label),)), "1") == Choice((label,))
    assert parse(Question("Which?", (Option("Shown", value="sent"),)), "shown") == Choice(("sent",))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("y", Reply("once")),
        ("YES", Reply("once")),
        ("a", Reply("always")),
        ("always", Reply("always")),
        ("d", Decline()),
        ("n", Decline()),
        ("no", Decline()),
        ("d too broad", Decline("too broad")),
        (":d too broad", Decline("too broad")),
        (":w", Wait()),
        (":?", Help()),
        ("", Problem("Type y, a or d.")),
        ("use npm instead", Problem("Type y, a or d. `d use npm instead` denies and says why.")),
        ("1", Problem("Type y, a or d.")),
    ],
)
def test_a_line_at_a_permission_is_understood(line: str, said: object) -> None:
    assert parse_permission(Permission(tool="Bash", replies=("once", "always", "reject")), line) == said


def test_a_permission_offers_only_what_its_agent_takes() -> None:
    permission = Permission(tool="Bash", replies=("once", "for-the-turn", "reject"))
    assert prompt_for(permission) == "[y] allow once  [for-the-turn]  [d] deny: "
    assert parse_permission(permission, "for-the-turn") == Reply("for-the-turn")
    assert parse_permission(permission, "a") == Problem("Type y, for-the-turn or d.")


def test_a_scope_is_chosen_by_number_or_not_at_all() -> None:
    scopes = (Scope(id="session"), Scope(id="project"))
    assert parse_scope(scopes, "2") == scopes[1]
    assert parse_scope(scopes, "") is None
    assert isinstance(parse_scope(scopes, "3"), Problem)
    assert isinstance(parse_scope(scopes, "y"), Problem)


@pytest.mark.parametrize(
    ("wanted", "prompt"),
    [
        (ONE, "Select [1-3, or type custom]: "),
        (CLOSED, "Select [1-3]: "),
        (MANY, "Select [1-3, comma-separated, or type custom]: "),
        (MANY_CLOSED, "Select [1-3, comma-separated]: "),
        (Question("Sure?", (Option("Yes"),)), "Select [1, or type custom]: "),
        (TEXT, "Answer: "),
        (NUMBER, "Number: "),
        (NUMBERS, "Select [1-3, or type a number]: "),
        (Permission(tool="Bash", replies=("once", "always", "reject")), "[y] allow once  [a] always  [d] deny: "),
        (Permission(tool="ExitPlanMode", kind="plan"), "[y] approve  [d] deny: "),
    ],
)
def test_the_prompt_names_every_way_to_answer(wanted: Question | Permission, prompt: str) -> None:
    assert prompt_for(wanted) == prompt


# How an ask is drawn ----------------------------------------------------------------------------------------


def ask(*questions: Question, **changes: Any) -> Ask:
    origin = Origin(agent="opencode", session="ses_1")
    return replace(Ask(id="q1", questions=questions or (DATABASE,), origin=origin), **changes)


def permission(**fields: Any) -> str:
    """The card of a permission that claude wants."""
    wanted = Permission(**{"tool": "Bash", **fields})
    return draw(Ask(id="p1", permission=wanted, origin=Origin(agent="claude", session="s1")), columns=100)


def test_a_question_is_drawn_as_a_card() -> None:
    assert draw(ask(), columns=100) == (
        "━━━ Agent Question ━━━\n"
        "opencode · session ses_1\n"
        "Database Strategy\n"
        "Which database should this feature use?\n"
        "  1. SQLite — lightweight, file-based\n"
        "  2. PostgreSQL — full-featured, production-ready\n"
        "  3. None — use in-memory only\n"
        "━━━━━━━━━━━━━━━━━━━━━━"
    )


def test_the_origin_says_who_asks_from_where_and_fits_the_width() -> None:
    origin = Origin(agent="opencode", session="s1", run="7f3", step="plan", cwd="/home/ana/" + "日本語/" * 20 + "api")
    line = draw(ask(origin=origin), columns=80).split("\n")[1]
    assert line.startswith("opencode · run 7f3 · step plan · session s1 · /home/ana/")
    assert "…" in line and line.endswith("/api")
    assert len(line) + len(re.findall("[日本語]", line)) <= 80


def test_badges_tell_what_is_recommended_and_what_silence_picks() -> None:
    options = (Option("SQLite"), Option("PostgreSQL", recommended=True), Option("None (Recommended)"))
    fallback = Answer(answers=(("SQLite",),), by="policy:timeout")
    card = draw(ask(replace(DATABASE, options=options), deadline=NOON, fallback=fallback), columns=100)
    assert "  1. SQLite [default]\n  2. PostgreSQL [recommended]\n  3. None (Recommended)\n" in card


@pytest.mark.parametrize(
    ("remaining", "fallback", "line"),
    [
        (300.0, Answer(answers=(("SQLite",),)), "If nobody answers by 12:05, “SQLite” is picked."),
        (300.0, Answer(rejected=True), "If nobody answers by 12:05, the question is declined."),
        (30.0, Answer(answers=(("SQLite",),)), "If nobody answers by 12:00:30, “SQLite” is picked."),
        (86400.0, Answer(rejected=True), "If nobody answers by 2026-01-02 12:00, the question is declined."),
    ],
)
def test_the_deadline_counts_what_remains_on_our_own_clock(remaining: float, fallback: Answer, line: str) -> None:
    elsewhere = NOON - timedelta(days=400)  # the desk's clock is wrong, or ours is
    assert line in draw(ask(remaining=remaining, deadline=elsewhere, fallback=fallback), columns=100, now=NOON)


def test_a_deadline_without_a_remaining_time_is_taken_at_its_word() -> None:
    due = NOON + timedelta(minutes=5)
    card = draw(ask(deadline=due, fallback=Answer(rejected=True)), columns=100, now=NOON)
    assert "by 12:05, the question is declined." in card


def test_several_questions_are_counted() -> None:
    card = draw(ask(DATABASE, TEXT), columns=100)
    assert "Question 1 of 2\nDatabase Strategy\n" in card
    assert "\n\nQuestion 2 of 2\nWhich name?\n━" in card


def test_a_narrow_terminal_gives_descriptions_lines_of_their_own() -> None:
    assert "  1. SQLite\nlightweight, file-based\n  2. PostgreSQL\n" in draw(ask(), columns=59)


def test_previews_and_descriptions_of_several_lines_stand_under_their_choice() -> None:
    option = Option("Tabs", description="first\nsecond", preview="a\n\tb")
    card = draw(ask(Question("How?", (option,))), columns=100)
    assert "  1. Tabs\n     first\n     second\n     │ a\n     │ \tb\n" in card


def test_choices_that_look_the_same_get_an_ordinal() -> None:
    options = (Option("A"), Option("A"), Option("A #2"))
    assert "  1. A\n  2. A #2\n  3. A #2 #2\n" in draw(ask(Question("Which?", options)), columns=100)


@pytest.mark.parametrize(
    ("question", "limit"),
    [
        (Question("Which?", header="x" * 70), 60),
        (Question("x" * 4010), 4000),
        (Question("Which?", (Option("x" * 130),)), 120),
        (Question("Which?", (Option("y", description="x" * 510),)), 500),
        (Question("Which?", (Option("y", preview="x" * 20_010),)), 20_000),
    ],
)
def test_long_texts_are_cut_with_a_mark(question: Question, limit: int) -> None:
    card = draw(ask(question), columns=100)
    assert re.search(rf"(?<!x)x{{{limit}}}… \(10 more characters\)", card)


def test_nothing_an_agent_wrote_reaches_the_terminal_as_more_than_text() -> None:
    evil = "e\x1b[2J\u202e\u200b\x9b\r"
    origin = Origin(agent=evil, session=evil, run=evil, step=evil, cwd=evil)
    options = (Option(evil, description=evil, preview=evil),)
    scopes = (Scope(id=evil, label=evil, patterns=(evil,)),)
    wanted = Permission(
        tool=evil, summary=evil + "s", command=evil, paths=(evil,), diff=evil, cwd=evil, url=evil, scopes=scopes
    )
    answer = Answer(answers=((evil,),), by=evil, via=evil, reason=evil)
    asked = ask(
        Question(evil, options, header=evil), id=evil, origin=origin, delivery_error=evil, withdrawn_reason=evil
    )
    texts = [draw(asked), draw(replace(asked, questions=(), permission=wanted)), summary_line(asked)]
    texts += [
        draw(replace(asked, questions=(), permission=replace(wanted, command=None, diff=None, input={evil: evil})))
    ]
    for state in ("answered", "rejected", "withdrawn"):
        settled = replace(asked, state=state, answer=replace(answer, rejected=state == "rejected"))
        texts += [draw(settled), outcome_line(settled), record_line(settled)]
    for text in texts:
        assert text.replace("\n", "").isprintable()
    assert all("\n" not in text for text in texts if not text.startswith("━"))


def test_a_command_is_shown_whole_with_everything_visible() -> None:
    card = permission(command="  git status\n\trm -rf \u202etxt.sh " + "x" * 5000 + " ", cwd="/home/ana/my project ")
    assert card.startswith("━━━ Agent Permission ━━━\nclaude · session s1\nclaude wants to run a command\n")
    assert "  │ ··git status⏎\n  │ \\trm -rf \\u202etxt.sh " + "x" * 5000 + "·\n" in card
    assert "Contains hidden characters" in card
    assert "\nin /home/ana/my project·\n" in card
    assert "\ntool Bash\n" in card


def test_a_plain_command_holds_nothing_hidden() -> None:
    assert "hidden" not in permission(command="ls -la", summary="Look around")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"command": "ls"}, "claude wants to run a command"),
        ({"tool": "Edit", "paths": ("a.py", "b.py"), "diff": "+x"}, "claude wants to change 2 files"),
        ({"tool": "write", "paths": ("a.py",)}, "claude wants to change 1 file"),
        ({"tool": "Read", "paths": ("/etc/passwd",)}, "claude wants to read /etc/passwd"),
        ({"tool": "WebFetch", "url": "https://safe.example@evil.example/x"}, "claude wants to open evil.example"),
        ({"tool": "WebFetch", "url": "http://[broken"}, "claude wants to open http://[broken"),
        ({"tool": "mcp__github__create_issue"}, "claude wants to use mcp__github__create_issue"),
        ({"tool": "ExitPlanMode", "kind": "plan"}, "claude wants its plan approved"),
    ],
)
def test_a_permission_says_what_the_agent_wants(fields: dict[str, Any], sentence: str) -> None:
    assert f"\n{sentence}\n" in permission(**fields)


def test_a_diff_is_shown_whole_and_a_missing_one_is_said() -> None:
    card = permission(tool="Edit", paths=("a.py",), diff="--- a.py\n+++ a.py\n-\told\n+\tnew  \n")
    assert "  │ a.py\n  │ --- a.py\n  │ +++ a.py\n  │ -\told\n  │ +\tnew··\n" in card
    assert "no preview" not in card
    assert "The agent gave no preview of the change." in permission(tool="Edit", paths=("a.py",))


def test_arguments_that_are_not_shown_already_are_shown_as_json() -> None:
    assert '  │ {\n  │   "title": "Hé"\n  │ }\n' in permission(tool="create_issue", input={"title": "Hé"})
    card = permission(command="ls", summary="Look", input={"command": "ls", "description": "Look", "sandbox": False})
    assert '  │ ls\nwith\n  │ {\n  │   "sandbox": false\n  │ }\n' in card


def test_a_plan_is_shown_as_text_with_what_comes_along() -> None:
    card = permission(tool="ExitPlanMode", kind="plan", input={"plan": "# Plan\n\n1. Go", "allow": ["rm"]})
    assert '  │ # Plan\n  │ \n  │ 1. Go\n  │ \n  │ {\n  │   "allow": [\n' in card


def test_colour_adds_nothing_but_colour() -> None:
    for asked in (ask(deadline=NOON, fallback=Answer(answers=(("SQLite",),))), a_permission(command=" rm\t")):
        coloured = draw(asked, colour=True, columns=100)
        assert "\x1b[" in coloured
        assert re.sub(r"\x1b\[\d+m", "", coloured) == draw(asked, columns=100)


def test_colour_is_decided_by_the_environment_and_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert not wants_colour(StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert wants_colour(StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(StringIO())


def test_the_width_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert "  1. SQLite\nlightweight" in draw(ask())
    monkeypatch.setenv("COLUMNS", "140")
    assert "  1. SQLite — lightweight" in draw(ask())


# One-line texts ---------------------------------------------------------------------------------------------


def settled(**fields: Any) -> Ask:
    given = Answer(**{"by": "ana", "via": "terminal", **fields})
    return ask(state="rejected" if given.rejected else "answered", answer=given)


BY_TIMEOUT = {"by": "policy:timeout", "via": "policy", "why": ("no answer in 30 s",)}
BY_UNSEEN = {"by": "policy:unseen", "via": "policy", "why": ("nobody could be shown this (pager: HTTP 500)", "reject")}


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (ask(), "waiting for an answer"),
        (settled(answers=(("SQLite",),)), "SQLite · ana, in terminal · not yet taken by opencode"),
        (replace(settled(answers=(("my own",),)), delivered_at=NOON), "my own · ana, in terminal · taken "),
        (
            replace(settled(answers=(("SQLite",),)), delivery_error="gone"),
            "SQLite · ana, in terminal · opencode did not take the answer: gone",
        ),
        (settled(rejected=True, reason="not now"), "declined by ana in terminal: not now"),
        (settled(rejected=True), "declined by ana in terminal"),
        (settled(answers=(("SQLite",),), **BY_TIMEOUT), "no answer in 30 s: SQLite"),
        (settled(rejected=True, reason="no answer in 30 s", **BY_TIMEOUT), "no answer in 30 s: declined"),
        (settled(answers=(("SQLite",),), by="policy:accept-first", via="policy"), "SQLite · policy accept-first"),
        (settled(answers=(("SQLite",),), **BY_UNSEEN), "nobody could be told (pager: HTTP 500): SQLite"),
        (settled(rejected=True, **BY_UNSEEN), "nobody could be told (pager: HTTP 500): declined"),
        (ask(state="withdrawn", withdrawn_reason="session ended"), "no longer waiting (session ended)"),
        (
            replace(ask(DATABASE, TEXT), state="answered", answer=Answer(answers=(("SQLite",), ()), by="ana")),
            "SQLite; not answered · ana",
        ),
        (
            replace(a_permission(), state="answered", answer=Answer(reply="always", scope="session", by="ana")),
            "always allowed (session) · ana",
        ),
        (
            replace(a_permission(), state="rejected", answer=Answer(reply="reject", rejected=True, by="ana")),
            "denied by ana",
        ),
    ],
)
def test_the_outcome_says_what_who_where_and_whether_it_arrived(asked: Ask, line: str) -> None:
    assert outcome_line(asked).startswith(line)
    assert outcome_line(asked) in draw(asked) or asked.state == "asked"


def test_a_summary_names_ask_agent_and_title() -> None:
    assert summary_line(ask()) == "q1  opencode  Database Strategy"


def test_records_tell_a_log_what_happened() -> None:
    assert record_line(ask()) == "? opencode: agent asks: Database Strategy"
    assert record_line(a_permission()) == "? scripted: agent wants permission: Remove the build folder"
    assert record_line(settled(answers=(("SQLite",),))) == "→ opencode: answered: SQLite · ana, in terminal"
    assert record_line(settled(rejected=True)) == "→ opencode: declined by ana in terminal"
    assert record_line(ask(state="withdrawn")) == "→ opencode: no longer waiting: Database Strategy"


# A person at a desk -----------------------------------------------------------------------------------------


class Screen(DummyOutput):
    """What the person sees: all that is printed, and the line of the prompt each time it changes.

    Reading it is like watching: `shows` goes on from where it last looked.
    """

    def __init__(self) -> None:
        self.text = ""
        self.bells = 0
        self._seen = 0
        self._changed = asyncio.Event()
        self._line: dict[int, str] = {}
        self._x = self._y = 0
        self._drawn = ""

    def print(self, text: str) -> None:
        self.text += f"{text}\n"
        self._changed.set()

    def bell(self) -> None:
        self.bells += 1

    # prompt_toolkit draws only what changed, so its line is put together here.

    def enable_bracketed_paste(self) -> None:  # the first thing of every prompt
        self._line, self._x, self._y, self._drawn = {}, 0, 0, ""

    def write(self, data: str) -> None:
        for character in data:
            if character == "\n":
                self._y += 1
            elif character == "\r":
                self._x = 0
            else:
                if self._y == 0:
                    self._line[self._x] = character
                self._x += 1

    def cursor_up(self, amount: int) -> None:
        self._y -= amount

    def cursor_forward(self, amount: int) -> None:
        self._x += amount

    def cursor_backward(self, amount: int) -> None:
        self._x -= amount

    def erase_end_of_line(self) -> None:
        self._line = {x: character for x, character in self._line.items() if x < self._x or self._y}

    def erase_down(self) -> None:
        self.erase_end_of_line()

    def flush(self) -> None:
        drawn = "".join(self._line.get(x, " ") for x in range(max(self._line, default=-1) + 1))
        if drawn != self._drawn:
            self._drawn = drawn
            self.print(drawn)

    async def shows(self, *texts: str) -> None:
        """Wait until one of the texts appears."""
        try:
            async with asyncio.timeout(5):
                while not (found := re.compile("|".join(map(re.escape, texts))).search(self.text, self._seen)):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"never showed {texts}, but:\n{self.text[self._seen :]}") from None
        self._seen = found.end()


SENT = (
    "what is shown is reported",
    "what could not be sent is reported and shown later",
    "a restart shows nothing twice",
    "what was answered while it was away says so afterwards",
)


class Seat:
    """A person in front of a terminal at a desk."""

    def __init__(self, inbox: Inbox, keys: PipeInput, tasks: asyncio.TaskGroup, **settings: Any) -> None:
        self.screen = Screen()
        self.shows = self.screen.shows
        self._keys = keys
        self.terminal = Terminal(
            **{"by": "bob", "colour": False, "input": keys, "output": self.screen, "out": self.screen.print, **settings}
        )
        self.running = tasks.create_task(self.terminal.run(inbox))

    def type(self, text: str) -> None:
        self._keys.send_text(text)

    def enter(self, line: str) -> None:
        self.type(line + "\r")

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
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as pipe:
        yield pipe


async def outcome(broker: Broker, id: str) -> Ask:
    return (await broker.wait(id, timeout=5)).ask()


async def answer_of(broker: Broker, id: str) -> Answer:
    answer = (await outcome(broker, id)).answer
    assert answer is not None
    return answer


class Driver(ChannelDriver):
    """The hands and eyes of a person, for the suite that every channel must pass."""

    cannot: Mapping[str, str] = {
        "the same answer delivered twice counts once": "a line that was typed is not typed again",
        "who is not listed is told and changes nothing": "a desk runs none; who sits there has a token",
        **dict.fromkeys(
            SENT, "a screen is in front of whoever looks at it: nothing is sent, and nothing is left there"
        ),
    }

    def __init__(self, keys: PipeInput) -> None:
        self._keys = keys
        self._screen = Screen()
        self.channel = Terminal(by="bob", colour=False, input=keys, output=self._screen, out=self._screen.print)

    async def shown(self, ask: Ask) -> None:
        await self._screen.shows("1 more waiting", *(("[d] deny",) if ask.permission else ("Select [1-2",)))

    async def settled(self, ask: Ask) -> None:
        ends = ("Already answered by ana in elsewhere: SQLite", "scripted is no longer waiting", "No answer in 60 s")
        await self._screen.shows(*ends)

    async def told(self, ask: Ask) -> None:
        await self._screen.shows("“a pencil” is not a choice")

    async def answer(self, ask: Ask, answer: Answer) -> None:
        line = f":d {answer.reason}" if answer.rejected else "y" if answer.reply else answer.value
        self._keys.send_text(f"{line}\r")


async def test_it_is_a_channel_like_every_other(keys: PipeInput) -> None:
    await check_channel(lambda: Driver(keys))


async def test_an_answer_says_who_gave_it_and_where(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("? opencode: agent asks: Database Strategy")
        await seat.shows("Select [1-3, or type custom]:")
        seat.enter("2")
        answer = await answer_of(broker, "q1")
        assert (answer.values, answer.by, answer.via) == (("PostgreSQL",), "bob", "terminal")
        await seat.shows("→ opencode: answered: PostgreSQL · bob, in terminal")


async def test_what_is_open_comes_first_come_first_served_and_nothing_twice(broker: Broker) -> None:
    class Meanwhile(Desk):
        async def asks(self, **query: Any) -> AsyncIterator[Ask]:
            await broker.open(ask(id="q2"))  # asked after following began, and listed as well
            async for listed in broker.asks(**query):
                yield listed

    await broker.open(ask())
    async with seated(Meanwhile(broker)) as seat:
        await seat.shows("2 waiting")
        await seat.shows("1 more waiting · Select")
        seat.enter("1")
        await seat.shows("answered: SQLite")
        await seat.shows("Select")
        seat.enter("2")
        await seat.shows("answered: PostgreSQL")
        await broker.open(ask(id="q3"))
        await seat.shows("? opencode")
        await seat.shows("Select")
        assert seat.screen.text.count("━━━ Agent Question ━━━") == 3
        assert (await answer_of(broker, "q1")).value == "SQLite"
        assert (await answer_of(broker, "q2")).value == "PostgreSQL"


async def test_several_questions_are_asked_one_after_another_then_sent(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask(DATABASE, MANY, NUMBER))
        await seat.shows("Question 1 of 3")
        seat.enter("1")
        await seat.shows("Question 2 of 3")
        seat.enter(":s")
        await seat.shows("Question 3 of 3")
        seat.enter("many")
        await seat.shows("“many” is not a number.")
        seat.enter("7")
        assert (await answer_of(broker, "q1")).answers == (("SQLite",), (), ("7",))


async def test_an_answer_that_does_not_fit_is_asked_for_again(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask(DATABASE, TEXT))
        await seat.shows("Question 1 of 2")
        seat.enter(":s")
        await seat.shows("Question 2 of 2")
        seat.enter(":s")
        await seat.shows("nothing is answered; choose something, or reject")
        await seat.shows("Question 1 of 2")
        seat.type("\x15")  # the line that did not do is there to be edited; Ctrl+U clears it
        seat.enter("1")
        await seat.shows("Question 2 of 2")
        seat.enter("")
        assert (await answer_of(broker, "q1")).answers == (("SQLite",), ())


async def test_declining_gives_the_reason(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("Select")
        seat.enter(":d ask me tomorrow")
        declined = await outcome(broker, "q1")
        assert declined.state == "rejected"
        assert declined.answer == replace(
            declined.answer or Answer(), rejected=True, reason="ask me tomorrow", by="bob", via="terminal"
        )


async def test_a_permission_is_allowed_once(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(a_permission())
        await seat.shows("scripted wants to run a command\n  │ rm -rf build\n")
        seat.enter("")
        await seat.shows("Type y, a or d.")
        seat.enter("y")
        assert (await answer_of(broker, "permission-1")).reply == "once"


async def test_always_shows_its_exact_patterns_and_saves_those(broker: Broker) -> None:
    scopes = (
        Scope(id="session", label="for this session", patterns=("rm -rf build",)),
        Scope(id="project", label="in this project", patterns=("rm *", "rmdir *")),
    )
    async with seated(broker) as seat:
        await broker.open(a_permission(scopes=scopes))
        await seat.shows("[a] always")
        seat.enter("a")
        await seat.shows(
            "  1. for this session\n     │ rm -rf build\n  2. in this project\n     │ rm *\n     │ rmdir *\n"
        )
        await seat.shows("Always, how far [1-2, Enter goes back]:")
        seat.enter("")
        await seat.shows("[a] always")
        seat.enter("a")
        await seat.shows("Always, how far")
        seat.enter("2")
        answer = await answer_of(broker, "permission-1")
        assert (answer.reply, answer.scope, answer.patterns) == ("always", "project", ("rm *", "rmdir *"))


async def test_a_question_answered_elsewhere_closes_the_prompt_and_keeps_what_was_typed(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask(DATABASE, TEXT))
        await seat.shows("Question 1 of 2")
        seat.enter("my own")
        await seat.shows("Answer:")
        seat.type("half a thou")
        await seat.shows("half a thou")
        await broker.answer("q1", Answer(answers=(("PostgreSQL",), ("x",)), by="ana", via="http"))
        await seat.shows("Already answered by ana in http: PostgreSQL; x\n")
        await seat.shows("Your draft was not sent:\nmy own\nhalf a thou\n")


async def test_keys_meant_for_a_prompt_that_closed_do_not_answer_the_next(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(a_permission())
        await broker.open(a_permission(id="permission-2", command="rm -rf /"))
        await seat.shows("1 more waiting · [y] allow once")
        await broker.withdraw("permission-1")
        await seat.shows("scripted is no longer waiting")
        seat.enter("y")
        await seat.shows("[y] allow once")
        seat.enter("d no")
        assert (await outcome(broker, "permission-2")).state == "rejected"


async def test_what_was_typed_before_a_question_came_does_not_answer_it(broker: Broker) -> None:
    async with seated(broker) as seat:
        await seat.shows("Nothing is waiting for you.")
        seat.enter("1")
        await broker.open(ask())
        await seat.shows("Select")
        seat.enter("2\r1")  # nor does what was pasted after the answer
        await broker.open(ask(id="q2"))
        await seat.shows("answered: PostgreSQL")
        await seat.shows("Select")
        seat.enter("3")
        assert (await answer_of(broker, "q1")).value == "PostgreSQL"
        assert (await answer_of(broker, "q2")).value == "None"


async def test_whoever_sends_second_hears_who_was_first(broker: Broker) -> None:
    class Race(Desk):
        async def answer(self, id: str, answer: Answer) -> Ask:
            await broker.answer(id, Answer(answers=(("None",),), by="ana", via="http"))
            return await broker.answer(id, answer)

    async with seated(Race(broker)) as seat:
        await broker.open(ask())
        await seat.shows("Select")
        seat.enter("my own")
        await seat.shows("Already answered by ana in http: None\nYour draft was not sent:\nmy own\n")
        assert seat.screen.text.count("ana in http") == 1


async def test_an_answer_that_cannot_be_sent_is_kept_at_the_prompt(broker: Broker) -> None:
    class Flaky(Desk):
        failed = False

        async def answer(self, id: str, answer: Answer) -> Ask:
            if not self.failed:
                self.failed = True
                raise DeskUnreachable("no desk answers there")
            return await broker.answer(id, answer)

    async with seated(Flaky(broker)) as seat:
        await broker.open(ask())
        await seat.shows("Select")
        seat.enter("my own")
        await seat.shows("The answer could not be sent. no desk answers there")
        await seat.shows("my own")
        seat.enter("")
        assert (await answer_of(broker, "q1")).value == "my own"


async def test_the_deadline_passes_and_the_draft_is_still_there(broker: Broker, fake_clock: FakeClock) -> None:
    async with seated(broker) as seat:
        await broker.open(ask(), handling=Handling(question_timeout=30))
        await seat.shows("1. SQLite [default]")
        await seat.shows("“SQLite” is picked. `:w` keeps waiting.")
        seat.type("half")
        await seat.shows("half")
        await fake_clock.advance(31)
        await seat.shows("No answer in 30 s: SQLite was picked.\nYour draft was not sent:\nhalf\n")


async def test_what_nobody_could_be_told_is_said_in_a_line(broker: Broker, fake_clock: FakeClock) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("Select")
        await broker.showed("q1", "failed", channel="pager", error="HTTP 500")
        await fake_clock.advance(11)
        seat.enter("1")
        await seat.shows(
            "! opencode: nobody could be told about “Database Strategy”, no channel took it; it waits here"
        )
        await broker.open(ask(id="q2"), handling=Handling(question_timeout=600))
        await seat.shows("Select")
        await broker.showed("q2", "failed", channel="pager", error="HTTP 500")
        await fake_clock.advance(11)
        await seat.shows("Nobody could be told (pager: HTTP 500): SQLite was picked.")


async def test_keep_waiting_moves_the_deadline(broker: Broker) -> None:
    async with seated(broker) as seat:
        opened = await broker.open(ask(), handling=Handling(question_timeout=600))
        await seat.shows("is picked")
        seat.enter(":w")
        await seat.shows("is picked")
        assert (await broker.get("q1")).deadline == (opened.stored.ask().deadline or NOON) + timedelta(minutes=10)


async def test_without_a_deadline_there_is_nothing_to_move(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("Select")
        seat.enter(":w")
        await seat.shows("It has no deadline")


async def test_a_deadline_moved_elsewhere_is_told_without_losing_what_was_typed(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask(), handling=Handling(question_timeout=600))
        await seat.shows("Select")
        seat.type("my")
        await seat.shows("custom]: my")
        await broker.keep_waiting("q1")
        await seat.shows("is picked. `:w` keeps waiting.")
        await seat.shows("custom]: my")
        seat.enter(" own")
        assert (await answer_of(broker, "q1")).value == "my own"


async def test_help_is_there_when_asked_for(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("Select")
        seat.enter(":?")
        await seat.shows("  :d reason  decline to answer")


async def test_control_c_leaves_a_question_open_and_goes_on(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await broker.open(ask(id="q2"))
        await seat.shows("1 more waiting · Select")
        seat.type("\x1b\x03")  # Escape answers nothing, so it is still there to be left
        await seat.shows("Left unanswered; it stays open on the desk.")
        await seat.shows("Select")
        seat.enter("1")
        assert (await answer_of(broker, "q2")).value == "SQLite"
        assert (await broker.get("q1")).state == "asked"
        await broker.answer("q1", Answer(answers=(("None",),), by="ana", via="http"))
        await seat.shows("→ opencode: answered: None · ana, in http")


async def test_control_c_twice_quits(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await broker.open(ask(id="q2"))
        await seat.shows("1 more waiting · Select")
        seat.type("\x03")
        await seat.shows("Ctrl+C again quits.")
        await seat.shows("Select")
        seat.type("\x03")
        await seat.shows("2 still waiting on the desk.")
        await seat.ended()


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["Ctrl+C", "Ctrl+D"])
async def test_with_nothing_at_the_prompt_one_key_quits(broker: Broker, key: str) -> None:
    async with seated(broker) as seat:
        await seat.shows("Nothing is waiting for you.")
        seat.type(key)
        await seat.ended()


async def test_control_d_at_a_prompt_quits_and_leaves_it_open(broker: Broker) -> None:
    async with seated(broker) as seat:
        await broker.open(ask())
        await seat.shows("Select")
        seat.type("\x04")
        await seat.ended()
        assert (await broker.get("q1")).state == "asked"


async def test_without_staying_it_ends_when_all_that_was_open_had_its_turn(broker: Broker) -> None:
    async with seated(broker, stays=False) as seat:
        await seat.ended()
    await broker.open(ask())
    await broker.open(ask(id="q2"))
    async with seated(broker, stays=False) as seat:
        await seat.shows("1 more waiting · Select")
        seat.type("\x03")
        await seat.shows("Left unanswered; it stays open on the desk.")
        await seat.shows("Select")
        seat.enter("1")
        await seat.ended()
        assert not seat.terminal.has_quit
    async with seated(broker, stays=False) as seat:
        await seat.shows("Select")
        seat.type("\x04")
        await seat.ended()
        assert seat.terminal.has_quit
    assert [(await broker.get(id)).state for id in ("q1", "q2")] == ["asked", "answered"]


@pytest.mark.parametrize(("quiet", "bells"), [(False, 2), (True, 0)])
async def test_the_bell_rings_once_for_each_new_ask_unless_quiet(broker: Broker, quiet: bool, bells: int) -> None:
    await broker.open(ask(id="q0"))
    async with seated(broker, quiet=quiet) as seat:
        await seat.shows("Select")
        await broker.open(ask())
        await broker.open(a_permission())
        await broker.keep_waiting("q1")
        await seat.shows("2 more waiting")
        assert seat.screen.bells == bells


async def test_a_note_tears_no_card_and_is_printed_after_the_turn(broker: Broker) -> None:
    async with seated(broker, greets=False) as seat:
        seat.terminal.note("before anything else")
        await broker.open(ask())
        await seat.shows("Select [1-3, or type custom]:")
        assert seat.screen.text.startswith("before anything else\n? opencode"), "nothing was greeted"
        seat.terminal.note("while somebody has the turn")
        seat.enter("2")
        await seat.shows("answered: PostgreSQL")
        await seat.shows("while somebody has the turn")
    seat.terminal.note("when it is over")
    assert seat.screen.text.endswith("when it is over\n")


async def test_without_a_terminal_it_prints_lines_and_never_prompts(broker: Broker) -> None:
    await broker.open(ask())
    async with seated(broker, interactive=False) as seat:
        await seat.shows("? opencode: agent asks: Database Strategy\n")
        await broker.open(a_permission())
        await seat.shows("? scripted: agent wants permission: Remove the build folder\n")
        await broker.answer("q1", Answer(answers=(("None",),), by="ana", via="http"))
        await seat.shows("→ opencode: answered: None · ana, in http\n")
        await broker.report([("q1", "the session is gone")])
        await seat.shows("! opencode did not take the answer: the session is gone\n")
        assert "Select" not in seat.screen.text


async def test_it_ends_when_the_desk_closes(broker: Broker) -> None:
    store = await SqliteStore.open_file(MEMORY)
    async with seated(desk := Broker(store)) as seat:
        async with desk:
            await desk.open(ask())
            await seat.shows("Select")
            seat.type("half")
            await seat.shows("half")
        await seat.shows("Your draft was not sent:\nhalf\n")
        await seat.shows("The desk has closed.")
        await seat.ended()
    await store.close()


async def test_a_desk_that_refuses_raises_its_own_error(broker: Broker, keys: PipeInput) -> None:
    class Refusing(Desk):
        async def events(self, **query: Any) -> AsyncIterator[Event]:
            raise Unauthorized("this token is not known")
            yield

    with pytest.raises(Unauthorized):
        await Terminal(by="bob", input=keys, output=DummyOutput(), out=lambda _: None).run(Refusing(broker))


class Desk:
    """A desk of which a test changes one thing."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)
