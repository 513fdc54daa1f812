"""The routes of answer links: who may come in with one, how often one may guess, and what a button does."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

from htpy import p
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handraise.broker import Broker
from handraise.clock import Clock, give_way
from handraise.errors import AlreadyAnswered, AnswerDoesNotFit, AskNotFound, AskWithdrawn, StoreError
from handraise.people import People
from handraise.server.declare import declare, in_path, mount
from handraise.server.http import TooLarge, read_body
from handraise.server.pages._page import page, words_for
from handraise.server.pages.ask import AskForm
from handraise.server.pages.outcome import over_page, sent_page
from handraise.server.pages.typed import MOST_TYPED, Problems, Typed, read_form
from handraise.server.web import WEB
from handraise.tables.audit import source
from handraise.tables.links import Link
from handraise.tables.tokens import Tokens
from handraise.text.words import Words
from handraise.wire import LARGE, Stored

__all__ = ["Pages"]

log = logging.getLogger(__name__)

SHEET = Path(__file__).parents[2] / "web" / "plain.css"
MOST_WRONG, PERIOD = 30, 60_000  # links that lead nowhere from one address in so many milliseconds
MOST_ADDRESSES = 10_000

LINK_IN_PATH = in_path("link", meaning="What the link holds.")


class Pages:
    """The answer pages. A link says by itself who may come in, so no token is wanted here."""

    def __init__(self, broker: Broker, *, tokens: Tokens, people: People | None = None) -> None:
        self._broker = broker
        self._tokens = tokens
        self._people = people or People()
        self._links = broker.links
        self._guesses = _Guesses(broker.clock)
        self._style = SHEET.read_bytes()

    def routes(self) -> list[Route]:
        return mount(self)

    @declare(
        "GET /a/style.css",
        id="read_the_style_of_plain_pages",
        summary="The style of the pages that need no script",
        tag=WEB,
        scope=None,
        replies={200: ("text/css", "A style sheet.")},
    )
    async def _sheet(self, request: Request) -> Response:
        headers = {"cache-control": "max-age=3600", "x-content-type-options": "nosniff"}
        return Response(self._style, media_type="text/css", headers=headers)

    @declare(
        "GET /a/{link}",
        id="show_an_answer_page",
        summary="The ask of an answer link, as a form. Looking at it answers nothing and does not use the link up",
        tag=WEB,
        scope=None,
        parameters=(LINK_IN_PATH,),
        replies={
            200: ("text/html", "The form."),
            404: ("text/html", "The link leads nowhere."),
            410: ("text/html", "The link has ended, or its ask is settled."),
            429: ("text/html", "Too many links that lead nowhere came from this address."),
        },
    )
    async def _show(self, request: Request) -> Response:
        t = words_for(request)
        found = await self._open(request, t)
        if isinstance(found, Response):
            return found
        _, stored = found
        if len(stored.content) > LARGE:
            await give_way()
        return AskForm(t, stored).draw(Typed())

    @declare(
        "POST /a/{link}",
        id="send_an_answer_page",
        summary="What was filled in. The answer that settles the ask uses the link up",
        tag=WEB,
        scope=None,
        parameters=(LINK_IN_PATH,),
        replies={
            200: ("text/html", "It is settled, or the deadline was moved."),
            404: ("text/html", "The link leads nowhere."),
            410: ("text/html", "The link has ended, or its ask is settled."),
            429: ("text/html", "Too many links that lead nowhere came from this address."),
            409: ("text/html", "Somebody was faster."),
            422: ("text/html", "The form again, with what is wrong; the link is as good as before."),
            503: ("text/html", "The form again: the database failed, and nothing was kept."),
        },
        refusals=(TooLarge,),
    )
    async def _answer(self, request: Request) -> Response:
        t = words_for(request)
        found = await self._open(request, t)
        if isinstance(found, Response):
            return found
        link, stored = found
        typed = read_form(await read_body(request.scope, request.receive, most=MOST_TYPED))
        address = request.client.host if request.client else None
        try:
            return await self._done(
                t, link, stored, typed, source=source(link.maker or None, address, identity="shared")
            )
        except (AlreadyAnswered, AskWithdrawn, AskNotFound):
            return over_page(t, await self._broker.store.get(stored.id), status=409)
        except StoreError as failure:
            log.warning("an answer could not be written down: %s", failure)
            return AskForm(t, stored).draw(typed, problems=Problems(page=[t("link.failed")]), status=503)

    async def _open(self, request: Request, t: Words) -> tuple[Link, Stored] | Response:
        """The link and its ask if it may be answered; otherwise the page that says why not."""
        address = request.client.host if request.client else ""
        link = await self._links.find(request.path_params["link"])
        if link is None:
            if self._guesses.too_many(address):
                return page(t, t("link.unknown"), p[t("link.tooMany")], status=429)
            return page(t, t("link.unknown"), p[t("link.unknown.text")], status=404)
        if link.expires_at <= self._broker.clock.now():
            return over_page(t, None)
        stored = await self._broker.store.get(link.ask)
        if stored is None or not self._counts(link, stored):
            return over_page(t, None)
        if stored.state != "asked":
            return over_page(t, stored, was_used=link.used_at is not None)
        return (
            (link, stored) if link.used_at is None else over_page(t, None)
        )  # one that was used has answered another ask

    def _counts(self, link: Link, stored: Stored) -> bool:
        """A link is as good as the token it was made with; one of the desk's own, as the person it was made for."""
        if not link.maker:
            person = self._people.named(link.by)
            return person is not None and person.may_decide(stored.ask())
        maker = self._tokens.named(link.maker)
        return maker is not None and maker.may("answer")

    async def _done(self, t: Words, link: Link, stored: Stored, typed: Typed, *, source: str) -> Response:
        """Carry out what a button says. The form again, with what was typed, where something is missing or wrong."""
        form = AskForm(t, stored)
        if typed.button == "wait":
            stored = await self._broker.keep_waiting_stored(stored.id, source=source)
            return AskForm(t, stored).draw(typed, notice=t("link.waited"))
        if typed.button == "allow" and not form.may_allow:
            return form.draw(typed, problems=Problems(page=[t("link.atDesk")]), status=403)
        answer, problems = form.read(typed)
        if answer is None:
            return form.draw(typed, problems=problems, status=422)
        answer = replace(answer, by=link.by, via=link.via)
        try:
            stored = await self._broker.answer_stored(stored.id, answer, allow_repeat=False, source=source)
        except AnswerDoesNotFit as unfit:
            return form.draw(typed, problems=Problems.of(unfit), status=422)
        await self._links.use(link)
        return sent_page(t, stored)


class _Guesses:
    """How often an address named links that lead nowhere.

    A secret has 256 bits, so no rate would make guessing worth while. What counts is that a guesser cannot shut out
    those who come through the same proxy: a link that leads somewhere always works.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = 0
        self._wrong: Counter[str] = Counter()

    def too_many(self, address: str) -> bool:
        now = self._clock.now()
        if now - self._since > PERIOD or len(self._wrong) > MOST_ADDRESSES:
            self._since, self._wrong = now, Counter()
        self._wrong[address] += 1
        return self._wrong[address] > MOST_WRONG
