"""
Stories that end the same on every cloud, as tests that each cloud's own tests inherit beside the contract.

The real cycle, store and executor over the real adapter; only the clock is ours, and the agents are scripted.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reaper.errors import CloudError
from reaper.model.kinds.instance import InstanceState
from reaper.model.kinds.snapshot import Snapshot, SnapshotState
from reaper.model.policy import IdleTerms, Protection, Scope, Selector, Warn
from reaper.model.resource import ResourceId
from reaper.ports import Cloud
from reaper.service.announce import Announcer
from reaper.service.brakes import FileBrake
from reaper.service.cycle import Cycle
from tests.contracts.cloud_contract import CloudHarness
from tests.scenarios.world import MINUTE, Life, World, configuration, policy

SOON = policy(idle=IdleTerms(timedelta(minutes=6), 0.05, timedelta(minutes=20)), warn=Warn(timedelta(minutes=5)), min_age=timedelta(minutes=1))
ENOUGH = 20
"""Minutes after which whoever is going to be stopped is: term, wait and last look, and some more."""


class InStep:
    """The cloud as it is, but for its clock: these stories take an hour of ours and seconds of its own."""

    def __init__(self, cloud: Cloud, now: Callable[[], datetime]) -> None:
        self._cloud, self._now = cloud, now

    def __getattr__(self, word: str) -> Any:
        return getattr(self._cloud, word)

    def skew(self, now: datetime) -> timedelta | None:
        return timedelta(0)

    def snapshots(self, resource: ResourceId, key: str) -> tuple[Snapshot, ...]:
        """Begun when our clock says."""
        ahead = self._now() - datetime.now(UTC)
        found = self._cloud.snapshots(resource, key)
        return tuple(replace(one, started_at=None if one.started_at is None else one.started_at + ahead) for one in found)


class OnCloud(World):
    """A world whose machines are a real adapter's. Agents report also where the cloud cannot be asked whether their machine is up."""

    def __init__(self, state: Path, harness: CloudHarness) -> None:
        self.harness = harness
        super().__init__(state, configuration(SOON))
        self.clock.step_wall(datetime.now(UTC) + timedelta(hours=1) - self.clock.now())  # after every launch and stop there is
        self._start()

    def _start(self) -> None:
        super()._start()
        clouds: Any = {self.harness.cloud.name: InStep(self.harness.cloud, self.clock.now)}
        self.cycle = Cycle(self.store, self.watch, clouds, Announcer({"log": self.channel}), self.board, self.clock, FileBrake(self.state))

    def launch(self, name: str, place: int = 0, life: Life | None = None, **tags: str) -> ResourceId:
        resource = self.harness.launch(name, self.harness.places[place], team="ml", owner="ada", **tags)
        self.lives[name] = replace(life or Life(resource), id=resource, booted_at=self.clock.now() - timedelta(days=1))
        return resource

    def tick(self) -> None:  # type: ignore[override]
        self.clock.advance(MINUTE - timedelta(seconds=5))
        for life in self.lives.values():
            if life.agent and self.up(life.id) is not False:
                self.report(life)
        self.clock.advance(timedelta(seconds=5))
        lease = self.leader.renew()
        assert lease is not None
        self.results.append(self.cycle.run(self.config, lease, None))

    def up(self, resource: ResourceId) -> bool | None:
        """None: the cloud does not tell."""
        try:
            return self.harness.cloud.get(resource).state is InstanceState.RUNNING
        except CloudError:
            return None

    def until(self, what: Callable[[], bool], minutes: int = ENOUGH) -> None:
        assert self.run(minutes, what) <= minutes
        assert what(), [(row.decision.resource.native, row.decision.because) for row in self.results[-1].rows]


class CloudStories:
    @pytest.fixture
    def harness(self) -> CloudHarness:
        raise NotImplementedError("each cloud brings its own")

    @pytest.fixture
    def world(self, harness: CloudHarness, tmp_path: Path) -> OnCloud:
        return OnCloud(tmp_path, harness)

    def test_idle_machine_is_warned_and_stopped_its_siblings_are_spared_and_undo_starts_it_again(self, world: OnCloud) -> None:
        idle = world.launch("idle")
        spared = [
            world.launch("busy", life=Life(idle, load=0.8)),
            world.launch("silent", 1, life=Life(idle, agent=False)),
            world.launch("gang-busy", life=Life(idle, load=0.8), **{"job-group": "run-7"}),
            world.launch("gang-idle", 1, **{"job-group": "run-7"}),
            world.launch("kept"),
        ]
        world.config = replace(world.config, protections=(Protection("long", Selector(ids=(str(spared[-1]),)), "pre-training run"),))

        world.until(lambda: world.up(idle) is False)
        world.run(3)

        assert [world.up(resource) for resource in spared] == [True] * len(spared)
        assert world.story("idle") == ["nominated", "warned", "due", "intent", "accepted", "outcome"]
        assert world.harness.tries("stop") == 1
        (attempt,) = world.store.attempts()
        assert (attempt.outcome, attempt.after is not None) == ("done", True)

        lease = world.leader.renew()
        assert lease is not None
        world.cycle.executor.start_again(attempt, world.cycle.gather(world.config), lease, 1, "ada")

        assert world.harness.cloud.get(idle).state in (InstanceState.PENDING, InstanceState.RUNNING)
        assert world.harness.tries("start") == 1

    def test_a_machine_in_a_place_that_could_not_be_listed_is_left_alone(self, world: OnCloud) -> None:
        world.launch("unseen", 0)
        seen = world.launch("seen", 1)
        world.run(2)
        world.harness.break_listing(world.harness.places[0])

        world.until(lambda: world.up(seen) is False)
        world.run(3)

        assert world.harness.tries("stop") == 1
        assert "could not be listed" in world.why("unseen")

    def test_a_protected_machine_stays_up(self, world: OnCloud) -> None:
        resource = world.launch("protected")
        world.harness.protect_from_stop(resource)

        world.run(ENOUGH)

        assert world.up(resource)
        assert world.harness.tries("stop") == 0
        assert "stop protection is on" in world.why("protected")

    def test_a_protection_that_cannot_be_read_protects(self, world: OnCloud) -> None:
        world.launch("unread")
        world.run(2)
        world.harness.refuse_protection_reads()

        world.run(ENOUGH)

        assert world.harness.tries("stop") == 0
        assert "stop protection not readable" in world.why("unread")

    def test_a_lost_answer_is_settled_by_reading_and_never_sent_again(self, world: OnCloud) -> None:
        resource = world.launch("m")
        world.harness.lose_answer("stop")

        world.until(lambda: world.up(resource) is False)
        world.run(3)

        assert world.harness.tries("stop") == 1
        assert [attempt.outcome for attempt in world.store.attempts()] == ["done"]

    def test_a_call_that_did_not_take_effect_is_not_repeated_at_once(self, world: OnCloud) -> None:
        resource = world.launch("m")
        world.harness.break_before_doing("stop")

        world.until(lambda: world.harness.tries("stop") == 1)
        world.run(4)

        assert world.up(resource)
        assert world.harness.tries("stop") == 1
        assert [attempt.outcome for attempt in world.store.attempts()] == ["failed"]
        assert "did not take effect" in (world.store.attempts()[0].detail or "")

    def test_a_machine_that_went_meanwhile_is_nobodys_failure(self, world: OnCloud) -> None:
        gone, idle = world.launch("gone"), world.launch("idle", 1)
        world.run(8)
        world.harness.terminate(gone)
        world.lives.pop("gone")

        world.until(lambda: world.up(idle) is False)

        assert world.harness.tries("stop") == 1

    # --- actions of several steps -----------------------------------------------------------------------------------

    def acting(self, world: OnCloud, action: str, *verbs: str) -> None:
        what = Scope(Selector(tags={"team": ("ml",)}), ("stop", "start", *verbs), given=True)
        world.config = replace(world.config, policies=(replace(SOON, action=action),), scope=what)

    def test_every_disk_has_a_snapshot_of_its_own_after_the_stop(self, world: OnCloud) -> None:
        self.acting(world, "stop-and-snapshot", "snapshot")
        resource = world.launch("m")
        volumes = world.harness.cloud.get(resource).volumes

        world.until(lambda: [attempt.outcome for attempt in world.store.attempts()] == ["done"])

        (attempt,) = world.store.attempts()
        found = world.harness.cloud.snapshots(resource, attempt.id)
        assert volumes
        assert sorted(one.volume for one in found) == sorted(volumes)
        assert {one.state for one in found} == {SnapshotState.COMPLETED}
        assert all(f"of {volume}" in (attempt.detail or "") for volume in volumes)
        assert world.harness.cloud.get(resource).state is InstanceState.STOPPED
        assert any("snapshots are per disk" in note for message in world.channel.messages for note in message.notes)

    def test_a_snapshot_whose_answer_is_lost_is_not_made_twice(self, world: OnCloud) -> None:
        self.acting(world, "stop-and-snapshot", "snapshot")
        resource = world.launch("m")
        world.harness.lose_answer("snapshot")

        world.until(lambda: [attempt.outcome for attempt in world.store.attempts()] == ["done"])

        assert len(world.harness.cloud.snapshots(resource, world.store.attempts()[0].id)) == len(world.harness.cloud.get(resource).volumes)

    def test_a_machine_is_ended_on_verified_snapshots_alone(self, world: OnCloud) -> None:
        self.acting(world, "terminate", "snapshot", "terminate")
        resource = world.launch("m")
        volumes = world.harness.cloud.get(resource).volumes

        world.until(lambda: [attempt.outcome for attempt in world.store.attempts()] == ["done"])

        (attempt,) = world.store.attempts()
        assert sorted(one.volume for one in world.harness.cloud.snapshots(resource, attempt.id)) == sorted(volumes)
        assert world.up(resource) is not True
        assert world.harness.tries("terminate") == 1

    def test_without_the_verb_nothing_begins(self, world: OnCloud) -> None:
        self.acting(world, "terminate", "snapshot")
        resource = world.launch("m")

        world.run(ENOUGH)

        assert world.up(resource)
        assert world.harness.mutations() == 0
