"""
What every cloud adapter promises, as tests that each cloud's own tests inherit.

    class TestAws(CloudContract):
        @pytest.fixture
        def harness(self) -> CloudHarness: ...
"""

from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest

from reaper.clouds.readonly import ReadOnlyCloud
from reaper.errors import AnswerLost, CloudError, NotFound, Protected, ReadOnly
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.resource import Place, ResourceId
from reaper.ports import Cloud


class CloudHarness(Protocol):
    """A cloud with two places, reached by the real adapter, that can be told to misbehave."""

    cloud: Cloud
    places: tuple[Place, Place]

    def launch(self, name: str, place: Place, **tags: str) -> ResourceId:
        """A running GPU machine: one V100, and no local disks."""
        ...

    def protect_from_stop(self, resource: ResourceId) -> None: ...
    def terminate(self, resource: ResourceId) -> None: ...
    def break_listing(self, place: Place) -> None:
        """Listing this place fails from now on."""
        ...

    def refuse_protection_reads(self) -> None: ...
    def lose_answer(self, verb: str) -> None:
        """The next such call is carried out and its answer lost."""
        ...

    def break_before_doing(self, verb: str) -> None:
        """The next such call ends in a server error and was not carried out."""
        ...

    def tries(self, verb: str) -> int:
        """How often the verb was sent."""
        ...

    def mutations(self) -> int:
        """How many mutating calls the cloud itself received."""
        ...

    def unknown(self) -> ResourceId:
        """A well-formed id that the cloud does not know."""
        ...


class CloudContract:
    @pytest.fixture
    def harness(self) -> CloudHarness:
        raise NotImplementedError("each cloud brings its own")

    def listed(self, harness: CloudHarness) -> dict[ResourceId, Instance]:
        return {i.id: i for place in harness.cloud.list() for i in place.instances}

    def test_list_names_every_place_once_and_holds_the_machines_of_each(self, harness: CloudHarness) -> None:
        a, b = (harness.launch(f"m{n}", place) for n, place in enumerate(harness.places))

        answer = harness.cloud.list()

        assert sorted(one.place for one in answer) == sorted(harness.places)
        assert {one.place: [i.id for i in one.instances] for one in answer} == {harness.places[0]: [a], harness.places[1]: [b]}
        assert all(one.failed is None for one in answer)

    def test_a_failed_place_is_named_with_its_reason_and_hides_no_other(self, harness: CloudHarness) -> None:
        good, bad = harness.places
        kept = harness.launch("kept", good)
        harness.launch("unseen", bad)
        harness.break_listing(bad)

        answer = {one.place: one for one in harness.cloud.list()}

        assert [i.id for i in answer[good].instances] == [kept]
        assert answer[bad].instances == ()
        assert str(bad) in (answer[bad].failed or "")

    def test_get_is_what_list_said(self, harness: CloudHarness) -> None:
        resource = harness.launch("m", harness.places[1])

        assert harness.cloud.get(resource) == self.listed(harness)[resource]

    def test_a_running_gpu_machine_is_described(self, harness: CloudHarness) -> None:
        machine = harness.cloud.get(harness.launch("trainer", harness.places[0]))

        assert machine.state is InstanceState.RUNNING
        assert machine.name == "trainer"
        assert machine.gpus is not None
        assert machine.gpus >= 1
        assert machine.launched_at is not None
        assert machine.launched_at.utcoffset() == timedelta(0)
        assert list(machine.volumes) == sorted(machine.volumes)

    def test_unknown_ids_are_not_found(self, harness: CloudHarness) -> None:
        for call in (harness.cloud.get, harness.cloud.stop, harness.cloud.start):
            with pytest.raises(NotFound) as caught:
                call(harness.unknown())

            assert str(harness.unknown()) in str(caught.value)

    def test_stop_then_start(self, harness: CloudHarness) -> None:
        resource = harness.launch("m", harness.places[0])

        harness.cloud.stop(resource)
        stopped = harness.cloud.get(resource)
        harness.cloud.start(resource)
        started = harness.cloud.get(resource)

        assert stopped.state in (InstanceState.STOPPING, InstanceState.STOPPED)
        assert stopped.changed_at is not None
        assert started.state in (InstanceState.PENDING, InstanceState.RUNNING)

    def test_a_second_stop_changes_nothing(self, harness: CloudHarness) -> None:
        resource = harness.launch("m", harness.places[0])

        harness.cloud.stop(resource)
        harness.cloud.stop(resource)

        assert harness.cloud.get(resource).state in (InstanceState.STOPPING, InstanceState.STOPPED)

    def test_a_protected_machine_says_so_and_stays_up(self, harness: CloudHarness) -> None:
        resource = harness.launch("m", harness.places[0])
        before = harness.cloud.protections(resource)
        harness.protect_from_stop(resource)

        assert before.stop_protected is False
        assert harness.cloud.protections(resource).stop_protected is True
        with pytest.raises(Protected, match=str(resource)):
            harness.cloud.stop(resource)
        assert harness.cloud.get(resource).state is InstanceState.RUNNING
        assert harness.tries("stop") <= 1  # where the cloud itself knows no such protection, the adapter keeps it and sends nothing

    def test_a_protection_that_cannot_be_read_is_not_known_and_says_why(self, harness: CloudHarness) -> None:
        resource = harness.launch("m", harness.places[0])
        harness.refuse_protection_reads()

        answer = harness.cloud.protections(resource)

        assert answer.stop_protected is None
        assert str(resource) in (answer.because or "")

    def test_a_terminated_machine_is_not_listed_and_not_revived(self, harness: CloudHarness) -> None:
        resource = harness.launch("m", harness.places[0])
        harness.terminate(resource)

        for verb in (harness.cloud.stop, harness.cloud.start):
            with pytest.raises(CloudError):
                verb(resource)
        assert resource not in self.listed(harness)

    @pytest.mark.parametrize("verb", ["stop", "start"])
    def test_a_lost_answer_is_told_and_never_sent_again(self, harness: CloudHarness, verb: str) -> None:
        resource = harness.launch("m", harness.places[0])
        if verb == "start":
            harness.cloud.stop(resource)
        harness.lose_answer(verb)

        with pytest.raises(AnswerLost, match=str(resource)):
            getattr(harness.cloud, verb)(resource)

        assert harness.tries(verb) == 1
        down = harness.cloud.get(resource).state in (InstanceState.STOPPING, InstanceState.STOPPED)
        assert down is (verb == "stop")

    def test_a_server_error_on_a_verb_is_a_lost_answer(self, harness: CloudHarness) -> None:
        resource = harness.launch("m", harness.places[0])
        harness.break_before_doing("stop")

        with pytest.raises(AnswerLost):
            harness.cloud.stop(resource)

        assert harness.tries("stop") == 1
        assert harness.cloud.get(resource).state is InstanceState.RUNNING

    def test_skew_is_not_known_before_the_first_answer(self, harness: CloudHarness) -> None:
        now = datetime.now(UTC)
        before = harness.cloud.skew(now)
        harness.cloud.list()
        after = harness.cloud.skew(now)

        assert before is None
        assert after is not None

    def test_read_only_sends_no_mutating_call(self, harness: CloudHarness) -> None:
        resource = harness.launch("m", harness.places[0])
        cloud = ReadOnlyCloud(harness.cloud)

        cloud.list()
        cloud.get(resource)
        cloud.protections(resource)
        cloud.skew(datetime.now(UTC))
        for verb in (cloud.stop, cloud.start):
            with pytest.raises(ReadOnly, match=str(resource)):
                verb(resource)

        assert harness.mutations() == 0
        assert cloud.name == harness.cloud.name
