"""Weekly hours, single dates and holidays as an operator writes them. Every parser raises `Unreadable` with the remedy."""

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any

from reaper.config import pointers
from reaper.config.values import Unreadable, shown
from reaper.model.schedule import DAYS, NEVER, Once, Weekly

WEEK = timedelta(days=7)

_TIMES = r"([0-9]{2}:[0-9]{2}) ?- ?([0-9]{2}:[0-9]{2})"
_DATE = r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
_EACH = re.compile(rf"^([a-z]{{3}}(?:[-,][a-z]{{3}})*) {_TIMES}$")
_ACROSS = re.compile(r"^([a-z]{3}) ([0-9]{2}:[0-9]{2}) ?- ?([a-z]{3}) ([0-9]{2}:[0-9]{2})$")
_ON_A_DAY = re.compile(rf"^{_DATE} {_TIMES}$")
_OVER_DAYS = re.compile(rf"^{_DATE} ([0-9]{{2}}:[0-9]{{2}}) to {_DATE} ([0-9]{{2}}:[0-9]{{2}})$")
_WHOLE_DAYS = re.compile(rf"^{_DATE}(?: to {_DATE})?$")
_COUNTRY = re.compile(r"^([A-Z]{2})(?:-(.{1,40}))?$")

HOW_WEEKLY = 'write it as "mon-fri 08:00-19:00", "sat,sun 10:00-14:00", "fri 22:00-06:00" or "fri 18:00-mon 06:00"'
HOW_ONCE = 'write it as "2026-12-05 09:00-17:00", "2026-12-05 19:00 to 2026-12-06 02:00", "2026-12-24" or "2026-12-24 to 2027-01-01"'
HOW_HOLIDAY = 'write a country, as "DE", with its region, as "DE-BE" or "US-CA", or a date, as "2026-12-24"'


def weekly(value: object) -> tuple[Weekly, ...]:
    """``"mon-fri 08:00-19:00"``: one interval for each day; an end at or before the start is on the next day. None is empty."""
    if not isinstance(value, str):
        raise Unreadable(f"{shown(value)} is not an interval of the week", HOW_WEEKLY)
    text = value.strip().casefold()
    across = _ACROSS.fullmatch(text)
    if across is not None:
        first, last = _day(across[1], value), _day(across[3], value)
        start, end = _time(across[2], value), _time(across[4], value)
        days = (last - first) % 7
        if days == 0 and end == start:
            raise Unreadable(f"{shown(value)} has no length, or a whole week's", "write two intervals that meet, if it is to be on at all times")
        return (Weekly(first, start, 7 if days == 0 and end < start else days, end),)
    each = _EACH.fullmatch(text)
    if each is None:
        raise Unreadable(f"{shown(value)} is not an interval of the week", HOW_WEEKLY)
    start, end = _time(each[2], value), _time(each[3], value)
    if start == end:
        raise Unreadable(f"{shown(value)} begins and ends at the same time and would be empty", 'for a whole day write "sat 00:00-sun 00:00"')
    return tuple(Weekly(day, start, 0 if end > start else 1, end) for day in _days(each[1], value))


def once(value: object) -> Once:
    """Times on the wall of the schedule's zone. A date alone is the whole day."""
    if isinstance(value, date) and not isinstance(value, datetime):  # TOML's own, without quotes
        return Once(datetime.combine(value, time()), datetime.combine(value + timedelta(days=1), time()))
    if not isinstance(value, str):
        raise Unreadable(f"{shown(value)} is not a date with times", HOW_ONCE)
    text = value.strip()
    if found := _WHOLE_DAYS.fullmatch(text):
        start = datetime.combine(_date(found[1], value), time())
        end = datetime.combine(_date(found[2] or found[1], value) + timedelta(days=1), time())
    elif found := _ON_A_DAY.fullmatch(text):
        start, end = (datetime.combine(_date(found[1], value), _time(part, value)) for part in (found[2], found[3]))
    elif found := _OVER_DAYS.fullmatch(text):
        start = datetime.combine(_date(found[1], value), _time(found[2], value))
        end = datetime.combine(_date(found[3], value), _time(found[4], value))
    else:
        raise Unreadable(f"{shown(value)} is not a date with times", HOW_ONCE)
    if end <= start:
        raise Unreadable(f"{shown(value)} does not end after it begins", 'over midnight write both dates, as "2026-12-05 19:00 to 2026-12-06 02:00"')
    return Once(start, end)


def holiday(value: object) -> str | date:
    """A country with or without its region, as the table of holidays knows them, or a date."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise Unreadable(f"{shown(value)} is not a country or a date", HOW_HOLIDAY)
    if _WHOLE_DAYS.fullmatch(value) and " to " not in value:
        return _date(value, value)
    if _COUNTRY.fullmatch(value) is None:
        raise Unreadable(f"{shown(value)} is not a country or a date", HOW_HOLIDAY)
    table(value)
    return value


@lru_cache(maxsize=256)
def table(word: str) -> Callable[[date], str | None]:
    """The name of a holiday by a country's word, None: none. Any year is worked out when it is asked for. Raises Unreadable."""
    import holidays  # takes half a second, and most configurations name no country

    country, _, region = word.partition("-")
    try:
        known: Any = holidays.country_holidays(country, subdiv=region or None)
    except NotImplementedError:
        regions = holidays.list_supported_countries().get(country)
        if regions is None:
            raise Unreadable(f"{shown(word)} is a country whose holidays are not known", HOW_HOLIDAY) from None
        some = ", ".join(regions[:20]) or "none"
        raise Unreadable(f"{shown(word)}: {shown(region)} is not a region of {country} that is known", f"known are {some}") from None
    return lambda day: known.get(day)


def tables(words: tuple[str, ...]) -> Callable[[date], str | None]:
    """The first of several that calls a date a holiday."""
    known = [table(word) for word in words]
    return lambda day: next((name for one in known if (name := one(day)) is not None), None)


def schedule_name(value: str) -> str:
    if value.casefold() == NEVER:
        raise Unreadable(f"{shown(value)} stands for no schedule at all", "choose another name")
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Unreadable(f"{shown(value)} is neither true nor false", "write true or false, without quotes")
    return value


def order_tag(value: object) -> str:
    """The key of ``"tag:KEY"`` or ``"label:KEY"``."""
    if isinstance(value, str) and value.startswith(("tag:", "label:")):
        return pointers.tag_key(value.partition(":")[2])
    raise Unreadable(f"{shown(value)} does not say which tag", 'write "tag:KEY", as "tag:start-order"')


def overlap(intervals: list[Weekly]) -> tuple[Weekly, Weekly] | None:
    """Two intervals of a week that are both on at some minute; None: there are none. Those that only meet are not two."""
    for place, one in enumerate(intervals):
        for other in intervals[:place]:
            for shift in (-7, 0, 7):
                start, end = _minutes(one, shift)
                begins, ends = _minutes(other, 0)
                if start < ends and begins < end:
                    return other, one
    return None


def _minutes(interval: Weekly, shift: int) -> tuple[int, int]:
    start = (interval.day + shift) * 1440 + interval.start.hour * 60 + interval.start.minute
    return start, (interval.day + shift + interval.days) * 1440 + interval.end.hour * 60 + interval.end.minute


def _days(text: str, whole: object) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        first, *rest = part.split("-")
        if len(rest) > 1:
            raise Unreadable(f"{shown(whole)} has days that are not understood", HOW_WEEKLY)
        start = _day(first, whole)
        found += [(start + n) % 7 for n in range((_day(rest[0], whole) - start) % 7 + 1)] if rest else [start]
    if len(set(found)) < len(found):
        raise Unreadable(f"{shown(whole)} names a day twice", "write each day once")
    return tuple(found)


def _day(word: str, whole: object) -> int:
    if word not in DAYS:
        raise Unreadable(f"{shown(whole)} has a day that is not known", f"the days are {', '.join(DAYS)}")
    return DAYS.index(word)


def _time(text: str, whole: object) -> time:
    hour, minute = int(text[:2]), int(text[3:])
    if (hour, minute) == (24, 0):
        raise Unreadable(f"{shown(whole)} has 24:00, which is 00:00 of the next day", 'write "mon 18:00-tue 00:00", or "mon-fri 18:00-00:00"')
    if hour > 23 or minute > 59:
        raise Unreadable(f"{shown(whole)} has a time that does not exist", 'hours go from "00:00" to "23:59"')
    return time(hour, minute)


def _date(text: str, whole: object) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Unreadable(f"{shown(whole)} is not in the calendar", HOW_ONCE) from None
