"""What each mode becomes over ACP: what programs call a mode of their own that is like it."""

from __future__ import annotations

from collections.abc import Iterable

from handraise.agents._modes import Modes
from handraise.asks import Mode

__all__ = ["MODES", "mode_of"]

MODES: Modes[tuple[str, ...]] = Modes(  # the first one offered counts
    agent="acp",
    others="what a program calls so may still ask, and do it once somebody says yes",
    describe=lambda names: "its mode " + " or ".join(f"`{name}`" for name in names),
    become={
        "default": ("default",),
        "accept-edits": ("acceptEdits", "autoEdit"),
        "bypass": ("bypassPermissions", "yolo"),
        "plan": ("plan",),
        "full-access": ("fullAccess", "bypassPermissions", "yolo"),
    },
)


def mode_of(wanted: Mode, offered: Iterable[str]) -> str | None:
    """The agent's own id for a mode of ours, None where it has none."""
    ids = {_spell(id): id for id in offered}
    names = map(_spell, MODES.of(wanted) or ())
    return next((ids[name] for name in names if name in ids), None)


def _spell(id: str) -> str:
    """`autoEdit` of one is `auto-edit` of another. Copilot's ids are addresses whose fragment is the name."""
    return id.rpartition("#")[2].replace("-", "").replace("_", "").lower()
