"""What is asked as an activity of Linear, and what a person writes there as an answer. Pure.

Linear has single choice and text, and what comes back is text that names nothing. So one question is shown at a time,
and what was meant is found by comparing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from handraise.asks import Ask, Permission, Question
from handraise.asks.card import MOST_DESCRIPTION, Card, Silence, cut, is_longer, to_card
from handraise.errors import AnswerDoesNotFit
from handraise.text.inert import inert
from handraise.text.words import speak

__all__ = [
    "Activity",
    "action",
    "elicitation",
    "error",
    "markdown",
    "outcome",
    "refusal_in",
    "reply_in",
    "response",
    "thought",
    "unclear",
    "wants_more_time",
]

LONGEST = 8_000  # characters of a command or diff that are shown; the link has the rest
DENY = ("deny", "no", "n", "reject", "skip", "decline")
SKIP = ("skip", "reject", "decline")
WAIT = "keep waiting"
_REFUSAL = re.compile(r"([A-Za-z]+)(?:\s*[:,.;—–-]+\s*(.*))?", re.DOTALL)
ENGLISH = speak("en")  # as everything that this channel says
REPLIES = {"once": "Allow once", "always": "Allow always", "reject": "Deny"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What `agentActivityCreate` takes beside the session."""

    content: dict[str, str]
    signal: str | None = None
    metadata: dict[str, Any] | None = None


def thought(text: str) -> Activity:
    return Activity(content={"type": "thought", "body": _bounded(text)})


def action(what: str, parameter: str, result: str | None = None) -> Activity:
    content = {"type": "action", "action": _bounded(what), "parameter": _bounded(parameter)}
    return Activity(content=content if result is None else content | {"result": _bounded(result)})


def response(text: str) -> Activity:
    return Activity(content={"type": "response", "body": _bounded(text)})


def error(text: str) -> Activity:
    return Activity(content={"type": "error", "body": _bounded(text)})


def outcome(ask: Ask) -> Activity:
    """How an ask ended, wherever it was answered."""
    title = plain(ask.permission.summary or ask.permission.tool if ask.permission else ask.questions[0].title)
    answer = ask.answer
    if answer is None:
        return action("Withdrawn", title, inert(ask.withdrawn_reason or "the agent no longer waits for it"))
    if answer.rejected:
        said = f"refused: {plain(answer.reason)}" if answer.reason else "refused"
    elif ask.permission is not None:
        said = plain(_reply_label(ask.permission, answer.reply or "", answer.scope))
    else:
        chosen = zip(ask.questions, answer.answers or (), strict=False)
        said = "; ".join(", ".join(plain(question.label_of(value)) for value in values) for question, values in chosen)
    who = answer.by.removeprefix("policy:") if answer.by_policy else answer.by
    where = f", in {answer.via}" if answer.via and not answer.by_policy else ""
    return action("Answered", title, f"{said} ({plain(who or 'somebody')}{where})")


def elicitation(ask: Ask, place: int, *, deadline: str | None = None, link: str | None = None) -> Activity:
    """One question of an ask, or its permission. What an agent wrote is data: Linear renders Markdown."""
    card = to_card(ask)
    if ask.permission is not None:
        body, is_list = _permission(card), True
    else:
        question = ask.questions[place]
        body, is_list = _question(question, place, len(ask.questions)), not question.multiple  # its list takes one
    then = None if card.silence is None else _silence(card.silence)
    footer = [line for line in (then, deadline, None if link is None else f"[Open at the desk]({link})") if line]
    content = {"type": "elicitation", "body": "\n\n".join([body, *footer])}
    labels = _labels(ask, place) if is_list else []
    if not labels:
        return Activity(content=content)
    options = [{"value": label, "label": label} for label in labels]
    return Activity(content=content, signal="select", metadata={"options": options})


def reply_in(permission: Permission, text: str) -> tuple[str, str | None]:
    """The reply to a permission that somebody wrote, with its scope.

    Raises AnswerDoesNotFit: what is not plainly a yes grants nothing.
    """
    said = text.strip().casefold()
    for at, (reply, scope) in enumerate(_replies(permission), 1):
        if said in (_reply_label(permission, reply, scope).casefold(), str(at), f"{at}.", f"{at})"):
            return reply, scope
    raise AnswerDoesNotFit([{"question": None, "problem": "it is neither a yes nor a no"}])


def refusal_in(ask: Ask, place: int, text: str) -> tuple[bool, str | None]:
    """Whether somebody refuses, as in "deny" or "skip: we decide that later", and the reason they give."""
    said = text.strip()
    if said.casefold() in [label.casefold() for label in _labels(ask, place)]:
        return ask.permission is not None and said.casefold() == REPLIES["reject"].casefold(), None
    found = _REFUSAL.fullmatch(said)
    if found is None or found[1].casefold() not in (SKIP if ask.permission is None else DENY):
        return False, None
    return True, (found[2] or "").strip() or None


def wants_more_time(text: str) -> bool:
    return text.strip().casefold().rstrip(".!") == WAIT


def unclear(ask: Ask, place: int) -> str:
    """The polite repeat; empty where there is nothing to choose from."""
    labels = ", ".join(map(plain, _labels(ask, place)))
    return f"I could not match that to a choice. Please reply with one of: {labels}." if labels else ""


def _labels(ask: Ask, place: int) -> list[str]:
    """What can be chosen, as it is shown and comes back."""
    if ask.permission is None:
        options = ask.questions[place].options
        labels = [inert(option.label) for option in options]
        return labels if len(set(labels)) == len(labels) else [inert(option.value) for option in options]
    return [_reply_label(ask.permission, reply, scope) for reply, scope in _replies(ask.permission)]


def _replies(permission: Permission) -> list[tuple[str, str | None]]:
    """What is cut here cannot be allowed here."""
    return [*([] if is_longer(permission, LONGEST) else permission.ways), ("reject", None)]


def _reply_label(permission: Permission, reply: str, scope: str | None) -> str:
    """Whoever allows more than once sees how far that goes."""
    label = REPLIES.get(reply, inert(reply, keep=""))
    if scope is None:
        return label
    shown = next((each.label or each.id for each in permission.scopes if each.id == scope), scope)
    return f"{label}: {inert(shown, keep='')}"


def _question(question: Question, place: int, total: int) -> str:
    lines = [f"**{plain(question.header)}**"] if question.header else []
    if total > 1:
        lines.append(f"Question {place + 1} of {total}")
    lines.append(plain(question.question))
    if question.multiple or any(option.description for option in question.options):
        lines.append("\n".join(_numbered(question)))
    if question.multiple:
        lines.append("Reply with numbers, e.g. 1,3.")
    if question.options and question.custom:
        lines.append("Or reply in your own words.")
    return "\n\n".join(lines)


def _numbered(question: Question) -> list[str]:
    return [
        f"{at}. {plain(option.label)}" + (f" — {plain(option.description)}" if option.description else "")
        for at, option in enumerate(question.options, 1)
    ]


def _permission(card: Card) -> str:
    lines = [f"**{card.heading.say(ENGLISH, show=_short)}**"]
    whole = card.whole
    shown = inert(whole[: LONGEST + 1])
    more = max(len(whole), len(shown)) - LONGEST
    if shown:
        left_out = f"\n… ({more} characters more at the desk: allow it there)" if more > 0 else ""
        lines.append(_fenced(f"{shown[:LONGEST]}{left_out}"))
    commands = card.named("commands")
    if commands is not None and more <= 0:
        numbered = [f"{at}. {plain(each)}" for at, each in enumerate(commands.texts, 1)]
        lines.append("\n".join([ENGLISH("link.parts"), *numbered]))
    lines += [f"⚠ {plain(each)}" for each in card.warnings(ENGLISH)]
    lines += [f"⚠ {ENGLISH('text.hidden')}"] if card.is_hiding(within=LONGEST) else []
    lines += [ENGLISH("perm.noDiff")] if card.lacks_diff else []
    cwd = f", in `{inert(card.cwd, keep='').replace('`', '')}`" if card.cwd else ""
    lines.append(f"Tool: {_short(card.tool, MOST_DESCRIPTION)}{cwd}")
    if card.claim:
        agent = card.heading.texts["agent"]
        lines.append(ENGLISH("perm.says", agent=plain(agent), text=_short(card.claim, MOST_DESCRIPTION)))
    return "\n\n".join(lines)


def _silence(silence: Silence) -> str:
    return silence.say(
        ENGLISH, time=f"{silence.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC", choice=silence.choice(show=plain)
    )


def _short(text: str, limit: int) -> str:
    return plain(cut(text, limit, t=ENGLISH))


def _fenced(text: str) -> str:
    """In a fence longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _bounded(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def markdown(text: str) -> str:
    """What an agent says to people, with its markup. Images are left as text: to look at one tells whoever it is loaded
    from what stands in its address."""
    return inert(text).replace("![", "! [")


def plain(text: str) -> str:
    """As text and nothing else: no markup, no mention, no image."""
    return re.sub(r"([\\`*_{}\[\]()<>#+\-.!|~@])", r"\\\1", inert(text))
