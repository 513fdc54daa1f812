"""Reads settings files over settings: your own `config.toml`, and a project's `handraise.toml` as far as it is trusted.

Only imported where there is such a file, since rules, trust and pydantic come along.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from handraise.asks import LONGEST_NAME, Handling
from handraise.chat import ChatSettings
from handraise.chat import ModelTable as Model
from handraise.config import Settings
from handraise.config.tables import (
    AgentTable,
    ChannelTable,
    ChatTable,
    DeskTable,
    ModelTable,
    PersonTable,
    Setting,
    TerminalTable,
    settings_of,
)
from handraise.errors import SettingsError
from handraise.people import Person
from handraise.policies import policy_for
from handraise.rules.reading import rules_in
from handraise.transports.files import parse_toml, read_settings
from handraise.trust import Trust, agents_part, anchored, policy_part, rules_part
from handraise.wire import parse_handling

__all__ = ["with_project_file", "with_user_file"]

T = TypeVar("T")

MOST_AGENTS = 1_000
TABLES = ("policy", "desk", "terminal", "agents", "rules", "chat", "models", "channels", "people")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


def with_user_file(settings: Settings, file: Path) -> Settings:
    """Settings refined by your own file. Raises SettingsError that names the file and the setting."""
    reader = _Reader(file, text=read_text(file))
    desk, terminal = reader.desk(), reader.terminal()
    return replace(
        settings,
        handling=reader.handling(onto=settings.handling),
        host=desk.host,
        allowed_hosts=desk.allowed_hosts,
        address=None if desk.address is None else desk.address.rstrip("/"),
        tls_cert=reader.path(desk.tls_cert),
        tls_key=reader.path(desk.tls_key),
        keep=None if desk.keep_days is None else timedelta(days=desk.keep_days),
        lease=float(desk.lease),
        inspect=desk.inspect,
        full=terminal.full,
        language=terminal.language,
        agents=reader.agents(onto=settings.agents),
        chat=reader.chat(),
        channels=reader.channels(),
        people=reader.people(),
    )


def with_project_file(settings: Settings, file: Path) -> Settings:
    """Settings refined by a project's file: what a person trusted of it, and what it forbids.

    What is wrong in it is said also where nobody trusts it. Raises SettingsError.
    """
    text = read_text(file)
    reader = _Reader(file, text=text)
    handling, agents = reader.handling(onto=settings.handling), reader.agents(onto=settings.agents)
    reader.refuse_what_is_personal()
    policy = reader.table.get("policy", {})
    rejections = {name: value for name, value in policy.items() if value == "reject"}
    forbidding = parse_handling(rejections, onto=settings.handling)
    parts = [agents_part(file, reader.table.get("agents", {})), rules_part(file, rules_in(text, file=file))]
    if handling != forbidding:
        parts.insert(1, policy_part(file, policy))
    found = tuple(part for part in parts if part is not None)
    trust = Trust(settings.trust_file)
    untrusted = tuple(part for part in found if not trust.holds(part))
    kinds = {part.kind for part in untrusted}
    return replace(
        settings,
        agents=settings.agents if "agents" in kinds else agents,
        handling=forbidding if "policy" in kinds else handling,
        project=file,
        parts=found,
        untrusted=untrusted,
    )


def read_text(file: Path) -> str:
    """Raises SettingsError."""
    try:
        return read_settings(file).decode()
    except UnicodeDecodeError as problem:
        raise SettingsError(f"{file} cannot be read: {problem}") from None


class _Reader:
    """One file, table by table. Every method raises SettingsError that names the file and the setting."""

    def __init__(self, file: Path, *, text: str) -> None:
        self._file = file
        self.table = parse_toml(text, file=file)
        unknown = set(self.table) - set(TABLES)
        if unknown:
            raise SettingsError(
                f"{file}: unknown table [{sorted(unknown)[0]}]; known are [policy], [[rules]], [desk], [terminal], "
                "[agents.…], [chat], [models.…], [channels.…] and [people.…]"
            )
        rules_in(text, file=file)  # the desk reads them when they are needed, so that a change counts at once

    def refuse_what_is_personal(self) -> None:
        """A file that came with a project may not open your desk to others."""
        self.desk()
        self.terminal()
        personal = {
            ("desk",): "[desk] says who reaches your desk and what it keeps, so it belongs",
            ("terminal",): "[terminal] is about your own terminal, so it belongs",
            ("chat", "models"): "[chat] and [models] say where your keys are sent, so they belong",
            ("channels", "people"): "[channels] and [people] say who is told what and who may answer, so they belong",
        }
        for names, why in personal.items():
            if any(name in self.table for name in names):
                raise SettingsError(f"{self._file}: {why} in your own config.toml")

    def handling(self, *, onto: Handling) -> Handling:
        policy = self._given(self.table, "policy")
        try:
            handling = parse_handling(policy, onto=onto)
            policy_for(handling)  # a rule that is no regular expression is said here, not to an agent that asks
        except SettingsError as problem:
            raise SettingsError(f"{self._file}: [policy] {problem}") from None
        return handling

    def desk(self) -> DeskTable:
        desk = self._read(DeskTable, self._given(self.table, "desk"), at="desk")
        if (desk.tls_cert is None) != (desk.tls_key is None):
            raise SettingsError(
                f"{self._file}: [desk] tls_cert and tls_key are the paths of two files; give both or none"
            )
        return desk

    def path(self, text: str | None) -> Path | None:
        """One that is not absolute begins in the folder of the file that names it."""
        return None if text is None else self._file.parent / Path(text).expanduser()

    def terminal(self) -> TerminalTable:
        return self._read(TerminalTable, self._given(self.table, "terminal"), at="terminal")

    def agents(self, *, onto: Mapping[str, AgentTable]) -> dict[str, AgentTable]:
        agents = self._given(self.table, "agents")
        if len(agents) > MOST_AGENTS:
            raise SettingsError(f"{self._file}: at most {MOST_AGENTS} agents fit in a file; it has {len(agents)}")
        found = dict(onto)
        for name in agents:
            given = self._given(agents, name, at=f"agents.{name}")
            read = self._read(AgentTable, given, at=f"agents.{name}")
            if read.command:
                read = replace(read, command=anchored(read.command, folder=self._file.parent, is_strict=False))
            found[name] = replace(onto.get(name, AgentTable()), **{key: getattr(read, key) for key in given})
        return found

    def chat(self) -> ChatSettings:
        tables, models = self._given(self.table, "models"), {}
        for name in tables:
            given = self._given(tables, name, at=f"models.{name}")
            models[name] = Model(**asdict(self._read(ModelTable, given, at=f"models.{name}")))
        chat = self._read(ChatTable, self._given(self.table, "chat"), at="chat")
        if chat.model is not None and chat.model not in models:
            raise SettingsError(f"{self._file}: [chat] model is {chat.model!r}, and there is no [models.{chat.model}]")
        return ChatSettings(models=models, **asdict(chat))

    def channels(self) -> dict[str, ChannelTable]:
        found: dict[str, ChannelTable] = {}
        channels = self._given(self.table, "channels")
        for name in channels:
            given = dict(self._given(channels, name, at=f"channels.{name}"))
            kind = given.pop("kind", name)
            if not _NAME.fullmatch(name) or not isinstance(kind, str) or not kind:
                raise SettingsError(
                    f"{self._file}: [channels.{name}] a channel is called by letters, digits, - and _, and its kind is "
                    "a text"
                )
            found[name] = ChannelTable(kind=kind, table=given)
        return found

    def people(self) -> dict[str, Person]:
        people = self._given(self.table, "people")
        found = {name: self._person(name, self._given(people, name, at=f"people.{name}")) for name in people}
        for channel in {channel for person in found.values() for channel in person.known_as}:
            known = [person.known_as[channel].casefold() for person in found.values() if channel in person.known_as]
            if len(set(known)) < len(known):
                raise SettingsError(
                    f"{self._file}: [people] two of them are the same in {channel}; an answer would be either's"
                )
        return found

    def _person(self, name: str, given: Mapping[str, Any]) -> Person:
        at = f"{self._file}: [people.{name}]"
        if name.startswith("policy:") or name == "agent" or len(name) > LONGEST_NAME:
            raise SettingsError(f"{at} nobody is called that; choose another name")
        own = {key: value for key, value in given.items() if key in _settings(PersonTable)}
        table = self._read(PersonTable, own, at=f"people.{name}")
        known_as = {key: value for key, value in given.items() if key not in own}
        if not all(isinstance(known, str) and known for known in known_as.values()):
            raise SettingsError(f'{at} says how each channel knows this person, as in linear = "ana@example.com"')
        return Person(name=name, known_as=known_as, notify=table.notify, may=table.may)

    def _given(self, table: Mapping[str, Any], name: str, *, at: str = "") -> dict[str, Any]:
        found = table.get(name, {})
        if not isinstance(found, dict):
            raise SettingsError(f"{self._file}: {at or name} is a table; write [{at or name}]")
        return found

    def _read(self, kind: type[T], given: Mapping[str, Any], *, at: str) -> T:
        known = _settings(kind)
        unknown = sorted(given.keys() - known.keys())
        if unknown:
            raise SettingsError(
                f"{self._file}: [{at}] does not know {unknown[0]!r}; it knows {', '.join(sorted(known))}"
            )
        try:
            read: T = _adapter(kind).validate_json(json.dumps(given, default=_as_nothing_we_take), strict=True)
            return read
        except ValidationError as invalid:
            name = str(invalid.errors(include_url=False)[0]["loc"][0])
        verb = "is" if name in given else "is missing; it is"
        raise SettingsError(f"{self._file}: [{at}] {name} {verb} {known[name].takes}")


def _as_nothing_we_take(date: object) -> list[dict[str, str]]:
    """TOML has dates and times. No setting is one, and as texts some would be taken."""
    return [{}]


# Made once: a file may have a thousand tables of one kind.
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
_settings: Callable[[Any], dict[str, Setting]] = cache(lambda kind: dict(settings_of(kind)))
