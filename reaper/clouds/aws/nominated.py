"""
What is asked about a machine only once something is about to happen to it, because each question is a call of its own:
its protections, an owner that no tag tells of, the keys of its disks, and whether it is paid for either way.

Never raises: what cannot be read is None, with the reason.
"""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from reaper.clouds.aws.commitments import Commitments
from reaper.clouds.aws.owners import ECS, GROUP, Owner
from reaper.clouds.aws.permissions import READER, Permission
from reaper.errors import CloudError, NotFound
from reaper.model.kinds.instance import DiskKey, Protections
from reaper.model.resource import ResourceId
from reaper.ports import Clock

if TYPE_CHECKING:
    from reaper.clouds.aws.account import Account

NEEDS = (
    Permission("ec2:DescribeInstanceAttribute", READER, "read stop and termination protection", probe="describe_instance_attribute"),
    Permission("ec2:DescribeVolumes", READER, "read which keys its disks are encrypted with", probe="describe_volumes"),
    Permission("kms:DescribeKey", READER, "tell whether it could start again with its keys"),
    Permission("autoscaling:DescribeAutoScalingInstances", READER, "find members of auto scaling groups that no tag tells of"),
    Permission("ecs:ListClusters", READER, "find members of ECS clusters that no tag tells of"),
    Permission("ecs:ListContainerInstances", READER, "find members of ECS clusters that no tag tells of"),
)

KEPT_S = 600
"""How long the answers that are about more than one machine are good: keys, clusters."""


class Nominated:
    """Of one account. Thread-safe. Calls a machine: two for protections, one for disks, one for groups, one an ECS cluster."""

    def __init__(self, account: "Account", clock: Clock, commitments: Commitments) -> None:
        self._account = account
        self._commitments = commitments
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, ...], tuple[float, Any]] = {}

    def read(self, resource: ResourceId) -> Protections:
        stop, because = self._attribute(resource, "disableApiStop", "stop protection")
        if stop is None:
            return Protections(because=because)  # this alone holds; nothing else has to be asked
        ending, _ = self._attribute(resource, "disableApiTermination", "termination protection")
        owner, unread = self._owner(resource)
        keys, keys_because = self._keys(resource)
        return Protections(
            stop_protected=stop, because=because, termination_protected=ending, managed_by=owner.name if owner is not None else None,
            managed_instead=owner.instead if owner is not None else None, owner_unread=unread, keys=keys, keys_because=keys_because,
            covered=self._commitments.covered(resource), committed=self._commitments.committed(resource),
        )  # fmt: skip

    def _attribute(self, resource: ResourceId, name: str, words: str) -> tuple[bool | None, str | None]:
        doing = f"read {words} of {resource}"
        try:
            self._account.require(resource)
            client = self._account.reads(resource.place)
            answer = self._account.call(doing, lambda: client.describe_instance_attribute(InstanceId=resource.native, Attribute=name))
        except CloudError as error:
            return None, str(error)
        value = answer.get(name[0].upper() + name[1:], {}).get("Value")
        if value is None:
            return None, f"{doing}: EC2's answer does not say"
        return bool(value), f"{name} is set" if value else None

    def _owner(self, resource: ResourceId) -> tuple[Owner | None, str | None]:
        """The owner and None, or None and why it could not be asked for."""
        try:
            return self._group(resource) or self._cluster(resource), None
        except CloudError as error:
            return None, str(error)

    def _group(self, resource: ResourceId) -> Owner | None:
        client = self._account.reads(resource.place, "autoscaling")
        doing = f"ask whether an auto scaling group owns {resource}"
        answer = self._account.call(doing, lambda: client.describe_auto_scaling_instances(InstanceIds=[resource.native]))
        for member in answer.get("AutoScalingInstances", ()):
            if member.get("InstanceId") == resource.native:
                return Owner(f"auto scaling group {member.get('AutoScalingGroupName')}", GROUP)
        return None

    def _cluster(self, resource: ResourceId) -> Owner | None:
        client = self._account.reads(resource.place, "ecs")
        doing = f"ask whether an ECS cluster owns {resource}"
        clusters = self._remembered(
            ("clusters", resource.place),
            lambda: [arn for page in self._account.pages(doing, client, "list_clusters") for arn in page.get("clusterArns", ())],
        )
        for cluster in clusters:
            try:
                ask = partial(client.list_container_instances, cluster=cluster, filter=f"ec2InstanceId == {resource.native}")
                found = self._account.call(doing, ask)
            except NotFound:
                continue  # the cluster went meanwhile, and its members with it
            if found.get("containerInstanceArns"):
                return Owner(f"ECS cluster {cluster.rpartition('/')[2]}", ECS)
        return None

    def _keys(self, resource: ResourceId) -> tuple[tuple[DiskKey, ...] | None, str | None]:
        doing = f"read the disks of {resource}"
        try:
            client = self._account.reads(resource.place)
            pages = self._account.pages(doing, client, "describe_volumes", Filters=[{"Name": "attachment.instance-id", "Values": [resource.native]}])
        except CloudError as error:
            return None, str(error)
        volumes = [volume for page in pages for volume in page.get("Volumes", ())]
        ids = sorted({str(volume["KmsKeyId"]) for volume in volumes if volume.get("Encrypted") and volume.get("KmsKeyId")})
        return tuple(self._key(id, resource.place) for id in ids), None

    def _key(self, id: str, region: str) -> DiskKey:
        try:
            client = self._account.reads(region, "kms")
            raw = self._remembered(("key", id), lambda: self._account.call(f"read key {id}", lambda: client.describe_key(KeyId=id)))
        except CloudError as error:
            return DiskKey(id, because=str(error))
        told: Mapping[str, Any] = raw.get("KeyMetadata", {})
        manager = told.get("KeyManager")
        return DiskKey(id, told.get("KeyState"), None if manager is None else manager == "CUSTOMER")

    def _remembered(self, key: tuple[str, ...], ask: Callable[[], Any]) -> Any:
        """Raises CloudError; a failure is not remembered."""
        now = self._clock.monotonic()
        with self._lock:
            kept = self._kept.get(key)
        if kept is None or now - kept[0] >= KEPT_S:
            kept = (now, ask())
            with self._lock:
                self._kept[key] = kept
        return kept[1]
