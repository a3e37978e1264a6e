"""The reader of listings says what botocore's own would, of all that we ask of an entry, and leaves to it what it cannot read."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import botocore.session
import pytest
from botocore.parsers import create_parser

from reaper.clouds.aws import instances
from reaper.clouds.aws.cloud import AwsCloud
from reaper.clouds.aws.listing import EMPTY, WANTED, _plan, read, read_listing
from reaper.clouds.aws.models import TrimmedLoader, trimmed
from tests.bench.ec2_pages import entry, pages
from tests.fakes.faults import Faults, replies
from tests.fakes.moto_ec2 import MotoEc2

MODEL = botocore.session.Session().get_service_model("ec2").operation_model("DescribeInstances")
RICH = """<item><reservationId>r</reservationId><ownerId>123456789012</ownerId><instancesSet><item><instanceId>i-0abc</instanceId>
<instanceState><code>80</code><name>stopped</name></instanceState><stateReason><code>Client.InternalError</code><message>x</message></stateReason>
<reason>User initiated (2026-11-30 14:11:44 GMT)</reason><instanceType>p5.48xlarge</instanceType><launchTime>2026-11-02T08:14:10.000Z</launchTime>
<placement><availabilityZone>eu-west-1a</availabilityZone><groupName>a &amp; b</groupName><groupId>pg-1</groupId><tenancy>host</tenancy><hostId>h-1</hostId></placement>
<instanceLifecycle>spot</instanceLifecycle><spotInstanceRequestId>sir-1</spotInstanceRequestId><rootDeviceType>ebs</rootDeviceType>
<ipAddress>198.51.100.7</ipAddress><hibernationOptions><configured>true</configured></hibernationOptions><capacityReservationId>cr-1</capacityReservationId>
<capacityReservationSpecification><capacityReservationPreference>open</capacityReservationPreference><capacityReservationTarget>
<capacityReservationId>cr-1</capacityReservationId></capacityReservationTarget></capacityReservationSpecification>
<tagSet><item><key>Name</key><value>täg &lt;1&gt;</value></item><item><key>empty</key><value/></item></tagSet>
<blockDeviceMapping><item><deviceName>/dev/sda1</deviceName><ebs><volumeId>vol-1</volumeId></ebs></item><item><deviceName>/dev/sdb</deviceName></item></blockDeviceMapping>
<networkInterfaceSet><item><networkInterfaceId>eni-1</networkInterfaceId><association><publicIp>198.51.100.7</publicIp><ipOwnerId>amazon</ipOwnerId></association>
<operator><managed>false</managed></operator></item></networkInterfaceSet><operator><managed>true</managed><principal>eks.amazonaws.com</principal></operator>
<platformDetails>Linux/UNIX</platformDetails></item><item><instanceId>i-bare</instanceId></item></instancesSet></item>"""


def page(*items: str, token: str = "") -> bytes:
    return f'<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><reservationSet>{"".join(items)}</reservationSet>{token}</DescribeInstancesResponse>'.encode()


def theirs(body: bytes) -> dict[str, Any]:
    return create_parser("ec2").parse({"body": body, "headers": {}, "status_code": 200}, MODEL.output_shape)


def only(value: Any, wanted: Any) -> Any:
    """What of botocore's answer is wanted."""
    if wanted is None:
        return value
    if isinstance(value, list):
        return [only(item, wanted) for item in value]
    return {key: only(value[key], below) for key, below in wanted.items() if key in value}


@pytest.mark.parametrize("body", [
    page(), page(RICH), page(RICH, entry(3), token="<nextToken>abc</nextToken>"), pages(40)[0], page("<item/>"), page("<item><instancesSet/></item>"),
    page("<item><instancesSet><item/></instancesSet></item>"), page("<item><new><instanceId>i-no</instanceId></new><instancesSet/></item>"),
], ids=range(8))  # fmt: skip
def test_it_says_what_botocore_says(body: bytes) -> None:
    assert read(body, _plan(MODEL)) == only(theirs(body), WANTED)


def test_an_instance_made_of_either_is_the_same() -> None:
    raw = theirs(page(RICH))["Reservations"][0]["Instances"][0]
    ours = read(page(RICH), _plan(MODEL))["Reservations"][0]["Instances"][0]

    made = [instances.parse_instance(one, account="1", region="eu-west-1", types={}, spot_types={"sir-1": "persistent"}) for one in (raw, ours)]

    assert made[0] == made[1]
    assert isinstance(made[1].launched_at, datetime)
    assert made[1].tags == {"Name": "täg <1>", "empty": ""}


class Watched(dict):  # type: ignore[type-arg]
    """A raw entry that tells which of its keys were asked for."""

    def __init__(self, asked: set[str]) -> None:
        super().__init__(InstanceId="i-0abc")
        self.asked = asked

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def test_everything_that_is_asked_of_an_entry_is_read() -> None:
    asked: set[str] = set()

    instances.parse_instance(Watched(asked), account="1", region="eu-west-1", types={})

    assert asked - WANTED["Reservations"]["Instances"].keys() == set()


@pytest.mark.parametrize("body", [b"", b"<DescribeInstancesResponse>", b"not xml", page("<item><instancesSet><item><launchTime>soon</launchTime></item></instancesSet></item>")])
def test_what_it_cannot_read_is_left_to_botocore(body: bytes) -> None:
    response, added = {"status_code": 200, "body": body}, {}

    read_listing(MODEL, response, added)

    assert response["body"] == body
    assert added == {}


def test_an_error_is_left_to_botocore_and_an_answer_is_taken() -> None:
    refused, taken, added = {"status_code": 503, "body": page(RICH)}, {"status_code": 200, "body": page(RICH)}, {}
    read_listing(MODEL, refused, {})
    read_listing(MODEL, taken, added)

    assert refused["body"] == page(RICH)
    assert taken["body"] == EMPTY
    assert added["Reservations"]


def test_a_page_that_is_cut_off_fails_its_region(make_cloud: Callable[..., AwsCloud], moto: MotoEc2, faults: Faults) -> None:
    faults.on("DescribeInstances", replies(page(RICH).decode()[:-200]), times=9)

    (listed,) = make_cloud("us-east-1").list()

    assert listed.instances == ()
    assert listed.failed is not None


def test_the_cut_model_has_our_operations_and_no_other_and_parses_the_same() -> None:
    whole = botocore.session.Session().get_component("data_loader").load_service_model("ec2", "service-2")
    cut = trimmed(json.dumps(whole).encode(), frozenset({"DescribeInstances", "StopInstances", "NoSuchThing"}))

    assert set(cut["operations"]) == {"DescribeInstances", "StopInstances"}
    assert len(cut["shapes"]) < len(whole["shapes"]) / 10
    assert all(cut["shapes"][name].items() <= whole["shapes"][name].items() for name in cut["shapes"])


def test_the_loader_cuts_once_and_hands_the_rest_through() -> None:
    inner = botocore.session.Session().get_component("data_loader")
    loader = TrimmedLoader(inner, frozenset({"DescribeInstances"}))

    first, second = loader.load_service_model("ec2", "service-2"), loader.load_service_model("ec2", "service-2")

    assert first is second
    assert set(first["operations"]) == {"DescribeInstances"}
    assert "GetCallerIdentity" in loader.load_service_model("sts", "service-2")["operations"]
    assert loader.determine_latest_version("ec2", "service-2") == inner.determine_latest_version("ec2", "service-2")
