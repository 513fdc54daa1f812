"""Channels, and where an ask was shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from handraise.wire.fields import NO_CONTROLS, Count, Doc, Limits, Name, Time


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowingBody:
    """What `POST /v1/asks/{id}/showings` takes: what became of it in a channel, or that nothing is left to do there."""

    channel: Annotated[Name, Limits(pattern=NO_CONTROLS)]
    state: Literal["sent", "shown", "failed"] | None = None
    place: Annotated[
        Annotated[str, Limits(min_length=1, max_length=2_000)] | None,
        Doc("The channel's own word for where it is shown, to find it again."),
    ] = None
    error: Annotated[str, Limits(max_length=2_000)] | None = None
    left: Annotated[bool, Doc("It says there how it ended, or is gone: nothing is left to do.")] = False

    ALSO: ClassVar[Any] = {
        "oneOf": [
            {"required": ["state"], "properties": {"state": {"type": "string"}, "left": {"const": False}}},
            {"required": ["left"], "properties": {"left": {"const": True}, "state": {"type": "null"}}},
        ]
    }
    EXAMPLE: ClassVar[Any] = {"channel": "pager", "state": "sent", "place": "message 17"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTestBody:
    """What `POST /v1/channels/{name}/test` takes."""

    where: Annotated[
        Annotated[str, Limits(max_length=2_000)],
        Doc("In a channel that shows only what belongs to a place in it: which one."),
    ] = ""

    EXAMPLE: ClassVar[Any] = {"where": "ENG-42"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    channel: str
    state: Annotated[Literal["sent", "shown", "failed"], Doc("`shown` where the place says that somebody saw it.")]
    error: Annotated[str | None, Doc("Why it failed.")]
    at: Time

    EXAMPLE: ClassVar[Any] = {
        "channel": "linear",
        "state": "failed",
        "error": "HTTP 500",
        "at": "2026-01-01T12:00:00.000Z",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Showings:
    showings: tuple[Showing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingShowing(Showing):
    IN_PLACE: ClassVar = True

    ask: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingShowings:
    showings: tuple[WaitingShowing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    options: Annotated[Count, Doc("Choices that it shows as controls of its own; 0: people read them and write.")]
    describes: Annotated[bool, Doc("With a line under each.")]
    multiple: Annotated[bool, Doc("Several of them at once.")]
    text: Annotated[bool, Doc("Own words in place.")]
    edits: Annotated[bool, Doc("What was posted is rewritten once it is settled.")]
    needs_address: Annotated[bool, Doc("It calls the desk, which must be reachable from there.")]
    acknowledge: Annotated[float | None, Doc("Seconds within which its calls must be answered.")]
    starts_agents: Annotated[bool, Doc("So it runs where a worker is.")]
    longest: Annotated[Count, Doc("Characters of one message.")]
    identity: Annotated[
        Literal["strong", "shared"], Doc("Whether it says which person answers, or only that somebody did.")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    name: Annotated[str, Doc("As the settings call it.")]
    kind: str
    state: Annotated[
        Literal["running", "elsewhere", "broken"],
        Doc("`elsewhere` where another desk of the database runs it, or none can."),
    ]
    trouble: Annotated[str | None, Doc("Why it is broken.")]
    reach: Annotated[Reach | None, Doc("Null where it cannot be made.")]
    problems: Annotated[tuple[str, ...] | None, Doc("With `examine`: what is wrong, and what to do.")] = None

    EXAMPLE: ClassVar[Any] = {
        "name": "linear",
        "kind": "linear",
        "state": "running",
        "trouble": None,
        "reach": {
            "options": 20,
            "describes": False,
            "multiple": False,
            "text": True,
            "edits": False,
            "needs_address": True,
            "acknowledge": 5.0,
            "starts_agents": True,
            "longest": 4000,
            "identity": "strong",
        },
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    channels: tuple[Channel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    places: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTest:
    ask: Annotated[str, Doc("The id of the ask.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    received: Literal[True]
