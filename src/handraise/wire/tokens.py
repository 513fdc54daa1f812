"""Tokens and links for signing in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from handraise.wire.fields import Limits, Time, Url


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBody:
    name: Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    scopes: Annotated[tuple[Literal["ask", "answer", "admin"], ...], Limits(min_length=1, max_length=3)]

    EXAMPLE: ClassVar[Any] = {"name": "ci", "scopes": ["ask"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    name: str
    scopes: tuple[Literal["ask", "answer", "admin"], ...]
    created_at: Time


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    name: str
    scopes: tuple[Literal["ask", "answer", "admin"], ...]
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInLink:
    url: Url
