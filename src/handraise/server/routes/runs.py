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
    HandraiseError,
    InputDoesNotFit,
    OutputDoesNotFit,
    Overloaded,
    SettingsError,
)
from handraise.server.gate import require
from handraise.server.http import query, read_body, seconds_in
from handraise.server.routes.api import ListResponse, json_response
from handraise.server.routes.asks import MOST_LISTED, PAGE, number, who
from handraise.stores import Query
from handraise.wire import BadBody, CheckpointBody, RetryBody, RunBody, StoredEvent, parse
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
        return [
            Route("/v1/workflows", self.workflows),
            Route("/v1/runs", self.list),
            Route("/v1/runs", self.start, methods=["POST"]),
            Route("/v1/runs/{run}", self.show),
            Route("/v1/runs/{run}/trace", self.trace),
            Route("/v1/runs/{run}/cancel", self.cancel, methods=["POST"]),
            Route("/v1/runs/{run}/retry", self.retry, methods=["POST"]),
            Route("/v1/runs/{run}/rerun", self.rerun, methods=["POST"]),
            Route("/v1/checkpoints", self.checkpoints),
            Route("/v1/checkpoints/{checkpoint}", self.checkpoint),
            Route("/v1/checkpoints/{checkpoint}", self.give, methods=["POST"]),
        ]

    def stop(self) -> None:
        """End every wait, as a desk does that shuts down."""
        self._closing = True
        for changed in self._waits:
            changed.set()

    # Workflows ------------------------------------------------------------------------------------------------------

    async def workflows(self, request: Request) -> Response:
        require(request.scope, "admin")
        folders = self._folders(query(request.scope["query_string"], "cwd").get("cwd"))
        return json_response({"workflows": await listed(folders, self._authors)})

    def _folders(self, cwd: str | None) -> list[Path]:
        return places(Path(folder_here(cwd)), config=self._config)

    # Runs -----------------------------------------------------------------------------------------------------------

    async def start(self, request: Request) -> Response:
        token = require(request.scope, "admin")
        body = parse(RunBody, await read_body(request.scope, request.receive))
        folders = self._folders(body.cwd)
        file, author = await find(body.workflow, folders, self._authors)
        await _check_input(author, body.input)
        wanted = NewRun(workflow=author.flow.name, file=str(file), cwd=folder_here(body.cwd), input=body.input)
        record = await self._journal.create(wanted, by=token.name, at=self._broker.clock.now())
        return json_response(record.told(), status=201)

    async def list(self, request: Request) -> Response:
        require(request.scope, "answer")
        asked = query(request.scope["query_string"], "limit")
        limit = number(asked.get("limit", str(PAGE)), name="limit", least=1, most=MOST_LISTED)
        return json_response({"runs": [record.listed() for record in await self._journal.newest(limit=limit)]})

    async def show(self, request: Request) -> Response:
        """With `?wait=` it answers once the run has ended or waits for a person, or when the time is up."""
        require(request.scope, "answer")
        run = _named(request, "run")
        wait = seconds_in(query(request.scope["query_string"], "wait"))

        async def seen() -> tuple[RunRecord, bool]:
            record = await self._journal.get(run)
            return record, record.shown_state != "running"

        record = await self._wait_until(seen, run=run, timeout=wait or 0.0)
        return json_response(record.told())

    async def trace(self, request: Request) -> Response:
        """With `?wait=` it answers once there is more, or nothing more will come, or the time is up."""
        require(request.scope, "answer")
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

    async def cancel(self, request: Request) -> Response:
        require(request.scope, "admin")
        record = await self._journal.cancel(_named(request, "run"), at=self._broker.clock.now())
        return json_response(record.told(), status=202)

    async def retry(self, request: Request) -> Response:
        token = require(request.scope, "admin")
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
        told = {**record.told(), "again": again, "then": then}
        return json_response(told, status=200 if body.dry_run else 202)

    async def rerun(self, request: Request) -> Response:
        """A new run of what the file holds now, with the input of the old one."""
        token = require(request.scope, "admin")
        old = await self._journal.get(_named(request, "run"))
        author = await self._authors.open(Path(old.file), old.workflow)
        await _check_input(author, old.input)
        wanted = NewRun(workflow=old.workflow, file=old.file, cwd=old.cwd, input=old.input)
        record = await self._journal.create(wanted, by=token.name, at=self._broker.clock.now())
        return json_response({**record.told(), "again": list(author.flow.steps)}, status=201)

    # Checkpoints ----------------------------------------------------------------------------------------------------

    async def checkpoints(self, request: Request) -> Response:
        require(request.scope, "answer")
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
            entries.append(to_json(each.checkpoint().told()))
            await turns.after(each.size)
        return ListResponse("checkpoints", entries, **more)

    async def checkpoint(self, request: Request) -> Response:
        require(request.scope, "answer")
        return json_response((await self._journal.checkpoint(_named(request, "checkpoint"))).told())

    async def give(self, request: Request) -> Response:
        token = require(request.scope, "answer")
        body = parse(CheckpointBody, await read_body(request.scope, request.receive))
        found = await self._journal.checkpoint(_named(request, "checkpoint"))
        if problem := _unkeepable(body.output):
            raise OutputDoesNotFit(f"output: {problem}", problems=[{"at": "", "problem": problem}])
        by, via = who(token, by=body.by, via=body.via)
        if found.state == "open":
            await self._check_output(found.run, found.step, body.output)
        given = await self._journal.give(found.id, body.output, by=by, via=via, at=self._broker.clock.now())
        return json_response(given.told())

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
