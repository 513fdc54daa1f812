"""The people who answer: what each is called, how each is known in every place, and what each may decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from handraise.asks import Ask
from handraise.errors import Forbidden

__all__ = ["MAY", "USUALLY", "May", "People", "Person"]

May = Literal["questions", "permissions", "risky", "start"]
MAY: tuple[May, ...] = get_args(May)
USUALLY: tuple[May, ...] = ("questions", "permissions", "start")


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """`[people.NAME]` of the settings."""

    name: str
    known_as: Mapping[str, str] = field(default_factory=dict)  # by the name of the channel
    notify: tuple[str, ...] = ()  # addresses that reach this person alone
    may: tuple[May, ...] = USUALLY

    def may_decide(self, ask: Ask) -> bool:
        """Whether this one may say anything about it. To refuse what is risky takes no more than any permission."""
        from handraise.risks import risks_of  # long, and most who read the settings never need it

        if ask.permission is None:
            return "questions" in self.may
        return "permissions" in self.may or ("risky" in self.may and bool(risks_of(ask)))


class People:
    def __init__(self, people: Mapping[str, Person] | None = None) -> None:
        self._people = people or {}

    def __iter__(self) -> Iterator[Person]:
        return iter(self._people.values())

    def named(self, name: str) -> Person | None:
        return self._people.get(name)

    def known(self, channel: str, *ids: str) -> str | None:
        """Which of these, an id or an address, somebody is known by there."""
        return next((id for id in ids if self.find(channel, id) is not None), None)

    def find(self, channel: str, id: str) -> Person | None:
        if not id:
            return None
        wanted = id.casefold()
        return next(
            (person for person in self._people.values() if person.known_as.get(channel, "").casefold() == wanted), None
        )

    def check(self, id: str, ask: Ask, *, channel: str, identity: str, rejects: bool = False) -> Person:
        """Who is known there by this, if that one may decide this. Raises Forbidden.

        In a place that others can reach too nobody may who is not listed. Refusing does no harm: whoever may decide
        permissions may do that, also where nobody is sure who it is.
        """
        from handraise.risks import risks_of  # long, and most who read the settings never need it

        person = self.find(channel, id)
        if person is None:
            raise Forbidden(f"whoever answered in {channel} is not listed under [people], so it does not count")
        needed: May = "questions"
        if ask.permission is not None:
            needed = "risky" if not rejects and risks_of(ask) else "permissions"
        if needed == "risky" and identity == "shared":
            raise Forbidden(f"this can do harm, and {channel} does not say for sure who answers: allow it at the desk")
        if needed not in person.may:
            raise Forbidden(f"{person.name} may not decide this: [people.{person.name}] may has no {needed!r}")
        return person
