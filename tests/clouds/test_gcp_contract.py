"""Google keeps the contract of every cloud."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from reaper.demo.compute_server import ComputeServer
from reaper.model.decision import Action
from reaper.model.kinds.instance import Hindrance, Instance, InstanceState
from reaper.model.resource import Place, ResourceId
from reaper.ports import Cloud
from reaper.service.execute import Withdrawn
from tests.clouds.gce import adapter, gid
from tests.contracts.cloud_contract import CloudContract, CloudHarness
from tests.contracts.cloud_stories import ENOUGH, SOON, CloudStories, OnCloud
from tests.fakes.gce import OTHER_ZONE, PROJECT, ZONE, compute_server

_METHODS = {"snapshot": "compute.snapshots.insert", "terminate": "compute.instances.delete"}


def _method(verb: str) -> str:
    return _METHODS.get(verb, f"compute.instances.{verb}")


class GcpHarness:
    def __init__(self, server: ComputeServer) -> None:
        self.cloud: Cloud = adapter(server)
        self.places = (Place("gcp", PROJECT, ZONE), Place("gcp", PROJECT, OTHER_ZONE))
        self._server = server

    def launch(self, name: str, place: Place, **tags: str) -> ResourceId:
        card = [{"acceleratorType": "nvidia-tesla-v100", "acceleratorCount": 1}]
        made = self._server.world.launch(name, place.account, place.name, "n1-standard-8", guestAccelerators=card, labels=tags)
        return gid(made["id"], place.name)

    def protect_from_stop(self, resource: ResourceId) -> None:
        self._server.world.machine(resource.native)["deletionProtection"] = True

    def terminate(self, resource: ResourceId) -> None:
        self._server.world.remove(resource.native)

    def break_listing(self, place: Place) -> None:
        self._server.world.lost[place.name] = "unreachable"

    def refuse_protection_reads(self) -> None:
        self._server.fail("compute.instances.get", 403, "forbidden", times=99)

    def lose_answer(self, verb: str) -> None:
        self._server.fail(_method(verb), None, after=True)

    def break_before_doing(self, verb: str) -> None:
        self._server.fail(_method(verb), 500)

    def tries(self, verb: str) -> int:
        return self._server.methods().count(_method(verb))

    def mutations(self) -> int:
        return len(self._server.mutations())

    def unknown(self) -> ResourceId:
        return gid("4611686018427387904")


class TestGoogle(CloudContract):
    @pytest.fixture
    def harness(self) -> Iterator[CloudHarness]:
        with compute_server() as server:
            yield GcpHarness(server)


class TestGoogleStories(CloudStories):
    @pytest.fixture
    def harness(self) -> Iterator[CloudHarness]:
        with compute_server() as server:
            yield GcpHarness(server)

    # --- what only Google has -------------------------------------------------------------------------------------------

    def suspending(self, world: OnCloud, **terms: str) -> None:
        world.config = replace(world.config, policies=(replace(SOON, action="suspend", **terms),))  # type: ignore[arg-type]

    def without_gpus(self, world: OnCloud, name: str) -> ResourceId:
        """
        A machine that Google suspends, shown as one with a GPU all the same: what only looks at GPUs would else never call it
        idle, and here it is about what comes after that.
        """
        resource = world.launch(name)
        server: ComputeServer = world.harness._server  # type: ignore[attr-defined]
        server.world.machine(resource.native)["guestAccelerators"] = []
        cloud, read, listing = world.harness.cloud, world.harness.cloud.get, world.harness.cloud.list

        def shown(machine: Instance) -> Instance:
            assert machine.suspends
            return replace(machine, gpus=1, gpu_model="V100")

        cloud.get = lambda one: shown(read(one))  # type: ignore[method-assign]
        cloud.list = lambda: tuple(replace(p, instances=tuple(map(shown, p.instances))) for p in listing())  # type: ignore[method-assign]
        return resource

    def test_what_google_suspends_is_suspended_and_an_undo_resumes_it(self, world: OnCloud) -> None:
        self.suspending(world)
        resource = self.without_gpus(world, "m")
        world.until(lambda: world.harness.cloud.get(resource).state is InstanceState.SUSPENDED)
        world.run(2)

        (attempt,) = world.store.attempts()
        assert (attempt.action, attempt.outcome) == (Action.SUSPEND, "done")
        assert any("60 days" in note for message in world.channel.messages for note in message.notes)
        lease = world.leader.renew()
        assert lease is not None
        world.cycle.executor.start_again(attempt, world.cycle.gather(world.config), lease, 1, "ada")

        assert world.harness.cloud.get(resource).state is InstanceState.RUNNING
        assert (world.harness.tries("suspend"), world.harness.tries("resume"), world.harness.tries("stop")) == (1, 1, 0)

    def test_what_google_has_stopped_after_too_long_is_not_started_by_an_undo(self, world: OnCloud) -> None:
        self.suspending(world)
        resource = self.without_gpus(world, "m")
        world.until(lambda: world.harness.cloud.get(resource).state is InstanceState.SUSPENDED)
        world.run(2)
        world.harness._server.world.machine(resource.native)["status"] = "TERMINATED"  # type: ignore[attr-defined]

        (attempt,) = world.store.attempts()
        lease = world.leader.renew()
        assert lease is not None
        with pytest.raises(Withdrawn, match="not suspended any more"):
            world.cycle.executor.start_again(attempt, world.cycle.gather(world.config), lease, 1, "ada")

    def test_a_gpu_machine_is_stopped_instead_and_it_is_said(self, world: OnCloud) -> None:
        self.suspending(world)
        resource = world.launch("m")

        world.until(lambda: world.up(resource) is False)

        assert world.harness.cloud.get(resource).state is InstanceState.STOPPED
        assert any("Google suspends no machine with GPUs" in note for message in world.channel.messages for note in message.notes)

    def test_a_gpu_machine_is_held_where_a_stop_will_not_do(self, world: OnCloud) -> None:
        self.suspending(world, suspend_else="hold")
        resource = world.launch("m")

        world.run(ENOUGH)

        assert world.up(resource)
        assert "Google suspends no machine with GPUs" in world.why("m")

    def test_a_sold_out_zone_is_tried_again_with_patience_and_told_with_zone_and_type(self, world: OnCloud) -> None:
        resource = world.launch("m")
        world.until(lambda: world.up(resource) is False)
        world.run(2)
        server: ComputeServer = world.harness._server  # type: ignore[attr-defined]
        server.world.op_errors["start"] = [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "message": "none left", "http": 503}] * 2
        (stopped,) = world.store.attempts()
        lease = world.leader.renew()
        assert lease is not None

        first = world.cycle.executor.start_again(stopped, world.cycle.gather(world.config), lease, 1, "ada")
        labels = server.world.machine(resource.native)["labels"]
        world.run(2)
        owed = dict(server.world.machine(resource.native)["labels"])
        world.until(lambda: world.up(resource) is True, minutes=30)

        assert (first.outcome, first.hindrance) == ("refused", Hindrance.CAPACITY)
        assert f"zone {ZONE}, n1-standard-8" in (first.detail or "")
        assert "idle-reaper_owed-start" not in labels
        assert owed["idle-reaper_owed-start"].isdigit()
        assert world.harness.tries("start") == 3

    @pytest.mark.parametrize(
        ("ended", "met"), [({"code": "QUOTA_EXCEEDED", "message": "x"}, Hindrance.QUOTA), ({"code": "KMS_KEY_DISABLED", "message": "x"}, Hindrance.KEY)],
        ids=["quota", "key"],
    )  # fmt: skip
    def test_a_quota_and_a_key_are_told_apart_from_a_sold_out_zone(self, world: OnCloud, ended: dict[str, str], met: Hindrance) -> None:
        resource = world.launch("m")
        world.until(lambda: world.up(resource) is False)
        world.run(2)
        world.harness._server.world.op_errors["start"] = [ended]  # type: ignore[attr-defined]
        (stopped,) = world.store.attempts()
        lease = world.leader.renew()
        assert lease is not None

        first = world.cycle.executor.start_again(stopped, world.cycle.gather(world.config), lease, 1, "ada")

        assert (first.outcome, first.hindrance) == ("refused", met)
