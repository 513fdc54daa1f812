"""Routes say what they are beside their handlers, and a stranger's are served like ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from handraise.errors import Forbidden, HandraiseError
from handraise.plugins import names
from handraise.server.declare import Declared, declared_by, pattern_of
from handraise.server.openapi import document, route_groups
from handraise.server.refusals import REFUSALS
from tests.helpers.serving import Served, refused, serving, told

STRANGER = '''
from dataclasses import dataclass

from handraise.errors import HandraiseError
from handraise.server.declare import Tag, declare, in_path, mount
from handraise.server.routes import RouteGroup
from handraise.server.routes.api import json_response
from handraise.wire.plain import to_plain


class Closed(HandraiseError):
    """The kitchen is closed."""

    code = "kitchen_closed"
    status = 409


@dataclass(frozen=True, kw_only=True)
class Dish:
    name: str
    note: str | None = None


class Kitchen:
    def __init__(self, broker):
        self.broker = broker

    @declare(
        "GET /v1/dishes/{dish}",
        id="show_a_dish",
        summary="One dish",
        tag=Tag("kitchen", "What is cooked."),
        scope="admin",
        parameters=(in_path("dish", meaning="Its name."),),
        replies={200: (Dish, "The dish.")},
        refusals=(Closed,),
    )
    async def show(self, request):
        if request.path_params["dish"] == "fish":
            raise Closed("no fish today")
        return json_response(to_plain(Dish(name=request.path_params["dish"])))


plugin = RouteGroup(handlers=(Kitchen,), routes=lambda desk: mount(Kitchen(desk.broker)))
'''


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "installed"
    about = folder / "kitchen-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: kitchen\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[handraise.routes]\nkitchen = a_kitchen:plugin\n")
    (folder / "a_kitchen.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(folder)
    document.cache_clear()
    yield
    document.cache_clear()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "desk") as desk:
        yield desk


def all_declared() -> list[Declared]:
    groups = (*route_groups("server.routes"), *route_groups("server.compat"))
    return [said for group in groups for kind in group.handlers for said in declared_by(kind)]


async def test_a_strangers_route_is_served_guarded_and_documented_like_ours(strangers: None, desk: Served) -> None:
    assert "kitchen" in names("server.routes")
    assert await told(desk.http.get("/v1/dishes/soup"), 200) == {"name": "soup"}
    await refused(desk.http.get("/v1/dishes/fish"), 409, "kitchen_closed")
    await refused((await desk.client()).get("/v1/dishes/soup"), 401, "unauthorized")
    for scope in ("ask", "answer"):
        await refused((await desk.caller(f"only-{scope}", scope)).get("/v1/dishes/soup"), 403, "forbidden")
    await refused(desk.http.get("/v1/dishes/soup", headers={"Host": "other.example"}), 403, "forbidden")
    told_of = document()
    operation = told_of["paths"]["/v1/dishes/{dish}"]["get"]
    assert operation["responses"]["409"]["description"] == "The kitchen is closed."
    assert told_of["tags"][-1] == {"name": "kitchen", "description": "What is cooked."}
    assert told_of["components"]["schemas"]["Dish"]["required"] == ["name"]
    assert told_of["components"]["schemas"]["KitchenClosed"]["properties"]["error"] == {
        "const": "kitchen_closed",
        "type": "string",
    }


async def test_a_stream_refuses_a_token_whose_scope_is_too_small(desk: Served) -> None:
    asks = await desk.caller("asks", "ask")
    streams = [said for said in all_declared() if said.path.endswith(("/event", "/events"))]
    assert len(streams) == 4
    for said in streams:
        path = pattern_of(said).replace("{session}", "x")
        await refused(asks.get(path), 403, "forbidden")
        await refused((await desk.client()).get(path), 401, "unauthorized")


def test_every_path_parameter_is_described_and_no_other() -> None:
    for said in all_declared():
        in_path = [each.name for each in said.parameters if each.place == "path"]
        assert in_path == [part[1:-1] for part in pattern_of(said).split("/") if part.startswith("{")], said.id


def test_a_parameter_has_one_meaning_under_its_name_in_the_document() -> None:
    found = {(each.key or each.name): each for said in all_declared() for each in said.parameters}
    assert all(found[each.key or each.name] == each for said in all_declared() for each in said.parameters)


def test_every_refusal_of_a_route_is_described_once() -> None:
    refusals = {kind for said in all_declared() for kind in said.refusals}
    assert refusals <= REFUSALS.keys()
    assert len({kind.code for kind in REFUSALS}) == len(REFUSALS)
    assert all(type(refusal.example) is kind for kind, refusal in REFUSALS.items())
    assert HandraiseError.status == 500 and Forbidden.status == 403
