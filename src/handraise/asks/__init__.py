"""The records every part shares: an ask, what it asks, and what goes back. Frozen, stdlib only, no I/O.

What an agent wrote is kept here exactly as it wrote it; surfaces make it inert when they show it.
Fields an agent sent that we do not know are kept in `extra`.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

from handraise.errors import AnswerDoesNotFit, AskDoesNotFit

__all__ = [
    "Answer",
    "Ask",
    "AutoRule",
    "Handling",
    "Judgement",
    "Mode",
    "Option",
    "Origin",
    "Permission",
    "Question",
    "Scope",
    "State",
    "bound",
    "fit",
    "free_form_problem",
]

QuestionPolicy = Literal["reject", "accept-first", "accept-recommended", "forward"]
PermissionPolicy = Literal["reject", "forward"]
OnTimeout = Literal["accept-first", "accept-recommended", "reject"]
Mode = Literal["default", "accept-edits", "bypass", "plan", "read-only", "workspace-write", "full-access"]
State = Literal["asked", "answered", "rejected", "withdrawn"]
Kind = Literal["choice", "text", "number"]

MOST_QUESTIONS = 50
MOST_OPTIONS = 500
LONGEST_TEXT = 20_000
LONGEST_NAME = 500  # ids, and the names of agents, sessions, runs, tools
MOST_LEVELS = 100  # of what an agent nests in free form; JSON parsers give up at 200, and what we tell wraps it in more

_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs"}  # control, format, surrogates, private use, separators

RECOMMENDED = "(recommended)"  # the suffix by which OpenCode and Claude Code mark an option


@dataclass(frozen=True, slots=True)
class Option:
    """One choice. `value` is what goes back to the agent; where it gave none, that is the label."""

    label: str
    _: KW_ONLY
    description: str = ""
    value: str = ""
    preview: str | None = None
    recommended: bool = False
    extra: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.value:
            object.__setattr__(self, "value", self.label)
        if not self.recommended and self.label.rstrip().lower().endswith(RECOMMENDED):
            object.__setattr__(self, "recommended", True)


@dataclass(frozen=True, slots=True)
class Question:
    """One question of an ask.

    Options whose values repeat get unique ones (`label#2`), so that an answer names exactly one of them.
    """

    question: str
    options: tuple[Option, ...] = ()
    _: KW_ONLY
    header: str = ""
    multiple: bool = False
    custom: bool = True  # own text is allowed beside or instead of the options
    kind: Kind = "choice"
    extra: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if len({option.value for option in self.options}) < len(self.options):
            object.__setattr__(self, "options", tuple(_unique(self.options)))

    @property
    def title(self) -> str:
        return self.header or self.question

    def value_of(self, entry: str) -> str | None:
        """The value an entry of an answer stands for: an option's value, else its label, else own text (None)."""
        for option in self.options:
            if option.value == entry:
                return entry
        for option in self.options:
            if option.label == entry:
                return option.value
        return None

    def label_of(self, value: str) -> str:
        """What the agent called the choice with this value; own text comes back as it is."""
        for option in self.options:
            if option.value == value:
                return option.label
        return value


def _unique(options: Sequence[Option]) -> Iterator[Option]:
    taken = {option.value for option in options}
    seen: set[str] = set()
    ordinals: dict[str, int] = {}
    for option in options:
        value = option.value
        while value in seen:
            ordinals[option.value] = ordinal = ordinals.get(option.value, 1) + 1
            value = f"{option.value}#{ordinal}"
            value = option.value if value in taken else value
        seen.add(value)
        yield option if value == option.value else replace(option, value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """How far an `always` reaches, as the agent offers it."""

    id: str
    label: str = ""
    patterns: tuple[str, ...] = ()
    # The desk remembers it for the session; the agent is only ever told `once`. Not said is None and not False, so that
    # an ask that was stored before this was known is still the same ask.
    by_desk: bool | None = None
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What an agent wants to do. A plan that wants approval is `kind="plan"`."""

    tool: str
    summary: str = ""
    kind: str = "tool"
    command: str | None = None
    paths: tuple[str, ...] = ()
    diff: str | None = None
    cwd: str | None = None
    url: str | None = None
    input: Mapping[str, Any] | None = None  # the tool's arguments, as the agent gave them
    replies: tuple[str, ...] = ("once", "reject")
    scopes: tuple[Scope, ...] = ()
    editable: bool = False  # the agent takes a changed `input` back
    # Where `files`, one by one, and the working folder really are on the agent's machine, links followed. Not said is
    # None: nobody looked, and no rule for paths allows it.
    resolved: tuple[str, ...] | None = None
    resolved_cwd: str | None = None
    extra: Mapping[str, Any] | None = None

    @property
    def is_plan(self) -> bool:
        """A plan and nothing else. One that also names a command, files or an address wants to do something."""
        return self.kind == "plan" and not (self.command or self.paths or self.url or self.diff)

    @property
    def files(self) -> tuple[str, ...]:
        """What it names as paths: `paths`, or else the argument `path` of a tool that we know nothing of."""
        given = (self.input or {}).get("path")
        listed = given if isinstance(given, list | tuple) else [given]
        return self.paths or tuple(path for path in listed if isinstance(path, str))

    @property
    def places(self) -> tuple[tuple[str, str | None], ...]:
        """Each of its files, with where it really lies. That counts only where it is said for each of them."""
        files, real = self.files, self.resolved or ()
        return tuple(zip(files, real if len(real) == len(files) else [None] * len(files), strict=True))

    @property
    def ways(self) -> tuple[tuple[str, str | None], ...]:
        """Every reply that allows it, the narrowest first, with the id of its scope where it has some."""
        found: list[tuple[str, str | None]] = []
        for reply in sorted(self.replies, key=lambda reply: reply != "once"):
            if reply == "always" and self.scopes:
                found += [(reply, scope.id) for scope in self.scopes]
            elif reply != "reject":
                found.append((reply, None))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who asks, and from where."""

    agent: str
    session: str
    run: str | None = None
    step: str | None = None
    parent: str | None = None  # the session whose subagent this is
    cwd: str | None = None
    machine: str | None = None
    extra: Mapping[str, Any] | None = None

    @property
    def root(self) -> str:
        """The session that a subagent works for, or this one."""
        return self.parent or self.session


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back to the agent: values per question, a permission's reply, or a rejection."""

    answers: tuple[tuple[str, ...], ...] | None = None  # one list per question, in order; empty = skipped
    reply: str | None = None  # once, always or reject; for permissions only
    rejected: bool = False
    reason: str | None = None
    notes: tuple[str | None, ...] = ()
    input: Mapping[str, Any] | None = None  # the edited input of a permission
    scope: str | None = None  # which of the permission's scopes an `always` means
    patterns: tuple[str, ...] | None = None
    by: str = ""  # "ana", "policy:accept-first", "agent"
    via: str = ""  # "cli", "http", "policy", the agent's own terminal
    at: datetime | None = None
    why: tuple[str, ...] = ()  # how policy came to it: rules that decided, rules that were skipped

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the first question."""
        return self.answers[0] if self.answers else ()

    @property
    def value(self) -> str | None:
        """The first value of the first question, or a permission's reply."""
        return self.values[0] if self.values else self.reply

    @property
    def by_policy(self) -> bool:
        """No person decided this."""
        return self.by.startswith("policy:")

    def same_as(self, other: Answer) -> bool:
        """Whether both say the same to the agent: answers or reply only, whoever said it."""
        return (self.answers, self.reply, self.rejected) == (other.answers, other.reply, other.rejected)


NOBODY_CAME = "nobody has come for it yet; it is kept"  # the error of a delivery that may still happen


class Judgement(NamedTuple):
    """What a desk finds out about a permission, once, when it is asked. It is stored with the ask and told with it."""

    risks: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()  # of its line, where there is more than one
    doubt: str | None = None  # why it cannot be said for certain what it does
    only_at_desk: str | None = None  # why an answer link, a notification or a shared place may not allow it


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One moment in which an agent stopped and needs somebody.

    It holds questions or a permission, never both. An adapter fills the first block; the desk adds the rest.
    """

    id: str
    questions: tuple[Question, ...] = ()
    permission: Permission | None = None
    origin: Origin
    extra: Mapping[str, Any] | None = None

    state: State = "asked"
    asked_at: datetime | None = None
    deadline: datetime | None = None  # when the fallback applies
    remaining: float | None = None  # seconds to the deadline when this was told; clocks differ
    fallback: Answer | None = None
    answer: Answer | None = None
    delivered_at: datetime | None = None  # the agent took the answer
    delivery_error: str | None = None  # why it could not
    withdrawn_reason: str | None = None
    # Of a permission, as it was judged once, when it was asked. No desk has seen one whose `risks` are None.
    risks: tuple[str, ...] | None = None
    commands: tuple[str, ...] = ()
    doubt: str | None = None
    only_at_desk: str | None = None

    @property
    def title(self) -> str:
        """A short line that names the ask in lists and logs. Untrusted, like everything an agent wrote."""
        if self.permission is not None:
            return self.permission.summary or self.permission.command or self.permission.tool
        return ", ".join(question.title for question in self.questions)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRule:
    """`match` is a part of the header or the text, in any case, or `re:` and a regular expression (RE2 syntax)."""

    match: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """How the asks of a session or step are to be decided, as people write it down.

    The defaults are those of a session a person attached and of a script's own ask: a person decides, without limit.
    """

    question_policy: QuestionPolicy | tuple[AutoRule, ...] = "forward"
    permission_policy: PermissionPolicy = "forward"
    question_timeout: float | None = None  # seconds
    on_timeout: OnTimeout = "accept-first"


def bound(ask: Ask, *, size: int | None = None) -> None:
    """Refuse what no surface could show or no store should hold. Raises AskDoesNotFit with every problem.

    `size` is how long the whole ask is as text, where that is known: in a short one no text can be too long.
    """
    problems = [{"at": at, "problem": problem} for at, problem in _beyond_limits(ask, size=size)]
    if problems:
        first = problems[0]
        raise AskDoesNotFit(f"{first['at']}: {first['problem']}", problems)


def _beyond_limits(ask: Ask, *, size: int | None) -> Iterator[tuple[str, str]]:
    origin, permission = ask.origin, ask.permission
    names = [("id", ask.id), ("origin.agent", origin.agent), ("origin.session", origin.session)]
    names += [(f"origin.{key}", value) for key in ("run", "step", "parent") if (value := getattr(origin, key))]
    for at, name in names:
        if not name or len(name) > LONGEST_NAME or not _is_printable(name):
            yield at, f"1 to {LONGEST_NAME} printable characters expected"
    if ask.id in (".", ".."):
        yield "id", "an address cannot hold this id: the dots would be taken for a folder"
    if (permission is None) == (not ask.questions):
        yield "questions", "an ask has either `questions`, at least one, or a `permission`"
    if len(ask.questions) > MOST_QUESTIONS:
        yield "questions", f"at most {MOST_QUESTIONS} questions fit in an ask; got {len(ask.questions)}"
        return
    for at, text in _texts(ask) if size is None or size > LONGEST_TEXT else ():
        if len(text) > LONGEST_TEXT:
            yield at, f"at most {LONGEST_TEXT} characters fit in a text; got {len(text)}"
    for at, free in _free_forms(ask):
        if (problem := free_form_problem(free)) is not None:
            yield at, problem
    for index, question in enumerate(ask.questions):
        at = f"questions.{index}"
        if not question.question:
            yield f"{at}.question", "the text of the question is missing"
        if len(question.options) > MOST_OPTIONS:
            yield (
                f"{at}.options",
                f"at most {MOST_OPTIONS} options fit in a question; got {len(question.options)}",
            )
        if not all(option.label for option in question.options):
            yield f"{at}.options", "every option needs a label"
        if question.kind == "choice" and not question.options and not question.custom:
            yield f"{at}.options", "without options and own text nobody could answer; allow `custom`"
    if permission is not None:
        if not permission.tool:
            yield "permission.tool", "the name of the tool is missing"
        if not permission.replies:
            yield "permission.replies", "name the replies the agent takes, such as once and reject"


def _is_printable(name: str) -> bool:
    """As `str.isprintable`, but what a newer Unicode than this Python's may have added counts as printable."""
    return name.isprintable() or not any(unicodedata.category(each) in _UNPRINTABLE and each != " " for each in name)


def _texts(ask: Ask) -> Iterator[tuple[str, str]]:
    """Every text with a limit of its own. A diff and a tool's input are bounded by the body alone."""
    yield "origin.cwd", ask.origin.cwd or ""
    yield "origin.machine", ask.origin.machine or ""
    for index, question in enumerate(ask.questions):
        yield f"questions.{index}.header", question.header
        yield f"questions.{index}.question", question.question
        for number, option in enumerate(question.options[: MOST_OPTIONS + 1]):
            at = f"questions.{index}.options.{number}"
            yield f"{at}.label", option.label
            yield f"{at}.value", option.value
            yield f"{at}.description", option.description
            yield f"{at}.preview", option.preview or ""
    if ask.permission is not None:
        for key in ("tool", "summary", "command", "cwd", "url"):
            yield f"permission.{key}", getattr(ask.permission, key) or ""


def _free_forms(ask: Ask) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Everything whose form is up to the agent."""
    if ask.extra:
        yield "extra", ask.extra
    if ask.origin.extra:
        yield "origin.extra", ask.origin.extra
    for index, question in enumerate(ask.questions):
        if question.extra:
            yield f"questions.{index}.extra", question.extra
        for number, option in enumerate(question.options):
            if option.extra:
                yield f"questions.{index}.options.{number}.extra", option.extra
    if ask.permission is not None:
        if ask.permission.input:
            yield "permission.input", ask.permission.input
        if ask.permission.extra:
            yield "permission.extra", ask.permission.extra
        for number, scope in enumerate(ask.permission.scopes):
            if scope.extra:
                yield f"permission.scopes.{number}.extra", scope.extra


def free_form_problem(value: Any) -> str | None:
    """Why this could not be told again as JSON that everybody reads."""
    level = [value]
    for _ in range(MOST_LEVELS):
        deeper: list[Any] = []
        for entry in level:
            if isinstance(entry, Mapping):
                deeper += entry.values()
            elif isinstance(entry, list | tuple):
                deeper += entry
            elif isinstance(entry, float) and not math.isfinite(entry):
                return "JSON knows no NaN and no infinity"
        if not deeper:
            return None
        level = deeper
    return f"nested deeper than {MOST_LEVELS} levels"


def fit(ask: Ask, answer: Answer) -> Answer:
    """The answer in the form that is stored: labels turned into values. Raises AnswerDoesNotFit with every problem."""
    if answer.rejected or answer.reply == "reject":
        return _fit_rejection(ask, answer)
    if ask.permission is not None:
        return _fit_reply(ask.permission, answer)
    return _fit_answers(ask.questions, answer)


def _fit_rejection(ask: Ask, answer: Answer) -> Answer:
    reply = "reject" if ask.permission is not None else None
    if answer.reply is not None and reply is None:
        raise AnswerDoesNotFit([{"question": None, "problem": "this ask has questions; give `answers`"}])
    return replace(answer, answers=None, reply=reply, rejected=True, input=None, scope=None, patterns=None)


def _fit_reply(permission: Permission, answer: Answer) -> Answer:
    def refuse(problem: str) -> AnswerDoesNotFit:
        return AnswerDoesNotFit([{"question": None, "problem": problem}])

    replies = ", ".join(permission.replies)
    if answer.answers is not None or answer.reply is None:
        raise refuse(f"this ask wants a permission; give `reply`, one of: {replies}")
    if answer.reply not in permission.replies:
        raise refuse(f"{answer.reply!r} is not a reply this agent takes; it takes: {replies}")
    if answer.input is not None and not permission.editable:
        raise refuse("this agent does not take an edited input")
    if answer.input is not None and (problem := free_form_problem(answer.input)) is not None:
        raise refuse(f"input: {problem}")
    if answer.reply != "always" and (answer.scope is not None or answer.patterns is not None):
        raise refuse("`scope` and `patterns` go with the reply `always` only")
    scopes = {scope.id: scope for scope in permission.scopes}
    if answer.scope is not None and answer.scope not in scopes:
        raise refuse(f"{answer.scope!r} is not a scope it offers; it offers: {', '.join(scopes) or 'none'}")
    if answer.patterns is not None:
        offered = {
            pattern for scope in permission.scopes if answer.scope in (None, scope.id) for pattern in scope.patterns
        }
        wider = [pattern for pattern in answer.patterns if pattern not in offered]
        if wider:
            raise refuse(f"{wider[0]!r} is not among the patterns it offers; they may be removed, not widened")
    return answer


def _fit_answers(questions: Sequence[Question], answer: Answer) -> Answer:
    if answer.reply is not None or answer.input is not None or answer.answers is None:
        raise AnswerDoesNotFit([{"question": None, "problem": "this ask has questions; give `answers`"}])
    if len(answer.answers) != len(questions):
        expected = "one list" if len(questions) == 1 else f"{len(questions)} lists"
        count = f"{expected} of values expected, one per question in order; got {len(answer.answers)}"
        raise AnswerDoesNotFit([{"question": None, "problem": count}])
    problems: list[dict[str, Any]] = []
    if answer.notes and len(answer.notes) != len(questions):
        problems.append({"question": None, "problem": "give one note (or null) per question"})
    fitted: list[tuple[str, ...]] = []
    for index, (question, entries) in enumerate(zip(questions, answer.answers, strict=True)):
        values, problem = _fit_entries(question, entries)
        fitted.append(values)
        if problem is not None:
            problems.append({"question": index, "problem": problem})
    if not problems and not any(fitted):
        problems.append({"question": 0, "problem": "nothing is answered; choose something, or reject"})
    if problems:
        raise AnswerDoesNotFit(problems)
    return answer if answer.answers == tuple(fitted) else replace(answer, answers=tuple(fitted))


def _fit_entries(question: Question, entries: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    if len(entries) > 1 and not question.multiple:
        return (), f"one value only; got {len(entries)}"
    if len(entries) > MOST_OPTIONS:
        return (), f"at most {MOST_OPTIONS} values fit; got {len(entries)}"
    choices: list[str] = []
    own: list[str] = []  # comes last, in whichever order it was sent
    for entry in entries:
        choice = question.value_of(entry)
        if choice is None and (problem := _own_text_problem(question, entry)) is not None:
            return (), problem
        value = entry if choice is None else choice
        if value in choices or value in own:
            return (), f"{value!r} is given twice"
        (own if choice is None else choices).append(value)
    return (*choices, *own), None


def _own_text_problem(question: Question, text: str) -> str | None:
    if not question.custom and (question.options or question.kind == "choice"):
        choices = ", ".join(repr(option.value) for option in question.options[:20])
        return f"{text[:200]!r} is not a choice; the choices are: {choices or 'none'}"
    if not text.strip():
        return "an empty text is no answer; an empty list skips the question"
    if question.kind == "number" and not _is_number(text):
        return f"{text[:200]!r} is not a number"
    return None


def _is_number(text: str) -> bool:
    if not text.isascii() or "_" in text:  # numbers to Python, but hardly to the agent
        return False
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
