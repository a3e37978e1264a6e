"""What becomes of EC2's words, known, missing and new."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from reaper.clouds.aws.instances import NOTHING_KNOWN, TypeFacts, parse_instance, parse_type
from reaper.clouds.aws.owners import OWNER_TAGS, owner_by_tags
from reaper.model.kinds.instance import Instance, InstanceState, Lifecycle

A10G = TypeFacts(gpus=1, gpu_model="A10G", local_store=True)


def parse(types: dict[str, TypeFacts] | None = None, **raw: Any) -> Instance:
    return parse_instance({"InstanceId": "i-0abc", **raw}, account="012345678901", region="eu-west-1", types=types or {})


def test_an_entry_with_nothing_but_an_id_knows_nothing() -> None:
    bare = parse()

    assert str(bare.id) == "aws:012345678901:eu-west-1:instance:i-0abc"
    assert (bare.type, bare.state, bare.lifecycle) == ("unknown", InstanceState.UNKNOWN, Lifecycle.ON_DEMAND)
    unknown = ("name", "launched_at", "changed_at", "state_reason", "gpus", "gpu_model", "local_store", "managed_by", "placement_group")
    assert {field: getattr(bare, field) for field in unknown} == dict.fromkeys(unknown)
    assert (bare.tags, bare.volumes, bare.interfaces) == ({}, (), ())


def test_an_entry_without_an_id_makes_the_listing_incomplete() -> None:
    with pytest.raises(ValueError, match="without an id"):
        parse_instance({"InstanceType": "g5.xlarge"}, account="1", region="eu-west-1", types={})


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("pending", InstanceState.PENDING),
        ("running", InstanceState.RUNNING),
        ("stopping", InstanceState.STOPPING),
        ("stopped", InstanceState.STOPPED),
        ("shutting-down", InstanceState.TERMINATING),
        ("terminated", InstanceState.TERMINATED),
        ("hibernated", InstanceState.UNKNOWN),
        ("Running", InstanceState.UNKNOWN),
        ("", InstanceState.UNKNOWN),
    ],
)
def test_state_words(word: str, state: InstanceState) -> None:
    assert parse(State={"Code": 16, "Name": word}).state is state


@pytest.mark.parametrize(
    ("word", "lifecycle"),
    [
        (None, Lifecycle.ON_DEMAND),
        ("", Lifecycle.ON_DEMAND),
        ("spot", Lifecycle.SPOT),
        ("capacity-block", Lifecycle.CAPACITY_BLOCK),
        ("scheduled", Lifecycle.OTHER),
        ("interruptible-capacity-reservation", Lifecycle.OTHER),
    ],
)
def test_lifecycle_words(word: str | None, lifecycle: Lifecycle) -> None:
    assert parse(InstanceLifecycle=word).lifecycle is lifecycle


@pytest.mark.parametrize(
    ("reason", "moment"),
    [
        ("User initiated (2026-11-30 14:11:44 GMT)", datetime(2026, 11, 30, 14, 11, 44, tzinfo=UTC)),
        ("User initiated (2026-11-30 14:11:44 UTC)", datetime(2026, 11, 30, 14, 11, 44, tzinfo=UTC)),
        ("Service initiated (2026-02-28 00:00:00 GMT)", datetime(2026, 2, 28, tzinfo=UTC)),
        ("User initiated (2026-02-30 00:00:00 GMT)", None),
        ("User initiated (2026-11-30 14:11:44 CET)", None),
        ("User initiated", None),
        ("", None),
        (None, None),
    ],
)
def test_the_last_state_change_is_read_from_the_transition_reason(reason: str | None, moment: datetime | None) -> None:
    assert parse(StateTransitionReason=reason).changed_at == moment


def test_launch_time_is_told_in_utc() -> None:
    berlin = datetime(2026, 7, 1, 10, tzinfo=timezone(timedelta(hours=2)))

    launched = parse(LaunchTime=berlin).launched_at

    assert launched == berlin
    assert launched is not None
    assert launched.utcoffset() == timedelta(0)


def test_the_plain_fields() -> None:
    machine = parse(
        {"g5.xlarge": A10G},
        InstanceType="g5.xlarge",
        State={"Name": "stopped"},
        StateReason={"Code": "Client.UserInitiatedShutdown", "Message": "…"},
        Tags=[{"Key": "Name", "Value": "trainer"}, {"Key": "empty", "Value": ""}, {"Key": "bare"}],
        Placement={"GroupName": "train", "AvailabilityZone": "eu-west-1a"},
        BlockDeviceMappings=[{"Ebs": {"VolumeId": "vol-b"}}, {"Ebs": {"VolumeId": "vol-a"}}, {"DeviceName": "/dev/sdc"}],
        NetworkInterfaces=[{"NetworkInterfaceId": "eni-2"}, {"NetworkInterfaceId": "eni-1"}],
    )

    assert (machine.name, machine.title, machine.state_reason) == ("trainer", "trainer", "Client.UserInitiatedShutdown")
    assert machine.tags == {"Name": "trainer", "empty": "", "bare": ""}
    assert (machine.gpus, machine.gpu_model, machine.local_store) == (1, "A10G", True)
    assert machine.placement_group == "train"
    assert machine.volumes == ("vol-a", "vol-b")
    assert machine.interfaces == ("eni-1", "eni-2")


@pytest.mark.parametrize(
    ("placement", "group"),
    [({"GroupName": ""}, None), ({"GroupId": "pg-1"}, "pg-1"), ({}, None), (None, None), ({"GroupName": "a", "GroupId": "pg-1"}, "a")],
)
def test_placement_groups(placement: dict[str, str] | None, group: str | None) -> None:
    assert parse(Placement=placement).placement_group == group


@pytest.mark.parametrize("type_says", [False, None, True])
def test_an_instance_store_root_is_local_whatever_the_type_says(type_says: bool | None) -> None:
    types = {"m1.small": TypeFacts(gpus=0, local_store=type_says)}

    assert parse(types, InstanceType="m1.small", RootDeviceType="instance-store").local_store is True
    assert parse(types, InstanceType="m1.small", RootDeviceType="ebs").local_store is type_says


def gpu(name: str, count: int | None, maker: str = "NVIDIA", **more: Any) -> dict[str, Any]:
    return {"Name": name, "Manufacturer": maker, **({} if count is None else {"Count": count}), **more}


def store(*counts: int | None) -> dict[str, Any]:
    return {"InstanceStorageInfo": {"Disks": [{"SizeInGB": 900, "Type": "ssd"} | ({} if count is None else {"Count": count}) for count in counts]}}


@pytest.mark.parametrize(
    ("raw", "facts"),
    [
        pytest.param({"InstanceStorageSupported": False}, TypeFacts(0, None, False, 0), id="a type without GPUs has none"),
        pytest.param({}, TypeFacts(0, None, None), id="storage that is not told is not known"),
        pytest.param({"GpuInfo": {"Gpus": [gpu("H100", 8)]}, "InstanceStorageSupported": True}, TypeFacts(8, "H100", True), id="eight"),
        pytest.param({"GpuInfo": {"Gpus": [gpu("Radeon Pro V520", 1, "AMD")]}}, TypeFacts(1, "Radeon Pro V520", None), id="another maker counts"),
        pytest.param({"GpuInfo": {"Gpus": [gpu("A", 1), gpu("B", 2, "AMD")]}}, TypeFacts(3, "A+B", None), id="two makers add up"),
        pytest.param({"GpuInfo": {"Gpus": [gpu("L4", 0, LogicalGpuCount=1)]}}, TypeFacts(1, "L4", None), id="a slice is one device"),
        pytest.param({"GpuInfo": {"Gpus": [gpu("L4", None)]}}, TypeFacts(None, "L4", None), id="no count is not known"),
        pytest.param({"GpuInfo": {"Gpus": [gpu("A", 1), gpu("B", None)]}}, TypeFacts(None, "A+B", None), id="half a count is not known"),
        pytest.param({"GpuInfo": {"Gpus": [gpu("L4", 0)]}}, TypeFacts(None, "L4", None), id="a GPU of which there is none"),
        pytest.param({"GpuInfo": {}}, TypeFacts(None, None, None), id="details without devices are not known"),
        pytest.param({"InstanceStorageSupported": True, **store(8)}, TypeFacts(0, None, True, 8), id="eight local disks"),
        pytest.param({"InstanceStorageSupported": True, **store(1, 2)}, TypeFacts(0, None, True, 3), id="two kinds of local disks add up"),
        pytest.param({"InstanceStorageSupported": True, **store(1, None)}, TypeFacts(0, None, True), id="half a count of disks is not known"),
        pytest.param({"InstanceStorageSupported": True, **store()}, TypeFacts(0, None, True), id="disks that are not told are not none"),
        pytest.param({"NeuronInfo": {"NeuronDevices": [{"Count": 16}]}}, TypeFacts(0, None, None), id="neuron chips are not GPUs"),
    ],
)
def test_types(raw: dict[str, Any], facts: TypeFacts) -> None:
    assert parse_type(raw) == facts


def test_a_type_that_could_not_be_read_is_not_known() -> None:
    assert parse({}, InstanceType="p6.48xlarge").gpus is NOTHING_KNOWN.gpus is None


@pytest.mark.parametrize(
    ("tags", "owner"),
    [
        ({"aws:autoscaling:groupName": "train-a"}, "auto scaling group train-a"),
        ({"aws:autoscaling:groupName": "asg", "eks:nodegroup-name": "gpu", "kubernetes.io/cluster/ml": "owned"}, "auto scaling group asg"),
        ({"eks:cluster-name": "ml", "eks:nodegroup-name": "gpu"}, "EKS node group gpu"),
        ({"eks:cluster-name": "ml"}, "EKS cluster ml"),
        ({"kubernetes.io/cluster/ml": "owned"}, "Kubernetes cluster ml"),
        ({"k8s.io/cluster-autoscaler/enabled": "true"}, "Kubernetes cluster autoscaler (enabled)"),
        ({"karpenter.sh/nodepool": "gpu"}, "Karpenter node pool gpu"),
        ({"karpenter.sh/provisioner-name": "gpu"}, "Karpenter (provisioner-name gpu)"),
        ({"karpenter.k8s.aws/ec2nodeclass": "gpu"}, "Karpenter (ec2nodeclass gpu)"),
        ({"aws:ec2spot:fleet-request-id": "sfr-1"}, "spot fleet sfr-1"),
        ({"aws:ec2:fleet-id": "fleet-1"}, "EC2 fleet fleet-1"),
        ({"elasticbeanstalk:environment-name": "web"}, "Elastic Beanstalk environment web"),
        ({"aws:elasticmapreduce:job-flow-id": "j-1"}, "EMR cluster j-1"),
        ({"aws:elasticmapreduce:instance-group-role": "CORE"}, "EMR (instance-group-role CORE)"),
        ({"parallelcluster:cluster-name": "hpc"}, "ParallelCluster hpc"),
        ({"aws:batch:compute-environment": "ce"}, "Batch compute environment ce"),
        ({"AWSBatchServiceTag": "batch"}, "Batch"),
        ({"aws:ecs:clusterName": "web"}, "ECS cluster web"),
        ({"sagemaker:cluster": "hyper"}, "SageMaker (cluster hyper)"),
        ({"ray-cluster-name": "ray-1"}, "Ray cluster ray-1"),
        ({"Vendor": "Databricks"}, "Databricks"),
        ({"Vendor": "NVIDIA"}, None),
        ({"aws:cloudformation:stack-name": "s", "aws:ec2launchtemplate:id": "lt-1"}, None),
        ({"Name": "karpenter.sh", "AWS:autoscaling:groupName": "no such key"}, None),
        ({}, None),
    ],
)
def test_owner_tags(tags: dict[str, str], owner: str | None) -> None:
    found = owner_by_tags(tags)

    assert (found.name if found is not None else None) == owner


def test_an_owner_with_a_braced_or_empty_value_is_still_an_owner() -> None:
    strange, nameless = owner_by_tags({"aws:autoscaling:groupName": "{value}{0}"}), owner_by_tags({"karpenter.sh/nodepool": ""})
    all_of_them = [owner_by_tags({tag.key.replace("*", "x"): tag.only or ""}) for tag in OWNER_TAGS]

    assert strange is not None
    assert strange.name == "auto scaling group {value}{0}"
    assert nameless is not None
    assert nameless.name == "Karpenter node pool"
    assert all(owner is not None and owner.instead for owner in all_of_them)


@pytest.mark.parametrize(
    ("operator", "owner"),
    [
        ({"Managed": True, "Principal": "eks.amazonaws.com"}, "AWS service eks.amazonaws.com"),
        ({"Managed": True}, "AWS service that is not named"),
        ({"Managed": False}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_machine_that_an_aws_service_operates_has_an_owner(operator: dict[str, Any] | None, owner: str | None) -> None:
    assert parse(Operator=operator).managed_by == owner


@pytest.mark.parametrize(
    ("raw", "lifecycle"),
    [
        ({"InstanceLifecycle": "spot", "SpotInstanceRequestId": "sir-once"}, Lifecycle.SPOT_ONE_TIME),
        ({"InstanceLifecycle": "spot", "SpotInstanceRequestId": "sir-keeps"}, Lifecycle.SPOT_PERSISTENT),
        ({"InstanceLifecycle": "spot", "SpotInstanceRequestId": "sir-odd"}, Lifecycle.SPOT),
        ({"InstanceLifecycle": "spot", "SpotInstanceRequestId": "sir-new"}, Lifecycle.SPOT),
        ({"InstanceLifecycle": "spot"}, Lifecycle.SPOT),
        ({"SpotInstanceRequestId": "sir-once"}, Lifecycle.SPOT),
        ({"InstanceLifecycle": "capacity-block", "SpotInstanceRequestId": "sir-once"}, Lifecycle.CAPACITY_BLOCK),
    ],
)
def test_the_kind_of_a_spot_machine_comes_from_its_request(raw: dict[str, str], lifecycle: Lifecycle) -> None:
    kinds = {"sir-once": "one-time", "sir-keeps": "persistent", "sir-odd": "fleeting"}

    got = parse_instance({"InstanceId": "i-0abc", **raw}, account="1", region="eu-west-1", types={}, spot_types=kinds)

    assert got.lifecycle is lifecycle


def test_where_it_is_and_what_it_was_launched_for() -> None:
    machine = parse(
        Placement={"AvailabilityZone": "eu-west-1a", "Tenancy": "host", "HostId": "h-1"},
        RootDeviceType="ebs",
        HibernationOptions={"Configured": True},
        CapacityReservationId="cr-1",
        CapacityReservationSpecification={"CapacityReservationPreference": "open"},
    )

    assert (machine.zone, machine.tenancy, machine.host, machine.root) == ("eu-west-1a", "host", "h-1", "ebs")
    assert (machine.hibernation, machine.reservation, machine.reserved_only) == (True, "cr-1", False)
    assert parse(HibernationOptions={}).hibernation is None
    assert parse(HibernationOptions={"Configured": False}).hibernation is False


@pytest.mark.parametrize(
    ("specification", "only"),
    [
        (None, None),
        ({"CapacityReservationPreference": "none"}, False),
        ({"CapacityReservationPreference": "capacity-reservations-only"}, True),
        ({"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}, True),
        ({"CapacityReservationTarget": {"CapacityReservationResourceGroupArn": "arn:x"}}, True),
    ],
)
def test_whether_it_can_start_in_reserved_capacity_only(specification: dict[str, Any] | None, only: bool | None) -> None:
    assert parse(CapacityReservationSpecification=specification).reserved_only is only


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({}, (None, None)),
        ({"PublicIpAddress": "198.51.100.7"}, ("198.51.100.7", None)),
        ({"PublicIpAddress": "198.51.100.7", "NetworkInterfaces": [{"Association": {"PublicIp": "198.51.100.7", "IpOwnerId": "amazon"}}]}, ("198.51.100.7", False)),
        ({"PublicIpAddress": "198.51.100.7", "NetworkInterfaces": [{"Association": {"PublicIp": "198.51.100.7", "IpOwnerId": "012345678901"}}]}, ("198.51.100.7", True)),
        ({"PublicIpAddress": "198.51.100.7", "NetworkInterfaces": [{}, {"Association": None}]}, ("198.51.100.7", None)),
    ],
)
def test_only_an_elastic_address_stays(raw: dict[str, Any], expected: tuple[str | None, bool | None]) -> None:
    machine = parse(**raw)

    assert (machine.public_address, machine.address_kept) == expected


@pytest.mark.parametrize(
    ("raw", "price"),
    [
        ({}, 1.006),
        ({"PlatformDetails": "Linux/UNIX", "Placement": {"Tenancy": "default"}}, 1.006),
        ({"PlatformDetails": "Windows"}, None),
        ({"Placement": {"Tenancy": "dedicated"}}, None),
        ({"InstanceLifecycle": "spot"}, None),
    ],
)
def test_the_list_price_is_that_of_on_demand_linux_on_shared_hardware_only(raw: dict[str, Any], price: float | None) -> None:
    got = parse_instance({"InstanceId": "i-0abc", **raw}, account="1", region="eu-west-1", types={}, hourly_usd=1.006)

    assert got.hourly_usd == price


def test_every_private_address_of_a_machine_is_told_and_none_is_not_nothing() -> None:
    nics = [
        {"PrivateIpAddress": "10.0.0.4", "PrivateIpAddresses": [{"PrivateIpAddress": "10.0.0.4"}, {"PrivateIpAddress": "10.0.0.5"}]},
        {"PrivateIpAddress": "10.1.0.4", "Ipv6Addresses": [{"Ipv6Address": "fd00::4"}]},
    ]
    raw = {"InstanceId": "i-01", "PrivateIpAddress": "10.0.0.4", "NetworkInterfaces": nics}

    assert parse_instance(raw, account="111122223333", region="eu-west-1", types={}).private_addresses == ("10.0.0.4", "10.0.0.5", "10.1.0.4", "fd00::4")
    assert parse_instance({"InstanceId": "i-01"}, account="111122223333", region="eu-west-1", types={}).private_addresses is None
