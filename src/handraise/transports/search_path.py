"""The folders in which programs are looked for: never those that lead into a project that somebody just downloaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["safe_path", "search_places"]

_MARKS = ("handraise.toml", ".git", ".hg", ".jj")


def safe_path(env: Mapping[str, str]) -> str:
    """The PATH for a program that runs in anybody's folder: without the places that lead into a project. It is never
    empty, which would mean the folder itself."""
    return os.pathsep.join(search_places(env)[0]) or os.defpath


def search_places(env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The folders of the PATH that programs are taken from, and those of the project."""
    path = env.get("PATH") or os.defpath
    places = path.split(os.pathsep)
    if path != os.environ.get("PATH", os.defpath):
        return places, []  # of the settings: the user's own, or of a project that is trusted
    root = _project()
    outside = [place for place in places if Path(place).is_absolute() and not _is_inside(place, root)]
    return outside, [place for place in places if place not in outside]


def _project() -> str | None:
    """The project that we are in: the nearest folder with settings or under version control, else the working folder.
    Neither a home nor what lies above it is one."""
    try:
        cwd = Path(os.path.realpath(Path.cwd()))
    except OSError:
        return None
    home = Path(os.path.realpath(Path.home()))
    marked = (place for place in (cwd, *cwd.parents) if any((place / mark).exists() for mark in _MARKS))
    root = next((place for place in marked if not home.is_relative_to(place)), cwd)
    return None if home.is_relative_to(root) else str(root)


def _is_inside(place: str, root: str | None) -> bool:
    return root is not None and Path(os.path.realpath(place)).is_relative_to(root)
