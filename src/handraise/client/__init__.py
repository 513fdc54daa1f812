"""The desk from another process: `Client` has the broker's methods over HTTP and SSE, `Desk` is what people import."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2

from handraise import errors
from handraise.asks import Answer, Ask, Handling, Option, Origin, Permission, Question, State
from handraise.asks.places import resolve
from handraise.clock import Backoff
from handraise.config import DEFAULT_URL, Settings, load, parse_addresses, warn_of_untrusted
from handraise.errors import (
    AnswerDoesNotFit,
    AskDoesNotFit,
    AskNotFound,
    AskWithdrawn,
    CursorTooOld,
    DeskBroke,
    DeskUnreachable,
    HandraiseError,
    Overloaded,
    Rejected,
    RuleNotFound,
    SessionEnded,
    SessionNotFound,
    StoreFailed,
    Withdrawn,
)
from handraise.events import Asked, Event
from handraise.transports import proof, tls
from handraise.transports.sse import Frames
from handraise.wire import ask_fields, handling_fields, parse_ask, parse_event

if TYPE_CHECKING:
    from handraise.channels import Showing

__all__ = ["Client", "Desk", "addresses", "secret"]

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

WAIT = 50.0  # seconds one call is parked; proxies commonly cut at 60
SILENCE = 45.0  # three heartbeats missed: the stream is dead
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # between attempts to reach a desk that went away
PATIENCE = 5  # attempts at desks that say they cannot right now
AWAY = (502, 503, 504)  # what a proxy says in place of a desk that is not there
MOST_AT_ONCE = 1000  # deliveries told in one call; a desk takes twice as many
PROOF = 5.0  # seconds that a desk may take to prove itself
GOODBYE = 2.0  # seconds in which the last deliveries are told; a desk that is down must not hold us

Reply: TypeAlias = str | Sequence[str] | Sequence[Sequence[str]] | Answer | None
Handler: TypeAlias = Callable[[Ask], Reply | Awaitable[Reply]]


def addresses(settings: Settings, *, url: str | Sequence[str] | None = None) -> tuple[str, ...]:
    """Where desks are: what was given, HANDRAISE_URL, the desk of this home, the default. Raises SettingsError."""
    return _given(settings, url=url) or (settings.running_desk() or DEFAULT_URL,)


def _given(settings: Settings, *, url: str | Sequence[str] | None) -> tuple[str, ...]:
    return parse_addresses(url, name="the address") or parse_addresses(settings.url, name="the address")


def secret(settings: Settings, *, url: str) -> str | None:
    """The token for a desk. The one in the home is sent to the desk of that home alone."""
    if settings.token is not None:
        return settings.token
    if url != settings.running_desk():
        return None
    try:
        return settings.token_file.read_text().strip()
    except OSError:
        return None


class Client:
    """A broker from another process, for adapters (`Asker`) and channels (`Inbox`). Use as an async context manager.

    Once the desk was reached, calls that may be repeated outlast its restarts. Where several desks share a database,
    `url` may name them all: a call that one of them cannot take goes to the next, and the next calls with it.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._settings = settings or load()
        self._given = _given(self._settings, url=url)
        self._in_turn = self._given  # the one in use first, the one that failed last at the end
        self._token = token
        self._reached = False
        self._at_home = False  # the desk we reached is the one that this home wrote down
        self._deliveries: list[dict[str, Any]] = []
        self._has_deliveries = asyncio.Event()
        self._sending = asyncio.Lock()
        # By whether they speak TLS, and which certificate they trust where it is one alone; see `_http`.
        self._clients: dict[tuple[bool, str | None], httpx2.AsyncClient] = {}
        self._tasks = asyncio.TaskGroup()
        self._reporting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._reporting = self._tasks.create_task(self._report_deliveries())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._reporting is not None
        self._reporting.cancel()
        await self._tasks.__aexit__(None, None, None)
        if self._deliveries:
            with suppress(HandraiseError, TimeoutError):
                async with asyncio.timeout(GOODBYE):
                    await self._send_deliveries()
        for http in self._clients.values():
            await http.aclose()

    @property
    def url(self) -> str:
        """The address in use."""
        return self._urls[0]

    @property
    def _urls(self) -> tuple[str, ...]:
        """Every address that may be tried, the one in use first."""
        return self._in_turn or addresses(self._settings)

    # Asking -----------------------------------------------------------------------------------------------

    async def ask(
        self,
        ask: Ask,
        *,
        handling: Handling | None = None,
        ordinal: bool = False,
    ) -> Answer:
        """Raise a hand and wait, however long, across restarts of the desk.

        A rejection is an Answer too; raises Withdrawn. Whoever hands the answer on says `delivered` afterwards.
        """
        settled = await self.open(ask, handling=handling, ordinal=ordinal)
        # Waited for by reading: one that was withdrawn meanwhile must not be raised again.
        while settled.state == "asked":
            try:
                settled = await self.wait(settled.id, timeout=WAIT)
            except AskNotFound:  # the database is a backup from before it was asked
                settled = await self._open(ask, handling=handling, ordinal=ordinal)
        if settled.answer is None:
            raise Withdrawn(settled)
        return settled.answer

    async def open(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Ask:
        """Raise a hand without waiting."""
        if ordinal:  # what the agent has taken is over, also if that is not told yet
            await self._send_deliveries()
        return await self._open(ask, handling=handling, ordinal=ordinal)

    async def _open(self, ask: Ask, *, handling: Handling | None, ordinal: bool = False) -> Ask:
        ask = await resolve(ask)  # whoever asks through us is on this machine
        body = {**ask_fields(ask), **(handling_fields(handling) if handling else {}), "ordinal": ordinal}
        return _ask(await self._call("POST", "/v1/asks", body=body))

    async def withdraw(self, id: str, *, reason: str | None = None, answer: Answer | None = None) -> Ask:
        body: dict[str, Any] = {"reason": reason}
        if answer is not None:
            body["answer"] = _said(answer) | {"rejected": answer.rejected, "via": answer.via or None}
        return _ask(await self._call("POST", f"/v1/asks/{quote(id, safe='')}/withdraw", body=body))

    def delivered(self, id: str, *, error: str | None = None) -> None:
        """Told to the desk soon, in batches."""
        self._deliveries.append({"id": id, "error": error})
        self._has_deliveries.set()

    # Answering --------------------------------------------------------------------------------------------

    async def answer(self, id: str, answer: Answer) -> Ask:
        """The first answer counts; a different second one gets AlreadyAnswered."""
        if answer.rejected:
            return await self.reject(id, reason=answer.reason, by=answer.by, via=answer.via)
        body = {"by": answer.by or None, "via": answer.via or None} | _said(answer)
        return _ask(await self._call("POST", f"/v1/asks/{quote(id, safe='')}/answer", body=body))

    async def reject(self, id: str, *, reason: str | None = None, by: str = "", via: str = "") -> Ask:
        body = {"reason": reason, "by": by or None, "via": via or None}
        return _ask(await self._call("POST", f"/v1/asks/{quote(id, safe='')}/reject", body=body))

    async def keep_waiting(self, id: str) -> Ask:
        return _ask(await self._call("POST", f"/v1/asks/{quote(id, safe='')}/keep-waiting", body={}))

    # Showing ----------------------------------------------------------------------------------------------

    async def link(self, id: str, *, by: str, via: str) -> str:
        """Where whoever opens it may answer this ask, once, in the name of `by` if our token may speak for others."""
        told = await self._call("POST", f"/v1/asks/{quote(id, safe='')}/link", body={"by": by, "via": via})
        return _ours(told, lambda told: str(json.loads(told)["url"]))

    async def showed(
        self, id: str, state: Showing, *, channel: str, place: str | None = None, error: str | None = None
    ) -> None:
        body = {"channel": channel, "state": state, "place": place, "error": error}
        await self._call("POST", f"/v1/asks/{quote(id, safe='')}/showings", body=body)

    async def places(self, channel: str) -> Mapping[str, str]:
        told = await self._call("GET", f"/v1/channels/{quote(channel, safe='')}/places")
        return _ours(told, lambda told: {str(ask): str(place) for ask, place in json.loads(told)["places"].items()})

    async def left(self, id: str, *, channel: str) -> None:
        await self._call("POST", f"/v1/asks/{quote(id, safe='')}/showings", body={"channel": channel, "left": True})

    # Reading ----------------------------------------------------------------------------------------------

    async def cursor(self) -> int:
        """Where events stand now."""
        return _ours(await self._call("GET", "/v1/cursor"), lambda told: int(json.loads(told)["cursor"]))

    async def get(self, id: str) -> Ask:
        return _ask(await self._call("GET", f"/v1/asks/{quote(id, safe='')}"))

    async def wait(self, id: str, *, timeout: float) -> Ask:
        """The ask once it is settled, or as it is when `timeout` seconds have passed. Takes nothing from the agent.

        A desk that was reached and cannot say right now is asked again for as long as it takes.
        """
        wait = min(timeout, WAIT)
        path = f"/v1/asks/{quote(id, safe='')}"
        params = {"wait": f"{wait:g}"}
        return _ask(await self._call("GET", path, params=params, silence=wait + 10, refusals=math.inf))

    async def asks(
        self,
        *,
        state: State | Literal["settled"] | None = None,
        agent: str | None = None,
        session: str | None = None,
        run: str | None = None,
        search: str | None = None,
        newest: bool = False,
    ) -> AsyncIterator[Ask]:
        """Every ask that fits, oldest first unless `newest`. `search` is a text that people see in it, in any case."""
        filters = {"state": state, "agent": agent, "session": session, "run": run, "q": search or None}
        filters["order"] = "newest" if newest else None
        params = {key: value for key, value in filters.items() if value is not None}
        while True:
            asks, next_page = _ours(await self._call("GET", "/v1/asks", params=params), _page)
            for ask in asks:
                yield ask
            if next_page is None:
                return
            params["after"] = next_page

    async def events(
        self,
        *,
        after: int | None = None,
        session: str | None = None,
        run: str | None = None,
        worker: str | None = None,
        also: Mapping[str, Callable[[], None]] | None = None,
        drafts: Callable[[dict[str, Any]], None] | None = None,
    ) -> AsyncIterator[Event]:
        """What happens from now on, or after a cursor: every event once, in order, across restarts of the desk.

        `also` names things beside asks (`checkpoints`, `sessions`, `runs`, `chats`), each with what is called when they
        may have changed, and once for every connection: whoever then lists them misses nothing. With `chats` among
        them, `drafts` is called with what replies grow by. Raises CursorTooOld where events after that cursor were
        pruned. 0 is the oldest event there is.
        """
        filters = {"session": session, "run": run, "worker": worker, "also": ",".join(also or ()) or None}
        params = {key: value for key, value in filters.items() if value is not None}
        cursor = None if after is None else str(after)
        begins = after == 0  # and wants what there is; once it was connected, 0 is a place like any other
        tries = _Tries(self, refusals=math.inf)
        while True:
            headers = {} if cursor is None else {"Last-Event-ID": cursor}
            url, lived, problem = await tries.next(), False, None
            try:
                async with self._http(url).stream(
                    "GET",
                    f"{url}/v1/events",
                    params=params,
                    headers=self._headers(headers, url=url),
                    timeout=httpx2.Timeout(10.0, read=SILENCE, pool=None),
                    extensions=self._extensions(url),
                ) as response:
                    if response.status_code != 200 or not _is(response, "text/event-stream"):
                        raise self._refusal(response.status_code, await response.aread())
                    self._reach()
                    lived, tries = True, _Tries(self, refusals=math.inf)
                    frames = Frames()
                    async for chunk in response.aiter_bytes():
                        for frame in frames.feed(chunk):
                            seen, cursor = cursor, frame.id if frame.id is not None else cursor
                            if frame.event == "changed":
                                for what in _ours(frame.data, _what_changed):
                                    (also or {}).get(what, lambda: None)()
                                continue
                            if frame.event == "draft":
                                if drafts is not None:
                                    drafts(_ours(frame.data, _draft))
                                continue
                            if not frame.data or cursor is None:
                                continue
                            try:
                                event = _ours(frame.data, partial(parse_event, cursor=int(cursor)))
                            except CursorTooOld:
                                if seen != "0" or not begins:
                                    raise
                                continue
                            yield event
            except _PASSING as failure:
                problem = failure
            begins = begins and not lived
            await tries.failed(url, problem, lived=lived)

    async def call(self, method: str, path: str, *, body: Any = None, silence: float = 10, once: bool = False) -> Any:
        """Any other route of the desk, as parsed JSON. `silence` is how many seconds the desk may take to answer.

        `once` is for what must not happen twice: raises DeskBroke where nobody can tell whether it happened.
        """
        answer = await self._call(method, path, body=body, silence=silence, once=once)
        return _ours(answer, json.loads) if answer else None

    # The wire ---------------------------------------------------------------------------------------------

    def _http(self, url: str) -> httpx2.AsyncClient:
        """Connections for an address. The desk of this home is known by the one certificate that it wrote down, any
        other by the authorities that the machine trusts."""
        is_tls = url.startswith("https:")
        is_home = is_tls and url == self._settings.running_desk()
        certificate = self._settings.running_certificate() if is_home else None
        http = self._clients.get((is_tls, certificate))
        if http is None:
            verify: ssl.SSLContext | bool = False  # without TLS there is nothing to trust, and reading it takes a while
            if is_tls:
                verify = tls.trusting() if certificate is None else tls.trusting_only(certificate)
            http = self._clients[is_tls, certificate] = httpx2.AsyncClient(
                # Every ask that waits holds a connection; a limit would keep the answers from being told.
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
                timeout=httpx2.Timeout(10.0, pool=None),
                trust_env=False,
                verify=verify,
            )
        return http

    def _extensions(self, url: str) -> dict[str, Any]:
        """Every new connection to the desk of this home is proven before it is used. With TLS its certificate does."""
        if url.startswith("https:") or url != self._settings.running_desk():
            return {}
        return {"trace": partial(_prove, url=url, key=self._settings.running_key())}

    def _headers(self, extra: Mapping[str, str], *, url: str) -> dict[str, str]:
        token = self._token or secret(self._settings, url=url)
        return {**extra, **({"Authorization": f"Bearer {token}"} if token else {})}

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        silence: float = 10,
        refusals: float = PATIENCE,
        once: bool = False,
    ) -> bytes:
        """One call, repeated while a desk we had reached restarts. What we send is safe to repeat, or sent `once`.

        `silence` is how many seconds a desk may take to say something, `refusals` how often it may say that it cannot.
        """
        content = None if body is None else json.dumps(body).encode()
        tries = _Tries(self, refusals=refusals)
        while True:
            url = await tries.next()
            try:
                response = await self._http(url).request(
                    method,
                    url + path,
                    content=content,
                    params=params,
                    headers=self._headers({"Content-Type": "application/json"}, url=url),
                    timeout=httpx2.Timeout(10.0, read=silence, pool=None),
                    extensions=self._extensions(url),
                )
                if response.status_code == 204 or (response.status_code < 300 and _is(response, "application/json")):
                    self._reach()
                    return response.content
                raise self._refusal(response.status_code, response.content)
            except _PASSING as failure:
                if once and not isinstance(failure, _NOT_TAKEN):
                    raise DeskBroke(
                        "the desk went away before it said whether it took this; `handraise sessions` shows it"
                    ) from None
                await tries.failed(url, failure)

    def _reach(self) -> None:
        self._reached = True
        if not self._at_home and not self._given:
            self._at_home = self._settings.running_desk() is not None

    def _refusal(self, status: int, body: bytes) -> HandraiseError:
        """What the desk said instead. To hear that is to have reached it, unless a proxy said it."""
        error = _error(status, body)
        if not isinstance(error, _Away):
            self._reach()
        return error

    async def _until_back(self, backoff: Backoff) -> None:
        """Wait while the desk of this home has left and no other has moved in: whoever else listens is not ours."""
        while self._at_home and self._settings.running_desk() is None:
            await backoff.wait()

    def _leave(self, url: str) -> None:
        """From now on this address is tried after all the others."""
        if url in self._in_turn:
            self._in_turn = (*(other for other in self._in_turn if other != url), url)

    def _give_up_unless_reached(self, failure: Exception | None) -> None:
        if not self._reached:
            tried = self._given or (self.url,)
            if isinstance(failure, _NotProven):
                raise DeskUnreachable(
                    f"what answers at {' or '.join(tried)} is not the desk of this home, so nothing was sent to it; "
                    "stop it or start the desk again, with `handraise serve`",
                    url=",".join(tried),
                    cause=str(failure),
                ) from None
            if "CERTIFICATE_VERIFY_FAILED" in str(failure):
                raise DeskUnreachable(
                    f"the certificate of {' or '.join(tried)} is not trusted here; set SSL_CERT_FILE to a file with "
                    "the authority that made it, and call the desk by a name that it is for",
                    url=",".join(tried),
                    cause=str(failure),
                ) from None
            raise DeskUnreachable(
                f"no desk answers at {' or '.join(tried)}; start one with `handraise serve`, or say where it is with "
                "--url",
                url=",".join(tried),
                cause=str(failure) or type(failure).__name__,
            ) from None

    async def _report_deliveries(self) -> None:
        while True:
            await self._has_deliveries.wait()
            self._has_deliveries.clear()
            try:
                await self._send_deliveries()
            except HandraiseError as failure:
                log.warning("deliveries could not be told to the desk: %s", failure)

    async def _send_deliveries(self) -> None:
        """When this returns, what was reported before is told."""
        async with self._sending:
            while self._deliveries:
                deliveries, self._deliveries = self._deliveries[:MOST_AT_ONCE], self._deliveries[MOST_AT_ONCE:]
                body = {"deliveries": deliveries}
                try:
                    await self._call("POST", "/v1/deliveries", body=body, refusals=math.inf)
                except asyncio.CancelledError:  # who was cancelled here is not the one who reported them
                    self._deliveries = deliveries + self._deliveries
                    self._has_deliveries.set()
                    raise


class _Away(DeskBroke):
    """A proxy spoke in place of the desk, which is not there."""


class _NotProven(httpx2.ConnectError):
    """Another program listens where the desk of this home was, or the desk is an older one that has no proof."""


async def _prove(event: str, info: Mapping[str, Any], *, url: str, key: str) -> None:
    """Called by the pool of connections at each of its steps."""
    if event != "connection.connect_tcp.complete":
        return
    stream = info["return_value"]
    is_proven = False
    try:
        is_proven = await proof.is_proven(
            key, url=url, read=partial(stream.read, proof.LONGEST_REPLY, timeout=PROOF), write=stream.write
        )
    finally:
        if not is_proven:
            await stream.aclose()
    if not is_proven:
        raise _NotProven("it could not prove that it is the desk which wrote down its address")


# What may go better at another desk, or later.
_PASSING = (httpx2.TransportError, Overloaded, StoreFailed, _Away)
# Those of them after which we know that nothing happened.
_NOT_TAKEN = (httpx2.ConnectError, httpx2.ConnectTimeout, Overloaded, StoreFailed)


class _Tries:
    """The way of one call around the addresses: each once, then a pause, then again."""

    def __init__(self, client: Client, *, refusals: float) -> None:
        self._client = client
        self._left = refusals
        self._refused: Exception | None = None
        self._tried: set[str] = set()
        self._backoff = Backoff(FIRST_PAUSE, longest=LONGEST_PAUSE)

    async def next(self) -> str:
        """Where to call."""
        await self._client._until_back(self._backoff)
        return next((url for url in self._client._urls if url not in self._tried), self._client.url)

    async def failed(self, url: str, problem: Exception | None, *, lived: bool = False) -> None:
        """Go on to the next address, or pause where that was the last one to try.

        `lived` is a stream that went well until now. It takes the pause too, or one that breaks at every desk would
        go round without end. Raises DeskUnreachable where no desk was ever reached, and what a desk said if every
        round of them ends so.
        """
        self._client._leave(url)
        self._tried.add(url)
        if isinstance(problem, Overloaded | StoreFailed):
            self._refused = problem
        if not lived and not self._tried.issuperset(self._client._urls):
            return
        self._client._give_up_unless_reached(problem)
        if self._refused is not None:
            self._left -= 1
            if self._left <= 0:
                raise self._refused
        self._tried.clear()
        self._refused = None
        await self._backoff.wait()


def _is(response: httpx2.Response, media_type: str) -> bool:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip() == media_type


def _ours(told: T, parse: Callable[[T], R]) -> R:
    """What a desk told, parsed. Raises DeskBroke where no desk would tell such a thing."""
    try:
        return parse(told)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DeskBroke("what answers there does not speak as a handraise desk does") from None


def _ask(told: str | bytes) -> Ask:
    return _ours(told, parse_ask)


def _what_changed(told: str) -> list[str]:
    return [str(what) for what in json.loads(told)["what"]]


def _draft(told: str) -> dict[str, Any]:
    """What a reply grew by, with all that whoever takes it needs."""
    draft: dict[str, Any] = json.loads(told)
    block, offset = int(draft["block"]), int(draft["offset"])
    return {**draft, "block": block, "offset": offset, "text": str(draft["text"])}


def _page(told: bytes) -> tuple[list[Ask], str | None]:
    page = json.loads(told)
    return [parse_ask(json.dumps(ask)) for ask in page["asks"]], page.get("next")


def _error(status: int, body: bytes) -> HandraiseError:
    """The exception that the desk raised, from what it told."""
    try:
        told = json.loads(body)
        code, message = told.pop("error"), told.pop("message")
    except (ValueError, KeyError, AttributeError, TypeError):
        broken = _Away if status in AWAY else DeskBroke
        return broken(f"what answers there is not a handraise desk (status {status})", status=status)
    match code:
        case "rule_not_found":
            return RuleNotFound(told.get("id", ""))
        case "ask_not_found":
            return AskNotFound(told.get("id", ""))
        case "session_not_found":
            return SessionNotFound(told.get("id", ""))
        case "chat_not_found":
            return errors.ChatNotFound(told.get("id", ""))
        case "run_not_found":
            return errors.RunNotFound(told.get("id", ""))
        case "checkpoint_not_found":
            return errors.CheckpointNotFound(told.get("id", ""))
        case "workflow_not_found":
            return errors.WorkflowNotFound(told.get("name", ""), known=told.get("known", ()))
        case "session_ended":
            return SessionEnded(told.get("id", ""), state=told.get("state", "done"))
        case "ask_withdrawn":
            return AskWithdrawn(told.get("id", ""), reason=told.get("reason"))
        case "answer_does_not_fit":
            return AnswerDoesNotFit(told.get("problems", []))
        case "ask_does_not_fit":
            return AskDoesNotFit(message, told.get("problems", []))
        case "ask_differs":
            return errors.AskDiffers(told.get("id", ""))
    kinds = (getattr(errors, name) for name in errors.__all__)
    kind: type[HandraiseError] = next((kind for kind in kinds if kind.code == code), HandraiseError)
    error = kind(message, **told)
    error.code = str(code)  # also where we have no exception of that name
    return error


class Desk:
    """Raise a hand from any script, or answer for people.

    async with Desk() as desk:
        answer = await desk.ask("Which database?", "SQLite", "Postgres")
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        """`url` is where the desk is. Where several share a database it may name them all, in a list or with commas:
        when one of them goes away, the next takes over."""
        if settings is None:
            settings = load()
            warn_of_untrusted(settings)
        self._settings = settings
        self.client = Client(url, token=token, settings=self._settings)
        self._tasks = asyncio.TaskGroup()
        self._serving: list[asyncio.Task[None]] = []
        self._session = f"script:{secrets.token_hex(4)}"

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for serving in self._serving:
            serving.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        except BaseExceptionGroup as failed:  # why no handler could be served: one reason, as it is
            raise failed.exceptions[0] from None
        finally:
            await self.client.__aexit__(kind, value, trace)

    async def ask(
        self,
        question: str | Question | Sequence[Question] | Permission,
        *options: str | Option,
        header: str = "",
        multiple: bool = False,
        custom: bool = True,
        id: str | None = None,
        agent: str = "script",
        session: str | None = None,
        timeout: float | None = None,
        on_timeout: str | None = None,
        handling: Handling | None = None,
    ) -> Answer:
        """Ask people and wait for what they say. Safe to repeat: the same `id` joins, and gets the same answer.

        `timeout` seconds after asking, `on_timeout` decides ("accept-first", "accept-recommended" or "reject").
        Raises Rejected and Withdrawn, AskDoesNotFit, and DeskUnreachable if no desk was ever reached.
        """
        ask = Ask(
            id=id or f"ask_{secrets.token_hex(12)}",
            questions=_questions(question, options, header=header, multiple=multiple, custom=custom),
            permission=question if isinstance(question, Permission) else None,
            origin=self._origin(agent, session=session, id=id),
        )
        handling = handling or self._settings.handling
        if timeout is not None:
            handling = replace(handling, question_timeout=timeout)
        if on_timeout is not None:
            handling = replace(handling, on_timeout=on_timeout)  # type: ignore[arg-type]
        answer = await self.client.ask(ask, handling=handling)
        self.client.delivered(ask.id)
        if answer.rejected:
            raise Rejected(answer)
        return answer

    def _origin(self, agent: str, *, session: str | None, id: str | None) -> Origin:
        """An id that is given may come again from another process or machine: nothing of this one may tell it apart."""
        if id is not None:
            return Origin(agent=agent, session=session or f"script:{id}")
        return Origin(agent=agent, session=session or self._session, machine=socket.gethostname())

    def on_question(self, handler: Handler) -> Handler:
        """Call `handler` with every open ask that has questions, now and from now on; what it returns is the answer.

        A text, a list of texts, a list per question, or an Answer; None leaves it open. Works as a decorator.
        One ask at a time, in the order they were raised; one that somebody else settled meanwhile is left out.
        """
        return self._on(False, handler)

    def on_permission(self, handler: Handler) -> Handler:
        """Call `handler` with every open permission; it returns "once", "always", "reject", an Answer, or None."""
        return self._on(True, handler)

    def _on(self, permissions: bool, handler: Handler) -> Handler:
        self._serving.append(self._tasks.create_task(self._serve(permissions, handler)))
        return handler

    async def reply_question(self, id: str, answers: Reply, *, by: str = "", via: str = "sdk") -> Ask:
        """Answer an ask. Raises AlreadyAnswered, AnswerDoesNotFit, AskWithdrawn, AskNotFound."""
        ask = await self.client.get(id)
        answer = _answer(ask, answers)
        return await self.client.answer(id, replace(answer, by=answer.by or by, via=answer.via or via))

    async def reject_question(self, id: str, *, reason: str | None = None, by: str = "", via: str = "sdk") -> Ask:
        return await self.client.reject(id, reason=reason, by=by, via=via)

    def watch(
        self, *, after: int | None = None, session: str | None = None, run: str | None = None
    ) -> AsyncIterator[Event]:
        """What happens at the desk, from now on or after a cursor; reconnects by itself and misses nothing."""
        return self.client.events(after=after, session=session, run=run)

    def asks(self, *, state: State | None = None) -> AsyncIterator[Ask]:
        return self.client.asks(state=state)

    async def _serve(self, permissions: bool, handler: Handler) -> None:
        """Open asks first, then new ones. An ask seen twice is offered once."""
        while True:
            try:
                await self._serve_until_too_old(permissions, handler)
            except CursorTooOld:
                continue
            return

    async def _serve_until_too_old(self, permissions: bool, handler: Handler) -> None:
        offered: set[str] = set()
        newest = await self.client.cursor()
        async for ask in self.client.asks(state="asked"):
            offered.add(ask.id)
            if permissions is (ask.permission is not None):
                await self._offer(ask.id, handler)
        async for event in self.client.events(after=newest):
            ask = event.ask
            if isinstance(event, Asked) and ask.id not in offered and permissions is (ask.permission is not None):
                await self._offer(ask.id, handler)
            offered.discard(ask.id)

    async def _offer(self, id: str, handler: Handler) -> None:
        try:
            ask = await self.client.get(id)
            if ask.state != "asked":
                return
            said = handler(ask)
            answers = await said if inspect.isawaitable(said) else said
            if answers is not None:
                await self.reply_question(id, answers)
        except HandraiseError as problem:
            log.warning("the answer of a handler to ask %s was not taken: %s", id, problem.code)
        except Exception:
            log.exception("a handler failed on ask %s; it stays open", id)


def _said(answer: Answer) -> dict[str, Any]:
    """What an answer says, as the fields of a body."""
    if answer.reply is None:
        return {"answers": answer.answers, "notes": answer.notes, "message": answer.reason}
    return {
        "reply": answer.reply,
        "message": answer.reason,
        "input": answer.input,
        "scope": answer.scope,
        "patterns": answer.patterns,
    }


def _questions(
    question: str | Question | Sequence[Question] | Permission,
    options: Sequence[str | Option],
    *,
    header: str,
    multiple: bool,
    custom: bool,
) -> tuple[Question, ...]:
    if isinstance(question, Permission):
        return ()
    if isinstance(question, Question):
        return (question,)
    if not isinstance(question, str):
        return tuple(question)
    choices = tuple(option if isinstance(option, Option) else Option(option) for option in options)
    return (Question(question, choices, header=header, multiple=multiple, custom=custom),)


def _answer(ask: Ask, said: Reply) -> Answer:
    """An Answer from the shapes people return: a text, a list of texts, a list per question."""
    if isinstance(said, Answer):
        return said
    if ask.permission is not None:
        return Answer(reply=str(said))
    if isinstance(said, str):
        return Answer(answers=((said,),))
    entries = list(said or ())
    if all(isinstance(entry, str) for entry in entries):
        return Answer(answers=(tuple(str(entry) for entry in entries),))
    return Answer(answers=tuple(tuple(entry) for entry in entries))
