"""Disks and what else lies about, read with the real boto3 client against a strict moto over HTTP, with what goes wrong in the field."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st
from moto.elbv2.models import elbv2_backends

from reaper.clouds.aws import leftovers, storage_prices
from reaper.clouds.aws.cloud import AwsCloud
from reaper.clouds.aws.disks import parse_disk
from reaper.clouds.aws.origins import claim_of, made_by
from reaper.errors import Denied
from reaper.model.kinds.disk import Attachment, Disk, DiskState
from reaper.model.policy import AwsAccount
from reaper.model.resource import ResourceId
from reaper.ports import Disks, Shelf
from tests.clouds.conftest import FAST
from tests.clouds.test_aws_cloud import BOTH, ManualClock
from tests.clouds.test_prices import answering
from tests.fakes.faults import Faults, fails, refuse, replies
from tests.fakes.moto_ec2 import ACCOUNT, MotoEc2

Make = Callable[..., AwsCloud]
DENIED = refuse("UnauthorizedOperation", status=403)
THROTTLED = refuse("RequestLimitExceeded", status=503)
LONG_AGO = datetime(2023, 12, 1, tzinfo=UTC)
FIRST = datetime.min.replace(tzinfo=UTC)


def volume(moto: MotoEc2, region: str = "us-east-1", account: str = ACCOUNT, /, *, tags: Mapping[str, str] | None = None, **more: Any) -> str:
    asked = {"Size": 8, "VolumeType": "gp3", "AvailabilityZone": f"{region}a", **more}
    if tags:
        asked["TagSpecifications"] = [{"ResourceType": "volume", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]
    return str(moto.do("create_volume", region, account, **asked)["VolumeId"])


def natives(shelf: Shelf) -> list[str]:
    return sorted(disk.id.native for disk in shelf.disks)


def only(shelves: tuple[Shelf, ...], native: str) -> Disk:
    (disk,) = [disk for shelf in shelves for disk in shelf.disks if disk.id.native == native]
    return disk


def raw(**more: Any) -> dict[str, Any]:
    return {"VolumeId": "vol-0abc", "State": "available", "Attachments": [], "AvailabilityZone": "eu-west-1a", **more}


def parsed(**more: Any) -> Disk:
    disk = parse_disk(raw(**more), account="1", region="eu-west-1")
    assert disk is not None
    return disk


# --- listing ----------------------------------------------------------------------------------------------------------


def test_the_adapter_is_a_port_of_disks(cloud: AwsCloud) -> None:
    disks: Disks = cloud

    assert disks.name == "aws"


def test_disks_on_later_pages_are_told_and_each_disk_costs_no_call_of_its_own(make_cloud: Make, moto: MotoEc2) -> None:
    made = sorted(volume(moto) for _ in range(12))

    (shelf,) = make_cloud("us-east-1", page_size=5).shelves()

    assert natives(shelf) == made
    assert moto.actions().count("DescribeVolumes") == 3
    assert moto.mutations() == []
    assert len(moto.actions()) < 12


def test_a_page_that_fails_fails_its_place_and_hides_no_other(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    for _ in range(6):
        volume(moto)
    kept = volume(moto, "eu-central-1")
    more = "<DescribeVolumesResponse><volumeSet/><nextToken>5</nextToken></DescribeVolumesResponse>"
    faults.on("DescribeVolumes", replies(more), region="us-east-1")
    faults.on("DescribeVolumes", refuse("InvalidParameterValue"), region="us-east-1")

    failed, good = make_cloud(*BOTH, page_size=5).shelves()

    assert (failed.disks, failed.leftovers) == ((), ())
    assert "InvalidParameterValue" in (failed.failed or "")
    assert natives(good) == [kept]
    assert good.failed is None


def test_an_empty_page_with_more_behind_it_is_not_the_end(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    made = [volume(moto) for _ in range(2)]
    faults.on("DescribeVolumes", replies("<R><volumeSet/><nextToken>1</nextToken></R>"))

    (shelf,) = make_cloud("us-east-1").shelves()

    assert natives(shelf) == [made[1]]
    assert faults.tries("DescribeVolumes") == 2


def test_a_disk_that_comes_on_two_pages_is_told_once_as_the_later_says(make_cloud: Make, faults: Faults) -> None:
    item = "<item><volumeId>vol-1</volumeId><status>{}</status><attachmentSet/></item>"
    faults.on("DescribeVolumes", replies(f"<R><volumeSet>{item.format('available')}</volumeSet><nextToken>a</nextToken></R>"))
    faults.on("DescribeVolumes", replies(f"<R><volumeSet>{item.format('in-use')}</volumeSet></R>"))

    (shelf,) = make_cloud("us-east-1").shelves()

    assert [disk.state for disk in shelf.disks] == [DiskState.IN_USE]


def test_no_filter_is_sent_that_could_hide_a_disk(make_cloud: Make, moto: MotoEc2) -> None:
    bodies: list[str] = []

    def session() -> Any:
        made = moto.session()
        made.events.register("before-send.ec2.DescribeVolumes", lambda request, **_: bodies.append(str(request.body)))
        return made

    make_cloud("us-east-1", session=session).shelves()

    assert len(bodies) == 1
    assert "Filter" not in bodies[0]
    assert "MaxResults=1000" in bodies[0]
    assert "IncludeManagedResources=true" in bodies[0]


def test_a_place_throttled_to_the_end_is_failed_never_empty_and_left_alone_for_a_while(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    volume(moto)
    kept = volume(moto, "eu-central-1")
    faults.on("DescribeVolumes", THROTTLED, times=2, region="us-east-1")
    clock = ManualClock()
    cloud = make_cloud(*BOTH, clock=clock)

    first, good = cloud.shelves()
    second, _ = cloud.shelves()
    tries = faults.tries("DescribeVolumes", "us-east-1")
    clock.at += 60
    third, _ = cloud.shelves()

    assert "RequestLimitExceeded" in (first.failed or "")
    assert (first.disks, natives(good)) == ((), [kept])
    assert "it throttled us; asked again in" in (second.failed or "")
    assert tries == FAST.read_attempts
    assert (third.failed, len(third.disks)) == (None, 1)


def test_a_place_that_throttled_the_machines_is_not_asked_for_disks_and_one_that_throttled_disks_is_for_machines(
    make_cloud: Make, moto: MotoEc2, faults: Faults
) -> None:
    moto.launch()
    faults.on("DescribeInstances", THROTTLED, times=2, region="us-east-1")
    faults.on("DescribeVolumes", THROTTLED, times=2, region="eu-central-1")
    cloud = make_cloud(*BOTH)

    cloud.list()
    spared, throttled = cloud.shelves()
    _, machines = cloud.list()

    assert "it throttled us" in (spared.failed or "")
    assert faults.tries("DescribeVolumes", "us-east-1") == 0
    assert "RequestLimitExceeded" in (throttled.failed or "")
    assert machines.failed is None


def test_a_place_that_never_answers_is_failed_in_time_and_keeps_no_other_waiting(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    kept = volume(moto, "eu-central-1")
    released = threading.Event()

    def hang(url: str) -> Exception:
        released.wait(20)
        return ConnectionClosedError(endpoint_url=url)

    faults.on("DescribeVolumes", fails(hang), region="us-east-1")
    cloud = make_cloud(*BOTH, list_within=4)

    failed, good = cloud.shelves()
    released.set()
    for thread in threading.enumerate():
        if thread.name.startswith("aws-"):
            thread.join()

    assert "no complete answer within 4 s" in (failed.failed or "")
    assert natives(good) == [kept]


def test_a_read_that_times_out_to_the_end_fails_its_place(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    volume(moto)
    faults.on("DescribeVolumes", fails(lambda url: ReadTimeoutError(endpoint_url=url)), times=9)

    (shelf,) = make_cloud("us-east-1").shelves()

    assert shelf.disks == ()
    assert "AWS did not answer (ReadTimeoutError)" in (shelf.failed or "")


def test_what_is_denied_everywhere_is_a_missing_permission_and_fails(make_cloud: Make, faults: Faults) -> None:
    faults.on("DescribeVolumes", DENIED, times=9)

    shelves = make_cloud(*BOTH).shelves()

    assert len(shelves) == 2
    assert all("allow it in the IAM policy" in (shelf.failed or "") for shelf in shelves)


def test_a_region_that_policy_denies_is_not_among_the_shelves_and_one_that_answered_before_fails(make_cloud: Make, faults: Faults) -> None:
    cloud, seen = make_cloud(*BOTH), make_cloud(*BOTH)
    listed = make_cloud(*BOTH)
    seen.shelves()
    listed.list()
    faults.on("DescribeVolumes", DENIED, times=9, region="eu-central-1")

    assert [shelf.place.name for shelf in cloud.shelves()] == ["us-east-1"]
    assert [shelf.failed is None for shelf in seen.shelves()] == [True, False]
    assert [shelf.failed is None for shelf in listed.shelves()] == [True, False]


def test_a_region_that_is_off_is_not_among_the_shelves(make_cloud: Make, faults: Faults) -> None:
    regions = "".join(
        f"<item><regionName>{name}</regionName><optInStatus>{word}</optInStatus></item>"
        for name, word in [("us-east-1", "opt-in-not-required"), ("me-south-1", "not-opted-in")]
    )
    faults.on("DescribeRegions", replies(f"<R><regionInfo>{regions}</regionInfo></R>"), times=9)
    faults.on("DescribeVolumes", refuse("AuthFailure", status=401), region="me-south-1")

    assert [shelf.place.name for shelf in make_cloud().shelves()] == ["us-east-1"]
    assert [shelf.place.name for shelf in make_cloud("us-east-1", "me-south-1").shelves()] == ["us-east-1"]


def test_refused_keys_in_a_region_that_is_on_are_a_failure(make_cloud: Make, faults: Faults) -> None:
    faults.on("DescribeVolumes", refuse("AuthFailure", status=401), region="eu-central-1")

    shelves = make_cloud(*BOTH).shelves()

    assert [shelf.failed is None for shelf in shelves] == [True, False]


def test_the_only_account_that_cannot_be_asked_raises(make_cloud: Make, faults: Faults) -> None:
    faults.on("GetCallerIdentity", refuse("InvalidClientTokenId", status=403), times=9)

    with pytest.raises(Denied):
        make_cloud().shelves()


def test_one_account_that_cannot_be_asked_hides_no_other(make_cloud: Make, moto: MotoEc2) -> None:
    there = volume(moto, "us-east-1", "111122223333")
    moto.roles = {"arn:aws:iam::111122223333:role/idle-reaper": None}
    accounts = (AwsAccount("111122223333", role="idle-reaper", owner="eva"), AwsAccount("444455556666", role="idle-reaper"))

    good, failed = make_cloud("us-east-1", accounts=accounts).shelves()

    assert natives(good) == [there]
    assert only((good,), there).given == {"owner": "eva"}
    assert str(good.disks[0].id) == f"aws:111122223333:us-east-1:disk:{there}"
    assert "AccessDenied" in (failed.failed or "")


def test_an_answer_for_another_account_fails_the_place(make_cloud: Make, faults: Faults) -> None:
    faults.on("DescribeVolumes", replies("<R><volumeSet><item><volumeId>vol-1</volumeId><ownerId>999999999999</ownerId></item></volumeSet></R>"))

    (shelf,) = make_cloud("us-east-1").shelves()

    assert "EC2 answers for AWS account 999999999999" in (shelf.failed or "")


@pytest.mark.parametrize("id", ["", "<volumeId/>", "<volumeId>vol:1</volumeId>", "<volumeId>../1</volumeId>"])
def test_a_listing_with_a_disk_that_cannot_be_named_is_not_complete(make_cloud: Make, faults: Faults, id: str) -> None:
    faults.on("DescribeVolumes", replies(f"<R><volumeSet><item>{id}<status>available</status></item></volumeSet></R>"))

    (shelf,) = make_cloud("us-east-1").shelves()

    assert "a disk without an id that can be used" in (shelf.failed or "")


# --- what is said of one -----------------------------------------------------------------------------------------------


def test_a_disk_is_told_with_all_that_the_listing_says(make_cloud: Make, moto: MotoEc2) -> None:
    source = moto.do("create_snapshot", VolumeId=volume(moto))["SnapshotId"]
    key = moto.do("create_key", service="kms")["KeyMetadata"]["Arn"]
    native = volume(
        moto, Size=500, VolumeType="gp3", Iops=6000, Throughput=500, SnapshotId=source, Encrypted=True, KmsKeyId=key, tags={"Name": "data", "team": "ml"}
    )

    disk = only(make_cloud("us-east-1").shelves(), native)

    created = disk.created_at
    assert created is not None
    assert created.tzinfo is UTC
    assert disk == Disk(
        id=ResourceId("aws", ACCOUNT, "us-east-1", "disk", native), state=DiskState.AVAILABLE, name="data", tags={"Name": "data", "team": "ml"},
        size_gib=500, type="gp3", iops=6000, mib_s=500, zone="us-east-1a", encrypted=True, key=key, created_at=created, from_snapshot=source,
    )  # fmt: skip


def test_an_attached_disk_tells_to_whom_and_since_when(make_cloud: Make, moto: MotoEc2) -> None:
    machine, native = moto.launch(), volume(moto)
    moto.do("attach_volume", VolumeId=native, InstanceId=machine, Device="/dev/sdf")

    disk = only(make_cloud("us-east-1").shelves(), native)

    assert disk.state is DiskState.IN_USE
    assert [one.machine for one in disk.attachments] == [machine]
    assert disk.attached_at == disk.attachments[0].since is not None


def test_a_three_year_old_disk_detached_a_minute_ago_claims_no_age_of_being_unattached(make_cloud: Make, moto: MotoEc2) -> None:
    machine, native = moto.launch(), volume(moto)
    moto.backend().volumes[native].create_time = LONG_AGO
    moto.do("attach_volume", VolumeId=native, InstanceId=machine, Device="/dev/sdf")
    moto.do("detach_volume", VolumeId=native, InstanceId=machine)

    disk = only(make_cloud("us-east-1").shelves(), native)

    assert (disk.state, disk.created_at) == (DiskState.AVAILABLE, LONG_AGO)
    assert (disk.attached_at, disk.detached_at) == (None, None)


def test_a_disk_that_a_machine_says_it_has_is_in_use_whatever_the_disk_says(make_cloud: Make, moto: MotoEc2) -> None:
    machine, native, free = moto.launch(), volume(moto), volume(moto)
    moto.do("attach_volume", VolumeId=native, InstanceId=machine, Device="/dev/sdf")
    cloud = make_cloud("us-east-1")
    cloud.list()
    moto.backend().volumes[native].attachment = None

    shelves = cloud.shelves()

    held = only(shelves, native)
    assert (held.state, held.attachments) == (DiskState.IN_USE, (Attachment(machine),))
    assert only(shelves, free).state is DiskState.AVAILABLE


def test_a_disk_that_several_machines_hold_tells_all_of_them_and_the_newest_attach() -> None:
    held = [{"InstanceId": f"i-{n}", "State": "attached", "AttachTime": LONG_AGO + timedelta(days=n)} for n in range(3)]

    disk = parsed(State="in-use", MultiAttachEnabled=True, VolumeType="io2", Attachments=held)

    assert disk.multi_attach is True
    assert disk.attachments == tuple(Attachment(f"i-{n}", LONG_AGO + timedelta(days=n)) for n in range(3))
    assert disk.attached_at == LONG_AGO + timedelta(days=2)


ON_ITS_WAY = [{"InstanceId": "i-1", "State": "detaching"}]


@pytest.mark.parametrize(
    ("word", "attachments", "state"),
    [
        ("available", [], DiskState.AVAILABLE),
        ("available", ON_ITS_WAY, DiskState.IN_USE),
        ("available", [{"InstanceId": "i-1", "State": "attaching"}], DiskState.IN_USE),
        ("available", [{"InstanceId": "i-1", "State": "detached"}], DiskState.IN_USE),
        ("available", [{}], DiskState.IN_USE),
        ("available", None, DiskState.UNKNOWN),
        ("in-use", [], DiskState.IN_USE),
        ("in-use", None, DiskState.IN_USE),
        ("creating", [], DiskState.CREATING),
        ("deleting", [], DiskState.DELETING),
        ("error", [], DiskState.FAILED),
        ("recoverable", [], DiskState.UNKNOWN),
        ("AVAILABLE", [], DiskState.UNKNOWN),
        (None, [], DiskState.UNKNOWN),
    ],
)
def test_the_state_is_the_safer_of_what_the_word_and_the_attachments_say(word: str | None, attachments: Any, state: DiskState) -> None:
    assert parsed(State=word, Attachments=attachments).state is state


def test_a_deleted_disk_is_no_disk() -> None:
    assert parse_disk(raw(State="deleted"), account="1", region="eu-west-1") is None


def test_a_disk_of_a_service_is_held_by_it_and_not_for_anybody_else_to_delete() -> None:
    task = parsed(State="in-use", Attachments=[{"AssociatedResource": "arn:aws:ecs:…:task/t", "InstanceOwningService": "ecs.amazonaws.com"}])
    managed = parsed(Operator={"Managed": True, "Principal": "eks.amazonaws.com"})

    assert [one.machine for one in task.attachments] == ["arn:aws:ecs:…:task/t"]
    assert managed.locked == "AWS service eks.amazonaws.com operates it, which alone may delete it"
    assert parsed(Operator={"Managed": False}).locked is None


def test_what_the_listing_does_not_say_is_not_known_and_never_zero() -> None:
    disk = parse_disk({"VolumeId": "vol-0abc"}, account="1", region="eu-west-1")

    assert disk == Disk(id=ResourceId("aws", "1", "eu-west-1", "disk", "vol-0abc"), state=DiskState.UNKNOWN)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ([{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}], {"a": "2"}),
        ([{"Key": "a", "Value": "1"}, {"Key": "a"}], {"a": "1"}),
        ([{"Key": "a"}, {"Key": "A", "Value": "1"}], {"a": "", "A": "1"}),
        ([{"Value": "1"}, {"Key": None, "Value": "1"}, "no tag", None], {}),
        (None, {}),
    ],
)
def test_odd_tags_lose_no_value(tags: Any, expected: dict[str, str]) -> None:
    assert parsed(Tags=tags).tags == expected


def test_an_empty_name_is_none() -> None:
    assert parsed(Tags=[{"Key": "Name", "Value": ""}]).name is None


ANYTHING = st.sampled_from([
    None, True, False, 0, -1, 8, 2**70, 1.5, float("nan"), "", "x", "true", [], {}, (), [None], [{}], {"Managed": True}, {"State": []}, [[]], b"x",
    LONG_AGO, LONG_AGO.replace(tzinfo=None), FIRST, FIRST.replace(tzinfo=None), datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))), FIRST.replace(tzinfo=timezone(timedelta(hours=14))),
])  # fmt: skip
WORDS = st.sampled_from(["available", "in-use", "creating", "deleting", "deleted", "error", "Available", "attached", "detached", "detaching", "busy"])
ATTACHMENT = st.fixed_dictionaries({}, optional={"State": WORDS | ANYTHING, "InstanceId": st.just("i-1") | ANYTHING, "AttachTime": ANYTHING})
TAG = st.fixed_dictionaries({}, optional={"Key": st.sampled_from(["Name", "packer", "k8s.io/x"]) | ANYTHING, "Value": ANYTHING})
KEYS = ("Size", "VolumeType", "Iops", "Throughput", "AvailabilityZone", "Encrypted", "KmsKeyId", "MultiAttachEnabled", "CreateTime", "SnapshotId", "Operator", "OutpostArn")
ODD = st.fixed_dictionaries(
    {"VolumeId": st.just("vol-0abc")},
    optional={
        "State": WORDS | ANYTHING,
        "Attachments": st.just([]) | st.lists(ATTACHMENT | ANYTHING, max_size=3) | ANYTHING,
        "Tags": st.lists(TAG | ANYTHING, max_size=3) | ANYTHING,
        **dict.fromkeys(KEYS, ANYTHING),
    },
)


@given(ODD)
def test_whatever_an_entry_holds_it_is_read_and_is_available_only_where_that_is_plain(entry: dict[str, Any]) -> None:
    disk = parse_disk(entry, account="1", region="eu-west-1", price=lambda _: 1.0)

    if disk is None:
        assert entry["State"] == "deleted"
        return
    assert (disk.state is DiskState.AVAILABLE) == (entry.get("State") == "available" and entry.get("Attachments") in ([], ()))
    assert disk.detached_at is None
    assert all(isinstance(value, int) and value >= 0 for value in (disk.size_gib, disk.iops, disk.mib_s) if value is not None)
    assert disk.monthly_usd is None or disk.monthly_usd >= 0


# --- what it was made for and by ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tags", "claim"),
    [
        ({"kubernetes.io/created-for/pvc/namespace": "train", "kubernetes.io/created-for/pvc/name": "data-0"}, "train/data-0"),
        ({"Kubernetes.io/Created-For/PVC/Namespace": "train", "KUBERNETES.IO/created-for/pvc/name": "data-0"}, "train/data-0"),
        ({"csi.storage.k8s.io/pvc/namespace": "train", "csi.storage.k8s.io/pvc/name": "data-0"}, "train/data-0"),
        ({"kubernetes.io/created-for/pvc/name": "data-0"}, "?/data-0"),
        ({"kubernetes.io/created-for/pv/name": "pvc-1"}, "pvc-1"),
        ({"CSIVolumeName": "pvc-1", "ebs.csi.aws.com/cluster": "true"}, "pvc-1"),
        ({"csivolumename": "pvc-1"}, "pvc-1"),
        ({"ebs.csi.aws.com/cluster": "true"}, "cluster ebs.csi.aws.com/cluster"),
        ({"KubernetesCluster": "prod"}, "cluster prod"),
        ({"kubernetescluster": "prod"}, "cluster prod"),
        ({"kubernetes.io/cluster/Prod": "owned"}, "cluster Prod"),
        ({"Kubernetes.io/Cluster/prod": ""}, "cluster prod"),
        ({"k8s.io/etcd/main": "a/a"}, "k8s.io/etcd/main=a/a"),
        ({"velero.io/backup": "nightly"}, "velero.io/backup=nightly"),
        ({"kubernetes.io/created-for/pvc/name": "", "kubernetes.io/created-for/pvc/namespace": ""}, "kubernetes.io/created-for/pvc/name"),
        ({"team": "ml", "Name": "kubernetes", "aws:cloudformation:stack-name": "s"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_a_disk_that_kubernetes_may_want_says_so_whatever_tool_wrote_it(tags: dict[str, str], claim: str | None) -> None:
    assert claim_of(tags) == claim
    assert parsed(Tags=[{"Key": key, "Value": value} for key, value in tags.items()]).claim == claim


@pytest.mark.parametrize(
    ("tags", "maker"),
    [
        ({"aws:autoscaling:groupName": "g", "aws:ec2launchtemplate:id": "lt-1"}, "auto scaling group g"),
        ({"aws:ec2launchtemplate:id": "lt-1", "aws:ec2launchtemplate:version": "3"}, "launch template lt-1"),
        ({"Packer": ""}, "Packer"),
        ({"packer_build": "b-1"}, "Packer b-1"),
        ({"Name": "Packer Builder"}, "Packer"),
        ({"CreatedBy": "EC2 Image Builder"}, "EC2 Image Builder"),
        ({"Ec2ImageBuilderArn": "arn:x"}, "EC2 Image Builder arn:x"),
        ({"aws:backup:source-resource": "vol-1"}, "AWS Backup (source-resource vol-1)"),
        ({"aws:dlm:lifecycle-policy-id": "policy-1"}, "lifecycle policy (lifecycle-policy-id policy-1)"),
        ({"AWSApplicationMigrationServiceManaged": "mgn"}, "AWS Application Migration Service"),
        ({"aws:cloudformation:stack-name": "s", "CreatedBy": "ada", "Name": "unpacker"}, None),
    ],
    ids=str,
)
def test_what_made_a_disk(tags: dict[str, str], maker: str | None) -> None:
    assert made_by(tags) == maker
    assert parsed(Tags=[{"Key": key, "Value": value} for key, value in tags.items()]).made_by == maker


# --- prices ------------------------------------------------------------------------------------------------------------


def offer(usage: str, unit: str, usd: str, **attributes: str) -> str:
    terms = {"OnDemand": {"t": {"priceDimensions": {"d": {"unit": unit, "pricePerUnit": {"USD": usd}}}}}}
    return json.dumps({"product": {"attributes": {"usagetype": usage, "locationType": "AWS Region", **attributes}}, "terms": terms})


GP3 = (
    offer("EBS:VolumeUsage.gp3", "GB-Mo", "0.08"), offer("EBS:VolumeP-IOPS.gp3", "IOPS-Mo", "0.005"),
    offer("EBS:VolumeP-Throughput.gp3", "GiBps-mo", "40.96"), offer("EBS:VolumeUsage.gp3", "GB-Mo", "9", locationType="AWS Outposts"),
)  # fmt: skip
IO2 = (
    offer("EU-EBS:VolumeUsage.io2", "GB-month", "0.125"), offer("EU-EBS:VolumeP-IOPS.io2", "IOPS-Mo", "0.065"),
    offer("EU-EBS:VolumeP-IOPS.io2.tier2", "IOPS-Mo", "0.0455"), offer("EU-EBS:VolumeP-IOPS.io2.tier3", "IOPS-Mo", "0.03185"),
)  # fmt: skip


def settle() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("aws-disks"):
            thread.join(5)


@pytest.mark.parametrize(
    ("offers", "disk", "usd"),
    [
        (GP3, {"VolumeType": "gp3", "Size": 100, "Iops": 3000, "Throughput": 125}, 8.0),
        (GP3, {"VolumeType": "gp3", "Size": 100, "Iops": 6000, "Throughput": 250}, 8 + 15 + 5),
        (IO2, {"VolumeType": "io2", "Size": 100, "Iops": 1000}, 12.5 + 65),
        (IO2, {"VolumeType": "io2", "Size": 1000, "Iops": 70_000}, 125 + 32_000 * 0.065 + 32_000 * 0.0455 + 6_000 * 0.03185),
        ((offer("EBS:VolumeUsage.piops", "GB-Mo", "0.125"), offer("EBS:VolumeP-IOPS.piops", "IOPS-Mo", "0.065")), {"VolumeType": "io1", "Size": 10, "Iops": 100}, 7.75),
        ((offer("EBS:VolumeUsage", "GB-Mo", "0.05"), offer("EBS:VolumeIOUsage", "IOs", "0.00000005")), {"VolumeType": "standard", "Size": 100}, 5.0),
        # a part of the price is no price
        (GP3[:1], {"VolumeType": "gp3", "Size": 100, "Iops": 6000, "Throughput": 125}, None),
        (GP3[:2], {"VolumeType": "gp3", "Size": 100, "Iops": 3000, "Throughput": 126}, None),
        (IO2[:2], {"VolumeType": "io2", "Size": 100, "Iops": 40_000}, None),
        ((), {"VolumeType": "gp2", "Size": 100}, None),
        (("nonsense", "[]", offer("EBS:VolumeUsage.gp2", "GB-Mo", "0"), offer("EBS:VolumeUsage.gp2", "Hrs", "1")), {"VolumeType": "gp2", "Size": 1}, None),
    ],
)  # fmt: skip
def test_the_list_price_of_a_disk_counts_what_is_provisioned_beyond_what_is_included(
    make_cloud: Make, moto: MotoEc2, faults: Faults, offers: tuple[str, ...], disk: dict[str, Any], usd: float | None
) -> None:
    native = volume(moto, **disk)
    faults.on("GetProducts", answering(*offers), times=9)
    cloud = make_cloud("us-east-1", price_list=True)

    before = only(cloud.shelves(), native).monthly_usd
    settle()
    after = only(cloud.shelves(), native).monthly_usd
    settle()

    assert before is None
    assert after == (None if usd is None else pytest.approx(usd))
    assert faults.tries("GetProducts") == 1


@pytest.mark.parametrize(
    ("word", "offers", "prices"),
    [
        ("snapshot", (offer("EU-EBS:SnapshotUsage", "GB-Mo", "0.05"), offer("EU-EBS:SnapshotArchiveStorage", "GB-Mo", "9"), offer("EU-EBS:SnapshotUsage.outposts", "GB-Mo", "9")), {"snapshot": 0.05}),
        ("idle address", (offer("PublicIPv4:IdleAddress", "Hrs", "0.005"), offer("PublicIPv4:InUseAddress", "Hrs", "9")), {"idle address": 0.005}),
        (
            "load balancer network",
            (offer("EUW2-LoadBalancerUsage", "Hrs", "0.0265"), offer("EUW2-LCUUsage", "LCU-Hrs", "9"), offer("EUW2-TS-LoadBalancerUsage", "Hrs", "9")),
            {"load balancer network": 0.0265},
        ),
        ("disk st1", (offer("EBS:VolumeUsage.st1", "GB-Mo", "0.045"), offer("EBS:VolumeUsage.st1", "GB-Mo", "0.05")), {"disk st1": 0.05}),
        ("disk io2", (offer("EBS:VolumeP-IOPS.io2.tier9", "IOPS-Mo", "1"), offer("EBS:VolumeP-IOPS.io2.tier1", "IOPS-Mo", "1")), {}),
    ],
    ids=["snapshot", "address", "load balancer", "the dearest", "tiers nobody knows"],
)  # fmt: skip
def test_of_what_the_list_answers_only_the_plain_price_in_the_region_counts(word: str, offers: tuple[str, ...], prices: dict[str, float]) -> None:
    asked = storage_prices.asked(word)

    assert asked is not None
    assert asked[0] in ("AmazonEC2", "AmazonVPC", "AWSELB")
    assert storage_prices.read(word, offers) == prices


def test_prices_of_disks_are_kept_in_the_price_file_beside_those_of_machines(make_cloud: Make, moto: MotoEc2, faults: Faults, tmp_path: Any) -> None:
    native, file = volume(moto, Size=100), tmp_path / "prices.json"
    file.write_text('{"us-east-1": {"g5.xlarge": 0.9}}')
    moto.backend().volumes[native].throughput = 125
    faults.on("GetProducts", answering(*GP3), times=9)
    make_cloud("us-east-1", price_list=True, price_file=str(file)).shelves()
    settle()

    disk = only(make_cloud("us-east-1", price_file=str(file)).shelves(), native)

    assert disk.monthly_usd == 8.0
    assert json.loads(file.read_text())["us-east-1"] == {"disk gp3": 0.08, "disk gp3 iops": 0.005, "disk gp3 mib/s": 0.04, "g5.xlarge": 0.9}


@pytest.mark.parametrize("more", [{"AvailabilityZone": "eu-west-1-atl-1a"}, {"AvailabilityZone": None}, {"OutpostArn": "arn:o"}, {"Size": None}, {"VolumeType": "gp9"}])
def test_a_disk_where_the_list_price_does_not_hold_has_none(more: dict[str, Any]) -> None:
    entry = raw(VolumeType="gp2", Size=10)
    usual, other = (parse_disk(one, account="1", region="eu-west-1", price=lambda _: 0.1) for one in (entry, entry | more))

    assert usual is not None
    assert other is not None
    assert (usual.monthly_usd, other.monthly_usd) == (1.0, None)


# --- what else lies about -----------------------------------------------------------------------------------------------


@pytest.fixture
def balancers(moto: MotoEc2) -> Iterator[MotoEc2]:
    yield moto
    for backends in elbv2_backends.values():
        for backend in backends.values():
            backend.load_balancers.clear()
            backend.target_groups.clear()


def kinds(shelf: Shelf) -> list[tuple[str, str]]:
    return sorted((left.what, left.id.native) for left in shelf.leftovers)


def snapshot(moto: MotoEc2, disk: str, age: timedelta = timedelta(days=9), **more: Any) -> str:
    native = str(moto.do("create_snapshot", VolumeId=disk, **more)["SnapshotId"])
    moto.backend().snapshots[native].start_time = datetime.now(UTC) - age
    return native


def test_a_snapshot_is_left_over_when_its_disk_is_gone_and_only_then(make_cloud: Make, moto: MotoEc2) -> None:
    kept, gone = volume(moto), volume(moto, Size=30)
    snapshot(moto, kept)
    orphan = snapshot(moto, gone, TagSpecifications=[{"ResourceType": "snapshot", "Tags": [{"Key": "owner", "Value": "eva"}]}])
    before = make_cloud("us-east-1").shelves()
    moto.do("delete_volume", VolumeId=gone)

    (shelf,) = make_cloud("us-east-1").shelves()

    assert before[0].leftovers == ()
    (left,) = shelf.leftovers
    assert (str(left.id), left.what) == (f"aws:{ACCOUNT}:us-east-1:snapshot:{orphan}", "snapshot")
    assert (left.source, left.source_gone, left.size_gib, left.tags) == (gone, True, 30, {"owner": "eva"})
    assert left.because == f"its disk {gone} is gone"
    assert left.created_at is not None
    assert shelf.unread == ()


@pytest.mark.parametrize("change", [{"start_time": datetime.now(UTC) + timedelta(days=1)}, {"owner_id": "999999999999"}])
def test_a_snapshot_that_is_new_or_not_ours_is_not_judged(make_cloud: Make, moto: MotoEc2, change: dict[str, Any]) -> None:
    disk = volume(moto)
    native = snapshot(moto, disk)
    moto.do("delete_volume", VolumeId=disk)
    for key, value in change.items():
        setattr(moto.backend().snapshots[native], key, value)

    assert make_cloud("us-east-1").shelves()[0].leftovers == ()


def described(*items: str) -> Any:
    return replies(f"<R><snapshotSet>{''.join(f'<item>{item}<startTime>2023-01-01T00:00:00Z</startTime></item>' for item in items)}</snapshotSet></R>")


def test_a_copy_does_not_tell_of_which_disk_it_is_and_is_not_said_to_have_lost_it(make_cloud: Make, faults: Faults) -> None:
    faults.on("DescribeSnapshots", described("<snapshotId>snap-1</snapshotId><volumeId>vol-ffffffff</volumeId>"))

    (left,) = make_cloud("us-east-1").shelves()[0].leftovers

    assert (left.source, left.source_gone) == (None, None)
    assert left.because == "it is a copy, and does not tell of which disk"


def test_a_snapshot_that_an_image_is_made_of_says_so(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    image = moto.do("create_image", InstanceId=moto.launch(), Name="trained")["ImageId"]
    (used,) = [mapping["Ebs"]["SnapshotId"] for mapping in moto.do("describe_images", ImageIds=[image])["Images"][0]["BlockDeviceMappings"]]
    item = "<snapshotId>{}</snapshotId><volumeId>vol-{}</volumeId><description>{}</description>"
    made = "Created by CreateImage(i-1) for ami-0dead from vol-2"
    answer = described(item.format(used, 1, "x"), item.format("snap-2", 2, made), item.format("snap-3", 3, ""))
    faults.on("DescribeSnapshots", answer, times=2)

    told = {left.id.native: left.because for left in make_cloud("us-east-1").shelves()[0].leftovers}
    faults.on("DescribeImages", DENIED)
    (blind,) = make_cloud("us-east-1").shelves()

    assert told == {
        used: f"its disk vol-1 is gone; image {image} is made of it",
        "snap-2": "its disk vol-2 is gone; it was made for image ami-0dead, which this account does not have any more",
        "snap-3": "its disk vol-3 is gone",
    }
    assert {left.because for left in blind.leftovers if left.id.native == "snap-2"} == {"its disk vol-2 is gone; it was made for image ami-0dead"}
    assert any(sentence.startswith("images: not allowed (UnauthorizedOperation)") for sentence in blind.unread)


def test_the_price_of_a_snapshot_is_told_only_where_it_shares_nothing_with_others(make_cloud: Make, faults: Faults, tmp_path: Any) -> None:
    item = "<snapshotId>snap-{}</snapshotId><volumeId>vol-{}</volumeId><fullSnapshotSizeInBytes>{}</fullSnapshotSizeInBytes><storageTier>{}</storageTier>"
    rows = [("1", "a", 10 * 1024**3, "standard"), ("2", "b", 1024**3, "standard"), ("3", "b", 1024**3, "standard"), ("4", "c", 1024**3, "archive")]
    faults.on("DescribeSnapshots", described(*(item.format(*row) for row in rows)))
    file = tmp_path / "prices.json"
    file.write_text('{"us-east-1": {"snapshot": 0.05}}')

    left = {one.id.native: one for one in make_cloud("us-east-1", price_file=str(file)).shelves()[0].leftovers}

    assert {native: one.monthly_usd for native, one in left.items()} == {"snap-1": 0.5, "snap-2": None, "snap-3": None, "snap-4": None}
    assert "the price is the most it can be" in left["snap-1"].because
    assert "one of 2 of that disk" in left["snap-2"].because


def test_an_address_is_left_over_while_nothing_is_tied_to_it(make_cloud: Make, moto: MotoEc2, tmp_path: Any) -> None:
    idle, tied = (moto.do("allocate_address", Domain="vpc") for _ in range(2))
    moto.do("associate_address", AllocationId=tied["AllocationId"], InstanceId=moto.launch())
    file = tmp_path / "prices.json"
    file.write_text('{"us-east-1": {"idle address": 0.005}}')

    (left,) = make_cloud("us-east-1", price_file=str(file)).shelves()[0].leftovers

    assert (left.what, left.id.native, left.source, left.monthly_usd) == ("address", idle["AllocationId"], idle["PublicIp"], 3.65)


def test_an_address_of_ones_own_pool_has_no_price_and_one_of_a_service_is_not_told(make_cloud: Make, faults: Faults, tmp_path: Any) -> None:
    items = (
        "<allocationId>eipalloc-1</allocationId><publicIp>198.51.100.1</publicIp><publicIpv4Pool>ipv4pool-1</publicIpv4Pool>",
        "<allocationId>eipalloc-2</allocationId><publicIp>198.51.100.2</publicIp><serviceManaged>nlb</serviceManaged>",
        "<publicIp>198.51.100.3</publicIp><instanceId>i-1</instanceId><domain>standard</domain>",
    )
    faults.on("DescribeAddresses", replies(f"<R><addressesSet>{''.join(f'<item>{item}</item>' for item in items)}</addressesSet></R>"))
    file = tmp_path / "prices.json"
    file.write_text('{"us-east-1": {"idle address": 0.005}}')

    (left,) = make_cloud("us-east-1", price_file=str(file)).shelves()[0].leftovers

    assert (left.id.native, left.monthly_usd) == ("eipalloc-1", None)
    assert "of a pool of your own (ipv4pool-1)" in left.because


def balancer(moto: MotoEc2, name: str, *, groups: int = 0, machine: str | None = None) -> str:
    subnet = moto.client().describe_subnets()["Subnets"][0]
    arn = moto.do("create_load_balancer", service="elbv2", Name=name, Type="network", Subnets=[subnet["SubnetId"]])["LoadBalancers"][0]["LoadBalancerArn"]
    for n in range(groups):
        made = moto.do("create_target_group", service="elbv2", Name=f"{name}-{n}", Protocol="TCP", Port=80, VpcId=subnet["VpcId"])
        group = made["TargetGroups"][0]["TargetGroupArn"]
        moto.do("create_listener", service="elbv2", LoadBalancerArn=arn, Protocol="TCP", Port=80 + n, DefaultActions=[{"Type": "forward", "TargetGroupArn": group}])
        if machine is not None:
            moto.do("register_targets", service="elbv2", TargetGroupArn=group, Targets=[{"Id": machine}])
    return str(arn)


HEALTH = "<R><DescribeTargetHealthResult><TargetHealthDescriptions>{}</TargetHealthDescriptions></DescribeTargetHealthResult></R>"


def healths(*words: str) -> Any:
    members = (f"<member><Target><Id>i-1</Id></Target><TargetHealth>{f'<State>{word}</State>' if word else ''}</TargetHealth></member>" for word in words)
    return replies(HEALTH.format("".join(members)))


def test_a_load_balancer_without_a_living_target_is_left_over(make_cloud: Make, balancers: MotoEc2) -> None:
    balancer(balancers, "alive", groups=1, machine=balancers.launch())
    arn = balancer(balancers, "nobody", groups=1)
    balancers.do("add_tags", service="elbv2", ResourceArns=[arn], Tags=[{"Key": "owner", "Value": "eva"}])
    balancer(balancers, "bare")

    (shelf,) = make_cloud("us-east-1").shelves()

    left = {one.name: one for one in shelf.leftovers}
    assert {name: one.because for name, one in left.items()} == {
        "nobody": "no target is registered with it",
        "bare": "it has no target group; it may still redirect, or answer by itself",
    }
    assert left["nobody"].tags == {"owner": "eva"}
    assert ResourceId.parse(str(left["nobody"].id)) == left["nobody"].id
    assert left["nobody"].id.native == ".".join(arn.split("/")[1:])
    assert shelf.unread == ()


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("unhealthy", "unused", "draining"), "none of its 3 targets is healthy"),
        (("unhealthy", "healthy"), None),
        (("initial",), None),
        (("unavailable",), None),
        (("a-new-word",), None),
        (("unhealthy", ""), None),
    ],
)
def test_a_target_that_is_not_known_to_be_dead_keeps_its_load_balancer_in_use(
    make_cloud: Make, balancers: MotoEc2, faults: Faults, words: tuple[str, ...], because: str | None
) -> None:
    balancer(balancers, "one", groups=1)
    faults.on("DescribeTargetHealth", healths(*words))

    (shelf,) = make_cloud("us-east-1").shelves()

    assert [left.because for left in shelf.leftovers] == ([] if because is None else [because])


def test_a_target_group_that_went_meanwhile_has_no_target_and_is_no_failure(make_cloud: Make, balancers: MotoEc2, faults: Faults) -> None:
    balancer(balancers, "one", groups=1)
    faults.on("DescribeTargetHealth", refuse("TargetGroupNotFound"))

    (shelf,) = make_cloud("us-east-1").shelves()

    assert [left.because for left in shelf.leftovers] == ["no target is registered with it"]
    assert shelf.unread == ()


def test_target_health_is_asked_so_often_and_no_more_and_the_rest_is_said(
    make_cloud: Make, balancers: MotoEc2, faults: Faults
) -> None:
    for name in ("a", "b", "c"):
        balancer(balancers, name, groups=2)
    (account,) = make_cloud("us-east-1").accounts

    found = leftovers.load_balancers(account, "us-east-1", (), health_calls=3)

    assert faults.tries("DescribeTargetHealth") == 2
    assert len(found.leftovers) == 1
    assert found.unread == ("load balancers: 2 of 3 were not looked into; a region is asked about 3 target groups at once",)


@pytest.mark.parametrize(
    ("operation", "what"),
    [("DescribeSnapshots", "snapshots"), ("DescribeAddresses", "addresses"), ("DescribeLoadBalancers", "load balancers"), ("DescribeTargetGroups", "load balancers")],
)
@pytest.mark.parametrize("end", [DENIED, refuse("AccessDenied", status=403), THROTTLED, refuse("InternalError", status=500), replies("<cut"), fails(lambda url: ReadTimeoutError(endpoint_url=url))], ids=range(6))
def test_leftovers_that_cannot_be_read_are_a_sentence_and_spoil_nothing(
    make_cloud: Make, balancers: MotoEc2, faults: Faults, operation: str, what: str, end: Any
) -> None:
    made, address = volume(balancers), balancers.do("allocate_address", Domain="vpc")["AllocationId"]
    balancer(balancers, "bare")
    faults.on(operation, end, times=9)

    (shelf,) = make_cloud("us-east-1").shelves()

    assert (shelf.failed, natives(shelf)) == (None, [made])
    assert [sentence.partition(":")[0] for sentence in shelf.unread] == [what]
    assert [left.id.native for left in shelf.leftovers if left.what == "address"] == ([] if what == "addresses" else [address])
    assert len(shelf.leftovers) == (2 if what == "snapshots" else 1)


def test_target_health_that_is_denied_leaves_the_rest_told(make_cloud: Make, balancers: MotoEc2, faults: Faults) -> None:
    balancer(balancers, "a-bare")
    balancer(balancers, "b", groups=1)
    faults.on("DescribeTargetHealth", refuse("AccessDenied", status=403), times=9)
    faults.on("DescribeTags", refuse("AccessDenied", status=403), times=9)

    (shelf,) = make_cloud("us-east-1").shelves()

    assert shelf.failed is None
    assert all(left.name == "a-bare" for left in shelf.leftovers)
    assert shelf.unread[0].startswith("load balancers: not allowed (AccessDenied)")
    assert "of 2 were not looked into" in shelf.unread[0]


def test_leftovers_that_throttled_us_are_left_alone_for_a_while(make_cloud: Make, faults: Faults) -> None:
    faults.on("DescribeAddresses", THROTTLED, times=2)
    clock = ManualClock()
    cloud = make_cloud("us-east-1", clock=clock)

    (first,), (second,) = cloud.shelves(), cloud.shelves()
    tries = faults.tries("DescribeAddresses")
    clock.at += 60
    (third,) = cloud.shelves()

    assert "RequestLimitExceeded" in first.unread[0]
    assert second.unread[0].startswith("addresses: it throttled us; asked again in")
    assert tries == FAST.read_attempts
    assert third.unread == ()


def test_leftovers_that_hang_are_given_up_and_the_disks_are_told(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    made = volume(moto)
    released = threading.Event()

    def hang(url: str) -> Exception:
        released.wait(20)
        return ConnectionClosedError(endpoint_url=url)

    faults.on("DescribeLoadBalancers", fails(hang), times=9)
    cloud = make_cloud("us-east-1", list_within=2)

    shelves = [*cloud.shelves(), *cloud.shelves()]
    asked = faults.tries("DescribeLoadBalancers")
    released.set()
    for thread in threading.enumerate():
        if thread.name.startswith("aws-"):
            thread.join()

    assert [natives(shelf) for shelf in shelves] == [[made], [made]]
    assert [shelf.unread for shelf in shelves] == [("load balancers: no complete answer within 2 s",)] * 2
    assert asked == 1


def test_a_failed_place_is_not_asked_for_leftovers(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    moto.do("allocate_address", Domain="vpc")
    faults.on("DescribeVolumes", refuse("InternalError", status=500), times=9)

    (shelf,) = make_cloud("us-east-1").shelves()

    assert (shelf.failed is None, shelf.leftovers, shelf.unread) == (False, (), ())
    assert faults.tries("DescribeAddresses") == 0


def test_a_shelving_changes_nothing(make_cloud: Make, balancers: MotoEc2) -> None:
    volume(balancers)
    snapshot(balancers, volume(balancers))
    balancer(balancers, "b", groups=1)

    make_cloud("us-east-1").shelves()

    assert balancers.mutations() == []
    assert all(action.startswith(("Describe", "Get")) for action in balancers.actions())
