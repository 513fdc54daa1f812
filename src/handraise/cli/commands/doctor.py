"""`handraise doctor`: look at everything that may be wrong, and say how to fix it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from handraise.cli.calling import Json, Url, settings_here
from handraise.cli.checks import Check
from handraise.cli.commands import Command
from handraise.cli.printing import print_json
from handraise.errors import DeskUnreachable, HandraiseError, Refused, SettingsError, StoreFailed
from handraise.text.inert import inert

if TYPE_CHECKING:
    from pathlib import Path

    from handraise.config import Settings
    from handraise.stores import Seen

__all__ = ["plugin"]

PATIENCE = 5.0  # seconds for a desk that is there to answer
MARKS = {"ok": "✓", "info": "·", "warn": "!", "fail": "✗"}

EXAMPLES = """\b
Examples:
  handraise doctor
  handraise doctor --json | jq 'select(.status == "fail")'

\b
Exit code 1 if anything fails, else 0."""


def doctor(as_json: Json = False, url: Url = None) -> None:
    """Look at everything that may be wrong, and say how to fix it."""

    import asyncio

    async def look() -> list[Check]:
        return [check async for check in _checks(url)]

    checks = asyncio.run(look())
    for check in checks:
        if as_json:
            print_json(asdict(check))
            continue
        print(f"{MARKS[check.status]} {check.status:<5} {check.name:<10} {inert(check.said, keep='')}")
        if check.fix:
            print(f"{'':8} {'':<10} → {inert(check.fix, keep='')}")
    raise typer.Exit(any(check.status == "fail" for check in checks))


async def _checks(url: str | None) -> AsyncIterator[Check]:
    from handraise.cli.channel_checks import channel_checks

    for check in (_python(), _version(), *_variables(), _terminal(), *_extras()):
        yield check
    try:
        settings = settings_here()
    except SettingsError as problem:
        yield Check("settings", "fail", str(problem), "correct that file or variable; the rest was not looked at")
        return
    project = f"{settings.project} counts here" if settings.project else "no handraise.toml here or above"
    yield Check("settings", "ok", project)
    async for check in _agents(settings):
        yield check
    async for check in _models(settings):
        yield check
    for check in (_home(settings), _token_file(settings), await _database(settings)):
        yield check
    async for check in _desk(settings, url=url):
        yield check
    async for check in channel_checks(settings, url=url):
        yield check


# This machine -----------------------------------------------------------------------------------------------


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", "ok", version)  # an older one would not have come this far


def _version() -> Check:
    from importlib import metadata

    return Check("handraise", "ok", metadata.version("handraise"))


def _variables() -> Iterator[Check]:
    from handraise.stores import without_password

    for name in sorted(name for name in os.environ if name.startswith("HANDRAISE_")):
        value = "set, not shown" if name == "HANDRAISE_TOKEN" else without_password(os.environ[name])
        yield Check("variable", "info", f"{name}: {value}")


def _terminal() -> Check:
    from handraise.channels.terminal import wants_colour

    columns = shutil.get_terminal_size().columns
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Check("terminal", "info", "none here, so nothing prompts")
    return Check("terminal", "ok", f"{columns} columns, {'colours' if wants_colour() else 'no colours'}")


def _extras() -> Iterator[Check]:
    from importlib import metadata

    about = metadata.metadata("handraise")
    needs = about.get_all("Requires-Dist") or []
    for extra in about.get_all("Provides-Extra") or []:
        names = [need for need in needs if f"extra == {extra!r}" in need.replace('"', "'")]
        names = [found[0] for need in names if (found := re.match(r"[A-Za-z0-9._-]+", need))]
        missing = [name for name in names if not _is_installed(name)]
        if missing:
            said = f"{extra} is not installed (it brings {', '.join(missing)})"
            yield Check("extra", "info", said, f"pip install 'handraise[{extra}]'")
        else:
            yield Check("extra", "ok", f"{extra} is installed")


def _is_installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


async def _agents(settings: Settings) -> AsyncIterator[Check]:
    """What can be started here. Not to have one is nothing wrong."""
    from handraise.app import agents_of

    agents = agents_of(settings)
    for found in await agents.look():
        if found.installed and not found.problem:
            yield Check("agent", "ok", f"{found.agent} {found.version or ''}".rstrip())
        else:
            yield Check("agent", "info", f"{found.agent}: {found.problem or 'not installed'}")
    await agents.close()


async def _models(settings: Settings) -> AsyncIterator[Check]:
    """Those to chat with. The desk may run with other variables than this shell, so nothing here fails."""
    from handraise.chat.writing import key_variable
    from handraise.stores import without_password

    for name, model in settings.chat.models.items():
        said = f"{name}: {model.model} by the {model.api} API"
        key = key_variable(model)
        if not _is_installed("pydantic-ai-slim"):
            yield Check("model", "warn", f"{name}: its extra is not installed", "pip install 'handraise[chat]'")
        elif key is not None and not os.environ.get(key):
            yield Check("model", "warn", f"{name}: {key} is not set here", "set it where the desk runs")
        elif model.url is None:
            yield Check("model", "ok", f"{said}, with {key}")
        elif not await _is_there(model.url):
            said = f"{name}: nothing answers at {without_password(model.url)}"
            yield Check("model", "warn", said, "start its server, or correct the url in [models]")
        else:
            yield Check("model", "ok", f"{said}, at {without_password(model.url)}")


async def _is_there(url: str) -> bool:
    """Whether something listens there. Nothing is said to it."""
    import asyncio
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, ValueError, TimeoutError):
        return False
    writer.close()
    return True


# This home --------------------------------------------------------------------------------------------------


def _home(settings: Settings) -> Check:
    home = settings.home
    if not home.exists():
        return Check("home", "info", f"{home} is not there yet", "the first `handraise serve` makes it")
    if not home.is_dir():
        return Check("home", "fail", f"{home} is not a folder", "move it away, or set HANDRAISE_HOME")
    if not os.access(home, os.W_OK | os.X_OK):
        return Check("home", "fail", f"{home} cannot be written to", "make it yours, or set HANDRAISE_HOME")
    if home.stat().st_mode & 0o077:
        return Check("home", "warn", f"{home} is open to others ({_mode(home)})", f"chmod 700 {home}")
    return Check("home", "ok", f"{home} ({_mode(home)})")


def _token_file(settings: Settings) -> Check:
    file = settings.token_file
    try:
        secret = file.read_text().strip()
    except FileNotFoundError:
        return Check("token", "info", f"{file} is not there yet", "the first `handraise serve` writes it")
    except OSError as problem:
        return Check("token", "fail", f"{file} cannot be read: {problem.strerror}", "make it yours")
    if not secret:
        return Check("token", "fail", f"{file} is empty", "remove it; the next `handraise serve` writes a new one")
    if file.stat().st_mode & 0o077:
        return Check("token", "fail", f"{file} can be read by others ({_mode(file)})", f"chmod 600 {file}")
    return Check("token", "ok", f"{file} ({_mode(file)})")


def _mode(path: Path) -> str:
    return f"{path.stat().st_mode & 0o777:04o}"


async def _database(settings: Settings) -> Check:
    """Which one it is and whether it can be reached; nothing is made or migrated on the way."""
    import asyncio

    from handraise.app import look_at
    from handraise.stores import without_password

    is_file = settings.database.startswith("sqlite:")
    if is_file and settings.database.endswith(":memory:"):
        return Check("database", "info", "in memory, so nothing is kept", "leave HANDRAISE_DATABASE out to keep it")
    try:
        async with asyncio.timeout(PATIENCE):
            seen = await look_at(settings.database)
    except TimeoutError:
        said = f"{without_password(settings.database)} does not answer within {PATIENCE:.0f} seconds"
        return Check("database", "fail", said, "is it running, and does a firewall let us through?")
    except HandraiseError as problem:
        said, _, fix = str(problem).partition("; ")
        return Check("database", "fail", said, fix)
    return _in_a_file(seen) if is_file else _in_a_server(seen)


def _in_a_file(seen: Seen) -> Check:
    from pathlib import Path

    if seen.version is None:
        return Check("database", "info", f"{seen.shown} is not there yet", "the first `handraise serve` makes it")
    size = Path(seen.shown).stat().st_size / 1024 / 1024
    return _of_version(seen, f"{seen.shown}, version {seen.version}, {size:.1f} MiB")


def _in_a_server(seen: Seen) -> Check:
    if seen.version is None:
        said = f"{seen.shown}, can be reached and has no tables yet"
        return Check("database", "info", said, "the first `handraise serve` makes them")
    return _of_version(seen, f"{seen.shown}, version {seen.version}")


def _of_version(seen: Seen, said: str) -> Check:
    if seen.is_old:
        return Check("database", "info", f"{said}, of an older handraise", "the next `handraise serve` migrates it")
    return Check("database", "ok", said)


# The desk ---------------------------------------------------------------------------------------------------


async def _desk(settings: Settings, *, url: str | None) -> AsyncIterator[Check]:
    import asyncio

    from handraise.client import Client, addresses

    at = " or ".join(addresses(settings, url=url))
    try:
        async with asyncio.timeout(PATIENCE), Client(url, settings=settings) as client:
            health = await client.call("GET", "/healthz")
            at = client.url
            yield _same_version(at, str(health.get("version")))
            for check in map(_problem, health.get("problems", ())):
                yield check
            try:
                await client.cursor()
            except Refused as refused:
                yield Check("access", "fail", str(refused), "set HANDRAISE_TOKEN, or HANDRAISE_HOME to its folder")
            else:
                yield Check("access", "ok", "the desk takes our token")
    except (DeskUnreachable, TimeoutError):
        if settings.desk_file.exists() and settings.running_desk() is None:
            text = f"nothing answers at {at}; {settings.desk_file} is left of a desk that was killed"
            yield Check("desk", "warn", text, "`handraise serve` starts it again and loses nothing")
        else:
            yield Check("desk", "warn", f"nothing answers at {at}", "start one with `handraise serve`")
        yield _port(settings)
    except StoreFailed as problem:
        yield Check("desk", "fail", f"{at}: {problem}", "look at the database, then at that log")
    except HandraiseError as problem:
        yield Check("desk", "fail", f"{at}: {problem}", "something else listens there; choose another --port or --url")


def _same_version(at: str, version: str) -> Check:
    from importlib import metadata

    ours = metadata.version("handraise")
    if version == ours:
        return Check("desk", "ok", f"runs at {at}, version {version}")
    return Check("desk", "warn", f"runs at {at}, version {version}; this is {ours}", "restart it after an upgrade")


def _problem(code: str) -> Check:
    """What `/healthz` has only a word for."""
    from handraise.server.routes._health import PROBLEMS

    return Check("desk", "warn", PROBLEMS.get(code, code), "the log of the desk says more")


def _port(settings: Settings) -> Check:
    from handraise.app import bind
    from handraise.config import DEFAULT_PORT

    try:
        bind(settings.host, DEFAULT_PORT).close()
    except SettingsError:
        return Check("port", "warn", f"{DEFAULT_PORT} is taken by another program", "handraise serve --port N")
    return Check("port", "ok", f"{DEFAULT_PORT} is free")


plugin = Command(doctor, examples=EXAMPLES, group="set-up")
