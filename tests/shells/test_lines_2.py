"""Half of the lines, so that both halves run at the same time."""

from __future__ import annotations

import os

import pytest

from tests.shells.checking import check, seeds_of
from tests.shells.install import WITHOUT


@pytest.mark.skipif(os.environ.get(WITHOUT) == "1", reason=f"{WITHOUT}=1")
def test_every_shell_runs_what_was_read_and_nothing_else() -> None:
    seed, count = seeds_of()
    counts = check(seed=2 * seed + 1, count=count // 2)
    print(f"seed {seed}: {dict(counts)}")
    assert counts["run"] > count // 40
    assert counts["allow"] > count // 40
