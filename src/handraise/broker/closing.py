"""What else closing an ask means: records that others write in the same commit, lasting rules, and counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from handraise.asks import Answer, Ask
from handraise.broker import states
from handraise.broker.counts import Counts
from handraise.rules.book import Rulebook
from handraise.stores import NO_EXTRA_WRITES, AlsoWrite, Change, Changed, Store
from handraise.wire import Stored

__all__ = ["Closing", "CommitHook"]


class CommitHook(Protocol):
    """Keeps a record of what one kind of agent asks. The record changes in the commit that closes the ask."""

    async def closing(self, ask: Ask, answer: Answer | None, *, at: int) -> AlsoWrite:
        """What is also written if this closes the ask. Without an answer it is withdrawn."""


class Closing:
    """`deliver` is called with the id of an ask whose record has the answer by the same commit."""

    def __init__(self, store: Store, *, rules: Rulebook, counts: Counts, deliver: Callable[[str], None]) -> None:
        self.hooks: dict[str, CommitHook] = {}  # by the name of the agent
        self._store = store
        self._rules = rules
        self._counts = counts
        self._deliver = deliver

    async def answer_writes(self, ask: Ask, answer: Answer, *, at: int) -> AlsoWrite:
        """What a hook writes, and the rules that an `always` makes: an agent may ask again at once."""
        also_write = await self._hook_writes(ask, answer, at=at)
        # What an agent says of its own terminal lasts there. Here whoever may only ask would make rules for others.
        if answer.reply != "always" or answer.by == states.BY_AGENT:
            return also_write
        stored = await self._store.get(ask.id)
        kept = [] if stored is None else self._rules.keeping(ask, answer, owner=stored.owner, at=at)
        return also_write._replace(statements=[*also_write.statements, *kept])

    async def withdrawal_writes(self, id: str, *, at: int) -> AlsoWrite:
        stored = await self._store.get(id) if self.hooks else None
        return NO_EXTRA_WRITES if stored is None else await self._stored_writes(stored, None, at=at)

    async def by_policy(self, stored: Stored, answer: Answer, *, at: int, due: int | None = None) -> Change:
        return states.close(answer, at=at, due=due, also_write=await self._stored_writes(stored, answer, at=at))

    def count(self, changed: Changed | None, *, by: str, at: int) -> None:
        """If this write was the one: who decided, how long it took, and that a hook's record has it."""
        if changed is None or not changed.done:
            return
        self._counts.decided(by, after=at - changed.stored.asked_at)
        if changed.stored.agent in self.hooks:
            self._deliver(changed.stored.id)

    async def _stored_writes(self, stored: Stored, answer: Answer | None, *, at: int) -> AlsoWrite:
        if stored.agent not in self.hooks:  # then nothing is parsed
            return NO_EXTRA_WRITES
        return await self._hook_writes(stored.ask(), answer, at=at)

    async def _hook_writes(self, ask: Ask, answer: Answer | None, *, at: int) -> AlsoWrite:
        hook = self.hooks.get(ask.origin.agent)
        return NO_EXTRA_WRITES if hook is None else await hook.closing(ask, answer, at=at)
