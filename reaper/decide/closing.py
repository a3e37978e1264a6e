"""When a schedule's terms for the end of hours bind a machine: shortly before that end, and outside hours until it is started."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from reaper.decide.schedule import FURTHEST, spell
from reaper.model.policy import Hours


@dataclass(frozen=True, slots=True)
class Closing:
    """``ends_at``: the end of hours, ahead of us or past (None: longer ago than is looked for). ``off``: whether it has passed."""

    hours: Hours
    ends_at: datetime | None
    off: bool

    @property
    def span(self) -> timedelta:
        return self.hours.idle_for

    def told(self) -> str:
        if self.ends_at is None:
            return f"hours {self.hours.name} do not want it on"
        return f"hours {self.hours.name} {'ended' if self.off else 'end'} at {on_the_wall(self.ends_at, self.hours)}"


def closing(hours: Hours | None, running_since: datetime | None, now: datetime) -> Closing | None:
    """
    None: within hours, under no schedule or one that never stops, or started since hours ended. Whoever starts a machine
    in the night has it until hours end the next time; whether that was a person or we, the start says it is wanted.
    """
    if hours is None or not hours.schedule.stops:
        return None
    now_is = spell(hours.schedule, now)
    if now_is.on:
        near = now_is.until is not None and now >= now_is.until - hours.wait
        return Closing(hours, now_is.until, off=False) if near else None
    ended = now_is.since if now_is.since is not None else now - FURTHEST
    if running_since is not None and running_since >= ended:
        return None
    return Closing(hours, now_is.since, off=True)


def owed_by(hours: Hours | None, now: datetime) -> str | None:
    """The schedule that is owed a start by a stop made now, whichever cause nominated it; None: none is."""
    if hours is None or not hours.schedule.starts:
        return None
    return hours.name if hours.start_also or not spell(hours.schedule, now).on else None


def on_the_wall(moment: datetime, hours: Hours) -> str:
    """As the people under a schedule read it: "19:00 CET"."""
    return f"{moment.astimezone(ZoneInfo(hours.schedule.zone)):%H:%M %Z}"
