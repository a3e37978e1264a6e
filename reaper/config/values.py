"""
Single values as an operator writes them: durations, shares, counts, quiet hours, dates.

Every parser takes whatever the file held and returns the value or raises `Unreadable`,
which says what is wrong and how to write it. None of them guesses: a bare number has no
unit, and 5 is not 5 %.
"""

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reaper.model.schedule import DailyHours

LONGEST = timedelta(days=3650)
"""No term of a configuration is longer than ten years; beyond it is a slip of the keyboard."""

LAST_ZONE = timezone(timedelta(hours=-12))
"""Where a calendar day ends last. A date without a zone can mean any of them, and an end errs to the later side."""

DURATION_PATTERN = r"^(?=[0-9])([0-9]{1,9}d)?([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?$"
SHARE_PATTERN = r"^[0-9]{1,3}(\.[0-9]{1,6})? ?%$"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

_DURATION = re.compile(DURATION_PATTERN)
_SHARE = re.compile(SHARE_PATTERN)
_NAME = re.compile(NAME_PATTERN)
_HOURS = re.compile(r"^([0-9]{2}):([0-9]{2})-([0-9]{2}):([0-9]{2}) (\S+)$")
_DATE = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
_MOMENT = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?([Zz]|[+-][0-9]{2}:[0-9]{2})$")


class Unreadable(ValueError):
    """A value that cannot be taken. ``what`` is wrong with it, and the ``remedy``: how to write it."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what}; {remedy}")


def shown(value: object) -> str:
    """A value as a message may show it: short, and never an address, because addresses carry secrets."""
    match value:
        case str():
            if "://" in value or len(value) > 80:
                return "this text (not shown)"
            return json.dumps(value, ensure_ascii=False)
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case int() if value.bit_length() > 128:  # thousands of digits, which Python refuses to write
            return "this number"
        case int() | float():
            return str(value)
        case dict():
            return "a table"
        case list() | tuple():
            return "a list"
        case date() | time():
            return f"{value.isoformat()} without quotes"
    return f"a {type(value).__name__}"


def text(value: object) -> str:
    """Text that says something: not blank, no space around it, no control characters."""
    if not isinstance(value, str):
        raise Unreadable(f"{shown(value)} is not text", "write it in quotes")
    if not value.strip():
        raise Unreadable("is blank", "write what it should say")
    if value != value.strip() or not value.isprintable():
        raise Unreadable(f"{shown(value)} has spaces around it or unprintable characters", "remove them")
    return value


def name(value: object) -> str:
    word = text(value)
    if not _NAME.fullmatch(word):
        raise Unreadable(f"{shown(word)} is not a name", "use letters, digits, dots, dashes, at most 64, first a letter or digit")
    return word


def duration(value: object) -> timedelta:
    """``"30m"``, ``"2h"``, ``"90s"``, ``"5d"``, ``"1h30m"``: more than nothing, at most ten years."""
    remedy = 'write it in quotes with its unit, as "90s", "30m", "2h", "1h30m" or "5d"'
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise Unreadable(f"{shown(value)} has no unit", remedy)
    if not isinstance(value, str):
        raise Unreadable(f"{shown(value)} is not a duration", remedy)
    found = _DURATION.fullmatch(value)
    if found is None:
        if re.match(r"^-", value):
            raise Unreadable(f"{shown(value)} is negative", remedy)
        if re.match(r"^([0-9]+[dhms])+$", value) and re.search(r"[0-9]{10}", value):
            raise Unreadable(f"{shown(value)} is longer than ten years", "write a shorter term")
        if re.match(r"^[0-9.]+$", value):
            raise Unreadable(f"{shown(value)} has no unit", remedy)
        raise Unreadable(f"{shown(value)} is not a duration", f"{remedy}; the units are d, h, m and s, largest first, whole numbers only")
    days, hours, minutes, seconds = (int(part[:-1]) if part else 0 for part in found.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total == 0:
        raise Unreadable(f"{shown(value)} is no time at all", "write a term longer than zero")
    if total > LONGEST.total_seconds():
        raise Unreadable(f"{shown(value)} is longer than ten years", "write a shorter term")
    return timedelta(seconds=total)


def written(span: timedelta) -> str:
    """A duration as the operator would write it; `duration` reads it back. Whole seconds only."""
    left = round(span.total_seconds())
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def share(value: object) -> float:
    """``"5%"`` is 0.05. A fraction strictly between 0 and 1 is taken too; any other number could mean either."""
    remedy = 'write it in quotes with its sign, as "5%"'
    if isinstance(value, float) and math.isfinite(value) and 0 < value < 1:
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise Unreadable(f"{shown(value)} can mean a fraction or percent", remedy)
    if not isinstance(value, str) or not _SHARE.fullmatch(value):
        raise Unreadable(f"{shown(value)} is not a share", remedy)
    percent = float(value.rstrip("% "))
    if percent > 100:
        raise Unreadable(f"{shown(value)} is more than everything", 'write at most "100%"')
    return percent / 100


def share_above_zero(value: object) -> float:
    """A threshold that everything reaches when it is zero."""
    result = share(value)
    if result == 0:
        raise Unreadable("0 % is reached by everything", 'write a share above zero, as "20%"')
    return result


def share_below_all(value: object) -> float:
    """A limit that nothing exceeds when it is everything: the busiest machine would count as idle."""
    result = share(value)
    if result >= 1:
        raise Unreadable("100 % calls the busiest machine idle", 'write a share below "100%", as "5%"')
    return result


def count(least: int) -> Callable[[object], int]:
    """A whole number from ``least`` up; a truth value is not a number."""

    def parse(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Unreadable(f"{shown(value)} is not a whole number", "write digits without quotes, as 4")
        if not least <= value <= 1_000_000:
            raise Unreadable(f"{shown(value)} is out of range", f"write a number from {least} to 1000000")
        return value

    return parse


def amount(value: object) -> float:
    """A number above zero, at most a thousand million."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Unreadable(f"{shown(value)} is not a number", "write digits without quotes, as 12.5")
    if not 0 < value <= 1e9:  # also false for nan
        raise Unreadable(f"{shown(value)} is out of range", "write a number above zero, as 12.5")
    return float(value)


def choice(*words: str, later: dict[str, str] | None = None) -> Callable[[object], str]:
    """One of ``words``. ``later``: words the vocabulary knows and this version does not do, with what they would do."""

    def parse(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        rest = " or ".join(json.dumps(word) for word in words)
        if isinstance(value, str) and later is not None and value in later:
            raise Unreadable(f"{later[value]} not available in this version ({shown(value)})", f"write {rest}")
        raise Unreadable(f"{shown(value)} is not one of the words known here", f"write {rest}")

    return parse


def zone(value: object) -> str:
    """An IANA zone that exists here. Nicknames (EST, CET, GMT) are refused: they hide or fix the summer time."""
    remedy = 'write an IANA zone, as "Europe/Berlin" or "UTC"'
    if not isinstance(value, str):
        raise Unreadable(f"{shown(value)} is not a time zone", remedy)
    if value != "UTC" and ("/" not in value or value.startswith(("posix/", "right/", "/"))):
        raise Unreadable(f"{shown(value)} is not the name of a place with a time zone", remedy)
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Unreadable(f"the time zone {shown(value)} does not exist", remedy) from None
    return value


def quiet(value: object) -> DailyHours | Literal["ignore"]:
    """``"20:00-08:00 Europe/Berlin"``, or ``"ignore"``: no hour is quiet."""
    remedy = 'write it in quotes, as "20:00-08:00 Europe/Berlin", or "ignore"'
    if value == "ignore":
        return "ignore"
    if not isinstance(value, str):
        raise Unreadable(f"{shown(value)} is not an interval of the day", remedy)
    found = _HOURS.fullmatch(value)
    if found is None:
        raise Unreadable(f"{shown(value)} is not an interval of the day with its zone", remedy)
    try:
        start = time(int(found[1]), int(found[2]))
        end = time(int(found[3]), int(found[4]))
    except ValueError:
        raise Unreadable(f"{shown(value)} has a time that does not exist", 'hours go from "00:00" to "23:59"') from None
    if start == end:
        raise Unreadable(f"{shown(value)} begins and ends at the same time", 'write different times, or "ignore" for no quiet hours')
    return DailyHours(start, end, zone(found[5]))


def until(value: object) -> datetime:
    """
    The moment at which a protection ends, in UTC.

    RFC 3339 with its offset, or a date: then the whole day still counts, wherever on earth the reader is, so it ends
    with the day at UTC-12. TOML's own dates without quotes say the same and are taken.
    """
    remedy = 'write a date, as "2027-01-15", or a time with its offset, as "2027-01-15T18:00:00+01:00"'
    try:
        match value:
            case datetime():
                if value.tzinfo is None:
                    raise Unreadable(f"{shown(value)} has no offset", remedy)
                return value.astimezone(UTC)
            case date():
                return _end_of(value)
            case str() if _DATE.fullmatch(value):
                return _end_of(date.fromisoformat(value))
            case str() if _MOMENT.fullmatch(value):
                return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except Unreadable:
        raise
    except (ValueError, OverflowError):
        raise Unreadable(f"{shown(value)} is not in the calendar", remedy) from None
    raise Unreadable(f"{shown(value)} is not a date or a time with its offset", remedy)


def _end_of(day: date) -> datetime:
    return (datetime.combine(day, time(0), LAST_ZONE) + timedelta(days=1)).astimezone(UTC)
