"""Where rules come from, what they decide at the desk, and the programs that some leave it to."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handraise.asks import Answer, Ask, Handling, Origin, Scope
from handraise.broker import Broker
from handraise.cli.commands.rules import REJECTED, WAITS
from handraise.errors import RuleNotFound, SettingsError
from handraise.rules.book import Rulebook
from handraise.stores import Store
from handraise.tables import audit
from handraise.testing import FakeClock, a_permission, an_ask
from handraise.trust import Trust
from tests.cli.test_cli import Done, Home
from tests.helpers.serving import Served, a_client, a_permission_body, refused, serving, told
from tests.helpers.trusting import trust_project

ALLOW = '[[rules]]\ntool = "shell"\nmatches = { command = "git status*" }\naction = "allow"\n'
REJECT = '[[rules]]\ntool = "shell"\nmatches = { command = "git push*" }\naction = "reject"\nmessage = "Ana pushes"\n'


class Place:
    """A machine with a project, a user's config and a broker that knows both."""

    def __init__(self, root: Path, store: Store, clock: FakeClock) -> None:
        self.project = root / "shop" / "handraise.toml"
        self.cwd = root / "shop" / "src"
        self.cwd.mkdir(parents=True)
        self.user = root / "config.toml"
        self.home = root / "home"
        self.book = Rulebook(store, user=self.user, trust=Trust(self.home / "trusted.json"))
        self.broker = Broker(store, clock=clock, rules=self.book)

    def wanting(self, command: str, *, cwd: str | None = None, patterns: Sequence[str] = (), **changes: Any) -> Ask:
        ask = a_permission(command=command, **{"id": command, **changes})
        assert ask.permission is not None
        return replace(
            ask,
            permission=replace(ask.permission, extra={"patterns": list(patterns)}),
            origin=replace(ask.origin, cwd=cwd or str(self.cwd)),
        )

    async def decided(self, command: str, *, handling: Handling | None = None, **changes: Any) -> str:
        opened = await self.broker.open(self.wanting(command, **changes), handling=handling)
        return opened.stored.state

    def trust(self) -> None:
        trust_project(self.project.parent, home=self.home)

    def program(self, script: str) -> str:
        file = self.user.parent / "decide"
        file.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{script}\n")
        file.chmod(0o755)
        return str(file)

    def delegate(self, script: str, **more: Any) -> None:
        extra = "".join(f"{name} = {json.dumps(value)}\n" for name, value in more.items())
        program = json.dumps(self.program(script))
        self.user.write_text(f'[[rules]]\ntool = "shell"\naction = "delegate"\nto = {program}\n{extra}')


@pytest.fixture
async def place(tmp_path: Path, store: Store, fake_clock: FakeClock) -> AsyncIterator[Place]:
    found = Place(tmp_path, store, fake_clock)
    async with found.broker:
        yield found


# At the desk --------------------------------------------------------------------------------------------------------


async def test_a_rule_answers_like_a_person_and_the_audit_says_which(place: Place) -> None:
    place.user.write_text(ALLOW + REJECT)
    allowed = (await place.broker.open(place.wanting("git status"))).stored.settled()
    assert allowed is not None
    assert (allowed.reply, allowed.by, allowed.via) == ("once", "policy:rule", "policy")
    refused_ = (await place.broker.open(place.wanting("git push"))).stored.settled()
    assert refused_ is not None
    assert (refused_.reply, refused_.rejected, refused_.reason) == ("reject", True, "Ana pushes")
    assert await place.decided("rm -rf /") == "asked"
    lines, _ = await audit.lines(place.broker.store)
    assert [line["by"] for line in lines] == ["policy:rule", "policy:rule"]
    assert f"{place.user}:1" in lines[0]["why"][0]
    assert f"{place.user}:5" in lines[1]["why"][0]


async def test_rules_never_answer_questions(place: Place) -> None:
    place.user.write_text('[[rules]]\ntool = "*"\naction = "reject"\n')
    assert (await place.broker.open(an_ask(cwd=str(place.cwd)))).stored.state == "asked"


async def test_what_was_decided_stands_when_it_is_asked_again(place: Place) -> None:
    place.user.write_text(ALLOW)
    ask = place.wanting("git status")
    first = (await place.broker.open(ask)).stored
    place.user.write_text('[[rules]]\ntool = "*"\naction = "reject"\n')
    assert (await place.broker.open(ask)).stored.answer == first.answer
    assert await place.decided("git status -s") == "rejected"


async def test_a_rule_comes_before_the_policy_and_asking_does_not_overrule_it(place: Place) -> None:
    place.user.write_text(ALLOW + '[[rules]]\ntool = "shell"\nmatches = { command = "make*" }\naction = "ask"\n')
    nobody = Handling(permission_policy="reject")
    assert await place.decided("git status", handling=nobody) == "answered"
    assert await place.decided("make", handling=nobody) == "rejected"
    assert await place.decided("make test") == "asked"


async def test_what_a_person_granted_for_the_session_does_not_pass_a_rule_that_rejects(place: Place) -> None:
    kept = (Scope(id="session", patterns=("git *",), by_desk=True),)

    def wanting(command: str, id: str) -> Ask:
        return place.wanting(command, id=id, scopes=kept, patterns=[command])

    await place.broker.open(wanting("git fetch", "1"))
    await place.broker.answer("1", Answer(reply="always", by="ana", via="cli"))
    assert (await place.broker.open(wanting("git fetch", "2"))).stored.state == "answered"
    place.user.write_text(REJECT)
    assert (await place.broker.open(wanting("git push", "3"))).stored.state == "rejected"
    assert (await place.broker.open(wanting("git fetch", "4"))).stored.state == "answered"


# Files --------------------------------------------------------------------------------------------------------------


async def test_a_project_may_forbid_at_once_and_allow_once_it_is_trusted(place: Place) -> None:
    place.project.write_text(ALLOW + REJECT)
    assert await place.decided("git push") == "rejected"
    assert await place.decided("git status") == "asked"
    place.trust()
    assert await place.decided("git status -s") == "answered"
    assert await place.decided("git status -b", cwd=str(place.project.parent.parent)) == "asked"
    assert await place.decided("git status -v", machine="elsewhere") == "asked"


async def test_a_file_that_was_changed_is_trusted_no_more(place: Place) -> None:
    place.project.write_text(ALLOW)
    place.trust()
    place.project.write_text(ALLOW + '[[rules]]\ntool = "*"\naction = "allow"\n')
    assert await place.decided("git status") == "asked"
    found = await place.book.holding(Origin(agent="any", session="s", cwd=str(place.cwd)))
    assert [str(rule) for rule in found.untrusted] == ["shell, command = 'git status*': allow", "*: allow"]
    assert found.problems == ("handraise.toml: its rules are not used until you trust them: handraise trust",)


async def test_who_is_trusted_is_written_for_its_owner_alone(place: Place) -> None:
    place.project.write_text(ALLOW)
    place.trust()
    file = place.user.parent / "home" / "trusted.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("[broken")
    assert await place.decided("git status") == "asked"


ASK = '[[rules]]\ntool = "*"\naction = "ask"\n'


async def test_a_trusted_project_speaks_before_the_user_and_both_before_the_desk(place: Place) -> None:
    await place.book.add({"tool": "*", "action": "allow"}, at=1, by="ana")
    assert await place.decided("git push 1") == "answered"
    place.user.write_text(REJECT)
    assert await place.decided("git push 2") == "rejected"
    place.project.write_text(ASK + ALLOW)
    place.trust()
    assert await place.decided("git push 3") == "asked"


async def test_a_project_that_nobody_trusts_takes_nothing_from_what_is_forbidden(place: Place) -> None:
    await place.book.add({"tool": "*", "action": "allow"}, at=1, by="ana")
    place.user.write_text(REJECT)
    place.project.write_text(ASK)
    assert await place.decided("git push 1") == "rejected"
    assert await place.decided("git status") == "asked"
    place.project.write_text(ASK + ALLOW)  # one that would need trust, too
    assert await place.decided("git push 2") == "rejected"


async def test_a_file_in_a_nearer_folder_lifts_no_ban_of_those_above(place: Place) -> None:
    await place.book.add({"tool": "*", "action": "allow"}, at=1, by="ana")
    place.project.write_text(REJECT + ALLOW)
    place.trust()
    (place.cwd / "handraise.toml").write_text("")
    assert await place.decided("git push 1") == "rejected"
    assert await place.decided("git status") == "answered"
    (place.cwd / "handraise.toml").write_text(ALLOW)
    trust_project(place.cwd, home=place.home)
    assert await place.decided("git push 2") == "rejected"
    (place.project.parent.parent / "link").symlink_to(place.cwd)  # also where the folder is reached by a link
    assert await place.decided("git push 3", cwd=str(place.project.parent.parent / "link")) == "rejected"


async def test_a_folder_too_deep_to_look_above_it_allows_nothing(place: Place) -> None:
    await place.book.add({"tool": "*", "action": "allow"}, at=1, by="ana")
    deep = place.cwd.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    assert await place.decided("git status", cwd=str(deep)) == "asked"


async def test_every_program_that_a_rule_names_has_to_allow_it(place: Place) -> None:
    """The strictest of them counts, whichever part of the line comes first."""
    yes, no = place.project.parent / "yes", place.project.parent / "no"
    for file, code in ((yes, 0), (no, 2)):
        file.write_text(f"#!/bin/sh\nexit {code}\n")
        file.chmod(0o755)
    for program, command in ((yes, "terraform *"), (no, "aws *")):
        given = {"tool": "shell", "matches": {"command": command}, "action": "delegate", "to": str(program)}
        await place.book.add(given, at=1, by="ana")
    assert await place.decided("terraform plan") == "answered"
    assert await place.decided("terraform plan; aws s3 rm x") == "rejected"
    assert await place.decided("aws s3 rm x; terraform plan") == "rejected"


@pytest.mark.parametrize("broken", ["[[rules]]\ntool = 1", "[[rules", b"\xff", "x = '" + "x" * (1 << 20) + "'"])
async def test_a_file_that_cannot_be_read_allows_nothing_and_lifts_no_ban(place: Place, broken: str | bytes) -> None:
    place.user.write_text(ALLOW + REJECT)
    place.project.write_bytes(broken if isinstance(broken, bytes) else broken.encode())
    assert await place.decided("git status") == "asked"
    assert await place.decided("git push") == "rejected"
    place.project.unlink()
    assert await place.decided("git status -s") == "answered"


async def test_a_working_folder_that_is_none_harms_nobody(place: Place) -> None:
    place.user.write_text(ALLOW)
    for cwd in ("relative", "/nonexistent/folder", "/\x00", "/" + "x" * 5000, "/dev/null/x"):
        assert await place.decided(f"git status {len(cwd)}", cwd=cwd, id=f"{len(cwd)}-{cwd[:1]}") == "answered"


# Kept at the desk ---------------------------------------------------------------------------------------------------


async def test_rules_are_kept_in_their_order(place: Place) -> None:
    for name in "ab":
        await place.book.add({"tool": name, "action": "ask"}, at=1, by="ana")
    first = await place.book.add({"tool": "c", "action": "ask"}, at=1, by="ana", first=True)
    assert [kept.rule.tool for kept in await place.book.kept()] == ["c", "a", "b"]
    assert (await place.book.remove(first.id)).rule.tool == "c"
    assert [kept.rule.tool for kept in await place.book.kept()] == ["a", "b"]
    with pytest.raises(RuleNotFound):
        await place.book.remove(first.id)
    with pytest.raises(SettingsError, match="action is one of"):
        await place.book.add({"tool": "c", "action": "permit"}, at=1, by="ana")


# Programs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ("sys.exit(0)", "answered"),
        ("sys.exit(1)", "asked"),
        ("print('not on Fridays', file=sys.stderr); sys.exit(2)", "rejected"),
        ("sys.exit(3)", "asked"),
        ("os.kill(os.getpid(), 9)", "asked"),
        ("raise SystemError", "asked"),
        ("sys.stderr.write('x' * 1_000_000); sys.exit(0)", "answered"),
        ("os.close(0); sys.exit(0)", "answered"),
        ("print('allow'); sys.exit(1)", "asked"),
    ],
)
async def test_a_program_decides_by_how_it_ends(place: Place, script: str, state: str) -> None:
    place.delegate(script)
    assert await place.decided("git push") == state


async def test_what_a_program_says_reaches_the_agent(place: Place) -> None:
    place.delegate("print('not on Fridays', file=sys.stderr); sys.exit(2)")
    answer = (await place.broker.open(place.wanting("git push"))).stored.settled()
    assert answer is not None
    assert answer.reason == "not on Fridays"
    assert answer.by == "policy:rule"


async def test_a_program_hears_what_the_agent_wants(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDRAISE_TOKEN", "secret")
    seen = tmp_path / "seen"
    place.delegate(
        f"json.dump([json.load(sys.stdin), dict(os.environ), os.getcwd()], open({str(seen)!r}, 'w')); sys.exit(0)"
    )
    assert await place.decided("git push", input={"command": "git push", "timeout": 5}) == "answered"
    given, environment, cwd = json.loads(seen.read_text())
    assert given == {"command": "git push", "timeout": 5}
    assert cwd == str(place.cwd)
    assert (environment["AGENT"], environment["AGENT_TOOL_NAME"]) == ("scripted", "Bash")
    assert environment["HANDRAISE_SESSION"] == "s1"
    assert "HANDRAISE_TOKEN" not in environment


async def test_a_program_that_takes_too_long_is_ended_with_what_it_started(place: Place, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    place.delegate(
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(60)",
        timeout=1.0,
    )
    assert await place.decided("git push") == "asked"
    for pid in pids.read_text().split():
        assert await _is_gone(int(pid))


async def _is_gone(pid: int) -> bool:
    for _ in range(200):
        try:
            if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        await asyncio.sleep(0.01)
    return False


async def test_a_program_that_is_not_there_leaves_it_to_a_person(place: Place) -> None:
    place.user.write_text('[[rules]]\ntool = "*"\naction = "delegate"\nto = "/nonexistent/program"\n')
    assert await place.decided("git push") == "asked"


async def test_a_program_is_not_run_again_for_what_joins(place: Place, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    place.delegate(f"open({str(runs)!r}, 'a').write('x'); sys.exit(1)")
    for _ in range(3):
        assert await place.decided("git push") == "asked"
    assert runs.read_text() == "x"


def project_that_delegates(place: Place, to: list[str]) -> Path:
    """A trusted project whose program leaves it to a person."""
    place.project.write_text(f'[[rules]]\ntool = "*"\naction = "delegate"\nto = {json.dumps(to)}\n')
    program = place.project.parent / "may-i.sh"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    place.trust()
    return program


@pytest.mark.parametrize("to", [["./may-i.sh"], ["sh", "may-i.sh"], ["env", "A=may-i.sh", "sh", "may-i.sh"]])
async def test_a_program_of_a_project_that_was_rewritten_decides_nothing(place: Place, to: list[str]) -> None:
    program = project_that_delegates(place, to)
    assert await place.decided("git push 1") == "asked"
    program.write_text("#!/bin/sh\nexit 0\n")
    assert await place.decided("git push 2") == "asked"
    place.trust()
    assert await place.decided("git push 3") == "answered"


async def test_a_file_of_the_same_name_in_the_agents_folder_decides_nothing(place: Place) -> None:
    project_that_delegates(place, ["sh", "may-i.sh"])
    (place.cwd / "may-i.sh").write_text("exit 0\n")
    assert await place.decided("git push") == "asked"


# Over HTTP and from the command line --------------------------------------------------------------------------------


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path / "home", database=database, user=tmp_path / "config.toml") as served:
        yield served


async def test_rules_are_added_listed_tested_and_removed_over_http(desk: Served, tmp_path: Path) -> None:
    rule = {"tool": "shell", "action": "allow", "matches": {"command": ["git status*", "git diff*"]}}
    added = await told(desk.http.post("/v1/rules", json=rule), 201)
    assert added == {"id": added["id"], "source": f"desk:{added['id']}", **rule}
    project = tmp_path / "shop"
    project.mkdir()
    (project / "handraise.toml").write_text(REJECT + ALLOW)
    listed = await told(desk.http.get("/v1/rules", params={"cwd": str(project)}), 200)
    assert [each["source"] for each in listed["rules"]] == [f"{project}/handraise.toml:1", added["source"]]
    assert [each["action"] for each in listed["untrusted"]] == ["allow"]

    async def tested(command: str) -> dict[str, Any]:
        body = {"tool": "shell", "arguments": {"command": command}, "agent": "codex", "cwd": str(project)}
        return await told(desk.http.post("/v1/rules/test", json=body), 200)

    assert (await tested("git diff"))["rule"] == added
    assert (await tested("git push"))["action"] == "reject"
    assert (await tested("make"))["action"] == "ask"
    await told(desk.http.post("/v1/asks", json=a_permission_body(command="git diff", input=None)), 201)
    assert await told(desk.http.delete(f"/v1/rules/{added['id']}"), 200) == added
    await refused(desk.http.delete(f"/v1/rules/{added['id']}"), 404, "rule_not_found")


async def test_only_who_administers_the_desk_sees_and_changes_rules(desk: Served) -> None:
    for scope in ("ask", "answer"):
        made = await told(desk.http.post("/v1/tokens", json={"name": scope, "scopes": [scope]}), 201)
        async with a_client(desk.url, made["token"]) as http:
            rule = {"tool": "*", "action": "allow"}
            for call in (
                http.get("/v1/rules"),
                http.post("/v1/rules", json=rule),
                http.post("/v1/rules/test", json={"tool": "shell"}),
                http.delete("/v1/rules/x"),
            ):
                await refused(call, 403, "forbidden")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"tool": "*", "action": "allow", "mathces": {"command": "git*"}}, 422, "settings"),
        ({"tool": "*", "action": "permit"}, 400, "bad_request"),
        ({"tool": "*", "action": "allow", "matches": {"a": "re:("}}, 422, "settings"),
        ({"tool": "*", "action": "allow", "matches": {"a": 1.5}}, 400, "bad_request"),
        ({"tool": "*", "action": "delegate"}, 422, "settings"),
        ([], 400, "bad_request"),
    ],
)
async def test_a_rule_that_is_wrong_is_kept_nowhere(desk: Served, body: Any, status: int, code: str) -> None:
    await refused(desk.http.post("/v1/rules", json=body), status, code)
    assert (await told(desk.http.get("/v1/rules"), 200))["rules"] == []


async def test_the_command_says_which_rule_decides_where_it_stands_and_why(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (home.work / "handraise.toml").write_text(ALLOW + REJECT)

    async def test(command: str) -> Done:
        return await home.here("rules", "test", "--agent", "codex", "--tool", "shell", "--arg", f"command={command}")

    listed = await home.here("rules")
    assert "(not trusted)" in listed.out
    assert "handraise trust" in listed.err
    assert (await test("git status")).code == WAITS
    hesitating = await home.here("trust")
    assert hesitating.code == 1
    assert "only a person can trust a project" in hesitating.err
    trust_project(home.work, home=home.settings.home)
    allowed = await test("git status")
    assert (allowed.code, allowed.lines[0]) == (
        0,
        f"allow, by {home.work}/handraise.toml:1: shell, command = 'git status*': allow",
    )
    assert (await test("git push -f")).code == REJECTED
    both = await test("git status && rm -rf /")
    assert both.code == WAITS
    assert both.lines[0] == "ask, no rule decides it, so a person does"
    assert "'rm -rf /': no rule" in both.out


async def test_the_check_fails_for_warnings_only_where_that_is_wanted(tmp_path: Path) -> None:
    home = Home(tmp_path)
    await home.here("rules", "add", "--tool", "shell", "--action", "allow", "--match", "command=python *")
    checked = await home.here("rules", "check")
    assert (checked.code, checked.lines[-1]) == (0, "1 rules, and each can decide something")
    assert "warning, 'python *': python runs whatever code it is given" in checked.lines[0]
    assert (await home.here("rules", "check", "--strict")).code == 1
    told = await home.here("rules", "check", "--json")
    assert json.loads(told.out)["warnings"][0]["warnings"] == ["'python *': python runs whatever code it is given"]


async def test_the_command_checks_adds_and_removes(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert (await home.here("rules", "check")).code == 0
    added = await home.here(
        *("rules", "add", "--tool", "shell", "--action", "reject", "--message", "no", "--first"),
        *("--match", "command=git push*", "--match", "command=git reset*", "--match", "force=true"),
    )
    assert added.code == 0, added.err
    id, _, line = added.out.strip().partition("  ")
    assert line == "shell, command = 'git push*' or 'git reset*', force = True: reject"
    await home.here("rules", "add", "--tool", "*", "--action", "ask")
    await home.here("rules", "add", "--tool", "read", "--action", "allow")
    checked = await home.here("rules", "check")
    assert checked.code == 1
    assert "read: allow: can never match" in checked.out
    for command in ("git diff *", "frobnicate *"):
        match = f"command={command}"
        await home.here("rules", "add", "--tool", "shell", "--action", "allow", "--match", match, "--first")
    warned = (await home.here("rules", "check")).out
    assert (
        "warning, 'frobnicate *': what the options of frobnicate do is not known, so all of them are covered" in warned
    )
    assert "'git diff *'" not in warned
    assert (await home.here("rules", "remove", id)).code == 0
    gone = await home.here("rules", "remove", id)
    assert gone.code == 1
    assert "handraise rules" in gone.err
    wrong = await home.here("rules", "test", "--tool", "shell", "--arg", "command")
    assert wrong.code == 2
    assert "--arg" in wrong.err
