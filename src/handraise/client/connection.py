"""Calls to a desk from another process: at which address, with which token, and when to try again.

What is called lies beside it, one file a resource.
"""

from __future__ import annotations

import json
import math
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from handraise.client.quick_http import QuickHttp
from handraise.client.replies import Away, Call, Http, Lost, NotProven, NotSent, error_of, read
from handraise.clock import Backoff
from handraise.config import DEFAULT_URL, Settings, load, parse_addresses
from handraise.errors import DeskBroke, DeskUnreachable, HandraiseError, Overloaded, StoreFailed
from handraise.transports import tls
from handraise.wire.plain import from_plain, to_plain

if TYPE_CHECKING:
    from handraise.client.pooled_http import PooledHttp

__all__ = ["PASSING", "PATIENCE", "Connection", "Tries", "addresses", "path", "secret"]

H = TypeVar("H", bound=Http)
T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # between attempts to reach a desk that went away
PATIENCE = 5  # attempts at desks that say they cannot right now
SILENCE = 45.0  # three heartbeats missed: the stream is dead
# What may go better at another desk, or later.
PASSING = (Lost, Overloaded, StoreFailed)
# Those of them after which we know that nothing happened.
_NOT_TAKEN = (NotSent, Overloaded, StoreFailed)


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


def path(*parts: str, **query: Any) -> str:
    """A path under `/v1`, each part escaped, with what is given of a query."""
    given = {key: value for key, value in query.items() if value is not None}
    return "/v1/" + "/".join(quote(part, safe="") for part in parts) + (f"?{urlencode(given)}" if given else "")


class Connection:
    """Once the desk was reached, calls that may be repeated outlast its restarts.

    Where several desks share a database, `url` may name them all: a call that one of them cannot take goes to the next,
    and the next calls with it. `quick` is for a command that makes a few calls and ends.
    """

    def __init__(
        self, url: str | Sequence[str] | None, *, token: str | None, settings: Settings | None, quick: bool = False
    ) -> None:
        self._settings = settings or load()
        self._given = _given(self._settings, url=url)
        self._in_turn = self._given  # the one in use first, the one that failed last at the end
        self._token = token
        self._is_quick = quick
        self.is_reached = False
        self._is_at_home = False  # the desk we reached is the one that this home wrote down
        # By what they are, whether they speak TLS, and which certificate they trust where it is one alone.
        self._https: dict[tuple[type[Http], bool, str | None], Http] = {}

    async def close(self) -> None:
        for http in self._https.values():
            await http.close()

    @property
    def urls(self) -> tuple[str, ...]:
        """Every address that may be tried, the one in use first."""
        return self._in_turn or addresses(self._settings)

    async def call(
        self,
        method: str,
        target: str,
        *,
        body: Any = None,
        content: bytes | None = None,
        silence: float = 10,
        refusals: float = PATIENCE,
        once: bool = False,
    ) -> bytes:
        """One call, repeated while a desk we had reached restarts. What we send is safe to repeat, or sent `once`.

        `silence` is how many seconds a desk may take to say something, `refusals` how often it may say that it cannot.
        `content` is a body that is JSON already.
        """
        content = json.dumps(body).encode() if body is not None else content
        tries = Tries(self, refusals=refusals)
        while True:
            url = await tries.next()
            try:
                reply = await self._calls(url).request(
                    Call(
                        method,
                        url,
                        target,
                        self._headers({"Content-Type": "application/json"}, url=url),
                        content=content,
                        silence=silence,
                        key=self._key(url),
                    )
                )
                if reply.status == 204 or (reply.status < 300 and reply.media_type == "application/json"):
                    self._reach()
                    return reply.content
                raise self._refusal(reply.status, reply.content)
            except PASSING as failure:
                if once and not isinstance(failure, _NOT_TAKEN):
                    raise DeskBroke(
                        "the desk went away before it said whether it took this; `handraise sessions` shows it"
                    ) from None
                await tries.failed(url, failure)

    async def json(self, method: str, target: str, *, body: Any = None, silence: float = 10, once: bool = False) -> Any:
        """A call whose reply is parsed; None where it has none.

        `once` is for what must not happen twice: raises DeskBroke where nobody can tell whether it happened.
        """
        answer = await self.call(method, target, body=body, silence=silence, once=once)
        return read(answer, json.loads) if answer else None

    async def get(self, kind: type[T], target: str, *, silence: float = 10) -> T:
        """What is there, as a record of this kind."""
        return self._record(kind, await self.call("GET", target, silence=silence))

    async def post(self, kind: type[T], target: str, *, body: Any, once: bool = False) -> T:
        """What the desk tells after it took this, as a record of this kind. `once` is as with `json`."""
        return self._record(kind, await self.call("POST", target, body=to_plain(body), once=once))

    @staticmethod
    def _record(kind: type[T], told: bytes) -> T:
        return read(told, lambda told: from_plain(kind, json.loads(told)))

    @asynccontextmanager
    async def stream(self, url: str, target: str, *, headers: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """A stream of events at one address, as it comes. Raises `Lost` and what the desk refuses it with."""
        call = Call("GET", url, target, self._headers(headers, url=url), silence=SILENCE, key=self._key(url))
        async with self._pool(url).stream(call) as (reply, content):
            if reply.status != 200 or reply.media_type != "text/event-stream":
                raise self._refusal(reply.status, b"".join([part async for part in content]))
            self._reach()
            yield content

    # Whom we talk to --------------------------------------------------------------------------------------

    def _calls(self, url: str) -> Http:
        if self._is_quick and "@" not in url:  # a name and a password in an address are for the library
            return self._http(QuickHttp, url)
        return self._pool(url)

    def _pool(self, url: str) -> PooledHttp:
        from handraise.client.pooled_http import PooledHttp  # for start-up time

        return self._http(PooledHttp, url)

    def _http(self, kind: type[H], url: str) -> H:
        """Connections for an address. The desk of this home is known by the one certificate that it wrote down, any
        other by the authorities that the machine trusts."""
        is_tls = url.startswith("https:")
        is_home = is_tls and url == self._settings.running_desk()
        certificate = self._settings.running_certificate() if is_home else None
        http = self._https.get((kind, is_tls, certificate))
        if http is None:
            context: ssl.SSLContext | None = None
            if is_tls:
                context = tls.trusting() if certificate is None else tls.trusting_only(certificate)
            http = self._https[kind, is_tls, certificate] = kind(context)
        assert isinstance(http, kind)
        return http

    def _key(self, url: str) -> str | None:
        """Every new connection to the desk of this home is proven before it is used. With TLS its certificate does."""
        if url.startswith("https:") or url != self._settings.running_desk():
            return None
        return self._settings.running_key()

    def _headers(self, extra: Mapping[str, str], *, url: str) -> dict[str, str]:
        token = self._token or secret(self._settings, url=url)
        return {**extra, **({"Authorization": f"Bearer {token}"} if token else {})}

    # Whether it is there ----------------------------------------------------------------------------------

    def _reach(self) -> None:
        self.is_reached = True
        if not self._is_at_home and not self._given:
            self._is_at_home = self._settings.running_desk() is not None

    def _refusal(self, status: int, body: bytes) -> HandraiseError | Away:
        """What the desk said instead. To hear that is to have reached it, unless a proxy said it."""
        error = error_of(status, body)
        if not isinstance(error, Away):
            self._reach()
        return error

    async def until_back(self, backoff: Backoff) -> None:
        """Wait while the desk of this home has left and no other has moved in: whoever else listens is not ours."""
        while self._is_at_home and self._settings.running_desk() is None:
            await backoff.wait()

    def leave(self, url: str) -> None:
        """From now on this address is tried after all the others."""
        if url in self._in_turn:
            self._in_turn = (*(other for other in self._in_turn if other != url), url)

    def give_up_unless_reached(self, failure: Exception | None) -> None:
        if self.is_reached:
            return
        tried = self._given or (self.urls[0],)
        where = " or ".join(tried)
        sentence = f"no desk answers at {where}; start one with `handraise serve`, or say where it is with --url"
        if isinstance(failure, NotProven):
            sentence = (
                f"what answers at {where} is not the desk of this home, so nothing was sent to it; "
                "stop it or start the desk again, with `handraise serve`"
            )
        elif "CERTIFICATE_VERIFY_FAILED" in str(failure):
            sentence = (
                f"the certificate of {where} is not trusted here; set SSL_CERT_FILE to a file with "
                "the authority that made it, and call the desk by a name that it is for"
            )
        raise DeskUnreachable(sentence, url=",".join(tried), cause=str(failure) or type(failure).__name__) from None


class Tries:
    """The way of one call around the addresses: each once, then a pause, then again."""

    def __init__(self, connection: Connection, *, refusals: float = math.inf) -> None:
        self._connection = connection
        self._left = refusals
        self._refused: Exception | None = None
        self._tried: set[str] = set()
        self._backoff = Backoff(FIRST_PAUSE, longest=LONGEST_PAUSE)

    async def next(self) -> str:
        """Where to call."""
        await self._connection.until_back(self._backoff)
        urls = self._connection.urls
        return next((url for url in urls if url not in self._tried), urls[0])

    async def failed(self, url: str, problem: Exception | None, *, lived: bool = False) -> None:
        """Go on to the next address, or pause where that was the last one to try.

        `lived` is a stream that went well until now. It takes the pause too, or one that breaks at every desk would
        go round without end. Raises DeskUnreachable where no desk was ever reached, and what a desk said if every
        round of them ends so.
        """
        self._connection.leave(url)
        self._tried.add(url)
        if isinstance(problem, Overloaded | StoreFailed):
            self._refused = problem
        if not lived and not self._tried.issuperset(self._connection.urls):
            return
        self._connection.give_up_unless_reached(problem)
        if self._refused is not None:
            self._left -= 1
            if self._left <= 0:
                raise self._refused
        self._tried.clear()
        self._refused = None
        await self._backoff.wait()
