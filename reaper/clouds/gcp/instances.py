"""
One instance as Google's client has it, with what its type and its resource policies say, as our Instance. Pure.

It takes the protocol buffer message itself: the wrapper around it costs as much again as all that is done here.
https://cloud.google.com/compute/docs/reference/rest/v1/instances
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from reaper.clouds.gcp.labels import as_tags
from reaper.clouds.gcp.moments import moment as _moment
from reaper.clouds.gcp.owners import METADATA, owner
from reaper.clouds.gcp.types import NOTHING_KNOWN, TypeFacts, gpus_of
from reaper.model.kinds.instance import Instance, InstanceState, Lifecycle
from reaper.model.resource import ResourceId

# Google's word for a stopped machine is TERMINATED, newer answers say STOPPED; one that was deleted is not there.
# https://cloud.google.com/compute/docs/instances/instance-lifecycle
_STATES = {
    "PROVISIONING": InstanceState.PENDING,
    "STAGING": InstanceState.PENDING,
    "PENDING": InstanceState.PENDING,
    "RUNNING": InstanceState.RUNNING,
    "PENDING_STOP": InstanceState.STOPPING,
    "STOPPING": InstanceState.STOPPING,
    "DEPROVISIONING": InstanceState.STOPPING,
    "TERMINATED": InstanceState.STOPPED,
    "STOPPED": InstanceState.STOPPED,
    "SUSPENDING": InstanceState.SUSPENDING,
    "SUSPENDED": InstanceState.SUSPENDED,
}  # REPAIRING is none of these: the machine broke, and comes back by itself

SCHEDULE, PLACEMENT, OTHER = "schedule", "placement", "other"
"""What a resource policy does: Google starts and stops the machine itself; machines lie close together; neither."""

_MODELS = {"STANDARD": Lifecycle.ON_DEMAND, "SPOT": Lifecycle.SPOT, "RESERVATION_BOUND": Lifecycle.CAPACITY_BLOCK}


def policy_kind(raw: Any) -> str:
    """Of one ResourcePolicy message."""
    if raw.HasField("instance_schedule_policy"):
        return SCHEDULE
    return PLACEMENT if raw.HasField("group_placement_policy") or raw.HasField("workload_policy") else OTHER


def policy_key(link: str) -> str:
    """The part of a link that does not depend on how Google was reached: "projects/p/regions/r/resourcePolicies/n"."""
    return link[link.find("projects/") :]


Price = Callable[[str, str, TypeFacts, tuple[tuple[str, int], ...], bool], float | None]
"""Dollars an hour of (region, type, what it brings, accelerators attached, spot); None: not known."""

UNKNOWN_TYPE = "unknown"

SUSPENDED_AT_MOST_MB = 208 * 1024
"""https://cloud.google.com/compute/docs/instances/suspend-resume-instance#limitations"""


def no_price(region: str, type: str, facts: TypeFacts, attached: tuple[tuple[str, int], ...], spot: bool) -> float | None:
    return None


def parse_instance(
    raw: Any, *, project: str, zone: str, types: Mapping[str, TypeFacts], policies: Mapping[str, str], preserve: bool = False, price: Price = no_price,
    reserved: frozenset[str] | None = None, given: dict[str, str] | None = None,
) -> Instance:  # fmt: skip
    """
    One Instance message. Whatever is missing is None, a word that we do not know is UNKNOWN or OTHER. ``preserve``: a stop of
    ours has Google save what is on local SSDs. ``reserved``: external addresses that somebody reserved, None: not known.
    ``given``: what the operator said of the whole project.

    Raises ValueError without a numeric id: a listing with a nameless machine in it is not complete.
    """
    number = raw.id
    if not number:
        raise ValueError(f"the listing of {project} holds an instance without an id in {zone}")
    type_name = _often(raw.machine_type) or UNKNOWN_TYPE
    facts = types.get(type_name, NOTHING_KNOWN)
    state = _STATES.get(raw.status, InstanceState.UNKNOWN)
    labels = dict(raw.labels)
    attached = tuple([(_tail(a.accelerator_type), a.accelerator_count) for a in raw.guest_accelerators])
    gpus, gpu_model = gpus_of(attached) if attached else (facts.gpus, facts.gpu_model)
    scratch, volumes = _disks(raw.disks)
    group, schedule = _policies(raw.resource_policies, policies)
    started = _moment(raw.last_start_timestamp)
    scheduling = raw.scheduling
    lifecycle = _lifecycle(scheduling)
    reservation, reserved_only = _reservation(raw)
    tenancy = "host" if scheduling.node_affinities else None
    nics = raw.network_interfaces
    local_store = _local_store(scratch, facts, known=len(volumes) > 0)
    suspends, suspends_not = _suspends(raw, type_name, facts, gpus, local_store, lifecycle)
    address = _address(nics)
    plain = tenancy is None and lifecycle in _PRICED
    return Instance(
        id=ResourceId("gcp", project, zone, "instance", str(number)),
        type=type_name,
        state=state,
        name=raw.name or None,
        tags=as_tags(labels),
        launched_at=started or _moment(raw.creation_timestamp),
        changed_at=_changed_at(raw, state, started),
        state_reason=raw.status_message or None,
        gpus=gpus,
        gpu_model=gpu_model,
        lifecycle=lifecycle,
        local_store=local_store,
        managed_by=owner(labels, {item.key: item.value for item in raw.metadata.items if item.key in METADATA})
        or ("Cloud TPU, whose chips a stop of their host does not stop" if facts.tpu else None)
        or schedule,
        placement_group=group,
        volumes=volumes,
        interfaces=_interfaces(nics),
        private_addresses=tuple(sorted({a for nic in nics for a in (nic.network_i_p, nic.ipv6_address) if a})) or None,
        local_disks=max(scratch, facts.local_disks or 0) or facts.local_disks,
        spot_stops=True if lifecycle is Lifecycle.SPOT else None,
        zone=zone,
        tenancy=tenancy,
        reservation=reservation,
        reserved_only=reserved_only,
        stop_saves_local=True if preserve and scratch else None,
        suspends=suspends,
        given=given,
        suspends_not=suspends_not,
        public_address=address,
        address_kept=None if address is None or reserved is None else address in reserved,
        hourly_usd=price(zone[: zone.rfind("-")], type_name, facts, attached, lifecycle is Lifecycle.SPOT) if plain else None,
    )


def has_local_ssd(raw: Any) -> bool:
    return any(disk.type_ == "SCRATCH" for disk in raw.disks)


def _disks(disks: Any) -> tuple[int, tuple[str, ...]]:
    """How many local SSDs, and the names of the disks that stay."""
    scratch, kept = 0, []
    for disk in disks:
        if disk.type_ == "SCRATCH":
            scratch += 1
        else:
            source = disk.source
            kept.append((regional(source) if "/regions/" in source else _tail(source)) or disk.device_name)
    kept.sort()
    return scratch, tuple(kept)


def regional(link: str) -> str:
    """A disk in two zones as "europe-west4/data": another disk of its name may lie in the machine's zone."""
    _, _, rest = link.partition("/regions/")
    return f"{rest.partition('/')[0]}/{_tail(link)}"


def _suspends(
    raw: Any, type: str, facts: TypeFacts, gpus: int | None, local_store: bool | None, lifecycle: Lifecycle | None
) -> tuple[bool | None, str | None]:
    """
    Whether Google would suspend it, and why not. What is not known is no yes: such a machine is stopped or held instead.
    https://cloud.google.com/compute/docs/instances/suspend-resume-instance#limitations
    """
    if gpus:
        return _HAS_GPUS  # the usual case, and so the first
    if gpus is None or facts.memory_mb is None or lifecycle is None or local_store is None:
        return None, None
    if facts.tpu:
        return False, "it has TPUs"
    if local_store:
        return False, "it has local SSDs, which would have to be saved or lost"
    if facts.memory_mb > SUSPENDED_AT_MOST_MB:
        return False, f"it has {facts.memory_mb // 1024} GB of memory, and Google suspends machines of up to {SUSPENDED_AT_MOST_MB // 1024} GB"
    if lifecycle is not Lifecycle.ON_DEMAND:
        return False, "Google may take back what it is paid for by, and with it what was suspended"
    if type.endswith("-metal"):
        return False, "it is a bare metal machine"
    if raw.HasField("confidential_instance_config"):
        confidential = raw.confidential_instance_config
        if confidential.enable_confidential_compute or confidential.confidential_instance_type:
            return False, "it is a confidential machine"
    if any(disk.HasField("disk_encryption_key") and not disk.disk_encryption_key.kms_key_name for disk in raw.disks):
        return False, "a disk is encrypted with a key that Google does not hold"
    return True, None


_HAS_GPUS = (False, "Google suspends no machine with GPUs")
_PRICED = (Lifecycle.ON_DEMAND, Lifecycle.SPOT)


def _interfaces(nics: Any) -> tuple[str, ...]:
    found = [f"{nic.name}@{_often(nic.subnetwork) or _often(nic.network)}" for nic in nics]
    found.sort()
    return tuple(found)


def _address(nics: Any) -> str | None:
    for nic in nics:
        for config in nic.access_configs:
            if config.nat_i_p:
                return str(config.nat_i_p)
    return None


def _local_store(scratch: int, facts: TypeFacts, known: bool) -> bool | None:
    """``known``: the answer spoke of disks at all; a machine without any cannot be, so then it did not."""
    if scratch or facts.local_disks:
        return True
    return False if known else None


def _lifecycle(scheduling: Any) -> Lifecycle | None:
    if scheduling.preemptible:
        return Lifecycle.SPOT
    word = scheduling.provisioning_model
    if not word and not scheduling.ByteSize():
        return None
    return _MODELS.get(word, Lifecycle.OTHER) if word else Lifecycle.ON_DEMAND  # older machines have no word, and are plain


def _reservation(raw: Any) -> tuple[str | None, bool | None]:
    """The reservation that it runs in, and whether it may run in no other capacity. "Any" alone says neither."""
    used = raw.resource_status.reservation_consumption_info.consumed_reservation if raw.HasField("resource_status") else ""
    if not raw.HasField("reservation_affinity"):
        return (_tail(used), False) if used else (None, None)
    affinity = raw.reservation_affinity
    if affinity.consume_reservation_type == "SPECIFIC_RESERVATION":
        return _tail(used or next(iter(affinity.values), "")) or "that is not named", True
    return (_tail(used), False) if used else (None, None)


def _policies(links: Any, policies: Mapping[str, str]) -> tuple[str | None, str | None]:
    """(the placement it shares, who else starts and stops it). A policy that could not be read may be any of them."""
    group = schedule = None
    for link in links:
        kind, name = policies.get(policy_key(link)), _tail(link)
        if kind in (PLACEMENT, None):
            group = group or name
        if kind == SCHEDULE:
            schedule = f"Google's instance schedule {name}, which starts and stops it by itself"
        elif kind is None and schedule is None:
            schedule = f"the resource policy {name}, which could not be read and may be a schedule of Google's"
    return group, schedule


def _changed_at(raw: Any, state: InstanceState, started: datetime | None) -> datetime | None:
    """When it came into the state it is in. A stop that is older than the start is not the one that it is in now."""
    if state is InstanceState.RUNNING:
        return started
    if state is InstanceState.SUSPENDED:
        return _moment(raw.last_suspended_timestamp)
    stopped = _moment(raw.last_stop_timestamp) if state is InstanceState.STOPPED else None
    return stopped if stopped is not None and (started is None or stopped >= started) else None


@lru_cache(maxsize=4096)
def _often(link: str) -> str:
    """Of what many machines have in common."""
    return link.rpartition("/")[2]


def _tail(link: str) -> str:
    return link.rpartition("/")[2]
