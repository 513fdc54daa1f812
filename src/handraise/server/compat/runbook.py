"""The run routes of runbook: a run with the questions that wait in it, and the answers to them.

Names and errors are that project's. What differs, and why:

- An answer is checked before it is accepted. One that does not fit is a 400, and the question waits on.
- To reject is final. There the first option would be taken instead.
- A run that is parked is told as a failure. What waits at a checkpoint is given by `POST /v1/checkpoints/{id}`.
- Permissions are no questions: they are on `/v1/asks`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from handraise.asks import Answer, Ask
from handraise.broker import Broker
from handraise.errors import AlreadyAnswered, AnswerDoesNotFit, AskNotFound, AskWithdrawn, RunNotFound, StoreFailed
from handraise.server.declare import TEXT, Raw, Tag, declare, mount
from handraise.server.gate import source_of, token_of
from handraise.server.http import RouteNotFound, TooLarge, read_body
from handraise.server.routes import RouteGroup
from handraise.server.routes.api import json_response
from handraise.server.routes.asks import QUESTION_IN_PATH
from handraise.server.routes.runs import RUN_IN_PATH
from handraise.wire import check_values, time_text
from handraise.wire.fields import OR_NULL, Time
from handraise.wire.runs import AgentQuestion
from handraise.workflow.journal import Journal, RunRecord
from handraise.workflow.trace import agent_question, values

__all__ = ["routes"]

VIA = "runbook"

_STATUS = {"open": "running", "done": "success", "failed": "failure", "parked": "failure", "cancelled": "cancelled"}

Handler = Callable[["RunbookRoutes", Request], Awaitable[Response]]

RUNBOOK = Tag("runbook", "The run routes of runbook, so that its clients answer what a run asks. In its own words.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunbookRun:
    run_id: str
    workflow_id: str
    status: Literal["running", "success", "failure", "cancelled"]
    input: Any
    output: Any = None
    error: Annotated[str | None, OR_NULL] = None
    started_at: Time
    completed_at: Time | None = None
    pending_checkpoints: tuple[str, ...]
    pending_questions: tuple[AgentQuestion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunbookAnswered:
    status: Literal["answered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunbookRefusal:
    error: str


ANSWER = Raw(
    "RunbookAnswer",
    {
        "type": "object",
        "properties": {
            "answers": {"type": "array", "items": {"type": "array", "items": TEXT}},
            "reject": {"type": "boolean"},
        },
        "required": [],
        "anyOf": [
            {"title": "Answers", "required": ["answers"]},
            {"title": "A rejection", "required": ["reject"], "properties": {"reject": {"const": True}}},
        ],
        "examples": [{"answers": [["Postgres"]]}],
    },
)


def routes(broker: Broker) -> list[Route]:
    return mount(RunbookRoutes(broker))


class _Refusal(Exception):
    def __init__(self, status: int, error: str) -> None:
        super().__init__(status, error)
        self.status = status
        self.error = error


def _in_their_words(handler: Handler) -> Handler:
    @wraps(handler)
    async def handle(self: RunbookRoutes, request: Request) -> Response:
        try:
            return await handler(self, request)
        except _Refusal as refusal:
            return json_response({"error": refusal.error}, status=refusal.status)

    return handle


class RunbookRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._journal = Journal(broker.store)

    @declare(
        "GET /runs/{run}",
        id="runbook_run",
        summary="A run, with its open questions in full and the ids of its open checkpoints",
        tag=RUNBOOK,
        scope="answer",
        parameters=(RUN_IN_PATH,),
        replies={
            200: (RunbookRun, "As runbook tells it."),
            404: (RunbookRefusal, "`run_not_found`, or no such route."),
        },
    )
    @_in_their_words
    async def show(self, request: Request) -> Response:
        (run,) = _under_runs(request.scope, count=1)
        record = await self._run(run)
        waiting = [ask async for ask in self._broker.asks(state="asked", run=run) if ask.permission is None]
        told = {
            **_state(record),
            "pending_checkpoints": await self._journal.waiting_at(run),
            "pending_questions": [agent_question(ask) for ask in waiting],
        }
        return json_response(told)

    @declare(
        "POST /runs/{run}/questions/{question:path}",
        id="runbook_answer_a_question",
        summary="Answer it by label, or reject it",
        tag=RUNBOOK,
        scope="answer",
        parameters=(RUN_IN_PATH, QUESTION_IN_PATH),
        body=ANSWER,
        replies={
            200: (RunbookAnswered, "It is settled."),
            400: (RunbookRefusal, "Neither answers nor a rejection, or answers that do not fit. It waits on."),
            404: (RunbookRefusal, "`run_not_found`; `question_not_found`, also where it is settled; or no such route."),
        },
        refusals=(TooLarge, StoreFailed),
    )
    @_in_their_words
    async def answer(self, request: Request) -> Response:
        token = token_of(request.scope)
        run, kind, id = _under_runs(request.scope, count=3)
        if kind != "questions":
            raise RouteNotFound("there is no such route; `/openapi.json` lists them")
        raw = await read_body(request.scope, request.receive)
        check_values(raw)
        await self._run(run)
        ask = await self._waiting(run, id)
        answer = _answer(ask, raw, by=token.name)
        try:
            await self._broker.answer_stored(ask.id, answer, allow_repeat=False, source=source_of(request.scope))
        except AnswerDoesNotFit as unfit:
            raise _Refusal(400, unfit.message) from None
        except (AskNotFound, AlreadyAnswered, AskWithdrawn):
            raise _question_not_found() from None
        return json_response({"status": "answered"})

    async def _run(self, id: str) -> RunRecord:
        try:
            return await self._journal.get(id)
        except RunNotFound:
            raise _Refusal(404, "run_not_found") from None

    async def _waiting(self, run: str, id: str) -> Ask:
        """The question, if it is one of this run that nobody has answered."""
        stored = await self._broker.store.get(id)
        if stored is None or stored.run != run or stored.state != "asked":
            raise _question_not_found()
        ask = stored.ask()
        if ask.permission is not None:
            raise _question_not_found()
        return ask


def _state(record: RunRecord) -> dict[str, Any]:
    told: dict[str, Any] = {
        "run_id": record.id,
        "workflow_id": record.workflow,
        "status": _STATUS[record.state],
        "input": record.input,
        "started_at": time_text(record.created_at),
    }
    if record.state == "open":
        return told
    told["completed_at"] = time_text(record.updated_at)
    if record.state == "done":
        return told | {"output": record.output}
    return told | {"error": record.error}


def _answer(ask: Ask, raw: bytes, *, by: str) -> Answer:
    try:
        body = from_json(raw or b"{}")
    except ValueError:
        raise _Refusal(400, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise _Refusal(400, "must provide answers or reject")
    if body.get("reject") is True:
        return Answer(rejected=True, by=by, via=VIA)
    answers = body.get("answers")
    if answers is None:
        raise _Refusal(400, "must provide answers or reject")
    is_list = isinstance(answers, list) and all(isinstance(entries, list) for entries in answers)
    if not is_list or not all(isinstance(entry, str) for entries in answers for entry in entries):
        raise _Refusal(400, "answers is a list of lists of texts, one list per question")
    return Answer(answers=values(ask, answers), by=by, via=VIA)


def _under_runs(scope: Scope, *, count: int) -> list[str]:
    """What follows `/runs` in the raw path, in so many parts. Raw, so that an id may hold any character."""
    parts = [unquote(part) for part in scope["raw_path"].decode("utf-8", "replace").split("/")[2:]]
    if len(parts) != count:
        raise RouteNotFound("there is no such route; `/openapi.json` lists them")
    return [part.replace("\0", "\\0") for part in parts]  # which no database takes


def _question_not_found() -> _Refusal:
    """Also for one that is settled: who comes second learns no more than that."""
    return _Refusal(404, "question_not_found")


plugin = RouteGroup(handlers=(RunbookRoutes,), routes=lambda desk: routes(desk.broker))
