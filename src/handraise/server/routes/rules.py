"""Rules over HTTP: those that hold, those that are kept here, and what they would decide."""

from __future__ import annotations

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handraise.asks import Origin
from handraise.broker import Broker
from handraise.rules.book import call_of
from handraise.server.gate import require
from handraise.server.http import query, read_body
from handraise.server.routes.api import json_response
from handraise.wire import RuleBody, RuleTestBody, parse

__all__ = ["routes"]


def routes(broker: Broker) -> list[Route]:
    book = broker.rules

    async def listed(request: Request) -> Response:
        require(request.scope, "admin")
        cwd = query(request.scope["query_string"], "cwd").get("cwd")
        return json_response(await book.listed(Origin(agent="any", session="any", cwd=cwd)))

    async def add(request: Request) -> Response:
        token = require(request.scope, "admin")
        raw = await read_body(request.scope, request.receive)
        body = parse(RuleBody, raw)
        given = from_json(raw)  # with what we do not know: a rule that was misspelled is not to mean something else
        given.pop("first", None)
        kept = await book.add(given, at=broker.clock.now(), by=token.name, first=body.first)
        return json_response(kept.told(), status=201)

    async def remove(request: Request) -> Response:
        require(request.scope, "admin")
        return json_response((await book.remove(request.path_params["id"])).told())

    async def test(request: Request) -> Response:
        require(request.scope, "admin")
        body = parse(RuleTestBody, await read_body(request.scope, request.receive))
        call = call_of(body.tool, body.arguments, agent=body.agent, cwd=body.cwd, subagent=body.context == "subagent")
        return json_response(await book.tested(call))

    return [
        Route("/v1/rules", listed),
        Route("/v1/rules", add, methods=["POST"]),
        Route("/v1/rules/test", test, methods=["POST"]),
        Route("/v1/rules/{id}", remove, methods=["DELETE"]),
    ]
