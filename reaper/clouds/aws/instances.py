"""One entry of DescribeInstances, and what DescribeInstanceTypes says of its type, as our Instance. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from reaper.clouds.aws.answers import bounced
from reaper.clouds.aws.owners import Owner, owner_by_tags
from reaper.model.kinds.instance import Instance, InstanceState, Lifecycle
from reaper.model.resource import ResourceId

_STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.STOPPING,
    "stopped": InstanceState.STOPPED,
    "shutting-down": InstanceState.TERMINATING,
    "terminated": InstanceState.TERMINATED,
}
_LIFECYCLES = {None: Lifecycle.ON_DEMAND, "spot": Lifecycle.SPOT, "capacity-block": Lifecycle.CAPACITY_BLOCK}
_SPOT_TYPES = {"one-time": Lifecycle.SPOT_ONE_TIME, "persistent": Lifecycle.SPOT_PERSISTENT}
_MOMENT = re.compile(r"\((\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}) (?:GMT|UTC)\)")


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """What an instance type brings. ``gpu_model``: EC2's short name ("A10G"), several joined by "+". None: not known."""

    gpus: int | None = None
    gpu_model: str | None = None
    local_store: bool | None = None
    local_disks: int | None = None


NOTHING_KNOWN = TypeFacts()


def parse_type(raw: Mapping[str, Any]) -> TypeFacts:
    """
    One entry of DescribeInstanceTypes. A described type without GPU details has none; neuron chips are not GPUs.

    Makers are counted alike. A type with a slice of a GPU has a Count of 0 there and tells its devices in
    LogicalGpuCount (g6f.large: one eighth of an L4, which the host sees as one device).
    """
    info = raw.get("GpuInfo")
    gpus: int | None = 0
    models: list[str] = []
    if info is not None:
        counts = [_devices(gpu) for gpu in info.get("Gpus") or ()]
        known = [count for count in counts if count is not None]
        gpus = sum(known) if known and len(known) == len(counts) else None
        models = sorted({str(gpu["Name"]) for gpu in info.get("Gpus") or () if gpu.get("Name")})
    return TypeFacts(gpus=gpus, gpu_model="+".join(models) or None, local_store=raw.get("InstanceStorageSupported"), local_disks=_disks(raw))


def _disks(raw: Mapping[str, Any]) -> int | None:
    """How many instance store disks the type brings. https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceStorageInfo.html"""
    if raw.get("InstanceStorageSupported") is False:
        return 0
    counts = [disk.get("Count") for disk in (raw.get("InstanceStorageInfo") or {}).get("Disks") or ()]
    known = [int(count) for count in counts if count is not None]
    return sum(known) or None if len(known) == len(counts) else None


def _devices(gpu: Mapping[str, Any]) -> int | None:
    counts = [int(gpu[key]) for key in ("Count", "LogicalGpuCount") if gpu.get(key) is not None]
    return max(counts, default=None) or None  # a GPU of which there is none is not an answer


def parse_instance(
    raw: Mapping[str, Any], *, account: str, region: str, types: Mapping[str, TypeFacts], spot_types: Mapping[str, str] | None = None,
    hourly_usd: float | None = None, given: dict[str, str] | None = None,
) -> Instance:  # fmt: skip
    """
    One entry of DescribeInstances. Whatever is missing is None, a word we do not know is UNKNOWN or OTHER.

    ``spot_types``: "one-time" or "persistent" by spot request, which the entry itself does not tell.

    Raises ValueError without an instance id: a listing with a nameless machine in it is not complete.
    """
    native = raw.get("InstanceId")
    if not native:
        raise ValueError("the listing holds an instance without an id")
    type_name = str(raw.get("InstanceType") or "unknown")
    facts = types.get(type_name, NOTHING_KNOWN)
    tags = {str(tag["Key"]): str(tag.get("Value") or "") for tag in raw.get("Tags") or () if "Key" in tag}
    placement = raw.get("Placement") or {}
    owner = owner_by_tags(tags) or _operator(raw.get("Operator"))
    address, kept = _address(raw)
    return Instance(
        id=ResourceId(cloud="aws", account=account, place=region, kind="instance", native=str(native)),
        type=type_name,
        state=_STATES.get((raw.get("State") or {}).get("Name", ""), InstanceState.UNKNOWN),
        name=tags.get("Name") or None,
        tags=tags,
        launched_at=_utc(raw.get("LaunchTime")),
        changed_at=_changed_at(raw.get("StateTransitionReason")),
        state_reason=(raw.get("StateReason") or {}).get("Code") or None,
        gpus=facts.gpus,
        gpu_model=facts.gpu_model,
        lifecycle=_lifecycle(raw, spot_types or {}),
        local_store=True if raw.get("RootDeviceType") == "instance-store" else facts.local_store,
        local_disks=facts.local_disks,
        managed_by=owner.name if owner is not None else None,
        managed_instead=owner.instead if owner is not None else None,
        placement_group=placement.get("GroupName") or placement.get("GroupId") or None,
        volumes=_ids((m.get("Ebs") or {}).get("VolumeId") for m in raw.get("BlockDeviceMappings") or ()),
        interfaces=_ids(nic.get("NetworkInterfaceId") for nic in raw.get("NetworkInterfaces") or ()),
        private_addresses=_private(raw),
        zone=placement.get("AvailabilityZone") or None,
        root=raw.get("RootDeviceType") or None,
        hibernation=(raw.get("HibernationOptions") or {}).get("Configured"),
        tenancy=placement.get("Tenancy") or None,
        host=placement.get("HostId") or None,
        reservation=raw.get("CapacityReservationId") or None,
        reserved_only=_reserved_only(raw.get("CapacityReservationSpecification")),
        public_address=address,
        address_kept=kept,
        hourly_usd=hourly_usd if _at_list_price(raw) else None,
        given=given,
        fell_back=bounced((raw.get("StateReason") or {}).get("Code")) if (raw.get("State") or {}).get("Name") == "stopped" else None,
    )


def _lifecycle(raw: Mapping[str, Any], spot_types: Mapping[str, str]) -> Lifecycle:
    word = _LIFECYCLES.get(raw.get("InstanceLifecycle") or None, Lifecycle.OTHER)
    if word is not Lifecycle.SPOT:
        # a spot request where the word for it is missing is still one
        return Lifecycle.SPOT if word is Lifecycle.ON_DEMAND and raw.get("SpotInstanceRequestId") else word
    return _SPOT_TYPES.get(spot_types.get(str(raw.get("SpotInstanceRequestId")), ""), Lifecycle.SPOT)


def _at_list_price(raw: Mapping[str, Any]) -> bool:
    """The price asked for is that of on-demand Linux on shared hardware; any other machine's is not known by it."""
    shared = (raw.get("Placement") or {}).get("Tenancy") in (None, "default")
    return not raw.get("InstanceLifecycle") and shared and raw.get("PlatformDetails") in (None, "Linux/UNIX")


def _reserved_only(raw: Mapping[str, Any] | None) -> bool | None:
    """Whether it may run in reserved capacity only: it asks for one reservation or group, or for nothing but reservations."""
    if raw is None:
        return None
    return bool(raw.get("CapacityReservationTarget")) or raw.get("CapacityReservationPreference") == "capacity-reservations-only"


def _address(raw: Mapping[str, Any]) -> tuple[str | None, bool | None]:
    """
    The public address and whether it stays through a stop: an Elastic IP is owned by an account, the others by "amazon".
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceNetworkInterfaceAssociation.html
    """
    address = raw.get("PublicIpAddress") or None
    owners = {
        (nic.get("Association") or {}).get("PublicIp"): (nic.get("Association") or {}).get("IpOwnerId") for nic in raw.get("NetworkInterfaces") or ()
    }
    owner = owners.get(address)
    return address, None if address is None or owner is None else owner != "amazon"


def _operator(raw: Mapping[str, Any] | None) -> Owner | None:
    """An AWS service that operates the machine in the account's name (EKS Auto Mode, ECS managed instances)."""
    if not raw or not (raw.get("Managed") or raw.get("Principal")):
        return None
    return Owner(f"AWS service {raw.get('Principal') or 'that is not named'}", "change it in that service, which alone may")


def _changed_at(reason: str | None) -> datetime | None:
    """The moment in "User initiated (2026-11-30 14:11:44 GMT)"; running machines have an empty reason."""
    found = _MOMENT.search(reason or "")
    if found is None:
        return None
    try:
        return datetime.strptime(found.group(1), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)


def _private(raw: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Of all its interfaces, of both kinds; None: the listing names none."""
    found = [raw.get("PrivateIpAddress")]
    for nic in raw.get("NetworkInterfaces") or ():
        found += [nic.get("PrivateIpAddress"), *(one.get("PrivateIpAddress") for one in nic.get("PrivateIpAddresses") or ())]
        found += [one.get("Ipv6Address") for one in nic.get("Ipv6Addresses") or ()]
    return _ids(found) or None


def _ids(found: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({native for native in found if native}))
