"""What is asked about a machine that something is about to happen to, over moto's server."""

from collections.abc import Callable

import pytest

from reaper.clouds.aws.cloud import AwsCloud
from reaper.model.kinds.instance import Lifecycle
from tests.clouds.conftest import rid
from tests.fakes.faults import Faults, refuse, replies
from tests.fakes.moto_ec2 import AMI, MotoEc2

Make = Callable[..., AwsCloud]
DENIED = refuse("UnauthorizedOperation", status=403)


def test_a_plain_machine_is_owned_by_nobody_and_needs_no_key(cloud: AwsCloud, moto: MotoEc2) -> None:
    got = cloud.protections(rid(moto.launch()))

    assert (got.stop_protected, got.termination_protected) == (False, False)
    assert (got.managed_by, got.owner_unread) == (None, None)
    assert (got.keys, got.keys_because) == ((), None)
    assert got.covered is None


def test_both_protections_are_told_apart(cloud: AwsCloud, moto: MotoEc2) -> None:
    resource = rid(moto.launch())
    moto.do("modify_instance_attribute", InstanceId=resource.native, DisableApiTermination={"Value": True})

    got = cloud.protections(resource)

    assert (got.stop_protected, got.termination_protected) == (False, True)


def test_a_member_of_a_group_whose_tag_is_not_seen_is_found_by_the_groups_own_api(cloud: AwsCloud, moto: MotoEc2, faults: Faults) -> None:
    resource = rid(moto.launch())
    member = f"<member><InstanceId>{resource.native}</InstanceId><AutoScalingGroupName>train-a</AutoScalingGroupName></member>"
    body = f"<R><DescribeAutoScalingInstancesResult><AutoScalingInstances>{member}</AutoScalingInstances></DescribeAutoScalingInstancesResult></R>"
    faults.on("DescribeAutoScalingInstances", replies(body))

    got = cloud.protections(resource)

    assert got.managed_by == "auto scaling group train-a"
    assert "desired capacity" in (got.managed_instead or "")


def test_a_real_group_of_moto_tags_its_members(cloud: AwsCloud, moto: MotoEc2) -> None:
    moto.do("create_launch_configuration", service="autoscaling", LaunchConfigurationName="lc", ImageId=AMI, InstanceType="g5.xlarge")
    moto.do(
        "create_auto_scaling_group", service="autoscaling", AutoScalingGroupName="train-b", LaunchConfigurationName="lc",
        MinSize=1, MaxSize=1, AvailabilityZones=["us-east-1a"],
    )  # fmt: skip
    try:
        (listed,) = cloud.list()
        (member,) = [one for one in listed.instances if one.managed_by == "auto scaling group train-b"]

        assert cloud.protections(member.id).managed_by == "auto scaling group train-b"
    finally:
        moto.do("delete_auto_scaling_group", service="autoscaling", AutoScalingGroupName="train-b", ForceDelete=True)


def test_a_member_of_an_ecs_cluster_is_found(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    resource, other = rid(moto.launch()), rid(moto.launch())
    moto.do("create_cluster", service="ecs", clusterName="inference")
    found = '{"containerInstanceArns": ["arn:aws:ecs:us-east-1:123456789012:container-instance/inference/1"]}'
    cloud = make_cloud("us-east-1")
    faults.on("ListContainerInstances", replies(found))

    first, second = cloud.protections(resource), cloud.protections(other)

    assert first.managed_by == "ECS cluster inference"
    assert second.managed_by is None
    assert faults.tries("ListClusters") == 1  # remembered


@pytest.mark.parametrize("operation", ["DescribeAutoScalingInstances", "ListClusters"])
def test_owners_that_cannot_be_asked_are_told(cloud: AwsCloud, moto: MotoEc2, faults: Faults, operation: str) -> None:
    faults.on(operation, refuse("AccessDeniedException", status=403))

    got = cloud.protections(rid(moto.launch()))

    assert got.managed_by is None
    assert "AccessDenied" in (got.owner_unread or "")


def test_the_keys_of_its_disks_are_read_with_their_state(cloud: AwsCloud, moto: MotoEc2) -> None:
    key = moto.do("create_key", service="kms")["KeyMetadata"]
    resource = rid(moto.launch())
    volume = moto.do("create_volume", AvailabilityZone="us-east-1a", Size=1, Encrypted=True, KmsKeyId=key["Arn"])
    moto.do("attach_volume", VolumeId=volume["VolumeId"], InstanceId=resource.native, Device="/dev/sdf")

    enabled = cloud.protections(resource).keys
    moto.do("disable_key", service="kms", KeyId=key["KeyId"])
    remembered = cloud.protections(resource).keys
    cloud.accounts[0].nominated._kept.clear()
    disabled = cloud.protections(resource).keys

    assert enabled is not None
    assert [(k.id, k.state, k.ours) for k in enabled] == [(key["Arn"], "Enabled", True)]
    assert remembered == enabled
    assert disabled is not None
    assert [k.state for k in disabled] == ["Disabled"]


def test_what_cannot_be_read_of_keys_says_why_and_spoils_nothing_else(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    cloud = make_cloud("us-east-1")
    faults.on("DescribeVolumes", DENIED)

    got = cloud.protections(rid(moto.launch()))

    assert got.stop_protected is False
    assert got.keys is None
    assert "UnauthorizedOperation" in (got.keys_because or "")


def test_spot_requests_are_asked_for_once_and_only_where_there_are_some(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    moto.launch("plain")
    cloud = make_cloud("us-east-1")
    cloud.list()
    none_asked = faults.tries("DescribeSpotInstanceRequests")
    once = moto.launch("once", spot="one-time")
    moto.machine(once).spot_request_id = moto.machine(once).spot_instance_request_id = "sir-once"
    item = "<item><spotInstanceRequestId>sir-once</spotInstanceRequestId><type>one-time</type></item>"
    faults.on("DescribeSpotInstanceRequests", replies(f"<R><spotInstanceRequestSet>{item}</spotInstanceRequestSet></R>"))
    raw = f"<item><instanceId>{once}</instanceId><instanceType>g5.xlarge</instanceType><instanceLifecycle>spot</instanceLifecycle><spotInstanceRequestId>sir-once</spotInstanceRequestId></item>"
    faults.on("DescribeInstances", replies(f"<R><reservationSet><item><instancesSet>{raw}</instancesSet></item></reservationSet></R>"), times=2)

    (first,) = cloud.list()
    (second,) = cloud.list()

    assert none_asked == 0
    assert [i.lifecycle for i in first.instances] == [Lifecycle.SPOT_ONE_TIME]
    assert [i.lifecycle for i in second.instances] == [Lifecycle.SPOT_ONE_TIME]
    assert faults.tries("DescribeSpotInstanceRequests") == 1


def test_spot_requests_that_cannot_be_read_leave_the_kind_unknown_and_are_not_asked_for_every_time(make_cloud: Make, faults: Faults) -> None:
    raw = "<item><instanceId>i-0abc</instanceId><instanceLifecycle>spot</instanceLifecycle><spotInstanceRequestId>sir-1</spotInstanceRequestId></item>"
    faults.on("DescribeInstances", replies(f"<R><reservationSet><item><instancesSet>{raw}</instancesSet></item></reservationSet></R>"), times=9)
    faults.on("DescribeSpotInstanceRequests", DENIED, times=9)
    cloud = make_cloud("us-east-1")

    listed = [cloud.list()[0] for _ in range(3)]

    assert [i.lifecycle for one in listed for i in one.instances] == [Lifecycle.SPOT] * 3
    assert faults.tries("DescribeSpotInstanceRequests") == 1


def test_a_machine_without_readable_stop_protection_is_asked_nothing_else(cloud: AwsCloud, moto: MotoEc2, faults: Faults) -> None:
    faults.on("DescribeInstanceAttribute", DENIED)

    cloud.protections(rid(moto.launch()))

    assert faults.tries("DescribeVolumes") == 0
    assert faults.tries("DescribeAutoScalingInstances") == 0
