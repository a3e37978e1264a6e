"""EBS volumes of one account and region, by one question of as many pages as it takes, and each entry as our Disk."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from reaper.clouds.aws import storage_prices
from reaper.clouds.aws.account import unhidden
from reaper.clouds.aws.origins import claim_of, made_by
from reaper.clouds.aws.permissions import READER, Permission
from reaper.errors import Denied
from reaper.model.kinds.disk import KIND, Attachment, Disk, DiskState
from reaper.model.resource import Place, ResourceId

if TYPE_CHECKING:
    from reaper.clouds.aws.account import Account

NEEDS = (Permission("ec2:DescribeVolumes", READER, "list disks, and compare a snapshot with the disk it is of", probe="describe_volumes"),)

_STATES = {
    "creating": DiskState.CREATING,
    "available": DiskState.AVAILABLE,
    "in-use": DiskState.IN_USE,
    "deleting": DiskState.DELETING,
    "error": DiskState.FAILED,
}
_GONE = "deleted"
_OFF = "detached"
_NATIVE = re.compile(r"[A-Za-z0-9._-]{1,128}")


def list_disks(account: "Account", region: str) -> tuple[Disk, ...]:
    """All or nothing: a page that fails fails the region. Without filters; those that are gone are dropped here."""
    owner = account.own()
    doing = f"list disks in {Place('aws', owner, region)}"
    client = account.reads(region)
    # one that moves between pages while they are read comes twice: the later page is the newer
    found: dict[str, Disk | None] = {}
    pages = account.paged(
        doing, client, "describe_volumes", PaginationConfig={"PageSize": account.page_size}, **unhidden(client, "DescribeVolumes"),
    )  # fmt: skip
    for page in pages:
        raws = page.get("Volumes", [])
        for raw in raws:
            told = raw.get("OwnerId")
            if told is not None and told != owner:
                # the credentials were swapped under us: ids made from the remembered account would be wrong
                raise Denied(f"EC2 answers for AWS account {told} instead of {owner}; restart with credentials of one account")
            disk = parse_disk(raw, account=owner, region=region, price=lambda word: account.prices.of(region, word), given=account.given)
            found[native_of(raw)] = disk
        raws.clear()  # botocore holds on to a page until it has the next
    holders = account.holders(region)
    return tuple(_held(disk, holders.get(native)) for native, disk in found.items() if disk is not None)


def _held(disk: Disk, machine: str | None) -> Disk:
    """A disk that a machine was listed with is that machine's, also where the disk itself does not say so, or not any more."""
    if machine is None or disk.state is not DiskState.AVAILABLE:
        return disk
    return replace(disk, state=DiskState.IN_USE, attachments=(Attachment(machine),))


def native_of(raw: Mapping[str, Any]) -> str:
    """Raises ValueError without an id: a listing with a nameless disk in it is not complete."""
    native = raw.get("VolumeId")
    if not isinstance(native, str) or not _NATIVE.fullmatch(native):
        raise ValueError(f"the listing holds a disk without an id that can be used ({native!r})")
    return native


def parse_disk(
    raw: Mapping[str, Any], *, account: str, region: str, price: Callable[[str], float | None] = lambda _: None, given: dict[str, str] | None = None,
) -> Disk | None:  # fmt: skip
    """
    One entry of DescribeVolumes; None: EC2 says that it is gone. Whatever is missing or not of its kind is None, a word we do not know
    is UNKNOWN. ``price``: of a word of `storage_prices`. EBS tells when a disk was attached and never when it was detached.

    Raises ValueError without an id.
    """
    native = native_of(raw)
    if raw.get("State") == _GONE:
        return None
    tags = tags_of(raw)
    attachments = tuple(_attachments(raw))
    zone, type_ = _text(raw.get("AvailabilityZone")), _text(raw.get("VolumeType"))
    size, iops, mib_s = _count(raw.get("Size")), _count(raw.get("Iops")), _count(raw.get("Throughput"))
    encrypted = _flag(raw.get("Encrypted"))
    at_list_price = zone is not None and zone[:-1] == region and not raw.get("OutpostArn")
    return Disk(
        id=ResourceId(cloud="aws", account=account, place=region, kind=KIND, native=native),
        state=_state(raw),
        name=tags.get("Name") or None,
        tags=tags,
        size_gib=size,
        type=type_,
        iops=iops,
        mib_s=mib_s,
        zone=zone,
        encrypted=encrypted,
        key=None if encrypted is False else _text(raw.get("KmsKeyId")),
        multi_attach=_flag(raw.get("MultiAttachEnabled")),
        created_at=moment(raw.get("CreateTime")),
        attachments=attachments,
        attached_at=max((one.since for one in attachments if one.since is not None), default=None),
        from_snapshot=_text(raw.get("SnapshotId")),
        claim=claim_of(tags),
        made_by=made_by(tags),
        locked=_locked(raw),
        monthly_usd=storage_prices.disk_usd(price, type_, size, iops, mib_s) if at_list_price else None,
        given=given,
    )


def _state(raw: Mapping[str, Any]) -> DiskState:
    """
    The safer of the two where its word and its attachments differ. A disk is available only where both say so: no list of
    attachments at all is no empty one.
    """
    word = raw.get("State")
    state = _STATES.get(word, DiskState.UNKNOWN) if isinstance(word, str) else DiskState.UNKNOWN
    if state is not DiskState.AVAILABLE:
        return state
    attachments = raw.get("Attachments")
    if not isinstance(attachments, list | tuple):
        return DiskState.UNKNOWN
    return DiskState.IN_USE if attachments else DiskState.AVAILABLE


def _attachments(raw: Mapping[str, Any]) -> Iterator[Attachment]:
    """Those on their way on and off count. A service's own (a task of ECS) names no machine, and what it is for instead."""
    for one in _items(raw.get("Attachments")):
        if one.get("State") != _OFF:
            named = (_text(one.get(key)) for key in ("InstanceId", "AssociatedResource", "InstanceOwningService"))
            yield Attachment(machine=next((name for name in named if name is not None), "?"), since=moment(one.get("AttachTime")))


def _locked(raw: Mapping[str, Any]) -> str | None:
    """An AWS service that operates the disk in the account's name (EKS Auto Mode) lets nobody else delete it."""
    operator = raw.get("Operator")
    if not isinstance(operator, Mapping) or not (operator.get("Managed") or operator.get("Principal")):
        return None
    return f"AWS service {operator.get('Principal') or 'that is not named'} operates it, which alone may delete it"


def tags_of(raw: Mapping[str, Any]) -> dict[str, str]:
    """A key without a value has an empty one; of a key that comes twice the later value counts, unless it is empty."""
    tags: dict[str, str] = {}
    for one in _items(raw.get("Tags")):
        key, value = one.get("Key"), one.get("Value")
        if isinstance(key, str):
            tags[key] = (value if isinstance(value, str) else "") or tags.get(key, "")
    return tags


def moment(value: Any) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        return None


def _items(value: Any) -> Iterator[Mapping[str, Any]]:
    yield from (one for one in value if isinstance(one, Mapping)) if isinstance(value, list | tuple) else ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
