"""What programs that speak ACP do each in their own way: how they are started, and how they want to be answered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PRESETS", "Preset", "Quirks", "command_of", "quirks_of"]

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """How one agent differs from what the protocol says. The defaults are the protocol."""

    cancels_on_reject: bool = False  # a reject option ends its turn; `cancelled` refuses the call alone
    takes_notes: bool = False  # the text beside a choice is a note to the choice where there is one
    title_is_command: bool = False  # it sends no input, and the title of a command is the command, exactly
    arguments_in_content: bool = False  # it sends no input when it asks; the call before has it as JSON in its content


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    command: tuple[str, ...]
    quirks: Quirks = field(default_factory=Quirks)
    # Where its commands are found otherwise than the protocol says, in the agent that calls itself exactly `name` and
    # is not older than `since`. By another name or in an older version those are the model's words.
    name: str = ""
    since: tuple[int, ...] = ()
    reading: Quirks | None = None


PRESETS: Mapping[str, Preset] = {
    "gemini": Preset(
        command=("gemini", "--acp"), name="gemini-cli", since=(0, 61, 0), reading=Quirks(title_is_command=True)
    ),
    "qwen": Preset(command=("qwen", "--acp")),
    "copilot": Preset(command=("copilot", "--acp"), quirks=Quirks(cancels_on_reject=True)),  # seen in 1.0.102
    "claude-agent-acp": Preset(command=("claude-agent-acp",), quirks=Quirks(takes_notes=True)),  # seen in 0.99.1
    "codex-acp": Preset(command=("codex-acp",)),
    "kimi": Preset(
        command=("kimi", "acp"), name="Kimi Code CLI", since=(2, 1, 0), reading=Quirks(arguments_in_content=True)
    ),
}


def command_of(command: Sequence[str]) -> tuple[str, ...]:
    """What is started: the name of a preset alone stands for its whole command."""
    preset = PRESETS.get(command[0]) if len(command) == 1 else None
    return preset.command if preset is not None else tuple(command)


def quirks_of(info: object, command: Sequence[str]) -> Quirks:
    """By what an agent calls itself in `agentInfo`, and by its program where it says nothing."""
    for preset in PRESETS.values():
        if preset.reading is not None and _is_certainly(preset, info):
            return preset.reading
    for name in _names_of(info, command):
        for key, preset in PRESETS.items():
            if key in name.lower():
                return preset.quirks
    return Quirks()


def _is_certainly(preset: Preset, info: object) -> bool:
    if not isinstance(info, Mapping) or info.get("name") != preset.name:
        return False
    numbers = _VERSION.match(str(info.get("version") or ""))
    return numbers is not None and tuple(map(int, numbers.groups())) >= preset.since


def _names_of(info: object, command: Sequence[str]) -> list[str]:
    name = info.get("name") if isinstance(info, Mapping) else None
    return [name] if isinstance(name, str) and name else [Path(word).name for word in command]
