"""Conversations with a model that has the `question` tool.

`contract.py` is the tool and its block, `transcript.py` what is kept, `writing.py` one reply of a model, `runtime.py`
who writes when. The model library is an extra and is read when the first reply is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["APIS", "KEYS", "Api", "ChatSettings", "ModelTable"]

Api = Literal["openai", "anthropic"]
APIS: tuple[Api, ...] = ("openai", "anthropic")
KEYS: Mapping[Api, str] = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}  # unless a table names another


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTable:
    """`[models.NAME]` of the settings: a model and where it is."""

    api: Api
    model: str  # as the server calls it
    url: str | None = None  # without one, that of the API's own house
    key_env: str | None = None  # the name of the environment variable that holds the key


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """`[chat]` of the settings. The first model is the one that a chat has unless it names another."""

    models: Mapping[str, ModelTable] = field(default_factory=dict)
    model: str | None = None
    instructions: str = ""
    tools: tuple[str, ...] = ()  # functions, as in `package.module:function`

    @property
    def default(self) -> str | None:
        return self.model or next(iter(self.models), None)
