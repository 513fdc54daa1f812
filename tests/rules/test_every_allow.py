"""The whole hostile list through every path that can end in an allow: rules, `always`, delegates, links, notifications,
channels and the surfaces of others. One matcher judges what lasts, and one function what a place may allow."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
import pytest

from handraise.asks import LONGEST_TEXT, Answer, Ask, Scope
from handraise.broker import Broker
from handraise.channels import Reach
from handraise.channels.linear.translate import LONGEST as LINEAR
from handraise.channels.linear.translate import elicitation, reply_in
from handraise.errors import AnswerDoesNotFit, Forbidden
from handraise.people import People, Person, reason_not_to_allow
from handraise.rules import Rule, decide
from handraise.rules.book import Rulebook
from handraise.rules.risks import judge
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.switchboard import Channels, Made
from handraise.testing import a_permission
from handraise.trust import Trust
from tests.helpers.hostile_commands import BY_WORDS, EVERYDAY, MUST_NOT_ALLOW, MUST_REJECT, UNREADABLE
from tests.helpers.serving import Served, a_permission_body, path_of, refused, serving, told
from tests.helpers.trusting import trust_project

# Longer ones are refused before anything looks at them.
HOSTILE = [(pattern, command) for pattern, command, _ in MUST_NOT_ALLOW if len(command) <= LONGEST_TEXT]
COMMANDS = list(dict.fromkeys(command for _, command in (*HOSTILE, *MUST_REJECT, *UNREADABLE)))
COMMANDS = [command for command in COMMANDS if len(command) <= LONGEST_TEXT]
HOSTILE += [(pattern, command) for pattern, command, _ in BY_WORDS]


def wanting(command: str | None, *, id: str = "a", pattern: str = "x", **changes: Any) -> Ask:
    kept = (Scope(id="session", label="for this session", patterns=(pattern,), by_desk=True),)
    return a_permission(**{"id": id, "tool": "bash", "command": command, "scopes": kept, "summary": "", **changes})


def is_allowed_by_the_matcher(pattern: str, command: str) -> bool:
    rule = Rule(tool="shell", action="allow", matches={"command": (pattern,)})
    return decide(wanting(command), [rule]).action == "allow"


# What lasts: rules of every origin, and `always` --------------------------------------------------------------------


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open_file(MEMORY)
    yield store
    await store.close()


def as_toml(pattern: str) -> str:
    return f'[[rules]]\ntool = "shell"\nmatches = {{ command = {json.dumps(pattern)} }}\naction = "allow"\n'


async def by_user(broker: Broker, pattern: str, where: Path) -> None:
    (where / "config.toml").write_text(as_toml(pattern))


async def by_project(broker: Broker, pattern: str, where: Path) -> None:
    file = where / "handraise.toml"
    file.write_text(as_toml(pattern))
    trust_project(where, home=where)


async def by_desk(broker: Broker, pattern: str, where: Path) -> None:
    rule = {"tool": "shell", "matches": {"command": pattern}, "action": "allow"}
    await broker.rules.add(rule, at=1, by="ana", first=True)


async def by_always(broker: Broker, pattern: str, where: Path) -> None:
    begun = wanting(pattern.rstrip(" *"), id=f"always {pattern}", pattern=pattern, cwd=str(where), session=pattern)
    await broker.open(begun)
    await broker.answer(begun.id, Answer(reply="always", scope="session", by="ana"))


@pytest.mark.parametrize("make", [by_user, by_project, by_desk, by_always])
async def test_no_rule_of_whatever_origin_allows_any_of_the_list(
    store: SqliteStore, tmp_path: Path, make: Callable[[Broker, str, Path], Awaitable[None]]
) -> None:
    book = Rulebook(store, user=tmp_path / "config.toml", trust=Trust(tmp_path / "trusted.json"))
    async with Broker(store, rules=book) as broker:
        wrong: list[tuple[str, str]] = []
        for pattern in dict.fromkeys(pattern for pattern, _ in HOSTILE):
            await make(broker, pattern, tmp_path)
            for number, (_, command) in enumerate(each for each in HOSTILE if each[0] == pattern):
                ask = wanting(command, id=f"{pattern} {number}", cwd=str(tmp_path), session=pattern)
                ask = replace(ask, origin=replace(ask.origin, cwd=str(tmp_path)))
                state = (await broker.open(ask)).stored.state
                if state != "asked":
                    wrong.append((pattern, command))
            for kept in await book.kept():
                await book.remove(kept.id)
        assert wrong == []


async def test_always_goes_on_covering_everyday_commands(store: SqliteStore, tmp_path: Path) -> None:
    async with Broker(store) as broker:
        for number, (pattern, command) in enumerate(EVERYDAY):
            session = f"s{number}"
            begun = wanting("true", id=f"a{number}", pattern=pattern, cwd=str(tmp_path), session=session)
            await broker.open(begun)
            await broker.answer(begun.id, Answer(reply="always", by="ana"))
            again = wanting(command, id=f"b{number}", cwd=str(tmp_path), session=session)
            expected = "answered" if is_allowed_by_the_matcher(pattern, command) else "asked"
            assert (await broker.open(again)).stored.state == expected, (pattern, command)


# Programs that decide -----------------------------------------------------------------------------------------------

DECIDES = """#!{python}
import json, os, sys
given = json.load(sys.stdin)
with open({heard!r}, "a") as file:
    file.write(json.dumps([given, os.environ.get("AGENT_DOUBT")]) + "\\n")
"""


@pytest.fixture
def heard(tmp_path: Path) -> Callable[[], list[Any]]:
    """What a program that says yes to everything was told."""
    file, program = tmp_path / "heard", tmp_path / "decide"
    program.write_text(DECIDES.format(python=sys.executable, heard=str(file)))
    program.chmod(0o755)
    return lambda: [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def delegating(where: Path, condition: str = "") -> Path:
    user = where / "config.toml"
    user.write_text(f'[[rules]]\ntool = "shell"\naction = "delegate"\nto = "{where / "decide"}"\n{condition}')
    return user


async def test_a_program_is_shown_the_whole_and_the_doubt(
    store: SqliteStore, tmp_path: Path, heard: Callable[[], list[Any]]
) -> None:
    async with Broker(store, rules=Rulebook(store, user=delegating(tmp_path))) as broker:
        other = {"command": "git status", "note": "an argument of the same name says something else"}
        for number, command in enumerate(("cat x > f", "git log $(rm -rf /)", "git status")):
            ask = wanting(command, id=str(number), diff="+x", cwd=str(tmp_path), input=other)
            assert (await broker.open(ask)).stored.state == "answered"
            given, doubt = heard()[-1]
            assert (given["command"], given["diff"], given["cwd"]) == (command, "+x", str(tmp_path))
            assert doubt == (judge(ask).doubt or "")
        assert [bool(doubt) for _, doubt in heard()] == [True, True, False]


async def test_a_program_that_was_named_for_a_pattern_is_not_asked_about_what_is_in_doubt(
    store: SqliteStore, tmp_path: Path, heard: Callable[[], list[Any]]
) -> None:
    user = delegating(tmp_path, 'matches = { command = "git *" }\n')
    async with Broker(store, rules=Rulebook(store, user=user)) as broker:
        assert (await broker.open(wanting("git log $(rm -rf /)", id="1"))).stored.state == "asked"
        assert (await broker.open(wanting("git log > f", id="2"))).stored.state == "asked"
        assert heard() == []
        assert (await broker.open(wanting("git log", id="3"))).stored.state == "answered"


# Places: links, notifications, channels -----------------------------------------------------------------------------

DOUBTFUL = [command for command in COMMANDS if (judged := judge(wanting(command))).doubt or judged.risks]
UNKNOWN: list[dict[str, Any]] = [
    {"tool": "bash", "command": None},
    {"tool": "PowerShell", "command": "Get-Date"},
    {"tool": "cmd", "command": "dir"},
    {"tool": "frobnicate", "command": None, "input": {"a": 1}},
    {"tool": "mcp__shop__list_orders", "command": None, "input": {"a": 1}},
    {"tool": "bash", "command": "git status", "kind": "something new"},
    {"tool": "bash", "command": "git status", "input": {"additionalPermissions": {"network": True}}},
]


def test_most_of_the_list_is_in_doubt_or_risky() -> None:
    assert len(DOUBTFUL) > len(COMMANDS) * 0.7


@pytest.mark.parametrize("changes", UNKNOWN, ids=lambda changes: f"{changes['tool']} {changes.get('kind', '')}")
def test_what_is_unknown_is_allowed_in_no_shared_place(changes: dict[str, Any]) -> None:
    assert reason_not_to_allow(wanting(**{"command": None, **changes}), identity="shared")


def test_a_reply_that_nobody_knows_is_allowed_in_no_shared_place() -> None:
    harmless = wanting("git status")
    assert reason_not_to_allow(harmless, identity="shared") is None
    assert reason_not_to_allow(harmless, identity="shared", reply="always") is None
    assert reason_not_to_allow(harmless, identity="shared", reply="for every host")


def test_a_shell_that_does_not_say_its_command_is_in_doubt() -> None:
    assert judge(wanting(None)).doubt == "the agent did not say which command"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path, database="sqlite:///:memory:") as desk:
        yield desk


def permissions() -> Iterator[dict[str, Any]]:
    common = {"replies": ["once", "always", "for every host", "reject"]}
    for command in DOUBTFUL:
        yield {"tool": "bash", "command": command, **common}
    for changes in UNKNOWN:
        yield {**{key: value for key, value in changes.items() if value is not None}, **common}


async def press(client: httpx2.AsyncClient, url: str, **fields: str) -> httpx2.Response:
    parts = urlsplit(url)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"{parts.scheme}://{parts.netloc}"}
    return await client.post(url, content=urlencode(fields), headers=headers)


async def test_no_link_and_no_notification_allows_what_is_risky_in_doubt_or_unknown(desk: Served) -> None:
    for number, permission in enumerate(permissions()):
        id = f"p{number}"
        ask = await told(desk.http.post("/v1/asks", json=a_permission_body(id=id, permission=permission)), 201)
        assert ask["only_at_desk"], permission
        link = (await told(desk.http.post(path_of(id, "link"), json={}), 201))["url"]
        page = await desk.http.get(link)
        assert 'value="allow"' not in page.text, permission
        for reply in ("0", "1", "2"):
            assert (await press(desk.http, link, do="allow", reply=reply)).status_code == 403, permission
        for reply in ("once", "always"):
            body = {"reply": reply, "via": "notification"}
            await refused(desk.http.post(path_of(id, "answer"), json=body), 403, "forbidden")
        assert (await told(desk.http.get(path_of(id)), 200))["state"] == "asked"
    assert (await press(desk.http, link, do="deny")).status_code == 200
    assert (await told(desk.http.get(path_of(id)), 200))["state"] == "rejected", "a no always counts"


async def test_a_link_offers_no_reply_that_nobody_knows(desk: Served) -> None:
    permission = {"tool": "bash", "command": "git status", "replies": ["once", "for every host", "reject"]}
    await told(desk.http.post("/v1/asks", json=a_permission_body(id="p", permission=permission)), 201)
    link = (await told(desk.http.post(path_of("p", "link"), json={}), 201))["url"]
    assert "for every host" not in (await desk.http.get(link)).text
    assert (await press(desk.http, link, do="allow", reply="1")).status_code == 422
    assert (await press(desk.http, link, do="allow", reply="0")).status_code == 200


@pytest.mark.parametrize(
    "permission",
    [
        {"tool": "bash", "command": f"echo {'x' * 300}"},
        {"tool": "bash", "command": "git status", "input": {"command": "git status", "timeout": 5}},
        {"tool": "edit", "paths": ["src/a.py"], "diff": "+x"},
    ],
)
async def test_a_notification_allows_only_what_it_shows_whole(desk: Served, permission: dict[str, Any]) -> None:
    body = a_permission_body(id="p", permission={**permission, "replies": ["once", "reject"]})
    await told(desk.http.post("/v1/asks", json=body), 201)
    said = {"reply": "once", "via": "notification"}
    problem = await refused(desk.http.post(path_of("p", "answer"), json=said), 403, "forbidden")
    assert "allow it on its card" in problem["message"]
    await told(desk.http.post(path_of("p", "answer"), json={"reply": "reject", "via": "notification"}), 200)


async def test_a_notification_allows_a_short_command_that_is_known(desk: Served) -> None:
    permission = {"tool": "bash", "command": "git status", "replies": ["once", "reject"]}
    await told(desk.http.post("/v1/asks", json=a_permission_body(id="p", permission=permission)), 201)
    told_ = await told(desk.http.post(path_of("p", "answer"), json={"reply": "once", "via": "notification"}), 200)
    assert told_["answer"]["via"] == "notification"


class Place:
    """A channel that gives its inbox away."""

    name = "place"

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.inbox: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def run(self, inbox: Any) -> None:
        self.inbox.set_result(inbox)
        await asyncio.Event().wait()


async def test_no_shared_channel_allows_it_whoever_answers_there(store: SqliteStore) -> None:
    ana = Person(name="ana", known_as={"place": "ana"}, may=("questions", "permissions", "risky"))
    place = Place(Reach(identity="shared", longest=100_000))
    async with (
        Broker(store) as broker,
        Channels(broker, [Made(name="place", kind="place", channel=place)], people=People({"ana": ana})),
    ):
        inbox = await place.inbox
        for number, command in enumerate(DOUBTFUL):
            await broker.open(wanting(command, id=str(number)))
            with pytest.raises(Forbidden):
                await inbox.answer(str(number), Answer(reply="once", by="ana"))
        for number, changes in enumerate(UNKNOWN):
            await broker.open(wanting(**{"command": None, **changes}, id=f"u{number}"))
            with pytest.raises(Forbidden):
                await inbox.answer(f"u{number}", Answer(reply="once", by="ana"))
        assert (await inbox.reject("0", by="ana")).state == "rejected"
        await broker.open(wanting("git status", id="harmless"))
        assert (await inbox.answer("harmless", Answer(reply="once", by="ana"))).state == "answered"


@pytest.mark.parametrize("identity", ["shared", "strong"])
@pytest.mark.parametrize(
    "changes",
    [
        {"command": f"echo {'x' * 5000}"},
        {"command": "git status", "tool": "edit", "diff": "+x\n" * 2000},
        {"command": None, "tool": "read", "paths": tuple(f"src/{number}.py" for number in range(1000))},
        {"command": "git status", "input": {"command": "git status", "more": "x" * 5000}},
        {"command": "git status " + "\u202e" * 900},
    ],
)
async def test_what_a_place_had_to_cut_it_does_not_allow(
    store: SqliteStore, identity: Any, changes: dict[str, Any]
) -> None:
    ana = Person(name="ana", known_as={"place": "ana"}, may=("questions", "permissions", "risky"))
    place = Place(Reach(identity=identity, longest=4000))
    async with (
        Broker(store) as broker,
        Channels(broker, [Made(name="place", kind="place", channel=place)], people=People({"ana": ana})),
    ):
        inbox = await place.inbox
        await broker.open(wanting(**changes, id="long"))
        with pytest.raises(Forbidden, match="allow it at the desk"):
            await inbox.answer("long", Answer(reply="once", by="ana"))
        assert (await inbox.reject("long", by="ana")).state == "rejected"


def test_linear_shows_no_way_to_allow_what_it_cuts() -> None:
    long = wanting(f"echo {'x' * LINEAR}")
    assert long.permission is not None
    shown = elicitation(long, 0)
    assert shown.metadata == {"options": [{"value": "Deny", "label": "Deny"}]}
    assert "more at the desk" in shown.content["body"]
    assert reply_in(long.permission, "1") == ("reject", None)
    for text in ("Allow once", "2", "yes"):
        with pytest.raises(AnswerDoesNotFit):
            reply_in(long.permission, text)
    with_diff = elicitation(wanting("git status", diff="+ hidden", paths=("a.py",)), 0)
    assert all(part in with_diff.content["body"] for part in ("git status", "+ hidden", "a.py"))


# The surfaces of others ---------------------------------------------------------------------------------------------


async def test_an_always_of_an_opencode_client_covers_no_more_than_a_rule(desk: Served) -> None:
    for number, (pattern, command) in enumerate(HOSTILE):
        if is_allowed_by_the_matcher(pattern, command):
            continue
        origin = {"agent": "opencode", "session": f"ses_{number}"}
        kept = {"id": "session", "patterns": [pattern], "by_desk": True}
        begun = {"tool": "bash", "command": pattern.rstrip(" *"), "replies": ["once", "always", "reject"]}
        body = {"permission": {**begun, "scopes": [kept]}, "origin": origin}
        await told(desk.http.post("/v1/asks", json={**body, "id": f"per_{number}"}), 201)
        reply = await desk.http.post(f"/permission/per_{number}/reply", json={"reply": "always"})
        assert reply.status_code == 200
        body["permission"] = {**body["permission"], "command": command}
        again = await told(desk.http.post("/v1/asks", json={**body, "id": f"again {number}"}), 201)
        assert again["state"] == "asked", (pattern, command)


async def test_what_a_model_asks_by_mcp_or_acp_never_carries_a_lasting_yes(desk: Served) -> None:
    """Their asks offer no scope that the desk keeps, so an `always` there makes no rule."""
    permission = {"tool": "bash", "command": "git status", "replies": ["once", "always", "reject"]}
    permission["scopes"] = [{"id": "allow_always", "patterns": ["*"]}]
    await told(desk.http.post("/v1/asks", json=a_permission_body(id="p", permission=permission)), 201)
    await told(desk.http.post(path_of("p", "answer"), json={"reply": "always", "scope": "allow_always"}), 200)
    assert (await told(desk.http.get("/v1/rules"), 200))["rules"] == []
