"""The people who answer: what each is called, how each is known in every place, and what each may decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from handraise.asks import Ask
from handraise.asks.card import IN_NOTIFICATION, is_longer, whole_of
from handraise.errors import Forbidden

__all__ = [
    "MAY",
    "USUALLY",
    "Identity",
    "May",
    "People",
    "Person",
    "reason_not_to_allow",
    "reason_not_to_allow_in_notification",
]

Identity: TypeAlias = Literal["strong", "shared"]  # a place says which person answers, or only that somebody did
KNOWN_REPLIES = ("once", "always")
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
        if ask.permission is None:
            return "questions" in self.may
        return "permissions" in self.may or ("risky" in self.may and is_risky(ask))


def is_risky(ask: Ask) -> bool:
    """As it was judged when it was asked."""
    from handraise.rules.risks import judgement_of  # long, and most who read the settings never need it

    return ask.permission is not None and bool(judgement_of(ask).risks)


def reason_not_to_allow(ask: Ask, *, identity: Identity, longest: int | None = None, reply: str = "once") -> str | None:
    """Why a yes to a permission does not count from such a place; None where it does. A no always counts.

    `longest` is how many characters the place shows of it; None where it shows everything.
    """
    if ask.permission is None:
        return None
    if longest is not None and is_longer(ask.permission, longest):
        return "it is longer than what is shown there"
    if identity == "strong":
        return None
    if reply not in KNOWN_REPLIES:
        return "this desk does not know what that reply allows"
    from handraise.rules.risks import judgement_of  # as above

    return judgement_of(ask).only_at_desk


def reason_not_to_allow_in_notification(ask: Ask, *, reply: str) -> str | None:
    """The same for a button of a browser's notification, which shows a command and nothing else."""
    if ask.permission is None:
        return None
    if whole_of(ask.permission) != ask.permission.command:
        return "a notification does not show all of it"
    return reason_not_to_allow(ask, identity="shared", longest=IN_NOTIFICATION, reply=reply)


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

    def check(
        self,
        id: str,
        ask: Ask,
        *,
        channel: str,
        identity: Identity,
        longest: int | None = None,
        reply: str | None = None,
    ) -> Person:
        """Who is known there by this, if that one may decide this. Raises Forbidden.

        In a place that others can reach too nobody may who is not listed. `reply` is what a permission would be allowed
        with, and None where it is refused: refusing does no harm, so whoever may decide permissions may do that, also
        where nobody is sure who it is.
        """
        person = self.find(channel, id)
        if person is None:
            raise Forbidden(f"whoever answered in {channel} is not listed under [people], so it does not count")
        needed: May = "questions"
        if ask.permission is not None:
            needed = "risky" if reply is not None and is_risky(ask) else "permissions"
        if reply is not None:
            reason = reason_not_to_allow(ask, identity=identity, longest=longest, reply=reply)
            if reason is not None:
                raise Forbidden(f"{channel} cannot allow this, because {reason}: allow it at the desk")
        if needed not in person.may:
            raise Forbidden(f"{person.name} may not decide this: [people.{person.name}] may has no {needed!r}")
        return person
