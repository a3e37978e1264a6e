"""
Snapshots: one a disk, since Google has none of a whole machine, of disks in a zone and of those in two.

Accepted is not made: an operation may end with an error and leave no snapshot, so one counts only when it is read back READY
and is of the very disk (by its number, not its name, which a new disk may have), of its size, under its key. The id of the
request is made of the attempt and the disk, so that asking again after a lost answer begins no second snapshot.
https://cloud.google.com/compute/docs/reference/rest/v1/snapshots
"""

import hashlib
import re
import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from reaper import log
from reaper.clouds.gcp.asking import Asking
from reaper.clouds.gcp.instances import regional
from reaper.clouds.gcp.labels import LONGEST, as_tags, label_key, label_value
from reaper.clouds.gcp.machines import Machines
from reaper.clouds.gcp.moments import moment as _moment
from reaper.clouds.gcp.operations import Operations
from reaper.clouds.gcp.pages import messages
from reaper.clouds.gcp.permissions import READER, SNAPSHOTS, Permission
from reaper.errors import AnswerLost, NotFound, Unsupported
from reaper.model.kinds.snapshot import OWN_TAG_PREFIX, Snapshot, SnapshotState
from reaper.model.resource import ResourceId

NEEDS = (
    Permission("compute.snapshots.list", "compute.snapshots.list", READER, "snapshots cannot be verified before anything relies on them"),
    Permission("compute.disks.get", "compute.disks.get", SNAPSHOTS, "no disk can be told from another of its name"),
    Permission("compute.disks.get", "compute.regionDisks.get", SNAPSHOTS, "no disk in two zones can be told from another of its name"),
    Permission("compute.snapshots.create", "compute.snapshots.insert", SNAPSHOTS, "no disk of a stopped machine can be snapshotted"),
    Permission("compute.disks.createSnapshot", "compute.snapshots.insert", SNAPSHOTS, "no disk of a stopped machine can be snapshotted"),
    Permission("compute.snapshots.setLabels", "compute.snapshots.insert", SNAPSHOTS, "snapshots would be made that nobody can find again"),
)

_LOG = log.get(__name__)
_ATTEMPT, _DISK_NUMBER = f"{OWN_TAG_PREFIX}attempt", f"{OWN_TAG_PREFIX}disk-number"
_NAMESPACE = uuid.UUID("6f1d5f5a-64a3-4a0e-9f7c-6d4b0b1f4c2e")
_STATES = {
    "CREATING": SnapshotState.PENDING, "UPLOADING": SnapshotState.PENDING, "READY": SnapshotState.COMPLETED, "FAILED": SnapshotState.FAILED,
    "DELETING": SnapshotState.FAILED,
}  # fmt: skip
_PAGE = 500


class Copies:
    """``watch_s``: how long a snapshot's operation is watched for an early failure. Raises CloudError and its kinds only."""

    def __init__(self, asking: Asking, machines: Machines, operations: Operations, watch_s: float) -> None:
        self._asking, self._machines, self._operations, self._watch_s = asking, machines, operations, watch_s
        self._failed: Counter[tuple[str, str]] = Counter()

    def begin(self, resource: ResourceId, volume: str, tags: Mapping[str, str]) -> str:
        """
        The name of a new snapshot of one of the machine's disks. Raises Unsupported for a disk under a key that Google does not
        hold: without that key there is no copy of it.
        """
        doing = f"snapshot {volume} of {resource}"
        disk = self._disk(resource, volume)
        key = disk.disk_encryption_key
        if disk.HasField("disk_encryption_key") and not key.kms_key_name:
            raise Unsupported(f"{doing}: it is encrypted with a key that Google does not hold; whoever has the key has to snapshot it")
        attempt = tags.get(_ATTEMPT, "")
        before = [raw for raw in self._found(resource, attempt) if _volume(raw) == volume]
        turn = len(before) + self._failed[(attempt, volume)]
        source = disk.self_link[disk.self_link.find("projects/") :]
        name = _name(attempt, volume, source, turn)
        asked: dict[str, Any] = {
            "name": name, "source_disk": source, "labels": _labels(resource, disk, tags),
            "description": _description(tags),
        }  # fmt: skip
        if key.kms_key_name:
            asked["snapshot_encryption_key"] = {"kms_key_name": _key(key.kms_key_name)}
        request = {
            "project": resource.account, "snapshot_resource": asked,
            "request_id": str(uuid.uuid5(_NAMESPACE, f"{attempt} {source} {disk.id} {turn}")),
        }  # fmt: skip
        client = self._asking.client("Snapshots", resource.account)
        operation = self._asking.call(doing, lambda: client.insert_unary(request=request, **self._asking.clients.once()), verb=True)
        if operation.target_link.rpartition("/")[2] != name:
            raise AnswerLost(f"{doing}: Google's answer does not name it; look for it before anything else")
        failure = self._operations.watch_global(resource.account, operation, doing, self._watch_s)
        if failure is not None:
            self._failed[(attempt, volume)] += 1  # the next is another request: this one would be answered with its old end for an hour
            raise failure
        return name

    def found(self, resource: ResourceId, attempt: str) -> tuple[Snapshot, ...]:
        """Those of the attempt, oldest first. One that is READY and not of the disk that the machine has counts as failed."""
        self._machines.require(resource)
        disks: dict[str, Any] = {}
        found = []
        for raw in self._found(resource, attempt):
            volume = _volume(raw)
            if volume not in disks:
                try:
                    disks[volume] = self._disk(resource, volume)
                except NotFound:
                    disks[volume] = None  # it went with its machine: what was written down of it has to do
            found.append(_snapshot(raw, disks[volume]))
        return tuple(sorted(found, key=lambda one: (one.started_at is None, one.started_at or datetime.max.replace(tzinfo=UTC), one.id)))

    def _found(self, resource: ResourceId, attempt: str) -> list[Any]:
        value = label_value(attempt)
        request = {"project": resource.account, "filter": f'labels.{label_key(_ATTEMPT)} = "{value}"', "max_results": _PAGE}
        doing = f"look for snapshots of {resource}"
        client = self._asking.client("Snapshots", resource.account)

        def ask() -> list[Any]:
            pages = client.list(request=request, **self._asking.clients.read()).pages
            return [raw for page in messages(pages, doing) for raw in page.items]

        raws: list[Any] = self._asking.call(doing, ask)
        return [raw for raw in raws if raw.labels.get(label_key(_ATTEMPT)) == value]

    def _disk(self, resource: ResourceId, volume: str) -> Any:
        """Its message. ``volume``: a name, or "REGION/NAME" for a disk in two zones, which has an API of its own."""
        region, _, name = volume.rpartition("/")
        doing = f"read disk {volume} of {resource}"
        kind, where = ("RegionDisks", {"region": region}) if region else ("Disks", {"zone": resource.place})
        client = self._asking.client(kind, resource.account)
        request = {"project": resource.account, "disk": name, **where}
        answer = self._asking.call(doing, lambda: client.get(request=request, **self._asking.clients.read()))
        return type(answer).pb(answer)


def _snapshot(raw: Any, disk: Any) -> Snapshot:
    state = _STATES.get(raw.status, SnapshotState.UNKNOWN)
    tags = as_tags(dict(raw.labels))
    if state is SnapshotState.COMPLETED:
        why = _not_of(raw, disk, tags)
        if why is not None:
            state = SnapshotState.FAILED
            _LOG.warning("snapshot does not count", snapshot=raw.name, because=why)
    volume, written = _volume(raw), f"{OWN_TAG_PREFIX}disk"
    if tags.get(written) == volume.rpartition("/")[2]:
        tags[written] = volume  # a label has no room for a region, and its number tells which disk it is of
    return Snapshot(
        id=raw.name, volume=volume, state=state, size_gib=int(raw.disk_size_gb) or None, encrypted=True,  # Google encrypts whatever it stores
        started_at=_moment(raw.creation_timestamp), tags=tags, disk_gib=None if disk is None else int(disk.size_gb) or None,
        disk_encrypted=None if disk is None else True, disk_attached_at=None if disk is None else _moment(disk.last_attach_timestamp),
    )  # fmt: skip


def _not_of(raw: Any, disk: Any, tags: Mapping[str, str]) -> str | None:
    """Why a snapshot is not one of the disk. ``disk`` None: it is gone, and its number is the one that was written down."""
    if disk is None:
        return None if raw.source_disk_id and tags.get(_DISK_NUMBER) == raw.source_disk_id else "it is of another disk than the one that it was begun of"
    if raw.source_disk_id != str(disk.id) or not disk.id:
        return f"it is of disk {raw.source_disk_id or 'unknown'}, and the machine's is {disk.id}"
    if raw.disk_size_gb != disk.size_gb or not raw.disk_size_gb:
        return f"it is of {raw.disk_size_gb} GB, and the disk has {disk.size_gb} GB"
    wanted, has = _key(disk.disk_encryption_key.kms_key_name), _key(raw.snapshot_encryption_key.kms_key_name)
    return None if wanted == has else f"it is under key {has or 'of Google'}, and the disk under {wanted or 'one of Google'}"


def _volume(raw: Any) -> str:
    return regional(raw.source_disk) if "/regions/" in raw.source_disk else str(raw.source_disk).rpartition("/")[2]


def _name(attempt: str, volume: str, source: str, turn: int) -> str:
    """At most 63 of what Google allows, the disk's name first; two disks of one attempt never share one."""
    disk = re.sub(r"[^a-z0-9-]", "-", volume.rpartition("/")[2].lower())[:28].rstrip("-") or "disk"
    which = hashlib.sha256(source.encode()).hexdigest()[:6]
    return f"{disk if disk[0].isalpha() else f'd{disk}'}-{re.sub(r'[^a-z0-9-]', '', attempt)[:20]}-{which}-{turn}"


def _labels(resource: ResourceId, disk: Any, tags: Mapping[str, str]) -> dict[str, str]:
    """Ours, in what a label can be: the machine by its number, names as they are, moments as seconds. The description has it all in words."""
    plain = {
        **{key: value for key, value in tags.items() if key.startswith(OWN_TAG_PREFIX) and not key.endswith("because")},
        f"{OWN_TAG_PREFIX}machine": resource.native, f"{OWN_TAG_PREFIX}zone": resource.place, _DISK_NUMBER: str(disk.id), f"{OWN_TAG_PREFIX}disk": disk.name,
    }  # fmt: skip
    return {label_key(key): label_value(value)[:LONGEST] for key, value in plain.items()}


def _description(tags: Mapping[str, str]) -> str:
    told = [tags.get("Name", "by idle-reaper"), *(f"{key.removeprefix(OWN_TAG_PREFIX)}: {value}" for key, value in tags.items() if key != "Name")]
    return "; ".join(told)[:2000]


def _key(name: str) -> str:
    """Without the version, which a rotation changes."""
    return name.partition("/cryptoKeyVersions/")[0]
