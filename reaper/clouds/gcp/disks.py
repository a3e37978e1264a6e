"""
One disk as Google's client has it, as our Disk. Pure.

The listing tells whom a disk is attached to, and no answer is half: a place that is not whole has no disks at all (see `pages`). What was
never attached has no moments of it, and an empty one is no epoch. https://cloud.google.com/compute/docs/reference/rest/v1/disks
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from reaper.clouds.gcp.claims import claim, maker
from reaper.clouds.gcp.labels import as_tags
from reaper.clouds.gcp.moments import moment
from reaper.model.kinds.disk import KIND, Attachment, Disk, DiskState
from reaper.model.resource import ResourceId

# UNAVAILABLE is none of these: it is there, and Google does not reach it
_STATES = {
    "CREATING": DiskState.CREATING, "RESTORING": DiskState.CREATING, "READY": DiskState.AVAILABLE, "FAILED": DiskState.FAILED,
    "DELETING": DiskState.DELETING,
}  # fmt: skip
_MANY = {"READ_WRITE_MANY": True, "READ_ONLY_MANY": True, "READ_WRITE_SINGLE": False, "": False}  # READ_WRITE_SINGLE is what it is by default

Price = Callable[[str, str, int | None, int | None, int | None, bool], float | None]
"""Dollars a month of (region, type, GiB, provisioned IOPS, provisioned MiB/s, in two zones); None: not known."""


def no_price(region: str, type: str, size_gib: int | None, iops: int | None, mib_s: int | None, regional: bool) -> float | None:
    return None


def parse_disk(raw: Any, *, project: str, place: str, price: Price = no_price, given: dict[str, str] | None = None) -> Disk:
    """
    One Disk message. ``place``: its zone, or the region of one that is in two zones. Whatever is missing is None; it is AVAILABLE only where
    Google says READY and names no user. ``given``: what the operator said of the whole project.

    Raises ValueError without a numeric id: a listing with a nameless disk in it is not complete.
    """
    if not raw.id:
        raise ValueError(f"the listing of {project} holds a disk without an id in {place}")
    zones = sorted({_tail(zone) for zone in raw.replica_zones} - {""})
    regional = bool(raw.region or zones)
    labels, made = dict(raw.labels), _plausible(raw.creation_timestamp, None)
    attached, detached = _plausible(raw.last_attach_timestamp, made), _plausible(raw.last_detach_timestamp, made)
    users = tuple(_tail(user) or "?" for user in raw.users)
    size, type_name = _amount(raw.size_gb), _tail(raw.type_) or None
    iops, mib_s = _amount(raw.provisioned_iops), _amount(raw.provisioned_throughput)
    priced = type_name is not None and not raw.storage_pool and not raw.enable_confidential_compute  # both are paid for in other ways
    return Disk(
        id=ResourceId("gcp", project, place, KIND, str(raw.id)),
        state=_state(raw.status, len(users) > 0),
        name=raw.name or None,
        tags=as_tags(labels),
        size_gib=size,
        type=type_name,
        iops=iops,
        mib_s=mib_s,
        zone=",".join(zones) or None if regional else place,
        encrypted=True,  # Google encrypts whatever it stores
        key=_key(raw),
        multi_attach=True if len(users) > 1 or getattr(raw, "multi_writer", False) else _MANY.get(raw.access_mode),
        created_at=made,
        attachments=tuple(Attachment(user, _since(users, attached, detached)) for user in users),
        attached_at=attached,
        detached_at=detached,
        from_snapshot=_named(raw.source_snapshot or raw.source_instant_snapshot, project),
        from_image=_named(raw.source_image, project),
        claim=claim(raw.name, labels, raw.description),
        made_by=maker(raw.name, labels, raw.description),
        locked=_locked(raw),
        monthly_usd=price(place if regional else place.rpartition("-")[0], type_name, size, iops, mib_s, regional) if priced and type_name else None,
        given=given,
        notes=_notes(raw, project),
    )


def once(disks: Iterable[Disk]) -> tuple[Disk, ...]:
    """One that moves between pages while they are read comes twice. The later page is the newer; attached on either is attached."""
    found: dict[ResourceId, Disk] = {}
    for disk in disks:
        before = found.get(disk.id)
        if before is None or before.state is not DiskState.IN_USE or disk.state is not DiskState.AVAILABLE:
            found[disk.id] = disk
    return tuple(found.values())


def _state(word: str, used: bool) -> DiskState:
    state = _STATES.get(word, DiskState.UNKNOWN)
    return DiskState.IN_USE if used and state not in (DiskState.DELETING, DiskState.FAILED) else state


def _amount(number: int) -> int | None:
    return int(number) if number > 0 else None


def _since(users: tuple[str, ...], attached: datetime | None, detached: datetime | None) -> datetime | None:
    """The last attach is that of the only user, unless another one was there that has gone since."""
    return attached if len(users) == 1 and attached is not None and (detached is None or detached <= attached) else None


def _plausible(text: str, made: datetime | None) -> datetime | None:
    """Nothing happened to a disk before it was made, nor any of it before there were disks."""
    found = moment(text)
    return None if found is None or found.year < 2010 or (made is not None and found < made) else found


def _key(raw: Any) -> str | None:
    if not raw.HasField("disk_encryption_key"):
        return None
    key = raw.disk_encryption_key
    if key.kms_key_name:
        return str(key.kms_key_name).partition("/cryptoKeyVersions/")[0]  # the version changes with a rotation
    return f"sha256:{key.sha256}" if key.sha256 else "one that Google does not hold"


def _locked(raw: Any) -> str | None:
    why = []
    if raw.HasField("disk_encryption_key") and not raw.disk_encryption_key.kms_key_name:
        why.append("it is encrypted with a key that Google does not hold, so only whoever has the key can snapshot it")
    if raw.storage_pool:
        why.append(f"it is in the storage pool {_tail(raw.storage_pool)}, which is paid for with it or without it")
    primary = raw.async_primary_disk.disk if raw.HasField("async_primary_disk") else ""
    if raw.HasField("async_primary_disk") or (raw.HasField("resource_status") and raw.resource_status.HasField("async_primary_disk")):
        why.append(f"Google copies another disk into it{f', {_tail(primary)}' if primary else ''}")
    if raw.async_secondary_disks or (raw.HasField("resource_status") and raw.resource_status.async_secondary_disks):
        why.append("Google copies it into " + (", ".join(sorted(map(_tail, raw.async_secondary_disks))) or "another disk"))
    return "; ".join(why) or None


def _notes(raw: Any, project: str) -> tuple[str, ...]:
    notes = []
    if raw.resource_policies:
        notes.append(f"resource policies, as a rule a snapshot schedule: {', '.join(sorted(map(_tail, raw.resource_policies)))}")
    if raw.source_disk:
        notes.append(f"made as a copy of disk {_named(raw.source_disk, project)}")
    if raw.source_storage_object:
        notes.append(f"made of {raw.source_storage_object}")
    return tuple(notes)


def _named(link: str, project: str) -> str | None:
    """Its bare name where it is of the same project, else what tells it apart: "projects/debian-cloud/global/images/debian-12"."""
    if not link:
        return None
    start = link.find("projects/")
    return _tail(link) if start < 0 or link[start:].startswith(f"projects/{project}/") else link[start:]


def _tail(link: str) -> str:
    return link.rpartition("/")[2]
