"""What changes something, over moto's server made as strict as EC2: one call, one machine, never again by itself."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from reaper.clouds.aws.cloud import AwsCloud
from reaper.clouds.readonly import OnlyVerbs
from reaper.errors import (
    AnswerLost,
    CloudError,
    Denied,
    NoCapacity,
    Protected,
    QuotaReached,
    ReadOnly,
    Refused,
    TooSoon,
    Unsupported,
)
from reaper.model.kinds.instance import Hindrance, InstanceState
from reaper.model.kinds.snapshot import SnapshotState
from reaper.model.resource import ResourceId
from tests.clouds.conftest import rid
from tests.clouds.test_aws_cloud import lost
from tests.fakes.faults import Faults, carried_out_then, fails, refuse, replies
from tests.fakes.moto_ec2 import MotoEc2

OURS = {"idle-reaper:attempt": "a-1", "Name": "trainer vol before stop"}


@pytest.fixture
def machine(moto: MotoEc2) -> ResourceId:
    return rid(moto.launch())


def volume_of(cloud: AwsCloud, machine: ResourceId) -> str:
    (volume,) = cloud.get(machine).volumes
    return volume


def test_hibernation_is_refused_where_it_was_not_configured_and_nothing_is_stopped_instead(cloud: AwsCloud, moto: MotoEc2, machine: ResourceId) -> None:
    with pytest.raises(Unsupported, match=str(machine)):
        cloud.hibernate(machine)

    assert cloud.get(machine).state is InstanceState.RUNNING
    assert moto.mutations() == ["StopInstances"]


def test_hibernation_stops_what_was_launched_for_it(cloud: AwsCloud, moto: MotoEc2) -> None:
    ready = rid(moto.launch(more={"HibernationOptions": {"Configured": True}}))
    known = cloud.get(ready).hibernation
    cloud.hibernate(ready)

    assert known is True
    assert cloud.get(ready).state is InstanceState.STOPPED


def test_hibernating_a_protected_machine_is_refused_like_a_stop(cloud: AwsCloud, moto: MotoEc2) -> None:
    ready = rid(moto.launch(more={"HibernationOptions": {"Configured": True}}))
    moto.do("modify_instance_attribute", InstanceId=ready.native, DisableApiStop={"Value": True})

    with pytest.raises(Protected):
        cloud.hibernate(ready)


def test_a_snapshot_carries_its_tags_from_the_beginning_and_is_pending_first(cloud: AwsCloud, moto: MotoEc2, machine: ResourceId) -> None:
    moto.pending_reads = 1
    before = datetime.now(UTC) - timedelta(seconds=2)
    id = cloud.snapshot(machine, volume_of(cloud, machine), OURS)
    (pending,) = cloud.snapshots(machine, "a-1")
    (complete,) = cloud.snapshots(machine, "a-1")

    assert (pending.id, pending.volume, pending.state) == (id, volume_of(cloud, machine), SnapshotState.PENDING)
    assert complete.state is SnapshotState.COMPLETED
    assert complete.tags == OURS
    assert complete.started_at is not None
    assert complete.started_at >= before
    assert cloud.snapshots(machine, "a-2") == ()


def test_a_snapshot_is_read_beside_what_its_disk_is_now(cloud: AwsCloud, moto: MotoEc2, faults: Faults, machine: ResourceId) -> None:
    volume = volume_of(cloud, machine)
    cloud.snapshot(machine, volume, {"idle-reaper:attempt": "a-beside"})
    (same,) = cloud.snapshots(machine, "a-beside")
    size = moto.do("describe_volumes", VolumeIds=[volume])["Volumes"][0]["Size"]
    item = f"<item><volumeId>{volume}</volumeId><size>{size + 10}</size><encrypted>true</encrypted></item>"
    faults.on("DescribeVolumes", replies(f"<R><volumeSet>{item}</volumeSet></R>"))  # moto's snapshots grow with their disk
    (changed,) = cloud.snapshots(machine, "a-beside")

    assert (same.size_gib, same.disk_gib, same.encrypted, same.disk_encrypted) == (size, size, False, False)
    assert (changed.size_gib, changed.disk_gib, changed.encrypted, changed.disk_encrypted) == (size, size + 10, False, True)


def test_of_a_disk_that_is_gone_nothing_is_told_and_its_snapshot_is_still_read(cloud: AwsCloud, faults: Faults, machine: ResourceId) -> None:
    cloud.snapshot(machine, volume_of(cloud, machine), {"idle-reaper:attempt": "a-gone"})
    faults.on("DescribeVolumes", replies("<R><volumeSet/></R>"))

    (left,) = cloud.snapshots(machine, "a-gone")

    assert left.state is SnapshotState.COMPLETED
    assert (left.disk_gib, left.disk_encrypted) == (None, None)


def test_disks_that_cannot_be_read_make_no_snapshot_look_verified(cloud: AwsCloud, faults: Faults, machine: ResourceId) -> None:
    cloud.snapshot(machine, volume_of(cloud, machine), OURS)
    faults.on("DescribeVolumes", refuse("UnauthorizedOperation", status=403), times=9)

    with pytest.raises(Denied):
        cloud.snapshots(machine, "a-1")


@pytest.mark.parametrize("code", ["SnapshotCreationPerVolumeRateExceeded", "ConcurrentSnapshotLimitExceeded"])
def test_a_snapshot_asked_for_too_soon_is_sent_once(cloud: AwsCloud, faults: Faults, machine: ResourceId, code: str) -> None:
    faults.on("CreateSnapshot", refuse(code), times=9)

    with pytest.raises(TooSoon):
        cloud.snapshot(machine, volume_of(cloud, machine), OURS)

    assert faults.tries("CreateSnapshot") == 1


def test_a_snapshot_whose_answer_was_lost_is_found_by_its_tag(cloud: AwsCloud, faults: Faults, machine: ResourceId) -> None:
    volume = volume_of(cloud, machine)
    faults.on("CreateSnapshot", carried_out_then(fails(lost)))

    with pytest.raises(AnswerLost):
        cloud.snapshot(machine, volume, {"idle-reaper:attempt": "a-lost"})

    assert [one.volume for one in cloud.snapshots(machine, "a-lost")] == [volume]


def test_an_answer_about_another_disk_proves_nothing(cloud: AwsCloud, faults: Faults, machine: ResourceId) -> None:
    volume = volume_of(cloud, machine)
    faults.on("CreateSnapshot", replies("<R><snapshotId>snap-1</snapshotId><volumeId>vol-other</volumeId></R>"))

    with pytest.raises(AnswerLost):
        cloud.snapshot(machine, volume, OURS)


@pytest.mark.parametrize(("word", "state"), [("error", SnapshotState.FAILED), ("recovering", SnapshotState.UNKNOWN), ("", SnapshotState.UNKNOWN)])
def test_only_complete_is_complete(cloud: AwsCloud, faults: Faults, machine: ResourceId, word: str, state: SnapshotState) -> None:
    item = f"<item><snapshotId>snap-1</snapshotId><volumeId>vol-1</volumeId><status>{word}</status></item>"
    faults.on("DescribeSnapshots", replies(f"<R><snapshotSet>{item}</snapshotSet></R>"))

    assert [one.state for one in cloud.snapshots(machine, "a-1")] == [state]


def test_our_own_tags_are_put_and_taken_off(cloud: AwsCloud, machine: ResourceId) -> None:
    cloud.tag(machine, {"idle-reaper:stopped-by": "a-1", "idle-reaper:owed-start": "x" * 300})
    put = cloud.get(machine).tags
    cloud.tag(machine, {"idle-reaper:stopped-by": None})
    left = cloud.get(machine).tags

    assert put["idle-reaper:stopped-by"] == "a-1"
    assert len(put["idle-reaper:owed-start"]) == 256
    assert "idle-reaper:stopped-by" not in left


@pytest.mark.parametrize("key", ["team", "reaper", "aws:x", "Idle-Reaper:x", "idle-reaper"])
def test_no_other_tag_is_ever_written(cloud: AwsCloud, moto: MotoEc2, machine: ResourceId, key: str) -> None:
    with pytest.raises(Refused, match="not one of our own keys"):
        cloud.tag(machine, {"idle-reaper:ok": "1", key: "x"})

    assert moto.mutations() == []


def test_a_machine_with_fifty_tags_says_so(cloud: AwsCloud, moto: MotoEc2, machine: ResourceId) -> None:
    moto.do("create_tags", Resources=[machine.native], Tags=[{"Key": f"k{n}", "Value": ""} for n in range(49)])

    with pytest.raises(QuotaReached):
        cloud.tag(machine, {"idle-reaper:owed-start": "x"})


def test_no_capacity_names_the_zone_and_the_type(cloud: AwsCloud, faults: Faults, machine: ResourceId) -> None:
    cloud.stop(machine)
    faults.on("StartInstances", refuse("InsufficientInstanceCapacity", status=500), times=9)

    with pytest.raises(NoCapacity, match=r"no g5.xlarge in us-east-1\w now"):
        cloud.start(machine)

    assert faults.tries("StartInstances") == 1


def test_a_start_that_bounces_is_told_by_the_state_reason(cloud: AwsCloud, moto: MotoEc2, machine: ResourceId) -> None:
    cloud.stop(machine)
    plain = cloud.get(machine).fell_back
    moto.bounce_with = "Client.InternalError"
    cloud.start(machine)
    fallen = cloud.get(machine)

    assert plain is None
    assert (fallen.state, fallen.fell_back) == (InstanceState.STOPPED, Hindrance.KEY)


def test_ending_a_protected_machine_is_refused(cloud: AwsCloud, moto: MotoEc2, machine: ResourceId) -> None:
    moto.do("modify_instance_attribute", InstanceId=machine.native, DisableApiTermination={"Value": True})

    with pytest.raises(Protected):
        cloud.terminate(machine)

    assert cloud.get(machine).state is InstanceState.RUNNING


def test_ending_is_told_as_terminated(cloud: AwsCloud, machine: ResourceId) -> None:
    cloud.terminate(machine)

    assert cloud.get(machine).state in (InstanceState.TERMINATED, InstanceState.TERMINATING)


@pytest.mark.parametrize(
    ("verbs", "can"),
    [
        ((), set()),
        (("stop",), {"hibernate", "tag"}),
        (("start",), {"tag"}),
        (("stop", "snapshot"), {"hibernate", "tag", "snapshot"}),
        (("stop", "snapshot", "terminate"), {"hibernate", "tag", "snapshot", "terminate"}),
    ],
)
def test_a_verb_that_is_not_named_has_no_object_that_can_do_it(cloud: AwsCloud, moto: MotoEc2, verbs: tuple[str, ...], can: set[str]) -> None:
    ready = rid(moto.launch(more={"HibernationOptions": {"Configured": True}}))
    volume, bound = volume_of(cloud, ready), OnlyVerbs(cloud, verbs)
    calls: dict[str, Callable[[], object]] = {
        "snapshot": lambda: bound.snapshot(ready, volume, OURS), "tag": lambda: bound.tag(ready, {"idle-reaper:x": "1"}),
        "hibernate": lambda: bound.hibernate(ready), "terminate": lambda: bound.terminate(ready),
    }  # fmt: skip
    done = set()
    for name, call in calls.items():
        try:
            call()
            done.add(name)
        except ReadOnly:
            continue
        except CloudError as error:
            raise AssertionError(name) from error

    assert done == can
