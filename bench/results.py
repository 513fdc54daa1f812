"""What a run measured, as records, and the medians and ratios taken from them; no text, no goals."""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

OURS, STORED, PROXY = "handraise", "peer-stored", "peer-proxy"


@dataclass(frozen=True)
class Sample:
    """One measurement of one server by the load client."""

    cycles_per_second: float
    visible_p50: float  # milliseconds, as are the three below
    visible_p99: float
    woken_p50: float
    woken_p99: float
    cpu: dict[str, float]  # percent of one core: server, agents, client, others
    memory_mb: float
    lost: int  # cycles that never finished
    late: int  # paced cycles that started after they were due

    @property
    def server_ms_per_cycle(self) -> float:
        """Processor time of the server; unlike the rates, little moved by what else the machine does."""
        return self.cpu["server"] * 10 / self.cycles_per_second if self.cycles_per_second else 0.0

    @classmethod
    def from_json(cls, message: dict[str, Any]) -> "Sample":
        return cls(
            cycles_per_second=message["cycles_per_second"],
            visible_p50=message["visible_ms"]["p50"],
            visible_p99=message["visible_ms"]["p99"],
            woken_p50=message["woken_ms"]["p50"],
            woken_p99=message["woken_ms"]["p99"],
            cpu=message["cpu_percent"],
            memory_mb=message["memory_mb"],
            lost=message["lost"],
            late=message["late"],
        )


@dataclass(frozen=True)
class Held:
    """Many asks that nobody answers, and how fast one of them is told when somebody does."""

    asks: int
    opened_per_second: float
    memory_mb: float
    wake_p50: float
    wake_p99: float
    lost: int

    @classmethod
    def from_json(cls, message: dict[str, Any]) -> "Held":
        return cls(
            asks=message["asks"],
            opened_per_second=message["opened_per_second"],
            memory_mb=message["memory_mb"],
            wake_p50=message["wake_ms"]["p50"],
            wake_p99=message["wake_ms"]["p99"],
            lost=message["lost"],
        )


@dataclass
class Results:
    """One entry per round in every list."""

    rounds: int
    seconds: float
    cycles: dict[tuple[str, int], list[Sample]] = field(default_factory=dict)  # (server, sessions)
    paced: list[Sample] = field(default_factory=list)
    crowded: list[Sample] = field(default_factory=list)  # many listeners
    in_process: dict[str, list[float]] = field(default_factory=dict)  # "broker", "store": cycles/s
    held: Held | None = None

    def add(self, server: str, sessions: int, sample: Sample) -> None:
        self.cycles.setdefault((server, sessions), []).append(sample)

    def middle(self, server: str, sessions: int, value: Callable[[Sample], float]) -> float | None:
        return middle(self.cycles.get((server, sessions), []), value)

    def rates(self, server: str, sessions: int) -> list[float]:
        return [sample.cycles_per_second for sample in self.cycles.get((server, sessions), [])]

    def everything(self) -> list[Sample]:
        return [*self.paced, *self.crowded, *(sample for samples in self.cycles.values() for sample in samples)]


def middle(samples: list[Sample], value: Callable[[Sample], float]) -> float | None:
    return median(map(value, samples)) if samples else None


def ratio(ours: list[float], theirs: list[float]) -> float | None:
    """The median of the rounds' own ratios: what drifts between rounds cancels out."""
    pairs = list(zip(ours, theirs, strict=False))
    return median(our / their for our, their in pairs) if pairs else None
