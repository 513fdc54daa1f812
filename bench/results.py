"""What a run measured, as records, and the medians and ratios taken from them; no text, no goals."""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

SQLITE, POSTGRES = "sqlite", "postgres"  # our desk, by the store it has
OURS = (SQLITE, POSTGRES)
STORED, PROXY = "peer-stored", "peer-proxy"


@dataclass(frozen=True)
class Sample:
    """One measurement of one server by the load client."""

    cycles_per_second: float
    visible_p50: float  # milliseconds, as are the three below
    visible_p99: float
    woken_p50: float
    woken_p99: float
    cpu: dict[str, float]  # percent of one core: server, agents, client, others; database and listeners if there are
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
    """Many asks that nobody answers, and how fast one of them is told when somebody does; then after a kill -9."""

    asks: int
    workers: int
    opened_per_second: float
    memory_mb: float
    wake_p50: float
    wake_p99: float
    ready_again_after: float  # seconds
    memory_again_mb: float
    wake_again_p50: float
    wake_again_p99: float
    lost: int

    @classmethod
    def from_json(cls, first: dict[str, Any], again: dict[str, Any], *, ready_again_after: float) -> "Held":
        return cls(
            asks=first["asks"],
            workers=first["workers"],
            opened_per_second=first["opened_per_second"],
            memory_mb=first["memory_mb"],
            wake_p50=first["wake_ms"]["p50"],
            wake_p99=first["wake_ms"]["p99"],
            ready_again_after=ready_again_after,
            memory_again_mb=again["memory_mb"],
            wake_again_p50=again["wake_ms"]["p50"],
            wake_again_p99=again["wake_ms"]["p99"],
            lost=again["lost"],
        )


@dataclass
class Results:
    """One entry per round in every list."""

    rounds: int
    seconds: float
    cycles: dict[tuple[str, int], list[Sample]] = field(default_factory=dict)  # (server, sessions)
    paced: dict[str, list[Sample]] = field(default_factory=dict)  # by our store
    crowded: dict[tuple[str, int], list[Sample]] = field(default_factory=dict)  # (our store, listeners)
    in_process: dict[tuple[str, str], list[float]] = field(default_factory=dict)  # (our store, level): cycles/s
    grown: dict[tuple[str, int, int], list[Sample]] = field(default_factory=dict)  # (our store, events, sessions)
    two_desks: dict[str, list[Sample]] = field(default_factory=dict)  # by load
    held: dict[str, Held] = field(default_factory=dict)  # by our store, once
    incomplete_listeners: int = 0

    def rates(self, server: str, sessions: int) -> list[float]:
        return rates(self.cycles.get((server, sessions), []))

    def kept(self, store: str, *, sessions: int, few: int, many: int) -> float | None:
        """What share of its cycles/s a store keeps when it grows from few to many events."""
        return ratio(
            rates(self.grown.get((store, many, sessions), [])), rates(self.grown.get((store, few, sessions), []))
        )

    def listeners_cost(self, store: str, listeners: int) -> float | None:
        """What share of its cycles/s a desk keeps with so many listeners instead of one."""
        return ratio(rates(self.crowded.get((store, listeners), [])), rates(self.crowded.get((store, 1), [])))

    def everything(self) -> list[Sample]:
        return [*self._of_the_peer(), *self._of_ours()]

    @property
    def lost(self) -> int:
        """What a desk of ours lost, which it never may: cycles, waiting asks and their answers, events of listeners."""
        return (
            sum(sample.lost for sample in self._of_ours())
            + sum(held.lost for held in self.held.values())
            + self.incomplete_listeners
        )

    @property
    def lost_by_the_peer(self) -> int:
        return sum(sample.lost for sample in self._of_the_peer())

    def _of_the_peer(self) -> list[Sample]:
        return [sample for (server, _), samples in self.cycles.items() if server not in OURS for sample in samples]

    def _of_ours(self) -> list[Sample]:
        groups: list[list[Sample]] = [
            *(samples for (server, _), samples in self.cycles.items() if server in OURS),
            *self.paced.values(),
            *self.crowded.values(),
            *self.grown.values(),
            *self.two_desks.values(),
        ]
        return [sample for samples in groups for sample in samples]


def rates(samples: list[Sample]) -> list[float]:
    return [sample.cycles_per_second for sample in samples]


def middle(samples: list[Sample], value: Callable[[Sample], float]) -> float | None:
    return median(map(value, samples)) if samples else None


def ratio(ours: list[float], theirs: list[float]) -> float | None:
    """The median of the rounds' own ratios: what drifts between rounds cancels out."""
    pairs = list(zip(ours, theirs, strict=False))
    return median(our / their for our, their in pairs) if pairs else None
