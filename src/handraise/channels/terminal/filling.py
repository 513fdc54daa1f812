"""What a person has filled in on a card so far, and what each key does to it. Pure: nothing is drawn or sent here.

Keys have the names that prompt_toolkit gives them. While a text field is open only what leaves it comes here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from handraise.asks import Answer, Ask, Permission, Question, Scope
from handraise.channels.terminal.drawing import ENGLISH, card_of
from handraise.channels.terminal.reading import Choice, Problem, Wait, parse, takes_own_text
from handraise.text.words import Words

__all__ = [
    "Act",
    "Action",
    "Edit",
    "Field",
    "Form",
    "GoTo",
    "Keep",
    "Send",
    "Unfold",
    "key_help",
    "key_hints",
]

FOLDED_FROM = 200  # changed lines of a diff that are shown without being asked for
UP, DOWN = ("up", "k"), ("down", "j")
BACK, ON = ("left", "h", "s-tab"), ("right", "l", "c-i")
ENTER, ESCAPE = "c-m", "escape"
NUMBERS = frozenset("123456789")

Field: TypeAlias = Literal["own", "note", "reason"]


@dataclass(frozen=True, slots=True)
class Send:
    """The person is done: this goes to the desk."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the question for later."""


@dataclass(frozen=True, slots=True)
class GoTo:
    """Another ask, so many steps further or back."""

    steps: int


@dataclass(frozen=True, slots=True)
class Edit:
    """The open field goes to the person's editor."""


@dataclass(frozen=True, slots=True)
class Unfold:
    """Show what is folded, or fold it again."""


Act: TypeAlias = Send | Keep | GoTo | Edit | Unfold | Wait


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that may be said to a permission."""

    reply: str
    label: str
    key: str = ""
    hint: str = ""  # what the key does, in the last line of the card


@dataclass(slots=True)
class Filled:
    """One question so far."""

    marked: int = 0
    chosen: list[str] = field(default_factory=list)  # values
    own: str = ""
    note: str = ""


@dataclass(slots=True)
class Panel:
    """`Allow more…`: scopes, and under each exactly the patterns that it saves. They may be taken out, never added."""

    scopes: tuple[Scope, ...]
    marked: int = 0
    removed: set[tuple[int, int]] = field(default_factory=set)

    def rows(self) -> list[tuple[int, int | None]]:
        """Each scope by its number, and each of its patterns."""
        return [
            row
            for number, scope in enumerate(self.scopes)
            for row in ((number, None), *((number, index) for index in range(len(scope.patterns))))
        ]

    @property
    def scope(self) -> Scope | None:
        return self.scopes[self.rows()[self.marked][0]] if self.scopes else None

    @property
    def patterns(self) -> tuple[str, ...]:
        """What would be saved."""
        if self.scope is None:
            return ()
        number = self.scopes.index(self.scope)
        return tuple(
            pattern for index, pattern in enumerate(self.scope.patterns) if (number, index) not in self.removed
        )


class Form:
    """A card that somebody fills in. It stays what it is while other cards are looked at."""

    def __init__(self, ask: Ask, *, t: Words = ENGLISH) -> None:
        self.ask = ask
        self.t = t
        self.at = 0  # which question; after the last one comes the review
        self.filled = [Filled() for _ in ask.questions]
        self.field: Field | None = None
        self.reason = ""
        self.problem = ""  # what is wrong with what was done last
        self.helps = False
        self.shows_previews = True
        self.shows_diff = False  # although it is long
        self.marked: int | None = None  # of a permission's actions; none at first, so that Enter does nothing
        self.panel: Panel | None = None
        self.armed: Answer | None = None  # what a second press sends
        self.card = card_of(ask)
        self.has_seen_diff = False  # a long one is folded at first, and nobody allows what they could not see
        self._arrive()

    # What is there to be drawn ------------------------------------------------------------------------------

    @property
    def is_several(self) -> bool:
        return len(self.ask.questions) > 1

    @property
    def is_review(self) -> bool:
        return self.is_several and self.at == len(self.ask.questions)

    @property
    def question(self) -> Question | None:
        """The one that is looked at."""
        return self.ask.questions[self.at] if self.at < len(self.ask.questions) else None

    @property
    def typed(self) -> list[str]:
        """Every text that the person wrote, so that it can be given back."""
        texts = [text for filled in self.filled for text in (filled.own, filled.note)]
        return [text for text in (*texts, self.reason) if text.strip()]

    @property
    def is_folded(self) -> bool:
        """Whether a diff is too long to be shown without being asked for."""
        permission = self.ask.permission
        if permission is None or self.shows_diff:
            return False
        return sum(line.startswith(("+", "-")) for line in (permission.diff or "").split("\n")) > FOLDED_FROM

    @property
    def actions(self) -> list[Action]:
        permission = self.ask.permission
        assert permission is not None
        t, named = self.t, {"once": self._once(permission), "always": self._more()}
        replies = sorted((each for each in permission.replies if each != "reject"), key=lambda each: each not in named)
        deny = Action("reject", t("perm.deny"), "d", t("terminal.reply.deny"))
        return [deny, *(named.get(each, Action(each, each)) for each in replies)]

    def _once(self, permission: Permission) -> Action:
        if permission.is_plan:
            return Action("once", self.t("terminal.approve"), "y", self.t("terminal.reply.approve"))
        return Action("once", self.t("perm.allowOnce"), "y", self.t("terminal.reply.once"))

    def _more(self) -> Action:
        return Action("always", self.t("perm.allowMore"), "A", self.t("terminal.reply.more"))

    def is_answered(self, index: int) -> bool:
        filled = self.filled[index]
        return bool(filled.chosen or filled.own.strip())

    def values(self, index: int) -> tuple[str, ...] | Problem:
        """What goes back for a question: choices in the agent's order, own text last."""
        question, filled = self.ask.questions[index], self.filled[index]
        chosen = tuple(option.value for option in question.options if option.value in filled.chosen)
        if not filled.own.strip():
            return chosen
        own = parse(question, f"={filled.own}", t=self.t)
        match own:
            case Choice(values=values):
                return tuple(dict.fromkeys((*chosen, *values)))
            case Problem():
                return own
        raise AssertionError(own)

    @property
    def text(self) -> str:
        """What stands in the open field."""
        match self.field:
            case "own":
                return self.filled[self.at].own
            case "note":
                return self.filled[self.at].note
            case _:
                return self.reason

    @text.setter
    def text(self, text: str) -> None:
        match self.field:
            case "own":
                self.filled[self.at].own = text
                if text.strip() and not self.ask.questions[self.at].multiple:
                    self.filled[self.at].chosen.clear()
            case "note":
                self.filled[self.at].note = text
            case "reason":
                self.reason = text

    def show(self, question: int) -> None:
        self.at = question
        self.field = None

    # What keys do -------------------------------------------------------------------------------------------

    def done(self) -> Act | None:
        """Enter in the field."""
        before, self.field, self.problem = self.field, None, ""
        if before == "reason":
            return Send(Answer(rejected=True, reason=self.reason.strip() or None))
        if before != "own" or not self.filled[self.at].own.strip():
            return None
        problem = self.values(self.at)
        if isinstance(problem, Problem):
            self.problem, self.field = problem.message, "own"
            return None
        return self._on()

    def leave_field(self) -> None:
        """Escape in the field: what was typed stays."""
        self.field, self.problem = None, ""

    def press(self, key: str) -> Act | None:
        """A key outside of the field. Escape never answers and never declines."""
        self.problem = ""
        if key != ENTER:
            was_armed, self.armed = self.armed is not None, None
            if was_armed and key == ESCAPE:
                return None
        match key:
            case "?":
                self.helps = not self.helps
            case "J":
                return GoTo(1)
            case "K":
                return GoTo(-1)
            case "w":
                return Wait()
            case "p":
                return Unfold()
            case "x":
                self.field = "reason"
            case "escape" if self.helps:
                self.helps = False
            case "escape" if self.panel is not None:
                self.panel = None
            case "escape":
                return Keep()
            case _ if self.ask.permission is not None:
                return self._press_permission(key, self.ask.permission)
            case _ if self.is_review:
                return self._press_review(key)
            case _:
                return self._press_question(key, self.ask.questions[self.at])
        return None

    def _press_question(self, key: str, question: Question) -> Act | None:
        filled, rows = self.filled[self.at], len(question.options) + takes_own_text(question)
        if key in UP:
            filled.marked = max(0, filled.marked - 1)
        elif key in DOWN:
            filled.marked = min(rows - 1, filled.marked + 1)
        elif key == "home":
            filled.marked = 0
        elif key == "end":
            filled.marked = rows - 1
        elif key in BACK or key in ON:
            self._step(1 if key in ON else -1)
        elif key in NUMBERS:
            return self._number(int(key), question, rows=rows)
        elif key == " ":
            self._toggle(filled.marked, question)
        elif key == ENTER:
            return self._enter(question)
        elif key == "n":
            self.field = "note"
        elif key in ("o", "e"):
            if not takes_own_text(question):
                self.problem = self.t("terminal.wrong.noOwn")
                return None
            filled.marked, self.field = rows - 1, "own"
            return Edit() if key == "e" else None
        return None

    def _number(self, number: int, question: Question, *, rows: int) -> Act | None:
        if number > rows:
            self.problem = self.t("terminal.wrong.noChoice", text=number)
            return None
        filled, had = self.filled[self.at], self.is_answered(self.at)
        becomes_note = bool(filled.own.strip())
        filled.marked = number - 1
        self._toggle(filled.marked, question)
        if question.multiple or filled.marked == len(question.options):
            return None
        if self.is_several:
            if not had:  # whoever came back to change it may want to look at it
                self._step(1)
            return None
        if becomes_note:
            self.problem = self.t("terminal.wrong.becameNote")
            return None
        return self._send()

    def _enter(self, question: Question) -> Act | None:
        filled = self.filled[self.at]
        if filled.marked == len(question.options):
            self.field = "own"
            return None
        if not question.multiple:
            self._choose(question.options[filled.marked].value)
        return self._on()

    def _toggle(self, row: int, question: Question) -> None:
        filled = self.filled[self.at]
        if row == len(question.options):
            self.field = "own"
            return
        value = question.options[row].value
        if not question.multiple:
            self._choose(value)
        elif value in filled.chosen:
            filled.chosen.remove(value)
        else:
            filled.chosen.append(value)

    def _choose(self, value: str) -> None:
        """The one choice. What was typed before is kept as a note."""
        filled = self.filled[self.at]
        filled.chosen = [value]
        if filled.own.strip():
            filled.note, filled.own = "\n".join(filter(None, (filled.note, filled.own))), ""

    def _step(self, steps: int) -> None:
        if self.is_several:
            self.at = min(len(self.ask.questions), max(0, self.at + steps))

    def _on(self) -> Act | None:
        """Enter's way: to the next question, or to the desk."""
        if not self.is_several:
            return self._send()
        self._step(1)
        self._arrive()
        return None

    def _arrive(self) -> None:
        """A question that offers nothing to choose has its field open."""
        question = self.question
        if question is not None and not question.options and not self.filled[self.at].own:
            self.field = "own"

    def _press_review(self, key: str) -> Act | None:
        if key == ENTER:
            return self._send()
        if key in BACK or key in UP:
            self._step(-1)
        elif key in NUMBERS and int(key) <= len(self.ask.questions):
            self.at = int(key) - 1
        return None

    def _send(self) -> Act | None:
        answers: list[tuple[str, ...]] = []
        for index in range(len(self.ask.questions)):
            values = self.values(index)
            if isinstance(values, Problem):
                self.at, self.problem = index, values.message
                return None
            answers.append(values)
        if not any(answers):
            self.problem = self.t("terminal.wrong.nothingYet")
            return None
        notes = [filled.note.strip() or None for filled in self.filled]
        return Send(Answer(answers=tuple(answers), notes=tuple(notes) if any(notes) else ()))

    def _press_permission(self, key: str, permission: Permission) -> Act | None:
        if key == ENTER and self.armed is not None:
            return Send(self.armed)
        if self.panel is not None:
            return self._press_panel(key, self.panel)
        actions = self.actions
        if key == "d":
            return self._act("reject")
        if key == "y":
            return self._act("once")
        if key == "A":
            return self._act("always")
        if key in (*UP, *BACK):
            self.marked = max(0, (self.marked or 0) - 1)
        elif key in (*DOWN, *ON):
            self.marked = 0 if self.marked is None else min(len(actions) - 1, self.marked + 1)
        elif key in ("home", "end"):
            self.marked = 0 if key == "home" else len(actions) - 1
        elif key in NUMBERS and self.card.needs_second_press:
            self.problem = self.t("terminal.wrong.risky")
        elif key in NUMBERS and int(key) <= len(actions):
            self.marked = int(key) - 1
        elif key == ENTER and self.marked is None:
            self.problem = self.t("terminal.wrong.unmarked")
        elif key == ENTER and self.marked is not None:
            return self._act(actions[self.marked].reply)
        elif key == "n":
            self.problem = self.t("terminal.wrong.note")
        elif key in ("o", "e"):
            self.problem = self.t("terminal.wrong.own")
        return None

    def _act(self, reply: str) -> Act | None:
        assert self.ask.permission is not None
        if reply == "reject":
            return Send(Answer(rejected=True))
        if self.is_folded and not self.has_seen_diff:
            self.problem = self.t("terminal.wrong.folded")
            return None
        if reply not in self.ask.permission.replies:
            self.problem = self.t("terminal.wrong.once") if reply == "once" else self.t("terminal.wrong.more")
        elif reply == "always":
            self.panel = Panel(self.ask.permission.scopes)
        else:
            return self._allow(Answer(reply=reply))
        return None

    def _press_panel(self, key: str, panel: Panel) -> Act | None:
        rows = panel.rows()
        if key in UP:
            panel.marked = max(0, panel.marked - 1)
        elif key in DOWN:
            panel.marked = max(0, min(len(rows) - 1, panel.marked + 1))
        elif key in NUMBERS and not self.card.needs_second_press and int(key) <= len(panel.scopes):
            panel.marked = rows.index((int(key) - 1, None))
        elif key == " " and rows:
            scope, pattern = rows[panel.marked]
            if pattern is not None:
                panel.removed ^= {(scope, pattern)}
        elif key == ENTER:
            return self._save(panel)
        return None

    def _save(self, panel: Panel) -> Act | None:
        scope = panel.scope
        if scope is None:
            return self._allow(Answer(reply="always"))
        if scope.patterns and not panel.patterns:
            self.problem = self.t("terminal.wrong.noPattern")
            return None
        return self._allow(Answer(reply="always", scope=scope.id, patterns=panel.patterns or None))

    def _allow(self, answer: Answer) -> Act | None:
        """At once, or where it is risky at the second press."""
        if not self.card.needs_second_press:
            return Send(answer)
        self.armed = answer
        return None


# What the keys are ----------------------------------------------------------------------------------------------


def key_hints(form: Form) -> list[str]:
    """The keys that matter now, for the last line of the card."""
    t, later = form.t, [form.t("terminal.hint.later"), form.t("terminal.hint.keys")]
    if form.field is not None:
        return [_enter_hint(form), t("terminal.hint.newLine"), t("terminal.hint.leave")]
    if form.armed is not None:
        return [t("terminal.hint.run"), t("terminal.hint.goBack")]
    if form.panel is not None:
        moves = [t("terminal.hint.move"), t("terminal.hint.takeOut")]
        return [t("terminal.hint.allow"), *moves, t("terminal.hint.goBack")]
    if form.ask.permission is not None:
        keys = [f"{action.key} {action.hint}" for action in form.actions if action.key]
        return [*keys, t("terminal.hint.denyWhy"), *later]
    if form.is_review:
        return [t("terminal.hint.send"), t("terminal.hint.back"), t("terminal.hint.decline"), *later]
    question = form.question
    assert question is not None
    last = len(question.options) + takes_own_text(question)
    keys = [t("terminal.hint.move"), t("terminal.hint.pick", numbers=f"1-{min(9, last)}" if last > 1 else "1")]
    keys += [t("terminal.hint.toggle"), t("terminal.hint.send")] if question.multiple and not form.is_several else []
    keys += [t("terminal.hint.question")] if form.is_several else []
    return [*keys, t("terminal.hint.note"), t("terminal.hint.decline"), *later]


def _enter_hint(form: Form) -> str:
    """What Enter does in the field."""
    match form.field:
        case "reason" if form.ask.permission is None:
            return form.t("terminal.hint.enterDecline")
        case "reason":
            return form.t("terminal.hint.enterDeny")
        case "note":
            return form.t("terminal.hint.keep")
        case _:
            return form.t("terminal.hint.next") if form.is_several else form.t("terminal.hint.send")


def key_help(ask: Ask, *, t: Words = ENGLISH) -> str:
    """Every key of full mode, for the card of this ask."""
    rows = [
        ("y", t("terminal.help.once")),
        ("d", t("terminal.keys.deny")),
        ("x", t("terminal.keys.denyWhy")),
        ("A", t("terminal.keys.more")),
        ("1-9 ↑ ↓ k j", t("terminal.keys.mark")),
        ("Enter", t("terminal.keys.doMarked")),
        ("p", t("terminal.keys.diff")),
    ]
    if ask.questions:
        rows = [
            ("1-9", t("terminal.keys.choose")),
            ("↑ ↓ k j", t("terminal.keys.move")),
            (t("terminal.key.ends"), t("terminal.keys.ends")),
            (t("terminal.key.space"), t("terminal.keys.toggle")),
            ("Enter", t("terminal.keys.enter")),
            ("← → h l Tab", t("terminal.keys.steps")),
            ("o", t("terminal.keys.own")),
            ("e", t("terminal.keys.editor")),
            ("n", t("terminal.keys.note")),
            ("p", t("terminal.keys.preview")),
            ("x", t("terminal.keys.decline")),
        ]
    rows += [
        ("w", t("terminal.help.wait")),
        ("J K", t("terminal.keys.asks")),
        ("Esc", t("terminal.keys.escape")),
        ("?", t("terminal.keys.help")),
        (t("terminal.key.control"), t("terminal.help.leave")),
    ]
    return "\n".join(f"  {key:<13}{meaning}" for key, meaning in rows)
