"""
IAM documents, made of what the calls declare. `python -m reaper.clouds.aws.documents deploy/iam/aws` writes them anew.

reader: all that observing needs. actor: stopping, starting and our own state tags, on machines that carry your scope tags and
your claim, and a denial of changing those. snapshots and terminate: only for who wants them. hub: what the process itself
needs where accounts are reached by a role. None of them can delete anything; ending a machine is in its own document.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reaper.clouds.aws.needs import needed
from reaper.clouds.aws.permissions import ACTOR, HUB, READER, SNAPSHOTS, TERMINATE
from reaper.model.kinds.snapshot import OWN_TAG_PREFIX

Document = dict[str, Any]

_TAGGING = ("ec2:CreateTags", "ec2:DeleteTags")
_GRANT = "kms:CreateGrant"
NEVER = ("ec2:ModifyInstanceAttribute", "ec2:DeleteVolume", "ec2:DeleteSnapshot", "ec2:DetachVolume", "ec2:DeregisterImage")
"""What we have no call for: denied all the same, so that no other policy of the role gives it to us."""


@dataclass(frozen=True, slots=True)
class Terms:
    """``scope``: tag keys with the values that a machine must have one of; ``claim``: the tag that says whose it is."""

    scope: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"team": ["ml"]})
    claim: tuple[str, str] = ("reaper", "ml-platform")
    partition: str = "aws"
    role: str = "idle-reaper"

    @property
    def on_ours(self) -> Document:
        """The condition that keeps a statement to our machines."""
        tags = {**{key: list(values) for key, values in self.scope.items()}, self.claim[0]: self.claim[1]}
        return {"StringEquals": {f"aws:ResourceTag/{key}": value for key, value in tags.items()}}

    @property
    def guarded(self) -> list[str]:
        return [*self.scope, self.claim[0]]

    def on(self, arn: str) -> str:
        return arn.format(partition=self.partition, role=self.role)


def documents(terms: Terms) -> dict[str, Document]:
    """By file name without its end."""
    return {
        READER: _document(_allow("Observe", [p.action for p in needed(READER)], "*")),
        ACTOR: actor(terms),
        SNAPSHOTS: snapshots(terms),
        TERMINATE: _document(
            *[_allow("EndInScope", [p.action], terms.on(p.on), terms.on_ours) for p in needed(TERMINATE)],
        ),
        HUB: _document(*[_allow("ReachAccounts", [p.action], terms.on(p.on)) for p in needed(HUB)]),
    }


def actor(terms: Terms) -> Document:
    machines = terms.on("arn:{partition}:ec2:*:*:instance/*")
    acting = [p.action for p in needed(ACTOR) if p.action not in (*_TAGGING, _GRANT)]
    own_keys = {"ForAllValues:StringLike": {"aws:TagKeys": [f"{OWN_TAG_PREFIX}*"]}, "Null": {"aws:TagKeys": "false"}}
    grant = {"Bool": {"kms:GrantIsForAWSResource": "true"}, "StringLike": {"kms:ViaService": ["ec2.*.amazonaws.com", "ec2.*.amazonaws.com.cn"]}}
    return _document(
        _allow("ActInScope", acting, machines, terms.on_ours),
        _allow("OwnStateTagsInScope", _TAGGING, machines, {**terms.on_ours, **own_keys}),
        _allow("StartEncryptedDisks", [_GRANT], terms.on("arn:{partition}:kms:*:*:key/*"), grant),
        _deny("NeverMoveIntoScope", _TAGGING, machines, {"ForAnyValue:StringEqualsIgnoreCase": {"aws:TagKeys": terms.guarded}}),
        _deny("NeverRemoveEveryTag", ["ec2:DeleteTags"], machines, {"Null": {"aws:TagKeys": "true"}}),
        _deny("NeverLiftAProtectionOrDelete", NEVER, "*"),
    )


def snapshots(terms: Terms) -> Document:
    """A disk seldom carries its machine's tags, so the volume is free; the snapshot has to carry ours."""
    snapshot, volume = terms.on("arn:{partition}:ec2:*::snapshot/*"), terms.on("arn:{partition}:ec2:*:*:volume/*")
    actions = [p.action for p in needed(SNAPSHOTS)]
    return _document(
        _allow("SnapshotDisks", actions, volume),
        _allow("SnapshotsCarryOurTag", actions, snapshot, {"Null": {f"aws:RequestTag/{OWN_TAG_PREFIX}attempt": "false"}}),
        _allow("TagOnlyWhileMaking", ["ec2:CreateTags"], snapshot, {"StringEquals": {"ec2:CreateAction": "CreateSnapshot"}}),
    )


def trust(trusted: str, external_id: str | None) -> Document:
    statement: Document = {"Effect": "Allow", "Principal": {"AWS": trusted}, "Action": "sts:AssumeRole"}
    if external_id is not None:
        statement["Condition"] = {"StringEquals": {"sts:ExternalId": external_id}}
    return _document(statement)


def _document(*statements: Document) -> Document:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _allow(sid: str, actions: Sequence[str], on: str, condition: Document | None = None) -> Document:
    return {"Sid": sid, "Effect": "Allow", "Action": sorted(actions), "Resource": on, **({"Condition": condition} if condition else {})}


def _deny(sid: str, actions: Sequence[str], on: str, condition: Document | None = None) -> Document:
    return {**_allow(sid, actions, on, condition), "Effect": "Deny"}


# --- the same for CloudFormation and Terraform, whose parameters stand where the JSON has values -------------------------


def stack_set() -> Document:
    """
    A template for a StackSet that puts the role into member accounts. JSON, which CloudFormation reads as well as YAML. One
    scope tag: CloudFormation has no condition whose key is a parameter in a map, so conditions are made of text.
    """
    terms = Terms(scope={"${ScopeTagKey}": ["${ScopeTagValue}"]}, claim=("${ClaimTagKey}", "${ClaimTagValue}"), partition="${AWS::Partition}", role="${RoleName}")
    made = documents(terms)
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "The role by which Idle Reaper observes this account and, where asked for, acts in it.",
        "Parameters": {
            "TrustedArn": _text("Who may assume the role: the ARN of the role that Idle Reaper runs with", pattern="^arn:[a-z-]+:iam::[0-9]{12}:.+$"),
            "ExternalId": _text("What it has to say when it does", pattern="^[A-Za-z0-9_+=,.@:/-]{2,1224}$"),
            "RoleName": _text("The role's name", "idle-reaper"),
            "Act": _choice("Whether it may stop and start machines in scope"),
            "Snapshot": _choice("Whether it may snapshot disks"),
            "Terminate": _choice("Whether it may end machines in scope"),
            "ScopeTagKey": _text("The tag that a machine in scope carries", "team"),
            "ScopeTagValue": _text("Its value", "ml"),
            "ClaimTagKey": _text("The tag that says which reaper may act", "reaper"),
            "ClaimTagValue": _text("Its value: the reaper's name", "ml-platform"),
        },
        "Conditions": {name: {"Fn::Equals": [{"Ref": name}, "yes"]} for name in ("Act", "Snapshot", "Terminate")},
        "Resources": {
            "Role": {
                "Type": "AWS::IAM::Role",
                "Properties": {
                    "RoleName": {"Ref": "RoleName"},
                    "AssumeRolePolicyDocument": {
                        "Version": "2012-10-17",
                        "Statement": [
                            {
                                "Effect": "Allow", "Principal": {"AWS": {"Ref": "TrustedArn"}}, "Action": "sts:AssumeRole",
                                "Condition": {"StringEquals": {"sts:ExternalId": {"Ref": "ExternalId"}}},
                            }
                        ],
                    },  # fmt: skip
                },
            },
            "Reader": _policy("reader", made[READER], None),
            "Actor": _policy("actor", made[ACTOR], "Act"),
            "Snapshots": _policy("snapshots", made[SNAPSHOTS], "Snapshot"),
            "Terminator": _policy("terminate", made[TERMINATE], "Terminate"),
        },
        "Outputs": {"RoleArn": {"Value": {"Fn::GetAtt": ["Role", "Arn"]}}},
    }


def _policy(name: str, document: Document, condition: str | None) -> Document:
    """As text with parameters in it: a condition's key may hold one, which no map of CloudFormation can."""
    resource: Document = {
        "Type": "AWS::IAM::Policy",
        "Properties": {"Roles": [{"Ref": "Role"}], "PolicyName": f"idle-reaper-{name}", "PolicyDocument": _substituted(document)},
    }
    return resource if condition is None else {**resource, "Condition": condition}


def _substituted(document: Document) -> Any:
    text = json.dumps(document)
    return document if "${" not in text else {"Fn::Sub": text}


def _text(words: str, default: str | None = None, pattern: str = "^[A-Za-z0-9 _.:/=+@-]{1,128}$") -> Document:
    found = {"Type": "String", "Description": words, "AllowedPattern": pattern}
    return found if default is None else {**found, "Default": default}


def _choice(words: str) -> Document:
    return {"Type": "String", "Description": words, "AllowedValues": ["yes", "no"], "Default": "no"}


_PARTITION = "${data.aws_partition.current.partition}"


def terraform() -> str:
    """The statements of a module, each a local that main.tf gives to its policies: HCL that is made, beside HCL that is written."""
    lines = ["# Made by `python -m reaper.clouds.aws.documents`; the permissions stand beside the calls in reaper/clouds/aws.", "locals {"]
    for name in (READER, ACTOR, SNAPSHOTS, TERMINATE, HUB):
        terms = Terms(scope={"SCOPE": ["SCOPE"]}, claim=("CLAIM", "CLAIM"), partition=_PARTITION, role="${var.role_name}")
        lines.append(f"  {name} = [")
        lines += [f"    {line}" for statement in documents(terms)[name]["Statement"] for line in _hcl(statement)]
        lines.append("  ]")
    return "\n".join((*lines, "}", ""))


def _hcl(statement: Document) -> list[str]:
    condition = statement.get("Condition")
    body = {key: value for key, value in statement.items() if key != "Condition"}
    width = 8 if condition is None else 9  # as `terraform fmt` has it
    lines = ["{", *(f"  {key:<{width}} = {json.dumps(value)}" for key, value in body.items())]
    if condition is not None:
        lines.append(f"  Condition = {_hcl_condition(condition)}")
    return [*lines, "},"]


def _hcl_condition(condition: Document) -> str:
    parts = []
    for operator, test in condition.items():
        if any("SCOPE" in key for key in test):
            parts.append(f"{operator} = local.on_ours")
        elif test.get("aws:TagKeys") == ["SCOPE", "CLAIM"]:
            parts.append(f'"{operator}" = {{ "aws:TagKeys" = local.guarded }}')
        else:
            inner = ", ".join(f'"{key}" = {json.dumps(value)}' for key, value in test.items())
            parts.append(f'"{operator}" = {{ {inner} }}')
    return "{ " + ", ".join(parts) + " }"


def write(folder: Path, terms: Terms) -> None:
    for name, document in documents(terms).items():
        (folder / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    (folder / "stackset.json").write_text(json.dumps(stack_set(), indent=2) + "\n")
    (folder / "terraform").mkdir(exist_ok=True)
    (folder / "terraform" / "statements.tf").write_text(terraform())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m reaper.clouds.aws.documents", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write them")
    parser.add_argument("--scope", action="append", metavar="KEY=VALUE", help="a tag of machines in scope; several for several, default team=ml")
    parser.add_argument("--claim", metavar="KEY=VALUE", help="the claim tag, default reaper=ml-platform")
    parser.add_argument("--partition", default=Terms().partition, help="aws, aws-cn or aws-us-gov")
    parser.add_argument("--role", default=Terms().role, help="the role that the hub assumes in each account")
    given = parser.parse_args(arguments)
    scope: dict[str, list[str]] = {}
    for pair in given.scope or ():
        key, _, value = pair.partition("=")
        scope.setdefault(key, []).append(value)
    claim = given.claim.partition("=")[::2] if given.claim else Terms().claim
    given.folder.mkdir(parents=True, exist_ok=True)
    write(given.folder, Terms(scope or Terms().scope, claim, given.partition, given.role))


if __name__ == "__main__":
    main()
