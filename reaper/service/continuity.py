"""Notices when the present is not the continuation of the past, so that people are warned anew."""

from datetime import datetime, timedelta

from reaper.model.policy import Configuration
from reaper.ports import Store

LONGEST_GAP = timedelta(minutes=10)

LAST_CYCLE = "last_cycle_at"
"""The fact that tells when the last cycle was."""


class Continuity:
    """Keeps when the last cycle was, under which mode and on which database, in the store. Changes of a policy are each mark's own business."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._strange = True  # until the first cycle of this process has written down which database it ran on

    def broken(self, configuration: Configuration, now: datetime) -> str | None:
        """Why every mark must begin anew; None: the last cycle was a moment ago, under the same mode."""
        strange = self._store.lost_track()
        if strange is not None:
            self._strange = True
            return strange
        mode, last = self._store.fact("mode"), self._store.fact(LAST_CYCLE)
        if mode is not None and mode != configuration.mode.value:
            return f"mode changed from {mode} to {configuration.mode}"
        if last is None:
            return None
        gap = now - datetime.fromisoformat(last)
        if gap > LONGEST_GAP:
            return f"no cycle for {int(gap.total_seconds() // 60)} minutes"
        if gap < -LONGEST_GAP:
            return "the last cycle is in the future: the clock was set back"
        return None

    def begin(self, configuration: Configuration, now: datetime) -> None:
        """
        Before the first mark is moved under this mode. A cycle that breaks off must not leave marks whose warning was only
        written down in observe to one that enforces.
        """
        if self._strange:
            self._store.keep_track()
            self._strange = False
        facts: dict[str, str | None] = {}
        if self._store.fact("mode") != configuration.mode.value:
            facts["mode"] = configuration.mode.value
        if self._store.fact(LAST_CYCLE) is None:
            facts[LAST_CYCLE] = now.isoformat()
        if facts:
            self._store.set_facts(facts)

    def remember(self, configuration: Configuration, now: datetime) -> None:
        self._store.set_facts({LAST_CYCLE: now.isoformat(), "mode": configuration.mode.value})
