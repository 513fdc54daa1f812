"""The tables of a settings file as strict records, with what each setting means and takes beside it.

The reference page and the errors are made from here. Nothing is read here, and pydantic is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, get_type_hints
from urllib.parse import urlsplit

from handraise.chat import APIS, KEYS, Api
from handraise.people import MAY, USUALLY, May
from handraise.text.words import LANGUAGES

__all__ = [
    "DEFAULT_PORT",
    "DEFAULT_URL",
    "VARIABLES",
    "AgentTable",
    "ChannelTable",
    "ChatTable",
    "DeskTable",
    "ModelTable",
    "PersonTable",
    "Setting",
    "TerminalTable",
    "is_address",
    "settings_of",
]

DEFAULT_PORT = 4263
DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"
MOST_DAYS = 36_500
SHORTEST_LEASE, LONGEST_LEASE = 1, 3600  # seconds

VARIABLES: Mapping[str, str] = {
    "HANDRAISE_HOME": "Folder of the desk: token, database, address. Default: the platform's data folder, on Linux "
    "`~/.local/share/handraise`.",
    "HANDRAISE_URL": "Where the desk is, for commands and programs that call it; [several](../howto/several-desks.md) "
    f"have commas between them. Default: the desk of the home, else `{DEFAULT_URL}`.",
    "HANDRAISE_TOKEN": "The token to call with. For `serve`: a token that the desk accepts as admin while it runs. "
    "Default: the one in the home, which is sent only to the desk of that home.",
    "HANDRAISE_DATABASE": "`sqlite:///` and an absolute path; `sqlite:///:memory:`, which keeps nothing; or "
    "`postgresql://user@host/database`, whose tables are in the schema handraise unless `?schema=` names another. "
    "Default: `desk.db` in the home.",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What a setting means, for the reference page, and what it takes, for the error that names it."""

    meaning: str
    takes: str  # the end of a sentence: "[desk] host is …"
    fits: Callable[[Any], bool] | None = None  # what its type does not say

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema  # for start-up time: a command without a settings file needs none

        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: Any) -> Any:
        if self.fits is not None and not self.fits(value):
            raise ValueError(self.takes)
        return value


def settings_of(table: type[Any]) -> Iterator[tuple[str, Setting]]:
    """The name of each setting of a table, with what is said of it."""
    hints = get_type_hints(table, include_extras=True)
    for each in fields(table):
        for said in getattr(hints[each.name], "__metadata__", ()):
            if isinstance(said, Setting):
                yield each.name, said


def is_address(url: str) -> bool:
    """Whether it is one address of a desk."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half of an IPv6 address
        return False
    return is_one and not any(character.isspace() or character in ",;?#" for character in url)


def _between(least: float, most: float) -> Callable[[float], bool]:
    return lambda value: least <= value <= most


TRUE_OR_FALSE = "true or false"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskTable:
    """`[desk]`: who reaches the desk, and what it keeps."""

    host: Annotated[str, Setting("Address that `handraise serve` listens on.", takes="a text")] = "127.0.0.1"
    allowed_hosts: Annotated[
        tuple[str, ...],
        Setting(
            "Host names that the desk accepts besides its address and loopback; a list.",
            takes='a list of texts, as in ["desk.example.com"]',
        ),
    ] = ()
    address: Annotated[
        str | None,
        Setting(
            "The address by which people and channels open the desk from elsewhere, such as "
            "`https://desk.example.com`. The desk also accepts this host name. Default: where it listens.",
            takes="where people open it, as in https://desk.example.com",
            fits=is_address,
        ),
    ] = None
    tls_cert: Annotated[
        str | None,
        Setting(
            "A file with the desk's certificate, in PEM format, to serve https ([how to](../howto/phone.md)).",
            takes="the path of a file beside the other; give both or none",
        ),
    ] = None
    tls_key: Annotated[
        str | None,
        Setting(
            "The file with the private key of that certificate, in PEM format.",
            takes="the path of a file beside the other; give both or none",
        ),
    ] = None
    keep_days: Annotated[
        float | None,
        Setting(
            "Days after which events, settled asks, and sessions and chats that are over are "
            f"[pruned](../howto/audit.md#what-is-kept), 1 to {MOST_DAYS:,}. Without it they are kept forever. Open "
            "asks always stay.",
            takes=f"a number of days from 1 to {MOST_DAYS}",
            fits=_between(1, MOST_DAYS),
        ),
    ] = None
    lease: Annotated[
        float,
        Setting(
            "Seconds after which a silent worker counts as dead and others take over its runs, "
            f"{SHORTEST_LEASE} to {LONGEST_LEASE:,}.",
            takes=f"a number of seconds from {SHORTEST_LEASE} to {LONGEST_LEASE}; every worker of a database has the "
            "same",
            fits=_between(SHORTEST_LEASE, LONGEST_LEASE),
        ),
    ] = 15.0
    inspect: Annotated[
        bool,
        Setting(
            "Keep the raw messages of agents for a while, for the [inspector](../howto/inspector.md).",
            takes=TRUE_OR_FALSE,
        ),
    ] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalTable:
    """`[terminal]`: how you are asked."""

    full: Annotated[
        bool,
        Setting(
            "Show a card that is redrawn in place and takes keys, as `--full` does for `watch`, `start` and `run`.",
            takes=TRUE_OR_FALSE,
        ),
    ] = False
    language: Annotated[
        str | None,
        Setting(
            f"The language of the prompt: {' or '.join(f'`{name}`' for name in LANGUAGES)}. Default: the locale "
            "(`LC_ALL`, `LC_MESSAGES`, `LANG`).",
            takes=f"one of {', '.join(LANGUAGES)}",
            fits=LANGUAGES.__contains__,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTable:
    """`[agents.NAME]`: how that agent is started here."""

    command: Annotated[
        tuple[str, ...],
        Setting(
            "The program and its first arguments, a list. Default: the program of that name on the `PATH`.",
            takes='a list of texts, as in ["program", "--option"]',
        ),
    ] = ()
    env: Annotated[
        Mapping[str, str],
        Setting(
            "Variables that the program gets besides those of the desk, a table.",
            takes='a table of texts, as in { NAME = "value" }',
        ),
    ] = field(default_factory=dict)
    watch: Annotated[
        tuple[str, ...],
        Setting(
            "Addresses of running agents that the desk listens to; a list.",
            takes='a list of texts, as in ["http://127.0.0.1:4096"]',
        ),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTable:
    """`[channels.NAME]`: a place where people are reached."""

    kind: Annotated[
        str,
        Setting(
            "Which channel it is, such as `notify`. Default: the name of the table.",
            takes="the name of a channel, as in notify",
        ),
    ]
    table: Mapping[str, Any] = field(default_factory=dict)  # the rest, which that channel reads


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonTable:
    """`[people.NAME]`: somebody who answers in channels. Every other name there is that of a channel."""

    may: Annotated[
        tuple[May, ...],
        Setting(
            "What this person may decide in channels: a list of "
            f"{', '.join(f'`{name}`' for name in MAY)}. Default: all except `risky`.",
            takes=f"a list of {', '.join(MAY)}",
        ),
    ] = USUALLY
    notify: Annotated[
        tuple[str, ...],
        Setting(
            "Addresses that reach this person alone, by [notifications](../howto/phone.md#notifications); a list.",
            takes='a list of addresses, as in ["ntfys://ntfy.sh/…"]',
        ),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTable:
    """`[models.NAME]`: a model that people may talk with."""

    api: Annotated[
        Api,
        Setting(f"{' or '.join(f'`{api}`' for api in APIS)}: the API of its server.", takes=" or ".join(APIS)),
    ]
    model: Annotated[
        str, Setting("The name of the model at its server.", takes="a text, as its server calls it", fits=bool)
    ]
    url: Annotated[
        str | None,
        Setting(
            "The address of its server. Default: the server of the company that made the API.",
            takes="a text that begins with http:// or https://",
            fits=lambda url: urlsplit(url).scheme in ("http", "https"),
        ),
    ] = None
    key_env: Annotated[
        str | None,
        Setting(
            "The variable that holds the key, where the desk runs. Default: "
            f"{' or '.join(f'`{name}`' for name in KEYS.values())} at that default server, and no key anywhere else.",
            takes="the name of a variable",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTable:
    """`[chat]`: chats with those models."""

    model: Annotated[
        str | None,
        Setting(
            "The model of a chat that names no other: a name under `[models]`. Default: the first one.",
            takes="a name under [models]",
        ),
    ] = None
    instructions: Annotated[
        str, Setting("A text that every model gets, besides the description of how to ask.", takes="a text")
    ] = ""
    tools: Annotated[
        tuple[str, ...],
        Setting(
            'Functions that a model may call, a list such as `["package.module:function"]`. They run where the desk '
            "runs, and nobody is asked.",
            takes='a list of functions, as in ["package.module:function"]',
            fits=lambda tools: all(name.count(":") == 1 for name in tools),
        ),
    ] = ()
