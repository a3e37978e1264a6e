"""What the people on a machine should know, as the newest cycle left it; the report door reads it. Never a command."""

import json
import threading
from dataclasses import dataclass
from datetime import datetime

from reaper import log
from reaper.errors import StoreError
from reaper.model.resource import ResourceId
from reaper.ports import Clock, Store
from reaper.service.continuity import LAST_CYCLE, LONGEST_GAP

_FACT = "board"
_READ_EVERY_S = 10.0
_log = log.get("board")


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


class SharedBoard(Board):
    """
    The same for doors and a cycle in different processes: it goes through the store. A door reads it every ten seconds; what a
    leader left that has not cycled for long is nobody's word any more.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__()
        self._store, self._clock = store, clock
        self._read: float | None = None  # on the clock that never steps
        self._reading = threading.Lock()

    def publish(self, notices: dict[ResourceId, Notice], snoozed: dict[ResourceId, datetime]) -> None:
        super().publish(notices, snoozed)
        told = json.dumps({
            "notices": {str(id): [n.action, None if n.due_at is None else n.due_at.isoformat(), n.because] for id, n in notices.items()},
            "snoozed": {str(id): until.isoformat() for id, until in snoozed.items()},
        })  # fmt: skip
        self._store.set_facts({_FACT: told})

    def read(self, resource: ResourceId) -> tuple[Notice | None, datetime | None]:
        now = self._clock.monotonic()
        if (self._read is None or now - self._read >= _READ_EVERY_S) and self._reading.acquire(blocking=False):
            try:
                self._refresh()
                self._read = now
            finally:
                self._reading.release()
        return super().read(resource)

    def _refresh(self) -> None:
        try:
            last, told = self._store.fact(LAST_CYCLE), self._store.fact(_FACT)
            if told is None or last is None or self._clock.now() - datetime.fromisoformat(last) > LONGEST_GAP:
                told = "{}"
            kept = json.loads(told)
            notices = {ResourceId.parse(id): Notice(action, _moment(due_at), because) for id, (action, due_at, because) in kept.get("notices", {}).items()}
            snoozed = {ResourceId.parse(id): datetime.fromisoformat(until) for id, until in kept.get("snoozed", {}).items()}
        except (StoreError, ValueError, TypeError, AttributeError) as error:  # news, not a reason to refuse a report
            _log.warning("what people should know is not readable", because=str(error))
            return
        super().publish(notices, snoozed)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
