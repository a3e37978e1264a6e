"""Counts a cloud's calls, errors and seconds from outside, so that no adapter has to remember to."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TypeVar

from reaper.errors import CloudError
from reaper.metrics import Metrics
from reaper.model.kinds.instance import Instance, Protections
from reaper.model.kinds.snapshot import Snapshot
from reaper.model.resource import ResourceId
from reaper.ports import Cloud, Listed, Shelf

T = TypeVar("T")


class InstrumentedCloud:
    """One call here is one call of the port; retries and pages inside it are not told apart."""

    def __init__(self, cloud: Cloud, metrics: Metrics) -> None:
        self.name = cloud.name
        self._cloud = cloud
        self._metrics = metrics

    def list(self) -> tuple[Listed, ...]:
        try:
            listed = self._timed("list", self._cloud.list)
        except CloudError:
            self._metrics.places_unknown(self.name)
            raise
        asked = [place for place in listed if place.skipped is None]
        self._metrics.places_listed(self.name, listed=len(asked), failed=sum(place.failed is not None for place in asked))
        return listed

    def get(self, resource: ResourceId) -> Instance:
        return self._timed("get", lambda: self._cloud.get(resource))

    def protections(self, resource: ResourceId) -> Protections:
        return self._timed("protections", lambda: self._cloud.protections(resource), lambda p: p.stop_protected is None)

    def stop(self, resource: ResourceId) -> None:
        self._timed("stop", lambda: self._cloud.stop(resource))

    def start(self, resource: ResourceId) -> None:
        self._timed("start", lambda: self._cloud.start(resource))

    def hibernate(self, resource: ResourceId) -> None:
        self._timed("hibernate", lambda: self._cloud.hibernate(resource))

    def terminate(self, resource: ResourceId) -> None:
        self._timed("terminate", lambda: self._cloud.terminate(resource))

    def snapshot(self, resource: ResourceId, volume: str, tags: Mapping[str, str]) -> str:
        return self._timed("snapshot", lambda: self._cloud.snapshot(resource, volume, tags))

    def snapshots(self, resource: ResourceId, key: str) -> tuple[Snapshot, ...]:
        return self._timed("snapshots", lambda: self._cloud.snapshots(resource, key))

    def tag(self, resource: ResourceId, tags: Mapping[str, str | None]) -> None:
        self._timed("tag", lambda: self._cloud.tag(resource, tags))

    def shelves(self) -> tuple[Shelf, ...]:
        return self._timed("shelves", self._cloud.shelves)

    def skew(self, now: datetime) -> timedelta | None:
        return self._cloud.skew(now)  # asks nobody

    def _timed(self, method: str, call: Callable[[], T], failed: Callable[[T], bool] = lambda _: False) -> T:
        """``failed``: whether an answer that raised nothing still stands for an error."""
        began = time.monotonic()
        error: str | None = "bug"
        try:
            answer = call()
            error = "unreadable" if failed(answer) else None
            return answer
        except CloudError as cloud_error:
            error = type(cloud_error).__name__
            raise
        finally:
            self._metrics.cloud_called(self.name, method, seconds=time.monotonic() - began, error=error)
