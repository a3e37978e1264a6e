"""
Reads on a beat in one thread, so that a driver call that never returns stops nothing else.

A blocked call cannot be interrupted, and a second one would only block beside it. So
the beat asks the thread, gives it a moment, and goes on; while the answer is
outstanding no other question is asked, and the report says which call it is.
"""

from __future__ import annotations

import threading
from typing import List, NamedTuple, Optional, Tuple

from agent.clock import Clock
from agent.readings import (
    FAILED,
    GpuSnapshot,
    GpuSource,
    LoaderSource,
    Log,
    Reading,
    TreeReading,
    WorkReading,
    WorkSource,
)  # fmt: skip

CLOSE_WITHIN_S = 5.0


class Stuck(NamedTuple):
    """A read that has not returned: the driver call it is in, as far as known, and for how long."""

    call: str
    for_s: float

    def __str__(self) -> str:
        return "%s has not returned for %.0f s; see dmesg (Xid) on this machine" % (self.call, self.for_s)


class Sampler:
    """Owns the one reading thread. ``beat``, ``stuck`` and ``close`` are called from the loop's thread."""

    def __init__(
        self, gpus: GpuSource, loaders: Optional[LoaderSource], clock: Clock, log: Log, beat_s: float, work: Optional[WorkSource] = None
    ) -> None:
        self._gpus, self._loaders, self._work, self._clock, self._log = gpus, loaders, work, clock, log
        self._patience_s = min(beat_s / 4, 1.0)
        self._stuck_after_s = max(2 * beat_s, 1.0)
        self._ask, self._done = threading.Event(), threading.Event()
        self._asked_at: Optional[float] = None
        self._ending = False
        self._result: Optional[Reading] = None
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()

    def beat(self) -> List[Reading]:
        """What has come in, after asking anew if nothing is outstanding. Waits for at most a quarter of a beat, and never for an old question."""
        readings = self._collect()
        if self._asked_at is None:
            self._asked_at = self._clock.boot_s()
            self._ask.set()
            self._clock.wait(self._done, self._patience_s)
            readings += self._collect()
        return readings

    def stuck(self) -> Optional[Stuck]:
        if self._asked_at is None or self._done.is_set():
            return None
        for_s = self._clock.boot_s() - self._asked_at
        return Stuck(self._gpus.doing or "reading", for_s) if for_s >= self._stuck_after_s else None

    def close(self) -> bool:
        """
        End the driver session and the thread. False when a call is outstanding: it is
        left alone, since tearing a session down under a working driver call has frozen GPUs.
        """
        outstanding = self._asked_at is not None and not self._done.is_set()
        self._ending = True
        self._ask.set()
        self._thread.join(self._patience_s if outstanding else CLOSE_WITHIN_S)
        return not self._thread.is_alive()

    def _collect(self) -> List[Reading]:
        if self._asked_at is None or not self._done.is_set():
            return []
        self._done.clear()
        self._asked_at = None
        result, self._result = self._result, None
        return [result] if result is not None else []

    def _run(self) -> None:
        while True:
            self._ask.wait()
            self._ask.clear()
            if self._ending:
                self._gpus.close()
                return
            self._result = self._read()
            self._done.set()

    def _read(self) -> Reading:
        try:
            snapshot = self._gpus.read()
        except Exception as error:  # noqa: BLE001  the thread must outlive any surprise of a driver; it is reported as failed
            self._log.error("gpu reading failed", error=repr(error))
            return Reading(GpuSnapshot(FAILED, "reading the GPUs: %r" % error), None)
        return Reading(snapshot, self._look_at_trees(snapshot), self._look_at_work(snapshot))

    def _look_at_trees(self, snapshot: GpuSnapshot) -> Optional[Tuple[TreeReading, ...]]:
        try:
            return self._loaders.look(snapshot.gpus) if self._loaders is not None else None
        except Exception as error:  # noqa: BLE001  the GPUs' figures must not be lost with the loaders'
            self._log.error("loader reading failed", error=repr(error))
            return None

    def _look_at_work(self, snapshot: GpuSnapshot) -> Optional[WorkReading]:
        try:
            return self._work.look(snapshot) if self._work is not None else None
        except Exception as error:  # noqa: BLE001  nor with what is known of jobs and people
            self._log.error("work reading failed", error=repr(error))
            return None
