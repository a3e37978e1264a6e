"""
Machines of one job where no tag says so: those whose GPU processes are connected to each other.

An address stands for a machine only if no other has it. A connection proves nothing where the other end's agent sees all
its own and does not know of it: that is a file server's or a registry's, beside its GPUs and not of them. Where the other
end cannot be asked (no agent, an old one, a silent one, one that may not look), it counts.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from reaper.model.kinds.instance import Instance
from reaper.model.resource import ResourceId
from reaper.model.signal import Observation

REMEMBERED = timedelta(minutes=30)
"""So long after a machine last told of a connection it counts, by that machine's own reports: ranks meet anew, and silence forgets nothing."""

_LOOKED_WITHIN = timedelta(minutes=4)
"""So old can be what an agent last saw of its connections when a window ends: while GPUs compute it looks every third minute."""


class Told:
    """What one machine told of its connections in this boot; a fold of its windows, in order."""

    __slots__ = ("_boot", "addresses", "denies", "first", "named", "until")

    def __init__(self) -> None:
        self._boot: str | None = None
        self.addresses: tuple[str, ...] = ()  # its own; by a verified voice only, since a claim of another's would part that one from its job
        self.named: dict[str, datetime] = {}  # addresses of others, and when they were told last
        self.first: dict[str, datetime] = {}  # and when first
        self.denies = False  # the newest window saw all there is
        self.until: datetime | None = None

    def add(self, seen: Observation) -> None:
        if seen.boot_id != self._boot:
            self._boot, self.named, self.first, self.addresses = seen.boot_id, {}, {}, ()
        links = seen.links
        self.until = max(self.until or seen.ended_at, seen.ended_at)
        self.denies = seen.verified and (links.whole if links is not None else _holds_nothing(seen))
        if links is not None:
            self.named = {**self.named, **dict.fromkeys(links.named, seen.ended_at)}  # a new one: others may be reading the old
            if seen.verified and links.addresses:
                self.addresses = links.addresses
        if self.named:
            self.named = {address: at for address, at in self.named.items() if self.until - at <= REMEMBERED}
            self.first = {address: self.first.get(address, at) for address, at in self.named.items()}


def _holds_nothing(seen: Observation) -> bool:
    """No process on any GPU, by an agent that would tell of its connections."""
    return seen.presence is not None and bool(seen.gpus) and all(gpu.processes == 0 for gpu in seen.gpus)


def pairs(instances: Iterable[Instance], told: Mapping[ResourceId, Told]) -> frozenset[tuple[ResourceId, ResourceId]]:
    """Machines that are connected, the lesser id first."""
    if not any(one.named for one in told.values()):
        return frozenset()
    listed = [instance for instance in instances if instance.state.counts and instance.gpus != 0]
    places = _places(listed, told)
    mine: dict[ResourceId, set[str]] = {}
    for (_, address), owner in places.items():
        if owner is not None:
            mine.setdefault(owner, set()).add(address)
    found = set()
    for instance in listed:
        one = told.get(instance.id)
        for address, at in one.first.items() if one is not None else ():
            other = places.get((instance.id.cloud, address))
            if other is not None and other != instance.id and not _denied(told.get(other), mine.get(instance.id, set()), at):
                found.add((min(instance.id, other), max(instance.id, other)))
    return frozenset(found)


def _places(instances: Iterable[Instance], told: Mapping[ResourceId, Told]) -> dict[tuple[str, str], ResourceId | None]:
    """Whose an address is; None: of several, which proves nothing. What the cloud lists counts before what agents claim."""
    listed: dict[tuple[str, str], ResourceId | None] = {}
    claimed: dict[tuple[str, str], ResourceId | None] = {}
    for instance in instances:
        own = instance.private_addresses
        if own is None:
            one = told.get(instance.id)
            for address in one.addresses if one is not None else ():
                key = (instance.id.cloud, address)
                claimed[key] = instance.id if claimed.get(key, instance.id) == instance.id else None
        for address in own or ():
            key = (instance.id.cloud, address)
            listed[key] = instance.id if listed.get(key, instance.id) == instance.id else None
    return claimed | listed


def _denied(other: Told | None, ours: set[str], first_at: datetime) -> bool:
    """
    Whether the other end has seen all its connections since we first told of ours, and none to us. Without an address of
    ours it cannot say; nor while its last look may be from before.
    """
    if other is None or not other.denies or not ours or other.until is None or other.until < first_at + _LOOKED_WITHIN:
        return False
    return not ours & other.named.keys()
