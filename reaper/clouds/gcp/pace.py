"""
How fast a project may be asked.

Google's limits are per project and shared with everything else that the project's people run, so we stay well below
them: https://cloud.google.com/compute/api-quota. Retries, pages and polls count like first tries.
"""

import threading
from collections.abc import Callable

from reaper.ports import Clock

PER_S = 5.0
BURST = 15.0
"""Requests a second and project, and how many at once: Google allows 20 to 25 a second for reads."""


class Pace:
    """A bucket of requests for each project. Thread-safe. ``wait``: waits so many seconds; stands in for sleeping in tests."""

    def __init__(self, clock: Clock, per_s: float = PER_S, burst: float = BURST, wait: Callable[[float], object] | None = None) -> None:
        self._clock, self._per_s, self._burst = clock, per_s, burst
        self._wait = threading.Event().wait if wait is None else wait
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, project: str) -> None:
        """Return when one more request may be sent to the project."""
        with self._lock:
            now = self._clock.monotonic()
            left, at = self._left.get(project, (self._burst, now))
            left = min(self._burst, left + (now - at) * self._per_s) - 1  # below nothing: the place in the queue
            self._left[project] = (left, now)
        if left < 0:
            self._wait(-left / self._per_s)
