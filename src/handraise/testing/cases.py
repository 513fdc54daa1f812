"""How a contract suite runs: small named cases, all of them tried, and a report that says which one failed and why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = ["PATIENCE", "Case", "Report", "run_cases"]

T_contra = TypeVar("T_contra", contravariant=True)
T = TypeVar("T")

PATIENCE = 5.0  # seconds a case may take, unless said otherwise


class Case(Protocol[T_contra]):
    """A function whose name is the sentence that the report shows."""

    __name__: str

    def __call__(self, subject: T_contra, /) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a suite found. `cannot` has the cases that were declared impossible, each with the reason given."""

    suite: str
    passed: tuple[str, ...]
    cannot: Mapping[str, str]

    def __str__(self) -> str:
        lines = [f"{self.suite}: {len(self.passed)} passed, {len(self.cannot)} declared impossible"]
        return "\n  ".join([*lines, *(f"{name}: cannot, {why}" for name, why in self.cannot.items())])


async def run_cases(
    suite: str,
    cases: Sequence[Case[T]],
    fresh: Callable[[], AbstractAsyncContextManager[T]],
    *,
    cannot: Mapping[str, str],
    patience: float = PATIENCE,
) -> Report:
    """Try every case on something fresh. Raises one AssertionError that names each case that failed."""
    named = {case.__name__.replace("_", " "): case for case in cases}
    unknown = sorted(cannot.keys() - named)
    assert not unknown, f"{suite}: `cannot` names {unknown[0]!r}, which is no case; the cases are: {', '.join(named)}"
    assert all(cannot.values()), f"{suite}: give a reason for everything in `cannot`"
    failures: dict[str, Exception] = {}
    for name, case in named.items():
        if name not in cannot:
            try:
                async with asyncio.timeout(patience), fresh() as subject:
                    await case(subject)
            except Exception as failure:
                failures[name] = failure
    if failures:
        lines = [f"{suite}: {len(failures)} of {len(named)} cases failed"]
        lines += [f"{name}: {'; '.join(_said(failure))}" for name, failure in failures.items()]
        raise AssertionError("\n  ".join(lines)) from next(iter(failures.values()))
    return Report(suite=suite, passed=tuple(name for name in named if name not in cannot), cannot=dict(cannot))


def _said(failure: BaseException) -> Iterator[str]:
    if isinstance(failure, BaseExceptionGroup):
        for inner in failure.exceptions:
            yield from _said(inner)
    elif isinstance(failure, TimeoutError):
        yield "it took too long"
    elif isinstance(failure, AssertionError):
        yield str(failure) or "an assertion without words"
    else:
        yield f"{type(failure).__name__}: {failure}"
