"""
Who else owns a machine: the labels and metadata that groups, clusters and services leave on their members.

Stopping a member starts a fight: a managed group repairs a stopped machine by making it anew, without its boot disk's
changes (https://cloud.google.com/compute/docs/instance-groups/about-repair); a cluster or a service replaces it, or loses
count of it. An instance template is no owner: it says how a machine was made and replaces nothing.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

# (label, or its beginning where it ends in "*"; how the owner is called: {value} is the label's, {rest} what follows the
# beginning). The first that is there names the owner, so the one that acts comes before those around it.
_LABELS = (
    ("goog-k8s-cluster-name", "GKE cluster {value}"),
    ("goog-gke-*", "GKE"),
    ("goog-k8s-*", "GKE"),
    ("goog-dataproc-cluster-name", "Dataproc cluster {value}"),
    ("goog-dataproc-*", "Dataproc ({rest} {value})"),
    ("goog-dataflow-*", "Dataflow ({rest} {value})"),
    ("dataflow_job_id", "Dataflow job {value}"),
    ("goog-pipelines-worker", "Cloud Life Sciences"),
    ("batch-job-id", "Batch job {value}"),
    ("batch-job-uid", "Batch job {value}"),
    ("goog-batch-*", "Batch ({rest} {value})"),
    ("goog-vertex-*", "Vertex AI ({rest} {value})"),
    ("goog-aiplatform-*", "Vertex AI ({rest} {value})"),
    # stopped and started by its own API, idle shutdown included, and shown as broken where that was not asked
    ("notebooks-product", "Vertex AI Workbench ({value})"),
    ("goog-workbench-*", "Vertex AI Workbench ({rest} {value})"),
    ("goog-notebooks-*", "Vertex AI Workbench ({rest} {value})"),
    ("goog-caip-*", "Vertex AI Workbench ({rest} {value})"),
    ("goog-colab-*", "Colab Enterprise ({rest} {value})"),
    ("goog-composer-*", "Cloud Composer ({rest} {value})"),
    # schedulers that power nodes on and off by themselves and mark a vanished one as down
    ("slurm_cluster_name", "Slurm cluster {value}"),
    ("slurm_instance_role", "Slurm ({value})"),
    # other Kubernetes: pods are rescheduled, and a machine that does not come back is removed
    ("capg-cluster-*", "Kubernetes cluster {rest} (Cluster API)"),
    ("k8s-io-cluster-name", "Kubernetes cluster {value} (kOps)"),
    ("kubernetes-io-cluster-*", "Kubernetes cluster {rest}"),
    ("karpenter-*", "Karpenter ({rest} {value})"),
    # launchers that relaunch or recover a lost node, with its work
    ("ray-cluster-name", "Ray cluster {value}"),
    ("skypilot-cluster-name", "SkyPilot cluster {value}"),
    ("skypilot-cluster", "SkyPilot cluster {value}"),
    ("spotinst-*", "Spot Ocean or Elastigroup ({rest} {value})"),
    ("databricks-*", "Databricks ({rest} {value})"),
)

# Labels with Google's prefix that say how a machine was made, or what watches it, and own nothing.
_HARMLESS = ("goog-ec-src", "goog-terraform-provisioned", "goog-ops-agent-", "goog-dm", "goog-solutions-", "goog-partner-", "goog-pulumi-")
_GOOGLE = "goog-"

METADATA = {
    "created-by": "",
    "kube-env": "a Kubernetes cluster",
    "dataproc-cluster-name": "Dataproc cluster {value}",
    "dataproc-cluster-uuid": "Dataproc cluster {value}",
    "notebooks-api": "Vertex AI Workbench",
    "slurm_cluster_name": "Slurm cluster {value}",
    "slurm_instance_role": "Slurm ({value})",
}
"""Metadata keys that speak of an owner, and how it is called. Their values may be long (a whole kube-env) and are then not told."""

_CREATOR = re.compile(r"projects/[^/]+/(?:zones|regions)/[^/]+/(\w+)/([^/]+)")


def owner(labels: Mapping[str, str], metadata: Mapping[str, str]) -> str | None:
    """The owner's name in words, or None where nothing speaks of one. ``metadata``: those of the keys above that are there."""
    return _by_labels(labels) or _by_metadata(metadata)


def _by_labels(labels: Mapping[str, str]) -> str | None:
    best: tuple[int, str] | None = None
    for key in labels:
        rank = _rank(key)
        if rank is not None and (best is None or (rank, key) < best):
            best = (rank, key)
    if best is None:
        return None
    rank, key = best
    if rank == len(_LABELS):
        return f"a Google service that labels its machines {key}"
    name, text = _LABELS[rank]
    return _named(text, labels[key], key[len(name) - 1 :] if name.endswith("*") else "")


@lru_cache(maxsize=4096)  # a project has few keys, and every machine's are looked at in every listing
def _rank(key: str) -> int | None:
    """The place of the first row that a label's key fits; behind all of them an unknown one of Google's; None: it says nothing."""
    for rank, (name, _) in enumerate(_LABELS):
        if key.startswith(name[:-1]) if name.endswith("*") else key == name:
            return rank
    # The prefix is Google's own. One that nobody here knows is some service's that is newer than this list.
    return len(_LABELS) if key.startswith(_GOOGLE) and not key.startswith(_HARMLESS) else None


def _by_metadata(metadata: Mapping[str, str]) -> str | None:
    for key, text in METADATA.items():
        if key not in metadata:
            continue
        if text:
            return _named(text, metadata[key][:80], "")
        made = _CREATOR.search(metadata[key])  # people write their names there, too
        if made is not None:
            kind, name = made.groups()
            return f"managed instance group {name}" if kind == "instanceGroupManagers" else f"{kind} {name}"
    return None


def _named(text: str, value: str, rest: str) -> str:
    return text.format(value=value, rest=rest).replace("()", "").replace(" )", ")").strip()
