"""HTTP calls and streams on a pool of connections, for what lives long: `Desk` in a program, channels, adapters."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import httpx2

from handraise.client.replies import Call, Lost, NotProven, NotSent, Reply
from handraise.transports import proof

__all__ = ["PooledHttp"]

CONNECT = 10.0  # seconds to reach an address
PROOF = 5.0  # seconds that a desk may take to prove itself


class PooledHttp:
    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._http = httpx2.AsyncClient(
            # Every ask that waits holds a connection; a limit would keep the answers from being told.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            trust_env=False,
            verify=False if context is None else context,  # without it there is nothing to trust
        )

    async def request(self, call: Call) -> Reply:
        """Raises NotSent, NotProven and Lost."""
        with _our_problems():
            response = await self._http.request(call.method, call.url + call.target, **_settings_of(call))
        return Reply(response.status_code, _media_type(response), response.content)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[tuple[Reply, AsyncIterator[bytes]]]:
        """The reply without its content, and the content as it comes. Raises NotSent, NotProven and Lost."""
        with _our_problems():
            async with self._http.stream(call.method, call.url + call.target, **_settings_of(call)) as response:
                yield Reply(response.status_code, _media_type(response), b""), response.aiter_bytes()

    async def close(self) -> None:
        await self._http.aclose()


def _settings_of(call: Call) -> dict[str, Any]:
    return {
        "content": call.content,
        "headers": call.headers,
        "timeout": httpx2.Timeout(CONNECT, read=call.silence, pool=None),
        "extensions": {} if call.key is None else {"trace": partial(_prove, url=call.url, key=call.key)},
    }


def _media_type(response: httpx2.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip()


class _NotProven(httpx2.ConnectError):
    """Raised inside the pool of connections, which lets it through."""


@contextmanager
def _our_problems() -> Iterator[None]:
    try:
        yield
    except _NotProven:
        raise NotProven from None
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as problem:
        raise NotSent(str(problem) or type(problem).__name__) from None
    except httpx2.TransportError as problem:
        raise Lost(str(problem) or type(problem).__name__) from None


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
        raise _NotProven("not proven")
