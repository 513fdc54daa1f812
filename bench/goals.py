"""The goals of handraise's speed and what a run says about each; the numbers are promises, not measurements."""

from collections.abc import Callable
from dataclasses import dataclass

from results import OURS, PROXY, STORED, Results, Sample, middle, ratio

# "at least" and "aim for" at 1, 50 and 1,000 sessions.
AGAINST_STORED = {1: (1.3, 1.8), 50: (4.0, 7.0), 1000: (5.0, 8.0)}
AGAINST_PROXY = {1: (0.3, 0.45), 50: (0.5, 0.9), 1000: (0.5, 0.85)}


@dataclass(frozen=True)
class Goal:
    what: str
    at_least: float
    aim_for: float
    measured: float | None
    unit: str = ""  # none: a ratio, where more is better; with a unit, less is

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        if self._reaches(self.aim_for):
            return "met, aim too"
        return "met" if self._reaches(self.at_least) else "NOT MET"

    @property
    def missed(self) -> bool:
        return self.measured is not None and not self._reaches(self.at_least)

    def _reaches(self, bound: float) -> bool:
        assert self.measured is not None
        return self.measured <= bound if self.unit else self.measured >= bound


def goals(results: Results) -> list[Goal]:
    def alone(value: Callable[[Sample], float]) -> float | None:
        return results.middle(OURS, 1, value)

    def against(server: str, sessions: int) -> float | None:
        return ratio(results.rates(OURS, sessions), results.rates(server, sessions))

    ours_at_50 = results.rates(OURS, 50)
    broker, store = results.in_process.get("broker", []), results.in_process.get("store", [])
    crowded = [sample.cycles_per_second for sample in results.crowded]
    held = results.held
    return [
        *(
            Goal(f"cycles/s ÷ peer's stored path, {session_count(count)}", *bounds, against(STORED, count))
            for count, bounds in AGAINST_STORED.items()
        ),
        *(
            Goal(f"cycles/s ÷ peer's stateless proxy, {session_count(count)}", *bounds, against(PROXY, count))
            for count, bounds in AGAINST_PROXY.items()
        ),
        Goal("ask → visible, p50, alone", 1, 0.6, alone(lambda sample: sample.visible_p50), "ms"),
        Goal("answer → waiter woken, p50, alone", 1.2, 0.7, alone(lambda sample: sample.woken_p50), "ms"),
        Goal(
            "paced 1,000 cycles/s: ask → visible, p99",
            15,
            8,
            middle(results.paced, lambda sample: sample.visible_p99),
            "ms",
        ),
        Goal(
            "paced 1,000 cycles/s: answer → waiter woken, p99",
            15,
            8,
            middle(results.paced, lambda sample: sample.woken_p99),
            "ms",
        ),
        Goal("HTTP ÷ in-process broker, 50 sessions", 0.4, 0.55, ratio(ours_at_50, broker)),
        Goal("in-process broker ÷ bare store, 50 sessions", 0.5, 0.7, ratio(broker, store)),
        Goal("100,000 waiting asks: memory", 300, 100, held.memory_mb if held else None, "MB"),
        Goal("100,000 waiting asks: wake, p99", 10, 5, held.wake_p99 if held else None, "ms"),
        Goal("100 listeners ÷ one listener, cycles/s", 0.6, 0.8, ratio(crowded, ours_at_50)),
    ]


def session_count(count: int) -> str:
    return "1 session" if count == 1 else f"{count:,} sessions"
