"""Where files really are: it is looked up on the agent's machine, sent with the ask, and rules go by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from handraise.asks import Ask, Origin, Permission, bound
from handraise.asks.places import on_this_machine, resolve
from handraise.broker import Broker
from handraise.errors import AskDiffers
from handraise.rules import Action, Rule, decide

ALLOWED = Rule(tool="edit", action="allow", matches={"path": ("src/*",)})


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project with a link in `src` to a folder outside."""
    shop, secret = tmp_path / "shop", tmp_path / "secret"
    (shop / "src").mkdir(parents=True)
    (secret / "keys").mkdir(parents=True)
    (shop / "src" / "link").symlink_to(secret / "keys")
    return shop


def editing(*paths: str, cwd: Path | None) -> Ask:
    permission = Permission(tool="edit", paths=paths, cwd=None if cwd is None else str(cwd))
    return Ask(id="a", permission=permission, origin=Origin(agent="any", session="s"))


async def action(ask: Ask, *rules: Rule) -> Action | None:
    return decide(await resolve(ask), rules).action


async def test_a_link_leads_neither_out_of_what_is_allowed_nor_around_what_is_forbidden(shop: Path) -> None:
    secret = shop.parent / "secret"
    (shop.parent / "other").symlink_to(shop)
    assert await action(editing("src/app.py", cwd=shop), ALLOWED) == "allow"
    assert await action(editing(f"{shop}/src/app.py", cwd=shop), ALLOWED) == "allow"
    assert await action(editing("src/link/key", cwd=shop), ALLOWED) is None
    assert await action(editing("src/app.py", "src/link/key", cwd=shop), ALLOWED) is None
    assert await action(editing("src/app.py", cwd=shop.parent / "other"), ALLOWED) == "allow"
    (shop / "notes").symlink_to(secret / "key")
    notes = Rule(tool="edit", action="allow", matches={"path": ("notes",)})
    assert await action(editing("notes", cwd=shop), notes) is None
    through = Rule(tool="edit", action="allow", matches={"path": ("src/link/*",)})
    assert await action(editing("src/link/key", cwd=shop), through) is None
    forbidden = Rule(tool="edit", action="reject", matches={"path": (f"{secret}/*",)})
    assert await action(editing("src/link/keys", cwd=shop), forbidden) == "reject"


async def test_the_folder_above_a_link_is_the_one_above_where_it_leads(shop: Path) -> None:
    """`src/link/../x` reads like `src/x`, and is a file beside the folder that the link leads to."""
    ask = await resolve(editing("src/link/../x", cwd=shop))
    assert ask.permission is not None and ask.permission.resolved == (str(shop.parent / "secret" / "x"),)
    assert decide(ask, [ALLOWED]).action is None
    forbidden = Rule(tool="edit", action="reject", matches={"path": (f"{shop.parent}/secret/*",)})
    assert decide(ask, [forbidden]).action == "reject"


async def test_what_nobody_looked_up_is_in_doubt(shop: Path) -> None:
    ask = editing("src/app.py", cwd=shop)
    decision = decide(ask, [ALLOWED])
    assert decision.action is None and "nobody followed the links of its paths" in decision.why[-1]
    assert decide(ask, [Rule(tool="edit", action="allow", matches={"path": ("*",)})]).action is None
    assert decide(ask, [Rule(tool="edit", action="reject", matches={"path": ("src/*",)})]).action == "reject"
    assert decide(ask, [Rule(tool="edit", action="allow")]).action == "allow"  # whatever the file
    for unknown in (editing("src/app.py", cwd=None), editing("src/a\0b", cwd=shop), editing(*["x"] * 201, cwd=shop)):
        assert await resolve(unknown) == on_this_machine(unknown)


async def test_what_was_said_is_not_looked_up_again(shop: Path) -> None:
    ask = editing("src/link/key", cwd=shop)
    assert ask.permission is not None
    said = on_this_machine(replace(ask, permission=replace(ask.permission, resolved=("/elsewhere",))))
    assert await resolve(said) is said


def test_each_path_has_its_place_or_none_has(shop: Path) -> None:
    ask = editing("src/app.py", "src/b.py", cwd=shop)
    assert ask.permission is not None
    for said in (("/a",), ("/a", "/b", "/c"), ()):
        permission = replace(ask.permission, resolved=said)
        bound(replace(ask, permission=permission))
        assert permission.places == (("src/app.py", None), ("src/b.py", None))
    assert replace(ask.permission, resolved=("/a", "/b")).places == (("src/app.py", "/a"), ("src/b.py", "/b"))


async def test_the_same_ask_is_joined_also_after_a_link_was_changed(broker: Broker, shop: Path) -> None:
    ask = editing("src/link/key", cwd=shop)
    first = (await broker.open(await resolve(ask))).stored.ask()
    (shop / "src" / "link").unlink()
    (shop / "src" / "link").symlink_to(shop)
    again = await broker.open(await resolve(ask))
    assert again.how == "joined" and again.stored.ask().permission == first.permission
    assert (await broker.open(ask)).how == "joined"  # from somebody who cannot look
    with pytest.raises(AskDiffers):
        await broker.open(await resolve(editing("src/link/other", cwd=shop)))
