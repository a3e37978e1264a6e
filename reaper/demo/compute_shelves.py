"""
The disks of a small Google Cloud and their snapshots, and what a project has beside machines: addresses and commitments.

Dictionaries in Google's own JSON, as in `compute_world`. A disk is found by its link, a snapshot by its project and name.
https://cloud.google.com/compute/docs/reference/rest/v1/disks
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

_FILTER = re.compile(r'labels\.([a-z0-9_-]+) ?= ?"([a-z0-9_-]*)"')


class NotThere(LookupError):
    """What was asked for does not exist."""


@dataclass
class Shelves:
    """
    ``uploads``: how often a new snapshot is looked at before it is READY. ``addresses`` and ``commitments``: by (project, region).
    """

    disks: dict[str, Json] = field(default_factory=dict)
    snapshots: dict[tuple[str, str], Json] = field(default_factory=dict)
    addresses: dict[tuple[str, str], list[Json]] = field(default_factory=dict)
    commitments: dict[tuple[str, str], list[Json]] = field(default_factory=dict)
    uploads: int = 0
    fails: set[str] = field(default_factory=set)
    """Names of disks whose next snapshot ends FAILED."""

    _looks: dict[str, int] = field(default_factory=dict)

    def put(self, attached: Mapping[str, Any], machine: Json, number: str, at: str) -> Json:
        """The disk of an entry of a machine's ``disks``, made if it is not there."""
        link = str(attached["source"])
        place = {"region": link[: link.index("/disks/")]} if "/regions/" in link else {"zone": link[: link.index("/disks/")]}
        there = self.disks.get(where(link))
        if there is not None:
            there["users"] = sorted({*there.get("users", ()), machine["selfLink"]})
            there["lastAttachTimestamp"] = at
            return there
        made: Json = {
            "kind": "compute#disk", "id": number, "name": link.rpartition("/")[2], "selfLink": link, "status": "READY", "creationTimestamp": at,
            "lastAttachTimestamp": at, "sizeGb": attached.get("diskSizeGb", "100"), "users": [machine["selfLink"]], "labels": {},
            "type": f"{link[: link.index('/disks/')]}/diskTypes/pd-balanced", **place,
        }  # fmt: skip
        if attached.get("diskEncryptionKey"):
            made["diskEncryptionKey"] = attached["diskEncryptionKey"]
        self.disks[where(link)] = made
        return made

    def release(self, machine: str, at: str) -> None:
        """A machine is gone, by its link: what it did not take with it is attached to it no more."""
        for body in self.disks.values():
            if machine in body.get("users", ()):
                body["users"] = [user for user in body["users"] if user != machine]
                body["lastDetachTimestamp"] = at

    def disk(self, link: str) -> Json:
        """Raises NotThere."""
        found = self.disks.get(where(link))
        if found is None:
            raise NotThere(f"The resource '{where(link)}' was not found")
        return found

    def snapshot(self, disk: Json, asked: Json, link: str, number: str, at: str) -> Json:
        made: Json = {
            "kind": "compute#snapshot", "id": number, "name": asked["name"], "selfLink": link, "status": "UPLOADING", "creationTimestamp": at,
            "sourceDisk": disk["selfLink"], "sourceDiskId": disk["id"], "diskSizeGb": disk["sizeGb"], "labels": asked.get("labels", {}),
            "description": asked.get("description", ""), "storageBytes": "0", "storageBytesStatus": "UPDATING", "storageLocations": ["us"],
        }  # fmt: skip
        if asked.get("snapshotEncryptionKey"):
            made["snapshotEncryptionKey"] = asked["snapshotEncryptionKey"]
        self._looks[number] = self.uploads
        return made

    def found(self, project: str, filter: str | None) -> list[Json]:
        """By name, those that the filter asks for. Raises ValueError for a filter that this server does not know."""
        wanted: tuple[str, str] | None = None
        if filter:
            asked = _FILTER.fullmatch(filter)
            if asked is None:
                raise ValueError(f"this server does not know the filter {filter}")
            wanted = asked[1], asked[2]
        rows = [body for (p, _), body in sorted(self.snapshots.items()) if p == project and (wanted is None or body["labels"].get(wanted[0]) == wanted[1])]
        for body in rows:
            self._look(body)
        return rows

    def _look(self, body: Json) -> None:
        left = self._looks.get(body["id"], 0)
        self._looks[body["id"]] = left - 1
        disk = body["sourceDisk"].rpartition("/")[2]
        if body["status"] == "UPLOADING" and left <= 0:
            body.update(status="FAILED" if disk in self.fails else "READY", storageBytes="1024", storageBytesStatus="UP_TO_DATE")
            self.fails.discard(disk)

    def held(self, kind: str, project: str) -> list[tuple[str, Json]]:
        """Disks, addresses or commitments of a project with the scope that each is in ("zones/z", "regions/r", "global"), in the order of a listing."""
        if kind == "disks":
            mine = ((link, body) for link, body in sorted(self.disks.items()) if link.startswith(f"projects/{project}/"))
            return [(link.removeprefix(f"projects/{project}/").partition("/disks/")[0], body) for link, body in mine]
        of = self.addresses if kind == "addresses" else self.commitments
        return [(region if region == "global" else f"regions/{region}", body) for (p, region), bodies in sorted(of.items()) if p == project for body in bodies]


def where(link: str) -> str:
    """The part of a link that does not depend on how the server was reached."""
    return link[link.find("projects/") :]
