"""
One machine of Google's: a fresh read of it, and what is sent to it.

By the numeric id, so that a new machine under an old name is never meant. A verb is sent once, carries an id of its own by
which Google knows a repetition, and is watched for some seconds: an operation that is DONE may have failed all the same.
"""

import re
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from reaper import log
from reaper.clouds.gcp.asking import Asking
from reaper.clouds.gcp.below import Below
from reaper.clouds.gcp.instances import has_local_ssd
from reaper.clouds.gcp.labels import with_ours
from reaper.clouds.gcp.operations import Operations
from reaper.clouds.gcp.permissions import ACTOR, READER, TERMINATE, Permission
from reaper.errors import AnswerLost, CloudError, NotFound, Protected, Unreachable, Unsupported
from reaper.model import policy
from reaper.model.resource import ResourceId
from reaper.ports import Clock

NEEDS = (
    Permission("compute.instances.get", "compute.instances.get", READER, "nothing can be looked at again before it is stopped"),
    Permission("compute.instances.stop", "compute.instances.stop", ACTOR, "nothing can be stopped"),
    Permission("compute.instances.suspend", "compute.instances.suspend", ACTOR, "nothing can be suspended"),
    Permission("compute.instances.start", "compute.instances.start", ACTOR, "nothing that was stopped can be started again"),
    Permission("compute.instances.resume", "compute.instances.resume", ACTOR, "nothing that was suspended can be started again"),
    Permission("compute.instances.setLabels", "compute.instances.setLabels", ACTOR, "what was stopped is in our own record alone"),
    Permission("compute.instances.delete", "compute.instances.delete", TERMINATE, "no machine can be ended whose last snapshots are verified"),
)

SEEN_FOR = timedelta(seconds=10)
"""How old a read may be that a verb relies on: as old as the one that the decision relies on."""

_LOG = log.get(__name__)
_ZONE = re.compile(r"^[a-z]+-[a-z]+\d+-[a-z][a-z0-9]*$")
_GOAL = {"stop": ("TERMINATED", "STOPPED"), "suspend": ("SUSPENDED",), "start": ("RUNNING",), "resume": ("RUNNING",)}
"""Google's own words for where a verb leads. What is deleted is not there any more."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a read showed that a verb goes by. ``at_s``: when it was asked for, on the clock that never steps."""

    at_s: float
    status: str
    type: str
    deletion_protected: bool
    local_ssd: bool


class Machines:
    """``below``: which projects are watched at the moment. Raises CloudError and its kinds only."""

    def __init__(
        self, settings: policy.GcpCloud, asking: Asking, operations: Operations, clock: Clock, stop_s: float, start_s: float, below: Below
    ) -> None:
        self._settings, self._asking, self._operations, self._clock = settings, asking, operations, clock
        self._stop_s, self._start_s = stop_s, start_s
        self._below = below
        self._seen: dict[ResourceId, Look] = {}

    # --- reads --------------------------------------------------------------------------------------------------------

    def require(self, resource: ResourceId) -> None:
        """Raises NotFound for what these settings do not cover: an id may come from anywhere."""
        if resource.cloud != "gcp" or resource.kind != "instance" or not _ZONE.match(resource.place) or not resource.native.isdigit():
            raise NotFound(f"{resource} is not a Compute Engine instance; write it as gcp:project:us-central1-a:instance:1234567890")
        if resource.account not in self._below.known():
            if not self._below.sure():
                raise Unreachable(f"{resource}: whether its project is to be watched is not known: not every folder of clouds.gcp.below could be read yet")
            raise NotFound(f"{resource} is in a project that is not listed; add it to clouds.gcp.projects")
        if self._settings.zones and resource.place not in self._settings.zones:
            raise NotFound(f"{resource} is in a zone that is not listed; add it to clouds.gcp.zones")

    def read(self, resource: ResourceId, *, quickly: bool = False) -> Any:
        """The machine's message. A deleted one is NotFound at once. ``quickly``: once, since a decision waits to be carried out."""
        self.require(resource)
        clients = self._asking.clients
        asked_s, how = self._clock.monotonic(), clients.once(quickly=True) if quickly else clients.read()
        client = self._asking.client("Instances", resource.account)
        answer = self._asking.call(f"read {resource}", lambda: client.get(request=_where(resource), **how))
        raw = type(answer).pb(answer)
        if str(raw.id) != resource.native:
            raise NotFound(f"read {resource}: Google's answer is about {raw.id}; it is gone, or the id is wrong")
        self._seen[resource] = Look(asked_s, raw.status, raw.machine_type.rpartition("/")[2], bool(raw.deletion_protection), has_local_ssd(raw))
        return raw

    def protected(self, raw: Any) -> bool:
        """From being stopped, as far as the operator takes deletion protection for that."""
        return bool(raw.deletion_protection) and self._settings.deletion_protection != "ignore"

    def _just_seen(self, resource: ResourceId) -> Look:
        """By a read that was asked for a moment ago; else it is read now, and not for long."""
        self.require(resource)
        seen = self._seen.pop(resource, None)
        if seen is None or self._clock.monotonic() - seen.at_s > SEEN_FOR.total_seconds():
            self.read(resource, quickly=True)
            seen = self._seen.pop(resource)
        return seen

    # --- verbs --------------------------------------------------------------------------------------------------------

    def stop(self, resource: ResourceId) -> None:
        """What becomes of local SSDs is always said where there are some: Google refuses a stop that does not say it."""
        seen = self._stoppable("stop", resource)
        asked: dict[str, Any] = {"discard_local_ssd": self._settings.local_ssd != "preserve"} if seen.local_ssd else {}
        self._send("stop", resource, asked, self._stop_s)

    def suspend(self, resource: ResourceId) -> None:
        """Raises Unsupported where it has local SSDs, whose content Google would throw away by default, and whatever else Google refuses."""
        seen = self._stoppable("suspend", resource)
        if seen.local_ssd:
            raise Unsupported(f"suspend {resource}: it has local SSDs; nothing was done. Use action = \"stop\" for its policy")
        self._send("suspend", resource, {}, self._stop_s)

    def start(self, resource: ResourceId) -> None:
        """Resumes what is suspended. Watched for some seconds, in which a sold-out zone says so; that names zone and type."""
        seen = self._just_seen(resource)
        verb = "resume" if seen.status in ("SUSPENDED", "SUSPENDING") else "start"
        self._send(verb, resource, {}, self._start_s, where=f"{resource.place}, {seen.type}")

    def delete(self, resource: ResourceId) -> None:
        """Its disks go with it where they are set to. Deletion protection is never lifted, whatever else the operator takes it for."""
        if self._just_seen(resource).deletion_protected:
            raise Protected(f"delete {resource}: deletion protection is on; its owner has to lift it, this product never does")
        self._send("delete", resource, {}, self._stop_s)

    def _stoppable(self, verb: str, resource: ResourceId) -> Look:
        seen = self._just_seen(resource)
        if seen.deletion_protected and self._settings.deletion_protection != "ignore":
            raise Protected(f"{verb} {resource}: deletion protection is on; its owner has to lift it, this product never does")
        return seen

    def label(self, resource: ResourceId, tags: Any) -> None:
        raw = self.read(resource)
        before = dict(raw.labels)
        after = with_ours(before, tags)
        if after == before:
            return
        client = self._asking.client("Instances", resource.account)
        request = {
            **_where(resource), "request_id": str(uuid.uuid4()),
            "instances_set_labels_request_resource": {"labels": after, "label_fingerprint": raw.label_fingerprint},
        }  # fmt: skip
        self._asking.call(f"label {resource}", lambda: client.set_labels_unary(request=request, **self._asking.clients.once()), verb=True)

    def _send(self, verb: str, resource: ResourceId, asked: dict[str, Any], watch_s: float, where: str = "") -> None:
        """Returning means accepted. Raises what the operation ended with, where it already has and the machine shows it."""
        doing, where = f"{verb} {resource}", where or resource.place
        client = self._asking.client("Instances", resource.account)
        call = getattr(client, f"{verb}_unary")
        request = {**_where(resource), **asked, "request_id": str(uuid.uuid4())}
        operation = self._asking.call(doing, lambda: call(request=request, **self._asking.clients.once()), verb=True, where=where)
        if str(operation.target_id) != resource.native:
            raise AnswerLost(f"{doing}: Google's answer does not name it; read it before anything else")
        failure = self._operations.watch(resource, verb, operation, watch_s, where)
        if failure is None:
            return
        try:
            raw = self.read(resource)
        except NotFound:
            if verb == "delete":
                return
            raise failure from None
        except CloudError as error:
            raise AnswerLost(f"{doing}: {failure}; what became of it is not known: {error}", code=failure.code) from failure
        if raw.status not in _GOAL.get(verb, ()):
            raise failure
        _LOG.warning("operation failed, and the machine is where it should be", resource=str(resource), verb=verb, because=str(failure))


def _where(resource: ResourceId) -> dict[str, str]:
    return {"project": resource.account, "zone": resource.place, "instance": resource.native}
