"""
What lies about beside disks: snapshots whose disk is gone, addresses tied to nothing, load balancers without a living target.

Only told, never acted on. Each kind is a read of its own; one that may not or cannot be read is a sentence and hides no other.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from reaper.clouds.aws import storage_prices
from reaper.clouds.aws.account import NOT_ALLOWED
from reaper.clouds.aws.disks import moment, tags_of
from reaper.clouds.aws.origins import made_by
from reaper.clouds.aws.permissions import READER, Permission
from reaper.errors import CloudError, NotFound, Throttled
from reaper.model.kinds.disk import Disk, Leftover
from reaper.model.kinds.snapshot import OWN_TAG_PREFIX
from reaper.model.resource import Place, ResourceId

if TYPE_CHECKING:
    from reaper.clouds.aws.account import Account

_TELL = "tell of what nobody uses any more; without it that is not told"

NEEDS = (
    Permission("ec2:DescribeSnapshots", READER, "verify snapshots, and tell of those whose disk is gone", probe="describe_snapshots"),
    Permission("ec2:DescribeImages", READER, f"say which snapshots images are made of, and {_TELL}", probe="describe_images", optional=True),
    Permission("ec2:DescribeAddresses", READER, _TELL, probe="describe_addresses", optional=True),
    Permission("elasticloadbalancing:DescribeLoadBalancers", READER, _TELL, optional=True),
    Permission("elasticloadbalancing:DescribeTargetGroups", READER, _TELL, optional=True),
    Permission("elasticloadbalancing:DescribeTargetHealth", READER, _TELL, optional=True),
    Permission("elasticloadbalancing:DescribeTags", READER, f"say whose a load balancer is, and {_TELL}", optional=True),
)

HEALTH_CALLS = 200
"""Target groups asked for their health in a region and shelving, each a call of its own: a region has a hundred by default, and may have thousands."""

SETTLED = timedelta(hours=1)
"""A younger snapshot is not judged: its disk may be one that was made after the disks were listed."""

_TAGS_A_CALL = 20
_NO_DISK = re.compile(r"^vol-f+$")
"""A copied snapshot names this disk, which is none. https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CopySnapshot.html"""

_IMAGE = re.compile(r"\bami-[0-9a-f]+\b")
_DEAD = frozenset({"unhealthy", "unhealthy.draining", "unused", "draining"})
"""Of a target; "unavailable" is one whose health nobody checks (functions), "initial" one that has just come."""

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Found:
    """``unread``: what could not be read, a sentence each."""

    leftovers: tuple[Leftover, ...] = ()
    unread: tuple[str, ...] = ()


Ask = Callable[["Account", str, Sequence[Disk]], Found]
"""Asks a region for one kind; the disks are those that were listed there just before. Raises CloudError and its kinds."""


def why_unread(what: str, error: CloudError) -> str:
    if error.code in NOT_ALLOWED:
        return f"{what}: not allowed ({error.code}); the IAM document {READER} has what it takes"
    return f"{what}: {error}"


# --- snapshots --------------------------------------------------------------------------------------------------------


def snapshots(account: "Account", region: str, disks: Sequence[Disk]) -> Found:
    """Of this account, whose disk is not in the region's listing any more, and copies, which do not tell whose they are."""
    place = Place("aws", account.own(), region)
    client, there = account.reads(region), {disk.id.native for disk in disks}
    pages = account.paged(f"list snapshots in {place}", client, "describe_snapshots", OwnerIds=["self"], PaginationConfig={"PageSize": account.page_size})
    own = (raw for page in pages for raw in page.get("Snapshots", ()) if raw.get("OwnerId") in (None, place.account) and raw.get("SnapshotId"))
    settled = account.clock.now() - SETTLED
    of: dict[str, int] = {}
    left: list[Mapping[str, Any]] = []
    for raw in own:
        disk, started = str(raw.get("VolumeId") or ""), moment(raw.get("StartTime"))
        of[disk] = of.get(disk, 0) + 1
        if disk not in there and raw.get("State") != "pending" and started is not None and started <= settled:
            left.append(raw)
    images, unread = _images(account, place) if left else ({}, ())
    price = account.prices.of(region, storage_prices.SNAPSHOT)
    found = (_snapshot(raw, place, images, not unread, of[str(raw.get("VolumeId") or "")], price, account.given) for raw in left)
    return Found(tuple(found), unread)


def _images(account: "Account", place: Place) -> tuple[dict[str, str], tuple[str, ...]]:
    """By snapshot the image that is made of it; and what could not be read."""
    doing, client = f"list images in {place}", account.reads(place.name)
    asked = {"Owners": ["self"], "IncludeDeprecated": True, "IncludeDisabled": True, "PaginationConfig": {"PageSize": account.page_size}}
    try:
        images = [image for page in account.paged(doing, client, "describe_images", **asked) for image in page.get("Images", ())]
    except CloudError as error:
        return {}, (f"{why_unread('images', error)}; which snapshots images are made of is told by what the snapshots say themselves",)
    return {
        str((disk.get("Ebs") or {})["SnapshotId"]): str(image.get("ImageId"))
        for image in images
        for disk in image.get("BlockDeviceMappings") or ()
        if (disk.get("Ebs") or {}).get("SnapshotId")
    }, ()


def _snapshot(
    raw: Mapping[str, Any], place: Place, images: Mapping[str, str], images_read: bool, of_the_same: int, gib_usd: float | None, given: dict[str, str] | None
) -> Leftover:
    native, disk, tags = str(raw["SnapshotId"]), str(raw.get("VolumeId") or ""), tags_of(raw)
    known = bool(disk) and not _NO_DISK.match(disk)
    words = [f"its disk {disk} is gone" if known else "it is a copy, and does not tell of which disk"]
    words += _uses(native, str(raw.get("Description") or ""), images, images_read)
    maker = made_by(tags)
    if maker is not None:
        words.append(f"made by {maker}")
    if f"{OWN_TAG_PREFIX}attempt" in tags:
        words.append("this product made it")
    if raw.get("State") == "error":
        words.append("it failed")
    usd, about = _stored(raw, of_the_same if known else 0, gib_usd)
    return Leftover(
        id=ResourceId(place.cloud, place.account, place.name, "snapshot", native), what="snapshot", because="; ".join((*words, *about)),
        name=tags.get("Name") or None, tags=tags, size_gib=raw.get("VolumeSize"), created_at=moment(raw.get("StartTime")),
        source=disk if known else None, source_gone=True if known else None, monthly_usd=usd, given=given,
    )  # fmt: skip


def _uses(native: str, description: str, images: Mapping[str, str], images_read: bool) -> Iterator[str]:
    if native in images:
        yield f"image {images[native]} is made of it"
        return
    told = _IMAGE.search(description)
    if told is not None:
        yield f"it was made for image {told.group()}" + (", which this account does not have any more" if images_read else "")


def _stored(raw: Mapping[str, Any], of_the_same: int, gib_usd: float | None) -> tuple[float | None, tuple[str, ...]]:
    """
    A snapshot is billed for what the ones before it do not have, which EC2 does not tell. Of the only one of a disk its full size is the most it
    can be. https://docs.aws.amazon.com/ebs/latest/userguide/how_snapshots_work.html
    """
    full = raw.get("FullSnapshotSizeInBytes")
    if of_the_same > 1:
        return None, (f"one of {of_the_same} of that disk, which share what they have in common",)
    if gib_usd is None or of_the_same != 1 or not isinstance(full, int) or raw.get("StorageTier") not in (None, "standard"):
        return None, ()
    return round(full / _GIB * gib_usd, 4), ("the price is the most it can be",)


# --- addresses --------------------------------------------------------------------------------------------------------


def addresses(account: "Account", region: str, _: Sequence[Disk]) -> Found:
    """Elastic IPs tied to nothing. One that an AWS service manages is that service's to give back."""
    place = Place("aws", account.own(), region)
    client = account.reads(region)
    answer = account.call(f"list addresses in {place}", client.describe_addresses)
    price = account.prices.of(region, storage_prices.ADDRESS)
    return Found(tuple(_address(raw, place, price, account.given) for raw in answer.get("Addresses", ()) if _idle(raw)))


_TIES = ("AssociationId", "InstanceId", "NetworkInterfaceId", "PrivateIpAddress")


def _idle(raw: Mapping[str, Any]) -> bool:
    return bool(raw.get("AllocationId") or raw.get("PublicIp")) and not raw.get("ServiceManaged") and not any(raw.get(tie) for tie in _TIES)


def _address(raw: Mapping[str, Any], place: Place, hourly: float | None, given: dict[str, str] | None) -> Leftover:
    tags, pool = tags_of(raw), raw.get("PublicIpv4Pool")
    own = raw.get("CustomerOwnedIpv4Pool") or (pool if pool != "amazon" else None)
    because = f"the address {raw.get('PublicIp') or 'that is not told'} is tied to nothing"
    return Leftover(
        id=ResourceId(place.cloud, place.account, place.name, "address", str(raw.get("AllocationId") or raw.get("PublicIp"))), what="address",
        because=f"{because}; it is of a pool of your own ({own})" if own else because, name=tags.get("Name") or None, tags=tags,
        source=raw.get("PublicIp"), monthly_usd=None if hourly is None or own else round(hourly * storage_prices.HOURS, 4), given=given,
    )  # fmt: skip


# --- load balancers ---------------------------------------------------------------------------------------------------


def load_balancers(account: "Account", region: str, _: Sequence[Disk], health_calls: int = HEALTH_CALLS) -> Found:
    """Application, network and gateway ones, without a target that lives; the oldest are looked into first."""
    place = Place("aws", account.own(), region)
    try:
        return _load_balancers(account, account.reads(region, "elbv2"), place, health_calls)
    finally:
        account.clients.let_go(region, "elbv2")


def _load_balancers(account: "Account", client: Any, place: Place, health_calls: int) -> Found:
    balancers = [
        one
        for page in account.paged(f"list load balancers in {place}", client, "describe_load_balancers")
        for one in page.get("LoadBalancers", ())
        if one.get("LoadBalancerArn") and (one.get("State") or {}).get("Code") != "provisioning"
    ]
    if not balancers:
        return Found()
    groups: dict[str, list[str]] = {}
    for page in account.paged(f"list target groups in {place}", client, "describe_target_groups"):
        for group in page.get("TargetGroups", ()):
            for arn in group.get("LoadBalancerArns", ()):
                groups.setdefault(str(arn), []).append(str(group["TargetGroupArn"]))
    balancers.sort(key=lambda one: (moment(one.get("CreatedTime")) is None, moment(one.get("CreatedTime")), one["LoadBalancerArn"]))
    idle, unread = _without_targets(account, client, place, balancers, groups, health_calls)
    tags, tags_unread = _tags(account, client, place, [str(one["LoadBalancerArn"]) for one, _ in idle])
    left = (_balancer(one, place, why, tags.get(str(one["LoadBalancerArn"]), {}), account) for one, why in idle)
    return Found(tuple(left), (*unread, *tags_unread))


def _without_targets(
    account: "Account", client: Any, place: Place, balancers: Sequence[Mapping[str, Any]], groups: Mapping[str, Sequence[str]], calls: int
) -> tuple[list[tuple[Mapping[str, Any], str]], tuple[str, ...]]:
    """Those without a living target, each with why; and what could not be looked into."""
    idle: list[tuple[Mapping[str, Any], str]] = []
    left, over = calls, 0
    for n, balancer in enumerate(balancers):
        own = groups.get(str(balancer["LoadBalancerArn"]), ())
        if len(own) > left:
            over += 1
            continue
        states: list[str | None] = []
        try:
            for group in own:
                left -= 1
                states += _health(account, client, place, group)
                if any(state not in _DEAD for state in states):
                    break  # it lives; nobody has to ask on
        except Throttled:
            raise  # so that it is left alone for a while
        except CloudError as error:
            return idle, (f"{why_unread('load balancers', error)}; {len(balancers) - n} of {len(balancers)} were not looked into",)
        if all(state in _DEAD for state in states):
            idle.append((balancer, _why_idle(own, states)))
    words = f"load balancers: {over} of {len(balancers)} were not looked into; a region is asked about {calls} target groups at once"
    return idle, (words,) if over else ()


def _health(account: "Account", client: Any, place: Place, group: str) -> list[str | None]:
    """Of each target; a group that went meanwhile has none. A state that is not told is none of the dead ones."""
    try:
        answer = account.call(f"read target health of {group} in {place}", lambda: client.describe_target_health(TargetGroupArn=group))
    except NotFound:
        return []
    return [(one.get("TargetHealth") or {}).get("State") for one in answer.get("TargetHealthDescriptions", ())]


def _why_idle(groups: Sequence[str], states: Sequence[str | None]) -> str:
    if not groups:
        return "it has no target group; it may still redirect, or answer by itself"
    return f"none of its {len(states)} targets is healthy" if states else "no target is registered with it"


def _tags(account: "Account", client: Any, place: Place, arns: Sequence[str]) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
    found: dict[str, dict[str, str]] = {}
    for at in range(0, len(arns), _TAGS_A_CALL):
        some = list(arns[at : at + _TAGS_A_CALL])
        try:
            answer = account.call(f"read tags of load balancers in {place}", lambda: client.describe_tags(ResourceArns=some))  # noqa: B023 - called at once
        except CloudError as error:
            return found, (why_unread("tags of load balancers", error),)
        found |= {str(one.get("ResourceArn")): tags_of(one) for one in answer.get("TagDescriptions", ())}
    return found, ()


def _balancer(raw: Mapping[str, Any], place: Place, because: str, tags: dict[str, str], account: "Account") -> Leftover:
    native = native_of(str(raw["LoadBalancerArn"]))
    word = price_word(native)
    hourly = None if word is None else account.prices.of(place.name, word)
    return Leftover(
        id=ResourceId(place.cloud, place.account, place.name, "load-balancer", native), what="load balancer", because=because,
        name=raw.get("LoadBalancerName"), tags=tags, created_at=moment(raw.get("CreatedTime")), source=raw.get("DNSName"),
        monthly_usd=None if hourly is None else round(hourly * storage_prices.HOURS, 4), given=account.given,
    )  # fmt: skip


def price_word(native: str) -> str | None:
    """By the kind with which a load balancer's native id begins; None: a kind we know no price of."""
    return storage_prices.BALANCERS.get(native.partition(".")[0])


def native_of(arn: str) -> str:
    """"app.NAME.ID" of "…:loadbalancer/app/NAME/ID": an id of ours has no slash, and neither part has a dot."""
    return arn.partition(":loadbalancer/")[2].replace("/", ".") or re.sub(r"[^A-Za-z0-9._-]", ".", arn)[-128:]


ASKS: Mapping[str, Ask] = {"snapshots": snapshots, "addresses": addresses, "load balancers": load_balancers}
"""By what they are called in a sentence."""
