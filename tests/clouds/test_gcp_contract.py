"""Google keeps the contract of every cloud."""

from collections.abc import Iterator

import pytest

from reaper.demo.compute_server import ComputeServer
from reaper.model.resource import Place, ResourceId
from reaper.ports import Cloud
from tests.clouds.gce import adapter, gid
from tests.contracts.cloud_contract import CloudContract, CloudHarness
from tests.contracts.cloud_stories import CloudStories
from tests.fakes.gce import OTHER_ZONE, PROJECT, ZONE, compute_server


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
        self._server.fail(f"compute.instances.{verb}", None, after=True)

    def break_before_doing(self, verb: str) -> None:
        self._server.fail(f"compute.instances.{verb}", 500)

    def tries(self, verb: str) -> int:
        return self._server.methods().count(f"compute.instances.{verb}")

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
