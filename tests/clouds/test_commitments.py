"""What is paid for either way: told where it may be read, never a reason by itself, and never in the way of anything."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from reaper.clouds.aws.cloud import AwsCloud
from tests.clouds.conftest import rid
from tests.fakes.clock import ManualClock
from tests.fakes.faults import Faults, refuse, refuse_json, replies
from tests.fakes.moto_ec2 import MotoEc2

Make = Callable[..., AwsCloud]


def reserved(type_: str = "g5.xlarge", count: int = 2, zone: str = "") -> str:
    return (
        f"<item><reservedInstancesId>r</reservedInstancesId><instanceType>{type_}</instanceType><instanceCount>{count}</instanceCount>"
        f"<availabilityZone>{zone}</availabilityZone><state>active</state></item>"
    )


def answer_reserved(faults: Faults, *items: str) -> None:
    faults.on("DescribeReservedInstances", replies(f"<R><reservedInstancesSet>{''.join(items)}</reservedInstancesSet></R>"), times=9)


def plan(kind: str = "Compute", id: str = "sp-1", **more: str) -> dict[str, str]:
    return {
        "savingsPlanId": id, "savingsPlanType": kind, "commitment": "12.5", "currency": "USD", "state": "active", "end": "2027-05-01T00:00:00.000Z", **more,
    }  # fmt: skip


def answer_plans(faults: Faults, *plans: dict[str, str], more: str | None = None, times: int = 9) -> None:
    body = {"savingsPlans": list(plans)} | ({"nextToken": more} if more is not None else {})
    faults.on("DescribeSavingsPlans", replies(json.dumps(body), **{"content-type": "application/json"}), times=times)


def test_a_reserved_type_is_told_and_asked_for_once(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    answer_reserved(faults, reserved())
    cloud = make_cloud("us-east-1", price_list=True)

    covered, not_covered = cloud.protections(rid(moto.launch())).covered, cloud.protections(rid(moto.launch(type="p3.2xlarge"))).covered

    assert "2 reserved g5.xlarge are paid for" in (covered or "")
    assert not_covered is None
    assert faults.tries("DescribeReservedInstances") == 1


@pytest.mark.parametrize(("zone", "told"), [("us-east-1a", True), ("us-east-1b", False), ("", True)])
def test_one_that_is_bound_to_a_zone_counts_there_only(make_cloud: Make, moto: MotoEc2, faults: Faults, zone: str, told: bool) -> None:
    answer_reserved(faults, reserved(zone=zone))
    machine = rid(moto.launch(more={"Placement": {"AvailabilityZone": "us-east-1a"}}))

    assert (make_cloud("us-east-1", price_list=True).protections(machine).covered is not None) is told


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (plan(), True),
        (plan("EC2Instance", ec2InstanceFamily="g5", region="us-east-1"), True),
        (plan("EC2Instance", ec2InstanceFamily="g5", region="eu-west-1"), False),
        (plan("EC2Instance", ec2InstanceFamily="p4d", region="us-east-1"), False),
        (plan("SageMaker"), False),
        (plan("Database"), False),
    ],
    ids=lambda value: str(value)[:60],
)
def test_an_active_savings_plan_that_may_cover_it_is_told_with_its_amount(
    make_cloud: Make, moto: MotoEc2, faults: Faults, found: dict[str, str], told: bool
) -> None:
    answer_plans(faults, found)

    got = make_cloud("us-east-1", price_list=True).protections(rid(moto.launch())).committed

    assert (got is not None) is told
    if told:
        assert "Savings Plan sp-1" in got
        assert "commits the account to 12.5 USD an hour until 2027-05-01" in got


def test_plans_are_asked_for_once_an_hour_in_their_own_region_and_every_page_of_them(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    answer_plans(faults, plan(), more="2", times=1)
    answer_plans(faults, plan(id="sp-2"))
    clock = ManualClock()
    cloud = make_cloud("eu-west-1", price_list=True, clock=clock)
    machine = rid(moto.launch(region="eu-west-1"), "eu-west-1")

    first = cloud.protections(machine).committed
    again = cloud.protections(machine).committed
    asked = faults.tries("DescribeSavingsPlans")
    clock.advance(timedelta(hours=1))
    cloud.protections(machine)

    assert "sp-1" in (first or "")
    assert "sp-2" in (first or "")
    assert again == first
    assert asked == 2
    assert faults.tries("DescribeSavingsPlans", "us-east-1") == faults.tries("DescribeSavingsPlans") == 3


@pytest.mark.parametrize("operation", ["DescribeSavingsPlans", "DescribeReservedInstances"])
@pytest.mark.parametrize("code", ["AccessDeniedException", "UnauthorizedOperation", "ThrottlingException", "InternalServerException"])
def test_one_that_cannot_be_read_is_not_known_said_once_and_in_nobodys_way(
    make_cloud: Make, moto: MotoEc2, faults: Faults, operation: str, code: str
) -> None:
    says = refuse if operation == "DescribeReservedInstances" else refuse_json
    faults.on(operation, says(code, status=500 if code.startswith("Internal") else 400), times=9)
    cloud = make_cloud("us-east-1", price_list=True)

    with capture_logs() as said:
        several = [cloud.protections(rid(moto.launch())) for _ in range(3)]

    assert {(one.stop_protected, one.covered, one.committed) for one in several} == {(False, None, None)}
    assert faults.tries(operation) == 1
    assert len([line for line in said if line["event"] == "commitments not readable" and operation in _asked(line["what"])]) == 1


def _asked(what: str) -> str:
    return "DescribeSavingsPlans" if what == "Savings Plans" else "DescribeReservedInstances"


def test_nothing_about_money_is_asked_where_the_operator_switched_it_off(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    make_cloud("us-east-1", price_list=False).protections(rid(moto.launch()))

    assert faults.tries("DescribeSavingsPlans") == faults.tries("DescribeReservedInstances") == 0


def test_a_list_of_plans_without_an_end_is_given_up_and_read_as_not_known(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    answer_plans(faults, plan(), more="again", times=500)
    cloud = make_cloud("us-east-1", price_list=True)

    assert cloud.protections(rid(moto.launch())).committed is None
    assert faults.tries("DescribeSavingsPlans") <= 20
