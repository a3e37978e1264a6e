"""A person's "not until". It has no status: whether it is active follows from its end and now."""

from dataclasses import dataclass
from datetime import datetime

from reaper.model.resource import ResourceId


@dataclass(frozen=True, slots=True)
class Snooze:
    """Keeps a machine from ``created_at`` until ``until`` (excluded). Several add up: the latest end wins."""

    id: str
    resource: ResourceId
    until: datetime
    who: str
    reason: str
    created_at: datetime

    def active(self, now: datetime) -> bool:
        return now < self.until
