"""
Tries each permission without doing anything: EC2 judges a call with DryRun and carries none out; a read of another service is
asked for one line.

Every session of it carries a hook that refuses whatever is neither a read nor a dry run, before it is signed, so that a
mistake here cannot stop a machine.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from reaper.clouds.aws.account import NOT_ALLOWED, Account
from reaper.clouds.aws.clients import Bounds, default_session
from reaper.clouds.aws.cloud import AwsCloud
from reaper.clouds.aws.needs import needed
from reaper.clouds.aws.permissions import ACTOR, READER, SNAPSHOTS, TERMINATE, Permission
from reaper.errors import CloudError, Denied, ReadOnly
from reaper.model import policy
from reaper.model.kinds.instance import Instance
from reaper.model.kinds.snapshot import OWN_TAG_PREFIX
from reaper.ports import Clock, Probed

if TYPE_CHECKING:
    from boto3.session import Session

ALLOWED = "DryRunOperation"
"""What EC2 answers to a dry run that it would have carried out."""

_PRICES_IN = "us-east-1"
"""Where the services that answer for a whole account about money are asked."""

_ASKED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "autoscaling:DescribeAutoScalingInstances": ("autoscaling", "describe_auto_scaling_instances", {"MaxRecords": 1}),
    "ecs:ListClusters": ("ecs", "list_clusters", {"maxResults": 1}),
    "savingsplans:DescribeSavingsPlans": ("savingsplans", "describe_savings_plans", {"maxResults": 1}),
    "pricing:GetProducts": ("pricing", "get_products", {"ServiceCode": "AmazonEC2", "MaxResults": 1}),
    "elasticloadbalancing:DescribeLoadBalancers": ("elbv2", "describe_load_balancers", {"PageSize": 1}),
    "elasticloadbalancing:DescribeTargetGroups": ("elbv2", "describe_target_groups", {"PageSize": 1}),
}
"""Reads without a dry run: service, operation, and the least that can be asked."""

_LEAST: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("describe_instances", "describe_instance_types", "describe_volumes", "describe_spot_instance_requests"), {"MaxResults": 5}),
    "describe_snapshots": {"MaxResults": 5, "OwnerIds": ["self"]},
    "describe_images": {"Owners": ["self"]},
}
"""For who takes no notice of DryRun in a read: the least that can be asked."""

_UNTRIED = {
    "kms:CreateGrant": "only EC2 may use it, when it starts a machine, and a dry run of that start does not try it",
    "kms:DescribeKey": "it is tried on the keys of a machine's disks, when something is about to happen to the machine",
    "ecs:ListContainerInstances": "it is tried on the clusters that there are, when something is about to happen to a machine",
    "elasticloadbalancing:DescribeTargetHealth": "it is tried on the target groups that there are, when leftovers are looked for",
    "elasticloadbalancing:DescribeTags": "it is tried on the load balancers that nobody seems to use, when leftovers are looked for",
}

_READS = re.compile(r"^(Describe|List|Get|AssumeRole)")


def refuse_deeds(params: Mapping[str, Any], model: Any, **_: object) -> None:
    """botocore's event before a request is built. Raises ReadOnly for what is neither a read nor a dry run."""
    if not _READS.match(model.name) and params.get("DryRun") is not True:
        raise ReadOnly(f"{model.name} was not sent: probing permissions sends reads and dry runs only")


class AwsProber:
    """Implements ports.Prober. ``session``: makes the session of the process's own credentials."""

    name = "aws"

    def __init__(
        self, settings: policy.AwsCloud, *, clock: Clock, session: Callable[[], "Session"] = default_session, bounds: Bounds | None = None,
        prepared: Callable[["Session", str], "Session"] = lambda session, _: session,
    ) -> None:  # fmt: skip
        def hooked(made: "Session", account: str) -> "Session":
            made.events.register("provide-client-params", refuse_deeds, unique_id="reaper-dry-runs-only")
            return prepared(made, account)

        self._cloud = AwsCloud(settings, clock=clock, session=session, bounds=bounds, prepared=hooked)

    def probe(self, configuration: policy.Configuration) -> tuple[Probed, ...]:
        """Each permission of each account that the configuration's verbs need. Never raises CloudError."""
        found: list[Probed] = []
        try:
            machines = [instance for place in self._cloud.list() for instance in place.instances]
        except CloudError as error:
            return (Probed(self.name, "?", "", None, str(error)),)
        money = configuration.aws is None or configuration.aws.price_list
        wanted = [permission for permission in needed(*_documents(configuration)) if money or not permission.money]
        for account in self._cloud.accounts:
            own = [machine for machine in machines if machine.id.account == account.known_id]
            ours = next((machine for machine in own if _ours(machine, configuration)), None)
            found += [self._one(account, permission, ours, own[0] if own else None) for permission in wanted]
        return tuple(found)

    def _one(self, account: Account, permission: Permission, ours: Instance | None, some: Instance | None) -> Probed:
        def told(allowed: bool | None, because: str) -> Probed:
            return Probed(account.known_id or "?", permission.action, permission.document, allowed, because, permission.optional)

        machine = some if permission.document == READER else ours
        if permission.action in _ASKED:
            service, operation, asked = _ASKED[permission.action]
            region = _PRICES_IN if permission.money else None
        elif permission.probe is None:
            why = _UNTRIED.get(permission.action, "AWS has no dry run for it")
            return told(None, f"{why}; it is needed to {permission.why}")
        else:
            service, operation, region = "ec2", permission.probe, None
            found = _arguments(operation, machine)
            if found is None:
                return told(None, "no machine in scope to try it on" if permission.document != READER else "no machine to try it on")
            asked = {"DryRun": True, **found}
        try:
            client = account.verbs(region or (machine.id.place if machine is not None else account.regions().listed[0]), service)
            account.call(f"try {permission.action}", lambda: getattr(client, operation)(**asked))
        except Denied as error:
            return told(False, f"denied; it is needed to {permission.why}" if error.code in NOT_ALLOWED else str(error))
        except CloudError as error:
            return told(True, "allowed") if error.code == ALLOWED else told(None, str(error))
        if service != "ec2" or operation.startswith("describe_"):
            return told(True, "it answered")  # a read that takes no notice of DryRun has changed nothing
        return told(None, "AWS answered a dry run with something else")


def _documents(configuration: policy.Configuration) -> tuple[str, ...]:
    verbs = configuration.scope.verbs
    acting = {ACTOR: bool({"stop", "start"} & set(verbs)), SNAPSHOTS: "snapshot" in verbs, TERMINATE: "terminate" in verbs}
    return (READER, *(document for document, wanted in acting.items() if wanted))


def _ours(machine: Instance, configuration: policy.Configuration) -> bool:
    claim = configuration.scope.claim
    return configuration.scope.what.matches(machine) and (claim is None or machine.tags.get(claim.key) == claim.value)


def _arguments(operation: str, machine: Instance | None) -> dict[str, Any] | None:
    """What the operation has to be asked with; None: a machine, and there is none."""
    if operation.startswith("describe_") and operation != "describe_instance_attribute":
        return _LEAST.get(operation, {})
    if machine is None:
        return None
    match operation:
        case "describe_instance_attribute":
            return {"InstanceId": machine.id.native, "Attribute": "disableApiStop"}
        case "create_tags" | "delete_tags":
            return {"Resources": [machine.id.native], "Tags": [{"Key": f"{OWN_TAG_PREFIX}probe", "Value": ""}]}
        case "create_snapshot":
            if not machine.volumes:
                return None
            tags = [{"Key": f"{OWN_TAG_PREFIX}attempt", "Value": "probe"}]  # the document lets no snapshot be made without it
            return {"VolumeId": machine.volumes[0], "TagSpecifications": [{"ResourceType": "snapshot", "Tags": tags}]}
        case _:
            return {"InstanceIds": [machine.id.native]}
