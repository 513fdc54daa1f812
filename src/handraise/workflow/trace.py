"""The trace of a run as it is told: its own events and what its agents asked, as typed records and as lines of text.

Pure. The run's own events come from its journal. Questions and permissions are in no journal of the run: they are made
here out of the events of its asks, so that there is one truth about an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, NamedTuple, TypeAlias, TypeVar

from handraise.asks import Answer, Ask, Question
from handraise.text.inert import inert
from handraise.wire import StoredEvent, time_text
from handraise.wire.runs import TYPES
from handraise.workflow.journal import Event, WrittenEvent

__all__ = ["ASK_EVENTS", "TYPES", "Position", "agent_question", "by_time", "line", "merged", "told", "values"]

Told: TypeAlias = dict[str, Any]
Own = TypeVar("Own", Event, WrittenEvent)

ASK_EVENTS = ("asked", "answered", "rejected", "withdrawn")  # of an ask; the others are no news of a run
LONGEST_HEADER = 30
LONGEST_SHOWN = 300  # characters of one text in a line

_ENDS = ("_completed", "_failed", "_cancelled")


class Position(NamedTuple):
    """How far somebody has read: the number of the last event of the run itself, the cursor of the last of its asks.

    They are counted apart. What is written late, with a time before what was read, is not missed.
    """

    number: int = 0
    cursor: int = 0

    def __str__(self) -> str:
        return f"{self.number}-{self.cursor}"

    def behind(self, event: Event | WrittenEvent | StoredEvent) -> Position:
        """Once this was read as well."""
        if isinstance(event, StoredEvent):
            return self._replace(cursor=event.cursor)
        return self._replace(number=int(event.id.rpartition("-")[2]))

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """None where it is no position."""
        parts = text.split("-")
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            return None
        return cls(int(parts[0]), int(parts[1]))


def merged(
    own: Sequence[Event], asked: Sequence[StoredEvent], *, after: Position, limit: int
) -> tuple[list[Told], Position]:
    """Both by time, about so many of them, and where to read on. Each keeps its own order, whatever clocks say."""
    found: list[Told] = []
    position = after
    for event in by_time(own, asked):
        if len(found) >= limit:
            break
        found += told(event)
        position = position.behind(event)
    return found, position


def by_time(own: Sequence[Own], asked: Sequence[StoredEvent]) -> Iterator[Own | StoredEvent]:
    """Both as one, by time. Each keeps its own order, whatever clocks say."""
    first, second = 0, 0
    while first < len(own) and second < len(asked):
        event, ask = own[first], asked[second]
        # At one time: a step begins, asks, and ends.
        is_first = event.at < ask.at or (event.at == ask.at and not event.type.endswith(_ENDS))
        first, second = first + is_first, second + (not is_first)
        yield event if is_first else ask
    yield from own[first:]
    yield from asked[second:]


def told(event: Event | StoredEvent) -> list[Told]:
    """The records of one event. A step that an agent works in begins with a session."""
    if not isinstance(event, Event):
        return _told_of_ask(event)
    made = event.told()
    if event.type != "step_started" or event.data.get("session_id") is None:
        return [made]
    session = {
        "id": f"{event.id}-session",
        "type": "session_started",
        "run_id": event.run,
        "step_id": event.step,
        "session_id": event.data["session_id"],
        "agent": event.data.get("agent"),
        "attempt": event.data.get("attempt"),
        "timestamp": made["timestamp"],
    }
    return [made, session]


# Asks ---------------------------------------------------------------------------------------------------------------


def _told_of_ask(event: StoredEvent) -> list[Told]:
    if event.type not in ASK_EVENTS:
        return []
    ask = event.ask.ask()
    if ask.permission is not None:
        kind, about = _permission(event, ask)
    else:
        kind, about = _question(event, ask)
    return [
        {
            "id": f"{ask.origin.run}-ask-{event.cursor:012d}",
            "type": kind,
            "run_id": ask.origin.run,
            "step_id": ask.origin.step or "",
            "session_id": ask.origin.session,
            **about,
            "timestamp": time_text(event.at),
        }
    ]


def _question(event: StoredEvent, ask: Ask) -> tuple[str, Told]:
    if event.type == "asked":
        return "agent_question_asked", {"question": agent_question(ask)}
    if event.type == "withdrawn" or ask.answer is None:
        return "agent_question_withdrawn", {"question_id": ask.id, "reason": ask.withdrawn_reason}
    if ask.answer.rejected:
        rejected = {"question_id": ask.id, "reason": ask.answer.reason, "by": ask.answer.by}
        return "agent_question_rejected", rejected | _why(ask.answer)
    answers = _labels(ask, ask.answer.answers or ())
    return "agent_question_answered", {"question_id": ask.id, "answers": answers, "by": ask.answer.by} | _why(
        ask.answer
    )


def _permission(event: StoredEvent, ask: Ask) -> tuple[str, Told]:
    permission, origin = ask.permission, ask.origin
    assert permission is not None
    if event.type == "asked":
        about = {
            "id": ask.id,
            "session_id": origin.session,
            "step_id": origin.step or "",
            "tool": permission.tool,
            "summary": ask.title,
            "command": permission.command,
            "paths": list(permission.paths),
            "replies": list(permission.replies),
            "asked_at": time_text(event.at),
        }
        return "agent_permission_asked", {"permission": about}
    if event.type == "withdrawn" or ask.answer is None:
        return "agent_permission_withdrawn", {"permission_id": ask.id, "reason": ask.withdrawn_reason}
    reply = ask.answer.reply or "reject"
    about = {"permission_id": ask.id, "reply": reply, "reason": ask.answer.reason, "by": ask.answer.by}
    return "agent_permission_answered", about | _why(ask.answer)


def _why(answer: Answer) -> Told:
    """How policy came to it: the rules that decided, and those that were skipped."""
    return {"why": list(answer.why)} if answer.why else {}


def agent_question(ask: Ask) -> Told:
    """An ask with questions as an `AgentQuestion`."""
    assert ask.asked_at is not None
    return {
        "id": ask.id,
        "session_id": ask.origin.session,
        "step_id": ask.origin.step or "",
        "questions": [
            {
                "question": question.question,
                "header": (question.header or question.question)[:LONGEST_HEADER],
                "options": [
                    {"label": _names(question)[option.value], "description": option.description}
                    for option in question.options
                ],
                "multiple": question.multiple,
                "custom": question.custom,
            }
            for question in ask.questions
        ],
        "asked_at": time_text(round(ask.asked_at.timestamp() * 1000)),
    }


def _labels(ask: Ask, answers: Sequence[Sequence[str]]) -> list[list[str]]:
    """Values as the labels they have in an `AgentQuestion`; own text stays as it is."""
    return [
        [_names(question).get(value, value) for value in values]
        for question, values in zip(ask.questions, answers, strict=False)
    ]


def values(ask: Ask, answers: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The reverse, before anybody looks: one option's value may be another's label."""
    if len(answers) != len(ask.questions):
        return tuple(tuple(entries) for entries in answers)
    return tuple(
        tuple({name: value for value, name in _names(question).items()}.get(entry, entry) for entry in entries)
        for question, entries in zip(ask.questions, answers, strict=True)
    )


def _names(question: Question) -> dict[str, str]:
    """What each value is called: its label, or the value itself where an earlier option has that label."""
    names: dict[str, str] = {}
    for option in question.options:
        names[option.value] = option.value if option.label in names.values() else option.label
    return names


# Lines of text ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Look:
    level: str
    mark: str
    color: str


_RESET = "\x1b[0m"
_DIM, _GREEN, _RED, _YELLOW, _CYAN = ("\x1b[2m", "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[36m")
_LOOKS: Mapping[str, _Look] = {
    "run_started": _Look("INFO", "▸", _CYAN),
    "run_completed": _Look("INFO", "✓", _GREEN),
    "run_failed": _Look("ERROR", "✗", _RED),
    "run_cancelled": _Look("WARN", "⊘", _YELLOW),
    "run_retried": _Look("INFO", "▸", _CYAN),
    "steps_changed": _Look("WARN", "!", _YELLOW),
    "step_started": _Look("INFO", "⟳", _YELLOW),
    "step_completed": _Look("INFO", "✓", _GREEN),
    "step_failed": _Look("ERROR", "✗", _RED),
    "step_cut": _Look("WARN", "!", _YELLOW),
    "session_started": _Look("INFO", "·", _DIM),
    "agent_repaired": _Look("WARN", "↻", _YELLOW),
    "checkpoint_waiting": _Look("WARN", "⏸", _YELLOW),
    "checkpoint_given": _Look("INFO", "▶", _GREEN),
    "worktree_made": _Look("INFO", "·", _DIM),
    "worktree_removed": _Look("INFO", "·", _DIM),
    "worktree_kept": _Look("WARN", "!", _YELLOW),
    "agent_question_asked": _Look("WARN", "?", _YELLOW),
    "agent_question_answered": _Look("INFO", "→", _GREEN),
    "agent_question_rejected": _Look("INFO", "→", _RED),
    "agent_question_withdrawn": _Look("INFO", "→", _DIM),
    "agent_permission_asked": _Look("WARN", "?", _YELLOW),
    "agent_permission_answered": _Look("INFO", "→", _GREEN),
    "agent_permission_withdrawn": _Look("INFO", "→", _DIM),
}
_UNKNOWN = _Look("INFO", "·", _DIM)  # of a newer desk


def line(event: Mapping[str, Any], *, color: bool = False, zone: tzinfo | None = UTC) -> str:
    """One line for people of an event as it is told. Whatever an agent wrote is inert in it. `zone` None is ours."""
    type = str(event.get("type", ""))
    look = _LOOKS.get(type, _UNKNOWN)
    mark = f"{look.color}{look.mark}{_RESET}" if color else look.mark
    indent = "" if type.startswith("run_") else "    "
    prefix = f"{_clock(event.get('timestamp'), zone)} {look.level:<5}"
    prefix = f"{_DIM}{prefix}{_RESET}" if color else prefix
    said = _said(type, event)
    step = event.get("step_id")
    about = f"{_shown(step)}: {said}" if step and not type.startswith("run_") else said
    return f"{prefix} {indent}{mark} {about}"


def _clock(timestamp: Any, zone: tzinfo | None) -> str:
    try:
        return f"{datetime.fromisoformat(str(timestamp)).astimezone(zone):%H:%M:%S}"
    except ValueError:
        return "--:--:--"


def _said(type: str, event: Mapping[str, Any]) -> str:
    error, by = _shown(event.get("error")), _shown(event.get("by"))
    match type:
        case "run_started":
            return f"{_shown(event.get('workflow'))} {_shown(event.get('run_id'))} started"
        case "run_completed":
            return "completed"
        case "run_failed":
            return f"failed: {error}"
        case "run_cancelled":
            return "cancelled"
        case "run_retried":
            step = event.get("step_id")
            where = f"from {_shown(step)}" if step else "from what did not succeed"
            return f"goes on {where}" + (f", by {by}" if by else "")
        case "steps_changed":
            return "its file has other steps by now"
        case "step_started":
            attempt = event.get("attempt", 1)
            return "started" if attempt == 1 else f"started, attempt {_shown(attempt)}"
        case "step_completed":
            return "completed"
        case "step_failed":
            return f"failed: {error}"
        case "step_cut":
            return f"was cut off, and may have run; {_shown(event.get('decision'))}"
        case "session_started":
            return f"{_shown(event.get('agent'))} in session {_shown(event.get('session_id'))}"
        case "agent_repaired":
            return "what the agent gave does not fit, and it was told so"
        case "checkpoint_waiting":
            return f"waits for a person: {_shown(event.get('input'))}".removesuffix(": ")
        case "checkpoint_given":
            return "given" + (f" by {by}" if by else "")
        case "worktree_made":
            return f"works in {_shown(event.get('path'))}, from {_shown(event.get('base'))[:12]}"
        case "worktree_removed":
            branch = event.get("branch")
            return f"its work is on branch {_shown(branch)}" if branch else "its worktree is removed"
        case "worktree_kept":
            return f"its worktree stays at {_shown(event.get('path'))}" + (f": {error}" if error else "")
        case _:
            return _said_of_ask(type, event)


def _said_of_ask(type: str, event: Mapping[str, Any]) -> str:
    reason = f": {_shown(event['reason'])}" if event.get("reason") else ""
    why = f" ({_shown('; '.join(map(str, event['why'])))})" if event.get("why") else ""
    match type:
        case "agent_question_asked":
            questions = event["question"]["questions"]
            return f"agent asks: {', '.join(_shown(question['header']) for question in questions)}"
        case "agent_question_answered":
            return f"answered: {', '.join(_shown(entry) for entries in event['answers'] for entry in entries)}{why}"
        case "agent_question_rejected":
            return f"not answered{reason}{why}"
        case "agent_permission_asked":
            return f"agent wants to: {_shown(event['permission']['summary'])}"
        case "agent_permission_answered":
            return f"replied: {_shown(event['reply'])}{reason}{why}"
        case "agent_question_withdrawn" | "agent_permission_withdrawn":
            return f"no longer asks{reason}"
        case _:
            return _shown(type)


def _shown(value: Any) -> str:
    """A value on one line, inert and not too long."""
    text = "" if value is None else str(value)
    short = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    return inert(short, keep="")
