"""
What a schedule wants, as pure functions of a moment: on or off, since when, until when.

Nothing is remembered and nothing has to be called in time: whoever asks late is told what should be true now. Each interval is
turned into two moments by the zone's own rules, for its own date. A time that the clocks skip is the first moment after the
gap; one that they show twice is the first of the two. Years ahead count as the zone's present rules have them.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from reaper.model.schedule import Schedule

FURTHEST = timedelta(days=400)
"""How far a change is looked for, either way. A year and its holidays; what does not change in it has no change."""

_DAY = timedelta(days=1)
_BLOCK = timedelta(days=32)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_LONGEST_DAYS = 8  # of an interval; nothing that began earlier reaches into a block
_ZONES_SPAN = timedelta(hours=26)  # a date begins up to 14 h before and ends up to 12 h after UTC's


@dataclass(frozen=True, slots=True)
class Spell:
    """The stretch of one state that holds a moment: ``since`` included, ``until`` excluded. None: no change within FURTHEST."""

    on: bool
    since: datetime | None
    until: datetime | None


def wanted(schedule: Schedule, moment: datetime) -> bool:
    """Whether the schedule wants machines on at ``moment``."""
    return spell(schedule, moment).on


def next_change(schedule: Schedule, moment: datetime) -> datetime | None:
    """The first moment after ``moment`` at which what is wanted changes; None: it does not, within FURTHEST."""
    return spell(schedule, moment).until


def spell(schedule: Schedule, moment: datetime) -> Spell:
    edges, spells = _spells(schedule, (moment - _EPOCH) // _BLOCK)
    return spells[bisect_right(edges, moment)]


def changes(schedule: Schedule, start: datetime, end: datetime) -> Iterator[tuple[datetime, bool]]:
    """Every change from ``start`` (excluded) to ``end`` (included), with what is wanted from then on."""
    moment = start
    while True:
        found = next_change(schedule, moment)
        if found is None or found > end:
            return
        yield found, wanted(schedule, found)
        moment = found


@lru_cache(maxsize=4096)
def moment_of(wall: datetime, zone: str) -> datetime:
    """The moment (UTC) at which the wall clock of ``zone`` first shows ``wall`` (naive), or has skipped it."""
    place = ZoneInfo(zone)
    first = wall.replace(tzinfo=place, fold=0)
    if first.utcoffset() == wall.replace(tzinfo=place, fold=1).utcoffset():
        return first.astimezone(UTC)
    shown = first.astimezone(UTC).astimezone(place).replace(tzinfo=None)
    if shown == wall:
        return first.astimezone(UTC)  # shown twice, and this is the first time
    # Skipped: the clocks jump between these two moments, to the second.
    before, after = wall.replace(tzinfo=place, fold=1).astimezone(UTC), first.astimezone(UTC)
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        if middle.astimezone(place).replace(tzinfo=None) < wall:
            before = middle
        else:
            after = middle
    return after


# --- blocks of a month, worked out once -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    """``on``: at its begin; ``ends_on``: right before its end. ``changes``: strictly between the two."""

    number: int
    begins: datetime
    on: bool
    changes: tuple[datetime, ...]
    ends_on: bool


@lru_cache(maxsize=2048)
def _spells(schedule: Schedule, number: int) -> tuple[tuple[datetime, ...], tuple[Spell, ...]]:
    """A block's changes, and the spells before, between and after them."""
    block = _block(schedule, number)
    edges = (_before(schedule, block, block.on), *block.changes, _after(schedule, block, block.ends_on))
    states = [block.on is (place % 2 == 0) for place in range(len(edges) - 1)]
    return block.changes, tuple(Spell(on, since, until) for on, since, until in zip(states, edges, edges[1:], strict=False))


def _after(schedule: Schedule, block: _Block, on: bool) -> datetime | None:
    for ahead in range(1, FURTHEST // _BLOCK + 2):
        later = _block(schedule, block.number + ahead)
        if later.on is not on:
            return later.begins
        if later.changes:
            return later.changes[0]
    return None


def _before(schedule: Schedule, block: _Block, on: bool) -> datetime | None:
    later = block
    for back in range(1, FURTHEST // _BLOCK + 2):
        earlier = _block(schedule, block.number - back)
        if earlier.ends_on is not on:
            return later.begins
        if earlier.changes:
            return earlier.changes[-1]
        later = earlier
    return None


@lru_cache(maxsize=2048)
def _block(schedule: Schedule, number: int) -> _Block:
    begins, ends = _EPOCH + number * _BLOCK, _EPOCH + (number + 1) * _BLOCK
    on = _joined(_weekly(schedule, begins, ends))
    on = _joined([*on, *_once(schedule, on_also=True)])
    off = _joined(_once(schedule, on_also=False))
    at_first, found, state = _holds(on, off, begins), [], _holds(on, off, begins)
    for moment in sorted({edge for pair in (*on, *off) for edge in pair if begins < edge < ends}):
        if _holds(on, off, moment) is not state:
            found.append(moment)
            state = not state
    return _Block(number, begins, at_first, tuple(found), state)


def _holds(on: list[tuple[datetime, datetime]], off: list[tuple[datetime, datetime]], moment: datetime) -> bool:
    return any(start <= moment < end for start, end in on) and not any(start <= moment < end for start, end in off)


def _weekly(schedule: Schedule, begins: datetime, ends: datetime) -> list[tuple[datetime, datetime]]:
    day: date = (begins - _ZONES_SPAN).date() - timedelta(days=_LONGEST_DAYS)
    last: date = (ends + _ZONES_SPAN).date()
    found: list[tuple[datetime, datetime]] = []
    while day <= last:
        weekday = day.weekday()
        if any(interval.day == weekday for interval in schedule.on) and schedule.off_because(day) is None:
            for interval in schedule.on:
                if interval.day == weekday:
                    start, end = datetime.combine(day, interval.start), datetime.combine(day + interval.days * _DAY, interval.end)
                    found.append((moment_of(start, schedule.zone), moment_of(end, schedule.zone)))
        day += _DAY
    return found


def _once(schedule: Schedule, *, on_also: bool) -> list[tuple[datetime, datetime]]:
    spans = schedule.also_on if on_also else schedule.also_off
    return [(moment_of(span.start, schedule.zone), moment_of(span.end, schedule.zone)) for span in spans]


def _joined(pairs: list[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """In order, those that meet made one; an interval that a gap swallowed whole is none."""
    out: list[tuple[datetime, datetime]] = []
    for start, end in sorted(pairs):
        if start >= end:
            continue
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out
