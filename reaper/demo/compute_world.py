"""
What a small Google Cloud holds, and what it refuses: projects, zones, machines, operations that take time.

The slice of Compute Engine v1 that a reaper meets, as dictionaries in Google's own JSON. Nothing here speaks HTTP; see
`compute_server`. What Google refuses is refused with its status and reason; texts are only meant for people.
https://cloud.google.com/compute/docs/reference/rest/v1
"""

import base64
import hashlib
import itertools
import json
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from reaper.clock import SystemClock
from reaper.demo.compute_shelves import Shelves, where
from reaper.ports import Clock

Json = dict[str, Any]

PAGE = 500
"""The most that one page of a listing holds, and what it holds when nothing else is asked for."""

_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_MOST_LABELS = 64

# verb: from where, through what, to where; and which timestamp it leaves.
_VERBS: Mapping[str, tuple[str, str, str, str]] = {
    "stop": ("RUNNING", "STOPPING", "TERMINATED", "lastStopTimestamp"),
    "suspend": ("RUNNING", "SUSPENDING", "SUSPENDED", "lastSuspendedTimestamp"),
    "start": ("TERMINATED", "STAGING", "RUNNING", "lastStartTimestamp"),
    "resume": ("SUSPENDED", "STAGING", "RUNNING", "lastStartTimestamp"),
}

# name: (accelerator, how many, local SSDs it brings). https://cloud.google.com/compute/docs/accelerator-optimized-machines
TYPES: Mapping[str, tuple[str | None, int, int]] = {
    "e2-standard-8": (None, 0, 0),
    "n2-highmem-32": (None, 0, 0),
    "n1-standard-8": (None, 0, 0),
    "z3-highmem-88": (None, 0, 12),
    "g2-standard-8": ("nvidia-l4", 1, 0),
    "g2-standard-24": ("nvidia-l4", 2, 0),
    "a2-highgpu-1g": ("nvidia-tesla-a100", 1, 0),
    "a2-highgpu-8g": ("nvidia-tesla-a100", 8, 0),
    "a2-ultragpu-1g": ("nvidia-a100-80gb", 1, 1),
    "a3-highgpu-8g": ("nvidia-h100-80gb", 8, 16),
}


_LISTS = {"instances": "instance", "disks": "disk", "addresses": "address", "commitments": "commitment", "resourcePolicies": "resourcePolicy"}

# name: (vCPUs, MB of memory); any other has 8 and 32 GB.
SIZES: Mapping[str, tuple[int, int]] = {"g2-standard-24": (24, 98304), "a2-highgpu-1g": (12, 87040), "m1-ultramem-40": (40, 984064), "n2-highmem-32": (32, 262144)}


class Refusal(Exception):
    """What Google answers instead: HTTP status, reason, text."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status, self.reason, self.message = status, reason, message
        super().__init__(message)


@dataclass
class Operation:
    """``ends_s``: on the world's clock, infinite for one that never ends. ``done`` is called once, with the error it ended with."""

    body: Json
    ends_s: float
    done: Callable[[Json | None], None]
    error: Json | None = None


@dataclass
class World:
    """
    ``op_s``: seconds that an operation takes, counted when somebody looks. ``op_errors``: by verb, how the next operation
    of it ends instead (``{"code": …, "message": …}``). ``lost``: zone to how a listing leaves it out ("unreachable",
    "warning", "silent"). ``denied``: projects whose every call is refused. ``off``: those where the API is
    not switched on.
    """

    base: str = ""
    zones: dict[str, tuple[str, ...]] = field(default_factory=dict)
    op_s: float = 0.0
    op_errors: dict[str, list[Json]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    off: set[str] = field(default_factory=set)
    types: dict[str, tuple[str | None, int, int]] = field(default_factory=lambda: dict(TYPES))
    instances: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    policies: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    operations: dict[tuple[str, str, str], Operation] = field(default_factory=dict)
    shelves: Shelves = field(default_factory=Shelves)
    lock: threading.RLock = field(default_factory=threading.RLock)
    clock: Clock = field(default_factory=SystemClock)
    check: Callable[[str, Json], None] = lambda schema, resource: None
    """Called with a schema's name and every resource that comes into being; raises where it is not one."""

    _ids: Any = field(default_factory=lambda: itertools.count(5_000_000_000_000_000_001))
    _asked: dict[tuple[str, str, str], Json] = field(default_factory=dict)

    # --- what a test or the demo does to it ---------------------------------------------------------------------------

    def launch(self, name: str, project: str, zone: str, type: str = "g2-standard-8", *, age: timedelta = timedelta(0), **more: Any) -> Json:
        """A running machine as Google shows it, started ``age`` ago. ``more`` replaces its fields."""
        started = _stamp(self.clock.now() - age)
        number = str(next(self._ids))
        disks = [{"kind": "compute#attachedDisk", "type": "PERSISTENT", "mode": "READ_WRITE", "boot": True, "autoDelete": True, "index": 0,
                  "deviceName": name, "interface": "SCSI", "diskSizeGb": "100", "source": self.link(project, zone, "disks", name)}]  # fmt: skip
        for index in range(self.types.get(type, (None, 0, 0))[2]):
            disks.append({"kind": "compute#attachedDisk", "type": "SCRATCH", "mode": "READ_WRITE", "autoDelete": True, "index": index + 1,
                          "deviceName": f"local-ssd-{index}", "interface": "NVME", "diskSizeGb": "375"})  # fmt: skip
        body: Json = {
            "kind": "compute#instance", "id": number, "name": name, "creationTimestamp": started, "lastStartTimestamp": started,
            "status": "RUNNING", "zone": self._zone_link(project, zone), "selfLink": self.link(project, zone, "instances", name),
            "machineType": self.link(project, zone, "machineTypes", type), "cpuPlatform": "Intel Cascade Lake", "labels": {},
            "metadata": {"kind": "compute#metadata", "fingerprint": fingerprint({}), "items": []}, "disks": disks, "deletionProtection": False,
            "networkInterfaces": [{"kind": "compute#networkInterface", "name": "nic0", "networkIP": "10.0.0.2", "stackType": "IPV4_ONLY",
                                   "network": f"{self.base}/compute/v1/projects/{project}/global/networks/default"}],
            "scheduling": {"provisioningModel": "STANDARD", "preemptible": False, "automaticRestart": True, "onHostMaintenance": "TERMINATE"},
            "tags": {"fingerprint": fingerprint({})}, "fingerprint": fingerprint({"name": name}), "startRestricted": False, **more,
        }  # fmt: skip
        body.setdefault("labelFingerprint", fingerprint(body["labels"]))
        self.check("Instance", body)
        with self.lock:
            if zone not in self.zones.get(project, ()):
                self.zones[project] = (*self.zones.get(project, ()), zone)
            self.instances[(project, zone, number)] = body
            for disk in body["disks"]:
                if disk.get("source"):
                    self.check("Disk", self.shelves.put(disk, body, str(next(self._ids)), started))
        return body

    def add_policy(self, name: str, project: str, region: str, **kind: Any) -> str:
        """A resource policy; its link. ``kind``: ``instanceSchedulePolicy`` or ``groupPlacementPolicy``."""
        link = f"{self.base}/compute/v1/projects/{project}/regions/{region}/resourcePolicies/{name}"
        body = {"kind": "compute#resourcePolicy", "id": str(next(self._ids)), "name": name, "status": "READY", "selfLink": link,
                "creationTimestamp": _stamp(self.clock.now()), "region": f"{self.base}/compute/v1/projects/{project}/regions/{region}", **kind}  # fmt: skip
        self.check("ResourcePolicy", body)
        with self.lock:
            self.policies[(project, region, name)] = body
        return link

    def add_disk(self, name: str, project: str, place: str, *, type: str = "pd-balanced", age: timedelta = timedelta(days=30), **more: Any) -> Json:
        """A disk that nothing is attached to, and never was. ``place``: a zone, or a region for one in two zones. ``more`` replaces its fields."""
        scope = "regions" if place.count("-") == 1 else "zones"
        base = f"{self.base}/compute/v1/projects/{project}/{scope}/{place}"
        number, at = str(next(self._ids)), _stamp(self.clock.now() - age)
        where_it_is: Json = {"zone": base} if scope == "zones" else {
            "region": base, "replicaZones": [self._zone_link(project, f"{place}-{letter}") for letter in "ab"],
        }  # fmt: skip
        body: Json = {
            "kind": "compute#disk", "id": number, "name": name, "selfLink": f"{base}/disks/{name}", "status": "READY", "creationTimestamp": at, "sizeGb": "100",
            "type": f"{base}/diskTypes/{type}", "labels": {}, "physicalBlockSizeBytes": "4096", **where_it_is, **more,
        }  # fmt: skip
        self.check("Disk", body)
        with self.lock:
            if scope == "zones" and place not in self.zones.get(project, ()):
                self.zones[project] = (*self.zones.get(project, ()), place)
            self.shelves.disks[where(body["selfLink"])] = body
        return body

    def add_snapshot(self, name: str, project: str, disk: Json, *, age: timedelta = timedelta(days=10), **more: Any) -> Json:
        """A snapshot that is ready, of a disk that may be gone by now."""
        body: Json = {
            "kind": "compute#snapshot", "id": str(next(self._ids)), "name": name, "selfLink": f"{self.base}/compute/v1/projects/{project}/global/snapshots/{name}",
            "status": "READY", "creationTimestamp": _stamp(self.clock.now() - age), "sourceDisk": disk["selfLink"], "sourceDiskId": disk["id"],
            "diskSizeGb": disk["sizeGb"], "labels": {}, "storageBytes": str(10 * 2**30), "storageBytesStatus": "UP_TO_DATE", "storageLocations": ["us"], **more,
        }  # fmt: skip
        self.check("Snapshot", body)
        with self.lock:
            self.shelves.snapshots[(project, name)] = body
        return body

    def add_address(self, name: str, project: str, region: str, **more: Any) -> Json:
        """A reserved external address that nothing uses. ``region`` "global": one of no region."""
        base = f"{self.base}/compute/v1/projects/{project}/" + (region if region == "global" else f"regions/{region}")
        body: Json = {
            "kind": "compute#address", "id": str(next(self._ids)), "name": name, "address": "203.0.113.9", "status": "RESERVED", "addressType": "EXTERNAL",
            "creationTimestamp": _stamp(self.clock.now() - timedelta(days=90)), "selfLink": f"{base}/addresses/{name}", "networkTier": "PREMIUM", **more,
        }  # fmt: skip
        self.check("Address", body)
        with self.lock:
            self.shelves.addresses.setdefault((project, region), []).append(body)
        return body

    def machine(self, native: str) -> Json:
        """By its numeric id."""
        return next(body for (_, _, number), body in self.instances.items() if number == native)

    def remove(self, native: str) -> None:
        with self.lock:
            self.instances = {key: body for key, body in self.instances.items() if key[2] != native}

    def settle(self, everything: bool = False) -> None:
        """End the operations whose time has come; ``everything``: all of them."""
        for operation in tuple(self.operations.values()):
            self._look(operation, everything)

    # --- reads --------------------------------------------------------------------------------------------------------

    def instance(self, project: str, zone: str, name: str) -> Json:
        """By name or numeric id, as Google takes both."""
        self._require_zone(project, zone)
        found = self.instances.get((project, zone, name))
        if found is None:
            found = next((b for (p, z, _), b in self.instances.items() if (p, z) == (project, zone) and b["name"] == name), None)
        if found is None:
            raise Refusal(404, "notFound", f"The resource 'projects/{project}/zones/{zone}/instances/{name}' was not found")
        return found

    def machine_type(self, project: str, zone: str, name: str) -> Json:
        self._require_zone(project, zone)
        if name not in self.types:
            raise Refusal(404, "notFound", f"The resource 'projects/{project}/zones/{zone}/machineTypes/{name}' was not found")
        model, count, ssds = self.types[name]
        body: Json = {"kind": "compute#machineType", "id": "801008", "name": name, "zone": zone, "guestCpus": SIZES.get(name, (8, 32768))[0], "memoryMb": SIZES.get(name, (8, 32768))[1],
                      "selfLink": self.link(project, zone, "machineTypes", name)}  # fmt: skip
        if model is not None:
            body["accelerators"] = [{"guestAcceleratorType": model, "guestAcceleratorCount": count}]
        if ssds:
            body["bundledLocalSsds"] = {"defaultInterface": "NVME", "partitionCount": ssds}
        return body

    def operation(self, project: str, zone: str, name: str) -> Json:
        if zone:
            self._require_zone(project, zone)
        found = self.operations.get((project, zone, name))
        if found is None:
            raise Refusal(404, "notFound", f"The operation '{name}' of project '{project}' was not found")
        return self._look(found)

    def aggregated(self, kind: str, project: str, size: int, token: str | None) -> Json:
        """One page of an aggregated listing: every scope is in every page, those without a result on it with a warning."""
        if not 0 <= size <= PAGE:
            raise Refusal(400, "invalid", f"Invalid value for field 'maxResults': '{size}'. Must be between 0 and {PAGE}")
        start, name = self._start(token), _LISTS[kind]
        rows = [row for row in self._held(kind, project) if row[0].rpartition("/")[2] not in self.lost]
        scopes = self._scopes(kind, project)
        page = rows[start : start + (size or PAGE)]
        items: Json = {scope: {kind: [body for where, body in page if where == scope]} for scope in scopes}
        answer: Json = {"kind": f"compute#{name}AggregatedList", "id": f"projects/{project}/aggregated/{kind}",
                        "selfLink": f"{self.base}/compute/v1/projects/{project}/aggregated/{kind}", "items": items}  # fmt: skip
        for scope in scopes:
            how = self.lost.get(scope.rpartition("/")[2])
            if how == "silent":
                del items[scope]
            elif how == "unreachable":
                del items[scope]
                answer.setdefault("unreachables", []).append(f"projects/{project}/{scope}")
            elif how == "warning":
                items[scope] = {"warning": {"code": "UNREACHABLE", "message": f"The scope '{scope}' is currently unreachable.",
                                            "data": [{"key": "scope", "value": scope}]}}  # fmt: skip
            elif not items[scope][kind]:
                items[scope] = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": f"There are no results for scope '{scope}' on this page.",
                                            "data": [{"key": "scope", "value": scope}]}}  # fmt: skip
        if start + len(page) < len(rows):
            answer["nextPageToken"] = base64.urlsafe_b64encode(f"{name}:{start + len(page)}".encode()).decode()
        return answer

    def _held(self, kind: str, project: str) -> list[tuple[str, Json]]:
        """What a listing is of, each with its scope."""
        if kind == "instances":
            return [(f"zones/{place}", body) for (p, place, _), body in sorted(self.instances.items()) if p == project]
        if kind == "resourcePolicies":
            return [(f"regions/{place}", body) for (p, place, _), body in sorted(self.policies.items()) if p == project]
        return self.shelves.held(kind, project)

    def _scopes(self, kind: str, project: str) -> list[str]:
        zones = self.zones.get(project, ())
        regions = {f"regions/{zone.rpartition('-')[0]}" for zone in zones} | {scope for scope, _ in self._held(kind, project) if scope.startswith("regions/")}
        return [
            *(f"zones/{zone}" for zone in zones if kind in ("instances", "disks")), *(sorted(regions) if kind != "instances" else ()),
            *(("global",) if kind == "addresses" else ()),
        ]  # fmt: skip

    # --- verbs --------------------------------------------------------------------------------------------------------

    def act(self, verb: str, project: str, zone: str, name: str, query: Mapping[str, str]) -> Json:
        """Stop, start, suspend, resume. A verb for what is so already is accepted and changes nothing."""
        body = self.instance(project, zone, name)
        again = self._once(verb, project, body["id"], query.get("requestId"))
        if again is not None:
            return again
        needs, through, to, leaves = _VERBS[verb]
        status = body["status"]
        if status in (through, to):
            return self._begin(verb, project, zone, body, query, lambda error: None)
        if status != needs:
            text = {"RUNNING": "running", "SUSPENDED": "already suspended", "TERMINATED": "stopped or terminated"}.get(status, status)
            raise Refusal(400, "resourceNotReady" if status.endswith("ING") and status != "RUNNING" else "UNSUPPORTED_OPERATION",
                          f"You cannot {verb} an instance that is {text}.")  # fmt: skip
        if verb in ("stop", "suspend"):
            self._require_choice(verb, body, query)
        body["status"] = through

        def done(error: Json | None) -> None:
            body["status"] = to if error is None else needs
            if error is None:
                body[leaves] = _stamp(self.clock.now())

        return self._begin(verb, project, zone, body, query, done)

    def set_labels(self, project: str, zone: str, name: str, asked: Json, query: Mapping[str, str]) -> Json:
        body = self.instance(project, zone, name)
        if asked.get("labelFingerprint") != body["labelFingerprint"]:  # an empty one too
            raise Refusal(412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed")
        labels = asked.get("labels", {})
        for key, value in labels.items():
            if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
                raise Refusal(400, "invalid", f"Label '{key}' or its value '{value}' violates format constraints.")
        if len(labels) > _MOST_LABELS:
            raise Refusal(400, "invalid", f"The number of labels exceeds the limit of {_MOST_LABELS}")
        body["labels"], body["labelFingerprint"] = dict(labels), fingerprint(labels)
        return self._begin("setLabels", project, zone, body, query, lambda error: None)

    def delete(self, project: str, zone: str, name: str, query: Mapping[str, str]) -> Json:
        body = self.instance(project, zone, name)
        if body.get("deletionProtection"):
            raise Refusal(400, "invalidUsage", "Resource cannot be deleted if it's protected against deletion.")
        body["status"] = "STOPPING"
        again = self._once("delete", project, body["id"], query.get("requestId"))
        if again is not None:
            return again

        def done(error: Json | None) -> None:
            if error is None:
                self.remove(body["id"])
                for disk in body["disks"]:
                    if disk.get("source") and disk.get("autoDelete"):
                        self.shelves.disks.pop(where(disk["source"]), None)
                self.shelves.release(body["selfLink"], _stamp(self.clock.now()))

        return self._begin("delete", project, zone, body, query, done)

    def snapshot(self, project: str, asked: Json, query: Mapping[str, str]) -> Json:
        """One of one disk. It is there once its operation has begun, unless that is to fail; READY after ``shelves.uploads`` looks at it."""
        name = str(asked.get("name", ""))
        again = self._once("snapshot", project, name, query.get("requestId"))
        if again is not None:
            return again
        disk = self.shelves.disk(asked.get("sourceDisk", ""))
        if (project, name) in self.shelves.snapshots:
            raise Refusal(409, "alreadyExists", f"The resource 'projects/{project}/global/snapshots/{name}' already exists")
        if disk.get("diskEncryptionKey") and not disk["diskEncryptionKey"].get("kmsKeyName"):
            raise Refusal(400, "resourceIsEncryptedWithCustomerEncryptionKey", "The resource is encrypted with a key that was not given.")
        link = f"{self.base}/compute/v1/projects/{project}/global/snapshots/{name}"
        made = self.shelves.snapshot(disk, asked, link, str(next(self._ids)), _stamp(self.clock.now()))
        self.check("Snapshot", made)
        failing = bool(self.op_errors.get("snapshot"))
        if not failing:
            self.shelves.snapshots[(project, name)] = made
        return self._begin("snapshot", project, "", {"selfLink": link, "id": name}, query, lambda error: None)

    def listed(self, project: str, kind: str, query: Mapping[str, str]) -> Json:
        """One page of the project's snapshots, by name."""
        start, size = self._start(query.get("pageToken")), int(query.get("maxResults", 0)) or PAGE
        rows = self.shelves.found(project, query.get("filter"))
        answer: Json = {"kind": f"compute#{kind}List", "id": f"projects/{project}/global/{kind}s", "items": rows[start : start + size],
                        "selfLink": f"{self.base}/compute/v1/projects/{project}/global/{kind}s"}  # fmt: skip
        if start + size < len(rows):
            answer["nextPageToken"] = base64.urlsafe_b64encode(f"{kind}:{start + size}".encode()).decode()
        return answer

    # --- inside -------------------------------------------------------------------------------------------------------

    def link(self, project: str, zone: str, kind: str, name: str) -> str:
        return f"{self._zone_link(project, zone)}/{kind}/{name}"

    def _zone_link(self, project: str, zone: str) -> str:
        return f"{self.base}/compute/v1/projects/{project}/zones/{zone}"

    def _require_zone(self, project: str, zone: str) -> None:
        if project not in self.zones:
            raise Refusal(404, "notFound", f"The resource 'projects/{project}' was not found")
        if zone not in self.zones[project]:
            raise Refusal(400, "invalid", f"Invalid value for field 'zone': '{zone}'. Unknown zone.")

    @staticmethod
    def _require_choice(verb: str, body: Json, query: Mapping[str, str]) -> None:
        if any(disk.get("type") == "SCRATCH" for disk in body["disks"]) and query.get("discardLocalSsd") is None:
            raise Refusal(400, "badRequest", "VM has a Local SSD attached but an undefined value for `discard-local-ssd`.")
        if verb == "suspend" and SIZES.get(body["machineType"].rpartition("/")[2], (8, 0))[1] > 208 * 1024:
            raise Refusal(400, "UNSUPPORTED_OPERATION", "Instances with more than 208 GB of memory cannot be suspended.")
        if verb == "suspend" and (body.get("guestAccelerators") or body.get("confidentialInstanceConfig", {}).get("enableConfidentialCompute")):
            raise Refusal(400, "UNSUPPORTED_OPERATION", "Suspending this kind of instance is not supported.")

    @staticmethod
    def _start(token: str | None) -> int:
        if not token:
            return 0
        try:
            return int(base64.urlsafe_b64decode(token).decode().partition(":")[2])
        except ValueError:
            raise Refusal(400, "invalid", f"Invalid value for field 'pageToken': '{token}'.") from None

    def _once(self, verb: str, project: str, target: str, request: str | None) -> Json | None:
        """The operation that this request id began before, if it did. Not kept for the hour that Google does: for ever."""
        if request is None:
            return None
        try:
            if uuid.UUID(request).int == 0:
                raise ValueError
        except ValueError:
            raise Refusal(400, "invalid", f"Invalid value for field 'requestId': '{request}'. Must be a UUID, not all zeros") from None
        return self._asked.get((verb, f"{project}/{target}", request))

    def _begin(self, verb: str, project: str, zone: str, target: Json, query: Mapping[str, str], done: Callable[[Json | None], None]) -> Json:
        name = f"operation-{uuid.uuid4().hex[:20]}"
        at = _stamp(self.clock.now())
        body: Json = {
            "kind": "compute#operation", "id": str(next(self._ids)), "name": name, "operationType": verb, "status": "RUNNING", "progress": 0,
            "targetLink": target["selfLink"], "targetId": target["id"], "insertTime": at, "startTime": at, "user": "reaper@example.com",
            "selfLink": f"{self.base}/compute/v1/projects/{project}/global/operations/{name}",
        }  # fmt: skip
        if zone:
            body |= {"zone": self._zone_link(project, zone), "selfLink": self.link(project, zone, "operations", name)}
        if not str(body["targetId"]).isdigit():
            del body["targetId"]
        if query.get("requestId") is not None:
            body["clientOperationId"] = query["requestId"]
            self._asked[(verb, f"{project}/{target['id']}", query["requestId"])] = body
        errors = self.op_errors.get(verb)
        error = errors.pop(0) if errors else None
        self.operations[(project, zone, name)] = Operation(body, self.clock.monotonic() + self.op_s, done, error)
        return body

    def _look(self, operation: Operation, now: bool = False) -> Json:
        body = operation.body
        if body["status"] != "DONE" and (now or self.clock.monotonic() >= operation.ends_s):
            body.update(status="DONE", progress=100, endTime=_stamp(self.clock.now()))
            error = operation.error
            if error is not None:
                # Google's progress is 100 on failures, too
                told = {key: value for key, value in error.items() if key != "http"}
                body.update(httpErrorStatusCode=error.get("http", 400), httpErrorMessage="BAD REQUEST", **({"error": {"errors": [told]}} if told else {}))
            operation.done(error)
        return body


def fingerprint(content: Mapping[str, Any]) -> str:
    """Eight bytes in base64, as Google's are."""
    return base64.b64encode(hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()[:8]).decode()


def _stamp(moment: datetime) -> str:
    """As Google writes them: with an offset (its own is that of California)."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
