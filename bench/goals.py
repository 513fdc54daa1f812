"""The goals of handraise's speed and what a run says about each; the numbers are promises, not measurements."""

from collections.abc import Callable
from dataclasses import dataclass

from results import POSTGRES, PROXY, SQLITE, STORED, Held, Results, Sample, middle, ratio

# "at least" and "aim for" at 1, 50 and 1,000 sessions.
AGAINST_STORED = {1: (1.3, 1.8), 50: (4.0, 7.0), 1000: (5.0, 8.0)}
AGAINST_PROXY = {1: (0.3, 0.45), 50: (0.5, 0.9), 1000: (0.5, 0.85)}
WAITING = 100_000  # asks
FEW_EVENTS, MANY_EVENTS = 1_000, 1_000_000
FLAT = 0.8  # the share of cycles/s that a store has to keep
# Loads of two desks on one database. In the last every session has its next question ready at once, so that latency is
# the queue of the others and no goal.
TWO_DESKS_ALONE, TWO_DESKS_PACED, TWO_DESKS_FULL = "1 session", "paced 200/s", "50 sessions"


@dataclass(frozen=True)
class Goal:
    """Held against SQLite, with PostgreSQL beside it, unless it is about several desks."""

    what: str
    at_least: float
    aim_for: float | None
    sqlite: float | None = None
    postgres: float | None = None
    unit: str = ""  # none: a ratio, where more is better; with a unit, less is
    of: str = SQLITE

    @property
    def measured(self) -> float | None:
        return self.sqlite if self.of == SQLITE else self.postgres

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        if self.aim_for is not None and self._reaches(self.aim_for):
            return "met, aim too"
        return "met" if self._reaches(self.at_least) else "NOT MET"

    @property
    def missed(self) -> bool:
        return self.measured is not None and not self._reaches(self.at_least)

    def _reaches(self, bound: float) -> bool:
        assert self.measured is not None
        return self.measured <= bound if self.unit else self.measured >= bound


def goals(results: Results) -> list[Goal]:
    def goal(
        what: str, at_least: float, aim_for: float | None, value: Callable[[str], float | None], unit: str = ""
    ) -> Goal:
        return Goal(what, at_least, aim_for, sqlite=value(SQLITE), postgres=value(POSTGRES), unit=unit)

    def against(server: str, sessions: int) -> Callable[[str], float | None]:
        return lambda store: ratio(results.rates(store, sessions), results.rates(server, sessions))

    def alone(value: Callable[[Sample], float]) -> Callable[[str], float | None]:
        return lambda store: middle(results.cycles.get((store, 1), []), value)

    def paced(value: Callable[[Sample], float]) -> Callable[[str], float | None]:
        return lambda store: middle(results.paced.get(store, []), value)

    def held(value: Callable[[Held], float]) -> Callable[[str], float | None]:
        return lambda store: value(found) if (found := results.held.get(store)) and found.asks == WAITING else None

    def kept(sessions: int) -> Callable[[str], float | None]:
        return lambda store: results.kept(store, sessions=sessions, few=FEW_EVENTS, many=MANY_EVENTS)

    def broker(store: str) -> list[float]:
        return results.in_process.get((store, "broker"), [])

    return [
        *(
            goal(f"cycles/s ÷ peer's stored path, {session_count(count)}", *bounds, against(STORED, count))
            for count, bounds in AGAINST_STORED.items()
        ),
        *(
            goal(f"cycles/s ÷ peer's stateless proxy, {session_count(count)}", *bounds, against(PROXY, count))
            for count, bounds in AGAINST_PROXY.items()
        ),
        goal("ask → visible, p50, alone", 1, 0.6, alone(lambda sample: sample.visible_p50), "ms"),
        goal("answer → waiter woken, p50, alone", 1.2, 0.7, alone(lambda sample: sample.woken_p50), "ms"),
        goal("paced 1,000 cycles/s: ask → visible, p99", 15, 8, paced(lambda sample: sample.visible_p99), "ms"),
        goal("paced 1,000 cycles/s: answer → waiter woken, p99", 15, 8, paced(lambda sample: sample.woken_p99), "ms"),
        goal(
            "HTTP ÷ in-process broker, 50 sessions",
            0.4,
            0.55,
            lambda store: ratio(results.rates(store, 50), broker(store)),
        ),
        goal(
            "in-process broker ÷ bare store, 50 sessions",
            0.5,
            0.7,
            lambda store: ratio(broker(store), results.in_process.get((store, "store"), [])),
        ),
        goal("100,000 waiting asks: memory", 300, 100, held(lambda found: found.memory_mb), "MB"),
        goal("100,000 waiting asks: wake, p99", 10, 5, held(lambda found: found.wake_p99), "ms"),
        goal(
            "100 listeners ÷ one listener, cycles/s",
            0.6,
            0.8,
            lambda store: results.listeners_cost(store, listeners=100),
        ),
        goal("1,000,000 ÷ 1,000 stored events, cycles/s, 1 session", FLAT, None, kept(1)),
        goal("1,000,000 ÷ 1,000 stored events, cycles/s, 50 sessions", FLAT, None, kept(50)),
        *(
            Goal(
                f"two desks, {load}: ask at one → visible at the other, p99",
                20,
                None,
                postgres=middle(results.two_desks.get(load, []), lambda sample: sample.visible_p99),
                unit="ms",
                of=POSTGRES,
            )
            for load in (TWO_DESKS_ALONE, TWO_DESKS_PACED)
        ),
    ]


def session_count(count: int) -> str:
    return "1 session" if count == 1 else f"{count:,} sessions"
