"""A stand-in for Linear on loopback, for tests: its API for agents, its tokens, and the webhooks that it signs.

Every document and input is checked against `data/linear/schema.graphql` and carried out. What Linear's schema would let
through, such as any object as the content of an activity, is refused here too. Two things are assumed, since nobody
wrote them down: an id that is taken is invalid input, and what a person writes makes a session active.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl
from uuid import UUID, uuid4

import httpx2
import uvicorn
from graphql import GraphQLError, build_schema, get_operation_ast, graphql, parse
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from handraise.clock import Clock, SystemClock

Record: TypeAlias = dict[str, Any]

SCHEMA: Any = build_schema((Path(__file__).parents[1] / "data" / "linear" / "schema.graphql").read_text())
for abstract in ("AgentActivityContent", "Node"):
    SCHEMA.type_map[abstract].resolve_type = lambda value, *_: value["__typename"]

STATUS_AFTER = {
    "thought": "active",
    "action": "active",
    "elicitation": "awaitingInput",
    "response": "complete",
    "error": "error",
}
PAGE, LARGEST_PAGE = 50, 250
PATIENCE = 5.0  # seconds in which a webhook has to be answered
STEP = 0.05  # seconds after which `until` looks again without being woken: what it waits for may be elsewhere


def invalid(message: str, *, code: str = "INVALID_INPUT") -> GraphQLError:
    extensions = {"code": code, "type": "invalid input", "userError": True, "userPresentableMessage": message}
    return GraphQLError(message, extensions=extensions)


def not_found(kind: str) -> GraphQLError:
    """As Linear was seen to say it."""
    return invalid(f"Entity not found: {kind}", code="INPUT_ERROR")


def said(error: GraphQLError) -> Record:
    """An error as Linear writes it. One that comes from the library is about the document or its variables."""
    written: Record = dict(error.formatted)
    written.setdefault("extensions", {"code": "GRAPHQL_VALIDATION_FAILED", "type": "graphql error"})
    return written


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What a call is answered with in place of the truth."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    only: str | None  # the operation that fails; None: any
    carried_out: bool  # the answer alone is lost


@dataclass(kw_only=True)
class Delivery:
    id: str
    payload: Record
    status: int = 0  # 0: nobody took it


@dataclass
class StandIn:
    """One workspace with one app. What tests look at is below; what people do there are its methods."""

    clock: Clock
    url: str = ""
    token: str = field(default_factory=lambda: f"lin_oauth_{secrets.token_hex(16)}")  # of the app
    key: str = field(default_factory=lambda: f"lin_api_{secrets.token_hex(16)}")  # of a person; sent without "Bearer"
    client_id: str = field(default_factory=lambda: secrets.token_hex(8))
    client_secret: str = field(default_factory=lambda: secrets.token_hex(16))
    secret: str = field(default_factory=lambda: f"lin_wh_{secrets.token_hex(16)}")  # signs the webhooks
    scope: str = ""  # what the app may do; empty: whatever it asks for
    webhook: str | None = None  # where deliveries go; None: nowhere
    calls: list[str] = field(default_factory=list)  # names of operations, in order
    deliveries: list[Delivery] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._last = 0
        self._issues: dict[str, Record] = {}  # by id and by identifier
        self._sessions: dict[str, Record] = {}
        self._activities: dict[str, Record] = {}
        self._posted: list[Record] = []  # by the agent, those that vanished too
        self._failures: list[Failure] = []
        self._bugs: list[BaseException] = []
        self._fetched: str | None = None
        self._going = asyncio.Event()
        self._going.set()
        self._stirred = asyncio.Event()
        self.organization = {"__typename": "Organization", "id": str(uuid4()), "name": "Acme", "urlKey": "acme"}
        self.team = {"__typename": "Team", "id": str(uuid4()), "key": "ENG", "name": "Engineering"}
        self.app_user = self.person("Handraise", app=True)
        self.owner = self.person("Olga")  # whose key it is
        self._webhook_id, self._oauth_client = str(uuid4()), str(uuid4())

    # What people do ---------------------------------------------------------------------------------------

    def person(self, name: str, *, email: str | None = None, app: bool = False) -> Record:
        """Somebody of the workspace, or another agent."""
        return {
            "__typename": "User",
            "id": str(uuid4()),
            "name": name,
            "displayName": name.lower(),
            "email": email or f"{name.lower()}@example.com",
            "active": True,
            "app": app,
            "createdAt": self._now(),
            "url": f"https://linear.app/acme/profiles/{name.lower()}",
            "avatarUrl": None,
        }

    def issue(self, identifier: str, title: str, *, description: str = "") -> Record:
        made: Record = {
            "__typename": "Issue",
            "id": str(uuid4()),
            "identifier": identifier,
            "number": 1.0,
            "title": title,
            "description": description,
            "url": f"https://linear.app/acme/issue/{identifier}",
            "createdAt": self._now(),
            "updatedAt": self._now(),
            "team": self.team,
            "delegate": None,
            "assignee": None,
            "state": {
                "__typename": "WorkflowState",
                "id": str(uuid4()),
                "name": "Todo",
                "type": "unstarted",
                "position": 1,
            },
        }
        self._issues[made["id"]] = self._issues[identifier] = made
        return made

    async def delegate(self, issue: Record | None, *, by: Record | None, to: Record | None = None) -> str:
        """Give the app an issue; None stands for a document. `by` is None for an automation, `to` another agent."""
        session = self._open(issue, creator=by, app_user=to)
        if to is None:
            await self.deliver(self.created(session["id"]))
        return str(session["id"])

    async def mention(self, issue: Record | None, text: str, *, by: Record | None, previous: Sequence[str] = ()) -> str:
        """Name the app in a comment, under others or as the first."""
        before = [self._comment(each, issue=issue, user=by) for each in previous]
        comment = self._comment(text, issue=issue, user=by, parent=before[0] if before else None)
        session = self._open(issue, creator=by, comment=comment)
        session["_previous"] = before
        await self.deliver(self.created(session["id"]))
        return str(session["id"])

    async def reply(self, session: str, text: str, *, by: Record) -> str:
        """Write in the session, or choose an option, which is the same. Returns the id of the activity."""
        return await self._prompt(session, text, by=by, signal=None)

    async def stop(self, session: str, *, by: Record) -> str:
        return await self._prompt(session, "", by=by, signal="stop")

    def dismiss(self, session: str, *, by: Record | None = None) -> None:
        """Take the issue away from the app."""
        self._sessions[session] |= {"dismissedAt": self._now(), "archivedAt": self._now(), "dismissedBy": by}
        self._stir()

    # Webhooks ---------------------------------------------------------------------------------------------

    def created(self, session: str) -> Record:
        """The body of the webhook that tells of a session."""
        told = self._sessions[session]
        issue, comment = told["issue"], told["comment"]
        context = (
            [f'<issue identifier="{issue["identifier"]}">\n<title>{issue["title"]}</title>\n</issue>'] if issue else []
        )
        return self._envelope("created", told) | {
            "previousComments": [_comment_child(each) for each in told["_previous"]] or None,
            "guidance": None,
            "promptContext": "\n".join([*context, *([comment["body"]] if comment else [])]),
        }

    def prompted(self, activity: str) -> Record:
        """The body of the webhook that tells what a person wrote."""
        told = self._activities[activity]
        return self._envelope("prompted", told["agentSession"]) | {
            "agentActivity": {
                **{
                    key: told[key] for key in ("id", "createdAt", "updatedAt", "archivedAt", "signal", "signalMetadata")
                },
                "agentSessionId": told["agentSession"]["id"],
                "sourceCommentId": None,
                "content": {"type": "prompt", "body": told["content"]["body"]},
                "userId": told["user"]["id"],
                "user": _user_child(told["user"]),
            }
        }

    async def deliver(
        self, payload: Record, *, secret: str | None = None, sent_at: int | None = None, id: str | None = None
    ) -> int:
        """Send any payload, signed by `secret` and stamped with `sent_at`; the status, 0 where nobody took it."""
        stamped = {**payload, "webhookTimestamp": self.clock.now() if sent_at is None else sent_at}
        delivery = Delivery(id=id or str(uuid4()), payload=stamped)
        self.deliveries.append(delivery)
        if self.webhook is not None:
            raw = json.dumps(stamped, separators=(",", ":"), ensure_ascii=False).encode()
            headers = {
                "Content-Type": "application/json; charset=utf-8",
                "User-Agent": "Linear-Webhook",
                "Linear-Delivery": delivery.id,
                "Linear-Event": str(payload.get("type", "")),
                "Linear-Timestamp": str(stamped["webhookTimestamp"]),
                "Linear-Signature": hmac.new((secret or self.secret).encode(), raw, hashlib.sha256).hexdigest(),
            }
            async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False, verify=False) as http:
                with suppress(httpx2.HTTPError):
                    delivery.status = (await http.post(self.webhook, content=raw, headers=headers)).status_code
        self._stir()
        return delivery.status

    async def redeliver(self, index: int = -1, *, fresh: bool = True) -> int:
        """Send one again under the same id, with a new stamp or the old one."""
        old = self.deliveries[index]
        return await self.deliver(old.payload, id=old.id, sent_at=None if fresh else old.payload["webhookTimestamp"])

    # What the agent did -----------------------------------------------------------------------------------

    def activities(self, session: str) -> list[Record]:
        """What the agent posted and people see, in order."""
        return [each for each in self.posted(session) if each["id"] in self._activities]

    def posted(self, session: str) -> list[Record]:
        """The same with what vanished when something else came."""
        shown = ("id", "signal", "signalMetadata", "ephemeral")
        return [
            {"content": each["_content"], **{key: each[key] for key in shown}}
            for each in self._posted
            if each["agentSession"]["id"] == session
        ]

    def status(self, session: str) -> str:
        return str(self._sessions[session]["status"])

    def links(self, session: str) -> list[Record]:
        return list(self._sessions[session]["externalLinks"])

    def plan(self, session: str) -> list[Record]:
        return list(self._sessions[session]["plan"] or ())

    @property
    def sessions(self) -> list[str]:
        """Ids, the oldest first."""
        return list(self._sessions)

    async def until(self, happened: Callable[[], object], *, timeout: float = 5) -> None:
        """Wait for something, looking after every call and delivery."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while not happened():
            if loop.time() >= end:
                raise AssertionError(f"it did not happen within {timeout:g} s; {self._tell()}")
            self._stirred.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(STEP):
                    await self._stirred.wait()

    def _tell(self) -> str:
        posted = {f"{each} ({self.status(each)})": self.posted(each) for each in self._sessions}
        deliveries = [(each.payload.get("action"), each.status) for each in self.deliveries]
        return f"calls: {self.calls}; deliveries: {deliveries}; activities: {json.dumps(posted, indent=1)}"

    # Trouble ----------------------------------------------------------------------------------------------

    def fail(
        self,
        *,
        times: int = 1,
        code: str = "RATELIMITED",
        status: int = 400,
        headers: Mapping[str, str] | None = None,
        message: str = "",
        body: bytes | None = None,
        only: str | None = None,
        carried_out: bool = False,
    ) -> None:
        """Refuse the next calls, or those of one operation. `body` is sent as it stands; with `carried_out` the call
        does what it should, and its answer alone is lost."""
        extensions = {"code": code, "type": code.lower().replace("_", " ")}
        refusal = json.dumps({"errors": [{"message": message or code, "extensions": extensions}]}).encode()
        failure = Failure(
            status=status,
            headers={"Content-Type": "application/json", **(headers or {})},
            body=refusal if body is None else body,
            only=only,
            carried_out=carried_out,
        )
        self._failures += [failure] * times

    def hang(self, hangs: bool = True) -> None:
        """Answer no call until told otherwise."""
        if hangs:
            self._going.clear()
        else:
            self._going.set()

    def revoke(self) -> None:
        """No token is valid any longer, until one is fetched."""
        self.token, self._fetched = f"lin_oauth_{secrets.token_hex(16)}", None

    # Serving ----------------------------------------------------------------------------------------------

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/graphql", self._graphql, methods=["POST"]),
                Route("/oauth/token", self._give_token, methods=["POST"]),
            ]
        )

    def check(self) -> None:
        """Raises what went wrong in here, which would look like a refusal to whoever called."""
        if self._bugs:
            raise AssertionError("the stand-in broke") from self._bugs[0]

    async def _give_token(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        self.calls.append("oauth/token")
        self._stir()
        if form.get("grant_type") != "client_credentials" or not form.get("scope"):
            return JSONResponse({"error": "invalid_request"}, 400)
        if (form.get("client_id"), form.get("client_secret")) != (self.client_id, self.client_secret):
            return JSONResponse({"error": "invalid_client"}, 401)
        self._fetched = f"lin_oauth_{secrets.token_hex(16)}"
        scope = self.scope or form["scope"].replace(",", " ")
        told = {"access_token": self._fetched, "token_type": "Bearer", "expires_in": 2591999, "scope": scope}
        return JSONResponse(told)

    async def _graphql(self, request: Request) -> Response:
        try:
            return await self._answer(request)
        except ClientDisconnect:  # a caller that was stopped hears nothing
            return Response(status_code=499)
        except Exception as bug:
            self._bugs.append(bug)
            raise
        finally:
            self._stir()

    async def _answer(self, request: Request) -> Response:
        asked = json.loads(await request.body())
        name = _operation(asked)
        self.calls.append(name)
        self._stir()
        await self._going.wait()
        failure = next((each for each in self._failures if each.only in (None, name)), None)
        if failure is not None:
            self._failures.remove(failure)
            if not failure.carried_out:
                return Response(failure.body, failure.status, failure.headers)
        given = request.headers.get("authorization", "")
        if given.startswith("Bearer lin_api_"):
            return _refusal("invalid input", "INPUT_ERROR", 400)
        if given not in {self.key, f"Bearer {self.token}", f"Bearer {self._fetched}"} - {"Bearer None"}:
            return _refusal("authentication error", "AUTHENTICATION_ERROR", 401)
        viewer = self.owner if given == self.key else self.app_user
        result = await graphql(
            SCHEMA,
            asked["query"],
            self._root(viewer),
            variable_values=asked.get("variables"),
            operation_name=asked.get("operationName"),
        )
        errors = result.errors or []
        self._bugs += [
            each.original_error
            for each in errors
            if each.original_error is not None and not isinstance(each.original_error, GraphQLError)
        ]
        if failure is not None:
            return Response(failure.body, failure.status, failure.headers)
        told = {"data": result.data} | ({"errors": [said(each) for each in errors]} if errors else {})
        is_document_wrong = any(not each.extensions for each in errors)
        return JSONResponse(told, 400 if is_document_wrong else 200)

    # What the schema's fields do --------------------------------------------------------------------------

    def _root(self, viewer: Record) -> Record:
        return {
            "viewer": viewer,
            "organization": self.organization,
            "agentSession": lambda _, id: self._session(id),
            "agentSessions": lambda _, **how: _page(
                [each for each in self._sessions.values() if how.get("includeArchived") or not each["archivedAt"]],
                **how,
            ),
            "agentActivity": lambda _, id: _known(self._activities, id, "AgentActivity"),
            "agentActivities": lambda _, **how: _page(list(self._activities.values()), **how),
            "issue": lambda _, id: _known(self._issues, id, "Issue"),
            "agentActivityCreate": self._create_activity,
            "agentSessionCreateOnIssue": self._create_on_issue,
            "agentSessionUpdate": self._update,
        }

    def _create_activity(self, _: object, input: Record) -> Record:
        session, content = self._session(input["agentSessionId"]), input["content"]
        _check_content(content, ephemeral=bool(input.get("ephemeral")))
        _check_signal(input.get("signal"), input.get("signalMetadata"), kind=content["type"])
        if input.get("id") is not None:
            _check_id(input["id"])
            if any(each["id"] == input["id"] for each in self._posted):
                raise invalid("id is already used")
        activity = self._add(
            session, user=self.app_user, **{key: input[key] for key in input if key != "agentSessionId"}
        )
        self._posted.append(activity)
        session["status"] = STATUS_AFTER[content["type"]]
        session["startedAt"] = session["startedAt"] or self._now()
        session["endedAt"] = self._now() if session["status"] in ("complete", "error") else None
        return self._done(agentActivity=activity)

    def _create_on_issue(self, _: object, input: Record) -> Record:
        session = self._open(_known(self._issues, input["issueId"], "Issue"), creator=None)
        session["externalLinks"] = _links(input.get("externalUrls") or ())
        return self._done(agentSession=session)

    def _update(self, _: object, id: str, input: Record) -> Record:
        session = self._session(id)
        if input.get("externalUrls") is not None:  # the other two are ignored then
            session["externalLinks"] = _links(input["externalUrls"])
        else:
            kept = [
                each for each in session["externalLinks"] if each["url"] not in (input.get("removedExternalUrls") or ())
            ]
            session["externalLinks"] = _links([*kept, *(input.get("addedExternalUrls") or ())])
        if "plan" in input:
            _check_plan(input["plan"])
            session["plan"] = input["plan"]
        session |= {key: input[key] for key in ("summary", "dismissedAt") if key in input} | {"updatedAt": self._now()}
        return self._done(agentSession=session)

    def _done(self, **changed: Record) -> Record:
        return {"success": True, "lastSyncId": float(self._last), **changed}

    def _session(self, id: str) -> Record:
        return _known(self._sessions, id, "AgentSession")

    # What there is ----------------------------------------------------------------------------------------

    def _now(self) -> str:
        """By the clock, and later than anything before, also where the clock stands still."""
        self._last = max(self.clock.now(), self._last + 1)
        return datetime.fromtimestamp(self._last / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _stir(self) -> None:
        self._stirred.set()

    def _open(
        self,
        issue: Record | None,
        *,
        creator: Record | None,
        comment: Record | None = None,
        app_user: Record | None = None,
    ) -> Record:
        id, at = str(uuid4()), self._now()
        gone = ("startedAt", "endedAt", "archivedAt", "dismissedAt", "dismissedBy", "plan", "summary")
        session: Record = {
            "__typename": "AgentSession",
            "id": id,
            "issue": issue,
            "comment": comment,
            "creator": creator,
            "appUser": app_user or self.app_user,
            "status": "pending",
            "createdAt": at,
            "updatedAt": at,
            "context": {},
            "externalLinks": [],
            "slugId": id[:8],
            "type": "commentThread",
            "url": f"https://linear.app/acme/agent-session/{id[:8]}",
            "_previous": [],
            **dict.fromkeys(gone),
        }
        session["externalUrls"] = lambda _: session["externalLinks"]
        session["activities"] = lambda _, **how: _page(
            [each for each in self._activities.values() if each["agentSession"] is session], **how
        )
        self._sessions[id] = session
        self._stir()
        return session

    def _comment(self, text: str, *, issue: Record | None, user: Record | None, parent: Record | None = None) -> Record:
        at = self._now()
        return {
            "__typename": "Comment",
            "id": str(uuid4()),
            "body": text,
            "issue": issue,
            "user": user,
            "parent": parent,
            "createdAt": at,
            "updatedAt": at,
            "url": "https://linear.app/acme/comment",
        }

    async def _prompt(self, session: str, text: str, *, by: Record, signal: str | None) -> str:
        told = self._sessions[session]
        activity = self._add(told, user=by, content={"type": "prompt", "body": text}, signal=signal)
        told["status"] = "stopping" if signal == "stop" else "active"
        await self.deliver(self.prompted(activity["id"]))
        return str(activity["id"])

    def _add(
        self,
        session: Record,
        *,
        user: Record,
        content: Record,
        id: str | None = None,
        ephemeral: bool | None = None,
        signal: str | None = None,
        signalMetadata: Record | None = None,
        contextualMetadata: Record | None = None,
    ) -> Record:
        at = self._now()
        activity: Record = {
            "__typename": "AgentActivity",
            "id": id or str(uuid4()),
            "agentSession": session,
            "content": {
                "__typename": f"AgentActivity{content['type'].capitalize()}Content",
                "bodyData": {"type": "doc", "content": []},
                **content,
            },
            "createdAt": at,
            "updatedAt": at,
            "archivedAt": None,
            "ephemeral": bool(ephemeral),
            "queued": False,
            "user": user,
            "signal": signal,
            "signalMetadata": signalMetadata,
            "contextualMetadata": contextualMetadata,
            "_content": content,
        }
        for old in [
            key for key, each in self._activities.items() if each["agentSession"] is session and each["ephemeral"]
        ]:
            del self._activities[old]
        self._activities[activity["id"]] = activity
        session["updatedAt"] = at
        self._stir()
        return activity

    def _envelope(self, action: str, session: Record) -> Record:
        same = (
            "id",
            "createdAt",
            "updatedAt",
            "archivedAt",
            "status",
            "startedAt",
            "endedAt",
            "type",
            "summary",
            "url",
        )
        issue, comment, creator = session["issue"], session["comment"], session["creator"]
        return {
            "type": "AgentSessionEvent",
            "action": action,
            "createdAt": self._now(),
            "organizationId": self.organization["id"],
            "oauthClientId": self._oauth_client,
            "appUserId": self.app_user["id"],
            "agentSession": {
                **{key: session[key] for key in same},
                "appUserId": session["appUser"]["id"],
                "organizationId": self.organization["id"],
                "creatorId": creator and creator["id"],
                "creator": creator and _user_child(creator),
                "commentId": comment and comment["id"],
                "comment": comment and _comment_child(comment),
                "sourceCommentId": None,
                "sourceMetadata": None,
                "issueId": issue and issue["id"],
                "issue": issue and _issue_child(issue),
            },
            "webhookTimestamp": self.clock.now(),
            "webhookId": self._webhook_id,
        }


@asynccontextmanager
async def linear(*, clock: Clock | None = None) -> AsyncIterator[StandIn]:
    """Linear on a free port of loopback, in this loop. `clock` stamps the webhooks."""
    stand_in = StandIn(clock=clock or SystemClock())
    async with serve(stand_in.app()) as stand_in.url:
        try:
            yield stand_in
        finally:
            stand_in.hang(False)
    stand_in.check()


@asynccontextmanager
async def serve(app: Starlette) -> AsyncIterator[str]:
    """Any application on a free port of loopback; its address."""
    # Named as TCP, since asyncio sends without delay on such sockets alone.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    config = uvicorn.Config(
        app, ws="none", lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))  # no group, which would wrap what a test raises
    try:
        await server.ready.wait()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stopped.set()
        await serving


class _Server(uvicorn.Server):
    """uvicorn that leaves signals alone and ends at once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready, self.stopped = asyncio.Event(), asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        await self.stopped.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _operation(asked: Record) -> str:
    with suppress(GraphQLError):
        operation = get_operation_ast(parse(asked["query"]), asked.get("operationName"))
        if operation is not None and operation.name is not None:
            return operation.name.value
    return "?"


def _refusal(type: str, code: str, status: int) -> Response:
    error = {"message": type.capitalize(), "extensions": {"type": type, "code": code, "statusCode": status}}
    return JSONResponse({"errors": [error]}, status)


def _known(things: Mapping[str, Record], id: str, kind: str) -> Record:
    if id not in things:
        raise not_found(kind)
    return things[id]


def _check_id(id: str) -> None:
    with suppress(ValueError):
        if UUID(id).version == 4:
            return
    raise invalid("id must be a UUID")


def _check_content(content: Any, *, ephemeral: bool) -> None:
    kind = content.get("type") if isinstance(content, dict) else None
    if kind not in STATUS_AFTER:
        raise invalid(f"content.type {kind!r} is not one that an agent may create")
    needed = ("action", "parameter") if kind == "action" else ("body",)
    if lacking := [key for key in needed if not isinstance(content.get(key), str)]:
        raise invalid(f"content lacks {', '.join(lacking)}")
    if unknown := content.keys() - {"type", *needed} - ({"result"} if kind == "action" else set()):
        raise invalid(f"content has no {', '.join(sorted(unknown))}")
    if ephemeral and kind not in ("thought", "action"):
        raise invalid("only thought and action may be ephemeral")


def _check_signal(signal: str | None, metadata: Any, *, kind: str) -> None:
    metadata = metadata or {}
    if signal is None:
        return
    if signal not in ("select", "auth") or kind != "elicitation":
        raise invalid("the signals of an agent are select and auth, on an elicitation")
    options = metadata.get("options")
    if signal == "select" and not (
        isinstance(options, list)
        and options
        and all(isinstance(each, dict) and isinstance(each.get("value"), str) for each in options)
    ):
        raise invalid("select needs signalMetadata.options[].value")
    if signal == "auth" and not metadata.get("url"):
        raise invalid("auth needs signalMetadata.url")


def _check_plan(plan: Any) -> None:
    statuses = ("pending", "inProgress", "completed", "canceled")
    if plan is not None and not (
        isinstance(plan, list)
        and all(isinstance(each.get("content"), str) and each.get("status") in statuses for each in plan)
    ):
        raise invalid("plan is a list of {content, status}")


def _links(given: Sequence[Record]) -> list[Record]:
    if any(not each["url"].startswith(("http://", "https://")) for each in given):
        raise invalid("url must be a URL address")
    if len({each["url"] for each in given}) != len(given):
        raise invalid("externalUrls must be unique")
    return [{"label": each["label"], "url": each["url"]} for each in given]


def _user_child(user: Record) -> Record:
    return {key: user[key] for key in ("id", "name", "email", "url", "avatarUrl")}


def _comment_child(comment: Record) -> Record:
    user, issue = comment["user"], comment["issue"]
    return {
        "id": comment["id"],
        "body": comment["body"],
        "userId": user and user["id"],
        "issueId": issue and issue["id"],
    }


def _issue_child(issue: Record) -> Record:
    team = {key: issue["team"][key] for key in ("id", "key", "name")}
    same = {key: issue[key] for key in ("id", "identifier", "title", "description", "url")}
    return {**same, "teamId": team["id"], "team": team}


def _page(
    records: Sequence[Record],
    *,
    first: int | None = None,
    last: int | None = None,
    after: str | None = None,
    before: str | None = None,
    filter: Record | None = None,
    orderBy: str | None = None,
    includeArchived: bool = False,
) -> Record:
    """A page as Linear gives it: the newest first."""
    for name, value in (("first", first), ("last", last)):
        if value is not None and not 1 <= value <= LARGEST_PAGE:
            raise invalid(f"{name} must not be less than 1 or greater than {LARGEST_PAGE}")
    fitting = sorted(
        (each for each in records if _fits(each, filter or {})),
        key=lambda each: each[orderBy or "createdAt"],
        reverse=True,
    )
    ids = [each["id"] for each in fitting]
    if any(cursor is not None and cursor not in ids for cursor in (after, before)):
        raise invalid("the cursor is not of this list")
    start = 0 if after is None else ids.index(after) + 1
    end = len(ids) if before is None else ids.index(before)
    start, end = (max(start, end - last), end) if last is not None else (start, min(end, start + (first or PAGE)))
    nodes = fitting[start:end]
    return {
        "nodes": nodes,
        "edges": [{"cursor": each["id"], "node": each} for each in nodes],
        "pageInfo": {
            "hasNextPage": end < len(ids),
            "hasPreviousPage": start > 0,
            "startCursor": nodes[0]["id"] if nodes else None,
            "endCursor": nodes[-1]["id"] if nodes else None,
        },
    }


def _fits(record: Record, wanted: Record) -> bool:
    """Whether a filter lets an activity through."""
    values: Record = {
        "id": record["id"],
        "type": record["content"]["type"] if "content" in record else None,
        "agentSessionId": record["agentSession"]["id"] if "agentSession" in record else None,
    }
    for key, condition in wanted.items():
        match key:
            case "and":
                fits = all(_fits(record, each) for each in condition)
            case "or":
                fits = any(_fits(record, each) for each in condition)
            case "createdAt" | "updatedAt":
                instant = _instant(record[key])
                fits = all(_compares(instant, how, _instant(each)) for how, each in condition.items())
            case _:
                fits = all(_compares(values[key], how, each) for how, each in condition.items())
        if not fits:
            return False
    return True


def _instant(text: Any) -> Any:
    if isinstance(text, list):
        return [_instant(each) for each in text]
    try:
        instant = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise invalid(f"{text!r} is not a date") from None
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def _compares(value: Any, how: str, other: Any) -> bool:
    match how:
        case "eq":
            return bool(value == other)
        case "neq":
            return bool(value != other)
        case "in":
            return value in other
        case "nin":
            return value not in other
        case "gt":
            return bool(value > other)
        case "gte":
            return bool(value >= other)
        case "lt":
            return bool(value < other)
        case "lte":
            return bool(value <= other)
    raise NotImplementedError(f"the stand-in cannot compare by {how}")
