"""A clock that a test moves."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)  # a Monday


class ManualClock:
    def __init__(self, now: datetime = START) -> None:
        self._now = now
        self._ran = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._ran

    def advance(self, span: timedelta) -> datetime:
        self._now += span
        self._ran += span.total_seconds()
        return self._now

    def step_wall(self, span: timedelta) -> None:
        """The wall clock steps; no time passes."""
        self._now += span
