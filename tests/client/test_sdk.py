"""The SDK: any script raises a hand or answers for people, and restarts of the desk go unnoticed (S6)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import handraise
from handraise import (
    AlreadyAnswered,
    Answer,
    AnswerDoesNotFit,
    Ask,
    AskDoesNotFit,
    AskNotFound,
    Desk,
    DeskUnreachable,
    Handling,
    Option,
    Permission,
    Question,
    Rejected,
    Withdrawn,
    sync,
)
from handraise.client import Client
from handraise.config import Settings
from handraise.errors import AskDiffers, DeskBroke, Forbidden, SettingsError, Unauthorized
from handraise.testing import a_permission, an_ask
from tests.helpers.serving import PATIENCE, DeskProcess, Served, eventually, first_event, serving, serving_in_a_thread


def test_every_public_name_is_there() -> None:
    assert handraise.__all__ == sorted(handraise.__all__)
    for name in handraise.__all__:
        assert getattr(handraise, name).__name__ == name
    with pytest.raises(AttributeError, match="nonsense"):
        handraise.nonsense  # noqa: B018
    assert sync.__all__ == ["Desk"]


@pytest.fixture
async def served(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database) as served:
        yield served


@pytest.fixture
async def desk(served: Served) -> AsyncIterator[Desk]:
    async with Desk(settings=served.settings) as desk:
        yield desk


async def asked(served: Served, id: str | None = None) -> Ask:
    """The first ask that was raised, or the one with this id; waits for it."""
    return (await first_event(served.broker, lambda event: id in (None, event.ask.id))).ask


# Asking -----------------------------------------------------------------------------------------------------


async def test_asking_waits_and_returns_the_answer(served: Served, desk: Desk) -> None:
    call = asyncio.create_task(desk.ask("Which database?", "SQLite", "Postgres", header="Database"))
    ask = await asked(served)
    assert (ask.questions[0].header, [option.label for option in ask.questions[0].options]) == (
        *("Database", ["SQLite", "Postgres"]),
    )
    assert (ask.origin.agent, ask.origin.session[:7]) == ("script", "script:")
    await served.broker.answer(ask.id, Answer(answers=(("Postgres",),), by="ana", via="phone"))
    answer = await call
    assert isinstance(answer, Answer)
    assert (answer.value, answer.values, answer.by, answer.via) == ("Postgres", ("Postgres",), "ana", "phone")
    assert answer.at is not None and not answer.by_policy


async def test_everything_an_ask_can_hold_can_be_asked(served: Served, desk: Desk) -> None:
    options = (Option("a", value="1", description="first"), Option("b", recommended=True))
    several = asyncio.create_task(desk.ask("Which?", *options, multiple=True, custom=False, id="several"))
    ask = await asked(served, "several")
    assert (ask.questions[0].options, ask.questions[0].multiple, ask.questions[0].custom) == (options, True, False)
    await served.broker.answer("several", Answer(answers=(("1", "b"),)))
    assert (await several).values == ("1", "b")
    questions = [Question("One?"), Question("How many?", kind="number")]
    two = asyncio.create_task(desk.ask(questions, id="two", session="mine", agent="builder"))
    ask = await asked(served, "two")
    assert (ask.questions, ask.origin.session, ask.origin.agent) == (tuple(questions), "mine", "builder")
    await served.broker.answer("two", Answer(answers=(("yes",), ("2",))))
    assert (await two).answers == (("yes",), ("2",))
    wanted = Permission(tool="Bash", command="make deploy", replies=("once", "always", "reject"))
    permission = asyncio.create_task(desk.ask(wanted, id="permission"))
    assert (await asked(served, "permission")).permission == wanted
    await served.broker.answer("permission", Answer(reply="always"))
    assert (await permission).value == "always"


async def test_a_rejection_is_raised_with_its_reason(served: Served, desk: Desk) -> None:
    call = asyncio.create_task(desk.ask("Which database?", "SQLite"))
    await served.broker.reject((await asked(served)).id, reason="let us talk first", by="ana")
    with pytest.raises(Rejected, match="rejected by ana: let us talk first") as rejected:
        await call
    assert rejected.value.answer.reason == "let us talk first"


async def test_a_withdrawal_is_raised_with_its_reason(served: Served, desk: Desk) -> None:
    call = asyncio.create_task(desk.ask("Which database?", id="q1"))
    await asked(served)
    await served.broker.withdraw("q1", reason="aborted")
    with pytest.raises(Withdrawn, match="aborted") as withdrawn:
        await call
    assert withdrawn.value.ask.id == "q1"


async def test_without_a_desk_asking_says_so(tmp_path: Path) -> None:
    nowhere = Settings(home=tmp_path, url="http://127.0.0.1:9")
    async with Desk(settings=nowhere) as desk:
        with pytest.raises(DeskUnreachable, match="handraise serve") as unreachable:
            await desk.ask("Anybody?")
        assert unreachable.value.fields["url"] == "http://127.0.0.1:9"
        with pytest.raises(DeskUnreachable):
            await anext(desk.watch())


async def test_the_same_id_joins_and_gets_the_same_answer(served: Served, desk: Desk) -> None:
    first = asyncio.create_task(desk.ask("Deploy?", "yes", "no", id="deploy-7"))
    second = asyncio.create_task(desk.ask("Deploy?", "yes", "no", id="deploy-7"))
    await asked(served, "deploy-7")
    await served.answer("deploy-7", "no")
    assert await first == await second
    async with Desk(settings=served.settings) as another:
        assert (await another.ask("Deploy?", "yes", "no", id="deploy-7")).value == "no"
        with pytest.raises(AskDiffers):
            await another.ask("Something else?", id="deploy-7")
    assert len([ask async for ask in desk.asks()]) == 1


async def test_without_an_id_every_ask_is_its_own(served: Served, desk: Desk) -> None:
    handling = Handling(question_policy="accept-first")
    for _ in range(2):
        assert (await desk.ask("Which?", "a", "b", handling=handling)).value == "a"
    assert len([ask async for ask in desk.asks(state="answered")]) == 2


async def test_a_timeout_lets_policy_decide(desk: Desk) -> None:
    answer = await desk.ask("Which?", "a", "b", timeout=0.05)
    assert (answer.value, answer.by, answer.by_policy) == ("a", "policy:timeout", True)
    with pytest.raises(Rejected, match=r"no answer in 0\.05 s"):
        await desk.ask("Which?", "a", "b", timeout=0.05, on_timeout="reject")


async def test_an_ask_that_does_not_fit_is_not_asked(desk: Desk) -> None:
    with pytest.raises(AskDoesNotFit, match="characters fit"):
        await desk.ask("x" * 20_001)
    assert [ask async for ask in desk.asks()] == []


async def test_as_many_as_you_like_wait_at_once_and_answers_still_come_through(served: Served, desk: Desk) -> None:
    calls = [asyncio.create_task(desk.ask("Which?", "a", "b", id=f"q{number}")) for number in range(150)]
    await first_event(served.broker, lambda event: event.cursor == 150)
    for number in range(150):
        await desk.reply_question(f"q{number}", "b")
    assert {answer.value for answer in await asyncio.gather(*calls)} == {"b"}


async def test_giving_up_on_an_ask_leaves_it_open(served: Served, desk: Desk) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await desk.ask("Which?", "a", id="q1")
    assert (await served.get("q1"))["state"] == "asked"
    await served.answer("q1", "a")
    assert (await desk.ask("Which?", "a", id="q1")).value == "a"


async def test_what_is_not_a_desk_is_not_taken_for_one(tmp_path: Path) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Desk(url, settings=Settings(home=tmp_path)) as desk:
            with pytest.raises(DeskBroke):
                await desk.ask("Who are you?")
            with pytest.raises(DeskBroke):
                await anext(desk.watch())
            with pytest.raises(DeskBroke):
                await anext(desk.asks())
            with pytest.raises(DeskBroke):
                await desk.client.cursor()


# Answering --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "answers"),
    [
        ("b", (("b",), ())),
        (["b"], (("b",), ())),
        ([["b"], ["because"]], (("b",), ("because",))),
        ((("b",), ("because",)), (("b",), ("because",))),
        (Answer(answers=(("b",), ("because",)), notes=("sure", None)), (("b",), ("because",))),
    ],
)
async def test_an_answer_may_be_a_text_a_list_or_a_list_per_question(
    served: Served, desk: Desk, said: Any, answers: tuple[tuple[str, ...], ...]
) -> None:
    both = len(said) == 2 if not isinstance(said, str | Answer) else isinstance(said, Answer)
    questions = [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}, {"question": "Why?"}]
    await served.ask(id="q1", questions=questions if both else questions[:1])
    ask = await desk.reply_question("q1", said, by="ana")
    assert ask.answer is not None
    assert ask.answer.answers == (answers if both else answers[:1])
    assert (ask.answer.by, ask.answer.via) == ("ana", "sdk")


async def test_a_permission_is_replied_to_and_a_question_rejected(served: Served, desk: Desk) -> None:
    await served.broker.open(a_permission(id="p1", editable=True, input={"command": "rm -rf build"}))
    edited = Answer(reply="once", input={"command": "rm -rf build/cache"}, reason="only the cache")
    assert (await desk.reply_question("p1", edited)).answer == (await served.broker.get("p1")).answer
    await served.broker.open(a_permission(id="p2"))
    denied = await desk.reply_question("p2", "reject")
    assert denied.state == "rejected"
    await served.ask(id="q1")
    rejected = await desk.reject_question("q1", reason="not now", by="ana")
    assert rejected.answer is not None
    assert (rejected.state, rejected.answer.reason, rejected.answer.by) == ("rejected", "not now", "ana")


async def test_what_the_desk_refuses_is_raised_as_what_it_is(served: Served, desk: Desk) -> None:
    await served.ask(id="q1", questions=[{"question": "n", "kind": "number"}])
    with pytest.raises(AnswerDoesNotFit) as unfit:
        await desk.reply_question("q1", "many")
    assert unfit.value.problems[0]["question"] == 0
    await desk.reply_question("q1", "1", by="ana")
    with pytest.raises(AlreadyAnswered, match="by ana") as lost:
        await desk.reply_question("q1", "2")
    assert (lost.value.fields["by"], lost.value.fields["answer"]["answers"]) == ("ana", [["1"]])
    with pytest.raises(AskNotFound):
        await desk.reply_question("nobody", "x")
    with pytest.raises(AskNotFound):
        await desk.reject_question("nobody")
    async with Desk(served.url, token="wrong", settings=Settings(home=served.settings.home)) as stranger:
        with pytest.raises(Unauthorized):
            await stranger.ask("Let me in?")
    added = await served.http.post("/v1/tokens", json={"name": "ci", "scopes": ["ask"]})
    async with Desk(served.url, token=added.json()["token"], settings=served.settings) as asker:
        with pytest.raises(Forbidden):
            await asker.reject_question("q1")


# Handlers ---------------------------------------------------------------------------------------------------


async def settled(served: Served, *ids: str) -> list[str]:
    """The states of these asks, once all of them have one."""
    async with asyncio.timeout(PATIENCE):
        return [(await served.broker.wait(id, timeout=PATIENCE)).state for id in ids]


async def test_a_handler_answers_what_is_open_and_what_comes(served: Served, desk: Desk) -> None:
    await served.ask(id="before")
    await served.broker.open(a_permission(id="permission"))
    seen: list[str] = []

    @desk.on_question
    def pick(ask: Ask) -> str:
        seen.append(ask.id)
        return ask.questions[0].options[1].label

    @desk.on_permission
    async def allow(ask: Ask) -> Answer:
        await asyncio.sleep(0)
        assert ask.permission is not None
        return Answer(reply="once" if ask.permission.tool == "Bash" else "reject", by="robot", via="rules")

    assert await settled(served, "before", "permission") == ["answered", "answered"]
    await served.ask(id="after")
    assert await settled(served, "after") == ["answered"]
    assert seen == ["before", "after"]
    before, permission = await served.get("before"), await served.get("permission")
    assert (before["answer"]["answers"], before["answer"]["via"]) == ([["Postgres"]], "sdk")
    assert (permission["answer"]["reply"], permission["answer"]["by"]) == ("once", "robot")
    assert (pick.__name__, allow.__name__) == ("pick", "allow")


async def test_a_handler_that_fails_or_says_nothing_leaves_the_ask_open_and_goes_on(
    served: Served, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    @desk.on_question
    def sometimes(ask: Ask) -> str | None:
        seen.append(ask.id)
        match ask.id:
            case "fails":
                raise RuntimeError("the handler is broken")
            case "misfit":
                return "not one of them"
            case "silent":
                return None
        return "a"

    @desk.on_permission
    async def never(ask: Ask) -> None:
        raise RuntimeError("this one too")

    strict = [{"question": "q", "options": [{"label": "a"}], "custom": False}]
    for id in ("fails", "misfit", "silent", "fine"):
        await served.ask(id=id, questions=strict)
    await served.broker.open(a_permission(id="permission"))
    assert await settled(served, "fine") == ["answered"]
    await eventually(lambda: "permission" in caplog.text)
    assert seen == ["fails", "misfit", "silent", "fine"]
    for id in ("fails", "misfit", "silent", "permission"):
        assert (await served.get(id))["state"] == "asked"
    assert "a handler failed on ask fails" in caplog.text
    assert "misfit was not taken: answer_does_not_fit" in caplog.text
    assert "not one of them" not in caplog.text


async def test_what_somebody_else_settled_meanwhile_is_not_offered(served: Served, desk: Desk) -> None:
    seen: list[str] = []
    busy, go_on = asyncio.Event(), asyncio.Event()

    @desk.on_question
    async def slow(ask: Ask) -> str:
        seen.append(ask.id)
        busy.set()
        await go_on.wait()
        return "SQLite"

    await served.ask(id="first")
    await busy.wait()
    await served.ask(id="taken")
    await served.ask(id="last")
    await served.answer("taken", "Postgres")
    go_on.set()
    assert await settled(served, "first", "last") == ["answered", "answered"]
    assert seen == ["first", "last"]


async def test_two_handlers_each_hear_every_question_and_the_first_answer_counts(served: Served, desk: Desk) -> None:
    heard: list[tuple[str, str]] = []

    @desk.on_question
    def watch(ask: Ask) -> None:
        heard.append(("watch", ask.id))

    @desk.on_question
    def answer(ask: Ask) -> str:
        heard.append(("answer", ask.id))
        return "SQLite"

    await served.ask(id="q1")
    await served.ask(id="q2")
    assert await settled(served, "q1", "q2") == ["answered", "answered"]
    assert [id for who, id in heard if who == "answer"] == ["q1", "q2"]


async def test_a_reopened_ask_is_offered_again(served: Served, desk: Desk) -> None:
    times = asyncio.Semaphore(0)

    @desk.on_question
    def count(ask: Ask) -> None:
        times.release()

    async with asyncio.timeout(PATIENCE):
        await served.broker.open(an_ask(id="q1"))
        await times.acquire()
        await served.broker.withdraw("q1")
        await served.broker.open(an_ask(id="q1"))
        await times.acquire()


async def test_handlers_without_a_desk_end_the_block_with_the_reason(tmp_path: Path) -> None:
    async def serve_forever() -> None:
        async with Desk("http://127.0.0.1:9", settings=Settings(home=tmp_path)) as desk:
            desk.on_question(lambda ask: "never")
            desk.on_permission(lambda ask: "never")
            await asyncio.Event().wait()

    with pytest.raises(DeskUnreachable):
        await asyncio.wait_for(serve_forever(), PATIENCE)


# Restarts ---------------------------------------------------------------------------------------------------


async def test_an_ask_outlasts_a_desk_that_is_killed_and_started_again(tmp_path: Path, lasting_database: str) -> None:
    async with (
        DeskProcess(tmp_path, HANDRAISE_DATABASE=lasting_database) as process,
        Desk(settings=process.settings) as desk,
    ):
        call = asyncio.create_task(desk.ask("Which?", "a", "b", id="q1"))
        events = desk.watch(after=0)
        assert (await anext(events)).ask.id == "q1"
        await process.kill()
        await process.start()
        await desk.reply_question("q1", "b", by="ana")
        answer = await asyncio.wait_for(call, PATIENCE)
        assert (answer.value, answer.by) == ("b", "ana")
        assert [(await anext(events)).type for _ in range(2)] == ["answered", "delivered"]
        await events.aclose()  # type: ignore[attr-defined]


async def test_watching_goes_on_across_a_restart_without_loss_or_repeats(tmp_path: Path, lasting_database: str) -> None:
    async def watched(desk: Desk) -> list[tuple[int, str, str]]:
        seen: list[tuple[int, str, str]] = []
        async for event in desk.watch(after=0):
            seen.append((event.cursor, event.type, event.ask.id))
            if seen[-1][1:] == ("answered", "q19"):
                break
        return seen

    handling = Handling(question_policy="accept-first")
    async with (
        DeskProcess(tmp_path, HANDRAISE_DATABASE=lasting_database) as process,
        Desk(settings=process.settings) as desk,
    ):
        watching = asyncio.create_task(watched(desk))
        for number in range(20):
            if number in (5, 12):
                await process.kill() if number == 5 else await process.stop()
                await process.start()
            await desk.client.ask(an_ask(id=f"q{number}"), handling=handling)
        async with asyncio.timeout(PATIENCE):
            seen = await watching
            assert seen == await watched(desk)
    for type in ("asked", "answered"):
        assert [id for _, told, id in seen if told == type] == [f"q{number}" for number in range(20)]


async def test_handlers_go_on_across_a_restart(tmp_path: Path, lasting_database: str) -> None:
    async with (
        DeskProcess(tmp_path, HANDRAISE_DATABASE=lasting_database) as process,
        Desk(settings=process.settings) as desk,
    ):
        desk.on_question(lambda ask: "SQLite")
        for number in range(3):
            async with asyncio.timeout(2 * PATIENCE):
                answer = await desk.client.ask(an_ask(id=f"q{number}"))
            assert answer.value == "SQLite"
            await process.kill()
            await process.start()


async def test_what_was_delivered_is_told_on_the_way_out(served: Served) -> None:
    for id in ("q1", "q2"):
        await served.ask(id=id)
        await served.answer(id, "SQLite")
    async with Client(settings=served.settings) as client:
        client.delivered("q1")
        client.delivered("q2", error="the agent had died")
    one, two = await served.get("q1"), await served.get("q2")
    assert one["delivered_at"] is not None
    assert two["delivery_error"] == "the agent had died"


# The blocking twin ------------------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path, database: str) -> Iterator[Settings]:
    """The settings of a desk that runs beside the test."""
    with serving_in_a_thread(tmp_path, database=database):
        yield Settings(home=tmp_path)


@pytest.fixture(autouse=True)
def before() -> set[threading.Thread]:
    """The threads of loops that outlast a test, of which there may be some in this process."""
    _before.clear()
    _before.update(threading.enumerate())
    return _before


_before: set[threading.Thread] = set()


def our_threads() -> set[str]:
    new = set(threading.enumerate()) - _before
    return {thread.name for thread in new if thread.name.startswith(("handraise-desk", "asyncio"))}


def test_the_blocking_twin_does_the_same_and_leaves_no_thread(settings: Settings) -> None:
    with sync.Desk(settings=settings) as asker, sync.Desk(settings=settings) as person:

        @person.on_question
        def pick(ask: Ask) -> str | None:
            return None if ask.id == "mine" else ask.questions[0].options[0].label

        @person.on_permission
        async def allow(ask: Ask) -> str:
            return "once"

        assert asker.ask("Which?", "a", "b").value == "a"
        assert asker.ask(Permission(tool="Bash", command="ls")).value == "once"
        with pytest.raises(Rejected):
            asker.ask("Which?", "a", timeout=30, handling=Handling(question_policy="reject"))
        with pytest.raises(AskDoesNotFit):
            asker.ask("")
        with pytest.raises(AskNotFound):
            person.reply_question("nobody", "x")
        assert [ask.state for ask in person.asks()] == ["answered", "answered", "rejected"]
        types = []
        for event in person.watch(after=0):
            types.append(event.type)
            if event.type == "rejected":
                break
        assert types.count("asked") == 3
    assert our_threads() == set()
    asker.close()  # twice is fine


def test_the_blocking_twin_answers_and_rejects(settings: Settings) -> None:
    with sync.Desk(settings=settings) as desk, threading_ask(settings, "q1") as first:
        wait_for_ask(desk, "q1")
        assert desk.reply_question("q1", "b", by="ana").state == "answered"
        first.join(PATIENCE)
        with threading_ask(settings, "q2") as second:
            wait_for_ask(desk, "q2")
            assert desk.reject_question("q2", reason="no").state == "rejected"
            second.join(PATIENCE)
    assert first.said == "b"
    assert isinstance(second.said, Rejected)
    assert our_threads() == set()


class threading_ask(threading.Thread):
    """Somebody else who asks, blocking, in a thread."""

    def __init__(self, settings: Settings, id: str) -> None:
        super().__init__(name="asker")
        self._settings = settings
        self._id = id
        self.said: object = None

    def run(self) -> None:
        with sync.Desk(settings=self._settings) as desk:
            try:
                self.said = desk.ask("Which?", "a", "b", id=self._id).value
            except Rejected as rejected:
                self.said = rejected

    def __enter__(self) -> threading_ask:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join(PATIENCE)
        assert not self.is_alive()


def wait_for_ask(desk: sync.Desk, id: str) -> None:
    assert any(event.ask.id == id for event in desk.watch(after=0))


def test_ctrl_c_ends_a_blocking_ask_and_leaves_it_open(settings: Settings) -> None:
    def interrupt() -> None:
        with sync.Desk(settings=settings) as watcher:
            wait_for_ask(watcher, "q1")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with sync.Desk(settings=settings) as desk:
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            desk.ask("Which?", "a", id="q1")
        interrupting.join(PATIENCE)
        assert [ask.state for ask in desk.asks()] == ["asked"]
    assert our_threads() == set()


def test_a_desk_that_cannot_be_made_leaves_no_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HANDRAISE_HOME", str(tmp_path))
    monkeypatch.setenv("HANDRAISE_URL", "nonsense")
    with pytest.raises(SettingsError, match="HANDRAISE_URL"):
        sync.Desk()
    assert our_threads() == set()


def test_a_twin_whose_handlers_find_no_desk_leaves_no_thread(tmp_path: Path) -> None:
    desk = sync.Desk("http://127.0.0.1:9", settings=Settings(home=tmp_path))
    desk.on_question(lambda ask: "never")
    with pytest.raises(DeskUnreachable):
        desk.ask("Anybody?")
    with suppress(DeskUnreachable):  # raised here too where the handler learned of it before we left
        desk.close()
    with pytest.raises((DeskUnreachable, RuntimeError)):
        desk.ask("Anybody?")
    assert our_threads() == set()


def test_a_handler_that_never_returns_does_not_keep_the_program(settings: Settings) -> None:
    script = """
import threading
from handraise import Handling, sync

called = threading.Event()

def block(ask):
    called.set()
    threading.Event().wait()

with sync.Desk() as desk:
    desk.on_question(block)
    asking = threading.Thread(target=desk.ask, args=("Which?", "a"), daemon=True)
    asking.start()
    assert called.wait(5)
print("left")
"""
    environ = {**os.environ, "HANDRAISE_HOME": str(settings.home)}
    done = subprocess.run(  # it hangs where a thread of ours is waited for
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=4 * PATIENCE, check=False
    )
    assert (done.stdout, done.returncode) == ("left\n", 0), done.stderr


def test_a_script_that_does_not_close_its_desk_ends_quietly(settings: Settings) -> None:
    script = "from handraise.sync import Desk; desk = Desk(); print(len(list(desk.asks())))"
    environment = {**os.environ, "HANDRAISE_HOME": str(settings.home)}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"0\n", b"")
