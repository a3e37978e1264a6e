"""The cloud in memory keeps the contract of every cloud: what the scenarios show on it holds for the real ones."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from reaper.errors import AnswerLost
from reaper.model.kinds.instance import InstanceState
from reaper.model.resource import Place, ResourceId
from reaper.ports import Cloud
from tests.builders import instance
from tests.contracts.cloud_contract import CloudContract, CloudHarness
from tests.contracts.cloud_stories import CloudStories
from tests.fakes.clock import ManualClock
from tests.fakes.cloud import FakeCloud
from tests.scenarios.world import ACCOUNT


class FakeHarness:
    def __init__(self) -> None:
        self._fake = FakeCloud(ManualClock(datetime.now(UTC)))
        self.cloud: Cloud = self._fake
        read = self._fake.protections
        self._fake.protections = lambda resource: replace(read(resource), termination_protected=False)  # type: ignore[method-assign]
        self.places = (Place("aws", ACCOUNT, "us-east-1"), Place("aws", ACCOUNT, "eu-central-1"))
        self._fake.places.update(self.places)

    def launch(self, name: str, place: Place, **tags: str) -> ResourceId:
        resource = ResourceId(place.cloud, place.account, place.name, "instance", f"i-{name}")
        self._fake.put(instance(resource.native, id=resource, name=name, tags=tags, gpu_model="V100"))
        return resource

    def protect_from_stop(self, resource: ResourceId) -> None:
        self._fake.stop_protected[resource] = True

    def terminate(self, resource: ResourceId) -> None:
        self._fake.change(resource, state=InstanceState.TERMINATED)

    def break_listing(self, place: Place) -> None:
        self._fake.failed_places[place] = f"{place}: InternalError"

    def refuse_protection_reads(self) -> None:
        self._fake.stop_protected.update(dict.fromkeys(self._fake.machines))

    def lose_answer(self, verb: str) -> None:
        resource = next(iter(self._fake.machines))
        self._fake.get(resource)  # what is on its way arrives when it is looked at
        self._fake.lose_answer(verb, AnswerLost(f"{verb} {resource}: read timed out"))

    def break_before_doing(self, verb: str) -> None:
        self._fake.fail(verb, AnswerLost(f"{verb}: InternalError"))

    def tries(self, verb: str) -> int:
        return len(self._fake.verbs(verb))

    def mutations(self) -> int:
        return len(self._fake.verbs())

    def unknown(self) -> ResourceId:
        return ResourceId("aws", ACCOUNT, "us-east-1", "instance", "i-0123456789abcdef0")


class TestFakeStories(CloudStories):
    @pytest.fixture
    def harness(self) -> CloudHarness:
        return FakeHarness()


class TestFake(CloudContract):
    @pytest.fixture
    def harness(self) -> CloudHarness:
        return FakeHarness()
