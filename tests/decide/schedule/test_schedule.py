"""What a schedule wants, at the moments at which schedulers in the field went wrong."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from reaper.decide.schedule import FURTHEST, changes, moment_of, next_change, spell, wanted
from reaper.model.schedule import Once, Schedule, Weekly

BERLIN = "Europe/Berlin"


def every(days: str, start: str, end: str, later: int = 0) -> tuple[Weekly, ...]:
    return tuple(Weekly(int(day), time.fromisoformat(start), later, time.fromisoformat(end)) for day in days)


def hours(*on: Weekly, zone: str = BERLIN, **more: object) -> Schedule:
    return Schedule("office", zone, on, **more)  # type: ignore[arg-type]


def at(text: str, zone: str = BERLIN) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


OFFICE = hours(*every("01234", "08:00", "19:00"))


@pytest.mark.parametrize(
    ("moment", "on"),
    [
        ("2026-03-02 07:59:59", False), ("2026-03-02 08:00", True), ("2026-03-02 18:59:59", True), ("2026-03-02 19:00", False),
        ("2026-03-07 12:00", False),
    ],
)  # fmt: skip
def test_an_interval_includes_its_start_and_excludes_its_end_and_a_weekend_is_nothing_that_was_not_written(moment: str, on: bool) -> None:
    assert wanted(OFFICE, at(moment)) is on


def test_weekday_and_time_come_from_the_same_local_instant() -> None:
    auckland = hours(*every("01234", "06:30", "19:30"), zone="Pacific/Auckland")

    assert wanted(auckland, at("2026-03-02 06:30", "Pacific/Auckland"))  # still Sunday in UTC
    assert not wanted(auckland, at("2026-03-07 06:30", "Pacific/Auckland"))  # still Friday in UTC


def test_the_part_after_midnight_belongs_to_the_day_on_which_it_began() -> None:
    night = hours(*every("4", "22:00", "06:00", later=1))  # Friday

    assert wanted(night, at("2026-03-07 05:59"))
    assert not wanted(night, at("2026-03-06 05:59"))
    assert spell(night, at("2026-03-07 01:00")).since == at("2026-03-06 22:00")


def test_an_interval_goes_over_the_end_of_the_week_and_the_year() -> None:
    weekend = hours(*every("5", "18:00", "06:00", later=2))

    assert wanted(weekend, at("2027-01-03 23:59"))
    assert next_change(weekend, at("2027-01-02 18:00")) == at("2027-01-04 06:00")


def test_several_a_day_and_touching_ones_are_one() -> None:
    split = hours(*every("0", "08:00", "12:00"), *every("0", "12:00", "13:00"), *every("0", "14:00", "19:00"))

    assert [moment for moment, _ in changes(split, at("2026-03-02 00:00"), at("2026-03-02 23:00"))] == [
        at(f"2026-03-02 {hour}:00") for hour in ("08", "13", "14", "19")
    ]


def test_a_night_over_a_change_of_the_clocks_ends_by_the_wall_clock() -> None:
    night = hours(*every("5", "20:00", "08:00", later=1))
    spring, autumn = spell(night, at("2026-03-28 23:00")), spell(night, at("2026-10-24 23:00"))

    assert (spring.since, spring.until) == (at("2026-03-28 20:00"), at("2026-03-29 08:00"))
    assert [one.until - one.since for one in (spring, autumn) if one.until and one.since] == [timedelta(hours=11), timedelta(hours=13)]


def test_a_time_that_the_clocks_skip_is_the_first_moment_after_the_gap() -> None:
    gap = hours(*every("6", "02:30", "04:00"))

    assert moment_of(datetime(2026, 3, 29, 2, 30), BERLIN) == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)  # noqa: DTZ001 - on the wall
    assert spell(gap, at("2026-03-29 03:30")).since == at("2026-03-29 03:00")


def test_an_end_that_the_clocks_skip_is_not_skipped_over() -> None:
    gap = hours(*every("5", "22:00", "02:30", later=1))

    assert not wanted(gap, at("2026-03-29 03:00"))
    assert not wanted(gap, at("2026-03-30 03:00"))


def test_a_time_that_comes_twice_counts_the_first_time_and_once() -> None:
    fold = hours(*every("6", "02:30", "04:00"), *every("5", "23:00", "02:15", later=1))
    times = [moment for moment, _ in changes(fold, at("2026-10-25 00:00"), at("2026-10-25 06:00"))]

    assert times == [datetime(2026, 10, 25, 0, 15, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 3, 0, tzinfo=UTC)]


def test_an_interval_that_a_gap_swallows_whole_is_none() -> None:
    gap = hours(*every("6", "02:15", "02:45"))

    assert next_change(gap, at("2026-03-28 12:00")) == at("2026-04-05 02:15")


def test_quarter_hours_and_a_date_line_of_their_own() -> None:
    chatham = hours(*every("0", "08:00", "19:00"), zone="Pacific/Chatham")

    assert spell(chatham, datetime(2026, 6, 7, 19, 15, tzinfo=UTC)).since == datetime(2026, 6, 7, 19, 15, tzinfo=UTC)


def test_leap_days_and_years_ahead() -> None:
    leap = hours(*every("1", "08:00", "19:00"), days_off=(date(2028, 2, 29),))

    assert not wanted(leap, at("2028-02-29 12:00"))
    assert wanted(leap, at("2028-03-07 12:00"))
    assert wanted(leap, at("2056-02-29 12:00"))  # a Tuesday, far beyond every table of changes
    assert next_change(hours(*every("6", "02:30", "04:00")), at("2055-03-27 12:00")) is not None


def test_a_holiday_takes_away_what_begins_on_it_and_not_what_reaches_into_it() -> None:
    nights = hours(*every("0123456", "22:00", "06:00", later=1), holiday=lambda day: "Good Friday" if day == date(2026, 4, 3) else None)

    assert wanted(nights, at("2026-04-03 05:59"))
    assert not wanted(nights, at("2026-04-03 23:00"))
    assert not wanted(nights, at("2026-04-04 05:00"))


def test_what_is_written_once_happens_once_and_beats_weekday_and_holiday() -> None:
    day = Once(datetime(2026, 4, 3, 10), datetime(2026, 4, 3, 16))  # noqa: DTZ001
    off = Once(datetime(2026, 4, 7, 12), datetime(2026, 4, 9))  # noqa: DTZ001
    office = hours(*every("01234", "08:00", "19:00"), days_off=(date(2026, 4, 3),), also_on=(day,), also_off=(off,))

    assert wanted(office, at("2026-04-03 10:00"))
    assert not wanted(office, at("2026-04-03 16:00"))
    assert not wanted(office, at("2026-04-10 07:59"))
    assert next_change(office, at("2026-04-07 09:00")) == at("2026-04-07 12:00")
    assert next_change(office, at("2026-04-07 12:00")) == at("2026-04-09 08:00")
    assert wanted(office, at("2027-04-07 13:00"))


def test_what_never_changes_has_no_change() -> None:
    always = hours(*every("0", "00:00", "00:00", later=4), *every("4", "00:00", "00:00", later=3))

    assert spell(always, at("2026-03-02 08:00")) == spell(always, at("2026-07-02 08:00"))
    assert next_change(always, at("2026-03-02 08:00")) is None
    assert next_change(hours(), at("2026-03-02 08:00")) is None
    assert timedelta(days=366) < FURTHEST


def test_whoever_asks_late_is_told_what_is_true_now() -> None:
    minute = hours(*every("0", "18:00", "18:01"))

    assert not wanted(minute, at("2026-03-02 18:05"))
    assert wanted(minute, at("2026-03-02 18:00:59"))
