"""The versions for development: each requirement is pinned once, and fits what is asked for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ASKED = [
    *PROJECT["project"]["dependencies"],
    *PROJECT["dependency-groups"]["dev"],
    *PROJECT["dependency-groups"]["bench"],
]
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
PINNED = dict(line.split("==") for line in LINES)


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_asked_for_is_pinned_to_a_version_that_fits(asked: str) -> None:
    requirement = Requirement(asked)
    assert requirement.specifier.contains(PINNED[canonicalize_name(requirement.name)]), "run `make lock`"


def test_the_lock_has_names_and_versions_and_nothing_else() -> None:
    assert len(PINNED) == len(LINES) and sorted(LINES) == LINES
    assert all(re.fullmatch(r"[a-z0-9.-]+==[0-9][0-9a-z.+!]*", line) for line in LINES)


@pytest.mark.parametrize("name", ["httpx2", "pydantic", "starlette", "htpy", "mcp", "apprise", "pydantic-ai-slim"])
def test_what_broke_with_a_major_version_before_has_an_upper_bound(name: str) -> None:
    extras = [each for group in PROJECT["project"]["optional-dependencies"].values() for each in group]
    for asked in map(Requirement, [*ASKED, *extras]):
        if asked.name == name:
            assert any(bound.operator == "<" for bound in asked.specifier), asked
