"""What machines cost: by the list where it may be asked, by the file where not, and not known otherwise."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reaper.clouds.aws.cloud import AwsCloud
from reaper.clouds.aws.prices import dearest
from reaper.decide.budget import price_of
from reaper.model.policy import AwsAccount, environment_of, owner_of, project_of
from tests.builders import instance
from tests.clouds.test_aws_cloud import ManualClock
from tests.fakes.faults import Faults, refuse, replies
from tests.fakes.moto_ec2 import MotoEc2

Make = Callable[..., AwsCloud]


def offer(usd: str = "1.006", unit: str = "Hrs", currency: str = "USD") -> str:
    return json.dumps({"terms": {"OnDemand": {"t": {"priceDimensions": {"d": {"unit": unit, "pricePerUnit": {currency: usd}}}}}}})


def answering(*offers: str) -> Any:
    return replies(json.dumps({"FormatVersion": "aws_v1", "PriceList": list(offers)}))


def settled(cloud: AwsCloud) -> dict[str, float | None]:
    """The prices told after what one listing asked for has come."""
    cloud.list()
    for thread in threading.enumerate():
        if thread.name.startswith("aws-list"):
            thread.join(5)
    return {i.name or "": i.hourly_usd for one in cloud.list() for i in one.instances}


def test_a_listed_price_is_told_from_the_next_listing_on_and_asked_once(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    for n in range(3):
        moto.launch(f"m{n}")
    faults.on("GetProducts", answering(offer("1.006")), times=9)
    cloud = make_cloud("us-east-1", price_list=True)

    assert settled(cloud) == {"m0": 1.006, "m1": 1.006, "m2": 1.006}
    assert settled(cloud)["m0"] == 1.006
    assert faults.tries("GetProducts") == 1


def test_a_spot_machine_has_no_list_price(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    moto.launch("plain")
    moto.launch("spot", spot="one-time")
    faults.on("GetProducts", answering(offer()), times=9)

    assert settled(make_cloud("us-east-1", price_list=True)) == {"plain": 1.006, "spot": None}


def test_a_refusal_leaves_prices_unknown_and_is_not_asked_again_for_an_hour(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    moto.launch("m")
    clock = ManualClock()
    faults.on("GetProducts", refuse("AccessDeniedException"), times=99)
    cloud = make_cloud("us-east-1", price_list=True, clock=clock)

    unknown = settled(cloud)
    settled(cloud)
    within_the_hour = faults.tries("GetProducts")
    clock.at += 3700
    settled(cloud)

    assert unknown == {"m": None}
    assert within_the_hour == 1
    assert faults.tries("GetProducts") == 2


def test_the_file_serves_where_the_list_may_not_be_asked_and_keeps_what_was_learned(
    make_cloud: Make, moto: MotoEc2, faults: Faults, tmp_path: Path
) -> None:
    moto.launch("m")
    moto.launch("big", type="p3.2xlarge")
    file = tmp_path / "prices.json"
    file.write_text('{"us-east-1": {"g5.xlarge": 0.9, "free": 0}, "eu-west-1": {}}')
    faults.on("GetProducts", answering(offer("3.06")), times=9)

    without = settled(make_cloud("us-east-1", price_file=str(file)))
    settled(make_cloud("us-east-1", price_file=str(file), price_list=True))

    assert without == {"m": 0.9, "big": None}
    assert json.loads(file.read_text())["us-east-1"] == {"g5.xlarge": 3.06, "p3.2xlarge": 3.06}


@pytest.mark.parametrize("content", ["", "[]", '{"us-east-1": 3}', '{"us-east-1": {"g5.xlarge": "dear"}}', "\x00"])
def test_a_file_that_is_none_holds_no_price(make_cloud: Make, moto: MotoEc2, tmp_path: Path, content: str) -> None:
    moto.launch("m")
    file = tmp_path / "prices.json"
    file.write_text(content)

    assert settled(make_cloud("us-east-1", price_file=str(file))) == {"m": None}


@pytest.mark.parametrize(
    ("offers", "price"),
    [
        ((), None),
        ((offer("1.5"),), 1.5),
        ((offer("1.5"), offer("2.5")), 2.5),
        ((offer("0.0000000000"),), None),
        ((offer("1.5", unit="Quantity"),), None),
        ((offer("1.5", currency="CNY"),), None),
        ((offer("nan"), offer("-1"), offer("inf")), None),
        (("not json", "3", "[]", "null", '{"terms": 3}', '{"terms": {"OnDemand": {"t": 3}}}', offer("1.5")), 1.5),
    ],
)
def test_only_dollars_an_hour_are_a_price_and_the_dearest_counts(offers: tuple[str, ...], price: float | None) -> None:
    assert dearest(offers) == price


def test_the_operators_price_comes_first_and_unknown_is_no_zero() -> None:
    assert price_of("g5.xlarge", {"g5.xlarge": 0.4}, 1.006) == 0.4
    assert price_of("g5.xlarge", {"g5.2xlarge": 0.4}, 1.006) == 1.006
    assert price_of("g5.xlarge", {"g5.2xlarge": 0.4}, None) == 0.4
    assert price_of("g5.xlarge", {}, None) is None


def test_what_an_account_says_stands_in_for_tags(make_cloud: Make, moto: MotoEc2) -> None:
    moto.launch("m")
    (listed,) = make_cloud("us-east-1", accounts=(AwsAccount("123456789012", owner="eva", environment="lab"),)).list()

    assert [i.given for i in listed.instances] == [{"owner": "eva", "environment": "lab"}]


@pytest.mark.parametrize(
    ("tags", "given", "owner"),
    [
        ({"OWNER": "ada"}, {"owner": "eva"}, "ada"),
        ({"Owner": " "}, {"owner": "eva"}, "eva"),
        ({}, None, None),
        ({"aws:createdBy": "IAMUser:AIDAX:ada"}, {"owner": "eva"}, "eva"),
        ({"aws:createdBy": "IAMUser:AIDAX:ada"}, None, "ada"),
        ({"aws:createdBy": "AssumedRole:AROAX:ada@example.org"}, {}, "ada@example.org"),
        ({"aws:createdBy": "Root:123456789012"}, None, None),
        ({"Creator": "ada"}, None, "ada"),
        ({"aws:createdBy": "Root:123456789012", "created-by": "ada"}, None, "ada"),
    ],
)
def test_whose_a_machine_is(tags: dict[str, str], given: dict[str, str] | None, owner: str | None) -> None:
    assert owner_of(instance(tags=tags, given=given), ("tag:owner",)) == owner


def test_project_and_environment_come_from_tags_in_any_case_and_then_from_the_account() -> None:
    machine = instance(tags={"Project": "llm", "ENV": "prod"}, given={"project": "eval"})

    assert project_of(machine, ("tag:cost-centre", "tag:project")) == "llm"
    assert project_of(machine, ("tag:cost-centre",)) == "eval"
    assert environment_of(machine, ("tag:environment", "tag:env")) == "prod"
    assert environment_of(instance(), ("tag:env",)) is None
