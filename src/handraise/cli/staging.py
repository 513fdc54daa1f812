"""The play of `handraise demo`: who asks what, and the desk they do it at."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from handraise.agents import Asker, Start
from handraise.agents.scripted import Scripted
from handraise.app import Running
from handraise.asks import Answer, Ask, Handling, Option, Permission, Question, Scope
from handraise.channels.terminal import Terminal
from handraise.cli.calling import person, settings_here, terminal_words
from handraise.cli.printing import command, say
from handraise.cli.running import desk_or_own
from handraise.client import Client
from handraise.config import Settings
from handraise.errors import HandraiseError, Withdrawn
from handraise.text.inert import inert

__all__ = ["play"]

LEAVE_WITHIN = 3.0  # seconds to take back what nobody answered
LAST_WORDS = 0.3  # seconds in which the terminal may still say what became of the last ask


# The play ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Role:
    """An agent of the demo: what it asks, one way to answer that, and what it then does."""

    agent: str
    about: str  # the last part of the ask's id
    wanted: tuple[Question, ...] | Permission
    words: tuple[str, ...]  # after `handraise answer ID`
    body: dict[str, Any]  # of POST /v1/asks/{id}/answer
    does: Callable[[Answer], str]


def _does_database(answer: Answer) -> str:
    return f"Then I write the migration for {answer.value}."


def _does_checks(answer: Answer) -> str:
    return f"I run {', then '.join(answer.values)}, and open the pull request when that is green."


def _does_release(answer: Answer) -> str:
    channel, platforms, name = answer.answers or ((), (), ())
    called = f", called “{name[0]}”" if name else ""
    return f"I publish to {', '.join(channel) or 'nowhere yet'} for {', '.join(platforms) or 'no platform'}{called}."


def _does_permission(answer: Answer) -> str:
    again = "and need not ask again" if answer.reply == "always" else "this once"
    return f"I clean up and build the release, {again}."


ROLES = (
    _Role(
        agent="opencode",
        about="database",
        wanted=(
            Question(
                "Which database should this feature use?",
                (
                    Option("SQLite", description="one file, no server"),
                    Option("PostgreSQL", description="shared, needs a server"),
                    Option("None", description="keep it in memory"),
                ),
                header="Database",
            ),
        ),
        words=("SQLite",),
        body={"answers": [["SQLite"]]},
        does=_does_database,
    ),
    _Role(
        agent="claude",
        about="checks",
        wanted=(
            Question(
                "What has to pass before I open the pull request? Name your own if it is missing.",
                tuple(Option(label) for label in ("unit tests", "linter", "type checker", "benchmarks")),
                header="Checks",
                multiple=True,
            ),
        ),
        words=("1", "3", "a second pair of eyes"),
        body={"answers": [["unit tests", "type checker", "a second pair of eyes"]]},
        does=_does_checks,
    ),
    _Role(
        agent="codex",
        about="release",
        wanted=(
            Question("Where should version 2 go first?", (Option("beta"), Option("stable")), header="Channel"),
            Question(
                "For which platforms?",
                (Option("Linux"), Option("macOS"), Option("Windows")),
                header="Platforms",
                multiple=True,
            ),
            Question("What is it called?", header="Name", kind="text"),
        ),
        words=("1", "1,2", "Early Bird"),
        body={"answers": [["beta"], ["Linux", "macOS"], ["Early Bird"]]},
        does=_does_release,
    ),
    _Role(
        agent="amp",
        about="clean",
        wanted=Permission(
            tool="Bash",
            summary="Clean the build folder and build the release",
            command="rm -rf build/ && make release",
            replies=("once", "always", "reject"),
            scopes=(
                Scope(id="session", label="for this session", patterns=("rm -rf build/", "make release")),
                Scope(id="project", label="always in this project", patterns=("make *",)),
            ),
        ),
        words=("once",),
        body={"reply": "once"},
        does=_does_permission,
    ),
)


class _Actor:
    """One scripted agent and its ask. To the script it is the asker; the desk gets a short id that people can type."""

    def __init__(self, role: _Role, *, client: Client, session: str, tell: Callable[[str], None]) -> None:
        self.role = role
        self.id = f"{session}:{role.about}"
        self.raised = asyncio.Event()
        self.said: str | None = None  # once it is over
        self._client = client
        self._session = session
        self._tell = tell

    async def play(self) -> None:
        role, agent = self.role, Scripted()
        agent.name = role.agent
        if isinstance(role.wanted, Permission):
            agent.on_permission("", role.wanted)
        else:
            agent.on_question("", role.wanted)
        agent.on("", lambda answers: _reaction(role, answers[0]))
        session = await agent.open(self, Start(session=f"{self._session}-{role.agent}", cwd=str(Path.cwd())))
        try:
            self.said = (await session.prompt("get on with it")).text
        except Withdrawn:
            self._tell(f"{role.agent} no longer waits: somebody withdrew its ask")
            self.said = "I go on without an answer."

    async def ask(self, ask: Ask, *, ordinal: bool = False) -> Answer:
        named, handling = replace(ask, id=self.id), Handling()  # whatever the desk's own is, a person answers
        await self._client.open(named, handling=handling)
        self.raised.set()
        answer = await self._client.ask(named, handling=handling)
        self._tell(_took(named, answer))
        return answer

    async def withdraw(self, id: str, *, reason: str | None = None, answer: Answer | None = None) -> Ask:
        return await self._client.withdraw(self.id, reason=reason, answer=answer)

    def delivered(self, id: str, *, error: str | None = None) -> None:
        self._client.delivered(self.id, error=error)


def _reaction(role: _Role, answer: Answer) -> str:
    if answer.rejected:
        return f"I leave it{f', since you say “{answer.reason}”' if answer.reason else ''}."
    return role.does(answer)


def _took(ask: Ask, answer: Answer) -> str:
    who = f"by {answer.by or 'somebody'}" + (f", in {answer.via}" if answer.via else "")
    if answer.rejected:
        return f"{ask.origin.agent} was refused ({who}{f': {answer.reason}' if answer.reason else ''})"
    said = (
        answer.reply + (f" ({answer.scope})" if answer.scope else "")
        if answer.reply
        else "; ".join(
            ", ".join(question.label_of(value) for value in values) or "nothing"
            for question, values in zip(ask.questions, answer.answers or (), strict=True)
        )
    )
    return f"{ask.origin.agent} took: {said} ({who})"


# The stage --------------------------------------------------------------------------------------------------


async def play(*, port: int, watch: bool, exit_when_done: bool) -> None:
    settings = settings_here()
    async with desk_or_own(settings, port=port) as own, Client(own.url if own else None, settings=settings) as client:
        session = f"demo-{secrets.token_hex(2)}"
        actors = [_Actor(role, client=client, session=session, tell=_ignore if watch else _print) for role in ROLES]
        try:
            async with asyncio.TaskGroup() as tasks:
                playing = tasks.create_task(_play(client, actors, settings=settings, watch=watch))
                await asyncio.wait([playing, *_serving(own)], return_when=asyncio.FIRST_COMPLETED)
                playing.cancel()
        finally:
            await _take_back(client if own is None else own.broker, actors)
        if any(actor.said is None for actor in actors):
            return
        for actor in actors:
            _print(f"{actor.role.agent}: {actor.said}")
        _print("The demo is done: everybody got an answer.")
        if own is not None and not exit_when_done:
            _print(f"The desk stays at {own.url} until Ctrl+C. Try: {command('ask', 'Deploy now?', 'yes', 'no')}")
            await _until_ctrl_c(own)


async def _until_ctrl_c(own: Running) -> None:
    """Or until SIGTERM. A prompt takes the desk's own handler of Ctrl+C along when it ends, so this sets one again."""
    interrupted = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(interrupted.wait())
        await asyncio.wait([waiting, own.serving], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


def _serving(own: Running | None) -> list[asyncio.Task[None]]:
    return [] if own is None else [own.serving]


async def _play(client: Client, actors: Sequence[_Actor], *, settings: Settings, watch: bool) -> None:
    async with asyncio.TaskGroup() as tasks:
        plays = [tasks.create_task(actor.play()) for actor in actors]
        for actor in actors:
            await actor.raised.wait()
        if not watch:
            link = await client.tokens.sign_in()
            _print(_programme(actors, url=client.url, link=link, settings=settings))
            return
        prompting = tasks.create_task(_prompt(client))
        finishing = tasks.create_task(asyncio.wait(plays))
        await asyncio.wait([prompting, finishing], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([prompting], timeout=LAST_WORDS)
        for task in (prompting, finishing, *plays):
            task.cancel()


async def _prompt(client: Client) -> None:
    await Terminal(by=person(), words=terminal_words()).run(client)


async def _take_back(asker: Asker, actors: Sequence[_Actor]) -> None:
    """Withdraw what nobody answered. The broker is asked where the desk is ours, since its door is closed by now."""
    unanswered = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(LEAVE_WITHIN):
            for actor in actors:
                if actor.said is None:
                    with suppress(HandraiseError):
                        await asker.withdraw(actor.id, reason="the demo ended")
                        unanswered += 1
    if unanswered:
        say(f"handraise: the demo ended; withdrew {unanswered} that nobody had answered")


def _programme(actors: Sequence[_Actor], *, url: str, link: str, settings: Settings) -> str:
    """What was asked, and the ways to answer it."""
    lines = [
        f"Four scripted agents raised their hands at {url}",
        f"Answer them in a browser: {link}",
        "Or from another terminal, in any order, each in the way you like.",
    ]
    if os.environ.get("HANDRAISE_HOME"):
        lines.append(f"First, there: export HANDRAISE_HOME={shlex.quote(str(settings.home.absolute()))}")
    file = shlex.quote(str(settings.token_file.absolute()))
    bearer = f"Bearer $(cat {file})" if settings.token is None else "Bearer $HANDRAISE_TOKEN"
    for actor in actors:
        role = actor.role
        route = f"{url}/v1/asks/{quote(actor.id, safe=':')}/answer"
        said = role.body.get("answers") or role.body["reply"]
        lines += [
            "",
            f"{role.agent} {_asks(role)}",
            f"  {command('answer', actor.id, *role.words)}",
            f'  curl -d {shlex.quote(json.dumps(role.body))} -H "Authorization: {bearer}" {route}',
            f"  desk.reply_question({json.dumps(actor.id)}, {json.dumps(said)})",
        ]
    lines += [
        "",
        "In Python the desk is: from handraise.sync import Desk; desk = Desk()",
        f"Or answer them one after the other: {command('watch')}",
        "",
    ]
    return "\n".join(lines)


def _asks(role: _Role) -> str:
    if isinstance(role.wanted, Permission):
        return f"wants to run: {role.wanted.command}"
    return "asks: " + " ".join(question.question for question in role.wanted)


def _print(line: str) -> None:
    print(inert(line, keep="\n"), flush=True)


def _ignore(line: str) -> None:
    """Whoever answers here has seen it."""
