"""What several test files share. Fakes come from `handraise.testing`, whose fixtures pytest finds by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from handraise.stores import Store
from handraise.stores.sqlite import MEMORY, SqliteStore


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store in memory, then the same test again with one on disk."""
    opened = await SqliteStore.open_file(MEMORY if request.param == "memory" else tmp_path / "desk.db")
    yield opened
    await opened.close()
