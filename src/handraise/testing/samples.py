"""Asks to test with. Called twice with the same arguments they are the same ask, so the second one joins."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from handraise.asks import Ask, Option, Origin, Permission, Question, Scope

__all__ = ["a_permission", "an_ask"]

_ORIGIN = {field.name for field in fields(Origin)} - {"extra"}
_PERMISSION = {field.name for field in fields(Permission)} - {"extra"}


def an_ask(**changes: Any) -> Ask:
    """One question with two options. `changes` are fields of the ask or of its origin (`session=`, `run=`, ...)."""
    question = Question(
        "Which database should I use?",
        (Option("SQLite", description="one file"), Option("Postgres", description="many machines")),
        header="Database",
    )
    origin = Origin(**{"agent": "scripted", "session": "s1", **_taken(changes, _ORIGIN)})
    return replace(Ask(id="ask-1", questions=(question,), origin=origin), **changes)


def a_permission(**changes: Any) -> Ask:
    """An ask for a permission. `changes` are fields of the permission, of its origin, or of the ask."""
    permission = Permission(
        tool="Bash",
        summary="Remove the build folder",
        command="rm -rf build",
        replies=("once", "always", "reject"),
        scopes=(Scope(id="session", label="this session", patterns=("rm -rf build", "rm *")),),
    )
    permission = replace(permission, **_taken(changes, _PERMISSION))
    origin = Origin(**{"agent": "scripted", "session": "s1", **_taken(changes, _ORIGIN)})
    return replace(Ask(id="permission-1", permission=permission, origin=origin), **changes)


def _taken(changes: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: changes.pop(name) for name in names & changes.keys()}
