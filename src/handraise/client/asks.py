"""The asks of a desk: raise them, answer them, read them, and say where they were shown."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from handraise.asks import Answer, Ask, Handling, State
from handraise.asks.places import resolve
from handraise.client.connection import Connection, path
from handraise.client.deliveries import Deliveries
from handraise.client.records import ask_fields, handling_fields
from handraise.client.replies import read
from handraise.errors import AskDoesNotFit, AskNotFound, Withdrawn
from handraise.wire.plain import from_plain

if TYPE_CHECKING:
    from handraise.channels import Showing

__all__ = ["Asks"]

WAIT = 50.0  # seconds one call is parked; proxies commonly cut at 60


class Asks:
    """Calling it lists them: `async for ask in desk.asks(state="asked")`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._deliveries = Deliveries(connection)

    # Asking -----------------------------------------------------------------------------------------------

    async def ask(
        self,
        ask: Ask,
        *,
        handling: Handling | None = None,
        ordinal: bool = False,
    ) -> Answer:
        """Raise a hand and wait, however long, across restarts of the desk.

        A rejection is an Answer too; raises Withdrawn. Whoever hands the answer on says `delivered` afterwards.
        """
        settled = await self.open(ask, handling=handling, ordinal=ordinal)
        # Waited for by reading: one that was withdrawn meanwhile must not be raised again.
        while settled.state == "asked":
            try:
                settled = await self.wait(settled.id, timeout=WAIT)
            except AskNotFound:  # the database is a backup from before it was asked
                settled = await self._open(ask, handling=handling, ordinal=ordinal)
        if settled.answer is None:
            raise Withdrawn(settled)
        return settled.answer

    async def open(
        self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False, worker: str | None = None
    ) -> Ask:
        """Raise a hand without waiting. `worker` is the name by which the caller waits for it."""
        if ordinal:  # what the agent has taken is over, also if that is not told yet
            await self._deliveries.send()
        return await self._open(ask, handling=handling, ordinal=ordinal, worker=worker)

    async def _open(
        self, ask: Ask, *, handling: Handling | None, ordinal: bool = False, worker: str | None = None
    ) -> Ask:
        ask = await resolve(ask)  # whoever asks through us is on this machine
        body = {**ask_fields(ask), **(handling_fields(handling) if handling else {}), "ordinal": ordinal}
        if worker is not None:
            body["worker"] = worker
        try:
            content = json.dumps(body, ensure_ascii=False).encode()
        except (
            TypeError,
            ValueError,
            RecursionError,
        ) as problem:  # half of a surrogate pair, an object that is no JSON
            raise AskDoesNotFit(f"it cannot be written as JSON: {problem}") from None
        return _ask(await self._connection.call("POST", path("asks"), content=content))

    async def withdraw(self, id: str, *, reason: str | None = None, answer: Answer | None = None) -> Ask:
        body: dict[str, Any] = {"reason": reason}
        if answer is not None:
            body["answer"] = _said(answer) | {"rejected": answer.rejected, "via": answer.via or None}
        return _ask(await self._connection.call("POST", path("asks", id, "withdraw"), body=body))

    def delivered(self, id: str, *, error: str | None = None) -> None:
        """Told to the desk soon, in batches."""
        self._deliveries.add(id, error=error)

    # Answering --------------------------------------------------------------------------------------------

    async def answer(self, id: str, answer: Answer) -> Ask:
        """The first answer counts; a different second one gets AlreadyAnswered."""
        if answer.rejected:
            return await self.reject(id, reason=answer.reason, by=answer.by, via=answer.via)
        body = {"by": answer.by or None, "via": answer.via or None} | _said(answer)
        return _ask(await self._connection.call("POST", path("asks", id, "answer"), body=body))

    async def reject(self, id: str, *, reason: str | None = None, by: str = "", via: str = "") -> Ask:
        body = {"reason": reason, "by": by or None, "via": via or None}
        return _ask(await self._connection.call("POST", path("asks", id, "reject"), body=body))

    async def keep_waiting(self, id: str) -> Ask:
        return _ask(await self._connection.call("POST", path("asks", id, "keep-waiting"), body={}))

    async def deliver_again(self, id: str) -> Ask:
        """Have the agent told an answer that it could not take. Raises NothingToDeliver, SessionEnded."""
        return _ask(await self._connection.call("POST", path("asks", id, "deliver"), body={}))

    # Showing ----------------------------------------------------------------------------------------------

    async def link(self, id: str, *, by: str, via: str) -> str:
        """Where whoever opens it may answer this ask, once, in the name of `by` if our token may speak for others."""
        told = await self._connection.call("POST", path("asks", id, "link"), body={"by": by, "via": via})
        return read(told, lambda told: str(json.loads(told)["url"]))

    async def showed(
        self, id: str, state: Showing, *, channel: str, place: str | None = None, error: str | None = None
    ) -> None:
        body = {"channel": channel, "state": state, "place": place, "error": error}
        await self._connection.call("POST", path("asks", id, "showings"), body=body)

    async def places(self, channel: str) -> Mapping[str, str]:
        told = await self._connection.call("GET", path("channels", channel, "places"))
        return read(told, lambda told: {str(ask): str(place) for ask, place in json.loads(told)["places"].items()})

    async def left(self, id: str, *, channel: str) -> None:
        await self._connection.call("POST", path("asks", id, "showings"), body={"channel": channel, "left": True})

    # Reading ----------------------------------------------------------------------------------------------

    async def cursor(self) -> int:
        """Where events stand now."""
        return read(await self._connection.call("GET", path("cursor")), lambda told: int(json.loads(told)["cursor"]))

    async def get(self, id: str) -> Ask:
        return _ask(await self._connection.call("GET", path("asks", id)))

    async def wait(self, id: str, *, timeout: float) -> Ask:
        """The ask once it is settled, or as it is when `timeout` seconds have passed. Takes nothing from the agent.

        A desk that was reached and cannot say right now is asked again for as long as it takes.
        """
        wait = min(timeout, WAIT)
        target = path("asks", id, wait=f"{wait:g}")
        return _ask(await self._connection.call("GET", target, silence=wait + 10, refusals=math.inf))

    async def __call__(
        self,
        *,
        state: State | Literal["settled"] | None = None,
        agent: str | None = None,
        session: str | None = None,
        run: str | None = None,
        search: str | None = None,
        newest: bool = False,
    ) -> AsyncIterator[Ask]:
        """Every ask that fits, oldest first unless `newest`. `search` is a text that people see in it, in any case."""
        filters = {"state": state, "agent": agent, "session": session, "run": run, "q": search or None}
        filters["order"] = "newest" if newest else None
        after: str | None = None
        while True:
            page = await self._connection.call("GET", path("asks", **filters, after=after))
            asks, after = read(page, _page)
            for ask in asks:
                yield ask
            if after is None:
                return


def _ask(told: bytes) -> Ask:
    return read(told, lambda told: from_plain(Ask, json.loads(told)))


def _page(told: bytes) -> tuple[list[Ask], str | None]:
    page = json.loads(told)
    return [from_plain(Ask, ask) for ask in page["asks"]], page.get("next")


def _said(answer: Answer) -> dict[str, Any]:
    """What an answer says, as the fields of a body."""
    if answer.reply is None:
        return {"answers": answer.answers, "notes": answer.notes, "message": answer.reason}
    return {
        "reply": answer.reply,
        "message": answer.reason,
        "input": answer.input,
        "scope": answer.scope,
        "patterns": answer.patterns,
    }
