"""The contract of agents: what an adapter sees of the house, and what the house sees of an adapter."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from handraise.agents._modes import MODES
from handraise.asks import Answer, Ask, Handling, Mode, State

if TYPE_CHECKING:
    from starlette.routing import Route

__all__ = [
    "MODES",
    "Agent",
    "AgentSettings",
    "Asker",
    "Attachable",
    "Capabilities",
    "Cut",
    "Edit",
    "Haltable",
    "HandlingAsker",
    "Installable",
    "Left",
    "Listener",
    "Message",
    "Mode",
    "Reply",
    "Session",
    "Silent",
    "Start",
    "Watchable",
    "Wire",
]

# What would let an agent answer what it asks itself: at the desk, or in a place where people do.
SECRETS = frozenset(
    {
        "HANDRAISE_TOKEN",
        "HANDRAISE_DATABASE",
        "LINEAR_TOKEN",
        "LINEAR_CLIENT_ID",
        "LINEAR_CLIENT_SECRET",
        "LINEAR_WEBHOOK_SECRET",
    }
)


class Asker(Protocol):
    """All an adapter knows of the desk. How an ask is handled is settled where the adapter is handed its asker."""

    async def ask(self, ask: Ask, *, ordinal: bool = False) -> Answer:
        """Raise a hand and wait, however long. A rejection is an Answer; raises Withdrawn.

        Asking again under the same id joins. `ordinal` is for ids that may repeat by accident: the desk numbers them
        and joins only while the newest is open or its answer was not taken.
        """

    async def withdraw(self, id: str, *, reason: str | None = None, answer: Answer | None = None) -> Ask:
        """The agent has moved on. Raises AlreadyAnswered where somebody was faster.

        `answer` is what a person said in the agent's own terminal, where that is known: then the ask is answered or
        rejected, by `agent`, and delivered. One that does not fit is told as a withdrawal.
        """

    def delivered(self, id: str, *, error: str | None = None) -> None:
        """The agent took the answer, or `error` says why it could not."""


class HandlingAsker(Asker, Protocol):
    """An asker that can be told, for one ask, how it is handled. A broker and a client of a desk both are one."""

    async def ask(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Answer:
        """Without a `handling` the desk has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Something that was said in a session, to be kept and shown. Untrusted, like everything an agent wrote."""

    role: Literal["person", "agent", "tool", "notice"]  # a notice is ours: why a turn ended, what was resumed
    text: str
    extra: Mapping[str, Any] | None = None  # of a tool: its name and input


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One message between an agent and its adapter, as it was on the wire."""

    way: Literal["in", "out"]  # from the agent, or to it
    body: Any  # JSON as it was read or is about to be written, or a text; nobody changes it afterwards
    name: str = ""  # what the protocol calls it, such as `session/request_permission` or `question.asked`
    request: str | None = None  # the agent's own id of a request, in that request and in what answers it
    ask: str | None = None  # the ask that it is, or that it answers, where that is known by now
    is_piece: bool = False  # one of many in a row, such as a few words of a reply; a row of them is kept as one


class Listener(Protocol):
    """Who hears what happens in a session besides its asks."""

    def said(self, message: Message) -> None: ...

    def active(self) -> None:
        """A sign of life. A session that gives none for too long, and has no open ask, is stopped."""

    def seen(self, wire: Wire) -> None:
        """A message was read, or is written. Told of every one, where bytes become messages; it takes no time."""

    def became(self, ask: str, *, request: str) -> None:
        """The request that was seen under this id is this ask, and so is what answers it."""


class Silent:
    """A listener that keeps nothing."""

    def said(self, message: Message) -> None:
        return

    def active(self) -> None:
        return

    def seen(self, wire: Wire) -> None:
        return

    def became(self, ask: str, *, request: str) -> None:
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A session that a worker before us left in the middle of a turn, or between turns."""

    handle: Mapping[str, Any]  # what `Session.handle` was
    prompt: str | None = None  # what the turn that was under way had been told; None: no turn was
    asks: tuple[Ask, ...] = ()  # its asks that are open, or whose answer the agent has not taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a session is started with."""

    session: str  # the desk's id for it, which becomes `origin.session` of its asks
    cwd: str | None = None
    handling: Handling = field(default_factory=Handling)  # of its asks; the asker that comes with it keeps to that
    mode: Mode | None = None  # None leaves it to the agent's own configuration
    command: tuple[str, ...] = ()  # what to run instead of the program of the settings, where the agent takes that
    run: str | None = None
    step: str | None = None
    parent: str | None = None
    cut: Cut | None = None  # go on with this one rather than begin a new one
    listener: Listener = field(default_factory=Silent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the agent said at the end of a turn."""

    text: str


class Session(Protocol):
    """One live conversation with an agent."""

    @property
    def handle(self) -> Mapping[str, Any]:
        """What it takes to find this session again after the worker has died, as JSON. Changes between turns only."""

    async def prompt(self, text: str) -> Reply:
        """Run one turn. The agent's questions go through the asker while it runs.

        An abort cancels it. Raises AgentFailed where the turn or the agent broke, with the agent's own words.
        """

    async def go_on(self) -> Reply | None:
        """Finish the turn that `Start.cut` was in the middle of; None where there is nothing to finish.

        Where the agent still waits, its asks are joined. Where it cannot, it is told the answers once they are there.
        Raises AgentFailed where the turn is lost.
        """

    async def abort(self) -> None:
        """Stop the turn. What the agent asked and still waits for is withdrawn."""

    async def close(self) -> None:
        """End the conversation and the agent's process. What it still waits for is withdrawn."""

    async def leave(self) -> None:
        """The worker stops: let go of the agent in such a way that `Start.cut` finds it, and withdraw nothing.

        No agent goes on unattended afterwards; one that waits for a person in a process of its own may stay.
        """


@runtime_checkable
class Haltable(Protocol):
    """A session whose agent goes on after `leave`."""

    async def halt(self) -> None:
        """What it does is done elsewhere from now on: end the turn, let go of the agent, and withdraw nothing.

        Such a session is not gone on with.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an agent can do, as far as we know it or have seen it."""

    agent: str
    installed: bool
    version: str | None = None
    driven: str | None = None  # the version that was run with this release; `agents._versions` knows it
    program: str | None = None  # where it is
    questions: bool = False
    permissions: bool = False
    several_questions: bool = False
    multi_select: bool = False
    free_text: bool = False
    notes: bool = False
    edits: bool = False  # a permission may be granted with a changed input
    plans: bool = False
    subagents: bool = False  # asks of its subagents reach the desk
    resume: bool = False  # a session goes on after the worker died
    attach: bool = False  # a person's own terminal can be mirrored
    modes: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()  # the fields above that were asked of the running program
    problem: str | None = None  # why it cannot be used here, in a sentence that says what to do


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """How an agent is started here: `[agents.NAME]` of the settings, and where its adapter may keep records."""

    home: Path
    command: tuple[str, ...] = ()  # empty: the program of that name on the PATH
    env: Mapping[str, str] = field(default_factory=dict)
    handling: Handling = field(default_factory=Handling)  # that of the settings, for asks that name none
    secrets: frozenset[str] = frozenset()  # variables, beside SECRETS, that it is not started with

    def environment(self, *, without: Collection[str] = ()) -> dict[str, str]:
        """What the agent is started with: ours but for some names and for what would let it answer its own asks."""
        kept = SECRETS | self.secrets | set(without)
        ours = {name: value for name, value in os.environ.items() if name not in kept}
        return {**ours, **self.env}


class Agent(Protocol):
    """A module of this folder, or an entry point, gives one as `plugin(settings: AgentSettings) -> Agent`.

    One that runs whatever speaks its protocol has `takes_command = True`, and finds the program in `Start.command`.
    What is known of it besides lies in its folder: `modes` (`_modes.Modes`) and `versions` (`_versions.Known`) are
    attributes of the plugin, and `tools.toml` says what it calls its tools.
    """

    name: str

    def check(self, start: Start) -> None:
        """Raises SettingsError where this agent cannot be started like that, such as in a mode it does not have."""

    async def open(self, asker: Asker, start: Start) -> Session:
        """Start the agent, or go on with `start.cut`. Raises AgentFailed, SettingsError."""

    async def look(self, *, probe: bool = False) -> Capabilities:
        """What is installed here. `probe` may start the program to see for itself, and takes seconds."""

    async def close(self) -> None:
        """The worker stops, after its sessions were left or closed."""


@runtime_checkable
class Watchable(Protocol):
    """An agent that runs by itself somewhere and lets us listen.

    One that we find ourselves where nobody says an address has that address as `found_at`.
    """

    async def watch(self, asker: HandlingAsker, address: str, *, ready: Callable[[], None] = lambda: None) -> None:
        """Bring what is asked at that address to the desk and the answers back, until cancelled, across restarts.

        `ready` is called whenever it is connected and everything open there is known here.
        """


@runtime_checkable
class Left(Protocol):
    """What terminals had asked at this desk before it was started anew."""

    def asks(self, *, state: State | None = None, agent: str | None = None) -> AsyncIterator[Ask]: ...

    async def withdraw(self, id: str, *, reason: str | None = None) -> Ask: ...


@runtime_checkable
class Attachable(Protocol):
    """An agent in a person's own terminal that calls us."""

    name: str

    def routes(self) -> Sequence[Route]:
        """Mounted under `/attach/NAME`. Whoever calls may ask and nothing else; `request.scope["asker"]` is an Asker in
        their name. A connection that closes while an ask is open means that the terminal is gone."""

    async def retire(self, desk: Left) -> None:
        """The desk has started anew: withdraw what terminals had asked before and no longer wait for here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change to one file of a person's configuration, and its exact removal. Nothing is written here."""

    path: Path
    add: Callable[[bytes | None], bytes]  # from the file as it is (None: there is none); raises SettingsError
    remove: Callable[[bytes], bytes | None]  # from the file as it is by then; None: it can go
    private: bool = False  # it holds a secret that was not there before: for its owner alone
    executable: bool = False  # a program, to be run by whoever may read it


@runtime_checkable
class Installable(Protocol):
    """One that cannot be answered in the terminal and at the desk alike says so in a text `how_to_answer`."""

    def edits(self, *, url: str, token: str) -> Sequence[Edit]:
        """What attaches a person's own terminal to the desk at `url`. The token may only ask."""
