"""The session routes of sandbox-agent (S3): its questions as they come and go, and the answers to them.

Each event carries that project's five fields (`question_id`, `prompt`, `options`, `response`, `status`) and, so that a
frame can be understood by itself, `type`, `session_id` and `at`. Two things it has no word for: a withdrawn ask is
told as rejected, and permissions are not told at all, nor answered here; they are on `/v1/events` and `/v1/asks`.
Errors are the desk's own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from handraise.asks import Answer, Ask
from handraise.broker import Broker
from handraise.errors import AskNotFound
from handraise.server.gate import require, source_of
from handraise.server.http import RouteNotFound, WrongMethod, query, read_body
from handraise.server.stream import follow, start_of, stream
from handraise.stores import Query
from handraise.wire import AnswerBody, StoredEvent, parse, time_text

__all__ = ["routes"]

VIA = "sandbox-agent"

_STATUS = {"asked": "requested", "answered": "answered", "rejected": "rejected", "withdrawn": "rejected"}


def routes(broker: Broker) -> list[Route]:
    async def reply(request: Request) -> Response:
        token = require(request.scope, "answer")
        body = parse(AnswerBody, await read_body(request.scope, request.receive))
        return await settle(request, Answer(answers=body.answers, by=token.name, via=VIA))

    async def reject(request: Request) -> Response:
        token = require(request.scope, "answer")
        return await settle(request, Answer(rejected=True, by=token.name, via=VIA))

    async def settle(request: Request, answer: Answer) -> Response:
        session, kind, id, _ = _under_sessions(request.scope, count=4)
        if kind != "questions":
            raise _no_such_route()
        await broker.sessions.get(session)
        stored = await broker.stored(id)
        if stored.session != session or stored.ask().permission is not None:
            raise AskNotFound(id)
        await broker.answer_stored(id, answer, source=source_of(request.scope))
        return Response(status_code=204)

    # One open-ended part each: with two, a long path would take the matcher quadratic time.
    return [
        Route("/v1/sessions/{question:path}/reply", reply, methods=["POST"]),
        Route("/v1/sessions/{question:path}/reject", reject, methods=["POST"]),
        Route("/v1/sessions/{session:path}/events", _Events(broker)),
    ]


class _Events:
    """`GET /v1/sessions/{id}/events`: from now on, or after `Last-Event-ID` or `?after=`; 0 is the beginning."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            raise WrongMethod("use GET", allow="GET")
        require(scope, "answer")
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
