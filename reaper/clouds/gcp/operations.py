"""
Operations of ours: watched for a while after a verb, and asked about again when the machine is next read.

Polled with our own client: the library's own poller asks another address, with other credentials.
"""

import threading
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from reaper import log
from reaper.clouds.gcp.answers import operation_failure
from reaper.clouds.gcp.asking import Asking
from reaper.clouds.gcp.permissions import READER, SNAPSHOTS, Permission
from reaper.errors import CloudError, KeyUnusable, NoCapacity, NotFound, QuotaReached
from reaper.model.kinds.instance import Hindrance
from reaper.model.resource import ResourceId
from reaper.ports import Clock

FOLLOWED_FOR = timedelta(hours=1)
"""How long we remember an operation of ours whose end we have not seen, or that failed."""

NEEDS = (
    Permission("compute.zoneOperations.get", "compute.zoneOperations.get", READER, "why a start or a stop failed is not known"),
    Permission("compute.globalOperations.get", "compute.globalOperations.get", SNAPSHOTS, "why a snapshot failed is not known"),
)

_LOG = log.get(__name__)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A verb of ours that Google took. ``operation``: its name; ``at_s``: when, on the clock that never steps."""

    verb: str
    operation: str
    at_s: float
    where: str


class Operations:
    """``poll_s``: seconds between two looks."""

    def __init__(self, asking: Asking, clock: Clock, poll_s: float) -> None:
        self._asking, self._clock, self._poll_s = asking, clock, poll_s
        self._sent: dict[ResourceId, _Sent] = {}

    def watch(self, resource: ResourceId, verb: str, operation: Any, for_s: float, where: str) -> CloudError | None:
        """Look at it until it is done, for so many seconds. Why it failed; None: it did not, or is not done yet."""
        self._sent[resource] = _Sent(verb, operation.name, self._clock.monotonic(), where)
        until = self._clock.monotonic() + for_s
        while not _done(operation):
            if self._clock.monotonic() >= until:
                return None
            threading.Event().wait(self._poll_s)
            try:
                operation = self._read(resource, operation.name)
            except CloudError as error:
                _LOG.warning("operation not readable", resource=str(resource), operation=operation.name, because=str(error))
                return None  # accepted it is, and the machine itself will tell
        self._sent.pop(resource, None)
        _warned(operation, resource)
        return operation_failure(operation, f"{verb} {resource}", where)

    def how_it_ended(self, resource: ResourceId) -> CloudError | None:
        """Why the last verb of ours failed after we had stopped watching it; None: it did not, or that is not known."""
        sent = self._sent.get(resource)
        if sent is None:
            return None
        if self._clock.monotonic() - sent.at_s > FOLLOWED_FOR.total_seconds():
            self._sent.pop(resource, None)
            return None
        try:
            operation = self._read(resource, sent.operation)
        except NotFound:
            self._sent.pop(resource, None)  # Google forgets operations after a while; the machine itself will tell
            return None
        except CloudError as error:
            _LOG.warning("operation not readable", resource=str(resource), operation=sent.operation, because=str(error))
            return None
        if not _done(operation):
            return None
        failure = operation_failure(operation, f"{sent.verb} {resource}", sent.where)
        if failure is None:
            self._sent.pop(resource, None)  # one that failed is told as long as it is remembered
        return failure

    def watch_global(self, project: str, operation: Any, doing: str, for_s: float) -> CloudError | None:
        """One of no zone (of a snapshot, say): why it failed; None: it did not, or is not done yet."""
        until = self._clock.monotonic() + for_s
        while not _done(operation):
            if self._clock.monotonic() >= until:
                return None
            threading.Event().wait(self._poll_s)
            client = self._asking.client("GlobalOperations", project)
            request = {"project": project, "operation": operation.name}
            try:
                operation = self._asking.call(f"read operation {operation.name}", partial(client.get, request=request, **self._asking.clients.read()))
            except CloudError as error:
                _LOG.warning("operation not readable", project=project, operation=operation.name, because=str(error))
                return None
        return operation_failure(operation, doing, "")

    def _read(self, resource: ResourceId, name: str) -> Any:
        client = self._asking.client("ZoneOperations", resource.account)
        request = {"project": resource.account, "zone": resource.place, "operation": name}
        return self._asking.call(f"read operation {name}", lambda: client.get(request=request, **self._asking.clients.read()))


def hindrance(failure: CloudError) -> Hindrance:
    """What a start of ours that ended met, for the pace at which it is tried again."""
    match failure:
        case NoCapacity():
            return Hindrance.CAPACITY
        case QuotaReached():
            return Hindrance.QUOTA
        case KeyUnusable():
            return Hindrance.KEY
        case _:
            return Hindrance.CLOUD


def _warned(operation: Any, resource: ResourceId) -> None:
    """Warnings of an operation change nothing: the machine is read all the same."""
    told = [f"{warning.code}: {warning.message}"[:200] for warning in operation.warnings]
    if told:
        _LOG.warning("operation ended with warnings", resource=str(resource), operation=operation.name, warnings=told)


def _done(operation: Any) -> bool:
    return bool(operation.status) and operation.status.name == "DONE"
