"""Settings from the environment, the user's file and the project's, and what is said where one cannot be used."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from handraise.app import bind, open_store, run_desk
from handraise.asks import AutoRule, Handling
from handraise.client import addresses, secret
from handraise.config import DEFAULT_URL, ChannelTable, Settings, load
from handraise.config.tables import (
    AgentTable,
    ChatTable,
    DeskTable,
    ModelTable,
    PersonTable,
    TerminalTable,
    settings_of,
)
from handraise.errors import SettingsError
from handraise.people import Person
from handraise.transports.files import find_project
from tests.helpers.serving import serving
from tests.helpers.trusting import trust_project

DEAD = 2**22 + 1  # beyond the largest process id that Linux gives


class Machine:
    """A folder with a home, a user's config and a project in it."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.user = root / "config" / "handraise" / "config.toml"
        self.project = root / "work" / "shop" / "handraise.toml"
        self.deep = self.project.parent / "src" / "deep"
        self.deep.mkdir(parents=True)
        self.user.parent.mkdir(parents=True)
        self.environ = {"HANDRAISE_HOME": str(self.home), "XDG_CONFIG_HOME": str(root / "config")}

    def trust(self) -> None:
        trust_project(self.deep, home=self.home, config=self.user.parents[1])

    def load(self, *, cwd: Path | None = None, **environ: str) -> Settings:
        return load({**self.environ, **environ}, cwd=cwd or self.deep)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_any_setting_a_person_decides_without_limit(machine: Machine) -> None:
    settings = machine.load()
    database = f"sqlite:///{machine.home / 'desk.db'}"
    assert settings == Settings(home=machine.home, database=database, user=machine.user)
    assert settings.handling == Handling()
    assert (settings.host, settings.url, settings.token) == ("127.0.0.1", None, None)


def test_the_environment_says_where_and_with_what(machine: Machine) -> None:
    settings = machine.load(
        HANDRAISE_URL="http://desk.example:4263/",
        HANDRAISE_TOKEN="hr_1",
        HANDRAISE_DATABASE="sqlite:////srv/desk.db",
    )
    assert (settings.url, settings.token) == ("http://desk.example:4263", "hr_1")
    assert settings.database == "sqlite:////srv/desk.db"
    empty = machine.load(HANDRAISE_URL="", HANDRAISE_TOKEN="", HANDRAISE_DATABASE="")
    assert empty == machine.load()


def test_a_home_may_be_relative_or_begin_with_a_tilde(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(machine.deep)
    settings = machine.load(HANDRAISE_HOME="state")
    assert settings.home == machine.deep / "state"
    assert settings.database == f"sqlite:///{machine.deep / 'state' / 'desk.db'}"
    monkeypatch.setenv("HOME", str(machine.home))
    assert machine.load(HANDRAISE_HOME="~/desk").home == machine.home / "desk"


def test_the_users_file_is_read_and_the_projects_is_stronger(machine: Machine) -> None:
    machine.user.write_text('[policy]\nquestion_policy = "reject"\nquestion_timeout = 60\n[desk]\nhost = "::1"\n')
    assert machine.load().handling == Handling(question_policy="reject", question_timeout=60)
    assert machine.load().project is None
    machine.project.write_text('[policy]\nquestion_policy = "forward"\non_timeout = "reject"\n')
    machine.trust()
    settings = machine.load()
    assert settings.handling == Handling(question_policy="forward", question_timeout=60, on_timeout="reject")
    assert (settings.host, settings.project) == ("::1", machine.project)


def test_whether_raw_messages_are_kept_is_for_ones_own_file_to_say(machine: Machine) -> None:
    assert machine.load().inspect
    machine.user.write_text("[desk]\ninspect = false\n")
    assert not machine.load().inspect
    machine.user.write_text('[desk]\ninspect = "no"\n')
    with pytest.raises(SettingsError, match="inspect is true or false"):
        machine.load()
    machine.user.unlink()
    machine.project.write_text("[desk]\ninspect = true\n")
    with pytest.raises(SettingsError, match="belongs in your own"):
        machine.load()


def test_a_project_is_found_upwards_and_the_nearest_counts(machine: Machine) -> None:
    assert find_project(machine.deep) is None
    machine.project.write_text("")
    assert find_project(machine.deep) == machine.project
    assert find_project(machine.project.parent) == machine.project
    assert find_project(machine.project.parent.parent) is None
    nearer = machine.deep.parent / "handraise.toml"
    nearer.write_text('[policy]\npermission_policy = "reject"\n')
    assert find_project(machine.deep) == nearer
    assert machine.load().handling.permission_policy == "reject"
    (machine.deep / "handraise.toml").mkdir()  # a folder of that name is not it
    assert find_project(machine.deep) == nearer


def test_rules_are_written_in_a_file(machine: Machine) -> None:
    machine.project.write_text(
        """
[[policy.question_policy.auto]]
match = "re:(?i)database"
answers = ["SQLite"]

[[policy.question_policy.auto]]
match = "colour"
answers = ["red", "blue"]

[agents.claude]
command = ["claude", "--verbose"]
"""
    )
    machine.trust()
    settings = machine.load()
    assert settings.handling.question_policy == (
        AutoRule(match="re:(?i)database", answers=("SQLite",)),
        AutoRule(match="colour", answers=("red", "blue")),
    )


def test_the_mode_of_the_terminal_is_yours_to_set(machine: Machine) -> None:
    assert not machine.load().full
    machine.user.write_text("[terminal]\nfull = true\n")
    assert machine.load().full
    machine.user.write_text('[terminal]\nfull = "yes"\n')
    with pytest.raises(SettingsError, match="full is true or false"):
        machine.load()
    machine.user.write_text("")
    machine.project.write_text("[terminal]\nfull = true\n")
    with pytest.raises(SettingsError, match=r"belongs in your own config\.toml"):
        machine.load()


def test_the_language_of_the_terminal_is_yours_to_set(machine: Machine) -> None:
    assert machine.load().language is None
    machine.user.write_text('[terminal]\nlanguage = "de"\n')
    assert machine.load().language == "de"
    for wrong in ('"eo"', "1", '["de"]'):
        machine.user.write_text(f"[terminal]\nlanguage = {wrong}\n")
        with pytest.raises(SettingsError, match="language is one of en, de"):
            machine.load()


def test_only_your_own_file_opens_the_desk_to_others(machine: Machine) -> None:
    machine.user.write_text('[desk]\nallowed_hosts = ["desk.example"]\n')
    assert machine.load().allowed_hosts == ("desk.example",)
    machine.project.write_text('[desk]\nhost = "0.0.0.0"\n')
    with pytest.raises(SettingsError, match=r"it belongs in your own config\.toml"):
        machine.load()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[policy\n", "cannot be read"),
        ("\x00", "cannot be read"),
        ("[polcy]\n", "unknown table [polcy]"),
        ("policy = 1\n", "policy is a table; write [policy]"),
        ('[policy]\nquestion_polcy = "reject"\n', "[policy] does not know 'question_polcy'; it knows on_timeout"),
        ('[policy]\nquestion_policy = "guess"\n', "[policy] question_policy"),
        ('[policy]\npermission_policy = "accept-first"\n', "[policy] permission_policy"),
        ('[policy]\nquestion_timeout = "60"\n', "[policy] question_timeout"),
        ("[policy]\nquestion_timeout = -1\n", "[policy] question_timeout"),
        ("[policy]\nquestion_timeout = inf\n", "[policy] question_timeout"),
        ('[policy]\non_timeout = "forward"\n', "[policy] on_timeout"),
        ('[[policy.question_policy.auto]]\nmatch = "x"\n', "[policy] question_policy"),
        ('[[policy.question_policy.auto]]\nmatch = "re:("\nanswers = ["x"]\n', "[policy] the rule 're:('"),
        ("[desk]\nport = 1\n", "[desk] does not know 'port'; it knows address, allowed_hosts, host"),
        ("[desk]\nhost = 1\n", "[desk] host is a text"),
        ('[desk]\nallowed_hosts = "desk.example"\n', "[desk] allowed_hosts is a list of texts"),
        ("[desk]\nallowed_hosts = [1]\n", "[desk] allowed_hosts is a list of texts"),
        ("[desk]\naddress = 1\n", "[desk] address is where people open it, as in https://desk.example.com"),
        ('[desk]\naddress = ""\n', "[desk] address is where people open it"),
        ('[desk]\naddress = "desk.example.com"\n', "[desk] address is where people open it"),
        ('[desk]\naddress = "https://a.example, https://b.example"\n', "[desk] address is where people open it"),
    ],
)
@pytest.mark.parametrize("where", ["user", "project"])
def test_a_setting_that_cannot_be_used_is_named_with_its_file(
    machine: Machine, where: str, text: str, says: str
) -> None:
    file: Path = getattr(machine, where)
    file.write_text(text)
    with pytest.raises(SettingsError) as wrong:
        machine.load()
    assert str(wrong.value).startswith(str(file))
    assert says in str(wrong.value)


# Channels and people ----------------------------------------------------------------------------------------


def test_channels_people_and_the_address_for_them_are_read(machine: Machine) -> None:
    machine.user.write_text(
        """
[desk]
address = "https://desk.example.com/"

[channels.linear]
agent_token_env = "LINEAR_TOKEN"

[channels.team-2]
kind = "chat"
room = "ops"

[people.ana]
linear = "ana@example.com"
team-2 = "@ana"
notify = ["ntfys://ntfy.sh/ana"]
may = ["questions", "permissions", "risky"]

[people."Bob B."]
linear = "bob@example.com"
"""
    )
    settings = machine.load()
    assert settings.address == "https://desk.example.com"
    assert settings.channels == {
        "linear": ChannelTable(kind="linear", table={"agent_token_env": "LINEAR_TOKEN"}),
        "team-2": ChannelTable(kind="chat", table={"room": "ops"}),
    }
    assert settings.people == {
        "ana": Person(
            name="ana",
            known_as={"linear": "ana@example.com", "team-2": "@ana"},
            notify=("ntfys://ntfy.sh/ana",),
            may=("questions", "permissions", "risky"),
        ),
        "Bob B.": Person(
            name="Bob B.", known_as={"linear": "bob@example.com"}, may=("questions", "permissions", "start")
        ),
    }
    machine.project.write_text('[policy]\nquestion_policy = "reject"\n')
    with_project = machine.load()
    assert (with_project.address, with_project.channels, with_project.people) == (
        settings.address,
        settings.channels,
        settings.people,
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("channels = 1\n", "channels is a table; write [channels]"),
        ("[channels]\nlinear = 1\n", "channels.linear is a table; write [channels.linear]"),
        ("[channels.linear]\nkind = 1\n", "[channels.linear] a channel is called by letters"),
        ('[channels.linear]\nkind = ""\n', "its kind is a text"),
        ('[channels."a b"]\n', "[channels.a b] a channel is called by letters, digits, - and _"),
        ('[channels."a/b"]\n', "a channel is called by letters"),
        (f"[channels.{'x' * 61}]\n", "a channel is called by letters"),
        ("people = []\n", "people is a table; write [people]"),
        ("[people]\nana = 1\n", "people.ana is a table; write [people.ana]"),
        ('[people.ana]\nmay = "questions"\n', "[people.ana] may is a list of questions, permissions, risky, start"),
        ('[people.ana]\nmay = ["everything"]\n', "[people.ana] may is a list of questions"),
        ('[people.ana]\nnotify = "ntfys://ntfy.sh/ana"\n', "[people.ana] notify is a list of addresses"),
        ("[people.ana]\nlinear = 1\n", "[people.ana] says how each channel knows this person"),
        ('[people.ana]\nlinear = ""\n', "[people.ana] says how each channel knows this person"),
        ("[people.agent]\n", "[people.agent] nobody is called that"),
        ('[people."policy:timeout"]\n', "[people.policy:timeout] nobody is called that"),
        (f"[people.{'x' * 1000}]\n", "nobody is called that"),
        ('[people.ana]\nlinear = "a@x.org"\n[people.bob]\nlinear = "A@X.org"\n', "two of them are the same in linear"),
    ],
)
def test_channels_and_people_that_cannot_be_used_are_named(machine: Machine, text: str, says: str) -> None:
    machine.user.write_text(text)
    with pytest.raises(SettingsError) as wrong:
        machine.load()
    assert str(wrong.value).startswith(str(machine.user))
    assert says in str(wrong.value)


@pytest.mark.parametrize(
    "text",
    [
        '[channels.linear]\nkind = "linear"\n',
        '[people.eve]\nlinear = "eve@example.com"\nmay = ["risky"]\n',
        '[desk]\naddress = "https://evil.example.com"\n',
    ],
)
def test_a_project_says_nothing_about_who_is_told_and_who_may_answer(machine: Machine, text: str) -> None:
    machine.project.write_text(text)
    with pytest.raises(SettingsError, match=r"in your own config\.toml"):
        machine.load()


def test_a_file_that_is_no_text_is_named(machine: Machine) -> None:
    machine.project.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"handraise\.toml cannot be read"):
        machine.load()


@pytest.mark.parametrize("url", ["127.0.0.1:4263", "ftp://desk.example", "desk", "//desk"])
def test_an_address_that_is_none_is_named(machine: Machine, url: str) -> None:
    with pytest.raises(SettingsError, match=r"HANDRAISE_URL .* looks like http://"):
        machine.load(HANDRAISE_URL=url)


# Finding the desk -------------------------------------------------------------------------------------------


def running(home: Path, *, url: str, pid: int) -> None:
    home.mkdir(exist_ok=True)
    (home / "desk.json").write_text(json.dumps({"url": url, "pid": pid}))


def test_a_desk_is_looked_up_in_order(machine: Machine) -> None:
    settings = machine.load()
    assert addresses(settings) == (DEFAULT_URL,)
    running(machine.home, url="http://127.0.0.1:5000", pid=os.getpid())
    assert addresses(settings) == ("http://127.0.0.1:5000",)
    named = machine.load(HANDRAISE_URL="http://desk.example")
    assert addresses(named) == ("http://desk.example",)
    assert addresses(named, url="http://other.example/") == ("http://other.example",)


def test_what_a_killed_desk_left_behind_is_not_believed(machine: Machine) -> None:
    settings = machine.load()
    running(machine.home, url="http://127.0.0.1:5000", pid=DEAD)
    assert settings.running_desk() is None
    assert addresses(settings) == (DEFAULT_URL,)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "{}", '{"url": "http://x"}', '{"url": "http://x", "pid": "y"}'])
def test_a_broken_desk_file_is_as_good_as_none(machine: Machine, text: str) -> None:
    machine.home.mkdir()
    (machine.home / "desk.json").write_text(text)
    assert machine.load().running_desk() is None


def test_the_token_in_the_home_is_for_its_own_desk(machine: Machine) -> None:
    settings = machine.load()
    assert secret(settings, url=DEFAULT_URL) is None
    running(machine.home, url="http://127.0.0.1:5000", pid=os.getpid())
    assert secret(settings, url="http://127.0.0.1:5000") is None  # there is no token yet
    settings.token_file.write_text("hr_home\n")
    assert secret(settings, url="http://127.0.0.1:5000") == "hr_home"
    assert secret(settings, url=DEFAULT_URL) is None
    assert secret(machine.load(HANDRAISE_TOKEN="hr_given"), url="http://desk.example") == "hr_given"


# What is made of them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["mysql://x", "desk.db", "sqlite:desk.db"])
async def test_a_database_we_cannot_use_is_named(database: str) -> None:
    with pytest.raises(SettingsError, match="HANDRAISE_DATABASE"):
        await open_store(database)


async def test_a_database_in_memory_and_one_in_a_new_folder(tmp_path: Path) -> None:
    await (await open_store("sqlite:///:memory:")).close()
    await (await open_store(f"sqlite:///{tmp_path}/new/folder/desk.db")).close()
    assert (tmp_path / "new" / "folder" / "desk.db").is_file()


@pytest.mark.skipif(sys.platform == "win32", reason="names of files")
async def test_a_home_may_have_any_name(tmp_path: Path) -> None:
    home = tmp_path / "a b#c?d%20é"
    async with serving(home) as desk:
        await desk.ask(id="q1")
    assert (home / "desk.db").is_file()
    async with serving(home) as desk:
        assert (await desk.get("q1"))["state"] == "asked"


async def test_a_port_that_is_taken_says_what_to_do(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        port = int(desk.url.rpartition(":")[2])
        with pytest.raises(SettingsError, match=f"port {port} on 127.0.0.1 .* --port"):
            bind("127.0.0.1", port)


async def test_what_the_body_of_a_running_desk_raises_comes_out_as_it_is(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database="sqlite:///:memory:")
    with pytest.raises(SettingsError, match="mine"):
        async with run_desk(settings, listener=bind("127.0.0.1", 0)):
            raise SettingsError("mine")
    assert not settings.desk_file.exists()


# Every setting of a table -----------------------------------------------------------------------------------

TABLES = {
    "desk": DeskTable,
    "terminal": TerminalTable,
    "agents.a": AgentTable,
    "people.a": PersonTable,
    "models.a": ModelTable,
    "chat": ChatTable,
}
# No setting takes one of these: a date would be a text, were it not for us.
NEVER = ["2026-01-01", "[{}]", "nan", "-inf", "[[1]]", "{ a = 1 }", "07:00:00"]


@pytest.mark.parametrize("value", NEVER)
@pytest.mark.parametrize(
    ("table", "name"), [(at, name) for at, kind in TABLES.items() for name, _ in settings_of(kind)]
)
def test_a_value_of_the_wrong_kind_is_named_with_what_the_setting_takes(
    machine: Machine, table: str, name: str, value: str
) -> None:
    others = "".join(f'{other} = "{text}"\n' for other, text in (("api", "openai"), ("model", "m")) if other != name)
    machine.user.write_text(f"[{table}]\n{others if table == 'models.a' else ''}{name} = {value}\n")
    takes = dict(settings_of(TABLES[table]))[name].takes
    with pytest.raises(SettingsError) as wrong:
        machine.load()
    assert str(wrong.value) == f"{machine.user}: [{table}] {name} is {takes}"


def test_a_setting_that_has_to_be_there_is_named(machine: Machine) -> None:
    machine.user.write_text('[models.a]\napi = "openai"\n')
    with pytest.raises(SettingsError, match=r"\[models\.a\] model is missing; it is a text, as its server calls it"):
        machine.load()
