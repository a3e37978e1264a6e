"""A person's "not until". It has no status: whether it is active follows from its end and now."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reaper.model.resource import ResourceId

HOST_PREFIX = "keep:"


@dataclass(frozen=True, slots=True)
class Snooze:
    """Keeps a machine from ``created_at`` until ``until`` (excluded). Several add up: the latest end wins."""

    id: str
    resource: ResourceId
    until: datetime
    who: str
    reason: str
    created_at: datetime

    @property
    def from_host(self) -> bool:
        """Asked for on the machine itself, so the operator's cap counts from the moment we first heard of it."""
        return self.id.startswith(HOST_PREFIX)

    def capped(self, cap: timedelta) -> "Snooze":
        """With the end that holds. One that a person asked us for was capped when it was made."""
        return replace(self, until=min(self.until, self.created_at + cap)) if self.from_host else self

    def active(self, now: datetime) -> bool:
        return now < self.until
