"""What `handraise doctor` looks at in channels: whether each can be used, who may answer there, and the address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from handraise.cli.checks import Check, Status
from handraise.client import Client
from handraise.config import DEFAULT_URL, Settings
from handraise.errors import DeskUnreachable, HandraiseError, Refused
from handraise.wire.plain import to_plain

__all__ = ["channel_checks"]

PATIENCE = 5.0  # seconds for whoever is at the address to answer
EXAMINE_WITHIN = 30.0  # seconds; each channel looks for itself, one beside the other
LOOPBACK = ("127.0.0.1", "localhost", "::1")


async def channel_checks(settings: Settings, *, url: str | None) -> AsyncIterator[Check]:
    """The desk that runs looks itself, with its own environment; where none does, we look with ours."""
    is_ours = not (url or settings.url)
    try:
        found, runs = await _at_the_desk(settings, url=url), True
    except DeskUnreachable:
        found, runs = (await _here(settings) if is_ours else []), False
    except HandraiseError:  # what is wrong with the desk was told before
        return
    for told in found:
        for check in _of(told, runs=runs):
            yield check
    if not is_ours:  # those settings are not ours to read
        return
    for name in settings.channels.keys() - {told["name"] for told in found}:
        yield Check("channel", "warn", f"{name}: the desk that runs does not know it yet", "start the desk again")
    for check in (*_address(settings, found), *_people(settings, found)):
        yield check
    if runs and settings.address is not None and found:
        yield await _from_outside(settings.address)


async def _at_the_desk(settings: Settings, *, url: str | None) -> list[dict[str, Any]]:
    async with Client(url, settings=settings) as client:
        try:
            found = await client.channels.list(examine=True, silence=EXAMINE_WITHIN)
        except Refused:  # a token that may not let them look
            found = await client.channels.list()
        return [to_plain(each) for each in found]


async def _here(settings: Settings) -> list[dict[str, Any]]:
    """The channels made as the desk would, on a store in memory: the real one is opened, or made, by nobody."""
    from handraise.app import channels_of
    from handraise.broker import Broker
    from handraise.people import People
    from handraise.stores.sqlite import MEMORY, SqliteStore
    from handraise.switchboard import Channels

    if not settings.channels:
        return []
    logging.getLogger("handraise").addHandler(logging.NullHandler())  # what it says is told as a check
    store = await SqliteStore.open_file(MEMORY)
    try:
        async with Broker(store) as broker:
            broker.address = settings.address or DEFAULT_URL
            channels = Channels(broker, channels_of(settings, broker, worker=None), people=People(settings.people))
            problems = await channels.examine()
            return [to_plain(state.to_shape(problems=problems.get(state.name, []))) for state in channels.states()]
    finally:
        await store.close()


def _of(told: dict[str, Any], *, runs: bool) -> Iterator[Check]:
    """Without a desk nothing fails: it may run with other variables than this shell."""
    name: str = told["name"]
    wrong: Status = "fail" if runs else "warn"
    about = f"[channels.{name}] in your config.toml is what it was made from"
    if told["trouble"] is not None:
        yield Check("channel", wrong, f"{name}: {told['trouble']}", f"{about}; correct it, then start the desk again")
        return
    problems = told.get("problems", [])
    for problem in problems:
        yield Check("channel", wrong, f"{name}: {problem}", about)
    if not problems:
        yield Check("channel", "ok", f"{name} ({told['kind']})" + (f" is {told['state']}" if runs else ""))


def _address(settings: Settings, found: Sequence[dict[str, Any]]) -> Iterator[Check]:
    called = [told["name"] for told in found if told["reach"] is not None and told["reach"]["needs_address"]]
    if settings.address is None:
        if called:
            said = f"{', '.join(called)} has to call the desk, and nothing says where that is"
            yield Check("address", "fail", said, 'write address = "https://…" under [desk] in your config.toml')
        return
    parts = urlsplit(settings.address)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        said = f"{settings.address} is not https, so what is sent there can be read on the way"
        yield Check("address", "warn", said, "put a proxy with TLS before the desk, or set tls_cert and tls_key")
    elif called and parts.hostname in LOOPBACK:
        said = f"{', '.join(called)} has to call the desk, and {settings.address} is this machine alone"
        yield Check("address", "warn", said, "write an address under [desk] that is reached from outside")


def _people(settings: Settings, found: Sequence[dict[str, Any]]) -> Iterator[Check]:
    """Who is known nowhere can answer nowhere, and a place where nobody is known takes no answer."""
    known = {channel for person in settings.people.values() for channel in person.known_as}
    notifies = any(table.kind == "notify" for table in settings.channels.values())
    for person in settings.people.values():
        for channel in sorted(person.known_as.keys() - settings.channels.keys()):
            said = f"{person.name} is known in {channel}, and there is no such channel"
            yield Check("people", "warn", said, f"write [channels.{channel}], or take it out of [people.{person.name}]")
        if person.notify and not notifies:
            said = f"{person.name} has addresses to notify, and no channel does that"
            yield Check("people", "warn", said, "write [channels.notify] in your config.toml")
        if not person.known_as and not person.notify:
            fix = f"write under [people.{person.name}] how a channel knows this person"
            yield Check("people", "warn", f"{person.name} is known in no channel", fix)
    for told in found:
        reach, name = told["reach"], told["name"]
        takes_answers = reach is not None and (reach["options"] > 0 or reach["text"])
        if takes_answers and name not in known and name in settings.channels:
            fix = f'write {name} = "…" under [people.NAME], as that place knows the person'
            yield Check("people", "warn", f"nobody may answer in {name}, since nobody is known there", fix)


async def _from_outside(address: str) -> Check:
    """Whether the desk can be had where the settings say that people open it, and under that name."""
    import httpx2

    try:
        async with asyncio.timeout(PATIENCE), httpx2.AsyncClient() as http:
            answered = await http.get(f"{address}/healthz")
        told = answered.json() if answered.headers.get("content-type", "").startswith("application/json") else {}
    except (httpx2.HTTPError, OSError, TimeoutError, ValueError) as problem:
        said = f"nothing answers at {address} from here ({str(problem) or type(problem).__name__})"
        return Check("address", "warn", said, "look at its name, the proxy and the firewall")
    if not isinstance(told, dict):
        told = {}
    if answered.status_code == 403 and told.get("error") == "forbidden":
        said = f"the desk refuses the host name of {address}"
        return Check("address", "fail", said, "start the desk again, so that it reads its address")
    if "version" not in told:
        return Check("address", "warn", f"something else than a desk answers at {address}", "look at the proxy there")
    return Check("address", "ok", f"the desk answers at {address}")
