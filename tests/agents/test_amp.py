"""Amp: its calls as asks, the files that attach it, the delegate against a real desk, and sessions with a stand-in."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from handraise.agents import AgentSettings, Attachable, Cut, Edit, Installable, Start
from handraise.agents.amp import Amp
from handraise.agents.amp.attach import GONE, ID_PREFIX, RESTARTED, Terminals
from handraise.agents.amp.session import AmpSession
from handraise.agents.amp.settings import DELEGATE, LOOKS, QUESTIONS, delegate, edits
from handraise.agents.amp.translate import from_answer, to_ask
from handraise.asks import Answer, Ask, Handling, Origin
from handraise.broker import Broker
from handraise.edits.installing import Installed, install, plan, plan_removal, remove_record, uninstall
from handraise.errors import AgentFailed, AskDoesNotFit, SettingsError
from tests.helpers.hearing import Heard
from tests.helpers.serving import START, Served, eventually, first_event, path_of, refused, serving, told

URL, TOKEN = "http://127.0.0.1:4263", "hr_secret-one"
ORIGIN = Origin(agent="amp", session="T-1", cwd="/project")
THREAD = "T-11111111-2222-3333-4444-555555555555"
STAND_IN = Path(__file__).parents[1] / "helpers" / "amp_program.py"
PATCH = """*** Begin Patch
*** Update File: src/a.py
@@ def f():
-    return 1
+    return 2
*** Add File: b c.txt
+hello
*** End Patch"""


# Calls as asks ------------------------------------------------------------------------------------------------------


def asked(tool: str, given: Any, *, remembers: bool = True) -> Any:
    return to_ask(tool, given, id="1", origin=ORIGIN, remembers=remembers).permission


def test_a_command_is_shown_as_it_will_run() -> None:
    for tool, name in (("shell_command", "command"), ("Bash", "cmd"), ("async_shell_command", "command")):
        wanted = asked(tool, {name: "rm -rf build\nls", "cwd": "/x"})
        assert (wanted.tool, wanted.command, wanted.cwd) == ("shell", "rm -rf build\nls", "/x")
        assert wanted.summary == "rm -rf build ls"
        assert wanted.input == {name: "rm -rf build\nls", "cwd": "/x"}
        assert not wanted.editable
    assert asked("shell_command", {"command": "ls"}).cwd == "/project"


def test_a_patch_names_its_files_and_shows_its_lines() -> None:
    wanted = asked("apply_patch", {"patchText": PATCH})
    assert wanted.paths == ("src/a.py", "b c.txt")
    assert wanted.summary == "Change src/a.py, b c.txt"
    assert wanted.diff.splitlines()[0] == "*** Update File: src/a.py"
    assert "+    return 2" in wanted.diff and "Begin Patch" not in wanted.diff
    assert asked("apply_patch", {"patchText": "x"}).paths == ()


@pytest.mark.parametrize(
    ("tool", "given", "summary"),
    [
        ("read_web_page", {"url": "https://example.com/a"}, "Read https://example.com/a"),
        ("web_search", {"objective": "find it"}, "Search the web for find it"),
        ("create_file", {"path": "/a", "content": "one\ntwo"}, "Write /a"),
        ("edit_file", {"path": "/a", "old_str": "1", "new_str": "2"}, "Change /a"),
        ("Task", {"description": "look", "prompt": "long"}, "Start a subagent: look"),
        ("mcp__other__x", {"a": "1"}, 'mcp__other__x {"a": "1"}'),
        ("new_tool", {}, "new_tool"),
    ],
)
def test_other_calls_are_said_in_one_line(tool: str, given: dict[str, Any], summary: str) -> None:
    wanted = asked(tool, given)
    assert (wanted.tool, wanted.summary) == (tool, summary)
    assert wanted.url == given.get("url")


def test_always_is_for_exactly_that_and_only_where_it_can_be_kept() -> None:
    wanted = asked("shell_command", {"command": "make test"})
    assert wanted.replies == ("once", "always", "reject")
    assert [(scope.patterns, scope.by_desk) for scope in wanted.scopes] == [(("make test",), True)]
    assert asked("shell_command", {"command": "rm *"}).scopes == ()  # a star would cover more than was seen
    assert asked("shell_command", {"command": "make test"}, remembers=False).replies == ("once", "reject")
    assert asked("apply_patch", {"patchText": PATCH}).replies == ("once", "reject")


@pytest.mark.parametrize(("tool", "given"), [("", {}), ("x", []), ("x", "text"), ("x", None)])
def test_what_is_no_call_is_refused(tool: str, given: Any) -> None:
    with pytest.raises(AskDoesNotFit):
        asked(tool, given)


def test_only_a_reply_that_allows_does() -> None:
    ask = to_ask("shell_command", {"command": "ls"}, id="1", origin=ORIGIN)
    assert from_answer(ask, Answer(reply="once")) == {"decision": "allow"}
    assert from_answer(ask, Answer(reply="always")) == {"decision": "allow"}
    assert from_answer(ask, Answer(reply="reject", rejected=True, reason="no")) == {
        "decision": "reject",
        "reason": "no",
    }
    for odd in (Answer(), Answer(reply="whatever"), Answer(rejected=True), Answer(answers=(("once",),))):
        assert from_answer(ask, odd)["decision"] == "reject"


# The settings -------------------------------------------------------------------------------------------------------

A_FILE = """{
    // what I never want to be asked about
    "amp.permissions": [
        {"tool": "Bash", "matches": {"cmd": "make *"}, "action": "allow"}, /* and */
        { "tool": "Read", "action": "allow" },
    ],
    "amp.proxy":   "http://localhost:1",
    "amp.mcpServers": {"other": {"url": "https://example.com"}} // mine
}
"""


def the_edits(folder: Path, *, url: str = URL, token: str = TOKEN) -> list[Edit]:
    return list(edits(url=url, token=token, environ={"HOME": str(folder)}, home=folder / "desk"))


def settings_edit(**changes: str) -> Edit:
    return the_edits(Path("/nowhere"), **changes)[1]


def plain(content: bytes) -> Any:
    """Without the comments of A_FILE."""
    text = content.decode()
    for comment in ("// what I never want to be asked about", "/* and */", "// mine"):
        text = text.replace(comment, "")
    return json.loads(text.replace("},\n    ],", "}\n    ],"))


def rules_of(content: bytes) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], plain(content)["amp.permissions"])


def test_a_persons_own_rules_stay_above_the_one_for_everything_else() -> None:
    settings = plain(settings_edit().add(A_FILE.encode()))
    first, *own, last = [rule for rule in settings["amp.permissions"] if rule not in LOOKS[1:]]
    assert first == QUESTIONS
    assert [rule["tool"] for rule in own] == ["Bash", "Read", "Read"]
    assert last == {"tool": "*", "action": "delegate", "to": f"/nowhere/desk/{DELEGATE}"}
    assert settings["amp.proxy"] == "http://localhost:1"
    assert settings["amp.mcpServers"]["other"] == {"url": "https://example.com"}
    server = settings["amp.mcpServers"]["handraise"]
    assert server["env"] == {"HANDRAISE_URL": URL, "HANDRAISE_TOKEN": TOKEN}
    assert [server["command"], *server["args"]] == [sys.executable, "-P", "-m", "handraise", "mcp"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(A_FILE, id="with comments"),
        pytest.param(A_FILE.replace("\n", "\r\n"), id="with CRLF"),
        pytest.param(A_FILE.replace("    ", "\t"), id="with tabs"),
        pytest.param("\ufeff" + A_FILE, id="with a byte order mark"),
        pytest.param('{"amp.proxy":"x"}', id="on one line"),
        pytest.param('{"amp.permissions":[{"tool":"x","action":"ask"}],"a":1}', id="with rules on one line"),
        pytest.param('{"amp.permissions": [{"tool": "x", "action": "ask"},], }', id="with commas at the end"),
        pytest.param('{\n  "a": "// no comment, ]",\n  "b": [1, 2,], // one\n}', id="with marks in a text"),
    ],
)
def test_what_is_not_ours_stays_byte_for_byte(text: str) -> None:
    edit = settings_edit()
    changed = edit.add(text.encode())
    assert changed != text.encode()
    assert edit.remove(changed) == text.encode()
    again = settings_edit(url="http://127.0.0.1:5000", token="hr_two").add(changed)
    assert b"hr_secret-one" not in again and again.count(b"hr_two") == 1
    assert edit.remove(again) == text.encode()


def test_ours_is_found_after_the_file_was_changed() -> None:
    settings = plain(settings_edit().add(A_FILE.encode()))
    settings["amp.permissions"].insert(3, {"tool": "Grep", "action": "allow"})
    settings["amp.showCosts"] = False
    left = json.loads(settings_edit(token="hr_other").remove(json.dumps(settings).encode()) or b"")
    assert [rule["tool"] for rule in left["amp.permissions"]] == ["Bash", "Read", "Grep"]
    assert left["amp.mcpServers"] == {"other": {"url": "https://example.com"}}
    assert left["amp.showCosts"] is False


def test_a_rule_that_somebody_put_between_ours_stays() -> None:
    settings = plain(settings_edit().add(b"{}"))
    theirs = {"tool": "painter", "action": "allow"}
    settings["amp.permissions"][-3] = theirs
    left = json.loads(settings_edit().remove(json.dumps(settings).encode()) or b"")
    assert left["amp.permissions"] == [*LOOKS[:-2], theirs]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"amp.permissions": }', "is not JSON"),
        (b"[]", "holds no JSON object"),
        (b'{"amp.permissions": {}}', "not what Amp wants"),
        (b'{"amp.mcpServers": []}', "not what Amp wants"),
        (b'{"amp.mcpServers": {"handraise": {"command": "mine"}}}', "rename it first"),
        (b'{"amp.dangerouslyAllowAll": true}', "switches every permission off"),
        (b'{"amp.permissions": [{"tool": "*", "action": "ask"}]}', "decides over every tool"),
        (b"\xff", "is not UTF-8"),
    ],
)
def test_a_file_with_which_it_would_not_work_is_refused(content: bytes, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        settings_edit().add(content)


def test_a_rule_for_every_tool_under_a_condition_is_fine() -> None:
    rule = {"tool": "*", "matches": {"path": "/etc/*"}, "action": "reject"}
    assert rule in rules_of(settings_edit().add(json.dumps({"amp.permissions": [rule]}).encode()))


def test_where_the_settings_are(tmp_path: Path) -> None:
    def path(**env: str) -> Path:
        agent: object = Amp(AgentSettings(home=tmp_path, env=env))
        assert isinstance(agent, Installable) and isinstance(agent, Attachable)
        return agent.edits(url=URL, token=TOKEN)[1].path

    assert path(HOME="/h", XDG_CONFIG_HOME="", AMP_SETTINGS_FILE="") == Path("/h/.config/amp/settings.json")
    assert path(HOME="/h", XDG_CONFIG_HOME="/c", AMP_SETTINGS_FILE="") == Path("/c/amp/settings.json")
    assert path(AMP_SETTINGS_FILE="/own.json") == Path("/own.json")


def test_installing_makes_a_program_for_its_owner_alone_and_uninstalling_leaves_nothing(tmp_path: Path) -> None:
    home = tmp_path / "desk"
    wanted = the_edits(tmp_path)
    install(plan(wanted), home=home, agent="amp", url=URL, token="amp-here")
    program, file = (edit.path for edit in wanted)
    assert program.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600
    uninstall(plan_removal(wanted, record=Installed.read(home, "amp")))
    remove_record(home, "amp")
    assert not program.exists() and not (tmp_path / ".config").exists()


def test_a_program_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    program, _ = the_edits(tmp_path)
    with pytest.raises(SettingsError, match="not handraise's"):
        program.add(b"#!/bin/sh\n")
    assert program.remove(b"#!/bin/sh\n") == b"#!/bin/sh\n"


# The delegate, and what it calls ------------------------------------------------------------------------------------


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "desk") as running:
        yield running


class Terminal:
    """Somebody's Amp that runs its delegate."""

    def __init__(self, folder: Path, *, url: str, token: str, attended: bool | None = False) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.program = folder / "the delegate"
        self.program.write_text(delegate(url=url, token=token, attended=attended))
        self.program.chmod(0o700)

    async def calls(self, command: str = "make test", *, thread: str | None = THREAD) -> asyncio.subprocess.Process:
        env = {"PATH": os.environ["PATH"], "AGENT": "amp", "AGENT_TOOL_NAME": "shell_command"}
        process = await asyncio.create_subprocess_exec(
            self.program,
            env={**env, **({"AMP_THREAD_ID": thread} if thread else {})},
            cwd=self.folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"command": command}).encode())
        process.stdin.close()
        return process


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str]:
    async with asyncio.timeout(START):
        _, said = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode().strip()


async def the_ask(broker: Broker, *, number: int = 1) -> Ask:
    """The one that was raised as number so-and-so."""
    ids: list[str] = []

    def is_it(event: Any) -> bool:
        if event.type == "asked" and event.ask.id not in ids:
            ids.append(event.ask.id)
            return len(ids) == number
        return False

    async with asyncio.timeout(START):
        return cast(Any, await first_event(broker, is_it)).ask  # type: ignore[no-any-return]


async def settled(desk: Served, ask: Ask, kind: str) -> dict[str, Any]:
    await first_event(desk.broker, lambda event: event.type == kind and cast(Any, event).ask.id == ask.id)
    return await desk.get(ask.id)


async def decide(desk: Served, ask: Ask, reply: str, **more: str) -> None:
    await told(desk.http.post(path_of(ask.id, "answer"), json={"reply": reply, **more}), 200)


@pytest.fixture
async def terminal(desk: Served, tmp_path: Path) -> Terminal:
    made = await told(desk.http.post("/v1/tokens", json={"name": "amp-here", "scopes": ["ask"]}), 201)
    return Terminal(tmp_path / "amp", url=desk.url, token=made["token"])


async def test_what_is_allowed_at_the_desk_runs(desk: Served, terminal: Terminal) -> None:
    calling = await terminal.calls("make test")
    ask = await the_ask(desk.broker)
    assert ask.id.startswith(f"@amp-here:{ID_PREFIX}{THREAD}:")
    assert (ask.origin.agent, ask.origin.session) == ("amp", THREAD)
    assert ask.origin.cwd == str(terminal.folder.resolve())
    assert ask.permission is not None and ask.permission.command == "make test"
    await decide(desk, ask, "once")
    assert await ended(calling) == (0, "")
    assert (await settled(desk, ask, "delivered"))["delivered_at"]


async def test_the_model_hears_why_it_was_refused(desk: Served, terminal: Terminal) -> None:
    calling = await terminal.calls()
    await decide(desk, await the_ask(desk.broker), "reject", message="not on a Friday – später")
    assert await ended(calling) == (2, "not on a Friday – später")


async def test_silence_never_grants(tmp_path: Path) -> None:
    handling = Handling(question_timeout=0.3, on_timeout="accept-first")
    async with serving(tmp_path / "desk", handling=handling) as desk:
        calling = await Terminal(tmp_path / "amp", url=desk.url, token=desk.token).calls()
        code, said = await ended(calling)
        assert code == 2
        assert said.endswith("go on without it, and note what is missing.")


async def test_always_is_kept_by_the_desk_for_the_thread(desk: Served, terminal: Terminal) -> None:
    calling = await terminal.calls("make test")
    await decide(desk, await the_ask(desk.broker), "always")
    assert await ended(calling) == (0, "")
    assert await ended(await terminal.calls("make test")) == (0, "")
    other = await terminal.calls("make test", thread="T-other")
    ask = await the_ask(desk.broker, number=3)
    await decide(desk, ask, "reject")
    assert (await ended(other))[0] == 2


async def test_two_calls_that_are_the_same_are_two_asks(desk: Served, terminal: Terminal) -> None:
    one, two = await terminal.calls(thread=None), await terminal.calls(thread=None)
    first, second = await the_ask(desk.broker, number=1), await the_ask(desk.broker, number=2)
    await decide(desk, first, "once")
    await decide(desk, second, "reject")
    assert sorted([(await ended(one))[0], (await ended(two))[0]]) == [0, 2]


async def test_a_withdrawn_ask_is_left_to_the_terminal(desk: Served, terminal: Terminal) -> None:
    for attended, code in ((True, 1), (False, 2)):
        there = Terminal(terminal.folder, url=desk.url, token=desk.token, attended=attended)
        calling = await there.calls()
        ask = await the_ask(desk.broker, number=2 - attended)
        await told(desk.http.post(path_of(ask.id, "withdraw")), 200)
        assert (await ended(calling))[0] == code


@pytest.mark.parametrize(("attended", "code"), [(True, 1), (False, 2)])
async def test_without_a_desk_the_terminal_is_asked_or_nothing_runs(tmp_path: Path, attended: bool, code: int) -> None:
    async with serving(tmp_path / "desk") as desk:
        url = desk.url
    calling = await Terminal(tmp_path / "amp", url=url, token="hr_x", attended=attended).calls()
    was, said = await ended(calling)
    assert was == code
    assert attended or "cannot be reached" in said


@pytest.mark.parametrize(
    ("on_terminal", "words", "code"),
    [(True, (), 1), (True, ("-x", "do it"), 2), (True, ("--execute=do it",), 2), (False, (), 2)],
)
async def test_a_person_is_asked_only_where_amp_has_a_terminal_and_was_not_told_to_execute(
    tmp_path: Path, on_terminal: bool, words: tuple[str, ...], code: int
) -> None:
    """The delegate sees that of whoever started it, since it has no terminal of its own."""
    program = Terminal(tmp_path / "amp", url="http://127.0.0.1:1", token="hr_x", attended=None).program
    script = (
        "import subprocess, sys; "
        "sys.exit(subprocess.run([sys.argv[1]], input=b'{}', start_new_session=True).returncode)"
    )
    ours, theirs = pty.openpty()
    try:
        amp = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", script, program, *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=theirs if on_terminal else asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(START):
            assert await amp.wait() == code
    finally:
        os.close(ours)
        os.close(theirs)


async def test_a_token_that_is_no_good_grants_nothing(desk: Served, tmp_path: Path) -> None:
    calling = await Terminal(tmp_path / "amp", url=desk.url, token="hr_revoked").calls()
    code, said = await ended(calling)
    assert code == 2 and "handraise install amp" in said
    anonymous = await desk.client()
    await refused(anonymous.post("/attach/amp/call", json={}), 401, "unauthorized")


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"decision": "allow"}',  # which does not name the call
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nallow",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00\xff" * 10,
    ],
)
async def test_whatever_else_listens_there_allows_nothing(tmp_path: Path, reply: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(reply)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        calling = await Terminal(tmp_path / "amp", url=url, token="hr_x", attended=True).calls()
        assert (await ended(calling))[0] == 1


async def test_where_amp_is_gone_the_ask_is_withdrawn(desk: Served, terminal: Terminal) -> None:
    script = (
        "import subprocess, sys; "
        "call = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, start_new_session=True); "
        "call.stdin.write(b'{}'); call.stdin.close(); sys.stdin.read()"
    )
    amp = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, terminal.program),
        env={"AGENT_TOOL_NAME": "get_usage", "AMP_THREAD_ID": THREAD},
        stdin=asyncio.subprocess.PIPE,
    )
    ask = await the_ask(desk.broker)
    amp.kill()
    await amp.wait()
    assert (await settled(desk, ask, "withdrawn"))["withdrawn_reason"] == GONE


@pytest.fixture
def hanging_up() -> Iterator[None]:
    """Under `nohup` we ignore it, and so would what we start."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hanging_up")
async def test_a_signal_allows_nothing_and_withdraws(desk: Served, terminal: Terminal) -> None:
    for number, each in enumerate((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL), start=1):
        calling = await terminal.calls()
        ask = await the_ask(desk.broker, number=number)
        calling.send_signal(each)
        code, _ = await ended(calling)
        assert code not in (0, 1)
        assert (await settled(desk, ask, "withdrawn"))["withdrawn_reason"] == GONE


async def test_a_desk_that_stops_leaves_it_to_the_person_at_the_terminal(tmp_path: Path) -> None:
    async with serving(tmp_path / "desk") as desk:
        terminal = Terminal(tmp_path / "amp", url=desk.url, token=desk.token, attended=True)
        calling = await terminal.calls()
        await the_ask(desk.broker)
    assert (await ended(calling))[0] == 1


async def test_where_nobody_is_at_the_terminal_a_desk_that_restarts_is_found_again(tmp_path: Path) -> None:
    async with serving(tmp_path / "desk") as desk:
        terminal = Terminal(tmp_path / "amp", url=desk.url, token=desk.token, attended=False)
        calling = await terminal.calls()
        ask = await the_ask(desk.broker)
        port = int(desk.url.rpartition(":")[2])
    async with serving(tmp_path / "desk", port=port) as desk:
        await decide(desk, ask, "once")
        assert await ended(calling) == (0, "")
        assert (await settled(desk, ask, "delivered"))["state"] == "answered"
        assert [each.id async for each in desk.broker.asks()] == [ask.id]


async def test_what_nobody_comes_back_for_is_withdrawn_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path / "desk") as desk:
        calling = await Terminal(tmp_path / "amp", url=desk.url, token=desk.token, attended=True).calls()
        ask = await the_ask(desk.broker)
    await ended(calling)
    amp = Amp(AgentSettings(home=tmp_path))
    amp._terminals = Terminals(back=0.05)
    async with serving(tmp_path / "desk", staff=[amp]) as desk:
        assert (await settled(desk, ask, "withdrawn"))["withdrawn_reason"] == RESTARTED


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'{"call": "0123456789abcdef", "tool": "x"}', 400),
        (b'{"call": "short", "tool": "x", "input": {}}', 422),
        (b'{"call": "0123456789abcde/", "tool": "x", "input": {}}', 422),
        (b'{"call": "0123456789abcdef", "tool": "", "input": {}}', 422),
        (b'{"call": "0123456789abcdef", "tool": "x", "input": 1}', 422),
        (b"x" * (4 * 1024 * 1024 + 1), 413),
    ],
)
async def test_a_call_that_is_none_is_refused(desk: Served, body: bytes, status: int) -> None:
    caller = await desk.caller("amp-here", "ask")
    response = await caller.post("/attach/amp/call", content=body)
    assert (response.status_code, response.json()["message"] != "") == (status, True)
    assert [ask async for ask in desk.broker.asks()] == []


async def test_the_same_id_for_another_call_is_refused(desk: Served) -> None:
    caller = await desk.caller("amp-here", "ask")
    body = {"call": "0123456789abcdef", "tool": "shell_command", "input": {"command": "ls"}, "thread": THREAD}
    held = asyncio.create_task(caller.post("/attach/amp/call", json=body))
    ask = await the_ask(desk.broker)
    other = {**body, "input": {"command": "rm -rf /"}}
    await refused(caller.post("/attach/amp/call", json=other), 409, "ask_differs")
    await decide(desk, ask, "once")
    assert (await told(held, 200))["decision"] == "allow"


async def test_a_connection_that_breaks_does_not_take_the_ask_from_the_next(tmp_path: Path) -> None:
    amp = Amp(AgentSettings(home=tmp_path))
    held = amp._terminals._held
    body = {"call": "0123456789abcdef", "tool": "shell_command", "input": {"command": "ls"}, "thread": THREAD}
    async with serving(tmp_path / "desk", staff=[amp]) as desk:
        caller = await desk.caller("amp-here", "ask")
        first = asyncio.create_task(caller.post("/attach/amp/call", json=body))
        ask = await the_ask(desk.broker)
        [before] = held.values()
        second = asyncio.create_task(caller.post("/attach/amp/call", json=body))
        await eventually(lambda: before not in held.values())
        first.cancel()
        await asyncio.wait({first})
        for _ in range(20):  # calls in which the desk sees that the first one has left
            assert (await desk.get(ask.id))["state"] == "asked"
        await decide(desk, ask, "once")
        assert (await told(second, 200))["decision"] == "allow"


# Sessions -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def amp(tmp_path: Path) -> Amp:
    env = {"AMP_API_KEY": "none", "HOME": str(tmp_path), "XDG_CONFIG_HOME": ""}
    return Amp(AgentSettings(home=tmp_path / "desk", command=(sys.executable, str(STAND_IN)), env=env))


@asynccontextmanager
async def opened(amp: Amp, broker: Broker, **changes: Any) -> AsyncIterator[AmpSession]:
    session = await amp.open(broker, Start(session="s1", **changes))
    try:
        yield session
    finally:
        await session.close()


async def replied(turn: asyncio.Task[Any]) -> str:
    async with asyncio.timeout(START):
        return str((await turn).text)


async def test_a_call_of_a_session_is_decided_at_the_desk(amp: Amp, desk: Served, tmp_path: Path) -> None:
    heard = Heard()
    async with opened(amp, desk.broker, cwd=str(tmp_path), listener=heard, run="r1") as session:
        turn = asyncio.create_task(session.prompt("run echo done"))
        ask = await the_ask(desk.broker)
        assert (ask.origin.session, ask.origin.run, ask.origin.cwd) == ("s1", "r1", str(tmp_path))
        await decide(desk, ask, "once")
        assert await replied(turn) == "ran: done"
        assert (await settled(desk, ask, "delivered"))["delivered_at"]
        turn = asyncio.create_task(session.prompt("run echo more"))
        await decide(desk, await the_ask(desk.broker, number=2), "reject", message="not that")
        assert await replied(turn) == "refused: not that"
        assert session.handle == {"thread": THREAD, "turns": 2}
    assert [(said.role, said.text) for said in heard.messages][:2] == [
        ("tool", "shell_command"),
        ("agent", "ran: done"),
    ]
    [knock], [decision] = heard.translation(ask.id)
    assert knock["tool"] == "shell_command" and knock["call"] == decision["call"]
    assert decision["decision"] == "allow"
    assert {wire.name for wire in heard.wires if wire.way == "out"} == {"user", "delegate"}


async def test_two_calls_at_once_have_an_ask_each(amp: Amp, desk: Served) -> None:
    async with opened(amp, desk.broker) as session:
        turn = asyncio.create_task(session.prompt("twice echo x"))
        await decide(desk, await the_ask(desk.broker), "once")
        await decide(desk, await the_ask(desk.broker, number=2), "reject", message="once is enough")
        assert sorted((await replied(turn)).split(" | ")) == ["ran: x", "refused: once is enough"]


async def test_an_abort_withdraws_and_the_next_prompt_goes_on_with_the_thread(amp: Amp, desk: Served) -> None:
    async with opened(amp, desk.broker) as session:
        turn = asyncio.create_task(session.prompt("run echo x"))
        ask = await the_ask(desk.broker)
        async with asyncio.timeout(START):
            await session.abort()
        assert (await settled(desk, ask, "withdrawn"))["state"] == "withdrawn"
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert await replied(asyncio.create_task(session.prompt("say again"))) == "again"
        await session.abort()  # nothing runs
        assert await replied(asyncio.create_task(session.prompt("say more"))) == "more"


async def test_closing_withdraws_and_leaves_nothing_behind(amp: Amp, desk: Served) -> None:
    async with opened(amp, desk.broker) as session:
        turn = asyncio.create_task(session.prompt("run echo x"))
        ask = await the_ask(desk.broker)
        folder = session._folder
        assert folder.stat().st_mode & 0o777 == 0o700
    assert (await settled(desk, ask, "withdrawn"))["withdrawn_reason"] == "the session was closed"
    assert not folder.exists()
    await asyncio.wait({turn})


async def test_a_session_goes_on_after_its_worker_and_a_grant_covers_the_same_call_once(amp: Amp, desk: Served) -> None:
    session = await amp.open(desk.broker, Start(session="s1"))
    turn = asyncio.create_task(session.prompt("run echo x"))
    ask = await the_ask(desk.broker)
    await session.leave()
    await asyncio.wait({turn})
    assert (await desk.get(ask.id))["state"] == "asked"
    cut = Cut(handle=session.handle, prompt="run echo x", asks=(ask,))
    async with opened(amp, desk.broker, cut=cut) as again:
        going_on = asyncio.create_task(again.go_on())
        await decide(desk, ask, "once")
        assert await replied(going_on) == "ran: x"
        assert again.handle["thread"] == THREAD
        assert (await settled(desk, ask, "delivered"))["delivery_error"] is None
        assert len([each async for each in desk.broker.asks()]) == 1


async def test_a_refusal_after_a_restart_is_told(amp: Amp, desk: Served) -> None:
    session = await amp.open(desk.broker, Start(session="s1"))
    turn = asyncio.create_task(session.prompt("run echo x"))
    ask = await the_ask(desk.broker)
    await session.leave()
    await asyncio.wait({turn})
    await decide(desk, ask, "reject", message="leave it")
    cut = Cut(handle=session.handle, prompt="run echo x", asks=(ask,))
    async with opened(amp, desk.broker, cut=cut) as again:
        assert "That was refused: leave it" in await replied(asyncio.create_task(again.go_on()))


async def test_what_goes_wrong_is_said_in_amps_words(amp: Amp, desk: Served) -> None:
    async with opened(amp, desk.broker) as session:
        with pytest.raises(AgentFailed, match="amp could not finish: out of credit"):
            await session.prompt("fail out of credit")
        with pytest.raises(AgentFailed, match="amp ended in the middle of its turn: the end"):
            await session.prompt("die the end")
        with pytest.raises(AgentFailed, match="amp has ended"):
            await session.prompt("say x")


async def test_a_call_that_no_desk_takes_is_refused_at_once(amp: Amp, desk: Served) -> None:
    async with opened(amp, desk.broker) as session:
        for command in ("echo \ud800", "x" * 30_000):
            reply = await replied(asyncio.create_task(session.prompt(f"run {command}")))
            assert reply.startswith("refused: Nobody could be asked")
    assert [ask async for ask in desk.broker.asks()] == []


async def test_without_an_account_it_says_what_to_do(amp: Amp, desk: Served) -> None:
    amp._settings = replace(amp._settings, env={**amp._settings.env, "AMP_API_KEY": ""})
    async with opened(amp, desk.broker) as session:
        with pytest.raises(AgentFailed, match=r"amp login.*AMP_API_KEY"):
            async with asyncio.timeout(START):
                await session.prompt("say x")


async def test_a_program_that_is_missing_is_said(tmp_path: Path, desk: Served) -> None:
    absent = Amp(AgentSettings(home=tmp_path, command=("/no/such/amp",)))
    with pytest.raises(AgentFailed, match="no such program"):
        await absent.open(desk.broker, Start(session="s1"))
    looked = await absent.look()
    assert not looked.installed and "no such program" in (looked.problem or "")


async def test_modes_that_amp_cannot_keep_to_are_refused(amp: Amp, desk: Served) -> None:
    for mode in ("read-only", "workspace-write", "plan", "accept-edits"):
        with pytest.raises(SettingsError, match="amp has no mode"):
            amp.check(Start(session="s1", mode=cast(Any, mode)))
    async with opened(amp, desk.broker, mode="bypass") as session:
        assert await replied(asyncio.create_task(session.prompt("run echo free"))) == "ran: free"


async def test_a_persons_own_settings_apply_to_a_session_without_what_install_added(
    amp: Amp, desk: Served, tmp_path: Path
) -> None:
    [_, edit] = amp.edits(url=URL, token=TOKEN)
    edit.path.parent.mkdir(parents=True)
    own = '{"amp.permissions": [{"tool": "*", "matches": {"command": "echo *"}, "action": "allow"}], /* x */}'
    edit.path.write_bytes(edit.add(own.encode()))
    async with opened(amp, desk.broker) as session:
        assert await replied(asyncio.create_task(session.prompt("run echo mine"))) == "ran: mine"
        settings = json.loads((session._folder / "settings.json").read_text())
        assert TOKEN not in json.dumps(settings)
        assert await replied(asyncio.create_task(session.prompt("tools"))) == "handraise"
    async with opened(amp, desk.broker, handling=Handling(question_policy="reject")) as session:
        assert await replied(asyncio.create_task(session.prompt("tools"))) == ""


async def test_a_desk_starts_it_and_goes_on_with_it_after_a_restart(amp: Amp, tmp_path: Path) -> None:
    home = tmp_path / "desk"
    async with serving(home, staff=[amp]) as desk:
        body = {"agent": "amp", "prompt": "run echo done", "cwd": str(tmp_path)}
        id = (await told(desk.http.post("/v1/sessions", json=body), 201))["id"]
        ask = await the_ask(desk.broker)
        assert ask.origin.session == id
    async with serving(home, staff=[Amp(amp._settings)]) as desk:
        await decide(desk, ask, "once")
        session = await told(desk.http.get(f"/v1/sessions/{id}", params={"wait": 20}), 200)
        assert session["state"] == "idle", session
        messages = (await told(desk.http.get(f"/v1/sessions/{id}/messages"), 200))["messages"]
        assert messages[-1]["text"] == "ran: done"
        assert (await settled(desk, ask, "delivered"))["delivery_error"] is None


async def test_what_is_installed_is_seen(amp: Amp) -> None:
    looked = await amp.look()
    assert looked.installed and (looked.version or "").startswith("0.0.1790142911")
    assert looked.permissions and looked.questions and looked.attach and looked.resume
    assert looked.modes == ("default", "bypass", "full-access")
