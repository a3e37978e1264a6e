"""A cloud's clock, as its answers show it."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from reaper.ports import Clock


class CloudTime:
    """The cloud's clock, by the Date header of its newest answer, wherever it came from."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest: tuple[float, datetime] | None = None

    def now(self) -> datetime | None:
        """The newest date plus the time since, to a second, which is the header's grain. None before any answer."""
        newest = self._newest
        if newest is None:
            return None
        at, date = newest
        return date + timedelta(seconds=self._clock.monotonic() - at)

    def skew(self, now: datetime) -> timedelta | None:
        """Our clock minus the cloud's; None before any answer."""
        cloud = self.now()
        return None if cloud is None else now - cloud

    def answered(self, date: str | None) -> None:
        """The header of any answer, refusals and those that are retried included."""
        if not date:
            return
        try:
            moment = parsedate_to_datetime(date)
        except ValueError:  # not a date: this answer tells nothing about clocks
            return
        self._newest = (self._clock.monotonic(), moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment)
