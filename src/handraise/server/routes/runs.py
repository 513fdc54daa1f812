"""Runs of workflows over HTTP: start one, follow it, give what a checkpoint wants, cancel, retry, run it anew.

To find a workflow is to run the file it lies in, in a process of its own: whoever may not start processes here may not
look for one either.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic_core import PydanticSerializationError, to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handraise.asks import free_form_problem
from handraise.broker import Broker
from handraise.clock import Turns
from handraise.errors import (
    CheckpointNotFound,
    HandraiseError,
    InputDoesNotFit,
    OutputDoesNotFit,
    Overloaded,
    RunEnded,
    RunNotFound,
    SettingsError,
    StoreFailed,
    WorkflowBroken,
    WorkflowNotFound,
    WorkflowNotTrusted,
)
from handraise.server.declare import SECONDS, TEXT, Parameter, Tag, declare, in_path, mount, one_of, page_size
from handraise.server.gate import token_of
from handraise.server.http import RouteNotFound, TooLarge, encode, query, read_body, seconds_in
from handraise.server.routes import RouteGroup
from handraise.server.routes.api import ListResponse, json_response
from handraise.server.routes.asks import MOST_LISTED, PAGE, RUN, number, who
from handraise.stores import Query
from handraise.wire import BadBody, StoredEvent, parse
from handraise.wire import runs as shapes
from handraise.wire.plain import shape_of
from handraise.wire.runs import CheckpointBody, RetryBody, RunBody
from handraise.workflow.flow import INPUT, Author, DoesNotFit
from handraise.workflow.journal import CheckpointPlace, Journal, NewRun, RunRecord, WrittenEvent, check_retry
from handraise.workflow.loading import Files, find, listed, places
from handraise.workflow.replay import to_do
from handraise.workflow.trace import ASK_EVENTS, Position, by_time, told

__all__ = ["Runs", "folder_here"]

T = TypeVar("T")

MOST_WAITS = 1_000  # each is woken by every change of any run
MOST_TRACED = 200  # events a page
LONGEST_PAGE = 1024 * 1024  # characters of events or checkpoints after which a page ends
MOST_INPUT = 1024 * 1024  # characters that are kept of an input or an output, as JSON
CHECKPOINT_STATES = ("open", "given", "withdrawn")

RUNS = Tag("runs", "Workflows, their runs, and what waits for people in them.")
WORKFLOWS_CWD = Parameter(
    "cwd",
    schema=TEXT,
    meaning="The folder to look from, on the machine of the desk; without it, that of the desk.",
    key="workflows_cwd",
)
RUN_LIMIT = Parameter("limit", schema=page_size(MOST_LISTED, default=PAGE), meaning="At most so many.", key="runs")
RUN_IN_PATH = in_path("run", meaning="The id of a run.", example="run_5d41402abc4b")
WAIT_FOR_A_RUN = Parameter(
    "wait",
    schema=SECONDS,
    meaning="Seconds to wait until it is not `running`. When they have passed it is told as it is.",
    key="wait_for_a_run",
)
AFTER_TRACE = Parameter(
    "after",
    schema={"type": "string", "pattern": "^(?:[0-9]{1,18}-[0-9]{1,18})?$"},
    meaning="`next` of the page before.",
    key="after_trace",
)
WAIT_FOR_THE_TRACE = Parameter(
    "wait",
    schema=SECONDS,
    meaning="Seconds to wait where nothing more happened yet. Of a run that has ended nothing more comes.",
    key="wait_for_the_trace",
)
CHECKPOINT_STATE = Parameter(
    "state", schema=one_of(*CHECKPOINT_STATES), meaning="Only those in this state.", key="checkpoint_state"
)
AFTER_CHECKPOINT = Parameter(
    "after",
    schema={"type": "string", "pattern": "^(?:[0-9]{1,18}-.*)?$"},
    meaning="`next` of the page before.",
    key="after_checkpoint",
)
CHECKPOINTS = Parameter(
    "limit", schema=page_size(MOST_LISTED, default=MOST_LISTED), meaning="Checkpoints a page.", key="checkpoints"
)
CHECKPOINT_IN_PATH = in_path("checkpoint", meaning="The id of a checkpoint.", example="run_5d41402abc4b.review")


class _Page(NamedTuple):
    events: list[bytes]  # each as JSON
    next: Position
    record: RunRecord


class Runs:
    """`config` is the folder in which the user's own `workflows` lie; `authors` have the code of any."""

    def __init__(
        self,
        broker: Broker,
        *,
        authors: Files,
        config: Path | None = None,
        most_waits: int = MOST_WAITS,
    ) -> None:
        self._broker = broker
        self._journal = Journal(broker.store)
        self._config = config
        self._authors = authors
        self._most_waits = most_waits
        self._waits: set[asyncio.Event] = set()
        self._closing = False

    def routes(self) -> list[Route]:
        return mount(self)

    def stop(self) -> None:
        """End every wait, as a desk does that shuts down."""
        self._closing = True
        for changed in self._waits:
            changed.set()

    # Workflows ------------------------------------------------------------------------------------------------------

    @declare(
        "GET /v1/workflows",
        id="list_workflows",
        summary="The workflows of the nearest project above a folder, then the user's own. Their files are run to "
        "find them",
        tag=RUNS,
        scope="admin",
        parameters=(WORKFLOWS_CWD,),
        replies={200: (shapes.Workflows, "By file, in the order in which one is looked for.")},
        refusals=(BadBody, SettingsError),
    )
    async def workflows(self, request: Request) -> Response:
        folders = self._folders(query(request.scope["query_string"], "cwd").get("cwd"))
        return json_response({"workflows": await listed(folders, self._authors)})

    def _folders(self, cwd: str | None) -> list[Path]:
        return places(Path(folder_here(cwd)), config=self._config)

    # Runs -----------------------------------------------------------------------------------------------------------

    @declare(
        "POST /v1/runs",
        id="start_a_run",
        summary="Start a workflow. Its input is checked before anything is written down",
        tag=RUNS,
        scope="admin",
        body=RunBody,
        replies={201: (shapes.Run, "The run. A worker begins with it as soon as one is there.")},
        refusals=(
            BadBody,
            TooLarge,
            WorkflowNotFound,
            WorkflowNotTrusted,
            InputDoesNotFit,
            WorkflowBroken,
            SettingsError,
            StoreFailed,
        ),
    )
    async def start(self, request: Request) -> Response:
        token = token_of(request.scope)
        body = parse(RunBody, await read_body(request.scope, request.receive))
        folders = self._folders(body.cwd)
        file, author = await find(body.workflow, folders, self._authors)
        await _check_input(author, body.input)
        wanted = NewRun(workflow=author.flow.name, file=str(file), cwd=folder_here(body.cwd), input=body.input)
        record = await self._journal.create(wanted, by=token.name, at=self._broker.clock.now())
        return json_response(record.to_shape(), status=201)

    @declare(
        "GET /v1/runs",
        id="list_runs",
        summary="Runs, the newest first, without their inputs and outputs",
        tag=RUNS,
        scope="answer",
        parameters=(RUN_LIMIT,),
        replies={200: (shapes.Runs, "The newest first. What each began with and gave is told with the run itself.")},
        refusals=(BadBody,),
    )
    async def list(self, request: Request) -> Response:
        asked = query(request.scope["query_string"], "limit")
        limit = number(asked.get("limit", str(PAGE)), name="limit", least=1, most=MOST_LISTED)
        return json_response(
            shapes.Runs(runs=tuple(record.to_listed_shape() for record in await self._journal.newest(limit=limit)))
        )

    @declare(
        "GET /v1/runs/{run}",
        id="show_a_run",
        summary="One run, at once or as soon as it has ended or waits for a person",
        tag=RUNS,
        scope="answer",
        parameters=(RUN_IN_PATH, WAIT_FOR_A_RUN),
        replies={200: (shapes.Run, "The run. After an expired wait it is told as it is.")},
        refusals=(BadBody, RouteNotFound, RunNotFound, Overloaded),
    )
    async def show(self, request: Request) -> Response:
        """With `?wait=` it answers once the run has ended or waits for a person, or when the time is up."""
        run = _named(request, "run")
        wait = seconds_in(query(request.scope["query_string"], "wait"))

        async def seen() -> tuple[RunRecord, bool]:
            record = await self._journal.get(run)
            return record, record.shown_state != "running"

        record = await self._wait_until(seen, run=run, timeout=wait or 0.0)
        return json_response(record.to_shape())

    @declare(
        "GET /v1/runs/{run}/trace",
        id="read_the_trace_of_a_run",
        summary="What happened in it and what its agents asked, by time: about 200 events at once, fewer where they "
        "are large",
        tag=RUNS,
        scope="answer",
        parameters=(RUN_IN_PATH, AFTER_TRACE, WAIT_FOR_THE_TRACE),
        replies={200: (shapes.Trace, "Those after `after`; none where nothing more happened in time.")},
        refusals=(BadBody, RouteNotFound, RunNotFound, Overloaded),
    )
    async def trace(self, request: Request) -> Response:
        """With `?wait=` it answers once there is more, or nothing more will come, or the time is up."""
        run = _named(request, "run")
        asked = query(request.scope["query_string"], "after", "wait")
        after = Position.parse(asked.get("after") or str(Position()))
        if after is None:
            raise BadBody("after is the `next` of the page before")

        async def seen() -> tuple[_Page, bool]:
            page = await self._page(run, after=after)
            return page, bool(page.events) or page.record.state != "open"

        page = await self._wait_until(seen, run=run, timeout=seconds_in(asked) or 0.0)
        return ListResponse("events", page.events, next=str(page.next), state=page.record.shown_state)

    async def _page(self, run: str, *, after: Position) -> _Page:
        """It ends where it is large enough, whoever made it large: anybody who asks may name a run."""
        record = await self._journal.look_at(run)  # read first: of one that has ended nothing is missed
        own = await self._journal.page(run, after=after.number, limit=MOST_TRACED, most=LONGEST_PAGE)
        asked: Sequence[StoredEvent] = await self._broker.store.history(
            Query(run=run), after=after.cursor, limit=MOST_TRACED, types=ASK_EVENTS, most=LONGEST_PAGE
        )
        events: list[bytes] = []
        position, size = after, 0
        turns = Turns()
        for event in by_time(own, asked):
            # Where one of them was cut short, it is large enough by its end: what follows is on the next page.
            if len(events) >= MOST_TRACED or size >= LONGEST_PAGE:
                break
            if isinstance(event, WrittenEvent):
                length, plain = event.size, told(event.event())
            else:
                length, plain = len(event.ask.content), told(event)
            events += map(to_json, plain)
            position = position.behind(event)
            size += length
            await turns.after(length)
        return _Page(events, position, record)

    @declare(
        "POST /v1/runs/{run}/cancel",
        id="cancel_a_run",
        summary="Stop its agents and commands, and withdraw what they ask. What was done stays done",
        tag=RUNS,
        scope="admin",
        parameters=(RUN_IN_PATH,),
        replies={202: (shapes.Run, "Written down; the worker that has the run carries it out.")},
        refusals=(RouteNotFound, RunNotFound, RunEnded, StoreFailed),
    )
    async def cancel(self, request: Request) -> Response:
        record = await self._journal.cancel(_named(request, "run"), at=self._broker.clock.now())
        return json_response(record.to_shape(), status=202)

    @declare(
        "POST /v1/runs/{run}/retry",
        id="retry_a_run",
        summary="Go on with a run that failed, was cancelled or is parked; or do it again from a step",
        tag=RUNS,
        scope="admin",
        parameters=(RUN_IN_PATH,),
        body=RetryBody,
        is_body_required=False,
        replies={
            202: (shapes.Retried, "It goes on. What was done before and is not named stays done."),
            200: (shapes.Retried, "With `dry_run`: what would be done. Nothing was changed."),
        },
        refusals=(
            BadBody,
            TooLarge,
            RouteNotFound,
            RunNotFound,
            WorkflowNotFound,
            WorkflowNotTrusted,
            RunEnded,
            WorkflowBroken,
            SettingsError,
            StoreFailed,
        ),
    )
    async def retry(self, request: Request) -> Response:
        token = token_of(request.scope)
        run = _named(request, "run")
        body = parse(RetryBody, await read_body(request.scope, request.receive))
        record = await self._journal.get(run)
        check_retry(record, step=body.from_)
        workflow = (await self._authors.open(Path(record.file), record.workflow)).flow
        order = list(workflow.steps)
        if body.from_ is not None and body.from_ not in order:
            raise SettingsError(f"from: {workflow.name} has no step {body.from_!r}; it has {', '.join(order)}")
        again, then = to_do(await self._journal.trace(run), workflow, step=body.from_)
        if not body.dry_run:
            record = await self._journal.reopen(run, step=body.from_, by=token.name, at=self._broker.clock.now())
        retried = shape_of(shapes.Retried, record.to_shape(), again=tuple(again), then=tuple(then))
        return json_response(retried, status=200 if body.dry_run else 202)

    @declare(
        "POST /v1/runs/{run}/rerun",
        id="rerun_a_run",
        summary="A new run of what the file holds now, with the same input",
        tag=RUNS,
        scope="admin",
        parameters=(RUN_IN_PATH,),
        replies={201: (shapes.Retried, "The new run. `again` is every step of it.")},
        refusals=(
            RouteNotFound,
            RunNotFound,
            WorkflowNotFound,
            WorkflowNotTrusted,
            InputDoesNotFit,
            WorkflowBroken,
            StoreFailed,
        ),
    )
    async def rerun(self, request: Request) -> Response:
        """A new run of what the file holds now, with the input of the old one."""
        token = token_of(request.scope)
        old = await self._journal.get(_named(request, "run"))
        author = await self._authors.open(Path(old.file), old.workflow)
        await _check_input(author, old.input)
        wanted = NewRun(workflow=old.workflow, file=old.file, cwd=old.cwd, input=old.input)
        record = await self._journal.create(wanted, by=token.name, at=self._broker.clock.now())
        return json_response(shape_of(shapes.Retried, record.to_shape(), again=tuple(author.flow.steps)), status=201)

    # Checkpoints ----------------------------------------------------------------------------------------------------

    @declare(
        "GET /v1/checkpoints",
        id="list_checkpoints",
        summary="Checkpoints, the oldest first, in every state unless one is named; fewer at once where they are large",
        tag=RUNS,
        scope="answer",
        parameters=(RUN, CHECKPOINT_STATE, AFTER_CHECKPOINT, CHECKPOINTS),
        replies={200: (shapes.Checkpoints, "The oldest first. `next` is there where there are more.")},
        refusals=(BadBody,),
    )
    async def checkpoints(self, request: Request) -> Response:
        asked = query(request.scope["query_string"], "run", "state", "after", "limit")
        limit = number(asked.get("limit", str(MOST_LISTED)), name="limit", least=1, most=MOST_LISTED)
        state = asked.get("state")
        if state not in (None, *CHECKPOINT_STATES):
            raise BadBody(f"state is one of {', '.join(CHECKPOINT_STATES)}")
        after = CheckpointPlace.parse(asked["after"]) if asked.get("after") else CheckpointPlace()
        if after is None:
            raise BadBody("after is the `next` of the page before")
        page = await self._journal.checkpoint_page(
            run=_text(asked.get("run")),
            state=state,
            after=after._replace(id=_text(after.id) or ""),
            limit=limit + 1,
            most=LONGEST_PAGE,
        )
        is_cut = len(page) > limit or sum(each.size for each in page) >= LONGEST_PAGE
        del page[limit:]
        more = {"next": str(page[-1].place)} if is_cut else {}
        entries: list[bytes] = []
        turns = Turns()
        for each in page:
            entries.append(encode(each.checkpoint().to_shape()))
            await turns.after(each.size)
        return ListResponse("checkpoints", entries, **more)

    @declare(
        "GET /v1/checkpoints/{checkpoint}",
        id="show_a_checkpoint",
        summary="One checkpoint, with what is shown to people and what they have to give",
        tag=RUNS,
        scope="answer",
        parameters=(CHECKPOINT_IN_PATH,),
        replies={200: (shapes.Checkpoint, "The checkpoint.")},
        refusals=(RouteNotFound, CheckpointNotFound),
    )
    async def checkpoint(self, request: Request) -> Response:
        return json_response((await self._journal.checkpoint(_named(request, "checkpoint"))).to_shape())

    @declare(
        "POST /v1/checkpoints/{checkpoint}",
        id="give_to_a_checkpoint",
        summary="Give what it waits for. The first one counts",
        tag=RUNS,
        scope="answer",
        parameters=(CHECKPOINT_IN_PATH,),
        body=CheckpointBody,
        replies={200: (shapes.Checkpoint, "It has this output, from you or from somebody who gave the same before.")},
        refusals=(BadBody, TooLarge, RouteNotFound, CheckpointNotFound, RunEnded, OutputDoesNotFit, StoreFailed),
    )
    async def give(self, request: Request) -> Response:
        token = token_of(request.scope)
        body = parse(CheckpointBody, await read_body(request.scope, request.receive))
        found = await self._journal.checkpoint(_named(request, "checkpoint"))
        if problem := _unkeepable(body.output):
            raise OutputDoesNotFit(f"output: {problem}", problems=[{"at": "", "problem": problem}])
        by, via = who(token, by=body.by, via=body.via)
        if found.state == "open":
            await self._check_output(found.run, found.step, body.output)
        given = await self._journal.give(found.id, body.output, by=by, via=via, at=self._broker.clock.now())
        return json_response(given.to_shape())

    async def _check_output(self, run: str, step: str, output: Any) -> None:
        """By the author's own type, which may want more than its schema says, where its file is on this machine."""
        record = await self._journal.get(run)
        try:
            author = await self._authors.open(Path(record.file), record.workflow)
            if step in author.flow.steps:
                await author.fit(step, output)
        except HandraiseError:  # the worker that has the run checks again
            return
        except DoesNotFit as unfit:
            raise OutputDoesNotFit(_sentence("the output", unfit.problems), problems=unfit.problems) from None

    # Waiting --------------------------------------------------------------------------------------------------------

    async def _wait_until(self, seen: Callable[[], Awaitable[tuple[T, bool]]], *, run: str, timeout: float) -> T:
        """What is seen once that is what was waited for, or as it is when the time is up or the desk closes."""
        found, is_it = await seen()
        if is_it or not timeout:
            return found
        if len(self._waits) >= self._most_waits:
            raise Overloaded(f"{self._most_waits} calls wait for runs already; ask again later, or without `wait`")

        async with self._journal.changes() as changed:

            def told(events: Sequence[StoredEvent]) -> None:
                if any(event.ask.run == run for event in events):
                    changed.set()

            stop = self._broker.store.tail(told)
            self._waits.add(changed)
            try:
                async with asyncio.timeout(timeout):
                    while True:
                        changed.clear()
                        found, is_it = await seen()
                        if is_it or self._closing:
                            return found
                        await changed.wait()
            except TimeoutError:
                return found
            finally:
                self._waits.discard(changed)
                stop()


def folder_here(cwd: str | None) -> str:
    """A folder on this machine; without one, that of the desk. Raises SettingsError."""
    if cwd is None:
        return os.getcwd()  # noqa: PTH109
    if not os.path.isabs(cwd) or not os.path.isdir(cwd):  # noqa: PTH112, PTH117 - a Path raises where it is too long
        raise SettingsError(f"cwd: there is no folder {cwd!r} on {socket.gethostname()}")
    return cwd


def _named(request: Request, name: str) -> str:
    return _text(request.path_params[name]) or ""


def _text(text: str | None) -> str | None:
    """An id that somebody made up may hold what no database takes, and then it is nobody's."""
    return None if text is None else text.replace("\0", "\\0")


async def _check_input(author: Author, input: Any) -> None:
    if problem := _unkeepable(input):
        raise InputDoesNotFit(f"input: {problem}", problems=[{"at": "", "problem": problem}])
    try:
        await author.fit(INPUT, input)
    except DoesNotFit as unfit:
        raise InputDoesNotFit(_sentence("the input", unfit.problems), problems=unfit.problems) from None


def _unkeepable(value: Any) -> str | None:
    """Why this cannot be written down and told again."""
    if (problem := free_form_problem(value)) is not None:
        return problem
    try:
        size = len(to_json(value))
    except PydanticSerializationError:
        return "it cannot be written as JSON"
    return None if size <= MOST_INPUT else f"at most {MOST_INPUT // 1024} KiB fit; got {size // 1024}"


def _sentence(what: str, problems: Sequence[Mapping[str, str]]) -> str:
    return f"{what} does not fit: " + "; ".join(
        f"{problem['at'] or 'it'}: {problem['problem']}" for problem in problems[:3]
    )


plugin = RouteGroup(handlers=(Runs,), routes=lambda desk: () if desk.runs is None else desk.runs.routes())
