"""The commands for sessions and agents as people and scripts run them: real processes, and once a real terminal."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from handraise.agents import Asker, Message, Reply, Start
from handraise.agents.scripted import Scripted, ScriptedSession
from handraise.app import open_store
from handraise.asks import Option, Permission, Question
from handraise.broker import Broker
from handraise.config import AgentTable
from handraise.errors import AgentFailed
from handraise.events import Asked, Event
from handraise.testing import an_ask
from tests.helpers.commands import Done
from tests.helpers.quick import quick_handraise
from tests.helpers.serving import START, Served, first_event, serving, told
from tests.helpers.trusting import trust_project

DATABASE = Question("Which database?", (Option("SQLite"), Option("Postgres", recommended=True)), header="Database")
NOWHERE = AgentTable(command=("/no/such/opencode",))
HOSTILE = "\x1b[31mred\u202e"
LOOK = 0.05  # seconds between two looks at a screen


class Talkative(Scripted):
    """Says what it does while it works, breaks on request, and may be deaf to an abort."""

    def __init__(self) -> None:
        super().__init__()
        self.is_deaf = False
        self.on_question("database", DATABASE)
        self.on_permission("clean", Permission(tool="Bash", summary="Clean up", command="rm -rf build"))
        self.on("database", lambda answers: f"it is {answers[0].value or answers[0].reason}")
        self.on("clean", lambda answers: f"clean: {answers[0].reply}").on("hello", "hello yourself")

    async def open(self, asker: Asker, start: Start) -> ScriptedSession:
        return _TalkativeSession(self, asker, start)


class _TalkativeSession(ScriptedSession):
    async def _play(self, text: str, *, turn: int) -> Reply:
        hear = self._start.listener.said
        if "talk" in text:
            hear(Message(role="agent", text="first I look"))
            hear(Message(role="tool", text="ls src", extra={"name": "Bash"}))
        if "hostile" in text:
            hear(Message(role="tool", text=HOSTILE))
            return Reply(text=HOSTILE)
        if "break" in text:
            raise AgentFailed("the model said no")
        return await super()._play(text, turn=turn)

    async def abort(self) -> None:
        if isinstance(self._agent, Talkative) and self._agent.is_deaf:
            await asyncio.Event().wait()
        await super().abort()


class Place:
    """A folder to run commands in, with the home of a desk beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir(parents=True)
        self.home = folder / "home"
        self.home.mkdir()
        self._begun: list[asyncio.subprocess.Process] = []
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("HANDRAISE_", "OPENCODE_"))}
        self.env = {
            **mine,
            "HANDRAISE_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",
        }

    async def run(self, *words: str) -> Done:
        process = await self.begin("handraise", *words)
        return await self.end(process)

    async def begin(self, *words: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._begun.append(process)
        return process

    async def end(self, process: asyncio.subprocess.Process) -> Done:
        out, err = await asyncio.wait_for(process.communicate(), START)
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), err.decode())

    async def clear(self) -> None:
        """End what a test that failed left behind."""
        for process in self._begun:
            if process.returncode is None:
                process.kill()
                await process.communicate()


@pytest.fixture(scope="module", autouse=True)
def program() -> Iterator[None]:
    """`handraise` on the PATH. Each call is a process of its own, only quicker to start."""
    with quick_handraise() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    await made.clear()


@pytest.fixture
def agent() -> Talkative:
    return Talkative()


@pytest.fixture
async def desk(place: Place, agent: Talkative) -> AsyncIterator[Served]:
    async with serving(place.home, staff=[agent]) as desk:
        yield desk


async def asked(desk: Served) -> Event:
    return await first_event(desk.broker, lambda event: isinstance(event, Asked) and event.ask.state == "asked")


async def session_of(desk: Served) -> dict[str, Any]:
    """The one session there is."""
    [session] = (await told(desk.http.get("/v1/sessions"), 200))["sessions"]
    return dict(session)


# start ------------------------------------------------------------------------------------------------------


async def test_start_prints_what_the_agent_said_last_and_everything_else_beside_it(desk: Served, place: Place) -> None:
    done = await place.run("start", "scripted", "talk and say hello")
    assert (done.code, done.out) == (0, "hello yourself\n")
    session = await session_of(desk)
    assert done.err.splitlines() == [f"session {session['id']} of scripted", "first I look", "· ls src"]
    assert (session["cwd"], session["mode"]) == (str(place.folder), None)


async def test_without_a_terminal_a_line_says_how_to_answer(desk: Served, place: Place) -> None:
    process = await place.begin("handraise", "start", "scripted", "database")
    assert process.stderr is not None
    lines = [(await asyncio.wait_for(process.stderr.readline(), START)).decode() for _ in range(2)]
    assert lines[1].startswith("scripted asks: Database · ")
    command = shlex.split(lines[1].partition(" · ")[2])
    assert (await place.run(*command[1:])).code == 0
    done = await place.end(process)
    assert (done.code, done.out) == (0, "it is SQLite\n")


async def test_what_its_subagents_ask_is_pointed_out_too_and_what_others_ask_is_not(desk: Served, place: Place) -> None:
    process = await place.begin("handraise", "start", "scripted", "database")
    own = (await asked(desk)).ask
    assert process.stderr is not None
    await asyncio.wait_for(process.stderr.readuntil(b"scripted asks: "), START)
    await desk.ask(id="theirs", origin={"agent": "other", "session": "elsewhere"})
    await desk.ask(id="child", origin={"agent": "helper", "session": "sub", "parent": own.origin.session})
    seen = await asyncio.wait_for(process.stderr.readuntil(b"helper asks: "), START)
    assert b"other asks" not in seen
    await desk.answer(own.id, "SQLite")
    assert (await told(desk.http.post("/v1/asks/child/withdraw"), 200))["state"] == "withdrawn"
    done = await place.end(process)
    assert (done.code, done.out) == (0, "it is SQLite\n")


async def test_as_json_there_is_one_object_with_the_session_and_the_text(desk: Served, place: Place) -> None:
    done = await place.run("start", "scripted", "hello", "--json", "--mode", "plan", "--stale", "60")
    assert done.code == 0
    session = json.loads(done.out)
    assert (session["state"], session["mode"], session["text"]) == ("idle", "plan", "hello yourself")
    assert (await desk.broker.sessions.get(session["id"])).stale_after == 60


async def test_detached_it_prints_the_id_and_leaves(desk: Served, place: Place) -> None:
    done = await place.run("start", "scripted", "database", "--detach")
    session = await session_of(desk)
    assert (done.code, done.out) == (0, f"{session['id']}\n")
    as_json = await place.run("start", "scripted", "hello", "--detach", "--json")
    assert json.loads(as_json.out)["agent"] == "scripted"


async def test_the_policy_of_the_command_comes_before_that_of_the_project(desk: Served, place: Place) -> None:
    project = place.folder / "shop"
    project.mkdir()
    (project / "handraise.toml").write_text('[policy]\nquestion_policy = "accept-first"\n')
    trust_project(project, home=place.home)
    in_project = ("start", "scripted", "database", "--cwd", "shop")
    assert (await place.run(*in_project)).out == "it is SQLite\n"
    assert (await place.run(*in_project, "--policy", "accept-recommended")).out == "it is Postgres\n"
    bounded = await place.run(*in_project, "--policy", "forward", "--timeout", "0.01", "--on-timeout", "reject")
    assert bounded.out == "it is no answer in 0.01 s\n"
    sessions = (await told(desk.http.get("/v1/sessions"), 200))["sessions"]
    assert {session["cwd"] for session in sessions} == {str(project)}


async def test_permissions_have_their_own_policy(desk: Served, place: Place) -> None:
    done = await place.run("start", "scripted", "clean", "--policy", "accept-first", "--permission-policy", "reject")
    assert done.out == "clean: reject\n"


async def test_a_turn_that_fails_is_exit_code_1_with_the_reason(desk: Served, place: Place) -> None:
    done = await place.run("start", "scripted", "break")
    assert (done.code, done.out) == (1, "")
    assert "handraise: The turn failed: the model said no" in done.err


async def test_what_cannot_be_started_is_said_in_a_sentence(desk: Served, place: Place) -> None:
    for words, code, said in (
        (("clippy", "hello"), 1, "no 'clippy'"),
        (("scripted", "hello", "--cwd", "nowhere"), 2, "no folder"),
        (("scripted", "hello", "--mode", "yolo"), 2, "yolo"),
        (("scripted", "hello", "--on-timeout", "reject"), 2, "--timeout"),
        (("scripted", ""), 1, "prompt"),
    ):
        done = await place.run("start", *words)
        assert (done.code, done.out) == (code, ""), words
        assert said in done.err and "Traceback" not in done.err


async def test_what_an_agent_wrote_is_inert_beside_the_output_and_verbatim_in_it(desk: Served, place: Place) -> None:
    done = await place.run("start", "scripted", "hostile")
    assert done.out == f"{HOSTILE}\n"
    assert "· \\x1b[31mred\\u202e" in done.err
    shown = await place.run("sessions", (await session_of(desk))["id"])
    assert "\x1b" not in shown.out and "\\x1b[31mred" in shown.out


async def test_without_a_desk_it_is_one_itself_until_the_turn_has_ended(place: Place) -> None:
    store = await open_store(f"sqlite:///{place.home / 'desk.db'}")
    async with Broker(store) as broker:
        await broker.open(an_ask())
    await store.close()
    done = await place.run("start", "scripted", "hello", "--json")
    assert done.code == 0
    assert json.loads(done.out)["state"] == "idle"
    assert "1 still waiting" in done.err
    assert not (place.home / "desk.json").exists()


async def test_a_desk_that_is_named_or_needed_and_not_there_is_exit_code_5(place: Place) -> None:
    for words in (("--detach",), ("--url", "http://127.0.0.1:9")):
        done = await place.run("start", "scripted", "hello", *words)
        assert (done.code, done.out) == (5, "")
        assert "handraise serve" in done.err


async def test_a_database_that_somebody_holds_without_a_word_is_waited_for(place: Place) -> None:
    """As while a desk starts: it has the database, and its address is written a moment later."""
    store = await open_store(f"sqlite:///{place.home / 'desk.db'}")
    process = await place.begin("handraise", "start", "scripted", "hello", "--json")
    async with serving(place.home, database="sqlite:///:memory:", staff=[Talkative()]):
        done = await place.end(process)
    await store.close()
    assert (done.code, json.loads(done.out)["text"]) == (0, "hello yourself")


async def test_ctrl_c_aborts_the_turn_and_says_so(desk: Served, place: Place) -> None:
    process = await place.begin(sys.executable, "-m", "handraise", "start", "scripted", "database")
    ask = (await asked(desk)).ask
    assert process.stderr is not None
    said = [(await asyncio.wait_for(process.stderr.readline(), START)).decode() for _ in range(2)]
    assert "asks" in said[1]
    process.send_signal(signal.SIGINT)
    done = await place.end(process)
    assert done.code == 1
    assert "aborting the turn; Ctrl+C again leaves at once" in done.err
    assert "The turn ended: it was aborted." in done.err
    assert (await desk.get(ask.id))["state"] == "withdrawn"


async def test_a_second_ctrl_c_leaves_at_once(desk: Served, place: Place, agent: Talkative) -> None:
    agent.is_deaf = True
    process = await place.begin(sys.executable, "-m", "handraise", "start", "scripted", "database")
    assert process.stderr is not None
    await asyncio.wait_for(process.stderr.readuntil(b"asks: "), START)
    process.send_signal(signal.SIGINT)
    await asyncio.wait_for(process.stderr.readuntil(b"leaves at once"), START)
    process.send_signal(signal.SIGINT)
    assert (await place.end(process)).code == 130


async def test_a_session_that_somebody_else_aborts_is_exit_code_1(desk: Served, place: Place) -> None:
    process = await place.begin("handraise", "start", "scripted", "database")
    await asked(desk)
    session = await session_of(desk)
    aborted = await place.run("abort", session["id"][:12])
    assert (aborted.code, aborted.out) == (0, f"session {session['id']} was told to end its turn\n")
    done = await place.end(process)
    assert (done.code, done.out) == (1, "")


# prompt, close, sessions ------------------------------------------------------------------------------------


async def test_a_prompt_goes_on_with_a_session_that_is_named_by_a_part_of_its_id(
    desk: Served, place: Place, agent: Talkative
) -> None:
    first = json.loads((await place.run("start", "scripted", "talk hello", "--json")).out)
    done = await place.run("prompt", first["id"][-8:], "hello again")
    assert (done.code, done.out) == (0, "hello yourself\n")
    assert done.err == f"session {first['id']} of scripted\n", "what was said before is not said again"
    later = await place.run("prompt", first["id"][:10], "database", "--detach")
    assert (later.code, later.out) == (0, "")
    await desk.answer((await asked(desk)).ask.id, "Postgres")
    assert [prompted.text for prompted in agent.prompted] == ["talk hello", "hello again", "database"]


async def test_a_closed_session_takes_no_prompt(desk: Served, place: Place) -> None:
    id = (await place.run("start", "scripted", "hello", "--detach")).out.strip()
    closed = await place.run("close", id, "--json")
    assert (closed.code, json.loads(closed.out)["id"]) == (0, id)
    await told(desk.http.get(f"/v1/sessions/{id}?wait=5"), 200)
    for command in (("prompt", id, "hello"), ("abort", id), ("close", id)):
        done = await place.run(*command)
        assert (done.code, done.out) == (1, "")
        assert "is done; start a new one" in done.err


async def test_sessions_are_listed_and_one_is_shown_with_what_was_said(desk: Served, place: Place) -> None:
    assert (await place.run("sessions")).out == "There are no sessions.\n"
    first = json.loads((await place.run("start", "scripted", "talk hello", "--json")).out)
    await desk.ask(id="elsewhere", origin={"agent": "claude", "session": "theirs", "cwd": "/srv/shop"})
    listed = (await place.run("sessions")).out.splitlines()
    assert listed[0].split() == ["ID", "STATE", "AGENT", "AGE", "ASKS", "WHERE"]
    assert [line.split()[0] for line in listed[1:]] == ["theirs", first["id"]]
    assert re.search(r"theirs +waiting \(not ours\) +claude .* 1 +/srv/shop$", listed[1])
    told_as_json = [json.loads(line) for line in (await place.run("sessions", "--json")).out.splitlines()]
    assert [session["id"] for session in told_as_json] == ["theirs", first["id"]]
    shown = (await place.run("sessions", first["id"][:9])).out
    assert shown.splitlines()[:2] == [
        first["id"],
        " · ".join(["idle", "scripted", str(place.folder), first["machine"]]),
    ]
    assert "you: talk hello\n\nscripted: first I look\n\n·: ls src\n\nscripted: hello yourself\n" in shown
    whole = json.loads((await place.run("sessions", first["id"], "--json")).out)
    assert [message["role"] for message in whole["messages"]] == ["person", "agent", "tool", "agent"]


async def test_an_id_that_means_several_sessions_or_none_is_said(desk: Served, place: Place) -> None:
    for _ in range(2):
        await place.run("start", "scripted", "hello", "--detach")
    several = await place.run("prompt", "ses_", "hello")
    assert several.code == 2
    assert "type more of the id" in several.err
    for command in (("sessions", "nobody"), ("prompt", "nobody", "x"), ("abort", "no/body"), ("close", "nobody")):
        done = await place.run(*command)
        assert (done.code, done.out) == (1, "")
        assert "there is no session" in done.err


# agents, attach, doctor -------------------------------------------------------------------------------------


async def test_agents_are_shown_in_a_table_with_what_is_in_the_way(place: Place) -> None:
    claude = Scripted()
    claude.name = "claude"
    place.env["PATH"] = os.pathsep.join(place.env["PATH"].split(os.pathsep)[:1])  # no agent is installed here
    async with serving(place.home, staff=[claude], agents={"opencode": NOWHERE}):
        done = await place.run("agents")
        one = await place.run("agents", "claude", "--json")
        unknown = await place.run("agents", "clippy")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["claude"]
    assert "asks questions             yes" in lines
    assert "your own terminal          -" in lines
    assert any(line.startswith("claude modes: default, accept-edits") for line in lines)
    assert re.search(r"^opencode: .*no/such/opencode", done.out, flags=re.MULTILINE)
    assert json.loads(one.out)["several_questions"] is True
    assert unknown.code == 1 and re.search("there are .*claude, .*opencode", unknown.err)


async def test_without_a_desk_agents_are_looked_for_on_this_machine(place: Place) -> None:
    (place.folder / "handraise.toml").write_text('[agents.opencode]\ncommand = ["/no/such/opencode"]\n')
    trust_project(place.folder, home=place.home)
    done = await place.run("agents", "opencode")
    assert done.code == 0
    assert "/no/such/opencode" in done.out
    checks = [json.loads(line) for line in (await place.run("doctor", "--json")).out.splitlines()]
    said = [check["said"] for check in checks if check["name"] == "agent"]
    assert {"acp", "claude", "opencode"} <= {line.split(":")[0].split()[0] for line in said}


async def test_a_desk_that_starts_nothing_says_so(place: Place) -> None:
    async with serving(place.home, has_worker=False):
        done = await place.run("agents")
    assert (done.code, done.out) == (1, "")
    assert "starts no agents itself" in done.err


async def test_attach_says_what_it_cannot_do(desk: Served, place: Place) -> None:
    for words, code, said in (
        (("scripted", "http://127.0.0.1:9"), 2, "cannot be listened to"),
        (("clippy", "http://127.0.0.1:9"), 1, "no 'clippy'"),
        (("opencode", "nonsense"), 2, "as in http://127.0.0.1:4096"),
        (("opencode", "http://[::1"), 2, "as in http://127.0.0.1:4096"),
        (("opencode",), 2, "say where opencode listens"),
        (("codex", "http://127.0.0.1:4096"), 2, "as in unix:///home/you/codex.sock"),
        (("opencode", "http://127.0.0.1:9", "--url", "http://127.0.0.1:9"), 5, "no desk answers"),
    ):
        done = await place.run("attach", *words)
        assert (done.code, done.out) == (code, ""), done.err
        assert said in done.err and "Traceback" not in done.err


async def test_attach_takes_the_password_from_the_environment_and_shows_it_nowhere(desk: Served, place: Place) -> None:
    secret = "s3cr3t word"
    seen: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        place.env["OPENCODE_SERVER_PASSWORD"] = secret
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        done = await place.run("attach", "opencode", address)
    assert done.code == 2
    assert "password" in done.err and secret not in done.err and "s3cr3t" not in done.err
    expected = base64.b64encode(f"opencode:{secret}".encode())
    signed = [request for request in seen if b"authorization:" in request.lower()]
    assert signed and all(expected in request for request in signed)


# On a terminal ----------------------------------------------------------------------------------------------


class Screen:
    """A real terminal, whose keys are pressed and whose screen is read."""

    def __init__(self) -> None:
        self._tmux = ["tmux", "-L", f"handraise-{secrets.token_hex(6)}", "-f", os.devnull]

    async def start(self, place: Place, *words: str) -> None:
        """Run this, and keep what it showed when it has ended, with its exit code."""
        command = f"{shlex.join([sys.executable, '-m', 'handraise', *words])}; echo left with $?; exec sleep 60"
        environ = [f"{name}={value}" for name, value in place.env.items() if name != "TMUX"]
        size = ("-x", "100", "-y", "40")
        await self._run("new-session", "-d", *size, "-c", str(place.folder), "env", "-i", *environ, "sh", "-c", command)

    async def end(self) -> None:
        await self._run("kill-server", check=False)

    async def press(self, *keys: str) -> None:
        await self._run("send-keys", *keys)

    async def shows(self, text: str) -> str:
        shown = ""
        try:
            async with asyncio.timeout(START):
                while text not in shown:
                    await asyncio.sleep(LOOK)
                    shown = await self._run("capture-pane", "-p")
        except TimeoutError:
            raise AssertionError(f"{text!r} did not appear: {shown}") from None
        return shown

    async def _run(self, *words: str, check: bool = True) -> str:
        process = await asyncio.create_subprocess_exec(
            *self._tmux, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        printed, problem = await asyncio.wait_for(process.communicate(), START)
        assert not check or process.returncode == 0, problem.decode()
        return printed.decode()


@asynccontextmanager
async def a_screen() -> AsyncIterator[Screen]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not here; install it to test what a terminal shows")
    screen = Screen()
    try:
        yield screen
    finally:
        await screen.end()


async def test_on_a_terminal_what_the_agent_says_is_shown_and_what_it_asks_is_answered_there(
    desk: Served, place: Place
) -> None:
    await desk.ask(id="somebody else's", origin={"agent": "claude", "session": "theirs"})
    async with a_screen() as screen:
        await screen.start(place, "start", "scripted", "talk about the database")
        await screen.shows("Select [1-2, or type custom]:")
        await screen.press("2", "Enter")
        shown = await screen.shows("left with 0")
    session = next(
        session for session in (await told(desk.http.get("/v1/sessions"), 200))["sessions"] if session["managed"]
    )
    lines = [line.strip() for line in shown.splitlines()]
    assert lines[0] == f"session {session['id']} of scripted"
    assert lines.index("first I look") < lines.index("· ls src") < lines.index("it is Postgres")
    assert any(line.startswith("go on with it:") for line in lines)
    assert "Which database should I use" not in shown, "the ask of another session is not asked here"
    [answered] = [ask async for ask in desk.broker.asks(state="answered")]
    assert answered.answer is not None
    assert answered.answer.via == "terminal"


async def test_on_a_terminal_ctrl_c_aborts_the_turn(desk: Served, place: Place, agent: Talkative) -> None:
    async with a_screen() as screen:
        await screen.start(place, "start", "scripted", "database")
        await screen.shows("Select [1-2, or type custom]:")
        await screen.press("C-c")
        await screen.shows("Left unanswered")
        await screen.press("C-c")
        shown = await screen.shows("left with 1")
    assert "aborting the turn" in shown
    assert "The turn ended: it was aborted." in shown
    assert [ask.state async for ask in desk.broker.asks()] == ["withdrawn"]
