"""A virtual machine, as the cloud's own listing tells it."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from reaper.model.resource import ResourceId


class InstanceState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"  # memory kept: neither running nor stopped; a start resumes it
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    UNKNOWN = "unknown"  # a word we do not know: nothing may be done about it

    @property
    def counts(self) -> bool:
        """Whether a member of a gang in this state can still be working. An unknown state can."""
        return self in (InstanceState.PENDING, InstanceState.RUNNING, InstanceState.UNKNOWN)


AT_REST = (InstanceState.STOPPED, InstanceState.SUSPENDED)
"""States in which a start of ours may find a machine."""


class Hindrance(StrEnum):
    """What kept a machine from starting and may not the next time."""

    CAPACITY = "capacity"
    QUOTA = "quota"
    KEY = "key"  # of an encrypted disk
    CLOUD = "cloud"  # throttled, not reachable, or it failed by itself


class Lifecycle(StrEnum):
    ON_DEMAND = "on-demand"
    SPOT = "spot"  # of which kind is not known
    SPOT_ONE_TIME = "one-time spot"
    SPOT_PERSISTENT = "persistent spot"
    CAPACITY_BLOCK = "capacity-block"
    OTHER = "other"  # a word we do not know


@dataclass(frozen=True, slots=True)
class Instance:
    """
    One machine. ``None`` is "the listing did not say", never "no".

    ``launched_at``: EC2 resets it at every start. ``changed_at``: the last state change, where the cloud tells.
    ``gpus``: by the instance type; 0 is a type known to have none. ``local_store``: whether the type brings
    disks that a stop wipes, ``local_disks`` how many. ``managed_by``: who would replace or fight us ("auto scaling group train-a").
    ``volumes``, ``interfaces``: native ids, sorted; for "nobody touched it since".

    Where a cloud has no such thing, these are None as well. ``managed_instead``: what to do with its owner instead of a stop.
    ``zone``: where in the region. ``root``: "ebs" or "instance-store". ``hibernation``: whether it was launched for it.
    ``tenancy``: "default", "dedicated" or "host"; ``host``: the dedicated host it is on. ``reservation``: the capacity
    reservation it runs in, which is paid for either way; ``reserved_only``: whether it can start nowhere else.
    ``public_address``: the one it has, ``address_kept``: whether it keeps it through a stop. ``hourly_usd``: its list price,
    None: not known. ``fell_back``: what a start that did not last met, by the state reason of a stopped machine. ``given``:
    what its account says of "owner", "project" and "environment" where no tag does. ``spot_stops``: whether a spot machine may
    be stopped and keeps its disks (Google's may, EC2's one-time ones may not). ``stop_saves_local``: whether a stop first
    saves what is on its local disks, which takes long. ``suspends``: whether its cloud would suspend it (keep its memory and take
    the machine away), None: not known, which is no; ``suspends_not``: why it would not. ``private_addresses``: those by which
    other machines reach it.
    """

    id: ResourceId
    type: str
    state: InstanceState
    name: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    launched_at: datetime | None = None
    changed_at: datetime | None = None
    state_reason: str | None = None
    gpus: int | None = None
    gpu_model: str | None = None
    lifecycle: Lifecycle | None = None
    local_store: bool | None = None
    managed_by: str | None = None
    placement_group: str | None = None
    volumes: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    local_disks: int | None = None
    managed_instead: str | None = None
    zone: str | None = None
    root: str | None = None
    hibernation: bool | None = None
    tenancy: str | None = None
    host: str | None = None
    reservation: str | None = None
    reserved_only: bool | None = None
    public_address: str | None = None
    address_kept: bool | None = None
    hourly_usd: float | None = None
    given: dict[str, str] | None = None
    fell_back: Hindrance | None = None
    spot_stops: bool | None = None
    stop_saves_local: bool | None = None
    suspends: bool | None = None
    suspends_not: str | None = None
    private_addresses: tuple[str, ...] | None = None

    @property
    def title(self) -> str:
        """How people call it: the name where there is one, else the native id."""
        return self.name or self.id.native


@dataclass(frozen=True, slots=True)
class DiskKey:
    """A key that a disk of the machine is encrypted with. ``state``: the cloud's word ("Enabled"); ``ours``: one that the account manages itself."""

    id: str
    state: str | None = None
    ours: bool | None = None
    because: str | None = None


@dataclass(frozen=True, slots=True)
class Protections:
    """
    What costs a call of its own and is read for nominated machines only. None: could not be read, which protects.

    ``termination_protected``: bars ending it, not stopping it. ``managed_by``, ``managed_instead``: an owner that the listing
    did not tell; ``owner_unread``: why that could not be asked. ``keys``: of encrypted disks, which a start needs; None: not
    read, for the reason in ``keys_because``. ``covered``: by what it is paid for either way, None: by nothing that is known.
    ``committed``: what the account pays either way and may cover it, or not.
    """

    stop_protected: bool | None = None
    because: str | None = None
    termination_protected: bool | None = None
    managed_by: str | None = None
    managed_instead: str | None = None
    owner_unread: str | None = None
    keys: tuple[DiskKey, ...] | None = None
    keys_because: str | None = None
    covered: str | None = None
    committed: str | None = None
