"""The real boto3 client against a strict moto over HTTP, with what goes wrong in the field."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from reaper.clouds.aws.clients import Bounds
from reaper.clouds.aws.cloud import AwsCloud
from reaper.errors import (
    AnswerLost,
    CloudError,
    Denied,
    NoCapacity,
    NotFound,
    Throttled,
    Unreachable,
    Unsupported,
    WrongState,
)
from reaper.model.kinds.instance import InstanceState, Lifecycle
from tests.clouds.conftest import FAST, rid
from tests.fakes.faults import Faults, carried_out_then, fails, refuse, replies
from tests.fakes.moto_ec2 import ACCOUNT, MotoEc2

Make = Callable[..., AwsCloud]
BOTH = ("us-east-1", "eu-central-1")


class ManualClock:
    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=self.at)

    def monotonic(self) -> float:
        return self.at


@contextmanager
def listener(*, close_after_request: bool) -> Iterator[str]:
    """A server that takes a request and answers nothing: it closes, or stays silent until the end."""
    sock = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                peer, _ = sock.accept()
            except OSError:
                return
            taken.append(peer)
            if close_after_request:
                peer.recv(65536)
                peer.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        sock.shutdown(socket.SHUT_RDWR)
        sock.close()
        for peer in taken:
            peer.close()
        thread.join()


def lost(url: str) -> Exception:
    return ReadTimeoutError(endpoint_url=url)


def test_everything_on_later_pages_is_listed(make_cloud: Make, moto: MotoEc2) -> None:
    launched = sorted(moto.launch(f"m{n}") for n in range(7))

    (listed,) = make_cloud("us-east-1", page_size=5).list()

    assert sorted(i.id.native for i in listed.instances) == launched
    assert moto.actions().count("DescribeInstances") == 2


def test_a_page_that_fails_fails_its_region(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    for n in range(6):
        moto.launch(f"m{n}")
    empty_then_more = "<DescribeInstancesResponse><reservationSet/><nextToken>r-none</nextToken></DescribeInstancesResponse>"
    faults.on("DescribeInstances", replies(empty_then_more))
    faults.on("DescribeInstances", refuse("InvalidParameterValue"))

    (listed,) = make_cloud("us-east-1", page_size=5).list()

    assert listed.instances == ()
    assert "InvalidParameterValue" in (listed.failed or "")


def test_an_empty_page_with_more_behind_it_is_not_the_end(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    first, second = moto.launch("first"), moto.launch("second")
    token = moto.backend().describe_instances()[0].id
    faults.on("DescribeInstances", replies(f"<R><reservationSet/><nextToken>{token}</nextToken></R>"))

    (listed,) = make_cloud("us-east-1").list()

    assert [i.id.native for i in listed.instances] == [second]
    assert first != second
    assert faults.tries("DescribeInstances") == 2


def test_no_filter_is_sent_that_could_hide_a_machine(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    bodies: list[str] = []

    def look(request: object, **_: object) -> None:
        bodies.append(str(getattr(request, "body", "")))

    def session() -> boto3.session.Session:
        made = moto.session()
        made.events.register("before-send.ec2.DescribeInstances", look)
        return made

    make_cloud("us-east-1", session=session).list()

    assert len(bodies) == 1
    assert "Filter" not in bodies[0]
    assert "MaxResults=1000" in bodies[0]
    assert "IncludeManagedResources=true" in bodies[0]


def test_the_accounts_switched_on_regions_are_listed_when_none_is_named(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    regions = "".join(
        f"<item><regionName>{name}</regionName><optInStatus>{word}</optInStatus></item>"
        for name, word in [
            ("us-east-1", "opt-in-not-required"),
            ("af-south-1", "opted-in"),
            ("me-south-1", "not-opted-in"),
            ("eu-west-1", "a-new-word"),
        ]
    )
    faults.on("DescribeRegions", replies(f"<R><regionInfo>{regions}</regionInfo></R>"))
    cloud = make_cloud()

    listed = cloud.list()
    again = cloud.list()

    assert [one.place.name for one in listed if one.skipped is None] == ["af-south-1", "eu-west-1", "us-east-1"]
    assert {one.place.name: one.skipped for one in listed if one.skipped} == {
        "me-south-1": f"aws:{ACCOUNT}:me-south-1: the account has not switched this region on"
    }
    assert [one.place for one in again] == [one.place for one in listed]
    assert faults.tries("DescribeRegions") == 1


def test_regions_that_cannot_be_asked_for_are_an_error_at_first_and_remembered_later(make_cloud: Make, faults: Faults) -> None:
    clock = ManualClock()
    cloud = make_cloud(clock=clock)
    faults.on("DescribeRegions", refuse("UnauthorizedOperation", status=403))

    with pytest.raises(Denied, match="regions: UnauthorizedOperation"):
        cloud.list()
    faults.on("DescribeRegions", replies("<R><regionInfo><item><regionName>us-west-2</regionName></item></regionInfo></R>"))
    first = cloud.list()
    clock.at += 7200
    faults.on("DescribeRegions", refuse("UnauthorizedOperation", status=403))
    later = cloud.list()

    assert [one.place.name for one in first] == ["us-west-2"]
    assert [one.place for one in later] == [one.place for one in first]
    assert faults.tries("DescribeRegions") == 3


def test_a_throttled_read_is_retried(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    native = moto.launch()
    faults.on("DescribeInstances", refuse("RequestLimitExceeded", status=503))

    (listed,) = make_cloud("us-east-1").list()

    assert [i.id.native for i in listed.instances] == [native]
    assert faults.tries("DescribeInstances") == 2


def test_a_region_throttled_to_the_end_is_failed_and_not_empty(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    moto.launch(region="us-east-1")
    kept = moto.launch(region="eu-central-1")
    faults.on("DescribeInstances", refuse("RequestLimitExceeded", status=503), times=99, region="us-east-1")

    failed, good = make_cloud(*BOTH).list()

    assert failed.place.name == "us-east-1"
    assert failed.instances == ()
    assert "RequestLimitExceeded" in (failed.failed or "")
    assert [i.id.native for i in good.instances] == [kept]
    assert faults.tries("DescribeInstances", "us-east-1") == FAST.read_attempts


def test_auth_failure_in_one_region_says_it_may_not_be_switched_on(make_cloud: Make, faults: Faults) -> None:
    faults.on("DescribeInstances", refuse("AuthFailure", status=401), region="eu-central-1")

    good, failed = make_cloud(*BOTH).list()

    assert good.failed is None
    assert "switch this region on for the account or leave it out of clouds.aws.regions" in (failed.failed or "")


def test_a_region_that_hangs_is_given_up_and_not_asked_twice_at_once(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    kept = moto.launch(region="eu-central-1")
    released = threading.Event()

    def hang(url: str) -> Exception:
        released.wait(20)
        return ConnectionClosedError(endpoint_url=url)

    faults.on("DescribeInstances", fails(hang), region="us-east-1")
    cloud = make_cloud(*BOTH, list_within=4)

    first = cloud.list()
    second = cloud.list()
    asked = faults.tries("DescribeInstances", "us-east-1")
    released.set()
    for thread in threading.enumerate():
        if thread.name.startswith("aws-list"):
            thread.join()

    for failed, good in (first, second):
        assert "no complete answer within 4 s" in (failed.failed or "")
        assert [i.id.native for i in good.instances] == [kept]
    assert asked == 1


def test_credentials_of_another_account_than_configured_are_refused_before_anything_is_read(make_cloud: Make, moto: MotoEc2) -> None:
    (listed,) = make_cloud("us-east-1", account="999999999999").list()

    assert str(listed.place) == "aws:999999999999:us-east-1"
    assert f"belong to AWS account {ACCOUNT}, and the configuration names 999999999999" in (listed.failed or "")
    assert moto.actions() == ["GetCallerIdentity"]


def test_the_account_is_asked_once(make_cloud: Make, moto: MotoEc2) -> None:
    cloud = make_cloud("us-east-1", account=ACCOUNT)

    cloud.list()
    cloud.list()

    assert moto.actions().count("GetCallerIdentity") == 1


def test_a_listing_that_answers_for_another_account_is_failed(make_cloud: Make, faults: Faults) -> None:
    faults.on("DescribeInstances", replies("<R><reservationSet><item><ownerId>999999999999</ownerId></item></reservationSet></R>"))

    (listed,) = make_cloud("us-east-1").list()

    assert (listed.failed or "").startswith(f"{listed.place}: EC2 answers for AWS account 999999999999")


def test_no_credentials_is_denied_with_a_remedy(moto: MotoEc2, make_cloud: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(key, raising=False)
    for key in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(key, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(Denied, match="no usable AWS credentials.*renew the credentials"):
        make_cloud("us-east-1", session=boto3.session.Session).list()


def test_expired_credentials_are_looked_for_anew(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    opened: list[boto3.session.Session] = []

    def session() -> boto3.session.Session:
        opened.append(faults.install(moto.session()))
        return opened[-1]

    cloud = make_cloud("us-east-1", session=session)
    faults.on("DescribeInstances", refuse("ExpiredToken"))

    (failed,) = cloud.list()
    (good,) = cloud.list()

    assert "renew the credentials" in (failed.failed or "")
    assert good.failed is None
    assert len(opened) == 2


def test_nobody_at_the_endpoint_is_unreachable(make_cloud: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    with pytest.raises(Unreachable, match=r"no connection to AWS .* check the network"):
        make_cloud("us-east-1", endpoint=f"http://127.0.0.1:{port}").list()


def test_an_endpoint_that_is_no_address_is_told(make_cloud: Make) -> None:
    with pytest.raises(CloudError, match="check clouds.aws"):
        make_cloud("us-east-1", endpoint="not an address").list()


@pytest.mark.parametrize(
    "resource",
    [
        rid("i-0abc", account="999999999999"),
        rid("i-0abc", region="ap-south-1"),
        rid("i-0abc", region="evil.example.org"),
        rid("no-such-thing"),
    ],
    ids=["another account", "a region that is not listed", "a region that is none", "a malformed id"],
)
@pytest.mark.parametrize("call", ["get", "stop", "start"])
def test_an_id_that_is_not_ours_is_not_found(cloud: AwsCloud, moto: MotoEc2, resource: object, call: str) -> None:
    with pytest.raises(NotFound, match="i-0abc|no-such-thing"):
        getattr(cloud, call)(resource)

    assert not any(region == "ap-south-1" for region, _ in moto.calls)


def test_an_answer_without_the_machine_is_not_found(cloud: AwsCloud, faults: Faults) -> None:
    faults.on("DescribeInstances", replies("<R><reservationSet/></R>"))

    with pytest.raises(NotFound, match="does not hold it"):
        cloud.get(rid("i-0abc"))


def test_types_are_asked_once_and_learned_for_good(make_cloud: Make, moto: MotoEc2) -> None:
    natives = [moto.launch(type=kind) for kind in ("p5.48xlarge", "t3.micro", "trn1.2xlarge")]
    cloud = make_cloud("us-east-1")

    (listed,) = cloud.list()
    cloud.get(rid(natives[0]))
    cloud.list()

    assert {i.type: (i.gpus, i.gpu_model, i.local_store) for i in listed.instances} == {
        "p5.48xlarge": (8, "H100", True),
        "t3.micro": (0, None, False),
        "trn1.2xlarge": (0, None, True),
    }
    assert moto.actions().count("DescribeInstanceTypes") == 1


def test_types_that_cannot_be_read_are_not_known_and_asked_again(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    native = moto.launch()
    cloud = make_cloud("us-east-1")
    faults.on("DescribeInstanceTypes", refuse("UnauthorizedOperation", status=403))

    (blind,) = cloud.list()
    seeing = cloud.get(rid(native))

    assert blind.failed is None
    assert [(i.gpus, i.gpu_model, i.local_store) for i in blind.instances] == [(None, None, None)]
    assert seeing.gpus == 1


def test_a_type_that_aws_does_not_describe_spoils_no_other(make_cloud: Make, moto: MotoEc2) -> None:
    known, retired = moto.launch("known"), moto.launch("retired")
    moto.machine(retired).instance_type = "cg1.4xlarge"

    (listed,) = make_cloud("us-east-1").list()

    assert {i.id.native: i.gpus for i in listed.instances} == {known: 1, retired: None}


def test_stop_is_told_as_stopping_and_then_as_stopped_by_a_person(cloud: AwsCloud, moto: MotoEc2) -> None:
    moto.stopping_reads = 1
    resource = rid(moto.launch())

    cloud.stop(resource)
    states = [cloud.get(resource).state for _ in range(2)]
    stopped = cloud.get(resource)

    assert states == [InstanceState.STOPPING, InstanceState.STOPPED]
    assert stopped.state_reason == "Client.UserInitiatedShutdown"
    assert stopped.changed_at is not None


def test_a_start_while_it_still_stops_is_the_wrong_state(cloud: AwsCloud, moto: MotoEc2) -> None:
    moto.stopping_reads = 5
    resource = rid(moto.launch())
    cloud.stop(resource)

    with pytest.raises(WrongState, match=str(resource)):
        cloud.start(resource)


def test_start_resets_the_launch_time(cloud: AwsCloud, moto: MotoEc2) -> None:
    resource = rid(moto.launch())
    moto.machine(resource.native).launch_time = long_ago = datetime(2025, 1, 1, tzinfo=UTC)

    before = cloud.get(resource).launched_at
    cloud.stop(resource)
    cloud.start(resource)
    after = cloud.get(resource).launched_at

    assert before == long_ago
    assert after is not None
    assert after > long_ago


def test_a_one_time_spot_machine_cannot_be_stopped_and_is_not_ended_instead(cloud: AwsCloud, moto: MotoEc2) -> None:
    once, kept = rid(moto.launch(spot="one-time")), rid(moto.launch(spot="persistent"))

    with pytest.raises(Unsupported, match=str(once)):
        cloud.stop(once)
    cloud.stop(kept)

    assert moto.mutations() == ["StopInstances", "StopInstances"]
    assert cloud.get(once).state is InstanceState.RUNNING
    assert cloud.get(once).lifecycle is Lifecycle.SPOT
    assert cloud.get(kept).state is InstanceState.STOPPED


def test_an_instance_store_machine_cannot_be_stopped(cloud: AwsCloud, moto: MotoEc2) -> None:
    resource = rid(moto.launch(type="t3.micro"))
    moto.machine(resource.native).root_device_type = "instance-store"

    with pytest.raises(Unsupported):
        cloud.stop(resource)
    assert cloud.get(resource).local_store is True


def test_a_terminated_machine_is_in_the_wrong_state(cloud: AwsCloud, moto: MotoEc2) -> None:
    resource = rid(moto.launch())
    moto.do("terminate_instances", InstanceIds=[resource.native])

    for verb in (cloud.stop, cloud.start):
        with pytest.raises(WrongState, match=str(resource)):
            verb(resource)
    assert cloud.get(resource).state is InstanceState.TERMINATED


def test_a_protection_is_never_switched_off(cloud: AwsCloud, moto: MotoEc2) -> None:
    resource = rid(moto.launch())
    moto.do("modify_instance_attribute", InstanceId=resource.native, DisableApiStop={"Value": True})

    with pytest.raises(CloudError):
        cloud.stop(resource)

    assert moto.mutations() == ["StopInstances"]
    assert cloud.protections(resource).stop_protected is True


@pytest.mark.parametrize("body", ["<R/>", "<R><disableApiStop/></R>"])
def test_a_protection_that_the_answer_leaves_out_is_not_known(cloud: AwsCloud, moto: MotoEc2, faults: Faults, body: str) -> None:
    resource = rid(moto.launch())
    faults.on("DescribeInstanceAttribute", replies(body))

    answer = cloud.protections(resource)

    assert answer.stop_protected is None
    assert "does not say" in (answer.because or "")


def test_protections_never_raise(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    faults.on("GetCallerIdentity", refuse("InvalidClientTokenId", status=403))

    answer = make_cloud("us-east-1").protections(rid("i-0abc"))

    assert answer.stop_protected is None
    assert "InvalidClientTokenId" in (answer.because or "")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("RequestLimitExceeded", 503, Throttled),
        ("UnauthorizedOperation", 403, Denied),
        ("InsufficientInstanceCapacity", 500, NoCapacity),
        ("InternalError", 500, AnswerLost),
    ],
)
@pytest.mark.parametrize("verb", ["stop", "start"])
def test_a_verb_is_sent_exactly_once_however_it_is_refused(
    cloud: AwsCloud, moto: MotoEc2, faults: Faults, verb: str, code: str, status: int, kind: type[CloudError]
) -> None:
    resource = rid(moto.launch())
    operation = f"{verb.capitalize()}Instances"
    faults.on(operation, refuse(code, status=status), times=99)

    with pytest.raises(kind, match=str(resource)) as caught:
        getattr(cloud, verb)(resource)

    assert type(caught.value) is kind
    assert faults.tries(operation) == 1
    assert moto.mutations() == []


@pytest.mark.parametrize(
    "end",
    [fails(lost), fails(lambda url: ConnectionClosedError(endpoint_url=url)), replies("<Stop"), refuse("Unavailable", status=503), replies("<R/>")],
    ids=["time-out", "reset", "cut off", "server error", "an answer about nothing"],
)
def test_a_stop_that_was_carried_out_and_never_answered_is_seen_by_the_next_read(
    cloud: AwsCloud, moto: MotoEc2, faults: Faults, end: Callable[..., object]
) -> None:
    resource = rid(moto.launch())
    faults.on("StopInstances", carried_out_then(end))  # type: ignore[arg-type]

    with pytest.raises(AnswerLost, match="read it before anything else"):
        cloud.stop(resource)

    assert cloud.get(resource).state is InstanceState.STOPPED
    assert moto.mutations() == ["StopInstances"]


@pytest.mark.parametrize("close", [True, False], ids=["closed", "silent"])
def test_a_real_connection_that_ends_without_an_answer_is_a_lost_answer(make_cloud: Make, moto: MotoEc2, close: bool) -> None:
    resource = rid(moto.launch())
    bounds = Bounds(connect_s=2, read_s=0.5, read_attempts=1)
    with listener(close_after_request=close) as url:
        cloud = make_cloud("us-east-1", endpoint=url, bounds=bounds)
        cloud.accounts[0]._id = ACCOUNT  # the silent server cannot say whose credentials these are

        with pytest.raises(AnswerLost, match=str(resource)):
            cloud.stop(resource)


def test_a_verb_that_never_left_is_unreachable_and_not_lost(make_cloud: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cloud = make_cloud("us-east-1", endpoint=f"http://127.0.0.1:{port}")
    cloud.accounts[0]._id = ACCOUNT

    with pytest.raises(Unreachable):
        cloud.stop(rid("i-0abc"))


def test_skew_is_our_clock_minus_the_newest_date_header(make_cloud: Make, faults: Faults) -> None:
    clock = ManualClock()
    cloud = make_cloud("us-east-1", clock=clock)
    faults.on("GetCallerIdentity", replies("<R><GetCallerIdentityResult><Account>123456789012</Account></GetCallerIdentityResult></R>"))
    faults.on("DescribeInstances", replies("<R/>", date="Mon, 30 Nov 2026 12:00:00 GMT"))
    cloud.list()
    clock.at += 90

    assert cloud.skew(datetime(2026, 11, 30, 12, 1, 30, tzinfo=UTC)) == timedelta(0)
    assert cloud.skew(datetime(2026, 11, 30, 12, 2, 10, tzinfo=UTC)) == timedelta(seconds=40)
    assert cloud.skew(datetime(2026, 11, 30, 12, 1, 0, tzinfo=UTC)) == timedelta(seconds=-30)


def test_a_refusal_tells_the_clouds_time_too_and_a_bad_date_tells_nothing(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    clock = ManualClock()
    cloud = make_cloud("us-east-1", clock=clock, bounds=Bounds(read_attempts=1))
    cloud.accounts[0]._id = ACCOUNT
    faults.on("DescribeInstances", replies("<R/>", date="yesterday"))
    cloud.list()
    nothing = cloud.skew(clock.now())
    body = "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors></Response>"
    faults.on("DescribeInstances", replies(body, status=403, date="Mon, 30 Nov 2026 00:00:00 GMT"))
    cloud.list()

    assert nothing is None
    assert cloud.skew(clock.now() + timedelta(seconds=5)) == timedelta(seconds=5)


def test_importing_and_building_the_adapter_loads_no_sdk() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from reaper.clouds.aws.cloud import AwsCloud; from reaper.clock import SystemClock; "
        "from reaper.model import policy; AwsCloud(policy.AwsCloud(), clock=SystemClock()); "
        "sys.exit(any(m.split('.')[0] in ('boto3', 'botocore', 'structlog') for m in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0




def test_a_listing_that_makes_no_sense_fails_its_region_only(make_cloud: Make, moto: MotoEc2, faults: Faults) -> None:
    kept = moto.launch(region="eu-central-1")
    nameless = "<R><reservationSet><item><instancesSet><item><instanceType>g5.xlarge</instanceType></item></instancesSet></item></reservationSet></R>"
    faults.on("DescribeInstances", replies(nameless), region="us-east-1")

    failed, good = make_cloud(*BOTH).list()

    assert failed.failed == f"{failed.place}: the listing is not understood: the listing holds an instance without an id"
    assert [i.id.native for i in good.instances] == [kept]
