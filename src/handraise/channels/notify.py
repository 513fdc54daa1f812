"""A notification with a link, anywhere: by the addresses of Apprise. People answer on the page behind the link.

Whoever is reached alone gets a link of their own; a place that others read too gets the address of the card, where one
has to be signed in. Such addresses hold secrets, so none is ever shown, and what Apprise logs goes nowhere.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from handraise.asks import Ask
from handraise.asks.card import Card, to_card
from handraise.channels import ChannelSettings, Postbox, Reach, SendFailed
from handraise.channels._posting import keep_posted, often
from handraise.errors import HandraiseError, SettingsError
from handraise.text.inert import inert
from handraise.text.masking import DOTS, Mask
from handraise.text.words import LANGUAGES, Words, speak

if TYPE_CHECKING:
    from apprise import Apprise, NotifyBase

__all__ = ["FIELDS", "Notify", "Told", "plugin"]

log = logging.getLogger(__name__)

LONGEST = 1_500  # characters of a message: ntfy takes 4096 bytes, and nobody reads more in a notification
MOST_TITLE = 100
MOST_NAME = 60
MOST_LABEL = 120
MOST_REASON = 200
PATIENCE = 15.0  # seconds that one address may take; some services are called at most every five
ATTEMPTS = 2
BESIDE = 5.0  # seconds for making links, and between attempts
CALM = 60.0  # seconds until those who could not be told are told once more
AT_ONCE = 4  # calls to one address; those that hang count for as long as they do
TALKATIVE = ("apprise", "urllib3", "requests", "requests_oauthlib", "oauthlib")  # they log addresses
FIELDS = ("urls", "urls_env", "language")  # of its table
READ_AT_DESK = ("commands", "diff", "arguments", "approved")  # parts of a card that are too long for a message
PLACE = "told"  # there is nothing to find again: most services cannot change what they sent
BESIDE_CUT = 1000  # characters behind the end of a line in which a secret is still found whole
_MASK = Mask(longest=LONGEST)
_NOWHERE = logging.NullHandler()  # without one, Python itself prints what nobody handles
_MARKS = re.compile(r"@(?=everyone\b|here\b|channel\b|all\b)|<(?=[@!#&]|users/|https?:)|\](?=\()", re.IGNORECASE)
_BETWEEN = re.compile(r"[/:@?&=,;#\s]+")  # the parts of an address


class Notify:
    """`patience` is how many seconds one call of an address may take; if none took it, all are called once more every
    `calm` seconds."""

    reach = Reach(longest=LONGEST, identity="shared")

    def __init__(self, settings: ChannelSettings, *, patience: float = PATIENCE, calm: float = CALM) -> None:
        """Raises SettingsError where Apprise is missing, or where nobody can be told anything."""
        self.name = settings.name
        self._shown = f"[channels.{settings.name}]"
        self._desk = settings.address
        self._patience = patience
        self._calm = calm
        self._words = self._language(settings.table)
        open_ = _opener(self._shown)
        self._shared = [open_(url, where=f"{self._shown} urls") for url in self._urls(settings)]
        self._people = {
            person.name: (person, [open_(url, where=f"[people.{person.name}] notify") for url in person.notify])
            for person in settings.people
            if person.notify
        }
        if not self._shared and not self._people:
            raise SettingsError(
                f'{self._shown} tells nobody: write urls = ["ntfys://ntfy.sh/…"] there, or notify = ["…"] into the '
                "[people.…] of whom it should reach"
            )
        if urlsplit(self._desk).hostname in ("127.0.0.1", "localhost", "::1"):
            log.warning(
                "%s links to %s, which opens on this machine only; [desk] address says where people open it",
                self._shown,
                self._desk,
            )

    def _language(self, table: Mapping[str, Any]) -> Words:
        unknown = sorted(set(table) - set(FIELDS))
        if unknown:
            raise SettingsError(f"{self._shown} does not know {unknown[0]!r}; it knows {', '.join(FIELDS)}")
        language = table.get("language", LANGUAGES[0])
        if language not in LANGUAGES:
            raise SettingsError(f"{self._shown} language is one of {', '.join(LANGUAGES)}")
        return speak(language)

    def _urls(self, settings: ChannelSettings) -> list[str]:
        urls, variable = settings.table.get("urls", []), settings.table.get("urls_env")
        if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
            raise SettingsError(f'{self._shown} urls is a list of addresses, as in ["ntfys://ntfy.sh/…"]')
        if variable is None:
            return urls
        if not isinstance(variable, str):
            raise SettingsError(f"{self._shown} urls_env is the name of a variable that holds addresses")
        more = settings.environ.get(variable, "").split()
        if not more:
            raise SettingsError(f"{self._shown} urls_env names {variable}, which is not set where the desk runs")
        return [*urls, *more]

    async def run(self, inbox: Postbox) -> None:
        async with asyncio.TaskGroup() as tasks:
            # Each address is tried often enough by itself, so that who was told is not told twice.
            longest = self._patience * ATTEMPTS + BESIDE
            poster = _Poster(self, inbox, tasks)
            await keep_posted(inbox, poster, patience=longest, attempts=1, calm=self._calm, wants=self.tells)

    def tells(self, ask: Ask) -> bool:
        """Whether somebody is told of this one."""
        return bool(self._shared) or any(person.may_decide(ask) for person, _ in self._people.values())

    async def letters(self, ask: Ask, inbox: Postbox) -> list[_Letter]:
        """What goes to whom. Raises SendFailed where no link can be made, as for an ask that is settled already."""
        told = Told(self._words, ask)
        card = f"{self._desk}/#/ask/{quote(ask.id, safe='')}"
        letters = [told.letter(address, link=card, is_personal=False) for address in self._shared]
        for person, addresses in self._people.values():
            if not person.may_decide(ask):
                continue
            is_personal = not told.only_at_desk
            try:
                link = await inbox.link(ask.id, by=person.name, via=self.name) if is_personal else card
            except HandraiseError as problem:
                raise SendFailed(f"there is no link to answer with: {problem}") from None
            letters += [told.letter(address, link=link, is_personal=is_personal) for address in addresses]
        return letters

    async def send(self, letter: _Letter) -> str | None:
        """None where it was taken, or why not."""
        address = letter.address
        try:
            await often(partial(address.take, letter), patience=self._patience, attempts=ATTEMPTS)
        except SendFailed as failure:
            problem = f"{address.scheme}: {failure}"
            log.warning("%s could not tell of ask %s by %s", self._shown, letter.ask, problem)
            return problem
        return None


class _Poster:
    """One run of the channel. What is slow goes on after somebody was told."""

    def __init__(self, channel: Notify, inbox: Postbox, tasks: asyncio.TaskGroup) -> None:
        self.name = channel.name
        self._channel = channel
        self._inbox = inbox
        self._tasks = tasks

    async def post(self, ask: Ask) -> str:
        """Return as soon as one address took it. Raises SendFailed where none did."""
        letters = await self._channel.letters(ask, self._inbox)
        pending = {self._tasks.create_task(self._channel.send(letter)) for letter in letters}
        problems: list[str] = []
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for sent in done:
                    problem = sent.result()
                    if problem is None:
                        return PLACE
                    problems.append(problem)
        except asyncio.CancelledError:
            for sending in pending:
                sending.cancel()
            raise
        raise SendFailed("; ".join(sorted(problems)))

    async def rewrite(self, place: str, ask: Ask) -> None:
        """What was sent stays; the page behind its link says how it ended."""


# Addresses --------------------------------------------------------------------------------------------------


def _opener(shown: str) -> Callable[..., _Address]:
    """What makes an address of a text, with Apprise, which is read only now."""
    try:
        from apprise import Apprise, AppriseAsset
    except ImportError:
        raise SettingsError(
            f"{shown} needs a package that is not installed; `pip install 'handraise[notify]'` brings it"
        ) from None
    for name in TALKATIVE:
        logger = logging.getLogger(name)
        logger.propagate = False
        logger.addHandler(_NOWHERE)
    # In the thread that calls it: the threads that Apprise makes are waited for when a process ends, however long.
    asset = AppriseAsset(async_mode=False, service_timeout=0, app_id="handraise", app_desc="handraise")

    def open_(url: str, *, where: str) -> _Address:
        with warnings.catch_warnings(action="ignore"):  # of services that nobody here uses, all of which it reads
            service = Apprise.instantiate(url, asset=asset)
        if service is None:
            scheme = url.partition("://")[0] if re.match(r"[A-Za-z0-9.+-]{1,40}://", url) else ""
            named = f"{scheme}://…" if scheme else "which has no ://"
            raise SettingsError(
                f"{where} has an address ({named}) that Apprise cannot use; compare it with what Apprise documents"
            )
        sender = Apprise(asset=asset)
        sender.add(service)
        return _Address(sender, service, url=url)

    return open_


class _Address:
    """Where one service is reached. Its calls block, so each has a thread, which nobody waits for in the end."""

    def __init__(self, sender: Apprise, service: NotifyBase, *, url: str) -> None:
        told: str = service.url()  # type: ignore[no-untyped-call]
        self.scheme = told.partition("://")[0]  # all that is ever said of an address
        self.most_title = min(MOST_TITLE, service.title_maxlen or MOST_TITLE)
        # Where there are no titles, it is put before the text.
        self.longest = min(LONGEST, service.body_maxlen - (0 if service.title_maxlen else MOST_TITLE + 2))
        self._sender = sender
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._hide = _hiding(url, told)

    async def take(self, letter: _Letter) -> None:
        """Raises SendFailed. A call that nobody waits for any more goes on until it ends by itself."""
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[str | None] = loop.create_future()

        def finish(problem: str | None) -> None:
            self._slots.release()
            if not ended.done():
                ended.set_result(problem)

        def work() -> None:
            try:
                problem = self._notify(letter)
            except Exception as broken:
                problem = type(broken).__name__  # what it says may hold the address
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(finish, problem)

        threading.Thread(target=work, name=f"notify {self.scheme}", daemon=True).start()
        problem = await ended
        if problem is not None:
            raise SendFailed(problem)

    def _notify(self, letter: _Letter) -> str | None:
        result = self._sender.notify(body=letter.body, title=letter.title, body_format="text")
        if result:
            return None
        said = [entry.message for entry in result.logs()]
        return self._hide(said[-1]).rstrip(".") if said else "it was not taken, and Apprise does not say why"


def _hiding(*urls: str) -> Callable[[str], str]:
    """What takes every part of these addresses out of a text, also where it is written in another way."""
    parts: set[str] = set()
    for url in urls:
        rest = url.partition("://")[2]
        for text in (rest, unquote(rest)):
            before, _, options = text.partition("?")
            parts |= {*_BETWEEN.split(before), before.strip("/")}
            # Of what Apprise writes itself, the options are words such as `yes`.
            parts |= {*_BETWEEN.split(options)} if url is urls[0] else set()
    known = sorted((part for part in parts if len(part) > 1), key=len, reverse=True)
    # A short one could be in any word.
    patterns = [re.escape(part) if len(part) > 3 else rf"(?<!\w){re.escape(part)}(?!\w)" for part in known]
    found = re.compile("|".join([*patterns, r"\w+://\S+", r"\d{6,}"]), re.IGNORECASE)

    def hide(text: str) -> str:
        return _one_line(Mask().text(found.sub(DOTS, text)), MOST_REASON)

    return hide


# What it says -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Letter:
    address: _Address
    ask: str
    title: str
    body: str = field(repr=False)  # may hold a link that answers


class Told:
    """One ask as a message. Lines that an agent wrote begin with a mark, so that none can pass for ours."""

    def __init__(self, t: Words, ask: Ask) -> None:
        self._card = to_card(ask)
        self.only_at_desk = self._card.only_at_desk is not None  # a link proves only that somebody holds it
        self._t = t
        self._ask = ask
        self._agent = _one_line(ask.origin.agent, MOST_NAME)

    def letter(self, address: _Address, *, link: str, is_personal: bool) -> _Letter:
        title = _one_line(self._title(), address.most_title)
        return _Letter(
            address=address,
            ask=self._ask.id,
            title=title,
            body=self.body(link, is_personal=is_personal, longest=address.longest),
        )

    def _title(self) -> str:
        title = self._card.heading.say(self._t, show=_one_line)
        if self._ask.permission is not None:
            return title
        header = self._ask.questions[0].title if self._ask.questions else ""
        return f"{title}: {_one_line(header, MOST_NAME)}" if header else title

    def body(self, link: str, *, is_personal: bool, longest: int) -> str:
        """The link is always whole; what an agent wrote is cut first, and the rest where a service takes little."""
        t = self._t
        if is_personal:
            end = t("notify.answer", link=link)
        elif self.only_at_desk:
            end = t("notify.risky", link=link)
        else:
            end = t("notify.open", link=link)
        lines = [self._warnings(), self._left_out(), self._where(), self._deadline()]
        left = longest // 2 - len(end)
        for line in (lines[0], lines[1], lines[3], lines[2]):  # those that matter most are the last to be left out
            left -= len(line) + 1
            if left < 0:
                left += len(line) + 1
                lines.remove(line)
        end = "\n".join([*filter(None, lines), end])
        room = longest - len(end) - 1
        text = ""
        for line in self._lines():
            if len(text) + len(line) > room:
                text = f"{(text + line)[: max(0, room - 1)]}…" if room > 1 else ""
                break
            text += f"{line}\n"
        return f"{text.rstrip()}\n{end}" if text else end

    def _lines(self) -> Iterator[str]:
        if self._ask.permission is not None:
            yield from self._object(self._card)
            return
        total = len(self._ask.questions)
        for place, question in enumerate(self._ask.questions, 1):
            if total > 1:
                yield self._t("question.step", current=place, total=total)
            yield from _quoted(question.question)
            for number, option in enumerate(question.options, 1):
                about = f" – {_one_line(option.description, MOST_LABEL)}" if option.description else ""
                yield f"{number}. {_one_line(option.label, MOST_LABEL)}{about}"

    def _object(self, card: Card) -> Iterator[str]:
        """What it is about, then what the agent says of it."""
        for part in card.parts:
            if part.name not in READ_AT_DESK:
                yield from (line for text in part.texts for line in _quoted(text))
        if card.lacks_diff:
            yield self._t("perm.noDiff")
        if card.claim:
            yield from _quoted(self._t("perm.says", agent=self._agent, text=card.claim))

    def _warnings(self) -> str:
        hidden = [self._t("text.hidden")] if self._card.is_hiding(within=LONGEST) else []
        return " ".join(f"⚠ {_tame(each)}" for each in (*self._card.warnings(self._t), *hidden))

    def _left_out(self) -> str:
        """Where the rest is. The commands of a line are in the line."""
        is_all = all(part.name not in READ_AT_DESK or part.name == "commands" for part in self._card.parts)
        return "" if is_all else self._t("perm.notAll")

    def _where(self) -> str:
        origin = self._ask.origin
        named = (origin.machine, origin.run, origin.step, self._card.cwd or origin.cwd)
        told = " · ".join(_one_line(each, MOST_LABEL) for each in named if each)
        return f"({told})" if told else ""  # who asks chose these names

    def _deadline(self) -> str:
        silence = self._card.silence
        if silence is None:
            return ""
        choice = _one_line(silence.choice(show=str), MOST_LABEL)
        return silence.say(self._t, time=_time(silence.at), choice=choice)


def _quoted(text: str) -> list[str]:
    """Without the secrets that can be told by their looks: what is sent passes through other people's machines."""
    return [f"> {line}" for line in _tame(inert(_MASK.json(text))).split("\n")]


def _one_line(text: str, limit: int) -> str:
    shown = _tame(inert(_MASK.text(text[: limit + BESIDE_CUT]), keep=""))
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _tame(text: str) -> str:
    """With a blank in what calls everybody in a room, or hides where a link leads.

    Apprise escapes for most services; Discord, Mattermost and others read marks in plain text too.
    """
    return _MARKS.sub(r"\g<0> ", text)


def _time(time: datetime) -> str:
    """Nobody told us where the reader is, so the zone is named."""
    return f"{time:%Y-%m-%d %H:%M} UTC"


plugin = Notify
