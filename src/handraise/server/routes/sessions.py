"""Sessions over HTTP: start one, tell it something, stop it, read what was said; and what agents there are."""

from __future__ import annotations

from dataclasses import asdict
from urllib.parse import unquote

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from handraise.asks import Handling
from handraise.broker import Broker
from handraise.clock import Turns
from handraise.server.gate import require
from handraise.server.http import RouteNotFound, query, read_body, seconds_in
from handraise.server.routes.api import ListResponse, json_response
from handraise.server.routes.asks import number
from handraise.tables.sessions import Kind, NewSession, WrittenMessage
from handraise.wire import BadBody, PromptBody, SessionBody, parse
from handraise.worker import Worker

__all__ = ["routes", "under_sessions"]

MOST_MESSAGES = 200
LONGEST_PAGE = 1024 * 1024  # characters of messages after which a page ends
BUSY = ("running", "waiting")


def routes(broker: Broker, *, worker: Worker | None) -> list[Route]:
    desk = _Desk(broker, worker)
    return [
        Route("/v1/agents", desk.agents),
        Route("/v1/sessions", desk.list),
        Route("/v1/sessions", desk.start, methods=["POST"]),
        # One open-ended part each: with two, a long path would take the matcher quadratic time.
        Route("/v1/sessions/{session:path}/prompt", desk.prompt, methods=["POST"]),
        Route("/v1/sessions/{session:path}/abort", desk.abort, methods=["POST"]),
        Route("/v1/sessions/{session:path}/close", desk.close, methods=["POST"]),
        Route("/v1/sessions/{session:path}/messages", desk.messages),
        Route("/v1/sessions/{session:path}", desk.show),
    ]


class _Desk:
    def __init__(self, broker: Broker, worker: Worker | None) -> None:
        self._broker = broker
        self._sessions = broker.sessions
        self._worker = worker

    async def agents(self, request: Request) -> Response:
        require(request.scope, "answer")
        probe = query(request.scope["query_string"], "probe").get("probe", "0")
        if probe not in ("0", "1"):
            raise BadBody("probe is 0 or 1")
        if probe == "1":  # it starts programs
            require(request.scope, "admin")
        looked = await self._worker.agents.look(probe=probe == "1") if self._worker is not None else []
        return json_response({"agents": [asdict(found) for found in looked]})

    async def list(self, request: Request) -> Response:
        require(request.scope, "answer")
        records, entries = await self._sessions.newest(), list[bytes]()
        while records:  # none is held both as a record and as bytes for longer than it takes
            entries.append(to_json(records.pop(0).told()))
        return ListResponse("sessions", entries)

    async def start(self, request: Request) -> Response:
        require(request.scope, "admin")
        body = parse(SessionBody, await read_body(request.scope, request.receive))
        wanted = NewSession(
            agent=body.agent,
            prompt=body.prompt,
            cwd=body.cwd,
            mode=body.mode,
            command=body.command,
            handling=body.handling(onto=self._inherited(body)),
            stale_after=body.stale_after,
            id=body.id,
        )
        before = await self._sessions.began_with(wanted)
        if before is not None:
            return json_response(before.told())
        if self._worker is not None:
            record = await self._worker.create(wanted)
        else:
            record = await self._sessions.create(wanted, worker=None, machine=None, at=self._broker.clock.now())
        await self._sessions.began_with(wanted)  # another call may have been faster, with something else
        return json_response(record.told(), status=201)

    def _inherited(self, body: SessionBody) -> Handling:
        """What a session leaves to the desk: everything if it names no policy, and nothing if it names one."""
        named = body.question_policy is not None or body.permission_policy is not None
        return Handling() if named else self._broker.handling

    async def show(self, request: Request) -> Response:
        """With `?wait=` it answers once the session works on nothing and waits for nobody, or when the time is up."""
        require(request.scope, "answer")
        (id,) = under_sessions(request.scope, count=1)
        record = await self._sessions.get(id)
        wait = seconds_in(query(request.scope["query_string"], "wait"))
        if wait and record.shown_state in BUSY:

            async def ended() -> bool:
                return (await self._sessions.get(id)).shown_state not in BUSY

            await self._sessions.wait_until(ended, timeout=wait)
            record = await self._sessions.get(id)
        return json_response(record.told())

    async def prompt(self, request: Request) -> Response:
        require(request.scope, "admin")
        body = parse(PromptBody, await read_body(request.scope, request.receive))
        return await self._order(request, "prompt", body.prompt)

    async def abort(self, request: Request) -> Response:
        return await self._order(request, "abort")

    async def close(self, request: Request) -> Response:
        return await self._order(request, "close")

    async def _order(self, request: Request, kind: Kind, text: str = "") -> Response:
        """Written down, and carried out by the worker that has the session: 202."""
        require(request.scope, "admin")
        id, _ = under_sessions(request.scope, count=2)
        await self._sessions.order(id, kind, text, at=self._broker.clock.now())
        return json_response((await self._sessions.get(id)).told(), status=202)

    async def messages(self, request: Request) -> Response:
        require(request.scope, "answer")
        if request.scope["raw_path"].count(b"/") == 3:  # a session whose id ends like this route
            return await self.show(request)
        id, _ = under_sessions(request.scope, count=2)
        await self._sessions.get(id)
        asked = query(request.scope["query_string"], "after", "before", "limit", "wait")
        after, before = asked.get("after", ""), asked.get("before")
        limit = number(asked.get("limit", str(MOST_MESSAGES)), name="limit", least=1, most=MOST_MESSAGES)
        wait = seconds_in(asked) or 0.0

        async def said() -> list[WrittenMessage]:
            return await self._sessions.message_page(id, after=after, before=before, limit=limit + 1, most=LONGEST_PAGE)

        # Before something that was said nothing more is ever said.
        found = await self._sessions.wait_until(said, timeout=0.0 if before else wait)
        is_cut = len(found) > limit or sum(message.size for message in found) >= LONGEST_PAGE
        del found[limit:]
        more = {"next": found[-1].id} if is_cut else {}
        entries: list[bytes] = []
        turns = Turns()
        for message in found if before is None else reversed(found):
            entries.append(message.told())
            await turns.after(message.size)
        return ListResponse("messages", entries, **more)


def under_sessions(scope: Scope, *, count: int) -> list[str]:
    """What follows `/v1/sessions` in the raw path. Raw, so that an id may hold a slash."""
    parts = [unquote(part) for part in scope["raw_path"].decode("utf-8", "replace").split("/")[3:]]
    if len(parts) != count:
        raise RouteNotFound("there is no such route; `/openapi.json` lists them")
    return parts
