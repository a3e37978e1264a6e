"""Several accounts by their roles, over moto's server, and what is not to be had in one of them."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ConnectionClosedError
from structlog.testing import capture_logs

from reaper.clouds.aws.cloud import AwsCloud
from reaper.clouds.aws.fanout import Fanout
from reaper.clouds.aws.roles import role_arns
from reaper.errors import CloudError, NotFound
from reaper.model.kinds.instance import InstanceState
from reaper.model.policy import AwsAccount
from reaper.ports import Listed
from tests.clouds.conftest import rid
from tests.clouds.test_aws_cloud import BOTH, ManualClock
from tests.fakes.faults import Faults, fails, refuse, replies
from tests.fakes.moto_ec2 import ACCOUNT, MotoEc2

Make = Callable[..., AwsCloud]

RESEARCH, EVALUATION = "111122223333", "444455556666"
THREE = (AwsAccount(ACCOUNT), AwsAccount(RESEARCH, role="idle-reaper"), AwsAccount(EVALUATION, role="idle-reaper"))
DENIED = refuse("UnauthorizedOperation", status=403)


def by_place(listed: tuple[Listed, ...]) -> dict[tuple[str, str], Listed]:
    return {(one.place.account, one.place.name): one for one in listed}


def names(one: Listed) -> list[str | None]:
    return sorted(instance.name or "" for instance in one.instances)


def test_every_account_is_listed_in_every_region(make_cloud: Make, moto: MotoEc2) -> None:
    for account in (ACCOUNT, RESEARCH, EVALUATION):
        for region in BOTH:
            moto.launch(f"{account}-{region}", region=region, account=account)

    listed = by_place(make_cloud(*BOTH, accounts=THREE).list())

    assert {place: names(one) for place, one in listed.items()} == {
        (account, region): [f"{account}-{region}"] for account in (ACCOUNT, RESEARCH, EVALUATION) for region in BOTH
    }
    assert all(instance.id.account == account for (account, _), one in listed.items() for instance in one.instances)


def test_a_machine_is_read_stopped_and_started_in_its_own_account(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    there = rid(moto.launch(account=RESEARCH), account=RESEARCH)
    cloud = make_cloud("us-east-1", accounts=THREE)

    protections = cloud.protections(there)
    cloud.stop(there)
    stopped = cloud.get(there).state
    cloud.start(there)

    assert protections.stop_protected is False
    assert stopped is InstanceState.STOPPED
    assert {account for account, _, operation in faults.asked if operation == "StopInstances"} == {RESEARCH}


def test_an_account_that_is_not_watched_is_not_asked(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    cloud = make_cloud("us-east-1", accounts=THREE)

    for call in (cloud.get, cloud.stop, cloud.start):
        with pytest.raises(NotFound, match="add it to clouds.aws.accounts"):
            call(rid("i-0abc", account="999999999999"))

    assert faults.asked == []


def test_the_role_is_assumed_once_and_its_clients_are_shared(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    cloud = make_cloud(*BOTH, accounts=THREE)

    cloud.list()
    cloud.list()

    assert faults.tries("AssumeRole") == 2  # once an account that has one
    assert {account: faults.asked.count((account, "us-east-1", "GetCallerIdentity")) for account in (ACCOUNT, RESEARCH, EVALUATION)} == {
        ACCOUNT: 1, RESEARCH: 1, EVALUATION: 1,
    }  # fmt: skip
    assert len(cloud.accounts[1].clients._made) == 3  # EC2 in two regions, and whose credentials these are


def test_credentials_of_a_role_are_renewed_before_they_run_out(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    cloud = make_cloud("us-east-1", accounts=(AwsAccount(RESEARCH, role="idle-reaper"),))
    soon = (datetime.now(UTC) + timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")  # less than botocore lets pass
    credentials = f"<Credentials><AccessKeyId>ASIAOLD</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>{soon}</Expiration></Credentials>"
    faults.on("AssumeRole", replies(f"<R><AssumeRoleResult>{credentials}</AssumeRoleResult></R>"))
    faults.on("GetCallerIdentity", replies(f"<R><GetCallerIdentityResult><Account>{RESEARCH}</Account></GetCallerIdentityResult></R>"))

    (listed,) = cloud.list()

    assert listed.failed is None
    assert faults.tries("AssumeRole") == 2


def test_external_id_and_session_name_are_sent_and_a_chain_is_climbed(make_cloud: Make, moto: MotoEc2) -> None:
    hub = "arn:aws:iam::999988887777:role/hub"
    moto.roles = {hub: None, f"arn:aws:iam::{RESEARCH}:role/ops/idle-reaper": "ml-7"}
    account = AwsAccount(RESEARCH, role="ops/idle-reaper", external_id="ml-7", session_name="reaper-eu", via=(hub,))
    native = moto.launch(account=RESEARCH)

    (good,) = make_cloud("us-east-1", accounts=(account,)).list()
    (refused,) = make_cloud("us-east-1", accounts=(replace(account, external_id="wrong"),)).list()

    assert [i.id.native for i in good.instances] == [native]
    assert "reach AWS account 111122223333 by the role ops/idle-reaper" in (refused.failed or "")
    assert "AccessDenied" in (refused.failed or "")


@pytest.mark.parametrize(
    ("account", "region", "expected"),
    [
        (AwsAccount(RESEARCH), "us-east-1", ()),
        (AwsAccount(RESEARCH, role="r"), "us-east-1", (f"arn:aws:iam::{RESEARCH}:role/r",)),
        (AwsAccount(RESEARCH, role="a/b/r"), "eu-west-1", (f"arn:aws:iam::{RESEARCH}:role/a/b/r",)),
        (AwsAccount(RESEARCH, role="r"), "cn-north-1", (f"arn:aws-cn:iam::{RESEARCH}:role/r",)),
        (AwsAccount(RESEARCH, role="r"), "us-gov-west-1", (f"arn:aws-us-gov:iam::{RESEARCH}:role/r",)),
        (AwsAccount(RESEARCH, role=f"arn:aws:iam::{RESEARCH}:role/x", via=("arn:1", "arn:2")), "us-east-1", ("arn:1", "arn:2", f"arn:aws:iam::{RESEARCH}:role/x")),
    ],
)
def test_what_is_assumed_in_which_order(account: AwsAccount, region: str, expected: tuple[str, ...]) -> None:
    assert role_arns(account, region) == expected


def test_an_account_whose_role_is_refused_hides_no_other(make_cloud: Make, moto: MotoEc2) -> None:
    moto.launch("mine", account=EVALUATION)
    moto.roles = {f"arn:aws:iam::{EVALUATION}:role/idle-reaper": None}

    listed = by_place(make_cloud("us-east-1", accounts=THREE).list())

    assert "AccessDenied" in (listed[(RESEARCH, "us-east-1")].failed or "")
    assert names(listed[(EVALUATION, "us-east-1")]) == ["mine"]
    assert listed[(ACCOUNT, "us-east-1")].failed is None


def test_an_account_that_was_never_seen_is_held_as_one_place_without_a_name(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    moto.roles = {}
    regions = "<R><regionInfo><item><regionName>us-east-1</regionName></item></regionInfo></R>"
    faults.on("DescribeRegions", replies(regions), times=9)

    listed = by_place(make_cloud(accounts=THREE).list())

    assert (RESEARCH, "?") in listed
    assert "AccessDenied" in (listed[(RESEARCH, "?")].failed or "")
    assert listed[(ACCOUNT, "us-east-1")].failed is None


def test_a_role_that_is_taken_away_later_fails_the_regions_it_had(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    moto.launch("mine", account=RESEARCH)
    cloud = make_cloud("us-east-1", accounts=THREE)
    cloud.list()
    faults.on("DescribeInstances", refuse("ExpiredToken"), account=RESEARCH, times=9)
    cloud.list()
    moto.roles = {f"arn:aws:iam::{EVALUATION}:role/idle-reaper": None}

    listed = by_place(cloud.list())

    assert listed[(RESEARCH, "us-east-1")].failed is not None
    assert listed[(EVALUATION, "us-east-1")].failed is None


def test_a_region_that_is_off_is_left_out_and_said_once(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    words = "".join(f"<item><regionName>{r}</regionName><optInStatus>{w}</optInStatus></item>" for r, w in (("us-east-1", "opt-in-not-required"), ("me-south-1", "not-opted-in")))
    faults.on("DescribeRegions", replies(f"<R><regionInfo>{words}</regionInfo></R>"), times=9)
    faults.on("DescribeInstances", refuse("AuthFailure", status=401), region="me-south-1", times=9)
    cloud = make_cloud("me-south-1", "us-east-1")

    with capture_logs() as logged:
        first, second = by_place(cloud.list()), by_place(cloud.list())

    for listed in (first, second):
        off = listed[(ACCOUNT, "me-south-1")]
        assert off.failed is None
        assert "not switched this region on" in (off.skipped or "")
        assert listed[(ACCOUNT, "us-east-1")].failed is None
    assert [line["event"] for line in logged] == ["region left out"]


def test_refused_keys_in_a_region_that_is_on_are_a_failure(make_cloud: Make, faults: Faults) -> None:
    faults.on("DescribeInstances", refuse("AuthFailure", status=401), region="eu-central-1")

    listed = by_place(make_cloud(*BOTH).list())

    assert listed[(ACCOUNT, "eu-central-1")].skipped is None
    assert "AuthFailure" in (listed[(ACCOUNT, "eu-central-1")].failed or "")


def test_a_region_that_policy_denies_is_left_out_where_others_answer(make_cloud: Make, faults: Faults) -> None:
    faults.on("DescribeInstances", DENIED, region="eu-central-1", times=9)

    listed = by_place(make_cloud(*BOTH).list())

    assert listed[(ACCOUNT, "us-east-1")].failed is None
    assert listed[(ACCOUNT, "eu-central-1")].failed is None
    assert "policy denies this region" in (listed[(ACCOUNT, "eu-central-1")].skipped or "")


def test_what_is_denied_everywhere_is_a_missing_permission_and_fails(make_cloud: Make, faults: Faults) -> None:
    faults.on("DescribeInstances", DENIED, times=9)

    assert all("UnauthorizedOperation" in (one.failed or "") for one in make_cloud(*BOTH).list())


def test_another_account_that_answers_does_not_excuse_one_that_is_denied(make_cloud: Make, faults: Faults) -> None:
    faults.on("DescribeInstances", DENIED, account=RESEARCH, times=9)

    listed = by_place(make_cloud("us-east-1", accounts=THREE).list())

    assert "UnauthorizedOperation" in (listed[(RESEARCH, "us-east-1")].failed or "")


def test_a_region_that_answered_before_is_never_left_out(make_cloud: Make, faults: Faults) -> None:
    cloud = make_cloud(*BOTH)
    cloud.list()
    faults.on("DescribeInstances", DENIED, region="eu-central-1", times=9)

    listed = by_place(cloud.list())

    assert "UnauthorizedOperation" in (listed[(ACCOUNT, "eu-central-1")].failed or "")


def test_a_place_that_throttles_to_the_end_is_left_alone_for_longer_each_time(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    clock = ManualClock()
    faults.on("DescribeInstances", refuse("RequestLimitExceeded", status=503), region="us-east-1", times=99)
    cloud = make_cloud(*BOTH, clock=clock)
    asked, told = [], []
    for _ in range(8):
        before = faults.tries("DescribeInstances", "us-east-1")
        told.append(by_place(cloud.list()))
        asked.append(faults.tries("DescribeInstances", "us-east-1") > before)
        clock.at += 60

    assert asked == [True, True, False, True, False, False, False, True]
    assert all(one[(ACCOUNT, "us-east-1")].failed for one in told)
    assert all(one[(ACCOUNT, "eu-central-1")].failed is None for one in told)


def test_places_that_hang_do_not_keep_the_good_ones_waiting() -> None:
    released = threading.Event()
    hanging = {f"bad-{n}": (lambda: str(released.wait(20))) for n in range(3)}
    fanout: Fanout[str, str] = Fanout("test-fanout", at_once=3, doubtful_at_once=1)

    fanout.ask(hanging, within=0.1)  # nobody knows yet that they hang: all of the lane is theirs
    stuck = fanout.ask({**hanging, "good": lambda: "seen"}, within=0.1)
    released.set()
    settled = fanout.ask({"good": lambda: "seen"}, within=5)
    released.clear()
    after = fanout.ask({**hanging, "better": lambda: "seen"}, within=0.5)  # in a lane of their own now
    released.set()

    assert stuck["bad-0"] is None  # its first question is still out
    assert stuck["good"] is not None
    assert settled["good"] is None or settled["good"].done()
    assert after["better"] is not None
    assert after["better"].result(0) == "seen"


def test_no_more_questions_are_out_at_once_than_allowed() -> None:
    lock, now, most = threading.Lock(), 0, 0
    gate = threading.Barrier(3)

    def question() -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        gate.wait(5)
        with lock:
            now -= 1
        return 1

    answers = Fanout[int, int]("test-fanout", at_once=3).ask(dict.fromkeys(range(9), question), within=10)

    assert [future.result() for future in answers.values() if future is not None] == [1] * 9
    assert most == 3


def test_a_reset_connection_fails_its_account_and_region_only(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    moto.launch("mine", account=EVALUATION)
    faults.on("DescribeInstances", fails(lambda url: ConnectionClosedError(endpoint_url=url)), account=RESEARCH, times=99)

    listed = by_place(make_cloud("us-east-1", accounts=THREE).list())

    assert "did not answer" in (listed[(RESEARCH, "us-east-1")].failed or "")
    assert names(listed[(EVALUATION, "us-east-1")]) == ["mine"]


def test_credentials_that_are_swapped_under_us_are_noticed(make_cloud: Make, faults: Faults) -> None:
    cloud = make_cloud("us-east-1", accounts=THREE)
    faults.on("DescribeInstances", replies("<R><reservationSet><item><ownerId>999999999999</ownerId></item></reservationSet></R>"), account=RESEARCH)

    listed = by_place(cloud.list())

    assert "EC2 answers for AWS account 999999999999" in (listed[(RESEARCH, "us-east-1")].failed or "")


def test_get_in_an_account_that_cannot_be_reached_raises_ours(make_cloud: Make, moto: MotoEc2) -> None:
    moto.roles = {}

    with pytest.raises(CloudError, match="reach AWS account"):
        make_cloud("us-east-1", accounts=THREE).get(rid("i-0abc", account=RESEARCH))
