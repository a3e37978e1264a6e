"""
Operations of ours: watched for a while after a verb, and asked about again when the machine is next read.

Polled with our own client: the library's own poller asks another address, with other credentials.
"""

import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from reaper import log
from reaper.clouds.gcp.answers import operation_failure
from reaper.clouds.gcp.asking import Asking
from reaper.clouds.gcp.permissions import READER, Permission
from reaper.errors import CloudError
from reaper.model.resource import ResourceId
from reaper.ports import Clock

FOLLOWED_FOR = timedelta(hours=1)
"""How long we remember an operation of ours whose end we have not seen, or that failed."""

NEEDS = (Permission("compute.zoneOperations.get", "compute.zoneOperations.get", READER, "why a start or a stop failed is not known"),)

_LOG = log.get(__name__)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A verb of ours that Google took. ``operation``: its name; ``at_s``: when, on the clock that never steps."""

    verb: str
    operation: str
    at_s: float


class Operations:
    """``poll_s``: seconds between two looks."""

    def __init__(self, asking: Asking, clock: Clock, poll_s: float) -> None:
        self._asking, self._clock, self._poll_s = asking, clock, poll_s
        self._sent: dict[ResourceId, _Sent] = {}

    def watch(self, resource: ResourceId, verb: str, operation: Any, for_s: float) -> CloudError | None:
        """Look at it until it is done, for so many seconds. Why it failed; None: it did not, or is not done yet."""
        self._sent[resource] = _Sent(verb, operation.name, self._clock.monotonic())
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
        return operation_failure(operation, f"{verb} {resource}", resource.place)

    def how_it_ended(self, resource: ResourceId) -> str | None:
        """Why the last verb of ours failed after we had stopped watching it; None: it did not, or that is not known."""
        sent = self._sent.get(resource)
        if sent is None:
            return None
        if self._clock.monotonic() - sent.at_s > FOLLOWED_FOR.total_seconds():
            self._sent.pop(resource, None)
            return None
        try:
            operation = self._read(resource, sent.operation)
        except CloudError as error:
            _LOG.warning("operation not readable", resource=str(resource), operation=sent.operation, because=str(error))
            return None
        if not _done(operation):
            return None
        failure = operation_failure(operation, f"{sent.verb} {resource}", resource.place)
        if failure is None:
            self._sent.pop(resource, None)  # one that failed is told as long as it is remembered
        return None if failure is None else str(failure)

    def _read(self, resource: ResourceId, name: str) -> Any:
        client = self._asking.client("ZoneOperations", resource.account)
        request = {"project": resource.account, "zone": resource.place, "operation": name}
        return self._asking.call(f"read operation {name}", lambda: client.get(request=request, **self._asking.clients.read()))


def _done(operation: Any) -> bool:
    return bool(operation.status) and operation.status.name == "DONE"
