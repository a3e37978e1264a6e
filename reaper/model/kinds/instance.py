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
    SUSPENDED = "suspended"  # memory kept: neither running nor stopped, and no start of ours
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    UNKNOWN = "unknown"  # a word we do not know: nothing may be done about it

    @property
    def counts(self) -> bool:
        """Whether a member of a gang in this state can still be working. An unknown state can."""
        return self in (InstanceState.PENDING, InstanceState.RUNNING, InstanceState.UNKNOWN)


class Lifecycle(StrEnum):
    ON_DEMAND = "on-demand"
    SPOT = "spot"
    CAPACITY_BLOCK = "capacity-block"
    OTHER = "other"  # a word we do not know


@dataclass(frozen=True, slots=True)
class Instance:
    """
    One machine. ``None`` is "the listing did not say", never "no".

    ``launched_at``: EC2 resets it at every start. ``changed_at``: the last state change, where the cloud tells.
    ``gpus``: by the instance type; 0 is a type known to have none. ``local_store``: whether the type brings
    disks that a stop wipes, ``local_disks`` how many. ``managed_by``: who would replace or fight us ("auto scaling group train-a").
    ``volumes``, ``interfaces``: native ids, sorted; for "nobody touched it since". ``spot_stops``: whether a spot machine may
    be stopped and keeps its disks (Google's may, EC2's one-time ones may not). ``zone``: where in its place. ``tenancy``:
    "host" on a host of its own. ``reservation``: the capacity reservation it runs in, which is paid for either way;
    ``reserved_only``: whether it can start nowhere else. ``stop_saves_local``: whether a stop first saves what is on its
    local disks, which takes long.
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
    spot_stops: bool | None = None
    zone: str | None = None
    tenancy: str | None = None
    reservation: str | None = None
    reserved_only: bool | None = None
    stop_saves_local: bool | None = None

    @property
    def title(self) -> str:
        """How people call it: the name where there is one, else the native id."""
        return self.name or self.id.native


@dataclass(frozen=True, slots=True)
class Protections:
    """What costs a call of its own and is read for nominated machines only. None: could not be read, which protects."""

    stop_protected: bool | None = None
    because: str | None = None
