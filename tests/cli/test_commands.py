"""How the command line finds its commands: a file each, a stranger's as an entry point, and old names still work."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from handraise import plugins
from handraise.cli import app
from handraise.cli.commands import Command
from handraise.cli.root import MOVED
from tests.helpers.serving import serving

PATIENCE = 20.0


def greet(name: str) -> None:
    """Greet somebody."""
    print(f"hello {name}")


def _several() -> typer.Typer:
    several = typer.Typer(help="Several things.")
    several.command("one")(greet)
    several.command("two")(greet)
    return several


GREET = Command(greet, examples="\b\nExample:\n  handraise greet-me ana", group="ask")
SEVERAL = Command(_several(), group="no such heading")
NO_COMMAND = greet


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a package with these entry points were installed."""
    named = {"greet_me": "GREET", "several": "SEVERAL", "none": "NO_COMMAND", "gone": "NOT_THERE", "asks": "GREET"}
    entries = [EntryPoint(name, f"{__name__}:{value}", "handraise.commands") for name, value in named.items()]
    monkeypatch.setattr(
        plugins, "_strangers", lambda family: EntryPoints(entries) if family == "cli.commands" else EntryPoints()
    )


@pytest.mark.usefixtures("strangers")
def test_a_strangers_command_is_found_listed_and_run() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "  greet-me      Greet somebody.\n" in shown.partition("Ask:\n")[2].partition("\n\n")[0] + "\n"
    assert CliRunner().invoke(app, ["greet-me", "ana"]).output == "hello ana\n"
    assert "handraise greet-me ana" in CliRunner().invoke(app, ["greet-me", "--help"]).output
    assert CliRunner().invoke(app, ["several", "two", "bo"]).output == "hello bo\n"
    assert "several" in shown.partition("More:\n")[2]


@pytest.mark.usefixtures("strangers")
def test_a_broken_stranger_spoils_nothing_but_itself() -> None:
    shown = CliRunner().invoke(app, ["--help"])
    assert shown.exit_code == 0
    assert "the command gone cannot be loaded" in " ".join(shown.output.split())
    assert "the command none cannot be loaded" in str(CliRunner().invoke(app, ["none", "x"]).exception)


@pytest.mark.usefixtures("strangers")
def test_a_stranger_cannot_take_the_place_of_a_command_of_ours() -> None:
    assert "List what waits" in CliRunner().invoke(app, ["asks", "--help"]).output


@pytest.mark.parametrize(("name", "group"), MOVED.items())
def test_a_command_that_moved_works_under_its_old_name(name: str, group: str) -> None:
    old = CliRunner().invoke(app, [name, "--help"])
    new = CliRunner().invoke(app, [group, name, "--help"])
    assert old.exit_code == new.exit_code == 0
    assert old.output.partition("\n")[2] == new.output.partition("\n")[2]
    assert old.output.startswith(f"Usage: handraise {name} ")


@pytest.mark.parametrize("words", [["nonsense"], ["keep_waiting"], ["_x"], ["commands.asks"], ["asks/../asks"], [""]])
def test_what_is_no_command_is_a_usage_error(words: list[str]) -> None:
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 2
    assert "No such command" in shown.output


@pytest.mark.parametrize("words", [["asks"], ["ask", "Now?", "yes", "--timeout", "0"], ["answer", "none", "yes"]])
async def test_hot_commands_load_nothing_heavy(tmp_path: Path, words: list[str]) -> None:
    probe = (
        "import sys; from handraise.cli import main; sys.argv = ['handraise', *sys.argv[1:]]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'httpx2', 'pydantic', 'pydantic_core', 'starlette', 'sqlite3', 'prompt_toolkit', 'rich', 'h11'}\n"
        "print('heavy:', *sorted(heavy & set(sys.modules)))"
    )
    async with asyncio.timeout(PATIENCE), serving(tmp_path / "home") as desk:
        environ = {**os.environ, "HANDRAISE_HOME": str(desk.settings.home), "XDG_CONFIG_HOME": str(tmp_path)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", probe, *words, env=environ, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
    assert out.decode().splitlines()[-1].strip() == "heavy:"


async def shown_alone(environ: dict[str, str], *, cwd: Path) -> str:
    """What `handraise` prints on a terminal."""
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "handraise", env=environ, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    reading = asyncio.get_running_loop().run_in_executor(None, _read_all, ours)
    await asyncio.wait_for(process.wait(), PATIENCE)
    return (await reading).replace("\r\n", "\n")


def _read_all(terminal: int) -> str:
    said = b""
    try:
        while part := os.read(terminal, 65_536):
            said += part
    except OSError:  # the other end was closed
        pass
    os.close(terminal)
    return said.decode()


async def test_alone_on_a_terminal_it_shows_what_waits_and_what_to_type(tmp_path: Path) -> None:
    environ = {**os.environ, "HANDRAISE_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path)}
    async with asyncio.timeout(3 * PATIENCE), serving(tmp_path / "home") as desk:
        assert "Nothing is waiting for you." in await shown_alone(environ, cwd=tmp_path)
        await desk.ask(id="which-db")
        shown = await shown_alone(environ, cwd=tmp_path)
    assert "which-db" in shown
    assert "handraise watch" in shown
    assert "handraise --help" in shown


async def test_alone_on_a_terminal_without_a_desk_it_says_how_to_begin(tmp_path: Path) -> None:
    environ = {**os.environ, "HANDRAISE_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path)}
    environ["HANDRAISE_URL"] = "http://127.0.0.1:9"
    shown = await shown_alone(environ, cwd=tmp_path)
    assert "No desk runs here." in shown
    assert "handraise demo" in shown
    assert "handraise serve" in shown


def test_alone_without_a_terminal_it_shows_its_help() -> None:
    shown = CliRunner().invoke(app, [])
    assert shown.exit_code == 2
    assert "Most used:" in shown.output
