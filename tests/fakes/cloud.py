"""
A cloud in memory for tests: it obeys ports.Cloud, counts its calls and fails on request.

It is held to the same contract tests as the real adapters (tests/contracts/).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from reaper.errors import CloudError, NotFound, Protected, Unsupported, WrongState
from reaper.model.kinds.instance import AT_REST, Hindrance, Instance, InstanceState, Protections
from reaper.model.kinds.snapshot import Snapshot, SnapshotState
from reaper.model.resource import Place, ResourceId
from reaper.ports import Clock, Listed, Shelf

VERBS = ("stop", "start", "hibernate", "terminate", "snapshot")

_DONE_ALREADY = {"stop": (InstanceState.STOPPING, InstanceState.STOPPED), "hibernate": (InstanceState.STOPPING, InstanceState.STOPPED), "start": (InstanceState.PENDING, InstanceState.RUNNING)}
"""A verb for what is so already, or on its way, is accepted and changes nothing, as on EC2."""


_SETTLES = {
    InstanceState.STOPPING: InstanceState.STOPPED, InstanceState.PENDING: InstanceState.RUNNING, InstanceState.SUSPENDING: InstanceState.SUSPENDED,
}  # fmt: skip


class FakeCloud:
    """
    ``fail(method, error, times)``: the next calls raise. ``after(method, error)``: the next verb is carried out and its
    answer lost. ``stops_in``: cycles of reads a machine spends in "stopping". ``failed_places``: place to reason.
    ``snapshots_complete_after``: reads after which a snapshot is complete; ``snapshots_fail``: volumes whose next one fails.
    ``bounces``: what the next starts of a machine meet after they were accepted, with the cloud's own code.
    """

    def __init__(self, clock: Clock, name: str = "aws") -> None:
        self.name = name
        self.machines: dict[ResourceId, Instance] = {}
        self.calls: list[tuple[str, ResourceId | None]] = []
        self.failed_places: dict[Place, str] = {}
        self.places: set[Place] = set()
        self.stop_protected: dict[ResourceId, bool | None] = {}
        self.off_by: timedelta | None = timedelta(0)
        self.reads_in_transition = 0
        self.before: Callable[[str, ResourceId | None], None] | None = None
        self._clock = clock
        self._errors: dict[str, list[CloudError]] = defaultdict(list)
        self._lost: dict[str, list[CloudError]] = defaultdict(list)
        self._turning: dict[ResourceId, int] = {}
        self.shelved: list[Shelf] = []  # what it tells of its disks
        self.ends_by_stopping = False  # as Google shows a machine that is being deleted
        self._snapshot_reads: dict[str, int] = {}
        self.snapshots_made: list[Snapshot] = []
        self.snapshots_complete_after = 0
        self.snapshots_fail: set[str] = set()
        self.bounces: dict[ResourceId, list[tuple[Hindrance, str]]] = defaultdict(list)

    # --- what tests do to it ------------------------------------------------------------------------------------------

    def put(self, *machines: Instance) -> None:
        for machine in machines:
            self.machines[machine.id] = machine
            self.places.add(_place(machine.id))

    def change(self, resource: ResourceId, **fields: object) -> None:
        self.machines[resource] = replace(self.machines[resource], **fields)  # type: ignore[arg-type]

    def fail(self, method: str, error: CloudError, times: int = 1) -> None:
        self._errors[method] += [error] * times

    def lose_answer(self, method: str, error: CloudError) -> None:
        self._lost[method].append(error)

    def verbs(self, name: str | None = None) -> list[tuple[str, ResourceId | None]]:
        """Mutating calls that arrived, refused ones included."""
        return [call for call in self.calls if call[0] in VERBS and (name is None or call[0] == name)]

    # --- ports.Cloud --------------------------------------------------------------------------------------------------

    def list(self) -> tuple[Listed, ...]:
        self._call("list", None)
        answers = []
        for place in sorted(self.places):
            if place in self.failed_places:
                answers.append(Listed(place, failed=self.failed_places[place]))
            else:
                machines = (m for m in self.machines.values() if _place(m.id) == place and m.state is not InstanceState.TERMINATED)
                answers.append(Listed(place, tuple(machines)))
        return tuple(answers)

    def get(self, resource: ResourceId) -> Instance:
        self._call("get", resource)
        if resource not in self.machines:
            raise NotFound(f"{resource} is not there", "InvalidInstanceID.NotFound")
        self._settle(resource)
        return self.machines[resource]

    def protections(self, resource: ResourceId) -> Protections:
        self.calls.append(("protections", resource))
        value = self.stop_protected.get(resource, False)
        return Protections(value, None if value is not None else f"{resource}: DescribeInstanceAttribute was denied")

    def stop(self, resource: ResourceId) -> None:
        self._verb("stop", resource, InstanceState.RUNNING, InstanceState.STOPPING)

    def start(self, resource: ResourceId) -> None:
        self._verb("start", resource, InstanceState.STOPPED, InstanceState.PENDING)

    def hibernate(self, resource: ResourceId) -> None:
        machine = self.machines.get(resource)
        if machine is not None and machine.suspends:
            self._verb("hibernate", resource, InstanceState.RUNNING, InstanceState.SUSPENDING)
            return
        if machine is not None and machine.hibernation is not True:
            self._call("hibernate", resource)
            raise Unsupported(f"{resource} was not launched for hibernation", "UnsupportedHibernationConfiguration")
        self._verb("hibernate", resource, InstanceState.RUNNING, InstanceState.STOPPING)

    def terminate(self, resource: ResourceId) -> None:
        self._call("terminate", resource)
        state = InstanceState.STOPPING if self.ends_by_stopping else InstanceState.TERMINATED
        self.machines[resource] = replace(self.machines[resource], state=state, changed_at=self._clock.now())
        if self._lost["terminate"]:
            raise self._lost["terminate"].pop(0)

    def snapshot(self, resource: ResourceId, volume: str, tags: Mapping[str, str]) -> str:
        self._call("snapshot", resource)
        failed = volume in self.snapshots_fail
        self.snapshots_fail.discard(volume)
        state = SnapshotState.FAILED if failed else SnapshotState.PENDING
        made = Snapshot(f"snap-{len(self.snapshots_made) + 1}", volume, state, 100, True, self._clock.now(), dict(tags), disk_gib=100, disk_encrypted=True)
        self.snapshots_made.append(made)
        self._snapshot_reads[made.id] = self.snapshots_complete_after
        if self._lost["snapshot"]:
            raise self._lost["snapshot"].pop(0)
        return made.id

    def snapshots(self, resource: ResourceId, key: str) -> tuple[Snapshot, ...]:
        self._call("snapshots", resource)
        for place, one in enumerate(self.snapshots_made):
            if one.state is SnapshotState.PENDING:
                self._snapshot_reads[one.id] -= 1
                if self._snapshot_reads[one.id] < 0:
                    self.snapshots_made[place] = replace(one, state=SnapshotState.COMPLETED)
        return tuple(one for one in self.snapshots_made if one.tags.get("idle-reaper:attempt") == key)

    def tag(self, resource: ResourceId, tags: Mapping[str, str | None]) -> None:
        self._call("tag", resource)
        machine = self.machines[resource]
        kept = {key: value for key, value in {**machine.tags, **tags}.items() if value is not None}
        self.machines[resource] = replace(machine, tags=kept)

    def shelves(self) -> tuple[Shelf, ...]:
        self._call("shelves", None)
        return tuple(self.shelved)

    def skew(self, now: datetime) -> timedelta | None:
        return self.off_by if self.calls else None

    # --- inside -------------------------------------------------------------------------------------------------------

    def _call(self, method: str, resource: ResourceId | None) -> None:
        self.calls.append((method, resource))
        if self.before is not None:
            self.before(method, resource)
        if self._errors[method]:
            raise self._errors[method].pop(0)

    def _verb(self, name: str, resource: ResourceId, needs: InstanceState, becomes: InstanceState) -> None:
        self._call(name, resource)
        machine = self.machines.get(resource)
        if machine is None:
            raise NotFound(f"{resource} is not there", "InvalidInstanceID.NotFound")
        if name == "stop" and self.stop_protected.get(resource):
            raise Protected(f"{resource} is protected from being stopped", "OperationNotPermitted")
        if machine.state in _DONE_ALREADY[name]:
            return
        if machine.state is not needs and not (name == "start" and machine.state in AT_REST):
            raise WrongState(f"{resource} is {machine.state}", "IncorrectInstanceState")
        now = self._clock.now()
        launched = now if name == "start" else machine.launched_at
        self.machines[resource] = replace(machine, state=becomes, changed_at=now, launched_at=launched)
        self._turning[resource] = self.reads_in_transition
        if self._lost[name]:
            raise self._lost[name].pop(0)

    def _settle(self, resource: ResourceId) -> None:
        machine = self.machines[resource]
        if machine.state not in (InstanceState.STOPPING, InstanceState.PENDING, InstanceState.SUSPENDING):
            return
        if self.ends_by_stopping and any(call == ("terminate", resource) for call in self.calls):
            return  # until a test says that it is gone
        left = self._turning.get(resource, 0)
        self._turning[resource] = left - 1
        if left <= 0:
            if machine.state is InstanceState.PENDING and self.bounces[resource]:
                what, code = self.bounces[resource].pop(0)
                fallen = replace(machine, state=InstanceState.STOPPED, changed_at=self._clock.now(), state_reason=code, fell_back=what)
                self.machines[resource] = fallen
                return
            done = _SETTLES[machine.state]
            self.machines[resource] = replace(machine, state=done, fell_back=None)


def _place(resource: ResourceId) -> Place:
    return Place(resource.cloud, resource.account, resource.place)
