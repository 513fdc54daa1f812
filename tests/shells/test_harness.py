"""The recorders record: a check that sees nothing would find nothing wrong."""

from __future__ import annotations

import os

import pytest

from tests.shells.install import SHELLS, WITHOUT
from tests.shells.lines import lines, may_run
from tests.shells.running import Shells


@pytest.mark.skipif(os.environ.get(WITHOUT) == "1", reason=f"{WITHOUT}=1")
def test_every_shell_tells_what_it_ran_and_wrote() -> None:
    with Shells() as shells:
        both, written, wrong = shells.run(["rm 'a b' && cat ~/x", "cat x > f", "cat 'x"])
    assert [ran.shell for ran in both] == list(SHELLS)
    assert all(ran.commands == (("rm", "a b"), ("cat", "~/x")) and not ran.files for ran in both)
    assert all(ran.commands == (("cat", "x"),) and ran.files == ("f",) for ran in written)
    assert all(not ran.commands for ran in wrong)


@pytest.mark.parametrize(
    "line",
    [
        "/bin/rm x",
        "''/bin/rm x",
        "cat x; /b?n/rm y",
        "$x/bin/rm",
        "cat ../../x",
        "cat > ~root/x",
        "./../bin/rm",
        "a\0b",
    ],
)
def test_a_line_that_could_reach_a_real_program_or_file_is_never_run(line: str) -> None:
    assert not may_run(line)


def test_the_same_seed_makes_the_same_lines() -> None:
    assert list(lines(7, 900)) == list(lines(7, 900)) != list(lines(8, 900))
