"""Settings from the environment, the user's config file and the project's `handraise.toml`, as frozen records."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from handraise.asks import LONGEST_NAME, Handling
from handraise.chat import APIS, ChatSettings, ModelTable
from handraise.errors import SettingsError
from handraise.people import MAY, USUALLY, Person
from handraise.text.words import LANGUAGES
from handraise.transports.files import find_project, parse_toml, read_settings

# Rules, policies, trust and our JSON are imported where there is a file to read: a command without one starts sooner.
if TYPE_CHECKING:
    from handraise.trust import Part

__all__ = [
    "DEFAULT_PORT",
    "DEFAULT_URL",
    "AgentTable",
    "ChannelTable",
    "Settings",
    "load",
    "load_elsewhere",
    "parse_addresses",
    "warn_of_untrusted",
]

log = logging.getLogger(__name__)

DEFAULT_PORT = 4263
MOST_DAYS = 36_500
MOST_AGENTS = 1_000
SHORTEST_LEASE, LONGEST_LEASE = 1, 3600  # seconds
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTable:
    """`[agents.NAME]`: how that agent is started here."""

    command: tuple[str, ...] = ()  # empty: the program of that name on the PATH
    env: Mapping[str, str] = field(default_factory=dict)
    watch: tuple[str, ...] = ()  # addresses where it already runs and is to be listened to


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTable:
    """`[channels.NAME]`: a place where people are reached."""

    kind: str  # which channel it is; NAME where that is not said
    table: Mapping[str, Any] = field(default_factory=dict)  # the rest, which that channel reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    home: Path
    url: str | None = None  # one address or several with commas; None leaves it to `desk.json` and the default
    token: str | None = None
    database: str = ""
    handling: Handling = field(default_factory=Handling)
    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    address: str | None = None  # where people open the desk from elsewhere; None: where it listens
    tls_cert: Path | None = None  # with `tls_key`, what the desk shows to those who call it by https
    tls_key: Path | None = None
    keep: timedelta | None = None  # how long events and settled asks are kept; None is for ever
    lease: float = 15.0  # seconds after which a worker that says nothing counts as dead, and others take over its runs
    inspect: bool = True  # keep the raw messages of agents for a while, so that people can look at them
    full: bool = False  # the terminal redraws a card in place, where line mode prints it
    language: str | None = None  # what the terminal speaks; None leaves it to its locale
    agents: Mapping[str, AgentTable] = field(default_factory=dict)
    chat: ChatSettings = field(default_factory=ChatSettings)
    channels: Mapping[str, ChannelTable] = field(default_factory=dict)
    people: Mapping[str, Person] = field(default_factory=dict)
    user: Path | None = None  # where the user's own config.toml is, or would be
    project: Path | None = None  # the handraise.toml that was read
    parts: tuple[Part, ...] = ()  # what that file would make happen beyond forbidding something
    untrusted: tuple[Part, ...] = ()  # those of them that are left out of these settings, since nobody trusted them

    @property
    def token_file(self) -> Path:
        return self.home / "token"

    @property
    def desk_file(self) -> Path:
        return self.home / "desk.json"

    @property
    def trust_file(self) -> Path:
        return self.home / "trusted.json"

    def running_desk(self) -> str | None:
        """The address that the desk of this home wrote down, if that desk still lives.

        A killed one leaves its file behind, and its process id may be another's by now. So whoever listens there has to
        prove itself before it is sent anything; see `proof`.
        """
        told = self._written_down()
        return None if told is None else told[0]

    def running_certificate(self) -> str | None:
        """The certificate, in PEM format, that the desk of this home shows; None where it has none or is not there."""
        told = self._written_down()
        return None if told is None else told[1]

    def running_key(self) -> str:
        """What the desk of this home proves itself with; empty where it wrote none down."""
        told = self._written_down()
        return "" if told is None else told[2]

    def _written_down(self) -> tuple[str, str | None, str] | None:
        """Address, certificate and key."""
        try:
            told = json.loads(self.desk_file.read_text())
            url, pid = str(told["url"]), int(told["pid"])
            certificate, key = told.get("certificate"), told.get("key")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        if not _lives(pid):
            return None
        return url, certificate if isinstance(certificate, str) else None, key if isinstance(key, str) else ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:  # it does, and is somebody else's
        return True
    except (OSError, OverflowError):
        return False
    return True


def load(environ: Mapping[str, str] | None = None, *, cwd: Path | None = None) -> Settings:
    """Raises SettingsError that names the file and the setting."""
    environ = os.environ if environ is None else environ
    home = Path(environ.get("HANDRAISE_HOME") or _user_path("data")).expanduser().absolute()
    settings = Settings(
        home=home,
        url=",".join(parse_addresses(environ.get("HANDRAISE_URL"), name="HANDRAISE_URL")) or None,
        token=environ.get("HANDRAISE_TOKEN") or None,
        database=environ.get("HANDRAISE_DATABASE") or f"sqlite:///{home / 'desk.db'}",
    )
    user = Path(environ.get("XDG_CONFIG_HOME") or _user_path("config")) / "handraise" / "config.toml"
    return _with_files(replace(settings, user=user), cwd=cwd or Path.cwd())


def _user_path(kind: Literal["data", "config"]) -> Path:
    import platformdirs  # for start-up time: not needed where the environment says it

    return platformdirs.user_data_path("handraise") if kind == "data" else platformdirs.user_config_path()


def load_elsewhere(settings: Settings, *, cwd: Path) -> Settings:
    """What the files of the same home and the same user say for another folder. Raises as `load` does."""
    return _with_files(Settings(home=settings.home, user=settings.user), cwd=cwd)


def _with_files(settings: Settings, *, cwd: Path) -> Settings:
    if settings.user is not None and settings.user.is_file():
        settings = _with_file(settings, settings.user, _read(settings.user))
    project = find_project(cwd)
    return settings if project is None else _with_project(settings, project)


def warn_of_untrusted(settings: Settings) -> None:
    """Log what of a project was left out. For programs that have no terminal to say it on."""
    if not settings.untrusted:
        return
    from handraise.trust import notice

    log.warning("%s", notice(settings.untrusted))


def parse_addresses(given: str | Sequence[str] | None, *, name: str) -> tuple[str, ...]:
    """Addresses of desks from a text with commas or a list, each once, in the order given; nothing given is none.

    Raises SettingsError that calls them by `name`.
    """
    if not given:
        return ()
    texts = given.split(",") if isinstance(given, str) else given
    urls = dict.fromkeys(text.strip().rstrip("/") for text in texts)
    for url in urls:
        if not _is_address(url):
            raise SettingsError(
                f"{name} is {given!r}; an address looks like {DEFAULT_URL}, and several have commas between them"
            )
    return tuple(urls)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half of an IPv6 address
        return False
    return is_one and re.search(r"[\s,;?#]", url) is None


def _with_project(settings: Settings, file: Path) -> Settings:
    """Settings refined by a project's file: what a person trusted of it, and what it forbids.

    What is wrong in it is said also where nobody trusts it.
    """
    from handraise.rules.reading import rules_in
    from handraise.trust import Trust, agents_part, policy_part, rules_part
    from handraise.wire import parse_handling

    text = _read(file)
    whole = _with_file(settings, file, text, own=False)
    table = parse_toml(text, file=file)
    policy = table.get("policy", {})
    rejections = {name: value for name, value in policy.items() if value == "reject"}
    forbidding = parse_handling(rejections, onto=settings.handling)
    parts = [agents_part(file, table.get("agents", {})), rules_part(file, rules_in(text, file=file))]
    if whole.handling != forbidding:
        parts.insert(1, policy_part(file, policy))
    found = tuple(part for part in parts if part is not None)
    trust = Trust(settings.trust_file)
    untrusted = tuple(part for part in found if not trust.holds(part))
    kinds = {part.kind for part in untrusted}
    return replace(
        settings,
        agents=settings.agents if "agents" in kinds else whole.agents,
        handling=forbidding if "policy" in kinds else whole.handling,
        project=file,
        parts=found,
        untrusted=untrusted,
    )


def _read(file: Path) -> str:
    """Raises SettingsError."""
    try:
        return read_settings(file).decode()
    except UnicodeDecodeError as problem:
        raise SettingsError(f"{file} cannot be read: {problem}") from None


def _with_file(settings: Settings, file: Path, text: str, *, own: bool = True) -> Settings:
    """Settings refined by a file. One that came with a project may not open your desk to others."""
    from handraise.policies import policy_for
    from handraise.rules.reading import rules_in
    from handraise.wire import parse_handling

    table = parse_toml(text, file=file)
    unknown = set(table) - {"policy", "desk", "terminal", "agents", "rules", "chat", "models", "channels", "people"}
    if unknown:
        raise SettingsError(
            f"{file}: unknown table [{sorted(unknown)[0]}]; known are [policy], [[rules]], [desk], [terminal], "
            "[agents.…], [chat], [models.…], [channels.…] and [people.…]"
        )
    rules_in(text, file=file)  # the desk reads them when they are needed, so that a change counts at once
    known = {"host", "allowed_hosts", "tls_cert", "tls_key", "keep_days", "lease", "inspect", "address"}
    desk = _table(table, "desk", file=file, known=known)
    policy = _table(table, "policy", file=file)
    try:
        handling = parse_handling(policy, onto=settings.handling)
        policy_for(handling)  # a rule that is no regular expression is said here, not to an agent that asks
    except SettingsError as problem:
        raise SettingsError(f"{file}: [policy] {problem}") from None
    hosts = desk.get("allowed_hosts", list(settings.allowed_hosts))
    host = desk.get("host", settings.host)
    if not isinstance(host, str) or not isinstance(hosts, list) or not all(isinstance(name, str) for name in hosts):
        raise SettingsError(f"{file}: [desk] host is a text, allowed_hosts a list of texts")
    tls_cert, tls_key = _tls_files(desk, settings, file=file)
    keep_days = desk.get("keep_days")
    if keep_days is not None and (
        isinstance(keep_days, bool) or not isinstance(keep_days, int | float) or not 1 <= keep_days <= MOST_DAYS
    ):
        raise SettingsError(f"{file}: [desk] keep_days is a number of days from 1 to {MOST_DAYS}")
    lease = desk.get("lease", settings.lease)
    if isinstance(lease, bool) or not isinstance(lease, int | float) or not SHORTEST_LEASE <= lease <= LONGEST_LEASE:
        raise SettingsError(
            f"{file}: [desk] lease is a number of seconds from {SHORTEST_LEASE} to {LONGEST_LEASE}; every worker of a "
            "database has the same"
        )
    inspect = desk.get("inspect", settings.inspect)
    if not isinstance(inspect, bool):
        raise SettingsError(f"{file}: [desk] inspect is true or false")
    address = desk.get("address", settings.address)
    if address is not None and (not isinstance(address, str) or not _is_address(address)):
        raise SettingsError(f"{file}: [desk] address is where people open it, as in https://desk.example.com")
    if desk and not own:
        raise SettingsError(
            f"{file}: [desk] says who reaches your desk and what it keeps, so it belongs in your own config.toml"
        )
    terminal = _table(table, "terminal", file=file, known={"full", "language"})
    full = terminal.get("full", settings.full)
    if not isinstance(full, bool):
        raise SettingsError(f"{file}: [terminal] full is true or false")
    language = terminal.get("language", settings.language)
    if language is not None and language not in LANGUAGES:
        raise SettingsError(f"{file}: [terminal] language is one of {', '.join(LANGUAGES)}")
    if terminal and not own:
        raise SettingsError(f"{file}: [terminal] is about your own terminal, so it belongs in your own config.toml")
    keep = settings.keep if keep_days is None else timedelta(days=keep_days)
    agents = {**settings.agents, **_agents(table, settings.agents, file=file)}
    if not own and ("chat" in table or "models" in table):
        raise SettingsError(
            f"{file}: [chat] and [models] say where your keys are sent, so they belong in your own config.toml"
        )
    if not own and ("channels" in table or "people" in table):
        raise SettingsError(
            f"{file}: [channels] and [people] say who is told what and who may answer, so they belong in your own "
            "config.toml"
        )
    return replace(
        settings,
        channels=_channels(table, file=file) if own else settings.channels,
        people=_people(table, file=file) if own else settings.people,
        address=None if address is None else address.rstrip("/"),
        chat=_chat(table, file=file) if own else settings.chat,
        handling=handling,
        host=host,
        allowed_hosts=tuple(hosts),
        tls_cert=tls_cert,
        tls_key=tls_key,
        keep=keep,
        lease=float(lease),
        inspect=inspect,
        full=full,
        language=language,
        agents=agents,
    )


def _tls_files(desk: dict[str, Any], settings: Settings, *, file: Path) -> tuple[Path | None, Path | None]:
    """Certificate and key; a path that is not absolute begins in the folder of the file that names it."""
    given = desk.get("tls_cert"), desk.get("tls_key")
    match given:
        case (None, None):
            return settings.tls_cert, settings.tls_key
        case (str(cert), str(key)):
            return file.parent / Path(cert).expanduser(), file.parent / Path(key).expanduser()
    raise SettingsError(f"{file}: [desk] tls_cert and tls_key are the paths of two files; give both or none")


def _agents(table: dict[str, Any], before: Mapping[str, AgentTable], *, file: Path) -> dict[str, AgentTable]:
    found: dict[str, AgentTable] = {}
    agents = _table(table, "agents", file=file)
    if len(agents) > MOST_AGENTS:
        raise SettingsError(f"{file}: at most {MOST_AGENTS} agents fit in a file; it has {len(agents)}")
    for name in agents:
        given = _table(agents, name, file=file, known={"command", "env", "watch"}, shown=f"agents.{name}")
        at = before.get(name, AgentTable())
        command, env, watch = given.get("command", at.command), given.get("env", at.env), given.get("watch", at.watch)
        if not _texts(command) or not _texts(watch):
            raise SettingsError(f'{file}: [agents.{name}] command and watch are lists of texts, as in ["{name}"]')
        if not isinstance(env, Mapping) or not _texts(tuple(env.values())):
            raise SettingsError(f'{file}: [agents.{name}] env is a table of texts, as in {{ NAME = "value" }}')
        if "command" in given and command:
            from handraise.trust import anchored

            command = anchored(command, folder=file.parent, is_strict=False)
        found[name] = AgentTable(command=tuple(command), env=dict(env), watch=tuple(watch))
    return found


def _chat(table: dict[str, Any], *, file: Path) -> ChatSettings:
    models: dict[str, ModelTable] = {}
    tables = _table(table, "models", file=file)
    for name in tables:
        given = _table(tables, name, file=file, known={"api", "model", "url", "key_env"}, shown=f"models.{name}")
        if given.get("api") not in APIS or not isinstance(given.get("model"), str) or not given["model"]:
            raise SettingsError(
                f"{file}: [models.{name}] has an api, which is {' or '.join(APIS)}, and a model, as its server calls it"
            )
        if not all(isinstance(given.get(key, ""), str) for key in ("url", "key_env")):
            raise SettingsError(f"{file}: [models.{name}] url and key_env are texts")
        url = given.get("url")
        if url is not None and urlsplit(url).scheme not in ("http", "https"):
            raise SettingsError(f"{file}: [models.{name}] url begins with http:// or https://")
        models[name] = ModelTable(api=given["api"], model=given["model"], url=url, key_env=given.get("key_env"))
    chat = _table(table, "chat", file=file, known={"model", "instructions", "tools"})
    model, instructions, tools = chat.get("model"), chat.get("instructions", ""), chat.get("tools", [])
    if model is not None and model not in models:
        raise SettingsError(f"{file}: [chat] model is {model!r}, and there is no [models.{model}]")
    if not isinstance(instructions, str):
        raise SettingsError(f"{file}: [chat] instructions is a text")
    if not _texts(tools) or not all(name.count(":") == 1 for name in tools):
        raise SettingsError(f'{file}: [chat] tools is a list of functions, as in ["package.module:function"]')
    return ChatSettings(models=models, model=model, instructions=instructions, tools=tuple(tools))


def _channels(table: dict[str, Any], *, file: Path) -> dict[str, ChannelTable]:
    found: dict[str, ChannelTable] = {}
    channels = _table(table, "channels", file=file)
    for name in channels:
        given = dict(_table(channels, name, file=file, shown=f"channels.{name}"))
        kind = given.pop("kind", name)
        if not _NAME.fullmatch(name) or not isinstance(kind, str) or not kind:
            raise SettingsError(
                f"{file}: [channels.{name}] a channel is called by letters, digits, - and _, and its kind is a text"
            )
        found[name] = ChannelTable(kind=kind, table=given)
    return found


def _people(table: dict[str, Any], *, file: Path) -> dict[str, Person]:
    found: dict[str, Person] = {}
    people = _table(table, "people", file=file)
    for name in people:
        given = dict(_table(people, name, file=file, shown=f"people.{name}"))
        may, notify = given.pop("may", list(USUALLY)), given.pop("notify", [])
        if name.startswith("policy:") or name == "agent" or len(name) > LONGEST_NAME:
            raise SettingsError(f"{file}: [people.{name}] nobody is called that; choose another name")
        if not _texts(may) or set(may) - set(MAY):
            raise SettingsError(f"{file}: [people.{name}] may is a list of {', '.join(MAY)}")
        if not _texts(notify):
            raise SettingsError(f'{file}: [people.{name}] notify is a list of addresses, as in ["ntfys://ntfy.sh/…"]')
        if not all(isinstance(known, str) and known for known in given.values()):
            raise SettingsError(
                f'{file}: [people.{name}] says how each channel knows this person, as in linear = "ana@example.com"'
            )
        found[name] = Person(name=name, known_as=given, notify=tuple(notify), may=tuple(may))
    for channel in {channel for person in found.values() for channel in person.known_as}:
        known = [person.known_as[channel].casefold() for person in found.values() if channel in person.known_as]
        if len(set(known)) < len(known):
            raise SettingsError(f"{file}: [people] two of them are the same in {channel}; an answer would be either's")
    return found


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(entry, str) for entry in value)


def _table(
    table: dict[str, Any], name: str, *, file: Path, known: set[str] | None = None, shown: str = ""
) -> dict[str, Any]:
    found = table.get(name, {})
    shown = shown or name
    if not isinstance(found, dict):
        raise SettingsError(f"{file}: {shown} is a table; write [{shown}]")
    unknown = set(found) - known if known is not None else set()
    if unknown:
        raise SettingsError(
            f"{file}: [{shown}] does not know {sorted(unknown)[0]!r}; it knows {', '.join(sorted(known or ()))}"
        )
    return found
