"""AWS keeps the contract of every cloud."""

from collections.abc import Callable

import pytest
from botocore.exceptions import ReadTimeoutError

from reaper.clouds.aws.cloud import AwsCloud
from reaper.model.resource import Place, ResourceId
from reaper.ports import Cloud
from tests.clouds.conftest import rid
from tests.contracts.cloud_contract import CloudContract, CloudHarness
from tests.contracts.cloud_stories import CloudStories
from tests.fakes.faults import Faults, carried_out_then, fails, refuse
from tests.fakes.moto_ec2 import ACCOUNT, MotoEc2

_OPERATIONS = {"stop": "StopInstances", "start": "StartInstances", "snapshot": "CreateSnapshot", "terminate": "TerminateInstances"}


class AwsHarness:
    def __init__(self, cloud: AwsCloud, moto: MotoEc2, faults: Faults) -> None:
        self.cloud: Cloud = cloud
        self.places = (Place("aws", ACCOUNT, "us-east-1"), Place("aws", ACCOUNT, "eu-central-1"))
        self._moto = moto
        self._faults = faults

    def launch(self, name: str, place: Place, **tags: str) -> ResourceId:
        return rid(self._moto.launch(name, region=place.name, type="p3.2xlarge", **tags), place.name)

    def protect_from_stop(self, resource: ResourceId) -> None:
        self._moto.do("modify_instance_attribute", resource.place, InstanceId=resource.native, DisableApiStop={"Value": True})

    def terminate(self, resource: ResourceId) -> None:
        self._moto.do("terminate_instances", resource.place, InstanceIds=[resource.native])

    def break_listing(self, place: Place) -> None:
        self._faults.on("DescribeInstances", refuse("InternalError", status=500), times=99, region=place.name)

    def refuse_protection_reads(self) -> None:
        self._faults.on("DescribeInstanceAttribute", refuse("UnauthorizedOperation", status=403), times=99)

    def lose_answer(self, verb: str) -> None:
        self._faults.on(_OPERATIONS[verb], carried_out_then(fails(lambda url: ReadTimeoutError(endpoint_url=url))))

    def break_before_doing(self, verb: str) -> None:
        self._faults.on(_OPERATIONS[verb], refuse("InternalError", status=500))

    def tries(self, verb: str) -> int:
        return self._faults.tries(_OPERATIONS[verb])

    def mutations(self) -> int:
        return len(self._moto.mutations())

    def unknown(self) -> ResourceId:
        return rid("i-0123456789abcdef0")


class TestAws(CloudContract):
    @pytest.fixture
    def harness(self, make_cloud: Callable[..., AwsCloud], moto: MotoEc2, faults: Faults) -> CloudHarness:
        return AwsHarness(make_cloud("us-east-1", "eu-central-1"), moto, faults)


class TestAwsStories(CloudStories):
    @pytest.fixture
    def harness(self, make_cloud: Callable[..., AwsCloud], moto: MotoEc2, faults: Faults) -> CloudHarness:
        return AwsHarness(make_cloud("us-east-1", "eu-central-1"), moto, faults)
