"""The connections of a desk: how many each kind of caller may hold, how slow one may be, and who is closed first.

There are three pools, so that no caller can take the last descriptors. Strangers have shown no valid token yet: a new
one always gets in, and the stranger that has kept the desk waiting longest goes. Tokens that may only ask share a part
of the rest, and each has a part of that. People, whose tokens may answer, have all of it. On loopback every caller has
the same address, so the pools go by token and not by address.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from handraise.errors import Overloaded
from handraise.tables.tokens import Token

__all__ = ["Connection", "Connections", "Limits", "raise_descriptors"]

log = logging.getLogger(__name__)

MEBI = 1024 * 1024
MOST_DESCRIPTORS = 65_536  # more than one process on one loop can serve
LARGE = 256 * 1024  # what a caller may leave unread without it being counted: a stream's buffer is smaller
AT_ONCE = 64  # connections accepted in one turn of the loop
SHORT = 0.1  # seconds between two attempts to accept while there are no descriptors
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one caller may cost. Sizes are bytes, times are seconds."""

    head: int = 64 * 1024  # a request line and its headers; Apache and nginx have 8 to 32 kB
    headers: int = 128  # Apache has 100
    pipelined: int = 16  # requests sent before the replies to earlier ones
    head_seconds: float = 10.0  # until a head is complete, and until a TLS handshake is
    idle_seconds: float = 75.0  # between two requests of one connection
    body_seconds: float = 10.0  # for a body, and more by its size
    reading_seconds: float = 30.0  # for a reply that its caller does not read, and more by its size
    slowest: int = 16 * 1024  # bytes a second, in both directions, once those seconds are over
    closing_seconds: float = 5.0  # in which what a refused caller still sends is thrown away
    thrown_away: int = 64 * MEBI
    heads: int = 8 * MEBI  # of all heads together that are not complete
    bodies: int = 64 * MEBI  # of all larger bodies together that are being read or worked on
    bodies_of_one: int = 16 * MEBI  # of them, those of one token that may only ask
    bodies_of_strangers: int = 4 * MEBI
    unread: int = 16 * MEBI  # of replies that one token's callers do not read
    streams: int = 100  # of one token that may only ask
    descriptors: int | None = None  # None: as many as the process may have now

    def pools(self) -> _Pools:
        descriptors = self.descriptors or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if descriptors == resource.RLIM_INFINITY:
            descriptors = MOST_DESCRIPTORS
        kept = max(64, min(descriptors // 4, 512))  # for the database, the agents and files
        usable = max(16, descriptors - kept)
        known = usable - usable // 4
        return _Pools(
            last=descriptors - kept // 2,
            strangers=usable // 4,
            known=known,
            asking=known * 3 // 4,
            asking_each=known // 2,
            streams=min(self.streams, known // 4),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pools:
    last: int  # a connection with a descriptor from here on is not kept
    strangers: int
    known: int
    asking: int
    asking_each: int
    streams: int


class Connection(Protocol):
    """What the pools know of a connection."""

    token: Token | None  # of its last request that had a valid one

    @property
    def is_busy(self) -> bool:
        """Whether a request is being worked on."""

    def drop(self) -> None:
        """Close it without a word."""

    def time_out(self) -> None:
        """Tell a caller that it is too slow, and close it."""


def raise_descriptors() -> None:
    """Let this process have as many descriptors as it may: the limit it starts with is often 256 or 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Connections:
    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._pools = self.limits.pools()
        # Each is in the order of time, with when that was.
        self._strangers: dict[Connection, None] = {}
        self._heads: dict[Connection, float] = {}
        self._idle: dict[Connection, float] = {}
        self._closing: dict[Connection, float] = {}
        # With when each is too late.
        self._sending: dict[Connection, Callable[[], float]] = {}
        self._unread: dict[Connection, tuple[float, int]] = {}
        self._head_bytes: Counter[Connection] = Counter()
        self._greeting: dict[asyncio.Task[None], None] = {}
        self._asking: Counter[str] = Counter()
        self._known = 0
        self._streams: Counter[str] = Counter()
        self._reserved: Counter[Connection] = Counter()
        self._freed = asyncio.Event()
        self._was_short = False

    # Accepting --------------------------------------------------------------------------------------------

    async def accept(
        self, listener: socket.socket, make: Callable[[], asyncio.Protocol], *, tls: ssl.SSLContext | None
    ) -> None:
        """Take in whoever calls, until cancelled. Without a descriptor left, those that matter least go first."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            for number in count(1):
                if not number % AT_ONCE:  # a socket that waits is accepted without a pause, and others want the loop
                    await asyncio.sleep(0)
                try:
                    sock, _ = await loop.sock_accept(listener)
                except OSError as problem:
                    if problem.errno in _OUT_OF_DESCRIPTORS:
                        self._say_short()
                        self._make_room()
                        await asyncio.sleep(SHORT)  # the loop must not spin on a listener that stays readable
                    continue
                if not self._has_room(sock):
                    sock.close()
                    continue
                greeting = tasks.create_task(self._greet(sock, make, tls=tls))
                self._greeting[greeting] = None
                greeting.add_done_callback(self._greeted)

    async def _greet(
        self, sock: socket.socket, make: Callable[[], asyncio.Protocol], *, tls: ssl.SSLContext | None
    ) -> None:
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        timeout = None if tls is None else self.limits.head_seconds
        try:
            await asyncio.get_running_loop().connect_accepted_socket(make, sock, ssl=tls, ssl_handshake_timeout=timeout)
        except (OSError, TimeoutError):  # it left, or speaks no TLS
            sock.close()
        except asyncio.CancelledError:
            sock.close()
            raise
        except Exception:  # one caller must not keep the others out
            log.exception("a connection could not be accepted")
            sock.close()

    def _greeted(self, task: asyncio.Task[None]) -> None:
        self._greeting.pop(task, None)

    def _has_room(self, sock: socket.socket) -> bool:
        """Whether it can be kept. The system hands out the lowest free descriptor, so its number says how many are in
        use, those of agents and files too."""
        if sock.fileno() >= self._pools.last:
            self._say_short()
            self._make_room()
            return False
        self._was_short = False
        if len(self._strangers) + len(self._greeting) >= self._pools.strangers:
            return self._drop_stranger()
        return True

    def _make_room(self) -> bool:
        return self._drop_stranger() or self._drop_idle(lambda token: not _is_person(token))

    def _drop_stranger(self) -> bool:
        """Close the one that has said nothing whole for the longest."""
        for greeting in self._greeting:
            del self._greeting[greeting]
            greeting.cancel()
            return True
        for stranger in self._strangers:
            if not stranger.is_busy:
                del self._strangers[stranger]
                stranger.drop()
                return True
        return False

    def _drop_idle(self, is_meant: Callable[[Token], bool]) -> bool:
        for connection in self._idle:
            if connection.token is not None and is_meant(connection.token):
                del self._idle[connection]
                self._forget_token(connection)
                connection.drop()
                return True
        return False

    def _say_short(self) -> None:
        if not self._was_short:
            log.warning("the desk has no descriptors left for new connections; raise `ulimit -n` if these are yours")
        self._was_short = True

    # Coming and going -------------------------------------------------------------------------------------

    def made(self, connection: Connection, *, now: float) -> None:
        self._strangers[connection] = None
        self._heads[connection] = now

    def lost(self, connection: Connection) -> None:
        self.release(connection)
        self._strangers.pop(connection, None)
        self._forget_waits(connection)
        self._closing.pop(connection, None)
        self._unread.pop(connection, None)
        self._forget_token(connection)

    def admit(self, connection: Connection, token: Token) -> None:
        """A request has this token. Raises Overloaded where it, or everybody, holds too many connections already."""
        was = connection.token
        if was is not None and was.name == token.name and _is_person(was) == _is_person(token):
            connection.token = token
            return
        pools = self._pools
        if not _is_person(token) and (
            self._asking[token.name] >= pools.asking_each or self._asking.total() >= pools.asking
        ):
            if not self._drop_idle(lambda other: other.name == token.name):
                raise Overloaded(
                    f"the token {token.name!r} holds {self._asking[token.name]} connections already; wait on one "
                    "stream instead (`GET /v1/events?worker=`), or try again later"
                )
        elif self._known >= pools.known and not (
            self._drop_idle(lambda other: not _is_person(other)) or self._drop_idle(lambda _: True)
        ):
            raise Overloaded("the desk holds as many connections as it can; try again later")
        self._forget_token(connection)
        self._strangers.pop(connection, None)
        connection.token = token
        self._known += 1
        if not _is_person(token):
            self._asking[token.name] += 1

    def _forget_token(self, connection: Connection) -> None:
        token, connection.token = connection.token, None
        if token is None:
            return
        self._known -= 1
        if not _is_person(token):
            self._asking[token.name] -= 1
            if self._asking[token.name] <= 0:
                del self._asking[token.name]

    @contextmanager
    def streaming(self, token: Token) -> Iterator[None]:
        """A stream lasts. Raises Overloaded where a token that may only ask has too many."""
        if _is_person(token):
            yield
            return
        if self._streams[token.name] >= self._pools.streams:
            raise Overloaded(
                f"the token {token.name!r} follows {self._streams[token.name]} streams already; a worker needs one"
            )
        self._streams[token.name] += 1
        try:
            yield
        finally:
            self._streams[token.name] -= 1
            if not self._streams[token.name]:
                del self._streams[token.name]

    # Heads and bodies -------------------------------------------------------------------------------------

    def heard(self, connection: Connection, *, now: float, head: int) -> None:
        """A part of a head came, so many bytes of it by now; 0 says that it is whole."""
        if not head:
            self._heads.pop(connection, None)
            self._head_bytes.pop(connection, None)
            return
        self._heads.setdefault(connection, now)
        self._head_bytes[connection] = head
        while self._head_bytes.total() > self.limits.heads:
            oldest = next(each for each in self._heads if each in self._head_bytes)
            del self._head_bytes[oldest]
            oldest.drop()

    def begin(self, connection: Connection) -> None:
        """A request is whole enough to be worked on."""
        self._idle.pop(connection, None)

    def rest(self, connection: Connection, *, now: float) -> None:
        """It was answered, and the next one may come."""
        self.release(connection)
        self._idle[connection] = now
        if connection.token is None and connection in self._strangers:
            del self._strangers[connection]
            self._strangers[connection] = None

    def send(self, connection: Connection, deadline: Callable[[], float] | None) -> None:
        """A body is under way, with when it must be there; None says that it is whole."""
        if deadline is None:
            self._sending.pop(connection, None)
        else:
            self._sending[connection] = deadline

    async def reserve(self, connection: Connection, size: int) -> None:
        """Wait for room for a larger body. It is held until the request is answered. Raises Overloaded."""
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while not self._fits(connection, size):
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            raise Overloaded("too many large bodies are sent at once; send fewer, or try again later") from None
        self._reserved[connection] += size

    def _fits(self, connection: Connection, size: int) -> bool:
        token, limits = connection.token, self.limits
        if token is not None and _is_person(token):
            return self._reserved.total() + size <= limits.bodies
        others = self._reserved.total()  # a quarter is for people
        own = sum(held for other, held in self._reserved.items() if _name(other) == _name(connection))
        most = limits.bodies_of_strangers if token is None else limits.bodies_of_one
        return own + size <= most and others + size <= limits.bodies * 3 // 4

    def release(self, connection: Connection) -> None:
        if self._reserved.pop(connection, 0):
            self._freed.set()

    # Slow callers -----------------------------------------------------------------------------------------

    def stop_reading(self, connection: Connection, *, unread: int, now: float) -> None:
        """A caller does not read what was written for it, and so many bytes wait."""
        self._unread[connection] = (now + self.limits.reading_seconds + unread / self.limits.slowest, unread)
        if unread <= LARGE:
            return
        same = [each for each, (_, size) in self._unread.items() if size > LARGE and _name(each) == _name(connection)]
        total = sum(self._unread[each][1] for each in same)
        for oldest in same:
            if total <= self.limits.unread or oldest is connection:
                return
            total -= self._unread.pop(oldest)[1]
            oldest.drop()

    def read_again(self, connection: Connection) -> None:
        self._unread.pop(connection, None)

    def close(self, connection: Connection, *, now: float) -> None:
        """It is refused, and what it still sends is thrown away for a moment."""
        self._forget_waits(connection)
        self._closing.setdefault(connection, now)

    def _forget_waits(self, connection: Connection) -> None:
        self._heads.pop(connection, None)
        self._head_bytes.pop(connection, None)
        self._idle.pop(connection, None)
        self._sending.pop(connection, None)

    async def sweep(self) -> None:
        """Close whoever is too slow, until cancelled."""
        limits = self.limits
        shortest = min(limits.head_seconds, limits.body_seconds, limits.reading_seconds, limits.closing_seconds)
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(1.0, shortest / 4))
            now = loop.time()
            for slow in _since(self._heads, now - limits.head_seconds):
                self._heads.pop(slow, None)
                _end(slow.time_out)
            for idle in _since(self._idle, now - limits.idle_seconds):
                self._idle.pop(idle, None)
                _end(idle.drop)
            for closing in _since(self._closing, now - limits.closing_seconds):
                self._closing.pop(closing, None)
                _end(closing.drop)
            for sending in [each for each, deadline in self._sending.items() if deadline() < now]:
                self._sending.pop(sending, None)
                _end(sending.time_out)
            for behind in [each for each, (deadline, _) in self._unread.items() if deadline < now]:
                self._unread.pop(behind, None)
                _end(behind.drop)


def _end(close: Callable[[], None]) -> None:
    """One connection that cannot be closed must not keep the others from being looked at."""
    try:
        close()
    except Exception:
        log.exception("a connection could not be closed")


def _since(kept: dict[Connection, float], when: float) -> list[Connection]:
    """Those that are there since then or longer; the oldest come first."""
    found = []
    for connection, since in kept.items():
        if since > when:
            break
        found.append(connection)
    return found


def _name(connection: Connection) -> str | None:
    return None if connection.token is None else connection.token.name


def _is_person(token: Token) -> bool:
    return token.may("answer")
