"""A person keeps a machine for a while. Snoozes add, the latest end wins, and the operator's cap bounds them."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from uuid import uuid4

from reaper.errors import UsageError
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.resource import ResourceId
from reaper.model.snooze import Snooze
from reaper.ports import Store

_LATEST_ZONE = timezone(timedelta(hours=-12))


@dataclass(frozen=True, slots=True)
class Kept:
    """``capped``: the end asked for was beyond the cap. ``until``: the end in force, of all snoozes of the machine."""

    snooze: Snooze
    until: datetime
    cap: timedelta
    capped: bool


def end_of(text: str, now: datetime) -> datetime:
    """
    A moment a person typed: RFC 3339, or a date (its end). Without a zone the latest reading counts.

    Raises UsageError when it cannot be read or is past.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a time; write 2026-12-24T18:00+01:00, or --for 4h") from error
    if len(text.strip()) == 10:
        moment += timedelta(days=1)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_LATEST_ZONE)
    if moment <= now:
        raise UsageError(f"{text!r} is past ({moment.astimezone(UTC):%Y-%m-%d %H:%M UTC})")
    return moment.astimezone(UTC)


def snooze(store: Store, resource: ResourceId, until: datetime, who: str, reason: str, cap: timedelta, now: datetime) -> Kept:
    """Keep ``resource`` until then, at most ``cap`` from now. A shorter one than stands changes nothing about the end."""
    end = min(until, now + cap)
    made = Snooze(f"s-{uuid4().hex[:10]}", resource, end, who, reason, now)
    evidence = {"until": end.isoformat(), "snooze": made.id}
    store.add_snooze(made, AuditEntry(now, AuditKind.SNOOZED, who, reason, resource, evidence=evidence))
    standing = max((s.until for s in store.snoozes(now) if s.resource == resource), default=end)
    return Kept(made, max(standing, end), cap, end < until)
