"""Fifty schedules, each in one of twenty zones, against a brute force over minutes: every hour of two years, every minute around each clock change."""

import random
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import holidays
import pytest

from reaper.decide.schedule import next_change, spell, wanted
from reaper.model.schedule import Once, Schedule, Weekly, no_holiday
from tests.decide.schedule.oracle import MINUTE, Line, WallClock

BEGINS = datetime(2027, 1, 1, tzinfo=UTC)
ENDS = datetime(2029, 1, 1, tzinfo=UTC)  # the second year has a leap day
WHOLE = (ENDS - BEGINS) // MINUTE
AROUND = timedelta(days=1, hours=12) // MINUTE

ZONES = (
    "UTC", "Europe/Berlin", "Europe/Dublin", "America/New_York", "America/Los_Angeles", "America/St_Johns", "America/Havana", "America/Santiago",
    "America/Sao_Paulo", "Africa/Casablanca", "Africa/Cairo", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Beirut", "Australia/Adelaide",
    "Australia/Lord_Howe", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Kiritimati", "Antarctica/Troll",
)  # fmt: skip
"""Half and quarter hours, changes at midnight, of half an hour and of two hours, backwards summers, both ends of the date line."""

COUNTRIES = (("DE", "BE"), ("US", "CA"), ("NZ", "AUK"), ("IN", None), ("GB", "SCT"))


def some_schedule(number: int, chance: random.Random, clock: WallClock | None = None) -> Schedule:
    """Boundaries gather where the clocks change (``clock``); some intervals touch, cross midnight, or go over the week's end."""
    zone = ZONES[number % len(ZONES)]
    jumps = [(clock.begins + (jump - 1) * MINUTE).astimezone(ZoneInfo(zone)) for jump in clock.jumps] if clock is not None else []
    on: set[Weekly] = set()
    taken = [False] * 10080
    for _ in range(chance.randint(1, 12)):
        start = chance.choice((chance.randrange(1440), 60 * chance.choice((0, 1, 2, 3)) + chance.choice((0, 15, 30, 45)), 8 * 60, 22 * 60))
        length = chance.choice((15, 45, 60, 90, 480, 660, 720, 1439, 2880, chance.randint(1, 4000)))
        day = chance.randrange(7)
        if jumps and chance.random() < 0.5:  # begin or end in the hour that is skipped or comes twice
            jump = chance.choice(jumps)
            day, start = jump.weekday(), jump.hour * 60 + jump.minute + chance.randint(-75, 75)
            start -= chance.choice((0, length))
            day, start = (day + start // 1440) % 7, start % 1440
        minutes = [(day * 1440 + start + n) % 10080 for n in range(length)]
        if any(taken[minute] for minute in minutes):
            continue
        for minute in minutes:
            taken[minute] = True
        days, end = divmod(start + length, 1440)
        on.add(Weekly(day, time(*divmod(start, 60)), days, time(*divmod(end, 60))))
    country, region = chance.choice(COUNTRIES)
    table = holidays.country_holidays(country, subdiv=region) if chance.random() < 0.6 else None
    return Schedule(
        f"oracle-{number}", zone, tuple(sorted(on)),
        days_off=tuple(date(2027, 1, 1) + timedelta(days=chance.randrange(730)) for _ in range(chance.randrange(4))),
        also_on=_spans(chance), also_off=_spans(chance),
        holiday=no_holiday if table is None else lambda day: table.get(day),
    )  # fmt: skip


def _spans(chance: random.Random) -> tuple[Once, ...]:
    found = []
    for _ in range(chance.randrange(4)):
        start = datetime(2027, 1, 1) + timedelta(minutes=chance.randrange(730 * 1440))  # noqa: DTZ001 - on the wall
        found.append(Once(start, start + timedelta(minutes=chance.choice((1, 60, 1440, chance.randint(1, 20000))))))
    return tuple(found)


def _minutes(clock: WallClock) -> set[int]:
    minutes = set(range(1440, 1440 + WHOLE, 60))
    for jump in clock.jumps:
        minutes.update(range(max(jump - AROUND, 1440), min(jump + AROUND, 1440 + WHOLE)))
    return minutes


@pytest.mark.oracle
def test_every_hour_and_every_minute_around_clock_changes_agree_with_a_brute_force() -> None:
    chance = random.Random(1908)
    clocks = {zone: WallClock(zone, BEGINS - timedelta(days=1), WHOLE + 1440 * 60) for zone in ZONES}
    schedules = [some_schedule(number, chance, clocks[ZONES[number % len(ZONES)]]) for number in range(50)]
    asked = changed = 0
    for zone, clock in clocks.items():
        moments = [(minute, clock.begins + minute * MINUTE) for minute in sorted(_minutes(clock))]
        for schedule in (one for one in schedules if one.zone == zone):
            line = Line(schedule, clock)
            for minute, moment in moments:
                got, then = spell(schedule, moment), line.next_change(minute)
                assert got.on is line.on(minute), (schedule, moment)
                if then is not None:
                    assert got.until == clock.begins + then * MINUTE, (schedule, moment)
                    changed += 1
            asked += len(moments)

    assert len(clocks["Europe/Berlin"].jumps) >= 4
    assert len(clocks["UTC"].jumps) == 0
    assert asked > 50 * 17_000
    assert changed > 0.9 * asked


@pytest.mark.oracle
def test_the_two_plain_questions_are_the_spell() -> None:
    chance = random.Random(7)
    for number in range(50):
        schedule = some_schedule(number, chance)
        for _ in range(40):
            moment = BEGINS + timedelta(seconds=chance.randrange(int((ENDS - BEGINS).total_seconds())))
            got = spell(schedule, moment)
            assert wanted(schedule, moment) is got.on
            assert next_change(schedule, moment) == got.until
            if got.since is not None:
                assert got.since <= moment
                assert wanted(schedule, got.since) is got.on
                assert wanted(schedule, got.since - timedelta(seconds=1)) is not got.on
