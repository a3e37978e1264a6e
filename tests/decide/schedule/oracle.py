"""
The same question answered in another way: minute by minute, with nothing but the wall clock.

A boundary is passed in the first minute whose wall clock shows it or a later time; so what counts at a minute is the latest
time that the wall clock has shown up to then. In a gap that jumps over boundaries, in the hour that comes twice it stands
still. On that time the rules of a schedule are plain: each minute of each date is on or off. No interval is turned into
moments here, and nothing is searched but the bytes of a line, one a minute.
"""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from reaper.model.schedule import Schedule

MINUTE = timedelta(minutes=1)
_DAY_MINUTES = 1440
_MARGIN_DAYS = 12


class Line:
    """What one schedule wants in each minute (UTC) from ``begins`` on."""

    def __init__(self, schedule: Schedule, clock: "WallClock") -> None:
        self.begins = clock.begins
        wall = _on_the_wall(schedule, clock.first_day, clock.days)
        self.minutes = b"".join(wall[start : start + count] if moves else wall[start : start + 1] * count for start, count, moves in clock.runs)

    def on(self, minute: int) -> bool:
        return self.minutes[minute] == 1

    def next_change(self, minute: int) -> int | None:
        """None: not before the line ends."""
        found = self.minutes.find(0 if self.minutes[minute] else 1, minute + 1)
        return found if found >= 0 else None


class WallClock:
    """
    Of one zone, from ``begins`` for ``minutes``: the latest time shown up to each minute, in minutes since midnight of
    ``first_day``, as runs (first, how many minutes, whether it goes on or stands still). ``jumps``: minutes of clock changes.
    """

    def __init__(self, zone: str, begins: datetime, minutes: int) -> None:
        place = ZoneInfo(zone)
        self.begins = begins
        self.first_day = (begins - timedelta(days=_MARGIN_DAYS)).date()
        self.days = minutes // _DAY_MINUTES + 2 * _MARGIN_DAYS
        self.jumps: list[int] = []
        self.runs: list[tuple[int, int, bool]] = []
        zero = datetime.combine(self.first_day, datetime.min.time())

        def shown(minute: int) -> int:
            wall = (begins + minute * MINUTE).astimezone(place).replace(tzinfo=None)
            return (wall - zero) // MINUTE

        latest = -1
        start, minute = 0, 0
        offset = shown(0)
        while minute < minutes:
            step = 60 if minute + 60 < minutes and shown(minute + 60) - (minute + 60) == offset else 1  # inside an hour no zone changes twice
            if shown(minute + step) - (minute + step) == offset and minute + step < minutes:
                minute += step
                continue
            self._run(offset + start, minute + step - start, latest)
            latest = max(latest, offset + minute + step - 1)
            start = minute = minute + step
            if minute < minutes:
                offset = shown(minute) - minute
                self.jumps.append(minute)
        assert sum(count for _, count, _ in self.runs) == minutes

    def _run(self, first: int, count: int, latest: int) -> None:
        still = min(max(latest - first + 1, 0), count)
        if still:
            self.runs.append((latest, still, False))
        if count > still:
            self.runs.append((first + still, count - still, True))


def _on_the_wall(schedule: Schedule, first: date, days: int) -> bytes:
    """On (1) or off (0) for each minute on the wall."""
    out = bytearray(days * _DAY_MINUTES)
    for number in range(days):
        day = first + timedelta(days=number)
        if day in schedule.days_off or schedule.holiday(day) is not None:
            continue
        for interval in schedule.on:
            if day.weekday() == interval.day:
                start = number * _DAY_MINUTES + interval.start.hour * 60 + interval.start.minute
                end = (number + interval.days) * _DAY_MINUTES + interval.end.hour * 60 + interval.end.minute
                end = min(end, len(out))
                if end > start:
                    out[start:end] = b"\x01" * (end - start)
    zero = datetime.combine(first, datetime.min.time())
    for spans, value in ((schedule.also_on, b"\x01"), (schedule.also_off, b"\x00")):
        for span in spans:
            start, end = ((edge - zero) // MINUTE for edge in (span.start, span.end))
            start, end = max(start, 0), min(end, len(out))
            if end > start:
                out[start:end] = value * (end - start)
    return bytes(out)


def minute_of(moment: datetime, begins: datetime) -> int:
    return (moment.astimezone(UTC) - begins) // MINUTE
