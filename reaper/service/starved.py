"""Says in the log which machines have been starved for long: once a day each, since it is advice and not an alarm."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from reaper import log
from reaper.decide.waste import Waste, told
from reaper.model.resource import ResourceId

AFTER = timedelta(minutes=30)
AGAIN_AFTER = timedelta(days=1)

_log = log.get(__name__)


class StarvedWatch:
    """Remembers since when machines are starved, of those alone; a new process begins anew."""

    def __init__(self) -> None:
        self._since: dict[ResourceId, datetime] = {}
        self._said: dict[ResourceId, datetime] = {}

    def step(self, starved: Mapping[ResourceId, Waste], now: datetime) -> tuple[ResourceId, ...]:
        """One cycle's starved machines; returns those that were said now."""
        self._since = {id: self._since.get(id, now) for id in starved}
        self._said = {id: at for id, at in self._said.items() if now - at < AGAIN_AFTER}
        due = [id for id, since in self._since.items() if now - since >= AFTER and id not in self._said]
        for id in due:
            wasted = starved[id]
            self._said[id] = now
            usd = round(wasted.usd_per_day, 2) if wasted.usd_per_day is not None else None
            _log.warning(
                "machine starved", resource=str(id), because=told(wasted), tree=wasted.tree, usd_per_day=usd,
                remedy="more loader workers, a faster path to the data, or a smaller machine; it is never stopped for this",
            )  # fmt: skip
        return tuple(due)
