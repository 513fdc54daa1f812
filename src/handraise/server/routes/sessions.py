"""Sessions over HTTP: start one, tell it something, stop it, read what was said; and what agents there are."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from handraise.asks import Handling
from handraise.broker import Broker
from handraise.clock import Turns
from handraise.errors import PluginNotFound, SessionDiffers, SessionEnded, SessionNotFound, SettingsError, StoreFailed
from handraise.server.declare import SECONDS, TEXT, Parameter, Tag, declare, in_path, mount, one_of, page_size
from handraise.server.gate import require
from handraise.server.http import RouteNotFound, TooLarge, encode, query, read_body, seconds_in
from handraise.server.routes import RouteGroup
from handraise.server.routes.api import ListResponse, json_response
from handraise.server.routes.asks import number
from handraise.tables.sessions import Kind, NewSession, WrittenMessage
from handraise.wire import BadBody, parse
from handraise.wire.agents import Agents, Capabilities
from handraise.wire.plain import shape_of
from handraise.wire.sessions import Messages, PromptBody, Session, SessionBody, Sessions
from handraise.worker import Worker

__all__ = ["routes", "under_sessions"]

MOST_MESSAGES = 200
LONGEST_PAGE = 1024 * 1024  # characters of messages after which a page ends
BUSY = ("running", "waiting")

SESSIONS = Tag(
    "sessions",
    "Conversations with agents: those started here, with what was said in them, and those that ask from elsewhere.",
)
SESSION_IN_PATH = in_path("session", meaning="The id of a session, percent-encoded.", example="claude:4f1c")
WAIT_FOR_THE_END = Parameter(
    "wait",
    schema=SECONDS,
    meaning="Seconds to wait until it is neither `running` nor `waiting`. When they have passed it is told as it is.",
    key="wait_for_the_end",
)
AFTER_MESSAGE = Parameter("after", schema=TEXT, meaning="The id of the last message you have.", key="after_message")
BEFORE_MESSAGE = Parameter(
    "before",
    schema=TEXT,
    meaning="The id of the first message you have: the last ones before it are told, the oldest of them "
    "first. Empty for the newest of all.",
    key="before_message",
)
MESSAGES = Parameter(
    "limit", schema=page_size(MOST_MESSAGES, default=MOST_MESSAGES), meaning="At most so many.", key="messages"
)
WAIT_FOR_MESSAGES = Parameter(
    "wait", schema=SECONDS, meaning="Seconds to wait where nothing more was said yet.", key="wait_for_messages"
)
PROBE = Parameter(
    "probe",
    schema=one_of("0", "1"),
    meaning="1 starts each program to see for itself, which takes seconds and the scope `admin`.",
)


def routes(broker: Broker, *, worker: Worker | None) -> list[Route]:
    return mount(SessionRoutes(broker, worker))


class SessionRoutes:
    """A path has one open-ended part: with two, a long path would take the matcher quadratic time."""

    def __init__(self, broker: Broker, worker: Worker | None) -> None:
        self._broker = broker
        self._sessions = broker.sessions
        self._worker = worker

    @declare(
        "GET /v1/agents",
        id="list_agents",
        summary="The agents that this desk can start, and what each can do. None where it runs without a worker",
        tag=SESSIONS,
        scope="answer",
        parameters=(PROBE,),
        replies={200: (Agents, "By name.")},
        refusals=(BadBody,),
    )
    async def agents(self, request: Request) -> Response:
        probe = query(request.scope["query_string"], "probe").get("probe", "0")
        if probe not in ("0", "1"):
            raise BadBody("probe is 0 or 1")
        if probe == "1":  # it starts programs
            require(request.scope, "admin")
        looked = await self._worker.agents.look(probe=probe == "1") if self._worker is not None else []
        return json_response(Agents(agents=tuple(shape_of(Capabilities, found) for found in looked)))

    @declare(
        "GET /v1/sessions",
        id="list_sessions",
        summary="The newest 200 sessions",
        tag=SESSIONS,
        scope="answer",
        replies={200: (Sessions, "The newest first.")},
    )
    async def list(self, request: Request) -> Response:
        records, entries = await self._sessions.newest(), list[bytes]()
        while records:  # none is held both as a record and as bytes for longer than it takes
            entries.append(encode(records.pop(0).to_shape()))
        return ListResponse("sessions", entries)

    @declare(
        "POST /v1/sessions",
        id="start_a_session",
        summary="Start an agent with its first prompt. What goes wrong later is in the state of the session",
        tag=SESSIONS,
        scope="admin",
        body=SessionBody,
        replies={
            201: (Session, "The session. It is `running` until its first turn ends."),
            200: (Session, "The session that was started under this `id` before, with the same content."),
        },
        refusals=(BadBody, TooLarge, PluginNotFound, SessionDiffers, SettingsError, StoreFailed),
    )
    async def start(self, request: Request) -> Response:
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
            return json_response(before.to_shape())
        if self._worker is not None:
            record = await self._worker.create(wanted)
        else:
            record = await self._sessions.create(wanted, worker=None, machine=None, at=self._broker.clock.now())
        await self._sessions.began_with(wanted)  # another call may have been faster, with something else
        return json_response(record.to_shape(), status=201)

    def _inherited(self, body: SessionBody) -> Handling:
        """What a session leaves to the desk: everything if it names no policy, and nothing if it names one."""
        named = body.question_policy is not None or body.permission_policy is not None
        return Handling() if named else self._broker.handling

    @declare(
        "POST /v1/sessions/{session:path}/prompt",
        id="prompt_a_session",
        summary="Tell it something. It is carried out once the turns before it have ended",
        tag=SESSIONS,
        scope="admin",
        parameters=(SESSION_IN_PATH,),
        body=PromptBody,
        replies={202: (Session, "Written down; the worker that has the session carries it out.")},
        refusals=(BadBody, TooLarge, RouteNotFound, SessionNotFound, SessionEnded, StoreFailed),
    )
    async def prompt(self, request: Request) -> Response:
        body = parse(PromptBody, await read_body(request.scope, request.receive))
        return await self._order(request, "prompt", body.prompt)

    @declare(
        "POST /v1/sessions/{session:path}/abort",
        id="abort_a_session",
        summary="End the turn that runs, and withdraw what it asks. The session takes another prompt",
        tag=SESSIONS,
        scope="admin",
        parameters=(SESSION_IN_PATH,),
        replies={202: (Session, "Written down; the worker that has the session carries it out.")},
        refusals=(RouteNotFound, SessionNotFound, SessionEnded, StoreFailed),
    )
    async def abort(self, request: Request) -> Response:
        return await self._order(request, "abort")

    @declare(
        "POST /v1/sessions/{session:path}/close",
        id="close_a_session",
        summary="End the turn, the conversation and the agent's process, and withdraw what it asks",
        tag=SESSIONS,
        scope="admin",
        parameters=(SESSION_IN_PATH,),
        replies={202: (Session, "Written down; the worker that has the session carries it out.")},
        refusals=(RouteNotFound, SessionNotFound, SessionEnded, StoreFailed),
    )
    async def close(self, request: Request) -> Response:
        return await self._order(request, "close")

    async def _order(self, request: Request, kind: Kind, text: str = "") -> Response:
        """Written down, and carried out by the worker that has the session: 202."""
        id, _ = under_sessions(request.scope, count=2)
        await self._sessions.order(id, kind, text, at=self._broker.clock.now())
        return json_response((await self._sessions.get(id)).to_shape(), status=202)

    @declare(
        "GET /v1/sessions/{session:path}/messages",
        id="read_the_messages_of_a_session",
        summary="What was said in it, the oldest first: 200 at a time, fewer where they are large. Only what is "
        "started here has messages",
        tag=SESSIONS,
        scope="answer",
        parameters=(SESSION_IN_PATH, AFTER_MESSAGE, BEFORE_MESSAGE, MESSAGES, WAIT_FOR_MESSAGES),
        replies={200: (Messages, "Those that were wanted; none where nothing more was said in time.")},
        refusals=(BadBody, RouteNotFound, SessionNotFound),
    )
    async def messages(self, request: Request) -> Response:
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

    # The last one: its path matches those of the others.
    @declare(
        "GET /v1/sessions/{session:path}",
        id="show_a_session",
        summary="One session, at once or as soon as its turn has ended",
        tag=SESSIONS,
        scope="answer",
        parameters=(SESSION_IN_PATH, WAIT_FOR_THE_END),
        replies={200: (Session, "The session. After an expired wait it is told as it is.")},
        refusals=(BadBody, RouteNotFound, SessionNotFound),
    )
    async def show(self, request: Request) -> Response:
        """With `?wait=` it answers once the session works on nothing and waits for nobody, or when the time is up."""
        (id,) = under_sessions(request.scope, count=1)
        record = await self._sessions.get(id)
        wait = seconds_in(query(request.scope["query_string"], "wait"))
        if wait and record.shown_state in BUSY:

            async def ended() -> bool:
                return (await self._sessions.get(id)).shown_state not in BUSY

            await self._sessions.wait_until(ended, timeout=wait)
            record = await self._sessions.get(id)
        return json_response(record.to_shape())


def under_sessions(scope: Scope, *, count: int) -> list[str]:
    """What follows `/v1/sessions` in the raw path. Raw, so that an id may hold a slash."""
    parts = [unquote(part) for part in scope["raw_path"].decode("utf-8", "replace").split("/")[3:]]
    if len(parts) != count:
        raise RouteNotFound("there is no such route; `/openapi.json` lists them")
    return parts


plugin = RouteGroup(handlers=(SessionRoutes,), routes=lambda desk: routes(desk.broker, worker=desk.worker))
