"""
What protects a machine: the operator's list, its own keep-until tag, and what protected it until a moment ago.

A protection that vanished before its own end holds for a day from the cycle that noticed.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone

from reaper.decide.facts import Shield
from reaper.model.kinds.instance import Instance
from reaper.model.policy import Configuration
from reaper.ports import SeenProtection

KEEP_UNTIL = "reaper-keep-until"
"""The tag (a label on Google) with which anybody can keep a machine, up to the operator's cap."""

GRACE = timedelta(days=1)
_LATEST_ZONE = timezone(timedelta(hours=-12))


def read_keep_until(text: str) -> datetime | None:
    """
    A date (its end), RFC 3339, or epoch seconds (labels allow no colon). Without a zone the latest reading counts.

    None: not readable, which protects.
    """
    value = text.strip()
    try:
        if value.isdigit():
            return datetime.fromtimestamp(int(value), UTC) if 9 <= len(value) <= 11 else None
        if len(value) == 10:
            day = date.fromisoformat(value)
            return datetime.combine(day + timedelta(days=1), time(), _LATEST_ZONE).astimezone(UTC)
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=_LATEST_ZONE)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):  # also years that no calendar of ours has, and digits that are none
        return None


def current(instance: Instance, configuration: Configuration, cap: timedelta, seen: dict[str, SeenProtection], now: datetime) -> tuple[Shield, ...]:
    """
    What it says of itself, ended ones included; the keep-until tag at most ``cap`` from our first sight of that value.

    The tag's key is read without regard to case: people write it by hand, and clouds compare keys exactly.
    """
    shields = [Shield(f"protect.{p.name}", p.reason, p.until) for p in configuration.protections_for(instance)]
    for key, tag in instance.tags.items():
        if key.strip().casefold() != KEEP_UNTIL:
            continue
        name = f"tag {KEEP_UNTIL}={tag}" if key == KEEP_UNTIL else f"tag {key}={tag}"
        until = read_keep_until(tag)
        first = seen[name].first_seen_at if name in seen else now
        if until is None:
            shields.append(Shield(name, "its value cannot be read as a time, so it protects"))
        else:
            capped = min(until, first + cap)
            shields.append(Shield(name, "kept by its tag" + (f", capped at {cap.days} days" if capped < until else ""), capped))
    return tuple(shields)


def remember(
    instance: Instance, shields: Iterable[Shield], seen: dict[str, SeenProtection], now: datetime
) -> tuple[tuple[Shield, ...], tuple[SeenProtection, ...], tuple[SeenProtection, ...]]:
    """
    (all that protects it now, records to keep, records to drop), given what was ``seen`` on it before.

    The record of one that ended while its tag is still there stays, else its cap would be counted anew.
    """
    said = {shield.name: shield for shield in shields}
    every = {name: shield for name, shield in said.items() if shield.holds(now)}
    keep: list[SeenProtection] = []
    drop: list[SeenProtection] = []
    for name, shield in said.items():
        old = seen.get(name)
        if name in every or old is None:
            first = old.first_seen_at if old is not None else now
            keep.append(SeenProtection(instance.id, name, first, now, shield.until))
    for name, record in seen.items():
        if name in every:
            continue
        if record.vanished_at is None and record.ends_at is not None and record.ends_at <= now:
            (keep if name in said else drop).append(record)  # it ended when it said it would
            continue
        vanished = record.vanished_at or now
        until = vanished + GRACE
        if now >= until:
            if name in said:  # somebody gave it an earlier end, and the day of grace is over
                keep.append(replace(record, ends_at=said[name].until, vanished_at=None))
            else:
                drop.append(record)
            continue
        keep.append(replace(record, vanished_at=vanished))
        every[name] = Shield(name, f"it vanished before its own end at {vanished:%Y-%m-%d %H:%M %Z}", until)
    return tuple(every.values()), tuple(keep), tuple(drop)
