"""OpenCode's question and permission routes, so that a client written for it answers for every agent.

Shapes, codes and events are those recorded from OpenCode 1.18.33. What differs, and why:

- A directory (`?directory=` or `x-opencode-directory`) narrows to the asks raised there. Without one this is the whole
  desk; OpenCode would take its own working directory, and a desk has none.
- An answer is checked before it is accepted. What does not fit is a 400; OpenCode takes anything.
- An ask that its agent withdrew is told as rejected; OpenCode keeps it listed as a ghost.
- A rejected permission rejects no other; OpenCode rejects all of the session.
- `server.heartbeat` goes out with the desk's own, every 15 seconds rather than 10.
- Of sessions only `/session/status` is there: one with an open ask, or in a turn that was started here, is busy.

An id or session of ours that lacks OpenCode's prefix is shown with it. On the way in an id is taken as given where an
ask has it, and without the prefix otherwise.
"""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from importlib.metadata import version
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import unquote

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from handraise.asks import Answer, Ask, Permission, Question
from handraise.broker import Broker
from handraise.errors import AlreadyAnswered, AnswerDoesNotFit, AskNotFound, AskWithdrawn, StoreFailed
from handraise.server.declare import TEXT, Raw, Tag, declare, in_path, mount
from handraise.server.gate import source_of
from handraise.server.http import RouteNotFound, TooLarge, WrongMethod, read_body
from handraise.server.routes import RouteGroup
from handraise.server.routes.api import json_response
from handraise.server.stream import follow, stream
from handraise.stores import Query
from handraise.tables.tokens import Token
from handraise.wire import StoredEvent, check_values
from handraise.wire.fields import OR_NULL
from handraise.wire.schema import reference

__all__ = ["from_ask", "routes", "to_answer"]

VIA = "opencode"
REPLIES = ("once", "always", "reject")

Handler = Callable[["OpenCodeRoutes", Request], Awaitable[Response]]
Labels = tuple[tuple[str, ...], ...]

OPENCODE = Tag(
    "opencode", "The routes of an OpenCode server, so that its clients answer for every agent. In its own words."
)
QUESTION_REQUEST_IN_PATH = in_path("question_request", meaning="The id of an ask, with `que_`.", pattern="^que")
PERMISSION_REQUEST_IN_PATH = in_path("permission_request", meaning="The id of an ask, with `per_`.", pattern="^per")
OPENCODE_SESSION_IN_PATH = in_path("opencode_session", meaning="The id of a session, with `ses_`.", pattern="^ses")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCodeAnswers:
    answers: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCodeReply:
    reply: Literal["once", "always", "reject"]
    message: Annotated[str | None, OR_NULL] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCodeResponse:
    response: Literal["once", "always", "reject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCodeBadRequest:
    name: Literal["BadRequest"]
    data: Mapping[str, Any]


DOCUMENT = Raw("Document", {"type": "object"})
DONE = Raw("True", {"const": True, "type": "boolean"})
REQUESTS = Raw(
    "OpenCodeRequests",
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"id": TEXT, "sessionID": TEXT},
            "required": ["id", "sessionID"],
        },
    },
)
NOT_FOUND = Raw(
    "OpenCodeNotFound",
    {
        "anyOf": [
            {
                "type": "object",
                "properties": {"_tag": TEXT, "requestID": TEXT, "message": TEXT},
                "required": ["_tag", "requestID", "message"],
            },
            reference("NotFound"),
        ],
    },
)
SETTLED: Mapping[int, tuple[type | Raw, str]] = {
    200: (DONE, "Done."),
    400: (OpenCodeBadRequest, "Not what OpenCode takes, or not an answer to this."),
    404: (NOT_FOUND, "There is none of that id that waits, or no such route."),
}


class _Kind(NamedTuple):
    name: str
    prefix: str


QUESTION = _Kind("Question", "que")
PERMISSION = _Kind("Permission", "per")


def routes(broker: Broker) -> list[Route]:
    return [*mount(OpenCodeRoutes(broker)), *mount(Events(broker)), *mount(GlobalEvents(broker))]


class _TwinRoute(Route):
    """Takes the path apart as it was sent: a pattern with two open parts is compared in quadratic time."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match scope["raw_path"].split(b"/") if scope["type"] == "http" else ():
            case [b"", b"session", _, b"permissions", _]:
                is_meant = self.methods is not None and scope["method"] in self.methods
                return Match.FULL if is_meant else Match.PARTIAL, {"endpoint": self.endpoint, "path_params": {}}
        return Match.NONE, {}


class _Refusal(Exception):
    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body


def _in_their_words(handler: Handler) -> Handler:
    @wraps(handler)
    async def handle(self: OpenCodeRoutes, request: Request) -> Response:
        try:
            return await handler(self, request)
        except _Refusal as refusal:
            return json_response(refusal.body, status=refusal.status)

    return handle


class OpenCodeRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @declare(
        "GET /question",
        id="opencode_questions",
        summary="Open questions",
        tag=OPENCODE,
        scope="answer",
        replies={200: (REQUESTS, "As OpenCode tells it.")},
    )
    async def questions(self, request: Request) -> Response:
        return self._listed(request, QUESTION)

    @declare(
        "GET /permission",
        id="opencode_permissions",
        summary="Open permissions",
        tag=OPENCODE,
        scope="answer",
        replies={200: (REQUESTS, "As OpenCode tells it.")},
    )
    async def permissions(self, request: Request) -> Response:
        return self._listed(request, PERMISSION)

    @declare(
        "GET /session/status",
        id="opencode_session_status",
        summary="Sessions that wait",
        tag=OPENCODE,
        scope="answer",
        replies={200: (DOCUMENT, "As OpenCode tells it.")},
    )
    async def status(self, request: Request) -> Response:
        """Clients ask for it after a reconnect, to drop requests whose session no longer works on anything."""
        busy = {_prefixed("ses", ask.origin.session) async for ask in self._open(request)}
        directory = _directory(request)
        running = [record for record in await self._broker.sessions.newest() if record.state == "running"]
        busy |= {_prefixed("ses", record.id) for record in running if directory in (None, record.cwd)}
        return json_response({session: {"type": "busy"} for session in sorted(busy)})

    @declare(
        "GET /global/health",
        id="opencode_health",
        summary="Whether the desk is there",
        tag=OPENCODE,
        scope="",
        replies={200: (DOCUMENT, "As OpenCode tells it.")},
    )
    async def health(self, request: Request) -> Response:
        return json_response({"healthy": True, "version": version("handraise")})

    @declare(
        "POST /question/{question_request:path}/reply",
        id="opencode_reply_to_a_question",
        summary="Answer by label",
        tag=OPENCODE,
        scope="answer",
        parameters=(QUESTION_REQUEST_IN_PATH,),
        body=OpenCodeAnswers,
        replies=SETTLED,
        refusals=(TooLarge, StoreFailed),
    )
    @_in_their_words
    async def reply_question(self, request: Request) -> Response:
        id = _request_id(QUESTION, request.scope)
        labels = _labels(await _body(request))
        ask = await self._find(QUESTION, id, directory=_directory(request))
        return await self._settle(request, ask, to_answer(ask, labels), kind=QUESTION, id=id)

    @declare(
        "POST /question/{question_request:path}/reject",
        id="opencode_reject_a_question",
        summary="Refuse it",
        tag=OPENCODE,
        scope="answer",
        parameters=(QUESTION_REQUEST_IN_PATH,),
        replies=SETTLED,
        refusals=(TooLarge, StoreFailed),
    )
    @_in_their_words
    async def reject_question(self, request: Request) -> Response:
        id = _request_id(QUESTION, request.scope)
        ask = await self._find(QUESTION, id, directory=_directory(request))
        return await self._settle(request, ask, Answer(rejected=True), kind=QUESTION, id=id)

    @declare(
        "POST /permission/{permission_request:path}/reply",
        id="opencode_reply_to_a_permission",
        summary="Reply",
        tag=OPENCODE,
        scope="answer",
        parameters=(PERMISSION_REQUEST_IN_PATH,),
        body=OpenCodeReply,
        replies=SETTLED,
        refusals=(TooLarge, StoreFailed),
    )
    @_in_their_words
    async def reply_permission(self, request: Request) -> Response:
        id = _request_id(PERMISSION, request.scope)
        body = await _body(request)
        answer = Answer(reply=_reply(body, "reply"), reason=_message(body))
        ask = await self._find(PERMISSION, id, directory=_directory(request))
        return await self._settle(request, ask, answer, kind=PERMISSION, id=id)

    @declare(
        "POST /session/{opencode_session:path}/permissions/{permission_request:path}",
        id="opencode_reply_to_a_permission_of_a_session",
        summary="Reply, the way older clients do",
        tag=OPENCODE,
        scope="answer",
        parameters=(OPENCODE_SESSION_IN_PATH, PERMISSION_REQUEST_IN_PATH),
        matching=_TwinRoute,
        body=OpenCodeResponse,
        replies=SETTLED,
        refusals=(TooLarge, StoreFailed),
    )
    @_in_their_words
    async def reply_permission_of_session(self, request: Request) -> Response:
        """The deprecated twin. It knows the session, so a directory means nothing here."""
        _, session, _, id = _parts(request.scope, count=4)
        _check_prefix("ses", session, at="sessionID")
        _check_prefix("per", id, at="permissionID")
        answer = Answer(reply=_reply(await _body(request), "response"))
        ask = await self._find(PERMISSION, id, directory=None)
        if session not in (ask.origin.session, _prefixed("ses", ask.origin.session)):
            raise _not_found(PERMISSION, id)
        return await self._settle(request, ask, answer, kind=PERMISSION, id=id)

    def _listed(self, request: Request, kind: _Kind) -> Response:
        """Written ask by ask: there may be any number of them, and each may be large."""

        async def pieces() -> AsyncIterator[bytes]:
            begin = b"["
            async for ask in self._open(request):
                if _kind(ask) is kind:
                    yield begin + to_json(from_ask(ask))
                    begin = b","
            yield b"]" if begin == b"," else b"[]"

        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
        return StreamingResponse(pieces(), media_type="application/json", headers=headers)

    async def _open(self, request: Request) -> AsyncIterator[Ask]:
        directory = _directory(request)
        async for ask in self._broker.asks(state="asked"):
            if _is_in(ask, directory):
                yield ask

    async def _find(self, kind: _Kind, id: str, *, directory: str | None) -> Ask:
        for own in dict.fromkeys((id, id.removeprefix(f"{kind.prefix}_"))):
            stored = await self._broker.store.get(own)
            if stored is not None and _kind(ask := stored.ask()) is kind and _is_in(ask, directory):
                return ask
        raise _not_found(kind, id)

    async def _settle(self, request: Request, ask: Ask, answer: Answer, *, kind: _Kind, id: str) -> Response:
        token: Token = request.scope["token"]
        answer = replace(answer, by=token.name, via=VIA)
        try:
            await self._broker.answer_stored(ask.id, answer, allow_repeat=False, source=source_of(request.scope))
        except AnswerDoesNotFit as unfit:
            raise _bad_request(str(unfit), kind="Payload") from None
        except (AskNotFound, AlreadyAnswered, AskWithdrawn):
            raise _not_found(kind, id) from None
        return json_response(True)


class Events:
    """From now on only: OpenCode's streams replay nothing."""

    everywhere = False

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @declare(
        "GET /event",
        id="opencode_events",
        summary="Events of one directory, or all",
        tag=OPENCODE,
        scope="answer",
        replies={200: ("text/event-stream", "As OpenCode tells it.")},
    )
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            raise WrongMethod("use GET", allow="GET")
        directory = None if self.everywhere else _directory(Request(scope))
        # Read before the first frame: whoever saw `server.connected` misses nothing that is asked after it.
        after = await self._broker.store.cursor()
        await stream(self._frames(directory, after=after), receive, send)

    async def _frames(self, directory: str | None, *, after: int) -> AsyncIterator[bytes]:
        yield self._server("connected")
        async for batches in follow(self._broker, Query(), after=after):
            told = b"".join(self._told(event, directory) for batch in batches for event in batch.events)
            if told:
                yield told
            elif not batches:
                yield self._server("heartbeat")

    def _server(self, what: str) -> bytes:
        return self._frame(None, id=secrets.token_hex(13), type=f"server.{what}", properties={})

    def _told(self, event: StoredEvent, directory: str | None) -> bytes:
        if event.type not in ("asked", "answered", "rejected", "withdrawn"):
            return b""
        ask = event.ask.ask()
        if not _is_in(ask, directory):
            return b""
        type, properties = _event(event.type, ask)
        return self._frame(ask.origin.cwd, id=f"{event.cursor:026d}", type=type, properties=properties)

    def _frame(self, directory: str | None, *, id: str, type: str, properties: dict[str, Any]) -> bytes:
        told: dict[str, Any] = {"id": f"evt_{id}", "type": type, "properties": properties}
        if self.everywhere:
            # OpenCode's own client takes an envelope without a directory for one that concerns them all.
            told = {"payload": told} if directory is None else {"directory": directory, "payload": told}
        return b"data: %s\n\n" % to_json(told)


class GlobalEvents(Events):
    """The same with the directory around each event."""

    everywhere = True

    @declare(
        "GET /global/event",
        id="opencode_global_events",
        summary="Events with their directory",
        tag=OPENCODE,
        scope="answer",
        replies={200: ("text/event-stream", "As OpenCode tells it.")},
    )
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, send)


# Ours into theirs -------------------------------------------------------------------------------------------


def from_ask(ask: Ask) -> dict[str, Any]:
    """A `QuestionRequest` or a `PermissionRequest`: an entry of the lists, and the properties of `*.asked`."""
    kind = _kind(ask)
    told: dict[str, Any] = {
        "id": _prefixed(kind.prefix, ask.id),
        "sessionID": _prefixed("ses", ask.origin.session),
    }
    if ask.permission is not None:
        told |= _permission(ask.permission)
    else:
        told["questions"] = [_question(question) for question in ask.questions]
    tool = (ask.extra or {}).get("tool")
    if isinstance(tool, dict) and all(isinstance(tool.get(key), str) for key in ("messageID", "callID")):
        told["tool"] = {"messageID": tool["messageID"], "callID": tool["callID"]}
    return told


def _question(question: Question) -> dict[str, Any]:
    shown = _shown(question)
    return {
        "question": question.question,
        "header": question.title,
        "options": [
            {"label": shown.get(option.value, option.label), "description": option.description}
            for option in question.options
        ],
        "multiple": question.multiple,
        "multiSelect": question.multiple,  # the name that older clients know
        "custom": question.custom,
    }


def _permission(permission: Permission) -> dict[str, Any]:
    offered = list(dict.fromkeys(pattern for scope in permission.scopes for pattern in scope.patterns))
    single = permission.command or permission.url
    touched = list(permission.paths) or ([single] if single else offered)
    metadata = {
        "command": permission.command,
        "filepath": permission.paths[0] if permission.paths else None,
        "diff": permission.diff,
        "url": permission.url,
        "cwd": permission.cwd,
        "summary": permission.summary or None,
        "input": permission.input,
    }
    return {
        "permission": permission.tool,
        "patterns": touched,
        "metadata": {key: value for key, value in metadata.items() if value is not None},
        "always": offered if "always" in permission.replies else [],
    }


def _event(type: str, ask: Ask) -> tuple[str, dict[str, Any]]:
    """What OpenCode calls it, and its properties. They name the ask `id` when it is asked, `requestID` afterwards."""
    if type == "asked":
        return f"{_kind(ask).name.lower()}.asked", from_ask(ask)
    settled: dict[str, Any] = {
        "sessionID": _prefixed("ses", ask.origin.session),
        "requestID": _prefixed(_kind(ask).prefix, ask.id),
    }
    answer = ask.answer or Answer(rejected=True)
    if ask.permission is not None:
        return "permission.replied", settled | {"reply": answer.reply or "reject"}
    if type != "answered":
        return "question.rejected", settled
    labels = [
        [_shown(question).get(value, value) for value in values]
        for question, values in zip(ask.questions, answer.answers or (), strict=False)
    ]
    return "question.replied", settled | {"answers": labels}


def _kind(ask: Ask) -> _Kind:
    return QUESTION if ask.permission is None else PERMISSION


def _prefixed(prefix: str, id: str) -> str:
    return id if id.startswith(f"{prefix}_") else f"{prefix}_{id}"


def _values(question: Question) -> dict[str, str]:
    """The value behind each name an option has here: its label, or its value where an earlier one has that label."""
    values: dict[str, str] = {}
    for option in question.options:
        values.setdefault(option.value if option.label in values else option.label, option.value)
    return values


def _shown(question: Question) -> dict[str, str]:
    return {value: name for name, value in _values(question).items()}


# Theirs into ours -------------------------------------------------------------------------------------------


def to_answer(ask: Ask, labels: Labels) -> Answer:
    """Labels as values, before the desk looks: there a value comes first, and one option's may be another's label."""
    if len(labels) != len(ask.questions):
        return Answer(answers=labels)  # the desk says how many it expects
    named = [_values(question) for question in ask.questions]
    return Answer(
        answers=tuple(
            tuple(values.get(entry, entry) for entry in entries) for values, entries in zip(named, labels, strict=True)
        )
    )


async def _body(request: Request) -> Mapping[str, Any]:
    raw = await read_body(request.scope, request.receive)
    if not raw:
        raise _bad_request("Expected object, got undefined", kind="Payload")
    check_values(raw)
    try:
        body = from_json(raw)
    except ValueError as invalid:
        raise _bad_request(f"the body is not JSON: {invalid}", kind="Payload") from None
    if not isinstance(body, dict):
        raise _unexpected("object", body)
    return body


def _labels(body: Mapping[str, Any]) -> Labels:
    answers = _given(body, "answers")
    if not isinstance(answers, list):
        raise _unexpected("array", answers, "answers")
    for index, entries in enumerate(answers):
        if not isinstance(entries, list):
            raise _unexpected("QuestionAnswer", entries, "answers", index)
        for number, entry in enumerate(entries):
            if not isinstance(entry, str):
                raise _unexpected("string", entry, "answers", index, number)
    return tuple(tuple(entries) for entries in answers)


def _reply(body: Mapping[str, Any], key: str) -> str:
    reply = _given(body, key)
    if reply not in REPLIES:
        raise _unexpected(" | ".join(f'"{name}"' for name in REPLIES), reply, key)
    return str(reply)


def _message(body: Mapping[str, Any]) -> str | None:
    message = body.get("message")
    if message is not None and not isinstance(message, str):
        raise _unexpected("string", message, "message")
    return message


def _given(body: Mapping[str, Any], key: str) -> Any:
    if key not in body:
        raise _bad_request(f'Missing key\n  at ["{key}"]', kind="Payload")
    return body[key]


def _directory(request: Request) -> str | None:
    """Where the caller looks. The header may be percent-encoded."""
    given = request.query_params.get("directory") or unquote(request.headers.get("x-opencode-directory", ""))
    return posixpath.normpath(given) if given else None


def _is_in(ask: Ask, directory: str | None) -> bool:
    if directory is None:
        return True
    return ask.origin.cwd is not None and posixpath.normpath(ask.origin.cwd) == directory


def _parts(scope: Scope, *, count: int) -> list[str]:
    """The raw path in parts, so that an id may hold any character. Raises RouteNotFound for another number of them."""
    parts = [unquote(part) for part in scope["raw_path"].decode("utf-8", "replace").split("/")[1:]]
    if len(parts) != count:
        raise RouteNotFound("there is no such route; `/openapi.json` lists them")
    return parts


def _request_id(kind: _Kind, scope: Scope) -> str:
    _, id, _ = _parts(scope, count=3)
    _check_prefix(kind.prefix, id, at="requestID")
    return id


def _check_prefix(prefix: str, id: str, *, at: str) -> None:
    if not id.startswith(prefix):
        raise _unexpected(f'a string starting with "{prefix}"', id, at, kind="Params")


# Errors as they tell them -----------------------------------------------------------------------------------


def _not_found(kind: _Kind, id: str) -> _Refusal:
    """Also for one that is settled: who comes second learns no more than that."""
    body = {
        "_tag": f"{kind.name}NotFoundError",
        "requestID": id,
        "message": f"{kind.name} request not found: {id}",
    }
    return _Refusal(404, body)


def _bad_request(message: str, *, kind: str) -> _Refusal:
    return _Refusal(400, {"name": "BadRequest", "data": {"message": message, "kind": kind}})


def _unexpected(expected: str, got: Any, *at: str | int, kind: str = "Payload") -> _Refusal:
    where = "".join(f'["{key}"]' if isinstance(key, str) else f"[{key}]" for key in at)
    shown = to_json(got).decode()[:200]
    return _bad_request(f"Expected {expected}, got {shown}" + (f"\n  at {where}" if where else ""), kind=kind)


plugin = RouteGroup(handlers=(OpenCodeRoutes, Events, GlobalEvents), routes=lambda desk: routes(desk.broker))
