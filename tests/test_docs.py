"""The documentation is run: what a page names exists, what it shows happens, and what exists is in the reference.

In README, quickstart and the how-to pages a block's language says what is done with it, from top to bottom, in a folder
of its own at a desk of its own, with a scripted person who has the lines in `SAID`:

    console   each `$` command is run and must print what stands below it; `…` stands for anything
    sh        run to its end, which must be a success
    python    a whole program; a text block right after it is what it prints; `# test_….py` makes it a test for pytest,
              and any other name of a file, such as `# .handraise/workflows/….py`, makes it that file
    toml      becomes the folder's handraise.toml, which the person trusts

A block after a comment that says `not run`, and blocks in other languages, are only looked at.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from getpass import getuser
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from xml.etree import ElementTree

import asyncpg
import pytest
from typer.testing import CliRunner

import handraise
from handraise import (
    Answer,
    Ask,
    Desk,
    Option,
    Origin,
    Permission,
    Question,
    asks,
    channels,
    testing,
    wire,
)
from handraise.agents import Agent
from handraise.asks import plain
from handraise.channels import _posting
from handraise.channels.linear.settings import KNOWN as LINEAR_SETTINGS
from handraise.channels.terminal.filling import key_help
from handraise.channels.terminal.reading import help_for
from handraise.cli import app
from handraise.cli.root import MOVED
from handraise.client import Client
from handraise.client.tokens import Tokens
from handraise.config import load
from handraise.config.tables import DeskTable, ModelTable, TerminalTable, settings_of
from handraise.errors import SettingsError
from handraise.mcp.translate import TOOLS
from handraise.policies import policy_for
from handraise.rules.tools import common_names
from handraise.server.openapi import document
from handraise.server.routes._health import PROBLEMS
from handraise.server.routes._metrics import NAMES as METRICS
from handraise.tables.audit import DECISIONS
from handraise.testing import Run, Scripted, ScriptedPerson, a_permission, a_run, an_ask, run_workflow
from handraise.testing.postgres import PostgresServer
from handraise.trust import Trust
from handraise.workflow import flow, steps
from handraise.workflow.author import AuthorProcesses, allow_all
from handraise.workflow.authoring import load_file
from handraise.workflow.journal import Journal
from handraise.workflow.loading import listed
from tests.helpers.quick import quick_handraise
from tests.helpers.serving import START, Served, serving
from tests.helpers.trusting import trust_project

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
RUN = [ROOT / "README.md", ROOT / "docs" / "quickstart.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]
PAGES = [*RUN, *sorted((ROOT / "docs" / "reference").glob("*.md")), ROOT / "docs" / "glossary.md"]
PAGES += [*sorted((ROOT / "docs" / "agents").glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
EXAMPLES = ROOT / "examples"
BIN = Path(sys.executable).parent
URL = "http://127.0.0.1:4263"
AT_ONCE = 3  # pages that are run at a time; each is one process after the other

Line = tuple[str, Sequence[Sequence[str]] | None, str | None, str | None]  # pattern; answers, reply or reason to reject


def says(pattern: str, *answers: Sequence[str], reply: str | None = None, reject: str | None = None) -> Line:
    return (pattern, answers or None, reply, reject)


SAID: dict[str, list[Line]] = {
    "acp.md": [says("Which database", ["pg"])],
    "python-client.md": [says("Which database", ["Postgres"])],
    "README.md": [says("Deploy now", ["yes"]), says("Which database", ["Postgres"])],
    "quickstart.md": [says("Deploy now", ["yes"]), says("Which hosts", ["web1", "db1"])],
    "ask-from-a-script.md": [
        says("Deploy now", ["yes"]),
        says("Which hosts", ["web1", "db1"]),
        says("Release name", ["Early Bird"]),
        says("How many", ["4"]),
        says("Clean up", reply="once"),
        says("Which database", ["Postgres"]),
        says("Where should it go", ["beta"], ["Linux", "macOS"], ["Early Bird"]),
        says("Remove the build folder", reject="not on a Friday"),
        says("Deploy shop", ["yes"]),
        says("Deploy blog", ["no"]),
    ],
    "several-desks.md": [says("Deploy now", ["yes"])],
    "tokens-and-access.md": [says("Deploy now", ["yes"])],
}
GIVEN: dict[str, dict[str, Any]] = {"workflows.md": {"send": True}}  # at checkpoints


def staff_of(page: Path) -> list[Agent]:
    """Who stands in for agents that a page starts."""
    if page.name != "workflows.md":
        return []
    agent = Scripted().on("Greet", "Hello, Ana!")
    agent.name = "claude"
    return [agent]


# Reading ----------------------------------------------------------------------------------------------------


class Block(NamedTuple):
    language: str
    text: str
    line: int
    note: str  # the comment before it
    follows: bool  # right after another block, with nothing in between

    @property
    def is_run(self) -> bool:
        return "not run" not in self.note


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    inside: list[str] | None = None
    language = note = before = ""
    start = 0
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if inside is None and line.startswith("```"):
            inside, language, start = [], line[3:].strip(), number
            note = before if before.startswith("<!--") else ""
        elif inside is not None and line == "```":
            found.append(Block(language, "\n".join(inside), start, note, follows=before == "```" and bool(found)))
            inside, before = None, "```"
        elif inside is not None:
            inside.append(line)
        elif line.strip():
            before = line
    assert inside is None, f"{page.name}: a block is not closed"
    return found


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def name_of(page: Path) -> str:
    return page.name


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = module  # where its records look for their own names
    spec.loader.exec_module(module)
    return module


GENERATE = generator()


# Running ----------------------------------------------------------------------------------------------------


class Place:
    """A folder in which the blocks of a page are run, and the desk they talk to."""

    def __init__(self, folder: Path, *, url: str, programs: Path | None = None) -> None:
        self.folder = folder / "shop"
        self.folder.mkdir(parents=True)
        self.home = folder / "home"
        self.url = url
        mine = {key: value for key, value in os.environ.items() if not key.startswith(("HANDRAISE_", "XDG_"))}
        self.env = mine | {
            "PATH": os.pathsep.join(map(str, filter(None, (programs, BIN, mine.get("PATH", os.defpath))))),
            "HOME": str(folder),
            "HANDRAISE_HOME": str(self.home),
            "LOGNAME": "ana",
            "NO_COLOR": "1",
            "LC_ALL": "C.UTF-8",
        }

    async def run(self, *words: str, **env: str) -> tuple[int, str]:
        """Exit code and output, standard error among it."""
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=self.folder,
            env=self.env | env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), 4 * START)
        except TimeoutError:
            process.kill()
            raise AssertionError(f"{words} did not end") from None
        assert process.returncode is not None
        return process.returncode, out.decode().replace(self.url, URL)

    async def bash(self, script: str, *options: str) -> tuple[int, str]:
        return await self.run("bash", *options, "-c", script.replace(URL, self.url))

    async def python(self, program: str) -> tuple[int, str]:
        file = self.folder / "program.py"
        file.write_text(program.replace(URL, self.url))
        return await self.run(sys.executable, "-W", "error", file.name)


def matches(expected: str, printed: str) -> bool:
    """Whether a text shows what was printed. Times and the width of columns may differ; `…` is anything."""

    def plain(text: str) -> str:
        text = re.sub(r"\b\d+ s\b", "1 s", re.sub(r"\b\d{4}-\d\d-\d\d\b", "2026-01-01", text))
        return "\n".join(re.sub(r"[ \t]+", " ", line).strip() for line in text.strip().splitlines())

    pattern = ".*?".join(map(re.escape, plain(expected).split("…")))
    return re.fullmatch(pattern, plain(printed), re.DOTALL) is not None


async def run_console(block: Block, place: Place) -> None:
    commands = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    shown: list[tuple[str, str]] = []
    for command in commands:
        lines = command.split("\n")
        more = next((index for index, line in enumerate(lines[1:], 1) if not line.startswith("> ")), len(lines))
        shown.append(("\n".join([lines[0], *(line[2:] for line in lines[1:more])]), "\n".join(lines[more:])))
    mark = "-- next --"
    _, out = await place.bash("\n".join(f"printf '\\n%s\\n' '{mark}'\n{command}" for command, _ in shown))
    printed = out.split(f"\n{mark}\n")[1:]
    assert len(printed) == len(shown), out
    for (command, expected), got in zip(shown, printed, strict=True):
        assert matches(expected, got), f"$ {command}\nshould print\n{expected.strip()}\nand printed\n{got.strip()}"


async def run_sh(block: Block, place: Place) -> None:
    code, out = await place.bash(block.text, "-eu", "-o", "pipefail")
    assert code == 0, f"exit code {code}: {out}"


async def run_python(block: Block, place: Place, *, expected: Block | None) -> None:
    code, out = await place.python(block.text)
    assert code == 0, out
    assert expected is None or matches(expected.text, out), f"should print\n{expected.text}\nand printed\n{out}"


async def run_tests(files: dict[str, str], place: Place) -> None:
    for name, text in files.items():
        (place.folder / name).write_text(text)
    options = ["-q", "-W", "error", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    options += ["-o", "asyncio_default_fixture_loop_scope=function"]  # pytest-asyncio warns where nobody says so
    code, out = await place.run(sys.executable, "-m", "pytest", *options, *files)
    assert code == 0, out


def file_of(block: Block) -> str | None:
    """What a block is to be kept as."""
    found = re.match(r"# ((?:[\w.-]+/)*[\w-]+\.py)\n", block.text) if block.language == "python" else None
    return found[1] if found else None


async def run_block(block: Block, place: Place, *, after: Block | None) -> None:
    match block.language:
        case "console":
            await run_console(block, place)
        case "sh":
            await run_sh(block, place)
        case "python":
            await run_python(block, place, expected=after if after and after.language == "text" else None)
        case "toml":
            (place.folder / "handraise.toml").write_text(block.text)
            trust_project(place.folder, home=place.home)


async def run_page(page: Path, folder: Path, *, programs: Path) -> str:
    """What went wrong, or nothing."""
    person = ScriptedPerson(by="ana", via="terminal")
    for pattern, answers, reply, reject in SAID.get(page.name, ()):
        person.on(pattern, answers, reply=reply, reject=reject)
    for step, output in GIVEN.get(page.name, {}).items():
        person.on_checkpoint(step, output)
    tests: dict[str, str] = {}
    async with serving(folder / "home", staff=staff_of(page)) as desk, asyncio.TaskGroup() as tasks:
        place = Place(folder, url=desk.url, programs=programs)
        looking = tasks.create_task(person.run(desk.broker))
        deciding = tasks.create_task(person.decide(Journal(desk.broker.store), clock=desk.broker.clock))
        at = 0
        try:
            for block, after in pairwise([*blocks(page), None]):
                assert block is not None
                at = block.line
                if block.text.startswith("# test_"):
                    tests[block.text.partition("\n")[0][2:]] = block.text
                elif (name := file_of(block)) is not None:
                    file = place.folder / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(block.text)
                    async with AuthorProcesses(may_load=allow_all) as authors:
                        told = await listed([file.parent], authors)
                    broken = [each["problem"] for each in told if "problem" in each]
                    assert not broken, broken[0]
                    trust_project(place.folder, home=place.home)
                elif block.is_run:
                    await run_block(block, place, after=after if after and after.follows else None)
            if tests:
                await run_tests(tests, place)
        except Exception as problem:
            return f"{page.relative_to(ROOT)}, line {at}: {problem}"
        finally:
            looking.cancel()
            deciding.cancel()
    return ""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """All pages, a few at a time: much of it is waiting."""
    room = asyncio.Semaphore(AT_ONCE)

    async def run(page: Path, programs: Path) -> str:
        async with room:
            return await run_page(page, tmp_path_factory.mktemp(page.stem), programs=programs)

    async def run_all(programs: Path) -> list[str]:
        return await asyncio.gather(*(run(page, programs) for page in RUN))

    with quick_handraise() as programs:
        return dict(zip(RUN, asyncio.run(run_all(programs)), strict=True))


@pytest.mark.skipif(shutil.which("curl") is None or shutil.which("bash") is None, reason="needs bash and curl")
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_what_a_page_shows_is_what_happens(page: Path, outcomes: dict[Path, str]) -> None:
    assert not outcomes[page], outcomes[page]


# What is shown but not run there ----------------------------------------------------------------------------


def block_about(page: Path, note: str) -> str:
    (found,) = (block.text for block in blocks(page) if note in block.note)
    return found


def test_the_page_about_linear_has_all_of_its_settings_and_no_others() -> None:
    _, _, rest = (ROOT / "docs" / "howto" / "linear.md").read_text().partition("\n## Settings\n")
    table, _, _ = rest.partition("\n## ")
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(LINEAR_SETTINGS)


async def test_a_channel_is_one_short_file_and_reaches_people_from_a_desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "howto" / "add-a-channel.md"
    for name, text in {file_of(block): block.text for block in blocks(page)}.items():
        if name is not None:
            (tmp_path / name).write_text(text)
    assert len((tmp_path / "chat.py").read_text().splitlines()) < 40
    points = tomllib.loads(block_about(page, "the entry point"))["project"]["entry-points"]["handraise.channels"]
    installed = tmp_path / "chat-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: chat\nVersion: 1\n")
    lines = (f"{name} = {value}\n" for name, value in points.items())
    (installed / "entry_points.txt").write_text(f"[handraise.channels]\n{''.join(lines)}")
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.spec_from_file_location("the_room", tmp_path / "test_chat.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(theirs := importlib.util.module_from_spec(spec))

    room, rooms = theirs.Room(), theirs.Starlette()
    rooms.mount("/ops", room.app)
    async with asyncio.timeout(START), theirs.serving(rooms) as url:
        config = tmp_path / "handraise" / "config.toml"
        config.parent.mkdir()
        config.write_text(block_about(page, "the settings").replace("http://127.0.0.1:4300", url))
        settings = load({"XDG_CONFIG_HOME": str(tmp_path), "HANDRAISE_HOME": str(tmp_path / "home")}, cwd=tmp_path)
        async with serving(tmp_path / "home", channels=settings.channels, people=settings.people) as desk:
            await desk.ask(id="ask-1")
            async with room.changed:
                await room.changed.wait_for(lambda: room.waits(an_ask()))
            assert room.texts(an_ask()) == [
                "scripted asks:\nWhich database should I use?\n1. SQLite: one file\n2. Postgres\n"
                "Answer with a number, or in your own words, or with “no” and a reason."
            ]
            await room.reply("ask-1", "2")
            async with room.changed:
                await room.changed.wait_for(lambda: not room.waits(an_ask()))
            assert room.texts(an_ask()) == ["Database: answered by ana in ops: Postgres"]
            told = (await desk.get("ask-1"))["answer"]
            assert (told["answers"], told["by"], told["via"]) == ([["Postgres"]], "ana", "ops")
            [state] = (await desk.http.get("/v1/channels")).json()["channels"]
            assert (state["name"], state["kind"], state["state"], state["trouble"]) == ("ops", "chat", "running", None)


async def test_the_demo_prints_what_the_readme_says(tmp_path: Path) -> None:
    program = BIN / "handraise"
    place = Place(tmp_path, url=URL)
    env = {**place.env, "XDG_DATA_HOME": str(tmp_path / "data"), "PATH": os.defpath, "PYTHONUNBUFFERED": "1"}
    del env["HANDRAISE_HOME"]
    process = await asyncio.create_subprocess_exec(
        program, "demo", "--port", "0", cwd=place.folder, env=env, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        printed = (await asyncio.wait_for(process.stdout.readuntil(b" watch\n"), START)).decode()
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), START)
    printed = re.sub(r"http://127\.0\.0\.1:\d+", URL, re.sub(r"demo-[0-9a-f]+", "demo-4f1c", printed))
    expected = block_about(ROOT / "README.md", "the demo prints this")
    assert matches(expected, printed.replace(str(program), ".venv/bin/handraise")), printed


def test_the_desk_greets_as_the_quickstart_says(tmp_path: Path) -> None:
    place = Place(tmp_path, url=URL)
    command = [sys.executable, "-u", "-m", "handraise", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=place.folder, env=place.env, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        printed = "".join(serving.stdout.readline() for _ in range(3))
        serving.terminate()
        serving.communicate(timeout=START)
    expected = block_about(ROOT / "docs" / "quickstart.md", "handraise serve prints this")
    assert matches(expected, re.sub(r"http://127\.0\.0\.1:\d+", URL, printed)), printed


EXAMPLE_DATABASE = "postgresql://desk@db.example.org/desk"


class House(Place):
    """A place whose desk has its home where homes are, and whose PostgreSQL is a real one."""

    def __init__(self, folder: Path, *, server: PostgresServer, programs: Path) -> None:
        super().__init__(folder, url=URL, programs=programs)
        self.home = folder / ".local" / "share" / "handraise"
        self.database = server.address("desk")
        self.env |= {"HANDRAISE_HOME": str(self.home), "PATH": f"{self.env['PATH']}:{server.programs}"}

    async def follow(self, page: str, *notes: str) -> None:
        """Do what the page says in the blocks with these notes."""
        for note in notes:
            (block,) = (each for each in blocks(ROOT / "docs" / "howto" / page) if note in each.note)
            await run_block(block._replace(text=block.text.replace(EXAMPLE_DATABASE, self.database)), self, after=None)

    @asynccontextmanager
    async def desk(self, **changes: str) -> AsyncIterator[Served]:
        async with serving(self.home, **changes) as desk:
            self.url = desk.url
            yield desk


@pytest.fixture
async def house(tmp_path: Path, postgres: PostgresServer) -> AsyncIterator[House]:
    connection = await asyncpg.connect(postgres.address())
    await connection.execute("create database desk")
    with quick_handraise() as programs:
        yield House(tmp_path, server=postgres, programs=programs)
    await connection.execute("drop database desk with (force)")
    await connection.close()


async def test_a_desk_moves_to_postgresql_and_back_as_the_page_says(house: House) -> None:
    page = "move-to-postgresql.md"
    async with house.desk() as desk:
        origin = {"agent": "ci", "session": "s1"}
        await desk.ask(id="first", origin=origin)
        await desk.answer("first", "SQLite")
        await desk.ask(id="deploy", origin=origin, questions=[{"question": "Deploy now?"}])
        old = desk.token
    await house.follow(page, "the move to PostgreSQL", "the way back")
    house.env["HANDRAISE_DATABASE"] = house.database
    async with house.desk(database=house.database):
        await house.follow(page, "is it well on PostgreSQL")
    async with house.desk(database=f"sqlite:///{house.home}/back.db") as desk:
        assert (await desk.answer("deploy", "yes"))["state"] == "answered"
    (house.home / "token").unlink()
    async with house.desk(database=house.database) as desk:
        with_old = await desk.client(old)
        assert (await with_old.get("/v1/asks")).status_code == 200
        await house.follow(page, "the old token")
        assert (await with_old.get("/v1/asks")).status_code == 401
        assert (await desk.get("deploy"))["state"] == "asked"


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="needs sqlite3")
async def test_a_backup_of_sqlite_is_made_and_restored_as_the_page_says(house: House) -> None:
    page = "backups-and-upgrades.md"
    async with house.desk() as desk:
        await desk.ask(id="before")
        await house.follow(page, "back up SQLite")
        await desk.ask(id="after")
        left = (house.home / "desk.db-wal").read_bytes()
    (house.folder / "desk-backup.db").rename(house.home.parents[2] / "desk-backup.db")
    (house.home / "desk.db-wal").write_bytes(left)  # as a desk leaves it that was killed
    await house.follow(page, "restore SQLite", "give room back")
    async with house.desk() as desk:
        assert [ask["id"] for ask in (await desk.http.get("/v1/asks")).json()["asks"]] == ["before"]
        assert (house.home / "desk.db").stat().st_mode & 0o777 == 0o600


async def test_a_backup_of_postgresql_is_made_and_restored_as_the_page_says(house: House) -> None:
    page = "backups-and-upgrades.md"
    async with house.desk(database=house.database) as desk:
        await desk.ask(id="before")
        await house.follow(page, "back up PostgreSQL")
        await desk.ask(id="after")
    await house.follow(page, "restore PostgreSQL")
    async with house.desk(database=house.database) as desk:
        await desk.ask(id="later")
        listed = (await desk.http.get("/v1/asks")).json()["asks"]
        assert [ask["id"] for ask in listed] == ["before", "later"]
        assert (await desk.http.get("/v1/cursor")).json() == {"cursor": 2}


def test_the_keys_of_the_prompt_are_the_ones_in_the_page() -> None:
    page = ROOT / "docs" / "howto" / "answer.md"
    assert block_about(page, "the help of a question") == help_for(an_ask())
    assert block_about(page, "the help of a permission") == help_for(a_permission())
    assert block_about(page, "the keys of a question") == key_help(an_ask())
    assert block_about(page, "the keys of a permission") == key_help(a_permission())


def test_the_picture_shows_a_real_run_and_nothing_of_this_machine() -> None:
    picture = (ROOT / "docs" / "picture.svg").read_text()
    shown = "".join(ElementTree.fromstring(picture).itertext()).replace("\xa0", " ")
    for text in ("handraise ask", "handraise watch", "answered: PostgreSQL", "allowed once", "ana, in terminal"):
        assert text in shown
    for text in (str(ROOT), socket.gethostname(), "/tmp", "/home", "/root", "https://", "@font-face"):
        assert len(text) < 4 or text not in picture, text
    assert f"{getuser()}, in" not in shown


# Examples ---------------------------------------------------------------------------------------------------


async def test_the_examples_ask_and_go_on_with_the_answer(tmp_path: Path) -> None:
    person = ScriptedPerson(by="ana")
    person.on("Deploy version", [["tonight"]]).on("release-old", reply="once")
    person.on("Deploy shop", [["yes"]]).on("Deploy blog", reject="it is broken")
    person.on("Which database", [["PostgreSQL"]]).on("make migrate", reject="not now")
    async with serving(tmp_path / "home") as desk, asyncio.TaskGroup() as tasks:
        place = Place(tmp_path, url=desk.url)
        looking = tasks.create_task(person.run(desk.broker))
        (place.folder / "release-old").mkdir()
        shell, with_asyncio, blocking = await asyncio.gather(
            place.run("bash", str(EXAMPLES / "ask.sh")),
            place.run(sys.executable, str(EXAMPLES / "ask.py")),
            place.run(sys.executable, str(EXAMPLES / "ask_sync.py")),
        )
        looking.cancel()
    assert shell == (0, "deploying version 2.0: tonight\nonce\n")
    assert with_asyncio == (0, "shop: ana said yes\nblog: no, it is broken\n")
    assert blocking == (0, "ana chose PostgreSQL\nnot migrating: not now\n")
    assert not (place.folder / "release-old").exists()


async def test_the_example_that_answers_everything_leaves_permissions_to_people(tmp_path: Path) -> None:
    async with serving(tmp_path / "home") as desk:
        place = Place(tmp_path, url=desk.url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLES / "answer_everything.py")),
            cwd=place.folder,
            env=place.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        origin = Origin(agent="test", session="s1")
        choice = Question("Which?", (Option("a"), Option("b", recommended=True)))
        await desk.broker.open(a_permission())
        await desk.broker.open(Ask(id="named", questions=(choice, Question("Name?")), origin=origin))
        async with asyncio.timeout(START):
            answer = await desk.broker.ask(Ask(id="both", questions=(choice, choice), origin=origin))
        assert (answer.answers, answer.via) == ((("b",), ("b",)), "sdk")
        assert [ask.id async for ask in desk.broker.asks(state="asked")] == ["permission-1", "named"]
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), START)
    assert (process.returncode, err) == (0, b"")
    assert b"permission-1 wants a permission: Remove the build folder" in out


def test_the_example_policy_answers_as_it_says(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "policy.toml", tmp_path / "handraise.toml")
    trust_project(tmp_path, home=tmp_path)
    settings = load({"HANDRAISE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}, cwd=tmp_path)
    policy = policy_for(settings.handling)

    def said(text: str, *labels: str) -> str | None:
        question = Question(text, tuple(map(Option, labels)))
        verdict = policy(an_ask(questions=(question,)))
        assert isinstance(verdict, Answer)
        return verdict.value

    assert said("Which database?", "PostgreSQL", "SQLite") == "SQLite"
    assert said("Which port?") == "8080"
    assert said("Which colour?", "red", "blue") == "red"
    assert not isinstance(policy(a_permission()), Answer), "a permission waits for a person"


async def test_the_workflow_of_the_example_that_needs_no_agent_runs(tmp_path: Path) -> None:
    code, out = await Place(tmp_path, url=URL).run(sys.executable, "-W", "error", str(EXAMPLES / "hello.py"))
    assert (code, out.splitlines()[-1]) == (0, "Ciao, Ana!")
    person = ScriptedPerson(by="ana").on_checkpoint("send", True)
    async with serving(tmp_path / "desk" / "home") as desk, asyncio.TaskGroup() as tasks:
        place = Place(tmp_path / "desk", url=desk.url)
        deciding = tasks.create_task(person.decide(Journal(desk.broker.store), clock=desk.broker.clock))
        (place.folder / ".handraise" / "workflows").mkdir(parents=True)
        shutil.copy(EXAMPLES / "hello.py", place.folder / ".handraise" / "workflows")
        trust_project(place.folder, home=desk.settings.home)
        words = ["-m", "handraise", "run", "hello", "--input", "name=Ana", "--wait", "--json"]
        code, out = await place.run(sys.executable, *words)
        deciding.cancel()
    assert code == 0, out
    assert json.loads(out.splitlines()[-1])["output"]["output"] == "Hello, Ana!\n"


async def test_the_feature_example_asks_as_it_says() -> None:
    options = (Option("this way"), Option("that way"))
    agent = Scripted().on_question("", Question("How?", options, header="How"))
    agent.on("^Look", lambda answers: f"explored {answers[0].value}")
    agent.on("^Plan", lambda answers: json.dumps({"steps": [answers[0].value]}))
    agent.on("^Check", lambda answers: json.dumps({"passed": answers[0].rejected})).on("^Do this", "built")
    async with a_run(load_file(EXAMPLES / "feature.py", "feature"), {"goal": "a shop"}, agents=agent) as run:
        assert (await run.waits_for("How")).origin.step == "plan"
        await run.clock.advance(30)
        await run.until(lambda: any(ask.origin.step == "build" for ask in run.person.open))
        run.person.on("How", [["that way"]])
        await run.ended()
    assert (run.state, run.output) == ("done", {"passed": True, "problems": []})
    assert run.outputs["plan"] == {"steps": ["this way"]}
    assert [ask.answer.by for ask in run.asked if ask.answer] == [
        "policy:accept-first",
        "policy:timeout",
        "person",
        "policy:reject",
    ]


async def test_the_reviewers_of_the_example_look_at_the_same_change_and_a_person_decides(tmp_path: Path) -> None:
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        (tmp_path / "page").write_text("hello\n")
        who = ["-c", "user.name=Ana", "-c", "user.email=ana@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)
    (tmp_path / "page").write_text("hello, you\n")
    reviewer = Scripted().on("security", '{"findings": []}').on("", '{"findings": ["say who"]}')
    person = ScriptedPerson().on_checkpoint("decide", {"approved": True, "note": "later"})
    workflow = load_file(EXAMPLES / "review.py", "review")
    run = await run_workflow(workflow, {}, agents=reviewer, person=person, cwd=tmp_path)
    assert (run.state, run.error) == ("done", None)
    assert run.output == f"{len(run.outputs['diff']['output'].splitlines())} lines, 2 findings: approved, later"
    assert run.outputs["findings"] == ["tests: say who", "wording: say who"]
    assert all("+hello, you" in prompted.text for prompted in reviewer.prompted)


def test_every_example_is_run_here() -> None:
    tests = Path(__file__).read_text()
    missing = [example.name for example in EXAMPLES.iterdir() if example.is_file() and example.name not in tests]
    assert not missing


# What is named exists ---------------------------------------------------------------------------------------


def commands_named(page: Path) -> Iterator[tuple[str, list[str]]]:
    """The words after each `handraise` in code, up to where the shell's next command begins; and where."""
    lines = [(0, code) for code in inline_code(page)]
    for block in blocks(page):
        if block.language in ("sh", "console", "text", ""):
            text = block.text.replace("\\\n>", "").replace("\\\n", "")
            lines += [(block.line, line) for line in text.splitlines()]
    for number, line in lines:
        for called in re.finditer(r"(?:^|[\s/(])(?<!from )handraise (?=[a-z-])", line):
            rest = re.split(r"&&|\|\||[|;)]| # |\s{3,}", line[called.end() :])[0]
            try:
                words = shlex.split(rest)
            except ValueError:
                words = rest.split()
            yield f"{page.name}:{number}: {line}", words


def known_commands() -> dict[str, set[str]]:
    """Every command with its options."""
    known = {command.name: set[str]() for command in GENERATE.commands()}
    for command in GENERATE.commands():
        for parameter in GENERATE.parameters(command):
            if not parameter.is_argument:
                known[command.name] |= {"-h", "--help", *parameter.names}
    return known | {name: known[f"{group} {name}"] for name, group in MOVED.items()}


COMMANDS = known_commands()
SENTENCES = ("is", "has", "that", "into", "for")  # what may follow the name in a text that is no command


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_option_named_exists(page: Path) -> None:
    for where, words in commands_named(page):
        if words[0].startswith("--"):
            assert words[0] in ("--help", "--version", "--install-completion", "--show-completion"), where
            continue
        if words[0] in SENTENCES:
            continue
        name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
        if name in ("token", "store"):
            continue
        assert name in COMMANDS, f"{where}: there is no `handraise {name}`"
        options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert options <= COMMANDS[name], f"{where}: {name} has no {options - COMMANDS[name]}"
    everywhere = set().union(*COMMANDS.values()) | {"--version", "--install-completion", "--show-completion"}
    for code in inline_code(page):
        if code.startswith("--"):
            option = re.split(r"[ =]", code)[0]
            assert option in everywhere, f"{page.name}: no command has {option}"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_has_the_options_that_help_shows(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"]).output.partition("Options:")[2]
    rows = re.findall(r"^  (?:-\w, )?(--[a-z-]+(?: / --[a-z-]+)?)", shown, flags=re.MULTILINE)
    listed = {name for row in rows for name in row.split(" / ")}
    assert listed == {name for name in COMMANDS[command] if name.startswith("--")} | {"--help"}


def test_the_exit_codes_in_the_reference_are_those_of_the_help() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output.partition("Exit codes:")[2]
    assert re.findall(r"\b\d+\b", shown) == list(GENERATE.EXIT_CODES)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_variable_named_exists(page: Path) -> None:
    named = set(re.findall(r"\bHANDRAISE_[A-Z]+\b", page.read_text()))
    assert named <= GENERATE.variables()
    assert page.name != "settings.md" or named == GENERATE.variables()


def names_in(table: type[Any]) -> set[str]:
    return {name for name, _ in settings_of(table)}


@pytest.mark.parametrize(
    ("table", "known"),
    [("policy", set(GENERATE.POLICY)), ("desk", names_in(DeskTable)), ("terminal", names_in(TerminalTable))],
    ids=["policy", "desk", "terminal"],
)
def test_the_settings_in_the_reference_are_those_a_file_takes(table: str, known: set[str], tmp_path: Path) -> None:
    (tmp_path / "handraise.toml").write_text(f"[{table}]\nnonsense = 1\n")
    with pytest.raises(SettingsError) as refused:
        load({"HANDRAISE_HOME": str(tmp_path)}, cwd=tmp_path)
    assert set(str(refused.value).partition("it knows ")[2].split(", ")) == known
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert all(f"`{name}`" in page for name in known)


def test_the_files_of_a_home_are_those_in_the_reference(tmp_path: Path) -> None:
    async def files() -> set[str]:
        async with serving(tmp_path / "home") as desk:
            Trust(desk.settings.trust_file).add([])
            return {file.name for file in desk.settings.home.iterdir()}

    found = asyncio.run(files())
    assert found == {*GENERATE.FILES, "desk.db-wal", "desk.db-shm"}


def routes() -> dict[tuple[str, str], re.Pattern[str]]:
    return {
        (method, path): re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))
        for method, path, _ in GENERATE.operations()
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_route_named_exists(page: Path) -> None:
    text = page.read_text()
    for method, path in re.findall(r"\b(GET|POST|PUT|PATCH|DELETE) (/[^\s`'\"?|)]*)", text):
        assert any(method == known and route.fullmatch(path) for (known, _), route in routes().items()), (method, path)
    for path in re.findall(rf"{URL}(/[^\s`'\"?]+)", text):
        assert any(route.fullmatch(path) for route in routes().values()), path
    for code in inline_code(page):
        if re.fullmatch(r"/[a-z][a-z0-9/{}_.-]*", code):
            assert any(route.fullmatch(code) for route in routes().values()), code


def test_every_route_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "http.md").read_text()
    missing = [f"{method} {path}" for method, path in routes() if f"\n### {method} {path}\n" not in page]
    assert not missing


def statuses() -> dict[str, int]:
    return {kind.code: kind.status for kind in GENERATE.error_kinds()}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_error_code_named_exists(page: Path) -> None:
    known = statuses()
    for status, code in re.findall(r"\b([45]\d\d)\s+`([a-z_]+)`", page.read_text()):
        assert known.get(code) == int(status), f"{status} {code}"


def test_every_error_and_event_is_in_the_reference() -> None:
    errors, events = ((ROOT / "docs" / "reference" / name).read_text() for name in ("errors.md", "events.md"))
    assert [code for code in statuses() if f"| `{code}` |" not in errors] == []
    told = (*GENERATE.event_types(), *GENERATE.trace.TYPES)
    assert [name for name in told if f"| `{name}` |" not in events] == []


ENDS = {"counter": ("_total",), "histogram": ("", "_bucket", "_count", "_sum"), "info": ("_info",)}  # of samples


def field_names() -> set[str]:
    """Every name with an underscore that somebody may type: fields, settings, methods, fixtures, codes."""
    known = {*statuses(), *GENERATE.event_types(), *GENERATE.POLICY, *GENERATE.NOTIFY}
    known |= names_in(DeskTable) | names_in(ModelTable)
    known |= {*testing.__all__, *GENERATE.trace.TYPES, "question_not_found"}  # the second is runbook's own
    known |= {*plain.__all__, *_posting.__all__, *LINEAR_SETTINGS}
    for module in (asks, wire, steps, flow, channels):
        for kind in vars(module).values():
            if dataclasses.is_dataclass(kind):
                known |= {field.name for field in dataclasses.fields(kind)}
    for kind in (Answer, Client, Desk, Permission, Run, Scripted, ScriptedPerson, Tokens):
        known |= {name for name in dir(kind) if not name.startswith("_")}
    for schema in document()["components"]["schemas"].values():
        known |= set(schema.get("properties", ()))
    for tool in TOOLS:
        known |= {tool["name"], *tool["inputSchema"]["properties"]}
    known |= {name for route in routes() for name in re.findall(r"\{(\w+)\}", route[1])}
    known |= {name for name in vars(import_module("handraise.testing.fixtures")) if not name.startswith("_")}
    known |= {f"{name}{end}" for name, (type, _) in METRICS.items() for end in ENDS.get(type, ("",))}
    known |= {"question_request", "reasoning_content"}  # what blocks of a chat are
    known |= {"command_line"}  # what rules compare beside a tool's own arguments
    return known | {"asyncio_mode", *PROBLEMS, *DECISIONS.values(), *common_names()}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_field_method_and_setting_named_exists(page: Path) -> None:
    known = field_names()
    for code in inline_code(page):
        for name in re.findall(r"(?<![\w/.-])[a-z]+(?:_[a-z]+)+(?![\w/.-])", re.sub(r'"[^"]*"', "", code)):
            assert name in known, f"{page.name}: `{code}`: nothing is called {name}"


def test_every_metric_and_problem_is_in_the_page_and_the_reverse() -> None:
    page = ROOT / "docs" / "howto" / "monitor.md"
    listed = set(re.findall(r"^\| `([a-z]+(?:_[a-z]+)+)` \|", page.read_text(), flags=re.MULTILINE))
    metrics = {f"{name}{ENDS.get(type, ('',))[0]}" for name, (type, _) in METRICS.items()}
    assert listed == metrics | set(PROBLEMS)
    assert set(re.findall(r"\bhandraise_\w+", page.read_text())) <= field_names()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_class_named_exists(page: Path) -> None:
    names = ("errors", "events", "testing", "policies", "asks", "channels")
    modules = [import_module(f"handraise.{name}") for name in names]
    modules += [handraise, import_module("handraise.client"), import_module("handraise.stores.sqlite")]
    spoken = {"BadRequest", "HttpOnly", "SameSite", "OpenMetrics", "DeadlineMoved", "Last-Event-ID"}
    for code in inline_code(page):
        if re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][a-z]+)+", code):
            named = code in spoken or code.lower() in common_names()
            assert named or any(hasattr(module, code) for module in modules), f"{page.name}: {code}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_target_of_make_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    code = [*inline_code(page), *(line for block in blocks(page) for line in block.text.splitlines())]
    named = {found[1] for line in code if (found := re.match(r"\s*make ([a-z]+)(?:\s|$)", line))}
    assert named - {"clean"} <= targets


WRITTEN_LATER = {ROOT / "docs" / "performance.md"}  # by `make bench`


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists() or file in WRITTEN_LATER, target
        assert not anchor or anchor in anchors(file), target


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


HARD_WORDS = re.compile(r"\b(?:who|what|which)ever\b|\bthere(?:of|in|upon)\b", re.IGNORECASE)
WRITTEN_BY_HAND = [page for page in PAGES if page.parent.name != "reference" and page.name != "CHANGELOG.md"]


@pytest.mark.parametrize("page", [*WRITTEN_BY_HAND, ROOT / "AGENTS.md", ROOT / "docs" / "security.md"], ids=name_of)
def test_pages_avoid_words_that_are_read_twice(page: Path) -> None:
    found = HARD_WORDS.findall(prose(page))
    assert not found, f"{page.name}: {found}; say who or what it is"


def test_the_reference_is_what_the_code_says() -> None:
    stale = [name for name, text in GENERATE.pages() if (GENERATE.FOLDER / name).read_text() != text]
    assert not stale, "run `make docs`"


def test_no_page_knows_the_machine_it_was_written_on() -> None:
    for page in [*PAGES, *EXAMPLES.iterdir()]:
        text = page.read_text() if page.is_file() else ""
        assert str(ROOT) not in text and str(Path.home()) + "/" not in text, page.name
