"""
A cloud that is slow, forgets, refuses, loses its answers and shows yesterday's picture, as its weather says.

What is true stands in `machines`; what a listing shows may be older. Every verb that arrives is told to `arrived` before
anything comes of it.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from reaper.errors import (
    AnswerLost,
    CloudError,
    NoCapacity,
    NotFound,
    Protected,
    Throttled,
    TooSoon,
    Unreachable,
    Unsupported,
    WrongState,
)
from reaper.model.kinds.instance import AT_REST, DiskKey, Instance, InstanceState, Lifecycle, Protections
from reaper.model.kinds.snapshot import Snapshot, SnapshotState
from reaper.model.resource import Place, ResourceId
from reaper.ports import Listed, Shelf
from tests.simulation.clock import SimClock


@dataclass(slots=True)
class CloudWeather:
    """Shares are of calls, spans in seconds. ``list_lag``: a listing shows what was so long ago."""

    latency: tuple[float, float] = (0.02, 0.4)
    slow: float = 0.0
    throttled: float = 0.0
    lost: float = 0.0
    refused: float = 0.0
    place_fails: float = 0.0
    empty: float = 0.0
    partial: float = 0.0  # listings that leave machines out and do not say so
    list_lag: float = 0.0
    get_lag: float = 0.0
    ignored: float = 0.0  # verbs that are accepted and come to nothing
    stock_out: float = 0.0  # starts that find no machine
    bounces: float = 0.0  # starts that are accepted and fall back to stopped
    snapshots_fail: float = 0.0


@dataclass(slots=True)
class Copy:
    """A snapshot by truth: pending until ``until``, then ``ends`` as that."""

    of: ResourceId
    shown: Snapshot
    began: float
    until: float
    ends: SnapshotState

    def at(self, t: float) -> Snapshot:
        return self.shown if t < self.until else replace(self.shown, state=self.ends)


@dataclass(slots=True)
class SimCloud:
    """``wait``: lets so many seconds pass in the world. ``went``: called after a machine's state has truly changed; ``read``: a fresh read begins."""

    clock: SimClock
    rng: random.Random
    wait: Callable[[float], None]
    arrived: Callable[[str, ResourceId, str], None]
    went: Callable[[ResourceId, str], None]
    counted: Callable[[str], None]
    read: Callable[[ResourceId], None]
    weather: CloudWeather = field(default_factory=CloudWeather)
    machines: dict[ResourceId, Instance] = field(default_factory=dict)
    past: dict[ResourceId, list[tuple[float, Instance]]] = field(default_factory=lambda: defaultdict(list))
    stop_protected: dict[ResourceId, bool | None] = field(default_factory=dict)
    end_protected: set[ResourceId] = field(default_factory=set)
    hidden_owners: set[ResourceId] = field(default_factory=set)  # whose group only its own API tells
    bad_keys: set[ResourceId] = field(default_factory=set)
    copies: list[Copy] = field(default_factory=list)
    cut: dict[Place, tuple[float, int]] = field(default_factory=dict)  # until when a place shows only its first or last machines, and how many
    failed_until: dict[Place, float] = field(default_factory=dict)
    lag_until: float = 0.0
    sold_out_until: float = 0.0  # no start finds a machine until then
    read_at: dict[tuple[str, ResourceId], float] = field(default_factory=dict)

    def put(self, machine: Instance) -> None:
        self.machines[machine.id] = machine
        self.past[machine.id].append((self.clock.t, machine))

    def change(self, resource: ResourceId, **fields: object) -> None:
        self.put(replace(self.machines[resource], **fields))  # type: ignore[arg-type]

    def as_it_was(self, resource: ResourceId, t: float) -> Instance:
        past = self.past[resource]
        shown = past[0][1]
        for at, machine in past[-20:]:
            if at <= t:
                shown = machine
        return shown

    # --- what the daemon's calls come to ---------------------------------------------------------------------------------

    def list(self, who: str, cloud: str) -> tuple[Listed, ...]:
        self._spend()
        now, weather = self.clock.t, self.weather
        if self.rng.random() < weather.throttled:
            self.counted("listing refused")
            raise Unreachable("the regions cannot be listed")
        lag = weather.list_lag if now < self.lag_until else 0.0
        answers = []
        for place in sorted({_place(id) for id in self.machines if id.cloud == cloud}):
            if now < self.failed_until.get(place, 0.0):
                answers.append(Listed(place, failed="RequestLimitExceeded"))
                continue
            if self.rng.random() < weather.empty:
                self.counted("empty listing")
                answers.append(Listed(place))
                continue
            shown = (self.as_it_was(id, now - lag) for id in self.machines if _place(id) == place)
            told = [m for m in shown if m.state is not InstanceState.TERMINATED]
            if self.rng.random() < weather.partial and len(told) > 1 and now >= self.cut.get(place, (0.0, 0))[0]:
                self.counted("partial listing")
                self.cut[place] = (now + self.rng.uniform(0.0, 13 * 60.0), self.rng.randrange(1, len(told)) * self.rng.choice((1, -1)))
            if now < self.cut.get(place, (0.0, 0))[0]:
                left = self.cut[place][1]  # the later pages get lost, or the first, and nobody says so
                told = told[:left] if left > 0 else told[left:]
            answers.append(Listed(place, tuple(told)))
        return tuple(answers)

    def get(self, who: str, resource: ResourceId) -> Instance:
        self.read_at[who, resource] = self.clock.t
        self.read(resource)
        self._spend()
        self._fail("get")
        if resource not in self.machines:
            raise NotFound(f"{resource} is not there", "InvalidInstanceID.NotFound")
        return self.as_it_was(resource, self.clock.t - self.weather.get_lag)

    def protections(self, who: str, resource: ResourceId) -> Protections:
        self._spend()
        value = self.stop_protected.get(resource, False)
        return Protections(
            value, None if value is not None else "UnauthorizedOperation", termination_protected=resource in self.end_protected,
            managed_by="an EKS node group" if resource in self.hidden_owners else None,
            keys=(DiskKey("key-1", "Disabled" if resource in self.bad_keys else "Enabled"),),
        )  # fmt: skip

    def verb(self, who: str, name: str, resource: ResourceId) -> None:
        self.arrived(name, resource, who)
        self._spend()
        self._fail(name)
        machine = self.machines[resource]
        if self.rng.random() < self.weather.refused:
            self.counted("verb refused")
            raise WrongState(f"{resource} cannot be told to {name} now", "IncorrectInstanceState")
        if name in ("stop", "hibernate", "terminate") and self.stop_protected.get(resource):
            raise Protected(f"{resource} is protected", "OperationNotPermitted")
        if name == "stop" and machine.lifecycle is Lifecycle.SPOT:
            raise Unsupported(f"{resource} is a one-time spot instance", "UnsupportedOperation")
        if name == "hibernate" and (machine.suspends if resource.cloud == "gcp" else machine.hibernation) is not True:
            raise Unsupported(f"{resource} was not launched for hibernation", "UnsupportedHibernationConfiguration")
        if name == "terminate" and resource in self.end_protected:
            raise Protected(f"{resource} is protected from being ended", "OperationNotPermitted")
        if name == "start" and (self.clock.t < self.sold_out_until or self.rng.random() < self.weather.stock_out):
            self.counted("stock-out")
            raise NoCapacity(f"{resource}: no {machine.type} in its zone", "InsufficientInstanceCapacity")
        if self.rng.random() < self.weather.ignored:
            self.counted("verb came to nothing")
        else:
            self.carry_out(name, resource)
        if self.rng.random() < self.weather.lost:
            self.counted("answer lost")
            self.wait(self.rng.uniform(1.0, 20.0))
            raise AnswerLost(f"{name} {resource}: no answer")

    def snapshot(self, who: str, resource: ResourceId, volume: str, tags: Mapping[str, str]) -> str:
        self.arrived("snapshot", resource, who)
        self._spend()
        self._fail("snapshot")
        if volume not in self.machines[resource].volumes:
            raise NotFound(f"{volume} is not a disk of {resource}", "InvalidVolume.NotFound")
        now = self.clock.t
        if any(now - copy.began < 15.0 for copy in self.copies if copy.shown.volume == volume):
            raise TooSoon(f"{volume} was snapshotted a moment ago", "SnapshotCreationPerVolumeRateExceeded")
        fails = self.rng.random() < self.weather.snapshots_fail
        shown = Snapshot(
            f"snap-{len(self.copies) + 1}", volume, SnapshotState.PENDING, 100, True, self.clock.now(), dict(tags), disk_gib=100, disk_encrypted=True,
        )  # fmt: skip
        ends = SnapshotState.FAILED if fails else SnapshotState.COMPLETED
        self.copies.append(Copy(resource, shown, now, now + self.rng.uniform(30.0, 900.0), ends))
        if fails:
            self.counted("snapshot fails")
        if self.rng.random() < self.weather.lost:
            self.counted("answer lost")
            self.wait(self.rng.uniform(1.0, 20.0))
            raise AnswerLost(f"snapshot of {volume}: no answer")
        return shown.id

    def snapshots(self, who: str, key: str) -> tuple[Snapshot, ...]:
        self._spend()
        self._fail("snapshots")
        return tuple(copy.at(self.clock.t) for copy in self.copies if copy.shown.tags.get("idle-reaper:attempt") == key)

    def tag(self, resource: ResourceId, tags: Mapping[str, str | None]) -> None:
        """Our own tags, which take nothing away and which no judge is asked about."""
        self._spend()
        self._fail("tag")
        kept = {key: value for key, value in {**self.machines[resource].tags, **tags}.items() if value is not None}
        self.change(resource, tags=kept)

    def carry_out(self, name: str, resource: ResourceId) -> None:
        """As anybody's call does."""
        machine, now = self.machines[resource], self.clock.now()
        if name == "hibernate" and resource.cloud == "gcp" and machine.state is InstanceState.RUNNING:
            self.change(resource, state=InstanceState.SUSPENDING, changed_at=now)
            self.went(resource, "suspend")
        elif name in ("stop", "hibernate") and machine.state in (InstanceState.RUNNING, InstanceState.PENDING):
            self.change(resource, state=InstanceState.STOPPING, changed_at=now)
            self.went(resource, "stop")
        elif name == "start" and machine.state in AT_REST:
            self.change(resource, state=InstanceState.PENDING, changed_at=now, launched_at=now)
            self.went(resource, "start")
        elif name == "terminate" and machine.state not in (InstanceState.TERMINATING, InstanceState.TERMINATED):
            self.change(resource, state=InstanceState.TERMINATED, changed_at=now)
            self.went(resource, "terminate")
        elif name == "start" and machine.state is InstanceState.STOPPING:
            raise WrongState(f"{resource} is stopping", "IncorrectInstanceState")

    def _spend(self) -> None:
        low, high = self.weather.latency
        span = self.rng.uniform(low, high)
        if self.rng.random() < self.weather.slow:
            self.counted("slow call")
            span += self.rng.uniform(2.0, 25.0)
        self.wait(span)

    def _fail(self, name: str) -> None:
        if self.rng.random() < self.weather.throttled:
            self.counted(f"{name} throttled")
            raise Throttled(f"{name}: too many requests", "RequestLimitExceeded") if self.rng.random() < 0.7 else CloudError(f"{name}: failed", "InternalError")


def _place(resource: ResourceId) -> Place:
    return Place(resource.cloud, resource.account, resource.place)


class CloudSeat:
    """One daemon's view of one provider, as `reaper.ports.Cloud`. ``around`` may break a call off on either side."""

    def __init__(self, name: str, cloud: SimCloud, who: str, around: Callable[[str, Callable[[], object]], object], skew: Callable[[], float]) -> None:
        self.name = name
        self._cloud, self._who, self._around, self._skew = cloud, who, around, skew

    def list(self) -> tuple[Listed, ...]:
        return self._around("cloud.list", lambda: self._cloud.list(self._who, self.name))  # type: ignore[return-value]

    def get(self, resource: ResourceId) -> Instance:
        return self._around("cloud.get", lambda: self._cloud.get(self._who, resource))  # type: ignore[return-value]

    def protections(self, resource: ResourceId) -> Protections:
        return self._around("cloud.protections", lambda: self._cloud.protections(self._who, resource))  # type: ignore[return-value]

    def stop(self, resource: ResourceId) -> None:
        self._around("cloud.stop", lambda: self._cloud.verb(self._who, "stop", resource))

    def start(self, resource: ResourceId) -> None:
        self._around("cloud.start", lambda: self._cloud.verb(self._who, "start", resource))

    def hibernate(self, resource: ResourceId) -> None:
        self._around("cloud.hibernate", lambda: self._cloud.verb(self._who, "hibernate", resource))

    def terminate(self, resource: ResourceId) -> None:
        self._around("cloud.terminate", lambda: self._cloud.verb(self._who, "terminate", resource))

    def snapshot(self, resource: ResourceId, volume: str, tags: Mapping[str, str]) -> str:
        return self._around("cloud.snapshot", lambda: self._cloud.snapshot(self._who, resource, volume, tags))  # type: ignore[return-value]

    def snapshots(self, resource: ResourceId, key: str) -> tuple[Snapshot, ...]:
        return self._around("cloud.snapshots", lambda: self._cloud.snapshots(self._who, key))  # type: ignore[return-value]

    def tag(self, resource: ResourceId, tags: Mapping[str, str | None]) -> None:
        self._around("cloud.tag", lambda: self._cloud.tag(resource, tags))

    def shelves(self) -> tuple[Shelf, ...]:
        return ()  # disks are judged when they can be acted on

    def skew(self, now: object) -> timedelta | None:
        return timedelta(seconds=self._skew())
