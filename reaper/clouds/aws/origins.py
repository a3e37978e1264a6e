"""
What the tags of a disk say it was made for and by what. Pure.

A claim that is read where there is none keeps a disk; one that is overlooked may lose data. So keys compare in any case, and whatever a
cluster's tools write counts, also where it names no claim. `aws:cloudformation:*` says how a disk was declared and makes none anew.
"""

from collections.abc import Iterator, Mapping

_NAMESPACE = ("kubernetes.io/created-for/pvc/namespace", "csi.storage.k8s.io/pvc/namespace", "kubernetes.io-created-for-pvc-namespace")
_CLAIM = ("kubernetes.io/created-for/pvc/name", "csi.storage.k8s.io/pvc/name", "kubernetes.io-created-for-pvc-name")
_VOLUME = ("kubernetes.io/created-for/pv/name", "csi.storage.k8s.io/pv/name", "kubernetes.io-created-for-pv-name", "csivolumename")

_CLUSTER = (
    "kubernetes.io/cluster/", "sigs.k8s.io/cluster-api-provider-aws/cluster/", "ebs.csi.aws.com/cluster", "kubernetescluster", "aws:eks:cluster-name",
    "eks:cluster-name", "eks:eks-cluster-name", "alpha.eksctl.io/cluster-name", "openshiftclusterid", "red-hat-clusterid",
)  # fmt: skip
"""Keys, or their beginnings where they end in a slash; what follows it, or the value, is the cluster's name."""

_OF_KUBERNETES = ("kubernetes.io", "k8s.io/", "k8s.aws/", "ebs.csi.aws.com/", "csivolume", "karpenter.sh/", "velero.io/", "topolvm.", "rook.io/", "pwx_")
"""Anywhere in a key: written by a tool that gives disks to pods."""

_MAKERS: tuple[tuple[str, str], ...] = (
    ("aws:autoscaling:groupname", "auto scaling group {value}"),
    ("aws:ec2launchtemplate:id", "launch template {value}"),
    ("aws:ec2:fleet-id", "fleet {value}"),
    ("aws:backup:*", "AWS Backup ({rest} {value})"),
    ("aws:dlm:*", "lifecycle policy ({rest} {value})"),
    ("dlm:managed", "lifecycle policy"),
    ("aws:imagebuilder:*", "EC2 Image Builder ({rest} {value})"),
    ("ec2imagebuilder*", "EC2 Image Builder {value}"),
    ("imagebuilder*", "EC2 Image Builder {value}"),
    ("image-builder*", "EC2 Image Builder {value}"),
    ("packer*", "Packer {value}"),
    ("awsapplicationmigrationservice*", "AWS Application Migration Service"),
    ("awselasticdisasterrecovery*", "AWS Elastic Disaster Recovery"),
    ("awsservermigrationservice*", "AWS Server Migration Service"),
    ("cloudendure*", "CloudEndure"),
)
"""Keys in small letters, or their beginnings where they end in "*". The first that is there names the maker."""

_MAKERS_BY_VALUE = {
    ("createdby", "ec2 image builder"): "EC2 Image Builder",
    ("created-by", "ec2 image builder"): "EC2 Image Builder",
    ("createdby", "packer"): "Packer",
    ("created-by", "packer"): "Packer",
    ("builder", "packer"): "Packer",
    ("name", "packer builder"): "Packer",
}


def claim_of(tags: Mapping[str, str]) -> str | None:
    """"namespace/name" of the claim, else its volume's name, else the cluster, else the key that says Kubernetes. None: no such tag."""
    small = {key.strip().casefold(): value.strip() for key, value in tags.items()}
    namespace, claim, volume = (next((small[key] for key in keys if small.get(key)), None) for keys in (_NAMESPACE, _CLAIM, _VOLUME))
    if namespace is not None or claim is not None:
        return f"{namespace or '?'}/{claim or '?'}"
    if volume is not None:
        return volume
    cluster = next(_clusters(tags), None)
    if cluster is not None:
        return f"cluster {cluster}"
    key = next((key for key in tags if any(word in key.casefold() for word in _OF_KUBERNETES)), None)
    return None if key is None else f"{key}={tags[key]}".rstrip("=")


def _clusters(tags: Mapping[str, str]) -> Iterator[str]:
    """In the order of the table; the name of one that says only "true" is the key itself."""
    for known in _CLUSTER:
        for key, value in tags.items():
            plain = key.strip()
            if known.endswith("/") and plain.casefold().startswith(known):
                yield plain[len(known) :] or plain
            elif plain.casefold() == known:
                yield plain if value.strip().casefold() in ("", "true", "yes", "owned", "1") else value.strip()


def made_by(tags: Mapping[str, str]) -> str | None:
    """In words; None: no tag tells."""
    small = {key.strip().casefold(): (key.strip(), value.strip()) for key, value in tags.items()}
    for pattern, words in _MAKERS:
        stem = pattern.removesuffix("*")
        for key, (plain, value) in small.items():
            if key == stem or (pattern.endswith("*") and key.startswith(stem)):
                rest = plain[len(stem) :].lstrip(":-_")
                return " ".join(words.format(value=value, rest=rest).replace("( ", "(").replace(" )", ")").split())
    return next((_MAKERS_BY_VALUE[key, value.casefold()] for key, (_, value) in small.items() if (key, value.casefold()) in _MAKERS_BY_VALUE), None)
