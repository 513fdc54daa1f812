"""What `handraise install` does to people's files, and that `uninstall` leaves them as they were, byte for byte."""

from __future__ import annotations

import json
import os
import pty
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handraise.agents import AgentSettings, Edit, Installable
from handraise.agents.claude import Claude
from handraise.agents.claude.settings import EVENTS, edits
from handraise.edits.installing import Installed, diff, elsewhere, install, plan, plan_removal, remove_record, uninstall
from handraise.errors import SettingsError
from tests.helpers.commands import Person
from tests.helpers.json_files import VALUES, Style
from tests.helpers.serving import serving, tokens_of

URL = "http://127.0.0.1:4263"
OTHERS = {"hooks": [{"type": "command", "command": "make lint"}], "matcher": "Edit"}
A_FILE = """\
{
    "model":   "opus",
    "hooks": {
        "PostToolUse": [
            {"matcher": "Edit", "hooks": [ {"type": "command", "command": "make lint"} ]}
        ],
        "Stop": [{ "hooks": [] }]
    },
    "permissions": { "allow": ["Bash(make:*)"] }
}
"""


def an_edit(folder: Path = Path("/nowhere"), *, url: str = URL, token: str = "hr_secret-one") -> Edit:
    [edit] = edits(url=url, token=token, environ={"CLAUDE_CONFIG_DIR": str(folder)})
    return edit


def added(text: str) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(an_edit().add(text.encode()))
    return settings


def ours_in(settings: dict[str, Any], event: str) -> list[dict[str, Any]]:
    hooks = [hook for group in settings["hooks"][event] for hook in group["hooks"]]
    return [hook for hook in hooks if isinstance(hook, dict) and "/attach/claude/" in str(hook.get("url"))]


# The edit of settings.json ----------------------------------------------------------------------------------


def test_every_hook_goes_to_the_desk_with_a_token() -> None:
    settings = added("{}")
    assert list(settings["hooks"]) == list(EVENTS)
    for event in EVENTS:
        [hook] = ours_in(settings, event)
        assert hook["type"] == "http"
        assert hook["url"] == f"{URL}/attach/claude/hook"
        assert hook["headers"]["Authorization"] == "Bearer hr_secret-one"
    assert ours_in(settings, "PermissionRequest")[0]["timeout"] == 86_400


def test_hooks_of_other_people_stay_beside_ours() -> None:
    settings = added(A_FILE)
    assert settings["hooks"]["PostToolUse"][0] == OTHERS
    assert len(settings["hooks"]["PostToolUse"]) == 2
    assert {**settings, "hooks": None} == {**json.loads(A_FILE), "hooks": None}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(A_FILE, id="as people write it"),
        pytest.param(A_FILE.replace("\n", "\r\n"), id="with CRLF"),
        pytest.param(A_FILE.replace("    ", "\t"), id="with tabs"),
        pytest.param(A_FILE.removesuffix("\n"), id="without a last newline"),
        pytest.param("\ufeff" + A_FILE, id="with a byte order mark"),
        pytest.param('{"model":"opus","env":{"A":"ü"}}', id="on one line"),
        pytest.param('{ "model" : "opus" }\n\n', id="with odd spaces"),
        pytest.param('{"hooks": {"Stop": [{"hooks": []}]}, "model": "opus"}', id="with a table that is not the last"),
        pytest.param('{\n  "a": "}]\\"{",\n  "hooks": {\n    "X": []\n  }\n}', id="with brackets in a text"),
    ],
)
def test_what_is_not_ours_stays_byte_for_byte(text: str) -> None:
    edit = an_edit()
    changed = edit.add(text.encode())
    assert edit.remove(changed) == text.encode()
    assert changed.count(b"\r\n") == changed.count(b"\n") or b"\r\n" not in text.encode()


def test_ours_is_written_as_the_rest_of_the_file_is() -> None:
    changed = an_edit().add(b'{\r\n\t"model": "opus"\r\n}\r\n').decode()
    lines = changed.split("\r\n")
    assert not any("\n" in line for line in lines)
    assert lines[:3] == ["{", '\t"model": "opus",', '\t"hooks": {']
    assert [line.split(":")[0] for line in lines[3:-3]] == [f'\t\t"{event}"' for event in EVENTS]
    assert lines[-3:] == ["\t}", "}", ""]
    listed = an_edit().add(A_FILE.encode()).decode()
    assert re.search(r'\]\},\n {12}\{"hooks": \[\{"type": "http".*\n {8}\],', listed)


GROUPS = st.lists(st.fixed_dictionaries({"hooks": st.lists(VALUES, max_size=2)}), min_size=1, max_size=2)
TABLE = st.dictionaries(st.sampled_from([*EVENTS, "PreToolUse"]), GROUPS, min_size=1)


@given(
    rest=st.dictionaries(st.text(max_size=5), VALUES, max_size=3),
    table=st.none() | TABLE,
    first=st.booleans(),
    style=Style.any(),
)
def test_putting_in_and_taking_out_leaves_any_file_as_it_was(
    rest: dict[str, Any], table: Any, first: bool, style: Style
) -> None:
    rest.pop("hooks", None)
    hooks = {} if table is None else {"hooks": table}
    settings = {**hooks, **rest} if first else {**rest, **hooks}
    text = style.written(settings)
    edit = an_edit()
    changed = edit.add(text.encode())
    found = json.loads(changed)
    assert all(len(ours_in(found, event)) == 1 for event in EVENTS)
    assert edit.remove(changed) == (text.encode() if settings else None)


def test_it_is_taken_out_after_the_file_was_formatted_anew_and_changed() -> None:
    settings = added(A_FILE)
    settings["hooks"]["Stop"].insert(0, OTHERS)
    settings["theme"] = "dark"
    left = an_edit(token="hr_another").remove(json.dumps(settings, indent=8).encode())
    assert left is not None
    expected = json.loads(A_FILE)
    expected["hooks"]["Stop"].insert(0, OTHERS)
    assert json.loads(left) == {**expected, "theme": "dark"}


def test_a_hook_that_somebody_moved_into_our_group_stays() -> None:
    settings = added("{}")
    settings["hooks"]["Stop"][0]["hooks"].append({"type": "command", "command": "beep"})
    left = an_edit().remove(json.dumps(settings).encode())
    assert json.loads(left or b"") == {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "beep"}]}]}}


def test_installing_twice_replaces() -> None:
    once = an_edit().add(A_FILE.encode())
    twice = an_edit(url="http://127.0.0.1:5000", token="hr_secret-two").add(once)
    assert b"hr_secret-one" not in twice
    assert b"4263" not in twice
    assert an_edit().remove(twice) == A_FILE.encode()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"hooks": }', "is not JSON"),
        (b'// comment\n{"a": 1}', "is not JSON"),
        (b'{"a": NaN}', "is not JSON"),
        (b"[]", "holds no JSON object"),
        (b'{"hooks": []}', "not a table of events"),
        (b'{"hooks": null}', "not a table of events"),
        (b'{"hooks": {"Stop": {}}}', "has no list for Stop"),
        (b"\xff\xfe", "is not UTF-8"),
        (b'{"a":' * 5000, "not JSON|nested too deep"),
        (b'{"disableAllHooks": true}', "disableAllHooks"),
        (b'{"allowedHttpHookUrls": ["https://hooks.example.com/*"]}', "allowedHttpHookUrls"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused_with_a_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        an_edit().add(content)


def test_addresses_that_the_file_allows_are_fine() -> None:
    assert added('{"allowedHttpHookUrls": ["http://127.0.0.1:*"]}')["hooks"]


def test_where_the_settings_are(tmp_path: Path) -> None:
    [edit] = edits(url=URL, token="hr_x", environ={"HOME": str(tmp_path)})
    assert edit.path == tmp_path / ".claude" / "settings.json"
    assert edit.private
    agent = Claude(AgentSettings(home=tmp_path, env={"CLAUDE_CONFIG_DIR": str(tmp_path / "own")}))
    assert isinstance(agent, Installable)
    assert [each.path for each in agent.edits(url=URL, token="hr_x")] == [tmp_path / "own" / "settings.json"]


# Files ------------------------------------------------------------------------------------------------------


def installs(home: Path, edits: list[Edit]) -> None:
    record = Installed.read(home, "claude")
    install(plan(edits, record=record), home=home, agent="claude", url=URL, token="claude-here", record=record)


def uninstalls(home: Path, edits: list[Edit]) -> None:
    uninstall(plan_removal(edits, record=Installed.read(home, "claude")))
    remove_record(home, "claude")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_and_its_mode_are_as_before(tmp_path: Path) -> None:
    edit = an_edit(tmp_path / "claude")
    edit.path.parent.mkdir()
    before = b'{ "hooks": { }, "odd" :1}'  # which no edit would bring back
    edit.path.write_bytes(before)
    edit.path.chmod(0o644)
    installs(tmp_path / "home", [edit])
    assert mode_of(edit.path) == 0o600
    uninstalls(tmp_path / "home", [edit])
    assert edit.path.read_bytes() == before
    assert mode_of(edit.path) == 0o644
    assert [each.name for each in edit.path.parent.iterdir()] == ["settings.json"]
    assert not (tmp_path / "home" / "installed").exists()


def test_where_there_was_no_file_there_is_none_again(tmp_path: Path) -> None:
    edit = an_edit(tmp_path / "config" / "claude")
    installs(tmp_path / "home", [edit])
    assert edit.path.exists()
    uninstalls(tmp_path / "home", [edit])
    assert not (tmp_path / "config").exists()


def test_a_folder_that_somebody_uses_by_now_stays(tmp_path: Path) -> None:
    edit = an_edit(tmp_path / "config" / "claude")
    installs(tmp_path / "home", [edit])
    (edit.path.parent / "history.jsonl").write_text("{}")
    uninstalls(tmp_path / "home", [edit])
    assert [each.name for each in edit.path.parent.iterdir()] == ["history.jsonl"]


def test_a_file_that_was_changed_since_keeps_the_change(tmp_path: Path) -> None:
    edit = an_edit(tmp_path / "claude")
    edit.path.parent.mkdir()
    edit.path.write_text('{\n  "model": "opus"\n}\n')
    installs(tmp_path / "home", [edit])
    edit.path.write_text(edit.path.read_text().replace('"opus"', '"sonnet"'))
    uninstalls(tmp_path / "home", [edit])
    assert edit.path.read_text() == '{\n  "model": "sonnet"\n}\n'


def test_an_empty_file_comes_back_but_nothing_that_its_owner_took_out(tmp_path: Path) -> None:
    for before, after in ((b"{}", b"{}"), (b'{"model": "opus"}', None)):
        edit = an_edit(tmp_path / "claude")
        edit.path.parent.mkdir(exist_ok=True)
        edit.path.write_bytes(before)
        installs(tmp_path / "home", [edit])
        settings = json.loads(edit.path.read_bytes())
        settings.pop("model", None)
        edit.path.write_text(json.dumps(settings, indent=3))
        uninstalls(tmp_path / "home", [edit])
        assert (edit.path.read_bytes() if edit.path.exists() else None) == after


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    edit = an_edit(tmp_path / "claude")
    edit.path.parent.mkdir()
    real = tmp_path / "dotfiles.json"
    real.write_text("{}\n")
    edit.path.symlink_to(real)
    installs(tmp_path / "home", [edit])
    assert edit.path.is_symlink()
    assert b"/attach/claude/hook" in real.read_bytes()
    uninstalls(tmp_path / "home", [edit])
    assert edit.path.is_symlink()
    assert real.read_text() == "{}\n"


def test_installing_again_remembers_the_first_file(tmp_path: Path) -> None:
    edit = an_edit(tmp_path / "claude")
    edit.path.parent.mkdir()
    edit.path.write_text("{ }")
    installs(tmp_path / "home", [edit])
    installs(tmp_path / "home", [an_edit(tmp_path / "claude", token="hr_secret-two")])
    assert b"hr_secret-two" in edit.path.read_bytes()
    uninstalls(tmp_path / "home", [edit])
    assert edit.path.read_text() == "{ }"


def test_both_folders_are_cleaned_where_it_was_installed_into_two(tmp_path: Path) -> None:
    first, second = an_edit(tmp_path / "one"), an_edit(tmp_path / "two")
    installs(tmp_path / "home", [first])
    installs(tmp_path / "home", [second])
    first.path.write_text(first.path.read_text().replace('"hooks": {', '"a": 1, "hooks": {', 1))
    uninstalls(tmp_path / "home", [second])
    assert json.loads(first.path.read_text()) == {"a": 1}
    assert not second.path.exists()


class Crashed(Exception):
    pass


@contextmanager
def crashing_after(monkeypatch: pytest.MonkeyPatch, *, renames: int) -> Iterator[None]:
    """The process ends after so many files got their name."""
    left = renames
    really = Path.replace

    def rename(self: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left < 0:
            raise Crashed
        return really(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", rename)
        with pytest.raises(Crashed):
            yield


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_crash_between_two_files_is_finished_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    two = [an_edit(tmp_path / "one"), an_edit(tmp_path / "two")]
    for edit in two:
        edit.path.parent.mkdir()
        edit.path.write_text("{  }")
    with crashing_after(monkeypatch, renames=renames):
        installs(tmp_path / "home", two)
    installs(tmp_path / "home", two)
    assert all(b"/attach/claude/" in edit.path.read_bytes() for edit in two)
    with crashing_after(monkeypatch, renames=min(renames, 1)):
        uninstalls(tmp_path / "home", two)
    uninstalls(tmp_path / "home", two)
    assert [edit.path.read_text() for edit in two] == ["{  }", "{  }"]


def test_a_file_that_changes_between_plan_and_writing_is_left_alone(tmp_path: Path) -> None:
    edit = an_edit(tmp_path)
    changes = plan([edit])
    edit.path.write_text('{"new": 1}')
    with pytest.raises(SettingsError, match="meanwhile"):
        install(changes, home=tmp_path / "home", agent="claude", url=URL, token="t")
    assert edit.path.read_text() == '{"new": 1}'
    assert Installed.read(tmp_path / "home", "claude") is None


def test_one_file_that_cannot_be_edited_keeps_all_from_being_written(tmp_path: Path) -> None:
    good, bad = an_edit(tmp_path / "good"), an_edit(tmp_path / "bad")
    bad.path.parent.mkdir()
    bad.path.write_text("{")
    with pytest.raises(SettingsError):
        installs(tmp_path / "home", [good, bad])
    assert not good.path.exists()
    assert bad.path.read_text() == "{"


def test_nothing_secret_and_nothing_hidden_is_shown(tmp_path: Path) -> None:
    edit = an_edit(tmp_path, token="hr_0123456789abcdef")
    edit.path.write_text('{\n "ANTHROPIC_API_KEY": "sk-ant-very-secret",\n "a": "\u202e"\n}')
    [change] = plan([edit])
    shown = diff(change)
    assert "/attach/claude/hook" in shown
    assert "hr_0123456789abcdef" not in shown
    assert "sk-ant-very-secret" not in shown
    assert "\u202e" not in shown
    assert diff(replace(change, then=change.now)) == ""


def test_what_was_there_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    installs(tmp_path / "home", [an_edit(tmp_path)])
    assert mode_of(tmp_path / "home" / "installed" / "claude.json") == 0o600


def test_a_record_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "claude.json").write_text("{")
    with pytest.raises(SettingsError, match="cannot be read"):
        Installed.read(tmp_path, "claude")


# The commands -----------------------------------------------------------------------------------------------


class ClaudeUser(Person):
    """Somebody who has Claude Code."""

    def __init__(self, folder: Path) -> None:
        self.settings = folder / "claude" / "settings.json"
        self.settings.parent.mkdir()
        super().__init__(folder, CLAUDE_CONFIG_DIR=str(self.settings.parent))

    def token(self) -> str:
        [token] = set(re.findall(r"Bearer (hr_[\w-]+)", self.settings.read_text()))
        return str(token)


@pytest.fixture
def person(tmp_path: Path) -> ClaudeUser:
    return ClaudeUser(tmp_path)


async def test_install_makes_a_token_that_can_ask_and_nothing_else(person: ClaudeUser) -> None:
    person.settings.write_text(A_FILE)
    async with serving(person.home) as desk:
        done = await person.run("install", "claude", "--yes")
        assert done.code == 0, done.err
        assert "handraise uninstall claude" in done.out
        assert person.token() not in done.out
        [(name, scopes)] = (await tokens_of(desk)).items()
        assert (name.split("-")[0], scopes) == ("claude", ["ask"])
        asking = await desk.client(person.token())
        answered = await asking.post("/v1/asks/x/answer", json={"answers": [["yes"]]})
        assert answered.status_code == 403

        removed = await person.run("uninstall", "claude")
        assert removed.code == 0, removed.err
        assert person.settings.read_text() == A_FILE
        assert await tokens_of(desk) == {}


async def test_installing_again_revokes_the_token_before(person: ClaudeUser) -> None:
    async with serving(person.home) as desk:
        assert (await person.run("install", "claude", "--yes")).code == 0
        first = person.token()
        assert (await person.run("install", "claude", "--yes", "--json")).code == 0
        assert person.token() != first
        assert len(await tokens_of(desk)) == 1
        assert (await (await desk.client(first)).get("/v1/asks")).status_code == 401
        assert (await person.run("uninstall", "claude")).code == 0
    assert not person.settings.exists()


async def test_without_a_desk_nothing_is_installed(person: ClaudeUser) -> None:
    done = await person.run("install", "claude", "--yes", "--url", "http://127.0.0.1:9")
    assert done.code == 5
    assert not person.settings.exists()


async def test_a_dry_run_shows_the_change_and_makes_none(person: ClaudeUser) -> None:
    done = await person.run("install", "claude", "--dry-run")
    assert done.code == 0
    assert "+++ " in done.out
    assert "would be created" in done.out
    as_json = json.loads((await person.run("install", "claude", "--dry-run", "--json")).out)
    assert as_json["files"] == [{"path": str(person.settings), "change": "created"}]
    assert as_json["done"] is False
    assert not person.settings.exists()


async def test_it_asks_on_a_terminal_and_refuses_elsewhere(person: ClaudeUser) -> None:
    async with serving(person.home) as desk:
        refused = await person.run("install", "claude")
        assert refused.code == 2
        assert "--yes" in refused.err
        for reply, code in ((b"n\n", 1), (b"y\n", 0)):
            ours, theirs = pty.openpty()
            os.write(ours, reply)
            done = await person.run("install", "claude", stdin=theirs, stdout=theirs)
            assert done.code == code, done.err
            assert person.settings.exists() == (code == 0)
            os.close(ours)
            os.close(theirs)
        assert len(await tokens_of(desk)) == 1


async def test_a_token_is_not_written_into_dotfiles_before_that_is_said(person: ClaudeUser, tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles"
    (dotfiles / ".git").mkdir(parents=True)
    (dotfiles / "settings.json").write_text("{}")
    person.settings.symlink_to(dotfiles / "settings.json")
    async with serving(person.home) as desk:
        for words in (("--dry-run",), (), ("--yes", "--json")):
            done = await person.run("install", "claude", *words)
            assert done.code == (0 if words else 2)
            assert f"{person.settings} is a link, so the token is written to {dotfiles / 'settings.json'}" in done.err
            assert f"in the git work tree {dotfiles}" in done.err
            assert (person.settings.read_text() == "{}") == ("--yes" not in words)
        assert json.loads(done.out)["files"][0]["real"] == str(dotfiles / "settings.json")
        assert len(await tokens_of(desk)) == 1
        assert (await person.run("uninstall", "claude")).code == 0
    assert person.settings.is_symlink() and person.settings.read_text() == "{}"


def test_a_folder_that_is_a_link_and_a_work_tree_without_one_are_said_too(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere"
    real.mkdir()
    (tmp_path / "claude").symlink_to(real)
    [change] = plan([an_edit(tmp_path / "claude")])
    assert elsewhere(change) == f"{tmp_path / 'claude'} is a link, so the token is written to {real / 'settings.json'}"
    [plain] = plan([an_edit(tmp_path / "plain")])
    assert elsewhere(plain) is None
    (tmp_path / ".git").write_text("gitdir: /nowhere")
    [tracked] = plan([an_edit(tmp_path / "plain")])
    assert f"lies in the git work tree {tmp_path}" in str(elsewhere(tracked))


def test_a_link_that_moves_between_plan_and_writing_is_not_followed(tmp_path: Path) -> None:
    edit = an_edit(tmp_path / "claude")
    edit.path.parent.mkdir()
    for name in ("one", "two"):
        (tmp_path / name).write_text("{}")
    edit.path.symlink_to(tmp_path / "one")
    changes = plan([edit])
    edit.path.unlink()
    edit.path.symlink_to(tmp_path / "two")
    with pytest.raises(SettingsError, match="meanwhile"):
        install(changes, home=tmp_path / "home", agent="claude", url=URL, token="claude-here")
    assert (tmp_path / "two").read_text() == "{}"


async def test_a_broken_file_is_said_and_stays(person: ClaudeUser) -> None:
    person.settings.write_text("{")
    async with serving(person.home) as desk:
        done = await person.run("install", "claude", "--yes")
        assert done.code == 2
        assert "is not JSON" in done.err
        assert await tokens_of(desk) == {}
    assert person.settings.read_text() == "{"


async def test_uninstall_says_what_it_could_not_do(person: ClaudeUser) -> None:
    nothing = await person.run("uninstall", "claude")
    assert (nothing.code, nothing.out) == (0, "nothing of handraise is installed for claude\n")
    async with serving(person.home):
        assert (await person.run("install", "claude", "--yes")).code == 0
    done = await person.run("uninstall", "claude")
    assert done.code == 0
    assert "stays" in done.err
    assert "handraise token revoke claude-" in done.err
    assert not person.settings.exists()


async def test_hooks_are_taken_out_also_where_the_record_was_lost(person: ClaudeUser) -> None:
    person.settings.write_bytes(an_edit().add(A_FILE.encode()))
    dry = await person.run("uninstall", "claude", "--dry-run")
    assert "would be changed" in dry.out
    done = await person.run("uninstall", "claude", "--url", "http://127.0.0.1:9")
    assert done.code == 0
    assert person.settings.read_text() == A_FILE


async def test_an_agent_with_nothing_to_install_is_said(person: ClaudeUser) -> None:
    done = await person.run("install", "scripted", "--yes")
    assert done.code == 2
    assert "nothing to install" in done.err
    assert "claude" in (await person.run("install", "nobody", "--yes")).err
