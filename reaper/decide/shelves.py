"""What one more good listing of a place says of its disks: how long each has been attached to nothing, as far as somebody looked."""

from dataclasses import replace
from datetime import datetime, timedelta

from reaper.model.kinds.disk import Disk, DiskState, KeptDisk

EVERY = timedelta(minutes=15)
"""How often disks are listed: they are waited for in days."""

BREAKS = timedelta(hours=6)
"""A gap in observation longer than this begins the time anew: whatever may have happened in it happened unseen."""

ADDS = 2 * EVERY
"""A shorter one adds no time where it is longer than this."""

FORGOTTEN = timedelta(days=1)
"""How long a disk is remembered that good listings leave out."""


def seen(before: KeptDisk | None, disk: Disk, last: datetime | None, now: datetime) -> KeptDisk:
    """
    Our record of a disk after one more sight of it. ``last``: the good listing of its place before this one.

    EBS tells no moment of a detach, so age is what we saw ourselves; where the cloud tells of an attach or a detach since the last
    sight, the time begins anew as well.
    """
    free = disk.state is DiskState.AVAILABLE and not disk.attachments
    on = tuple(sorted(one.machine for one in disk.attachments))
    if before is None:
        return KeptDisk(disk, now, now if free else None, last_on=on)
    seen_last = before.missing_since or last
    gap = now - seen_last if seen_last is not None else None
    if not free:
        return replace(before, disk=disk, unattached_since=None, missed=timedelta(0), attached_until=None, last_on=on or before.last_on, missing_since=None)
    if before.unattached_since is None:
        return replace(before, disk=disk, unattached_since=now, missed=timedelta(0), attached_until=seen_last, missing_since=None)
    since = max(before.unattached_since, now - gap) if gap is not None else now
    moved = [at for at in (disk.attached_at, disk.detached_at) if at is not None and at > since]
    if gap is None or gap > BREAKS or gap < timedelta(0) or moved:
        return replace(before, disk=disk, unattached_since=now, missed=timedelta(0), missing_since=None)
    missed = before.missed + (gap if gap > ADDS else timedelta(0))
    return replace(before, disk=disk, missed=missed, missing_since=None)


def left_out(before: KeptDisk, last: datetime, now: datetime) -> KeptDisk | None:
    """One that a good listing does not show. None: it is forgotten. ``last``: the good listing before, which may have shown it."""
    since = before.missing_since or last
    return None if now - since > FORGOTTEN else replace(before, missing_since=since)
