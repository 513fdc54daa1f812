"""Rules over HTTP: those that hold, those that are kept here, and what they would decide."""

from __future__ import annotations

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handraise.asks import Origin
from handraise.broker import Broker
from handraise.errors import RuleNotFound, SettingsError, StoreFailed
from handraise.rules.book import call_of
from handraise.server.declare import TEXT, Parameter, Tag, declare, in_path, mount
from handraise.server.gate import token_of
from handraise.server.http import RouteNotFound, TooLarge, query, read_body
from handraise.server.routes import RouteGroup
from handraise.server.routes.api import json_response
from handraise.wire import BadBody, parse
from handraise.wire.rules import Rule, RuleBody, Rules, RuleTest, RuleTestBody

__all__ = ["routes"]

RULES = Tag("rules", "What decides about permissions before a person is asked.")
CWD = Parameter("cwd", schema=TEXT, meaning="The folder that an agent works in.")
RULE_IN_PATH = in_path("rule", meaning="The id of a rule that the desk keeps.", example="1f3a9c2e")


def routes(broker: Broker) -> list[Route]:
    return mount(RuleRoutes(broker))


class RuleRoutes:
    def __init__(self, broker: Broker) -> None:
        self._book = broker.rules
        self._clock = broker.clock

    @declare(
        "GET /v1/rules",
        id="list_rules",
        summary="The rules for permissions that hold for asks from a folder, the first one first",
        tag=RULES,
        scope="admin",
        parameters=(CWD,),
        replies={200: (Rules, "Those of the project, of the user, of the desk, and of its sessions, in this order.")},
        refusals=(BadBody,),
    )
    async def list(self, request: Request) -> Response:
        cwd = query(request.scope["query_string"], "cwd").get("cwd")
        return json_response(await self._book.listed(Origin(agent="any", session="any", cwd=cwd)))

    @declare(
        "POST /v1/rules",
        id="add_a_rule",
        summary="Keep a rule at the desk. It counts from the next ask on",
        tag=RULES,
        scope="admin",
        body=RuleBody,
        replies={201: (Rule, "The rule, with its id.")},
        refusals=(BadBody, TooLarge, SettingsError, StoreFailed),
    )
    async def add(self, request: Request) -> Response:
        raw = await read_body(request.scope, request.receive)
        body = parse(RuleBody, raw)
        given = from_json(raw)  # with what we do not know: a rule that was misspelled is not to mean something else
        given.pop("first", None)
        by = token_of(request.scope).name
        kept = await self._book.add(given, at=self._clock.now(), by=by, first=body.first)
        return json_response(kept.told(), status=201)

    @declare(
        "POST /v1/rules/test",
        id="test_the_rules",
        summary="What the rules would decide, and why. Nothing is asked, and no program that decides is run",
        tag=RULES,
        scope="admin",
        body=RuleTestBody,
        replies={200: (RuleTest, "What would be decided.")},
        refusals=(BadBody, TooLarge),
    )
    async def test(self, request: Request) -> Response:
        body = parse(RuleTestBody, await read_body(request.scope, request.receive))
        call = call_of(body.tool, body.arguments, agent=body.agent, cwd=body.cwd, subagent=body.context == "subagent")
        return json_response(await self._book.tested(call))

    @declare(
        "DELETE /v1/rules/{rule}",
        id="remove_a_rule",
        summary="Forget a rule that the desk keeps",
        tag=RULES,
        scope="admin",
        parameters=(RULE_IN_PATH,),
        replies={200: (Rule, "The rule that was removed.")},
        refusals=(RouteNotFound, RuleNotFound, StoreFailed),
    )
    async def remove(self, request: Request) -> Response:
        return json_response((await self._book.remove(request.path_params["rule"])).told())


plugin = RouteGroup(handlers=(RuleRoutes,), routes=lambda desk: routes(desk.broker))
