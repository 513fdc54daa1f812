"""The hot routes: asks, answers, deliveries. Plain ASGI callables, since they are most of what a desk does."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from handraise.asks import Answer, Ask, Handling, Origin
from handraise.broker import Broker
from handraise.clock import give_way
from handraise.errors import (
    AlreadyAnswered,
    AnswerDoesNotFit,
    AskDiffers,
    AskDoesNotFit,
    AskNotFound,
    AskWithdrawn,
    Forbidden,
    NothingToDeliver,
    Overloaded,
    SessionEnded,
    SessionNotFound,
    StoreFailed,
)
from handraise.people import reason_not_to_allow_in_notification
from handraise.server.declare import POSITION, SECONDS, TEXT, Parameter, Tag, declare, in_path, one_of, page_size
from handraise.server.gate import require, source_of
from handraise.server.http import (
    Gone,
    RouteNotFound,
    TooLarge,
    WrongMethod,
    encode,
    hung_up,
    query,
    read_body,
    seconds_in,
    send_json,
    send_pieces,
)
from handraise.server.routes import Parts, RouteGroup
from handraise.stores import SETTLED, Query
from handraise.tables.leases import AskLeases
from handraise.tables.links import DAY
from handraise.tables.tokens import OWNED, Token
from handraise.wire import LARGE, BadBody, Stored, parse, parse_ask_body, time_text
from handraise.wire.asks import (
    AnswerBody,
    AnswerLink,
    AskBody,
    Asks,
    DeliveriesBody,
    Lease,
    LeaseBody,
    LinkBody,
    RejectBody,
    Reported,
    WithdrawBody,
)
from handraise.wire.channels import ShowingBody, Showings

__all__ = ["AskRoutes", "number", "who"]

MOST_WAITS = 5_000  # each parked call costs a connection and about 20 kB; more belong on one stream
PAGE = 100
MOST_LISTED = 1_000
LONGEST_SEARCH = 500  # characters
NOTIFICATION = "notification"  # `via` of what was pressed in a notification of the browser
LONGEST_LIST = 2 * 1024 * 1024  # characters of asks after which a page ends, however many it may have
LONGEST_KEPT = 100  # bytes of a query whose meaning is remembered
OLDEST, NEWEST = "oldest", "newest"

Action = Callable[[Scope, Receive, Send, str], Awaitable[None]]

ASKS = Tag("asks", "What agents ask and people answer.")
CHANNELS = Tag("channels", "The places where people are told what waits, and what became of it there.")
WAIT = Parameter(
    "wait", schema=SECONDS, meaning="Seconds to wait for the answer. When they have passed the ask is told as it is."
)
STATE = Parameter(
    "state",
    schema=one_of("asked", "answered", "rejected", "withdrawn", "settled"),
    meaning="Only asks in this state; `settled` is every state but `asked`.",
)
AGENT = Parameter("agent", schema=TEXT, meaning="Only what this agent asked.")
SESSION = Parameter("session", schema=TEXT, meaning="Only of this session.")
RUN = Parameter("run", schema=TEXT, meaning="Only of this run.")
Q = Parameter(
    "q",
    schema={"type": "string", "maxLength": LONGEST_SEARCH},
    meaning="Only asks in which people see this text, in any case: in what was asked and by whom, in what was"
    " answered, in the reason why it ended. It is taken as it is; there are no wildcards.",
)
ORDER = Parameter("order", schema=one_of("oldest", "newest"), meaning="Which ask comes first; without it, the oldest.")
AFTER_ASK = Parameter("after", schema=POSITION, meaning="`next` of the page before.", key="after_ask")
LIMIT = Parameter("limit", schema=page_size(MOST_LISTED, default=PAGE), meaning="Asks a page.")
ID_IN_PATH = in_path("id", meaning="The id of an ask, percent-encoded.", example="build-7")
QUESTION_IN_PATH = in_path("question", meaning="The id of an ask, percent-encoded.", example="build-7")


class AskRoutes:
    def __init__(self, broker: Broker, *, most_waits: int = MOST_WAITS) -> None:
        self._broker = broker
        self._most_waits = most_waits
        self._waits = Counter[str]()  # by the name of the token
        self.actions: dict[str, Action] = {
            "answer": self._answer,
            "reject": self._reject,
            "keep-waiting": self._keep_waiting,
            "withdraw": self._withdraw,
            "deliver": self._deliver,
            "link": self._link,
            "showings": self._showed,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Everything under `/v1/asks`. The raw path is split, so that an id may hold any character."""
        parts = scope["raw_path"].split(b"/")
        method = scope["method"]
        match len(parts):
            case 3:
                if method == "POST":
                    await self._ask(scope, receive, send)
                elif method == "GET":
                    await self._list(scope, send)
                else:
                    raise WrongMethod("use GET to list asks, POST to ask", allow="GET, POST")
            case 4:
                if method != "GET":
                    raise WrongMethod("use GET to read an ask", allow="GET")
                await self._get(scope, receive, send, unquote(parts[3].decode("ascii")))
            case 5:
                if parts[4] == b"showings" and method == "GET":
                    await self._showings(scope, send, unquote(parts[3].decode("ascii")))
                    return
                action = self.actions.get(parts[4].decode("ascii"))
                if action is None:
                    raise RouteNotFound("there is no such route; `/openapi.json` lists them")
                if method != "POST":
                    raise WrongMethod("use POST", allow="GET, POST" if parts[4] == b"showings" else "POST")
                await action(scope, receive, send, unquote(parts[3].decode("ascii")))
            case _:
                raise RouteNotFound("there is no such route; `/openapi.json` lists them")

    @declare(
        "POST /v1/asks",
        id="raise_an_ask",
        summary="Raise a hand, or join the one raised before under the same id",
        tag=ASKS,
        scope="ask",
        parameters=(WAIT,),
        body=AskBody,
        replies={
            201: (Ask, "A new ask. With `wait` it may be settled already."),
            200: (Ask, "Joined: the same was asked before under this id. One that was withdrawn is open again."),
        },
        refusals=(BadBody, TooLarge, AskDiffers, AskDoesNotFit, Overloaded, StoreFailed),
    )
    async def _ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = require(scope, "ask")
        wait = _wait(scope)
        sent = await read_body(scope, receive)
        body, is_large = parse_ask_body(sent), len(sent) > LARGE
        del sent
        if is_large:
            await give_way()
        if body.id is not None and body.id.startswith(OWNED) and not token.owner:
            problem = f"what begins with {OWNED} belongs to the token it names; choose another id"
            raise AskDoesNotFit(f"id: {problem}", [{"at": "id", "problem": problem}])
        ordinal = body.ordinal
        ask = Ask(
            id=token.own_id(body.id or f"ask_{secrets.token_hex(12)}"),
            questions=body.questions,
            permission=body.permission,
            origin=body.origin or Origin(agent="script", session=f"script:{token.name}"),
            extra=body.extra,
        )
        parked = bool(wait) and self._may_park(token)
        opening = self._broker.open(
            ask,
            handling=body.handling(onto=self._inherited(body)),
            owner=token.owner,
            worker=body.worker,
            ordinal=ordinal,
            wait=wait if parked else None,
        )
        del ask, body  # so that a large one is let go of before it is written
        self._waits[token.name] += parked
        try:
            opened = await opening
        finally:
            self._waits[token.name] -= parked
        stored = opened.stored
        if wait and not parked and stored.state == "asked":
            raise self._too_many()
        if wait is not None and hung_up(receive):
            raise Gone  # nothing counts as delivered to a caller that left
        await self._tell(send, stored, status=201 if opened.how == "new" else 200)
        if wait is not None and stored.answer is not None:
            if ordinal:  # the same id may come again at once, and must not find this answer waiting
                await self._broker.report([(stored.id, None)])
            else:
                self._broker.delivered(stored.id)

    def _inherited(self, body: AskBody) -> Handling:
        """What an ask leaves to the desk: everything if it names no policy, and nothing if it names one."""
        named = body.question_policy is not None or body.permission_policy is not None
        return Handling() if named else self._broker.handling

    def _may_park(self, token: Token) -> bool:
        """Whether one more call of this token may wait. A token that may only ask has half of the places, and all of
        them together three quarters: nobody shuts out others, or people."""
        total, most = self._waits.total(), self._most_waits
        if token.may("answer"):
            return total < most
        return self._waits[token.name] < most // 2 and total < most * 3 // 4

    def _too_many(self) -> Overloaded:
        return Overloaded(
            f"{self._waits.total()} calls wait here already; what you asked is kept. Wait on one stream instead "
            "(`GET /v1/events?worker=`), or ask again later under the same id",
        )

    @declare(
        "GET /v1/asks/{id}",
        id="show_an_ask",
        summary="One ask, at once or as soon as it is settled. Never counts as delivered",
        tag=ASKS,
        scope="",
        parameters=(ID_IN_PATH, WAIT),
        replies={200: (Ask, "The ask. After an expired wait it is told as it is.")},
        refusals=(BadBody, AskNotFound, Overloaded),
    )
    async def _get(self, scope: Scope, receive: Receive, send: Send, id: str) -> None:
        token: Token = scope["token"]
        wait = _wait(scope)
        stored = await self._seen(token, id)
        if wait and stored.state == "asked":
            if not self._may_park(token):
                raise self._too_many()
            self._waits[token.name] += 1
            try:
                stored = await self._broker.wait(stored.id, timeout=wait)
            finally:
                self._waits[token.name] -= 1
        await self._tell(send, stored)

    @declare(
        "GET /v1/asks",
        id="list_asks",
        summary="Asks in the order they were raised, in every state unless one is named",
        tag=ASKS,
        scope="answer",
        parameters=(STATE, AGENT, SESSION, RUN, Q, ORDER, AFTER_ASK, LIMIT),
        replies={200: (Asks, "A page of asks.")},
        refusals=(BadBody,),
    )
    async def _list(self, scope: Scope, send: Send) -> None:
        require(scope, "answer")
        asked = query(scope["query_string"], "state", "agent", "session", "run", "q", "order", "after", "limit")
        after = number(asked.pop("after", "0"), name="after")
        limit = number(asked.pop("limit", str(PAGE)), name="limit", least=1, most=MOST_LISTED)
        if asked.get("state") not in (None, "asked", "answered", "rejected", "withdrawn", SETTLED):
            raise BadBody(f"state is one of asked, answered, rejected, withdrawn, {SETTLED}")
        order, text = asked.pop("order", OLDEST), asked.pop("q", "")
        if order not in (OLDEST, NEWEST):
            raise BadBody(f"order is {OLDEST} or {NEWEST}: which ask comes first")
        if len(text) > LONGEST_SEARCH:
            raise BadBody(f"q has {len(text)} characters; at most {LONGEST_SEARCH} can be looked for")
        page = await self._broker.store.find(
            Query(**asked), after=after, limit=limit + 1, newest=order == NEWEST, text=text or None, most=LONGEST_LIST
        )
        now = self._broker.clock.now()
        is_cut = len(page) > limit or sum(len(stored.content) for stored in page) >= LONGEST_LIST
        del page[limit:]
        more = b',"next":"%d"' % page[-1].seq if is_cut else b""
        told: list[bytes] = []
        while page:  # none is held both as text and as bytes for longer than it takes
            told += (b"," if told else b'{"asks":[', *page.pop(0).pieces(now))
        told.append(b"]%b}" % more if told else b'{"asks":[]}')
        is_large = sum(map(len, told)) > LARGE
        await send_pieces(send, told if is_large else (b"".join(told),))

    @declare(
        "POST /v1/asks/{id}/answer",
        id="answer_an_ask",
        summary="Answer its questions, or reply to the permission it wants. The first answer counts",
        tag=ASKS,
        scope="answer",
        parameters=(ID_IN_PATH,),
        body=AnswerBody,
        replies={200: (Ask, "It is settled with this answer, by you or by somebody who said the same before.")},
        refusals=(BadBody, TooLarge, AskNotFound, AlreadyAnswered, AskWithdrawn, AnswerDoesNotFit, StoreFailed),
    )
    async def _answer(self, scope: Scope, receive: Receive, send: Send, id: str) -> None:
        token = require(scope, "answer")
        body = parse(AnswerBody, await read_body(scope, receive))
        by, via = who(token, by=body.by, via=body.via)
        if via == NOTIFICATION and body.reply not in (None, "reject"):
            await self._check_notification(token, id, body.reply)
        stored = await self._settle(scope, id, body.answer(by=by, via=via))
        await self._tell(send, stored)

    async def _check_notification(self, token: Token, id: str, reply: str) -> None:
        """A notification may be older than what it is about, and its button cannot show more than it did."""
        reason = reason_not_to_allow_in_notification((await self._seen(token, id)).ask(), reply=reply)
        if reason is not None:
            raise Forbidden(f"a notification cannot allow this, because {reason}: allow it on its card")

    @declare(
        "POST /v1/asks/{id}/reject",
        id="reject_an_ask",
        summary="Refuse it, finally. The reason reaches the agent",
        tag=ASKS,
        scope="answer",
        parameters=(ID_IN_PATH,),
        body=RejectBody,
        is_body_required=False,
        replies={200: (Ask, "It is rejected.")},
        refusals=(BadBody, TooLarge, AskNotFound, AlreadyAnswered, AskWithdrawn, StoreFailed),
    )
    async def _reject(self, scope: Scope, receive: Receive, send: Send, id: str) -> None:
        token = require(scope, "answer")
        body = parse(RejectBody, await read_body(scope, receive))
        by, via = who(token, by=body.by, via=body.via)
        stored = await self._settle(scope, id, Answer(rejected=True, reason=body.reason, by=by, via=via))
        await self._tell(send, stored)

    async def _settle(self, scope: Scope, id: str, answer: Answer) -> Stored:
        token: Token = scope["token"]
        if token.owner:
            id = (await self._seen(token, id)).id
        return await self._broker.answer_stored(id, answer, source=source_of(scope))

    @declare(
        "POST /v1/asks/{id}/keep-waiting",
        id="keep_waiting",
        summary="Move the deadline by the time the ask was given",
        tag=ASKS,
        scope="answer",
        parameters=(ID_IN_PATH,),
        replies={200: (Ask, "The ask with its new deadline, or unchanged where it has none.")},
        refusals=(TooLarge, AskNotFound, AlreadyAnswered, AskWithdrawn, StoreFailed),
    )
    async def _keep_waiting(self, scope: Scope, receive: Receive, send: Send, id: str) -> None:
        token = require(scope, "answer")
        await read_body(scope, receive)
        stored = await self._seen(token, id)
        await self._tell(send, await self._broker.keep_waiting_stored(stored.id, source=source_of(scope)))

    @declare(
        "POST /v1/asks/{id}/deliver",
        id="deliver_again",
        summary="Have an agent that was started here told an answer that it could not take",
        tag=ASKS,
        scope="answer",
        parameters=(ID_IN_PATH,),
        replies={202: (Ask, "It will be told so. Whether it took the answer is told as always.")},
        refusals=(TooLarge, AskNotFound, NothingToDeliver, SessionNotFound, SessionEnded, StoreFailed),
    )
    async def _deliver(self, scope: Scope, receive: Receive, send: Send, id: str) -> None:
        """Once more, where the agent could not take the answer. The worker of its session does it."""
        token = require(scope, "answer")
        await read_body(scope, receive)
        stored = await self._seen(token, id)
        await self._broker.sessions.deliver_again(stored.ask(), at=self._broker.clock.now())
        await self._tell(send, stored, status=202)

    @declare(
        "POST /v1/asks/{id}/withdraw",
        id="withdraw_an_ask",
        summary="Say that the agent no longer waits, and what a person told it in its own terminal, where that is "
        "known",
        tag=ASKS,
        scope="ask",
        parameters=(ID_IN_PATH,),
        body=WithdrawBody,
        is_body_required=False,
        replies={
            200: (
                Ask,
                "It is withdrawn. With an `answer` that fits it is answered or rejected by `agent`, and delivered.",
            )
        },
        refusals=(BadBody, TooLarge, AskNotFound, AlreadyAnswered, StoreFailed),
    )
    async def _withdraw(self, scope: Scope, receive: Receive, send: Send, id: str) -> None:
        token = require(scope, "ask")
        body = parse(WithdrawBody, await read_body(scope, receive))
        said = None
        if body.answer is not None:
            said = body.answer.answer(by="", via=body.answer.via or "terminal")
            said = replace(said, rejected=body.answer.rejected)
        taken = await self._broker.withdraw_stored(
            token.own_id(id), reason=body.reason, answer=said, source=source_of(scope)
        )
        await self._tell(send, taken)

    @declare(
        "POST /v1/asks/{id}/link",
        id="make_an_answer_link",
        summary="Make a link with which whoever holds it answers this ask, once. Revoking the token that made it "
        "ends it",
        tag=ASKS,
        scope="answer",
        parameters=(ID_IN_PATH,),
        body=LinkBody,
        is_body_required=False,
        replies={201: (AnswerLink, "The link, which is told only now.")},
        refusals=(BadBody, TooLarge, AskNotFound, AlreadyAnswered, AskWithdrawn, StoreFailed),
    )
    async def _link(self, scope: Scope, receive: Receive, send: Send, id: str) -> None:
        """Whoever holds the link answers in the name of its maker, or of whom an admin names."""
        token = require(scope, "answer")
        body = parse(LinkBody, await read_body(scope, receive))
        stored = await self._broker.pending((await self._seen(token, id)).id)
        by, _ = who(token, by=body.by, via=None)
        via = body.via if body.via and body.via != "policy" else "link"
        secret, expires_at = await self._broker.links.make(
            stored.id, by=by, via=via, maker=token.name, seconds=body.expires_in or DAY
        )
        told = AnswerLink(url=f"{Request(scope).base_url}a/{secret}", expires_at=time_text(expires_at))
        await send_json(send, encode(told), status=201)

    @declare(
        "GET /v1/asks/{id}/showings",
        id="list_where_an_ask_was_shown",
        summary="Where it was sent or shown, and where that failed",
        tag=CHANNELS,
        scope="answer",
        parameters=(ID_IN_PATH,),
        replies={200: (Showings, "The newest word of each channel, by name.")},
        refusals=(AskNotFound,),
    )
    async def _showings(self, scope: Scope, send: Send, id: str) -> None:
        token = require(scope, "answer")
        stored = await self._seen(token, id)
        told = Showings(showings=tuple(record.to_shape() for record in await self._broker.showings.of(stored.id)))
        await send_json(send, encode(told))

    @declare(
        "POST /v1/asks/{id}/showings",
        id="report_a_showing",
        summary="For a channel that is a program of its own: what became of showing it there, or that nothing is "
        "left to do",
        tag=CHANNELS,
        scope="answer",
        parameters=(ID_IN_PATH,),
        body=ShowingBody,
        replies={200: (Showings, "It is written down. One that nobody could be shown does not wait unseen.")},
        refusals=(BadBody, TooLarge, AskNotFound, StoreFailed),
    )
    async def _showed(self, scope: Scope, receive: Receive, send: Send, id: str) -> None:
        """From a channel that is a program of its own."""
        token = require(scope, "answer")
        body = parse(ShowingBody, await read_body(scope, receive))
        if (body.state is None) != body.left:
            raise BadBody("give a `state`, or `left: true` where nothing is left to do there")
        stored = await self._seen(token, id)
        if body.state is None:
            await self._broker.left(stored.id, channel=body.channel)
        else:
            await self._broker.showed(stored.id, body.state, channel=body.channel, place=body.place, error=body.error)
        await self._showings(scope, send, stored.id)

    @declare(
        "POST /v1/deliveries",
        id="report_deliveries",
        summary="Say which answers agents took, and why they could not take others",
        tag=ASKS,
        scope="ask",
        body=DeliveriesBody,
        replies={200: (Reported, "What is written down, and the ids nobody knows.")},
        refusals=(BadBody, TooLarge, StoreFailed),
    )
    async def deliveries(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/deliveries`: agents took answers, or could not."""
        if scope["method"] != "POST":
            raise WrongMethod("use POST", allow="POST")
        token = require(scope, "ask")
        body = parse(DeliveriesBody, await read_body(scope, receive))
        reported = await self._broker.report([(token.own_id(entry.id), entry.error) for entry in body.deliveries])
        unknown = [entry.id for entry, stored in zip(body.deliveries, reported, strict=True) if stored is None]
        await send_json(send, encode(Reported(reported=len(reported) - len(unknown), unknown=tuple(unknown))))

    @declare(
        "POST /v1/leases",
        id="renew_a_lease",
        summary="Say that a program which asks is there. Once it says nothing for so long, its open asks are withdrawn",
        tag=ASKS,
        scope="ask",
        body=LeaseBody,
        replies={200: (Lease, "It counts as there for so many seconds from now on.")},
        refusals=(BadBody, TooLarge, StoreFailed),
    )
    async def leases(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/leases`: a program that asks is there. What it asked is withdrawn once it says nothing any more."""
        if scope["method"] != "POST":
            raise WrongMethod("use POST", allow="POST")
        token = require(scope, "ask")
        body = parse(LeaseBody, await read_body(scope, receive))
        await AskLeases(self._broker.store).renew(body.worker, owner=token.owner, seconds=body.seconds)
        await send_json(send, encode(Lease(worker=body.worker, seconds=body.seconds)))

    async def _seen(self, token: Token, id: str) -> Stored:
        """The ask that this caller means by an id, if it may see it. An ask of its own comes first."""
        store = self._broker.store
        if token.owner and token.may("ask"):
            own_id = token.own_id(id)
            own = await store.get(own_id) or (await store.newest([own_id])).get(own_id)
            if own is not None:
                return own
        if not token.may("answer"):
            if not token.may("ask"):
                raise Forbidden(f"the token {token.name!r} may see no asks", token=token.name)
            raise AskNotFound(id)
        return await self._broker.stored(id)

    async def _tell(self, send: Send, stored: Stored, *, status: int = 200) -> None:
        if len(stored.content) > LARGE:
            await give_way()  # it was just read or written, and is encoded now
        await send_pieces(send, tuple(stored.pieces(self._broker.clock.now())), status=status)


def _wait(scope: Scope) -> float | None:
    return _seconds(scope["query_string"])


def _seconds(query_string: bytes) -> float | None:
    if len(query_string) > LONGEST_KEPT:
        return seconds_in(query(query_string, "wait"))
    return _kept_seconds(query_string)


@lru_cache(maxsize=64)
def _kept_seconds(query_string: bytes) -> float | None:
    return seconds_in(query(query_string, "wait"))


def number(text: str, *, name: str, least: int = 0, most: int = 2**62) -> int:
    """A parameter of the query as a whole number. Raises BadBody."""
    found = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not least <= found <= most:
        raise BadBody(f"{name} is a whole number from {least}" + ("" if most == 2**62 else f" to {most}"))
    return found


def who(token: Token, *, by: str | None, via: str | None) -> tuple[str, str]:
    """Only an admin's programs may say in whose name they answer; nobody may pass for policy or the agent."""
    claimed = by if by and token.may("admin") and not by.startswith("policy:") and by != "agent" else None
    return claimed or token.name, via if via and via != "policy" else "http"


def _hot(desk: Parts) -> Mapping[str, Any]:
    routes = AskRoutes(desk.broker)
    return {"/v1/asks": routes, "/v1/asks/": routes, "/v1/deliveries": routes.deliveries, "/v1/leases": routes.leases}


plugin = RouteGroup(handlers=(AskRoutes,), hot=_hot)
