"""Every ask says on which machine its agent is, and another machine may ask the same again."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from handraise.asks.places import on_this_machine
from handraise.broker import Broker
from handraise.client import Client
from handraise.errors import AskDiffers
from handraise.stores import Store
from handraise.testing import a_permission, an_ask
from tests.helpers.serving import a_body, serving, told

HERE = socket.gethostname()


async def test_another_machine_joins_what_a_first_one_asked(store: Store) -> None:
    async with Broker(store) as broker:
        for ask in (an_ask(id="q", machine="laptop"), a_permission(id="p", machine="laptop")):
            await broker.open(ask)
            again = await broker.open(replace(ask, origin=replace(ask.origin, machine="server")))
            assert again.how == "joined"
            assert again.stored.ask().origin.machine == "laptop"
            with pytest.raises(AskDiffers):
                await broker.open(replace(ask, origin=replace(ask.origin, machine="server", cwd="/other")))


async def test_another_machine_opens_what_was_withdrawn_on_a_first_one(store: Store) -> None:
    async with Broker(store) as broker:
        await broker.open(an_ask(id="q"))  # as it was asked before asks named their machine
        await broker.withdraw("q")
        again = await broker.open(an_ask(id="q", machine="server"))
        assert (again.how, again.stored.state) == ("reopened", "asked")


async def test_an_ask_over_http_names_the_machine_that_its_sender_named(tmp_path: Path) -> None:
    """A tunnel or a proxy makes everybody call by loopback, so the desk does not guess."""
    async with serving(tmp_path) as desk:
        assert "machine" not in (await desk.ask(id="unnamed"))["origin"]
        origin = {**a_body()["origin"], "machine": "laptop"}
        assert (await desk.ask(id="named", origin=origin))["origin"]["machine"] == "laptop"
        assert (await desk.answer("named", "Postgres"))["state"] == "answered"
        [line] = (await told(desk.http.get("/v1/audit"), 200))["lines"]
        assert line["machine"] == "laptop"


async def test_a_client_names_its_machine(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk, Client(desk.url, token=desk.token) as client:
        assert (await client.open(an_ask(id="q"))).origin.machine == HERE
        assert (await client.open(an_ask(id="r", machine="laptop"))).origin.machine == "laptop"


def test_a_machine_that_an_agent_names_stays() -> None:
    assert on_this_machine(an_ask(machine="laptop")).origin.machine == "laptop"
