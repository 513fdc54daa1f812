"""What an agent may do, in one vocabulary. What each mode becomes for an agent is in that agent's own `modes.py`.

Two of the words are promises, whoever says yes: in `read-only` nothing can be changed, in `workspace-write` only the
working folder. An agent that cannot be kept to one of them does not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from handraise.asks import Mode
from handraise.errors import SettingsError

__all__ = ["MODES", "Modes"]

MODES: Mapping[Mode, str] = {
    "default": "the agent asks as it does by itself",
    "accept-edits": "files in the working folder are changed without asking",
    "bypass": "no permission is asked for; questions still are",
    "plan": "it looks and plans, and asks before it changes anything",
    "read-only": "nothing can be changed",
    "workspace-write": "only the working folder can be changed",
    "full-access": "everything can be changed, and nothing is asked for",
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes(Generic[T]):
    """The modes that one agent has. An adapter exports them as `modes`."""

    agent: str
    become: Mapping[Mode, T]  # what each is in the agent's own words
    others: str = ""  # why it does not have the other ones
    describe: Callable[[T], str] = str  # what one becomes, as Markdown for the reference page

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(mode for mode in MODES if mode in self.become)

    def of(self, mode: Mode | None) -> T | None:
        """None where no mode was chosen."""
        return None if mode is None else self.become.get(mode)

    def check(self, mode: str | None) -> None:
        """Raises SettingsError where the agent cannot be kept to that mode."""
        if mode is None or mode in self.become:
            return
        why = f": {self.others}" if mode in MODES and self.others else ""
        raise SettingsError(f"{self.agent} has no mode {mode!r}{why}; choose one of: {', '.join(self.names)}")
