"""`/v1/channels`: the places where people are reached, and a test of each. `/webhooks/NAME`: where a place calls us."""

from __future__ import annotations

import secrets

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handraise.asks import Ask, Handling, Option, Origin, Question
from handraise.asks.places import on_this_machine
from handraise.broker import Broker
from handraise.channels import Testable
from handraise.errors import SettingsError
from handraise.server.gate import require
from handraise.server.http import RouteNotFound, query, read_body
from handraise.server.routes.api import json_response
from handraise.switchboard import Channels
from handraise.wire import BadBody, ChannelTestBody, parse

__all__ = ["AGENT", "routes"]

AGENT = "handraise"  # who asks in a test
MOST_LISTED = 1_000  # showings of what waits
MOST_BYTES = 1024 * 1024  # of what a place sends, before anybody knows who sent it
TEST_FOR = 600.0  # seconds that a test waits for somebody
TEST = Question(
    "This is a test of the desk. Does it reach you?",
    (Option("Yes", description="and what I choose gets back"), Option("No", description="something is wrong")),
    header="Test",
)


def routes(broker: Broker, channels: Channels) -> list[Route]:
    desk = _Desk(broker, channels)
    return [
        Route("/v1/channels", desk.list),
        Route("/v1/channels/{name}/places", desk.places),
        Route("/v1/showings", desk.showings),
        Route("/v1/channels/{name}/test", desk.test, methods=["POST"]),
        Route("/webhooks/{name}", desk.called, methods=["POST"]),
    ]


class _Desk:
    def __init__(self, broker: Broker, channels: Channels) -> None:
        self._broker = broker
        self._channels = channels

    async def list(self, request: Request) -> Response:
        """With `?examine=1` also what each finds wrong with itself, which may ask its place."""
        require(request.scope, "answer")
        examine = query(request.scope["query_string"], "examine").get("examine", "0")
        if examine not in ("0", "1"):
            raise BadBody("examine is 0 or 1")
        listed = [state.told() for state in self._channels.states()]
        if examine == "1":
            require(request.scope, "admin")
            problems = await self._channels.examine()
            listed = [{**told, "problems": problems.get(told["name"], [])} for told in listed]
        return json_response({"channels": listed})

    async def places(self, request: Request) -> Response:
        """For a channel that is a program of its own: what it has shown, and where."""
        require(request.scope, "answer")
        return json_response({"places": dict(await self._broker.places(request.path_params["name"]))})

    async def showings(self, request: Request) -> Response:
        """Of everything that waits."""
        require(request.scope, "answer")
        found = await self._broker.showings.waiting(limit=MOST_LISTED)
        return json_response({"showings": [{"ask": ask, **record.told()} for ask, record in found]})

    async def test(self, request: Request) -> Response:
        """Ask a question that this channel shows, like any other. What becomes of it is read from the ask."""
        require(request.scope, "admin")
        body = parse(ChannelTestBody, await read_body(request.scope, request.receive))
        name = request.path_params["name"]
        channel = self._channels[name]
        if channel is None:
            trouble = next((state.trouble for state in self._channels.states() if state.name == name), None)
            if trouble is not None:
                raise SettingsError(f"the channel {name} cannot be used: {trouble}")
            raise RouteNotFound(f"there is no channel {name!r} here; `handraise channels` lists them")
        id = f"test_{secrets.token_hex(8)}"
        session = await channel.place_for_test(body.where) if isinstance(channel, Testable) else id
        ask = Ask(id=id, questions=(TEST,), origin=Origin(agent=AGENT, session=session))
        handling = Handling(question_timeout=TEST_FOR, on_timeout="reject")
        opened = await self._broker.open(on_this_machine(ask), handling=handling)
        return json_response({"ask": opened.stored.id}, status=201)

    async def called(self, request: Request) -> Response:
        """No token: the channel proves who calls, from these bytes. Answered once it is written down."""
        name = request.path_params["name"]
        self._channels.check_called(name)  # before anything of a stranger is read
        body = await read_body(request.scope, request.receive, most=MOST_BYTES)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.scope["headers"]}
        await self._channels.receive(name, body, headers)
        return json_response({"received": True})
