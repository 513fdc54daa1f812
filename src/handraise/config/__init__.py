"""Settings from the environment, the user's `config.toml` and the project's `handraise.toml`, as frozen records.

`tables.py` says what each setting means and takes, `files.py` reads the files.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from handraise.asks import Handling
from handraise.chat import ChatSettings
from handraise.config.tables import (
    DEFAULT_PORT,
    DEFAULT_URL,
    AgentTable,
    ChannelTable,
    DeskTable,
    TerminalTable,
    is_address,
)
from handraise.errors import SettingsError
from handraise.people import Person
from handraise.transports.files import find_project

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

_DESK, _TERMINAL = DeskTable(), TerminalTable()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    home: Path
    url: str | None = None  # one address or several with commas; None leaves it to `desk.json` and the default
    token: str | None = None
    database: str = ""
    handling: Handling = field(default_factory=Handling)
    host: str = _DESK.host
    allowed_hosts: tuple[str, ...] = _DESK.allowed_hosts
    address: str | None = None  # where people open the desk from elsewhere; None: where it listens
    tls_cert: Path | None = None  # with `tls_key`, what the desk shows to those who call it by https
    tls_key: Path | None = None
    keep: timedelta | None = None  # how long events and settled asks are kept; None is for ever
    lease: float = (
        _DESK.lease
    )  # seconds after which a worker that says nothing counts as dead, and others take over its runs
    inspect: bool = _DESK.inspect  # keep the raw messages of agents for a while, so that people can look at them
    full: bool = _TERMINAL.full  # the terminal redraws a card in place, where line mode prints it
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
    project = find_project(cwd)
    user = settings.user if settings.user is not None and settings.user.is_file() else None
    if user is None and project is None:
        return settings
    # For start-up time: a command without a settings file needs no rules and no pydantic.
    from handraise.config.files import with_project_file, with_user_file

    if user is not None:
        settings = with_user_file(settings, user)
    return settings if project is None else with_project_file(settings, project)


def warn_of_untrusted(settings: Settings) -> None:
    """Log what of a project was left out. For programs that have no terminal to say it on."""
    if not settings.untrusted:
        return
    from handraise.trust import notice  # for start-up time

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
        if not is_address(url):
            raise SettingsError(
                f"{name} is {given!r}; an address looks like {DEFAULT_URL}, and several have commas between them"
            )
    return tuple(urls)
