"""Plain pages: signing in, and the form behind an answer link. A GET of them never changes anything or runs a script.

What an agent wrote is escaped and made inert here, and hidden characters are marked; nothing of it becomes markup.
"""

from __future__ import annotations

import binascii
import html
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from handraise.asks import Answer, Ask, Option, Permission, Question
from handraise.asks.card import (
    MOST_DESCRIPTION,
    MOST_HEADER,
    MOST_LABEL,
    MOST_NAME,
    MOST_PREVIEW,
    MOST_QUESTION,
    badges_of,
    is_longer,
    names,
    picked_by_silence,
    to_card,
)
from handraise.broker import Broker
from handraise.clock import Clock, give_way
from handraise.errors import AlreadyAnswered, AnswerDoesNotFit, AskNotFound, AskWithdrawn, StoreError
from handraise.people import People, reason_not_to_allow
from handraise.server.http import read_body
from handraise.tables.audit import source
from handraise.tables.links import Link
from handraise.tables.tokens import Tokens
from handraise.text.inert import has_hidden, inert, pieces
from handraise.text.words import Words, preferred, speak
from handraise.wire import LARGE, Stored

__all__ = ["Pages", "page", "signed_in_page", "words_for"]

log = logging.getLogger(__name__)

STYLE = "/a/style.css"
SHEET = Path(__file__).parents[1] / "web" / "plain.css"
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    # To nobody else. `no-referrer` would make browsers send `Origin: null` with a form, which no gate could tell from
    # a stranger's.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-robots-tag": "noindex, nofollow",
    "cache-control": "no-store",
}
MOST_FIELDS = 25_000  # of a form: an ask has fewer options than a body may have values
MOST_TYPED = 1024 * 1024  # bytes of a form, from somebody who has a link and no token
LONGEST_SHOWN = 40_000  # characters of a permission; drawing megabytes takes seconds, and nobody reads them here
MOST_SHOWN = 2_000  # of its paths
FOLD_DIFF = 200  # changed lines from which a diff starts folded
OWN, SKIPPED = "own", ""  # the radios beside the options
_HALF_ESCAPED = re.compile(rb"%(?![0-9A-Fa-f]{2})")
MOST_WRONG, PERIOD = 30, 60_000  # links that lead nowhere from one address in so many milliseconds
MOST_ADDRESSES = 10_000


def page(t: Words, title: str, body: str, *, status: int = 200, agent_title: bool = False) -> HTMLResponse:
    """A whole page. `title` is plain text, `body` is markup. Where an agent wrote the title, it reads its own way."""
    way = ' dir="auto"' if agent_title else ""
    return HTMLResponse(
        f'<!doctype html><html lang="{t.language}" dir="{t("dir")}"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)} · handraise</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="robots" content="noindex"><meta name="color-scheme" content="light dark">'
        f'<link rel="stylesheet" href="{STYLE}"></head>'
        f"<body><main><h1{way}>{html.escape(title)}</h1>{body}</main></body></html>",
        status_code=status,
        headers=HEADERS | {"content-language": t.language, "vary": "accept-language"},
    )


def signed_in_page(t: Words, secret: str) -> HTMLResponse:
    """Hands a browser its half of a session: a script of the app keeps it for this origin, and goes on to the inbox.

    It stands in the page, which no other origin can read, no cache keeps and no history leads back to. An address
    would be written down on the way."""
    response = page(
        t,
        t("signin.title"),
        f'<p id="session" data-secret="{html.escape(secret)}" hidden>{html.escape(t("signin.unkept"))}</p>'
        f"<noscript><p>{html.escape(t('signin.noScript'))}</p></noscript>"
        '<script type="module" src="/app/sign_in.js"></script>',
    )
    response.headers["content-security-policy"] = (
        "default-src 'none'; script-src 'self'; style-src 'self'; form-action 'none'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )
    return response


def words_for(request: Request) -> Words:
    return speak(preferred(request.headers.get("accept-language", "")))


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
        return [
            Route(STYLE, self._sheet),
            Route("/a/{link}", self._show),
            Route("/a/{link}", self._answer, methods=["POST"]),
        ]

    async def _sheet(self, request: Request) -> Response:
        headers = {"cache-control": "max-age=3600", "x-content-type-options": "nosniff"}
        return Response(self._style, media_type="text/css", headers=headers)

    async def _show(self, request: Request) -> Response:
        t = words_for(request)
        found = await self._open(request, t)
        if isinstance(found, Response):
            return found
        _, stored = found
        if len(stored.content) > LARGE:
            await give_way()
        return _Card(t, stored).form(_Typed())

    async def _answer(self, request: Request) -> Response:
        t = words_for(request)
        found = await self._open(request, t)
        if isinstance(found, Response):
            return found
        link, stored = found
        typed = _typed(await read_body(request.scope, request.receive, most=MOST_TYPED))
        address = request.client.host if request.client else None
        try:
            return await self._done(
                t, link, stored, typed, source=source(link.maker or None, address, identity="shared")
            )
        except (AlreadyAnswered, AskWithdrawn, AskNotFound):
            return _over(t, await self._broker.store.get(stored.id), status=409)
        except StoreError as failure:
            log.warning("an answer could not be written down: %s", failure)
            card = _Card(t, stored)
            return card.form(typed, problems=_Problems(page=[t("link.failed")]), status=503)

    async def _open(self, request: Request, t: Words) -> tuple[Link, Stored] | Response:
        """The link and its ask if it may be answered; otherwise the page that says why not."""
        address = request.client.host if request.client else ""
        link = await self._links.find(request.path_params["link"])
        if link is None:
            if self._guesses.too_many(address):
                return page(t, t("link.unknown"), f"<p>{html.escape(t('link.tooMany'))}</p>", status=429)
            return page(t, t("link.unknown"), f"<p>{html.escape(t('link.unknown.text'))}</p>", status=404)
        if link.expires_at <= self._broker.clock.now():
            return _over(t, None)
        stored = await self._broker.store.get(link.ask)
        if stored is None or not self._counts(link, stored):
            return _over(t, None)
        if stored.state != "asked":
            return _over(t, stored, was_used=link.used_at is not None)
        return (link, stored) if link.used_at is None else _over(t, None)  # one that was used has answered another ask

    def _counts(self, link: Link, stored: Stored) -> bool:
        """A link is as good as the token it was made with; one of the desk's own, as the person it was made for."""
        if not link.maker:
            person = self._people.named(link.by)
            return person is not None and person.may_decide(stored.ask())
        maker = self._tokens.named(link.maker)
        return maker is not None and maker.may("answer")

    async def _done(self, t: Words, link: Link, stored: Stored, typed: _Typed, *, source: str) -> Response:
        """Carry out what a button says. The form again, with what was typed, where something is missing or wrong."""
        card = _Card(t, stored)
        if typed.button == "wait":
            stored = await self._broker.keep_waiting_stored(stored.id, source=source)
            return _Card(t, stored).form(typed, notice=t("link.waited"))
        if typed.button == "allow" and card.refusal is not None:
            return card.form(typed, problems=_Problems(page=[t("link.atDesk")]), status=403)
        said, problems = card.read(typed)
        if said is None:
            return card.form(typed, problems=problems, status=422)
        answer = Answer(
            answers=said.answers,
            reply=said.reply,
            scope=said.scope,
            rejected=said.rejected,
            reason=said.reason,
            by=link.by,
            via=link.via,
        )
        try:
            stored = await self._broker.answer_stored(stored.id, answer, allow_repeat=False, source=source)
        except AnswerDoesNotFit as unfit:
            return card.form(typed, problems=_Problems.of(unfit), status=422)
        await self._links.use(link)
        return _sent(t, stored)


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


# What was typed ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Typed:
    """A form as it was sent, still escaped; empty where it is shown for the first time."""

    fields: Mapping[str, Sequence[bytes]] = field(default_factory=dict)

    @property
    def button(self) -> str:
        return self.text("do")

    def text(self, name: str) -> str:
        """As the person wrote it; a form has its own ends of lines."""
        return _unescaped((self.fields.get(name) or [b""])[-1]).replace("\r\n", "\n").replace("\r", "\n")

    def picked(self, name: str) -> Sequence[str]:
        return [_unescaped(value) for value in self.fields.get(name, ())]

    def option(self, name: str, options: Sequence[Any]) -> list[int]:
        """The places of what was picked among these."""
        return [int(each) for each in self.picked(name) if each.isascii() and each.isdigit() and len(each) < 5]


def _typed(body: bytes) -> _Typed:
    """Whoever has a link can send this. Only what our own form asks for is unescaped, when it is needed."""
    pieces = body.split(b"&", MOST_FIELDS)
    if len(pieces) > MOST_FIELDS or _HALF_ESCAPED.search(body):  # no browser sends that for a form of ours
        pieces = []
    fields: dict[str, list[bytes]] = {}
    for piece in pieces:
        name, _, value = piece.partition(b"=")
        fields.setdefault(name.decode("latin-1"), []).append(value)
    return _Typed(fields=fields)


def _unescaped(value: bytes) -> str:
    """As `urllib` does it, which makes an object of every escape: 72 MB and 0.2 s for a form of 1 MiB. Quoted-printable
    has the same escapes behind another sign, and is read by native code."""
    escaped = value.replace(b"+", b" ")
    if b"%" in escaped:
        escaped = binascii.a2b_qp(escaped.replace(b"=", b"=3D").replace(b"%", b"="))
    return escaped.decode("utf-8", "replace")


@dataclass(frozen=True, kw_only=True)
class _Problems:
    page: Sequence[str] = ()
    questions: Mapping[int, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, unfit: AnswerDoesNotFit) -> _Problems:
        by_question: dict[int, list[str]] = {}
        for each in unfit.problems:
            if each.get("question") is not None:
                by_question.setdefault(each["question"], []).append(str(each["problem"]))
        return cls(
            page=[str(each["problem"]) for each in unfit.problems if each.get("question") is None],
            questions=by_question,
        )


@dataclass(frozen=True, kw_only=True)
class _Said:
    answers: tuple[tuple[str, ...], ...] | None = None
    reply: str | None = None
    scope: str | None = None
    rejected: bool = False
    reason: str | None = None


# The card ---------------------------------------------------------------------------------------------------


class _Card:
    """One ask as a form."""

    def __init__(self, t: Words, stored: Stored) -> None:
        self._t = t
        self._ask = stored.ask()
        self._risks = self._ask.risks or ()
        permission = self._ask.permission
        is_cut = permission is not None and (len(permission.paths) > MOST_SHOWN or is_longer(permission, LONGEST_SHOWN))
        # Then it can only be denied here: nobody sees all of it, or a link proves no more than that somebody holds it.
        self.refusal = "it is too long" if is_cut else reason_not_to_allow(self._ask, identity="shared")
        self._ways = [
            (reply, scope)
            for reply, scope in (permission.ways if permission is not None and not is_cut else ())
            if reason_not_to_allow(self._ask, identity="shared", reply=reply) is None
        ]

    def read(self, typed: _Typed) -> tuple[_Said | None, _Problems]:
        """What the person says; None and the problems where that is not clear yet."""
        reason = typed.text("reason").strip() or None
        if typed.button in ("decline", "deny"):
            return _Said(rejected=True, reason=reason), _Problems()
        if typed.button == "send" and self._ask.permission is None:
            return self._answers(typed)
        if typed.button == "allow" and self._ask.permission is not None:
            return self._reply(typed, reason=reason)
        return None, _Problems(page=[self._t("link.press")])

    def _answers(self, typed: _Typed) -> tuple[_Said | None, _Problems]:
        answers, problems = [], {}
        for index, question in enumerate(self._ask.questions):
            values, problem = self._values(index, question, typed)
            answers.append(tuple(values))
            if problem:
                problems[index] = [problem]
        return (None, _Problems(questions=problems)) if problems else (_Said(answers=tuple(answers)), _Problems())

    def _values(self, index: int, question: Question, typed: _Typed) -> tuple[list[str], str]:
        picked, own = typed.option(f"q{index}", question.options), typed.text(f"own{index}").strip()
        if any(place >= len(question.options) for place in picked):
            return [], self._t("link.press")
        values = [question.options[place].value for place in picked]
        if question.multiple:
            return [*values, own] if own else values, ""
        if OWN in typed.picked(f"q{index}"):
            return ([own], "") if own else ([], self._t("link.ownEmpty"))
        if values and own:
            return [], self._t("link.both", own=self._t("question.own.label"))
        return values or ([own] if own else []), ""

    def _reply(self, typed: _Typed, *, reason: str | None) -> tuple[_Said | None, _Problems]:
        picked = typed.option("reply", self._ways) or ([0] if len(self._ways) == 1 else [])
        if len(picked) != 1 or picked[0] >= len(self._ways):
            return None, _Problems(page=[self._t("link.pickScope")])
        reply, scope = self._ways[picked[0]]
        return _Said(reply=reply, scope=scope, reason=reason), _Problems()

    # Drawing

    def form(
        self, typed: _Typed, *, problems: _Problems | None = None, notice: str = "", status: int = 200
    ) -> HTMLResponse:
        ask, problems = self._ask, problems or _Problems()
        body = [
            _origin(ask),
            self._summary(problems) if problems.page or problems.questions else "",
            f'<p role="status" class="notice">{html.escape(notice)}</p>' if notice else "",
            '<form method="post" accept-charset="utf-8">',
            # Enter presses the first button of a form. This one does nothing, so nothing is answered by accident.
            "<button disabled hidden></button>",
        ]
        if ask.permission is None:
            for index, question in enumerate(ask.questions):
                body.append(self._question(index, question, typed, problems.questions.get(index, ())))
            body.append(self._deadline())
            body.append(self._buttons(_button("send", self._t("action.send"), kind="first")))
            body.append(self._decline(typed))
        else:
            body += self._permission(ask.permission, typed)
        body.append("</form>")
        title = self._title()
        return page(self._t, title, "".join(body), status=status, agent_title=True)

    def _title(self) -> str:
        ask = self._ask
        agent = _short(ask.origin.agent, MOST_NAME)
        if ask.permission is not None:
            return to_card(ask).heading.say(self._t, show=_short)
        return self._t("link.asks", agent=agent)

    def _summary(self, problems: _Problems) -> str:
        lines = [f"<li>{_shown(each, keep='')}</li>" for each in problems.page]
        for index, sentences in problems.questions.items():
            name = self._t("question.step", current=index + 1, total=len(self._ask.questions))
            lines += [
                f'<li><a href="#q{index}">{html.escape(name)}</a>: {_shown(each, keep="")}</li>' for each in sentences
            ]
        fix = html.escape(self._t("link.fix"))
        return f'<div role="alert" class="problem"><p>{fix}</p><ul>{"".join(lines)}</ul></div>'

    def _question(self, index: int, question: Question, typed: _Typed, problems: Sequence[str]) -> str:
        total = len(self._ask.questions)
        step = self._t("question.step", current=index + 1, total=total) if total > 1 else ""
        header = f'<span class="header" dir="auto">{_shown(_cut(question.header, MOST_HEADER), keep="")}</span>'
        hint = self._t("question.hint.multi" if question.multiple else "question.hint.single")
        wrong = f' aria-describedby="q{index}-problem"' if problems else ""
        parts = [
            f'<fieldset id="q{index}"{wrong}><legend>',
            f'<span class="step">{html.escape(step)}</span>' if step else "",
            header if question.header and question.header != question.question else "",
            f'<span class="text" dir="auto">{_shown(_cut(question.question, MOST_QUESTION))}</span></legend>',
            self._whole(question.question, MOST_QUESTION),
            f'<p class="problem" id="q{index}-problem">{"<br>".join(_shown(each, keep="") for each in problems)}</p>'
            if problems
            else "",
            f'<p class="hint">{html.escape(hint)}</p>' if question.options else "",
        ]
        picked = typed.picked(f"q{index}")
        silent = picked_by_silence(self._ask, index)
        for place, (option, name) in enumerate(zip(question.options, names(question.options, t=self._t), strict=True)):
            parts.append(self._option(index, place, question, option, name, picked=str(place) in picked, silent=silent))
        takes_own = question.custom or not question.options
        if question.options and takes_own and not question.multiple:
            parts.append(_radio(f"q{index}", OWN, html.escape(self._t("question.own.label")), checked=OWN in picked))
        if takes_own:
            parts.append(self._own(index, question, typed))
        if question.options and not question.multiple and total > 1:
            skipped = picked == [SKIPPED]
            parts.append(_radio(f"q{index}", SKIPPED, html.escape(self._t("question.notAnswered")), checked=skipped))
        parts.append("</fieldset>")
        return "".join(parts)

    def _option(
        self,
        index: int,
        place: int,
        question: Question,
        option: Option,
        name: str,
        *,
        picked: bool,
        silent: Sequence[str],
    ) -> str:
        badges = badges_of(option, is_default=option.value in silent)
        marks = "".join(f' <span class="badge">{html.escape(self._t(f"question.{badge}"))}</span>' for badge in badges)
        about = f"q{index}-{place}-about" if option.description else ""
        box = _input(
            "checkbox" if question.multiple else "radio", f"q{index}", str(place), checked=picked, described=about
        )
        described = ""
        if option.description:
            text = _shown(_cut(option.description, MOST_DESCRIPTION))
            described = f'<p class="about" id="{about}" dir="auto">{text}</p>'
            described += self._whole(option.description, MOST_DESCRIPTION)
        preview = ""
        if option.preview:
            text = _shown(_cut(option.preview, MOST_PREVIEW))
            preview = (
                f"<details><summary>{html.escape(self._t('link.preview'))}</summary>"
                f'<pre dir="auto">{text}</pre></details>'
            )
        return (
            f'<div class="choice"><label>{box}<span dir="auto">{_marked(name)}</span>{marks}</label>'
            f"{self._whole(option.label, MOST_LABEL)}{described}{preview}</div>"
        )

    def _own(self, index: int, question: Question, typed: _Typed) -> str:
        label = html.escape(self._t("question.own.label"))
        text = html.escape(typed.text(f"own{index}"))
        # A radio says it already; a second, visible one would be read twice.
        named = f'aria-label="{label}"' if question.options and not question.multiple else ""
        visible = "" if named else f'<label for="own{index}">{label}</label>'
        if question.kind == "number":
            field = f'id="own{index}" name="own{index}" inputmode="decimal" autocomplete="off" value="{text}"'
            return f"{visible}<input {field} {named}>"
        # A form drops the first end of a line, so it begins with one.
        return f'{visible}<textarea id="own{index}" name="own{index}" rows="3" dir="auto" {named}>\n{text}</textarea>'

    def _whole(self, text: str, limit: int) -> str:
        """All of a text that was cut."""
        if len(text) <= limit:
            return ""
        name = html.escape(self._t("text.showAll", count=len(text)))
        return f'<details><summary>{name}</summary><pre dir="auto">{_shown(text)}</pre></details>'

    def _deadline(self) -> str:
        sentence = _deadline(self._t, self._ask)
        if sentence is None:
            return ""
        return f'<p class="deadline">{html.escape(sentence)} {_button("wait", self._t("action.keepWaiting"))}</p>'

    def _buttons(self, *buttons: str) -> str:
        return f'<p class="buttons">{"".join(buttons)}</p>'

    def _reason(self, typed: _Typed, label: str) -> str:
        text = html.escape(typed.text("reason"))
        return (
            f'<label for="reason">{html.escape(label)}</label>'
            f'<textarea id="reason" name="reason" rows="2" dir="auto">\n{text}</textarea>'
        )

    def _decline(self, typed: _Typed) -> str:
        decline = html.escape(self._t("action.decline"))
        is_open = " open" if typed.text("reason") else ""
        return (
            f'<details class="decline"{is_open}><summary>{decline}</summary>'
            f"{self._reason(typed, self._t('action.decline.reason'))}"
            f"{self._buttons(_button('decline', self._t('action.decline')))}</details>"
        )

    def _permission(self, permission: Permission, typed: _Typed) -> Iterator[str]:
        t = self._t
        card = to_card(self._ask)
        texts = {part.name: part.text for part in card.parts}
        text = "\n\n".join(texts[name] for name in ("plan", "arguments", "approved") if name in texts)
        named = [each for part in card.parts if part.name in ("command", "paths", "url") for each in part.texts]
        named, text, diff = _first(named), _cut(text, LONGEST_SHOWN), _cut(permission.diff or "", LONGEST_SHOWN)
        for each in named:
            yield f'<pre class="object" dir="ltr">{_verbatim(each)}</pre>'
        if self._ask.commands:
            items = "".join(f'<li><code dir="ltr">{_verbatim(each)}</code></li>' for each in self._ask.commands)
            yield f"<p>{html.escape(t('link.parts'))}</p><ol>{items}</ol>"
        if diff:
            yield self._diff(diff)
        if text:
            yield f'<pre class="object" dir="auto">{_shown(text)}</pre>'
        if card.lacks_diff:
            yield f"<p>{html.escape(t('perm.noDiff'))}</p>"
        if any(map(has_hidden, (*named, text, diff, permission.cwd or "", permission.tool, permission.summary))):
            yield f'<p class="warning">⚠ {html.escape(t("text.hidden"))}</p>'
        yield f'<p class="facts" dir="auto">{" · ".join(self._facts(permission, (*named, text)))}</p>'
        for risk in self._risks:
            effect = _or(t, f"risk.{risk}", risk)
            yield f'<p class="warning">⚠ {html.escape(t("perm.risky", effect=inert(effect, keep="")))}</p>'
        if self._ask.doubt is not None:
            yield f'<p class="warning">⚠ {_shown(t("perm.doubt", why=self._ask.doubt), keep="")}</p>'
        yield self._deadline()
        yield from self._scopes(permission, typed)
        if self.refusal is not None:
            there = html.escape(f"/#/ask/{quote(self._ask.id, safe='')}")  # of the desk at which this page was opened
            yield f'<p>{html.escape(t("link.atDesk"))} <a href="{there}">{html.escape(t("link.card"))}</a></p>'
        yield self._reason(typed, t("link.message", agent=_short(self._ask.origin.agent, MOST_NAME)))
        allow = t("perm.allowOnce") if len(self._ways) == 1 and self._ways[0][0] == "once" else t("link.allow")
        allowing = [_button("allow", allow, kind="first")] if self._ways else []
        yield self._buttons(*allowing, _button("deny", t("perm.deny")))

    def _facts(self, permission: Permission, shown: Sequence[str]) -> Iterator[str]:
        cwd = permission.cwd or self._ask.origin.cwd
        if cwd:
            yield _shown(self._t("perm.cwd", path=cwd), keep="")
        yield _shown(_cut(permission.tool, MOST_LABEL), keep="")
        if permission.summary and permission.summary not in shown:
            yield _shown(_cut(permission.summary, MOST_DESCRIPTION), keep="")

    def _diff(self, diff: str) -> str:
        lines = diff.removesuffix("\n").split("\n")
        kinds = {"+": "add", "-": "del", "@": "hunk"}
        drawn = "\n".join(
            f'<span class="{kinds[line[:1]]}">{_spaced(line)}</span>' if line[:1] in kinds else _spaced(line)
            for line in lines
        )
        pre = f'<pre class="diff" dir="ltr">{drawn}</pre>'
        changed = sum(line.startswith(("+", "-")) for line in lines)
        if changed <= FOLD_DIFF:
            return pre
        return f"<details><summary>{html.escape(self._t('text.showAll', count=len(diff)))}</summary>{pre}</details>"

    def _scopes(self, permission: Permission, typed: _Typed) -> Iterator[str]:
        """How far it goes, where that can be chosen, with exactly what each choice will save."""
        if len(self._ways) < 2:
            return
        picked = typed.picked("reply") or (["0"] if self._ways[0][0] == "once" else [])
        scopes = {scope.id: scope for scope in permission.scopes}
        yield f"<fieldset><legend>{html.escape(self._t('link.scope'))}</legend>"
        for place, (reply, id) in enumerate(self._ways):
            known = {"once": self._t("perm.allowOnce"), "always": self._t("link.always")}
            name = html.escape(known.get(reply, inert(reply, keep="")))
            patterns = ""
            if id is not None:
                scope = scopes[id]
                name = f"{name}: {_shown(scope.label or scope.id, keep='')}"  # whole: it says what is allowed
                items = "".join(f'<li><code dir="ltr">{_verbatim(each)}</code></li>' for each in scope.patterns)
                patterns = f"<ul>{items}</ul>" if items else ""
            yield _radio("reply", str(place), name, checked=str(place) in picked, below=patterns)
        yield "</fieldset>"


# What became of it ------------------------------------------------------------------------------------------


def _sent(t: Words, stored: Stored) -> HTMLResponse:
    ask = stored.ask()
    body = f'<p class="said" dir="auto">{_shown(_outcome(t, ask))}</p><p>{html.escape(t("link.close"))}</p>'
    return page(t, t("link.sent"), body)


def _over(t: Words, stored: Stored | None, *, was_used: bool = False, status: int = 410) -> HTMLResponse:
    """Why there is nothing to answer any more: who was first, and with what."""
    if stored is None:
        return page(t, t("link.expired"), f"<p>{html.escape(t('link.expired.text'))}</p>", status=410)
    ask = stored.ask()
    agent = _short(ask.origin.agent, MOST_NAME)
    if ask.answer is None:
        return page(t, t("link.withdrawn"), f"<p>{html.escape(t('state.withdrawn', agent=agent))}</p>", status=410)
    title = t("link.used") if was_used else t("link.settled")
    return page(t, title, f'<p class="said" dir="auto">{_shown(_outcome(t, ask))}</p>', status=status)


def _outcome(t: Words, ask: Ask) -> str:
    answer = ask.answer or Answer()
    person = inert(answer.by or "?", keep="")[:MOST_NAME]
    if answer.rejected:
        kind = "declined" if ask.permission is None else "denied"
        return (
            t(f"state.{kind}Why", person=person, reason=answer.reason)
            if answer.reason
            else t(f"state.{kind}", person=person)
        )
    channel = _or(t, f"channel.{answer.via}", answer.via or "?")
    time = _time(answer.at) if answer.at is not None else ""
    return t("state.delivered", answer=_said(t, ask, answer), person=person, channel=channel, time=time)


def _said(t: Words, ask: Ask, answer: Answer) -> str:
    """An answer in the words that were offered."""
    if ask.permission is not None:
        scope = next((each for each in ask.permission.scopes if each.id == answer.scope), None)
        name = _or(t, f"reply.{answer.reply}", answer.reply or "")
        return f"{name} ({scope.label or scope.id})" if scope is not None else name
    return "; ".join(
        ", ".join(_cut(question.label_of(value), MOST_LABEL) for value in values) or t("question.notAnswered")
        for question, values in zip(ask.questions, answer.answers or (), strict=False)
    )


def _deadline(t: Words, ask: Ask) -> str | None:
    if ask.deadline is None or ask.fallback is None:
        return None
    time = _time(ask.deadline)
    if not ask.fallback.rejected:
        return t("deadline.pick", time=time, choice=inert(_said(t, ask, ask.fallback), keep=""))
    return t("deadline.reject" if ask.permission is None else "deadline.deny", time=time)


def _time(time: datetime) -> str:
    """Nobody told us where the reader is, so the zone is named."""
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _origin(ask: Ask) -> str:
    """Where it comes from; who asks is in the title."""
    origin = ask.origin
    named = [each for each in (origin.run, origin.step, origin.machine, origin.cwd) if each]
    parts = " · ".join(f'<span dir="auto">{_shown(_cut(each, MOST_LABEL), keep="")}</span>' for each in named)
    return f'<p class="origin">{parts}</p>' if parts else ""


# Markup -----------------------------------------------------------------------------------------------------


def _or(t: Words, key: str, otherwise: str) -> str:
    """What a key says, where the catalogue has it. Only ever for our own short lists of names."""
    try:
        return t(key)
    except KeyError:
        return otherwise


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _first(texts: Sequence[str]) -> list[str]:
    """As many of them as are shown."""
    sizes = accumulate(map(len, texts))
    return [text for text, size in zip(texts, sizes, strict=True) if size <= LONGEST_SHOWN][:MOST_SHOWN]


def _short(text: str, limit: int) -> str:
    """Inert and on one line, for a place inside a sentence."""
    return inert(_cut(text, limit), keep="")


def _shown(text: str, *, keep: str = "\n\t") -> str:
    """Text as markup, with every hidden character as a marked escape."""
    return (
        "\n".join(_marked(line, keep=keep) for line in text.split("\n")) if "\n" in keep else _marked(text, keep=keep)
    )


def _marked(text: str, *, keep: str = "\n\t") -> str:
    if text.isascii() and text.isprintable():
        return html.escape(text)
    return "".join(
        f"<mark>{html.escape(shown)}</mark>" if hidden else html.escape(shown)
        for shown, hidden in pieces(text, keep=keep)
    )


def _verbatim(text: str) -> str:
    """Whole, with what an eye would miss made visible: spaces at the ends of a line, tabs, the ends of lines."""
    *lines, last = text.split("\n")
    return "".join(f"{_spaced(line, keep='')}<mark>⏎</mark>\n" for line in lines) + _spaced(last, keep="")


def _spaced(line: str, *, keep: str = "\t") -> str:
    inside = line.lstrip(" ") if keep == "" else line
    before, kept = len(line) - len(inside), inside.rstrip(" ")
    after = len(inside) - len(kept)
    dots = ("<mark>·</mark>" * before, "<mark>·</mark>" * after)
    return f"{dots[0]}{_marked(kept, keep=keep)}{dots[1]}"


def _input(kind: str, name: str, value: str, *, checked: bool, described: str = "") -> str:
    about = f' aria-describedby="{described}"' if described else ""
    return f'<input type="{kind}" name="{name}" value="{value}"{" checked" if checked else ""}{about}>'


def _radio(name: str, value: str, label: str, *, checked: bool, below: str = "") -> str:
    """`label` and `below` are markup."""
    box = _input("radio", name, value, checked=checked)
    return f'<div class="choice"><label>{box}<span dir="auto">{label}</span></label>{below}</div>'


def _button(value: str, label: str, *, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<button name="do" value="{value}"{named}>{html.escape(label)}</button>'
