"""The simulation's time in seconds since its start, and clocks that show it, rightly or not."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(slots=True)
class SimClock:
    """The true time. ``base`` is the moment of second zero."""

    base: datetime
    t: float = 0.0

    def now(self) -> datetime:
        return self.at(self.t)

    def at(self, t: float) -> datetime:
        return self.base + timedelta(milliseconds=round(t * 1000))

    def seconds(self, moment: datetime) -> float:
        return (moment.astimezone(UTC) - self.base).total_seconds()


@dataclass(slots=True)
class HostClock:
    """One host's clock, as `reaper.ports.Clock`: ``off`` seconds ahead of the truth on the wall; it never steps underneath."""

    true: SimClock
    off: float = 0.0

    def now(self) -> datetime:
        return self.true.at(self.true.t + self.off)

    def monotonic(self) -> float:
        return self.true.t
