"""What people write in Linear while the desk is still learning that its question was posted."""

from __future__ import annotations

from typing import Any, cast

from handraise.app import open_store
from handraise.broker import Broker
from handraise.channels.linear.replies import Conversation, Replies, Writers
from handraise.channels.linear.room import LinearSession, Post, Room
from handraise.channels.linear.translate import elicitation
from handraise.channels.linear.webhooks import Person as Writer
from handraise.channels.linear.webhooks import Prompted
from handraise.people import People, Person
from handraise.testing import an_ask

ADA = Writer(id="u-ada", name="Ada", email="ada@example.com")
SHOWN_AT, WRITTEN_AT = "2026-01-01T12:00:00.000Z", "2026-01-01T12:00:00.500Z"


class PostedMeanwhile(Room):
    """The outbox ends with the question between two looks at it."""

    async def is_posting(self, session: str, ask: str) -> bool:
        [waiting] = await self.outgoing()
        await self.sent(waiting, at=1, shown_at=SHOWN_AT)
        return await super().is_posting(session, ask)


async def test_a_reply_counts_where_the_question_is_posted_between_two_looks_at_it() -> None:
    store = await open_store("sqlite:///:memory:")
    async with Broker(store) as broker:
        ask = an_ask(id="q", session="linear:s")
        await broker.open(ask)
        room = PostedMeanwhile(store, "linear")
        row = LinearSession(
            id="s", session="linear:s", kind="question", state="live", created_at=0, expires_at=10**15, ask="q"
        )
        await room.create(row, Post("asking", elicitation(ask, 0), ask="q"))
        replies = Replies(
            cast(Conversation, None),  # nothing is told: the reply closes the ask
            room=room,
            inbox=broker,
            hands=cast(Any, None),
            writers=Writers(People({"ada": Person(name="ada", known_as={"linear": "u-ada"})}), "linear"),
            clock=broker.clock,
            session_for=60_000,
            identity="verified",
        )
        label = ask.questions[0].options[0].label
        await replies.take(Prompted(session="s", activity="a1", text=label, user=ADA, stop=False, at=WRITTEN_AT))
        assert (await broker.get("q")).state == "answered"
    await store.close()
