"""What the people on a machine should know, as the newest cycle left it; the report door reads it. Never a command."""

import threading
from dataclasses import dataclass
from datetime import datetime

from reaper.model.resource import ResourceId


@dataclass(frozen=True, slots=True)
class Notice:
    """``due_at``: the earliest moment the action may happen; None: not known yet (the wait stands still)."""

    action: str
    due_at: datetime | None
    because: str


class Board:
    """Written whole by the cycle, read by the door; both from their own threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notices: dict[ResourceId, Notice] = {}
        self._snoozed: dict[ResourceId, datetime] = {}

    def publish(self, notices: dict[ResourceId, Notice], snoozed: dict[ResourceId, datetime]) -> None:
        with self._lock:
            self._notices, self._snoozed = dict(notices), dict(snoozed)

    def read(self, resource: ResourceId) -> tuple[Notice | None, datetime | None]:
        with self._lock:
            return self._notices.get(resource), self._snoozed.get(resource)
