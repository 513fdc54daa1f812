"""Members of a family by name: our own module of that name, else an entry point that somebody installed."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

from handraise.errors import PluginNotFound

__all__ = ["load", "names"]


def load(family: str, name: str) -> Any:
    """What the member of that name gives as `plugin`. Raises PluginNotFound with the names there are.

    A stranger's is an entry point of the group `handraise.FAMILY`, loaded the same way.
    """
    if name.isidentifier() and not name.startswith("_") and find_spec(f"handraise.{family}.{name}") is not None:
        plugin = getattr(import_module(f"handraise.{family}.{name}"), "plugin", None)
        if plugin is not None:
            return plugin
    for entry in entry_points(group=f"handraise.{family}", name=name):
        return entry.load()
    raise PluginNotFound(
        f"{family}: no {name!r}; there are {', '.join(names(family))}", family=family, name=name, names=names(family)
    )


def names(family: str) -> list[str]:
    """Every member that can be loaded."""
    package = import_module(f"handraise.{family}")
    ours = {module.name for module in iter_modules(package.__path__) if not module.name.startswith("_")}
    return sorted(ours | {entry.name for entry in entry_points(group=f"handraise.{family}")})
