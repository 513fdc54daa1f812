"""Somebody who has looked at a project of a test, and trusts it."""

from __future__ import annotations

from pathlib import Path

from handraise.config import load
from handraise.trust import Trust
from handraise.trust.project import parts_here

__all__ = ["trust_project"]


def trust_project(folder: Path, *, home: Path, config: Path | None = None) -> None:
    """Trust all of the project around a folder, as `handraise trust` does, for the desk of this home.

    `config` is the folder that holds the settings of the person, where they have any.
    """
    environ = {"HANDRAISE_HOME": str(home), "XDG_CONFIG_HOME": str(config or home / "no-config")}
    settings = load(environ, cwd=folder)
    parts, problems = parts_here(folder, settings)
    assert not problems, problems
    Trust(settings.trust_file).add(parts)
    assert not load(environ, cwd=folder).untrusted
