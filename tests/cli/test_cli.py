"""The commands as people and scripts run them: real processes against a real desk on a free port."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, chdir, closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from handraise.app import open_store
from handraise.asks import Answer, Ask, Handling, Option, Origin, Permission, Question, Scope
from handraise.cli import app, main
from handraise.cli.calling import person
from handraise.client import Client
from handraise.config import Settings
from handraise.events import Asked
from tests.helpers.commands import HANDRAISE, Done, running
from tests.helpers.trusting import trust_project

PATIENCE = 10.0  # seconds for a process to do its work; two cores may be busy


class Home:
    """A home folder for a desk, and the commands that are run with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"  # where commands are run, so that no settings of ours apply
        self.work.mkdir(parents=True)
        self.settings = Settings(home=folder / "home")

    def env(self, **more: str) -> dict[str, str]:
        mine = {key: value for key, value in os.environ.items() if not key.startswith("HANDRAISE_")}
        mine |= {"HANDRAISE_HOME": str(self.settings.home), "XDG_CONFIG_HOME": str(self.folder / "config")}
        return mine | {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1"} | more

    def client(self) -> Client:
        return Client(settings=self.settings)

    async def run(self, *words: str, cwd: Path | None = None, **env: str) -> Done:
        """Run a command to its end."""
        async with self.running(*words, cwd=cwd, **env) as command:
            out, err = await asyncio.wait_for(command.communicate(), PATIENCE)
            assert command.returncode is not None
            return Done(command.returncode, out.decode(), err.decode())

    async def here(self, *words: str) -> Done:
        """The same in this process, for the many ways in which a command can be called."""
        return await asyncio.to_thread(self._main, *words)

    def _main(self, *words: str) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.env(), clear=True),
            mock.patch.object(sys, "argv", ["handraise", *words]),
            chdir(self.work),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as left,
        ):
            main()
        return Done(int(left.value.code or 0), out.getvalue(), err.getvalue())

    @asynccontextmanager
    async def running(
        self, *words: str, cwd: Path | None = None, **env: str
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """A command that goes on. It is gone when this is left."""
        async with running(*HANDRAISE, *words, cwd=cwd or self.work, env=self.env(**env)) as process:
            yield process

    async def asked(self, client: Client, id: str) -> Ask:
        """The ask, once it is raised."""
        async with asyncio.timeout(PATIENCE):
            async for event in client.events(after=0):
                if isinstance(event, Asked) and event.ask.id == id:
                    return event.ask
        raise AssertionError("the desk closed")


@contextmanager
def serving(home: Home, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A desk in a process of its own, ready when this is entered."""
    process = subprocess.Popen(
        [sys.executable, "-m", "handraise", "serve", "--port", "0", *options],
        cwd=home.work,
        env=home.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), process.communicate(timeout=PATIENCE)[1]
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """One desk for the tests that do not end it. Each uses ids and agents of its own."""
    home = Home(tmp_path_factory.mktemp("desk"))
    with serving(home):
        yield home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home without a desk."""
    return Home(tmp_path)


@pytest.fixture
async def client(desk: Home) -> AsyncIterator[Client]:
    async with desk.client() as client:
        yield client


def a_question(id: str, *, agent: str = "scripted", **changes: Any) -> Ask:
    options = tuple(Option(label) for label in changes.pop("options", ("SQLite", "PostgreSQL", "None")))
    question = replace(Question("Which database?", options, header="Database"), **changes)
    return Ask(id=id, questions=(question,), origin=Origin(agent=agent, session="s1"))


def a_permission(id: str, **changes: Any) -> Ask:
    permission = Permission(
        tool="Bash",
        summary="Clean up",
        command="rm -rf build",
        replies=("once", "always", "reject"),
        scopes=(
            Scope(id="session", label="this session", patterns=("rm -rf build", "rm *")),
            Scope(id="project", label="this project", patterns=("rm -rf build",)),
        ),
    )
    return Ask(id=id, permission=replace(permission, **changes), origin=Origin(agent="scripted", session="s1"))


# Help -------------------------------------------------------------------------------------------------------

COMMANDS = [
    "serve",
    "demo",
    "ask",
    "asks",
    "answer",
    "reject",
    "keep-waiting",
    "deliver",
    "watch",
    "open",
    "audit",
    "doctor",
]
COMMANDS += ["start", "prompt", "abort", "close", "sessions", "agents", "attach", "mcp", "install", "uninstall"]
COMMANDS += ["run", "trace", "workflows", "cancel", "retry", "rerun", "checkpoint", "worker", "chat", "trust"]
GROUPS = ["runs", "runs show", "token", "token add", "token list", "token revoke", "store", "store copy"]
GROUPS += ["channels", "channels test"]
MOVED = {
    "sessions": ["prompt", "abort", "close", "attach"],
    "runs": ["trace", "cancel", "retry", "rerun", "checkpoint"],
}
GROUPS += [f"{group} {name}" for group, names in MOVED.items() for name in names]


@pytest.mark.parametrize("command", ["", *COMMANDS, *GROUPS])
def test_the_help_of_every_command_has_an_example(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"])
    assert shown.exit_code == 0
    assert "Example" in shown.output


def test_help_lists_every_command_with_a_whole_line() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    headings = shown.partition("Most used:\n")[2].partition("\n  Examples:")[0]
    listed = [line for line in headings.splitlines() if line.startswith("  ")]
    moved = {name for names in MOVED.values() for name in names}
    assert {line.split()[0] for line in listed} == {*COMMANDS, "rules", "runs", "token", "store", "channels"} - moved
    assert len(listed) == len({line.split()[0] for line in listed})
    assert [line.split()[0] for line in listed[:6]] == ["serve", "start", "watch", "asks", "answer", "ask"]
    assert not [line for line in listed if line.endswith("...")]


async def test_help_loads_nothing_heavy(home: Home) -> None:
    heavy = "{'asyncio', 'httpx2', 'pydantic', 'starlette', 'uvicorn', 'sqlite3', 'prompt_toolkit', 'rich'}"
    probe = f"import sys, handraise.cli; sys.exit(', '.join({heavy} & set(sys.modules)))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", probe, stderr=subprocess.PIPE)
    _, err = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert err.decode().strip() == ""


# ask --------------------------------------------------------------------------------------------------------


async def test_ask_prints_what_was_chosen(desk: Home, client: Client) -> None:
    async with desk.running("ask", "Deploy now?", "yes", "no", "--id", "ask-1") as asking:
        ask = await desk.asked(client, "ask-1")
        assert [option.label for option in ask.questions[0].options] == ["yes", "no"]
        assert (ask.origin.agent, ask.origin.cwd) == ("script", str(desk.work))
        answered = await desk.run("answer", "ask-1", "2", "--note", "not yet")
        assert answered.code == 0, answered.err
        out, err = await asyncio.wait_for(asking.communicate(), PATIENCE)
    assert (asking.returncode, out) == (0, b"no\n")
    assert f"note from {person()}: not yet" in err.decode()
    settled = await client.get("ask-1")
    assert settled.answer is not None
    assert (settled.answer.by, settled.answer.via) == (person(), "cli")
    assert settled.delivered_at is not None


async def test_several_values_come_one_a_line_with_own_text_last(desk: Home, client: Client) -> None:
    words = ("ask", "Which hosts?", "web1", "web2", "db1", "--multiple", "--id", "ask-2")
    async with desk.running(*words) as asking:
        await desk.asked(client, "ask-2")
        assert (await desk.run("answer", "ask-2", "3,1", "and mine")).code == 0
        out, _ = await asyncio.wait_for(asking.communicate(), PATIENCE)
    assert out.decode().splitlines() == ["web1", "db1", "and mine"]


async def test_an_ask_whose_time_ran_out_stays_open_and_is_picked_up_by_its_id(desk: Home, client: Client) -> None:
    late = await desk.run("ask", "Release name?", "--kind", "text", "--timeout", "0.2")
    assert (late.code, late.out) == (3, "")
    id = late.err.partition("--id ")[2].split()[0]
    assert (await client.get(id)).state == "asked"
    await client.answer(id, Answer(answers=(("Early Bird",),), by="ana"))
    again = await desk.run("ask", "Release name?", "--kind", "text", "--id", id)
    assert (again.code, again.out) == (0, "Early Bird\n")


async def test_an_id_joins_from_another_folder_but_not_with_another_question(desk: Home, client: Client) -> None:
    await desk.run("ask", "Deploy?", "yes", "no", "--id", "ask-3", "--timeout", "0")
    await client.answer("ask-3", Answer(answers=(("yes",),), by="ana"))
    elsewhere = await desk.run("ask", "Deploy?", "yes", "no", "--id", "ask-3", cwd=desk.folder)
    assert (elsewhere.code, elsewhere.out) == (0, "yes\n")
    other = await desk.run("ask", "Deploy twice?", "yes", "no", "--id", "ask-3")
    assert other.code == 1
    assert "other content" in other.err


async def test_what_was_permitted_in_one_folder_is_not_permitted_in_another(desk: Home, client: Client) -> None:
    words = ("ask", "--command", "rm -rf build", "--id", "ask-4")
    assert (await desk.run(*words, "--timeout", "0")).code == 3
    await client.answer("ask-4", Answer(reply="once", by="ana"))
    here, elsewhere = await asyncio.gather(desk.run(*words), desk.run(*words, cwd=desk.folder))
    assert (here.code, here.out) == (0, "once\n")
    assert (elsewhere.code, elsewhere.out) == (1, "")


async def test_a_rejection_is_exit_code_4_with_the_reason(desk: Home, client: Client) -> None:
    async with desk.running("ask", "Deploy?", "yes", "no", "--id", "ask-5", "--json") as asking:
        await desk.asked(client, "ask-5")
        assert (await desk.run("reject", "ask-5", "--reason", "not on a Friday")).code == 0
        out, err = await asyncio.wait_for(asking.communicate(), PATIENCE)
    assert asking.returncode == 4
    assert err.decode() == f"handraise: rejected by {person()}: not on a Friday\n"
    assert json.loads(out)["state"] == "rejected"


async def test_a_withdrawn_ask_is_exit_code_1(desk: Home, client: Client) -> None:
    async with desk.running("ask", "Deploy?", "--id", "ask-6") as asking:
        await desk.asked(client, "ask-6")
        await client.withdraw("ask-6", reason="moved on")
        _, err = await asyncio.wait_for(asking.communicate(), PATIENCE)
    assert asking.returncode == 1
    assert "moved on" in err.decode()


async def test_ctrl_c_withdraws_the_ask(desk: Home, client: Client) -> None:
    async with desk.running("ask", "Deploy?", "--id", "ask-7") as asking:
        await desk.asked(client, "ask-7")
        asking.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(asking.communicate(), PATIENCE)
    assert (asking.returncode, out) == (130, b"")
    assert err.decode() == "handraise: withdrew the ask ask-7\n"
    assert (await client.get("ask-7")).state == "withdrawn"


async def test_without_a_desk_it_is_exit_code_5(home: Home) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        for words in (("ask", "Deploy?"), ("asks",)):
            done = await home.here(*words, "--url", url)
            assert (done.code, done.out) == (5, "")
            assert "handraise serve" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("ask",),
        ("ask", "x", "--kind", "colour"),
        ("ask", "x", "a", "--describe", "b=no such option"),
        ("ask", "x", "--on-timeout", "reject"),
        ("ask", "x", "--timeout", "nan"),
        ("ask", "--permission", "x", "--policy", "accept-first"),
        ("ask", "List", "an option", "--command", "ls"),
        ("answer",),
        ("asks", "--state", "lost"),
    ],
)
def test_a_wrong_call_is_exit_code_2_and_nothing_is_asked(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["handraise", *words, "--url", "http://127.0.0.1:1"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2


async def test_policy_and_deadline_are_the_desk_s_to_apply(desk: Home) -> None:
    first, recommended, refused, permission = await asyncio.gather(
        desk.run("ask", "Which?", "a", "b", "--policy", "accept-first"),
        desk.run(
            *("ask", "Which?", "a", "b", "--recommend", "b"),
            *("--answer-by", "0.1", "--on-timeout", "accept-recommended"),
        ),
        desk.run("ask", "Which?", "a", "b", "--answer-by", "0.1", "--on-timeout", "reject"),
        desk.run("ask", "--permission", "Clean up", "--answer-by", "0.1", "--on-timeout", "accept-first"),
    )
    assert (first.code, first.out) == (0, "a\n")
    assert (recommended.code, recommended.out) == (0, "b\n")
    assert refused.code == 4
    assert (permission.code, permission.out) == (4, ""), "silence never grants a permission"


async def test_the_policy_of_the_project_goes_along(desk: Home) -> None:
    project = desk.folder / "project"
    project.mkdir()
    (project / "handraise.toml").write_text('[policy]\nquestion_policy = "accept-first"\n')
    trust_project(project, home=desk.settings.home)
    asked = await desk.run("ask", "Which?", "a", "b", cwd=project)
    assert (asked.code, asked.out) == (0, "a\n")
    (project / "handraise.toml").write_text("[policy]\nquestion = 1\n")
    broken = await desk.run("ask", "Which?", "a", "b", cwd=project)
    assert broken.code == 2
    assert "handraise.toml" in broken.err


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_an_ask_outlives_the_desk_and_gets_its_answer_from_the_next_one(home: Home, how: signal.Signals) -> None:
    with serving(home) as first:
        async with home.client() as client, home.running("ask", "Deploy?", "yes", "no", "--id", "kept") as asking:
            await home.asked(client, "kept")
            first.send_signal(how)
            first.communicate(timeout=PATIENCE)
            with serving(home):  # on another port
                assert (await home.run("answer", "kept", "yes")).code == 0
                out, err = await asyncio.wait_for(asking.communicate(), PATIENCE)
    assert (asking.returncode, out, err) == (0, b"yes\n", b"")


# asks -------------------------------------------------------------------------------------------------------


async def test_asks_lists_what_waits_with_its_deadline(desk: Home, client: Client) -> None:
    nothing = await desk.run("asks", "--agent", "lister")
    assert (nothing.code, nothing.out) == (0, "Nothing is waiting for you.\n")
    await client.open(a_question("list-1", agent="lister"))
    await client.open(a_question("list-2", agent="lister"), handling=Handling(question_timeout=600))
    listed = await desk.run("asks", "--agent", "lister")
    assert listed.code == 0
    head, urgent, other = listed.lines
    assert head.split() == ["ID", "AGENT", "AGE", "DEADLINE", "ABOUT"]
    assert urgent.split()[:2] == ["list-2", "lister"]
    assert "in 10 min: SQLite" in urgent
    assert other.split()[0] == "list-1"
    assert other.endswith("Database")


async def test_asks_finds_a_text_and_lists_the_newest_first(desk: Home, client: Client) -> None:
    for id in ("find-1", "find-2", "find-3"):
        await client.open(a_question(id, agent="finder"))
    await client.reject("find-1", reason="Überholt")
    await client.answer("find-2", Answer(answers=(("SQLite",),)))
    newest = await desk.run("asks", "--agent", "finder", "--state", "all", "--newest")
    assert [line.split()[0] for line in newest.lines] == ["ID", "find-3", "find-2", "find-1"]
    settled = await desk.run("asks", "--agent", "finder", "--state", "settled")
    assert [line.split()[0] for line in settled.lines] == ["ID", "find-1", "find-2"]
    assert "STATE" in settled.lines[0]
    found = await desk.run("asks", "--search", "überHOLT", "--state", "all", "--json")
    assert [json.loads(line)["id"] for line in found.lines] == ["find-1"]


async def test_asks_shows_one_in_full(desk: Home, client: Client) -> None:
    await client.open(a_question("whole-1"))
    shown = await desk.here("asks", "whole")
    assert shown.code == 0
    assert "  2. PostgreSQL" in shown.lines
    await client.answer("whole-1", Answer(answers=(("None",),), by="ana", via="web"))
    assert "None · ana, in web" in (await desk.here("asks", "whole-1")).out


async def test_nothing_hidden_gets_through(desk: Home, client: Client) -> None:
    await client.open(a_question("hidden-1", agent="evil", header="\x1b[2Jgone\u202e", question="\x1b]0;title\x07?"))
    listed = await desk.here("asks", "--agent", "evil")
    shown = await desk.here("asks", "hidden-1")
    told = await desk.here("asks", "--agent", "evil", "--json")
    for done in (listed, shown, told):
        assert "\x1b" not in done.out
        assert "\u202e" not in done.out
    assert "\\x1b[2Jgone\\u202e" in listed.out
    assert told.out.isascii()
    assert json.loads(told.out)["questions"][0]["header"] == "\x1b[2Jgone\u202e"


async def test_a_reader_that_leaves_early_is_no_trouble(desk: Home, client: Client) -> None:
    await client.open(a_question("early-1"))
    for words in (("asks",), ("watch", "--json")):
        read, write = os.pipe()
        os.close(read)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handraise", *words), env=desk.env(), stdout=write, stderr=subprocess.PIPE
        )
        os.close(write)
        _, err = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert err == b"", words


# answer, reject, keep-waiting -------------------------------------------------------------------------------


async def answered(client: Client, id: str) -> tuple[tuple[str, ...], ...] | None:
    answer = (await client.get(id)).answer
    return None if answer is None else answer.answers


async def test_an_answer_may_be_a_label_in_any_case_and_an_id_its_beginning_or_end(desk: Home, client: Client) -> None:
    await client.open(a_question("agent:5f0c:label-1"))
    ended = await desk.run("answer", "label-1", "postgresql", "--by", "ana")
    assert (ended.code, ended.out) == (0, "→ scripted: answered: PostgreSQL · ana, in cli\n")
    assert await answered(client, "agent:5f0c:label-1") == (("PostgreSQL",),)


async def test_an_id_that_could_be_several_names_them(desk: Home, client: Client) -> None:
    await client.open(a_question("twin-1"))
    await client.open(a_question("twin-2"))
    done = await desk.here("answer", "twin", "1")
    assert done.code == 2
    assert "twin-1, twin-2" in done.err
    assert (await desk.here("answer", "nobody-has-this", "1")).code == 1


async def test_several_questions_take_one_argument_each(desk: Home, client: Client) -> None:
    several = replace(
        a_question("several-1"),
        questions=(
            a_question("x").questions[0],
            Question("What is it called?", kind="text"),
            a_question("x", multiple=True).questions[0],
            Question("Anything else?"),
        ),
    )
    await client.open(several)
    few = await desk.here("answer", "several-1", "1", "x")
    assert few.code == 2
    assert "4 questions" in few.err
    wrong = await desk.here("answer", "several-1", "9", "x", "7", "-")
    assert wrong.code == 2
    assert "question 1: " in wrong.err
    assert "question 3: " in wrong.err
    assert (await client.get("several-1")).state == "asked"
    assert (await desk.here("answer", "several-1", "2", "my text", "1,3", "-", "--note", "why not")).code == 0
    assert await answered(client, "several-1") == (("PostgreSQL",), ("my text",), ("SQLite", "None"), ())


async def test_own_text_is_taken_as_it_is(desk: Home, client: Client) -> None:
    await client.open(a_question("text-1"))
    assert (await desk.here("answer", "text-1", "--text", "2")).code == 0
    assert await answered(client, "text-1") == (("2",),)


async def test_an_answer_that_does_not_fit_is_exit_code_2_and_the_ask_stays_open(desk: Home, client: Client) -> None:
    await client.open(a_question("unfit-1", custom=False))
    unfit: list[tuple[str, ...]] = [("MySQL",), ("1", "2"), (":w",), ("1", "--scope", "session")]
    for words in unfit:
        done = await desk.here("answer", "unfit-1", *words)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("handraise: ")
    assert (await client.get("unfit-1")).state == "asked"


async def test_the_second_answer_is_told_who_was_faster(desk: Home, client: Client) -> None:
    await client.open(a_question("race-1"))
    await client.answer("race-1", Answer(answers=(("None",),), by="ana", via="web"))
    same = await desk.here("answer", "race-1", "None")
    assert (same.code, same.out) == (0, "→ scripted: answered: None · ana, in web\n")
    for late in (("SQLite",), ("7",)):
        done = await desk.here("answer", "race-1", *late)
        assert (done.code, done.out) == (1, "")
        assert done.err == "handraise: ask 'race-1' was already answered by ana in web: None\n"


async def test_a_permission_takes_a_reply(desk: Home, client: Client) -> None:
    for id in ("perm-1", "perm-2", "perm-3"):
        await client.open(a_permission(id, editable=id == "perm-3"))
    unsaid = await desk.here("answer", "perm-1", "always")
    unknown = await desk.here("answer", "perm-1", "perhaps")
    always = await desk.here("answer", "perm-2", "always", "--scope", "this session", "--pattern", "rm -rf build")
    edited = await desk.here("answer", "perm-3", "once", "--input", '{"command": "make clean"}')
    assert unsaid.code == unknown.code == 2
    assert "session (rm -rf build, rm *)" in unsaid.err
    assert always.code == edited.code == 0
    denied = await desk.here("answer", "perm-1", "reject", "--message", "not here")
    assert denied.code == 0
    replies = [(await client.get(id)).answer for id in ("perm-1", "perm-2", "perm-3")]
    no, far, changed = (reply for reply in replies if reply is not None)
    assert (no.rejected, no.reason) == (True, "not here")
    assert (far.reply, far.scope, far.patterns) == ("always", "session", ("rm -rf build",))
    assert (changed.reply, changed.input) == ("once", {"command": "make clean"})


async def test_keep_waiting_moves_the_deadline(desk: Home, client: Client) -> None:
    opened = await client.open(a_question("keep-1"), handling=Handling(question_timeout=600))
    await client.open(a_question("keep-2"))
    moved, still = await desk.here("keep-waiting", "keep-1"), await desk.here("keep-waiting", "keep-2")
    assert (moved.code, moved.out) == (0, "keep-1 now waits for another 20 min\n")
    assert still.code == 0
    assert "no deadline" in still.out
    after = (await client.get("keep-1")).deadline
    assert opened.deadline is not None
    assert after is not None
    assert (after - opened.deadline).total_seconds() == 600


# watch ------------------------------------------------------------------------------------------------------


async def test_watch_without_a_terminal_counts_and_never_prompts(desk: Home, client: Client) -> None:
    nothing = await desk.run("watch", "--agent", "counted")
    assert (nothing.code, nothing.out) == (0, "Nothing is waiting for you.\n")
    await client.open(a_question("count-1", agent="counted"))
    some = await desk.run("watch", "--agent", "counted")
    assert some.code == 3
    assert some.out.startswith("1 waiting · http://127.0.0.1:")


async def test_watch_tells_what_happens_as_lines(desk: Home, client: Client) -> None:
    await client.open(a_question("told-1", agent="teller"))
    async with (
        desk.running("watch", "--json", "--agent", "teller") as events,
        desk.running("watch", "--follow", "--agent", "teller") as lines,
    ):
        assert events.stdout is not None
        assert lines.stdout is not None
        first = json.loads(await asyncio.wait_for(events.stdout.readline(), PATIENCE))
        assert (first["type"], first["ask"]["id"]) == ("asked", "told-1")
        assert b"Database" in await asyncio.wait_for(lines.stdout.readline(), PATIENCE)
        await client.open(a_question("told-other", agent="somebody else"))
        await client.answer("told-1", Answer(answers=(("SQLite",),), by="ana", via="web"))
        second = json.loads(await asyncio.wait_for(events.stdout.readline(), PATIENCE))
        assert (second["type"], second["ask"]["answer"]["by"]) == ("answered", "ana")
        assert b"SQLite" in await asyncio.wait_for(lines.stdout.readline(), PATIENCE)
        events.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(events.communicate(), PATIENCE) == (b"", b"")
        assert events.returncode == 130


async def test_watch_on_a_terminal_takes_the_answer(desk: Home, client: Client) -> None:
    await client.open(a_question("typed-1", agent="typist"))
    person, terminal = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handraise", "watch", "--agent", "typist", "--by", "ana"),
        env=desk.env(TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1"),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    try:
        await read_until(person, "Select [1-3")
        os.write(person, b"2\r")
        await read_until(person, "answered: PostgreSQL")
    finally:
        process.kill()
        await process.wait()
        os.close(person)
    settled = (await client.get("typed-1")).answer
    assert settled is not None
    assert (settled.values, settled.by, settled.via) == (("PostgreSQL",), "ana", "terminal")


@pytest.mark.parametrize(
    ("locale", "setting", "prompt"),
    [
        ("C", "", "Select [1-3, or type custom]:"),
        ("xx_YY.UTF-8", "", "Select [1-3, or type custom]:"),
        ("de_DE.UTF-8", "", "Auswahl [1-3, oder eigener Text]:"),
        ("de_DE.UTF-8", "en", "Select [1-3, or type custom]:"),
        ("C", "de", "Auswahl [1-3, oder eigener Text]:"),
    ],
)
async def test_watch_asks_in_the_language_of_the_terminal_unless_settings_name_one(
    desk: Home, client: Client, tmp_path: Path, locale: str, setting: str, prompt: str
) -> None:
    agent = f"{locale} {setting}"
    await client.open(a_question(f"spoken-{agent}", agent=agent))
    config = tmp_path / "handraise" / "config.toml"
    config.parent.mkdir()
    config.write_text(f'[terminal]\nlanguage = "{setting}"\n' if setting else "")
    env = desk.env(TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1", LC_ALL=locale, PYTHONUTF8="1")
    person, terminal = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handraise", "watch", "--agent", agent),
        env=env | {"XDG_CONFIG_HOME": str(tmp_path)},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    try:
        await read_until(person, prompt)
    finally:
        process.kill()
        await process.wait()
        os.close(person)


async def read_until(terminal: int, text: str) -> None:
    loop, seen = asyncio.get_running_loop(), b""
    readable = asyncio.Event()
    loop.add_reader(terminal, readable.set)
    try:
        async with asyncio.timeout(PATIENCE):
            while text.encode() not in seen:
                await readable.wait()
                seen += os.read(terminal, 65536)
                readable.clear()
    except TimeoutError:
        raise AssertionError(f"{text!r} did not come: {seen.decode()!r}") from None
    finally:
        loop.remove_reader(terminal)


# token, open, doctor, serve ---------------------------------------------------------------------------------


async def test_a_token_may_do_what_its_scope_says_until_it_is_revoked(desk: Home, client: Client) -> None:
    made = await desk.run("token", "add", "ci", "--scope", "ask")
    assert made.code == 0
    secret = made.out.strip()
    assert made.out == f"{secret}\n"
    assert secret not in (await desk.here("token", "list")).out
    may_ask, may_not_list = await asyncio.gather(
        desk.run("ask", "Deploy?", "--timeout", "0", HANDRAISE_TOKEN=secret), desk.run("asks", HANDRAISE_TOKEN=secret)
    )
    assert (may_ask.code, may_not_list.code) == (3, 1)
    assert "scope 'answer'" in may_not_list.err
    assert (await desk.run("token", "revoke", "ci")).code == 0
    again, refused = await asyncio.gather(
        desk.run("token", "revoke", "ci"), desk.run("ask", "Deploy?", HANDRAISE_TOKEN=secret)
    )
    assert again.code == refused.code == 1
    assert "HANDRAISE_TOKEN" in refused.err


async def test_tokens_can_be_made_before_the_desk_runs(home: Home) -> None:
    made = await home.run("token", "add", "phone", "--scope", "answer", "--scope", "ask")
    assert made.code == 0
    with serving(home):
        listed = await home.run("token", "list", "--json")
        scopes = {told["name"]: told["scopes"] for told in map(json.loads, listed.lines)}
        assert scopes == {"admin": ["admin"], "phone": ["answer", "ask"]}
        assert (await home.run("asks", HANDRAISE_TOKEN=made.out.strip())).code == 0


async def test_open_prints_a_sign_in_link(desk: Home) -> None:
    printed = await desk.run("open", "--print")
    assert printed.code == 0
    assert printed.out.startswith(f"{desk.settings.running_desk()}/signin/")


async def test_doctor_finds_the_desk_and_an_open_token_file(desk: Home, home: Home) -> None:
    async def statuses(of: Home) -> tuple[int, dict[str, str]]:
        done = await of.run("doctor", "--json")
        return done.code, {told["name"]: told["status"] for told in map(json.loads, done.lines)}

    code, found = await statuses(desk)
    assert code == 0
    assert {found[name] for name in ("python", "home", "token", "database", "desk", "access")} == {"ok"}
    home.settings.home.mkdir(mode=0o700)
    home.settings.token_file.write_text("secret\n")
    home.settings.token_file.chmod(0o644)
    home.settings.desk_file.write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 1}))
    code, found = await statuses(home)
    assert code == 1
    assert (found["token"], found["desk"]) == ("fail", "warn")
    shown = await home.run("doctor")
    assert "✗ fail  token" in shown.out
    assert f"→ chmod 600 {home.settings.token_file}" in shown.out


async def test_doctor_says_which_database_is_used_and_makes_nothing(
    home: Home, new_database: Callable[[], str], tmp_path: Path
) -> None:
    async def database(address: str) -> tuple[str, str, str]:
        done = await home.run("doctor", "--json", HANDRAISE_DATABASE=address)
        (told,) = (told for told in map(json.loads, done.lines) if told["name"] == "database")
        return told["status"], told["said"], told["fix"]

    postgres, file = new_database(), tmp_path / "what?" / "desk.db"
    shown, _, schema = postgres.partition("?schema=")
    for _ in range(2):  # nothing was made by looking
        not_yet = await database(postgres)
        assert not_yet[:2] == ("info", f"{shown}, schema {schema}, can be reached and has no tables yet")
        assert await database(f"sqlite:///{file}") == (
            "info",
            f"{file} is not there yet",
            "the first `handraise serve` makes it",
        )
    for address in (postgres, f"sqlite:///{file}"):
        await (await open_store(address)).close()
    status, said, _ = await database(postgres)
    assert (status, said.rstrip("0123456789")) == ("ok", f"{shown}, schema {schema}, version ")
    status, said, _ = await database(f"sqlite:///{file}")
    assert status == "ok" and said.startswith(f"{file}, version ")


async def test_doctor_says_what_is_wrong_with_the_database(home: Home, tmp_path: Path) -> None:
    async def database(address: str) -> dict[str, str]:
        done = await home.run("doctor", "--json", HANDRAISE_DATABASE=address)
        assert done.code == 1
        (told,) = (told for told in map(json.loads, done.lines) if told["name"] == "database")
        return dict(told)

    away = await database("postgresql://ana:geheim@127.0.0.1:1/desk")
    assert "no PostgreSQL answers at postgresql://ana@127.0.0.1:1/desk" in away["said"]
    assert "is it running" in away["fix"]
    broken, newer = tmp_path / "broken.db", tmp_path / "newer.db"
    broken.write_text("not a database" * 100)
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("pragma user_version = 9999")
    assert f"{broken} cannot be read" in (await database(f"sqlite:///{broken}"))["said"]
    assert "upgrade handraise" in (await database(f"sqlite:///{newer}"))["fix"]
    assert "'mysql://ana@host/desk' is no address" in (await database("mysql://ana:geheim@host/desk"))["said"]


async def test_a_port_or_home_that_is_taken_is_said_in_a_sentence(desk: Home, home: Home) -> None:
    port = (desk.settings.running_desk() or "").rpartition(":")[2]
    taken = await home.run("serve", "--port", port)
    assert taken.code == 1
    assert f"port {port}" in taken.err
    second = await desk.run("serve", "--port", "0")
    assert second.code == 1
    assert "another desk" in second.err
    assert len(second.err.splitlines()) == len(taken.err.splitlines()) == 1


def test_serve_on_all_addresses_warns_and_leaves_in_order(home: Home) -> None:
    with serving(home, "--host", "0.0.0.0", "--allowed-host", "desk.example.org", "--json") as desk:
        assert home.settings.running_desk() is not None
        desk.terminate()
        out, err = desk.communicate(timeout=PATIENCE)
    assert desk.returncode == 0
    assert out == ""
    assert "token" in err
    assert "desk.example.org" in err
    assert home.settings.running_desk() is None


async def test_the_shell_completes_ids_that_cannot_run_as_commands(desk: Home, client: Client) -> None:
    await client.open(a_question("complete-1"))
    await client.open(a_question("complete-$(id)"))
    completed = await desk.run(_HANDRAISE_COMPLETE="complete_bash", COMP_WORDS="handraise answer comp", COMP_CWORD="2")
    assert completed.lines == ["complete-1"]
