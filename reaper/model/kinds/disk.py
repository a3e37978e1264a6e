"""A disk that lives by itself, as the cloud's own listing tells it. Not one that belongs to a machine and goes with it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from reaper.model.resource import ResourceId

KIND = "disk"
"""The kind in a disk's resource id: ``aws:ACCOUNT:REGION:disk:vol-0abc``, ``gcp:PROJECT:ZONE-OR-REGION:disk:NUMERIC-ID``."""


class DiskState(StrEnum):
    CREATING = "creating"
    AVAILABLE = "available"  # there, and attached to nothing
    IN_USE = "in-use"  # attached, being attached or being detached
    DELETING = "deleting"
    FAILED = "failed"
    UNKNOWN = "unknown"  # a word we do not know: nothing may be done about it


@dataclass(frozen=True, slots=True)
class Attachment:
    """``machine``: whom it is attached to, as the cloud names it (an instance id, a name). ``since``: None: not told."""

    machine: str
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Disk:
    """
    One disk. ``None`` is "the listing did not say", never "no".

    ``zone``: where it is; a disk in two zones has both, comma between. ``iops``, ``mib_s``: what is provisioned, and paid for beside its
    size. ``encrypted``, ``key``: the key it is encrypted with by id, None: the cloud's own (AWS's own has an id too, and its listing does
    not tell it from a customer's). ``multi_attach``: whether several machines may hold it at once. ``from_snapshot``, ``from_image``: what
    it was made of. ``claim``: the Kubernetes claim or volume it was made for, as far as tags tell ("namespace/name", or the cluster's word
    for it). ``made_by``: a launch template, an image build. ``attached_at``, ``detached_at``: the cloud's own words for the last attach
    and detach (EBS has no detach time, and no attach time once detached; Google's are absent on what was never attached).
    ``locked``: what bars its deletion, in words. ``monthly_usd``: its list price as it is, None: not known. ``given``: as for machines.
    """

    id: ResourceId
    state: DiskState
    name: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    size_gib: int | None = None
    type: str | None = None
    iops: int | None = None
    mib_s: int | None = None
    zone: str | None = None
    encrypted: bool | None = None
    key: str | None = None
    multi_attach: bool | None = None
    created_at: datetime | None = None
    attachments: tuple[Attachment, ...] = ()
    attached_at: datetime | None = None
    detached_at: datetime | None = None
    from_snapshot: str | None = None
    from_image: str | None = None
    claim: str | None = None
    made_by: str | None = None
    locked: str | None = None
    monthly_usd: float | None = None
    given: dict[str, str] | None = None
    notes: tuple[str, ...] = ()
    """What to know of it that bars nothing (a snapshot schedule, the disk that it is a copy of), a sentence each."""

    @property
    def title(self) -> str:
        """How people call it: the name where there is one, else the native id."""
        return self.name or self.id.native


@dataclass(frozen=True, slots=True)
class KeptDisk:
    """
    A disk as last listed, and what we saw of it with our own eyes.

    ``unattached_since``: our first sight of it attached to nothing, with no sight of it attached since and no long gap; None: attached, or
    not plainly unattached. ``missed``: how much of the time since then nobody looked, which does not count. ``attached_until``: our
    last sight of it attached, None: now, or never; ``last_on``: to what. ``missing_since``: the good listing that left it out.
    """

    disk: Disk
    first_seen_at: datetime
    unattached_since: datetime | None = None
    missed: timedelta = timedelta(0)
    attached_until: datetime | None = None
    last_on: tuple[str, ...] = ()
    missing_since: datetime | None = None

    def unattached_for(self, listed_at: datetime) -> timedelta | None:
        """As observed up to its place's newest good listing. None: it is not unattached, as far as we know."""
        return None if self.unattached_since is None else max(listed_at - self.unattached_since - self.missed, timedelta(0))


@dataclass(frozen=True, slots=True)
class Leftover:
    """
    Something that costs money, that no machine uses, and that this product only reports: ``what`` is "snapshot", "address" or "load balancer".
    ``source_gone``: of a snapshot, whether the disk it is of is not there any more. ``because``: why it counts as left over.
    """

    id: ResourceId
    what: str
    because: str
    name: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    size_gib: int | None = None
    created_at: datetime | None = None
    source: str | None = None
    source_gone: bool | None = None
    monthly_usd: float | None = None
    given: dict[str, str] | None = None
