"""What an agent asks over ACP as asks, and answers as what it takes back. Pure: no process, no clock.

Version 1 of the protocol, and `_sandboxagent/session/request_question`, an extension of others for questions. What an
answer needs is kept in the ask, so that one that was stored can still be answered.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from handraise.agents.acp.quirks import Quirks
from handraise.asks import Answer, Ask, Option, Origin, Permission, Question, Scope
from handraise.errors import AskDoesNotFit
from handraise.forms import to_content, to_questions, to_visit

__all__ = ["METHODS", "Kind", "dismissed", "from_answer", "is_same_call", "to_ask", "told_later"]

Kind: TypeAlias = Literal["permission", "form", "question"]

METHODS: Mapping[str, Kind] = {
    "session/request_permission": "permission",
    "elicitation/create": "form",
    "_sandboxagent/session/request_question": "question",
}
ONCE, ALWAYS = "allow_once", "allow_always"
REFUSALS = ("reject_once", "reject_always")  # in the order in which they are taken
# Calls that change something. One of them is never a question, however odd its options are: a policy for questions
# would then answer for a permission.
EFFECTS = frozenset({"execute", "edit", "delete", "move", "fetch"})
SEPARATOR = ", "  # between several choices, where there is room for one text
LONGEST_SUMMARY = 200
MOST_COMPARED = 500  # lines of a text up to which a diff is worked out; above, it is shown as removed and added


def to_ask(
    kind: Kind, params: Mapping[str, Any], *, id: str, origin: Origin, call: Mapping[str, Any] | None = None
) -> Ask:
    """`call` is what the agent said before of the tool call that this is about. Raises AskDoesNotFit."""
    if kind == "permission":
        return _permission_to_ask(params, id=id, origin=origin, call=call or {})
    questions = _form(params) if kind == "form" else _questions(params)
    rest = _rest(params, ("sessionId", "message", "requestedSchema", "prompt", "options", "questions"))
    return Ask(id=id, questions=questions, origin=origin, extra={"kind": kind, **rest})


def from_answer(ask: Ask, answer: Answer, *, quirks: Quirks | None = None) -> dict[str, Any]:
    """The result of the agent's request. Raises AnswerDoesNotFit where its form does not take what was answered."""
    quirks = quirks or Quirks()
    kind = (ask.extra or {}).get("kind")
    rejected = answer.rejected or answer.reply == "reject"
    if kind == "form":
        if rejected:
            return {"action": "decline"}
        if (ask.extra or {}).get("mode") == "url":
            return {"action": "accept"}
        return {"action": "accept", "content": _content(ask, answer, quirks)}
    if kind == "question":
        return {"status": "rejected"} if rejected else {"status": "answered", "answers": _values(ask, answer)}
    options = _options(ask.extra or {})
    if rejected:
        return _refused(options, quirks=quirks)
    if ask.permission is not None:
        return _selected(_granting(options, answer))
    if (ask.extra or {}).get("asks") == "options":
        chosen = next((each for each in ask.questions[0].options if each.value == answer.value), None)
        return _selected((chosen.extra or {}).get("optionId") if chosen is not None else None)
    answers = {
        str(number): SEPARATOR.join(map(question.label_of, values))
        for number, (question, values) in enumerate(zip(ask.questions, answer.answers or (), strict=False))
        if values
    }
    return {**_selected(_granting(options, Answer(reply="once"))), "answers": answers}


def dismissed(kind: Kind) -> dict[str, Any]:
    """What the agent gets where nobody will answer: its turn was cancelled, or the ask was withdrawn."""
    match kind:
        case "permission":
            return {"outcome": {"outcome": "cancelled"}}
        case "form":
            return {"action": "cancel"}
        case "question":
            return {"status": "rejected"}


def told_later(ask: Ask, answer: Answer) -> str:
    """What the agent is told in a prompt where the request that asked is gone."""
    who = "A subagent of yours" if ask.origin.parent and "/" in ask.origin.session else "You"
    refused = (answer.reason or "no reason was given").strip() if answer.rejected else ""
    if ask.permission is None:
        asked = "; ".join(f'"{question.question}"' for question in ask.questions)
        if refused:
            return f"{who} asked: {asked}. That was not answered: {refused}"
        pairs = zip(ask.questions, answer.answers or (), strict=False)
        words = "; ".join(f'"{SEPARATOR.join(map(q.label_of, values))}"' for q, values in pairs if values)
        return f"{who} asked: {asked}; the answer is: {words}."
    permission = ask.permission
    wanted = permission.summary or permission.tool
    if permission.input:
        wanted += f" ({permission.tool} with the input {json.dumps(permission.input, ensure_ascii=False)})"
    if refused:
        return f"{who} asked to be allowed: {wanted}. That was refused: {refused}"
    return f"{who} asked to be allowed: {wanted}. That is allowed: do exactly that again, it was not done."


def is_same_call(ask: Ask, other: Ask) -> bool:
    """Whether both want exactly the same thing done. A call of which only a title is known is like no other."""
    one, two = ask.permission, other.permission
    if one is None or two is None or not (one.input or one.command or one.diff):
        return False
    return _bare(one) == _bare(two)


def _bare(permission: Permission) -> Permission:
    return replace(permission, replies=(), scopes=(), extra=None)


# Permissions --------------------------------------------------------------------------------------------------------


def _permission_to_ask(params: Mapping[str, Any], *, id: str, origin: Origin, call: Mapping[str, Any]) -> Ask:
    said = params.get("toolCall")
    if not isinstance(said, Mapping):
        raise AskDoesNotFit("the permission names no tool call; give `toolCall`")
    tool = {**call, **{key: value for key, value in said.items() if value is not None}}
    options = _options(params)
    known = ("sessionId", "toolCall", "options")
    extra = {"kind": "permission", "options": options, "toolCallId": tool.get("toolCallId"), **_rest(params, known)}
    questions = _mapping(tool, "rawInput").get("questions")
    if isinstance(questions, list) and questions and not _has_effect(tool):
        asked = tuple(_question(entry, number=number) for number, entry in enumerate(questions, start=1))
        return Ask(id=id, questions=asked, origin=origin, extra={**extra, "asks": "questions"})
    if not options:
        raise AskDoesNotFit("the permission offers no options; give at least one with `optionId`, `name` and `kind`")
    if _is_choice(options, tool):
        return Ask(id=id, questions=(_choice(options, tool),), origin=origin, extra={**extra, "asks": "options"})
    return Ask(id=id, permission=_permission(tool, options, origin=origin), origin=origin, extra=extra)


def _has_effect(tool: Mapping[str, Any]) -> bool:
    return tool.get("kind") in EFFECTS or _command(tool) is not None or any(_changes(tool))


def _is_choice(options: Sequence[Mapping[str, Any]], tool: Mapping[str, Any]) -> bool:
    """Agents that cannot ask otherwise make each choice an option; allowing that without a choice is an error."""
    if _has_effect(tool):
        return False
    kinds = [each.get("kind") for each in options]
    is_plain = all(kind in (ONCE, ALWAYS, *REFUSALS) for kind in kinds)
    return not is_plain or kinds.count(ONCE) > 1 or not {ONCE, ALWAYS} & set(kinds)


def _choice(options: Sequence[Mapping[str, Any]], tool: Mapping[str, Any]) -> Question:
    """Those that refuse are no choices: a rejection takes them. Unless there are no others."""
    offered = [each for each in options if each.get("kind") not in REFUSALS] or list(options)
    title = _text(tool, "title") or "Which one?"
    return Question(
        "\n".join(dict.fromkeys((title, *_words(tool)))),
        tuple(
            Option(_name(each), value=each["optionId"], extra={"optionId": each["optionId"], "kind": each.get("kind")})
            for each in offered
        ),
        header=_line(title),
        custom=False,
    )


def _permission(tool: Mapping[str, Any], options: Sequence[Mapping[str, Any]], *, origin: Origin) -> Permission:
    given = _mapping(tool, "rawInput")
    kinds = [each.get("kind") for each in options]
    scopes = tuple(Scope(id=each["optionId"], label=_name(each)) for each in _wider(options))
    command, plan = _command(tool), _text(given, "plan")
    changes = list(_changes(tool))
    locations = tool.get("locations")
    paths = [_text(each, "path") for each in locations] if isinstance(locations, list) else []
    paths += [_text(each, "path") for each in changes]
    is_plan = tool.get("kind") == "switch_mode" and plan != ""
    first = next((line.strip("# ").strip() for line in plan.splitlines() if line.strip("# ").strip()), "")
    title = _text(tool, "title") or _tool_name(tool)
    kept = ("rawInput", "rawOutput", "title", "status", "locations", "sessionUpdate")
    rest = _rest(tool, kept)
    if changes:  # they are the diff
        content = rest["content"]
        rest["content"] = [each for each in content if not (isinstance(each, Mapping) and each.get("type") == "diff")]
    return Permission(
        tool=_tool_name(tool),
        kind="plan" if is_plan else "tool",
        summary=_line(f"Plan: {first}" if is_plan and first else command or title),
        command=command,
        paths=tuple(dict.fromkeys(path for path in paths if path)),
        diff="\n".join(line for change in changes for line in _diff(change)) or None,
        cwd=origin.cwd,
        url=_text(given, "url") or None,
        input=dict(given) or None,
        replies=(*(("once",) if ONCE in kinds else ()), *(("always",) if scopes else ()), "reject"),
        scopes=scopes,
        extra={"title": title, **rest},
    )


def _options(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those that can be answered at all, as they came."""
    given = params.get("options")
    return (
        [dict(each) for each in given if isinstance(each, Mapping) and _text(each, "optionId")]
        if isinstance(given, list)
        else []
    )


def _wider(options: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """What is more than once: what the agent calls so, and after that what it does not call anything we know. So no
    option can be taken without being named by a person, except one that says to be for once."""
    yield from (each for each in options if each.get("kind") == ALWAYS)
    yield from (each for each in options if each.get("kind") not in (ONCE, ALWAYS, *REFUSALS))
    yield from [each for each in options if each.get("kind") == ONCE][1:]


def _granting(options: Sequence[Mapping[str, Any]], answer: Answer) -> str | None:
    if answer.reply == "always":
        wider = [str(each["optionId"]) for each in _wider(options)]
        return answer.scope if answer.scope in wider else next(iter(wider), None)
    kinds = {each.get("kind"): str(each["optionId"]) for each in reversed(options)}
    return kinds.get(ONCE)


def _selected(id: str | None) -> dict[str, Any]:
    """What cannot be chosen is refused: an option that was never offered would be anybody's guess."""
    return {"outcome": {"outcome": "selected", "optionId": id}} if id is not None else dismissed("permission")


def _refused(options: Sequence[Mapping[str, Any]], *, quirks: Quirks) -> dict[str, Any]:
    if quirks.cancels_on_reject:
        return dismissed("permission")
    refusals = [str(each["optionId"]) for kind in REFUSALS for each in options if each.get("kind") == kind]
    return _selected(next(iter(refusals), None))


def _tool_name(tool: Mapping[str, Any]) -> str:
    claude = _mapping(_mapping(tool, "_meta"), "claudeCode")
    return _text(tool, "name") or _text(claude, "toolName") or _text(tool, "kind") or "tool"


def _command(tool: Mapping[str, Any]) -> str | None:
    """Gemini sends no input at all: there the title is the command. Elsewhere it may be what the model says of it."""
    given = tool.get("rawInput")
    command = given.get("command") if isinstance(given, Mapping) else None
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        return shlex.join(command)
    if isinstance(command, str) and command:
        return command
    return _text(tool, "title") or None if tool.get("kind") == "execute" and not given else None


def _changes(tool: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    content = tool.get("content")
    for each in content if isinstance(content, list) else ():
        if isinstance(each, Mapping) and each.get("type") == "diff" and isinstance(each.get("newText"), str):
            yield each


def _diff(change: Mapping[str, Any]) -> list[str]:
    path, before, after = _text(change, "path"), _text(change, "oldText").splitlines(), change["newText"].splitlines()
    if before and max(len(before), len(after)) <= MOST_COMPARED:
        hunks = list(difflib.unified_diff(before, after, lineterm=""))[2:]
    else:
        head = f"@@ -{min(len(before), 1)},{len(before)} +{min(len(after), 1)},{len(after)} @@"
        hunks = [head, *(f"-{line}" for line in before), *(f"+{line}" for line in after)]
    return [f"--- {path}", f"+++ {path}", *hunks]


def _words(tool: Mapping[str, Any]) -> Iterator[str]:
    """What the call says besides its title."""
    content = tool.get("content")
    for each in content if isinstance(content, list) else ():
        text = _text(_mapping(each, "content"), "text") if isinstance(each, Mapping) else ""
        if text:
            yield text


def _name(option: Mapping[str, Any]) -> str:
    return _text(option, "name") or str(option["optionId"])


# Questions ----------------------------------------------------------------------------------------------------------


def _form(params: Mapping[str, Any]) -> tuple[Question, ...]:
    message = _text(params, "message")
    if params.get("mode") == "url":
        return to_visit(_text(params, "url"), message=message)
    return to_questions(params.get("requestedSchema"), message=message, companions=True)


def _content(ask: Ask, answer: Answer, quirks: Quirks) -> dict[str, Any]:
    content = to_content(ask.questions, answer.answers or ())
    if not quirks.takes_notes:
        return content
    for question, note in zip(ask.questions, answer.notes, strict=False):
        companion = _mapping(question.extra or {}, "form").get("companion")
        if note and companion and companion not in content and not question.multiple:
            content[companion] = note
    return content


def _questions(params: Mapping[str, Any]) -> tuple[Question, ...]:
    """Either of the two shapes in which the extension is sent: one prompt, or questions as OpenCode has them."""
    entries = params.get("questions")
    if isinstance(entries, list) and entries:
        return tuple(_question(entry, number=number) for number, entry in enumerate(entries, start=1))
    prompt = _text(params, "prompt")
    if not prompt:
        raise AskDoesNotFit("the question has no text; give `prompt`, or `questions`")
    return (_question({"question": prompt, "options": params.get("options")}, number=1),)


def _question(entry: Any, *, number: int) -> Question:
    if not isinstance(entry, Mapping) or not _text(entry, "question"):
        raise AskDoesNotFit(f"question {number} has no text")
    options = entry.get("options") or []
    if not isinstance(options, list):
        raise AskDoesNotFit(f"the options of question {number} are not a list")
    known = ("question", "header", "options", "multiSelect", "multiple", "custom")
    return Question(
        entry["question"],
        tuple(_option(option, number=number) for option in options),
        header=_text(entry, "header"),
        multiple=entry.get("multiSelect") is True or entry.get("multiple") is True,
        custom=entry.get("custom") is not False,
        extra=_rest(entry, known) or None,
    )


def _option(entry: Any, *, number: int) -> Option:
    match entry:
        case str(label) if label:
            return Option(label)
        case [str(id), str(label)] if id or label:
            return Option(label or id, value=id or label)
        case {"label": str(label)} if label:
            return Option(
                label,
                description=_text(entry, "description"),
                value=_text(entry, "id"),
                extra=_rest(entry, ("id", "label", "description")) or None,
            )
    raise AskDoesNotFit(f"an option of question {number} has no label")


def _values(ask: Ask, answer: Answer) -> list[list[str]]:
    return [list(values) for values in answer.answers or ()]


# Reading ------------------------------------------------------------------------------------------------------------


def _text(mapping: Any, key: str) -> str:
    value = mapping.get(key) if isinstance(mapping, Mapping) else None
    return value if isinstance(value, str) else ""


def _mapping(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = mapping.get(key)
    return value if isinstance(value, Mapping) else {}


def _rest(entry: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """What we do not know, kept as it came."""
    return {key: value for key, value in entry.items() if key not in known}


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_SUMMARY else f"{line[: LONGEST_SUMMARY - 1]}…"
