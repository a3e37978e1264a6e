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

from reaper.errors import AnswerLost, CloudError, NotFound, Protected, Throttled, Unreachable, Unsupported, WrongState
from reaper.model.kinds.instance import Instance, InstanceState, Lifecycle, Protections
from reaper.model.resource import Place, ResourceId
from reaper.ports import Listed
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
    list_lag: float = 0.0
    get_lag: float = 0.0
    ignored: float = 0.0  # verbs that are accepted and come to nothing


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
    failed_until: dict[Place, float] = field(default_factory=dict)
    lag_until: float = 0.0
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

    def list(self, who: str) -> tuple[Listed, ...]:
        self._spend()
        now, weather = self.clock.t, self.weather
        if self.rng.random() < weather.throttled:
            self.counted("listing refused")
            raise Unreachable("the regions cannot be listed")
        lag = weather.list_lag if now < self.lag_until else 0.0
        answers = []
        for place in sorted({_place(id) for id in self.machines}):
            if now < self.failed_until.get(place, 0.0):
                answers.append(Listed(place, failed="RequestLimitExceeded"))
                continue
            if self.rng.random() < weather.empty:
                self.counted("empty listing")
                answers.append(Listed(place))
                continue
            shown = (self.as_it_was(id, now - lag) for id in self.machines if _place(id) == place)
            answers.append(Listed(place, tuple(m for m in shown if m.state is not InstanceState.TERMINATED)))
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
        return Protections(value, None if value is not None else "UnauthorizedOperation")

    def verb(self, who: str, name: str, resource: ResourceId) -> None:
        self.arrived(name, resource, who)
        self._spend()
        self._fail(name)
        machine = self.machines[resource]
        if self.rng.random() < self.weather.refused:
            self.counted("verb refused")
            raise WrongState(f"{resource} cannot be told to {name} now", "IncorrectInstanceState")
        if name == "stop" and self.stop_protected.get(resource):
            raise Protected(f"{resource} is protected", "OperationNotPermitted")
        if name == "stop" and machine.lifecycle is Lifecycle.SPOT:
            raise Unsupported(f"{resource} is a one-time spot instance", "UnsupportedOperation")
        if self.rng.random() < self.weather.ignored:
            self.counted("verb came to nothing")
        else:
            self.carry_out(name, resource)
        if self.rng.random() < self.weather.lost:
            self.counted("answer lost")
            self.wait(self.rng.uniform(1.0, 20.0))
            raise AnswerLost(f"{name} {resource}: no answer")

    def tag(self, resource: ResourceId, tags: Mapping[str, str | None]) -> None:
        """Our own tags, which take nothing away and which no judge is asked about."""
        self._spend()
        self._fail("tag")
        kept = {key: value for key, value in {**self.machines[resource].tags, **tags}.items() if value is not None}
        self.change(resource, tags=kept)

    def carry_out(self, name: str, resource: ResourceId) -> None:
        """As anybody's call does."""
        machine, now = self.machines[resource], self.clock.now()
        if name == "stop" and machine.state in (InstanceState.RUNNING, InstanceState.PENDING):
            self.change(resource, state=InstanceState.STOPPING, changed_at=now)
            self.went(resource, "stop")
        elif name == "start" and machine.state is InstanceState.STOPPED:
            self.change(resource, state=InstanceState.PENDING, changed_at=now, launched_at=now)
            self.went(resource, "start")
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
    """One daemon's view of the cloud, as `reaper.ports.Cloud`. ``around`` may break a call off on either side."""

    name = "aws"

    def __init__(self, cloud: SimCloud, who: str, around: Callable[[str, Callable[[], object]], object], skew: Callable[[], float]) -> None:
        self._cloud, self._who, self._around, self._skew = cloud, who, around, skew

    def list(self) -> tuple[Listed, ...]:
        return self._around("cloud.list", lambda: self._cloud.list(self._who))  # type: ignore[return-value]

    def get(self, resource: ResourceId) -> Instance:
        return self._around("cloud.get", lambda: self._cloud.get(self._who, resource))  # type: ignore[return-value]

    def protections(self, resource: ResourceId) -> Protections:
        return self._around("cloud.protections", lambda: self._cloud.protections(self._who, resource))  # type: ignore[return-value]

    def stop(self, resource: ResourceId) -> None:
        self._around("cloud.stop", lambda: self._cloud.verb(self._who, "stop", resource))

    def start(self, resource: ResourceId) -> None:
        self._around("cloud.start", lambda: self._cloud.verb(self._who, "start", resource))

    def hibernate(self, resource: ResourceId) -> None:
        raise Unsupported(f"{resource} was not launched for hibernation", "UnsupportedHibernationConfiguration")

    def tag(self, resource: ResourceId, tags: Mapping[str, str | None]) -> None:
        self._around("cloud.tag", lambda: self._cloud.tag(resource, tags))

    def skew(self, now: object) -> timedelta | None:
        return timedelta(seconds=self._skew())
