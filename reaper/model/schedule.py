"""
Times as the operator writes them, in a named zone and half-open: a daily interval, and the weekly hours of machines.

A time on the wall is kept as it was written and turned into a moment anew for each date, so that no change of the clocks
moves it. What these values mean at a moment is said by `decide.schedule`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time
from zoneinfo import ZoneInfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

HOURS_TAG = "reaper-hours"
"""The tag (a label on Google) with which a machine names its schedule, before what its policy says."""

NEVER = "never"
"""What a tag or a policy says in place of a schedule's name to be under none."""


@dataclass(frozen=True, slots=True)
class DailyHours:
    """From ``start`` (included) to ``end`` (excluded) each day in ``zone`` (an IANA name). ``start > end`` crosses midnight."""

    start: time
    end: time
    zone: str

    def contains(self, moment: datetime) -> bool:
        """Converts first, then compares: the local time decides, through every clock change."""
        local = moment.astimezone(ZoneInfo(self.zone)).time()
        if self.start < self.end:
            return self.start <= local < self.end
        return local >= self.start or local < self.end

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M} {self.zone}"


@dataclass(frozen=True, slots=True, order=True)
class Weekly:
    """
    From ``start`` on each ``day`` (0 is Monday) to ``end``, ``days`` calendar days later (0 to 7, less than a week in all). It belongs to the day on
    which it begins, the part after midnight too: a holiday takes it away whole, or not at all.
    """

    day: int
    start: time
    days: int
    end: time

    def __str__(self) -> str:
        then = f"{DAYS[(self.day + self.days) % 7]} " if self.days else ""
        return f"{DAYS[self.day]} {self.start:%H:%M}-{then}{self.end:%H:%M}"


@dataclass(frozen=True, slots=True, order=True)
class Once:
    """From ``start`` to ``end``, times on the wall of the schedule's zone (naive), once and never again."""

    start: datetime
    end: datetime

    def __str__(self) -> str:
        if self.start.date() == self.end.date():
            return f"{self.start:%Y-%m-%d %H:%M}-{self.end:%H:%M}"
        return f"{self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M}"


def no_holiday(_day: date) -> str | None:
    """Of a schedule that knows none."""
    return None


@dataclass(frozen=True, slots=True)
class Schedule:
    """
    When machines are wanted, and when not: "on" in every interval of ``on`` that does not begin on a holiday, in those of
    ``also_on``, and in none of ``also_off``.

    ``holidays``: as written, "DE-BE" or "US"; ``days_off``: single dates that count as holidays. ``holiday``: the name of a
    holiday by these words, None: none; a lookup of fixed tables, no part of what the schedule is. ``only``: "stop" never
    starts anything, "start" never stops anything.
    """

    name: str
    zone: str
    on: tuple[Weekly, ...]
    holidays: tuple[str, ...] = ()
    days_off: tuple[date, ...] = ()
    also_on: tuple[Once, ...] = ()
    also_off: tuple[Once, ...] = ()
    only: str | None = None
    holiday: Callable[[date], str | None] = field(default=no_holiday, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash(self.name)  # asked for every machine in every cycle

    @property
    def stops(self) -> bool:
        return self.only != "start"

    @property
    def starts(self) -> bool:
        return self.only != "stop"

    def off_because(self, day: date) -> str | None:
        """The holiday that a date is; None: it is none."""
        return "a day off" if day in self.days_off else self.holiday(day)
