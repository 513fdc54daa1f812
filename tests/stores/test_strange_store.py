"""A store from another package: an entry point, and an address that begins with its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from handraise.app import look_at, open_store
from handraise.broker import Broker
from handraise.errors import SettingsError
from handraise.testing import an_ask

STORE = """
from handraise.stores import Seen
from handraise.stores.sqlite import MEMORY, SqliteStore


class Ledger:
    async def open_address(self, address):
        return await SqliteStore.open_file(MEMORY)

    async def look(self, address):
        return Seen(address, address, None)


plugin = Ledger()
"""


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address that the store of another package opens."""
    about = tmp_path / "ledger_store-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ledger-store\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[handraise.stores]\nledger = ledger_store:plugin\n")
    (tmp_path / "ledger_store.py").write_text(STORE)
    monkeypatch.syspath_prepend(tmp_path)
    return "ledger://books"


async def test_it_is_opened_like_ours(ledger: str) -> None:
    assert (await look_at(ledger)).shown == ledger
    store = await open_store(ledger)
    async with Broker(store) as broker:
        await broker.open(an_ask(id="q"))
        assert (await broker.get("q")).state == "asked"
    await store.close()


@pytest.mark.parametrize("address", ["abacus://books", "__init__://x", "_asks://x", "../sqlite://x", "", "sqlite"])
async def test_an_address_of_no_store_says_what_one_is(address: str) -> None:
    with pytest.raises(SettingsError, match=r"sqlite:///path/to/desk\.db"):
        await open_store(address)
