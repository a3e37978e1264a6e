"""
What changes something in an account: one call, one machine, never retried, never a batch.

Tags are ours alone, by their prefix; a snapshot carries tags from the moment it exists, so that none is lost to a crash.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any

from reaper.clouds.aws.permissions import ACTOR, READER, SNAPSHOTS, TERMINATE, Permission
from reaper.errors import AnswerLost, CloudError, NoCapacity, Refused
from reaper.model.kinds.snapshot import OWN_TAG_PREFIX, Snapshot, SnapshotState
from reaper.model.resource import ResourceId

if TYPE_CHECKING:
    from reaper.clouds.aws.account import Account

_MACHINES = "arn:{partition}:ec2:*:*:instance/*"

NEEDS = (
    Permission("ec2:StopInstances", ACTOR, "stop and hibernate", on=_MACHINES, probe="stop_instances"),
    Permission("ec2:StartInstances", ACTOR, "start again what it stopped", on=_MACHINES, probe="start_instances"),
    Permission("ec2:CreateTags", ACTOR, "mirror what it did and owes on the machine, under its own prefix", on=_MACHINES, probe="create_tags"),
    Permission("ec2:DeleteTags", ACTOR, "take its own tags off again", on=_MACHINES, probe="delete_tags"),
    Permission("kms:CreateGrant", ACTOR, "start machines whose disks are encrypted with a key of yours", on="arn:{partition}:kms:*:*:key/*"),
    Permission("ec2:DescribeSnapshots", READER, "verify snapshots before anything relies on them", probe="describe_snapshots"),
    Permission("ec2:DescribeVolumes", READER, "compare a snapshot with the disk it is of", probe="describe_volumes"),
    Permission("ec2:CreateSnapshot", SNAPSHOTS, "snapshot the disks of a stopped machine", probe="create_snapshot"),
    Permission("ec2:TerminateInstances", TERMINATE, "end a machine whose last snapshot is verified", on=_MACHINES, probe="terminate_instances"),
)

_STATES = {"pending": SnapshotState.PENDING, "completed": SnapshotState.COMPLETED, "error": SnapshotState.FAILED}


def stop(account: "Account", resource: ResourceId) -> None:
    """A plain stop: no force, no hibernation."""
    answer = _verb(account, "stop", resource, "stop_instances", InstanceIds=[resource.native])
    _require_named(answer.get("StoppingInstances", ()), resource, "stop")


def hibernate(account: "Account", resource: ResourceId) -> None:
    """Raises Unsupported where the machine was not launched for it; it is not stopped instead."""
    answer = _verb(account, "hibernate", resource, "stop_instances", InstanceIds=[resource.native], Hibernate=True)
    _require_named(answer.get("StoppingInstances", ()), resource, "hibernate")


def start(account: "Account", resource: ResourceId) -> None:
    """A lack of capacity names the zone and the type."""
    try:
        answer = _verb(account, "start", resource, "start_instances", InstanceIds=[resource.native])
    except NoCapacity as error:
        try:
            known = account.get(resource)
        except CloudError:
            raise error from error.__cause__
        where = f"no {known.type} in {known.zone or resource.place} now"
        raise NoCapacity(f"{error} ({where})", error.code) from error.__cause__
    _require_named(answer.get("StartingInstances", ()), resource, "start")


def terminate(account: "Account", resource: ResourceId) -> None:
    answer = _verb(account, "terminate", resource, "terminate_instances", InstanceIds=[resource.native])
    _require_named(answer.get("TerminatingInstances", ()), resource, "terminate")


def tag(account: "Account", resource: ResourceId, tags: Mapping[str, str | None]) -> None:
    """Raises Refused for a key that is not ours."""
    strange = [key for key in tags if not key.startswith(OWN_TAG_PREFIX)]
    if strange:
        raise Refused(f"tag {resource}: {strange[0]} is not one of our own keys, which begin with {OWN_TAG_PREFIX}")
    put = [{"Key": key, "Value": value[:256]} for key, value in tags.items() if value is not None]
    gone = [{"Key": key} for key, value in tags.items() if value is None]
    if put:
        _verb(account, "tag", resource, "create_tags", Resources=[resource.native], Tags=put)
    if gone:
        _verb(account, "untag", resource, "delete_tags", Resources=[resource.native], Tags=gone)


def snapshot(account: "Account", resource: ResourceId, volume: str, tags: Mapping[str, str]) -> str:
    """The new snapshot's id. Accepted is not complete."""
    given = [{"Key": key, "Value": value[:256]} for key, value in tags.items()]
    answer = _verb(
        account, f"snapshot {volume} of", resource, "create_snapshot", VolumeId=volume,
        Description=f"{volume} of {resource.native}, by idle-reaper", TagSpecifications=[{"ResourceType": "snapshot", "Tags": given}],
    )  # fmt: skip
    id = answer.get("SnapshotId")
    if not id or answer.get("VolumeId") != volume:
        raise AnswerLost(f"snapshot {volume} of {resource}: EC2's answer does not name it; look for it before anything else")
    return str(id)


def snapshots(account: "Account", resource: ResourceId, key: str) -> tuple[Snapshot, ...]:
    """Those that carry ``key`` as our attempt, oldest first, each with what its disk is now."""
    account.require(resource)
    client, doing = account.reads(resource.place), f"look for snapshots of {resource}"
    pages = account.pages(
        doing, client, "describe_snapshots", OwnerIds=["self"], Filters=[{"Name": f"tag:{OWN_TAG_PREFIX}attempt", "Values": [key]}],
    )  # fmt: skip
    found = [raw for page in pages for raw in page.get("Snapshots", ())]
    of = sorted({str(raw["VolumeId"]) for raw in found if raw.get("VolumeId")})
    # by filter, because one disk that is gone in VolumeIds would make EC2 refuse the whole question
    asked = account.pages(f"read the disks of {resource}", client, "describe_volumes", Filters=[{"Name": "volume-id", "Values": of}]) if of else ()
    disks = {str(raw.get("VolumeId")): raw for page in asked for raw in page.get("Volumes", ())}
    made = [_snapshot(raw, disks.get(str(raw.get("VolumeId")), {})) for raw in found]
    return tuple(sorted(made, key=lambda one: (one.started_at is None, one.started_at, one.id)))


def _snapshot(raw: Mapping[str, Any], disk: Mapping[str, Any]) -> Snapshot:
    started = raw.get("StartTime")
    return Snapshot(
        id=str(raw.get("SnapshotId")), volume=str(raw.get("VolumeId")), state=_STATES.get(str(raw.get("State")), SnapshotState.UNKNOWN),
        size_gib=raw.get("VolumeSize"), encrypted=raw.get("Encrypted"), started_at=None if started is None else started.astimezone(UTC),
        tags={str(one["Key"]): str(one.get("Value") or "") for one in raw.get("Tags") or ()}, disk_gib=disk.get("Size"),
        disk_encrypted=disk.get("Encrypted"),
        disk_attached_at=max((one["AttachTime"].astimezone(UTC) for one in disk.get("Attachments") or () if one.get("AttachTime")), default=None),
    )  # fmt: skip


def _verb(account: "Account", doing: str, resource: ResourceId, operation: str, **asked: Any) -> Mapping[str, Any]:
    account.require(resource)
    client = account.verbs(resource.place)
    answer: Mapping[str, Any] = account.call(f"{doing} {resource}", lambda: getattr(client, operation)(**asked), verb=True)
    return answer


def _require_named(changes: Iterable[Mapping[str, Any]], resource: ResourceId, verb: str) -> None:
    if not any(change.get("InstanceId") == resource.native for change in changes):
        raise AnswerLost(f"{verb} {resource}: EC2's answer does not name it; read it before anything else")


