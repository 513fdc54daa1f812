"""Members of a family by name: our own module of that name, else an entry point that somebody installed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handraise.errors import PluginNotFound

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

__all__ = ["files", "load", "names"]

log = logging.getLogger(__name__)


def load(family: str, name: str) -> Any:
    """What the member of that name gives as `plugin`. Raises PluginNotFound with the names there are.

    A stranger's is an entry point of the group `handraise.FAMILY`, loaded the same way. Of a family in a room, such as
    `server.routes`, the group is `handraise.routes`.
    """
    module = f"handraise.{family}.{name}"
    if name.isidentifier() and not name.startswith("_") and find_spec(module) is not None:
        plugin = getattr(import_module(module), "plugin", None)
        if plugin is not None:
            return plugin
    for entry in _strangers(family).select(name=name):
        return entry.load()
    raise PluginNotFound(
        f"{family}: no {name!r}; there are {', '.join(names(family))}", family=family, name=name, names=names(family)
    )


def names(family: str) -> list[str]:
    """Every member that can be loaded."""
    from pkgutil import iter_modules  # for start-up time

    package = import_module(f"handraise.{family}")
    ours = {module.name for module in iter_modules(package.__path__) if not module.name.startswith("_")}
    return sorted(ours | {entry.name for entry in _strangers(family)})


def files(family: str, name: str) -> list[Path]:
    """The data files of that name in the folders of all members, ours first. No member is loaded for it."""
    found = [folder / name for folder in [*_own_folders(family), *_other_folders(family)]]
    return [path for path in found if path.is_file()]


def _own_folders(family: str) -> Iterator[Path]:
    spec = find_spec(f"handraise.{family}")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from sorted(folder for folder in Path(place).iterdir() if not folder.name.startswith("_"))


def _other_folders(family: str) -> Iterator[Path]:
    """The package that an entry point names, or the one that its module lies in."""
    for entry in _strangers(family):
        try:
            spec = find_spec(entry.module)
        except Exception as broken:  # the package around it is somebody else's code
            log.error("the package of %s in handraise.%s cannot be found: %s", entry.name, family, broken)
            continue
        if spec is None:
            continue
        if spec.submodule_search_locations is not None:
            yield from map(Path, spec.submodule_search_locations)
        elif spec.parent and spec.origin is not None:
            yield Path(spec.origin).parent


def _strangers(family: str) -> EntryPoints:
    from importlib.metadata import entry_points  # for start-up time

    return entry_points(group=f"handraise.{family.rpartition('.')[2]}")
