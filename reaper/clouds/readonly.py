"""
Clouds that cannot do everything: the objects a process is handed so that what it may not do is not there.

A process whose ceiling is observe gets ReadOnlyCloud; one that may use some verbs gets OnlyVerbs. Neither is a flag
that could be forgotten somewhere deeper.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from reaper.errors import ReadOnly
from reaper.model.kinds.instance import Instance, Protections
from reaper.model.kinds.snapshot import Snapshot
from reaper.model.resource import ResourceId
from reaper.ports import Cloud, Listed, Shelf


class OnlyVerbs:
    """Reads pass. Of the verbs only those named pass ("stop", "start"); the others raise ReadOnly."""

    def __init__(self, cloud: Cloud, verbs: Iterable[str], because: str = "the verb is not in [scope] verbs") -> None:
        self.name = cloud.name
        self._cloud = cloud
        self._verbs = frozenset(verbs)
        self._because = because

    def list(self) -> tuple[Listed, ...]:
        return self._cloud.list()

    def get(self, resource: ResourceId) -> Instance:
        return self._cloud.get(resource)

    def protections(self, resource: ResourceId) -> Protections:
        return self._cloud.protections(resource)

    def shelves(self) -> tuple[Shelf, ...]:
        return self._cloud.shelves()

    def skew(self, now: datetime) -> timedelta | None:
        return self._cloud.skew(now)

    def stop(self, resource: ResourceId) -> None:
        self._require("stop", resource)
        self._cloud.stop(resource)

    def start(self, resource: ResourceId) -> None:
        self._require("start", resource)
        self._cloud.start(resource)

    def hibernate(self, resource: ResourceId) -> None:
        """A stop of another kind: the verb is the same."""
        self._require("stop", resource)
        self._cloud.hibernate(resource)

    def terminate(self, resource: ResourceId) -> None:
        self._require("terminate", resource)
        self._cloud.terminate(resource)

    def snapshot(self, resource: ResourceId, volume: str, tags: Mapping[str, str]) -> str:
        self._require("snapshot", resource)
        return self._cloud.snapshot(resource, volume, tags)

    def snapshots(self, resource: ResourceId, key: str) -> tuple[Snapshot, ...]:
        return self._cloud.snapshots(resource, key)

    def tag(self, resource: ResourceId, tags: Mapping[str, str | None]) -> None:
        """Our own state tags come with any verb."""
        if not self._verbs:
            self._require("tag", resource)
        self._cloud.tag(resource, tags)

    def _require(self, verb: str, resource: ResourceId) -> None:
        if verb not in self._verbs:
            raise ReadOnly(f"{verb} {resource} was not sent: {self._because}")


class ReadOnlyCloud(OnlyVerbs):
    """No verb at all."""

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud, verbs=(), because="this process only observes; mode = \"enforce\" lets it act")
