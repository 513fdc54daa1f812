"""What a route says of itself, beside its handler: path, scope, parameters, body, replies and refusals.

The framework's routes, the check of the scope and the OpenAPI document are all made from it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from handraise.errors import HandraiseError
from handraise.server.gate import require, require_browser
from handraise.server.http import LONGEST_WAIT
from handraise.wire.schema import Schema

__all__ = [
    "POSITION",
    "SECONDS",
    "TEXT",
    "TIME",
    "Declared",
    "Parameter",
    "Raw",
    "Reply",
    "Tag",
    "check_scope",
    "declare",
    "declared_by",
    "in_path",
    "mount",
    "one_of",
    "page_size",
    "pattern_of",
]

Handler = TypeVar("Handler", bound=Callable[..., Any])
Guard = Callable[[Scope, "Declared"], None]

_MARK = "__declared__"


class Tag(NamedTuple):
    """What routes belong together."""

    name: str
    description: str


class Raw(NamedTuple):
    """A shape that is no dataclass: its name in the document, and its schema."""

    name: str
    schema: Schema


TEXT: Schema = {"type": "string"}
TIME: Schema = {"type": "string", "format": "date-time"}
SECONDS: Schema = {"type": "number", "minimum": 0, "maximum": int(LONGEST_WAIT)}
POSITION: Schema = {"type": "integer", "minimum": 0, "maximum": 2**62}


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def page_size(most: int, *, default: int) -> Schema:
    return {"type": "integer", "minimum": 1, "maximum": most, "default": default}


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    _: KW_ONLY
    schema: Schema
    meaning: str
    place: str = "query"
    key: str = ""  # its name in the document, where another parameter is called the same
    is_required: bool = False
    example: str | None = None


def in_path(name: str, *, meaning: str, pattern: str | None = None, example: str | None = None) -> Parameter:
    schema: Schema = {"type": "string", "minLength": 1} | ({"pattern": pattern} if pattern else {})
    return Parameter(
        name,
        schema=schema,
        meaning=meaning,
        place="path",
        key=f"{name}_in_path",
        is_required=True,
        example=example,
    )


class Reply(NamedTuple):
    """`what` is a shape, a media type, or None where the reply has no body."""

    what: type | Raw | str | None
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    method: str
    path: str  # with the framework's `{name:path}` where an id may hold a slash
    id: str  # of the operation, in the document
    summary: str
    tag: Tag
    scope: str | None  # what a token needs; empty for any token, None where none is needed
    replies: Mapping[int, Reply]
    refusals: tuple[type[HandraiseError], ...] = ()  # beside those of every route: no token, or too small a scope
    body: type | Raw | None = None
    is_body_required: bool = True
    parameters: tuple[Parameter, ...] = ()
    is_for_browsers: bool = False  # no token opens it
    documented_path: str = ""  # where the framework matches two ids as one part and the handler takes them apart
    inside: tuple[type, ...] = ()  # shapes that a stream or an open object of the reply holds
    matching: type[Route] = Route  # one that matches in a way of its own


def declare(
    route: str,
    *,
    id: str,
    summary: str,
    tag: Tag,
    scope: str | None,
    replies: Mapping[int, tuple[type | Raw | str | None, str]],
    refusals: tuple[type[HandraiseError], ...] = (),
    body: type | Raw | None = None,
    is_body_required: bool = True,
    parameters: tuple[Parameter, ...] = (),
    is_for_browsers: bool = False,
    documented_path: str = "",
    inside: tuple[type, ...] = (),
    matching: type[Route] = Route,
) -> Callable[[Handler], Handler]:
    """Say what a handler does; `route` is its method and path. The handler comes back as it was: `mount` puts the check
    around it."""
    method, _, path = route.partition(" ")
    said = Declared(
        method=method,
        path=path,
        id=id,
        summary=summary,
        tag=tag,
        scope=scope,
        replies={status: Reply(*told) for status, told in replies.items()},
        refusals=refusals,
        body=body,
        is_body_required=is_body_required,
        parameters=parameters,
        is_for_browsers=is_for_browsers,
        documented_path=documented_path,
        inside=inside,
        matching=matching,
    )

    def mark(handler: Handler) -> Handler:
        setattr(handler, _MARK, (said, *getattr(handler, _MARK, ())))
        return handler

    return mark


def declared_by(kind: type) -> Iterator[Declared]:
    """What the handlers of a class declare, in the order in which they stand there."""
    for handler in vars(kind).values():
        yield from getattr(handler, _MARK, ())


def check_scope(scope: Scope, said: Declared) -> None:
    """Raises Forbidden."""
    if said.is_for_browsers:
        require_browser(scope)
    if said.scope:
        require(scope, said.scope)


def mount(handlers: object, *, guard: Guard = check_scope) -> list[Route]:
    """The framework's routes for what the methods of an object declare, each behind a check of its scope."""
    routes = []
    for name, function in vars(type(handlers)).items():
        for said in getattr(function, _MARK, ()):
            if name == "__call__":  # plain ASGI, which looks at the method itself
                routes.append(said.matching(said.path, _GuardedApp(handlers, said, guard)))
            else:
                handler = _guarded(getattr(handlers, name), said, guard)
                routes.append(said.matching(said.path, handler, methods=[said.method]))
    return routes


def _guarded(
    handler: Callable[[Request], Awaitable[Response]], said: Declared, guard: Guard
) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        guard(request.scope, said)
        return await handler(request)

    return handle


class _GuardedApp:
    def __init__(self, app: Any, said: Declared, guard: Guard) -> None:
        self._app, self._said, self._guard = app, said, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard(scope, self._said)
        await self._app(scope, receive, send)


def pattern_of(said: Declared) -> str:
    """The path as the document has it."""
    return said.documented_path or re.sub(r":path}", "}", said.path)
