"""What an agent asks over ACP as asks, and answers as what it takes back. Pure: no process, no clock.

Version 1 of the protocol, and `_sandboxagent/session/request_question`, an extension of others for questions. What an
answer needs is kept in the ask, so that one that was stored can still be answered.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from handraise.agents import _phrases as wording
from handraise.agents.acp.quirks import Quirks
from handraise.asks import Answer, Ask, Option, Origin, Permission, Question, Scope
from handraise.asks.forms import to_content, to_questions, to_visit
from handraise.errors import AskDoesNotFit
from handraise.rules.tools import folder_in, hides_command, line_of, named_paths
from handraise.transports.loose_json import hunks, mapping_of, one_line, rest_of, text_of

__all__ = ["METHODS", "Kind", "detail_of", "dismissed", "from_answer", "is_same_call", "to_ask", "told_later"]

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
SAID_BEFORE = "command said before"  # a name of ours
SEPARATOR = ", "  # between several choices, where there is room for one text


def to_ask(
    kind: Kind,
    params: Mapping[str, Any],
    *,
    id: str,
    origin: Origin,
    call: Mapping[str, Any] | None = None,
    quirks: Quirks | None = None,
) -> Ask:
    """`call` is what the agent said before of the tool call that this is about. Raises AskDoesNotFit."""
    if kind == "permission":
        return _permission_to_ask(params, id=id, origin=origin, call=call or {}, quirks=quirks or Quirks())
    questions = _form(params) if kind == "form" else _questions(params)
    known = ("sessionId", "message", "requestedSchema", "prompt", "options", "questions")
    return Ask(id=id, questions=questions, origin=origin, extra={"kind": kind, **(rest_of(params, known) or {})})


def from_answer(ask: Ask, answer: Answer, *, quirks: Quirks | None = None) -> dict[str, Any]:
    """The result of the agent's request. Raises AnswerDoesNotFit where its form does not take what was answered.

    Its `_meta` says so where no person decided.
    """
    result = _result(ask, answer, quirks or Quirks())
    if not answer.by_policy:
        return result
    is_refused = answer.rejected or answer.reply == "reject"
    said = wording.refusal(ask, answer) if is_refused else wording.by_policy(answer)
    return {**result, "_meta": {"handraise": {"by": answer.by, "reason": said}}}


def _result(ask: Ask, answer: Answer, quirks: Quirks) -> dict[str, Any]:
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
    wanted = ""
    if ask.permission is not None:
        wanted = f"to be allowed: {ask.permission.summary or ask.permission.tool}"
        if ask.permission.input:
            given = json.dumps(ask.permission.input, ensure_ascii=False)
            wanted += f" ({ask.permission.tool} with the input {given})"
    pairs = zip(ask.questions, answer.answers or (), strict=False)
    words = "; ".join(f'"{SEPARATOR.join(map(q.label_of, values))}"' for q, values in pairs if values)
    again = "do exactly that again, it was not done"
    return wording.told_later(ask, answer, wanted=wanted, answered=f"; the answer is: {words}.", again=again)


def is_same_call(ask: Ask, other: Ask) -> bool:
    """Whether both want exactly the same thing done. A call of which only a title is known is like no other."""
    one, two = ask.permission, other.permission
    if one is None or two is None or not (one.input or one.command or one.diff):
        return False
    return _bare(one) == _bare(two)


def _bare(permission: Permission) -> Permission:
    return replace(permission, replies=(), scopes=(), extra=None, resolved=None, resolved_cwd=None)


# Permissions --------------------------------------------------------------------------------------------------------


def _permission_to_ask(
    params: Mapping[str, Any], *, id: str, origin: Origin, call: Mapping[str, Any], quirks: Quirks
) -> Ask:
    said = params.get("toolCall")
    if not isinstance(said, Mapping):
        raise AskDoesNotFit("the permission names no tool call; give `toolCall`")
    tool = {**call, **{key: value for key, value in said.items() if value is not None}}
    if not tool.get("rawInput") and (given := _given(call, said, quirks)) is not None:
        tool["rawInput"] = given
    tool = _with_all_input(tool, call)
    options = _options(params)
    known = ("sessionId", "toolCall", "options")
    extra = {"kind": "permission", "options": options, "toolCallId": tool.get("toolCallId")}
    extra |= rest_of(params, known) or {}
    questions = mapping_of(tool, "rawInput").get("questions")
    if isinstance(questions, list) and questions and not _has_effect(tool):
        asked = tuple(_question(entry, number=number) for number, entry in enumerate(questions, start=1))
        return Ask(id=id, questions=asked, origin=origin, extra={**extra, "asks": "questions"})
    if not options:
        raise AskDoesNotFit("the permission offers no options; give at least one with `optionId`, `name` and `kind`")
    if _is_choice(options, tool):
        return Ask(id=id, questions=(_choice(options, tool),), origin=origin, extra={**extra, "asks": "options"})
    return Ask(id=id, permission=_permission(tool, options, origin=origin), origin=origin, extra=extra)


def _with_all_input(tool: dict[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """With what is no object as an argument of its own, and with a command that was said before and is another now.
    The agent may run either."""
    given = tool.get("rawInput")
    if given and not isinstance(given, Mapping):
        tool["rawInput"] = given = {"rawInput": given}
    before, now = _command(call), _command(tool)
    if before is not None and before != now and not (now or "").startswith(before):  # it may have come in pieces
        tool["rawInput"] = {**(given or {}), SAID_BEFORE: before}
    return tool


def _given(call: Mapping[str, Any], said: Mapping[str, Any], quirks: Quirks) -> dict[str, Any] | None:
    """The input of a call, in an agent that is known to say it elsewhere. A title is what the model says, otherwise."""
    if quirks.title_is_command and said.get("kind") == "execute" and text_of(said, "title"):
        return {"command": said["title"]}
    if not quirks.arguments_in_content:
        return None
    try:
        given = json.loads("".join(_words(call)))
    except ValueError:  # it came in pieces, and some are missing
        return None
    return given if isinstance(given, dict) else None


def _has_effect(tool: Mapping[str, Any]) -> bool:
    return text_of(tool, "kind") in EFFECTS or _command(tool) is not None or any(_changes(tool))


def _is_choice(options: Sequence[Mapping[str, Any]], tool: Mapping[str, Any]) -> bool:
    """Agents that cannot ask otherwise make each choice an option; allowing that without a choice is an error."""
    if _has_effect(tool):
        return False
    kinds = [text_of(each, "kind") for each in options]
    is_plain = all(kind in (ONCE, ALWAYS, *REFUSALS) for kind in kinds)
    return not is_plain or kinds.count(ONCE) > 1 or not {ONCE, ALWAYS} & set(kinds)


def _choice(options: Sequence[Mapping[str, Any]], tool: Mapping[str, Any]) -> Question:
    """Those that refuse are no choices: a rejection takes them. Unless there are no others."""
    offered = [each for each in options if text_of(each, "kind") not in REFUSALS] or list(options)
    title = text_of(tool, "title") or "Which one?"
    return Question(
        "\n".join(dict.fromkeys((title, *_words(tool)))),
        tuple(
            Option(_name(each), value=each["optionId"], extra={"optionId": each["optionId"], "kind": each.get("kind")})
            for each in offered
        ),
        header=one_line(title),
        custom=False,
    )


def _permission(tool: Mapping[str, Any], options: Sequence[Mapping[str, Any]], *, origin: Origin) -> Permission:
    given = mapping_of(tool, "rawInput")
    kinds = [text_of(each, "kind") for each in options]
    scopes = tuple(Scope(id=each["optionId"], label=_name(each)) for each in _wider(options))
    command, plan = _command(tool), text_of(given, "plan")
    changes = list(_changes(tool))
    locations = tool.get("locations")
    paths = [text_of(each, "path") for each in locations] if isinstance(locations, list) else []
    paths += [text_of(each, "path") for each in changes]
    if command is None:
        known = {posixpath.join(origin.cwd or "/", path) for path in paths}
        told = named_paths(given, tool=_tool_name(tool), kind=text_of(tool, "kind"))
        paths += [path for path in told if posixpath.join(origin.cwd or "/", path) not in known]
    is_plan = tool.get("kind") == "switch_mode" and plan != ""
    first = next((line.strip("# ").strip() for line in plan.splitlines() if line.strip("# ").strip()), "")
    title = text_of(tool, "title") or _tool_name(tool)
    kept = ("rawInput", "rawOutput", "title", "status", "locations", "sessionUpdate")
    rest = rest_of(tool, kept) or {}
    if changes:  # they are the diff
        content = rest["content"]
        rest["content"] = [each for each in content if not (isinstance(each, Mapping) and each.get("type") == "diff")]
    permission = Permission(
        tool=_tool_name(tool),
        kind="plan" if is_plan else "tool",
        command=command,
        paths=tuple(dict.fromkeys(path for path in paths if path)),
        diff="\n".join(line for change in changes for line in _diff(change)) or None,
        cwd=origin.cwd if command is None else folder_in(given, cwd=origin.cwd),
        url=text_of(given, "url") or None,
        input=dict(given) or None,
        replies=(*(("once",) if ONCE in kinds else ()), *(("always",) if scopes else ()), "reject"),
        scopes=scopes,
        extra={"title": title, **rest},
    )
    if is_plan and first:
        return replace(permission, summary=one_line(f"Plan: {first}"))
    return replace(permission, summary=_summary(tool, permission))


def _options(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those that can be answered at all, as they came."""
    given = params.get("options")
    return (
        [dict(each) for each in given if isinstance(each, Mapping) and text_of(each, "optionId")]
        if isinstance(given, list)
        else []
    )


def _wider(options: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """What is more than once: what the agent calls so, and after that what it does not call anything we know. So no
    option can be taken without being named by a person, except one that says to be for once."""
    yield from (each for each in options if each.get("kind") == ALWAYS)
    yield from (each for each in options if text_of(each, "kind") not in (ONCE, ALWAYS, *REFUSALS))
    yield from [each for each in options if each.get("kind") == ONCE][1:]


def _granting(options: Sequence[Mapping[str, Any]], answer: Answer) -> str | None:
    if answer.reply == "always":
        wider = [str(each["optionId"]) for each in _wider(options)]
        return answer.scope if answer.scope in wider else next(iter(wider), None)
    kinds = {text_of(each, "kind"): str(each["optionId"]) for each in reversed(options)}
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
    """Of a call that nothing is said of but a title, the worst is assumed."""
    claude = mapping_of(mapping_of(tool, "_meta"), "claudeCode")
    named = text_of(tool, "name") or text_of(claude, "toolName") or text_of(tool, "kind")
    is_shown = tool.get("rawInput") or tool.get("locations") or any(_changes(tool))
    return named or ("tool" if is_shown else "execute")


def _command(tool: Mapping[str, Any]) -> str | None:
    """With the words that stand beside it. Where they cannot be joined it is not shown, and so not judged."""
    return line_of(mapping_of(tool, "rawInput"))


def _summary(tool: Mapping[str, Any], permission: Permission) -> str:
    title = text_of(tool, "title")
    if not hides_command(permission):
        return one_line(permission.command or title or permission.tool)
    said = "; ".join(dict.fromkeys(filter(None, (title, *_words(tool)))))
    return one_line("The agent does not show the command that it wants to run." + (f" It says: {said}" if said else ""))


def _changes(tool: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    content = tool.get("content")
    for each in content if isinstance(content, list) else ():
        if isinstance(each, Mapping) and each.get("type") == "diff" and isinstance(each.get("newText"), str):
            yield each


def _diff(change: Mapping[str, Any]) -> list[str]:
    path = text_of(change, "path")
    return [f"--- {path}", f"+++ {path}", *hunks(text_of(change, "oldText"), change["newText"])]


def _words(tool: Mapping[str, Any]) -> Iterator[str]:
    """What the call says besides its title."""
    content = tool.get("content")
    for each in content if isinstance(content, list) else ():
        text = text_of(mapping_of(each, "content"), "text") if isinstance(each, Mapping) else ""
        if text:
            yield text


def _name(option: Mapping[str, Any]) -> str:
    return text_of(option, "name") or str(option["optionId"])


# Questions ----------------------------------------------------------------------------------------------------------


def _form(params: Mapping[str, Any]) -> tuple[Question, ...]:
    message = text_of(params, "message")
    if params.get("mode") == "url":
        return to_visit(text_of(params, "url"), message=message)
    return to_questions(params.get("requestedSchema"), message=message, companions=True)


def _content(ask: Ask, answer: Answer, quirks: Quirks) -> dict[str, Any]:
    content = to_content(ask.questions, answer.answers or ())
    if not quirks.takes_notes:
        return content
    for question, note in zip(ask.questions, answer.notes, strict=False):
        companion = mapping_of(question.extra or {}, "form").get("companion")
        if note and companion and companion not in content and not question.multiple:
            content[companion] = note
    return content


def _questions(params: Mapping[str, Any]) -> tuple[Question, ...]:
    """Either of the two shapes in which the extension is sent: one prompt, or questions as OpenCode has them."""
    entries = params.get("questions")
    if isinstance(entries, list) and entries:
        return tuple(_question(entry, number=number) for number, entry in enumerate(entries, start=1))
    prompt = text_of(params, "prompt")
    if not prompt:
        raise AskDoesNotFit("the question has no text; give `prompt`, or `questions`")
    return (_question({"question": prompt, "options": params.get("options")}, number=1),)


def _question(entry: Any, *, number: int) -> Question:
    if not isinstance(entry, Mapping) or not text_of(entry, "question"):
        raise AskDoesNotFit(f"question {number} has no text")
    options = entry.get("options") or []
    if not isinstance(options, list):
        raise AskDoesNotFit(f"the options of question {number} are not a list")
    known = ("question", "header", "options", "multiSelect", "multiple", "custom")
    return Question(
        entry["question"],
        tuple(_option(option, number=number) for option in options),
        header=text_of(entry, "header"),
        multiple=entry.get("multiSelect") is True or entry.get("multiple") is True,
        custom=entry.get("custom") is not False,
        extra=rest_of(entry, known),
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
                description=text_of(entry, "description"),
                value=text_of(entry, "id"),
                extra=rest_of(entry, ("id", "label", "description")),
            )
    raise AskDoesNotFit(f"an option of question {number} has no label")


def _values(ask: Ask, answer: Answer) -> list[list[str]]:
    return [list(values) for values in answer.answers or ()]


def detail_of(method: str, message: Any) -> str:
    """What a message is about besides its method: nearly everything is a `session/update`."""
    if method != "session/update":
        return ""
    params = message.get("params")
    update = params.get("update") if isinstance(params, dict) else None
    return str(update.get("sessionUpdate")) if isinstance(update, dict) else "None"
