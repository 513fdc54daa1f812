"""What a desk finds out about a permission: once, when it is asked, and stored with it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from handraise.asks import Ask, Judgement
from handraise.broker import Broker
from handraise.rules.risks import judge, judgement_of
from handraise.stores import Query, Store
from handraise.stores.sqlite import SqliteStore
from handraise.testing import a_permission, an_ask
from handraise.testing.stores import row
from handraise.wire import content_text, judgement_text

HOSTILE = ["a|" * 50 + "a", "eval " * 50 + "rm", "cat x > f", "git log $(rm -rf /)", "rm -rf build && git push"]
MANY = 2_000
READS = """
import asyncio, sys
from handraise.broker import Broker
from handraise.stores import Query
from handraise.stores.sqlite import SqliteStore

async def main() -> None:
    store = await SqliteStore.open_file(sys.argv[1])
    async with Broker(store) as broker:
        listed = [stored async for stored in broker.asks()]
        told = [stored.text(0) for stored in await store.find(Query(), limit=5000)]
        events = [event.text(0) for event in await store.history(Query(), after=0, limit=5000)]
        found = await store.find(Query(), limit=10, text="rm -rf build")
        assert len(listed) == len(told) == len(events) == int(sys.argv[2]), (len(listed), len(told), len(events))
        assert all(ask.risks is not None for ask in listed) and found
    await store.close()
    print(*sorted({name.partition(".")[0] for name in sys.modules} & {"tree_sitter", "tree_sitter_bash"}))

asyncio.run(main())
"""


def told_of(text: str) -> dict[str, Any]:
    ask = json.loads(text)
    return {key: ask[key] for key in ("risks", "commands", "doubt", "only_at_desk") if key in ask}


async def test_after_a_restart_no_command_of_a_stored_ask_is_read_again(tmp_path: Path) -> None:
    """The reader is not even loaded by a desk that lists, searches and tells thousands of them."""
    file = tmp_path / "desk.db"
    store = await SqliteStore.open_file(file)
    judged = [judgement_text(judge(a_permission(command=command))) for command in HOSTILE]
    asks = [a_permission(id=f"p{n}", command=HOSTILE[n % len(HOSTILE)], summary="") for n in range(MANY)]
    rows = [
        row(ask.id, content=content_text(ask), judgement=judged[number % len(HOSTILE)])
        for number, ask in enumerate(asks)
    ]
    await asyncio.gather(*map(store.open, rows))
    await store.close()
    reads = [sys.executable, "-c", READS, str(file), str(MANY)]
    done = subprocess.run(reads, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stderr, done.returncode, done.stdout.strip()) == ("", 0, "")


async def test_what_is_told_is_what_was_stored(store: Store) -> None:
    ask = a_permission(command="rm -rf build && git push > log", summary="")
    async with Broker(store) as broker:
        opened = await broker.open(ask)
        told = told_of(opened.stored.text(0))
        assert told == {
            "risks": ["delete", "push"],
            "commands": ["rm -rf build", "git push > log"],
            "doubt": "it reads from a file or writes to one",
            "only_at_desk": "it can do harm",
        }
        [listed] = await store.find(Query())
        [event] = await store.history(Query(), after=0, limit=9)
        assert told == told_of(listed.text(0)) == told_of(event.ask.text(0))
        stored = await broker.get(ask.id)
        assert judgement_of(stored) == judge(ask)


async def test_a_harmless_command_has_no_doubt_and_a_question_no_judgement(store: Store) -> None:
    async with Broker(store) as broker:
        harmless = await broker.open(a_permission(command="git status", summary=""))
        assert told_of(harmless.stored.text(0)) == {"risks": []}
        for id in ("q", 'q"\\é', 'x","questions":[],"permission":{'):
            question = await broker.open(an_ask(id=id))
            assert question.stored.judgement is None and told_of(question.stored.text(0)) == {}
            assert (await broker.get(id)).risks is None


@pytest.mark.parametrize("id", ["p", 'p"\\é', 'x","questions":[{'])
async def test_what_was_asked_before_judgements_were_kept_is_in_doubt(store: Store, id: str) -> None:
    async with Broker(store) as broker:
        await broker.open(a_permission(id=id, command="git status", summary=""))
        await store.write("update asks set judgement = null")
        told = told_of((await broker.stored(id)).text(0))
        assert (told["risks"], told["doubt"] == told["only_at_desk"]) == (["unreadable"], True)
        assert (await broker.get(id)).doubt == told["doubt"]
        await broker.withdraw(id)
        again = await broker.open(a_permission(id=id, command="git status", summary=""))
        assert told_of(again.stored.text(0)) == {"risks": []}, "asked again it is judged again"


async def test_asking_again_joins_also_where_it_is_read_otherwise_now(store: Store) -> None:
    async with Broker(store) as broker:
        await broker.open(a_permission())
        await store.write("update asks set judgement = ?", ',"risks":["spend"]')
        joined = await broker.open(a_permission())
        assert (joined.how, told_of(joined.stored.text(0))) == ("joined", {"risks": ["spend"]})


def test_one_that_no_desk_has_seen_is_judged_where_it_is_shown() -> None:
    ask = a_permission(command="rm -rf build")
    assert judgement_of(ask) == judge(ask) != Judgement()
    assert judge(an_ask()) == Judgement()


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({"command": "git status"}, None),
        ({"command": None}, "the agent did not say which command"),
        ({"command": "  \n"}, "the agent did not say which command"),
        ({"tool": "PowerShell", "command": "Get-Date"}, "it is for a shell whose language this desk does not read"),
        ({"command": "ls", "input": {"kind": "writeStdin"}}, "it is typed into a program that already runs"),
        ({"command": "ls", "input": {"additionalPermissions": {}}}, None),
        (
            {"command": "ls", "input": {"additionalPermissions": {"x": 1}}},
            "it wants more rights than the command shows",
        ),
        ({"command": None, "tool": "edit", "paths": ("a.py",)}, "nobody followed the links of its paths"),
        ({"command": None, "tool": "edit", "paths": ("a.py",), "resolved": ("/shop/a.py",)}, None),
        ({"command": None, "tool": "plan", "kind": "plan"}, None),
    ],
)
def test_what_cannot_be_read_for_certain_is_said(changes: dict[str, Any], doubt: str | None) -> None:
    ask: Ask = a_permission(**{"tool": "bash", "summary": "", **changes})
    assert judge(ask).doubt == doubt
