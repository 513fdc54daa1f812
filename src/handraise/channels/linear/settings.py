"""`[channels.linear]` of the settings, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from handraise.agents._modes import MODES
from handraise.asks import Mode
from handraise.channels import ChannelSettings
from handraise.channels.linear.api import URL, Access
from handraise.errors import SettingsError

__all__ = ["LinearSettings", "read_settings"]

T = TypeVar("T")

KNOWN = {
    *("token_env", "client_id_env", "client_secret_env", "secret_env", "api", "agent", "mode", "base", "automations"),
    *("repository", "repositories", "session_minutes", "question_minutes", "poll_seconds"),
}
LEAST_POLL = 5.0  # seconds; Linear allows some thousand calls an hour


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearSettings:
    access: Access
    secret: str | None  # that signs webhooks; None: we only look for ourselves
    poll: float | None  # seconds between two looks
    url: str = URL
    agent: str = "claude"
    mode: Mode | None = None
    base: str = "HEAD"  # what a branch begins at
    repository: str | None = None
    repositories: Mapping[str, str] = field(default_factory=dict)  # by the key of a team
    automations: bool = False  # whether what is no person may start agents here
    session_for: int = 3_600_000  # milliseconds
    question_for: int = 1_800_000  # milliseconds

    def repository_for(self, identifier: str) -> str | None:
        """The one of an issue such as ENG-42."""
        return self.repositories.get(identifier.partition("-")[0].upper(), self.repository)


def read_settings(settings: ChannelSettings) -> LinearSettings:
    """Raises SettingsError that names the setting and says what to do."""
    table, where = settings.table, f"[channels.{settings.name}]"
    unknown = set(table) - KNOWN
    if unknown:
        raise SettingsError(f"{where} does not know {sorted(unknown)[0]!r}; it knows {', '.join(sorted(KNOWN))}")
    texts = {
        name: _given(table, name, str, "", where=where)
        for name in ("token_env", "client_id_env", "client_secret_env", "secret_env", "repository")
    }
    environ = settings.environ
    access = Access(
        token=environ.get(texts["token_env"] or "LINEAR_TOKEN") or None,
        client_id=environ.get(texts["client_id_env"] or "LINEAR_CLIENT_ID") or None,
        client_secret=environ.get(texts["client_secret_env"] or "LINEAR_CLIENT_SECRET") or None,
    )
    if access.token is None and (access.client_id is None or access.client_secret is None):
        raise SettingsError(
            f"{where} there is nothing to sign in to Linear with: put LINEAR_CLIENT_ID and LINEAR_CLIENT_SECRET of "
            "your Linear app into the environment of the desk, or a token as LINEAR_TOKEN"
        )
    secret = environ.get(texts["secret_env"] or "LINEAR_WEBHOOK_SECRET") or None
    poll = _number(table, "poll_seconds", where=where)
    if secret is None and poll is None:
        raise SettingsError(
            f"{where} Linear cannot tell us anything: put the signing secret of its webhook into the environment as "
            "LINEAR_WEBHOOK_SECRET, or have us look with poll_seconds = 15"
        )
    if poll is not None and poll < LEAST_POLL:
        raise SettingsError(f"{where} poll_seconds is at least {LEAST_POLL:g}; Linear refuses those who ask too often")
    url = _given(table, "api", str, URL, where=where).rstrip("/")
    if urlsplit(url).scheme not in ("http", "https"):
        raise SettingsError(f"{where} api is where Linear's API is, as in {URL}")
    mode = _given(table, "mode", str, None, where=where)
    if mode is not None and mode not in MODES:
        raise SettingsError(f"{where} mode is one of {', '.join(MODES)}")
    return LinearSettings(
        access=access,
        secret=secret,
        poll=poll,
        url=url,
        agent=_given(table, "agent", str, "claude", where=where),
        mode=mode,
        base=_given(table, "base", str, "HEAD", where=where),
        repository=_folder(texts["repository"]) if texts["repository"] else None,
        repositories=_repositories(table, where=where),
        automations=_given(table, "automations", bool, False, where=where),
        session_for=_minutes(table, "session_minutes", 60, where=where),
        question_for=_minutes(table, "question_minutes", 30, where=where),
    )


def _given(table: Mapping[str, Any], name: str, kind: type[T], default: Any, *, where: str) -> Any:
    value = table.get(name, default)
    if value is not default and not isinstance(value, kind):
        raise SettingsError(f"{where} {name} is {'a text' if kind is str else 'true or false'}")
    return value


def _number(table: Mapping[str, Any], name: str, *, where: str) -> float | None:
    value = table.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6):
        raise SettingsError(f"{where} {name} is a number above 0")
    return value


def _minutes(table: Mapping[str, Any], name: str, default: float, *, where: str) -> int:
    return round((_number(table, name, where=where) or default) * 60_000)


def _repositories(table: Mapping[str, Any], *, where: str) -> dict[str, str]:
    given = table.get("repositories", {})
    if not isinstance(given, dict) or not all(isinstance(path, str) and path for path in given.values()):
        raise SettingsError(f'{where} repositories is a table of folders by team, as in {{ ENG = "~/src/app" }}')
    return {team.upper(): _folder(path) for team, path in given.items()}


def _folder(path: str) -> str:
    return str(Path(path).expanduser().absolute())
