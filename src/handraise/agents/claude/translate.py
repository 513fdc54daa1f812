"""Claude Code's requests as asks, and answers as what it takes back. Pure: no process, no clock.

A question, a plan and a permission are one thing on its wire: a tool that may not run yet (`can_use_tool`, or the hook
`PermissionRequest`). Seen in 2.1.197 to 2.1.325.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from handraise.agents import _phrases as wording
from handraise.asks import Answer, Ask, Kind, Option, Origin, Permission, Question, Scope
from handraise.asks.forms import to_content, to_questions, to_visit
from handraise.errors import AskDoesNotFit
from handraise.rules.tools import named_paths
from handraise.transports.loose_json import hunks, mapping_of, one_line, rest_of, text_of

__all__ = [
    "PLAN",
    "QUESTION",
    "form_to_ask",
    "from_answer",
    "from_form_answer",
    "is_same_call",
    "local_answer",
    "to_ask",
    "told_later",
]

QUESTION, PLAN = "AskUserQuestion", "ExitPlanMode"
NOTES_ONLY = "(notes only)"  # what the terminal sends for a question with a note and no choice
SEPARATOR = ", "  # between the labels of several choices; also what the terminal writes

_KINDS: Mapping[str, Kind] = {"choice": "choice", "text": "text", "number": "number"}
_FILES = {
    "localSettings": "in .claude/settings.local.json of this project",
    "projectSettings": "in .claude/settings.json of this project, for everybody",
    "userSettings": "in ~/.claude/settings.json, for all your projects",
}
_MODES = {
    "acceptEdits": "and accept edits from then on",
    "auto": "and let its own classifier decide from then on",
    "bypassPermissions": "and ask for nothing from then on",
    "default": "and ask as it does by itself from then on",
    "dontAsk": "and refuse what is not allowed yet from then on",
    "plan": "and only plan from then on",
}
_ACCEPT_EDITS = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}


def to_ask(tool_name: str, tool_input: Any, *, id: str, origin: Origin, fields: Mapping[str, Any] | None = None) -> Ask:
    """What a tool call that waits asks for. `fields` are the rest of the request. Raises AskDoesNotFit."""
    if not isinstance(tool_input, Mapping):
        raise AskDoesNotFit(f"the input of {tool_name} is not an object")
    if tool_name == QUESTION:
        return Ask(id=id, questions=_questions(tool_input), origin=origin, extra={"input": dict(tool_input)})
    if tool_name == PLAN:
        return Ask(id=id, permission=_plan(tool_input, origin=origin), origin=origin)
    return Ask(id=id, permission=_permission(tool_name, tool_input, origin=origin, fields=fields or {}), origin=origin)


def from_answer(ask: Ask, answer: Answer) -> dict[str, Any]:
    """What Claude takes: `behavior` allow with `updatedInput` and perhaps `updatedPermissions`, or deny with a message.

    The same object answers `can_use_tool` and is the `decision` of a PermissionRequest hook. A refusal never stops the
    turn. Whatever would be invalid there is a refusal here, since an invalid reply burns the request.
    """
    if answer.rejected or answer.reply == "reject":
        return {"behavior": "deny", "message": wording.refusal(ask, answer)}
    if ask.permission is None:
        return {"behavior": "allow", "updatedInput": _answered(ask, answer)}
    permission = ask.permission
    given = dict(permission.input or {})
    edited = given if answer.input is None else dict(answer.input)
    if given and not edited:  # Claude takes an empty input for the original one
        return {"behavior": "deny", "message": "It was allowed with an empty input, which is no call; nothing was run."}
    if permission.kind == "plan":
        edited = {**(permission.extra or {}).get("input", {}), **edited}
    allowed: dict[str, Any] = {"behavior": "allow", "updatedInput": edited}
    if answer.reply == "always" and (updates := _updates(permission, answer)):
        allowed["updatedPermissions"] = updates
    return allowed


def local_answer(ask: Ask, tool_input: Any, tool_response: Any) -> Answer:
    """What the person chose in the terminal, as far as a PostToolUse hook tells it."""
    given = tool_input if isinstance(tool_input, Mapping) else {}
    if ask.permission is not None:
        wanted = dict(ask.permission.input or {})
        ran = {key: given[key] for key in wanted if key in given} if ask.permission.kind == "plan" else dict(given)
        return Answer(reply="once", input=ran if ran and ran != wanted else None, by="agent", via="agent")
    said = tool_response if isinstance(tool_response, Mapping) else given
    chosen, annotations = mapping_of(said, "answers"), mapping_of(said, "annotations")
    answers: list[tuple[str, ...]] = []
    notes: list[str | None] = []
    for question in ask.questions:
        text = chosen.get(question.question)
        answers.append(_choices(question, text) if isinstance(text, str) else ())
        notes.append(text_of(mapping_of(annotations, question.question), "notes") or None)
    if not any(answers) and (response := text_of(said, "response")):
        answers[0] = (response,)
    return Answer(
        answers=tuple(answers),
        notes=tuple(notes) if any(notes) else (),
        by="agent",
        via="agent",
    )


def form_to_ask(fields: Mapping[str, Any], *, id: str, origin: Origin) -> Ask:
    """What an MCP server wants filled in. Raises AskDoesNotFit."""
    message = text_of(fields, "message")
    if fields.get("mode") == "url":
        questions = to_visit(text_of(fields, "url"), message=message)
    else:
        order = fields.get("property_order")
        questions = to_questions(
            fields.get("requested_schema"), message=message, order=order if isinstance(order, list) else None
        )
    known = ("subtype", "message", "mode", "url", "requested_schema", "property_order")
    return Ask(id=id, questions=questions, origin=origin, extra=rest_of(fields, known))


def from_form_answer(ask: Ask, answer: Answer) -> dict[str, Any]:
    """The reply to an elicitation. Raises AnswerDoesNotFit where the form does not take what was answered."""
    if answer.rejected or answer.answers is None:
        return {"action": "decline"}
    return {"action": "accept", "content": to_content(ask.questions, answer.answers)}


def told_later(ask: Ask, answer: Answer) -> str:
    """What Claude is told in a prompt where the call that asked is gone."""
    permission = ask.permission
    if permission is not None and permission.kind == "plan":
        presented = f"You presented a plan with {permission.tool}."
        if answer.rejected:
            return f"{presented} It was not approved: {wording.refusal(ask, answer)}"
        return f"{presented} It was approved: call {permission.tool} once more, with the same plan, and go on."
    wanted = ""
    if permission is not None:
        wanted = f"to call {permission.tool} with the input {json.dumps(permission.input, ensure_ascii=False)}"
    answered = f"; the answer is: {_in_words(ask, answer)}."
    again = "make exactly that call again, it was not run"
    return wording.told_later(ask, answer, wanted=wanted, answered=answered, again=again)


def is_same_call(ask: Ask, tool_name: str, tool_input: Any) -> bool:
    """Whether this call is the one that the ask was about."""
    permission = ask.permission
    if permission is None or permission.tool != tool_name or not isinstance(tool_input, Mapping):
        return False
    wanted = dict(permission.input or {})
    if permission.kind == "plan":
        return wanted == _plan_input(tool_input)
    return wanted == dict(tool_input)


# Questions ----------------------------------------------------------------------------------------------------------


def _questions(tool_input: Mapping[str, Any]) -> tuple[Question, ...]:
    entries = tool_input.get("questions")
    if not isinstance(entries, list) or not entries:
        raise AskDoesNotFit(f"{QUESTION} has no questions; give a list of at least one")
    questions = tuple(_question(entry, number=number) for number, entry in enumerate(entries, start=1))
    if len({question.question for question in questions}) < len(questions):
        raise AskDoesNotFit("two questions have the same text, so an answer could not tell them apart; reword one")
    return questions


def _question(entry: Any, *, number: int) -> Question:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("question"), str):
        raise AskDoesNotFit(f"question {number} has no text")
    options = entry.get("options") or []
    if not isinstance(options, list):
        raise AskDoesNotFit(f"the options of question {number} are not a list")
    known = ("question", "header", "options", "multiSelect", "kind")
    return Question(
        entry["question"],
        tuple(_option(option, number=number) for option in options),
        header=text_of(entry, "header"),
        multiple=entry.get("multiSelect") is True,
        kind=_KINDS.get(text_of(entry, "kind"), "choice"),
        extra=rest_of(entry, known),
    )


def _option(entry: Any, *, number: int) -> Option:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("label"), str):
        raise AskDoesNotFit(f"an option of question {number} has no label")
    return Option(
        entry["label"],
        description=text_of(entry, "description"),
        preview=text_of(entry, "preview") or None,
        extra=rest_of(entry, ("label", "description", "preview")),
    )


def _answered(ask: Ask, answer: Answer) -> dict[str, Any]:
    """The tool's input with the answers in it: strings only, keyed by the exact text of the question."""
    answers: dict[str, str] = {}
    annotations: dict[str, dict[str, str]] = {}
    notes = answer.notes or (None,) * len(ask.questions)
    for question, values, note in zip(ask.questions, answer.answers or (), notes, strict=False):
        if not values and not note:
            continue
        labels = [question.label_of(value) for value in values]
        answers[question.question] = SEPARATOR.join(labels) or NOTES_ONLY
        said = [note] if note else []
        if len(labels) > 1 and any(SEPARATOR in label for label in labels):
            said.append("chosen: " + "; ".join(f'"{label}"' for label in labels))
        if answer.by_policy and len(answers) == 1:
            said.append(wording.by_policy(answer))
        annotation: dict[str, str] = {}
        if said:
            annotation["notes"] = "; ".join(said)
        if preview := _preview(question, values):
            annotation["preview"] = preview
        if annotation:
            annotations[question.question] = annotation
    updated = {**(ask.extra or {}).get("input", {}), "answers": answers}
    updated.pop("annotations", None)  # the model has no say in these
    if annotations:
        updated["annotations"] = annotations
    return updated


def _preview(question: Question, values: Sequence[str]) -> str | None:
    """Of one choice; Claude has no place for those of several."""
    return next((option.preview for option in question.options if (option.value,) == tuple(values)), None)


def _choices(question: Question, text: str) -> tuple[str, ...]:
    """The choices in a text that joins labels, which may themselves hold the separator; else it is own text."""
    if text == NOTES_ONLY:
        return ()
    if question.value_of(text) is not None or not question.multiple:
        return (question.value_of(text) or text,)
    parts = text.split(SEPARATOR)
    found: list[str] = []
    while parts:
        for length in range(len(parts), 0, -1):
            label = SEPARATOR.join(parts[:length])
            if question.value_of(label) is not None or length == 1:
                found.append(question.value_of(label) or label)
                parts = parts[length:]
                break
    return tuple(dict.fromkeys(found))


def _in_words(ask: Ask, answer: Answer) -> str:
    updated = _answered(ask, answer) if (ask.extra or {}).get("input") else None
    if updated is None:  # a form of an MCP server
        pairs = zip(ask.questions, answer.answers or (), strict=False)
        return "; ".join(f'"{SEPARATOR.join(map(q.label_of, values))}"' for q, values in pairs if values)
    words = []
    for text, chosen in updated["answers"].items():
        note = updated.get("annotations", {}).get(text, {}).get("notes")
        words.append(f'"{chosen}"' + (f" (note: {note})" if note else ""))
    return "; ".join(words)


# Permissions --------------------------------------------------------------------------------------------------------


def _plan(tool_input: Mapping[str, Any], *, origin: Origin) -> Permission:
    plan = text_of(tool_input, "plan")
    first = next((line.strip("# ").strip() for line in plan.splitlines() if line.strip("# ").strip()), "")
    scope = Scope(id="mode:acceptEdits", label=_MODES["acceptEdits"])
    return Permission(
        tool=PLAN,
        kind="plan",
        summary=one_line(f"Plan: {first}" if first else "A plan without a text"),
        cwd=origin.cwd,
        input=_plan_input(tool_input),
        replies=("once", "always", "reject"),
        scopes=(scope,),
        editable=True,
        extra={"input": rest} if (rest := rest_of(tool_input, ("plan",))) else None,
    )


def _plan_input(tool_input: Mapping[str, Any]) -> dict[str, Any]:
    return {"plan": tool_input["plan"]} if "plan" in tool_input else {}


def _permission(tool: str, given: Mapping[str, Any], *, origin: Origin, fields: Mapping[str, Any]) -> Permission:
    known = ("subtype", "tool_name", "input", "tool_use_id", "agent_id")
    suggestions = list(_suggestions(fields))
    scopes = tuple(scope for scope, _ in _scopes(suggestions))
    command = text_of(given, "command") or None
    more = () if command is not None else named_paths(given, tool=tool)
    paths = dict.fromkeys(path for path in (*_paths(given), *more, text_of(fields, "blocked_path")) if path)
    return Permission(
        tool=tool,
        summary=_summary(tool, given, fields=fields),
        command=command,
        paths=tuple(paths),
        diff=_diff(given),
        cwd=origin.cwd,
        url=text_of(given, "url") or None,
        input=dict(given),
        replies=("once", "always", "reject") if scopes else ("once", "reject"),
        scopes=scopes,
        editable=True,
        extra=rest_of(fields, known),
    )


def _paths(given: Mapping[str, Any]) -> Iterator[str]:
    for key in ("file_path", "notebook_path", "path"):
        yield text_of(given, key)


def _summary(tool: str, given: Mapping[str, Any], *, fields: Mapping[str, Any]) -> str:
    """One line that a person understands, out of what will happen rather than out of what the model says about it."""
    path = next((path for path in _paths(given) if path), "")
    server = text_of(mapping_of(fields, "mcp_server"), "name")
    match tool:
        case "Bash" | "PowerShell":
            line = text_of(given, "command") or "Run a command"
        case "Edit" | "MultiEdit" | "NotebookEdit":
            line = f"Change {path}"
        case "Write":
            line = f"Write {path}"
        case "Read":
            line = f"Read {path}"
        case "Glob" | "Grep":
            line = f"Search for {text_of(given, 'pattern')}" + (f" in {path}" if path else "")
        case "WebFetch":
            line = f"Fetch {text_of(given, 'url')}"
        case "WebSearch":
            line = f"Search the web for {text_of(given, 'query')}"
        case "Agent" | "Task":
            line = f"Start a subagent: {text_of(given, 'description')}"
        case _ if server:
            line = f"Call {text_of(fields, 'display_name') or tool} of the MCP server {server}"
        case _:
            line = f"Use {text_of(fields, 'display_name') or tool}" + (f" on {path}" if path else "")
    return one_line(line)


def _diff(given: Mapping[str, Any]) -> str | None:
    """The change to a file where the input holds it. What a file held before a Write is not known here."""
    path = next((path for path in _paths(given) if path), "")
    if not path:
        return None
    edits = given.get("edits")
    changes = [each for each in edits if isinstance(each, Mapping)] if isinstance(edits, list) else [given]
    lines: list[str] = []
    for change in changes:
        old, new = change.get("old_string"), change.get("new_string")
        if not isinstance(new, str):
            old, new = "", change.get("content", change.get("new_source"))
        if isinstance(new, str):
            own = text_of(change, "file_path")
            lines += [f"--- {own}", f"+++ {own}"] if own not in ("", path) else []
            lines += hunks(old if isinstance(old, str) else "", new)
    return "\n".join([f"--- {path}", f"+++ {path}", *lines]) if lines else None


# How far an `always` reaches ----------------------------------------------------------------------------------------


class _Update(NamedTuple):
    """One permission update that Claude suggested, and the patterns it would allow."""

    entry: Mapping[str, Any]
    patterns: tuple[str, ...] = ()


def _suggestions(fields: Mapping[str, Any]) -> Iterator[_Update]:
    """Those that allow something; rules that refuse are no answer to a request for permission."""
    suggested = fields.get("permission_suggestions")
    for entry in suggested if isinstance(suggested, list) else ():
        if not isinstance(entry, Mapping):
            continue
        match entry.get("type"):
            case "addRules" if entry.get("behavior", "allow") == "allow" and isinstance(entry.get("rules"), list):
                yield _Update(entry, tuple(_rule_text(rule) for rule in entry["rules"]))
            case "addDirectories" if isinstance(entry.get("directories"), list):
                yield _Update(entry, tuple(str(each) for each in entry["directories"]))
            case "setMode" if isinstance(entry.get("mode"), str):
                yield _Update(entry)


def _scopes(suggestions: Sequence[_Update]) -> Iterator[tuple[Scope, list[_Update]]]:
    """Each scope with the updates it means: first this session, then the settings files, then a mode."""
    adding = [update for update in suggestions if update.entry["type"] != "setMode"]
    if adding:
        yield _scope("session", "for this session", adding), [_sent_to("session", update) for update in adding]
    for file, where in _FILES.items():
        if any(update.entry.get("destination") == file for update in adding):
            updates = [update for update in adding if update.entry.get("destination") in (file, "session")]
            yield _scope(file, f"from now on, {where}", updates), updates
    for update in suggestions:
        if update.entry["type"] == "setMode":
            mode = update.entry["mode"]
            label = _MODES.get(mode, f"and go on in the mode {mode}")
            yield Scope(id=f"mode:{mode}", label=label), [_sent_to("session", update)]


def _scope(id: str, label: str, updates: Sequence[_Update]) -> Scope:
    patterns = dict.fromkeys(pattern for update in updates for pattern in update.patterns)
    return Scope(id=id, label=label, patterns=tuple(patterns))


def _sent_to(destination: str, update: _Update) -> _Update:
    return update._replace(entry={**update.entry, "destination": destination})


def _rule_text(rule: Any) -> str:
    """As Claude writes a rule in its settings: `Bash(touch:*)`, or the tool alone."""
    tool, content = text_of(rule, "toolName"), text_of(rule, "ruleContent")
    return f"{tool}({content})" if content else tool


def _updates(permission: Permission, answer: Answer) -> list[dict[str, Any]]:
    """What an `always` tells Claude to remember: the scope that was chosen, else the first."""
    if permission.kind == "plan":
        return [dict(_ACCEPT_EDITS)]
    offered = _scopes(list(_suggestions(permission.extra or {})))
    chosen = next((updates for scope, updates in offered if answer.scope in (None, scope.id)), [])
    narrowed = [_narrowed(update, answer.patterns) for update in chosen]
    return [entry for entry in narrowed if entry is not None]


def _narrowed(update: _Update, patterns: tuple[str, ...] | None) -> dict[str, Any] | None:
    entry = dict(update.entry)
    if patterns is None or not update.patterns:
        return entry
    key = "rules" if entry["type"] == "addRules" else "directories"
    kept = [each for each, pattern in zip(entry[key], update.patterns, strict=True) if pattern in patterns]
    return {**entry, key: kept} if kept else None
