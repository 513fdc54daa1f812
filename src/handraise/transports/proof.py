"""How the desk of a home proves itself to programs of that home, before they send it anything.

The desk writes a key beside its address into the home, where only its owner can read it. Whoever calls that address
sends a nonce and gets it back signed with the key. The address is signed too, so that another program at a port which
was the desk's cannot pass the nonce on to a desk elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

__all__ = ["LONGEST_REPLY", "PATH", "check_nonce", "is_proven", "new_key", "sign"]

PATH = "/v1/proof"
LONGEST_REPLY = 4096
_HEX = re.compile(r"[0-9a-f]{64}")
_TOLD = b'{"proof":"%s"}'


def new_key() -> str:
    """For one desk, for as long as it runs."""
    return secrets.token_hex(32)


def check_nonce(nonce: str) -> bool:
    return _HEX.fullmatch(nonce) is not None


def sign(key: str, *, url: str, nonce: str) -> str:
    """The first words keep this apart from anything else that is ever signed with the key."""
    said = f"handraise desk proof\0{url}\0{nonce}".encode()
    return hmac.new(bytes.fromhex(key), said, hashlib.sha256).hexdigest()


async def is_proven(
    key: str, *, url: str, read: Callable[[], Awaitable[bytes]], write: Callable[[bytes], Awaitable[None]]
) -> bool:
    """Whether the desk that has this key is at the other end of a new connection to this address.

    The connection can be used for requests afterwards. `read` returns what came, and nothing at the end.
    """
    if _HEX.fullmatch(key) is None:  # an empty one would be everybody's
        return False
    nonce = secrets.token_hex(32)
    head = f"GET {PATH}?nonce={nonce} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n"
    await write(head.encode("ascii"))
    expected = _TOLD % sign(key, url=url, nonce=nonce).encode()
    reply = b""
    while len(reply) < LONGEST_REPLY:
        data = await read()
        reply += data
        told, end, body = reply.partition(b"\r\n\r\n")
        if not data or not told.startswith(b"HTTP/1.1 200 "[: len(told)]):
            return False
        if end and len(body) >= len(expected):
            return hmac.compare_digest(body, expected)
        if end and not expected.startswith(body[:1]):
            return False
    return False
