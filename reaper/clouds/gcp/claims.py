"""
Whom a disk is kept for: the Kubernetes claim that it was made for, and what made it, as far as its labels, its description and its
name tell. Drivers write the claim into the description as JSON, since labels have no room for it. Pure.

https://cloud.google.com/kubernetes-engine/docs/concepts/persistent-volumes#dynamic_provisioning
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from reaper.clouds.gcp.owners import owner

IMAGE_BUILD = "an image build"

_MADE_FOR, _DRIVER = "kubernetes.io/created-for/", "storage.gke.io/created-by"
_DYNAMIC = re.compile(r"(?:^|-)pvc-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}")  # "pvc-UUID", and "gke-CLUSTER-pvc-UUID" of the driver before
_CLUSTERS = (
    ("goog-k8s-cluster-name", "GKE cluster {value}"), ("goog-gke-*", "GKE"), ("goog-k8s-*", "GKE"), ("k8s-io-cluster-name", "Kubernetes cluster {value} (kOps)"),
    ("kubernetes-io-cluster-*", "Kubernetes cluster {rest}"), ("capg-cluster-*", "Kubernetes cluster {rest} (Cluster API)"), ("k8s-*", "Kubernetes ({key})"),
    ("kubernetes*", "Kubernetes ({key})"), ("csi-*", "Kubernetes ({key})"), ("velero*", "Kubernetes (Velero)"),
)  # fmt: skip
_PACKER, _PACKED = re.compile(r"packer(?![a-z])"), re.compile(r"packer-[0-9a-f]{8}-")  # of labels; its own word for what it makes


def claim(name: str, labels: Mapping[str, str], description: str) -> str | None:
    """``NAMESPACE/NAME`` of the claim where that is told, else whatever names the volume or the cluster; None: nothing speaks of Kubernetes."""
    told = _told(description)
    namespace, claimed, volume = (told.get(f"{_MADE_FOR}{what}") for what in ("pvc/namespace", "pvc/name", "pv/name"))
    for key, value in labels.items():
        words = re.sub(r"[^a-z0-9]+", "-", key.lower())
        if not value:
            continue
        if words.endswith("pvc-namespace"):
            namespace = namespace or value
        elif words.endswith("pvc-name"):
            claimed = claimed or value
        elif words.endswith("pv-name"):
            volume = volume or value
    if claimed:
        return f"{namespace or '?'}/{claimed}"
    if volume:
        return volume
    if _DYNAMIC.search(name):
        return name
    labelled = next((f"Kubernetes ({key} {value})".replace(" )", ")") for key, value in sorted(labels.items()) if "pvc-" in key or key == "pvc"), None)
    return labelled or _cluster(labels) or ("Kubernetes, as its description says" if "kubernetes.io/" in description else None)


def maker(name: str, labels: Mapping[str, str], description: str) -> str | None:
    """An image build, a driver, a service; else what is known to have set it up."""
    if any(_PACKER.match(word) for key, value in labels.items() for word in (key, value)) or _PACKED.match(name):
        return f"{IMAGE_BUILD} (Packer)"
    if "created by daisy in workflow" in description.lower():
        return f"{IMAGE_BUILD} (Daisy)"
    said = _told(description).get(_DRIVER) or labels.get("goog-created-by")
    if said:
        return said
    service = owner(labels, {})
    if service is not None:
        return service
    if "goog-dm" in labels:
        return f"Deployment Manager {labels['goog-dm']}".strip()
    return "Terraform" if labels.get("goog-terraform-provisioned") == "true" else None


def _cluster(labels: Mapping[str, str]) -> str | None:
    for pattern, text in _CLUSTERS:
        start = pattern.rstrip("*")
        for key in sorted(labels):
            if key.startswith(start) if pattern.endswith("*") else key == pattern:
                return text.format(key=key, value=labels[key], rest=key[len(start) :])
    return None


def _told(description: str) -> dict[str, str]:
    """What a driver wrote there. People write there, too: whatever else it is says nothing."""
    if not description.lstrip().startswith("{"):
        return {}
    try:
        found: Any = json.loads(description)
    except (ValueError, RecursionError):
        return {}
    return {str(key): value.strip() for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}
