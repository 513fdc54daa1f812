"""The session routes of sandbox-agent: its questions as they come and go, and the answers to them.

Each event carries that project's five fields (`question_id`, `prompt`, `options`, `response`, `status`) and, so that a
frame can be understood by itself, `type`, `session_id` and `at`. Two things it has no word for: a withdrawn ask is
told as rejected, and permissions are not told at all, nor answered here; they are on `/v1/events` and `/v1/asks`.
Errors are the desk's own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from handraise.asks import Answer, Ask
from handraise.broker import Broker
from handraise.errors import AlreadyAnswered, AnswerDoesNotFit, AskNotFound, AskWithdrawn, SessionNotFound, StoreFailed
from handraise.server.declare import declare, mount
from handraise.server.gate import source_of, token_of
from handraise.server.http import RouteNotFound, TooLarge, WrongMethod, query, read_body
from handraise.server.routes import RouteGroup
from handraise.server.routes.asks import QUESTION_IN_PATH
from handraise.server.routes.sessions import SESSION_IN_PATH, SESSIONS
from handraise.server.stream import AFTER_EVENT, LAST_EVENT_ID, follow, start_of, stream
from handraise.stores import Query
from handraise.wire import BadBody, StoredEvent, parse, time_text
from handraise.wire.asks import AnswerBody
from handraise.wire.fields import Time

__all__ = ["routes"]

VIA = "sandbox-agent"

_STATUS = {"asked": "requested", "answered": "answered", "rejected": "rejected", "withdrawn": "rejected"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionEvent:
    type: Literal["question.requested", "question.resolved"]
    session_id: str
    at: Time
    question_id: str
    prompt: str
    options: tuple[str, ...]
    response: str | None
    status: Literal["requested", "answered", "rejected"]


def routes(broker: Broker) -> list[Route]:
    return [*mount(QuestionRoutes(broker)), *mount(Events(broker))]


class QuestionRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @declare(
        "POST /v1/sessions/{question:path}/reply",
        id="reply_to_a_question_of_a_session",
        summary="Answer it. `answers` is all that is read",
        tag=SESSIONS,
        scope="answer",
        documented_path="/v1/sessions/{session}/questions/{question}/reply",
        parameters=(SESSION_IN_PATH, QUESTION_IN_PATH),
        body=AnswerBody,
        replies={204: (None, "It is answered.")},
        refusals=(
            BadBody,
            TooLarge,
            RouteNotFound,
            SessionNotFound,
            AskNotFound,
            AlreadyAnswered,
            AskWithdrawn,
            AnswerDoesNotFit,
            StoreFailed,
        ),
    )
    async def reply(self, request: Request) -> Response:
        body = parse(AnswerBody, await read_body(request.scope, request.receive))
        return await self._settle(request, Answer(answers=body.answers, by=token_of(request.scope).name, via=VIA))

    @declare(
        "POST /v1/sessions/{question:path}/reject",
        id="reject_a_question_of_a_session",
        summary="Refuse it, finally",
        tag=SESSIONS,
        scope="answer",
        documented_path="/v1/sessions/{session}/questions/{question}/reject",
        parameters=(SESSION_IN_PATH, QUESTION_IN_PATH),
        replies={204: (None, "It is rejected.")},
        refusals=(RouteNotFound, SessionNotFound, AskNotFound, AlreadyAnswered, AskWithdrawn, StoreFailed),
    )
    async def reject(self, request: Request) -> Response:
        return await self._settle(request, Answer(rejected=True, by=token_of(request.scope).name, via=VIA))

    async def _settle(self, request: Request, answer: Answer) -> Response:
        session, kind, id, _ = _under_sessions(request.scope, count=4)
        if kind != "questions":
            raise _no_such_route()
        await self._broker.sessions.get(session)
        stored = await self._broker.stored(id)
        if stored.session != session or stored.ask().permission is not None:
            raise AskNotFound(id)
        await self._broker.answer_stored(id, answer, source=source_of(request.scope))
        return Response(status_code=204)


class Events:
    """`GET /v1/sessions/{id}/events`: from now on, or after `Last-Event-ID` or `?after=`; 0 is the beginning."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @declare(
        "GET /v1/sessions/{session:path}/events",
        id="follow_the_questions_of_a_session",
        summary="The questions of one session as they come and go: `question.requested`, `question.resolved`",
        tag=SESSIONS,
        scope="answer",
        parameters=(SESSION_IN_PATH, AFTER_EVENT, LAST_EVENT_ID),
        replies={200: ("text/event-stream", "Each frame has the cursor as `id` and a QuestionEvent as `data`.")},
        refusals=(BadBody, RouteNotFound, SessionNotFound),
        inside=(QuestionEvent,),
    )
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            raise WrongMethod("use GET", allow="GET")
        session, _ = _under_sessions(scope, count=2)
        asked = query(scope["query_string"], "after")
        await self._broker.sessions.get(session)
        after = await start_of(self._broker, scope, asked.get("after"))
        await stream(self._frames(Query(session=session), after=after), receive, send)

    async def _frames(self, wanted: Query, *, after: int) -> AsyncIterator[bytes]:
        yield b"retry: 1000\nid: %d\n\n" % after
        async for batches in follow(self._broker, wanted, after=after):
            told = b"".join(_frame(event) for batch in batches for event in batch.events)
            if told or not batches:  # nothing at all is a heartbeat
                yield told


def _frame(event: StoredEvent) -> bytes:
    if event.type not in _STATUS:
        return b""
    ask = event.ask.ask()
    if ask.permission is not None:
        return b""
    told = {
        "type": "question.requested" if event.type == "asked" else "question.resolved",
        "session_id": ask.origin.session,
        "at": time_text(event.at),
        **_question(ask, status=_STATUS[event.type]),
    }
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.cursor, told["type"].encode(), to_json(told))


def _question(ask: Ask, *, status: str) -> dict[str, Any]:
    """sandbox-agent's `QuestionEventData`: one prompt and one list of options, whatever the ask holds."""
    values = ask.answer.values if ask.answer is not None else ()
    return {
        "question_id": ask.id,
        "prompt": "\n".join(question.question for question in ask.questions),
        "options": [option.label for option in ask.questions[0].options],
        "response": values[0] if values else None,
        "status": status,
    }


def _under_sessions(scope: Scope, *, count: int) -> list[str]:
    """What follows `/v1/sessions` in the raw path, in so many parts. Raw, so that an id may hold any character."""
    parts = [unquote(part) for part in scope["raw_path"].decode("utf-8", "replace").split("/")[3:]]
    if len(parts) != count:
        raise _no_such_route()
    return parts


def _no_such_route() -> RouteNotFound:
    return RouteNotFound("there is no such route; `/openapi.json` lists them")


plugin = RouteGroup(handlers=(QuestionRoutes, Events), routes=lambda desk: routes(desk.broker))
