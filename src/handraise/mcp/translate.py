"""What the tools take and tell, as asks and answers. Pure: no wire, no clock, no desk."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from handraise.asks import LONGEST_NAME, Answer, Ask, Kind, Option, Origin, Question, bound
from handraise.errors import AskDoesNotFit
from handraise.wire import ask_fields

__all__ = [
    "TOOLS",
    "base_of",
    "id_of",
    "is_ours",
    "name_of",
    "session_of",
    "to_ask",
    "to_result",
    "to_wait",
]

PREFIX = "mcp_"  # how the ids of these asks begin

_KINDS: Mapping[str, Kind] = {"choice": "choice", "text": "text", "number": "number"}
_QUESTION_FIELDS = ("question", "header", "options", "multiple", "multiSelect", "custom", "kind")
_OPTION_FIELDS = ("label", "description", "recommended")
# Codex sends `threadId`, others `sessionId` or `vendor/sessionId`.
_SESSION_KEYS = ("threadid", "sessionid", "conversationid")

_OPTION = {
    "type": "object",
    "properties": {
        "label": {"type": "string", "description": "The choice in a few words; this is what comes back."},
        "description": {"type": "string", "description": "What choosing it means."},
        "recommended": {"type": "boolean", "description": "You would take this one yourself."},
    },
    "required": ["label"],
}
_QUESTION = {
    "type": "object",
    "properties": {
        "question": {"type": "string", "description": "The whole question, understandable on its own."},
        "header": {"type": "string", "description": "A label of one to three words."},
        "options": {"type": "array", "items": _OPTION, "description": "The choices; leave out for free text."},
        "multiple": {"type": "boolean", "description": "More than one option may be chosen."},
        "custom": {"type": "boolean", "description": "Own text is allowed beside the options; true unless said."},
        "kind": {"type": "string", "enum": list(_KINDS), "description": "What is asked for; choice unless said."},
    },
    "required": ["question"],
}

# As `tools/list` tells them.
TOOLS: tuple[Mapping[str, Any], ...] = (
    {
        "name": "question",
        "title": "Ask a person",
        "description": (
            "Ask the people you work for, and wait for what they say. Use it whenever a decision is theirs: "
            "requirements that are unclear, a choice between ways to go, anything that is hard to undo. Put questions "
            "that belong together into one call. The result is JSON: `status` is answered (then `answers` has one list "
            "of choices per question, in order), rejected, withdrawn, or pending. Where it is pending, nobody has "
            "answered yet: call question_result with its `request_id`, as often as it takes."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "questions": {"type": "array", "items": _QUESTION, "minItems": 1},
                "context": {"type": "string", "description": "What people need to know before they can answer."},
            },
            "required": ["questions"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": True},
    },
    {
        "name": "question_result",
        "title": "Wait for an answer",
        "description": (
            "Go on waiting for a question that was pending, and get its answer. The result is the same as that of "
            "question. Do not ask a pending question anew."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "request_id": {"type": "string", "description": "The `request_id` that question told."},
                "wait_seconds": {"type": "number", "minimum": 0, "description": "How long to wait; 0 only looks."},
            },
            "required": ["request_id"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": True},
    },
    {
        "name": "permission_prompt",
        "title": "Ask for a permission",
        "description": (
            "For an agent's own machinery, such as `--permission-prompt-tool` of Claude Code, and not for models: asks "
            "people whether a tool may run."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool_name": {"type": "string"},
                "input": {"type": "object"},
                "tool_use_id": {"type": "string"},
            },
            "required": ["tool_name", "input"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": True},
    },
)


# Who asks -----------------------------------------------------------------------------------------------------------


def session_of(meta: Mapping[str, Any]) -> str | None:
    """The conversation that a call belongs to, where the agent says so in `_meta`."""
    for key, value in meta.items():
        is_session = key.rpartition("/")[2].replace("_", "").lower() in _SESSION_KEYS
        if is_session and isinstance(value, str) and (name := name_of(value)):
            return name
    return None


def name_of(text: str) -> str:
    """The text as a name that an origin takes, or nothing."""
    name = text.strip()
    return name if len(name) <= LONGEST_NAME and name.isprintable() else ""


def id_of(ask: Ask, *, call: str | None = None) -> str:
    """The same for the same content from the same conversation; `call` is the agent's own id of what it asks."""
    told = json.dumps([ask_fields(replace(ask, id="")), call], sort_keys=True)
    return f"{PREFIX}{hashlib.sha256(told.encode()).hexdigest()[:24]}"


def base_of(id: str) -> str:
    """The id as `id_of` made it, without what the desk added: the name of a token, the ordinal."""
    return re.sub(r"^@[^:]*:|#\d+$", "", id)


def is_ours(ask: Ask, *, origin: Origin) -> bool:
    """Whether somebody with this origin may read the ask: a question that was asked here."""
    is_same_machine = None in (ask.origin.machine, origin.machine) or ask.origin.machine == origin.machine
    here = is_same_machine and (ask.origin.agent, ask.origin.cwd) == (origin.agent, origin.cwd)
    return here and base_of(ask.id).startswith(PREFIX) and ask.permission is None


# What is asked ------------------------------------------------------------------------------------------------------


def to_ask(arguments: Mapping[str, Any], *, origin: Origin) -> Ask:
    """The ask of a `question` call. Raises AskDoesNotFit that names everything wrong, question by question."""
    entries, context = arguments.get("questions"), arguments.get("context")
    if not isinstance(entries, list) or not entries:
        raise _unfit(["`questions` is a list of at least one object with a `question`"])
    problems = [f"question {number}: {each}" for number, entry in enumerate(entries, 1) for each in _wrong(entry)]
    if context is not None and not isinstance(context, str):
        problems.append("`context` is a text")
    if problems:
        raise _unfit(problems)
    questions = [_question(entry) for entry in entries]
    if context and context.strip():
        # An ask has no text of its own; people read it before the first question.
        questions[0] = replace(questions[0], question=f"{context.strip()}\n\n{questions[0].question}")
    ask = Ask(id="", questions=tuple(questions), origin=origin)
    ask = replace(ask, id=id_of(ask))
    try:
        bound(ask)
    except AskDoesNotFit as beyond:
        raise _unfit([_problem(each) for each in beyond.fields["problems"]]) from None
    return ask


def to_wait(arguments: Mapping[str, Any]) -> tuple[str, float | None]:
    """The id and the seconds of a `question_result` call. Raises AskDoesNotFit."""
    id, seconds = arguments.get("request_id"), arguments.get("wait_seconds")
    problems = []
    if not isinstance(id, str) or not id.strip():
        problems.append("`request_id` is the text that question told")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and math.isfinite(seconds) and seconds >= 0):
        problems.append("`wait_seconds` is a number of seconds, 0 or more")
    if problems:
        raise _unfit(problems)
    return str(id).strip(), seconds


def _unfit(problems: Sequence[str]) -> AskDoesNotFit:
    return AskDoesNotFit("; ".join(problems), [{"problem": problem} for problem in problems])


def _problem(told: Mapping[str, Any]) -> str:
    """A problem that `bound` found, by the number of its question."""
    at, problem = str(told["at"]), str(told["problem"])
    found = re.fullmatch(r"questions\.(\d+)\.(.+)", at)
    return f"question {int(found[1]) + 1}: {found[2]}: {problem}" if found else f"{at}: {problem}"


def _wrong(entry: Any) -> Iterator[str]:
    if not isinstance(entry, Mapping):
        yield "it is not an object with a `question`"
        return
    text, options, kind = entry.get("question"), entry.get("options"), entry.get("kind")
    if not isinstance(text, str) or not text.strip():
        yield "`question` is missing; give the text to ask"
    if entry.get("header") is not None and not isinstance(entry["header"], str):
        yield "`header` is a text"
    for name in ("multiple", "multiSelect", "custom"):
        if entry.get(name) is not None and not isinstance(entry[name], bool):
            yield f"`{name}` is true or false"
    if kind is not None and (not isinstance(kind, str) or kind not in _KINDS):
        yield f"`kind` is one of: {', '.join(_KINDS)}"
    if options is not None and not isinstance(options, list):
        yield "`options` is a list of objects with a `label`"
    elif options:
        yield from _wrong_options(options)


def _wrong_options(options: Sequence[Any]) -> Iterator[str]:
    labels: set[str] = set()
    for number, option in enumerate(options, 1):
        entry = {"label": option} if isinstance(option, str) else option
        label = entry.get("label") if isinstance(entry, Mapping) else None
        if not isinstance(label, str) or not label.strip():
            yield f"option {number} has no `label`"
            continue
        if label.strip() in labels:
            yield f"two options are called {label.strip()[:100]!r}; give each a label of its own"
        labels.add(label.strip())
        if entry.get("description") is not None and not isinstance(entry["description"], str):
            yield f"the `description` of option {number} is a text"


def _question(entry: Mapping[str, Any]) -> Question:
    return Question(
        entry["question"].strip(),
        tuple(map(_option, entry.get("options") or ())),
        header=(entry.get("header") or "").strip(),
        multiple=bool(entry.get("multiple") or entry.get("multiSelect")),  # the latter as Claude Code calls it
        custom=entry.get("custom") is not False,
        kind=_KINDS.get(entry.get("kind") or "", "choice"),
        extra=_rest(entry, _QUESTION_FIELDS),
    )


def _option(entry: str | Mapping[str, Any]) -> Option:
    if isinstance(entry, str):  # as models often write it
        return Option(entry.strip())
    return Option(
        entry["label"].strip(),
        description=(entry.get("description") or "").strip(),
        recommended=entry.get("recommended") is True,
        extra=_rest(entry, _OPTION_FIELDS),
    )


def _rest(entry: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any] | None:
    """What we do not know, kept as it came."""
    return {key: value for key, value in entry.items() if key not in known} or None


# What is told -------------------------------------------------------------------------------------------------------


def to_result(ask: Ask) -> tuple[dict[str, Any], str]:
    """The result of a call about this ask: the JSON, and the sentence that says what to do with it."""
    answer = ask.answer
    if ask.state == "asked":
        return {"status": "pending", "request_id": ask.id}, (
            "Nobody has answered yet, and the question stays open. Call question_result with this request_id now, and "
            "again until it is answered. Do not ask it anew, and do not decide it yourself."
        )
    if answer is None:
        told = {"status": "withdrawn", "request_id": ask.id}
        if ask.withdrawn_reason:
            told["reason"] = ask.withdrawn_reason
        return told, "The question was taken back, so no answer will come. Go on without it."
    if answer.rejected:
        return _rejected(ask, answer)
    answers = [
        [question.label_of(value) for value in values]
        for question, values in zip(ask.questions, answer.answers or (), strict=False)
    ]
    result: dict[str, Any] = {"status": "answered", "answers": answers}
    if any(answer.notes):
        result["notes"] = list(answer.notes)
    said = "; ".join(_in_words(ask.questions[at], values, answer, at=at) for at, values in enumerate(answers))
    who = f" No person was asked: the policy {answer.by.removeprefix('policy:')} chose." if answer.by_policy else ""
    return result | {"request_id": ask.id}, f"The answer: {said}.{who}"


def _in_words(question: Question, values: Sequence[str], answer: Answer, *, at: int) -> str:
    chosen = ", ".join(f'"{value}"' for value in values) or "left open"
    note = answer.notes[at] if at < len(answer.notes) else None
    title = question.header or question.question.rpartition("\n\n")[2]
    return f"{title} → {chosen}" + (f" (note: {note})" if note else "")


def _rejected(ask: Ask, answer: Answer) -> tuple[dict[str, Any], str]:
    told: dict[str, Any] = {"status": "rejected", "request_id": ask.id}
    reason = (answer.reason or "").strip()
    if reason:
        told["reason"] = reason
    if answer.by_policy:
        return told, "No person decided this. Decide yourself, and note the assumption."
    if reason:
        return told, f"The person does not answer this, and says: {reason}"
    return told, "The person does not want to answer this. Go on without the answer, or ask something else."
