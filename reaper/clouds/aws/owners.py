"""
Who else owns a machine: the tags that groups, clusters and services leave on their members.

Stopping a member starts a fight: the owner ends the stopped machine, its disks go with it, and a new one is launched.
`aws:cloudformation:*` and `aws:ec2launchtemplate:*` are not owners: they say how a machine was made and replace nothing.
Keys compare exactly, as AWS compares them.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnerTag:
    """
    ``key``: the whole tag key, or its beginning where it ends in "*". ``text``: how the owner is called; "{value}" is
    the tag's value, "{rest}" what the key says after its beginning. ``instead``: what to do with it instead of a stop.
    ``only``: the value it must have, where one matters.
    """

    key: str
    text: str
    instead: str
    only: str | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose member a machine is, in words, and what to do instead of stopping it."""

    name: str
    instead: str


GROUP = "lower the group's desired capacity, or put the machine on standby there"
_NODES = "scale the node group"
_KARPENTER = "lower the node pool's limits, or let it consolidate"
_CLUSTER = "drain and remove the node in its cluster"
_FLEET = "lower the fleet's target capacity"
ECS = "lower the capacity provider's or the cluster's size"
_HEAD = "lower its cluster's size in the scheduler"


# The first that is there names the owner, so the one that acts on a stopped member comes before those around it.
OWNER_TAGS = (
    # terminates a stopped member as unhealthy and launches another
    OwnerTag("aws:autoscaling:groupName", "auto scaling group {value}", GROUP),
    # managed node groups replace a stopped node within half a minute
    OwnerTag("eks:nodegroup-name", "EKS node group {value}", _NODES),
    OwnerTag("aws:eks:cluster-name", "EKS cluster {value}", _NODES),
    OwnerTag("eks:cluster-name", "EKS cluster {value}", _NODES),
    OwnerTag("eks:eks-cluster-name", "EKS cluster {value}", _NODES),
    # node provisioners delete the node object, drain its pods elsewhere and launch a new machine
    OwnerTag("karpenter.sh/nodepool", "Karpenter node pool {value}", _KARPENTER),
    OwnerTag("karpenter.sh/*", "Karpenter ({rest} {value})", _KARPENTER),
    OwnerTag("karpenter.k8s.aws/*", "Karpenter ({rest} {value})", _KARPENTER),
    OwnerTag("karpenter.*", "Karpenter ({rest} {value})", _KARPENTER),
    OwnerTag("k8s.io/cluster-autoscaler/*", "Kubernetes cluster autoscaler ({rest})", _NODES),
    OwnerTag("sigs.k8s.io/cluster-api-provider-aws/cluster/*", "Kubernetes cluster {rest} (Cluster API)", _CLUSTER),
    OwnerTag("kops.k8s.io/instancegroup", "kOps instance group {value}", _NODES),
    # pods on it are rescheduled, and a machine that does not come back is removed
    OwnerTag("kubernetes.io/cluster/*", "Kubernetes cluster {rest}", _CLUSTER),
    OwnerTag("KubernetesCluster", "Kubernetes cluster {value}", _CLUSTER),
    # a maintained fleet or spot request launches what it misses
    OwnerTag("aws:ec2spot:fleet-request-id", "spot fleet {value}", _FLEET),
    OwnerTag("aws:ec2:fleet-id", "EC2 fleet {value}", _FLEET),
    OwnerTag("spotinst:aws:ec2:group:id", "Spot Ocean or Elastigroup {value}", _FLEET),
    # services that health-check their members and replace them
    OwnerTag("elasticbeanstalk:environment-name", "Elastic Beanstalk environment {value}", "lower the environment's instance count"),
    OwnerTag("elasticbeanstalk:environment-id", "Elastic Beanstalk environment {value}", "lower the environment's instance count"),
    OwnerTag("aws:elasticmapreduce:job-flow-id", "EMR cluster {value}", "resize or end the EMR cluster"),
    OwnerTag("aws:elasticmapreduce:*", "EMR ({rest} {value})", "resize or end the EMR cluster"),
    OwnerTag("aws:batch:compute-environment", "Batch compute environment {value}", "lower the compute environment's vCPUs"),
    OwnerTag("aws:batch:*", "Batch ({rest} {value})", "lower the compute environment's vCPUs"),
    OwnerTag("AWSBatchServiceTag", "Batch", "lower the compute environment's vCPUs"),
    OwnerTag("aws:ecs:clusterName", "ECS cluster {value}", ECS),
    OwnerTag("aws:ecs:*", "ECS ({rest} {value})", ECS),
    OwnerTag("AmazonECSManaged", "ECS capacity provider", ECS),
    OwnerTag("aws:sagemaker:*", "SageMaker ({rest} {value})", "stop it in SageMaker"),
    OwnerTag("sagemaker:*", "SageMaker ({rest} {value})", "stop it in SageMaker"),
    # schedulers that power nodes on and off by themselves and mark a vanished one as down
    OwnerTag("parallelcluster:cluster-name", "ParallelCluster {value}", _HEAD),
    OwnerTag("aws-parallelcluster-*", "ParallelCluster ({rest} {value})", _HEAD),
    # launchers that relaunch or recover a lost node, with its work
    OwnerTag("ray-cluster-name", "Ray cluster {value}", "ray down, or its autoscaler's idle timeout"),
    OwnerTag("skypilot-cluster-name", "SkyPilot cluster {value}", "sky stop, or sky autostop"),
    OwnerTag("Vendor", "Databricks", "end or shrink its Databricks cluster", only="Databricks"),
)


def owner_by_tags(tags: Mapping[str, str]) -> Owner | None:
    """None where no tag speaks of one."""
    for owner in OWNER_TAGS:
        for key in sorted(tags):
            begin = owner.key.removesuffix("*")
            matches = key.startswith(begin) if owner.key.endswith("*") else key == begin
            if matches and owner.only in (None, tags[key]):
                name = owner.text.format(value=tags[key], rest=key.removeprefix(begin)).replace(" )", ")").strip()
                return Owner(name, owner.instead)
    return None
