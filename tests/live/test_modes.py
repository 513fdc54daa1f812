"""Each mode on the real agents: what the model can change, by their own tools, if a person allows all that is asked."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import pytest_asyncio

from handraise.agents import AgentSettings, Start
from handraise.agents.acp import Acp
from handraise.agents.claude import Claude
from handraise.agents.codex import Codex
from handraise.agents.opencode import OpenCode
from handraise.asks import Ask, Mode
from handraise.broker import Broker
from handraise.plugins import load
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing import ScriptedModel, ScriptedPerson, call, repeat
from handraise.testing.model import Call, Request
from tests.live.conversations import Opening, Running, asks, opened, question
from tests.live.homes import Home, claude_home, codex_home, opencode_home, qwen_home
from tests.live.programs import CACHE, program

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHANGING_SERVER = Path(__file__).with_name("changing_server.py")
OWN = ("CLAUDE", "ANTHROPIC", "CODEX", "OPENAI", "OPENCODE")  # names of variables that would get in
QUESTION = question(multiSelect=False)


# The agents ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Driven:
    """A real agent, and how its model changes a file and asks a question."""

    home: Callable[..., Home]
    agent: Callable[[AgentSettings], Any]
    command: Callable[[], tuple[str, ...]]
    tools: Mapping[str, Callable[[Path], Call]]
    asks: str


def patch(path: Path) -> Call:
    body = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
    return call("exec_command", cmd=f"apply_patch <<'EOF'\n{body}\nEOF\n")


def run(path: Path, **rest: Any) -> Call:
    return call("exec_command", cmd=f"touch {path}", **rest)


DRIVEN = {
    "opencode": Driven(
        home=partial(opencode_home, permission={"bash": "ask", "edit": "ask"}),
        agent=OpenCode,
        command=lambda: (str(program("opencode")),),
        tools={
            "edit": lambda path: call("write", filePath=str(path), content="x"),
            "shell": lambda path: call("bash", command=f"touch {path}", description="make a file"),
        },
        asks="question",
    ),
    "claude": Driven(
        home=claude_home,
        agent=Claude,
        command=lambda: (str(program("claude")),),
        tools={
            "edit": lambda path: call("Write", file_path=str(path), content="x"),
            "shell": lambda path: call("Bash", command=f"touch {path}", description="make a file"),
        },
        asks="AskUserQuestion",
    ),
    "codex": Driven(
        home=codex_home,
        agent=Codex,
        command=lambda: (str(program("codex")),),
        tools={
            "edit": patch,
            "shell": run,
            "escalated": partial(run, sandbox_permissions="require_escalated", justification="May I?"),
        },
        asks="question",
    ),
    "qwen": Driven(
        home=qwen_home,
        agent=Acp,
        command=lambda: ("node", str(program("qwen")), "--acp", "--auth-type", "openai"),
        tools={
            "edit": lambda path: call("write_file", file_path=str(path), content="x"),
            "shell": lambda path: call("run_shell_command", command=f"touch {path}", is_background=False),
        },
        asks="ask_user_question",
    ),
}


# What is expected ---------------------------------------------------------------------------------------------------


class Expected(NamedTuple):
    """Files by the tool and the place that made them: those that are there afterwards, those that were asked for."""

    written: set[str]
    asked: set[str]


def every(*tools: str, places: Sequence[str] = ("inside", "outside")) -> set[str]:
    return {f"{tool}-{place}" for tool in tools for place in places}


NOTHING: set[str] = set()
ALL = every("edit", "shell")
INSIDE = every("edit", "shell", places=["inside"])
OUTSIDE = ALL - INSIDE
PATCHED, ESCALATED = every("edit"), every("escalated")

EXPECTED: Mapping[tuple[str, Mode], Expected] = {
    ("opencode", "default"): Expected(written=ALL, asked=ALL),
    ("opencode", "accept-edits"): Expected(written=ALL, asked=ALL - {"edit-inside"}),
    ("opencode", "bypass"): Expected(written=ALL, asked=NOTHING),
    ("opencode", "plan"): Expected(written=ALL, asked=ALL),
    ("opencode", "read-only"): Expected(written=NOTHING, asked=NOTHING),
    ("opencode", "full-access"): Expected(written=ALL, asked=NOTHING),
    ("claude", "default"): Expected(written=ALL, asked=ALL),
    ("claude", "accept-edits"): Expected(written=ALL, asked=OUTSIDE),
    ("claude", "bypass"): Expected(written=ALL, asked=NOTHING),
    ("claude", "plan"): Expected(written=ALL, asked=ALL),
    ("claude", "read-only"): Expected(written=NOTHING, asked=NOTHING),
    ("claude", "full-access"): Expected(written=ALL, asked=NOTHING),
    # A plain command of Codex runs in its sandbox, or fails there; only one that wants out is asked for.
    ("codex", "default"): Expected(written=PATCHED | ESCALATED, asked=PATCHED | ESCALATED),
    ("codex", "accept-edits"): Expected(written=INSIDE | PATCHED | ESCALATED, asked={"edit-outside"} | ESCALATED),
    ("codex", "bypass"): Expected(written=ALL, asked=NOTHING),
    ("codex", "plan"): Expected(written=PATCHED | ESCALATED, asked=PATCHED | ESCALATED),
    ("codex", "read-only"): Expected(written=NOTHING, asked=NOTHING),
    ("codex", "workspace-write"): Expected(written=INSIDE, asked=NOTHING),
    ("codex", "full-access"): Expected(written=ALL, asked=NOTHING),
    ("qwen", "default"): Expected(written=ALL, asked=ALL),
    ("qwen", "accept-edits"): Expected(written=ALL, asked=every("shell")),
    ("qwen", "bypass"): Expected(written=ALL, asked=NOTHING),
    ("qwen", "plan"): Expected(written=NOTHING, asked=NOTHING),
    ("qwen", "full-access"): Expected(written=ALL, asked=NOTHING),
}
# All that is offered to the model where nothing may be changed; with Codex it is the sandbox that holds.
ONLY = {
    "opencode": {"read", "glob", "grep", "question", "todowrite", "skill", "invalid"},
    "claude": {"Read", "Glob", "Grep", "AskUserQuestion", "DeferredToolPlaceholder"},
}


# The tests ----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(OWN)]:
        monkeypatch.delenv(name)


@pytest.fixture
def outside() -> Iterator[Path]:
    """Not under a temporary folder: Codex may count those to the working folder."""
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        yield Path(folder).resolve()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as listening:
        yield listening


@pytest_asyncio.fixture(loop_scope="module")
async def broker() -> AsyncIterator[Broker]:
    store = await SqliteStore.open_file(MEMORY)
    async with Broker(store) as desk:
        yield desk
    await store.close()


@pytest_asyncio.fixture(loop_scope="module")
async def generous(broker: Broker) -> AsyncIterator[ScriptedPerson]:
    person = ScriptedPerson().on("Which database", [["SQLite"]]).on(".", reply="once")
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(person.run(broker))
        yield person
        looking.cancel()


class Place(NamedTuple):
    home: Home
    agent: Any


class Places:
    """A home for each test, but one for all modes of OpenCode: its server is slow to start, and ends with its last
    session, so one is kept."""

    def __init__(self, model: ScriptedModel, folder: Path, kept: AsyncExitStack) -> None:
        self._model = model
        self._folder = folder
        self._kept = kept
        self._opencode: Place | None = None

    async def get(self, name: str) -> Place:
        if name != "opencode":
            return self._place(name, Path(tempfile.mkdtemp(dir=self._folder)))
        if self._opencode is None:
            place = self._opencode = self._place(name, self._folder)
            self._kept.push_async_callback(place.agent.close)
            nobody = await self._kept.enter_async_context(Broker(await SqliteStore.open_file(MEMORY)))
            keeper = await place.agent.open(nobody, Start(session="keeper", cwd=str(place.home.project)))
            self._kept.push_async_callback(keeper.close)
        return self._opencode

    def _place(self, name: str, folder: Path) -> Place:
        home = DRIVEN[name].home(folder / name, model=self._model.url)
        return Place(home, an_agent(name, home))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def places(model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Places]:
    async with AsyncExitStack() as kept:
        yield Places(model, tmp_path_factory.mktemp("modes"), kept)


async def test_every_mode_of_every_agent_is_expected_to_do_something() -> None:
    for name in ("opencode", "claude", "codex"):
        assert {mode for agent, mode in EXPECTED if agent == name} == set(load("agents", name).modes.names)


@pytest.mark.parametrize(("name", "mode"), EXPECTED)
async def test_a_mode_lets_change_what_it_says_and_no_more(
    name: str,
    mode: Mode,
    model: ScriptedModel,
    broker: Broker,
    generous: ScriptedPerson,
    places: Places,
    outside: Path,
) -> None:
    home, agent = await places.get(name)
    tools, folders = DRIVEN[name].tools, {"inside": home.project, "outside": outside}
    files = {(tool, place): folders[place] / f"{tool}-{place}" for tool in tools for place in folders}
    tries = [tools[tool](file) for (tool, _), file in files.items()]
    model.scenarios["all"] = [*tries, call(DRIVEN[name].asks, questions=[QUESTION]), repeat]
    said = await played(agent, home, mode, broker)
    written = {file.name for file in files.values() if file.exists()}
    asked = {file.name for file in files.values() for ask in await asks(broker) if file.name in about(ask)}
    for file in files.values():
        file.unlink(missing_ok=True)
    assert Expected(written=written, asked=asked) == EXPECTED[name, mode], said
    assert "SQLite" in said, "questions are asked in every mode"
    if mode == "read-only" and name in ONLY:
        assert set(model.requests[-1].tools) <= ONLY[name]


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
async def test_what_a_person_has_allowed_codex_for_good_does_not_let_it_out(
    mode: Mode, model: ScriptedModel, broker: Broker, generous: ScriptedPerson, outside: Path, tmp_path: Path
) -> None:
    """A saved rule runs its command without the sandbox, and a server of MCP tools is never in it."""
    server = f"command = {json.dumps(sys.executable)}\nargs = {json.dumps([str(CHANGING_SERVER)])}\n"
    server += 'default_tools_approval_mode = "approve"\n'
    more = f'[mcp_servers."a.b"]\n{server}'
    home = codex_home(tmp_path / "codex", model=model.url, sandbox_mode="danger-full-access", more=more)
    of_project = home.project / ".codex" / "config.toml"
    of_project.parent.mkdir()
    of_project.write_text(f"[mcp_servers.c]\n{server}")
    rules = home.settings.parent / "rules" / "default.rules"
    rules.parent.mkdir()
    rules.write_text('prefix_rule(pattern=["touch"], decision="allow")\n')
    agent = an_agent("codex", home)
    tries = [
        run(outside / "by-rule"),
        call("mcp__a_b__change", path=str(outside / "by-server")),
        call("mcp__c__change", path=str(outside / "by-server-of-the-project")),
    ]
    model.scenarios |= {
        "all": [*tries, call("multi_agent_v1__spawn_agent", message="SCENARIO:child"), wait_for_it, repeat],
        "child": [run(outside / "by-child"), "tried"],
    }
    ways = {"by-rule", "by-server", "by-server-of-the-project", "by-child"}
    said = await played(agent, home, "default", broker)
    assert {file.name for file in outside.iterdir()} == ways, said
    for file in outside.iterdir():
        file.unlink()
    said = await played(agent, home, mode, broker)
    assert not list(outside.iterdir()), said
    assert "Read-only file system" in said and '"completed":"tried"' in said
    assert not await asks(broker)


@pytest.mark.parametrize("name", ["opencode", "claude"])
async def test_no_server_of_mcp_tools_changes_anything_where_nothing_may_be_changed(
    name: str, model: ScriptedModel, broker: Broker, generous: ScriptedPerson, tmp_path: Path
) -> None:
    home = DRIVEN[name].home(tmp_path / name, model=model.url)
    command = [sys.executable, str(CHANGING_SERVER)]
    if name == "opencode":
        add(home.settings, mcp={"changing": {"type": "local", "command": command}})
    else:
        add(
            home.settings.with_name(".claude.json"),
            mcpServers={"changing": {"command": command[0], "args": command[1:]}},
        )
    agent = an_agent(name, home)
    tool = "changing_change" if name == "opencode" else "mcp__changing__change"
    async with AsyncExitStack() as kept:
        kept.push_async_callback(agent.close)
        keeper = await agent.open(broker, Start(session="keeper", cwd=str(home.project)))  # of OpenCode's server
        kept.push_async_callback(keeper.close)
        for mode, is_made in {"bypass": True, "read-only": False}.items():
            made = home.project / mode
            model.scenarios["all"] = [call(tool, path=str(made)), repeat]
            said = await played(agent, home, cast(Mode, mode), broker)
            assert made.exists() is is_made, said


async def test_while_opencode_plans_neither_its_configuration_nor_a_subagent_changes_anything_unasked(
    model: ScriptedModel, broker: Broker, generous: ScriptedPerson, tmp_path: Path
) -> None:
    allowed = {"bash": "allow", "edit": {"*.txt": "allow"}}
    home = opencode_home(tmp_path / "opencode", model=model.url, permission=allowed)
    tools = DRIVEN["opencode"].tools
    plan = Path(home.env["HOME"]) / ".local" / "share" / "opencode" / "plans" / "first.md"
    task = call("task", description="do it", prompt="SCENARIO:child", subagent_type="general")
    tries = [tools["edit"](home.project / "a.txt"), tools["shell"](home.project / "made"), tools["edit"](plan), task]
    model.scenarios |= {"all": [*tries, repeat], "child": [tools["shell"](home.project / "by-child"), "tried"]}
    said = await played(an_agent("opencode", home), home, "plan", broker)
    wanted = [about(ask) for ask in await asks(broker)]
    assert len(wanted) == 2 and "a.txt" in wanted[0] and "made" in wanted[1], said
    assert plan.exists() and not (home.project / "by-child").exists(), said


def an_agent(name: str, home: Home) -> Any:
    settings = AgentSettings(home=home.settings.parent / "desk", command=DRIVEN[name].command(), env=home.env)
    return DRIVEN[name].agent(settings)


async def played(agent: Opening[Running], home: Home, mode: Mode, broker: Broker) -> str:
    """What the tools told the model in the scenario `all`, in one turn of one session."""
    start = Start(session=mode, cwd=str(home.project), mode=mode)
    async with opened(agent, broker, start) as session:
        return (await session.prompt("SCENARIO:all")).text


def add(file: Path, **members: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **members}))


def about(ask: Ask) -> str:
    wanted = ask.permission
    return "" if wanted is None else " ".join([wanted.summary, wanted.command or "", *wanted.paths])


def wait_for_it(request: Request) -> Call:
    """For the subagent that was just started."""
    return call("multi_agent_v1__wait_agent", targets=[json.loads(request.tool_results[-1])["agent_id"]])
