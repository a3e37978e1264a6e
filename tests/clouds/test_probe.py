"""Permissions are tried and nothing is done, whatever the code does wrong."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from reaper.clock import SystemClock
from reaper.clouds.aws import leftovers
from reaper.clouds.aws.needs import needed
from reaper.clouds.aws.permissions import ACTOR, READER, SNAPSHOTS, TERMINATE
from reaper.clouds.aws.probe import AwsProber
from reaper.errors import ReadOnly
from reaper.model import policy
from reaper.model.policy import Claim, Configuration, Scope, Selector
from reaper.ports import Probed
from tests.builders import configuration
from tests.clouds.conftest import FAST, rid
from tests.fakes.faults import Faults, refuse, refuse_json
from tests.fakes.moto_ec2 import ACCOUNT, MotoEc2

LEFTOVERS = {p.action for p in leftovers.NEEDS if p.optional}
ALL_VERBS = ("snapshot", "start", "stop", "terminate")


@pytest.fixture
def prober(moto: MotoEc2, faults: Faults) -> AwsProber:
    settings = policy.AwsCloud(regions=("us-east-1",), endpoint=moto.url, price_list=False)
    patient = replace(FAST, read_s=60)  # moto takes no notice of DryRun in reads, and all types of EC2 take it seconds
    return AwsProber(settings, clock=SystemClock(), session=moto.session, bounds=patient, prepared=faults.install)


def wanting(*verbs: str) -> Configuration:
    scope = Scope(Selector(tags={"team": ("ml",)}), verbs, Claim("reaper", "ml-platform"), given=True)
    return configuration(scope=scope, aws=policy.AwsCloud(price_list=False))


def told(probed: tuple[Probed, ...]) -> dict[str, bool | None]:
    return {one.permission: one.allowed for one in probed}


def test_dry_runs_tell_what_is_allowed_and_stop_nothing(prober: AwsProber, moto: MotoEc2) -> None:
    native = moto.launch(team="ml", reaper="ml-platform")

    found = told(prober.probe(wanting(*ALL_VERBS)))

    assert all(found[f"ec2:{name}"] for name in ("DescribeInstances", "StopInstances", "StartInstances", "TerminateInstances"))
    assert moto.machine(native)._state.name == "running"
    assert not any(tag["key"].startswith("idle-reaper") for tag in moto.machine(native).get_tags())


def test_what_cannot_be_tried_is_named_with_why_and_for_what_it_is_needed(prober: AwsProber, moto: MotoEc2) -> None:
    moto.launch(team="ml", reaper="ml-platform")
    probed = {one.permission: one for one in prober.probe(wanting(*ALL_VERBS))}

    untried = {name: one.because for name, one in probed.items() if one.allowed is None}
    assert set(untried) == {
        "kms:CreateGrant", "kms:DescribeKey", "ecs:ListContainerInstances", "elasticloadbalancing:DescribeTags", "elasticloadbalancing:DescribeTargetHealth",
    }  # fmt: skip
    assert "a dry run of that start does not try it" in untried["kms:CreateGrant"]
    assert all("it is needed to" in because for because in untried.values())


def test_every_permission_of_the_verbs_is_told_one_way_or_another(prober: AwsProber, moto: MotoEc2) -> None:
    """One that is left out would be taken for allowed."""
    moto.launch(team="ml", reaper="ml-platform")

    found = told(prober.probe(configuration_with_money()))

    assert set(found) == {permission.action for permission in needed(READER, ACTOR, SNAPSHOTS, TERMINATE)}


def configuration_with_money() -> Configuration:
    return replace(wanting(*ALL_VERBS), aws=policy.AwsCloud(price_list=True))


@pytest.mark.parametrize("operation", ["DescribeAutoScalingInstances", "ListClusters"])
def test_a_read_of_another_service_is_asked_and_a_denial_of_it_is_told(prober: AwsProber, moto: MotoEc2, faults: Faults, operation: str) -> None:
    moto.launch()
    service = "autoscaling" if operation.startswith("Describe") else "ecs"
    allowed = told(prober.probe(wanting()))[f"{service}:{operation}"]
    faults.on(operation, (refuse if service == "autoscaling" else refuse_json)("AccessDeniedException"))

    assert allowed is True
    assert told(prober.probe(wanting()))[f"{service}:{operation}"] is False


def test_what_is_only_about_money_is_optional_and_left_out_where_it_is_never_asked(prober: AwsProber, moto: MotoEc2, faults: Faults) -> None:
    moto.launch()
    faults.on("DescribeSavingsPlans", refuse_json("AccessDeniedException", status=403), times=9)
    faults.on("GetProducts", refuse_json("AccessDeniedException", status=403), times=9)

    probed = {one.permission: one for one in prober.probe(configuration_with_money())}
    off = told(prober.probe(replace(wanting(), aws=policy.AwsCloud(price_list=False))))

    assert {name for name, one in probed.items() if one.optional} == {
        "savingsplans:DescribeSavingsPlans", "pricing:GetProducts", "ec2:DescribeReservedInstances", *LEFTOVERS,
    }  # fmt: skip
    assert off.keys() >= LEFTOVERS
    assert probed["savingsplans:DescribeSavingsPlans"].allowed is False
    assert not {"savingsplans:DescribeSavingsPlans", "pricing:GetProducts", "ec2:DescribeReservedInstances"} & off.keys()


def test_a_snapshot_is_tried_dry_on_a_disk_of_a_machine_in_scope(prober: AwsProber, moto: MotoEc2) -> None:
    moto.launch(team="ml", reaper="ml-platform")
    before = moto.do("describe_snapshots", OwnerIds=["self"])["Snapshots"]

    found = told(prober.probe(wanting("stop", "snapshot")))

    assert found["ec2:CreateSnapshot"] is True
    assert moto.do("describe_snapshots", OwnerIds=["self"])["Snapshots"] == before


def test_a_denied_one_is_told(prober: AwsProber, moto: MotoEc2, faults: Faults) -> None:
    moto.launch(team="ml", reaper="ml-platform")
    faults.on("StopInstances", refuse("UnauthorizedOperation", status=403))

    found = told(prober.probe(wanting("stop")))

    assert found["ec2:StopInstances"] is False
    assert found["ec2:StartInstances"] is True


@pytest.mark.parametrize("tags", [{}, {"team": "ml"}, {"team": "ml", "reaper": "another"}], ids=str)
def test_without_a_machine_in_scope_nothing_can_be_said_of_acting(prober: AwsProber, moto: MotoEc2, tags: dict[str, str]) -> None:
    moto.launch(**tags)

    probed = {one.permission: one for one in prober.probe(wanting("stop"))}

    assert probed["ec2:StopInstances"].allowed is None
    assert "no machine in scope" in probed["ec2:StopInstances"].because
    assert probed["ec2:DescribeInstanceAttribute"].allowed is True


@pytest.mark.parametrize(
    ("verbs", "present", "absent"),
    [
        ((), {"ec2:DescribeInstances"}, {"ec2:StopInstances", "ec2:CreateSnapshot", "ec2:TerminateInstances"}),
        (("stop",), {"ec2:StopInstances"}, {"ec2:CreateSnapshot", "ec2:TerminateInstances"}),
        (("snapshot", "stop"), {"ec2:CreateSnapshot"}, {"ec2:TerminateInstances"}),
        (ALL_VERBS, {"ec2:TerminateInstances"}, set()),
    ],
)
def test_only_what_the_verbs_need_is_tried(prober: AwsProber, verbs: tuple[str, ...], present: set[str], absent: set[str]) -> None:
    found = told(prober.probe(wanting(*verbs))).keys()

    assert present <= found
    assert not absent & found


@pytest.mark.parametrize("verb", ["stop", "start", "terminate", "hibernate"])
def test_its_own_clients_cannot_act(prober: AwsProber, moto: MotoEc2, verb: str) -> None:
    resource = rid(moto.launch())

    with pytest.raises(ReadOnly, match="dry runs only"):
        getattr(prober._cloud, verb)(resource)

    assert moto.mutations() == []


def test_credentials_that_are_none_are_told(moto: MotoEc2, faults: Faults) -> None:
    faults.on("GetCallerIdentity", refuse("InvalidClientTokenId", status=403), times=9)
    settings = policy.AwsCloud(endpoint=moto.url, price_list=False)
    (one,) = AwsProber(settings, clock=SystemClock(), session=moto.session, bounds=FAST, prepared=faults.install).probe(wanting())

    assert one.allowed is None
    assert "InvalidClientTokenId" in one.because


def test_the_command_tells_it_and_fails_on_a_denied_one(
    moto: MotoEc2, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object, make_document: Callable[..., str]
) -> None:
    from reaper.cli.main import main

    for key, value in {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(key, value)
    moto.launch()

    code = main(["check", make_document(moto.url), "--permissions", "--json"])

    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0
    assert {one["account"] for one in report["permissions"]} == {ACCOUNT}
    assert {one["permission"] for one in report["permissions"] if one["allowed"]} >= {"ec2:DescribeInstances", "ec2:DescribeRegions"}


@pytest.fixture
def make_document(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    def make(url: str) -> str:
        file = tmp_path_factory.mktemp("check") / "reaper.toml"
        file.write_text(f'schema = 1\n[clouds.aws]\nregions = ["us-east-1"]\nendpoint = "{url}"\n[policy.all]\n')
        return str(file)

    return make
