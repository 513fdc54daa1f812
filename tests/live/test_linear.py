"""Linear with the real Claude Code: an issue is given to it, it works in a worktree, asks, is answered, and goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from handraise.testing import ScriptedModel, call
from tests.channels.test_linear import a_repository, git
from tests.helpers.linear_desk import StandIn, linear
from tests.helpers.serving import DeskProcess
from tests.live.homes import Home, written_down
from tests.live.terminals import PATIENCE

STORAGE = {
    "header": "Storage",
    "question": "Which database?",
    "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": "a server"}],
    "multiSelect": False,
}


@asynccontextmanager
async def a_desk(
    folder: Path, stand_in: StandIn, repository: Path, claude: Path, home: Home
) -> AsyncIterator[DeskProcess]:
    """`handraise serve` with the config.toml of somebody who has followed the page about Linear."""
    config = folder / "config" / "handraise"
    config.mkdir(parents=True)
    env = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in home.env.items())
    (config / "config.toml").write_text(f"""
[agents.claude]
command = [{json.dumps(str(claude))}]
env = {{ {env} }}

[channels.linear]
repository = {json.dumps(str(repository))}
api = {json.dumps(stand_in.url)}

[people.ada]
linear = "ada@example.com"
""")
    environ = {
        "XDG_CONFIG_HOME": str(folder / "config"),
        "LINEAR_CLIENT_ID": stand_in.client_id,
        "LINEAR_CLIENT_SECRET": stand_in.client_secret,
        "LINEAR_WEBHOOK_SECRET": stand_in.secret,
    }
    async with DeskProcess(folder / "home", **environ) as desk:
        stand_in.webhook = f"{desk.url}/webhooks/linear"
        yield desk


def elicitations(stand_in: StandIn, session: str) -> list[dict[str, Any]]:
    return [each for each in stand_in.posted(session) if each["content"]["type"] == "elicitation"]


def answers(stand_in: StandIn, session: str) -> list[str]:
    """How we told in the thread what was answered."""
    posted = [each["content"] for each in stand_in.posted(session)]
    return [content["result"] for content in posted if content.get("action") == "Answered"]


async def test_an_issue_is_worked_on_and_its_question_answered_in_linear(
    model: ScriptedModel, claude: Path, claude_env: Home, tmp_path: Path
) -> None:
    commit = "git -c user.name=Claude -c user.email=claude@example.com commit -q --allow-empty -m 'Wire up the storage'"
    model.scenarios["issue"] = [
        call("AskUserQuestion", questions=[STORAGE]),
        call("Bash", command=commit, description="commit it"),
        "The storage is wired up.",
    ]
    repository = a_repository(tmp_path / "app")
    async with linear() as stand_in, a_desk(tmp_path / "desk", stand_in, repository, claude, claude_env) as desk:
        ada = stand_in.person("Ada", email="ada@example.com")
        issue = stand_in.issue("ENG-42", "Choose the storage", description="SCENARIO:issue")
        session = await stand_in.delegate(issue, by=ada)
        await stand_in.until(lambda: elicitations(stand_in, session), timeout=PATIENCE)
        assert stand_in.status(session) == "awaitingInput"
        (shown,) = elicitations(stand_in, session)
        assert [option["value"] for option in shown["signalMetadata"]["options"]] == ["SQLite", "Postgres"]
        await stand_in.reply(session, "Postgres", by=ada)

        await stand_in.until(lambda: len(elicitations(stand_in, session)) == 2, timeout=PATIENCE)
        assert "git -c user.name=Claude" in elicitations(stand_in, session)[1]["content"]["body"]
        assert "Postgres" in json.dumps(model.requests[-1].body["messages"][-1])  # the same agent got it and went on
        await stand_in.reply(session, "Allow once", by=ada)
        await stand_in.until(lambda: stand_in.status(session) == "complete", timeout=PATIENCE)

        branch = git(repository, "branch", "--list", "handraise/*", "--format=%(refname:short)")
        last = stand_in.activities(session)[-1]["content"]
        assert last == {"type": "response", "body": f"The storage is wired up.\n\n1 commit on `{branch}`."}
        assert answers(stand_in, session) == ["Postgres (ada, in linear)", "Allow once (ada, in linear)"]
        assert git(repository, "log", "-1", "--format=%s", branch) == "Wire up the storage"
        async with desk.client() as http:
            record = (await http.get(f"/v1/sessions/linear:{session}")).json()
        assert record["state"] == "idle" and record["cwd"].startswith(str(tmp_path / "desk" / "home" / "worktrees"))


async def test_the_desk_is_killed_between_question_and_reply(
    model: ScriptedModel, claude: Path, claude_env: Home, tmp_path: Path
) -> None:
    model.scenarios["issue"] = [call("AskUserQuestion", questions=[STORAGE]), "It is wired up."]
    repository = a_repository(tmp_path / "app")
    async with linear() as stand_in, a_desk(tmp_path / "desk", stand_in, repository, claude, claude_env) as desk:
        ada = stand_in.person("Ada", email="ada@example.com")
        session = await stand_in.delegate(stand_in.issue("ENG-42", "Choose", description="SCENARIO:issue"), by=ada)
        await stand_in.until(lambda: elicitations(stand_in, session), timeout=PATIENCE)
        async with desk.client() as http:
            (ask,) = (await http.get("/v1/asks", params={"state": "asked"})).json()["asks"]
        await written_down(claude_env, ask["id"])  # what it had not written down it would begin anew
        await desk.kill()
        await desk.start()
        assert stand_in.status(session) == "awaitingInput"
        await stand_in.reply(session, "Postgres", by=ada)
        await stand_in.until(lambda: stand_in.status(session) == "complete", timeout=PATIENCE)
        assert stand_in.activities(session)[-1]["content"]["type"] == "response"
        assert "Postgres" in json.dumps(model.requests[-1].body["messages"][-1])
        assert answers(stand_in, session) == ["Postgres (ada, in linear)"]
        assert len(elicitations(stand_in, session)) == 1  # it was not asked again


async def test_stop_in_linear_ends_what_claude_does(
    model: ScriptedModel, claude: Path, claude_env: Home, tmp_path: Path
) -> None:
    model.scenarios["issue"] = [call("AskUserQuestion", questions=[STORAGE]), "never said"]
    repository = a_repository(tmp_path / "app")
    async with linear() as stand_in, a_desk(tmp_path / "desk", stand_in, repository, claude, claude_env) as desk:
        ada = stand_in.person("Ada", email="ada@example.com")
        session = await stand_in.delegate(stand_in.issue("ENG-42", "Choose", description="SCENARIO:issue"), by=ada)
        await stand_in.until(lambda: elicitations(stand_in, session), timeout=PATIENCE)
        await stand_in.stop(session, by=ada)
        await stand_in.until(lambda: stand_in.status(session) == "complete", timeout=PATIENCE)
        async with desk.client() as http:
            asks = (await http.get("/v1/asks", params={"state": "withdrawn"})).json()["asks"]
            while not asks:
                asks = (await http.get("/v1/asks", params={"state": "withdrawn"})).json()["asks"]
            told = (await http.get(f"/v1/sessions/linear:{session}")).json()
        assert told["state"] in ("idle", "running")
        assert "never said" not in json.dumps(stand_in.posted(session))
