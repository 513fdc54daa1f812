"""Skips the conversion of values that need none: typer does it with pydantic, which takes long to load."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

__all__ = ["take_as_they_are"]

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def take_as_they_are(parameters: list[Any]) -> list[Any]:
    """The parameters of a command, changed. What has to be converted or refused is left to typer, with its sentence."""
    for parameter in parameters:
        convert = getattr(parameter, "get_runtime_param", None)  # only of a typer that converts with pydantic
        if convert is None or isinstance(getattr(convert, "__self__", None), _Conversion):
            continue
        if parameter.type_descriptor.parameter_info.parser is None:
            parameter.get_runtime_param = _Conversion(parameter.type_descriptor, convert).itself
    return parameters


@dataclass(frozen=True, slots=True)
class _Conversion:
    """What typer asks for the value of a parameter."""

    described: Any
    otherwise: Callable[[], Any]  # gives typer's own

    def itself(self) -> _Conversion:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        kind = self.described.annotation
        if kind in (str, bool) and type(value) is kind:
            return value
        if get_origin(kind) is Literal and value in get_args(kind):
            return value
        if kind == list[str] and isinstance(value, list | tuple) and all(type(each) is str for each in value):
            return list(value)
        if kind is float and isinstance(value, str) and _NUMBER.fullmatch(value) and self._is_within(float(value)):
            return float(value)
        return self.otherwise().coerce(value, param=param, ctx=ctx)

    def _is_within(self, number: float) -> bool:
        info = self.described.parameter_info
        return (info.min is None or number >= info.min) and (info.max is None or number <= info.max)
