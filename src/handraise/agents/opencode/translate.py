"""OpenCode's requests as asks, and answers as the calls that hand them on. Pure: no I/O, no state.

Shapes are those of OpenCode 1.18.33. A request is the `properties` of `question.asked` or `permission.asked`, which is
also an entry of the lists `GET /question` and `GET /permission`. The newer `*.v2.asked` are generation 2: another route
to reply on, and for permissions other names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn
from urllib.parse import quote

from handraise.asks import Answer, Ask, Option, Origin, Permission, Question, Scope
from handraise.errors import AskDoesNotFit
from handraise.rules.tools import folder_in

__all__ = [
    "AGENT",
    "ASKED",
    "SETTLED",
    "Call",
    "Kind",
    "ask_id",
    "clearing",
    "from_answer",
    "local_answer",
    "refusal",
    "request_of",
    "to_ask",
]

Kind = Literal["question", "permission"]

# What an event is about: its kind and its generation.
ASKED: Mapping[str, tuple[Kind, int]] = {
    "question.asked": ("question", 1),
    "question.v2.asked": ("question", 2),
    "permission.asked": ("permission", 1),
    "permission.v2.asked": ("permission", 2),
}
SETTLED = frozenset(
    {
        "question.replied",
        "question.rejected",
        "question.v2.replied",
        "question.v2.rejected",
        "permission.replied",
        "permission.v2.replied",
    }
)

AGENT = "opencode"
SESSION_SCOPE = "session"
LONGEST_SUMMARY = 300
_KNOWN = {"id", "sessionID", "questions"}
_KNOWN_OF_PERMISSION = {"id", "sessionID", "permission", "patterns", "metadata", "always", "tool"}
_KNOWN_OF_PERMISSION_2 = {"id", "sessionID", "action", "resources", "metadata", "save", "source"}


@dataclass(frozen=True, slots=True)
class Call:
    """A POST to OpenCode. The directory of the session has to go with it."""

    path: str
    body: Mapping[str, Any] | None = None


def ask_id(session: str, request: str) -> str:
    """OpenCode's own ids, both of which it never gives twice."""
    return f"{AGENT}:{session}:{request}"


def request_of(ask: Ask) -> tuple[str, str]:
    """OpenCode's session and request that an ask came from."""
    _, session, request = ask.id.rsplit(":", 2)
    return session, request


# A request as an ask ----------------------------------------------------------------------------------------


def to_ask(
    request: Mapping[str, Any],
    *,
    kind: Kind,
    origin: Origin,
    generation: int = 1,
) -> Ask:
    """Raises AskDoesNotFit where the request is none."""
    id = ask_id(_text(request, "sessionID"), _text(request, "id"))
    if kind == "permission":
        permission, extra = _permission(request, cwd=origin.cwd, generation=generation)
        return Ask(id=id, permission=permission, origin=origin, extra=_marked(extra, generation=generation))
    questions = _list(request, "questions")
    asked = tuple(_question(each, at=f"questions.{index}") for index, each in enumerate(questions))
    extra = _others(request, _KNOWN)
    return Ask(id=id, questions=asked, origin=origin, extra=_marked(extra, generation=generation))


def _marked(extra: dict[str, Any], *, generation: int) -> dict[str, Any] | None:
    return (extra | {"generation": generation} if generation > 1 else extra) or None


def _question(told: Any, *, at: str) -> Question:
    if not isinstance(told, Mapping):
        _misfit(at, "an object is expected")
    options = _list(told, "options", at=at)
    return Question(
        _text(told, "question", at=at),
        tuple(_option(each, at=f"{at}.options.{index}") for index, each in enumerate(options)),
        header=_text(told, "header", at=at, default=""),
        multiple=told.get("multiple") is True,
        custom=told.get("custom") is not False,
        extra=_others(told, {"question", "header", "options", "multiple", "custom"}) or None,
    )


def _option(told: Any, *, at: str) -> Option:
    if not isinstance(told, Mapping):
        _misfit(at, "an object is expected")
    return Option(
        _text(told, "label", at=at),
        description=_text(told, "description", at=at, default=""),
        extra=_others(told, {"label", "description"}) or None,
    )


def _permission(request: Mapping[str, Any], *, cwd: str | None, generation: int) -> tuple[Permission, dict[str, Any]]:
    """The permission, and what goes into the ask's `extra`."""
    is_new = generation > 1
    tool = _text(request, "action" if is_new else "permission")
    patterns = _texts(request, "resources" if is_new else "patterns")
    always = _texts(request, "save" if is_new else "always")
    metadata = request.get("metadata")
    given: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
    extra = _others(request, _KNOWN_OF_PERMISSION_2 if is_new else _KNOWN_OF_PERMISSION)
    call = request.get("source" if is_new else "tool")
    if isinstance(call, Mapping):
        extra["tool"] = dict(call)
    command, url = _optional(given, "command"), _optional(given, "url")
    paths = tuple(dict.fromkeys((*_paths(tool, given, patterns), *_moved(given))))
    permission = Permission(
        tool=tool,
        summary=_summary(tool, given, patterns=patterns),
        command=command,
        paths=paths,
        diff=_optional(given, "diff"),
        cwd=cwd if command is None else folder_in(given, cwd=cwd),
        url=url,
        input=dict(given) or None,
        replies=("once", "always", "reject") if always else ("once", "reject"),
        # OpenCode would hold it for every session of the folder, and for every file where it is an edit.
        scopes=(Scope(id=SESSION_SCOPE, label="for this session", patterns=always, by_desk=True),) if always else (),
        extra={"patterns": list(patterns)},
    )
    return permission, extra


def _paths(tool: str, metadata: Mapping[str, Any], patterns: Sequence[str]) -> Iterator[str]:
    if tool in ("edit", "write", "read", "list") and len(patterns) > 1:
        yield from patterns  # a patch of several files; its `filepath` is all of them in one text
    elif path := _optional(metadata, "filepath"):
        yield path
        if tool in ("edit", "write", "read", "list"):  # it says the file twice; where the two differ, both count
            yield from (each for each in patterns if each != "*" and not f"/{path}".endswith(f"/{each.lstrip('./')}"))
    elif isinstance(directories := metadata.get("directories"), list):
        yield from (each for each in directories if isinstance(each, str))
    elif tool in ("edit", "write", "read", "list"):
        yield from patterns


def _moved(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Where a patch moves files to, which its patterns do not say."""
    files = metadata.get("files")
    for each in files if isinstance(files, list) else ():
        if isinstance(each, Mapping) and (moved := _optional(each, "movePath")):
            yield moved


def _summary(tool: str, metadata: Mapping[str, Any], *, patterns: Sequence[str]) -> str:
    """One line that a person understands."""
    touched = ", ".join(each for each in patterns if each != "*")
    match tool:
        case "bash":
            line = _optional(metadata, "command") or touched or "run a command"
        case "webfetch":
            line = f"fetch {_optional(metadata, 'url') or touched}"
        case "websearch" | "codesearch":
            line = f"search for {_optional(metadata, 'query') or touched}"
        case "task":
            line = f"start the subagent {_optional(metadata, 'subagent_type') or touched}"
            line += f": {description}" if (description := _optional(metadata, "description")) else ""
        case "external_directory":
            line = f"reach outside the project: {touched}"
            line += f", for {command}" if (command := _optional(metadata, "command")) else ""
        case "todowrite":
            line = "change its list of things to do"
        case "doom_loop":
            line = f"make the same call once more: {_optional(metadata, 'tool') or touched}"
        case _:
            line = f"{tool} {touched}"
    line = " ".join(line.split())
    return line if len(line) <= LONGEST_SUMMARY else f"{line[: LONGEST_SUMMARY - 1]}…"


# An answer as a call ----------------------------------------------------------------------------------------


def from_answer(ask: Ask, answer: Answer) -> Call:
    """The call that hands the answer on and lets the turn go on, a refusal too.

    OpenCode's own `/reject` of a question, and of a permission without a message, would silently end the turn.
    """
    session, request = request_of(ask)
    if ask.permission is not None:
        # `always` is for the desk to remember.
        body = _refused(_why_not(answer)) if answer.rejected or answer.reply == "reject" else {"reply": "once"}
        return Call(_path(ask, "permission", session, request), body)
    if answer.rejected:
        replies = [[_declined(question, answer)] for question in ask.questions]
    else:
        notes = [*answer.notes, *[None] * len(ask.questions)]
        replies = [
            [*map(question.label_of, values), *([f"note: {note}"] if note else [])]
            for question, values, note in zip(ask.questions, answer.answers or (), notes, strict=False)
        ]
    return Call(_path(ask, "question", session, request), {"answers": replies})


def refusal(request: Mapping[str, Any], *, kind: Kind, generation: int = 1, problem: str) -> Call:
    """The call that refuses a request that is no ask, so that the agent hears what was wrong and goes on."""
    id, session = quote(str(request.get("id", "")), safe=""), quote(str(request.get("sessionID", "")), safe="")
    path = _route(kind, session, id, generation=generation)
    told = f"This could not be asked: {problem}. No person has seen it."
    if kind == "permission":
        return Call(path, _refused(told))
    questions = request.get("questions")
    return Call(path, {"answers": [[told] for _ in (questions if isinstance(questions, list) else ())]})


def clearing(ask: Ask) -> Call:
    """The call that takes a request off OpenCode's list when its turn is over already."""
    session, request = request_of(ask)
    if ask.permission is not None:
        return Call(_path(ask, "permission", session, request), _refused("the turn is over"))
    path = _path(ask, "question", session, request)
    return Call(f"{path.removesuffix('/reply')}/reject")


def _path(ask: Ask, kind: Kind, session: str, request: str) -> str:
    generation = (ask.extra or {}).get("generation", 1)
    return _route(kind, quote(session, safe=""), quote(request, safe=""), generation=generation)


def _route(kind: Kind, session: str, request: str, *, generation: int) -> str:
    return f"/{kind}/{request}/reply" if generation == 1 else f"/api/session/{session}/{kind}/{request}/reply"


def _refused(message: str) -> dict[str, Any]:
    return {"reply": "reject", "message": message}


def _why_not(answer: Answer) -> str:
    if answer.by_policy:
        return f"Nobody is there to allow this ({answer.reason or 'policy'}). Go on without it."
    return answer.reason or "The user does not allow this. Go on without it."


def _declined(question: Question, answer: Answer) -> str:
    if not question.custom and any(option.label == "No" for option in question.options):
        return "No"  # of `plan_exit`, which reads any other text as a yes
    if answer.by_policy:
        return f"No person is available ({answer.reason or 'policy'}); decide yourself and note the assumption."
    return "The user declined to answer this." + (f" Reason: {answer.reason}" if answer.reason else "")


def local_answer(ask: Ask, event: Mapping[str, Any]) -> Answer:
    """What somebody said in OpenCode's own terminal, from the event that tells of it (its `type` and `properties`)."""
    told = event.get("properties")
    properties: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    if ask.permission is not None:
        reply = str(properties.get("reply", "reject"))
        return Answer(reply=reply, rejected=reply == "reject", by="agent", via=AGENT)
    answers = properties.get("answers")
    if not isinstance(answers, list):
        return Answer(rejected=True, by="agent", via=AGENT)
    given = [entries if isinstance(entries, list) else [] for entries in answers]
    given += [[]] * (len(ask.questions) - len(given))  # OpenCode takes fewer; they were skipped
    values = tuple(
        tuple(_value_of(question, str(entry)) for entry in entries)
        for question, entries in zip(ask.questions, given, strict=False)
    )
    return Answer(answers=values, by="agent", via=AGENT)


def _value_of(question: Question, label: str) -> str:
    """OpenCode knows labels only; of two that are the same the first is meant."""
    return next((option.value for option in question.options if option.label == label), label)


# What OpenCode sent -----------------------------------------------------------------------------------------


def _misfit(at: str, problem: str) -> NoReturn:
    raise AskDoesNotFit(f"{at}: {problem}", [{"at": at, "problem": problem}])


def _text(told: Mapping[str, Any], key: str, *, at: str = "", default: str | None = None) -> str:
    value = told.get(key, default)
    if not isinstance(value, str):
        _misfit(f"{at}.{key}" if at else key, "a text is expected")
    return value


def _optional(told: Mapping[str, Any], key: str) -> str | None:
    value = told.get(key)
    return value if isinstance(value, str) and value else None


def _list(told: Mapping[str, Any], key: str, *, at: str = "") -> list[Any]:
    value = told.get(key)
    if not isinstance(value, list):
        _misfit(f"{at}.{key}" if at else key, "a list is expected")
    return value


def _texts(told: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = told.get(key)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _others(told: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key not in known}
