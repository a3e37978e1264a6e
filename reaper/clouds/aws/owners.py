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
    the tag's value, "{rest}" what the key says after its beginning. ``only``: the value it must have, where one matters.
    """

    key: str
    text: str
    only: str | None = None


# The first that is there names the owner, so the one that acts on a stopped member comes before those around it.
OWNER_TAGS = (
    # terminates a stopped member as unhealthy and launches another
    OwnerTag("aws:autoscaling:groupName", "auto scaling group {value}"),
    # managed node groups replace a stopped node within half a minute
    OwnerTag("eks:nodegroup-name", "EKS node group {value}"),
    OwnerTag("aws:eks:cluster-name", "EKS cluster {value}"),
    OwnerTag("eks:cluster-name", "EKS cluster {value}"),
    OwnerTag("eks:eks-cluster-name", "EKS cluster {value}"),
    # node provisioners delete the node object, drain its pods elsewhere and launch a new machine
    OwnerTag("karpenter.sh/nodepool", "Karpenter node pool {value}"),
    OwnerTag("karpenter.sh/*", "Karpenter ({rest} {value})"),
    OwnerTag("karpenter.k8s.aws/*", "Karpenter ({rest} {value})"),
    OwnerTag("k8s.io/cluster-autoscaler/*", "Kubernetes cluster autoscaler ({rest})"),
    OwnerTag("sigs.k8s.io/cluster-api-provider-aws/cluster/*", "Kubernetes cluster {rest} (Cluster API)"),
    OwnerTag("kops.k8s.io/instancegroup", "kOps instance group {value}"),
    # pods on it are rescheduled, and a machine that does not come back is removed
    OwnerTag("kubernetes.io/cluster/*", "Kubernetes cluster {rest}"),
    OwnerTag("KubernetesCluster", "Kubernetes cluster {value}"),
    # a maintained fleet or spot request launches what it misses
    OwnerTag("aws:ec2spot:fleet-request-id", "spot fleet {value}"),
    OwnerTag("aws:ec2:fleet-id", "EC2 fleet {value}"),
    OwnerTag("spotinst:aws:ec2:group:id", "Spot Ocean or Elastigroup {value}"),
    # services that health-check their members and replace them
    OwnerTag("elasticbeanstalk:environment-name", "Elastic Beanstalk environment {value}"),
    OwnerTag("elasticbeanstalk:environment-id", "Elastic Beanstalk environment {value}"),
    OwnerTag("aws:elasticmapreduce:job-flow-id", "EMR cluster {value}"),
    OwnerTag("aws:elasticmapreduce:*", "EMR ({rest} {value})"),
    OwnerTag("aws:batch:compute-environment", "Batch compute environment {value}"),
    OwnerTag("aws:batch:*", "Batch ({rest} {value})"),
    OwnerTag("AWSBatchServiceTag", "Batch"),
    OwnerTag("aws:ecs:clusterName", "ECS cluster {value}"),
    OwnerTag("aws:ecs:*", "ECS ({rest} {value})"),
    OwnerTag("AmazonECSManaged", "ECS capacity provider"),
    OwnerTag("aws:sagemaker:*", "SageMaker ({rest} {value})"),
    OwnerTag("sagemaker:*", "SageMaker ({rest} {value})"),
    # schedulers that power nodes on and off by themselves and mark a vanished one as down
    OwnerTag("parallelcluster:cluster-name", "ParallelCluster {value}"),
    OwnerTag("aws-parallelcluster-*", "ParallelCluster ({rest} {value})"),
    # launchers that relaunch or recover a lost node, with its work
    OwnerTag("ray-cluster-name", "Ray cluster {value}"),
    OwnerTag("skypilot-cluster-name", "SkyPilot cluster {value}"),
    OwnerTag("Vendor", "Databricks", only="Databricks"),
)


def owner_by_tags(tags: Mapping[str, str]) -> str | None:
    """The owner's name in words, or None where no tag speaks of one."""
    for owner in OWNER_TAGS:
        for key in sorted(tags):
            begin = owner.key.removesuffix("*")
            matches = key.startswith(begin) if owner.key.endswith("*") else key == begin
            if matches and owner.only in (None, tags[key]):
                return owner.text.format(value=tags[key], rest=key.removeprefix(begin)).replace(" )", ")").strip()
    return None
