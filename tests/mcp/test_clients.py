"""What `handraise install` writes for agents that only know MCP, and that `uninstall` takes exactly that out again."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from handraise.agents import Edit
from handraise.edits import toml
from handraise.edits.installing import Installed, diff, install, plan, plan_removal, remove_record, uninstall
from handraise.edits.json import read
from handraise.errors import SettingsError
from handraise.mcp.clients import CLIENTS, program
from tests.helpers.commands import Person
from tests.helpers.json_files import COMMENTED
from tests.helpers.serving import START, serving, tokens_of, told

pytestmark = pytest.mark.slow

URL = "http://127.0.0.1:4263"
JSONS = [name for name, client in CLIENTS.items() if not client.is_toml]
FILES = {
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "codex": ".codex/config.toml",
    "copilot": ".copilot/mcp-config.json",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
    "vscode": ".config/Code/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
}
LIMITS = {
    "codex": {"startup_timeout_sec": 30, "tool_timeout_sec": 86_400},
    "copilot": {"type": "stdio", "tools": ["*"], "timeout": 86_400_000},
    "gemini": {"timeout": 86_400_000},
    "qwen": {"timeout": 86_400_000},
    "vscode": {"type": "stdio"},
}
A_TOML = """\
# mine
model = "gpt-5"   # the large one

[mcp_servers.files]
command = 'npx'
args = ["-y",
  "files"]

[mcp_servers.files.env]
API_KEY = "sk-very-secret"
# the end
"""


def an_edit(name: str, folder: Path = Path("/nowhere"), *, token: str = "hr_secret-one", url: str = URL) -> Edit:
    [edit] = CLIENTS[name].edits(url=url, token=token, environ={"HOME": str(folder)}, command=("/opt/bin/handraise",))
    return edit


def servers(name: str, content: bytes) -> dict[str, Any]:
    client = CLIENTS[name]
    found = tomllib.loads(content.decode()) if client.is_toml else parsed(content)
    table: dict[str, Any] = found[client.table]
    return table


def parsed(content: bytes) -> Any:
    return read(content.decode(), path=Path("settings.json"), comments=True).value


def a_file(name: str) -> str:
    return A_TOML if CLIENTS[name].is_toml else COMMENTED.replace("TABLE", CLIENTS[name].table)


# What is written ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.skipif(sys.platform != "linux", reason="the folders are those of Linux")
def test_every_agent_is_told_how_to_start_the_server(name: str, tmp_path: Path) -> None:
    edit = an_edit(name, tmp_path)
    assert edit.path == tmp_path / FILES[name]
    assert edit.private
    assert servers(name, edit.add(None)) == {
        "handraise": {
            "command": "/opt/bin/handraise",
            "args": ["mcp"],
            **LIMITS.get(name, {}),
            "env": {"HANDRAISE_URL": URL, "HANDRAISE_TOKEN": "hr_secret-one"},
        }
    }


def test_folders_that_an_agent_was_told_of_count(tmp_path: Path) -> None:
    for name, variable in (("codex", "CODEX_HOME"), ("copilot", "COPILOT_HOME"), ("qwen", "QWEN_HOME")):
        environ = {"HOME": str(tmp_path), variable: str(tmp_path / "own")}
        [edit] = CLIENTS[name].edits(url=URL, token="hr_x", environ=environ, command=("handraise",))
        assert edit.path == tmp_path / "own" / Path(FILES[name]).name
    environ = {"HOME": "/nowhere", "GEMINI_CLI_HOME": str(tmp_path)}
    [edit] = CLIENTS["gemini"].edits(url=URL, token="hr_x", environ=environ, command=("handraise",))
    assert edit.path == tmp_path / FILES["gemini"]


def test_the_program_is_a_whole_path() -> None:
    assert Path(program()[0]).is_absolute()


@pytest.mark.parametrize("name", CLIENTS)
def test_what_is_there_stays_byte_for_byte(name: str) -> None:
    edit, before = an_edit(name), a_file(name).encode()
    changed = edit.add(before)
    assert list(servers(name, changed))[-1] == "handraise"
    lines = iter(changed.decode().splitlines())
    missing = [
        line for line in before.decode().splitlines() if line.replace("} // the last", "}, // the last") not in lines
    ]
    assert missing == []
    assert edit.remove(changed) == before


@pytest.mark.parametrize("name", CLIENTS)
def test_installing_twice_replaces(name: str) -> None:
    once = an_edit(name).add(a_file(name).encode())
    twice = an_edit(name, url="http://127.0.0.1:5000", token="hr_secret-two").add(once)
    assert b"hr_secret-one" not in twice and b"4263" not in twice
    assert an_edit(name).remove(twice) == a_file(name).encode()


@pytest.mark.parametrize("name", CLIENTS)
def test_nothing_is_taken_out_where_nothing_of_ours_is(name: str) -> None:
    for content in (a_file(name).encode(), b""):
        assert an_edit(name).remove(content) == content


@pytest.mark.parametrize("name", CLIENTS)
def test_a_server_of_that_name_that_somebody_added_is_left_alone(name: str) -> None:
    table = CLIENTS[name].table
    entry = {"command": "handraise", "args": ["mcp"]}
    theirs = json.dumps({table: {"handraise": entry}}).encode()
    if CLIENTS[name].is_toml:
        theirs = f'[{table}.handraise]\ncommand = "handraise"\nargs = ["mcp"]\n'.encode()
    with pytest.raises(SettingsError, match="already that is not ours"):
        an_edit(name).add(theirs)
    assert an_edit(name).remove(theirs) == theirs


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("gemini", b'{"mcpServers": }', "line 1 cannot be read"),
        ("gemini", b'{\n"a": 1 "b": 2}', "line 2 cannot be read"),
        ("gemini", b'{"a": NaN}', "cannot be read"),
        ("gemini", b"{} {}", "cannot be read"),
        ("gemini", b"[]", "holds no JSON object"),
        ("gemini", b'{"mcpServers": []}', '"mcpServers" is no table'),
        ("gemini", b"\xff\xfe", "is not UTF-8"),
        ("gemini", b'{"a":' * 50_000, "nested too deep|cannot be read"),
        ("gemini", b"/* open", "cannot be read"),
        ("codex", b"model = ", "cannot be changed"),
        ("codex", b"mcp_servers = 1\n", "mcp_servers is no table"),
        ("codex", b"mcp_servers = { files = { command = 'x' } }\n", "there is no place"),
        ("codex", b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_changed_is_refused_with_a_sentence(name: str, content: bytes, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        an_edit(name).add(content)


# JSON as it stands --------------------------------------------------------------------------------------------------


def test_it_is_taken_out_after_others_were_added_behind_it() -> None:
    edit = an_edit("cursor")
    settings = json.loads(edit.add(b'{"mcpServers": {"a": {}}}'))
    settings["mcpServers"]["z"] = {}
    for indent in (None, 4):
        left = edit.remove(json.dumps(settings, indent=indent).encode())
        assert left == json.dumps({"mcpServers": {"a": {}, "z": {}}}, indent=indent).encode()


# TOML as it stands --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(A_TOML.replace("\n", "\r\n"), id="with CRLF"),
        pytest.param("model = 'x'\n", id="without tables"),
        pytest.param("model = 'x'\n\n\n", id="with empty lines at the end"),
        pytest.param('[a]\nb = """\n[mcp_servers.handraise]\n"""\n', id="with a header in a text"),
        pytest.param("[[hooks]]\nx = 1\n[ mcp_servers . 'files' ]\ncommand = 'x'\n", id="with odd headers"),
    ],
)
def test_toml_of_every_kind_comes_back(text: str) -> None:
    edit = an_edit("codex")
    changed = edit.add(text.encode())
    assert changed.startswith(text.encode())
    assert edit.remove(changed) == text.encode()


def test_what_an_agent_added_to_the_table_goes_with_it_and_nothing_else() -> None:
    edit = an_edit("codex")
    changed = edit.add(A_TOML.encode()).decode()
    changed += '\n[mcp_servers.handraise.tools.question]\napproval_mode = "approve"\n\n# later\n[tui]\ntheme = "x"\n'
    changed = changed.replace('args = ["mcp"]', 'args = ["mcp"]\nenabled = false')
    left = edit.remove(changed.encode())
    assert left is not None
    assert tomllib.loads(left.decode()) == {**tomllib.loads(A_TOML), "tui": {"theme": "x"}}
    assert left.decode().startswith(A_TOML)
    assert left.decode().endswith('\n# later\n[tui]\ntheme = "x"\n')


def test_a_table_that_cannot_be_told_apart_is_left() -> None:
    entry = 'command = "x"\nargs = ["mcp"]\nenv = { HANDRAISE_URL = "u", HANDRAISE_TOKEN = "hr_1" }\n'
    inline = f"[mcp_servers]\nhandraise = {{ {', '.join(entry.splitlines())} }}\n"
    with pytest.raises(SettingsError, match="cannot be told apart"):
        an_edit("codex").remove(inline.encode())


def test_a_missing_newline_at_the_end_is_no_trouble() -> None:
    changed = toml.put("a = 1", ("b", "c"), {"d": 'ü"\\'}, mark="ours")
    assert tomllib.loads(changed) == {"a": 1, "b": {"c": {"d": 'ü"\\'}}}
    assert toml.take_out(changed, ("b", "c"), mark="ours") == "a = 1\n"


# Files --------------------------------------------------------------------------------------------------------------


def installs(home: Path, name: str, edit: Edit) -> None:
    record = Installed.read(home, name)
    install(plan([edit], record=record), home=home, agent=name, url=URL, token="t", record=record)


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("content", [None, b"", b"\n", "as it is"])
def test_a_file_and_its_mode_are_as_before(name: str, content: bytes | str | None, tmp_path: Path) -> None:
    edit = an_edit(name, tmp_path / "person")
    before = a_file(name).encode() if isinstance(content, str) else content
    if before is not None:
        edit.path.parent.mkdir(parents=True)
        edit.path.write_bytes(before)
        edit.path.chmod(0o644)
    for _ in range(2):
        installs(tmp_path / "home", name, edit)
        assert stat.S_IMODE(edit.path.stat().st_mode) == 0o600
    uninstall(plan_removal([edit], record=Installed.read(tmp_path / "home", name)))
    remove_record(tmp_path / "home", name)
    if before is None:
        assert not (tmp_path / "person").exists()
    else:
        assert edit.path.read_bytes() == before
        assert stat.S_IMODE(edit.path.stat().st_mode) == 0o644


def test_no_secret_of_the_file_is_shown(tmp_path: Path) -> None:
    edit = an_edit("codex", tmp_path, token="hr_0123456789abcdef")
    edit.path.parent.mkdir()
    edit.path.write_text(A_TOML.removesuffix("# the end\n"))
    [change] = plan([edit])
    assert "API_KEY" in diff(change)
    assert "sk-very-secret" not in diff(change) and "hr_0123" not in diff(change)


# The commands -------------------------------------------------------------------------------------------------------


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


async def test_what_is_installed_works_and_is_gone_again(person: Person) -> None:
    file = person.folder / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text(COMMENTED.replace("TABLE", "mcpServers"))
    async with serving(person.home) as desk:
        done = await person.run("install", "gemini", "--yes")
        assert done.code == 0, done.err
        assert "tool `question`" in done.out and "handraise uninstall gemini" in done.out
        [(name, scopes)] = (await tokens_of(desk)).items()
        assert (name.split("-")[0], scopes) == ("gemini", ["ask"])
        entry = parsed(file.read_bytes())["mcpServers"]["handraise"]
        started = StdioServerParameters(
            command=entry["command"], args=entry["args"], env={**person.env, **entry["env"]}
        )
        with (person.folder / "mcp.log").open("w") as log:
            async with Client(stdio_client(started, errlog=log), mode="legacy") as agent, asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(agent.call_tool("question", {"questions": [{"question": "Ready?"}]}))
                async with asyncio.timeout(START):
                    while not (waiting := (await told(desk.http.get("/v1/asks"), 200))["asks"]):
                        await asyncio.sleep(0.02)
                await desk.answer(waiting[0]["id"], "yes")
                assert '"yes"' in str((await asking).content)
        removed = await person.run("uninstall", "gemini")
        assert removed.code == 0, removed.err
        assert file.read_text() == COMMENTED.replace("TABLE", "mcpServers")
        assert await tokens_of(desk) == {}


async def test_codex_has_an_adapter_and_gets_the_tool_by_mcp(person: Person) -> None:
    async with serving(person.home) as desk:
        assert (await person.run("install", "codex", "--yes", "--json")).code == 0
        assert "handraise" in servers("codex", (person.folder / ".codex" / "config.toml").read_bytes())
        assert len(await tokens_of(desk)) == 1
        assert (await person.run("uninstall", "codex")).code == 0
    assert not (person.folder / ".codex").exists()


async def test_all_that_can_be_installed_are_listed(person: Person) -> None:
    done = await person.run("install", "--list")
    assert done.code == 0
    lines = done.out.splitlines()
    assert {line.split()[0] for line in lines} >= {*CLIENTS, "claude", "opencode"}
    assert any(line.startswith("gemini") and "MCP" in line for line in lines)
    assert any(line.startswith("claude ") and "MCP" not in line for line in lines)
    listed = json.loads((await person.run("install", "--list", "--json")).out)["agents"]
    assert len(listed) == len(lines)
    for words, code in (((), 2), (("nobody",), 1)):
        refused = await person.run("install", *words, "--yes")
        assert refused.code == code
        assert "gemini" in refused.err and "claude" in refused.err
