"""The contract of channels: a way to reach people, and all it sees of the house."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from handraise.asks import Answer, Ask, Handling, State
from handraise.errors import HandraiseError
from handraise.events import Event
from handraise.people import Identity, People

if TYPE_CHECKING:  # commands that only show an ask load nothing of it
    from handraise.clock import Clock
    from handraise.stores import Database
    from handraise.tables.sessions import NewSession, SessionRecord, Sessions

__all__ = [
    "BadCall",
    "Called",
    "Channel",
    "ChannelSettings",
    "Examinable",
    "Hands",
    "Inbox",
    "Postbox",
    "Reach",
    "SendFailed",
    "Showing",
    "Testable",
]

Showing: TypeAlias = Literal["sent", "shown", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a place can do, so that nobody needs to know which place it is."""

    options: int = 0  # choices that it shows as controls of its own; 0: people read them and write
    describes: bool = False  # with a line under each
    multiple: bool = False  # several of them at once
    text: bool = False  # own words in place
    edits: bool = False  # what was posted is rewritten once it is settled
    needs_address: bool = False  # it calls us, so the desk must be reachable from there
    acknowledge: float | None = None  # seconds within which its calls must be answered
    starts_agents: bool = False  # so it runs where a worker is
    longest: int = 4_000  # characters of one message
    identity: Identity = "shared"  # whether it says which person answers, or only that somebody did


class SendFailed(Exception):
    """The place did not take it. `again` is in how many seconds it may; None: not at all, however often it is tried."""

    def __init__(self, reason: str, *, again: float | None = 1.0) -> None:
        super().__init__(reason)
        self.again = again


class Inbox(Protocol):
    """What a channel sees of the desk. A broker and a client of a desk both are one."""

    def asks(
        self,
        *,
        state: State | None = None,
        agent: str | None = None,
        session: str | None = None,
        run: str | None = None,
    ) -> AsyncIterator[Ask]:
        """Every ask that fits, oldest first."""

    def events(
        self,
        *,
        after: int | None = None,
        session: str | None = None,
        run: str | None = None,
        worker: str | None = None,
    ) -> AsyncIterator[Event]:
        """What happens from now on, or after a cursor: every event once, in order."""

    async def cursor(self) -> int:
        """Where events stand now. Listing first and following from here misses nothing in between."""

    async def get(self, id: str) -> Ask:
        """Raises AskNotFound."""

    async def answer(self, id: str, answer: Answer) -> Ask:
        """The first answer counts; a different second one gets AlreadyAnswered.

        Raises AnswerDoesNotFit, and the ask stays open; AskWithdrawn.
        """

    async def reject(self, id: str, *, reason: str | None = None, by: str = "", via: str = "") -> Ask:
        """Refuse it, finally. Raises AlreadyAnswered, AskWithdrawn."""

    async def keep_waiting(self, id: str) -> Ask:
        """Move the deadline by the time the ask was given."""


class Postbox(Inbox, Protocol):
    """The same for a channel that posts: links to answer with, and the record of what was shown where."""

    async def link(self, id: str, *, by: str, via: str) -> str:
        """An address at which whoever opens it may answer this one ask, once, in the name of `by`."""

    async def showed(
        self, id: str, state: Showing, *, channel: str, place: str | None = None, error: str | None = None
    ) -> None:
        """What became of showing an ask there. `place` is the channel's own word for where, to find it again."""

    async def places(self, channel: str) -> Mapping[str, str]:
        """Where that channel has shown what, by ask, and has not said that it is over (see `left`)."""

    async def left(self, id: str, *, channel: str) -> None:
        """What was shown there says how it ended, or is gone: nothing is left to do."""


class Channel(Protocol):
    """A module of this folder, or an entry point, gives one as `plugin(settings) -> Channel`.

    Where `plugin` is a class in which `reach` stands, the desk knows it also where the settings are wrong, and says of
    each ask that it was not shown there.
    """

    name: str  # as the settings call it
    reach: Reach

    async def run(self, inbox: Postbox) -> None:
        """Show what is asked and bring back what people say, until cancelled.

        `by` of an answer is what the place vouches for: the id it knows the person by. The desk looks up whose that is,
        and refuses (Forbidden) whoever may not decide this.
        """


class BadCall(HandraiseError):
    """Who calls is not the place it says it is, or says something that cannot be used."""

    code = "bad_call"
    status = 401


@runtime_checkable
class Called(Protocol):
    """A channel whose place calls us: `POST /webhooks/NAME` ends here, at any desk of the database."""

    async def receive(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Prove who calls and write it down; the work is done afterwards by whoever runs the channel.

        Raises BadCall: nothing but the bytes and these headers (in small letters) is known of the caller.
        """


@runtime_checkable
class Testable(Protocol):
    """A channel that shows only what belongs to a place in it, and so must be told where to show a test."""

    async def place_for_test(self, where: str) -> str:
        """The session that the test's question is to come from, so that it is shown there. Raises SettingsError."""


@runtime_checkable
class Examinable(Protocol):
    """A channel that can say what is wrong with its settings, or with its place, before anything is asked."""

    async def examine(self) -> list[str]:
        """A sentence for each thing that is wrong, which says what to do; none where all is well."""


class Hands(Protocol):
    """What a channel that starts agents needs of the worker beside it."""

    sessions: Sessions

    async def create(self, wanted: NewSession) -> SessionRecord:
        """Start a session. Raises SettingsError, PluginNotFound; what goes wrong later is in its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """What a channel is made with: its table of the settings, and where it finds the house."""

    name: str  # NAME of `[channels.NAME]`
    table: Mapping[str, Any] = field(default_factory=dict)  # what stands there, but for `kind`
    environ: Mapping[str, str] = field(default_factory=dict)  # secrets are named in the table and found here
    people: People
    address: str = ""  # where people open the desk
    home: Path
    database: Database
    clock: Clock
    handling: Handling = field(default_factory=Handling)  # how the desk decides where nobody says otherwise
    hands: Hands | None = None  # None where no agent is started by this process
