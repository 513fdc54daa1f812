"""What stands beside a field of a shape: its meaning, its limits, and the types that many shapes share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

__all__ = ["NO_CONTROLS", "OR_NULL", "Count", "Doc", "Limits", "Name", "Seconds", "Time", "Url"]

NO_CONTROLS = r"^[^\x00-\x1f\x7f]+$"


class Doc(NamedTuple):
    """The meaning of a field, for the schema and the reference."""

    text: str
    examples: tuple[str, ...] = ()  # of values, where more may come


class Format(NamedTuple):
    """The `format` of a text, as JSON Schema names it."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a value has to keep to. pydantic checks it in a body: to pydantic this is a group of its own annotations."""

    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    allow_inf_nan: bool | None = None

    __is_annotated_types_grouped_metadata__: ClassVar = True

    def __iter__(self) -> Iterator[Any]:
        from pydantic import Field  # start-up time: commands read shapes and check no body

        given = {name: limit for name, limit in asdict(self).items() if limit is not None}
        yield from Field(**given).metadata


class OrNull(NamedTuple):
    """The value of a field that may be left out may also be null."""


OR_NULL = OrNull()

Time = Annotated[str, Format("date-time")]  # RFC 3339 in UTC with milliseconds
Url = Annotated[str, Format("uri")]
Count = Annotated[int, Limits(ge=0)]
Seconds = Annotated[float, Limits(gt=0, le=31_536_000, allow_inf_nan=False)]  # at most a year
Name = Annotated[str, Limits(min_length=1, max_length=200)]
