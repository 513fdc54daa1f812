"""What programs that speak ACP do each in their own way: how they are started, and how they want to be answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from handraise.asks import Mode
from handraise.modes import TABLE

__all__ = ["PRESETS", "Preset", "Quirks", "command_of", "mode_of", "names_of", "quirks_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """How one agent differs from what the protocol says. The defaults are the protocol."""

    cancels_on_reject: bool = False  # a reject option ends its turn; `cancelled` refuses the call alone
    takes_notes: bool = False  # the text beside a choice is a note to the choice where there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    command: tuple[str, ...]
    quirks: Quirks = field(default_factory=Quirks)


PRESETS: Mapping[str, Preset] = {
    "gemini": Preset(command=("gemini", "--acp")),
    "qwen": Preset(command=("qwen", "--acp")),
    "copilot": Preset(command=("copilot", "--acp"), quirks=Quirks(cancels_on_reject=True)),  # seen in 1.0.102
    "claude-agent-acp": Preset(command=("claude-agent-acp",), quirks=Quirks(takes_notes=True)),  # seen in 0.99.1
    "codex-acp": Preset(command=("codex-acp",)),
}


def command_of(command: Sequence[str]) -> tuple[str, ...]:
    """What is started: the name of a preset alone stands for its whole command."""
    preset = PRESETS.get(command[0]) if len(command) == 1 else None
    return preset.command if preset is not None else tuple(command)


def quirks_of(names: Iterable[str]) -> Quirks:
    """By what an agent calls itself, and by its program where it says nothing: the first name that is known."""
    for name in names:
        for key, preset in PRESETS.items():
            if key in name.lower():
                return preset.quirks
    return Quirks()


def names_of(info: object, command: Sequence[str]) -> list[str]:
    """What `quirks_of` goes by: the name in `agentInfo`, else the words of the command."""
    name = info.get("name") if isinstance(info, Mapping) else None
    return [name] if isinstance(name, str) and name else [Path(word).name for word in command]


def mode_of(wanted: Mode, offered: Iterable[str]) -> str | None:
    """The agent's own id for a mode of ours, None where it has none."""
    ids = {_spelled(id): id for id in offered}
    names = map(_spelled, TABLE[wanted].acp or ())
    return next((ids[name] for name in names if name in ids), None)


def _spelled(id: str) -> str:
    """`autoEdit` of one is `auto-edit` of another. Copilot's ids are addresses whose fragment is the name."""
    return id.rpartition("#")[2].replace("-", "").replace("_", "").lower()
