"""`/v1/channels`: the places where people are reached, and a test of each. `/webhooks/NAME`: where a place calls us."""

from __future__ import annotations

import secrets

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handraise.asks import Ask, Handling, Option, Origin, Question
from handraise.asks.places import on_this_machine
from handraise.broker import Broker
from handraise.channels import BadCall, Testable
from handraise.errors import SettingsError, StoreFailed
from handraise.server.declare import Parameter, declare, in_path, mount, one_of
from handraise.server.gate import require
from handraise.server.http import RouteNotFound, TooLarge, query, read_body
from handraise.server.routes import RouteGroup
from handraise.server.routes.api import json_response
from handraise.server.routes.asks import CHANNELS
from handraise.switchboard import Channels
from handraise.wire import BadBody, parse
from handraise.wire import channels as shapes
from handraise.wire.channels import ChannelTestBody
from handraise.wire.plain import shape_of

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

EXAMINE = Parameter(
    "examine",
    schema=one_of("0", "1"),
    meaning="1 lets each channel look what is wrong with it, which may ask its place and takes the scope `admin`.",
)
CHANNEL_IN_PATH = in_path("channel", meaning="The name of a channel, as the settings have it.", example="linear")


def routes(broker: Broker, channels: Channels) -> list[Route]:
    return mount(ChannelRoutes(broker, channels))


class ChannelRoutes:
    def __init__(self, broker: Broker, channels: Channels) -> None:
        self._broker = broker
        self._channels = channels

    @declare(
        "GET /v1/channels",
        id="list_channels",
        summary="The channels of this desk, what each can do, and how it is",
        tag=CHANNELS,
        scope="answer",
        parameters=(EXAMINE,),
        replies={200: (shapes.Channels, "In the order of the settings.")},
        refusals=(BadBody,),
    )
    async def list(self, request: Request) -> Response:
        """With `?examine=1` also what each finds wrong with itself, which may ask its place."""
        examine = query(request.scope["query_string"], "examine").get("examine", "0")
        if examine not in ("0", "1"):
            raise BadBody("examine is 0 or 1")
        if examine == "1":
            require(request.scope, "admin")
            problems = await self._channels.examine()
            listed = [state.to_shape(problems=problems.get(state.name, [])) for state in self._channels.states()]
        else:
            listed = [state.to_shape() for state in self._channels.states()]
        return json_response(shapes.Channels(channels=tuple(listed)))

    @declare(
        "GET /v1/channels/{channel}/places",
        id="list_what_a_channel_shows",
        summary="For a channel that is a program of its own: what it has shown and not taken back, and where",
        tag=CHANNELS,
        scope="answer",
        parameters=(CHANNEL_IN_PATH,),
        replies={200: (shapes.Places, "By ask; none for a channel that nobody knows.")},
        refusals=(RouteNotFound,),
    )
    async def places(self, request: Request) -> Response:
        """For a channel that is a program of its own: what it has shown, and where."""
        return json_response(shapes.Places(places=dict(await self._broker.places(request.path_params["channel"]))))

    @declare(
        "GET /v1/showings",
        id="list_showings",
        summary="Where everything that waits was sent or shown, and where that failed, the oldest ask first",
        tag=CHANNELS,
        scope="answer",
        replies={200: (shapes.WaitingShowings, "At most 1000 of them.")},
    )
    async def showings(self, request: Request) -> Response:
        """Of everything that waits."""
        found = await self._broker.showings.waiting(limit=MOST_LISTED)
        told = (shape_of(shapes.WaitingShowing, record.to_shape(), ask=ask) for ask, record in found)
        return json_response(shapes.WaitingShowings(showings=tuple(told)))

    @declare(
        "POST /v1/channels/{channel}/test",
        id="test_a_channel",
        summary="Ask a question that this channel shows, like any other. What becomes of it is read from the ask",
        tag=CHANNELS,
        scope="admin",
        parameters=(CHANNEL_IN_PATH,),
        body=ChannelTestBody,
        is_body_required=False,
        replies={201: (shapes.ChannelTest, "It waits for ten minutes.")},
        refusals=(BadBody, TooLarge, RouteNotFound, SettingsError, StoreFailed),
    )
    async def test(self, request: Request) -> Response:
        """Ask a question that this channel shows, like any other. What becomes of it is read from the ask."""
        body = parse(ChannelTestBody, await read_body(request.scope, request.receive))
        name = request.path_params["channel"]
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
        return json_response(shapes.ChannelTest(ask=opened.stored.id), status=201)

    @declare(
        "POST /webhooks/{channel}",
        id="call_a_channel",
        summary="Where the place of a channel calls us. The channel finds out from body and headers who calls; "
        "what it says is done afterwards",
        tag=CHANNELS,
        scope=None,
        parameters=(CHANNEL_IN_PATH,),
        replies={
            200: (shapes.Received, "It is written down."),
            401: (BadCall, "Nobody here is called by that place, or it cannot prove who it is."),
        },
        refusals=(TooLarge, StoreFailed),
    )
    async def called(self, request: Request) -> Response:
        """No token: the channel proves who calls, from these bytes. Answered once it is written down."""
        name = request.path_params["channel"]
        self._channels.check_called(name)  # before anything of a stranger is read
        body = await read_body(request.scope, request.receive, most=MOST_BYTES)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.scope["headers"]}
        await self._channels.receive(name, body, headers)
        return json_response(shapes.Received(received=True))


plugin = RouteGroup(
    handlers=(ChannelRoutes,),
    routes=lambda desk: () if desk.channels is None else routes(desk.broker, desk.channels),
)
