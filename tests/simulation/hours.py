"""
What schedules want, by truth: read minute by minute off the wall clock, and never by the reaper's own arithmetic.

Everything here is in seconds of the simulation.
"""

import math
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from reaper.model.kinds.instance import Instance
from reaper.model.schedule import Once, Schedule, Weekly, no_holiday
from tests.decide.schedule.oracle import MINUTE, Line, WallClock
from tests.simulation.settings import Settings, Times

TAG, NEVER, ORDER_TAG = "reaper-hours", "never", "reaper-start-order"

_BEFORE, _AFTER = 9, 12
"""Days that are laid out on either side of a world: longer than any stretch drawn here."""


def under(instance: Instance, settings: Settings) -> tuple[str, Times] | None:
    """The schedule of a machine: its tag's, else its policy's. None: none, or one that cannot be read."""
    words = {value.strip().casefold() for key, value in instance.tags.items() if key.strip().casefold() == TAG}
    if not words:
        terms = next((terms for terms in settings.policies.values() if terms.tag == instance.tags.get("phase")), None)
        return (terms.hours, settings.hours[terms.hours]) if terms is not None and terms.hours is not None else None
    if len(words) > 1:
        return None
    word = words.pop()
    return next(((name, times) for name, times in settings.hours.items() if name.casefold() == word), None)


def place(instance: Instance) -> float:
    """When its start comes in its job: the lower the earlier; without a number last."""
    try:
        return float(instance.tags[ORDER_TAG])
    except (KeyError, ValueError):
        return math.inf


def on(times: Times, clock: Any, t: float) -> bool:
    line, minute = _at(times, clock.base, t)
    return line.on(minute)


def since(times: Times, clock: Any, t: float) -> float:
    """When the stretch of one state that holds ``t`` began; minus infinity: before everything that is laid out."""
    line, minute = _at(times, clock.base, t)
    found = line.minutes.rfind(0 if line.minutes[minute] else 1, 0, minute)
    return -math.inf if found < 0 else clock.seconds(line.begins + (found + 1) * MINUTE)


def until(times: Times, clock: Any, t: float) -> float:
    """When it ends; infinity: after everything that is laid out."""
    line, minute = _at(times, clock.base, t)
    found = line.next_change(minute)
    return math.inf if found is None else clock.seconds(line.begins + found * MINUTE)


def boundary(times: Times, clock: Any, t: float) -> float:
    """The begin of hours that a start at ``t`` is for: of those that run, else of the next."""
    return since(times, clock, t) if on(times, clock, t) else until(times, clock, t)


def _at(times: Times, base: datetime, t: float) -> tuple[Line, int]:
    begins = (base - timedelta(days=_BEFORE)).replace(hour=0, minute=0, second=0, microsecond=0)
    line = _line(times, begins)
    minute = (base + timedelta(seconds=t) - begins) // MINUTE
    return line, min(max(minute, 0), len(line.minutes) - 1)


@lru_cache(maxsize=256)
def _line(times: Times, begins: datetime) -> Line:
    return Line(as_schedule(times), _wall(times.zone, begins))


@lru_cache(maxsize=64)
def _wall(zone: str, begins: datetime) -> WallClock:
    return WallClock(zone, begins.astimezone(UTC), (_BEFORE + 30 + _AFTER) * 1440)


def as_schedule(times: Times) -> Schedule:
    """As the brute force reads it."""
    weekly = tuple(Weekly(day, s.start, 0 if s.end > s.start else 1, s.end) for s in times.on for day in s.days)
    return Schedule(
        "by truth", times.zone, weekly, days_off=times.off_days, also_on=tuple(Once(a, b) for a, b in times.also_on),
        also_off=tuple(Once(a, b) for a, b in times.also_off), holiday=_holidays(times.country) if times.country is not None else no_holiday,
    )  # fmt: skip


@lru_cache(maxsize=16)
def _holidays(country: str) -> Any:
    import holidays

    table: Any = holidays.country_holidays(country)
    return lambda day: table.get(day)
