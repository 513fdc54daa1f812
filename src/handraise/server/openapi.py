"""The OpenAPI document, made of what the routes declare and of the shapes that they take and tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from handraise.asks import Ask
from handraise.errors import Forbidden, HandraiseError, Unauthorized
from handraise.plugins import load, names
from handraise.server.declare import Declared, Parameter, Raw, Reply, Tag, declared_by, pattern_of
from handraise.server.refusals import name_of, refusal_of, refusal_schema
from handraise.server.routes import RouteGroup
from handraise.wire.schema import Schema, body_schemas, reference, reply_schema, shapes_in

__all__ = ["document", "route_groups"]

# In which tags are read; those of strangers come behind them.
_TAGS = (
    *("asks", "events", "channels", "sessions", "runs", "chats", "rules", "trust", "acp", "access", "audit", "desk"),
    *("web", "mcp", "opencode", "runbook"),
)


def route_groups(family: str) -> list[RouteGroup]:
    """Every group of `server.routes` or `server.compat` that is installed, by name."""
    return [load(family, name) for name in names(family)]


@cache
def document() -> dict[str, Any]:
    """OpenAPI 3.1. Do not change what you get: everybody gets the same."""
    groups = (*route_groups("server.routes"), *route_groups("server.compat"))
    routes = [said for group in groups for kind in group.handlers for said in declared_by(kind)]
    tags = {said.tag.name: said.tag for said in routes}
    routes.sort(key=lambda said: _place(said.tag))
    paths: dict[str, Any] = {}
    for said in routes:
        paths.setdefault(pattern_of(said), {})[said.method.lower()] = _operation(said)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "handraise",
            "version": version("handraise"),
            "summary": "The one desk where every coding agent's raised hand arrives.",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [tag._asdict() for tag in sorted(tags.values(), key=_place)],
        "paths": paths,
        "components": {
            "schemas": _schemas(routes),
            "parameters": {_key(each): _parameter(each) for said in routes for each in said.parameters},
            "securitySchemes": _SECURITY,
        },
    }


def _place(tag: Tag) -> int:
    return _TAGS.index(tag.name) if tag.name in _TAGS else len(_TAGS)


# Routes -----------------------------------------------------------------------------------------------------


def _operation(said: Declared) -> Schema:
    wanted = [said.scope] if said.scope else []
    enough = _TOGETHER[-1:] if said.is_for_browsers else _TOGETHER
    operation: Schema = {
        "operationId": said.id,
        "summary": said.summary,
        "tags": [said.tag.name],
        "security": [] if said.scope is None else [dict.fromkeys(together, wanted) for together in enough],
        "responses": {str(status): _reply(reply) for status, reply in said.replies.items()},
    }
    if said.parameters:
        operation["parameters"] = [{"$ref": f"#/components/parameters/{_key(each)}"} for each in said.parameters]
    if said.body is not None:
        operation["requestBody"] = {
            "required": said.is_body_required,
            "content": {"application/json": {"schema": _named(said.body)}},
        }
    for status, kinds in _by_status(_refusals(said)).items():
        operation["responses"].setdefault(str(status), _refusal(kinds))
    return operation


def _reply(reply: Reply) -> Schema:
    told: Schema = {"description": reply.meaning}
    if isinstance(reply.what, str):
        kind = "object" if reply.what.endswith("+json") else "string"
        told["content"] = {reply.what: {"schema": {"type": kind}}}
        if reply.what in _TEXTS:
            told["content"][reply.what]["example"] = _TEXTS[reply.what]
    elif reply.what is not None:
        told["content"] = {"application/json": {"schema": _named(reply.what)}}
    return told


def _refusals(said: Declared) -> tuple[type[HandraiseError], ...]:
    always: tuple[type[HandraiseError], ...] = (Forbidden,) if said.scope is None else (Unauthorized, Forbidden)
    return (*always, *said.refusals)


def _refusal(kinds: list[type[HandraiseError]]) -> Schema:
    refs = [reference(name_of(kind)) for kind in kinds]
    return {
        "description": " Or: ".join(refusal_of(kind).meaning for kind in kinds),
        "content": {"application/json": {"schema": refs[0] if len(refs) == 1 else {"oneOf": refs}}},
    }


def _by_status(kinds: Iterable[type[HandraiseError]]) -> dict[int, list[type[HandraiseError]]]:
    found: dict[int, list[type[HandraiseError]]] = {}
    for kind in kinds:
        found.setdefault(kind.status, []).append(kind)
    return dict(sorted(found.items()))


def _named(what: type | Raw) -> Schema:
    if isinstance(what, Raw):
        return reference(what.name)
    return reference(name_of(what) if issubclass(what, HandraiseError) else what.__name__)


def _key(parameter: Parameter) -> str:
    return parameter.key or parameter.name


def _parameter(parameter: Parameter) -> Schema:
    told = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.is_required,
        "schema": parameter.schema,
        "description": parameter.meaning,
    }
    return told | ({"example": parameter.example} if parameter.example else {})


# Shapes -----------------------------------------------------------------------------------------------------


def _schemas(routes: Iterable[Declared]) -> dict[str, Schema]:
    bodies: dict[type, None] = {Ask: None}
    told: dict[type, None] = {}
    raw: dict[str, Schema] = {}
    refused: dict[type[HandraiseError], None] = {}
    for said in routes:
        refused |= dict.fromkeys(_refusals(said))
        for what in (said.body, *said.inside, *(reply.what for reply in said.replies.values())):
            match what:
                case Raw():
                    raw[what.name] = what.schema
                case type() if issubclass(what, HandraiseError):
                    refused[what] = None
                case type() if what is said.body and what.__name__.endswith("Body"):
                    bodies[what] = None
                case type():
                    told |= dict.fromkeys(_held(what))
    taken = body_schemas(*bodies)
    shapes = {kind.__name__: reply_schema(kind) for kind in told if kind.__name__ not in taken}
    refusals = {name_of(kind): refusal_schema(kind) for kind in refused}
    return {**taken, **dict(sorted((shapes | raw).items())), **dict(sorted(refusals.items()))}


def _held(what: type) -> Iterator[type]:
    """The shapes of a reply that have a name of their own in the document. What an ask holds comes with the bodies."""
    for kind in shapes_in(what):
        if is_dataclass(kind) and "IN_PLACE" not in kind.__dict__ and kind.__module__ != Ask.__module__:
            yield kind


_SECURITY: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "`handraise token add` makes one."},
    "basic": {"type": "http", "scheme": "basic", "description": "Any user name, the token as password."},
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": "handraise-4263",
        "description": "One half of a browser's session, set by signing in. The number is the port of the desk. Alone "
        "it opens the files of the web app.",
    },
    "session": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Handraise-Session",
        "description": "The other half, which the web app keeps for its origin. Neither half is a token.",
    },
}
_TOGETHER = (("bearer",), ("basic",), ("cookie", "session"))  # each of these is enough; the last is a browser
_TEXTS = {
    "text/event-stream": "id: 2\nevent: answered\n"
    'data: {"type":"answered","at":"2026-01-01T12:00:42.000Z","ask":{…}}\n\n',
    "application/openmetrics-text": "# TYPE handraise_asks_open gauge\nhandraise_asks_open 1\n# EOF\n",
}

_ABOUT = """\
An agent raises a hand with `POST /v1/asks`; policy or people answer; the answer goes back. Asking again under the same
id joins, so everything is safe to repeat. Times are RFC 3339 in UTC with milliseconds, durations seconds. Fields we do
not know are kept in `extra` of the record they came with.

Every route but `/healthz` and the sign-in page wants a token. Its scopes: `ask` raises, sees and withdraws its own asks
and reports delivery; `answer` lists, follows events, reads sessions and runs, answers, rejects, keeps waiting and gives
to checkpoints; `admin` does everything, also start and steer sessions and runs, and talk in chats. Where a route needs
a scope it is named with the security scheme. What agents in people's own terminals call, under /attach, is theirs and
no part of this document.

Refusals are `{"error": code, "message": one sentence, …facts}`; a wrong method is 405 `method_not_allowed`, an unknown
path 404 `not_found`."""
