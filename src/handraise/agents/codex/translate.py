"""Codex's requests as asks, and answers as what it takes back. Pure: no process, no clock.

What it asks over `codex app-server` are five kinds of requests; each has its own form of answer. Seen in 0.166.0.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handraise.agents import _phrases as wording
from handraise.asks import Answer, Ask, Option, Origin, Permission, Question, Scope
from handraise.asks.forms import to_content, to_questions, to_visit
from handraise.errors import AskDoesNotFit
from handraise.rules.tools import BESIDES, plain_command
from handraise.transports.loose_json import one_line, text_of

__all__ = [
    "COMMAND",
    "ELICITATION",
    "FILES",
    "INPUT",
    "METHODS",
    "PERMISSIONS",
    "QUESTION_TOOL",
    "TOOL",
    "ask_id",
    "called",
    "content_id",
    "from_answer",
    "is_same_call",
    "is_tool_approval",
    "refused",
    "to_ask",
    "to_steer",
    "told_later",
]

COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
PERMISSIONS = "item/permissions/requestApproval"
INPUT = "item/tool/requestUserInput"
TOOL = "item/tool/call"
ELICITATION = "mcpServer/elicitation/request"
METHODS = frozenset({COMMAND, FILES, PERMISSIONS, INPUT, TOOL, ELICITATION})

NONE_FITS = "None of the above"  # how Codex's own terminal says it
NOTE = "user_note: "  # before what a person wrote, again as its terminal does

# What the model may ask through us. Its own `request_user_input` is there in plan mode only, for one choice each.
QUESTION_TOOL: Mapping[str, Any] = {
    "type": "function",
    "name": "question",
    "description": (
        "Ask the person you work for one or more questions and wait for the answers, however long that takes. Use it "
        "when a decision is theirs: a preference, an unclear instruction, a choice between approaches. They can always "
        "answer in their own words, so leave out an option such as 'Other'. Put the option you recommend first and end "
        "its label with '(Recommended)'."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "questions": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "question": {"type": "string", "description": "The complete question"},
                        "header": {"type": "string", "description": "A very short label (max 30 characters)"},
                        "options": {
                            "type": "array",
                            "description": "The choices",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "label": {"type": "string", "description": "One to five words"},
                                    "description": {"type": "string", "description": "What this choice means"},
                                },
                                "required": ["label"],
                                "additionalProperties": False,
                            },
                        },
                        "multiple": {"type": "boolean", "description": "Whether several options may be chosen"},
                    },
                    "required": ["question", "options"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["questions"],
        "additionalProperties": False,
    },
}


def to_ask(
    method: str,
    params: Mapping[str, Any],
    *,
    id: str,
    origin: Origin,
    item: Mapping[str, Any] | None = None,
) -> Ask:
    """What a request asks for. `item` is what Codex announced before under the same id. Raises AskDoesNotFit."""
    match method:
        case "item/commandExecution/requestApproval":
            return Ask(id=id, permission=_command(params, origin=origin), origin=origin)
        case "item/fileChange/requestApproval":
            return Ask(id=id, permission=_files(params, item or {}, origin=origin), origin=origin)
        case "item/permissions/requestApproval":
            return Ask(id=id, permission=_wider(params, origin=origin), origin=origin)
        case "item/tool/requestUserInput":
            return Ask(id=id, questions=_inputs(params), origin=origin, extra=_rest(params, _KNOWN))
        case "item/tool/call":
            return Ask(id=id, questions=_tool_questions(params), origin=origin, extra={"tool": params.get("tool")})
        case "mcpServer/elicitation/request" if is_tool_approval(params):
            return Ask(id=id, permission=_mcp_tool(params, item or {}, origin=origin), origin=origin)
        case "mcpServer/elicitation/request":
            return Ask(id=id, questions=_form(params), origin=origin, extra=_rest(params, (*_KNOWN, *_FORM)))
        case _:
            raise AskDoesNotFit(f"{method[:100]!r} is not a request that becomes an ask")


def from_answer(method: str, ask: Ask, answer: Answer) -> dict[str, Any]:
    """The result that Codex takes. A refusal never ends the turn. Raises AnswerDoesNotFit for a form."""
    is_refused = answer.rejected or answer.reply == "reject"
    match method:
        case "item/commandExecution/requestApproval" | "item/fileChange/requestApproval":
            return {"decision": "decline" if is_refused else _decision(ask, answer)}
        case "item/permissions/requestApproval":
            wanted = (ask.permission.input if ask.permission is not None else None) or {}
            scope = "session" if answer.reply == "always" else "turn"
            return {"permissions": {}, "scope": "turn"} if is_refused else {"permissions": dict(wanted), "scope": scope}
        case "item/tool/requestUserInput":
            return {"answers": _input_answers(ask, answer)}
        case "item/tool/call":
            text = wording.refusal(ask, answer) if is_refused else _in_words(ask, answer)
            return {"contentItems": [{"type": "inputText", "text": text}], "success": not is_refused}
        case _ if is_refused:
            return {"action": "decline"}
        case _ if ask.permission is not None:
            persist = _persisted(ask.permission, answer)
            return {"action": "accept"} | ({"_meta": {"persist": persist}} if persist else {})
        case _:
            return {"action": "accept", "content": to_content(ask.questions, answer.answers or ())}


def refused(method: str, params: Mapping[str, Any], problem: str) -> dict[str, Any]:
    """What Codex is told where a request became no ask, or the ask no answer."""
    match method:
        case "item/commandExecution/requestApproval" | "item/fileChange/requestApproval":
            return {"decision": "decline"}
        case "item/permissions/requestApproval":
            return {"permissions": {}, "scope": "turn"}
        case "item/tool/requestUserInput":
            entries = params.get("questions")
            ids = [text_of(entry, "id") for entry in entries] if isinstance(entries, list) else []
            return {"answers": {id: {"answers": [NONE_FITS, f"{NOTE}{problem}"]} for id in ids if id}}
        case "item/tool/call":
            return {"contentItems": [{"type": "inputText", "text": problem}], "success": False}
        case _:
            return {"action": "cancel"}


def to_steer(method: str, ask: Ask, answer: Answer) -> str | None:
    """What the model is told besides a refusal that has no room for words; None where there is nothing to add."""
    if not (answer.rejected or answer.reply == "reject"):
        return None
    if ask.permission is not None:
        return f"Refused: {_wanted(ask.permission)}. {wording.refusal(ask, answer)}"
    if method == ELICITATION and answer.reason:
        return f"The form was declined: {wording.refusal(ask, answer)}"
    return None


def ask_id(method: str, params: Mapping[str, Any], *, thread: str, item: Mapping[str, Any] | None = None) -> str | None:
    """The most durable id there is; None for an elicitation, which has none: see `content_id`."""
    turn = text_of(params, "turnId")
    call = text_of(item, "id") if method == ELICITATION else text_of(params, "callId" if method == TOOL else "itemId")
    if not call:
        return None
    approval = text_of(params, "approvalId")
    return f"codex:{thread}:{turn}:{call}" + (f":{approval}" if approval else "")


def content_id(params: Mapping[str, Any], *, thread: str) -> str:
    """For a request without an id of its own: a hash of what is asked. It may repeat."""
    asked = {key: value for key, value in params.items() if key != "startedAtMs"}
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:16]
    return f"codex:{thread}:{text_of(params, 'turnId') or '-'}:elicitation:{digest}"


def is_tool_approval(params: Mapping[str, Any]) -> bool:
    """Whether an elicitation is Codex's own request to call a tool of an MCP server."""
    return text_of(params.get("_meta"), "codex_approval_kind") == "mcp_tool_call"


def called(item: Mapping[str, Any]) -> tuple[str, Any]:
    """The name and input of a tool that is called; nothing for other items."""
    match item.get("type"):
        case "commandExecution":
            return "shell", {"command": item.get("command"), "cwd": item.get("cwd")}
        case "fileChange":
            return "apply_patch", {"changes": item.get("changes")}
        case "dynamicToolCall":
            return str(item.get("tool")), item.get("arguments")
        case "mcpToolCall":
            return f"mcp__{item.get('server')}__{item.get('tool')}", item.get("arguments")
        case "webSearch":
            return "web_search", {"query": item.get("query")}
        case _:
            return "", None


def told_later(ask: Ask, answer: Answer) -> str:
    """What Codex is told in a prompt where the request that asked is gone."""
    wanted = f"for permission: {_wanted(ask.permission)}" if ask.permission is not None else ""
    again = "make exactly that call again, it was not run"
    return wording.told_later(ask, answer, wanted=wanted, answered=f". {_in_words(ask, answer)}", again=again)


def is_same_call(ask: Ask, other: Ask) -> bool:
    """Whether both want exactly the same."""
    one, two = ask.permission, other.permission
    if one is None or two is None:
        return False
    return (one.tool, one.command, one.cwd, one.url, one.paths, one.diff, dict(one.input or {})) == (
        (two.tool, two.command, two.cwd, two.url, two.paths, two.diff, dict(two.input or {}))
    )


_KNOWN = ("threadId", "turnId", "itemId", "callId", "approvalId", "questions", "startedAtMs")
# What an approval of a command may say. Anything else is shown as an argument, and nobody here knows what it does.
_KNOWN_OF_COMMAND = (
    *(
        "threadId",
        "turnId",
        "itemId",
        "approvalId",
        "startedAtMs",
        "command",
        "cwd",
        "kind",
        "reason",
        "commandActions",
    ),
    *("availableDecisions", "proposedExecpolicyAmendment", "proposedNetworkPolicyAmendments", "environmentId"),
    *("processId", "pluginId", "scriptPath", "source"),
)
_FORM = ("mode", "message", "requestedSchema", "url", "elicitationId")


# Permissions --------------------------------------------------------------------------------------------------------


def _command(params: Mapping[str, Any], *, origin: Origin) -> Permission:
    """A command, input for one that runs, or a connection that the sandbox holds up."""
    command = plain_command(text_of(params, "command"))
    network = params.get("networkApprovalContext")
    host, protocol = text_of(network, "host"), text_of(network, "protocol")
    said = _said_of(params)
    if not command and not host and not said:
        raise AskDoesNotFit("a command approval names no command")
    what = f"Connect to {host}" + (f" for: {command}" if command else "") if host else command
    if not what:
        what = f"Codex does not show the command that it wants to run. It says: {said}"
    is_input = params.get("kind") == "writeStdin"
    if is_input:
        what = f"Type into a running command: {command}"
    scopes = [] if is_input else [Scope(id="session", label="for this session, exactly this command")]
    amendment = _amendment(params)
    if amendment and not is_input and not host:
        label = "permanently, for all sessions of Codex: writes a rule that allows every command that begins like this"
        scopes.append(Scope(id="rules", label=label, patterns=(shlex.join(amendment),)))
    known = ("threadId", "turnId", "itemId", "approvalId", "startedAtMs", "cwd")
    given = {key: params[key] for key in ("command", "cwd", "kind") if params.get(key) is not None}
    given |= {key: params[key] for key in BESIDES if params.get(key)}
    given |= {key: value for key, value in params.items() if key not in (*_KNOWN_OF_COMMAND, *given) and value}
    return Permission(
        tool="shell",
        summary=_line(what, reason=text_of(params, "reason")),
        command=command or None,
        paths=tuple(dict.fromkeys(path for path, _ in _folders(params.get("additionalPermissions")))),
        cwd=text_of(params, "cwd") or origin.cwd,
        url=f"{protocol or 'https'}://{host}" if host else None,
        input=given,
        replies=("once", "always", "reject") if scopes else ("once", "reject"),
        scopes=tuple(scopes),
        extra={"tool": "exec_command", **(_rest(params, known) or {})},
    )


def _said_of(params: Mapping[str, Any]) -> str:
    """Codex's reading of the command, made for display. It is never the command: a person allows what runs."""
    actions = params.get("commandActions")
    return "; ".join(text_of(action, "command") for action in actions) if isinstance(actions, list) else ""


def _amendment(params: Mapping[str, Any]) -> list[str]:
    proposed = params.get("proposedExecpolicyAmendment")
    is_whole = isinstance(proposed, list) and all(isinstance(word, str) for word in proposed)
    return list(proposed) if is_whole and proposed else []


def _files(params: Mapping[str, Any], item: Mapping[str, Any], *, origin: Origin) -> Permission:
    """A patch. The request itself says nothing of it; that was in the item announced before."""
    changes = item.get("changes")
    listed = [each for each in changes if isinstance(each, Mapping)] if isinstance(changes, list) else []
    # Where one of them does not say which file it changes, the others do not stand for it.
    is_named = isinstance(changes, list) and all(text_of(each, "path") for each in changes)
    paths = [path for each in listed for path in (text_of(each, "path"), _moved_to(each)) if path] if is_named else []
    root = text_of(params, "grantRoot")
    kinds = {text_of(each.get("kind"), "type") for each in listed}
    verb = {frozenset({"add"}): "Write", frozenset({"delete"}): "Delete"}.get(frozenset(kinds), "Change")
    what = f"{verb} {', '.join(dict.fromkeys(paths))}" if paths else "Change files; Codex does not say which"
    if root:
        what += f", and from then on everything under {root}"
    scopes = (Scope(id="session", label="for this session, these files"),) if paths else ()
    return Permission(
        tool="apply_patch",
        summary=_line(what, reason=text_of(params, "reason")),
        paths=tuple(dict.fromkeys([*paths, *([root] if root else [])])),
        diff="\n".join(line for each in listed for line in _diff(each)) or None,
        cwd=origin.cwd,
        input={"changes": [dict(each) for each in listed]} | ({"grantRoot": root} if root else {}),
        replies=("once", "always", "reject") if scopes else ("once", "reject"),
        scopes=scopes,
        extra=_rest(params, ("threadId", "turnId", "itemId", "startedAtMs")),
    )


def _moved_to(change: Mapping[str, Any]) -> str:
    return text_of(change.get("kind"), "move_path") or text_of(change.get("kind"), "movePath")


def _diff(change: Mapping[str, Any]) -> Iterator[str]:
    """One file's part of a unified diff. Codex gives hunks for a change, the whole text for a new or deleted file."""
    path, text = text_of(change, "path"), text_of(change, "diff")
    lines = text.splitlines()
    match text_of(change.get("kind"), "type"):
        case "add":
            yield from ("--- /dev/null", f"+++ {path}", f"@@ -0,0 +{min(len(lines), 1)},{len(lines)} @@")
            yield from (f"+{line}" for line in lines)
        case "delete":
            yield from (f"--- {path}", "+++ /dev/null", f"@@ -{min(len(lines), 1)},{len(lines)} +0,0 @@")
            yield from (f"-{line}" for line in lines)
        case _:
            yield from (f"--- {path}", f"+++ {_moved_to(change) or path}")
            yield from lines


def _wider(params: Mapping[str, Any], *, origin: Origin) -> Permission:
    """More than the sandbox allows, for the rest of the turn or the session."""
    wanted = _without_nulls(params.get("permissions"))
    if not isinstance(wanted, dict) or not wanted:
        raise AskDoesNotFit("a request for permissions names none")
    folders = list(_folders(wanted))
    parts = [f"{access} {path}" for path, access in folders]
    if wanted.get("network"):
        parts.append("use the network")
    return Permission(
        tool="request_permissions",
        summary=_line(f"Allow Codex to {', '.join(parts) or 'do more'}", reason=text_of(params, "reason")),
        paths=tuple(dict.fromkeys(path for path, _ in folders)),
        cwd=text_of(params, "cwd") or origin.cwd,
        input=wanted,
        replies=("once", "always", "reject"),
        scopes=(Scope(id="session", label="for this session; once is for this turn"),),
        extra=_rest(params, ("threadId", "turnId", "itemId", "startedAtMs", "cwd", "permissions")),
    )


def _folders(permissions: Any) -> Iterator[tuple[str, str]]:
    """Every path that is wanted, with what for; each pair once."""
    files = permissions.get("fileSystem") if isinstance(permissions, Mapping) else None
    if not isinstance(files, Mapping):
        return
    seen: set[tuple[str, str]] = set()
    pairs: list[tuple[str, str]] = []
    for access in ("read", "write"):
        listed = files.get(access)
        pairs += [(path, access) for path in listed if isinstance(path, str)] if isinstance(listed, list) else []
    entries = files.get("entries")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping):
            pairs.append((_place(entry.get("path")), text_of(entry, "access") or "use"))
    for pair in pairs:
        if pair not in seen:
            seen.add(pair)
            yield pair


def _place(path: Any) -> str:
    if isinstance(path, Mapping):
        return text_of(path, "path") or text_of(path, "pattern") or json.dumps(path.get("value", path), default=str)
    return path if isinstance(path, str) else json.dumps(path, default=str)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return value


def _mcp_tool(params: Mapping[str, Any], item: Mapping[str, Any], *, origin: Origin) -> Permission:
    meta = params.get("_meta")
    meta = meta if isinstance(meta, Mapping) else {}
    server, tool = text_of(params, "serverName"), text_of(item, "tool")
    given = meta.get("tool_params")
    persist = meta.get("persist")
    offered = [each for each in persist if isinstance(each, str)] if isinstance(persist, list) else []
    labels = {
        "session": "for this session, this tool",
        "always": "permanently, for all sessions: written into Codex's configuration",
    }
    scopes = tuple(Scope(id=each, label=labels[each]) for each in labels if each in offered)
    arguments = json.dumps(given, ensure_ascii=False, default=str) if given else ""
    what = f"Call {tool} of the MCP server {server}" if tool else text_of(params, "message") or "Call a tool"
    return Permission(
        tool=f"mcp__{server}__{tool}" if tool else f"mcp__{server}",
        summary=_line(f"{what} with {arguments}" if arguments else what),
        cwd=origin.cwd,
        input=dict(given) if isinstance(given, Mapping) else None,
        replies=("once", "always", "reject") if scopes else ("once", "reject"),
        scopes=scopes,
        extra={"message": text_of(params, "message"), "server": server, "_meta": dict(meta)},
    )


def _decision(ask: Ask, answer: Answer) -> Any:
    """How far a grant reaches. The rule that outlives the session needs a person who chose exactly that."""
    if answer.reply != "always" or ask.permission is None:
        return "accept"
    if answer.scope == "rules" and not answer.by_policy:
        amendment = _amendment(ask.permission.extra or {})
        if amendment and answer.patterns in (None, (shlex.join(amendment),)):
            return {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": amendment}}
        return "accept"
    return "acceptForSession"


def _persisted(permission: Permission, answer: Answer) -> str | None:
    offered = [scope.id for scope in permission.scopes]
    if answer.reply != "always":
        return None
    if answer.scope == "always" and "always" in offered and not answer.by_policy:
        return "always"
    return "session" if "session" in offered else None


def _wanted(permission: Permission) -> str:
    """What was wanted, in words that tell the model which of its calls is meant."""
    if permission.command is not None:
        return f"to run `{permission.command}`"
    if permission.tool == "apply_patch":
        return f"to change {', '.join(permission.paths) or 'files'}"
    return permission.summary[:1].lower() + permission.summary[1:]


# Questions ----------------------------------------------------------------------------------------------------------


def _entries(given: Any) -> list[Mapping[str, Any]]:
    entries = given.get("questions") if isinstance(given, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise AskDoesNotFit("there are no questions; give a list of at least one")
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, Mapping) or not text_of(entry, "question"):
            raise AskDoesNotFit(f"question {number} has no text")
    return entries


def _inputs(params: Mapping[str, Any]) -> tuple[Question, ...]:
    """Of Codex's own question tool: one choice each, own text wherever it says so."""
    entries = _entries(params)
    ids = [text_of(entry, "id") for entry in entries]
    if not all(ids) or len(set(ids)) < len(ids):
        raise AskDoesNotFit("every question needs an id of its own, since an answer goes by it")
    known = ("question", "header", "options", "isOther", "isSecret")
    return tuple(
        Question(
            text_of(entry, "question"),
            options := _options(entry, number=number),
            header=text_of(entry, "header"),
            custom=entry.get("isOther") is not False or not options,
            kind="choice" if options else "text",
            extra={**(_rest(entry, known) or {}), **({"secret": True} if entry.get("isSecret") is True else {})},
        )
        for number, entry in enumerate(entries, start=1)
    )


def _tool_questions(params: Mapping[str, Any]) -> tuple[Question, ...]:
    """Of the tool that we declare; the model may not keep to its schema."""
    known = ("question", "header", "options", "multiple", "custom")
    return tuple(
        Question(
            text_of(entry, "question"),
            options := _options(entry, number=number),
            header=text_of(entry, "header"),
            multiple=entry.get("multiple") is True,
            kind="choice" if options else "text",
            extra=_rest(entry, known),
        )
        for number, entry in enumerate(_entries(params.get("arguments")), start=1)
    )


def _options(entry: Mapping[str, Any], *, number: int) -> tuple[Option, ...]:
    options = entry.get("options") or []
    if not isinstance(options, list):
        raise AskDoesNotFit(f"the options of question {number} are not a list")
    for option in options:
        if not text_of(option, "label"):
            raise AskDoesNotFit(f"an option of question {number} has no label")
    known = ("label", "description")
    return tuple(
        Option(option["label"], description=text_of(option, "description"), extra=_rest(option, known))
        for option in options
    )


def _form(params: Mapping[str, Any]) -> tuple[Question, ...]:
    message = text_of(params, "message")
    if params.get("mode") == "url":
        return to_visit(text_of(params, "url"), message=message)
    return to_questions(params.get("requestedSchema"), message=message)


def _input_answers(ask: Ask, answer: Answer) -> dict[str, Any]:
    """By the id of each question, with own words as Codex's terminal writes them."""
    if answer.rejected:
        said = [NONE_FITS, f"{NOTE}{wording.refusal(ask, answer)}"]
        return {(question.extra or {})["id"]: {"answers": said} for question in ask.questions}
    notes = answer.notes or (None,) * len(ask.questions)
    answers: dict[str, Any] = {}
    for number, (question, values, note) in enumerate(zip(ask.questions, answer.answers or (), notes, strict=False)):
        entries: list[str] = []
        for value in values:
            is_option = any(option.value == value for option in question.options)
            if is_option or not question.options:
                entries.append(question.label_of(value))
            else:
                entries += [NONE_FITS, f"{NOTE}{value}"]
        if note:
            entries.append(f"{NOTE}{note}")
        if answer.by_policy and number == 0:
            entries.append(f"{NOTE}{wording.by_policy(answer)}")
        if entries:
            answers[(question.extra or {})["id"]] = {"answers": entries}
    return answers


def _in_words(ask: Ask, answer: Answer) -> str:
    """A sentence for each question that was answered."""
    notes = answer.notes or (None,) * len(ask.questions)
    sentences: list[str] = []
    for question, values, note in zip(ask.questions, answer.answers or (), notes, strict=False):
        chosen = _listed([f'"{question.label_of(value)}"' for value in values])
        if chosen:
            sentence = f'The answer to "{question.question}" is: {chosen}'
        elif note:
            sentence = f'To "{question.question}" nothing was chosen'
        else:
            sentence = f'"{question.question}" was left unanswered'
        sentences.append(sentence + (f" (note: {note})" if note else "") + ".")
    if answer.by_policy:
        sentences.append(f"This was {wording.by_policy(answer)}.")
    return "\n".join(sentences)


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


# Reading ------------------------------------------------------------------------------------------------------------


def _rest(entry: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any] | None:
    """What we do not know, kept as it came."""
    return {key: value for key, value in entry.items() if key not in known and value is not None} or None


def _line(text: str, *, reason: str = "") -> str:
    """What will happen comes first, and why the model wants it after that, as far as there is room."""
    return one_line(f"{text} ({reason})" if reason else text)
